//! A plain port passes frames exactly as the general way queues them, and as exact arithmetic says.

mod common;

use std::collections::VecDeque;

use common::{SLOW, TestFrame, at, slow_fifo};
use headwater_switch::{Limit, Offered, Passed, Port, PortConfig, Threshold, WhenFull};
use headwater_units::{BitRate, Bytes};
use headwater_wire::Ecn;
use proptest::prelude::*;

/// Gap before it, length, whether ECN-capable, and whether somebody asks the general port right before it.
type Arrival = (u64, u64, bool, bool);

/// Fate of a frame: when it left and whether it was marked, or none if it was dropped.
type Fate = Option<(u64, bool)>;

fn frame(id: usize, len: u64, capable: bool) -> TestFrame {
    TestFrame { ecn: if capable { Ecn::Ect0 } else { Ecn::NotEct }, ..TestFrame::symbol(id as u64, len) }
}

fn pass(port: &mut Port<TestFrame>, now: u64, mut frame: TestFrame) -> Fate {
    match port.pass(at(now), &mut frame) {
        Passed::Leaves(time) => Some((time.as_nanos(), frame.marked > 0)),
        Passed::Dropped => None,
    }
}

/// The fates of frames that take the general way, collected when `asks` says so and once at the end.
struct General {
    port: Port<TestFrame>,
    fates: Vec<Fate>,
}

impl General {
    fn collect(&mut self, now: u64) {
        while let Some((time, frame)) = self.port.dequeue(at(now)) {
            self.fates[frame.id as usize] = Some((time.as_nanos(), frame.marked > 0));
        }
    }
    fn offer(&mut self, now: u64, frame: TestFrame) {
        self.fates.push(None);
        let (id, before) = (frame.id, frame.clone());
        match self.port.enqueue(at(now), frame) {
            Offered::Queued => assert_eq!(id as usize, self.fates.len() - 1),
            Offered::Dropped(frame) => assert_eq!(frame, before, "a dropped frame comes back as it was"),
        }
    }
}

/// A FIFO told in a few lines of exact fractions: nothing of the line, the ring or the queues.
fn by_hand(config: &PortConfig, arrivals: &[Arrival]) -> Vec<Fate> {
    let rate = u128::from(config.rate.get());
    let (mut now, mut free) = (0, 0);
    let mut here: VecDeque<(u64, u64)> = VecDeque::new();
    let mut fates = Vec::new();
    for &(gap, len, capable, _) in arrivals {
        now += gap;
        here.retain(|&(leaves, _)| leaves > now);
        let packets = here.len() as u64 + 1;
        let bytes = here.iter().map(|it| it.1).sum::<u64>() + len;
        let full = match config.queues[0].limit {
            None => false,
            Some(Limit::Packets(most)) => packets > u64::from(most),
            Some(Limit::Bytes(most)) => bytes > most.get(),
        };
        if full {
            fates.push(None);
            continue;
        }
        let due = match config.queues[0].mark_threshold {
            None => false,
            Some(Threshold::Packets(most)) => packets > u64::from(most),
            Some(Threshold::Bytes(most)) => bytes > most.get(),
        };
        // In nanoseconds times the rate, all is whole.
        free = free.max(u128::from(now) * rate) + u128::from(len) * 8_000_000_000;
        let leaves = (free / rate) as u64;
        here.push_back((leaves, len));
        fates.push(Some((leaves, due && capable)));
    }
    fates
}

fn config() -> impl Strategy<Value = PortConfig> {
    let limit = prop_oneof![
        Just(None),
        (0u32..20).prop_map(|n| Some(Limit::Packets(n))),
        (0u64..20_000).prop_map(|n| Some(Limit::Bytes(Bytes::new(n)))),
    ];
    let threshold = prop_oneof![
        Just(None),
        (0u32..10).prop_map(|n| Some(Threshold::Packets(n))),
        (0u64..10_000).prop_map(|n| Some(Threshold::Bytes(Bytes::new(n)))),
    ];
    (1_000_000_000u64..40_000_000_000, limit, threshold)
        .prop_map(|(rate, limit, threshold)| PortConfig::fifo(BitRate::new(rate), limit, threshold))
}

/// Around the line's rate: a 1500-byte frame takes 300 ns to 12 us.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![2 => Just(0), 5 => 0u64..3_000, 1 => 0u64..100_000];
    let len = prop_oneof![Just(1500), Just(40), 0u64..3_000];
    prop::collection::vec((gap, len, any::<bool>(), prop::bool::weighted(0.3)), 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn plain_way_general_way_and_exact_arithmetic_agree_frame_by_frame(
        config in config(), arrivals in arrivals(),
    ) {
        let mut plain = Port::new(config.clone()).unwrap();
        prop_assert!(plain.is_plain());
        let mut general = General { port: Port::new(config.clone()).unwrap(), fates: Vec::new() };
        general.port.make_plain(false);
        let (mut now, mut fates) = (0, Vec::new());
        for (id, &(gap, len, capable, asks)) in arrivals.iter().enumerate() {
            now += gap;
            fates.push(pass(&mut plain, now, frame(id, len, capable)));
            if asks {
                general.collect(now);
            }
            general.offer(now, frame(id, len, capable));
            if asks {
                prop_assert_eq!(plain.queue_len(at(now)), general.port.queue_len(at(now)));
                prop_assert_eq!(plain.queue_bytes(at(now)), general.port.queue_bytes(at(now)));
                prop_assert_eq!(plain.stats(), general.port.stats());
            }
        }
        general.collect(u64::MAX);
        prop_assert_eq!(&fates, &general.fates);
        prop_assert_eq!(&fates, &by_hand(&config, &arrivals));
        prop_assert_eq!(plain.queue_len(at(u64::MAX)), 0);
        prop_assert_eq!(plain.stats(), general.port.stats());
    }

    #[test]
    fn going_general_with_departures_outstanding_changes_no_departure(
        config in config(), arrivals in arrivals(), switches_at in 0usize..100,
    ) {
        let mut port = General { port: Port::new(config.clone()).unwrap(), fates: Vec::new() };
        let mut now = 0;
        for (id, &(gap, len, capable, _)) in arrivals.iter().enumerate() {
            now += gap;
            let frame = frame(id, len, capable);
            if id < switches_at {
                let fate = pass(&mut port.port, now, frame);
                port.fates.push(fate);
            } else {
                port.port.make_plain(false);
                port.offer(now, frame);
            }
        }
        port.collect(u64::MAX);
        prop_assert_eq!(port.fates, by_hand(&config, &arrivals));
    }
}

