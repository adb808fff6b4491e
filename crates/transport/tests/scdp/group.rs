//! One source, several receivers over a network that copies (SCDP §III-E).

use headwater_transport::pull::{PullFlowConfig, SessionConfig};
use headwater_transport::source::SourceConfig;
use headwater_units::Time;
use headwater_wire::{Body, Pull};

use crate::net::*;

fn four(blocks: u64) -> Net {
    let mut source = SourceConfig { pull: PullFlowConfig::data_centre(), ..SourceConfig::default() };
    source.pull.detach_after = ms(20);
    source.pull.retell = ms(2);
    Setup { receivers: 4, group: true, source, ..Setup::blocks(blocks) }.net()
}

/// Symbols that the group's flow sent, and those that receivers got by their own.
fn sent(net: &Net) -> (u32, u32) {
    let own = (0..4).map(|receiver| net.sent(0, flow(0, receiver)).len() as u32).sum();
    (net.sent(0, GROUP).len() as u32, own)
}

#[test]
fn a_group_is_sent_every_symbol_once() {
    let mut net = four(4);
    net.finish();
    assert_eq!(sent(&net), (4 * K, 0));
    for receiver in &net.receivers {
        let stats = receiver.session.stats();
        assert_eq!((stats.surplus, stats.timeouts, stats.detached), (0, 0, 0), "{stats:?}");
        assert!(receiver.got.done_at() < Time::ZERO + PACKET * u64::from(4 * K) + us(400));
    }
    assert_eq!(
        net.sources[0].closed_at.last().map(|it| it.1),
        Some(GROUP),
        "the group ends with its last member"
    );
}

#[test]
fn members_that_lose_different_symbols_decode_from_different_ones() {
    let mut net = four(4);
    // Each member loses another fifteenth of the symbols.
    net.there(|nth, it| {
        let receiver = (it.to - 1) as u64;
        if matches!(it.packet.datagram.body, Body::Symbol(_)) && nth / 4 % 60 == 15 * receiver {
            Fate::Trimmed
        } else {
            Fate::Arrives
        }
    });
    net.finish();
    let (by_group, own) = sent(&net);
    assert_eq!(own, 0);
    // The worst member of each block needs some 1 + 2 more; not the sum over all.
    assert!(by_group <= 4 * K + 4 * 5, "{by_group}");
    for receiver in &net.receivers {
        let stats = receiver.session.stats();
        assert!(stats.trimmed > 0 && stats.repair_used > 0, "{stats:?}");
        assert_eq!((stats.timeouts, stats.detached), (0, 0), "{stats:?}");
    }
}

#[test]
fn a_frozen_member_is_detached_and_catches_up_by_itself() {
    let mut net = four(40);
    net.call(ms(5), |net| net.receivers[2].frozen = true);
    net.call(ms(60), |net| net.thaw(2));
    net.finish();
    let stats: Vec<_> = net.receivers.iter().map(|receiver| receiver.session.stats()).collect();
    assert_eq!(stats.iter().map(|stats| stats.detached).collect::<Vec<_>>(), [0, 0, 1, 0]);
    let (by_group, own) = sent(&net);
    // While the group waits for it, the others ask again now and then.
    assert!(by_group <= 40 * K * 105 / 100, "{by_group} of {}", 40 * K);
    assert!(own > 10 * K && own <= 40 * K, "{own}");
    for (index, receiver) in net.receivers.iter().enumerate().filter(|(index, _)| *index != 2) {
        let ideal = PACKET * u64::from(40 * K) + ms(20);
        let took = receiver.got.done_at().since(Time::ZERO);
        assert!(took < ideal * 12 / 10, "member {index} took {took:?} where {ideal:?} would do");
    }
    assert!(net.sources[0].detached_sent > 1, "it is told until it understands");
    assert_eq!(net.sources[0].opened, 5);
}

#[test]
fn a_member_that_never_hears_that_it_is_detached_leaves_by_itself() {
    let mut net = four(8);
    // Nothing of the group's reaches it.
    net.there(|_, it| match it.packet.datagram.body {
        Body::Detached => Fate::Lost,
        Body::Symbol(_) if it.packet.datagram.flow == GROUP && it.to == 2 => Fate::Lost,
        _ => Fate::Arrives,
    });
    net.finish();
    let stats: Vec<_> = net.receivers.iter().map(|receiver| receiver.session.stats()).collect();
    assert_eq!(stats.iter().map(|stats| stats.detached).collect::<Vec<_>>(), [0, 1, 0, 0]);
    // Of the first block something was lost, as far as it knows.
    let own = net.sent(0, flow(0, 1));
    assert_eq!(
        (own.len() as u32, own[0].symbol.esi.0),
        (8 * K + 2, 0),
        "all of it, from the first symbol on"
    );
}

