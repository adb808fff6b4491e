//! When a flow that follows delay holds back to see its path empty ([`DelayMark::refresh_every`]).
//!
//! ```text
//!             not seen empty for long              few packets left in flight          a round trip later
//!  Sending ---------------------------> Draining ------------------------------> Measuring ----> Sending
//! ```
//! The window is left alone: afterwards the flow goes on as before. A flow looks first when it leaves slow start, whose
//! overshoot has just filled the queue. For flows that yield this is the periodic slowdown of LEDBAT++.

use headwater_units::{Duration, Time};

use headwater_flow::marks::DelayMark;

/// Packets that stay in flight meanwhile: enough to keep samples coming (kMinPipeCwnd of BBR).
const FEW: usize = 4;

/// A flow that began without slow start looks after this many round trips: it has filled no queue.
const UNHURRIED: u64 = 16;

/// The state of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refresh {
    delay: Option<DelayMark>,
    /// Packets that stay in flight.
    few: usize,
    /// Round trips before the first look.
    patience: u64,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Until then, or until slow start has ended.
    Sending {
        look_at: Option<Time>,
    },
    Draining,
    Measuring {
        until: Time,
    },
}

impl Refresh {
    pub(super) fn new(delay: Option<DelayMark>) -> Self {
        Refresh { delay, few: FEW, patience: 1, state: State::Sending { look_at: None } }
    }

    /// There was no slow start.
    pub(super) fn take_time(&mut self) {
        self.patience = UNHURRIED;
    }

    /// A flow that yields leaves one packet in flight: several of them would else see each other's in a short queue.
    pub(super) fn leave_one(&mut self) {
        self.few = 1;
    }

    /// Holds back now.
    pub(super) fn holds_back(&self) -> bool {
        !matches!(self.state, State::Sending { .. })
    }

    /// Whether one more packet may be in flight.
    pub(super) fn allows(&self, in_flight: usize) -> bool {
        !self.holds_back() || in_flight < self.few
    }

    /// Takes a sample: one near the smallest puts the next look off.
    pub(super) fn on_sample(&mut self, now: Time, sample: Duration, min: Duration, smoothed: Duration) {
        if let (Some(delay), State::Sending { look_at: Some(at) }) = (self.delay, &mut self.state)
            && delay.is_empty_path(sample, min)
        {
            *at = now + delay.refresh_every(smoothed);
        }
    }

    /// Called with each ACK while delay is the signal and slow start is over.
    pub(super) fn proceed(&mut self, now: Time, smoothed: Duration, in_flight: usize) {
        let Some(delay) = self.delay else { return };
        self.state = match self.state {
            State::Sending { look_at: None } => {
                State::Sending { look_at: Some(now + smoothed * self.patience) }
            }
            State::Sending { look_at: Some(at) } if now >= at => State::Draining,
            State::Draining if in_flight <= self.few => State::Measuring { until: now + smoothed },
            State::Measuring { until } if now >= until => {
                State::Sending { look_at: Some(now + delay.refresh_every(smoothed)) }
            }
            state => state,
        };
    }

    /// Delay is not the signal any more, or all that was in flight is given up: there is nothing to look for.
    pub(super) fn stop(&mut self) {
        if self.holds_back() {
            self.state = State::Sending { look_at: None };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_looks_after_slow_start_and_then_when_it_has_not_seen_the_path_empty_for_long() {
        let (ms, at) = (Duration::from_millis, |n: u64| Time::from_nanos(n * 1_000_000));
        let mut r = Refresh::new(Some(DelayMark::default()));
        r.proceed(at(100), ms(10), 50);
        assert!(r.allows(50));
        r.proceed(at(110), ms(10), 50);
        assert!(r.holds_back() && !r.allows(4) && r.allows(3));
        r.proceed(at(120), ms(10), 4);
        r.proceed(at(129), ms(10), 4);
        assert!(r.holds_back());
        r.proceed(at(130), ms(10), 4);
        assert!(!r.holds_back());
        r.on_sample(at(2000), ms(6), ms(5), ms(10));
        r.proceed(at(3130), ms(10), 50);
        assert!(r.holds_back(), "6 ms is not 5 ms");
        r.stop();
        r.proceed(at(4000), ms(10), 50);
        r.on_sample(at(4005), ms(5), ms(5), ms(10));
        r.proceed(at(7000), ms(10), 50);
        assert!(!r.holds_back(), "the path was seen empty at 4005 ms");
        r.proceed(at(7005), ms(10), 50);
        assert!(r.holds_back());
    }

    #[test]
    fn a_flow_that_goes_by_ce_never_holds_back() {
        let mut r = Refresh::new(None);
        r.proceed(Time::MAX, Duration::ZERO, 100);
        assert!(r.allows(100));
    }
}
