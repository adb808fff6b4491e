//! Peers that say what no honest one would.

use core::num::NonZeroU16;

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::messages::{grant, symbol_header};
use headwater_transport::pull::queue::{PullConfig, PullQueue};
use headwater_transport::pull::{Ask, PullFlowConfig, Session, SessionConfig};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::{
    DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent,
};
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FetchId, FlowId, FlowKey, Geometry, NodeId, PathId, TaskId, Time,
};
use headwater_wire::{
    Body, Class, Datagram, Delivery, Ecn, FinReason, FlowGrant, FlowRole, Pull, Push, SymbolHeader, ToSource,
    Want,
};
use proptest::prelude::*;

use crate::net::{OBJECT, T, object};

const GROUP: FlowId = FlowId(99);
const KEY: FlowKey = FlowKey([0; 32]);
const BLOCKS: u64 = 40;

fn source(roles: &[(FlowId, FlowRole)]) -> Source {
    let config = SourceConfig { pull: PullFlowConfig::data_centre(), ..SourceConfig::default() };
    let mut source = Source::new(config, [1; 32]);
    let bytes = Bytes::kib(256) * BLOCKS;
    source.handle(Time::ZERO, Input::Command(SourceCommand::Hold { object: OBJECT, bytes }));
    for (flow, role) in roles {
        let delivery = Delivery::Pull { initial_window: 12 };
        let push = object(OBJECT, bytes).push(TaskId(1), *flow, KEY, NodeId([3; 32]), delivery);
        let push = Push { role: role.clone(), ..push };
        source.handle(Time::ZERO, Input::Packet(Packet::control(PathId(1000), ToSource::Push(push))));
        let path = SourceCommand::FlowPath { flow: *flow, path: PathId(7) };
        source.handle(Time::ZERO, Input::Command(path));
    }
    source
}

/// Polls until it waits; how many symbols it sent, all within bounds and of blocks that were prepared.
fn drain(source: &mut Source, now: Time) -> u64 {
    let mut symbols = 0;
    for _ in 0..100_000 {
        match source.poll(now) {
            Output::Transmit(packet) => {
                if let Body::Symbol(header) = packet.datagram.body {
                    assert!(header.symbol.esi.0 < headwater_units::ESI_LIMIT);
                    assert!(u64::from(header.symbol.block.0) < BLOCKS);
                    symbols += 1;
                }
            }
            Output::Event(SourceEvent::Prepare { flow, block, repair }) => {
                let ready = SourceCommand::BlockReady { flow, block, repair };
                source.handle(now, Input::Command(ready));
            }
            Output::Event(_) => {}
            Output::Wake(_) => return symbols,
        }
    }
    panic!("it never waits");
}

fn from(flow: FlowId, body: Body) -> Input<SourceCommand> {
    let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
    Input::Packet(Packet { path: PathId(7), ecn: Ecn::NotEct, datagram })
}

#[test]
fn an_absurd_number_of_symbols_is_cut_to_a_few_windows() {
    let mut source = source(&[(FlowId(1), FlowRole::Single)]);
    assert_eq!(drain(&mut source, Time::ZERO), 12);
    let want = |block, start, count| {
        Some(Want { block: BlockIndex(block), start, stride: 1, count: NonZeroU16::new(count).unwrap() })
    };
    let pull = Pull { wants: [want(0, 0, u16::MAX), want(3, 1 << 23, u16::MAX)], ..Pull::any(1 << 30) };
    source.handle(Time::ZERO, from(FlowId(1), Body::Pull(pull)));
    assert_eq!(drain(&mut source, Time::ZERO), 48);
}

#[test]
fn wants_of_blocks_that_do_not_exist_are_counted_and_ignored() {
    let mut source = source(&[(FlowId(1), FlowRole::Single)]);
    drain(&mut source, Time::ZERO);
    let want = Want { block: BlockIndex(BLOCKS as u32), start: 0, stride: 1, count: NonZeroU16::MIN };
    let pull = Pull { wants: [Some(want), None], ..Pull::any(5) };
    source.handle(Time::ZERO, from(FlowId(1), Body::Pull(pull)));
    assert_eq!(drain(&mut source, Time::ZERO), 0);
    assert_eq!(source.flow(FlowId(1)).unwrap().counters.bad_work, 1);
}

fn any_pull() -> impl Strategy<Value = Pull> {
    let block = prop_oneof![0u32..BLOCKS as u32 + 2, any::<u32>()];
    let start = prop_oneof![0u32..200, 0u32..1 << 24];
    let want = (block, start, any::<u8>(), 1u16..).prop_map(|(block, start, stride, count)| Want {
        block: BlockIndex(block),
        start,
        stride,
        count: NonZeroU16::new(count).unwrap(),
    });
    let sequence = prop_oneof![0u32..200, any::<u32>()];
    let wants = prop::array::uniform2(prop::option::of(want));
    (sequence, any::<bool>(), any::<bool>(), wants).prop_map(|(sequence, fin, detached, wants)| Pull {
        sequence,
        fin,
        detached,
        wants,
    })
}

