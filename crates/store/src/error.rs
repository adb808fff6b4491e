//! Errors of the store, worded so that the reader knows what to do next.

use std::io;
use std::path::PathBuf;

use headwater_units::{BlockIndex, Bytes, ObjectId};
use thiserror::Error;

/// Any failure of this crate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system refused something that no other variant describes.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: "read", "create".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No room (ENOSPC or the user's disk quota). Nothing that was finished is lost.
    #[error(
        "disk full at {}: {needed} more needed{}; make room there and run the same command again, finished blocks \
         and stored objects are kept", path.display(), free.map(|b| format!(", {b} free")).unwrap_or_default()
    )]
    DiskFull {
        /// Where the bytes should have gone.
        path: PathBuf,
        /// Bytes still to be written.
        needed: Bytes,
        /// Free bytes by the file system's account, where it has one.
        free: Option<Bytes>,
    },
    /// The object does not fit the store's quota. Nothing was stored, nothing was removed.
    #[error(
        "store quota is {quota}, {used} used, {needed} needed: remove objects with `rm` or raise the quota"
    )]
    QuotaExceeded {
        /// The limit.
        quota: Bytes,
        /// Bytes of stored objects and of running puts.
        used: Bytes,
        /// Bytes that this put needs on top.
        needed: Bytes,
    },
    /// Another process has it open: a daemon owns a store, a running `get` owns its partial file.
    #[error("{} is in use by another headwater process: ask that daemon (commands with the same --state do), or wait for that transfer to end", path.display())]
    Busy {
        /// The locked file.
        path: PathBuf,
    },
    /// Neither a name, nor an id, nor the beginning of one.
    #[error(
        "no object '{what}' in the store: `headwater ls` shows what is there; the beginning of an id needs 8 digits or more"
    )]
    NotFound {
        /// The object that was asked for.
        what: String,
    },
    /// The beginning of several ids.
    #[error("'{prefix}' is the beginning of {matches} object ids: give more digits")]
    Ambiguous {
        /// The prefix that was asked for.
        prefix: String,
        /// How many ids begin so.
        matches: usize,
    },
    /// The object is nothing but a file of a folder, which would be broken without it.
    #[error("{} is a file of folder {folder}: `rm` that", id.short())]
    PartOfFolder {
        /// The object.
        id: ObjectId,
        /// The folder.
        folder: ObjectId,
    },
    /// A name that cannot be given to an object.
    #[error("'{}' cannot name an object: {reason}", name.escape_debug())]
    BadName {
        /// The name.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// A file is no longer what was hashed: withdraw the object, then hash the file again.
    #[error("{} changed after it was hashed: serve or put it again", path.display())]
    ObjectChanged {
        /// The file.
        path: PathBuf,
    },
    /// The index names an object whose file is not there or has the wrong size.
    #[error("stored object {} is damaged ({reason}): put it again, or `rm` it", id.short())]
    ObjectDamaged {
        /// The object.
        id: ObjectId,
        /// The problem, with the path.
        reason: String,
    },
    /// The index cannot be read as a database.
    #[error(
        "store index {} is damaged ({reason}): move that file away and start again; the objects beside it stay and \
         can be adopted, their names are lost", path.display()
    )]
    IndexDamaged {
        /// The index file.
        path: PathBuf,
        /// The database's error.
        reason: String,
    },
    /// A newer program has written to the index what this one cannot read.
    #[error(
        "store index {} was written by a newer headwater (table {table:?}): install that version here, or choose another folder with \
         --state", path.display()
    )]
    IndexNewer {
        /// The index file.
        path: PathBuf,
        /// The table that this program does not know.
        table: String,
    },
    /// The index failed in another way.
    #[error("store index {}: {reason}", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// The database's error.
        reason: String,
    },
    /// A list of block hashes does not belong to the object.
    #[error("block hashes of object {} are not genuine ({reason}): ask another source", id.short())]
    HashesMismatch {
        /// The object.
        id: ObjectId,
        /// The mismatch.
        reason: String,
    },
    /// The bytes of a block do not have the block's hash; they were not written.
    #[error("block {block} does not match its hash: fetch it again, from another source")]
    BlockMismatch {
        /// The block.
        block: BlockIndex,
    },
    /// A block outside the object, or outside the range asked for.
    #[error("block {block} is not among blocks {}..{} of this transfer", wanted.start, wanted.end)]
    NoSuchBlock {
        /// The block.
        block: BlockIndex,
        /// The blocks there are.
        wanted: std::ops::Range<u32>,
    },
    /// A block that has not arrived yet.
    #[error("block {block} is not here yet")]
    BlockMissing {
        /// The block.
        block: BlockIndex,
    },
    /// The object cannot be finished yet.
    #[error("{missing} of {wanted} blocks are still missing: fetch them, then finish")]
    Incomplete {
        /// How many are not here.
        missing: u32,
        /// How many are needed.
        wanted: u32,
    },
    /// There is a file under the final name and overwriting was not asked for.
    #[error("{} exists already: replace it with --force, or choose another name with -o", path.display())]
    DestinationExists {
        /// The final name.
        path: PathBuf,
    },
    /// Nothing can be written under this name.
    #[error("cannot write to {}: {reason}", path.display())]
    BadDestination {
        /// The name.
        path: PathBuf,
        /// Why not.
        reason: &'static str,
    },
    /// A byte range that holds nothing of the object.
    #[error("bytes {from}..{to} are empty or begin past the object's end: it has {size} bytes")]
    BadRange {
        /// First byte.
        from: u64,
        /// One past the last byte.
        to: u64,
        /// The object's size.
        size: u64,
    },
    /// A folder, device, pipe or socket where a file was expected.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// It was told to stop. Nothing was stored.
    #[error("stopped before it was stored: nothing of it is kept")]
    Stopped,
    /// A manifest that breaks a rule of its format.
    #[error("not a valid folder manifest, line {line}: {reason}")]
    BadManifest {
        /// Counted from 1; the magic is line 1.
        line: usize,
        /// The rule.
        reason: String,
    },
}
