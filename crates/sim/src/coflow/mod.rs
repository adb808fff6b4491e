//! Coflows over the ports of one switch that never blocks: no packets, no queues, every flow has at each moment the rate that a policy
//! and the ports grant.
//!
//! Beside [`crate::flow`], which shares any links among any tasks and fills all connected flows anew at each completion: that takes
//! hours at 10^5 active flows. Here a flow has two ports, so greedy service by rank moves at most one flow per port at once, and
//! max-min is the same for all flows of a pair of ports. [`crate::flow`] is the oracle of this engine on small cases.
//!
//! * [`run`]: coflows over time, from arrival to completion.
//! * `shared`, `ranked`, `rated`: who moves, for each kind of [`PortPlan`](headwater_policy::coflow::PortPlan).
//!
//! Runs are exact to the event: between two moments at which something arrives, ends or is planned anew, no rate changes. With
//! [`Clock::Epochs`] they are as coarse as published simulators that go on by steps. Leaves out what takes time or is lost on the way.

mod engine;
mod ranked;
mod rated;
mod shared;
mod state;

use headwater_policy::PlanError;
use headwater_policy::coflow::{Port, Ports};
use headwater_units::{Bytes, Duration, TaskId, Time};
use thiserror::Error;

pub use engine::run;

/// A coflow before its run.
#[derive(Clone, Debug, PartialEq)]
pub struct CoflowSpec {
    /// Its name; each once.
    pub task: TaskId,
    /// When it arrives.
    pub arrival: Time,
    /// How much it matters beside others, above 0.
    pub weight: f64,
    /// Its flows, in any order. One from a host to itself, or of no bytes, is done at once.
    pub flows: Vec<FlowSpec>,
}

/// A flow of a coflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// The host that sends it.
    pub source: Port,
    /// The host that wants it.
    pub receiver: Port,
    /// Bytes to send.
    pub bytes: Bytes,
}

/// A coflow that has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The coflow.
    pub task: TaskId,
    /// Its arrival; with epochs, the start of the one that admitted it.
    pub start: Time,
    /// When its last byte came.
    pub finish: Time,
}

impl Done {
    /// Its completion time (CCT).
    pub fn completion_time(&self) -> Duration {
        self.finish.since(self.start)
    }
}

/// When things can happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// At any time.
    #[default]
    Exact,
    /// As in simulators that go on by steps, such as CoflowSim: a coflow is admitted at the start of the epoch at whose end, or
    /// before, it arrives, and its time counts from there; rates hold for whole steps, so a flow ends with the step in which its last
    /// byte comes, and what it leaves of its ports is lost until then.
    Epochs {
        /// From admission to admission: whole steps.
        epoch: Duration,
        /// From change to change.
        step: Duration,
    },
}

/// Whether policies are told sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// A policy is told what is left of each flow.
    Known,
    /// It is not.
    Hidden,
}

/// Why a run cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CoflowError {
    /// A flow uses a port that there is not.
    #[error("a flow of coflow {task} uses port {port}, and there are {ports}, numbered from 0")]
    NoSuchPort {
        /// The coflow.
        task: TaskId,
        /// The port.
        port: u16,
        /// How many there are.
        ports: usize,
    },
    /// A port carries nothing: a flow over it would never end.
    #[error("port {0} has no capacity; give every port a rate above zero")]
    DeadPort(usize),
    /// Two coflows have one name.
    #[error("coflow {0} is there twice; give each its own id")]
    Twice(TaskId),
    /// An epoch must be whole steps.
    #[error("an epoch of {epoch} is not a whole number of steps of {step}; both must be above zero")]
    Epochs {
        /// The epoch.
        epoch: Duration,
        /// The step.
        step: Duration,
    },
    /// The policy gave too few shares or too many.
    #[error("{shares} shares for {flows} flows")]
    Shares {
        /// How many it gave.
        shares: usize,
        /// How many flows there are.
        flows: usize,
    },
    /// Nobody moves, nothing arrives, and the policy does not want to be asked again.
    #[error("the policy lets {flows} flows wait forever")]
    Stuck {
        /// How many.
        flows: usize,
    },
    /// More flows than numbers for them.
    #[error("{0} flows; fewer than 2^32 - 1 have numbers: give fewer coflows, or narrower ones")]
    TooManyFlows(usize),
    /// The policy refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Whether there are numbers for so many flows.
fn numbered(flows: usize) -> Result<(), CoflowError> {
    match flows < u32::MAX as usize {
        true => Ok(()),
        false => Err(CoflowError::TooManyFlows(flows)),
    }
}

/// Checks what is run on these ports.
fn check(ports: &Ports, coflows: &[CoflowSpec], clock: Clock) -> Result<(), CoflowError> {
    let dead = |rate: &headwater_units::FluidRate| rate.get() <= 0.0;
    if let Some(port) = ports.egress().iter().zip(ports.ingress()).position(|(a, b)| dead(a) || dead(b)) {
        return Err(CoflowError::DeadPort(port));
    }
    let mut names = std::collections::BTreeSet::new();
    for coflow in coflows {
        if !names.insert(coflow.task) {
            return Err(CoflowError::Twice(coflow.task));
        }
        for flow in &coflow.flows {
            let Port(port) = flow.source.max(flow.receiver);
            if usize::from(port) >= ports.len() {
                return Err(CoflowError::NoSuchPort { task: coflow.task, port, ports: ports.len() });
            }
        }
    }
    numbered(coflows.iter().map(|coflow| coflow.flows.len()).sum())?;
    match clock {
        Clock::Epochs { epoch, step }
            if step == Duration::ZERO
                || epoch == Duration::ZERO
                || !epoch.as_nanos().is_multiple_of(step.as_nanos()) =>
        {
            Err(CoflowError::Epochs { epoch, step })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_needs_a_number() {
        let most = u32::MAX as usize - 1;
        assert_eq!(numbered(most), Ok(()));
        let error = numbered(most + 1).unwrap_err();
        assert_eq!(error, CoflowError::TooManyFlows(most + 1));
        assert!(error.to_string().contains("give fewer coflows"), "{error}");
    }
}
