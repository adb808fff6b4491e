//! Lost symbols are made good (PAM §III: NACKs).

use headwater_testkit::Weather;
use headwater_transport::rate::{RateReceiverConfig, Repair};
use headwater_wire::Body;

use crate::net::*;

fn lossy(receivers: usize, loss: f64, repair: Repair) -> Net {
    let receiver = RateReceiverConfig { repair, ..RateReceiverConfig::default() };
    let weather = Weather { loss, ..Weather::default() };
    let setup = Setup { blocks: 24, down: weather, up: weather, receiver, ..Setup::group(receivers) };
    Setup { group: receivers > 1, ..setup }.net()
}

/// Sent symbols for each of the object.
fn effort(net: &Net) -> f64 {
    net.symbols(net.main_flow()).len() as f64 / net.total() as f64
}

/// Goal: everything comes at 1 % and 10 % loss, of answers too, and what is sent for it is what the worst receiver of each block lacks.
#[test]
fn repair_symbols_serve_all_receivers() {
    for (receivers, loss, most) in
        [(1, 0.01, 1.05), (4, 0.01, 1.10), (16, 0.01, 1.13), (1, 0.1, 1.25), (4, 0.1, 1.38), (16, 0.1, 1.55)]
    {
        let mut net = lossy(receivers, loss, Repair::Coded);
        net.finish();
        net.is_settled();
        let sent = effort(&net);
        assert!(sent > 1.0 && sent < most, "{sent} with {receivers} receivers at a loss of {loss}");
        assert!(net.symbols(GROUP).iter().all(|it| it.at < at(ms(400))), "in good time");
    }
}

#[test]
fn lost_symbols_are_sent_again_in_the_papers_mode() {
    for (receivers, loss, most) in
        [(1, 0.01, 1.02), (4, 0.01, 1.06), (16, 0.01, 1.2), (1, 0.1, 1.16), (4, 0.1, 1.5), (16, 0.1, 2.3)]
    {
        let mut net = lossy(receivers, loss, Repair::Retransmitted);
        net.finish();
        net.is_settled();
        let sent = effort(&net);
        assert!(sent > 1.0 && sent < most, "{sent} with {receivers} receivers at a loss of {loss}");
        for it in &net.sent {
            let Body::ScheduledSymbol(it) = &it.body else { continue };
            assert!(it.symbol.esi.0 < 64, "source symbols only");
        }
    }
}

/// Goal: of many receivers the one that lost most decides; the sum over all is never sent.
#[test]
fn sixteen_receivers_that_lose_different_symbols_are_helped_by_the_same_ones() {
    let mut net = Setup { blocks: 4, ..Setup::group(16) }.net();
    net.meddler = Box::new(|receiver, body| match body {
        // Each loses four symbols of each block, all different.
        Body::ScheduledSymbol(it) => it.symbol.esi.0 as usize / 4 != receiver,
        _ => true,
    });
    net.finish();
    net.is_settled();
    let repairs = net.symbols(GROUP).len() as u64 - net.total();
    // Four, and two for sure, and perhaps what one more round asks for.
    assert!((4 * 4..=4 * 8).contains(&repairs), "{repairs}");
}

#[test]
fn the_last_symbols_are_missed_too() {
    let mut net = Setup { blocks: 2, ..Setup::group(2) }.net();
    let mut left = 10;
    net.meddler = Box::new(move |receiver, body| match body {
        Body::ScheduledSymbol(it) if receiver == 1 && it.symbol.block.0 == 1 && it.symbol.esi.0 >= 54 => {
            left -= 1;
            left < 0
        }
        _ => true,
    });
    net.finish();
    net.is_settled();
    assert!(net.receptions[1].done_at() < at(ms(10)), "{}", net.receptions[1].done_at());
}

#[test]
fn a_block_of_which_nothing_has_come_is_sent_again() {
    let mut net = Setup { blocks: 3, ..Setup::group(2) }.net();
    let mut left = 128;
    net.meddler = Box::new(move |receiver, body| match body {
        Body::ScheduledSymbol(it) if receiver == 0 && it.symbol.block.0 >= 1 && left > 0 => {
            left -= 1;
            false
        }
        _ => true,
    });
    net.finish();
    net.is_settled();
    assert!(net.receptions[0].done_at() < at(ms(30)), "{}", net.receptions[0].done_at());
}

/// Goal: nothing that is only late, doubled or overtaken is taken for lost for long.
#[test]
fn reordered_and_doubled_packets_cost_little() {
    let down = Weather { twice: 0.05, late: 0.05, by: us(60), ..Weather::default() };
    let mut net = Setup { blocks: 24, down, up: down, ..Setup::group(4) }.net();
    net.finish();
    net.is_settled();
    let sent = effort(&net);
    assert!(sent < 1.05, "{sent}");
}

/// As it is when a receiver's own buffers are full: what is dropped there is made good later.
#[test]
fn trimmed_symbols_are_missing_ones() {
    let mut net = Setup { blocks: 8, ..Setup::default() }.net();
    let mut nth = 0;
    net.meddler = Box::new(move |_, body| {
        if let Body::ScheduledSymbol(it) = body {
            nth += 1;
            it.trimmed = nth % 20 == 0;
        }
        true
    });
    net.finish();
    net.is_settled();
    assert!(net.nacks() > 0 && net.receptions[0].kept >= net.total());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let digest = |seed| {
        let weather = Weather { loss: 0.03, late: 0.03, twice: 0.03, by: us(100), ..Weather::default() };
        let mut net = Setup { blocks: 6, down: weather, up: weather, seed, ..Setup::group(3) }.net();
        net.network.digest = Some(0);
        net.finish();
        (net.network.digest, net.network.now())
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}
