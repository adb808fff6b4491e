//! Routes are shortest, complete and in order, whatever is down; fat-trees have the paths that are known of them.

use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::{
    FabricError, FabricSpec, GraphHost, GraphLink, GraphSpec, HostId, LinkDelay, LinkId, LinkRate, Metric,
    Path, PointId, Routes, Topology,
};
use headwater_units::{BitRate, Bytes, Duration};
use proptest::prelude::*;

fn build(text: &str) -> Topology {
    let spec: FabricSpec = toml::from_str(text).unwrap();
    spec.build(Bytes::new(1_500)).unwrap()
}

fn fat_tree(k: u32) -> Topology {
    build(&format!("kind = 'fat-tree'\nk = {k}\nrate = '100 Gbit/s'\ndelay = '1 us'"))
}

fn ends(topology: &Topology, links: &[LinkId]) -> Vec<String> {
    let to = |link: &LinkId| topology.fabric().link(*link).unwrap().to;
    links.iter().map(|link| topology.name(to(link)).unwrap().to_owned()).collect()
}

#[test]
fn a_fat_tree_has_k_half_ways_up_and_one_down() {
    let topology = fat_tree(8);
    let routes = Routes::all(&topology, Metric::Hops).unwrap();
    let next = |at: &str, to: u32| ends(&topology, routes.next(topology.point(at).unwrap(), HostId(to)));
    assert_eq!(next("h0", 127), ["rack0"]);
    assert_eq!(next("rack0", 127), ["agg0.0", "agg0.1", "agg0.2", "agg0.3"]);
    assert_eq!(next("agg0.1", 127), ["core4", "core5", "core6", "core7"]);
    assert_eq!(next("core5", 127), ["agg7.1"]);
    assert_eq!(next("agg7.1", 127), ["rack31"]);
    assert_eq!(next("rack31", 127), ["h127"]);
    assert_eq!(next("h127", 127), [""; 0]);
    assert_eq!(next("rack0", 4), ["agg0.0", "agg0.1", "agg0.2", "agg0.3"]);
    assert_eq!(next("agg0.2", 4), ["rack1"]);
    assert_eq!(next("rack0", 3), ["h3"]);
    // (k/2)^2 paths between pods, k/2 within one, one within a rack.
    let paths = |to| routes.paths(&topology, HostId(0), HostId(to), 100).len();
    assert_eq!((paths(127), paths(4), paths(1), paths(0)), (16, 4, 1, 1));
    assert_eq!(routes.paths(&topology, HostId(0), HostId(127), 5).len(), 5);
    assert_eq!(routes.paths(&topology, HostId(0), HostId(127), 0), []);
    assert_eq!(routes.paths(&topology, HostId(0), HostId(128), 5), []);
    assert_eq!(routes.next(PointId(10_000), HostId(0)), []);
    assert_eq!(routes.next(PointId(0), HostId(128)), []);
    let error = Routes::towards(&topology, HostId(128), Metric::Hops).unwrap_err();
    assert_eq!(error, FabricError::UnknownHost { host: HostId(128), hosts: 128 });
}

#[test]
fn torus_and_bcube_paths_pass_through_hosts() {
    // Two steps in each of three dimensions of size 4: 6! / (2! 2! 2!) orders, times two directions per dimension.
    let torus = build("kind = 'torus'\nn = 4\nd = 3\nrate = '1Gbit/s'\ndelay = '1 us'");
    assert_eq!(torus.paths(HostId(0), HostId(2 + 8 + 32), 10_000).len(), 90 * 8);
    assert_eq!(torus.paths(HostId(0), HostId(3), 10_000).len(), 1);
    // BCube corrects its digits in any order: (k+1)! paths.
    let bcube = build("kind = 'bcube'\nn = 4\nlevels = 2\nrate = '1Gbit/s'\ndelay = '1 us'");
    assert_eq!(bcube.paths(HostId(0), HostId(63), 100).len(), 6);
    assert_eq!(bcube.paths(HostId(0), HostId(60), 100).len(), 2);
    assert_eq!(bcube.paths(HostId(0), HostId(60), 100)[0].links().len(), 4);
}

