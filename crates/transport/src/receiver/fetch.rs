//! One fetch: its task's session with the controller, and the transport that brings it.
//!
//! ```text
//!   Awaited --Accepted--> Push | Pull | Tree --Accepted, by another transport--> Push | Pull | Tree
//! ```
//! A transport knows flows and blocks, and nothing of the controller: the fetch derives the messages to the controller from the
//! transport's events to the driver.
//!
//! A fetch that goes on by another transport keeps what has arrived, partial blocks too, if the symbol size is the same. Its flows end
//! silently, since the controller stops their sources. In an overlay only whole blocks are kept: others count on all symbols of the
//! rest.

use core::mem::discriminant;
use std::collections::VecDeque;

use headwater_machine::{Output, Packet};
use headwater_units::{Duration, FetchId, FlowId, PathId, SymbolId, Time};
use headwater_wire::{Delivery, FlowGrant, Outcome, SpreadRule, ToReceiver};

use crate::pull::Ask;
use crate::pull::queue::PullQueue;
use crate::push::receiver::room_for;
use crate::transports::Side;
use headwater_flow::task::session::{Granted, TaskSession, Told};
use headwater_flow::task::side::HandedOn;
use headwater_flow::task::{
    FromFetch, ReceiverCommand, ReceiverConfig, ReceiverEvent, ReceiverFailure, ReceiverStats,
};

/// Symbols that each source is to push unasked to a receiver whose trees were forgotten (SCDP §III-D, IW).
const INSTEAD_OF_TREES: u16 = 64;

/// One fetch.
#[derive(Debug)]
pub(super) struct Fetch {
    id: FetchId,
    config: ReceiverConfig,
    /// Its number in the host's pull queue.
    turn: u32,
    task_session: TaskSession,
    /// Its transport, once that is known.
    by: Option<Delivery>,
    side: Side,
    outputs: VecDeque<Output<FromFetch>>,
    /// Time before which there is no message for the controller.
    talk_at: Time,
    /// Counters of transports that have brought it before.
    before: ReceiverStats,
    strays: u64,
}

impl Fetch {
    /// Asks at the first poll.
    pub(super) fn new(id: FetchId, config: ReceiverConfig, turn: u32) -> Self {
        Fetch {
            id,
            turn,
            task_session: TaskSession::new(&config),
            by: None,
            side: Side::Awaited,
            outputs: VecDeque::new(),
            talk_at: Time::ZERO,
            before: ReceiverStats::default(),
            strays: 0,
            config,
        }
    }

    fn event(&mut self, event: ReceiverEvent) {
        self.outputs.push_back(Output::Event(FromFetch(self.id, event)));
    }

    // ---- the controller

    /// Whether it is meant by something that came by this path.
    pub(super) fn is_concerned(&self, path: PathId, control: &ToReceiver) -> bool {
        self.task_session.concerns(path, control)
    }

    /// Hears what concerns it.
    pub(super) fn on_control(&mut self, now: Time, control: ToReceiver, pulls: &mut PullQueue<Ask>) {
        self.talk_at = Time::ZERO;
        let delivery = match &control {
            ToReceiver::Accepted { delivery, .. } => *delivery,
            _ => Delivery::Push,
        };
        if let (ToReceiver::UnknownTask { .. }, Side::Tree(_)) = (&control, &self.side) {
            // A controller that forgets the task has forgotten its trees, and gives none to one receiver.
            self.task_session.prefer(Delivery::Pull { initial_window: INSTEAD_OF_TREES });
        }
        match self.task_session.on_control(now, control) {
            Told::Nothing => {}
            Told::Stray => self.strays += 1,
            Told::Begins(granted) => self.begin(now, delivery, granted, pulls),
            Told::GoesOn(granted)
                if self.by.is_some_and(|by| discriminant(&by) == discriminant(&delivery)) =>
            {
                self.side.go_on(now);
                self.set_flows(now, granted.flows, pulls);
            }
            Told::GoesOn(granted) => {
                // Blocks that are here are not counted by parts of sources.
                let is_by_parts = delivery == Delivery::Push && self.config.spread == SpreadRule::Equal;
                self.go_on_by(now, delivery, granted, !is_by_parts, pulls);
            }
            Told::Flows(flows) => self.set_flows(now, flows, pulls),
            Told::Fails(failure) => self.fail(now, failure, pulls),
        }
        self.side.stir();
    }

    /// The task begins, perhaps anew, with blocks cut otherwise.
    fn begin(&mut self, now: Time, delivery: Delivery, granted: Granted, pulls: &mut PullQueue<Ask>) {
        match &mut self.side {
            // Its flows have yet to be closed.
            Side::Push(receiver) if delivery == Delivery::Push && self.by == Some(Delivery::Push) => {
                receiver.recut(now, granted.geometry);
                self.say_accepted(&granted);
                self.set_flows(now, granted.flows, pulls);
            }
            _ => self.go_on_by(now, delivery, granted, false, pulls),
        }
    }

