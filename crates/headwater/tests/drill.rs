//! `headwater drill` as people and scripts meet it: lists, names, exit codes. No network is built here.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn drill(folder: &TempDir, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater"))
        .arg("drill")
        .args(arguments)
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("XDG_CONFIG_HOME", folder.path().join("config"))
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_drill_is_listed_with_its_goal_in_words_and_as_json() {
    let folder = folder();
    let words = drill(&folder, &["--list"]);
    assert!(words.status.success() && out(&words).starts_with("DRILL"), "{}", err(&words));
    let json = drill(&folder, &["--list", "--json"]);
    let lines: Vec<Value> = out(&json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 10, "{}", lines.len());
    assert_eq!(lines[0]["name"], "clean", "what goes well comes first");
    for line in &lines {
        let [name, goal] = ["name", "goal"].map(|field| line[field].as_str().unwrap());
        assert!(out(&words).contains(name) && goal.contains("at "), "{line}");
    }
    let one = drill(&folder, &["--list", "burst", "--json"]);
    assert_eq!(out(&one).lines().count(), 1);
}

#[test]
fn a_misspelt_name_is_told_all_names_and_starts_nothing() {
    let folder = folder();
    for arguments in [&["bursts"][..], &["bursts", "--list"]] {
        let output = drill(&folder, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert!(err(&output).contains("clean, loss-1, loss-5, burst"), "{}", err(&output));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no folder is left");
}

#[test]
fn drills_that_could_not_begin_are_skipped_with_the_reason_and_are_no_failure() {
    let folder = folder();
    let words = drill(&folder, &["clean", "burst", "--limit", "1s"]);
    let text = out(&words);
    assert_eq!(words.status.code(), Some(0), "{text}{}", err(&words));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("SKIPPED  clean") && lines[0].contains("limit"), "{text}");
    assert!(lines[2].starts_with("0 passed, 0 failed, 2 skipped"), "{text}");
    assert!(err(&words).contains("says nothing about the product"), "{}", err(&words));
    let json = drill(&folder, &["clean", "burst", "--limit", "1s", "--json"]);
    let lines: Vec<Value> = out(&json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["outcome"]), (3, &"skipped".into()), "{}", out(&json));
    assert_eq!((&lines[2]["type"], &lines[2]["skipped"]), (&"total".into(), &2.into()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no folder is left");
    let kept = drill(&folder, &["clean", "--limit", "1s", "--keep"]);
    assert!(err(&kept).contains("Logs and rows: "), "{}", err(&kept));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
