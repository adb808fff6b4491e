//! Courier (Zhang et al., TPDS 2025): one agent per host merges the flows of each pair of hosts, selects the most important unified
//! flows and splits them, under any scheduler (Algorithms 1 to 3).
//!
//! * [`merge()`]: Algorithm 2, from scheduled flows to unified flows.
//! * [`select_and_split`]: Algorithm 3, from unified flows to the lanes that a host runs.
//! * [`Signature`]: what Algorithm 1 compares to see whether the schedule has changed.
//! * [`Courier`]: all three around a policy, as a policy: the flows that no lane carries wait.
//!
//! Differs from the paper: the key under which flows merge holds the pinned path as well; splitting ends where no lane is larger than
//! MinSize (line 3 of Algorithm 3 would repeat forever); a signature leaves out sizes, which change with every byte; and the lanes of
//! a pair are bounded where its paths are (§IV-B2, absent from Algorithm 3). A unified flow whose rate is zero is not selected.

mod merge;
mod select;

use headwater_units::{Bytes, FlowId, FluidRate, PathId, Theta, Time};

pub use merge::{Unified, merge};
pub use select::{Lane, Limits, select_and_split};

use super::{PlanKind, Port, PortDemand, PortFlow, PortPlan};
use crate::{PlanError, Policy, Rank, Wakes};

/// A scheduler's decision about the flows that are not done (Courier S.schedule()).
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// Rate-based.
    Rates(Vec<(Scheduled, FluidRate)>),
    /// Order-based. A scheduler that only switches flows on and off gives all of them rank 0.
    Ranks(Vec<(Scheduled, Rank)>),
    /// No scheduler.
    Even(Vec<Scheduled>),
}

/// A flow as Courier sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// Its name.
    pub flow: FlowId,
    /// Between whom.
    pub address: Address,
    /// Bytes left of it.
    pub size: Bytes,
}

/// The key under which flows merge. The two directions between a pair of hosts are different addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The host that sends.
    pub source: Port,
    /// The host that wants it.
    pub receiver: Port,
    /// The path that it is pinned to, where paths are chosen by their ends.
    pub path: Option<PathId>,
}

/// How important a unified flow or a lane is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Importance {
    /// The larger, the more.
    Rate(FluidRate),
    /// The smaller, the more.
    Rank(Rank),
    /// All alike.
    Even,
}

/// Part of a schedule that starts and stops lanes (Algorithm 1, line 5): ids with rates to 1 %, or ranks, and whether a
/// flow can be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(Vec<(FlowId, Option<i64>, bool)>);

impl Signature {
    /// Of a schedule in any order.
    pub fn of(schedule: &Schedule, limits: &Limits) -> Signature {
        let large = |flow: &Scheduled| flow.size > limits.min_size;
        let mut list: Vec<_> = match schedule {
            Schedule::Rates(list) => {
                list.iter().map(|(flow, rate)| (flow.flow, percent_steps(*rate), large(flow))).collect()
            }
            Schedule::Ranks(list) => list
                .iter()
                .map(|(flow, rank)| (flow.flow, Some(i64::from(rank.get())), large(flow)))
                .collect(),
            Schedule::Even(list) => list.iter().map(|flow| (flow.flow, None, large(flow))).collect(),
        };
        list.sort_unstable();
        Signature(list)
    }
}

/// A rate on a scale whose steps are 1 % each; `None` for zero.
fn percent_steps(rate: FluidRate) -> Option<i64> {
    (rate.get() > 0.0).then(|| (rate.get().ln() / 1.01_f64.ln()).round() as i64)
}

/// Lanes of the agents of all hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct AllLanes {
    /// Kind of shares that the policy gives.
    pub kind: PlanKind,
    /// The unified flows, by receiver, then address.
    pub unified: Vec<Unified>,
    /// The lanes, by unified flow.
    pub lanes: Vec<Lane>,
}

/// A policy whose flows travel in the lanes of Courier's agents. MaxNum counts the lanes that a host receives.
///
/// Members of a lane keep their own rates, or share what the network gives their pair; nobody else moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Courier<P> {
    policy: P,
    limits: Limits,
}

impl<P: Policy<PortDemand, PortPlan>> Courier<P> {
    /// Around this policy.
    ///
    /// # Errors
    /// [`PlanError::NoLanes`] or [`PlanError::NoMinSize`] if a limit is 0.
    pub fn new(policy: P, limits: Limits) -> Result<Courier<P>, PlanError> {
        limits.check()?;
        Ok(Courier { policy, limits })
    }

