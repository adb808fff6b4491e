//! Overlays that run: stripes that do not come, nodes that are slow, and those that go.

use std::collections::BTreeMap;

use headwater_controller::{ControllerCommand, ControllerConfig, ControllerEvent, TaskFlow, TaskRecord};
use headwater_units::{Bytes, Duration};
use headwater_wire::{Holding, NodeInfo, Request, ToController};

use crate::harness::{Bench, assert_trees, delivering, holding, in_rack, info, ms, node};
use crate::swarm_detection::{begin, bench, swarm, wish};

const SOURCE: u8 = 1;

/// Receivers of an overlay that say every 100 ms how they do.
struct Running {
    bench: Bench,
    /// By receiver, as kept last.
    records: BTreeMap<u8, TaskRecord>,
}

/// How a stripe comes to a receiver: for how long nothing has come, and for how long it was waited for.
type Odd<'a> = &'a dyn Fn(u8, u8) -> (Duration, Duration);

fn well(_: u8, _: u8) -> (Duration, Duration) {
    (Duration::ZERO, Duration::ZERO)
}

impl Running {
    fn begun(receivers: &[u8]) -> Running {
        let mut running = Running::joined(receivers);
        assert_trees(SOURCE, &running.parents());
        running
    }

    fn joined(receivers: &[u8]) -> Running {
        let mut bench = bench();
        swarm(&mut bench, receivers, 5_000_000);
        bench.confirm();
        Running { bench, records: BTreeMap::new() }
    }

    fn records(&mut self) -> &BTreeMap<u8, TaskRecord> {
        for event in std::mem::take(&mut self.bench.events) {
            if let ControllerEvent::Persist(record) = event {
                self.records.insert(record.receiver.0[0], *record);
            }
        }
        &self.records
    }

    fn flow(&mut self, n: u8, stripe: u8) -> TaskFlow {
        let flows = &self.records()[&n].flows;
        flows.iter().find(|flow| flow.index == stripe).expect("it comes from somebody").clone()
    }

    /// By receiver and stripe: who sends it.
    fn parents(&mut self) -> BTreeMap<u8, Vec<u8>> {
        let receivers: Vec<u8> = self.records().keys().copied().collect();
        let of = |it: &mut Self, n: u8| {
            (0..it.records[&n].residue_classes).map(|stripe| it.flow(n, stripe).node.0[0]).collect()
        };
        receivers.into_iter().map(|n| (n, of(self, n))).collect()
    }

    fn parent(&mut self, n: u8, stripe: u8) -> u8 {
        self.flow(n, stripe).node.0[0]
    }

    /// Every receiver reports, and every source confirms.
    fn report(&mut self, odd: Odd<'_>) {
        self.report_but(&[], odd);
    }

    /// The same, but that some receivers are silent.
    fn report_but(&mut self, dead: &[u8], odd: Odd<'_>) {
        let mut records = self.records().clone();
        records.retain(|n, _| !dead.contains(n));
        for (n, record) in records {
            let view = |flow: &TaskFlow| {
                let (silent, behind) = odd(n, flow.index);
                let bytes = if behind == ms(0) { Bytes::mib(1) } else { Bytes::ZERO };
                headwater_wire::FlowView { silent, behind, bytes, ..delivering(flow.flow, 5_000_000) }
            };
            let views = record.flows.iter().map(view).collect();
            self.bench.feedback(n, record.task, 1000, record.flows_version, views);
        }
        self.bench.confirm();
    }

    fn pass(&mut self, span: Duration, odd: Odd<'_>) {
        let end = self.bench.now + span;
        while self.bench.now < end {
            self.bench.pass(ms(100));
            self.report(odd);
        }
    }

    fn replaced(&self) -> u64 {
        self.bench.controller.stats().flows_replaced
    }

    fn demoted(&self) -> u64 {
        self.bench.controller.stats().demoted
    }
}

