//! `headwater emulate` and its subcommands, as processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::{DUMBBELL, alone, at, content, drain, udp};

fn headwater(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(["emulate", "--json"]).args(arguments);
    command
}

/// A network in a process of its own.
struct Running {
    process: Child,
    lines: BufReader<ChildStdout>,
    ready: Value,
}

impl Running {
    fn start(more: &[&str]) -> Running {
        let arguments = [&[DUMBBELL], more].concat();
        let mut process = headwater(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut running = Running { process, lines, ready: Value::Null };
        running.ready = running.line().expect("it says when it is ready");
        assert_eq!(running.ready["type"], "ready");
        running
    }

    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    fn run(&self) -> &str {
        self.ready["run"].as_str().unwrap()
    }

    fn namespace(&self, host: usize) -> &str {
        self.ready["hosts"][host]["namespace"].as_str().unwrap()
    }

    /// The answer of a subcommand, which must be a good one.
    fn ask(&self, arguments: &[&str]) -> String {
        let [verb, rest @ ..] = arguments else { panic!("a verb is needed") };
        let output = headwater(&[&[*verb, "--run", self.run()], rest].concat()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status"])).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned()).join("\n")
}

fn namespaces_of(run: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&format!("{run}-"))).collect()
}

fn gone(run: &str) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if namespaces_of(run).is_empty() {
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Goal: each fault does to a running network what it says, and can be taken back.
#[test]
fn faults_change_the_running_network() {
    let Some(_alone) = alone() else { return };
    let running = Running::start(&[]);
    let [near, far] = [0, 1].map(|host| udp(running.namespace(host), [10, 99, 0, host as u8 + 1].into()));
    let to = at([10, 99, 0, 2].into());
    // Ten datagrams: how many arrive, unchanged.
    let arrive = || {
        (0..10).for_each(|number| _ = near.send_to(&content(number, 500), to).unwrap());
        let got = drain(&far, Duration::from_millis(400));
        assert!(got.iter().all(|it| *it == content(u32::from_be_bytes(it[..4].try_into().unwrap()), 500)));
        got.len()
    };
    let after = |what: &str| {
        let words: Vec<&str> =
            std::iter::once("fault").chain(["left-right"]).chain(what.split(' ')).collect();
        running.ask(&words);
        arrive()
    };
    assert_eq!(arrive(), 10);
    for (what, wanted) in [
        ("loss 100%", 0),
        ("loss 0", 10),
        ("duplicate 100%", 20),
        ("duplicate 0", 10),
        ("drop-next 4", 6),
        ("down", 0),
        ("up", 10),
        ("reorder 100% 20ms", 10),
        ("reorder 0 0s", 10),
    ] {
        assert_eq!(after(what), wanted, "{what}");
    }
    // Ten frames of 542 bytes at 100 kbit/s: the last comes 434 ms after the first begins.
    let start = Instant::now();
    running.ask(&["fault", "left-right", "rate", "100kbit/s"]);
    assert_eq!(arrive(), 10);
    assert!(start.elapsed() >= Duration::from_millis(434 + 400), "{:?}", start.elapsed());

    let status = running.status();
    let link = |name: &str| {
        status["links"].as_array().unwrap().iter().find(|it| it["link"] == name).unwrap().clone()
    };
    let middle = link("left-right");
    // A switch sends nothing to a link that is down, so those ten have no route.
    let seen = [&middle["lost"], &middle["dropped"], &status["unroutable"], &status["duplicated"]];
    assert_eq!(seen.map(|it| it.as_u64().unwrap()), [14, 0, 10, 10]);
    assert_eq!(status["injected"], link("h0-left")["packets"]);
}

/// Goal: programs run on hosts, and what is not there is named.
#[test]
fn programs_run_on_hosts_and_mistakes_are_named() {
    let Some(_alone) = alone() else { return };
    let running = Running::start(&[]);
    assert!(running.ask(&["exec", "1", "--", "ip", "-br", "addr"]).contains("10.99.0.2/16"));
    assert!(running.ask(&["exec", "h0", "--", "ip", "-br", "addr"]).contains("10.99.0.1/16"));
    let run = ["--run", running.run()];
    let exit = |arguments: &[&str]| {
        let output = headwater(&[&arguments[..1], &run, &arguments[1..]].concat()).output().unwrap();
        (output.status.code(), text(&output))
    };
    assert_eq!(exit(&["exec", "0", "--", "sh", "-c", "exit 7"]).0, Some(7));
    for (arguments, code, said) in [
        (&["exec", "9", "--", "true"] as &[&str], 3, "no host '9'"),
        (&["fault", "left-middle", "down"], 1, "'h0-left'"),
        (&["fault", "left-right", "lose", "1%"], 2, "loss 1%"),
    ] {
        let (ended, text) = exit(arguments);
        assert_eq!(ended, Some(code), "{text}");
        assert!(text.contains(said), "{text}");
    }
    let absent = headwater(&["status", "--run", "hw-0-0"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(3), "{}", text(&absent));
    assert!(text(&absent).contains(running.run()), "{}", text(&absent));
}

/// Goal: it ends when told, or by itself, with the counts and without a trace.
#[test]
fn it_ends_by_itself_or_when_told_and_leaves_nothing() {
    let Some(_alone) = alone() else { return };
    let mut brief = Running::start(&["--for", "1500ms"]);
    let second = brief.line().unwrap();
    assert_eq!((&second["type"], second["links"].as_array().unwrap().len()), (&"second".into(), 6));
    let last = brief.line().unwrap();
    assert!(last["seconds"].as_f64().unwrap() >= 1.5 && last["lateness"]["limit_us"] == 121.0, "{last}");
    assert!(brief.process.wait().unwrap().success() && namespaces_of(brief.run()).is_empty());

    let mut told = Running::start(&[]);
    let pid = told.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(told.process.wait().unwrap().success() && namespaces_of(told.run()).is_empty());
    let socket = told.ready["control"].as_str().unwrap();
    assert!(!std::path::Path::new(socket).exists());
}

/// Goal: a maker that dies without a chance to clean up is cleaned up after.
#[test]
fn a_killed_network_leaves_no_namespace() {
    let Some(_alone) = alone() else { return };
    let mut running = Running::start(&[]);
    assert_eq!(namespaces_of(running.run()).len(), 3);
    running.process.kill().unwrap();
    running.process.wait().unwrap();
    assert!(gone(running.run()), "{:?}", namespaces_of(running.run()));
    let output = headwater(&["clean"]).output().unwrap();
    assert!(output.status.success() && !text(&output).contains(running.run()), "{}", text(&output));
}
