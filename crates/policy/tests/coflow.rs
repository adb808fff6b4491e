//! Coflow policies by hand, and by property on random demands.

use headwater_policy::coflow::{
    Aalo, AaloOrder, BetweenQueues, DjangoLike, Fair, Fifo, Port, PortCoflow, PortDemand, PortFlow, PortPlan,
    Ports, Queues, Scf, Sincronia, SincroniaOffline, Varys, bssi,
};
use headwater_policy::{PlanError, Policy, Share};
use headwater_units::{BitRate, Bytes, FlowId, FluidRate, TaskId, Time};
use proptest::prelude::*;

const GBIT: u64 = 1_000_000_000;

/// Flow ids are 100 x task + place in the task, which ascend by source and receiver here.
fn coflow(task: u64, flows: &[(u16, u16, u64)]) -> PortCoflow {
    let flow = |(place, &(source, receiver, bytes)): (u64, &(u16, u16, u64))| PortFlow {
        flow: FlowId(100 * task + place),
        remaining: Some(Bytes::new(bytes)),
        source: Port(source),
        receiver: Port(receiver),
    };
    PortCoflow {
        task: TaskId(task),
        arrival: Time::from_nanos(task),
        weight: 1.0,
        sent: Bytes::ZERO,
        flows: (0..).zip(flows).map(flow).collect(),
    }
}

fn demand(coflows: &[PortCoflow]) -> PortDemand {
    PortDemand { coflows: coflows.to_vec() }
}

fn ports() -> Ports {
    Ports::even(6, BitRate::new(GBIT))
}

fn rates(policy: &dyn Policy<PortDemand, PortPlan>, demand: &PortDemand) -> Vec<f64> {
    match policy.plan(Time::ZERO, demand).unwrap() {
        PortPlan::Rates(rates) => rates.iter().map(|rate| rate.get()).collect(),
        other => panic!("{other:?}"),
    }
}

/// The rank of each coflow, which all its flows have.
fn ranks(policy: &dyn Policy<PortDemand, PortPlan>, demand: &PortDemand) -> Vec<u32> {
    let plan = policy.plan(Time::ZERO, demand).unwrap();
    let mut ranks = vec![None; demand.coflows.len()];
    for (at, (coflow, _)) in demand.flows().enumerate() {
        let Some(Share::Rank(rank)) = plan.share(at) else { panic!("{plan:?}") };
        assert!(ranks[coflow].is_none_or(|other| other == rank.get()));
        ranks[coflow] = Some(rank.get());
    }
    ranks.into_iter().map(|rank| rank.expect("every coflow has a flow")).collect()
}

#[test]
fn madd_ends_all_flows_of_the_first_coflow_together_and_the_second_takes_what_is_left() {
    // 4 MB through host 1's ingress: the bottleneck. The second has more, so it is second.
    let first = coflow(1, &[(0, 1, 3_000_000), (2, 1, 1_000_000), (2, 3, 2_000_000)]);
    let second = coflow(2, &[(0, 3, 9_000_000)]);
    let plan = rates(&Varys::minimum_rates(ports()), &demand(&[first, second]));
    let seconds = 32e6 / 1e9;
    assert_eq!(plan[..3], [24e6 / seconds, 8e6 / seconds, 16e6 / seconds]);
    assert_eq!(plan[3], 1e9 - 24e6 / seconds);
}

#[test]
fn a_coflow_that_madd_gives_nothing_divides_what_is_left_of_each_port() {
    let first = coflow(1, &[(0, 1, 1_000_000)]);
    // Host 0 is full, so the second is blocked; its other two flows share host 3's ingress.
    let second = coflow(2, &[(0, 2, 1_000_000), (4, 3, 9_000_000), (5, 3, 9_000_000)]);
    let both = demand(&[first, second]);
    assert_eq!(rates(&Varys::minimum_rates(ports()), &both), [1e9, 0.0, 0.0, 0.0]);
    assert_eq!(rates(&Varys::new(ports()), &both), [1e9, 0.0, 0.5e9, 0.5e9]);
}

#[test]
fn varys_serves_the_smallest_bottleneck_first_however_many_bytes_there_are() {
    // 6 MB spread over three hosts take 2 MB of a port; 3 MB over one take 3.
    let wide = coflow(2, &[(0, 1, 2_000_000), (2, 3, 2_000_000), (4, 5, 2_000_000)]);
    let narrow = coflow(1, &[(0, 1, 3_000_000)]);
    let plan = rates(&Varys::minimum_rates(ports()), &demand(&[narrow.clone(), wide.clone()]));
    assert_eq!(plan, [0.0, 1e9, 1e9, 1e9]);
    assert_eq!(ranks(&Scf, &demand(&[narrow, wide])), [0, 1], "smallest first goes by bytes");
}

