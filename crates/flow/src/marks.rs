//! Which packets count as marked (docs/decisions/0001, docs/decisions/0023; RFC 9000 §13.4).
//!
//! The receiver counts what arrived as ECT(0), CE and Not-ECT; the growth of CE since the ACK before is the number of
//! marks. Nothing it says can hurt more than the truth: marks are clipped to the packets newly acknowledged, and counts
//! that run backwards (an overtaken ACK) or ahead of what was sent are ignored.
//!
//! ```text
//!            acknowledged                  CE seen
//!  Unknown ----------------> Delay ------------------------> Ecn
//!                              ^                              |
//!                              +------- path bleaches --------+
//! ```
//!
//! Until CE is seen nobody knows whether the path marks, so the queueing delay does: the further above target, the more
//! of the packets count. From the first CE on only CE counts, until [`BLEACHED`] packets in a row arrive as Not-ECT:
//! then the route has changed to one that clears the field.
//!
//! Why a ramp and not "every packet above target is marked": flows on one queue never agree on the empty path's
//! round-trip time to the microsecond (who came second has measured behind the first one's packets). With a step, the
//! one that thinks the path shorter sees marks all the time while the other sits just below its own step, and starves
//! (measured here: 93:1 instead of 4:1). On a ramp the same error is a small difference in the mark fraction.

use headwater_units::Duration;
use headwater_wire::{Ack, MarkSignal};
use serde::{Deserialize, Serialize};

/// Packets in a row that arrive as Not-ECT before the path counts as one that clears the field.
pub const BLEACHED: u64 = 64;

/// How queueing delay marks: the target is a fraction of the smallest round-trip time, within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayMark {
    /// Of the smallest round-trip time. 0.5: half a path's worth of queue keeps the link busy through the sawtooth.
    pub fraction: f64,
    /// The target is never smaller: below, it would measure the scheduler. 2 ms.
    pub least: Duration,
    /// The target is never larger. 20 ms.
    pub most: Duration,
    /// Shortest time between two looks of the flow for the empty path; see [`DelayMark::refresh_every`]. 3 s.
    pub refresh_least: Duration,
    /// Longest time between two such looks. 8 s, so that the minimum's memory of 10 s always holds one look.
    pub refresh_most: Duration,
    /// Round trips between two looks, within these bounds. 100: a look costs about two, so 2 %.
    pub refresh_round_trips: u64,
}

impl Default for DelayMark {
    fn default() -> Self {
        DelayMark {
            fraction: 0.5,
            least: Duration::from_millis(2),
            most: Duration::from_millis(20),
            refresh_least: Duration::from_secs(3),
            refresh_most: Duration::from_secs(8),
            refresh_round_trips: 100,
        }
    }
}

impl DelayMark {
    /// The queueing delay at which marks are well under way.
    pub fn target(&self, min_rtt: Duration) -> Duration {
        min_rtt.mul_f64(self.fraction).max(self.least).min(self.most)
    }

    /// How long a flow may go without having seen the empty path.
    ///
    /// Flows that share a queue keep it standing, and one that comes late takes it for part of the path: it believes
    /// that nothing queues while the others see marks, and starves them. So a flow that has not seen the smallest
    /// round-trip time for this long holds back for a round trip (as BBR does in ProbeRTT, draft-cardwell-ccwg-bbr
    /// §5.3.4, and LEDBAT++ in its slowdowns). All flows of the queue see it empty together and count from then, so
    /// after the first time they look together.
    pub fn refresh_every(&self, smoothed_rtt: Duration) -> Duration {
        (smoothed_rtt * self.refresh_round_trips).max(self.refresh_least).min(self.refresh_most)
    }

    /// Whether this sample is as good as the smallest: within an eighth of the target.
    pub fn is_empty_path(&self, sample: Duration, min_rtt: Duration) -> bool {
        sample <= min_rtt + self.target(min_rtt) / 8
    }

    /// The share of packets that count as marked at this queueing delay: none up to half the target, all from two and a
    /// half targets on, a quarter at the target.
    pub fn share(&self, queueing: Duration, min_rtt: Duration) -> f64 {
        let target = self.target(min_rtt).as_secs_f64();
        ((queueing.as_secs_f64() - 0.5 * target) / (2.0 * target)).clamp(0.0, 1.0)
    }
}

/// Marks of one flow.
#[derive(Clone, Debug)]
pub struct Marks {
    delay: Option<DelayMark>,
    /// Marks by delay that are due and not yet a whole one.
    due: f64,
    /// Counters as of the newest ACK believed.
    ect0: u32,
    ce: u32,
    not_ect: u32,
    /// All that the receiver has counted.
    counted: u64,
    ce_seen: bool,
    acked: bool,
    not_ect_in_a_row: u64,
    disbelieved: u64,
}

impl Marks {
    /// Without a [`DelayMark`] only CE counts.
    pub fn new(delay: Option<DelayMark>) -> Self {
        Marks {
            delay,
            due: 0.0,
            ect0: 0,
            ce: 0,
            not_ect: 0,
            counted: 0,
            ce_seen: false,
            acked: false,
            not_ect_in_a_row: 0,
            disbelieved: 0,
        }
    }

    /// Takes an ACK that newly acknowledged `acked` of the `sent` packets so far; returns how many count as marked. `rtt` is its sample and the smallest
    /// round-trip time known of the path.
    pub fn on_ack(&mut self, ack: &Ack, acked: u64, sent: u64, rtt: Option<(Duration, Duration)>) -> u64 {
        let ce = self.count(ack, sent).min(acked);
        self.acked |= acked > 0;
        self.ce_seen |= ce > 0;
        let (false, Some(delay), Some((sample, min))) = (self.ce_seen, self.delay, rtt) else { return ce };
        self.due += delay.share(sample.saturating_sub(min), min) * acked as f64;
        let by_delay = (self.due as u64).min(acked);
        self.due -= by_delay as f64;
        by_delay
    }

