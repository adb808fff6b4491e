//! How far every point is from one destination: a search backwards from it, breadth first by links or Dijkstra's by delay.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{HostId, LinkId, PointId, Topology};

/// Length of a path: what makes one shorter than another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Fewer links.
    #[default]
    Hops,
    /// Less propagation delay; among equal ones, fewer links.
    Delay,
}

impl Topology {
    /// Whether there is a path from one host to another over links that are not down.
    pub fn connected(&self, from: HostId, to: HostId) -> bool {
        let (Some(start), Some(_)) = (self.point_of(from), self.point_of(to)) else { return false };
        let mut distances = Distances::new(self);
        distances.measure(self, to, Metric::Hops);
        distances.hops(start).is_some()
    }

    /// The longest of all shortest paths between hosts, in links; `None` if some host cannot reach some other.
    ///
    /// Takes a search of the whole fabric per host: a second or so for four thousand hosts.
    pub fn diameter(&self) -> Option<u32> {
        let mut distances = Distances::new(self);
        let mut longest = 0;
        for to in (0..).map(HostId).take(self.hosts().len()) {
            distances.measure(self, to, Metric::Hops);
            for from in self.hosts() {
                longest = longest.max(distances.hops(*from)?);
            }
        }
        Some(longest)
    }
}

/// How far every point is from one destination: (propagation in ns, or 0 if that does not count; links).
pub(crate) struct Distances {
    forwards: Vec<bool>,
    to: PointId,
    metric: Metric,
    cost: Vec<(u64, u32)>,
    queue: VecDeque<PointId>,
    heap: BinaryHeap<Reverse<((u64, u32), PointId)>>,
}

const UNREACHED: (u64, u32) = (u64::MAX, u32::MAX);

impl Distances {
    pub(crate) fn new(topology: &Topology) -> Self {
        let points = topology.fabric().point_count();
        Distances {
            forwards: (0..).map(PointId).take(points).map(|at| topology.forwards(at)).collect(),
            to: PointId(u32::MAX),
            metric: Metric::Hops,
            cost: vec![UNREACHED; points],
            queue: VecDeque::new(),
            heap: BinaryHeap::new(),
        }
    }

    /// Searches backwards from a host of this topology.
    pub(crate) fn measure(&mut self, topology: &Topology, to: HostId, metric: Metric) {
        self.to = topology.point_of(to).expect("the destination was checked to be a host");
        self.metric = metric;
        self.cost.fill(UNREACHED);
        self.cost[self.to.index()] = (0, 0);
        match metric {
            Metric::Hops => self.by_hops(topology),
            Metric::Delay => self.by_delay(topology),
        }
    }

    /// How many links a shortest path from there has.
    pub(crate) fn hops(&self, from: PointId) -> Option<u32> {
        let cost = self.cost[from.index()];
        (cost != UNREACHED).then_some(cost.1)
    }

    /// Appends the links at a point that lie on a shortest path, ascending.
    pub(crate) fn shortest(&self, topology: &Topology, at: PointId, into: &mut Vec<LinkId>) {
        let here = self.cost[at.index()];
        if here == UNREACHED || at == self.to {
            return;
        }
        let fabric = topology.fabric();
        for &link in fabric.leaving(at) {
            let next = fabric.link(link).expect("a point's links exist");
            let there = self.cost[next.to.index()];
            if there.1 < here.1
                && self.may_pass(next.to)
                && !fabric.is_down(link)
                && self.before(there, next.delay.as_nanos()) == here
            {
                into.push(link);
            }
        }
    }

    fn by_hops(&mut self, topology: &Topology) {
        let fabric = topology.fabric();
        self.queue.push_back(self.to);
        while let Some(at) = self.queue.pop_front() {
            if !self.may_pass(at) {
                continue;
            }
            let hops = self.cost[at.index()].1 + 1;
            for &link in fabric.entering(at) {
                let from = fabric.link(link).expect("a point's links exist").from;
                if self.cost[from.index()] == UNREACHED && !fabric.is_down(link) {
                    self.cost[from.index()] = (0, hops);
                    self.queue.push_back(from);
                }
            }
        }
    }

    fn by_delay(&mut self, topology: &Topology) {
        let fabric = topology.fabric();
        self.heap.push(Reverse(((0, 0), self.to)));
        while let Some(Reverse((cost, at))) = self.heap.pop() {
            if cost > self.cost[at.index()] || !self.may_pass(at) {
                continue;
            }
            for &link in fabric.entering(at) {
                let next = fabric.link(link).expect("a point's links exist");
                let cost = self.before(cost, next.delay.as_nanos());
                if cost < self.cost[next.from.index()] && !fabric.is_down(link) {
                    self.cost[next.from.index()] = cost;
                    self.heap.push(Reverse((cost, next.from)));
                }
            }
        }
    }

    fn may_pass(&self, at: PointId) -> bool {
        at == self.to || self.forwards[at.index()]
    }

    /// The cost one link earlier.
    fn before(&self, cost: (u64, u32), delay: u64) -> (u64, u32) {
        match self.metric {
            Metric::Hops => (0, cost.1 + 1),
            Metric::Delay => (cost.0.saturating_add(delay), cost.1 + 1),
        }
    }
}
