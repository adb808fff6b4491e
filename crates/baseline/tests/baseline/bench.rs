//! A sender on its own: the test says what comes back, and sees what leaves at once.

use headwater_baseline::{Sender, SenderCommand, SenderConfig, SenderEvent, SenderStats};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_units::{Duration, FlowId, PacketNumber, Packets, PathId, Time};
use headwater_wire::{AckVector, AheadBlock, Body, Class, Cumulative, Datagram, Ecn};

pub(crate) const FLOW: FlowId = FlowId(7);
pub(crate) const PATH: PathId = PathId(3);

pub(crate) struct Bench {
    pub(crate) sender: Sender,
    pub(crate) now: Time,
    pub(crate) wake: Option<Time>,
    pub(crate) closed: u32,
}

impl Bench {
    /// A flow without end, before its first poll.
    pub(crate) fn new(config: SenderConfig) -> Self {
        let sender = Sender::new(config, FLOW, PATH, u64::MAX);
        Bench { sender, now: Time::ZERO, wake: None, closed: 0 }
    }

    /// Polls until there is nothing more to do; the numbers of the packets that left.
    pub(crate) fn drain(&mut self) -> Vec<u64> {
        let mut sent = Vec::new();
        loop {
            match self.sender.poll(self.now) {
                Output::Transmit(packet) => {
                    let Body::Symbol(header) = packet.datagram.body else { panic!("a sender sends data") };
                    assert_eq!((packet.path, packet.datagram.flow), (PATH, FLOW));
                    assert_eq!(packet.datagram.class, Class::Bulk);
                    sent.push(header.number.0);
                }
                Output::Event(SenderEvent::Closed { flow: FLOW }) => self.closed += 1,
                Output::Event(event) => panic!("{event:?}"),
                Output::Wake(at) => {
                    self.wake = at;
                    return sent;
                }
            }
        }
    }

    pub(crate) fn pass(&mut self, span: Duration) -> Vec<u64> {
        self.now += span;
        self.drain()
    }

    fn hear(&mut self, body: Body) -> Vec<u64> {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: FLOW, body };
        let packet = Packet { path: PATH, ecn: Ecn::NotEct, datagram };
        self.sender.handle(self.now, Input::Packet(packet));
        self.drain()
    }

    /// A cumulative ACK: everything below `next` is there.
    pub(crate) fn ack(&mut self, next: u64) -> Vec<u64> {
        self.hear(Body::Cumulative(Cumulative { next: PacketNumber(next), echo: false, block: None }))
    }

    /// The same, caused by a marked packet.
    pub(crate) fn echo(&mut self, next: u64) -> Vec<u64> {
        self.hear(Body::Cumulative(Cumulative { next: PacketNumber(next), echo: true, block: None }))
    }

    /// A cumulative ACK that says besides that `from..to` are there.
    pub(crate) fn block(&mut self, next: u64, (from, to): (u64, u64)) -> Vec<u64> {
        self.raw_block(next, ((from - next) as u32, (to - next) as u32))
    }

    /// The same, sensible or not; the block counts from `next`.
    pub(crate) fn raw_block(&mut self, next: u64, (from, to): (u32, u32)) -> Vec<u64> {
        let block = AheadBlock { from, to };
        self.hear(Body::Cumulative(Cumulative { next: PacketNumber(next), echo: false, block: Some(block) }))
    }

    /// An ACK vector of these packets, the largest first; those in `marked` carried CE.
    pub(crate) fn vector(&mut self, received: &[u64], marked: &[u64]) -> Vec<u64> {
        let largest = received[0];
        let mask = |numbers: &[u64]| numbers.iter().fold(0, |bits, n| bits | 1u32 << (31 - (largest - n)));
        self.raw_vector(largest, mask(received), mask(marked))
    }

    /// An ACK vector, sensible or not.
    pub(crate) fn raw_vector(&mut self, largest: u64, received: u32, marked: u32) -> Vec<u64> {
        let vector = AckVector { largest: PacketNumber(largest), received, marked };
        self.hear(Body::AckVector(vector))
    }

    pub(crate) fn withdraw(&mut self) -> Vec<u64> {
        let withdraw = SenderCommand::Withdraw;
        self.sender.handle(self.now, Input::Command(withdraw));
        self.drain()
    }

    pub(crate) fn say(&mut self, body: Body) -> Vec<u64> {
        self.hear(body)
    }

    pub(crate) fn stats(&self) -> SenderStats {
        self.sender.stats()
    }

    pub(crate) fn window(&self) -> f64 {
        self.stats().window.get()
    }

    pub(crate) fn threshold(&self) -> f64 {
        self.stats().threshold.get()
    }
}

/// A data-centre sender that starts with `window` packets, and in congestion avoidance if `threshold` is no larger.
pub(crate) fn start(scheme: headwater_baseline::Scheme, window: f64, threshold: Option<f64>) -> SenderConfig {
    SenderConfig {
        initial_window: Packets::new(window),
        initial_threshold: threshold.map(Packets::new),
        ..SenderConfig::data_centre(scheme)
    }
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}
