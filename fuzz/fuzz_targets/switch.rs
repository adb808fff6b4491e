//! A switch with its ports and routes, driven step by step from bytes: what arrives where, how time passes, which links go
//! down, which rates and routes change.
//!
//! Nothing panics, every poll ends, no wake lies in the past, departures of a port are in order, no copy goes back where it
//! came from, frames and bytes are conserved at every step, and in the end every queue is empty. The run itself is also a
//! test of the crate, on random bytes: `crates/switch/tests/from_bytes.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/switch/tests/common/mod.rs"]
mod common;
#[path = "../../crates/switch/tests/harness/mod.rs"]
mod harness;

fuzz_target!(|bytes: &[u8]| harness::run(bytes));
