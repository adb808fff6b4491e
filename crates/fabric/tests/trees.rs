//! Trees of a group share no link, reach every receiver, are as many as published, and survive what fails.

use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::trees::{self, Group, SteinerTree};
use headwater_fabric::{FabricError, FabricSpec, HostId, LinkId, PointId, Topology};
use headwater_units::Bytes;
use proptest::prelude::*;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

fn build(shape: &str) -> Topology {
    let rates = if shape.contains("graph") { "" } else { "\nrate = '1 Gbit/s'\ndelay = '5 us'" };
    let spec: FabricSpec = toml::from_str(&format!("{shape}{rates}")).unwrap();
    spec.build(Bytes::new(1_500)).unwrap()
}

fn group(topology: &Topology, source: u32, receivers: &[u32]) -> Group {
    let receivers: Vec<HostId> = receivers.iter().copied().map(HostId).collect();
    Group::new(topology, HostId(source), &receivers).unwrap()
}

/// The source and all other hosts.
fn everyone(topology: &Topology, source: u32) -> Group {
    let others: Vec<u32> = (0..topology.hosts().len() as u32).filter(|host| *host != source).collect();
    group(topology, source, &others)
}

fn depth(trees: &[SteinerTree]) -> u32 {
    trees.iter().map(SteinerTree::depth).max().unwrap_or(0)
}

