//! Each part of a port: marking, trimming, service, the shared pool.

mod common;

use common::{HEADER, SLOW, TestFrame, at, slow_fifo};
use headwater_switch::{
    ClassMap, Limit, Offered, Passed, Port, PortConfig, QueueConfig, Service, Threshold, WhenFull,
};
use headwater_units::{Bytes, Time};
use headwater_wire::{Class, Ecn};

/// One class per queue of [`three_queues`].
const CLASSES: [Class; 3] = [Class::Control, Class::Bulk, Class::Gentle];

/// Headers and control in queue 0, bulk in 1, gentle in 2.
fn three_queues(control: u32, symbols: u32) -> PortConfig {
    let queue = |limit| QueueConfig { limit: Some(Limit::Packets(limit)), ..QueueConfig::default() };
    PortConfig {
        queues: vec![queue(control), queue(symbols), queue(symbols)],
        classes: ClassMap::without_levels(),
        when_full: WhenFull::Trim,
        ..slow_fifo()
    }
}

fn offer_all(port: &mut Port<TestFrame>, frames: impl IntoIterator<Item = TestFrame>) {
    for frame in frames {
        assert_eq!(port.enqueue(at(0), frame), Offered::Queued);
    }
}

fn ids_in_order(port: &mut Port<TestFrame>) -> Vec<u64> {
    std::iter::from_fn(|| port.dequeue(Time::MAX)).map(|(_, frame)| frame.id).collect()
}

/// PPUSH §IV-B: marked on enqueue once the occupancy reaches the threshold of 30 packets.
#[test]
fn frame_that_finds_thirty_is_the_first_to_be_marked() {
    let config = PortConfig::fifo(SLOW, Some(Limit::Packets(100)), Some(Threshold::Packets(30)));
    let mut port = Port::new(config).unwrap();
    let mut marked = Vec::new();
    for id in 0..110 {
        let mut frame = TestFrame::symbol(id, 1210);
        let passed = port.pass(at(0), &mut frame);
        assert_eq!(passed == Passed::Dropped, id >= 100, "the occupancy has reached 100");
        if frame.marked > 0 {
            marked.push(id);
        }
    }
    assert_eq!(marked, (30..100).collect::<Vec<_>>());
    assert_eq!((port.stats().marked, port.stats().dropped, port.stats().high_water), (70, 10, 100));
}

/// The frame in transmission counts until its last bit has left.
#[test]
fn occupancy_counts_the_frame_in_transmission() {
    for plain in [true, false] {
        let mut port = Port::new(PortConfig::fifo(SLOW, Some(Limit::Packets(1)), None)).unwrap();
        port.make_plain(plain);
        let mut offer = |now, id| {
            let mut frame = TestFrame::symbol(id, 10);
            match plain {
                true => port.pass(at(now), &mut frame) != Passed::Dropped,
                false => port.enqueue(at(now), frame) == Offered::Queued,
            }
        };
        assert!(offer(0, 0));
        assert!(!offer(9_999, 1));
        assert!(offer(10_000, 2), "at one moment a departure comes before an arrival");
    }
}

#[test]
fn only_ecn_capable_frames_are_marked() {
    let mut port = Port::new(PortConfig::fifo(SLOW, None, Some(Threshold::Packets(0)))).unwrap();
    for (ecn, marked) in [(Ecn::NotEct, 0), (Ecn::Ect1, 1), (Ecn::Ect0, 1), (Ecn::Ce, 1)] {
        let mut frame = TestFrame { ecn, ..TestFrame::symbol(0, 100) };
        let _ = port.pass(at(0), &mut frame);
        assert_eq!(frame.marked, marked, "{ecn:?}");
        assert_eq!(frame.ecn == Ecn::Ce, ecn != Ecn::NotEct);
    }
    assert_eq!(port.stats().marked, 3);
}

