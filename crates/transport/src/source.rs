//! A host's source: holds objects and sends their symbols to receivers, whichever transport asks for them (PPUSH §III-A,
//! "Source node"; SCDP §III-D).
//!
//! ```text
//!  controller: Push, SetTheta, Pause, Resume, Stop        receiver: Assign, ACK, ProbeAck; Pull; Fin
//!        |  ^ Pushing, Stopped, Report                          |  ^ symbols, Challenge, Probe, Fin, FinAck
//!        v  |                                                   v  |
//!  +-------------------------------- Source --------------------------------+
//!  |  PushFlow (PPUSH): decides itself what leaves when                     |  x flows, served in turns
//!  |  PullFlow (SCDP): sends what it is asked for                           |
//!  |  TreeFlow (Datacast): what it is asked for, new symbols at its rate     |
//!  |  RateFlow (PAM): at the rate that its receivers feed back               |
//!  +-------------------------------------------------------------------------+
//!        |  ^ Hold, Withdraw, BlockReady, FlowPath, TooLong
//!        v  | Opened, Prepare, Release, Closed
//!      driver: disk, encoder, sockets
//! ```
//!
//! An object may be sent on while it is still being received, symbols as they come, by flows that were opened for that
//! ([`FlowRole::Relay`]).
//!
//! Nothing is sent before it is known where the receiver is, from its first datagram or from the driver. Every message may
//! be lost, come twice or out of order. Flows that may send stand in a queue and take turns of one quantum; the others wait
//! for a timer or an input, so a call costs the logarithm of the number of flows.
//!
//! A driver should go on accepting datagrams of a flow for a while after [`SourceEvent::Closed`]: the receiver repeats
//! its FIN until the answer arrives, and the source answers as long as it remembers the flow.

mod commands;
mod groups;
mod relaying;
mod relays;
mod stats;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_machine::{Endpoint, Input, Output, Packet, Shares, SortedMap, Taker, Timers};
use headwater_units::{Bytes, Duration, FlowId, Geometry, ObjectId, PathId, Time};
use headwater_wire::{
    Body, Class, Control, Datagram, FinReason, FlowRole, MAX_FLOWS, Push, Refusal, ToController, ToSource,
};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

pub use commands::{Arriving, Relaying, SourceCommand};
pub use stats::SourceStats;

use crate::pull;
pub use crate::push::{AckInterval, LostSymbols, TailProbe};
use crate::rate;
pub use crate::transports::SourceConfig;
use crate::transports::{Common, Flow};
use crate::tree::Deals;
use headwater_flow::in_flight::AckOutcome;
use headwater_flow::pacer::RateLimit;
use headwater_flow::paths::PathMemory;
pub use headwater_flow::{FlowCounters, FlowStats};
use headwater_flow::{Opened, Shared, SourceEvent};
use relays::{Relays, Waiting};

/// Objects that were withdrawn, remembered to say "gone" rather than "unknown".
const GONE_MEMORY: usize = 1024;

/// Everything that a host sends.
#[derive(Debug)]
pub struct Source {
    common: Common,
    holdings: BTreeMap<ObjectId, Bytes>,
    gone: VecDeque<ObjectId>,
    flows: SortedMap<FlowId, Held>,
    /// Shares of the flows that callers have ordered.
    callers: Shares,
    /// Objects that are sent on while they are received.
    relays: Relays,
    ended: Ended,
    /// Flows that may send, the one whose turn it is in front.
    ready: VecDeque<FlowId>,
    /// Packets that it has sent in this turn.
    turn: u64,
    timers: Timers<FlowId>,
    report_at: Option<Time>,
    limit: Option<RateLimit>,
    stats: SourceStats,
    /// Changes of the ACK at hand; kept for its lists.
    outcome: AckOutcome,
}

/// A flow, and how it stands among the others.
#[derive(Debug)]
struct Held {
    flow: Flow,
    /// Path to its controller.
    controller: PathId,
    /// Whoever has ordered it, if that was not this node's controller.
    caller: Option<Taker>,
    /// Whether it is in the queue of flows that may send.
    queued: bool,
    /// Its entry in the table of timers, never later than its deadline.
    timer: Option<Time>,
}