    /// The flow takes another path: whether that one marks is unknown. The receiver's counters go on.
    pub fn on_new_path(&mut self) {
        (self.ce_seen, self.acked, self.not_ect_in_a_row) = (false, false, 0);
    }

    /// The signal in force.
    pub fn signal(&self) -> MarkSignal {
        match (self.acked, self.ce_seen || self.delay.is_none()) {
            (false, _) => MarkSignal::Unknown,
            (true, true) => MarkSignal::Ecn,
            (true, false) => MarkSignal::Delay,
        }
    }

    /// ACKs whose counters made no sense.
    pub fn disbelieved(&self) -> u64 {
        self.disbelieved
    }

    /// The growth of CE; moves the counters on if the ACK can be believed.
    fn count(&mut self, ack: &Ack, sent: u64) -> u64 {
        let grown = [
            ack.ect0.wrapping_sub(self.ect0),
            ack.ce.wrapping_sub(self.ce),
            ack.not_ect.wrapping_sub(self.not_ect),
        ];
        if grown.iter().any(|&g| g > u32::MAX / 2) {
            return 0; // overtaken by a newer ACK, which told all this already
        }
        let [ect0, ce, not_ect] = grown.map(u64::from);
        // The network may duplicate packets, but not all of them many times.
        if self.counted + ect0 + ce + not_ect > 2 * sent + 64 {
            self.disbelieved += 1;
            return 0;
        }
        (self.ect0, self.ce, self.not_ect) = (ack.ect0, ack.ce, ack.not_ect);
        self.counted += ect0 + ce + not_ect;
        if ect0 + ce > 0 {
            self.not_ect_in_a_row = 0;
        } else {
            self.not_ect_in_a_row += not_ect;
            self.ce_seen &= self.not_ect_in_a_row < BLEACHED;
        }
        ce
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{BlockIndex, PacketNumber};

    use super::*;

    fn ack(ect0: u32, ce: u32, not_ect: u32) -> Ack {
        Ack {
            largest: PacketNumber(0),
            delay: Duration::ZERO,
            first_run: 1,
            ranges: Default::default(),
            ect0,
            ce,
            not_ect,
            first_undecoded: BlockIndex(0),
            owed: Default::default(),
        }
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn marks_are_the_exact_growth_of_ce_across_lost_and_overtaken_acks() {
        let mut m = Marks::new(None);
        assert_eq!(m.on_ack(&ack(3, 1, 0), 4, 100, None), 1);
        assert_eq!(m.on_ack(&ack(10, 6, 0), 12, 100, None), 5);
        assert_eq!(m.on_ack(&ack(5, 3, 0), 0, 100, None), 0);
        assert_eq!(m.on_ack(&ack(10, 8, 0), 2, 100, None), 2);
        assert_eq!(m.signal(), MarkSignal::Ecn);
    }

    #[test]
    fn counters_wrap() {
        let mut m = Marks::new(None);
        (m.ce, m.ect0) = (u32::MAX - 1, u32::MAX);
        assert_eq!(m.on_ack(&ack(2, 3, 0), 10, 100, None), 5);
    }

    #[test]
    fn marks_beyond_what_was_acknowledged_or_sent_are_not_believed() {
        let mut m = Marks::new(None);
        assert_eq!(m.on_ack(&ack(0, 50, 0), 3, 100, None), 3);
        assert_eq!(m.on_ack(&ack(0, 1_000_000, 0), 3, 100, None), 0);
        assert_eq!(m.disbelieved(), 1);
        assert_eq!(m.on_ack(&ack(0, 52, 0), 3, 100, None), 2);
    }

    #[test]
    fn a_queueing_delay_marks_until_ce_was_seen() {
        let mut m = Marks::new(Some(DelayMark::default()));
        assert_eq!(m.signal(), MarkSignal::Unknown);
        assert_eq!(m.on_ack(&ack(5, 0, 0), 5, 100, Some((ms(11), ms(10)))), 0);
        assert_eq!(m.signal(), MarkSignal::Delay);
        // The target is 5 ms: a quarter of the packets at it, all of them from 12.5 ms on.
        let seen: Vec<u64> =
            (6..10).map(|n| m.on_ack(&ack(n, 0, 0), 1, 100, Some((ms(15), ms(10))))).collect();
        assert_eq!(seen, [0, 0, 0, 1]);
        let seen = m.on_ack(&ack(13, 0, 0), 4, 100, Some((ms(23), ms(10))));
        assert_eq!(seen, 4);
        assert_eq!(m.on_ack(&ack(13, 1, 0), 1, 100, Some((ms(10), ms(10)))), 1);
        assert_eq!(m.signal(), MarkSignal::Ecn);
        let seen = m.on_ack(&ack(23, 1, 0), 10, 100, Some((ms(50), ms(10))));
        assert_eq!(seen, 0);
    }

    #[test]
    fn a_path_that_begins_to_bleach_goes_back_to_delay() {
        let mut m = Marks::new(Some(DelayMark::default()));
        m.on_ack(&ack(0, 1, 0), 1, 1000, None);
        m.on_ack(&ack(0, 1, 63), 63, 1000, None);
        assert_eq!(m.signal(), MarkSignal::Ecn);
        m.on_ack(&ack(0, 1, 64), 1, 1000, None);
        assert_eq!(m.signal(), MarkSignal::Delay);
    }

    #[test]
    fn the_delay_target_is_half_the_path_within_bounds() {
        let d = DelayMark::default();
        assert_eq!([ms(1), ms(10), ms(100)].map(|m| d.target(m)), [ms(2), ms(5), ms(20)]);
    }
}
