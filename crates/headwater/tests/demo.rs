//! `headwater demo` moves an object through losses, dead sources and late ones, and leaves nothing behind.
//!
//! No tight timing here: this machine may be busy. With namespaces where they are allowed (else those tests are skipped
//! with the reason), and on loopback everywhere.

mod alone;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use headwater_testbed::netns;
use serde_json::Value;

use alone::{alone, namespaces};

/// A demo whose files, should it forget any, are in `folder` or in memory under its process id.
fn demo(network: &str, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(["demo", "--size", "16MiB", "--rates", "50,50,100", "--json"]);
    command.args(arguments.split_whitespace()).env("HEADWATER_DEMO_NETWORK", network);
    command.output().unwrap()
}

/// The result of a demo that worked, and was sane.
fn result(network: &str, arguments: &str) -> Value {
    let output = demo(network, arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments}: {out}{err}");
    let last = out.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    println!("{network} {arguments}: {result}");
    assert_eq!(result["network"], network);
    assert_eq!(result["verified"], true);
    assert_eq!(result["bytes"], 16 << 20);
    let ratio = result["ratio"].as_f64().unwrap();
    assert!(ratio > 0.9, "faster than the links: {result}");
    let shares: f64 = sources(&result).iter().map(|source| source["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{result}");
    assert!(result["cpu_seconds"].as_f64().unwrap() > 0.0 && result["peak_rss_bytes"].as_u64().unwrap() > 0);
    result
}

fn sources(result: &Value) -> &[Value] {
    result["sources"].as_array().unwrap()
}

fn share(result: &Value, source: usize) -> f64 {
    sources(result)[source]["share"].as_f64().unwrap()
}

#[test]
fn three_sources_in_namespaces_share_the_work_by_their_rates_and_losses_are_counted() {
    let alone = alone("headwater-demo-");
    if !namespaces() {
        return;
    }
    let result = result("namespaces", "--loss 1%");
    assert!((share(&result, 2) - 0.5).abs() < 0.15, "{result}");
    if !result["loss_dropped"].is_null() {
        // About 12,000 packets.
        let lost = result["loss_dropped"].as_u64().unwrap();
        assert!((30..500).contains(&lost), "{lost} packets lost");
    }
    assert_eq!(netns::clean().unwrap(), Vec::<String>::new());
    assert_eq!(alone.leftovers(), Vec::<String>::new());
}

#[test]
fn a_host_that_vanishes_and_one_that_comes_late_are_coped_with() {
    let _alone = alone("headwater-demo-");
    if !namespaces() {
        return;
    }
    let result = result("namespaces", "--kill 2@200ms --join 100@300ms");
    assert_eq!(result["source_rates"].as_array().unwrap().len(), 4);
    assert_eq!(result["killed"][0]["source"], 2);
    assert!(share(&result, 2) < 0.4, "{result}");
    assert!(share(&result, 3) > 0.0 && result["joined"][0]["used_after_seconds"].is_number(), "{result}");
}

#[test]
fn a_slower_uplink_counts_in_the_ideal() {
    let _alone = alone("headwater-demo-");
    if !namespaces() {
        return;
    }
    let result = result("namespaces", "--rerate 2@200ms=20");
    // 134.2 Mbit at 200 Mbit/s, and what is left after 0.2 s, or later on a busy machine, at 120 Mbit/s.
    let rerated = &result["rerated"][0];
    assert_eq!((&rerated["source"], &rerated["rate"]), (&2.into(), &20_000_000.into()), "{result}");
    let at = rerated["at_seconds"].as_f64().unwrap();
    let left = (134.217728 - 200.0 * at).max(0.0);
    let expected = if left > 0.0 { at + left / 120.0 } else { 134.217728 / 200.0 };
    let ideal = result["ideal_seconds"].as_f64().unwrap();
    assert!(at >= 0.2 && (ideal - expected).abs() < 1e-4, "{ideal}, {expected}: {result}");
}

#[test]
fn loopback_does_too_and_says_so() {
    let alone = alone("headwater-demo-");
    let result = result("loopback", "--loss 1% --kill 1@200ms --join 50@300ms");
    assert!(share(&result, 0) > 0.0 && share(&result, 2) > 0.0, "{result}");
    assert_eq!(alone.leftovers(), Vec::<String>::new());
}

#[test]
fn what_loopback_cannot_do_is_wrong_usage() {
    let output = demo("loopback", "--rerate 1@1s=10");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--rerate changes a link"));
}

/// A demo that takes long, and the folder that it works in once `log` is there.
fn slow_demo(log: &str) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command
        .args(["demo", "--size", "16MiB", "--rates", "5", "--json"])
        .env("HEADWATER_DEMO_NETWORK", "loopback");
    let child = command.spawn().unwrap();
    let name = format!("headwater-demo-{}-0", child.id());
    let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()].map(|place| place.join(&name));
    let found = wait_for(|| places.iter().find(|folder| folder.join(log).exists()));
    (child, found.display().to_string())
}

fn signal(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("sh").args(["-c", r#"kill -"$1" "$2""#, "sh", signal, &pid]).status();
    assert!(sent.unwrap().success());
}

/// Waits until neither the folder nor anybody who works in it is left.
fn wait_until_gone(folder: &str) {
    wait_for(|| processes_with(folder).is_empty().then_some(()));
    // Nobody is left who could make it again.
    wait_for(|| (!Path::new(folder).exists()).then_some(()));
}

#[test]
fn a_demo_that_is_interrupted_or_killed_leaves_nothing_behind() {
    let _alone = alone("headwater-demo-");
    for (name, code) in [("INT", Some(130)), ("KILL", None)] {
        let (mut child, folder) = slow_demo("receiver.log");
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), code, "{name}");
        wait_until_gone(&folder);
    }
}

/// A log is made just before its process: the demo dies at some moment of the making.
#[allow(clippy::disallowed_methods, reason = "kills a real process at some moment")]
#[test]
fn a_demo_that_is_killed_while_it_starts_a_process_leaves_nothing_behind() {
    let _alone = alone("headwater-demo-");
    for round in 0..12 {
        let log = ["controller.log", "source-0.log", "receiver.log"][round % 3];
        let (mut child, folder) = slow_demo(log);
        let moment = std::time::Instant::now() + std::time::Duration::from_micros(300 * round as u64);
        while std::time::Instant::now() < moment {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_gone(&folder);
    }
}

fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(text)).collect()
}

#[allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "waited in vain");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
