//! A port loses nothing and invents nothing: in = out + queued + dropped, in frames and in bytes, whatever its parts are.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{SLOW, TestFrame, at};
use headwater_switch::{
    Allocator, ClassMap, Limit, MAX_RATE, Offered, Port, PortConfig, QueueConfig, Service, Threshold,
    WhenFull,
};
use headwater_units::{BitRate, Bytes, Time};
use headwater_wire::{Class, Ecn};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        class: Class,
        len: u64,
        ecn: Ecn,
    },
    /// Somebody collects what has left, perhaps long after it did.
    Collect,
    Rate(u64),
    /// The link goes down and up.
    Clear,
}

fn limit() -> impl Strategy<Value = Option<Limit>> {
    prop_oneof![
        Just(None),
        (0u32..12).prop_map(|n| Some(Limit::Packets(n))),
        (0u64..12_000).prop_map(|n| Some(Limit::Bytes(Bytes::new(n)))),
    ]
}

fn threshold() -> impl Strategy<Value = Option<Threshold>> {
    prop_oneof![
        Just(None),
        (0u32..8).prop_map(|n| Some(Threshold::Packets(n))),
        (0u64..8_000).prop_map(|n| Some(Threshold::Bytes(Bytes::new(n)))),
    ]
}

prop_compose! {
    fn port()(queues in prop::collection::vec((limit(), threshold(), any::<bool>()), 1..=5))(
        places in prop::array::uniform6(0..queues.len()),
        weights in prop::collection::vec(1u32..12, queues.len()),
        kind in 0..3,
        limit in limit(),
        pool in limit(),
        trims in any::<bool>(),
        rate in 8_000_000u64..80_000_000,
        queues in Just(queues),
    ) -> PortConfig {
        let queues = queues.into_iter().map(|(limit, mark_threshold, shares_pool)| {
            QueueConfig { limit, mark_threshold, shares_pool: shares_pool && pool.is_some() }
        });
        PortConfig {
            rate: BitRate::new(rate),
            queues: queues.collect(),
            classes: ClassMap::by(|class| places[class as usize]),
            limit,
            pool,
            service: match kind {
                0 => Service::Strict,
                1 => Service::FirstAgainstRest { first: weights[0], rest: 1 },
                _ => Service::Weighted(weights),
            },
            when_full: if trims { WhenFull::Trim } else { WhenFull::Drop },
            allocator: Allocator::None,
        }
    }
}

fn arrival() -> impl Strategy<Value = Step> {
    let class = prop::sample::select(&Class::ALL[..]);
    let ecn = prop::sample::select(&[Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][..]);
    (class, prop_oneof![Just(1500), Just(40), 0u64..3_000], ecn).prop_map(|(class, len, ecn)| Step::Arrive {
        class,
        len,
        ecn,
    })
}

/// Each with the gap before it; a 1500-byte frame takes 150 us to 1.5 ms.
fn steps(faults: u32) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let gap = prop_oneof![3 => Just(0), 5 => 0u64..1_000_000, 1 => 0u64..20_000_000];
    let step = prop_oneof![
        20 => arrival(),
        5 => Just(Step::Collect),
        faults => (1_000_000u64..100_000_000).prop_map(Step::Rate),
        faults => Just(Step::Clear),
    ];
    prop::collection::vec((gap, step), 1..250)
}

/// A port and the counts of an observer outside.
struct Watch {
    config: PortConfig,
    port: Port<TestFrame>,
    offered: u64,
    offered_bytes: u64,
    /// Frames that came back dropped or cleared.
    lost: u64,
    /// Frames that must still come out.
    inside: BTreeSet<u64>,
    collected: u64,
    collected_bytes: u64,
    collected_cut: u64,
    collected_marks: u64,
    last_departure: Time,
    /// Per queue, the last frame that came out of it.
    last_of_queue: BTreeMap<usize, u64>,
}

impl Watch {
    fn new(config: PortConfig) -> Self {
        let mut port = Port::new(config.clone()).unwrap();
        port.make_plain(false);
        Watch {
            config,
            port,
            offered: 0,
            offered_bytes: 0,
            lost: 0,
            inside: BTreeSet::new(),
            collected: 0,
            collected_bytes: 0,
            collected_cut: 0,
            collected_marks: 0,
            last_departure: Time::ZERO,
            last_of_queue: BTreeMap::new(),
        }
    }

