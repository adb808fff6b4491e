//! TCP's treatment of loss: fast retransmit, NewReno's recovery, and the timeout.

use std::collections::BTreeSet;

use headwater_baseline::{Scheme, SenderConfig};
use headwater_units::{Duration, Time};

use crate::bench::{Bench, ms, start, us};
use crate::net::{Fate, Line, Link, Net, Weather, by_number, queue};

/// Loses the first copy of each of these packets.
fn lose_once(numbers: &[u64]) -> impl FnMut(u64, u64) -> Fate + 'static {
    let mut numbers: BTreeSet<u64> = numbers.iter().copied().collect();
    move |_, number| if numbers.remove(&number) { Fate::Lost } else { Fate::Arrives }
}

#[test]
fn the_third_duplicate_ack_sends_the_packet_again_and_halves_the_window() {
    let mut bench = Bench::new(start(Scheme::NewReno, 10.0, Some(2.0)));
    assert_eq!(bench.drain().len(), 10);
    assert_eq!(bench.ack(0), []);
    assert_eq!(bench.ack(0), []);
    assert_eq!(bench.stats().fast_recoveries, 0, "two may be reordering");
    assert_eq!(bench.ack(0), [0]);
    // RFC 5681 §3.2: ssthresh = FlightSize / 2, cwnd = ssthresh + 3.
    assert_eq!((bench.threshold(), bench.window()), (5.0, 8.0));
    // Each further duplicate lets one more packet out, once the window reaches beyond what is in flight.
    assert_eq!((bench.ack(0), bench.ack(0)), (vec![], vec![]));
    assert_eq!((bench.ack(0), bench.ack(0)), (vec![10], vec![11]));
    // The full ACK ends it: cwnd = min(ssthresh, max(FlightSize, 1) + 1), RFC 6582 §3.2.
    assert_eq!(bench.ack(10), [12]);
    assert_eq!((bench.window(), bench.stats().in_flight), (3.0, 3));
    let stats = bench.stats();
    assert_eq!((stats.resent, stats.fast_recoveries, stats.timeouts), (1, 1, 0));
}

#[test]
fn a_packet_overtaken_by_two_others_is_not_sent_again() {
    let late = by_number(|_, number| if number == 20 { Fate::Late(us(1)) } else { Fate::Arrives });
    let there = Link { line: Line::Each(Duration::from_nanos(400)), ..Link::new(us(50)) }.with_faults(late);
    let mut net = Net::new(start(Scheme::NewReno, 10.0, None), 200, there, Link::new(us(50)));
    net.finish();
    assert_eq!(net.host().stats().arrived, 200);
    assert_eq!((net.sender(0).stats().resent, net.sender(0).stats().fast_recoveries), (0, 0));
}

/// RFC 6675: what NewReno takes four round trips for, as below.
#[test]
fn with_sack_all_holes_are_filled_in_one_round_trip() {
    let there = Link::new(us(50)).with_faults(by_number(lose_once(&[20, 22, 25, 29])));
    let config = SenderConfig { sack: true, ..start(Scheme::NewReno, 20.0, Some(20.0)) };
    let mut net = Net::new(config, 400, there, Link::new(us(50)));
    net.finish();
    let mut first = BTreeSet::new();
    let again: Vec<_> = net.sent[0].iter().filter(|&&(_, number)| !first.insert(number)).copied().collect();
    let at = Time::ZERO + us(200);
    assert_eq!(again, [(at, 20), (at, 22), (at, 25), (at, 29)]);
    let stats = net.sender(0).stats();
    assert_eq!((stats.fast_recoveries, stats.timeouts, stats.resent), (1, 0, 4));
}

#[test]
fn with_sack_a_recovery_keeps_as_much_in_the_network_as_the_window_allows() {
    let mut bench = Bench::new(SenderConfig { sack: true, ..start(Scheme::NewReno, 10.0, Some(2.0)) });
    assert_eq!(bench.drain(), (0..10).collect::<Vec<_>>());
    // 0 and 4 are lost.
    assert_eq!([bench.block(0, (1, 2)), bench.block(0, (1, 3))], [vec![], vec![]]);
    assert_eq!(bench.block(0, (1, 4)), [0], "the third one above");
    assert_eq!((bench.window(), bench.threshold()), (5.0, 5.0));
    // Out are 0 again, 4 and 6 to 9; a packet may leave when there are fewer than five.
    assert_eq!([bench.block(0, (5, 6)), bench.block(0, (5, 7))], [vec![], vec![]]);
    assert_eq!(bench.block(0, (5, 8)), [4, 10], "4 is lost with three above it; out were 0, 8 and 9");
    assert_eq!(bench.block(0, (5, 9)), [11], "out were 0, 4, 9 and 10");
    assert_eq!(bench.ack(4), [12], "the first hole is filled");
    assert_eq!(bench.ack(10), [13], "and the other one");
    assert_eq!((bench.stats().fast_recoveries, bench.stats().resent), (1, 2));
}

