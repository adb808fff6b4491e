//! Storms of Courier's machine: real bytes through lanes that break, with credit, orders and files that end where they will. Whatever
//! happens, every byte at the consumer is the right one, and all of them come.
//!
//! A storm is its seed: `STORM=17 cargo test -p headwater-transport --test courier_storms` plays one alone.

use std::collections::{BTreeMap, VecDeque};

use headwater_machine::{Endpoint, Input, Output};
use headwater_policy::coflow::courier::Limits;
use headwater_transport::courier::{
    Arrival, ByPolicy, Courier, CourierCommand, CourierConfig, CourierEvent, LaneId, PairId, Request,
    Schedule, Share, Want,
};
use headwater_units::{Bytes, Duration, FlowId, NodeId, Rank, Time};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const STORMS: u64 = 200;

/// A byte of a flow, which says which one it is.
fn byte(flow: FlowId, at: u64) -> u8 {
    (flow.0.wrapping_mul(31).wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

struct Consumer {
    size: u64,
    credit: u64,
    /// Blocks that have come, by offset.
    got: BTreeMap<u64, Vec<u8>>,
    is_done: bool,
}

struct Storm {
    rng: ChaCha8Rng,
    now: Time,
    courier: Courier<ByPolicy>,
    consumers: BTreeMap<FlowId, Consumer>,
    /// Requests on their way through each lane, in order.
    lanes: BTreeMap<LaneId, VecDeque<Request>>,
    resets: u64,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let config = CourierConfig {
            pipeline: rng.random_range(1..9),
            classes: rng.random_range(1..4),
            ..CourierConfig::default()
        };
        let max_per_pair = Some(rng.random_range(1..4));
        let limits = Limits { max_num: rng.random_range(1..6), max_per_pair, ..Limits::default() };
        let courier = Courier::new(config, ByPolicy::new(limits).unwrap());
        let (now, lanes) = (Time::ZERO, BTreeMap::new());
        let mut storm = Storm { rng, now, courier, consumers: BTreeMap::new(), lanes, resets: 0 };
        for flow in 0..storm.rng.random_range(1..30) {
            storm.want(FlowId(flow));
        }
        storm
    }

    fn want(&mut self, flow: FlowId) {
        let size = match self.rng.random_range(0..4) {
            0 => 0,
            1 => self.rng.random_range(1..70_000),
            _ => self.rng.random_range(1..1_500_000),
        };
        let credit = self.rng.random_range(0..=size);
        let peer = NodeId([self.rng.random_range(0..4); 32]);
        let known = self.rng.random_bool(0.8).then_some(Bytes::new(size));
        self.consumers.insert(flow, Consumer { size, credit, got: BTreeMap::new(), is_done: false });
        let pair = PairId { peer, path: None };
        let want = Want { flow, pair, size: known, credit: Bytes::new(credit), share: Share::Even };
        self.tell(CourierCommand::Want(want));
    }

    fn tell(&mut self, command: CourierCommand) {
        self.courier.handle(self.now, Input::Command(command));
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            match self.courier.poll(self.now) {
                Output::Event(CourierEvent::Request(request)) => {
                    let consumer = &self.consumers[&request.flow];
                    assert!((request.offset + request.bytes).get() <= consumer.credit, "beyond credit");
                    self.lanes.entry(request.lane).or_default().push_back(request);
                }
                Output::Event(CourierEvent::Done { flow }) => {
                    let consumer = self.consumers.get_mut(&flow).unwrap();
                    assert!(!std::mem::replace(&mut consumer.is_done, true), "done twice");
                }
                Output::Event(CourierEvent::Lane { .. } | CourierEvent::Idle(_)) => {}
                Output::Transmit(packet) => panic!("{packet:?}"),
                Output::Wake(_) => return,
            }
        }
    }

    /// The first block of some lane comes, or a part of it.
    fn answer(&mut self) {
        let full: Vec<LaneId> = self.lanes.iter().filter(|it| !it.1.is_empty()).map(|it| *it.0).collect();
        if full.is_empty() {
            return;
        }
        let lane = full[self.rng.random_range(0..full.len())];
        let request = self.lanes.get_mut(&lane).unwrap().pop_front().unwrap();
        let Request { flow, offset, bytes, .. } = request;
        let consumer = self.consumers.get_mut(&flow).unwrap();
        let there = consumer.size.saturating_sub(offset.get()).min(bytes.get());
        let is_cut = there > 1 && self.rng.random_bool(0.1);
        let came = if is_cut { self.rng.random_range(1..there) } else { there };
        // Of a block behind the end its source says nothing: only the one before knows where that is.
        let last = offset.get() + came == consumer.size;
        if came > 0 {
            let block = (offset.get()..offset.get() + came).map(|at| byte(flow, at)).collect();
            assert!(consumer.got.insert(offset.get(), block).is_none(), "twice");
        }
        assert_eq!(self.courier.awaited(flow, offset), Some(bytes));
        self.tell(CourierCommand::Arrived(Arrival { flow, offset, bytes: Bytes::new(came), last }));
    }

    /// A connection breaks, with all that is under way in it.
    fn reset(&mut self) {
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        if lanes.is_empty() {
            return;
        }
        let lane = lanes[self.rng.random_range(0..lanes.len())];
        self.resets += u64::from(!self.lanes[&lane].is_empty());
        self.lanes.remove(&lane);
        self.tell(CourierCommand::LaneLost(lane));
    }

    fn grant(&mut self) {
        let flow = FlowId(self.rng.random_range(0..self.consumers.len() as u64));
        let bytes = self.rng.random_range(1..200_000);
        let consumer = self.consumers.get_mut(&flow).unwrap();
        if !consumer.is_done {
            consumer.credit += bytes;
            self.tell(CourierCommand::Grant { flow, bytes: Bytes::new(bytes) });
        }
    }

    fn order(&mut self) {
        let flows: Vec<FlowId> = self.consumers.keys().copied().collect();
        let list: Vec<(FlowId, Rank)> =
            flows.into_iter().map(|flow| (flow, Rank::new(self.rng.random_range(0..6)))).collect();
        let schedule = if self.rng.random_bool(0.2) { Schedule::Even } else { Schedule::Ranks(list) };
        self.tell(CourierCommand::Schedule(schedule));
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.rng.random_range(0..40));
        match self.rng.random_range(0..20) {
            0..=11 => self.answer(),
            12..=13 => self.reset(),
            14..=17 => self.grant(),
            18 => self.order(),
            _ => self.now += Duration::from_millis(1_100),
        }
        self.drain();
    }

    /// Everybody has room, and what is asked for comes.
    fn calm(&mut self) {
        let flows: Vec<FlowId> = self.consumers.keys().copied().collect();
        for flow in flows {
            let consumer = self.consumers.get_mut(&flow).unwrap();
            if !consumer.is_done {
                consumer.credit += 2_000_000;
                self.tell(CourierCommand::Grant { flow, bytes: Bytes::new(2_000_000) });
            }
        }
        for _ in 0..20_000 {
            if self.courier.flows() == 0 {
                return;
            }
            self.now += Duration::from_millis(20);
            self.drain();
            self.answer();
        }
    }
}

