//! The network as the controller knows it, and the weights that follow from it (PPUSH §III-C, Eq. 20).
//!
//! Links: each node's uplink and downlink to one big switch, and those of its rack where it names one. A link carries
//! what the operator stated, else the largest rate that was delivered over it lately; where neither is known, or no
//! flow on it has measured a round trip, it does not constrain (docs/decisions/0031).

use std::collections::{BTreeMap, VecDeque};

use headwater_fabric::{Attachment, Fabric, LinkId, Path, PointId};
use headwater_policy::pam::{self, Late, Order, Ranking, Standing};
use headwater_policy::theta::{Bounds, theta_ceiling};
use headwater_policy::{Coflow, Demand, PathedFlow, Policy};
use headwater_units::{BitRate, Bytes, Duration, FlowId, NodeId, Rank, Theta, Time};
use headwater_wire::{Class, SYMBOL_OVERHEAD, TransferOrder, Urgency};

use crate::ControllerConfig;
use crate::catalog::Catalog;
use crate::tasks::{Task, Tasks};
use crate::timers::Subject;
use crate::turn::Turn;

/// IPv4 and UDP headers, which count against a stated capacity.
const IP_UDP: u64 = 28;

/// Turns tasks and measurements into weights.
#[derive(Default)]
pub(crate) struct Planner {
    /// When weights were planned last.
    planned: Option<Time>,
    topology: Topology,
    /// Rates delivered lately, by link: they survive a rebuilt topology.
    delivered: BTreeMap<LinkKind, WindowedMax>,
}

/// Measurements of one link from the flows on it.
#[derive(Default)]
struct Load {
    rate: BitRate,
    rtt: Option<Duration>,
    symbol: u64,
}

impl Planner {
    /// Somebody's links are not what they were.
    pub(crate) fn forget_topology(&mut self) {
        self.topology = Topology::default();
    }

    /// Plans the weights of all flows (PPUSH Alg. 1), and sets when that is done again; in a moment and without a plan now, if the last one
    /// is very young.
    pub(crate) fn plan(
        &mut self,
        turn: &mut Turn<'_>,
        tasks: &Tasks,
        catalog: &Catalog,
    ) -> Option<BTreeMap<FlowId, Theta>> {
        let (now, config) = (turn.now, turn.config);
        let next = self.planned.map(|last| last + config.replan_gap);
        if let Some(next) = next.filter(|next| *next > now) {
            turn.wake(Subject::Plan, Some(next));
            return None;
        }
        self.planned = Some(now);
        turn.stats.plans += 1;
        let running = tasks.apart().any(|task| !task.is_paused());
        turn.wake(Subject::Plan, running.then(|| now + config.replan_every));
        Some(match config.fixed_theta {
            Some(theta) => {
                let flows = tasks.iter().flat_map(|task| &task.flows);
                flows.map(|flow| (flow.facts.flow, theta)).collect()
            }
            None => self.weights(now, tasks, catalog, config),
        })
    }

