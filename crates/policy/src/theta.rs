//! The weight of every push flow: consistent θ assignment (PPUSH §III-C, Alg. 1), and its ceiling (§IV-A, Eq. 20).
//!
//! The task with the least left takes the large weight on every link it uses (the link's *token*); everybody else on
//! those links gets the floor. So small tasks finish first, nobody starves, and the sum over a link stays within what
//! keeps WFCC stable.
//!
//! Lines 13-16 are read as standing outside the `else` of line 10: χ is "the number of flows through e" (line 3), of
//! which π holds those with the token, and only so does §V's example come out at 55 - 8 x 0.5 = 51. The paper has one
//! θ+; here each link has its own, by its capacity, and line 11's starting value is "as much as its links allow".
//!
//! Differs from the paper where a ceiling is not known yet: the token of such a link is given out like any other, since
//! the order of the tasks is known all the same, but the link bounds nothing (lines 18-21 skip it), and a flow that no
//! link bounds gets [`Bounds::unmeasured`].

use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::LinkId;
use headwater_units::{BitRate, Bytes, Duration, FlowId, Theta, Time};

use crate::{Coflow, Demand, Plan, PlanError, Policy, Share};

/// Between what the weights must stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// θ-: what a flow without a token gets. In (0, 1]; 0.5 by Eq. 21.
    pub floor: Theta,
    /// Theta of a flow with a token while no link on its path has a known ceiling.
    pub unmeasured: Theta,
    /// θ+ of every link: the most that all weights on it may sum up to; `None` while it is not known.
    pub ceilings: BTreeMap<LinkId, Option<Theta>>,
}

impl Default for Bounds {
    /// Floor 0.5 (PPUSH Eq. 21), 2 where nothing is measured (docs/decisions/0031), no links.
    fn default() -> Self {
        Bounds { floor: Theta::FLOOR, unmeasured: Theta::new(2.0), ceilings: BTreeMap::new() }
    }
}

/// Algorithm 1 between these bounds.
impl Policy for Bounds {
    fn plan(&self, _now: Time, demand: &Demand) -> Result<Plan, PlanError> {
        plan(demand, self)
    }
}

/// θ+ of a link: half the packets that fill it during one loaded round trip, R * C / 2 (PPUSH Eq. 20).
pub fn theta_ceiling(loaded_rtt: Duration, capacity: BitRate, packet: Bytes) -> Theta {
    let packets_per_second = capacity.get() as f64 / (packet.get().max(1) as f64 * 8.0);
    Theta::new(loaded_rtt.as_secs_f64() * packets_per_second / 2.0)
}

/// Splits every link's ceiling among the flows of its smallest task (PPUSH Alg. 1).
///
/// The plan has one weight per flow of the demand, at least `bounds.floor`. A flow with the token on all its links gets
/// at most the ceiling of each, less the floors of the others there, divided by the holders; but never less than 1
/// (line 19), so the sum over a link exceeds its ceiling where that is too small for 1 per holder and a floor for each
/// of the rest. Tasks of equal size come in the order of their ids.
///
/// # Errors
/// [`PlanError`] if a path names a link without an entry in `bounds.ceilings`, what is left of a task is not known, a task or
/// flow is listed twice, or a bound is not a usable number.
pub fn plan(demand: &Demand, bounds: &Bounds) -> Result<Plan, PlanError> {
    check(bounds)?;
    demand.check(|link| bounds.ceilings.contains_key(&link))?;
    let mut taken: BTreeSet<LinkId> = BTreeSet::new(); // Line 1: E, the links whose token is given.
    let mut order = sized(demand)?;
    order.sort_by_key(|(remaining, coflow)| (*remaining, coflow.task)); // Line 2.
    let mut traffic: BTreeMap<LinkId, Traffic> = BTreeMap::new(); // Lines 3 and 4.
    let mut weights: BTreeMap<FlowId, Weight> = BTreeMap::new();
    for (_, coflow) in order {
        // Line 5.
        let mut claimed: BTreeSet<LinkId> = BTreeSet::new(); // Line 6: E_p.
        for flow in &coflow.flows {
            // Line 7.
            let links = flow.path.links();
            let weight = match links.iter().any(|link| taken.contains(link)) {
                true => Weight::Floor,         // Lines 8 and 9.
                false => Weight::AtMost(None), // Line 11.
            };
            if weight != Weight::Floor {
                claimed.extend(links); // Line 12.
            }
            for &link in links {
                // Line 13.
                let on_link = traffic.entry(link).or_default();
                on_link.flows += 1; // Line 14.
                if weight != Weight::Floor {
                    on_link.holders.push(flow.flow); // Lines 15 and 16.
                }
            }
            weights.insert(flow.flow, weight);
        }
        taken.append(&mut claimed); // Line 17: per task, so that its own flows share a token.
    }
    for (link, on_link) in &traffic {
        // Line 18.
        let (Some(ceiling), false) = (bounds.ceilings[link], on_link.holders.is_empty()) else { continue };
        let holders = on_link.holders.len() as f64;
        let others = (on_link.flows - on_link.holders.len()) as f64;
        let each = ((ceiling.get() - bounds.floor.get() * others) / holders).max(1.0); // Line 19.
        for flow in &on_link.holders {
            // Line 20.
            if let Some(Weight::AtMost(bound)) = weights.get_mut(flow) {
                *bound = Some(bound.map_or(each, |b| b.min(each))); // Line 21.
            }
        }
    }
    let share = |weight| {
        Share::Weight(match weight {
            Weight::Floor => bounds.floor,
            Weight::AtMost(None) => bounds.unmeasured,
            Weight::AtMost(Some(theta)) => Theta::new(theta),
        })
    };
    Ok(Plan::new(weights.into_iter().map(|(flow, weight)| (flow, share(weight))).collect()))
}

/// All coflows, with what is left of each.
fn sized(demand: &Demand) -> Result<Vec<(Bytes, &Coflow)>, PlanError> {
    let sized = |coflow: &Coflow| coflow.remaining.ok_or(PlanError::UnknownSize(coflow.task));
    demand.coflows.iter().map(|coflow| Ok((sized(coflow)?, coflow))).collect()
}

/// State that lines 3 and 4 keep of a link.
#[derive(Default)]
struct Traffic {
    /// χ: the number of flows through it.
    flows: usize,
    /// π: those with the token, all of one task.
    holders: Vec<FlowId>,
}

#[derive(Clone, Copy, PartialEq)]
enum Weight {
    /// θ-.
    Floor,
    /// As much as the links allow; no bound met yet if `None`.
    AtMost(Option<f64>),
}

fn check(bounds: &Bounds) -> Result<(), PlanError> {
    if !(bounds.floor.get() > 0.0 && bounds.floor.get() <= 1.0) {
        return Err(PlanError::Floor(bounds.floor));
    }
    let usable = |theta: Theta, least: f64| theta.get().is_finite() && theta.get() >= least;
    if !usable(bounds.unmeasured, bounds.floor.get()) {
        return Err(PlanError::Ceiling(bounds.unmeasured));
    }
    if let Some(&ceiling) = bounds.ceilings.values().flatten().find(|c| !usable(**c, 0.0)) {
        return Err(PlanError::Ceiling(ceiling));
    }
    Ok(())
}
