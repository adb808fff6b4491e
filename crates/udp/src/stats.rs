//! Counters of a port.

use headwater_units::Duration;

/// Counters of one [`UdpPort`](super::UdpPort) since it was bound. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats {
    /// Datagrams the kernel took.
    pub datagrams_sent: u64,
    /// UDP payload bytes the kernel took.
    pub bytes_sent: u64,
    /// Messages the kernel took; `datagrams_sent / messages_sent` is what segmentation offload saves.
    pub messages_sent: u64,
    /// System calls that sent something, or tried to.
    pub send_calls: u64,
    /// Times the send buffer was full, so that groups had to wait.
    pub sends_blocked: u64,
    /// Datagrams dropped because the kernel had no memory or no room in the device queue (`ENOBUFS`).
    pub sends_dropped: u64,
    /// Datagrams refused for their destination (unreachable, too long for the path, forbidden by a filter, ...).
    pub sends_refused: u64,
    /// Datagrams delivered to the caller.
    pub datagrams_received: u64,
    /// UDP payload bytes delivered to the caller.
    pub bytes_received: u64,
    /// Buffers the kernel filled; `datagrams_received / buffers_received` near one means that nothing was merged,
    /// which costs a receiver about 3.5 times the CPU.
    pub buffers_received: u64,
    /// System calls that received something, or tried to.
    pub receive_calls: u64,
    /// Datagrams the kernel dropped because the receive buffer was full. Learnt with the next datagram that arrives.
    pub kernel_dropped: u64,
    /// Buffers whose control messages did not fit: their TOS byte is unknown. Always a fault of ours.
    pub control_truncated: u64,
    /// Buffers dropped because their datagrams were cut off or could not be told apart.
    pub buffers_discarded: u64,
    /// Datagrams without payload; they are not delivered.
    pub empty_received: u64,
    /// Errors that the kernel reported on receive and that concern one peer only.
    pub receive_errors: u64,
}

impl std::ops::Add for SocketStats {
    type Output = SocketStats;

    /// Those of two sockets.
    fn add(self, other: SocketStats) -> SocketStats {
        SocketStats {
            datagrams_sent: self.datagrams_sent + other.datagrams_sent,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            messages_sent: self.messages_sent + other.messages_sent,
            send_calls: self.send_calls + other.send_calls,
            sends_blocked: self.sends_blocked + other.sends_blocked,
            sends_dropped: self.sends_dropped + other.sends_dropped,
            sends_refused: self.sends_refused + other.sends_refused,
            datagrams_received: self.datagrams_received + other.datagrams_received,
            bytes_received: self.bytes_received + other.bytes_received,
            buffers_received: self.buffers_received + other.buffers_received,
            receive_calls: self.receive_calls + other.receive_calls,
            kernel_dropped: self.kernel_dropped + other.kernel_dropped,
            control_truncated: self.control_truncated + other.control_truncated,
            buffers_discarded: self.buffers_discarded + other.buffers_discarded,
            empty_received: self.empty_received + other.empty_received,
            receive_errors: self.receive_errors + other.receive_errors,
        }
    }
}

/// How far the kernel merges datagrams when many long ones come: the ratio over all time says little, since ACKs and what
/// comes slowly are never merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merging {
    /// As they were at the last look.
    before: SocketStats,
    datagrams: u64,
    buffers: u64,
}

impl Merging {
    /// Spans with fewer datagrams per second say nothing: 112 Mbit/s of 1,400 bytes each, where 50 us lie between two.
    pub const HIGH_RATE: u64 = 10_000;
    /// Shorter datagrams on average are mostly ACKs.
    pub const LONG: u64 = 512;
    /// Number needed for a verdict.
    pub const ENOUGH: u64 = 1000;

    /// Looks at the counters, `span` after the look before.
    pub fn look(&mut self, span: Duration, stats: &SocketStats) {
        let datagrams = stats.datagrams_received - self.before.datagrams_received;
        let buffers = stats.buffers_received - self.before.buffers_received;
        let bytes = stats.bytes_received - self.before.bytes_received;
        self.before = *stats;
        let fast = datagrams as f64 >= Self::HIGH_RATE as f64 * span.as_secs_f64();
        if datagrams > 0 && fast && bytes >= Self::LONG * datagrams {
            self.datagrams += datagrams;
            self.buffers += buffers;
        }
    }

    /// Long datagrams that came at a high rate.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// Datagrams per buffer of those; `None` until there are enough.
    pub fn datagrams_per_buffer(&self) -> Option<f64> {
        (self.datagrams >= Self::ENOUGH).then(|| self.datagrams as f64 / self.buffers.max(1) as f64)
    }
}

impl SocketStats {
    /// Datagrams per received buffer so far; `None` before the first.
    pub fn datagrams_per_buffer(&self) -> Option<f64> {
        (self.buffers_received > 0).then(|| self.datagrams_received as f64 / self.buffers_received as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(datagrams: u64, buffers: u64, bytes: u64) -> SocketStats {
        SocketStats {
            datagrams_received: datagrams,
            buffers_received: buffers,
            bytes_received: bytes,
            ..SocketStats::default()
        }
    }

    #[test]
    fn merging_is_judged_by_long_datagrams_at_a_high_rate_alone() {
        let (mut merging, span) = (Merging::default(), Duration::from_millis(100));
        merging.look(span, &stats(900, 900, 900 * 1400));
        assert_eq!((merging.datagrams(), merging.datagrams_per_buffer()), (0, None), "too slow");
        merging.look(span, &stats(6_900, 6_900, 900 * 1400 + 6_000 * 70));
        assert_eq!(merging.datagrams(), 0, "ACKs");
        merging.look(span, &stats(15_900, 7_100, 900 * 1400 + 6_000 * 70 + 9_000 * 1400));
        assert_eq!(merging.datagrams_per_buffer(), Some(45.0));
        merging.look(span, &stats(24_900, 16_100, 900 * 1400 + 6_000 * 70 + 18_000 * 1400));
        assert_eq!(merging.datagrams_per_buffer(), Some(18_000.0 / 9_200.0));
    }

    #[test]
    fn there_is_no_verdict_on_few_datagrams() {
        let mut merging = Merging::default();
        merging.look(Duration::from_millis(1), &stats(999, 999, 999 * 1400));
        assert_eq!((merging.datagrams(), merging.datagrams_per_buffer()), (999, None));
    }
}
