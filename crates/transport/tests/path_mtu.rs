//! The discovery of a path's MTU against paths of every length, with probes and answers lost, late and out of order.

use headwater_transport::flow::path_mtu::{Known, PathMtu, PathMtuConfig};
use headwater_units::{Duration, Time};
use headwater_wire::Probe;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A packet of 1,424 bytes of symbol.
const FULL: u16 = 1472;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

/// A path and what happens to probes on it.
struct Path {
    longest: u16,
    rtt: Duration,
    /// Chance that a probe or its answer is lost whatever its length.
    loss: f64,
    /// Chance that an answer takes three times as long, so that later ones overtake it.
    late: f64,
}

impl Path {
    fn of(longest: u16) -> Self {
        Path { longest, rtt: ms(1), loss: 0.0, late: 0.0 }
    }
}

/// Result of a run of the machine.
struct Outcome {
    mtu: PathMtu,
    now: Time,
    /// Lengths of the probes, in order, and when they left.
    probes: Vec<(Time, u16)>,
    /// The first time that the peer was told what passes.
    told: Option<(Time, u16)>,
}

/// Drives the machine from `now` until `until`, or until the peer was told.
fn run(mut mtu: PathMtu, mut now: Time, until: Time, path: &Path, seed: u64) -> Outcome {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut answers: Vec<(Time, Probe)> = Vec::new();
    let (mut probes, mut told) = (Vec::new(), None);
    for _ in 0..10_000 {
        while let Some(probe) = mtu.poll(now, true) {
            if let Some(fits) = probe.fits {
                assert_eq!(probe.bytes, Probe::SHORTEST);
                told.get_or_insert((now, fits));
                break;
            }
            probes.push((now, probe.bytes));
            if probe.bytes <= path.longest && !rng.random_bool(path.loss) {
                let slow = if rng.random_bool(path.late) { 3 } else { 1 };
                answers.push((now + path.rtt * slow, probe));
            }
        }
        if told.is_some() {
            break;
        }
        let next = answers.iter().map(|(at, _)| *at).chain(mtu.deadline(true)).min();
        let Some(next) = next.filter(|next| *next <= until) else { break };
        assert!(next > now, "it wants to be woken at {next}, and it is {now}");
        now = next;
        answers.sort_by_key(|(at, _)| *at);
        while answers.first().is_some_and(|(at, _)| *at <= now) {
            let (_, probe) = answers.remove(0);
            mtu.on_probe_ack(now, probe.number, probe.bytes);
        }
    }
    Outcome { mtu, now, probes, told }
}

fn suspected(bytes: u16, path: &Path, seed: u64) -> Outcome {
    let mut mtu = PathMtu::new(PathMtuConfig::default(), bytes, None);
    mtu.suspect(Some(path.rtt));
    run(mtu, Time::ZERO, at(60_000), path, seed)
}

#[test]
fn a_path_that_carries_what_was_wanted_is_never_probed() {
    let mut mtu = PathMtu::new(PathMtuConfig::default(), FULL, None);
    mtu.on_full_size_acknowledged();
    assert_eq!((mtu.poll(at(1), true), mtu.deadline(true), mtu.known()), (None, None, None));
    assert!(!mtu.take_change());
}

/// The MTUs that people meet, less IPv4 and UDP headers.
#[test]
fn common_mtus_are_found_exactly_within_half_a_second() {
    for mtu in [1280, 1400, 1420, 1450, 1460, 1480, 1492] {
        let found = suspected(FULL, &Path::of(mtu - 28), 1);
        let (when, fits) = found.told.unwrap();
        assert_eq!(fits, mtu - 28, "{:?}", found.probes);
        assert!(when < at(450), "{mtu}: {when} {:?}", found.probes);
    }
}

#[test]
fn jumbo_frames_behind_an_ordinary_switch_come_down_to_1500() {
    let found = suspected(9000 - 28, &Path::of(FULL), 1);
    let (when, fits) = found.told.unwrap();
    assert_eq!(fits, FULL);
    assert!(when < at(500), "{when} {:?}", found.probes);
    assert!(found.probes.len() <= 20, "{:?}", found.probes);
}

#[test]
fn a_long_round_trip_ends_the_search_soon_after_a_second() {
    let path = Path { rtt: ms(150), ..Path::of(1352) };
    let (when, fits) = suspected(FULL, &path, 1).told.unwrap();
    assert!(when <= at(150 + 1200), "{when}");
    assert!((1200..=1352).contains(&fits));
}

/// Nothing is concluded from a path on which nothing passes at all.
#[test]
fn a_path_that_is_down_teaches_nothing() {
    let found = suspected(FULL, &Path::of(0), 1);
    assert_eq!((found.told, found.mtu.known(), found.mtu.deadline(true)), (None, None, None));
    let lengths: Vec<u16> = found.probes.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(lengths, [1200, 1200, 1200, 548, 548, 548]);
}

