//! A hash of the code that computes runs of real processes: of all that a run passes through, models and product alike.

#[path = "../lab/code_hash.rs"]
mod code_hash;

use std::env;
use std::path::PathBuf;

/// Folders that no run passes through.
const BESIDE: [&str; 2] = ["crates/bench/src/demo", "crates/bench/src/figures"];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let crates: Vec<&str> = code_hash::MODELS.into_iter().chain(code_hash::REAL).collect();
    println!("cargo::rustc-env=HEADWATER_CODE_REAL={:016x}", code_hash::of_crates(&root, &crates, &BESIDE));
}
