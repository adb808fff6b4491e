//! Objects on disk: verified content, which blocks are here, crash-safe (docs/decisions/0017, docs/decisions/0019, docs/decisions/0034).
//!
//! Knows blocks, never symbols. Everything here is synchronous and meant for worker threads; nothing reads a clock.
//!
//! | You have | You want | Use |
//! |---|---|---|
//! | a file | to serve it in place | [`SourceFile::hash`] |
//! | a file | to keep a copy of it under a name | [`Store::put`], later [`Store::open_object`] |
//! | a folder | to name it by one id | [`FolderListing::of`], [`Manifest`] |
//! | block hashes from a stranger | to trust them | [`BlockHashes::verified`] |
//! | blocks from strangers | a file under its final name | [`Partial`] |
//! | files from strangers | a folder under its final name | [`FolderDraft`] |
//!
//! Object bytes are plain files; the store's index is a `redb` database, a partial's metadata a small file of its own
//! (see [`partial`] for why). No mmap: others may truncate the files we read.

pub mod block_map;
mod disk;
mod error;
mod folder;
mod folder_draft;
mod index;
pub mod manifest;
mod names;
pub mod partial;
mod partial_record;
mod percent;
mod source_file;
pub mod store;
pub mod tree;

pub use block_map::BlockMap;
pub use error::StoreError;
pub use folder::{FolderListing, HashFile, Skipped};
pub use folder_draft::{Comparison, FolderDraft, compare};
pub use manifest::{Entry, Kind, Manifest, Modified};
pub use names::{NameFacts, NameStanding};
pub use partial::{Partial, Resuming};
pub use partial_record::{PartialInfo, PartialList, PartialSpec};
pub use source_file::{Identity, SourceFile};
pub use store::{
    Collected, Gathering, GcOptions, ObjectInfo, Placed, Problem, PutMode, PutOptions, Removed, Store,
    StoreOptions, Stored, check_name,
};
pub use tree::{BlockHasher, BlockHashes, ChainingValue};
