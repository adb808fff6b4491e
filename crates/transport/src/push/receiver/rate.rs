//! The rate at which symbols of one flow arrive.

use headwater_units::{Duration, Time};

/// Shorter spans say more about batching than about the rate.
const SPAN: Duration = Duration::from_millis(10);
/// How far back the estimate remembers at least; and two turnarounds, since windows come in bursts.
const MEMORY: Duration = Duration::from_millis(100);

/// A decaying average of arrivals.
#[derive(Debug, Default)]
pub(super) struct Rate {
    counted: u64,
    since: Option<Time>,
    per_second: Option<f64>,
    turnaround: Duration,
}

impl Rate {
    /// Bursts are this far apart.
    pub(super) fn set_turnaround(&mut self, turnaround: Duration) {
        self.turnaround = turnaround;
    }
    /// Notes `n` arrivals.
    pub(super) fn on_arrival(&mut self, now: Time, n: u64) {
        if self.since.is_none() {
            // The first packet opens the first span; it did not arrive in it.
            self.since = Some(now);
            return;
        }
        self.counted += n;
        self.roll(now);
    }

    /// Symbols per second when it was last reckoned.
    pub(super) fn last_known(&self) -> Option<f64> {
        self.per_second
    }

    /// Symbols per second, if anything is known.
    pub(super) fn per_second(&mut self, now: Time) -> Option<f64> {
        self.roll(now);
        self.per_second
    }

    fn roll(&mut self, now: Time) {
        let Some(since) = self.since else { return };
        let span = now.since(since);
        if span < SPAN {
            return;
        }
        let sample = self.counted as f64 / span.as_secs_f64();
        self.per_second = Some(match self.per_second {
            None => sample,
            Some(old) => {
                let memory = MEMORY.max(self.turnaround * 2).as_secs_f64();
                old + (sample - old) * (1.0 - (-span.as_secs_f64() / memory).exp())
            }
        });
        self.counted = 0;
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_is_measured_and_its_end_is_noticed() {
        let mut rate = Rate::default();
        let mut now = Time::ZERO;
        for _ in 0..1000 {
            rate.on_arrival(now, 1);
            now += Duration::from_millis(1);
        }
        let measured = rate.per_second(now).unwrap();
        assert!((measured - 1000.0).abs() < 10.0, "{measured}");
        assert!(rate.per_second(now + Duration::from_secs(1)).unwrap() < 1.0);
    }
}
