//! Max-min rates of very many flows at once.
//!
//! As [`Rates`](crate::flow::rates::Rates) with [`Allocation::MaxMin`](crate::flow::Allocation), and to the same numbers: everybody's
//! rate rises until a link is full, its flows stay there, the rest goes on. That fills anew what a change reaches, and adds
//! up what a link has left whenever it looks. In a swarm a change reaches everybody, ten thousand flows a thousand times a
//! second, so here all are filled anew each time, what is left of a link is kept up, and flows that come back are known already.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_fabric::Path;

use crate::flow::Network;
use crate::flow::rates::Level;

/// The links of many flows, one list behind the other. A place in that list is a hop.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// By hop.
    links: Vec<u32>,
    /// By hop.
    flows: Vec<u32>,
    /// By flow, and one more: its first hop.
    starts: Vec<u32>,
}

impl Paths {
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a Path>) -> Paths {
        let mut all = Paths { links: Vec::new(), flows: Vec::new(), starts: vec![0] };
        for (path, flow) in paths.zip(0..) {
            all.links.extend(path.links().iter().map(|link| link.0));
            all.flows.resize(all.links.len(), flow);
            all.starts.push(all.links.len() as u32);
        }
        all
    }

    /// The links of a flow.
    pub(super) fn of(&self, flow: u32) -> &[u32] {
        &self.links[self.hops(flow)]
    }

    fn hops(&self, flow: u32) -> std::ops::Range<usize> {
        let [start, end] = [0, 1].map(|more| self.starts[flow as usize + more] as usize);
        start..end
    }
}

/// The current rate of every flow.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    paths: Paths,
    /// How many flows are there.
    there: usize,
    /// By flow, bits per second.
    rates: Vec<f64>,
    /// By hop: where it stands in its link's list, if its flow is there.
    places: Vec<u32>,
    /// By link: the hops of the flows that are there, in no particular order.
    hops: Vec<Vec<u32>>,
    /// By link.
    links: Vec<Link>,
    /// The links that any flow has, ascending.
    used: Vec<u32>,
    levels: BinaryHeap<Reverse<(Level, u32)>>,
}

/// State of a link, while filling.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Bits per second.
    capacity: f64,
    /// Capacity that nobody has yet.
    left: f64,
    /// Flows that have no rate yet.
    open: u32,
}

/// The rate of a flow that has none yet, while filling.
const OPEN: f64 = -1.0;

