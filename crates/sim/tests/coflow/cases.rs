//! Random small cases, and a slow run of any policy by the rates of the general engine.

use headwater_fabric::{LinkId, Path};
use headwater_policy::coflow::{Port, PortCoflow, PortDemand, PortFlow, PortPlan, Ports};
use headwater_policy::{Policy, Wakes};
use headwater_sim::coflow::{CoflowSpec, FlowSpec};
use headwater_sim::flow::rates::Rates;
use headwater_sim::flow::{Allocation, Network, Share};
use headwater_units::{BitRate, Bytes, FlowId, TaskId, Time};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// 8 Gbit/s, so that a byte takes a nanosecond.
pub(crate) const BYTE_PER_NS: u64 = 8_000_000_000;

/// A switch and what is to be sent over it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Egress and ingress of every host, in bits per second.
    pub(crate) rates: Vec<(u64, u64)>,
    pub(crate) specs: Vec<CoflowSpec>,
}

impl Case {
    /// Two to six hosts, of which some are faster than others, and up to eight coflows of up to nine flows.
    pub(crate) fn random(seed: u64) -> Case {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let hosts = rng.random_range(2..=6_u16);
        let even = rng.random_bool(0.5);
        let mut rate = || if even { BYTE_PER_NS } else { BYTE_PER_NS / 4 * rng.random_range(1..=8) };
        let rates = (0..hosts).map(|_| (rate(), rate())).collect();
        let coflows = rng.random_range(1..=8);
        let spec = |task: u64| {
            let flows = rng.random_range(1..=9);
            let flow = |_| {
                let source = rng.random_range(0..hosts);
                let receiver = (source + rng.random_range(1..hosts)) % hosts;
                // Many flows end together where sizes are few.
                let bytes =
                    100_000 * rng.random_range(1..=20) + if even { 0 } else { rng.random_range(0..999) };
                FlowSpec { source: Port(source), receiver: Port(receiver), bytes: Bytes::new(bytes) }
            };
            let flows = (0..flows).map(flow).collect();
            let arrival = Time::from_nanos(rng.random_range(0..4) * 700_001);
            CoflowSpec { task: TaskId(task), arrival, weight: 1.0, flows }
        };
        Case { rates, specs: (0..coflows).map(spec).collect() }
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports::new(self.rates.iter().map(|(out, into)| (BitRate::new(*out), BitRate::new(*into))))
    }

    /// The same as links: egress ports, then ingress ports.
    pub(crate) fn network(&self) -> Network {
        let egress = self.rates.iter().map(|(out, _)| BitRate::new(*out));
        let ingress = self.rates.iter().map(|(_, into)| BitRate::new(*into));
        Network::new(egress.chain(ingress).collect()).unwrap()
    }

    pub(crate) fn path(&self, flow: &FlowSpec) -> Path {
        let ingress = self.rates.len() as u32 + u32::from(flow.receiver.0);
        [LinkId(u32::from(flow.source.0)), LinkId(ingress)].into_iter().collect()
    }
}

/// A flow of a slow run.
#[derive(Clone, Debug)]
struct Flow {
    coflow: usize,
    spec: FlowSpec,
    /// Bytes.
    left: f64,
    /// Bytes per nanosecond.
    rate: f64,
}

/// Runs any policy that has no period, one event after the other, and rates by the general engine at each of them: the finish of
/// every coflow in nanoseconds.
pub(crate) fn slow_run(case: &Case, policy: &dyn Policy<PortDemand, PortPlan>) -> Vec<f64> {
    let wakes = policy.wakes();
    assert_eq!(wakes.tick, None);
    let mut flows: Vec<Flow> = Vec::new();
    for (coflow, spec) in case.specs.iter().enumerate() {
        let mut own = spec.flows.clone();
        own.sort_by_key(|flow| (flow.source, flow.receiver));
        flows.extend(own.into_iter().map(|spec| Flow {
            coflow,
            spec,
            left: spec.bytes.get() as f64,
            rate: 0.0,
        }));
    }
    let mut waiting: Vec<usize> = (0..case.specs.len()).collect();
    waiting.sort_by_key(|&at| std::cmp::Reverse((case.specs[at].arrival, at)));
    let (mut here, mut finish) = (Vec::new(), vec![0.0; case.specs.len()]);
    let (mut now, mut plan): (f64, Option<(Vec<usize>, PortPlan)>) = (0.0, None);
    let mut planned_sent = vec![0.0; case.specs.len()];
    loop {
        let arrival = waiting.last().map(|&at| case.specs[at].arrival.as_nanos() as f64);
        let ends = flows.iter().filter(|flow| flow.rate > 0.0).map(|flow| now + flow.left / flow.rate);
        let crossing = crossing(policy, case, &flows, &here, &planned_sent, now);
        let Some(next) = arrival.into_iter().chain(ends).chain(crossing).reduce(f64::min) else { break };
        let mut events = (false, false, crossing.is_some_and(|at| at <= next));
        let mut any_end = false;
        for flow in flows.iter_mut().filter(|flow| flow.rate > 0.0) {
            flow.left -= flow.rate * (next - now);
            if flow.left <= 0.5 * flow.rate {
                (flow.left, flow.rate, any_end) = (0.0, 0.0, true);
                finish[flow.coflow] = next;
            }
        }
        now = next;
        let over = |coflow: &usize| flows.iter().all(|flow| flow.coflow != *coflow || flow.left <= 0.0);
        let before = here.len();
        here.retain(|coflow| !over(coflow));
        events.1 = here.len() < before;
        while let Some(&at) = waiting.last()
            && case.specs[at].arrival.as_nanos() as f64 <= now + 0.5
        {
            here.push(waiting.pop().unwrap());
            events.0 = true;
        }
        here.sort_by_key(|&at| (case.specs[at].arrival, at));
        let Wakes { arrival, coflow_end, flow_end, .. } = wakes;
        if (events.0 && arrival) || (events.1 && coflow_end) || (any_end && flow_end) || events.2 {
            let (demand, order) = demand(case, &flows, &here);
            for (coflow, &at) in demand.coflows.iter().zip(&here) {
                planned_sent[at] = coflow.sent.get() as f64;
            }
            plan = Some((order, policy.plan(Time::from_nanos(now as u64), &demand).unwrap()));
        }
        if let Some((order, plan)) = &plan {
            share_out(case, &mut flows, order, plan);
        }
    }
    assert!(flows.iter().all(|flow| flow.left <= 0.0), "somebody waits forever");
    finish
}

