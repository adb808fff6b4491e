//! Two agents on this machine as processes of their own, and a program that fetches from one by the other: rate, processor time and
//! memory.
//!
//! The output lies in memory, where there is room. The program counts the bytes and checks that none is missing; its processor time is not
//! the agents'.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use headwater_agent::client::{Client, ClientError, Event, Fetch};
use headwater_agent::client_frames::{Index, Range};
use headwater_api::{AppError, Shutdown};
use headwater_units::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::{BenchWatch, ratio};
use crate::shuffle::counted;
use crate::subprocess::{Guard, Process, Scratch, without_settings, write_random};

/// What the program has room for of each flow before it has read any of it.
const CREDIT: u64 = 4 << 20;
/// How long agents may take to know each other.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(10);
/// The program waits no longer than this for the next bytes.
const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &[u8] = b"the bench's own token";
const APPLICATION: &str = "bench";
const OUTPUT: &str = "output";
const SEED: u64 = 1;
const GIB: f64 = 1_073_741_824.0;

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOptions {
    /// Bytes of all flows together.
    pub size: Bytes,
    /// Flows at once, at least 1.
    pub flows: u32,
    /// Coflows that they belong to in turn, at least 1.
    pub coflows: u32,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentBench {
    /// Flows at once.
    pub flows: u32,
    /// Connections that carried them.
    pub connections: u64,
    /// Of all flows together, from the first request to the last byte at the program.
    pub gbit_per_s: f64,
    /// Processor seconds of both agents per GiB.
    pub cpu_s_per_gib: f64,
    /// The most memory that the receiving agent had resident.
    pub peak_rss_bytes: u64,
    /// Segments that the kernel sent again, of all of this network namespace.
    pub drops: u64,
    /// Mean time from the first request to the end of a coflow.
    pub mean_cct_s: f64,
}

/// Measures.
///
/// # Errors
/// [`AppError::Interrupted`], no room, an agent that does not start, a flow that breaks.
pub async fn run(
    options: &AgentOptions,
    shutdown: &Shutdown,
    watch: &mut dyn BenchWatch,
) -> Result<AgentBench, AppError> {
    let (scratch, guard) = Scratch::create_guarded("bench", options.size, false)?;
    let mut hosts = Vec::new();
    for name in ["source", "receiver"] {
        hosts.push(Host::start(name, scratch.path(), &guard).await?);
    }
    introduce(&hosts, scratch.path())?;
    watch.begun("agent", 1, 1);
    let file = hosts[0].root.join(OUTPUT);
    write_random(&file, options.size, SEED)?;
    let sockets = (hosts[0].socket.clone(), hosts[1].socket.clone());
    let asked = options.clone();
    let ready = tokio::task::spawn_blocking(move || prepare(&sockets, &file, &asked));
    let (held, client) = ready.await.map_err(panicked)??;
    let before = (cpu(&hosts), retransmitted());
    let asked = options.clone();
    let fetching = tokio::task::spawn_blocking(move || fetch(client, &asked));
    let fetched = tokio::select! {
        fetched = fetching => fetched.map_err(panicked)??,
        () = shutdown.wait() => return Err(AppError::Interrupted { resumable: false }),
    };
    let (spent, again) = (cpu(&hosts) - before.0, retransmitted().saturating_sub(before.1));
    drop(held);
    let connections = connections(&hosts[1].socket)?;
    let bytes = options.size.get() as f64;
    Ok(AgentBench {
        flows: options.flows,
        connections,
        gbit_per_s: ratio(bytes * 8.0, fetched.seconds) / 1e9,
        cpu_s_per_gib: spent / (bytes / GIB),
        peak_rss_bytes: hosts[1].process.peak_rss(),
        drops: again,
        mean_cct_s: fetched.mean_cct,
    })
}

fn panicked(error: tokio::task::JoinError) -> AppError {
    AppError::Failed(error.to_string())
}

fn failed(error: ClientError) -> AppError {
    AppError::Failed(format!("an agent of the bench: {error}"))
}

/// An agent that runs.
struct Host {
    name: &'static str,
    process: Process,
    socket: PathBuf,
    root: PathBuf,
    address: String,
    fingerprint: String,
}

impl Host {
    async fn start(name: &'static str, folder: &Path, guard: &Guard) -> Result<Host, AppError> {
        let (state, root) = (folder.join(name), folder.join(format!("{name}-data")));
        let failed = |error| AppError::io(format!("cannot make {}", root.display()), error);
        std::fs::create_dir_all(&root).map_err(failed)?;
        let peers = folder.join("agents.toml");
        std::fs::write(&peers, "").map_err(|error| AppError::io("cannot write a list of agents", error))?;
        let program =
            std::env::current_exe().map_err(|error| AppError::io("cannot find this program", error))?;
        let mut command = Command::new(program);
        without_settings(&mut command);
        command.args(["agent", "--json", "--listen", "127.0.0.1:0"]);
        command.arg("--state").arg(&state).arg("--root").arg(&root).arg("--peers").arg(&peers);
        let log = folder.join(format!("{name}.log"));
        let mut process = Process::start(&format!("the bench's {name}"), command, log, guard)?;
        let Some(ready) = process.json().await else { return Err(process.failed("did not start")) };
        let text = |key: &str| ready.get(key).and_then(Value::as_str).map(str::to_owned);
        let (Some(address), Some(fingerprint), Some(socket)) =
            (text("address"), text("fingerprint"), text("socket"))
        else {
            return Err(process.failed("does not say where it listens"));
        };
        Ok(Host { name, process, socket: socket.into(), root, address, fingerprint })
    }
}

/// Tells each agent of all of them.
fn introduce(hosts: &[Host], folder: &Path) -> Result<(), AppError> {
    let line = |host: &Host| {
        let Host { name, address, fingerprint, .. } = host;
        format!("[{name}]\naddress = \"{address}\"\nfingerprint = \"{fingerprint}\"\n")
    };
    let list: String = hosts.iter().map(line).collect();
    let failed = |error| AppError::io("cannot write a list of agents", error);
    std::fs::write(folder.join("agents.toml"), list).map_err(failed)?;
    hosts.iter().for_each(|host| host.process.hang_up());
    Ok(())
}

/// Registers the output, and waits until the receiving agent can open it: both programs.
fn prepare(
    (source, receiver): &(PathBuf, PathBuf),
    file: &Path,
    options: &AgentOptions,
) -> Result<(Client, Client), AppError> {
    let mut held = Client::connect(source, APPLICATION, TOKEN).map_err(failed)?;
    let ranges = (0..options.flows).map(|flow| {
        let (start, end) = (part(options, flow), part(options, flow + 1));
        Range { offset: Bytes::new(start), length: Bytes::new(end - start), info: 0 }
    });
    let path =
        file.to_str().ok_or_else(|| AppError::Failed("the bench's folder has no plain name".to_owned()))?;
    held.register(OUTPUT, path, Index::Ranges(ranges.collect())).map_err(failed)?;
    let mut client = Client::connect(receiver, APPLICATION, TOKEN).map_err(failed)?;
    client.patience(Some(PATIENCE)).map_err(failed)?;
    let began = now();
    // The agents hear of each other a moment after they were told to read their lists.
    for attempt in 0_u64.. {
        let flow = u64::MAX - attempt;
        client.fetch(&wanted(options, flow, 0, 0)).map_err(failed)?;
        match client.next().map_err(failed)? {
            Event::Opened { .. } => {
                client.cancel(flow).map_err(failed)?;
                break;
            }
            Event::Broken { refusal, .. } if began.elapsed() > INTRODUCED_WITHIN => {
                return Err(failed(refusal.into()));
            }
            _ => wait(),
        }
    }
    Ok((held, client))
}

/// Where a flow begins; its parts are as equal as bytes allow.
fn part(options: &AgentOptions, flow: u32) -> u64 {
    let whole = u128::from(options.size.get()) * u128::from(flow) / u128::from(options.flows);
    u64::try_from(whole).expect("it is at most the size")
}

fn wanted(options: &AgentOptions, flow: u64, partition: u32, credit: u64) -> Fetch<'static> {
    let coflow = u64::from(partition % options.coflows);
    Fetch { flow, coflow, host: "source", output: OUTPUT, first: partition, count: 1, credit }
}