/// Six receivers are dealt six stripes, and the object has two blocks.
#[test]
fn stripes_without_a_block_have_no_flows_and_nobody_looks_for_them() {
    let mut bench = Bench::with(ControllerConfig { groups: Vec::new(), ..ControllerConfig::default() });
    bench.join(SOURCE);
    bench.say(SOURCE, ToController::Hold(Holding { bytes: Bytes::kib(300), ..holding(1) }));
    swarm(&mut bench, &[2, 3, 4, 5, 6, 7], 50_000);
    bench.confirm();
    let mut running = Running { bench, records: BTreeMap::new() };
    for seconds in [0, 2, 5] {
        running.pass(Duration::from_secs(seconds), &well);
        for (n, record) in running.records() {
            let stripes: Vec<u8> = record.flows.iter().map(|flow| flow.index).collect();
            assert_eq!((record.residue_classes, stripes), (6, vec![0, 1]), "{n} after {seconds} s");
        }
    }
}

#[test]
fn a_stripe_that_is_silent_comes_from_another_and_not_from_the_same_node_soon() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    assert_eq!(running.parent(3, 0), 2);
    running.report(&|n, stripe| (if (n, stripe) == (3, 0) { ms(500) } else { ms(0) }, ms(0)));
    assert_eq!((running.parent(3, 0), running.replaced()), (2, 0));
    running.report(&|n, stripe| (if (n, stripe) == (3, 0) { ms(501) } else { ms(0) }, ms(0)));
    let next = running.parent(3, 0);
    assert!(next == 4 || next == 5, "{next}");
    assert_trees(SOURCE, &running.parents());
    running.pass(ms(1000), &well);
    running.report(&|n, stripe| (if (n, stripe) == (3, 0) { ms(501) } else { ms(0) }, ms(0)));
    assert_eq!((running.parent(3, 0), running.replaced()), (9 - next, 2));
}

/// Most stripes come to it, so no machine is busy.
#[test]
fn where_two_parents_die_one_after_the_other_both_stripes_move_as_soon() {
    let mut running = Running::begun(&(2..14).collect::<Vec<_>>());
    let n = (2..14).find(|n| running.parents()[n].iter().all(|parent| *parent != SOURCE)).expect("a leaf");
    let before = running.parents()[&n].clone();
    let silence = |first: Duration, second: Duration| {
        move |of: u8, stripe: u8| match (of == n, stripe) {
            (true, 0) => (first, ms(0)),
            (true, 1) => (second, ms(0)),
            _ => (ms(0), ms(0)),
        }
    };
    running.report(&silence(ms(501), ms(0)));
    let between = running.parents()[&n].clone();
    assert!(between[0] != before[0] && between[1..] == before[1..], "{before:?} {between:?}");
    running.bench.pass(ms(600));
    running.report(&silence(ms(0), ms(501)));
    let after = running.parents()[&n].clone();
    assert!(after[0] == between[0] && after[1] != before[1], "{between:?} {after:?}");
}

#[test]
fn where_most_stripes_are_silent_the_next_ones_move_later_and_later() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    let silent = |silent: Duration| {
        move |n: u8, stripe: u8| (if n == 3 && stripe != 1 { silent } else { ms(0) }, ms(0))
    };
    running.report(&silent(ms(501)));
    let first = running.replaced();
    assert!(first > 0);
    running.pass(ms(600), &well);
    running.report(&silent(ms(1000)));
    assert_eq!(running.replaced(), first);
    running.report(&silent(ms(1001)));
    assert!(running.replaced() > first);
}

/// Whoever leaves it last finds nearly all others below itself.
#[test]
fn where_the_first_of_a_tree_dies_nobody_gets_more_children_than_it_has_stripes() {
    let receivers: Vec<u8> = (2..18).collect();
    let orphans = |running: &mut Running, root: u8| -> Vec<u8> {
        running.parents().iter().filter(|(_, parents)| parents[0] == root).map(|(n, _)| *n).collect()
    };
    for seed in 0..24 {
        let mut running = Running::begun(&receivers);
        running.report(&well);
        let stripes = running.parents()[&2].len();
        let root = orphans(&mut running, SOURCE)[0];
        let mut left = orphans(&mut running, root);
        let mut place = seed;
        while !left.is_empty() {
            let n = left.remove(place % left.len());
            place /= left.len() + 1;
            let others: Vec<u8> = receivers.iter().copied().filter(|other| *other != n).collect();
            let silent = |_: u8, stripe: u8| (if stripe == 0 { ms(501) } else { ms(0) }, ms(0));
            running.report_but(&others, &silent);
        }
        let mut children: BTreeMap<u8, usize> = BTreeMap::new();
        let parents = running.parents();
        let living = parents.iter().filter(|(n, _)| **n != root).flat_map(|(_, parents)| parents);
        living.for_each(|parent| *children.entry(*parent).or_default() += 1);
        assert!(children.iter().all(|(_, count)| *count <= stripes), "{seed}: {children:?}");
        assert!(parents.values().all(|parents| parents[0] != root), "{seed}: {parents:?}");
    }
}

