//! Several sources, one receiver (SCDP §III-F).

use std::collections::BTreeSet;

use headwater_transport::pull::{PullFlowConfig, SessionConfig};
use headwater_transport::source::SourceConfig;
use headwater_units::{Duration, SymbolId, Time};

use crate::net::*;

fn three(blocks: u64) -> Net {
    Setup { sources: 3, window: 6, ..Setup::blocks(blocks) }.net()
}

fn took(net: &Net) -> Duration {
    net.receivers[0].got.done_at().since(Time::ZERO)
}

/// Every symbol by its source; fails if two sources sent the same one.
fn disjoint(net: &Net, sources: usize) -> Vec<usize> {
    let mut all: BTreeSet<SymbolId> = BTreeSet::new();
    let of = |source: usize| net.sent(source, flow(source, 0));
    for source in 0..sources {
        for header in of(source) {
            let class = (source as u32 + header.symbol.block.0) % sources as u32;
            assert_eq!(header.symbol.esi.0 % sources as u32, class, "its part");
            assert!(all.insert(header.symbol), "{:?} was sent twice", header.symbol);
        }
    }
    (0..sources).map(|source| of(source).len()).collect()
}

#[test]
fn equal_sources_send_equal_parts_and_nothing_is_decoded() {
    let mut net = three(9);
    net.finish();
    let sent = disjoint(&net, 3);
    assert_eq!(sent.iter().sum::<usize>() as u32, 9 * K);
    assert!(sent.iter().all(|sent| (191..=193).contains(sent)), "{sent:?}");
    let stats = net.receivers[0].session.stats();
    assert_eq!((stats.surplus, stats.useless, stats.timeouts), (0, 0, 0), "{stats:?}");
    assert_eq!((stats.repair_used, stats.blocks_lossy), (0, 0), "{stats:?}");
    assert!(took(&net) < PACKET * u64::from(9 * K) + us(300), "{:?}", took(&net));
}

/// "A subset of senders can still fill the receiver's downstream link" (SCDP §III-F).
#[test]
fn a_source_that_dies_costs_only_its_share() {
    let mut net = three(12);
    net.call(us(900), |net| net.sources[1].dead = true);
    net.finish();
    let stats = net.receivers[0].session.stats();
    let ideal = PACKET * (12 * u64::from(K) + 2 * u64::from(stats.blocks_lossy));
    assert!(took(&net) < ideal + ms(3), "{:?} where {ideal:?} would do: {stats:?}", took(&net));
    assert!(stats.surplus + stats.useless <= 6, "{stats:?}");
    disjoint(&net, 3);
}

#[test]
fn a_source_that_was_never_there_costs_a_timeout() {
    let mut net = three(6);
    net.sources[2].dead = true;
    net.finish();
    let stats = net.receivers[0].session.stats();
    let ideal = PACKET * (6 * u64::from(K) + 12);
    assert!(took(&net) < ideal + ms(3), "{:?} where {ideal:?} would do: {stats:?}", took(&net));
}

#[test]
fn a_slow_source_is_asked_for_what_it_can_bring() {
    let mut net = three(20);
    // A tenth of the receiver's link.
    net.sources[0].slow = us(120);
    net.finish();
    let sent = disjoint(&net, 3);
    let stats = net.receivers[0].session.stats();
    let all: usize = sent.iter().sum();
    assert!(sent[0] * 6 < all && sent[0] * 25 > all, "about a tenth: {sent:?}");
    let ideal = PACKET * all as u64;
    assert!(took(&net) < ideal + ms(2), "{:?} where {ideal:?} would do: {stats:?}", took(&net));
    assert!(stats.surplus <= 10, "{stats:?}");
}

#[test]
fn seventy_sources_at_once_fill_the_link_and_none_times_out() {
    let mut net = Setup { sources: 70, window: 12, ..Setup::blocks(20) }.net();
    net.set_room(20);
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert!(stats.trimmed >= 500, "the first windows meet: {stats:?}");
    assert_eq!((stats.timeouts, stats.lost), (0, 0), "{stats:?}");
    let ideal = PACKET * (20 * u64::from(K));
    assert!(took(&net) * 85 / 100 < ideal, "{:?} where {ideal:?} would do", took(&net));
}