#[test]
fn each_queue_marks_by_its_own_occupancy() {
    let mut config = three_queues(100, 100);
    config.queues[1].mark_threshold = Some(Threshold::Packets(2));
    let mut port = Port::new(config).unwrap();
    let gentle = |id| TestFrame { class: Class::Gentle, ..TestFrame::symbol(id, 100) };
    offer_all(&mut port, (0..5).map(gentle));
    offer_all(&mut port, (5..8).map(|id| TestFrame::symbol(id, 100)));
    let marked = std::iter::from_fn(|| port.dequeue(Time::MAX)).filter(|it| it.1.marked > 0);
    assert_eq!(marked.map(|it| it.1.id).collect::<Vec<_>>(), [7]);
}

/// SCDP §III-B: the symbol that finds no room loses its payload, not one that found some.
#[test]
fn arriving_symbol_is_trimmed_and_not_the_head() {
    let mut port = Port::new(three_queues(10, 2)).unwrap();
    offer_all(&mut port, (0..4).map(|id| TestFrame::symbol(id, 1500)));
    let out: Vec<(u64, u64)> =
        std::iter::from_fn(|| port.dequeue(Time::MAX)).map(|(_, frame)| (frame.id, frame.len)).collect();
    assert_eq!(out, [(0, 1500), (2, HEADER), (3, HEADER), (1, 1500)], "headers overtake what waits");
    let stats = port.stats();
    assert_eq!((stats.trimmed, stats.bytes_trimmed), (2, Bytes::new(2 * (1500 - HEADER))));
    assert_eq!((stats.frames_in, stats.frames_out, stats.dropped), (4, 4, 0));
}

#[test]
fn header_that_finds_no_room_either_is_dropped() {
    let mut port = Port::new(three_queues(1, 1)).unwrap();
    offer_all(&mut port, (0..2).map(|id| TestFrame::symbol(id, 1500)));
    let Offered::Dropped(frame) = port.enqueue(at(0), TestFrame::symbol(2, 1500)) else {
        panic!("both queues are full")
    };
    assert_eq!((frame.id, frame.len), (2, HEADER), "what comes back is the header");
    let stats = port.stats();
    assert_eq!((stats.dropped, stats.bytes_dropped), (1, Bytes::new(1500)), "counted as it came");
    assert_eq!(stats.trimmed, 1, "a trim that saved nothing is no trim");
}

#[test]
fn frame_that_cannot_be_trimmed_is_dropped() {
    let mut port = Port::new(three_queues(1, 1)).unwrap();
    offer_all(&mut port, [TestFrame::control(0, 40)]);
    let again = TestFrame::control(1, 40);
    assert_eq!(port.enqueue(at(0), again.clone()), Offered::Dropped(again));
}

/// SCDP §III-C: weighted round robin keeps headers from filling the line; 10 to 1.
#[test]
fn ten_headers_leave_for_each_symbol() {
    let config =
        PortConfig { service: Service::FirstAgainstRest { first: 10, rest: 1 }, ..three_queues(1000, 20) };
    let mut port = Port::new(config).unwrap();
    offer_all(&mut port, (0..220).map(|id| TestFrame::symbol(id, 1500)));
    let classes: Vec<Class> =
        std::iter::from_fn(|| port.dequeue(Time::MAX)).map(|(_, frame)| frame.class).collect();
    // The first symbol was on the line before there was any header; rounds begin with the second.
    let symbols: Vec<usize> = (0..220).filter(|&place| classes[place] == Class::Bulk).collect();
    let rounds: Vec<usize> = symbols.windows(2).map(|it| it[1] - it[0]).take(19).collect();
    assert_eq!(rounds, [11; 19]);
}

#[test]
fn three_queues_share_the_line_by_weight() {
    let config = PortConfig { service: Service::Weighted(vec![1, 3, 2]), ..three_queues(1000, 1000) };
    let mut port = Port::new(config).unwrap();
    let frames = (0..600)
        .map(|id| TestFrame { class: CLASSES[id as usize % 3], ..TestFrame::symbol(id, 100 + id % 7) });
    offer_all(&mut port, frames);
    let mut counts = [0; 3];
    for _ in 0..300 {
        counts[port.dequeue(Time::MAX).unwrap().1.class as usize] += 1;
    }
    assert_eq!(counts, [50, 150, 100]);
}

