//! Whole deliveries over a small simulated network: everything arrives, in about the time it must take.

mod support;

use headwater_transport::ReceiverFailure;
use headwater_transport::push::receiver::ReceiverStats;
use headwater_transport::source::SourceConfig;
use headwater_units::{BitRate, Bytes, Duration};
use headwater_wire::SpreadRule;
use proptest::prelude::*;
use support::{Act, CONTROLLER, FIRST_SOURCE, Path, World, node};

fn mbit(n: u64) -> BitRate {
    BitRate::new(n * 1_000_000)
}

fn paths(rates: &[u64]) -> Vec<Path> {
    rates.iter().map(|&r| Path { rate: mbit(r), ..Path::default() }).collect()
}

/// Seconds that the payload takes over these links at best.
fn ideal(bytes: Bytes, rates: &[u64]) -> f64 {
    bytes.get() as f64 * 8.0 / (rates.iter().sum::<u64>() as f64 * 1e6)
}

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn three_uneven_sources_together_take_little_more_than_their_links_need() {
    let (bytes, rates) = (Bytes::mib(64), [100, 100, 300]);
    let mut world = World::new(bytes, paths(&rates), 1);
    let stats = world.run(LIMIT);
    let ratio = world.seconds() / ideal(bytes, &rates);
    let (repair, useless) = (stats.repair_used as f64, stats.useless as f64);
    println!(
        "ratio {ratio:.3} repair {:.4} duplicates {:.4} dropped {}",
        repair / stats.source_symbols as f64,
        useless / stats.arrivals as f64,
        world.dropped()
    );
    assert!(ratio < 1.10, "{ratio}");
    assert!(useless / stats.arrivals as f64 <= 0.01);
    assert!(repair / stats.source_symbols as f64 <= 0.05);
}

#[test]
fn one_per_cent_loss_costs_little() {
    let (bytes, rates) = (Bytes::mib(64), [100, 100, 300]);
    let lossy = paths(&rates).into_iter().map(|p| Path { loss: 0.01, ..p }).collect();
    let mut world = World::new(bytes, lossy, 2);
    let stats = world.run(LIMIT);
    let ratio = world.seconds() / ideal(bytes, &rates);
    println!("ratio {ratio:.3} repair {} useless {} of {}", stats.repair_used, stats.useless, stats.arrivals);
    assert!(ratio < 1.12, "{ratio}");
}

#[test]
fn the_work_of_a_source_that_vanishes_is_done_by_the_others() {
    let (bytes, rates) = (Bytes::mib(64), [100, 100, 300]);
    let mut world = World::new(bytes, paths(&rates), 3);
    world.act(Duration::from_millis(500), Act::Kill(FIRST_SOURCE + 2));
    let stats = world.run(LIMIT);
    let sent = 0.5 * 500e6 / 8.0;
    let ideal = 0.5 + (bytes.get() as f64 - sent) * 8.0 / 200e6;
    let ratio = world.seconds() / ideal;
    println!("ratio {ratio:.3} useless {} of {}", stats.useless, stats.arrivals);
    assert!(ratio < 1.15, "{ratio}");
}

#[test]
fn a_source_that_was_frozen_is_used_again_at_once() {
    let (bytes, rates) = (Bytes::mib(48), [100, 100, 300]);
    let mut world = World::new(bytes, paths(&rates), 13);
    world.act(Duration::from_millis(250), Act::Freeze(FIRST_SOURCE + 2));
    world.act(Duration::from_millis(1250), Act::Thaw(FIRST_SOURCE + 2));
    world.run(LIMIT);
    let before = 0.25 * 500e6 / 8.0 + 200e6 / 8.0;
    let ideal = 1.25 + (bytes.get() as f64 - before) * 8.0 / 500e6;
    let ratio = world.seconds() / ideal;
    println!("ratio {ratio:.3}");
    assert!(ratio < 1.10, "{ratio}");
}

#[test]
fn a_source_that_joins_is_used_at_once() {
    let (bytes, rates) = (Bytes::mib(64), [50, 50, 100]);
    let mut world = World::new(bytes, paths(&rates), 4);
    world.joins(2, Duration::from_millis(500));
    world.run(LIMIT);
    let after = world.first_use[&2].as_secs_f64() - 0.5;
    println!("used after {after:.3} s");
    assert!(after < 0.5);
    world.seconds();
}

#[test]
fn a_controller_may_restart_in_the_middle() {
    let mut world = World::new(Bytes::mib(32), paths(&[100, 100]), 5);
    world.act(Duration::from_millis(300), Act::Kill(CONTROLLER));
    world.act(Duration::from_millis(800), Act::Revive(CONTROLLER));
    world.act(Duration::from_millis(800), Act::RestartController);
    world.run(LIMIT);
    let ratio = world.seconds() / ideal(Bytes::mib(32), &[100, 100]);
    println!("ratio {ratio:.3}");
    assert!(ratio < 1.10, "sources do not wait for the controller: {ratio}");
}

