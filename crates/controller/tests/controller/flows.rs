//! Flows: ordered until confirmed, joined, replaced, stopped.

use headwater_controller::{ControllerCommand, FlowStanding};
use headwater_units::{Duration, FlowId};
use headwater_wire::{
    Control, NodeInfo, Outcome, Refusal, Request, Spoiled, SpreadRule, ToController, ToReceiver, ToSource,
};

use crate::harness::{
    Bench, delivering, holding, in_rack, info, ms, node, object, path, report, request, silent,
};

#[test]
fn a_push_is_said_until_confirmed_at_growing_intervals() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.pass_with_feedback(9, accepted.task, Duration::from_secs(20), &[]);
    let pushes = bench.pushes(1);
    assert!((5..=8).contains(&pushes.len()), "0, 0.5, 1.5, 3.5, 7.5, 15.5 s: {}", pushes.len());
    assert!(pushes.iter().all(|p| p.flow == accepted.flows[0].flow && p.key == accepted.flows[0].key));
    bench.confirm();
    bench.pass_with_feedback(9, accepted.task, Duration::from_secs(20), &[]);
    assert!(bench.pushes(1).is_empty());
}

#[test]
fn symbols_or_a_report_confirm_a_push_as_well() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.say(1, report(accepted.flows[0].flow, 1.0, None));
    bench.feedback(9, accepted.task, 10, 0, vec![delivering(accepted.flows[1].flow, 1000)]);
    assert!(bench.flows().iter().all(|f| f.standing == FlowStanding::Pushing));
}

#[test]
fn a_refused_push_goes_to_another_source() {
    let mut bench = Bench::new().holders([1, 2, 3, 4]);
    let accepted = bench.get(9);
    bench.say(2, ToController::PushRefused { flow: accepted.flows[1].flow, reason: Refusal::Gone });
    assert_eq!(bench.sources(accepted.task), [1, 3, 4]);
    assert_eq!(bench.list(9), Some((1, vec![node(1), node(3), node(4)])));
    assert_eq!(bench.view().objects[0].holders, [node(1), node(3), node(4)], "it holds it no longer");
    assert!(bench.stops(2).is_empty(), "it has nothing to stop");
}

#[test]
fn a_source_that_cannot_now_is_asked_again_later() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.say(1, ToController::PushRefused { flow: accepted.flows[0].flow, reason: Refusal::Full });
    assert!(bench.sources(accepted.task).is_empty());
    bench.pass_with_feedback(9, accepted.task, ms(9_900), &[]);
    assert!(bench.sources(accepted.task).is_empty());
    bench.pass_with_feedback(9, accepted.task, ms(200), &[]);
    assert_eq!(bench.sources(accepted.task), [1]);
}

#[test]
fn a_joining_holder_is_used_at_once_and_the_receiver_told_until_it_echoes() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.join(3);
    bench.say(3, ToController::Hold(holding(1)));
    let joined = bench.task(accepted.task).flows[2].flow;
    assert_eq!(bench.pushes(3)[0].flow, joined);
    bench.confirm();
    assert_eq!(bench.list(9), Some((1, vec![node(1), node(2), node(3)])));
    bench.feedback(9, accepted.task, 10, 0, vec![]); // It has not arrived.
    bench.pass(ms(600));
    assert_eq!(bench.list(9), Some((1, vec![node(1), node(2), node(3)])));
    bench.feedback(9, accepted.task, 10, 1, vec![]);
    bench.pass(ms(2_000));
    assert_eq!(bench.list(9), None);
    // A fourth is not needed.
    bench = bench.holders([4]);
    assert_eq!(bench.sources(accepted.task), [1, 2, 3]);
}

#[test]
fn a_holder_that_comes_later_has_no_part_in_an_equal_split() {
    let mut bench = Bench::new().holders([1, 2]);
    let asked = Request { spread: SpreadRule::Equal, max_sources: Some(4), ..request(9, 1, "object-1") };
    let accepted = bench.ask(9, asked);
    bench.join(3);
    bench.say(3, ToController::Hold(holding(1)));
    assert_eq!(bench.sources(accepted.task), [1, 2]);
    assert!(accepted.flows.iter().all(|flow| flow.of == 2));
}

