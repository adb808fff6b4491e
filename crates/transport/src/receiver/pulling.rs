//! A fetch that asks for each symbol, by pulls or up trees: its session with the controller, and the pulling session that comes of it.

use core::mem::discriminant;
use std::collections::VecDeque;

use headwater_machine::{Output, Packet};
use headwater_units::{Bytes, FetchId, FlowId, SymbolId, Time};
use headwater_wire::{Control, Delivery, FlowGrant, MarkSignal, Outcome};

use super::pulling_session::PullingSession;
use crate::pull::Ask;
use crate::pull::queue::PullQueue;
use crate::push::receiver::HandedOn;
use crate::task::session::{Granted, Progress, TaskSession, Told};
use crate::task::{CameBy, FlowStats, ReceiverConfig, ReceiverStats, SessionFlow};
use crate::{FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure};

/// From so many waiting blocks on, decoder or disk hold the task up.
const HELD_UP: usize = 8;

/// What each source is to push unasked to a receiver whose trees were forgotten, in symbols (SCDP §III-D, IW).
const INSTEAD_OF_TREES: u16 = 64;

/// The receiver of one task.
#[derive(Debug)]
pub(super) struct PullingReceiver {
    fetch: FetchId,
    config: ReceiverConfig,
    task_session: TaskSession,
    /// Its number in the host's pull queue.
    turn: u32,
    delivery: Delivery,
    /// Once the controller has accepted.
    session: Option<PullingSession>,
    outputs: VecDeque<Output<FromFetch>>,
    /// Before this moment nothing is to be said to the controller.
    talk_at: Time,
    /// What was counted while sources pushed.
    before: ReceiverStats,
    strays: u64,
}

impl PullingReceiver {
    /// Goes on with a task session whose controller is about to say that the task is of this kind.
    pub(super) fn new(before: HandedOn, turn: u32, delivery: Delivery) -> Self {
        let HandedOn { fetch, config, task_session, bound, stats } = before;
        let unbind = |flow| Output::Event(FromFetch(fetch, ReceiverEvent::Unbind { flow }));
        PullingReceiver {
            fetch,
            config,
            task_session,
            turn,
            delivery,
            session: None,
            outputs: bound.into_iter().map(unbind).collect(),
            talk_at: Time::ZERO,
            before: stats,
            strays: 0,
        }
    }

    /// What it says to its controller, and how far that is.
    pub(super) fn task_session(&self) -> &TaskSession {
        &self.task_session
    }

    fn event(&mut self, event: ReceiverEvent) {
        self.outputs.push_back(Output::Event(FromFetch(self.fetch, event)));
    }

    // ---- what comes in

    /// Hears what a controller says about its task.
    pub(super) fn on_control(&mut self, now: Time, control: Control, pulls: &mut PullQueue<Ask>) {
        self.talk_at = Time::ZERO;
        let delivery = match &control {
            // Whoever forgets the task has forgotten its trees, and gives none to one receiver.
            Control::UnknownTask { .. } if matches!(self.session, Some(PullingSession::Trees(_))) => {
                self.task_session.prefer(Delivery::Pull { initial_window: INSTEAD_OF_TREES });
                self.delivery
            }
            Control::Accepted { delivery, .. } if *delivery != Delivery::Push => *delivery,
            _ => self.delivery,
        };
        match self.task_session.on_control(now, control) {
            Told::Nothing => {}
            Told::Stray => self.strays += 1,
            Told::Begins(granted) => self.begin(now, delivery, granted, pulls),
            Told::GoesOn(granted) if discriminant(&delivery) != discriminant(&self.delivery) => {
                self.begin(now, delivery, granted, pulls);
            }
            Told::GoesOn(Granted { flows, .. }) | Told::Flows(flows) => self.set_flows(now, flows, pulls),
            Told::Fails(failure) => self.fail(now, failure, pulls),
        }
    }

    fn begin(&mut self, now: Time, delivery: Delivery, granted: Granted, pulls: &mut PullQueue<Ask>) {
        let Granted { task, object, bytes, geometry, flows } = granted;
        self.delivery = delivery;
        // Cut otherwise than before, or brought otherwise: what was under way is nothing to the new task.
        if let Some(before) = self.session.take() {
            pulls.clear(self.turn);
            before.bound().into_iter().for_each(|flow| self.event(ReceiverEvent::Unbind { flow }));
        }
        self.session =
            Some(PullingSession::new(self.fetch, &self.config, geometry, self.delivery, self.turn));
        let symbol_size = geometry.symbol_size();
        self.event(ReceiverEvent::Accepted { task, object, bytes, symbol_size });
        self.set_flows(now, flows, pulls);
    }

    fn set_flows(&mut self, now: Time, flows: Vec<FlowGrant>, pulls: &mut PullQueue<Ask>) {
        let Some(session) = &mut self.session else { return };
        for grant in flows.iter().filter(|grant| session.is_distrusted(grant.node)) {
            self.task_session.distrust(grant.node, &mut self.outputs);
        }
        session.set_flows(now, flows, pulls);
    }

