//! The order of coflows that agents fetch (Courier Algorithm 1, S.schedule()): totals of each coflow and pair of hosts come in, ranks go
//! out.
//!
//! Every report is answered with the ranks of its coflows, so there is nothing to repeat and no timer; an agent that hears nothing for a
//! second goes on without an order. The policies are those of the simulator.

use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::{Shares, Taker};
use headwater_policy::coflow::{
    AaloOrder, Port, PortCoflow, PortDemand, PortFlow, PortPlan, Ports, Queues, Sincronia, Varys,
};
use headwater_policy::{PlanError, Policy};
use headwater_units::{BitRate, Bytes, Duration, FlowId, PathId, Rank, TaskId, Time};
use headwater_wire::{CoflowName, CoflowRank, CoflowTotals, ToNode};
use serde::Serialize;

use super::config::CoflowPolicy;
use super::turn::Turn;

/// Time for which an agent's report counts: it reports five times a second.
const FRESH: Duration = Duration::from_secs(3);
/// Time for which a coflow is remembered that nobody reports, with the bytes that it has sent.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Plans are at least so far apart, unless a coflow is new.
const PLAN_EVERY: Duration = Duration::from_millis(100);
/// Agents whose reports are kept at most, and coflows that are remembered: of one agent a quarter, of those of one network half.
const MOST_AGENTS: usize = 16_384;
const MOST_COFLOWS: usize = 65_536;
/// All hosts count as equal: an order does not depend on how fast they are.
const ANY_RATE: BitRate = BitRate::new(1_000_000_000);

#[derive(Debug)]
struct Report {
    at: Time,
    totals: CoflowTotals,
}

#[derive(Debug)]
struct Known {
    task: TaskId,
    /// The first that spoke of it.
    taker: Taker,
    arrival: Time,
    heard_at: Time,
    /// The most that all its hosts together have said to have: one that is done there speaks of it no more.
    sent: Bytes,
}

/// One coflow, at all hosts that fetch it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoflowView {
    /// The name.
    pub name: CoflowName,
    /// Its rank.
    pub rank: Option<Rank>,
    /// Bytes of it that have come.
    pub here: Bytes,
    /// Bytes left of it, if that is known of all its flows.
    pub left: Option<Bytes>,
    /// Hosts that fetch it.
    pub receivers: Vec<String>,
    /// Hosts that they wait for.
    pub sources: Vec<String>,
}

/// Coflows that agents fetch, and their order.
#[derive(Debug, Default)]
pub(super) struct Coflows {
    reports: BTreeMap<PathId, Report>,
    known: BTreeMap<CoflowName, Known>,
    shares: Shares,
    next: u64,
    planned_at: Option<Time>,
    ranks: BTreeMap<CoflowName, Rank>,
}

impl Coflows {
    /// An agent has spoken; it is told the ranks of its coflows.
    pub(super) fn report(
        &mut self,
        turn: &mut Turn<'_>,
        (path, taker): (PathId, Taker),
        totals: CoflowTotals,
    ) {
        let now = turn.now;
        self.reports.retain(|_, report| now < report.at + FRESH);
        let shares = &mut self.shares;
        self.known.retain(|_, known| {
            let stays = now < known.heard_at + REMEMBERED;
            if !stays {
                shares.give_back(&known.taker, 1);
            }
            stays
        });
        if self.reports.len() >= MOST_AGENTS && !self.reports.contains_key(&path) {
            return;
        }
        for coflow in &totals.coflows {
            if let Some(known) = self.known.get_mut(&coflow.name) {
                known.heard_at = now;
            } else if self.shares.has_room(&taker, 1, MOST_COFLOWS) {
                self.shares.take(&taker, 1);
                self.next += 1;
                let task = TaskId(self.next);
                let known = Known { task, taker, arrival: now, heard_at: now, sent: Bytes::ZERO };
                self.known.insert(coflow.name.clone(), known);
            }
        }
        let names: Vec<CoflowName> = totals.coflows.iter().map(|it| it.name.clone()).collect();
        self.reports.insert(path, Report { at: now, totals });
        let is_late = self.planned_at.is_none_or(|at| now >= at + PLAN_EVERY);
        let is_new = |name: &CoflowName| self.known.contains_key(name) && !self.ranks.contains_key(name);
        if is_late || names.iter().any(is_new) {
            self.plan(now, turn.config.coflows);
        }
        let rank = |name: CoflowName| Some(CoflowRank { rank: *self.ranks.get(&name)?, name });
        turn.answer(path, ToNode::CoflowRanks(names.into_iter().filter_map(rank).collect()));
    }

    /// The connection to an agent is gone: what it fetched is not known any more.
    pub(super) fn lost(&mut self, path: PathId) {
        self.reports.remove(&path);
    }

