//! Other rules than NewReno's for how a window grows behind slow start, and for what a loss leaves of it: BIC's and Vegas's.
//!
//! Only the window is theirs: fast retransmit, recovery and timeouts are NewReno's. Vegas's own retransmissions (§3.1 of its paper), which
//! look at the clock at each duplicate ACK, are not here.

use headwater_units::Duration;

use super::window::Window;

/// Rule of congestion avoidance, with its memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Avoidance {
    Bic(Bic),
    Vegas(Vegas),
}

impl Avoidance {
    /// An ACK has acknowledged `packets` for the first time, and perhaps was of the packet that is timed. `bounds`: the window was what
    /// bounded what was sent.
    pub(super) fn on_ack(
        &mut self,
        window: &mut Window,
        packets: u64,
        sample: Option<Duration>,
        bounds: bool,
    ) {
        match self {
            Avoidance::Bic(bic) if bounds => bic.grow(window, packets),
            Avoidance::Bic(_) => {}
            Avoidance::Vegas(vegas) => vegas.on_ack(window, packets, sample, bounds),
        }
    }

    /// A packet was lost: the threshold that a window has now, if it is not half of what is in flight.
    pub(super) fn on_loss(&mut self, window: &Window) -> Option<f64> {
        match self {
            Avoidance::Bic(bic) => bic.on_loss(window.size()),
            Avoidance::Vegas(_) => None,
        }
    }
}

/// Binary increase (Xu, Harfoush, Rhee: Binary Increase Congestion Control for Fast Long-Distance Networks, INFOCOM 2004, §III-D).
///
/// A window that is below the one of the last loss goes half of the way to it in each round trip; above it, it seeks a new one, slowly first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bic {
    /// The window at the last loss, or less if the one before was larger; infinite while a new one is sought.
    most: f64,
    /// Increase of the search for a new maximum in a round trip, and the window up to which it applies.
    step: f64,
    step_until: f64,
}

impl Bic {
    /// Smaller windows are as NewReno's.
    const LOW_WINDOW: f64 = 14.0;
    /// The part of a window that a loss takes.
    const DECREASE: f64 = 0.125;
    /// Largest and smallest increase of the window in a round trip, in packets.
    const MAX_INCREMENT: f64 = 32.0;
    const MIN_INCREMENT: f64 = 0.01;

    pub(super) const NEW: Bic = Bic { most: f64::INFINITY, step: Self::MAX_INCREMENT, step_until: 0.0 };

    fn grow(&mut self, window: &mut Window, packets: u64) {
        let size = window.size();
        if window.is_in_slow_start() || size < Self::LOW_WINDOW {
            window.grow(packets);
            return;
        }
        if size >= self.most {
            (self.most, self.step, self.step_until) = (f64::INFINITY, 1.0, size + 1.0);
        }
        let increment = if self.most.is_finite() {
            // Half of the way.
            ((self.most - size) / 2.0).clamp(Self::MIN_INCREMENT, Self::MAX_INCREMENT)
        } else {
            if size >= self.step_until && self.step < Self::MAX_INCREMENT {
                self.step = (2.0 * self.step).min(Self::MAX_INCREMENT);
                self.step_until = size + self.step;
            }
            self.step
        };
        window.add(packets as f64 * increment / size);
    }

    fn on_loss(&mut self, size: f64) -> Option<f64> {
        if size < Self::LOW_WINDOW {
            return None;
        }
        let rest = size * (1.0 - Self::DECREASE);
        // Fast convergence: whose window has become smaller leaves room for others.
        self.most = if size < self.most && self.most.is_finite() { (size + rest) / 2.0 } else { size };
        Some(rest)
    }
}

/// Vegas (Brakmo, Peterson: TCP Vegas: End to End Congestion Avoidance on a Global Internet, JSAC 13(8), 1995, §3.2 and §3.3).
///
/// Keeps between one and three packets of its own in queues, by the difference of the round trip that it sees and the shortest one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vegas {
    /// The shortest round trip.
    base: Duration,
    /// Slow start grows in every other round trip, and only looks in the one between.
    grows: bool,
}

impl Vegas {
    /// Fewer packets than this in queues: the window grows by one.
    const ALPHA: f64 = 1.0;
    /// More: it shrinks by one.
    const BETA: f64 = 3.0;
    /// More, and slow start ends.
    const GAMMA: f64 = 1.0;

