//! A fetch alone on its host, told by hand what arrives.

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::messages::{Object, grant, symbol_header};
use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_transport::receiver::Receivers;
use headwater_transport::*;
use headwater_transport::{FromFetch, ToFetch};
use headwater_units::*;
use headwater_wire::*;

const CONTROLLER: PathId = PathId(100);
const SOURCE: PathId = PathId(2);
const FLOW: FlowId = FlowId(5);
const FETCH: FetchId = FetchId(3);
/// Interval of its reports.
const EVERY: Duration = Duration::from_millis(100);

fn object(bytes: u64, symbol_size: u16) -> Object {
    Object { id: ObjectId([9; 32]), bytes: Bytes::new(bytes), symbol_size }
}

fn after(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn packet(path: PathId, flow: FlowId, body: Body) -> Input<ToFetch> {
    let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow, body };
    Input::Packet(Packet { path, ecn: Ecn::Ect0, datagram })
}

/// Everything that it has to say now, and when it wants to be woken.
fn drain(receiver: &mut Receivers, now: Time) -> (Vec<Output<FromFetch>>, Option<Time>) {
    let mut said = Vec::new();
    loop {
        match receiver.poll(now) {
            Output::Wake(at) => return (said, at),
            output => said.push(output),
        }
        assert!(said.len() < 1000, "it never waits");
    }
}

fn command(receiver: &mut Receivers, now: Time, command: ReceiverCommand) {
    receiver.handle(now, Input::Command(ToFetch(FETCH, command)));
}

/// A host that has just been told to fetch this.
fn fetching(config: ReceiverConfig) -> Receivers {
    let mut receivers = headwater_testkit::receivers(BitRate::new(10_000_000_000));
    command(&mut receivers, after(0), ReceiverCommand::Fetch(Box::new(config)));
    receivers
}

fn stats(receivers: &mut Receivers) -> ReceiverStats {
    receivers.stats(after(0), FETCH).expect("it is not over")
}

/// A receiver of one block of four symbols, all of which have come: it waits for the decoder.
fn waiting_for_its_decoder() -> Receivers {
    let mut receiver = fetching(ReceiverConfig::new("object", NodeId([1; 32]), CONTROLLER, 77));
    drain(&mut receiver, after(0));
    let flows = vec![grant(FLOW, NodeId([2; 32]), FlowKey([3; 32]), 0, 1)];
    let accepted = object(4000, 1000).accepted(77, TaskId(1), EVERY, Delivery::Push, flows);
    receiver.handle(after(0), packet(CONTROLLER, FlowId(0), Body::Control(Box::new(accepted))));
    command(&mut receiver, after(0), ReceiverCommand::Start { wanted: 0..1, have: vec![] });
    command(&mut receiver, after(0), ReceiverCommand::FlowPath { flow: FLOW, path: SOURCE });
    drain(&mut receiver, after(0));
    for n in 0..4 {
        let header = SymbolHeader { assignment: 1, ..symbol_header(n, 0, n as u32) };
        receiver.handle(after(0), packet(SOURCE, FLOW, Body::Symbol(header)));
    }
    let decode = Output::Event(FromFetch(FETCH, ReceiverEvent::Decode { block: BlockIndex(0) }));
    assert!(drain(&mut receiver, after(0)).0.contains(&decode));
    receiver
}

#[test]
fn slow_decoder_or_disk_makes_nobody_impatient_or_busy() {
    let mut receiver = waiting_for_its_decoder();
    // Longer than the patience with silent sources.
    for second in [29, 30, 31, 300] {
        let (_, wake) = drain(&mut receiver, after(second));
        assert!(wake.is_none_or(|at| at > after(second)), "wants to be woken at {wake:?}, now {second} s");
    }
    let failure = DecodeFailure::Corrupt;
    command(&mut receiver, after(300), ReceiverCommand::DecodeFailed { block: BlockIndex(0), failure });
    let (said, _) = drain(&mut receiver, after(300));
    let failed = |o: &Output<FromFetch>| matches!(o, Output::Event(FromFetch(_, ReceiverEvent::Failed(_))));
    assert!(!said.iter().any(failed), "the sources had no time to answer: {said:?}");
}

