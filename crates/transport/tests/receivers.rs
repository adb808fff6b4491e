//! Fetches of one host, side by side.

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::messages::{self, Object, symbol_header};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::Receivers;
use headwater_transport::*;
use headwater_transport::{FromFetch, ToFetch};
use headwater_units::*;
use headwater_wire::*;
use proptest::prelude::*;

const CONTROLLER: PathId = PathId(100);
/// Blocks of each object, and symbols of each block.
const BLOCKS: u32 = 3;
const K: u32 = 256;

fn at(us: u64) -> Time {
    Time::ZERO + Duration::from_micros(us)
}

fn host() -> Receivers {
    headwater_testkit::receivers(BitRate::new(10_000_000_000))
}

fn command(fetch: u64, command: ReceiverCommand) -> Input<ToFetch> {
    Input::Command(ToFetch(FetchId(fetch), command))
}

/// Begins a fetch. Its request is counted on with each time that it asks anew.
fn fetch(fetch: u64, spread: SpreadRule) -> Input<ToFetch> {
    let config = ReceiverConfig::new(format!("object {fetch}"), NodeId([1; 32]), CONTROLLER, fetch * 1000);
    command(fetch, ReceiverCommand::Fetch(Box::new(ReceiverConfig { spread, ..config })))
}

fn control(path: PathId, control: impl Into<Control>) -> Input<ToFetch> {
    Input::Packet(Packet::control(path, control))
}

/// The flow from a source to a fetch, which is also the source's path.
fn flow(fetch: u64, source: u64) -> FlowId {
    FlowId(fetch * 10 + source)
}

fn grants(fetch: u64, sources: u64) -> Vec<FlowGrant> {
    let grant = |source: u64| {
        let (flow, node) = (flow(fetch, source), NodeId([2 + source as u8; 32]));
        messages::grant(flow, node, FlowKey([3; 32]), source as u8, sources as u8)
    };
    (0..sources).map(grant).collect()
}

/// The answer to the first request of a fetch, or to a later one.
fn accepted(fetch: u64, later: u64, sources: u64) -> Input<ToFetch> {
    let (id, bytes) = (ObjectId([fetch as u8; 32]), Bytes::new(u64::from(BLOCKS) * (256 << 10)));
    let (task, every) = (TaskId(1000 + fetch), Duration::from_millis(3));
    let flows = grants(fetch, sources);
    let object = Object { id, bytes, symbol_size: 1024 };
    let accepted = object.accepted(fetch * 1000 + later, task, every, Delivery::Push, flows);
    control(CONTROLLER, accepted)
}

fn datagram(flow: FlowId, body: Body) -> Input<ToFetch> {
    let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow, body };
    Input::Packet(Packet { path: PathId(flow.0 as u32), ecn: Ecn::Ect0, datagram })
}

fn symbol(flow: FlowId, number: u64, block: u32, esi: u32) -> Input<ToFetch> {
    let header = SymbolHeader { ack_interval: 2, assignment: 1, ..symbol_header(number, block, esi) };
    datagram(flow, Body::Symbol(header))
}

/// Everything that its fetches have to say now, each with whose it is, and when it wants to be woken. Answers what a driver answers
/// at once.
fn drain(host: &mut Receivers, now: Time) -> (Vec<(FetchId, Output<FromFetch>)>, Option<Time>) {
    drain_all(host, now, &mut Vec::new())
}

/// The same; what is of no fetch goes elsewhere.
fn drain_all(
    host: &mut Receivers,
    now: Time,
    of_none: &mut Vec<Output<FromFetch>>,
) -> (Vec<(FetchId, Output<FromFetch>)>, Option<Time>) {
    let mut said = Vec::new();
    loop {
        match host.poll(now) {
            Output::Wake(wake) => {
                assert!(wake.is_none_or(|wake| wake > now), "wants to be woken at {wake:?}, now {now}");
                return (said, wake);
            }
            output => {
                let Some(speaker) = host.speaker() else {
                    of_none.push(output);
                    continue;
                };
                if let Output::Event(FromFetch(fetch, event)) = &output {
                    assert_eq!(*fetch, speaker);
                    answer(host, now, *fetch, event);
                }
                said.push((speaker, output));
            }
        }
        assert!(said.len() < 10_000, "it never waits");
    }
}

