//! DCCP with CCID 2 (RFC 4341), and what the application above it makes of loss.

use std::collections::BTreeSet;

use headwater_baseline::Scheme;
use headwater_units::{Packets, Time};

use crate::bench::{Bench, ms, start, us};
use crate::net::{Fate, Link, Net, Weather, by_number};

fn lossy(seed: u64, loss: f64) -> Link {
    Link::new(us(50)).with_faults(Weather { loss, ..Weather::default() }.faults(seed))
}

#[test]
fn slow_start_adds_a_packet_for_every_two_acknowledged() {
    let mut bench = Bench::new(start(Scheme::DCCP, 4.0, None));
    assert_eq!(bench.drain(), [0, 1, 2, 3]);
    assert_eq!((bench.vector(&[0], &[]), bench.window()), (vec![4], 4.0));
    assert_eq!((bench.vector(&[1, 0], &[]), bench.window()), (vec![5, 6], 5.0));
    assert_eq!((bench.vector(&[2, 1, 0], &[]), bench.window()), (vec![7], 5.0));
    assert_eq!((bench.vector(&[3, 2, 1, 0], &[]), bench.window()), (vec![8, 9], 6.0));
}

#[test]
fn congestion_avoidance_adds_a_packet_for_every_window_acknowledged() {
    let config = start(Scheme::DCCP, 4.0, Some(4.0));
    let mut net = Net::new(config, 4 + 5 + 6 + 7, Link::new(us(50)), Link::new(us(50)));
    net.finish();
    assert_eq!(net.rounds(us(100)), [4, 5, 6, 7]);
}

#[test]
fn a_packet_is_lost_when_three_later_ones_are_acknowledged() {
    let mut bench = Bench::new(start(Scheme::DCCP, 10.0, Some(2.0)));
    bench.drain();
    bench.vector(&[1], &[]);
    bench.vector(&[2, 1], &[]);
    assert_eq!((bench.stats().lost, bench.stats().in_flight, bench.window()), (0, 10, 10.0));
    assert_eq!(bench.vector(&[3, 2, 1], &[]), []);
    assert_eq!((bench.stats().lost, bench.window(), bench.threshold()), (1, 5.0, 5.0));
    assert_eq!(bench.stats().in_flight, 8, "twelve were sent, three arrived, one is given up");
}

#[test]
fn losses_of_one_window_halve_it_once_and_the_next_window_again() {
    let mut bench = Bench::new(start(Scheme::DCCP, 16.0, Some(2.0)));
    bench.drain();
    let first = bench.stats().sent;
    bench.vector(&[6, 4, 2], &[]);
    bench.vector(&[14, 12, 10, 8, 6, 4, 2], &[]);
    assert_eq!((bench.stats().lost, bench.window(), bench.stats().fast_recoveries), (6, 8.0, 1));
    let after = bench.stats().sent;
    assert!(after > first);
    // Of what left after that, the first is lost.
    bench.vector(&[first + 3, first + 2, first + 1], &[]);
    assert_eq!((bench.window(), bench.stats().fast_recoveries), (4.0, 2));
}

#[test]
fn a_packet_given_up_that_comes_after_all_counts_but_leaves_the_pipe_only_once() {
    let mut bench = Bench::new(start(Scheme::DCCP, 8.0, Some(2.0)));
    bench.drain();
    bench.vector(&[3, 2, 1], &[]);
    let before = bench.stats();
    assert_eq!((before.lost, before.acked, before.in_flight), (1, 3, 4));
    bench.vector(&[3, 2, 1, 0], &[]);
    assert_eq!((bench.stats().acked, bench.stats().in_flight), (4, 4));
    bench.vector(&[3, 2, 1, 0], &[]);
    assert_eq!(bench.stats().acked, 4, "a true duplicate changes nothing");
}

#[test]
fn a_lost_ack_is_made_up_for_by_the_next() {
    let mut bench = Bench::new(start(Scheme::DCCP, 8.0, Some(2.0)));
    bench.drain();
    bench.vector(&[5, 4, 3, 2, 1, 0], &[]);
    assert_eq!((bench.stats().lost, bench.stats().acked, bench.window()), (0, 6, 8.0));
}

#[test]
fn a_timeout_gives_up_everything_and_doubles() {
    let mut bench = Bench::new(start(Scheme::DCCP, 8.0, None));
    bench.drain();
    assert_eq!(bench.pass(ms(10)), [8], "a new packet: nothing is sent again");
    assert_eq!((bench.window(), bench.threshold()), (1.0, 4.0));
    assert_eq!((bench.stats().lost, bench.stats().in_flight), (8, 1));
    assert_eq!(bench.pass(ms(19)), []);
    assert_eq!(bench.pass(ms(1)), [9]);
    bench.pass(us(100));
    bench.vector(&[9], &[]);
    assert_eq!((bench.stats().timeout, bench.stats().rtt), (ms(10), Some(us(100))));
}

