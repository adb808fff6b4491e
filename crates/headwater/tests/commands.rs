//! The commands as a user meets them, with the real binary on loopback.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cluster::{Ended, Process, free_port, random_file, text, wait_until};
use headwater_skips::SmallDisk;
use serde_json::Value;
use sha2::{Digest, Sha256};

const PATIENCE: Duration = Duration::from_secs(60);

fn serve(folder: &Path, what: &Path, listen: &str, more: &[&str]) -> (Process, String, Value) {
    let (what, state) = (text(what), text(&folder.join("source")));
    let args = [&["serve", &what, "--listen", listen, "--state", &state], more].concat();
    let mut process = Process::start(folder, "source", &args);
    let ready = process.line(PATIENCE);
    let address = ready["address"].as_str().unwrap().to_owned();
    (process, address, ready)
}

fn run(folder: &Path, args: &[&str]) -> Ended {
    Process::start(folder, args[0], args).end(PATIENCE)
}

fn get(folder: &Path, name: &str, from: &str, out: &Path, more: &[&str]) -> Ended {
    let (state, out) = (text(&folder.join("receiver")), text(out));
    run(folder, &[&["get", name, "--from", from, "-o", &out, "--state", &state], more].concat())
}

#[test]
fn a_file_a_range_and_a_stream_arrive_verified() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("model.bin"), 3_000_001, 1);
    let (_source, from, ready) = serve(folder, &folder.join("model.bin"), "127.0.0.1:0", &[]);
    let id = ready["objects"][0]["object"].as_str().unwrap().to_owned();
    assert_eq!(id, blake3::hash(&content).to_hex().as_str());

    let out = folder.join("out.bin");
    let ended = get(folder, "model.bin", &from, &out, &["--sha256", "--hash", &id]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(&out).unwrap(), content);
    let result = ended.last.unwrap();
    let sha256: String = Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!((&result["object"], &result["sha256"]), (&Value::from(id.clone()), &Value::from(sha256)));
    for key in ["seconds", "wire_floor", "mb_per_s", "repair_share", "duplicate_share", "cpu_seconds"] {
        assert!(result[key].is_number(), "{key} in {result}");
    }

    let ended = get(folder, "model.bin", &from, &out, &[]);
    assert_ne!(ended.code, Some(0), "an existing file is not replaced without being told so");
    assert_eq!(get(folder, &id[..10], &from, &out, &["--force"]).code, Some(0), "an id by its beginning");

    let part = folder.join("part.bin");
    let ended = get(folder, "model.bin", &from, &part, &["--range", "300000-300500"]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(&part).unwrap(), content[300_000..300_500]);
    assert_eq!(ended.last.unwrap()["bytes"], 500);

    let state = text(&folder.join("receiver"));
    let piped = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["get", "model.bin", "--from", &from, "-o", "-", "--state", &state, "--progress", "none"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(piped.status.success());
    assert_eq!(piped.stdout, content, "blocks come out in order");
}

