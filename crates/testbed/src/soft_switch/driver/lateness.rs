//! How late things happened, and whether a run counts.

use hdrhistogram::Histogram;
use headwater_units::{BitRate, Bytes, Duration};

/// Lateness above this is recorded as this: ten seconds.
const HIGHEST: u64 = 10_000_000_000;
/// Two digits: what matters is the order of magnitude, and a quantile is found in microseconds.
const DIGITS: u8 = 2;
/// Below this nobody can tell: what a busy core takes to send a few frames and what waking takes.
const ALWAYS_ALLOWED: Duration = Duration::from_micros(50);
/// Lateness may be this part of a packet's time on the slowest link: the order of packets there is then as it should be.
const PART_OF_PACKET: u64 = 4;

/// Whether the switch kept time well enough for what was measured to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// How many frames were sent to hosts.
    pub sent: u64,
    /// Lateness that half of them stayed below: sent minus due.
    pub p50: Duration,
    /// Lateness that all but one in a hundred stayed below.
    pub p99: Duration,
    /// Lateness that all but one in a thousand stayed below.
    pub p999: Duration,
    /// The latest.
    pub max: Duration,
    /// How long all but one in a hundred frames of hosts waited at most until the switch read them.
    pub read_p99: Duration,
    /// Limit of `p99` and `read_p99`: 50 us, or a quarter of the time that a packet takes on the slowest link.
    pub limit: Duration,
    /// Frames that were lost outside of the emulated network: the switch read too slowly, or a host's interface took no
    /// more.
    pub missed: u64,
    /// Whether both kept the limit and nothing was missed.
    pub valid: bool,
}

/// The most that is allowed where the slowest link has this rate.
pub(super) fn limit(packet: Bytes, slowest: BitRate) -> Duration {
    ALWAYS_ALLOWED.max((packet / slowest) / PART_OF_PACKET)
}

/// Measurements so far.
#[derive(Debug)]
pub(super) struct Lateness {
    limit: Duration,
    sent: Histogram<u64>,
    read: Histogram<u64>,
}

impl Lateness {
    pub(super) fn new(limit: Duration) -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, HIGHEST, DIGITS)
                .expect("the bounds are in order and the digits few")
        };
        Lateness { limit, sent: histogram(), read: histogram() }
    }

    /// Notes how late a frame was sent.
    pub(super) fn sent(&mut self, late: Duration) {
        self.sent.saturating_record(late.as_nanos().max(1));
    }

    /// The first of `frames` frames of a batch waited for `waited`; the others less.
    pub(super) fn read(&mut self, frames: usize, waited: Duration) {
        self.read.saturating_record_n(waited.as_nanos().max(1), frames as u64);
    }

    pub(super) fn forget(&mut self) {
        self.sent.reset();
        self.read.reset();
    }

    pub(super) fn validity(&self, missed: u64) -> Validity {
        let at = |histogram: &Histogram<u64>, quantile| {
            Duration::from_nanos(if histogram.is_empty() { 0 } else { histogram.value_at_quantile(quantile) })
        };
        let (p99, read_p99) = (at(&self.sent, 0.99), at(&self.read, 0.99));
        Validity {
            sent: self.sent.len(),
            p50: at(&self.sent, 0.5),
            p99,
            p999: at(&self.sent, 0.999),
            max: Duration::from_nanos(self.sent.max()),
            read_p99,
            limit: self.limit,
            missed,
            valid: p99 <= self.limit && read_p99 <= self.limit && missed == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn the_limit_is_a_quarter_of_a_packet_on_the_slowest_link_but_never_below_50_us() {
        assert_eq!(limit(Bytes::new(1500), BitRate::new(20_000_000)), us(150));
        assert_eq!(limit(Bytes::new(1500), BitRate::new(1_000_000_000)), us(50));
    }

    #[test]
    fn one_in_a_hundred_may_be_late_and_no_more() {
        let mut lateness = Lateness::new(us(100));
        assert!(lateness.validity(0).valid, "nothing sent, nothing late");
        (0..99).for_each(|_| lateness.sent(us(10)));
        lateness.sent(us(5_000));
        let seen = lateness.validity(0);
        assert!(seen.valid && seen.sent == 100 && seen.p99 <= us(11) && seen.max >= us(4_900), "{seen:?}");
        lateness.sent(us(5_000));
        assert!(!lateness.validity(0).valid);
        lateness.forget();
        assert!(lateness.validity(0).valid && !lateness.validity(1).valid);
        lateness.read(2, us(200));
        assert!(!lateness.validity(0).valid);
    }
}