#[test]
fn when_the_timed_packet_is_lost_another_one_is_timed() {
    let mut bench = Bench::new(start(Scheme::DCCP, 6.0, Some(2.0)));
    assert_eq!(bench.drain(), [0, 1, 2, 3, 4, 5]);
    bench.pass(us(100));
    assert_eq!(bench.vector(&[3, 2, 1], &[]), [6]);
    assert_eq!((bench.stats().lost, bench.stats().rtt), (1, None));
    bench.pass(us(70));
    bench.vector(&[6, 5, 4, 3, 2, 1], &[]);
    assert_eq!(bench.stats().rtt, Some(us(70)));
}

#[test]
fn a_vector_older_than_the_ring_is_not_taken_for_news() {
    let config = headwater_baseline::SenderConfig {
        window_limit: Packets::new(8.0),
        ..start(Scheme::DCCP, 8.0, Some(2.0))
    };
    let mut bench = Bench::new(config);
    bench.drain();
    for number in 0..5000 {
        bench.vector(&[number], &[]);
    }
    let before = bench.stats();
    assert_eq!((before.acked, before.in_flight), (5000, 8));
    for old in 0..4990 {
        bench.vector(&[old], &[]);
    }
    assert_eq!(bench.stats(), before);
}

#[test]
fn marks_halve_the_window_once_where_the_flow_is_ecn_capable() {
    for (ecn, expected, cuts) in [(true, 5.0, 1), (false, 10.0, 0)] {
        let mut bench = Bench::new(start(Scheme::Ccid2 { ecn }, 10.0, Some(2.0)));
        bench.drain();
        bench.vector(&[0], &[0]);
        bench.vector(&[1, 0], &[1, 0]);
        bench.vector(&[2, 1, 0], &[2, 1, 0]);
        assert_eq!((bench.window(), bench.stats().cuts, bench.stats().marked), (expected, cuts, 3));
    }
}

#[test]
fn the_window_is_never_below_one_and_the_threshold_never_below_two() {
    let mut bench = Bench::new(start(Scheme::Ccid2 { ecn: true }, 2.0, None));
    bench.drain();
    for number in 0..20 {
        bench.vector(&[number], &[number]);
        assert!(bench.window() >= 1.0 && bench.threshold() >= 2.0);
    }
    assert_eq!(bench.window(), 1.0);
}

#[test]
fn a_flow_completes_under_thirty_percent_loss_and_sends_no_number_twice() {
    for seed in 0..10 {
        let there = lossy(seed, 0.3);
        let back = lossy(seed + 100, 0.3);
        let mut net = Net::new(start(Scheme::DCCP, 3.0, None), 500, there, back);
        net.finish();
        assert!(net.sent[0].windows(2).all(|pair| pair[0].1 + 1 == pair[1].1), "numbers only go up");
        let stats = net.sender(0).stats();
        assert_eq!(net.host().stats().distinct, 500);
        assert!(stats.acked >= 500 && stats.resent == 0 && stats.lost > 100);
    }
}

#[test]
fn what_is_lost_is_made_up_for_by_as_many_new_packets() {
    let mut lost: BTreeSet<u64> = [3, 40, 41, 90].into();
    let faults = by_number(move |_, number| if lost.remove(&number) { Fate::Lost } else { Fate::Arrives });
    let there = Link::new(us(50)).with_faults(faults);
    let mut net = Net::new(start(Scheme::DCCP, 10.0, None), 100, there, Link::new(us(50)));
    net.finish();
    assert_eq!((net.sent[0].len(), net.sender(0).stats().lost, net.sender(0).stats().timeouts), (104, 4, 0));
    assert!(net.closed_at[0].unwrap() < Time::ZERO + ms(10));
}

/// More packets than the rings remember, with a limit on what is out.
#[test]
fn a_long_flow_lives_within_its_rings() {
    let config = headwater_baseline::SenderConfig {
        window_limit: Packets::new(50.0),
        ..start(Scheme::DCCP, 3.0, None)
    };
    let there = lossy(3, 0.01);
    let mut net = Net::new(config, 20_000, there, lossy(4, 0.01));
    net.finish();
    assert!(net.most_in_flight <= 50);
    assert_eq!(net.host().stats().distinct, 20_000);
}