#[test]
fn a_folder_arrives_with_modes_links_and_empty_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let set = folder.join("set");
    std::fs::create_dir_all(set.join("a/b")).unwrap();
    let big = random_file(&set.join("a/b/big.bin"), 1_500_000, 2);
    std::fs::write(set.join("empty"), b"").unwrap();
    std::fs::write(set.join("run.sh"), b"#!/bin/sh\n").unwrap();
    std::fs::set_permissions(set.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("a/b/big.bin", set.join("link")).unwrap();
    let (_source, from, _) = serve(folder, &set, "127.0.0.1:0", &[]);
    let out = folder.join("copy");
    let ended = get(folder, "set", &from, &out, &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(out.join("link")).unwrap(), big);
    assert_eq!(std::fs::read(out.join("empty")).unwrap(), b"");
    assert_eq!(std::fs::metadata(out.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    // A second run finds everything there.
    let ended = get(folder, "set", &from, &out, &["--force"]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let hidden = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .any(|e| e.file_name().to_string_lossy().contains("partial"));
    assert!(!hidden, "nothing is left behind");
}

#[test]
fn an_object_can_be_pulled_instead() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("pulled.bin"), 9_000_001, 4);
    let (_source, from, _) = serve(folder, &folder.join("pulled.bin"), "127.0.0.1:0", &[]);
    let out = folder.join("out.bin");
    let ended = get(folder, "pulled.bin", &from, &out, &["--transport", "pull", "--downlink", "1Gbit/s"]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(&out).unwrap(), content);
    assert_eq!(ended.last.unwrap()["transport"], "pull");
    assert!(!ended.log.contains("--downlink"), "{}", ended.log);
    // Nobody says what the link carries.
    let ended = get(folder, "pulled.bin", &from, &out, &["--force", "--transport", "pull"]);
    assert_eq!(
        (ended.code, &ended.last.unwrap()["transport"]),
        (Some(0), &Value::from("pull")),
        "{}",
        ended.log
    );
    assert_eq!(ended.log.matches("without --downlink").count(), 1, "{}", ended.log);
    let ended = get(folder, "pulled.bin", &from, &out, &["--force"]);
    assert_eq!(
        (ended.code, &ended.last.unwrap()["transport"]),
        (Some(0), &Value::from("push")),
        "{}",
        ended.log
    );
    assert_eq!(ended.log.matches("without --downlink").count(), 1, "one log for all: {}", ended.log);
    let ended = get(folder, "pulled.bin", &from, &out, &["--force", "--transport", "carry"]);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
}

#[test]
fn ipv6_works_as_ipv4_does() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        headwater_skips::cannot("this machine has no IPv6 loopback");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("six.bin"), 2_000_000, 3);
    let (_source, from, _) = serve(folder, &folder.join("six.bin"), "[::1]:0", &[]);
    let ended = get(folder, "six.bin", &from, &folder.join("out.bin"), &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
}

#[test]
fn what_is_not_as_it_should_be_has_its_own_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("a.bin"), 100_000, 4);
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let (source, from, _) = serve(folder, &folder.join("a.bin"), &listen, &[]);
    let out = folder.join("out.bin");
    assert_eq!(get(folder, "no-such", &from, &out, &[]).code, Some(3));
    let wrong = "ab".repeat(32);
    assert_eq!(get(folder, "a.bin", &from, &out, &["--hash", &wrong]).code, Some(5));
    assert_eq!(get(folder, "a.bin", &from, &out, &["--pin", &wrong]).code, Some(7));
    assert!(!out.exists());
    assert_eq!(get(folder, "a.bin", &from, &out, &[]).code, Some(0), "first contact pins the key");
    // Somebody else at the same address.
    drop(source);
    std::fs::remove_dir_all(folder.join("source")).unwrap();
    let (_other, _, _) = serve(folder, &folder.join("a.bin"), &listen, &[]);
    let ended = get(folder, "a.bin", &from, &out, &["--force"]);
    assert_eq!(ended.code, Some(7), "{}", ended.log);
    assert!(ended.log.contains("--pin"), "it says what to do: {}", ended.log);
    let nobody = format!("127.0.0.1:{}", free_port());
    assert_eq!(get(folder, "a.bin", &nobody, &out, &["--force"]).code, Some(4));
}

