//! The machine: Algorithm 1 around a selection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_machine::{Endpoint, Input, Output};
use headwater_units::{Bytes, FlowId, FluidRate, Rank, Time};

use super::commands::{Arrival, CourierCommand, CourierConfig, CourierEvent, CourierStats};
use super::member::Member;
use super::pair::Pair;
use super::{Candidate, Chosen, LaneId, PairId, Request, Schedule, Selection, Share, Want};

/// A lane, running or idle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lane {
    /// Blocks that were asked for in it and are not here.
    out: u32,
    running: Option<Running>,
}

/// How a lane runs: at most at this rate, if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Running {
    rate: Option<FluidRate>,
}

/// Lanes and rate that the last selection gave a pair.
#[derive(Clone, Copy, Debug)]
struct Given {
    pair: PairId,
    lanes: u32,
    /// Of each lane.
    rate: Option<FluidRate>,
}

/// The agent of one host, for what it receives.
///
/// Emits [`CourierEvent::Request`] for every block, each once unless its lane is lost, and never more of a flow than its consumer has
/// granted. Whatever the scheduler says or does not, a pair that has a lane goes on by itself: through its members of the first rank
/// in turns, then through the next rank.
#[derive(Debug)]
pub struct Courier<S: Selection> {
    selection: S,
    config: CourierConfig,
    block: u64,
    pairs: BTreeMap<PairId, Pair>,
    pair_of: BTreeMap<FlowId, PairId>,
    lanes: BTreeMap<LaneId, Lane>,
    /// Lanes that may have something to ask for.
    eager: BTreeSet<LaneId>,
    /// Since when each pair has something to ask for and no lane.
    deferred: BTreeMap<PairId, Time>,
    events: VecDeque<CourierEvent>,
    /// Lanes are to be looked at again.
    changed: bool,
    selected_at: Option<Time>,
    signature: Option<S::Signature>,
    given: Vec<Given>,
    /// The scheduler's last word, while it counts.
    heard_at: Option<Time>,
    stats: CourierStats,
}

impl<S: Selection> Courier<S> {
    /// An agent that wants nothing yet.
    ///
    /// # Panics
    /// If the block, the pipeline or the number of classes is zero: nothing would ever be asked for.
    pub fn new(config: CourierConfig, selection: S) -> Self {
        assert!(config.block > Bytes::ZERO, "a block has at least one byte");
        assert!(config.pipeline > 0, "a lane has at least one block under way");
        assert!(config.classes > 0, "there is at least one class");
        Courier {
            selection,
            config,
            block: config.block.get(),
            pairs: BTreeMap::new(),
            pair_of: BTreeMap::new(),
            lanes: BTreeMap::new(),
            eager: BTreeSet::new(),
            deferred: BTreeMap::new(),
            events: VecDeque::new(),
            changed: false,
            selected_at: None,
            signature: None,
            given: Vec::new(),
            heard_at: None,
            stats: CourierStats::default(),
        }
    }

    /// Its counters.
    pub fn stats(&self) -> CourierStats {
        self.stats
    }

    /// How long the block is that was asked for at this offset and is not here; none if there is no such block.
    pub fn awaited(&self, flow: FlowId, offset: Bytes) -> Option<Bytes> {
        let pair = self.pairs.get(self.pair_of.get(&flow)?)?;
        pair.awaited(flow, offset.get()).map(Bytes::new)
    }

    /// Whether a flow is wanted and not complete.
    pub fn knows(&self, flow: FlowId) -> bool {
        self.pair_of.contains_key(&flow)
    }

    /// Flows that are not complete.
    pub fn flows(&self) -> usize {
        self.pair_of.len()
    }

    /// Lanes that run.
    pub fn running_lanes(&self) -> usize {
        self.lanes.values().filter(|lane| lane.running.is_some()).count()
    }

    // ---- commands

    fn want(&mut self, want: &Want) {
        if self.pair_of.contains_key(&want.flow) {
            self.stats.unexpected += 1;
            return;
        }
        let member = Member::new(want);
        if member.is_empty() {
            return self.events.push_back(CourierEvent::Done { flow: want.flow });
        }
        self.pair_of.insert(want.flow, want.pair);
        self.pairs.entry(want.pair).or_default().insert(want.flow, member, self.block);
        self.changed = true;
        self.rouse(want.pair);
    }

