//! Links between numbered hosts, and the loop of a driver around their machines.

use core::fmt::Debug;
use std::collections::BTreeMap;

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_units::{Bytes, Duration, Time};

use crate::agenda::Agenda;
use crate::link::{Carried, Link};

/// A machine has said all by then.
const OUTPUTS: usize = 1_000_000;

/// Something that happens.
#[derive(Debug)]
pub enum Due<P, A> {
    /// A packet is at the end of a link.
    Arrives {
        /// The link's place.
        link: usize,
        /// The packet.
        packet: P,
    },
    /// Something that a test or a driver has put down.
    Acts(A),
    /// A machine is polled because it wanted to be.
    Wakes {
        /// Its host.
        host: usize,
    },
}

/// Links, what is on them, and when hosts want to be woken.
pub struct Network<P, A> {
    /// The links, whose places are their names.
    pub links: Vec<Link<P>>,
    /// A hash of all that machines have said, for tests of determinism; text is costly, so it is none unless a test sets it.
    pub digest: Option<u64>,
    agenda: Agenda<Due<P, A>>,
    wakes: BTreeMap<usize, Time>,
}

impl<P: Carried, A> Network<P, A> {
    /// A network of these links, at time zero.
    pub fn new(links: Vec<Link<P>>) -> Self {
        Network { links, digest: None, agenda: Agenda::default(), wakes: BTreeMap::new() }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.agenda.now()
    }

    /// Puts a packet of `size` bytes on a link.
    pub fn send(&mut self, link: usize, size: Bytes, packet: P) {
        let agenda = &mut self.agenda;
        let now = agenda.now();
        self.links[link].carry(now, size, packet, |at, packet| agenda.at(at, Due::Arrives { link, packet }));
    }

    /// Puts something down for a time; what is of the past happens now.
    pub fn at(&mut self, time: Time, act: A) {
        self.agenda.at(time, Due::Acts(act));
    }

    /// Puts something down for later.
    pub fn after(&mut self, span: Duration, act: A) {
        self.agenda.after(span, Due::Acts(act));
    }

    /// A host wants to be woken then, and at no other time. This must lie ahead: what is to be done now is done before it waits.
    pub fn wake(&mut self, host: usize, at: Option<Time>) {
        let Some(at) = at else {
            self.wakes.remove(&host);
            return;
        };
        assert!(at > self.now(), "host {host} wants to be woken at {at}, now {}", self.now());
        if self.wakes.insert(host, at) != Some(at) {
            self.agenda.at(at, Due::Wakes { host });
        }
    }

    /// When a host wants to be woken.
    pub fn wake_of(&self, host: usize) -> Option<Time> {
        self.wakes.get(&host).copied()
    }

    fn note(&mut self, host: usize, said: &impl Debug) {
        if let Some(digest) = &mut self.digest {
            for byte in format!("{host} {} {said:?}", self.agenda.now()).bytes() {
                *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }

    /// The next that happens, if it is due by then.
    pub fn next(&mut self, until: Time) -> Option<Due<P, A>> {
        while self.agenda.due().is_some_and(|at| at <= until) {
            let due = self.agenda.pop()?;
            let Due::Wakes { host } = due else { return Some(due) };
            // Others were overtaken by what the host has wanted since.
            if self.wakes.get(&host) == Some(&self.now()) {
                self.wakes.remove(&host);
                return Some(due);
            }
        }
        None
    }

    /// Lets time pass in which nothing happens.
    pub fn wait_until(&mut self, time: Time) {
        self.agenda.wait_until(time);
    }

    /// Whether nothing will happen any more.
    pub fn is_quiet(&self) -> bool {
        self.wakes.is_empty() && self.agenda.is_empty()
    }

    /// Takes back what was put down, and packets that are on their way; wakes stay.
    pub fn retain(&mut self, stays: impl Fn(&Due<P, A>) -> bool) {
        self.agenda.retain(|due| matches!(due, Due::Wakes { .. }) || stays(due));
    }
}

/// A network, and the machines of its hosts.
pub trait Simulation {
    /// Commands to machines.
    type Command;
    /// Events of machines.
    type Event: Debug;
    /// Packets that links carry.
    type Carried: Carried;
    /// Actions that a test or a driver schedules.
    type Act;

    /// The network.
    fn network(&mut self) -> &mut Network<Self::Carried, Self::Act>;
    /// The machine of a host.
    fn machine(&mut self, host: usize) -> impl Endpoint<Command = Self::Command, Event = Self::Event>;
    /// A host sends a packet.
    fn transmit(&mut self, host: usize, packet: Packet);
    /// A machine says something to its driver. Answers go to it by [`Endpoint::handle`]: it is being polled.
    fn on_event(&mut self, host: usize, event: Self::Event);
    /// A packet is at the end of a link.
    fn arrive(&mut self, link: usize, packet: Self::Carried);
    /// The time of something that was put down.
    fn act(&mut self, act: Self::Act);

    /// Whether a host runs; one that does not hears nothing and says nothing.
    fn is_up(&self, _host: usize) -> bool {
        true
    }

    /// Hands a packet to a machine, which then says all it has to say.
    fn hear(&mut self, host: usize, packet: Packet) {
        if self.is_up(host) {
            self.handle(host, Input::Packet(packet));
            self.drain(host);
        }
    }

    /// Tells a machine something, which then says all it has to say.
    fn tell(&mut self, host: usize, command: Self::Command) {
        if self.is_up(host) {
            self.handle(host, Input::Command(command));
            self.drain(host);
        }
    }

    /// Hands a machine an input, and no more.
    fn handle(&mut self, host: usize, input: Input<Self::Command>) {
        let now = self.network().now();
        self.machine(host).handle(now, input);
    }

    /// Polls a machine until it waits.
    fn drain(&mut self, host: usize) {
        if !self.is_up(host) {
            return;
        }
        let now = self.network().now();
        for _ in 0..OUTPUTS {
            let output = self.machine(host).poll(now);
            self.network().note(host, &output);
            match output {
                Output::Transmit(packet) => self.transmit(host, packet),
                Output::Event(event) => self.on_event(host, event),
                Output::Wake(at) => return self.network().wake(host, at),
            }
        }
        panic!("host {host} never waits");
    }

    /// Lets the next happen, if it is due by then.
    fn step(&mut self, until: Time) -> bool {
        let Some(due) = self.network().next(until) else { return false };
        self.happen(due);
        true
    }

    /// Lets something happen now.
    fn happen(&mut self, due: Due<Self::Carried, Self::Act>) {
        match due {
            Due::Arrives { link, packet } => self.arrive(link, packet),
            Due::Acts(act) => self.act(act),
            Due::Wakes { host } => self.drain(host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_wake_of_a_host_counts() {
        let at = |us| Time::ZERO + Duration::from_micros(us);
        let mut network: Network<Packet, ()> = Network::new(Vec::new());
        for us in [1, 5, 3, 5] {
            network.wake(0, Some(at(us)));
        }
        network.wake(1, Some(at(2)));
        network.wake(1, None);
        assert!(matches!(network.next(Time::MAX), Some(Due::Wakes { host: 0 })));
        assert_eq!((network.now(), network.wake_of(0)), (at(5), None));
        assert!(network.next(Time::MAX).is_none() && network.is_quiet());
    }
}
