//! Coflows over a matrix of ports: hosts on one switch that never blocks, each with an egress and an ingress port.
//!
//! * [`Fair`], [`Fifo`], [`Scf`]: per-flow fair sharing; coflows by arrival; the smallest coflow first.
//! * [`Varys`]: smallest effective bottleneck first, all flows of a coflow end together.
//! * [`Aalo`], [`AaloOrder`]: queues by what a coflow has sent; sizes may be hidden.
//! * [`Sincronia`], [`SincroniaOffline`]: an order by bottleneck, select, scale, iterate.
//! * [`DjangoLike`]: Varys with a bound on the flows per host.
//! * [`courier`]: flows of one pair merged, selected and split, around any of these.
//!
//! All are pure functions from a [`PortDemand`] to a [`PortPlan`]. The plan is a list in the order of the demand's flows, without
//! ids: at 10^5 flows a `BTreeMap` from id to share took some 70 ms a plan to build, look up and drop, a list less than one.
//!
//! The rest of a port counts as nothing below 10^-9 of its capacity: sums over many flows leave rounding behind.

mod aalo;
pub mod courier;
mod django_like;
mod ordered;
mod ports;
mod sincronia;
mod varys;

use headwater_units::{Bytes, FlowId, FluidRate, TaskId, Theta, Time};

pub use aalo::{Aalo, AaloOrder, BetweenQueues, Queues};
pub use django_like::DjangoLike;
pub use ordered::{Fair, Fifo, Scf};
pub use ports::{Port, Ports};
pub use sincronia::{Sincronia, SincroniaOffline, bssi};
pub use varys::Varys;

use super::{PlanError, Rank, Share};

/// Everything that wants to be sent now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortDemand {
    /// Ascending by arrival, then task.
    pub coflows: Vec<PortCoflow>,
}

/// Flows that matter only when all are done.
#[derive(Clone, Debug, PartialEq)]
pub struct PortCoflow {
    /// Its name.
    pub task: TaskId,
    /// When it arrived.
    pub arrival: Time,
    /// How much it matters beside others (Sincronia w), above 0; 1 unless known better.
    pub weight: f64,
    /// Bytes that all its flows have delivered so far, over all hosts.
    pub sent: Bytes,
    /// Those that are not done, ascending by source, receiver and id; none from a host to itself.
    pub flows: Vec<PortFlow>,
}

/// A flow and its two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFlow {
    /// Its name.
    pub flow: FlowId,
    /// Bytes left of it, at least 1; `None` where sizes are hidden.
    pub remaining: Option<Bytes>,
    /// The host that sends it.
    pub source: Port,
    /// The host that wants it.
    pub receiver: Port,
}

/// One share per flow of the demand, in its order: the flows of the first coflow, then those of the second, and so on.
#[derive(Clone, Debug, PartialEq)]
pub enum PortPlan {
    /// Max-min fair by these weights, above 0; `None` waits.
    Weights(Vec<Option<Theta>>),
    /// Greedy in order: each flow takes all that the ranks before it leave of its two ports; equal ranks go by source, receiver
    /// and id. `None` waits.
    Ranks(Vec<Option<Rank>>),
    /// These rates; zero waits.
    Rates(Vec<FluidRate>),
}

/// Kind of shares that a policy gives (Courier S.type()).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// No scheduler: the network shares itself out.
    Weights,
    /// Order-based.
    Ranks,
    /// Rate-based.
    Rates,
}

impl PortDemand {
    /// Every flow with its coflow's position, in the order of a plan.
    pub fn flows(&self) -> impl Iterator<Item = (usize, &PortFlow)> {
        self.coflows
            .iter()
            .enumerate()
            .flat_map(|(at, coflow)| coflow.flows.iter().map(move |flow| (at, flow)))
    }

    /// The number of flows, which is the length of a plan.
    pub fn len(&self) -> usize {
        self.coflows.iter().map(|coflow| coflow.flows.len()).sum()
    }

    /// Whether nobody wants anything.
    pub fn is_empty(&self) -> bool {
        self.coflows.iter().all(|coflow| coflow.flows.is_empty())
    }

    /// Whether lists ascend and all ports exist.
    ///
    /// # Errors
    /// [`PlanError::Unordered`], [`PlanError::UnknownPort`].
    pub fn check(&self, ports: usize) -> Result<(), PlanError> {
        let order = |pair: &[PortCoflow]| (pair[0].arrival, pair[0].task) < (pair[1].arrival, pair[1].task);
        if let Some(pair) = self.coflows.windows(2).find(|pair| !order(pair)) {
            return Err(PlanError::Unordered(pair[1].task));
        }
        for coflow in &self.coflows {
            if !coflow.flows.is_sorted_by(|a, b| a.order() < b.order()) {
                return Err(PlanError::Unordered(coflow.task));
            }
            for flow in &coflow.flows {
                let port = flow.source.max(flow.receiver);
                if usize::from(port.0) >= ports {
                    return Err(PlanError::UnknownPort { flow: flow.flow, port: port.0, ports });
                }
            }
        }
        Ok(())
    }
}

impl PortCoflow {
    /// Bytes left over all its flows.
    ///
    /// # Errors
    /// [`PlanError::UnknownSize`] if a size is hidden.
    pub fn remaining(&self) -> Result<Bytes, PlanError> {
        let known = self.flows.iter().map(|flow| flow.remaining).sum::<Option<Bytes>>();
        known.ok_or(PlanError::UnknownSize(self.task))
    }

    /// Bits left of a flow of it.
    fn bits(&self, flow: &PortFlow) -> Result<f64, PlanError> {
        let remaining = flow.remaining.ok_or(PlanError::UnknownSize(self.task))?;
        Ok(remaining.get() as f64 * 8.0)
    }
}

impl PortFlow {
    fn order(&self) -> (Port, Port, FlowId) {
        (self.source, self.receiver, self.flow)
    }
}

impl PortPlan {
    /// The number of shares.
    pub fn len(&self) -> usize {
        match self {
            PortPlan::Weights(list) => list.len(),
            PortPlan::Ranks(list) => list.len(),
            PortPlan::Rates(list) => list.len(),
        }
    }

    /// Whether nobody gets anything, since nobody wants anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Kind of its shares.
    pub fn kind(&self) -> PlanKind {
        match self {
            PortPlan::Weights(_) => PlanKind::Weights,
            PortPlan::Ranks(_) => PlanKind::Ranks,
            PortPlan::Rates(_) => PlanKind::Rates,
        }
    }

    /// The share of the flow at this position; `None` if it waits without a rate, or there is none. Rates round down to whole bits
    /// per second.
    pub fn share(&self, at: usize) -> Option<Share> {
        match self {
            PortPlan::Weights(list) => list.get(at).copied().flatten().map(Share::Weight),
            PortPlan::Ranks(list) => list.get(at).copied().flatten().map(Share::Rank),
            PortPlan::Rates(list) => {
                list.get(at).map(|rate| Share::Rate(headwater_units::BitRate::new(rate.get() as u64)))
            }
        }
    }

    /// The plan that gives each coflow its position in `order`, which lists positions in the demand, the most important first.
    fn in_order(demand: &PortDemand, order: &[usize]) -> PortPlan {
        let mut ranks = vec![Rank::FIRST; demand.coflows.len()];
        for (rank, &coflow) in (0..).zip(order) {
            ranks[coflow] = Rank::new(rank);
        }
        PortPlan::Ranks(demand.flows().map(|(coflow, _)| Some(ranks[coflow])).collect())
    }
}
