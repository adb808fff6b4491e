//! How a tree is walked by hosts alone.

use std::collections::BTreeSet;

use headwater_fabric::trees::{self, Group, Hop, Switches};
use headwater_fabric::{FabricSpec, HostId, LinkId, Topology};
use headwater_units::Bytes;

fn network(text: &str) -> Topology {
    let spec: FabricSpec = toml::from_str(text).unwrap();
    spec.build(Bytes::new(1500)).unwrap()
}

fn walked(topology: &Topology, receivers: &[u32], switches: Switches) -> Vec<Vec<Hop>> {
    let receivers: Vec<HostId> = receivers.iter().copied().map(HostId).collect();
    let group = Group::new(topology, HostId(0), &receivers).unwrap();
    let trees = trees::disjoint(topology, &group);
    trees.iter().map(|tree| trees::hops(topology, tree, switches)).collect()
}

fn pairs(hops: &[Hop]) -> Vec<(u32, u32)> {
    hops.iter().map(|hop| (hop.from.0, hop.to.0)).collect()
}

const SWITCH: &str = "kind = 'big-switch'\nhosts = 5\nrate = '1 Gbit/s'\ndelay = '1 us'";
const BCUBE: &str = "kind = 'bcube'\nn = 4\nlevels = 1\nrate = '1 Gbit/s'\ndelay = '1 us'";
const FAT_TREE: &str = "kind = 'fat-tree'\nk = 4\nrate = '1 Gbit/s'\ndelay = '1 us'";

#[test]
fn around_a_plain_switch_hosts_hand_on_in_a_chain_and_no_cable_is_used_twice() {
    for text in [SWITCH, FAT_TREE] {
        let topology = network(text);
        let walked = walked(&topology, &[1, 2, 3, 4], Switches::Plain);
        let [hops] = &walked[..] else { panic!("{} trees", walked.len()) };
        assert_eq!(pairs(hops), [(0, 1), (1, 2), (2, 3), (3, 4)]);
        assert_eq!(hops.last().unwrap().depth, 4);
        let links: Vec<LinkId> = hops.iter().flat_map(|hop| hop.links.clone()).collect();
        assert_eq!(links.iter().collect::<BTreeSet<_>>().len(), links.len(), "{text}");
    }
}

#[test]
fn around_a_switch_with_a_store_all_ask_the_same_host_by_one_branch() {
    let walked = walked(&network(SWITCH), &[1, 2, 3, 4], Switches::Stores);
    assert_eq!(pairs(&walked[0]), [(0, 1), (0, 2), (0, 3), (0, 4)]);
    assert!(walked[0].iter().all(|hop| (hop.branch, hop.depth) == (0, 1)));
}

#[test]
fn the_two_trees_of_a_bcube_go_by_different_cables_everywhere() {
    let topology = network(BCUBE);
    let everybody: Vec<u32> = (1..16).collect();
    let walked = walked(&topology, &everybody, Switches::Stores);
    assert_eq!(walked.len(), 2);
    for host in 1..16 {
        let came = |tree: &[Hop]| tree.iter().find(|hop| hop.to.0 == host).unwrap().to_port;
        assert_ne!(came(&walked[0]), came(&walked[1]), "host {host}");
    }
    for hops in &walked {
        let mut reached = BTreeSet::from([HostId(0)]);
        for hop in hops {
            assert!(reached.contains(&hop.from) && reached.insert(hop.to), "{hop:?}");
            let first = topology.fabric().link(hop.links[0]).unwrap();
            assert_eq!(topology.fabric().leaving(first.from)[hop.from_port], hop.links[0]);
            assert_eq!(hop.links.len(), 2, "one switch between neighbours");
        }
        assert_eq!(reached.len(), 16);
    }
}