    /// The lanes that all hosts run for this demand.
    ///
    /// # Errors
    /// [`PlanError`] if a size is hidden, or the policy fails.
    pub fn lanes(&self, now: Time, demand: &PortDemand) -> Result<AllLanes, PlanError> {
        let plan = self.policy.plan(now, demand)?;
        let mut unified = merge(&scheduled(demand, &plan)?);
        // Each host selects among the flows to it.
        unified.sort_by_key(|flow| (flow.address.receiver, flow.address));
        let (mut lanes, mut start) = (Vec::new(), 0);
        for host in unified.chunk_by(|a, b| a.address.receiver == b.address.receiver) {
            let mut own = select_and_split(host, &self.limits)?;
            own.iter_mut().for_each(|lane| lane.unified += start);
            lanes.append(&mut own);
            start += host.len();
        }
        Ok(AllLanes { kind: plan.kind(), unified, lanes })
    }
}

impl<P: Policy<PortDemand, PortPlan>> Policy<PortDemand, PortPlan> for Courier<P> {
    /// # Errors
    /// [`PlanError`] if a size is hidden, or the policy fails.
    fn plan(&self, now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        let AllLanes { kind, unified, lanes } = self.lanes(now, demand)?;
        let mut lanes_of = vec![0_u32; unified.len()];
        lanes.iter().for_each(|lane| lanes_of[lane.unified] += 1);
        // Of every flow that moves: its own importance, and its part of its pair's lanes.
        let mut moving: Vec<(FlowId, Importance, f64)> = Vec::new();
        for (flow, lanes) in unified.iter().zip(lanes_of).filter(|(_, lanes)| *lanes > 0) {
            let each = f64::from(lanes) / flow.members.len() as f64;
            moving.extend(flow.members.iter().map(|(member, own)| (*member, *own, each)));
        }
        moving.sort_unstable_by_key(|(flow, ..)| *flow);
        let share = |flow: &PortFlow| {
            let at = moving.binary_search_by_key(&flow.flow, |(flow, ..)| *flow).ok()?;
            Some((moving[at].1, moving[at].2))
        };
        let shares = demand.flows().map(|(_, flow)| share(flow));
        Ok(match kind {
            PlanKind::Rates => PortPlan::Rates(shares.map(|share| rate_of(share.map(|it| it.0))).collect()),
            PlanKind::Ranks => PortPlan::Ranks(shares.map(|share| rank_of(share?.0)).collect()),
            PlanKind::Weights => {
                PortPlan::Weights(shares.map(|share| share.map(|(_, each)| Theta::new(each))).collect())
            }
        })
    }

    fn wakes(&self) -> Wakes {
        // Flows hidden behind a higher rank come forward when it ends: without this their pair would wait forever. Not with the
        // policy's own period, which would hold back these ends too; so a limit that a coflow passes counts at once here.
        Wakes { arrival: true, coflow_end: true, flow_end: true, tick: None }
    }

    fn next_threshold(&self, sent: Bytes) -> Option<Bytes> {
        self.policy.next_threshold(sent)
    }
}

fn rate_of(importance: Option<Importance>) -> FluidRate {
    match importance {
        Some(Importance::Rate(rate)) => rate,
        _ => FluidRate::ZERO,
    }
}

fn rank_of(importance: Importance) -> Option<Rank> {
    match importance {
        Importance::Rank(rank) => Some(rank),
        Importance::Rate(_) | Importance::Even => None,
    }
}

/// The schedule that a plan is. Flows that wait by rank are not in it.
fn scheduled(demand: &PortDemand, plan: &PortPlan) -> Result<Schedule, PlanError> {
    let mut flows = Vec::with_capacity(plan.len());
    for (coflow, flow) in demand.flows() {
        let size = flow.remaining.ok_or(PlanError::UnknownSize(demand.coflows[coflow].task))?;
        let address = Address { source: flow.source, receiver: flow.receiver, path: None };
        flows.push(Scheduled { flow: flow.flow, address, size });
    }
    let flows = flows.into_iter();
    Ok(match plan {
        PortPlan::Rates(rates) => Schedule::Rates(flows.zip(rates.iter().copied()).collect()),
        PortPlan::Ranks(ranks) => {
            Schedule::Ranks(flows.zip(ranks).filter_map(|(flow, rank)| Some((flow, (*rank)?))).collect())
        }
        PortPlan::Weights(weights) => {
            Schedule::Even(flows.zip(weights).filter_map(|(flow, weight)| weight.map(|_| flow)).collect())
        }
    })
}
