//! One receiver, and the least of several offers (PAM §III-A).

use headwater_transport::rate::RateSourceConfig;
use headwater_units::{BitRate, Duration};
use headwater_wire::Body;

use crate::net::*;

/// The round trip of a symbol: two lines, and the delay there and back.
fn round_trip() -> headwater_units::Duration {
    us(100 + 2 * 34)
}

#[test]
fn an_object_comes_at_the_rate_that_the_switch_leaves_it() {
    let mut net = Setup { blocks: 40, ..Setup::default() }.net();
    net.finish();
    net.is_settled();
    assert_eq!(net.symbols(flow(0)).len() as u64, net.total(), "nothing twice");
    assert_eq!((net.nacks(), net.receptions[0].kept), (0, net.total()));
    let rates = net.rates();
    assert_eq!(rates.len(), 1, "{rates:?}");
    assert!(rates[0].1.get().abs_diff(800_000_000) < 200);
    let ideal = headwater_units::Bytes::new(net.total() * (4096 + 58)) / mbps(800);
    let took = net.receptions[0].done_at().since(headwater_units::Time::ZERO);
    assert!(took < ideal + ms(2), "{took:?} where {ideal:?} would do");
}

#[test]
fn nothing_is_sent_before_the_first_feedback_and_a_round_trip_later_it_is() {
    let mut net = Setup::default().net();
    net.finish();
    let first = net.symbols(flow(0))[0].at;
    let heard = net.answers.iter().position(|it| match &it.body {
        Body::RateFeedback(it) => it.scheduling.offer() > BitRate::ZERO,
        _ => false,
    });
    let answered = net.answers[heard.unwrap()].at;
    assert_eq!(first, answered + net.setup.delay, "as soon as the offer is here");
    for it in &net.sent {
        if let (Body::RateProbe(probe), true) = (&it.body, it.at < first) {
            assert_eq!(
                (probe.scheduling.rate(), probe.scheduling.offer().get() >> 7 << 7),
                (BitRate::ZERO, 1_000_000_000 >> 7 << 7)
            );
        }
    }
}

/// Goal: a controller that takes the round trip for too long costs no more than the round trips in which the paths are proved: the
/// source asks again as soon as it knows, and its receivers spread what they say over that.
#[test]
fn a_round_trip_that_was_guessed_too_long_is_forgotten_when_the_paths_have_answered() {
    let mut setup = Setup { delay: ms(5), said_rtt: Some(ms(400)), ..Setup::group(3) };
    setup.source.validates_paths = true;
    let mut net = setup.net();
    net.finish();
    net.is_settled();
    let first = net.symbols(GROUP)[0].at;
    // There and back each: the opening and the challenge, its echo and a probe, and an answer that waits for a round trip at most.
    assert!(first < at(ms(50)), "{first}");
}

/// Goal: whatever the switch leaves, the transfer is at that rate three round trips later (PAM: one or two for a stable load).
#[test]
fn the_rate_follows_the_least_offer_within_three_round_trips() {
    let mut net = Setup { blocks: 200, ..Setup::group(4) }.net();
    let changes = [(20, 1, 300), (30, 2, 200), (40, 2, 700), (50, 1, 900), (60, 0, 50), (70, 0, 800)];
    for (after, receiver, rate) in changes {
        net.call(ms(after), move |net| net.ports[receiver] = Some(mbps(rate)));
    }
    net.run(ms(80));
    // The rate in the first symbol that leaves by then.
    let sent = net.symbols(GROUP);
    let rate_at = |time| {
        let Body::ScheduledSymbol(it) = &sent.iter().find(|it| it.at > time).unwrap().body else {
            unreachable!()
        };
        it.scheduling.rate().get() / 1_000_000
    };
    let least = [(20, 300), (30, 200), (40, 300), (50, 700), (60, 50), (70, 700)];
    for (after, expected) in least {
        let then = rate_at(at(ms(after) + round_trip() * 3));
        // A rate is rounded down to its unit.
        assert!(
            (expected - 1..=expected).contains(&then),
            "{then} where {expected} is left after {after} ms"
        );
    }
    net.ports.fill(Some(mbps(800)));
    net.finish();
    net.is_settled();
}

