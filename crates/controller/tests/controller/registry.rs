//! Nodes that are here, objects that are held, messages that are refused, and how much is remembered.

use headwater_controller::{ControllerCommand, ControllerConfig, ControllerEvent, NotForgotten, Origin};
use headwater_machine::{Endpoint, Input, Packet};
use headwater_units::{BitRate, Bytes, Duration, PathId};
use headwater_wire::{
    Body, Cast, CastWish, Class, Control, Datagram, Holding, NodeInfo, Outcome, Refusal, ToController,
    ToNode, ToReceiver,
};

use crate::harness::{Bench, holding, info, ms, node, object, path, request};

fn refusal(bench: &mut Bench, n: u8, name: &str) -> Option<Refusal> {
    bench.say(n, ToController::Request(request(n, 900, name)));
    refused(bench, n)
}

fn refused(bench: &mut Bench, n: u8) -> Option<Refusal> {
    bench.heard(n).into_iter().find_map(|control| match control {
        Control::Receiver(ToReceiver::Refused { request: 900, reason }) => Some(reason),
        _ => None,
    })
}

#[test]
fn a_hello_makes_a_node_known_and_a_lost_path_sends_it_away() {
    let mut bench = Bench::new();
    bench.join(1);
    bench.join(1);
    assert_eq!(bench.events, [ControllerEvent::NodeUp(Box::new(info(1)))], "said twice, heard once");
    bench.lose_path(1);
    bench.lose_path(1);
    assert_eq!(bench.events[1..], [ControllerEvent::NodeDown { node: node(1) }]);
    assert!(!bench.view().nodes[0].here);
    bench.join(1);
    assert!(bench.view().nodes[0].here);
}

#[test]
fn the_newest_path_of_a_node_wins() {
    let mut bench = Bench::new().holders([1]);
    bench.open_as(path(50), 1);
    bench.say_at(path(50), Control::Controller(ToController::Hello(info(1))));
    let task = bench.get(9).task;
    assert_eq!(bench.pushes(50).len(), 1);
    assert!(bench.pushes(1).is_empty());
    bench.lose_path(1); // The old one: of no importance.
    assert!(bench.view().nodes[0].here);
    assert_eq!(bench.sources(task), [1]);
}

#[test]
fn what_a_stranger_holds_is_not_believed() {
    let mut bench = Bench::new();
    bench.say(1, ToController::Hold(holding(1)));
    assert!(bench.view().objects.is_empty());
    assert_eq!(bench.controller.stats().strangers, 1);
}

#[test]
fn an_unknown_name_is_told_from_one_whose_holders_are_away() {
    let mut bench = Bench::new().holders([1]);
    assert_eq!(refusal(&mut bench, 9, "never-heard-of"), Some(Refusal::UnknownObject));
    bench.lose_path(1);
    assert_eq!(refusal(&mut bench, 9, "object-1"), Some(Refusal::NoSource));
    bench.join(1);
    bench.say(1, ToController::Drop { object: object(1) });
    assert_eq!(refusal(&mut bench, 9, "object-1"), Some(Refusal::NoSource));
    assert_eq!(refusal(&mut bench, 9, &object(1).to_string()), Some(Refusal::NoSource));
}

#[test]
fn an_object_can_be_asked_for_by_its_id() {
    let mut bench = Bench::new().holders([1]);
    assert_eq!(bench.ask(9, request(9, 1, &object(1).to_string())).object, object(1));
}

#[test]
fn a_restarted_node_holds_nothing_until_it_says_so() {
    let mut bench = Bench::new().holders([1]);
    bench.say(1, ToController::Hello(NodeInfo { incarnation: 2, ..info(1) }));
    assert_eq!(refusal(&mut bench, 9, "object-1"), Some(Refusal::NoSource));
    bench.say(1, ToController::Hold(holding(1)));
    assert_eq!(bench.get(9).flows.len(), 1);
}

#[test]
fn a_size_that_contradicts_another_holder_is_not_believed() {
    let mut bench = Bench::new().holders([1]);
    bench.join(2);
    bench.say(2, ToController::Hold(Holding { bytes: Bytes::new(1), ..holding(1) }));
    assert_eq!(bench.controller.stats().holdings_refused, 1);
    let view = bench.view();
    assert_eq!((view.objects[0].bytes, view.objects[0].holders.len()), (Bytes::mib(10), 1));
}

