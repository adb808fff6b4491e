//! How tests say that they compared nothing, and why, and the disks that not every machine lets them mount; a dependency of tests only.
//!
//! A test that cannot run passes, and nobody sees it among hundreds. So each says so here: a line with its name and the reason goes to the
//! file that `HEADWATER_SKIPPED` names, and `make test` ends with all of them. Where `CI` is `true`, a test that misses something of the
//! machine fails instead: the machines of continuous integration have all that is needed.

mod small_disk;

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use small_disk::SmallDisk;

/// The file that skips are written to, a line each.
const FILE: &str = "HEADWATER_SKIPPED";

/// The machine lacks what the test needs.
///
/// # Panics
/// Where `CI` is `true`.
#[track_caller]
pub fn cannot(reason: impl Display) {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!is_ci, "a machine that tests every change must be able to: {reason}");
    skipped(&reason);
}

/// The lock that keeps the measurements of a process apart; `None`, and that is said, where the machine lacks what `probe` tries.
///
/// # Panics
/// As [`cannot`].
pub fn alone<T, E: Display>(probe: impl FnOnce() -> Result<T, E>) -> Option<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    probe().inspect_err(|why| cannot(why)).is_ok().then_some(lock)
}

/// The machine was too busy, in every attempt, for what the test compares.
pub fn too_busy(reason: impl Display) {
    skipped(&format_args!("machine too busy: {reason}"));
}

fn skipped(reason: &dyn Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("skipped: {reason}");
    let Some(path) = std::env::var_os(FILE) else { return };
    let line = format!("{test}: {reason}\n").replace('\n', " ");
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{}", line.trim_end()));
    written.expect("the file of skipped tests takes a line");
}
