//! A source driven by hand: what it sends, what it does about losses, and what it believes of others.

mod source_net;

use headwater_machine::Taker;
use headwater_testkit::{Line, Simulation};
use headwater_transport::flow::paths::Unanswered;
use headwater_transport::push::PushFlowConfig;
use headwater_transport::source::SourceConfig;
use headwater_transport::{SourceCommand, SourceEvent};
use headwater_units::{
    BlockIndex, Duration, ESI_LIMIT, Esi, FlowId, NodeId, PacketNumber, PathId, SymbolId, Symbols, Time,
};
use headwater_wire::{
    Ack, AckRange, Assign, Assignment, Body, Control, Delivery, MarkSignal, Owed, Push, Refusal,
    SYMBOL_OVERHEAD, ToController, ToSource, Work,
};
use proptest::prelude::*;
use source_net::{CONTROLLER, K, Net, OBJECT, Receiver, T, Weather, ms, push};

fn secs(n: u64) -> Time {
    Time::ZERO + Duration::from_secs(n)
}

/// A source whose pushed flows are told this.
fn pushes(push: PushFlowConfig) -> SourceConfig {
    SourceConfig { push, ..SourceConfig::default() }
}

fn everything(net: &Net) -> bool {
    net.receivers.values().all(|r| r.symbols.len() == (40 * K) as usize)
}

fn blocks(first: u32, count: u16, attempt: u8) -> Work {
    Work::Blocks { first: BlockIndex(first), count, attempt }
}

#[test]
fn every_listed_symbol_is_delivered_once_when_nothing_is_lost() {
    for config in [SourceConfig::default(), SourceConfig::paper()] {
        let mut net = Net::with_flow(config, Weather { disk: ms(1), ..Weather::default() }, 1, 40);
        assert!(net.run(secs(10), everything));
        net.run_for(ms(500));
        assert_eq!(net.sent, u64::from(40 * K));
        let flow = net.flow();
        assert_eq!((flow.in_flight, flow.counters.resent.get(), flow.counters.probes.get()), (0, 0, 0));
        assert_eq!(flow.counters.acked, flow.counters.sent);
    }
}

#[test]
fn every_listed_symbol_is_delivered_through_loss_reordering_duplicates_and_lost_acks() {
    let storms = [
        Weather { loss: 0.02, ..Weather::default() },
        Weather { loss: 0.3, ..Weather::default() },
        Weather { jitter: ms(2), ..Weather::default() },
        Weather { duplicates: 0.2, jitter: ms(1), ..Weather::default() },
        Weather { ack_loss: 0.5, ..Weather::default() },
        Weather {
            loss: 0.2,
            ack_loss: 0.2,
            duplicates: 0.1,
            jitter: ms(3),
            disk: ms(4),
            ..Weather::default()
        },
        Weather { bottleneck: Some((2066, usize::MAX, 100)), loss: 0.01, ..Weather::default() },
    ];
    for (i, weather) in storms.into_iter().enumerate() {
        for (seed, config) in [SourceConfig::default(), SourceConfig::paper()].into_iter().enumerate() {
            let mut net = Net::with_flow(config, weather, seed as u64 + 10, 40);
            assert!(net.run(secs(120), everything), "weather {i}, config {seed}: {:?}", net.flow());
            net.run_for(ms(2000));
            let flow = net.flow();
            assert_eq!(flow.in_flight, 0, "weather {i}, config {seed}");
            let prepared = count(&net, |e| matches!(e, SourceEvent::Prepare { repair: false, .. }));
            let released = count(&net, |e| matches!(e, SourceEvent::Release { .. }));
            assert_eq!((prepared, released), (40, 40), "weather {i}, config {seed}: every block is let go");
            println!("weather {i}, config {seed}: {:?} after {}", flow.counters, net.now());
        }
    }
}

fn count(net: &Net, matching: impl Fn(&SourceEvent) -> bool) -> usize {
    net.events.iter().filter(|(_, e)| matching(e)).count()
}

