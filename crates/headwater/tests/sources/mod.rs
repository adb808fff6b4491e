//! Reading Rust sources and our tables of papers just closely enough to hold them to the rules.

pub(super) mod modules;
pub(super) mod records;

use std::fs;
use std::path::{Path, PathBuf};

/// Modules of the standard library that a machine has no business with.
const IMPURE_MODULES: &[&str] = &["time", "fs", "thread", "process", "env", "os", "net"];
/// Of `std::net`, a machine may hold addresses: they are data.
const ADDRESSES: &[&str] = &["IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "SocketAddrV4", "SocketAddrV6"];
/// Names that mean a clock, a socket, entropy or the terminal, wherever they come from.
const IMPURE_NAMES: &[&str] = &[
    "Instant",
    "SystemTime",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "ToSocketAddrs",
    "thread_rng",
    "ThreadRng",
    "OsRng",
    "from_os_rng",
    "from_entropy",
    "getrandom",
    "RandomState",
    "stdin",
    "stdout",
    "stderr",
    "println",
    "eprintln",
    "dbg",
];

/// All Rust files below `folder`, or this one, that end up in the crate, in order; files of tests alone are left out.
pub(super) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_owned()];
    }
    let mut files = Vec::new();
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let stem = path.file_stem().unwrap_or_default();
        if stem == "tests" {
            continue;
        }
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files
}

/// Names in this source that a machine must not use, in order and each once: `std::fs`, `std::net::lookup`, `Instant`.
pub(super) fn impurities(source: &str) -> Vec<String> {
    let tokens = without_tests(tokens(source));
    let mut found = Vec::new();
    let mut note = |what: String| {
        if !found.contains(&what) {
            found.push(what);
        }
    };
    for (at, token) in tokens.iter().enumerate() {
        if IMPURE_NAMES.contains(&token.as_str()) {
            note(token.clone());
        }
        // `rand::rng()` and `rand::random()` are seeded by the system.
        if token == "rand" && tokens.get(at + 1).is_some_and(|it| it == "::") {
            for path in paths(&tokens[at + 2..]) {
                if matches!(path[0].as_str(), "rng" | "random" | "rngs") {
                    note(format!("rand::{}", path[0]));
                }
            }
        }
        if (token == "std" || token == "core") && tokens.get(at + 1).is_some_and(|it| it == "::") {
            for path in paths(&tokens[at + 2..]) {
                match path.as_slice() {
                    [net, name, ..] if net == "net" && ADDRESSES.contains(&name.as_str()) => {}
                    [net, name, ..] if net == "net" => note(format!("std::net::{name}")),
                    [module, ..] if IMPURE_MODULES.contains(&module.as_str()) => {
                        note(format!("std::{module}"));
                    }
                    _ => {}
                }
            }
        }
    }
    found
}

/// The paths that start here, groups spelled out: `{fs, net::{A, B}}` is `fs`, `net::A`, `net::B`.
fn paths(tokens: &[String]) -> Vec<Vec<String>> {
    fn walk(tokens: &[String], at: &mut usize, prefix: &[String], all: &mut Vec<Vec<String>>) {
        let mut path = prefix.to_vec();
        loop {
            match tokens.get(*at).map(String::as_str) {
                Some("{") => {
                    *at += 1;
                    while let Some(token) = tokens.get(*at) {
                        match token.as_str() {
                            "}" => {
                                *at += 1;
                                return;
                            }
                            "," => *at += 1,
                            _ => {
                                let before = *at;
                                walk(tokens, at, &path, all);
                                if *at == before {
                                    // Something that is no path: not a `use`, nothing for us.
                                    return;
                                }
                            }
                        }
                    }
                    return;
                }
                Some(name) if is_name(name) || name == "*" => {
                    path.push(name.to_owned());
                    *at += 1;
                }
                _ => break,
            }
            match tokens.get(*at).map(String::as_str) {
                Some("::") => *at += 1,
                Some("as") => {
                    *at += 2;
                    break;
                }
                _ => break,
            }
        }
        if path.len() > prefix.len() {
            all.push(path);
        }
    }
    let (mut at, mut all) = (0, Vec::new());
    walk(tokens, &mut at, &[], &mut all);
    all
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Leaves out what follows `#[cfg(test)]`: one item, to its `;` or the end of its braces.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let marker = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].iter().map(String::as_str).take(marker.len()).eq(marker) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += marker.len();
        let mut depth = 0_usize;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && token == "}" {
                        break;
                    }
                }
                ";" if depth == 0 => break,
                _ => {}
            }
        }
    }
    kept
}

