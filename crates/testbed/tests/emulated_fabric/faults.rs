//! Links that are cut, slowed down or scripted; names of things that are not there.

use headwater_fabric::{HostId, LinkId, Metric, PointId, Routes, Topology};
use headwater_switch::{Choice, FaultCounts, LinkChange, PortConfig, PortError, PortStats, SwitchError};
use headwater_testbed::soft_switch::{DropReason, EmulatedFabric, EmulatedFabricError, FabricOutput};
use headwater_units::{BitRate, Duration, Time};
use headwater_wire::Class;

use super::common::{
    LATE, Net, TestFrame, at_link_rate, delivered, drops, fabric, ns, poll, topology, unbounded,
};

/// Lines of 1 Gbit/s, so 1 us for 125 bytes, and links of 10 us.
fn star() -> Topology {
    topology("kind = 'big-switch'\nhosts = 3\nrate = '1 Gbit/s'\ndelay = '10 us'")
}

fn send(net: &mut Net, at: u64, from: u32, to: u32, ids: impl IntoIterator<Item = u64>) {
    for id in ids {
        net.inject(ns(at), HostId(from), TestFrame::symbol(id, 125, to));
    }
}

#[test]
fn a_cut_drops_the_queue_and_what_is_on_the_link_still_arrives() {
    let topology = star();
    let mut net = fabric(&topology, &unbounded(), Choice::First);
    let down = topology.link_between("switch", "h2").unwrap();
    // From two hosts at once: they come to the switch at 11 us, 12 us... and leave it every microsecond.
    send(&mut net, 0, 0, 2, [0, 2, 4]);
    send(&mut net, 0, 1, 2, [1, 3, 5]);
    assert_eq!(net.queue_len(ns(13_500), down), 4);
    net.change(ns(13_500), down, LinkChange::Down(true)).unwrap();
    assert_eq!(net.queue_len(ns(13_500), down), 0);
    let cut = |id| (Some(down), DropReason::Cut, id);
    assert_eq!(drops(&mut net, ns(13_500)), [2, 3, 4, 5].map(cut));
    assert_eq!(net.stats(ns(13_500), down).dropped, 4);
    assert_eq!(delivered(&mut net, ns(30_000)), [(22_000, 2, 0), (23_000, 2, 1)]);
    // No other way: what comes now goes nowhere, until the link is mended.
    send(&mut net, 30_000, 0, 2, [6]);
    let uplink = topology.link_between("h0", "switch");
    assert_eq!(drops(&mut net, ns(50_000)), [(uplink, DropReason::Unroutable, 6)]);
    net.change(ns(50_000), down, LinkChange::Down(false)).unwrap();
    send(&mut net, 50_000, 0, 2, [7]);
    assert_eq!(delivered(&mut net, LATE), [(72_000, 2, 7)]);
}

#[test]
fn flows_leave_a_cut_link_for_the_next() {
    let topology = topology(
        "kind = 'leaf-spine'\nleaves = 2\nspines = 2\nhosts_per_leaf = 1\nrate = '1 Gbit/s'\ndelay = '1 us'",
    );
    let mut net = fabric(&topology, &unbounded(), Choice::First);
    let leaf = topology.fabric().link(topology.fabric().leaving(PointId(0))[0]).unwrap().to;
    let up: Vec<LinkId> = topology
        .fabric()
        .leaving(leaf)
        .iter()
        .copied()
        .filter(|link| !topology.hosts().contains(&topology.fabric().link(*link).unwrap().to))
        .collect();
    net.change(ns(0), up[0], LinkChange::Down(true)).unwrap();
    send(&mut net, 0, 0, 1, [1]);
    assert_eq!(delivered(&mut net, LATE).len(), 1);
    let sent = [up[0], up[1]].map(|link| net.stats(LATE, link).frames_out);
    assert_eq!(sent, [0, 1]);
}