struct Fetched {
    seconds: f64,
    mean_cct: f64,
}

/// Fetches all flows at once and takes what comes.
fn fetch(mut client: Client, options: &AgentOptions) -> Result<Fetched, AppError> {
    let began = now();
    for flow in 0..options.flows {
        client.fetch(&wanted(options, u64::from(flow), flow, CREDIT)).map_err(failed)?;
    }
    let (mut left, mut got) = (options.flows, 0);
    let mut ended: BTreeMap<u32, f64> = BTreeMap::new();
    // Credit is given back in halves of what there was, so that frames are few.
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    while left > 0 {
        let credit = match client.next().map_err(failed)? {
            Event::Data { flow, bytes, .. } => {
                let count = bytes.len() as u64;
                got += count;
                let taken = taken.entry(flow).or_default();
                *taken += count;
                (*taken >= CREDIT / 2).then(|| (flow, std::mem::take(taken)))
            }
            Event::End { flow } => {
                left -= 1;
                let coflow = u32::try_from(flow).expect("flows are few") % options.coflows;
                ended.insert(coflow, began.elapsed().as_secs_f64());
                None
            }
            Event::Broken { refusal, .. } => return Err(failed(refusal.into())),
            Event::Opened { .. } => None,
        };
        if let Some((flow, bytes)) = credit {
            client.credit(flow, bytes).map_err(failed)?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    if got != options.size.get() {
        return Err(AppError::Failed(format!("{got} bytes came of {}", options.size.get())));
    }
    let mean_cct = ratio(ended.values().sum(), ended.len() as f64);
    Ok(Fetched { seconds, mean_cct })
}

fn cpu(hosts: &[Host]) -> f64 {
    hosts.iter().map(|host| host.process.cpu_seconds()).sum()
}

/// Connections of an agent that are up.
fn connections(socket: &Path) -> Result<u64, AppError> {
    let status: Value = serde_json::from_str(&Client::status(socket).map_err(failed)?)
        .map_err(|error| AppError::Failed(error.to_string()))?;
    let lanes = status.get("lanes").and_then(Value::as_array);
    let is_up = |lane: &&Value| lane.get("up").and_then(Value::as_bool) == Some(true);
    Ok(lanes.map_or(0, |lanes| lanes.iter().filter(is_up).count()) as u64)
}

/// TCP segments sent again since this namespace began.
fn retransmitted() -> u64 {
    counted("snmp", "Tcp:", "RetransSegs")
}

#[allow(clippy::disallowed_methods, reason = "this measures the machine")]
fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "two processes get to know each other")]
fn wait() {
    std::thread::sleep(Duration::from_millis(20));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_nearly_equal_and_leave_nothing_out() {
        let options = AgentOptions { size: Bytes::new(1_000_003), flows: 7, coflows: 2 };
        let parts: Vec<u64> = (0..7).map(|flow| part(&options, flow + 1) - part(&options, flow)).collect();
        assert_eq!(parts.iter().sum::<u64>(), 1_000_003);
        assert!(parts.iter().max().unwrap() - parts.iter().min().unwrap() <= 1, "{parts:?}");
    }
}
