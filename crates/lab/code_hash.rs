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

/// The crates that decide, beside those, what a run of real processes records.
pub(crate) const REAL: [&str; 8] = ["agent", "api", "bench", "control", "driver", "store", "testbed", "udp"];

/// Hashes the sources and data of crates of the workspace at `root`, but for the folders `beside` (from the root); Cargo is told to
/// look at them again when they change.
pub(crate) fn of_crates(root: &Path, names: &[&str], beside: &[&str]) -> u64 {
    let mut hash = START;
    for name in names {
        for part in ["src", "data"] {
            let folder = root.join("crates").join(name).join(part);
            if folder.exists() {
                println!("cargo::rerun-if-changed={}", folder.display());
                add_sources(root, &folder, beside, &mut hash);
            }
        }
    }
    hash
}

fn add_sources(root: &Path, folder: &Path, beside: &[&str], hash: &mut u64) {
    for file in files(folder) {
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
