//! `get` as a user meets it: folders that go on, devices and pipes, streams, several objects, and what this machine has itself.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::{Ended, Process, free_port, random_file, text, wait_until};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);
/// A block of an object of this size.
const BLOCK: u64 = 256 << 10;

/// A source of everything given.
fn serve(folder: &Path, name: &str, what: &[&Path], more: &[&str]) -> (Process, String) {
    let state = text(&folder.join(format!("{name}-state")));
    let what: Vec<String> = what.iter().map(|path| text(path)).collect();
    let mut args = vec!["serve"];
    args.extend(what.iter().map(String::as_str));
    args.extend(["--listen", "127.0.0.1:0", "--state", &state]);
    args.extend(more);
    let mut process = Process::start(folder, name, &args);
    let address = process.line(PATIENCE)["address"].as_str().unwrap().to_owned();
    (process, address)
}

fn run(folder: &Path, args: &[&str]) -> Ended {
    Process::start(folder, args[0], args).end(PATIENCE)
}

/// In another working folder.
fn start_in(folder: &Path, working: &Path, args: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.current_dir(working);
    Process::start_by(folder, "get", command, args)
}

/// Value of a figure on a source's page for Prometheus.
fn figure(page: &str, name: &str) -> u64 {
    let mut text = String::new();
    let mut stream = TcpStream::connect(page).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    stream.read_to_string(&mut text).unwrap();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or("0");
    value.trim().parse::<f64>().unwrap() as u64
}

/// Bytes of symbol that came over the network.
fn came(result: &Value) -> u64 {
    result["sources"].as_array().unwrap().iter().map(|source| source["bytes"].as_u64().unwrap()).sum()
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A folder of many files, and what is in each.
fn many_files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::create_dir_all(folder.join("deep/er")).unwrap();
    let name = |n: u64| match n % 3 {
        0 => format!("{n:02}"),
        1 => format!("deep/{n:02}"),
        _ => format!("deep/er/{n:02}"),
    };
    (0..24).map(|n| (name(n), random_file(&folder.join(name(n)), 250_000, n))).collect()
}

fn assert_is(copy: &Path, content: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in content {
        assert!(fs::read(copy.join(name)).unwrap() == *bytes, "{name}");
    }
}

#[test]
fn a_folder_goes_on_where_an_interrupted_run_ended_whatever_its_output_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let set = folder.join("set");
    let content = many_files(&set);
    let total: u64 = content.values().map(|bytes| bytes.len() as u64).sum();
    let page = format!("127.0.0.1:{}", free_port());
    let (_source, from) = serve(folder, "source", &[&set], &["--limit", "40Mbit/s", "--metrics", &page]);
    // Forms of -o: its value, whether that is a folder before, where the folder comes to be, and how the first run
    // ends.
    let forms: [(Option<&str>, bool, &str, &str); 4] = [
        (None, false, "set", "-INT"),
        (Some("there"), true, "there/set", "-KILL"),
        (Some("new"), false, "new", "-KILL"),
        (Some("made/"), false, "made/set", "-INT"),
    ];
    for (output, exists, place, signal) in forms {
        let working = folder.join(format!("working{place}").replace('/', "-"));
        fs::create_dir(&working).unwrap();
        if exists {
            fs::create_dir(working.join(output.unwrap())).unwrap();
        }
        let (place, state) = (working.join(place), text(&working.join("state")));
        let mut args = vec!["get", "set", "--from", &from, "--state", &state, "--progress", "json"];
        args.extend(output.iter().flat_map(|output| ["-o", output]));
        let mut first = start_in(folder, &working, &args);
        wait_until("some files are here", PATIENCE, || first.bytes_done() > total / 4);
        let killed = Command::new("kill").args([signal, &first.id().to_string()]).status();
        assert!(killed.unwrap().success());
        let ended = first.end(PATIENCE);
        assert_ne!(ended.code, Some(0), "{output:?}");
        assert!(!place.exists(), "{output:?}: half a folder has no name");

        let ended = start_in(folder, &working, &args).end(PATIENCE);
        let result = ended.last.unwrap();
        assert_eq!(ended.code, Some(0), "{output:?}: {}", ended.log);
        assert_is(&place, &content);
        let resumed = result["resumed_bytes"].as_u64().unwrap();
        assert!(resumed > total / 4, "{output:?}: {result:#}");
        // Bytes that were here did not come again; the list of files and what fills the last symbols of files is
        // little.
        let came = came(&result);
        assert!(came <= total - resumed + 120_000, "{output:?}: {came} came, {resumed} of {total} were here");
        let parent = place.parent().unwrap();
        assert!(entries(parent).iter().all(|name| !name.starts_with('.')), "{:?}", entries(parent));

        // Once more: all of it is there.
        // Packets that are still sent to the process that was killed are not counted.
        let mut before = 0;
        wait_until("its source is through", PATIENCE, || {
            std::thread::sleep(Duration::from_millis(500));
            let sent = figure(&page, "headwater_bytes_sent_total");
            std::mem::replace(&mut before, sent) == sent
        });
        let ended = start_in(folder, &working, &args).end(PATIENCE);
        let result = ended.last.unwrap();
        assert_eq!(ended.code, Some(0), "{output:?}: {}", ended.log);
        assert_eq!(result["resumed_bytes"], total, "{output:?}");
        assert!(came_is_little(&result), "{output:?}: {result:#}");
        let sent = figure(&page, "headwater_bytes_sent_total") - before;
        assert!(sent < 100_000, "{output:?}: {sent} bytes were sent");
        assert!(!place.join("set").exists(), "{output:?}: not into itself");
    }
}

