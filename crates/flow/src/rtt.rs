//! Round-trip time of one path, and the timers that follow from it (RFC 6298; ACK delay and minimum as RFC 9002 §5).

use headwater_units::{Duration, Time};
use serde::{Deserialize, Serialize};

/// Bounds and windows of [`Rtt`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RttConfig {
    /// Timeout before the first sample. 1 s: RFC 6298 §2.1.
    pub initial_rto: Duration,
    /// The timeout is never shorter. RFC 6298 §2.4 says 1 s, which no data centre uses; the product takes 50 ms,
    /// an order above its longest ACK delay and a scheduler's hiccups.
    pub min_rto: Duration,
    /// The timeout is never longer, backed off or not. 2 s, where RFC 6298 §2.5 allows 60 s and more: a queue that others
    /// keep full drops most of the single packets that come to it, and a flow that tries once a minute never gets in
    /// (docs/decisions/0028). A packet in 2 s is less than any other flow brings.
    pub max_rto: Duration,
    /// Least allowance for variation. 1 ms: RFC 9002 §6.1.2 (kGranularity).
    pub granularity: Duration,
    /// The receiver never holds an ACK longer; a larger claim is cut to this (RFC 9002 §5.3).
    pub max_ack_delay: Duration,
    /// The minimum forgets samples older than once to twice this, so that a changed route is noticed.
    pub min_window: Duration,
}

impl Default for RttConfig {
    fn default() -> Self {
        RttConfig {
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_millis(50),
            max_rto: Duration::from_secs(2),
            granularity: Duration::from_millis(1),
            max_ack_delay: Duration::from_millis(5),
            min_window: Duration::from_secs(10),
        }
    }
}

/// The smallest of the samples of the last one to two windows.
///
/// Two buckets instead of a list: the older one is dropped whole when the newer one is a window old.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowedMin {
    began: Time,
    newer: Option<Duration>,
    older: Option<Duration>,
}

impl WindowedMin {
    /// Takes a sample.
    pub fn record(&mut self, now: Time, sample: Duration, window: Duration) {
        if self.newer.is_none() || now.since(self.began) >= window {
            self.older = if now.since(self.began) >= window * 2 { None } else { self.newer };
            self.newer = Some(sample);
            self.began = now;
        }
        self.newer = Some(self.newer.map_or(sample, |m| m.min(sample)));
    }
    /// The smallest sample remembered.
    pub fn get(&self) -> Option<Duration> {
        match (self.newer, self.older) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Round-trip time estimator and timeout of one flow.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    config: RttConfig,
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Option<Duration>,
    min: WindowedMin,
    backoff: u32,
    /// Follow from the others; asked for with every packet.
    rto: Duration,
    pto: Duration,
}

impl Rtt {
    /// Without a sample.
    pub fn new(config: RttConfig) -> Self {
        let mut rtt = Rtt {
            config,
            smoothed: None,
            variation: Duration::ZERO,
            latest: None,
            min: WindowedMin::default(),
            backoff: 0,
            rto: Duration::ZERO,
            pto: Duration::ZERO,
        };
        rtt.reckon();
        rtt
    }

    /// Takes a sample: from the sending of the largest packet newly acknowledged to now, and how long the receiver
    /// says it held the ACK. Returns the sample without that delay.
    ///
    /// The delay is subtracted only as far as the result stays at or above the minimum (RFC 9002 §5.3), and the minimum
    /// itself takes samples as they are (§5.2), so no claim of the receiver makes it too small.
    pub fn on_sample(&mut self, now: Time, sample: Duration, ack_delay: Duration) -> Duration {
        self.min.record(now, sample, self.config.min_window);
        let min = self.min.get().unwrap_or(sample);
        let delay = ack_delay.min(self.config.max_ack_delay);
        let adjusted = if sample >= min + delay { sample - delay } else { sample };
        match self.smoothed {
            None => {
                self.smoothed = Some(adjusted);
                self.variation = adjusted / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(adjusted)) / 4;
                self.smoothed = Some((smoothed * 7 + adjusted) / 8);
            }
        }
        self.latest = Some(adjusted);
        self.reckon();
        adjusted
    }

