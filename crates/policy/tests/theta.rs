//! PPUSH Algorithm 1 against the paper's own numbers, by hand on small networks, and by property on random ones.

use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::LinkId;
use headwater_policy::theta::{Bounds, plan, theta_ceiling};
use headwater_policy::{Coflow, Demand, PathedFlow, Plan, PlanError, Policy, Share};
use headwater_units::{BitRate, Bytes, Duration, FlowId, Rank, TaskId, Theta, Time};
use proptest::prelude::*;

/// Flow ids are 100 x task + place in the task.
fn coflow(task: u64, remaining: u64, paths: &[&[u32]]) -> Coflow {
    let flow = |(links, place): (&&[u32], u64)| {
        PathedFlow::pooled(FlowId(100 * task + place), links.iter().map(|&l| LinkId(l)).collect())
    };
    Coflow::sized(TaskId(task), Bytes::new(remaining), paths.iter().zip(0..).map(flow).collect())
}

fn ceilings(list: &[(u32, Option<f64>)]) -> Bounds {
    let ceilings = list.iter().map(|&(link, c)| (LinkId(link), c.map(Theta::new))).collect();
    Bounds { ceilings, ..Bounds::default() }
}

fn theta(plan: &Plan, flow: u64) -> f64 {
    plan.share(FlowId(flow)).and_then(Share::weight).unwrap().get()
}

/// PPUSH §V-A, experiment P-7: 10^6 packets/s and a loaded round trip of 110 us make θ+ = 55.
#[test]
fn ten_flows_on_one_link_get_the_papers_51_and_then_50_and_a_half() {
    let packet = Bytes::new(1210);
    let ceiling = theta_ceiling(Duration::from_micros(110), BitRate::new(1_000_000 * 1210 * 8), packet);
    assert_eq!(ceiling, Theta::new(55.0));
    let bounds = ceilings(&[(0, Some(ceiling.get()))]);
    // f1 and eight larger ones; f2 has not started.
    let mut demand =
        Demand { coflows: (1..=10).filter(|&t| t != 2).map(|t| coflow(t, 1_000 * t, &[&[0]])).collect() };
    let before = plan(&demand, &bounds).unwrap();
    assert_eq!(theta(&before, 100), 51.0);
    assert!((3..=10).all(|t| theta(&before, 100 * t) == 0.5));
    // f2 starts, and has less left than f1 by now.
    demand.coflows.push(coflow(2, 500, &[&[0]]));
    let during = plan(&demand, &bounds).unwrap();
    assert_eq!(theta(&during, 200), 50.5);
    assert!((1..=10).filter(|&t| t != 2).all(|t| theta(&during, 100 * t) == 0.5));
    demand.coflows.pop();
    assert_eq!(plan(&demand, &bounds).unwrap(), before);
}

#[test]
fn flows_of_the_smallest_task_share_the_token_of_a_link() {
    let demand = Demand { coflows: vec![coflow(1, 10, &[&[0], &[0], &[0]]), coflow(2, 20, &[&[0], &[0]])] };
    let plan = plan(&demand, &ceilings(&[(0, Some(40.0))])).unwrap();
    assert!((100..103).all(|f| theta(&plan, f) == 13.0)); // (40 - 0.5 x 2) / 3
    assert!((200..202).all(|f| theta(&plan, f) == 0.5));
}

#[test]
fn tasks_of_equal_size_come_in_the_order_of_their_ids() {
    let demand = Demand { coflows: vec![coflow(7, 10, &[&[0]]), coflow(3, 10, &[&[0]])] };
    let plan = plan(&demand, &ceilings(&[(0, Some(10.0))])).unwrap();
    assert_eq!((theta(&plan, 300), theta(&plan, 700)), (9.5, 0.5));
}

#[test]
fn a_flow_gets_the_least_that_its_links_allow() {
    // Three sources (0, 1, 2) to one receiver (9); the second source also serves a larger task (8).
    let demand =
        Demand { coflows: vec![coflow(1, 10, &[&[0, 9], &[1, 9], &[2, 9]]), coflow(2, 20, &[&[1, 8]])] };
    let bounds =
        ceilings(&[(0, Some(50.0)), (1, Some(4.0)), (2, Some(50.0)), (8, Some(50.0)), (9, Some(30.0))]);
    let plan = plan(&demand, &bounds).unwrap();
    assert_eq!(theta(&plan, 100), 10.0);
    assert_eq!(theta(&plan, 101), 3.5); // 4 - 0.5 on its own uplink
    assert_eq!(theta(&plan, 102), 10.0);
    assert_eq!(theta(&plan, 200), 0.5);
}

#[test]
fn a_larger_task_takes_the_tokens_that_smaller_ones_leave() {
    // Task 2 meets task 1 on link 0 with one flow; its other flow has link 2 for itself.
    let demand = Demand { coflows: vec![coflow(1, 10, &[&[0, 8]]), coflow(2, 20, &[&[0, 9], &[2, 9]])] };
    let bounds = ceilings(&[(0, Some(10.0)), (2, Some(10.0)), (8, Some(10.0)), (9, Some(10.0))]);
    let plan = plan(&demand, &bounds).unwrap();
    assert_eq!(theta(&plan, 100), 9.5);
    assert_eq!(theta(&plan, 200), 0.5);
    assert_eq!(theta(&plan, 201), 9.5); // 10 on link 2; 10 - 0.5 on link 9
}

