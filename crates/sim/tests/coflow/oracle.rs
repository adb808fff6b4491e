//! The engine beside today's engine of rates, which fills all connected flows anew at each event: 1,000 random cases.

use headwater_policy::coflow::courier::{Courier, Limits};
use headwater_policy::coflow::{
    Aalo, AaloOrder, BetweenQueues, DjangoLike, Fair, Fifo, PortCoflow, PortDemand, PortFlow, PortPlan,
    Queues, Scf, Sincronia, SincroniaOffline, Varys,
};
use headwater_policy::{PlanError, Policy, Wakes};
use headwater_sim::coflow::{Clock, Sizes, run};
use headwater_sim::flow::weigh::equal;
use headwater_sim::flow::{ActiveTask, Allocation, FlowError, Share, Task, Weigher, Work, run as slow};
use headwater_units::{Bytes, Duration, FlowId, Time};

use super::cases::{Case, slow_run};

const CASES: u64 = 1_000;

/// The finish of every coflow, in nanoseconds.
fn finishes(case: &Case, policy: &dyn Policy<PortDemand, PortPlan>) -> Vec<f64> {
    let done = run(&case.ports(), &case.specs, policy, Sizes::Known, Clock::Exact).unwrap();
    done.iter().map(|done| done.finish.as_nanos() as f64).collect()
}

#[track_caller]
fn agree(seed: u64, what: &str, ours: &[f64], theirs: &[f64], part: f64) {
    for (coflow, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let near = (ours - theirs).abs() <= 2.0 + theirs * part;
        assert!(near, "seed {seed}, {what}, coflow {coflow}: {ours} instead of {theirs} ns");
    }
}

/// A case as tasks of today's engine, each with its own flows.
fn tasks(case: &Case) -> Vec<Task> {
    let task = |spec: &headwater_sim::coflow::CoflowSpec| {
        let mut flows = spec.flows.clone();
        flows.sort_by_key(|flow| (flow.source, flow.receiver));
        Task {
            task: spec.task,
            arrival: spec.arrival,
            work: Work::Own(flows.iter().map(|flow| flow.bytes).collect()),
            paths: flows.iter().map(|flow| case.path(flow)).collect(),
        }
    };
    case.specs.iter().map(task).collect()
}

/// Ranks by coflow, then by place: every flow has its own, as greedy service has it.
fn ranked(
    active: &[ActiveTask],
    key: impl Fn(&ActiveTask) -> (Bytes, Time, u64),
) -> Result<Vec<Share>, FlowError> {
    let mut order: Vec<usize> = (0..active.len()).collect();
    order.sort_by_key(|&at| key(&active[at]));
    let mut rank = 0;
    let mut shares = vec![Vec::new(); active.len()];
    for at in order {
        for _ in &active[at].flows {
            shares[at].push(Share { weight: 1.0, rank });
            rank += 1;
        }
    }
    Ok(shares.into_iter().flatten().collect())
}

fn by_today(case: &Case, rule: Allocation, weigher: &mut Weigher) -> Vec<f64> {
    let done = slow(&case.network(), &tasks(case), rule, weigher).unwrap();
    done.iter().map(|done| done.finish.as_nanos() as f64).collect()
}

#[test]
fn fair_fifo_and_smallest_first_end_every_coflow_when_todays_engine_does() {
    for seed in 0..CASES {
        let case = Case::random(seed);
        let fair = by_today(&case, Allocation::MaxMin, &mut equal);
        agree(seed, "fair", &finishes(&case, &Fair), &fair, 1e-6);
        let mut by_arrival =
            |active: &[ActiveTask]| ranked(active, |it| (Bytes::ZERO, it.task.arrival, it.task.task.0));
        let fifo = by_today(&case, Allocation::Priority, &mut by_arrival);
        agree(seed, "fifo", &finishes(&case, &Fifo), &fifo, 1e-6);
        let mut by_size =
            |active: &[ActiveTask]| ranked(active, |it| (it.remaining, it.task.arrival, it.task.task.0));
        let scf = by_today(&case, Allocation::Priority, &mut by_size);
        agree(seed, "scf", &finishes(&case, &Scf), &scf, 1e-6);
    }
}

/// A policy that does not wait for the next round of its coordinator, and sees sizes to a kilobyte: two runs of which one rounds half
/// a byte up and the other down then see the same, and decide alike where sizes are equal.
struct Coarse<P>(P);

/// Moves the boundary between two kilobytes to where few sizes of these cases lie: they are whole kilobytes or simple parts of them.
const OFFSET: u64 = 337;

impl<P: Policy<PortDemand, PortPlan>> Policy<PortDemand, PortPlan> for Coarse<P> {
    fn plan(&self, now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        let mut demand = demand.clone();
        for flow in demand.coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
            let coarse = |bytes: Bytes| Bytes::new(((bytes.get() + OFFSET) / 1_000 * 1_000).max(1));
            flow.remaining = flow.remaining.map(coarse);
        }
        self.0.plan(now, &demand)
    }

    fn wakes(&self) -> Wakes {
        Wakes { tick: None, ..self.0.wakes() }
    }

    fn next_threshold(&self, sent: Bytes) -> Option<Bytes> {
        self.0.next_threshold(sent)
    }
}

