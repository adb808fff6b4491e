//! The timers of a flow.

use headwater_units::{Duration, Time};

use headwater_flow::rtt::Rtt;

/// Those that watch what is in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    /// Packets of a tail probe, where there are such.
    probe: Option<u8>,
    pub(super) heard_at: Time,
    /// Since when the retransmission timer runs.
    pub(super) armed_at: Time,
    sent_at: Time,
    tail: Tail,
}

/// Whether the tail of what is in flight was probed since something was acknowledged last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    Unprobed,
    /// It was, or that would be of no use; some packets of the probe have yet to leave.
    Probed {
        due: u8,
    },
}

impl Timers {
    pub(super) fn new(now: Time, probe: Option<u8>) -> Self {
        Timers { probe, heard_at: now, armed_at: now, sent_at: now, tail: Tail::Unprobed }
    }

    /// A packet leaves; `first`: nothing else is in flight.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Time, first: bool) {
        if first {
            self.armed_at = now;
        }
        self.sent_at = now;
    }

    /// Something was acknowledged.
    pub(super) fn on_progress(&mut self, now: Time) {
        (self.armed_at, self.tail) = (now, Tail::Unprobed);
    }

    /// Everything in flight is given up.
    pub(super) fn on_given_up(&mut self, now: Time) {
        (self.armed_at, self.tail) = (now, Tail::Probed { due: 0 });
    }

    /// Whether a packet of a probe is to leave; it is taken to do so.
    #[inline]
    pub(super) fn take_probe(&mut self) -> bool {
        match &mut self.tail {
            Tail::Probed { due } if *due > 0 => {
                *due -= 1;
                true
            }
            _ => false,
        }
    }

    /// The packets that a probe would have now.
    fn probe(&self) -> Option<u8> {
        self.probe.filter(|_| self.tail == Tail::Unprobed)
    }

    /// When the next of them runs out while packets are in flight. A probe goes out before the timeout would.
    pub(super) fn deadline(&self, rtt: &Rtt) -> Time {
        let timeout_at = self.armed_at + rtt.rto();
        match self.probe() {
            Some(_) => timeout_at.min(self.armed_at.max(self.sent_at) + rtt.pto()),
            None => timeout_at,
        }
    }

    /// Probes if it is time; true if it is the timeout that has run out. After a probe that runs anew (as RFC 8985 §7.3).
    pub(super) fn expire(&mut self, now: Time, rtt: &Rtt, in_flight: usize) -> bool {
        if now < self.deadline(rtt) {
            return false;
        }
        let Some(packets) = self.probe() else { return true };
        self.tail = Tail::Probed { due: packets.min(in_flight.min(255) as u8) };
        self.armed_at = now;
        false
    }
}

/// The one of a challenge: it may be lost, or its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenge {
    pub(super) said_at: Time,
    /// Number of repetitions.
    pub(super) repeats: u32,
    /// From a challenge to its answer, where it was sent once.
    pub(super) rtt: Option<Duration>,
}

impl Challenge {
    pub(super) fn new(now: Time) -> Self {
        Challenge { said_at: now, repeats: 0, rtt: None }
    }

    pub(super) fn on_answered(&mut self, now: Time) {
        if self.repeats == 0 {
            self.rtt = Some(now.since(self.said_at));
        }
    }

    /// Repeated after a probe timeout, then after twice as long, and so on.
    pub(super) fn repeat_at(&self, rtt: &Rtt) -> Time {
        self.said_at + rtt.pto() * (1 << self.repeats.min(16))
    }
}
