//! The receiver of a scheduled transfer: takes symbols in, feeds offers back, and says what is missing (PAM §III-B).
//!
//! ```text
//!   probe, symbol --> numbers: is something lost? --> NACK: what each block lacks, with the offer
//!        |       `--> offer (Alg. 1) ---------------> feedback, now and then
//!        `--> ledger --> a block has enough: decode --> done
//! ```
//! A flow is opened by a word that answers no packet and is repeated until something comes. Nothing is answered before
//! it is known where symbols go, so a source does not begin without a receiver that is not ready.
//!
//! Flow control is an offer that is less than the path's (§III-B): no more than the configured limit, and ever less as more than half of
//! the blocks that may be open wait for the decoder.
//!
//! All of the object is sent, whatever is here already: a source does not know. Of several sources one sends; another takes its place when
//! that one goes. So of a wrong block it is known who sent it.

mod flow;
mod lacking;
mod side;

use core::ops::Range;

use headwater_machine::Packet;
use headwater_units::{BitRate, BlockIndex, Duration, FetchId, FlowId, Geometry, NodeId, SymbolId, Time};
use headwater_wire::{
    Body, Delivery, FinReason, FlowGrant, RoundTrip, ScheduledSymbol, Scheduling, TransferEnd,
};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::RateReceiverConfig;
use super::feedback::Offered;
use crate::{Bind, DecodeFailure, ReceiverCommand, ReceiverEvent, ReceiverFailure};
use flow::Flow;
use headwater_flow::task::blame::{Blame, Trust};
use headwater_flow::task::ledger::Ledger;
use headwater_flow::task::outbox::Outbox;
use headwater_flow::task::{ReceiverConfig, SessionConfig, SessionStats};
use lacking::Nacks;

/// One transfer.
#[derive(Debug)]
pub(crate) struct RateReceiver {
    delivery: Delivery,
    config: RateReceiverConfig,
    session: SessionConfig,
    limit: Option<BitRate>,
    geometry: Geometry,
    /// Once it is known where symbols go.
    ledger: Option<Ledger<()>>,
    /// Blocks that the source has begun to send, as far as is known.
    begun: u32,
    nacks: Nacks,
    /// The one that brings symbols, and those that are over.
    flows: Vec<Flow>,
    /// Sources that may take its place, each with its group.
    spare: Vec<(FlowGrant, Option<FlowGrant>)>,
    trust: Trust,
    outbox: Outbox,
    rng: ChaCha12Rng,
    /// When something useful came last, or a source said that it waits.
    last_useful: Time,
    over: bool,
    stats: SessionStats,
}

/// A datagram of a transfer, but for a symbol's name.
#[derive(Clone, Copy, Debug)]
struct Came {
    /// The place of its flow.
    place: usize,
    /// By the group's.
    by_group: bool,
    number: u32,
    is_probe: bool,
    scheduling: Scheduling,
    round_trip: RoundTrip,
}

impl RateReceiver {
    /// Of an object that is cut like this.
    pub(crate) fn new(
        fetch: FetchId,
        config: &ReceiverConfig,
        session: SessionConfig,
        geometry: Geometry,
        delivery: Delivery,
    ) -> Self {
        RateReceiver {
            delivery,
            config: config.rate,
            session,
            limit: config.limit,
            geometry,
            ledger: None,
            begun: 0,
            nacks: Nacks::default(),
            flows: Vec::new(),
            spare: Vec::new(),
            trust: Trust::default(),
            outbox: Outbox::new(fetch),
            rng: ChaCha12Rng::from_seed(seed(config, fetch)),
            last_useful: Time::ZERO,
            over: false,
            stats: SessionStats::default(),
        }
    }

    fn receivers(&self) -> u16 {
        match self.delivery {
            Delivery::Rate { receivers, .. } => receivers,
            _ => 1,
        }
    }

