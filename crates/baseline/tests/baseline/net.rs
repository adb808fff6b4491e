//! Two hosts and a link each way: a rate, a delay, a queue that marks and drops, and faults that the test decides.
//!
//! Every packet crosses the wire format, so numbers are cut to 32 bits and restored.

use std::collections::{BTreeMap, BTreeSet};

use headwater_baseline::{Receiver, ReceiverConfig, Sender, SenderConfig, SenderEvent, SinkEvent};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_units::{Duration, FlowId, FlowKey, PathId, Time};
use headwater_wire::{Body, Ecn, HeaderKey, emit, parse};

const FLOW: FlowId = FlowId(11);

/// What becomes of a packet that the queue has let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    IsLost,
    /// It comes this much later than it should.
    IsLate(Duration),
    /// And once more this much later.
    ComesTwice(Duration),
    IsMarked,
}

/// Decides by the packet's position among all that were sent this way, and its number (0 for ACKs).
pub(crate) type Faults = Box<dyn FnMut(u64, u64) -> Fate>;

pub(crate) fn no_faults() -> Faults {
    Box::new(|_, _| Fate::Arrives)
}

/// One direction.
pub(crate) struct Link {
    /// The time that one packet takes; zero for a link without limit.
    pub(crate) per_packet: Duration,
    pub(crate) delay: Duration,
    /// An arriving packet is dropped when so many are queued, the one on the line not counted.
    pub(crate) room: u64,
    /// It is marked when more than this many are queued.
    pub(crate) mark_above: u64,
    pub(crate) faults: Faults,
    pub(crate) free_at: Time,
    pub(crate) carried: u64,
    pub(crate) dropped: u64,
}

impl Link {
    pub(crate) fn delay(delay: Duration) -> Self {
        Link {
            per_packet: Duration::ZERO,
            delay,
            room: u64::MAX,
            mark_above: u64::MAX,
            faults: no_faults(),
            free_at: Time::ZERO,
            carried: 0,
            dropped: 0,
        }
    }

    pub(crate) fn with_faults(self, faults: Faults) -> Self {
        Link { faults, ..self }
    }

    /// When the packet is there, if at all; a doubled one is there twice.
    fn carry(&mut self, now: Time, number: u64, ecn: &mut Ecn) -> Vec<Time> {
        self.carried += 1;
        let backlog = self.free_at.since(now);
        let queued = match self.per_packet.as_nanos() {
            0 => 0,
            span => backlog.as_nanos().saturating_sub(1) / span,
        };
        if queued >= self.room {
            self.dropped += 1;
            return Vec::new();
        }
        if queued > self.mark_above && *ecn != Ecn::NotEct {
            *ecn = Ecn::Ce;
        }
        self.free_at = self.free_at.max(now) + self.per_packet;
        let at = self.free_at + self.delay;
        match (self.faults)(self.carried - 1, number) {
            Fate::Arrives => vec![at],
            Fate::IsLost => Vec::new(),
            Fate::IsLate(by) => vec![at + by],
            Fate::ComesTwice(by) => vec![at, at + by],
            Fate::IsMarked => {
                if *ecn != Ecn::NotEct {
                    *ecn = Ecn::Ce;
                }
                vec![at]
            }
        }
    }
}

enum Happening {
    Data(Packet),
    Back(Packet),
    Wake,
}

pub(crate) struct Net {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) there: Link,
    pub(crate) back: Link,
    pub(crate) now: Time,
    happenings: BTreeMap<(Time, u64), Happening>,
    happened: u64,
    wake: Option<Time>,
    /// When each packet left, and its number.
    pub(crate) sent: Vec<(Time, u64)>,
    /// Different numbers that reached the receiver.
    pub(crate) reached: BTreeSet<u64>,
    pub(crate) closed_at: Option<Time>,
    pub(crate) done_at: Option<Time>,
    /// The most that was in flight at any time.
    pub(crate) most_in_flight: u64,
}

impl Net {
    pub(crate) fn new(config: SenderConfig, packets: u64, there: Link, back: Link) -> Self {
        Net {
            sender: Sender::new(config, FLOW, PathId(1), packets),
            receiver: Receiver::new(ReceiverConfig::of(&config), FLOW, PathId(2), packets),
            there,
            back,
            now: Time::ZERO,
            happenings: BTreeMap::new(),
            happened: 0,
            wake: None,
            sent: Vec::new(),
            reached: BTreeSet::new(),
            closed_at: None,
            done_at: None,
            most_in_flight: 0,
        }
    }

