//! The one owner of Courier's machine, and of everything that programs of this host fetch: a machine itself, without I/O and clock.
//!
//! ```text
//!   FETCH --> Opening --Opened--> Running --all here--> (done)
//!                |                   |
//!                +----- refused, cancelled, peer away too long -----> (broken)
//! ```
//!
//! A flow is opened at its source before Courier hears of it, so its size is known, and its program can say how much of it it takes.
//! When a lane breaks, Courier asks again for what was under way in it, and flows are opened again in its next connection.
//!
//! * `commands`: what it is told, and what it tells its driver.
//! * `flow`: one flow; `coflows`: what they belong to, and the order among those; `lanes`: the connections that bring them.
//! * `view`: what it says of itself.

mod coflows;
mod commands;
mod flow;
mod lanes;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;

use headwater_machine::{Endpoint, Input, Output};
use headwater_policy::coflow::courier::Limits;
use headwater_transport::courier::{
    Arrival, ByPolicy, Courier, CourierCommand, CourierConfig, CourierEvent, LaneId, PairId, Request,
    Schedule, Want,
};
use headwater_units::{Bytes, Duration, FlowId, Rank, Time};

use crate::budget::Budget;
use crate::client_frames::FromAgent;
use crate::peer_frames::{FromFetcher, FromSource};
use crate::refusal::Refusal;
use coflows::Coflows;
pub(crate) use commands::{Fetch, FromLane, HubCommand, HubEvent};
pub(crate) use flow::{CoflowId, SessionId, Wanted};
use flow::{Flow, State};
use lanes::Lanes;

/// How often lanes without flows are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Configuration of a hub.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HubConfig {
    pub(crate) courier: CourierConfig,
    pub(crate) limits: Limits,
    pub(crate) memory: Bytes,
    pub(crate) flows_per_user: usize,
    /// For how long a peer may be away before flows from it end.
    pub(crate) patience: Duration,
}

/// The hub. Its blocks are of type `B`.
#[derive(Debug)]
pub(crate) struct Hub<B> {
    config: HubConfig,
    courier: Courier<ByPolicy>,
    budget: Budget,
    lanes: Lanes,
    flows: BTreeMap<FlowId, Flow<B>>,
    by_name: BTreeMap<(SessionId, u64), FlowId>,
    of_user: BTreeMap<u32, usize>,
    /// Flows that would get more memory if there were more, in the order in which they asked.
    waiting: VecDeque<FlowId>,
    /// Memory was released since they were looked at.
    has_freed: bool,
    coflows: Coflows,
    next_flow: u64,
    events: VecDeque<HubEvent<B>>,
    /// When lanes are looked at next, if there are any.
    look_at: Option<Time>,
    done: u64,
    broken: u64,
    malformed: u64,
}

impl<B: Deref<Target = [u8]>> Endpoint for Hub<B> {
    type Command = HubCommand<B>;
    type Event = HubEvent<B>;

    fn handle(&mut self, now: Time, input: Input<HubCommand<B>>) {
        // Frames come in lanes, whole.
        let Input::Command(command) = input else { return };
        match command {
            HubCommand::Fetch(fetch) => self.fetch(*fetch),
            HubCommand::Credit { session, name, bytes } => self.credit(now, (session, name), bytes),
            HubCommand::Cancel { session, name } => {
                if let Some(flow) = self.by_name.get(&(session, name)).copied() {
                    self.remove(now, flow);
                }
            }
            HubCommand::Drained(list) => self.drained(&list),
            HubCommand::Gone { session } => {
                let names = (session, 0)..=(session, u64::MAX);
                let flows: Vec<FlowId> = self.by_name.range(names).map(|(_, flow)| *flow).collect();
                flows.into_iter().for_each(|flow| drop(self.remove(now, flow)));
            }
            HubCommand::Ranks(ranks) => self.order(now, ranks),
            HubCommand::Lane { lane, epoch, what } => self.hear(now, lane, epoch, what),
        }
    }