fn answer(host: &mut Receivers, now: Time, fetch: FetchId, event: &ReceiverEvent) {
    let answer = match event {
        ReceiverEvent::Accepted { .. } => ReceiverCommand::Start { wanted: 0..BLOCKS, have: vec![] },
        ReceiverEvent::Bind(bind) => {
            ReceiverCommand::FlowPath { flow: bind.flow, path: PathId(bind.flow.0 as u32) }
        }
        ReceiverEvent::Decode { block } => ReceiverCommand::BlockDecoded { block: *block },
        _ => return,
    };
    host.handle(now, command(fetch.0, answer));
}

/// Output of one fetch.
fn of(said: &[(FetchId, Output<FromFetch>)], fetch: u64) -> Vec<&Output<FromFetch>> {
    said.iter().filter(|(who, _)| who.0 == fetch).map(|(_, output)| output).collect()
}

/// A host with fetches 1 and 2, of one source each.
fn two_under_way() -> Receivers {
    let mut host = host();
    for n in [1, 2] {
        host.handle(at(0), fetch(n, SpreadRule::Listed));
        host.handle(at(0), accepted(n, 0, 1));
        drain(&mut host, at(0));
    }
    host
}

#[test]
fn a_packet_goes_to_the_fetch_of_its_flow_and_a_controllers_word_to_the_fetch_that_it_is_about() {
    let mut host = two_under_way();
    for n in [2, 1, 2] {
        host.handle(at(10), symbol(flow(n, 0), 0, 0, 0));
        let (said, _) = drain(&mut host, at(10));
        let kept = said.iter().filter(|(_, o)| {
            matches!(o, Output::Event(FromFetch(_, ReceiverEvent::Symbol { flow: of, .. })) if *of == flow(n, 0))
        });
        let new = usize::from(host.stats(at(10), FetchId(n)).unwrap().arrivals == 1);
        assert_eq!(kept.count(), new, "once");
        assert_eq!(of(&said, 3 - n), Vec::<&Output<FromFetch>>::new());
    }
    let flows =
        |task| Control::Receiver(ToReceiver::Flows { task: TaskId(task), version: 1, flows: grants(1, 2) });
    host.handle(at(20), control(CONTROLLER, flows(1001)));
    let (said, _) = drain(&mut host, at(20));
    assert!(of(&said, 1).iter().any(
        |o| matches!(o, Output::Event(FromFetch(_, ReceiverEvent::Bind(bind))) if bind.flow == flow(1, 1))
    ));
    assert_eq!(of(&said, 2), Vec::<&Output<FromFetch>>::new());

    // Not to anybody: another controller's word, another host's task, a flow that nobody was granted.
    assert_eq!(host.strays(), 0);
    host.handle(at(30), control(PathId(101), flows(1002)));
    host.handle(at(30), control(CONTROLLER, flows(7)));
    host.handle(at(30), symbol(FlowId(999), 0, 0, 0));
    assert_eq!((host.strays(), drain(&mut host, at(30)).0), (3, vec![]));
}

#[test]
fn an_ended_fetch_is_forgotten_and_its_number_free() {
    let mut host = two_under_way();
    host.handle(at(10), command(1, ReceiverCommand::Cancel));
    drain(&mut host, at(10));
    assert_eq!(
        host.fetches().collect::<Vec<_>>(),
        [FetchId(1), FetchId(2)],
        "its farewells are not answered yet"
    );
    host.handle(at(20), datagram(flow(1, 0), Body::FinAck));
    host.handle(at(20), control(CONTROLLER, ToReceiver::FinAck { task: TaskId(1001) }));
    let (said, _) = drain(&mut host, at(20));
    let ended = Output::Event(FromFetch(FetchId(1), ReceiverEvent::Ended));
    assert_eq!(of(&said, 1).last(), Some(&&ended));
    assert_eq!(
        (host.fetches().collect::<Vec<_>>(), host.stats(at(20), FetchId(1))),
        (vec![FetchId(2)], None)
    );

    host.handle(at(30), symbol(flow(1, 0), 1, 0, 1));
    host.handle(at(30), command(1, ReceiverCommand::Cancel));
    assert_eq!((host.strays(), drain(&mut host, at(30)).0), (2, vec![]));

    host.handle(at(40), fetch(1, SpreadRule::Equal));
    let (said, _) = drain(&mut host, at(40));
    let asks = |o: &&Output<FromFetch>| matches!(o, Output::Transmit(packet) if matches!(packet.datagram.body, Body::Control(_)));
    assert_eq!(of(&said, 1).iter().filter(|o| asks(o)).count(), 1);
}

