//! Scheduled datagrams: ten bytes at one place, of which a switch changes three.

use std::num::NonZeroU16;

use super::*;

fn scheduling() -> impl Strategy<Value = Scheduling> {
    (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(link, rank, rate, offer)| {
        let unit = RateUnit::finest(BitRate::new(link));
        Scheduling::new(unit, Rank::new(rank), BitRate::new(rate), BitRate::new(offer))
    })
}

fn symbol() -> impl Strategy<Value = ScheduledSymbol> {
    let id = (any::<u32>(), 0u32..1 << 24);
    (any::<u32>(), id, scheduling(), any::<u32>(), any::<bool>(), any::<bool>()).prop_map(
        |(number, (block, esi), scheduling, nanos, last, trimmed)| ScheduledSymbol {
            number,
            symbol: SymbolId { block: BlockIndex(block), esi: Esi(esi) },
            scheduling,
            round_trip: RoundTrip::of(Duration::from_nanos(nanos.into())),
            last,
            trimmed,
        },
    )
}

/// Datagrams that go down the tree: their offer is negotiated.
fn downwards() -> impl Strategy<Value = Body> {
    let ends = [TransferEnd::Done, TransferEnd::Early, TransferEnd::Late, TransferEnd::Cancelled];
    prop_oneof![
        symbol().prop_map(Body::ScheduledSymbol),
        (any::<u32>(), any::<u64>(), scheduling()).prop_map(|(number, nanos, scheduling)| {
            let round_trip = RoundTrip::of(Duration::from_nanos(nanos));
            Body::RateProbe(RateProbe { number, round_trip, scheduling })
        }),
        (any::<u32>(), prop::sample::select(ends.to_vec()), scheduling()).prop_map(
            |(number, end, scheduling)| Body::ScheduledFin(ScheduledFin { number, end, scheduling })
        ),
    ]
}

fn answer() -> impl Strategy<Value = Body> {
    let feedback = || {
        let fields = (any::<u32>(), any::<u32>(), any::<u32>(), scheduling());
        fields.prop_map(|(number, held, lost, scheduling)| RateFeedback {
            number,
            held: Duration::from_nanos(held.into()),
            lost,
            scheduling,
        })
    };
    let missing = (any::<u32>(), 0u32..(1 << 24) - 65_535, 1u16..).prop_map(|(block, first, count)| {
        Missing { block: BlockIndex(block), first: Esi(first), count: NonZeroU16::new(count).unwrap() }
    });
    prop_oneof![
        feedback().prop_map(|feedback| Body::RateFeedback(Box::new(feedback))),
        (feedback(), vec(missing, 1..=MAX_MISSING)).prop_map(|(feedback, missing)| {
            Body::Nack(Box::new(Nack { feedback, missing: missing.into_iter().collect() }))
        }),
    ]
}

pub(super) fn body() -> impl Strategy<Value = Body> {
    prop_oneof![downwards(), answer()]
}

fn datagram(body: Body) -> Datagram {
    Datagram { class: Class::Bulk, key_epoch: 0, flow: FlowId(77), body }
}

fn emitted(body: Body) -> Vec<u8> {
    let datagram = datagram(body);
    let mut bytes = vec![0; datagram.len(100)];
    emit(&datagram, 100, &key(), &mut bytes).fill(0x5a);
    bytes
}