#[test]
fn a_path_below_the_base_is_found_by_way_of_the_least() {
    let (_, fits) = suspected(FULL, &Path::of(1000), 1).told.unwrap();
    assert!((1000 - 24..=1000).contains(&fits), "{fits}");
    let (_, fits) = suspected(FULL, &Path::of(548), 1).told.unwrap();
    assert_eq!(fits, 548);
}

/// A burst of losses is no black hole: the full length is tried again before anything shorter.
#[test]
fn a_false_alarm_costs_two_probes_and_changes_nothing() {
    let found = suspected(FULL, &Path::of(FULL), 1);
    let lengths: Vec<u16> = found.probes.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!((lengths, found.told, found.mtu.known()), (vec![1200, FULL], None, None));
    assert!(!found.mtu.is_suspicious());

    let mut mtu = PathMtu::new(PathMtuConfig::default(), FULL, None);
    mtu.suspect(None);
    assert_eq!(mtu.poll(at(0), true).unwrap().bytes, 1200);
    mtu.on_full_size_acknowledged();
    assert_eq!((mtu.poll(at(9), true), mtu.deadline(true)), (None, None));
}

#[test]
fn a_probe_is_sent_three_times_at_least_a_round_trip_apart() {
    let path = Path { rtt: ms(30), ..Path::of(1372) };
    let found = suspected(FULL, &path, 1);
    let full: Vec<Time> = found.probes.iter().filter(|(_, bytes)| *bytes == FULL).map(|p| p.0).collect();
    assert_eq!(full.len(), 3);
    assert!(found.probes.windows(2).all(|pair| pair[1].0.since(pair[0].0) >= path.rtt), "{:?}", found.probes);
}

#[test]
fn what_the_host_says_is_probed_first_and_believed_only_if_it_passes() {
    let mut mtu = PathMtu::new(PathMtuConfig::default(), FULL, None);
    mtu.on_too_long(at(0), 1300, Some(ms(1)));
    let found = run(mtu, at(0), at(5_000), &Path::of(1300), 1);
    assert_eq!((found.probes, found.told), (vec![(at(0), 1300)], Some((at(1), 1300))));

    // The kernel was told of a narrow link by somebody, but the path is narrower still.
    let mut mtu = PathMtu::new(PathMtuConfig::default(), FULL, None);
    mtu.on_too_long(at(0), 1460, Some(ms(1)));
    let found = run(mtu, at(0), at(5_000), &Path::of(1222), 1);
    assert!((1200..=1222).contains(&found.told.unwrap().1), "{:?}", found.probes);
}

#[test]
fn a_narrow_path_is_said_again_until_somebody_listens_and_never_more_than_twice_a_second_for_long() {
    let found = suspected(FULL, &Path::of(1372), 1);
    let (mut mtu, mut now) = (found.mtu, found.now);
    let mut times = Vec::new();
    while times.len() < 12 {
        now = mtu.deadline(false).unwrap().max(now);
        times.extend(mtu.poll(now, false).map(|probe| (now, probe.fits.unwrap())));
    }
    assert!(times.iter().all(|(_, fits)| *fits == 1372));
    assert!(times[5].0.since(found.now) < ms(2_000));
    assert_eq!(times[11].0.since(times[10].0), ms(1_000));
}

#[test]
fn a_later_flow_knows_at_once_and_a_smaller_one_tries_more_when_the_raise_timer_has_run_out() {
    let known = suspected(FULL, &Path::of(1372), 1).mtu.known().unwrap();
    assert_eq!((known.fits, known.wanted), (1372, FULL));
    let config = PathMtuConfig::default();
    assert_eq!(PathMtu::new(config, FULL, Some(known)).too_long(), Some(1372));

    let later = PathMtu::new(config, 1368, Some(known));
    assert_eq!((later.too_long(), later.deadline(true)), (None, Some(known.since + config.raise)));
    // Still narrow: known for as long again.
    let due = known.since + config.raise;
    let mut still = run(later, due, due + ms(5_000), &Path::of(1372), 1);
    assert!(still.mtu.take_change());
    let again = still.mtu.known().unwrap();
    assert_eq!((again.fits, again.wanted), (1372, FULL));
    assert!(again.since > due && still.told.is_none());
    // Mended: forgotten.
    let mut mended = run(later, due, due + ms(5_000), &Path::of(FULL), 1);
    assert!(mended.mtu.take_change());
    assert_eq!((mended.mtu.known(), mended.probes.len()), (None, 1));
}

