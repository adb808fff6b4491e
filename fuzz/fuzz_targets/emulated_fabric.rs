//! Any frames and faults into a whole emulated network, as the software switch runs it: every frame and every byte is
//! delivered, counted as gone or still inside at every step, and in the end nothing is, and all buffers are back.
//!
//! The storm is also a test of the product, on random bytes: `crates/headwater/src/soft_switch/storm.rs`. The files are taken
//! in one by one, since the product as a whole is large.
#![no_main]
#![allow(dead_code, reason = "the product uses more of these files")]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/headwater/src/soft_switch/address.rs"]
mod address;
#[path = "../../crates/headwater/src/soft_switch/buffer.rs"]
mod buffer;
#[path = "../../crates/headwater/src/soft_switch/checksum.rs"]
mod checksum;
#[path = "../../crates/headwater/src/soft_switch/fabric/mod.rs"]
mod fabric;
#[path = "../../crates/headwater/src/soft_switch/frame.rs"]
mod frame;
#[path = "../../crates/headwater/src/soft_switch/laws.rs"]
mod laws;
#[path = "../../crates/headwater/src/soft_switch/layout.rs"]
mod layout;
#[path = "../../crates/headwater/src/soft_switch/storm.rs"]
mod storm;
#[path = "../../crates/headwater/src/soft_switch/tree_stores.rs"]
mod tree_stores;

fuzz_target!(|bytes: &[u8]| {
    storm::run(bytes);
});
