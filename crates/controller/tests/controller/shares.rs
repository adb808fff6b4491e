//! No peer fills a table alone, and no network: whoever comes beside one that takes all it can finds room.

use headwater_controller::{ControllerCommand, ControllerConfig, NameRecord};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_units::{Bytes, Duration, NodeId, ObjectId, PathId};
use headwater_wire::{
    Cast, CastWish, Claim, ClaimRule, Class, CoflowName, CoflowTotal, CoflowTotals, Control, Holding,
    MAX_COFLOWS, Naming, NodeInfo, Refusal, Request, StandingCast, ToController, ToNode, ToReceiver,
    WhyUnnamed,
};

use crate::harness::{Bench, info, ms, node, request};

/// The network of nodes 100 to 109, which take all they can.
const FLOOD: [u8; 4] = [192, 0, 2, 7];

fn flooded(config: ControllerConfig) -> Bench {
    let mut bench = Bench::with(config).holders([1]);
    bench.open_from(FLOOD, 100..110);
    bench
}

/// What node `n` is refused, if it is.
fn refusals(bench: &mut Bench, n: u8) -> Vec<Refusal> {
    let refusal = |control| match control {
        Control::Receiver(ToReceiver::Refused { reason, .. })
        | Control::Node(ToNode::CastRefused { reason, .. }) => Some(reason),
        _ => None,
    };
    bench.heard(n).into_iter().filter_map(refusal).collect()
}

fn cast(number: u64, to: Vec<u8>, first: u32, of: u32) -> ToController {
    ToController::Cast(Cast {
        cast: number,
        name: "object-1".to_owned(),
        to: to.into_iter().map(node).collect(),
        first,
        of,
        class: Class::Bulk,
        wish: CastWish::Unicast,
    })
}

#[test]
fn tasks_of_one_network_leave_room_for_those_of_others() {
    let mut bench = flooded(ControllerConfig { max_tasks: 64, ..ControllerConfig::default() });
    for n in 100..110 {
        for number in 0..64 {
            bench.say(n, ToController::Request(request(n, number, "object-1")));
        }
    }
    let of = |bench: &Bench, n: u8| bench.view().tasks.iter().filter(|it| it.receiver == node(n)).count();
    assert_eq!((of(&bench, 100), of(&bench, 101), of(&bench, 102)), (16, 16, 0));
    assert!(refusals(&mut bench, 100).iter().all(|reason| *reason == Refusal::Full));
    for n in 10..42 {
        bench.say(n, ToController::Request(request(n, 1, "object-1")));
        assert_eq!(of(&bench, n), 1);
    }
    // What ends makes room.
    let over = bench.view().tasks.iter().find(|it| it.receiver == node(100)).unwrap().task;
    bench.say(100, ToController::Fin { task: over, outcome: headwater_wire::Outcome::Cancelled });
    bench.say(109, ToController::Request(request(109, 99, "object-1")));
    assert_eq!(of(&bench, 109), 1);
}

/// Goal: 10,000 nodes behind one address have a task each, beside another network that takes all it can; here a sixteenth of all that.
#[test]
fn many_nodes_of_one_network_have_a_task_each_beside_one_that_floods() {
    let most = ControllerConfig::default().max_tasks;
    assert!(most / 2 >= 10_000);
    let mut bench = flooded(ControllerConfig { max_tasks: most / 16, ..ControllerConfig::default() });
    let mut controller = std::mem::replace(&mut bench, Bench::new()).controller;
    let now = bench.now;
    let mut ask = |key: u32, network: [u8; 4], requests: std::ops::Range<u64>| {
        let mut node = [200; 32];
        node[..4].copy_from_slice(&key.to_be_bytes());
        let (path, node) = (PathId(1000 + key), NodeId(node));
        let opened = ControllerCommand::PathOpened { path, node, network: Some(network.into()) };
        controller.handle(now, Input::Command(opened));
        for number in requests {
            let request = Request { receiver: node, ..request(0, number, "object-1") };
            controller.handle(now, Input::Packet(Packet::control(path, ToController::Request(request))));
            while !matches!(controller.poll(now), Output::Wake(_)) {}
        }
        controller.running_tasks()
    };
    let flood = (0..5).map(|key| ask(key, FLOOD, 0..600)).last();
    assert_eq!(flood, Some(most / 32));
    let honest = (10..10 + 10_000 / 16).map(|key| ask(key, [10, 0, 0, 1], 0..1)).last();
    assert_eq!(honest, Some(most / 32 + 10_000 / 16));
}

