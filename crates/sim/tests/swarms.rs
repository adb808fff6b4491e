//! Swarms: everybody gets every block once, no faster than links allow, and not much slower; peers are who they should be.

use std::collections::BTreeSet;

use headwater_fabric::{FabricSpec, HostId, LinkId, Metric, Path, Routes, Topology};
use headwater_sim::flow::swarm::{Choice, Connection, STEPS, Spread, Swarm, Ties, connections, spread};
use headwater_sim::flow::{FlowError, Network};
use headwater_units::{BitRate, Bytes, Time};
use proptest::prelude::*;

const RATE: u64 = 1_000_000_000;

fn network(capacities: &[u64]) -> Network {
    Network::new(capacities.iter().copied().map(BitRate::new).collect()).unwrap()
}

fn over(from: usize, to: usize, links: &[u32]) -> Connection {
    Connection { from, to, path: links.iter().copied().map(LinkId).collect() }
}

fn run(network: &Network, swarm: &Swarm, seed: u64) -> Spread {
    spread(network, swarm, seed, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

/// Every member on one switch: link 2 i leads from member i to it, 2 i + 1 back. Everybody is joined to everybody.
fn star(members: usize, object: u64, block: u64) -> (Network, Swarm) {
    let pairs = (0..members).flat_map(|from| (0..members).map(move |to| (from, to)));
    let connections = pairs
        .filter(|(from, to)| from != to)
        .map(|(from, to)| over(from, to, &[2 * from as u32, 2 * to as u32 + 1]))
        .collect();
    let swarm = Swarm { members, object: Bytes::new(object), block: Bytes::new(block), connections };
    (network(&vec![RATE; 2 * members]), swarm)
}

fn seconds(time: Option<Time>) -> f64 {
    time.expect("this member has everything").as_secs_f64()
}

#[test]
fn one_receiver_has_the_object_as_soon_as_its_slowest_link_allows() {
    let network = network(&[RATE, RATE / 5]);
    let (object, block) = (Bytes::new(1_000_001), Bytes::new(100_000));
    let swarm = Swarm { members: 2, object, block, connections: vec![over(0, 1, &[0, 1])] };
    let found = run(&network, &swarm, 1);
    assert_eq!(found.finish[0], Some(Time::ZERO));
    assert!((seconds(found.finish[1]) - 1_000_001.0 * 8.0 / 2e8).abs() < 2e-9, "{:?}", found.finish);
    assert_eq!(
        (found.blocks, found.carried, found.link_stress),
        (11, Bytes::new(2 * 1_000_001), 1.0),
        "ten blocks and one of a byte, over two links"
    );
}

#[test]
fn a_chain_passes_blocks_on_while_others_still_come() {
    let network = network(&[RATE, RATE]);
    let (object, block) = (Bytes::new(10_000_000), Bytes::new(100_000));
    let connections = vec![over(0, 1, &[0]), over(1, 2, &[1])];
    let found = run(&network, &Swarm { members: 3, object, block, connections }, 1);
    let one_block = 100_000.0 * 8.0 / RATE as f64;
    let [first, second] = [1, 2].map(|member| seconds(found.finish[member]));
    assert!((first - 0.08).abs() < 1e-9, "{first}");
    let behind = (second - first) / one_block;
    // A block behind, and what it waited for steps to begin.
    assert!((1.0 - 1e-6..=1.0 + 1.0 / f64::from(STEPS) + 1e-6).contains(&behind), "{behind} blocks behind");
}

#[test]
fn a_star_is_nearly_as_fast_as_its_source_and_sends_little_twice_from_there() {
    for members in [3, 8, 20] {
        let (network, swarm) = star(members, 50_000_000, 108_000);
        let found = run(&network, &swarm, 7);
        let last = found.finish.iter().map(|finish| seconds(*finish)).fold(0.0, f64::max);
        assert!((0.4..0.55).contains(&last), "{members}: {last} s instead of 0.4");
        let receivers = members as u64 - 1;
        assert_eq!(found.blocks, receivers * 463);
        assert_eq!(found.carried, Bytes::new(2 * receivers * 50_000_000));
        assert!(found.link_stress > 1.0 && found.link_stress < 2.0, "{}", found.link_stress);
    }
}

#[test]
fn whoever_is_joined_to_nobody_has_nothing_and_the_others_everything() {
    let (network, mut swarm) = star(4, 1_000_000, 108_000);
    swarm.connections.retain(|it| it.to != 2);
    let found = run(&network, &swarm, 1);
    let has: Vec<bool> = found.finish.iter().map(Option::is_some).collect();
    assert_eq!(has, [true, true, false, true]);
}

#[test]
fn a_lot_decides_and_the_same_seed_draws_the_same() {
    let (network, swarm) = star(6, 5_000_000, 108_000);
    assert_eq!(run(&network, &swarm, 1), run(&network, &swarm, 1));
    assert_ne!(run(&network, &swarm, 1).finish, run(&network, &swarm, 2).finish);
}

#[test]
fn what_is_no_swarm_is_refused() {
    let (network, swarm) = star(3, 1_000_000, 108_000);
    let error = |swarm: &Swarm| spread(&network, swarm, 1, &mut |_| ()).unwrap_err();
    let with = |connection| Swarm { connections: vec![connection], ..swarm.clone() };
    let nothing = Bytes::ZERO;
    assert_eq!(
        error(&Swarm { block: nothing, ..swarm.clone() }),
        FlowError::NoBlocks { object: swarm.object, block: nothing }
    );
    assert_eq!(
        error(&Swarm { object: nothing, ..swarm.clone() }),
        FlowError::NoBlocks { object: nothing, block: swarm.block }
    );
    assert_eq!(error(&with(over(0, 3, &[0]))), FlowError::Member { from: 0, to: 3, members: 3 });
    assert_eq!(error(&with(over(1, 1, &[0]))), FlowError::Member { from: 1, to: 1, members: 3 });
    for links in [&[0, 6][..], &[], &[0, 0]] {
        assert!(matches!(error(&with(over(0, 1, links))), FlowError::Path { links: 6, .. }));
    }
}

proptest! {
    /// Blocks are conserved and links not exceeded, whichever peers are joined.
    #[test]
    fn everybody_within_reach_gets_every_block_once(
        members in 2usize..7,
        joined in any::<u64>(),
        slow in prop::collection::vec(1u64..20, 14),
        blocks in 1u64..30,
        seed in any::<u64>(),
    ) {
        let object = blocks * 10_000 - 3_000;
        let (_, mut swarm) = star(members, object, 10_000);
        let mut lot = joined;
        swarm.connections.retain(|_| {
            lot = lot.rotate_right(1);
            lot & 1 == 1
        });
        let capacities: Vec<u64> = slow[..2 * members].iter().map(|it| it * 10_000_000).collect();
        let found = run(&network(&capacities), &swarm, seed);
        let mut reached = BTreeSet::from([0]);
        while swarm.connections.iter().any(|it| reached.contains(&it.from) && reached.insert(it.to)) {}
        for (member, finish) in found.finish.iter().enumerate() {
            prop_assert_eq!(finish.is_some(), reached.contains(&member));
        }
        let receivers = reached.len() as u64 - 1;
        prop_assert_eq!(found.blocks, receivers * blocks);
        prop_assert_eq!(found.carried, Bytes::new(2 * receivers * object));
        if receivers > 0 {
            prop_assert!((1.0..=members as f64).contains(&found.link_stress));
        }
        // Everything comes in by one link and, before anybody passes it on, leaves by one.
        for &member in reached.iter().filter(|member| **member > 0) {
            let bits = object as f64 * 8.0;
            let least = capacities[0].min(capacities[2 * member + 1]) as f64;
            let (found, least) = (seconds(found.finish[member]), bits / least);
            prop_assert!(found >= least - 2e-9, "{found} s, at least {least}");
        }
    }
}

fn topology(shape: &str) -> Topology {
    let spec: FabricSpec = toml::from_str(&format!("{shape}\nrate = '1 Gbit/s'\ndelay = '5 us'")).unwrap();
    spec.build(Bytes::new(1_500)).unwrap()
}

fn hosts(count: u32) -> Vec<HostId> {
    (0..count).map(HostId).collect()
}

#[test]
fn connections_go_both_ways_over_shortest_paths() {
    for (shape, count) in [
        ("kind = 'fat-tree'\nk = 4", 16),
        ("kind = 'bcube'\nn = 4\nlevels = 1", 16),
        ("kind = 'torus'\nn = 4\nd = 3", 64),
    ] {
        let topology = topology(shape);
        let members = hosts(count);
        for choice in [Choice::Lot, Choice::Near(Ties::Lot)] {
            let all = connections(&topology, &members, 10, choice, 3).unwrap();
            let pairs: BTreeSet<(usize, usize)> = all.iter().map(|it| (it.from, it.to)).collect();
            assert_eq!(pairs.len(), all.len(), "each once");
            assert!(pairs.iter().all(|(from, to)| pairs.contains(&(*to, *from))), "both ways");
            for member in 0..members.len() {
                let peers = pairs.iter().filter(|(from, _)| *from == member).count();
                assert!((10..members.len()).contains(&peers), "{shape}: {peers} peers");
            }
            for it in &all {
                let ends = [it.from, it.to].map(|member| topology.hosts()[members[member].index()]);
                let hops = Routes::towards(&topology, members[it.to], Metric::Hops).unwrap().hops(ends[0]);
                assert_eq!(hops, Some(it.path.links().len() as u32));
                let mut at = ends[0];
                for link in it.path.links() {
                    let link = topology.fabric().link(*link).unwrap();
                    assert_eq!(link.from, at);
                    at = link.to;
                }
                assert_eq!(at, ends[1]);
            }
        }
    }
}

/// Datacast §VI-C: "when the group size is less than 10, all the members are peers".
#[test]
fn in_a_small_group_all_are_peers_whatever_the_choice() {
    let topology = topology("kind = 'torus'\nn = 4\nd = 3");
    let pairs = |choice| -> Vec<(usize, usize)> {
        let all = connections(&topology, &hosts(9), 10, choice, 1).unwrap();
        all.iter().map(|it| (it.from, it.to)).collect()
    };
    assert_eq!(pairs(Choice::Lot), pairs(Choice::Near(Ties::Lot)));
    assert_eq!(pairs(Choice::Lot).len(), 9 * 8);
}

/// Two hosts of a rack are 2 links apart, of a pod 4, others 6: 3, 12 and 112 others at each distance.
#[test]
fn the_nearest_are_chosen_but_one_of_each_distance() {
    let topology = topology("kind = 'fat-tree'\nk = 8");
    let members = hosts(128);
    let path_lengths = |choice| -> Vec<usize> {
        let all = connections(&topology, &members, 10, choice, 5).unwrap();
        all.iter().filter(|it| it.to == 77).map(|it| it.path.links().len()).collect()
    };
    let near = path_lengths(Choice::Near(Ties::Lot));
    let count = |of: &[usize], length| of.iter().filter(|it| **it == length).count();
    assert_eq!(count(&near, 2), 3, "the whole rack");
    assert!(count(&near, 4) >= 6, "of ten three are in the rack and one is far");
    assert!(count(&near, 6) >= 1, "somebody in another pod");
    let far = path_lengths(Choice::Lot);
    assert!(count(&far, 6) > count(&far, 2) + count(&far, 4), "most hosts are in other pods: {far:?}");
    let mean = |of: &[usize]| of.iter().sum::<usize>() as f64 / of.len() as f64;
    assert!(mean(&near) < mean(&far));
}

#[test]
fn on_a_ring_the_ranges_of_distances_are_of_equal_width() {
    let topology = topology("kind = 'torus'\nn = 64\nd = 1");
    let all = connections(&topology, &hosts(64), 4, Choice::Near(Ties::Lot), 9).unwrap();
    // Distances to 32, two ranges of 16: the nearest of the farther one is 17 away, and three are among the nearest.
    let lengths: BTreeSet<usize> = all.iter().map(|it| it.path.links().len()).collect();
    assert_eq!(lengths, BTreeSet::from([1, 2, 17]));
}

#[test]
fn hosts_that_are_cut_off_or_unknown_are_nobodys_peers() {
    let mut topology = topology("kind = 'fat-tree'\nk = 4");
    let cable = topology.link_between("h5", "rack2").unwrap();
    topology.set_cable_down(cable, true);
    for choice in [Choice::Lot, Choice::Near(Ties::Lot)] {
        let all = connections(&topology, &hosts(16), 10, choice, 1).unwrap();
        assert!(all.iter().all(|it| it.from != 5 && it.to != 5 && it.path != Path::default()));
        assert!(connections(&topology, &[HostId(0), HostId(16)], 10, choice, 1).is_err());
    }
}

/// All sort one list: of equally near ones everybody takes the same, whereas lots spread them.
#[test]
fn by_number_the_same_far_member_is_everybodys_peer() {
    let topology = topology("kind = 'fat-tree'\nk = 8");
    let far_peers = |ties| -> BTreeSet<usize> {
        let all = connections(&topology, &hosts(128), 10, Choice::Near(ties), 5).unwrap();
        let far = all.iter().filter(|it| it.path.links().len() == 6 && it.from / 16 == 5);
        far.map(|it| it.to).collect()
    };
    assert_eq!(
        far_peers(Ties::Number),
        BTreeSet::from([0]),
        "host 0, of the first pod, for all of the sixth"
    );
    assert!(far_peers(Ties::Lot).len() > 8, "{:?}", far_peers(Ties::Lot));
}
