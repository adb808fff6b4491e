//! Varys (Chowdhury, Zhong and Stoica, SIGCOMM 2014): smallest effective bottleneck first (SEBF), and the minimum rates that end
//! all flows of a coflow together (MADD).
//!
//! A coflow's effective bottleneck is the time that its busiest port needs for what is left of it. Coflows are served by it; each
//! gets rates by which all its flows end together at the earliest time that the ports left to it allow. What is left then goes
//! to coflows without any rate, divided by port, and last to all coflows by arrival (two passes, as the public simulator does it).
//!
//! The order is by what is left of a coflow over full capacity, at each plan anew; the public prototype and simulator keep other
//! orders. Capacity that a flow frees before its coflow ends stays idle until the next plan. Leaves out deadlines and the periodic
//! slice against starvation.

use headwater_units::{FluidRate, Time};

use super::ports::{Ports, Residual};
use super::{PortCoflow, PortDemand, PortPlan};
use crate::{PlanError, Policy};

/// SEBF and MADD over these ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Varys {
    ports: Ports,
    work_conserving: bool,
}

impl Varys {
    /// With both passes that hand out what MADD leaves.
    pub fn new(ports: Ports) -> Varys {
        Varys { ports, work_conserving: true }
    }

    /// MADD alone, which leaves ports idle.
    pub fn minimum_rates(ports: Ports) -> Varys {
        Varys { ports, work_conserving: false }
    }

    /// The smallest effective bottleneck first, as ranks: for those who cannot pace flows.
    ///
    /// # Errors
    /// [`PlanError`] if a size is hidden, a port does not exist, or a list is out of order.
    pub fn order(&self, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        demand.check(self.ports.len())?;
        Ok(PortPlan::in_order(demand, &by_bottleneck(&self.ports, demand)?))
    }
}

impl Policy<PortDemand, PortPlan> for Varys {
    /// # Errors
    /// [`PlanError`] if a size is hidden, a port does not exist, or a list is out of order.
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        demand.check(self.ports.len())?;
        let mut handout = Handout::new(&self.ports, demand);
        let mut blocked = vec![false; demand.coflows.len()];
        for at in by_bottleneck(&self.ports, demand)? {
            blocked[at] = !handout.minimum_rates(at, &|_| true)?;
        }
        if self.work_conserving {
            handout.divide_among(&blocked);
            handout.fill_up(&|_| true);
        }
        Ok(handout.plan())
    }
}

/// Positions of coflows by their effective bottleneck over full capacity (SEBF); ties by arrival, then task.
pub(super) fn by_bottleneck(ports: &Ports, demand: &PortDemand) -> Result<Vec<usize>, PlanError> {
    let full = Residual::of(ports);
    let mut used = Residual::zeros(ports);
    let bottlenecks = demand.coflows.iter().map(|coflow| bottleneck(coflow, &full, &mut used, &|_| true));
    // Where a port has no capacity at all, the coflow never ends.
    let bottlenecks: Vec<f64> =
        bottlenecks.map(|it| Ok(it?.unwrap_or(f64::INFINITY))).collect::<Result<_, PlanError>>()?;
    let mut order: Vec<usize> = (0..demand.coflows.len()).collect();
    order.sort_by(|&a, &b| bottlenecks[a].total_cmp(&bottlenecks[b]));
    Ok(order)
}

/// Seconds that the busiest port needs for what is left of those flows that `takes_part`, by their position in the coflow; `None`
/// if a port that it needs has nothing left. Leaves `used` as zeros.
fn bottleneck(
    coflow: &PortCoflow,
    left: &Residual,
    used: &mut (Vec<f64>, Vec<f64>),
    takes_part: &dyn Fn(usize) -> bool,
) -> Result<Option<f64>, PlanError> {
    for (at, flow) in coflow.flows.iter().enumerate().filter(|(at, _)| takes_part(*at)) {
        let bits = coflow.bits(&coflow.flows[at])?;
        used.0[usize::from(flow.source.0)] += bits;
        used.1[usize::from(flow.receiver.0)] += bits;
    }
    let (mut slowest, mut blocked) = (0.0, false);
    for (used, left) in [(&mut used.0, &left.egress), (&mut used.1, &left.ingress)] {
        for (bits, left) in used.iter_mut().zip(left).filter(|(bits, _)| **bits > 0.0) {
            blocked |= *left <= 0.0;
            slowest = f64::max(slowest, *bits / left);
            *bits = 0.0;
        }
    }
    Ok((!blocked).then_some(slowest))
}

