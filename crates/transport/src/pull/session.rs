//! The receiver of one task: which symbols it asks of which source, and how it handles arrivals (SCDP §III-D to
//! §III-H).
//!
//! ```text
//!   symbol or header --> what is missing? --> more than is coming? --> the host's pull queue --> a pull, naming the block
//!         ^                                                                                            |
//!         +----------------------------------- source -------------------------------------------------+
//! ```
//! A flow has a window of symbols coming at most, that of its first push, so each arrival makes room for one pull. The
//! block of a pull is chosen when it leaves. The pull for the last symbol that nobody was asked for bears `fin`, and so
//! does every one that replaces it.
//!
//! Losses: a header says so by itself; where nothing trims, a packet is lost when enough later ones have come, and all that a flow
//! owes when it has been silent for a timeout. Then one more is asked for, and again after twice the time. The answer tells by its
//! number what is lost and what is only late.
//!
//! A block whose hash is wrong is pulled anew from one source alone ([`headwater_flow::task::blame`]). Symbols that
//! come to a member of a group after it was detached are kept all the same, but not counted on; and as long as they
//! come, this receiver asks for little by itself.
//!
//! Knows nothing of the task session with the controller: it is told of object, symbol size and flows. Its host owns the pull queue,
//! gives it its packets and polls it ([`Session::poll`], [`Session::pull`]).

mod blocks;
mod ending;
mod expected;
mod flow;
mod numbers;
mod side;

use core::ops::Range;

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, FetchId, FlowId, Geometry, NodeId, SymbolId, Time};
use headwater_wire::{Body, Class, FinReason, FlowGrant, Pull, SymbolHeader};

use super::{SessionConfig, SessionFlow, SessionStats};
use crate::pull::queue::PullQueue;
use crate::{Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure};
use blocks::{Arrival, Blocks};
use flow::Flow;
use headwater_flow::task::blame::{Blame, Trust};
use headwater_flow::task::outbox::Outbox;
use numbers::Seen;

/// Why a pull stands in the host's queue, and of which flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    place: u32,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// More is needed than is coming.
    More,
    /// The flow is silent: one more than anybody waits for.
    Overdue,
    /// The pull before may be lost: the same again.
    Repeat,
    /// The source is to know where the receiver is.
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nobody knows yet where symbols are to go.
    Preparing,
    Receiving,
    /// Flows are told that it is over.
    Ending,
    Ended,
}

/// The receiver of one task.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    /// Its number in the host's pull queue.
    turn: u32,
    geometry: Geometry,
    window: u32,
    phase: Phase,
    blocks: Option<Blocks>,
    /// By place; those that are over stay.
    flows: Vec<Flow>,
    /// The place that was looked for last.
    recent: usize,
    /// Pulls in the host's queue that will ask for something that is needed.
    waiting: u64,
    outbox: Outbox,
    /// When silent flows are looked for next, and flows that end.
    look_at: Time,
    last_useful: Time,
    trust: Trust,
    stats: SessionStats,
}

impl Session {
    /// A receiver of an object that is cut like this, by flows that push `initial_window` symbols each. `turn` is its number in the
    /// pull queue of its host.
    pub fn new(
        fetch: FetchId,
        config: SessionConfig,
        geometry: Geometry,
        initial_window: u16,
        turn: u32,
    ) -> Self {
        Session {
            config,
            turn,
            geometry,
            window: super::window(initial_window),
            phase: Phase::Preparing,
            blocks: None,
            flows: Vec::new(),
            recent: 0,
            waiting: 0,
            outbox: Outbox::new(fetch),
            look_at: Time::MAX,
            last_useful: Time::ZERO,
            trust: Trust::default(),
            stats: SessionStats::default(),
        }
    }

