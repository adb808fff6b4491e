//! Daemons as their operators meet them: logs, health, metrics, signals, the service manager. The real binary on
//! loopback.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cluster::{Ended, Process, free_port, random_file, text, wait_until};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn address() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn run(folder: &Path, args: &[&str]) -> Ended {
    Process::start(folder, args[0], args).end(PATIENCE)
}

fn signal(process: &Process, name: &str) {
    let kill = format!("kill -{name} {}", process.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// Status and body of an HTTP answer; nothing while nobody listens.
fn ask(at: &str, path: &str, accept: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nAccept: {accept}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

fn status(at: &str, path: &str) -> Option<u16> {
    ask(at, path, "*/*").map(|(status, _)| status)
}

/// The lines of a JSON log.
fn log(folder: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn said<'a>(log: &'a [Value], message: &str) -> Vec<&'a Value> {
    log.iter().filter(|line| line["message"] == message).collect()
}

/// Waits until a line was logged.
fn heard(folder: &Path, name: &str, message: &str) -> Value {
    wait_until(message, PATIENCE, || !said(&log(folder, name), message).is_empty());
    said(&log(folder, name), message)[0].clone()
}

fn serve(folder: &Path, file: &str, more: &[&str]) -> (Process, String) {
    let (file, state) = (text(&folder.join(file)), text(&folder.join("source")));
    let args = [&["serve", &file, "--listen", "127.0.0.1:0", "--state", &state], more].concat();
    let mut process = Process::start(folder, "source", &args);
    let from = process.line(PATIENCE)["address"].as_str().unwrap().to_owned();
    (process, from)
}

fn get(folder: &Path, from: &str) -> Process {
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let args = ["get", "a.bin", "--from", from, "-o", &out, "--state", &state, "--progress", "json"];
    Process::start(folder, "get", &args)
}

#[test]
fn the_only_source_that_is_terminated_finishes_what_it_sends_and_then_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("a.bin"), 4_000_000, 1);
    let page = address();
    // It takes four seconds: the signal comes in the middle.
    let flags = ["--limit", "8Mbit/s", "--metrics", &page, "--log-format", "json"];
    let (mut source, from) = serve(folder, "a.bin", &flags);
    assert_eq!((status(&page, "/healthz"), status(&page, "/readyz")), (Some(200), Some(200)));
    let mut receiver = get(folder, &from);
    wait_until("some of it", PATIENCE, || receiver.bytes_done() > 0);
    signal(&source, "TERM");
    heard(folder, "source", "draining");
    assert!(receiver.is_running() && source.is_running());
    let (code, reasons) = ask(&page, "/readyz", "*/*").unwrap();
    assert!(code == 503 && reasons.contains("draining"), "{code} {reasons}");
    assert_eq!(status(&page, "/healthz"), Some(200), "it works");
    let ended = receiver.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
    let ended = source.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(said(&log(folder, "source"), "drained").len(), 1, "{}", ended.log);
}

