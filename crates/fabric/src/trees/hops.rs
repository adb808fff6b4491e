//! Which hosts hand on to which when a tree is walked by hosts alone: the switches between them forward packets to addresses.
//!
//! The way a tree branches in a switch depends on the switch ([`Switches`]). One with a content store (Datacast §V-A)
//! passes on one packet to all who want it, so every host below asks the one above. A plain one would have to be sent a
//! packet for each of them; there the hosts below hand it on to one another, in the order in which the tree is walked
//! depth first. Such a chain uses each cable once in each direction, the paths up beside those of the tree; another
//! tree may want one of these.
//!
//! Not here: addresses, and who of them receives.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::SteinerTree;
use crate::{HostId, LinkId, PointId, PointKind, Topology};

/// Behaviour of a network's switches where a tree branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switches {
    /// They forward, and nothing else.
    #[default]
    Plain,
    /// They gather interests and copy what answers them (Datacast §V-A).
    Stores,
}

/// From one host of a tree to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Host that hands on.
    pub from: HostId,
    /// By which of its cables, counted as they leave it.
    pub from_port: usize,
    /// Host that is handed to.
    pub to: HostId,
    /// By which of its cables it comes.
    pub to_port: usize,
    /// Hops of one branch leave `from` as one packet, hops of different branches as one each.
    pub branch: usize,
    /// The links between them, in order.
    pub links: Vec<LinkId>,
    /// How many hops there are from the source to `to`, itself included.
    pub depth: u32,
}

/// The hops of a tree; a host that hands on has been reached by one that stands before.
pub fn hops(topology: &Topology, tree: &SteinerTree, switches: Switches) -> Vec<Hop> {
    let mut leaving: BTreeMap<PointId, Vec<LinkId>> = BTreeMap::new();
    for it in tree.links() {
        leaving.entry(it.from).or_default().push(it.link);
    }
    let mut walk =
        Walk { topology, leaving, branches: BTreeMap::new(), depths: BTreeMap::new(), hops: Vec::new() };
    if let Some(source) = host_at(topology, tree.source()) {
        walk.depths.insert(source, 0);
        walk.from(source, switches);
    }
    walk.hops
}

struct Walk<'a> {
    topology: &'a Topology,
    /// The tree's links, by where they begin.
    leaving: BTreeMap<PointId, Vec<LinkId>>,
    /// How many branches a host has.
    branches: BTreeMap<HostId, usize>,
    depths: BTreeMap<HostId, u32>,
    hops: Vec<Hop>,
}

impl Walk<'_> {
    fn from(&mut self, host: HostId, switches: Switches) {
        let point = self.topology.point_of(host).expect("hosts of a tree are hosts of its network");
        for first in self.leaving.get(&point).cloned().unwrap_or_default() {
            let mut found = Vec::new();
            self.reach(vec![first], &mut found);
            let mut branch = None;
            for (place, (to, links)) in found.iter().enumerate() {
                let before = place.checked_sub(1).map(|before| &found[before]);
                let chained = before.filter(|_| switches == Switches::Plain);
                let chained = chained.and_then(|(from, path)| Some((*from, self.across(path, links)?)));
                let (from, links, branch) = match chained {
                    Some((from, links)) => (from, links, self.next_branch(from)),
                    None => (host, links.clone(), *branch.get_or_insert_with(|| self.next_branch(host))),
                };
                self.hop(from, *to, links, branch);
            }
            found.iter().for_each(|(to, _)| self.from(*to, switches));
        }
    }

    /// The hosts that are reached by this path and over switches alone, depth first.
    fn reach(&self, path: Vec<LinkId>, found: &mut Vec<(HostId, Vec<LinkId>)>) {
        let link = path.last().and_then(|link| self.topology.fabric().link(*link));
        let end = link.expect("a tree's links are links of its fabric").to;
        if let Some(host) = host_at(self.topology, end) {
            return found.push((host, path));
        }
        for next in self.leaving.get(&end).into_iter().flatten() {
            self.reach([&path[..], &[*next]].concat(), found);
        }
    }

    /// From the end of one path to the end of another that begins where it does; `None`: cables lead one way only.
    fn across(&self, from: &[LinkId], to: &[LinkId]) -> Option<Vec<LinkId>> {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let up = from[common..].iter().rev().map(|link| self.topology.fabric().link(*link)?.back);
        up.chain(to[common..].iter().map(|link| Some(*link))).collect()
    }

    fn next_branch(&mut self, host: HostId) -> usize {
        let branches = self.branches.entry(host).or_insert(0);
        *branches += 1;
        *branches - 1
    }

    fn hop(&mut self, from: HostId, to: HostId, links: Vec<LinkId>, branch: usize) {
        let fabric = self.topology.fabric();
        let place = |link: LinkId| {
            let from = fabric.link(link).expect("it is a link of the fabric").from;
            fabric.leaving(from).iter().position(|it| *it == link).expect("it leaves where it begins")
        };
        let (first, last) = (links[0], links[links.len() - 1]);
        let back = fabric.link(last).and_then(|link| link.back);
        let depth = self.depths.get(&from).map_or(1, |depth| depth + 1);
        self.depths.insert(to, depth);
        let (from_port, to_port) = (place(first), back.map_or(0, place));
        self.hops.push(Hop { from, from_port, to, to_port, branch, links, depth });
    }
}

pub(super) fn host_at(topology: &Topology, point: PointId) -> Option<HostId> {
    match topology.place(point)?.kind {
        PointKind::Host(host) => Some(host),
        PointKind::Switch => None,
    }
}
