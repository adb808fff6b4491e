//! `get --keep`: an object comes into a machine's store, and is offered from there.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::path::Path;
use std::time::Duration;

use cluster::{Ended, Process, free_port, random_file, text, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster<'a> {
    folder: &'a Path,
    controller: String,
    _up: Process,
}

impl<'a> Cluster<'a> {
    fn new(folder: &'a Path) -> Self {
        let controller = format!("127.0.0.1:{}", free_port());
        let state = text(&folder.join("up"));
        let mut up = Process::start(folder, "up", &["up", "--listen", &controller, "--state", &state]);
        up.line(PATIENCE);
        Cluster { folder, controller, _up: up }
    }

    fn started(&self, name: &str, args: &[&str]) -> Process {
        let state = text(&self.folder.join(name));
        let mut process = Process::start(
            self.folder,
            name,
            &[args, &["--listen", "127.0.0.1:0", "--state", &state]].concat(),
        );
        process.line(PATIENCE);
        process
    }

    fn node(&self, name: &str) -> Process {
        self.started(name, &["node", "--join", &self.controller])
    }

    fn serve(&self, file: &Path, limit: &str) -> Process {
        let file = text(file);
        self.started("source", &["serve", &file, "--controller", &self.controller, "--limit", limit])
    }

    fn asking(&self, name: &str, args: &[&str], state: &str) -> Process {
        let state = text(&self.folder.join(state));
        Process::start(self.folder, name, &[args, &["--state", &state]].concat())
    }

    /// Fetches into a file, and gives its bytes.
    fn fetched(&self, object: &str) -> Vec<u8> {
        let out = self.folder.join("out.bin");
        let args = ["get", object, "--controller", &self.controller, "--force", "-o", &text(&out)];
        let ended = self.asking("get", &args, "getter").end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        std::fs::read(out).unwrap()
    }

    fn holders(&self, object: &str) -> usize {
        let args = ["ls", "--controller", &self.controller];
        let ls = self.asking("ls", &args, "asker").end(PATIENCE);
        let line = ls.last.filter(|l| l["name"] == object);
        line.and_then(|l| Some(l["holders"].as_array()?.len())).unwrap_or(0)
    }
}

fn succeeded(ended: Ended) -> serde_json::Value {
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    ended.last.unwrap()
}

#[test]
fn what_a_node_keeps_it_offers_when_its_source_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let content = random_file(&folder.path().join("object.bin"), 3 << 20, 1);
    let cluster = Cluster::new(folder.path());
    let mut source = cluster.serve(&folder.path().join("object.bin"), "1Gbit/s");
    let _node = cluster.node("node");
    wait_until("the source is listed", PATIENCE, || cluster.holders("object.bin") == 1);
    // Two at once: one transfer, and both are told.
    let both = ["one", "two"].map(|name| cluster.asking(name, &["get", "object.bin", "--keep"], "node"));
    let [one, two] = both.map(|process| succeeded(process.end(PATIENCE)));
    assert_eq!((&one["verified"], &two["verified"]), (&true.into(), &true.into()));
    assert_eq!(
        one["resumed_bytes"].as_u64().unwrap() + two["resumed_bytes"].as_u64().unwrap(),
        3 << 20,
        "only one of them came over the network: {one} {two}"
    );
    wait_until("the node offers it too", PATIENCE, || cluster.holders("object.bin") == 2);
    source.kill();
    assert!(cluster.fetched("object.bin") == content);
}

#[test]
fn a_daemon_stops_fetching_when_nobody_waits_for_it_and_goes_on_when_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let content = random_file(&folder.path().join("object.bin"), 4 << 20, 2);
    let cluster = Cluster::new(folder.path());
    let _source = cluster.serve(&folder.path().join("object.bin"), "20Mbit/s");
    let _node = cluster.node("node");
    wait_until("the source is listed", PATIENCE, || cluster.holders("object.bin") == 1);
    let keep = ["get", "object.bin", "--keep", "--progress", "json"];
    let mut first = cluster.asking("first", &keep, "node");
    wait_until("blocks have come", PATIENCE, || first.bytes_done() > 1 << 20);
    first.kill();
    let again = succeeded(cluster.asking("again", &keep, "node").end(PATIENCE));
    let resumed = again["resumed_bytes"].as_u64().unwrap();
    assert!((1 << 20..4 << 20).contains(&resumed), "{resumed}");
    wait_until("the node offers it too", PATIENCE, || cluster.holders("object.bin") == 2);
    assert!(cluster.fetched("object.bin") == content);
}

#[test]
fn without_a_daemon_it_goes_into_the_store_all_the_same_and_a_folder_with_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(data.join("deep")).unwrap();
    random_file(&data.join("a.bin"), 300_000, 3);
    random_file(&data.join("deep/b.bin"), 500_000, 4);
    let cluster = Cluster::new(folder.path());
    let mut source = cluster.serve(&data, "1Gbit/s");
    wait_until("the folder is listed", PATIENCE, || cluster.holders("data") == 1);
    let args = ["get", "data", "--keep", "--controller", &cluster.controller];
    let kept = succeeded(cluster.asking("keep", &args, "alone").end(PATIENCE));
    assert_eq!(kept["bytes"], 800_000);
    source.kill();
    // A node that joins with that store has it all.
    let _node = cluster.node("alone");
    wait_until("the node offers it", PATIENCE, || cluster.holders("data") == 1);
    let out = folder.path().join("copy");
    let args = ["get", "data", "--controller", &cluster.controller, "-o", &text(&out)];
    succeeded(cluster.asking("get", &args, "getter").end(PATIENCE));
    for file in ["a.bin", "deep/b.bin"] {
        assert!(std::fs::read(out.join(file)).unwrap() == std::fs::read(data.join(file)).unwrap(), "{file}");
    }
}

#[test]
fn what_is_not_there_is_said_with_the_exit_code_of_a_get() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(folder.path());
    let _node = cluster.node("node");
    let ended = cluster.asking("keep", &["get", "nothing", "--keep"], "node").end(PATIENCE);
    assert_eq!(ended.code, Some(3), "{}", ended.log);
}