    fn poll(&mut self, now: Time) -> Output<HubEvent<B>> {
        if self.look_at.is_some_and(|at| at <= now) {
            self.look(now);
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                return Output::Event(event);
            }
            self.grant_waiting(now);
            match self.courier.poll(now) {
                Output::Transmit(_) => unreachable!("an agent sends no packets itself"),
                Output::Event(CourierEvent::Request(request)) => self.ask(request),
                // A lane's rate is the network's: schedulers give ranks here. Its connection stays open while it is idle.
                Output::Event(CourierEvent::Lane { .. } | CourierEvent::Idle(_)) => {}
                Output::Event(CourierEvent::Done { flow }) => self.finish(now, flow),
                Output::Wake(at) => {
                    if self.look_at.is_none() && !self.lanes.is_empty() {
                        self.look_at = Some(now + LOOK_EVERY);
                    }
                    return Output::Wake(at.into_iter().chain(self.look_at).min());
                }
            }
        }
    }
}

impl<B: Deref<Target = [u8]>> Hub<B> {
    /// A hub that fetches nothing yet.
    ///
    /// # Errors
    /// The limits make no sense.
    pub(crate) fn new(config: HubConfig) -> Result<Self, headwater_policy::PlanError> {
        let selection = ByPolicy::new(config.limits)?;
        Ok(Hub {
            config,
            courier: Courier::new(config.courier, selection),
            budget: Budget::new(config.memory, config.courier.block),
            lanes: Lanes::default(),
            flows: BTreeMap::new(),
            by_name: BTreeMap::new(),
            of_user: BTreeMap::new(),
            waiting: VecDeque::new(),
            has_freed: false,
            coflows: Coflows::new(config.courier.silence.unwrap_or(Duration::from_secs(1))),
            next_flow: 1,
            events: VecDeque::new(),
            look_at: None,
            done: 0,
            broken: 0,
            malformed: 0,
        })
    }

    fn tell(&mut self, now: Time, command: CourierCommand) {
        self.courier.handle(now, Input::Command(command));
    }

    fn say(&mut self, session: SessionId, frame: FromAgent) {
        self.events.push_back(HubEvent::Say { session, frame });
    }

    /// To the peer, in the lane's connection of today or the first one that there will be.
    fn send(&mut self, lane: LaneId, frame: FromFetcher) {
        let epoch = self.epoch(lane);
        self.events.push_back(HubEvent::Send { lane, epoch, frame });
    }

    /// Which connection of a lane it is; it is needed from now on.
    fn epoch(&mut self, lane: LaneId) -> u64 {
        if let Some(epoch) = self.lanes.dial(lane) {
            self.events.push_back(HubEvent::Dial { lane, epoch });
        }
        self.lanes.current(lane).expect("it was dialled")
    }

    /// Opens a flow in a lane unless the lane's connection knows it.
    fn open_in(&mut self, lane: LaneId, flow: FlowId) {
        let epoch = self.epoch(lane);
        let Some(it) = self.flows.get_mut(&flow) else { return };
        if it.is_new_in(lane, epoch) {
            let frame = it.open(flow);
            self.send(lane, frame);
        }
    }

    fn ask(&mut self, request: Request) {
        let Request { lane, flow, offset, bytes } = request;
        if !self.flows.contains_key(&flow) {
            return;
        }
        self.open_in(lane, flow);
        let length = u32::try_from(bytes.get()).expect("a block is short");
        self.send(lane, FromFetcher::Ask { flow: flow.0, offset, length });
    }

    // ---- what programs say

    fn fetch(&mut self, fetch: Fetch) {
        let (session, name) = (fetch.session, fetch.name);
        if let Err((refusal, text)) = self.begin(fetch) {
            self.broken += 1;
            self.say(session, FromAgent::Broken { flow: name, refusal, text });
        }
    }

    fn begin(&mut self, fetch: Fetch) -> Result<(), (Refusal, String)> {
        let Fetch { session, name, user, peer, wanted, credit } = fetch;
        if self.by_name.contains_key(&(session, name)) {
            return Err((Refusal::Exists, format!("flow {name}")));
        }
        let peer = peer.ok_or((Refusal::UnknownHost, wanted.host.to_string()))?;
        let count = self.of_user.entry(user).or_default();
        if *count >= self.config.flows_per_user {
            return Err((Refusal::Quota, "flows".to_owned()));
        }
        *count += 1;
        let flow = FlowId(self.next_flow);
        self.next_flow += 1;
        let pair = PairId { peer, path: None };
        let it = Flow::new((session, name, user), pair, wanted, credit);
        self.by_name.insert((session, name), flow);
        self.coflows.begin(it.coflow());
        self.flows.insert(flow, it);
        self.open_in(self.lanes.any_of(pair), flow);
        Ok(())
    }

