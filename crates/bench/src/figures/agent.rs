//! Two agents on this machine as processes of their own, and a program that fetches from one by the other: rate, processor time and
//! memory.
//!
//! The output lies in memory, where there is room. The program counts the bytes and checks that none is missing; its processor time is not
//! the agents'.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use headwater_agent::client::{Client, Event, Fetch};
use headwater_api::{AppError, Shutdown};
use headwater_units::Bytes;
use serde::Serialize;

use super::{BenchWatch, ratio};
use crate::agents::{Agent, Application, connections, failed, now, write_list};
use crate::shuffle::counted;
use crate::subprocess::{Guard, Process, Scratch, without_settings, write_random};

/// Room that the program has for each flow before it has read any of it.
const CREDIT: u64 = 4 << 20;
const SOURCE: &str = "source";
const BENCH: Application = Application {
    name: "bench",
    token: b"the bench's own token",
    output: "output",
    patience: Duration::from_secs(60),
    introduced_within: Duration::from_secs(10),
};
const SEED: u64 = 1;
const GIB: f64 = 1_073_741_824.0;

/// Options of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOptions {
    /// Bytes of all flows together.
    pub size: Bytes,
    /// Flows at once, at least 1.
    pub flows: u32,
    /// Coflows that they belong to in turn, at least 1.
    pub coflows: u32,
}

/// Measured figures.
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
    write_list(&list(scratch.path()), [])?;
    for name in [SOURCE, "receiver"] {
        hosts.push(Host::start(name, scratch.path(), &guard).await?);
    }
    write_list(&list(scratch.path()), hosts.iter().map(|host| &host.agent))?;
    hosts.iter().for_each(|host| host.process.hang_up());
    watch.begun("agent", 1, 1);
    let file = hosts[0].root.join(BENCH.output);
    write_random(&file, options.size, SEED)?;
    let sockets = (hosts[0].agent.socket.clone(), hosts[1].agent.socket.clone());
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
    let connections = connections(&hosts[1].agent.socket)?;
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

/// An agent that runs.
struct Host {
    process: Process,
    agent: Agent,
    root: PathBuf,
}

impl Host {
    async fn start(name: &'static str, folder: &Path, guard: &Guard) -> Result<Host, AppError> {
        let (state, root) = (folder.join(name), folder.join(format!("{name}-data")));
        let failed = |error| AppError::io(format!("cannot make {}", root.display()), error);
        std::fs::create_dir_all(&root).map_err(failed)?;
        let program =
            std::env::current_exe().map_err(|error| AppError::io("cannot find this program", error))?;
        let mut command = Command::new(program);
        without_settings(&mut command);
        command.args(["agent", "--json", "--listen", "127.0.0.1:0"]);
        command.arg("--state").arg(&state).arg("--root").arg(&root).arg("--peers").arg(list(folder));
        let log = folder.join(format!("{name}.log"));
        let mut process = Process::start(&format!("the bench's {name}"), command, log, guard)?;
        let Some(ready) = process.json().await else { return Err(process.failed("did not start")) };
        let Some(agent) = Agent::of(name, &ready) else {
            return Err(process.failed("does not say where it listens"));
        };
        Ok(Host { process, agent, root })
    }
}

/// The file by which agents know each other.
fn list(folder: &Path) -> PathBuf {
    folder.join("agents.toml")
}

/// Registers the output, and waits until the receiving agent can open it: both programs.
fn prepare(
    (source, receiver): &(PathBuf, PathBuf),
    file: &Path,
    options: &AgentOptions,
) -> Result<(Client, Client), AppError> {
    let lengths = (0..options.flows).map(|flow| part(options, flow + 1) - part(options, flow));
    let held = BENCH.register(source, file, lengths)?;
    let mut client = BENCH.connect(receiver)?;
    BENCH.find(&mut client, SOURCE)?;
    Ok((held, client))
}

/// Where a flow begins; its parts are as equal as bytes allow.
fn part(options: &AgentOptions, flow: u32) -> u64 {
    let whole = u128::from(options.size.get()) * u128::from(flow) / u128::from(options.flows);
    u64::try_from(whole).expect("it is at most the size")
}

struct Fetched {
    seconds: f64,
    mean_cct: f64,
}

/// Fetches all flows at once and takes what comes.
fn fetch(mut client: Client, options: &AgentOptions) -> Result<Fetched, AppError> {
    let began = now();
    for flow in 0..options.flows {
        let coflow = u64::from(flow % options.coflows);
        let wanted = Fetch { credit: CREDIT, ..BENCH.fetch(flow.into(), coflow, SOURCE, flow) };
        client.fetch(&wanted).map_err(failed)?;
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

/// TCP segments sent again since this namespace began.
fn retransmitted() -> u64 {
    counted("snmp", "Tcp:", "RetransSegs")
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
