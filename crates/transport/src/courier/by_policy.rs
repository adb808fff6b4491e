//! Algorithms 2 and 3 of `policy`, in the form that Courier's machine asks for.

use std::cmp::Ordering;

use headwater_policy::PlanError;
use headwater_policy::coflow::Port;
use headwater_policy::coflow::courier::{
    Address, Importance, Limits, Schedule, Scheduled, Signature, Unified, merge, select_and_split,
};
use headwater_units::{FluidRate, Rank};

use super::{Candidate, Chosen, Selection, Share};

/// Merges by pair, selects and splits within limits that were checked.
#[derive(Clone, Debug)]
pub struct ByPolicy {
    limits: Limits,
}

impl ByPolicy {
    /// Within these limits.
    ///
    /// # Errors
    /// [`PlanError::NoLanes`] or [`PlanError::NoMinSize`] if a limit is 0.
    pub fn new(limits: Limits) -> Result<ByPolicy, PlanError> {
        limits.check()?;
        Ok(ByPolicy { limits })
    }
}

impl Selection for ByPolicy {
    type Signature = Signature;

    fn signature(&self, candidates: &[Candidate]) -> Signature {
        Signature::of(&schedule(candidates), &self.limits)
    }

    fn select(&self, candidates: &[Candidate]) -> Vec<Chosen> {
        let unified = merge(&schedule(candidates));
        let lanes = select_and_split(&unified, &self.limits).expect("the limits were checked");
        let mut count = vec![0; unified.len()];
        lanes.iter().for_each(|lane| count[lane.unified] += 1);
        let mut chosen: Vec<(&Unified, u32)> =
            unified.iter().zip(count).filter(|(_, lanes)| *lanes > 0).collect();
        chosen.sort_by(|(a, _), (b, _)| more_important(a, b));
        let chosen = chosen.into_iter().map(|(flow, lanes)| Chosen {
            pair: flow.address.source.0,
            lanes,
            rate: match flow.importance {
                Importance::Rate(rate) => Some(rate),
                Importance::Rank(_) | Importance::Even => None,
            },
        });
        chosen.collect()
    }
}

/// The more important one first, as Algorithm 3 selects.
fn more_important(a: &Unified, b: &Unified) -> Ordering {
    let by_importance = match (a.importance, b.importance) {
        (Importance::Rate(a), Importance::Rate(b)) => b.get().total_cmp(&a.get()),
        (Importance::Rank(a), Importance::Rank(b)) => a.cmp(&b),
        _ => Ordering::Equal,
    };
    by_importance.then(b.size.cmp(&a.size)).then(a.address.cmp(&b.address))
}

/// All candidates by one kind of share: one that says nothing among ranks goes last, among rates it waits.
fn schedule(candidates: &[Candidate]) -> Schedule {
    let flows = candidates.iter().map(|it| {
        let address = Address { source: Port(it.pair), receiver: Port(u16::MAX), path: None };
        (Scheduled { flow: it.flow, address, size: it.left }, it.share)
    });
    if candidates.iter().any(|it| matches!(it.share, Share::Rate(_))) {
        let rate = |share| match share {
            Share::Rate(rate) => rate,
            Share::Rank(_) | Share::Even => FluidRate::ZERO,
        };
        return Schedule::Rates(flows.map(|(flow, share)| (flow, rate(share))).collect());
    }
    if candidates.iter().any(|it| matches!(it.share, Share::Rank(_))) {
        let rank = |share| match share {
            Share::Rank(rank) => rank,
            Share::Rate(_) | Share::Even => Rank::LAST,
        };
        return Schedule::Ranks(flows.map(|(flow, share)| (flow, rank(share))).collect());
    }
    Schedule::Even(flows.map(|(flow, _)| flow).collect())
}