#[test]
fn an_interrupted_fetch_says_that_it_can_go_on_and_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("a.bin"), 6_000_000, 9);
    let (_source, from, _) = serve(folder, &folder.join("a.bin"), "127.0.0.1:0", &["--limit", "40Mbit/s"]);
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let args = ["get", "a.bin", "--from", &from, "-o", &out, "--state", &state, "--progress", "json"];
    let mut receiver = Process::start(folder, "receiver", &args);
    wait_until("the first blocks are here", PATIENCE, || receiver.bytes_done() > 1 << 20);
    let interrupt = Command::new("kill").args(["-INT", &receiver.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    let ended = receiver.end(PATIENCE);
    assert_eq!(ended.code, Some(130), "{}", ended.log);
    assert!(ended.log.contains("run the same command again"), "{}", ended.log);
    assert!(!folder.join("out.bin").exists());
    let ended = run(folder, &args);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(ended.last.unwrap()["resumed_bytes"].as_u64().unwrap() >= 1 << 20);
    assert_eq!(std::fs::read(&out).unwrap(), content);
}

/// Exit code 5, with what to do: the old end was exit code 4 after half a minute of silence.
fn refused_as_spoiled(ended: &Ended, says: &str) {
    let error = ended.last.clone().unwrap_or_default();
    assert_eq!(
        (ended.code, &error["error"]["kind"]),
        (Some(5), &Value::from("verification")),
        "{}",
        ended.log
    );
    assert!(ended.log.contains(says) && ended.log.contains("headwater serve"), "{}", ended.log);
}

#[test]
fn a_file_that_has_changed_since_it_was_offered_ends_each_get_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("a.bin"), 1_000_000, 5);
    let (_source, from, _) = serve(folder, &folder.join("a.bin"), "127.0.0.1:0", &[]);
    let other = random_file(&folder.join("a.bin"), 1_000_000, 6);
    let out = folder.join("out.bin");
    for again in ["found while it is read", "known already"] {
        let ended = get(folder, "a.bin", &from, &out, &[]);
        refused_as_spoiled(&ended, &format!("'a.bin' on {from} has changed since it was offered"));
        assert!(
            !out.exists() || std::fs::read(&out).unwrap() != other,
            "nothing wrong is delivered: {again}"
        );
    }
}

#[test]
fn a_get_goes_on_with_the_others_when_a_source_changes_in_the_middle_and_ends_when_the_last_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["one", "two"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    let content = random_file(&folder.join("one/a.bin"), 12_000_000, 15);
    std::fs::write(folder.join("two/a.bin"), &content).unwrap();
    let slow = ["--limit", "20Mbit/s"];
    let (_one, first, _) = serve(&folder.join("one"), &folder.join("one/a.bin"), "127.0.0.1:0", &slow);
    let (_two, second, _) = serve(&folder.join("two"), &folder.join("two/a.bin"), "127.0.0.1:0", &slow);
    let both = format!("{first},{second}");
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let start = |from: &str, name: &str| {
        let out = format!("{out}.{name}");
        let args = ["get", "a.bin", "--from", from, "-o", &out, "--state", &state, "--progress", "json"];
        let mut receiver = Process::start(folder, name, &args);
        wait_until("the first blocks are here", PATIENCE, || receiver.bytes_done() > 1 << 19);
        receiver
    };
    let receiver = start(&both, "both");
    random_file(&folder.join("one/a.bin"), 12_000_000, 16);
    let ended = receiver.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(folder.join("out.bin.both")).unwrap(), content);

    let receiver = start(&second, "last");
    random_file(&folder.join("two/a.bin"), 12_000_000, 17);
    refused_as_spoiled(&receiver.end(PATIENCE), "has changed since it was offered");
}

#[test]
fn a_rotten_copy_ends_the_get_of_whoever_has_no_other_source() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("a.bin");
    let mut content = random_file(&path, 1_000_000, 18);
    let (_source, from, _) = serve(folder, &path, "127.0.0.1:0", &[]);
    // A bit that the disk lost: nothing but the bytes tells.
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    content[600_000] ^= 1;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &content, 0).unwrap();
    file.set_modified(modified).unwrap();
    let ended = get(folder, "a.bin", &from, &folder.join("out.bin"), &[]);
    refused_as_spoiled(&ended, &format!("what {from} sends of 'a.bin' does not match the object's id"));
    assert!(!folder.join("out.bin").exists());
}

