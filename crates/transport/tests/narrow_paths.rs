//! Deliveries over paths that carry shorter datagrams than their ends believe: they arrive, with smaller symbols, and soon.

mod support;

use headwater_transport::ReceiverFailure;
use headwater_transport::flow::path_mtu::PathMtuConfig;
use headwater_transport::push::PushFlowConfig;
use headwater_transport::push::receiver::ReceiverStats;
use headwater_transport::source::SourceConfig;
use headwater_units::{BitRate, Bytes, Duration};
use headwater_wire::{SYMBOL_OVERHEAD, SpreadRule};
use proptest::prelude::*;
use support::{Act, FIRST_SOURCE, Machine, Path, World};

const LIMIT: Duration = Duration::from_secs(60);
/// UDP payload of packets of 1,500 and 1,400 bytes.
const ETHERNET: usize = 1472;
const TUNNEL: usize = 1372;

fn product() -> SourceConfig {
    let push = PushFlowConfig { path_mtu: Some(PathMtuConfig::default()), ..PushFlowConfig::default() };
    SourceConfig { push, ..SourceConfig::default() }
}

fn mbit(n: u64) -> BitRate {
    BitRate::new(n * 1_000_000)
}

fn path(rate: u64, longest: usize) -> Path {
    Path { rate: mbit(rate), longest, ..Path::default() }
}

/// Symbols that datagrams of this length carry.
fn room(longest: usize) -> u16 {
    (longest - SYMBOL_OVERHEAD) as u16
}

fn deliver(
    bytes: Bytes,
    paths: Vec<Path>,
    spread: SpreadRule,
    acts: &[(u64, Act)],
) -> (World, ReceiverStats) {
    let widest = paths.iter().map(|path| path.room).max().unwrap();
    let mut world = World::with(bytes, paths, 3, product(), |config| {
        (config.spread, config.room) = (spread, widest);
    });
    for (millis, act) in acts {
        world.act(Duration::from_millis(*millis), *act);
    }
    let stats = world.run(LIMIT);
    (world, stats)
}

/// Seconds that the object takes at this rate, all headers included.
fn ideal(bytes: Bytes, rate: u64) -> f64 {
    bytes.get() as f64 * 8.0 / (rate as f64 * 1e6) * 1.06
}

#[test]
fn a_path_that_is_narrower_than_both_ends_say_costs_less_than_half_a_second() {
    for rule in [SpreadRule::Listed, SpreadRule::Residue, SpreadRule::Equal] {
        let (world, stats) = deliver(Bytes::mib(4), vec![path(100, TUNNEL)], rule, &[]);
        let lost = world.seconds() - ideal(Bytes::mib(4), 100);
        println!("{rule:?}: {lost:.3} s more, {} datagrams too long", world.too_long);
        assert!(lost < 0.5, "{rule:?} {lost}");
        assert_eq!((stats.room, stats.narrowed), (room(TUNNEL), 1));
        assert!(stats.useless * 100 <= stats.arrivals, "{} of {}", stats.useless, stats.arrivals);
    }
}

/// Baseline of the other tests.
#[test]
fn without_a_search_a_narrow_path_is_no_source_at_all() {
    let mut world = World::with(Bytes::mib(1), vec![path(100, TUNNEL)], 3, SourceConfig::default(), |_| {});
    let stats = world.run(LIMIT);
    assert!(matches!(world.reception.finished, Some((_, Err(ReceiverFailure::NoSource { missing: 4 })))));
    assert_eq!(stats.arrivals, 0);
}

#[test]
fn jumbo_hosts_with_an_ordinary_switch_between_them_go_on_with_1500() {
    let jumbo = Path { room: room(8972), ..path(500, ETHERNET) };
    let (world, stats) = deliver(Bytes::mib(16), vec![jumbo.clone(), jumbo], SpreadRule::Listed, &[]);
    let lost = world.seconds() - ideal(Bytes::mib(16), 1000);
    println!("{lost:.3} s more");
    assert!(lost < 0.8, "{lost}");
    assert_eq!(stats.room, room(ETHERNET));
}

#[test]
fn one_narrow_path_among_three_makes_the_task_smaller_and_all_three_go_on() {
    let paths = vec![path(100, ETHERNET), path(100, TUNNEL), path(100, ETHERNET)];
    let (world, stats) = deliver(Bytes::mib(32), paths, SpreadRule::Listed, &[]);
    let ratio = world.seconds() / ideal(Bytes::mib(32), 300);
    println!("ratio {ratio:.3}");
    assert!(ratio < 1.25, "{ratio}");
    assert_eq!((stats.room, stats.narrowed), (room(TUNNEL), 1));
    let bytes: Vec<u64> = (0..3)
        .map(|i| {
            let theirs = stats.flows.iter().filter(|flow| flow.node == support::node(FIRST_SOURCE + i));
            theirs.map(|flow| flow.bytes.get()).sum()
        })
        .collect();
    assert!(bytes.iter().all(|sent| *sent > 8 << 20), "each brought its part: {bytes:?}");
}

