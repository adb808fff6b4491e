//! Courier's three algorithms: beside the published fold, by hand, and by property.

use headwater_policy::coflow::courier::{
    Address, Courier, Importance, Lane, Limits, Schedule, Scheduled, Signature, Unified, merge,
    select_and_split,
};
use headwater_policy::coflow::{Fair, Fifo, Port, PortCoflow, PortDemand, PortFlow, PortPlan, Ports, Varys};
use headwater_policy::{PlanError, Policy};
use headwater_units::{BitRate, Bytes, FlowId, FluidRate, PathId, Rank, TaskId, Theta, Time};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn flow(id: u64, source: u16, receiver: u16, bytes: u64) -> Scheduled {
    let address = Address { source: Port(source), receiver: Port(receiver), path: None };
    Scheduled { flow: FlowId(id), address, size: Bytes::new(bytes) }
}

fn rate(rate: f64) -> FluidRate {
    FluidRate::new(rate)
}

/// C-conc: of n coflows with m mappers and r reducers each on four hosts, one flow per pair of hosts is left.
#[test]
fn flows_of_many_coflows_become_one_per_pair_of_hosts() {
    for (coflows, mappers, reducers) in [(1, 2, 2), (3, 4, 5), (7, 6, 8)] {
        let mut list = Vec::new();
        for number in 0..coflows * mappers * reducers {
            // Mappers on hosts 0 and 1, reducers on hosts 2 and 3.
            let (mapper, reducer) = (number / reducers % mappers, number % reducers);
            list.push(flow(number, (mapper % 2) as u16, 2 + (reducer % 2) as u16, 10));
        }
        let unified = merge(&Schedule::Even(list));
        assert_eq!(unified.len(), 4);
        assert_eq!(
            unified.iter().map(|flow| flow.members.len() as u64).sum::<u64>(),
            coflows * mappers * reducers
        );
    }
}

#[test]
fn directions_and_pinned_paths_are_kept_apart() {
    let pinned = |id: u64, path: Option<u32>| {
        let mut flow = flow(id, 0, 1, 10);
        flow.address.path = path.map(PathId);
        flow
    };
    let list =
        vec![pinned(1, None), pinned(2, Some(1)), pinned(3, Some(2)), pinned(4, Some(1)), flow(5, 1, 0, 10)];
    let unified = merge(&Schedule::Even(list));
    let ids = |flow: &Unified| flow.members.iter().map(|(id, _)| id.0).collect::<Vec<_>>();
    assert_eq!(unified.iter().map(ids).collect::<Vec<_>>(), [vec![1], vec![2, 4], vec![3], vec![5]]);
}

#[test]
fn rates_and_sizes_add_up_and_members_share_by_rate() {
    let list =
        vec![(flow(1, 0, 1, 30), rate(3.0)), (flow(2, 0, 1, 10), rate(1.0)), (flow(3, 0, 1, 9), rate(0.0))];
    let unified = merge(&Schedule::Rates(list));
    assert_eq!((unified[0].size, unified[0].importance), (Bytes::new(49), Importance::Rate(rate(4.0))));
    assert_eq!(unified[0].parts(), [0.75, 0.25, 0.0]);
}

#[test]
fn only_the_first_rank_of_a_pair_travels_and_the_next_comes_forward_when_it_is_over() {
    let both = vec![
        (flow(1, 0, 1, 30), Rank::new(4)),
        (flow(2, 0, 1, 10), Rank::new(2)),
        (flow(3, 0, 1, 5), Rank::new(2)),
    ];
    let unified = merge(&Schedule::Ranks(both.clone()));
    assert_eq!((unified[0].size, unified[0].importance), (Bytes::new(15), Importance::Rank(Rank::new(2))));
    assert_eq!(unified[0].parts(), [0.5, 0.5]);
    let limits = Limits::default();
    let after = Schedule::Ranks(both[..1].to_vec());
    assert_ne!(Signature::of(&Schedule::Ranks(both), &limits), Signature::of(&after, &limits));
    assert_eq!(merge(&after)[0].importance, Importance::Rank(Rank::new(4)));
}

