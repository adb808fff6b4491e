//! Frames arrive when the simulator's ports would have them arrive, whenever anybody asks.

use std::collections::BTreeMap;

use headwater_fabric::{HostId, LinkId, Topology};
use headwater_switch::{Choice, Limit, Passed, Port, PortConfig, Threshold};
use headwater_testbed::soft_switch::{DropReason, FabricOutput};
use headwater_units::{BitRate, Duration, Time};
use proptest::prelude::*;

use super::common::{
    LATE, Run, TestFrame, any_run, at_link_rate, delivered, fabric, ns, poll, put, topology, unbounded,
};

/// Three hosts on each side; 1 Gbit/s in the middle, 10 Gbit/s at the edges.
fn dumbbell() -> Topology {
    topology(
        "kind = 'dumbbell'\nleft = 3\nright = 3\nrate = '1 Gbit/s'\ndelay = '40 us'\nedge_delay = '700 ns'",
    )
}

#[test]
fn a_lone_frame_takes_its_time_on_each_line_and_each_links_delay() {
    let mut net = fabric(&dumbbell(), &unbounded(), Choice::First);
    net.inject(ns(100), HostId(0), TestFrame::symbol(1, 1250, 3));
    net.inject(ns(100), HostId(0), TestFrame::symbol(2, 1250, 3));
    // 1 us, 10 us and 1 us on the lines, 700 ns, 40 us and 700 ns on the links; the second waits for the middle.
    assert_eq!(delivered(&mut net, LATE), [(53_500, 3, 1), (63_500, 3, 2)]);
}

#[test]
fn late_calls_catch_up_with_the_schedule() {
    let mut net = fabric(&dumbbell(), &unbounded(), Choice::First);
    for id in 0..3 {
        net.inject(ns(0), HostId(0), TestFrame::symbol(id, 1250, 3));
    }
    // At 60 us nobody has asked; one that came to the switch only now would be later than this by as much.
    net.inject(ns(60_000), HostId(3), TestFrame::symbol(9, 1250, 0));
    let all = [(53_400, 3, 0), (63_400, 3, 1), (73_400, 3, 2), (113_400, 0, 9)];
    assert_eq!(delivered(&mut net, LATE), all);
}

#[test]
fn time_that_is_said_to_run_backwards_stands_still() {
    let mut net = fabric(&dumbbell(), &unbounded(), Choice::First);
    assert_eq!(poll(&mut net, ns(100)), (vec![], None));
    net.inject(ns(10), HostId(0), TestFrame::symbol(1, 1250, 1));
    assert_eq!(poll(&mut net, ns(5)).1, Some(ns(1_100)));
    assert_eq!(delivered(&mut net, LATE), [(3_500, 1, 1)]);
}

/// Arrivals, by the ports' other way: each says at once when a frame's last bit leaves.
struct PassedOn {
    ports: BTreeMap<LinkId, Port<TestFrame>>,
    dropped: Vec<(LinkId, u64)>,
}

impl PassedOn {
    /// Sends frames over a link, in the order given; by when each has arrived, in the same order.
    fn over(
        &mut self,
        topology: &Topology,
        from: &str,
        to: &str,
        frames: Vec<(Time, TestFrame)>,
    ) -> Vec<(Time, TestFrame)> {
        let link = topology.link_between(from, to).unwrap();
        let delay = topology.fabric().link(link).unwrap().delay;
        let port = self.ports.get_mut(&link).unwrap();
        let mut arrived = Vec::new();
        for (at, mut frame) in frames {
            match port.pass(at, &mut frame) {
                Passed::Leaves(left) => arrived.push((left + delay, frame)),
                Passed::Dropped => self.dropped.push((link, frame.id)),
            }
        }
        arrived
    }
}

