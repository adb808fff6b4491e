//! Peers that say anything: no panic, bounded memory, and harm to nobody but their own transfer.

use core::num::NonZeroU16;

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::{Simulation, receivers};
use headwater_transport::source::{Source, SourceConfig};
use headwater_units::{BitRate, BlockIndex, Duration, Esi, FlowId, PathId, Rank, SymbolId, Time};
use headwater_wire::{
    Body, Class, FinReason, Missing, Nack, RateFeedback, RateProbe, RateUnit, RoundTrip, ScheduledFin,
    ScheduledSymbol, Scheduling, TransferEnd,
};
use proptest::prelude::*;

use crate::net::*;

fn scheduling() -> impl Strategy<Value = Scheduling> {
    (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(unit, rank, rate, offer)| {
        let [unit, rate, offer] = [unit, rate, offer].map(headwater_units::BitRate::new);
        Scheduling::new(RateUnit::finest(unit), Rank::new(rank), rate, offer)
    })
}

/// Small numbers are what is sent; others are what is not.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..600, any::<u32>()]
}

fn answer() -> impl Strategy<Value = Body> {
    let feedback =
        (number(), any::<u32>(), any::<u32>(), scheduling()).prop_map(|(number, held, lost, scheduling)| {
            RateFeedback { number, held: Duration::from_nanos(held.into()), lost, scheduling }
        });
    let run = (prop_oneof![0u32..9, any::<u32>()], prop_oneof![0u32..80, 0..(1u32 << 24) - 65_535], 1u16..);
    let run = run.prop_map(|(block, first, count)| Missing {
        block: BlockIndex(block),
        first: Esi(first),
        count: NonZeroU16::new(count).unwrap(),
    });
    (feedback, prop::collection::vec(run, 0..64)).prop_map(|(feedback, missing)| match missing.is_empty() {
        true => Body::RateFeedback(Box::new(feedback)),
        false => Body::Nack(Box::new(Nack { feedback, missing: missing.into_iter().collect() })),
    })
}

fn downwards() -> impl Strategy<Value = Body> {
    let ends = [TransferEnd::Done, TransferEnd::Early, TransferEnd::Late, TransferEnd::Cancelled];
    let round_trip = || any::<u64>().prop_map(|nanos| RoundTrip::of(Duration::from_nanos(nanos)));
    let symbol = (number(), prop_oneof![0u32..9, any::<u32>()], prop_oneof![0u32..80, 0..1u32 << 24]);
    let symbol = (symbol, scheduling(), round_trip(), any::<bool>(), any::<bool>());
    prop_oneof![
        6 => symbol.prop_map(|((number, block, esi), scheduling, round_trip, last, trimmed)| {
            let symbol = SymbolId { block: BlockIndex(block), esi: Esi(esi) };
            Body::ScheduledSymbol(ScheduledSymbol { number, symbol, scheduling, round_trip, last, trimmed })
        }),
        2 => (number(), round_trip(), scheduling())
            .prop_map(|(number, round_trip, scheduling)| Body::RateProbe(RateProbe { number, round_trip, scheduling })),
        1 => (number(), prop::sample::select(ends.to_vec()), scheduling())
            .prop_map(|(number, end, scheduling)| Body::ScheduledFin(ScheduledFin { number, end, scheduling })),
        1 => any::<u64>().prop_map(|nonce| Body::Challenge { nonce: nonce | 1 }),
        1 => Just(Body::Detached),
        1 => Just(Body::FinAck),
        1 => Just(Body::Fin(FinReason::Cancelled)),
    ]
}

