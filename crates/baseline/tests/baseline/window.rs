//! How TCP's window grows (RFC 5681 §3.1), and what bounds it.

use headwater_baseline::{Scheme, SenderConfig};
use headwater_units::{Packets, Time};

use crate::bench::{Bench, ms, start, us};
use crate::net::{Link, Net};

/// A path whose round trip is always 100 us.
fn plain(config: SenderConfig, packets: u64) -> Net<headwater_baseline::Receiver> {
    Net::new(config, packets, Link::new(us(50)), Link::new(us(50)))
}

#[test]
fn slow_start_doubles_the_window_every_round_trip() {
    for scheme in [Scheme::NewReno, Scheme::DCTCP] {
        let mut net = plain(start(scheme, 1.0, None), 255);
        net.finish();
        assert_eq!(net.rounds(us(100)), [1, 2, 4, 8, 16, 32, 64, 128]);
        assert_eq!(net.closed_at[0], Some(Time::ZERO + us(800)), "when the last ACK is back");
        assert_eq!(net.complete_at[0], Some(Time::ZERO + us(750)));
    }
}

#[test]
fn an_initial_window_of_ten_leaves_at_once() {
    let mut net = plain(SenderConfig::data_centre(Scheme::NewReno), 30);
    net.finish();
    assert_eq!(net.rounds(us(100)), [10, 20]);
}

#[test]
fn congestion_avoidance_adds_one_packet_when_a_window_is_acknowledged() {
    let mut net = plain(start(Scheme::NewReno, 4.0, Some(4.0)), 4 + 5 + 6 + 7 + 8);
    net.finish();
    assert_eq!(net.rounds(us(100)), [4, 5, 6, 7, 8]);
}

#[test]
fn the_last_ack_of_a_window_is_the_one_that_adds() {
    let mut bench = Bench::new(start(Scheme::NewReno, 4.0, Some(2.0)));
    assert_eq!(bench.drain(), [0, 1, 2, 3]);
    assert_eq!([bench.ack(1), bench.ack(2), bench.ack(3)], [[4], [5], [6]]);
    assert_eq!(bench.window(), 4.0);
    assert_eq!(bench.ack(4), [7, 8]);
    assert_eq!(bench.window(), 5.0);
}

#[test]
fn slow_start_ends_at_the_threshold() {
    let mut net = plain(start(Scheme::NewReno, 1.0, Some(6.0)), 1 + 2 + 4 + 6 + 7 + 8);
    net.finish();
    // In the third round two of four ACKs reach the threshold; the other two count towards the next packet.
    assert_eq!(net.rounds(us(100)), [1, 2, 4, 6, 7, 8]);
}

#[test]
fn an_ack_for_many_packets_adds_one_in_slow_start() {
    let mut bench = Bench::new(start(Scheme::NewReno, 8.0, None));
    bench.drain();
    bench.ack(8);
    assert_eq!(bench.window(), 9.0);
}

#[test]
fn the_window_limit_bounds_what_is_out() {
    let config = SenderConfig {
        window_limit: Packets::new(16.0),
        initial_window: Packets::new(10.0),
        ..SenderConfig::data_centre(Scheme::NewReno)
    };
    let mut net = plain(config, 500);
    net.finish();
    assert_eq!(net.most_in_flight, 16);
    assert_eq!(net.sender(0).stats().window.get(), 16.0);
}

#[test]
fn a_flow_without_loss_sends_each_packet_once_in_order() {
    for scheme in [Scheme::NewReno, Scheme::DCTCP, Scheme::DCCP] {
        let mut net = plain(SenderConfig::data_centre(scheme), 1000);
        net.finish();
        assert!(net.sent[0].iter().map(|&(_, number)| number).eq(0..1000), "{scheme:?}");
        assert_eq!((net.there().carried, net.back().carried), (1000, 1000));
        let stats = net.sender(0).stats();
        assert_eq!((stats.sent, stats.resent, stats.acked, stats.lost), (1000, 0, 1000, 0));
        assert_eq!((stats.timeouts, stats.fast_recoveries, stats.in_flight), (0, 0, 0));
        assert_eq!(stats.rtt, Some(us(100)));
    }
}

#[test]
fn the_timer_runs_from_the_newest_ack_and_is_off_when_nothing_is_out() {
    let mut bench = Bench::new(start(Scheme::NewReno, 2.0, Some(1.0)));
    bench.drain();
    assert_eq!(bench.wake, Some(Time::ZERO + ms(10)), "from the first packet");
    bench.pass(us(100));
    bench.ack(1);
    assert_eq!(bench.wake, Some(bench.now + ms(10)), "from the ACK (RFC 6298 §5.3)");
    bench.pass(ms(1));
    let stale = bench.wake;
    bench.ack(0);
    assert_eq!(bench.wake, stale, "an old ACK does not move it");
}

#[test]
fn an_ack_for_what_was_never_sent_is_counted_and_changes_nothing() {
    let mut bench = Bench::new(start(Scheme::NewReno, 2.0, None));
    bench.drain();
    assert_eq!(bench.ack(3), []);
    let stats = bench.stats();
    assert_eq!((stats.unexpected, stats.acked, stats.window.get()), (1, 0, 2.0));
}
