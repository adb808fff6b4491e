//! `headwater agent`: its options, the list of other agents, and what it prints when it is ready.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

use clap::Args;
use headwater_agent::client::Client;
use headwater_agent::{AgentConfig, Name, Peer};
use headwater_api::{AGENT_PORT, AgentListening, AgentOptions, AppError, Reloads, Shutdown};
use headwater_units::{Bytes, Duration, NodeId, ParseQuantityError};
use serde::Deserialize;
use serde_json::Value;

use super::Failure;
use super::output::Terminal;
use super::settings::Settings;
use super::tables::Table;
use super::usage::UsageError;
use super::values::{HostPort, Listen};

/// Where Prometheus finds an agent unless told otherwise: the port behind that of the other daemons.
const METRICS_PORT: u16 = 9465;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater agent --root /data/yarn/nm-local-dir --peers /etc/headwater/agents.toml
  headwater agent --listen 10.0.0.1:7010 --socket /run/headwater/agent.sock --root /data --peers agents.toml --metrics 127.0.0.1:9465

The list of agents has a table for each host, under the name that programs call it by:

  [host-a]
  address = \"10.0.0.1:7010\"
  fingerprint = \"64 hex digits, as `headwater agent` prints them there\"

It is the same file on all hosts, and is read again at SIGHUP. Whoever is not in it is not served. An agent sees what it carries in plaintext, and
reads files with its own rights: run it as a user that may read the outputs, and let into its socket's group only who may use it.

Programs speak docs/agent-protocol.md over the socket. On an idle network an agent gains nothing.")]
pub(crate) struct AgentArgs {
    /// Address to listen on for other agents (TCP): IP, IP:PORT or :PORT [default: every address, port 7010]
    #[arg(long, value_name = "ADDR")]
    listen: Option<Listen>,
    /// Socket for programs of this host, mode 0660 [default: agent.sock in the state folder]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    socket: Option<PathBuf>,
    /// Folder beneath which programs may name files to be fetched; may be repeated
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    root: Vec<PathBuf>,
    /// The agents of other hosts, as a TOML file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    peers: Option<PathBuf>,
    /// Memory for bytes on their way to programs
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: Bytes,
    /// Keep an application's outputs for so long after its last program here has gone and nobody has asked for them
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = kept_unused)]
    keep_unused: Duration,
    /// Connections that bring data at once, from all hosts (MaxNum)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    lanes: u32,
    /// Of these, from one host; more are of use where several paths lead there
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    lanes_per_pair: u32,
    /// Classes of the network that ranks travel in, each by connections of its own, marked by IP precedence
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    classes: u8,
    /// Congestion control: the first of these that the kernel has and gives to this user, or its own
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "dctcp,cubic,reno")]
    congestion: Vec<String>,
    /// The controller that orders coflows: HOST or HOST:PORT [default port: 7000] [default: no order]
    #[arg(long, value_name = "ADDR")]
    controller: Option<HostPort>,
    /// Answer Prometheus and health checks at this address, as in 127.0.0.1:9465: /metrics, /healthz, /readyz
    #[arg(long, value_name = "ADDR")]
    metrics: Option<Listen>,
}

/// # Errors
/// It is no time, or the agent would look all the time whether it is over.
fn kept_unused(text: &str) -> Result<Duration, String> {
    let time: Duration = text.parse().map_err(|error: ParseQuantityError| error.to_string())?;
    if time < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(time) }
}

impl AgentArgs {
    fn options(&self, settings: &Settings) -> Result<AgentOptions, UsageError> {
        let common = settings.common()?;
        let socket = self.socket.clone().unwrap_or_else(|| common.state.join("agent.sock"));
        let listen =
            self.listen.map_or_else(|| headwater_api::wildcard(AGENT_PORT), |listen| listen.at(AGENT_PORT));
        let mut config = AgentConfig::new(listen, socket);
        if self.memory < config.courier.block {
            let block = config.courier.block;
            return Err(UsageError::Options(format!(
                "--memory {}: less than a block of {block}",
                self.memory
            )));
        }
        config.roots = self.root.iter().map(|root| root.components().collect()).collect();
        config.memory = self.memory;
        config.keep_unused = self.keep_unused;
        config.limits.max_num = self.lanes;
        config.limits.max_per_pair = Some(self.lanes_per_pair);
        config.courier.classes = self.classes;
        config.congestion.clone_from(&self.congestion);
        let file = self.peers.clone();
        let peers = Box::new(move || match &file {
            Some(file) => read_peers(file),
            None => Ok(Vec::new()),
        });
        let controller = self.controller.as_ref().map(|at| at.with_port(headwater_api::CONTROLLER_PORT));
        Ok(AgentOptions {
            common,
            controller,
            config,
            peers,
            metrics: self.metrics.map(|at| at.at(METRICS_PORT)),
        })
    }
}

/// Runs it until it is stopped.
pub(crate) async fn act(
    args: &AgentArgs,
    settings: &Settings,
    terminal: &Terminal,
    (shutdown, reloads): (&Shutdown, Reloads),
) -> Result<(), Failure> {
    let options = args.options(settings)?;
    let out = terminal.clone();
    // A daemon whose standard output was closed has work to do all the same.
    let ready = |it: &AgentListening| drop(out.result(it, || ready_words(it)));
    Ok(headwater_api::agent(options, shutdown, reloads, &mut *terminal.watch(), ready).await?)
}

fn ready_words(it: &AgentListening) -> String {
    format!(
        "agent on {}, for programs at {}\nfingerprint {}\ncongestion control {}\n",
        it.address,
        it.socket.display(),
        it.fingerprint,
        it.congestion
    )
}