#[test]
fn a_source_that_is_terminated_hands_over_to_another_and_a_hangup_lifts_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("a.bin"), 40_000_000, 8);
    let (at, home) = (address(), text(&folder.join("home")));
    let mut controller =
        Process::start(folder, "controller", &["controller", "--listen", &at, "--state", &home]);
    controller.line(PATIENCE);
    let file = text(&folder.join("a.bin"));
    let mut sources: Vec<Process> = ["one", "two"]
        .into_iter()
        .map(|name| {
            let (config, state) = (folder.join(format!("{name}.toml")), text(&folder.join(name)));
            std::fs::write(&config, "limit = '8Mbit/s'\nlog-format = 'json'\n").unwrap();
            let listen = address();
            let args = ["serve", &file, "--listen", &listen, "--state", &state, "--controller", &at];
            let config = text(&config);
            let mut source = Process::start(folder, name, &[&args[..], &["--config", &config]].concat());
            source.line(PATIENCE);
            source
        })
        .collect();
    let asker = text(&folder.join("asker"));
    wait_until("both are known", PATIENCE, || {
        let listed = run(folder, &["ls", "--controller", &at, "--state", &asker]).last.unwrap_or_default();
        listed["holders"].as_array().is_some_and(|holders| holders.len() == 2)
    });
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let args = ["get", "a.bin", "--controller", &at, "-o", &out, "--state", &state, "--progress", "json"];
    let mut receiver = Process::start(folder, "get", &args);
    for name in ["one", "two"] {
        heard(folder, name, "sending");
    }
    wait_until("some of it", PATIENCE, || receiver.bytes_done() > 0);
    let first = sources.remove(0);
    signal(&first, "TERM");
    // The rest would take both of them some 20 seconds.
    let ended = first.end(PATIENCE);
    assert_eq!((ended.code, receiver.is_running()), (Some(0), true), "{}", ended.log);
    assert_eq!(said(&log(folder, "one"), "not all were served within the time to drain").len(), 0);
    std::fs::write(folder.join("two.toml"), "log-format = 'json'\n").unwrap();
    signal(&sources[0], "HUP");
    heard(folder, "two", "setting changed");
    let ended = receiver.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(&out).unwrap(), content);
}

#[test]
fn a_second_signal_ends_a_source_at_once_and_without_a_drain_the_first_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("a.bin"), 8_000_000, 2);
    // Half a minute and more.
    for (drain, second, code) in [("10min", true, Some(130)), ("0", false, Some(0))] {
        let (source, from) =
            serve(folder, "a.bin", &["--limit", "2Mbit/s", "--drain", drain, "--log-format", "json"]);
        let mut receiver = get(folder, &from);
        wait_until("some of it", PATIENCE, || receiver.bytes_done() > 0);
        signal(&source, "TERM");
        if second {
            heard(folder, "source", "draining");
            signal(&source, "TERM");
        }
        let ended = source.end(PATIENCE);
        assert_eq!(ended.code, code, "--drain {drain}: {}", ended.log);
        receiver.kill();
    }
}

#[test]
fn a_controller_that_is_away_is_reported_once_per_cause_and_once_when_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (at, page, state) = (address(), address(), text(&folder.join("node")));
    let listen = address();
    let args = [
        "node",
        "--join",
        &at,
        "--listen",
        &listen,
        "--state",
        &state,
        "--metrics",
        &page,
        "--log-format",
        "json",
    ];
    let args = [&args[..], &["--log-level", "debug"]].concat();
    let mut node = Process::start(folder, "node", &args);
    node.line(PATIENCE);
    let away = "the controller cannot be reached; it is tried again until it answers";
    let line = heard(folder, "node", away);
    assert!(line["next_try_s"].as_f64().is_some_and(|next| next > 0.0), "{line}");
    assert_eq!(
        (&line["controller"], &line["level"]),
        (&Value::from(at.clone()), &Value::from("WARN")),
        "{line}"
    );
    let (code, reasons) = ask(&page, "/readyz", "*/*").unwrap();
    assert!(code == 503 && reasons.contains("not joined") && reasons.contains(&at), "{code} {reasons}");
    let (_, json) = ask(&page, "/readyz", "application/json").unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["ready"], json["reasons"].as_array().map(Vec::len)), (&Value::Bool(false), Some(1)));
    assert_eq!(status(&page, "/healthz"), Some(200), "a restart would not help");

    // The same once more is logged only at the level of those who want to know everything.
    heard(folder, "node", "not connected");
    let home = text(&folder.join("home"));
    let controller = ["controller", "--listen", &at, "--state", &home, "--log-format", "json"];
    let mut process = Process::start(folder, "controller", &controller);
    process.line(PATIENCE);
    wait_until("it is ready", PATIENCE, || status(&page, "/readyz") == Some(200));
    heard(folder, "node", "the controller is back");
    let joined = heard(folder, "controller", "node joined");
    assert_eq!(joined["address"], listen.as_str(), "{joined}");
    let log_of_node = log(folder, "node");
    let causes: Vec<&Value> = said(&log_of_node, away).into_iter().map(|line| &line["cause"]).collect();
    let distinct: BTreeSet<String> = causes.iter().map(|cause| cause.to_string()).collect();
    assert_eq!(causes.len(), distinct.len(), "each cause once: {causes:?}");

    // Its store is there no more.
    std::fs::rename(folder.join("node/store/tmp"), folder.join("node/store/elsewhere")).unwrap();
    let (code, reasons) = ask(&page, "/readyz", "*/*").unwrap();
    assert!(code == 503 && reasons.contains("store cannot be written"), "{code} {reasons}");
    std::fs::rename(folder.join("node/store/elsewhere"), folder.join("node/store/tmp")).unwrap();
    assert_eq!(status(&page, "/readyz"), Some(200));
    signal(&node, "TERM");
    assert_eq!(node.end(PATIENCE).code, Some(0));
    let left = heard(folder, "controller", "node left");
    assert!(left["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{left}");
}

