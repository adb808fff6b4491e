//! Algorithm 1 at work: which links are known, what the weights become, and how they are told (PPUSH §III-C).

use headwater_controller::ControllerConfig;
use headwater_units::{BitRate, TaskId, Theta};
use headwater_wire::{NodeInfo, Outcome, Precedence, ToController, TransferOrder, Urgency};

use crate::harness::{Accepted, Bench, delivering, holding, info, ms, report, request};

/// 1,417 bytes of symbol (185 to a block), 48 of header and tags, 28 of UDP and IP.
const WIRE_PACKET_BITS: u64 = 1493 * 8;

fn theta(bench: &Bench, task: TaskId) -> Vec<f64> {
    bench.task(task).flows.iter().map(|f| f.theta.get()).collect()
}

/// Node 1 holds the object behind an uplink of 100,000 packets a second.
fn stated(config: ControllerConfig) -> Bench {
    let mut bench = Bench::with(config);
    let uplink = Some(BitRate::new(100_000 * WIRE_PACKET_BITS));
    bench.say(1, ToController::Hello(NodeInfo { uplink, ..info(1) }));
    bench.say(1, ToController::Hold(holding(1)));
    bench
}

fn start(bench: &mut Bench, receivers: &[(u8, u64)]) -> Vec<Accepted> {
    receivers
        .iter()
        .map(|&(n, needed)| {
            let accepted = bench.get(n);
            bench.confirm();
            bench.feedback(n, accepted.task, needed, 0, vec![]);
            accepted
        })
        .collect()
}

/// Every source reports the weight that it was told, and this round trip.
fn measure(bench: &mut Bench, rtt_ms: u64) {
    for flow in bench.flows() {
        bench.say(flow.node.0[0], report(flow.flow, flow.theta.get(), Some(ms(rtt_ms))));
    }
}

/// Stated or measured (docs/decisions/0031).
#[test]
fn before_anything_is_measured_weights_stay_between_a_half_and_two() {
    let mut bench = Bench::new().holders([1]);
    let tasks = start(&mut bench, &[(8, 500), (9, 100)]);
    bench.pass(ms(600));
    assert_eq!(theta(&bench, tasks[0].task), [0.5]);
    assert_eq!(theta(&bench, tasks[1].task), [2.0]);
}

/// Eq. 20: 1.1 ms x 100,000 packets/s / 2 = 55, as in PPUSH §V-A.
#[test]
fn the_smallest_task_takes_what_a_stated_uplink_allows() {
    let mut bench = stated(ControllerConfig::default());
    let receivers: Vec<(u8, u64)> = (11..20).map(|n| (n, 1_000 + u64::from(n))).collect();
    let tasks = start(&mut bench, &receivers);
    for flow in bench.flows() {
        let rtt = Some(headwater_units::Duration::from_micros(1_100));
        bench.say(1, report(flow.flow, flow.theta.get(), rtt));
    }
    bench.pass(ms(500));
    assert!((theta(&bench, tasks[0].task)[0] - 51.0).abs() < 1e-9, "{:?}", theta(&bench, tasks[0].task));
    assert!(tasks[1..].iter().all(|t| theta(&bench, t.task) == [0.5]));
    // A smaller one arrives: it takes the token at once, and the order to push says so.
    let _ = bench.heard(1);
    let small = bench.get(20);
    bench.feedback(20, small.task, 10, 0, vec![]);
    bench.pass(ms(500));
    assert!((theta(&bench, small.task)[0] - 50.5).abs() < 1e-9);
    assert_eq!(theta(&bench, tasks[0].task), [0.5]);
    // And gives it back when it is done.
    bench.pass(ms(20));
    bench.say(20, ToController::Fin { task: small.task, outcome: Outcome::Done });
    assert!((theta(&bench, tasks[0].task)[0] - 51.0).abs() < 1e-9);
}