/// No more than a list of files.
fn came_is_little(result: &Value) -> bool {
    came(result) < 20_000
}

#[test]
fn a_folder_that_differs_is_replaced_only_with_force_and_what_is_the_same_does_not_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let set = folder.join("set");
    let content = many_files(&set);
    let (_source, from) = serve(folder, "source", &[&set], &[]);
    let (out, state) = (folder.join("out"), text(&folder.join("receiver")));
    let target = text(&out);
    let get = |more: &[&str]| {
        run(folder, &[&["get", "set", "--from", &from, "-o", &target, "--state", &state], more].concat())
    };
    assert_eq!(get(&[]).code, Some(0));
    fs::write(out.join("00"), "changed by the user").unwrap();
    let ended = get(&[]);
    assert_eq!(ended.code, Some(1), "{}", ended.log);
    assert!(ended.log.contains("exists already") && ended.log.contains("--force"), "{}", ended.log);
    assert_eq!(fs::read(out.join("00")).unwrap(), b"changed by the user");
    let ended = get(&["--force"]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_is(&out, &content);
    assert!(came(&ended.last.unwrap()) < 2 * 250_000, "one file came");
    assert!(entries(folder).iter().all(|name| !name.starts_with(".out")), "{:?}", entries(folder));
}

#[test]
fn pipes_and_devices_are_written_to_and_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("a.bin"), 700_001, 3);
    let (_source, from) = serve(folder, "source", &[&folder.join("a.bin")], &[]);
    let state = text(&folder.join("receiver"));
    let args = |out: &Path| {
        let out = text(out);
        ["get", "a.bin", "--from", &from, "-o", &out, "--state", &state].map(str::to_owned).to_vec()
    };
    let get = |out: &Path, more: &[&str]| {
        let args = args(out);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
        run(folder, &args)
    };
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for more in [&[][..], &["--force"]] {
        let path = pipe.clone();
        let reader = std::thread::spawn(move || fs::read(path).unwrap());
        let ended = get(&pipe, more);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(reader.join().unwrap() == content);
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    }
    let socket = folder.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let ended = get(&socket, &["--force"]);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());

    let (null, block) = (folder.join("null"), folder.join("block"));
    let made = |path: &Path, kind: [&str; 3]| {
        let made = Command::new("mknod").arg(path).args(kind).output();
        made.is_ok_and(|made| made.status.success()) && (kind[0] == "b" || fs::write(path, "x").is_ok())
    };
    if !made(&null, ["c", "1", "3"]) || !made(&block, ["b", "7", "250"]) {
        headwater_skips::cannot("no devices can be made here");
        return;
    }
    for more in [&[][..], &["--force"]] {
        let ended = get(&null, more);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device());
    }
    let ended = get(&block, &[]);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("--force"), "{}", ended.log);
    assert!(fs::symlink_metadata(&block).unwrap().file_type().is_block_device());
}

#[test]
fn what_cannot_be_written_is_said_before_anybody_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Nobody is there: the asked address does not answer, with another exit code.
    let (nobody, state) = (format!("127.0.0.1:{}", free_port()), text(&folder.join("receiver")));
    for (out, advice) in
        [("no/such/out", "mkdir -p"), ("no/such/", "mkdir -p"), ("receiver.txt/", "no folder")]
    {
        fs::write(folder.join("receiver.txt"), "mine").unwrap();
        let out = format!("{}/{out}", folder.display());
        let ended = run(folder, &["get", "x", "--from", &nobody, "-o", &out, "--state", &state]);
        assert_eq!(ended.code, Some(2), "{out}: {}", ended.log);
        assert!(ended.log.contains(advice), "{out}: {}", ended.log);
    }
    // A folder that was made for it goes again.
    let made = folder.join("made/");
    let ended = run(folder, &["get", "x", "--from", &nobody, "-o", &text(&made), "--state", &state]);
    assert_eq!(ended.code, Some(4), "{}", ended.log);
    assert!(!made.exists());
}

