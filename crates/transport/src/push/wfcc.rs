//! Weighted fair congestion control of one push flow (PPUSH §III-B, Eq. 1-2).
//!
//! Grows the window like DCTCP and shrinks it by `mark_fraction / (2 theta)` per marked packet, so flows that share a
//! bottleneck settle at rates in proportion to `theta` (Theorem 1). Eq. 2 is applied once per acknowledged packet, also
//! when one ACK reports many (docs/decisions/0023), and Eq. 1 once per window of data.
//!
//! ```text
//!             first mark                             no CE, 10 stretches above 8 % loss (guarded only)
//!  SlowStart, Known -----> Avoidance  <----------------------------------------> losses halve W
//!      ^                       |
//!      +---- RTO (W = 1) ------+        10 intervals above 30 % loss (guarded only): Tripped, W held at the minimum
//! ```
//!
//! An inferred loss changes nothing under [`LossResponse::Ignore`] (PPUSH §III-B: Eq. 2 does not know loss), and never
//! ends slow start there; only an RTO resets the window, to one packet, and begins slow start again. Knows nothing of
//! symbols or timers: see [`crate::source`].
//!
//! Differs from the paper: the window never falls below one packet (the paper's own numeric model does the same,
//! §IV-B). The paper does not say what its slow start is; here it is that of RFC 5681 §3.1, ended by a mark alone.

use headwater_units::{Duration, PacketNumber, Packets, Theta, Time};
use serde::{Deserialize, Serialize};

pub use super::feedback::Feedback;

/// How much a window grows with each packet that is acknowledged after a known start, until the first mark.
const KNOWN_GROWTH: f64 = 0.25;
/// The part of a first round whose loss says that less is there than was known. 8 %: that of [`LossGuard::threshold`].
const KNOWN_WRONG: f64 = 0.08;

/// How lost packets act on the window (docs/decisions/0028).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum LossResponse {
    /// Not at all: what PPUSH's experiments on lossy links do (§V-A, Fig. 4).
    Ignore,
    /// Not at all while loss looks random; see [`LossGuard`] for when it no longer does.
    Guarded(LossGuard),
}

/// When loss counts although nothing marks: pure loss-blindness is unsafe on shallow drop-tail queues without ECN.
///
/// *Guard.* A stretch is as many whole windows of data as hold `packets` packets. It is bad if more than `threshold` of
/// its packets were lost and no router marked one: the network drops and says nothing. (Marks by delay excuse nothing.
/// A flow that came late to a standing queue takes it for part of the path, sees few of them, and must yield all the
/// same.) After `rounds` bad stretches in a row a lost packet is what it is to TCP, until a stretch is not bad: the
/// first of a round halves the window, whatever its weight (Eq. 2 would keep `2 theta` packets in flight at any loss:
/// too many where a queue has room for two of each flow), and ends slow start, which does not begin again at an RTO. In
/// Eq. 1 each counts as marked.
///
/// *Circuit breaker* (RFC 8084). Loss is also measured over fixed intervals, marks or not. When more than
/// `breaker_threshold` was lost in each of `breaker_intervals` intervals in a row, the breaker trips: the window is held
/// at its minimum. It resets after one whole interval at or below the threshold; the flow then begins as after an RTO.
/// Intervals in which nothing was acknowledged or lost do not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossGuard {
    /// Loss fraction above which a stretch is bad. 8 % (docs/decisions/0028), well above random loss on links that work.
    pub threshold: f64,
    /// Packets of a stretch at least. 16: one of a window of two packets would be bad or good by chance.
    pub packets: u64,
    /// Bad stretches in a row before losses count as marks. 10: docs/decisions/0028.
    pub rounds: u32,
    /// Loss fraction above which an interval is bad. 30 %: a flow at that loss gets little through and hurts others.
    pub breaker_threshold: f64,
    /// Length of an interval. 1 s: RFC 8084 §3.1 wants many round-trip times.
    pub breaker_interval: Duration,
    /// Bad intervals in a row before the breaker trips. 10: RFC 8084 §4 wants seconds of persistent congestion, so that
    /// the flow's own control and a route change get their chance first.
    pub breaker_intervals: u32,
}

