//! TCP's congestion window, counted in packets (RFC 5681 §3).
//!
//! Slow start adds a packet per ACK; congestion avoidance adds one when a window's worth of packets was acknowledged
//! ("W + 1 after W ACKs": the byte counting that RFC 5681 §3.1 recommends, in packets). The window is a real number because
//! DCTCP's cuts are not whole; packets are sent while in flight + 1 <= window, as a push flow does, so the fraction is
//! rounded down where it is used and never lost where it is kept.

/// In packets: the threshold after a loss is never below this (RFC 5681 Eq. 4), nor is the window after a mark (as Linux and
/// PPUSH's comparison have it; RFC 8257 names no bound).
const LEAST: f64 = 2.0;

/// Window and slow start threshold, in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    size: f64,
    threshold: f64,
    /// Packets acknowledged in congestion avoidance towards the next one more.
    credit: f64,
    /// The window never exceeds it.
    limit: f64,
}

impl Window {
    /// All in packets.
    pub(super) fn new(initial: f64, threshold: f64, limit: f64) -> Self {
        Window { size: initial.min(limit), threshold, credit: 0.0, limit }
    }

    /// cwnd.
    pub(super) fn size(&self) -> f64 {
        self.size
    }

    /// Never more packets than this are out.
    pub(super) fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// ssthresh.
    pub(super) fn threshold(&self) -> f64 {
        self.threshold
    }

    /// It grows by a packet with each ACK.
    pub(super) fn is_in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// It is large enough as it is.
    pub(super) fn end_slow_start(&mut self) {
        self.threshold = self.size;
    }

    /// Grows or shrinks by this many packets.
    pub(super) fn add(&mut self, packets: f64) {
        self.size = (self.size + packets).max(LEAST).min(self.limit);
    }

    /// How many packets may be out.
    pub(super) fn whole(&self) -> u64 {
        // A window is below 2^20, so the signed conversion, which is cheaper, loses nothing.
        self.size as i64 as u64
    }

    /// An ACK has acknowledged `packets` for the first time (RFC 5681 §3.1).
    pub(super) fn grow(&mut self, packets: u64) {
        if self.size < self.threshold {
            self.size += 1.0;
        } else {
            self.credit += packets as i64 as f64;
            if self.credit >= self.size {
                self.credit -= self.size;
                self.size += 1.0;
            }
        }
        if self.size > self.limit {
            self.size = self.limit;
        }
    }

    /// A window in which something was marked (RFC 8257 §3.3): W - W alpha / 2. Growth goes on after it (§3.4), and a window
    /// of one becomes two, as slow start would make it.
    pub(super) fn cut(&mut self, mark_fraction: f64) {
        self.size = (self.size * (1.0 - mark_fraction / 2.0)).max(LEAST).min(self.limit);
        self.threshold = self.size;
    }

    /// Three duplicate ACKs: down to this threshold, and the three packets that have left (RFC 5681 §3.2, steps 2 and 3).
    pub(super) fn enter_recovery(&mut self, threshold: f64) {
        self.threshold = threshold;
        self.credit = 0.0;
        self.size = (self.threshold + 3.0).min(self.limit);
    }

    /// A recovery with SACK: down to this threshold; what has left is not in the pipe (RFC 6675 §5, step 4.2).
    pub(super) fn reduce_to(&mut self, threshold: f64) {
        self.threshold = threshold;
        self.size = threshold.min(self.limit);
        self.credit = 0.0;
    }

    /// One more duplicate ACK: one more packet has left (RFC 5681 §3.2, step 4).
    pub(super) fn inflate(&mut self) {
        self.size = (self.size + 1.0).min(self.limit);
    }

    /// A partial ACK of `packets` (RFC 6582 §3.2, step 3): they are not in flight any more, and one packet is sent again.
    pub(super) fn deflate(&mut self, packets: u64) {
        self.size = (self.size - packets as f64 + 1.0).max(1.0);
    }

    /// The ACK that ends recovery (RFC 6582 §3.2, step 3, first choice: no burst).
    pub(super) fn leave_recovery(&mut self, in_flight: u64) {
        self.size = self.threshold.min(in_flight.max(1) as f64 + 1.0).min(self.limit);
    }

    /// A timeout (RFC 5681 §3.1): back to one packet. The threshold moves only if the oldest packet had not timed out
    /// before (Eq. 4), and then to this one.
    pub(super) fn collapse(&mut self, threshold: Option<f64>) {
        self.threshold = threshold.unwrap_or(self.threshold);
        self.size = 1.0;
        self.credit = 0.0;
    }

    /// At most this, after an idle time (RFC 5681 §4.1, RW = min(IW, cwnd)).
    pub(super) fn shrink_to(&mut self, most: f64) {
        self.size = self.size.min(most);
        self.credit = 0.0;
    }

    /// The first window again, and slow start to no more than it was: what is known of the path's share still bounds it.
    pub(super) fn restart(&mut self, initial: f64) {
        self.threshold = self.threshold.min(self.size).max(LEAST);
        self.size = initial.min(self.limit);
        self.credit = 0.0;
    }

    /// The threshold that a loss leaves (RFC 5681 Eq. 4).
    pub(super) fn half_of(in_flight: u64) -> f64 {
        (in_flight as f64 / 2.0).max(LEAST)
    }
}
