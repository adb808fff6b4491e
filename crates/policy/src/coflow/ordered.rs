//! The simple policies that others are compared with: per-flow fair sharing, coflows by arrival, and the smallest coflow first.

use headwater_units::{Theta, Time};

use super::{PortDemand, PortPlan};
use crate::{PlanError, Policy, Wakes};

/// All flows alike: what a network does without a scheduler. Asks for no sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fair;

impl Policy<PortDemand, PortPlan> for Fair {
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        Ok(PortPlan::Weights(vec![Some(Theta::ONE); demand.len()]))
    }

    fn wakes(&self) -> Wakes {
        Wakes { arrival: true, coflow_end: false, flow_end: false, tick: None }
    }
}

/// Coflows by arrival, then task. Asks for no sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fifo;

impl Policy<PortDemand, PortPlan> for Fifo {
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        let order: Vec<usize> = (0..demand.coflows.len()).collect();
        Ok(PortPlan::in_order(demand, &order))
    }

    fn wakes(&self) -> Wakes {
        // An end leaves the order of the others as it is.
        Wakes { arrival: true, coflow_end: false, flow_end: false, tick: None }
    }
}

/// The coflow with the least left over all its flows first; ties by arrival, then task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scf;

impl Policy<PortDemand, PortPlan> for Scf {
    /// # Errors
    /// [`PlanError::UnknownSize`] if a size is hidden.
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        let remaining =
            demand.coflows.iter().map(|coflow| coflow.remaining()).collect::<Result<Vec<_>, _>>()?;
        let mut order: Vec<usize> = (0..demand.coflows.len()).collect();
        // The sort is stable, and the demand ascends by arrival and task.
        order.sort_by_key(|&at| remaining[at]);
        Ok(PortPlan::in_order(demand, &order))
    }
}