/// A `get -o -` whose standard output is the test's.
struct Stream {
    child: Child,
    done: Arc<AtomicU64>,
    log: std::thread::JoinHandle<String>,
}

impl Stream {
    fn start(what: &str, from: &str, state: &Path) -> Stream {
        let mut child = Command::new(env!("CARGO_BIN_EXE_headwater"))
            .args([
                "get",
                what,
                "--from",
                from,
                "-o",
                "-",
                "--state",
                &text(state),
                "--json",
                "--progress",
                "json",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let done = Arc::new(AtomicU64::new(0));
        let (stderr, heard) = (child.stderr.take().unwrap(), done.clone());
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let value: Value = serde_json::from_str(&line).unwrap_or_default();
                if let Some(bytes) = value["bytes_done"].as_u64() {
                    heard.store(bytes, Ordering::Relaxed);
                }
                log += &line;
                log.push('\n');
            }
            log
        });
        Stream { child, done, log }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits until nothing more comes.
    fn until_it_rests(&self) -> u64 {
        let (mut last, mut rests) = (0, 0);
        wait_until("nothing more comes", PATIENCE, || {
            std::thread::sleep(Duration::from_millis(100));
            let done = self.done();
            rests = if done == last && done > 0 { rests + 1 } else { 0 };
            last = done;
            rests == 20
        });
        last
    }

    fn end(mut self) -> (Option<i32>, String) {
        drop(self.child.stdout.take());
        wait_until("it ends", PATIENCE, || self.child.try_wait().unwrap().is_some());
        (self.child.wait().unwrap().code(), self.log.join().unwrap())
    }
}

/// Everything below a folder that is no folder itself.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let paths = found.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Nothing of an object is on the disk.
fn assert_only_small_files(state: &Path) {
    for path in files_below(state) {
        assert!(path.metadata().unwrap().len() < 100_000, "{}", path.display());
    }
}

#[test]
fn a_stream_holds_no_more_than_its_reader_has_not_taken_up_to_a_bound() {
    const BYTES: usize = 100 << 20;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("big.bin"), BYTES, 5);
    let (_source, from) = serve(folder, "source", &[&folder.join("big.bin")], &[]);
    let state = folder.join("receiver");
    let mut stream = Stream::start("big.bin", &from, &state);
    let rested = stream.until_it_rests();
    assert!(rested <= 52 << 20, "{rested} bytes came although nobody reads");
    assert_only_small_files(&state);
    let mut read = Vec::new();
    stream.child.stdout.take().unwrap().read_to_end(&mut read).unwrap();
    assert!(read == content);
    let (code, log) = stream.end();
    assert_eq!(code, Some(0), "{log}");
    assert_only_small_files(&state);

    // Nobody reads, and the process is told to end.
    let stream = Stream::start("big.bin", &from, &state);
    stream.until_it_rests();
    let told = Command::new("kill").args(["-TERM", &stream.child.id().to_string()]).status();
    assert!(told.unwrap().success());
    let Stream { mut child, log, .. } = stream;
    wait_until("it ends although nobody reads", PATIENCE, || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", log.join().unwrap());
    assert_only_small_files(&state);
}

#[test]
fn a_stream_whose_reader_has_gone_ends_and_its_source_sends_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("big.bin"), 60 << 20, 6);
    // Slow enough that hardly anything has come when the reader goes.
    let page = format!("127.0.0.1:{}", free_port());
    let (_source, from) =
        serve(folder, "source", &[&folder.join("big.bin")], &["--limit", "20Mbit/s", "--metrics", &page]);
    let state = folder.join("receiver");
    let mut stream = Stream::start("big.bin", &from, &state);
    let mut some = vec![0; 300_000];
    stream.child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    drop(stream.child.stdout.take());
    let done = stream.done.clone();
    let (code, log) = stream.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(done.load(Ordering::Relaxed) < 30 << 20, "it did not end before most had come: {log}");
    wait_until("its source sends to nobody", PATIENCE, || figure(&page, "headwater_flows_sending") == 0);
    let sent = figure(&page, "headwater_bytes_sent_total");
    assert!(sent > 300_000 && sent < 30 << 20, "{sent} bytes were sent");
    assert_only_small_files(&state);
}

