//! A receiver alone, told by hand what arrives.

use headwater_transport::ppush::receiver::{Receiver, ReceiverConfig};
use headwater_transport::*;
use headwater_units::*;
use headwater_wire::*;

const CONTROLLER: PathId = PathId(100);
const SOURCE: PathId = PathId(2);
const FLOW: FlowId = FlowId(5);

fn after(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn packet(path: PathId, flow: FlowId, body: Body) -> Input {
    let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow, body };
    Input::Packet(Packet { path, ecn: Ecn::Ect0, datagram })
}

/// Everything that it has to say now, and when it wants to be woken.
fn drain(receiver: &mut Receiver, now: Time) -> (Vec<Output>, Option<Time>) {
    let mut said = Vec::new();
    loop {
        match receiver.poll(now) {
            Output::Wake(at) => return (said, at),
            output => said.push(output),
        }
        assert!(said.len() < 1000, "it never waits");
    }
}

fn command(receiver: &mut Receiver, now: Time, command: ReceiverCommand) {
    receiver.handle(now, Input::Command(Command::Receiver(command)));
}

/// A receiver of one block of four symbols, all of which have come: it waits for the decoder.
fn waiting_for_its_decoder() -> Receiver {
    let mut receiver = Receiver::new(ReceiverConfig::new("object", NodeId([1; 32]), CONTROLLER, 77));
    drain(&mut receiver, after(0));
    let grant =
        FlowGrant { flow: FLOW, node: NodeId([2; 32]), at: vec![], key: FlowKey([3; 32]), index: 0, of: 1 };
    let accepted = Control::Accepted {
        request: 77,
        task: TaskId(1),
        object: ObjectId([9; 32]),
        bytes: Bytes::new(4000),
        symbol_size: 1000,
        feedback_every: Duration::from_millis(100),
        flows: vec![grant],
    };
    receiver.handle(after(0), packet(CONTROLLER, FlowId(0), Body::Control(Box::new(accepted))));
    command(&mut receiver, after(0), ReceiverCommand::Start { wanted: 0..1, have: vec![] });
    command(&mut receiver, after(0), ReceiverCommand::FlowPath { flow: FLOW, path: SOURCE });
    drain(&mut receiver, after(0));
    for n in 0..4 {
        let header = SymbolHeader {
            number: PacketNumber(n),
            symbol: SymbolId { block: BlockIndex(0), esi: Esi(n as u32) },
            ack_interval: 1,
            ack_now: false,
            assignment: 1,
            starved: false,
            trimmed: false,
        };
        receiver.handle(after(0), packet(SOURCE, FLOW, Body::Symbol(header)));
    }
    let decode = Output::Event(Event::Receiver(ReceiverEvent::Decode { block: BlockIndex(0) }));
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
    let failed = |o: &Output| matches!(o, Output::Event(Event::Receiver(ReceiverEvent::Failed(_))));
    assert!(!said.iter().any(failed), "the sources had no time to answer: {said:?}");
}