impl Source {
    /// A source that holds nothing. The seed decides its nonces.
    pub fn new(config: SourceConfig, seed: [u8; 32]) -> Self {
        Source {
            holdings: BTreeMap::new(),
            gone: VecDeque::new(),
            flows: SortedMap::default(),
            callers: Shares::default(),
            relays: Relays::default(),
            ended: Ended::new(config.ended_memory),
            ready: VecDeque::new(),
            turn: 0,
            timers: Timers::default(),
            report_at: None,
            limit: config.limit.map(RateLimit::new),
            stats: SourceStats::default(),
            outcome: AckOutcome::default(),
            common: Common {
                shared: Shared {
                    out: VecDeque::new(),
                    rng: ChaCha12Rng::from_seed(seed),
                    memory: PathMemory::new(config.path_memory, config.push.rtt.min_window),
                    limited: false,
                    detached: Vec::new(),
                },
                pull: pull::Common::default(),
                deals: Deals::default(),
                rate: rate::Common::default(),
                none: (),
                config,
            },
        }
    }

    /// The flows, by id.
    pub fn flows(&self) -> impl Iterator<Item = FlowStats> + '_ {
        self.flows.values().map(|held| held.flow.stats())
    }

    /// One flow.
    pub fn flow(&self, flow: FlowId) -> Option<FlowStats> {
        self.flows.get(&flow).map(|held| held.flow.stats())
    }

    /// Packets of a flow that may leave in one piece, now (docs/decisions/0024): what one GSO send covers at most.
    pub fn quantum(&mut self, flow: FlowId) -> u64 {
        self.flows.get_mut(&flow).map_or(1, |held| held.flow.quantum())
    }

    /// How late a driver may come without the flows that it drives suffering from it: a part of their shortest round trip, nothing
    /// where others ask for each packet. `None`: no flow says.
    pub fn slack(&self) -> Option<Duration> {
        self.flows.values().filter_map(|held| held.flow.slack()).min()
    }

    /// Counters so far.
    pub fn stats(&self) -> SourceStats {
        self.stats
    }

    fn on_packet(&mut self, now: Time, packet: Packet) {
        let Packet { path, datagram: Datagram { flow, body, .. }, .. } = packet;
        match body {
            Body::Control(control) => match *control {
                Control::Source(order) => self.on_order(now, path, order),
                Control::Controller(_) | Control::Node(_) | Control::Receiver(_) => {
                    self.stats.unexpected += 1
                }
            },
            Body::Fin(_) => self.on_fin(now, flow, path),
            Body::Symbol(_)
            | Body::FinAck
            | Body::Cumulative(_)
            | Body::AckVector(_)
            | Body::Probe(_)
            | Body::Receipt(_)
            | Body::Detached
            | Body::Heartbeat { .. }
            | Body::Announcement(_)
            | Body::ScheduledSymbol(_)
            | Body::RateProbe(_)
            | Body::ScheduledFin(_) => self.stats.unexpected += 1,
            body => self.on_body(now, flow, path, &body),
        }
    }

    // ---- the controller

    fn on_order(&mut self, now: Time, path: PathId, order: ToSource) {
        match order {
            ToSource::Push(push) => self.on_push(now, path, push, None),
            // Of a flow that another has made nobody else is obeyed. A controller that comes back by another path says first what it
            // has ordered, with the flow's key.
            other if self.flows.get(&other.flow()).is_some_and(|held| held.controller != path) => {
                self.stats.unexpected += 1;
            }
            ToSource::SetTheta { flow, theta } => self.with_flow(flow, |f, _, _| f.set_theta(theta)),
            ToSource::Pause { flow } => self.with_flow(flow, |f, _, _| f.pause(now)),
            ToSource::Resume { flow } => self.with_flow(flow, |f, _, _| f.resume(now)),
            ToSource::Stop { flow } => {
                self.close(now, flow);
                // Also a flow never heard of: a push that is overtaken by its stop must not begin it later.
                self.ended.insert(flow);
                self.tell(path, ToController::Stopped { flow });
            }
        }
    }

    fn on_push(&mut self, now: Time, path: PathId, mut push: Push, caller: Option<Taker>) {
        let flow = push.flow;
        if self.common.config.gentle {
            push.class = Class::Gentle;
        }
        if let Some(known) = self.flows.get_mut(&flow) {
            if known.flow.is(&push) {
                // The order has come again, perhaps from a controller that has restarted or reconnected.
                known.controller = path;
                known.flow.order_again(now, &push);
                return self.tell(path, ToController::Pushing { flow });
            }
            return self.refuse(path, flow, Refusal::UnknownObject);
        }
        if self.ended.contains(flow) {
            // To begin it anew would use its packet numbers, and so its nonces, twice.
            return self.tell(path, ToController::Stopped { flow });
        }
        let relays = push.role == FlowRole::Relay && !self.holdings.contains_key(&push.object);
        if relays && !self.relays.may_enter(push.object) {
            return self.refuse(path, flow, Refusal::Gone);
        }
        if !relays && self.holdings.get(&push.object) != Some(&push.bytes) {
            let held = self.holdings.contains_key(&push.object) || self.gone.contains(&push.object);
            let reason = if held { Refusal::Gone } else { Refusal::UnknownObject };
            return self.refuse(path, flow, reason);
        }
        let Ok(geometry) = Geometry::new(push.bytes, push.symbol_size) else {
            return self.refuse(path, flow, Refusal::UnknownObject);
        };
        let most = self.common.config.max_flows;
        let has_share = caller.is_none_or(|caller| self.callers.has_room(&caller, 1, most));
        if self.flows.len() >= most || !has_share {
            return self.refuse(path, flow, Refusal::Full);
        }
        if let Some(caller) = &caller {
            self.callers.take(caller, 1);
        }
        self.stats.opened += 1;
        self.event(SourceEvent::Opened(Box::new(Opened {
            flow,
            task: push.task,
            key: push.key,
            object: push.object,
            bytes: push.bytes,
            symbol_size: push.symbol_size,
            class: push.class,
            at: push.at.clone(),
        })));
        if relays {
            self.relays.enter(push.object);
        }
        let opened = Flow::new(now, push, geometry, &mut self.common);
        let mut held = Held { flow: opened, controller: path, caller, queued: false, timer: None };
        self.timers.arm(&mut held.timer, held.flow.deadline(), flow);
        self.flows.insert(flow, held);
        self.report_at.get_or_insert(now + self.common.config.report_every);
        self.tell(path, ToController::Pushing { flow });
    }

    fn refuse(&mut self, path: PathId, flow: FlowId, reason: Refusal) {
        self.stats.refused += 1;
        self.tell(path, ToController::PushRefused { flow, reason });
    }

    fn report(&mut self, now: Time) {
        if self.report_at.is_none_or(|at| now < at) {
            return;
        }
        self.report_at = (!self.flows.is_empty()).then(|| now + self.common.config.report_every);
        let mut by_controller: BTreeMap<PathId, Vec<_>> = BTreeMap::new();
        let mut groups = Vec::new();
        for (&flow, held) in self.flows.iter() {
            match held.flow.sent_to_group() {
                None => by_controller.entry(held.controller).or_default().push(held.flow.stats().report()),
                Some(sent) => groups.push((held.controller, ToController::GroupSent { flow, sent })),
            }
        }
        groups.into_iter().for_each(|(path, control)| self.tell(path, control));
        self.report_transfers(now);
        for (path, reports) in by_controller {
            for flows in reports.chunks(MAX_FLOWS) {
                self.tell(path, ToController::Report { flows: flows.to_vec() });
            }
        }
    }

    // ---- the receiver

    #[inline]
    fn on_body(&mut self, now: Time, flow: FlowId, path: PathId, body: &Body) {
        let mut is_understood = true;
        self.with_flow(flow, |f, common, outcome| is_understood = f.hear(now, path, body, common, outcome));
        self.stats.unexpected += u64::from(!is_understood);
        self.tell_groups(now, flow, body);
    }

    fn on_fin(&mut self, now: Time, flow: FlowId, path: PathId) {
        match self.close(now, flow) {
            Some(controller) => self.tell(controller, ToController::Stopped { flow }),
            None if self.ended.contains(flow) => {}
            None => {
                self.stats.unknown_flow += 1;
                return;
            }
        }
        let answer = Packet::of_flow(path, flow, Class::Control, Body::FinAck);
        self.common.shared.out.push_back(Output::Transmit(answer));
    }

    // ---- the driver

    fn on_command(&mut self, now: Time, command: SourceCommand) {
        match command {
            SourceCommand::Hold { object, bytes } => {
                self.gone.retain(|o| *o != object);
                if self.holdings.insert(object, bytes).is_some_and(|before| before != bytes) {
                    self.end_flows_of(now, object);
                }
                self.on_all_here(object);
            }
            SourceCommand::Relay(relaying) => self.relay(&relaying),
            SourceCommand::Arriving { object, what } => self.on_arriving(now, object, what),
            SourceCommand::Withdraw { object } => {
                if self.holdings.remove(&object).is_some() {
                    self.gone.push_back(object);
                    if self.gone.len() > GONE_MEMORY {
                        self.gone.pop_front();
                    }
                }
                self.relays.end(object);
                self.end_flows_of(now, object);
            }
            SourceCommand::BlockReady { flow, block, repair } => {
                self.with_flow(flow, |f, _, _| {
                    f.on_block_ready(block, repair);
                });
            }
            SourceCommand::FlowPath { flow, path } => {
                self.with_flow(flow, |f, common, _| f.on_flow_path(now, path, common));
            }
            SourceCommand::TooLong { path, fits } => {
                let that_way = self.flows.iter().filter(|(_, held)| held.flow.open_path() == Some(path));
                let flows: Vec<FlowId> = that_way.map(|(id, _)| *id).collect();
                for flow in flows {
                    self.with_flow(flow, |f, common, _| {
                        if let Flow::Push(f) = f {
                            f.on_too_long(now, fits, &mut common.shared);
                        }
                    });
                }
            }
            SourceCommand::Limit { limit } => {
                self.common.config.limit = limit;
                self.limit = limit.map(RateLimit::new);
                self.common.shared.limited = false;
            }
            SourceCommand::PushOfCaller { path, caller, push } => {
                self.on_push(now, path, *push, Some(caller));
            }
        }
    }

    fn end_flows_of(&mut self, now: Time, object: ObjectId) {
        let of_object: Vec<FlowId> =
            self.flows.iter().filter(|(_, held)| held.flow.object() == object).map(|(id, _)| *id).collect();
        for flow in of_object {
            self.say_farewell(flow);
            if let Some(controller) = self.close(now, flow) {
                self.refuse(controller, flow, Refusal::Gone);
            }
        }
    }

    /// Tells a receiver that pulls that nothing comes of this flow any more, so that it asks others at once. Sent once:
    /// the controller takes the flow from it too.
    fn say_farewell(&mut self, flow: FlowId) {
        let Some(held) = self.flows.get(&flow) else { return };
        if let (Flow::Pull(_), Some(path)) = (&held.flow, held.flow.open_path())
            && held.flow.sent_to_group().is_none()
        {
            let farewell = Packet::of_flow(path, flow, Class::Control, Body::Fin(FinReason::Cancelled));
            self.common.shared.out.push_back(Output::Transmit(farewell));
        }
    }

    // ---- flows

    /// Ends a flow and returns where its controller is; `None` if there was no such flow.
    fn close(&mut self, now: Time, flow: FlowId) -> Option<PathId> {
        let mut closed = self.flows.remove(&flow)?;
        if let Some(packet) = closed.flow.last_word() {
            self.common.shared.out.push_back(Output::Transmit(packet));
        }
        if let Some(at) = closed.timer {
            self.timers.remove(at, flow);
        }
        if let Some(caller) = &closed.caller {
            self.callers.give_back(caller, 1);
        }
        self.ended.insert(flow);
        self.stats.closed += 1;
        let counters = closed.flow.stats().counters;
        self.stats.symbols_sent += counters.sent.get();
        self.stats.symbols_lost += counters.lost.get();
        self.event(SourceEvent::Closed { flow });
        closed.flow.leave(&mut self.common);
        self.relays.leave(closed.flow.object(), flow);
        if let Some(sent) = closed.flow.sent_to_group() {
            self.tell(closed.controller, ToController::GroupSent { flow, sent });
        }
        if let Some(group) = closed.flow.group() {
            self.leave(now, group, flow);
        }
        Some(closed.controller)
    }

    /// Changes a flow, which then may have something to send.
    #[inline]
    fn with_flow(&mut self, flow: FlowId, change: impl FnOnce(&mut Flow, &mut Common, &mut AckOutcome)) {
        let Some(held) = self.flows.get_mut(&flow) else {
            self.stats.unknown_flow += 1;
            return;
        };
        held.flow.look_again();
        change(&mut held.flow, &mut self.common, &mut self.outcome);
        enqueue(held, flow, &mut self.ready);
        self.timers.arm(&mut held.timer, held.flow.deadline(), flow);
    }

    fn fire_timers(&mut self, now: Time) {
        while let Some(flow) = self.timers.pop_due(now) {
            let held = self.flows.get_mut(&flow).expect("a closed flow takes its timer along");
            held.timer = None;
            held.flow.look_again();
            let is_over = held.flow.on_timer(now, &mut self.outcome, &mut self.common.shared);
            enqueue(held, flow, &mut self.ready);
            self.timers.arm(&mut held.timer, held.flow.deadline(), flow);
            if is_over && let Some(controller) = self.close(now, flow) {
                self.tell(controller, ToController::Stopped { flow });
            }
            self.tell_detached(now);
        }
    }

    /// The next symbol of the flow whose turn it is.
    fn transmit(&mut self, now: Time) -> Option<Packet> {
        while let Some(&flow) = self.ready.front() {
            if self.limit.is_some_and(|limit| limit.ready_at(now) > now) {
                self.common.shared.limited = true;
                return None;
            }
            let Some(held) = self.flows.get_mut(&flow) else {
                self.ready.pop_front();
                self.turn = 0;
                continue;
            };
            let packet = held.flow.next(now, &mut self.common);
            if packet.is_none() {
                held.queued = false;
                self.ready.pop_front();
                self.turn = 0;
                self.timers.arm(&mut held.timer, held.flow.deadline(), flow);
                continue;
            }
            self.turn += 1;
            if let Some(limit) = &mut self.limit {
                limit.on_sent(now, Bytes::new(held.flow.packet_bytes()));
            }
            // A packet that follows others can only put the deadline off.
            if held.flow.is_flight_new() {
                self.timers.arm(&mut held.timer, held.flow.deadline(), flow);
            }
            if self.turn >= held.flow.quantum() {
                self.ready.rotate_left(1);
                self.turn = 0;
            }
            return packet;
        }
        self.common.shared.limited = false;
        if let Some(limit) = &mut self.limit {
            limit.on_blocked();
        }
        None
    }

    /// When to poll again.
    fn wake(&self, now: Time) -> Option<Time> {
        let mut at = self.timers.first().min(self.report_at.unwrap_or(Time::MAX));
        if let Some(limit) = self.limit.filter(|_| !self.ready.is_empty()) {
            at = at.min(limit.ready_at(now));
        }
        (at < Time::MAX).then_some(at)
    }

    fn tell(&mut self, path: PathId, control: ToController) {
        self.common.shared.out.push_back(Output::Transmit(Packet::control(path, control)));
    }

    fn event(&mut self, event: SourceEvent) {
        self.common.shared.out.push_back(Output::Event(event));
    }
}

