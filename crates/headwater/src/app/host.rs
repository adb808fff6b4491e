//! One process: its key, its control links, its data socket, its objects, and a controller if it runs one.
//!
//! Every link gets a path. What arrives on it is for the controller, or for the machines of the data thread, by its
//! kind; what those say to the path goes back out. Path 0 is the way from this process's machines to its own controller.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use headwater_store::{BlockHashes, SourceFile};
use headwater_transport::ppush::controller::ControllerConfig;
use headwater_units::{Bytes, Duration, NodeId, ObjectId, PathId};
use headwater_wire::{Control, GroupQuestion, Holding, NodeInfo};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::controller_host::ControllerHost;
use super::query::{Answer, Query, ask};
use super::report::report;
use super::{AppError, Common, DataPath, StatusReport};
use crate::control::{Backoff, ControlConfig, ControlEndpoint, ControlError, Expect, Identity, Link, Pins};
use crate::node::{GroupProbe, Node, NodeConfig, Said, Snapshot, control_path, room_towards};
use crate::socket::GroupAddr;

/// From this process's machines to its own controller.
pub(crate) const LOCAL: PathId = control_path(0);
/// How long queued messages may take to arrive when the process ends, and the closing of connections to leave.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(250);
const CLOSING: std::time::Duration = std::time::Duration::from_millis(5);
/// A status waits so long for what nodes say of their sockets.
const DATA_PATH_PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);
/// A group's members are asked so often whether they hear it, and waited for so long each time.
const GROUP_PROBES: (u32, headwater_units::Duration) = (3, headwater_units::Duration::from_millis(100));
/// Block hashes of this many objects of others are remembered.
const HASHES_KEPT: usize = 64;

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
    pub(crate) names: BTreeSet<String>,
}

struct Peer {
    link: Link,
    out: UnboundedSender<Control>,
}

#[derive(Default)]
struct State {
    peers: BTreeMap<PathId, Peer>,
    held: BTreeMap<ObjectId, Held>,
    /// What others said they hold: by object, their paths and the size.
    held_by: BTreeMap<ObjectId, (Bytes, BTreeSet<PathId>)>,
    hashes: BTreeMap<ObjectId, BlockHashes>,
    /// Where nodes said that they are reached.
    labels: BTreeMap<NodeId, String>,
    /// Who is told what is said of casts, and by which path.
    on_casts: Option<UnboundedSender<(PathId, Control)>>,
    /// This node fetches what it is invited to, and says so.
    keeps: bool,
}

/// The process. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: ControlEndpoint,
    identity: Arc<Identity>,
    listen: Option<SocketAddr>,
    controller: Option<ControllerHost>,
    node: Option<Node>,
    next_path: AtomicU32,
    state: Mutex<State>,
    template: NodeInfo,
    passes_on: bool,
    pin: Option<NodeId>,
    mtu: Option<u16>,
}