/// Names, `::` and single signs; comments, strings, characters and numbers are dropped.
fn tokens(source: &str) -> Vec<String> {
    let text: Vec<char> = source.chars().collect();
    let at = |i: usize| text.get(i).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < text.len() {
        let c = text[i];
        if c == '/' && at(i + 1) == '/' {
            while i < text.len() && text[i] != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            loop {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (depth, i) = (depth + 1, i + 2),
                    ('*', '/') => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 || i >= text.len() {
                    break;
                }
            }
        } else if c == '"' {
            i = after_string(&text, i + 1);
        } else if c == '\'' {
            // A character is closed by a quote; a lifetime is not.
            if at(i + 1) == '\\' {
                i += 3;
                while i < text.len() && text[i] != '\'' {
                    i += 1;
                }
                i += 1;
            } else if at(i + 2) == '\'' {
                i += 3;
            } else {
                i += 1;
            }
        } else if c.is_alphabetic() || c == '_' {
            let start = i;
            while at(i).is_alphanumeric() || at(i) == '_' {
                i += 1;
            }
            let name: String = text[start..i].iter().collect();
            match (name.as_str(), at(i)) {
                ("r" | "br" | "cr", '"' | '#') if raw_hashes(&text, i).is_some() => {
                    i = after_raw_string(&text, i);
                }
                ("b" | "c", '"') => i = after_string(&text, i + 1),
                _ => tokens.push(name),
            }
        } else if c.is_ascii_digit() {
            while at(i).is_alphanumeric() || at(i) == '_' {
                i += 1;
            }
        } else if c == ':' && at(i + 1) == ':' {
            tokens.push("::".to_owned());
            i += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            i += 1;
        }
    }
    tokens
}

