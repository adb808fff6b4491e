//! Datagrams from anybody: nothing panics, and what parses survives being emitted, parsed again and trimmed.
//!
//! A fuzzer cannot guess header tags, so every input is tried as it is and once more with the tag that an authenticated
//! but hostile peer would compute.
#![no_main]

use std::hash::Hasher as _;

use headwater_units::{BitRate, FlowKey};
use headwater_wire::{
    Body, HEADER, HeaderKey, PRELUDE, Parsed, SCHEDULING_AT, emit, lower_offer, mark_trimmed, parse,
    parse_trimmed, peek_flow,
};
use libfuzzer_sys::fuzz_target;
use siphasher::sip::SipHasher24;

const KEY: [u8; 32] = [7; 32];
const KIND_SYMBOL: u8 = 1;
const KIND_SCHEDULED: u8 = 0;
const FLAG_SCHEDULED: u8 = 16;
const OFFER_AT: usize = SCHEDULING_AT + 7;
const SYMBOL_HEADER: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let key = HeaderKey::new(&FlowKey(KEY));
    let _ = peek_flow(bytes);
    let _ = parse(bytes, &key);
    let _ = parse_trimmed(bytes, &key);

    let mut bytes = bytes.to_vec();
    if !write_tag(&mut bytes) {
        return;
    }
    let Ok(parsed) = parse(&bytes, &key) else { return };
    assert_eq!(peek_flow(&bytes), Some(parsed.datagram.flow));

    let size = u16::try_from(parsed.payload.len()).expect("a symbol's size has 16 bits");
    let mut again = vec![0; parsed.datagram.len(size)];
    assert!(again.len() <= bytes.len(), "nothing grows when it is said again");
    let room = emit(&parsed.datagram, size, &key, &mut again);
    room.copy_from_slice(parsed.payload);
    assert_eq!(parse(&again, &key).as_ref(), Ok(&parsed));

    // Changes that a switch may make to it leave the header believable.
    assert_eq!(
        parsed.datagram.body.negotiated().is_some(),
        lower_offer(&mut again, BitRate::new(u64::MAX)).is_some()
    );
    assert_eq!(parse(&again, &key).as_ref(), Ok(&parsed), "an offer below the limit stays");
    let mut unoffered = again.clone();
    if lower_offer(&mut unoffered, BitRate::ZERO).is_some() {
        let lowered = parse(&unoffered, &key).expect("the tag does not cover the offer").datagram;
        assert_eq!(lowered.body.negotiated().map(|(_, it)| it.offer()), Some(BitRate::ZERO));
    }
    if let Some(left) = mark_trimmed(&mut again) {
        let Parsed { datagram, payload } = parse(&again[..left], &key).expect("a trimmed symbol parses");
        assert!(datagram.body.is_trimmed() && payload.is_empty());
        match (&datagram.body, &parsed.datagram.body) {
            (Body::Symbol(trimmed), Body::Symbol(whole)) => {
                assert_eq!((trimmed.symbol, trimmed.number), (whole.symbol, whole.number));
            }
            (Body::ScheduledSymbol(trimmed), Body::ScheduledSymbol(whole)) => {
                assert_eq!((trimmed.symbol, trimmed.scheduling), (whole.symbol, whole.scheduling));
            }
            _ => panic!("only symbols are trimmed"),
        }
        // As one that knows nothing of the flag leaves it.
        assert_eq!(parse_trimmed(&bytes, &key), Ok(datagram));
    }
});

/// Writes the tag of a datagram that is long enough to have one: over the prelude without the trimmed flag, and the
/// symbol header or the whole body.
fn write_tag(bytes: &mut [u8]) -> bool {
    if bytes.len() < HEADER {
        return false;
    }
    let covered = match bytes[0] & 15 {
        KIND_SYMBOL if bytes[1] & FLAG_SCHEDULED == 0 => HEADER + SYMBOL_HEADER,
        KIND_SYMBOL => OFFER_AT,
        // Feedback and NACKs, 4 and 5, have an offer that no switch lowers.
        KIND_SCHEDULED if bytes.get(SCHEDULING_AT).is_some_and(|first| first >> 5 < 4) => OFFER_AT,
        _ => bytes.len(),
    };
    let covered = covered.min(bytes.len());
    let mut prelude = [0; PRELUDE];
    prelude.copy_from_slice(&bytes[..PRELUDE]);
    prelude[1] &= !1;
    let half: [u8; 16] = KEY[..16].try_into().expect("16 of 32 bytes");
    let mut hasher = SipHasher24::new_with_key(&half);
    hasher.write(&prelude);
    hasher.write(&bytes[HEADER..covered]);
    let tag = hasher.finish().to_be_bytes();
    bytes[PRELUDE..HEADER].copy_from_slice(&tag);
    true
}