/// Its host is busy, or its link to the controller is. Those below it say that its stripe comes.
#[test]
fn of_whom_the_controller_hears_nothing_keeps_those_to_whom_it_sends() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    running.report(&well);
    for _ in 0..50 {
        running.bench.pass(ms(100));
        running.report_but(&[2], &well);
    }
    assert_eq!((running.parent(3, 0), running.replaced()), (2, 0));
    running.report_but(&[2], &|n, stripe| (if (n, stripe) == (3, 0) { ms(501) } else { ms(0) }, ms(0)));
    assert_ne!(running.parent(3, 0), 2);
    assert_eq!(running.replaced(), 1);
}

/// In an overlay of 60 the orders of those who begin may take 120 ms.
#[test]
fn the_first_parent_has_time_to_begin_where_many_do_and_the_next_has_not() {
    let mut running = Running::joined(&(2..61).collect::<Vec<_>>());
    running.pass(ms(1000), &well);
    let n = 61;
    begin(&mut running.bench, n);
    let first = running.parent(n, 0);
    let nothing_comes = |of: u8, stripe: u8| match (of, stripe) == (n, 0) {
        true => (ms(1001), ms(1)),
        false => (ms(0), ms(0)),
    };
    running.report(&nothing_comes);
    assert_eq!(running.parent(n, 0), first);
    let task = running.records()[&n].task;
    running.bench.say(n, ToController::Distrust { task, node: node(first) });
    let second = running.parent(n, 0);
    running.report(&nothing_comes);
    let third = running.parent(n, 0);
    assert!(first != second && second != third && third != first, "{first} {second} {third}");
}

/// It has places left, since those that were below it have gone.
#[test]
fn who_was_left_for_silence_is_no_new_parent_until_it_is_heard_again() {
    let new_parents = |is_heard_again: bool| {
        let mut running = Running::begun(&[2, 3, 4, 5, 6, 7]);
        running.report(&well);
        let parents = running.parents();
        let own = (0..).zip(&parents[&4]).find(|(_, parent)| **parent == SOURCE).expect("a stripe each").0;
        running.bench.pass(ms(100));
        let leaves = |n: u8, stripe: u8| (if (n, stripe) == (3, own) { ms(501) } else { ms(0) }, ms(0));
        running.report_but(&[4], &leaves);
        assert_ne!(running.parent(3, own), 4);
        running.bench.pass(ms(100));
        running.report_but(if is_heard_again { &[] } else { &[4] }, &well);
        let leave = |n: u8, stripe: u8| (if n > 4 && stripe == 0 { ms(501) } else { ms(0) }, ms(0));
        running.report_but(&[4], &leave);
        [5, 6, 7].map(|n| running.parent(n, 0))
    };
    let (silent, heard) = (new_parents(false), new_parents(true));
    assert!(!silent.contains(&2) && !silent.contains(&4) && heard.contains(&4), "{silent:?} {heard:?}");
}

/// All are busy and silent, and one after the other says that nothing comes.
#[test]
fn a_source_does_not_send_to_each_of_many_whose_parents_are_merely_silent() {
    let mut running = Running::begun(&(2..14).collect::<Vec<_>>());
    let stripes = running.parents()[&2].len();
    let of_source = |running: &mut Running| {
        let parents = running.parents();
        (0..stripes).map(|stripe| parents.values().filter(|it| it[stripe] == SOURCE).count()).max().unwrap()
    };
    assert_eq!(of_source(&mut running), 1);
    for n in 2..10 {
        running.bench.pass(ms(2100));
        let record = running.records()[&n].clone();
        let from = |flow: &TaskFlow| flow.node == node(SOURCE);
        let view = |flow: &TaskFlow| headwater_wire::FlowView {
            silent: if from(flow) { ms(0) } else { ms(1000) },
            ..delivering(flow.flow, 5_000_000)
        };
        let views = record.flows.iter().map(view).collect();
        running.bench.feedback(n, record.task, 1000, record.flows_version, views);
        running.bench.confirm();
    }
    assert_eq!((of_source(&mut running), running.replaced() > 0), (4, true));
}

