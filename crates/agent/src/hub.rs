//! The one owner of the machine, and of everything that programs of this host fetch.
//!
//! ```text
//!   FETCH --> Opening --Opened--> Running --all here--> (done)
//!                |                   |
//!                +----- refused, cancelled, peer away too long -----> (broken)
//! ```
//!
//! A flow is opened at its source before the machine hears of it, so its size is known, and its program can say how much of it it takes.
//! When a lane breaks, the machine asks again for what was under way in it, and flows are opened again in its next connection.

mod flow;
mod links;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_machine::{Endpoint, Input, Output as MachineOutput};
use headwater_policy::coflow::courier::Limits;
use headwater_transport::courier::{
    Arrival, ByPolicy, Courier, CourierCommand, CourierConfig, CourierEvent, LaneId, PairId, Request,
    Schedule, Share, Want,
};
use headwater_units::{Bytes, Duration, FlowId, Rank, Time};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::blocks::Block;
use crate::budget::Budget;
use crate::client_frames::FromAgent;
use crate::link::{Dialling, News, What};
use crate::outbox::{Outbox, ToProgram};
use crate::peer_frames::{FromFetcher, FromSource};
use crate::peers::Peers;
use crate::refusal::Refusal;
use crate::status::{AgentStatus, CoflowDemand, CoflowStatus, LaneStatus};

pub(crate) use flow::{CoflowId, Wanted};
use flow::{Flow, State};
use links::Links;

/// How often links without flows are looked at, and after how long they are closed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Messages that are dealt with before the machine is asked.
const AT_ONCE: usize = 256;

/// A connection of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(pub(crate) u64);

/// What sessions and the agent itself tell.
#[derive(Debug)]
pub(crate) enum ToHub {
    /// A program wants a flow.
    Fetch { session: SessionId, name: u64, user: u32, wanted: Box<Wanted>, credit: Bytes, outbox: Outbox },
    /// It has room for more of it.
    Credit { session: SessionId, name: u64, bytes: Bytes },
    /// It does not want it any more.
    Cancel { session: SessionId, name: u64 },
    /// So many bytes were written to programs, or will never be.
    Drained(Vec<(FlowId, u64)>),
    /// A program is gone.
    Gone { session: SessionId },
    /// A scheduler has spoken.
    Ranks(Vec<(CoflowId, Rank)>),
    /// What is fetched?
    Demand(oneshot::Sender<Vec<CoflowDemand>>),
    /// How is it?
    Status(oneshot::Sender<AgentStatus>),
}

/// What a hub is made of.
pub(crate) struct Setup {
    pub(crate) courier: CourierConfig,
    pub(crate) limits: Limits,
    pub(crate) memory: Bytes,
    pub(crate) flows_per_user: usize,
    pub(crate) patience: Duration,
    pub(crate) peers: Peers,
    pub(crate) dialling: Arc<Dialling>,
}

/// A coflow that is being fetched.
#[derive(Clone, Copy, Debug, Default)]
struct Here {
    /// Flows that are not complete.
    flows: usize,
    /// Bytes that have come, of flows that have ended as well.
    bytes: u64,
}

/// The hub.
pub(crate) struct Hub {
    courier: Courier<ByPolicy>,
    config: CourierConfig,
    began: Instant,
    budget: Budget,
    peers: Peers,
    flows_per_user: usize,
    patience: Duration,
    links: Links,
    flows: BTreeMap<FlowId, Flow>,
    by_name: BTreeMap<(SessionId, u64), FlowId>,
    of_user: BTreeMap<u32, usize>,
    /// Flows that would get more memory if there were more, in the order in which they asked.
    waiting: std::collections::VecDeque<FlowId>,
    /// Memory was released since they were looked at.
    has_freed: bool,
    ranks: BTreeMap<CoflowId, Rank>,
    /// Coflows that are being fetched.
    here: BTreeMap<CoflowId, Here>,
    heard_at: Option<Time>,
    next_flow: u64,
    done: u64,
    broken: u64,
    malformed: u64,
}

