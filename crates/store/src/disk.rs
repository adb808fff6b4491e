//! File system functions that the standard library lacks: free space, holes, clones, durable and exclusive renames; and
//! the meaning of its errors here.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use headwater_units::Bytes;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::StoreError;

/// How much is copied at a time, by hand.
const COPY_SIZE: usize = 1 << 20;

/// Bytes that an ordinary user may still write on the file system of `path` (or of its folder, where `path` is not
/// there).
///
/// None where the file system does not say.
pub(crate) fn free_space(path: &Path) -> Option<Bytes> {
    let stat = rustix::fs::statvfs(path).or_else(|_| rustix::fs::statvfs(parent(path))).ok()?;
    (stat.f_blocks > 0).then(|| Bytes::new(stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// Fails early where `needed` more bytes cannot fit; a file system that does not say how much is free passes.
pub(crate) fn check_space(path: &Path, needed: Bytes) -> Result<(), StoreError> {
    match free_space(path) {
        Some(free) if free < needed => {
            Err(StoreError::DiskFull { path: path.to_owned(), needed, free: Some(free) })
        }
        _ => Ok(()),
    }
}

impl StoreError {
    /// Wraps what the system said about `path`.
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        StoreError::io_writing(doing, path, Bytes::ZERO, source)
    }

    /// As [`StoreError::io`], when `needed` bytes were still to be written there.
    pub(crate) fn io_writing(doing: &'static str, path: &Path, needed: Bytes, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::DiskFull { path: path.to_owned(), needed, free: free_space(path) }
            }
            _ => StoreError::Io { doing, path: path.to_owned(), source },
        }
    }
}

/// The folder that holds `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Makes renames and removals in a folder survive a power cut.
pub(crate) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|f| f.sync_all()).map_err(|e| StoreError::io("sync folder", path, e))
}

/// Shares the source's blocks with an empty file, copy on write. False where the file system cannot.
pub(crate) fn reflink(source: &File, target: &File) -> bool {
    #[cfg(target_os = "linux")]
    return rustix::fs::ioctl_ficlone(target, source).is_ok();
    #[cfg(not(target_os = "linux"))]
    return {
        _ = (source, target);
        false
    };
}

/// Copies a part of a file to the same place of another: shared copy on write where the file system can, inside the kernel where that can,
/// else by hand.
pub(crate) fn copy_range(source: &File, target: &File, offset: u64, len: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut done = 0;
    #[cfg(target_os = "linux")]
    while done < len {
        let (mut from, mut to) = (offset + done, offset + done);
        let more = usize::try_from(len - done).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), more) {
            // Its end; the loop below says so.
            Ok(0) => break,
            Ok(copied) => done += copied as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::BADF) => {
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let mut buffer = vec![0; usize::try_from(len - done).unwrap_or(usize::MAX).min(COPY_SIZE)];
    while done < len {
        let part = usize::try_from(len - done).unwrap_or(usize::MAX).min(COPY_SIZE);
        source.read_exact_at(&mut buffer[..part], offset + done)?;
        target.write_all_at(&buffer[..part], offset + done)?;
        done += part as u64;
    }
    Ok(())
}

/// Swaps what two names stand for, without a moment in which either stands for nothing. False where the file system cannot.
pub(crate) fn exchange(a: &Path, b: &Path) -> Result<bool, StoreError> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(StoreError::io("rename to", b, error.into())),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        _ = (a, b);
        Ok(false)
    }
}

/// Has the kernel begin to write to the disk what is not there yet of a file, and does not wait for it. A hint: failure does not
/// matter, and an error of the disk is still told by the next sync.
pub(crate) fn begin_to_write_out(file: &File) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: the call reads and writes no memory of this process; the descriptor is open as long as `file` is.
        #[allow(unsafe_code)]
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        _ = file;
    }
}

