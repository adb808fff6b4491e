//! `headwater lab` as people and scripts meet it: exit codes, what goes to which stream, JSON shapes, help.

mod coflows;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// One short flow, and claims of which none has a pass line.
const SMALL: &str = r#"
title = "One flow"
source = "A paper, Fig. 0"
engines = ["packet"]
schemes = ["ppush(1,1)"]

[scale.small]
seeds = 2

[scenario]
fabric = { kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "40 us" }
workload = { kind = "task-list", tasks = [{ at = "0 s", packets = 20, sources = [0], receiver = 1, name = "t" }] }
until = "1 s"

[[claim]]
id = "T-1"
about = "completion time"
source = "Fig. 0"
published = 0.01
within = "report"
metric = { kind = "column", column = "tct_s" }
"#;

struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    /// Standard output, which must be JSON objects, one per line.
    fn json(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.out.lines().map(parse).collect()
    }

    #[track_caller]
    fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }
}

fn lab(folder: &Path, arguments: &[&str]) -> Answer {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .arg("lab")
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .env("XDG_CONFIG_HOME", folder.join("config"))
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    Answer {
        code: output.status.code().expect("ended by itself"),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A folder with the small experiment in `small.toml`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    folder
}

#[test]
fn help_teaches_by_example() {
    let folder = folder();
    for command in ["list", "run", "report"] {
        let help = lab(folder.path(), &[command, "--help"]);
        assert!(help.ends_with(0).out.contains("Examples:\n  headwater lab "), "{command}\n{}", help.out);
    }
    let help = lab(folder.path(), &["run", "--help"]).out;
    assert!(help.contains("goes on from there") && help.contains("polars.read_ipc"), "{help}");
}

/// Experiments and claims that a text tells its readers to run: the word after `headwater lab run`.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || c == '`';
    let words = text.split("headwater lab run ").skip(1).filter_map(move |rest| rest.split(ends).next());
    words.filter(|word| !word.starts_with(['-', '[', '.']) && !word.ends_with(".toml"))
}

#[test]
fn what_documents_and_help_say_to_run_is_there_and_is_one_experiment() {
    let folder = folder();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|it| it == "md"));
    let mut texts: Vec<_> =
        pages.chain([root.join("README.md")]).map(|it| fs::read_to_string(it).unwrap()).collect();
    texts.push(lab(folder.path(), &["run", "--help"]).out);
    let ids: BTreeSet<&str> = texts.iter().flat_map(|text| named(text)).collect();
    assert!(ids.contains("ppush/fig8"), "the README names it: {ids:?}");
    for id in ids {
        lab(folder.path(), &["list", id]).ends_with(0);
    }
}

#[test]
fn the_shipped_experiments_are_listed_without_a_checkout() {
    let folder = folder();
    let lines = lab(folder.path(), &["list", "--json"]);
    let lines = lines.ends_with(0).json();
    let fig8 = lines.iter().find(|line| line["experiment"] == "ppush/fig8").expect("fig8 is shipped");
    assert!(fig8["jobs"].as_array().unwrap().iter().any(|count| count["scale"] == "paper"), "{fig8}");
    let gain = fig8["claims"].as_array().unwrap().iter().find(|claim| claim["claim"] == "P-8a").unwrap();
    assert_eq!((&gain["published"], &gain["tolerance"]), (&1.586.into(), &"10 %".into()));
    assert!(gain["stored"].is_array());
    let text = lab(folder.path(), &["list", "P-8a"]);
    assert!(text.ends_with(0).out.starts_with("ppush/fig8: ") && text.out.contains("1.586"), "{}", text.out);
    assert!(!text.out.contains("ppush/fig2:"), "{}", text.out);
}

#[test]
fn a_run_prints_one_object_per_claim_and_writes_where_it_says() {
    let folder = folder();
    let answer = lab(folder.path(), &["run", "small.toml", "--json"]);
    let lines = answer.ends_with(0).json();
    assert_eq!(lines.len(), 1, "{}", answer.out);
    for field in [
        "experiment",
        "claim",
        "engine",
        "scale",
        "seeds",
        "published",
        "measured",
        "ci95",
        "tolerance",
        "verdict",
    ] {
        assert!(lines[0].get(field).is_some(), "{field} of {}", lines[0]);
    }
    assert_eq!(lines[0]["experiment"], "small");
    let verdicts = fs::read(folder.path().join("lab-results/small/packet-small/verdicts.json")).unwrap();
    let verdicts: Value = serde_json::from_slice(&verdicts).unwrap();
    assert_eq!(verdicts, Value::Array(lines));
    let words = lab(folder.path(), &["run", "small.toml"]);
    assert!(words.ends_with(0).out.contains("lab-results/small/packet-small"), "{}", words.out);
}