impl Default for LossGuard {
    fn default() -> Self {
        LossGuard {
            threshold: 0.08,
            packets: 16,
            rounds: 10,
            breaker_threshold: 0.30,
            breaker_interval: Duration::from_secs(1),
            breaker_intervals: 10,
        }
    }
}

/// The constants of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WfccConfig {
    /// g of Eq. 1: weight of the newest window. 1/16: PPUSH §IV-B.
    pub gain: f64,
    /// Window to start with. 10: RFC 6928 §2.
    pub initial_window: Packets,
    /// Carry the fraction of W that whole packets cannot use over to later rounds, so that a flow has W packets in
    /// flight on average. Without it (the papers' `in_flight + 1 <= W`) half a packet is lost to rounding, which at W of
    /// 4 and 15 turns shares of 1:4 into 1:4.6.
    pub carry_fraction: bool,
    /// The window never falls below. 1: PPUSH §IV-B.
    pub minimum_window: Packets,
    /// The window never grows above: keeps a flow that nobody marks within numbers that make sense.
    pub maximum_window: Packets,
    /// α(0). 0: PPUSH §IV-B.
    pub initial_mark_fraction: f64,
    /// α is raised to this by the mark that ends slow start, so that the overshoot of slow start is taken back within
    /// one round trip. 1: RFC 8257 §4.2. The paper's α stays where it is: `None`.
    pub mark_fraction_after_slow_start: Option<f64>,
    /// The window grows only if the flow fills it (RFC 9002 §7.8).
    pub grow_only_when_limited: bool,
    /// θ-: smaller weights are raised to it. 0.5: PPUSH Eq. 21.
    pub theta_floor: Theta,
    /// Reaction to loss.
    pub loss_response: LossResponse,
}

impl Default for WfccConfig {
    /// The product's.
    fn default() -> Self {
        WfccConfig {
            gain: 1.0 / 16.0,
            initial_window: Packets::new(10.0),
            carry_fraction: true,
            minimum_window: Packets::new(1.0),
            maximum_window: Packets::new(1_048_576.0),
            initial_mark_fraction: 0.0,
            mark_fraction_after_slow_start: Some(1.0),
            grow_only_when_limited: true,
            theta_floor: Theta::FLOOR,
            loss_response: LossResponse::Guarded(LossGuard::default()),
        }
    }
}

impl WfccConfig {
    /// Configuration of the paper's experiments: α(0) = 0 throughout, W(0) = 1 (§IV-B), loss ignored (§V-A).
    pub fn paper() -> Self {
        WfccConfig {
            initial_window: Packets::new(1.0),
            mark_fraction_after_slow_start: None,
            grow_only_when_limited: false,
            carry_fraction: false,
            loss_response: LossResponse::Ignore,
            ..WfccConfig::default()
        }
    }
}

/// Congestion control of one flow: the window W and the mark fraction α.
#[derive(Clone, Debug)]
pub struct Wfcc {
    config: WfccConfig,
    theta: f64,
    window: f64,
    mark_fraction: f64,
    growth: Growth,
    /// It began at a window that was known.
    known: Known,
    round: Round,
    stretch: Stretch,
    breaker: Breaker,
    /// Unused rest of a fractional window from earlier rounds, below 1; and whether this round may use a packet of it.
    carry: f64,
    extra: bool,
}

/// One window of data, for Eq. 1.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Acknowledging a packet from here on ends the round; `None` before the first ACK.
    end: Option<PacketNumber>,
    acked: u64,
    marked: u64,
    lost: u64,
    lost_as_marked: u64,
}

/// Counts of the guard since it last judged, and its verdicts.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    acked: u64,
    lost: u64,
    marked_by_routers: bool,
    /// Bad ones in a row.
    bad: u32,
}

/// Growth of the window per acknowledged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// By one.
    SlowStart,
    /// By a part of one: it was given a window, and no packet was marked yet ([`Wfcc::begin_at`]).
    Known,
    /// By one in a round.
    Avoidance,
}

/// Assumptions still held about a window that the flow was given ([`Wfcc::begin_at`]).
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// No round was marked yet.
    unmarked_rounds: bool,
    /// No round is over.
    first_round: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Breaker {
    since: Option<Time>,
    acked: u64,
    lost: u64,
    bad: u32,
    tripped: bool,
}

