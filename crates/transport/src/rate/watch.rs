//! Whether the network does what a scheduled transfer relies on: its switches compute rates that leave queues empty and lose nothing.
//!
//! Without such a switch an offer stays at the rate of the source's link, and the transfer would overrun all that is
//! narrower. A receiver that loses much, or a queue that stands, shows it. Other traffic that fills a queue there
//! lowers the offers, so a paused transfer shows nothing.

use headwater_units::{Duration, Time};

use super::FallbackConfig;
use headwater_flow::WhyFallback;
use headwater_flow::rtt::WindowedMin;

/// Least number of long round trips in a row: a single one may be a host's that was stopped.
const LONG_ONES: u32 = 3;
/// Least packets over which losses are counted, and number of packets after which they are counted anew.
const PACKETS: core::ops::RangeInclusive<u64> = 200..=4000;
/// Number of standard deviations above what is borne from which on a share of lost packets is too large: of 500 packets
/// 20, not 11.
const DEVIATIONS: f64 = 3.0;
/// Time over which the shortest round trip is taken.
const MIN_WINDOW: Duration = Duration::from_secs(10);

/// Record of one receiver's answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// Where the losses begin that are counted.
    window: Option<Window>,
    /// The shortest round trips of symbols.
    min: WindowedMin,
    /// Since when they have been long, and how many were.
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

/// Content of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// The newest packet that had come.
    pub(super) number: u64,
    /// Packets lost so far.
    pub(super) lost: u32,
    /// The round trip, without what the receiver held the answer.
    pub(super) sample: Option<Duration>,
    /// Of a symbol. A probe is short, and says nothing of how long symbols take.
    pub(super) is_symbol: bool,
}

impl Watch {
    /// The receiver answers; `rtt` is its usual round trip. Returns what is wrong.
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        heard: &Heard,
        rtt: Duration,
        config: &FallbackConfig,
    ) -> Option<WhyFallback> {
        let span = rtt * u64::from(config.round_trips);
        if self.is_lossy(now, heard, span, config) {
            return Some(WhyFallback::Loss);
        }
        self.is_queue_standing(now, heard, config).then_some(WhyFallback::StandingQueue)
    }

    fn is_lossy(&mut self, now: Time, heard: &Heard, span: Duration, config: &FallbackConfig) -> bool {
        let Heard { number, lost, .. } = *heard;
        let fresh = Window { since: now, number, lost };
        let window = *self.window.get_or_insert(fresh);
        let packets = number.saturating_sub(window.number);
        if packets < *PACKETS.start() || now.since(window.since) < span {
            return false;
        }
        if packets >= *PACKETS.end() {
            self.window = Some(fresh);
        }
        let lost = u64::from(lost.wrapping_sub(window.lost)).min(packets);
        let borne = config.loss * packets as f64;
        lost as f64 > borne + DEVIATIONS * borne.sqrt()
    }

    fn is_queue_standing(&mut self, now: Time, heard: &Heard, config: &FallbackConfig) -> bool {
        let Some(sample) = heard.sample.filter(|_| heard.is_symbol) else { return false };
        self.min.record(now, sample, MIN_WINDOW);
        let min = self.min.get().unwrap_or(sample);
        if sample < min.mul_f64(config.long).max(min + config.jitter) {
            self.long = None;
            return false;
        }
        let (since, ones) = self.long.get_or_insert((now, 0));
        *ones += 1;
        // Of the empty path: in a long queue the usual ones are so long that others would wait for seconds.
        let span = min * u64::from(config.round_trips);
        *ones >= LONG_ONES && now.since(*since) >= span.max(config.lasts)
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

    /// Answers to symbols, and when.
    fn verdict(answers: impl IntoIterator<Item = (u64, Heard)>) -> Option<(u64, WhyFallback)> {
        let (mut watch, config) = (Watch::default(), FallbackConfig::default());
        answers.into_iter().find_map(|(at, heard)| {
            let why = watch.on_answer(after(at), &heard, us(100), &config)?;
            Some((at, why))
        })
    }

    #[test]
    fn a_loss_above_two_per_cent_over_ten_round_trips_is_too_much() {
        let losing = |lost_of_1000: u64| {
            (0..100).map(move |nth| {
                let number = 50 * nth;
                (
                    100 * nth,
                    Heard {
                        number,
                        lost: (number * lost_of_1000 / 1000) as u32,
                        sample: None,
                        is_symbol: true,
                    },
                )
            })
        };
        assert_eq!(verdict(losing(20)), None);
        assert_eq!(verdict(losing(25)), None, "5000 packets do not prove it");
        assert_eq!(verdict(losing(30)), Some((3800, WhyFallback::Loss)), "1900 do");
        assert_eq!(verdict(losing(100)), Some((1000, WhyFallback::Loss)), "ten round trips later");
        let wraps =
            losing(100).map(|(at, it)| (at, Heard { lost: it.lost.wrapping_add(u32::MAX - 5), ..it }));
        assert_eq!(verdict(wraps), Some((1000, WhyFallback::Loss)));
    }

    #[test]
    fn a_queue_stands_when_ten_round_trips_were_long() {
        let long = |from: u64, to: u64| {
            (0..50).map(move |nth| {
                let sample = Some(us(if (from..to).contains(&nth) { 250 } else { 110 }));
                (100 * nth, Heard { number: nth, lost: 0, sample, is_symbol: true })
            })
        };
        assert_eq!(verdict(long(10, 50)), Some((2100, WhyFallback::StandingQueue)));
        assert_eq!(verdict(long(10, 20)), None, "nine of them only");
    }

    #[test]
    fn on_hosts_a_queue_stands_for_a_second_at_least() {
        let config = crate::rate::RateSourceConfig::on_hosts().fallback.expect("hosts look for it");
        let (mut watch, mut found) = (Watch::default(), None);
        for nth in 0..400u64 {
            // From 1 s on.
            let trip = if nth < 100 { us(400) } else { us(25_000) };
            let heard = Heard { number: nth, lost: 0, sample: Some(trip), is_symbol: true };
            found = found
                .or(watch.on_answer(after(10_000 * nth), &heard, us(400), &config).map(|why| (nth, why)));
        }
        assert_eq!(found, Some((200, WhyFallback::StandingQueue)));
    }

    #[test]
    fn neither_the_hosts_own_delay_nor_the_length_of_symbols_is_a_queue() {
        let config = FallbackConfig::default();
        let mut watch = Watch::default();
        for nth in 0..1000 {
            let sample = Some(us(20 + nth % 90));
            let heard = Heard { number: nth, lost: 0, sample, is_symbol: true };
            assert_eq!(watch.on_answer(after(nth * 20), &heard, us(20), &config), None);
        }
        let mut watch = Watch::default();
        for nth in 0..1000 {
            let is_symbol = nth % 2 == 0;
            let sample = Some(us(if is_symbol { 24_000 } else { 20 }));
            let heard = Heard { number: nth, lost: 0, sample, is_symbol };
            assert_eq!(watch.on_answer(after(nth * 24_000), &heard, us(20), &config), None);
        }
    }
}