#[test]
fn what_cannot_be_run_says_what_can() {
    let folder = folder();
    fs::write(folder.path().join("bad.toml"), SMALL.replace("title =", "titel =")).unwrap();
    fs::write(folder.path().join("taken"), "").unwrap();
    for (arguments, code, hint) in [
        (&["run"] as &[&str], 2, "--all"),
        (&["run", "fig88"], 1, "ppush/fig8"),
        (&["run", "P-8z"], 1, "P-8a"),
        (&["run", "small.toml", "--engine", "flow"], 1, "only on: packet"),
        (&["run", "small.toml", "--scale", "paper"], 1, "only at: small"),
        (&["run", "small.toml", "--engine", "netns"], 1, "only on: packet"),
        (&["run", "small.toml", "--engine", "weather"], 2, "packet, flow, fluid, trees, timed, netns"),
        (&["run", "small.toml", "--pcap", "p"], 2, "--engine netns"),
        (&["run", "small.toml", "--seeds", "0"], 2, "--seeds"),
        (&["run", "small.toml", "--out", "taken"], 1, "--out"),
        (&["run", "small.toml", "--store", "--results", "r"], 2, "--scale paper"),
        (&["run", "small.toml", "--store"], 2, "--results"),
        (&["run", "missing.toml"], 1, "missing.toml"),
        (&["run", "bad.toml"], 1, "titel"),
        (&["list", "--experiments", "nowhere"], 1, "nowhere"),
        (&["report"], 2, "--results"),
        (&["report", "--results", "r"], 2, "--out"),
        (&["report", "nowhere"], 1, "nowhere"),
        (&["report", "."], 1, "lab run"),
        (&["report", ".", "--results", "r"], 2, "--results"),
    ] {
        let answer = lab(folder.path(), arguments);
        assert!(answer.ends_with(code).err.contains(hint), "{arguments:?}\n{}", answer.err);
        assert!(answer.out.is_empty(), "{arguments:?}\n{}", answer.out);
    }
}

#[test]
fn a_failure_with_json_is_one_object() {
    let folder = folder();
    let answer = lab(folder.path(), &["run", "fig88", "--json"]);
    let [error] = &answer.ends_with(1).json()[..] else { panic!("{}", answer.out) };
    assert_eq!((&error["error"]["kind"], &error["error"]["exit_code"]), (&"failed".into(), &1.into()));
}

#[test]
fn a_report_without_results_has_every_claim_pending() {
    let folder = folder();
    let written = lab(folder.path(), &["report", "--results", "none", "--out", "page"]);
    assert!(written.ends_with(0).err.contains("0 pass, 0 miss, 0 undecided, 0 report"), "{}", written.err);
    let page = fs::read_to_string(folder.path().join("page/reproduction.md")).unwrap();
    assert!(
        page.contains("[**P-8a**](reproduction/ppush.md#ppush-fig8)") && page.contains("| absent |"),
        "{page}"
    );
    let page = fs::read_to_string(folder.path().join("page/reproduction/ppush.md")).unwrap();
    assert!(page.contains("| P-8a |") && page.contains("| 1.586 | - | 10 % | pending |"), "{page}");
    let stored = lab(folder.path(), &["report", "--results", "none", "--json"]).ends_with(0).json();
    let (counts, rows) = (&stored[stored.len() - 1]["catalogue"], stored.len() as u64 - 1);
    assert_eq!((&counts["rows"], &counts["pass"], &counts["stale"]), (&rows.into(), &0.into(), &0.into()));
    assert_eq!((&stored[0]["row"], &stored[0]["verdict"]), (&"P-2".into(), &"absent".into()));
}

#[test]
fn what_is_stale_is_listed_computed_and_kept_with_a_line_about_the_attempt() {
    let folder = folder();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("mine.toml"), SMALL.replace("[scale.small]", "[scale.paper]")).unwrap();
    let arguments = ["rerun", "--stale", "--experiments", "own", "--results", "r"];
    let listed = lab(folder.path(), &[&arguments[..], &["--list", "--json"]].concat()).ends_with(0).json();
    let [one] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&one["experiment"], &one["reason"]), (&"mine".into(), &"not run".into()));
    let done = lab(folder.path(), &arguments);
    assert!(done.ends_with(0).err.contains("1 of 1: mine (packet): not run"), "{}", done.err);
    let attempts = fs::read_to_string(folder.path().join("r/attempts.jsonl")).unwrap();
    assert_eq!(attempts.lines().count(), 1, "{attempts}");
    let left = lab(folder.path(), &[&arguments[..], &["--list"]].concat());
    assert!(left.ends_with(0).out.contains("every result is fresh"), "{}", left.out);
}

#[test]
fn what_a_folder_holds_is_reported_with_its_pictures() {
    let folder = folder();
    fs::write(folder.path().join("drawn.toml"), SMALL.replace("[[claim]]", "[[plot]]\ntitle = \"Time\"\nkind = \"bars\"\nmetric = { kind = \"column\", column = \"tct_s\" }\n\n[[claim]]")).unwrap();
    lab(folder.path(), &["run", "drawn.toml", "small.toml", "--out", "x"]).ends_with(0);
    let written = lab(folder.path(), &["report", "x"]);
    assert!(
        written.ends_with(0).err.contains("x/report.md: 1 plots; 0 pass, 0 miss, 0 undecided, 2 report"),
        "{}",
        written.err
    );
    let page = fs::read_to_string(folder.path().join("x/report.md")).unwrap();
    assert!(page.contains("packet engine at small scale, 2 seeds") && page.contains("| T-1 |"), "{page}");
    assert!(page.contains("(report/drawn-small-1.svg)"), "{page}");
    for ending in ["svg", "png"] {
        let picture = folder.path().join(format!("x/report/drawn-small-1.{ending}"));
        assert!(fs::metadata(&picture).unwrap().len() > 1000, "{}", picture.display());
    }
    let listed = lab(folder.path(), &["report", "x", "--json"]);
    let listed = listed.ends_with(0).json();
    assert_eq!(listed.iter().map(|line| &line["experiment"]).collect::<Vec<_>>(), ["drawn", "small"]);
    assert!(listed[0]["range"].is_array(), "{}", listed[0]);
}
