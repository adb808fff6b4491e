//! Supply of a flow: its work, the blocks that it comes from, and whether these are there in time.

use headwater_units::{
    BlockIndex, Duration, Esi, FlowId, Geometry, PacketNumber, Packets, SymbolId, Symbols, Time,
};
use headwater_wire::{Ack, Assign};

use super::pick::Pick;
use super::work::Work;
use crate::push::{LostSymbols, PushFlowConfig};
use headwater_flow::Shared;
use headwater_flow::blocks::BlockTable;
use headwater_flow::in_flight::{AckOutcome, InFlight, Sent};

/// The supply of one flow.
#[derive(Debug)]
pub(super) struct Supply {
    flow: FlowId,
    lost_symbols: LostSymbols,
    prepare_ahead: usize,
    prepare_windows: f64,
    blocks: BlockTable,
    work: Work,
    /// The new symbol that comes next, if that is known: good for as long as nothing but sending happens.
    ahead: Option<Pick>,
    last_block: Option<BlockIndex>,
    /// The window for which blocks were prepared.
    prepared_for: f64,
    feed: Feed,
}

/// Whether there is a block to send from.
#[derive(Clone, Copy, Debug)]
enum Feed {
    /// There is. Symbols say that it starved until this moment, a round trip after it did.
    Fed { starved_until: Time },
    /// There has been none since then, although the window was open.
    Starved { since: Time },
}

/// Something that leaves now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    New(Pick),
    Again(Sent),
    Probe(Sent),
}

impl Supply {
    pub(super) fn new(config: &PushFlowConfig, flow: FlowId, geometry: Geometry) -> Self {
        Supply {
            flow,
            lost_symbols: config.lost_symbols,
            prepare_ahead: config.prepare_ahead,
            prepare_windows: config.prepare_windows,
            blocks: BlockTable::default(),
            work: Work::new(geometry, config.look_ahead),
            ahead: None,
            last_block: None,
            prepared_for: 0.0,
            feed: Feed::Fed { starved_until: Time::ZERO },
        }
    }

    // ---- what the receiver and the driver say

    /// An assignment; `next` is the number of the next packet if it is new. Returns how many entries made no sense.
    pub(super) fn on_assign(
        &mut self,
        assign: &Assign,
        next: Option<PacketNumber>,
        window: Packets,
        shared: &mut Shared,
    ) -> u64 {
        let refused = next.map_or(0, |next| self.work.assign(&assign.assignment, next));
        if self.work.decoded_below(assign.first_undecoded) || next.is_some() {
            self.release_done(shared);
            self.prepare(window, shared);
        }
        refused
    }

    /// These were acknowledged.
    #[inline]
    pub(super) fn on_landed(&mut self, acked: &[Sent]) {
        for sent in acked {
            self.blocks.landed(sent.symbol.block);
        }
    }

    #[inline]
    pub(super) fn on_losses(&mut self, outcome: &AckOutcome, packets: &mut InFlight, shared: &mut Shared) {
        if !outcome.lost.is_empty() || !outcome.cancelled.is_empty() {
            self.take_losses(outcome, packets, shared);
        }
    }

    fn take_losses(&mut self, outcome: &AckOutcome, packets: &mut InFlight, shared: &mut Shared) {
        for lost in &outcome.lost {
            let Sent { number, symbol, attempt, .. } = lost.sent;
            if lost.resend && self.wants(symbol, attempt) {
                self.blocks.resend_wanted(symbol.block);
            } else if lost.resend {
                packets.drop_resend(number);
            }
            self.blocks.landed(symbol.block);
            self.release_if_done(symbol.block, shared);
        }
        for sent in &outcome.cancelled {
            self.blocks.resend_settled(sent.symbol.block);
        }
    }

