//! Who gets how much: pure functions from demand to plan.
//!
//! A [`Demand`] says which coflows want what over which links; a [`Plan`] gives each flow its [`Share`]. A PPUSH task is
//! a coflow whose flows draw on one pool of bytes, since any symbol from any source serves. Policies keep no state, read
//! no clock and draw no numbers: the same demand gives the same plan, in whatever order it is listed.
//!
//! * [`theta`]: PPUSH Alg. 1, the weight of every push flow.

use std::collections::BTreeMap;

use headwater_fabric::{LinkId, Path};
use headwater_units::{Bytes, FlowId, TaskId, Theta};
use thiserror::Error;

pub mod theta;

/// Everything that wants to be sent now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// In any order; every task and every flow at most once.
    pub coflows: Vec<Coflow>,
}

/// Flows that matter only when all are done.
#[derive(Clone, Debug, PartialEq)]
pub struct Coflow {
    /// The task that it is.
    pub task: TaskId,
    /// What is left of it, over all its flows (PPUSH v).
    pub remaining: Bytes,
    /// Its flows, in any order.
    pub flows: Vec<PathedFlow>,
}

/// A flow and the links that it uses.
#[derive(Clone, Debug, PartialEq)]
pub struct PathedFlow {
    /// The flow.
    pub flow: FlowId,
    /// From its source to its receiver.
    pub path: Path,
}

/// What one flow gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// Its weight among the flows that share its bottleneck.
    Weight(Theta),
}

/// What a policy decides: one share per flow of the demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// By flow.
    pub shares: BTreeMap<FlowId, Share>,
}

/// Why a demand cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A path names a link of which the bounds say nothing.
    #[error("flow {flow} goes over link {link}, which the fabric lacks")]
    UnknownLink {
        /// The flow.
        flow: FlowId,
        /// The link.
        link: LinkId,
    },
    /// A task is listed twice.
    #[error("task {0} is listed twice")]
    TaskTwice(TaskId),
    /// A flow is listed twice.
    #[error("flow {0} is listed twice")]
    FlowTwice(FlowId),
    /// The floor must lie above 0 and at most at 1.
    #[error("theta floor {0} is not in (0, 1]")]
    Floor(Theta),
    /// A ceiling must be a number, not negative; that of unmeasured paths not below the floor.
    #[error("theta ceiling {0} is not a usable number")]
    Ceiling(Theta),
}
