//! One process: its key, its control links, its data socket, its objects, and a controller if it runs one.
//!
//! Every link gets a path. What arrives on it is for the controller, or for the machines of the data thread, by its
//! kind; what those say to the path goes back out. Path 0 leads from this process's machines to its own controller.

mod addresses;
mod dialling;
mod hashes;
mod keys;
mod links;
mod messages;
mod names;
mod objects;
mod query_door;
mod remembered;
mod reports;
mod running;
mod setup;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard};

use headwater_control::{ControlConfig, ControlEndpoint, Link, Pins};
use headwater_controller::ControllerConfig;
use headwater_store::{BlockHashes, NameFacts, SourceFile};
use headwater_units::{Duration, NodeId, ObjectId, PathId};
use headwater_wire::{CoflowRank, Control, Holding, NodeInfo, Spoiled, ToNode};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

use self::keys::{Key, key_for};
pub(crate) use self::names::{NameNews, given, refused, rule};
use self::setup::{bind_control, host_name, prepare_codec};
use super::controller_host::ControllerHost;
use super::events::EventFeed;
use super::occupant::Protocol;
use super::ops::Ops;
use super::outbox::Outbox;
use super::{AppError, Common, USUAL_MTU};
use headwater_driver::{Node, NodeConfig, Snapshot, control_path, room_in};

/// From this process's machines to its own controller.
pub(crate) const LOCAL: PathId = control_path(0);

/// How a process is set up.
pub(crate) struct HostConfig<'a> {
    pub(crate) common: &'a Common,
    /// Where it listens for control links; only dials if absent.
    pub(crate) listen: Option<SocketAddr>,
    /// Run a controller, with its tasks kept in this file if one is given.
    pub(crate) controller: Option<(ControllerConfig, Option<PathBuf>)>,
    /// Run a data socket.
    pub(crate) node: Option<NodeConfig>,
    /// Others may be served from what it receives, although it does not listen.
    pub(crate) passes_on: bool,
}

/// An object that this process can send.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) hashes: BlockHashes,
    /// Names that point at it; none for a file of a folder.
    pub(crate) names: BTreeMap<String, NameFacts>,
}

struct Peer {
    link: Link,
    out: Outbox,
}

impl Peer {
    /// Says something over the link; false if it has ended.
    fn say(&self, control: impl Into<Control>) -> bool {
        self.out.say(control)
    }
}

#[derive(Default)]
struct State {
    peers: BTreeMap<PathId, Peer>,
    held: BTreeMap<ObjectId, Held>,
    /// What others said they hold.
    held_by: remembered::Holders,
    hashes: hashes::Remembered,
    /// Objects held until their copies turned out not to be them any more: how, and as what they were offered.
    spoiled: BTreeMap<ObjectId, (Spoiled, Vec<Holding>)>,
    /// Where nodes said that they are reached.
    labels: remembered::Labels,
    /// Listener for invitations to casts, each with the path it came by.
    on_invitations: Option<UnboundedSender<(PathId, ToNode)>>,
    /// Listeners for news of the casts that this process has asked for.
    on_casts: Vec<UnboundedSender<(PathId, ToNode)>>,
    /// Listener for the order of coflows.
    on_ranks: Option<UnboundedSender<Vec<CoflowRank>>>,
    /// This node fetches what it is invited to, and says so.
    keeps: bool,
    asked: names::Asked,
    /// It is about to stop, and says so.
    leaving: bool,
    /// Where its controller is, if that is elsewhere.
    controller_at: Option<String>,
}

/// The process. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: ControlEndpoint,
    key: Key,
    listen: Option<SocketAddr>,
    controller: Option<ControllerHost>,
    node: Option<Node>,
    next_path: AtomicU32,
    state: Mutex<State>,
    template: Mutex<NodeInfo>,
    ops: Ops,
    events: EventFeed,
    /// Tasks that run as long as the process does; those that have ended are left out now and then.
    tasks: Mutex<Vec<AbortHandle>>,
    answers: messages::Answers,
    /// Hashes have come, or are not asked for any more.
    hashes_changed: tokio::sync::watch::Sender<()>,
    passes_on: bool,
    pin: Option<NodeId>,
    mtu: Option<u16>,
    /// How long somebody who is there may take to answer.
    patience: Duration,
    /// The user has stated it, and so it holds for silent peers too.
    patience_stated: bool,
}