    /// The weight of every flow of every task that is not paused (PPUSH Alg. 1).
    fn weights(
        &mut self,
        now: Time,
        tasks: &Tasks,
        catalog: &Catalog,
        config: &ControllerConfig,
    ) -> BTreeMap<FlowId, Theta> {
        let flows = config.max_tasks * usize::from(config.max_sources);
        if self.topology.hosts.len() > config.max_nodes + config.max_tasks
            || self.topology.paths.len() > 2 * flows
        {
            self.forget_topology();
        }
        let mut demand = Demand::default();
        let mut loads: BTreeMap<LinkId, Load> = BTreeMap::new();
        // In an overlay each flow is as needed as any other.
        for task in tasks.apart().filter(|task| !task.is_paused()) {
            let mut flows = Vec::with_capacity(task.flows.len());
            for flow in &task.flows {
                let path = self.topology.path(flow.facts.node, task.facts.receiver, catalog);
                for link in path.links() {
                    let load = loads.entry(*link).or_default();
                    // Symbols that a group's flow carries once are delivered by each of its members.
                    let view = flow.view.filter(|_| flow.facts.group.is_none());
                    let rate = view.map_or(0, |view| view.rate.get());
                    load.rate = BitRate::new(load.rate.get().saturating_add(rate));
                    load.rtt = load.rtt.max(flow.rtt);
                    load.symbol = load.symbol.max(u64::from(task.facts.symbol_size));
                }
                let sent = flow.view.map_or(Bytes::ZERO, |view| view.bytes);
                flows.push(PathedFlow { flow: flow.facts.flow, remaining: None, sent, path });
            }
            demand.coflows.push(Coflow {
                task: task.id(),
                arrival: task.begun,
                remaining: Some(place_in_line(now, task)),
                sent: task.facts.bytes - task.remaining().min(task.facts.bytes),
                flows,
            });
        }
        let bucket = now.as_nanos() / config.replan_every.as_nanos();
        let buckets = config.rate_window.as_nanos().div_ceil(config.replan_every.as_nanos());
        for (link, load) in loads.iter().filter(|(_, load)| load.rate > BitRate::ZERO) {
            self.delivered.entry(self.topology.kind(*link).clone()).or_default().add(bucket, load.rate);
        }
        self.delivered.retain(|_, window| window.keep_since(bucket.saturating_sub(buckets)));
        let ceiling = |link, load| config.theta_ceiling.or_else(|| self.ceiling(link, load));
        let ceilings = loads.iter().map(|(link, load)| (*link, ceiling(*link, load))).collect();
        let bounds = Bounds { floor: config.theta_floor, unmeasured: config.theta_unmeasured, ceilings };
        let plan = bounds.plan(now, &demand);
        let plan = plan.expect("every flow is listed once, every size is known and every link has a ceiling");
        plan.shares().filter_map(|(flow, share)| Some((flow, share.weight()?))).collect()
    }

    /// θ+ of a link, if its capacity and a round trip over it are known.
    fn ceiling(&self, link: LinkId, load: &Load) -> Option<Theta> {
        let rtt = load.rtt?;
        let stated = self.topology.fabric.link(link).and_then(|link| link.capacity);
        // Stated rates are of the wire, delivered ones of symbols alone: count packets by the same measure.
        let (capacity, packet) = match stated {
            Some(stated) => (stated, load.symbol + SYMBOL_OVERHEAD as u64 + IP_UDP),
            None => (self.delivered.get(self.topology.kind(link))?.max()?, load.symbol),
        };
        Some(theta_ceiling(rtt, capacity, Bytes::new(packet)))
    }
}

/// A link by what it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LinkKind {
    Uplink(NodeId),
    Downlink(NodeId),
    RackUplink(String),
    RackDownlink(String),
}

/// One big switch with racks; hosts are attached when a flow needs them.
struct Topology {
    fabric: Fabric,
    core: PointId,
    hosts: BTreeMap<NodeId, Attachment>,
    racks: BTreeMap<String, Attachment>,
    /// Paths asked for before.
    paths: BTreeMap<(PointId, PointId), Path>,
    /// By link.
    kinds: Vec<LinkKind>,
}

impl Default for Topology {
    fn default() -> Self {
        let mut fabric = Fabric::new();
        let core = fabric.add_point();
        let (hosts, racks, paths, kinds) = Default::default();
        Topology { fabric, core, hosts, racks, paths, kinds }
    }
}

impl Topology {
    fn kind(&self, link: LinkId) -> &LinkKind {
        &self.kinds[link.0 as usize]
    }

    fn path(&mut self, from: NodeId, to: NodeId, catalog: &Catalog) -> Path {
        let ends = (self.host(from, catalog), self.host(to, catalog));
        let search = || self.fabric.path(ends.0, ends.1).expect("every host is attached to the core");
        self.paths.entry(ends).or_insert_with(search).clone()
    }

    fn host(&mut self, node: NodeId, catalog: &Catalog) -> PointId {
        if let Some(host) = self.hosts.get(&node) {
            return host.point;
        }
        // A node that is not known hangs on the core by links of which nothing is known.
        let info = catalog.node(node).map(|node| &node.info);
        let network = match info.and_then(|info| info.rack.as_ref()) {
            Some((rack, _)) => self.rack(rack, catalog),
            None => self.core,
        };
        let host = self.fabric.attach(
            network,
            info.and_then(|info| info.uplink),
            info.and_then(|info| info.downlink),
        );
        self.kinds.extend([LinkKind::Uplink(node), LinkKind::Downlink(node)]);
        self.hosts.insert(node, host);
        host.point
    }

