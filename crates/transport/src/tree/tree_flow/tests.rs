//! One tree at its source: what leaves, when, and what it says of the blocks that follow.

use headwater_machine::{Endpoint, Input};
use headwater_units::{Duration, Esi, FlowKey, NodeId, ObjectId, TaskId, Theta};
use headwater_wire::{Delivery, ToSource};

use super::*;
use crate::source::{Source, SourceConfig};
use crate::tree::RateConfig;
use crate::{SourceCommand, SourceEvent};

const TREE: FlowId = FlowId(1);
const OTHER: FlowId = FlowId(2);
const OBJECT: ObjectId = ObjectId([1; 32]);

fn at(us: u64) -> Time {
    Time::ZERO + Duration::from_micros(us)
}

fn tell(source: &mut Source, now: Time, command: SourceCommand) {
    source.handle(now, Input::Command(command));
}

/// A source of these trees, 1500 B each 12 us, with a disk that takes no time.
fn source(trees: &[FlowId], bytes: u64) -> Source {
    source_with(trees, bytes, Duration::ZERO)
}

fn source_with(trees: &[FlowId], bytes: u64, catch_up: Duration) -> Source {
    let rate =
        RateConfig { initial: BitRate::new(1_000_000_000), step: BitRate::ZERO, ..RateConfig::default() };
    let trees_config =
        TreeSourceConfig { rate, packet: Some(Bytes::new(1500)), catch_up, ..TreeSourceConfig::default() };
    let config = SourceConfig { trees: trees_config, ..SourceConfig::default() };
    let mut source = Source::new(config, [0; 32]);
    let bytes = Bytes::new(bytes);
    tell(&mut source, at(0), SourceCommand::Hold { object: OBJECT, bytes });
    for (flow, index) in trees.iter().zip(0..) {
        order(&mut source, at(0), Push { index, of: trees.len() as u8, ..push(*flow, bytes) });
        tell(&mut source, at(0), SourceCommand::FlowPath { flow: *flow, path: PathId(flow.0 as u32) });
    }
    leaves(&mut source, at(0));
    source
}

fn push(flow: FlowId, bytes: Bytes) -> Push {
    Push {
        task: TaskId(1),
        flow,
        object: OBJECT,
        bytes,
        symbol_size: 1024,
        key: FlowKey([0; 32]),
        theta: Theta::ONE,
        class: Class::Bulk,
        receiver: NodeId([0; 32]),
        delivery: Delivery::Trees { credit: 16 },
        index: 0,
        of: 1,
        at: Vec::new(),
        start: None,
        role: FlowRole::Tree { group: TREE, most: None },
    }
}

fn order(source: &mut Source, now: Time, push: Push) {
    source.handle(now, Input::Packet(Packet::control(PathId(9), ToSource::Push(push))));
}

fn name(block: u32, esi: u32) -> SymbolId {
    SymbolId { block: BlockIndex(block), esi: Esi(esi) }
}

fn asks(source: &mut Source, now: Time, flow: FlowId, name: SymbolId) {
    let interest = Packet::of_flow(PathId(5), flow, Class::Control, Body::Interest(name.into()));
    source.handle(now, Input::Packet(interest));
}

/// Datagrams that leave down the trees now, and requests to the disk.
fn happens(source: &mut Source, now: Time, reads: bool) -> (Vec<(PathId, Body)>, Vec<SourceEvent>) {
    let (mut bodies, mut events) = (Vec::new(), Vec::new());
    loop {
        match source.poll(now) {
            Output::Transmit(Packet { path, datagram, .. }) => match datagram.body {
                Body::Control(_) => {}
                body => bodies.push((path, body)),
            },
            Output::Event(event) => {
                if let SourceEvent::Prepare { flow, block, .. } = event
                    && reads
                {
                    tell(source, now, SourceCommand::BlockReady { flow, block, repair: false });
                }
                events.push(event);
            }
            Output::Wake(_) => return (bodies, events),
        }
    }
}

/// Names and numbers of the symbols that leave now.
fn leaves(source: &mut Source, now: Time) -> Vec<(SymbolId, u64)> {
    let symbol = |(_, body)| match body {
        Body::Symbol(header) => Some((header.symbol, header.number.0)),
        _ => None,
    };
    happens(source, now, true).0.into_iter().filter_map(symbol).collect()
}

fn stats(source: &Source) -> TreeStats {
    source.flow(TREE).unwrap().tree.unwrap()
}

#[test]
fn new_symbols_leave_at_the_rate_in_the_order_they_were_asked_for() {
    let mut source = source(&[TREE], 1 << 20);
    for esi in [0, 2, 1] {
        asks(&mut source, at(0), TREE, name(0, esi));
    }
    assert_eq!(leaves(&mut source, at(0)), [(name(0, 0), 0)]);
    assert!(matches!(source.poll(at(0)), Output::Wake(Some(due)) if due == at(12)));
    assert_eq!(leaves(&mut source, at(12)), [(name(0, 2), 2)]);
    assert_eq!(leaves(&mut source, at(23)), []);
    assert_eq!(leaves(&mut source, at(24)), [(name(0, 1), 1)]);
}

