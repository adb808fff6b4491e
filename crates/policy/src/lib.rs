//! Bandwidth policies: pure functions from demand to plan.
//!
//! A [`Demand`] says which coflows want what over which links; a [`Policy`] makes a [`Plan`] of it that gives each flow
//! its [`Share`]: a weight, a rate or a rank. A PPUSH task is a coflow whose flows draw on one pool of bytes, since any
//! symbol from any source serves. Policies keep no state, read no clock and draw no numbers: the same demand gives the
//! same plan, in whatever order it is listed. A policy's knowledge of links (capacities, ceilings) is in the policy
//! itself, made anew when that changes.
//!
//! * [`theta`]: PPUSH Alg. 1, the weight of every push flow.
//! * [`coflow`]: coflows over a matrix of ports: Varys, Aalo, Sincronia and others, and Courier around any of them.
//! * [`pam`]: PAM Table I, the rank of a transfer whose switches compute its rate. It is made for each packet, so it is no [`Policy`].
//!
//! One trait serves [`theta`] and [`coflow`]. Its first parameter is the form of the demand, its second that of the plan: a [`Demand`] has paths over
//! any links and finds a share by the flow's id; a [`coflow::PortDemand`] has two ports per flow, and its plan is a list in the
//! order of the demand's flows, since looking up 10^5 flows in a tree at each event costs more than the plan itself.

use std::collections::BTreeSet;

use headwater_fabric::{LinkId, Path};
use headwater_units::{BitRate, Bytes, Duration, FlowId, Rank, TaskId, Theta, Time};
use thiserror::Error;

pub mod coflow;
pub mod pam;
pub mod theta;

/// Decides who gets how much.
pub trait Policy<D = Demand, P = Plan> {
    /// Gives each flow of the demand its share, at this time.
    ///
    /// # Errors
    /// [`PlanError`] if the demand contradicts itself, or goes over links that the policy does not know.
    fn plan(&self, now: Time, demand: &D) -> Result<P, PlanError>;

    /// When it must be asked again.
    fn wakes(&self) -> Wakes {
        Wakes::ARRIVALS_AND_ENDS
    }

    /// How much a coflow that has sent this much must have sent for its plan to change; `None` if what is sent changes nothing.
    fn next_threshold(&self, _sent: Bytes) -> Option<Bytes> {
        None
    }
}

/// Events after which a policy's last plan no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakes {
    /// A coflow arrives.
    pub arrival: bool,
    /// The last flow of a coflow ends.
    pub coflow_end: bool,
    /// A flow ends.
    pub flow_end: bool,
    /// The period of coordination: ends of flows and thresholds wake it only at the next whole multiple of this. `None`: at once.
    pub tick: Option<Duration>,
}

impl Wakes {
    /// Arrivals and ends of coflows, at once.
    pub const ARRIVALS_AND_ENDS: Wakes =
        Wakes { arrival: true, coflow_end: true, flow_end: false, tick: None };
}

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
    /// When it began.
    pub arrival: Time,
    /// Bytes left of it, over all its flows (PPUSH v); `None` if nobody knows.
    pub remaining: Option<Bytes>,
    /// Bytes that all its flows have delivered so far.
    pub sent: Bytes,
    /// Its flows, in any order.
    pub flows: Vec<PathedFlow>,
}

/// A flow and the links that it uses.
#[derive(Clone, Debug, PartialEq)]
pub struct PathedFlow {
    /// The flow.
    pub flow: FlowId,
    /// Bytes left of it, where it has bytes of its own; `None` if it draws on those of its coflow, or nobody knows.
    pub remaining: Option<Bytes>,
    /// Bytes that it has delivered so far.
    pub sent: Bytes,
    /// From its source to its receiver.
    pub path: Path,
}

impl Coflow {
    /// A task that has this much left and has sent nothing yet, from the beginning of the run.
    pub fn sized(task: TaskId, remaining: Bytes, flows: Vec<PathedFlow>) -> Self {
        Coflow { task, arrival: Time::ZERO, remaining: Some(remaining), sent: Bytes::ZERO, flows }
    }
}

