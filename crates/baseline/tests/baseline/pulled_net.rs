//! Many senders, one host that pulls: packets meet in one queue that trims what finds no room, everything else has a delay,
//! and the test decides what becomes of each.
//!
//! Every packet crosses the wire format. Headers and what goes back overtake data in the queue, as in a switch that serves
//! them first.

use std::collections::{BTreeMap, VecDeque};

use headwater_baseline::{
    Expect, PullReceiver, PullReceiverConfig, Sender, SenderConfig, SenderEvent, SinkCommand, SinkEvent,
};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::pull::queue::PullConfig;
use headwater_units::{BitRate, Bytes, Duration, FlowId, FlowKey, PathId, Time};
use headwater_wire::{Body, Class, Ecn, HeaderKey, emit, parse};

use crate::net::{Fate, Faults, no_faults};

/// A packet's time on the host's link: 1500 bytes at 1 Gbit/s.
pub(crate) const PACKET: Duration = Duration::from_micros(12);
/// One way.
pub(crate) const DELAY: Duration = Duration::from_micros(30);

/// The host's link: as fast as packets are pulled when there is no headroom.
pub(crate) fn pull_config(headroom: u64) -> PullConfig {
    PullConfig {
        rate: BitRate::new(1_000_000_000),
        packet: Bytes::new(1500 + headroom),
        catch_up: Duration::ZERO,
    }
}

enum Happening {
    /// At the queue before the host.
    Queue(Packet),
    Host(Packet),
    Sender(usize, Packet),
    WakeSender(usize),
    WakeHost,
    Line,
}

pub(crate) struct PulledNet {
    pub(crate) senders: Vec<Sender>,
    pub(crate) host: PullReceiver,
    /// Packets that wait before the host; beyond so many they are trimmed, or dropped if `trims` is off.
    pub(crate) room: usize,
    pub(crate) trims: bool,
    pub(crate) there: Faults,
    pub(crate) back: Faults,
    pub(crate) now: Time,
    queue: VecDeque<Packet>,
    line_busy: bool,
    /// When each sender, and last of all the host, is woken next.
    wakes: Vec<Option<Time>>,
    happenings: BTreeMap<(Time, u64), Happening>,
    happened: u64,
    carried: (u64, u64),
    pub(crate) trimmed: u64,
    pub(crate) pulls: u64,
    /// By sender: the sequence of its newest pull or receipt, when it closed, when it was complete.
    pub(crate) sequences: Vec<u32>,
    pub(crate) closed_at: Vec<Option<Time>>,
    pub(crate) complete_at: Vec<Option<Time>>,
    /// What each sender sent, in order.
    pub(crate) sent: Vec<Vec<u64>>,
    pub(crate) delivered: u64,
}

fn flow(sender: usize) -> FlowId {
    FlowId(100 + sender as u64)
}

impl PulledNet {
    /// Flows of these lengths, all from time zero.
    pub(crate) fn new(config: SenderConfig, headroom: u64, lengths: &[u64]) -> Self {
        let mut host = PullReceiver::new(PullReceiverConfig::of(&config, pull_config(headroom)));
        let mut senders = Vec::new();
        for (index, &packets) in lengths.iter().enumerate() {
            let path = PathId(index as u32);
            let window = config.first_window();
            let expect = Expect { flow: flow(index), path, packets, window, relayed: false };
            host.handle(Time::ZERO, Input::Command(SinkCommand::Expect(expect)));
            senders.push(Sender::new(config, flow(index), PathId(1000), packets));
        }
        let of = lengths.len();
        PulledNet {
            senders,
            host,
            room: 20,
            trims: true,
            there: no_faults(),
            back: no_faults(),
            now: Time::ZERO,
            queue: VecDeque::new(),
            line_busy: false,
            wakes: vec![None; of + 1],
            happenings: BTreeMap::new(),
            happened: 0,
            carried: (0, 0),
            trimmed: 0,
            pulls: 0,
            sequences: vec![0; of],
            closed_at: vec![None; of],
            complete_at: vec![None; of],
            sent: vec![Vec::new(); of],
            delivered: 0,
        }
    }

    /// Runs to the end, which must come.
    pub(crate) fn finish(&mut self) -> &mut Self {
        self.poll_host();
        (0..self.senders.len()).for_each(|sender| self.poll_sender(sender));
        for _ in 0..4_000_000 {
            let Some(entry) = self.happenings.first_entry() else { break };
            let ((at, _), happening) = entry.remove_entry();
            self.now = at;
            match happening {
                Happening::Queue(packet) => self.enqueue(packet),
                Happening::Line => {
                    let packet = self.queue.pop_front().expect("a busy line has a packet");
                    self.at(self.now + DELAY, Happening::Host(packet));
                    self.line_busy = false;
                    self.serve();
                }
                Happening::Host(packet) => {
                    self.delivered += 1;
                    self.host.handle(at, Input::Packet(packet));
                    self.poll_host();
                }
                Happening::Sender(sender, packet) => {
                    self.senders[sender].handle(at, Input::Packet(packet));
                    self.poll_sender(sender);
                }
                Happening::WakeSender(sender) => {
                    self.wakes[sender] = self.wakes[sender].filter(|wake| *wake > at);
                    self.poll_sender(sender);
                }
                Happening::WakeHost => {
                    let host = self.senders.len();
                    self.wakes[host] = self.wakes[host].filter(|wake| *wake > at);
                    self.poll_host();
                }
            }
        }
        assert!(self.happenings.is_empty(), "the flows go on for ever");
        for (index, sender) in self.senders.iter().enumerate() {
            let (stats, seen) = (sender.stats(), self.host.flow(flow(index)));
            assert!(self.closed_at[index].is_some(), "flow {index} is not closed: {stats:?} {seen:?}");
            assert!(self.complete_at[index].is_some(), "closed before it was complete: {stats:?} {seen:?}");
        }
        self
    }