#[test]
fn every_flow_of_a_task_has_its_own_residue_class() {
    let mut bench = Bench::new().holders([1, 2, 3]);
    let accepted = bench.get(9);
    bench.lose_path(3);
    bench = bench.holders([4]);
    let record = bench.kept().unwrap();
    assert_eq!(
        record.flows.iter().map(|f| f.index).collect::<Vec<_>>(),
        [0, 1, 3],
        "a class nobody used yet"
    );
    assert_eq!(accepted.flows[2].index, 2);
}

#[test]
fn a_lost_source_is_replaced_at_once_if_another_holder_is_here() {
    let mut bench = Bench::new().holders([1, 2, 3, 4]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.lose_path(2);
    assert_eq!(bench.list(9), Some((1, vec![node(1), node(3), node(4)])));
    // When it comes back with its flow, that is stopped.
    assert!(bench.stops(2).is_empty());
    bench.join(2);
    assert_eq!(bench.stops(2), [accepted.flows[1].flow]);
    assert_eq!(bench.sources(accepted.task), [1, 3, 4]);
}

#[test]
fn a_lost_source_without_replacement_keeps_its_flow_and_takes_it_up_again() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    let _ = (bench.heard(1), bench.heard(2));
    bench.lose_path(2);
    assert_eq!(bench.sources(accepted.task), [1, 2]);
    assert_eq!(bench.list(9), None);
    bench.open_as(path(52), 2);
    bench.say_at(path(52), Control::Controller(ToController::Hello(info(2))));
    let pushes = bench.pushes(52);
    assert_eq!((pushes[0].flow, pushes[0].key), (accepted.flows[1].flow, accepted.flows[1].key));
}

#[test]
fn a_holder_that_returns_in_the_same_life_is_used_without_saying_its_objects_again() {
    let mut bench = Bench::new().holders([1, 2]);
    bench.lose_path(2);
    let accepted = bench.get(9);
    assert_eq!(bench.sources(accepted.task), [1]);
    bench.join(2);
    assert_eq!(bench.sources(accepted.task), [1, 2]);
}

#[test]
fn a_source_back_in_another_life_gets_a_new_flow() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.lose_path(2);
    bench.say(2, ToController::Hello(NodeInfo { incarnation: 2, ..info(2) }));
    assert_eq!(bench.sources(accepted.task), [1]);
    bench.say(2, ToController::Hold(holding(1)));
    assert_eq!(bench.sources(accepted.task), [1, 2]);
    let flow = bench.task(accepted.task).flows[1].flow;
    assert_ne!(flow, accepted.flows[1].flow);
    assert_eq!(bench.list(9), Some((2, vec![node(1), node(2)])));
}

#[test]
fn a_source_that_moves_to_another_path_is_told_its_orders_again() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.open_as(path(51), 1);
    bench.say_at(path(51), Control::Controller(ToController::Hello(info(1)))); // Nobody said that the old path is gone.
    let flow = accepted.flows[0].flow;
    assert!(bench.pushes(51).iter().any(|push| push.flow == flow));
    bench.say_at(path(51), Control::Controller(ToController::Pushing { flow }));
    bench.say_at(path(51), Control::Controller(ToController::Hello(info(1))));
    assert!(bench.pushes(51).is_empty(), "on the same path nothing is lost");
}

#[test]
fn a_source_in_another_life_is_not_asked_to_stop_what_it_has_forgotten() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.lose_path(1);
    bench.say(9, ToController::Fin { task: accepted.task, outcome: Outcome::Done });
    bench.say(1, ToController::Hello(NodeInfo { incarnation: 2, ..info(1) }));
    bench.pass(ms(5_000));
    assert!(bench.stops(1).is_empty());
    assert_eq!(bench.wake, None);
}

#[test]
fn a_silent_flow_gives_way_to_another_holder() {
    let mut bench = Bench::new().holders([1, 2, 3, 4]);
    let accepted = bench.get(9);
    bench.confirm();
    let flow = accepted.flows[0].flow;
    bench.feedback(9, accepted.task, 10, 0, vec![silent(flow, ms(1_400))]);
    assert_eq!(bench.sources(accepted.task), [1, 2, 3]);
    bench.feedback(9, accepted.task, 10, 0, vec![silent(flow, ms(1_600))]);
    assert_eq!(bench.sources(accepted.task), [2, 3, 4]);
    assert_eq!(bench.stops(1), [flow]);
    assert_eq!(bench.controller.stats().flows_replaced, 1);
}

