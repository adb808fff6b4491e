//! Flows that grow while they are open, are paced, or begin anew in another class.

use headwater_baseline::{Scheme, Sender, SenderCommand, SenderConfig};
use headwater_machine::{Endpoint, Input};
use headwater_units::Duration;

use crate::bench::{Bench, FLOW, PATH, ms, start, us};

fn relay(config: SenderConfig) -> Bench {
    Bench { sender: Sender::relay(config, FLOW, PATH, u64::MAX), ..Bench::new(config) }
}

fn tell(bench: &mut Bench, command: SenderCommand) -> Vec<u64> {
    bench.sender.handle(bench.now, Input::Command(command));
    bench.drain()
}

fn extend(bench: &mut Bench, packets: u64) -> Vec<u64> {
    tell(bench, SenderCommand::Extend { flow: FLOW, packets })
}

#[test]
fn a_growing_flow_sends_what_is_there_and_stays_open() {
    for scheme in [Scheme::NewReno, Scheme::DCTCP] {
        let mut bench = relay(start(scheme, 4.0, None));
        assert_eq!(bench.drain(), [0; 0]);
        assert_eq!(extend(&mut bench, 2), [0, 1]);
        assert_eq!(extend(&mut bench, 6), [2, 3]);
        assert_eq!(bench.ack(1), [4, 5], "one has left, and the window has grown");
        assert_eq!(extend(&mut bench, 1), [0; 0], "what is there never shrinks");
        bench.ack(6);
        assert_eq!((bench.closed, bench.wake), (0, None), "idle, without a timer");
    }
}

#[test]
fn a_window_that_does_not_bound_does_not_grow() {
    let mut bench = relay(start(Scheme::DCTCP, 10.0, None));
    for packet in 1..=20 {
        assert_eq!(extend(&mut bench, packet), [packet - 1]);
        bench.ack(packet);
    }
    assert_eq!(bench.window(), 10.0);
}

#[test]
fn after_an_idle_time_of_more_than_a_timeout_the_window_begins_anew() {
    let mut bench = relay(start(Scheme::DCTCP, 2.0, None));
    extend(&mut bench, 40);
    for next in 1..=40 {
        bench.ack(next);
    }
    let grown = bench.window();
    assert!(grown > 20.0, "{grown}");
    assert_eq!(extend(&mut bench, 80).len() as f64, grown.floor(), "at once it is as it was");
    for next in 41..=80 {
        bench.ack(next);
    }
    bench.pass(ms(11));
    assert_eq!(extend(&mut bench, 120).len(), 2);
}

#[test]
fn a_paced_flow_sends_a_packet_in_each_interval_and_its_window_does_not_run_away() {
    let mut bench = relay(start(Scheme::DCTCP, 10.0, None));
    tell(&mut bench, SenderCommand::Pace { every: Some(us(12)) });
    assert_eq!(extend(&mut bench, 1000), [0]);
    assert_eq!(bench.wake, Some(bench.now + us(12)));
    assert_eq!(bench.pass(us(11)), [0; 0]);
    for packet in 1..100 {
        assert_eq!(bench.pass(us(if packet == 1 { 1 } else { 12 })), [packet]);
        bench.ack(packet + 1);
    }
    assert_eq!(bench.window(), 10.0);
    assert_eq!(tell(&mut bench, SenderCommand::Pace { every: None }).len(), 10);
}

#[test]
fn another_pace_counts_at_once_and_one_without_end_stops_a_flow() {
    let mut bench = relay(start(Scheme::DCTCP, 10.0, None));
    let never = SenderCommand::Pace { every: Some(Duration::from_nanos(u64::MAX)) };
    tell(&mut bench, never.clone());
    assert_eq!(extend(&mut bench, 1000), [0; 0]);
    assert_eq!(tell(&mut bench, SenderCommand::Pace { every: Some(ms(500)) }), [0]);
    bench.pass(us(20));
    assert_eq!(tell(&mut bench, SenderCommand::Pace { every: Some(us(12)) }), [1], "12 us have passed");
    tell(&mut bench, never);
    assert_eq!(bench.pass(us(500)), [0; 0]);
}

#[test]
fn another_class_begins_with_the_first_window_and_answers_no_mark_of_before() {
    let mut bench = relay(start(Scheme::DCTCP, 2.0, None));
    extend(&mut bench, 1000);
    for next in 1..=30 {
        bench.ack(next);
    }
    let (grown, out) = (bench.window(), bench.stats().in_flight);
    assert!(grown > 20.0, "{grown}");
    assert_eq!(tell(&mut bench, SenderCommand::RestartWindow), [0; 0]);
    assert_eq!(bench.window(), 2.0);
    bench.echo(31);
    assert_eq!(bench.stats().cuts, 0);
    for next in 32..=30 + out {
        bench.ack(next);
    }
    assert!(bench.window() >= 2.0);
}
