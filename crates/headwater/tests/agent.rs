//! `headwater agent` as users run it: two of them and a controller, as processes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headwater_agent::Refusal;
use headwater_agent::client::{Client, Event, Fetch};
use headwater_agent::client_frames::{Index, Range};
use headwater_skips::SmallDisk;
use headwater_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const TOKEN: &[u8] = b"a token of the job";
const WITHIN: Duration = Duration::from_secs(30);

fn headwater(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.env("HEADWATER_CONFIG", "/dev/null").env("HEADWATER_HOME", state);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// A daemon, and the line that it printed when it was ready.
struct Daemon {
    child: Child,
    ready: Value,
}

impl Daemon {
    fn start(command: &mut Command) -> Daemon {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Daemon { child, ready: serde_json::from_str(&line).unwrap() }
    }

    fn said(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent of this state folder, with the files of one folder to offer.
fn agent(state: &Path, data: &Path, peers: &Path) -> Command {
    let mut command = headwater(state);
    command.args(["agent", "--json", "--listen", "127.0.0.1:0"]);
    command.arg("--root").arg(data).arg("--peers").arg(peers);
    command
}

/// Two agents learn of each other, as hosts `a` and `b`.
fn introduce(agents: &[Daemon; 2], peers: &Path) {
    let line = |(name, agent): (&str, &Daemon)| {
        format!(
            "[{name}]\naddress = \"{}\"\nfingerprint = \"{}\"\n",
            agent.said("address"),
            agent.said("fingerprint")
        )
    };
    std::fs::write(peers, ["a", "b"].into_iter().zip(agents).map(line).collect::<String>()).unwrap();
    agents.iter().for_each(|agent| agent.signal(Signal::HUP));
}

fn range(offset: u64, length: u64) -> Range {
    Range { offset: Bytes::new(offset), length: Bytes::new(length), info: 0 }
}

fn output(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn now() -> Instant {
    #[allow(clippy::disallowed_methods, reason = "a limit of patience")]
    Instant::now()
}

#[test]
fn an_agent_says_where_it_is_shows_its_status_reads_its_list_again_and_leaves_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    let peers = folder.path().join("agents.toml");
    std::fs::write(&peers, "").unwrap();
    let mut command = headwater(folder.path());
    command.args(["agent", "--json", "--listen", "127.0.0.1:0", "--peers"]).arg(&peers);
    let mut agent = Daemon::start(&mut command);
    let socket = PathBuf::from(agent.said("socket"));
    assert_eq!(socket, folder.path().join("agent.sock"));
    let key = agent.said("fingerprint").to_owned();
    assert_eq!(key.len(), 64);
    std::fs::write(
        &peers,
        format!("[self]\naddress = \"{}\"\nfingerprint = \"{key}\"\n", agent.said("address")),
    )
    .unwrap();
    agent.signal(Signal::HUP);
    let status = output(headwater(folder.path()).args(["status", "--json", "--agent"]).arg(&socket));
    assert_eq!(status["coflows"], Value::Array(vec![]));
    let table = headwater(folder.path()).args(["status", "--agent"]).arg(&socket).output().unwrap();
    assert!(String::from_utf8_lossy(&table.stdout).contains("no order"), "{table:?}");
    agent.signal(Signal::TERM);
    assert!(agent.child.wait().unwrap().success());
    assert!(!socket.exists());
    let again = Daemon::start(&mut command);
    assert_eq!(again.said("fingerprint"), key, "a state folder is one agent");
}

#[test]
fn the_bench_ends_with_one_object() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["bench", "agent", "--json", "--size", "24MiB", "--flows", "9", "--coflows", "3"];
    let result = output(headwater(folder.path()).args(args));
    assert_eq!((&result["flows"], &result["connections"]), (&9.into(), &1.into()));
    for key in ["gbit_per_s", "cpu_s_per_gib", "peak_rss_bytes", "mean_cct_s"] {
        assert!(result[key].as_f64().unwrap() >= 0.0, "{key} of {result}");
    }
    assert!(result["drops"].is_u64() && result.as_object().unwrap().len() == 7, "{result}");
}

#[test]
fn a_controller_orders_what_an_agent_fetches() {
    const EACH: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut command = headwater(&folder.path().join("controller"));
    command.args(["controller", "--json", "--listen", "127.0.0.1:0", "--coflow-order", "sincronia"]);
    let controller = Daemon::start(&mut command);
    let (data, peers) = (folder.path().join("data"), folder.path().join("agents.toml"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(&peers, "").unwrap();
    let agents = ["a", "b"].map(|name| {
        let mut command = agent(&folder.path().join(name), &data, &peers);
        Daemon::start(command.args(["--controller", controller.said("address")]))
    });
    introduce(&agents, &peers);

    std::fs::write(data.join("map"), vec![7; 3 * EACH as usize]).unwrap();
    let sockets: Vec<PathBuf> = agents.iter().map(|agent| agent.said("socket").into()).collect();
    let mut source = Client::connect(&sockets[0], "job", TOKEN).unwrap();
    let index = Index::Ranges(vec![range(0, 2 * EACH), range(2 * EACH, EACH)]);
    source.register("map", data.join("map").to_str().unwrap(), index).unwrap();
    let mut client = Client::connect(&sockets[1], "job", TOKEN).unwrap();
    // The large coflow comes first and is ranked last.
    let mut opened = 0;
    let mut flow = 0;
    while opened < 2 {
        let (coflow, first) = (u64::from(opened), opened);
        flow += 1;
        client.fetch(&Fetch { flow, coflow, host: "a", output: "map", first, count: 1, credit: 0 }).unwrap();
        match client.next().unwrap() {
            Event::Opened { .. } => opened += 1,
            // The agents have not read their lists yet.
            Event::Broken { .. } => pause(),
            other => panic!("{other:?}"),
        }
    }
    let began = now();
    loop {
        let status: Value = serde_json::from_str(&Client::status(&sockets[1]).unwrap()).unwrap();
        let ranks: Vec<(u64, Option<u64>)> = status["coflows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| (it["coflow"].as_u64().unwrap(), it["rank"].as_u64()))
            .collect();
        if ranks == [(1, Some(0)), (0, Some(1))] {
            assert_eq!(status["ordered"], true);
            return;
        }
        assert!(began.elapsed() < WITHIN, "{status}");
        pause();
    }
}

/// A program that writes what a flow brings.
struct Writer {
    client: Client,
    flow: u64,
}

impl Writer {
    /// Writes partition `first` of `map` at host `a` into a file; the flow is cancelled where that cannot be written to.
    fn take(&mut self, first: u32, into: &Path) -> std::io::Result<()> {
        let mut file = File::create(into)?;
        self.begin(first, 1 << 20);
        loop {
            let written = match self.client.next().unwrap() {
                Event::Data { flow, bytes, .. } if flow == self.flow => {
                    file.write_all(bytes).map(|()| bytes.len() as u64)
                }
                Event::End { flow } if flow == self.flow => return Ok(()),
                // The agents have not read their lists yet.
                Event::Broken { refusal: Refusal::UnknownHost | Refusal::Unreachable, .. } => {
                    pause();
                    self.begin(first, 1 << 20);
                    continue;
                }
                Event::Broken { refusal, text, .. } => panic!("{refusal}: {text}"),
                // What was under way of a flow that was cancelled may still come.
                Event::Opened { .. } | Event::Data { .. } | Event::End { .. } => continue,
            };
            match written {
                Ok(more) => self.client.credit(self.flow, more).unwrap(),
                Err(error) => {
                    self.client.cancel(self.flow).unwrap();
                    return Err(error);
                }
            }
        }
    }

    fn begin(&mut self, first: u32, credit: u64) {
        self.flow += 1;
        let (flow, host, output) = (self.flow, "a", "map");
        self.client.fetch(&Fetch { flow, coflow: 1, host, output, first, count: 1, credit }).unwrap();
    }
}

/// The state and the log of two agents and what a program writes are on a disk that is full.
#[test]
fn a_full_disk_keeps_an_agent_from_starting_and_stops_no_flow_of_one_that_runs() {
    const EACH: u64 = 2 << 20;
    let Some(disk) = SmallDisk::of_mib(8) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (data, peers) = (folder.path().join("data"), folder.path().join("agents.toml"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(&peers, "").unwrap();

    // There is no key yet, and no room for one.
    let filler = disk.fill_up();
    let ended = agent(&disk.path().join("a"), &data, &peers).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(6), "{said}");
    assert!(["node.pem", "make room", "--state"].iter().all(|part| said.contains(part)), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    disk.make_room(&filler, 6);

    let logs = ["a", "b"].map(|name| disk.path().join(name).with_extension("log"));
    let mut agents = [0, 1].map(|at| {
        let log = OpenOptions::new().create(true).append(true).open(&logs[at]).unwrap();
        let mut command = agent(&disk.path().join(["a", "b"][at]), &data, &peers);
        Daemon::start(command.env("RUST_LOG", "headwater=debug").stderr(log))
    });
    introduce(&agents, &peers);
    let map: Vec<u8> = (0..2 * EACH).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8).collect();
    let (first, second) = map.split_at(EACH as usize);
    std::fs::write(data.join("map"), &map).unwrap();
    let connect = |at: usize| Client::connect(agents[at].said("socket").as_ref(), "job", TOKEN).unwrap();
    let mut source = connect(0);
    let index = || Index::Ranges(vec![range(0, EACH), range(EACH, EACH)]);
    source.register("map", data.join("map").to_str().unwrap(), index()).unwrap();
    let mut elsewhere = Writer { client: connect(1), flow: 0 };
    elsewhere.take(0, &folder.path().join("0")).unwrap();

    // Whatever goes on while it is full is said to a log that has no room for it.
    let filler = disk.fill_up();
    let mut here = Writer { client: connect(1), flow: 0 };
    let full = here.take(0, &disk.path().join("0")).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    agents.iter().for_each(|agent| agent.signal(Signal::HUP));
    source.register("map", data.join("map").to_str().unwrap(), index()).unwrap();
    elsewhere.take(1, &folder.path().join("1")).unwrap();
    let got = ["0", "1"].map(|name| std::fs::read(folder.path().join(name)).unwrap());
    assert!(got[0] == first && got[1] == second);
    assert!(agents.iter_mut().all(|agent| agent.child.try_wait().unwrap().is_none()), "both run");

    disk.make_room(&filler, 6);
    here.take(0, &disk.path().join("0")).unwrap();
    assert!(std::fs::read(disk.path().join("0")).unwrap() == first);
    // The log goes on as well.
    let begun = now();
    for (log, agent) in logs.iter().zip(&agents) {
        let length = std::fs::metadata(log).unwrap().len();
        agent.signal(Signal::HUP);
        while std::fs::metadata(log).unwrap().len() == length {
            assert!(begun.elapsed() < WITHIN, "{}", log.display());
            pause();
        }
    }
    let status = Client::status(agents[1].said("socket").as_ref()).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["flows_done"], &status["coflows"]), (&3.into(), &Value::Array(vec![])), "{status}");
    for agent in &mut agents {
        agent.signal(Signal::TERM);
        assert!(agent.child.wait().unwrap().success());
    }
    let said = logs.map(|log| std::fs::read_to_string(log).unwrap());
    assert!(!said.iter().any(|log| log.contains("panicked")), "{said:?}");
}

fn pause() {
    #[allow(clippy::disallowed_methods, reason = "processes get to know each other")]
    std::thread::sleep(Duration::from_millis(20));
}