    /// Coflows that agents have lately reported, in order.
    pub(super) fn view(&self, now: Time) -> Vec<CoflowView> {
        let mut views: BTreeMap<&CoflowName, CoflowView> = BTreeMap::new();
        let mut sources: BTreeMap<&CoflowName, BTreeSet<&str>> = BTreeMap::new();
        for totals in self.reports.values().filter(|report| now < report.at + FRESH).map(|it| &it.totals) {
            for coflow in &totals.coflows {
                let view = views.entry(&coflow.name).or_insert_with(|| CoflowView {
                    name: coflow.name.clone(),
                    rank: self.ranks.get(&coflow.name).copied(),
                    here: self.known.get(&coflow.name).map_or(Bytes::ZERO, |known| known.sent),
                    left: Some(Bytes::ZERO),
                    receivers: Vec::new(),
                    sources: Vec::new(),
                });
                for pair in &coflow.pairs {
                    let sum = |all: Bytes, more: Bytes| Bytes::new(all.get().saturating_add(more.get()));
                    view.left = view.left.zip(pair.left).map(|(all, more)| sum(all, more));
                    sources.entry(&coflow.name).or_default().insert(&pair.from);
                }
                view.receivers.push(totals.host.clone());
            }
        }
        for (name, view) in &mut views {
            view.receivers.sort();
            view.sources = sources.remove(name).into_iter().flatten().map(str::to_owned).collect();
        }
        let mut views: Vec<CoflowView> = views.into_values().collect();
        views.sort_by(|a, b| {
            (a.rank.unwrap_or(Rank::LAST), &a.name).cmp(&(b.rank.unwrap_or(Rank::LAST), &b.name))
        });
        views
    }

    fn plan(&mut self, now: Time, policy: CoflowPolicy) {
        self.planned_at = Some(now);
        for (name, sent) in self.totals() {
            if let Some(known) = self.known.get_mut(&name) {
                known.sent = known.sent.max(sent);
            }
        }
        let (demand, hosts) = self.demand(policy);
        let names: BTreeMap<TaskId, CoflowName> =
            self.known.iter().map(|(name, known)| (known.task, name.clone())).collect();
        self.ranks = match order(policy, now, &demand, hosts) {
            Ok(ranks) => {
                let names = demand.coflows.iter().filter_map(|it| names.get(&it.task).cloned());
                names.zip(ranks).collect()
            }
            // Nobody is ranked, so everybody goes on alike.
            Err(_) => BTreeMap::new(),
        };
    }

    /// Bytes that have come of each coflow, at all hosts.
    fn totals(&self) -> BTreeMap<CoflowName, Bytes> {
        let mut totals: BTreeMap<CoflowName, Bytes> = BTreeMap::new();
        for coflow in self.reports.values().flat_map(|report| &report.totals.coflows) {
            let sum = totals.entry(coflow.name.clone()).or_default();
            *sum = Bytes::new(sum.get().saturating_add(coflow.here.get()));
        }
        totals
    }

    /// Bytes left, with a flow for each pair of hosts, and the number of hosts. Where sizes are needed, pairs without
    /// are left out.
    fn demand(&self, policy: CoflowPolicy) -> (PortDemand, u16) {
        let reports = || self.reports.values().map(|report| &report.totals);
        let mut hosts: BTreeSet<&str> = reports().map(|it| it.host.as_str()).collect();
        hosts
            .extend(reports().flat_map(|it| &it.coflows).flat_map(|it| &it.pairs).map(|it| it.from.as_str()));
        let ports: BTreeMap<&str, Port> = hosts.into_iter().zip((0..u16::MAX).map(Port)).collect();
        let mut flows: BTreeMap<&CoflowName, BTreeMap<(Port, Port), Option<Bytes>>> = BTreeMap::new();
        for totals in reports() {
            for coflow in &totals.coflows {
                let flows = flows.entry(&coflow.name).or_default();
                for pair in &coflow.pairs {
                    let ends = (ports.get(pair.from.as_str()), ports.get(totals.host.as_str()));
                    let (Some(source), Some(receiver)) = ends else { continue };
                    let has_size = pair.left.is_some_and(|left| left > Bytes::ZERO);
                    if source != receiver && (has_size || policy == CoflowPolicy::Aalo) {
                        flows.insert((*source, *receiver), pair.left);
                    }
                }
            }
        }
        let mut number = 0;
        let mut coflows: Vec<PortCoflow> = Vec::new();
        for (name, flows) in flows {
            let Some(known) = self.known.get(name) else { continue };
            let flow = |((source, receiver), remaining): ((Port, Port), Option<Bytes>)| {
                number += 1;
                PortFlow { flow: FlowId(number), remaining, source, receiver }
            };
            coflows.push(PortCoflow {
                task: known.task,
                arrival: known.arrival,
                weight: 1.0,
                sent: known.sent,
                flows: flows.into_iter().map(flow).collect(),
            });
        }
        coflows.sort_by_key(|it| (it.arrival, it.task));
        (PortDemand { coflows }, u16::try_from(ports.len()).unwrap_or(u16::MAX))
    }
}

/// The rank of each coflow of a demand, in its order.
fn order(policy: CoflowPolicy, now: Time, demand: &PortDemand, hosts: u16) -> Result<Vec<Rank>, PlanError> {
    let plan = match policy {
        CoflowPolicy::Aalo => AaloOrder { queues: Queues::default() }.plan(now, demand)?,
        CoflowPolicy::Sincronia => Sincronia.plan(now, demand)?,
        CoflowPolicy::Varys => Varys::new(Ports::even(hosts, ANY_RATE)).order(demand)?,
    };
    let PortPlan::Ranks(ranks) = plan else { unreachable!("these are orders") };
    let mut at = 0;
    let rank = |coflow: &PortCoflow| {
        // A coflow between ends on one host, or without sizes yet, is of no weight: it goes first.
        let rank = if coflow.flows.is_empty() { None } else { ranks[at] };
        at += coflow.flows.len();
        rank.unwrap_or(Rank::FIRST)
    };
    Ok(demand.coflows.iter().map(rank).collect())
}
