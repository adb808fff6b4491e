//! The machines of all kinds, as one: what a slot of the world holds, is told and says.

use core::net::SocketAddr;
use headwater_baseline::{self as baseline, SenderCommand, SenderEvent, SinkCommand, SinkEvent};
use headwater_controller::{Controller, ControllerCommand, ControllerEvent};

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_node::{By, Node, NodeAction, Parcel, Room};
use headwater_transport::receiver::Receivers;
use headwater_transport::source::Source;
use headwater_transport::{ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent};
use headwater_units::{FetchId, FlowId, PathId, Time};
use headwater_wire::{Body, Class, Control, Datagram, Ecn, HeaderKey};

use crate::packet::director::Director;

/// A state machine at one end.
pub(in crate::packet) enum Machine {
    /// What sends and receives all coded tasks of a host.
    Host(Box<Node<Source, Receivers, Carried, SocketAddr>>),
    Controller(Box<Controller>),
    Director(Box<Director>),
    Sender(Box<baseline::Sender>),
    Sink(Box<baseline::Receiver>),
    /// What receives all flows of a host whose receivers pull.
    Puller(Box<baseline::PullReceiver>),
    /// Over, or not there yet.
    Nobody,
}

/// When a machine is to be roused, and the fetches of one that is a host.
#[derive(Clone, Copy, Default)]
pub(super) struct Wakes {
    pub(super) own: Option<Time>,
    pub(super) fetches: Option<Time>,
}

impl Wakes {
    fn of_one(own: Option<Time>) -> Self {
        Wakes { own, fetches: None }
    }
}

/// A packet of a tree, without payload.
#[derive(Clone)]
pub(in crate::packet) struct Carried(Datagram);

impl Parcel for Carried {
    fn open(&self, _: &HeaderKey) -> Option<(Datagram, usize)> {
        Some((self.0.clone(), 0))
    }
}

/// What a machine is told.
pub(super) enum Command {
    Source(SourceCommand),
    Receiver(FetchId, ReceiverCommand),
    Controller(ControllerCommand),
    Sender(SenderCommand),
    Sink(SinkCommand),
}

/// What a machine says.
pub(super) enum Said {
    Source(SourceEvent),
    Receiver(FetchId, ReceiverEvent),
    Controller(ControllerEvent),
    Sender(SenderEvent),
    Sink(SinkEvent),
}

impl Machine {
    #[inline]
    pub(super) fn hear(&mut self, now: Time, whose: By, packet: Packet) {
        match self {
            Machine::Host(node) => match packet.datagram.body {
                Body::Control(control) => node.on_control(now, packet.path, *control),
                _ => node.on_packet_for(now, whose, packet),
            },
            Machine::Sender(m) => m.handle(now, Input::Packet(packet)),
            Machine::Sink(m) => m.handle(now, Input::Packet(packet)),
            Machine::Puller(m) => m.handle(now, Input::Packet(packet)),
            Machine::Controller(m) => m.handle(now, Input::Packet(packet)),
            Machine::Director(m) => m.handle(now, Input::Packet(packet)),
            Machine::Nobody => {}
        }
    }

    pub(super) fn tell(&mut self, now: Time, command: Command) {
        match (self, command) {
            (Machine::Sender(m), Command::Sender(command)) => m.handle(now, Input::Command(command)),
            (Machine::Sink(m), Command::Sink(command)) => m.handle(now, Input::Command(command)),
            (Machine::Puller(m), Command::Sink(command)) => m.handle(now, Input::Command(command)),
            (Machine::Host(node), Command::Source(command)) => node.tell_source(now, command),
            (Machine::Host(node), Command::Receiver(fetch, command)) => node.tell_fetch(now, fetch, command),
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
    ) -> Result<Wakes, Said> {
        match self {
            Machine::Host(node) => poll_node(node, now, send),
            Machine::Sender(m) => poll(m.as_mut(), now, send).map_err(Said::Sender).map(Wakes::of_one),
            Machine::Sink(m) => poll(m.as_mut(), now, send).map_err(Said::Sink).map(Wakes::of_one),
            Machine::Puller(m) => poll(m.as_mut(), now, send).map_err(Said::Sink).map(Wakes::of_one),
            Machine::Controller(m) => {
                poll(m.as_mut(), now, send).map_err(Said::Controller).map(Wakes::of_one)
            }
            Machine::Director(m) => poll(m.as_mut(), now, send).map_err(Said::Controller).map(Wakes::of_one),
            Machine::Nobody => Ok(Wakes::default()),
        }
    }

    /// Its time has come, or that of its fetches.
    #[inline]
    pub(super) fn rouse(&mut self, by: By) {
        if let Machine::Host(node) = self {
            node.rouse(by);
        }
    }

    /// What sends all coded flows of a host.
    pub(super) fn source(&self) -> Option<&Source> {
        if let Machine::Host(node) = self { Some(node.source()) } else { None }
    }

    /// What receives them, for its counters.
    pub(super) fn receivers(&mut self) -> Option<&mut Receivers> {
        if let Machine::Host(node) = self { Some(node.receivers_mut()) } else { None }
    }
}

#[inline]
fn poll_node(
    node: &mut Node<Source, Receivers, Carried, SocketAddr>,
    now: Time,
    mut send: impl FnMut(Option<FetchId>, Packet),
) -> Result<Wakes, Said> {
    while let Some(action) = node.poll(now, Room::Roused) {
        let speaker = |by| match by {
            By::Receivers => Some(node.receivers().speaker().expect("it has just spoken")),
            By::Source | By::Node => None,
        };
        match action {
            NodeAction::Transmit { by, packet } => send(speaker(by), packet),
            NodeAction::Tell { by, path, control } => send(speaker(by), tell(path, control)),
            NodeAction::Keep { fetch, flow, symbol, .. } => {
                node.kept(now, fetch, symbol);
                return Err(Said::Receiver(fetch, ReceiverEvent::Symbol { flow, symbol }));
            }
            NodeAction::Fetch(fetch, event) => return Err(Said::Receiver(fetch, event)),
            NodeAction::Source(event) => return Err(Said::Source(event)),
            NodeAction::Coming { .. } | NodeAction::Gone { .. } => {}
            NodeAction::Spoiled { .. } => unreachable!("simulated disks can always be read"),
            NodeAction::Lead { .. }
            | NodeAction::Wrap(_)
            | NodeAction::Forward { .. }
            | NodeAction::Signal { .. }
            | NodeAction::Send(_)
            | NodeAction::Heard { .. } => unreachable!("no controller plants trees or probes groups here"),
        }
    }
    Ok(Wakes { own: node.wake_of(By::Source), fetches: node.wake_of(By::Receivers) })
}

/// As [`Packet::control`], of what is in its box already.
fn tell(path: PathId, control: Box<Control>) -> Packet {
    let body = Body::Control(control);
    let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(0), body };
    Packet { path, ecn: Ecn::NotEct, datagram }
}

#[inline]
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