#[test]
fn a_lying_source_is_found_out_and_its_blocks_come_from_the_others() {
    let mut paths = paths(&[100, 100, 100]);
    paths[1].lies = true;
    let mut world = World::new(Bytes::mib(16), paths, 6);
    let stats = world.run(LIMIT);
    world.seconds();
    assert_eq!(world.reception.distrusted, [node(FIRST_SOURCE + 1)]);
    assert!(stats.corrupt > 0);
}

#[test]
fn if_every_source_lies_nothing_is_delivered() {
    let lying = paths(&[100, 100]).into_iter().map(|p| Path { lies: true, ..p }).collect();
    let mut world = World::new(Bytes::mib(4), lying, 7);
    world.run(LIMIT);
    let (_, outcome) = world.reception.finished.clone().expect("it ends");
    assert!(outcome.is_err(), "{outcome:?}");
}

#[test]
fn if_every_source_dies_the_receiver_says_what_is_missing() {
    let mut world = World::new(Bytes::mib(64), paths(&[100, 100]), 8);
    world.act(Duration::from_millis(200), Act::Kill(FIRST_SOURCE));
    world.act(Duration::from_millis(200), Act::Kill(FIRST_SOURCE + 1));
    world.run(LIMIT);
    let (_, outcome) = world.reception.finished.clone().expect("it ends");
    assert!(matches!(outcome, Err(ReceiverFailure::NoSource { missing }) if missing > 100), "{outcome:?}");
}

#[test]
fn the_papers_residue_classes_deliver_too() {
    let stats = by_rule(SpreadRule::Residue, &[100, 100, 100], 0.0, 1.35);
    assert!(stats.flows.iter().all(|f| f.useful > 0));
}

#[test]
fn an_equal_split_is_as_slow_as_its_slowest_source_and_needs_no_repair() {
    // A third of the object from each, and the slowest has a fifth of the mean rate.
    let stats = by_rule(SpreadRule::Equal, &[100, 180, 20], 0.0, 5.5);
    let useful: Vec<u64> = stats.flows.iter().map(|f| f.useful).collect();
    let (least, most) = (useful.iter().min().unwrap(), useful.iter().max().unwrap());
    assert!(most - least <= 64, "one symbol of each of 64 blocks apart: {useful:?}");
    assert_eq!(stats.repair_used, 0);
}

#[test]
fn an_equal_split_survives_loss() {
    let stats = by_rule(SpreadRule::Equal, &[100, 100, 100], 0.05, 2.5);
    assert_eq!(stats.repair_used, 0);
}

/// 16 MiB with the paper's settings; at most `limit` times the ideal for the sum of the rates.
fn by_rule(rule: SpreadRule, rates: &[u64], loss: f64, limit: f64) -> ReceiverStats {
    let lossy = paths(rates).into_iter().map(|p| Path { loss, ..p }).collect();
    let mut world = World::with(Bytes::mib(16), lossy, 9, SourceConfig::paper(), |config| {
        config.spread = rule;
    });
    let stats = world.run(LIMIT);
    let ratio = world.seconds() / ideal(Bytes::mib(16), rates);
    println!("{rule:?}: ratio {ratio:.3} useless {} of {}", stats.useless, stats.arrivals);
    assert!(ratio < limit, "{ratio}");
    stats
}

#[test]
fn an_empty_and_a_tiny_object_are_delivered() {
    for bytes in [0, 1, 1424, 1425, 262_144, 262_145] {
        let mut world = World::new(Bytes::new(bytes), paths(&[100, 100, 100]), 10);
        world.run(LIMIT);
        world.seconds();
    }
}

#[test]
fn the_same_seed_gives_the_same_outputs() {
    let run = |seed| {
        let lossy = paths(&[50, 100]).into_iter().map(|p| Path { loss: 0.02, reorder: 0.02, ..p }).collect();
        let mut world = World::new(Bytes::mib(8), lossy, seed);
        world.network.digest = Some(0);
        world.run(LIMIT);
        world.network.digest
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11), run(12));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everything_arrives_through_loss_reordering_duplication_and_crashes(
        seed in any::<u64>(),
        kib in 1u64..6000,
        rates in prop::collection::vec(5u64..200, 1..4),
        loss in 0.0f64..0.2,
        ack_loss in 0.0f64..0.2,
        duplicate in 0.0f64..0.1,
        reorder in 0.0f64..0.1,
        delay_us in 10u64..20_000,
        mark in prop::option::of(5usize..60),
        crash_ms in 0u64..400,
    ) {
        let survivors = rates.len() > 1;
        let all = rates
            .iter()
            .map(|&r| Path {
                rate: mbit(r),
                delay: Duration::from_micros(delay_us),
                queue: 100,
                mark_from: mark,
                loss,
                ack_loss,
                duplicate,
                reorder,
                ..Path::default()
            })
            .collect();
        let mut world = World::new(Bytes::kib(kib), all, seed);
        if survivors {
            world.act(Duration::from_millis(crash_ms), Act::Kill(FIRST_SOURCE));
        }
        world.act(Duration::from_millis(crash_ms / 2), Act::RestartController);
        world.run(LIMIT);
        let (_, outcome) = world.reception.finished.clone().expect("it ends");
        prop_assert_eq!(outcome, Ok(()));
    }
}
