//! Properties of every run: names and ports are only names, no flow is left out, time is not lost where there is work.

use headwater_policy::Policy;
use headwater_policy::coflow::{
    Aalo, AaloOrder, BetweenQueues, DjangoLike, Fair, Fifo, Port, PortDemand, PortPlan, Scf, Sincronia, Varys,
};
use headwater_sim::coflow::{Clock, Sizes, run};
use headwater_units::{Bytes, Duration, TaskId};

use super::cases::Case;

/// Any policy.
type Boxed = Box<dyn Policy<PortDemand, PortPlan>>;

fn seconds(case: &Case, policy: &dyn Policy<PortDemand, PortPlan>) -> Vec<f64> {
    let done = run(&case.ports(), &case.specs, policy, Sizes::Known, Clock::Exact).unwrap();
    done.iter().map(|done| done.completion_time().as_nanos() as f64).collect()
}

/// Every policy on a case's ports.
fn policies(case: &Case) -> Vec<Boxed> {
    let django = DjangoLike::new(case.ports(), 2).unwrap();
    vec![
        Box::new(Fair),
        Box::new(Fifo),
        Box::new(Scf),
        Box::new(Varys::new(case.ports())),
        Box::new(AaloOrder::default()),
        Box::new(Sincronia),
        Box::new(django),
    ]
}

#[test]
fn other_names_in_the_same_order_and_another_order_of_lists_change_nothing() {
    for seed in 0..200 {
        let case = Case::random(seed);
        let mut renamed = case.clone();
        for spec in &mut renamed.specs {
            spec.task = TaskId(spec.task.0 * 1_000 + 17);
            spec.flows.sort_by_key(|flow| (flow.source, flow.receiver));
        }
        renamed.specs.reverse();
        let mut sorted = case.clone();
        sorted.specs.iter_mut().for_each(|spec| spec.flows.sort_by_key(|flow| (flow.source, flow.receiver)));
        for policy in policies(&case) {
            let mut other = seconds(&renamed, &*policy);
            other.reverse();
            assert_eq!(other, seconds(&sorted, &*policy), "seed {seed}");
        }
    }
}

/// The same case with other numbers for its hosts; none where the map is not one to one.
fn turned(case: &Case) -> Option<Case> {
    let hosts = case.rates.len() as u16;
    let turned = |Port(port): Port| Port((port * 5 + 1) % hosts);
    let mut other = case.clone();
    for (host, rates) in case.rates.iter().enumerate() {
        other.rates[usize::from(turned(Port(host as u16)).0)] = *rates;
    }
    for flow in other.specs.iter_mut().flat_map(|spec| &mut spec.flows) {
        (flow.source, flow.receiver) = (turned(flow.source), turned(flow.receiver));
    }
    (hosts != 5).then_some(other)
}

#[track_caller]
fn same(what: &str, ours: &[f64], theirs: &[f64]) {
    let near = ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= 2.0 + b * 1e-4);
    assert!(near, "{what}: {ours:?} and {theirs:?}");
}

/// Max-min, even parts and minimum rates are symmetric in the ports; the passes of work conservation go by their numbers.
#[test]
fn other_numbers_of_hosts_change_nothing_where_no_order_of_ports_decides() {
    for seed in 0..200 {
        let case = Case::random(seed);
        let Some(other) = turned(&case) else { continue };
        let policies = |case: &Case| -> Vec<(&str, Boxed)> {
            let weighted = Aalo { between: BetweenQueues::Weighted, ..Aalo::new(case.ports()) };
            vec![
                ("fair", Box::new(Fair)),
                ("madd", Box::new(Varys::minimum_rates(case.ports()))),
                ("aalo", Box::new(Aalo::new(case.ports()))),
                ("weighted aalo", Box::new(weighted)),
            ]
        };
        for ((name, ours), (_, theirs)) in policies(&case).into_iter().zip(policies(&other)) {
            let what = format!("seed {seed}, {name}");
            same(&what, &seconds(&case, &*ours), &seconds(&other, &*theirs));
        }
    }
}

/// Greedy service goes by the ports' numbers within a rank only: with one flow in each rank they decide nothing.
#[test]
fn other_numbers_of_hosts_change_nothing_where_each_rank_has_one_flow() {
    for seed in 0..200 {
        let mut case = Case::random(seed);
        for (spec, odd) in case.specs.iter_mut().zip(1..) {
            spec.flows.truncate(1);
            // No two of a size: between equal ports Sincronia takes the lower one.
            spec.flows[0].bytes = Bytes::new(spec.flows[0].bytes.get() + 1_009 * odd);
        }
        let Some(other) = turned(&case) else { continue };
        let policies: [(&str, Boxed); 4] = [
            ("fifo", Box::new(Fifo)),
            ("scf", Box::new(Scf)),
            ("aalo-order", Box::new(AaloOrder::default())),
            ("sincronia", Box::new(Sincronia)),
        ];
        for (name, policy) in policies {
            same(&format!("seed {seed}, {name}"), &seconds(&case, &*policy), &seconds(&other, &*policy));
        }
    }
}

/// The bytes that the busiest port must carry, over its rate, bound the last finish from below; serving one after the other bounds it
/// from above.
#[test]
fn runs_end_no_sooner_than_the_busiest_port_and_no_later_than_one_flow_after_the_other() {
    for seed in 0..300 {
        let case = Case::random(seed);
        let hosts = case.rates.len();
        let (mut egress, mut ingress, mut serial) = (vec![0.0; hosts], vec![0.0; hosts], 0.0);
        for flow in case.specs.iter().flat_map(|spec| &spec.flows) {
            let (source, receiver) = (usize::from(flow.source.0), usize::from(flow.receiver.0));
            let bits = flow.bytes.get() as f64 * 8.0;
            let (out, into) = (case.rates[source].0 as f64, case.rates[receiver].1 as f64);
            egress[source] += bits / out * 1e9;
            ingress[receiver] += bits / into * 1e9;
            serial += bits / out.min(into) * 1e9;
        }
        let least = egress.iter().chain(&ingress).copied().fold(0.0, f64::max);
        let last_arrival = case.specs.iter().map(|spec| spec.arrival.as_nanos()).max().unwrap() as f64;
        for policy in policies(&case) {
            let done = run(&case.ports(), &case.specs, &*policy, Sizes::Known, Clock::Exact).unwrap();
            let last = done.iter().map(|done| done.finish.as_nanos()).max().unwrap() as f64;
            // The coordinator of the stand-in for Django may be late by a round at each end.
            let late = policy.wakes().tick.map_or(0.0, |tick| tick.as_nanos() as f64 * 80.0);
            assert!(last >= least - 2.0 && last <= last_arrival + serial + late + 2.0, "seed {seed}: {last}");
        }
    }
}

#[test]
fn the_same_run_twice_gives_the_same_nanoseconds() {
    for seed in 0..50 {
        let case = Case::random(seed);
        for policy in policies(&case) {
            for clock in [
                Clock::Exact,
                Clock::Epochs { epoch: Duration::from_micros(100), step: Duration::from_micros(1) },
            ] {
                let once = || run(&case.ports(), &case.specs, &*policy, Sizes::Known, clock).unwrap();
                assert_eq!(once(), once());
            }
        }
    }
}
