//! DCTCP's reaction to marks (RFC 8257), and to loss.

use headwater_baseline::{DctcpConfig, Scheme};
use headwater_machine::{Endpoint, Output};
use headwater_wire::Ecn;

use crate::bench::{Bench, ms, start, us};
use crate::net::{Fate, Link, Net, by_number, queue};

fn beginning_with(initial_mark_fraction: f64) -> Scheme {
    Scheme::Dctcp(DctcpConfig { initial_mark_fraction, ..DctcpConfig::default() })
}

/// Acknowledges everything that is out, packet by packet; `marked` says which ACKs carry an echo.
fn acknowledge_a_window(bench: &mut Bench, marked: impl Fn(u64) -> bool) {
    let (acked, in_flight) = (bench.stats().acked, bench.stats().in_flight);
    for next in acked + 1..=acked + in_flight {
        if marked(next) {
            bench.echo(next)
        } else {
            bench.ack(next)
        };
    }
}

#[test]
fn only_dctcp_asks_for_marks() {
    for (scheme, expected) in [
        (Scheme::NewReno, Ecn::NotEct),
        (Scheme::DCTCP, Ecn::Ect0),
        (Scheme::DCCP, Ecn::NotEct),
        (Scheme::Ccid2 { ecn: true }, Ecn::Ect0),
    ] {
        let mut bench = Bench::new(start(scheme, 1.0, None));
        let Output::Transmit(packet) = bench.sender.poll(bench.now) else { panic!("it begins at once") };
        assert_eq!(packet.ecn, expected, "{scheme:?}");
    }
}

#[test]
fn the_mark_fraction_falls_by_a_sixteenth_in_each_window_without_marks() {
    let mut bench = Bench::new(start(Scheme::DCTCP, 10.0, Some(10.0)));
    bench.drain();
    assert_eq!(bench.stats().mark_fraction, 1.0);
    bench.ack(1);
    for windows in 1..30 {
        // The ACK of the first packet beyond a window ends it.
        let expected = (15.0f64 / 16.0).powi(windows);
        let measured = bench.stats().mark_fraction;
        assert!((measured - expected).abs() < 1e-12, "{measured} after {windows} windows, not {expected}");
        acknowledge_a_window(&mut bench, |_| false);
    }
}

#[test]
fn the_mark_fraction_rises_towards_one_when_everything_is_marked() {
    let mut bench = Bench::new(start(beginning_with(0.0), 10.0, Some(10.0)));
    bench.drain();
    let (mut windows, mut before) = (0, 0.0);
    for next in 1..200 {
        bench.echo(next);
        let measured = bench.stats().mark_fraction;
        if measured != before {
            windows += 1;
            before = measured;
        }
        let expected = 1.0 - (15.0f64 / 16.0).powi(windows);
        assert!((measured - expected).abs() < 1e-12, "{measured} after {windows} windows, not {expected}");
    }
    // The window goes from 10 packets to between 2 and 3.
    assert!((40..80).contains(&windows), "{windows} windows in 200 packets");
}

#[test]
fn the_mark_fraction_settles_at_the_share_of_marks() {
    for (every, share) in [(2, 0.5), (4, 0.25), (10, 0.1)] {
        let mark = move |n: u64| if n.is_multiple_of(every) { Fate::Marked } else { Fate::Arrives };
        let marks = by_number(move |n, _| mark(n));
        // Each mark of a window costs no more than one cut, so a window of some tens of packets stays.
        let there = Link::new(us(50)).with_faults(marks);
        let mut net = Net::new(start(Scheme::DCTCP, 100.0, Some(100.0)), 20_000, there, Link::new(us(50)));
        net.finish();
        let measured = net.sender(0).stats().mark_fraction;
        // Windows are no multiples of `every`: a window of W sees the share give or take one packet.
        assert!((measured - share).abs() < 0.12 * share.max(0.25), "{measured}, not {share}");
        assert_eq!(net.sender(0).stats().marked, 20_000 / every);
        assert_eq!(net.host().stats().marked, 20_000 / every, "every mark is echoed once");
    }
}

