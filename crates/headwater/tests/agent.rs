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
/// What a program has room for.
const CREDIT: u64 = 1 << 19;

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

/// A controller that orders coflows, and the agents `a` and `b`; a program at `a` offers `map`.
struct Ordered {
    controller: Daemon,
    agents: [Daemon; 2],
    map: Vec<u8>,
    /// Outputs live as long as their program.
    _source: Client,
}

impl Ordered {
    /// The partitions of `map` have these lengths.
    fn start(folder: &Path, lengths: &[u64]) -> Ordered {
        let controller = Daemon::start(&mut Self::controller(folder, "127.0.0.1:0"));
        let (data, peers) = (folder.join("data"), folder.join("agents.toml"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(&peers, "").unwrap();
        let agents = ["a", "b"].map(|name| {
            let mut command = agent(&folder.join(name), &data, &peers);
            Daemon::start(command.args(["--controller", controller.said("address")]))
        });
        introduce(&agents, &peers);

        let map = noise(lengths.iter().sum());
        std::fs::write(data.join("map"), &map).unwrap();
        let mut source = Client::connect(agents[0].said("socket").as_ref(), "job", TOKEN).unwrap();
        let mut from = 0;
        let ranges = lengths.iter().map(|length| {
            from += length;
            range(from - length, *length)
        });
        let index = Index::Ranges(ranges.collect());
        source.register("map", data.join("map").to_str().unwrap(), index).unwrap();
        Ordered { controller, agents, map, _source: source }
    }

    fn controller(folder: &Path, listen: &str) -> Command {
        let mut command = headwater(&folder.join("controller"));
        command.args(["controller", "--json", "--listen", listen, "--coflow-order", "sincronia"]);
        command
    }

    /// A program at `b`.
    fn client(&self) -> Client {
        Client::connect(self.agents[1].said("socket").as_ref(), "job", TOKEN).unwrap()
    }

    /// What `b` says of itself.
    fn status(&self) -> Value {
        serde_json::from_str(&Client::status(self.agents[1].said("socket").as_ref()).unwrap()).unwrap()
    }

    fn await_status(&self, is_met: impl Fn(&Value) -> bool) {
        let began = now();
        loop {
            let status = self.status();
            if is_met(&status) {
                return;
            }
            assert!(began.elapsed() < WITHIN, "{status}");
            pause();
        }
    }
}

/// Opens a flow of partition `first` without credit, as often as the agents need to have read their lists; returns its number.
fn open(client: &mut Client, coflow: u64, first: u32) -> u64 {
    for attempt in 0.. {
        let flow = 1000 * coflow + attempt;
        client.fetch(&Fetch { flow, coflow, host: "a", output: "map", first, count: 1, credit: 0 }).unwrap();
        match client.next().unwrap() {
            Event::Opened { .. } => return flow,
            Event::Broken { .. } => pause(),
            other => panic!("{other:?}"),
        }
    }
    unreachable!("attempts end with an error or an open flow")
}

/// Takes the only flow that has credit until there are so many bytes of it, and gives as much credit as it takes.
fn take(client: &mut Client, flow: u64, got: &mut Vec<u8>, until: usize) {
    while got.len() < until {
        match client.next().unwrap() {
            Event::Data { bytes, offset, .. } => {
                assert_eq!(offset, got.len() as u64);
                got.extend_from_slice(bytes);
                let more = bytes.len() as u64;
                client.credit(flow, more).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_controller_orders_what_an_agent_fetches() {
    const EACH: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let cluster = Ordered::start(folder.path(), &[2 * EACH, EACH]);
    let mut client = cluster.client();
    // The large coflow comes first and is ranked last.
    open(&mut client, 0, 0);
    open(&mut client, 1, 1);
    cluster.await_status(|status| {
        let rank = |it: &Value| (it["coflow"].as_u64().unwrap(), it["rank"].as_u64());
        let ranks: Vec<_> = status["coflows"].as_array().unwrap().iter().map(rank).collect();
        status["ordered"] == true && ranks == [(1, Some(0)), (0, Some(1))]
    });
}

#[test]
fn without_its_controller_an_agent_has_no_order_and_flows_go_on() {
    const EACH: u64 = 2 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Ordered::start(folder.path(), &[EACH; 4]);
    let mut waiting = cluster.client();
    open(&mut waiting, 9, 3);
    let mut clients = [0, 1, 2].map(|_| cluster.client());
    let flows: Vec<u64> =
        (1..).zip(&mut clients).map(|(coflow, client)| open(client, coflow, coflow as u32 - 1)).collect();
    let mut fetch = |cluster: &Ordered, at: usize| {
        let right = &cluster.map[at * EACH as usize..][..EACH as usize];
        let mut got = Vec::new();
        clients[at].credit(flows[at], CREDIT).unwrap();
        take(&mut clients[at], flows[at], &mut got, right.len());
        assert!(got == right);
    };
    cluster.await_status(|status| status["ordered"] == true);

    cluster.controller.signal(Signal::STOP);
    cluster.await_status(|status| status["ordered"] == false);
    fetch(&cluster, 0);
    freeze();
    assert_eq!(cluster.status()["ordered"], false);
    cluster.controller.signal(Signal::CONT);
    cluster.await_status(|status| status["ordered"] == true);
    fetch(&cluster, 1);

    let address = cluster.controller.said("address").to_owned();
    cluster.controller.child.kill().unwrap();
    cluster.controller.child.wait().unwrap();
    cluster.await_status(|status| status["ordered"] == false);
    fetch(&cluster, 2);
    cluster.controller = Daemon::start(&mut Ordered::controller(folder.path(), &address));
    cluster.await_status(|status| status["ordered"] == true);
}

#[test]
fn flows_of_an_agent_that_is_frozen_go_on_where_they_were() {
    const WHOLE: u64 = 8 << 20;
    let folder = tempfile::tempdir().unwrap();
    let cluster = Ordered::start(folder.path(), &[WHOLE]);
    let mut client = cluster.client();
    let flow = open(&mut client, 1, 0);
    client.credit(flow, CREDIT).unwrap();
    let mut got = Vec::new();
    for agent in &cluster.agents {
        let until = got.len() + (2 << 20);
        take(&mut client, flow, &mut got, until);
        agent.signal(Signal::STOP);
        freeze();
        agent.signal(Signal::CONT);
    }
    take(&mut client, flow, &mut got, WHOLE as usize);
    assert!(got == cluster.map);
    assert!(matches!(client.next().unwrap(), Event::End { .. }));
    let status = cluster.status();
    assert_eq!((&status["flows_done"], &status["resets"]), (&1.into(), &0.into()), "{status}");
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
    let map = noise(2 * EACH);
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

/// Bytes that differ wherever they are.
fn noise(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8).collect()
}

/// As long as somebody is frozen.
fn freeze() {
    #[allow(clippy::disallowed_methods, reason = "a freeze takes time")]
    std::thread::sleep(Duration::from_secs(10));
}

fn pause() {
    #[allow(clippy::disallowed_methods, reason = "processes get to know each other")]
    std::thread::sleep(Duration::from_millis(20));
}
