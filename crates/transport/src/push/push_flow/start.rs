//! The beginning of a flow whose end links the controller knows: with the window that they carry, at their rate
//! ([`crate::push::first_window`]).
//!
//! A task of a few windows then needs no slow start, whose overshoot would cost a small object more than the rest of its path. A
//! longer task has slow start all the same: it is how a flow learns about the rest of the path, above all that routers mark.

use headwater_units::{Duration, PacketNumber, Packets};
use headwater_wire::{Class, Start, on_the_wire};

use super::PushFlow;
use crate::push::first_window::{MOST, first_window};
use headwater_flow::Shared;

/// Most first windows of a small task.
const FEW: f64 = 16.0;

/// The first window of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstWindow {
    /// The controller's facts about the path, until a round trip is measured.
    start: Option<Start>,
    /// Packets below this one are of it; where levels are served, they go before others.
    below: PacketNumber,
}

impl FirstWindow {
    pub(super) fn has(&self, packet: PacketNumber) -> bool {
        packet < self.below
    }
}

impl PushFlow {
    /// Before anything was sent. The round trip is that of earlier flows to this receiver, if there were any lately.
    pub(super) fn begin_at_known_rate(&mut self, shared: &Shared) {
        // A flow that yields begins with little, whatever the lines carry: others may be on them.
        let Some(start) = self.push.start.filter(|_| !self.congestion.is_gentle()) else { return };
        let rtt = shared.memory.min(self.push.receiver).unwrap_or(start.rtt);
        let packet = on_the_wire(self.push.symbol_size);
        if let Some(pacer) = &mut self.pacer {
            pacer.set_first_interval(packet / start.rate);
        }
        self.first.start = Some(start);
        let window = first_window(start.rate, rtt, packet);
        if self.push.class == Class::Bulk {
            self.first.below = PacketNumber(window.get() as u64);
        }
        self.begin_with(window);
    }

    /// The first measured round trip says what the window should have been.
    pub(super) fn on_first_sample(&mut self, rtt: Duration) {
        let Some(start) = self.first.start.take() else { return };
        let window = first_window(start.rate, rtt, on_the_wire(self.push.symbol_size));
        if window.get() > self.congestion.window().get() {
            self.begin_with(window);
        }
    }

    fn begin_with(&mut self, window: Packets) {
        let task = self.push.bytes.get() as f64 / f64::from(self.push.symbol_size.max(1));
        // Where the bound is what makes the window so small, there is more to be found at any rate.
        let search = window.get() >= MOST || task > FEW * window.get();
        self.congestion.begin_at(window, search);
        if !search {
            self.refresh.take_time();
        }
    }
}
