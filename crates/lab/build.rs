//! Embeds the shipped experiments, hashes of their small tables, and a hash of the code that computes runs of models.

#[allow(dead_code, reason = "the build script of the product hashes more crates")]
mod code_hash;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = manifest.join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    embed(&root.join("experiments"), &out.join("experiments.rs"));
    remember(&root.join("experiments/golden.txt"), &out.join("small_tables.rs"));
    let hash = code_hash::hash(&root, code_hash::of_crates(&code_hash::MODELS), &[]);
    println!("cargo::rustc-env=HEADWATER_CODE={hash:016x}");
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
        let is_one = file.extension().is_some_and(|it| it == "toml") && within != Path::new("catalogue.toml");
        if is_one && !within.starts_with("results") {
            let id = within.with_extension("").display().to_string();
            let file = file.canonicalize().expect("it was just found");
            writeln!(list, "    ({id:?}, include_str!({file:?})),").expect("a String takes all");
        }
    }
    list.push(']');
    fs::write(to, list).expect("the output folder takes a file");
}

/// Writes a hash per experiment and engine of the hashes of its tables (`EXPERIMENT ENGINE TABLE HASH` a line).
fn remember(golden: &Path, to: &Path) {
    println!("cargo::rerun-if-changed={}", golden.display());
    let text = fs::read_to_string(golden).expect("the repository remembers tables");
    let mut all: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(id), Some(engine)) = (words.next(), words.next()) else { continue };
        let hash = all.entry((id, engine)).or_insert(code_hash::START);
        words.for_each(|word| code_hash::add(hash, word.as_bytes()));
    }
    let list: Vec<String> = all
        .iter()
        .map(|((id, engine), hash)| format!("    ({id:?}, {engine:?}, \"{hash:016x}\"),"))
        .collect();
    fs::write(to, format!("&[\n{}\n]", list.join("\n"))).expect("the output folder takes a file");
}
