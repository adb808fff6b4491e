//! Hosts that stand still, die and come back: the object arrives, verified, all the same.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::common::{Printed, alone, asks, folder, it};

/// Sources of 2, 2 and 4 Mbit/s; about 660 packets per second.
const HOSTS: &str = r#"
title = "Hosts that fail"
source = "This test"
engines = ["netns"]
schemes = ["ppush(1,1)"]

[scale.small]
seeds = 1

[[vary]]
name = "case"
points = [
    { label = "paused", set = { faults = [{ at = "300 ms", until = "700 ms", on = "host 2", what = { kind = "host-pause" } }] } },
    { label = "restarted", set = { faults = [{ at = "300 ms", on = "host 2", what = { kind = "host-restart" } }] } },
    { label = "killed", set = { faults = [{ at = "300 ms", on = "host 2", what = { kind = "host-kill" } }] } },
    { label = "receiver restarted", set = { faults = [{ at = "300 ms", on = "host 3", what = { kind = "host-restart" } }] } },
]

[scenario]
packet = { data = "1507 B" }
port = { queue = "100 packets", mark_threshold = "30 packets" }
transport = { initial_window = 10.0, min_rto = "50 ms", assignment = "listed", loss_response = "guarded" }
workload = { kind = "task-list", tasks = [{ name = "t", packets = 900, sources = [0, 1, 2], receiver = 3 }] }
until = "20 s"

[scenario.fabric]
kind = "big-switch"
hosts = 4
rate = "20 Mbit/s"
delay = "200 us"
uplinks = { h0 = "2 Mbit/s", h1 = "2 Mbit/s", h2 = "4 Mbit/s" }
"#;

/// By case, at least and at most, s. 900 packets of 1507 bytes are 10.9 Mbit. Without a fault that is 1.36 s; without 0.4 s
/// of the fastest source 1.56 s, which then still has a queue to send; without that source after 0.3 s, 2.43 s; and a receiver
/// that begins anew after 0.3 s needs 1.66 s.
const TIMES: [(&str, f64, f64); 4] =
    [("paused", 1.4, 2.5), ("restarted", 1.36, 2.5), ("killed", 2.35, 4.0), ("receiver restarted", 1.6, 4.0)];

/// The result in the task's log, of each run that was not skipped. A process that is told to stop when it has said its result may still
/// say that it does.
fn results(folder: &Path, said: &Printed) -> Vec<Value> {
    let runs = fs::read_dir(folder.join("netns/it/netns-small/logs")).unwrap().map(|entry| entry.unwrap());
    let counts = |run: &fs::DirEntry| {
        let key = run.file_name().into_string().unwrap();
        !said.skipped.iter().any(|reason| reason.contains(&key))
    };
    let last = |run: fs::DirEntry| {
        let text = fs::read_to_string(run.path().join("task-0.log")).unwrap();
        serde_json::from_str(text.lines().rfind(|line| line.starts_with('{')).unwrap()).unwrap()
    };
    runs.filter(counts).map(last).collect()
}

#[test]
fn objects_arrive_whatever_happens_to_hosts() {
    let Some(_alone) = alone() else { return };
    let mut claims = String::new();
    for (case, _, _) in TIMES {
        let on = format!("{{ at = {{ case = \"{case}\" }} }}");
        claims += &asks(case, &on, r#"{ kind = "column", column = "tct_s" }"#);
        let flow = r#"{ kind = "column", table = "flows", column = "packets", where = { flow = "t.2" } }"#;
        claims += &asks(&format!("{case}: of the fastest"), &on, flow);
    }
    let folder = folder(&(HOSTS.to_owned() + &claims));
    let said = Printed::by(it(&folder)).ends_well();
    let results = results(folder.path(), &said);
    assert_eq!(results.len() + said.skipped.len(), TIMES.len());
    for result in &results {
        assert_eq!((&result["verified"], &result["bytes"]), (&true.into(), &results[0]["bytes"]), "{result}");
    }
    for (case, least, most) in TIMES {
        let Some(time) = said.value(case) else { continue };
        let fastest = said.value(&format!("{case}: of the fastest")).unwrap();
        eprintln!("{case}: {time:.3} s, {fastest} packets of the fastest source");
        assert!((least..most).contains(&time), "{case}: {time} s");
        // It sends 330 packets per second: about 100 until the fault.
        let sane = match case {
            "killed" => 60.0..130.0,
            _ => 200.0..900.0,
        };
        assert!(sane.contains(&fastest), "{case}: {fastest} packets");
    }
}