#[test]
fn a_dead_member_ends_when_the_controller_stops_its_flow() {
    let mut net = four(8);
    net.receivers[3].frozen = true;
    net.run(ms(200));
    for receiver in &net.receivers[..3] {
        assert!(receiver.got.finished.is_some());
    }
    assert_eq!(net.sources[0].source.flows().count(), 2, "the dead member's, and the group's");
    net.order(0, headwater_wire::Control::Source(headwater_wire::ToSource::Stop { flow: flow(0, 3) }));
    assert_eq!(net.sources[0].source.flows().count(), 0);
    assert!(net.stopped.contains(&GROUP));
}

#[test]
fn a_group_whose_farewells_are_lost_is_let_go() {
    let mut net = four(8);
    net.back(farewells_are_lost());
    net.run(PullFlowConfig::default().silent_release - ms(1));
    assert!(net.receivers.iter().all(|receiver| receiver.session.has_ended()));
    assert_eq!(net.sources[0].source.flows().count(), 5);
    net.run(ms(200));
    assert_eq!(net.sources[0].source.flows().count(), 0, "the group's goes with the last member's");
    assert!(net.stopped.contains(&GROUP));
}

#[test]
fn pulls_of_members_may_be_lost() {
    let mut net = four(6);
    net.back(|nth, it| match it.packet.datagram.body {
        Body::Pull(_) if nth % 9 == 4 => Fate::Lost,
        _ => Fate::Arrives,
    });
    net.finish();
    let (by_group, own) = sent(&net);
    assert!(own == 0 && by_group <= 6 * K + 12, "{by_group} {own}");
}

#[test]
fn a_member_that_goes_alone_counts_from_zero() {
    let mut net = four(10);
    net.call(ms(2), |net| net.receivers[0].frozen = true);
    net.call(ms(40), |net| net.thaw(0));
    net.finish();
    let detached: Vec<Pull> =
        net.receivers[0].pulled.iter().map(|it| it.2).filter(|pull| pull.detached).collect();
    assert_eq!(detached.first().map(|pull| pull.sequence), Some(1));
    // Where it has a part of a block it asks for symbols that no group was sent.
    let starts: Vec<u32> =
        detached.iter().flat_map(|pull| pull.wants).flatten().map(|want| want.start).collect();
    assert!(starts.contains(&(1 << 20)) && starts.contains(&0), "{starts:?}");
}

/// Strangers, as on real networks: sources believe no address that has not answered, and receivers open their flows.
fn strangers(blocks: u64) -> Net {
    Setup {
        receivers: 4,
        group: true,
        source: SourceConfig::default(),
        session: SessionConfig::default(),
        ..Setup::blocks(blocks)
    }
    .net()
}

#[test]
fn a_group_of_strangers_is_sent_nothing_before_all_have_spoken() {
    let mut net = strangers(4);
    // One is late by more than what a first window takes.
    net.receivers[1].frozen = true;
    net.call(ms(300), |net| net.thaw(1));
    net.run(ms(299));
    assert_eq!(sent(&net), (0, 0));
    net.finish();
    assert_eq!(sent(&net), (4 * K, 0), "and then each symbol once");
    for receiver in &net.receivers {
        let stats = receiver.session.stats();
        assert_eq!((stats.lost, stats.detached), (0, 0), "{stats:?}");
        assert_eq!(stats.flows[0].by_group, u64::from(4 * K));
    }
}

#[test]
fn a_stranger_that_does_not_speak_is_left_behind() {
    let mut net = strangers(4);
    net.receivers[3].frozen = true;
    net.call(ms(1500), |net| net.thaw(3));
    net.finish();
    let assembled = PullFlowConfig::default().assemble_for;
    for receiver in &net.receivers[..3] {
        let after = receiver.got.done_at().since(Time::ZERO);
        assert!(after > assembled && after < assembled + ms(100), "{after:?}");
    }
    let stats = net.receivers[3].session.stats();
    let (useful, by_group) = (stats.flows[0].useful, stats.flows[0].by_group);
    assert_eq!((stats.detached, useful, by_group), (1, u64::from(4 * K), 0));
}
