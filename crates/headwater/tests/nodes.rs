//! Identity of a node: it stays itself wherever it listens, is called what its operator says, is forgotten when it is
//! told, and says so when it joins what is no controller.
#![allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]

mod cluster;

use std::path::Path;
use std::time::{Duration, Instant};

use cluster::{Ended, Process, free_port, random_file, text, wait_until};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);

fn run(folder: &Path, args: &[&str]) -> Ended {
    Process::start(folder, "command", args).end(SOON)
}

fn status(folder: &Path, controller: &str) -> Value {
    let state = text(&folder.join("asking"));
    run(folder, &["status", "--controller", controller, "--state", &state]).last.unwrap_or_default()
}

fn nodes(status: &Value) -> Vec<(&str, &str, bool)> {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    nodes
        .map(|it| (it["name"].as_str().unwrap(), it["listen"].as_str().unwrap(), it["up"].as_bool().unwrap()))
        .collect()
}

fn controller(folder: &Path) -> (Process, String) {
    let at = format!("127.0.0.1:{}", free_port());
    let state = text(&folder.join("controller"));
    let mut controller =
        Process::start(folder, "controller", &["controller", "--listen", &at, "--state", &state]);
    controller.line(SOON);
    (controller, at)
}

fn node(folder: &Path, state: &str, controller: &str, listen: &str, more: &[&str]) -> (Process, String) {
    let state = text(&folder.join(state));
    let args = ["node", "--join", controller, "--listen", listen, "--state", &state];
    let mut node = Process::start(folder, "node", &[&args[..], more].concat());
    let ready = node.line(SOON);
    (node, ready["fingerprint"].as_str().unwrap().to_owned())
}

/// A node is started again with another address and another name: it is the same one, and listed once.
#[test]
fn a_node_that_listens_elsewhere_is_the_same_node() {
    let folder = tempfile::tempdir().unwrap();
    let (_controller, at) = controller(folder.path());
    let listens = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let (first, id) = node(folder.path(), "n", &at, &listens[0], &["--name", "red"]);
    wait_until("joining", SOON, || {
        nodes(&status(folder.path(), &at)) == [("red", listens[0].as_str(), true)]
    });
    first.interrupt();
    assert_eq!(first.end(SOON).code, Some(0));
    let (_second, again) = node(folder.path(), "n", &at, &listens[1], &["--node-name", "blue"]);
    assert_eq!(id, again);
    wait_until("joining again", SOON, || {
        nodes(&status(folder.path(), &at)) == [("blue", listens[1].as_str(), true)]
    });
}

/// A machine that is gone is dropped from `status` on demand, with objects that only it held; not while it is
/// connected.
#[test]
fn a_node_that_is_away_is_forgotten_when_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let (_controller, at) = controller(folder.path());
    let asking = text(&folder.path().join("asking"));
    let forget = |what: &str| run(folder.path(), &["forget", what, "--controller", &at, "--state", &asking]);
    let listen = format!("127.0.0.1:{}", free_port());
    let (old, id) = node(folder.path(), "n", &at, &listen, &["--name", "old"]);
    random_file(&folder.path().join("object.bin"), 100_000, 1);
    let (object, state) = (text(&folder.path().join("object.bin")), text(&folder.path().join("n")));
    assert_eq!(run(folder.path(), &["put", &object, "--state", &state]).code, Some(0));
    wait_until("offering", SOON, || {
        status(folder.path(), &at)["objects"].as_array().is_some_and(|it| it.len() == 1)
    });

    let refused = forget("old");
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(refused.log.contains("is connected: stop"), "{}", refused.log);
    old.interrupt();
    assert_eq!(old.end(SOON).code, Some(0));
    wait_until("leaving", SOON, || nodes(&status(folder.path(), &at)) == [("old", listen.as_str(), false)]);
    assert_eq!(forget("new").code, Some(3));
    let forgotten = forget(&id[..8]);
    assert_eq!(forgotten.last.unwrap()["id"], id.as_str(), "{}", forgotten.log);
    let left = status(folder.path(), &at);
    assert_eq!((nodes(&left).len(), &left["objects"]), (0, &serde_json::json!([])));

    // It may come back all the same.
    let (_back, again) = node(folder.path(), "n", &at, &listen, &["--name", "old"]);
    assert_eq!(id, again);
    wait_until("coming back", SOON, || {
        status(folder.path(), &at)["objects"].as_array().is_some_and(|it| it.len() == 1)
    });
}

/// Somebody takes a source, or a node, for a controller: within seconds they are told what it is, and what to do.
#[test]
fn joining_what_is_no_controller_says_so() {
    let folder = tempfile::tempdir().unwrap();
    random_file(&folder.path().join("object.bin"), 100_000, 1);
    let object = text(&folder.path().join("object.bin"));
    let serving = format!("127.0.0.1:{}", free_port());
    let (source, asking) = (text(&folder.path().join("s")), text(&folder.path().join("asking")));
    let mut serve =
        Process::start(folder.path(), "serve", &["serve", &object, "--listen", &serving, "--state", &source]);
    serve.line(SOON);

    let begun = Instant::now();
    let at = ["--controller", &serving, "--state", &asking];
    for (command, hint) in [
        (vec!["status"], "give --controller the address where"),
        (vec!["get", "object.bin"], "--from"),
        (vec!["cast", "object.bin", "--all"], "give --controller the address where"),
    ] {
        let ended = run(folder.path(), &[&command[..], &at].concat());
        assert_eq!(ended.code, Some(4), "{command:?} {}", ended.log);
        assert!(ended.log.contains("a source (`headwater serve`), and no controller"), "{}", ended.log);
        assert!(ended.log.contains(hint), "{}", ended.log);
    }
    assert!(begun.elapsed() < SOON, "nobody waits for an answer that does not come");

    let (_node, _) = node(folder.path(), "n", &serving, "127.0.0.1:0", &[]);
    let log = || std::fs::read_to_string(folder.path().join("node.log")).unwrap();
    wait_until("being told", SOON, || log().contains("start one with `headwater up`"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(log().matches("no controller").count(), 1, "said once: {}", log());

    // A node knows where its controller is.
    let (_controller, right) = controller(folder.path());
    let listen = format!("127.0.0.1:{}", free_port());
    let _joined = node(folder.path(), "m", &right, &listen, &[]);
    let ended = run(folder.path(), &["status", "--controller", &listen, "--state", &asking]);
    assert!(ended.log.contains(&format!("its own is at {right}")), "{}", ended.log);
}
