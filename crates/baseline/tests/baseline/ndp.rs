//! NDP: what is pulled, what is sent again, and that it all ends whatever the network does.

use headwater_baseline::{
    Expect, PullReceiver, PullReceiverConfig, Scheme, SenderCommand, SenderConfig, SinkCommand, SinkEvent,
};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::messages::symbol_header;
use headwater_transport::flow::rtt::RttConfig;
use headwater_units::{Duration, FlowId, PacketNumber, Packets, PathId, Time};
use headwater_wire::{Body, Class, Datagram, Ecn, FinReason, Pull, Receipt, SymbolHeader};
use proptest::prelude::*;

use crate::bench::{Bench, FLOW, PATH, ms, us};
use crate::net::{DELAY, Fate, Net, PACKET, Weather, by_number, pull_config};

/// A first window of `window`, timeouts of at least 1 ms.
fn ndp(window: f64) -> SenderConfig {
    let rtt =
        RttConfig { initial_rto: ms(1), min_rto: ms(1), granularity: Duration::ZERO, ..RttConfig::default() };
    SenderConfig { initial_window: Packets::new(window), rtt, ..SenderConfig::data_centre(Scheme::NDP) }
}

fn receipt(number: u64, sequence: u32) -> Body {
    Body::Receipt(Receipt { number: PacketNumber(number), sequence, trimmed: false })
}

fn header_came(number: u64, sequence: u32) -> Body {
    Body::Receipt(Receipt { number: PacketNumber(number), sequence, trimmed: true })
}

fn pull(sequence: u32) -> Body {
    Body::Pull(Pull::any(sequence))
}

#[test]
fn first_window_is_pushed_and_every_further_packet_is_pulled() {
    let mut bench = Bench::new(ndp(4.0));
    assert_eq!(bench.drain(), [0, 1, 2, 3]);
    assert_eq!(bench.say(receipt(0, 0)), [0; 0], "a receipt alone asks for nothing");
    assert_eq!(bench.say(pull(1)), [4]);
    assert_eq!(bench.say(receipt(1, 2)), [5], "a receipt is a pull where one is due");
    assert_eq!(bench.say(pull(2)), [0; 0], "asked for already");
    assert_eq!(bench.say(pull(5)), [6, 7, 8], "the pulls that it has overtaken");
    assert_eq!(bench.say(pull(4)), [0; 0]);
}

#[test]
fn packets_that_were_trimmed_are_sent_before_new_ones_in_the_order_of_their_headers() {
    let mut bench = Bench::new(ndp(4.0));
    bench.drain();
    assert_eq!(bench.say(header_came(2, 0)), [0; 0], "it waits for a pull");
    assert_eq!(bench.say(header_came(1, 0)), [0; 0]);
    assert_eq!(bench.say(header_came(2, 0)), [0; 0], "heard twice");
    assert_eq!(bench.say(pull(3)), [2, 1, 4]);
    let stats = bench.stats();
    assert_eq!((stats.lost, stats.resent, stats.sent, stats.in_flight), (2, 2, 7, 5));
}

#[test]
fn each_packet_without_a_receipt_is_sent_again_after_its_timeout_and_the_timeout_doubles() {
    let mut bench = Bench::new(ndp(2.0));
    bench.drain();
    bench.pass(us(100));
    assert_eq!(bench.say(receipt(0, 0)), [0; 0]);
    // Round trip 100 us: the least timeout of 1 ms is what counts, from what was heard last.
    assert_eq!(bench.wake, Some(bench.now + ms(1)));
    assert_eq!(bench.pass(us(999)), [0; 0]);
    assert_eq!(bench.pass(us(1)), [1]);
    assert_eq!(bench.wake, Some(bench.now + ms(2)));
    assert_eq!(bench.pass(ms(2)), [1]);
    let stats = bench.stats();
    assert_eq!((stats.timeouts, stats.resent, stats.in_flight), (2, 2, 1));
}

/// A header that was dropped: the others keep coming.
#[test]
fn packet_that_others_overtake_for_four_timeouts_is_sent_again() {
    let mut bench = Bench::new(ndp(2.0));
    bench.drain();
    for nth in 1..40 {
        assert_eq!(bench.pass(us(99)), [0; 0]);
        assert_eq!(bench.say(receipt(nth, nth as u32)), [nth + 1]);
    }
    assert_eq!(bench.pass(us(4000 - 39 * 99)), [0], "four of 1 ms");
    assert_eq!(bench.stats().timeouts, 1);
}