/// Callers have shares of the table of flows: whoever comes beside one that orders all it can finds room, and so does the controller.
#[test]
fn flows_that_callers_of_one_network_order_leave_room_for_those_of_others() {
    let mut net =
        Net::new(SourceConfig { max_flows: 64, ..SourceConfig::default() }, Weather::default(), 1, 4);
    let mut number = 0;
    let mut order = |net: &mut Net, key: u8, ip: [u8; 4], flows: usize| {
        let before = net.source.flows().count();
        for _ in 0..flows {
            number += 1;
            let caller = Taker { node: NodeId([key; 32]), network: Some(ip.into()) };
            let push = Box::new(push(number, 1.0, 4));
            net.command(SourceCommand::PushOfCaller { path: CONTROLLER, caller, push });
        }
        net.source.flows().count() - before
    };
    let flood = [192, 0, 2, 7];
    assert_eq!([1, 2, 3].map(|key| order(&mut net, key, flood, 40)), [16, 16, 0]);
    assert_eq!(order(&mut net, 4, [192, 0, 2, 8], 8), 8);
    for flow in 1000..1100 {
        net.control(ToSource::Push(push(flow, 1.0, 4)));
    }
    assert_eq!(net.source.flows().count(), 64, "the controller has no share, and the rest");
    for flow in 1..=16 {
        net.control(ToSource::Stop { flow: FlowId(flow) });
    }
    assert_eq!(order(&mut net, 3, flood, 40), 16, "what has ended makes room");
}

#[test]
fn lost_symbol_is_resent_after_three_later_acks() {
    let push = PushFlowConfig { tail_probe: None, ..PushFlowConfig::paper() };
    let config = SourceConfig { push, ..SourceConfig::paper() };
    let mut net = Net::with_flow(config, Weather::default(), 1, 4);
    net.drop.insert(20);
    net.run_for(ms(400));
    let headers = net.receiver().headers.clone();
    let symbol = SymbolId { block: BlockIndex(0), esi: Esi(20) };
    let (at, copy) = *headers.iter().find(|(_, h)| h.symbol == symbol).expect("resent");
    assert_eq!(
        copy.number.0,
        headers.iter().map(|h| h.1.number.0).take_while(|n| *n != copy.number.0).max().unwrap() + 1
    );
    // The third later packet is acknowledged a round trip after it was sent; the copy arrives one way later.
    let third = headers.iter().find(|(_, h)| h.number.0 == 23).unwrap().0;
    assert_eq!(at, third + ms(2));
    let flow = net.flow();
    assert_eq!(
        (flow.counters.lost.get(), flow.counters.resent.get(), flow.counters.spurious.get()),
        (1, 1, 0)
    );
}

#[test]
fn a_packet_that_was_only_late_is_not_resent_and_the_window_does_not_care() {
    let mut net =
        Net::with_flow(SourceConfig::paper(), Weather { jitter: ms(3), ..Weather::default() }, 5, 40);
    assert!(net.run(secs(20), everything));
    net.run_for(ms(100));
    let flow = net.flow();
    assert!(flow.counters.spurious.get() > 0, "{:?}", flow.counters);
    assert!(flow.counters.resent <= flow.counters.lost);
    assert_eq!(flow.counters.timeouts, 0);
}

#[test]
fn loss_does_not_touch_the_window_of_a_flow_that_ignores_it() {
    let window = |loss: f64| {
        let mut config = SourceConfig::paper();
        config.push.wfcc.initial_window = headwater_units::Packets::new(64.0);
        let mut net = Net::with_flow(config, Weather { loss, ..Weather::default() }, 3, 400);
        net.run_for(ms(8));
        (net.flow().window.get(), net.flow().counters)
    };
    let (calm, _) = window(0.0);
    let (stormy, counters) = window(0.1);
    assert!(counters.lost.get() > 5, "{counters:?}");
    // It grows by one per ACK in slow start; what was lost just does not make it grow.
    assert!(stormy >= 64.0 + counters.acked.get() as f64 && stormy <= calm, "{stormy} {calm}");
}

#[test]
fn an_unanswered_path_gets_no_more_than_the_initial_window() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 40);
    // The receiver takes symbols and acknowledges them, but its assignments never carry the nonce.
    net.run(secs(1), |n| n.source.flow(FlowId(1)).is_some_and(|f| f.counters.sent.get() > 0));
    let mut net = Net::new(SourceConfig::default(), Weather::default(), 1, 40);
    net.control(ToSource::Push(push(1, 1.0, 40)));
    let mut receiver = Receiver::new(PathId(1), Assignment::Listed(vec![blocks(0, 40, 0)]));
    let assign = receiver.assign.clone();
    receiver.silent = true;
    net.receivers.insert(FlowId(1), receiver);
    for _ in 0..100 {
        net.datagram(PathId(1), FlowId(1), Body::Assign(Box::new(assign.clone())));
        net.run_for(ms(20));
        let now = net.now();
        if let Some(ack) = net.receiver().ack(now) {
            net.datagram(PathId(1), FlowId(1), Body::Ack(Box::new(ack)));
        }
    }
    assert_eq!(net.sent, 10);
    assert!(net.receiver().challenges >= 100, "every assignment without the nonce is answered");
    assert!(net.receiver().headers[9].1.ack_now, "the last one that may leave asks for an ACK");
    net.receiver().silent = false;
    net.assign(|_| {});
    assert!(net.run(secs(30), everything));
}

