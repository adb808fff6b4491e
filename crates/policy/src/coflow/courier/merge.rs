//! Courier Algorithm 2: the flows of each address become one unified flow.
//!
//! The paper folds a list: rates and sizes add up (Eq. 2); of two orders the higher one stays, and equal ones add up their sizes.
//! Whatever the order of the list, that gives what is computed here at once: all flows of an address by their sum, or its flows of
//! the most important rank. Lower ranks are not lost, only hidden, until the top ones have ended.

use std::collections::BTreeMap;

use headwater_units::{Bytes, FlowId, FluidRate};

use super::{Address, Importance, Schedule, Scheduled};

/// Merged flow between one pair of hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Unified {
    /// Between whom.
    pub address: Address,
    /// Bytes that its members have left together.
    pub size: Bytes,
    /// The sum of its members' rates, or their rank.
    pub importance: Importance,
    /// The flows in it, ascending by id, each with its own importance.
    pub members: Vec<(FlowId, Importance)>,
}

/// Merges flows by address (Algorithm 2). Ascending by address. Flows that have nothing left, or stay on their host, are left out.
pub fn merge(schedule: &Schedule) -> Vec<Unified> {
    match schedule {
        Schedule::Rates(list) => {
            unify(list.iter().map(|(flow, rate)| (flow, Importance::Rate(*rate))), |_| true)
        }
        Schedule::Even(list) => unify(list.iter().map(|flow| (flow, Importance::Even)), |_| true),
        Schedule::Ranks(list) => {
            let mut top = BTreeMap::new();
            for (flow, rank) in list.iter().filter(|(flow, _)| travels(flow)) {
                let best = top.entry(flow.address).or_insert(*rank);
                *best = (*best).min(*rank);
            }
            let ranked = list.iter().map(|(flow, rank)| (flow, Importance::Rank(*rank)));
            unify(ranked, |(flow, own)| {
                top.get(&flow.address).is_some_and(|best| *own == Importance::Rank(*best))
            })
        }
    }
}

fn travels(flow: &Scheduled) -> bool {
    flow.size > Bytes::ZERO && flow.address.source != flow.address.receiver
}

fn unify<'a>(
    flows: impl Iterator<Item = (&'a Scheduled, Importance)>,
    is_member: impl Fn(&(&Scheduled, Importance)) -> bool,
) -> Vec<Unified> {
    let mut by_address: BTreeMap<Address, Vec<(&Scheduled, Importance)>> = BTreeMap::new();
    for member in flows.filter(|(flow, _)| travels(flow)).filter(is_member) {
        by_address.entry(member.0.address).or_default().push(member);
    }
    let unified = by_address.into_iter().map(|(address, mut members)| {
        // Sums of rates round alike whatever the order of the schedule.
        members.sort_unstable_by_key(|(flow, _)| flow.flow);
        Unified {
            address,
            size: members.iter().map(|(flow, _)| flow.size).sum(),
            importance: members.iter().map(|(_, own)| *own).reduce(joint).unwrap_or(Importance::Even),
            members: members.into_iter().map(|(flow, own)| (flow.flow, own)).collect(),
        }
    });
    unified.collect()
}

/// Of two members of one unified flow: rates add up, and ranks are equal.
fn joint(one: Importance, other: Importance) -> Importance {
    match (one, other) {
        (Importance::Rate(one), Importance::Rate(other)) => {
            Importance::Rate(FluidRate::new(one.get() + other.get()))
        }
        _ => one,
    }
}

impl Unified {
    /// The part of what arrives that each member gets, in their order: by rate, else evenly. A member without a rate gets none while
    /// another has one.
    pub fn parts(&self) -> Vec<f64> {
        let even = 1.0 / self.members.len() as f64;
        let part = |own: &Importance| match (own, self.importance) {
            (Importance::Rate(own), Importance::Rate(all)) if all.get() > 0.0 => own.get() / all.get(),
            _ => even,
        };
        self.members.iter().map(|(_, own)| part(own)).collect()
    }
}