/// A controller that was asked twice, or answers late, is told at once that nobody here wants the task.
#[test]
fn a_task_that_is_granted_to_a_fetch_that_is_over_is_declined() {
    let mut host = host();
    host.handle(at(0), fetch(1, SpreadRule::Listed));
    drain(&mut host, at(0));
    host.handle(at(1), command(1, ReceiverCommand::Cancel));
    drain(&mut host, at(1));
    assert_eq!(host.fetches().count(), 0);
    host.handle(at(2), accepted(1, 0, 1));
    let mut said = Vec::new();
    assert_eq!(drain_all(&mut host, at(2), &mut said), (vec![], None));
    let fin = ToController::Fin { task: TaskId(1001), outcome: Outcome::Cancelled };
    assert_eq!(said, [Output::Transmit(Packet::control(CONTROLLER, fin))]);
    assert_eq!(host.strays(), 1);
}

/// The same where the fetch still says goodbye to its sources: its controller had forgotten the task, so it asked anew, and was cancelled
/// before the answer came.
#[test]
fn a_task_that_is_granted_to_a_fetch_that_says_goodbye_is_declined() {
    let mut host = two_under_way();
    host.handle(at(10), control(CONTROLLER, ToReceiver::UnknownTask { task: TaskId(1001) }));
    let (said, _) = drain(&mut host, at(10));
    let asks = |output: &&Output<FromFetch>| {
        matches!(output, Output::Transmit(Packet { datagram: Datagram { body: Body::Control(control), .. }, .. })
            if matches!(&**control, Control::Controller(ToController::Request(request)) if request.request == 1001))
    };
    assert_eq!(of(&said, 1).into_iter().filter(asks).count(), 1, "{said:?}");
    host.handle(at(11), command(1, ReceiverCommand::Cancel));
    drain(&mut host, at(11));
    assert_eq!(host.fetches().count(), 2, "its source has not answered yet");

    let granted = |task: u64| {
        let object = Object {
            id: ObjectId([1; 32]),
            bytes: Bytes::new(u64::from(BLOCKS) * (256 << 10)),
            symbol_size: 1024,
        };
        let every = Duration::from_millis(3);
        control(CONTROLLER, object.accepted(1001, TaskId(task), every, Delivery::Push, grants(1, 1)))
    };
    host.handle(at(12), granted(77));
    let mut declined = Vec::new();
    let (said, _) = drain_all(&mut host, at(12), &mut declined);
    assert_eq!(of(&said, 1), Vec::<&Output<FromFetch>>::new());
    let fin = ToController::Fin { task: TaskId(77), outcome: Outcome::Cancelled };
    assert_eq!(declined, [Output::Transmit(Packet::control(CONTROLLER, fin))]);
}

#[test]
fn a_fetch_does_not_lose_its_number_to_another_one() {
    let mut host = two_under_way();
    host.handle(at(10), fetch(2, SpreadRule::Residue));
    assert_eq!((host.strays(), drain(&mut host, at(10)).0), (1, vec![]));
    assert_eq!(host.stats(at(10), FetchId(2)).unwrap().flows.len(), 1, "the first one goes on");
}

#[test]
fn a_flow_that_two_fetches_were_granted_belongs_to_the_later_one() {
    let mut host = two_under_way();
    let theirs = Control::Receiver(ToReceiver::Flows { task: TaskId(1002), version: 1, flows: grants(1, 1) });
    host.handle(at(10), control(CONTROLLER, theirs));
    drain(&mut host, at(10));
    host.handle(at(20), command(1, ReceiverCommand::Cancel));
    // The first one's farewell to it takes two and a half seconds, since the answers go to the other.
    let mut now = at(20);
    while host.stats(now, FetchId(1)).is_some() {
        now = drain(&mut host, now).1.expect("it waits for an answer");
    }
    let (strays, before) = (host.strays(), host.stats(now, FetchId(2)).unwrap().arrivals);
    host.handle(now, symbol(flow(1, 0), 0, 0, 0));
    drain(&mut host, now);
    assert_eq!((host.strays(), host.stats(now, FetchId(2)).unwrap().arrivals), (strays, before + 1));
}

