//! A controller that was started anew knows nothing of the trees of a cast: its receivers go on by themselves, with what they have.

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::messages::symbol_header;
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::{FromFetch, ReceiverCommand, ReceiverEvent, ToFetch};
use headwater_units::{BitRate, BlockIndex, Bytes, Duration, FetchId, FlowId, NodeId, PathId, TaskId, Time};
use headwater_wire::{Body, Class, Control, Datagram, Delivery, Ecn, Request, ToController, ToReceiver};

use crate::net::{OBJECT, TREE, accepted};

const CONTROLLER: PathId = PathId(9);
const FETCH: FetchId = FetchId(1);
/// Four blocks of 256 symbols.
const BYTES: Bytes = Bytes::mib(1);
const OWN: FlowId = FlowId(2);

struct Bench {
    machine: Receivers,
    now: Time,
}

impl Bench {
    /// All that it says and wants until it waits.
    fn drain(&mut self) -> (Vec<Packet>, Vec<ReceiverEvent>) {
        let (mut packets, mut events) = (Vec::new(), Vec::new());
        loop {
            match self.machine.poll(self.now) {
                Output::Transmit(packet) => packets.push(packet),
                Output::Event(FromFetch(_, event)) => events.push(event),
                Output::Wake(_) => return (packets, events),
            }
        }
    }

    fn tell(&mut self, command: ReceiverCommand) {
        self.machine.handle(self.now, Input::Command(ToFetch(FETCH, command)));
    }

    fn hears(&mut self, control: Control) {
        self.machine.handle(self.now, Input::Packet(Packet::control(CONTROLLER, control)));
    }

    fn arrives(&mut self, flow: FlowId, block: u32, esi: u32) {
        let header = symbol_header(u64::from(block * 256 + esi), block, esi);
        let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow, body: Body::Symbol(header) };
        self.machine.handle(self.now, Input::Packet(Packet { path: PathId(3), ecn: Ecn::NotEct, datagram }));
    }
}

fn requested(packets: &[Packet]) -> Option<Request> {
    packets.iter().find_map(|packet| match &packet.datagram.body {
        Body::Control(control) => match &**control {
            Control::Controller(ToController::Request(request)) => Some(request.clone()),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn a_receiver_whose_trees_are_forgotten_pulls_what_it_lacks() {
    let pull = PullConfig {
        rate: BitRate::new(1_000_000_000),
        packet: Bytes::new(1500),
        catch_up: Duration::from_millis(1),
    };
    let mut bench = Bench { machine: Receivers::new(HostReceiverConfig { pull }), now: Time::ZERO };
    let config =
        ReceiverConfig { delivery: None, ..ReceiverConfig::new("object", NodeId([4; 32]), CONTROLLER, 5) };
    bench.tell(ReceiverCommand::Fetch(Box::new(config)));
    assert_eq!(requested(&bench.drain().0).expect("it asks").delivery, None);
    bench.hears(accepted(5, BYTES, TREE, Delivery::Trees { credit: 16 }));
    let (_, events) = bench.drain();
    assert!(
        matches!(events[..], [ReceiverEvent::Bind(_), ..] | [_, ReceiverEvent::Bind(_), ..]),
        "{events:?}"
    );
    bench.tell(ReceiverCommand::Start { wanted: 0..u32::MAX, have: Vec::new() });
    bench.tell(ReceiverCommand::FlowPath { flow: TREE, path: PathId(3) });
    let (packets, _) = bench.drain();
    assert!(packets.iter().any(|it| matches!(it.datagram.body, Body::Interest(_))), "{packets:?}");
    (0..256).for_each(|esi| bench.arrives(TREE, 0, esi));
    bench.drain();
    bench.tell(ReceiverCommand::BlockDecoded { block: BlockIndex(0) });
    (0..10).for_each(|esi| bench.arrives(TREE, 1, esi));
    bench.drain();

    bench.now = Time::ZERO + Duration::from_secs(1);
    bench.hears(Control::Receiver(ToReceiver::UnknownTask { task: TaskId(5) }));
    let (packets, _) = bench.drain();
    let request = requested(&packets).expect("it asks anew");
    assert_eq!((&request.name, request.request), (&OBJECT.to_string(), 6));
    assert!(matches!(request.delivery, Some(Delivery::Pull { .. })), "{request:?}");
    bench.hears(accepted(6, BYTES, OWN, Delivery::Pull { initial_window: 8 }));
    let (_, events) = bench.drain();
    let unbound = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Unbind { flow } if *flow == TREE);
    let bound = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Bind(bind) if bind.flow == OWN);
    assert!([&unbound as &dyn Fn(&_) -> bool, &bound].iter().all(|is| events.iter().any(is)), "{events:?}");
    let begins = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Accepted { .. });
    assert!(!events.iter().any(begins), "what is here stays, partial blocks too: {events:?}");
    bench.tell(ReceiverCommand::FlowPath { flow: OWN, path: PathId(4) });
    let (packets, _) = bench.drain();
    let pull = packets.iter().find_map(|it| match &it.datagram.body {
        Body::Pull(pull) if it.path == PathId(4) => Some(pull),
        _ => None,
    });
    let want = pull.and_then(|pull| pull.wants[0]).expect("it pulls");
    assert_eq!(
        (want.block, want.start, want.stride),
        (BlockIndex(1), 10, 1),
        "the rest of what has come in part"
    );
    for (block, esi) in (1..4).flat_map(|block| (0..256).map(move |esi| (block, esi))).skip(10) {
        bench.arrives(OWN, block, esi);
    }
    let (_, events) = bench.drain();
    assert_eq!(
        events.iter().filter(|it| matches!(it, ReceiverEvent::Decode { .. })).count(),
        3,
        "{events:?}"
    );
    (1..4).for_each(|block| bench.tell(ReceiverCommand::BlockDecoded { block: BlockIndex(block) }));
    assert!(bench.drain().1.iter().any(|event| matches!(event, ReceiverEvent::Done)));
}
