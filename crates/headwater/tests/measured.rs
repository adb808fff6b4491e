//! Transfers that can be set up and measured by an experiment: timelines, starts on a line, constants of a paper, and
//! equal parts without a pool. Real processes, on loopback or in namespaces.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use cluster::{Ended, Process, free_port, random_file, text, wait_until};
use headwater_testbed::netns::{Capability, HostSpec, Link, Net, Spec};
use headwater_units::BitRate;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

// ---- timelines -----------------------------------------------------------------------------------------------------

/// One row of a timeline.
#[derive(Clone, Debug)]
struct Row {
    t_ns: u64,
    object: String,
    flow: u64,
    quantity: String,
    value: f64,
}

/// Reads a timeline that nobody writes any more, which must consist of whole lines in order of time.
fn timeline(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'), "the last line is whole");
    rows_of(&text)
}

/// Reads the whole lines of a timeline that is being written: a reader may see the file before its header, and a
/// writer's call in parts.
fn timeline_so_far(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.rfind('\n').map_or_else(Vec::new, |end| rows_of(&text[..=end]))
}

fn rows_of(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("t_ns,object,flow,quantity,value"));
    let read = |line: &str| {
        let [t_ns, object, flow, quantity, value] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("not five columns: {line}")
        };
        Row {
            t_ns: t_ns.parse().unwrap(),
            object: object.to_owned(),
            flow: flow.parse().unwrap(),
            quantity: quantity.to_owned(),
            value: value.parse().unwrap(),
        }
    };
    let rows: Vec<Row> = lines.map(read).collect();
    assert!(rows.is_sorted_by_key(|row| row.t_ns), "rows ascend in time");
    rows
}

/// The values of one quantity by flow, in order.
fn series(rows: &[Row], quantity: &str) -> BTreeMap<u64, Vec<f64>> {
    let mut series: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.quantity == quantity) {
        series.entry(row.flow).or_default().push(row.value);
    }
    series
}

/// Checks that each rate of a flow is what its count grew by, over the time between two samples.
///
/// A sample is taken less than an interval after the multiple that it bears, however busy the machine is: so the time between two
/// samples differs by less than an interval from that between their multiples.
fn rates_match_counts(rows: &[Row], flow: u64, rate: &str, count: &str, every: u64) {
    let of = |quantity: &str| -> Vec<(u64, f64)> {
        let inner = rows.iter().filter(|row| row.flow == flow && row.t_ns.is_multiple_of(every));
        inner.filter(|row| row.quantity == quantity).map(|row| (row.t_ns, row.value)).collect()
    };
    let (rates, counts) = (of(rate), of(count));
    assert_eq!(rates.len(), counts.len(), "a {rate} with each {count}");
    for (index, &(t_ns, value)) in rates.iter().enumerate().skip(1) {
        let (before, grown) = (counts[index - 1].0, counts[index].1 - counts[index - 1].1);
        assert_eq!(value > 0.0, grown > 0.0, "{rate} {value}, {count} grew by {grown}");
        let (seconds, every) = ((t_ns - before) as f64 / 1e9, every as f64 / 1e9);
        if grown > 0.0 {
            assert!((grown / value - seconds).abs() < every * 1.001, "{grown} at {value} in {seconds} s");
        }
    }
}

fn last(values: &[f64]) -> f64 {
    *values.last().expect("there are values")
}

fn sum_of(result: &Value, of_sources: &str) -> u64 {
    let sources = result["sources"].as_array().unwrap();
    sources.iter().map(|source| source[of_sources].as_u64().unwrap()).sum()
}

fn serve(folder: &Path, file: &Path, name: &str, flags: &[&str]) -> (Process, String) {
    let (file, state) = (text(file), text(&folder.join(name)));
    let args = [&["serve", &file, "--listen", "127.0.0.1:0", "--state", &state], flags].concat();
    let mut source = Process::start(folder, name, &args);
    let address = source.line(PATIENCE)["address"].as_str().unwrap().to_owned();
    (source, address)
}

fn get(folder: &Path, name: &str, flags: &[&str]) -> Ended {
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let args = [&["get", name, "-o", &out, "--state", &state, "--force"], flags].concat();
    Process::start(folder, "receiver", &args).end(PATIENCE)
}