#[test]
fn a_flow_that_is_refused_one_token_claims_none() {
    // Task 2 is blocked on link 0, so link 1 is still free for task 3.
    let demand =
        Demand { coflows: vec![coflow(1, 10, &[&[0]]), coflow(2, 20, &[&[0, 1]]), coflow(3, 30, &[&[1]])] };
    let plan = plan(&demand, &ceilings(&[(0, Some(10.0)), (1, Some(10.0))])).unwrap();
    assert_eq!((theta(&plan, 100), theta(&plan, 200), theta(&plan, 300)), (9.5, 0.5, 9.5));
}

/// Line 19: the holder's weight never falls below 1, even where the ceiling has no room for it.
#[test]
fn the_smallest_task_weighs_at_least_one() {
    let mut coflows: Vec<Coflow> = (1..=20).map(|t| coflow(t, t, &[&[0]])).collect();
    coflows[0] = coflow(1, 1, &[&[0], &[0]]);
    let plan = plan(&Demand { coflows }, &ceilings(&[(0, Some(3.0))])).unwrap();
    assert_eq!((theta(&plan, 100), theta(&plan, 101), theta(&plan, 200)), (1.0, 1.0, 0.5));
}

/// Links and flows without a measurement (docs/decisions/0031).
#[test]
fn unknown_links_do_not_constrain_and_unmeasured_flows_stay_between_the_floor_and_two() {
    let demand = Demand { coflows: vec![coflow(1, 10, &[&[0, 1]]), coflow(2, 20, &[&[0, 1]])] };
    let unknown = plan(&demand, &ceilings(&[(0, None), (1, None)])).unwrap();
    assert_eq!((theta(&unknown, 100), theta(&unknown, 200)), (2.0, 0.5));
    let half = plan(&demand, &ceilings(&[(0, None), (1, Some(20.0))])).unwrap();
    assert_eq!((theta(&half, 100), theta(&half, 200)), (19.5, 0.5));
}

#[test]
fn what_cannot_be_planned_is_said() {
    let one = Demand { coflows: vec![coflow(1, 1, &[&[0]])] };
    let unknown = PlanError::UnknownLink { flow: FlowId(100), link: LinkId(0) };
    assert_eq!(plan(&one, &ceilings(&[])), Err(unknown));
    let twice = Demand { coflows: vec![coflow(1, 1, &[]), coflow(1, 2, &[])] };
    assert_eq!(plan(&twice, &ceilings(&[])), Err(PlanError::TaskTwice(TaskId(1))));
    let mut shared = coflow(1, 1, &[&[0]]);
    shared.task = TaskId(2);
    let both = Demand { coflows: vec![coflow(1, 1, &[&[0]]), shared] };
    assert_eq!(plan(&both, &ceilings(&[(0, None)])), Err(PlanError::FlowTwice(FlowId(100))));
    let mut hidden = one.clone();
    hidden.coflows[0].remaining = None;
    assert_eq!(plan(&hidden, &ceilings(&[(0, None)])), Err(PlanError::UnknownSize(TaskId(1))));
    let bad = ceilings(&[(0, Some(f64::NAN))]);
    assert!(matches!(plan(&one, &bad), Err(PlanError::Ceiling(_))));
    let floor = Bounds { floor: Theta::ZERO, ..ceilings(&[(0, None)]) };
    assert_eq!(plan(&one, &floor), Err(PlanError::Floor(Theta::ZERO)));
    assert_eq!(plan(&Demand::default(), &Bounds::default()), Ok(Plan::default()));
}

/// A policy for hidden sizes: it orders coflows by bytes sent, then by arrival.
struct LeastSentFirst;

impl Policy for LeastSentFirst {
    fn plan(&self, _now: Time, demand: &Demand) -> Result<Plan, PlanError> {
        demand.check(|_| true)?;
        let mut order: Vec<&Coflow> = demand.coflows.iter().collect();
        order.sort_by_key(|coflow| (coflow.sent, coflow.arrival, coflow.task));
        let ranked = order.into_iter().zip((0..).map(Rank::new));
        let shares =
            ranked.flat_map(|(coflow, rank)| coflow.flows.iter().map(move |it| (it.flow, Share::Rank(rank))));
        Ok(Plan::new(shares.collect()))
    }
}