#[test]
fn a_folder_goes_to_a_stream_as_a_tar() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let set = folder.join("set");
    let content = many_files(&set);
    fs::write(set.join("empty"), "").unwrap();
    fs::write(set.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(set.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("deep/01", set.join("link")).unwrap();
    fs::create_dir(set.join("hollow")).unwrap();
    let (_source, from) = serve(folder, "source", &[&set], &[]);
    let state = folder.join("receiver");
    let mut stream = Stream::start("set", &from, &state);
    let out = folder.join("out");
    tar::Archive::new(stream.child.stdout.take().unwrap()).unpack(&out).unwrap();
    let (code, log) = stream.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(entries(&out), ["set"]);
    let out = out.join("set");
    assert_is(&out, &content);
    assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("deep/01"));
    assert_eq!(fs::metadata(out.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read(out.join("empty")).unwrap(), b"");
    assert!(out.join("hollow").is_dir());
    assert_only_small_files(&state);

    // Its reader goes in the middle.
    let stream = Stream::start("set", &from, &state);
    let (code, log) = stream.end();
    assert_ne!(code, Some(0), "{log}");
}

#[test]
fn several_objects_come_by_one_command_and_one_that_fails_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let names = ["a.bin", "b.bin", "c.bin", "d.bin", "e.bin"];
    let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    let content: Vec<Vec<u8>> =
        files.iter().zip(20..).map(|(path, seed)| random_file(path, 400_000, seed)).collect();
    let set = folder.join("set");
    let of_set = many_files(&set);
    let mut all: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    all.push(&set);
    let (_source, from) = serve(folder, "source", &all, &[]);
    let (out, state) = (folder.join("out/"), text(&folder.join("receiver")));
    let target = text(&out) + "/";
    let mut args = vec!["get"];
    args.extend(names);
    args.extend(["set", "no-such", "--from", &from, "-o", &target, "--state", &state]);
    let mut process = Process::start(folder, "get", &args);
    let lines: Vec<Value> = (0..7).map(|_| process.line(PATIENCE)).collect();
    let ended = process.end(PATIENCE);
    assert_eq!(ended.code, Some(3), "{}", ended.log);
    assert!(ended.last.is_none(), "a line for each");
    for (name, bytes) in names.iter().zip(&content) {
        assert!(fs::read(out.join(name)).unwrap() == *bytes, "{name}");
    }
    assert_is(&out.join("set"), &of_set);
    let failed: Vec<&Value> = lines.iter().filter(|line| line["error"].is_object()).collect();
    assert_eq!((failed.len(), &failed[0]["name"]), (1, &Value::from("no-such")));
    assert_eq!(lines.iter().filter(|line| line["verified"] == Value::Bool(true)).count(), 6);

    let file = text(&folder.join("file"));
    let ended = run(folder, &["get", "a.bin", "b.bin", "--from", &from, "-o", &file, "--state", &state]);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    let ended = run(folder, &["get", "a.bin", "x/a.bin", "--from", &from, "-o", &target, "--state", &state]);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
}

/// The file of an object in the store of a state folder.
fn stored(state: &Path, id: &str) -> PathBuf {
    state.join("store/objects").join(id)
}

/// One bit of the second block is another one.
fn rot(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, BLOCK + 17).unwrap();
    file.write_all_at(&[byte[0] ^ 1], BLOCK + 17).unwrap();
}

