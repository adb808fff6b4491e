//! Part of PAM in the control program of a switch (§IV-A): all that needs arithmetic and no packet.
//!
//! It runs on a grid of ticks. With each tick the loads decay, and an idle critical transfer is removed; after a number
//! of ticks the available rate is computed anew, and the tables of active transfers are swapped. An update comes before
//! the decay of its tick, when a load that is steady is neither above nor below its rate.
//!
//! Ticks that are due run late, when the next frame comes, one after the other with their own times. When nothing is left to decay or to
//! expire, the remaining ones change nothing and are left out. So a frame after a long silence runs the ticks of two idle timeouts
//! at most, and those that let the loads decay.

use headwater_units::{BitRate, Bytes, FlowId, Time};

use super::capacity::{Capacity, Gains, Measured};
use super::claim::Claim;
use super::config::RateAllocatorConfig;

/// The half of an allocator that sees packets. The other methods are the control program's.
pub(super) trait DataPlane {
    /// A frame is offered to the port. Returns the offer of what it claims.
    fn packet(&mut self, now: Time, len: Bytes, claim: Option<&Claim>) -> Option<BitRate>;
    /// Takes `share` off both loads, rounded so that they come to nothing in the end.
    fn decay(&mut self, share: f64);
    /// Bytes that are not scheduled, and bytes that are, as counted and decayed (PAM X).
    fn loads(&self) -> [f64; 2];
    /// Transfers that count as active (PAM N).
    fn active(&self) -> u64;
    /// The critical transfer (PAM k).
    fn critical(&self) -> Option<FlowId>;
    /// Claims whose transfer found no place in the tables.
    fn untracked(&self) -> u64;
    /// Sets the capacity that transfers may use together, in bit/s (PAM C(t)).
    fn set_available(&mut self, available: f64);
    /// The line's rate (PAM C).
    fn set_line(&mut self, line: BitRate);
    /// The other table of active transfers becomes the one that counts, and the one that was is emptied.
    fn swap(&mut self);
    /// Removes what is known to have been heard of before this time and not since: the critical transfer at least.
    fn expire(&mut self, heard_before: Time);
    /// Whether it holds nothing that decays or expires.
    fn is_at_rest(&self) -> bool;
}

/// The control program of one port.
#[derive(Clone, Debug)]
pub(super) struct Control {
    line: BitRate,
    config: RateAllocatorConfig,
    gains: Gains,
    capacity: Capacity,
    /// Share of the loads that a tick takes off (PAM γ).
    decay: f64,
    /// The last one that has run, and when the next one is due: most frames come before that.
    tick: u64,
    next: Time,
    updates: Every,
    swaps: Every,
    /// Bytes that waited when a frame was last offered, and when that was.
    queue: (Time, Bytes),
}

impl Control {
    pub(super) fn new(config: &RateAllocatorConfig, line: BitRate) -> Self {
        Control {
            line,
            config: *config,
            gains: Gains {
                idle_share: f64::from(config.idle_share) / 1000.0,
                queue_gain: f64::from(config.queue_gain) / config.round_trip.as_secs_f64(),
                queue_target: config.queue_target(line),
                adapts: config.adapts,
            },
            capacity: Capacity::new(line),
            decay: f64::from(config.decay) / 1000.0,
            tick: 0,
            next: Time::ZERO + config.tick,
            updates: Every::new(config.ticks(config.update_interval)),
            swaps: Every::new(config.ticks(config.idle_timeout)),
            queue: (Time::ZERO, Bytes::ZERO),
        }
    }

    pub(super) fn available(&self) -> BitRate {
        BitRate::new(self.capacity.available as u64)
    }

    pub(super) fn alpha(&self) -> f64 {
        self.capacity.alpha
    }

    pub(super) fn set_line(&mut self, now: Time, line: BitRate) {
        self.queue_is(now, self.queue_at(now));
        self.line = line;
        self.gains.queue_target = self.config.queue_target(line);
    }

