//! A file whose blocks are sent: held by the store, or served where the user keeps it (docs/decisions/0034).
//!
//! It is opened once and read with pread. After every read the file is compared with what it was when it was hashed:
//! the open file (truncated, written to) and its path (replaced, removed). A change means the object must be
//! withdrawn. Two writes within one tick of the file system's clock look like one, so a change may slip through here;
//! the receiver verifies every block and would find it.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use headwater_units::{BlockIndex, BlockLayout, Bytes};
use serde::{Deserialize, Serialize};

use crate::tree::BlockHashes;
use crate::{StoreError, disk};

/// By what a file is recognised as the one that was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified_secs: i64,
    modified_nanos: i64,
}

impl Identity {
    fn of(m: &Metadata) -> Self {
        Identity {
            device: m.dev(),
            inode: m.ino(),
            size: m.size(),
            modified_secs: m.mtime(),
            modified_nanos: m.mtime_nsec(),
        }
    }
    /// The file's size.
    pub fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }
    /// When it was last written to: seconds since 1970, nanoseconds.
    pub(crate) fn modified(&self) -> (i64, i64) {
        (self.modified_secs, self.modified_nanos)
    }
}

/// An open file, read by whole blocks for as long as it is what it was. Shared by reference between threads.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    path: PathBuf,
    identity: Identity,
    layout: BlockLayout,
}

impl SourceFile {
    /// Opens a file as it is now.
    ///
    /// # Errors
    /// [`StoreError::NotAFile`], [`StoreError::Io`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let fail = |e| StoreError::io("open", path, e);
        let path = std::path::absolute(path).map_err(fail)?;
        // Looked at before it is opened: opening a pipe would wait for its other end.
        if !std::fs::metadata(&path).map_err(fail)?.is_file() {
            return Err(StoreError::NotAFile { path });
        }
        let file = File::open(&path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() {
            return Err(StoreError::NotAFile { path });
        }
        let identity = Identity::of(&metadata);
        Ok(SourceFile { file, path, identity, layout: BlockLayout::of(identity.size()) })
    }

    /// Opens a file and hashes it, in constant memory. `progress` hears the bytes hashed so far.
    ///
    /// # Errors
    /// As [`SourceFile::open`], and [`StoreError::ObjectChanged`] if the file changed while it was read.
    pub fn hash(path: &Path, progress: &mut dyn FnMut(Bytes)) -> Result<(Self, BlockHashes), StoreError> {
        let source = SourceFile::open(path)?;
        let hashes = BlockHashes::of_reader(&mut &source.file, &source.path, progress)?;
        source.check()?;
        if hashes.size() != source.size() {
            return Err(StoreError::ObjectChanged { path: source.path });
        }
        Ok((source, hashes))
    }

    /// Opens a file that was hashed earlier, if it still is that file. For many files, not all kept open.
    ///
    /// # Errors
    /// As [`SourceFile::open`], and [`StoreError::ObjectChanged`].
    pub fn open_unchanged(path: &Path, identity: Identity) -> Result<Self, StoreError> {
        let source = SourceFile::open(path)?;
        if source.identity != identity {
            return Err(StoreError::ObjectChanged { path: source.path });
        }
        Ok(source)
    }

    /// Reads a whole block into `buffer`, which takes its length.
    ///
    /// # Errors
    /// [`StoreError::ObjectChanged`]: withdraw the object. [`StoreError::NoSuchBlock`] past the end,
    /// [`StoreError::Io`] when the disk fails. The buffer's content is then meaningless.
    pub fn read_block(&self, block: BlockIndex, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        read_block_at(&self.file, &self.path, self.layout, block, buffer).map_err(|e| match e {
            StoreError::Io { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof => self.changed(),
            other => other,
        })?;
        self.check()
    }

    /// Whether it still is the file that was hashed, by its open handle and by its path.
    ///
    /// # Errors
    /// [`StoreError::ObjectChanged`] if not, [`StoreError::Io`] if that cannot be found out.
    pub fn check(&self) -> Result<(), StoreError> {
        let open = self.file.metadata().map_err(|e| StoreError::io("look at", &self.path, e))?;
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => named,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(self.changed());
            }
            Err(e) => return Err(StoreError::io("look at", &self.path, e)),
        };
        if Identity::of(&open) == self.identity && Identity::of(&named) == self.identity {
            Ok(())
        } else {
            Err(self.changed())
        }
    }

    fn changed(&self) -> StoreError {
        StoreError::ObjectChanged { path: self.path.clone() }
    }

    /// Where the file is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The file's size when it was opened.
    pub fn size(&self) -> Bytes {
        self.identity.size()
    }
    /// How it is cut into blocks.
    pub fn layout(&self) -> BlockLayout {
        self.layout
    }
    /// By what it is recognised.
    pub fn identity(&self) -> Identity {
        self.identity
    }
    /// Bytes that it takes on disk: fewer than its size if it has holes.
    pub(crate) fn allocated(&self) -> Result<Bytes, StoreError> {
        let metadata = self.file.metadata().map_err(|e| StoreError::io("look at", &self.path, e))?;
        Ok(Bytes::new(metadata.blocks().saturating_mul(512)).min(self.size()))
    }
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
    /// Makes `target`, an empty file, share this file's blocks. False where the file system cannot.
    pub(crate) fn reflink_to(&self, target: &File) -> bool {
        disk::reflink(&self.file, target)
    }
}

