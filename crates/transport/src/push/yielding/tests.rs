//! The rule by itself; `crates/sim/tests/gentle.rs` has it beside TCP and its like.

use super::fifo::{Fifo, Flow, run};
use super::*;

fn ms(n: f64) -> Duration {
    Duration::from_secs_f64(n / 1e3)
}

fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

/// A flow that has seen the empty path, 0.2 ms, and is past slow start with this window.
fn steady(window: f64) -> Yielding {
    let mut flow = Yielding::new(YieldingConfig::default(), Theta::ONE);
    flow.base.record(Time::ZERO, ms(0.2), flow.config.base_window);
    (flow.window, flow.slow_start) = (window, false);
    flow
}

/// A round of `acked` packets, `ce` of them marked, at this round-trip time; the numbers go on from the round before.
fn round(flow: &mut Yielding, now: Time, acked: u64, ce: u64, lost: u64, rtt: Duration) {
    let first = flow.largest.0 + 1;
    flow.round.end = Some(PacketNumber(first + acked - 1));
    for part in 0..4 {
        let feedback = Feedback {
            acked: acked / 4,
            marked: 0,
            lost: if part == 0 { lost } else { 0 },
            largest: PacketNumber(first + acked / 4 * (part + 1) - 1),
            next: PacketNumber(first + acked),
            limited: true,
            by_routers: false,
        };
        let ce = ce.saturating_sub(acked / 4 * part).min(acked / 4);
        flow.on_ack(now, &feedback, ce, Some((rtt, ms(0.2))));
    }
}

#[test]
fn a_queue_below_half_the_target_lets_the_window_grow_by_the_gain() {
    let mut flow = steady(40.0);
    round(&mut flow, at(0.0), 40, 0, 0, ms(0.6));
    assert!((flow.window - 40.0 - 1.0 / 16.0).abs() < 1e-3, "{}", flow.window);
    assert_eq!(flow.yields(), Yields::default());
}

