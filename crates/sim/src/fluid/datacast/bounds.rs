//! How large a cache must be, and what it costs to be ahead of the slowest receiver (Datacast Theorems 1 and 2).
//!
//! Formulas without state: an absurd receiver gives an absurd number.

use headwater_units::{BitRate, Bytes, Duration, Packets};

/// The slowest receiver of a tree, and the source's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowestReceiver {
    /// Rate that it can take (Datacast R).
    pub rate: BitRate,
    /// By how much the source goes faster after each [`interval`](Self::interval) without a duplicate interest
    /// (Datacast delta).
    pub increase: BitRate,
    /// Datacast T.
    pub interval: Duration,
    /// Interests that a receiver may have in the network (Datacast w).
    pub credit: Packets,
    /// A full data packet (Datacast MTU).
    pub packet: Bytes,
    /// To the source and back while nobody else sends (Datacast RTT_m).
    pub rtt: Duration,
}

impl SlowestReceiver {
    /// The cache from which on nobody waits for the source, bytes (Datacast Theorem 1, Eq. 1):
    /// `R^2 T / (2 delta) - (w MTU - R RTT_m)`. Negative if credit alone is enough.
    pub fn cache_bound(&self) -> f64 {
        let rate = bytes_per_second(self.rate);
        let in_flight = rate * self.rtt.as_secs_f64();
        rate * rate / (2.0 * self.acceleration()) - (self.credit_bytes() - in_flight)
    }

    /// The most that is sent twice, as a part of what is sent once (Datacast Theorem 2), while the cache is large
    /// enough: `(delta / T) / (delta / T + R / (2 MTU / R + RTT_m))`. The data sent twice are just this if the round
    /// trip is nothing.
    pub fn duplicate_bound(&self) -> f64 {
        let rate = bytes_per_second(self.rate);
        let slowing = rate / (2.0 * self.packet.get() as f64 / rate + self.rtt.as_secs_f64());
        self.acceleration() / (self.acceleration() + slowing)
    }

    /// Rate that credit alone lets a receiver have, if nothing else bounds it (Datacast §V-B): `w MTU / RTT_m`.
    pub fn rate_by_credit(&self) -> BitRate {
        BitRate::new((self.credit_bytes() * 8.0 / self.rtt.as_secs_f64()) as u64)
    }

    /// By how much the source's rate grows, bytes per second and second (Datacast delta / T).
    pub(super) fn acceleration(&self) -> f64 {
        bytes_per_second(self.increase) / self.interval.as_secs_f64()
    }

    /// Datacast w MTU.
    pub(super) fn credit_bytes(&self) -> f64 {
        self.credit.get() * self.packet.get() as f64
    }
}

/// Payload rate of full packets at some rate of the line (Datacast §VI-B1, "the optimal results").
pub fn goodput(rate: BitRate, packet: Bytes, header: Bytes) -> BitRate {
    let payload = packet.get().saturating_sub(header.get()) as f64;
    BitRate::new((rate.get() as f64 * payload / packet.get().max(1) as f64) as u64)
}

/// How many trees' caches fit in a memory (Datacast §V-C).
pub fn trees_cached(memory: Bytes, cache: Bytes) -> u64 {
    memory.get() / cache.get().max(1)
}

pub(super) fn bytes_per_second(rate: BitRate) -> f64 {
    rate.get() as f64 / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The receiver of Datacast §V-D and §VI-B: 100 Mbit/s, 5 Mbit/s more every ms, packets of 1500 B.
    fn receiver(credit: f64, rtt_us: u64) -> SlowestReceiver {
        SlowestReceiver {
            rate: BitRate::new(100_000_000),
            increase: BitRate::new(5_000_000),
            interval: Duration::from_millis(1),
            credit: Packets::new(credit),
            packet: Bytes::new(1_500),
            rtt: Duration::from_micros(rtt_us),
        }
    }

    fn percent(receiver: SlowestReceiver) -> String {
        format!("{:.3} %", receiver.duplicate_bound() * 100.0)
    }

    #[test]
    fn the_cache_is_as_large_as_printed() {
        // Credit that just fills the pipe: w MTU = R RTT_m (§V-D).
        let just = receiver(100e6 / 8.0 * 240e-6 / 1_500.0, 240);
        assert!((just.cache_bound() - 125_000.0).abs() < 1e-6, "{}", just.cache_bound());
        // §VI-B1: "102KB, 54KB and 18KB"; the round trip of 80 us is what gives these.
        let bounds = [16.0, 48.0, 72.0].map(|credit| receiver(credit, 80).cache_bound());
        assert_eq!(bounds, [102_000.0, 54_000.0, 18_000.0]);
        // §VII-B1 prints 120 KB.
        assert_eq!(receiver(8.0, 350).cache_bound(), 117_375.0);
        assert!(receiver(100.0, 80).cache_bound() < 0.0);
    }

    #[test]
    fn duplicates_are_as_many_as_printed() {
        assert_eq!(percent(receiver(16.0, 0)), "1.186 %");
        assert_eq!(percent(receiver(8.0, 350)), "2.865 %");
        // §VIII prints 78.3 %.
        assert_eq!(percent(receiver(16.0, 71_000)), "78.080 %");
    }

    #[test]
    fn what_the_paper_reckons_beside_them() {
        let optimum = goodput(BitRate::new(100_000_000), Bytes::new(1_500), Bytes::new(16));
        assert_eq!(format!("{:.3}", optimum.get() as f64 / 1e6), "98.933");
        assert_eq!(trees_cached(Bytes::new(4_000_000_000), Bytes::new(125_000)), 32_000);
        // "When the RTT is 200us, w = 16 can saturate the link" of 1 Gbit/s: but for 4 % of it.
        assert_eq!(receiver(16.0, 200).rate_by_credit(), BitRate::new(960_000_000));
    }
}
