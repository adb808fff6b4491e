//! Several receivers of one transfer: how much they say, and what becomes of those that say nothing (PAM §III-B; SCDP §III-E).

use headwater_testkit::Weather;
use headwater_units::{BitRate, Time};
use headwater_wire::{Body, FinReason};

use crate::net::*;

#[test]
fn a_group_is_sent_every_symbol_once() {
    let mut net = Setup { blocks: 16, ..Setup::group(8) }.net();
    net.finish();
    net.is_settled();
    assert_eq!(net.symbols(GROUP).len() as u64, net.total());
    assert_eq!((0..8).map(|it| net.symbols(flow(it)).len()).sum::<usize>(), 0);
    assert_eq!(net.nacks(), 0);
    assert_eq!(net.closed.last(), Some(&GROUP), "the group ends with its last member");
}

/// Goal: 64 receivers behind one bottleneck, whose offers all change at once, do not answer at once, and not more than they must.
#[test]
fn sixty_four_receivers_do_not_storm() {
    let mut net = Setup { blocks: 400, ..Setup::group(64) }.net();
    for change in 1..=20u64 {
        let rate = mbps(if change % 2 == 0 { 800 } else { 400 });
        net.call(ms(20 + change * 2), move |net| net.ports.fill(Some(rate)));
    }
    net.run(ms(70));
    // The first offers of all come within a millisecond, since the source knows no round trip yet, and some again, over
    // the 100 us that a probe takes then.
    let first: Vec<Time> =
        net.answers.iter().map(|it| it.at).filter(|it| *it > at(us(0)) && *it < at(ms(2))).collect();
    let together = |at: &Time| first.iter().filter(|it| **it >= *at && it.since(*at) < us(50)).count();
    assert!((64..200).contains(&first.len()), "{} answers", first.len());
    assert!(first.iter().all(|at| together(at) < 48), "{:?}", first.iter().map(together).max());
    let answers: Vec<Time> = net.answers.iter().map(|it| it.at).filter(|it| *it >= at(ms(20))).collect();
    let packets = net.symbols(GROUP).iter().filter(|it| it.at >= at(ms(20))).count();
    // One for each change and receiver, and now and then one more: a packet is answered once in 100 over all of them.
    let most = 64 * 20 + packets / 50 + 64;
    assert!(
        (64 * 20..=most).contains(&answers.len()),
        "{} answers to {packets} packets, at most {most}",
        answers.len()
    );
    // They are spread over a round trip of 168 us: never more than a fifth of them within a twentieth of it.
    for (nth, first) in answers.iter().enumerate() {
        let together = answers[nth..].iter().take_while(|it| it.since(*first) < us(8)).count();
        assert!(together <= 14, "{together} within 8 us");
    }
}

/// Goal: a loss that all of 64 receivers share costs one NACK of each in a round trip at most.
#[test]
fn shared_losses_make_no_storm_of_nacks() {
    let mut net = Setup { blocks: 40, ..Setup::group(64) }.net();
    net.meddler = Box::new(|_, body| match body {
        // The same symbols are lost to all, one in twelve.
        Body::ScheduledSymbol(it) => it.symbol.esi.0 % 12 != 5,
        _ => true,
    });
    net.finish();
    net.is_settled();
    let span = net.receptions.iter().map(|it| it.done_at()).max().unwrap().since(Time::ZERO);
    let round_trips = span.as_nanos() / us(168).as_nanos();
    assert!((net.nacks() as u64) < 64 * round_trips, "{} in {round_trips} round trips", net.nacks());
    for receiver in 0..64 {
        let mut nacks =
            net.answers.iter().filter(|it| it.flow == flow(receiver) && matches!(it.body, Body::Nack(_)));
        let mut last = nacks.next().unwrap().at;
        for it in nacks {
            assert!(it.at.since(last) >= us(50), "{:?} after the last", it.at.since(last));
            last = it.at;
        }
    }
}

#[test]
fn a_frozen_receiver_is_left_behind_and_told_and_catches_up_alone() {
    let mut net = Setup { blocks: 600, ports: Some(mbps(400)), ..Setup::group(4) }.net();
    net.setup.source.detach_after = ms(500);
    net.call(ms(100), |net| net.freeze(2));
    net.call(ms(1200), |net| net.thaw(2));
    net.finish();
    net.is_settled();
    // At 400 Mbit/s the object takes 3.2 s; the others have waited for nobody.
    for receiver in [0, 1, 3] {
        let took = net.receptions[receiver].done_at().since(Time::ZERO);
        assert!(took < ms(3400), "receiver {receiver} took {took:?}");
    }
    let told = net.sent.iter().filter(|it| it.flow == flow(2) && it.body == Body::Detached);
    assert!((1..=10).contains(&told.count()), "until it has understood");
    let own = net.symbols(flow(2)).len() as u64;
    // It slept for a third of the time.
    assert!(own > net.total() / 4 && own < net.total() / 2, "{own} of {}", net.total());
    let rest: u64 = [0, 1, 3].map(|it| net.symbols(flow(it)).len() as u64).iter().sum();
    assert_eq!(rest, 0);
}

/// Goal: what a group brings is not sent a second time to one that was left behind because its own words were lost.
#[test]
fn who_is_left_behind_and_has_missed_nothing_asks_for_nothing_alone() {
    let mut net = Setup { blocks: 300, ports: Some(mbps(400)), ..Setup::group(3) }.net();
    net.setup.source.detach_after = ms(500);
    net.call(ms(100), |net| net.mute = Some(2));
    net.call(ms(900), |net| net.mute = None);
    net.finish();
    net.is_settled();
    assert!(net.sent.iter().any(|it| it.flow == flow(2) && it.body == Body::Detached));
    assert_eq!(net.symbols(flow(2)).len(), 0);
}

