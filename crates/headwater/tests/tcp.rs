//! `headwater debug tcp` as programs use it, on loopback.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use cluster::{Process, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn receiver(folder: &Path, more: &[&str]) -> (Process, String) {
    let args = [&["debug", "tcp", "receive", "--listen", "127.0.0.1:0"], more].concat();
    let mut process = Process::start(folder, "receive", &args);
    let ready = process.line(PATIENCE);
    assert_eq!(ready["type"], "listening");
    let address = ready["listen"].as_str().unwrap().to_owned();
    (process, address)
}

fn send(folder: &Path, to: &str, more: &[&str]) -> Process {
    Process::start(folder, "send", &[&["debug", "tcp", "send", "--to", to], more].concat())
}

fn interrupt(process: &Process) {
    kill_process(Pid::from_raw(process.id() as i32).unwrap(), Signal::INT).unwrap();
}

/// A sender whose standard input and output are ours.
fn waiting_sender(to: &str) -> (Child, BufReader<ChildStdout>) {
    let args = ["debug", "tcp", "send", "--json", "--to", to, "--bytes", "1MB", "--wait-for-start"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn json_line(out: &mut impl BufRead) -> Value {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

#[test]
fn both_ends_say_the_same_of_a_connection_and_write_its_timelines() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (sent_rows, received_rows) = (text(&folder.join("sent.csv")), text(&folder.join("received.csv")));
    let (mut receiver, to) = receiver(folder, &["--timeline", &received_rows, "--packet-bytes", "1000"]);
    let flags = ["--for", "300ms", "--congestion", "reno", "--name", "rival", "--timeline", &sent_rows];
    let ended = send(folder, &to, &flags).end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let (sent, received) = (ended.last.unwrap(), receiver.line(PATIENCE));
    assert_eq!((&sent["type"], &received["type"]), (&"sent".into(), &"received".into()));
    assert_eq!((&sent["bytes"], &sent["name"]), (&received["bytes"], &received["name"]));
    assert_eq!((&sent["congestion"], &received["name"]), (&"reno".into(), &"rival".into()));
    assert!(sent["start_ns"].as_u64() <= received["start_ns"].as_u64(), "{sent} {received}");
    assert!(received["finish_ns"].as_u64() <= sent["finish_ns"].as_u64(), "one clock: {sent} {received}");
    interrupt(&receiver);
    let ended = receiver.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    for (file, quantities) in
        [(&sent_rows, &["window", "lost"][..]), (&received_rows, &["goodput", "useful"])]
    {
        let rows = std::fs::read_to_string(file).unwrap();
        assert!(rows.starts_with("t_ns,object,flow,quantity,value\n"), "{rows}");
        for quantity in quantities {
            assert!(rows.contains(&format!(",rival,0,{quantity},")), "{quantity}: {rows}");
        }
    }
    let rows = std::fs::read_to_string(&received_rows).unwrap();
    let last = rows.lines().rfind(|row| row.contains(",useful,")).unwrap().rsplit(',').next().unwrap();
    assert_eq!(last.parse::<f64>().unwrap(), sent["bytes"].as_f64().unwrap() / 1000.0);
}

#[test]
fn a_sender_that_waits_sends_nothing_before_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let (mut receiver, to) = receiver(folder.path(), &[]);
    let (mut child, mut out) = waiting_sender(&to);
    assert_eq!(json_line(&mut out), serde_json::json!({"type": "ready"}));
    const WAIT: Duration = Duration::from_secs(3);
    std::thread::sleep(WAIT);
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let sent = json_line(&mut out);
    assert!(child.wait().unwrap().success());
    assert_eq!(sent["bytes"], 1_000_000);
    assert!(sent["seconds"].as_f64().unwrap() < WAIT.as_secs_f64(), "the wait does not count: {sent}");
    assert_eq!(receiver.line(PATIENCE)["bytes"], 1_000_000);

    let (mut child, mut out) = waiting_sender(&to);
    json_line(&mut out);
    drop(child.stdin.take());
    let error = json_line(&mut out);
    assert!(error["error"]["message"].as_str().unwrap().contains("standard input ended"), "{error}");
    assert!(!child.wait().unwrap().success());
}

#[test]
fn an_interrupt_ends_both_ends_with_their_results() {
    let folder = tempfile::tempdir().unwrap();
    let (mut receiver, to) = receiver(folder.path(), &[]);
    let sender = send(folder.path(), &to, &["--for", "600s"]);
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&sender);
    let ended = sender.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let (sent, received) = (ended.last.unwrap(), receiver.line(PATIENCE));
    assert!(
        sent["bytes"].as_u64() > Some(1_000_000) && sent["bytes"] == received["bytes"],
        "{sent} {received}"
    );

    let _endless = send(folder.path(), &to, &["--for", "600s", "--name", "second"]);
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&receiver);
    let ended = receiver.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let received = ended.last.unwrap();
    assert_eq!((&received["name"], &received["complete"]), (&"second".into(), &false.into()), "{received}");
}

#[test]
fn what_the_kernel_lacks_is_a_usage_error_that_lists_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let ended =
        send(folder.path(), "127.0.0.1:9", &["--bytes", "1", "--congestion", "fastest"]).end(PATIENCE);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("'fastest'") && ended.log.contains("reno"), "{}", ended.log);
    let ended = send(folder.path(), "127.0.0.1:9", &[]).end(PATIENCE);
    assert!(ended.code == Some(2) && ended.log.contains("--bytes"), "{}", ended.log);
}
