//! Gets of one object at the same time.

use headwater_controller::ControllerConfig;
use headwater_units::{BitRate, TaskId};
use headwater_wire::{
    Control, Delivery, FlowGrant, FlowRole, NodeInfo, Outcome, Request, ToController, ToReceiver, ToSource,
};

use crate::harness::{Accepted, Bench, by_stripe, delivering, info, ms, node, request};

pub(crate) fn bench() -> Bench {
    Bench::with(ControllerConfig { groups: Vec::new(), ..ControllerConfig::default() }).holders([1])
}

/// Request of a get that can pass on.
pub(crate) fn wish(n: u8) -> Request {
    Request { delivery: None, passes_on: true, ..request(n, 1, "object-1") }
}

/// Such a get begins, at this rate once it is asked.
pub(crate) fn begin(bench: &mut Bench, n: u8) -> Accepted {
    bench.join(n);
    bench.ask(n, wish(n))
}

fn report(bench: &mut Bench, n: u8, get: &Accepted, rate: u64) {
    let flows = get.flows.iter().map(|flow| delivering(flow.flow, rate)).collect();
    bench.feedback(n, get.task, 1000, 0, flows);
}

/// Order to a receiver to begin anew: its task, the version, and its flows.
fn anew(bench: &mut Bench, n: u8) -> Option<(TaskId, u32, Vec<FlowGrant>)> {
    bench.heard(n).into_iter().find_map(|control| match control {
        Control::Receiver(ToReceiver::Accepted { task, version, delivery, flows, .. }) => {
            assert!(matches!(delivery, Delivery::Overlay { .. }));
            Some((task, version, flows))
        }
        _ => None,
    })
}

/// Gets of these receivers at a slow rate, 10 ms apart, until the overlay should have begun.
pub(crate) fn swarm(bench: &mut Bench, receivers: &[u8], rate: u64) -> Vec<Accepted> {
    let gets: Vec<Accepted> = receivers
        .iter()
        .map(|n| {
            bench.pass(ms(10));
            begin(bench, *n)
        })
        .collect();
    bench.pass(ms(50));
    receivers.iter().zip(&gets).for_each(|(n, get)| report(bench, *n, get, rate));
    bench.pass(ms(60));
    gets
}

#[test]
fn gets_that_will_take_long_go_on_as_an_overlay() {
    let mut bench = bench();
    let gets = swarm(&mut bench, &[2, 3, 4], 5_000_000);
    let stopped = bench.heard(1);
    for get in &gets {
        let stop = Control::Source(ToSource::Stop { flow: get.flows[0].flow });
        assert!(stopped.contains(&stop), "nobody pushes any more");
    }
    for ((stripe, n), get) in (0u8..).zip([2, 3, 4]).zip(&gets) {
        let heard = bench.heard(n);
        let relays = heard
            .iter()
            .filter(|it| matches!(it, Control::Source(ToSource::Push(push)) if push.role == FlowRole::Relay));
        assert_eq!(relays.count(), 2, "to both others");
        bench.sent.extend(heard.into_iter().map(|control| (crate::harness::path(n), control)));
        let (task, version, flows) = anew(&mut bench, n).expect("it is told to begin anew");
        assert_eq!((task, version, flows.len()), (get.task, 1, 3));
        let own: Vec<u8> = flows.iter().filter(|flow| !flow.relays).map(|flow| flow.index).collect();
        assert_eq!(own, [stripe], "from the source");
    }
    assert_eq!(bench.controller.stats().tasks_regrouped, 3);
}

#[test]
fn who_begins_anew_is_told_until_it_says_so() {
    let mut bench = bench();
    let gets = swarm(&mut bench, &[2, 3], 5_000_000);
    assert!(anew(&mut bench, 2).is_some());
    // It has not heard of it.
    report(&mut bench, 2, &gets[0], 5_000_000);
    bench.pass(ms(600));
    let (_, version, flows) = anew(&mut bench, 2).expect("it is told again");
    let views = flows.iter().map(|flow| delivering(flow.flow, 1)).collect();
    bench.feedback(2, gets[0].task, 900, version, views);
    bench.pass(ms(2000));
    assert_eq!(anew(&mut bench, 2), None);
    // Later changes reach it as in any task.
    bench.say(3, ToController::Fin { task: gets[1].task, outcome: Outcome::Done });
    bench.lose_path(3);
    bench.pass(ms(10));
    assert_eq!(bench.sources(gets[0].task), [1; 4], "nobody else has it");
}

