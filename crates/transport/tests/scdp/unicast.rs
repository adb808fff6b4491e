//! One source, one receiver.

use headwater_transport::DecodeFailure;
use headwater_transport::pull::{PullFlowConfig, SessionConfig};
use headwater_transport::source::SourceConfig;
use headwater_units::{BlockIndex, Duration, Time};
use headwater_wire::{Body, Class, Control, Pull, ToSource};

use crate::net::*;

fn is_pull(it: &Addressed) -> bool {
    matches!(it.packet.datagram.body, Body::Pull(_))
}

/// SCDP §III-H: "a receiver sends K - IW pull requests, in total", and no symbol is sent beyond K.
#[test]
fn a_block_that_loses_nothing_is_pulled_for_all_but_the_first_window() {
    let mut net = Setup::default().net();
    net.finish();
    let sent = net.sent(0, flow(0, 0));
    assert_eq!(net.pulls(0), (K - 12) as usize);
    assert_eq!(sent.len(), K as usize);
    assert!(
        sent.iter()
            .zip(0..K)
            .all(|(header, esi)| header.symbol.esi.0 == esi && header.number.0 == u64::from(esi))
    );
    assert_eq!(sent.iter().filter(|header| header.syn).count(), 12);
    let stats = net.receivers[0].session.stats();
    assert_eq!(
        (stats.surplus, stats.useless, stats.timeouts, stats.repair_used, stats.blocks_lossy),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(stats.pulls, u64::from(K - 12));
    // Pushed at once, pulled a packet's time apart, each answered within a round trip.
    assert!(
        net.receivers[0].got.done_at() < Time::ZERO + PACKET * u64::from(K) + DELAY * 8,
        "{}",
        net.receivers[0].got.done_at()
    );
}

#[test]
fn only_the_last_pull_bears_fin_and_its_answer_goes_first() {
    let mut net = Setup::blocks(4).net();
    net.finish();
    let pulled = &net.receivers[0].pulled;
    let fins: Vec<usize> = (0..pulled.len()).filter(|&at| pulled[at].2.fin).collect();
    assert_eq!(fins, [pulled.len() - 1]);
    // 256 symbols of 4096 bytes: 10 KB, 100 KB and 1 MB are passed at the 3rd, 25th and 245th.
    let classes: Vec<Class> = net.sources[0].sent.iter().map(|(_, _, class)| *class).collect();
    let first = |at: usize| classes[at] == Class::First;
    assert!((0..12).all(first), "the first window");
    assert_eq!(classes[12..25], [Class::Second; 13]);
    assert_eq!(classes[25..245], [Class::Third; 220]);
    assert_eq!(classes[245..255], [Class::Bulk; 10]);
    assert!(first(255) && classes.len() == 256);
}

/// SCDP §III-H: one pull more for each header, and K + 2 from the first one on; per block.
#[test]
fn every_header_is_one_more_pull_and_its_block_is_to_have_two_symbols_more() {
    let mut net = Setup::blocks(4).net();
    let trimmed = [3, 70, 71, 72];
    net.there(move |nth, _| if trimmed.contains(&nth) { Fate::Trimmed } else { Fate::Arrives });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!((stats.trimmed, stats.blocks_lossy), (4, 2), "blocks 0 and 1");
    assert_eq!(net.pulls(0) as u32, 4 * K - 12 + 4 + 2 * 2);
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, 4 * K + 4 + 2 * 2);
    assert_eq!((stats.surplus, stats.timeouts, stats.lost, stats.repair_used), (0, 0, 0, 4));
}

#[test]
fn the_header_of_the_last_symbol_is_answered_by_another_fin() {
    let mut net = Setup::default().net();
    net.there(|nth, _| if nth == 63 { Fate::Trimmed } else { Fate::Arrives });
    net.finish();
    let fins: Vec<u32> = net.receivers[0]
        .pulled
        .iter()
        .filter(|(_, _, pull)| pull.fin)
        .map(|(_, _, pull)| pull.sequence)
        .collect();
    // Three more: the trimmed one's stand-in, and two beyond K. The window lets them leave together.
    assert_eq!(fins, [52, 55]);
    assert_eq!(net.sent(0, flow(0, 0)).len(), 67);
    let last = net.sources[0].sent.last().unwrap();
    assert_eq!(last.2, Class::First);
}

