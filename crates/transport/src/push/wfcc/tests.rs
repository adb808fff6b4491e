use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// How far a window that hears of packets in batches may be off one that hears of each: this part of it, and a packet.
const OFF: f64 = 0.02;

fn acks(acked: u64, marked: u64, largest: u64, next: u64) -> Feedback {
    Feedback {
        acked,
        marked,
        lost: 0,
        largest: PacketNumber(largest),
        next: PacketNumber(next),
        limited: true,
        by_routers: false,
    }
}

fn paper(theta: f64) -> Wfcc {
    Wfcc::new(WfccConfig::paper(), Theta::new(theta))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

#[test]
fn slow_start_adds_one_packet_per_acked_packet_until_the_first_mark() {
    let mut w = paper(1.0);
    for n in 0..5 {
        w.on_ack(Time::ZERO, &acks(1, 0, n, 2 * n + 2));
    }
    assert_eq!(w.window().get(), 6.0);
    assert!(w.in_slow_start());
    // Eq. 2 with alpha = 0: the mark itself adds 1/W and cuts nothing.
    w.on_ack(Time::ZERO, &acks(1, 1, 5, 12));
    assert!(!w.in_slow_start());
    assert!(near(w.window().get(), 6.0 + 1.0 / 6.0));
}

#[test]
fn equation_2_is_applied_per_packet_with_the_alpha_of_the_window_before() {
    let config =
        WfccConfig { initial_window: Packets::new(10.0), initial_mark_fraction: 0.5, ..WfccConfig::paper() };
    let mut w = Wfcc::new(config, Theta::new(2.0));
    w.growth = Growth::Avoidance;
    w.on_ack(Time::ZERO, &acks(3, 2, 2, 10));
    let mut expected: f64 = 10.0;
    for marked in [true, true, false] {
        expected += 1.0 / expected - if marked { 0.5 / (2.0 * 2.0) } else { 0.0 };
    }
    assert!(near(w.window().get(), expected));
}

#[test]
fn equation_1_is_applied_when_a_packet_sent_after_the_rounds_start_is_acked() {
    let mut w = paper(1.0);
    w.on_ack(Time::ZERO, &acks(1, 1, 0, 4)); // begins the round: it ends with packet 4
    w.on_ack(Time::ZERO, &acks(1, 0, 1, 5));
    w.on_ack(Time::ZERO, &acks(1, 0, 2, 6));
    assert_eq!(w.mark_fraction(), 0.0);
    w.on_ack(Time::ZERO, &acks(1, 1, 4, 8)); // F = 2/4
    assert!(near(w.mark_fraction(), 0.5 / 16.0));
    w.on_ack(Time::ZERO, &acks(4, 4, 8, 12)); // F = 1
    assert!(near(w.mark_fraction(), 15.0 / 16.0 * (0.5 / 16.0) + 1.0 / 16.0));
}

#[test]
fn many_packets_in_one_ack_move_the_window_like_as_many_acks() {
    let (mut one, mut many) = (paper(1.0), paper(1.0));
    for w in [&mut one, &mut many] {
        w.growth = Growth::Avoidance;
        w.window = 20.0;
        w.mark_fraction = 0.3;
    }
    for n in 0..8 {
        one.on_ack(Time::ZERO, &acks(1, u64::from(n < 3), n, 100));
    }
    many.on_ack(Time::ZERO, &acks(8, 3, 7, 100));
    assert!(near(one.window().get(), many.window().get()));
}

proptest! {
    /// Which of the packets were marked is lost in a batch. Cuts are the same, and 1/W differs while the window is off by
    /// at most all of them.
    #[test]
    fn the_order_of_marks_within_an_ack_matters_little(
        window in 16.0..2000.0f64, theta in 0.5..5.0f64, alpha in 0.0..1.0f64, order in vec(any::<bool>(), 1..=46)
    ) {
        let (mut one, mut many) = (paper(theta), paper(theta));
        for w in [&mut one, &mut many] {
            (w.growth, w.window, w.mark_fraction) = (Growth::Avoidance, window, alpha);
        }
        for (n, &marked) in (0..).zip(&order) {
            one.on_ack(Time::ZERO, &acks(1, u64::from(marked), n, 100_000));
        }
        let (packets, marked) = (order.len() as u64, order.iter().filter(|marked| **marked).count() as u64);
        many.on_ack(Time::ZERO, &acks(packets, marked, packets - 1, 100_000));
        let cuts = marked as f64 * alpha / (2.0 * theta);
        prop_assume!(window - cuts > 2.0);
        let bound = packets as f64 * cuts / (window - cuts).powi(2);
        let off = (one.window().get() - many.window().get()).abs();
        prop_assert!(off <= bound + 1e-9, "{off} > {bound}");
    }

    /// Over many rounds, with ACKs of as many packets as are asked for on real sockets (min(46, W/16)), the batched window
    /// is 2 % and a packet off at most: alpha learns of a round's end up to one ACK later.
    #[test]
    fn batched_acks_take_the_window_the_same_way(
        window in 32.0..1500.0f64, theta in 0.5..5.0f64, marks in 0.0..0.3f64, seed in any::<u64>()
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut one, mut many) = (paper(theta), paper(theta));
        for w in [&mut one, &mut many] {
            (w.growth, w.window, w.mark_fraction) = (Growth::Avoidance, window, marks);
        }
        let (mut waiting, mut marked) = (0, 0);
        for n in 0..20 * window as u64 {
            let mark = u64::from(rng.random_bool(marks));
            let flight = one.window().get() as u64;
            one.on_ack(Time::ZERO, &acks(1, mark, n, n + 1 + flight));
            (waiting, marked) = (waiting + 1, marked + mark);
            let interval = ((many.window().get() / 16.0) as u64).clamp(1, 46);
            if waiting >= interval {
                let flight = many.window().get() as u64;
                many.on_ack(Time::ZERO, &acks(waiting, marked, n, n + 1 + flight));
                (waiting, marked) = (0, 0);
            }
            let (one, many) = (one.window().get(), many.window().get());
            prop_assert!((one - many).abs() <= OFF * one + 1.0, "packet {n}: {one} and {many}");
        }
    }
}

