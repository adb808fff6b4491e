//! How flows end before they are complete, and what goes in and out of every machine.

use headwater_baseline::{
    Receiver, ReceiverConfig, Scheme, Sender, SenderCommand, SenderConfig, SenderEvent, SinkCommand,
    SinkEvent,
};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::messages::symbol_header;
use headwater_transport::ReceiverFailure;
use headwater_units::{FlowId, PacketNumber, PathId, Time};
use headwater_wire::{Body, Class, Datagram, Ecn, FinReason};

use crate::bench::{Bench, FLOW, PATH, ms, start};

const SCHEMES: [Scheme; 3] = [Scheme::NewReno, Scheme::DCTCP, Scheme::DCCP];

fn data<C>(number: u64, ecn: Ecn) -> Input<C> {
    let header = symbol_header(number, 0, number as u32);
    let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow: FLOW, body: Body::Symbol(header) };
    Input::Packet(Packet { path: PATH, ecn, datagram })
}

fn receiver(scheme: Scheme, packets: u64) -> Receiver {
    Receiver::new(ReceiverConfig::of(&SenderConfig::data_centre(scheme)), FLOW, PATH, packets)
}

/// Answers of the receiver to this input; its only event must be `event`.
fn answer(receiver: &mut Receiver, input: Input<SinkCommand>, event: Option<SinkEvent>) -> Vec<Body> {
    receiver.handle(Time::ZERO, input);
    let (mut said, mut events) = (Vec::new(), Vec::new());
    loop {
        match receiver.poll(Time::ZERO) {
            Output::Transmit(packet) => {
                assert_eq!((packet.datagram.class, packet.ecn), (Class::Control, Ecn::NotEct));
                said.push(packet.datagram.body);
            }
            Output::Event(event) => events.push(event),
            Output::Wake(at) => {
                assert_eq!(at, None);
                assert_eq!(events, Vec::from_iter(event));
                return said;
            }
        }
    }
}

#[test]
fn a_withdrawn_flow_closes_at_once_and_stays_silent() {
    for scheme in SCHEMES {
        let mut bench = Bench::new(start(scheme, 4.0, None));
        bench.drain();
        assert_eq!(bench.withdraw(), []);
        assert_eq!((bench.closed, bench.wake), (1, None), "{scheme:?}");
        assert_eq!(bench.ack(1), []);
        assert_eq!(bench.vector(&[0], &[]), []);
        assert_eq!(bench.pass(ms(100)), []);
        bench.withdraw();
        assert_eq!((bench.closed, bench.stats().sent, bench.stats().timeouts), (1, 4, 0));
    }
}

#[test]
fn a_flow_withdrawn_before_it_began_sends_nothing() {
    for scheme in SCHEMES {
        let mut bench = Bench::new(start(scheme, 4.0, None));
        assert_eq!(bench.withdraw(), []);
        assert_eq!((bench.closed, bench.wake, bench.stats().sent), (1, None, 0));
    }
}

#[test]
fn a_cancelled_receiver_says_so_whenever_it_is_sent_something_and_the_sender_closes() {
    for scheme in SCHEMES {
        let mut receiver = receiver(scheme, 100);
        assert_eq!(answer(&mut receiver, data(0, Ecn::NotEct), None).len(), 1);
        let cancel = Input::Command(SinkCommand::Cancel);
        let failed = SinkEvent::Failed(ReceiverFailure::Cancelled);
        let fin = || Body::Fin(FinReason::Cancelled);
        assert_eq!(answer(&mut receiver, cancel.clone(), Some(failed)), [fin()]);
        assert_eq!(answer(&mut receiver, data(1, Ecn::NotEct), None), [fin()]);
        assert_eq!(answer(&mut receiver, cancel, None), []);
        assert_eq!(receiver.stats().distinct, 1);

        let mut bench = Bench::new(start(scheme, 4.0, None));
        bench.drain();
        assert_eq!(bench.say(fin()), []);
        assert_eq!((bench.closed, bench.wake), (1, None));
    }
}

