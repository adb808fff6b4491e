//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC: what `Instant` counts, as a number that other processes understand.
pub fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}
