//! `headwater agent` as users run it: two of them and a controller, as processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

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
    use headwater_agent::client::{Client, Event, Fetch};
    use headwater_agent::client_frames::{Index, Range};
    use headwater_units::Bytes;

    const EACH: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut command = headwater(&folder.path().join("controller"));
    command.args(["controller", "--json", "--listen", "127.0.0.1:0", "--coflow-order", "sincronia"]);
    let controller = Daemon::start(&mut command);
    let (data, peers) = (folder.path().join("data"), folder.path().join("agents.toml"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(&peers, "").unwrap();
    let agents: Vec<Daemon> = ["a", "b"]
        .map(|name| {
            let mut command = headwater(&folder.path().join(name));
            command.args([
                "agent",
                "--json",
                "--listen",
                "127.0.0.1:0",
                "--controller",
                controller.said("address"),
            ]);
            command.arg("--root").arg(&data).arg("--peers").arg(&peers);
            Daemon::start(&mut command)
        })
        .into();
    let line = |(name, agent): (&str, &Daemon)| {
        format!(
            "[{name}]\naddress = \"{}\"\nfingerprint = \"{}\"\n",
            agent.said("address"),
            agent.said("fingerprint")
        )
    };
    std::fs::write(&peers, ["a", "b"].into_iter().zip(&agents).map(line).collect::<String>()).unwrap();
    agents.iter().for_each(|agent| agent.signal(Signal::HUP));

    std::fs::write(data.join("map"), vec![7; 3 * EACH as usize]).unwrap();
    let sockets: Vec<PathBuf> = agents.iter().map(|agent| agent.said("socket").into()).collect();
    let mut source = Client::connect(&sockets[0], "job", b"a token of the job").unwrap();
    let range = |offset, length| Range { offset: Bytes::new(offset), length: Bytes::new(length), info: 0 };
    let index = Index::Ranges(vec![range(0, 2 * EACH), range(2 * EACH, EACH)]);
    source.register("map", data.join("map").to_str().unwrap(), index).unwrap();
    let mut client = Client::connect(&sockets[1], "job", b"a token of the job").unwrap();
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

fn pause() {
    #[allow(clippy::disallowed_methods, reason = "processes get to know each other")]
    std::thread::sleep(Duration::from_millis(20));
}
