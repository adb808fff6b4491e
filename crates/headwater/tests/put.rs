//! `put` as a user meets it: folders of any names, what cannot be delivered, streams, interruptions; and what comes back of it.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use cluster::{Ended, Process, complete, free_port, number, random_file, text, wait_until};
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

/// A folder of a test, and a daemon on its state folder if one is wanted.
struct Sandbox {
    // Before the folder, which it uses.
    up: Option<Process>,
    folder: TempDir,
    controller: String,
}

impl Sandbox {
    fn new(daemon: bool) -> Sandbox {
        let folder = tempfile::tempdir().unwrap();
        let controller = format!("127.0.0.1:{}", free_port());
        let up = daemon.then(|| {
            let state = text(&folder.path().join("state"));
            let mut up =
                Process::start(folder.path(), "up", &["up", "--listen", &controller, "--state", &state]);
            up.line(PATIENCE);
            up
        });
        Sandbox { up, folder, controller }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    fn started(&self, name: &str, args: &[&str]) -> Process {
        let state = text(&self.path("state"));
        Process::start(self.folder.path(), name, &[args, &["--state", &state]].concat())
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.started(args[0], args).end(PATIENCE)
    }

    fn put(&self, what: &Path, more: &[&str]) -> Ended {
        self.run(&[&["put", &text(what)], more].concat())
    }

    /// Arguments of any bytes, which [`Process`] does not take.
    fn command(&self, args: &[&OsStr]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.args(args).arg("--state").arg(self.path("state")).arg("--json");
        command.env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    /// Names and ids of what is in the store.
    fn ls(&self) -> String {
        let output = self.command(&["ls".as_ref()]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Files in the store: of objects, and of puts under way.
    fn files(&self) -> usize {
        let count = |sub: &str| fs::read_dir(self.path("state/store").join(sub)).map_or(0, Iterator::count);
        count("objects") + count("tmp")
    }

    fn get(&self, what: &str, out: &Path) -> Value {
        let state = text(&self.path("receiver"));
        let args = ["get", what, "--controller", &self.controller, "-o", &text(out), "--state", &state];
        succeeded(Process::start(self.folder.path(), "get", &args).end(PATIENCE))
    }
}

fn succeeded(ended: Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    ended.last.unwrap()
}

/// Bytes that are no text, as a Latin-1 system has left them.
fn latin(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// A folder with two files, and four things that cannot be delivered.
fn special(folder: &Path) {
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("good"), "good").unwrap();
    fs::write(folder.join(latin(b"caf\xe9")), "coffee").unwrap();
    symlink("/etc/passwd", folder.join("absolute")).unwrap();
    symlink("../elsewhere", folder.join("out")).unwrap();
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap());
}

#[test]
fn what_cannot_be_delivered_is_named_and_nothing_is_stored_until_it_may_be_left_out() {
    let reasons = [
        ("absolute", "symlink target is absolute"),
        ("out", "symlink target leaves the folder"),
        ("pipe", "it is a named pipe"),
        ("socket", "it is a socket"),
    ];
    for daemon in [false, true] {
        let sandbox = Sandbox::new(daemon);
        let set = sandbox.path("set");
        special(&set);
        let refused = sandbox.put(&set, &[]);
        assert_eq!(refused.code, Some(1), "{}", refused.log);
        assert!(refused.log.contains("--skip-special"), "{}", refused.log);
        let listed = refused.last.unwrap()["error"]["left_out"].clone();
        let expected = reasons.map(|(name, reason)| {
            assert!(
                refused.log.contains(&format!("{} ({reason})", set.join(name).display())),
                "{}",
                refused.log
            );
            serde_json::json!({"path": set.join(name), "reason": reason})
        });
        assert_eq!(listed, Value::from(expected.to_vec()));
        assert_eq!((sandbox.ls().as_str(), sandbox.files()), ("", 0));

        let put = sandbox.put(&set, &["--skip-special"]);
        assert_eq!(put.code, Some(0), "{}", put.log);
        assert_eq!(put.log.matches("left out: ").count(), 4, "{}", put.log);
        let result = put.last.unwrap();
        assert_eq!((&result["left_out"], &result["bytes"]), (&listed, &Value::from(10)), "{result}");
    }
    // The same rules and words for a folder that is served.
    let sandbox = Sandbox::new(false);
    special(&sandbox.path("set"));
    let set = text(&sandbox.path("set"));
    let refused = sandbox.run(&["serve", &set, "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, Some(1), "{}", refused.log);
    assert_eq!(refused.last.unwrap()["error"]["left_out"].as_array().unwrap().len(), 4);
    let mut serving =
        sandbox.started("serving", &["serve", &set, "--listen", "127.0.0.1:0", "--skip-special"]);
    assert_eq!(serving.line(PATIENCE)["left_out"].as_array().unwrap().len(), 4);
}

#[test]
fn names_that_are_not_text_travel_through_a_daemon() {
    let mut sandbox = Sandbox::new(true);
    let odd = sandbox.path(latin(b"b\xfccher"));
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join(latin(b"caf\xe9.txt")), "coffee").unwrap();
    symlink(latin(b"caf\xe9.txt"), odd.join(latin(b"men\xfc"))).unwrap();
    let nameless = sandbox.command(&["put".as_ref(), odd.as_os_str()]).output().unwrap();
    assert_eq!(nameless.status.code(), Some(2), "{nameless:?}");
    assert!(String::from_utf8_lossy(&nameless.stderr).contains("--name"), "{nameless:?}");
    let named = ["put".as_ref(), odd.as_os_str(), "--name".as_ref(), "books".as_ref()];
    let put = sandbox.command(&named).output().unwrap();
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    assert!(sandbox.up.as_mut().unwrap().is_running());
    let out = sandbox.path("copy");
    sandbox.get("books", &out);
    assert_eq!(fs::read(out.join(latin(b"caf\xe9.txt"))).unwrap(), b"coffee");
    assert_eq!(fs::read_link(out.join(latin(b"men\xfc"))).unwrap().as_os_str(), latin(b"caf\xe9.txt"));
}

#[test]
fn times_and_holes_come_back_and_times_can_be_left_out_for_one_id_everywhere() {
    let sandbox = Sandbox::new(true);
    let write = |name: &str, secs: u64| {
        let set = sandbox.path(name);
        fs::create_dir(&set).unwrap();
        let file = File::create(set.join("disk.img")).unwrap();
        file.set_len(32 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"boot", 9 << 20).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(secs, 123_456_789)).unwrap();
        set
    };
    let (here, there) = (write("here", 1_000_000_000), write("there", 1_500_000_000));
    let id =
        |set: &Path, more: &[&str]| succeeded(sandbox.put(set, more))["object"].as_str().unwrap().to_owned();
    let (with, other) = (id(&here, &["--name", "set"]), id(&there, &[]));
    assert_ne!(with, other, "times are part of a folder");
    let without = ["--no-mtimes", "--name", "plain"];
    assert_eq!(id(&here, &without), id(&there, &without), "equal contents are one object without them");

    let out = sandbox.path("copy");
    sandbox.get("set", &out);
    let copied = fs::metadata(out.join("disk.img")).unwrap();
    assert_eq!((copied.mtime(), copied.mtime_nsec()), (1_000_000_000, 123_456_789));
    assert!(fs::read(out.join("disk.img")).unwrap() == fs::read(here.join("disk.img")).unwrap());
    assert!(
        copied.blocks() * 512 <= 1 << 20,
        "{} bytes on the disk for 4 that are not zero",
        copied.blocks() * 512
    );
}

/// Begins a `put` that reads from this process.
fn begin_put(sandbox: &Sandbox, more: &[&str]) -> Child {
    let args: Vec<&OsStr> = ["put", "-"].iter().chain(more).map(OsStr::new).collect();
    let mut command = sandbox.command(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn standard_input_and_named_pipes_are_put_to_their_end() {
    for daemon in [false, true] {
        let sandbox = Sandbox::new(daemon);
        let content = random_file(&sandbox.path("content"), 9_000_001, 1);
        let id = blake3::hash(&content).to_hex();
        let mut put = begin_put(&sandbox, &["--name", "stream"]);
        put.stdin.take().unwrap().write_all(&content).unwrap();
        let output = put.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&result["object"], &result["name"]), (&Value::from(id.as_str()), &Value::from("stream")));
        if daemon {
            let out = sandbox.path("out");
            sandbox.get("stream", &out);
            assert!(fs::read(out).unwrap() == content);
        }

        let mut unnamed = begin_put(&sandbox, &[]);
        unnamed.stdin.take().unwrap().write_all(b"few").unwrap();
        let result: Value = serde_json::from_slice(&unnamed.wait_with_output().unwrap().stdout).unwrap();
        let id = blake3::hash(b"few").to_hex();
        assert_eq!((&result["object"], &result["name"]), (&Value::from(id.as_str()), &Value::Null));

        let pipe = sandbox.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reading = sandbox.started("put", &["put", &text(&pipe)]);
        File::options().write(true).open(&pipe).unwrap().write_all(b"through a pipe").unwrap();
        let result = succeeded(reading.end(PATIENCE));
        assert_eq!(result["object"], blake3::hash(b"through a pipe").to_hex().as_str());
        let linked = sandbox.put(&pipe, &["--link"]);
        assert_eq!(linked.code, Some(2), "{}", linked.log);
    }
}

#[test]
fn a_put_that_is_interrupted_or_killed_leaves_nothing() {
    for daemon in [false, true] {
        let sandbox = Sandbox::new(daemon);
        for way in ["interrupted", "killed"] {
            let name = format!("put-{way}");
            let state = text(&sandbox.path("state"));
            let args = ["put", "-", "--name", "it", "--progress", "json", "--state", &state];
            let mut put = Process::start_listening(sandbox.folder.path(), &name, &args);
            put.say(&"x".repeat(1 << 20));
            wait_until("bytes are in the store", PATIENCE, || put.bytes_done() >= 1 << 20);
            assert_eq!(sandbox.files(), 1, "the file under way");
            match way {
                "interrupted" => {
                    put.interrupt();
                    let ended = put.end(PATIENCE);
                    assert_eq!(ended.code, Some(130), "{}", ended.log);
                    assert_eq!(sandbox.files(), 0, "nothing is left when the command ends");
                }
                _ => {
                    put.kill();
                    // Without a daemon the next command sweeps.
                    wait_until("nothing is left", PATIENCE, || {
                        sandbox.ls().is_empty() && sandbox.files() == 0
                    });
                }
            }
        }
        assert_eq!(sandbox.ls(), "");
    }
}

#[test]
fn progress_of_a_folder_counts_all_its_files_also_where_a_daemon_does_the_work() {
    for daemon in [false, true] {
        let sandbox = Sandbox::new(daemon);
        let set = sandbox.path("set");
        fs::create_dir(&set).unwrap();
        for n in 0..3 {
            random_file(&set.join(n.to_string()), 3 << 20, n);
        }
        let mut put = sandbox.started("put", &["put", &text(&set), "--progress", "json"]);
        let first = put.line(PATIENCE);
        assert_eq!((&first["type"], &first["phase"]), (&"progress".into(), &"hashing".into()), "{first}");
        assert_eq!(first["bytes_total"], 9 << 20, "{first}");
        assert_eq!(first["object"], text(&set).as_str(), "{first}");
        assert!((1..=9 << 20).contains(&first["bytes_done"].as_u64().unwrap()), "{first}");
        let result = succeeded(put.end(PATIENCE));
        assert_eq!(result["bytes"], 9 << 20, "{result}");
    }
}

#[test]
fn a_cast_of_a_folder_counts_its_files() {
    let sandbox = Sandbox::new(true);
    let set = sandbox.path("set");
    fs::create_dir(&set).unwrap();
    for n in 0..4 {
        random_file(&set.join(n.to_string()), 500_000, n);
    }
    let object = succeeded(sandbox.put(&set, &[]))["object"].as_str().unwrap().to_owned();
    let nodes: BTreeMap<&str, Process> = ["a", "b"]
        .into_iter()
        .map(|name| {
            let state = text(&sandbox.path(name));
            let args = ["node", "--join", &sandbox.controller, "--listen", "127.0.0.1:0", "--state", &state];
            let mut node = Process::start(sandbox.folder.path(), name, &args);
            node.line(PATIENCE);
            (name, node)
        })
        .collect();
    let cast = |state: &str| {
        let state = text(&sandbox.path(state));
        let args = [
            "cast",
            "set",
            "--all",
            "--controller",
            &sandbox.controller,
            "--via",
            "unicast",
            "--state",
            &state,
        ];
        Process::start(sandbox.folder.path(), "cast", &args).end(PATIENCE)
    };
    wait_until("both nodes to be known", PATIENCE, || {
        let report = sandbox.run(&["status", "--controller", &sandbox.controller]).last.unwrap();
        report["nodes"].as_array().unwrap().iter().filter(|node| node["up"] == true).count()
            == 1 + nodes.len()
    });
    let manifest = fs::metadata(sandbox.path("state/store/objects").join(&object)).unwrap().len();
    let result = complete(cast("asker"));
    assert_eq!(result["bytes"], 2_000_000 + manifest, "{result:#}");
    let copies = number(&result["copies"]);
    // Each of two receivers got it all, from the source or from the other.
    assert!((0.99..=2.2).contains(&copies), "{copies} copies: {result:#}");
    let receivers = result["receivers"].as_array().unwrap();
    let kept = receivers.iter().filter(|it| it["state"] == "done" && it["bytes"] == result["bytes"]);
    assert_eq!(kept.count(), 2, "{result:#}");
    // Once more, to those of which the controller knows that they have it: nothing is sent.
    let again = complete(cast("asker"));
    let had = again["receivers"].as_array().unwrap().iter().filter(|it| it["state"] == "had").count();
    assert_eq!((had, &again["copies"]), (2, &Value::from(0.0)), "{again:#}");
}
