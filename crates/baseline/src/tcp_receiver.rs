//! The receiving end of TCP: an ACK for every packet, with the echo of its mark (RFC 5681 §4.2, RFC 8257 §3.2).
//!
//! An ACK per packet makes DCTCP's echo exact without its state machine for delayed ACKs. Packets above a gap are
//! remembered as bits in a ring; what is further ahead than the window allows is answered but not kept. With SACK, an ACK says which run
//! of them its packet is in.

use headwater_machine::{Input, Output};
use headwater_units::{FlowId, PacketNumber, PathId, Time};
use headwater_wire::{AheadBlock, Body, Cumulative, Ecn, SymbolHeader};

use super::ReceiverStats;
use super::bits::BitRing;
use super::commands::{SinkCommand, SinkEvent};
use super::ends::{CANCELLED, Outcome, Route, whole_number};

/// Answer at the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Nothing,
    Ack { echo: bool, block: Option<AheadBlock> },
    Fin,
}

/// One flow's receiver.
#[derive(Debug)]
pub(super) struct TcpReceiver {
    /// Every packet below is here (RCV.NXT).
    next: u64,
    /// How many packets above `next` are here.
    held: u64,
    packets: u64,
    pending: Pending,
    outcome: Outcome,
    route: Route,
    /// Which they are.
    ahead: BitRing,
    limit: u64,
    /// Whether it says what it has above a gap.
    sack: bool,
    stats: ReceiverStats,
}

impl TcpReceiver {
    pub(super) fn new(limit: u64, sack: bool, flow: FlowId, path: PathId, packets: u64) -> Self {
        TcpReceiver {
            next: 0,
            held: 0,
            packets,
            pending: Pending::Nothing,
            outcome: if packets == 0 { Outcome::Complete } else { Outcome::Waiting },
            route: Route { flow, path, ecn: Ecn::NotEct },
            ahead: BitRing::new(limit.min(packets)),
            limit,
            sack,
            stats: ReceiverStats::default(),
        }
    }

    pub(super) fn stats(&self) -> ReceiverStats {
        ReceiverStats { distinct: self.next + self.held, next: self.next, ..self.stats }
    }

    // Inlined, and what it leads to not: so a driver's packet is looked at where it is.
    #[inline(always)]
    pub(super) fn handle(&mut self, _now: Time, input: Input<SinkCommand>) {
        match input {
            Input::Packet(ref packet) if packet.datagram.flow == self.route.flow => {
                match packet.datagram.body {
                    Body::Symbol(header) if !header.trimmed => self.on_data(header, packet.ecn == Ecn::Ce),
                    _ => self.stats.unexpected += 1,
                }
            }
            Input::Command(SinkCommand::Cancel) => {
                if self.outcome.cancel() {
                    self.pending = Pending::Fin;
                }
            }
            Input::Packet(_) | Input::Command(_) => self.stats.unexpected += 1,
        }
    }

    // Not inlined into loops, which would fetch an ACK's parts also where there is nothing to send.
    #[inline(never)]
    pub(super) fn poll(&mut self, _now: Time) -> Output<SinkEvent> {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Ack { echo, block } => {
                let ack = Cumulative { next: PacketNumber(self.next), echo, block };
                self.route.back(Body::Cumulative(ack))
            }
            Pending::Fin => self.route.back(CANCELLED),
            Pending::Nothing => self.outcome.say().unwrap_or(Output::Wake(None)),
        }
    }

    #[inline(never)]
    fn on_data(&mut self, header: SymbolHeader, marked: bool) {
        let number = whole_number(header, self.next);
        if number >= self.packets {
            self.stats.unexpected += 1;
            return;
        }
        self.stats.arrived += 1;
        self.stats.marked += u64::from(marked);
        if self.outcome.is_cancelled() {
            self.pending = Pending::Fin;
            return;
        }
        if number == self.next {
            self.next += 1;
            while self.held > 0 && self.ahead.take(self.next) {
                self.held -= 1;
                self.next += 1;
            }
            if self.next == self.packets {
                self.outcome = Outcome::Complete;
            }
        } else if number > self.next {
            if number - self.next < self.limit {
                self.held += u64::from(self.ahead.set(number));
            } else {
                self.stats.outside += 1;
            }
        }
        // A driver that hands in two packets before it polls gets one ACK, as from a receiver that delays them.
        let echo = marked || matches!(self.pending, Pending::Ack { echo: true, .. });
        self.pending = Pending::Ack { echo, block: self.block_around(number) };
    }

    /// The run of packets above the gap that this one is in.
    fn block_around(&self, number: u64) -> Option<AheadBlock> {
        if !self.sack || number <= self.next || !self.ahead.get(number) {
            return None;
        }
        let is_here = |it: &u64| self.ahead.get(*it);
        let below = (self.next + 1..number).rev().take_while(is_here).count() as u64;
        let above = (number + 1..self.next + self.limit).take_while(is_here).count() as u64;
        let offset = |number: u64| (number - self.next) as u32;
        Some(AheadBlock { from: offset(number - below), to: offset(number + above + 1) })
    }
}
