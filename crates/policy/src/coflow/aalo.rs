//! Aalo (Chowdhury and Stoica, SIGCOMM 2015): discretized coflow-aware least-attained service (D-CLAS).
//!
//! A coflow begins in the first queue and sinks as the bytes that it has sent, over all hosts, pass the limits of the queues. Coflows
//! within a queue go by arrival. No size is ever looked at.
//!
//! Within a coflow each port is divided evenly among the flows there, and a flow gets the lesser of its two parts; what that leaves
//! goes to the next coflow, not back to its siblings. A coflow goes straight to the queue of what it has sent; the public simulator
//! moves it down by one queue at a time, and only where a coflow comes or goes.

use headwater_units::{Bytes, Duration, FluidRate, Time};

use super::ports::{Ports, Residual};
use super::{PortDemand, PortPlan};
use crate::{PlanError, Policy, Wakes};

/// The queues: where they end, and how often hosts and coordinator talk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queues {
    /// How many (K).
    pub count: u32,
    /// Bytes that a coflow may have sent and still be in the first queue (Q0).
    pub first: Bytes,
    /// By how much each queue's limit exceeds that of the queue before (E).
    pub factor: u64,
    /// The period of coordination.
    pub period: Duration,
}

impl Default for Queues {
    /// 10 queues, 10 MiB, 10, 80 ms: the defaults of the public prototype.
    fn default() -> Self {
        Queues { count: 10, first: Bytes::mib(10), factor: 10, period: Duration::from_millis(80) }
    }
}

impl Queues {
    /// The queue of a coflow that has sent this much; 0 is the most important. Exactly a limit is still within it.
    pub fn of(&self, sent: Bytes) -> u32 {
        let (mut queue, mut limit) = (0, self.first);
        while limit < sent && queue + 1 < self.count {
            (queue, limit) = (queue + 1, limit * self.factor);
        }
        queue
    }

    /// The least that a coflow must have sent to leave the queue of `sent`; `None` in the last.
    fn end_of(&self, sent: Bytes) -> Option<Bytes> {
        let queue = self.of(sent);
        let limit = (0..queue).fold(self.first, |limit, _| limit * self.factor);
        (queue + 1 < self.count).then_some(limit + Bytes::new(1))
    }

    /// Positions of coflows by queue, then arrival, then task.
    fn order(&self, demand: &PortDemand) -> Vec<usize> {
        let mut order: Vec<usize> = (0..demand.coflows.len()).collect();
        // The sort is stable, and the demand ascends by arrival and task.
        order.sort_by_key(|&at| self.of(demand.coflows[at].sent));
        order
    }
}

/// How queues share a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BetweenQueues {
    /// A queue gets what those before it leave: as both public codes do it.
    #[default]
    Strict,
    /// Of K queues, number q gets a part by weight K - q, where it has coflows; what a queue leaves goes to all in order. The paper
    /// has weights without naming them.
    Weighted,
}

/// D-CLAS as rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Aalo {
    /// Rates at which hosts can send and receive.
    pub ports: Ports,
    /// The queues.
    pub queues: Queues,
    /// How queues share a port.
    pub between: BetweenQueues,
    /// A flow that would get less waits. Zero by default: the prototype's 10 Mbit/s would stop every coflow with more than 100 flows
    /// at a port of 1 Gbit/s.
    pub least_rate: FluidRate,
}

impl Aalo {
    /// With the public prototype's queues, strict between them.
    pub fn new(ports: Ports) -> Aalo {
        let (queues, between) = (Queues::default(), BetweenQueues::Strict);
        Aalo { ports, queues, between, least_rate: FluidRate::ZERO }
    }
}

impl Policy<PortDemand, PortPlan> for Aalo {
    /// # Errors
    /// [`PlanError`] if a port does not exist, or a list is out of order.
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        demand.check(self.ports.len())?;
        let order = self.queues.order(demand);
        let mut division = Division::new(self, demand);
        if self.between == BetweenQueues::Weighted {
            let queue = |at: &usize| self.queues.of(demand.coflows[*at].sent);
            let weight = |queue: u32| f64::from(self.queues.count - queue);
            let groups: Vec<&[usize]> = order.chunk_by(|a, b| queue(a) == queue(b)).collect();
            let total: f64 = groups.iter().map(|group| weight(queue(&group[0]))).sum();
            for group in groups {
                let part = Residual::part(&self.ports, weight(queue(&group[0])) / total);
                let left = division.divide(group, part);
                division.spare(&left);
            }
        }
        let left = division.left();
        division.divide(&order, left);
        Ok(PortPlan::Rates(division.rates.into_iter().map(FluidRate::new).collect()))
    }

    fn wakes(&self) -> Wakes {
        Wakes { arrival: true, coflow_end: true, flow_end: true, tick: Some(self.queues.period) }
    }

    fn next_threshold(&self, sent: Bytes) -> Option<Bytes> {
        self.queues.end_of(sent)
    }
}

