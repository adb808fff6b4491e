//! Courier's agent behind a driver that answers its requests in any order: bytes, credit, lanes, ranks and names.

use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::{Endpoint, Input, Output};
use headwater_transport::courier::{
    Arrival, Candidate, Chosen, Courier, CourierCommand, CourierConfig, CourierEvent, LaneId, PairId,
    Request, Schedule, Selection, Share, Want,
};
use headwater_units::{Bytes, Duration, FlowId, FluidRate, NodeId, Rank, Time};
use proptest::prelude::*;

const BLOCK: u64 = 65_536;

/// The most important pairs, a lane each; what is left of the lanes goes to the first one.
#[derive(Debug)]
struct FirstPairs {
    most: usize,
}

impl Selection for FirstPairs {
    type Signature = BTreeSet<(FlowId, u8, u64)>;

    fn signature(&self, candidates: &[Candidate]) -> Self::Signature {
        let key = |share| match share {
            Share::Even => (0, 0),
            Share::Rank(rank) => (1, u64::from(Rank::get(rank))),
            Share::Rate(rate) => (2, FluidRate::get(rate) as u64),
        };
        let signature = candidates.iter().map(|it| (it.flow, key(it.share)));
        signature.map(|(flow, (kind, value))| (flow, kind, value)).collect()
    }

    fn select(&self, candidates: &[Candidate]) -> Vec<Chosen> {
        let mut pairs: BTreeMap<u16, (u64, f64, u64)> = BTreeMap::new();
        for it in candidates {
            let best = pairs.entry(it.pair).or_insert((u64::MAX, 0.0, 0));
            best.2 += it.left.get();
            match it.share {
                Share::Even => best.0 = 0,
                Share::Rank(rank) => best.0 = best.0.min(u64::from(rank.get())),
                Share::Rate(rate) => (best.0, best.1) = (0, best.1 + rate.get()),
            }
        }
        let by_rate = candidates.iter().any(|it| matches!(it.share, Share::Rate(_)));
        let mut order: Vec<_> = pairs.into_iter().filter(|(_, it)| !by_rate || it.1 > 0.0).collect();
        order.sort_by(|(a, of_a), (b, of_b)| {
            (of_a.0, of_b.2, *a).cmp(&(of_b.0, of_a.2, *b)).then(std::cmp::Ordering::Equal)
        });
        order.truncate(self.most);
        let spare = self.most - order.len();
        let chosen = order.into_iter().enumerate().map(|(at, (pair, (_, rate, _)))| Chosen {
            pair,
            lanes: if at == 0 { 1 + spare as u32 } else { 1 },
            rate: by_rate.then(|| FluidRate::new(rate)),
        });
        chosen.collect()
    }
}

fn pair(peer: u8) -> PairId {
    PairId { peer: NodeId([peer; 32]), path: None }
}

fn paper(most: usize) -> Courier<FirstPairs> {
    Courier::new(CourierConfig::paper(), FirstPairs { most })
}

/// A driver that keeps what is asked for, and the oracle.
struct Driver {
    courier: Courier<FirstPairs>,
    now: Time,
    most: usize,
    /// Asked for and not answered.
    out: Vec<Request>,
    lanes: BTreeMap<LaneId, Option<FluidRate>>,
    /// Bytes asked for of each flow, and those that are here.
    asked: BTreeMap<FlowId, u64>,
    here: BTreeMap<FlowId, BTreeMap<u64, u64>>,
    granted: BTreeMap<FlowId, u64>,
    done: Vec<FlowId>,
    order: Vec<Request>,
}

impl Driver {
    fn new(most: usize) -> Self {
        let courier = paper(most);
        Driver {
            courier,
            now: Time::ZERO,
            most,
            out: Vec::new(),
            lanes: BTreeMap::new(),
            asked: BTreeMap::new(),
            here: BTreeMap::new(),
            granted: BTreeMap::new(),
            done: Vec::new(),
            order: Vec::new(),
        }
    }

    fn tell(&mut self, command: CourierCommand) {
        self.courier.handle(self.now, Input::Command(command));
        self.drain();
    }