#[test]
fn a_host_with_one_cut_link_loses_what_it_sends_behind_its_queue() {
    let topology = star();
    let mut net = fabric(&topology, &unbounded(), Choice::First);
    let uplink = topology.link_between("h0", "switch").unwrap();
    net.change(ns(0), uplink, LinkChange::Down(true)).unwrap();
    send(&mut net, 0, 0, 1, [1, 2, 3]);
    assert_eq!(drops(&mut net, ns(1_000)), [(Some(uplink), DropReason::Lost, 1)]);
    // Mended, it begins with an empty queue.
    net.change(ns(1_500), uplink, LinkChange::Down(false)).unwrap();
    assert_eq!(drops(&mut net, ns(1_500)), [2, 3].map(|id| (Some(uplink), DropReason::Cut, id)));
    send(&mut net, 1_500, 0, 1, [4]);
    assert_eq!(delivered(&mut net, LATE), [(23_500, 1, 4)]);
}

#[test]
fn a_host_with_two_links_sends_by_the_first_that_is_up() {
    let topology = topology(
        "kind = 'graph'
        switches = ['s', 't']
        hosts = ['a on s, 1 Gbit/s, 1 us', 'b on s, 1 Gbit/s, 1 us']
        links = [
            { a = 'a', b = 't', rate = '1 Gbit/s', delay = '5 us' },
            { a = 't', b = 'b', rate = '1 Gbit/s', delay = '5 us' },
        ]",
    );
    let mut net = fabric(&topology, &unbounded(), Choice::First);
    let [s, t] = ["s", "t"].map(|it| topology.link_between("a", it).unwrap());
    send(&mut net, 0, 0, 1, [1]);
    net.change(ns(0), s, LinkChange::Down(true)).unwrap();
    assert_eq!(drops(&mut net, ns(0)), [(Some(s), DropReason::Cut, 1)]);
    send(&mut net, 0, 0, 1, [2]);
    assert_eq!(delivered(&mut net, ns(20_000)), [(12_000, 1, 2)]);
    net.change(ns(20_000), t, LinkChange::Down(true)).unwrap();
    send(&mut net, 20_000, 0, 1, [3]);
    assert_eq!(drops(&mut net, ns(20_000)), [(None, DropReason::Unroutable, 3)]);
}

#[test]
fn bits_that_have_not_left_leave_at_the_new_rate() {
    let topology = star();
    for queue in [("h0", "switch", 10_000 + 1_000 + 10_000), ("switch", "h2", 1_000 + 10_000 + 10_000)] {
        let (from, to, rest) = queue;
        let mut net = fabric(&topology, &unbounded(), Choice::First);
        let link = topology.link_between(from, to).unwrap();
        send(&mut net, 0, 0, 2, [1, 2]);
        // A quarter of frame 1 is out on the line that slows down to a tenth; then nothing of frame 2.
        let begun = if from == "h0" { 0 } else { 11_000 };
        net.change(ns(begun + 250), link, LinkChange::Rate(BitRate::new(100_000_000))).unwrap();
        let first = 250 + 7_500;
        assert_eq!(
            delivered(&mut net, LATE),
            [(rest + first, 2, 1), (rest + first + 10_000, 2, 2)],
            "{from} to {to}"
        );
    }
}

#[test]
fn a_script_drops_symbols_and_not_acknowledgments() {
    let topology = star();
    let mut net = fabric(&topology, &unbounded(), Choice::First);
    let uplink = topology.link_between("h0", "switch").unwrap();
    net.change(ns(0), uplink, LinkChange::DropNext(2)).unwrap();
    let ack = TestFrame { class: Class::Control, ..TestFrame::symbol(0, 125, 1) };
    net.inject(ns(0), HostId(0), ack);
    send(&mut net, 0, 0, 1, [1, 2, 3]);
    let (said, _) = poll(&mut net, LATE);
    let gone: Vec<u64> = said
        .iter()
        .filter_map(|it| match it {
            FabricOutput::Dropped { link, why: DropReason::Lost, frame } if *link == Some(uplink) => {
                Some(frame.id)
            }
            _ => None,
        })
        .collect();
    assert_eq!((gone, net.counts().delivered.frames), (vec![1, 2], 2));
}