impl PathedFlow {
    /// A flow that has sent nothing yet, and draws on what is left of its coflow.
    pub fn pooled(flow: FlowId, path: Path) -> Self {
        PathedFlow { flow, remaining: None, sent: Bytes::ZERO, path }
    }
}

/// Share of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// Its weight among the flows that share its bottleneck.
    Weight(Theta),
    /// It sends at this rate; zero: it waits.
    Rate(BitRate),
    /// It goes before all flows of larger ranks on its links.
    Rank(Rank),
}

impl Share {
    /// Its weight, if it has one.
    pub fn weight(self) -> Option<Theta> {
        match self {
            Share::Weight(theta) => Some(theta),
            Share::Rate(_) | Share::Rank(_) => None,
        }
    }
}

/// Decision of a policy: one share per flow of the demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Ascending by flow.
    shares: Vec<(FlowId, Share)>,
}

impl Plan {
    /// The plan with these shares, each flow once, in any order.
    pub fn new(mut shares: Vec<(FlowId, Share)>) -> Self {
        shares.sort_unstable_by_key(|(flow, _)| *flow);
        Plan { shares }
    }

    /// Share of a flow, if it was in the demand.
    pub fn share(&self, flow: FlowId) -> Option<Share> {
        let place = self.shares.binary_search_by_key(&flow, |(flow, _)| *flow).ok()?;
        Some(self.shares[place].1)
    }

    /// All flows with their shares, ascending by flow.
    pub fn shares(&self) -> impl ExactSizeIterator<Item = (FlowId, Share)> + '_ {
        self.shares.iter().copied()
    }
}

impl Demand {
    /// Whether every task and every flow is listed once, and every link is known.
    ///
    /// # Errors
    /// [`PlanError::TaskTwice`], [`PlanError::FlowTwice`], [`PlanError::UnknownLink`].
    pub fn check(&self, knows: impl Fn(LinkId) -> bool) -> Result<(), PlanError> {
        let (mut tasks, mut flows) = (BTreeSet::new(), BTreeSet::new());
        for coflow in &self.coflows {
            if !tasks.insert(coflow.task) {
                return Err(PlanError::TaskTwice(coflow.task));
            }
            for flow in &coflow.flows {
                if !flows.insert(flow.flow) {
                    return Err(PlanError::FlowTwice(flow.flow));
                }
                if let Some(&link) = flow.path.links().iter().find(|link| !knows(**link)) {
                    return Err(PlanError::UnknownLink { flow: flow.flow, link });
                }
            }
        }
        Ok(())
    }
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
    /// The policy goes by sizes, and nobody knows that of this task.
    #[error("the size of task {0} is not known")]
    UnknownSize(TaskId),
    /// A task is listed twice.
    #[error("task {0} is listed twice")]
    TaskTwice(TaskId),
    /// A flow is listed twice.
    #[error("flow {0} is listed twice")]
    FlowTwice(FlowId),
    /// The floor must lie above 0 and at most at 1.
    #[error("theta floor {0} is not in (0, 1]")]
    Floor(Theta),
    /// A flow uses a port that the switch lacks.
    #[error("flow {flow} uses port {port}, and the switch has {ports}, numbered from 0")]
    UnknownPort {
        /// The flow.
        flow: FlowId,
        /// The port.
        port: u16,
        /// How many there are.
        ports: usize,
    },
    /// Coflows must ascend by arrival and task, the flows of each by source, receiver and id.
    #[error("task {0} or one of its flows is out of order")]
    Unordered(TaskId),
    /// A host must have at least one lane (Courier MaxNum).
    #[error("MaxNum is 0, so no host could ever start a flow; set it to 1 or more (10 is the default)")]
    NoLanes,
    /// Flows of no size cannot be split (Courier MinSize).
    #[error(
        "MinSize is 0, so an empty flow would be split forever; set it to 1 byte or more (1 MiB is the default)"
    )]
    NoMinSize,
    /// A ceiling must be a number, not negative; that of unmeasured paths not below the floor.
    #[error("theta ceiling {0} is not a usable number")]
    Ceiling(Theta),
}
