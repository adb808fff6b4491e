//! Claims: the part of a scheduled datagram that an allocator reads.

use headwater_units::{BitRate, FlowId, Rank};
use headwater_wire::{Scheduling, SchedulingKind};

/// Claim of a scheduled datagram at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its transfer (PAM i).
    pub transfer: FlowId,
    /// Its kind (PAM T).
    pub kind: SchedulingKind,
    /// The transfer's place in line (PAM p).
    pub rank: Rank,
    /// Rate at which its source sends (PAM r).
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
