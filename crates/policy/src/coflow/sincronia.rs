//! Sincronia (Agarwal et al., SIGCOMM 2018): an order of coflows by bottleneck, select, scale, iterate (BSSI).
//!
//! The order is filled from its end: of the port with the most left to carry, the coflow that puts the most on it per weight
//! goes last; the others' weights shrink by what they would have waited for it there; and so on with the rest. Any rates that
//! follow the order and leave no port idle end coflows within four times the least average; here flows take them greedily.
//!
//! Offline, [`SincroniaOffline`] orders all coflows once, before any has come. Online, [`Sincronia`] orders what is left anew whenever a
//! coflow comes or ends. The published online algorithm admits coflows in epochs of doubling length by a linear program; it is not here.

use headwater_units::{TaskId, Time};

use super::ports::Port;
use super::{PortDemand, PortPlan};
use crate::{PlanError, Policy, Wakes};

/// BSSI over what is left, at each arrival and end of a coflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sincronia;

impl Policy<PortDemand, PortPlan> for Sincronia {
    /// # Errors
    /// [`PlanError::UnknownSize`] if a size is hidden.
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        Ok(PortPlan::in_order(demand, &bssi(demand)?))
    }
}

/// One order for a whole run, by BSSI over coflows that are all known beforehand, as if all came at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SincroniaOffline {
    /// Every coflow's place, ascending by task.
    places: Vec<(TaskId, usize)>,
}

impl SincroniaOffline {
    /// The order of these coflows, each with all its flows.
    ///
    /// # Errors
    /// [`PlanError::UnknownSize`] if a size is hidden.
    pub fn new(all: &PortDemand) -> Result<SincroniaOffline, PlanError> {
        let order = bssi(all)?.into_iter().enumerate();
        let mut places: Vec<_> = order.map(|(place, at)| (all.coflows[at].task, place)).collect();
        places.sort_unstable();
        Ok(SincroniaOffline { places })
    }

    /// A coflow that was not known beforehand comes after all others.
    fn place(&self, task: TaskId) -> usize {
        let known = self.places.binary_search_by_key(&task, |(task, _)| *task);
        known.map_or(usize::MAX, |at| self.places[at].1)
    }
}

impl Policy<PortDemand, PortPlan> for SincroniaOffline {
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        let mut order: Vec<usize> = (0..demand.coflows.len()).collect();
        order.sort_by_key(|&at| self.place(demand.coflows[at].task));
        Ok(PortPlan::in_order(demand, &order))
    }

    fn wakes(&self) -> Wakes {
        // An end leaves the order of the others as it is.
        Wakes { arrival: true, coflow_end: false, flow_end: false, tick: None }
    }
}

/// Positions of the demand's coflows, the most important first.
///
/// Ties: the lowest port is the bottleneck; the latest arrival goes last. Costs O(n (n + ports)) for n coflows.
///
/// # Errors
/// [`PlanError::UnknownSize`] if a size is hidden.
pub fn bssi(demand: &PortDemand) -> Result<Vec<usize>, PlanError> {
    let loads = loads(demand)?;
    let ports = loads.first().map_or(0, Vec::len);
    let mut weights: Vec<f64> = demand.coflows.iter().map(|coflow| coflow.weight).collect();
    let mut totals = vec![0.0; ports];
    for load in &loads {
        totals.iter_mut().zip(load).for_each(|(total, load)| *total += load);
    }
    // Ascending by arrival and task, as the demand is.
    let mut rest: Vec<usize> = (0..loads.len()).collect();
    let mut reversed = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let bottleneck =
            (0..ports).reduce(|best, port| if totals[port] > totals[best] { port } else { best });
        let on_it = |at: usize| bottleneck.map_or(0.0, |port| loads[at][port]);
        let ratio = |at: usize| weights[at] / on_it(at);
        let loaded = (0..rest.len()).filter(|&place| on_it(rest[place]) > 0.0);
        let last =
            loaded.reduce(|best, place| if ratio(rest[place]) <= ratio(rest[best]) { place } else { best });
        let Some(last) = last else {
            // Only coflows without bytes are left.
            reversed.extend(rest.iter().rev());
            break;
        };
        let chosen = rest.remove(last);
        let scale = weights[chosen] / on_it(chosen);
        for &other in &rest {
            weights[other] = (weights[other] - scale * on_it(other)).max(0.0);
        }
        for (total, load) in totals.iter_mut().zip(&loads[chosen]) {
            *total -= load;
        }
        reversed.push(chosen);
    }
    reversed.reverse();
    Ok(reversed)
}

/// Load that each coflow has left at each port, in bytes: all egress ports, then all ingress ports. Whole numbers, so
/// that sums are exact and come down to zero again, up to 2^53 bytes a port.
fn loads(demand: &PortDemand) -> Result<Vec<Vec<f64>>, PlanError> {
    let hosts = demand.flows().map(|(_, flow)| usize::from(flow.source.max(flow.receiver).0) + 1).max();
    let (hosts, mut loads) = (hosts.unwrap_or(0), Vec::with_capacity(demand.coflows.len()));
    for coflow in &demand.coflows {
        let mut load = vec![0.0; 2 * hosts];
        for flow in &coflow.flows {
            let bytes = coflow.bits(flow)? / 8.0;
            let at = |Port(port): Port| usize::from(port);
            load[at(flow.source)] += bytes;
            load[hosts + at(flow.receiver)] += bytes;
        }
        loads.push(load);
    }
    Ok(loads)
}