/// Goal: both ends of two flows leave plausible series whose totals are those of the result, on one clock.
#[test]
fn timelines_of_both_ends_agree_with_the_result() {
    const EVERY: u64 = 5_000_000;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("object.bin"), 5 << 20, 1);
    let (mut sources, mut addresses) = (Vec::new(), Vec::new());
    for name in ["source0", "source1"] {
        let path = text(&folder.join(format!("{name}.csv")));
        let flags = ["--timeline", &path, "--timeline-every", "5ms", "--limit", "40Mbit/s"];
        let (source, address) = serve(folder, &folder.join("object.bin"), name, &flags);
        sources.push(source);
        addresses.push(address);
    }
    let path = text(&folder.join("receiver.csv"));
    let from = addresses.join(",");
    let flags = ["--from", &from, "--timeline", &path, "--timeline-every", "5ms"];
    let ended = get(folder, "object.bin", &flags);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let result = ended.last.unwrap();
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
    let ns = |key: &str| result[key].as_u64().unwrap();
    assert!(ns("start_ns") < ns("received_ns") && ns("received_ns") <= ns("finish_ns"), "{result}");
    let seconds = (ns("finish_ns") - ns("start_ns")) as f64 / 1e9;
    assert!(seconds <= result["seconds"].as_f64().unwrap(), "{result}");

    let received = timeline(Path::new(&path));
    let useful = series(&received, "useful");
    assert_eq!(useful.len(), 2, "one series per flow");
    let total: f64 = useful.values().map(|values| last(values)).sum();
    assert_eq!(total, sum_of(&result, "symbols") as f64, "{result}");
    for (flow, values) in &useful {
        assert!(values.is_sorted(), "a count only grows");
        println!("flow {flow}: {} samples, {} useful", values.len(), last(values));
        rates_match_counts(&received, *flow, "goodput", "useful", EVERY);
        assert!(
            values.len() > 3,
            "half a second has a hundred intervals, of which a busy machine misses some"
        );
    }
    // Whole multiples but for the end, which is when the receiver had everything.
    let (inner, end): (Vec<&Row>, Vec<&Row>) = received.iter().partition(|row| row.t_ns % EVERY == 0);
    assert!(!inner.is_empty());
    assert!(end.iter().any(|row| row.t_ns == ns("received_ns")), "{end:?}");
    assert!(received.iter().all(|row| row.t_ns + EVERY > ns("start_ns") && row.t_ns <= ns("received_ns")));

    for (index, mut source) in sources.into_iter().enumerate() {
        let path = folder.join(format!("source{index}.csv"));
        let ended = |rows: &[Row]| rows.iter().any(|row| row.t_ns % EVERY != 0);
        wait_until("the end of a flow", PATIENCE, || ended(&timeline_so_far(&path)));
        source.interrupt();
        wait_until("its last line", PATIENCE, || !source.is_running());
        let rows = timeline(&path);
        assert!(rows.iter().all(|row| result["object"] == row.object.as_str()));
        let (flow, sent) = series(&rows, "sent").pop_first().unwrap();
        assert!(last(&sent) >= last(&useful[&flow]), "what came was sent");
        let lost = last(&series(&rows, "lost")[&flow]);
        assert!(last(&sent) - lost <= total, "and little else was: {sent:?}");
        for (quantity, least, most) in [
            ("window", 1.0, 1e6),
            ("rtt", 1e-6, 60.0),
            ("mark_fraction", 0.0, 1.0),
            ("theta", 0.5, 1e4),
            ("in_flight", 0.0, 1e5),
            ("rate", 0.0, f64::MAX),
            ("marked", 0.0, last(&sent)),
            ("timeouts", 0.0, 100.0),
        ] {
            let values = &series(&rows, quantity)[&flow];
            assert!(values.iter().all(|v| (least..=most).contains(v)), "{quantity}: {values:?}");
        }
        rates_match_counts(&rows, flow, "rate", "sent", EVERY);
    }
}

