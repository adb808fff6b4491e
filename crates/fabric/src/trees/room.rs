//! How fast each of several trees can be, where they cross each other's cables.
//!
//! Trees share no link, but the interests of a tree go up the other direction of its cables, where the symbols of another one may come
//! down. In a chain of hosts around a plain switch they meet the symbols of their own tree. So a link carries for each symbol of a
//! tree one packet for each time that the tree goes down it, and one interest for each time that it goes down its twin; and a source
//! that fills its links with symbols alone only makes their queues longer (Datacast §V-B counts no interests: its two trees on links of
//! 1 Gbit/s reach 1.89 Gbit/s, Table I).
//!
//! Each link is taken to be shared by trees that are equally fast, which is exact where all links are alike. Where they are not, the
//! slower tree leaves a little: what its rate rule is for.

use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{BitRate, Bytes};

use super::{SteinerTree, Switches, hops};
use crate::{LinkId, Topology};

/// How long packets of trees are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSizes {
    /// Of a symbol's packet, that which rates of trees count.
    pub counted: Bytes,
    /// On a link, all of a symbol's packet and what is around it.
    pub symbol: Bytes,
    /// On a link, all of an interest and what is around it.
    pub interest: Bytes,
}

/// The most that each of these trees can carry at the same time as the others, by place, in bits per second of what
/// [`PacketSizes::counted`] counts; `None` where `rate` knows of no link of it how much that carries.
pub fn rates(
    topology: &Topology,
    trees: &[SteinerTree],
    switches: Switches,
    sizes: PacketSizes,
    rate: impl Fn(LinkId) -> Option<BitRate>,
) -> Vec<Option<BitRate>> {
    let crossed: Vec<BTreeMap<LinkId, u64>> =
        trees.iter().map(|tree| crossings(topology, tree, switches)).collect();
    // Bytes on each link for one symbol of each tree.
    let mut loads: BTreeMap<LinkId, u64> = BTreeMap::new();
    for (link, times) in crossed.iter().flatten() {
        *loads.entry(*link).or_default() += times * sizes.symbol.get();
        if let Some(twin) = topology.fabric().link(*link).and_then(|it| it.back) {
            *loads.entry(twin).or_default() += times * sizes.interest.get();
        }
    }
    let carries = |link: &LinkId| {
        let counted = u128::from(rate(*link)?.get()) * u128::from(sizes.counted.get());
        let carried = counted / u128::from(loads[link].max(1));
        Some(BitRate::new(u64::try_from(carried).unwrap_or(u64::MAX)))
    };
    crossed.iter().map(|links| links.keys().filter_map(carries).min()).collect()
}

/// How often a symbol of a tree crosses each of its links: hops of one branch share a packet.
fn crossings(topology: &Topology, tree: &SteinerTree, switches: Switches) -> BTreeMap<LinkId, u64> {
    let (mut times, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for hop in hops(topology, tree, switches) {
        for link in hop.links {
            if seen.insert((hop.from, hop.branch, link)) {
                *times.entry(link).or_default() += 1;
            }
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::super::{Group, disjoint};
    use super::*;
    use crate::{BCubeSpec, BigSwitchSpec, FabricSpec, HostId, LinkDelay};

    const SIZES: PacketSizes =
        PacketSizes { counted: Bytes::new(1400), symbol: Bytes::new(1500), interest: Bytes::new(100) };
    const GBPS: BitRate = BitRate::new(1_000_000_000);

    fn all_from(topology: &Topology, source: u32) -> Vec<SteinerTree> {
        let hosts = topology.hosts().len() as u32;
        let receivers: Vec<HostId> = (0..hosts).filter(|host| *host != source).map(HostId).collect();
        disjoint(topology, &Group::new(topology, HostId(source), &receivers).unwrap())
    }

    fn bcube() -> Topology {
        let spec = BCubeSpec { n: 4, levels: 1, rate: GBPS.into(), delay: LinkDelay::ZERO };
        FabricSpec::BCube(spec).build(Bytes::new(1500)).unwrap()
    }

    fn big_switch(hosts: u32) -> Topology {
        let spec = BigSwitchSpec {
            hosts,
            rate: GBPS.into(),
            delay: LinkDelay::ZERO,
            uplinks: Default::default(),
            downlinks: Default::default(),
        };
        FabricSpec::BigSwitch(spec).build(Bytes::new(1500)).unwrap()
    }

    fn rate_of(topology: &Topology) -> impl Fn(LinkId) -> Option<BitRate> + '_ {
        |link| topology.fabric().link(link)?.capacity
    }

    #[test]
    fn a_tree_alone_has_all_of_its_links_and_two_leave_room_for_what_the_other_one_asks() {
        let topology = bcube();
        let trees = all_from(&topology, 0);
        let of = |trees: &[SteinerTree]| rates(&topology, trees, Switches::Stores, SIZES, rate_of(&topology));
        let mbps = |n: u64| Some(BitRate::new(n * 1_000_000));
        assert_eq!(of(&trees[..1]), [Some(BitRate::new(1_000_000_000 * 1400 / 1500))]);
        assert_eq!(of(&trees), [mbps(875), mbps(875)], "1500 B down for 100 B up");
    }

    #[test]
    fn around_a_plain_switch_a_chain_leaves_room_for_what_its_own_hosts_ask() {
        let topology = big_switch(4);
        let trees = all_from(&topology, 0);
        let of = |switches| rates(&topology, &trees, switches, SIZES, rate_of(&topology))[0].unwrap().get();
        assert_eq!((of(Switches::Plain), of(Switches::Stores)), (875_000_000, 933_333_333));
    }

    #[test]
    fn the_slowest_link_of_a_tree_counts_and_one_of_unknown_rate_does_not() {
        let topology = bcube();
        let trees = all_from(&topology, 0);
        let slow = trees[0].links()[3].link;
        let known = |link| Some(if link == slow { BitRate::new(150_000_000) } else { GBPS });
        let slowed = rates(&topology, &trees, Switches::Stores, SIZES, known);
        let alone = slow_share(&topology, &trees, slow);
        assert_eq!(slowed[0], Some(BitRate::new(150_000_000 * 1400 / alone)));
        assert_eq!(slowed[1], Some(BitRate::new(875_000_000)), "only its interests cross that cable");
        assert_eq!(rates(&topology, &trees, Switches::Stores, SIZES, |_| None), [None, None]);
    }

    /// Bytes on a link of the first tree for a symbol of each.
    fn slow_share(topology: &Topology, trees: &[SteinerTree], link: LinkId) -> u64 {
        let twin = topology.fabric().link(link).unwrap().back.unwrap();
        let crossed = trees[1].links().iter().any(|it| it.link == twin);
        if crossed { 1600 } else { 1500 }
    }
}