/// Job A1 of the simulator benchmark: known hops (2,056,416 = 1382 packets x 2 directions x 744 links) and known paths.
#[test]
fn d_mod_k_gives_every_flow_of_the_permutation_its_own_links() {
    let topology = fat_tree(8);
    let routes = Routes::d_mod_k(&topology).unwrap();
    let equal = Routes::all(&topology, Metric::Hops).unwrap();
    let mut flows: BTreeMap<LinkId, u32> = BTreeMap::new();
    let (mut hops, mut through_core) = (0, BTreeMap::new());
    for from in 0..128 {
        let to = (37 * from + 53) % 128;
        let [path] = &routes.paths(&topology, HostId(from), HostId(to), 2)[..] else { panic!("one path") };
        assert!(equal.paths(&topology, HostId(from), HostId(to), 16).contains(path), "it is a shortest one");
        assert_eq!(routes.path(&topology, HostId(from), HostId(to), |_, _| 7).as_ref(), Some(path));
        hops += path.links().len();
        for link in path.links() {
            *flows.entry(*link).or_default() += 1;
        }
        let names = ends(&topology, path.links());
        if let Some(core) = names.iter().find(|name| name.starts_with("core")) {
            *through_core.entry(core.clone()).or_insert(0) += 1;
            // Slot of the host in its rack, then place of the rack in its pod.
            let (slot, rack) = (to % 4, to / 4 % 4);
            assert_eq!(*core, format!("core{}", slot * 4 + rack));
        }
    }
    assert_eq!(hops, 744);
    let most = flows.values().max().copied();
    assert_eq!(most, Some(1), "no two flows share a link");
    // 116 of the 128 flows change pods. Eight to a core, but four where the other four stay in their pod.
    assert_eq!(through_core.values().sum::<u32>(), 116);
    let four: Vec<&str> =
        through_core.iter().filter(|(_, flows)| **flows == 4).map(|(core, _)| core.as_str()).collect();
    assert_eq!(four, ["core3", "core6", "core8"]);
    assert_eq!(through_core.values().filter(|flows| **flows == 8).count(), 13);
}

#[test]
fn d_mod_k_goes_round_what_is_down_and_is_for_fat_trees_only() {
    let mut topology = fat_tree(4);
    let path = |topology: &Topology| {
        let routes = Routes::d_mod_k(topology).unwrap();
        let path = routes.path(topology, HostId(0), HostId(15), |_, _| 0);
        path.map(|path| ends(topology, path.links()))
    };
    let healthy = ["rack0", "agg0.1", "core3", "agg3.1", "rack7", "h15"].map(str::to_owned).to_vec();
    assert_eq!(path(&topology), Some(healthy));
    let cable = topology.link_between("core3", "agg3.1").unwrap();
    topology.set_cable_down(cable, true);
    let round = ["rack0", "agg0.1", "core2", "agg3.1", "rack7", "h15"].map(str::to_owned).to_vec();
    assert_eq!(path(&topology), Some(round));
    let cable = topology.link_between("h15", "rack7").unwrap();
    topology.set_cable_down(cable, true);
    assert_eq!(path(&topology), None);
    let star = build("kind = 'big-switch'\nhosts = 4\nrate = '1Gbit/s'\ndelay = '1 us'");
    assert_eq!(Routes::d_mod_k(&star), Err(FabricError::NotFatTree));
}

#[test]
fn faults_cut_routes_until_they_are_mended() {
    let mut topology = build(
        "kind = 'leaf-spine'\nleaves = 2\nhosts_per_leaf = 1\nspines = 2\nrate = '1Gbit/s'\ndelay = '1 us'",
    );
    let (a, b) = (HostId(0), HostId(1));
    let paths = |topology: &Topology| topology.paths(a, b, 9).len();
    assert_eq!((paths(&topology), topology.diameter()), (2, Some(4)));
    let up = topology.link_between("leaf0", "spine0").unwrap();
    assert!(topology.set_down(up, true) && topology.is_down(up));
    assert_eq!((paths(&topology), topology.paths(b, a, 9).len()), (1, 2), "the other direction still works");
    let other = topology.link_between("spine1", "leaf1").unwrap();
    assert!(topology.set_cable_down(other, true));
    assert!(!topology.connected(a, b) && topology.connected(b, a));
    assert_eq!((paths(&topology), topology.diameter()), (0, None));
    assert_eq!(topology.unloaded_rtt(b, a, Bytes::new(1), Bytes::new(1)), None, "nothing comes back");
    let routes = Routes::all(&topology, Metric::Hops).unwrap();
    assert_eq!(routes.path(&topology, a, b, |_, _| 0), None);
    assert!(topology.set_down(up, false) && topology.set_cable_down(other, false));
    assert_eq!(topology.diameter(), Some(4));
    assert!(topology.connected(a, a) && !topology.connected(a, HostId(2)));
    assert!(!topology.set_down(LinkId(999), true));
    assert!(topology.set_capacity(up, BitRate::new(5)));
    assert_eq!(topology.fabric().link(up).unwrap().capacity, Some(BitRate::new(5)));
}

