//! One type for machines of all kinds: what a slot of the world holds.

use headwater_baseline::{self as baseline, SenderCommand, SenderEvent, SinkCommand, SinkEvent};
use headwater_controller::{Controller, ControllerCommand, ControllerEvent};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::receiver::Receivers;
use headwater_transport::source::Source;
use headwater_transport::{FromFetch, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent, ToFetch};
use headwater_units::{FetchId, Time};

use crate::packet::director::Director;

/// A state machine at one end.
pub(in crate::packet) enum Machine {
    Source(Box<Source>),
    /// The receiving machine of a host.
    Receivers(Box<Receivers>),
    Controller(Box<Controller>),
    Director(Box<Director>),
    Sender(Box<baseline::Sender>),
    Sink(Box<baseline::Receiver>),
    /// The receiving machine of a host whose receivers pull (baselines).
    Puller(Box<baseline::PullReceiver>),
    /// Over, or not there yet.
    Nobody,
}

/// A command to a machine.
pub(super) enum Command {
    Source(SourceCommand),
    Receiver(FetchId, ReceiverCommand),
    Controller(ControllerCommand),
    Sender(SenderCommand),
    Sink(SinkCommand),
}

/// An event of a machine.
pub(super) enum MachineEvent {
    Source(SourceEvent),
    Receiver(FetchId, ReceiverEvent),
    Controller(ControllerEvent),
    Sender(SenderEvent),
    Sink(SinkEvent),
}

impl Machine {
    /// Takes a packet in, and then all that [`Machine::poll`] does.
    // Both in one, once for every packet.
    #[inline(always)]
    pub(super) fn hear(
        &mut self,
        now: Time,
        packet: Packet,
        send: impl FnMut(Option<FetchId>, Packet),
    ) -> Result<Option<Time>, MachineEvent> {
        match self {
            Machine::Sender(m) => hear(m.as_mut(), now, packet, send).map_err(MachineEvent::Sender),
            Machine::Sink(m) => hear(m.as_mut(), now, packet, send).map_err(MachineEvent::Sink),
            Machine::Puller(m) => hear(m.as_mut(), now, packet, send).map_err(MachineEvent::Sink),
            Machine::Source(m) => hear(m.as_mut(), now, packet, send).map_err(MachineEvent::Source),
            Machine::Receivers(m) => {
                m.handle(now, Input::Packet(packet));
                poll_receivers(m, now, send)
            }
            Machine::Controller(m) => hear(m.as_mut(), now, packet, send).map_err(MachineEvent::Controller),
            Machine::Director(m) => hear(m.as_mut(), now, packet, send).map_err(MachineEvent::Controller),
            Machine::Nobody => Ok(None),
        }
    }

    pub(super) fn tell(&mut self, now: Time, command: Command) {
        match (self, command) {
            (Machine::Sender(m), Command::Sender(command)) => m.handle(now, Input::Command(command)),
            (Machine::Sink(m), Command::Sink(command)) => m.handle(now, Input::Command(command)),
            (Machine::Puller(m), Command::Sink(command)) => m.handle(now, Input::Command(command)),
            (Machine::Source(m), Command::Source(command)) => m.handle(now, Input::Command(command)),
            (Machine::Receivers(m), Command::Receiver(fetch, command)) => {
                m.handle(now, Input::Command(ToFetch(fetch, command)));
            }
            (Machine::Controller(m), Command::Controller(command)) => m.handle(now, Input::Command(command)),
            (Machine::Director(m), Command::Controller(command)) => m.handle(now, Input::Command(command)),
            (Machine::Nobody, _) => {}
            _ => unreachable!("a command of another machine"),
        }
    }

    /// Sends what it has to send until it waits, and says until when, or has something to say to its driver. With what is
    /// sent comes the fetch that sends it, where one machine receives for many.
    #[inline]
    pub(super) fn poll(
        &mut self,
        now: Time,
        send: impl FnMut(Option<FetchId>, Packet),
    ) -> Result<Option<Time>, MachineEvent> {
        match self {
            Machine::Receivers(m) => poll_receivers(m, now, send),
            Machine::Sender(m) => poll(m.as_mut(), now, send).map_err(MachineEvent::Sender),
            Machine::Sink(m) => poll(m.as_mut(), now, send).map_err(MachineEvent::Sink),
            Machine::Puller(m) => poll(m.as_mut(), now, send).map_err(MachineEvent::Sink),
            Machine::Source(m) => poll(m.as_mut(), now, send).map_err(MachineEvent::Source),
            Machine::Controller(m) => poll(m.as_mut(), now, send).map_err(MachineEvent::Controller),
            Machine::Director(m) => poll(m.as_mut(), now, send).map_err(MachineEvent::Controller),
            Machine::Nobody => Ok(None),
        }
    }
}

#[inline(always)]
fn hear<M: Endpoint>(
    machine: &mut M,
    now: Time,
    packet: Packet,
    send: impl FnMut(Option<FetchId>, Packet),
) -> Result<Option<Time>, M::Event> {
    machine.handle(now, Input::Packet(packet));
    poll(machine, now, send)
}

// A call, since the loop would take the registers of those who hear a packet.
#[inline(never)]
fn poll<M: Endpoint>(
    machine: &mut M,
    now: Time,
    mut send: impl FnMut(Option<FetchId>, Packet),
) -> Result<Option<Time>, M::Event> {
    loop {
        match machine.poll(now) {
            Output::Transmit(packet) => send(None, packet),
            Output::Event(event) => return Err(event),
            Output::Wake(at) => return Ok(at),
        }
    }
}

/// The same of a host's receiving machine, whose fetches have an endpoint each.
#[inline(always)]
fn poll_receivers(
    receivers: &mut Receivers,
    now: Time,
    mut send: impl FnMut(Option<FetchId>, Packet),
) -> Result<Option<Time>, MachineEvent> {
    loop {
        match receivers.poll(now) {
            Output::Transmit(packet) => send(receivers.speaker(), packet),
            Output::Event(FromFetch(fetch, event)) => return Err(MachineEvent::Receiver(fetch, event)),
            Output::Wake(at) => return Ok(at),
        }
    }
}
