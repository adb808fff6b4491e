//! What an allocator is told by a scheduled datagram.

use headwater_units::{BitRate, FlowId, Rank};
use headwater_wire::{Scheduling, SchedulingKind};

/// What a scheduled datagram says at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose it is (PAM i).
    pub transfer: FlowId,
    /// What it is (PAM T).
    pub kind: SchedulingKind,
    /// The transfer's place in line (PAM p).
    pub rank: Rank,
    /// What its source sends at (PAM r).
    pub rate: BitRate,
    /// The most that the path so far would grant (PAM b).
    pub offer: BitRate,
}

impl Claim {
    /// Of a datagram of this flow.
    pub fn new(transfer: FlowId, kind: SchedulingKind, scheduling: &Scheduling) -> Self {
        let (rank, rate, offer) = (scheduling.rank(), scheduling.rate(), scheduling.offer());
        Claim { transfer, kind, rank, rate, offer }
    }
}