    fn at(&mut self, time: Time, happening: Happening) {
        self.happened += 1;
        self.happenings.insert((time, self.happened), happening);
    }

    /// As a lazy driver: an older wake that comes earlier is good enough.
    fn wake(&mut self, whom: usize, at: Time, happening: Happening) {
        assert!(at > self.now, "a wake in the past");
        if self.wakes[whom].is_none_or(|earlier| at < earlier) {
            self.wakes[whom] = Some(at);
            self.at(at, happening);
        }
    }

    fn enqueue(&mut self, mut packet: Packet) {
        let Body::Symbol(header) = &mut packet.datagram.body else { panic!("senders send data") };
        if self.queue.len() < self.room {
            self.queue.push_back(packet);
            return self.serve();
        }
        if self.trims {
            self.trimmed += 1;
            header.trimmed = true;
            self.at(self.now + DELAY, Happening::Host(packet));
        }
    }

    fn serve(&mut self) {
        if !self.line_busy && !self.queue.is_empty() {
            self.line_busy = true;
            self.at(self.now + PACKET, Happening::Line);
        }
    }

    fn poll_sender(&mut self, index: usize) {
        loop {
            match self.senders[index].poll(self.now) {
                Output::Transmit(packet) => {
                    let Body::Symbol(header) = packet.datagram.body else { panic!("a sender sends data") };
                    assert_eq!((packet.datagram.flow, packet.datagram.class), (flow(index), Class::Bulk));
                    self.sent[index].push(header.number.0);
                    let fate = (self.there)(self.carried.0, header.number.0);
                    self.carried.0 += 1;
                    for at in self.fates(fate) {
                        self.at(
                            at,
                            Happening::Queue(Packet { path: PathId(index as u32), ..wired(&packet) }),
                        );
                    }
                }
                Output::Event(SenderEvent::Closed { .. }) => {
                    assert_eq!(self.closed_at[index].replace(self.now), None, "closed twice");
                }
                Output::Wake(None) => return,
                Output::Wake(Some(at)) => {
                    return self.wake(index, at, Happening::WakeSender(index));
                }
            }
        }
    }

    fn poll_host(&mut self) {
        loop {
            match self.host.poll(self.now) {
                Output::Transmit(packet) => {
                    let index = packet.path.0 as usize;
                    assert_eq!((packet.datagram.class, packet.ecn), (Class::Control, Ecn::NotEct));
                    let sequence = match packet.datagram.body {
                        Body::Pull(pull) => {
                            self.pulls += 1;
                            pull.sequence
                        }
                        Body::Receipt(receipt) => receipt.sequence,
                        ref other => panic!("{other:?}"),
                    };
                    self.sequences[index] = self.sequences[index].max(sequence);
                    let fate = (self.back)(self.carried.1, 0);
                    self.carried.1 += 1;
                    for at in self.fates(fate) {
                        self.at(at, Happening::Sender(index, wired(&packet)));
                    }
                }
                Output::Event(SinkEvent::Complete { flow }) => {
                    let index = (flow.0 - 100) as usize;
                    assert_eq!(self.complete_at[index].replace(self.now), None, "complete twice");
                }
                Output::Event(event) => panic!("{event:?}"),
                Output::Wake(None) => return,
                Output::Wake(Some(at)) => {
                    return self.wake(self.senders.len(), at, Happening::WakeHost);
                }
            }
        }
    }

    fn fates(&self, fate: Fate) -> Vec<Time> {
        let at = self.now + DELAY;
        match fate {
            Fate::Arrives | Fate::IsMarked => vec![at],
            Fate::IsLost => Vec::new(),
            Fate::IsLate(by) => vec![at + by],
            Fate::ComesTwice(by) => vec![at, at + by],
        }
    }
}

fn wired(packet: &Packet) -> Packet {
    let key = HeaderKey::new(&FlowKey([0; 32]));
    let mut bytes = vec![0; packet.datagram.len(8)];
    emit(&packet.datagram, 8, &key, &mut bytes);
    let datagram = parse(&bytes, &key).expect("what is said can be read").datagram;
    Packet { datagram, ..packet.clone() }
}