#[test]
fn a_source_that_joins_is_opened_and_one_that_leaves_is_told() {
    let mut net = three(16);
    net.call(us(700), |net| {
        // The second one goes, and another takes its place in the partition.
        let mut grants: Vec<_> = [0, 2].map(|source| net.grant(source, 0, 3, None)).to_vec();
        let id = headwater_units::FlowId(77);
        let mut joins = net.grant(1, 0, 3, None);
        joins.flow = id;
        let role = headwater_wire::FlowRole::Single;
        let push = net.push(id, 1, 3, 6, role, 0);
        net.order(1, headwater_wire::Control::Source(headwater_wire::ToSource::Push(push)));
        grants.push(joins);
        net.set_flows(0, grants);
    });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!(stats.flows.len(), 4);
    assert!(stats.flows.iter().all(|flow| flow.useful > 0), "{stats:?}");
    assert!(stats.useless + stats.surplus <= 16, "{stats:?}");
}

/// Goal: only the source that is pulled last hears of the end by a pull. Where the farewells are lost, the others hear nothing more.
#[test]
fn sources_that_hear_no_farewell_let_their_flows_go_in_time() {
    let config = PullFlowConfig::default();
    assert!(config.silent_release > SessionConfig::default().source_patience, "it may still want something");
    for opens_flows in [false, true] {
        let session = SessionConfig { opens_flows, ..SessionConfig::data_centre() };
        let pull = PullFlowConfig { validates_paths: opens_flows, ..config.clone() };
        let source = SourceConfig { pull, ..SourceConfig::default() };
        let mut net = Setup { sources: 3, window: 6, session, source, ..Setup::blocks(9) }.net();
        net.back(farewells_are_lost());
        net.run(Duration::from_secs(60));
        let done = net.receivers[0].got.done_at();
        let after: Vec<Duration> = net
            .sources
            .iter()
            .map(|source| match source.closed_at[..] {
                [(at, _)] => at.since(done),
                ref other => panic!("closed {} times", other.len()),
            })
            .collect();
        let by_pull = after.iter().filter(|after| **after <= config.release_after).count();
        assert_eq!(by_pull, 1, "{after:?}");
        assert!(after.iter().all(|after| *after <= config.silent_release), "{after:?}");
        net.stopped.sort();
        assert_eq!(net.stopped, [0, 1, 2].map(|source| flow(source, 0)), "the controller hears of each");
        assert!(net.sources.iter().all(|source| source.preparation.is_empty()));
    }
}

#[test]
fn pulls_of_all_sources_leave_at_the_rate_of_the_link() {
    let mut net = three(4);
    net.finish();
    let times: Vec<Time> = net.receivers[0].pulled.iter().map(|it| it.0).collect();
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= PACKET), "a packet's time apart");
}

/// Multi-homing: one pace for the sum of the links, and each link gets what it carries, because a symbol is asked for where
/// one has come.
#[test]
fn a_receiver_with_two_links_of_unequal_rate_fills_both() {
    for room in [1000, 20] {
        let lines = vec![PACKET, PACKET * 3];
        let mut net = Setup { sources: 4, window: 8, lines, ..Setup::blocks(40) }.net();
        net.set_room(room);
        net.finish();
        let sent: Vec<usize> = (0..4).map(|source| net.sent(source, flow(source, 0)).len()).collect();
        let stats = net.receivers[0].session.stats();
        let (wide, narrow) = (sent[0] + sent[2], sent[1] + sent[3]);
        assert!((2.6..3.4).contains(&(wide as f64 / narrow as f64)), "{sent:?}");
        // Three packets of the wide link to one of the narrow one.
        let ideal = PACKET * (3 * 40 * u64::from(K)) / 4;
        assert!(took(&net) < ideal * 110 / 100, "{:?} where {ideal:?} would do: {stats:?}", took(&net));
        assert_eq!((stats.timeouts, stats.lost), (0, 0), "{stats:?}");
        assert!(stats.surplus + stats.useless <= 16, "{stats:?}");
    }
}