#[test]
fn strict_service_sends_symbols_only_when_no_control_frame_waits() {
    let mut port = Port::new(three_queues(100, 100)).unwrap();
    offer_all(&mut port, [TestFrame { class: Class::Gentle, ..TestFrame::symbol(0, 100) }]);
    offer_all(&mut port, [TestFrame::symbol(1, 100), TestFrame::control(2, 40), TestFrame::control(3, 40)]);
    assert_eq!(ids_in_order(&mut port), [0, 2, 3, 1], "what is on the line is not interrupted");
}

/// SCDP §IV: 20 packets shared by all symbol queues, and a control queue of its own.
#[test]
fn queues_of_a_pool_share_its_room() {
    let mut config = three_queues(1000, 15);
    config.pool = Some(Limit::Packets(20));
    config.queues[1].shares_pool = true;
    config.queues[2].shares_pool = true;
    config.when_full = WhenFull::Drop;
    let mut port = Port::new(config).unwrap();
    let mut taken = [0; 3];
    for round in 0..40 {
        for class in CLASSES {
            let frame = TestFrame { class, ..TestFrame::symbol(round, 1000) };
            taken[class as usize] += u32::from(port.enqueue(at(0), frame) == Offered::Queued);
        }
    }
    assert_eq!(taken, [40, 10, 10]);
    // The control frames go first, then one symbol; its place is free for either queue.
    let freed = at(41 * 1_000_000);
    assert_eq!(port.queue_len(freed), 19);
    assert_eq!(port.enqueue(freed, TestFrame::symbol(100, 1000)), Offered::Queued);
    let gentle = TestFrame { class: Class::Gentle, ..TestFrame::symbol(101, 1000) };
    assert_eq!(port.enqueue(freed, gentle.clone()), Offered::Dropped(gentle));
}

#[test]
fn cleared_port_gives_back_what_it_held_and_keeps_what_has_left() {
    let mut port = Port::new(three_queues(10, 10)).unwrap();
    offer_all(&mut port, (0..3).map(|id| TestFrame::symbol(id, 10)));
    offer_all(&mut port, [TestFrame::control(3, 10)]);
    let cleared = port.clear(at(15_000));
    assert_eq!(cleared.frames.iter().map(|it| it.id).collect::<Vec<_>>(), [3, 1, 2]);
    assert_eq!(port.dequeue(at(15_000)).map(|it| (it.0, it.1.id)), Some((at(10_000), 0)));
    assert_eq!((port.dequeue(Time::MAX), port.next_departure()), (None, None));
    assert_eq!(port.enqueue(at(16_000), TestFrame::symbol(4, 10)), Offered::Queued);
    assert_eq!(port.next_departure(), Some(at(26_000)));
    assert_eq!((port.stats().dropped, port.stats().frames_out), (3, 1));
}

/// A run of arrivals of all sizes and classes, some of them trimmed and dropped, through two ports: one is asked for what has
/// left before every arrival, the other now and then.
#[test]
fn frames_leave_alike_however_late_they_are_collected() {
    let config =
        PortConfig { service: Service::FirstAgainstRest { first: 3, rest: 1 }, ..three_queues(6, 4) };
    let (mut one, mut two) = (Port::new(config.clone()).unwrap(), Port::new(config).unwrap());
    let (mut left_one, mut left_two, mut random, mut now) = (Vec::new(), Vec::new(), 7u64, 0);
    for id in 0..5_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        now += (random >> 33) % 800_000;
        let class = CLASSES[(random >> 60) as usize % 3];
        let frame = TestFrame { class, ..TestFrame::symbol(id, 40 + (random >> 40) % 1_460) };
        left_one.extend(std::iter::from_fn(|| one.dequeue(at(now))));
        assert_eq!(one.enqueue(at(now), frame.clone()), two.enqueue(at(now), frame));
        if id % 7 == 0 || id > 4_990 {
            left_two.extend(std::iter::from_fn(|| two.dequeue(at(now))));
            assert_eq!(one.next_departure(), two.next_departure());
        }
        assert_eq!(one.queue_len(at(now)), two.queue_len(at(now)));
    }
    assert_eq!(left_one, left_two);
    let stats = one.stats();
    assert_eq!(stats, two.stats());
    assert!(stats.trimmed > 100 && stats.dropped > 100, "{stats:?}");
}
