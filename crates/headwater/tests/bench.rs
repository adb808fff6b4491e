//! `headwater bench delivery` moves an object by real programs between namespaces, says what it cost, and leaves nothing
//! behind; `bench wire` and `bench store` print what programs read.
//!
//! No timing here: this machine may be busy. Without namespaces the deliveries are skipped with the reason.

mod alone;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use headwater_testbed::netns;
use serde_json::Value;

use alone::{alone, namespaces};

fn bench(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.arg("bench").args(arguments.split_whitespace()).arg("--json").output().unwrap()
}

/// The lines of a bench that went well.
fn lines(arguments: &str) -> Vec<Value> {
    let output = bench(arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments}: {out}{err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {out}{err}"))).collect()
}

fn of_type<'a>(lines: &'a [Value], word: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == word).collect()
}

#[test]
fn a_small_delivery_is_made_by_us_and_by_curl_where_it_is_installed_and_checked() {
    let alone = alone("headwater-bench-");
    if !namespaces() {
        return;
    }
    let lines = lines("delivery --scenario multi --size 4MiB --repeat 2 --peers headwater,curl");
    let (missing, runs, medians) =
        (of_type(&lines, "missing"), of_type(&lines, "run"), of_type(&lines, "median"));
    let peers = 2 - missing.len();
    assert_eq!((runs.len(), medians.len()), (2 * peers, peers), "{lines:?}");
    for run in &runs {
        assert!(run["error"].is_null() && run["checked"] == true, "{run}");
        // 33.6 Mbit at 500 Mbit/s; of one source, 300.
        let ideal = run["ideal_seconds"].as_f64().unwrap();
        assert!((ideal - 0.0671).abs() < 1e-3 && run["seconds"].as_f64().unwrap() > ideal, "{run}");
        let [sent, cpu] = ["sent_per_size", "cpu_s_per_gib"].map(|field| run[field].as_f64().unwrap());
        assert!((1.0..2.0).contains(&sent) && cpu > 0.0, "{run}");
    }
    assert_eq!(medians[0]["peer"], "headwater");
    assert_eq!((medians[0]["runs"].as_u64(), medians[0]["times_ours"].as_f64()), (Some(2), Some(1.0)));
    // Rounds, in which peers take turns.
    let order: Vec<_> = runs.iter().map(|run| run["round"].as_u64().unwrap()).collect();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(netns::clean().unwrap(), Vec::<String>::new());
    assert_eq!(alone.leftovers(), Vec::<String>::new());
}

#[test]
fn a_host_that_vanishes_and_an_uplink_that_drops_are_in_the_ideal() {
    let _alone = alone("headwater-bench-");
    if !namespaces() {
        return;
    }
    // 1,174 Mbit: 1,000 in the first two seconds, the rest at 200 and at 220 Mbit/s.
    let lines =
        lines("delivery --scenario multi-kill,multi-rerate --size 140MiB --repeat 1 --peers headwater");
    let runs = of_type(&lines, "run");
    for (run, ideal) in runs.iter().zip([2.872, 2.793]) {
        assert!((run["ideal_seconds"].as_f64().unwrap() - ideal).abs() < 1e-3, "{run}");
        // Where the machine is busy the host vanishes late: at the best never, which is 0.82 of the ideal.
        assert!(run["error"].is_null() && run["seconds"].as_f64().unwrap() > 0.8 * ideal, "{run}");
    }
    assert_eq!(runs.len(), 2);
}

#[test]
fn without_limits_and_to_many_gets_at_once_it_arrives_too() {
    let alone = alone("headwater-bench-");
    if !namespaces() {
        return;
    }
    let lines = lines(
        "delivery --scenario fat,fat-mtu,many --size 1MiB --repeat 1 --peers headwater --receivers-per-node 5",
    );
    for run in of_type(&lines, "run") {
        assert!(run["ideal_seconds"].is_null() && run["error"].is_null(), "{run}");
    }
    let many = of_type(&lines, "many")[0];
    assert_eq!((many["gets"].as_u64(), many["bytes_each"].as_u64()), (Some(5), Some(1 << 20)));
    let [fairness, peak] = ["fairness", "peak_rss_bytes"].map(|field| many[field].as_f64().unwrap());
    assert!((0.2..=1.0).contains(&fairness) && peak > 1e6, "{many}");
    assert_eq!(alone.leftovers(), Vec::<String>::new());
}

#[test]
fn a_comparison_that_is_interrupted_leaves_nothing_behind() {
    let alone = alone("headwater-bench-");
    if !namespaces() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(["bench", "delivery", "--scenario", "fanout", "--peers", "headwater", "--json"]);
    let mut child = command.spawn().unwrap();
    let pid = child.id().to_string();
    // It is under way when the receivers of the run have their logs.
    let log = format!("/dev/shm/headwater-bench-{pid}-0/run/receiver-3/log");
    let other = std::env::temp_dir().join(format!("headwater-bench-{pid}-0/run/receiver-3/log"));
    wait_for(|| Path::new(&log).exists() || other.exists());
    assert!(Command::new("sh").args(["-c", "kill -INT $0", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_for(|| alone.leftovers().is_empty());
    assert_eq!(netns::clean().unwrap(), Vec::<String>::new());
}

#[allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]
fn wait_for(mut seen: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !seen() {
        assert!(std::time::Instant::now() < deadline, "waited in vain");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn the_wire_is_measured_on_every_path_that_there_is() {
    let _alone = alone("headwater-bench-");
    let lines = lines("wire --repeat 5 --for 50ms");
    // A receiver that has no processor for 50 ms measures nothing: that of the five which has measured most counts.
    let ratio = |line: &Value| line["ratio"].as_f64().unwrap();
    let mut best: BTreeMap<(&str, u64), &Value> = BTreeMap::new();
    let mut paths = Vec::new();
    for line in &lines {
        let path = (line["path"].as_str().unwrap(), line["payload"].as_u64().unwrap());
        let best = best.entry(path).or_insert_with(|| {
            paths.push(path);
            line
        });
        *best = if ratio(line) > ratio(best) { line } else { best };
    }
    let best: Vec<&Value> = paths.iter().map(|path| best[path]).collect();
    assert_eq!(paths[..2], [("loopback", 1400), ("loopback", 8900)]);
    if namespaces() {
        assert_eq!(paths[2..], [("veth", 1400), ("veth", 8900), ("veth-cut", 1400), ("veth-cut", 8900)]);
        let merged = |line: &Value| line["udp"]["datagrams_per_buffer"].as_f64().unwrap();
        assert!(merged(best[2]) > 2.0 && merged(best[4]) < 1.01, "buffers travel uncut, or cut: {lines:?}");
    }
    assert!(best.iter().all(|line| ratio(line) > 0.0), "{lines:?}");
}

#[test]
fn the_store_is_measured_against_memory() {
    let _alone = alone("headwater-bench-");
    let lines = lines("store --size 4MiB --repeat 1");
    let ops: Vec<_> =
        lines.iter().map(|l| (l["op"].as_str().unwrap(), l["threads"].as_u64().unwrap())).collect();
    let all = [1, 2].map(|n| ["memcpy", "hash", "keep", "read"].map(|op| (op, n))).concat();
    assert_eq!(ops, all);
    assert_eq!(bench("store --size 0").status.code(), Some(2));
}