/// A sample of a metrics page: its family, its labels, its value.
fn samples(page: &str) -> Vec<(String, BTreeMap<String, String>, f64)> {
    let lines = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        let pairs = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap();
            (key.to_owned(), value.trim_matches('"').to_owned())
        };
        (name.to_owned(), pairs.map(pair).collect(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

#[test]
fn a_cluster_logs_what_happens_and_its_metrics_are_described_and_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("v1.bin"), 600_000, 3);
    random_file(&folder.join("v2.bin"), 700_000, 4);
    let (up, home, page) = (address(), text(&folder.join("home")), address());
    let more = ["--quota", "64MiB", "--metrics", &page, "--log-format", "json"];
    let mut first =
        Process::start(folder, "up", &[&["up", "--listen", &up, "--state", &home], &more[..]].concat());
    first.line(PATIENCE);
    let (listen, away, other_page) = (address(), text(&folder.join("away")), address());
    let args = ["node", "--join", &up, "--listen", &listen, "--state", &away];
    let more = ["--metrics", &other_page, "--log-format", "json"];
    let mut node = Process::start(folder, "node", &[&args[..], &more[..]].concat());
    node.line(PATIENCE);
    wait_until("it is ready", PATIENCE, || status(&other_page, "/readyz") == Some(200));
    for version in ["v1.bin", "v2.bin"] {
        let file = text(&folder.join(version));
        let ended = run(folder, &["put", &file, "--name", "prod", "--state", &home]);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
    }
    let got = run(folder, &["get", "prod", "--keep", "--state", &away]);
    assert_eq!(got.code, Some(0), "{}", got.log);
    let object = got.last.unwrap()["object"].as_str().unwrap().to_owned();
    assert_ne!(run(folder, &["get", "nothing", "--keep", "--state", &away]).code, Some(0));
    let ended = run(folder, &["cast", "prod", "--all", "--state", &home]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);

    let done = heard(folder, "up", "task done");
    assert_eq!(
        (&done["object"], &done["bytes"]),
        (&Value::from(object.clone()), &Value::from(700_000)),
        "{done}"
    );
    assert!(done["seconds"].as_f64().unwrap() > 0.0 && done["mbit_per_s"].as_f64().unwrap() > 0.0, "{done}");
    assert_eq!((&done["sources"], &done["name"]), (&Value::from(1), &Value::from("prod")), "{done}");
    assert!(done["task"].is_string(), "an id is a string: {done}");
    let of_controller = log(folder, "up");
    for message in ["node joined", "task begun", "object put", "name given", "cast begun", "cast over"] {
        assert!(!said(&of_controller, message).is_empty(), "{message}: {of_controller:#?}");
    }
    let kept = heard(folder, "node", "fetch done");
    assert_eq!((&kept["object"], &kept["sources"]), (&Value::from(object), &Value::from(1)), "{kept}");
    heard(folder, "node", "fetch failed");
    heard(folder, "node", "joined the controller");

    let (pages, labels) = ([&page, &other_page], ["version", "role", "reason", "outcome", "via", "state"]);
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for at in pages {
        let (code, text) = ask(at, "/metrics", "*/*").unwrap();
        assert_eq!(code, 200);
        for (family, pairs, _) in samples(&text) {
            assert!(text.contains(&format!("# HELP {family} ")), "no HELP for {family}: {text}");
            assert!(text.contains(&format!("# TYPE {family} ")), "no TYPE for {family}: {text}");
            for (label, value) in pairs {
                assert!(labels.contains(&label.as_str()), "{family} has a label '{label}'");
                assert!(
                    value.len() <= 12
                        && value.chars().all(|c| c.is_ascii_lowercase() || c == '_' || label == "version"),
                    "{family}: '{value}' is no word"
                );
                values.entry(label).or_default().insert(value);
            }
        }
    }
    // The page of operations lists exactly what there is.
    let of_docs =
        include_str!("../../../docs/operations.md").split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let of_docs: BTreeSet<&str> = of_docs.filter(|word| word.starts_with("headwater_")).collect();
    let up_page = ask(&page, "/metrics", "*/*").unwrap().1;
    let all = samples(&up_page);
    assert_eq!(of_docs, all.iter().map(|(family, ..)| family.as_str()).collect::<BTreeSet<_>>());
    assert!(values["reason"].len() <= 16 && values["role"].len() == 2, "{values:?}");
    let value = |at: &str, name: &str, label: &str| {
        let all = samples(&ask(at, "/metrics", "*/*").unwrap().1);
        let found = all.iter().find(|(family, pairs, _)| {
            family == name && (label.is_empty() || pairs.values().any(|v| v == label))
        });
        found.unwrap_or_else(|| panic!("no {name} {label}")).2
    };
    assert_eq!(value(&page, "headwater_build_info", env!("CARGO_PKG_VERSION")), 1.0);
    assert_eq!(value(&page, "headwater_store_quota_bytes", ""), f64::from(64 << 20));
    assert_eq!(value(&page, "headwater_store_bytes", ""), 1_300_000.0);
    assert_eq!(value(&page, "headwater_puts_total", ""), 2.0);
    assert!(value(&page, "headwater_delivered_bytes_total", "") >= 700_000.0);
    assert!(value(&page, "headwater_tasks_ended_total", "done") >= 1.0);
    assert_eq!(value(&page, "headwater_casts_begun_total", ""), 1.0);
    assert!(value(&page, "headwater_symbols_sent_total", "") > 50.0, "of flows that have ended too");
    assert!(value(&page, "headwater_uptime_seconds", "") > 0.0);
    assert!(value(&other_page, "headwater_gets_total", "") >= 1.0);
    assert_eq!(value(&other_page, "headwater_kept_bytes_total", ""), 700_000.0);
    assert_eq!(value(&other_page, "headwater_gets_failed_total", "not_found"), 1.0);
}

