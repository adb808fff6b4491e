//! Rates of the flows on a network by one [`Allocation`], kept up to date as flows come, go and change.
//!
//! Progressive filling: everybody's rate per weight rises until a link is full, its flows stay there, the rest goes on.
//! With thetas as weights that is PPUSH Theorem 1 on every bottleneck at once. A change reaches only the flows that share
//! a link with it, or share one with such a flow, and so on; only those are filled anew.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_fabric::Path;

use super::{Allocation, FlowError, Network, Share};

/// Rest of a link that counts as nothing, as a part of its capacity: it is rounding, not room.
const ROUNDING: f64 = 1e-9;

/// Weights that a sum of them can still tell apart.
const WEIGHTS: std::ops::RangeInclusive<f64> = 1e-6..=1e9;

/// A flow of one [`Rates`]; counts from zero in the order of adding and is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(usize);

impl Slot {
    /// Its number, to keep things about flows in a list.
    pub fn index(self) -> usize {
        self.0
    }
}

/// The current rate of every flow.
#[derive(Clone, Debug)]
pub struct Rates {
    rule: Allocation,
    flows: Vec<Flow>,
    links: Vec<Link>,
    /// Links where something changed since the last update.
    touched: Vec<usize>,
    updates: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    path: Vec<usize>,
    share: Share,
    /// Bits per second.
    rate: f64,
    present: bool,
    /// Whether the filling at hand has decided its rate.
    fixed: bool,
    /// The last update that reached it.
    reached: u64,
}

#[derive(Clone, Debug)]
struct Link {
    /// Bits per second.
    capacity: f64,
    /// Flows on the link, in no particular order.
    flows: Vec<usize>,
    /// Capacity that the ranks before have left, while filling.
    left: f64,
    /// Those of the rank in turn, while filling.
    turn: Vec<usize>,
    /// The last update that reached it.
    reached: u64,
}

impl Rates {
    /// Nobody on `network` yet.
    pub fn new(network: &Network, rule: Allocation) -> Self {
        let link = |capacity: f64| Link {
            capacity,
            flows: Vec::new(),
            left: capacity,
            turn: Vec::new(),
            reached: 0,
        };
        let links = network.capacities.iter().map(|capacity| link(capacity.get() as f64)).collect();
        Rates { rule, flows: Vec::new(), links, touched: Vec::new(), updates: 0 }
    }

    /// Adds a flow; it gets its rate with the next update.
    ///
    /// # Errors
    /// [`FlowError::Path`] or [`FlowError::Weight`] if it cannot be.
    pub fn add(&mut self, path: &Path, share: Share) -> Result<Slot, FlowError> {
        super::check_path(path, self.links.len())?;
        check_share(share)?;
        let path: Vec<usize> = path.links().iter().map(|link| link.0 as usize).collect();
        let flow = self.flows.len();
        for &link in &path {
            self.links[link].flows.push(flow);
        }
        self.touched.extend(&path);
        self.flows.push(Flow { path, share, rate: 0.0, present: true, fixed: false, reached: 0 });
        Ok(Slot(flow))
    }

    /// Takes a flow away; nothing happens if it is gone already.
    pub fn remove(&mut self, slot: Slot) {
        let flow = &mut self.flows[slot.0];
        if !std::mem::take(&mut flow.present) {
            return;
        }
        flow.rate = 0.0;
        for &link in &flow.path {
            self.links[link].flows.retain(|other| *other != slot.0);
        }
        self.touched.extend(&flow.path);
    }

    /// Gives a flow another share.
    ///
    /// # Errors
    /// [`FlowError::Weight`] if the weight is none.
    pub fn set_share(&mut self, slot: Slot, share: Share) -> Result<(), FlowError> {
        check_share(share)?;
        let flow = &mut self.flows[slot.0];
        if flow.present && flow.share != share {
            flow.share = share;
            self.touched.extend(&flow.path);
        }
        Ok(())
    }

    /// Current share of a flow.
    pub fn share(&self, slot: Slot) -> Share {
        self.flows[slot.0].share
    }

    /// Rate of a flow since the last update, in bits per second; zero once it is gone.
    pub fn rate(&self, slot: Slot) -> f64 {
        self.flows[slot.0].rate
    }