#[test]
fn header_of_a_packet_that_is_in_line_changes_nothing_and_a_receipt_takes_it_out() {
    let mut bench = Bench::new(ndp(3.0));
    bench.drain();
    bench.say(header_came(0, 0));
    bench.say(receipt(0, 0));
    assert_eq!(bench.say(pull(1)), [3], "the copy that came late did come");
    assert_eq!(bench.stats().in_flight, 3);
}

/// The receiver has it, since a second copy came whole, but that receipt is lost: no pull will come.
#[test]
fn packet_in_line_is_sent_unasked_after_four_timeouts_of_silence() {
    let mut bench = Bench::new(ndp(1.0));
    bench.drain();
    bench.pass(us(100));
    bench.say(header_came(0, 0));
    assert_eq!(bench.wake, Some(bench.now + ms(4)));
    assert_eq!(bench.pass(ms(4)), [0]);
    assert_eq!((bench.stats().timeouts, bench.stats().in_flight), (1, 1));
    assert_eq!(bench.wake, Some(bench.now + ms(2)), "and from then on as any packet");
}

#[test]
fn fin_and_withdrawal_end_a_flow_at_once() {
    let mut bench = Bench::new(ndp(3.0));
    bench.drain();
    bench.say(Body::Fin(FinReason::Cancelled));
    assert_eq!((bench.closed, bench.wake), (1, None));
    assert_eq!(bench.say(pull(9)), [0; 0]);
    let mut bench = Bench::new(ndp(3.0));
    bench.drain();
    bench.withdraw();
    assert_eq!((bench.closed, bench.wake), (1, None));
}

#[test]
fn relay_sends_what_has_come_and_keeps_pulls_that_find_nothing() {
    let sender = headwater_baseline::Sender::relay(ndp(2.0), FLOW, PATH, 100);
    let mut bench = Bench { sender, now: Time::ZERO, wake: None, closed: 0 };
    assert_eq!(bench.drain(), [0; 0]);
    let extend = |bench: &mut Bench, packets| {
        let command = SenderCommand::Extend { flow: FLOW, packets };
        bench.sender.handle(bench.now, Input::Command(command));
        bench.drain()
    };
    assert_eq!(extend(&mut bench, 1), [0]);
    assert_eq!(extend(&mut bench, 3), [1], "the first window, then pulls");
    assert_eq!(bench.say(pull(4)), [2]);
    assert_eq!(extend(&mut bench, 2), [0; 0], "nothing is taken away");
    assert_eq!(extend(&mut bench, 200), [3, 4, 5]);
}

/// SCDP §III-H in NDP's case: n packets less the first window are pulled, without loss none twice.
#[test]
fn flow_that_loses_nothing_is_pulled_for_all_but_its_first_window() {
    for (packets, pulled) in [(0, 0), (1, 0), (8, 0), (9, 1), (100, 92)] {
        let mut net = Net::pulled(ndp(8.0), 0, &[packets]);
        net.finish();
        assert_eq!((net.sequences[0], net.delivered), (pulled, packets));
        assert_eq!(net.numbers(0), (0..packets).collect::<Vec<_>>());
    }
}

#[test]
fn window_of_a_round_trip_keeps_the_link_full() {
    let mut net = Net::pulled(ndp(12.0), 0, &[1000]);
    net.finish();
    let ideal = PACKET * 1000 + DELAY * 2;
    let took = net.complete_at[0].unwrap().since(Time::ZERO);
    assert!(took <= ideal + PACKET, "{took}, ideal {ideal}");
    assert_eq!(net.last().trimmed, 0);
}

#[test]
fn every_header_is_one_more_pull() {
    let mut net = Net::pulled(ndp(40.0), 0, &[300]);
    net.finish();
    assert!(
        net.last().trimmed >= 19,
        "40 packets at once find room for 20 and the one on the line: {}",
        net.last().trimmed
    );
    assert_eq!(u64::from(net.sequences[0]), 300 - 40 + net.last().trimmed);
    assert_eq!(net.delivered - net.last().trimmed, 300);
    assert_eq!(net.sender(0).stats().timeouts, 0);
}