    /// Notes that `bytes` wait now.
    pub(super) fn queue_is(&mut self, now: Time, bytes: Bytes) {
        self.queue = (now, bytes);
    }

    /// Runs all ticks that are due.
    #[inline]
    pub(super) fn catch_up<P: DataPlane>(&mut self, now: Time, plane: &mut P) {
        if now >= self.next {
            self.run_until(now.as_nanos() / self.config.tick.as_nanos(), plane);
        }
    }

    #[inline(never)]
    fn run_until<P: DataPlane>(&mut self, due: u64, plane: &mut P) {
        while self.tick < due {
            if plane.is_at_rest() {
                // Of all ticks that are left, only the last update can change anything: it looks at the queue.
                let update = self.updates.skip_to(due);
                if update > self.tick {
                    self.update(self.time_of(update), plane);
                }
                self.swaps.skip_to(due);
                self.tick = due;
                break;
            }
            self.tick += 1;
            let at = self.time_of(self.tick);
            if self.updates.is_due(self.tick) {
                self.update(at, plane);
            }
            plane.decay(self.decay);
            plane.expire(at - self.config.idle_timeout);
            if self.swaps.is_due(self.tick) {
                plane.swap();
            }
        }
        self.next = self.time_of(self.tick.saturating_add(1));
    }

    fn time_of(&self, tick: u64) -> Time {
        Time::ZERO + self.config.tick * tick
    }

    fn update<P: DataPlane>(&mut self, at: Time, plane: &mut P) {
        // A load that gets R per second and loses a share of itself each tick settles at R times tick / share.
        let per_second = 8.0 * f64::from(self.config.decay) / 1000.0 / self.config.tick.as_secs_f64();
        let [other, scheduled] = plane.loads().map(|bytes| bytes * per_second);
        let (queue, active) = (self.queue_at(at), plane.active());
        self.capacity.update(&self.gains, &Measured { line: self.line, other, scheduled, queue, active });
        plane.set_available(self.capacity.available);
    }

    /// Bytes that wait at a time after the last frame was offered: the line goes on.
    fn queue_at(&self, at: Time) -> Bytes {
        let (since, bytes) = self.queue;
        bytes - self.line * at.since(since)
    }
}

/// What happens every so many ticks.
#[derive(Clone, Copy, Debug)]
struct Every {
    ticks: u64,
    next: u64,
}

impl Every {
    fn new(ticks: u64) -> Self {
        Every { ticks, next: ticks }
    }

    /// Asked of each tick: whether it happens then.
    #[inline]
    fn is_due(&mut self, tick: u64) -> bool {
        let due = tick == self.next;
        if due {
            self.next = tick.saturating_add(self.ticks);
        }
        due
    }

    /// Leaves out what happens until then; says when the last of it would be.
    fn skip_to(&mut self, tick: u64) -> u64 {
        let last = tick - tick % self.ticks;
        self.next = last.saturating_add(self.ticks);
        last
    }
}

/// Counted bytes that decay, in floating point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Loads([f64; 2]);

impl Loads {
    pub(super) fn count(&mut self, len: Bytes, scheduled: bool) {
        self.0[usize::from(scheduled)] += len.get() as f64;
    }

    /// Less than a byte is nothing.
    pub(super) fn decay(&mut self, share: f64) {
        self.0 = self.0.map(|bytes| Some(bytes * (1.0 - share)).filter(|it| *it >= 1.0).unwrap_or(0.0));
    }

    pub(super) fn bytes(&self) -> [f64; 2] {
        self.0
    }

    pub(super) fn are_zero(&self) -> bool {
        self.0 == [0.0; 2]
    }
}

/// As a rate; what is no rate becomes none, and the largest rate what is larger.
pub(super) fn rate(bits_per_second: f64) -> BitRate {
    BitRate::new(bits_per_second as u64)
}

/// Whether a time of last hearing is too long ago.
pub(super) fn is_stale(heard: Time, heard_before: Time) -> bool {
    heard < heard_before
}