#[test]
fn with_sack_a_timeout_passes_over_what_is_said_to_be_here_after_it() {
    let mut bench = Bench::new(SenderConfig { sack: true, ..start(Scheme::NewReno, 4.0, None) });
    assert_eq!(bench.drain(), [0, 1, 2, 3]);
    bench.block(0, (2, 3));
    assert_eq!(bench.pass(ms(20)), [0], "the timer: nothing that was said counts any more");
    assert_eq!(bench.block(0, (2, 3)), []);
    assert_eq!(bench.ack(1), [1], "and not 2, which is here");
    assert_eq!(bench.ack(3), [3, 4, 5]);
}

#[test]
fn a_block_of_packets_that_were_never_sent_is_not_believed() {
    let mut bench = Bench::new(SenderConfig { sack: true, ..start(Scheme::NewReno, 4.0, None) });
    bench.drain();
    assert_eq!(bench.block(0, (2, 9)), []);
    assert_eq!(bench.stats().unexpected, 1);
}

#[test]
fn partial_acks_fill_one_hole_per_round_trip_without_leaving_recovery() {
    let there = Link::new(us(50)).with_faults(by_number(lose_once(&[20, 22, 25, 29])));
    let mut net = Net::new(start(Scheme::NewReno, 20.0, Some(20.0)), 400, there, Link::new(us(50)));
    net.finish();
    let mut first = BTreeSet::new();
    let again: Vec<_> = net.sent[0].iter().filter(|&&(_, number)| !first.insert(number)).copied().collect();
    // Packets 20 to 40 leave when the first round is acknowledged, after 100 us; their ACKs come back after 200 us.
    let at = |round: u64| Time::ZERO + us(100 * round);
    assert_eq!(again, [(at(2), 20), (at(3), 22), (at(4), 25), (at(5), 29)]);
    let stats = net.sender(0).stats();
    assert_eq!((stats.fast_recoveries, stats.timeouts, stats.resent), (1, 0, 4));
}

#[test]
fn a_partial_ack_takes_what_it_acknowledges_off_the_window_and_adds_one() {
    let mut bench = Bench::new(start(Scheme::NewReno, 10.0, Some(2.0)));
    bench.drain();
    for _ in 0..3 {
        bench.ack(0);
    }
    assert_eq!(bench.window(), 8.0);
    assert_eq!(bench.ack(4), [4], "the next hole");
    assert_eq!(bench.window(), 8.0 - 4.0 + 1.0);
    let first_partial = bench.wake;
    bench.now += us(100);
    assert_eq!(bench.ack(6), [6]);
    assert_eq!(bench.window(), 5.0 - 2.0 + 1.0);
    assert_eq!(bench.wake, first_partial, "only the first partial ACK restarts the timer");
}

#[test]
fn timeouts_double_until_something_new_is_timed() {
    let mut lost = 4;
    let faults = by_number(move |_, number| {
        if number == 0 && lost > 0 {
            lost -= 1;
            return Fate::Lost;
        }
        Fate::Arrives
    });
    let there = Link::new(us(50)).with_faults(faults);
    let mut net = Net::new(start(Scheme::NewReno, 1.0, None), 2, there, Link::new(us(50)));
    net.finish();
    let at = |millis: u64| Time::ZERO + ms(millis);
    assert_eq!(
        net.sent[0],
        [(at(0), 0), (at(10), 0), (at(30), 0), (at(70), 0), (at(150), 0), (at(150) + us(100), 1)]
    );
    let stats = net.sender(0).stats();
    assert_eq!((stats.timeouts, stats.resent), (4, 4));
    assert_eq!(stats.rtt, Some(us(100)), "taken from packet 1: a packet sent twice is not timed (Karn)");
    assert_eq!(stats.timeout, ms(10));
}

#[test]
fn a_sample_of_a_packet_sent_twice_is_not_taken_and_the_back_off_stays() {
    let mut bench = Bench::new(start(Scheme::NewReno, 2.0, None));
    bench.drain();
    assert_eq!(bench.pass(ms(10)), [0]);
    bench.pass(us(100));
    assert_eq!(bench.ack(1), [1, 2], "packet 1 again, and a new one");
    assert_eq!((bench.stats().rtt, bench.stats().timeout), (None, ms(20)));
    bench.pass(us(100));
    bench.ack(2);
    assert_eq!((bench.stats().rtt, bench.stats().timeout), (None, ms(20)));
    bench.ack(3);
    assert_eq!((bench.stats().rtt, bench.stats().timeout), (Some(us(100)), ms(10)));
}

