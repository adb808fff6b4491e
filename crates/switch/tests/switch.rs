//! The whole switch: frames in by one verb, out by the other.

mod common;

use common::{SLOW, TestFrame, at, slow_fifo};
use headwater_switch::{
    Choice, Destination, Forwarding, Limit, PortConfig, PortError, PortIndex, Switch, SwitchError,
    SwitchOutput,
};
use headwater_units::{BitRate, Time};
use proptest::prelude::*;

const IN: PortIndex = PortIndex(0);

/// Host `n` is behind port `n`; group 0 is everybody.
fn star(ports: u16, config: PortConfig) -> Switch<TestFrame> {
    let mut forwarding = Forwarding::new(ports.into());
    for port in 0..ports {
        forwarding.set_routes(port.into(), &[PortIndex(port)]).unwrap();
    }
    forwarding.set_group(0, &(0..ports).map(PortIndex).collect::<Vec<_>>());
    Switch::new(vec![config; ports.into()], forwarding).unwrap()
}

fn to(host: u32, id: u64) -> TestFrame {
    TestFrame { to: Destination::Host(host), ..TestFrame::symbol(id, 10) }
}

/// Frames that leave until the switch wants to sleep, as (port, time, frame), and when it wants to be woken.
fn poll(switch: &mut Switch<TestFrame>, now: u64) -> (Vec<(u16, u64, u64)>, Option<Time>) {
    let mut sent = Vec::new();
    loop {
        match switch.poll(at(now)) {
            SwitchOutput::Transmit { port, at, frame } => sent.push((port.0, at.as_nanos(), frame.id)),
            SwitchOutput::Dropped { port, frame } => panic!("{frame:?} was dropped at {port:?}"),
            SwitchOutput::Wake(wake) => return (sent, wake),
        }
    }
}

/// Frames that are dropped before any other output.
fn drops(switch: &mut Switch<TestFrame>, now: u64) -> Vec<(Option<u16>, u64)> {
    std::iter::from_fn(|| match switch.poll(at(now)) {
        SwitchOutput::Dropped { port, frame } => Some((port.map(|it| it.0), frame.id)),
        _ => None,
    })
    .collect()
}

#[test]
fn plain_ports_say_at_once_when_a_frame_will_have_left() {
    let mut switch = star(3, slow_fifo());
    switch.handle(at(0), IN, to(2, 0));
    switch.handle(at(0), IN, to(2, 1));
    assert_eq!(poll(&mut switch, 0), (vec![(2, 10_000, 0), (2, 20_000, 1)], None));
}

#[test]
fn held_frames_come_out_when_they_have_left_in_order_of_departure() {
    let mut switch = star(3, slow_fifo());
    switch.hold_frames();
    for (host, id) in [(2, 0), (2, 1), (1, 2)] {
        switch.handle(at(0), IN, to(host, id));
    }
    assert_eq!(poll(&mut switch, 9_999), (vec![], Some(at(10_000))));
    assert_eq!(poll(&mut switch, 10_000), (vec![(1, 10_000, 2), (2, 10_000, 0)], Some(at(20_000))));
    switch.handle(at(15_000), IN, to(1, 3));
    assert_eq!(
        poll(&mut switch, 99_000),
        (vec![(2, 20_000, 1), (1, 25_000, 3)], None),
        "late, and yet exact"
    );
}

#[test]
fn copies_leave_by_every_port_of_the_group_but_the_one_they_came_in_by() {
    let mut switch = star(4, slow_fifo());
    let frame = TestFrame { to: Destination::Group(0), ..TestFrame::symbol(7, 10) };
    switch.handle(at(0), PortIndex(2), frame.clone());
    let (sent, _) = poll(&mut switch, 0);
    assert_eq!(sent, [(0, 10_000, 7), (1, 10_000, 7), (3, 10_000, 7)]);
    switch.handle(at(0), PortIndex::OWN, frame);
    assert_eq!(poll(&mut switch, 0).0.len(), 4, "the device's own frames came in by no port");
    let stats = switch.stats();
    assert_eq!((stats.frames_in, stats.copies, stats.unroutable), (2, 2 + 3, 0));
}

