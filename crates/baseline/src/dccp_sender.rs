//! The sending end of DCCP with CCID 2, TCP-like congestion control (RFC 4341), made semi-reliable.
//!
//! DCCP never sends a packet again. The application above it does: any packets will do for its task, as many as it is long, so
//! what was lost is made up for by new packets under new numbers, until enough are acknowledged (PPUSH §V-A, "the semi-reliable
//! TCP-like DCCP"). A packet is lost when three packets sent after it are acknowledged (NUMDUPACK, RFC 4341 §5); each congestion
//! event halves the window once.
//!
//! Ack Ratio is 1, an ACK per packet, so congestion control of ACKs (RFC 4341 §6.1) has nothing to do; the window does not
//! shrink when the flow is idle, because these flows never are.

use headwater_machine::{Input, Output};
use headwater_units::{FlowId, Packets, PathId, Time};
use headwater_wire::{AckVector, Body, Ecn};

use super::bits::BitRing;
use super::clock::Clock;
use super::commands::{SenderCommand, SenderEvent};
use super::ends::{End, Route};
use super::{SenderConfig, SenderStats, whole};

/// ssthresh is never below this.
const LEAST_THRESHOLD: u64 = 2;

/// One flow's sender. All windows are whole packets, rounded down when halved (RFC 4341 §5).
#[derive(Debug)]
pub(super) struct DccpSender {
    /// The number of the next packet.
    next: u64,
    /// The fate of every packet below is decided: acknowledged, or counted as lost.
    decided: u64,
    /// Different packets acknowledged.
    arrived: u64,
    /// Packets that are out, as far as we know.
    pipe: u64,
    window: u64,
    threshold: u64,
    /// Packets acknowledged towards the next one more.
    credit: u64,
    limit: u64,
    packets: u64,
    /// The three (NUMDUPACK) largest acknowledged numbers, plus one each, descending; zero where there is none yet. Every
    /// packet below the last of them was overtaken by three.
    newest: [u64; 3],
    /// Losses and marks of packets below this belong to an event that was answered already.
    event_end: u64,
    ecn: bool,
    end: End,
    route: Route,
    clock: Clock,
    /// Which packets are acknowledged, of those sent lately.
    acked: BitRing,
    stats: SenderStats,
}

impl DccpSender {
    pub(super) fn new(config: &SenderConfig, ecn: bool, flow: FlowId, path: PathId, packets: u64) -> Self {
        let limit = config.limit() as u64;
        let threshold = config.initial_threshold.map_or(u64::MAX, |t| t.get() as u64);
        DccpSender {
            next: 0,
            decided: 0,
            arrived: 0,
            pipe: 0,
            window: (whole(config.initial_window) as u64).min(limit),
            threshold: threshold.max(LEAST_THRESHOLD),
            credit: 0,
            limit,
            packets,
            newest: [0; 3],
            event_end: 0,
            ecn,
            end: if packets == 0 { End::Due } else { End::Open },
            route: Route { flow, path, ecn: if ecn { Ecn::Ect0 } else { Ecn::NotEct } },
            clock: Clock::new(config.rtt),
            // Packets that may be out, acknowledged ones that are not yet decided, and the reach of a vector.
            acked: BitRing::new(limit + 4 * u64::from(AckVector::SPAN)),
            stats: SenderStats::default(),
        }
    }

    pub(super) fn stats(&self) -> SenderStats {
        let threshold = if self.threshold == u64::MAX { f64::INFINITY } else { self.threshold as f64 };
        SenderStats {
            window: Packets::new(self.window as f64),
            threshold: Packets::new(threshold),
            rtt: self.clock.smoothed(),
            timeout: self.clock.timeout(),
            in_flight: self.pipe,
            sent: self.next,
            acked: self.arrived,
            ..self.stats
        }
    }

    pub(super) fn handle(&mut self, now: Time, input: Input<SenderCommand>) {
        match input {
            Input::Packet(ref packet) if packet.datagram.flow == self.route.flow => {
                match packet.datagram.body {
                    Body::AckVector(vector) => self.on_vector(now, vector),
                    Body::Fin(_) => self.stop(),
                    _ => self.stats.unexpected += 1,
                }
            }
            Input::Command(SenderCommand::Withdraw) => self.stop(),
            Input::Packet(_) | Input::Command(_) => self.stats.unexpected += 1,
        }
    }

    pub(super) fn poll(&mut self, now: Time) -> Output<SenderEvent> {
        if self.clock.is_due(now) {
            self.on_timeout();
        }
        let wanted = self.pipe < self.packets - self.arrived.min(self.packets);
        if self.pipe < self.window && wanted && self.end == End::Open {
            return self.transmit(now);
        }
        self.end.say(self.route.flow).unwrap_or_else(|| Output::Wake(self.clock.wake()))
    }

    fn transmit(&mut self, now: Time) -> Output<SenderEvent> {
        let number = self.next;
        self.next += 1;
        self.pipe += 1;
        self.acked.take(number);
        self.clock.on_send(now, number, true);
        self.route.data(number)
    }