#[test]
fn the_product_takes_alpha_as_one_when_slow_start_ends() {
    let mut w = Wfcc::new(WfccConfig::default(), Theta::ONE);
    w.on_ack(Time::ZERO, &acks(10, 0, 9, 30));
    w.on_ack(Time::ZERO, &acks(1, 1, 10, 31));
    assert_eq!(w.mark_fraction(), 1.0);
    assert!(near(w.window().get(), 20.0 + 1.0 / 20.0 - 0.5));
}

#[test]
fn the_window_and_theta_stay_at_or_above_their_floors() {
    let mut w = Wfcc::new(WfccConfig::default(), Theta::new(0.0));
    assert_eq!(w.theta(), Theta::FLOOR);
    w.set_theta(Theta::new(f64::NAN));
    assert_eq!(w.theta(), Theta::FLOOR);
    for n in 0..1000 {
        w.on_ack(Time::ZERO, &acks(1, 1, n, n + 1));
        assert!(w.window().get() >= 1.0);
    }
}

#[test]
fn inferred_loss_changes_nothing_and_an_rto_resets_the_window_to_one() {
    let (mut with, mut without) = (paper(1.0), paper(1.0));
    for n in 0..200 {
        with.on_ack(Time::ZERO, &Feedback { lost: 7, ..acks(1, 0, n, n + 50) });
        without.on_ack(Time::ZERO, &acks(1, 0, n, n + 50));
    }
    assert_eq!(with.window(), without.window());
    assert!(with.in_slow_start());
    with.on_ack(Time::ZERO, &acks(1, 1, 201, 250));
    with.on_rto(Time::ZERO, 3);
    assert_eq!(with.window().get(), 1.0);
    assert!(with.in_slow_start());
}

#[test]
fn a_flow_that_does_not_fill_its_window_does_not_grow_it() {
    let mut w = Wfcc::new(WfccConfig::default(), Theta::ONE);
    w.on_ack(Time::ZERO, &Feedback { limited: false, ..acks(5, 0, 4, 10) });
    assert_eq!(w.window().get(), 10.0);
}

/// Ten rounds of 10 % loss that no router announced, then losses count; a clean round ends that. Rounds of few packets are judged
/// together, and marks by delay excuse nothing.
#[test]
fn guarded_flows_take_persistent_silent_loss_as_marks_after_ten_rounds() {
    for (packets, rounds) in [(90, 11), (9, 20)] {
        let mut w = Wfcc::new(WfccConfig::default(), Theta::ONE);
        let mut number = 0;
        let mut round = |w: &mut Wfcc, lost: u64, marked: u64, by_routers: bool| {
            number += packets;
            let acks = acks(packets, marked, number, number + 1);
            w.on_ack(Time::ZERO, &Feedback { lost, by_routers, limited: false, ..acks });
            w.window().get()
        };
        let tenth = packets / 9;
        let before = w.window().get();
        for _ in 0..rounds {
            assert_eq!(round(&mut w, tenth, 0, false), before);
        }
        assert_eq!(round(&mut w, tenth, 0, false), before / 2.0);
        assert!(!w.in_slow_start());
        w.on_rto(Time::ZERO, 1);
        assert!(!w.in_slow_start(), "a timeout begins nothing anew where losses count");
        for _ in 0..2 {
            round(&mut w, 0, 0, false);
        }
        let calm = w.window().get();
        assert_eq!(round(&mut w, tenth, 0, false), calm);
        // Routers that mark have said what there is to say.
        for _ in 0..4 * rounds {
            round(&mut w, tenth, 1, true);
        }
        assert!(!w.guarding());
        for _ in 0..rounds + 2 {
            round(&mut w, tenth, 1, false);
        }
        assert!(w.guarding());
    }
}