#[test]
fn where_nodes_of_a_rack_have_failed_those_of_others_come_first() {
    let mut bench = Bench::new();
    for (n, rack) in (1..=7).map(|n| (n, if n == 7 { "b" } else { "a" })) {
        bench.say(n, ToController::Hello(in_rack(n, rack)));
        bench.say(n, ToController::Hold(holding(1)));
    }
    let accepted = bench.get(9);
    assert_eq!(bench.sources(accepted.task), [1, 2, 3]);
    for sources in [[2, 3, 4], [3, 4, 7]] {
        bench.confirm();
        let flow = bench.task(accepted.task).flows[0].flow;
        bench.feedback(9, accepted.task, 10, 0, vec![silent(flow, ms(1_600))]);
        assert_eq!(bench.sources(accepted.task), sources);
    }
}

#[test]
fn a_silent_flow_stays_and_is_ordered_anew_while_nobody_can_take_its_place() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.pass_with_feedback(9, accepted.task, ms(8_000), &[]);
    let flow = accepted.flows[0].flow;
    let _ = bench.heard(1);
    bench.pass_with_feedback(9, accepted.task, ms(1_000), &[silent(flow, ms(1_600))]);
    assert_eq!(bench.sources(accepted.task), [1, 2]);
    let heard = bench.heard(1);
    assert!(heard.iter().any(|c| matches!(c, Control::Source(ToSource::Push(push)) if push.flow == flow)));
    assert!(heard.contains(&Control::Source(ToSource::Resume { flow })));
}

#[test]
fn a_source_that_does_not_answer_gives_way_to_another_holder() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench = bench.holders([2, 3]);
    bench.confirm();
    bench = bench.holders([4]);
    bench.lose_path(3);
    assert_eq!(bench.sources(accepted.task), [1, 2, 4]);
    bench.join(3);
    // Node 4 never confirms.
    bench.pass_with_feedback(9, accepted.task, ms(1_600), &[]);
    assert_eq!(bench.sources(accepted.task), [1, 2, 3]);
}