/// Any policy.
type Boxed = Box<dyn Policy<PortDemand, PortPlan>>;

/// Queues that coflows of some hundred kilobytes sink through.
fn short_queues() -> Queues {
    Queues { first: Bytes::new(400_000), factor: 3, period: Duration::from_millis(1), ..Queues::default() }
}

#[test]
fn every_policy_ends_every_coflow_when_a_slow_run_by_todays_rates_does() {
    for seed in 0..CASES {
        let case = Case::random(seed);
        let ports = case.ports();
        let aalo = Aalo { queues: short_queues(), ..Aalo::new(ports.clone()) };
        let weighted = Aalo { between: BetweenQueues::Weighted, ..aalo.clone() };
        let limits = Limits { max_num: 2, ..Limits::default() };
        let policies: [(&str, Boxed); 11] = [
            ("varys", Box::new(Coarse(Varys::new(ports.clone())))),
            ("madd", Box::new(Coarse(Varys::minimum_rates(ports.clone())))),
            ("aalo", Box::new(Coarse(aalo))),
            ("weighted aalo", Box::new(Coarse(weighted))),
            ("django-like", Box::new(Coarse(DjangoLike::new(ports.clone(), 2).unwrap()))),
            ("sincronia-offline", Box::new(Coarse(SincroniaOffline::new(&all_at_once(&case)).unwrap()))),
            ("aalo-order", Box::new(Coarse(AaloOrder { queues: short_queues() }))),
            ("sincronia", Box::new(Coarse(Sincronia))),
            ("fair+courier", Box::new(Coarse(Courier::new(Fair, limits).unwrap()))),
            ("sincronia+courier", Box::new(Coarse(Courier::new(Sincronia, limits).unwrap()))),
            ("varys+courier", Box::new(Coarse(Courier::new(Varys::new(ports), limits).unwrap()))),
        ];
        for (name, policy) in policies {
            agree(seed, name, &finishes(&case, &*policy), &slow_run(&case, &*policy), 1e-6);
        }
    }
}

/// Everything, as an offline order knows it.
fn all_at_once(case: &Case) -> PortDemand {
    let coflow = |spec: &headwater_sim::coflow::CoflowSpec| {
        let flow = |(number, flow): (u64, &headwater_sim::coflow::FlowSpec)| PortFlow {
            flow: FlowId(spec.task.0 * 100 + number),
            remaining: Some(flow.bytes),
            source: flow.source,
            receiver: flow.receiver,
        };
        let mut flows: Vec<PortFlow> = (0..).zip(&spec.flows).map(flow).collect();
        flows.sort_by_key(|flow| (flow.source, flow.receiver));
        PortCoflow { task: spec.task, arrival: spec.arrival, weight: spec.weight, sent: Bytes::ZERO, flows }
    };
    let mut coflows: Vec<PortCoflow> = case.specs.iter().map(coflow).collect();
    coflows.sort_by_key(|coflow| (coflow.arrival, coflow.task));
    PortDemand { coflows }
}

/// A policy that is told no sizes, and asked without waiting for a round.
struct Blind<P>(P);

impl<P: Policy<PortDemand, PortPlan>> Policy<PortDemand, PortPlan> for Blind<P> {
    fn plan(&self, now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        let mut demand = demand.clone();
        demand.coflows.iter_mut().flat_map(|coflow| &mut coflow.flows).for_each(|flow| flow.remaining = None);
        self.0.plan(now, &demand)
    }

    fn wakes(&self) -> Wakes {
        Wakes { tick: None, ..self.0.wakes() }
    }

    fn next_threshold(&self, sent: Bytes) -> Option<Bytes> {
        self.0.next_threshold(sent)
    }
}

#[test]
fn with_hidden_sizes_every_coflow_ends_when_a_slow_run_says() {
    for seed in 0..CASES {
        let case = Case::random(seed);
        let ports = case.ports();
        let strict = Aalo { queues: short_queues(), ..Aalo::new(ports.clone()) };
        let weighted = Aalo { between: BetweenQueues::Weighted, ..strict.clone() };
        let policies: [(&str, Boxed); 5] = [
            ("fair", Box::new(Blind(Fair))),
            ("fifo", Box::new(Blind(Fifo))),
            ("aalo", Box::new(Blind(strict))),
            ("weighted aalo", Box::new(Blind(weighted))),
            ("aalo-order", Box::new(Blind(AaloOrder { queues: short_queues() }))),
        ];
        for (name, policy) in policies {
            let hidden = run(&ports, &case.specs, &*policy, Sizes::Hidden, Clock::Exact).unwrap();
            let hidden: Vec<f64> = hidden.iter().map(|done| done.finish.as_nanos() as f64).collect();
            agree(seed, name, &hidden, &slow_run(&case, &*policy), 1e-6);
        }
    }
}
