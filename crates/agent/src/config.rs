//! Configuration of an agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_policy::coflow::courier::Limits;
use headwater_transport::courier::CourierConfig;
use headwater_units::{Bytes, Duration};

use crate::peers::Peers;

/// How much one user may have at an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Applications. 256.
    pub applications: usize,
    /// Programs that are connected. 4,096.
    pub programs: usize,
    /// Outputs, each of which keeps a file open. 32,768.
    pub outputs: usize,
    /// Flows that are fetched at once. 16,384.
    pub flows: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas { applications: 256, programs: 4_096, outputs: 32_768, flows: 16_384 }
    }
}

/// An agent's settings.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where agents of other hosts dial (TCP).
    pub listen: SocketAddr,
    /// The path of the socket for programs of this host. Mode 0660: its user and group.
    pub socket: PathBuf,
    /// Folders beneath which programs may name files.
    pub roots: Vec<PathBuf>,
    /// The agents of other hosts.
    pub peers: Peers,
    /// Memory for bytes that are on their way to programs. 256 MiB.
    pub memory: Bytes,
    /// Lanes: MaxNum and MinSize of Algorithm 3, and one lane for each pair of hosts.
    pub limits: Limits,
    /// The machine's settings. One class: more are of use where switches keep classes apart. 8 blocks under way in a lane: 2 as in the
    /// paper leave a lane idle while processes wake up.
    pub courier: CourierConfig,
    /// How much each user may have.
    pub quotas: Quotas,
    /// For how long a peer may be away before flows from it end. 20 s.
    pub patience: Duration,
    /// For how long an application is kept that has no program here and whose outputs nobody asks for. 24 hours.
    pub keep_unused: Duration,
    /// Congestion control of connections: the first that the kernel has and gives to this user, or its own. `dctcp`, `cubic`, `reno`:
    /// those that give way where a switch marks.
    pub congestion: Vec<String>,
}

impl AgentConfig {
    /// The defaults, with these addresses.
    pub fn new(listen: SocketAddr, socket: PathBuf) -> Self {
        AgentConfig {
            listen,
            socket,
            roots: Vec::new(),
            peers: Peers::default(),
            memory: Bytes::mib(256),
            limits: Limits { max_per_pair: Some(1), ..Limits::default() },
            courier: CourierConfig { classes: 1, pipeline: 8, ..CourierConfig::default() },
            quotas: Quotas::default(),
            patience: Duration::from_secs(20),
            keep_unused: Duration::from_secs(24 * 3_600),
            congestion: ["dctcp", "cubic", "reno"].map(str::to_owned).into(),
        }
    }
}