    fn say_accepted(&mut self, granted: &Granted) {
        let &Granted { task, object, bytes, geometry, .. } = granted;
        let symbol_size = geometry.symbol_size();
        self.event(ReceiverEvent::Accepted { task, object, bytes, symbol_size });
    }

    /// Another transport brings it from now on; with what is here, if that serves it.
    fn go_on_by(
        &mut self,
        now: Time,
        delivery: Delivery,
        granted: Granted,
        keeps: bool,
        pulls: &mut PullQueue<Ask>,
    ) {
        let mut before = self.stats(now);
        before.flows.iter_mut().for_each(|flow| (flow.live, flow.outstanding) = (false, 0));
        let HandedOn { ledger, trust, bound } = std::mem::take(&mut self.side).hand_on();
        pulls.clear(self.turn);
        bound.into_iter().for_each(|flow| self.event(ReceiverEvent::Unbind { flow }));
        self.by = Some(delivery);
        self.side = Side::new(self.id, &self.config, granted.geometry, delivery, self.turn);
        self.side.trust(trust);
        match ledger.filter(|_| keeps) {
            Some(mut ledger) => {
                for block in ledger.release_all() {
                    self.event(ReceiverEvent::Discard { block });
                }
                self.side.resume(now, ledger, pulls);
            }
            None => {
                before.source_symbols = before.source_symbols.saturating_sub(before.needed);
                self.say_accepted(&granted);
            }
        }
        (self.before, self.strays) = (before, 0);
        self.set_flows(now, granted.flows, pulls);
    }

    fn set_flows(&mut self, now: Time, flows: Vec<FlowGrant>, pulls: &mut PullQueue<Ask>) {
        for grant in flows.iter().filter(|grant| self.side.is_distrusted(grant.node)) {
            self.task_session.distrust(grant.node, &mut self.outputs);
        }
        self.side.set_flows(now, flows, pulls);
    }

    /// Datagrams longer than `fits` do not arrive from one of the sources.
    #[cold]
    fn on_narrow_path(&mut self, now: Time, fits: u16) {
        let room = room_for(fits);
        let too_large = self.task_session.symbol_size() > room;
        if !self.task_session.is_running() || !too_large || room >= self.task_session.room() {
            return;
        }
        self.before.narrowed += 1;
        if let Side::Push(receiver) = &mut self.side {
            receiver.leave_task(now);
        }
        self.task_session.ask_with_room(now, room);
        self.talk_at = Time::ZERO;
    }

    // ---- sources and driver

    /// Takes a packet of one of its flows.
    // Once for every symbol; a call would copy the packet.
    #[inline(always)]
    pub(super) fn on_packet(&mut self, now: Time, packet: Packet, pulls: &mut PullQueue<Ask>) {
        let is_taken = self.side.on_packet(now, packet, pulls);
        self.strays += u64::from(!is_taken);
    }

    pub(super) fn on_command(&mut self, now: Time, command: ReceiverCommand, pulls: &mut PullQueue<Ask>) {
        let is_running = self.task_session.is_running();
        if matches!(command, ReceiverCommand::Cancel) {
            self.fail(now, ReceiverFailure::Cancelled, pulls);
        } else {
            let is_taken = self.side.on_command(now, command, is_running, pulls);
            self.strays += u64::from(!is_taken);
        }
        self.side.stir();
    }

    /// A pull of this fetch is due.
    #[inline]
    pub(super) fn pull(&mut self, now: Time, ask: Ask) -> Option<Packet> {
        match &mut self.side {
            Side::Pull(session) => session.pull(now, ask),
            _ => None,
        }
    }

    // ---- what goes out

    fn fail(&mut self, now: Time, failure: ReceiverFailure, pulls: &mut PullQueue<Ask>) {
        if self.task_session.is_over() {
            return;
        }
        if matches!(self.side, Side::Awaited) {
            self.end(now, outcome_of(&failure));
            self.event(ReceiverEvent::Failed(failure));
        } else {
            // It says so, and that ends the task session.
            self.side.fail(now, failure, pulls);
        }
    }

    fn end(&mut self, now: Time, outcome: Outcome) {
        if !self.task_session.is_over() {
            self.task_session.end(now, outcome);
        }
        self.talk_at = Time::ZERO;
    }