    fn rack(&mut self, name: &str, catalog: &Catalog) -> PointId {
        if let Some(rack) = self.racks.get(name) {
            return rack.point;
        }
        let capacity = catalog.rack_capacity(name);
        let rack = self.fabric.attach(self.core, capacity, capacity);
        self.kinds.extend([LinkKind::RackUplink(name.to_owned()), LinkKind::RackDownlink(name.to_owned())]);
        self.racks.insert(name.to_owned(), rack);
        rack.point
    }
}

/// The largest of the rates of a sliding window, by whole buckets of time.
#[derive(Default)]
struct WindowedMax {
    /// Buckets ascending, rates strictly descending: what comes later and is larger makes the earlier irrelevant.
    samples: VecDeque<(u64, BitRate)>,
}

impl WindowedMax {
    fn add(&mut self, bucket: u64, rate: BitRate) {
        while self.samples.back().is_some_and(|(_, before)| *before <= rate) {
            self.samples.pop_back();
        }
        if self.samples.back().is_none_or(|(before, _)| *before < bucket) {
            self.samples.push_back((bucket, rate));
        }
    }
    /// Drops older buckets. Whether anything is left.
    fn keep_since(&mut self, bucket: u64) -> bool {
        while self.samples.front().is_some_and(|(before, _)| *before < bucket) {
            self.samples.pop_front();
        }
        !self.samples.is_empty()
    }
    fn max(&self) -> Option<BitRate> {
        self.samples.front().map(|(_, rate)| *rate)
    }
}

/// Sorting key of Algorithm 1: the remaining size; but tasks with a rank of their own come before all others, those
/// that are to go before nobody behind them, and background tasks last of all.
fn place_in_line(now: Time, task: &Task) -> Bytes {
    const SIZES: u64 = Rank::LAST.get() as u64 + 1;
    const BACKGROUND: u64 = u64::MAX / 2;
    let size = task.remaining().get().min(BACKGROUND);
    Bytes::new(match (task.facts.class, task.urgency.and_then(|urgency| rank(now, task, urgency))) {
        (Class::Gentle, _) => BACKGROUND + size,
        (_, None) => SIZES + size.min(BACKGROUND - SIZES - 2),
        (_, Some(Rank::LAST)) => BACKGROUND - 1,
        (_, Some(rank)) => rank.get().into(),
    })
}

/// The rank of a task where no switch looks at ranks (PAM Table I); none where that is what its size says, and of one that is late.
fn rank(now: Time, task: &Task, (begun, urgency): (Time, Urgency)) -> Option<Rank> {
    let Urgency { precedence, deadline } = urgency;
    let deadline = deadline.map(|within| begun + within);
    let order = match precedence.order {
        TransferOrder::SmallestRemaining => return None,
        TransferOrder::EarliestDeadline if deadline.is_none_or(|at| now > at) => return None,
        TransferOrder::EarliestDeadline => Order::EarliestDeadline,
        TransferOrder::FirstCome => Order::FirstCome,
        TransferOrder::Fair => Order::Fair,
        TransferOrder::Stated(rank) => Order::Stated(rank),
    };
    let ranking = Ranking { order, late: Late::RanksLast };
    // The capacity of its links is not known here: it is late when its time has passed.
    let link = BitRate::new(u64::MAX);
    let transfer = pam::Transfer { started: begun.since(Time::ZERO), deadline, receivers: 1, link };
    match ranking.standing(now, &transfer, task.remaining()) {
        Standing::Ranked(rank) => Some(rank),
        Standing::Dropped => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_rate_counts_until_it_leaves_the_window() {
        let mut window = WindowedMax::default();
        for (bucket, rate) in [(1, 50), (2, 80), (2, 60), (3, 20), (4, 30)] {
            window.add(bucket, BitRate::new(rate));
        }
        assert_eq!(window.max(), Some(BitRate::new(80)));
        assert!(window.keep_since(3));
        assert_eq!(window.max(), Some(BitRate::new(30)));
        assert!(!window.keep_since(5));
        assert_eq!(window.max(), None);
    }
}