    fn credit(&mut self, now: Time, name: (SessionId, u64), bytes: Bytes) {
        // A flow that has just ended has no use for credit.
        let Some(flow) = self.by_name.get(&name).copied() else { return };
        let Some(it) = self.flows.get_mut(&flow) else { return };
        it.credit = it.credit.saturating_add(bytes.get());
        self.grant(now, flow);
    }

    // ---- memory

    /// Gives a flow what its program and memory have room for.
    fn grant(&mut self, now: Time, flow: FlowId) {
        let Some(it) = self.flows.get_mut(&flow).filter(|it| it.state != State::Opening) else { return };
        let wanted = it.credit.min(it.length) - it.granted;
        // Courier asks for whole blocks, and for what is left at the end.
        if wanted == 0 || (wanted < self.config.courier.block.get() && it.granted + wanted < it.length) {
            return;
        }
        let bytes = self.budget.grant(it.granted - it.drained, wanted);
        it.granted += bytes;
        if bytes < wanted && !it.waits {
            it.waits = true;
            self.waiting.push_back(flow);
        }
        if bytes > 0 {
            self.tell(now, CourierCommand::Grant { flow, bytes: Bytes::new(bytes) });
        }
    }

    fn drained(&mut self, list: &[(FlowId, u64)]) {
        for (flow, bytes) in list {
            self.release(*bytes);
            if let Some(it) = self.flows.get_mut(flow) {
                it.drained += bytes;
            }
        }
    }

    /// Releases memory; sessions that wait for some get it before Courier is asked next.
    fn release(&mut self, bytes: u64) {
        self.budget.release(bytes);
        self.has_freed |= bytes > 0;
    }

    fn grant_waiting(&mut self, now: Time) {
        if !std::mem::take(&mut self.has_freed) {
            return;
        }
        for _ in 0..self.waiting.len() {
            let Some(flow) = self.waiting.pop_front() else { return };
            if let Some(it) = self.flows.get_mut(&flow) {
                it.waits = false;
                self.grant(now, flow);
            }
        }
    }

    // ---- what peers say

    fn hear(&mut self, now: Time, lane: LaneId, epoch: u64, what: FromLane<B>) {
        if self.lanes.current(lane) != Some(epoch) {
            return;
        }
        let named = match &what {
            FromLane::Block { flow, .. }
            | FromLane::Frame(FromSource::Opened { flow, .. } | FromSource::Refused { flow, .. }) => {
                Some(*flow)
            }
            FromLane::Up | FromLane::Down(_) => None,
        };
        // A peer has a say in flows from itself alone.
        let of_another = |flow| self.flows.get(&FlowId(flow)).is_some_and(|it| it.pair != lane.pair);
        if named.is_some_and(of_another) {
            self.malformed += 1;
            return;
        }
        match what {
            FromLane::Up => self.lanes.up(lane),
            FromLane::Block { flow, offset, block } => self.land(now, lane, FlowId(flow), offset, block),
            FromLane::Frame(FromSource::Opened { flow, length, info, stamp }) => {
                self.opened(now, FlowId(flow), (length.get(), info, stamp));
            }
            FromLane::Frame(FromSource::Refused { flow, refusal, text }) => {
                self.end_broken(now, FlowId(flow), refusal, text);
            }
            FromLane::Down(reason) => self.down(now, lane, &reason),
        }
    }

    fn opened(&mut self, now: Time, flow: FlowId, (length, info, stamp): (u64, u64, u64)) {
        let Some(it) = self.flows.get_mut(&flow) else { return };
        if it.state != State::Opening {
            if (it.length, it.stamp) != (length, stamp) {
                self.end_broken(now, flow, Refusal::Changed, "since the flow began".to_owned());
            }
            return;
        }
        (it.state, it.length, it.stamp) = (State::Running, length, stamp);
        let (session, name, pair) = (it.session, it.name, it.pair);
        let (size, share) = (Some(Bytes::new(length)), self.coflows.share(now, it.coflow()));
        self.say(session, FromAgent::Opened { flow: name, length: Bytes::new(length), info });
        self.tell(now, CourierCommand::Want(Want { flow, pair, size, credit: Bytes::ZERO, share }));
        self.grant(now, flow);
    }