/// A receiver of `bytes` bytes in symbols of 1000 from the sources behind these paths; flow numbers are path numbers.
fn receiving(spread: SpreadRule, bytes: u64, paths: &[PathId]) -> Receivers {
    let config = ReceiverConfig::new("object", NodeId([1; 32]), CONTROLLER, 77);
    receiving_as(ReceiverConfig { spread, blocks_in_flight: 1, ..config }, bytes, paths)
}

fn receiving_as(config: ReceiverConfig, bytes: u64, paths: &[PathId]) -> Receivers {
    let delivery = config.delivery.unwrap_or_default();
    let mut receiver = fetching(config);
    drain(&mut receiver, after(0));
    receiver.handle(after(0), accepted_by(delivery, 77, bytes, paths));
    let wanted = 0..bytes.div_ceil(256 << 10) as u32;
    command(&mut receiver, after(0), ReceiverCommand::Start { wanted, have: vec![] });
    for &path in paths {
        command(&mut receiver, after(0), ReceiverCommand::FlowPath { flow: FlowId(u64::from(path.0)), path });
    }
    receiver
}

/// The controller's answer to a request for an object of `bytes` bytes: task 1, a flow by each of these paths.
fn accepted(request: u64, bytes: u64, paths: &[PathId]) -> Input<ToFetch> {
    accepted_by(Delivery::Push, request, bytes, paths)
}

fn accepted_by(delivery: Delivery, request: u64, bytes: u64, paths: &[PathId]) -> Input<ToFetch> {
    let flow = |(path, index): (&PathId, u8)| {
        let (id, node) = (FlowId(u64::from(path.0)), NodeId([path.0 as u8; 32]));
        grant(id, node, FlowKey([3; 32]), index, paths.len() as u8)
    };
    let flows = paths.iter().zip(0..).map(flow).collect();
    let accepted = object(bytes, 1000).accepted(request, TaskId(1), EVERY, delivery, flows);
    packet(CONTROLLER, FlowId(0), Body::Control(Box::new(accepted)))
}

fn symbol(path: PathId, number: u64, block: u32, esi: u32, assignment: u8) -> Input<ToFetch> {
    let header = SymbolHeader { assignment, ..symbol_header(number, block, esi) };
    packet(path, FlowId(u64::from(path.0)), Body::Symbol(header))
}

/// Output while time passes, with the time.
fn pass(receiver: &mut Receivers, from: Time, to: Time) -> Vec<(Time, Output<FromFetch>)> {
    let (mut now, mut said) = (from, Vec::new());
    while now < to {
        let (outputs, wake) = drain(receiver, now);
        said.extend(outputs.into_iter().map(|output| (now, output)));
        now = wake.unwrap_or(to).max(now + Duration::from_micros(1));
    }
    said
}

fn assignments(said: &[(Time, Output<FromFetch>)], to: PathId) -> Vec<(Time, Assign)> {
    let to_it =
        |(at, output): &(Time, Output<FromFetch>)| match output {
            Output::Transmit(Packet {
                path, datagram: Datagram { body: Body::Assign(assign), .. }, ..
            }) if *path == to => Some((*at, (**assign).clone())),
            _ => None,
        };
    said.iter().filter_map(to_it).collect()
}

#[test]
fn a_source_without_a_list_that_falls_silent_is_asked_again_and_the_controller_told() {
    for spread in [SpreadRule::Residue, SpreadRule::Equal] {
        let mut receiver = receiving(spread, 100_000, &[SOURCE]);
        drain(&mut receiver, after(0));
        receiver.handle(after(0), symbol(SOURCE, 0, 0, 0, 1));
        let said = pass(&mut receiver, after(0), after(20));
        let again = assignments(&said, SOURCE);
        assert!(again.len() >= 10, "{spread:?}: {} times", again.len());
        assert!(again.iter().all(|(at, assign)| *at >= after(1) && assign.version == 2), "{again:?}");
        let told = said.iter().any(|(_, output)| match output {
            Output::Transmit(Packet { datagram: Datagram { body: Body::Control(control), .. }, .. }) => {
                matches!(&**control, Control::Controller(ToController::Feedback { flows, .. }) if flows[0].silent > Duration::from_secs(15))
            }
            _ => false,
        });
        assert!(told, "{spread:?}");
    }
}