    fn live(&self) -> Option<usize> {
        self.flows.iter().position(Flow::is_live)
    }

    // ---- from the driver

    fn start(&mut self, now: Time, wanted: Range<u32>, have: &[BlockIndex]) {
        if self.ledger.is_none() && !self.over {
            let ledger = Ledger::new(self.geometry, wanted, have);
            self.stats.source_symbols = ledger.needed();
            self.receive(now, ledger);
        }
    }

    fn receive(&mut self, now: Time, ledger: Ledger<()>) {
        self.last_useful = now;
        let done = ledger.undone() == 0;
        self.ledger = Some(ledger);
        self.flows.iter_mut().for_each(|flow| flow.begin(now));
        if done {
            self.complete(now);
        }
    }

    /// The sources that may send are these now.
    fn grant(&mut self, now: Time, grants: Vec<FlowGrant>) {
        if self.over {
            return;
        }
        for place in 0..self.flows.len() {
            if grants.iter().all(|it| it.flow != self.flows[place].id()) {
                self.end_flow(now, place, FinReason::Cancelled);
            }
        }
        let of_groups: Vec<FlowId> = grants.iter().filter_map(|grant| grant.group).collect();
        let (groups, own): (Vec<_>, Vec<_>) =
            grants.into_iter().partition(|grant| of_groups.contains(&grant.flow));
        self.spare.clear();
        for grant in own {
            if let Some(known) = self.flows.iter_mut().find(|flow| flow.id() == grant.flow) {
                let moved = known.is_live().then(|| ReceiverEvent::moved(&mut known.grant.at, &grant));
                moved.flatten().into_iter().for_each(|moved| self.outbox.event(moved));
                continue;
            }
            let group = groups.iter().find(|group| grant.group == Some(group.flow)).cloned();
            self.spare.push((grant, group));
        }
        self.replace_source(now);
    }

    /// Another source begins if none sends.
    fn replace_source(&mut self, now: Time) {
        if self.over || self.live().is_some() {
            return;
        }
        let trust = &self.trust;
        let Some(at) = self.spare.iter().position(|(grant, _)| !trust.is_distrusted(grant.node)) else {
            return;
        };
        let (grant, group) = self.spare.remove(at);
        for bound in core::iter::once(&grant).chain(&group) {
            self.outbox.event(ReceiverEvent::Bind(Box::new(Bind::from(bound))));
        }
        let mut flow = Flow::new(now, grant, group.map(|group| group.flow), self.config, self.receivers());
        if self.ledger.is_some() {
            flow.begin(now);
        }
        self.begun = 0;
        self.nacks = Nacks::default();
        self.flows.push(flow);
    }

    fn on_decoded(&mut self, now: Time, block: BlockIndex) {
        let Some(ledger) = &mut self.ledger else { return };
        let Some(at) = decoding(ledger, block) else { return };
        self.stats.repair_used += u64::from(ledger[at].here.source_symbols_missing());
        let Some(finished) = ledger.finish(at) else { return };
        self.last_useful = now;
        if ledger.undone() == 0 {
            return self.complete(now);
        }
        for node in self.trust.suspect(finished.here.trial.on_verified()) {
            self.distrust(now, node);
        }
    }

    fn on_decode_failed(&mut self, now: Time, block: BlockIndex, failure: DecodeFailure) {
        let Some(ledger) = &mut self.ledger else { return };
        let Some(at) = decoding(ledger, block) else { return };
        self.last_useful = now;
        let mut blame = Blame::Unclear;
        match failure {
            DecodeFailure::NeedMore => {
                self.stats.need_more += 1;
                if ledger[at].here.source_symbols_missing() > 0 {
                    ledger.need_more(at, self.session.extra);
                } else {
                    // All source symbols were there: a decoder that says this has lost some.
                    ledger.restart(at);
                    self.outbox.event(ReceiverEvent::Discard { block });
                }
            }
            DecodeFailure::Corrupt => {
                self.stats.corrupt += 1;
                blame = ledger.corrupt(at);
                self.outbox.event(ReceiverEvent::Discard { block });
            }
        }
        if ledger[at].here.attempts() >= self.session.attempts {
            return self.fail_with(now, ReceiverFailure::Corrupt { block });
        }
        if let Blame::Liar(node) = blame {
            self.distrust(now, node);
        }
        self.nacks.something_is_lost(now, &mut self.rng);
    }