#[test]
fn who_holds_up_those_below_it_becomes_a_leaf_unless_it_is_held_up_itself() {
    let behind = |held_up: &'static [u8]| {
        move |n: u8, stripe: u8| (ms(0), if stripe == 0 && held_up.contains(&n) { ms(301) } else { ms(0) })
    };
    let mut running = Running::begun(&[2, 3, 4, 5]);
    let before = running.parents();
    running.pass(ms(1000), &behind(&[2, 3, 4]));
    assert_eq!((running.demoted(), running.parents()), (0, before), "what is above all is slow");
    running.report(&behind(&[3, 4]));
    assert_eq!((running.demoted(), running.parent(3, 0)), (1, SOURCE));
    assert_trees(SOURCE, &running.parents());
    assert!(running.parents().values().all(|parents| parents[0] != 2), "it is a leaf");
    running.report(&behind(&[3, 5]));
    assert_eq!(running.demoted(), 1, "not again at once");
}

#[test]
fn who_alone_complains_of_a_parent_gets_another() {
    let behind = |n: u8, stripe: u8| (ms(0), if (n, stripe) == (3, 0) { ms(301) } else { ms(0) });
    let mut running = Running::begun(&[2, 3, 4, 5]);
    assert_eq!([3, 4, 5].map(|n| running.parent(n, 0)), [2; 3]);
    running.report(&behind);
    assert_eq!((running.demoted(), running.replaced()), (0, 1));
    assert_eq!([4, 5].map(|n| running.parent(n, 0)), [2; 2]);
    assert!([4, 5].contains(&running.parent(3, 0)));
    assert_trees(SOURCE, &running.parents());
}

/// In a short queue any flow may lose its window for a while.
#[test]
fn whose_children_do_not_mostly_complain_or_who_has_nothing_yet_is_not_slow() {
    let behind = |held_up: &'static [u8]| {
        move |n: u8, stripe: u8| (ms(0), if stripe == 0 && held_up.contains(&n) { ms(301) } else { ms(0) })
    };
    let mut running = Running::begun(&[2, 3, 4, 5, 6]);
    let root = running.parents().iter().find(|(_, parents)| parents[0] == SOURCE).map(|(n, _)| *n).unwrap();
    assert_eq!((root, [3, 4, 5, 6].map(|n| running.parent(n, 0))), (2, [2; 4]));
    running.report(&behind(&[3, 4]));
    assert_eq!(running.demoted(), 0, "half of them");
    running.report(&behind(&[4, 5, 6]));
    assert_eq!(running.demoted(), 1);

    // Nothing of any stripe has come to anybody yet.
    let mut running = Running::begun(&[2, 3, 4, 5, 6]);
    let before = running.parents();
    for (n, record) in running.records().clone() {
        let view = |flow: &TaskFlow| {
            let behind = if n > 2 && flow.index == 0 { ms(301) } else { ms(0) };
            headwater_wire::FlowView { behind, bytes: Bytes::ZERO, ..delivering(flow.flow, 0) }
        };
        let views = record.flows.iter().map(view).collect();
        running.bench.feedback(n, record.task, 1000, record.flows_version, views);
    }
    running.bench.confirm();
    assert_eq!((running.demoted(), running.parents()), (0, before));
}

#[test]
fn a_stripe_that_nobody_else_has_is_begun_anew_by_its_source() {
    let mut running = Running::begun(&[2, 3]);
    let before = running.flow(2, 0);
    assert_eq!(before.node, node(SOURCE));
    let silent = |silent: Duration| {
        move |n: u8, stripe: u8| (if (n, stripe) == (2, 0) { silent } else { ms(0) }, ms(0))
    };
    running.report(&silent(ms(2000)));
    assert_eq!(running.flow(2, 0), before);
    running.report(&silent(ms(2001)));
    let after = running.flow(2, 0);
    assert_eq!((after.node, running.replaced()), (before.node, 1));
    assert_ne!(after.flow, before.flow);
    assert_eq!(running.bench.stops(SOURCE).pop(), Some(before.flow));
    // It has time to begin.
    running.pass(ms(3000), &well);
    assert_eq!(running.flow(2, 0), after);
}

