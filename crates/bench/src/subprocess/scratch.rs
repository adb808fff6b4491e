//! A folder for a while, and objects in it.

use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use headwater_api::AppError;
use headwater_units::{Bytes, ObjectId};
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::Guard;

/// Memory, where it is a file system: then no disk slows anybody down.
const IN_MEMORY: &str = "/dev/shm";
/// Free memory that the files must leave to everybody else.
const MEMORY_LEFT: Bytes = Bytes::mib(1024);
/// Room for stores, keys and logs.
const SLACK: Bytes = Bytes::mib(64);

/// A new folder of our own, removed with all it holds when dropped, unless it is to be kept.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Makes one for `what`, `demo` or so, where `size` fits twice: as the sources have it and as the receiver writes it.
    ///
    /// # Errors
    /// [`AppError::NoRoom`], or what the system says.
    pub(crate) fn create(what: &str, size: Bytes, keep: bool) -> Result<Self, AppError> {
        Scratch::make(path_in(&place(what, size)?, what), keep)
    }

    /// [Makes](Scratch::create) one, and before it a guard that removes it, unless it is to be kept, should we die.
    ///
    /// # Errors
    /// As [`create`](Scratch::create).
    pub(crate) fn create_guarded(what: &str, size: Bytes, keep: bool) -> Result<(Self, Guard), AppError> {
        let path = path_in(&place(what, size)?, what);
        let guard = Guard::start((!keep).then_some(path.as_path()))?;
        Ok((Scratch::make(path, keep)?, guard))
    }

    /// Makes one for `what` below a folder of the user's choice, where `size` fits twice.
    ///
    /// # Errors
    /// [`AppError::NoRoom`], or what the system says.
    pub(crate) fn create_in(place: &Path, what: &str, size: Bytes) -> Result<Self, AppError> {
        let needed = size * 2 + SLACK;
        match free_space(place) {
            Some(free) if free < needed => Err(AppError::NoRoom(format!(
                "the {what} needs {needed} in {}, and {free} are free",
                place.display()
            ))),
            _ => Scratch::make(path_in(place, what), false),
        }
    }

    fn make(path: PathBuf, keep: bool) -> Result<Self, AppError> {
        // A dead run with the same process id may have left one behind.
        let _ = std::fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| cannot("create", &path, error))?;
        Ok(Scratch { path, keep })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.keep
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Memory or the usual folder for what does not stay, wherever `size` fits twice.
fn place(what: &str, size: Bytes) -> Result<PathBuf, AppError> {
    let needed = size * 2 + SLACK;
    let (memory, usual) = (Path::new(IN_MEMORY), std::env::temp_dir());
    let fits = |place: &Path| free_space(place).is_none_or(|free| free >= needed);
    if memory.is_dir() && fits(memory) && free_memory() >= needed + MEMORY_LEFT {
        Ok(memory.to_owned())
    } else if fits(&usual) {
        Ok(usual)
    } else {
        Err(AppError::NoRoom(format!(
            "the {what} needs {needed} and {} has less; set TMPDIR to a folder with more, or make it smaller",
            usual.display()
        )))
    }
}

/// A path that no other run uses, nor this one for anything else.
fn path_in(place: &Path, what: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    place.join(format!("headwater-{what}-{}-{number}", std::process::id()))
}

fn free_space(path: &Path) -> Option<Bytes> {
    let stat = rustix::fs::statvfs(path).ok()?;
    (stat.f_blocks > 0).then(|| Bytes::new(stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// Memory that the kernel would hand out without swapping; zero if it does not say.
fn free_memory() -> Bytes {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    Bytes::kib(kib)
}

/// Writes `size` random bytes, the same for the same seed, and returns their BLAKE3.
///
/// # Errors
/// The system's error.
pub(crate) fn write_random(path: &Path, size: Bytes, seed: u64) -> Result<ObjectId, AppError> {
    let failed = |error| cannot("write", path, error);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut file = File::create_new(path).map_err(failed)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut left = size.get();
    while left > 0 {
        let part = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let part = &mut buffer[..part];
        random.fill_bytes(part);
        hasher.update(part);
        file.write_all(part).map_err(failed)?;
        left -= part.len() as u64;
    }
    Ok(ObjectId(*hasher.finalize().as_bytes()))
}

/// The BLAKE3 of a file.
///
/// # Errors
/// The system's error.
pub(crate) fn hash(path: &Path) -> Result<ObjectId, AppError> {
    let failed = |error| cannot("read", path, error);
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(ObjectId(*hasher.finalize().as_bytes())),
            part => hasher.update(&buffer[..part]),
        };
    }
}

fn cannot(verb: &str, path: &Path, source: io::Error) -> AppError {
    AppError::Io { doing: format!("cannot {verb} {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_bytes_and_nothing_is_left() {
        let scratch = Scratch::create("test", Bytes::mib(3), false).unwrap();
        let folder = scratch.path().to_owned();
        let write = |name: &str, seed| write_random(&folder.join(name), Bytes::new(2_500_001), seed).unwrap();
        let (first, again, other) = (write("a", 1), write("b", 1), write("c", 2));
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_eq!(hash(&folder.join("a")).unwrap(), first);
        assert_eq!(std::fs::metadata(folder.join("c")).unwrap().len(), 2_500_001);
        drop(scratch);
        assert!(!folder.exists());
    }

    #[test]
    fn no_room_is_said_before_anything_is_written() {
        let error = Scratch::create("test", Bytes::new(1 << 60), false).unwrap_err();
        assert!(matches!(error, AppError::NoRoom(_)), "{error}");
    }
}
