//! Requests, feedback, silence, the end of a task, and restarts of the controller.

use headwater_controller::{ControllerCommand, ControllerConfig, ControllerEvent, FlowStanding};
use headwater_machine::{Endpoint, Input, Packet};
use headwater_units::{BlockIndex, Duration, PathId, Symbols, TaskId};
use headwater_wire::{Control, NodeInfo, Outcome, Request, SpreadRule, ToController, ToReceiver, ToSource};

use crate::harness::{Bench, holding, info, ms, node, path, request, silent};

#[test]
fn a_request_is_answered_with_at_most_three_sources_and_each_is_told_to_push() {
    let mut bench = Bench::new().holders([1, 2, 3, 4]);
    let accepted = bench.get(9);
    assert_eq!(accepted.flows.iter().map(|f| f.node).collect::<Vec<_>>(), [node(1), node(2), node(3)]);
    assert_eq!(
        accepted.flows.iter().map(|f| (f.index, f.of)).collect::<Vec<_>>(),
        [(0, 64), (1, 64), (2, 64)]
    );
    assert_eq!(accepted.flows[0].at, info(1).data);
    assert_eq!(accepted.symbol_size, 1417);
    for grant in &accepted.flows {
        let pushes = bench.pushes(grant.node.0[0]);
        assert_eq!(pushes.len(), 1);
        assert_eq!(
            (pushes[0].flow, pushes[0].task, pushes[0].receiver),
            (grant.flow, accepted.task, node(9))
        );
        assert_eq!((pushes[0].key, pushes[0].symbol_size), (grant.key, 1417));
    }
    assert!(bench.pushes(4).is_empty());
}

#[test]
fn a_request_said_again_is_the_same_request() {
    let mut bench = Bench::new().holders([1, 2, 3]);
    let first = bench.get(9);
    bench.confirm();
    assert_eq!(bench.get(9), first);
    assert_eq!(bench.view().tasks.len(), 1);
    assert_ne!(bench.ask(9, request(9, 2, "object-1")).task, first.task, "another number is another request");
}

#[test]
fn sources_are_spread_over_the_least_loaded_then_by_stated_uplink() {
    let mut bench = Bench::new().holders([1, 2, 3]);
    for (n, mbit) in [(1, 10), (2, 1000), (3, 100)] {
        let uplink = Some(headwater_units::BitRate::new(mbit * 1_000_000));
        bench.say(n, ToController::Hello(NodeInfo { uplink, ..info(n) }));
    }
    let mut one = |receiver, number| {
        let request = Request { max_sources: Some(1), ..request(receiver, number, "object-1") };
        bench.ask(receiver, request).flows[0].node.0[0]
    };
    assert_eq!([one(8, 1), one(8, 2), one(8, 3), one(8, 4)], [2, 3, 1, 2]);
}

#[test]
fn the_symbol_size_fits_the_smallest_room_and_later_sources_must_have_it() {
    let mut bench = Bench::new().holders([1]);
    bench.say(2, ToController::Hello(NodeInfo { room: 1000, ..info(2) }));
    bench.say(2, ToController::Hold(holding(1)));
    let accepted = bench.get(9);
    assert!(accepted.symbol_size <= 1000 && accepted.symbol_size > 900);
    bench.say(3, ToController::Hello(NodeInfo { room: 600, ..info(3) }));
    bench.say(3, ToController::Hold(holding(1)));
    assert_eq!(bench.sources(accepted.task), [1, 2]);
    bench.join(4);
    bench.say(4, ToController::Hold(holding(1)));
    assert_eq!(bench.sources(accepted.task), [1, 2, 4]);
}

/// PPUSH §III-A: with M classes for M sources every source symbol is somebody's.
#[test]
fn residue_classes_are_as_many_as_sources_unless_spare_ones_are_wanted() {
    let residue = |n| Request { spread: SpreadRule::Residue, ..request(9, n, "object-1") };
    let mut bench = Bench::new().holders([1, 2]);
    let flows = bench.ask(9, residue(1)).flows;
    assert_eq!(flows.iter().map(|f| (f.index, f.of)).collect::<Vec<_>>(), [(0, 3), (1, 3)]);
    let mut bench = Bench::with(ControllerConfig { spare_classes: 2, ..Default::default() }).holders([1]);
    assert_eq!(bench.ask(9, Request { max_sources: Some(5), ..residue(1) }).flows[0].of, 7);
}

