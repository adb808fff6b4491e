//! The set-up of a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_units::{BitRate, Bytes, Duration};

use crate::{CONTROLLER_PORT, Common, ControllerSettings, NODE_PORT, Where, wildcard};

/// Most time that a node which is asked to stop goes on for receivers that it alone can serve: shorter than the 90 s
/// after which systemd kills.
const DRAIN: Duration = Duration::from_secs(30);

/// How a node is set up: made for a state folder, and changed by its methods.
///
/// ```
/// # use headwater_api::Config;
/// let first = Config::new("/var/lib/headwater");
/// let second = Config::new("/var/lib/headwater").join("first.example:7000").name("second").label("zone", "eu");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Its state folder, and what holds for all that it sends and receives.
    pub common: Common,
    /// The most its store may hold; no limit if absent.
    pub quota: Option<Bytes>,
    /// Whether it serves others.
    pub kind: NodeKind,
}

/// Whether a node serves others.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// It listens, keeps objects in its store, offers them to everybody, and takes part in casts. It is the one process that has the
    /// state folder's store open; commands with the same folder ask it.
    Resident {
        /// Its controller.
        controller: ControllerAt,
        /// Where it listens for control links; port 7001 of every address if absent, 7000 with a controller of its own. Port 0 is any
        /// free one.
        listen: Option<SocketAddr>,
        /// Where Prometheus and health checks may ask, by HTTP.
        metrics: Option<SocketAddr>,
        /// Most time that [`crate::Node::close`] goes on for receivers that are served from here.
        drain: Duration,
    },
    /// It listens nowhere and has no sockets but while a transfer runs, each of which has its own. Its puts, and its
    /// gets into the store, go into the state folder's store: by the resident node of that folder if there is one, else
    /// by itself.
    Guest(Where),
}

/// The controller of a resident node.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerAt {
    /// In the node itself; others join it at the node's address.
    Here(ControllerSettings),
    /// Elsewhere, `host:port`. It need not be there yet: it is dialled until it answers.
    Elsewhere(String),
}

impl Config {
    /// A resident node with a controller of its own, as the first of a cluster has it.
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Config::resident(Common::new(state), ControllerAt::Here(ControllerSettings::default()))
    }

    /// A resident node with these settings.
    pub fn resident(common: Common, controller: ControllerAt) -> Self {
        let kind = NodeKind::Resident { controller, listen: None, metrics: None, drain: DRAIN };
        Config { common, quota: None, kind }
    }

    /// A node that serves nobody, and fetches from these.
    pub fn guest(common: Common, at: Where) -> Self {
        Config { common, quota: None, kind: NodeKind::Guest(at) }
    }

    /// Belongs to the controller at `controller` (`host:port`), instead of one of its own.
    #[must_use]
    pub fn join(mut self, controller: impl Into<String>) -> Self {
        match &mut self.kind {
            NodeKind::Resident { controller: own, .. } => *own = ControllerAt::Elsewhere(controller.into()),
            NodeKind::Guest(at) => *at = Where::Controller(controller.into()),
        }
        self
    }

    /// Listens here; a guest does not listen. Its data socket has the same address, and a port of its own.
    #[must_use]
    pub fn listen(mut self, at: SocketAddr) -> Self {
        if let NodeKind::Resident { listen, .. } = &mut self.kind {
            *listen = Some(at);
        }
        self
    }

    /// Answers Prometheus and health checks here; a guest does not.
    #[must_use]
    pub fn metrics(mut self, at: SocketAddr) -> Self {
        if let NodeKind::Resident { metrics, .. } = &mut self.kind {
            *metrics = Some(at);
        }
        self
    }

    /// Most time that [`crate::Node::close`] goes on for receivers that are served; 30 s unless stated.
    #[must_use]
    pub fn drain(mut self, within: Duration) -> Self {
        if let NodeKind::Resident { drain, .. } = &mut self.kind {
            *drain = within;
        }
        self
    }

    /// Name of the node; its host name unless stated.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.common.node_name = Some(name.into());
        self
    }

    /// Others can name it by this label, as receivers of a cast.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.common.labels.insert(key.into(), value.into());
        self
    }

    /// Capacities of this machine's links, as its operator states them: they pace flows that begin, and pulls.
    #[must_use]
    pub fn capacity(mut self, uplink: BitRate, downlink: BitRate) -> Self {
        (self.common.uplink, self.common.downlink) = (Some(uplink), Some(downlink));
        self
    }

    /// Most bytes that the store may hold; objects that are there stay.
    #[must_use]
    pub fn quota(self, quota: Bytes) -> Self {
        Config { quota: Some(quota), ..self }
    }

    /// Where a resident node listens.
    pub(super) fn listens_at(controller: &ControllerAt, listen: Option<SocketAddr>) -> SocketAddr {
        listen.unwrap_or_else(|| {
            wildcard(match controller {
                ControllerAt::Here(_) => CONTROLLER_PORT,
                ControllerAt::Elsewhere(_) => NODE_PORT,
            })
        })
    }
}