    fn distrust(&mut self, now: Time, node: NodeId) {
        if !self.trust.distrust(node) {
            return;
        }
        self.outbox.event(ReceiverEvent::Distrusted { node });
        for place in 0..self.flows.len() {
            if self.flows[place].grant.node == node {
                self.end_flow(now, place, FinReason::Distrusted);
            }
        }
        self.replace_source(now);
    }

    // ---- from the source

    /// The place of a flow that is not over, and whether it is the group's that serves it.
    fn find(&self, flow: FlowId) -> Option<(usize, bool)> {
        self.flows.iter().enumerate().find_map(|(place, it)| Some((place, it.brings(flow)?)))
    }

    fn on_datagram(&mut self, now: Time, packet: &Packet) {
        let flow = packet.datagram.flow;
        let Some((place, by_group)) = self.find(flow) else {
            self.stats.strays += 1;
            return;
        };
        if !by_group && !packet.datagram.body.is_trimmed() {
            // The key says that it is the source; the address it sends from is its own affair.
            self.flows[place].path = Some(packet.path);
        }
        let came = |number, is_probe, scheduling, round_trip| Came {
            place,
            by_group,
            number,
            is_probe,
            scheduling,
            round_trip,
        };
        match &packet.datagram.body {
            Body::ScheduledSymbol(it) => {
                let came = came(it.number, false, it.scheduling, it.round_trip);
                self.on_symbol(now, flow, &came, it);
            }
            Body::RateProbe(it) => {
                if self.on_scheduled(now, &came(it.number, true, it.scheduling, it.round_trip)) {
                    // Its turn has not come, which may take longer than all patience with a source that is gone.
                    self.last_useful = now;
                }
            }
            Body::ScheduledFin(it) => self.on_fin(now, place, by_group, it.end),
            Body::Challenge { nonce } => {
                self.outbox.send(packet.path, flow, Body::Challenge { nonce: *nonce });
            }
            Body::FinAck if !by_group && !self.flows[place].is_live() => self.unbind(place),
            Body::Detached if !by_group => self.on_detached(now, place),
            _ => self.stats.strays += 1,
        }
    }

    /// Handles the common part of every datagram that goes down the tree. False if it is a copy.
    fn on_scheduled(&mut self, now: Time, came: &Came) -> bool {
        if self.ledger.is_none() || self.over || !self.flows[came.place].is_live() {
            return false;
        }
        let (scheduling, receivers) = (self.within_limits(came.scheduling), self.receivers());
        let flow = &mut self.flows[came.place];
        if came.by_group {
            flow.return_to_group(now, self.config, receivers);
        }
        if !flow.answers_to(now, came.by_group) {
            // A gift: what the group gets, after this receiver has left it.
            return true;
        }
        let Some(lost) = flow.arrivals.arrive(came.number, came.is_probe) else { return false };
        let round_trip = came.round_trip.duration();
        let offered = Offered { number: came.number, is_probe: came.is_probe, scheduling, round_trip };
        flow.feedback.on_datagram(now, &offered, &mut self.rng);
        self.nacks.set_round_trip(round_trip);
        if lost > 0 {
            self.stats.lost += lost;
            if came.is_probe {
                // Lost at the end: of blocks that nothing has come of, perhaps.
                let blocks = lost / u64::from(self.geometry.source_symbols(BlockIndex(0)).max(1)) + 1;
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                self.begun = self.begun.saturating_add(blocks).min(self.geometry.layout().block_count());
            }
            self.nacks.something_is_lost(now, &mut self.rng);
        }
        true
    }