impl Hub {
    /// # Errors
    /// The limits make no sense.
    pub(crate) fn new(setup: Setup) -> Result<(Hub, UnboundedReceiver<News>), headwater_policy::PlanError> {
        let selection = ByPolicy::new(setup.limits)?;
        let (links, news) = Links::new(setup.dialling);
        let hub = Hub {
            courier: Courier::new(setup.courier, selection),
            config: setup.courier,
            began: now(),
            budget: Budget::new(setup.memory, setup.courier.block),
            peers: setup.peers,
            flows_per_user: setup.flows_per_user,
            patience: setup.patience,
            links,
            flows: BTreeMap::new(),
            by_name: BTreeMap::new(),
            of_user: BTreeMap::new(),
            waiting: std::collections::VecDeque::new(),
            has_freed: false,
            ranks: BTreeMap::new(),
            here: BTreeMap::new(),
            heard_at: None,
            next_flow: 1,
            done: 0,
            broken: 0,
            malformed: 0,
        };
        Ok((hub, news))
    }

    /// Runs until nobody can tell it anything.
    pub(crate) async fn run(mut self, mut told: Receiver<ToHub>, mut news: UnboundedReceiver<News>) {
        let mut look_at = now() + LOOK_EVERY.into();
        loop {
            let wake = self.drive();
            let wake = wake.map_or(look_at, |at| look_at.min(self.instant(at)));
            tokio::select! {
                biased;
                Some(it) = news.recv() => {
                    self.hear(it);
                    for it in std::iter::from_fn(|| news.try_recv().ok()).take(AT_ONCE) {
                        self.hear(it);
                    }
                }
                it = told.recv() => {
                    let Some(it) = it else { return };
                    self.told(it);
                    for it in std::iter::from_fn(|| told.try_recv().ok()).take(AT_ONCE) {
                        self.told(it);
                    }
                }
                () = sleep_until(wake) => {}
            }
            if now() >= look_at {
                self.look();
                look_at = now() + LOOK_EVERY.into();
            }
        }
    }

    fn time(&self) -> Time {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }

    fn instant(&self, at: Time) -> Instant {
        self.began + std::time::Duration::from_nanos(at.as_nanos())
    }

    fn tell(&mut self, command: CourierCommand) {
        let now = self.time();
        self.courier.handle(now, Input::Command(command));
    }

    /// Does what the machine wants; when it is to be asked again.
    fn drive(&mut self) -> Option<Time> {
        loop {
            self.grant_waiting();
            match self.courier.poll(self.time()) {
                MachineOutput::Transmit(_) => unreachable!("an agent sends no packets itself"),
                MachineOutput::Event(CourierEvent::Request(request)) => self.ask(request),
                // A lane's rate is the network's: schedulers give ranks here. Its connection stays open while it is idle.
                MachineOutput::Event(CourierEvent::Lane { .. } | CourierEvent::Idle(_)) => {}
                MachineOutput::Event(CourierEvent::Done { flow }) => self.finish(flow),
                MachineOutput::Wake(at) => return at,
            }
        }
    }

    fn ask(&mut self, request: Request) {
        let Request { lane, flow, offset, bytes } = request;
        let epoch = self.links.epoch(lane);
        let Some(it) = self.flows.get_mut(&flow) else { return };
        let length = u32::try_from(bytes.get()).expect("a block is short");
        if it.is_new_in(lane, epoch) {
            self.links.send(lane, it.open(flow));
        }
        self.links.send(lane, FromFetcher::Ask { flow: flow.0, offset, length });
    }

    // ---- what programs say