#[test]
fn a_receiver_that_reports_seldom_says_at_once_that_a_stripe_does_not_come() {
    const SELDOM: Duration = Duration::from_secs(2);
    const SILENT: PathId = PathId(4);
    let config = ReceiverConfig::new("object", NodeId([1; 32]), CONTROLLER, 77);
    let mut receiver = fetching(config);
    drain(&mut receiver, after(0));
    let flow = |path: PathId, index| {
        grant(FlowId(u64::from(path.0)), NodeId([path.0 as u8; 32]), FlowKey([3; 32]), index, 2)
    };
    let flows = vec![flow(SOURCE, 0), flow(SILENT, 1)];
    let delivery = Delivery::Overlay { window: 8 };
    let accepted = object(64 << 20, 1000).accepted(77, TaskId(1), SELDOM, delivery, flows);
    receiver.handle(after(0), packet(CONTROLLER, FlowId(0), Body::Control(Box::new(accepted))));
    command(&mut receiver, after(0), ReceiverCommand::Start { wanted: 0..256, have: vec![] });
    for path in [SOURCE, SILENT] {
        command(&mut receiver, after(0), ReceiverCommand::FlowPath { flow: FlowId(u64::from(path.0)), path });
    }
    // One source sends a symbol every 20 ms, the other nothing.
    let mut reported: Vec<Time> = Vec::new();
    for n in 0..1000_u64 {
        let (from, to) = (n, n + 1);
        let at = |n: u64| after(0) + Duration::from_millis(20) * n;
        receiver.handle(at(from), symbol(SOURCE, n, (n / 200) as u32 * 2, (n % 200) as u32, 1));
        let said = pass(&mut receiver, at(from), at(to));
        let is_report = |output: &Output<FromFetch>| match output {
            Output::Transmit(Packet { datagram: Datagram { body: Body::Control(control), .. }, .. }) => {
                matches!(&**control, Control::Controller(ToController::Feedback { .. }))
            }
            _ => false,
        };
        reported.extend(said.iter().filter(|(_, output)| is_report(output)).map(|(at, _)| *at));
    }
    let ms = |ms: u64| after(0) + Duration::from_millis(ms);
    let within = |from: u64, to: u64| reported.iter().filter(|at| **at >= ms(from) && **at < ms(to)).count();
    assert_eq!((within(0, 390), within(390, 900)), (1, 3), "{reported:?}");
    // It is reported no more often for long, though nobody mends it.
    assert!(within(4_000, 20_000) <= 24, "of 160 if it were said all the time: {reported:?}");
}

/// The list of flows of task 1: one by each of these paths, from sources at these addresses.
fn flows(version: u32, paths: &[PathId], at: &[&str]) -> Input<ToFetch> {
    let Input::Packet(Packet { datagram: Datagram { body: Body::Control(control), .. }, .. }) =
        accepted(77, 100_000, paths)
    else {
        unreachable!("it is a control message")
    };
    let Control::Receiver(ToReceiver::Accepted { flows, .. }) = *control else {
        unreachable!("it is the answer to a request")
    };
    let at: Vec<_> = at.iter().map(|at| at.parse().unwrap()).collect();
    let flows = flows.into_iter().map(|grant| FlowGrant { at: at.clone(), ..grant }).collect();
    packet(
        CONTROLLER,
        FlowId(0),
        Body::Control(Box::new(Control::Receiver(ToReceiver::Flows { task: TaskId(1), version, flows }))),
    )
}

