//! Every process of a delivery is killed, at random instants: the right bytes arrive, or a clear error says why not, and
//! no finished block is fetched again.
//!
//! `HEADWATER_CRASH_RUNS` sets how many seeded runs are made (50).

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::{Process, free_port, random_file, text, wait_until};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

const BYTES: usize = 6 << 20;
const SOURCES: usize = 3;
/// Slow enough that a kill finds the delivery under way: about half a second in all.
const LIMIT: &str = "35Mbit/s";
const PATIENCE: Duration = Duration::from_secs(60);
/// Runs beside one another: most of their time they wait.
const AT_ONCE: usize = 4;

/// Process that a run kills; the sources follow.
const RECEIVER: usize = 0;
const CONTROLLER: usize = 1;

struct Cluster<'a> {
    folder: &'a Path,
    controller_port: u16,
    processes: Vec<Process>,
    file: String,
}

impl<'a> Cluster<'a> {
    fn with_controller(folder: &'a Path) -> Self {
        let file = text(&folder.join("object.bin"));
        let mut cluster = Cluster { folder, controller_port: free_port(), processes: Vec::new(), file };
        let controller = cluster.start_controller();
        cluster.processes.push(controller);
        cluster
    }

    fn controller(&self) -> String {
        format!("127.0.0.1:{}", self.controller_port)
    }

    fn start_controller(&self) -> Process {
        let state = text(&self.folder.join("controller"));
        let args = ["controller", "--listen", &self.controller(), "--state", &state];
        let mut process = Process::start(self.folder, "controller", &args);
        process.line(PATIENCE);
        process
    }

    fn start_source(&self, n: usize) -> Process {
        let (state, listen) = (text(&self.folder.join(format!("source{n}"))), "127.0.0.1:0");
        let controller = self.controller();
        let args = [
            "serve",
            &self.file,
            "--controller",
            &controller,
            "--listen",
            listen,
            "--state",
            &state,
            "--limit",
            LIMIT,
        ];
        let mut process = Process::start(self.folder, &format!("source{n}"), &args);
        process.line(PATIENCE);
        process
    }

    fn start_receiver(&self) -> Process {
        let (state, out) = (text(&self.folder.join("receiver")), text(&self.folder.join("out.bin")));
        let controller = self.controller();
        let args = [
            "get",
            "object.bin",
            "--controller",
            &controller,
            "-o",
            &out,
            "--state",
            &state,
            "--progress",
            "json",
        ];
        Process::start(self.folder, "receiver", &args)
    }

    fn ready(&self) {
        let (controller, state) = (self.controller(), text(&self.folder.join("asker")));
        wait_until("all sources are listed", PATIENCE, || {
            let ls =
                Process::start(self.folder, "ls", &["ls", "--controller", &controller, "--state", &state]);
            let line = ls.end(PATIENCE).last;
            line.is_some_and(|l| l["holders"].as_array().is_some_and(|h| h.len() == SOURCES))
        });
    }
}

/// Logs of the controller and the sources (more of them with `RUST_LOG=debug`).
fn logs(folder: &Path) -> String {
    let sources = (0..SOURCES).map(|n| format!("source{n}"));
    let names = std::iter::once("controller".to_owned()).chain(sources);
    let log = |name: String| {
        let text = std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
        format!("\n---- {name}\n{text}")
    };
    names.map(log).collect()
}