#[test]
fn of_a_thousand_fetches_only_those_that_are_due_have_a_turn() {
    let mut host = host();
    for n in 0..1000 {
        host.handle(at(n), fetch(n, SpreadRule::Listed));
        let (said, _) = drain(&mut host, at(n));
        assert_eq!((said.len(), said[0].0), (1, FetchId(n)), "it asks, and nobody else has anything to say");
    }
    // Each asks again a quarter of a second after it asked first.
    let retry = 250_000;
    for n in 0..1000 {
        let (said, wake) = drain(&mut host, at(retry + n));
        assert_eq!(said.iter().map(|(who, _)| who.0).collect::<Vec<_>>(), [n]);
        let next = if n < 999 { retry + n + 1 } else { retry + 2 * retry };
        assert_eq!(wake, Some(at(next)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Time(u64),
    Begin,
    /// The answer to the first request, or a later one.
    Accepted(u64),
    OtherFlows(u32),
    UnknownTask,
    Symbol {
        source: u64,
        block: u32,
        esi: u32,
    },
    Challenge(u64),
    FinAck(u64),
    TaskFinAck,
    Cancel,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u32..18).prop_map(|shift| Step::Time(1 << shift)),
        1 => Just(Step::Begin),
        3 => (0u64..3).prop_map(Step::Accepted),
        1 => (0u32..6).prop_map(Step::OtherFlows),
        1 => Just(Step::UnknownTask),
        20 => (0..3u64, 0..BLOCKS, 0..K + 8).prop_map(|(source, block, esi)| Step::Symbol { source, block, esi }),
        1 => (0..3u64).prop_map(Step::Challenge),
        1 => (0..3u64).prop_map(Step::FinAck),
        1 => Just(Step::TaskFinAck),
        1 => Just(Step::Cancel),
    ]
}

/// Input for a fetch.
fn input(fetch_number: u64, step: &Step, number: u64) -> Input<ToFetch> {
    let n = fetch_number;
    match *step {
        Step::Time(_) => unreachable!("that is for all"),
        Step::Begin => fetch(n, [SpreadRule::Listed, SpreadRule::Residue, SpreadRule::Equal][n as usize % 3]),
        Step::Accepted(later) => accepted(n, later, 3),
        Step::OtherFlows(version) => {
            let flows = grants(n, u64::from(version) % 3 + 1);
            control(CONTROLLER, ToReceiver::Flows { task: TaskId(1000 + n), version, flows })
        }
        Step::UnknownTask => control(CONTROLLER, ToReceiver::UnknownTask { task: TaskId(1000 + n) }),
        Step::Symbol { source, block, esi } => symbol(flow(n, source), number, block, esi),
        Step::Challenge(source) => datagram(flow(n, source), Body::Challenge { nonce: 5 }),
        Step::FinAck(source) => datagram(flow(n, source), Body::FinAck),
        Step::TaskFinAck => control(CONTROLLER, ToReceiver::FinAck { task: TaskId(1000 + n) }),
        Step::Cancel => command(n, ReceiverCommand::Cancel),
    }
}

proptest! {
    /// The oracle: as many hosts with one fetch each.
    #[test]
    fn fetches_side_by_side_do_what_they_do_alone(steps in proptest::collection::vec((1u64..4, step()), 0..400)) {
        let mut together = host();
        let mut alone = [host(), host(), host()];
        let mut said: [Vec<Output<FromFetch>>; 3] = Default::default();
        let mut wakes = [None; 3];
        let mut now = Time::ZERO;
        for (number, (n, step)) in steps.iter().enumerate() {
            if let Step::Time(us) = step {
                now += Duration::from_micros(*us);
            } else {
                together.handle(now, input(*n, step, number as u64));
            }
            let (outputs, wake) = drain(&mut together, now);
            for (host, n) in alone.iter_mut().zip(1u64..) {
                let index = n as usize - 1;
                let is_told = !matches!(step, Step::Time(_)) && steps[number].0 == n;
                if is_told {
                    host.handle(now, input(n, step, number as u64));
                }
                if is_told || wakes[index].is_some_and(|at| at <= now) {
                    let (outputs, wake) = drain(host, now);
                    wakes[index] = wake;
                    said[index].extend(outputs.into_iter().map(|(_, output)| output));
                }
                let expected = std::mem::take(&mut said[index]);
                prop_assert_eq!(of(&outputs, n), expected.iter().collect::<Vec<_>>());
                prop_assert_eq!(together.stats(now, FetchId(n)), host.stats(now, FetchId(n)));
                let mut useful = together.useful(FetchId(n));
                prop_assert!(host.useful(FetchId(n)).all(|useful_alone| useful.next() == Some(useful_alone)));
            }
            prop_assert_eq!(wake, wakes.iter().flatten().min().copied());
        }
        prop_assert_eq!(together.strays(), alone.iter().map(Receivers::strays).sum::<u64>());
    }
}

#[test]
fn what_moves_for_every_packet_is_small() {
    assert!(size_of::<Packet>() <= 56, "{}", size_of::<Packet>());
    assert!(size_of::<Output<FromFetch>>() <= 64, "{}", size_of::<Output<FromFetch>>());
    assert!(size_of::<Input<ToFetch>>() <= 64, "{}", size_of::<Input<ToFetch>>());
    assert!(size_of::<Output<SourceEvent>>() <= 64, "{}", size_of::<Output<SourceEvent>>());
    assert!(size_of::<Input<SourceCommand>>() <= 64, "{}", size_of::<Input<SourceCommand>>());
}

/// Goal: who goes on by another transport, in the middle of its task, is brought what it lacks and nothing that it has.
#[test]
fn a_fetch_goes_on_by_another_transport_with_all_that_is_here() {
    let by = |version: u32, delivery: Delivery, source: u64| {
        let Input::Packet(Packet { datagram: Datagram { body: Body::Control(mut said), .. }, .. }) =
            accepted(1, 0, 0)
        else {
            unreachable!("it is said by the controller");
        };
        if let Control::Receiver(ToReceiver::Accepted {
            version: its, delivery: its_delivery, flows, ..
        }) = &mut *said
        {
            (*its, *its_delivery, *flows) = (version, delivery, grants(1, source + 1));
            flows.drain(..source as usize);
            flows.iter_mut().for_each(|grant| (grant.index, grant.of) = (0, 1));
        }
        control(CONTROLLER, *said)
    };
    let is = |said: &[(FetchId, Output<FromFetch>)], what: &dyn Fn(&ReceiverEvent) -> bool| {
        said.iter().any(|(_, output)| matches!(output, Output::Event(FromFetch(_, event)) if what(event)))
    };
    let sent = |said: Vec<(FetchId, Output<FromFetch>)>, to: FlowId| {
        let bodies = said.into_iter().filter_map(move |(_, output)| match output {
            Output::Transmit(packet) if packet.datagram.flow == to => Some(packet.datagram.body),
            _ => None,
        });
        bodies.collect::<Vec<_>>()
    };
    let begins = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Accepted { .. });
    let decodes = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Decode { block: BlockIndex(0) });
    let (mut host, mut now) = (host(), at(0));
    host.handle(now, fetch(1, SpreadRule::Listed));
    drain(&mut host, now);
    host.handle(now, by(1, Delivery::Push, 0));
    assert!(is(&drain(&mut host, now).0, &begins));
    for esi in 0..100 {
        now = at(10 * (1 + u64::from(esi)));
        host.handle(now, symbol(flow(1, 0), u64::from(esi), 0, esi));
        drain(&mut host, now);
    }

    host.handle(now, by(2, Delivery::Pull { initial_window: 8 }, 1));
    let (said, _) = drain(&mut host, now);
    assert!(!is(&said, &begins) && is(&said, &|event| *event == ReceiverEvent::Unbind { flow: flow(1, 0) }));
    let wants = sent(said, flow(1, 1)).into_iter().find_map(|body| match body {
        Body::Pull(pull) => pull.wants[0],
        _ => None,
    });
    let want = wants.expect("it opens its flow");
    assert_eq!((want.block, want.start, want.count.get()), (BlockIndex(0), 100, 8));
    for (number, esi) in (0..).zip(100..256) {
        now += Duration::from_micros(10);
        host.handle(now, symbol(flow(1, 1), number, 0, esi));
        assert_eq!(is(&drain(&mut host, now).0, &decodes), esi == 255);
    }
    for esi in 0..50 {
        now += Duration::from_micros(10);
        host.handle(now, symbol(flow(1, 1), 156 + u64::from(esi), 1, esi));
        drain(&mut host, now);
    }

    host.handle(now, by(3, Delivery::Push, 2));
    let (said, _) = drain(&mut host, now);
    assert!(!is(&said, &begins));
    let listed = sent(said, flow(1, 2)).into_iter().find_map(|body| match body {
        Body::Assign(assign) => Some(assign.assignment),
        _ => None,
    });
    let Some(Assignment::Listed(work)) = listed else { panic!("it is told what to send: {listed:?}") };
    let first = Work::Symbols { block: BlockIndex(1), first: Esi(50), count: 206, attempt: 0 };
    assert_eq!(work.first(), Some(&first), "{work:?}");
}