#[test]
fn only_one_queue_that_drops_is_plain() {
    assert!(Port::<TestFrame>::new(slow_fifo()).unwrap().is_plain());
    let trims = PortConfig { when_full: WhenFull::Trim, ..slow_fifo() };
    let pooled = PortConfig { pool: Some(Limit::Packets(1)), ..slow_fifo() };
    let two = PortConfig { queues: vec![slow_fifo().queues[0]; 2], ..slow_fifo() };
    for config in [trims, pooled, two] {
        let mut port = Port::<TestFrame>::new(config).unwrap();
        assert!(!port.is_plain());
        assert!(!port.make_plain(true), "what cannot be plain stays general");
    }
}

#[test]
fn port_with_a_queued_frame_is_not_made_plain_until_it_is_empty() {
    let mut port = Port::new(slow_fifo()).unwrap();
    assert_eq!(port.enqueue(at(0), TestFrame::symbol(0, 10)), Offered::Queued);
    assert!(!port.is_plain());
    assert!(!port.make_plain(true));
    assert!(port.dequeue(at(10_000)).is_some());
    assert!(port.make_plain(true));
}

#[test]
#[should_panic(expected = "only a plain port knows a departure on arrival")]
fn general_port_passes_nothing() {
    let mut port = Port::new(slow_fifo()).unwrap();
    port.make_plain(false);
    let _ = port.pass(at(0), &mut TestFrame::symbol(0, 10));
}

#[test]
fn promised_departures_stay_when_the_rate_changes() {
    let mut port = Port::new(slow_fifo()).unwrap();
    assert_eq!(port.pass(at(0), &mut TestFrame::symbol(0, 10)), Passed::Leaves(at(10_000)));
    port.set_rate(at(5_000), BitRate::new(SLOW.get() / 2)).unwrap();
    assert_eq!(port.rate(), BitRate::new(SLOW.get() / 2));
    assert_eq!(port.pass(at(5_000), &mut TestFrame::symbol(1, 10)), Passed::Leaves(at(30_000)));
}

#[test]
fn queued_frames_leave_at_the_new_rate_from_the_bit_it_came_at() {
    let mut port = Port::new(slow_fifo()).unwrap();
    for id in 0..2 {
        assert_eq!(port.enqueue(at(0), TestFrame::symbol(id, 10)), Offered::Queued);
    }
    port.set_rate(at(5_000), BitRate::new(SLOW.get() / 2)).unwrap();
    assert_eq!(port.next_departure(), Some(at(15_000)));
    assert_eq!(port.dequeue(at(14_999)), None);
    assert_eq!(port.dequeue(at(99_000)).map(|it| it.0), Some(at(15_000)));
    assert_eq!(port.dequeue(at(99_000)).map(|it| it.0), Some(at(35_000)));
}

/// A host that holds packets back says when each leaves, and its queue may be asked for before that.
#[test]
fn what_left_before_the_last_frame_came_is_not_here_at_an_earlier_time_either() {
    let mut port = Port::new(slow_fifo()).unwrap();
    for id in 0..4 {
        let _ = port.pass(at(0), &mut TestFrame::symbol(id, 10));
    }
    assert_eq!(port.queue_len(at(15_000)), 3);
    assert_eq!(port.pass(at(35_000), &mut TestFrame::symbol(4, 10)), Passed::Leaves(at(50_000)));
    assert_eq!((port.queue_len(at(5_000)), port.stats().frames_out), (2, 3));
}

#[test]
fn cleared_plain_port_takes_back_what_has_not_left() {
    let mut port = Port::new(slow_fifo()).unwrap();
    for id in 0..4 {
        let _ = port.pass(at(0), &mut TestFrame::symbol(id, 10));
    }
    let cleared = port.clear(at(20_000));
    assert_eq!((cleared.frames.len(), cleared.promised), (0, 2));
    let stats = port.stats();
    assert_eq!((stats.frames_in, stats.frames_out, stats.dropped), (4, 2, 2));
    assert_eq!(stats.bytes_dropped, Bytes::new(20));
    assert_eq!(
        port.pass(at(21_000), &mut TestFrame::symbol(4, 10)),
        Passed::Leaves(at(31_000)),
        "the line is free"
    );
}
