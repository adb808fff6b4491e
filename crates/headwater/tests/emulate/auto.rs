//! Which transport the controller chooses, by what has come to a receiver before.

use std::time::Duration;

use headwater_testbed::emulate::EmulatedNet;
use headwater_units::Bytes;
use serde_json::Value;
use tempfile::TempDir;

use super::cluster::{Ended, Process, number, random_file, text, wait_until};
use super::common::{alone, net};
use super::trimmed::network;

/// As many as are incast.
const SOURCES: usize = 8;
const SIZE: Bytes = Bytes::mib(1);
const PATIENCE: Duration = Duration::from_secs(60);
/// Facts that every node states, as an operator would where switches trim.
const STATED: [&str; 6] = ["--uplink", "20Mbit/s", "--downlink", "20Mbit/s", "--dscp-control", "48"];

/// A controller and sources on host 0, a node on host 1.
struct Stage {
    // Before the network and the files, which they use.
    _processes: Vec<Process>,
    at: String,
    net: EmulatedNet,
    folder: TempDir,
}

impl Stage {
    fn start(objects: &[&str]) -> Stage {
        let net = net(&network("stale", 6));
        let at = format!("{}:7000", net.ipv4(0));
        let mut stage =
            Stage { _processes: Vec::new(), at: at.clone(), net, folder: tempfile::tempdir().unwrap() };
        let files: Vec<String> = (0_u64..)
            .zip(objects)
            .map(|(seed, name)| {
                let path = stage.folder.path().join(name);
                random_file(&path, SIZE.get() as usize, seed);
                text(&path)
            })
            .collect();
        stage.daemon(
            0,
            "controller",
            &["controller", "--listen", &at, "--max-sources", &SOURCES.to_string()],
        );
        let from = format!("{}:0", stage.net.ipv4(0));
        for source in 0..SOURCES {
            let mut words = vec!["serve", "--controller", &at, "--listen", &from];
            words.extend(files.iter().map(String::as_str));
            stage.daemon(0, &format!("source{source}"), &[&words, &STATED[..]].concat());
        }
        let own = format!("{}:7001", stage.net.ipv4(1));
        stage.daemon(1, "node", &[&["node", "--join", &at, "--listen", &own], &STATED[..]].concat());
        wait_until("everybody to be known", PATIENCE, || {
            stage.status()["nodes"].as_array().unwrap().iter().filter(|node| node["up"] == true).count()
                > SOURCES
        });
        stage
    }

    /// Starts a process with a state of its own, and waits until it is ready.
    fn daemon(&mut self, host: usize, name: &str, words: &[&str]) {
        let mut process = self.process(host, name, name, words);
        process.line(PATIENCE);
        self._processes.push(process);
    }

    fn process(&self, host: usize, name: &str, state: &str, words: &[&str]) -> Process {
        let state = text(&self.folder.path().join(format!("{state}.state")));
        let command = self.net.command(host, env!("CARGO_BIN_EXE_headwater")).unwrap();
        Process::start_by(self.folder.path(), name, command, &[words, &["--state", &state]].concat())
    }

    fn run(&self, name: &str, state: &str, words: &[&str]) -> Ended {
        self.process(1, name, state, words).end(PATIENCE)
    }

    fn status(&self) -> Value {
        self.run("status", "status", &["status", "--controller", &self.at]).last.unwrap()
    }

    /// How many trimmed packets the node has seen.
    fn seen_trimmed(&self) -> f64 {
        let (status, own) = (self.status(), self.net.ipv4(1).to_string());
        let nodes = status["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["listen"].as_str().unwrap().starts_with(&own)).unwrap();
        number(&node["data_path"]["trimmed"])
    }
}

/// The transport by which an object came.
fn transport(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    ended.last.unwrap()["transport"].as_str().unwrap().to_owned()
}

/// Goal: a node is pushed to until it has seen that switches trim; from then on it pulls from many. A process that has received nothing
/// yet knows nothing of it.
#[test]
fn who_has_seen_trimmed_packets_pulls_from_many() {
    let Some(_alone) = alone() else { return };
    let stage = Stage::start(&["first", "second"]);
    let kept = |what| stage.run("keep", "node", &["get", what, "--keep"]);
    assert_eq!((stage.seen_trimmed(), transport(kept("first")).as_str()), (0.0, "push"));
    wait_until("what was trimmed to be counted", PATIENCE, || stage.seen_trimmed() > 0.0);
    assert_eq!(transport(kept("second")), "pull");

    let to = text(&stage.folder.path().join("out"));
    let words = ["get", "second", "-o", &to, "--controller", &stage.at];
    assert_eq!(transport(stage.run("get", "get", &[&words, &STATED[..]].concat())), "push");
    let same = |name: &str| std::fs::read(stage.folder.path().join(name)).unwrap();
    assert!(same("out") == same("second"));
}
