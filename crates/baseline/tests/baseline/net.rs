//! Senders, the host that they send to, and a link each way; a test decides what else becomes of each packet.
//!
//! Every packet crosses the wire format, so numbers are cut to 32 bits and restored. Before a host that pulls, packets meet in one
//! queue that trims what finds no room; headers overtake it, as in a switch that serves them first.

use std::collections::BTreeSet;

use headwater_baseline::{
    Expect, PullReceiver, PullReceiverConfig, Receiver, ReceiverConfig, Sender, SenderCommand, SenderConfig,
    SenderEvent, SinkCommand, SinkEvent,
};
use headwater_machine::{Endpoint, Input, Packet};
use headwater_testkit::content::over_the_wire;
use headwater_testkit::{Addressed, Faults, Network, Nobody, Role, Simulation};
pub(crate) use headwater_testkit::{Fate, Line, Weather};
use headwater_transport::pull::queue::PullConfig;
use headwater_units::{BitRate, Bytes, Duration, FlowId, PathId, Time};
use headwater_wire::{Body, Class, Ecn};

pub(crate) type Link = headwater_testkit::Link<Addressed>;

/// A packet's time on a pulling host's link: 1500 bytes at 1 Gbit/s.
pub(crate) const PACKET: Duration = Duration::from_micros(12);
/// One way, to and from a pulling host.
pub(crate) const DELAY: Duration = Duration::from_micros(30);
const THERE: usize = 0;
const BACK: usize = 1;
/// The link of a host that pulls.
const LAST: usize = 2;

pub(crate) fn flow(sender: usize) -> FlowId {
    FlowId(100 + sender as u64)
}

/// Decides by the packet's position among all that the link has let through, and by its number (0 for ACKs).
pub(crate) fn by_number(mut faults: impl FnMut(u64, u64) -> Fate + 'static) -> Faults<Addressed> {
    Box::new(move |nth, it| match &it.packet.datagram.body {
        Body::Symbol(header) => faults(nth, header.number.0),
        _ => faults(nth, 0),
    })
}

/// A link on which each packet takes the time `each`, and which marks above `mark_above` packets in its queue and drops
/// above `room`; the one on the line is not among them.
pub(crate) fn queue(each: Duration, room: usize, mark_above: usize, delay: Duration) -> Link {
    Link { line: Line::Each(each), room: room + 1, mark_from: mark_above + 2, ..Link::new(delay) }
}

/// A pulling host's link: as fast as packets are pulled when there is no headroom.
pub(crate) fn pull_config(headroom: u64) -> PullConfig {
    PullConfig {
        rate: BitRate::new(1_000_000_000),
        packet: Bytes::new(1500 + headroom),
        catch_up: Duration::ZERO,
    }
}

pub(crate) struct Net<R> {
    pub(crate) network: Network<Addressed, ()>,
    /// The senders, and last of all the host.
    machines: Vec<Role<Nobody, Sender, R>>,
    /// By sender: when each packet left, and its number.
    pub(crate) sent: Vec<Vec<(Time, u64)>>,
    /// Different numbers that reached the host.
    pub(crate) reached: BTreeSet<u64>,
    /// Packets that reached the host.
    pub(crate) delivered: u64,
    /// By sender: the sequence of its newest pull or receipt, when it closed, when all had come.
    pub(crate) sequences: Vec<u32>,
    pub(crate) closed_at: Vec<Option<Time>>,
    pub(crate) complete_at: Vec<Option<Time>>,
    /// The most that one sender had in flight at any time.
    pub(crate) most_in_flight: u64,
}

impl Net<Receiver> {
    /// One flow.
    pub(crate) fn new(config: SenderConfig, packets: u64, there: Link, back: Link) -> Self {
        let receiver = Receiver::new(ReceiverConfig::of(&config), flow(0), PathId(0), packets);
        Net::with(config, &[packets], receiver, vec![there, back])
    }

    /// How many packets left in each round of `span`, from the start.
    pub(crate) fn rounds(&self, span: Duration) -> Vec<usize> {
        let mut rounds = Vec::new();
        for &(at, _) in &self.sent[0] {
            let round = (at.as_nanos() / span.as_nanos()) as usize;
            rounds.resize(rounds.len().max(round + 1), 0);
            rounds[round] += 1;
        }
        rounds
    }
}

impl Net<PullReceiver> {
    /// Flows of these lengths, all from time zero, pulled over a link that trims.
    pub(crate) fn pulled(config: SenderConfig, headroom: u64, lengths: &[u64]) -> Self {
        let mut host = PullReceiver::new(PullReceiverConfig::of(&config, pull_config(headroom)));
        for (index, &packets) in lengths.iter().enumerate() {
            let (path, window) = (PathId(index as u32), config.first_window());
            let expect = Expect { flow: flow(index), path, packets, window, relayed: false };
            host.handle(Time::ZERO, Input::Command(SinkCommand::Expect(expect)));
        }
        let last = Link { line: Line::Each(PACKET), room: 20, trims: true, ..Link::new(DELAY) };
        Net::with(config, lengths, host, vec![Link::new(DELAY), Link::new(DELAY), last])
    }

    /// The link before the host.
    pub(crate) fn last(&mut self) -> &mut Link {
        &mut self.network.links[LAST]
    }
}