#[test]
fn what_was_sent_and_is_asked_for_again_leaves_at_once_and_halves_the_rate() {
    let mut source = source(&[TREE], 1 << 20);
    for esi in [0, 1, 1, 2] {
        asks(&mut source, at(0), TREE, name(0, esi));
    }
    assert_eq!(leaves(&mut source, at(0)), [(name(0, 0), 0)]);
    asks(&mut source, at(1), TREE, name(0, 0));
    assert_eq!(leaves(&mut source, at(1)), [(name(0, 0), 0)], "under its first number");
    assert_eq!(leaves(&mut source, at(12)), [(name(0, 1), 1)]);
    assert_eq!(leaves(&mut source, at(35)), [], "half the rate");
    assert_eq!(leaves(&mut source, at(36)), [(name(0, 2), 2)]);
    let TreeStats { new, repeated, duplicates, early, strays } = stats(&source);
    assert_eq!((new, repeated, duplicates, early, strays), (3, 1, 1, 1, 0), "1 had not been sent");
}

#[test]
fn no_more_leaves_than_the_order_says_that_the_trees_links_carry_and_it_may_say_so_anew() {
    let mut source = source(&[TREE], 1 << 20);
    let carries = |mbps: u64| Push {
        role: FlowRole::Tree { group: TREE, most: Some(BitRate::new(mbps * 1_000_000)) },
        ..push(TREE, Bytes::new(1 << 20))
    };
    (0..8).for_each(|esi| asks(&mut source, at(0), TREE, name(0, esi)));
    assert_eq!(leaves(&mut source, at(0)).len(), 1);
    order(&mut source, at(0), carries(500));
    assert_eq!((leaves(&mut source, at(12)).len(), leaves(&mut source, at(35)).len()), (1, 0));
    assert_eq!(leaves(&mut source, at(36)).len(), 1, "24 us each");
    order(&mut source, at(40), carries(250));
    assert_eq!((leaves(&mut source, at(60)).len(), leaves(&mut source, at(107)).len()), (1, 0));
    assert_eq!(leaves(&mut source, at(108)).len(), 1);
    assert_eq!(source.stats().refused, 0);
}

#[test]
fn each_tree_gets_the_next_block_when_somebody_asks_and_says_the_same_to_all() {
    let mut source = source(&[TREE, OTHER], 4 << 18);
    let next = |source: &mut Source, tree, block| {
        asks(source, at(0), tree, name(block, NEXT.0));
        let said = happens(source, at(0), true).0;
        let [(path, Body::Announcement(it))] = said[..] else { panic!("{said:?}") };
        assert_eq!((path, it.block), (PathId(tree.0 as u32), BlockIndex(block)));
        it.next.map(|block| block.0)
    };
    assert_eq!(next(&mut source, OTHER, 1), Some(2));
    assert_eq!(next(&mut source, TREE, 0), Some(3));
    assert_eq!(next(&mut source, OTHER, 1), Some(2));
    assert_eq!((next(&mut source, OTHER, 2), next(&mut source, TREE, 3)), (None, None));
    asks(&mut source, at(0), OTHER, name(2, 0));
    assert_eq!(leaves(&mut source, at(0)), [(name(2, 0), 256)], "numbers go on from block to block");
}

#[test]
fn nonsense_is_counted_and_answered_by_nothing() {
    let mut source = source(&[TREE], 1 << 20);
    for strange in [name(0, 70_000), name(77, 0), name(77, NEXT.0)] {
        asks(&mut source, at(0), TREE, strange);
    }
    asks(&mut source, at(0), OTHER, name(0, 0));
    assert_eq!(happens(&mut source, at(0), true), (vec![], vec![]));
    assert_eq!((stats(&source).strays, source.stats().unknown_flow), (3, 1));
}

#[test]
fn a_block_that_was_let_go_is_read_again_for_whoever_is_late() {
    let mut source = source(&[TREE], 64 << 18);
    asks(&mut source, at(0), TREE, name(0, 0));
    leaves(&mut source, at(0));
    for block in 0..40 {
        asks(&mut source, at(0), TREE, name(block, NEXT.0));
    }
    let (_, events) = happens(&mut source, at(0), true);
    let gone = |block| SourceEvent::Release { flow: TREE, block: BlockIndex(block) };
    assert!(events.contains(&gone(0)));
    asks(&mut source, at(100), TREE, name(0, 0));
    let (bodies, events) = happens(&mut source, at(100), false);
    let read = SourceEvent::Prepare { flow: TREE, block: BlockIndex(0), repair: false };
    assert_eq!((bodies, events), (vec![], vec![gone(33), read]));
    let ready = SourceCommand::BlockReady { flow: TREE, block: BlockIndex(0), repair: false };
    tell(&mut source, at(100), ready);
    assert_eq!(leaves(&mut source, at(100)), [(name(0, 0), 0)]);
}

/// Goal: a driver that is woken late sends what was due meanwhile, as far as it may, and then goes on at the rate.
#[test]
fn a_driver_that_comes_late_makes_up_for_it_up_to_a_bound() {
    // Of 1500 B at 1 Gbit/s: 12 us each. 128 KB last 1024 us.
    for (catch_up, late, due) in [(0, 600, 1), (300, 600, 26), (10_000, 600, 50), (10_000, 5_000, 86)] {
        let mut source = source_with(&[TREE], 262_144, Duration::from_micros(catch_up));
        (0..200).for_each(|esi| asks(&mut source, at(0), TREE, name(0, esi)));
        assert_eq!(leaves(&mut source, at(0)).len(), 1);
        assert_eq!(leaves(&mut source, at(late)).len(), due, "{catch_up} {late}");
        assert_eq!(leaves(&mut source, at(late + 13)).len(), 1, "{catch_up} {late}");
    }
}