/// Seventy senders to one host: the link stays full, nobody times out, and all end together.
#[test]
fn seventy_senders_share_the_link_and_nobody_times_out() {
    let mut net = Net::pulled(ndp(12.0), 64, &[175; 70]);
    net.finish();
    let ended: Vec<Time> = net.complete_at.iter().map(|at| at.unwrap()).collect();
    let last = ended.iter().max().unwrap().as_secs_f64();
    let utilisation = 70.0 * 175.0 * PACKET.as_secs_f64() / last;
    assert!(utilisation > 0.94, "1500 of 1564 bytes are 0.959: {utilisation}");
    let first = ended.iter().min().unwrap().as_secs_f64();
    assert!(first > 0.9 * last, "turn by turn: {first} s to {last} s");
    assert_eq!((0..70).map(|flow| net.sender(flow).stats().timeouts).sum::<u64>(), 0);
}

#[test]
fn sessions_of_one_host_take_turns() {
    let mut net = Net::pulled(ndp(12.0), 0, &[400, 100, 100]);
    net.finish();
    let at = |flow: usize| net.complete_at[flow].unwrap().since(Time::ZERO).as_secs_f64();
    let turn = PACKET.as_secs_f64();
    assert!((at(1) / (300.0 * turn) - 1.0).abs() < 0.05, "a third of the link each: {}", at(1));
    assert!((at(2) / (300.0 * turn) - 1.0).abs() < 0.1, "its first window is trimmed most: {}", at(2));
    assert!((at(0) / (600.0 * turn) - 1.0).abs() < 0.05, "and then all of it: {}", at(0));
}

/// The pull of the last packet and everything that repeats it is lost: only the receiver can know.
#[test]
fn receiver_asks_again_when_its_last_pulls_were_lost() {
    let mut net = Net::pulled(ndp(4.0), 0, &[5]);
    // The receipts of the first window, one of which is the only pull.
    net.back().faults = by_number(|nth, _| if nth < 4 { Fate::Lost } else { Fate::Arrives });
    net.there().faults = by_number(|nth, _| if (4..8).contains(&nth) { Fate::Lost } else { Fate::Arrives });
    net.finish();
    // Packets that the senders' own timeouts bring are lost too: the packet is asked for when 2 ms have passed.
    let at = net.complete_at[0].unwrap().since(Time::ZERO);
    assert!(at > ms(2) && at < ms(2) + us(500), "{at}");
    assert_eq!(net.host().flow(FlowId(100)).unwrap().asked_again, 1);
}

#[test]
fn without_trimming_timeouts_deliver() {
    let mut net = Net::pulled(ndp(12.0), 64, &[50; 10]);
    net.last().trims = false;
    net.finish();
    assert!((0..10).any(|flow| net.sender(flow).stats().timeouts > 0), "the first windows are too much");
}

fn weather() -> impl Strategy<Value = Weather> {
    (0.0..0.3, 0.0..0.3, 0.0..0.2, 1u64..2000).prop_map(|(loss, late, twice, by)| Weather {
        loss,
        late,
        twice,
        marked: 0.0,
        by: us(by),
    })
}

#[derive(Clone, Debug)]
enum Lie {
    Receipt { back: i64, ahead: i64, trimmed: bool },
    Pull { ahead: i64 },
    Silence(u64),
}

fn lie() -> impl Strategy<Value = Lie> {
    let near = || prop_oneof![8 => -3i64..40, 1 => -1i64..5000, 1 => any::<i64>()];
    prop_oneof![
        (near(), near(), any::<bool>()).prop_map(|(back, ahead, trimmed)| Lie::Receipt {
            back,
            ahead,
            trimmed
        }),
        near().prop_map(|ahead| Lie::Pull { ahead }),
        (0u64..30_000).prop_map(Lie::Silence),
    ]
}

/// Anything that the holder of a key may say to a host's receiver.
#[derive(Clone, Debug)]
enum Step {
    Data { flow: u64, number: u64, trimmed: bool },
    Expect { flow: u64, packets: u64, window: u64, relayed: bool },
    Abandon { flow: u64 },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let number = || prop_oneof![6 => 0u64..60, 1 => 0u64..6000, 1 => any::<u64>()];
    prop_oneof![
        6 => (0u64..4, number(), any::<bool>())
            .prop_map(|(flow, number, trimmed)| Step::Data { flow, number, trimmed }),
        1 => (0u64..4, number(), number(), any::<bool>())
            .prop_map(|(flow, packets, window, relayed)| Step::Expect { flow, packets, window, relayed }),
        1 => (0u64..4).prop_map(|flow| Step::Abandon { flow }),
        3 => (0u64..3000).prop_map(Step::Pass),
    ]
}