#[test]
fn feedback_for_an_unknown_task_is_answered_so_that_the_receiver_asks_anew() {
    let mut bench = Bench::new();
    bench.feedback(9, TaskId(77), 10, 0, vec![]);
    assert_eq!(bench.heard(9), [Control::Receiver(ToReceiver::UnknownTask { task: TaskId(77) })]);
}

/// PPUSH §III-A: "it pauses all the corresponding push flows since the receiver is likely to be offline".
#[test]
fn flows_pause_while_the_receiver_is_silent_and_resume_when_it_speaks() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.pass(ms(2_900));
    assert!(!bench.heard(1).iter().any(|c| matches!(c, Control::Source(ToSource::Pause { .. }))));
    bench.pass(ms(200));
    let flow = accepted.flows[0].flow;
    assert_eq!(bench.heard(1), [Control::Source(ToSource::Pause { flow })]);
    assert!(bench.task(accepted.task).paused);
    bench.pass(ms(10_000));
    let again = bench.heard(1);
    assert!((2..=6).contains(&again.len()), "said again at growing intervals: {again:?}");
    bench.feedback(9, accepted.task, 100, 0, vec![]);
    assert_eq!(bench.heard(1)[0], Control::Source(ToSource::Resume { flow }));
    assert!(!bench.task(accepted.task).paused);
    bench.pass(ms(2_000));
    assert!(bench.heard(1).contains(&Control::Source(ToSource::Resume { flow })), "said more than once");
}

#[test]
fn a_receiver_that_stays_away_loses_its_task() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.events.clear();
    bench.pass(Duration::from_secs(61));
    let task = accepted.task;
    assert_eq!(bench.events, [ControllerEvent::Forget { task, outcome: Outcome::Failed }]);
    assert_eq!(bench.stops(1)[0], accepted.flows[0].flow);
    assert!(bench.view().tasks.is_empty());
    bench.feedback(9, task, 1, 0, vec![]);
    assert_eq!(bench.heard(9), [Control::Receiver(ToReceiver::UnknownTask { task })]);
    assert_ne!(bench.get(9).task, task, "it asks anew, with the same number");
}

#[test]
fn a_receiver_whose_process_has_ended_loses_its_task_at_once_and_one_whose_path_is_cut_does_not() {
    for command in
        [ControllerCommand::PathLost { path: path(9) }, ControllerCommand::PathLeft { path: path(9) }]
    {
        let left = matches!(command, ControllerCommand::PathLeft { .. });
        let mut bench = Bench::new().holders([1]);
        let accepted = bench.get(9);
        bench.confirm();
        bench.events.clear();
        bench.command(command);
        assert_eq!(bench.view().tasks.is_empty(), left);
        let over = ControllerEvent::Forget { task: accepted.task, outcome: Outcome::Cancelled };
        assert_eq!(bench.events.contains(&over), left);
        assert_eq!(bench.stops(1).contains(&accepted.flows[0].flow), left);
    }
}

#[test]
fn a_fin_is_always_acknowledged_and_stops_every_flow_until_each_source_says_so() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.events.clear();
    let (task, fin) = (
        accepted.task,
        Control::Controller(ToController::Fin { task: accepted.task, outcome: Outcome::Done }),
    );
    bench.say(9, fin.clone());
    assert_eq!(bench.heard(9), [Control::Receiver(ToReceiver::FinAck { task })]);
    assert_eq!(bench.events, [ControllerEvent::Forget { task, outcome: Outcome::Done }]);
    assert_eq!(bench.stops(1), [accepted.flows[0].flow]);
    bench.say(1, ToController::Stopped { flow: accepted.flows[0].flow });
    bench.pass(ms(2_000));
    assert!(bench.stops(1).is_empty());
    assert!(bench.stops(2).len() >= 2, "until it answers");
    bench.say(2, ToController::Stopped { flow: accepted.flows[1].flow });
    bench.pass(ms(20_000));
    assert!(bench.stops(2).is_empty());
    bench.say(9, fin);
    assert_eq!(
        bench.heard(9),
        [Control::Receiver(ToReceiver::FinAck { task })],
        "although the task is unknown now"
    );
}