#[test]
fn exactly_a_limit_is_still_within_its_queue_and_none_is_left_upwards() {
    let queues = Queues::default();
    let mib = Bytes::mib(10);
    let of = |bytes: Bytes| queues.of(bytes);
    assert_eq!((of(Bytes::ZERO), of(mib), of(mib + Bytes::new(1))), (0, 0, 1));
    assert_eq!((of(mib * 10), of(mib * 10 + Bytes::new(1)), of(Bytes::new(u64::MAX))), (1, 2, 9));
    let policy = AaloOrder::default();
    assert_eq!(policy.next_threshold(Bytes::ZERO), Some(mib + Bytes::new(1)));
    assert_eq!(policy.next_threshold(mib + Bytes::new(1)), Some(mib * 10 + Bytes::new(1)));
    assert_eq!(policy.next_threshold(Bytes::new(u64::MAX)), None);
}

#[test]
fn aalo_divides_each_port_evenly_within_a_coflow_and_gives_the_rest_to_the_next() {
    // Of host 0's egress a half each; host 3's ingress has a third and a half of it is not used.
    let first = coflow(1, &[(0, 1, 1), (0, 3, 1), (2, 3, 1), (4, 3, 1)]);
    let second = coflow(2, &[(0, 5, 1), (5, 3, 1)]);
    let plan = rates(&Aalo::new(ports()), &demand(&[first, second]));
    let third = 1e9 / 3.0;
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1.0, "{plan:?}");
    [0.5e9, third, third, third].iter().zip(&plan).for_each(|(a, b)| near(*a, *b));
    near(plan[4], 0.5e9 - third);
    near(plan[5], 0.0);
}

#[test]
fn aalo_asks_for_no_size_and_puts_those_that_have_sent_much_behind() {
    let hidden = |mut coflow: PortCoflow, sent: Bytes| {
        coflow.sent = sent;
        coflow.flows.iter_mut().for_each(|flow| flow.remaining = None);
        coflow
    };
    let old = hidden(coflow(1, &[(0, 1, 1)]), Bytes::mib(11));
    let new = hidden(coflow(2, &[(0, 1, 1)]), Bytes::ZERO);
    let both = demand(&[old, new]);
    assert_eq!(rates(&Aalo::new(ports()), &both), [0.0, 1e9]);
    assert_eq!(ranks(&AaloOrder::default(), &both), [1, 0]);
    assert_eq!(ranks(&Fifo, &both), [0, 1]);
    let unknown = Err(PlanError::UnknownSize(TaskId(1)));
    assert_eq!(Varys::new(ports()).plan(Time::ZERO, &both), unknown);
    assert_eq!(Sincronia.plan(Time::ZERO, &both), unknown);
    assert_eq!(Scf.plan(Time::ZERO, &both), unknown);
    // Of weights 10 and 9.
    let weighted = Aalo { between: BetweenQueues::Weighted, ..Aalo::new(ports()) };
    let plan = rates(&weighted, &both);
    assert!(
        (plan[0] - 1e9 * 9.0 / 19.0).abs() < 1.0 && (plan[1] - 1e9 * 10.0 / 19.0).abs() < 1.0,
        "{plan:?}"
    );
}

#[test]
fn bssi_is_by_arrival_for_equals_and_smallest_first_on_one_port() {
    let equal: Vec<_> = (1..=5).map(|task| coflow(task, &[(0, 1, 700), (2, 3, 500)])).collect();
    assert_eq!(bssi(&demand(&equal)).unwrap(), [0, 1, 2, 3, 4]);
    let sizes = [500, 100, 900, 300, 700];
    let one_port: Vec<_> =
        (0..).zip(sizes).map(|(at, bytes)| coflow(at, &[(at as u16 % 5, 5, bytes)])).collect();
    assert_eq!(bssi(&demand(&one_port)).unwrap(), [1, 3, 0, 4, 2]);
}

/// Two coflows on a port each, and one on both that is smaller than their sum: last is who holds up the bottleneck the most.
#[test]
fn bssi_scales_what_others_would_have_waited() {
    let a = coflow(1, &[(0, 1, 10)]);
    let b = coflow(2, &[(2, 3, 9)]);
    let both = coflow(3, &[(0, 1, 6), (2, 3, 6)]);
    // Port 0 carries 16: of 1/10 and 1/6, the first goes last. Then port 2 carries 15; `both` has weight 1 - 6/10 left, per byte
    // 0.4 / 6, less than 1/9.
    assert_eq!(bssi(&demand(&[a, b, both])).unwrap(), [1, 2, 0]);
}

