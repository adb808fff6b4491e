//! Ethernet frames from anybody, as the software switch reads and edits them: nothing panics, marking and trimming change
//! the header fields that they name and nothing else, and what a frame remembers of its bytes is what is in them.
//!
//! The laws are also tests of the product, on random bytes: `crates/testbed/src/soft_switch/laws.rs`. The files are
//! taken in one by one, since the laws are no part of the crate but of its tests.
#![no_main]
#![allow(dead_code, reason = "the product uses more of these files")]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/testbed/src/soft_switch/address.rs"]
mod address;
#[path = "../../crates/testbed/src/soft_switch/buffer.rs"]
mod buffer;
#[path = "../../crates/testbed/src/soft_switch/checksum.rs"]
mod checksum;
#[path = "../../crates/testbed/src/soft_switch/frame.rs"]
mod frame;
#[path = "../../crates/testbed/src/soft_switch/laws.rs"]
mod laws;
#[path = "../../crates/testbed/src/soft_switch/layout.rs"]
mod layout;

fuzz_target!(|bytes: &[u8]| laws::run(bytes));