impl<R: Endpoint<Command = SinkCommand, Event = SinkEvent>> Net<R> {
    fn with(config: SenderConfig, lengths: &[u64], host: R, links: Vec<Link>) -> Self {
        let sender = |index| Role::Source(Sender::new(config, flow(index), PathId(1000), lengths[index]));
        let of = lengths.len();
        Net {
            network: Network::new(links),
            machines: (0..of).map(sender).chain([Role::Receiver(host)]).collect(),
            sent: vec![Vec::new(); of],
            reached: BTreeSet::new(),
            delivered: 0,
            sequences: vec![0; of],
            closed_at: vec![None; of],
            complete_at: vec![None; of],
            most_in_flight: 0,
        }
    }

    pub(crate) fn sender(&self, index: usize) -> &Sender {
        let Role::Source(sender) = &self.machines[index] else { unreachable!() };
        sender
    }

    pub(crate) fn host(&self) -> &R {
        let Some(Role::Receiver(host)) = self.machines.last() else { unreachable!() };
        host
    }

    pub(crate) fn there(&mut self) -> &mut Link {
        &mut self.network.links[THERE]
    }

    pub(crate) fn back(&mut self) -> &mut Link {
        &mut self.network.links[BACK]
    }

    /// Numbers that a sender sent, in order.
    pub(crate) fn numbers(&self, sender: usize) -> Vec<u64> {
        self.sent[sender].iter().map(|&(_, number)| number).collect()
    }

    /// Runs until nothing happens any more, or until a time, or for `steps` events.
    pub(crate) fn run(&mut self, until: Time, steps: u64) -> &mut Self {
        (0..self.machines.len()).rev().for_each(|host| self.drain(host));
        _ = (0..steps).take_while(|_| self.step(until)).count();
        self
    }

    /// Runs to the end, which must come.
    pub(crate) fn finish(&mut self) -> &mut Self {
        self.run(Time::MAX, 4_000_000);
        for index in 0..self.sent.len() {
            let stats = self.sender(index).stats();
            assert!(self.network.is_quiet(), "flow {index} goes on for ever: {stats:?}");
            assert!(self.closed_at[index].is_some(), "flow {index} is not closed: {stats:?}");
            assert!(self.complete_at[index].is_some(), "closed before it was complete: {stats:?}");
        }
        self
    }
}

impl<R: Endpoint<Command = SinkCommand, Event = SinkEvent>> Simulation for Net<R> {
    type Command = Role<Nobody, SenderCommand, SinkCommand>;
    type Event = Role<Nobody, SenderEvent, SinkEvent>;
    type Carried = Addressed;
    type Act = ();

    fn network(&mut self) -> &mut Network<Addressed, ()> {
        &mut self.network
    }

    fn machine(
        &mut self,
        host: usize,
    ) -> impl Endpoint<
        Command = Role<Nobody, SenderCommand, SinkCommand>,
        Event = Role<Nobody, SenderEvent, SinkEvent>,
    > {
        &mut self.machines[host]
    }

    fn transmit(&mut self, from: usize, packet: Packet) {
        let (mut to, mut link) = (self.sent.len(), THERE);
        if from == to {
            assert_eq!((packet.datagram.class, packet.ecn), (Class::Control, Ecn::NotEct));
            (to, link) = (packet.path.0 as usize, BACK);
            let sequence = match packet.datagram.body {
                Body::Pull(pull) => pull.sequence,
                Body::Receipt(receipt) => receipt.sequence,
                _ => 0,
            };
            self.sequences[to] = self.sequences[to].max(sequence);
        } else {
            let Body::Symbol(header) = packet.datagram.body else { panic!("a sender sends data") };
            assert_eq!((packet.datagram.flow, packet.datagram.class), (flow(from), Class::Bulk));
            self.sent[from].push((self.network.now(), header.number.0));
            self.most_in_flight = self.most_in_flight.max(self.sender(from).stats().in_flight);
        }
        let packet = Packet { path: PathId(from as u32), ..over_the_wire(packet) };
        self.network.send(link, Bytes::ZERO, Addressed { from, to, packet });
    }

    fn arrive(&mut self, link: usize, it: Addressed) {
        let pulls = self.network.links.len() > LAST;
        if link == THERE && pulls {
            return self.network.send(LAST, Bytes::ZERO, it);
        }
        if let Body::Symbol(header) = &it.packet.datagram.body {
            self.delivered += 1;
            self.reached.insert(header.number.0);
        }
        self.hear(it.to, it.packet);
        let has_timer = it.to == self.sent.len() && self.network.wake_of(it.to).is_some();
        assert!(pulls || !has_timer, "a receiver of one flow has no timers");
    }

    fn on_event(&mut self, _: usize, event: Role<Nobody, SenderEvent, SinkEvent>) {
        let now = self.network.now();
        let ended = match event {
            Role::Source(SenderEvent::Closed { flow }) => &mut self.closed_at[(flow.0 - 100) as usize],
            Role::Receiver(SinkEvent::Done) => &mut self.complete_at[0],
            Role::Receiver(SinkEvent::Complete { flow }) => &mut self.complete_at[(flow.0 - 100) as usize],
            other => panic!("{other:?}"),
        };
        assert_eq!(ended.replace(now), None, "it ends twice");
    }

    fn act(&mut self, (): ()) {}
}