    /// Takes a packet of one of its flows.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Time, packet: Packet, pulls: &mut PullQueue<Ask>) {
        match &mut self.session {
            Some(session) => session.on_packet(now, packet, pulls),
            None => self.strays += 1,
        }
    }

    pub(super) fn on_command(&mut self, now: Time, command: ReceiverCommand, pulls: &mut PullQueue<Ask>) {
        match (command, &mut self.session) {
            (ReceiverCommand::Cancel, _) => self.fail(now, ReceiverFailure::Cancelled, pulls),
            (command, Some(session)) => session.on_command(now, command, pulls),
            (_, None) => self.strays += 1,
        }
    }

    /// The symbol to keep, if one has just come.
    #[inline]
    pub(super) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.session.as_mut()?.take_kept()
    }

    /// A pull is due that was put into the host's queue.
    #[inline]
    pub(super) fn pull(&mut self, now: Time, ask: Ask) -> Option<Packet> {
        self.session.as_mut()?.pull(now, ask)
    }

    // ---- what goes out

    fn fail(&mut self, now: Time, failure: ReceiverFailure, pulls: &mut PullQueue<Ask>) {
        if self.task_session.is_over() {
            return;
        }
        match &mut self.session {
            // It says so, and that ends the task session.
            Some(session) => session.fail(now, failure, pulls),
            None => {
                self.end(now, outcome_of(&failure));
                self.event(ReceiverEvent::Failed(failure));
            }
        }
    }

    fn end(&mut self, now: Time, outcome: Outcome) {
        if !self.task_session.is_over() {
            self.task_session.end(now, outcome);
        }
        self.talk_at = Time::ZERO;
    }

    /// The next output; [`Output::Wake`] when there is nothing more to do now. Pulls come from the host's queue.
    #[inline]
    pub(super) fn poll(&mut self, now: Time, pulls: &mut PullQueue<Ask>) -> Output<FromFetch> {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        let wake = match self.session.as_mut().map(|session| session.poll(now, pulls)) {
            None => None,
            Some(Output::Wake(wake)) => wake,
            Some(Output::Event(FromFetch(fetch, event))) => {
                self.overhear(now, &event);
                return Output::Event(FromFetch(fetch, event));
            }
            Some(output) => return output,
        };
        if now >= self.talk_at {
            self.talk(now, pulls);
            if let Some(output) = self.outputs.pop_front() {
                self.talk_at = Time::ZERO;
                return output;
            }
            self.talk_at = self.task_session.next_wake().unwrap_or(Time::MAX);
        }
        let wake = self.talk_at.min(wake.unwrap_or(Time::MAX));
        Output::Wake(Some(wake).filter(|at| *at < Time::MAX))
    }

    /// What the session says that the controller is to know.
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

    fn talk(&mut self, now: Time, pulls: &mut PullQueue<Ask>) {
        let begun = self.session.is_some();
        if let Err(failure) = self.task_session.ask(now, begun, &mut self.outputs) {
            return self.fail(now, failure, pulls);
        }
        if self.task_session.is_feedback_due(now)
            && let Some(session) = &mut self.session
        {
            let progress = Progress {
                first_undecoded: session.first_undecoded(),
                needed: session.needed(),
                flows: session.views(now),
                held_up: session.blocks_behind() >= HELD_UP,
            };
            self.task_session.feedback(now, progress, &mut self.outputs);
        }
        let flows_are_gone = self.session.as_ref().is_none_or(PullingSession::has_ended);
        self.task_session.part(now, flows_are_gone, &mut self.outputs);
    }

    // ---- what is known

    /// The counters at this moment.
    pub(super) fn stats(&self) -> ReceiverStats {
        let mut stats = self.before.clone();
        stats.room = self.task_session.room();
        stats.strays += self.strays;
        let Some(session) = &self.session else { return stats };
        let symbol = u64::from(self.task_session.symbol_size());
        let of = session.stats();
        stats.blocks = of.blocks;
        stats.blocks_done = of.blocks_done;
        stats.blocks_behind = of.blocks_behind;
        stats.blocks_behind_most = stats.blocks_behind_most.max(of.blocks_behind_most);
        stats.source_symbols += of.source_symbols;
        stats.needed = of.needed;
        stats.arrivals += of.arrivals;
        stats.useless += of.useless + of.surplus;
        stats.repair_used += of.repair_used;
        stats.corrupt += of.corrupt;
        stats.need_more += of.need_more;
        stats.timeouts += of.timeouts;
        stats.strays += of.strays;
        stats.flows.extend(of.flows.iter().map(|flow| flow_stats(flow, session.came_by(), symbol)));
        stats
    }

    /// Useful symbols so far of each flow, over or not.
    pub(super) fn useful(&self) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        self.session.iter().flat_map(PullingSession::useful)
    }

    /// Useful symbols of a flow that is over; `None` if nothing ever came by it.
    pub(super) fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        if let Some(ended) = self.before.flows.iter().find(|ended| ended.flow == flow) {
            return Some(ended.useful);
        }
        let flow = self.session.as_ref()?.flow(flow)?;
        (flow.ended && flow.symbols > 0).then_some(flow.useful)
    }
}

fn outcome_of(failure: &ReceiverFailure) -> Outcome {
    match failure {
        ReceiverFailure::Cancelled => Outcome::Cancelled,
        _ => Outcome::Failed,
    }
}

fn flow_stats(of: &SessionFlow, came_by: CameBy, symbol: u64) -> FlowStats {
    FlowStats {
        flow: of.flow,
        node: of.node,
        came_by,
        bytes: Bytes::new(of.useful * symbol),
        symbols: of.symbols,
        useful: of.useful,
        by_group: Bytes::new(of.by_group * symbol),
        relays: of.relays,
        lost: of.lost,
        marked: 0,
        rate: of.rate,
        starved: 0,
        outstanding: of.coming,
        turnaround: of.rtt,
        live: !of.ended && !of.silent,
        silent: of.silent,
        signal: MarkSignal::Unknown,
    }
}