    fn told(&mut self, it: ToHub) {
        match it {
            ToHub::Fetch { session, name, user, wanted, credit, outbox } => {
                let fetched = self.fetch((session, name, user), *wanted, credit, &outbox);
                if let Err((refusal, text)) = fetched {
                    self.broken += 1;
                    outbox.say(FromAgent::Broken { flow: name, refusal, text });
                }
            }
            ToHub::Credit { session, name, bytes } => {
                // A flow that has just ended has no use for credit.
                let Some(flow) = self.by_name.get(&(session, name)).copied() else { return };
                let Some(it) = self.flows.get_mut(&flow) else { return };
                it.credit = it.credit.saturating_add(bytes.get());
                self.grant(flow);
            }
            ToHub::Cancel { session, name } => {
                if let Some(flow) = self.by_name.get(&(session, name)).copied() {
                    self.remove(flow);
                }
            }
            ToHub::Drained(list) => self.drained(&list),
            ToHub::Gone { session } => {
                let names = (session, 0)..=(session, u64::MAX);
                let flows: Vec<FlowId> = self.by_name.range(names).map(|(_, flow)| *flow).collect();
                flows.into_iter().for_each(|flow| drop(self.remove(flow)));
            }
            ToHub::Ranks(ranks) => self.order(ranks),
            ToHub::Demand(answer) => drop(answer.send(self.demand())),
            ToHub::Status(answer) => drop(answer.send(self.status())),
        }
    }

    fn fetch(
        &mut self,
        (session, name, user): (SessionId, u64, u32),
        wanted: Wanted,
        credit: Bytes,
        outbox: &Outbox,
    ) -> Result<(), (Refusal, String)> {
        if self.by_name.contains_key(&(session, name)) {
            return Err((Refusal::Exists, format!("flow {name}")));
        }
        let peer = self.peers.find(&wanted.host).ok_or((Refusal::UnknownHost, wanted.host.to_string()))?;
        let count = self.of_user.entry(user).or_default();
        if *count >= self.flows_per_user {
            return Err((Refusal::Quota, "flows".to_owned()));
        }
        *count += 1;
        let flow = FlowId(self.next_flow);
        self.next_flow += 1;
        let pair = PairId { peer: peer.node, path: None };
        let mut it = Flow::new((session, name, user), pair, wanted, credit, outbox.clone());
        let lane = self.links.any_of(pair);
        it.is_new_in(lane, self.links.epoch(lane));
        self.links.send(lane, it.open(flow));
        self.by_name.insert((session, name), flow);
        self.here.entry(it.coflow().clone()).or_default().flows += 1;
        self.flows.insert(flow, it);
        Ok(())
    }