#[test]
fn where_addresses_may_be_forged_an_unanswered_path_gets_no_more_than_three_times_what_came_from_there() {
    // T is short here: a padded assignment earns as many packets as fit into 3,600 bytes, any other the 72 of three headers.
    let earned = |came: u64| 3 * came / (u64::from(T) + SYMBOL_OVERHEAD as u64);
    for (padded, symbols) in [(false, earned(24)), (true, earned(1200))] {
        let config = pushes(PushFlowConfig { unanswered: Unanswered::Times(3), ..PushFlowConfig::default() });
        let mut net = Net::new(config, Weather::default(), 1, 40);
        net.control(ToSource::Push(push(1, 1.0, 40)));
        let mut receiver = Receiver::new(PathId(1), Assignment::Listed(vec![blocks(0, 40, 0)]));
        receiver.silent = true;
        receiver.assign.padded = padded;
        let assign = receiver.assign.clone();
        net.receivers.insert(FlowId(1), receiver);
        net.datagram(PathId(1), FlowId(1), Body::Assign(Box::new(assign)));
        net.run_for(ms(20));
        assert_eq!(net.sent, symbols, "padded: {padded}");
        assert!(net.receiver().challenges > 0, "it is asked whether it is there");
    }
}

/// The receiver has symbols of its assignment and need not repeat it, so the source must ask again by itself.
#[test]
fn a_lost_challenge_is_said_again() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 40);
    net.assign_every = Duration::from_secs(1000);
    net.drop_challenges = 3;
    assert!(net.run(secs(20), everything));
    let mut net =
        Net::with_flow(SourceConfig::default(), Weather { ack_loss: 1.0, ..Weather::default() }, 1, 40);
    net.assign_every = Duration::from_secs(1000);
    net.drop_challenges = 3;
    net.run_for(Duration::from_secs(9));
    assert_eq!(
        net.receiver().challenges,
        1,
        "said at 0, 1, 3 and 7 s: without a sample the timeout begins at 1 s"
    );
}

#[test]
fn a_receiver_that_moved_is_challenged_before_the_flow_follows() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 40);
    net.there().line = Line::Each(ms(1));
    net.run_for(ms(300));
    let sent = net.sent;
    // Another path repeats what it heard, but it does not see our challenge.
    let stolen = net.receiver().assign.clone();
    net.datagram(PathId(66), FlowId(1), Body::Assign(Box::new(stolen)));
    assert!(net.sent >= sent);
    net.receiver().path = PathId(2);
    assert!(net.run(secs(20), everything));
    assert!(net.flow().counters.sent.get() > sent);
    assert!(net.receiver().challenges >= 2);
}

#[test]
fn a_flow_pauses_when_its_receiver_falls_silent_and_goes_on_when_it_speaks() {
    for config in [SourceConfig::default(), SourceConfig::paper()] {
        let mut net =
            Net::with_flow(config, Weather { bottleneck: Some((500, 30, 100)), ..Weather::default() }, 1, 40);
        net.run_for(ms(500));
        net.receiver().silent = true;
        net.run_for(Duration::from_secs(11));
        let flow = net.flow();
        assert!(flow.paused && flow.in_flight == 0 && flow.window.get() == 1.0, "{flow:?}");
        let sent = net.sent;
        net.run_for(Duration::from_secs(100));
        assert_eq!(net.sent, sent, "nothing leaves while nobody listens");
        net.receiver().silent = false;
        assert!(net.run(secs(300), everything), "{:?}", net.flow());
    }
}

#[test]
fn a_timeout_resets_the_window_to_one_and_backs_off() {
    let mut config = SourceConfig::paper();
    config.push.rtt.min_rto = ms(200);
    let weather = Weather { bottleneck: Some((5000, 30, 1000)), ..Weather::default() };
    let mut net = Net::with_flow(config, weather, 1, 400);
    net.run_for(ms(500));
    assert!(net.flow().window.get() > 20.0);
    net.receiver().silent = true;
    net.run_for(ms(250));
    let flow = net.flow();
    assert_eq!((flow.counters.timeouts, flow.window.get(), flow.in_flight), (1, 1.0, 1));
    net.run_for(ms(300));
    assert_eq!(net.flow().counters.timeouts, 1, "the second comes after twice the time");
    net.run_for(ms(150));
    assert_eq!(net.flow().counters.timeouts, 2);
    net.receiver().silent = false;
    net.run_for(ms(900));
    assert!(net.flow().window.get() > 10.0, "slow start again: {:?}", net.flow());
}