#[test]
fn a_source_whose_address_is_known_only_later_or_changes_is_asked_there() {
    for delivery in [None, Some(Delivery::Pull { initial_window: 8 })] {
        let config = ReceiverConfig::new("object", NodeId([1; 32]), CONTROLLER, 77);
        let mut receiver = receiving_as(ReceiverConfig { delivery, ..config }, 100_000, &[SOURCE]);
        pass(&mut receiver, after(0), after(5));
        let moved = |said: &[(Time, Output<FromFetch>)]| {
            let to = said.iter().filter_map(|(_, output)| match output {
                Output::Event(FromFetch(_, ReceiverEvent::Moved(bind))) => Some(bind.at.clone()),
                _ => None,
            });
            to.flatten().map(|at| at.to_string()).collect::<Vec<_>>()
        };
        // A controller that has restarted knows no address of a source that is not back.
        receiver.handle(after(5), flows(1, &[SOURCE], &["10.0.0.2:7000"]));
        let said = pass(&mut receiver, after(5), after(6));
        assert_eq!(moved(&said), ["10.0.0.2:7000"], "{delivery:?}");
        let path = PathId(9);
        command(&mut receiver, after(6), ReceiverCommand::FlowPath { flow: FlowId(2), path });
        // A source that pushes is asked at once, one that is pulled when its next turn comes.
        let said = pass(&mut receiver, after(6), after(11));
        let asked = said.iter().filter(|(_, output)| goes_by(output, path)).count();
        assert!(asked > 0, "{delivery:?}: {said:?}");
        for (version, at, expected) in
            [(2, &["10.0.0.2:7000"][..], 0), (3, &[], 0), (4, &["10.0.0.3:7000"], 1)]
        {
            receiver.handle(after(11), flows(version, &[SOURCE], at));
            let said = pass(&mut receiver, after(11), after(12));
            assert_eq!(moved(&said).len(), expected, "{delivery:?}: {at:?}");
        }
    }
}

fn goes_by(output: &Output<FromFetch>, this: PathId) -> bool {
    matches!(output, Output::Transmit(Packet { path, .. }) if *path == this)
}

#[test]
fn a_source_that_has_sent_its_equal_part_is_not_asked_again() {
    let mut receiver = receiving(SpreadRule::Equal, 2_000, &[SOURCE, PathId(3)]);
    drain(&mut receiver, after(0));
    receiver.handle(after(0), symbol(SOURCE, 0, 0, 0, 1));
    let said = pass(&mut receiver, after(0), after(20));
    assert_eq!(assignments(&said, SOURCE), []);
    assert!(assignments(&said, PathId(3)).len() > 10);
}

#[test]
fn what_a_liar_has_sent_of_other_blocks_is_forgotten() {
    const HONEST: PathId = PathId(SOURCE.0 + 1);
    let config = ReceiverConfig::new("object", NodeId([1; 32]), CONTROLLER, 77);
    let config = ReceiverConfig { spread: SpreadRule::Residue, blocks_in_flight: 3, ..config };
    let mut receiver = receiving_as(config, 3 << 18, &[SOURCE, HONEST]);
    drain(&mut receiver, after(0));
    let of_block = 263;
    let all = (0..of_block).map(|esi| (SOURCE, 0, esi));
    let some = (0..20).map(|esi| (SOURCE, 1, esi)).chain((0..20).map(|esi| (HONEST, 2, esi)));
    for (number, (path, block, esi)) in (0..).zip(all.chain(some)) {
        receiver.handle(after(0), symbol(path, number, block, esi, 1));
    }
    drain(&mut receiver, after(0));
    let failure = DecodeFailure::Corrupt;
    command(&mut receiver, after(0), ReceiverCommand::DecodeFailed { block: BlockIndex(0), failure });
    let (said, _) = drain(&mut receiver, after(0));
    let discarded = |block| {
        let event = ReceiverEvent::Discard { block: BlockIndex(block) };
        said.contains(&Output::Event(FromFetch(FETCH, event)))
    };
    let distrusted = ReceiverEvent::Distrusted { node: NodeId([SOURCE.0 as u8; 32]) };
    assert!(said.contains(&Output::Event(FromFetch(FETCH, distrusted))), "{said:?}");
    assert_eq!([0, 1, 2].map(discarded), [true, true, false], "{said:?}");
}