/// Checks what must hold of all trees of a group, whatever failed. Looks at the links alone, not at what the tree says
/// of itself.
fn assert_sound(topology: &Topology, group: &Group, trees: &[SteinerTree]) {
    let root = topology.point_of(group.source()).unwrap();
    let receivers: BTreeSet<PointId> = group.receivers().map(|it| topology.point_of(it).unwrap()).collect();
    let mut taken = BTreeSet::new();
    for tree in trees {
        let mut depths = BTreeMap::from([(root, 0)]);
        let mut inside = BTreeSet::new();
        for it in tree.links() {
            let link = topology.fabric().link(it.link).unwrap();
            assert!(taken.insert(it.link), "link {} is of two trees", it.link);
            assert!(!topology.is_down(it.link), "link {} is down", it.link);
            assert!(link.from == root || topology.forwards(link.from), "point {} forwards", link.from);
            assert_eq!((it.from, it.to), (link.from, link.to));
            assert_eq!(Some(&(it.depth - 1)), depths.get(&link.from), "a parent stands before its children");
            assert_eq!(depths.insert(link.to, it.depth), None, "point {} is reached twice", link.to);
            inside.insert(link.from);
        }
        assert!(receivers.iter().all(|point| depths.contains_key(point)), "a receiver is left out");
        let ends = depths.keys().filter(|point| !inside.contains(point));
        assert!(ends.into_iter().all(|point| receivers.contains(point)), "what ends is a receiver");
        assert_eq!(tree.depth(), depths.into_values().max().unwrap());
    }
    let numbers: Vec<u32> = trees.iter().map(SteinerTree::number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert_eq!(trees::link_stress(trees), usize::from(!trees.is_empty()));
    assert!(trees.len() <= trees::bound(topology, group));
    assert_eq!(trees.is_empty(), !trees::unreachable(topology, group).is_empty());
}

/// BCube(n,k) has k + 1, a d-dimensional torus 2 d, a fat-tree one (Datacast §VI-C), from every source to all hosts.
#[test]
fn networks_have_their_published_numbers_of_trees() {
    for (shape, count, deepest) in [
        ("kind = 'bcube'\nn = 4\nlevels = 1", 2, 6),
        ("kind = 'bcube'\nn = 3\nlevels = 2", 3, 8),
        ("kind = 'bcube'\nn = 2\nlevels = 3", 4, 10),
        ("kind = 'bcube'\nn = 5\nlevels = 0", 1, 2),
        ("kind = 'torus'\nn = 5\nd = 1", 2, 4),
        ("kind = 'torus'\nn = 4\nd = 2", 4, 5),
        ("kind = 'torus'\nn = 5\nd = 2", 4, 6),
        ("kind = 'torus'\nn = 3\nd = 3", 6, 4),
        ("kind = 'torus'\nn = 4\nd = 3", 6, 7),
        ("kind = 'torus'\nn = 2\nd = 4", 4, 5),
        ("kind = 'fat-tree'\nk = 4", 1, 6),
        ("kind = 'leaf-spine'\nleaves = 3\nhosts_per_leaf = 3\nspines = 2", 1, 4),
        ("kind = 'big-switch'\nhosts = 7", 1, 2),
    ] {
        let topology = build(shape);
        for source in 0..topology.hosts().len() as u32 {
            let group = everyone(&topology, source);
            let trees = trees::disjoint(&topology, &group);
            assert_sound(&topology, &group, &trees);
            assert_eq!((trees.len(), trees::bound(&topology, &group)), (count, count), "{shape}");
            assert_eq!(depth(&trees), deepest, "{shape} from {source}");
        }
    }
}

/// Datacast §VI-A: the generic algorithm's trees are a thousand links deep and more where the diameter is 8.
#[test]
fn trees_of_the_papers_networks_are_about_as_deep_as_the_networks_are_wide() {
    for (shape, source, count, deepest) in [
        ("kind = 'fat-tree'\nk = 24", 17, 1, 6),
        ("kind = 'bcube'\nn = 8\nlevels = 3", 2_718, 4, 10),
        ("kind = 'torus'\nn = 16\nd = 3", 3_141, 6, 31),
    ] {
        let topology = build(shape);
        let group = everyone(&topology, source);
        let trees = trees::disjoint(&topology, &group);
        assert_sound(&topology, &group, &trees);
        assert_eq!((trees.len(), depth(&trees)), (count, deepest), "{shape}");
    }
}

#[test]
fn a_tree_has_no_more_than_the_ways_to_its_receivers() {
    let topology = build("kind = 'bcube'\nn = 4\nlevels = 1");
    // Datacast Fig. 6: from 00 to 02, 10, 21, 23, 31 and 33, which are hosts 2, 4, 9, 11, 13 and 15.
    let group = group(&topology, 0, &[2, 4, 9, 11, 13, 15]);
    let trees = trees::disjoint(&topology, &group);
    assert_sound(&topology, &group, &trees);
    assert_eq!(trees.len(), 2);
    for tree in &trees {
        assert!(tree.links().len() < 30, "16 hosts and 8 switches would have up to 23 links");
        for receiver in group.receivers() {
            let path = tree.path_to(topology.point_of(receiver).unwrap()).unwrap();
            assert_eq!(path[0].from, tree.source());
            assert!(path.windows(2).all(|pair| pair[0].to == pair[1].from));
            assert_eq!(path.last(), tree.came_by(topology.point_of(receiver).unwrap()));
        }
        assert_eq!(tree.path_to(tree.source()), Some(Vec::new()));
        let children = |point: &PointId| tree.links().iter().filter(|it| it.from == *point).count();
        let points = (0..topology.fabric().point_count() as u32).map(PointId);
        let branching: Vec<PointId> = points.filter(|point| children(point) > 1).collect();
        assert_eq!(tree.branching_nodes(), branching);
        assert!(!branching.is_empty(), "six receivers on at most two first links");
    }
    let outside = (0..24).map(PointId).find(|point| trees[0].path_to(*point).is_none());
    assert!(outside.is_some(), "some point is on no path to a receiver");
}

#[test]
fn a_tree_that_is_not_hit_stays_as_it_is() {
    let mut topology = build("kind = 'torus'\nn = 5\nd = 3");
    let group = group(&topology, 7, &[3, 50, 99, 124]);
    let before = trees::disjoint(&topology, &group);
    assert_eq!(before.len(), 6);
    let hit = before[4].links()[1].link;
    topology.set_down(hit, true);
    let after = trees::repair(&topology, &group, before.clone());
    assert_sound(&topology, &group, &after.trees);
    assert_eq!((after.rebuilt, after.given_up), (vec![4], vec![]));
    for number in [0, 1, 2, 3, 5] {
        assert_eq!(after.trees[number], before[number]);
    }
    assert_ne!(after.trees[4], before[4]);
    // Mended, nothing changes: no tree is broken.
    topology.set_down(hit, false);
    let mended = trees::repair(&topology, &group, after.trees.clone());
    assert_eq!((&mended.trees, mended.rebuilt), (&after.trees, vec![]));
}

#[test]
fn a_tree_that_cannot_be_mended_is_given_up_and_comes_back_with_its_cable() {
    let mut topology = build("kind = 'bcube'\nn = 4\nlevels = 1");
    let group = group(&topology, 5, &[0, 10, 15]);
    let before = trees::disjoint(&topology, &group);
    let into = topology.fabric().entering(topology.point("h10").unwrap())[1];
    topology.set_cable_down(into, true);
    let after = trees::repair(&topology, &group, before.clone());
    assert_sound(&topology, &group, &after.trees);
    assert_eq!((after.trees.len(), after.given_up.len()), (1, 1));
    topology.set_cable_down(into, false);
    let mended = trees::repair(&topology, &group, after.trees);
    assert_sound(&topology, &group, &mended.trees);
    assert_eq!((mended.trees.len(), mended.rebuilt, mended.given_up), (2, after.given_up, vec![]));
}

#[test]
fn receivers_out_of_reach_are_named_and_cost_every_tree() {
    let mut topology = build("kind = 'fat-tree'\nk = 4");
    let group = group(&topology, 0, &[5, 9, 15]);
    topology.set_cable_down(topology.link_between("rack4", "h9").unwrap(), true);
    assert_eq!(trees::unreachable(&topology, &group), [HostId(9)]);
    assert_eq!((trees::disjoint(&topology, &group), trees::bound(&topology, &group)), (vec![], 0));
    // A cable is down in both directions, a link in one: the path to h9 is there again.
    topology.set_down(topology.link_between("rack4", "h9").unwrap(), false);
    assert_eq!(trees::unreachable(&topology, &group), []);
    assert_sound(&topology, &group, &trees::disjoint(&topology, &group));
}

/// Hosts with several ports on switches that nobody described by rule: as many searches as there are ports.
#[test]
fn networks_without_a_rule_have_what_searches_find() {
    let cables: Vec<String> = (0..4)
        .flat_map(|host| {
            ["left", "right"].map(|switch| {
                format!("{{ a = 'h{host}', b = '{switch}', rate = '1 Gbit/s', delay = '1 us' }}")
            })
        })
        .collect();
    let topology = build(&format!(
        "kind = 'graph'\nswitches = ['left', 'right']\nhosts = ['h0', 'h1', 'h2', 'h3']\nlinks = [{}]",
        cables.join(", ")
    ));
    let group = everyone(&topology, 2);
    let trees = trees::disjoint(&topology, &group);
    assert_sound(&topology, &group, &trees);
    assert_eq!((trees.len(), depth(&trees)), (2, 2));
}

#[test]
fn no_tree_passes_through_a_host_that_does_not_forward() {
    let graph = |forward: bool| {
        build(&format!(
            "kind = 'graph'\nswitches = ['left', 'right']\nhosts_forward = {forward}\n\
             hosts = ['a on left, 1 Gbit/s, 1 us', 'both on left, 1 Gbit/s, 1 us', 'c on right, 1 Gbit/s, 1 us']\n\
             links = [{{ a = 'both', b = 'right', rate = '1 Gbit/s', delay = '1 us' }}]"
        ))
    };
    for (forward, count) in [(false, 0), (true, 1)] {
        let topology = graph(forward);
        let group = group(&topology, 0, &[2]);
        assert_eq!(trees::disjoint(&topology, &group).len(), count);
        assert_eq!(trees::unreachable(&topology, &group).len(), 1 - count);
        // A source that does not forward sends all the same, and a receiver receives.
        assert_eq!(trees::disjoint(&topology, &everyone(&topology, 1)).len(), 1);
    }
}

#[test]
fn groups_that_make_no_sense_are_refused() {
    let topology = build("kind = 'big-switch'\nhosts = 3");
    let new = |source, receivers: &[u32]| {
        let receivers: Vec<HostId> = receivers.iter().copied().map(HostId).collect();
        Group::new(&topology, HostId(source), &receivers)
    };
    assert_eq!(new(0, &[]), Err(FabricError::NoReceivers { host: HostId(0) }));
    assert_eq!(new(1, &[2, 1]), Err(FabricError::ReceivesItself { host: HostId(1) }));
    assert_eq!(new(1, &[2, 3]), Err(FabricError::UnknownHost { host: HostId(3), hosts: 3 }));
    assert_eq!(new(9, &[2]), Err(FabricError::UnknownHost { host: HostId(9), hosts: 3 }));
    let group = new(1, &[2, 0, 2]).unwrap();
    assert_eq!(group.receivers().collect::<Vec<_>>(), [HostId(0), HostId(2)]);
}

/// Datacast §VI-A2 has 0.8 % fewer than the bound on larger networks; here a search that took whatever links the source has left
/// would be short of it by more.
#[test]
fn in_broken_networks_trees_are_nearly_as_many_as_there_can_be() {
    let (mut found, mut most) = (0, 0);
    for seed in 0..150 {
        for shape in ["kind = 'bcube'\nn = 4\nlevels = 2", "kind = 'torus'\nn = 4\nd = 3"] {
            let mut topology = build(shape);
            let mut draw = ChaCha12Rng::seed_from_u64(seed);
            for cable in 0..topology.fabric().link_count() as u32 / 2 {
                if draw.next_u32() % 100 < 5 {
                    topology.set_cable_down(LinkId(2 * cable), true);
                }
            }
            let mut hosts: Vec<u32> = (0..12).map(|_| draw.next_u32() % 64).collect();
            let source = hosts.remove(0);
            hosts.retain(|host| *host != source);
            let group = group(&topology, source, &hosts);
            let trees = trees::disjoint(&topology, &group);
            assert_sound(&topology, &group, &trees);
            found += trees.len();
            most += trees::bound(&topology, &group);
        }
    }
    assert!(found as f64 >= 0.995 * most as f64, "{found} of {most}");
}

const SHAPES: [&str; 9] = [
    "kind = 'bcube'\nn = 4\nlevels = 1",
    "kind = 'bcube'\nn = 3\nlevels = 2",
    "kind = 'bcube'\nn = 2\nlevels = 4",
    "kind = 'torus'\nn = 4\nd = 2",
    "kind = 'torus'\nn = 3\nd = 3",
    "kind = 'torus'\nn = 2\nd = 4",
    "kind = 'fat-tree'\nk = 4",
    "kind = 'leaf-spine'\nleaves = 4\nhosts_per_leaf = 4\nspines = 3",
    "kind = 'b4'\nform = '12'",
];

/// A network, a source, receivers, and numbers that choose what fails.
fn cases() -> impl Strategy<Value = (Topology, Group, Vec<u32>)> {
    let numbers = (0..SHAPES.len(), any::<u32>(), prop::collection::vec(any::<u32>(), 1..12));
    (numbers, prop::collection::vec(any::<u32>(), 0..16)).prop_map(
        |((shape, source, receivers), failures)| {
            let topology = build(SHAPES[shape]);
            let hosts = topology.hosts().len() as u32;
            let source = source % hosts;
            let mut receivers: Vec<u32> =
                receivers.iter().map(|it| it % hosts).filter(|it| *it != source).collect();
            if receivers.is_empty() {
                receivers.push((source + 1) % hosts);
            }
            let group = group(&topology, source, &receivers);
            (topology, group, failures)
        },
    )
}

proptest! {
    /// Never fewer than one tree if the receivers are connected; always sound, and the same ones every time.
    #[test]
    fn whatever_fails_trees_are_sound_and_one_is_left_while_there_is_a_way(
        (mut topology, group, failures) in cases(), in_use in any::<bool>(), one_way in any::<bool>(),
    ) {
        let mut trees = trees::disjoint(&topology, &group);
        assert_sound(&topology, &group, &trees);
        let fresh = trees.clone();
        for failure in failures {
            let used: Vec<LinkId> = trees.iter().flat_map(SteinerTree::links).map(|it| it.link).collect();
            let links = topology.fabric().link_count();
            let link = match in_use && !used.is_empty() {
                true => used[failure as usize % used.len()],
                false => LinkId(failure % links as u32),
            };
            if one_way { topology.set_down(link, true); } else { topology.set_cable_down(link, true); }
            let before = trees.clone();
            let repaired = trees::repair(&topology, &group, trees);
            assert_sound(&topology, &group, &repaired.trees);
            for tree in &before {
                let numbered = |list: &[SteinerTree]| list.iter().find(|it| it.number() == tree.number()).cloned();
                let changed = numbered(&repaired.trees).as_ref() != Some(tree);
                let told = [&repaired.rebuilt, &repaired.given_up].iter().any(|list| list.contains(&tree.number()));
                prop_assert_eq!(changed, told, "tree {}", tree.number());
            }
            trees = repaired.trees;
        }
        let now = trees::disjoint(&topology, &group);
        assert_sound(&topology, &group, &now);
        prop_assert_eq!(&now, &trees::disjoint(&topology, &group));
        prop_assert_eq!(&now, &trees::disjoint(&topology.clone(), &group));
        // Where a rule gives the trees, all failures at once are what they are to trees in use.
        if fresh.len() > 1 {
            prop_assert_eq!(trees::repair(&topology, &group, fresh).trees, now);
        }
    }

    #[test]
    fn while_nothing_fails_there_are_as_many_trees_as_there_can_be((topology, group, _) in cases()) {
        prop_assert_eq!(trees::disjoint(&topology, &group).len(), trees::bound(&topology, &group));
    }
}
