//! A group's frames come to every member once.

use headwater_fabric::{HostId, LinkId, Topology};
use headwater_switch::{Choice, LinkChange};
use headwater_testbed::soft_switch::DropReason;
use headwater_units::Time;
use proptest::prelude::*;

use super::common::{LATE, Net, PARALLEL, TestFrame, delivered, drops, fabric, ns, topology, unbounded};

const SHAPES: [&str; 6] = [
    "kind = 'big-switch'\nhosts = 5",
    "kind = 'leaf-spine'\nleaves = 3\nspines = 3\nhosts_per_leaf = 3",
    "kind = 'fat-tree'\nk = 4",
    "kind = 'dumbbell'\nleft = 3\nright = 3",
    "kind = 'chain'\nhosts = [2, 0, 1, 3]\nrates = ['1 Gbit/s', '1 Gbit/s', '1 Gbit/s']\ndelays = ['1 us', '1 us', '1 us']\nedge_rate = '1 Gbit/s'",
    PARALLEL,
];

fn shape(number: usize) -> Topology {
    let spec = SHAPES[number];
    topology(&if number >= 4 {
        spec.to_owned()
    } else {
        format!("{spec}\nrate = '1 Gbit/s'\ndelay = '1 us'")
    })
}

/// Hosts that get a frame for group 7 that a host sends; each once for every copy.
fn reached(net: &mut Net, at: Time, source: u32) -> Vec<u32> {
    net.inject(at, HostId(source), TestFrame::for_group(1, 7));
    let mut hosts: Vec<u32> = delivered(net, LATE).into_iter().map(|it| it.1).collect();
    hosts.sort_unstable();
    hosts
}

fn set(net: &mut Net, members: &[u32]) {
    net.set_group(ns(0), 7, &members.iter().map(|&host| HostId(host)).collect::<Vec<_>>());
}

#[test]
fn copies_leave_every_switch_of_the_tree_at_once() {
    let mut net = fabric(&shape(3), &unbounded(), Choice::First);
    set(&mut net, &[0, 1, 3, 4]);
    net.inject(ns(0), HostId(2), TestFrame::for_group(1, 7));
    // 1000 B: 800 ns on the host's line of 10 Gbit/s, 8 us between the switches.
    let left = 800 + 800;
    let right = 800 + 8_000 + 1_000 + 800;
    assert_eq!(delivered(&mut net, LATE), [(left, 0, 1), (left, 1, 1), (right, 3, 1), (right, 4, 1)]);
    assert_eq!(net.counts().copied.frames, 3);
}

#[test]
fn a_group_of_nobody_else_and_one_that_nobody_has_set_are_unroutable() {
    let topology = shape(0);
    let mut net = fabric(&topology, &unbounded(), Choice::First);
    let uplink = topology.link_between("h2", "switch");
    net.inject(ns(0), HostId(2), TestFrame::for_group(1, 7));
    assert_eq!(drops(&mut net, LATE), [(uplink, DropReason::Unroutable, 1)]);
    set(&mut net, &[2]);
    net.inject(LATE, HostId(2), TestFrame::for_group(2, 7));
    assert_eq!(drops(&mut net, Time::MAX), [(uplink, DropReason::Unroutable, 2)]);
}

proptest! {
    /// From any host, member or not.
    #[test]
    fn each_member_gets_one_copy_and_the_source_none(
        number in 0..SHAPES.len(),
        members in prop::collection::vec(0u32..20, 0..20),
        source in any::<prop::sample::Index>(),
    ) {
        let topology = shape(number);
        let hosts = topology.hosts().len() as u32;
        let source = source.index(hosts as usize) as u32;
        let mut net = fabric(&topology, &unbounded(), Choice::Spray { seed: 3 });
        // Another group, and members that it has no longer or that are not there, make no difference.
        net.set_group(ns(0), 8, &[HostId(0), HostId(1)]);
        set(&mut net, &(0..hosts).collect::<Vec<_>>());
        set(&mut net, &members);
        let mut expected: Vec<u32> = members.into_iter().filter(|&it| it < hosts && it != source).collect();
        expected.sort_unstable();
        expected.dedup();
        if expected.is_empty() {
            net.inject(ns(0), HostId(source), TestFrame::for_group(1, 7));
            let gone = drops(&mut net, LATE);
            prop_assert!(matches!(gone[..], [(_, DropReason::Unroutable, 1)]), "{:?}", gone);
        } else {
            prop_assert_eq!(reached(&mut net, ns(0), source), expected);
            prop_assert_eq!(net.counts().copied.frames + 1, net.counts().delivered.frames);
        }
    }

    /// In a fat-tree any cable between switches may be cut, in one direction or both: the tree goes around.
    #[test]
    fn a_tree_that_is_made_anew_goes_around_cables_that_are_cut(cut in any::<prop::sample::Index>(), source in 0u32..16) {
        let topology = shape(2);
        let is_host = |point| topology.hosts().contains(&point);
        let between: Vec<LinkId> = (0..topology.fabric().link_count() as u32)
            .map(LinkId)
            .filter(|link| {
                let link = topology.fabric().link(*link).unwrap();
                !is_host(link.from) && !is_host(link.to)
            })
            .collect();
        let mut net = fabric(&topology, &unbounded(), Choice::First);
        net.change(ns(0), between[cut.index(between.len())], LinkChange::Down(true)).unwrap();
        let all: Vec<u32> = (0..16).collect();
        set(&mut net, &all);
        let others: Vec<u32> = all.into_iter().filter(|&it| it != source).collect();
        prop_assert_eq!(reached(&mut net, ns(5), source), others);
    }
}