#[test]
fn the_circuit_breaker_holds_the_window_until_an_interval_is_good() {
    let mut w = Wfcc::new(WfccConfig::default(), Theta::ONE);
    let mut number = 0;
    let mut second = |w: &mut Wfcc, s: u64, lost: u64| {
        number += 10;
        let now = Time::ZERO + Duration::from_secs(s);
        w.on_ack(now, &Feedback { lost, ..acks(10, 0, number, number + 10) });
    };
    for s in 0..10 {
        second(&mut w, s, 6);
        assert!(!w.tripped());
    }
    second(&mut w, 10, 6);
    assert!(w.tripped());
    second(&mut w, 11, 6);
    assert_eq!(w.window().get(), 1.0);
    second(&mut w, 12, 1);
    assert!(!w.tripped() && w.in_slow_start());
}

/// Measurements of a shared bottleneck over the second half of a run.
#[derive(Debug)]
struct Shared {
    delivered: Vec<u64>,
    alphas: Vec<f64>,
    /// Mean sum of windows, and mean queue.
    windows: f64,
    depth: f64,
}

/// One bottleneck as in the paper's §IV-B: it marks an arrival that finds `mark` packets or more in the queue (the one
/// being sent included), and there is no other delay. Time is counted in packets.
fn share_a_bottleneck(thetas: &[f64], mark: usize, packets: u64) -> Shared {
    let mut flows: Vec<Wfcc> = thetas.iter().map(|&t| paper(t)).collect();
    let mut next = vec![0u64; flows.len()];
    let mut flying = vec![0usize; flows.len()];
    let mut queue: VecDeque<(usize, u64, bool)> = VecDeque::new();
    let (mut delivered, mut alphas) = (vec![0u64; flows.len()], vec![0.0; flows.len()]);
    let (mut windows, mut depth) = (0.0, 0.0);
    for slot in 0..packets {
        for f in 0..flows.len() {
            while flows[f].allows(flying[f]) {
                queue.push_back((f, next[f], queue.len() >= mark));
                next[f] += 1;
                flying[f] += 1;
            }
        }
        if slot >= packets / 2 {
            windows += flows.iter().map(|w| w.window().get()).sum::<f64>();
            depth += queue.len() as f64;
            for (sum, flow) in alphas.iter_mut().zip(&flows) {
                *sum += flow.mark_fraction();
            }
        }
        let (f, number, marked) = queue.pop_front().expect("a window of one keeps the queue busy");
        flying[f] -= 1;
        flows[f].on_ack(Time::ZERO, &acks(1, u64::from(marked), number, next[f]));
        if slot >= packets / 2 {
            delivered[f] += 1;
        }
    }
    let n = (packets - packets / 2) as f64;
    let alphas = alphas.iter().map(|a| a / n).collect();
    Shared { delivered, alphas, windows: windows / n, depth: depth / n }
}

/// Theorem 1 where windows are large enough that whole packets do not matter: 4:1 within 5 %.
#[test]
fn flows_share_a_bottleneck_in_proportion_to_theta() {
    let s = share_a_bottleneck(&[4.0, 16.0], 150, 400_000);
    let ratio = s.delivered[1] as f64 / s.delivered[0] as f64;
    println!("ratio {ratio:.3}, {s:.3?}");
    assert!((ratio - 4.0).abs() < 0.2, "ratio {ratio}");
    assert!(s.alphas.iter().all(|a| (a - (2.0f64 * 20.0 / 150.0).sqrt()).abs() < 0.05));
    let s = share_a_bottleneck(&[1.0, 1.0], 30, 200_000);
    assert!((s.delivered[1] as f64 / s.delivered[0] as f64 - 1.0).abs() < 0.05, "{s:?}");
}

