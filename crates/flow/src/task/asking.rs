//! A receiver's end of one task, for transports that ask for source symbols by name: what has arrived of each block, and what each flow
//! may ask for. How a flow asks, and when it asks again, is up to its [`Asker`].
//!
//! Nothing is coded: a block is whole when its K source symbols are here. A block that fails its hash is handled by the kind of flows:
//! - **Trees of a group**: a block comes down one tree. It is asked for once more from the same tree; if it fails again, so does the task.
//!   Nobody is told that a tree is over: its devices forget it, and the controller ends it at the source.
//! - **Sources of this receiver only** bring parts of the same blocks, and no symbol is asked of two of them at a time. A liar is found as
//!   everywhere (docs/decisions/0026), and each flow is closed with its source.

mod blocks;

use core::fmt::Debug;
use core::ops::Range;

use headwater_machine::{Output, Packet};
use headwater_units::{
    BlockIndex, Duration, FetchId, FlowId, Geometry, NodeId, PathId, SymbolId, Symbols, Time,
};
use headwater_wire::{Body, Class, Delivery, FinReason, FlowGrant, FlowView};

use super::blame::{Blame, Trust};
use super::brought::Brought;
use super::close_handshake::{Stand, Step};
use super::commands::{Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure};
use super::ledger::{Block, Ledger};
use super::outbox::Outbox;
use super::session::Progress;
use super::side::{FetchSide, HandedOn};
use super::{ReceiverStats, SessionConfig, SessionFlow, SessionStats};
pub use blocks::Asks;
pub use blocks::Lacks;
use blocks::{Arrival, Blocks, By};

/// Number of failed hashes of a tree's block that ends the task.
const ATTEMPTS_OF_TREES: u8 = 2;

/// The part of a receiver that asks for symbols by one flow.
pub trait Asker: Sized + Debug {
    /// Its configuration.
    type Config: Debug;

    /// Its flow is one of a group's; else it is this receiver's alone.
    const IS_GROUPS: bool;

    /// One that asks by this path; `None` if the flow has nothing to bring.
    fn new(config: &Self::Config, grant: &FlowGrant, path: PathId, geometry: Geometry) -> Option<Self>;

    /// Its source is elsewhere now.
    fn move_to(&mut self, _path: PathId) {}

    /// A symbol has come, needed or not.
    fn on_symbol(&mut self, now: Time, name: SymbolId);

    /// Something else has come. False if it makes no sense.
    fn hear(&mut self, now: Time, path: PathId, body: &Body) -> bool;

    /// A block failed its check, and its flow must bring it once more.
    fn ask_again(&mut self, _block: BlockIndex) {}

    /// The symbol that is not to be asked of others meanwhile.
    fn awaits(&self) -> Option<SymbolId> {
        None
    }

    /// The packet that may be sent now.
    fn next(&mut self, now: Time, lacks: &Lacks<'_>) -> Option<Packet>;

    /// When there will be something to ask again, if nothing comes before.
    fn deadline(&self) -> Option<Time>;

    /// Its counters.
    fn counts(&self) -> AskerCounts;
}

/// Counters of one flow's asker.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskerCounts {
    /// Symbols asked for, again too.
    pub asked: u64,
    /// Of these, asked for again.
    pub repeated: u64,
    /// Symbols asked for that may still come.
    pub outstanding: u64,
    /// From asking to receiving.
    pub rtt: Option<Duration>,
}

/// A flow, and what came of it.
#[derive(Debug)]
struct Flow<A> {
    grant: FlowGrant,
    /// Once it is known where it leads, and what is wanted.
    asker: Option<A>,
    path: Option<PathId>,
    heard: Time,
    brought: Brought,
    stand: Stand,
}

/// One task.
#[derive(Debug)]
pub struct Asking<A: Asker> {
    /// The transport, as it is counted.
    by: Delivery,
    config: A::Config,
    session: SessionConfig,
    geometry: Geometry,
    blocks: Option<Blocks>,
    trust: Trust,
    flows: Vec<Flow<A>>,
    outbox: Outbox,
    last_useful: Time,
    over: bool,
    stats: SessionStats,
}

