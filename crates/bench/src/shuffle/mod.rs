//! Programs of a shuffle on real networks: one that serves map outputs by plain TCP, and one that fetches them, by a connection for each flow
//! or through the agent of its host. `headwater debug shuffle` runs them; what they fetch is a [`Plan`].
//!
//! Flows carry zeros: agents check bytes in their own tests, and here only their number counts.

mod by_agent;
mod by_tcp;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use headwater_api::AppError;
use serde::{Deserialize, Serialize};

pub use by_tcp::serve;

use crate::subprocess::monotonic_ns;

/// Plan of a host's fetches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Connections to fetch by.
    pub via: Via,
    /// Coflows to fetch, every one at its time.
    pub coflows: Vec<PlannedCoflow>,
}

/// How flows are carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Via {
    /// By a connection each.
    Tcp {
        /// The kernel's congestion control; its own choice if absent.
        congestion: Option<String>,
    },
    /// Through the agent of this host.
    Agent {
        /// Its socket.
        socket: PathBuf,
        /// Output that this host holds for others: a file, and the length of each partition in it.
        file: PathBuf,
        /// See [`Via::Agent::file`].
        partitions: Vec<u64>,
        /// Hosts whose agents this one must reach before it begins.
        others: Vec<String>,
    },
}

/// Flows of one coflow to this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCoflow {
    /// Its number.
    pub coflow: u32,
    /// When it begins, after the start.
    pub at_ns: u64,
    /// Its flows.
    pub flows: Vec<PlannedFlow>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedFlow {
    /// The source: IP:PORT for TCP, the name of a host for agents.
    pub from: String,
    /// Which partition of that host's output.
    pub partition: u32,
    /// Its length.
    pub bytes: u64,
}

/// Messages of the program that fetches.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Fetched {
    /// It waits for its start.
    Ready,
    /// All flows of a coflow to this host are here.
    Ended {
        /// The coflow.
        coflow: u32,
        /// When, CLOCK_MONOTONIC.
        at_ns: u64,
    },
    /// Everything is here.
    Done {
        /// Connections that brought it.
        connections: u64,
        /// TCP segments that this host has sent again, and timeouts that it had.
        resent: u64,
        /// See [`Fetched::Done::resent`].
        timeouts: u64,
    },
}

/// Fetches. Says [`Fetched::Ready`], waits for `start`, and says the rest as it happens.
///
/// # Errors
/// A flow that breaks, or does not bring what it should.
pub async fn fetch(
    plan: Plan,
    say: &mut dyn FnMut(Fetched) -> Result<(), AppError>,
    start: impl AsyncFnOnce() -> Result<(), AppError>,
) -> Result<(), AppError> {
    let (to, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let count = plan.coflows.len();
    let flows: usize = plan.coflows.iter().map(|it| it.flows.len()).sum();
    let mut programs = match &plan.via {
        Via::Tcp { .. } => None,
        Via::Agent { .. } => Some(by_agent::prepare(&plan)?),
    };
    say(Fetched::Ready)?;
    start().await?;
    for coflow in plan.coflows {
        let to = to.clone();
        let after = Duration::from_nanos(coflow.at_ns);
        match (&plan.via, &mut programs) {
            (_, Some(programs)) => programs.begin(coflow, after, to),
            (Via::Tcp { congestion }, None) => by_tcp::begin(coflow, after, congestion.clone(), to),
            (Via::Agent { .. }, None) => unreachable!("they were prepared"),
        }
    }
    for _ in 0..count {
        let end: Result<u32, AppError> = ended
            .recv()
            .await
            .ok_or_else(|| AppError::Failed("a program of the shuffle is gone".to_owned()))?;
        say(Fetched::Ended { coflow: end?, at_ns: monotonic_ns() })?;
    }
    let connections = match &programs {
        Some(programs) => programs.connections()?,
        None => flows as u64,
    };
    let (resent, timeouts) =
        (counted("snmp", "Tcp:", "RetransSegs"), counted("netstat", "TcpExt:", "TCPTimeouts"));
    say(Fetched::Done { connections, resent, timeouts })
}

/// Listener for the ends of coflows, or their errors.
type Ends = tokio::sync::mpsc::UnboundedSender<Result<u32, AppError>>;

/// A counter of this network namespace, 0 where the kernel has none of this name.
pub(crate) fn counted(file: &str, group: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(it, _)| *it == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}