/// The setting of Fig. 2 (experiment P-2): α = sqrt(2 * 5 / 30) = 0.577 within 15 % (Eq. 18), windows and queue 30 +- 4.
///
/// The share comes out above 4:1, and must: a flow keeps floor(W) packets in flight, half a packet less than W on
/// average, and windows of 6.2 and 24.8 become 5.7 and 24.3, which is 4.26:1. The smaller flow also meets its own
/// packets more often in the queue: each packet that its window gains is a larger part of it. A queue without any
/// randomness adds a lattice resonance of its own.
#[test]
fn small_windows_share_a_bottleneck_as_whole_packets_allow() {
    let s = share_a_bottleneck(&[1.0, 4.0], 30, 200_000);
    let ratio = s.delivered[1] as f64 / s.delivered[0] as f64;
    println!("ratio {ratio:.3}, {s:.3?}");
    assert!((4.0..5.0).contains(&ratio), "ratio {ratio}");
    assert!(s.alphas.iter().all(|a| (a - 0.577).abs() < 0.15 * 0.577), "{s:?}");
    assert!((s.windows - 30.0).abs() < 4.0 && (s.depth - 30.0).abs() < 4.0, "{s:?}");
}

/// Eq. 18 with one flow: α = sqrt(2 / 30) = 0.258 within 15 %.
#[test]
fn a_lone_flow_settles_at_the_mark_fraction_of_equation_18() {
    let s = share_a_bottleneck(&[1.0], 30, 200_000);
    println!("{s:.3?}");
    assert!((s.alphas[0] - 0.258).abs() < 0.15 * 0.258, "{s:?}");
    assert!((s.windows - 30.0).abs() < 4.0, "{s:?}");
}

#[test]
fn the_fraction_of_the_window_is_used_in_some_rounds() {
    let mut wfcc = Wfcc::new(WfccConfig { carry_fraction: true, ..WfccConfig::paper() }, Theta::ONE);
    wfcc.window = 4.75;
    wfcc.growth = Growth::Avoidance;
    let mut in_flight = 0;
    for round in 0..100 {
        wfcc.window = 4.75;
        wfcc.end_round(PacketNumber(round));
        in_flight += (0..10).take_while(|&n| wfcc.allows(n)).count();
    }
    assert_eq!(in_flight, 475);
}

#[test]
fn a_known_window_grows_by_a_quarter_in_a_round_until_the_first_mark() {
    let mut w = paper(1.0);
    w.begin_at(Packets::new(40.0), false);
    assert!(!w.in_slow_start());
    w.on_ack(Time::ZERO, &acks(40, 0, 39, 80));
    assert!(near(w.window().get(), 50.0));
    w.on_ack(Time::ZERO, &acks(1, 1, 40, 81));
    let marked = w.window().get();
    w.on_ack(Time::ZERO, &acks(1, 0, 41, 82));
    assert!(w.window().get() - marked < 0.03, "{marked} to {}", w.window().get());
}

#[test]
fn after_a_known_start_the_first_marked_round_says_what_alpha_is() {
    let mut w = paper(1.0);
    w.begin_at(Packets::new(10.0), false);
    w.on_ack(Time::ZERO, &acks(4, 0, 3, 10)); // begins the round: it ends with packet 10
    w.on_ack(Time::ZERO, &acks(6, 0, 10, 20));
    assert_eq!(w.mark_fraction(), 0.0);
    w.on_ack(Time::ZERO, &acks(10, 4, 20, 30)); // F = 4/10
    assert!(near(w.mark_fraction(), 0.4));
    w.on_ack(Time::ZERO, &acks(10, 0, 30, 40));
    assert!(near(w.mark_fraction(), 0.4 * 15.0 / 16.0));
}

#[test]
fn a_first_round_that_is_mostly_lost_says_that_less_is_there_than_was_known() {
    for search in [false, true] {
        let mut w = paper(1.0);
        w.begin_at(Packets::new(100.0), search);
        let still = Feedback { limited: false, ..acks(5, 0, 4, 100) };
        let config = WfccConfig { grow_only_when_limited: true, ..WfccConfig::paper() };
        w.config = config;
        w.on_ack(Time::ZERO, &still);
        w.on_ack(Time::ZERO, &Feedback { lost: 70, acked: 20, largest: PacketNumber(100), ..still });
        assert_eq!(w.window().get(), 25.0, "what came of it");
        assert!(!w.in_slow_start());
        // Only the first round: later losses are random.
        let later = Feedback { lost: 10, acked: 15, largest: PacketNumber(200), ..still };
        w.on_ack(Time::ZERO, &later);
        assert_eq!(w.window().get(), 25.0);
    }
    let mut w = paper(1.0);
    w.begin_at(Packets::new(100.0), false);
    w.on_rto(Time::ZERO, 100);
    assert!(w.in_slow_start() && w.window().get() == 1.0, "a timeout knows nothing");
}