#[test]
fn frame_for_nobody_is_counted_and_given_back() {
    let mut forwarding = Forwarding::new(3);
    forwarding.set_routes(1, &[PortIndex(9)]).unwrap();
    forwarding.set_group(5, &[IN]);
    let mut switch = Switch::new(vec![slow_fifo()], forwarding).unwrap();
    switch.handle(at(0), IN, to(0, 0));
    switch.handle(at(0), IN, to(1, 1));
    switch.handle(at(0), IN, TestFrame { to: Destination::Group(4), ..TestFrame::symbol(2, 10) });
    switch.handle(at(0), IN, TestFrame { to: Destination::Group(5), ..TestFrame::symbol(3, 10) });
    assert_eq!(drops(&mut switch, 0), [(None, 0), (None, 1), (None, 2), (None, 3)]);
    assert_eq!(switch.stats().unroutable, 4);
}

#[test]
fn full_port_says_what_it_dropped() {
    for hold in [false, true] {
        let mut switch = star(2, PortConfig::fifo(SLOW, Some(Limit::Packets(1)), None));
        if hold {
            switch.hold_frames();
        }
        switch.handle(at(0), IN, to(1, 0));
        if !hold {
            assert!(matches!(switch.poll(at(0)), SwitchOutput::Transmit { .. }));
        }
        switch.handle(at(0), IN, to(1, 1));
        assert_eq!(drops(&mut switch, 0), [(Some(1), 1)]);
        assert_eq!(switch.port(PortIndex(1)).stats().dropped, 1);
    }
}

#[test]
fn link_that_goes_down_drops_what_it_held_and_is_routed_around() {
    for choice in [Choice::Hash { salt: 3 }, Choice::Spray { seed: 3 }] {
        let mut forwarding = Forwarding::new(1).with_choice(choice);
        forwarding.set_routes(0, &[1, 2].map(PortIndex)).unwrap();
        let mut switch = Switch::new(vec![slow_fifo(); 3], forwarding).unwrap();
        switch.hold_frames();
        for id in 0..40 {
            switch.handle(at(0), IN, TestFrame { hash: id as u32, ..to(0, id) });
        }
        let held = switch.port(PortIndex(1)).stats().frames_in;
        assert!(0 < held && held < 40);
        assert_eq!(switch.set_port_up(at(0), PortIndex(1), false), 0, "nothing was handed out");
        assert_eq!(drops(&mut switch, 0).len() as u64, held);
        switch.handle(at(0), IN, to(0, 99));
        let (sent, wake) = poll(&mut switch, 1_000_000);
        assert_eq!((sent.len() as u64, wake), (41 - held, None));
        assert!(sent.iter().all(|it| it.0 == 2));
        assert_eq!(switch.set_port_up(at(1_000_000), PortIndex(1), true), 0);
        for id in 0..40 {
            switch.handle(at(1_000_000), IN, TestFrame { hash: id as u32, ..to(0, id) });
        }
        assert!(poll(&mut switch, 2_000_000).0.iter().any(|it| it.0 == 1));
    }
}

#[test]
fn frames_handed_out_early_are_counted_when_their_link_goes_down() {
    let mut switch = star(2, slow_fifo());
    for id in 0..4 {
        switch.handle(at(0), IN, to(1, id));
    }
    for departure in [10_000, 20_000, 30_000] {
        assert!(
            matches!(switch.poll(at(0)), SwitchOutput::Transmit { at, .. } if at.as_nanos() == departure)
        );
    }
    // Of four: one has left, two were handed out and have not, one was never told of.
    assert_eq!(switch.set_port_up(at(15_000), PortIndex(1), false), 2);
    assert_eq!(drops(&mut switch, 15_000), [(Some(1), 3)]);
    assert_eq!(
        (switch.port(PortIndex(1)).stats().dropped, switch.port(PortIndex(1)).stats().frames_out),
        (3, 1)
    );
}