#[test]
fn copies_and_frames_that_are_held_back_are_counted() {
    let topology = star();
    let mut net = fabric(&topology, &unbounded(), Choice::First);
    let uplink = topology.link_between("h0", "switch").unwrap();
    let by = Duration::from_micros(5);
    net.change(ns(0), uplink, LinkChange::Duplicate(1.0)).unwrap();
    net.change(ns(0), uplink, LinkChange::Reorder(1.0, by)).unwrap();
    send(&mut net, 0, 0, 1, 0..100);
    let came = delivered(&mut net, LATE);
    assert_eq!(came.len(), 200);
    assert_eq!((0..100).filter(|id| came.iter().filter(|it| it.2 == *id).count() == 2).count(), 100);
    assert!(came.windows(2).any(|pair| pair[0].2 > pair[1].2), "some overtake others");
    let counted = FaultCounts { lost: 0, duplicated: 100, reordered: 100, unroutable: 0 };
    assert_eq!(net.counts().faults(), counted);
}

#[test]
fn links_that_the_topology_has_down_are_cut_from_the_start() {
    let mut topology = star();
    let down = topology.link_between("switch", "h2").unwrap();
    topology.set_down(down, true);
    let mut net = fabric(&topology, &unbounded(), Choice::First);
    net.set_group(ns(0), 1, &[HostId(0), HostId(1), HostId(2)]);
    net.inject(ns(0), HostId(0), TestFrame::for_group(1, 1));
    assert_eq!(delivered(&mut net, LATE), [(38_000 - 2_000, 1, 1)]);
    send(&mut net, 0, 0, 2, [2]);
    assert_eq!(drops(&mut net, Time::MAX).len(), 1);
}

#[test]
fn what_is_not_there_does_no_harm() {
    let mut net = fabric(&star(), &unbounded(), Choice::First);
    let (nowhere, lost) = (LinkId(u32::MAX), HostId(u32::MAX));
    net.inject(ns(0), lost, TestFrame::symbol(1, 125, 0));
    send(&mut net, 0, 0, 3, [2]);
    send(&mut net, 0, 0, u32::MAX, [3]);
    let unroutable: Vec<_> = drops(&mut net, ns(50_000)).into_iter().map(|it| (it.1, it.2)).collect();
    assert_eq!(unroutable, [1, 2, 3].map(|id| (DropReason::Unroutable, id)));
    let unknown = EmulatedFabricError::UnknownLink { link: nowhere, links: 6 };
    assert_eq!(net.change(ns(0), nowhere, LinkChange::Down(true)), Err(unknown));
    assert_eq!((net.queue_len(ns(0), nowhere), net.stats(ns(0), nowhere)), (0, PortStats::default()));
    let stopped = EmulatedFabricError::Port { link: LinkId(0), error: PortError::Rate(BitRate::ZERO) };
    assert_eq!(net.change(ns(0), LinkId(0), LinkChange::Rate(BitRate::ZERO)), Err(stopped));
    net.set_group(ns(0), 1, &[lost]);
    net.inject(Time::MAX, HostId(0), TestFrame::for_group(4, 1));
    send(&mut net, 0, 0, 1, [5, 6]);
    let _ = poll(&mut net, Time::MAX);
}

#[test]
fn networks_that_cannot_be_are_refused() {
    let (topology, other) = (star(), topology("kind = 'fat-tree'\nk = 4\nrate = '1 Gbit/s'\ndelay = '1 us'"));
    let routes = Routes::all(&topology, Metric::Hops).unwrap();
    let make = |routes: &Routes, port: &dyn Fn(LinkId, bool) -> PortConfig| {
        EmulatedFabric::<TestFrame>::new(&topology, routes, port, &|_| Choice::First, 1)
            .map(drop)
            .unwrap_err()
    };
    let good = at_link_rate(&topology, &unbounded());
    let foreign = Routes::all(&other, Metric::Hops).unwrap();
    assert_eq!(make(&foreign, &good), EmulatedFabricError::ForeignRoutes { point: PointId(3) });
    let error = PortError::Rate(BitRate::ZERO);
    let stopped = |nics: bool| {
        let good = at_link_rate(&topology, &unbounded());
        move |link, is_nic| if is_nic == nics { unbounded() } else { good(link, is_nic) }
    };
    assert_eq!(
        make(&routes, &stopped(true)),
        EmulatedFabricError::Port { link: LinkId(0), error: error.clone() }
    );
    assert!(matches!(
        make(&routes, &stopped(false)),
        EmulatedFabricError::Switch { point: PointId(3), error: SwitchError::Port { .. } }
    ));
}