    pub(super) const NEW: Vegas = Vegas { base: Duration::MAX, grows: true };

    fn on_ack(&mut self, window: &mut Window, packets: u64, sample: Option<Duration>, bounds: bool) {
        let Some(rtt) = sample else {
            if bounds && self.grows && window.is_in_slow_start() {
                window.grow(packets);
            }
            return;
        };
        self.base = self.base.min(rtt);
        let queued =
            window.size() * (1.0 - self.base.as_secs_f64() / rtt.as_secs_f64().max(f64::MIN_POSITIVE));
        if window.is_in_slow_start() {
            self.grows = !self.grows;
            if queued > Self::GAMMA {
                window.end_slow_start();
            }
        } else if queued > Self::BETA {
            window.add(-1.0);
        } else if queued < Self::ALPHA && bounds {
            window.add(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    /// Behind slow start at this window.
    fn window(size: f64) -> Window {
        Window::new(size, 1.0, 4096.0)
    }

    /// A round trip: the ACKs of a whole window.
    fn round(bic: &mut Bic, window: &mut Window) -> f64 {
        let before = window.size();
        (0..before as u64).for_each(|_| bic.grow(window, 1));
        window.size() - before
    }

    /// INFOCOM 2004, Fig. 3: additive increase of the most that is allowed, then half of the way each time, then a search that begins
    /// slowly.
    #[test]
    fn bic_halves_the_way_to_the_window_of_the_last_loss_and_then_seeks_a_new_one() {
        let (mut bic, mut window) = (Bic::NEW, window(400.0));
        assert_eq!(bic.on_loss(400.0), Some(350.0));
        window.enter_recovery(350.0);
        window.leave_recovery(400);
        assert_eq!(window.size(), 350.0);
        let growth: Vec<f64> = (0..40).map(|_| round(&mut bic, &mut window)).collect();
        // 50 are left: 25 at first, but each ACK looks anew.
        assert!((18.0..25.0).contains(&growth[0]), "{growth:?}");
        let slowest = (0..growth.len()).min_by(|a, b| growth[*a].total_cmp(&growth[*b])).unwrap();
        assert!(growth[..slowest].is_sorted_by(|a, b| a >= b), "{growth:?}");
        assert!(growth[slowest..].iter().any(|growth| *growth > 16.0) && window.size() > 500.0, "{growth:?}");
        assert!(growth.iter().all(|growth| *growth <= Bic::MAX_INCREMENT));
    }

    #[test]
    fn bic_leaves_room_where_its_window_has_become_smaller() {
        let mut bic = Bic::NEW;
        bic.on_loss(400.0);
        assert_eq!(bic.most, 400.0);
        bic.on_loss(200.0);
        assert_eq!(bic.most, 187.5, "the middle of 200 and 175");
        assert_eq!(bic.on_loss(13.0), None, "as NewReno");
    }

    #[test]
    fn vegas_keeps_one_to_three_packets_in_queues() {
        let (mut vegas, mut it) = (Vegas::NEW, window(10.0));
        vegas.on_ack(&mut it, 1, ms(100), true);
        assert_eq!(it.size(), 11.0, "no queue");
        vegas.on_ack(&mut it, 1, ms(125), true);
        assert_eq!(it.size(), 11.0, "2.2 packets");
        vegas.on_ack(&mut it, 1, ms(150), true);
        assert_eq!(it.size(), 10.0, "3.7 packets");
        vegas.on_ack(&mut it, 1, None, true);
        assert_eq!(it.size(), 10.0, "once in a round trip");
        vegas.on_ack(&mut it, 1, ms(100), false);
        assert_eq!(it.size(), 10.0, "the window did not bound");
    }

    #[test]
    fn vegas_doubles_every_other_round_trip_and_ends_slow_start_before_a_loss() {
        let (mut vegas, mut it) = (Vegas::NEW, Window::new(4.0, f64::INFINITY, 4096.0));
        (0..4).for_each(|_| vegas.on_ack(&mut it, 1, None, true));
        assert_eq!(it.size(), 8.0);
        vegas.on_ack(&mut it, 1, ms(10), true);
        (0..8).for_each(|_| vegas.on_ack(&mut it, 1, None, true));
        assert_eq!(it.size(), 8.0, "only looks");
        vegas.on_ack(&mut it, 1, ms(13), true);
        assert!(!it.is_in_slow_start(), "1.8 packets in a queue");
    }
}