    fn land(&mut self, now: Time, lane: LaneId, flow: FlowId, offset: Bytes, block: B) {
        let bytes = Bytes::new(block.len() as u64);
        let awaited = self.courier.awaited(flow, offset);
        let Some(it) = self.flows.get_mut(&flow) else { return };
        // A block that nobody asked for, or more of it, or nothing.
        if awaited.is_none_or(|awaited| bytes > awaited) || bytes == Bytes::ZERO {
            self.malformed += 1;
            return;
        }
        self.lanes.count(lane, bytes.get());
        self.coflows.count(it.coflow(), bytes.get());
        let (session, name) = (it.session, it.name);
        let mut next = it.delivery.insert(offset, block).map(|block| (offset, block));
        while let Some((offset, block)) = next {
            self.events.push_back(HubEvent::Data { session, flow, name, offset, block });
            next = it.delivery.pop();
        }
        self.tell(now, CourierCommand::Arrived(Arrival { flow, offset, bytes, last: false }));
    }

    fn down(&mut self, now: Time, lane: LaneId, reason: &str) {
        let away = self.lanes.down(now, lane);
        self.tell(now, CourierCommand::LaneLost(lane));
        let of_pair = |it: &Flow<B>| it.pair == lane.pair;
        let flows = self.flows.iter().filter(|(_, it)| of_pair(it));
        if away >= self.config.patience {
            let flows: Vec<FlowId> = flows.map(|it| *it.0).collect();
            for flow in flows {
                self.end_broken(now, flow, Refusal::Unreachable, reason.to_owned());
            }
            return;
        }
        // Nothing else opens those again that Courier does not know yet.
        let opening = flows.filter(|(_, it)| it.state == State::Opening && it.was_opened_in(lane));
        let opening: Vec<FlowId> = opening.map(|it| *it.0).collect();
        opening.into_iter().for_each(|flow| self.open_in(lane, flow));
    }

    // ---- ends

    /// Courier has all of it.
    fn finish(&mut self, now: Time, flow: FlowId) {
        let Some(it) = self.remove(now, flow) else { return };
        assert_eq!(it.delivery.passed(), it.length, "a flow that is complete was passed on");
        self.done += 1;
        self.say(it.session, FromAgent::End { flow: it.name });
    }

    fn end_broken(&mut self, now: Time, flow: FlowId, refusal: Refusal, text: String) {
        let Some(it) = self.remove(now, flow) else { return };
        self.broken += 1;
        self.say(it.session, FromAgent::Broken { flow: it.name, refusal, text });
    }

    fn remove(&mut self, now: Time, flow: FlowId) -> Option<Flow<B>> {
        let it = self.flows.remove(&flow)?;
        self.by_name.remove(&(it.session, it.name));
        if let Some(count) = self.of_user.get_mut(&it.user) {
            *count -= 1;
            if *count == 0 {
                self.of_user.remove(&it.user);
            }
        }
        // The part that was passed on is released when it is written.
        self.release(it.granted - it.delivery.passed());
        if it.state == State::Running && self.courier.knows(flow) {
            self.tell(now, CourierCommand::Withdraw { flow });
        }
        for (lane, epoch) in it.opened_in() {
            if self.lanes.current(lane) == Some(epoch) {
                self.send(lane, FromFetcher::Close { flow: flow.0 });
            }
        }
        self.coflows.end(it.coflow());
        Some(it)
    }

    // ---- order

    fn order(&mut self, now: Time, ranks: Vec<(CoflowId, Rank)>) {
        self.coflows.order(now, ranks);
        let rank = |it: &Flow<B>| self.coflows.rank(it.coflow());
        let list = self.flows.iter().filter_map(|(flow, it)| Some((*flow, rank(it)?))).collect();
        self.tell(now, CourierCommand::Schedule(Schedule::Ranks(list)));
    }

    // ---- looks

    fn look(&mut self, now: Time) {
        let flows = &self.flows;
        let idle = self.lanes.take_idle(now, |pair| flows.values().any(|it| it.pair == pair));
        self.events.extend(idle.into_iter().map(HubEvent::HangUp));
        self.look_at = (!self.lanes.is_empty()).then(|| now + LOOK_EVERY);
    }
}