proptest! {
    /// Several hosts through one bottleneck with marks and drops: to the nanosecond what plain ports promise.
    #[test]
    fn departures_are_those_of_plain_ports_and_the_delays(
        sends in prop::collection::vec((0u64..3_000, 0u32..3, 3u32..6, 1u64..2_000), 1..150),
        limit in 2u32..20,
    ) {
        let topology = dumbbell();
        let config =
            PortConfig::fifo(BitRate::ZERO, Some(Limit::Packets(limit)), Some(Threshold::Packets(limit / 2)));
        let mut net = fabric(&topology, &config, Choice::First);
        let mut at = Time::ZERO;
        let mut sent: [Vec<(Time, TestFrame)>; 3] = Default::default();
        for (id, (gap, from, to, len)) in (0..).zip(sends) {
            at += Duration::from_nanos(gap);
            let frame = TestFrame::symbol(id, len, to);
            sent[from as usize].push((at, frame.clone()));
            net.inject(at, HostId(from), frame);
        }
        let (mut arrived, mut dropped) = (Vec::new(), Vec::new());
        for output in poll(&mut net, LATE).0 {
            match output {
                FabricOutput::Deliver { host, due, frame, .. } => arrived.push((due, host.0, frame)),
                FabricOutput::Dropped { link, why: DropReason::Full, frame } => {
                    dropped.push((link.unwrap(), frame.id));
                }
                other => panic!("{other:?}"),
            }
        }

        let port = at_link_rate(&topology, &config);
        let links = (0..topology.fabric().link_count() as u32).map(LinkId);
        let ports = links.map(|link| (link, Port::new(port(link, false)).unwrap())).collect();
        let mut passed = PassedOn { ports, dropped: Vec::new() };
        let mut at_left = Vec::new();
        for (host, frames) in sent.into_iter().enumerate() {
            at_left.extend(passed.over(&topology, &format!("h{host}"), "left", frames));
        }
        // Stable: of those that come at once, in the order of the hosts.
        at_left.sort_by_key(|it| it.0);
        let at_right = passed.over(&topology, "left", "right", at_left);
        let mut expected = Vec::new();
        for host in 3..6 {
            let own = at_right.iter().filter(|(_, it)| it.to == TestFrame::symbol(0, 0, host).to).cloned();
            let frames = passed.over(&topology, "right", &format!("h{host}"), own.collect());
            expected.extend(frames.into_iter().map(|(at, frame)| (at, host, frame)));
        }
        let key = |it: &(Time, u32, TestFrame)| (it.0, it.2.id);
        expected.sort_by_key(key);
        arrived.sort_by_key(key);
        prop_assert_eq!(arrived, expected);
        dropped.sort_unstable();
        passed.dropped.sort_unstable();
        prop_assert_eq!(dropped, passed.dropped);
    }
}

/// Everything that is said in a run; `rhythm` says before which of the inputs, and how long before, there is a poll.
fn said(run: &Run, rhythm: &[Option<u64>]) -> Vec<FabricOutput<TestFrame>> {
    let (mut net, mut said) = (run.net(), Vec::new());
    for ((now, input), before) in run.inputs.iter().zip(rhythm) {
        if let Some(before) = before {
            said.extend(poll(&mut net, *now - Duration::from_nanos(*before)).0);
        }
        put(&mut net, *now, input.clone());
    }
    said.extend(poll(&mut net, LATE).0);
    said
}

/// Everything that is said to a driver that always wakes in time; fails if it is told anything late.
fn said_in_time(run: &Run) -> Vec<FabricOutput<TestFrame>> {
    let (mut net, mut said, mut wake) = (run.net(), Vec::new(), None);
    let ends = [(LATE, None)];
    for (now, input) in run.inputs.iter().map(|(at, input)| (*at, Some(input))).chain(ends) {
        while let Some(at) = wake.filter(|at| *at <= now) {
            let news;
            (news, wake) = poll(&mut net, at);
            assert!(wake.is_none_or(|next| next > at), "it slept at {at:?} although more was due");
            for output in &news {
                assert!(
                    !matches!(output, FabricOutput::Deliver { due, .. } if *due != at),
                    "{output:?} at {at:?}"
                );
            }
            said.extend(news);
        }
        if let Some(input) = input {
            put(&mut net, now, input.clone());
            let news;
            (news, wake) = poll(&mut net, now);
            said.extend(news);
        }
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any network, traffic and faults: what comes out, when it was due and in which order does not depend on when anybody
    /// polled.
    #[test]
    fn every_rhythm_of_polling_brings_out_the_same(
        run in any_run(), rhythm in prop::collection::vec(prop::option::of(0u64..3_000), 120),
    ) {
        let at_once = said_in_time(&run);
        prop_assert_eq!(&said(&run, &rhythm), &at_once);
        prop_assert_eq!(&said(&run, &[None; 120]), &at_once, "polled in the end only");
    }
}