impl<A: Asker> Asking<A> {
    /// A receiver of an object that is cut like this. `session` sets its patience and its number of open blocks, as for
    /// all transports.
    pub fn new(
        fetch: FetchId,
        by: Delivery,
        config: A::Config,
        session: SessionConfig,
        geometry: Geometry,
    ) -> Self {
        Asking {
            by,
            config,
            session,
            geometry,
            blocks: None,
            trust: Trust::default(),
            flows: Vec::new(),
            outbox: Outbox::new(fetch),
            last_useful: Time::ZERO,
            over: false,
            stats: SessionStats::default(),
        }
    }

    fn counted(&self) -> SessionStats {
        let mut stats = self.stats.clone();
        if let Some(Blocks { ledger, .. }) = &self.blocks {
            stats.blocks = ledger.wanted_blocks();
            stats.blocks_done = ledger.wanted_blocks() - ledger.undone();
            stats.blocks_behind = ledger.decoding() as u32;
            stats.needed = ledger.needed();
        }
        let askers = self.flows.iter().filter_map(|flow| flow.asker.as_ref());
        stats.timeouts = askers.map(|asker| asker.counts().repeated).sum();
        stats.flows = self.flows.iter().map(Flow::stats).collect();
        stats.flows.sort_by_key(|flow| flow.flow);
        stats
    }

    fn decoding(&self) -> usize {
        self.blocks.as_ref().map_or(0, |blocks| blocks.ledger.decoding())
    }

    // ---- from the driver

    fn start(&mut self, now: Time, wanted: Range<u32>, have: &[BlockIndex]) {
        if self.blocks.is_some() || self.over {
            return;
        }
        let ledger = Ledger::new(self.geometry, wanted, have);
        self.stats.source_symbols = ledger.needed();
        self.receive(now, ledger);
    }

    fn receive(&mut self, now: Time, ledger: Ledger<usize>) {
        self.last_useful = now;
        let done = ledger.undone() == 0;
        self.blocks = Some(Blocks { ledger, most_open: self.session.open_blocks as usize });
        match done {
            true => self.complete(now),
            false => self.begin_flows(now),
        }
    }

    /// Flows whose path is known, once it is known where symbols go.
    fn begin_flows(&mut self, now: Time) {
        if self.blocks.is_none() {
            return;
        }
        for flow in self.flows.iter_mut().filter(|flow| flow.asker.is_none() && flow.is_live()) {
            let Some(path) = flow.path else { continue };
            flow.heard = now;
            flow.asker = A::new(&self.config, &flow.grant, path, self.geometry);
        }
    }

    fn on_decoded(&mut self, now: Time, block: BlockIndex) {
        let Some(blocks) = &mut self.blocks else { return };
        let Some(finished) = blocks.decoding(block).and_then(|at| blocks.ledger.finish(at)) else { return };
        self.last_useful = now;
        if blocks.ledger.undone() == 0 {
            return self.complete(now);
        }
        for node in self.trust.suspect(finished.here.trial.on_verified()) {
            self.distrust(now, node);
        }
    }