#[test]
fn a_queue_that_trims_is_kept_full_without_a_timeout() {
    let mut net = Setup { window: 40, ..Setup::blocks(8) }.net();
    net.set_room(8);
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert!(stats.trimmed >= 20, "{stats:?}");
    assert_eq!((stats.timeouts, stats.lost, stats.surplus), (0, 0, 0), "{stats:?}");
    let ideal = PACKET * (8 * u64::from(K) + 2 * u64::from(stats.blocks_lossy)) + DELAY * 3;
    let took = net.receivers[0].got.done_at().since(Time::ZERO);
    assert!(took < ideal + us(300), "{took:?} where {ideal:?} would do");
}

/// Goal: a header overtakes a whole queue of symbols, and none of them is taken for lost.
#[test]
fn what_headers_overtake_is_not_lost() {
    let session = SessionConfig { reordering: 3, ..SessionConfig::data_centre() };
    let mut net = Setup { window: 40, session, ..Setup::blocks(8) }.net();
    net.set_room(30);
    net.there(|nth, _| if nth % 30 == 29 { Fate::Trimmed } else { Fate::Arrives });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert!(stats.trimmed >= 15, "{stats:?}");
    assert_eq!((stats.lost, stats.timeouts), (0, 0), "{stats:?}");
}

#[test]
fn reordered_and_doubled_pulls_and_symbols_cost_nothing() {
    let mut net = Setup::blocks(3).net();
    net.there(|nth, _| match nth % 7 {
        2 => Fate::Late(us(50)),
        5 => Fate::Twice(us(35)),
        _ => Fate::Arrives,
    });
    net.back(|nth, _| match nth % 5 {
        1 => Fate::Late(us(60)),
        3 => Fate::Twice(us(80)),
        _ => Fate::Arrives,
    });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!((stats.lost, stats.timeouts, stats.surplus, stats.blocks_lossy), (0, 0, 0, 0), "{stats:?}");
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, 3 * K, "each pull is served once");
    assert_eq!(net.pulls(0) as u32, 3 * K - 12);
}

#[test]
fn lost_pulls_are_made_good_by_the_next_one() {
    let mut net = Setup::blocks(2).net();
    net.back(|nth, it| if is_pull(it) && nth % 4 == 1 { Fate::Lost } else { Fate::Arrives });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!((stats.timeouts, stats.surplus), (0, 0), "{stats:?}");
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, 2 * K);
}

#[test]
fn the_last_pulls_of_a_flow_may_be_lost() {
    let mut net = Setup::default().net();
    let last = |pull: &Pull| (50..=52).contains(&pull.sequence);
    net.back(move |_, it| match &it.packet.datagram.body {
        Body::Pull(pull) if last(pull) => Fate::Lost,
        _ => Fate::Arrives,
    });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!(stats.timeouts, 1, "{stats:?}");
    assert!(stats.surplus <= 1, "one more was asked for than was needed: {stats:?}");
}

/// Goal: a header that never comes is found missing by what comes later, or by time, and nothing is asked for in vain.
#[test]
fn headers_that_are_lost_are_found_missing() {
    for reordering in [3, 250] {
        let session = SessionConfig { reordering, ..SessionConfig::data_centre() };
        let mut net = Setup { window: 40, session, ..Setup::blocks(16) }.net();
        net.set_room(8);
        net.there(|nth, _| if nth % 10 == 6 { Fate::Trimmed } else { Fate::Arrives });
        net.loses_header = Box::new(|nth| nth % 3 == 1);
        net.finish();
        let stats = net.receivers[0].session.stats();
        assert!(net.headers_lost >= 40, "{} of {}", net.headers_lost, net.headers);
        assert_eq!(stats.trimmed, net.headers - net.headers_lost);
        match reordering {
            // A header overtakes what waits before the link, which then seems to be lost for a moment.
            3 => assert!(stats.lost >= net.headers_lost, "{stats:?}"),
            _ => assert_eq!(stats.lost, net.headers_lost, "{stats:?}"),
        }
        assert!(stats.timeouts <= 2, "{stats:?}");
        assert_eq!((stats.surplus, stats.useless), (0, 0), "{stats:?}");
        let sent = net.sent(0, flow(0, 0)).len() as u64;
        assert_eq!(sent, 16 * u64::from(K + 2) + net.headers, "one more for each that was trimmed");
    }
}

