//! Names and stores of a cluster on loopback: a name never goes back, nobody takes it from a node that is up, what is removed is gone
//! here and at the controller, and what a store says of its bytes it has read.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster::{Ended, Process, complete, free_port, random_file, text, wait_until};
use headwater_store::{Store, StoreOptions};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster {
    folder: tempfile::TempDir,
    at: String,
    controller: Option<Process>,
}

impl Cluster {
    fn new() -> Self {
        let at = format!("127.0.0.1:{}", free_port());
        let mut cluster = Cluster { folder: tempfile::tempdir().unwrap(), at, controller: None };
        cluster.start_controller();
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_controller(&mut self) {
        let state = text(&self.path("controller"));
        let args = ["controller", "--listen", &self.at, "--state", &state];
        let mut controller = Process::start(self.folder.path(), "controller", &args);
        controller.line(PATIENCE);
        self.controller = Some(controller);
    }

    /// SIGKILL, and a new life with the same state.
    fn restart_controller(&mut self) {
        self.controller.take().unwrap().kill();
        self.start_controller();
    }

    fn node(&self, name: &str) -> Process {
        let state = text(&self.path(name));
        let args = ["node", "--join", &self.at, "--listen", "127.0.0.1:0", "--state", &state];
        let mut node = Process::start(self.folder.path(), name, &args);
        node.line(PATIENCE);
        wait_until("the node has joined", PATIENCE, || {
            self.status()["nodes"].as_array().unwrap().iter().any(|it| it["up"] == true)
        });
        node
    }

    /// A command on the state folder of a node.
    fn run(&self, on: &str, args: &[&str]) -> Ended {
        self.begin(on, args).end(PATIENCE)
    }

    fn begin(&self, on: &str, args: &[&str]) -> Process {
        let state = text(&self.path(on));
        Process::start(self.folder.path(), &format!("{on}-command"), &[args, &["--state", &state]].concat())
    }

    fn done(&self, on: &str, args: &[&str]) -> Value {
        let ended = self.run(on, args);
        assert_eq!(ended.code, Some(0), "{args:?}: {}", ended.log);
        ended.last.unwrap_or_default()
    }

    fn file(&self, name: &str, seed: u64) -> (String, Vec<u8>) {
        let path = self.path(name);
        let content = random_file(&path, 300_000, seed);
        (text(&path), content)
    }

    fn put(&self, on: &str, file: &str, name: &str) -> Value {
        self.done(on, &["put", file, "--name", name])
    }

    fn getting(&self, what: &str, to: &str) -> Process {
        let out = text(&self.path(to));
        self.begin("getter", &["get", what, "--controller", &self.at, "--force", "-o", &out])
    }

    /// Fetches into a file, and gives its bytes.
    fn got(&self, what: &str) -> Vec<u8> {
        let ended = self.getting(what, "out.bin").end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        std::fs::read(self.path("out.bin")).unwrap()
    }

    fn status(&self) -> Value {
        self.done("asker", &["status", "--controller", &self.at])
    }

    /// The objects that the controller lists: name and id, with how many hold it.
    fn known(&self) -> Vec<(Option<String>, String, usize)> {
        let out = Command::new(env!("CARGO_BIN_EXE_headwater"))
            .args(["ls", "--json", "--state", &text(&self.path("asker")), "--controller", &self.at])
            .env("XDG_CONFIG_HOME", self.path("config"))
            .output()
            .unwrap();
        let lines = String::from_utf8(out.stdout).unwrap();
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let holders = line["holders"].as_array().unwrap().len();
            (line["name"].as_str().map(str::to_owned), line["object"].as_str().unwrap().to_owned(), holders)
        };
        lines.lines().map(line).collect()
    }

    /// The names in the store of a node that does not run.
    fn names_in(&self, on: &str) -> Vec<String> {
        let store = Store::open(&self.path(on).join("store"), StoreOptions::default()).unwrap();
        store.names().unwrap().into_keys().collect()
    }