    fn on_decode_failed(&mut self, now: Time, block: BlockIndex, failure: DecodeFailure) {
        let Some(blocks) = &mut self.blocks else { return };
        let Some(at) = blocks.decoding(block) else { return };
        let mut blame = Blame::Unclear;
        match failure {
            DecodeFailure::Corrupt => {
                self.stats.corrupt += 1;
                match A::IS_GROUPS {
                    // The tree is to blame, and that is known.
                    true => blocks.ledger.restart(at),
                    false => blame = blocks.ledger.corrupt(at),
                }
            }
            // All source symbols were there: a decoder that says this has lost some.
            DecodeFailure::NeedMore => {
                self.stats.need_more += 1;
                blocks.ledger.restart(at);
            }
        }
        let Block { here, asked, .. } = &blocks.ledger[at];
        let (place, failed) = (*asked, here.attempts());
        self.last_useful = now;
        self.outbox.event(ReceiverEvent::Discard { block });
        let attempts = if A::IS_GROUPS { ATTEMPTS_OF_TREES } else { self.session.attempts };
        if failed >= attempts {
            return self.fail(now, ReceiverFailure::Corrupt { block }, &mut ());
        }
        if let Some(asker) = self.flows.get_mut(place).and_then(|flow| flow.asker.as_mut()) {
            asker.ask_again(block);
        }
        if let Blame::Liar(node) = blame {
            self.distrust(now, node);
        }
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

    // ---- from the flows

    #[inline]
    fn on_symbol(&mut self, now: Time, place: usize, name: SymbolId) {
        let flow = &mut self.flows[place];
        // Symbols of a flow that ends are late, perhaps because its source lies.
        let is_late = self.over || !flow.is_live();
        let (Some(blocks), Some(asker), false) = (&mut self.blocks, &mut flow.asker, is_late) else {
            return;
        };
        self.stats.arrivals += 1;
        flow.brought.symbols += 1;
        flow.heard = now;
        asker.on_symbol(now, name);
        let by = By { place, flow: flow.grant.flow, node: flow.grant.node, hearsay: A::IS_GROUPS };
        let arrival = blocks.arrive(by, name);
        if arrival == Arrival::Useless {
            self.stats.useless += 1;
            return;
        }
        flow.brought.useful += 1;
        self.last_useful = now;
        let flow = flow.grant.flow;
        self.outbox.keep(flow, name);
        if arrival == Arrival::Complete {
            self.outbox.event(ReceiverEvent::Decode { block: name.block });
            let behind = self.decoding() as u32;
            self.stats.blocks_behind_most = self.stats.blocks_behind_most.max(behind);
        }
    }

    // ---- the end

    fn complete(&mut self, now: Time) {
        self.outbox.event(ReceiverEvent::Done);
        self.finish(now, FinReason::Done);
    }

    fn finish(&mut self, now: Time, reason: FinReason) {
        self.over = true;
        (0..self.flows.len()).for_each(|place| self.end_flow(now, place, reason));
    }

    fn end_flow(&mut self, now: Time, place: usize, reason: FinReason) {
        let flow = &mut self.flows[place];
        if !flow.is_live() {
            return;
        }
        if A::IS_GROUPS {
            return self.unbind(place);
        }
        flow.stand.end(now, reason);
        let id = flow.grant.flow;
        let anew = self.blocks.as_mut().map_or_else(Vec::new, |blocks| blocks.release(id));
        anew.into_iter().for_each(|block| self.outbox.event(ReceiverEvent::Discard { block }));
    }

    fn unbind(&mut self, place: usize) {
        let flow = &mut self.flows[place];
        if !flow.stand.is_over() {
            flow.stand = Stand::Over;
            let flow = flow.grant.flow;
            self.outbox.event(ReceiverEvent::Unbind { flow });
        }
    }

    // ---- what goes out

    /// The next request of any flow, or the time when the first flow will have one.
    fn ask(&mut self, now: Time) -> Result<Packet, Time> {
        let mut wake = Time::MAX;
        for place in 0..self.flows.len() {
            let awaited: Vec<SymbolId> = match A::IS_GROUPS {
                true => Vec::new(),
                false => self.awaited_but_by(place).collect(),
            };
            let flow = &mut self.flows[place];
            let live = flow.is_live();
            let (Some(blocks), Some(asker), true) = (&mut self.blocks, &mut flow.asker, live) else {
                continue;
            };
            let id = flow.grant.flow;
            if let Some(packet) = asker.next(now, &Lacks { blocks, flow: id, awaited: &awaited }) {
                if let Some(name) = asker.awaits() {
                    blocks.give(name.block, id);
                }
                return Ok(packet);
            }
            wake = wake.min(asker.deadline().unwrap_or(Time::MAX));
        }
        Err(wake)
    }

    fn awaited_but_by(&self, place: usize) -> impl Iterator<Item = SymbolId> + '_ {
        let others = self.flows.iter().enumerate().filter(move |(at, flow)| *at != place && flow.is_live());
        others.filter_map(|(_, flow)| flow.asker.as_ref()?.awaits())
    }

