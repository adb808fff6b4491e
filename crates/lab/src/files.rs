//! Files that are whole or not there: written under another name, then renamed.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::LabError;

/// How names of unfinished files end.
const UNFINISHED: &str = ".tmp";

/// Writes a file that other processes see whole or not at all.
///
/// It is not forced to the disk: after a power cut a file may be torn, and what reads such files checks them.
pub(super) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    // Two threads may write the same file at the same time.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!(".{name}.{}-{number}{UNFINISHED}", std::process::id()));
    let written = File::create(&unfinished).and_then(|file| {
        let mut file = BufWriter::new(file);
        fill(&mut file)?;
        file.flush()?;
        fs::rename(&unfinished, path)
    });
    if written.is_err() {
        drop(fs::remove_file(&unfinished));
    }
    written
}

/// Removes what a killed process left unfinished in a folder that nobody else writes to.
pub(super) fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(UNFINISHED) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A folder that only this process writes to, as long as this lives.
#[derive(Debug)]
pub(super) struct Claimed {
    /// Held open, which holds the lock.
    _lock: File,
}

/// Makes the folder and takes it; fails if another process has it.
pub(super) fn claim_folder(folder: &Path) -> Result<Claimed, LabError> {
    let lock: PathBuf = folder.join(".lock");
    let failed = |source| LabError::write(folder, "--out", source);
    fs::create_dir_all(folder).map_err(failed)?;
    let file = File::options().create(true).append(true).open(&lock).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Claimed { _lock: file }),
        Err(TryLockError::WouldBlock) => Err(LabError::Busy { path: folder.to_owned() }),
        // Some network file systems know no locks; there it is up to the user.
        Err(TryLockError::Error(source)) if source.kind() == io::ErrorKind::Unsupported => {
            Ok(Claimed { _lock: file })
        }
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_writing_fails_leaves_the_old_one_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_whole(&path, |file| file.write_all(b"old")).unwrap();
        write_whole(&path, |_| Err(io::Error::other("disk on fire"))).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_left_unfinished_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".a.arrow.1-0.tmp"), "").unwrap();
        fs::write(folder.path().join("a.arrow"), "").unwrap();
        remove_unfinished(folder.path()).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["a.arrow"]);
    }

    #[test]
    fn a_folder_is_claimed_once_and_free_again_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let claimed = claim_folder(folder.path()).unwrap();
        assert!(matches!(claim_folder(folder.path()), Err(LabError::Busy { .. })));
        drop(claimed);
        claim_folder(folder.path()).unwrap();
    }
}
