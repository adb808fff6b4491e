//! What a port counts.

/// Counters of one [`UdpPort`](super::UdpPort) since it was bound. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats {
    /// Datagrams the kernel took.
    pub datagrams_sent: u64,
    /// UDP payload bytes the kernel took.
    pub bytes_sent: u64,
    /// Messages the kernel took; `datagrams_sent / messages_sent` is what segmentation offload saves.
    pub messages_sent: u64,
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

impl SocketStats {
    /// Datagrams per received buffer so far; `None` before the first.
    pub fn datagrams_per_buffer(&self) -> Option<f64> {
        (self.buffers_received > 0).then(|| self.datagrams_received as f64 / self.buffers_received as f64)
    }
}