    /// The next FIN of a flow that ends, or the time when the first will be due.
    fn close(&mut self, now: Time) -> Result<Packet, Time> {
        let mut wake = Time::MAX;
        if A::IS_GROUPS {
            return Err(wake);
        }
        for place in 0..self.flows.len() {
            let flow = &mut self.flows[place];
            match flow.stand.step(now, flow.path, false) {
                Step::Wait => wake = wake.min(flow.stand.next().unwrap_or(Time::MAX)),
                Step::Over => self.unbind(place),
                Step::Say(path, reason) => {
                    return Ok(Packet::of_flow(path, flow.grant.flow, Class::Control, Body::Fin(reason)));
                }
            }
        }
        Err(wake)
    }
}

impl<A: Asker> FetchSide for Asking<A> {
    type Host = ();

    fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, _: &mut ()) {
        if self.over {
            return;
        }
        for place in 0..self.flows.len() {
            if grants.iter().all(|it| it.flow != self.flows[place].grant.flow) {
                self.end_flow(now, place, FinReason::Cancelled);
            }
        }
        for grant in grants {
            if self.trust.is_distrusted(grant.node) && !A::IS_GROUPS {
                continue;
            }
            if let Some(known) = self.flows.iter_mut().find(|flow| flow.grant.flow == grant.flow) {
                let moves = known.is_live() && !A::IS_GROUPS;
                let moved = moves.then(|| ReceiverEvent::moved(&mut known.grant.at, &grant));
                moved.flatten().into_iter().for_each(|moved| self.outbox.event(moved));
                continue;
            }
            self.outbox.event(ReceiverEvent::Bind(Box::new(Bind::from(&grant))));
            self.flows.push(Flow {
                grant,
                asker: None,
                path: None,
                heard: now,
                brought: Brought::new(now),
                stand: Stand::Live,
            });
        }
        self.begin_flows(now);
    }

    #[inline]
    fn on_packet(&mut self, now: Time, packet: Packet, _: &mut ()) {
        let datagram = packet.datagram;
        let place =
            self.flows.iter().position(|flow| flow.grant.flow == datagram.flow && !flow.stand.is_over());
        let Some(place) = place else {
            self.stats.strays += 1;
            return;
        };
        match &datagram.body {
            Body::Symbol(header) if !header.trimmed => self.on_symbol(now, place, header.symbol),
            Body::FinAck if !self.flows[place].is_live() => self.unbind(place),
            other => {
                let Some(asker) = &mut self.flows[place].asker else { return };
                self.stats.strays += u64::from(!asker.hear(now, packet.path, other));
            }
        }
    }

    fn on_command(&mut self, now: Time, command: ReceiverCommand, _is_running: bool, _: &mut ()) {
        match command {
            ReceiverCommand::Start { wanted, have } => self.start(now, wanted, &have),
            ReceiverCommand::FlowPath { flow, path } => {
                if let Some(flow) = self.flows.iter_mut().find(|it| it.grant.flow == flow) {
                    flow.path = Some(path);
                    flow.asker.iter_mut().for_each(|asker| asker.move_to(path));
                    self.begin_flows(now);
                }
            }
            ReceiverCommand::BlockDecoded { block } => self.on_decoded(now, block),
            ReceiverCommand::DecodeFailed { block, failure } => self.on_decode_failed(now, block, failure),
            ReceiverCommand::Cancel => self.fail(now, ReceiverFailure::Cancelled, &mut ()),
            // It has begun.
            ReceiverCommand::Fetch(_) => self.stats.strays += 1,
        }
    }

    /// Whatever a wrong block of it was, the first flow is asked for it again.
    fn resume(&mut self, now: Time, ledger: Ledger<()>, _: &mut ()) {
        self.receive(now, ledger.map(|_| 0));
    }

    fn fail(&mut self, now: Time, failure: ReceiverFailure, _: &mut ()) {
        if self.over {
            return;
        }
        self.outbox.event(ReceiverEvent::Failed(failure));
        self.finish(now, FinReason::Cancelled);
    }

    #[inline]
    fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.outbox.take_kept()
    }

    fn poll(&mut self, now: Time, _is_running: bool, _: &mut ()) -> Output<FromFetch> {
        if let Some(output) = self.outbox.pop() {
            return output;
        }
        let mut wake = match self.close(now) {
            Ok(packet) => return Output::Transmit(packet),
            Err(wake) => wake,
        };
        if let Some(unbound) = self.outbox.pop() {
            return unbound;
        }
        if self.blocks.is_some() && !self.over {
            match self.ask(now) {
                Ok(packet) => {
                    self.stats.pulls += 1;
                    return Output::Transmit(packet);
                }
                Err(at) => wake = wake.min(at),
            }
            if self.decoding() == 0 {
                let until = self.last_useful + self.session.source_patience;
                if now >= until {
                    let missing = self.blocks.as_ref().map_or(0, |blocks| blocks.ledger.undone());
                    self.fail(now, ReceiverFailure::NoSource { missing }, &mut ());
                    return self.outbox.pop().unwrap_or(Output::Wake(None));
                }
                wake = wake.min(until);
            }
        }
        Output::Wake(Some(wake).filter(|at| *at < Time::MAX))
    }

    fn hand_on(self) -> HandedOn {
        let bound =
            self.flows.iter().filter(|flow| !flow.stand.is_over()).map(|flow| flow.grant.flow).collect();
        HandedOn { ledger: self.blocks.map(|blocks| blocks.ledger.map(|_| ())), trust: self.trust, bound }
    }

    fn trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    fn is_distrusted(&self, node: NodeId) -> bool {
        self.trust.is_distrusted(node)
    }

    fn has_ended(&self) -> bool {
        self.over && self.flows.iter().all(|flow| flow.stand.is_over())
    }

    fn progress(&mut self, now: Time) -> Progress {
        let symbol = u64::from(self.geometry.symbol_size());
        let ledger = self.blocks.as_ref().map(|blocks| &blocks.ledger);
        Progress {
            first_undecoded: ledger.map_or(BlockIndex(0), Ledger::first_undone),
            needed: ledger.map_or(self.geometry.total_symbols(), |ledger| Symbols::new(ledger.needed())),
            blocks_behind: ledger.map_or(0, Ledger::decoding),
            flows: self.flows.iter_mut().filter(|it| it.is_live()).map(|it| it.view(now, symbol)).collect(),
        }
    }

    fn stats(&mut self, _now: Time) -> ReceiverStats {
        ReceiverStats::of_session(self.counted(), self.by, self.geometry.symbol_size())
    }

    fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_> {
        Box::new(self.flows.iter().map(|flow| (flow.grant.flow, flow.brought.useful)))
    }

    fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        let ended = |it: &&Flow<A>| it.grant.flow == flow && it.stand.is_over() && it.brought.symbols > 0;
        self.flows.iter().find(ended).map(|ended| ended.brought.useful)
    }
}

impl<A: Asker> Flow<A> {
    fn is_live(&self) -> bool {
        self.stand.is_live()
    }

    fn stats(&self) -> SessionFlow {
        let AskerCounts { asked, repeated, outstanding, rtt } =
            self.asker.as_ref().map(Asker::counts).unwrap_or_default();
        SessionFlow {
            flow: self.grant.flow,
            node: self.grant.node,
            symbols: self.brought.symbols,
            useful: self.brought.useful,
            by_group: if A::IS_GROUPS { self.brought.useful } else { 0 },
            trimmed: 0,
            lost: repeated,
            asked,
            coming: outstanding,
            rate: self.brought.rate(),
            rtt,
            silent: false,
            ended: !self.is_live(),
        }
    }

    fn view(&mut self, now: Time, symbol: u64) -> FlowView {
        let waits = self.asker.as_ref().is_some_and(|asker| asker.counts().outstanding > 0);
        let silent = if waits { now.since(self.heard) } else { Duration::ZERO };
        self.brought.view(now, self.grant.flow, symbol, silent)
    }
}

#[cfg(test)]
mod tests;