    /// Runs until nothing happens any more, or until a time, or for so many happenings.
    pub(crate) fn run(&mut self, until: Time, mut steps: u64) -> &mut Self {
        self.poll_receiver();
        self.poll_sender();
        while let Some(entry) = self.happenings.first_entry() {
            if entry.key().0 > until || steps == 0 {
                break;
            }
            steps -= 1;
            let ((at, _), happening) = entry.remove_entry();
            self.now = at;
            match happening {
                Happening::Data(packet) => {
                    if let Body::Symbol(header) = packet.datagram.body {
                        self.reached.insert(header.number.0);
                    }
                    self.receiver.handle(at, Input::Packet(packet));
                    self.poll_receiver();
                }
                Happening::Back(packet) => {
                    self.sender.handle(at, Input::Packet(packet));
                    self.poll_sender();
                }
                Happening::Wake => {
                    self.wake = None;
                    self.poll_sender();
                }
            }
        }
        self
    }

    /// Runs to the end, which must come.
    pub(crate) fn finish(&mut self) -> &mut Self {
        self.run(Time::MAX, 4_000_000);
        assert!(self.happenings.is_empty(), "the flow goes on for ever: {:?}", self.sender.stats());
        assert!(
            self.closed_at.is_some(),
            "nothing more happens and it is not closed: {:?}",
            self.sender.stats()
        );
        assert!(self.done_at.is_some(), "closed before it was complete: {:?}", self.receiver.stats());
        self
    }

    fn poll_sender(&mut self) {
        loop {
            match self.sender.poll(self.now) {
                Output::Transmit(packet) => {
                    let Body::Symbol(header) = packet.datagram.body else { panic!("a sender sends data") };
                    self.sent.push((self.now, header.number.0));
                    self.carry(packet, header.number.0, true);
                }
                Output::Event(SenderEvent::Closed { flow: FLOW }) => {
                    assert_eq!(self.closed_at.replace(self.now), None, "closed twice");
                }
                Output::Event(event) => panic!("{event:?}"),
                Output::Wake(at) => {
                    self.most_in_flight = self.most_in_flight.max(self.sender.stats().in_flight);
                    return self.wake_at(at);
                }
            }
        }
    }

    /// As a lazy driver: an older wake that comes earlier is good enough.
    fn wake_at(&mut self, at: Option<Time>) {
        let Some(at) = at else { return };
        assert!(at > self.now, "a wake in the past");
        if self.wake.is_none_or(|earlier| at < earlier) {
            self.wake = Some(at);
            self.at(at, Happening::Wake);
        }
    }

    fn poll_receiver(&mut self) {
        loop {
            match self.receiver.poll(self.now) {
                Output::Transmit(packet) => {
                    assert_eq!(packet.ecn, Ecn::NotEct);
                    self.carry(packet, 0, false);
                }
                Output::Event(SinkEvent::Done) => {
                    assert_eq!(self.done_at.replace(self.now), None, "done twice");
                }
                Output::Event(event) => panic!("{event:?}"),
                Output::Wake(at) => return assert_eq!(at, None, "a receiver has no timers"),
            }
        }
    }

    fn carry(&mut self, packet: Packet, number: u64, there: bool) {
        let key = HeaderKey::new(&FlowKey([0; 32]));
        let mut bytes = vec![0; packet.datagram.len(8)];
        emit(&packet.datagram, 8, &key, &mut bytes);
        let datagram = parse(&bytes, &key).expect("what is said can be read").datagram;
        let mut packet = Packet { datagram, ..packet };
        let link = if there { &mut self.there } else { &mut self.back };
        for at in link.carry(self.now, number, &mut packet.ecn) {
            let packet = packet.clone();
            self.at(at, if there { Happening::Data(packet) } else { Happening::Back(packet) });
        }
    }

    fn at(&mut self, time: Time, happening: Happening) {
        self.happened += 1;
        self.happenings.insert((time, self.happened), happening);
    }

    /// How many packets left in each round of `span`, from the start.
    pub(crate) fn rounds(&self, span: Duration) -> Vec<usize> {
        let mut rounds = Vec::new();
        for &(at, _) in &self.sent {
            let round = (at.as_nanos() / span.as_nanos()) as usize;
            if rounds.len() <= round {
                rounds.resize(round + 1, 0);
            }
            rounds[round] += 1;
        }
        rounds
    }
}
