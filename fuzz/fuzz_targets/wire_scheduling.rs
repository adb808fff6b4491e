//! A switch between two hosts, which holds no key: it reads any bytes, and changes the offer of those that are scheduled.
//!
//! Nothing panics, an offer never rises, three bytes change at most, and a second switch with the same limit changes nothing.
#![no_main]

use headwater_units::BitRate;
use headwater_wire::{SCHEDULING, SCHEDULING_AT, lower_offer, peek_scheduling};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &[u8])| {
    let (most, before) = input;
    let most = BitRate::new(most);
    let mut bytes = before.to_vec();
    let offered =
        peek_scheduling(before).filter(|(_, kind, _)| kind.is_negotiated()).map(|(_, _, it)| it.offer());
    let lowered = lower_offer(&mut bytes, most);
    assert_eq!(lowered.is_some(), offered.is_some());
    let Some((offered, lowered)) = offered.zip(lowered) else {
        assert_eq!(bytes, before);
        return;
    };
    assert!(lowered <= most && lowered <= offered);
    let offer = SCHEDULING_AT + 7..SCHEDULING_AT + SCHEDULING;
    assert!((0..bytes.len()).all(|at| bytes[at] == before[at] || offer.contains(&at)));
    let (_, _, scheduling) = peek_scheduling(&bytes).expect("it is still scheduled");
    assert_eq!(scheduling.offer(), lowered);
    let once = bytes.clone();
    assert_eq!(lower_offer(&mut bytes, most), Some(lowered));
    assert_eq!(bytes, once);
});