fn play(seed: u64) -> u64 {
    let mut storm = Storm::new(seed);
    for _ in 0..400 {
        storm.step();
    }
    storm.calm();
    if let Some((flow, it)) = storm.consumers.iter().find(|(_, it)| !it.is_done) {
        let got: u64 = it.got.values().map(|block| block.len() as u64).sum();
        let out: usize = storm.lanes.values().map(VecDeque::len).sum();
        panic!(
            "storm {seed}: {flow} of {} bytes never ends: {got} came, credit {}, {out} requests open, {} lanes run",
            it.size,
            it.credit,
            storm.courier.running_lanes()
        );
    }
    assert_eq!(storm.courier.stats().unexpected, 0, "storm {seed}");
    for (flow, consumer) in &storm.consumers {
        assert!(consumer.is_done, "storm {seed}: {flow}");
        let mut next = 0;
        for (offset, block) in &consumer.got {
            assert_eq!(*offset, next, "storm {seed}: {flow} has a gap or an overlap");
            let right = block.iter().zip(next..).all(|(it, at)| *it == byte(*flow, at));
            assert!(right, "storm {seed}: a wrong byte of {flow}");
            next += block.len() as u64;
        }
        assert_eq!(next, consumer.size, "storm {seed}: {flow}");
    }
    storm.resets
}

#[test]
fn every_byte_of_200_storms_is_the_right_one() {
    let alone = std::env::var("STORM").ok().and_then(|seed| seed.parse().ok());
    let resets: u64 = match alone {
        Some(seed) => play(seed),
        None => (0..STORMS).map(play).sum(),
    };
    assert!(alone.is_some() || resets > STORMS, "{resets} resets in all");
}
