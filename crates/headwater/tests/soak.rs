//! Hours in minutes: deliveries at full speed while sources die, stop, lose and come back; then the long-lived processes
//! hold as much memory, as many descriptors and as many files as at the start.
//!
//! `HEADWATER_SOAK_SECONDS` sets how long (20), `HEADWATER_SOAK_MIB` the size of an object (64); `make soak` runs twenty
//! minutes.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cluster::{Process, free_port, random_file, text, wait_until};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PATIENCE: Duration = Duration::from_secs(120);
const SOURCES: usize = 3;
const OBJECTS: usize = 4;
/// Deliveries before the first look: caches, pools and buffers have filled.
const WARM_UP: u32 = 4;
/// Memory that may be resident beyond the first look: the allocator keeps what it was given back.
const SLACK_BYTES: u64 = 48 << 20;

/// Resources of a long-lived process.
#[derive(Clone, Copy, Debug)]
struct Held {
    resident: u64,
    descriptors: usize,
}

fn held(process: &Process) -> Held {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches("kB").trim().parse().unwrap();
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count();
    Held { resident: kib << 10, descriptors }
}

fn signal(process: &Process, name: &str) {
    let sent = Command::new("kill").args([name, &process.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

struct Soak {
    folder: PathBuf,
    controller_at: String,
    controller: Process,
    node: Process,
    sources: Vec<Process>,
    ids: Vec<String>,
}

impl Soak {
    fn start(folder: &Path, ids: Vec<String>) -> Soak {
        let controller_at = format!("127.0.0.1:{}", free_port());
        let folder = folder.to_owned();
        let state = text(&folder.join("controller"));
        let mut controller = Process::start(
            &folder,
            "controller",
            &["controller", "--listen", &controller_at, "--state", &state],
        );
        controller.line(PATIENCE);
        let state = text(&folder.join("node"));
        let args = ["node", "--join", &controller_at, "--listen", "127.0.0.1:0", "--state", &state];
        let mut node = Process::start(&folder, "node", &args);
        node.line(PATIENCE);
        let mut soak = Soak { folder, controller_at, controller, node, sources: Vec::new(), ids };
        soak.sources = (0..SOURCES).map(|n| soak.source(n, 0)).collect();
        soak
    }

    /// Starts source `n`, which has every object, for the `start`-th time, counted from 0.
    fn source(&self, n: usize, start: u32) -> Process {
        let state = text(&self.folder.join(format!("source{n}")));
        let objects = text(&self.folder.join("objects"));
        let args = ["serve", &objects, "--controller", &self.controller_at, "--listen", "127.0.0.1:0"];
        let mut process = Process::start(
            &self.folder,
            &format!("source{n}.{start}"),
            &[&args[..], &["--state", &state]].concat(),
        );
        process.line(PATIENCE);
        process
    }

    fn command(&self, name: &str, args: &[&str], state: &str) -> Process {
        let state = text(&self.folder.join(state));
        Process::start(&self.folder, name, &[args, &["--state", &state]].concat())
    }

    /// Asks the node to fetch an object into its store.
    fn begin(&self, object: usize) -> Process {
        self.command("keep", &["get", &self.ids[object], "--keep"], "node")
    }

    /// Waits for what was asked, looks at every byte, and takes the object out of the store again.
    fn end(&self, number: u32, object: usize, asking: Process) {
        let ended = asking.end(PATIENCE);
        assert_eq!(ended.code, Some(0), "delivery {number}: {}", ended.log);
        let id = &self.ids[object];
        let stored = std::fs::read(self.folder.join("node/store/objects").join(id)).unwrap();
        assert!(blake3::hash(&stored).to_string() == *id, "delivery {number}: wrong bytes are in the store");
        let ended = self.command("rm", &["rm", id], "node").end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
    }

    /// Files that are there only while something is under way.
    fn temporary(&self) -> usize {
        let count = |folder: &str| std::fs::read_dir(self.folder.join(folder)).map_or(0, Iterator::count);
        count("node/store/incoming") + count("node/store/tmp") + count("node/partial")
    }

    fn look(&self) -> [Held; 2] {
        // Goodbyes and closed connections take a moment.
        std::thread::sleep(Duration::from_secs(2));
        [held(&self.controller), held(&self.node)]
    }
}

#[test]
fn after_many_deliveries_and_faults_everything_is_as_it_was() {
    let [seconds, mib] = [("HEADWATER_SOAK_SECONDS", 20), ("HEADWATER_SOAK_MIB", 64)]
        .map(|(name, otherwise)| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise));
    let folder = match Path::new("/dev/shm").is_dir() {
        true => tempfile::tempdir_in("/dev/shm").unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    std::fs::create_dir(folder.path().join("objects")).unwrap();
    let object = |n: usize| {
        let bytes = random_file(
            &folder.path().join(format!("objects/object{n}.bin")),
            (mib as usize) << 20,
            n as u64,
        );
        blake3::hash(&bytes).to_string()
    };
    let ids = (0..OBJECTS).map(object).collect();
    let mut soak = Soak::start(folder.path(), ids);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    wait_until("the objects are listed", PATIENCE, || {
        let args = ["ls", "--controller", &soak.controller_at];
        soak.command("ls", &args, "asker").end(PATIENCE).last.is_some()
    });
    for number in 0..WARM_UP {
        let object = number as usize % OBJECTS;
        soak.end(number, object, soak.begin(object));
    }
    let before = soak.look();
    let temporary = soak.temporary();

    let started = Instant::now();
    let (mut number, mut faults) = (WARM_UP, [0; 3]);
    while started.elapsed() < Duration::from_secs(seconds) {
        let (victim, fault) = (rng.random_range(0..SOURCES), rng.random_range(0..4));
        let object = number as usize % OBJECTS;
        let mut asking = soak.begin(object);
        std::thread::sleep(Duration::from_millis(rng.random_range(0..80)));
        match fault {
            0 => soak.sources[victim].kill(),
            1 => {
                signal(&soak.sources[victim], "-STOP");
                std::thread::sleep(Duration::from_millis(rng.random_range(10..400)));
                signal(&soak.sources[victim], "-CONT");
            }
            2 => {
                // The asking program goes away in the middle; the part that came stays for the next.
                asking.kill();
                asking = soak.begin(object);
            }
            _ => {}
        }
        soak.end(number, object, asking);
        if fault == 0 {
            soak.sources[victim] = soak.source(victim, number);
        }
        if let Some(count) = faults.get_mut(fault) {
            *count += 1;
        }
        number += 1;
    }
    let after = soak.look();
    println!(
        "{} deliveries of {} MiB in {seconds} s, {} kills, {} stops, {} askers gone\n  controller {:?} -> {:?}\n  node {:?} -> {:?}",
        number - WARM_UP,
        mib,
        faults[0],
        faults[1],
        faults[2],
        before[0],
        after[0],
        before[1],
        after[1],
    );
    for (before, after) in before.iter().zip(&after) {
        assert!(after.resident <= before.resident + SLACK_BYTES, "memory: {before:?} -> {after:?}");
        assert!(after.descriptors <= before.descriptors + 2, "descriptors: {before:?} -> {after:?}");
    }
    assert_eq!(soak.temporary(), temporary, "temporary files are left");
}