    fn on_symbol(&mut self, now: Time, by: FlowId, came: &Came, it: &ScheduledSymbol) {
        if !self.on_scheduled(now, came) {
            return;
        }
        let block = it.symbol.block.0;
        let begun = block.saturating_add(1).min(self.geometry.layout().block_count());
        self.begun = self.begun.max(begun);
        let flow = &mut self.flows[came.place];
        if came.by_group {
            flow.on_block_of_group(block);
        }
        if it.trimmed {
            flow.trimmed += 1;
            self.stats.trimmed += 1;
            return self.nacks.something_is_lost(now, &mut self.rng);
        }
        self.stats.arrivals += 1;
        flow.brought.symbols += 1;
        let (own, node) = (flow.id(), flow.grant.node);
        match self.take(it.symbol, own, node) {
            Arrival::Useless => self.stats.useless += 1,
            Arrival::NoRoom => {
                self.stats.surplus += 1;
                self.nacks.something_is_lost(now, &mut self.rng);
            }
            Arrival::Kept { complete } => {
                let flow = &mut self.flows[came.place];
                flow.brought.useful += 1;
                flow.by_group += u64::from(came.by_group);
                self.last_useful = now;
                if begun < self.begun {
                    self.nacks.on_repair();
                }
                self.outbox.keep(by, it.symbol);
                if complete {
                    self.outbox.event(ReceiverEvent::Decode { block: it.symbol.block });
                    let behind = self.ledger.as_ref().map_or(0, Ledger::decoding) as u32;
                    self.stats.blocks_behind_most = self.stats.blocks_behind_most.max(behind);
                }
            }
        }
    }

    /// Takes a symbol in that this flow has brought, of this node.
    fn take(&mut self, symbol: SymbolId, flow: FlowId, node: NodeId) -> Arrival {
        let Some(ledger) = &mut self.ledger else { return Arrival::Useless };
        let (block, esi) = (symbol.block.0, symbol.esi.0);
        let at = match ledger.find_again(block) {
            Some(at) => at,
            None if !ledger.wanted().contains(&block) || ledger.is_done(block) => return Arrival::Useless,
            None if block - ledger.first_undone().0 >= self.session.open_blocks => return Arrival::NoRoom,
            None => ledger.open(block, ()),
        };
        let here = &mut ledger[at].here;
        if here.trial.has_sole_source() && here.trial.sole_source().is_none() {
            here.trial.give(flow);
        }
        if !here.is_filling() || !here.trial.admits(flow) || !here.insert(esi) {
            return Arrival::Useless;
        }
        here.trial.on_symbol(flow, node, false);
        let complete = here.missing() == 0;
        if complete {
            ledger.decode(at);
        }
        Arrival::Kept { complete }
    }

    /// The offer, as far as this receiver can take it (Alg. 1, line 1).
    fn within_limits(&self, mut scheduling: Scheduling) -> Scheduling {
        if let Some(limit) = self.limit {
            scheduling.lower_offer(limit);
        }
        let most = f64::from(self.session.open_blocks.max(1));
        let waiting = self.ledger.as_ref().map_or(0, Ledger::decoding) as f64;
        if waiting * 2.0 > most {
            let share = 2.0 * (most - waiting).max(0.0) / most;
            scheduling.lower_offer(scheduling.offer().mul_f64(share));
        }
        scheduling
    }

    /// Others go on without this receiver; its own flow brings what it misses.
    fn on_detached(&mut self, now: Time, place: usize) {
        let receivers = self.receivers();
        let flow = &mut self.flows[place];
        if flow.is_live() && flow.leave_group(now, self.config, receivers) {
            self.stats.detached += 1;
            self.nacks.something_is_lost(now, &mut self.rng);
        }
    }