/// Goal: where no switch looks at ranks, an urgent task has the token of its links whatever its size, until it is late.
#[test]
fn a_task_with_a_deadline_goes_before_smaller_ones_until_it_is_late() {
    let mut bench = stated(ControllerConfig::default());
    let tasks = start(&mut bench, &[(11, 100), (12, 200)]);
    let precedence = Precedence { order: TransferOrder::EarliestDeadline, drops_late: false };
    let urgent = |within| Urgency { precedence, deadline: Some(within) };
    let late = bench.ask_urgently(13, request(13, 1, "object-1"), urgent(ms(2_000)));
    let later = bench.ask_urgently(14, request(14, 1, "object-1"), urgent(ms(60_000)));
    bench.confirm();
    for flow in bench.flows() {
        let rtt = Some(headwater_units::Duration::from_micros(1_100));
        bench.say(1, report(flow.flow, flow.theta.get(), rtt));
    }
    let feedback = |bench: &mut Bench| {
        for (receiver, task, needed) in [
            (11, tasks[0].task, 100),
            (12, tasks[1].task, 200),
            (13, late.task, 5_000),
            (14, later.task, 5_000),
        ] {
            bench.feedback(receiver, task, needed, 0, vec![]);
        }
    };
    let thetas = |bench: &Bench| {
        [late.task, later.task, tasks[0].task, tasks[1].task].map(|task| theta(bench, task)[0] > 1.0)
    };
    feedback(&mut bench);
    bench.pass(ms(600));
    assert_eq!(thetas(&bench), [true, false, false, false], "the one whose deadline is next");
    feedback(&mut bench);
    bench.pass(ms(2_000));
    assert_eq!(thetas(&bench), [false, true, false, false], "what is late has no claim any more");
    bench.say(14, ToController::Fin { task: later.task, outcome: Outcome::Done });
    bench.pass(ms(20));
    assert!(theta(&bench, tasks[0].task)[0] > 1.0, "then the smallest");
}

#[test]
fn without_a_stated_capacity_the_largest_delivered_rate_of_ten_seconds_counts() {
    let mut bench = Bench::new().holders([1]);
    let accepted = &start(&mut bench, &[(9, 5_000)])[0];
    let flow = accepted.flows[0].flow;
    let symbol_bits = u64::from(accepted.symbol_size) * 8;
    measure(&mut bench, 10);
    bench.pass_with_feedback(9, accepted.task, ms(1_000), &[delivering(flow, 2_000 * symbol_bits)]);
    let close = |a: f64, b: f64| (a - b).abs() < 0.01 * b;
    assert!(close(theta(&bench, accepted.task)[0], 10.0), "10 ms x 2,000 packets/s / 2");
    bench.pass_with_feedback(9, accepted.task, ms(5_000), &[delivering(flow, 500 * symbol_bits)]);
    assert!(close(theta(&bench, accepted.task)[0], 10.0), "the larger rate is remembered");
    bench.pass_with_feedback(9, accepted.task, ms(7_000), &[delivering(flow, 500 * symbol_bits)]);
    assert!(close(theta(&bench, accepted.task)[0], 2.5), "but not for ever");
}

#[test]
fn a_rack_is_one_link_for_all_its_nodes() {
    let rack = Some(("r".to_owned(), Some(BitRate::new(2_000 * WIRE_PACKET_BITS))));
    let mut bench = Bench::new();
    for n in [1, 2] {
        bench.say(n, ToController::Hello(NodeInfo { rack: rack.clone(), ..info(n) }));
        bench.say(n, ToController::Hold(holding(n)));
    }
    // Two tasks with nothing in common but the rack's uplink.
    let small = bench.ask(8, request(8, 1, "object-1"));
    let large = bench.ask(9, request(9, 1, "object-2"));
    bench.feedback(8, small.task, 10, 0, vec![]);
    bench.feedback(9, large.task, 100, 0, vec![]);
    measure(&mut bench, 10);
    bench.pass(ms(500));
    assert_eq!(theta(&bench, small.task), [9.5]);
    assert_eq!(theta(&bench, large.task), [0.5]);
    // Within the rack its uplink is not used.
    bench.say(8, ToController::Hello(NodeInfo { rack, ..info(8) }));
    bench.pass(ms(500));
    assert_eq!(theta(&bench, small.task), [2.0]);
    assert_eq!(theta(&bench, large.task), [10.0]);
}