impl Wfcc {
    /// A flow that has sent nothing yet.
    pub fn new(config: WfccConfig, theta: Theta) -> Self {
        let mut wfcc = Wfcc {
            config,
            theta: 0.0,
            window: config.initial_window.get().max(config.minimum_window.get()),
            mark_fraction: config.initial_mark_fraction.clamp(0.0, 1.0),
            growth: Growth::SlowStart,
            known: Known::default(),
            round: Round::default(),
            stretch: Stretch::default(),
            breaker: Breaker::default(),
            carry: 0.0,
            extra: false,
        };
        wfcc.set_theta(theta);
        wfcc
    }

    /// Goes on with this window, because it is known what the path carries: slow start has little left to find, unless
    /// `search`.
    ///
    /// The given window may be wrong. If too little, the window grows by a quarter in a round until the first mark. If
    /// too much, the first round tells by its losses: the window is then what came of it. And since there was no
    /// overshoot to take back, α becomes what the first marked round says, all that is known of marks by then.
    pub fn begin_at(&mut self, window: Packets, search: bool) {
        let least = self.config.minimum_window.get();
        self.window = window.get().max(least).min(self.config.maximum_window.get());
        self.growth = if search { Growth::SlowStart } else { Growth::Known };
        self.known = Known { unmarked_rounds: !search, first_round: true };
    }

    /// W.
    pub fn window(&self) -> Packets {
        Packets::new(self.window)
    }
    /// α, in 0..=1.
    pub fn mark_fraction(&self) -> f64 {
        self.mark_fraction
    }
    /// θ in force.
    pub fn theta(&self) -> Theta {
        Theta::new(self.theta)
    }
    /// Whether no mark has come since the start or the last RTO.
    pub fn in_slow_start(&self) -> bool {
        self.growth == Growth::SlowStart
    }
    /// Whether the circuit breaker holds the window at its minimum.
    pub fn tripped(&self) -> bool {
        self.breaker.tripped
    }

    /// A new weight from the controller; raised to θ- if below. The window adapts by Eq. 2 alone, so a switch makes no
    /// burst (§V-A, Fig. 7).
    pub fn set_theta(&mut self, theta: Theta) {
        let floor = self.config.theta_floor.get();
        // `max` also turns a NaN into the floor.
        self.theta = theta.get().max(floor).min(f64::MAX);
    }

    /// Whether one more packet may be in flight: `in_flight + 1 <= W`, or W rounded up in rounds that may use what
    /// earlier ones could not ([`WfccConfig::carry_fraction`]).
    pub fn allows(&self, in_flight: usize) -> bool {
        let window = if self.extra { self.window.floor() + 1.0 } else { self.window };
        in_flight as f64 + 1.0 <= window
    }

    /// Eq. 2 for every packet that the ACK reports, then Eq. 1 if it ends the window of data.
    ///
    /// `feedback.marked` is clipped to `feedback.acked`.
    pub fn on_ack(&mut self, now: Time, feedback: &Feedback) {
        let grow = feedback.limited || !self.config.grow_only_when_limited;
        let marked = feedback.marked.min(feedback.acked);
        let lost_as_marked = if self.guarding() { feedback.lost } else { 0 };
        for i in 0..feedback.acked {
            self.step(grow, i < marked);
        }
        if lost_as_marked > 0 && self.round.lost_as_marked == 0 {
            self.growth = Growth::Avoidance;
            self.window = (self.window / 2.0).max(self.config.minimum_window.get());
        }
        self.round.acked += feedback.acked;
        self.round.marked += marked;
        self.round.lost += feedback.lost;
        self.round.lost_as_marked += lost_as_marked;
        self.stretch.acked += feedback.acked;
        self.stretch.lost += feedback.lost;
        self.stretch.marked_by_routers |= feedback.by_routers && marked > 0;
        self.measure_for_breaker(now, feedback.acked, feedback.lost);
        match self.round.end {
            None => self.round.end = Some(feedback.next),
            Some(end) if feedback.acked > 0 && feedback.largest >= end => self.end_round(feedback.next),
            Some(_) => {}
        }
    }

    /// The retransmission timer fired with `lost` packets in flight: W = 1, slow start again unless losses count. α stays.
    pub fn on_rto(&mut self, now: Time, lost: u64) {
        self.measure_for_breaker(now, 0, lost);
        self.stretch.lost += lost;
        self.window = self.config.minimum_window.get();
        self.growth = if self.guarding() { Growth::Avoidance } else { Growth::SlowStart };
        self.known = Known::default();
        self.round = Round::default();
    }

