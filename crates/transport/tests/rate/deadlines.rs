//! Transfers whose deadline cannot be met any more (PAM §III-A), and those that give their share back early (footnote 3).

use headwater_policy::pam::{Late, Order};
use headwater_transport::ReceiverFailure;
use headwater_units::{BitRate, Bytes, Rank};
use headwater_wire::{Body, TransferEnd};

use crate::net::*;

/// 80 blocks take 171 ms at the rate of the link.
fn late(late: Late) -> Net {
    let mut setup = Setup { blocks: 80, deadline: Some(ms(200)), ..Setup::group(2) };
    setup.source.ranking.late = late;
    let mut net = setup.net();
    // From 50 ms on nothing is left for it. 85 ms later the rest cannot be sent any more by 200 ms.
    net.call(ms(50), |net| net.ports[0] = Some(BitRate::ZERO));
    net.call(ms(300), |net| net.ports[0] = Some(mbps(800)));
    net
}

fn fins(net: &Net, end: TransferEnd) -> Vec<headwater_units::Time> {
    let is = |it: &&Left| matches!(&it.body, Body::ScheduledFin(fin) if fin.end == end);
    net.sent.iter().filter(is).map(|it| it.at).collect()
}

#[test]
fn a_hopeless_transfer_goes_on_unless_it_is_told_otherwise() {
    let mut net = late(Late::RanksLast);
    net.finish();
    net.is_settled();
    assert_eq!(fins(&net, TransferEnd::Late), []);
}

#[test]
fn a_hopeless_transfer_ends_when_it_becomes_so() {
    let mut net = late(Late::Dropped);
    net.run(ms(1000));
    let left = net.total() - net.symbols(GROUP).len() as u64;
    let takes = Bytes::new(left * (4096 + 58)) / mbps(1000);
    let hopeless = at(ms(200).saturating_sub(takes));
    let said = fins(&net, TransferEnd::Late);
    assert!(said[0].since(hopeless) < us(400), "{} when {hopeless} was the last moment", said[0]);
    for reception in &net.receptions {
        let (failed_at, failure) = reception.finished.clone().unwrap();
        assert!(matches!(failure, Err(ReceiverFailure::Late { missing }) if missing > 0), "{failure:?}");
        assert!(failed_at < at(ms(210)));
    }
    assert_eq!(net.source().flows().count(), 0, "nothing is left of it");
}

#[test]
fn a_lost_fin_is_said_again() {
    let mut net = late(Late::Dropped);
    let mut lost = 0;
    net.meddler = Box::new(move |receiver, body| {
        lost += u32::from(receiver == 0 && matches!(body, Body::ScheduledFin(_)));
        !(receiver == 0 && matches!(body, Body::ScheduledFin(_)) && lost <= 3)
    });
    net.run(ms(1000));
    assert!(
        net.receptions.iter().all(|it| matches!(it.finished, Some((_, Err(ReceiverFailure::Late { .. })))))
    );
}

#[test]
fn a_transfer_that_meets_its_deadline_is_left_alone() {
    let mut setup = Setup { blocks: 80, deadline: Some(ms(230)), ..Setup::group(2) };
    setup.source.ranking.late = Late::Dropped;
    let mut net = setup.net();
    net.finish();
    net.is_settled();
    assert!(net.receptions[0].done_at() < at(ms(230)));
}

#[test]
fn the_share_is_given_back_before_the_last_symbols_if_wanted() {
    let mut setup = Setup { blocks: 8, ..Setup::default() };
    setup.source.early_start = true;
    let mut net = setup.net();
    net.finish();
    net.is_settled();
    let fin = fins(&net, TransferEnd::Early)[0];
    let mut given_back = false;
    for it in &net.sent {
        match &it.body {
            Body::ScheduledFin(_) => given_back = true,
            Body::ScheduledSymbol(symbol) => assert_eq!(symbol.last, given_back, "at {}", it.at),
            _ => {}
        }
    }
    let end = net.symbols(flow(0)).last().unwrap().at;
    assert!(end.since(fin) <= us(170) && end > fin, "{}", end.since(fin));
    let mut plain = Setup { blocks: 8, ..Setup::default() }.net();
    plain.finish();
    assert_eq!(fins(&plain, TransferEnd::Early), []);
}

#[test]
fn every_datagram_states_the_rank_that_the_policy_gives_at_that_moment() {
    let mut setup = Setup { blocks: 4, deadline: Some(ms(900)), ..Setup::group(3) };
    setup.source.ranking.order = Order::SmallestRemaining;
    let mut net = setup.net();
    net.finish();
    let mut left = net.total();
    for it in net.symbols(GROUP) {
        let Body::ScheduledSymbol(symbol) = &it.body else { unreachable!() };
        assert_eq!(symbol.scheduling.rank(), Rank::of(left * u64::from(SYMBOL) * 3));
        left -= 1;
    }
}