#[test]
fn a_packet_sent_again_by_fast_retransmit_is_not_timed() {
    let mut bench = Bench::new(start(Scheme::NewReno, 10.0, Some(2.0)));
    bench.drain();
    bench.pass(us(100));
    for _ in 0..3 {
        bench.ack(0);
    }
    bench.pass(us(100));
    bench.ack(10);
    assert_eq!(bench.stats().rtt, None);
}

#[test]
fn the_threshold_is_never_below_two() {
    let mut bench = Bench::new(start(Scheme::NewReno, 1.0, None));
    bench.drain();
    bench.pass(ms(10));
    assert_eq!(bench.threshold(), 2.0);
}

#[test]
fn a_timeout_starts_over_with_one_packet_and_keeps_half_the_flight_as_threshold() {
    let mut bench = Bench::new(start(Scheme::NewReno, 12.0, None));
    bench.drain();
    assert_eq!(bench.pass(ms(10)), [0]);
    assert_eq!((bench.window(), bench.threshold(), bench.stats().in_flight), (1.0, 6.0, 1));
    assert_eq!(bench.pass(ms(20)), [0]);
    assert_eq!(bench.threshold(), 6.0, "the second timeout of a packet moves it no more (RFC 5681 §3.1)");
    // Packets that were out are sent again in slow start.
    assert_eq!(bench.ack(1), [1, 2]);
    assert_eq!(bench.ack(2), [3, 4]);
    // The receiver had the rest after all: nothing of that is sent again.
    assert_eq!(bench.ack(12), [12, 13, 14, 15]);
    assert_eq!(bench.stats().resent, 6);
}

#[test]
fn duplicate_acks_for_what_a_timeout_sent_again_begin_no_recovery() {
    let mut bench = Bench::new(start(Scheme::NewReno, 10.0, None));
    bench.drain();
    bench.pass(ms(10));
    bench.ack(1);
    for _ in 0..5 {
        assert_eq!(bench.ack(1), []);
    }
    assert_eq!(bench.stats().fast_recoveries, 0);
    // Beyond what had been sent before the timeout, they do.
    bench.ack(10);
    for _ in 0..3 {
        bench.ack(10);
    }
    assert_eq!(bench.stats().fast_recoveries, 1);
}

#[test]
fn a_lost_resend_is_left_to_the_timeout() {
    let mut left = 2;
    let faults = by_number(move |_, number| {
        if number == 15 && left > 0 {
            left -= 1;
            return Fate::Lost;
        }
        Fate::Arrives
    });
    let there = Link::new(us(50)).with_faults(faults);
    let mut net = Net::new(start(Scheme::NewReno, 10.0, None), 100, there, Link::new(us(50)));
    net.finish();
    let stats = net.sender(0).stats();
    assert_eq!((stats.fast_recoveries, stats.timeouts), (1, 1));
    assert!(net.closed_at[0].unwrap() > Time::ZERO + ms(10));
}

/// PPUSH Fig. 4b: with more than a tenth lost, Reno and DCTCP get less than 5 % of a link of 10^6 packets/s, 40 us away.
#[test]
fn the_window_collapses_when_a_tenth_is_lost() {
    for scheme in [Scheme::NewReno, Scheme::DCTCP, Scheme::DCCP] {
        let (share, window) = under_random_loss(scheme, 0.1);
        let (calm_share, calm_window) = under_random_loss(scheme, 0.0);
        assert!(share < 0.05, "{scheme:?} got {share} of the link");
        assert!(
            window < calm_window / 10.0,
            "{scheme:?} kept a window of {window}, without loss {calm_window}"
        );
        assert!(calm_share > 0.9, "{scheme:?} got only {calm_share} of a link that loses nothing");
    }
}

/// The share of the link that a flow without end gets in 300 ms, and its mean window.
fn under_random_loss(scheme: Scheme, loss: f64) -> (f64, f64) {
    let faults = Weather { loss, ..Weather::default() }.faults(5);
    let there = queue(us(1), 100, 30, us(40));
    let config = SenderConfig { ..start(scheme, 1.0, None) };
    let mut net = Net::new(config, u64::MAX, there.with_faults(faults), Link::new(us(40)));
    let mut windows = 0.0;
    for step in 1..=3000 {
        net.run(Time::ZERO + us(100 * step), u64::MAX);
        windows += net.sender(0).stats().window.get();
    }
    (net.host().stats().distinct as f64 / 300_000.0, windows / 3000.0)
}