#[test]
fn a_source_that_is_stopped_mid_flow_leaves_its_last_counts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("object.bin"), 8 << 20, 2);
    let path = text(&folder.join("source.csv"));
    let flags = ["--timeline", &path, "--limit", "4Mbit/s", "--drain", "0"];
    let (mut source, from) = serve(folder, &folder.join("object.bin"), "source", &flags);
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let receiver_csv = text(&folder.join("receiver.csv"));
    let args = ["get", "object.bin", "--from", &from, "-o", &out, "--state", &state];
    let mut get = Process::start(folder, "receiver", &[&args[..], &["--timeline", &receiver_csv]].concat());
    wait_until("some of it", PATIENCE, || {
        series(&timeline_so_far(Path::new(&path)), "sent").values().any(|values| values.len() > 20)
    });
    // A killed receiver leaves whole lines.
    get.kill();
    assert!(!timeline(Path::new(&receiver_csv)).is_empty());
    source.interrupt();
    wait_until("the end", PATIENCE, || !source.is_running());
    let rows = timeline(Path::new(&path));
    let end = rows.last().unwrap().t_ns;
    assert_ne!(end % 10_000_000, 0, "the last rows are of the end");
    let last_sent = rows.iter().find(|row| row.t_ns == end && row.quantity == "sent");
    assert!(last_sent.is_some_and(|row| row.value > 0.0), "{:?}", rows.last());
}

#[test]
fn a_timeline_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let from = format!("127.0.0.1:{}", free_port());
    let ended = get(folder, "object.bin", &["--from", &from, "--timeline", "/nonexistent/t.csv"]);
    assert_eq!(ended.code, Some(1), "{}", ended.log);
    let message = ended.last.unwrap()["error"]["message"].to_string();
    assert!(message.contains("/nonexistent/t.csv"), "{message}");
    let ended = get(folder, "object.bin", &["--from", &from, "--timeline", "t", "--timeline-every", "0"]);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
}

// ---- starts on a line ----------------------------------------------------------------------------------------------

fn waiting_get(folder: &Path, from: &str, flags: &[&str]) -> Process {
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let args = ["get", "object.bin", "--from", from, "-o", &out, "--state", &state, "--wait-for-start"];
    let mut get = Process::start_listening(folder, "receiver", &[&args[..], flags].concat());
    let line = get.line(PATIENCE);
    assert_eq!(line["type"], "ready", "{line}");
    get
}

#[test]
fn a_get_that_waits_for_its_start_counts_from_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("object.bin"), 1 << 20, 3);
    let (_source, from) = serve(folder, &folder.join("object.bin"), "source", &[]);
    const WAIT: Duration = Duration::from_secs(4);
    // The wait is longer than the time that the fetch may take.
    let mut get = waiting_get(folder, &from, &["--timeout", "3500ms"]);
    std::thread::sleep(WAIT);
    assert!(get.is_running() && !folder.join("out.bin").exists(), "nothing is asked for before the line");
    let told = monotonic();
    get.say("go");
    let ended = get.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
    let result = ended.last.unwrap();
    assert!(result["start_ns"].as_u64().unwrap() >= told, "{result}");
    assert!(result["seconds"].as_f64().unwrap() < WAIT.as_secs_f64(), "the wait does not count: {result}");
}

#[test]
fn a_get_whose_input_ends_or_that_is_interrupted_never_starts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    random_file(&folder.join("object.bin"), 100_000, 4);
    let (_source, from) = serve(folder, &folder.join("object.bin"), "source", &[]);
    let mut get = waiting_get(folder, &from, &[]);
    get.say_no_more();
    let ended = get.end(PATIENCE);
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.contains("standard input ended"), "{}", ended.log);

    let get = waiting_get(folder, &from, &[]);
    get.interrupt();
    let ended = get.end(Duration::from_secs(5));
    assert_eq!(ended.code, Some(130), "{}", ended.log);
    assert!(!folder.join("out.bin").exists());
}

fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

// ---- constants of a paper ------------------------------------------------------------------------------------------

