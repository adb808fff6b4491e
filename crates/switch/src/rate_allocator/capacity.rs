//! Capacity that a link's transfers may use together (PAM Eq. 2-4).
//!
//! ```text
//!  available = alpha (C - B) - beta max(0, q - q0)                                  (2)
//!  alpha     = alpha + eta | 1 if eta < 0 | max(1, alpha - eta) if eta <= eta0      (3)
//!  eta       = 1 - Bm / (C - B)                                                     (4)
//! ```
//! α exceeds 1 where transfers do not take their shares because they are held up elsewhere; then the others get more. Differs from the paper
//! where Eq. 3 would run away, on links that are idle or whose transfers all are held up elsewhere: α stays within 1 and the number
//! of active transfers, beyond which no division among them can be wrong. It is 1 without any. Where other traffic fills the line,
//! nothing is available.

use headwater_units::{BitRate, Bytes};

/// Measurements of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// The line's rate (PAM C).
    pub(super) line: BitRate,
    /// Load of what is not scheduled, in bit/s (PAM B).
    pub(super) other: f64,
    /// Load of what is scheduled, in bit/s (PAM Bm).
    pub(super) scheduled: f64,
    /// Bytes that wait (PAM q).
    pub(super) queue: Bytes,
    /// Active transfers (PAM N).
    pub(super) active: u64,
}

/// The constants of Eq. 2 and 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gains {
    /// PAM η0.
    pub(super) idle_share: f64,
    /// Per second (PAM β).
    pub(super) queue_gain: f64,
    /// PAM q0.
    pub(super) queue_target: Bytes,
    /// Whether α moves.
    pub(super) adapts: bool,
}

/// α, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Capacity {
    pub(super) alpha: f64,
    /// In bit/s (PAM C(t)).
    pub(super) available: f64,
}

impl Capacity {
    /// Of a link that nothing was measured of yet.
    pub(super) fn new(line: BitRate) -> Self {
        Capacity { alpha: 1.0, available: line.get() as f64 }
    }

    /// An update (PAM Eq. 2-4).
    pub(super) fn update(&mut self, gains: &Gains, measured: &Measured) {
        let room = measured.line.get() as f64 - measured.other;
        if room <= 0.0 {
            *self = Capacity { alpha: 1.0, available: 0.0 };
            return;
        }
        if gains.adapts {
            let eta = 1.0 - measured.scheduled / room;
            let alpha = match eta {
                _ if eta > gains.idle_share => self.alpha + eta,
                _ if eta < 0.0 => 1.0,
                _ => self.alpha - eta,
            };
            self.alpha = alpha.clamp(1.0, measured.active.max(1) as f64);
        }
        let excess = measured.queue - gains.queue_target;
        self.available = (self.alpha * room - gains.queue_gain * excess.get() as f64 * 8.0).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: BitRate = BitRate::new(1_000_000);

    fn gains() -> Gains {
        Gains { idle_share: 0.02, queue_gain: 20.0, queue_target: Bytes::new(3_000), adapts: true }
    }

    fn measured(other: f64, scheduled: f64, queue: u64, active: u64) -> Measured {
        Measured { line: LINE, other, scheduled, queue: Bytes::new(queue), active }
    }

    fn updated(alpha: f64, it: Measured) -> Capacity {
        let mut capacity = Capacity { alpha, available: 0.0 };
        capacity.update(&gains(), &it);
        capacity
    }

    #[test]
    fn alpha_rises_while_room_lies_idle_and_falls_by_what_is_idle() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let idle = updated(1.2, measured(200_000.0, 600_000.0, 0, 3));
        assert!(near(idle.alpha, 1.45) && near(idle.available, 1.45 * 800_000.0), "{idle:?}");
        let little = updated(1.2, measured(0.0, 990_000.0, 0, 3));
        assert!(near(little.alpha, 1.19), "{little:?}");
        assert_eq!(updated(1.005, measured(0.0, 990_000.0, 0, 3)).alpha, 1.0, "never below 1");
        assert_eq!(updated(1.2, measured(0.0, 1_000_001.0, 0, 3)).alpha, 1.0, "more than there is room for");
    }

    #[test]
    fn alpha_is_bounded_where_nobody_takes_what_is_there() {
        assert_eq!(updated(2.9, measured(0.0, 0.0, 0, 3)).alpha, 3.0);
        assert_eq!(updated(2.9, measured(0.0, 0.0, 0, 0)).alpha, 1.0, "nobody is there");
        assert_eq!(updated(2.9, measured(0.0, 0.0, 0, 1)).alpha, 1.0);
    }

    #[test]
    fn the_queue_is_drained_and_other_traffic_comes_first() {
        // 1,000 bytes above the target, twenty times a second.
        assert_eq!(updated(1.0, measured(0.0, 1e6, 4_000, 3)).available, 1e6 - 160_000.0);
        assert_eq!(updated(1.0, measured(0.0, 1e6, 3_000, 3)).available, 1e6);
        assert_eq!(updated(1.0, measured(0.0, 1e6, u64::MAX, 3)).available, 0.0);
        for other in [1e6, 1e9, f64::MAX] {
            assert_eq!(updated(2.0, measured(other, 0.0, 0, 3)), Capacity { alpha: 1.0, available: 0.0 });
        }
    }

    #[test]
    fn alpha_can_be_held_at_one() {
        let mut capacity = Capacity::new(LINE);
        capacity.update(&Gains { adapts: false, ..gains() }, &measured(0.0, 0.0, 0, 9));
        assert_eq!(capacity, Capacity { alpha: 1.0, available: 1e6 });
    }
}