impl Host {
    /// Sets everything up; links are accepted from now on.
    pub(crate) fn start(config: HostConfig<'_>) -> Result<Host, AppError> {
        let common = config.common;
        let identity = Arc::new(identity_for(&common.state, config.listen)?);
        let pins = Pins::open(&common.state)?;
        let (bind, control) = match config.listen {
            Some(listen) => (listen, ControlConfig::default()),
            None => (SocketAddr::from(([0u16; 8], 0)), ControlConfig { max_links: 0, ..Default::default() }),
        };
        let endpoint = bind_control(bind, config.listen.is_none(), &identity, pins, control)?;
        let listen = config.listen.map(|_| endpoint.local_addr());
        let controller = match config.controller {
            Some((settings, file)) => Some(ControllerHost::start(settings, file.as_deref())?),
            None => None,
        };
        let (node, said) = match config.node {
            Some(settings) => {
                let bind = settings.bind;
                let (node, said) = Node::start(settings)
                    .map_err(|e| AppError::io(format!("cannot open the data socket on {bind}"), e))?;
                (Some(node), Some(said))
            }
            None => (None, None),
        };
        let template = NodeInfo {
            node: identity.node(),
            name: host_name(),
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
            identity,
            listen,
            controller,
            node,
            next_path: AtomicU32::new(1),
            state: Mutex::default(),
            template,
            passes_on: config.passes_on || listen.is_some(),
            pin: common.pin,
            mtu: common.mtu,
        };
        let host = Host { inner: Arc::new(inner) };
        host.attach_local();
        if let Some(said) = said {
            tokio::spawn(host.clone().send_out(said));
        }
        if host.inner.listen.is_some() {
            tokio::spawn(host.clone().accept());
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
        self.inner.identity.node()
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

    /// Its controller.
    pub(crate) fn controller(&self) -> Option<&ControllerHost> {
        self.inner.controller.as_ref()
    }

    /// What the controller at `path` knows; [`LOCAL`] is this process's own.
    pub(crate) async fn report(&self, path: PathId) -> Result<StatusReport, AppError> {
        if path == LOCAL {
            return self.own_report().await.ok_or_else(no_controller);
        }
        self.ask_for_report(path, &Query::View).await
    }

    /// The same with how the nodes' data sockets do, of a controller elsewhere: each node is asked.
    pub(crate) async fn status(&self, path: PathId) -> Result<StatusReport, AppError> {
        self.ask_for_report(path, &Query::Status).await
    }

    async fn ask_for_report(&self, path: PathId, query: &Query) -> Result<StatusReport, AppError> {
        let link = self.link(path).ok_or_else(no_controller)?;
        match ask(&link, query).await? {
            Answer::View { json } => serde_json::from_str(&json)
                .map_err(|e| AppError::Failed(format!("the controller's answer makes no sense: {e}"))),
            _ => Err(no_controller()),
        }
    }

    async fn own_report(&self) -> Option<StatusReport> {
        let view = self.inner.controller.as_ref()?.view().await?;
        Some(report(&view, self.inner.listen.map_or_else(String::new, |a| a.to_string())))
    }

    async fn own_status(&self) -> Option<StatusReport> {
        let mut report = self.own_report().await?;
        let mut data_paths = self.data_paths().await;
        for node in &mut report.nodes {
            node.data_path = data_paths.remove(&node.id);
        }
        Some(report)
    }

    /// How the data sockets of this process and of all peers do; without those that do not say so soon.
    async fn data_paths(&self) -> BTreeMap<NodeId, DataPath> {
        let links: Vec<Link> = self.state().peers.values().map(|peer| peer.link.clone()).collect();
        let mut asked = tokio::task::JoinSet::new();
        for link in links {
            asked.spawn(async move {
                let answer = tokio::time::timeout(DATA_PATH_PATIENCE, ask(&link, &Query::DataPath)).await;
                match answer {
                    Ok(Ok(Answer::View { json })) => Some((link.peer(), serde_json::from_str(&json).ok()?)),
                    _ => None,
                }
            });
        }
        let mut answers: BTreeMap<_, _> = asked.join_all().await.into_iter().flatten().collect();
        if let Some(own) = self.data_path() {
            answers.insert(self.inner.identity.node(), own);
        }
        answers
    }

    fn data_path(&self) -> Option<DataPath> {
        self.snapshot().map(|snapshot| DataPath::of(&snapshot))
    }

    /// Asks the controller at `path` where its nodes are reached.
    pub(crate) async fn learn_labels(&self, path: PathId) {
        if let Ok(report) = self.report(path).await {
            self.state().labels.extend(report.nodes.into_iter().map(|n| (n.id, n.listen)));
        }
    }

    /// Where a node is reached, if it said so to this process.
    pub(crate) fn label(&self, node: NodeId) -> Option<String> {
        self.state().labels.get(&node).cloned()
    }

    // ---- links ---------------------------------------------------------------------------------------------------

    fn link(&self, path: PathId) -> Option<Link> {
        self.state().peers.get(&path).map(|p| p.link.clone())
    }

    /// Reserves a path; a link for it may come and go.
    pub(crate) fn new_path(&self) -> PathId {
        control_path(self.inner.next_path.fetch_add(1, Ordering::Relaxed))
    }

    async fn accept(self) {
        while let Some(link) = self.inner.endpoint.accept().await {
            let path = self.new_path();
            tokio::spawn(self.clone().serve_link(path, link));
        }
    }

    /// Dials `at` (host:port) once.
    pub(crate) async fn dial(&self, at: &str) -> Result<Link, AppError> {
        let expect = self.inner.pin.map_or(Expect::Pinned, Expect::Stated);
        let addresses: Vec<SocketAddr> =
            tokio::net::lookup_host(at).await.map_err(|e| unreachable(at, &e))?.collect();
        let mut last = None;
        for address in addresses {
            match self.inner.endpoint.dial(address, expect).await {
                Ok(link) => return Ok(link),
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| unreachable(at, &"the name has no address"), AppError::from))
    }

    /// Keeps a link to `at` on `path`, dialling again whenever it is lost. The first attempt's error is returned, unless
    /// `patient`.
    pub(crate) async fn keep_dialled(&self, path: PathId, at: &str, patient: bool) -> Result<(), AppError> {
        let first = match self.dial(at).await {
            Ok(link) => Some(link),
            Err(error) if patient && !error.is_about_trust() => {
                tracing::warn!(%error, "will be tried again");
                None
            }
            Err(error) => return Err(error),
        };
        let at = at.to_owned();
        let host = self.clone();
        // The link is known before the caller says anything over the path.
        let serving = first.map(|link| host.begin_link(path, link));
        tokio::spawn(async move {
            let mut backoff = Backoff::new();
            if let Some((link, commands)) = serving {
                host.clone().run_link(path, link, commands).await;
            }
            loop {
                tokio::time::sleep(backoff.next_wait().into()).await;
                match host.dial(&at).await {
                    Ok(link) => {
                        backoff.reset();
                        host.clone().serve_link(path, link).await;
                    }
                    Err(error) => tracing::debug!(%error, at, "not connected"),
                }
            }
        });
        Ok(())
    }

    /// Makes a link known and introduces this node over it.
    fn begin_link(&self, path: PathId, link: Link) -> (Link, UnboundedReceiver<Control>) {
        let (out, commands) = unbounded_channel();
        if self.introduces_itself() {
            let _ = out.send(Control::Hello(self.info_for(&link)));
            for holding in self.holdings() {
                let _ = out.send(Control::Hold(holding));
            }
            if self.state().keeps {
                let _ = out.send(Control::Keeps);
            }
        }
        if let Some(controller) = &self.inner.controller {
            controller.attach(path, out.clone());
        }
        self.state().peers.insert(path, Peer { link: link.clone(), out });
        (link, commands)
    }

    /// Whether others may be served from what comes here.
    pub(crate) fn passes_on(&self) -> bool {
        self.inner.node.is_some() && self.inner.passes_on
    }

    /// Only who serves others, or has capacities to state, has something to say of itself.
    fn introduces_itself(&self) -> bool {
        let info = &self.inner.template;
        let states = info.uplink.is_some() || info.downlink.is_some() || info.rack.is_some();
        self.inner.node.is_some() && (self.inner.passes_on || states)
    }

    async fn serve_link(self, path: PathId, link: Link) {
        let (link, commands) = self.begin_link(path, link);
        self.run_link(path, link, commands).await;
    }

    async fn run_link(self, path: PathId, link: Link, mut commands: UnboundedReceiver<Control>) {
        let sender = link.clone();
        let sending = tokio::spawn(async move {
            while let Some(control) = commands.recv().await {
                if sender.send(control.to_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let (asked, host) = (link.clone(), self.clone());
        let answering = tokio::spawn(async move {
            while let Some(request) = asked.incoming_request().await {
                let host = host.clone();
                let asked = asked.clone();
                tokio::spawn(async move {
                    let answer = match postcard::from_bytes(&request.bytes) {
                        Ok(query) => host.answer(&asked, query).await,
                        Err(_) => return request.responder.refuse(),
                    };
                    let bytes = postcard::to_stdvec(&answer).expect("an answer can be written");
                    let _ = request.responder.respond(&bytes).await;
                });
            }
        });
        while let Some(frame) = link.recv().await {
            match Control::parse(&frame) {
                Ok(control) => self.on_control(path, &link, control),
                Err(error) => {
                    tracing::warn!(peer = %link.peer(), %error, "link closed");
                    link.close("malformed message");
                }
            }
        }
        sending.abort();
        answering.abort();
        tracing::debug!(peer = %link.peer(), end = ?link.end(), "link ended");
        let mut state = self.state();
        // A newer link may have taken the path over.
        if state.peers.get(&path).is_some_and(|p| p.link.is_same(&link)) {
            state.peers.remove(&path);
            state.held_by.retain(|_, (_, paths)| {
                paths.remove(&path);
                !paths.is_empty()
            });
            drop(state);
            if let Some(controller) = &self.inner.controller {
                controller.lost(path);
            }
        }
    }

    /// Lets queued messages go out, then closes every link.
    pub(crate) async fn close(&self) {
        self.close_but(&[]).await;
    }

    /// The same without last words to nodes that do not hear them.
    pub(crate) async fn close_but(&self, silent: &[NodeId]) {
        let mut links: Vec<Link> = self.state().peers.values().map(|p| p.link.clone()).collect();
        links.retain(|link| !silent.contains(&link.peer()));
        let mut finishing = tokio::task::JoinSet::new();
        for link in links {
            finishing.spawn(async move { link.finish().await });
        }
        let _ =
            tokio::time::timeout(LAST_WORDS, async { while finishing.join_next().await.is_some() {} }).await;
        // The closing packets leave at once; QUIC would go on listening for three timeouts.
        let _ = tokio::time::timeout(CLOSING, self.inner.endpoint.close("going away")).await;
    }

    // ---- messages ------------------------------------------------------------------------------------------------

    /// The machines of this process and its own controller, without a network between them.
    fn attach_local(&self) {
        let Some(controller) = &self.inner.controller else { return };
        let (out, mut commands) = unbounded_channel();
        controller.attach(LOCAL, out);
        if self.inner.node.is_none() {
            return;
        }
        // A node without a listener is not listed, but its controller must know where its own machines are.
        let info = NodeInfo {
            room: self.room(SocketAddr::from(([127, 0, 0, 1], 1))),
            rtt: Some(Duration::ZERO),
            ..self.inner.template.clone()
        };
        controller.deliver(LOCAL, Control::Hello(info));
        let host = self.clone();
        tokio::spawn(async move {
            while let Some(control) = commands.recv().await {
                host.hand_in(LOCAL, control);
            }
        });
    }

    /// What the machines of the data thread say.
    async fn send_out(self, mut said: UnboundedReceiver<Said>) {
        while let Some(said) = said.recv().await {
            match said {
                Said::Unreadable(object) => self.withdraw(object),
                Said::Control(path, control) => self.say(path, control),
            }
        }
    }

    /// Says something by a path; nobody hears it where there is no link now.
    pub(crate) fn say(&self, path: PathId, control: Control) {
        if path == LOCAL {
            if let Some(controller) = &self.inner.controller {
                controller.deliver(LOCAL, control);
            }
        } else if let Some(peer) = self.state().peers.get(&path) {
            let _ = peer.out.send(control);
        }
    }

    /// From now on hands over what is said of casts to this process, as node or as whoever asks, and by which path.
    pub(crate) fn hear_casts(&self) -> UnboundedReceiver<(PathId, Control)> {
        let (to, heard) = unbounded_channel();
        self.state().on_casts = Some(to);
        heard
    }

    /// Tells everybody that this node fetches what it is invited to ([`Host::hear_casts`]).
    pub(crate) fn keeps(&self) {
        let mut state = self.state();
        state.keeps = true;
        for peer in state.peers.values() {
            let _ = peer.out.send(Control::Keeps);
        }
        drop(state);
        self.say(LOCAL, Control::Keeps);
    }

    /// What a controller or a node says to this process, but not to its own controller.
    fn hand_in(&self, path: PathId, control: Control) {
        match control {
            Control::ProbeGroup(question) => drop(tokio::spawn(self.clone().probe_group(path, *question))),
            control if of_cast(&control) => {
                if let Some(to) = &self.state().on_casts {
                    let _ = to.send((path, control));
                }
            }
            control => {
                if let Some(node) = &self.inner.node {
                    node.control(path, control);
                }
            }
        }
    }

    /// Finds out for a controller who hears a group.
    async fn probe_group(self, path: PathId, question: GroupQuestion) {
        let GroupQuestion { at, towards, asked, members, bytes } = question;
        let flow = asked.flow;
        let heard = match (GroupAddr::towards(at, towards), &self.inner.node) {
            (Ok(group), Some(node)) => {
                let (tries, every) = GROUP_PROBES;
                node.probe_group(GroupProbe { group, asked, members, bytes, tries, every }).await
            }
            (Err(error), _) => {
                tracing::info!(%error, "a group cannot be asked");
                Vec::new()
            }
            (Ok(_), None) => Vec::new(),
        };
        self.say(path, Control::GroupProbed { asked: flow, heard });
    }

    fn on_control(&self, path: PathId, link: &Link, control: Control) {
        let control = match control {
            Control::Hello(info) => {
                let info = resolved(info, link.peer(), link.remote_addr().ip().to_canonical());
                if let Some(listen) = info.listen {
                    self.state().labels.insert(info.node, listen.to_string());
                }
                Control::Hello(info)
            }
            Control::Hold(holding) => {
                let mut state = self.state();
                let entry = state.held_by.entry(holding.object).or_insert((holding.bytes, BTreeSet::new()));
                entry.1.insert(path);
                Control::Hold(holding)
            }
            // Nobody speaks for another node.
            Control::Request(request) => {
                Control::Request(headwater_wire::Request { receiver: link.peer(), ..request })
            }
            other => other,
        };
        match for_controller(&control) {
            true => {
                if let Some(controller) = &self.inner.controller {
                    controller.deliver(path, control);
                }
            }
            false => self.hand_in(path, control),
        }
    }

    async fn answer(&self, link: &Link, query: Query) -> Answer {
        match query {
            Query::Holdings if self.inner.node.is_some() => {
                Answer::Holdings { info: Box::new(self.info_for(link)), holdings: self.holdings() }
            }
            Query::Holdings => Answer::Unknown,
            Query::Hashes { object } => match self.hashes(object, None).await {
                Some(hashes) => Answer::Hashes { bytes: hashes.size(), hashes: hashes.as_slice().to_vec() },
                None => Answer::Unknown,
            },
            Query::View => Answer::view(self.own_report().await.as_ref()),
            Query::Status => Answer::view(self.own_status().await.as_ref()),
            Query::DataPath => Answer::view(self.data_path().as_ref()),
        }
    }

    // ---- objects -------------------------------------------------------------------------------------------------

    fn room(&self, towards: SocketAddr) -> u16 {
        match self.inner.mtu {
            Some(mtu) => crate::node::room_in(mtu, towards),
            None => room_towards(towards),
        }
    }

    /// Bytes of symbol that a datagram between here and the peer of `path` carries.
    pub(crate) fn room_on(&self, path: PathId) -> u16 {
        let towards = self.link(path).map_or(SocketAddr::from(([127, 0, 0, 1], 1)), |l| l.remote_addr());
        self.room(towards)
    }

    fn info_for(&self, link: &Link) -> NodeInfo {
        NodeInfo {
            room: self.room(link.remote_addr()),
            rtt: Some(link.round_trip()),
            ..self.inner.template.clone()
        }
    }

    fn holdings(&self) -> Vec<Holding> {
        self.state().held.iter().flat_map(|(&object, held)| holdings_of(object, held)).collect()
    }

    /// Offers an object to everybody.
    pub(crate) fn hold(&self, object: ObjectId, mut held: Held) {
        self.node().hold(object, held.file.clone());
        let mut state = self.state();
        if let Some(before) = state.held.remove(&object) {
            held.names.extend(before.names);
        }
        let holdings = holdings_of(object, &held);
        state.held.insert(object, held);
        for (peer, holding) in state.peers.values().flat_map(|p| holdings.iter().map(move |h| (p, h))) {
            let _ = peer.out.send(Control::Hold(holding.clone()));
        }
        drop(state);
        if let Some(controller) = &self.inner.controller {
            holdings.into_iter().for_each(|h| controller.deliver(LOCAL, Control::Hold(h)));
        }
    }

    /// Offers an object no longer.
    pub(crate) fn withdraw(&self, object: ObjectId) {
        self.node().withdraw(object);
        let mut state = self.state();
        if state.held.remove(&object).is_none() {
            return;
        }
        for peer in state.peers.values() {
            let _ = peer.out.send(Control::Drop { object });
        }
        drop(state);
        if let Some(controller) = &self.inner.controller {
            controller.deliver(LOCAL, Control::Drop { object });
        }
    }

    /// The block hashes of an object: from here, from a peer that holds it, or from the controller at `path`.
    /// Whoever they come from, they are what the object's id says.
    pub(crate) async fn hashes(&self, object: ObjectId, path: Option<PathId>) -> Option<BlockHashes> {
        let links: Vec<Link> = {
            let state = self.state();
            if let Some(held) = state.held.get(&object) {
                return Some(held.hashes.clone());
            }
            if let Some(hashes) = state.hashes.get(&object) {
                return Some(hashes.clone());
            }
            let holders =
                state.held_by.get(&object).map(|(_, paths)| paths.iter().copied()).into_iter().flatten();
            holders.chain(path).filter_map(|p| Some(state.peers.get(&p)?.link.clone())).collect()
        };
        for link in links {
            let Ok(Answer::Hashes { bytes, hashes }) = ask(&link, &Query::Hashes { object }).await else {
                continue;
            };
            match BlockHashes::verified(object, bytes, hashes) {
                Ok(hashes) => {
                    let mut state = self.state();
                    if state.hashes.len() >= HASHES_KEPT {
                        state.hashes.pop_first();
                    }
                    state.hashes.insert(object, hashes.clone());
                    return Some(hashes);
                }
                Err(error) => tracing::warn!(peer = %link.peer(), %error, "wrong block hashes"),
            }
        }
        None
    }

    /// Asks a source what it holds and tells the own controller, so that a request finds it there.
    pub(crate) async fn introduce(&self, path: PathId) -> Result<usize, AppError> {
        let link = self.link(path).ok_or_else(no_controller)?;
        let Answer::Holdings { info, holdings } = ask(&link, &Query::Holdings).await? else {
            let reason =
                "it answers, but it is no source; a controller is asked with --controller".to_owned();
            return Err(AppError::Unreachable { who: link.remote_addr().to_string(), reason });
        };
        let count = holdings.len();
        self.on_control(path, &link, Control::Hello(*info));
        for holding in holdings {
            self.on_control(path, &link, Control::Hold(holding));
        }
        Ok(count)
    }
}

fn holdings_of(object: ObjectId, held: &Held) -> Vec<Holding> {
    let bytes = held.file.size();
    let holding = |name: Option<&String>| Holding { object, bytes, name: name.cloned() };
    match held.names.is_empty() {
        true => vec![holding(None)],
        false => held.names.iter().map(|name| holding(Some(name))).collect(),
    }
}

fn unreachable(at: &str, reason: &dyn std::fmt::Display) -> AppError {
    AppError::Unreachable { who: at.to_owned(), reason: reason.to_string() }
}

fn no_controller() -> AppError {
    unreachable("the controller", &"no connection to it, or whoever answers there is none")
}

fn for_controller(control: &Control) -> bool {
    matches!(
        control,
        Control::Hello(_)
            | Control::Hold(_)
            | Control::Drop { .. }
            | Control::Request(_)
            | Control::Feedback { .. }
            | Control::Distrust { .. }
            | Control::Fin { .. }
            | Control::Pushing { .. }
            | Control::PushRefused { .. }
            | Control::Stopped { .. }
            | Control::Report { .. }
            | Control::Keeps
            | Control::Cast(_)
            | Control::StopCast { .. }
            | Control::Fetched(_)
            | Control::GroupProbed { .. }
            | Control::GroupSent { .. }
            | Control::TreeReady { .. }
            | Control::Silent { .. }
            | Control::Signalled(_)
    )
}

/// Of casts, and for no machine of this process.
fn of_cast(control: &Control) -> bool {
    matches!(
        control,
        Control::Fetch(_) | Control::StopFetch { .. } | Control::Casting(_) | Control::CastRefused { .. }
    )
}

/// A node's word about itself, with what the link knows better: its key, and the address it really comes from.
fn resolved(mut info: NodeInfo, peer: NodeId, seen: IpAddr) -> NodeInfo {
    (info.node, info.seen) = (peer, Some(seen));
    for address in info.data.iter_mut().chain(&mut info.listen) {
        if address.ip().is_unspecified() {
            address.set_ip(seen);
        }
    }
    info
}

/// Two processes on one state folder are two nodes: a listener's key goes with its address, so that it stays the same
/// over restarts; others take the first key that no running process uses.
fn identity_for(state: &Path, listen: Option<SocketAddr>) -> Result<Identity, AppError> {
    let keys = state.join("keys");
    if let Some(listen) = listen.filter(|l| l.port() != 0) {
        let name: String = listen
            .to_string()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' })
            .collect();
        return Ok(Identity::load_or_create(&keys.join(name))?);
    }
    for slot in 0..256 {
        let folder = keys.join(format!("slot-{slot}"));
        std::fs::create_dir_all(&folder).map_err(|e| AppError::state(&folder, e))?;
        let lock = std::fs::File::create(folder.join("lock")).map_err(|e| AppError::state(&folder, e))?;
        if lock.try_lock().is_ok() {
            // Held until the process ends.
            std::mem::forget(lock);
            return Ok(Identity::load_or_create(&folder)?);
        }
    }
    Ok(Identity::ephemeral()?)
}

/// A socket that only dials serves IPv6 and IPv4 where there is IPv6, else IPv4.
fn bind_control(
    bind: SocketAddr,
    any: bool,
    identity: &Arc<Identity>,
    pins: Pins,
    config: ControlConfig,
) -> Result<ControlEndpoint, ControlError> {
    let first = ControlEndpoint::bind(bind, identity.clone(), pins.clone(), config.clone());
    match first {
        Err(_) if any => {
            ControlEndpoint::bind(SocketAddr::from(([0u8; 4], 0)), identity.clone(), pins, config)
        }
        result => result,
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "node".to_owned(), |n| n.trim().to_owned())
}