#[test]
fn a_distrusted_source_is_not_used_again_for_the_task_and_last_elsewhere() {
    let mut bench = Bench::new().holders([1, 2, 3]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.say(9, ToController::Distrust { task: accepted.task, node: node(1) });
    bench.say(9, ToController::Distrust { task: accepted.task, node: node(1) });
    assert_eq!(bench.sources(accepted.task), [2, 3]);
    assert_eq!(bench.stops(1), [accepted.flows[0].flow]);
    assert_eq!(bench.view().nodes[0].distrusts, 1);
    bench.lose_path(1);
    bench = bench.holders([1]);
    bench.pass_with_feedback(9, accepted.task, Duration::from_secs(20), &[]);
    assert_eq!(bench.sources(accepted.task), [2, 3]);
    let other = bench.get(8).task;
    assert_eq!(bench.sources(other), [2, 3, 1], "although it has the fewest flows");
}

#[test]
fn a_source_that_drops_the_object_loses_its_flow() {
    let mut bench = Bench::new().holders([1, 2, 3, 4]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.say(3, ToController::Drop { object: object(1) });
    assert_eq!(bench.sources(accepted.task), [1, 2, 4]);
    assert_eq!(bench.stops(3), [accepted.flows[2].flow]);
}

#[test]
fn a_task_whose_only_source_is_spoiled_ends_at_once_and_says_why() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.heard(9);
    bench.say(1, ToController::Spoiled { object: object(1), how: Spoiled::Changed });
    let spoiled = |how| Refusal::Spoiled { node: node(1), how };
    let refusals = |bench: &mut Bench| -> Vec<Refusal> {
        let heard = bench.heard(9).into_iter();
        heard
            .filter_map(|it| {
                if let Control::Receiver(ToReceiver::Refused { reason, .. }) = it {
                    Some(reason)
                } else {
                    None
                }
            })
            .collect()
    };
    assert_eq!(refusals(&mut bench), [spoiled(Spoiled::Changed)]);
    assert!(bench.view().tasks.is_empty());
    assert_eq!(bench.stops(1), [accepted.flows[0].flow]);
    // A node that asks later hears the same, until somebody has it again.
    bench.say(9, ToController::Request(request(9, 200, &object(1).to_string())));
    assert_eq!(refusals(&mut bench), [spoiled(Spoiled::Changed)]);
    bench.say(1, ToController::Hold(holding(1)));
    bench.say(9, ToController::Request(request(9, 201, &object(1).to_string())));
    assert_eq!(refusals(&mut bench), []);
    assert_eq!(bench.view().tasks.len(), 1);
}

#[test]
fn a_task_with_another_source_goes_on_without_the_spoiled_one() {
    let mut bench = Bench::new().holders([1, 2, 3, 4]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.say(3, ToController::Spoiled { object: object(1), how: Spoiled::Unreadable });
    assert_eq!(bench.sources(accepted.task), [1, 2, 4]);
    assert_eq!(bench.stops(3), [accepted.flows[2].flow]);
}

#[test]
fn a_task_whose_every_source_lies_ends_at_once() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.heard(9);
    bench.say(9, ToController::Distrust { task: accepted.task, node: node(1) });
    assert_eq!(bench.view().tasks.len(), 1, "the other one may be honest");
    bench.say(9, ToController::Distrust { task: accepted.task, node: node(2) });
    let how = Spoiled::Wrong;
    let reason = Refusal::Spoiled { node: node(2), how };
    assert!(
        bench.heard(9).iter().any(
            |it| matches!(it, Control::Receiver(ToReceiver::Refused { reason: it, .. }) if *it == reason)
        )
    );
    assert!(bench.view().tasks.is_empty());
}

#[test]
fn while_nodes_come_back_after_a_restart_a_liar_that_is_the_only_source_so_far_ends_no_task() {
    for comes_back in [true, false] {
        let mut bench = Bench::new();
        bench.command(ControllerCommand::Returned);
        let mut bench = bench.holders([1]);
        let accepted = bench.get(9);
        bench.confirm();
        bench.heard(9);
        bench.say(9, ToController::Distrust { task: accepted.task, node: node(1) });
        assert_eq!(bench.view().tasks.len(), 1, "an honest source may come back");
        if comes_back {
            bench = bench.holders([2]);
            assert_eq!(bench.sources(accepted.task), [2]);
        }
        bench.pass_with_feedback(9, accepted.task, ms(9_900), &[]);
        bench.pass(ms(200));
        assert_eq!(bench.view().tasks.len(), usize::from(comes_back));
    }
}

/// A receiver that is done tells its sources first; they stop before its Fin is here.
#[test]
fn a_flow_that_its_source_ends_is_replaced_only_after_a_moment() {
    let mut bench = Bench::new().holders([1, 2, 3, 4]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.say(1, ToController::Stopped { flow: accepted.flows[0].flow });
    assert_eq!(bench.sources(accepted.task), [1, 2, 3]);
    bench.pass_with_feedback(9, accepted.task, ms(1_600), &[]);
    assert_eq!(bench.sources(accepted.task).len(), 3);
    assert!(bench.flows().iter().all(|f| f.flow != accepted.flows[0].flow));
}

#[test]
fn a_flow_that_nobody_knows_is_stopped_when_its_source_reports_it() {
    let mut bench = Bench::new().holders([1]);
    bench.say(1, report(FlowId(5), 1.0, None));
    assert_eq!(bench.stops(1), [FlowId(5)]);
    bench.say(1, report(FlowId(5), 1.0, None));
    assert!(bench.stops(1).is_empty(), "said again in its own time, not at every report");
    bench.pass(ms(600));
    assert_eq!(bench.stops(1), [FlowId(5)]);
    bench.say(1, ToController::Stopped { flow: FlowId(5) });
    bench.say(1, ToController::Pushing { flow: FlowId(6) });
    assert_eq!(bench.stops(1), [FlowId(6)]);
}

#[test]
fn a_source_speaks_for_its_own_flows_only() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    let flow = accepted.flows[0].flow;
    bench.say(2, ToController::Pushing { flow });
    bench.say(2, ToController::Stopped { flow });
    bench.say(2, ToController::PushRefused { flow, reason: Refusal::Gone });
    bench.say(2, report(flow, 1.0, Some(ms(1))));
    assert_eq!(bench.task(accepted.task).flows[0].standing, FlowStanding::Offered);
    assert_eq!(bench.controller.stats().strangers, 4);
    assert_eq!(bench.view().objects[0].holders.len(), 2);
}

#[test]
fn a_source_that_reconnects_during_a_pause_is_paused_again() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.pass(ms(3_500));
    let _ = bench.heard(1);
    bench.lose_path(1);
    bench.join(1);
    let flow = accepted.flows[0].flow;
    let heard = bench.heard(1);
    assert!(
        matches!(&heard[..], [Control::Source(ToSource::Push(_)), Control::Source(ToSource::Pause { flow: f })] if *f == flow),
        "{heard:?}"
    );
}