/// One that lies about a size and comes first: the size that more networks state is believed, and of equals another one once a receiver
/// has failed. Tasks that were told the wrong size end.
#[test]
fn whoever_states_a_wrong_size_first_does_not_keep_honest_holders_out() {
    let lie = || Control::Controller(ToController::Hold(Holding { bytes: Bytes::new(1), ..holding(1) }));
    let believed = |bench: &Bench| {
        let object = bench.view().objects[0].clone();
        (object.bytes, object.holders.iter().map(|node| node.0[0]).collect::<Vec<_>>())
    };
    let (wrong, right) = (Bytes::new(1), Bytes::mib(10));
    let lied_to = || {
        let mut bench = Bench::new();
        bench.open_from([192, 0, 2, 7], [101, 102, 103]);
        bench.open_from([10, 0, 0, 1], [1]);
        bench.open_from([10, 0, 0, 2], [2]);
        [101, 102, 103].into_iter().for_each(|n| bench.join(n));
        [101, 102, 103].into_iter().for_each(|n| bench.say(n, lie()));
        bench.join(1);
        bench.say(1, ToController::Hold(holding(1)));
        assert_eq!(believed(&bench), (wrong, vec![101, 102, 103]), "of equals the first");
        bench
    };
    let mut bench = lied_to();
    bench.join(2);
    bench.say(2, ToController::Hold(holding(1)));
    assert_eq!(believed(&bench), (right, vec![1, 2]), "of two networks, against many keys of one");
    bench.say(102, lie());
    assert_eq!(believed(&bench), (right, vec![1, 2]));

    let mut bench = lied_to();
    let (told, late) = (bench.get(9), bench.ask(8, request(8, 1, "object-1")));
    assert!(told.flows.iter().all(|flow| flow.node.0[0] > 100));
    bench.say(9, ToController::Fin { task: told.task, outcome: Outcome::Failed });
    assert_eq!(believed(&bench), (right, vec![1]), "a receiver has failed");
    assert!(bench.view().tasks.is_empty(), "{late:?} has ended, too");
    let again = bench.ask(8, request(8, 2, "object-1"));
    assert_eq!(again.flows.iter().map(|flow| flow.node.0[0]).collect::<Vec<_>>(), [1]);

    // Whoever states another size has spoken with that.
    let mut bench = Bench::new();
    bench.open_from([10, 0, 0, 1], [1]);
    bench.open_from([192, 0, 2, 7], [101, 102]);
    [1, 101].into_iter().for_each(|n| bench.join(n));
    bench.say(1, ToController::Hold(holding(1)));
    bench.say(101, lie());
    let task = bench.get(102).task;
    bench.say(102, ToController::Fin { task, outcome: Outcome::Failed });
    assert_eq!(believed(&bench), (right, vec![1]));
    // What a forgotten node held of the believed size is held of another one.
    bench.lose_path(1);
    bench.command(ControllerCommand::ForgetNode { node: node(1) });
    assert_eq!(believed(&bench), (wrong, vec![101]));

    let mut bench = lied_to();
    [101, 102, 103].into_iter().for_each(|n| bench.say(n, ToController::Drop { object: object(1) }));
    assert_eq!(believed(&bench), (right, vec![1]), "nobody states another");
    bench.say(1, ToController::Drop { object: object(1) });
    assert_eq!(believed(&bench).1, [0; 0]);
}

#[test]
fn a_receiver_is_never_its_own_source() {
    let mut bench = Bench::new().holders([1]);
    assert_eq!(refusal(&mut bench, 1, "object-1"), Some(Refusal::NoSource));
    bench = bench.holders([2, 3]);
    let task = bench.get(1).task;
    assert_eq!(bench.sources(task), [2, 3]);
}

#[test]
fn nobody_asks_in_the_name_of_another_node() {
    let mut bench = Bench::new().holders([1, 2]);
    bench.say(2, ToController::Request(request(9, 1, "object-1")));
    assert!(bench.view().tasks.is_empty());
    assert_eq!(bench.controller.stats().strangers, 1);
}

