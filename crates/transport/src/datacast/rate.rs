//! The rate of one tree (Datacast §V-B): halved by each duplicate interest, raised by delta in each time T without one.

use headwater_units::{BitRate, Duration, Time};
use serde::{Deserialize, Serialize};

/// The numbers of the rate rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateConfig {
    /// The rate that a tree begins with.
    pub initial: BitRate,
    /// delta.
    pub step: BitRate,
    /// T.
    pub every: Duration,
    /// The rate never falls below this. The paper has no such line; without one a burst of losses can halve it to nothing.
    pub least: BitRate,
    /// The rate never rises above this: what the source's own link carries.
    pub most: BitRate,
}

/// A rate that follows it.
#[derive(Clone, Copy, Debug)]
pub struct TreeRate {
    config: RateConfig,
    rate: BitRate,
    /// When T will have passed without a duplicate.
    raise_at: Time,
}

impl TreeRate {
    /// The initial rate; the first T begins now.
    pub fn new(config: RateConfig, now: Time) -> Self {
        let rate = config.initial.max(config.least).min(config.most);
        TreeRate { config, rate, raise_at: now + config.every }
    }

    /// A duplicate interest was heard.
    pub fn on_duplicate(&mut self, now: Time) {
        self.at(now);
        self.rate = BitRate::new(self.rate.get() / 2).max(self.config.least);
        self.raise_at = now + self.config.every;
    }

    /// The rate now.
    pub fn at(&mut self, now: Time) -> BitRate {
        if now >= self.raise_at && self.config.every > Duration::ZERO {
            let times = now.since(self.raise_at).as_nanos() / self.config.every.as_nanos() + 1;
            let raised = self.rate.get().saturating_add(self.config.step.get().saturating_mul(times));
            self.rate = BitRate::new(raised).min(self.config.most);
            self.raise_at += self.config.every * times;
        }
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    fn at(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    fn rate() -> TreeRate {
        let step = BitRate::new(5 * MBPS);
        TreeRate::new(RateConfig { step, most: BitRate::new(1000 * MBPS), ..RateConfig::default() }, at(0))
    }

    #[test]
    fn each_time_without_a_duplicate_adds_delta() {
        let mut rate = rate();
        assert_eq!(rate.at(at(999)).get(), 500 * MBPS);
        assert_eq!(rate.at(at(1000)).get(), 505 * MBPS);
        assert_eq!(rate.at(at(10_500)).get(), 550 * MBPS);
    }

    #[test]
    fn each_duplicate_halves_it_and_begins_the_time_anew() {
        let mut rate = rate();
        rate.on_duplicate(at(900));
        rate.on_duplicate(at(950));
        assert_eq!(rate.at(at(1949)).get(), 125 * MBPS);
        assert_eq!(rate.at(at(1950)).get(), 130 * MBPS);
    }

    #[test]
    fn it_stays_between_its_bounds() {
        let mut rate = rate();
        assert_eq!(rate.at(at(10_000_000)).get(), 1000 * MBPS);
        (0..100).for_each(|_| rate.on_duplicate(at(10_000_000)));
        assert_eq!(rate.at(at(10_000_000)).get(), MBPS);
    }
}