    fn want(&mut self, flow: u64, peer: u8, size: u64, credit: u64, share: Share) {
        let flow = FlowId(flow);
        self.granted.insert(flow, credit);
        let size = Some(Bytes::new(size));
        self.tell(CourierCommand::Want(Want {
            flow,
            pair: pair(peer),
            size,
            credit: Bytes::new(credit),
            share,
        }));
    }

    fn drain(&mut self) {
        loop {
            match self.courier.poll(self.now) {
                Output::Wake(_) => return,
                Output::Transmit(packet) => panic!("the agent sends no packets itself: {packet:?}"),
                Output::Event(CourierEvent::Request(request)) => {
                    assert!(self.lanes.contains_key(&request.lane), "asks in a lane that runs: {request:?}");
                    assert!(request.bytes > Bytes::ZERO && request.bytes <= Bytes::new(BLOCK));
                    let end = (request.offset + request.bytes).get();
                    let granted = self.granted[&request.flow];
                    assert!(end <= granted, "{request:?} beyond the credit of {granted}");
                    let twice = self.out.iter().any(|it| {
                        it.flow == request.flow
                            && it.offset < request.offset + request.bytes
                            && request.offset < it.offset + it.bytes
                    });
                    assert!(!twice, "{request:?} is under way already");
                    let under_way = self.out.iter().filter(|it| it.lane == request.lane).count();
                    assert!(under_way < 2, "the pipeline is full");
                    *self.asked.entry(request.flow).or_default() += request.bytes.get();
                    self.out.push(request);
                    self.order.push(request);
                }
                Output::Event(CourierEvent::Lane { lane, rate }) => {
                    self.lanes.insert(lane, rate);
                    assert!(self.lanes.len() <= self.most, "at most MaxNum lanes run");
                }
                Output::Event(CourierEvent::Idle(lane)) => assert!(self.lanes.remove(&lane).is_some()),
                Output::Event(CourierEvent::Done { flow }) => self.done.push(flow),
            }
        }
    }

    /// The block asked for at this place of the list is here.
    fn answer(&mut self, at: usize) {
        let request = self.out.remove(at);
        self.here.entry(request.flow).or_default().insert(request.offset.get(), request.bytes.get());
        let Request { flow, offset, bytes, .. } = request;
        self.tell(CourierCommand::Arrived(Arrival { flow, offset, bytes, last: false }));
    }

    /// The connection is gone with all that was under way in it.
    fn cut(&mut self, at: usize) {
        let lane = self.out[at].lane;
        self.out.retain(|it| it.lane != lane);
        self.tell(CourierCommand::LaneLost(lane));
    }

    fn grant(&mut self, flow: FlowId, bytes: u64) {
        if self.done.contains(&flow) {
            return;
        }
        *self.granted.get_mut(&flow).unwrap() += bytes;
        self.tell(CourierCommand::Grant { flow, bytes: Bytes::new(bytes) });
    }

    /// Every byte of a flow is here once, and its end was told once.
    fn check_whole(&self, flow: FlowId, size: u64) {
        let mut end = 0;
        for (offset, len) in self.here.get(&flow).into_iter().flatten() {
            assert_eq!(*offset, end, "{flow} has a gap or an overlap");
            end += len;
        }
        assert_eq!(end, size, "{flow}");
        assert_eq!(self.done.iter().filter(|done| **done == flow).count(), 1, "{flow}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Answer(usize),
    Cut(usize),
    Grant(usize, u64),
    Ranks(Vec<u32>),
    Rates(Vec<u32>),
    Even,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => any::<usize>().prop_map(Step::Answer),
        1 => any::<usize>().prop_map(Step::Cut),
        3 => (any::<usize>(), 1_u64..4).prop_map(|(flow, blocks)| Step::Grant(flow, blocks * BLOCK)),
        1 => prop::collection::vec(0_u32..10, 12).prop_map(Step::Ranks),
        1 => prop::collection::vec(0_u32..4, 12).prop_map(Step::Rates),
        1 => Just(Step::Even),
    ];
    prop::collection::vec(step, 0..120)
}

/// Peer, size and blocks of credit of each flow.
fn flows() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    prop::collection::vec((0_u8..4, 0_u64..600_000, 0_u64..4), 1..12)
}

