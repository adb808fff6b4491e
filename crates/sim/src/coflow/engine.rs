//! Coflows over time: arrivals, ends and plans in order.
//!
//! A policy is asked at the events that it names ([`Wakes`](headwater_policy::Wakes)). Its demand is kept from plan to plan, and what
//! has changed is brought up to date before it is asked.

use headwater_policy::coflow::{PortCoflow, PortDemand, PortFlow, PortPlan, Ports};
use headwater_policy::{Policy, Wakes};
use headwater_units::{Bytes, FlowId, Time};

use super::ranked::Ranked;
use super::rated::Rated;
use super::shared::Shared;
use super::state::{FlowNumber, Flows, MOMENT, next_tick};
use super::{Clock, CoflowError, CoflowSpec, Done, Sizes, check};

/// Runs `coflows`, in any order, until the last byte of the last; what became of each, in the order given.
///
/// # Errors
/// [`CoflowError`] if a coflow cannot be run on these ports, or the policy fails or lets a flow wait forever.
pub fn run(
    ports: &Ports,
    coflows: &[CoflowSpec],
    policy: &dyn Policy<PortDemand, PortPlan>,
    sizes: Sizes,
    clock: Clock,
) -> Result<Vec<Done>, CoflowError> {
    check(ports, coflows, clock)?;
    let mut run = Run::new(ports, coflows, policy, sizes, clock);
    while let Some(moment) = run.next_moment()? {
        run.step(moment)?;
    }
    Ok(run.done())
}

struct Run<'a> {
    specs: &'a [CoflowSpec],
    policy: &'a dyn Policy<PortDemand, PortPlan>,
    wakes: Wakes,
    sizes: Sizes,
    now: f64,
    flows: Flows,
    coflows: Vec<Progress>,
    /// Positions of coflows that are not admitted yet; the next one last.
    waiting: Vec<usize>,
    demand: PortDemand,
    /// The position of each coflow of the demand among all.
    of_demand: Vec<usize>,
    mover: Mover,
    /// When the policy wants to be asked because of ends or thresholds.
    wake: f64,
}

/// How far a coflow is.
struct Progress {
    start: Time,
    /// Its flows' numbers.
    flows: std::ops::Range<FlowNumber>,
    /// How many have not ended.
    open: usize,
    /// When the last flow ended.
    finish: f64,
    /// Whether a flow has ended since the last plan.
    changed: bool,
}

/// Rule by which flows move.
enum Mover {
    Nobody,
    Rated(Rated),
    Ranked(Ranked),
    Shared(Shared),
}

impl Mover {
    /// When rates change by themselves.
    fn next_change(&self) -> f64 {
        match self {
            Mover::Nobody => f64::INFINITY,
            // Nothing changes, but the engine must see a coflow's end.
            Mover::Rated(rated) => rated.coflow_end(),
            Mover::Ranked(ranked) => ranked.first_end(),
            Mover::Shared(shared) => shared.first_end(),
        }
    }

    fn first_end(&self) -> f64 {
        match self {
            Mover::Nobody => f64::INFINITY,
            Mover::Rated(rated) => rated.first_end(),
            Mover::Ranked(ranked) => ranked.first_end(),
            Mover::Shared(shared) => shared.first_end(),
        }
    }

    fn advance(&mut self, now: f64, flows: &mut Flows) {
        match self {
            Mover::Nobody => {}
            Mover::Rated(rated) => rated.advance(now, flows),
            Mover::Ranked(ranked) => ranked.advance(now, flows),
            Mover::Shared(shared) => shared.advance(now, flows),
        }
    }
}

