//! Where no switch computes rates, a transfer overruns what is narrower than the source's link; then it goes on by pulls.

use headwater_testkit::Weather;
use headwater_transport::WhyFallback;
use headwater_transport::rate::FallbackConfig;
use headwater_wire::{Body, Scheduling};

use crate::net::*;

/// A network that is believed only as long as it behaves.
fn suspicious(setup: Setup) -> Setup {
    let mut setup = Setup { blocks: 100, ..setup };
    setup.source.fallback = Some(FallbackConfig::default());
    setup
}

/// All have everything in the end, what came before was kept, and nothing scheduled left after the fallback but its end.
fn went_on_by_pulls(net: &mut Net, why: WhyFallback) {
    net.finish();
    assert_eq!(net.fell_back, [(net.main_flow(), why)]);
    assert!(net.receptions.iter().all(|it| it.done().is_some() && it.ended));
    assert_eq!(net.source().flows().count(), 0);
    let scheduled = net.symbols(net.main_flow()).len() as u64;
    let pulled = net.sent.iter().filter(|it| matches!(it.body, Body::Symbol(_))).count() as u64;
    assert!(scheduled > 200 && pulled > 1000, "{scheduled} and {pulled}");
    for reception in &net.receptions {
        assert!(reception.kept <= net.total() * 105 / 100, "{} kept of {}", reception.kept, net.total());
        assert_eq!(reception.begun, 1, "what was here in part was kept");
    }
}

#[test]
fn a_loss_above_two_per_cent_falls_back_to_a_pulled_group() {
    let down = Weather { loss: 0.03, ..Weather::default() };
    let mut net = suspicious(Setup { down, ..Setup::group(3) }).net();
    went_on_by_pulls(&mut net, WhyFallback::Loss);
}

#[test]
fn a_loss_of_one_per_cent_does_not() {
    let down = Weather { loss: 0.01, ..Weather::default() };
    let mut net = suspicious(Setup { down, ..Setup::group(3) }).net();
    net.finish();
    net.is_settled();
    assert_eq!(net.fell_back, []);
}

/// Goal: without a switch that computes rates, a port of half the source's rate loses half, if it has no room for a queue.
#[test]
fn a_network_that_computes_nothing_is_found_out_by_its_losses() {
    let mut net = suspicious(Setup { ports: None, room: 2, ..Setup::group(2) }).net();
    net.network.links[1].line = headwater_testkit::Line::Rate(mbps(500));
    went_on_by_pulls(&mut net, WhyFallback::Loss);
    let last = net.symbols(GROUP).last().unwrap().at;
    assert!(last < at(ms(200)), "{last}");
}

/// Goal: a device that raises offers behind the switch costs the transfer its rates, and nobody else more than what it
/// overruns until it is found out.
#[test]
fn offers_that_are_raised_behind_the_switch_end_in_a_fallback() {
    let ports = Some(mbps(400));
    let mut net = suspicious(Setup { ports, room: 2, ..Setup::group(2) }).net();
    net.network.links[1].line = headwater_testkit::Line::Rate(mbps(500));
    net.meddler = Box::new(|_, body| {
        if let Some(it) = body.negotiated_mut() {
            *it = Scheduling::new(it.unit(), it.rank(), it.rate(), mbps(1_000_000));
        }
        true
    });
    went_on_by_pulls(&mut net, WhyFallback::Loss);
    assert!(net.rates().iter().all(|(_, rate)| *rate <= net.setup.link), "its own link bounds it");
}

/// Goal: one slow receiver among fast ones, whichever it is and however early it is found out, keeps nobody from the object.
#[test]
fn a_single_narrow_port_among_wide_ones_is_found_out() {
    for (narrow, room, rate) in [(1, 2, 250), (3, 2, 250), (2, 100, 100), (4, 300, 250)] {
        let setup = Setup { ports: None, room, ..Setup::group(4) };
        let mut net = suspicious(setup).net();
        net.network.links[narrow].line = headwater_testkit::Line::Rate(mbps(rate));
        net.finish();
        assert!(!net.fell_back.is_empty(), "{narrow}, {room}, {rate}");
        assert!(net.receptions.iter().all(|it| it.done().is_some() && it.ended));
    }
}

/// Goal: a port that is a little too narrow, with a deep buffer, loses nothing; its queue stands.
#[test]
fn a_standing_queue_falls_back_too() {
    let mut net = suspicious(Setup { ports: None, room: 100_000, ..Setup::default() }).net();
    net.network.links[1].line = headwater_testkit::Line::Rate(mbps(900));
    went_on_by_pulls(&mut net, WhyFallback::StandingQueue);
}

#[test]
fn a_network_that_computes_rates_is_trusted() {
    for setup in [Setup::default(), Setup::group(4)] {
        let mut net = suspicious(setup).net();
        for change in 1..=10u64 {
            let rate = mbps(if change % 2 == 0 { 900 } else { 200 });
            net.call(ms(10 * change), move |net| net.ports.fill(Some(rate)));
        }
        net.finish();
        net.is_settled();
        assert_eq!(net.fell_back, []);
    }
}
