//! Properties that every allocation of rates must keep, on random networks.

use headwater_fabric::{LinkId, Path};
use headwater_sim::flow::rates::{Rates, Slot};
use headwater_sim::flow::{Allocation, FlowError, Network, Share};
use headwater_units::BitRate;
use proptest::prelude::*;

const RULES: [Allocation; 3] = [Allocation::MaxMin, Allocation::WeightedMaxMin, Allocation::Priority];

#[derive(Clone, Debug)]
struct Flow {
    path: Vec<u32>,
    share: Share,
}

#[derive(Clone, Debug)]
struct Case {
    capacities: Vec<u64>,
    flows: Vec<Flow>,
}

fn case() -> impl Strategy<Value = Case> {
    (1usize..8).prop_flat_map(|links| {
        let flow = (
            prop::sample::subsequence((0..links as u32).collect::<Vec<_>>(), 1..=links.min(3)),
            prop_oneof![Just(0.5), Just(1.0), 0.5f64..60.0],
            0u32..4,
        );
        let flow = flow.prop_map(|(path, weight, rank)| Flow { path, share: Share { weight, rank } });
        let capacities = prop::collection::vec(1_000u64..10_000_000_000, links);
        (capacities, prop::collection::vec(flow, 1..20))
            .prop_map(|(capacities, flows)| Case { capacities, flows })
    })
}

fn network(capacities: &[u64]) -> Network {
    Network::new(capacities.iter().map(|&capacity| BitRate::new(capacity)).collect()).unwrap()
}

fn path(links: &[u32]) -> Path {
    links.iter().map(|&link| LinkId(link)).collect()
}

fn rates(case: &Case, rule: Allocation) -> Vec<f64> {
    let mut rates = Rates::new(&network(&case.capacities), rule);
    let slots: Vec<Slot> =
        case.flows.iter().map(|flow| rates.add(&path(&flow.path), flow.share).unwrap()).collect();
    rates.update();
    slots.into_iter().map(|slot| rates.rate(slot)).collect()
}

/// The rank and the weight that `rule` sees.
fn seen(rule: Allocation, share: Share) -> (u32, f64) {
    match rule {
        Allocation::MaxMin => (0, 1.0),
        Allocation::WeightedMaxMin => (0, share.weight),
        Allocation::Priority => (share.rank, share.weight),
    }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #[test]
    fn no_link_carries_more_than_it_can(case in case()) {
        for rule in RULES {
            let rates = rates(&case, rule);
            for (link, &capacity) in (0u32..).zip(&case.capacities) {
                let on_it = case.flows.iter().zip(&rates).filter(|(flow, _)| flow.path.contains(&link));
                let used: f64 = on_it.map(|(_, rate)| rate).sum();
                prop_assert!(used <= capacity as f64 * (1.0 + 1e-9), "{used} on {capacity} by {rule:?}");
            }
        }
    }

    /// The mark of max-min: everybody has a full link on which nobody has more for its weight. Where ranks count, full of
    /// its own rank and those before.
    #[test]
    fn every_flow_is_held_back_by_a_full_link_where_nobody_has_more(case in case()) {
        for rule in RULES {
            let rates = rates(&case, rule);
            for (flow, rate) in case.flows.iter().zip(&rates) {
                let (rank, weight) = seen(rule, flow.share);
                let held_back = flow.path.iter().any(|link| {
                    let mut used = 0.0;
                    let mut most: f64 = 0.0;
                    for (other, rate) in case.flows.iter().zip(&rates).filter(|(f, _)| f.path.contains(link)) {
                        let (others_rank, others_weight) = seen(rule, other.share);
                        if others_rank <= rank {
                            used += rate;
                        }
                        if others_rank == rank {
                            most = most.max(rate / others_weight);
                        }
                    }
                    let capacity = case.capacities[*link as usize] as f64;
                    used >= capacity * (1.0 - 1e-6) && rate / weight >= most * (1.0 - 1e-6)
                });
                prop_assert!(held_back, "{flow:?} with {rate} by {rule:?}");
            }
        }
    }

    #[test]
    fn later_ranks_change_nothing_for_earlier_ones(case in case(), cut in 0u32..4) {
        let all = rates(&case, Allocation::Priority);
        let (mut earlier, mut expected) = (case.clone(), Vec::new());
        earlier.flows.clear();
        for (flow, rate) in case.flows.iter().zip(all).filter(|(flow, _)| flow.share.rank <= cut) {
            earlier.flows.push(flow.clone());
            expected.push(rate);
        }
        let alone = rates(&earlier, Allocation::Priority);
        prop_assert!(alone.iter().zip(&expected).all(|(a, b)| same(*a, *b)), "{alone:?}, {expected:?}");
    }

    /// Filling only what a change can reach must come out like filling everything.
    #[test]
    fn rates_after_changes_are_those_of_a_fresh_start(
        case in case(), changes in prop::collection::vec((0usize..20, 0u8..3, 0.5f64..60.0, 0u32..4), 1..30),
    ) {
        for rule in RULES {
            let network = network(&case.capacities);
            let mut kept = Rates::new(&network, rule);
            let mut present: Vec<(Slot, Flow)> = Vec::new();
            for flow in &case.flows {
                present.push((kept.add(&path(&flow.path), flow.share).unwrap(), flow.clone()));
            }
            kept.update();
            for &(which, what, weight, rank) in &changes {
                let share = Share { weight, rank };
                let before: Vec<f64> = present.iter().map(|(slot, _)| kept.rate(*slot)).collect();
                let at = which % present.len().max(1);
                match what {
                    0 => {
                        let flow = Flow { share, ..case.flows[which % case.flows.len()].clone() };
                        present.push((kept.add(&path(&flow.path), share).unwrap(), flow));
                    }
                    1 if present.len() > 1 => kept.remove(present.swap_remove(at).0),
                    _ if !present.is_empty() => {
                        kept.set_share(present[at].0, share).unwrap();
                        present[at].1.share = share;
                    }
                    _ => {}
                }
                let changed = kept.update();
                let flows = present.iter().map(|(_, flow)| flow.clone()).collect();
                let fresh = rates(&Case { flows, ..case.clone() }, rule);
                for ((slot, flow), rate) in present.iter().zip(fresh) {
                    let kept = kept.rate(*slot);
                    prop_assert!(same(kept, rate), "{flow:?} has {kept}, not {rate}, by {rule:?}");
                }
                if what == 2 {
                    for ((slot, _), before) in present.iter().zip(before) {
                        prop_assert_eq!(changed.contains(slot), kept.rate(*slot) != before);
                    }
                }
            }
        }
    }
}