#[test]
fn an_object_of_a_cluster_whose_last_copy_changed_is_refused_until_it_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (up, home) = (format!("127.0.0.1:{}", free_port()), text(&folder.join("home")));
    let mut daemon = Process::start(folder, "up", &["up", "--listen", &up, "--state", &home]);
    daemon.line(PATIENCE);
    let path = folder.join("a.bin");
    let content = random_file(&path, 1_000_000, 19);
    let offer = |name: &str| serve(folder, &path, "127.0.0.1:0", &["--controller", &up, "--name", name]);
    let (source, _, _) = offer("a.bin");
    let asker = text(&folder.join("asker"));
    let listed = |name: &str| {
        run(folder, &["ls", "--controller", &up, "--state", &asker]).last.is_some_and(|it| it["name"] == name)
    };
    wait_until("it is listed", PATIENCE, || listed("a.bin"));
    random_file(&path, 1_000_000, 20);
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let get = || run(folder, &["get", "a.bin", "--controller", &up, "-o", &out, "--state", &state]);
    for _ in 0..2 {
        refused_as_spoiled(&get(), "'a.bin' on 127.0.0.1");
    }
    drop(source);
    std::fs::write(&path, &content).unwrap();
    let (_source, _, _) = offer("a.bin");
    wait_until("it comes again", PATIENCE, || get().code == Some(0));
    assert_eq!(std::fs::read(&out).unwrap(), content);
}

#[test]
fn a_port_that_is_taken_is_an_error_that_names_who_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (up, home) = (format!("127.0.0.1:{}", free_port()), text(&folder.join("home")));
    let mut daemon = Process::start(folder, "up", &["up", "--listen", &up, "--state", &home]);
    daemon.line(PATIENCE);
    let other = text(&folder.join("other"));
    let ended = run(folder, &["up", "--listen", &up, "--state", &other]);
    assert_eq!(ended.code, Some(1), "{}", ended.log);
    for part in [format!("pid {} (", daemon.id()), "--listen".to_owned(), up.clone()] {
        assert!(ended.log.contains(&part), "{part}: {}", ended.log);
    }
    let (_, port) = up.rsplit_once(':').unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let ended = run(folder, &["up", "--listen", &listen, "--data-port", port, "--state", &other]);
    assert_eq!(ended.code, Some(1), "{}", ended.log);
    assert!(ended.log.contains("--data-port") && ended.log.contains("in use"), "{}", ended.log);
}

/// Words that are no object where one is asked for, and ids that are numbers beyond what every reader of JSON keeps.
#[test]
fn errors_of_a_cluster_say_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("a.bin"), 3_000_000, 21);
    let slow = ["--limit", "5Mbit/s"];
    let (_source, from, _) = serve(folder, &folder.join("a.bin"), "127.0.0.1:0", &slow);
    let out = folder.join("out.bin");
    for (what, says) in [("abcd", "at least 8 digits"), ("no-such", "headwater ls")] {
        let ended = get(folder, what, &from, &out, &[]);
        assert_eq!(ended.code, Some(3), "{}", ended.log);
        let said = ["--from", "--controller", says].iter().all(|part| ended.log.contains(part));
        assert!(said, "{}", ended.log);
    }
    std::fs::write(&out, b"mine").unwrap();
    let ended = get(folder, "a.bin", &from, &out, &[]);
    assert!(ended.code == Some(1) && ended.log.contains("--force"), "{}", ended.log);
    let ended = get(folder, "a.bin", "no-such-host.invalid", &out, &["--force"]);
    assert_eq!(ended.code, Some(4), "{}", ended.log);
    assert!(ended.log.contains("does not resolve") && ended.log.contains("IP address"), "{}", ended.log);
    let nobody = format!("127.0.0.1:{}", free_port());
    let ended = get(folder, "a.bin", &nobody, &out, &["--force"]);
    assert_eq!(ended.code, Some(4), "{}", ended.log);
    assert!(ended.log.contains("nothing listens on UDP port") && ended.log.contains("7001"), "{}", ended.log);
}

#[test]
fn a_full_disk_is_exit_code_6_and_the_next_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let Some(small) = SmallDisk::of_mib(2) else { return };
    let out = small.path().join("out.bin");
    let content = random_file(&folder.join("a.bin"), 4_000_000, 7);
    let (_source, from, _) = serve(folder, &folder.join("a.bin"), "127.0.0.1:0", &[]);
    let ended = get(folder, "a.bin", &from, &out, &[]);
    assert_eq!(ended.code, Some(6), "{}", ended.log);
    small.resize(16);
    let again = get(folder, "a.bin", &from, &out, &[]);
    assert_eq!(again.code, Some(0), "{}", again.log);
    assert_eq!(std::fs::read(&out).unwrap(), content);
}

