//! Small private files that several processes share: whole or not at all, one writer at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::ControlError;

/// The folder of the identity files under a state directory, made if missing, for its owner only.
pub(super) fn identity_dir(state: &Path) -> Result<PathBuf, ControlError> {
    let dir = state.join("identity");
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|e| refused(&dir, e))?;
    Ok(dir)
}

/// Holds off other processes (and other handles in this one) until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock of `dir`. Writers hold it for a few milliseconds.
    pub(super) fn take(dir: &Path) -> Result<Lock, ControlError> {
        let path = dir.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| refused(&path, e))?;
        loop {
            match file.lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(refused(&path, e)),
            }
        }
    }
}

/// Replaces `path` with `bytes`, readable by its owner only. A crash leaves the old content or the new.
///
/// The lock's holder is the only writer, so the temporary name is fixed and a crash leaves at most one behind.
pub(super) fn replace(_lock: &Lock, path: &Path, bytes: &[u8]) -> Result<(), ControlError> {
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let write = || {
        // A stale one may have another mode; a new file gets ours.
        match std::fs::remove_file(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    };
    write().map_err(|e| refused(path, e))
}

/// The content of `path`; `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, ControlError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(refused(path, e)),
    }
}

/// The system refuses to read or write `path`.
fn refused(path: &Path, error: io::Error) -> ControlError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ControlError::NoRoom { path: path.to_owned(), source: error }
        }
        _ => failed(path, &error),
    }
}

pub(super) fn failed(path: &Path, reason: &dyn std::fmt::Display) -> ControlError {
    ControlError::State { path: path.to_owned(), reason: reason.to_string() }
}