#[test]
fn least_delay_and_fewest_links_may_be_different_paths() {
    // Sites 1 and 5 have a direct link of 51.17 ms; by way of 4 it is 14.412 + 37.737 = 52.149, so direct it is. From
    // 0 to 5 the two links by 3 take 24.862 + 38.976 = 63.838, those by 1 take 12.654 + 51.17 = 63.824.
    let topology = build("kind = 'b4'\nrate = '1Gbit/s'\ndelays = 'traced'");
    let route = |metric| {
        let routes = Routes::all(&topology, metric).unwrap();
        let paths = routes.paths(&topology, HostId(0), HostId(5), 9);
        paths.iter().map(|path| ends(&topology, &path.links()[1..2]).remove(0)).collect::<Vec<_>>()
    };
    assert_eq!(route(Metric::Hops), ["site1", "site3", "site4"]);
    assert_eq!(route(Metric::Delay), ["site1"]);
}

#[test]
fn a_table_that_would_not_fit_is_refused() {
    let topology = build("kind = 'big-switch'\nhosts = 20000\nrate = '1Gbit/s'\ndelay = '1 us'");
    let error = Routes::all(&topology, Metric::Hops).unwrap_err();
    assert!(matches!(error, FabricError::TooManyRoutes { points: 20_001, hosts: 20_000, .. }), "{error}");
    let towards = Routes::towards(&topology, HostId(9), Metric::Hops).unwrap();
    assert_eq!((towards.to(), towards.hops(PointId(19_999))), (HostId(9), Some(2)));
    assert_eq!(towards.links(PointId(20_001)), []);
}

/// Large enough to fail if a search were to walk through the network link by link per pair.
#[test]
fn large_networks_are_routed() {
    let topology = fat_tree(16);
    let routes = Routes::all(&topology, Metric::Hops).unwrap();
    assert_eq!(routes.paths(&topology, HostId(0), HostId(1_023), 1_000).len(), 64);
    let torus = build("kind = 'torus'\nn = 16\nd = 3\nrate = '1Gbit/s'\ndelay = '5 us'");
    for to in [0, 777, 4_095] {
        let towards = Routes::towards(&torus, HostId(to), Metric::Hops).unwrap();
        let far = torus.hosts().iter().map(|point| towards.hops(*point).unwrap()).max();
        assert_eq!(far, Some(24));
    }
}

/// A cable between two of 8 points (0 to 3 are hosts), its delay, and which of its directions are down.
type Cable = (usize, usize, u64, bool, bool);

fn random_graph(cables: &[Cable], hosts_forward: bool) -> Topology {
    let name = |point: usize| format!("p{point}");
    let links = cables.iter().map(|&(a, b, delay, ..)| GraphLink {
        a: name(a),
        b: name(b),
        rate: LinkRate::Bits(BitRate::new(1_000_000)),
        delay: LinkDelay(Duration::from_micros(delay)),
    });
    let spec = FabricSpec::Graph(GraphSpec {
        switches: (4..8).map(name).collect(),
        hosts: (0..4).map(|host| GraphHost { name: name(host), on: None }).collect(),
        links: links.collect(),
        hosts_forward,
    });
    let mut topology = spec.build(Bytes::new(1)).unwrap();
    for (at, &(.., there, back)) in (0u32..).zip(cables) {
        topology.set_down(LinkId(2 * at), there);
        topology.set_down(LinkId(2 * at + 1), back);
    }
    topology
}