#[test]
fn a_weight_is_told_when_it_changes_by_more_than_a_hundredth_and_until_reported() {
    let mut bench = stated(ControllerConfig::default());
    let task = start(&mut bench, &[(9, 5_000)])[0].task;
    let _ = bench.heard(1);
    measure(&mut bench, 10);
    bench.pass(ms(500));
    assert_eq!(bench.thetas(1), [500.0]);
    let flow = bench.flows()[0].flow;
    // Half a per cent more round trip is not worth a message.
    bench.say(1, report(flow, 500.0, Some(headwater_units::Duration::from_micros(10_200))));
    bench.pass(ms(600));
    assert!(bench.thetas(1).is_empty());
    // The source works by another weight: the message was lost.
    bench.say(1, report(flow, 2.0, None));
    bench.say(1, report(flow, 2.0, None));
    assert_eq!(bench.thetas(1), [500.0], "once, and not again at once");
    bench.pass(ms(600));
    bench.say(1, report(flow, 2.0, None));
    assert_eq!(bench.thetas(1), [500.0]);
    bench.say(1, report(flow, 500.0, None));
    bench.pass(ms(600));
    assert!(bench.thetas(1).is_empty());
    assert_eq!(theta(&bench, task), [500.0]);
}

#[test]
fn the_flows_of_a_silent_receiver_do_not_hold_the_token() {
    let mut bench = stated(ControllerConfig::default());
    let tasks = start(&mut bench, &[(8, 10), (9, 5_000)]);
    measure(&mut bench, 1);
    bench.pass(ms(500));
    assert_eq!(theta(&bench, tasks[1].task), [0.5]);
    bench.pass_with_feedback(9, tasks[1].task, ms(3_000), &[]);
    assert_eq!(theta(&bench, tasks[1].task), [50.0]);
    bench.pass(ms(20));
    bench.feedback(8, tasks[0].task, 10, 0, vec![]);
    assert_eq!(theta(&bench, tasks[1].task), [0.5]);
}

#[test]
fn a_burst_of_arrivals_costs_two_plans_and_the_last_one_knows_all() {
    let mut bench = stated(ControllerConfig::default());
    for n in 10..60 {
        bench.get(n);
    }
    assert_eq!(bench.controller.stats().plans, 1);
    bench.pass(ms(20));
    assert_eq!(bench.controller.stats().plans, 2);
    // As in the paper: every arrival by itself.
    let every =
        ControllerConfig { replan_gap: headwater_units::Duration::ZERO, ..ControllerConfig::default() };
    let mut bench = stated(every);
    for n in 10..60 {
        bench.get(n);
    }
    assert_eq!(bench.controller.stats().plans, 50);
}

#[test]
fn weights_follow_remaining_sizes_between_arrivals_too() {
    let mut bench = stated(ControllerConfig::default());
    let tasks = start(&mut bench, &[(8, 500), (9, 1_000)]);
    measure(&mut bench, 1);
    bench.pass(ms(500));
    assert_eq!((theta(&bench, tasks[0].task)[0], theta(&bench, tasks[1].task)[0]), (49.5, 0.5));
    bench.feedback(9, tasks[1].task, 400, 0, vec![]);
    bench.pass(ms(500));
    assert_eq!((theta(&bench, tasks[0].task)[0], theta(&bench, tasks[1].task)[0]), (0.5, 49.5));
}

#[test]
fn control_runs_give_every_flow_the_weight_one() {
    let mut bench = stated(ControllerConfig { fixed_theta: Some(Theta::ONE), ..ControllerConfig::default() });
    let tasks = start(&mut bench, &[(8, 10), (9, 5_000)]);
    assert!(bench.pushes(1).iter().all(|push| push.theta.get() == 1.0));
    measure(&mut bench, 1);
    bench.pass(ms(2_000));
    assert!(tasks.iter().all(|t| theta(&bench, t.task) == [1.0]));
    assert!(bench.thetas(1).is_empty());
}

/// Numbers from the network cannot make the plan fail.
#[test]
fn absurd_measurements_are_survived() {
    let mut bench = Bench::new().holders([1, 2]);
    let accepted = &start(&mut bench, &[(9, u64::MAX)])[0];
    let views: Vec<_> = accepted.flows.iter().map(|f| delivering(f.flow, u64::MAX)).collect();
    for flow in &accepted.flows {
        let rtt = Some(headwater_units::Duration::MAX);
        bench.say(flow.node.0[0], report(flow.flow, 1e300, rtt));
    }
    bench.pass_with_feedback(9, accepted.task, ms(2_000), &views);
    assert!(theta(&bench, accepted.task).iter().all(|t| t.is_finite() && *t >= 0.5));
}
