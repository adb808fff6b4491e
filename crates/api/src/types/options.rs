//! Options of each command.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_controller::{CoflowPolicy, ControllerConfig, GroupRange, NetworkSpec};
use headwater_units::{BitRate, Duration, NodeId, Theta};
use headwater_wire::CodePoints;

use crate::Experiments;

/// Default maximum wait for a peer that is connected but busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options of every command.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// Keys, pins and the store.
    pub state: PathBuf,
    /// Name of this machine; its host name if absent.
    pub node_name: Option<String>,
    /// The one fingerprint that the contacted node (each of them, with several) may have.
    pub pin: Option<NodeId>,
    /// Rate that this machine may send at, as the operator states it.
    pub uplink: Option<BitRate>,
    /// Rate that this machine may receive at, as the operator states it.
    pub downlink: Option<BitRate>,
    /// The rack this machine is in, and the capacity of the rack's uplink where known.
    pub rack: Option<(String, Option<BitRate>)>,
    /// Labels of this machine, key and value, beside its rack.
    pub labels: BTreeMap<String, String>,
    /// A cap on what this process sends, or on what it asks to be sent.
    pub limit: Option<BitRate>,
    /// Background class: yields to everything else.
    pub gentle: bool,
    /// Differentiated services code points, by class.
    pub dscp: CodePoints,
    /// The largest IP packet to use; `None`: what the interface and the path say.
    pub mtu: Option<u16>,
    /// UDP port of the data socket; 0: any free one.
    pub data_port: u16,
    /// Loss alone never shrinks a window (the papers' experiments).
    pub loss_response_ignore: bool,
    /// Maximum wait for a controller or source that is connected; one that is not is given up sooner.
    pub patience: Duration,
    /// The user has said how long: then one that is silent is waited for as well.
    pub patience_stated: bool,
    /// Options for experiments.
    pub experiments: Experiments,
}

impl Common {
    /// The usual settings, with this state folder.
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Common {
            state: state.into(),
            node_name: None,
            pin: None,
            uplink: None,
            downlink: None,
            rack: None,
            labels: BTreeMap::new(),
            limit: None,
            gentle: false,
            dscp: CodePoints::default(),
            mtu: None,
            data_port: 0,
            loss_response_ignore: false,
            patience: PATIENCE,
            patience_stated: false,
            experiments: Experiments::default(),
        }
    }
}

/// Where sources come from. Every address is `host:port`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// A controller chooses them.
    Controller(String),
    /// These, with a controller inside the receiver.
    From(Vec<String>),
    /// Nobody is known: only this machine's own store.
    Here,
}

/// Where an object goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// To this file, or into this folder; into a device or a pipe, as to standard output.
    File(PathBuf),
    /// To standard output, in order, as blocks finish.
    Stdout,
    /// To a file in the current folder with the object's name, or its id if it has none.
    Default,
    /// Into this machine's store, by its daemon if one runs.
    Store,
}

/// `headwater serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeOptions {
    /// Options of every command.
    pub common: Common,
    /// Files and folders, at least one.
    pub files: Vec<PathBuf>,
    /// The object's name instead of the file's; only with one file.
    pub name: Option<String>,
    /// Leave out of folders what cannot be delivered, instead of refusing them.
    pub skip_special: bool,
    /// Folders' entries keep when they were last written to.
    pub times: bool,
    /// Address of the controller to report to, as `host:port`.
    pub controller: Option<String>,
    /// Where to listen; `None`: [`wildcard`](super::wildcard) of [`NODE_PORT`](super::NODE_PORT).
    pub listen: Option<SocketAddr>,
    /// Address for Prometheus and health checks.
    pub metrics: Option<SocketAddr>,
    /// Most time that a process which is to stop goes on for receivers that are served from here.
    pub drain: Duration,
    /// Record the machines' inputs here.
    pub record: Option<PathBuf>,
}

/// Settings of a controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControllerSettings {
    /// Weight 1 for every flow instead of PPUSH's Algorithm 1 (control experiments).
    pub equal_theta: bool,
    /// Sources per task; at least 1, 3 if absent.
    pub max_sources: Option<u8>,
    /// Addresses for the groups of casts; those of `GroupRange::ORGANIZATION` and `GroupRange::SITE` if absent.
    pub groups: Option<Vec<GroupRange>>,
    /// By which policy coflows are ordered that agents fetch.
    pub coflows: CoflowPolicy,
}

impl ControllerSettings {
    pub(crate) fn config(&self, common: &Common) -> ControllerConfig {
        let config = common.experiments.controller_config(self.equal_theta.then_some(Theta::ONE));
        ControllerConfig {
            max_sources: self.max_sources.unwrap_or(config.max_sources),
            coflows: self.coflows,
            groups: self.groups.clone().unwrap_or_else(|| config.groups.clone()),
            ..config
        }
    }
}

/// `headwater controller`.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerOptions {
    /// Options of every command.
    pub common: Common,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address for Prometheus and health checks.
    pub metrics: Option<SocketAddr>,
    /// Settings of its planning.
    pub settings: ControllerSettings,
    /// The network, by whose trees casts go.
    pub network: Option<NetworkSpec>,
}

/// `headwater ls` and `headwater status`: a question to a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryOptions {
    /// Options of every command.
    pub common: Common,
    /// Address of the controller to ask, as `host:port`; `None`: this machine's own state, without any network.
    pub controller: Option<String>,
    /// Time without an answer after which it gives up.
    pub timeout: Duration,
}

/// `headwater forget`.
#[derive(Clone, Debug, PartialEq)]
pub struct ForgetOptions {
    /// Options of every command.
    pub common: Common,
    /// The controller (`host:port`).
    pub controller: String,
    /// A node's name or address, or the beginning of its fingerprint.
    pub what: String,
    /// Time without an answer after which it gives up.
    pub timeout: Duration,
}

/// `headwater rm`.
#[derive(Clone, Debug, PartialEq)]
pub struct RmOptions {
    /// Options of every command.
    pub common: Common,
    /// A name, an id, or the beginning of one.
    pub what: String,
}

/// `headwater gc`.
#[derive(Clone, Debug, PartialEq)]
pub struct GcOptions {
    /// Options of every command.
    pub common: Common,
    /// Only say what would go.
    pub dry_run: bool,
}