fn play(driver: &mut Driver, flows: &[(u8, u64, u64)], steps: &[Step]) {
    for (at, (peer, size, credit)) in (0..).zip(flows) {
        driver.want(at, *peer, *size, credit * BLOCK, Share::Even);
    }
    for step in steps {
        let ids = (0..flows.len() as u64).map(FlowId);
        match step {
            Step::Answer(at) if !driver.out.is_empty() => driver.answer(at % driver.out.len()),
            Step::Cut(at) if !driver.out.is_empty() => driver.cut(at % driver.out.len()),
            Step::Answer(_) | Step::Cut(_) => {}
            Step::Grant(at, bytes) => driver.grant(FlowId((at % flows.len()) as u64), *bytes),
            Step::Ranks(ranks) => {
                let list = ids.zip(ranks).map(|(flow, rank)| (flow, Rank::new(*rank)));
                driver.tell(CourierCommand::Schedule(Schedule::Ranks(list.collect())));
            }
            Step::Rates(rates) => {
                let list = ids.zip(rates).map(|(flow, rate)| (flow, FluidRate::new(f64::from(*rate) * 1e8)));
                driver.tell(CourierCommand::Schedule(Schedule::Rates(list.collect())));
            }
            Step::Even => driver.tell(CourierCommand::Schedule(Schedule::Even)),
        }
    }
    // Everybody has room, the scheduler is gone, and what is asked for comes.
    driver.tell(CourierCommand::Schedule(Schedule::Even));
    for (at, (_, size, _)) in (0..).zip(flows) {
        driver.grant(FlowId(at), *size + BLOCK);
    }
    while !driver.out.is_empty() {
        driver.answer(0);
    }
}

proptest! {
    /// Whatever is answered, lost, granted and scheduled in whatever order: every byte comes once, nobody exceeds its credit, and no
    /// more lanes run than may (see the driver's asserts).
    #[test]
    fn every_byte_comes_once_and_within_credit(flows in flows(), steps in steps(), most in 1_usize..6) {
        let mut driver = Driver::new(most);
        play(&mut driver, &flows, &steps);
        for (at, (_, size, _)) in (0..).zip(&flows) {
            driver.check_whole(FlowId(at), *size);
        }
        prop_assert_eq!(driver.courier.flows(), 0);
        prop_assert_eq!(driver.courier.running_lanes(), 0);
        prop_assert!(driver.lanes.is_empty());
        prop_assert_eq!(driver.courier.stats().unexpected, 0);
        let lost = driver.courier.stats().again;
        let asked: u64 = driver.asked.values().sum();
        let wanted: u64 = flows.iter().map(|it| it.1).sum();
        prop_assert!(asked == wanted || lost > 0, "{} asked for, {} wanted", asked, wanted);
    }

    /// Other names in the same order change nothing but the names.
    #[test]
    fn names_are_only_names(flows in flows(), steps in steps(), most in 1_usize..6, gap in 1_u8..60) {
        let mut one = Driver::new(most);
        play(&mut one, &flows, &steps);
        let renamed: Vec<_> = flows.iter().map(|(peer, size, credit)| (7 + peer * gap, *size, *credit)).collect();
        let mut other = Driver::new(most);
        play(&mut other, &renamed, &steps);
        let bare = |driver: &Driver| {
            let name = |it: &Request| (it.flow, it.offset, it.lane.number);
            driver.order.iter().map(name).collect::<Vec<_>>()
        };
        prop_assert_eq!(bare(&one), bare(&other));
        prop_assert_eq!(&one.done, &other.done);
    }

    /// No block of a lower rank begins while a flow of a higher one has data and credit.
    #[test]
    fn ranks_go_one_after_the_other(ranks in prop::collection::vec(0_u32..4, 2..8), size in 1_u64..400_000) {
        let mut driver = Driver::new(1);
        // Nothing is asked for before all are known: the first flow fills the pipeline by itself.
        for (at, rank) in (0..).zip(&ranks) {
            driver.want(at, 0, size, size, Share::Rank(Rank::new(*rank)));
        }
        let already = driver.order.len();
        while !driver.out.is_empty() {
            driver.answer(0);
        }
        let begun: Vec<u32> = driver.order[already..].iter().map(|it| ranks[it.flow.0 as usize]).collect();
        prop_assert!(begun.is_sorted(), "{:?}", begun);
    }
}