#[test]
fn nothing_left_and_nothing_to_another_host_is_no_flow() {
    assert_eq!(merge(&Schedule::Even(vec![flow(1, 0, 0, 10), flow(2, 0, 1, 0)])), []);
    assert_eq!(select_and_split(&[], &Limits::default()), Ok(vec![]));
}

fn lanes(list: Vec<(Scheduled, FluidRate)>, limits: &Limits) -> Vec<Lane> {
    select_and_split(&merge(&Schedule::Rates(list)), limits).unwrap()
}

#[test]
fn the_largest_rates_are_started_first_and_zero_rates_never() {
    let list = vec![
        (flow(1, 0, 9, MIB), rate(1.0)),
        (flow(2, 1, 9, MIB), rate(3.0)),
        (flow(3, 2, 9, MIB), rate(2.0)),
        (flow(4, 3, 9, MIB), rate(0.0)),
    ];
    let limits = Limits { max_num: 2, ..Limits::default() };
    let chosen: Vec<usize> = lanes(list.clone(), &limits).iter().map(|lane| lane.unified).collect();
    assert_eq!(chosen, [1, 2]);
    assert_eq!(lanes(list, &Limits { max_num: 20, ..limits }).len(), 3);
}

/// By rate a split flow loses its place, so splits spread; by rank all further lanes go to the first.
#[test]
fn splits_spread_by_rate_and_gather_by_rank() {
    let limits = Limits { max_num: 4, ..Limits::default() };
    let large = 64 * MIB;
    let by_rate = lanes(vec![(flow(1, 0, 9, large), rate(3.0)), (flow(2, 1, 9, large), rate(2.0))], &limits);
    assert_eq!(by_rate.iter().map(|lane| lane.unified).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert!(by_rate[0].importance == Importance::Rate(rate(1.5)) && by_rate[0].size == Bytes::new(large / 2));
    let ranked = vec![(flow(1, 0, 9, large), Rank::new(1)), (flow(2, 1, 9, large), Rank::new(0))];
    let by_rank = select_and_split(&merge(&Schedule::Ranks(ranked)), &limits).unwrap();
    assert_eq!(by_rank.iter().map(|lane| lane.unified).collect::<Vec<_>>(), [0, 1, 1, 1]);
}

#[test]
fn small_lanes_are_not_split_and_a_pair_has_no_more_than_its_paths() {
    let limits = Limits { max_num: 50, ..Limits::default() };
    assert_eq!(lanes(vec![(flow(1, 0, 9, MIB), rate(1.0))], &limits).len(), 1);
    assert_eq!(lanes(vec![(flow(1, 0, 9, 4 * MIB), rate(1.0))], &limits).len(), 4);
    let pinned = Limits { max_per_pair: Some(3), ..limits };
    assert_eq!(lanes(vec![(flow(1, 0, 9, 400 * MIB), rate(1.0))], &pinned).len(), 3);
}

#[test]
fn limits_of_zero_are_refused_with_a_remedy() {
    let limits = |max_num, min_size, paths| Limits {
        max_num,
        min_size: Bytes::new(min_size),
        max_per_pair: paths,
        ..Limits::default()
    };
    for (limits, expected) in [
        (limits(0, 1, None), PlanError::NoLanes),
        (limits(1, 1, Some(0)), PlanError::NoLanes),
        (limits(1, 0, None), PlanError::NoMinSize),
    ] {
        assert_eq!(select_and_split(&[], &limits), Err(expected));
        assert_eq!(Courier::new(Fair, limits), Err(expected));
    }
    assert!(PlanError::NoLanes.to_string().contains("set it to 1 or more"));
}

#[test]
fn what_moves_bytes_but_changes_no_decision_keeps_the_signature() {
    let limits = Limits::default();
    let schedule = |bytes: u64, speed: f64| Schedule::Rates(vec![(flow(1, 0, 9, bytes), rate(speed))]);
    let of = |schedule: &Schedule| Signature::of(schedule, &limits);
    // In the middle of a step of 1 %.
    let speed = 1.01_f64.powi(1_000);
    let before = of(&schedule(9 * MIB, speed));
    assert_eq!(before, of(&schedule(8 * MIB, speed * 1.004)), "sizes shrink and rates tremble all the time");
    assert_ne!(before, of(&schedule(9 * MIB, speed * 1.02)));
    assert_ne!(before, of(&schedule(MIB, speed)), "it can no longer be split");
    let two = vec![(flow(1, 0, 9, 5), Rank::new(0)), (flow(2, 0, 9, 5), Rank::new(1))];
    let reversed = two.iter().rev().copied().collect();
    assert_eq!(of(&Schedule::Ranks(two)), of(&Schedule::Ranks(reversed)));
}

fn demand(flows: &[(u16, u16, u64)]) -> PortDemand {
    let coflow = |(task, &(source, receiver, bytes)): (u64, &(u16, u16, u64))| PortCoflow {
        task: TaskId(task),
        arrival: Time::from_nanos(task),
        weight: 1.0,
        sent: Bytes::ZERO,
        flows: vec![PortFlow {
            flow: FlowId(task),
            remaining: Some(Bytes::new(bytes)),
            source: Port(source),
            receiver: Port(receiver),
        }],
    };
    PortDemand { coflows: (0..).zip(flows).map(coflow).collect() }
}

#[test]
fn around_a_policy_the_flows_without_a_lane_wait() {
    let limits = Limits { max_num: 1, min_size: Bytes::mib(1 << 30), ..Limits::default() };
    let three = demand(&[(0, 9, 10), (1, 9, 20), (0, 9, 30)]);
    let plan = |policy: &dyn Policy<PortDemand, PortPlan>| policy.plan(Time::ZERO, &three).unwrap();
    // The pair from 0 has the most bytes, and shares its one lane.
    let half = Some(Theta::new(0.5));
    assert_eq!(plan(&Courier::new(Fair, limits).unwrap()), PortPlan::Weights(vec![half, None, half]));
    assert_eq!(
        plan(&Courier::new(Fifo, limits).unwrap()),
        PortPlan::Ranks(vec![Some(Rank::new(0)), None, None])
    );
    let varys = Varys::new(Ports::even(10, BitRate::new(1_000)));
    let PortPlan::Rates(rates) = plan(&Courier::new(varys, limits).unwrap()) else {
        panic!("rates stay rates")
    };
    assert_eq!(rates, [rate(1_000.0), rate(0.0), rate(0.0)]);
}

fn any_schedule() -> impl Strategy<Value = Vec<(Scheduled, u32)>> {
    let one = (0..4_u16, 0..4_u16, 0..6 * MIB, 0..5_u32);
    prop::collection::vec(one, 0..40).prop_map(|list| {
        let make = |(id, (source, receiver, bytes, rank)): (u64, (u16, u16, u64, u32))| {
            (flow(id, source, receiver, bytes), rank)
        };
        (0..).zip(list).map(make).collect()
    })
}

/// Algorithm 2 as it is printed: one flow after the other into what there is of its address. The sums of rates are whole here.
fn published_fold(list: &[(Scheduled, u32)], by_rank: bool) -> Vec<(Address, u64, u32)> {
    let mut unified: Vec<(Address, u64, u32)> = Vec::new();
    for (flow, own) in list
        .iter()
        .filter(|(flow, _)| flow.size > Bytes::ZERO && flow.address.source != flow.address.receiver)
    {
        let size = flow.size.get();
        match unified.iter_mut().find(|(address, ..)| *address == flow.address) {
            None => unified.push((flow.address, size, *own)),
            Some(there) if !by_rank => (there.1, there.2) = (there.1 + size, there.2 + own),
            Some(there) if there.2 == *own => there.1 += size,
            Some(there) if *own < there.2 => (there.1, there.2) = (size, *own),
            Some(_) => {}
        }
    }
    unified.sort();
    unified
}

fn plain(unified: &[Unified]) -> Vec<(Address, u64, u32)> {
    let number = |importance: Importance| match importance {
        Importance::Rate(rate) => rate.get() as u32,
        Importance::Rank(rank) => rank.get(),
        Importance::Even => 0,
    };
    unified.iter().map(|flow| (flow.address, flow.size.get(), number(flow.importance))).collect()
}

proptest! {
    #[test]
    fn merging_is_the_published_fold_whatever_the_order_of_the_list(
        (list, shuffled) in any_schedule().prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle()))
    ) {
        let rates = |list: &[(Scheduled, u32)]| Schedule::Rates(list.iter().map(|(flow, own)| (*flow, rate(f64::from(*own)))).collect());
        let ranks = |list: &[(Scheduled, u32)]| Schedule::Ranks(list.iter().map(|(flow, own)| (*flow, Rank::new(*own))).collect());
        prop_assert_eq!(plain(&merge(&rates(&list))), published_fold(&shuffled, false));
        prop_assert_eq!(plain(&merge(&ranks(&list))), published_fold(&shuffled, true));
        prop_assert_eq!(merge(&ranks(&list)), merge(&ranks(&shuffled)));
        let limits = Limits::default();
        prop_assert_eq!(Signature::of(&rates(&list), &limits), Signature::of(&rates(&shuffled), &limits));
    }

    #[test]
    fn lanes_keep_all_limits_and_carry_what_was_selected(
        list in any_schedule(),
        max_num in 1..20_u32,
        paths in prop::option::of(1..5_u32),
        min_size in 1..MIB,
    ) {
        let limits = Limits { max_num, max_per_pair: paths, min_size: Bytes::new(min_size), ..Limits::default() };
        let rates = list.iter().map(|(flow, own)| (*flow, rate(f64::from(*own)))).collect();
        let ranks = list.iter().map(|(flow, own)| (*flow, Rank::new(*own))).collect();
        let even = list.iter().map(|(flow, _)| *flow).collect();
        for schedule in [Schedule::Rates(rates), Schedule::Ranks(ranks), Schedule::Even(even)] {
            let unified = merge(&schedule);
            let lanes = select_and_split(&unified, &limits).unwrap();
            prop_assert!(lanes.len() <= max_num as usize);
            let mut chosen: Vec<usize> = lanes.iter().map(|lane| lane.unified).collect();
            chosen.dedup();
            for &at in &chosen {
                let own: Vec<&Lane> = lanes.iter().filter(|lane| lane.unified == at).collect();
                prop_assert!(paths.is_none_or(|paths| own.len() <= paths as usize));
                prop_assert_eq!(own.iter().map(|lane| lane.size).sum::<Bytes>(), unified[at].size);
                prop_assert!(own.iter().all(|lane| lane.size > Bytes::ZERO));
                if let Importance::Rate(whole) = unified[at].importance {
                    let sum: f64 = own.iter().map(|lane| match lane.importance { Importance::Rate(rate) => rate.get(), _ => 0.0 }).sum();
                    prop_assert!((sum - whole.get()).abs() <= 1e-9 * whole.get());
                }
            }
            // A flow that waits is no more important than any that does not.
            let rank = |flow: &Unified| match flow.importance {
                Importance::Rate(rate) => -rate.get(),
                Importance::Rank(rank) => f64::from(rank.get()),
                Importance::Even => -(flow.size.get() as f64),
            };
            let worst = chosen.iter().map(|&at| rank(&unified[at])).fold(f64::MIN, f64::max);
            for (at, flow) in unified.iter().enumerate() {
                let waits = !chosen.contains(&at) && flow.importance != Importance::Rate(rate(0.0));
                prop_assert!(!waits || rank(flow) >= worst);
            }
        }
    }
}

/// Nothing of a size that overflows sums goes wrong: sizes stay at the largest number there is.
#[test]
fn sizes_that_overflow_stay_at_the_largest() {
    let unified = merge(&Schedule::Even(vec![flow(1, 0, 1, u64::MAX), flow(2, 0, 1, u64::MAX)]));
    assert_eq!(unified[0].size, Bytes::new(u64::MAX));
    let lanes = select_and_split(&unified, &Limits { max_num: 100, ..Limits::default() }).unwrap();
    assert_eq!(lanes.len(), 100);
}

#[test]
fn a_hundred_thousand_small_flows_are_merged_and_selected_in_a_moment() {
    let list: Vec<Scheduled> =
        (0..100_000).map(|id| flow(id, (id % 150) as u16, (id / 150 % 149 + 150) as u16, 1)).collect();
    let unified = merge(&Schedule::Even(list));
    assert_eq!(unified.len(), 150 * 149);
    assert_eq!(select_and_split(&unified, &Limits::default()).unwrap().len(), 10);
}
