//! Weighers: the share of every flow of every active task.

use std::collections::BTreeMap;

use headwater_fabric::LinkId;
use headwater_policy::theta::{Bounds, plan};
use headwater_policy::{Coflow, Demand, PathedFlow, Share as Planned};
use headwater_units::{Bytes, Duration, FlowId, Packets};

use super::{ActiveTask, FlowError, Network, Share};
use crate::fluid::ppush::steady::Bottleneck;

/// All alike: PPUSH(·,0), DCTCP and whatever else shares fairly.
///
/// # Errors
/// None; it has the form of a [`super::Weigher`].
pub fn equal(active: &[ActiveTask]) -> Result<Vec<Share>, FlowError> {
    Ok(active.iter().flat_map(|task| &task.flows).map(|_| Share::EVEN).collect())
}

/// A rank per task, the one with the least left first: what thetas approach as their ceiling grows.
///
/// # Errors
/// None; it has the form of a [`super::Weigher`].
pub fn smallest_first(active: &[ActiveTask]) -> Result<Vec<Share>, FlowError> {
    let mut order: Vec<usize> = (0..active.len()).collect();
    order.sort_by_key(|&at| (active[at].remaining, active[at].task.task));
    let mut ranks = vec![0; active.len()];
    for (&at, rank) in order.iter().zip(0..) {
        ranks[at] = rank;
    }
    let shares = active.iter().zip(ranks);
    Ok(shares.flat_map(|(task, rank)| task.flows.iter().map(move |_| Share { weight: 1.0, rank })).collect())
}

/// Thetas by PPUSH Algorithm 1: PPUSH(·,1), to be used with [`super::Allocation::WeightedMaxMin`].
pub fn thetas(bounds: Bounds) -> impl FnMut(&[ActiveTask]) -> Result<Vec<Share>, FlowError> {
    move |active| {
        let mut ids = (0..).map(FlowId);
        let coflow = |task: &ActiveTask| {
            let paths = task.flows.iter().map(|&place| task.task.paths[place].clone());
            let flows = paths.zip(&mut ids).map(|(path, flow)| PathedFlow::pooled(flow, path)).collect();
            let arrival = task.task.arrival;
            Coflow { arrival, ..Coflow::sized(task.task.task, task.remaining, flows) }
        };
        let demand = Demand { coflows: active.iter().map(coflow).collect() };
        // By id, which is the order in which they were given out.
        let plan = plan(&demand, &bounds)?;
        let share = |planned: Planned| {
            planned.weight().map_or(Share::EVEN, |theta| Share { weight: theta.get(), ..Share::EVEN })
        };
        Ok(plan.shares().map(|(_, planned)| share(planned)).collect())
    }
}

/// The bounds of Algorithm 1 for every link by itself: floor 0.5 (PPUSH Eq. 21), ceiling R C / 2 (Eq. 20) at the round
/// trip of a loaded link, d + K / C (Eq. 13).
pub fn theta_bounds(
    network: &Network,
    propagation: Duration,
    mark_threshold: Packets,
    packet: Bytes,
) -> Bounds {
    let links = (0..).map(LinkId).zip(network.capacities());
    let ceilings: BTreeMap<_, _> = links
        .map(|(link, &capacity)| {
            let bottleneck = Bottleneck { capacity, packet, propagation, mark_threshold };
            (link, Some(bottleneck.theta_ceiling()))
        })
        .collect();
    Bounds { ceilings, ..Bounds::default() }
}