#[test]
fn casts_of_one_network_leave_room_for_those_of_others() {
    let mut bench = flooded(ControllerConfig { max_casts: 16, ..ControllerConfig::default() });
    bench.join(2);
    bench.say(2, ToController::Keeps);
    for number in 0..40 {
        bench.say(100 + (number % 10) as u8, cast(number, vec![2], 0, 1));
    }
    assert_eq!(bench.view().casts.len(), 8);
    assert!((100..110).any(|n| refusals(&mut bench, n).contains(&Refusal::Full)));
    bench.say(3, cast(50, vec![2], 0, 1));
    assert_eq!((bench.view().casts.len(), refusals(&mut bench, 3)), (9, vec![]));
    bench.say(100, ToController::StopCast { cast: 0 });
    bench.pass(ms(1000));
    bench.say(109, cast(51, vec![2], 0, 1));
    assert!(bench.view().casts.iter().any(|it| it.cast == 51));
}

#[test]
fn casts_whose_receivers_are_never_all_named_leave_room_and_are_forgotten() {
    let config = ControllerConfig { max_casts: 16, max_receivers: 64, ..ControllerConfig::default() };
    let mut bench = flooded(config);
    bench.join(2);
    bench.say(2, ToController::Keeps);
    for number in 0..8 {
        bench.say(100, cast(number, vec![2; 60], 0, 64));
    }
    assert_eq!(refusals(&mut bench, 100), [const { Refusal::Full }; 4], "four of sixteen");
    bench.say(101, cast(20, vec![2; 63], 0, 64));
    bench.say(101, cast(20, vec![2; 1], 63, 64));
    assert_eq!(bench.view().casts.len(), 1, "one of the same network");
    // Names without end are no more than those of four full casts.
    for number in 30..34 {
        bench.say(3, cast(number, vec![2; 63], 0, 64));
        bench.say(3, cast(number, vec![2; 63], 63, 64));
    }
    bench.heard(3);
    bench.pass(Duration::from_secs(11));
    bench.say(100, cast(9, vec![2; 60], 0, 64));
    assert_eq!(refusals(&mut bench, 100), [], "what was not named in time is forgotten");
}

#[test]
fn standing_casts_of_one_network_leave_room_for_those_of_others() {
    let mut bench = flooded(ControllerConfig::default());
    let mut ask = |n: u8, number: u64| {
        let labels = [("zone".to_owned(), number.to_string())].into();
        let cast = StandingCast { name: "object-1".to_owned(), labels };
        bench.say(n, ToController::StandingCast { number, cast, stands: true });
        refusals(&mut bench, n).is_empty()
    };
    let granted = (0..1024).filter(|number| ask(100, *number)).count();
    let by_others = (1024..4096).filter(|number| ask(101 + (number % 9) as u8, *number)).count();
    assert_eq!((granted, by_others), (256, 256));
    assert!(ask(3, 5000));
}