/// Status of an agent of this machine.
pub(crate) fn status(socket: &Path) -> Result<Value, AppError> {
    let failed = |reason: String| AppError::Unreachable {
        who: socket.display().to_string(),
        reason: format!("{reason}: does an agent run, and is this user in its socket's group?"),
    };
    let text = Client::status(socket).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// Table of coflows with the hosts that they wait for, and of connections.
pub(crate) fn status_table(status: &Value) -> String {
    let text = |of: &Value, key: &str| match &of[key] {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let bytes = |of: &Value, key: &str| Bytes::new(of[key].as_u64().unwrap_or_default()).to_string();
    let list = |key: &str| status[key].as_array().cloned().unwrap_or_default();
    let mut coflows = Table::new(&[
        "APPLICATION",
        " COFLOW",
        " RANK",
        " FLOWS",
        " WITHOUT CREDIT",
        " HERE",
        " LEFT",
        "WAITS FOR",
    ]);
    for it in list("coflows") {
        let from = it["from"].as_array().map(|hosts| hosts.iter().filter_map(Value::as_str).collect());
        let from: Vec<&str> = from.unwrap_or_default();
        coflows.row([
            text(&it, "application"),
            text(&it, "coflow"),
            text(&it, "rank"),
            text(&it, "flows"),
            text(&it, "stalled"),
            bytes(&it, "bytes"),
            bytes(&it, "left"),
            from.join(" "),
        ]);
    }
    let mut lanes = Table::new(&["HOST", " CLASS", " LANE", "UP", " RECEIVED"]);
    for it in list("lanes") {
        let up = if it["up"] == true { "yes" } else { "no" };
        let numbers = (text(&it, "class"), text(&it, "number"));
        lanes.row([text(&it, "host"), numbers.0, numbers.1, up.to_owned(), bytes(&it, "bytes")]);
    }
    let order = if status["ordered"] == true { "a scheduler's order" } else { "no order" };
    let ecn = if status["ecn"] == true { "with ECN" } else { "without ECN" };
    let memory = (bytes(status, "memory_used"), bytes(status, "memory_most"));
    let host = match status["host"].as_str() {
        Some(host) => host.to_owned(),
        None => "this host, which is not in the list of agents".to_owned(),
    };
    format!(
        "{host}: {order}; congestion control {} {ecn}; memory {}, at most {} so far; {} outputs of {} applications\n\n{}\n{}",
        text(status, "congestion"),
        memory.0,
        memory.1,
        text(status, "outputs"),
        text(status, "applications"),
        coflows.render(""),
        lanes.render("")
    )
}

/// One host of the list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    address: String,
    fingerprint: String,
}

/// Reads the list of agents; names are resolved now.
fn read_peers(file: &Path) -> Result<Vec<(Name, Peer)>, AppError> {
    let wrong =
        |reason: String| AppError::Usage(format!("--peers {}: {}", file.display(), reason.trim_end()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let lines: BTreeMap<String, Line> = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let peer = |(name, line): (String, Line)| {
        let node: NodeId = line.fingerprint.parse().map_err(|error| wrong(format!("{name}: {error}")))?;
        let address: HostPort = line.address.parse().map_err(|error| wrong(format!("{name}: {error}")))?;
        let address = address.with_port(AGENT_PORT);
        let resolved = address.to_socket_addrs().ok().and_then(|mut it| it.next());
        let address = resolved.ok_or_else(|| wrong(format!("{name}: {address} does not resolve")))?;
        let name = Name::new(name.clone()).ok_or_else(|| wrong(format!("{name:?} is no name of a host")))?;
        Ok((name, Peer { node, address }))
    };
    lines.into_iter().map(peer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_who_waits_for_whom() {
        let coflow = serde_json::json!({
            "application": "job", "coflow": 7, "rank": 2, "flows": 3, "stalled": 1, "bytes": 2048, "left": 1024,
            "from": ["host-a", "host-b"],
        });
        let lane = serde_json::json!({"host": "host-a", "class": 0, "number": 0, "up": true, "bytes": 2048});
        let table = status_table(&serde_json::json!({
            "host": "host-c", "ordered": true, "congestion": "dctcp", "ecn": true, "coflows": [coflow], "lanes": [lane],
        }));
        let row = table.lines().find(|line| line.starts_with("job")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..5], ["job", "7", "2", "3", "1"]);
        assert!(row.ends_with("host-a host-b"), "{table}");
        assert!(table.contains("host-c: a scheduler's order; congestion control dctcp with ECN"), "{table}");
    }

    #[test]
    fn a_list_of_agents_is_read_and_what_is_wrong_with_it_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: String| {
            std::fs::write(file.path(), text).unwrap();
            read_peers(file.path())
        };
        let key = "ab".repeat(32);
        let list = read(format!("[host-a]\naddress = \"127.0.0.1\"\nfingerprint = \"{key}\"\n")).unwrap();
        assert_eq!(list[0].0.as_str(), "host-a");
        assert_eq!(list[0].1.address, ([127, 0, 0, 1], AGENT_PORT).into());
        for (text, named) in [
            (format!("[a]\nfingerprint = \"{key}\"\n"), "address"),
            ("[a]\naddress = \"127.0.0.1\"\nfingerprint = \"12\"\n".to_owned(), "a: "),
            (format!("[a]\naddress = \"127.0.0.1\"\nfingerprint = \"{key}\"\nport = 1\n"), "port"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("--peers") && error.contains(named), "{error}");
        }
    }
}