#[test]
fn who_comes_later_has_all_stripes_and_passes_some_on() {
    let mut bench = bench();
    swarm(&mut bench, &[2, 3], 5_000_000);
    let get = begin(&mut bench, 4);
    assert_eq!(by_stripe(&get.flows), [2, 2, 3, 3]);
    bench.join(5);
    let other = bench.ask(5, Request { passes_on: false, ..wish(5) });
    assert_eq!(by_stripe(&other.flows), [4; 4], "and passes nothing on");
    let third = begin(&mut bench, 6);
    assert!(!by_stripe(&third.flows).contains(&5));
    let pushed = bench.ask(7, Request { delivery: Some(Delivery::Push), ..wish(7) });
    assert_eq!(pushed.flows.iter().map(|flow| flow.node).collect::<Vec<_>>(), [node(1)]);
}

#[test]
fn who_is_left_in_peace() {
    // They are as few as the sources.
    let mut two = Bench::with(ControllerConfig::default()).holders([1, 9]);
    swarm(&mut two, &[2, 3], 5_000_000);
    // They will be through within a second: a thousand symbols are 11 Mbit.
    let mut fast = bench();
    swarm(&mut fast, &[2, 3], 20_000_000);
    // They cannot pass on, or are told how they are to be served.
    let mut told = bench();
    for (n, wish) in [
        (2, Request { passes_on: false, ..wish(2) }),
        (3, Request { delivery: Some(Delivery::Push), ..wish(3) }),
        (4, Request { max_sources: Some(1), ..wish(4) }),
        (5, wish(5)),
    ] {
        told.join(n);
        told.ask(n, wish);
    }
    told.pass(ms(1000));
    // Nobody knows where they are.
    let mut unknown = bench();
    [2, 3].into_iter().for_each(|n| _ = unknown.ask(n, wish(n)));
    unknown.pass(ms(1000));
    for mut bench in [two, fast, told, unknown] {
        for n in 2..6 {
            assert_eq!(anew(&mut bench, n), None, "host {n}");
        }
        assert_eq!(bench.controller.stats().swarms_overlaid, 0);
    }
}

#[test]
fn what_links_carry_decides_where_it_is_stated() {
    let run = |uplink: u64| {
        let mut bench = bench();
        let mbit = |rate: u64| Some(BitRate::new(rate * 1_000_000));
        bench.say(1, ToController::Hello(NodeInfo { uplink: mbit(uplink), ..info(1) }));
        let mut gets = Vec::new();
        for n in [2, 3] {
            bench.say(n, ToController::Hello(NodeInfo { downlink: mbit(100), ..info(n) }));
            gets.push(bench.ask(n, wish(n)));
        }
        bench.pass(ms(50));
        [2, 3].iter().zip(&gets).for_each(|(n, get)| report(&mut bench, *n, get, 5_000_000));
        bench.pass(ms(400));
        bench.controller.stats().swarms_overlaid
    };
    assert_eq!((run(199), run(200)), (1, 0));
}

/// Whatever rates others claim: they are added up.
#[test]
fn rates_beyond_all_links_do_no_harm() {
    let endless = Some(BitRate::new(u64::MAX));
    for rate in [u64::MAX, 5_000_000] {
        let mut bench = Bench::with(ControllerConfig { groups: Vec::new(), ..ControllerConfig::default() });
        bench = bench.holders([1, 9]);
        for n in [1, 9] {
            bench.say(n, ToController::Hello(NodeInfo { uplink: endless, ..info(n) }));
        }
        let mut gets = Vec::new();
        for n in [2, 3, 4] {
            bench.say(n, ToController::Hello(NodeInfo { downlink: endless, ..info(n) }));
            gets.push(bench.ask(n, wish(n)));
        }
        bench.pass(ms(50));
        [2, 3, 4].iter().zip(&gets).for_each(|(n, get)| report(&mut bench, *n, get, rate));
        bench.pass(ms(400));
        assert!(gets.iter().all(|get| get.flows.len() == 2), "each has a flow from both");
        assert_eq!(bench.controller.stats().swarms_overlaid, 0);
    }
}