    /// How many machines hold what a name stands for.
    fn holders(&self, name: &str, object: &Value) -> usize {
        let is_it = |line: &&(Option<String>, String, usize)| {
            line.0.as_deref() == Some(name) && line.1 == object["object"].as_str().unwrap()
        };
        self.known().iter().find(is_it).map_or(0, |line| line.2)
    }

    fn await_holders(&self, name: &str, object: &Value, count: usize) {
        wait_until("the object is listed", PATIENCE, || self.holders(name, object) == count);
    }

    fn objects_in(&self, on: &str) -> usize {
        std::fs::read_dir(self.path(on).join("store/objects")).unwrap().count()
    }

    /// Changes one byte of a stored object, as a disk that rots.
    fn rot(&self, on: &str, object: &Value) -> PathBuf {
        let path = self.path(on).join("store/objects").join(object["object"].as_str().unwrap());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100_000] ^= 1;
        let permissions = std::fs::metadata(&path).unwrap().permissions();
        set_writable(&path);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, permissions).unwrap();
        path
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }
}

fn set_writable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_name_never_goes_back_whoever_comes_back_first_after_the_controller_restarts() {
    let mut cluster = Cluster::new();
    let (v1, old) = cluster.file("v1", 1);
    let (v2, new) = cluster.file("v2", 2);
    let (mut owner, mut copy) = (cluster.node("owner"), cluster.node("copy"));
    let first = cluster.put("owner", &v1, "prod");
    assert_eq!((&first["generation"], &first["replaced"]), (&1.into(), &Value::Null));
    complete(cluster.run("asker", &["cast", "prod", "--all", "--controller", &cluster.at]));
    cluster.await_holders("prod", &first, 2);
    assert!(cluster.got("prod") == old);
    // While the other one is away, so that it still has the old object by that name.
    copy.kill();
    let second = cluster.put("owner", &v2, "prod");
    assert_eq!((&second["generation"], &second["replaced"]), (&2.into(), &first["object"]));
    assert!(cluster.got("prod") == new);
    owner.kill();
    // The old holder first: it is no source of the name, and an asker waits for the one that is.
    cluster.restart_controller();
    let mut copy = cluster.node("copy");
    let waiting = cluster.getting("prod", "early.bin");
    let id = first["object"].as_str().unwrap();
    assert!(cluster.got(id) == old, "by its id it can be had");
    let mut owner = cluster.node("owner");
    let ended = waiting.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(std::fs::read(cluster.path("early.bin")).unwrap() == new);
    assert!(cluster.got("prod") == new);
    // And the other way around, with the old holder as it was before it heard.
    copy.kill();
    owner.kill();
    cluster.restart_controller();
    let _owner = cluster.node("owner");
    assert!(cluster.got("prod") == new);
    let mut copy = cluster.node("copy");
    wait_until("both are back", PATIENCE, || {
        cluster.status()["nodes"].as_array().unwrap().iter().filter(|it| it["up"] == true).count() == 2
    });
    assert!(cluster.got("prod") == new);
    // The old holder was told, and has dropped the name.
    wait_until("it has heard", PATIENCE, || cluster.log("copy").contains("stands for another object now"));
    copy.kill();
    assert_eq!(cluster.names_in("copy"), Vec::<String>::new());
}