#[test]
fn a_lost_tail_is_probed_and_the_window_stays() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 4);
    net.drop.extend([4 * u64::from(K) - 1, 4 * u64::from(K) - 2]);
    net.run_for(ms(400));
    let flow = net.flow();
    assert_eq!(net.receiver().symbols.len(), 4 * K as usize);
    assert_eq!((flow.counters.probes.get(), flow.counters.timeouts, flow.in_flight), (2, 0, 0));
    assert!(flow.window.get() >= 10.0, "{flow:?}");
    // A longer tail takes a second probe, whose ACKs are the later ones that show the rest to be lost.
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 4);
    net.drop.extend(4 * u64::from(K) - 9..4 * u64::from(K));
    net.run_for(ms(400));
    let flow = net.flow();
    assert_eq!(net.receiver().symbols.len(), 4 * K as usize);
    assert_eq!((flow.counters.timeouts, flow.in_flight), (0, 0), "{flow:?}");
}

#[test]
fn a_repeated_or_extended_list_sends_nothing_twice_and_a_higher_attempt_does() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 8);
    net.run_for(ms(300));
    assert_eq!(net.sent, 8 * u64::from(K));
    net.assign(|a| a.assignment = Assignment::Listed(vec![blocks(0, 8, 0)]));
    net.run_for(ms(100));
    assert_eq!(net.sent, 8 * u64::from(K));
    let again = Work::Symbols { block: BlockIndex(3), first: Esi(K - 2), count: 5, attempt: 1 };
    net.assign(|a| a.assignment = Assignment::Listed(vec![blocks(0, 8, 0), again]));
    net.run_for(ms(100));
    assert_eq!(net.sent, 8 * u64::from(K) + 5);
    assert_eq!(net.receiver().headers.last().unwrap().1.assignment, 3);
    assert!(
        net.events
            .iter()
            .any(|(_, e)| matches!(e, SourceEvent::Prepare { block: BlockIndex(3), repair: true, .. }))
    );
    // An older assignment, late, changes nothing.
    let mut old = net.receiver().assign.clone();
    (old.version, old.assignment) = (2, Assignment::Listed(vec![blocks(0, 8, 9)]));
    net.datagram(PathId(1), FlowId(1), Body::Assign(Box::new(old)));
    net.run_for(ms(100));
    assert_eq!(net.sent, 8 * u64::from(K) + 5);
}

#[test]
fn a_flow_with_nothing_to_do_has_no_timer_but_the_report() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 4);
    net.run_for(Duration::from_secs(1));
    net.receiver().silent = true;
    net.run_for(Duration::from_secs(2));
    let reports = net
        .controls
        .iter()
        .filter(|(_, _, c)| matches!(c, Control::Controller(ToController::Report { .. })))
        .count();
    assert_eq!(reports, 15);
    assert!(!net.flow().paused, "silence of a receiver of which nothing is expected is no silence");
}

#[test]
fn a_slow_disk_starves_the_flow_and_symbols_say_so() {
    let weather = Weather { disk: ms(20), ..Weather::default() };
    let config =
        pushes(PushFlowConfig { prepare_ahead: 1, prepare_windows: 0.0, ..PushFlowConfig::default() });
    let mut net = Net::with_flow(config, weather, 1, 40);
    assert!(net.run(secs(20), everything));
    let starved = net.receiver().headers.iter().filter(|(_, h)| h.starved).count();
    assert!(starved > 30 * K as usize, "{starved}");
    assert!(net.flow().counters.starved > ms(200), "{}", net.flow().counters.starved);
    let mut net = Net::with_flow(
        SourceConfig::default(),
        Weather { bottleneck: Some((2000, 30, 100)), ..weather },
        1,
        40,
    );
    assert!(net.run(secs(20), everything));
    let starved = net.receiver().headers[200..].iter().filter(|(_, h)| h.starved).count();
    assert_eq!(starved, 0, "a disk that is fast enough is read ahead");
}

#[test]
fn the_residue_rule_delivers_its_class_until_every_block_is_decoded() {
    for loss in [0.0, 0.1] {
        for config in [SourceConfig::default(), SourceConfig::paper()] {
            let mut net = Net::new(config, Weather { loss, ack_loss: loss, ..Weather::default() }, 9, 40);
            let mut receiver = Receiver::new(PathId(1), Assignment::Residue { index: 1, of: 3 });
            receiver.decodes_with = Some(K + 2);
            receiver.residue_of = 1; // the other two sources are dead: this one must deliver everything
            net.start(push(1, 1.0, 40), receiver);
            assert!(net.run(secs(60), |n| n.receivers[&FlowId(1)].first_undecoded == 40), "{:?}", net.flow());
            let receiver = net.receiver();
            assert!(receiver.symbols.keys().all(|s| s.esi.0 % 3 == 1));
            let needless = receiver.symbols.len() as f64 / f64::from(40 * (K + 2)) - 1.0;
            println!("loss {loss}: {:.1} % more symbols than needed", 100.0 * needless);
            assert!(needless < if loss == 0.0 { 0.10 } else { 0.30 });
            net.run_for(ms(500));
            let released = count(&net, |e| matches!(e, SourceEvent::Release { .. }));
            let prepared = count(&net, |e| matches!(e, SourceEvent::Prepare { .. }));
            assert!(released == 40 && prepared >= 40, "{prepared} {released}");
            assert_eq!(net.flow().in_flight, 0);
        }
    }
}

