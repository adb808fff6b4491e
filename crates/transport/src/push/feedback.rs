//! Input of a rule of congestion control at each ACK.

use headwater_units::PacketNumber;

/// Meaning of one ACK for the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feedback {
    /// Packets newly acknowledged.
    pub acked: u64,
    /// How many of them were marked.
    pub marked: u64,
    /// Packets newly inferred lost.
    pub lost: u64,
    /// The largest packet number newly acknowledged.
    pub largest: PacketNumber,
    /// The packet number that will be sent next.
    pub next: PacketNumber,
    /// The window, not the lack of work, held the flow back.
    pub limited: bool,
    /// Its marks are CE, not delay.
    pub by_routers: bool,
}
