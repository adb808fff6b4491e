//! Starting rates: what flows are told of their lines before they begin.

use headwater_controller::{ControllerCommand, ControllerConfig};
use headwater_units::{BitRate, Duration, NodeId};
use headwater_wire::{
    Class, Control, Delivery, NodeInfo, Push, Request, SpreadRule, Start, ToController, ToReceiver, ToSource,
};

use crate::harness::{Bench, holding, info, ms, request};

const RECEIVER: u8 = 9;

fn mbit(n: u64) -> Option<BitRate> {
    Some(BitRate::new(n * 1_000_000))
}

/// Introduction of node `n` whose lines carry `rate` both ways, a millisecond from the controller.
fn lines(n: u8, rate: Option<BitRate>) -> NodeInfo {
    let seen = Some([10, 0, 0, n].into());
    NodeInfo { uplink: rate, downlink: rate, rtt: Some(ms(1)), seen, ..info(n) }
}

/// A receiver of 900 Mbit/s, and sources of these rates, from 1 on, that have the object.
fn bench(sources: &[u64]) -> Bench {
    let mut bench = Bench::with(ControllerConfig { max_sources: 8, ..ControllerConfig::default() });
    bench.say(RECEIVER, ToController::Hello(lines(RECEIVER, mbit(900))));
    for (n, rate) in (1..).zip(sources) {
        bench.say(n, ToController::Hello(lines(n, mbit(*rate))));
        bench.say(n, ToController::Hold(holding(1)));
    }
    bench.sent.clear();
    bench
}

/// The orders that follow a request, by source.
fn pushes(bench: &mut Bench, receiver: u8, number: u64) -> Vec<(NodeId, Push)> {
    bench.sent.clear();
    bench.say(receiver, ToController::Request(request(receiver, number, "object-1")));
    let pushes = bench.sent.iter().filter_map(|(to, control)| match control {
        Control::Source(ToSource::Push(push)) => Some((NodeId([to.0 as u8; 32]), push.clone())),
        _ => None,
    });
    let mut pushes: Vec<_> = pushes.collect();
    pushes.sort_by_key(|(source, _)| *source);
    pushes
}

fn rates(pushes: &[(NodeId, Push)]) -> Vec<Option<u64>> {
    pushes.iter().map(|(_, push)| push.start.map(|start| start.rate.get() / 1_000_000)).collect()
}

#[test]
fn a_flow_alone_has_the_slower_of_its_two_lines() {
    let one = pushes(&mut bench(&[100]), RECEIVER, 1);
    let start = Start { rate: BitRate::new(100_000_000), rtt: Duration::from_millis(1) };
    assert_eq!(one[0].1.start, Some(start));
    assert_eq!(rates(&pushes(&mut bench(&[2000]), RECEIVER, 1)), [Some(900)]);
}

#[test]
fn sources_of_a_task_divide_its_line_and_leave_to_others_what_they_cannot_use() {
    assert_eq!(rates(&pushes(&mut bench(&[1000; 3]), RECEIVER, 1)), [Some(300); 3]);
    assert_eq!(rates(&pushes(&mut bench(&[100, 1000, 250]), RECEIVER, 1)), [Some(100), Some(550), Some(250)]);
}

#[test]
fn what_a_line_carries_already_counts() {
    // Both lines of the second flow have one flow before.
    let mut bench = bench(&[900]);
    assert_eq!(rates(&pushes(&mut bench, RECEIVER, 1)), [Some(900)]);
    assert_eq!(rates(&pushes(&mut bench, RECEIVER, 2)), [Some(450)]);
    // A third, from elsewhere, shares the source's line alone.
    bench.say(8, ToController::Hello(lines(8, mbit(1000))));
    assert_eq!(rates(&pushes(&mut bench, 8, 1)), [Some(300)]);
}

#[test]
fn racks_in_between_count_unless_both_ends_stand_in_the_same() {
    let rack = |name: &str| Some((name.to_owned(), mbit(200)));
    let told = |of: Option<(String, _)>| {
        let mut bench = bench(&[]);
        bench.say(RECEIVER, ToController::Hello(NodeInfo { rack: rack("a"), ..lines(RECEIVER, mbit(900)) }));
        bench.say(1, ToController::Hello(NodeInfo { rack: of, ..lines(1, mbit(1000)) }));
        bench.say(1, ToController::Hold(holding(1)));
        rates(&pushes(&mut bench, RECEIVER, 1))
    };
    assert_eq!([told(rack("a")), told(rack("b")), told(None)], [[Some(900)], [Some(200)], [Some(200)]]);
}

#[test]
fn of_what_nodes_state_for_their_rack_the_least_counts_that_is_still_stated() {
    let told = |stated: &[Option<BitRate>], forgotten: bool| {
        let mut bench = bench(&[]);
        let in_rack = |n, rate| NodeInfo { rack: Some(("b".to_owned(), rate)), ..lines(n, mbit(1000)) };
        bench.say(1, ToController::Hello(in_rack(1, mbit(200))));
        bench.say(1, ToController::Hold(holding(1)));
        stated.iter().for_each(|rate| bench.say(5, ToController::Hello(in_rack(5, *rate))));
        if forgotten {
            bench.lose_path(5);
            bench.command(ControllerCommand::ForgetNode { node: NodeId([5; 32]) });
        }
        rates(&pushes(&mut bench, RECEIVER, 1))[0]
    };
    assert_eq!(told(&[], false), Some(200));
    assert_eq!(told(&[mbit(100)], false), Some(100));
    assert_eq!(told(&[mbit(100), mbit(100), mbit(300)], false), Some(200));
    assert_eq!(told(&[mbit(100), None], false), Some(200));
    assert_eq!(told(&[mbit(100)], true), Some(200));
}