#[test]
fn coflows_of_one_network_leave_room_for_those_of_others() {
    let mut bench = flooded(ControllerConfig::default());
    let mut ranked = |n: u8, from: usize| {
        let name = |number: usize| CoflowName { application: "job".to_owned(), number: number as u64 };
        let coflow = |number| CoflowTotal { name: name(number), here: Bytes::ZERO, pairs: Vec::new() };
        let coflows = (from..from + MAX_COFLOWS).map(coflow).collect();
        bench.say(n, ToController::Coflows(CoflowTotals { host: format!("host-{n}"), coflows }));
        match bench.heard(n).pop() {
            Some(Control::Node(ToNode::CoflowRanks(ranks))) => ranks.len(),
            other => panic!("no answer: {other:?}"),
        }
    };
    // A quarter of 65,536 for each of two agents; none for the third.
    let reports = 65_536 / 4 / MAX_COFLOWS;
    let first: usize = (0..=reports).map(|n| ranked(100, n * MAX_COFLOWS)).sum();
    let second: usize = (0..=reports).map(|n| ranked(101, (1000 + n) * MAX_COFLOWS)).sum();
    assert_eq!((first, second, ranked(102, 2000 * MAX_COFLOWS)), (16_384, 16_384, 0));
    assert_eq!(ranked(3, 3000 * MAX_COFLOWS), MAX_COFLOWS);
}

fn id(n: usize) -> ObjectId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&n.to_be_bytes());
    ObjectId(id)
}

/// The n-th object, without a name.
fn nth(n: usize) -> ToController {
    ToController::Hold(Holding { object: id(n), bytes: Bytes::mib(1), name: None })
}

/// Objects that node `n` holds.
fn held(bench: &Bench, n: u8) -> usize {
    bench.view().objects.iter().filter(|it| it.holders.contains(&node(n))).count()
}

#[test]
fn objects_of_one_network_leave_room_for_those_of_others() {
    let mut bench = flooded(ControllerConfig { max_objects: 64, ..ControllerConfig::default() });
    for n in [100, 101, 102, 3] {
        bench.join(n);
        (0..20).for_each(|k| bench.say(n, nth(usize::from(n) * 1000 + k)));
    }
    assert_eq!([100, 101, 102, 3].map(|n| held(&bench, n)), [16, 16, 0, 16]);
    // Another's objects are free, and count for whoever holds them on.
    (0..16).for_each(|k| bench.say(102, nth(100_000 + k)));
    (0..16).for_each(|k| bench.say(100, ToController::Drop { object: id(100_000 + k) }));
    assert_eq!([100, 102].map(|n| held(&bench, n)), [0, 16]);
    (0..16).for_each(|k| bench.say(100, nth(200_000 + k)));
    assert_eq!(held(&bench, 100), 0, "the network has its half");
    (0..16).for_each(|k| bench.say(102, ToController::Drop { object: id(100_000 + k) }));
    (0..16).for_each(|k| bench.say(100, nth(200_000 + k)));
    assert_eq!(held(&bench, 100), 16);
}

/// Names that a node says of objects count also where they are another's, and where they are said of many objects.
#[test]
fn what_a_node_says_of_its_objects_is_bounded_in_bytes_with_the_names_that_it_says() {
    let config = ControllerConfig {
        max_said_bytes: Bytes::new(100_000),
        max_said_bytes_of_node: Bytes::new(10_000),
        ..ControllerConfig::default()
    };
    let mut bench = flooded(config);
    bench.join(100);
    (0..3).for_each(|n| bench.say(100, nth(n)));
    let mut names = 0;
    for n in 0..48 {
        let before = bench.controller.stats().names_refused;
        let name = format!("{n:01000}");
        let holding = Holding { object: id(n % 3), bytes: Bytes::mib(1), name: Some(name) };
        bench.say(100, ToController::Hold(holding));
        names += usize::from(bench.controller.stats().names_refused == before);
    }
    assert_eq!(names, (10_000 - 3 * 128) / 1064, "a name counts with 64 bytes beside its own");
    // What is no longer held is free again, also what a node held before it restarted.
    bench.say(100, ToController::Hello(NodeInfo { incarnation: 2, ..info(100) }));
    (3..73).for_each(|n| bench.say(100, nth(n)));
    assert_eq!(held(&bench, 100), 70);
    (0..73).for_each(|n| bench.say(100, ToController::Drop { object: id(n) }));
    (0..200).for_each(|n| bench.say(100, nth(n)));
    assert_eq!(held(&bench, 100), 10_000 / 128);
    // All nodes of a network have half together, and others find room.
    (101..110).for_each(|n| bench.join(n));
    (101..110).for_each(|n| (0..200).for_each(|k| bench.say(n, nth(k))));
    let all: usize = (100..110).map(|n| held(&bench, n)).sum();
    assert_eq!(all, 50_000 / 128);
    bench.join(3);
    (0..78).for_each(|k| bench.say(3, nth(k)));
    assert_eq!(held(&bench, 3), 78);
}

