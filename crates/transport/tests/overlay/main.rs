//! One object to many receivers that pass on to each other what comes.

mod net;

use headwater_units::{BitRate, Bytes, Duration};
use net::{Act, Net, Spec};
use proptest::prelude::*;

const LIMIT: Duration = Duration::from_secs(200);

/// Finishing times over what one copy takes over the source's link at best.
fn ratios(net: &Net) -> Vec<f64> {
    let ideal = net.bytes.get() as f64 * 8.0 / net.spec.rate.get() as f64;
    (1..=net.spec.receivers).filter_map(|host| Some(net.finished(host)? / ideal)).collect()
}

fn last(net: &Net) -> f64 {
    ratios(net).into_iter().fold(0.0, f64::max)
}

fn print(what: &str, net: &mut Net) {
    let (copies, useless) = (net.copies(), net.useless());
    println!(
        "{what}: {:.3?} of ideal, {copies:.3} copies, {useless} useless, {} dropped",
        ratios(net),
        net.dropped
    );
}

#[test]
fn all_have_it_in_the_time_of_one_copy() {
    for receivers in [2, 4, 8] {
        let mut net = Net::new(Spec { receivers, ..Spec::default() }, Bytes::mib(32), 1);
        net.run(LIMIT);
        print(&format!("{receivers} receivers"), &mut net);
        assert!(net.copies() < 1.07 && last(&net) < 1.15, "{receivers}");
        assert_eq!(ratios(&net).len(), receivers);
    }
}

/// Queues of 41 packets, 10 ms at 50 Mbit/s.
#[test]
fn sixteen_fit_into_short_queues() {
    let spec = Spec { receivers: 16, rate: BitRate::new(50_000_000), queue: 41, ..Spec::default() };
    let mut net = Net::new(spec, Bytes::mib(32), 7);
    net.run(LIMIT);
    print("16 receivers, short queues", &mut net);
    assert!(net.copies() < 1.1 && last(&net) < 1.2);
}

#[test]
fn a_slow_receiver_does_not_hold_the_others_up() {
    let mut net = Net::new(Spec::default(), Bytes::mib(32), 2);
    net.set_rate(4, 0.25);
    net.run(LIMIT);
    print("one at a quarter of the rate", &mut net);
    let ratios = ratios(&net);
    assert!(ratios[..3].iter().all(|ratio| *ratio < 1.3), "{ratios:?}");
    assert!(ratios[3] < 4.0 * 1.3, "{ratios:?}");
}

#[test]
fn a_relay_that_dies_costs_the_others_its_part() {
    let mut net = Net::new(Spec::default(), Bytes::mib(32), 3);
    net.act(Duration::from_millis(1400), Act::Kill(2));
    net.run(LIMIT);
    print("one dies", &mut net);
    assert_eq!(ratios(&net).len(), 3);
    assert!(last(&net) < 1.35);
}

#[test]
fn two_relays_that_die_one_after_the_other_are_done_without() {
    let mut net = Net::new(Spec::default(), Bytes::mib(32), 4);
    net.act(Duration::from_millis(700), Act::Kill(2));
    net.act(Duration::from_millis(1400), Act::Kill(3));
    net.run(LIMIT);
    print("two die", &mut net);
    assert_eq!(ratios(&net).len(), 2);
    assert!(last(&net) < 1.9);
}

#[test]
fn what_is_lost_is_made_good() {
    let mut net = Net::new(Spec { loss: 0.01, ..Spec::default() }, Bytes::mib(16), 5);
    net.run(LIMIT);
    print("1 % lost on every link", &mut net);
    assert_eq!(ratios(&net).len(), 4);
    assert!(last(&net) < 1.5 && net.copies() < 1.3);
}

#[test]
fn who_comes_late_is_served_by_the_others() {
    let mut net =
        Net::new(Spec { late: Some((4, Duration::from_millis(1000))), ..Spec::default() }, Bytes::mib(32), 6);
    net.run(LIMIT);
    print("one comes late", &mut net);
    assert_eq!(ratios(&net).len(), 4);
    assert!(net.copies() < 1.1, "the source need not serve it");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Whatever is lost and reordered, whoever dies and whenever: all others have all of it, and nothing but what is the object's.
    #[test]
    fn whoever_lives_has_it(
        seed in 0u64..1000,
        kib in 1u64..4000,
        receivers in 2usize..7,
        loss in 0.0f64..0.05,
        reorder in 0.0f64..0.02,
        dies in prop::option::of((1usize..7, 0u64..400)),
    ) {
        let mut net = Net::new(Spec { receivers, loss, reorder, ..Spec::default() }, Bytes::kib(kib), seed);
        let dies = dies.filter(|(host, _)| *host <= receivers);
        if let Some((host, at)) = dies {
            net.act(Duration::from_millis(at), Act::Kill(host));
        }
        net.run(LIMIT);
        let done = (1..=receivers).filter(|host| net.finished(*host).is_some()).count();
        prop_assert!(done >= receivers - usize::from(dies.is_some()), "{done} of {receivers}");
    }
}