/// Reads one block of a file that holds an object at offset zero.
pub(crate) fn read_block_at(
    file: &File,
    path: &Path,
    layout: BlockLayout,
    block: BlockIndex,
    buffer: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let len = layout.len(block).get() as usize;
    if len == 0 {
        return Err(StoreError::NoSuchBlock { block, wanted: 0..layout.block_count() });
    }
    if buffer.capacity() < len {
        // Zeros from the kernel: reading is then the first to touch them.
        *buffer = vec![0; len];
    }
    buffer.resize(len, 0);
    file.read_exact_at(buffer, layout.offset(block).get()).map_err(|e| StoreError::io("read", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    fn served(bytes: &[u8]) -> (tempfile::TempDir, SourceFile, BlockHashes) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        // As if written long ago: changes made by the tests cannot fall into the same tick of the clock.
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        let (source, hashes) = SourceFile::hash(&path, &mut |_| {}).unwrap();
        (folder, source, hashes)
    }

    fn is_withdrawn(source: &SourceFile) -> bool {
        let result = source.read_block(BlockIndex(0), &mut Vec::new());
        matches!(result, Err(StoreError::ObjectChanged { .. }))
    }

    #[test]
    fn blocks_read_are_the_blocks_hashed() {
        let bytes: Vec<u8> = (0..700_000u32).map(|i| (i >> 3) as u8).collect();
        let (_folder, source, hashes) = served(&bytes);
        let mut buffer = Vec::new();
        for b in 0..hashes.layout().block_count() {
            source.read_block(BlockIndex(b), &mut buffer).unwrap();
            assert!(hashes.verify_block(BlockIndex(b), &buffer));
        }
        let past = source.read_block(BlockIndex(3), &mut buffer);
        assert!(matches!(past, Err(StoreError::NoSuchBlock { .. })));
    }

    #[test]
    fn a_file_written_to_is_withdrawn() {
        let (_folder, source, _) = served(&[1; 300_000]);
        let file = File::options().write(true).open(source.path()).unwrap();
        file.write_all_at(b"x", 5).unwrap();
        assert!(is_withdrawn(&source));
    }

    #[test]
    fn a_file_truncated_or_grown_is_withdrawn() {
        let (_folder, source, _) = served(&[1; 300_000]);
        File::options().write(true).open(source.path()).unwrap().set_len(299_999).unwrap();
        assert!(is_withdrawn(&source));
        let (_folder, source, _) = served(&[1; 300_000]);
        File::options().append(true).open(source.path()).unwrap().write_all(b"more").unwrap();
        assert!(is_withdrawn(&source));
    }

    #[test]
    fn a_file_replaced_or_removed_is_withdrawn() {
        let (folder, source, _) = served(&[1; 300_000]);
        let other = folder.path().join("other");
        std::fs::write(&other, [2; 300_000]).unwrap();
        std::fs::rename(&other, source.path()).unwrap();
        assert!(is_withdrawn(&source));
        let (_folder, source, _) = served(&[1; 300_000]);
        std::fs::remove_file(source.path()).unwrap();
        assert!(is_withdrawn(&source));
    }

    #[test]
    fn a_file_opened_again_must_be_the_same() {
        let (_folder, source, _) = served(&[1; 1000]);
        assert!(SourceFile::open_unchanged(source.path(), source.identity()).is_ok());
        std::fs::write(source.path(), [1; 1001]).unwrap();
        let again = SourceFile::open_unchanged(source.path(), source.identity());
        assert!(matches!(again, Err(StoreError::ObjectChanged { .. })));
    }

    #[test]
    fn only_regular_files_are_served() {
        assert!(matches!(SourceFile::open(Path::new("/dev/null")), Err(StoreError::NotAFile { .. })));
        assert!(matches!(SourceFile::open(Path::new("/")), Err(StoreError::NotAFile { .. })));
    }
}