#[test]
fn pushes_are_idempotent_and_refused_with_a_reason() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 4);
    net.control(ToSource::Push(push(1, 3.0, 4)));
    net.control(ToSource::Push(push(2, 1.0, 9)));
    let mut other = push(3, 1.0, 4);
    other.object = headwater_units::ObjectId([8; 32]);
    net.control(ToSource::Push(other));
    let mut odd = push(4, 1.0, 4);
    odd.symbol_size = 7;
    net.control(ToSource::Push(odd));
    let said: Vec<Control> = net.controls.iter().map(|c| c.2.clone()).collect();
    let refused =
        |flow, reason| Control::Controller(ToController::PushRefused { flow: FlowId(flow), reason });
    assert_eq!(
        said,
        [
            Control::Controller(ToController::Pushing { flow: FlowId(1) }),
            Control::Controller(ToController::Pushing { flow: FlowId(1) }),
            refused(2, Refusal::Gone),
            refused(3, Refusal::UnknownObject),
            refused(4, Refusal::UnknownObject),
        ]
    );
    assert_eq!(count(&net, |e| matches!(e, SourceEvent::Opened(_))), 1);
    assert_eq!(net.flow().theta.get(), 1.0, "a push said again does not undo a later weight");
    net.control(ToSource::SetTheta { flow: FlowId(1), theta: headwater_units::Theta::new(0.1) });
    assert_eq!(net.flow().theta.get(), 0.5);
}

#[test]
fn an_order_is_the_same_where_its_receiver_is_not_known_yet_to_a_controller_that_has_started_anew() {
    for delivery in [Delivery::Push, Delivery::Pull { initial_window: 8 }] {
        let mut net = Net::new(SourceConfig::default(), Weather::default(), 1, 4);
        let first = Push { delivery, at: vec![([10, 0, 0, 1], 7000).into()], ..push(1, 1.0, 4) };
        net.control(ToSource::Push(first.clone()));
        net.control(ToSource::Push(Push { at: Vec::new(), ..first }));
        let pushing = Control::Controller(ToController::Pushing { flow: FlowId(1) });
        let said: Vec<&Control> = net.controls.iter().map(|(.., said)| said).collect();
        assert_eq!(said, [&pushing, &pushing], "{delivery:?}");
    }
}

#[test]
fn a_flow_ends_by_fin_stop_or_withdrawal_and_stays_ended() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 4);
    net.run_for(ms(5));
    net.fin();
    net.fin();
    net.run_for(ms(5));
    assert_eq!(net.receiver().fin_acks, 2);
    assert_eq!(count(&net, |e| matches!(e, SourceEvent::Closed { .. })), 1);
    let stopped = |n: &Net| {
        n.controls.iter().filter(|c| matches!(c.2, Control::Controller(ToController::Stopped { .. }))).count()
    };
    assert_eq!(stopped(&net), 1);
    net.control(ToSource::Push(push(1, 1.0, 4)));
    assert_eq!((stopped(&net), net.source.flows().count()), (2, 0), "packet numbers never begin again");
    net.control(ToSource::Stop { flow: FlowId(5) });
    net.control(ToSource::Push(push(5, 1.0, 4)));
    assert_eq!((stopped(&net), net.source.flows().count()), (4, 0));
    net.control(ToSource::Push(push(6, 1.0, 4)));
    net.command(headwater_transport::SourceCommand::Withdraw { object: OBJECT });
    net.control(ToSource::Push(push(7, 1.0, 4)));
    let last: Vec<Control> = net.controls.iter().rev().take(2).map(|c| c.2.clone()).collect();
    let gone =
        |flow| Control::Controller(ToController::PushRefused { flow: FlowId(flow), reason: Refusal::Gone });
    assert_eq!(last, [gone(7), gone(6)]);
    assert!(net.controls.iter().all(|c| c.1 == CONTROLLER));
    assert_eq!(net.source.stats().closed, 2);
    let sent = net.sent;
    net.run_for(Duration::from_secs(3));
    assert_eq!(net.sent, sent);
}