#[test]
fn a_paused_transfer_probes_once_in_an_interval_and_goes_on_when_something_is_left() {
    let mut net = Setup { blocks: 100, ..Setup::default() }.net();
    net.call(ms(5), |net| net.ports[0] = Some(BitRate::ZERO));
    net.call(ms(15), |net| net.ports[0] = Some(mbps(500)));
    net.finish();
    net.is_settled();
    let paused: Vec<_> =
        net.probes(flow(0)).into_iter().filter(|it| (at(ms(6))..at(ms(15))).contains(it)).collect();
    let rtt = us(100 + 34);
    // A probe is short: its round trip is that of the delay, and the smoothed one falls to it.
    assert!((50..=92).contains(&paused.len()), "{} probes in 9 ms, {rtt:?} apart", paused.len());
    let gaps: Vec<_> = paused.windows(2).map(|it| it[1].since(it[0])).collect();
    assert!(gaps.iter().all(|gap| *gap >= us(100) && *gap <= us(170)), "{gaps:?}");
    let sent = net.symbols(flow(0));
    assert!(sent.iter().all(|it| it.at < at(ms(6)) || it.at > at(ms(15))), "nothing meanwhile");
    let again = sent.iter().find(|it| it.at > at(ms(15))).unwrap().at;
    assert!(again < at(ms(15)) + us(170) * 3, "{again}");
}

/// PAM §III-A: I is set by the remaining size; every 100 MB another round trip. Goal: a receiver that waits for others
/// to be done waits as long as that takes.
#[test]
fn a_receiver_waits_for_its_turn_longer_than_for_a_source_that_is_gone() {
    let mut net = Setup { ports: Some(mbps(0)), ..Setup::group(2) }.net();
    net.call(Duration::from_secs(45), |net| net.ports.fill(Some(mbps(800))));
    net.run(Duration::from_secs(44));
    assert!(net.receptions.iter().all(|it| it.finished.is_none()) && net.symbols(GROUP).is_empty());
    net.run(Duration::from_secs(46));
    assert!(net.receptions.iter().all(|it| it.done().is_some()));
}

#[test]
fn a_long_transfer_probes_more_rarely() {
    let probes = |blocks| {
        let mut net = Setup { blocks, ports: Some(BitRate::ZERO), ..Setup::default() }.net();
        net.run(ms(100));
        net.probes(flow(0)).len()
    };
    let (short, long, longest) = (probes(8), probes(1600), probes(40_000));
    // 8 blocks are 2 MB, 1600 are 426 MB with headers: an interval of one round trip, of four, and of ten at most.
    let ratio = short as f64 / long as f64;
    assert!((3.6..=4.4).contains(&ratio), "{short} and {long}");
    let ratio = short as f64 / longest as f64;
    assert!((9.0..=11.0).contains(&ratio), "{short} and {longest}");
}

/// Goal: two that share a slow link are both sent, though a symbol waits for 145 ms; one that is granted next to nothing asks.
#[test]
fn on_a_slow_link_a_share_of_it_is_a_rate() {
    let link = BitRate::new(500_000);
    let sent = |granted| {
        let source = RateSourceConfig { longest_gap: ms(50), ..RateSourceConfig::data_centre(link) };
        let ports = Some(BitRate::new(granted));
        let mut net = Setup { blocks: 1, link, ports, source, ..Setup::default() }.net();
        net.run(Duration::from_secs(5));
        net.symbols(flow(0)).len()
    };
    assert!((30..40).contains(&sent(230_000)), "{}", sent(230_000));
    assert_eq!(sent(100_000), 0);
}

/// An offer that something behind the switch has raised, as far as the header goes.
#[test]
fn an_offer_above_the_rate_of_the_link_is_cut_to_that() {
    let mut net = Setup { blocks: 40, link: mbps(100), ..Setup::default() };
    net.source.link = mbps(100);
    let mut net = net.net();
    net.meddler = Box::new(|_, body| {
        if let Some(it) = body.negotiated_mut() {
            *it = headwater_wire::Scheduling::new(it.unit(), it.rank(), it.rate(), mbps(100_000));
        }
        true
    });
    net.finish();
    net.is_settled();
    let rates = net.rates();
    assert!(rates.iter().all(|(_, rate)| *rate <= mbps(100)), "{rates:?}");
    let sent = net.symbols(flow(0));
    let span = sent.last().unwrap().at.since(sent[0].at);
    let rate = headwater_units::Bytes::new((sent.len() as u64 - 1) * (4096 + 58)) / span;
    assert!(rate <= mbps(101), "{rate}");
}

#[test]
fn a_receiver_that_is_slower_than_the_network_offers_less() {
    let limit = Some(mbps(200));
    let mut net = Setup { blocks: 40, limit, ..Setup::default() }.net();
    net.finish();
    assert!(net.rates().iter().all(|(_, rate)| *rate <= mbps(200)), "{:?}", net.rates());
    // 2 ms for each block of 262 KB, one after the other within this bound: some 1 Gbit/s come in, 256 KiB in 2 ms go out for each of 4.
    let slow = Setup { blocks: 40, decoding: ms(8), blocks_in_flight: 4, ..Setup::default() };
    let mut net = slow.net();
    net.finish();
    net.is_settled();
    let surplus = net.receiver(0).strays();
    assert_eq!(surplus, 0);
    let rates: Vec<_> = net.rates().iter().map(|(_, rate)| rate.get() / 1_000_000).collect();
    assert!(rates.iter().any(|rate| *rate < 500), "{rates:?}");
}
