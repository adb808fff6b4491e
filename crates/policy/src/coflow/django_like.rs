//! A stand-in for Django: Varys with a bound on the flows per host (Courier §II-D, §V-C).
//!
//! Django predicts the best number of concurrent flows with a support vector machine and caps them by a coordinator. Its full
//! algorithm is not openly available. As in Courier's evaluation, the cap is found by trying: run it with several and keep the
//! best. Each host takes its most important flows, by its coflows' effective bottlenecks; the rest wait.

use headwater_units::{Duration, Time};

use super::ports::Ports;
use super::varys::{Handout, by_bottleneck};
use super::{PortDemand, PortPlan};
use crate::{PlanError, Policy, Wakes};

/// Between two rounds of the coordinator: that of Varys' prototype.
const PERIOD: Duration = Duration::from_millis(100);

/// SEBF and MADD with at most this many flows per host.
#[derive(Clone, Debug, PartialEq)]
pub struct DjangoLike {
    ports: Ports,
    flows_per_host: u32,
}

impl DjangoLike {
    /// A host sends at most `flows_per_host` flows and receives at most as many.
    ///
    /// # Errors
    /// [`PlanError::NoLanes`] if that is none.
    pub fn new(ports: Ports, flows_per_host: u32) -> Result<DjangoLike, PlanError> {
        match flows_per_host {
            0 => Err(PlanError::NoLanes),
            _ => Ok(DjangoLike { ports, flows_per_host }),
        }
    }

    /// Whether each flow may be active, in the order of a plan.
    fn admitted(&self, demand: &PortDemand, order: &[usize]) -> Vec<bool> {
        let mut starts = Vec::with_capacity(demand.coflows.len());
        let mut flows = 0;
        for coflow in &demand.coflows {
            starts.push(flows);
            flows += coflow.flows.len();
        }
        let mut admitted = vec![false; flows];
        let mut sending = vec![0; self.ports.len()];
        let mut receiving = vec![0; self.ports.len()];
        for &at in order {
            for (place, flow) in demand.coflows[at].flows.iter().enumerate() {
                let (source, receiver) = (usize::from(flow.source.0), usize::from(flow.receiver.0));
                if sending[source] < self.flows_per_host && receiving[receiver] < self.flows_per_host {
                    sending[source] += 1;
                    receiving[receiver] += 1;
                    admitted[starts[at] + place] = true;
                }
            }
        }
        admitted
    }
}

impl Policy<PortDemand, PortPlan> for DjangoLike {
    /// # Errors
    /// [`PlanError`] if a size is hidden, a port does not exist, or a list is out of order.
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        demand.check(self.ports.len())?;
        let order = by_bottleneck(&self.ports, demand)?;
        let admitted = self.admitted(demand, &order);
        let mut handout = Handout::new(&self.ports, demand);
        for at in order {
            handout.minimum_rates(at, &|place| admitted[place])?;
        }
        handout.fill_up(&|place| admitted[place]);
        Ok(handout.plan())
    }

    fn wakes(&self) -> Wakes {
        // An end makes room for a flow that waits.
        Wakes { arrival: true, coflow_end: true, flow_end: true, tick: Some(PERIOD) }
    }
}
