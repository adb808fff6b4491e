//! Common parts of both ends of a flow: the fields of their packets, and how a flow ends.

use headwater_machine::{Output, Packet};
use headwater_transport::ReceiverFailure;
use headwater_units::{BlockIndex, ESI_LIMIT, Esi, FlowId, PacketNumber, PathId, SymbolId};
use headwater_wire::{Body, Class, Datagram, Ecn, FinReason, SymbolHeader};

use super::commands::{SenderEvent, SinkEvent};

/// Flow of these packets, and where they go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) flow: FlowId,
    pub(super) path: PathId,
    /// The ECN field of data.
    pub(super) ecn: Ecn,
}

impl Route {
    /// A packet of data. Its number is also its symbol's, 2^24 to a block.
    pub(super) fn data<E>(&self, number: u64) -> Output<E> {
        self.data_of(Class::Bulk, number, false)
    }

    /// The same, in a class of its own; `syn`: nobody asked for it.
    pub(super) fn data_of<E>(&self, class: Class, number: u64, syn: bool) -> Output<E> {
        let block = (number / u64::from(ESI_LIMIT)) as u32;
        let esi = (number % u64::from(ESI_LIMIT)) as u32;
        let symbol = SymbolId { block: BlockIndex(block), esi: Esi(esi) };
        let header = SymbolHeader { syn, ..SymbolHeader::new(PacketNumber(number), symbol) };
        self.packet(class, self.ecn, Body::Symbol(header))
    }

    /// An ACK, or what else goes back: of the top class, and not ECN-capable (RFC 3168 §6.1.4).
    pub(super) fn back<E>(&self, body: Body) -> Output<E> {
        self.packet(Class::Control, Ecn::NotEct, body)
    }

    fn packet<E>(&self, class: Class, ecn: Ecn, body: Body) -> Output<E> {
        let datagram = Datagram { class, key_epoch: 0, flow: self.flow, body };
        Output::Transmit(Packet { path: self.path, ecn, datagram })
    }
}

/// How a sender's flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Not yet.
    Open,
    /// It has; the driver is not told yet.
    Due,
    /// It has.
    Reported,
}

impl End {
    /// Says once that the flow is closed.
    pub(super) fn say(&mut self, flow: FlowId) -> Option<Output<SenderEvent>> {
        if *self != End::Due {
            return None;
        }
        *self = End::Reported;
        Some(Output::Event(SenderEvent::Closed { flow }))
    }
}

/// State of a receiver's end: the message that it has yet to send besides its ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Packets are missing.
    Waiting,
    /// Everything is here; the driver is not told yet.
    Complete,
    /// Everything is here.
    Done,
    /// Cancelled; the driver is not told yet.
    Stopping,
    /// Cancelled.
    Stopped,
}

impl Outcome {
    /// Says once how it went.
    pub(super) fn say(&mut self) -> Option<Output<SinkEvent>> {
        let (next, event) = match self {
            Outcome::Complete => (Outcome::Done, SinkEvent::Done),
            Outcome::Stopping => (Outcome::Stopped, SinkEvent::Failed(ReceiverFailure::Cancelled)),
            _ => return None,
        };
        *self = next;
        Some(Output::Event(event))
    }

    /// The user has stopped it: the sender is told, once now and again whenever it sends.
    pub(super) fn cancel(&mut self) -> bool {
        let stops = matches!(self, Outcome::Waiting);
        if stops {
            *self = Outcome::Stopping;
        }
        stops
    }

    pub(super) fn is_cancelled(self) -> bool {
        matches!(self, Outcome::Stopping | Outcome::Stopped)
    }
}

/// The whole number of a packet, of which 32 bits cross a wire, where `next` is expected.
pub(super) fn whole_number(header: SymbolHeader, next: u64) -> u64 {
    if header.number.0 as u32 == next as u32 {
        return next;
    }
    header.expand(next.checked_sub(1).map(PacketNumber)).0
}

/// Answer of a cancelled receiver.
pub(super) const CANCELLED: Body = Body::Fin(FinReason::Cancelled);
