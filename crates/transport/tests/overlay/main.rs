//! One object to many receivers that pass on to each other what comes.

mod net;
mod spec;

use headwater_units::{BitRate, Bytes, Duration};
use net::{Act, Net};
use proptest::prelude::*;
use spec::Spec;

const LIMIT: Duration = Duration::from_secs(200);

/// Finishing times over what one copy takes over the source's link at best.
fn ratios(net: &Net) -> Vec<f64> {
    let ideal = net.bytes.get() as f64 * 8.0 / net.spec.rate.get() as f64;
    net.receivers().filter_map(|host| Some(net.finished(host)? / ideal)).collect()
}

fn last(net: &Net) -> f64 {
    ratios(net).into_iter().fold(0.0, f64::max)
}

fn print(what: &str, net: &mut Net) {
    let (copies, useless) = (net.copies(), net.useless());
    println!(
        "{what}: {:.3?} of ideal, {copies:.3} copies, {useless} useless, {} dropped",
        ratios(net),
        net.dropped()
    );
}

#[test]
fn all_have_it_in_the_time_of_one_copy() {
    for receivers in [2, 4, 8] {
        let mut net = Net::new(Spec { receivers, ..Spec::default() }, Bytes::mib(32), 1);
        net.run(LIMIT);
        print(&format!("{receivers} receivers"), &mut net);
        assert!(net.copies() < 1.02 && last(&net) < 1.15, "{receivers}");
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
    assert!(net.copies() < 1.02 && last(&net) < 1.2);
}

/// Queues of 17 packets, 10 ms at 20 Mbit/s: less than what all children of a node are sent at once. Many packets are lost, the first ones
/// too, and nobody is slow.
#[test]
fn where_queues_take_less_than_a_window_nobody_counts_as_slow() {
    for seed in 1..7 {
        let spec = Spec { receivers: 16, rate: BitRate::new(20_000_000), queue: 17, ..Spec::default() };
        let mut net = Net::new(spec, Bytes::mib(16), seed);
        net.run(LIMIT);
        print("16 receivers, queues of 17 packets", &mut net);
        let stats = net.controller_stats();
        assert!(stats.demoted == 0 && net.copies() < 1.1 && last(&net) < 1.5, "{seed}: {stats:?}");
    }
}

/// Round trips of 20 ms: a link holds 175 packets, four times what is granted to a receiver. Windows that did not grow would take four times
/// as long; how fast they do hangs on chance, so the median of some seeds counts.
#[test]
fn windows_grow_where_paths_are_long() {
    let delay = Duration::from_millis(10);
    let mut times: Vec<f64> = (1..6)
        .map(|seed| {
            let mut net = Net::new(Spec { delay, ..Spec::default() }, Bytes::mib(64), seed);
            net.run(LIMIT);
            print("4 receivers, round trips of 20 ms", &mut net);
            assert!(net.copies() < 1.05);
            last(&net)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    assert!(times[2] < 2.4, "{times:?}");
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

/// Goal: a stripe that nobody had for half a second comes by the other trees when they are done, so that nobody waits for it as long again.
/// Without that the last had it after 1.38 of one copy's time.
#[test]
fn what_is_late_comes_by_the_other_trees() {
    for seed in 1..4 {
        let mut net = Net::new(Spec { receivers: 24, ..Spec::default() }, Bytes::mib(32), seed);
        net.act(Duration::from_millis(1400), Act::Kill(1));
        net.run(LIMIT);
        print("the first of 24 dies", &mut net);
        assert_eq!(ratios(&net).len(), 23);
        assert!(last(&net) < 1.3 && net.copies() < 1.05, "{seed}");
    }
}

#[test]
fn what_is_lost_is_made_good() {
    let mut net = Net::new(Spec { loss: 0.01, ..Spec::default() }, Bytes::mib(16), 5);
    net.run(LIMIT);
    print("1 % lost on every link", &mut net);
    assert_eq!(ratios(&net).len(), 4);
    assert!(last(&net) < 1.5 && net.copies() < 1.3);
}

/// Latecomers: `late` of them, `apart` from each other, the first after a second.
fn latecomers(receivers: usize, late: usize, apart: Duration) -> Spec {
    let at = |n: usize| Duration::from_millis(1000) + apart * n as u64;
    let late = (0..late).map(|n| (receivers + 1 + n, at(n))).collect::<Vec<_>>();
    Spec { receivers: receivers + late.len(), late, ..Spec::default() }
}

#[test]
fn who_comes_late_is_served_by_the_others() {
    let mut net = Net::new(latecomers(3, 1, Duration::ZERO), Bytes::mib(32), 6);
    net.run(LIMIT);
    print("one comes late", &mut net);
    assert_eq!(ratios(&net).len(), 4);
    assert!(net.copies() < 1.1, "the source need not serve it");
}

/// Host 0 stands in no rack, four receivers in each of two.
const TWO_RACKS: &[&str] = &["core", "a", "a", "a", "a", "b", "b", "b", "b"];

/// Goal: without racks 2.5 copies enter each of two racks of four, with them one; and the source sends one copy either way.
#[test]
fn each_byte_enters_a_rack_about_once() {
    let mut entered = Vec::new();
    for told in [false, true] {
        let spec = Spec { receivers: 8, racks: TWO_RACKS, told, ..Spec::default() };
        let mut net = Net::new(spec, Bytes::mib(32), 8);
        net.run(LIMIT);
        let each = ["a", "b"].map(|rack| net.entered(rack));
        print(&format!("{each:.3?} copies enter racks, told: {told}"), &mut net);
        assert!(net.copies() < 1.02 && last(&net) < 1.15);
        entered.push(each);
    }
    assert!(entered[0].iter().all(|copies| *copies > 2.4), "{entered:?}");
    assert!(entered[1].iter().all(|copies| (0.98..1.05).contains(copies)), "{entered:?}");
}

/// Goal: where a rack's link is no faster than a receiver's, a cast that knows of racks is twice as fast as one that does not.
#[test]
fn racks_behind_links_like_a_receivers_cost_no_time_if_they_are_told() {
    let mut lasts = Vec::new();
    for told in [false, true] {
        let rack_rate = Some(Spec::default().rate);
        let spec = Spec { receivers: 8, racks: TWO_RACKS, rack_rate, told, ..Spec::default() };
        let mut net = Net::new(spec, Bytes::mib(32), 9);
        net.run(LIMIT);
        print(&format!("racks behind links like a receiver's, told: {told}"), &mut net);
        lasts.push(last(&net));
    }
    assert!(lasts[1] < 1.25 && lasts[0] > 2.0 * lasts[1], "{lasts:.3?}");
}

/// Goal: racks of different sizes, and receivers without one, cost the source nothing and nobody much time.
#[test]
fn racks_of_any_size_will_do() {
    for racks in [
        &["core", "a", "b", "b", "b", "b", "b", "b", "b"][..],
        &["core", "a", "a", "b", "b", "b", "b", "b", "b"],
        &["core", "a", "a", "a", "b", "c", "c"],
        &["a", "a", "a", "a", "b", "b", "b", "b", "b"],
    ] {
        let mut net = Net::new(Spec { receivers: 8, racks, ..Spec::default() }, Bytes::mib(32), 10);
        net.run(LIMIT);
        let each = ["a", "b", "c"].map(|rack| net.entered(rack));
        print(&format!("{racks:?}, {each:.3?} copies enter them"), &mut net);
        assert!(net.copies() < 1.02 && last(&net) < 1.25, "{racks:?}");
        assert!(each.iter().all(|copies| *copies < 1.02), "{racks:?}: {each:.3?}");
    }
}

/// Goal: an entry of a rack that dies costs its rack what it took in, and no more.
#[test]
fn a_rack_does_without_an_entry_that_dies() {
    let mut net = Net::new(Spec { receivers: 8, racks: TWO_RACKS, ..Spec::default() }, Bytes::mib(32), 11);
    net.act(Duration::from_millis(1400), Act::Kill(2));
    net.run(LIMIT);
    let each = ["a", "b"].map(|rack| net.entered(rack));
    print(&format!("one of a rack dies, {each:.3?} copies enter"), &mut net);
    assert_eq!(ratios(&net).len(), 7);
    assert!(last(&net) < 1.5);
}

/// Goal: who comes late to a rack has it from within the rack: little more than one copy enters it.
#[test]
fn who_comes_late_to_a_rack_takes_it_from_there() {
    const RACKS: &[&str] = &["core", "a", "a", "b", "b", "a", "b", "a"];
    let mut entered = Vec::new();
    for told in [false, true] {
        let spec = Spec { racks: RACKS, told, ..latecomers(4, 3, Duration::from_millis(50)) };
        let mut net = Net::new(spec, Bytes::mib(32), 15);
        net.run(LIMIT);
        let each = ["a", "b"].map(|rack| net.entered(rack));
        print(&format!("three come late to racks, {each:.3?} copies enter, told: {told}"), &mut net);
        assert_eq!(ratios(&net).len(), 7);
        entered.push(each);
    }
    assert!(entered[1].iter().all(|copies| *copies < 1.3), "{entered:?}");
    assert!(entered[1].iter().zip(entered[0]).all(|(told, untold)| *told < untold), "{entered:?}");
}

/// Goal: two that have it send half each, and together no more than one.
#[test]
fn each_of_two_sources_sends_half() {
    let spec = Spec { sources: 2, receivers: 6, ..Spec::default() };
    let mut net = Net::new(spec, Bytes::mib(32), 12);
    net.run(LIMIT);
    let each = net.copies_of_each();
    print(&format!("two sources, {each:.3?} copies of each"), &mut net);
    assert_eq!(ratios(&net).len(), 6);
    assert!(each.iter().all(|copies| (0.45..0.55).contains(copies)), "{each:?}");
    assert!(last(&net) < 1.17);
}

/// Goal: those who come late cost each of those who were there before little more than a copy in all, however many they are.
#[test]
fn who_comes_late_passes_on_to_those_who_come_later() {
    let mut net = Net::new(latecomers(3, 9, Duration::from_millis(50)), Bytes::mib(32), 8);
    net.run(LIMIT);
    print("nine come late", &mut net);
    let sent: Vec<f64> = (0..=12).map(|host| net.copies_of(host)).collect();
    println!("copies sent by each: {sent:.2?}");
    assert_eq!(ratios(&net).len(), 12);
    assert!(sent[0] < 1.3, "{sent:?}");
    assert!(sent[1..].iter().all(|copies| *copies < 2.05), "{sent:?}");
    assert!(sent[4..].iter().sum::<f64>() > 5.0, "they pass on: {sent:?}");
}

/// Goal: a receiver that has the object and goes, without having kept it for others, hands over: nobody waits for a
/// timeout.
#[test]
fn who_has_it_and_goes_hands_over() {
    let spec =
        Spec { drains: Some(Duration::from_millis(100)), ..latecomers(3, 4, Duration::from_millis(200)) };
    let mut net = Net::new(spec, Bytes::mib(32), 9);
    net.run(LIMIT);
    print("four come late and go", &mut net);
    assert_eq!(ratios(&net).len(), 7);
    assert!(net.copies() < 1.5);
}

/// Goal: a receiver that is interrupted in the middle hands over at once, and nobody waits for it. For one that dies they hardly do:
/// until it is replaced, the others go on with the other stripes.
#[test]
fn who_is_interrupted_hands_over() {
    let run = |act: Act| {
        let mut net = Net::new(Spec::default(), Bytes::mib(32), 10);
        net.act(Duration::from_millis(1400), act);
        net.run(LIMIT);
        print(&format!("{act:?}"), &mut net);
        assert_eq!(ratios(&net).len(), 3);
        assert!(last(&net) < 1.15);
        last(&net)
    };
    assert!(run(Act::Leave(2)) <= run(Act::Kill(2)) + 0.01);
}

/// Goal: gets of one object that begin one after the other come to pass on to each other what they get.
#[test]
fn gets_at_the_same_time_need_little_more_than_one_copy() {
    for (gets, apart) in [(2, 10), (4, 10), (4, 150), (8, 20)] {
        let late = (1..=gets).map(|n| (n, Duration::from_millis(apart * n as u64))).collect();
        let spec = Spec { receivers: gets, late, drains: Some(Duration::from_secs(2)), ..Spec::default() };
        let mut net = Net::new(spec, Bytes::mib(32), 11);
        net.run(LIMIT);
        print(&format!("{gets} gets, {apart} ms apart"), &mut net);
        assert_eq!(ratios(&net).len(), gets);
        assert_eq!((net.begun(1), net.controller().swarms_overlaid), (1, 1), "{gets} {apart}");
        assert!((1..=gets).all(|host| net.begun(host) == 1), "nothing that came is taken back");
        assert!(net.copies() < 1.4 && last(&net) < 1.5, "{gets} {apart}");
    }
}

/// Goal: those that begin later than the overlay are no chain, in which each is as late as all before it. A packet takes 10 ms to a host, as
/// long as a busy host takes to pass it on. As a chain they took 1.33 to 1.37.
#[test]
fn gets_that_begin_one_after_the_other_are_no_chain() {
    for seed in 1..4 {
        let gets = 48;
        let late = (1..=gets).map(|n| (n, Duration::from_millis(20) * n as u64)).collect();
        let (delay, drains) = (Duration::from_millis(5), Some(Duration::from_secs(2)));
        let rate = BitRate::new(10_000_000);
        let spec = Spec { receivers: gets, rate, delay, late, drains, queue: 45, ..Spec::default() };
        let mut net = Net::new(spec, Bytes::mib(8), seed);
        net.run(LIMIT);
        print(&format!("{gets} gets, 20 ms apart"), &mut net);
        assert_eq!(ratios(&net).len(), gets);
        assert!(net.controller_stats().demoted == 0 && last(&net) < 1.32, "{seed}");
    }
}

/// Goal: one get by itself is served as ever, and one that is nearly through is left in peace.
#[test]
fn a_get_that_is_nearly_through_goes_on_as_it_is() {
    let late = vec![(1, Duration::ZERO), (2, Duration::from_millis(1500))];
    let spec = Spec { receivers: 2, late, drains: Some(Duration::ZERO), ..Spec::default() };
    let mut net = Net::new(spec, Bytes::mib(24), 12);
    net.run(LIMIT);
    print("the second comes at the end", &mut net);
    assert_eq!((ratios(&net).len(), net.begun(1), net.begun(2)), (2, 1, 1));
    assert_eq!(net.controller().swarms_overlaid, 0);
}

/// Goal: the second of two gets takes nothing of the first that is half through, and both cost the source less than two copies.
#[test]
fn a_get_that_is_half_through_passes_on_its_half() {
    let late = vec![(1, Duration::ZERO), (2, Duration::from_millis(1400))];
    let spec = Spec { receivers: 2, late, drains: Some(Duration::from_secs(2)), ..Spec::default() };
    let mut net = Net::new(spec, Bytes::mib(32), 14);
    net.run(LIMIT);
    print("the second comes in the middle", &mut net);
    assert_eq!((ratios(&net).len(), net.begun(1)), (2, 1));
    assert!(net.copies() < 1.5 && last(&net) < 1.9);
}

/// Goal: a get that is under way when a cast begins belongs to it.
#[test]
fn a_get_under_way_joins_a_cast() {
    let spec = Spec { late: vec![(4, Duration::from_millis(50))], ..Spec::default() };
    let mut net = Net::new(spec, Bytes::mib(32), 13);
    net.run(LIMIT);
    print("a get and a cast", &mut net);
    assert_eq!(ratios(&net).len(), 4);
    assert!(net.copies() < 1.4 && last(&net) < 1.5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Whatever is lost and reordered, whichever host dies and whenever: all others have all of it, and nothing but
    /// what is the object's.
    #[test]
    fn whoever_lives_has_it(
        seed in 0u64..1000,
        kib in 1u64..4000,
        receivers in 2usize..7,
        loss in 0.0f64..0.05,
        reorder in 0.0f64..0.02,
        dies in prop::option::of((1usize..7, 0u64..400)),
        racks in prop::sample::select(vec![&[][..], TWO_RACKS, &["a", "a", "a", "b", "c", "b", "b"]]),
    ) {
        let spec = Spec { receivers, loss, reorder, racks, ..Spec::default() };
        let mut net = Net::new(spec, Bytes::kib(kib), seed);
        let dies = dies.filter(|(host, _)| *host <= receivers);
        if let Some((host, at)) = dies {
            net.act(Duration::from_millis(at), Act::Kill(host));
        }
        net.run(LIMIT);
        let done = (1..=receivers).filter(|host| net.finished(*host).is_some()).count();
        prop_assert!(done >= receivers - usize::from(dies.is_some()), "{done} of {receivers}");
    }

    /// The same with gets that come whenever they like and go when they have it, one of them before.
    #[test]
    fn whoever_stays_has_it(
        seed in 0u64..1000,
        kib in 1u64..12_000,
        cast in 0usize..4,
        gets in prop::collection::vec(0u64..1500, 1..6),
        loss in 0.0f64..0.03,
        reorder in 0.0f64..0.02,
        drain in 0u64..500,
        goes in prop::option::of((0usize..5, 0u64..2500, any::<bool>())),
    ) {
        let receivers = cast + gets.len();
        let late = gets.iter().enumerate().map(|(n, at)| (cast + 1 + n, Duration::from_millis(*at))).collect();
        let drains = Some(Duration::from_millis(drain));
        let mut net = Net::new(Spec { receivers, loss, reorder, late, drains, ..Spec::default() }, Bytes::kib(kib), seed);
        let goes = goes.filter(|(n, at, _)| gets.get(*n).is_some_and(|begins| at > begins));
        if let Some((n, at, dies)) = goes {
            let host = cast + 1 + n;
            net.act(Duration::from_millis(at), if dies { Act::Kill(host) } else { Act::Leave(host) });
        }
        net.run(LIMIT);
        let done = (1..=receivers).filter(|host| net.finished(*host).is_some()).count();
        prop_assert!(done >= receivers - usize::from(goes.is_some()), "{done} of {receivers}");
    }
}