#[test]
fn under_the_equal_rule_there_is_room_for_all_that_sources_look_ahead() {
    let mut receiver = receiving(SpreadRule::Equal, 3 * (256 << 10), &[SOURCE]);
    drain(&mut receiver, after(0));
    for block in 0..3 {
        receiver.handle(after(0), symbol(SOURCE, u64::from(block), block, 0, 1));
        let kept = Output::Event(FromFetch(
            FETCH,
            ReceiverEvent::Symbol {
                flow: FLOW_OF_SOURCE,
                symbol: SymbolId { block: BlockIndex(block), esi: Esi(0) },
            },
        ));
        assert!(drain(&mut receiver, after(0)).0.contains(&kept), "block {block}: nobody else would send it");
    }
}

/// Nothing has come yet, and one block may be in flight.
#[test]
fn blocks_that_were_asked_for_count_among_those_in_flight_only_where_that_is_wanted() {
    for (counts_asked_for, blocks) in [(true, 1), (false, 2)] {
        let config = ReceiverConfig::new("object", NodeId([1; 32]), CONTROLLER, 77);
        let config = ReceiverConfig { counts_asked_for, blocks_in_flight: 1, ..config };
        let paths = [SOURCE, PathId(3)];
        let mut receiver = receiving_as(config, 4 * (256 << 10), &paths);
        let said = pass(&mut receiver, after(0), Time::ZERO + Duration::from_millis(100));
        let assigned = paths.iter().flat_map(|&path| assignments(&said, path));
        let mut asked_for = std::collections::BTreeSet::new();
        for (_, assign) in assigned {
            let Assignment::Listed(work) = assign.assignment else { panic!("the rule lists") };
            for work in work {
                match work {
                    Work::Blocks { first, count, .. } => {
                        asked_for.extend(first.0..first.0 + u32::from(count));
                    }
                    Work::Symbols { block, .. } => drop(asked_for.insert(block.0)),
                }
            }
        }
        assert_eq!(asked_for.len(), blocks, "{asked_for:?}");
    }
}

const FLOW_OF_SOURCE: FlowId = FlowId(2);

#[test]
fn a_dead_source_that_kept_the_work_does_not_keep_it_from_those_that_were_silent_before() {
    let (alive, late) = (SOURCE, PathId(3));
    let mut receiver = receiving(SpreadRule::Listed, 64_000, &[alive, late]);
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    // One answers for a while: the other loses its work. Then nobody answers.
    for n in 0..10 {
        pass(&mut receiver, at(n * 50), at(n * 50 + 50));
        receiver.handle(at(n * 50 + 50), symbol(alive, n, 0, n as u32, 1));
    }
    let said = pass(&mut receiver, at(500), after(12));
    let listed =
        |(_, assign): &(Time, Assign)| matches!(&assign.assignment, Assignment::Listed(w) if !w.is_empty());
    let again = assignments(&said, late);
    assert!(again.iter().any(listed), "{again:?}");
}

#[test]
fn a_receiver_waits_for_a_controller_that_does_not_know_its_object_any_more() {
    let mut receiver = receiving(SpreadRule::Listed, 64_000, &[SOURCE]);
    drain(&mut receiver, after(0));
    let forgotten = Control::Receiver(ToReceiver::UnknownTask { task: TaskId(1) });
    receiver.handle(after(1), packet(CONTROLLER, FlowId(0), Body::Control(Box::new(forgotten))));
    pass(&mut receiver, after(1), after(2));
    let refused = Control::Receiver(ToReceiver::Refused { request: 78, reason: Refusal::UnknownObject });
    receiver.handle(after(2), packet(CONTROLLER, FlowId(0), Body::Control(Box::new(refused.clone()))));
    let failed = |said: Vec<(Time, Output<FromFetch>)>| {
        let failure = |(_, output)| match output {
            Output::Event(FromFetch(_, ReceiverEvent::Failed(failure))) => Some(failure),
            _ => None,
        };
        said.into_iter().find_map(failure)
    };
    let early = failed(pass(&mut receiver, after(2), after(10)));
    assert_eq!(early, None, "its holders may be back any moment");
    let late = failed(pass(&mut receiver, after(10), after(30)));
    assert_eq!(late, Some(ReceiverFailure::Refused(Refusal::UnknownObject)), "but not for ever");
}

