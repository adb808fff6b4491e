//! Blocks whose hash is wrong, and those who sent them.

use headwater_testkit::Simulation;
use headwater_transport::{DecodeFailure, ReceiverFailure};

use crate::net::*;

#[test]
fn a_liar_among_three_is_found_and_the_object_comes_right() {
    let mut net = Setup { sources: 3, window: 6, ..Setup::blocks(12) }.net();
    let liar = flow(1, 0);
    net.verdict = Box::new(move |_, _, senders| match senders.contains(&liar) {
        true => Err(DecodeFailure::Corrupt),
        false => Ok(()),
    });
    net.finish();
    assert_eq!(net.receivers[0].got.distrusted, [node(1)]);
    let stats = net.receivers[0].session.stats();
    assert!(stats.corrupt >= 1 && net.receivers[0].got.discarded >= 1, "{stats:?}");
    assert!(net.sources[1].closed_at.iter().any(|(_, it)| *it == liar), "it is told that it is over");
}

#[test]
fn a_single_bad_block_is_pulled_from_one_source_alone_and_nobody_is_distrusted() {
    let mut net = Setup { sources: 3, window: 6, ..Setup::blocks(6) }.net();
    let alone = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = alone.clone();
    net.verdict = Box::new(move |block, try_, senders| match (block, try_) {
        (2, 1) => Err(DecodeFailure::Corrupt),
        (2, _) => {
            seen.set(senders.len());
            Ok(())
        }
        _ => Ok(()),
    });
    net.finish();
    assert_eq!(alone.get(), 1, "of one source alone");
    assert!(net.receivers[0].got.distrusted.is_empty());
    assert_eq!(net.receivers[0].session.stats().corrupt, 1);
}

#[test]
fn the_only_source_that_lies_ends_the_task() {
    let mut net = Setup::blocks(2).net();
    net.verdict = Box::new(|_, _, _| Err(DecodeFailure::Corrupt));
    net.run(headwater_units::Duration::from_secs(120));
    assert_eq!(net.receivers[0].got.distrusted, [node(0)]);
    let failed = net.receivers[0].got.finished.clone().map(|(_, how)| how);
    assert_eq!(failed, Some(Err(ReceiverFailure::NoSource { missing: 2 })));
    assert!(net.receivers[0].session.has_ended());
}

#[test]
fn a_source_that_dies_while_it_is_asked_alone_is_replaced() {
    let mut net = Setup { sources: 3, window: 6, ..Setup::blocks(6) }.net();
    net.verdict = Box::new(|block, try_, _| match (block, try_) {
        (3, 1) => Err(DecodeFailure::Corrupt),
        _ => Ok(()),
    });
    for dies in 0..3 {
        // One source after the other is silent for a while.
        net.call(ms(3) + ms(4) * dies as u64, move |net| net.sources[dies].dead = true);
        net.call(ms(6) + ms(4) * dies as u64, move |net| {
            net.sources[dies].dead = false;
            net.drain(dies);
        });
    }
    net.finish_receivers();
}