    /// SRTT.
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
    /// Round-trip time to pace by: SRTT, but never more than twice the newest sample. A host that was stopped or
    /// starved for a while measures ACKs that waited for it as slow, and SRTT takes eight answers to forget each; paced
    /// by those, answers are rare.
    pub fn pace(&self) -> Option<Duration> {
        let smoothed = self.smoothed?;
        Some(self.latest.map_or(smoothed, |latest| smoothed.min(latest * 2)))
    }
    /// RTTVAR.
    pub fn variation(&self) -> Duration {
        self.variation
    }
    /// The newest sample, without ACK delay.
    pub fn latest(&self) -> Option<Duration> {
        self.latest
    }
    /// The smallest recent sample.
    pub fn min(&self) -> Option<Duration> {
        self.min.get()
    }

    /// The retransmission timeout, backed off (RFC 6298 §2.3 and §5.5).
    pub fn rto(&self) -> Duration {
        self.rto
    }

    /// The probe timeout, not backed off (RFC 9002 §6.2.1).
    pub fn pto(&self) -> Duration {
        self.pto
    }

    fn reckon(&mut self) {
        let config = &self.config;
        let (base, probe) = match self.smoothed {
            None => (config.initial_rto, config.initial_rto),
            Some(smoothed) => {
                let base = smoothed + (self.variation * 4).max(config.granularity);
                (base, base + config.max_ack_delay)
            }
        };
        let base = base.max(config.min_rto).min(config.max_rto);
        self.rto = (base * (1u64 << self.backoff.min(32))).min(config.max_rto);
        self.pto = probe;
    }

    /// The timeout fired: the next one takes twice as long.
    pub fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
        self.reckon();
    }

    /// New data was acknowledged: no back-off any more. Packet numbers are unique, so Karn's ambiguity does not arise.
    pub fn on_progress(&mut self) {
        if self.backoff > 0 {
            self.backoff = 0;
            self.reckon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_estimator_follows_rfc_6298() {
        let mut rtt = Rtt::new(RttConfig { min_rto: Duration::ZERO, ..RttConfig::default() });
        assert_eq!(rtt.rto(), Duration::from_secs(1));
        rtt.on_sample(Time::ZERO, ms(100), Duration::ZERO);
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(ms(100)), ms(50)));
        assert_eq!(rtt.rto(), ms(300));
        rtt.on_sample(Time::ZERO, ms(180), Duration::ZERO);
        // RTTVAR = 3/4 * 50 + 1/4 * 80, SRTT = 7/8 * 100 + 1/8 * 180
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(ms(110)), Duration::from_micros(57_500)));
    }

    #[test]
    fn the_timeout_doubles_up_to_its_bound_and_progress_ends_that() {
        let mut rtt = Rtt::new(RttConfig::default());
        rtt.on_sample(Time::ZERO, Duration::from_micros(100), Duration::ZERO);
        assert_eq!(rtt.rto(), ms(50));
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), ms(200));
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), Duration::from_secs(2));
        rtt.on_progress();
        assert_eq!(rtt.rto(), ms(50));
    }

    #[test]
    fn the_ack_delay_is_subtracted_but_never_below_the_minimum_nor_beyond_its_bound() {
        let mut rtt = Rtt::new(RttConfig::default());
        assert_eq!(rtt.on_sample(Time::ZERO, ms(10), ms(3)), ms(10));
        assert_eq!(rtt.on_sample(Time::ZERO, ms(14), ms(3)), ms(11));
        assert_eq!(rtt.on_sample(Time::ZERO, ms(12), ms(3)), ms(12));
        assert_eq!(rtt.on_sample(Time::ZERO, ms(100), ms(90)), ms(95));
        assert_eq!(rtt.min(), Some(ms(10)));
    }

    #[test]
    fn the_minimum_forgets_a_route_that_is_gone() {
        let mut min = WindowedMin::default();
        let window = Duration::from_secs(10);
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        min.record(at(0), ms(1), window);
        for s in 1..10 {
            min.record(at(s), ms(8), window);
        }
        assert_eq!(min.get(), Some(ms(1)));
        min.record(at(11), ms(8), window);
        assert_eq!(min.get(), Some(ms(1)));
        min.record(at(22), ms(8), window);
        assert_eq!(min.get(), Some(ms(8)));
        min.record(at(100), ms(9), window);
        assert_eq!(min.get(), Some(ms(9)));
    }
}
