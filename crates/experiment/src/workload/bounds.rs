//! The ranges of numbers that workloads have in common.

use super::{Network, WorkloadError};

/// More tasks than this are a mistake.
pub(super) const MOST_TASKS: u32 = 1_000_000;

/// There must be a task, and not too many.
pub(super) fn count(what: &'static str, n: u32) -> Result<(), WorkloadError> {
    if (1..=MOST_TASKS).contains(&n) {
        return Ok(());
    }
    Err(WorkloadError::OutOfRange { what, value: n.into(), must: "1 to 1000000" })
}

/// Arrivals per second: of a Poisson process there must be some.
pub(super) fn per_second(rate: f64) -> Result<(), WorkloadError> {
    if rate > 0.0 && rate.is_finite() {
        return Ok(());
    }
    Err(WorkloadError::OutOfRange { what: "per_second", value: rate, must: "above 0 per second" })
}

/// The rate of a host's link, data packets per second.
pub(super) fn rate(network: &Network) -> Result<f64, WorkloadError> {
    let value = network.host_rate;
    if value > 0.0 && value.is_finite() {
        return Ok(value);
    }
    Err(WorkloadError::OutOfRange {
        what: "the rate of a host's link",
        value,
        must: "above 0 packets per second",
    })
}