fn run(seed: u64) -> &'static str {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("object.bin"), BYTES, seed);
    let mut cluster = Cluster::with_controller(folder);
    for n in 0..SOURCES {
        let source = cluster.start_source(n);
        cluster.processes.push(source);
    }
    cluster.ready();
    let mut receiver = cluster.start_receiver();
    let victim = seed as usize % (2 + SOURCES);
    std::thread::sleep(Duration::from_millis(rng.random_range(0..600)));
    let comes_back = rng.random_bool(0.5);
    let what = match victim {
        RECEIVER => {
            receiver.kill();
            let before = receiver.bytes_done();
            let finished = folder.join("out.bin").exists();
            if finished {
                assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content, "seed {seed}");
                return "receiver, too late";
            }
            receiver = cluster.start_receiver();
            let ended = receiver.end(PATIENCE);
            assert_eq!(ended.code, Some(0), "seed {seed}: {}", ended.log);
            let resumed = ended.last.unwrap()["resumed_bytes"].as_u64().unwrap();
            assert!(resumed >= before, "seed {seed}: {before} bytes were finished, {resumed} are left");
            assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content, "seed {seed}");
            return "receiver";
        }
        CONTROLLER => {
            cluster.processes[0].kill();
            std::thread::sleep(Duration::from_millis(rng.random_range(0..300)));
            let again = cluster.start_controller();
            cluster.processes[0] = again;
            "controller"
        }
        source => {
            cluster.processes[source - 1].kill();
            if comes_back {
                let again = cluster.start_source(source - 2);
                cluster.processes[source - 1] = again;
            }
            "source"
        }
    };
    let ended = receiver.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "seed {seed}, {what}: {}{}", ended.log, logs(folder));
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content, "seed {seed}");
    assert_eq!(ended.last.unwrap()["verified"], Value::Bool(true));
    what
}

#[test]
fn a_delivery_survives_the_death_of_any_of_its_processes() {
    let runs = std::env::var("HEADWATER_CRASH_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    let started = Instant::now();
    let (next, counts) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= runs {
                return;
            }
            let what = run(seed);
            *counts.lock().unwrap().entry(what).or_insert(0) += 1;
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    println!("{runs} runs in {:.0} s: {:?}", started.elapsed().as_secs_f64(), counts.into_inner().unwrap());
}

/// The task is written down and nobody has been told of it: neither its receiver nor its sources.
#[test]
fn a_controller_that_dies_in_the_moment_when_a_task_begins_goes_on_with_it() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let content = random_file(&folder.join("object.bin"), BYTES, seed);
        let mut cluster = Cluster::with_controller(folder);
        for n in 0..SOURCES {
            let source = cluster.start_source(n);
            cluster.processes.push(source);
        }
        cluster.ready();
        let receiver = cluster.start_receiver();
        let begun = || std::fs::read_to_string(folder.join("controller.log")).unwrap().contains("task begun");
        let asked = Instant::now();
        while !begun() {
            assert!(asked.elapsed() < PATIENCE, "{}", logs(folder));
        }
        cluster.processes[0].kill();
        let again = cluster.start_controller();
        cluster.processes[0] = again;
        let ended = receiver.end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}{}", ended.log, logs(folder));
        assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
    }
}

#[test]
fn without_any_source_left_the_error_says_what_is_missing_and_a_later_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("object.bin"), BYTES, 99);
    let mut cluster = Cluster::with_controller(folder);
    let mut source = cluster.start_source(0);
    let (at, state, out) =
        (cluster.controller(), text(&folder.join("receiver")), text(&folder.join("out.bin")));
    let args =
        ["get", "object.bin", "--controller", &at, "-o", &out, "--state", &state, "--progress", "json"];
    let mut receiver = Process::start(folder, "receiver", &[&args[..], &["--timeout", "5s"]].concat());
    wait_until("the first blocks are here", PATIENCE, || receiver.bytes_done() > 1 << 20);
    source.kill();
    let ended = receiver.end(PATIENCE);
    assert_ne!(ended.code, Some(0));
    assert!(!folder.join("out.bin").exists(), "nothing partial shows under the final name");
    assert!(
        ended.log.contains("run the same command again") || ended.log.contains("missing"),
        "{}",
        ended.log
    );
    let again = cluster.start_source(0);
    cluster.processes.push(again);
    let ended = Process::start(folder, "receiver2", &args).end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(ended.last.unwrap()["resumed_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
}