/// Goal: the controller weighs by the ceiling it was told, and a window starts where the source was told.
#[test]
fn processes_run_the_constants_they_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("object.bin"), 3 << 20, 5);
    let tuning = folder.join("tuning.toml");
    std::fs::write(&tuning, "initial_window = 33.0\ntheta_ceiling = 7.0\nmin_rto = '200 ms'").unwrap();
    let tuning = text(&tuning);
    let state = text(&folder.join("controller"));
    let args = ["controller", "--listen", "127.0.0.1:0", "--state", &state, "--tuning", &tuning];
    let mut controller = Process::start(folder, "controller", &args);
    let address = controller.line(PATIENCE)["address"].as_str().unwrap().to_owned();
    let path = text(&folder.join("source.csv"));
    // So slow that the window is never filled and hardly grows.
    let limit =
        ["--limit", "20Mbit/s", "--controller", &address, "--timeline", &path, "--timeline-every", "1ms"];
    let flags = [&limit[..], &["--tuning", &tuning]].concat();
    let (_source, _) = serve(folder, &folder.join("object.bin"), "source", &flags);
    wait_until("the controller's knowing the object", PATIENCE, || {
        let state = text(&folder.join("asker"));
        let args = ["ls", "--controller", &address, "--state", &state];
        Process::start(folder, "ls", &args).end(PATIENCE).last.is_some()
    });
    let ended = get(folder, "object.bin", &["--controller", &address, "--tuning", &tuning]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
    let rows = timeline(Path::new(&path));
    let (theta, window) = (series(&rows, "theta"), series(&rows, "window"));
    let (theta, window) = (theta.values().next().unwrap(), window.values().next().unwrap());
    println!("theta {:?}, window {:?}", &theta[..5], &window[..5]);
    assert!(theta.iter().all(|theta| *theta == 7.0), "{theta:?}");
    assert!((33.0..100.0).contains(&window[0]), "the product would start with 10: {window:?}");
}

// ---- equal parts ---------------------------------------------------------------------------------------------------

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goal: three sources send a third each (PPUSH without its pool) although one path is a fifth as fast as the others and
/// loses 2 %, and the object arrives.
#[test]
fn equal_parts_of_three_sources_arrive_over_a_slow_and_lossy_path_too() {
    match Capability::probe() {
        Ok(Capability { loss: true, .. }) => {}
        Ok(_) => return headwater_skips::cannot("no random loss here"),
        Err(why) => return headwater_skips::cannot(why),
    }
    let rates = [50, 50, 10].map(|mbit| Some(BitRate::new(mbit * 1_000_000)));
    let mut hosts: Vec<HostSpec> =
        rates.iter().map(|&uplink| HostSpec { uplink, ..HostSpec::default() }).collect();
    hosts.push(HostSpec::default());
    let net = Net::build(&Spec { hosts, ..Spec::default() }).unwrap();
    net.loss(Link::Uplink(2), 0.02).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let content = random_file(&folder.path().join("object.bin"), 2 << 20, 6);
    let binary = env!("CARGO_BIN_EXE_headwater");
    let mut sources = Vec::new();
    let mut from = Vec::new();
    for host in 0..3 {
        let address = format!("{}:7001", net.ipv4(host));
        let mut command = net.command(host, binary).unwrap();
        command.args(["serve", "object.bin", "--listen", &address, "--json", "--state", &format!("s{host}")]);
        command.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut source = Killed(command.spawn().unwrap());
        let mut ready = String::new();
        BufReader::new(source.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        sources.push(source);
        from.push(address);
    }
    let mut get = net.command(3, binary).unwrap();
    let from = from.join(",");
    get.args(["get", "object.bin", "--from", &from, "-o", "out.bin", "--state", "r", "--json"]);
    let got = get.args(["--spread", "equal", "--timeout", "40s"]).current_dir(&folder).output().unwrap();
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert_eq!(std::fs::read(folder.path().join("out.bin")).unwrap(), content);
    let result: Value = serde_json::from_slice(&got.stdout).unwrap();
    println!("{result}");
    for source in result["sources"].as_array().unwrap() {
        // Blocks have as many symbols as fit, which three does not divide; the first class has the rest.
        let share = source["share"].as_f64().unwrap();
        assert!((share - 1.0 / 3.0).abs() < 0.01, "{result}");
    }
    assert_eq!(result["repair_share"], 0.0, "parts have no repair symbols");
    assert!(sum_of(&result, "lost") > 0, "the path was meant to lose some: {result}");
    // The slowest third alone takes that long; a pool would be three times as fast.
    let slowest = content.len() as f64 * 8.0 / 3.0 / 10e6;
    let seconds = result["seconds"].as_f64().unwrap();
    assert!(seconds >= slowest, "{seconds} s, slowest part {slowest} s");
}