#[test]
fn a_task_that_is_forgotten_before_its_receiver_was_ready_goes_on_when_it_is_known_again() {
    let config = ReceiverConfig::new("object", NodeId([1; 32]), CONTROLLER, 77);
    let mut receiver = fetching(ReceiverConfig { spread: SpreadRule::Residue, ..config });
    drain(&mut receiver, after(0));
    receiver.handle(after(0), accepted(77, 64_000, &[SOURCE]));
    let forgotten = Control::Receiver(ToReceiver::UnknownTask { task: TaskId(1) });
    receiver.handle(after(0), packet(CONTROLLER, FlowId(0), Body::Control(Box::new(forgotten))));
    command(&mut receiver, after(0), ReceiverCommand::Start { wanted: 0..1, have: vec![] });
    drain(&mut receiver, after(0));
    receiver.handle(after(1), accepted(78, 64_000, &[SOURCE]));
    command(&mut receiver, after(1), ReceiverCommand::FlowPath { flow: FLOW_OF_SOURCE, path: SOURCE });
    drain(&mut receiver, after(1));
    receiver.handle(after(1), symbol(SOURCE, 0, 0, 0, 1));
    let kept = SymbolId { block: BlockIndex(0), esi: Esi(0) };
    let kept = ReceiverEvent::Symbol { flow: FLOW_OF_SOURCE, symbol: kept };
    assert!(drain(&mut receiver, after(1)).0.contains(&Output::Event(FromFetch(FETCH, kept))));
}

#[test]
fn the_end_waits_for_every_answer_but_that_of_a_source_that_fell_silent() {
    let (alive, dead) = (SOURCE, PathId(3));
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let end = |dead_answers: bool| {
        let mut receiver = receiving(SpreadRule::Listed, 64_000, &[alive, dead]);
        for n in 0..64 {
            pass(&mut receiver, at(n * 50), at(n * 50 + 50));
            receiver.handle(at(n * 50 + 50), symbol(alive, n, 0, n as u32, 1));
            if dead_answers {
                receiver.handle(at(n * 50 + 50), symbol(dead, n, 0, n as u32, 1));
            }
        }
        let now = at(3200);
        command(&mut receiver, now, ReceiverCommand::BlockDecoded { block: BlockIndex(0) });
        let said = pass(&mut receiver, now, now + Duration::from_millis(1));
        let fins = said.iter().filter(|(_, output)| {
            matches!(output, Output::Transmit(Packet { datagram: Datagram { body: Body::Fin(_), .. }, .. }))
        });
        assert_eq!(fins.count(), 2, "both are told: {said:?}");
        receiver.handle(now, packet(alive, FlowId(u64::from(alive.0)), Body::FinAck));
        let answer = Body::Control(Box::new(Control::Receiver(ToReceiver::FinAck { task: TaskId(1) })));
        receiver.handle(now, packet(CONTROLLER, FlowId(0), answer));
        pass(&mut receiver, now + Duration::from_millis(1), now + Duration::from_millis(3));
        receiver.is_empty()
    };
    assert!(end(false), "the dead one is not waited for");
    assert!(!end(true), "a living one is told again until it answers");
}

/// A source's probe of its path's MTU.
fn probe(path: PathId, bytes: u16, fits: Option<u16>) -> Input<ToFetch> {
    packet(path, FlowId(u64::from(path.0)), Body::Probe(Probe { number: 9, bytes, fits }))
}

/// The requests among these outputs: their number and room.
fn requests(said: &[Output<FromFetch>]) -> Vec<(u64, u16)> {
    let request = |output: &Output<FromFetch>| match output {
        Output::Transmit(Packet { datagram: Datagram { body: Body::Control(control), .. }, .. }) => {
            match &**control {
                Control::Controller(ToController::Request(request)) => Some((request.request, request.room)),
                _ => None,
            }
        }
        _ => None,
    };
    said.iter().filter_map(request).collect()
}

