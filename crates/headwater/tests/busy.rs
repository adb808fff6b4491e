//! A controller that is asked by many at once is slow, not gone: an asker goes on until it is answered.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::time::Duration;

use cluster::{Process, free_port, random_file, text, wait_until};

/// For all of them together, on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(300);
const RECEIVERS: usize = 64;

#[test]
fn sixty_four_gets_that_begin_together_all_complete() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (up, home) = (format!("127.0.0.1:{}", free_port()), text(&folder.join("home")));
    let mut daemon = Process::start(folder, "up", &["up", "--listen", &up, "--state", &home]);
    daemon.line(PATIENCE);
    let content = random_file(&folder.join("small.bin"), 300_000, 1);
    let put = ["put", &text(&folder.join("small.bin")), "--name", "small", "--state", &home];
    let ended = Process::start(folder, "put", &put).end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let asker = text(&folder.join("asker"));
    wait_until("it is listed", PATIENCE, || {
        let ls = ["ls", "--controller", &up, "--state", &asker];
        Process::start(folder, "ls", &ls).end(PATIENCE).last.is_some_and(|line| line["name"] == "small")
    });

    let names: Vec<String> = (0..RECEIVERS).map(|n| format!("get{n}")).collect();
    let started: Vec<Process> = names
        .iter()
        .map(|name| {
            let (out, state) = (text(&folder.join(format!("{name}.bin"))), text(&folder.join(name)));
            Process::start(
                folder,
                name,
                &["get", "small", "--controller", &up, "-o", &out, "--state", &state],
            )
        })
        .collect();
    let failed: Vec<String> = names
        .iter()
        .zip(started)
        .filter_map(|(name, process)| {
            let ended = process.end(PATIENCE);
            let arrived = std::fs::read(folder.join(format!("{name}.bin"))).is_ok_and(|it| it == content);
            (ended.code != Some(0) || !arrived).then(|| format!("{name}: {:?} {}", ended.code, ended.log))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {RECEIVERS} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Goal: a process that is there but does not come to it is waited for as long as the user says, and then named as
/// busy.
#[test]
fn a_listener_that_stands_still_is_waited_for_and_goes_on_where_it_stood() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("small.bin"), 300_000, 2);
    let state = text(&folder.join("source"));
    let serve = ["serve", &text(&folder.join("small.bin")), "--listen", "127.0.0.1:0", "--state", &state];
    let mut source = Process::start(folder, "source", &serve);
    let from = source.line(PATIENCE)["address"].as_str().unwrap().to_owned();
    let signal = |how: &str| {
        let id = source.id().to_string();
        assert!(std::process::Command::new("kill").args([how, &id]).status().unwrap().success());
    };
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    signal("-STOP");
    let get =
        Process::start(folder, "get", &["get", "small.bin", "--from", &from, "-o", &out, "--state", &state]);
    // Less than the patience with one that says nothing at all.
    std::thread::sleep(Duration::from_secs(2));
    signal("-CONT");
    let ended = get.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}
