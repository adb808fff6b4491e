//! Congestion control of gentle push flows: they take what other traffic leaves, also in plain FIFO queues.
//!
//! A less-than-best-effort rule after RFC 6817 (LEDBAT) and its successor LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus). The
//! window follows the *queueing delay*: the smallest round-trip time of a round (one window of data) minus the smallest of
//! the last minute or two. The target is far below what a loss-based TCP, or a weighted flow ([`super::wfcc`]), keeps queued,
//! so the flow gives way before they have to.
//!
//! ```text
//!               first queueing delay, mark or loss
//!  SlowStart -----------------------------------------> Avoidance: each round the window
//!  (W grows by a quarter in a round)                      grows by the gain, 1/16 to 1/4 of a packet; by a part of itself
//!                                                           after a while without any queue
//!                                                         shrinks by s^2 / 2, s = 0 at half the target to 1 at 2.5 targets
//!                                                         shrinks by one packet per packet that was marked (CE)
//!                                                         is halved by loss, once per round
//!                                                       RTO: W at its minimum
//! ```
//!
//! The weight theta plays no part: gentle flows share equally among themselves, and the rule is weaker than that of any
//! weight. Knows nothing of symbols or timers: see [`crate::source`]. The periodic slowdown that shows the empty path is that of
//! all flows that go by delay (`push_flow/refresh.rs`).
//!
//! Differs from LEDBAT++: the target is 1 to 5 ms instead of 60 ms, since a queue that holds 5 ms never shows 60; the reduction is
//! a ramp that begins below the target, so flows that disagree by some microseconds about the empty path still share (see
//! [`headwater_flow::marks`]); the smallest sample of a round counts, not of the last four; a link that stays empty is filled faster.

use headwater_units::{Duration, PacketNumber, Packets, Theta, Time};
use serde::{Deserialize, Serialize};

use super::feedback::Feedback;
pub use headwater_flow::Yields;
use headwater_flow::rtt::WindowedMin;

/// The constants of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct YieldingConfig {
    /// Window to start with. 2: LEDBAT++ §4.
    pub initial_window: Packets,
    /// The window never falls below. 1: two packets per round trip of a short queue are much of a link.
    pub minimum_window: Packets,
    /// The window never grows above.
    pub maximum_window: Packets,
    /// The target, as a part of the smallest round-trip time. 1/8: a quarter of [`headwater_flow::marks::DelayMark::fraction`], so that
    /// gentle flows yield before other flows see the first mark by delay.
    pub target_fraction: f64,
    /// The target is never smaller. 1 ms: half of it is about what schedulers of idle hosts add to every sample of a round.
    pub target_least: Duration,
    /// The target is never larger. 5 ms: TCP's sawtooth in a deep queue is many times as high.
    pub target_most: Duration,
    /// Where queues overflow, the target is at most this part of the delay that they showed then. 1/4: TCP lets a full queue
    /// drain by a third.
    pub overflow_fraction: f64,
    /// The target is at least this. 0.2 ms: what hosts are late by, whatever the queue.
    pub overflow_least: Duration,
    /// Samples older than once to twice this are no part of the empty path. RFC 6817 remembers 10 min; 60 s, so that a route that
    /// has become longer costs two minutes at most.
    pub base_window: Duration,
    /// Least samples of a round: one alone may have waited for a scheduler. 4: CURRENT_FILTER of RFC 6817.
    pub samples: u32,
    /// Growth for each acknowledged packet in slow start. 1/4: LEDBAT++ has its gain; a quarter overshoots by a quarter.
    pub slow_start_growth: f64,
    /// Packets that the window grows by in a round, at least. 1/16: LEDBAT++ §4.2.
    pub gain_least: f64,
    /// Most packets that the window grows by in a round, where the round trip is many times the target. 1/4, not the 1
    /// of LEDBAT++: in queues shorter than the target loss alone decides, and who grows like TCP takes as much.
    pub gain_most: f64,
    /// Number of rounds without queueing delay, mark or loss after which the link counts as idle ...
    pub quiet_rounds: u32,
    /// ... and the least time of these. 100 ms: longer than a TCP sender on the same short path is ever silent.
    pub quiet_time: Duration,
    /// The window then grows by a part of itself in a round: this one, 1/16, after a second, and less before, in proportion. Twice
    /// as much after 11 rounds; a flow that has the link for itself and touches its target now and then does not shoot past it.
    pub quiet_growth: f64,
    /// Time until the growth is at its fastest.
    pub quiet_full: Duration,
}