    /// Fills anew what changed, and says whose rate is another now.
    pub fn update(&mut self) -> Vec<Slot> {
        let mut flows = self.reach();
        let before: Vec<(usize, f64)> = flows.iter().map(|&flow| (flow, self.flows[flow].rate)).collect();
        flows.sort_unstable_by_key(|&flow| (self.rank(flow), flow));
        let mut rest = &flows[..];
        while let Some(&first) = rest.first() {
            let rank = self.rank(first);
            let (turn, later) = rest.split_at(rest.partition_point(|&flow| self.rank(flow) == rank));
            self.fill(turn);
            rest = later;
        }
        let changed = before.into_iter().filter(|(flow, rate)| self.flows[*flow].rate != *rate);
        changed.map(|(flow, _)| Slot(flow)).collect()
    }

    /// All flows that a touched link can concern, made ready to be filled.
    fn reach(&mut self) -> Vec<usize> {
        self.updates += 1;
        let (mut frontier, mut flows) = (std::mem::take(&mut self.touched), Vec::new());
        while let Some(link) = frontier.pop() {
            let link = &mut self.links[link];
            if std::mem::replace(&mut link.reached, self.updates) == self.updates {
                continue;
            }
            link.left = link.capacity;
            for &flow in &link.flows {
                let found = &mut self.flows[flow];
                if std::mem::replace(&mut found.reached, self.updates) != self.updates {
                    found.fixed = false;
                    flows.push(flow);
                    frontier.extend(&found.path);
                }
            }
        }
        flows
    }

    fn rank(&self, flow: usize) -> u32 {
        match self.rule {
            Allocation::Priority => self.flows[flow].share.rank,
            Allocation::MaxMin | Allocation::WeightedMaxMin => 0,
        }
    }

    fn weight(&self, flow: usize) -> f64 {
        match self.rule {
            Allocation::MaxMin => 1.0,
            Allocation::WeightedMaxMin | Allocation::Priority => self.flows[flow].share.weight,
        }
    }

    /// Gives what is left of the links to flows of one rank.
    fn fill(&mut self, turn: &[usize]) {
        let mut links = Vec::new();
        for &flow in turn {
            for &link in &self.flows[flow].path {
                if self.links[link].turn.is_empty() {
                    links.push(link);
                }
                self.links[link].turn.push(flow);
            }
        }
        let mut levels: BinaryHeap<Reverse<(Level, usize)>> =
            links.iter().filter_map(|&link| Some(Reverse((self.level(link)?, link)))).collect();
        while let Some(Reverse((_, link))) = levels.pop() {
            // A level only rises while others are fixed, so an old one is a lower bound.
            let Some(level) = self.level(link) else { continue };
            if levels.peek().is_some_and(|Reverse((next, _))| level > *next) {
                levels.push(Reverse((level, link)));
                continue;
            }
            for at in 0..self.links[link].turn.len() {
                let flow = self.links[link].turn[at];
                if !self.flows[flow].fixed {
                    self.flows[flow].rate = self.weight(flow) * level.0;
                    self.flows[flow].fixed = true;
                }
            }
        }
        for link in links {
            let link = &mut self.links[link];
            let used: f64 = link.turn.drain(..).map(|flow| self.flows[flow].rate).sum();
            let left = link.left - used;
            link.left = if left > ROUNDING * link.capacity { left } else { 0.0 };
        }
    }

    /// The rate per weight at which a link is full of the flows in turn; `None` once all of them are fixed.
    fn level(&self, link: usize) -> Option<Level> {
        let link = &self.links[link];
        let (mut left, mut weight) = (link.left, 0.0);
        for &flow in &link.turn {
            match self.flows[flow].fixed {
                true => left -= self.flows[flow].rate,
                false => weight += self.weight(flow),
            }
        }
        (weight > 0.0).then(|| Level(left.max(0.0) / weight))
    }
}

/// Bits per second and weight; never NaN, since weights are above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level(pub(super) f64);

impl Eq for Level {}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

fn check_share(share: Share) -> Result<(), FlowError> {
    match WEIGHTS.contains(&share.weight) {
        true => Ok(()),
        false => Err(FlowError::Weight(share.weight)),
    }
}