impl Endpoint for Source {
    type Command = SourceCommand;
    type Event = SourceEvent;

    #[inline]
    fn handle(&mut self, now: Time, input: Input<SourceCommand>) {
        match input {
            Input::Packet(packet) => self.on_packet(now, packet),
            Input::Command(command) => self.on_command(now, command),
        }
    }

    fn poll(&mut self, now: Time) -> Output<SourceEvent> {
        loop {
            if let Some(output) = self.common.shared.out.pop_front() {
                if !self.relays.is_empty() && self.is_held_up(&output) {
                    continue;
                }
                return output;
            }
            self.fire_timers(now);
            self.report(now);
            if !self.common.shared.out.is_empty() {
                continue;
            }
            if let Some(packet) = self.transmit(now) {
                return Output::Transmit(packet);
            }
            if self.common.shared.out.is_empty() {
                return Output::Wake(self.wake(now));
            }
        }
    }
}

fn enqueue(held: &mut Held, id: FlowId, ready: &mut VecDeque<FlowId>) {
    if !held.queued {
        held.queued = true;
        ready.push_back(id);
    }
}

/// The last flows that ended.
#[derive(Debug)]
struct Ended {
    order: VecDeque<FlowId>,
    flows: BTreeSet<FlowId>,
    most: usize,
}

impl Ended {
    fn new(most: usize) -> Self {
        Ended { order: VecDeque::new(), flows: BTreeSet::new(), most }
    }
    fn contains(&self, flow: FlowId) -> bool {
        self.flows.contains(&flow)
    }
    fn insert(&mut self, flow: FlowId) {
        if self.flows.insert(flow) {
            self.order.push_back(flow);
            if self.order.len() > self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.flows.remove(&oldest);
            }
        }
    }
}
