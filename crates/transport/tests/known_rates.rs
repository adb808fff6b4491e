//! How a flow begins whose lines the controller knows: a source driven by hand.

#[allow(dead_code, reason = "each test uses its part")]
mod source_net;

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::SourceCommand;
use headwater_transport::source::{Source, SourceConfig};
use headwater_units::{BitRate, BlockIndex, Duration, FlowId, PacketNumber, PathId, Time};
use headwater_wire::{
    Ack, Assignment, Body, Class, Control, Datagram, Ecn, Push, Refusal, Start, ToController, ToSource, Work,
};
use source_net::{K, Net, Receiver, Weather, ms, push};

/// A packet of 4,172 bytes takes 83 us: a round trip of 2 ms carries 24.
const RATE: BitRate = BitRate::new(400_000_000);
/// These and four more.
const FIRST_WINDOW: usize = 28;

fn known(rtt: Duration) -> Push {
    Push { start: Some(Start { rate: RATE, rtt }), ..push(1, 1.0, 40) }
}

/// A flow of 40 blocks whose first assignment is on its way.
fn flow(push: Push, weather: Weather, vouched: bool) -> Net {
    let mut net = Net::new(SourceConfig::default(), weather, 1, 40);
    let work = Work::Blocks { first: BlockIndex(0), count: 40, attempt: 0 };
    net.start(push, Receiver::new(PathId(1), Assignment::Listed(vec![work])));
    if vouched {
        net.command(SourceCommand::FlowPath { flow: FlowId(1), path: PathId(1) });
    }
    net
}

fn is_whole(net: &Net) -> bool {
    net.receivers.values().all(|r| r.symbols.len() == (40 * K) as usize)
}

/// When symbols came that left before the first ACK was there.
fn first_flight(net: &mut Net) -> Vec<Time> {
    net.run_for(ms(4));
    let headers = &net.receivers[&FlowId(1)].headers;
    let first = headers.first().expect("symbols came").0;
    headers.iter().map(|(at, _)| *at).filter(|at| at.since(first) < ms(2)).collect()
}

#[test]
fn the_first_round_trip_carries_what_the_lines_do_and_is_paced_at_their_rate() {
    let mut net = flow(known(ms(2)), Weather::default(), true);
    let came = first_flight(&mut net);
    assert!((24..=FIRST_WINDOW).contains(&came.len()), "{}", came.len());
    for (place, at) in came.iter().enumerate() {
        // A quantum may leave together.
        let due = Duration::from_micros(83) * (place as u64).saturating_sub(3);
        assert!(at.since(came[0]) >= due, "the {place}. came {} after the first", at.since(came[0]));
    }
    assert_eq!(net.receivers[&FlowId(1)].challenges, 0);
    assert!(net.run(Time::ZERO + ms(1000), is_whole), "{:?}", net.flow());
}

#[test]
fn an_address_that_nobody_vouches_for_gets_a_little_until_it_has_answered() {
    let mut net = flow(known(ms(2)), Weather::default(), false);
    assert_eq!(first_flight(&mut net).len(), 10);
    assert!(net.receivers[&FlowId(1)].challenges > 0);
    let mut elsewhere = flow(known(ms(2)), Weather::default(), false);
    elsewhere.command(SourceCommand::FlowPath { flow: FlowId(1), path: PathId(2) });
    assert_eq!(first_flight(&mut elsewhere).len(), 10);
}

#[test]
fn a_round_trip_that_is_longer_than_was_thought_widens_the_window_at_the_first_sample() {
    let mut net = flow(known(Duration::from_micros(100)), Weather::default(), true);
    assert_eq!(net.flow().window.get(), 6.0);
    net.run_for(ms(5));
    assert!(net.flow().window.get() >= FIRST_WINDOW as f64, "{:?}", net.flow());
}

#[test]
fn what_the_source_knows_of_the_way_itself_counts_before_what_the_controller_thinks() {
    let mut net = flow(known(ms(2)), Weather::default(), true);
    net.run_for(ms(10));
    net.control(ToSource::Push(Push {
        flow: FlowId(2),
        start: Some(Start { rate: RATE, rtt: ms(80) }),
        ..known(ms(2))
    }));
    let second = net.source.flow(FlowId(2)).expect("it was opened");
    assert_eq!(second.window.get(), FIRST_WINDOW as f64);
}