/// PPUSH Theorem 1 with §V-A's thetas: 51 against nine times 0.5 is 102 to 1.
#[test]
fn flows_on_one_link_share_it_by_weight() {
    let flow = |weight| Flow { path: vec![0], share: Share { weight, rank: 0 } };
    let mut flows = vec![flow(51.0)];
    flows.resize(9, flow(0.5));
    let rates = rates(&Case { capacities: vec![1_000_000_000], flows }, Allocation::WeightedMaxMin);
    assert!(rates[1..].iter().all(|rate| same(rates[0] / rate, 102.0)));
    assert!(same(rates.iter().sum(), 1e9));
}

/// PPUSH Fig. 3: the heavy flow cannot use its share of the second link, so the light one does.
#[test]
fn what_one_flow_cannot_use_another_gets() {
    let heavy = Flow { path: vec![0, 1], share: Share { weight: 4.0, rank: 0 } };
    let light = Flow { path: vec![1], share: Share::EVEN };
    let case = Case { capacities: vec![5_000_000, 20_000_000], flows: vec![heavy, light] };
    assert_eq!(rates(&case, Allocation::WeightedMaxMin), [5e6, 15e6]);
}

#[test]
fn a_flow_that_is_gone_has_no_rate_and_leaves_its_own_to_the_others() {
    let mut rates = Rates::new(&network(&[1_000]), Allocation::MaxMin);
    let [a, b] = [(); 2].map(|()| rates.add(&path(&[0]), Share::EVEN).unwrap());
    assert_eq!(rates.update(), [a, b]);
    rates.remove(a);
    rates.remove(a);
    assert_eq!(rates.update(), [b]);
    assert_eq!((rates.rate(a), rates.rate(b)), (0.0, 1_000.0));
    assert_eq!(rates.update(), []);
}

#[test]
fn what_is_no_path_or_no_weight_is_refused() {
    let mut rates = Rates::new(&network(&[1_000, 1_000]), Allocation::WeightedMaxMin);
    for links in [&[][..], &[2], &[0, 1, 0]] {
        let error = rates.add(&path(links), Share::EVEN).unwrap_err();
        assert_eq!(error, FlowError::Path { path: path(links), links: 2 });
    }
    let slot = rates.add(&path(&[0]), Share::EVEN).unwrap();
    for weight in [0.0, -1.0, f64::INFINITY, 1e-7, 1e10] {
        let share = Share { weight, rank: 0 };
        assert_eq!(rates.set_share(slot, share), Err(FlowError::Weight(weight)));
        assert_eq!(rates.add(&path(&[0]), share), Err(FlowError::Weight(weight)));
    }
    let dead = Network::new(vec![BitRate::new(1), BitRate::ZERO]);
    assert_eq!(dead, Err(FlowError::DeadLink(LinkId(1))));
}