#[test]
fn a_false_alarm_of_a_small_flow_does_not_make_the_narrow_path_forgotten() {
    let known = Known { fits: 1372, wanted: FULL, since: at(5) };
    let mut mtu = PathMtu::new(PathMtuConfig::default(), 1368, Some(known));
    mtu.suspect(Some(ms(1)));
    let found = run(mtu, at(10), at(1_000), &Path::of(1372), 1);
    assert_eq!((found.mtu.known(), found.told), (Some(known), None));
}

/// The path changes to one that carries less while the flow is under way, and later to one that carries less still.
#[test]
fn a_black_hole_that_appears_twice_is_found_twice() {
    let mut mtu = PathMtu::new(PathMtuConfig::default(), FULL, None);
    mtu.on_full_size_acknowledged();
    mtu.suspect(Some(ms(1)));
    let first = run(mtu, at(50), at(2_000), &Path::of(1372), 1);
    assert_eq!(first.told.map(|(_, fits)| fits), Some(1372));
    let mut smaller = PathMtu::new(PathMtuConfig::default(), 1368, first.mtu.known());
    smaller.suspect(Some(ms(1)));
    let second = run(smaller, at(3_000), at(6_000), &Path::of(1252), 1);
    assert_eq!(second.told.map(|(_, fits)| fits), Some(1252));
    assert_eq!(second.mtu.known().unwrap().wanted, FULL, "what was wanted once is tried again later");
}

#[test]
fn answers_to_probes_that_were_never_sent_change_nothing() {
    let mut mtu = PathMtu::new(PathMtuConfig::default(), FULL, None);
    mtu.on_probe_ack(at(0), 1, 9000);
    mtu.suspect(Some(ms(1)));
    let probe = mtu.poll(at(0), true).unwrap();
    mtu.on_probe_ack(at(1), probe.number, probe.bytes + 1);
    mtu.on_probe_ack(at(1), probe.number + 1, probe.bytes);
    assert_eq!(mtu.poll(at(1), true), None, "still waiting for the first");
    mtu.on_probe_ack(at(1), probe.number, probe.bytes);
    assert_eq!(mtu.poll(at(1), true).unwrap().bytes, FULL);
}

proptest! {
    /// Without random loss what is found passes, and is as long as can be expected.
    #[test]
    fn what_is_found_passes_and_wastes_little(longest in 600_u16..1472, late in 0.0_f64..0.5, seed: u64) {
        let path = Path { late, ..Path::of(longest) };
        let found = suspected(FULL, &path, seed);
        let (when, fits) = found.told.expect("the path is narrow");
        prop_assert!(fits <= longest && longest - fits <= 24, "{fits} of {longest}: {:?}", found.probes);
        prop_assert!(when <= at(1_600), "{when}");
    }

    /// With losses: it may find less than there is, never more, always ends, and lengths that passed come back.
    #[test]
    fn losses_never_make_it_find_too_much(
        longest in 400_u16..9_000, bytes in 200_u16..9_000, loss in 0.0_f64..0.9, late in 0.0_f64..0.9, rtt in 0_u64..400,
        seed: u64,
    ) {
        let path = Path { longest, rtt: ms(rtt) + Duration::from_micros(50), loss, late };
        let found = suspected(bytes, &path, seed);
        if let Some((_, fits)) = found.told {
            prop_assert!(fits <= longest && fits < bytes);
        }
        prop_assert!(found.now < at(20_000), "{} {:?}", found.now, found.probes);
        prop_assert!(found.probes.iter().all(|(_, probed)| *probed <= bytes.max(1200)));
        prop_assert!(!found.mtu.is_suspicious());
    }

    /// Whatever it is told, in whatever order, it neither panics nor asks to be woken for ever without time passing.
    #[test]
    fn any_order_of_events_is_survived(events in prop::collection::vec((0_u8..7, any::<u16>(), 0_u64..700), 1..200), bytes: u16) {
        let mut mtu = PathMtu::new(PathMtuConfig::default(), bytes, None);
        let (mut now, mut last) = (Time::ZERO, None);
        for (kind, number, wait) in events {
            now += ms(wait);
            match kind {
                0 => mtu.suspect(None),
                1 => mtu.on_full_size_acknowledged(),
                2 => mtu.on_too_long(now, number, Some(ms(3))),
                3 => mtu.on_probe_ack(now, u32::from(number), bytes),
                4 => {
                    if let Some(Probe { number, bytes, .. }) = last {
                        mtu.on_probe_ack(now, number, bytes);
                    }
                }
                5 => now += Duration::from_secs(100),
                _ => {}
            }
            let mut polls = 0;
            while let Some(probe) = mtu.poll(now, kind != 6) {
                (last, polls) = (Some(probe), polls + 1);
                prop_assert!(polls < 3);
            }
            prop_assert!(mtu.deadline(true).is_none_or(|at| kind == 6 || at > now));
            prop_assert!(mtu.known().is_none_or(|known| known.fits > 0 && known.fits <= known.wanted));
        }
    }
}
