//! Control messages from anybody: nothing panics, and what parses is within its bounds and says itself again.
#![no_main]

use headwater_wire::{Control, MAX_CONTROL};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(control) = Control::parse(bytes) else { return };
    let again = control.to_bytes();
    assert_eq!(again.len(), control.encoded_len());
    assert!(again.len() <= bytes.len() && again.len() <= MAX_CONTROL);
    assert_eq!(Control::parse(&again), Ok(control));
});