/// Nobody else could send it the stripe: all have it by way of that node.
#[test]
fn where_the_first_of_a_tree_distrusts_the_source_one_below_it_takes_its_place() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    let task = running.records()[&2].task;
    assert_eq!([2, 3, 4, 5].map(|n| running.parent(n, 0)), [SOURCE, 2, 2, 2]);
    running.bench.say(2, ToController::Distrust { task, node: node(SOURCE) });
    assert_trees(SOURCE, &running.parents());
    assert_ne!(running.parent(2, 0), SOURCE);
}

#[test]
fn where_all_that_could_have_a_stripe_distrust_the_source_nobody_moves() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    let tasks: Vec<_> = running.records().iter().map(|(n, record)| (*n, record.task)).collect();
    for (n, task) in tasks {
        running.bench.say(n, ToController::Distrust { task, node: node(SOURCE) });
    }
    let before = running.bench.controller.stats().flows_opened;
    running.pass(ms(400), &well);
    assert_eq!(running.bench.controller.stats().flows_opened, before);
}

#[test]
fn whom_two_had_wrong_bytes_from_becomes_a_leaf_and_one_accuser_moves_but_itself() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    running.report(&well);
    let accuse = |running: &mut Running, n: u8| {
        let task = running.records()[&n].task;
        running.bench.say(n, ToController::Distrust { task, node: node(2) });
        [3, 4, 5].map(|n| running.parent(n, 0) == 2)
    };
    assert_eq!(accuse(&mut running, 3), [false, true, true]);
    assert_eq!(accuse(&mut running, 3), [false, true, true], "it has said so before");
    assert_eq!((running.demoted(), running.parent(2, 0)), (0, SOURCE));
    assert_eq!(accuse(&mut running, 4), [false; 3]);
    assert_trees(SOURCE, &running.parents());
    assert!(running.parents().values().all(|parents| !parents.contains(&2)), "{:?}", running.parents());
    // Nor does it get children anew.
    let leave = |n: u8, stripe: u8| (if n == 5 && stripe == 0 { ms(501) } else { ms(0) }, ms(0));
    running.pass(ms(600), &leave);
    assert!(running.replaced() > 0 && running.parent(5, 0) != 2, "{:?}", running.parents());
}

#[test]
fn a_source_in_the_same_rack_is_better_than_a_receiver_elsewhere() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    for n in [3, 6] {
        running.bench.say(n, ToController::Hello(in_rack(n, "b")));
    }
    running.bench.say(6, ToController::Hold(holding(1)));
    running.report(&|n, stripe| (if (n, stripe) == (3, 0) { ms(501) } else { ms(0) }, ms(0)));
    assert_eq!(running.parent(3, 0), 6);
}

#[test]
fn to_whom_a_stripe_does_not_come_sends_it_to_nobody() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    // What is slow is above all of them, but for the one that is looked at.
    running.report(&|n, stripe| (ms(0), if stripe == 0 && [4, 5].contains(&n) { ms(1) } else { ms(0) }));
    running.report(&|n, stripe| {
        let silent = if (n, stripe) == (3, 0) { ms(501) } else { ms(0) };
        (silent, if stripe == 0 && [4, 5].contains(&n) { ms(1) } else { ms(0) })
    });
    assert_eq!(running.parent(3, 0), SOURCE);
}

#[test]
fn a_stripe_that_may_not_change_yet_keeps_no_other_from_it() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    let task = running.records()[&2].task;
    running.bench.say(2, ToController::Distrust { task, node: node(SOURCE) });
    let before = running.parents()[&5].clone();
    running.report(&|n, stripe| (ms(0), if n == 5 && stripe < 2 { ms(301) } else { ms(0) }));
    let after = running.parents()[&5].clone();
    assert!(before[0] == after[0] && before[1] != after[1], "{before:?} {after:?}");
}

