//! The rate of one tree (Datacast §V-B): halved by each duplicate interest, raised by delta in each time T without one.
//!
//! The rule alone finds a link that is too slow by overrunning what the stores remember. Where it is known beforehand what the tree's
//! links carry ([`RateConfig::within`]), the rate stays below that, and the rule is for what is not known: losses, and others' traffic.

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

impl RateConfig {
    /// The rule for a tree whose links carry `most`, if that is known. Then delta is at most a quarter of it: one that
    /// is meant for faster links would make up for each halving at once.
    #[must_use]
    pub fn within(self, most: Option<BitRate>) -> RateConfig {
        let most = most.map_or(self.most, |known| known.max(self.least).min(self.most));
        let quarter = BitRate::new(most.get() / 4);
        RateConfig { most, step: self.step.min(quarter), ..self }
    }
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

    /// Goes on by another rule, as when the tree's links are others.
    pub fn follow(&mut self, now: Time, config: RateConfig) {
        self.rate = self.at(now).max(config.least).min(config.most);
        self.config = config;
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
    fn what_its_links_carry_bounds_it_and_delta_and_may_become_another() {
        let config = RateConfig { most: BitRate::new(10_000 * MBPS), ..RateConfig::default() };
        assert_eq!(config.within(None), config);
        assert_eq!(config.within(Some(BitRate::ZERO)).most, config.least, "whoever says so, it goes on");
        let slow = config.within(Some(BitRate::new(100 * MBPS)));
        assert_eq!((slow.most.get(), slow.step.get()), (100 * MBPS, 25 * MBPS));
        let mut rate = TreeRate::new(slow, at(0));
        assert_eq!(rate.at(at(5000)).get(), 100 * MBPS);
        rate.on_duplicate(at(5000));
        assert_eq!(rate.at(at(6000)).get(), 75 * MBPS);
        rate.follow(at(6000), config.within(Some(BitRate::new(40 * MBPS))));
        assert_eq!(rate.at(at(6000)).get(), 40 * MBPS);
        rate.follow(at(6000), config.within(Some(BitRate::new(200 * MBPS))));
        assert_eq!((rate.at(at(6000)).get(), rate.at(at(7000)).get()), (40 * MBPS, 90 * MBPS));
    }

    #[test]
    fn it_stays_between_its_bounds() {
        let mut rate = rate();
        assert_eq!(rate.at(at(10_000_000)).get(), 1000 * MBPS);
        (0..100).for_each(|_| rate.on_duplicate(at(10_000_000)));
        assert_eq!(rate.at(at(10_000_000)).get(), MBPS);
    }
}