#[test]
fn nobody_takes_a_name_from_a_node_that_is_up_and_is_told_what_to_do() {
    let cluster = Cluster::new();
    let (mine, content) = cluster.file("mine", 3);
    let (yours, _) = cluster.file("yours", 4);
    let _owner = cluster.node("owner");
    let object = cluster.put("owner", &mine, "prod");
    let mut other = cluster.node("other");
    for args in [vec!["put", &yours, "--name", "prod"], vec!["put", &yours, "--name", "prod", "--replace"]] {
        let refused = cluster.run("other", &args);
        assert_eq!(refused.code, Some(1), "{}", refused.log);
        for words in ["'prod' belongs to", "127.0.0.1", "is up", "--name"] {
            assert!(refused.log.contains(words), "{words}: {}", refused.log);
        }
    }
    assert_eq!(cluster.objects_in("other"), 0, "a put that fails leaves nothing");
    // The same bytes are free.
    cluster.put("other", &mine, "prod");
    cluster.await_holders("prod", &object, 2);
    // One that was given while nobody could be asked loses its name when it joins, and the log says so.
    other.kill();
    let given = cluster.put("other", &yours, "prod");
    assert_eq!(given["generation"], Value::Null);
    let mut other = cluster.node("other");
    wait_until("the loser is told", PATIENCE, || cluster.log("other").contains("belongs to somebody else"));
    wait_until("it drops the name", PATIENCE, || {
        cluster.log("other").contains("stands for another object now")
    });
    other.kill();
    assert_eq!(cluster.names_in("other"), Vec::<String>::new());
    assert!(cluster.got("prod") == content);
}

#[test]
fn what_is_removed_is_gone_here_and_at_the_controller_a_folder_with_its_files() {
    let cluster = Cluster::new();
    let data = cluster.path("data");
    std::fs::create_dir_all(data.join("deep")).unwrap();
    for n in 0..20_u64 {
        random_file(&data.join(format!("deep/{n}.bin")), 1000, n);
    }
    let (file, _) = cluster.file("file", 5);
    let _node = cluster.node("node");
    let folder = cluster.put("node", &text(&data), "data");
    cluster.await_holders("data", &folder, 1);
    assert_eq!(cluster.objects_in("node"), 21);
    let one = cluster.put("node", &file, "one");
    let two = cluster.put("node", &file, "two");
    assert_eq!(one["object"], two["object"]);
    let removed = cluster.done("node", &["rm", "data"]);
    assert_eq!(removed["objects"], 21);
    assert_eq!(cluster.objects_in("node"), 1);
    let removed = cluster.done("node", &["rm", "one"]);
    assert_eq!((&removed["objects"], &removed["freed_bytes"]), (&0.into(), &0.into()));
    let names = |lines: Vec<(Option<String>, String, usize)>| -> Vec<Option<String>> {
        lines.into_iter().filter(|line| line.2 > 0).map(|line| line.0).collect()
    };
    wait_until("the controller has heard", PATIENCE, || names(cluster.known()) == [Some("two".to_owned())]);
    let gone = cluster.getting("one", "out.bin").end(PATIENCE);
    assert_eq!(gone.code, Some(3), "{}", gone.log);
    cluster.done("node", &["rm", two["object"].as_str().unwrap()]);
    assert_eq!(cluster.objects_in("node"), 0);
    wait_until("the controller has heard", PATIENCE, || cluster.known().is_empty());
}

#[test]
fn a_folder_whose_put_fails_leaves_nothing_and_gc_removes_what_a_crash_left() {
    let cluster = Cluster::new();
    let folder = cluster.path("data");
    std::fs::create_dir(&folder).unwrap();
    for n in 0..5_u64 {
        random_file(&folder.join(format!("{n}.bin")), 100_000, n);
    }
    // Its last file does not fit.
    let failed = cluster.run("alone", &["put", &text(&folder), "--quota", "450KB"]);
    assert_eq!(failed.code, Some(6), "{}", failed.log);
    assert_eq!(cluster.objects_in("alone"), 0);
    let leftover = cluster.path("alone/store/incoming/.left.0123.partial");
    std::fs::write(&leftover, [7; 50_000]).unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    std::fs::File::options().write(true).open(&leftover).unwrap().set_modified(old).unwrap();
    let would = cluster.done("alone", &["gc", "--dry-run"]);
    assert_eq!((&would["partials"], &would["dry_run"]), (&1.into(), &true.into()));
    assert!(leftover.exists());
    assert_eq!(cluster.done("alone", &["gc"])["partials"], 1);
    assert!(!leftover.exists());
}

