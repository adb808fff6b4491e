//! `headwater lab coflow` as people and scripts meet it: what a trace gives, and what is wrong with one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Answer, lab};

/// Two coflows through one port, and one beside them.
const TRACE: &str = "4 3\n1 0 1 0 1 1:4.0\n2 5 2 0 2 2 1:2.0 3:1.0\n3 6 1 2 1 0:0.5\n";

fn coflow(folder: &Path, arguments: &[&str]) -> Answer {
    lab(folder, &[&["coflow"], arguments].concat())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("trace.txt"), TRACE).unwrap();
    folder
}

/// Standard output as objects without what differs from run to run.
fn same(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.code, 0, "{}", answer.err);
    let lines = answer.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|mut line| {
            let object = line.as_object_mut().unwrap();
            // The kernel counts processor time at its ticks: a run that is over before has none.
            assert!(object.remove("cpu_seconds").unwrap().as_f64().unwrap() >= 0.0);
            assert!(object.remove("peak_rss_bytes").unwrap().as_u64().unwrap() > 1 << 20);
            line
        })
        .collect()
}

#[test]
fn a_trace_gives_an_object_per_policy_with_exactly_the_documented_fields() {
    let folder = folder();
    let answer = coflow(folder.path(), &["trace.txt", "--json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let lines: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let policies: Vec<&str> = lines.iter().map(|line| line["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["fair", "fifo", "scf", "varys", "aalo", "sincronia"]);
    for line in &lines {
        let fields: BTreeSet<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        let documented = [
            "policy",
            "coflows",
            "mean_cct_s",
            "p50_cct_s",
            "p90_cct_s",
            "p99_cct_s",
            "max_cct_s",
            "deciles_s",
            "cpu_seconds",
            "peak_rss_bytes",
        ];
        assert_eq!(fields, BTreeSet::from(documented));
        assert_eq!((&line["coflows"], line["deciles_s"].as_array().unwrap().len()), (&3.into(), 10));
        assert_eq!(line["deciles_s"][9], line["max_cct_s"]);
    }
    // 4 MiB at 1 Gbit/s, while nobody else is served.
    let fifo = &lines[1];
    let first = f64::from(4 << 23) / 1e9;
    assert!(
        fifo["max_cct_s"].as_f64().unwrap() >= first && fifo["p50_cct_s"].as_f64().unwrap() > 0.0,
        "{fifo}"
    );
}

#[test]
fn the_same_trace_gives_the_same_bytes_on_every_run_and_for_every_number_of_threads() {
    let folder = folder();
    let policy =
        "fair,fifo,scf,varys,aalo,aalo-order,sincronia,sincronia-offline,sincronia+courier,django-like:2";
    let all = |jobs: &str, plot: &str| {
        let answer = coflow(
            folder.path(),
            &["trace.txt", "--json", "--policy", policy, "--jobs", jobs, "--plot", plot],
        );
        (same(&answer), fs::read(folder.path().join(plot)).unwrap())
    };
    let once = all("1", "a.svg");
    assert_eq!(once.0.len(), 10);
    assert_eq!(all("1", "b.svg"), once);
    assert_eq!(all("4", "c.svg"), once);
    assert!(String::from_utf8_lossy(&once.1).contains("sincronia+courier"), "the plot names every policy");
}

#[test]
fn the_table_has_a_line_per_policy_and_kind_of_coflow() {
    let folder = folder();
    let text = coflow(folder.path(), &["trace.txt", "--ports", "3", "--rate", "10Gbit/s"]).out;
    assert!(text.starts_with("3 coflows, 6 flows, 3 hosts at 10.00 Gbit/s, exact to the event"), "{text}");
    for policy in ["fair", "fifo", "scf", "varys", "aalo", "sincronia"] {
        let own = text.lines().filter(|line| line.starts_with(&format!("{policy} ")));
        assert_eq!(own.count(), 2, "all coflows and the short narrow ones: {text}");
    }
    let steps =
        coflow(folder.path(), &["trace.txt", "--policy", "fifo", "--emulate-epochs", "100ms,10ms", "--json"]);
    // Whole steps from the epoch's start.
    let max = same(&steps)[0]["max_cct_s"].as_f64().unwrap();
    assert!((max * 100.0 - (max * 100.0).round()).abs() < 1e-9, "{max}");
}

#[test]
fn wrong_traces_and_options_are_told_with_what_to_do() {
    let folder = folder();
    fs::write(folder.path().join("bad.txt"), TRACE.replace("3:1.0", "4:1.0")).unwrap();
    fs::write(folder.path().join("cut.txt"), &TRACE[..TRACE.len() - 3]).unwrap();
    for (arguments, code, must_say) in [
        (&["bad.txt"][..], 1, "bad.txt: line 3, port of reducer 2: port 4 does not exist"),
        (&["cut.txt"], 1, "cut.txt: line 4, "),
        (&["nothing.txt"], 1, "cannot read nothing.txt"),
        (&["trace.txt", "--policy", "varis"], 2, "take any of fair, fifo"),
        (&["trace.txt", "--policy", "django-like:0"], 2, "a number from 1"),
        (&["trace.txt", "--plot", "a.gif"], 2, "ends in .svg or .png"),
        (&["trace.txt", "--emulate-epochs", "10ms,3ms"], 2, "not a whole number of steps"),
        (&["trace.txt", "--ports", "0"], 2, "--ports"),
        (&["trace.txt", "--rate", "0Mbit/s"], 2, "a rate of zero"),
    ] {
        let answer = coflow(folder.path(), arguments);
        assert_eq!(answer.code, code, "{arguments:?}: {}", answer.err);
        assert!(answer.err.contains(must_say), "{arguments:?}: {}", answer.err);
    }
}