#[test]
fn a_rate_that_is_not_there_costs_a_window_and_everything_arrives() {
    // A tenth of what was stated, in a queue of 30 packets that marks nothing.
    for seed in 1..5 {
        let slow = Weather { bottleneck: Some((1200, usize::MAX, 30)), loss: 0.005, ..Weather::default() };
        let mut net = Net::new(SourceConfig::default(), slow, seed, 40);
        let work = Work::Blocks { first: BlockIndex(0), count: 40, attempt: 0 };
        net.start(known(ms(20)), Receiver::new(PathId(1), Assignment::Listed(vec![work])));
        net.command(SourceCommand::FlowPath { flow: FlowId(1), path: PathId(1) });
        assert!(net.run(Time::ZERO + ms(4000), is_whole), "{:?}", net.flow());
        let counters = net.flow().counters;
        assert_eq!(counters.timeouts, 0, "{counters:?}");
        // The first window is 244 packets.
        assert!(counters.lost.get() < 280, "{counters:?}");
    }
}

#[test]
fn a_path_that_carries_ten_times_as_much_as_was_stated_is_used_within_a_few_round_trips() {
    let took = |start: Option<Start>| {
        let wide = Weather { bottleneck: Some((50_000, 30, 200)), ..Weather::default() };
        let mut net = flow(Push { start, ..known(ms(2)) }, wide, true);
        assert!(net.run(Time::ZERO + ms(4000), is_whole), "{:?}", net.flow());
        net.now().as_nanos() as f64 / 1e6
    };
    // 5,000 packets a second; slow start from ten packets finds out by itself.
    let slow = Some(Start { rate: BitRate::new(167_000_000), rtt: ms(2) });
    let (stated, unstated) = (took(slow), took(None));
    assert!(stated < 1.3 * unstated, "{stated} ms against {unstated} ms");
}

#[test]
fn an_order_that_is_said_again_may_know_otherwise_how_to_begin() {
    let mut net = flow(known(ms(2)), Weather::default(), true);
    net.controls.clear();
    net.control(ToSource::Push(Push { start: None, ..known(ms(2)) }));
    net.control(ToSource::Push(Push { of: 2, ..known(ms(2)) }));
    let said: Vec<_> = net.controls.iter().map(|(_, _, control)| control.clone()).collect();
    let flow = FlowId(1);
    let reason = Refusal::UnknownObject;
    assert_eq!(
        said,
        [
            Control::Controller(ToController::Pushing { flow }),
            Control::Controller(ToController::PushRefused { flow, reason })
        ]
    );
}

#[test]
fn the_first_window_goes_before_others_and_what_follows_does_not() {
    for (class, first) in [(Class::Bulk, Class::First), (Class::Gentle, Class::Gentle)] {
        let mut net = Net::new(SourceConfig::default(), Weather::default(), 1, 40);
        let mut sent = Vec::new();
        net.control(ToSource::Push(Push { class, ..known(ms(2)) }));
        net.command(SourceCommand::FlowPath { flow: FlowId(1), path: PathId(1) });
        let work = Work::Blocks { first: BlockIndex(0), count: 40, attempt: 0 };
        let assign = Receiver::new(PathId(1), Assignment::Listed(vec![work])).assign;
        let input = |body| {
            let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(1), body };
            Input::Packet(Packet { path: PathId(1), ecn: Ecn::NotEct, datagram })
        };
        let (start, mut source) = (net.now(), net.source);
        source.handle(start, input(Body::Assign(Box::new(assign))));
        for block in 0..8 {
            let ready = SourceCommand::BlockReady { flow: FlowId(1), block: BlockIndex(block), repair: true };
            source.handle(start, Input::Command(ready));
        }
        for us in (0..6000).step_by(20) {
            let now = start + Duration::from_micros(us);
            while let Some(number) = transmitted(&mut source, now, &mut sent) {
                let ack = Ack {
                    largest: number,
                    delay: Duration::ZERO,
                    first_run: number.0 as u16 + 1,
                    ranges: Default::default(),
                    ect0: number.0 as u32 + 1,
                    ce: 0,
                    not_ect: 0,
                    first_undecoded: BlockIndex(0),
                    owed: Default::default(),
                };
                source.handle(now, input(Body::Ack(Box::new(ack))));
            }
        }
        assert!(sent.len() > 2 * FIRST_WINDOW, "{}", sent.len());
        let (young, older) = sent.split_at(FIRST_WINDOW);
        assert!(young.iter().all(|it| *it == first) && older.iter().all(|it| *it == class), "{sent:?}");
    }
}

/// The next symbol's number; its class is noted.
fn transmitted(source: &mut Source, now: Time, classes: &mut Vec<Class>) -> Option<PacketNumber> {
    loop {
        match source.poll(now) {
            Output::Transmit(Packet {
                datagram: Datagram { class, body: Body::Symbol(header), .. }, ..
            }) => {
                classes.push(class);
                return Some(header.number);
            }
            Output::Wake(_) => return None,
            _ => {}
        }
    }
}