impl Host {
    /// Sets everything up; links are accepted from now on.
    pub(crate) fn start(config: HostConfig<'_>) -> Result<Host, AppError> {
        let common = config.common;
        let key = key_for(&common.state, config.listen)?;
        let identity = &key.identity;
        let pins = Pins::open(&common.state)?;
        let (bind, control) = match config.listen {
            Some(listen) => (listen, ControlConfig::default()),
            None => (SocketAddr::from(([0u16; 8], 0)), ControlConfig { max_links: 0, ..Default::default() }),
        };
        let endpoint = bind_control(bind, config.listen.is_none(), identity, pins, control)?;
        let listen = config.listen.map(|_| endpoint.local_addr());
        let controller = match config.controller {
            Some((settings, file)) => Some(ControllerHost::start(settings, file.as_deref())?),
            None => None,
        };
        let (node, events) = match config.node {
            Some(settings) => {
                let bind = settings.bind;
                let (node, events) = Node::start(settings).map_err(|e| {
                    AppError::no_socket("open the data socket", "--data-port", Protocol::Udp, bind, &e)
                })?;
                (Some(node), Some(events))
            }
            None => (None, None),
        };
        let template = NodeInfo {
            node: identity.node(),
            name: common.node_name.clone().unwrap_or_else(host_name),
            listen,
            data: node.iter().map(Node::data_address).collect(),
            uplink: common.uplink,
            downlink: common.downlink,
            rack: common.rack.clone(),
            labels: common.labels.clone(),
            room: 0,
            incarnation: rand::random(),
            rtt: None,
            seen: None,
        };
        let inner = Inner {
            endpoint,
            key,
            listen,
            controller,
            node,
            next_path: AtomicU32::new(1),
            state: Mutex::default(),
            template: Mutex::new(template),
            ops: Ops::new(),
            events: EventFeed::new(),
            tasks: Mutex::default(),
            answers: messages::Answers::default(),
            hashes_changed: tokio::sync::watch::Sender::new(()),
            passes_on: config.passes_on || listen.is_some(),
            pin: common.pin,
            mtu: common.mtu,
            patience: common.patience,
            patience_stated: common.patience_stated,
        };
        let host = Host { inner: Arc::new(inner) };
        host.attach_local();
        if let Some(events) = events {
            host.depends_on("the data thread", host.clone().send_out(events));
        }
        if let Some(controller) = host.inner.controller.clone() {
            host.depends_on("the controller", async move { controller.ended().await });
        }
        if host.inner.listen.is_some() {
            host.depends_on("the control listener", host.clone().accept());
            // Receivers will ask a listening process to send.
            if let Some(data) = host.data_address() {
                let room = room_in(common.mtu.unwrap_or(USUAL_MTU), data);
                tokio::task::spawn_blocking(move || prepare_codec(room));
            }
        }
        Ok(host)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().expect("no holder of this lock panics")
    }

    /// The data side.
    pub(crate) fn node(&self) -> &Node {
        self.inner.node.as_ref().expect("this process was set up with a data socket")
    }

    /// This process's name.
    pub(crate) fn id(&self) -> NodeId {
        self.inner.key.identity.node()
    }

    /// Where its data socket receives, if it has one.
    pub(crate) fn data_address(&self) -> Option<SocketAddr> {
        self.inner.node.as_ref().map(Node::data_address)
    }

    /// The counters of its data side, if it has one.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.inner.node.as_ref().map(Node::snapshot)
    }

    /// Where it listens.
    pub(crate) fn listen(&self) -> Option<SocketAddr> {
        self.inner.listen
    }

    /// Advice about the buffer of its control links that the kernel clipped.
    pub(crate) fn control_buffer_hint(&self) -> Option<&str> {
        self.inner.endpoint.buffer_hint()
    }

    /// Its controller.
    pub(crate) fn controller(&self) -> Option<&ControllerHost> {
        self.inner.controller.as_ref()
    }

    /// Whether others may be served from what comes here.
    pub(crate) fn passes_on(&self) -> bool {
        self.inner.node.is_some() && self.inner.passes_on
    }

    /// Only who serves others, or has capacities to state, has something to say of itself.
    fn introduces_itself(&self) -> bool {
        let info = self.template();
        let states = info.uplink.is_some() || info.downlink.is_some() || info.rack.is_some();
        self.inner.node.is_some() && (self.inner.passes_on || states)
    }
}