fn after_string(text: &[char], mut i: usize) -> usize {
    while i < text.len() && text[i] != '"' {
        i += if text[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// How many `#` open the raw string here; `None` if none does (`r#name` is a name).
fn raw_hashes(text: &[char], i: usize) -> Option<usize> {
    let hashes = text[i..].iter().take_while(|c| **c == '#').count();
    (text.get(i + hashes) == Some(&'"')).then_some(hashes)
}

fn after_raw_string(text: &[char], i: usize) -> usize {
    let hashes = raw_hashes(text, i).unwrap_or(0);
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let start = i + hashes + 1;
    (start..text.len())
        .find(|at| text[*at..].starts_with(&closing))
        .map_or(text.len(), |at| at + closing.len())
}

/// The rows of docs/papers.md: `| Eq. 1 | what | `file` |` gives ("Eq. 1", "file"), once per file.
pub(super) fn homes(table: &str) -> Vec<(String, String)> {
    let mut homes = Vec::new();
    for line in table.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(item), Some(files)) = (cells.first(), cells.last()) else { continue };
        // Every second piece stands between backquotes.
        let files = files.split('`').skip(1).step_by(2).filter(|file| file.ends_with(".rs"));
        homes.extend(files.map(|file| ((*item).to_owned(), file.to_owned())));
    }
    homes
}

/// Whether `text` mentions `item` as itself: "Eq. 1" is in "Eq. 1-2" and "Eq. (1)", not in "Eq. 12".
///
/// A range counts for what lies in it: "Eq. 3" is in "Eq. 1-4".
pub(super) fn names(text: &str, item: &str) -> bool {
    let Some((kind, number)) = item.rsplit_once(' ') else { return text.contains(item) };
    let Ok(number) = number.parse::<u32>() else { return text.contains(item) };
    text.match_indices(kind).any(|(at, _)| {
        let mut rest = &text[at + kind.len()..];
        // "Eq. 1", "Eq. (1)", "Eq. 1-2", "Eq. 1 and 2", "Eq. 1, 2": numbers until something else comes.
        let mut previous: Option<u32> = None;
        let mut range = false;
        loop {
            let trimmed = rest.trim_start_matches([' ', '(', ')', ',', '\u{a0}']);
            let trimmed =
                trimmed.strip_prefix("and ").map_or(trimmed, |it| it.trim_start_matches([' ', '(']));
            if let Some(after) = trimmed.strip_prefix(['-', '\u{2013}']) {
                (rest, range) = (after, true);
                continue;
            }
            let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
            let Ok(this) = trimmed[..digits].parse::<u32>() else { return false };
            let from = if range { previous.unwrap_or(this) } else { this };
            if (from..=this).contains(&number) {
                return true;
            }
            (rest, previous, range) = (&trimmed[digits..], Some(this), false);
        }
    })
}

#[test]
fn impure_sources_are_found_however_they_spell_it() {
    for (source, expected) in [
        ("use std::fs;", "std::fs"),
        ("use std::{fmt, thread};", "std::thread"),
        ("use std::{fmt::{self, Debug}, time::Duration};", "std::time"),
        ("use std::net::{IpAddr, lookup_host};", "std::net::lookup_host"),
        ("use std::net::*;", "std::net::*"),
        ("fn f() { std :: process :: exit(1) }", "std::process"),
        ("fn now() -> Instant { Instant::now() }", "Instant"),
        ("let x = rand::rng();", "rand::rng"),
        ("use rand::{Rng, random};", "rand::random"),
        ("fn f() { println!(\"{}\", 1) }", "println"),
        ("#[cfg(test)] mod tests { use std::fs; } use std::env;", "std::env"),
        ("#[cfg(test)] mod tests; use std::fs;", "std::fs"),
        ("let s = \"\\\" // \"; use std::fs;", "std::fs"),
        ("let s = r#\" \" \"#; use std::fs;", "std::fs"),
        ("let c = '\"'; use std::fs;", "std::fs"),
        ("fn f<'a>(x: &'a str) {} use std::fs;", "std::fs"),
        ("use std::fs as disk;", "std::fs"),
    ] {
        assert_eq!(impurities(source), [expected], "{source}");
    }
}

#[test]
fn pure_sources_pass() {
    for source in [
        "use std::collections::BTreeMap; use std::net::{IpAddr, SocketAddr};",
        "//! Like std::time::Instant.\n/* use std::fs; /* std::net */ */ fn f() {}",
        "const HINT: &str = \"see std::fs\"; const RAW: &str = r\"std::fs\"; const B: &[u8] = b\"std::fs\";",
        "#[cfg(test)]\nmod tests { use std::fs; fn f() { let x = [0; 3]; } }\nfn g() {}",
        "#[cfg(test)] use std::fs;",
        "use rand::{Rng, SeedableRng}; use rand_chacha::ChaCha8Rng;",
        "use core::fmt; use std::sync::OnceLock;",
    ] {
        assert_eq!(impurities(source), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn items_of_papers_are_recognised_in_prose() {
    for text in ["PPUSH Eq. 1.", "(Eq. (1))", "Eq. 1-2", "Eq. 1, 2", "Eq. 3 and Eq. 1"] {
        assert!(names(text, "Eq. 1"), "{text}");
    }
    for text in ["Eq. 12", "Eq. 21", "Eq. 2 and 3", "equation one", "Alg. 1", ""] {
        assert!(!names(text, "Eq. 1"), "{text}");
    }
    assert!(names("Eq. 1-4", "Eq. 3") && names("Eq. 2 and 3", "Eq. 3") && !names("Eq. 1-2", "Eq. 3"));
    assert!(names("PPUSH §III-A", "§III-A") && !names("PPUSH §III-B", "§III-A"));
}

#[test]
fn table_rows_name_items_and_files() {
    let table =
        "| Item | What | File |\n|---|---|---|\n| Eq. 1 | x | `a.rs`, `b/c.rs` |\n| Alg. 9 | later | - |\n";
    let expected = [("Eq. 1", "a.rs"), ("Eq. 1", "b/c.rs")];
    assert_eq!(homes(table), expected.map(|(item, file)| (item.to_owned(), file.to_owned())));
}