impl Default for YieldingConfig {
    fn default() -> Self {
        YieldingConfig {
            initial_window: Packets::new(2.0),
            minimum_window: Packets::new(1.0),
            maximum_window: Packets::new(1_048_576.0),
            target_fraction: 0.125,
            target_least: Duration::from_millis(1),
            target_most: Duration::from_millis(5),
            overflow_fraction: 0.25,
            overflow_least: Duration::from_micros(200),
            base_window: Duration::from_secs(60),
            samples: 4,
            slow_start_growth: 0.25,
            gain_least: 1.0 / 16.0,
            gain_most: 0.25,
            quiet_rounds: 8,
            quiet_time: Duration::from_millis(100),
            quiet_growth: 1.0 / 16.0,
            quiet_full: Duration::from_secs(1),
        }
    }
}

impl YieldingConfig {
    /// The queueing delay around which the window settles, given the empty path's round-trip time and what a queue showed when it
    /// overflowed lately.
    pub fn target(&self, base: Duration, overflow: Option<Duration>) -> Duration {
        let target = base.mul_f64(self.target_fraction).max(self.target_least).min(self.target_most);
        let bound = |full: Duration| full.mul_f64(self.overflow_fraction).max(self.overflow_least);
        overflow.map_or(target, |full| target.min(bound(full)))
    }

    /// Packets that the window grows by in a round: one sixteenth per target that the empty path lasts.
    fn gain(&self, base: Duration) -> f64 {
        let targets = base.as_secs_f64() / self.target(base, None).as_secs_f64();
        (targets / 16.0).clamp(self.gain_least, self.gain_most)
    }
}

/// How far up the ramp a queueing delay is: 0 up to half the target, 1 from two and a half targets on.
fn ramp(queueing: Duration, target: Duration) -> f64 {
    let target = target.as_secs_f64();
    ((queueing.as_secs_f64() - 0.5 * target) / (2.0 * target)).clamp(0.0, 1.0)
}

/// Congestion control of one gentle flow.
#[derive(Clone, Debug)]
pub struct Yielding {
    config: YieldingConfig,
    /// The controller's theta, to be reported back; not used.
    theta: Theta,
    window: f64,
    slow_start: bool,
    base: WindowedMin,
    /// The queueing delay that came before the last loss, and when that was.
    overflow: Option<(Duration, Time)>,
    round: Round,
    /// The largest round-trip time of the round before.
    most_before: Duration,
    /// Losses of packets sent before this one are answered already.
    recovering: PacketNumber,
    largest: PacketNumber,
    /// How congested the last round was, in 0..=1: for status pages.
    congestion: f64,
    quiet_rounds: u32,
    quiet_since: Time,
    yields: Yields,
}

/// One window of data.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Acknowledging a packet from here on ends the round; `None` before the first ACK.
    end: Option<PacketNumber>,
    acked: u64,
    marked: u64,
    /// The smallest round-trip time, and how many there were.
    least: Option<Duration>,
    samples: u32,
    /// The largest.
    most: Duration,
    lost: bool,
    /// It follows a cut and still shows what was before: it is not judged.
    settling: bool,
}

impl Yielding {
    /// A flow that has sent nothing yet.
    pub fn new(config: YieldingConfig, theta: Theta) -> Self {
        Yielding {
            config,
            theta,
            window: config.initial_window.get().max(config.minimum_window.get()),
            slow_start: true,
            base: WindowedMin::default(),
            overflow: None,
            most_before: Duration::ZERO,
            round: Round::default(),
            recovering: PacketNumber(0),
            largest: PacketNumber(0),
            congestion: 0.0,
            quiet_rounds: 0,
            quiet_since: Time::ZERO,
            yields: Yields::default(),
        }
    }

    /// W.
    pub fn window(&self) -> Packets {
        Packets::new(self.window)
    }
    /// How congested the last round was, in 0..=1: the place on the ramp, or the share of marked packets.
    pub fn congestion(&self) -> f64 {
        self.congestion
    }
    /// The weight that the controller has assigned, which changes nothing here.
    pub fn theta(&self) -> Theta {
        self.theta
    }
    /// Remembers the weight, to report it.
    pub fn set_theta(&mut self, theta: Theta) {
        self.theta = theta;
    }
    /// Whether nothing has told it yet that the link is full.
    pub fn in_slow_start(&self) -> bool {
        self.slow_start
    }
    /// How often it has yielded, and to what.
    pub fn yields(&self) -> Yields {
        self.yields
    }