#[test]
fn a_hangup_takes_over_what_can_change_and_a_broken_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("a.bin"), 500_000, 5);
    let config = folder.join("config.toml");
    let (up, home, asker) = (address(), text(&folder.join("home")), text(&folder.join("asker")));
    std::fs::write(&config, "quota = '100KiB'\n").unwrap();
    let args = ["up", "--listen", &up, "--state", &home, "--log-format", "json", "--config", &text(&config)]
        .map(str::to_owned);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut daemon = Process::start(folder, "up", &args);
    daemon.line(PATIENCE);
    let put = || run(folder, &["put", &text(&folder.join("a.bin")), "--name", "a", "--state", &home]);
    assert_eq!(put().code, Some(6), "over the quota");

    std::fs::write(&config, "quota = = nonsense\n").unwrap();
    signal(&daemon, "HUP");
    let refused = heard(folder, "up", "settings were not read anew; those in force stay");
    assert!(refused["error"].as_str().unwrap().contains("config.toml"), "{refused}");
    assert_eq!(put().code, Some(6), "the old quota stays");

    std::fs::write(&config, "quota = '64MiB'\nlabel = 'zone=eu'\nlog-level = 'debug'\nuplink = '1Gbit/s'\n")
        .unwrap();
    signal(&daemon, "HUP");
    heard(folder, "up", "settings read anew");
    let ended = put();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let log = log(folder, "up");
    let settings = |message: &str| -> BTreeSet<String> {
        said(&log, message).into_iter().map(|line| line["setting"].as_str().unwrap().to_owned()).collect()
    };
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(settings("setting changed"), of(&["quota", "label", "log-level"]));
    assert_eq!(settings("setting changed in the file: it takes a restart of this process"), of(&["uplink"]));
    wait_until("the label is known", PATIENCE, || {
        let status = run(folder, &["status", "--controller", &up, "--state", &asker]);
        status.last.is_some_and(|it| it["nodes"][0]["labels"]["zone"] == "eu")
    });
    assert!(daemon.is_running());
}

