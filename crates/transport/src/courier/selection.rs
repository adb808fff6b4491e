//! Selection of the pairs of hosts that have lanes: a trait, which `by_policy` implements by Algorithms 2 and 3 of
//! `policy`.

use core::fmt::Debug;

use headwater_units::{Bytes, FlowId, FluidRate, Rank};

/// A scheduler's share of a flow. All flows of a host have shares of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// There is no scheduler: flows of a pair share alike.
    Even,
    /// Order-based: before all flows of larger ranks.
    Rank(Rank),
    /// Rate-based; zero waits.
    Rate(FluidRate),
}

/// A flow that has something left to ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub flow: FlowId,
    /// The position of its pair among the host's pairs, which ascend by [`PairId`](super::PairId).
    pub pair: u16,
    /// Bytes left of it, above zero.
    pub left: Bytes,
    /// Its share by the scheduler.
    pub share: Share,
}

/// A pair that gets lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Its position, as in [`Candidate::pair`].
    pub pair: u16,
    /// How many, at least 1.
    pub lanes: u32,
    /// Rate that all its lanes may use together, where a scheduler gives rates.
    pub rate: Option<FluidRate>,
}

/// Algorithms 2 and 3: merges flows by pair, selects at most MaxNum lanes, and splits.
pub trait Selection: Debug + Send {
    /// Summary of a set of candidates; another selection is made only if it differs (Algorithm 1, line 5).
    type Signature: Debug + Send + PartialEq;

    /// The signature of these candidates.
    fn signature(&self, candidates: &[Candidate]) -> Self::Signature;

    /// The pairs with lanes, the most important first; each at most once. The same candidates give the same, in whatever order.
    fn select(&self, candidates: &[Candidate]) -> Vec<Chosen>;
}
