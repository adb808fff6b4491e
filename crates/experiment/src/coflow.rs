//! Coflow policies on a trace: which there are by name, one run, and what it shows.

mod policies;
mod summary;

use headwater_policy::coflow::Ports;
use headwater_units::BitRate;

pub use headwater_sim::coflow::{Clock, CoflowError};
pub use policies::{NAMES, PolicyName, Scheduler};
pub use summary::{Group, Spread, Summary};

use crate::workload::coflow_trace::CoflowTrace;

/// The switch, and when things can happen on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many hosts. Port p of the trace is host p modulo this.
    pub ports: u16,
    /// Rate at which each can send, and receive.
    pub rate: BitRate,
    /// Exact, or by epochs.
    pub clock: Clock,
}

/// Runs a trace by one policy: the completion time of each coflow in seconds, in the order of the trace.
///
/// # Errors
/// [`CoflowError`] if a limit is 0, or epochs are not whole steps.
pub fn complete(trace: &CoflowTrace, setup: &Setup, policy: PolicyName) -> Result<Vec<f64>, CoflowError> {
    let ports = Ports::even(setup.ports, setup.rate);
    let specs = trace.specs(setup.ports);
    let (rule, sizes) = policy.policy(&ports, &specs)?;
    let done = headwater_sim::coflow::run(&ports, &specs, &*rule, sizes, setup.clock)?;
    Ok(done.iter().map(|done| done.completion_time().as_secs_f64()).collect())
}