/// The order of the beginning stays, whatever has been sent since; who was not known then is last.
#[test]
fn offline_the_order_is_that_of_all_coflows_before_any_has_come() {
    let all = demand(&[coflow(1, &[(0, 1, 900)]), coflow(2, &[(0, 1, 300)]), coflow(3, &[(0, 1, 500)])]);
    let policy = SincroniaOffline::new(&all).unwrap();
    let later = demand(&[coflow(1, &[(0, 1, 1)]), coflow(3, &[(0, 1, 500)]), coflow(7, &[(0, 1, 2)])]);
    assert_eq!((ranks(&policy, &all), ranks(&policy, &later)), (vec![2, 0, 1], vec![1, 0, 2]));
    assert_eq!(ranks(&Sincronia, &later), [0, 2, 1]);
}

#[test]
fn django_like_lets_each_host_have_its_most_important_flows_only() {
    let first = coflow(1, &[(0, 1, 1_000), (0, 2, 1_000), (0, 3, 1_000)]);
    let second = coflow(2, &[(4, 1, 90_000), (4, 5, 90_000)]);
    let plan = rates(&DjangoLike::new(ports(), 2).unwrap(), &demand(&[first, second]));
    assert!(plan[0] > 0.0 && plan[1] > 0.0 && plan[3] > 0.0 && plan[4] > 0.0, "{plan:?}");
    assert_eq!(plan[2], 0.0, "the third of host 0 waits");
    assert_eq!(DjangoLike::new(ports(), 0), Err(PlanError::NoLanes));
}

#[test]
fn demands_out_of_order_and_unknown_ports_are_refused() {
    let late_first = demand(&[coflow(2, &[(0, 1, 1)]), coflow(1, &[(0, 1, 1)])]);
    let shuffled = demand(&[coflow(1, &[(2, 1, 1), (0, 1, 1)])]);
    let beyond = demand(&[coflow(1, &[(0, 6, 1)])]);
    let policies: [&dyn Policy<PortDemand, PortPlan>; 2] = [&Varys::new(ports()), &Aalo::new(ports())];
    for policy in policies {
        assert_eq!(policy.plan(Time::ZERO, &late_first), Err(PlanError::Unordered(TaskId(1))));
        assert_eq!(policy.plan(Time::ZERO, &shuffled), Err(PlanError::Unordered(TaskId(1))));
        let unknown = PlanError::UnknownPort { flow: FlowId(100), port: 6, ports: 6 };
        assert_eq!(policy.plan(Time::ZERO, &beyond), Err(unknown));
    }
}

/// Source, receiver and bytes.
type Flows = Vec<(u16, u16, u64)>;

/// Demands of up to twelve coflows on six hosts, with what each has sent.
fn any_demand() -> impl Strategy<Value = PortDemand> {
    let flow = (0..6_u16, 1..6_u16, 1..50_000_000_u64);
    let one = (prop::collection::vec(flow, 1..12), 0..2_000_000_000_u64);
    prop::collection::vec(one, 0..12).prop_map(|list| {
        let make = |(task, (mut flows, sent)): (u64, (Flows, u64))| {
            flows.iter_mut().for_each(|(source, receiver, _)| *receiver = (*source + *receiver) % 6);
            flows.sort_unstable();
            PortCoflow { sent: Bytes::new(sent), ..coflow(task, &flows) }
        };
        PortDemand { coflows: (1..).zip(list).map(make).collect() }
    })
}

/// Use of each port by a plan: egress, then ingress.
fn used(demand: &PortDemand, rates: &[f64]) -> [Vec<f64>; 2] {
    let mut used = [vec![0.0; 6], vec![0.0; 6]];
    for ((_, flow), rate) in demand.flows().zip(rates) {
        used[0][usize::from(flow.source.0)] += rate;
        used[1][usize::from(flow.receiver.0)] += rate;
    }
    used
}