    /// Handles the ACK's part about blocks; `newest`: no later one has been seen.
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        ack: &Ack,
        newest: bool,
        outcome: &AckOutcome,
        window: Packets,
        shared: &mut Shared,
    ) {
        let delivered = outcome.acked.iter().chain(&outcome.late).map(|s| s.symbol.block);
        self.work.on_ack(ack, newest, delivered);
        let news = self.work.decoded_below(ack.first_undecoded);
        if news || ack.owed.iter().any(|o| o.symbols == Symbols::ZERO) {
            self.release_done(shared);
        } else {
            for sent in outcome.acked.iter().chain(&outcome.cancelled) {
                self.release_if_done(sent.symbol.block, shared);
            }
        }
        if news || window.get() > 1.5 * self.prepared_for {
            self.prepare(window, shared);
        }
    }

    pub(super) fn on_block_ready(&mut self, block: BlockIndex, repair: bool) {
        self.blocks.on_ready(block, repair);
    }

    pub(super) fn on_partly_here(&mut self, block: BlockIndex, below: Esi) {
        self.blocks.on_partly_here(block, below);
    }

    /// Something is about to change: what comes next is to be found anew.
    #[inline]
    pub(super) fn look_again(&mut self) {
        self.ahead = None;
    }

    fn wants(&self, symbol: SymbolId, attempt: u8) -> bool {
        let again = self.lost_symbols == LostSymbols::Resend || self.work.names_symbols();
        again && self.work.wants(symbol, attempt)
    }

    // ---- blocks

    /// Asks for the blocks that come next.
    fn prepare(&mut self, window: Packets, shared: &mut Shared) {
        let (flow, window) = (self.flow, window.get());
        self.prepared_for = window;
        let symbols = self.prepare_windows * window;
        self.work.prepare(&mut self.blocks, self.prepare_ahead, symbols, |blocks, upcoming| {
            blocks.prepare(flow, upcoming.block, upcoming.repair, &mut shared.out);
        });
    }

    fn release_done(&mut self, shared: &mut Shared) {
        let work = &self.work;
        self.blocks.release_all(self.flow, |block| work.has_left(block), &mut shared.out);
    }

    #[inline]
    fn release_if_done(&mut self, block: BlockIndex, shared: &mut Shared) {
        if !self.blocks.is_in_use(block) && !self.work.has_left(block) {
            self.blocks.release(self.flow, block, &mut shared.out);
        }
    }

    // ---- sending

    /// Lost symbols first, then new ones.
    #[inline]
    pub(super) fn next(
        &mut self,
        now: Time,
        packets: &mut InFlight,
        window: Packets,
        shared: &mut Shared,
    ) -> Option<Choice> {
        match self.ahead {
            Some(pick) => Some(Choice::New(pick)),
            None => self.find(now, packets, window, shared),
        }
    }

    #[inline]
    fn find(
        &mut self,
        now: Time,
        packets: &mut InFlight,
        window: Packets,
        shared: &mut Shared,
    ) -> Option<Choice> {
        while let Some(sent) = packets.next_resend() {
            let wanted = self.wants(sent.symbol, sent.attempt);
            if wanted && self.work.needs(sent.symbol, &self.blocks) {
                if !self.work.can_name(sent.symbol, sent.attempt, &self.blocks) {
                    // It is being verified.
                    break;
                }
                return Some(Choice::Again(sent));
            }
            packets.drop_resend(sent.number);
            self.blocks.resend_settled(sent.symbol.block);
            self.release_if_done(sent.symbol.block, shared);
        }
        let (pick, skipped) = self.work.peek(&self.blocks);
        if skipped {
            self.prepare(window, shared);
        }
        if pick.is_none() && skipped && !self.is_starved() {
            self.feed = Feed::Starved { since: now };
        }
        self.ahead = pick;
        pick.map(Choice::New)
    }

    /// The oldest symbol in flight that is still asked for, or else the oldest: any ACK will do.
    pub(super) fn probe(&self, packets: &InFlight) -> Option<Choice> {
        let can_name = |sent: &Sent| self.work.can_name(sent.symbol, sent.attempt, &self.blocks);
        let mut wanted = packets.uncopied().filter(|s| self.work.wants(s.symbol, s.attempt));
        let wanted = wanted.find(can_name);
        wanted.or_else(|| packets.uncopied().find(can_name)).map(Choice::Probe)
    }

    /// It leaves.
    #[inline]
    pub(super) fn commit(&mut self, choice: Choice, window: Packets, shared: &mut Shared) {
        self.ahead = None;
        let block = match choice {
            Choice::New(pick) => {
                self.work.commit(pick);
                pick.symbol.block
            }
            Choice::Again(sent) => {
                self.blocks.resend_settled(sent.symbol.block);
                sent.symbol.block
            }
            Choice::Probe(sent) => sent.symbol.block,
        };
        self.blocks.sent(block);
        if self.last_block.replace(block) != Some(block) {
            self.prepare(window, shared);
        }
    }

    // ---- starving

    pub(super) fn is_starved(&self) -> bool {
        matches!(self.feed, Feed::Starved { .. })
    }

    /// Since when there has been none to send from.
    pub(super) fn starved_since(&self) -> Option<Time> {
        match self.feed {
            Feed::Starved { since } => Some(since),
            Feed::Fed { .. } => None,
        }
    }

    /// Whether symbols that leave now say that it starves.
    #[inline]
    pub(super) fn says_starved(&self, now: Time) -> bool {
        match self.feed {
            Feed::Starved { .. } => true,
            Feed::Fed { starved_until } => now < starved_until,
        }
    }

    /// Something else holds the flow back. Returns for how long it has starved.
    #[inline]
    pub(super) fn end_starving(&mut self, now: Time, rtt: Option<Duration>) -> Duration {
        let Feed::Starved { since } = self.feed else { return Duration::ZERO };
        self.feed = Feed::Fed { starved_until: now + rtt.unwrap_or_default() };
        now.since(since)
    }
}
