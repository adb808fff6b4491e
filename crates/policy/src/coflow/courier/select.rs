//! Courier Algorithm 3: a host starts its most important unified flows, and splits them where it may have more lanes than these.
//!
//! More important is the larger rate or the smaller rank, then the larger size, then the lower address. A split halves size and rate
//! and keeps the rank. So by rate a split flow loses its place and others follow; by rank all further lanes go to the first rank.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use headwater_units::{Bytes, FluidRate};

use super::{Address, Importance, Unified};
use crate::PlanError;

/// How many lanes, and how small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most lanes of a host (MaxNum).
    pub max_num: u32,
    /// A lane of this much or less is not split (MinSize).
    pub min_size: Bytes,
    /// The most lanes of one address: the number of disjoint paths, where paths are chosen by their ends; `None` under ECMP.
    pub max_per_pair: Option<u32>,
    /// Parts are cut at whole multiples of this, and nothing shorter is split.
    pub block: Bytes,
}

impl Default for Limits {
    /// 10 lanes and 1 MiB (ours: the paper names neither), no bound per pair (ECMP), blocks of 64 KiB (Courier §VI-C).
    fn default() -> Self {
        Limits { max_num: 10, min_size: Bytes::mib(1), max_per_pair: None, block: Bytes::kib(64) }
    }
}

impl Limits {
    /// Whether lanes can be and splitting ends.
    ///
    /// # Errors
    /// [`PlanError::NoLanes`], [`PlanError::NoMinSize`].
    pub fn check(&self) -> Result<(), PlanError> {
        if self.max_num == 0 || self.max_per_pair == Some(0) {
            return Err(PlanError::NoLanes);
        }
        if self.min_size == Bytes::ZERO || self.block == Bytes::ZERO {
            return Err(PlanError::NoMinSize);
        }
        Ok(())
    }
}

/// A flow that is actually started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lane {
    /// The position of its unified flow among those given; its members travel in it.
    pub unified: usize,
    /// Bytes that it is to carry.
    pub size: Bytes,
    /// Its rate or rank.
    pub importance: Importance,
}

/// Decides which flows a host starts (Algorithm 3); at most `limits.max_num`, the most important ones, by unified flow.
///
/// # Errors
/// [`PlanError`] if a limit is 0.
pub fn select_and_split(unified: &[Unified], limits: &Limits) -> Result<Vec<Lane>, PlanError> {
    limits.check()?;
    let lane = |(at, flow): (usize, &Unified)| Candidate {
        address: flow.address,
        lane: Lane { unified: at, size: flow.size, importance: flow.importance },
    };
    // A flow that the scheduler gives no rate is not started.
    let eligible = |candidate: &Candidate| candidate.lane.importance != Importance::Rate(FluidRate::ZERO);
    let mut selected: Vec<Candidate> = unified.iter().enumerate().map(lane).filter(eligible).collect();
    selected.sort_unstable_by(|a, b| b.cmp(a));
    selected.truncate(limits.max_num as usize); // Lines 3 to 10.
    let mut done = Vec::new();
    let mut lanes_of = vec![1; unified.len()];
    let mut heap = BinaryHeap::from(selected);
    while done.len() + heap.len() < limits.max_num as usize {
        // Lines 11 to 17.
        let Some(best) = heap.pop() else { break };
        let lanes = &mut lanes_of[best.lane.unified];
        let may_split = best.lane.size > limits.min_size.max(limits.block);
        if !may_split || limits.max_per_pair.is_some_and(|most| *lanes >= most) {
            // Neither changes later, so it is not looked at again.
            done.push(best);
            continue;
        }
        *lanes += 1;
        heap.extend(best.split(limits.block));
    }
    let mut lanes: Vec<Lane> = done.into_iter().chain(heap).map(|candidate| candidate.lane).collect();
    lanes.sort_unstable_by_key(|lane| (lane.unified, Reverse(lane.size)));
    Ok(lanes)
}

#[derive(Clone, Copy, PartialEq)]
struct Candidate {
    address: Address,
    lane: Lane,
}

impl Candidate {
    /// Two halves (lines 20 to 28), the first rounded up to a whole block.
    fn split(self, block: Bytes) -> [Candidate; 2] {
        let half = self.lane.size.get().div_ceil(2).div_ceil(block.get()).saturating_mul(block.get());
        let importance = match self.lane.importance {
            Importance::Rate(rate) => Importance::Rate(FluidRate::new(rate.get() / 2.0)),
            same => same,
        };
        let part = |size| Candidate { lane: Lane { size, importance, ..self.lane }, ..self };
        [part(Bytes::new(half)), part(self.lane.size - Bytes::new(half))]
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    /// The more important one is the greater.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_importance = match (self.lane.importance, other.lane.importance) {
            (Importance::Rate(one), Importance::Rate(other)) => one.get().total_cmp(&other.get()),
            (Importance::Rank(one), Importance::Rank(other)) => other.cmp(&one),
            _ => Ordering::Equal,
        };
        let rest = || self.lane.size.cmp(&other.lane.size).then(other.address.cmp(&self.address));
        by_importance.then_with(rest)
    }
}