proptest! {
    #[test]
    fn rates_never_exceed_a_port(demand in any_demand()) {
        let weighted = Aalo { between: BetweenQueues::Weighted, ..Aalo::new(ports()) };
        let django = DjangoLike::new(ports(), 2).unwrap();
        let policies: [&dyn Policy<PortDemand, PortPlan>; 5] =
            [&Varys::new(ports()), &Varys::minimum_rates(ports()), &Aalo::new(ports()), &weighted, &django];
        for policy in policies {
            let rates = rates(policy, &demand);
            prop_assert_eq!(rates.len(), demand.len());
            prop_assert!(rates.iter().all(|rate| *rate >= 0.0));
            let full = used(&demand, &rates).concat().into_iter().fold(0.0, f64::max);
            prop_assert!(full <= 1e9 * (1.0 + 1e-9), "{full}");
        }
    }

    /// Work conservation: no flow has room at both its ports.
    #[test]
    fn varys_leaves_no_flow_waiting_that_could_go_faster(demand in any_demand()) {
        let rates = rates(&Varys::new(ports()), &demand);
        let used = used(&demand, &rates);
        for (_, flow) in demand.flows() {
            let (out, into) = (used[0][usize::from(flow.source.0)], used[1][usize::from(flow.receiver.0)]);
            prop_assert!(out.max(into) >= 1e9 * (1.0 - 1e-8), "{flow:?}: {out}, {into}");
        }
    }

    /// No starvation where it is promised: of every flow under fair sharing, of the first coflow of every queue where queues have
    /// weights, and of the first coflow of all where they have not.
    #[test]
    fn who_is_promised_something_gets_it(demand in any_demand()) {
        let fair = Fair.plan(Time::ZERO, &demand).unwrap();
        prop_assert!((0..demand.len()).all(|at| fair.share(at).is_some()));
        let queue = |at: usize| Queues::default().of(demand.coflows[at].sent);
        let is_first = |at: usize| (0..at).all(|before| queue(before) != queue(at));
        let weighted = rates(&Aalo { between: BetweenQueues::Weighted, ..Aalo::new(ports()) }, &demand);
        let strict = rates(&Aalo::new(ports()), &demand);
        let order = ranks(&AaloOrder::default(), &demand);
        for ((coflow, _), (weighted, strict)) in demand.flows().zip(weighted.iter().zip(&strict)) {
            prop_assert!(!is_first(coflow) || *weighted > 0.0);
            prop_assert!(order[coflow] > 0 || *strict > 0.0);
        }
    }

    #[test]
    fn aalo_never_raises_a_coflow_that_sends_more(sent in 0..u64::MAX / 2, more in 0..u64::MAX / 2) {
        let queues = Queues::default();
        prop_assert!(queues.of(Bytes::new(sent)) <= queues.of(Bytes::new(sent + more)));
    }

    #[test]
    fn weights_eight_times_as_large_give_the_same_order(demand in any_demand(), weights in prop::collection::vec(1..9_u32, 12)) {
        let weighed = |times: f64| {
            let mut demand = demand.clone();
            demand.coflows.iter_mut().zip(&weights).for_each(|(coflow, weight)| coflow.weight = f64::from(*weight) * times);
            bssi(&demand).unwrap()
        };
        prop_assert_eq!(weighed(1.0), weighed(8.0));
    }

    /// Ranks are those of coflows, each once, and the same for other names in the same order.
    #[test]
    fn orders_are_permutations_and_ids_are_only_names(demand in any_demand()) {
        let mut renamed = demand.clone();
        for coflow in &mut renamed.coflows {
            coflow.task = TaskId(coflow.task.0 * 31 + 7);
            coflow.flows.iter_mut().for_each(|flow| flow.flow = FlowId(flow.flow.0 * 31 + 7));
        }
        let policies: [&dyn Policy<PortDemand, PortPlan>; 4] = [&Fifo, &Scf, &AaloOrder::default(), &Sincronia];
        for policy in policies {
            let mut order = ranks(policy, &demand);
            prop_assert_eq!(&order, &ranks(policy, &renamed));
            order.sort_unstable();
            prop_assert_eq!(order, (0..demand.coflows.len() as u32).collect::<Vec<_>>());
        }
        prop_assert_eq!(rates(&Varys::new(ports()), &demand), rates(&Varys::new(ports()), &renamed));
        prop_assert_eq!(rates(&Aalo::new(ports()), &demand), rates(&Aalo::new(ports()), &renamed));
        prop_assert_eq!(Fair.plan(Time::ZERO, &demand).unwrap().len(), demand.len());
    }
}

#[test]
fn a_flow_below_the_least_rate_waits() {
    let policy = Aalo { least_rate: FluidRate::new(0.4e9), ..Aalo::new(ports()) };
    let plan =
        rates(&policy, &demand(&[coflow(1, &[(0, 1, 1), (0, 2, 1), (0, 3, 1)]), coflow(2, &[(0, 4, 1)])]));
    assert_eq!(plan, [0.0, 0.0, 0.0, 1e9]);
}