/// Rates that are being given out.
pub(super) struct Handout<'a> {
    ports: &'a Ports,
    demand: &'a PortDemand,
    left: Residual,
    /// Bits per second, in the order of a plan.
    rates: Vec<f64>,
    /// Where each coflow's rates begin.
    starts: Vec<usize>,
    scratch: (Vec<f64>, Vec<f64>),
}

impl<'a> Handout<'a> {
    pub(super) fn new(ports: &'a Ports, demand: &'a PortDemand) -> Handout<'a> {
        let mut starts = Vec::with_capacity(demand.coflows.len());
        let mut flows = 0;
        for coflow in &demand.coflows {
            starts.push(flows);
            flows += coflow.flows.len();
        }
        let (left, scratch) = (Residual::of(ports), Residual::zeros(ports));
        Handout { ports, demand, left, rates: vec![0.0; flows], starts, scratch }
    }

    /// MADD: ends those flows of a coflow that `takes_part`, by their position in the plan, together; whether it could.
    pub(super) fn minimum_rates(
        &mut self,
        at: usize,
        takes_part: &dyn Fn(usize) -> bool,
    ) -> Result<bool, PlanError> {
        let (coflow, start) = (&self.demand.coflows[at], self.starts[at]);
        let takes_part = |flow: usize| takes_part(start + flow);
        let Some(seconds) = bottleneck(coflow, &self.left, &mut self.scratch, &takes_part)? else {
            return Ok(false);
        };
        let mut used = Residual::zeros(self.ports);
        for (place, flow) in coflow.flows.iter().enumerate().filter(|(place, _)| takes_part(*place)) {
            let rate = (coflow.bits(flow)? / seconds).min(self.left.room(flow));
            self.rates[start + place] = rate;
            used.0[usize::from(flow.source.0)] += rate;
            used.1[usize::from(flow.receiver.0)] += rate;
        }
        self.left.take_all(self.ports, &used);
        Ok(true)
    }

    /// The first pass of work conservation: coflows that MADD gave nothing divide what is left of each port by their flows there.
    fn divide_among(&mut self, blocked: &[bool]) {
        let (left, mut counts) = (self.left.clone(), Residual::zeros(self.ports));
        let of_blocked = || self.demand.flows().enumerate().filter(|(_, (coflow, _))| blocked[*coflow]);
        for (_, (_, flow)) in of_blocked().filter(|(_, (_, flow))| left.room(flow) > 0.0) {
            counts.0[usize::from(flow.source.0)] += 1.0;
            counts.1[usize::from(flow.receiver.0)] += 1.0;
        }
        let mut used = Residual::zeros(self.ports);
        for (place, (_, flow)) in of_blocked().filter(|(_, (_, flow))| left.room(flow) > 0.0) {
            let (source, receiver) = (usize::from(flow.source.0), usize::from(flow.receiver.0));
            let rate =
                (left.egress[source] / counts.0[source]).min(left.ingress[receiver] / counts.1[receiver]);
            self.rates[place] = rate;
            used.0[source] += rate;
            used.1[receiver] += rate;
        }
        self.left.take_all(self.ports, &used);
    }

    /// The second pass: flows that `take_part`, by arrival of their coflow, take all that is left of their ports.
    pub(super) fn fill_up(&mut self, takes_part: &dyn Fn(usize) -> bool) {
        for (place, (_, flow)) in self.demand.flows().enumerate() {
            let room = self.left.room(flow);
            if room > 0.0 && takes_part(place) {
                self.rates[place] += room;
                self.left.take(self.ports, flow, room);
            }
        }
    }

    pub(super) fn plan(self) -> PortPlan {
        PortPlan::Rates(self.rates.into_iter().map(FluidRate::new).collect())
    }
}