#[test]
fn what_this_machine_has_is_taken_from_its_own_store_and_hashed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("data.bin"), 900_000, 8);
    let set = folder.join("set");
    let of_set = many_files(&set);
    let home = folder.join("home");
    let state = text(&home);
    let put = run(folder, &["put", &text(&folder.join("data.bin")), "--name", "data", "--state", &state]);
    let id = put.last.unwrap()["object"].as_str().unwrap().to_owned();
    assert_eq!(run(folder, &["put", &text(&set), "--name", "set", "--state", &state]).code, Some(0));
    // No daemon, no controller.
    for (what, out) in [("data", "one"), (&id[..], "two"), (&id[..10], "three")] {
        let out = folder.join(out);
        let ended = run(folder, &["get", what, "-o", &text(&out), "--state", &state]);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(fs::read(&out).unwrap() == content);
        let result = ended.last.unwrap();
        assert_eq!((came(&result), &result["resumed_bytes"]), (0, &Value::from(900_000)), "{result:#}");
    }
    // Several at once, each of which looks into the store.
    let outs: Vec<PathBuf> = (0..8).map(|n| folder.join(format!("at-once-{n}"))).collect();
    let start = |out: &PathBuf| {
        Process::start(folder, "at-once", &["get", "data", "-o", &text(out), "--state", &state])
    };
    let processes: Vec<Process> = outs.iter().map(start).collect();
    for (process, out) in processes.into_iter().zip(&outs) {
        let ended = process.end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(fs::read(out).unwrap() == content);
    }
    let out = folder.join("set-copy");
    let ended = run(folder, &["get", "set", "-o", &text(&out), "--state", &state]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_is(&out, &of_set);
    let ended = run(folder, &["get", "no-such", "-o", &text(&folder.join("x")), "--state", &state]);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("--from") && ended.log.contains("--controller"), "{}", ended.log);
    let piped = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["get", "data", "-o", "-", "--state", &state])
        .output()
        .unwrap();
    assert!(piped.status.success() && piped.stdout == content);

    // A flipped bit is no object.
    rot(&stored(&home, &id));
    let rotten = folder.join("rotten");
    let ended = run(folder, &["get", "data", "-o", &text(&rotten), "--state", &state]);
    assert_eq!(ended.code, Some(5), "{}", ended.log);
    assert!(!rotten.exists());

    // With a cluster, only the rotten block comes from another node.
    let up = format!("127.0.0.1:{}", free_port());
    let other = text(&folder.join("other"));
    let mut controller = Process::start(folder, "up", &["up", "--listen", &up, "--state", &other]);
    controller.line(PATIENCE);
    let data = text(&folder.join("data.bin"));
    assert_eq!(run(folder, &["put", &data, "--name", "data", "--state", &other]).code, Some(0));
    let args = ["get", &id, "--controller", &up, "-o", &text(&rotten), "--state", &state].map(str::to_owned);
    let ended = run(folder, &args.each_ref().map(String::as_str));
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(fs::read(&rotten).unwrap() == content);
    let came = came(&ended.last.unwrap());
    assert!(came > 0 && came < 2 * BLOCK, "{came} bytes came");
}

#[test]
fn a_daemon_of_this_machine_is_asked_and_the_controllers_word_on_a_name_counts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let old = random_file(&folder.join("old.bin"), 600_000, 1);
    let new = random_file(&folder.join("new.bin"), 600_000, 2);
    let up = format!("127.0.0.1:{}", free_port());
    let (home, away) = (text(&folder.join("home")), text(&folder.join("away")));
    let mut daemon = Process::start(folder, "up", &["up", "--listen", &up, "--state", &home]);
    daemon.line(PATIENCE);
    let put = |file: &str, state: &str| {
        run(folder, &["put", &text(&folder.join(file)), "--name", "model", "--state", state])
    };
    let id = put("new.bin", &home).last.unwrap()["object"].as_str().unwrap().to_owned();
    // By its name: the controller says that it is what the daemon of this machine holds.
    let get = |out: &str, more: &[&str]| {
        let out = text(&folder.join(out));
        run(folder, &[&["get", "model", "-o", &out], more].concat())
    };
    let ended = get("one", &["--state", &home]);
    let result = ended.last.unwrap();
    assert_eq!((ended.code, came(&result)), (Some(0), 0), "{}", ended.log);
    assert_eq!(result["object"], Value::from(id.clone()));
    // Another machine has another object under that name in its store: the controller's word counts, and is said.
    put("old.bin", &away);
    let ended = get("two", &["--state", &away, "--controller", &up]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(fs::read(folder.join("two")).unwrap() == new);
    assert!(ended.log.contains("by the controller's word"), "{}", ended.log);
    // Both into the store, which then has them.
    let ended = run(folder, &["put", &text(&folder.join("old.bin")), "--name", "older", "--state", &home]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let kept = text(&folder.join("kept"));
    let args = ["get", "model", "older", "--keep", "--controller", &up, "--state", &kept];
    let mut process = Process::start(folder, "keep", &args);
    let objects = [process.line(PATIENCE)["object"].clone(), process.line(PATIENCE)["object"].clone()];
    assert_eq!(process.end(PATIENCE).code, Some(0));
    assert_eq!(objects, [id.clone(), blake3::hash(&old).to_hex().to_string()].map(Value::from));
    // It is away: then what is here counts, and that is said.
    daemon.kill();
    let ended = get("three", &["--state", &away, "--controller", &up]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(fs::read(folder.join("three")).unwrap() == old);
    assert!(ended.log.contains("own store"), "{}", ended.log);
    // By its id no controller need be there, nor the daemon.
    let out = text(&folder.join("four"));
    let ended = run(folder, &["get", &id, "-o", &out, "--state", &home]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(fs::read(&out).unwrap() == new);
}