/// Next message to a service manager with this beginning.
fn notified(socket: &UnixDatagram, beginning: &str) -> String {
    let limit = Instant::now() + PATIENCE;
    let mut buffer = [0; 4096];
    loop {
        assert!(Instant::now() < limit, "{beginning} was never said");
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if text.starts_with(beginning) {
            return text;
        }
    }
}

#[test]
fn the_service_manager_hears_when_a_daemon_serves_reloads_lives_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let (at, home) = (address(), text(&folder.join("home")));
    let args = ["up", "--listen", &at, "--state", &home];
    let path = text(&path);
    let variables = [("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", "600000")];
    let mut daemon = Process::start_with(folder, "up", &args, &variables);
    notified(&socket, "READY=1");
    daemon.line(PATIENCE);
    notified(&socket, "WATCHDOG=1");
    signal(&daemon, "HUP");
    let reloading = notified(&socket, "RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    notified(&socket, "READY=1");
    signal(&daemon, "TERM");
    notified(&socket, "STOPPING=1");
    assert_eq!(daemon.end(PATIENCE).code, Some(0));
}

#[test]
fn commands_log_warnings_only_and_the_log_can_be_text_or_json() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("a.bin"), 300_000, 6);
    let (_source, from) = serve(folder, "a.bin", &[]);
    let ended = get(folder, &from).end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(!ended.log.contains("INFO"), "{}", ended.log);
    let at = address();
    for (variables, format, there) in
        [(&[][..], "text", true), (&[], "json", true), (&[("RUST_LOG", "error")], "json", false)]
    {
        let (name, home) = (format!("{format}-{there}"), text(&folder.join("home")));
        let args = ["controller", "--listen", &at, "--state", &home, "--log-format", format];
        let mut controller = Process::start_with(folder, &name, &args, variables);
        controller.line(PATIENCE);
        let node = ["node", "--join", &at, "--listen", "127.0.0.1:0", "--state", &text(&folder.join("n"))]
            .map(str::to_owned);
        let node: Vec<&str> = node.iter().map(String::as_str).collect();
        let mut process = Process::start(folder, "node", &node);
        process.line(PATIENCE);
        let asker = text(&folder.join("asker"));
        wait_until("it is known", PATIENCE, || {
            let status = run(folder, &["status", "--controller", &at, "--state", &asker]);
            status.last.is_some_and(|it| it["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()))
        });
        let text = std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap();
        assert_eq!(text.contains("node joined"), there, "{name}: {text}");
        if there {
            let line = text.lines().find(|line| line.contains("node joined")).unwrap();
            assert_eq!(serde_json::from_str::<Value>(line).is_ok(), format == "json", "{line}");
        }
    }
}