proptest! {
    #[test]
    fn a_switch_lowers_the_offer_and_nothing_else(body in downwards(), most in any::<u64>()) {
        let most = BitRate::new(most);
        let before = emitted(body.clone());
        let mut bytes = before.clone();
        let (flow, kind, scheduling) = peek_scheduling(&bytes).unwrap();
        prop_assert_eq!((kind, &scheduling), body.negotiated().unwrap());
        prop_assert_eq!(flow, FlowId(77));

        let offer = lower_offer(&mut bytes, most).unwrap();
        prop_assert!(offer <= most && offer <= scheduling.offer());
        let offer_at = SCHEDULING_AT + 7..SCHEDULING_AT + SCHEDULING;
        for at in (0..bytes.len()).filter(|at| !offer_at.contains(at)) {
            prop_assert_eq!(bytes[at], before[at], "byte {}", at);
        }
        let mut expected = body;
        expected.negotiated_mut().unwrap().lower_offer(most);
        prop_assert_eq!(parse(&bytes, &key()).unwrap().datagram.body, expected);
        // A second switch with the same limit finds nothing to change.
        let once = bytes.clone();
        lower_offer(&mut bytes, most);
        prop_assert_eq!(bytes, once);
    }

    #[test]
    fn an_answer_is_nothing_to_a_switch(body in answer(), most in any::<u64>()) {
        let before = emitted(body);
        let mut bytes = before.clone();
        prop_assert_eq!(lower_offer(&mut bytes, BitRate::new(most)), None);
        prop_assert_eq!(bytes, before);
    }

    #[test]
    fn a_switch_reads_any_bytes(bytes in vec(any::<u8>(), 0..120), first in any::<u8>(), most in any::<u64>()) {
        let mut bytes = bytes;
        for first in [first, 0x10, 0x11] {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            let negotiated = peek_scheduling(&bytes).filter(|(_, kind, _)| kind.is_negotiated());
            prop_assert_eq!(lower_offer(&mut bytes, BitRate::new(most)).is_some(), negotiated.is_some());
        }
    }
}

/// Of all other datagrams, only those of scheduled flows have the header.
#[test]
fn nothing_else_pays_for_it() {
    let symbol = SymbolHeader::new(PacketNumber(1), SymbolId::default());
    for body in [Body::Symbol(symbol), Body::FinAck, Body::Challenge { nonce: 7 }] {
        let mut bytes = emitted(body);
        bytes.resize(200, 0);
        assert_eq!(peek_scheduling(&bytes), None);
        assert_eq!(lower_offer(&mut bytes, BitRate::ZERO), None);
    }
}

fn one() -> ScheduledSymbol {
    let rate = BitRate::new(2_000_000_000);
    ScheduledSymbol {
        number: 9,
        symbol: SymbolId { block: BlockIndex(0x0102_0304), esi: Esi(0x05_0607) },
        scheduling: Scheduling::new(
            RateUnit::finest(rate),
            Rank::new(0x0a_0b0c),
            BitRate::new(128 * 5),
            rate,
        ),
        round_trip: RoundTrip::of(Duration::from_micros(20)),
        last: false,
        trimmed: false,
    }
}

/// PAM §IV-A: ten bytes. The layout is drawn in the module documentation.
#[test]
fn the_scheduling_header_has_ten_bytes_at_offset_32() {
    let bytes = emitted(Body::ScheduledSymbol(one()));
    assert_eq!((SCHEDULING, SCHEDULING_AT, SCHEDULED_OVERHEAD), (10, 32, 58));
    assert_eq!(bytes.len(), 100 + SCHEDULED_OVERHEAD);
    assert_eq!(bytes[..4], [0x11, 0x30, 0, 0x61], "20 us round down to (8 + 1) << 11 ns");
    assert_eq!(bytes[24..32], [1, 2, 3, 4, 5, 6, 7, 0]);
    // Data, units of 2^7 bit/s; rank; 5 units; 15,625,000 units.
    assert_eq!(bytes[32..42], [7, 0x0a, 0x0b, 0x0c, 0, 0, 5, 0xee, 0x6b, 0x28]);
    assert_eq!(bytes[42..142], [0x5a; 100]);
    let last = emitted(Body::ScheduledSymbol(ScheduledSymbol { last: true, ..one() }));
    assert_eq!(last[32], 0x20 | 7);
}

#[test]
fn a_trimmed_symbol_keeps_its_offer() {
    let mut bytes = emitted(Body::ScheduledSymbol(one()));
    lower_offer(&mut bytes, BitRate::new(128 * 3));
    let mut expected = ScheduledSymbol { trimmed: true, ..one() };
    expected.scheduling.lower_offer(BitRate::new(128 * 3));
    let read = parse_trimmed(&bytes[..60], &key()).unwrap();
    assert_eq!(read.body, Body::ScheduledSymbol(expected));
    assert_eq!(parse_trimmed(&bytes[..41], &key()), Err(WireError::Short { have: 41, need: 42 }));
    let left = mark_trimmed(&mut bytes).unwrap();
    assert_eq!(left, 42);
    let parsed = parse(&bytes[..left], &key()).unwrap();
    assert!(parsed.datagram.body.is_trimmed() && parsed.payload.is_empty());
    assert_eq!(parsed.datagram.body, Body::ScheduledSymbol(expected));
}