#[test]
fn the_controller_can_pause_and_resume_a_flow() {
    let mut net = Net::with_flow(
        SourceConfig::default(),
        Weather { bottleneck: Some((1000, 30, 100)), ..Weather::default() },
        1,
        40,
    );
    net.run_for(ms(200));
    net.control(ToSource::Pause { flow: FlowId(1) });
    let sent = net.sent;
    net.run_for(Duration::from_secs(30));
    assert_eq!(net.sent, sent);
    assert_eq!(net.flow().counters.timeouts, 0);
    net.control(ToSource::Resume { flow: FlowId(1) });
    assert!(net.run(secs(60), everything));
}

#[test]
fn a_path_that_does_not_mark_is_driven_by_delay_and_its_queue_stays_short() {
    // 2000 packets a second over 20 ms: the target is 10 ms, 20 packets.
    let weather = Weather { delay: ms(10), bottleneck: Some((2000, usize::MAX, 1000)), ..Weather::default() };
    let mut net = Net::with_flow(SourceConfig::default(), weather, 1, 400);
    net.run_for(Duration::from_secs(2));
    let (flow, before) = (net.flow(), net.receiver().arrivals);
    assert_eq!(flow.signal, MarkSignal::Delay);
    net.run_for(Duration::from_secs(10));
    let rate = (net.receiver().arrivals - before) as f64 / 10.0;
    let queueing = net.flow().rtt.unwrap() - Duration::from_millis(20);
    println!("{rate} packets/s, queueing {queueing}, {:?}", net.flow());
    assert!(rate > 0.95 * 2000.0, "{rate}");
    assert!(queueing < ms(20), "{queueing}");
    assert_eq!(net.flow().counters.lost.get(), 0);
}

/// The late-comer measures its path behind the other's standing queue; looking for the empty path sets that right.
#[test]
fn a_late_comer_shares_by_theta_where_nothing_marks() {
    for (delay, rate) in [(Duration::from_micros(50), 8500), (ms(2), 8500), (ms(20), 2000)] {
        let weather = Weather { delay, bottleneck: Some((rate, usize::MAX, 1000)), ..Weather::default() };
        let mut net = Net::new(SourceConfig::default(), weather, 1, 60_000);
        for (flow, theta) in [(1, 1.0), (2, 4.0)] {
            let mut receiver =
                Receiver::new(PathId(flow as u32), Assignment::Listed(vec![blocks(0, 60_000, 0)]));
            receiver.decodes_with = Some(K);
            net.start(push(flow, theta, 60_000), receiver);
            net.run_for(Duration::from_secs(4));
        }
        net.run_for(Duration::from_secs(12));
        let before: Vec<u64> = net.receivers.values().map(|r| r.arrivals).collect();
        net.run_for(Duration::from_secs(30));
        let got: Vec<u64> = net.receivers.values().zip(before).map(|(r, b)| r.arrivals - b).collect();
        let (ratio, sum) = (got[1] as f64 / got[0] as f64, (got[0] + got[1]) as f64 / 30.0 / rate as f64);
        println!("{delay} one way, {rate} packets/s: ratio {ratio:.2}, {:.1} % of the link", 100.0 * sum);
        assert!((3.2..5.2).contains(&ratio), "{delay}: ratio {ratio}");
        assert!(sum > 0.95, "{delay}: {sum}");
    }
}

/// P-2 on the transport itself: 2066 packets a second, marks from 30 in the queue on, both flows at one source. Why a
/// little above 4:1: see the tests of `wfcc`.
#[test]
fn two_flows_share_a_link_by_theta() {
    for (name, config) in [("paper", SourceConfig::paper()), ("product", SourceConfig::default())] {
        let weather = Weather {
            delay: Duration::from_micros(20),
            bottleneck: Some((2066, 30, 100)),
            ..Weather::default()
        };
        let mut net = Net::new(config, weather, 1, 4000);
        for (flow, theta) in [(1, 1.0), (2, 4.0)] {
            let work = Assignment::Listed(vec![blocks(0, 4000, 0)]);
            net.start(push(flow, theta, 4000), Receiver::new(PathId(flow as u32), work));
        }
        net.run(secs(10), |_| false);
        let before: Vec<u64> = net.receivers.values().map(|r| r.arrivals).collect();
        let (mut alphas, mut windows, mut n) = ([0.0; 2], 0.0, 0.0);
        while net.now() < secs(40) {
            net.run_for(ms(10));
            for (alpha, flow) in alphas.iter_mut().zip(net.source.flows()) {
                *alpha += flow.mark_fraction;
                windows += flow.window.get();
            }
            n += 1.0;
        }
        let got: Vec<u64> = net.receivers.values().zip(before).map(|(r, b)| r.arrivals - b).collect();
        let (ratio, sum) = (got[1] as f64 / got[0] as f64, (got[0] + got[1]) as f64 / 30.0);
        let alphas = alphas.map(|a| a / n);
        let windows = windows / n;
        println!(
            "{name}: ratio {ratio:.3}, {sum:.0} packets/s, alpha {alphas:.3?}, sum of windows {windows:.2}"
        );
        assert!((3.6..5.2).contains(&ratio), "{name}: ratio {ratio}");
        assert!(sum > 0.98 * 2066.0, "{name}: {sum}");
        assert!(alphas.iter().all(|a| (a - 0.577).abs() < 0.15 * 0.577), "{name}: {alphas:?}");
        assert!((windows - 30.0).abs() < 4.0, "{name}: {windows}");
        assert!(net.source.flows().all(|f| f.counters.lost.get() == 0 && f.signal == MarkSignal::Ecn));
    }
}

