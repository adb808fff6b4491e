//! The congestion control of a push flow: weighted ([`Wfcc`]), yielding to other traffic ([`Yielding`]), or of an overlay
//! ([`StripeWindow`]). A further rule is one more variant, which gets the same [`Feedback`] of each ACK.

use headwater_units::{Duration, Packets, Theta, Time};
use headwater_wire::{Class, Delivery, Push};

use super::PushFlowConfig;
use super::feedback::Feedback;
use super::stripe_window::StripeWindow;
use super::wfcc::Wfcc;
use super::yielding::{Yielding, Yields};

/// Congestion control of one push flow.
#[derive(Clone, Debug)]
pub(super) enum Congestion {
    /// Shares links in proportion to its weight (PPUSH §III-B).
    Weighted(Wfcc),
    /// Takes what is left: flows of the gentle class, where the source is told so ([`PushFlowConfig::yielding`]).
    Yielding(Yielding),
    /// The same as all others where links are full: flows of an overlay.
    Striped(StripeWindow),
}

/// Calls the method of the same name, whichever rule it is.
macro_rules! either {
    ($rule:expr, $name:ident($($argument:expr),*)) => {
        match $rule {
            Congestion::Weighted(rule) => rule.$name($($argument),*),
            Congestion::Yielding(rule) => rule.$name($($argument),*),
            Congestion::Striped(rule) => rule.$name($($argument),*),
        }
    };
}

impl Congestion {
    /// Of a flow that has sent nothing yet.
    pub(super) fn new(config: &PushFlowConfig, push: &Push) -> Self {
        match config.yielding {
            _ if matches!(push.delivery, Delivery::Overlay { .. }) => {
                Congestion::Striped(StripeWindow::new(push.theta))
            }
            Some(yielding) if push.class == Class::Gentle => {
                Congestion::Yielding(Yielding::new(yielding, push.theta))
            }
            _ => Congestion::Weighted(Wfcc::new(config.wfcc, push.theta)),
        }
    }

    /// Goes on with a window that is known to fit; a flow that yields finds out by itself.
    pub(super) fn begin_at(&mut self, window: Packets, search: bool) {
        if let Congestion::Weighted(wfcc) = self {
            wfcc.begin_at(window, search);
        }
    }

    /// Forgets the old path: what was learnt about it says nothing about the new one.
    pub(super) fn on_new_path(&mut self, config: &PushFlowConfig) {
        match self {
            Congestion::Weighted(wfcc) => *wfcc = Wfcc::new(config.wfcc, wfcc.theta()),
            Congestion::Yielding(yielding) => yielding.on_new_path(),
            Congestion::Striped(_) => {}
        }
    }

    /// Whether it yields to other traffic.
    pub(super) fn is_gentle(&self) -> bool {
        matches!(self, Congestion::Yielding(_))
    }

    /// Whether its receiver grants the window.
    pub(super) fn is_striped(&self) -> bool {
        matches!(self, Congestion::Striped(_))
    }

    /// How often it has yielded, and to what; zero under WFCC.
    pub(super) fn yields(&self) -> Yields {
        match self {
            Congestion::Weighted(_) | Congestion::Striped(_) => Yields::default(),
            Congestion::Yielding(yielding) => yielding.yields(),
        }
    }

    #[inline]
    pub(super) fn window(&self) -> Packets {
        either!(self, window())
    }

    /// How long a window lasts at the rate of a flow that has `in_flight` packets in flight for a round trip.
    pub(super) fn window_lasts(&self, in_flight: usize, round_trip: Duration) -> Duration {
        round_trip.mul_f64(self.window().get() / in_flight.max(1) as f64)
    }

    pub(super) fn theta(&self) -> Theta {
        either!(self, theta())
    }

    pub(super) fn set_theta(&mut self, theta: Theta) {
        either!(self, set_theta(theta));
    }

    #[inline]
    pub(super) fn in_slow_start(&self) -> bool {
        either!(self, in_slow_start())
    }

    #[inline]
    pub(super) fn allows(&self, in_flight: usize) -> bool {
        either!(self, allows(in_flight))
    }

    /// α, or how congested the last round was.
    pub(super) fn mark_fraction(&self) -> f64 {
        match self {
            Congestion::Weighted(wfcc) => wfcc.mark_fraction(),
            Congestion::Yielding(yielding) => yielding.congestion(),
            Congestion::Striped(_) => 0.0,
        }
    }

    /// Takes an ACK. `rtt`: its sample and the smallest known.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Time, feedback: &Feedback, rtt: Option<(Duration, Duration)>) {
        match self {
            Congestion::Weighted(wfcc) => wfcc.on_ack(now, feedback),
            Congestion::Yielding(yielding) => {
                let ce = if feedback.by_routers { feedback.marked } else { 0 };
                yielding.on_ack(now, feedback, ce, rtt);
            }
            Congestion::Striped(striped) => striped.on_ack(feedback, rtt),
        }
    }

    pub(super) fn on_rto(&mut self, now: Time, lost: u64) {
        match self {
            Congestion::Weighted(wfcc) => wfcc.on_rto(now, lost),
            Congestion::Yielding(yielding) => yielding.on_rto(now),
            Congestion::Striped(striped) => striped.on_rto(),
        }
    }

    /// The receiver has room for `packets` packets in flight.
    pub(super) fn grant(&mut self, packets: u32) {
        if let Congestion::Striped(striped) = self {
            striped.grant(packets);
        }
    }
}