#[test]
fn a_daemon_takes_in_offers_lists_and_removes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("data.bin"), 900_000, 8);
    let (up, home) = (format!("127.0.0.1:{}", free_port()), text(&folder.join("home")));
    let page = format!("127.0.0.1:{}", free_port());
    let mut daemon =
        Process::start(folder, "up", &["up", "--listen", &up, "--state", &home, "--metrics", &page]);
    daemon.line(PATIENCE);
    let ended = run(folder, &["put", &text(&folder.join("data.bin")), "--name", "data", "--state", &home]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let id = ended.last.unwrap()["object"].as_str().unwrap().to_owned();

    // A second node joins and takes the same file in: two holders.
    let (other, away) = (format!("127.0.0.1:{}", free_port()), text(&folder.join("away")));
    let mut node =
        Process::start(folder, "node", &["node", "--join", &up, "--listen", &other, "--state", &away]);
    node.line(PATIENCE);
    assert_eq!(
        run(folder, &["put", &text(&folder.join("data.bin")), "--name", "data", "--state", &away]).code,
        Some(0)
    );
    let asker = text(&folder.join("asker"));
    let list = || run(folder, &["ls", "--controller", &up, "--state", &asker]).last.unwrap_or(Value::Null);
    wait_until("both nodes are listed", PATIENCE, || {
        list()["holders"].as_array().is_some_and(|h| h.len() == 2)
    });
    assert_eq!(list()["object"], Value::from(id.clone()));
    let holders = list()["holders"].to_string();
    assert!(holders.contains(&up) && holders.contains(&other), "{holders}");

    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let ended = run(
        folder,
        &["get", "data", "--controller", &up, "-o", &out, "--state", &state, "--limit", "20Mbit/s"],
    );
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(&out).unwrap(), content);
    let seconds = ended.last.unwrap()["seconds"].as_f64().unwrap();
    assert!(seconds > 0.25, "20 Mbit/s were asked for, {seconds} s is faster");

    let status = run(folder, &["status", "--controller", &up, "--state", &asker]).last.unwrap();
    assert!(status["nodes"].as_array().is_some_and(|n| n.len() == 2), "{status}");
    // Each has told how its data socket does, the one that the controller lives in and the other.
    let data_paths = status["nodes"].as_array().unwrap().iter().map(|node| &node["data_path"]);
    let sent: u64 = data_paths.map(|path| path["datagrams_sent"].as_u64().expect("counted")).sum();
    assert!(sent > 0, "{status}");
    let mut metrics = String::new();
    let mut stream = TcpStream::connect(&page).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    stream.read_to_string(&mut metrics).unwrap();
    assert!(metrics.contains("headwater_nodes_up 2"), "{metrics}");
    assert!(metrics.contains("headwater_receive_buffers_total"), "{metrics}");

    assert_eq!(run(folder, &["rm", "data", "--state", &away]).code, Some(0));
    wait_until("one holder is left", PATIENCE, || list()["holders"].as_array().is_some_and(|h| h.len() == 1));
    assert_eq!(run(folder, &["rm", "data", "--state", &away]).code, Some(3));

    // The daemon dies and comes back with what it had.
    daemon.kill();
    let mut daemon = Process::start(folder, "up2", &["up", "--listen", &up, "--state", &home]);
    daemon.line(PATIENCE);
    wait_until("the object is listed again", PATIENCE, || list()["object"].as_str() == Some(id.as_str()));
    let quota = text(&folder.join("tight"));
    let ended =
        run(folder, &["put", &text(&folder.join("data.bin")), "--state", &quota, "--quota", "100KiB"]);
    assert_eq!(ended.code, Some(6), "{}", ended.log);
}