/// D-CLAS as an order: what the prototype's hosts enforce. Each coflow's rank is its position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AaloOrder {
    /// The queues.
    pub queues: Queues,
}

impl Policy<PortDemand, PortPlan> for AaloOrder {
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        Ok(PortPlan::in_order(demand, &self.queues.order(demand)))
    }

    fn wakes(&self) -> Wakes {
        // A host goes on to its next flow by the order that it has, without waiting for the coordinator.
        Wakes { arrival: true, coflow_end: true, flow_end: false, tick: Some(self.queues.period) }
    }

    fn next_threshold(&self, sent: Bytes) -> Option<Bytes> {
        self.queues.end_of(sent)
    }
}

/// Rates that are being given out, coflow by coflow.
struct Division<'a> {
    policy: &'a Aalo,
    demand: &'a PortDemand,
    starts: Vec<usize>,
    /// Bits per second, in the order of a plan.
    rates: Vec<f64>,
    /// Capacity that the parts of the queues have left over; none while there are no parts.
    spare: Option<Residual>,
}

impl<'a> Division<'a> {
    fn new(policy: &'a Aalo, demand: &'a PortDemand) -> Division<'a> {
        let mut flows = 0;
        let start = |coflow: &super::PortCoflow| {
            flows += coflow.flows.len();
            flows - coflow.flows.len()
        };
        let starts = demand.coflows.iter().map(start).collect();
        Division { policy, demand, starts, rates: vec![0.0; flows], spare: None }
    }

    /// Capacity that no queue has used.
    fn left(&self) -> Residual {
        self.spare.clone().unwrap_or_else(|| Residual::of(&self.policy.ports))
    }

    fn spare(&mut self, left: &Residual) {
        let Some(spare) = &mut self.spare else {
            self.spare = Some(left.clone());
            return;
        };
        spare.egress.iter_mut().zip(&left.egress).for_each(|(spare, left)| *spare += left);
        spare.ingress.iter_mut().zip(&left.ingress).for_each(|(spare, left)| *spare += left);
    }

    /// Divides `left` among these coflows in order; returns what they leave.
    fn divide(&mut self, order: &[usize], mut left: Residual) -> Residual {
        let ports = &self.policy.ports;
        let (mut counts, mut used) = (Residual::zeros(ports), Residual::zeros(ports));
        for &at in order {
            let (flows, start) = (&self.demand.coflows[at].flows, self.starts[at]);
            for flow in flows.iter().filter(|flow| left.room(flow) > 0.0) {
                counts.0[usize::from(flow.source.0)] += 1.0;
                counts.1[usize::from(flow.receiver.0)] += 1.0;
            }
            // From here on: a flow's part of each of its ports.
            parts(&mut counts.0, &left.egress);
            parts(&mut counts.1, &left.ingress);
            for (place, flow) in flows.iter().enumerate() {
                let (source, receiver) = (usize::from(flow.source.0), usize::from(flow.receiver.0));
                let rate = counts.0[source].min(counts.1[receiver]);
                if rate > 0.0 && left.room(flow) > 0.0 && rate >= self.policy.least_rate.get() {
                    self.rates[start + place] += rate;
                    used.0[source] += rate;
                    used.1[receiver] += rate;
                }
            }
            left.take_all(ports, &used);
            for list in [&mut counts.0, &mut counts.1, &mut used.0, &mut used.1] {
                list.fill(0.0);
            }
        }
        left
    }
}

/// From numbers of flows at each port to the part that each of them gets.
fn parts(counts: &mut [f64], left: &[f64]) {
    for (count, left) in counts.iter_mut().zip(left).filter(|(count, _)| **count > 0.0) {
        *count = left / *count;
    }
}
