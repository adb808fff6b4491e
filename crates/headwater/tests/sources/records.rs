//! Decision records: where they are cited, and whether their index lists them.

use std::fs;
use std::path::{Path, PathBuf};

/// Prefix of every citation; the record's four digits follow.
const FOLDER: &str = "docs/decisions/";
/// File name endings of texts that may cite a record.
const CITING: &[&str] = &["rs", "toml", "md"];

/// All texts of the repository at `root` that may cite a record: code, experiments, documents and the pages at the root.
pub(crate) fn citing_files(root: &Path) -> Vec<PathBuf> {
    let mut files = texts(root, false);
    for folder in ["crates", "docs", "experiments", "fuzz"] {
        files.extend(texts(&root.join(folder), true));
    }
    files
}

/// Texts in `folder`, in order; `deep`: in its folders as well, build outputs aside.
fn texts(folder: &Path, deep: bool) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let mut files = Vec::new();
    for path in entries {
        if path.is_dir() {
            if deep && path.file_name().is_some_and(|name| name != "target") {
                files.extend(texts(&path, true));
            }
        } else if path.extension().is_some_and(|it| CITING.iter().any(|ending| it == *ending)) {
            files.push(path);
        }
    }
    files
}

/// The numbers that `text` cites as `docs/decisions/NNNN`, as written: "0017", or "17" where somebody forgot the zeros.
pub(crate) fn citations(text: &str) -> Vec<&str> {
    text.match_indices(FOLDER)
        .map(|(at, _)| {
            let rest = &text[at + FOLDER.len()..];
            &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]
        })
        .filter(|number| !number.is_empty())
        .collect()
}

/// Mentions of a decision by a number without its file ("decision N"), also where a comment breaks the line between.
pub(crate) fn bare_numbers(text: &str) -> Vec<String> {
    let lower = text.to_ascii_lowercase();
    lower
        .match_indices("decision")
        .filter_map(|(at, word)| {
            let rest = &lower[at + word.len()..];
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            let number = rest.trim_start_matches(|c: char| c.is_whitespace() || "/!#".contains(c));
            let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            (rest.starts_with(char::is_whitespace) && digits > 0)
                .then(|| format!("decision {}", &number[..digits]))
        })
        .collect()
}

/// Paths below `crates/` that `text` names; none of a line that says that the file was removed.
pub(crate) fn named_paths(text: &str) -> Vec<&str> {
    let of_line = |line| {
        str::match_indices(line, "crates/").map(move |(at, _)| {
            let rest = &line[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-/.".contains(c)));
            rest[..end.unwrap_or(rest.len())].trim_end_matches('.')
        })
    };
    text.lines().filter(|line| !line.contains("removed")).flat_map(of_line).collect()
}

/// Complaints about the index, given the name and first line of each record.
///
/// Each record has a number of its own, and one row: `| [0017](0017-file.md) | its title | what it decides |`.
pub(crate) fn index_complaints(index: &str, records: &[(String, String)]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut rows: Vec<Vec<&str>> = index
        .lines()
        .filter(|line| line.starts_with("| ["))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    for (name, heading) in records {
        let number = name.get(..4).unwrap_or(name);
        if records.iter().filter(|(other, _)| other.starts_with(number)).count() > 1 {
            complaints.push(format!("{name}: another record has the number {number}"));
        }
        // "# 17. Title", and some early records have "# 0007: Title".
        let title = heading.split_once(['.', ':']).map_or("", |(_, title)| title.trim());
        let first = format!("[{number}]({name})");
        match rows.iter().position(|row| row[0] == first) {
            None => complaints.push(format!("{name}: the index has no row {first}")),
            Some(at) => match rows.remove(at)[..] {
                [_, shown, decides] if shown == title && !decides.is_empty() => {}
                [_, shown, _] if shown != title => {
                    complaints
                        .push(format!("{name}: the index calls it '{shown}', it calls itself '{title}'"));
                }
                _ => complaints.push(format!("{name}: its row has a number, a title and what it decides")),
            },
        }
    }
    complaints.extend(rows.iter().map(|row| format!("the index has a row {} for no record", row[0])));
    complaints
}

#[test]
fn citations_are_found_and_counted_by_their_digits() {
    let text = format!("({FOLDER}0017), {FOLDER}0004-send-time.md, {FOLDER}README.md, {FOLDER}17");
    assert_eq!(citations(&text), ["0017", "0004", "17"]);
}

#[test]
fn paths_are_found_but_for_those_of_removed_files() {
    let text = "`crates/a/src/lib.rs` and crates/b.\nremoved: crates/c/d.rs\n[e](../../crates/e_f/g-h.txt)";
    assert_eq!(named_paths(text), ["crates/a/src/lib.rs", "crates/b", "crates/e_f/g-h.txt"]);
}

#[test]
fn a_decision_by_a_bare_number_is_found_also_across_lines() {
    let word = "decision";
    for text in [
        format!("(architecture {word} 8)"),
        format!("{word}s 1, 3 and 20"),
        format!("architecture {word}\n    //! 16)"),
        format!("D{} 0007", &word[1..]),
    ] {
        assert_eq!(bare_numbers(&text).len(), 1, "{text}");
    }
    for text in
        ["**Decision.** 3 (`codec`)", "docs/decisions/0017", "its decision. 8 %", "decisions", "decision8"]
    {
        assert_eq!(bare_numbers(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn an_index_that_lacks_repeats_or_renames_a_record_is_found() {
    let record = |name: &str, heading: &str| (name.to_owned(), heading.to_owned());
    let records = [record("0001-a.md", "# 1. A title"), record("0007-b.md", "# 0007: 8 bytes")];
    let row = "| [0001](0001-a.md) | A title | what |\n";
    assert_eq!(index_complaints(row, &records).len(), 1, "0007 is missing");
    let whole = format!("{row}| [0007](0007-b.md) | 8 bytes | what |\n");
    assert_eq!(index_complaints(&whole, &records), Vec::<String>::new());
    let records = &records[..1];
    assert_eq!(index_complaints(row, records), Vec::<String>::new());
    assert_eq!(index_complaints("| [0001](0001-a.md) | Another | what |\n", records).len(), 1);
    assert_eq!(index_complaints("| [0001](0001-a.md) | A title | |\n", records).len(), 1);
    assert_eq!(index_complaints(&row.repeat(2), records).len(), 1);
    let twice = [record("0001-a.md", "# 1. A title"), record("0001-c.md", "# 1. C")];
    assert!(index_complaints(row, &twice)[0].contains("another record"));
}