/// Forgets cached pages, so that what is read next comes from the disk. A hint: failure does not matter.
pub(crate) fn drop_cache(file: &File) {
    #[cfg(target_os = "linux")]
    {
        _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    {
        _ = file;
    }
}

/// The parts of a file that are not holes, ascending, clipped to `len`. All of it where the file system cannot tell.
pub(crate) fn data_extents(file: &File, len: u64) -> Vec<Range<u64>> {
    let mut extents = Vec::new();
    let mut at = 0;
    while at < len {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(_) => return std::iter::once(0..len).collect(),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(len).min(len);
        if start >= end {
            break;
        }
        extents.push(start..end);
        at = end;
    }
    extents
}

/// Zeros are looked for in pieces of this size, so that a sparse file stays sparse.
const HOLE_SIZE: usize = 64 << 10;

/// Writes at an offset where nothing but zeros can be read so far, and leaves out long runs of zeros: they stay holes.
pub(crate) fn write_sparse(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut from = 0;
    let mut at = 0;
    for piece in bytes.chunks(HOLE_SIZE) {
        if is_zero(piece) {
            file.write_all_at(&bytes[from..at], offset + from as u64)?;
            from = at + piece.len();
        }
        at += piece.len();
    }
    file.write_all_at(&bytes[from..at], offset + from as u64)
}

/// Whether all are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // In steps, so that the compiler looks at many bytes at once, and most data ends it in the first.
    bytes.chunks(64).all(|step| step.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Gives a part of a file back to the file system; zeros are read there then. A hint: failure does not matter.
pub(crate) fn punch_hole(file: &File, part: Range<u64>) {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        _ = fallocate(file, flags, part.start, part.end - part.start);
    }
    #[cfg(not(target_os = "linux"))]
    {
        _ = (file, part);
    }
}

/// Renames; an existing `to` is replaced only if `overwrite` is set, and never half so.
pub(crate) fn rename(from: &Path, to: &Path, overwrite: bool) -> Result<(), StoreError> {
    if overwrite {
        return std::fs::rename(from, to).map_err(|e| StoreError::io("rename to", to, e));
    }
    match rename_noreplace(from, to) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Err(StoreError::DestinationExists { path: to.to_owned() })
        }
        done => done.map_err(|e| StoreError::io("rename to", to, e)),
    }
}

fn rename_noreplace(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            done => return Ok(done?),
        }
    }
    // A hard link fails where the name is taken. File systems without links (FAT) get a look before the rename.
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
        Err(_) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => std::fs::rename(from, to),
    }
}

/// Locks a file for this process, until it is closed; where the file system has no locks, goes on without.
pub(crate) fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path: path.to_owned() }),
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(e)) => Err(StoreError::io("lock", path, e)),
    }
}

/// Removes a file; one that is not there is as good as removed.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// A file that goes away unless it is kept: whatever fails, no temporary file stays.
pub(crate) struct TempFile {
    path: PathBuf,
    file: File,
    kept: bool,
}

impl TempFile {
    /// Creates a new file, readable by its owner alone.
    pub(crate) fn create(path: PathBuf) -> Result<Self, StoreError> {
        use std::os::unix::fs::OpenOptionsExt;
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = options.map_err(|e| StoreError::io("create", &path, e))?;
        Ok(TempFile { path, file, kept: false })
    }
    /// Takes charge of a file that was made in another way.
    pub(crate) fn adopt(path: PathBuf, file: File) -> Self {
        TempFile { path, file, kept: false }
    }
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    /// Gives it its final name, with its bytes on disk first.
    pub(crate) fn persist(mut self, to: &Path, overwrite: bool) -> Result<(), StoreError> {
        self.file.sync_all().map_err(|e| StoreError::io("sync", &self.path, e))?;
        rename(&self.path, to, overwrite)?;
        self.kept = true;
        // Between two links to one file a rename does nothing; then the temporary name is still there.
        remove_if_there(&self.path)?;
        sync_folder(parent(to))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.kept {
            _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_told_from_data() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        assert_eq!(data_extents(&file, 4 << 20), []);
        file.write_all_at(&[7; 4096], 1 << 20).unwrap();
        let found = data_extents(&file, 4 << 20);
        assert!(found.iter().any(|e| e.contains(&(1 << 20))));
        assert!(!found.iter().any(|e| e.contains(&(3 << 20))));
    }

    #[test]
    fn long_runs_of_zeros_are_not_written_and_all_else_is() {
        let len = 5 * HOLE_SIZE + 100;
        let mut bytes = vec![0; len];
        bytes[HOLE_SIZE + 7] = 1;
        bytes[2 * HOLE_SIZE] = 2;
        bytes[len - 1] = 3;
        let file = tempfile::tempfile().unwrap();
        let end = 10 + len as u64;
        file.set_len(end).unwrap();
        write_sparse(&file, &bytes, 10).unwrap();
        let mut found = vec![9; len];
        file.read_exact_at(&mut found, 10).unwrap();
        assert!(found == bytes);
        let data: u64 = data_extents(&file, end).iter().map(|e| e.end - e.start).sum();
        assert!(data < end, "no holes in {end} bytes");
        punch_hole(&file, 0..end);
        file.read_exact_at(&mut found, 10).unwrap();
        assert!(is_zero(&found) && !is_zero(&bytes) && is_zero(&[]));
    }

    #[test]
    fn a_rename_never_replaces_unless_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&a, "new").unwrap();
        std::fs::write(&b, "old").unwrap();
        assert!(matches!(rename(&a, &b, false), Err(StoreError::DestinationExists { .. })));
        assert_eq!(std::fs::read(&b).unwrap(), b"old");
        rename(&a, &b, true).unwrap();
        assert_eq!(std::fs::read(&b).unwrap(), b"new");
    }
}