#[test]
fn a_window_is_cut_once_however_many_of_its_packets_are_marked() {
    let mut bench = Bench::new(start(beginning_with(0.5), 20.0, Some(20.0)));
    bench.drain();
    // The first ACK also ends the empty window before it: alpha = 15/16 * 0.5 + 1/16 * 1.
    bench.echo(1);
    let alpha = 0.5 * 15.0 / 16.0 + 1.0 / 16.0;
    let after = 20.0 * (1.0 - alpha / 2.0);
    assert_eq!((bench.stats().cuts, bench.window(), bench.threshold()), (1, after, after));
    for next in 2..=20 {
        bench.echo(next);
    }
    assert_eq!(bench.stats().cuts, 1);
    assert_eq!(bench.window(), after + 1.0, "and growth goes on: W acknowledged packets have added one");
    // Packet 20 was the first to leave after the cut.
    let before = bench.window();
    bench.echo(21);
    assert_eq!(bench.stats().cuts, 2);
    assert!(bench.window() < before);
}

#[test]
fn the_first_mark_ends_slow_start() {
    let mut bench = Bench::new(start(beginning_with(0.0), 10.0, None));
    bench.drain();
    bench.ack(1);
    assert_eq!(bench.window(), 11.0);
    bench.echo(2);
    assert_eq!((bench.window(), bench.threshold()), (11.0, 11.0), "nothing to cut by yet");
    for next in 3..=12 {
        bench.ack(next);
    }
    assert_eq!(bench.window(), 11.0);
    bench.ack(13);
    assert_eq!(bench.window(), 12.0, "11 packets acknowledged since");
}

#[test]
fn marks_never_take_the_window_below_two() {
    let mut bench = Bench::new(start(Scheme::DCTCP, 3.0, Some(3.0)));
    bench.drain();
    for next in 1..100 {
        bench.echo(next);
        assert!((2.0..4.0).contains(&bench.window()), "{}", bench.window());
    }
    assert!(bench.stats().cuts > 20);
}

#[test]
fn a_timeout_answers_the_marks_of_what_was_out() {
    let mut bench = Bench::new(start(Scheme::DCTCP, 12.0, None));
    bench.drain();
    bench.pass(ms(10));
    assert_eq!((bench.window(), bench.threshold()), (1.0, 6.0));
    // The packets had arrived after all, and marked.
    for next in 1..=12 {
        bench.echo(next);
    }
    assert_eq!((bench.stats().cuts, bench.threshold()), (0, 6.0));
    bench.echo(13);
    assert_eq!(bench.stats().cuts, 1, "this one was sent afterwards");
}

#[test]
fn loss_halves_the_window_as_in_new_reno_whatever_the_mark_fraction() {
    let mut bench = Bench::new(start(beginning_with(0.0), 10.0, Some(2.0)));
    bench.drain();
    for _ in 0..3 {
        bench.ack(0);
    }
    assert_eq!((bench.threshold(), bench.window()), (5.0, 8.0));
    // Marks of packets that were out then are not answered a second time.
    bench.echo(10);
    assert_eq!((bench.stats().cuts, bench.window(), bench.threshold()), (0, 2.0, 5.0));
}

#[test]
fn new_reno_does_not_know_marks() {
    let mut bench = Bench::new(start(Scheme::NewReno, 10.0, Some(10.0)));
    bench.drain();
    acknowledge_a_window(&mut bench, |_| true);
    assert_eq!((bench.window(), bench.stats().cuts, bench.stats().mark_fraction), (11.0, 0, 0.0));
}

/// On a link of 10^6 packets/s whose queue marks above 30, the queue stays near 30 and nothing is lost.
#[test]
fn a_long_flow_keeps_the_queue_at_the_mark_threshold() {
    let there = queue(us(1), 100, 30, us(40));
    let mut net = Net::new(start(Scheme::DCTCP, 1.0, None), 100_000, there, Link::new(us(40)));
    net.finish();
    let stats = net.sender(0).stats();
    assert_eq!((net.there().dropped, stats.resent, stats.timeouts), (0, 0, 0));
    // 100 000 packets take 0.1 s, and slow start with its first cut by half a few round trips more.
    let seconds = net.closed_at[0].unwrap().as_secs_f64();
    assert!((0.1..0.102).contains(&seconds), "{seconds} s");
    assert!((80.0..130.0).contains(&stats.window.get()), "{}", stats.window);
}
