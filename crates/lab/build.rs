//! Embeds the shipped experiments, and a hash of the code that computes runs of models.

#[allow(dead_code, reason = "the build script of the product hashes more crates")]
mod code_hash;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = manifest.join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    embed(&root.join("experiments"), &out.join("experiments.rs"));
    println!("cargo::rustc-env=HEADWATER_CODE={:016x}", code_hash::of_crates(&root, &code_hash::MODELS, &[]));
}

/// Writes a list of ids and texts of the experiment files.
fn embed(folder: &Path, to: &Path) {
    // Not the folder itself: keeping a result would build everything anew.
    let papers = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("it lists").path());
    for paper in papers.filter(|path| path.is_dir() && !path.ends_with("results")) {
        println!("cargo::rerun-if-changed={}", paper.display());
    }
    let mut list = "&[\n".to_owned();
    for file in code_hash::files(folder) {
        let within = file.strip_prefix(folder).expect("it was found there");
        if file.extension().is_some_and(|it| it == "toml") && !within.starts_with("results") {
            let id = within.with_extension("").display().to_string();
            let file = file.canonicalize().expect("it was just found");
            writeln!(list, "    ({id:?}, include_str!({file:?})),").expect("a String takes all");
        }
    }
    list.push(']');
    fs::write(to, list).expect("the output folder takes a file");
}