#[test]
fn tables_are_bounded_and_say_so() {
    let config = ControllerConfig {
        max_nodes: 3,
        max_objects: 4,
        max_objects_per_node: 3,
        max_names: 4,
        max_tasks: 2,
        ..ControllerConfig::default()
    };
    let mut bench = Bench::with(config).holders([1, 2]);
    for n in 2..200 {
        bench.say(1, ToController::Hold(holding(n)));
    }
    assert_eq!(bench.view().objects.len(), 3, "of one node");
    assert_eq!(bench.controller.stats().holdings_refused, 196);
    // Objects that nobody holds any more make room.
    for n in 1..200 {
        bench.say(2, ToController::Hold(holding(n)));
        bench.say(2, ToController::Drop { object: object(n) });
    }
    assert_eq!(bench.view().objects.len(), 4);
    let names: usize = bench.view().objects.iter().map(|o| o.names.len()).sum();
    assert!(names <= 4);
    // Nodes that are away and serve nothing make room, others do not.
    bench.join(3);
    bench.join(4);
    assert_eq!(bench.controller.stats().nodes_refused, 1);
    bench.lose_path(3);
    bench.join(4);
    assert_eq!(bench.view().nodes.iter().map(|n| n.info.node.0[0]).collect::<Vec<_>>(), [1, 2, 4]);
    // Tasks.
    bench.get(8);
    bench.get(9);
    assert_eq!(refusal(&mut bench, 7, "object-1"), Some(Refusal::Full));
    assert_eq!(bench.view().tasks.len(), 2);
}

#[test]
fn messages_that_nobody_sends_a_controller_are_counted_and_ignored() {
    let mut bench = Bench::new().holders([1]);
    bench.say(1, ToReceiver::FinAck { task: headwater_units::TaskId(1) });
    let body = Body::FinAck;
    let packet = headwater_machine::Packet {
        datagram: Datagram {
            body,
            ..Packet::control(path(1), ToController::Drop { object: object(1) }).datagram
        },
        ..Packet::control(path(1), ToController::Drop { object: object(1) })
    };
    bench.controller.handle(bench.now, Input::Packet(packet));
    bench.pass(ms(1));
    assert_eq!(bench.controller.stats().unexpected, 2);
    assert!(bench.sent.is_empty());
}

#[test]
fn a_controller_that_knows_no_task_sleeps() {
    let mut bench = Bench::new().holders([1, 2]);
    assert_eq!(bench.wake, None);
    let task = bench.get(9).task;
    assert!(bench.wake.is_some());
    bench.confirm();
    bench.say(9, ToController::Fin { task, outcome: headwater_wire::Outcome::Done });
    for (n, flow) in
        [1, 2].into_iter().flat_map(|n| bench.stops(n).into_iter().map(move |f| (n, f))).collect::<Vec<_>>()
    {
        bench.say(n, ToController::Stopped { flow });
    }
    bench.pass(ms(1000));
    assert_eq!(bench.wake, None);
}

#[test]
fn the_view_can_be_written_down() {
    let mut bench = Bench::new();
    bench.say(1, ToController::Hello(NodeInfo { uplink: Some(BitRate::new(1_000_000)), ..info(1) }));
    bench.say(1, ToController::Hold(holding(1)));
    bench.get(9);
    let view = bench.view();
    assert_eq!(view.objects[0].names, ["object-1"]);
    assert_eq!(view.objects[0].holders, [node(1)]);
    assert_eq!((view.nodes[0].flows, view.tasks[0].flows.len()), (1, 1));
    let _ = bench.pushes(1);
}

#[test]
fn after_a_restart_an_unknown_name_waits_for_whoever_holds_it_to_come_back() {
    let mut bench = Bench::new();
    bench.command(ControllerCommand::Returned);
    for n in [7, 8, 9] {
        assert_eq!(refusal(&mut bench, n, "object-1"), None);
    }
    bench.say(9, ToController::Request(request(9, 900, "object-1"))); // Said again.
    assert_eq!(refusal(&mut bench, 6, "object-2"), None);
    let cast = Cast {
        cast: 1,
        name: "object-1".to_owned(),
        to: vec![node(9)],
        first: 0,
        of: 0,
        class: Class::Bulk,
        wish: CastWish::Best,
    };
    bench.say_at(PathId(1000), Control::Controller(ToController::Cast(cast)));
    bench.lose_path(8);
    bench.pass(ms(1000));
    assert!(bench.sent.is_empty(), "{:?}", bench.sent);
    bench = bench.holders([1]);
    let accepted = |control: &Control| matches!(control, Control::Receiver(ToReceiver::Accepted { .. }));
    assert!(bench.heard(7).iter().any(accepted));
    assert_eq!(bench.heard(9).iter().filter(|control| accepted(control)).count(), 1);
    assert!(bench.heard(8).is_empty(), "it has gone");
    bench.pass(ms(200));
    assert!(
        bench
            .sent
            .iter()
            .any(|(path, it)| *path == PathId(1000)
                && !matches!(it, Control::Node(ToNode::CastRefused { .. })))
    );
    bench.pass(ms(8_700));
    assert_eq!(refused(&mut bench, 6), None);
    bench.pass(ms(200));
    assert_eq!(refused(&mut bench, 6), Some(Refusal::UnknownObject), "nobody has come back with it");
    assert_eq!(refusal(&mut bench, 6, "object-2"), Some(Refusal::UnknownObject), "at once from now on");
}