    fn step(&mut self, now: Time, step: &Step) {
        match *step {
            Step::Arrive { class, len, ecn } => {
                let frame = TestFrame { class, ecn, ..TestFrame::symbol(self.offered, len) };
                self.offered += 1;
                self.offered_bytes += len;
                match self.port.enqueue(now, frame) {
                    Offered::Queued => assert!(self.inside.insert(self.offered - 1)),
                    Offered::Dropped(frame) => {
                        assert_eq!((frame.id, frame.marked), (self.offered - 1, 0));
                        self.lost += 1;
                    }
                }
            }
            Step::Collect => self.collect(now),
            Step::Rate(rate) => self.port.set_rate(now, BitRate::new(rate)).unwrap(),
            Step::Clear => {
                let cleared = self.port.clear(now);
                assert_eq!(cleared.promised, 0);
                self.lost += cleared.frames.len() as u64;
                assert!(cleared.frames.iter().all(|frame| self.inside.remove(&frame.id)));
                assert_eq!(self.port.queue_len(now), 0);
            }
        }
        self.check(now);
    }

    fn collect(&mut self, now: Time) {
        while let Some((time, frame)) = self.port.dequeue(now) {
            assert!(time <= now, "a frame came out before it left");
            assert!(time >= self.last_departure, "departures are in order");
            self.last_departure = time;
            assert!(self.inside.remove(&frame.id), "a frame came out that is not inside");
            let queue = self.config.classes.queue(frame.class);
            let before = self.last_of_queue.insert(queue, frame.id);
            assert!(before < Some(frame.id), "queue {queue} is first in, first out");
            assert!(frame.marked <= 1);
            self.collected += 1;
            self.collected_bytes += frame.len;
            self.collected_cut += frame.cut;
            self.collected_marks += u64::from(frame.marked);
        }
        assert!(self.port.next_departure().is_none_or(|next| next > now));
    }

    fn check(&mut self, now: Time) {
        let (len, bytes) = (self.port.queue_len(now), self.port.queue_bytes(now));
        let stats = self.port.stats();
        assert_eq!((stats.frames_in, stats.bytes_in.get()), (self.offered, self.offered_bytes));
        assert_eq!(stats.frames_in, stats.frames_out + stats.dropped + len);
        assert_eq!(stats.bytes_in, stats.bytes_out + stats.bytes_dropped + stats.bytes_trimmed + bytes);
        assert_eq!(stats.dropped, self.lost);
        assert_eq!(self.inside.len() as u64, len + stats.frames_out - self.collected);
        assert!(stats.high_water >= len);

        let of_queues = (0..6).map(|queue| self.port.len_of_queue(now, queue)).sum::<u64>();
        assert_eq!(of_queues, len);
        for (queue, config) in self.config.queues.iter().enumerate() {
            if let Some(Limit::Packets(most)) = config.limit.or(self.config.limit) {
                assert!(self.port.len_of_queue(now, queue) <= u64::from(most));
            }
        }
        if let Some(Limit::Bytes(most)) = self.config.pool
            && self.config.queues.iter().all(|it| it.shares_pool)
        {
            assert!(bytes <= most);
        }
    }