#[test]
fn a_late_copy_of_a_finished_request_starts_nothing() {
    let mut bench = Bench::new().holders([1]);
    let task = bench.get(9).task;
    bench.say(9, ToController::Fin { task, outcome: Outcome::Cancelled });
    bench.say(9, ToController::Request(request(9, 1, "object-1")));
    assert!(bench.view().tasks.is_empty());
    assert_eq!(bench.controller.stats().requests_late, 1);
}

#[test]
fn only_the_receiver_ends_its_task() {
    let mut bench = Bench::new().holders([1, 2]);
    let task = bench.get(9).task;
    bench.say(2, ToController::Fin { task, outcome: Outcome::Done });
    bench.say(2, ToController::Distrust { task, node: node(1) });
    bench.feedback(2, task, 0, 0, vec![]);
    assert_eq!(bench.view().tasks.len(), 1);
    assert_eq!(bench.sources(task), [1, 2]);
}

#[test]
fn every_change_of_a_tasks_facts_is_kept() {
    let mut bench = Bench::new().holders([1, 2]);
    let task = bench.get(9).task;
    let first = bench.kept().expect("kept when accepted");
    assert_eq!((first.task, first.flows.len(), first.flows_version), (task, 2, 0));
    bench = bench.holders([3]);
    let second = bench.kept().expect("kept when a source joins");
    assert_eq!((second.flows.len(), second.flows_version), (3, 1));
    bench.say(9, ToController::Distrust { task, node: node(3) });
    assert_eq!(bench.kept().expect("kept when distrusted").distrusted, [node(3)]);
    bench.feedback(9, task, 10, 2, vec![]);
    assert_eq!(bench.kept(), None, "progress is no fact");
}

#[test]
fn a_restored_task_takes_its_sources_back_when_they_return_in_the_same_life() {
    let mut before = Bench::new().holders([1, 2]);
    let accepted = before.get(9);
    let record = before.kept().unwrap();
    let mut bench = Bench::new();
    bench.command(ControllerCommand::Restore(Box::new(record.clone())));
    bench.command(ControllerCommand::Restore(Box::new(record.clone()))); // Twice: no difference.
    assert!(bench.task(accepted.task).flows.iter().all(|f| f.standing == FlowStanding::Away));
    bench = bench.holders([1, 2]);
    let push = &bench.pushes(1)[0];
    assert_eq!((push.flow, push.key), (accepted.flows[0].flow, accepted.flows[0].key));
    bench.confirm();
    bench.feedback(9, accepted.task, 10, 0, vec![]);
    assert_eq!(bench.sources(accepted.task), [1, 2]);
    let kept = bench.kept().expect("their addresses are news to the receiver");
    assert_eq!(kept.flows, record.flows);
    // The request, said again, finds its task.
    assert_eq!(bench.get(9), accepted);
}

#[test]
fn a_restored_task_gives_up_on_a_source_that_stays_away_or_comes_back_in_another_life() {
    let mut before = Bench::new().holders([1, 2]);
    let task = before.get(9).task;
    let record = before.kept().unwrap();
    let mut bench = Bench::new();
    bench.command(ControllerCommand::Restore(Box::new(record.clone())));
    bench.say(1, ToController::Hello(NodeInfo { incarnation: 2, ..info(1) }));
    assert_eq!(bench.sources(task), [2], "the flow died with its source");
    bench.say(1, ToController::Hold(holding(1)));
    assert_eq!(bench.sources(task), [2, 1], "which may serve again");
    let renewed = bench.kept().unwrap();
    assert_ne!((renewed.flows[1].flow, renewed.flows[1].key), (record.flows[0].flow, record.flows[0].key));
    bench = bench.holders([3, 4]);
    assert_eq!(bench.sources(task), [2, 1, 3], "the third place is taken at once");
    for flow in bench.flows().iter().filter(|f| f.standing == FlowStanding::Offered) {
        bench.say(flow.node.0[0], ToController::Pushing { flow: flow.flow });
    }
    bench.pass_with_feedback(9, task, ms(9_500), &[]);
    assert_eq!(bench.sources(task)[0], 2);
    bench.pass_with_feedback(9, task, ms(1_000), &[]);
    assert_eq!(bench.sources(task), [1, 3, 4]);
}