/// Goal: nothing comes after the last header to show that it is missing.
#[test]
fn the_header_of_the_last_symbol_may_be_lost() {
    let mut net = Setup::default().net();
    net.there(|nth, _| if nth == 63 { Fate::Trimmed } else { Fate::Arrives });
    net.loses_header = Box::new(|_| true);
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!((net.headers_lost, stats.trimmed, stats.lost), (1, 0, 1), "{stats:?}");
    assert_eq!((stats.timeouts, stats.surplus, stats.useless), (1, 0, 0), "{stats:?}");
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, K + 3);
}

#[test]
fn symbols_that_are_lost_where_others_are_trimmed_are_found_missing() {
    let mut net = Setup { window: 40, ..Setup::blocks(4) }.net();
    net.set_room(8);
    net.there(|nth, _| if nth % 11 == 7 { Fate::Lost } else { Fate::Arrives });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert!(stats.lost > 10, "{stats:?}");
    assert!(stats.timeouts <= 4 && stats.surplus + stats.useless == 0, "{stats:?}");
}

/// On networks that do not trim: 5 % of everything is lost, both ways.
#[test]
fn random_loss_without_trimming_is_found_by_later_arrivals() {
    for opens_flows in [false, true] {
        let session = SessionConfig { opens_flows, reordering: 3, ..SessionConfig::data_centre() };
        let mut net = Setup { session, ..Setup::blocks(16) }.net();
        net.set_trims(false);
        net.there(|nth, _| if hash(nth).is_multiple_of(20) { Fate::Lost } else { Fate::Arrives });
        net.back(|nth, _| if hash(nth + 77).is_multiple_of(20) { Fate::Lost } else { Fate::Arrives });
        net.finish();
        let stats = net.receivers[0].session.stats();
        let sent = net.sent(0, flow(0, 0)).len() as u64;
        assert!(stats.lost * 100 > sent * 3, "{stats:?}");
        assert!(stats.timeouts <= 8, "{stats:?}");
        assert!(stats.surplus + stats.useless <= 16, "{stats:?}");
        let ideal = PACKET * sent;
        let took = net.receivers[0].got.done_at().since(Time::ZERO);
        assert!(took < ideal * 2, "{took:?} where {ideal:?} would do");
    }
}

#[test]
fn a_first_window_that_is_lost_altogether_is_asked_for() {
    let mut net = Setup::default().net();
    net.there(|nth, _| if nth < 12 { Fate::Lost } else { Fate::Arrives });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!((stats.lost, stats.timeouts), (12, 1));
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, K + 2 + 12);
}

#[test]
fn a_receiver_that_opens_its_flow_says_what_it_lacks() {
    let session = SessionConfig { opens_flows: true, ..SessionConfig::data_centre() };
    let mut net = Setup { session, ..Setup::blocks(2) }.net();
    net.finish();
    let opening = net.receivers[0].pulled[0].2;
    assert_eq!((opening.sequence, opening.wants[0].unwrap().count.get()), (0, 12));
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, 2 * K);
    assert_eq!(net.pulls(0) as u32, 2 * K - 12);
}

#[test]
fn an_opening_pull_that_is_lost_is_soon_said_again_and_costs_no_symbol() {
    let session = SessionConfig { opens_flows: true, ..SessionConfig::data_centre() };
    let mut net = Setup { session, ..Setup::blocks(2) }.net();
    net.back(|nth, _| if nth == 0 { Fate::Lost } else { Fate::Arrives });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!((stats.timeouts, stats.lost), (0, 0), "{stats:?}");
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, 2 * K, "{stats:?}");
}

/// Goal: as above, before the first timeout, which is long where no round trip is known.
#[test]
fn a_first_window_that_is_lost_whole_costs_a_receiver_that_opens_its_flow_no_timeout() {
    let mut net = Setup { session: SessionConfig::default(), ..Setup::blocks(2) }.net();
    net.there(|nth, _| if nth < 12 { Fate::Lost } else { Fate::Arrives });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!((stats.lost, stats.timeouts), (12, 0), "{stats:?}");
    let took = net.receivers[0].got.done_at().since(Time::ZERO);
    assert!(took < ms(60) + PACKET * u64::from(2 * K + 2 + 12) + ms(1), "{took:?}");
}