#[test]
fn a_node_that_is_away_is_forgotten_with_what_only_it_held_and_one_that_is_here_stays() {
    let mut bench = Bench::new().holders([1, 2]);
    bench.say(2, ToController::Hold(holding(2)));
    let known = |bench: &Bench| {
        let view = bench.view();
        let nodes: Vec<u8> = view.nodes.iter().map(|node| node.info.node.0[0]).collect();
        let objects: Vec<u8> = view.objects.iter().map(|object| object.object.0[0]).collect();
        (nodes, objects)
    };
    bench.command(ControllerCommand::ForgetNode { node: node(2) });
    assert_eq!(known(&bench), (vec![1, 2], vec![1, 2]), "it is here");
    bench.lose_path(2);
    bench.command(ControllerCommand::ForgetNode { node: node(2) });
    bench.command(ControllerCommand::ForgetNode { node: node(2) });
    assert_eq!(known(&bench), (vec![1], vec![1]));
    bench.say(3, ToController::Request(request(3, 1, "object-2")));
    assert_eq!(
        bench.heard(3),
        [Control::Receiver(ToReceiver::Refused { request: 1, reason: Refusal::UnknownObject })]
    );
    bench.join(2);
    bench.say(2, ToController::Hold(holding(2)));
    assert_eq!(known(&bench), (vec![1, 2], vec![1, 2]), "it may come back");
}

/// A stranger may speak by a key of its own, but has no node here: it takes nothing from a node that restarts.
#[test]
fn a_node_is_forgotten_for_this_machine_at_once_for_those_of_nodes_later_and_for_strangers_never() {
    let mut bench = Bench::new();
    let from = |n: u8| Origin::Elsewhere([10, 0, 0, n].into());
    for n in 1..=4 {
        bench.open_from([10, 0, 0, n], [n]);
        bench.say(n, ToController::Hello(NodeInfo { seen: Some([10, 0, 0, n].into()), ..info(n) }));
    }
    bench.pass(Duration::from_secs(10));
    (1..=2).for_each(|n| bench.lose_path(n));
    let asked = |bench: &mut Bench, n: u8, from: Origin| {
        let said = bench.controller.may_forget(bench.now, node(n), from).map(|info| info.node);
        if said == Ok(node(n)) {
            bench.command(ControllerCommand::ForgetNode { node: node(n) });
        }
        said.map(|_| ())
    };
    bench.pass(Duration::from_secs(10));
    let wait = Duration::from_secs(590);
    assert_eq!(asked(&mut bench, 1, from(3)), Err(NotForgotten::TooSoon { wait }));
    assert_eq!(asked(&mut bench, 4, from(3)), Err(NotForgotten::Connected));
    assert_eq!(asked(&mut bench, 8, from(3)), Err(NotForgotten::Unknown));
    assert_eq!(asked(&mut bench, 2, Origin::Here), Ok(()), "at once");
    bench.pass(Duration::from_secs(590));
    assert_eq!(asked(&mut bench, 1, from(9)), Err(NotForgotten::NotFromThere));
    assert_eq!(asked(&mut bench, 1, from(1)), Err(NotForgotten::NotFromThere), "it is away");
    assert_eq!(asked(&mut bench, 1, from(3)), Ok(()));
    assert_eq!(asked(&mut bench, 1, from(3)), Err(NotForgotten::Unknown));
}

/// A task that a forgotten node served goes on with others; one that nobody else can serve waits.
#[test]
fn a_task_goes_on_without_a_source_that_is_forgotten() {
    let mut bench = Bench::new().holders([1, 2]);
    let task = bench.get(9).task;
    bench.confirm();
    bench.lose_path(2);
    bench.command(ControllerCommand::ForgetNode { node: node(2) });
    assert_eq!(bench.sources(task), [1]);
    bench.lose_path(1);
    bench.command(ControllerCommand::ForgetNode { node: node(1) });
    assert_eq!(bench.sources(task), [0; 0]);
    bench.join(1);
    bench.say(1, ToController::Hold(holding(1)));
    assert_eq!(bench.sources(task), [1]);
}