    /// Changes a member and looks again at the lanes of its pair.
    fn change(&mut self, flow: FlowId, of: impl FnOnce(&mut Member)) {
        let Some(pair_id) = self.pair_of.get(&flow).copied() else {
            self.stats.unexpected += 1;
            return;
        };
        let Some(pair) = self.pairs.get_mut(&pair_id) else { return };
        let was_ready = pair.is_ready();
        pair.change(flow, self.block, of);
        // A pair without anything to ask for has no lane; credit brings it back.
        self.changed |= was_ready != pair.is_ready();
        self.rouse(pair_id);
    }

    fn withdraw(&mut self, flow: FlowId) {
        let Some(pair_id) = self.pair_of.remove(&flow) else {
            self.stats.unexpected += 1;
            return;
        };
        let Some(pair) = self.pairs.get_mut(&pair_id) else { return };
        let out: Vec<LaneId> = pair.remove(flow).iter().flat_map(Member::lanes).collect();
        if pair.is_empty() {
            self.pairs.remove(&pair_id);
        }
        out.into_iter().for_each(|lane| self.free_place(lane));
        self.changed = true;
    }

    fn schedule(&mut self, now: Time, schedule: Schedule) {
        let shares: BTreeMap<FlowId, Share> = match schedule {
            Schedule::Even => {
                self.heard_at = None;
                return self.share_all(|_| Share::Even);
            }
            Schedule::Ranks(list) => list.into_iter().map(|(flow, rank)| (flow, Share::Rank(rank))).collect(),
            Schedule::Rates(list) => {
                self.heard_at = Some(now);
                let shares: BTreeMap<FlowId, FluidRate> = list.into_iter().collect();
                return self
                    .share_all(|flow| Share::Rate(shares.get(&flow).copied().unwrap_or(FluidRate::ZERO)));
            }
        };
        self.heard_at = Some(now);
        self.share_all(|flow| shares.get(&flow).copied().unwrap_or(Share::Rank(Rank::LAST)));
    }

    fn share_all(&mut self, share: impl Fn(FlowId) -> Share) {
        for pair in self.pairs.values_mut() {
            let flows: Vec<(FlowId, Share)> =
                pair.members().map(|(flow, member)| (flow, member.share)).collect();
            for (flow, before) in flows {
                let share = share(flow);
                if share != before {
                    pair.change(flow, self.block, |member| member.share = share);
                }
            }
        }
        self.eager.extend(self.lanes.iter().filter(|(_, lane)| lane.running.is_some()).map(|(id, _)| *id));
        self.changed = true;
    }

    fn arrived(&mut self, arrival: Arrival) {
        let Arrival { flow, offset, bytes, last } = arrival;
        let pair_id = self.pair_of.get(&flow).copied();
        let pair = pair_id.and_then(|id| self.pairs.get_mut(&id));
        let landed = pair.and_then(|pair| pair.land(flow, (offset.get(), bytes.get()), last, self.block));
        let (Some(pair_id), Some(landed)) = (pair_id, landed) else {
            self.stats.unexpected += 1;
            return;
        };
        self.stats.arrived += bytes.get();
        self.free_place(landed.lane);
        if landed.complete {
            self.pair_of.remove(&flow);
            self.changed = true;
            if self.pairs.get(&pair_id).is_some_and(Pair::is_empty) {
                self.pairs.remove(&pair_id);
            }
            return self.events.push_back(CourierEvent::Done { flow });
        }
        // A pair that waits for credit alone gives its lanes to others.
        self.changed |= self.pairs.get(&pair_id).is_some_and(|pair| pair.wanting().next().is_none());
    }

    /// A lane has a block less out.
    fn free_place(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.out = lane.out.saturating_sub(1);
        // Pairs come and go: an idle lane with nothing under way is only a name.
        if lane.running.is_none() && lane.out == 0 {
            self.lanes.remove(&id);
        }
        self.rouse(id.pair);
    }

    fn lose(&mut self, id: LaneId) {
        match self.lanes.get_mut(&id) {
            Some(lane) if lane.running.is_some() => lane.out = 0,
            _ => drop(self.lanes.remove(&id)),
        }
        let complete = self.pairs.get_mut(&id.pair).map(|pair| pair.lose(id, self.block));
        for flow in complete.unwrap_or_default() {
            self.pair_of.remove(&flow);
            self.events.push_back(CourierEvent::Done { flow });
        }
        if self.pairs.get(&id.pair).is_some_and(Pair::is_empty) {
            self.pairs.remove(&id.pair);
        }
        self.changed = true;
        self.rouse(id.pair);
    }