/// An address must answer first (docs/decisions/0030).
#[test]
fn an_address_that_has_not_echoed_a_nonce_gets_no_more_than_the_first_window() {
    let session = SessionConfig { opens_flows: true, ..SessionConfig::data_centre() };
    let source = SourceConfig { pull: PullFlowConfig::default(), ..SourceConfig::default() };
    let mut net = Setup { session, source, ..Setup::blocks(2) }.net();
    net.back(|_, it| match it.packet.datagram.body {
        Body::Challenge { .. } => Fate::Lost,
        _ => Fate::Arrives,
    });
    net.run(ms(200));
    assert_eq!(net.sent(0, flow(0, 0)).len(), 12);
    net.back(no_faults());
    net.finish();
}

#[test]
fn blocks_are_pulled_one_after_the_other_while_earlier_ones_are_decoded() {
    let mut net = Setup::blocks(6).net();
    net.decoder = ms(1);
    net.finish();
    assert_eq!(net.receivers[0].got.order, [0, 1, 2, 3, 4, 5].map(BlockIndex));
    let stats = net.receivers[0].session.stats();
    assert_eq!(stats.blocks_behind_most, 2, "a block comes in 768 us");
    let took = net.receivers[0].got.done_at().since(Time::ZERO);
    assert!(
        took < PACKET * u64::from(6 * K) + ms(1) + us(300),
        "decoding is hidden but for the last block: {took:?}"
    );
}

#[test]
fn no_more_blocks_are_open_than_may_be() {
    let session = SessionConfig { open_blocks: 2, ..SessionConfig::data_centre() };
    let mut net = Setup { session, ..Setup::blocks(5) }.net();
    net.decoder = ms(5);
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!(stats.blocks_behind_most, 2);
    assert_eq!((stats.timeouts, stats.surplus), (0, 0), "{stats:?}");
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, 5 * K);
}

#[test]
fn a_block_that_does_not_decode_is_given_two_symbols_more() {
    let mut net = Setup::blocks(3).net();
    net.there(|nth, _| if nth % 64 == 30 { Fate::Trimmed } else { Fate::Arrives });
    net.decoder = us(900);
    net.verdict = Box::new(|block, try_, _| match (block, try_) {
        (0, 1) | (2, 1) | (2, 2) => Err(DecodeFailure::NeedMore),
        _ => Ok(()),
    });
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!((stats.need_more, stats.useless, stats.timeouts, stats.surplus), (3, 0, 0, 0), "{stats:?}");
    assert_eq!(net.sent(0, flow(0, 0)).len() as u64, u64::from(3 * K) + stats.trimmed + 3 * 2 + 3 * 2);
}

#[test]
fn a_source_keeps_a_flow_for_the_stated_time_after_its_last_symbol() {
    let mut source = SourceConfig { pull: PullFlowConfig::data_centre(), ..SourceConfig::default() };
    source.pull.release_after = ms(20);
    let mut net = Setup { source, ..Setup::default() }.net();
    net.back(farewells_are_lost());
    net.run(Duration::from_secs(10));
    let done = net.receivers[0].got.done_at();
    let [(closed, _)] = net.sources[0].closed_at[..] else { panic!("closed once") };
    assert!(closed >= done + ms(19) && closed <= done + ms(21), "{closed:?}, done {done:?}");
    assert_eq!(net.stopped, [flow(0, 0)], "the controller hears of it");
}

