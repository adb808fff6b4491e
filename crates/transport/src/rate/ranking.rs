//! The desired priority of a transfer, which its source states in every datagram (PAM §III-A, p).

use core::fmt::Debug;

use headwater_units::{Bytes, Rank, Time};

/// What a transfer's rank may follow from (PAM Table I).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The time.
    pub now: Time,
    /// When the source was told to send.
    pub started: Time,
    /// When the transfer should be complete, if that matters.
    pub deadline: Option<Time>,
    /// What is left to send, repairs too: bytes of symbols.
    pub remaining: Bytes,
    /// Receivers that are served together.
    pub receivers: u32,
}

/// Ranks the transfers of a source. A policy, or the same rank for all.
pub trait Ranking: Debug + Send + Sync {
    /// The transfer's rank at this moment; the smaller one goes first. Asked for with every datagram.
    fn rank(&self, transfer: &Standing) -> Rank;
}

/// The same for every transfer: a predefined priority, or fair sharing if it is [`Rank::LAST`] (PAM Table I, rows 4 and 5).
impl Ranking for Rank {
    fn rank(&self, _: &Standing) -> Rank {
        *self
    }
}