#[test]
fn a_policy_may_give_ranks_without_knowing_sizes() {
    let at = |task, sent, ms| Coflow {
        sent: Bytes::new(sent),
        arrival: Time::ZERO + Duration::from_millis(ms),
        remaining: None,
        ..coflow(task, 0, &[&[0], &[1]])
    };
    let demand = Demand { coflows: vec![at(1, 5, 0), at(2, 0, 2), at(3, 0, 1)] };
    let policies: [&dyn Policy; 2] = [&LeastSentFirst, &ceilings(&[(0, None), (1, None)])];
    let [ranks, weights] = policies.map(|policy| policy.plan(Time::ZERO, &demand));
    let ranks: Vec<(FlowId, Share)> = ranks.unwrap().shares().collect();
    let expected = [(100, 2), (101, 2), (200, 1), (201, 1), (300, 0), (301, 0)];
    assert_eq!(ranks, expected.map(|(flow, rank)| (FlowId(flow), Share::Rank(Rank::new(rank)))));
    assert_eq!(weights, Err(PlanError::UnknownSize(TaskId(1))));
}

type Drawn = (Vec<(u64, Vec<BTreeSet<u32>>)>, Vec<Option<f64>>);

/// Up to 8 tasks of up to 5 flows over up to 10 links.
fn networks() -> impl Strategy<Value = Drawn> {
    let path = prop::collection::btree_set(0u32..10, 1..4);
    let tasks = prop::collection::vec((0u64..6, prop::collection::vec(path, 0..5)), 0..8);
    (tasks, prop::collection::vec(prop::option::weighted(0.8, 0.0f64..200.0), 10))
}

fn build((tasks, links): &Drawn) -> (Demand, Bounds) {
    let coflows = tasks.iter().zip(1..).map(|((remaining, paths), task)| {
        let paths: Vec<Vec<u32>> = paths.iter().map(|p| p.iter().copied().collect()).collect();
        coflow(task, *remaining, &paths.iter().map(Vec::as_slice).collect::<Vec<_>>())
    });
    let list: Vec<_> = (0..).zip(links.iter().copied()).collect();
    (Demand { coflows: coflows.collect() }, ceilings(&list))
}

proptest! {
    /// On every link with a known ceiling: if it has room for the floor of each flow without the token and 1 for each
    /// with it (line 19's max does not bind), the weights sum up to at most the ceiling.
    #[test]
    fn planned_weights_never_exceed_a_link_with_room_for_them(drawn in networks()) {
        let (demand, bounds) = build(&drawn);
        let plan = plan(&demand, &bounds).unwrap();
        for (link, ceiling) in &bounds.ceilings {
            let on_link: Vec<f64> = demand.coflows.iter().flat_map(|c| &c.flows)
                .filter(|f| f.path.links().contains(link)).map(|f| theta(&plan, f.flow.0)).collect();
            let least: f64 = on_link.iter().map(|&t| if t > 0.5 { 1.0 } else { 0.5 }).sum();
            if let Some(ceiling) = ceiling && least <= ceiling.get() {
                prop_assert!(on_link.iter().sum::<f64>() <= ceiling.get() + 1e-9);
            }
        }
    }

    /// Every weight is the floor, or between 1 and the smallest known ceiling on the path (1 where that is below 1;
    /// the ceiling of the unmeasured if none is known).
    #[test]
    fn every_weight_lies_between_the_floor_and_the_ceiling(drawn in networks()) {
        let (demand, bounds) = build(&drawn);
        let plan = plan(&demand, &bounds).unwrap();
        prop_assert_eq!(plan.shares().len(), demand.coflows.iter().map(|c| c.flows.len()).sum::<usize>());
        for flow in demand.coflows.iter().flat_map(|c| &c.flows) {
            let known = flow.path.links().iter().filter_map(|l| bounds.ceilings[l]).map(Theta::get);
            let ceiling = known.reduce(f64::min).map_or(2.0, |c| c.max(1.0));
            let got = theta(&plan, flow.flow.0);
            prop_assert!(got == 0.5 || (1.0..=ceiling).contains(&got), "{got} of {ceiling}");
        }
    }

    /// A flow has the large weight exactly if no smaller task has it on any of its links.
    #[test]
    fn the_smallest_task_holds_every_token_that_is_not_taken(drawn in networks()) {
        let (mut demand, bounds) = build(&drawn);
        let plan = plan(&demand, &bounds).unwrap();
        demand.coflows.sort_by_key(|c| (c.remaining, c.task));
        let mut holder: BTreeMap<LinkId, TaskId> = BTreeMap::new();
        for coflow in &demand.coflows {
            for flow in &coflow.flows {
                let free = flow.path.links().iter().all(|l| holder.get(l).is_none_or(|t| *t == coflow.task));
                prop_assert_eq!(theta(&plan, flow.flow.0) > 0.5, free);
                if free {
                    flow.path.links().iter().for_each(|l| { holder.insert(*l, coflow.task); });
                }
            }
        }
    }

    #[test]
    fn the_order_of_the_demand_does_not_matter(
        (drawn, turn) in (networks(), any::<prop::sample::Index>()),
    ) {
        let (demand, bounds) = build(&drawn);
        let mut turned = demand.clone();
        if !turned.coflows.is_empty() {
            let by = turn.index(turned.coflows.len());
            turned.coflows.rotate_left(by);
            turned.coflows.iter_mut().for_each(|c| c.flows.reverse());
        }
        prop_assert_eq!(plan(&demand, &bounds), plan(&turned, &bounds));
    }
}
