//! DCTCP's estimate of the share of marked packets, and when it cuts the window (RFC 8257 §3.3).
//!
//! The fraction is updated at the end of each observation window of about a round trip. A cut comes with the first echo that
//! arrives, and not again before a packet sent after the cut is acknowledged (RFC 3168 §6.1.2: once per window of data);
//! it uses the fraction as it then stands. The observation windows and the windows of the cuts are independent, as RFC 8257 has
//! them.

use super::DctcpConfig;

/// Marks of one flow, counted in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    gain: f64,
    fraction: f64,
    /// Packets acknowledged in this observation window, and those under an echo.
    acked: u64,
    marked: u64,
    /// The observation window ends with the first ACK above this (DCTCP.WindowEnd).
    window_end: u64,
    /// The window is not cut again by an ACK up to this.
    cut_end: u64,
}

impl Marks {
    pub(super) fn new(config: DctcpConfig) -> Self {
        Marks {
            gain: share(config.gain),
            fraction: share(config.initial_mark_fraction),
            acked: 0,
            marked: 0,
            window_end: 0,
            cut_end: 0,
        }
    }

    /// alpha.
    pub(super) fn fraction(&self) -> f64 {
        self.fraction
    }

    /// An ACK for everything below `acked_to` has acknowledged `packets` for the first time; `sent_to` is one above the newest
    /// packet sent (SND.NXT). True if it asks for a cut.
    pub(super) fn on_ack(&mut self, packets: u64, echo: bool, acked_to: u64, sent_to: u64) -> bool {
        self.acked += packets;
        if echo {
            self.marked += packets;
        }
        if acked_to > self.window_end {
            self.fraction += self.gain * (self.marked as f64 / self.acked as f64 - self.fraction);
            self.window_end = sent_to;
            (self.acked, self.marked) = (0, 0);
        }
        echo && acked_to > self.cut_end
    }

    /// The window was cut, for marks or by a timeout, with packets out up to `sent_to`.
    pub(super) fn on_cut(&mut self, sent_to: u64) {
        self.cut_end = sent_to;
    }
}

/// Within 0..=1; NaN becomes 0.
fn share(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}