/// Goal: an object that is pushed as a whole is never pulled. Where farewells are lost, its source knows of the end by the pull that
/// has opened the flow, which asks for the last symbol too; where no pull does that, by silence.
#[test]
fn a_flow_that_was_never_pulled_is_let_go_when_its_receiver_is_silent() {
    let config = PullFlowConfig::default();
    for (opens_flows, after) in [(false, config.silent_release), (true, config.release_after)] {
        let session = SessionConfig { opens_flows, ..SessionConfig::data_centre() };
        let pull = PullFlowConfig { validates_paths: opens_flows, ..config.clone() };
        let source = SourceConfig { pull, ..SourceConfig::default() };
        let mut net = Setup { bytes: 5 * u64::from(T), session, source, ..Setup::default() }.net();
        net.back(farewells_are_lost());
        net.run(after - ms(1));
        assert!(net.receivers[0].session.has_ended() && net.receivers[0].got.finished.is_some());
        assert_eq!((net.pulls(0), net.sources[0].source.flows().count()), (0, 1));
        net.run(ms(2));
        assert_eq!(net.sources[0].source.flows().count(), 0, "it hears nothing");
        assert_eq!(net.stopped, [flow(0, 0)], "the controller hears of it");
        assert!(net.sources[0].preparation.is_empty());
    }
}

#[test]
fn a_disk_that_is_slow_delays_and_loses_nothing() {
    let mut net = Setup::blocks(12).net();
    net.disk = us(700);
    net.finish();
    let stats = net.receivers[0].session.stats();
    assert_eq!(net.sent(0, flow(0, 0)).len() as u32, 12 * K);
    assert_eq!(stats.surplus, 0);
    let took = net.receivers[0].got.done_at().since(Time::ZERO);
    assert!(
        took < us(700) + PACKET * u64::from(12 * K) + us(400),
        "only the first block is waited for: {took:?}"
    );
}

/// Goal: where many flows begin at once, the first block of each is not held up by blocks that have time.
#[test]
fn a_source_reads_ahead_one_block_at_first_and_then_more() {
    let mut net = Setup::blocks(12).net();
    // By the newest block that a pull has asked for, the newest that is ready or being read.
    let mut read = [0; 12];
    while net.receivers[0].got.finished.is_none() {
        net.run(us(1));
        let asked = net.receivers[0].pulled.iter().filter(|(at, _, _)| net.now().since(*at) >= net.delay());
        let asked = asked.flat_map(|(_, _, pull)| pull.wants).flatten().map(|want| want.block.0).max();
        let newest = net.sources[0].preparation.newest().unwrap_or(BlockIndex(0)).0;
        let read = &mut read[asked.unwrap_or(0) as usize];
        *read = newest.max(*read);
    }
    assert_eq!(read, [1, 3, 5, 7, 8, 9, 10, 11, 11, 11, 11, 11]);
}

/// Goal: a source that was held up for long owes less than it was asked for meanwhile. When all that is under way is lost later on,
/// what it does not owe is not waited for again and again.
#[test]
fn a_source_that_was_held_up_for_long_is_soon_back_at_its_rate() {
    let mut net = Setup::blocks(40).net();
    net.call(us(500), |net| net.order(0, Control::Source(ToSource::Pause { flow: flow(0, 0) })));
    net.call(ms(25_000), |net| net.order(0, Control::Source(ToSource::Resume { flow: flow(0, 0) })));
    net.there(|number, _| if (1500..1513).contains(&number) { Fate::Lost } else { Fate::Arrives });
    net.run(ms(24_999));
    let before = net.receivers[0].session.stats().timeouts;
    net.run(ms(60_000));
    let after = net.receivers[0].session.stats().timeouts - before;
    assert!(net.receivers[0].got.finished.is_some());
    assert!(after <= 6, "{after} timeouts");
}

#[test]
fn an_object_smaller_than_the_window_is_pushed_and_never_pulled() {
    let mut net = Setup { bytes: 5 * u64::from(T), ..Setup::default() }.net();
    net.finish();
    assert_eq!((net.pulls(0), net.sent(0, flow(0, 0)).len()), (0, 5));
}

#[test]
fn a_receiver_that_cancels_ends_its_flow() {
    let mut net = Setup::blocks(50).net();
    net.call(ms(1), |net| net.command(0, headwater_transport::ReceiverCommand::Cancel));
    net.run(Duration::from_secs(10));
    assert!(
        matches!(net.receivers[0].got.finished, Some((_, Err(_)))) && net.receivers[0].session.has_ended()
    );
    assert_eq!(net.sources[0].source.flows().count(), 0);
}

/// A fixed mixing of numbers, so that "random" is the same every time.
fn hash(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