#[test]
fn changed_rate_changes_the_wake() {
    let mut switch = star(2, slow_fifo());
    switch.hold_frames();
    switch.handle(at(0), IN, to(1, 0));
    assert_eq!(poll(&mut switch, 0).1, Some(at(10_000)));
    switch.port_mut(PortIndex(1)).set_rate(at(0), BitRate::new(2 * SLOW.get())).unwrap();
    assert_eq!(poll(&mut switch, 0).1, Some(at(5_000)));
    switch.port_mut(PortIndex(1)).set_rate(at(0), BitRate::new(SLOW.get() / 2)).unwrap();
    assert_eq!(poll(&mut switch, 19_999), (vec![], Some(at(20_000))));
    assert_eq!(poll(&mut switch, 20_000).0, [(1, 20_000, 0)]);
}

#[test]
fn rates_that_change_a_thousand_times_between_departures_confuse_no_wake() {
    let mut switch = star(3, slow_fifo());
    switch.hold_frames();
    switch.handle(at(0), IN, to(1, 0));
    switch.handle(at(0), IN, to(2, 1));
    for change in 1..1000 {
        switch
            .port_mut(PortIndex(2))
            .set_rate(at(change), BitRate::new(SLOW.get() / (1 + change % 7)))
            .unwrap();
        let (sent, wake) = poll(&mut switch, change);
        assert!(sent.is_empty());
        let due = [1, 2].map(|port| switch.port(PortIndex(port)).next_departure().unwrap());
        assert_eq!(wake, due.into_iter().min());
    }
    let last = switch.port(PortIndex(2)).next_departure().unwrap().as_nanos();
    assert_eq!(poll(&mut switch, 1_000_000), (vec![(1, 10_000, 0), (2, last, 1)], None));
}

#[test]
fn switch_with_a_wrong_port_is_refused_by_its_number() {
    let wrong = PortConfig { queues: Vec::new(), ..slow_fifo() };
    let error = Switch::<TestFrame>::new(vec![slow_fifo(), wrong], Forwarding::new(0)).unwrap_err();
    assert_eq!(error, SwitchError::Port { port: PortIndex(1), error: PortError::QueueCount(0) });
    assert!(error.to_string().contains("port 1"), "{error}");
}

proptest! {
    /// Handing frames out early or when they have left is the same run, told at other times.
    #[test]
    fn early_and_held_frames_leave_alike(
        arrivals in prop::collection::vec((0u64..30_000, 0u32..4, 1u64..40, any::<bool>()), 1..150),
    ) {
        let config = PortConfig::fifo(SLOW, Some(Limit::Packets(6)), None);
        let (mut early, mut held) = (star(4, config.clone()), star(4, config));
        held.hold_frames();
        let (mut of_early, mut of_held) = (Vec::new(), Vec::new());
        let collect = |switch: &mut Switch<TestFrame>, now, into: &mut Vec<_>| loop {
            match switch.poll(now) {
                SwitchOutput::Transmit { port, at, frame } => into.push((port, Some(at), frame.id)),
                SwitchOutput::Dropped { port, frame } => into.push((port.unwrap(), None, frame.id)),
                SwitchOutput::Wake(_) => break,
            }
        };
        let mut now = 0;
        for (id, (gap, host, len, polls)) in arrivals.into_iter().enumerate() {
            now += gap;
            let frame = TestFrame { len, ..to(host, id as u64) };
            early.handle(at(now), IN, frame.clone());
            held.handle(at(now), IN, frame);
            collect(&mut early, at(now), &mut of_early);
            if polls {
                collect(&mut held, at(now), &mut of_held);
            }
        }
        collect(&mut held, Time::MAX, &mut of_held);
        of_early.sort();
        of_held.sort();
        prop_assert_eq!(of_early, of_held);
    }
}