    /// Eq. 2 for one packet.
    fn step(&mut self, grow: bool, marked: bool) {
        if marked && self.growth != Growth::Avoidance {
            if let Some(fraction) = self.config.mark_fraction_after_slow_start
                && self.growth == Growth::SlowStart
            {
                self.mark_fraction = self.mark_fraction.max(fraction.clamp(0.0, 1.0));
            }
            self.growth = Growth::Avoidance;
        }
        let growth = match self.growth {
            _ if !grow => 0.0,
            Growth::SlowStart => 1.0,
            Growth::Known => KNOWN_GROWTH.max(1.0 / self.window),
            Growth::Avoidance => 1.0 / self.window,
        };
        let cut = if marked { self.mark_fraction / (2.0 * self.theta) } else { 0.0 };
        let least = self.config.minimum_window.get();
        let most = if self.breaker.tripped { least } else { self.config.maximum_window.get() };
        self.window = (self.window + growth - cut).min(most).max(least);
    }

    /// Eq. 1, and the guard's verdict over the round.
    fn end_round(&mut self, next: PacketNumber) {
        let round = std::mem::replace(&mut self.round, Round { end: Some(next), ..Round::default() });
        if self.config.carry_fraction {
            self.carry += self.window.fract();
            self.extra = self.carry >= 1.0;
            self.carry = self.carry.fract();
        }
        let packets = (round.acked + round.lost_as_marked) as f64;
        let fraction = (round.marked + round.lost_as_marked) as f64 / packets;
        let gain = self.config.gain;
        let gain = if self.known.unmarked_rounds && fraction > 0.0 { 1.0 } else { gain };
        self.known.unmarked_rounds &= fraction <= 0.0;
        if std::mem::take(&mut self.known.first_round)
            && round.lost as f64 > KNOWN_WRONG * (round.acked + round.lost) as f64
        {
            self.window = self.window.min(round.acked as f64).max(self.config.minimum_window.get());
            if self.growth == Growth::SlowStart {
                self.growth = Growth::Avoidance;
            }
        }
        self.mark_fraction = ((1.0 - gain) * self.mark_fraction + gain * fraction).clamp(0.0, 1.0);
        if let LossResponse::Guarded(guard) = self.config.loss_response {
            self.judge(guard);
        }
    }

    /// The guard's verdict, where enough packets were seen.
    fn judge(&mut self, guard: LossGuard) {
        let Stretch { acked, lost, marked_by_routers, bad } = self.stretch;
        if acked + lost < guard.packets {
            return;
        }
        let is_bad = lost as f64 > guard.threshold * (acked + lost) as f64 && !marked_by_routers;
        self.stretch = Stretch { bad: if is_bad { bad.saturating_add(1) } else { 0 }, ..Stretch::default() };
    }

    /// Whether lost packets count as marked.
    fn guarding(&self) -> bool {
        matches!(self.config.loss_response, LossResponse::Guarded(g) if self.stretch.bad >= g.rounds)
    }

    fn measure_for_breaker(&mut self, now: Time, acked: u64, lost: u64) {
        let LossResponse::Guarded(guard) = self.config.loss_response else { return };
        let since = *self.breaker.since.get_or_insert(now);
        self.breaker.acked += acked;
        self.breaker.lost += lost;
        let packets = self.breaker.acked + self.breaker.lost;
        if now.since(since) < guard.breaker_interval || packets == 0 {
            return;
        }
        let bad = self.breaker.lost as f64 > guard.breaker_threshold * packets as f64;
        let was_tripped = self.breaker.tripped;
        let count = if bad { self.breaker.bad.saturating_add(1) } else { 0 };
        let tripped = if bad { was_tripped || count >= guard.breaker_intervals } else { false };
        self.breaker = Breaker { since: Some(now), acked: 0, lost: 0, bad: count, tripped };
        if tripped != was_tripped {
            self.window = self.config.minimum_window.get();
            self.growth = if tripped { Growth::Avoidance } else { Growth::SlowStart };
        }
    }
}

#[cfg(test)]
mod tests;
