//! When the next packets of a flow may leave (RFC 9002 §7.7, docs/decisions/0024).
//!
//! A flow is paced a little faster than its window per round trip, in quanta of what 0.25 ms carry: at least two packets,
//! and never more than a quarter of the window. So a burst does not pass a mark threshold by itself,
//! and one send call carries one quantum.
//!
//! The pacer keeps a departure schedule, as a line does: while there is something to send, the next departure follows
//! from the one before, not from when the driver got round to it. A driver whose timers are coarse therefore loses no
//! rate: it may poll up to [`PacerConfig::catch_up`] late and finds the quanta of the time in between due.

use headwater_units::{BitRate, Bytes, Duration, Packets, Time};
use serde::{Deserialize, Serialize};

/// Configuration of a flow's pacing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacerConfig {
    /// Paced rate over window per round trip. 1.25: RFC 9002 §7.7.
    pub gain: f64,
    /// The same in slow start. 2: the window doubles each round trip, so less would hold it back.
    pub slow_start_gain: f64,
    /// Duration of one quantum at the paced rate. 0.25 ms (docs/decisions/0024): at some hundred Mbit/s a burst of 0.5
    /// ms is larger than the buckets of many rate limiters, and segmentation saves nothing there.
    pub quantum: Duration,
    /// A quantum is never more than the window divided by this. 4: docs/decisions/0024.
    pub window_parts: u32,
    /// A late driver catches up on this much. 2 ms by default: it may rest for half of that.
    pub catch_up: Duration,
    /// A flow is never paced faster.
    pub limit: Option<BitRate>,
}

impl Default for PacerConfig {
    fn default() -> Self {
        PacerConfig {
            gain: 1.25,
            slow_start_gain: 2.0,
            quantum: Duration::from_micros(250),
            window_parts: 4,
            catch_up: CATCH_UP,
            limit: None,
        }
    }
}

/// Twice what an end may come late.
const CATCH_UP: Duration = Duration::from_millis(2);

/// Pacing of one flow.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    config: PacerConfig,
    schedule: Schedule,
    interval: Duration,
    /// While no round-trip time is known.
    first_interval: Duration,
    quantum: u64,
}

impl Pacer {
    /// A flow that has sent nothing yet.
    pub fn new(config: PacerConfig) -> Self {
        Pacer {
            config,
            schedule: Schedule::default(),
            interval: Duration::ZERO,
            first_interval: Duration::ZERO,
            quantum: 1,
        }
    }

    /// A packet takes this long on the path, as far as is known before a round-trip time is.
    pub fn set_first_interval(&mut self, interval: Duration) {
        self.first_interval = interval;
    }

    /// Sets the rate from the window and a round-trip time that is not of the moment. Without one the limit paces, and
    /// what [`Pacer::set_first_interval`] was told: else the initial window may leave at once (RFC 9002 §7.7).
    pub fn set_rate(&mut self, window: Packets, rtt: Option<Duration>, slow_start: bool, packet: Bytes) {
        let gain = if slow_start { self.config.slow_start_gain } else { self.config.gain };
        let by_window = match rtt {
            None => self.first_interval,
            Some(rtt) => rtt.mul_f64(1.0 / (gain * window.get().max(1.0))),
        };
        let by_limit = self.config.limit.map_or(Duration::ZERO, |limit| packet / limit);
        self.interval = by_window.max(by_limit);
        self.quantum = quantum(window, self.interval, self.config.quantum, self.config.window_parts);
    }

    /// Packets that may leave together.
    pub fn quantum(&self) -> u64 {
        self.quantum
    }

    /// When the next packet may leave: `now` or later.
    pub fn ready_at(&self, now: Time) -> Time {
        self.schedule.ready_at(now)
    }

    /// A packet leaves now.
    pub fn on_sent(&mut self, now: Time) {
        self.schedule.on_sent(now, self.interval, self.quantum, self.config.catch_up);
    }

    /// Something else than pacing holds the flow back: time that passes now is not caught up later.
    pub fn on_blocked(&mut self) {
        self.schedule.backlogged = false;
    }
}

/// Quantum (docs/decisions/0024): max(2 packets, 0.25 ms), never more than a part of W, but at least 1, and 2 once the window has 8.
fn quantum(window: Packets, interval: Duration, lasting: Duration, parts: u32) -> u64 {
    let window = window.get();
    let by_time = match interval.as_nanos() {
        0 => u64::MAX,
        n => lasting.as_nanos() / n,
    };
    let least = if window >= 8.0 { 2 } else { 1 };
    by_time.max(2).min((window / f64::from(parts.max(1))) as u64).max(least)
}

/// How late the driver of either end of a paced flow may come: half of what its pacer catches up on, and of a round trip a quarter, as a
/// quantum is of the window. Both ends together make the round trip longer by at most a third, since what they wait is in it too.
pub fn slack_of(round_trip: Duration) -> Duration {
    (round_trip / 4).min(CATCH_UP / 2)
}

/// A rate that many flows share: a token bucket in the form of a departure schedule.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    rate: BitRate,
    lasting: Duration,
    catch_up: Duration,
    schedule: Schedule,
}

impl RateLimit {
    /// At most `rate`, in bursts of 0.25 ms or two packets, whichever is more.
    pub fn new(rate: BitRate) -> Self {
        let PacerConfig { quantum, catch_up, .. } = PacerConfig::default();
        RateLimit { rate, lasting: quantum, catch_up, schedule: Schedule::default() }
    }
    /// When the next packet may leave: `now` or later.
    pub fn ready_at(&self, now: Time) -> Time {
        self.schedule.ready_at(now)
    }
    /// A packet of this size leaves now.
    pub fn on_sent(&mut self, now: Time, packet: Bytes) {
        let interval = packet / self.rate;
        let quantum = (self.lasting.as_nanos() / interval.as_nanos().max(1)).max(2);
        self.schedule.on_sent(now, interval, quantum, self.catch_up);
    }
    /// Nobody has anything to send: time that passes now is not caught up later.
    pub fn on_blocked(&mut self) {
        self.schedule.backlogged = false;
    }
}