    fn on_vector(&mut self, now: Time, vector: AckVector) {
        let largest = vector.largest.0;
        if self.end != End::Open {
            return; // A duplicate, or late.
        }
        if largest >= self.next {
            self.stats.unexpected += 1;
            return;
        }
        if self.next - largest > self.acked.span() - u64::from(AckVector::SPAN) {
            return; // So late that the ring has forgotten these packets.
        }
        let known = self.acked.last_32(largest);
        let new = vector.received & AckVector::possible(vector.largest) & !known;
        if new == 0 {
            return; // A true duplicate: must not affect pipe.
        }
        self.take_from_pipe(largest, new);
        self.note(now, largest, new);
        let lost = self.find_losses();
        let marked = new & vector.marked;
        self.stats.marked += count(marked);
        let congested = lost || (self.ecn && self.is_new_event(largest, marked));
        if congested {
            self.halve(lost);
        } else {
            let unmarked = if self.ecn { new & !vector.marked } else { new };
            self.grow(count(unmarked));
        }
        if self.arrived >= self.packets {
            self.end = End::Due;
            self.clock.stop();
        } else if self.pipe == 0 {
            self.clock.stop();
        } else {
            self.clock.restart(now);
        }
    }

    /// Packets that were out are not any more; those that had been given up left the pipe then.
    fn take_from_pipe(&mut self, largest: u64, new: u32) {
        if largest >= self.decided {
            let behind = (largest - self.decided).min(31) as u32;
            let undecided = new & (u32::MAX << (31 - behind));
            self.pipe -= count(undecided);
        }
        self.arrived += count(new);
    }

    /// Remembers the acknowledged packets, and takes the sample if the timed one is among them.
    fn note(&mut self, now: Time, largest: u64, mut new: u32) {
        while new != 0 {
            let back = new.leading_zeros();
            new ^= 1 << (31 - back);
            let number = largest - u64::from(back);
            self.acked.set(number);
            if self.clock.timed() == Some(number) {
                self.clock.sample(now);
            }
            let [first, second, third] = self.newest;
            self.newest = match number + 1 {
                entering if entering > first => [entering, first, second],
                entering if entering > second => [first, entering, second],
                entering => [first, second, third.max(entering)],
            };
        }
    }

    /// Gives up what three later packets have overtaken; true if that is news of congestion.
    fn find_losses(&mut self) -> bool {
        let third = self.newest[2].saturating_sub(1);
        if third <= self.decided {
            return false;
        }
        let from = std::mem::replace(&mut self.decided, third);
        if third == from + 1 && self.acked.get(from) {
            return false; // In order, as nearly always.
        }
        let lost = self.acked.clear_bits(from, third);
        if lost == 0 {
            return false;
        }
        self.pipe -= lost;
        self.stats.lost += lost;
        if self.clock.timed().is_some_and(|timed| timed < third) {
            self.clock.forget_timed();
        }
        self.acked.clear_bits(from.max(self.event_end), third) > 0
    }

    /// Whether the newest of these marks is of a packet sent after the last event was answered.
    fn is_new_event(&self, largest: u64, marked: u32) -> bool {
        marked != 0 && largest - u64::from(marked.leading_zeros()) >= self.event_end
    }

    fn halve(&mut self, lost: bool) {
        self.window = (self.window / 2).max(1);
        self.threshold = self.window.max(LEAST_THRESHOLD);
        self.credit = 0;
        self.event_end = self.next;
        if lost {
            self.stats.fast_recoveries += 1;
        } else {
            self.stats.cuts += 1;
        }
    }

    /// RFC 4341 §5: below the threshold a packet for every two acknowledged, above it one for every window.
    fn grow(&mut self, packets: u64) {
        let price = if self.window < self.threshold { 2 } else { self.window };
        self.credit += packets;
        if self.credit >= price {
            // At most one packet an ACK: one that reports many at once is no reason for a burst.
            self.credit = (self.credit - price).min(price);
            self.window = (self.window + 1).min(self.limit);
        }
    }

    /// All that was out is given up (RFC 4341 §5, "transmit timeouts").
    fn on_timeout(&mut self) {
        self.stats.timeouts += 1;
        self.stats.lost += self.pipe;
        self.threshold = (self.window / 2).max(LEAST_THRESHOLD);
        self.window = 1;
        self.credit = 0;
        self.pipe = 0;
        self.decided = self.next;
        self.event_end = self.next;
        self.clock.back_off();
    }

    fn stop(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
            self.clock.stop();
        }
    }
}

/// How many packets a mask names; nearly always one or none, so this is quicker than `count_ones`, for which the oldest x86-64
/// has no instruction.
fn count(mut mask: u32) -> u64 {
    let mut packets = 0;
    while mask != 0 {
        mask &= mask - 1;
        packets += 1;
    }
    packets
}