impl<'a> Run<'a> {
    fn new(
        ports: &Ports,
        specs: &'a [CoflowSpec],
        policy: &'a dyn Policy<PortDemand, PortPlan>,
        sizes: Sizes,
        clock: Clock,
    ) -> Run<'a> {
        let (flows, starts) = Flows::of(ports, specs, clock);
        let progress = |(spec, range): (&CoflowSpec, &[FlowNumber])| Progress {
            start: flows.grid.admission(spec.arrival),
            flows: range[0]..range[1],
            open: (range[1] - range[0]) as usize,
            finish: 0.0,
            changed: false,
        };
        let coflows: Vec<Progress> = specs.iter().zip(starts.windows(2)).map(progress).collect();
        let mut waiting: Vec<usize> = (0..specs.len()).collect();
        waiting.sort_by_key(|&at| std::cmp::Reverse((coflows[at].start, specs[at].arrival, specs[at].task)));
        Run {
            specs,
            policy,
            wakes: policy.wakes(),
            sizes,
            now: 0.0,
            flows,
            coflows,
            waiting,
            demand: PortDemand::default(),
            of_demand: Vec::new(),
            mover: Mover::Nobody,
            wake: f64::INFINITY,
        }
    }

    /// When something happens next; `None` once all is done.
    fn next_moment(&self) -> Result<Option<f64>, CoflowError> {
        let arrival = self.waiting.last().map(|&at| self.coflows[at].start.as_nanos() as f64);
        let next = arrival.unwrap_or(f64::INFINITY).min(self.mover.next_change()).min(self.wake);
        if next < f64::INFINITY {
            return Ok(Some(next.max(self.now)));
        }
        match self.of_demand.iter().map(|&at| self.coflows[at].open).sum() {
            0 => Ok(None),
            flows => Err(CoflowError::Stuck { flows }),
        }
    }

    fn step(&mut self, moment: f64) -> Result<(), CoflowError> {
        self.now = moment;
        self.mover.advance(moment, &mut self.flows);
        let coflow_ended = self.note_ends();
        let arrived = self.admit();
        let due = self.wake <= moment + MOMENT;
        if (arrived && self.wakes.arrival) || (coflow_ended && self.wakes.coflow_end) || due {
            self.plan()?;
        }
        self.wake = self.next_wake();
        Ok(())
    }

    /// Whether a coflow has ended.
    fn note_ends(&mut self) -> bool {
        let mut ended = false;
        for (flow, at) in self.flows.ended.drain(..) {
            let coflow = &mut self.coflows[self.flows.coflow[flow as usize] as usize];
            coflow.open -= 1;
            coflow.finish = coflow.finish.max(at);
            coflow.changed = true;
            ended |= coflow.open == 0;
        }
        ended
    }

    /// Lets in the coflows that arrive now; whether any of them has something to send.
    fn admit(&mut self) -> bool {
        let mut admitted = false;
        while let Some(&at) = self.waiting.last()
            && self.coflows[at].start.as_nanos() as f64 <= self.now + MOMENT
        {
            self.waiting.pop();
            let (spec, coflow) = (&self.specs[at], &mut self.coflows[at]);
            coflow.finish = coflow.start.as_nanos() as f64;
            if coflow.open == 0 {
                continue;
            }
            admitted = true;
            let flows = coflow.flows.clone().map(|flow| PortFlow {
                flow: FlowId(u64::from(flow)),
                remaining: None,
                source: self.flows.source[flow as usize],
                receiver: self.flows.receiver[flow as usize],
            });
            let coflow = PortCoflow {
                task: spec.task,
                arrival: spec.arrival,
                weight: spec.weight,
                sent: Bytes::ZERO,
                flows: flows.collect(),
            };
            // With epochs, arrivals of one admission are in order already.
            self.demand.coflows.push(coflow);
            self.of_demand.push(at);
        }
        admitted
    }

    /// Asks the policy.
    fn plan(&mut self) -> Result<(), CoflowError> {
        if let Mover::Shared(shared) = &self.mover {
            shared.settle(&mut self.flows);
        }
        self.update_demand();
        let plan = self.policy.plan(Time::from_nanos(self.now as u64), &self.demand)?;
        let flows = self.demand.len();
        if plan.len() != flows {
            return Err(CoflowError::Shares { shares: plan.len(), flows });
        }
        for &at in &self.of_demand {
            self.flows.speed[at] = 0.0;
        }
        let numbers = self.demand.flows().map(|(_, flow)| flow.flow.0 as FlowNumber);
        let all = &mut self.flows;
        self.mover = match plan {
            PortPlan::Rates(rates) => Mover::Rated(Rated::new(self.now, all, numbers.zip(rates))),
            PortPlan::Ranks(ranks) => {
                let shares = numbers.zip(ranks).filter_map(|(flow, rank)| Some((flow, rank?)));
                Mover::Ranked(Ranked::new(self.now, all, shares))
            }
            PortPlan::Weights(weights) => {
                let shares = numbers.zip(weights).filter_map(|(flow, weight)| Some((flow, weight?)));
                Mover::Shared(Shared::new(self.now, all, shares))
            }
        };
        Ok(())
    }

    /// Takes out what has ended, and says what is left of the rest.
    fn update_demand(&mut self) {
        let coflows = &self.coflows;
        let mut open = self.of_demand.iter().map(|&at| coflows[at].open > 0);
        self.demand.coflows.retain(|_| open.next().unwrap_or(false));
        self.of_demand.retain(|&at| coflows[at].open > 0);
        for (coflow, &at) in self.demand.coflows.iter_mut().zip(&self.of_demand) {
            let left = |flow: &PortFlow| self.flows.left[flow.flow.0 as usize];
            if std::mem::take(&mut self.coflows[at].changed) {
                coflow.flows.retain(|flow| left(flow) > 0.0);
            }
            coflow.sent = Bytes::new((self.flows.sent[at] / 8.0) as u64);
            if self.sizes == Sizes::Known {
                for flow in &mut coflow.flows {
                    flow.remaining = Some(Bytes::new(((left(flow) / 8.0).round() as u64).max(1)));
                }
            }
        }
    }

    /// When an end or a threshold wakes the policy.
    fn next_wake(&self) -> f64 {
        let ends = self.demand.coflows.is_empty() || !self.wakes.flow_end;
        let mut wake = if ends { f64::INFINITY } else { self.mover.first_end() };
        // Flows that have ended already, since the last plan, count too.
        if self.wakes.flow_end && self.of_demand.iter().any(|&at| self.coflows[at].changed) {
            wake = self.now;
        }
        if self.policy.next_threshold(Bytes::ZERO).is_some() {
            for (coflow, &at) in self.demand.coflows.iter().zip(&self.of_demand) {
                let Some(threshold) = self.policy.next_threshold(coflow.sent) else { continue };
                if self.flows.speed[at] > 0.0 {
                    let bits = (threshold.get() as f64 * 8.0 - self.flows.sent[at]).max(0.0);
                    wake = wake.min(self.now + bits / self.flows.speed[at] + 2.0 * MOMENT);
                }
            }
        }
        if wake == f64::INFINITY {
            return wake;
        }
        // Rates hold for whole steps.
        self.flows.grid.end(self.wakes.tick.map_or(wake, |period| next_tick(wake, period)))
    }

    fn done(self) -> Vec<Done> {
        let done = |(coflow, spec): (Progress, &CoflowSpec)| Done {
            task: spec.task,
            start: coflow.start,
            finish: Time::from_nanos(coflow.finish.round() as u64),
        };
        self.coflows.into_iter().zip(self.specs).map(done).collect()
    }
}
