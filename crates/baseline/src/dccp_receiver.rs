//! The receiving end of DCCP with CCID 2: an Ack Vector for every packet (RFC 4341 §6, RFC 4340 §11.4).
//!
//! Counts different packets until there are as many as the task is long; which ones does not matter. Duplicates are told by
//! a bit for each of the newest numbers; a packet older than that is not counted, since it may have been before.

use headwater_machine::{Input, Output};
use headwater_units::{FlowId, PacketNumber, PathId, Time};
use headwater_wire::{AckVector, Body, Ecn, SymbolHeader};

use super::ReceiverStats;
use super::bits::BitRing;
use super::commands::{SinkCommand, SinkEvent};
use super::ends::{CANCELLED, Outcome, Route, whole_number};

/// The bit of the largest packet in a vector.
const LARGEST: u32 = 1 << 31;

/// One flow's receiver.
#[derive(Debug)]
pub(super) struct DccpReceiver {
    /// One above the largest packet that came.
    next: u64,
    /// The vector of the 32 packets below it.
    received: u32,
    marked: u32,
    distinct: u64,
    packets: u64,
    pending: bool,
    outcome: Outcome,
    route: Route,
    seen: BitRing,
    stats: ReceiverStats,
}

impl DccpReceiver {
    pub(super) fn new(limit: u64, flow: FlowId, path: PathId, packets: u64) -> Self {
        DccpReceiver {
            next: 0,
            received: 0,
            marked: 0,
            distinct: 0,
            packets,
            pending: false,
            outcome: if packets == 0 { Outcome::Complete } else { Outcome::Waiting },
            route: Route { flow, path, ecn: Ecn::NotEct },
            seen: BitRing::new(limit),
            stats: ReceiverStats::default(),
        }
    }

    pub(super) fn stats(&self) -> ReceiverStats {
        ReceiverStats { distinct: self.distinct, next: self.next, ..self.stats }
    }

    pub(super) fn handle(&mut self, _now: Time, input: Input<SinkCommand>) {
        match input {
            Input::Packet(ref packet) if packet.datagram.flow == self.route.flow => {
                match packet.datagram.body {
                    Body::Symbol(header) if !header.trimmed => self.on_data(header, packet.ecn == Ecn::Ce),
                    _ => self.stats.unexpected += 1,
                }
            }
            Input::Command(SinkCommand::Cancel) => {
                self.pending |= self.outcome.cancel();
            }
            Input::Packet(_) | Input::Command(_) => self.stats.unexpected += 1,
        }
    }

    pub(super) fn poll(&mut self, _now: Time) -> Output<SinkEvent> {
        if !std::mem::replace(&mut self.pending, false) {
            return self.outcome.say().unwrap_or(Output::Wake(None));
        }
        if self.outcome.is_cancelled() {
            return self.route.back(CANCELLED);
        }
        let largest = PacketNumber(self.next - 1);
        self.route.back(Body::AckVector(AckVector { largest, received: self.received, marked: self.marked }))
    }

    fn on_data(&mut self, header: SymbolHeader, marked: bool) {
        self.stats.arrived += 1;
        self.stats.marked += u64::from(marked);
        self.pending = true;
        if self.outcome.is_cancelled() {
            return;
        }
        let number = whole_number(header, self.next);
        if self.take(number, marked) && self.distinct < self.packets {
            self.distinct += 1;
            if self.distinct == self.packets {
                self.outcome = Outcome::Complete;
            }
        }
    }

    /// Notes a packet; true if it had not come before.
    fn take(&mut self, number: u64, marked: bool) -> bool {
        if number >= self.next {
            let ahead = u32::try_from(number - self.next + 1).unwrap_or(u32::MAX);
            self.received = self.received.checked_shr(ahead).unwrap_or(0) | LARGEST;
            self.marked = self.marked.checked_shr(ahead).unwrap_or(0) | if marked { LARGEST } else { 0 };
            if number > self.next {
                self.seen.clear(self.next, number);
            }
            self.next = number + 1;
            // Its bit may be left from the packet that had this place before.
            self.seen.set(number);
            return true;
        }
        let behind = self.next - 1 - number;
        if behind >= self.seen.span() {
            self.stats.outside += 1;
            return false;
        }
        if behind < u64::from(AckVector::SPAN) {
            self.received |= LARGEST >> behind;
            if marked {
                self.marked |= LARGEST >> behind;
            }
        }
        self.seen.set(number)
    }
}