#[test]
fn a_name_that_an_object_has_no_room_for_is_not_granted_and_not_free_for_others() {
    let mut bench = Bench::new();
    bench.join(1);
    bench.join(2);
    let claim = |n: usize, name: usize| {
        let (number, name) = (name as u64, format!("name-{name}"));
        ToController::Claim(Claim { number, name, object: id(n), at_least: 1, rule: ClaimRule::Give })
    };
    let named = |bench: &Bench| bench.view().objects.iter().map(|it| it.names.len()).sum::<usize>();
    bench.say(1, nth(1));
    (0..17).for_each(|name| bench.say(1, claim(1, name)));
    assert_eq!((named(&bench), bench.controller.stats().names_refused), (16, 1));
    let refused = Control::Node(ToNode::NameRefused { claim: 16, why: WhyUnnamed::TooMany });
    assert!(bench.heard(1).contains(&refused), "whoever claims it is told");
    bench.say(1, claim(1, 3));
    assert_eq!(named(&bench), 16, "one that it has is granted again");
    bench.say(2, nth(2));
    (0..16).for_each(|name| bench.say(2, claim(2, name)));
    assert_eq!(bench.view().objects.iter().map(|it| it.names.len()).collect::<Vec<_>>(), [16, 0]);
    bench.say(1, ToController::Unname { object: id(1), name: "name-0".to_owned() });
    bench.say(1, claim(1, 16));
    assert_eq!(named(&bench), 16);
}

/// After a restart, requests for what nobody has waited for, all from one network, neither end the waiting for nodes nor take the places
/// of others.
#[test]
fn requests_that_wait_for_nodes_to_come_back_leave_room_and_do_not_end_the_waiting() {
    let mut bench = Bench::new();
    bench.command(ControllerCommand::Returned);
    let naming = Naming { name: "prod".into(), object: id(1), generation: 4, owner: node(1) };
    let record = NameRecord { naming: naming.clone(), removed: false };
    bench.command(ControllerCommand::RestoreName(Box::new(record)));
    bench.open_from(FLOOD, 100..110);
    for n in 100..110 {
        for number in 0..1024 {
            let name = format!("nothing-{number}");
            bench.say(n, ToController::Request(request(n, number, &name)));
        }
    }
    let refused: usize = (100..110).map(|n| refusals(&mut bench, n).len()).sum();
    assert_eq!(refused, 10 * 1024 - 512, "half of the places");
    // A name whose owner is on its way back is not granted: not to one with room, nor to one without.
    for n in [102, 2] {
        bench.join(n);
        bench.say(n, nth(2));
        let (number, name) = (7, "prod".to_owned());
        let rule = ClaimRule::Replace;
        bench.say(n, ToController::Claim(Claim { number, name, object: id(2), at_least: 9, rule }));
    }
    let full = Control::Node(ToNode::NameRefused { claim: 7, why: WhyUnnamed::Full });
    assert_eq!((bench.heard(102), bench.heard(2)), (vec![full], vec![]));
    // Others wait.
    bench.say(3, ToController::Request(request(3, 1, "prod")));
    assert_eq!(refusals(&mut bench, 3), []);
    bench.join(1);
    bench.say(1, nth(1));
    bench.say(1, ToController::Named(naming));
    let accepted = |it: &Control| matches!(it, Control::Receiver(ToReceiver::Accepted { object, .. }) if *object == id(1));
    assert!(bench.heard(3).iter().any(accepted));
    let stands =
        |it: &Control| matches!(it, Control::Node(ToNode::NameStands(it)) if it.naming.object == id(1));
    assert!(bench.heard(2).iter().any(stands), "its owner is back");
}