#[test]
fn a_receiver_that_knows_a_newer_list_than_the_record_is_overtaken() {
    let mut before = Bench::new().holders([1]);
    let task = before.get(9).task;
    let record = before.kept().unwrap();
    let mut bench = Bench::new().holders([1]);
    bench.command(ControllerCommand::Restore(Box::new(record)));
    bench.feedback(9, task, 10, 41, vec![]);
    assert_eq!(bench.list(9).map(|(version, _)| version), Some(42));
}

/// The controller stopped after keeping the record and before telling the receiver; meanwhile a source was paused.
#[test]
fn what_a_restart_left_unsaid_is_said_afterwards() {
    let mut before = Bench::new().holders([1]);
    let accepted = before.get(9);
    before = before.holders([2]);
    let record = before.kept().unwrap();
    let mut bench = Bench::new();
    bench.command(ControllerCommand::Restore(Box::new(record)));
    bench.feedback(9, accepted.task, 10, 0, vec![]);
    assert_eq!(bench.list(9), Some((1, vec![node(1), node(2)])));
    bench.join(1);
    assert!(bench.heard(1).contains(&Control::Source(ToSource::Resume { flow: accepted.flows[0].flow })));
}

#[test]
fn a_receiver_may_speak_without_a_hello_and_move_to_another_path() {
    let mut bench = Bench::new().holders([1]);
    let task = bench.get(9).task;
    bench.lose_path(9);
    bench = bench.holders([2]);
    assert!(bench.list(9).is_none(), "there is no path to it");
    bench.open_as(path(60), 9);
    bench.say_at(path(60), Control::Controller(ToController::Request(request(9, 1, "object-1"))));
    assert_eq!(bench.list(60), Some((1, vec![node(1), node(2)])));
    assert_eq!(bench.sources(task), [1, 2]);
}

#[test]
fn a_task_without_any_source_left_goes_on_when_one_appears() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.say(
        1,
        ToController::PushRefused { flow: accepted.flows[0].flow, reason: headwater_wire::Refusal::Gone },
    );
    assert_eq!(bench.list(9), Some((1, vec![])));
    bench.feedback(9, accepted.task, 10, 1, vec![silent(accepted.flows[0].flow, ms(9))]);
    bench = bench.holders([2]);
    assert_eq!(bench.list(9), Some((2, vec![node(2)])));
}

#[test]
fn of_a_task_nobody_is_heard_but_its_receiver_and_nobody_else_learns_its_keys() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    let task = accepted.task;
    bench.sent.clear();
    for outcome in [Outcome::Done, Outcome::Cancelled] {
        bench.say(8, ToController::Fin { task, outcome });
    }
    bench.say(8, ToController::Distrust { task, node: node(1) });
    bench.say(
        8,
        ToController::Feedback {
            task,
            first_undecoded: BlockIndex(0),
            needed: Symbols::new(1),
            flows_version: 0,
            flows: Vec::new(),
            held_up: false,
        },
    );
    // In the receiver's name.
    bench.say(8, ToController::Request(request(9, 1, "object-1")));
    bench.say(8, ToController::Request(request(9, 2, "object-1")));
    bench.say(8, ToController::Hello(info(9)));
    assert_eq!(bench.controller.stats().strangers, 7);
    assert!(bench.sent.iter().all(|(to, _)| *to != path(8)), "{:?}", bench.sent);
    assert_eq!(bench.sources(task), [1, 2]);
    // By a path that nobody has opened nothing is heard.
    bench.controller.handle(
        bench.now,
        Input::Packet(Packet::control(PathId(77), ToController::Request(request(7, 1, "object-1")))),
    );
    assert_eq!(bench.controller.stats().strangers, 8);
}
