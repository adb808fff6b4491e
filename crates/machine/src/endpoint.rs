//! The two verbs, and what goes in and comes out.

use headwater_units::{FlowId, PathId, Time};
use headwater_wire::{Body, Class, Control, Datagram, Ecn};
use serde::{Deserialize, Serialize};

/// A state machine at one end of a delivery.
///
/// Deterministic: the same inputs at the same times give the same outputs. `Time` never goes backwards.
pub trait Endpoint {
    /// Commands from its driver.
    type Command;
    /// Events for its driver.
    type Event;

    /// Takes one input. Produces nothing by itself: poll afterwards.
    fn handle(&mut self, now: Time, input: Input<Self::Command>);
    /// Gives the next output, firing timers that are due; [`Output::Wake`] when there is nothing more to do now.
    fn poll(&mut self, now: Time) -> Output<Self::Event>;
}

impl<E: Endpoint + ?Sized> Endpoint for &mut E {
    type Command = E::Command;
    type Event = E::Event;

    #[inline]
    fn handle(&mut self, now: Time, input: Input<E::Command>) {
        (**self).handle(now, input);
    }

    #[inline]
    fn poll(&mut self, now: Time) -> Output<E::Event> {
        (**self).poll(now)
    }
}

/// A datagram or control message, and where it goes to or came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packet {
    /// The peer that it goes to or comes from: an address or a control connection that the driver knows.
    pub path: PathId,
    /// The ECN field: as sent, or as it arrived.
    pub ecn: Ecn,
    /// The message. A symbol's payload is named here, never carried.
    pub datagram: Datagram,
}

impl Packet {
    /// A control message, as every machine and driver sends one: of the top class, of no flow, not ECN-capable.
    pub fn control(path: PathId, control: impl Into<Control>) -> Self {
        let body = Body::Control(Box::new(control.into()));
        Packet::of_flow(path, FlowId(0), Class::Control, body)
    }

    /// A packet from one end of a flow to the other, not ECN-capable.
    #[inline]
    pub fn of_flow(path: PathId, flow: FlowId, class: Class, body: Body) -> Self {
        Packet { path, ecn: Ecn::NotEct, datagram: Datagram { class, key_epoch: 0, flow, body } }
    }
}

/// Input of a machine.
///
/// Commands and events that are large and rare are boxed, so that a packet in and a packet out stay cheap to move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input<C> {
    /// Something arrived, authenticated.
    Packet(Packet),
    /// The driver or its user says something.
    Command(C),
}

/// Output of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Output<E> {
    /// Send this. For a symbol the driver fills in the payload.
    Transmit(Packet),
    /// Something the driver must do or know.
    Event(E),
    /// Nothing more now; poll again at this time at the latest, or only after the next input.
    Wake(Option<Time>),
}

impl<E> Output<E> {
    /// The same for a driver of several kinds of machines, whose events are of one type to it.
    #[inline]
    pub fn map<F>(self, event: impl FnOnce(E) -> F) -> Output<F> {
        match self {
            Output::Transmit(packet) => Output::Transmit(packet),
            Output::Event(said) => Output::Event(event(said)),
            Output::Wake(at) => Output::Wake(at),
        }
    }
}