#[test]
fn a_copy_that_rots_is_never_called_verified_but_fetched_again_or_put_again() {
    let cluster = Cluster::new();
    let (file, content) = cluster.file("file", 6);
    let mut source = cluster.node("source");
    let object = cluster.put("source", &file, "it");
    let _node = cluster.node("node");
    let keep = ["get", "it", "--keep"];
    assert_eq!(cluster.done("node", &keep)["verified"], true);
    cluster.await_holders("it", &object, 2);
    let here = cluster.done("node", &keep);
    assert_eq!((&here["verified"], &here["resumed_bytes"]), (&true.into(), &300_000.into()));
    let rotten = cluster.rot("node", &object);
    let again = cluster.done("node", &keep);
    assert_eq!((&again["verified"], &again["resumed_bytes"]), (&true.into(), &0.into()), "it came anew");
    assert!(std::fs::read(&rotten).unwrap() == content);
    // With nobody to fetch it from.
    source.kill();
    cluster.await_holders("it", &object, 1);
    cluster.rot("node", &object);
    let args = [&keep[..], &["--timeout", "50s"]].concat();
    let failed = cluster.run("node", &args);
    assert_eq!(failed.code, Some(5), "{}", failed.log);
    assert!(failed.log.contains("rotten") && failed.log.contains("headwater rm it"), "{}", failed.log);
    // Putting it again heals it, and it is offered again.
    assert_eq!(cluster.put("node", &file, "it")["placed"], "healed");
    assert!(std::fs::read(&rotten).unwrap() == content);
    cluster.await_holders("it", &object, 1);
    assert!(cluster.got("it") == content);
}

#[test]
fn an_id_brings_that_object_or_nothing_and_is_no_name() {
    let cluster = Cluster::new();
    let (file, content) = cluster.file("file", 7);
    let _node = cluster.node("node");
    let object = cluster.put("node", &file, "it");
    cluster.await_holders("it", &object, 1);
    assert!(cluster.got(object["object"].as_str().unwrap()) == content);
    let other = "0123456789abcdef".repeat(4);
    let refused = cluster.run("node", &["put", &file, "--name", &other]);
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(refused.log.contains("--name"), "{}", refused.log);
    let nothing = cluster.getting(&other, "out.bin").end(PATIENCE);
    assert_eq!(nothing.code, Some(3), "{}", nothing.log);
}

#[test]
fn tasks_of_refused_and_of_interrupted_gets_are_gone_with_them() {
    let cluster = Cluster::new();
    let path = cluster.path("big");
    random_file(&path, 8 << 20, 8);
    let at = cluster.at.clone();
    let args = ["serve", &text(&path), "--controller", &at, "--listen", "127.0.0.1:0", "--limit", "8Mbit/s"];
    let mut source = cluster.begin("source", &args);
    source.line(PATIENCE);
    let is_listed = || cluster.known().iter().any(|line| line.0.as_deref() == Some("big"));
    wait_until("it is listed", PATIENCE, is_listed);
    let out = text(&cluster.path("there"));
    std::fs::write(&out, "there").unwrap();
    for _ in 0..5 {
        let refused = cluster.run("getter", &["get", "big", "--controller", &at, "-o", &out]);
        assert_ne!(refused.code, Some(0), "{}", refused.log);
    }
    let stopped = text(&cluster.path("stopped"));
    let args = ["get", "big", "--controller", &at, "-o", &stopped, "--progress", "json"];
    let mut get = cluster.begin("getter", &args);
    wait_until("blocks have come", PATIENCE, || get.bytes_done() > 0);
    get.interrupt();
    assert_eq!(get.end(PATIENCE).code, Some(130));
    // A task without a word from its receiver would be there for a minute.
    let within = Duration::from_secs(20);
    wait_until("no task is left", within, || cluster.status()["tasks"].as_array().unwrap().is_empty());
}