fn data(flow: u64, number: u64, trimmed: bool) -> Packet {
    let header = SymbolHeader { trimmed, ..symbol_header(number & 0xffff_ffff, 0, 0) };
    let datagram =
        Datagram { class: Class::Bulk, key_epoch: 0, flow: FlowId(flow), body: Body::Symbol(header) };
    Packet { path: PathId(3), ecn: Ecn::NotEct, datagram }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_flow_completes_and_nothing_is_counted_twice(
        lengths in prop::collection::vec(0u64..150, 1..6),
        (window, limit) in (1.0f64..40.0, 1.0f64..200.0),
        (room, trims, headroom) in (1usize..40, any::<bool>(), 0u64..200),
        (there, back) in (weather(), weather()),
        seed: u64,
    ) {
        let config = SenderConfig { window_limit: Packets::new(limit), ..ndp(window) };
        let mut net = Net::pulled(config, headroom, &lengths);
        (net.last().room, net.last().trims) = (room, trims);
        (net.there().faults, net.back().faults) = (there.faults(seed), back.faults(!seed));
        net.finish();
        for (index, &packets) in lengths.iter().enumerate() {
            let sent = net.sender(index).stats();
            let got = net.host().flow(FlowId(100 + index as u64)).unwrap();
            prop_assert_eq!((got.distinct, got.next, sent.acked), (packets, packets, packets));
            prop_assert_eq!((sent.unexpected, got.unexpected, got.outside), (0, 0, 0));
            prop_assert_eq!(sent.sent, packets + sent.resent);
            prop_assert_eq!(sent.sent, net.sent[index].len() as u64);
            prop_assert!(sent.resent <= sent.lost + sent.timeouts);
        }
        prop_assert_eq!(net.host().unexpected(), 0);
    }

    /// Receipts and pulls for anything in any order: no panic, no wake in the past, no more under way than allowed.
    #[test]
    fn a_peer_that_lies_cannot_break_a_sender(
        (window, limit) in (1.0f64..60.0, 1.0f64..300.0),
        lies in prop::collection::vec(lie(), 0..400),
    ) {
        let config = SenderConfig { window_limit: Packets::new(limit), ..ndp(window) };
        let mut bench = Bench::new(config);
        bench.drain();
        let mut asked = 0u32;
        for lie in lies {
            let before = bench.stats();
            let newest = (before.sent - before.resent) as i64;
            match lie {
                Lie::Receipt { back, ahead, trimmed } => {
                    asked = asked.wrapping_add(ahead as u32);
                    let number = PacketNumber(newest.saturating_sub(back) as u64);
                    bench.say(Body::Receipt(Receipt { number, sequence: asked, trimmed }))
                }
                Lie::Pull { ahead } => {
                    asked = asked.wrapping_add(ahead as u32);
                    bench.say(pull(asked))
                }
                Lie::Silence(span) => bench.pass(us(span)),
            };
            let stats = bench.stats();
            prop_assert!(stats.in_flight <= limit as u64, "{} under way, {limit} allowed", stats.in_flight);
            prop_assert!(stats.sent - before.sent <= 2 * limit as u64 + 1, "one lie, one window");
            prop_assert!(bench.wake.is_none_or(|at: Time| at > bench.now));
        }
    }

    /// Whatever comes: no panic, no wake in the past, never more pulled than the host's link brings.
    #[test]
    fn anybodys_packets_cannot_break_a_host_that_pulls(said in prop::collection::vec(step(), 0..300)) {
        let mut host = PullReceiver::new(PullReceiverConfig::of(&ndp(12.0), pull_config(0)));
        let (mut now, mut complete) = (Time::ZERO, std::collections::BTreeSet::new());
        for said in said {
            match said {
                Step::Data { flow, number, trimmed } => {
                    host.handle(now, Input::Packet(data(flow, number, trimmed)));
                }
                Step::Expect { flow, packets, window, relayed } => {
                    let expect = Expect { flow: FlowId(flow), path: PathId(3), packets, window, relayed };
                    host.handle(now, Input::Command(SinkCommand::Expect(expect)));
                }
                Step::Abandon { flow } => {
                    let abandon = SinkCommand::Abandon { flow: FlowId(flow) };
                    host.handle(now, Input::Command(abandon));
                }
                Step::Pass(span) => now += us(span),
            }
            for outputs in 0.. {
                prop_assert!(outputs < 10_000, "it never comes to an end");
                match host.poll(now) {
                    Output::Wake(at) => {
                        prop_assert!(at.is_none_or(|at| at > now));
                        break;
                    }
                    Output::Event(SinkEvent::Complete { flow }) => {
                        prop_assert!(complete.insert(flow), "complete twice");
                    }
                    _ => {}
                }
            }
        }
    }
}