fn says(said: &[Output<FromFetch>], wanted: impl Fn(&Body) -> bool) -> usize {
    let is = |output: &&Output<FromFetch>| matches!(output, Output::Transmit(packet) if wanted(&packet.datagram.body));
    said.iter().filter(is).count()
}

#[test]
fn a_probe_is_answered_with_its_number_and_length() {
    let mut receiver = receiving(SpreadRule::Listed, 1 << 20, &[SOURCE]);
    drain(&mut receiver, after(0));
    receiver.handle(after(0), probe(SOURCE, 1400, None));
    let (said, _) = drain(&mut receiver, after(0));
    let answer = Body::ProbeAck(ProbeAck { number: 9, bytes: 1400 });
    assert_eq!(says(&said, |body| *body == answer), 1);
    assert_eq!((requests(&said), stats(&mut receiver).narrowed), (vec![], 0));
}

#[test]
fn a_source_with_a_narrow_path_makes_it_leave_the_task_and_ask_with_less_room() {
    let other = PathId(3);
    let mut receiver = receiving(SpreadRule::Listed, 1 << 20, &[SOURCE, other]);
    drain(&mut receiver, after(0));
    receiver.handle(after(0), probe(SOURCE, 32, Some(948)));
    let (said, _) = drain(&mut receiver, after(0));
    assert_eq!(
        requests(&said),
        [(78, 900)],
        "with a number of its own, or it would be the old request said again"
    );
    assert_eq!(says(&said, |body| matches!(body, Body::Fin(FinReason::Cancelled))), 2, "both flows end");
    let leaves = |body: &Body| matches!(body, Body::Control(control) if matches!(**control, Control::Controller(ToController::Fin { task: TaskId(1), outcome: Outcome::Cancelled })));
    assert_eq!(says(&said, leaves), 1);

    // The old task is taken leave of until that is understood.
    let (said, _) = drain(&mut receiver, after(1));
    assert_eq!((requests(&said).len(), says(&said, leaves)), (1, 1));
    let understood = Body::Control(Box::new(Control::Receiver(ToReceiver::FinAck { task: TaskId(1) })));
    receiver.handle(after(1), packet(CONTROLLER, FlowId(0), understood));
    let (said, _) = drain(&mut receiver, after(3));
    assert_eq!((requests(&said).len(), says(&said, leaves)), (1, 0));

    // Late packets of the old flows change nothing.
    receiver.handle(after(3), probe(other, 32, Some(700)));
    assert_eq!(requests(&drain(&mut receiver, after(3)).0), []);

    let flows = vec![grant(FlowId(40), NodeId([2; 32]), FlowKey([4; 32]), 0, 1)];
    let accepted = object(1 << 20, 896).accepted(78, TaskId(2), EVERY, Delivery::Push, flows);
    receiver.handle(after(3), packet(CONTROLLER, FlowId(0), Body::Control(Box::new(accepted))));
    let (said, _) = drain(&mut receiver, after(3));
    let again = |output: &Output<FromFetch>| {
        matches!(output, Output::Event(FromFetch(_, ReceiverEvent::Accepted { symbol_size: 896, .. })))
    };
    assert!(said.iter().any(again));
    let stats = stats(&mut receiver);
    assert_eq!((stats.room, stats.narrowed), (900, 1));
}

#[test]
fn a_source_that_lies_about_its_path_makes_symbols_no_smaller_than_500_bytes() {
    let mut receiver = receiving(SpreadRule::Listed, 1 << 20, &[SOURCE]);
    drain(&mut receiver, after(0));
    receiver.handle(after(0), probe(SOURCE, 32, Some(1)));
    assert_eq!(requests(&drain(&mut receiver, after(0)).0), [(78, 500)]);

    let mut receiver = receiving(SpreadRule::Listed, 1 << 20, &[SOURCE]);
    drain(&mut receiver, after(0));
    for fits in [1048, 1472, 9000, u16::MAX] {
        receiver.handle(after(0), probe(SOURCE, 32, Some(fits)));
        assert_eq!(requests(&drain(&mut receiver, after(0)).0), [], "symbols of 1000 bytes pass in {fits}");
    }
}
