//! A hash of the code that computes runs; for build scripts.
//!
//! Finished runs carry it, so that a run which other code made is never taken for one of this code. Lines of comments do not
//! count, nor do unit tests: `tests.rs`, folders of that name, and what follows `#[cfg(test)]` and `mod tests {` at the end of a file.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates that decide what a run of a model records.
pub(crate) const MODELS: [&str; 14] = [
    "baseline",
    "codec",
    "controller",
    "experiment",
    "fabric",
    "flow",
    "machine",
    "node",
    "policy",
    "sim",
    "switch",
    "transport",
    "units",
    "wire",
];

/// The crates that decide what a timed computation records, beside the code that times.
pub(crate) const TIMED: [&str; 4] = ["codec", "experiment", "fabric", "units"];

/// The crates that decide, beside the models, what a run of real processes records.
pub(crate) const REAL: [&str; 8] = ["agent", "api", "bench", "control", "driver", "store", "testbed", "udp"];

/// Sources and data of crates, as paths from the workspace's root.
pub(crate) fn of_crates(names: &[&str]) -> impl Iterator<Item = String> {
    names.iter().flat_map(|name| ["src", "data"].map(|part| format!("crates/{name}/{part}")))
}

/// Hashes files and folders of the workspace at `root`, but for those `beside`; Cargo is told to look at them again when they change.
pub(crate) fn hash(root: &Path, parts: impl Iterator<Item = String>, beside: &[&str]) -> u64 {
    let mut hash = START;
    for part in parts.map(|part| root.join(part)).filter(|part| part.exists()) {
        println!("cargo::rerun-if-changed={}", part.display());
        add_sources(root, &part, beside, &mut hash);
    }
    hash
}

fn add_sources(root: &Path, part: &Path, beside: &[&str], hash: &mut u64) {
    for file in if part.is_dir() { files(part) } else { vec![part.to_owned()] } {
        let name = file.strip_prefix(root).expect("it is below");
        let is_test = name.iter().any(|part| part == "tests" || part == "tests.rs");
        if is_test || beside.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        let text = fs::read(&file).expect("a source file is readable");
        add(hash, name.display().to_string().as_bytes());
        let tests = text.windows(TESTS.len()).position(|at| at == TESTS).unwrap_or(text.len());
        let lines = text[..tests].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.filter(|line| !line.starts_with(b"//")).for_each(|line| add(hash, line));
    }
}

/// How a file's unit tests begin, which are its end.
const TESTS: &[u8] = b"\n#[cfg(test)]\nmod tests {\n";

/// Where a hash begins (FNV-1a).
pub(crate) const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, with a mark at the end of each part.
pub(crate) fn add(hash: &mut u64, bytes: &[u8]) {
    for byte in bytes.iter().chain(b"\n") {
        *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
}

/// All files below a folder, in order; none if it is not there.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.expect("it lists").path()).collect();
    entries.sort();
    entries.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