    /// Whether one more packet may be in flight.
    pub fn allows(&self, in_flight: usize) -> bool {
        in_flight as f64 + 1.0 <= self.window
    }

    /// Takes an ACK. `ce`: of the packets newly acknowledged, how many a router marked. `rtt`: the sample and the smallest
    /// round-trip time known of the path.
    pub fn on_ack(&mut self, now: Time, feedback: &Feedback, ce: u64, rtt: Option<(Duration, Duration)>) {
        if let Some((sample, min)) = rtt {
            self.base.record(now, sample.min(min), self.config.base_window);
            self.round.least = Some(self.round.least.map_or(sample, |least| least.min(sample)));
            self.round.most = self.round.most.max(sample);
            self.round.samples += 1;
        }
        self.largest = self.largest.max(feedback.largest);
        self.round.acked += feedback.acked;
        self.round.marked += ce.min(feedback.acked);
        if feedback.lost > 0 && self.largest >= self.recovering {
            self.recovering = feedback.next;
            self.yields.to_loss += 1;
            self.round.lost = true;
            let full =
                self.round.most.max(self.most_before).saturating_sub(self.base.get().unwrap_or_default());
            self.overflow = Some((full, now));
            self.cut(now, 0.5 * self.window);
        } else if feedback.limited && !self.round.lost {
            self.grow(now, feedback.acked);
        }
        match self.round.end {
            None => self.round.end = Some(feedback.next),
            Some(end) if self.largest >= end && self.round.samples >= self.config.samples => {
                self.end_round(now, feedback.next);
            }
            Some(_) => {}
        }
    }

    /// The flow takes another path: it begins anew.
    pub fn on_new_path(&mut self) {
        *self = Yielding { yields: self.yields, ..Yielding::new(self.config, self.theta) };
    }

    /// The retransmission timer fired: the window begins anew at its minimum, without slow start.
    pub fn on_rto(&mut self, now: Time) {
        self.yields.to_loss += 1;
        self.cut(now, self.window);
        self.round = Round::default();
    }

    fn grow(&mut self, now: Time, acked: u64) {
        let acked = acked as f64;
        let growth = if self.slow_start {
            self.config.slow_start_growth * acked
        } else {
            let by_gain = self.config.gain(self.base.get().unwrap_or_default()) / self.window;
            by_gain.max(self.quiet_growth(now)) * acked
        };
        self.window = (self.window + growth).min(self.config.maximum_window.get());
    }

    /// Fraction of itself by which the window grows in a round when the link looks unused.
    fn quiet_growth(&self, now: Time) -> f64 {
        let quiet = now.since(self.quiet_since);
        if self.quiet_rounds < self.config.quiet_rounds || quiet < self.config.quiet_time {
            return 0.0;
        }
        self.config.quiet_growth * (quiet.as_secs_f64() / self.config.quiet_full.as_secs_f64()).min(1.0)
    }

    fn cut(&mut self, now: Time, packets: f64) {
        self.window = (self.window - packets).max(self.config.minimum_window.get());
        self.slow_start = false;
        (self.quiet_rounds, self.quiet_since) = (0, now);
    }

    /// The verdict over a window of data.
    fn end_round(&mut self, now: Time, next: PacketNumber) {
        let round = std::mem::replace(&mut self.round, Round { end: Some(next), ..Round::default() });
        self.most_before = round.most;
        if round.settling {
            return;
        }
        let base = self.base.get().unwrap_or_default();
        let queueing = round.least.unwrap_or(base).saturating_sub(base);
        self.overflow = self.overflow.filter(|(_, at)| now.since(*at) < self.config.base_window);
        let target = self.config.target(base, self.overflow.map(|(full, _)| full));
        let share = ramp(queueing, target);
        let (by_delay, by_marks) = (self.window * share * share / 2.0, round.marked as f64);
        self.congestion = share.max(by_marks / round.acked.max(1) as f64);
        if by_delay <= 0.0 && by_marks <= 0.0 {
            self.quiet_rounds = if round.lost { 0 } else { self.quiet_rounds.saturating_add(1) };
            self.round.settling = round.lost;
            return;
        }
        self.round.settling = true;
        if !round.lost {
            let cause =
                if by_delay >= by_marks { &mut self.yields.to_delay } else { &mut self.yields.to_marks };
            *cause += 1;
            self.cut(now, by_delay.max(by_marks).min(0.5 * self.window));
        }
    }
}

#[cfg(test)]
mod fifo;
#[cfg(test)]
mod tests;