#[test]
fn the_longer_the_queue_the_deeper_the_cut_up_to_half() {
    let cut = |queueing: f64| {
        let mut flow = steady(40.0);
        round(&mut flow, at(0.0), 40, 0, 0, ms(0.2 + queueing));
        assert_eq!(flow.yields().to_delay, 1);
        1.0 - flow.window / (40.0 + 1.0 / 16.0)
    };
    let cuts = [cut(1.0), cut(1.5), cut(2.5), cut(50.0)];
    let expected = [1.0 / 32.0, 1.0 / 8.0, 0.5, 0.5];
    assert!(cuts.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{cuts:?}");
}

#[test]
fn the_smallest_sample_of_a_round_counts_so_a_late_host_is_no_queue() {
    let mut flow = steady(40.0);
    let feedback = |largest, next| Feedback {
        acked: 10,
        marked: 0,
        lost: 0,
        largest: PacketNumber(largest),
        next: PacketNumber(next),
        limited: true,
        by_routers: false,
    };
    for (n, rtt) in [20.0, 20.0, 0.3, 20.0, 20.0, 20.0, 0.4, 20.0].into_iter().enumerate() {
        flow.on_ack(at(0.0), &feedback(n as u64 * 10, n as u64 * 10 + 40), 0, Some((ms(rtt), ms(0.2))));
    }
    assert_eq!(flow.yields(), Yields::default());
}

#[test]
fn a_cut_is_not_repeated_before_it_can_show() {
    let mut flow = steady(64.0);
    let seen: Vec<u64> = (0..6)
        .map(|n| {
            round(&mut flow, at(n as f64 * 0.01), 16, 0, 0, ms(9.0));
            flow.yields().to_delay
        })
        .collect();
    assert_eq!(seen, [1, 1, 2, 2, 3, 3]);
    assert!((8.0..8.3).contains(&flow.window), "{}", flow.window);
}

#[test]
fn losses_of_one_window_halve_it_once() {
    let mut flow = steady(64.0);
    round(&mut flow, at(0.0), 64, 0, 3, ms(0.3));
    assert!((32.0..32.1).contains(&flow.window), "{}", flow.window);
    assert_eq!((flow.yields().to_loss, flow.yields().total()), (1, 1));
    // Of packets that had left by then.
    let late = Feedback {
        acked: 1,
        marked: 0,
        lost: 5,
        largest: PacketNumber(flow.recovering.0 - 1),
        next: PacketNumber(flow.recovering.0 + 10),
        limited: true,
        by_routers: false,
    };
    flow.on_ack(at(0.0), &late, 0, None);
    assert_eq!(flow.yields().to_loss, 1);
    flow.on_ack(at(0.0), &Feedback { largest: flow.recovering, ..late }, 0, None);
    assert_eq!(flow.yields().to_loss, 2);
}

#[test]
fn a_marked_packet_costs_a_packet_and_a_round_at_most_half() {
    let mut flow = steady(40.0);
    round(&mut flow, at(0.0), 40, 3, 0, ms(0.3));
    assert!((flow.window - 37.06).abs() < 0.01, "{}", flow.window);
    let mut flow = steady(40.0);
    round(&mut flow, at(0.0), 40, 40, 0, ms(0.3));
    assert!((flow.window - 20.03).abs() < 0.01, "{}", flow.window);
    assert_eq!((flow.yields().to_marks, flow.yields().total()), (1, 1));
}

#[test]
fn slow_start_is_slow_and_ends_with_the_first_queue() {
    let mut flow = Yielding::new(YieldingConfig::default(), Theta::ONE);
    assert_eq!(flow.window().get(), 2.0);
    flow.window = 16.0;
    flow.base.record(Time::ZERO, ms(0.2), flow.config.base_window);
    round(&mut flow, at(0.0), 16, 0, 0, ms(0.4));
    assert!(flow.in_slow_start() && flow.window == 20.0, "{}", flow.window);
    round(&mut flow, at(0.0), 20, 0, 0, ms(1.0));
    assert!(!flow.in_slow_start());
}

#[test]
fn a_link_that_stays_idle_is_filled_faster_and_a_timeout_begins_anew() {
    let mut flow = steady(64.0);
    for n in 0..200 {
        round(&mut flow, at(n as f64 * 0.001), 64, 0, 0, ms(0.3));
    }
    // 100 ms by the gain, then 100 rounds by 1/160 to 1/80 of 64 packets each.
    assert!((120.0..130.0).contains(&flow.window), "{}", flow.window);
    flow.on_rto(at(0.3));
    assert_eq!((flow.window().get(), flow.in_slow_start(), flow.yields().to_loss), (1.0, false, 1));
}

#[test]
fn the_weight_is_only_reported() {
    let mut flow = steady(40.0);
    flow.set_theta(Theta::new(12.0));
    assert_eq!((flow.theta().get(), flow.window().get()), (12.0, 40.0));
}

#[test]
fn target_and_gain_follow_the_empty_path_within_bounds() {
    let config = YieldingConfig::default();
    let target = |base, overflow: Option<f64>| config.target(ms(base), overflow.map(ms));
    assert_eq!([0.05, 4.0, 16.0, 200.0].map(|b| target(b, None)), [1.0, 1.0, 2.0, 5.0].map(ms));
    // A queue that overflows with 2 ms, 20 ms and nothing in it.
    assert_eq!([2.0, 20.0, 0.0].map(|full| target(0.1, Some(full))), [0.5, 1.0, 0.2].map(ms));
    assert_eq!([0.05, 2.0, 40.0].map(|b| config.gain(ms(b))), [1.0 / 16.0, 1.0 / 8.0, 0.25]);
}

// ---- on a link ------------------------------------------------------------------------------------------------------

/// 100 Mbit/s in packets of 1500 bytes, and a queue that holds `depth` milliseconds.
fn link(empty: f64, depth: f64) -> Fifo {
    Fifo { packet: ms(0.12), empty: ms(empty), depth: (depth / 0.12) as usize }
}

/// Goodput of a flow that has the link for itself.
fn alone(fifo: Fifo, flow: Flow) -> f64 {
    let mut flows = [flow];
    run(fifo, &mut flows, at(15.0));
    flows[0].share(fifo, at(3.0), at(15.0))
}

/// Goal: at least 0.9 of its goodput alone for TCP, whichever flow came first, in queues from 1 ms to 50 ms on short
/// paths and on one of 10 ms; and it was by yielding.
#[test]
fn tcp_keeps_nine_tenths_in_a_fifo_whoever_came_first() {
    for (empty, depth) in
        [(0.1, 1.0), (0.1, 5.0), (0.1, 50.0), (1.0, 2.0), (1.0, 20.0), (10.0, 5.0), (10.0, 50.0)]
    {
        let fifo = link(empty, depth);
        let tcp = alone(fifo, Flow::tcp(at(0.0)));
        for (gentle, other) in [(0.0, 1.0), (1.0, 0.0)] {
            let mut flows = [Flow::gentle(at(gentle)), Flow::tcp(at(other))];
            run(fifo, &mut flows, at(15.0));
            let kept = flows[1].share(fifo, at(3.0), at(15.0)) / tcp;
            let yields = flows[0].yields();
            println!("{empty} ms, {depth} ms of queue, from {gentle} s: TCP keeps {kept:.3}; {yields:?}");
            assert!(kept >= 0.9, "{empty} ms, {depth} ms of queue, from {gentle} s: {kept}, {yields:?}");
            assert!(yields.to_delay > 10, "{yields:?}");
        }
    }
}

/// In a queue that is shorter than what delay can show, loss decides, and TCP grows faster.
#[test]
fn tcp_has_four_times_as_much_where_the_queue_is_shorter_than_any_target() {
    let fifo = link(1.0, 0.5);
    let mut flows = [Flow::gentle(at(0.0)), Flow::tcp(at(0.0))];
    run(fifo, &mut flows, at(15.0));
    let [gentle, tcp] = [0, 1].map(|n| flows[n].share(fifo, at(3.0), at(15.0)));
    assert!(tcp > 4.0 * gentle, "TCP {tcp}, gentle {gentle}");
    assert!(flows[0].yields().to_loss > 10, "{:?}", flows[0].yields());
}

#[test]
fn alone_it_fills_the_link_and_again_when_tcp_has_gone() {
    for (empty, depth) in [(0.1, 1.0), (0.1, 50.0), (1.0, 5.0), (10.0, 5.0), (10.0, 50.0)] {
        let fifo = link(empty, depth);
        let solo = alone(fifo, Flow::gentle(at(0.0)));
        assert!(solo >= 0.9, "{empty} ms, {depth} ms of queue: {solo}");
        let mut flows = [Flow::gentle(at(0.0)), Flow::tcp(at(0.0))];
        flows[1].until = at(6.0);
        run(fifo, &mut flows, at(10.0));
        let after = flows[0].share(fifo, at(8.0), at(9.5));
        assert!(after >= 0.9, "{empty} ms, {depth} ms of queue: {after} two seconds later");
    }
}

#[test]
fn two_of_them_share_the_link_about_equally_and_fill_it() {
    for (empty, depth) in [(0.1, 5.0), (1.0, 5.0), (1.0, 50.0), (10.0, 5.0)] {
        let fifo = link(empty, depth);
        let mut flows = [Flow::gentle(at(0.0)), Flow::gentle(at(2.0))];
        run(fifo, &mut flows, at(30.0));
        let [one, other] = [0, 1].map(|n| flows[n].share(fifo, at(15.0), at(30.0)));
        println!("{empty} ms, {depth} ms of queue: {one:.3} and {other:.3}");
        assert!(
            one + other > 0.9 && (0.5..2.0).contains(&(one / other)),
            "{empty}, {depth}: {one} and {other}"
        );
    }
}

/// Goal: an ordinary flow, even of the smallest weight, is in nobody's way but its own: it goes by a larger target.
#[test]
fn weighted_flows_keep_nine_tenths_beside_it() {
    for theta in [0.5, 4.0] {
        for (empty, depth) in [(0.1, 20.0), (1.0, 20.0), (10.0, 50.0)] {
            let fifo = link(empty, depth);
            let solo = alone(fifo, Flow::weighted(at(0.0), theta));
            let mut flows = [Flow::gentle(at(0.0)), Flow::weighted(at(1.0), theta)];
            run(fifo, &mut flows, at(15.0));
            let kept = flows[1].share(fifo, at(5.0), at(15.0)) / solo;
            let yields = flows[0].yields();
            println!("theta {theta}, {empty} ms, {depth} ms of queue: {kept:.3}, {yields:?}");
            assert!(kept >= 0.9, "theta {theta}, {empty} ms, {depth} ms of queue: {kept}, {yields:?}");
        }
    }
}
