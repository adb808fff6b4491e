//! Hashes of the code that computes runs: of real processes, with all that a run passes through, models and product alike; and of
//! timed computations.

#[path = "../lab/code_hash.rs"]
mod code_hash;

use std::env;
use std::path::PathBuf;

/// Parts that no run passes through.
const BESIDE: [&str; 3] =
    ["crates/bench/src/demo", "crates/bench/src/figures", "crates/bench/src/timed_engine.rs"];

/// What times computations.
const TIMING: [&str; 3] = [
    "crates/bench/src/timed_engine.rs",
    "crates/bench/src/figures/codec.rs",
    "crates/bench/src/figures/codec",
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let real: Vec<&str> = code_hash::MODELS.into_iter().chain(code_hash::REAL).collect();
    tell("REAL", code_hash::hash(&root, code_hash::of_crates(&real), &BESIDE));
    let timing = TIMING.into_iter().map(str::to_owned);
    tell("TIMED", code_hash::hash(&root, code_hash::of_crates(&code_hash::TIMED).chain(timing), &[]));
}

fn tell(what: &str, hash: u64) {
    println!("cargo::rustc-env=HEADWATER_CODE_{what}={hash:016x}");
}
