//! Embeds the shipped experiments, and a hash of the code that computes runs.
//!
//! The hash covers the sources and data of every crate that a simulated run passes through. Finished runs carry it, so
//! that a run which other code made is never taken for one of this code. Lines of comments do not count. A run of real
//! processes passes through the product too, so it has a hash of its own that covers both.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The crates that decide what a run records.
const CRATES: [&str; 8] = ["codec", "fabric", "policy", "sim", "switch", "transport", "units", "wire"];
/// The crates that decide what a run of real processes records besides.
const REAL: [&str; 4] = ["control", "headwater", "store", "udp"];
/// Folders of this crate that no run passes through.
const BESIDE: [&str; 3] = ["bench", "cli", "lab"];

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = manifest.join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    embed(&root.join("experiments"), &out.join("experiments.rs"));
    let mut hash = 0xcbf2_9ce4_8422_2325;
    add_crates(&root, &CRATES, &mut hash);
    println!("cargo::rustc-env=HEADWATER_CODE={hash:016x}");
    add_crates(&root, &REAL, &mut hash);
    println!("cargo::rustc-env=HEADWATER_CODE_REAL={hash:016x}");
}

fn add_crates(root: &Path, names: &[&str], hash: &mut u64) {
    for name in names {
        for part in ["src", "data"] {
            let folder = root.join("crates").join(name).join(part);
            if folder.exists() {
                println!("cargo::rerun-if-changed={}", folder.display());
                add_sources(root, &folder, hash);
            }
        }
    }
}

/// Writes a list of ids and texts of the experiment files.
fn embed(folder: &Path, to: &Path) {
    // Not the folder itself: keeping a result would build everything anew.
    let papers = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("it lists").path());
    for paper in papers.filter(|path| path.is_dir() && !path.ends_with("results")) {
        println!("cargo::rerun-if-changed={}", paper.display());
    }
    let mut list = "&[\n".to_owned();
    for file in files(folder) {
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

fn add_sources(root: &Path, folder: &Path, hash: &mut u64) {
    let beside = |file: &PathBuf| {
        let within = file.strip_prefix(root.join("crates/headwater/src"));
        within.is_ok_and(|within| BESIDE.iter().any(|folder| within.starts_with(folder)))
    };
    for file in files(folder).into_iter().filter(|file| !beside(file)) {
        let text = fs::read(&file).expect("a source file is readable");
        let name = file.strip_prefix(root).expect("it is below").display().to_string();
        add(hash, name.as_bytes());
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.filter(|line| !line.starts_with(b"//")).for_each(|line| add(hash, line));
    }
}

/// FNV-1a, with a mark at the end of each part.
fn add(hash: &mut u64, bytes: &[u8]) {
    for byte in bytes.iter().chain(b"\n") {
        *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
}

/// All files below a folder, in order; none if it is not there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.expect("it lists").path()).collect();
    entries.sort();
    entries.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
