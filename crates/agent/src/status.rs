//! Status of an agent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headwater_units::Bytes;
use serde::Serialize;
use thiserror::Error;

use crate::fields::Name;

/// Why an agent cannot begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A root cannot be opened.
    #[error("the root {path} cannot be opened: {source}", path = path.display())]
    Root {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The local socket cannot be bound.
    #[error("the socket {path} cannot be used: {source}", path = path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The identity cannot be used for TLS.
    #[error(transparent)]
    Identity(#[from] headwater_control::ControlError),
    /// A limit makes no sense.
    #[error("{0}")]
    Limits(#[from] headwater_policy::PlanError),
}

/// An agent at one moment, and what it has done since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AgentStatus {
    /// This host, as the list of agents calls it; `None`: it is not in the list, and no program elsewhere can ask for its outputs.
    pub host: Option<Name>,
    /// Congestion control of its connections, as the kernel says.
    pub congestion: String,
    /// Whether the kernel asks for ECN on connections that go out (`net.ipv4.tcp_ecn` is 1, or DCTCP).
    pub ecn: bool,
    /// Whether coflows are scheduled: a scheduler has spoken within the last second.
    pub ordered: bool,
    /// Coflows that are being fetched, the most important first.
    pub coflows: Vec<CoflowStatus>,
    /// Lanes from other hosts, by host.
    pub lanes: Vec<LaneStatus>,
    /// Connections that other agents have dialled and that are open.
    pub serving: usize,
    /// Applications of this host.
    pub applications: usize,
    /// Their outputs.
    pub outputs: usize,
    /// Memory that is promised to flows, and the most that ever was, in bytes.
    pub memory_used: u64,
    /// The most that ever was.
    pub memory_most: u64,
    /// Bytes received from other agents.
    pub bytes_received: u64,
    /// Bytes sent to other agents.
    pub bytes_sent: u64,
    /// Flows that ended as they should.
    pub flows_done: u64,
    /// Flows that broke.
    pub flows_broken: u64,
    /// Blocks that were asked for again after a connection broke.
    pub blocks_again: u64,
    /// Connections that broke.
    pub resets: u64,
    /// Diallers whose keys nobody knows.
    pub strangers: u64,
    /// Frames of programs and agents that broke the protocol.
    pub malformed: u64,
    /// Times that the scheduler fell silent.
    pub silences: u64,
}

/// Facts about a coflow at the host that fetches it, for a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoflowDemand {
    /// Its application.
    pub application: Name,
    /// Which of the application's.
    pub coflow: u64,
    /// Bytes that are here, since it has had flows here without a pause.
    pub here: Bytes,
    /// Bytes left, by the host that they are fetched from; `None` where a flow's length is not known yet.
    pub from: BTreeMap<Name, Option<Bytes>>,
}

/// A coflow at the host that fetches it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoflowStatus {
    /// Its application.
    pub application: Name,
    /// Which of the application's.
    pub coflow: u64,
    /// Its rank, if there is an order.
    pub rank: Option<u32>,
    /// Flows that are not complete.
    pub flows: usize,
    /// Of those, flows that wait for their program's credit.
    pub stalled: usize,
    /// Bytes that are here, of all its flows so far.
    pub bytes: u64,
    /// Bytes that are known to be left.
    pub left: u64,
    /// Hosts that it still fetches from.
    pub from: Vec<String>,
}

/// A connection from another host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneStatus {
    /// The host.
    pub host: String,
    /// Its class.
    pub class: u8,
    /// Its number among those of its class.
    pub number: u32,
    /// Whether it is up.
    pub up: bool,
    /// Bytes that came by it.
    pub bytes: u64,
}