#[test]
fn a_host_limit_is_shared_and_kept() {
    let limit = headwater_units::BitRate::new(100_000_000);
    let config = SourceConfig { limit: Some(limit), ..SourceConfig::default() };
    let mut net = Net::new(config, Weather::default(), 1, 4000);
    for flow in 1..=4 {
        let work = Assignment::Listed(vec![blocks(0, 4000, 0)]);
        net.start(push(flow, 1.0, 4000), Receiver::new(PathId(flow as u32), work));
    }
    net.run_for(Duration::from_secs(4));
    let bits = net.sent * (u64::from(T) + 48) * 8 / 4;
    assert!((98_000_000..=100_500_000).contains(&bits), "{bits}");
    let each: Vec<u64> = net.receivers.values().map(|r| r.arrivals).collect();
    assert!(each.iter().max().unwrap() - each.iter().min().unwrap() < each[0] / 10, "{each:?}");
    assert!(net.receivers[&FlowId(1)].headers[500..].iter().all(|(_, h)| h.starved));
}

#[test]
fn a_thousand_flows_are_served_alike() {
    let mut net = Net::new(
        SourceConfig::default(),
        Weather { bottleneck: Some((100_000, 3000, 20_000)), ..Weather::default() },
        1,
        40,
    );
    for flow in 1..=1000 {
        let work = Assignment::Listed(vec![blocks(0, 40, 0)]);
        net.start(push(flow, 1.0, 40), Receiver::new(PathId(flow as u32), work));
    }
    net.run_for(ms(1500));
    let (least, most) =
        net.receivers.values().fold((u64::MAX, 0), |(a, b), r| (a.min(r.arrivals), b.max(r.arrivals)));
    println!("{least}..{most} packets per flow");
    assert!(least * 3 > most, "{least} {most}");
    let largest = net.controls.iter().filter_map(|c| match &c.2 {
        Control::Controller(ToController::Report { flows }) => Some(flows.len()),
        _ => None,
    });
    assert_eq!(largest.max(), Some(256));
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let run = |seed| {
        let weather = Weather { loss: 0.1, ack_loss: 0.1, jitter: ms(1), disk: ms(2), ..Weather::default() };
        let mut net = Net::with_flow(SourceConfig::default(), weather, seed, 10);
        net.network().digest = Some(0);
        net.run(secs(5), |n| n.receivers[&FlowId(1)].symbols.len() == 10 * K as usize);
        net.network().digest
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn the_signal_is_what_the_counters_show() {
    let mut net = Net::with_flow(SourceConfig::default(), Weather::default(), 1, 40);
    net.run_for(ms(20));
    assert_eq!(net.flow().signal, MarkSignal::Delay);
    let weather = Weather { bottleneck: Some((2000, 10, 100)), ..Weather::default() };
    let mut net = Net::with_flow(SourceConfig::default(), weather, 1, 40);
    assert!(net.run(secs(20), everything));
    let flow = net.flow();
    assert_eq!(flow.signal, MarkSignal::Ecn);
    assert!(flow.counters.marked.get() > 0 && flow.counters.marked < flow.counters.acked);
}

/// Numbers near the edges of what the fields hold, and small ones that mean something.
fn odd_u32() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..12, 60u32..70, Just(u32::MAX), Just(u32::MAX - 1), any::<u32>(), Just(ESI_LIMIT - 1)]
}

fn odd_work() -> impl Strategy<Value = Work> {
    (any::<bool>(), odd_u32(), odd_u32(), any::<u16>(), 0u8..4).prop_map(
        |(whole, block, first, count, attempt)| {
            if whole {
                Work::Blocks { first: BlockIndex(block), count, attempt }
            } else {
                Work::Symbols { block: BlockIndex(block), first: Esi(first), count: count % 200, attempt }
            }
        },
    )
}