#[test]
fn a_flow_of_no_packets_is_over_before_it_begins() {
    for scheme in SCHEMES {
        let config = SenderConfig::data_centre(scheme);
        let mut sender = Sender::new(config, FLOW, PATH, 0);
        assert!(matches!(sender.poll(Time::ZERO), Output::Event(SenderEvent::Closed { .. })));
        assert_eq!(sender.poll(Time::ZERO), Output::Wake(None));
        let mut receiver = receiver(scheme, 0);
        assert_eq!(receiver.poll(Time::ZERO), Output::Event(SinkEvent::Done));
        assert_eq!(receiver.poll(Time::ZERO), Output::Wake(None));
    }
}

#[test]
fn a_complete_receiver_goes_on_acknowledging() {
    for scheme in SCHEMES {
        let mut receiver = receiver(scheme, 1);
        assert_eq!(answer(&mut receiver, data(0, Ecn::NotEct), Some(SinkEvent::Done)).len(), 1);
        assert_eq!(answer(&mut receiver, data(0, Ecn::NotEct), None).len(), 1, "its ACK may be lost");
        assert_eq!((receiver.stats().arrived, receiver.stats().distinct), (2, 1));
    }
}

#[test]
fn every_ack_of_tcp_echoes_the_mark_of_its_own_packet() {
    let mut receiver = receiver(Scheme::DCTCP, 100);
    for (number, ecn, next, echo) in [
        (0, Ecn::Ce, 1, true),
        (1, Ecn::Ect0, 2, false),
        (3, Ecn::Ce, 2, true),
        (4, Ecn::Ect0, 2, false),
        (2, Ecn::Ect0, 5, false),
    ] {
        let said = answer(&mut receiver, data(number, ecn), None);
        let expected = headwater_wire::Cumulative { next: PacketNumber(next), echo, block: None };
        assert_eq!(said, [Body::Cumulative(expected)]);
    }
}

#[test]
fn a_packet_beyond_the_window_is_answered_but_not_kept() {
    let mut receiver = receiver(Scheme::NewReno, u64::MAX);
    assert_eq!(answer(&mut receiver, data(4096, Ecn::NotEct), None).len(), 1);
    assert_eq!((receiver.stats().outside, receiver.stats().distinct), (1, 0));
    answer(&mut receiver, data(4095, Ecn::NotEct), None);
    assert_eq!((receiver.stats().outside, receiver.stats().distinct), (1, 1));
}

#[test]
fn a_packet_too_old_to_be_told_from_a_duplicate_is_not_counted() {
    let mut receiver = receiver(Scheme::DCCP, u64::MAX);
    for number in [5000, 905, 904] {
        assert_eq!(answer(&mut receiver, data(number, Ecn::NotEct), None).len(), 1);
    }
    assert_eq!((receiver.stats().outside, receiver.stats().distinct), (1, 2));
}

#[test]
fn what_belongs_to_another_flow_or_makes_no_sense_is_counted_and_ignored() {
    for scheme in SCHEMES {
        let mut receiver = receiver(scheme, 10);
        let Input::Packet(mut stray) = data::<SinkCommand>(0, Ecn::NotEct) else {
            unreachable!("data is a packet")
        };
        stray.datagram.flow = FlowId(1);
        assert_eq!(answer(&mut receiver, Input::Packet(stray.clone()), None), []);
        let mut bench = Bench::new(start(scheme, 2.0, None));
        bench.drain();
        bench.sender.handle(bench.now, Input::Packet(stray));
        bench.say(Body::FinAck);
        assert_eq!((receiver.stats().unexpected, bench.stats().unexpected), (1, 2));
        assert_eq!((receiver.stats().arrived, bench.stats().acked), (0, 0));
    }
}

#[test]
fn configurations_out_of_bounds_are_brought_within_them() {
    let mut config = start(Scheme::NewReno, f64::NAN, None);
    config.window_limit = headwater_units::Packets::new(f64::INFINITY);
    let mut bench = Bench::new(config);
    assert_eq!(bench.drain(), [0], "a window that is no number is one packet");
    let path = PathId(1);
    config.initial_window = headwater_units::Packets::new(1e9);
    assert_eq!(Sender::new(config, FLOW, path, 1).stats().window.get(), 1_048_576.0);
}

#[test]
fn what_moves_for_every_packet_is_small() {
    assert!(size_of::<Output<SenderEvent>>() <= 64 && size_of::<Output<SinkEvent>>() <= 64);
    assert!(size_of::<Input<SenderCommand>>() <= 64 && size_of::<Input<SinkCommand>>() <= 64);
}