#[test]
fn a_killed_receiver_holds_nobody_up_for_long_and_is_forgotten() {
    let mut net = Setup { blocks: 200, ..Setup::group(3) }.net();
    net.call(ms(20), |net| {
        // Its path offered nothing when it died.
        net.ports[0] = Some(BitRate::ZERO);
        net.call(ms(21), |net| net.freeze(0));
    });
    net.finish_but(&[0]);
    let last = net.receptions[1].done_at();
    assert!(last < at(ms(20 + 500 + 200 + 530)), "{last}");
    // Its flow is over 40 s after its last word.
    net.run(headwater_units::Duration::from_secs(45));
    assert_eq!(net.source().flows().count(), 0);
    assert!(net.preparation.is_empty());
}

/// Goal: of the only receiver nothing is known when it is silent; after half a second it gets probes only, and goes on when it is back.
#[test]
fn a_single_receiver_that_is_silent_is_only_probed() {
    let mut net = Setup { blocks: 800, ..Setup::default() }.net();
    net.call(ms(100), |net| net.freeze(0));
    net.call(ms(1500), |net| net.thaw(0));
    net.run(ms(1500));
    let last = net.symbols(flow(0)).last().unwrap().at;
    assert!(last > at(ms(500)) && last < at(ms(620)), "{last}");
    net.finish();
    net.is_settled();
    let mut net = Setup { blocks: 800, ..Setup::default() }.net();
    net.call(ms(100), |net| net.freeze(0));
    net.run(headwater_units::Duration::from_secs(45));
    assert_eq!(net.source().flows().count(), 0, "and forgotten 40 s after its last word");
}

#[test]
fn a_receiver_that_never_speaks_is_waited_for_and_then_left_behind() {
    let mut net = Setup { blocks: 8, absent: Some(1), ..Setup::group(3) }.net();
    net.run(ms(900));
    assert_eq!(net.symbols(GROUP).len(), 0, "it may be late");
    net.finish_but(&[1]);
    assert!(net.receptions[0].done_at() < at(ms(1250)), "{}", net.receptions[0].done_at());
    net.call(ms(3000), |net| {
        net.thaw(1);
        net.ask(1);
    });
    net.finish();
    net.is_settled();
    let own = net.symbols(flow(1)).len() as u64;
    assert!(
        (net.total()..=net.total() + 2 * 8).contains(&own),
        "two for each block may be asked for to be sure: {own}"
    );
}

#[test]
fn where_all_are_silent_nobody_is_left_behind_and_nothing_but_probes_is_sent() {
    let mut net = Setup { blocks: 400, ..Setup::group(2) }.net();
    net.call(ms(50), |net| (0..2).for_each(|it| net.freeze(it)));
    net.call(ms(2000), |net| (0..2).for_each(|it| net.thaw(it)));
    net.finish();
    net.is_settled();
    let meanwhile = |it: &&&Left| it.at > at(ms(700)) && it.at < at(ms(2000));
    assert_eq!(net.symbols(GROUP).iter().filter(meanwhile).count(), 0);
    assert_eq!((0..2).map(|it| net.symbols(flow(it)).len()).sum::<usize>(), 0, "the group goes on");
    assert!(net.sent.iter().all(|it| it.body != Body::Detached));
    let probes = net.probes(GROUP).into_iter().filter(|it| *it > at(ms(700)) && *it < at(ms(2000))).count();
    assert!((20..150).contains(&probes), "{probes} in 1.3 s, ever more rarely");
}

/// Goal: half of all answers and FINs are lost; everything comes, and every flow ends.
#[test]
fn lost_feedback_and_lost_fins_are_made_good() {
    let up = Weather { loss: 0.5, ..Weather::default() };
    let mut net = Setup { blocks: 40, up, ..Setup::group(4) }.net();
    for change in 1..=8u64 {
        let rate = mbps(if change % 2 == 0 { 700 } else { 100 });
        net.call(ms(5 * change), move |net| net.ports.fill(Some(rate)));
    }
    net.meddler = Box::new(|_, body| !matches!(body, Body::ScheduledFin(_) | Body::FinAck));
    net.finish();
    assert!(net.receptions.iter().all(|it| it.done_at() < at(ms(600)) && it.ended));
    assert_eq!(net.source().flows().count(), 0);
    // An offer that falls and is lost is repeated: nothing leaves faster than 100 Mbit/s for more than a few round
    // trips.
    let is_high = |it: &&(Time, BitRate)| it.1 > mbps(101) && it.0 > at(ms(7)) && it.0 < at(ms(10));
    assert_eq!(net.rates().iter().filter(is_high).count(), 0, "{:?}", net.rates());
}

#[test]
fn a_receiver_that_leaves_is_not_waited_for() {
    let mut net = Setup { blocks: 100, ..Setup::group(2) }.net();
    net.call(ms(10), |net| net.ports[0] = Some(mbps(10)));
    net.call(ms(15), |net| net.cancel(0));
    net.finish_but(&[0]);
    assert!(net.receptions[1].done_at() < at(ms(340)), "{}", net.receptions[1].done_at());
    let fins = net.answers.iter().filter(|it| it.body == Body::Fin(FinReason::Cancelled)).count();
    assert_eq!(fins, 1);
}