/// Every path without a point twice, tried one by one: (delay in ns, links).
fn all_paths(cables: &[Cable], hosts_forward: bool, from: usize, to: usize) -> Vec<(u64, Vec<LinkId>)> {
    fn walk(
        links: &[(usize, usize, u64)],
        passes: &dyn Fn(usize) -> bool,
        to: usize,
        at: usize,
        (delay, path, seen): &mut (u64, Vec<LinkId>, Vec<usize>),
        found: &mut Vec<(u64, Vec<LinkId>)>,
    ) {
        if at == to {
            found.push((*delay, path.clone()));
            return;
        }
        if !path.is_empty() && !passes(at) {
            return;
        }
        for (number, &(a, b, cost)) in (0..).zip(links) {
            if a == at && !seen.contains(&b) {
                path.push(LinkId(number));
                seen.push(b);
                let mut so_far = (*delay + cost, std::mem::take(path), std::mem::take(seen));
                walk(links, passes, to, b, &mut so_far, found);
                (*path, *seen) = (so_far.1, so_far.2);
                path.pop();
                seen.pop();
            }
        }
    }
    // A link that is down keeps its number and leads from nowhere.
    let link = |from, to, delay: u64, down| (if down { usize::MAX } else { from }, to, delay * 1_000);
    let links: Vec<_> = cables
        .iter()
        .flat_map(|&(a, b, delay, there, back)| [link(a, b, delay, there), link(b, a, delay, back)])
        .collect();
    let mut found = Vec::new();
    walk(&links, &|at| at >= 4 || hosts_forward, to, from, &mut (0, Vec::new(), vec![from]), &mut found);
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn routes_are_all_the_shortest_paths_and_nothing_else(
        cables in prop::collection::vec(
            (0usize..8, 0usize..8, 0u64..3, prop::bool::weighted(0.15), prop::bool::weighted(0.15)), 0..13),
        hosts_forward: bool,
    ) {
        let cables: Vec<Cable> = cables.into_iter().filter(|cable| cable.0 != cable.1).collect();
        let topology = random_graph(&cables, hosts_forward);
        let mut longest = Some(0);
        for metric in [Metric::Hops, Metric::Delay] {
            let routes = Routes::all(&topology, metric).unwrap();
            for to in 0..4u32 {
                let towards = Routes::towards(&topology, HostId(to), metric).unwrap();
                for from in 0..8u32 {
                    let every = all_paths(&cables, hosts_forward, from as usize, to as usize);
                    let cost = |(delay, path): &(u64, Vec<LinkId>)| match metric {
                        Metric::Hops => (0, path.len()),
                        Metric::Delay => (*delay, path.len()),
                    };
                    let best = every.iter().map(cost).min();
                    let shortest: BTreeSet<Path> = every
                        .iter()
                        .filter(|path| Some(cost(path)) == best)
                        .map(|(_, path)| path.iter().copied().collect())
                        .collect();
                    let found = towards.paths(&topology, PointId(from), usize::MAX);
                    prop_assert!(found.is_sorted_by(|a, b| a < b), "ascending, none twice");
                    prop_assert_eq!(&found, &shortest.iter().cloned().collect::<Vec<_>>());
                    prop_assert_eq!(towards.hops(PointId(from)), best.map(|best| best.1 as u32));
                    prop_assert_eq!(towards.links(PointId(from)), routes.next(PointId(from), HostId(to)));
                    prop_assert!(towards.links(PointId(from)).is_sorted());
                    let firsts: BTreeSet<LinkId> =
                        shortest.iter().filter_map(|path| path.links().first().copied()).collect();
                    prop_assert!(towards.links(PointId(from)).iter().copied().eq(firsts));
                    if from < 4 {
                        let host = HostId(from);
                        prop_assert_eq!(&routes.paths(&topology, host, HostId(to), usize::MAX), &found);
                        prop_assert_eq!(topology.connected(host, HostId(to)), best.is_some());
                        let last = routes.path(&topology, host, HostId(to), |_, links| links.len() - 1);
                        prop_assert_eq!(last.as_ref(), found.last());
                        if metric == Metric::Hops {
                            longest = longest.zip(best).map(|(longest, best)| longest.max(best.1 as u32));
                            prop_assert_eq!(&topology.paths(host, HostId(to), usize::MAX), &found);
                        }
                    }
                }
            }
        }
        prop_assert_eq!(topology.diameter(), longest);
    }
}