/// When the first coflow will have sent what changes the policy's mind.
fn crossing(
    policy: &dyn Policy<PortDemand, PortPlan>,
    case: &Case,
    flows: &[Flow],
    here: &[usize],
    planned_sent: &[f64],
    now: f64,
) -> Option<f64> {
    let of = |&coflow: &usize| {
        let threshold = policy.next_threshold(Bytes::new(planned_sent[coflow] as u64))?;
        let own = || flows.iter().filter(|flow| flow.coflow == coflow);
        let speed: f64 = own().map(|flow| flow.rate).sum();
        let sent = sent(case, flows, coflow);
        (speed > 0.0).then(|| now + (threshold.get() as f64 - sent).max(0.0) / speed + 1.0)
    };
    here.iter().filter_map(of).reduce(f64::min)
}

fn sent(case: &Case, flows: &[Flow], coflow: usize) -> f64 {
    let total: u64 = case.specs[coflow].flows.iter().map(|flow| flow.bytes.get()).sum();
    total as f64 - flows.iter().filter(|flow| flow.coflow == coflow).map(|flow| flow.left).sum::<f64>()
}

/// Demand as the policy sees it, and the number of each of its flows.
fn demand(case: &Case, flows: &[Flow], here: &[usize]) -> (PortDemand, Vec<usize>) {
    let (mut coflows, mut order) = (Vec::new(), Vec::new());
    for &at in here {
        let own = flows.iter().enumerate().filter(|(_, flow)| flow.coflow == at && flow.left > 0.0);
        let mut list = Vec::new();
        for (number, flow) in own {
            order.push(number);
            list.push(PortFlow {
                flow: FlowId(number as u64),
                remaining: Some(Bytes::new((flow.left.round() as u64).max(1))),
                source: flow.spec.source,
                receiver: flow.spec.receiver,
            });
        }
        let spec = &case.specs[at];
        let sent = Bytes::new((sent(case, flows, at) + 1e-6) as u64);
        coflows.push(PortCoflow {
            task: spec.task,
            arrival: spec.arrival,
            weight: spec.weight,
            sent,
            flows: list,
        });
    }
    (PortDemand { coflows }, order)
}

/// Rates of all flows by a plan, found by the general engine.
fn share_out(case: &Case, flows: &mut [Flow], order: &[usize], plan: &PortPlan) {
    let mut rank_order: Vec<usize> = (0..order.len()).collect();
    let rule = match plan {
        PortPlan::Rates(rates) => {
            for (&number, rate) in order.iter().zip(rates) {
                let flow = &mut flows[number];
                flow.rate = if flow.left > 0.0 { rate.get() / 8e9 } else { 0.0 };
            }
            return;
        }
        PortPlan::Ranks(ranks) => {
            let key = |&at: &usize| {
                let spec = flows[order[at]].spec;
                (ranks[at], spec.source, spec.receiver, order[at])
            };
            rank_order.sort_by_key(key);
            Allocation::Priority
        }
        PortPlan::Weights(_) => Allocation::WeightedMaxMin,
    };
    let mut rates = Rates::new(&case.network(), rule);
    let mut slots = Vec::new();
    for (rank, &at) in (0..).zip(&rank_order) {
        let number = order[at];
        flows[number].rate = 0.0;
        let weight = match plan {
            PortPlan::Weights(weights) => weights[at].map(|weight| weight.get()),
            PortPlan::Ranks(ranks) => ranks[at].map(|_| 1.0),
            PortPlan::Rates(_) => None,
        };
        if let Some(weight) = weight.filter(|_| flows[number].left > 0.0) {
            let path = case.path(&flows[number].spec);
            slots.push((number, rates.add(&path, Share { weight, rank }).unwrap()));
        }
    }
    rates.update();
    for (number, slot) in slots {
        flows[number].rate = rates.rate(slot) / 8e9;
    }
}
