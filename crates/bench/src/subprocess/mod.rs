//! Processes of this binary that another of its processes runs, and a folder for them: for the demo, and for experiments on
//! real packets. Both are gone when their maker is.

mod process;
mod scratch;

use rustix::time::{ClockId, clock_gettime};

pub(crate) use process::{Ended, Guard, Process, cpu_seconds, without_settings};
pub(crate) use scratch::{Scratch, hash, write_random};

/// The clock that all processes of a machine share.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
