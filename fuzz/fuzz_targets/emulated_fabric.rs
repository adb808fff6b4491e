//! Any frames and faults into a whole emulated network, as the software switch runs it: every frame and every byte is
//! delivered, counted as gone or still inside at every step, and in the end nothing is, and all buffers are back.
//!
//! The storm is also a test of the product, on random bytes: `crates/testbed/src/soft_switch/storm.rs`. The files are taken
//! in one by one, since the storm is no part of the crate but of its tests.
#![no_main]
#![allow(dead_code, reason = "the product uses more of these files")]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/testbed/src/soft_switch/address.rs"]
mod address;
#[path = "../../crates/testbed/src/soft_switch/buffer.rs"]
mod buffer;
#[path = "../../crates/testbed/src/soft_switch/checksum.rs"]
mod checksum;
#[path = "../../crates/testbed/src/soft_switch/fabric/mod.rs"]
mod fabric;
#[path = "../../crates/testbed/src/soft_switch/frame.rs"]
mod frame;
#[path = "../../crates/testbed/src/soft_switch/laws.rs"]
mod laws;
#[path = "../../crates/testbed/src/soft_switch/layout.rs"]
mod layout;
#[path = "../../crates/testbed/src/soft_switch/storm.rs"]
mod storm;
#[path = "../../crates/testbed/src/soft_switch/tree_stores.rs"]
mod tree_stores;

fuzz_target!(|bytes: &[u8]| {
    storm::run(bytes);
});