#[test]
fn a_pair_of_two_ranks_drains_though_the_scheduler_stays_silent() {
    let mut driver = Driver::new(1);
    driver.want(1, 0, 5 * BLOCK, 5 * BLOCK, Share::Rank(Rank::new(3)));
    driver.want(2, 0, 5 * BLOCK, 5 * BLOCK, Share::Rank(Rank::new(0)));
    while !driver.out.is_empty() {
        driver.answer(0);
    }
    assert_eq!(driver.done, [FlowId(2), FlowId(1)]);
    driver.check_whole(FlowId(1), 5 * BLOCK);
}

#[test]
fn each_rank_of_a_pair_travels_in_its_class_and_what_is_under_way_stays_where_it_is() {
    let mut driver = Driver::new(1);
    driver.want(1, 0, 6 * BLOCK, 6 * BLOCK, Share::Rank(Rank::new(20)));
    assert!(driver.out.iter().all(|it| it.lane.class == 7), "past the last class: the last");
    driver.want(2, 0, 3 * BLOCK, 3 * BLOCK, Share::Rank(Rank::new(2)));
    let (old, new): (Vec<&Request>, Vec<&Request>) = driver.out.iter().partition(|it| it.flow == FlowId(1));
    assert_eq!((old.len(), new.len()), (2, 2), "another class has places of its own");
    assert!(new.iter().all(|it| it.lane.class == 2));
    assert_eq!(driver.lanes.len(), 1, "and one lane runs");
    while let Some(at) = driver.out.iter().position(|it| it.flow == FlowId(2)) {
        driver.answer(at);
    }
    assert_eq!(driver.done, [FlowId(2)]);
    while !driver.out.is_empty() {
        driver.answer(0);
    }
    driver.check_whole(FlowId(1), 6 * BLOCK);
}

#[test]
fn one_stalled_consumer_delays_nobody() {
    let mut driver = Driver::new(1);
    driver.want(1, 0, 10 * BLOCK, BLOCK, Share::Rank(Rank::FIRST));
    driver.want(2, 0, 10 * BLOCK, 10 * BLOCK, Share::Rank(Rank::new(1)));
    while !driver.out.is_empty() {
        driver.answer(0);
    }
    assert_eq!(driver.done, [FlowId(2)]);
    assert_eq!(driver.asked[&FlowId(1)], BLOCK, "all that its consumer has room for");
    driver.grant(FlowId(1), 9 * BLOCK);
    while !driver.out.is_empty() {
        driver.answer(0);
    }
    assert_eq!(driver.done, [FlowId(2), FlowId(1)]);
}

#[test]
fn what_is_lost_with_a_lane_is_asked_for_again_by_offset_and_nothing_else_is() {
    let mut driver = Driver::new(2);
    driver.want(1, 0, 8 * BLOCK, 8 * BLOCK, Share::Even);
    assert_eq!(driver.out.len(), 4, "two lanes of two blocks");
    let lost: BTreeSet<u64> = {
        let lane = driver.out[0].lane;
        driver.out.iter().filter(|it| it.lane == lane).map(|it| it.offset.get()).collect()
    };
    driver.cut(0);
    while !driver.out.is_empty() {
        driver.answer(0);
    }
    driver.check_whole(FlowId(1), 8 * BLOCK);
    let offsets = driver.order.iter().map(|it| it.offset.get());
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    offsets.for_each(|offset| *times.entry(offset).or_default() += 1);
    let twice: BTreeSet<u64> = times.iter().filter(|(_, times)| **times == 2).map(|(at, _)| *at).collect();
    assert_eq!(twice, lost);
    assert_eq!(driver.courier.stats().again, 2);
}

