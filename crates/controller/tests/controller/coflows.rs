//! The order of coflows: agents say what they fetch, and hear ranks.

use headwater_controller::{CoflowPolicy, ControllerConfig};
use headwater_units::{Bytes, Duration, PathId};
use headwater_wire::{CoflowName, CoflowTotal, CoflowTotals, Control, PairTotal, ToController, ToNode};

use crate::harness::Bench;

const A: PathId = PathId(201);
const B: PathId = PathId(202);

fn name(number: u64) -> CoflowName {
    CoflowName { application: "job".to_owned(), number }
}

/// A coflow at a host: what is here, and what is left from where.
fn coflow(number: u64, here: u64, left: &[(&str, u64)]) -> CoflowTotal {
    let pair = |(from, left): &(&str, u64)| PairTotal {
        from: (*from).to_owned(),
        left: (*left > 0).then_some(Bytes::mib(*left)),
    };
    CoflowTotal { name: name(number), here: Bytes::mib(here), pairs: left.iter().map(pair).collect() }
}

impl Bench {
    /// The ranks that an agent hears for its report, by coflow.
    fn ranked(&mut self, by: PathId, host: &str, coflows: Vec<CoflowTotal>) -> Vec<(u64, u32)> {
        self.say_at(by, ToController::Coflows(CoflowTotals { host: host.to_owned(), coflows }));
        match self.heard(by.0 as u8).pop() {
            Some(Control::Node(ToNode::CoflowRanks(ranks))) => {
                ranks.into_iter().map(|it| (it.name.number, it.rank.get())).collect()
            }
            other => panic!("no answer: {other:?}"),
        }
    }
}

fn bench(coflows: CoflowPolicy) -> Bench {
    Bench::with(ControllerConfig { coflows, ..ControllerConfig::default() })
}

#[test]
fn by_aalo_whoever_has_sent_much_over_all_hosts_goes_last_and_needs_no_sizes() {
    let mut bench = bench(CoflowPolicy::Aalo);
    assert_eq!(bench.ranked(A, "a", vec![coflow(1, 0, &[("c", 0)])]), [(1, 0)]);
    bench.pass(Duration::from_millis(200));
    let both = vec![coflow(1, 6, &[("c", 0)]), coflow(2, 1, &[("c", 0)])];
    assert_eq!(bench.ranked(A, "a", both.clone()), [(1, 0), (2, 1)], "in the same queue by arrival");
    bench.pass(Duration::from_millis(200));
    bench.ranked(B, "b", vec![coflow(1, 6, &[("c", 0)])]);
    bench.pass(Duration::from_millis(200));
    assert_eq!(
        bench.ranked(A, "a", both.clone()),
        [(1, 1), (2, 0)],
        "12 MiB in all are past the first queue"
    );
    // The other host has all of its part, and speaks no more of it: what was sent was sent.
    bench.ranked(B, "b", vec![]);
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.ranked(A, "a", both), [(1, 1), (2, 0)]);
}

#[test]
fn by_sincronia_and_varys_whoever_has_little_left_goes_first() {
    for policy in [CoflowPolicy::Sincronia, CoflowPolicy::Varys] {
        let mut bench = bench(policy);
        bench.ranked(B, "b", vec![coflow(1, 0, &[("c", 50)])]);
        let mine = vec![coflow(1, 0, &[("c", 10)]), coflow(2, 0, &[("c", 20)])];
        assert_eq!(bench.ranked(A, "a", mine), [(1, 1), (2, 0)], "{policy:?}");
    }
}

#[test]
fn a_view_says_who_fetches_what_in_order_and_who_waits_for_whom() {
    let mut bench = bench(CoflowPolicy::Sincronia);
    bench.ranked(B, "b", vec![coflow(1, 3, &[("c", 50)])]);
    bench.ranked(A, "a", vec![coflow(1, 2, &[("d", 10), ("c", 10)]), coflow(2, 0, &[("c", 20), ("d", 0)])]);
    bench.pass(Duration::from_millis(200));
    bench.ranked(B, "b", vec![coflow(1, 3, &[("c", 50)])]);
    let seen = bench.controller.view(bench.now).coflows;
    let [first, second] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((&first.name, &second.name), (&name(2), &name(1)), "the more important one first");
    assert!(first.rank < second.rank);
    assert_eq!((first.here, first.left), (Bytes::ZERO, None), "of one flow the size is not known");
    assert_eq!((second.here, second.left), (Bytes::mib(5), Some(Bytes::mib(70))));
    assert_eq!(
        (&second.receivers[..], &second.sources[..]),
        (&["a", "b"].map(str::to_owned)[..], &["c", "d"].map(str::to_owned)[..])
    );
    bench.pass(Duration::from_secs(4));
    assert_eq!(bench.controller.view(bench.now).coflows, [], "nobody has spoken of them lately");
}

#[test]
fn an_agent_that_falls_silent_or_whose_link_is_gone_counts_no_more() {
    let mut bench = bench(CoflowPolicy::Sincronia);
    bench.ranked(B, "b", vec![coflow(1, 0, &[("c", 50)])]);
    let mine = || vec![coflow(1, 0, &[("c", 10)]), coflow(2, 0, &[("c", 20)])];
    assert_eq!(bench.ranked(A, "a", mine()), [(1, 1), (2, 0)]);
    bench.pass(Duration::from_secs(4));
    assert_eq!(bench.ranked(A, "a", mine()), [(1, 0), (2, 1)]);
}

#[test]
fn a_flow_within_a_host_or_without_a_size_stops_nobody_from_being_ranked() {
    let mut bench = bench(CoflowPolicy::Varys);
    let mine = vec![coflow(1, 0, &[("a", 10)]), coflow(2, 0, &[("c", 0)]), coflow(3, 0, &[("c", 20)])];
    let ranks = bench.ranked(A, "a", mine);
    assert_eq!(ranks.len(), 3);
    assert_eq!(ranks[0].1, 0, "what does not leave the host goes first");
}
