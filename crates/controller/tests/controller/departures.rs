//! Nodes that say that they are about to stop.

use headwater_controller::ControllerEvent;
use headwater_units::FlowId;
use headwater_wire::{Control, Refusal, Request, ToController, ToReceiver};

use crate::harness::{Bench, holding, ms, node, request};

fn one_source(receiver: u8, number: u64) -> Request {
    Request { max_sources: Some(1), ..request(receiver, number, "object-1") }
}

#[test]
fn the_only_source_goes_on_with_what_it_does_and_is_given_nothing_new() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.heard(1);
    bench.say(1, ToController::Leaving);
    bench.pass(ms(500));
    assert_eq!(bench.stops(1), [] as [FlowId; 0]);
    assert_eq!(bench.sources(accepted.task), [1]);
    bench.say(8, ToController::Request(request(8, 1, "object-1")));
    assert_eq!(
        bench.heard(8),
        [Control::Receiver(ToReceiver::Refused { request: 1, reason: Refusal::NoSource })]
    );
    assert!(bench.pushes(1).is_empty());
}

#[test]
fn a_source_that_comes_takes_over_from_one_that_is_about_to_stop_once_it_pushes() {
    let mut bench = Bench::new().holders([1]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.say(1, ToController::Leaving);
    bench.join(2);
    bench.say(2, ToController::Hold(holding(1)));
    assert_eq!(bench.sources(accepted.task), [1, 2]);
    assert_eq!(bench.stops(1), [] as [FlowId; 0], "the other has not begun");
    bench.confirm();
    assert_eq!(bench.sources(accepted.task), [2]);
    assert_eq!(bench.stops(1), [accepted.flows[0].flow]);
    assert_eq!(bench.list(9).map(|(_, sources)| sources), Some(vec![node(2)]), "the receiver is told");
}

#[test]
fn where_others_push_already_a_source_that_is_about_to_stop_is_let_go_at_once() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.get(9);
    bench.confirm();
    bench.say(1, ToController::Leaving);
    assert_eq!(bench.sources(accepted.task), [2]);
    assert_eq!(bench.stops(1), [accepted.flows[0].flow]);
}

#[test]
fn a_task_of_one_source_is_handed_to_another_that_holds_the_object() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = bench.ask(9, one_source(9, 1));
    bench.confirm();
    let leaving = accepted.flows[0].node.0[0];
    bench.say(leaving, ToController::Leaving);
    assert_eq!(bench.sources(accepted.task), [3 - leaving]);
    assert_eq!(bench.ask(8, one_source(8, 1)).flows[0].node, node(3 - leaving));
}

#[test]
fn a_node_that_has_started_anew_is_a_source_again() {
    let mut bench = Bench::new().holders([1]);
    bench.say(1, ToController::Leaving);
    bench.lose_path(1);
    assert!(bench.events.contains(&ControllerEvent::NodeDown { node: node(1) }));
    let life = headwater_wire::NodeInfo { incarnation: 2, ..crate::harness::info(1) };
    bench.say(1, ToController::Hello(life));
    bench.say(1, ToController::Hold(holding(1)));
    assert_eq!(bench.get(9).flows[0].node, node(1));
}