/// Under a tag that matches: what a peer with the key could say.
#[test]
fn kinds_that_contradict_the_datagram_are_refused() {
    let tagged = |body: Body, at: usize, byte: u8| {
        let mut bytes = emitted(body);
        bytes[at] = byte;
        retag_covered(&mut bytes);
        parse(&bytes, &key()).map(|it| it.datagram)
    };
    let probe = RateProbe { number: 1, round_trip: one().round_trip, scheduling: one().scheduling };
    let feedback = RateFeedback { number: 1, held: Duration::ZERO, lost: 2, scheduling: one().scheduling };
    let bad_kind = Err(WireError::Field { what: "scheduling kind" });
    for kind in [2, 3, 4, 5, 6, 7] {
        assert_eq!(tagged(Body::ScheduledSymbol(one()), 32, kind << 5), bad_kind, "no symbol: {kind}");
    }
    for kind in [0, 1, 6, 7] {
        assert_eq!(tagged(Body::RateProbe(probe), 32, kind << 5), bad_kind, "symbols only: {kind}");
    }
    let reserved = Err(WireError::Field { what: "reserved bits" });
    assert_eq!(tagged(Body::ScheduledSymbol(one()), 31, 1), reserved);
    assert_eq!(tagged(Body::RateProbe(probe), 24, 1), reserved);
    assert_eq!(tagged(Body::RateProbe(probe), 1, 0x21), reserved, "flags");
    assert_eq!(
        tagged(Body::RateFeedback(Box::new(feedback)), 3, 1),
        reserved,
        "answers tell no round-trip time"
    );
    let fin =
        Body::ScheduledFin(ScheduledFin { number: 1, end: TransferEnd::Late, scheduling: one().scheduling });
    assert!(tagged(fin.clone(), 24, 3).is_ok());
    assert_eq!(tagged(fin, 24, 4), Err(WireError::Field { what: "end of a transfer" }));
}

#[test]
fn runs_of_missing_symbols_have_bounds() {
    let feedback = RateFeedback { number: 1, held: Duration::ZERO, lost: 2, scheduling: one().scheduling };
    let run = Missing { block: BlockIndex(1), first: Esi((1 << 24) - 2), count: NonZeroU16::new(2).unwrap() };
    let nack = emitted(Body::Nack(Box::new(Nack { feedback, missing: [run].into_iter().collect() })));
    assert_eq!(nack.len(), 42 + 9);
    let said = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = nack.clone();
        change(&mut bytes);
        retag_covered(&mut bytes);
        parse(&bytes, &key()).map(|_| ())
    };
    let bad_run = Err(WireError::Field { what: "run of missing symbols" });
    assert_eq!(said(&|_| ()), Ok(()));
    assert_eq!(said(&|bytes| bytes[50] = 3), bad_run, "beyond the last ESI");
    assert_eq!(said(&|bytes| bytes[50] = 0), bad_run, "none");
    assert_eq!(said(&|bytes| bytes.truncate(42)), Err(WireError::Length { have: 18, need: 27 }));
    assert_eq!(said(&|bytes| bytes.push(0)), Err(WireError::Length { have: 28, need: 27 }));
    let many = |count| move |bytes: &mut Vec<u8>| (1..count).for_each(|_| bytes.extend_from_within(42..51));
    assert_eq!(said(&many(MAX_MISSING)), Ok(()));
    let too_many = WireError::TooMany { what: "runs of missing symbols", have: MAX_MISSING + 1 };
    assert_eq!(said(&many(MAX_MISSING + 1)), Err(too_many));
}

/// Writes the tag anew, over all but the payload and a negotiated offer.
fn retag_covered(bytes: &mut [u8]) {
    let negotiated = bytes[0] & 15 == 1 || bytes[32] >> 5 < 4;
    let covered = if negotiated { 39 } else { bytes.len() };
    let mut prelude: [u8; PRELUDE] = bytes[..PRELUDE].try_into().unwrap();
    prelude[1] &= !1;
    let mut hasher = SipHasher24::new_with_key(&[7; 16]);
    hasher.write(&prelude);
    hasher.write(&bytes[HEADER..covered]);
    bytes[PRELUDE..HEADER].copy_from_slice(&hasher.finish().to_be_bytes());
}