proptest! {
    /// Whatever pulls say, of single flows, members and the group's own: no more than a few windows leave for each.
    #[test]
    fn no_pull_breaks_a_source_or_makes_it_pour(
        pulls in prop::collection::vec((0usize..4, any_pull(), 0u64..700), 1..80),
    ) {
        let members = vec![FlowId(2), FlowId(3)];
        let flows = [FlowId(1), FlowId(2), FlowId(3), GROUP];
        let mut source = source(&[
            (FlowId(1), FlowRole::Single),
            (FlowId(2), FlowRole::Member { group: GROUP }),
            (FlowId(3), FlowRole::Member { group: GROUP }),
            (GROUP, FlowRole::Group { members }),
        ]);
        prop_assert_eq!(drain(&mut source, Time::ZERO), 24, "the first windows");
        let mut now = Time::ZERO;
        for (of, pull, wait) in pulls {
            now += Duration::from_millis(wait);
            source.handle(now, from(flows[of], Body::Pull(pull)));
            prop_assert!(drain(&mut source, now) <= 96);
        }
    }
}

/// Anything that sources of a task may send to its receiver.
fn any_body() -> impl Strategy<Value = Body> {
    let number = prop_oneof![0u64..300, any::<u64>()];
    let block = prop_oneof![0u32..6, any::<u32>()];
    let esi = prop_oneof![0u32..100, 0u32..1 << 24];
    let symbol = (number, block, esi, any::<bool>()).prop_map(|(number, block, esi, trimmed)| {
        Body::Symbol(SymbolHeader { trimmed, ..symbol_header(number, block, esi) })
    });
    prop_oneof![
        20 => symbol,
        1 => Just(Body::Detached),
        1 => Just(Body::FinAck),
        1 => Just(Body::Fin(FinReason::Done)),
        1 => (1u64..).prop_map(|nonce| Body::Challenge { nonce }),
    ]
}

/// Polls a session and its pull queue until both wait; how many packets left.
fn settle(session: &mut Session, pulls: &mut PullQueue<Ask>, now: Time, fails: bool) -> u64 {
    let mut sent = 0;
    for _ in 0..100_000 {
        match session.poll(now, pulls) {
            Output::Transmit(_) => sent += 1,
            Output::Event(FromFetch(_, ReceiverEvent::Decode { block })) => {
                let failure = DecodeFailure::Corrupt;
                let command = match fails {
                    true => ReceiverCommand::DecodeFailed { block, failure },
                    false => ReceiverCommand::BlockDecoded { block },
                };
                session.on_command(now, command, pulls);
            }
            Output::Event(_) => {}
            Output::Wake(at) => {
                assert!(at.is_none_or(|at| at > now));
                let Some((_, ask)) = pulls.poll(now) else { return sent };
                sent += u64::from(session.pull(now, ask).is_some());
            }
        }
    }
    panic!("it never waits");
}

proptest! {
    /// Whatever sources, members of its group and decoders say: it neither breaks nor asks for more than its windows.
    #[test]
    fn no_source_breaks_a_session(
        said in prop::collection::vec((0usize..3, any_body(), 0u64..3000, any::<bool>()), 1..400),
        reordering in 1u16..300, open_blocks in 1u32..5,
    ) {
        let config = SessionConfig { reordering, open_blocks, ..SessionConfig::data_centre() };
        let geometry = Geometry::new(Bytes::kib(256) * 4, T).unwrap();
        let pull = PullConfig {
            rate: BitRate::new(1_000_000_000),
            packet: Bytes::new(1500),
            catch_up: Duration::ZERO,
        };
        let (mut session, mut pulls) = (Session::new(FetchId(0), config, geometry, 12, 0), PullQueue::new(pull));
        let flows = [FlowId(1), FlowId(2), GROUP];
        let grants = flows.map(|flow| {
            let group = (flow == FlowId(2)).then_some(GROUP);
            FlowGrant { group, ..grant(flow, NodeId([flow.0 as u8; 32]), KEY, 0, 1) }
        });
        session.set_flows(Time::ZERO, grants.to_vec(), &mut pulls);
        session.on_command(Time::ZERO, ReceiverCommand::Start { wanted: 0..4, have: vec![] }, &mut pulls);
        let mut now = Time::ZERO;
        for (of, body, wait, fails) in said {
            now += Duration::from_micros(wait);
            let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow: flows[of], body };
            session.on_packet(now, Packet { path: PathId(7), ecn: Ecn::NotEct, datagram }, &mut pulls);
            prop_assert!(settle(&mut session, &mut pulls, now, fails) <= 20);
            prop_assert!(pulls.len() <= 2 * 12 + 2);
            let stats = session.stats();
            prop_assert!(stats.flows.iter().all(|flow| flow.coming <= 12), "{stats:?}");
        }
    }
}