fn odd_body() -> impl Strategy<Value = Body> {
    let assignment = prop_oneof![
        (any::<u8>(), any::<u8>()).prop_map(|(index, of)| Assignment::Residue { index, of }),
        proptest::collection::vec(odd_work(), 0..120).prop_map(Assignment::Listed),
    ];
    let assign = (odd_u32(), any::<Option<u64>>(), odd_u32(), odd_u32(), assignment).prop_map(
        |(version, nonce, receive_window, first_undecoded, assignment)| {
            let first_undecoded = BlockIndex(first_undecoded % 9);
            Body::Assign(Box::new(Assign {
                version,
                nonce,
                receive_window,
                first_undecoded,
                assignment,
                padded: false,
            }))
        },
    );
    let range = (0u16..70, 0u16..70).prop_map(|(gap, run)| AckRange { gap, run });
    let owed = (odd_u32(), odd_u32())
        .prop_map(|(b, n)| Owed { block: BlockIndex(b), symbols: Symbols::new(u64::from(n)) });
    let ack = (
        prop_oneof![0u64..400, any::<u64>()],
        any::<u64>(),
        any::<u16>(),
        proptest::collection::vec(range, 0..31),
        proptest::collection::vec(owed, 0..8),
        [odd_u32(), odd_u32(), odd_u32(), odd_u32()],
    )
        .prop_map(|(largest, delay, first_run, ranges, owed, [ect0, ce, not_ect, first])| {
            Body::Ack(Box::new(Ack {
                largest: PacketNumber(largest),
                delay: Duration::from_nanos(delay),
                first_run,
                ranges: ranges.into_iter().collect(),
                ect0,
                ce,
                not_ect,
                first_undecoded: BlockIndex(first % 9),
                owed: owed.into_iter().collect(),
            }))
        });
    prop_oneof![
        6 => assign,
        12 => ack,
        1 => Just(Body::FinAck),
        1 => any::<u64>().prop_map(|nonce| Body::Challenge { nonce }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a receiver says, the source neither stops, nor sends without end, nor forgets its bounds.
    #[test]
    fn a_hostile_receiver_breaks_nothing(
        bodies in proptest::collection::vec((odd_body(), 0u64..30, 0u32..4), 1..120), paper in any::<bool>(), seed in 0u64..1000
    ) {
        let config = if paper { SourceConfig::paper() } else { SourceConfig::default() };
        let weather = Weather { loss: 0.1, ack_loss: 0.1, jitter: ms(1), ..Weather::default() };
        let mut net = Net::with_flow(config, weather, seed, 8);
        for (body, wait, path) in bodies {
            net.datagram(PathId(path), FlowId(1), body);
            net.run_for(ms(wait));
            let flow = net.flow();
            prop_assert!(flow.in_flight <= 65_538 && flow.window.get() >= 1.0 && flow.window.get().is_finite());
            prop_assert!((0.0..=1.0).contains(&flow.mark_fraction));
        }
        let open = net.events.iter().fold(0i64, |n, (_, e)| match e {
            SourceEvent::Prepare { repair: false, .. } => n + 1,
            SourceEvent::Release { .. } => n - 1,
            _ => n,
        });
        prop_assert!(open <= 8, "{open} blocks are held of 8");
    }
}

/// Sixteen gets by controllers of their own, none of which knows of the others: at weight 2 each flow would keep four packets and more
/// in a queue that has room for two of each.
#[test]
fn flows_that_ask_too_much_of_a_shallow_queue_starve_nobody() {
    const FLOWS: u64 = 16;
    let rate = 1715;
    let delay = Duration::from_micros(50);
    let weather = Weather { delay, bottleneck: Some((rate, usize::MAX, 30)), ..Weather::default() };
    // A receiver would wake a flow that has paused; this one only acknowledges.
    let config = PushFlowConfig { silent_pause: Duration::from_secs(3600), ..PushFlowConfig::default() };
    let mut net = Net::new(pushes(config), weather, 1, 20_000);
    for flow in 1..=FLOWS {
        let work = Assignment::Listed(vec![blocks(0, 20_000, 0)]);
        net.start(push(flow, 2.0, 20_000), Receiver::new(PathId(flow as u32), work));
    }
    net.run_for(ms(20_000));
    let before: Vec<u64> = net.receivers.values().map(|receiver| receiver.arrivals).collect();
    net.run_for(ms(40_000));
    let arrivals = net.receivers.values().map(|receiver| receiver.arrivals);
    let got: Vec<u64> = arrivals.zip(before).map(|(after, before)| after - before).collect();
    let fair = 40 * rate / FLOWS;
    println!("{got:?}, fair would be {fair} each");
    assert!(got.iter().all(|got| *got > fair / 5), "{got:?}");
    assert!(got.iter().sum::<u64>() > 40 * rate * 9 / 10, "{got:?}");
}
