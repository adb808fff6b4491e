//! The one timer of a sender, and the round-trip time behind it (RFC 6298).
//!
//! One packet per round trip is timed (RFC 6298 §3 asks for no more), and none that was sent twice (Karn's algorithm), so an ACK
//! costs one comparison. The deadline moves with every ACK; a driver that wakes at an older one just polls in vain.

use headwater_transport::flow::rtt::{Rtt, RttConfig};
use headwater_units::{Duration, Time};

const NONE: u64 = u64::MAX;

/// Retransmission timer and the packet that is being timed.
#[derive(Debug)]
pub(super) struct Clock {
    /// When the timer fires; [`Time::MAX`] while it is off.
    deadline: Time,
    /// The timeout as it stands, backed off.
    timeout: Duration,
    /// Number of the packet that is timed; [`NONE`] without one.
    timed: u64,
    timed_since: Time,
    rtt: Rtt,
}

impl Clock {
    pub(super) fn new(config: RttConfig) -> Self {
        let rtt = Rtt::new(config);
        Clock { deadline: Time::MAX, timeout: rtt.rto(), timed: NONE, timed_since: Time::ZERO, rtt }
    }

    /// A packet leaves. `fresh`: it never did before, so it may be timed.
    pub(super) fn on_send(&mut self, now: Time, number: u64, fresh: bool) {
        if fresh && self.timed == NONE {
            self.timed = number;
            self.timed_since = now;
        }
        if self.deadline == Time::MAX {
            self.deadline = now + self.timeout;
        }
    }

    /// The packet that is timed.
    pub(super) fn timed(&self) -> Option<u64> {
        (self.timed != NONE).then_some(self.timed)
    }

    /// Every packet below `next` is acknowledged: takes a sample if the timed one is among them.
    pub(super) fn on_cumulative(&mut self, now: Time, next: u64) -> Option<Duration> {
        (self.timed < next).then(|| self.sample(now))
    }

    /// The timed packet is acknowledged, after the time given. Only this ends a back-off (RFC 6298 §5.7).
    pub(super) fn sample(&mut self, now: Time) -> Duration {
        let sample = now.since(self.timed_since);
        self.rtt.on_sample(now, sample, Duration::ZERO);
        self.rtt.on_progress();
        self.timeout = self.rtt.rto();
        self.timed = NONE;
        sample
    }

    /// Times another packet instead: this one is sent again, or lost.
    pub(super) fn forget_timed(&mut self) {
        self.timed = NONE;
    }

    /// New data was acknowledged and more is out (RFC 6298 §5.3).
    pub(super) fn restart(&mut self, now: Time) {
        self.deadline = now + self.timeout;
    }

    /// Nothing is out any more (RFC 6298 §5.2).
    pub(super) fn stop(&mut self) {
        self.deadline = Time::MAX;
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.deadline
    }

    /// It has fired: backs off, and is off until the next packet leaves (RFC 6298 §5.5 and §5.6).
    pub(super) fn back_off(&mut self) {
        self.rtt.back_off();
        self.timeout = self.rtt.rto();
        self.timed = NONE;
        self.deadline = Time::MAX;
    }

    /// When to be woken.
    pub(super) fn wake(&self) -> Option<Time> {
        (self.deadline != Time::MAX).then_some(self.deadline)
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }
}