#[test]
fn a_black_hole_that_opens_half_way_is_noticed_within_a_second_and_finished_blocks_stay() {
    let acts = [(500, Act::SetLongest(0, TUNNEL))];
    let (world, stats) = deliver(Bytes::mib(16), vec![path(100, ETHERNET)], SpreadRule::Listed, &acts);
    let lost = world.seconds() - ideal(Bytes::mib(16), 100);
    println!("{lost:.3} s more");
    assert!(lost < 1.0, "{lost}");
    assert_eq!((stats.room, stats.narrowed), (room(TUNNEL), 1));
    // 6 MB had come by then; what was partly here comes again, and no more.
    let again = stats.flows.iter().map(|flow| flow.bytes.get()).sum::<u64>() as f64 / (16 << 20) as f64;
    assert!(again < 1.08, "{again}");
}

#[test]
fn a_path_that_narrows_twice_makes_the_symbols_smaller_twice() {
    let acts = [(400, Act::SetLongest(0, TUNNEL)), (1500, Act::SetLongest(0, 1252))];
    let (world, stats) = deliver(Bytes::mib(24), vec![path(100, ETHERNET)], SpreadRule::Listed, &acts);
    assert!(world.seconds() - ideal(Bytes::mib(24), 100) < 2.0);
    assert_eq!((stats.room, stats.narrowed), (room(1252), 2));
}

#[test]
fn a_host_that_refuses_long_datagrams_is_asked_once_and_believed() {
    let refusing = Path { refuses: true, ..path(100, 1400) };
    let (world, stats) = deliver(Bytes::mib(4), vec![refusing], SpreadRule::Listed, &[]);
    let lost = world.seconds() - ideal(Bytes::mib(4), 100);
    println!("{lost:.3} s more, {} refused", world.too_long);
    assert!(lost < 0.05, "{lost}");
    assert_eq!(stats.room, room(1400));
}

#[test]
fn paths_that_carry_what_they_should_see_no_probe() {
    for longest in [ETHERNET, 9000] {
        let (mut world, stats) = deliver(Bytes::mib(8), vec![path(100, longest); 2], SpreadRule::Listed, &[]);
        assert_eq!((stats.room, stats.narrowed, world.too_long), (1424, 0, 0));
        for machine in &mut world.machines {
            let Machine::Source(source) = machine else { continue };
            assert!(source.flows().all(|flow| flow.counters.path_probes == 0));
        }
    }
}

#[test]
fn a_cable_that_is_pulled_for_two_seconds_is_no_narrow_path() {
    let acts = [(300, Act::SetLongest(0, 0)), (2_300, Act::SetLongest(0, ETHERNET))];
    let (world, stats) = deliver(Bytes::mib(8), vec![path(100, ETHERNET)], SpreadRule::Listed, &acts);
    assert!(world.seconds() < 6.0, "{}", world.seconds());
    assert_eq!((stats.room, stats.narrowed), (1424, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Narrow, lossy, reordering, marking paths, and a hole that opens at any time: everything arrives.
    #[test]
    fn everything_arrives_over_paths_of_any_length(
        lengths in prop::collection::vec((600_usize..1500, 600_usize..1500, 0_u64..800), 1..4),
        loss in 0.0_f64..0.05, reorder in 0.0_f64..0.1, kib in 1_u64..4_096, seed: u64,
    ) {
        let paths = lengths.iter().map(|(longest, ..)| {
            Path { loss, ack_loss: loss, reorder, ..path(100, *longest) }
        }).collect();
        let mut world = World::with(Bytes::kib(kib), paths, seed, product(), |_| {});
        for (index, (_, later, when)) in lengths.iter().enumerate() {
            world.act(Duration::from_millis(*when), Act::SetLongest(index, *later));
        }
        let stats = world.run(LIMIT);
        let seconds = world.seconds();
        prop_assert!(seconds < 15.0, "{seconds} s, narrowed {}", stats.narrowed);
    }

    /// Twice the same: the same.
    #[test]
    fn a_narrow_path_is_deterministic(longest in 600_usize..1472, seed: u64) {
        let digest = || {
            let mut world = World::with(Bytes::kib(600), vec![path(100, longest)], seed, product(), |_| {});
            world.network.digest = Some(0);
            world.run(LIMIT);
            world.network.digest
        };
        prop_assert_eq!(digest(), digest());
    }
}