    /// Whether nothing is left to do; the machine may be dropped.
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Whether it has what it wants, or has given up; flows may still have to be told.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ending | Phase::Ended)
    }

    /// The counters at this moment.
    pub fn stats(&self) -> SessionStats {
        let mut stats = self.stats.clone();
        if let Some(blocks) = &self.blocks {
            stats.blocks = blocks.wanted();
            stats.blocks_done = blocks.wanted() - blocks.undone();
            stats.blocks_behind = blocks.decoding() as u32;
            stats.blocks_lossy = blocks.lossy();
            stats.needed = blocks.missing();
        }
        stats.flows = self.flows.iter().map(Flow::stats).collect();
        stats.flows.sort_by_key(|flow| flow.flow);
        stats
    }

    // ---- from the host

    /// The flows of the task are these now.
    pub fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, pulls: &mut PullQueue<Ask>) {
        if self.is_over() {
            return;
        }
        for place in 0..self.flows.len() {
            let flow = &self.flows[place];
            if flow.is_live() && grants.iter().all(|grant| grant.flow != flow.id()) {
                self.end_flow(now, place, FinReason::Cancelled);
            }
        }
        let of_groups: Vec<FlowId> = grants.iter().filter_map(|grant| grant.group).collect();
        let (groups, own): (Vec<_>, Vec<_>) =
            grants.into_iter().partition(|grant| of_groups.contains(&grant.flow));
        for mut grant in own {
            if let Some(flow) = self.flows.iter_mut().find(|flow| flow.id() == grant.flow) {
                let moved = flow.is_live().then(|| ReceiverEvent::moved(&mut flow.grant.at, &grant));
                moved.flatten().into_iter().for_each(|moved| self.outbox.event(moved));
                continue;
            }
            if self.trust.is_distrusted(grant.node) {
                continue;
            }
            let group = groups.iter().find(|group| grant.group == Some(group.flow));
            grant.group = group.map(|group| group.flow);
            self.bind(&grant);
            group.into_iter().for_each(|group| self.bind(group));
            self.add_flow(now, grant);
        }
        self.begin_flows(now, pulls);
        self.refill(now, pulls);
        self.look_soon(now);
    }

    fn bind(&mut self, grant: &FlowGrant) {
        self.outbox.event(ReceiverEvent::Bind(Box::new(Bind::from(grant))));
    }

    fn add_flow(&mut self, now: Time, grant: FlowGrant) {
        let flow = Flow::new(now, grant, self.window, &self.config);
        if let Some(blocks) = &mut self.blocks {
            blocks.add_place(&flow);
        }
        self.flows.push(flow);
    }

    /// A command of the driver.
    pub fn on_command(&mut self, now: Time, command: ReceiverCommand, pulls: &mut PullQueue<Ask>) {
        match command {
            ReceiverCommand::Start { wanted, have } => self.start(now, wanted, &have, pulls),
            ReceiverCommand::FlowPath { flow, path } => {
                if let Some(it) = self.flows.iter_mut().find(|it| it.id() == flow) {
                    it.path = Some(path);
                    self.begin_flows(now, pulls);
                    self.refill(now, pulls);
                    self.look_soon(now);
                }
            }
            ReceiverCommand::BlockDecoded { block } => self.on_decoded(now, block, pulls),
            ReceiverCommand::DecodeFailed { block, failure } => {
                self.on_decode_failed(now, block, failure, pulls)
            }
            ReceiverCommand::Cancel => self.fail(now, ReceiverFailure::Cancelled, pulls),
            // It has begun.
            ReceiverCommand::Fetch(_) => self.stats.strays += 1,
        }
    }

    fn start(&mut self, now: Time, wanted: Range<u32>, have: &[BlockIndex], pulls: &mut PullQueue<Ask>) {
        if self.phase != Phase::Preparing {
            return;
        }
        let SessionConfig { extra, open_blocks, .. } = self.config;
        let blocks = Blocks::new(self.geometry, wanted, have, extra, open_blocks);
        self.stats.source_symbols = blocks.missing();
        self.receive(now, blocks, pulls);
    }

    fn receive(&mut self, now: Time, mut blocks: Blocks, pulls: &mut PullQueue<Ask>) {
        self.flows.iter().for_each(|flow| blocks.add_place(flow));
        self.phase = Phase::Receiving;
        self.last_useful = now;
        let done = blocks.undone() == 0;
        self.blocks = Some(blocks);
        if done {
            return self.complete(now, pulls);
        }
        self.begin_flows(now, pulls);
        self.look_soon(now);
    }

    /// Flows of which something can be expected, now that it is known where symbols go.
    fn begin_flows(&mut self, now: Time, pulls: &mut PullQueue<Ask>) {
        let Some(blocks) = self.blocks.as_mut().filter(|_| self.phase == Phase::Receiving) else { return };
        let (opens, turn) = (self.config.opens_flows, self.turn);
        for (place, flow) in self.flows.iter_mut().enumerate() {
            if flow.has_begun() || !flow.is_live() || (opens && flow.path.is_none()) {
                continue;
            }
            flow.begin(now, opens);
            if opens {
                flow.waiting += 1;
                pulls.push(now, turn, Ask { place: place as u32, why: Why::Open });
            } else {
                let (index, of) = (flow.grant.index, flow.grant.of);
                for (block, count) in super::first_window(self.geometry, self.window, index, of) {
                    blocks.expect(place, block, count);
                    flow.expected.push(count);
                }
            }
        }
    }

    // ---- from the sources

    /// A packet of one of its flows.
    #[inline]
    pub fn on_packet(&mut self, now: Time, packet: Packet, pulls: &mut PullQueue<Ask>) {
        let Packet { path, datagram, .. } = packet;
        let Some((place, by_group)) = self.find(datagram.flow) else {
            self.stats.strays += 1;
            return;
        };
        if !by_group && !datagram.body.is_trimmed() {
            // The key says that it is the source; the address it sends from is its own affair. A header alone may be an
            // old one, repeated by anybody.
            self.flows[place].path = Some(path);
        }
        match datagram.body {
            Body::Symbol(header) => self.on_symbol(now, datagram.flow, place, by_group, &header, pulls),
            Body::Challenge { nonce } => self.outbox.send(path, datagram.flow, Body::Challenge { nonce }),
            Body::FinAck if !by_group => {
                self.unbind(place);
                self.look_soon(now);
            }
            Body::Detached if !by_group => self.on_detached(now, place, pulls),
            Body::Fin(_) if !by_group => self.on_farewell(now, place, pulls),
            _ => self.stats.strays += 1,
        }
    }

    /// The place of a flow that is not over, and whether it is the group's that serves it.
    #[inline]
    fn find(&mut self, flow: FlowId) -> Option<(usize, bool)> {
        let matches = |it: &Flow| match &it.group {
            _ if it.stand.is_over() => None,
            _ if it.id() == flow => Some(false),
            Some(group) if group.flow == flow => Some(true),
            _ => None,
        };
        if let Some(by_group) = self.flows.get(self.recent).and_then(matches) {
            return Some((self.recent, by_group));
        }
        let found = self.flows.iter().enumerate().find_map(|(place, it)| Some((place, matches(it)?)))?;
        self.recent = found.0;
        Some(found)
    }

    #[inline]
    fn on_symbol(
        &mut self,
        now: Time,
        id: FlowId,
        place: usize,
        by_group: bool,
        header: &SymbolHeader,
        pulls: &mut PullQueue<Ask>,
    ) {
        let (Some(blocks), Phase::Receiving) = (&mut self.blocks, self.phase) else { return };
        let flow = &mut self.flows[place];
        if !flow.is_live() {
            return;
        }
        let SymbolId { block, .. } = header.symbol;
        let answered = header.starved.then_some(header.assignment);
        let number = header.number.0 as u32;
        let came = flow.on_packet(now, number, block.0, header.trimmed, by_group, answered);
        if came.lost.packets > 0 {
            self.stats.lost += u64::from(came.lost.packets);
            (0..came.lost.packets).for_each(|_| blocks.lose(place, came.lost.near));
        }
        if came.restored > 0 {
            blocks.restore(place, came.restored);
        }
        if matches!(came.seen, Seen::Again | Seen::Absurd) {
            self.stats.arrivals += u64::from(!header.trimmed);
            self.stats.useless += 1;
            return self.ask(now, place, pulls);
        }
        let arrival = blocks.arrive(place, header.symbol, header.trimmed, came.counted);
        if by_group && flow.is_attached() {
            blocks.catch_up(place, header.symbol);
        }
        if came.vain > 0 {
            self.stats.lost += u64::from(came.vain);
            blocks.lose_oldest(place, came.vain);
        }
        match arrival {
            Arrival::Trimmed => {
                self.stats.trimmed += 1;
                flow.trimmed += 1;
            }
            Arrival::Useless | Arrival::Surplus => {
                self.stats.arrivals += 1;
                flow.brought.symbols += 1;
                self.stats.useless += u64::from(arrival == Arrival::Useless);
                self.stats.surplus += u64::from(arrival == Arrival::Surplus);
            }
            Arrival::Kept | Arrival::Complete => {
                self.stats.arrivals += 1;
                flow.brought.symbols += 1;
                flow.brought.useful += 1;
                flow.by_group += u64::from(by_group);
                self.last_useful = now;
                self.outbox.keep(id, header.symbol);
                if arrival == Arrival::Complete {
                    self.outbox.event(ReceiverEvent::Decode { block });
                    let behind = self.blocks.as_ref().map_or(0, |blocks| blocks.decoding() as u32);
                    self.stats.blocks_behind_most = self.stats.blocks_behind_most.max(behind);
                }
            }
        }
        self.ask(now, place, pulls);
    }

    /// Pulls from the flow at this place, as far as more is needed than is coming and its window has room.
    #[inline]
    fn ask(&mut self, now: Time, place: usize, pulls: &mut PullQueue<Ask>) {
        let Some(blocks) = self.blocks.as_mut() else { return };
        let flow = &mut self.flows[place];
        while flow.has_room(now) && blocks.needs_beyond(place, self.waiting) {
            flow.waiting += 1;
            self.waiting += 1;
            pulls.push(now, self.turn, Ask { place: place as u32, why: Why::More });
        }
    }

    /// Symbols are needed that were not needed before, or can be asked for that could not: asks every source that has
    /// room.
    fn refill(&mut self, now: Time, pulls: &mut PullQueue<Ask>) {
        if self.phase != Phase::Receiving {
            return;
        }
        (0..self.flows.len()).for_each(|place| self.ask(now, place, pulls));
    }

    /// The source says that the group has gone on without this receiver.
    fn on_detached(&mut self, now: Time, place: usize, pulls: &mut PullQueue<Ask>) {
        if self.flows[place].is_attached() {
            self.leave_group(now, place, pulls);
        } else if self.flows[place].is_detached() && !self.is_over() {
            // It has not heard that it is known: the newest pull says so again.
            self.push_again(now, place, pulls);
        }
    }

    fn push_again(&mut self, now: Time, place: usize, pulls: &mut PullQueue<Ask>) {
        let flow = &mut self.flows[place];
        if flow.waiting == 0 && flow.is_live() {
            flow.waiting += 1;
            pulls.push(now, self.turn, Ask { place: place as u32, why: Why::Repeat });
        }
    }

    /// From now on this receiver's own flow brings what it asks for.
    fn leave_group(&mut self, now: Time, place: usize, pulls: &mut PullQueue<Ask>) {
        let Some(blocks) = &mut self.blocks else { return };
        self.stats.detached += 1;
        self.flows[place].leave_group(now);
        blocks.leave_group(place);
        self.ask(now, place, pulls);
        if self.flows[place].waiting == 0 {
            // Nothing is needed, but the source is to know.
            self.push_again(now, place, pulls);
        }
        self.look_soon(now);
    }

    // ---- pulls

    /// A pull is due that was put into the host's queue. `None`: it is not wanted any more.
    #[inline]
    pub fn pull(&mut self, now: Time, ask: Ask) -> Option<Packet> {
        let place = ask.place as usize;
        let flow = self.flows.get_mut(place)?;
        flow.waiting = flow.waiting.saturating_sub(1);
        self.waiting -= u64::from(ask.why == Why::More && self.waiting > 0);
        let path = flow.path.filter(|_| flow.is_live() && self.phase == Phase::Receiving)?;
        let blocks = self.blocks.as_mut()?;
        let wants = match ask.why {
            Why::More => {
                let block = blocks.assign(place)?;
                flow.ask(now, true);
                blocks.wants(place, block)
            }
            Why::Overdue => {
                let block = blocks.assign_extra(place)?;
                let wants = blocks.wants(place, block);
                flow.ask(now, false);
                wants
            }
            Why::Repeat => {
                flow.repeat(now);
                blocks.any_for(place).map_or([None; 2], |block| blocks.wants(place, block))
            }
            Why::Open => {
                let assigned = blocks.assign_window(place, self.window);
                flow.open(now, assigned.map(|(pushed, _)| pushed));
                blocks.wants(place, assigned?.1)
            }
        };
        if ask.why != Why::More {
            // The patience with the answer begins now, and may be shorter than when the pull was put into the queue.
            self.look_at = self.look_at.min(flow.overdue_at().unwrap_or(Time::MAX));
        }
        self.stats.pulls += 1;
        let (fin, detached) = (blocks.needs_nothing(), flow.is_detached());
        let sequence = flow.expected.asked() as u32;
        let body = Body::Pull(Pull { sequence, fin, detached, wants });
        Some(Packet::of_flow(path, flow.id(), Class::Control, body))
    }

    // ---- blocks

    fn on_decoded(&mut self, now: Time, block: BlockIndex, pulls: &mut PullQueue<Ask>) {
        let Some(blocks) = &mut self.blocks else { return };
        let Some(replaced) = blocks.replaced(block) else { return };
        self.stats.repair_used += u64::from(replaced);
        self.last_useful = now;
        blocks.finish(block);
        let done = blocks.undone() == 0;
        if self.phase == Phase::Receiving {
            match done {
                true => self.complete(now, pulls),
                // There is room for more blocks.
                false => self.refill(now, pulls),
            }
        }
    }

    fn on_decode_failed(
        &mut self,
        now: Time,
        block: BlockIndex,
        failure: DecodeFailure,
        pulls: &mut PullQueue<Ask>,
    ) {
        let Some(blocks) = &mut self.blocks else { return };
        if blocks.replaced(block).is_none() {
            return;
        }
        self.last_useful = now;
        match failure {
            DecodeFailure::NeedMore => {
                self.stats.need_more += 1;
                blocks.need_more(block);
            }
            DecodeFailure::Corrupt => {
                self.stats.corrupt += 1;
                let blame = blocks.corrupt(block);
                let attempts = blocks.attempts(block);
                self.outbox.event(ReceiverEvent::Discard { block });
                if let Some(Blame::Liar(node)) = blame {
                    self.distrust(now, node);
                }
                if attempts >= self.config.attempts {
                    return self.fail(now, ReceiverFailure::Corrupt { block }, pulls);
                }
            }
        }
        self.refill(now, pulls);
        self.look_soon(now);
    }

    fn distrust(&mut self, now: Time, node: NodeId) {
        if !self.trust.distrust(node) {
            return;
        }
        for place in 0..self.flows.len() {
            if self.flows[place].grant.node == node {
                self.end_flow(now, place, FinReason::Distrusted);
            }
        }
        self.outbox.event(ReceiverEvent::Distrusted { node });
    }

    /// The next output; [`Output::Wake`] when there is nothing more to do now. Pulls come from the host's queue.
    #[inline]
    pub fn poll(&mut self, now: Time, pulls: &mut PullQueue<Ask>) -> Output<FromFetch> {
        if let Some(output) = self.outbox.pop() {
            return output;
        }
        while now >= self.look_at {
            self.look(now, pulls);
            if let Some(output) = self.outbox.pop() {
                return output;
            }
        }
        Output::Wake(Some(self.look_at).filter(|at| *at < Time::MAX))
    }
}