    /// The symbol to keep, if that is the next output and it is at hand.
    #[inline]
    pub(super) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.side.take_kept()
    }

    /// The packet to send, if that is the next output and it is cheap to know that.
    #[inline]
    pub(super) fn take_packet(&mut self) -> Option<Packet> {
        if self.outputs.is_empty() { self.side.take_packet() } else { None }
    }

    /// Time before which there is certainly nothing to do, if that is cheap to know; the fetch is not over then.
    #[inline]
    pub(super) fn quiet_until(&self, now: Time) -> Option<Time> {
        if now >= self.talk_at || !self.outputs.is_empty() {
            return None;
        }
        let until = self.side.quiet_until(now)?.min(self.talk_at);
        Some(until).filter(|until| *until < Time::MAX)
    }

    /// The next output; [`Output::Wake`] when there is nothing more to do now. Pulls come from the host's queue.
    pub(super) fn poll(&mut self, now: Time, pulls: &mut PullQueue<Ask>) -> Output<FromFetch> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            if let Side::Push(receiver) = &mut self.side
                && let Some(fits) = receiver.take_narrow()
            {
                self.on_narrow_path(now, fits);
            }
            if now >= self.talk_at {
                // A side that is looked after then forgets wakes that have become needless.
                self.side.stir();
            }
            let is_running = self.task_session.is_running();
            let wake = match self.side.poll(now, is_running, pulls) {
                Output::Wake(wake) => wake.unwrap_or(Time::MAX),
                Output::Transmit(packet) => return Output::Transmit(packet),
                Output::Event(FromFetch(id, event)) => {
                    self.overhear(now, &event);
                    return Output::Event(FromFetch(id, event));
                }
            };
            if self.side.take_alarm() {
                self.task_session.hurry(now);
                self.talk_at = Time::ZERO;
            }
            if now < self.talk_at {
                let wake = wake.min(self.talk_at);
                return Output::Wake(Some(wake).filter(|at| *at < Time::MAX));
            }
            let goes_on = self.talk(now, pulls);
            let next = self.task_session.next_wake().unwrap_or(Time::MAX);
            self.talk_at = if goes_on && self.outputs.is_empty() { next } else { Time::ZERO };
        }
    }

    /// Passes on those events of the transport that the controller is to know.
    #[inline]
    fn overhear(&mut self, now: Time, event: &ReceiverEvent) {
        match event {
            ReceiverEvent::Done => self.end(now, Outcome::Done),
            ReceiverEvent::Failed(failure) => self.end(now, outcome_of(failure)),
            ReceiverEvent::Distrusted { node } => self.task_session.distrust(*node, &mut self.outputs),
            // The task session ends with the last flow.
            ReceiverEvent::Unbind { .. } => self.talk_at = Time::ZERO,
            _ => {}
        }
    }

    /// Says to the controller what is due. False if it has come to nothing: nobody answers.
    fn talk(&mut self, now: Time, pulls: &mut PullQueue<Ask>) -> bool {
        if let Err(failure) = self.task_session.ask(now, self.side.has_begun(), &mut self.outputs) {
            self.fail(now, failure, pulls);
            self.side.stir();
            return false;
        }
        if self.task_session.is_feedback_due(now)
            && let Some(progress) = self.side.progress(now)
        {
            self.task_session.feedback(now, progress, &mut self.outputs);
        }
        self.task_session.part(now, self.side.has_ended(), &mut self.outputs);
        true
    }

    // ---- what is known

    /// Whether nothing is left to do or to say.
    pub(super) fn has_ended(&self) -> bool {
        self.task_session.has_ended()
    }

    /// The counters at this moment.
    pub(super) fn stats(&mut self, now: Time) -> ReceiverStats {
        let of = self.side.stats(now);
        let mut stats = self.before.clone();
        stats.room = self.task_session.room();
        stats.blocks = of.blocks;
        stats.blocks_done = of.blocks_done;
        stats.blocks_behind = of.blocks_behind;
        stats.blocks_behind_most = stats.blocks_behind_most.max(of.blocks_behind_most);
        stats.source_symbols += of.source_symbols;
        stats.needed = of.needed;
        stats.arrivals += of.arrivals;
        stats.useless += of.useless;
        stats.repair_used += of.repair_used;
        stats.corrupt += of.corrupt;
        stats.need_more += of.need_more;
        stats.timeouts += of.timeouts;
        stats.strays += of.strays + self.strays;
        stats.flows.extend(of.flows);
        stats
    }

    /// See [`super::Receivers::slack`].
    pub(super) fn slack(&self) -> Option<Duration> {
        self.side.slack()
    }

    /// Useful symbols so far of each flow, over or not.
    pub(super) fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_> {
        self.side.useful()
    }

    /// Useful symbols of a flow that is over; `None` if nothing ever came by it.
    pub(super) fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        match self.before.flows.iter().find(|ended| ended.flow == flow) {
            Some(ended) => Some(ended.useful),
            None => self.side.useful_of_ended(flow),
        }
    }
}

fn outcome_of(failure: &ReceiverFailure) -> Outcome {
    match failure {
        ReceiverFailure::Cancelled => Outcome::Cancelled,
        _ => Outcome::Failed,
    }
}