impl Shares {
    /// Nobody is there yet.
    pub(super) fn new(network: &Network, paths: Paths) -> Shares {
        let link = |capacity| Link { capacity, left: 0.0, open: 0 };
        let links: Vec<Link> = network.capacities().iter().map(|it| link(it.get() as f64)).collect();
        let mut used = paths.links.clone();
        used.sort_unstable();
        used.dedup();
        Shares {
            there: 0,
            rates: vec![0.0; paths.starts.len() - 1],
            places: vec![0; paths.links.len()],
            hops: vec![Vec::new(); links.len()],
            levels: BinaryHeap::with_capacity(used.len()),
            paths,
            links,
            used,
        }
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Rate of a flow when the links were last filled, bits per second.
    pub(super) fn rate(&self, flow: u32) -> f64 {
        self.rates[flow as usize]
    }

    /// Lets a flow be there that was not.
    pub(super) fn add(&mut self, flow: u32) {
        self.there += 1;
        for hop in self.paths.hops(flow) {
            let hops = &mut self.hops[self.paths.links[hop] as usize];
            self.places[hop] = hops.len() as u32;
            hops.push(hop as u32);
        }
    }

    /// Takes a flow away that was there.
    pub(super) fn remove(&mut self, flow: u32) {
        self.there -= 1;
        self.rates[flow as usize] = 0.0;
        for hop in self.paths.hops(flow) {
            let hops = &mut self.hops[self.paths.links[hop] as usize];
            let place = self.places[hop];
            hops.swap_remove(place as usize);
            if let Some(moved) = hops.get(place as usize) {
                self.places[*moved as usize] = place;
            }
        }
    }

    /// Shares the links among those that are there.
    pub(super) fn fill(&mut self) {
        let mut levels = std::mem::take(&mut self.levels).into_vec();
        levels.clear();
        for &at in &self.used {
            let (link, hops) = (&mut self.links[at as usize], &self.hops[at as usize]);
            (link.left, link.open) = (link.capacity, hops.len() as u32);
            hops.iter().for_each(|hop| self.rates[self.paths.flows[*hop as usize] as usize] = OPEN);
            if link.open > 0 {
                levels.push(Reverse((link.level(), at)));
            }
        }
        self.levels = BinaryHeap::from(levels);
        let mut open = self.there;
        while open > 0 {
            let Reverse((was, at)) =
                self.levels.pop().expect("a flow without a rate is on a link that is not full");
            let link = self.links[at as usize];
            if link.open == 0 {
                continue;
            }
            // A level only rises while others are given theirs.
            let level = link.level();
            if level > was && self.levels.peek().is_some_and(|Reverse((next, _))| level > *next) {
                self.levels.push(Reverse((level, at)));
                continue;
            }
            for &hop in &self.hops[at as usize] {
                let flow = self.paths.flows[hop as usize];
                let rate = &mut self.rates[flow as usize];
                if *rate == OPEN {
                    *rate = level.0;
                    open -= 1;
                    for &link in self.paths.of(flow) {
                        let link = &mut self.links[link as usize];
                        link.left = (link.left - level.0).max(0.0);
                        link.open -= 1;
                    }
                }
            }
        }
    }
}

impl Link {
    /// Rate of each of those that have none yet, if this is where they are held up.
    fn level(&self) -> Level {
        Level(self.left / f64::from(self.open))
    }
}

#[cfg(test)]
mod tests {
    use headwater_fabric::LinkId;
    use headwater_units::BitRate;
    use proptest::prelude::*;

    use super::*;
    use crate::flow::rates::Rates;
    use crate::flow::{Allocation, Share};

    proptest! {
        /// The rates of filling all at once are those of [`Rates`], whatever flows have come and gone before.
        #[test]
        fn shares_are_the_max_min_rates(
            capacities in prop::collection::vec(1u64..1_000, 6..12),
            flows in prop::collection::vec(prop::collection::vec(any::<u32>(), 1..5), 1..40),
            turns in prop::collection::vec(any::<u64>(), 1..6),
        ) {
            let count = capacities.len() as u32;
            let capacities = capacities.into_iter().map(|it| BitRate::new(it * 1_000_003));
            let network = Network::new(capacities.collect()).unwrap();
            let path = |links: &Vec<u32>| -> Path {
                let mut links: Vec<u32> = links.iter().map(|link| link % count).collect();
                links.sort_unstable();
                links.dedup();
                links.into_iter().map(LinkId).collect()
            };
            let paths: Vec<Path> = flows.iter().map(path).collect();
            let mut shares = Shares::new(&network, Paths::new(paths.iter()));
            let mut there = vec![false; paths.len()];
            for turn in turns {
                let mut rates = Rates::new(&network, Allocation::MaxMin);
                let mut slots = Vec::new();
                for (flow, path) in (0..).zip(&paths) {
                    let now = turn >> flow & 1 == 1;
                    match (std::mem::replace(&mut there[flow as usize], now), now) {
                        (false, true) => shares.add(flow),
                        (true, false) => shares.remove(flow),
                        _ => (),
                    }
                    if now {
                        slots.push((flow, rates.add(path, Share::EVEN).unwrap()));
                    } else {
                        prop_assert_eq!(shares.rate(flow), 0.0);
                    }
                }
                shares.fill();
                rates.update();
                for (flow, slot) in slots {
                    let (found, expected) = (shares.rate(flow), rates.rate(slot));
                    prop_assert!((found / expected - 1.0).abs() < 1e-9, "{found} instead of {expected}");
                }
            }
        }
    }
}
