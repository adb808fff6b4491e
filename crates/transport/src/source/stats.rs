//! Counters of a source.

/// Counters of a source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Flows begun.
    pub opened: u64,
    /// Flows ended.
    pub closed: u64,
    /// Symbols that ended flows have sent, copies included.
    pub symbols_sent: u64,
    /// Of those, declared lost.
    pub symbols_lost: u64,
    /// Pushes refused.
    pub refused: u64,
    /// Datagrams and commands of flows that do not exist.
    pub unknown_flow: u64,
    /// Messages that no source takes.
    pub unexpected: u64,
}