    /// All that is inside comes out in the end.
    fn finish(mut self) {
        self.collect(Time::MAX);
        self.check(Time::MAX);
        let stats = self.port.stats();
        assert!(self.inside.is_empty());
        assert_eq!((stats.frames_out, stats.bytes_out.get()), (self.collected, self.collected_bytes));
        assert_eq!(stats.frames_in, stats.frames_out + stats.dropped);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn frames_and_bytes_are_conserved_at_every_step(config in port(), steps in steps(1)) {
        let mut watch = Watch::new(config);
        let mut now = 0;
        for (gap, step) in &steps {
            now += gap;
            watch.step(at(now), step);
        }
        watch.finish();
    }

    /// The counters of trimmed and marked frames agree with the frames that arrive, where no link is cut.
    #[test]
    fn counted_marks_and_trims_are_those_of_the_frames(config in port(), steps in steps(0)) {
        let mut watch = Watch::new(config);
        let mut now = 0;
        for (gap, step) in &steps {
            now += gap;
            watch.step(at(now), step);
        }
        watch.collect(Time::MAX);
        let stats = watch.port.stats();
        prop_assert_eq!((stats.marked, stats.bytes_trimmed.get()), (watch.collected_marks, watch.collected_cut));
    }

    /// A driver that polls late loses no rate and changes no decision.
    #[test]
    fn late_driver_sees_what_a_prompt_one_sees(config in port(), steps in steps(1)) {
        let (mut prompt, mut late) = (Watch::new(config.clone()), Watch::new(config));
        let (mut of_prompt, mut of_late) = (Vec::new(), Vec::new());
        let mut now = 0;
        for (gap, step) in &steps {
            now += gap;
            while let Some(due) = prompt.port.next_departure().filter(|due| due.as_nanos() <= now) {
                let (time, frame) = prompt.port.dequeue(due).unwrap();
                prop_assert_eq!(time, due, "it comes out when it was announced");
                of_prompt.push((time, frame));
            }
            match step {
                Step::Collect => of_late.extend(std::iter::from_fn(|| late.port.dequeue(at(now)))),
                Step::Arrive { class, len, ecn } => {
                    let frame = TestFrame { class: *class, ecn: *ecn, ..TestFrame::symbol(now, *len) };
                    prop_assert_eq!(prompt.port.enqueue(at(now), frame.clone()), late.port.enqueue(at(now), frame));
                }
                Step::Rate(rate) => {
                    prompt.port.set_rate(at(now), BitRate::new(*rate)).unwrap();
                    late.port.set_rate(at(now), BitRate::new(*rate)).unwrap();
                }
                Step::Clear => prop_assert_eq!(prompt.port.clear(at(now)), late.port.clear(at(now))),
            }
        }
        of_prompt.extend(std::iter::from_fn(|| prompt.port.dequeue(Time::MAX)));
        of_late.extend(std::iter::from_fn(|| late.port.dequeue(Time::MAX)));
        prop_assert_eq!(of_prompt, of_late);
        prop_assert_eq!(prompt.port.stats(), late.port.stats());
    }

    /// The line never idles while a frame waits, and never sends faster than its rate.
    #[test]
    fn line_is_busy_while_anything_waits(config in port(), steps in steps(0)) {
        let rate = u128::from(config.rate.get());
        let mut port = Port::new(config).unwrap();
        port.make_plain(false);
        let mut came = BTreeMap::new();
        let (mut now, mut id) = (0, 0);
        for (gap, step) in &steps {
            now += gap;
            if let Step::Arrive { class, len, ecn } = step {
                id += 1;
                let frame = TestFrame { class: *class, ecn: *ecn, ..TestFrame::symbol(id, *len) };
                if port.enqueue(at(now), frame) == Offered::Queued {
                    came.insert(id, now);
                }
            }
        }
        // Exactly, in nanoseconds times the rate.
        let mut free = 0;
        while let Some((time, frame)) = port.dequeue(Time::MAX) {
            let first_here = came.values().min().copied().unwrap();
            prop_assert!(u128::from(came[&frame.id]) * rate <= free.max(u128::from(first_here) * rate));
            free = free.max(u128::from(first_here) * rate) + u128::from(frame.len) * 8_000_000_000;
            prop_assert_eq!(u128::from(time.as_nanos()), free / rate);
            came.remove(&frame.id);
        }
        prop_assert!(came.is_empty());
    }
}

#[test]
fn frame_of_an_impossible_length_is_dropped_and_nothing_else_happens() {
    for plain in [true, false] {
        let mut port = Port::new(PortConfig::fifo(MAX_RATE, None, None)).unwrap();
        port.make_plain(plain);
        for len in [u64::MAX, (1 << 40) + 1, u64::MAX] {
            let mut frame = TestFrame::symbol(0, len);
            if plain {
                assert_eq!(port.pass(at(0), &mut frame), headwater_switch::Passed::Dropped);
            } else {
                assert_eq!(port.enqueue(at(0), frame.clone()), Offered::Dropped(frame));
            }
        }
        assert_eq!((port.stats().dropped, port.queue_len(at(0))), (3, 0));
    }
}

#[test]
fn totals_of_impossible_lengths_stop_at_their_end() {
    let config = PortConfig { when_full: WhenFull::Trim, ..PortConfig::fifo(SLOW, None, None) };
    let mut port = Port::new(config).unwrap();
    for id in 0..3 {
        assert_eq!(port.enqueue(at(0), TestFrame::symbol(id, u64::MAX)), Offered::Queued, "its header fits");
        let control = TestFrame::control(id, u64::MAX);
        assert_eq!(port.enqueue(at(0), control.clone()), Offered::Dropped(control));
    }
    assert_eq!(port.clear(at(0)).frames.len(), 3);
    let stats = port.stats();
    assert_eq!((stats.frames_in, stats.dropped, stats.trimmed), (6, 6, 3));
    assert_eq!((stats.bytes_in.get(), stats.bytes_dropped.get()), (u64::MAX, u64::MAX));
}

#[test]
fn time_that_runs_backwards_stands_still() {
    let mut port = Port::new(PortConfig::fifo(SLOW, None, None)).unwrap();
    assert_eq!(port.enqueue(at(10_000), TestFrame::symbol(0, 10)), Offered::Queued);
    assert_eq!(port.enqueue(at(0), TestFrame::symbol(1, 10)), Offered::Queued);
    assert_eq!(port.dequeue(at(0)), None);
    assert_eq!(port.dequeue(at(20_000)).map(|it| it.0), Some(at(20_000)));
    assert_eq!(port.dequeue(at(0)), None);
    assert_eq!(port.dequeue(at(30_000)).map(|it| it.0), Some(at(30_000)));
}
