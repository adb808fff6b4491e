//! Machines of three kinds in one network.

use headwater_controller::{Controller, ControllerCommand, ControllerEvent};
use headwater_machine::{Endpoint, Input, Output};
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::Source;
use headwater_transport::{FromFetch, SourceCommand, SourceEvent, ToFetch};
use headwater_units::{BitRate, Bytes, Duration, Time};

/// Something of a controller, a source or a receiver: the machine itself, what it is told, or what it says.
#[derive(Clone, Debug, PartialEq)]
pub enum Role<C, S, R> {
    /// The planner.
    Controller(C),
    /// The sending host.
    Source(S),
    /// The receiving host.
    Receiver(R),
}

/// A machine of the product.
pub type Machine = Role<Controller, Source, Receivers>;
/// Commands to such a machine.
pub type Command = Role<ControllerCommand, SourceCommand, ToFetch>;
/// Events of such a machine.
pub type Event = Role<ControllerEvent, SourceEvent, FromFetch>;

/// The receivers of a host whose link has this rate.
pub fn receivers(rate: BitRate) -> Receivers {
    let pull = PullConfig { rate, packet: Bytes::new(1500), catch_up: Duration::ZERO };
    Receivers::new(HostReceiverConfig { pull })
}

impl<C: Endpoint, S: Endpoint, R: Endpoint> Endpoint for Role<C, S, R> {
    type Command = Role<C::Command, S::Command, R::Command>;
    type Event = Role<C::Event, S::Event, R::Event>;

    fn handle(&mut self, now: Time, input: Input<Self::Command>) {
        match (self, input) {
            (Role::Controller(machine), Input::Packet(packet)) => machine.handle(now, Input::Packet(packet)),
            (Role::Source(machine), Input::Packet(packet)) => machine.handle(now, Input::Packet(packet)),
            (Role::Receiver(machine), Input::Packet(packet)) => machine.handle(now, Input::Packet(packet)),
            (Role::Controller(machine), Input::Command(Role::Controller(command))) => {
                machine.handle(now, Input::Command(command));
            }
            (Role::Source(machine), Input::Command(Role::Source(command))) => {
                machine.handle(now, Input::Command(command));
            }
            (Role::Receiver(machine), Input::Command(Role::Receiver(command))) => {
                machine.handle(now, Input::Command(command));
            }
            _ => panic!("a command for another kind of machine"),
        }
    }

    fn poll(&mut self, now: Time) -> Output<Self::Event> {
        match self {
            Role::Controller(machine) => machine.poll(now).map(Role::Controller),
            Role::Source(machine) => machine.poll(now).map(Role::Source),
            Role::Receiver(machine) => machine.poll(now).map(Role::Receiver),
        }
    }
}

/// In place of a controller where there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Nobody {}

impl Endpoint for Nobody {
    type Command = Nobody;
    type Event = Nobody;

    fn handle(&mut self, _: Time, _: Input<Nobody>) {
        match *self {}
    }

    fn poll(&mut self, _: Time) -> Output<Nobody> {
        match *self {}
    }
}