#[test]
fn without_a_word_of_both_lines_or_of_the_distance_a_flow_finds_out_for_itself() {
    let told = |source: NodeInfo, receiver: NodeInfo| {
        let mut bench = bench(&[]);
        bench.say(RECEIVER, ToController::Hello(receiver));
        bench.say(1, ToController::Hello(source));
        bench.say(1, ToController::Hold(holding(1)));
        let pushes = pushes(&mut bench, RECEIVER, 1);
        (pushes[0].1.start.is_some(), pushes[0].1.at.clone())
    };
    let (source, receiver) = (lines(1, mbit(100)), lines(RECEIVER, mbit(900)));
    let proven = vec![([10, 0, 0, RECEIVER], 7000).into()];
    assert_eq!(told(source.clone(), receiver.clone()), (true, proven.clone()));
    let mute = |info: &NodeInfo| NodeInfo { rtt: None, ..info.clone() };
    assert_eq!(told(mute(&source), receiver.clone()), (true, proven.clone()), "one distance will do");
    // Where the receiver is, its connection proves whatever the lines are.
    let unknown = (false, proven);
    assert_eq!(told(mute(&source), mute(&receiver)), unknown);
    assert_eq!(told(NodeInfo { uplink: None, ..source.clone() }, receiver.clone()), unknown);
    assert_eq!(told(source.clone(), NodeInfo { downlink: None, ..receiver.clone() }), unknown);
    // An address that the connection does not come from is nobody's word to be taken.
    let elsewhere = NodeInfo { seen: Some([10, 0, 0, 77].into()), ..receiver };
    assert_eq!(told(source, elsewhere), (true, vec![]));
}

#[test]
fn a_controller_that_is_told_not_to_says_nothing() {
    let config = ControllerConfig { begin_at_stated_rates: false, ..ControllerConfig::default() };
    let mut bench = Bench::with(config);
    bench.say(RECEIVER, ToController::Hello(lines(RECEIVER, mbit(900))));
    bench.say(1, ToController::Hello(lines(1, mbit(100))));
    bench.say(1, ToController::Hold(holding(1)));
    assert_eq!(rates(&pushes(&mut bench, RECEIVER, 1)), [None]);
}

/// Transport that the controller chooses for a request.
fn delivery(bench: &mut Bench, request: Request) -> Delivery {
    let receiver = request.receiver.0[0];
    bench.sent.clear();
    bench.say(receiver, ToController::Request(request));
    let accepted = bench.sent.iter().find_map(|(_, control)| match control {
        Control::Receiver(ToReceiver::Accepted { delivery, .. }) => Some(*delivery),
        _ => None,
    });
    accepted.expect("it was accepted")
}

fn wish(number: u64, delivery: Option<Delivery>, trims: bool) -> Request {
    Request { delivery, trims, ..request(RECEIVER, number, "object-1") }
}

#[test]
fn the_first_window_of_a_pulled_task_is_a_quarter_more_than_its_links_carry_in_a_round_trip() {
    let pull = Delivery::Pull { initial_window: 64 };
    let window = |sources: &[u64]| delivery(&mut bench(sources), wish(1, Some(pull), false));
    // 900 Mbit/s over a millisecond are 75.4 packets of 1,493 bytes.
    assert_eq!(window(&[2000]), Delivery::Pull { initial_window: 95 });
    assert_eq!(window(&[300, 300, 300]), Delivery::Pull { initial_window: 32 });
    // Less than 48 in all would wait for hosts.
    assert_eq!(window(&[10; 4]), Delivery::Pull { initial_window: 12 });
    let mut unknown = bench(&[300]);
    unknown.say(2, ToController::Hello(NodeInfo { uplink: None, ..lines(2, None) }));
    unknown.say(2, ToController::Hold(holding(1)));
    assert_eq!(delivery(&mut unknown, wish(1, Some(pull), false)), pull);
}

#[test]
fn the_controller_chooses_to_pull_for_incast_on_networks_that_trim_and_to_push_otherwise() {
    let chosen =
        |sources: usize, trims: bool| delivery(&mut bench(&vec![500; sources]), wish(1, None, trims));
    assert_eq!(chosen(8, true), Delivery::Pull { initial_window: 12 });
    assert_eq!([chosen(7, true), chosen(8, false), chosen(1, true)], [Delivery::Push; 3]);
    // Flows of other tasks to the same receiver count.
    let mut busy = bench(&[500; 4]);
    assert_eq!(delivery(&mut busy, wish(1, None, true)), Delivery::Push);
    assert!(matches!(delivery(&mut busy, wish(2, None, true)), Delivery::Pull { .. }));
    // A transport that cannot serve a request is not chosen for it.
    for request in [
        Request { class: Class::Gentle, ..wish(1, None, true) },
        Request { spread: SpreadRule::Equal, ..wish(1, None, true) },
    ] {
        assert_eq!(delivery(&mut bench(&[500; 8]), request), Delivery::Push);
    }
    assert_eq!(delivery(&mut bench(&[500; 8]), wish(1, Some(Delivery::Push), true)), Delivery::Push);
}

/// Goal: without switches that compute rates a scheduled flow would be sent at the rate of its source's link (PAM), so nobody gets one by
/// asking for it.
#[test]
fn a_scheduled_flow_cannot_be_asked_for() {
    let rate = Delivery::Rate { receivers: 1, deadline: None, terms: None };
    assert_eq!(delivery(&mut bench(&[500]), wish(1, Some(rate), false)), Delivery::Push);
}