#[test]
fn the_stripes_of_a_node_that_is_about_to_stop_come_from_others() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    running.bench.say(2, ToController::Leaving);
    let mut parents = running.parents();
    assert!(parents.values().flatten().all(|parent| *parent != 2), "{parents:?}");
    parents.remove(&2);
    assert_trees(SOURCE, &parents);
}

#[test]
fn the_trees_outlast_their_controller_and_are_mended_by_the_next() {
    let mut before = Running::begun(&[2, 3, 4, 5]);
    let trees = before.parents();
    let mut running = Running { bench: bench_anew(), records: before.records().clone() };
    for record in before.records.values() {
        running.bench.command(ControllerCommand::Restore(Box::new(record.clone())));
    }
    running.bench = running.bench.holders([SOURCE]);
    (2..=5).for_each(|n| running.bench.join(n));
    running.bench.command(ControllerCommand::Returned);
    running.pass(ms(3000), &well);
    assert_eq!((running.parents(), running.replaced()), (trees, 0));
    // 2 is above all others: nobody else has it.
    running.report(&|n, stripe| (if n < 4 && stripe == 0 { ms(600) } else { ms(0) }, ms(0)));
    assert_eq!(running.parent(2, 0), SOURCE);
    assert_ne!(running.parent(3, 0), 2);
    assert_trees(SOURCE, &running.parents());
}

fn bench_anew() -> Bench {
    Bench::with(headwater_controller::ControllerConfig { groups: Vec::new(), ..Default::default() })
}

/// A receiver that starts anew asks again: what it asked before is given up after a minute.
#[test]
fn who_asks_anew_belongs_to_the_overlay_when_its_first_task_has_ended() {
    let mut running = Running::begun(&[2, 3, 4, 5]);
    running.bench.lose_path(5);
    running.bench.say(5, ToController::Hello(NodeInfo { incarnation: 2, ..info(5) }));
    let first = running.records()[&5].task;
    let second = running.bench.ask(5, Request { request: 2, ..wish(5) }).task;
    assert_eq!(running.records()[&5].task, second);
    running.pass(ms(61_000), &well);
    let tasks: Vec<_> = running.bench.view().tasks.iter().map(|task| task.task).collect();
    assert!(tasks.contains(&second) && !tasks.contains(&first));
    let parent = running.parent(5, 3);
    running.bench.say(parent, ToController::Leaving);
    let next = running.parent(5, 3);
    assert!(next != parent && next != SOURCE, "{next}");
}

/// By receiver: hops to it from the source, the most of all stripes.
fn hops(parents: &BTreeMap<u8, Vec<u8>>) -> BTreeMap<u8, usize> {
    let hops = |n: u8, stripe: usize| {
        std::iter::successors(Some(n), |at| Some(parents.get(at)?[stripe])).count() - 1
    };
    let most =
        |(n, its): (&u8, &Vec<u8>)| (*n, (0..its.len()).map(|stripe| hops(*n, stripe)).max().unwrap_or(0));
    parents.iter().map(most).collect()
}

#[test]
fn many_that_come_one_after_the_other_while_nobody_has_anything_are_no_chain() {
    let mut running = Running::begun(&(2..12).collect::<Vec<_>>());
    for n in 12..42 {
        running.bench.join(n);
        running.bench.ask(n, wish(n));
        running.bench.pass(ms(5));
    }
    let parents = running.parents();
    assert_trees(SOURCE, &parents);
    let most = hops(&parents).into_values().max();
    assert!(most <= Some(8), "{most:?}");
    // The flows are as the trees are.
    running.pass(ms(1000), &well);
    assert_eq!((running.parents(), running.replaced(), running.demoted()), (parents, 0, 0));
}

#[test]
fn who_has_some_of_it_does_not_come_to_stand_below_one_that_has_nothing() {
    let mut running = Running::begun(&(2..12).collect::<Vec<_>>());
    // Nearly all are here: a thousand symbols are wanted.
    running.pass(ms(200), &well);
    let before = running.parents();
    for n in 12..20 {
        running.bench.join(n);
        running.bench.ask(n, wish(n));
    }
    let after = running.parents();
    assert_trees(SOURCE, &after);
    assert!(before.iter().all(|(n, parents)| after[n] == *parents));
}