    fn on_fin(&mut self, now: Time, place: usize, by_group: bool, end: TransferEnd) {
        let flow = &mut self.flows[place];
        if by_group && end != TransferEnd::Early {
            flow.on_end_of_group();
        }
        // An end is no business of a receiver that has left the group, or is done.
        if !flow.is_live() || !flow.answers_to(now, by_group) {
            return;
        }
        match end {
            TransferEnd::Early => {}
            // It does not know that something is missing.
            TransferEnd::Done => flow.speak_soon(now),
            TransferEnd::Cancelled => {
                self.end_flow(now, place, FinReason::Cancelled);
                self.replace_source(now);
            }
            TransferEnd::Late => {
                let missing = self.ledger.as_ref().map_or(0, Ledger::undone);
                self.fail_with(now, ReceiverFailure::Late { missing });
            }
        }
    }

    // ---- the end

    fn complete(&mut self, now: Time) {
        self.outbox.event(ReceiverEvent::Done);
        self.finish(now, FinReason::Done);
    }

    fn fail_with(&mut self, now: Time, failure: ReceiverFailure) {
        if !self.over {
            self.outbox.event(ReceiverEvent::Failed(failure));
            self.finish(now, FinReason::Cancelled);
        }
    }

    fn finish(&mut self, now: Time, reason: FinReason) {
        self.over = true;
        self.spare.clear();
        (0..self.flows.len()).for_each(|place| self.end_flow(now, place, reason));
    }

    fn end_flow(&mut self, now: Time, place: usize, reason: FinReason) {
        let flow = &mut self.flows[place];
        if !flow.is_live() {
            return;
        }
        flow.stand.end(now, reason);
        let id = flow.id();
        let Some(ledger) = self.ledger.as_mut().filter(|_| !self.over) else { return };
        for at in 0..ledger.open_count() {
            if ledger.release(at, id) {
                self.outbox.event(ReceiverEvent::Discard { block: BlockIndex(ledger[at].number) });
            }
        }
    }

    fn unbind(&mut self, place: usize) {
        for flow in self.flows[place].end() {
            self.outbox.event(ReceiverEvent::Unbind { flow });
        }
    }

    fn on_command(&mut self, now: Time, command: ReceiverCommand) {
        match command {
            ReceiverCommand::Start { wanted, have } => self.start(now, wanted, &have),
            ReceiverCommand::FlowPath { flow, path } => {
                if let Some(flow) = self.flows.iter_mut().find(|it| it.id() == flow) {
                    flow.path = Some(path);
                }
            }
            ReceiverCommand::BlockDecoded { block } => self.on_decoded(now, block),
            ReceiverCommand::DecodeFailed { block, failure } => self.on_decode_failed(now, block, failure),
            ReceiverCommand::Cancel => self.fail_with(now, ReceiverFailure::Cancelled),
            // It has begun.
            ReceiverCommand::Fetch(_) => self.stats.strays += 1,
        }
    }
}

/// The meaning of an arriving symbol.
enum Arrival {
    /// It is here, or not wanted.
    Useless,
    /// It is of a block that may not be opened yet.
    NoRoom,
    /// `complete`: and its block has enough.
    Kept { complete: bool },
}

/// Where a block is that waits for decoder, hash or disk.
fn decoding(ledger: &Ledger<()>, block: BlockIndex) -> Option<usize> {
    ledger.find(block.0).filter(|at| !ledger[*at].here.is_filling())
}

/// Seed of random delays: no two receivers have the same, nor two requests of one.
fn seed(config: &ReceiverConfig, fetch: FetchId) -> [u8; 32] {
    let mut seed = config.node.0;
    let own = [config.request, fetch.0].map(u64::to_be_bytes).concat();
    seed.iter_mut().zip(own).for_each(|(byte, own)| *byte ^= own);
    seed
}

/// The shortest time that anything is worth waiting for.
const LEAST_WAIT: Duration = Duration::from_micros(50);
