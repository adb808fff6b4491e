//! Which packets count as marked (architecture decisions 8 and 14; RFC 9000 §13.4).
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
//! Until CE is seen nobody knows whether the path marks, so a queueing delay above target marks all packets of the ACK
//! that shows it. From the first CE on only CE counts, until [`BLEACHED`] packets in a row arrive as Not-ECT: then the
//! route has changed to one that clears the field.

use headwater_units::Duration;
use headwater_wire::{Ack, MarkSignal};

/// Packets in a row that arrive as Not-ECT before the path counts as one that clears the field.
pub const BLEACHED: u64 = 64;

/// When a queueing delay is a mark: above a fraction of the smallest round-trip time, within bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayMark {
    /// Of the smallest round-trip time. 0.5: half a path's worth of queue, what K = RTT * C / 7 of DCTCP is with room
    /// for noise.
    pub fraction: f64,
    /// The target is never smaller: below, it would measure the scheduler. 2 ms.
    pub least: Duration,
    /// The target is never larger. 20 ms.
    pub most: Duration,
}

impl Default for DelayMark {
    fn default() -> Self {
        DelayMark { fraction: 0.5, least: Duration::from_millis(2), most: Duration::from_millis(20) }
    }
}

impl DelayMark {
    /// The queueing delay above which packets count as marked.
    pub fn target(&self, min_rtt: Duration) -> Duration {
        min_rtt.mul_f64(self.fraction).max(self.least).min(self.most)
    }
}

/// What one ACK says about congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarksSeen {
    /// Packets that count as marked.
    pub marked: u64,
    /// The queueing delay is above target, whatever counts.
    pub queueing: bool,
}

/// Marks of one flow.
#[derive(Clone, Debug)]
pub struct Marks {
    delay: Option<DelayMark>,
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

    /// Takes an ACK that newly acknowledged `acked` of the `sent` packets so far. `rtt` is its sample and the smallest
    /// round-trip time known of the path.
    pub fn on_ack(
        &mut self,
        ack: &Ack,
        acked: u64,
        sent: u64,
        rtt: Option<(Duration, Duration)>,
    ) -> MarksSeen {
        let ce = self.count(ack, sent).min(acked);
        self.acked |= acked > 0;
        self.ce_seen |= ce > 0;
        let queueing = match (self.delay, rtt) {
            (Some(delay), Some((sample, min))) => sample.saturating_sub(min) > delay.target(min),
            _ => false,
        };
        let by_delay = self.delay.is_some() && !self.ce_seen && queueing;
        MarksSeen { marked: if by_delay { acked } else { ce }, queueing }
    }

    /// The flow goes another way: whether that one marks is unknown. The receiver's counters go on.
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
        assert_eq!(m.on_ack(&ack(3, 1, 0), 4, 100, None).marked, 1);
        assert_eq!(m.on_ack(&ack(10, 6, 0), 12, 100, None).marked, 5);
        assert_eq!(m.on_ack(&ack(5, 3, 0), 0, 100, None).marked, 0);
        assert_eq!(m.on_ack(&ack(10, 8, 0), 2, 100, None).marked, 2);
        assert_eq!(m.signal(), MarkSignal::Ecn);
    }

    #[test]
    fn counters_wrap() {
        let mut m = Marks::new(None);
        (m.ce, m.ect0) = (u32::MAX - 1, u32::MAX);
        assert_eq!(m.on_ack(&ack(2, 3, 0), 10, 100, None).marked, 5);
    }

    #[test]
    fn marks_beyond_what_was_acknowledged_or_sent_are_not_believed() {
        let mut m = Marks::new(None);
        assert_eq!(m.on_ack(&ack(0, 50, 0), 3, 100, None).marked, 3);
        assert_eq!(m.on_ack(&ack(0, 1_000_000, 0), 3, 100, None).marked, 0);
        assert_eq!(m.disbelieved(), 1);
        assert_eq!(m.on_ack(&ack(0, 52, 0), 3, 100, None).marked, 2);
    }

    #[test]
    fn a_queueing_delay_marks_until_ce_was_seen() {
        let mut m = Marks::new(Some(DelayMark::default()));
        assert_eq!(m.signal(), MarkSignal::Unknown);
        assert_eq!(m.on_ack(&ack(5, 0, 0), 5, 100, Some((ms(11), ms(10)))).marked, 0);
        assert_eq!(m.signal(), MarkSignal::Delay);
        let seen = m.on_ack(&ack(9, 0, 0), 4, 100, Some((ms(16), ms(10))));
        assert_eq!(seen, MarksSeen { marked: 4, queueing: true });
        assert_eq!(m.on_ack(&ack(9, 1, 0), 1, 100, Some((ms(10), ms(10)))).marked, 1);
        assert_eq!(m.signal(), MarkSignal::Ecn);
        let seen = m.on_ack(&ack(19, 1, 0), 10, 100, Some((ms(50), ms(10))));
        assert_eq!(seen, MarksSeen { marked: 0, queueing: true });
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