/// Hostile datagrams, by the flow of a receiver or the group's, and how long after the one before.
fn words(body: impl Strategy<Value = Body>) -> impl Strategy<Value = Vec<(bool, u64, Body)>> {
    prop::collection::vec((any::<bool>(), prop_oneof![0u64..300, 0u64..1_000_000], body), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Goal: the receivers that tell the truth have everything in the end, whatever another one says.
    #[test]
    fn a_source_survives_any_answer(words in words(answer())) {
        let mut net = Setup { blocks: 4, ..Setup::group(3) }.net();
        net.freeze(2);
        let mut after = us(0);
        for (by_group, wait, body) in words {
            after += us(wait);
            net.call(after, move |net| {
                let flow = if by_group { GROUP } else { flow(2) };
                net.hear(0, Packet::of_flow(PathId(3), flow, Class::Control, body));
            });
        }
        net.finish_but(&[2]);
        prop_assert!(net.rates().iter().all(|(_, rate)| *rate <= net.setup.link));
        prop_assert!(net.symbols(GROUP).len() < 80_000);
    }

    /// Goal: whatever a source says, its receiver keeps within its bounds, and a true source is understood afterwards or the task ends.
    #[test]
    fn a_receiver_survives_any_datagram(words in words(downwards())) {
        let mut net = Setup { blocks: 4, blocks_in_flight: 3, ..Setup::group(2) }.net();
        let mut after = us(0);
        for (by_group, wait, body) in words {
            after += us(wait);
            net.call(after, move |net| {
                let flow = if by_group { GROUP } else { flow(1) };
                let packet = Packet::of_flow(PathId(0), flow, Class::Bulk, body);
                net.receptions[1].hands_in(&packet);
                net.hear(2, packet);
                let open = net.receptions[1].blocks() - net.receptions[1].whole.len();
                assert!(open <= 3, "{open} blocks are open");
            });
        }
        net.finish_but(&[1]);
        net.run(Duration::from_secs(100));
        prop_assert!(net.receptions[1].finished.is_some());
    }
}

/// Goal: a forged or mistaken answer by a flow that is nobody's changes nothing, and a group's flow is answered by nobody.
#[test]
fn strangers_are_not_heard() {
    let mut source = Source::new(SourceConfig::paper(), [1; 32]);
    let mut net = Setup::group(2).net();
    net.run(us(300));
    let scheduling = Scheduling::new(RateUnit::finest(mbps(1)), Rank::FIRST, mbps(0), mbps(0));
    let feedback =
        || Body::RateFeedback(Box::new(RateFeedback { number: 0, held: us(0), lost: 0, scheduling }));
    let before = net.rates();
    net.hear(0, Packet::of_flow(PathId(1), GROUP, Class::Control, feedback()));
    net.hear(0, Packet::of_flow(PathId(1), FlowId(77), Class::Control, feedback()));
    assert_eq!(net.source().stats().unknown_flow, 1);
    net.run(us(400));
    assert!(net.rates().starts_with(&before));
    source
        .handle(Time::ZERO, Input::Packet(Packet::of_flow(PathId(1), FlowId(1), Class::Control, feedback())));
    assert!(matches!(source.poll(Time::ZERO), Output::Wake(None)));
    let _ = receivers(mbps(1));
}

/// Goal: a receiver that says everything a thousand times costs its group neither rate nor symbols.
#[test]
fn a_storm_of_feedback_changes_nothing() {
    let quiet = {
        let mut net = Setup::group(3).net();
        net.finish();
        (net.symbols(GROUP).len(), net.network.now())
    };
    let mut net = Setup::group(3).net();
    for nth in 0..20_000u64 {
        net.call(us(300) + Duration::from_nanos(97 * nth), |net| {
            let last = net.answers.iter().rev().find(|it| it.flow == flow(2)).map(|it| it.body.clone());
            if let Some(body @ (Body::RateFeedback(_) | Body::Nack(_))) = last {
                net.hear(0, Packet::of_flow(PathId(3), flow(2), Class::Control, body));
            }
        });
    }
    net.finish();
    net.is_settled();
    let (symbols, end) = (net.symbols(GROUP).len(), net.network.now());
    assert!(symbols <= quiet.0 * 102 / 100, "{symbols} symbols, {} without", quiet.0);
    assert!(end <= quiet.1 + ms(2), "{end}, {} without", quiet.1);
}

/// A path that is not proved gets little: the address may be a third party's.
#[test]
fn little_is_sent_to_an_address_that_has_not_answered() {
    let mut setup = Setup { blocks: 8, ..Setup::default() };
    setup.source.validates_paths = true;
    let mut net = setup.clone().net();
    net.drop_answers(|body| matches!(body, Body::Challenge { .. }));
    net.run(ms(3000));
    let sent =
        net.sent.iter().filter(|it| matches!(it.body, Body::ScheduledSymbol(_) | Body::RateProbe(_))).count();
    assert_eq!(sent, 10);
    let mut net = setup.net();
    net.finish();
    net.is_settled();
}

/// Goal: a receiver that was told by a liar that it is left behind, and answers numbers that its group has used, goes back to the group
/// of a source that knows nothing of it.
#[test]
fn a_false_word_of_being_left_behind_strands_nobody() {
    let mut net = Setup { blocks: 4, ..Setup::group(2) }.net();
    let scheduling = Scheduling::new(RateUnit::finest(mbps(1000)), Rank::LAST, BitRate::ZERO, mbps(1000));
    let probe = RateProbe { number: 1, round_trip: RoundTrip::of(us(100)), scheduling };
    for body in [Body::Detached, Body::RateProbe(probe)] {
        net.call(us(500), move |net| {
            let packet = Packet::of_flow(PathId(0), flow(1), Class::Bulk, body);
            net.hear(2, packet);
        });
    }
    // Nothing of the group reaches it meanwhile, so that something is missing.
    net.meddler = Box::new(|receiver, body| receiver != 1 || !matches!(body, Body::ScheduledSymbol(_)));
    net.call(ms(20), |net| net.meddler = Box::new(|_, _| true));
    net.run(Duration::from_secs(10));
    assert!(net.receptions.iter().all(|it| it.finished.is_some()));
    net.is_settled();
}