/// Departures: `next` is due when the clock reaches it, or at once while it lies before the quantum's `horizon`.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    next: Time,
    horizon: Time,
    backlogged: bool,
}

impl Schedule {
    fn within_quantum(&self, now: Time) -> bool {
        self.next < self.horizon && (self.backlogged || now < self.horizon)
    }

    fn ready_at(&self, now: Time) -> Time {
        if self.within_quantum(now) { now } else { self.next.max(now) }
    }

    fn on_sent(&mut self, now: Time, interval: Duration, quantum: u64, catch_up: Duration) {
        if !self.within_quantum(now) {
            let from = if self.backlogged { now - catch_up } else { now };
            self.next = self.next.max(from);
            self.horizon = self.next + interval * quantum;
        }
        self.backlogged = true;
        self.next += interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// Drives a pacer that always has something to send, polling at `ready_at` plus `late`; returns (time, burst) pairs.
    fn run(pacer: &mut Pacer, until: Time, late: Duration) -> Vec<(Time, u64)> {
        let (mut now, mut bursts) = (Time::ZERO, Vec::new());
        while now < until {
            let mut burst = 0;
            while pacer.ready_at(now) <= now {
                pacer.on_sent(now);
                burst += 1;
            }
            bursts.push((now, burst));
            now = pacer.ready_at(now) + late;
        }
        bursts
    }

    fn paced(window: f64, rtt: Duration) -> Pacer {
        let mut pacer = Pacer::new(PacerConfig::default());
        pacer.set_rate(Packets::new(window), Some(rtt), false, Bytes::new(1472));
        pacer
    }

    #[test]
    fn a_round_trip_carries_a_window_and_a_quarter() {
        let mut pacer = paced(100.0, Duration::from_millis(20));
        let sent: u64 =
            run(&mut pacer, Time::from_nanos(2_000_000_000), Duration::ZERO).iter().map(|b| b.1).sum();
        assert!((12_490..=12_510).contains(&sent), "{sent}");
    }

    #[test]
    fn a_quantum_lasts_a_quarter_of_a_millisecond_and_never_passes_a_quarter_of_the_window() {
        // 1 Gbit/s over 10 ms: W = 850, 106 packets a millisecond.
        let mut pacer = paced(850.0, Duration::from_millis(10));
        let bursts = run(&mut pacer, Time::from_nanos(100_000_000), Duration::ZERO);
        assert!(bursts.iter().all(|b| b.1 <= 27));
        assert!(bursts.windows(2).all(|w| w[1].0.since(w[0].0) >= us(240)));
        // A quarter of a millisecond carries more than the window here: a quarter of that rules.
        let mut pacer = paced(100.0, us(200));
        assert!(run(&mut pacer, Time::from_nanos(1_000_000), Duration::ZERO).iter().all(|b| b.1 <= 25));
        assert_eq!(paced(8.0, Duration::from_millis(100)).quantum(), 2);
        assert_eq!(paced(4.0, Duration::from_millis(100)).quantum(), 1);
        assert_eq!(paced(1.0, us(1)).quantum(), 1);
    }

    #[test]
    fn a_driver_that_wakes_late_loses_no_rate() {
        let mut pacer = paced(100.0, us(500));
        let sent: u64 = run(&mut pacer, Time::from_nanos(1_000_000_000), us(300)).iter().map(|b| b.1).sum();
        assert!((249_000..=251_000).contains(&sent), "{sent}");
    }

    #[test]
    fn time_spent_blocked_by_something_else_is_not_caught_up() {
        let mut pacer = paced(100.0, Duration::from_millis(20));
        pacer.on_sent(Time::ZERO);
        pacer.on_blocked();
        let now = Time::from_nanos(1_000_000_000);
        let mut burst = 0;
        while pacer.ready_at(now) <= now {
            pacer.on_sent(now);
            burst += 1;
        }
        assert_eq!(burst, pacer.quantum());
    }

    #[test]
    fn without_a_round_trip_time_nothing_is_paced_but_by_the_limit() {
        let mut pacer = Pacer::new(PacerConfig::default());
        pacer.set_rate(Packets::new(10.0), None, true, Bytes::new(1250));
        for _ in 0..10 {
            assert_eq!(pacer.ready_at(Time::ZERO), Time::ZERO);
            pacer.on_sent(Time::ZERO);
        }
        let mut pacer =
            Pacer::new(PacerConfig { limit: Some(BitRate::new(10_000_000)), ..PacerConfig::default() });
        pacer.set_rate(Packets::new(1000.0), Some(us(100)), false, Bytes::new(1250));
        let sent: u64 =
            run(&mut pacer, Time::from_nanos(1_000_000_000), Duration::ZERO).iter().map(|b| b.1).sum();
        assert!((1000..=1004).contains(&sent), "{sent}");
    }

    #[test]
    fn a_shared_limit_holds_over_time() {
        let mut limit = RateLimit::new(BitRate::new(100_000_000));
        let (mut now, mut bytes) = (Time::ZERO, 0);
        while now < Time::from_nanos(1_000_000_000) {
            while limit.ready_at(now) <= now {
                limit.on_sent(now, Bytes::new(1000));
                bytes += 1000;
            }
            now = limit.ready_at(now) + us(50);
        }
        assert!((12_480_000..=12_530_000).contains(&bytes), "{bytes}");
    }
}