    /// Gives a flow what its program and memory have room for.
    fn grant(&mut self, flow: FlowId) {
        let Some(it) = self.flows.get_mut(&flow).filter(|it| it.state != State::Opening) else { return };
        let wanted = it.credit.min(it.length) - it.granted;
        // The machine asks for whole blocks, and for what is left at the end.
        if wanted == 0 || (wanted < self.config.block.get() && it.granted + wanted < it.length) {
            return;
        }
        let bytes = self.budget.grant(it.granted - it.drained, wanted);
        it.granted += bytes;
        if bytes < wanted && !it.waits {
            it.waits = true;
            self.waiting.push_back(flow);
        }
        if bytes > 0 {
            self.tell(CourierCommand::Grant { flow, bytes: Bytes::new(bytes) });
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

    /// So much memory is free again; whoever waits for some has it before the machine is asked next.
    fn release(&mut self, bytes: u64) {
        self.budget.release(bytes);
        self.has_freed |= bytes > 0;
    }

    fn grant_waiting(&mut self) {
        if !std::mem::take(&mut self.has_freed) {
            return;
        }
        for _ in 0..self.waiting.len() {
            let Some(flow) = self.waiting.pop_front() else { return };
            if let Some(it) = self.flows.get_mut(&flow) {
                it.waits = false;
                self.grant(flow);
            }
        }
    }

    // ---- what peers say

    fn hear(&mut self, News { lane, epoch, what }: News) {
        if self.links.current(lane) != Some(epoch) {
            return;
        }
        let now = self.time();
        match what {
            What::Up => self.links.up(lane),
            What::Block { flow, offset, block } => self.land(lane, FlowId(flow), offset, block),
            What::Frame(FromSource::Opened { flow, length, info, stamp }) => {
                self.opened(FlowId(flow), (length.get(), info, stamp));
            }
            What::Frame(FromSource::Refused { flow, refusal, text }) => {
                self.end_broken(FlowId(flow), refusal, text);
            }
            What::Down(reason) => self.down(now, lane, &reason),
        }
    }

    fn opened(&mut self, flow: FlowId, (length, info, stamp): (u64, u64, u64)) {
        let Some(it) = self.flows.get_mut(&flow) else { return };
        if it.state != State::Opening {
            if (it.length, it.stamp) != (length, stamp) {
                self.end_broken(flow, Refusal::Changed, "since the flow began".to_owned());
            }
            return;
        }
        (it.state, it.length, it.stamp) = (State::Running, length, stamp);
        let pair = it.pair;
        it.outbox.say(FromAgent::Opened { flow: it.name, length: Bytes::new(length), info });
        let (size, share) = (Some(Bytes::new(length)), self.share(self.flows[&flow].coflow()));
        self.tell(CourierCommand::Want(Want { flow, pair, size, credit: Bytes::ZERO, share }));
        self.grant(flow);
    }

    fn land(&mut self, lane: LaneId, flow: FlowId, offset: Bytes, block: Block) {
        let bytes = Bytes::new(block.len() as u64);
        let awaited = self.courier.awaited(flow, offset);
        let Some(it) = self.flows.get_mut(&flow) else { return };
        // A block that nobody asked for, or more of it, or nothing.
        if awaited.is_none_or(|awaited| bytes > awaited) || bytes == Bytes::ZERO {
            self.malformed += 1;
            return;
        }
        self.links.count(lane, bytes.get());
        if let Some(here) = self.here.get_mut(it.coflow()) {
            here.bytes += bytes.get();
        }
        let mut next = it.delivery.insert(offset, block).map(|block| (offset, block));
        let mut lost = 0;
        while let Some((offset, block)) = next {
            let length = block.len() as u64;
            if !it.outbox.put(ToProgram::Data { flow, name: it.name, offset, block }) {
                // The program is gone, and its session has not said so yet.
                lost += length;
            }
            next = it.delivery.pop();
        }
        it.drained += lost;
        self.release(lost);
        self.tell(CourierCommand::Arrived(Arrival { flow, offset, bytes, last: false }));
    }

    fn down(&mut self, now: Time, lane: LaneId, reason: &str) {
        let away = self.links.down(now, lane, reason);
        self.tell(CourierCommand::LaneLost(lane));
        let here = |it: &&Flow| it.pair == lane.pair;
        if away >= self.patience {
            let flows: Vec<FlowId> = self.flows.iter().filter(|(_, it)| here(it)).map(|it| *it.0).collect();
            for flow in flows {
                self.end_broken(flow, Refusal::Unreachable, reason.to_owned());
            }
            return;
        }
        // Nothing else opens those again that the machine does not know yet.
        let epoch = self.links.epoch(lane);
        let opening =
            self.flows.iter_mut().filter(|(_, it)| it.pair == lane.pair && it.state == State::Opening);
        for (flow, it) in opening {
            if it.was_opened_in(lane) && it.is_new_in(lane, epoch) {
                self.links.send(lane, it.open(*flow));
            }
        }
    }

    // ---- ends

    /// The machine has all of it.
    fn finish(&mut self, flow: FlowId) {
        let Some(it) = self.remove(flow) else { return };
        assert_eq!(it.delivery.passed(), it.length, "a flow that is complete was passed on");
        self.done += 1;
        it.outbox.say(FromAgent::End { flow: it.name });
    }

    fn end_broken(&mut self, flow: FlowId, refusal: Refusal, text: String) {
        let Some(it) = self.remove(flow) else { return };
        self.broken += 1;
        it.outbox.say(FromAgent::Broken { flow: it.name, refusal, text });
    }

    fn remove(&mut self, flow: FlowId) -> Option<Flow> {
        let it = self.flows.remove(&flow)?;
        self.by_name.remove(&(it.session, it.name));
        if let Some(count) = self.of_user.get_mut(&it.user) {
            *count -= 1;
            if *count == 0 {
                self.of_user.remove(&it.user);
            }
        }
        // What was passed on is released when it is written.
        self.release(it.granted - it.delivery.passed());
        if it.state == State::Running && self.courier.knows(flow) {
            self.tell(CourierCommand::Withdraw { flow });
        }
        for (lane, epoch) in it.opened_in() {
            if self.links.current(lane) == Some(epoch) {
                self.links.send(lane, FromFetcher::Close { flow: flow.0 });
            }
        }
        if let Some(here) = self.here.get_mut(it.coflow()) {
            here.flows -= 1;
            if here.flows == 0 {
                self.here.remove(it.coflow());
            }
        }
        Some(it)
    }

    // ---- order

    fn is_ordered(&self) -> bool {
        let silence = self.config.silence.unwrap_or(Duration::from_secs(1));
        self.heard_at.is_some_and(|at| self.time() < at + silence)
    }

    fn share(&self, coflow: &CoflowId) -> Share {
        match self.is_ordered() {
            true => Share::Rank(self.ranks.get(coflow).copied().unwrap_or(Rank::LAST)),
            false => Share::Even,
        }
    }

    fn order(&mut self, ranks: Vec<(CoflowId, Rank)>) {
        self.ranks = ranks.into_iter().collect();
        self.heard_at = Some(self.time());
        let rank = |it: &Flow| self.ranks.get(it.coflow()).copied();
        let list = self.flows.iter().filter_map(|(flow, it)| Some((*flow, rank(it)?))).collect();
        self.tell(CourierCommand::Schedule(Schedule::Ranks(list)));
    }

    // ---- looks

    fn look(&mut self) {
        let now = self.time();
        let flows = &self.flows;
        self.links.close_idle(now, |pair| flows.values().any(|it| it.pair == pair));
    }

    fn demand(&self) -> Vec<CoflowDemand> {
        let mut coflows: BTreeMap<CoflowId, CoflowDemand> = BTreeMap::new();
        for it in self.flows.values() {
            let id = it.coflow();
            let demand = coflows.entry(id.clone()).or_insert_with(|| CoflowDemand {
                application: id.application.clone(),
                coflow: id.number,
                here: Bytes::new(self.here.get(id).map_or(0, |it| it.bytes)),
                from: BTreeMap::new(),
            });
            let left = (it.state == State::Running).then(|| Bytes::new(it.length - it.delivery.passed()));
            demand
                .from
                .entry(it.host().clone())
                .and_modify(|sum| *sum = sum.zip(left).map(|(sum, left)| sum + left))
                .or_insert(left);
        }
        coflows.into_values().collect()
    }

    fn status(&self) -> AgentStatus {
        let stats = self.courier.stats();
        let ordered = self.is_ordered();
        let mut coflows: BTreeMap<CoflowId, CoflowStatus> = BTreeMap::new();
        for it in self.flows.values() {
            let id = it.coflow();
            let rank = self.ranks.get(id).filter(|_| ordered).map(|rank| rank.get());
            let status = coflows.entry(id.clone()).or_insert_with(|| CoflowStatus {
                application: id.application.clone(),
                coflow: id.number,
                rank,
                flows: 0,
                stalled: 0,
                bytes: self.here.get(id).map_or(0, |it| it.bytes),
                left: 0,
                from: Vec::new(),
            });
            status.flows += 1;
            status.stalled += usize::from(it.is_stalled());
            status.left += it.length - it.delivery.passed();
            let host = it.host().to_string();
            if !status.from.contains(&host) {
                status.from.push(host);
            }
        }
        let mut coflows: Vec<CoflowStatus> = coflows.into_values().collect();
        coflows.sort_by_key(|it| it.rank.unwrap_or(u32::MAX));
        let lane = |(id, up, bytes): (LaneId, bool, u64)| LaneStatus {
            host: self.peers.name_of(id.pair.peer).map_or_else(|| id.pair.peer.short(), |it| it.to_string()),
            class: id.class,
            number: id.number,
            up,
            bytes,
        };
        AgentStatus {
            ordered,
            coflows,
            lanes: self.links.each().map(lane).collect(),
            memory_used: self.budget.used().get(),
            memory_most: self.budget.most().get(),
            bytes_received: self.links.dialling().received.load(Ordering::Relaxed),
            flows_done: self.done,
            flows_broken: self.broken,
            blocks_again: stats.again,
            resets: self.links.resets(),
            malformed: self.malformed,
            silences: stats.silences,
            ..AgentStatus::default()
        }
    }
}

#[allow(clippy::disallowed_methods)] // This is the machine's driver.
fn now() -> Instant {
    Instant::now()
}