    /// The running lanes of a pair may have something to ask for.
    fn rouse(&mut self, pair: PairId) {
        let lane = |class, number| LaneId { pair, class, number };
        let lanes = lane(0, 0)..=lane(u8::MAX, u32::MAX);
        self.eager.extend(self.lanes.range(lanes).filter(|(_, it)| it.running.is_some()).map(|(id, _)| *id));
    }

    // ---- lanes

    /// Chooses lanes anew if anything has changed that matters (Algorithm 1, lines 5 to 9).
    fn select(&mut self, now: Time) {
        self.changed = false;
        self.selected_at = Some(now);
        let ids: Vec<PairId> = self.pairs.keys().copied().collect();
        let mut candidates = Vec::new();
        for (position, pair) in (0..).zip(self.pairs.values()) {
            candidates.extend(pair.wanting().map(|(flow, it)| Candidate {
                flow,
                pair: position,
                left: Bytes::new(it.left(self.config.unknown.get())),
                share: it.share,
            }));
        }
        let signature = self.selection.signature(&candidates);
        // By their names, since positions change as pairs come and go.
        if self.signature.as_ref() == Some(&signature) && self.config.most_defer.is_none() {
            self.stats.unchanged += 1;
            // The same lanes; but a pair may have gone on to another rank.
            return self.run();
        }
        self.signature = Some(signature);
        self.stats.selections += 1;
        let mut chosen = self.selection.select(&candidates);
        self.pass_on_lanes(now, &ids, &mut chosen);
        let given = |it: &Chosen| Given {
            pair: ids[usize::from(it.pair)],
            lanes: it.lanes,
            rate: it.rate.map(|rate| FluidRate::new(rate.get() / f64::from(it.lanes.max(1)))),
        };
        self.given = chosen.iter().map(given).collect();
        self.run();
    }

    /// A pair that has waited too long gets the lane of the least important one.
    fn pass_on_lanes(&mut self, now: Time, ids: &[PairId], chosen: &mut Vec<Chosen>) {
        let Some(most) = self.config.most_defer else { return };
        let has_lane = |position: u16| chosen.iter().any(|it| it.pair == position);
        for (position, id) in (0..).zip(ids) {
            let waits = !has_lane(position) && self.pairs[id].is_ready();
            match waits {
                true => drop(self.deferred.entry(*id).or_insert(now)),
                false => drop(self.deferred.remove(id)),
            }
        }
        self.deferred.retain(|id, _| self.pairs.contains_key(id));
        let longest = self.deferred.iter().min_by_key(|(id, since)| (**since, **id));
        let Some((id, _)) = longest.filter(|(_, since)| now >= **since + most) else { return };
        let position = ids.binary_search(id).expect("it was retained") as u16;
        let rate = self.pairs[id].rate();
        if let Some(least) = chosen.last_mut() {
            least.lanes -= 1;
            if least.lanes == 0 {
                chosen.pop();
            }
            chosen.push(Chosen { pair: position, lanes: 1, rate });
        }
        let id = *id;
        self.deferred.remove(&id);
    }

    /// The class of what a pair asks for next.
    fn class(&self, pair: &Pair) -> u8 {
        let rank = pair.first_rank().unwrap_or(Rank::LAST).get();
        rank.min(u32::from(self.config.classes) - 1) as u8
    }

    /// Starts, stops and re-weights lanes until they are those that were given. Pairs that stay are not touched.
    fn run(&mut self) {
        let mut wanted: BTreeMap<LaneId, Running> = BTreeMap::new();
        for &Given { pair, lanes, rate } in &self.given {
            // A pair that has asked for everything keeps its lanes as they are, until all of it is here.
            let class = match self.pairs.get(&pair).filter(|it| it.is_ready()) {
                Some(it) => self.class(it),
                None => match self.running_class(pair) {
                    Some(class) => class,
                    None => continue,
                },
            };
            let lanes = (0..lanes).map(|number| LaneId { pair, class, number });
            wanted.extend(lanes.map(|lane| (lane, Running { rate })));
        }
        let running = self.lanes.iter().filter(|(_, lane)| lane.running.is_some());
        let stopped: Vec<LaneId> = running.map(|(id, _)| *id).filter(|id| !wanted.contains_key(id)).collect();
        for id in stopped {
            self.eager.remove(&id);
            self.events.push_back(CourierEvent::Idle(id));
            let lane = self.lanes.get_mut(&id).expect("it was found there");
            lane.running = None;
            if lane.out == 0 {
                self.lanes.remove(&id);
            }
        }
        for (id, running) in wanted {
            let lane = self.lanes.entry(id).or_insert(Lane { out: 0, running: None });
            let before = lane.running.replace(running);
            self.eager.insert(id);
            if before != Some(running) {
                self.stats.lanes_started += u64::from(before.is_none());
                self.events.push_back(CourierEvent::Lane { lane: id, rate: running.rate });
            }
        }
        self.stats.most_lanes = self.stats.most_lanes.max(self.running_lanes() as u64);
    }