#[test]
fn the_same_schedule_again_touches_no_lane() {
    let mut driver = Driver::new(3);
    for flow in 0..4 {
        driver.want(flow, flow as u8 % 2, 8 * BLOCK, 8 * BLOCK, Share::Even);
    }
    let ranks = || {
        CourierCommand::Schedule(Schedule::Ranks(
            (0..4).map(|it| (FlowId(it), Rank::new(it as u32))).collect(),
        ))
    };
    driver.tell(ranks());
    let before = (driver.courier.stats().selections, driver.courier.stats().lanes_started);
    driver.tell(ranks());
    driver.tell(ranks());
    let stats = driver.courier.stats();
    assert_eq!((stats.selections, stats.lanes_started), before);
    assert_eq!(stats.unchanged, 2);
}

#[test]
fn lanes_carry_the_rates_of_their_members_and_who_has_none_waits() {
    let mut driver = Driver::new(1);
    driver.want(1, 0, 40 * BLOCK, 40 * BLOCK, Share::Rate(FluidRate::ZERO));
    driver.want(2, 0, 40 * BLOCK, 40 * BLOCK, Share::Rate(FluidRate::new(3e8)));
    driver.want(3, 0, 40 * BLOCK, 40 * BLOCK, Share::Rate(FluidRate::new(1e8)));
    assert_eq!(driver.lanes.values().next(), Some(&Some(FluidRate::new(4e8))));
    for _ in 0..38 {
        driver.answer(0);
    }
    let blocks = |flow: u64| driver.asked.get(&FlowId(flow)).copied().unwrap_or(0) / BLOCK;
    assert_eq!(blocks(1), 0);
    assert!((blocks(2) as i64 - 3 * blocks(3) as i64).abs() <= 6, "{} to {}", blocks(2), blocks(3));
    while !driver.out.is_empty() {
        driver.answer(0);
    }
    assert_eq!(driver.done.len(), 2);
    assert!(driver.lanes.is_empty(), "nobody who may move is left");
}

#[test]
fn a_silent_scheduler_is_no_scheduler_after_a_second() {
    let mut courier = Courier::new(CourierConfig::default(), FirstPairs { most: 1 });
    let want = |flow, share| {
        let size = Some(Bytes::new(BLOCK));
        Want { flow: FlowId(flow), pair: pair(0), size, credit: Bytes::new(BLOCK), share }
    };
    courier.handle(Time::ZERO, Input::Command(CourierCommand::Want(want(1, Share::Rate(FluidRate::ZERO)))));
    courier.handle(Time::ZERO, Input::Command(CourierCommand::Schedule(Schedule::Rates(Vec::new()))));
    let second = Time::ZERO + Duration::from_secs(1);
    assert_eq!(courier.poll(Time::ZERO), Output::Wake(Some(second)), "nobody has a rate");
    let told: Vec<_> = std::iter::from_fn(|| match courier.poll(second) {
        Output::Event(event) => Some(event),
        Output::Transmit(_) | Output::Wake(_) => None,
    })
    .collect();
    assert!(matches!(told[..], [CourierEvent::Lane { .. }, CourierEvent::Request(_)]), "{told:?}");
    assert_eq!(courier.stats().silences, 1);
}

#[test]
fn a_flow_of_unknown_size_ends_where_its_source_says() {
    let mut driver = Driver::new(1);
    let flow = FlowId(1);
    driver.granted.insert(flow, 10 * BLOCK);
    let want = Want { flow, pair: pair(0), size: None, credit: Bytes::new(10 * BLOCK), share: Share::Even };
    driver.tell(CourierCommand::Want(want));
    let first = driver.out.remove(0);
    let arrived = |offset, bytes, last| CourierCommand::Arrived(Arrival { flow, offset, bytes, last });
    driver.tell(arrived(first.offset, first.bytes, false));
    let second = driver.out.remove(0);
    driver.tell(arrived(second.offset, Bytes::new(100), true));
    assert_eq!(driver.done, []);
    while !driver.out.is_empty() {
        let behind = driver.out.remove(0);
        driver.tell(arrived(behind.offset, Bytes::ZERO, true));
    }
    assert_eq!(driver.done, [flow]);
    assert_eq!(driver.courier.stats().arrived, BLOCK + 100);
}
