//! Whole deliveries that are pulled: the same controller, the same host's source and receivers, and another transport.

mod support;

use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_transport::source::SourceConfig;
use headwater_units::{BitRate, Bytes, Duration};
use headwater_wire::Delivery;
use proptest::prelude::*;
use support::{Act, FIRST_SOURCE, Path, World};

const LIMIT: Duration = Duration::from_secs(120);

fn pulled(config: &mut ReceiverConfig) {
    config.delivery = Some(Delivery::Pull { initial_window: 64 });
}

fn world(bytes: Bytes, paths: Vec<Path>, seed: u64) -> World {
    World::with(bytes, paths, seed, SourceConfig::default(), pulled)
}

fn paths(rates: &[u64]) -> Vec<Path> {
    let path = |&rate: &u64| Path { rate: BitRate::new(rate * 1_000_000), ..Path::default() };
    rates.iter().map(path).collect()
}

/// Time over what the payload takes over these links at best.
fn ratio(world: &World, bytes: Bytes, rates: &[u64]) -> f64 {
    world.seconds() / (bytes.get() as f64 * 8.0 / (rates.iter().sum::<u64>() as f64 * 1e6))
}

fn print(what: &str, ratio: f64, stats: &ReceiverStats) {
    let ReceiverStats { repair_used, source_symbols, useless, arrivals, .. } = stats;
    println!(
        "{what}: ratio {ratio:.3}, repair {repair_used} of {source_symbols}, useless {useless} of {arrivals}"
    );
}

#[test]
fn three_sources_are_pulled_as_fast_as_their_links_bring() {
    let (bytes, rates) = (Bytes::mib(32), [100, 100, 300]);
    let mut world = world(bytes, paths(&rates), 1);
    let stats = world.run(LIMIT);
    let ratio = ratio(&world, bytes, &rates);
    print("three", ratio, &stats);
    assert!(ratio < 1.15, "{ratio}");
    assert!(stats.useless * 100 <= stats.arrivals, "{} of {}", stats.useless, stats.arrivals);
}

#[test]
fn nothing_is_lost_of_it_where_packets_are() {
    let (bytes, rates) = (Bytes::mib(16), [100, 100]);
    let lossy = paths(&rates).into_iter().map(|path| Path { loss: 0.01, ..path }).collect();
    let mut world = world(bytes, lossy, 2);
    let stats = world.run(LIMIT);
    let ratio = ratio(&world, bytes, &rates);
    print("1 % loss", ratio, &stats);
    assert!(ratio < 1.5, "{ratio}");
}

#[test]
fn a_source_that_vanishes_costs_its_share() {
    let (bytes, rates) = (Bytes::mib(32), [100, 100, 100]);
    let mut world = world(bytes, paths(&rates), 3);
    world.act(Duration::from_millis(300), Act::Kill(FIRST_SOURCE + 2));
    let stats = world.run(LIMIT);
    let sent = 0.3 * 300e6 / 8.0;
    let ideal = 0.3 + (bytes.get() as f64 - sent) * 8.0 / 200e6;
    print("killed", world.seconds() / ideal, &stats);
    assert!(world.seconds() / ideal < 1.4, "{}", world.seconds() / ideal);
}

#[test]
fn a_controller_that_restarts_finds_the_task_as_it_is() {
    let (bytes, rates) = (Bytes::mib(16), [100, 100]);
    let mut world = world(bytes, paths(&rates), 4);
    world.act(Duration::from_millis(200), Act::RestartController);
    let stats = world.run(LIMIT);
    let ratio = ratio(&world, bytes, &rates);
    print("controller restarted", ratio, &stats);
    assert!(ratio < 1.5, "{ratio}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Whatever is lost, and wherever the object ends, all of it comes.
    #[test]
    fn everything_arrives(
        seed in 0u64..1000,
        kib in 1u64..3000,
        sources in 1usize..4,
        loss in 0.0f64..0.1,
    ) {
        let lossy = paths(&[50, 20, 80][..sources]).into_iter().map(|path| Path { loss, ..path }).collect();
        let mut world = world(Bytes::kib(kib), lossy, seed);
        world.run(LIMIT);
        prop_assert!(world.seconds() > 0.0);
    }
}