    fn running_class(&self, pair: PairId) -> Option<u8> {
        let lane = |class, number| LaneId { pair, class, number };
        let mut lanes = self.lanes.range(lane(0, 0)..=lane(u8::MAX, u32::MAX));
        lanes.find(|(_, it)| it.running.is_some()).map(|(id, _)| id.class)
    }

    /// The next block that any lane can ask for.
    fn ask(&mut self) -> Option<Request> {
        while let Some(id) = self.eager.first().copied() {
            let runs = self.lanes.get(&id).is_some_and(|lane| lane.running.is_some());
            let Some(pair) = self.pairs.get_mut(&id.pair).filter(|_| runs) else {
                self.eager.remove(&id);
                continue;
            };
            // One unified flow at a time: a lane of a less important class waits for what is under way in those before
            // it. Flows that are stuck in less important ones hold up nobody.
            let before_it = self.lanes.range(LaneId { class: 0, ..id }..=id);
            let ahead: u32 =
                before_it.filter(|(it, _)| it.number == id.number).map(|(_, lane)| lane.out).sum();
            let before = pair.first_rank();
            let asked = (ahead < self.config.pipeline).then(|| pair.ask(id, self.block)).flatten();
            let Some((flow, offset, bytes, again)) = asked else {
                self.eager.remove(&id);
                continue;
            };
            self.lanes.get_mut(&id).expect("it runs").out += 1;
            self.stats.requests += 1;
            self.stats.again += u64::from(again);
            // The next rank may be of another class.
            self.changed |= self.config.classes > 1 && pair.is_ready() && pair.first_rank() != before;
            return Some(Request { lane: id, flow, offset: Bytes::new(offset), bytes: Bytes::new(bytes) });
        }
        None
    }

    // ---- time

    /// When lanes may be chosen anew, if they are to be.
    fn select_at(&self) -> Option<Time> {
        let last = self.selected_at.map_or(Time::ZERO, |at| at + self.config.hold);
        let late = self.config.most_defer.and_then(|most| Some(*self.deferred.values().min()? + most));
        match (self.changed, late) {
            (true, _) => Some(last),
            (false, late) => late.map(|at| at.max(last)),
        }
    }

    fn silent_at(&self) -> Option<Time> {
        Some(self.heard_at? + self.config.silence?)
    }
}

impl<S: Selection> Endpoint for Courier<S> {
    type Command = CourierCommand;
    type Event = CourierEvent;

    fn handle(&mut self, now: Time, input: Input<CourierCommand>) {
        let Input::Command(command) = input else {
            self.stats.unexpected += 1;
            return;
        };
        match command {
            CourierCommand::Want(want) => self.want(&want),
            CourierCommand::Grant { flow, bytes } => self.change(flow, |member| member.grant(bytes)),
            CourierCommand::Withdraw { flow } => self.withdraw(flow),
            CourierCommand::Schedule(schedule) => self.schedule(now, schedule),
            CourierCommand::Arrived(arrival) => self.arrived(arrival),
            CourierCommand::LaneLost(lane) => self.lose(lane),
        }
    }

    fn poll(&mut self, now: Time) -> Output<CourierEvent> {
        if self.silent_at().is_some_and(|at| at <= now) {
            self.heard_at = None;
            self.stats.silences += 1;
            self.share_all(|_| Share::Even);
        }
        if self.select_at().is_some_and(|at| at <= now) {
            self.select(now);
        }
        if let Some(event) = self.events.pop_front() {
            return Output::Event(event);
        }
        if let Some(request) = self.ask() {
            return Output::Event(CourierEvent::Request(request));
        }
        let wake = [self.select_at(), self.silent_at()].into_iter().flatten().min();
        Output::Wake(wake)
    }
}
