//! Whether the network does what a scheduled transfer relies on: its switches compute rates that leave queues empty and lose nothing.
//!
//! Without such a switch an offer stays at the rate of the source's link, and the transfer would overrun all that is narrower. A receiver
//! that loses much, or a queue that stands, shows it. What else fills a queue there lowers the offers, so a paused transfer shows nothing.

use headwater_units::{Duration, Time};

use super::FallbackConfig;
use crate::flow::WhyFallback;

/// So many long round trips in a row at least: one may be a host's that was stopped.
const LONG_ONES: u32 = 3;

/// What one receiver's answers show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// Where the losses begin that are counted.
    window: Option<Window>,
    /// Since when round trips have been long, and how many were.
    long: Option<(Time, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since: Time,
    /// Number of the newest packet then.
    number: u64,
    /// Packets that were lost by then.
    lost: u32,
}

/// What an answer says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// The newest packet that had come.
    pub(super) number: u64,
    /// Packets lost so far.
    pub(super) lost: u32,
    /// The round trip, without what the receiver held the answer.
    pub(super) sample: Option<Duration>,
}

impl Watch {
    /// The receiver answers, while its round trip takes at least `min`, and mostly `rtt`. Returns what is wrong.
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        heard: &Heard,
        (min, rtt): (Duration, Duration),
        config: &FallbackConfig,
    ) -> Option<WhyFallback> {
        let span = rtt * u64::from(config.round_trips);
        if self.is_lossy(now, heard, span, config) {
            return Some(WhyFallback::Loss);
        }
        self.is_queue_standing(now, heard, min, span, config).then_some(WhyFallback::StandingQueue)
    }

    fn is_lossy(&mut self, now: Time, heard: &Heard, span: Duration, config: &FallbackConfig) -> bool {
        let Heard { number, lost, .. } = *heard;
        let fresh = Window { since: now, number, lost };
        let window = *self.window.get_or_insert(fresh);
        let packets = number.saturating_sub(window.number);
        if packets < u64::from(config.packets.max(1)) || now.since(window.since) < span {
            return false;
        }
        self.window = Some(fresh);
        let lost = u64::from(lost.wrapping_sub(window.lost)).min(packets);
        lost as f64 > config.loss * packets as f64
    }

    fn is_queue_standing(
        &mut self,
        now: Time,
        heard: &Heard,
        min: Duration,
        span: Duration,
        config: &FallbackConfig,
    ) -> bool {
        let Some(sample) = heard.sample else { return false };
        if sample < min.mul_f64(config.long).max(min + config.jitter) {
            self.long = None;
            return false;
        }
        let (since, ones) = self.long.get_or_insert((now, 0));
        *ones += 1;
        *ones >= LONG_ONES && now.since(*since) >= span
    }

    /// The transfer is paused: nothing of what queues is its own.
    pub(super) fn on_pause(&mut self) {
        self.long = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn after(n: u64) -> Time {
        Time::ZERO + us(n)
    }

    /// Answers with a round trip of 100 us at least and of `mostly` mostly, each so long after the one before.
    fn verdict(answers: impl IntoIterator<Item = (u64, Heard)>, mostly: u64) -> Option<(u64, WhyFallback)> {
        let (mut watch, config) = (Watch::default(), FallbackConfig::default());
        answers.into_iter().find_map(|(at, heard)| {
            let why = watch.on_answer(after(at), &heard, (us(100), us(mostly)), &config)?;
            Some((at, why))
        })
    }

    #[test]
    fn a_loss_above_two_per_cent_over_ten_round_trips_is_too_much() {
        let losing = |lost_of_1000: u64| {
            (0..100).map(move |nth| {
                let number = 50 * nth;
                (100 * nth, Heard { number, lost: (number * lost_of_1000 / 1000) as u32, sample: None })
            })
        };
        assert_eq!(verdict(losing(19), 100), None);
        assert_eq!(verdict(losing(25), 100), Some((1000, WhyFallback::Loss)), "500 packets and 1 ms later");
        let wraps = losing(25).map(|(at, it)| (at, Heard { lost: it.lost.wrapping_add(u32::MAX - 5), ..it }));
        assert_eq!(verdict(wraps, 100), Some((1000, WhyFallback::Loss)));
    }

    #[test]
    fn a_queue_stands_when_ten_round_trips_were_long() {
        let long = |from: u64, to: u64| {
            (0..50).map(move |nth| {
                let sample = Some(us(if (from..to).contains(&nth) { 250 } else { 110 }));
                (100 * nth, Heard { number: nth, lost: 0, sample })
            })
        };
        assert_eq!(verdict(long(10, 50), 100), Some((2000, WhyFallback::StandingQueue)));
        assert_eq!(verdict(long(10, 19), 100), None, "nine of them only");
    }

    #[test]
    fn the_hosts_own_delay_is_no_queue() {
        let config = FallbackConfig::default();
        let mut watch = Watch::default();
        for nth in 0..1000 {
            let heard = Heard { number: nth, lost: 0, sample: Some(us(90)) };
            assert_eq!(watch.on_answer(after(nth * 20), &heard, (us(20), us(20)), &config), None);
        }
    }
}
