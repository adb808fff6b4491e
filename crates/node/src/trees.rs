//! Datacast trees that lead through this node (Datacast §III, §V): symbols that come down are handed on at once, to the node's own
//! receivers and to other nodes, and equal interests of these go up only once.
//!
//! ```text
//!                      parent, or this node's source
//!                          ^ interests      | symbols
//!                          |                v
//!                    TreeNode, with a store where the tree branches
//!                          ^                |
//!               interests  |                v  symbols
//!        this node's receivers      branches: nodes below
//! ```
//! A [`TreeNode`] decides where a packet goes on. A packet is handed on as it came, so each receiver of it checks the tag that the
//! source made: every node on a tree has its key. `P` is such a packet, as the driver keeps it.
//!
//! Behind a switch with a store, all nodes are one branch: the answer goes to the last asker, and the switch makes copies of it.
//!
//! Neighbours on a tree exchange heartbeats; the controller is told of those that fall silent. Orders come by the controller's link,
//! or as signals from other nodes.

use core::net::SocketAddr;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use headwater_machine::SortedMap;
use headwater_switch::{StoreConfig, TreeNode, TreeWord};
use headwater_transport::tree::{Liveness, Say};
use headwater_units::{Bytes, Duration, FlowId, PathId, Time};
use headwater_wire::{
    Body, Control, HeaderKey, Interest, Signal, Signalled, ToController, ToNode, TreeOrder, TreeUpdate,
};

use crate::signals::{Above, Signals};

/// Maximum number of trees. More are those of a controller that forgets to say when they are over.
const MAX_TREES: usize = 4096;
/// Maximum bytes kept of a tree, however much a controller asks for.
const MAX_STORE: Bytes = Bytes::mib(16);
/// Shortest time between two heartbeats, however short the one that a controller asks for: 10 ms.
const MIN_HEARTBEAT: Duration = Duration::from_millis(10);
/// Silence of all neighbours after which a tree is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Interval at which the controller is told that this node does as its order says: a controller that does not know of
/// the tree, as after a restart, ends it.
const CONFIRM_EVERY: Duration = Duration::from_secs(5);

/// An action about trees.
#[derive(Clone, Debug, PartialEq)]
pub enum TreeAction<P> {
    /// Send a packet to another node, as it is.
    Forward {
        /// The node's data socket.
        to: SocketAddr,
        /// The packet to send.
        packet: P,
    },
    /// Hand a packet to this node's receivers.
    Deliver {
        /// Its tree.
        tree: FlowId,
        /// The packet for the receivers.
        packet: P,
    },
    /// Hand a packet to this node's source.
    Ask {
        /// Its tree.
        tree: FlowId,
        /// The packet for the source.
        packet: P,
    },
    /// Let this node's source send on a tree: its flow of that name has a path now.
    Lead {
        /// The tree.
        tree: FlowId,
    },
    /// Tell a neighbour that this node is there, by an empty probe under the tree's key ([`Trees::key`]).
    Heartbeat {
        /// The tree.
        tree: FlowId,
        /// The neighbour's data socket.
        to: SocketAddr,
    },
    /// Send a datagram of the control class that another node has made, as it is.
    Signal {
        /// Destination.
        to: SocketAddr,
        /// The datagram.
        datagram: Arc<[u8]>,
    },
    /// Answer a signal, under the key of this node's answers ([`Trees::answer_key`]).
    Answer {
        /// Destination.
        to: SocketAddr,
        /// The answer.
        answer: Signalled,
    },
    /// Say something to a controller.
    Tell {
        /// Its link.
        controller: PathId,
        /// The message.
        control: ToController,
    },
}

/// Where a packet of a tree comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbour {
    /// This node's source.
    Source,
    /// This node's receivers.
    Here,
    /// The node above.
    Parent,
    /// The nodes below, by number of the branch.
    Branch(usize),
}

/// One tree at this node.
struct Relay<P> {
    key: HeaderKey,
    order: TreeOrder,
    node: TreeNode<P, Neighbour>,
    /// By branch: who asked last.
    askers: Vec<SocketAddr>,
    liveness: Liveness<SocketAddr>,
    controller: PathId,
    /// When the controller was last told that the order is obeyed.
    confirmed: Time,
}

/// The trees of a node. After each call, [`Trees::poll`] until it has nothing more.
pub struct Trees<P> {
    relays: SortedMap<FlowId, Box<Relay<P>>>,
    /// Flows of this node's source that have the name of a tree.
    sources: BTreeSet<FlowId>,
    signals: Signals,
    out: VecDeque<TreeAction<P>>,
}

impl<P> Default for Trees<P> {
    fn default() -> Self {
        Trees {
            relays: SortedMap::default(),
            sources: BTreeSet::new(),
            signals: Signals::default(),
            out: VecDeque::new(),
        }
    }
}

impl<P: Clone> Trees<P> {
    /// Whether a tree of this name leads through this node.
    #[inline]
    pub fn has(&self, tree: FlowId) -> bool {
        !self.relays.is_empty() && self.relays.contains_key(&tree)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.relays.is_empty()
    }

    /// The key of a tree's datagrams.
    pub fn key(&self, tree: FlowId) -> Option<&HeaderKey> {
        self.relays.get(&tree).map(|relay| &relay.key)
    }

    /// The key of this node's answers to signals on a flow.
    pub fn answer_key(&self, flow: FlowId) -> Option<&HeaderKey> {
        self.signals.answer_key(flow)
    }

    /// T of a tree.
    pub fn symbol_size(&self, tree: FlowId) -> Option<u16> {
        self.relays.get(&tree).map(|relay| relay.order.symbol_size)
    }

    /// When [`Trees::tick`] is due.
    pub fn wake(&self) -> Option<Time> {
        self.relays.iter().filter_map(|(_, relay)| relay.liveness.wake()).chain(self.signals.wake()).min()
    }

    /// Whether something is to be done.
    #[inline]
    pub fn has_actions(&self) -> bool {
        !self.out.is_empty()
    }

    /// Returns the next action.
    #[inline]
    pub fn poll(&mut self) -> Option<TreeAction<P>> {
        self.out.pop_front()
    }

    // ---- orders

    /// Handles a controller's order about trees that came by this link; gives back an order about something else.
    pub fn on_control(&mut self, now: Time, path: PathId, control: ToNode) -> Option<ToNode> {
        match control {
            ToNode::InstallTree(order) => self.install(now, path, *order),
            ToNode::Signal(signal) => self.on_signal(now, Above::Controller(path), *signal),
            ToNode::RemoveTree { tree } => self.remove(tree),
            other => return Some(other),
        }
        None
    }

    /// This node's source has a flow of this name from now on.
    pub fn source_opened(&mut self, flow: FlowId) {
        self.sources.insert(flow);
        self.lead_from_here(flow);
    }

    /// This node's source has no flow of this name any more.
    pub fn source_closed(&mut self, flow: FlowId) {
        self.sources.remove(&flow);
    }

    fn install(&mut self, now: Time, path: PathId, mut order: TreeOrder) {
        if order.heartbeat > Duration::ZERO {
            order.heartbeat = order.heartbeat.max(MIN_HEARTBEAT);
        }
        let (tree, version) = (order.tree.flow, order.version);
        let full = self.relays.len() >= MAX_TREES;
        match self.relays.get_mut(&tree) {
            // Its keys are for its whole life.
            Some(known) if (&known.order.tree, &known.order.signals) != (&order.tree, &order.signals) => {
                return;
            }
            Some(known) if known.order.version > version => return,
            Some(known) => {
                known.controller = path;
                if known.order.version < version {
                    known.replace(now, order);
                }
            }
            None if full => return,
            None => {
                self.signals.open(&order.signals);
                self.relays.insert(tree, Box::new(Relay::new(now, path, order)));
            }
        }
        self.tell(path, ToController::TreeReady { tree, version });
        self.lead_from_here(tree);
        self.heartbeat(now);
    }

    fn remove(&mut self, tree: FlowId) {
        let Some(relay) = self.relays.remove(&tree) else { return };
        let flow = relay.order.signals.flow;
        if !self.relays.iter().any(|(_, relay)| relay.order.signals.flow == flow) {
            self.signals.close(flow);
        }
    }

    /// A signal says that a tree was rerouted on this flow; whether this node knows the tree, and does so.
    fn lead(&mut self, now: Time, signals: FlowId, update: &TreeUpdate) -> bool {
        let tree = update.tree;
        let relay = self.relays.get_mut(&tree).filter(|it| it.order.signals.flow == signals);
        let Some(relay) = relay else { return false };
        if relay.order.version < update.version {
            relay.replace(now, relay.order.updated(update.clone()));
            self.lead_from_here(tree);
            self.heartbeat(now);
        }
        true
    }

    /// The source's machine may send on a tree that begins here: what it sends is handed on as the order says.
    fn lead_from_here(&mut self, tree: FlowId) {
        let begins_here = self.relays.get(&tree).is_some_and(|relay| relay.order.parent.is_none());
        if begins_here && self.sources.contains(&tree) {
            self.out.push_back(TreeAction::Lead { tree });
        }
    }

    // ---- signals

    /// A datagram of a flow that is no tree's and no transfer's; whether it is one of signals.
    pub fn on_signal_datagram(&mut self, now: Time, flow: FlowId, bytes: &[u8], from: SocketAddr) -> bool {
        match self.signals.read(flow, bytes) {
            Some(Control::Node(ToNode::Signal(signal))) => self.on_signal(now, Above::Node(from), *signal),
            Some(Control::Controller(ToController::Signalled(answer))) => {
                self.signals.answered(now, &answer);
                self.signal(now);
            }
            _ => return false,
        }
        true
    }

    fn on_signal(&mut self, now: Time, above: Above, signal: Signal) {
        let mut obeyed = true;
        for update in &signal.updates {
            obeyed &= self.lead(now, signal.flow, update);
        }
        self.signals.hear(now, above, signal, obeyed);
        self.signal(now);
    }

    fn signal(&mut self, now: Time) {
        while let Some(say) = self.signals.poll(now) {
            self.out.push_back(match say {
                Say::Forward { to, datagram } => TreeAction::Signal { to, datagram },
                Say::Answer { to: Above::Node(to), answer } => TreeAction::Answer { to, answer },
                Say::Answer { to: Above::Controller(controller), answer } => {
                    TreeAction::Tell { controller, control: ToController::Signalled(answer) }
                }
            });
        }
    }

    // ---- time

    /// Does what is due.
    pub fn tick(&mut self, now: Time) {
        self.heartbeat(now);
        self.signal(now);
    }

    /// Tells neighbours that this node is there, and the controller which of them it does not hear.
    fn heartbeat(&mut self, now: Time) {
        let mut forgotten = Vec::new();
        for (&tree, relay) in self.relays.iter_mut() {
            let Some(heartbeat) = relay.liveness.heartbeat(now) else { continue };
            let controller = relay.controller;
            if now.since(relay.confirmed) >= CONFIRM_EVERY {
                relay.confirmed = now;
                let control = ToController::TreeReady { tree, version: relay.order.version };
                self.out.push_back(TreeAction::Tell { controller, control });
            }
            let all = heartbeat.tell.len();
            self.out.extend(heartbeat.tell.into_iter().map(|to| TreeAction::Heartbeat { tree, to }));
            let Some((neighbours, since)) = heartbeat.silent else { continue };
            if neighbours.len() == all && since >= FORGET_AFTER {
                forgotten.push(tree);
                continue;
            }
            let control = ToController::Silent { tree, neighbours, since };
            self.out.push_back(TreeAction::Tell { controller, control });
        }
        forgotten.into_iter().for_each(|tree| self.remove(tree));
    }

    fn tell(&mut self, controller: PathId, control: ToController) {
        self.out.push_back(TreeAction::Tell { controller, control });
    }

    // ---- packets

    /// A datagram of a tree has come from another node, under the tree's key; `bytes` is its length. False if it is none that could
    /// come from there.
    pub fn on_datagram(
        &mut self,
        now: Time,
        tree: FlowId,
        from: SocketAddr,
        body: &Body,
        bytes: Bytes,
        packet: impl FnOnce() -> P,
    ) -> bool {
        let Some(relay) = self.relays.get_mut(&tree) else { return false };
        // It goes round in a loop of nodes, each of which was told that another one is above it.
        if matches!(body, Body::Interest(Interest { hops: Interest::MAX_HOPS, .. })) {
            return false;
        }
        let is_neighbour = relay.liveness.heard(now, &from);
        let word = TreeWord::of(body);
        let Some((word, from)) = word.and_then(|word| Some((word, relay.neighbour_from(from, word)?))) else {
            return is_neighbour && matches!(body, Body::Probe(_));
        };
        relay.hand_on(&mut self.out, from, word, packet(), bytes);
        true
    }

    /// Sends a packet of this node's own source or receivers into a tree; `bytes` is its length.
    pub fn from_here(&mut self, tree: FlowId, body: &Body, bytes: Bytes, packet: P) {
        let (Some(word), Some(relay)) = (TreeWord::of(body), self.relays.get_mut(&tree)) else { return };
        let from = match word {
            TreeWord::Interest(_) => Neighbour::Here,
            TreeWord::Data { .. } => Neighbour::Source,
        };
        relay.hand_on(&mut self.out, from, word, packet, bytes);
    }
}

impl<P: Clone> Relay<P> {
    fn new(now: Time, controller: PathId, order: TreeOrder) -> Self {
        let store = StoreConfig { size: order.store.min(MAX_STORE), ..StoreConfig::default() };
        let (parent, children) = parent_and_children(&order);
        Relay {
            key: HeaderKey::new(&order.tree.key),
            node: TreeNode::new(store, parent, children),
            askers: first_askers(&order),
            liveness: Liveness::new(now, order.heartbeat, neighbours(&order)),
            controller,
            confirmed: now,
            order,
        }
    }

    fn replace(&mut self, now: Time, order: TreeOrder) {
        let (parent, children) = parent_and_children(&order);
        self.node.reroute(parent, children);
        self.askers = first_askers(&order);
        self.liveness.replace(now, neighbours(&order));
        self.order = order;
    }

    /// From which neighbour something comes; `None`: from nobody that is known, or in the wrong direction.
    fn neighbour_from(&mut self, from: SocketAddr, word: TreeWord) -> Option<Neighbour> {
        match word {
            TreeWord::Data { .. } => (self.order.parent == Some(from)).then_some(Neighbour::Parent),
            TreeWord::Interest(_) => {
                let branch = self.order.branches.iter().position(|branch| branch.contains(&from))?;
                self.askers[branch] = from;
                Some(Neighbour::Branch(branch))
            }
        }
    }

    fn hand_on(
        &mut self,
        out: &mut VecDeque<TreeAction<P>>,
        from: Neighbour,
        word: TreeWord,
        packet: P,
        bytes: Bytes,
    ) {
        let Relay { node, order, askers, .. } = self;
        let tree = order.tree.flow;
        node.handle(&from, word, packet, bytes, |to, packet| {
            let packet = packet.clone();
            let forward = |to: Option<SocketAddr>, packet| to.map(|to| TreeAction::Forward { to, packet });
            out.extend(match to {
                Neighbour::Parent => forward(order.parent, packet),
                Neighbour::Branch(branch) => forward(askers.get(*branch).copied(), packet),
                Neighbour::Here => Some(TreeAction::Deliver { tree, packet }),
                Neighbour::Source => Some(TreeAction::Ask { tree, packet }),
            });
        });
    }
}

fn parent_and_children(order: &TreeOrder) -> (Neighbour, Vec<Neighbour>) {
    let parent = if order.parent.is_some() { Neighbour::Parent } else { Neighbour::Source };
    let here = order.receives.then_some(Neighbour::Here);
    (parent, here.into_iter().chain((0..order.branches.len()).map(Neighbour::Branch)).collect())
}

fn neighbours(order: &TreeOrder) -> Vec<SocketAddr> {
    order.parent.into_iter().chain(order.branches.iter().flatten().copied()).collect()
}

fn first_askers(order: &TreeOrder) -> Vec<SocketAddr> {
    order.branches.iter().filter_map(|branch| branch.first().copied()).collect()
}

#[cfg(test)]
mod tests {
    use headwater_units::{BlockIndex, Esi, FlowKey, PacketNumber, SymbolId};
    use headwater_wire::{FlowSecret, Probe, SymbolHeader};

    use super::*;

    const TREE: FlowId = FlowId(7);
    const CONTROLLER: PathId = PathId(1);

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 7000))
    }

    fn ms(n: u64) -> Time {
        Time::ZERO + Duration::from_millis(n)
    }

    /// Host 2, between host 1 and the hosts 3 and 4; it receives, too.
    fn order(version: u32) -> TreeOrder {
        TreeOrder {
            tree: FlowSecret { flow: TREE, key: FlowKey([7; 32]) },
            version,
            symbol_size: 1000,
            parent: Some(at(1)),
            branches: vec![vec![at(3)], vec![at(4)]],
            receives: true,
            store: Bytes::new(100_000),
            heartbeat: Duration::from_millis(100),
            signals: FlowSecret { flow: FlowId(8), key: FlowKey([8; 32]) },
        }
    }

    fn name(esi: u32) -> SymbolId {
        SymbolId { block: BlockIndex(0), esi: Esi(esi) }
    }

    fn symbol(esi: u32) -> Body {
        Body::Symbol(SymbolHeader {
            number: PacketNumber(u64::from(esi)),
            symbol: name(esi),
            ack_interval: 0,
            ack_now: false,
            assignment: 0,
            starved: false,
            syn: false,
            trimmed: false,
        })
    }

    fn installed(now: Time, order: TreeOrder) -> (Trees<&'static str>, Vec<TreeAction<&'static str>>) {
        let mut trees = Trees::default();
        assert_eq!(trees.on_control(now, CONTROLLER, ToNode::InstallTree(Box::new(order))), None);
        let said = all(&mut trees);
        (trees, said)
    }

    fn all(trees: &mut Trees<&'static str>) -> Vec<TreeAction<&'static str>> {
        std::iter::from_fn(|| trees.poll()).collect()
    }

    fn come(trees: &mut Trees<&'static str>, from: u8, body: &Body, packet: &'static str) -> bool {
        trees.on_datagram(ms(1), TREE, at(from), body, Bytes::new(1048), || packet)
    }

    fn forward(host: u8, packet: &'static str) -> TreeAction<&'static str> {
        TreeAction::Forward { to: at(host), packet }
    }

    #[test]
    fn what_comes_down_goes_to_all_who_asked_and_what_was_kept_is_not_asked_for_again() {
        let (mut trees, _) = installed(ms(0), order(1));
        assert!(come(&mut trees, 3, &Body::Interest(name(5).into()), "asked by 3"));
        assert_eq!(all(&mut trees), [forward(1, "asked by 3")]);
        trees.from_here(TREE, &Body::Interest(name(5).into()), Bytes::new(48), "asked here");
        assert_eq!(all(&mut trees), [], "it is on its way");
        assert!(come(&mut trees, 1, &symbol(5), "the symbol"));
        let sent = all(&mut trees);
        assert!(sent.contains(&forward(3, "the symbol")), "{sent:?}");
        assert!(sent.contains(&TreeAction::Deliver { tree: TREE, packet: "the symbol" }), "{sent:?}");
        come(&mut trees, 4, &Body::Interest(name(5).into()), "asked by 4");
        let sent = all(&mut trees);
        assert!(!sent.contains(&forward(1, "asked by 4")), "it was kept: {sent:?}");
    }

    #[test]
    fn packets_of_strangers_and_from_the_wrong_side_go_nowhere() {
        let (mut trees, _) = installed(ms(0), order(1));
        assert!(!come(&mut trees, 9, &symbol(5), "a stranger's"));
        assert!(!come(&mut trees, 3, &symbol(5), "from below"));
        assert!(!come(&mut trees, 1, &Body::Interest(name(5).into()), "from above"));
        let tired = Body::Interest(Interest { name: name(5), hops: Interest::MAX_HOPS });
        assert!(!come(&mut trees, 3, &tired, "goes round and round"));
        let heartbeat = Body::Probe(Probe { number: 0, bytes: Probe::SHORTEST, fits: None });
        assert!(!come(&mut trees, 9, &heartbeat, "a stranger's heartbeat"));
        assert!(come(&mut trees, 3, &heartbeat, "a heartbeat"));
        assert_eq!(all(&mut trees), []);
    }

    #[test]
    fn an_order_is_confirmed_replaced_by_newer_ones_only_and_over_when_it_is_taken_back() {
        let (mut trees, said) = installed(ms(0), order(4));
        let ready = |version| TreeAction::Tell {
            controller: CONTROLLER,
            control: ToController::TreeReady { tree: TREE, version },
        };
        assert_eq!(said[0], ready(4));
        let mut tell = |order: TreeOrder| {
            trees.on_control(ms(1), PathId(2), ToNode::InstallTree(Box::new(order)));
            let said = all(&mut trees);
            said.into_iter().filter(|it| matches!(it, TreeAction::Tell { .. })).count()
        };
        assert_eq!(tell(order(3)), 0, "an older one");
        let other_key = FlowSecret { flow: TREE, key: FlowKey([1; 32]) };
        assert_eq!(tell(TreeOrder { tree: other_key, ..order(5) }), 0, "another tree of that name");
        assert_eq!(tell(TreeOrder { parent: Some(at(9)), ..order(5) }), 1);
        come(&mut trees, 3, &Body::Interest(name(5).into()), "asked");
        assert_eq!(all(&mut trees), [forward(9, "asked")]);
        trees.on_control(ms(1), CONTROLLER, ToNode::RemoveTree { tree: TREE });
        assert!(trees.is_empty() && trees.wake().is_none());
    }

    #[test]
    fn a_source_sends_once_its_tree_and_its_flow_are_there_in_whatever_order_they_come() {
        let from_here = TreeOrder { parent: None, ..order(1) };
        let lead = TreeAction::Lead { tree: TREE };
        let (mut trees, said) = installed(ms(0), from_here.clone());
        assert!(!said.contains(&lead));
        trees.source_opened(TREE);
        assert_eq!(all(&mut trees), std::slice::from_ref(&lead));
        let mut trees = Trees::default();
        trees.source_opened(TREE);
        assert_eq!(all(&mut trees), []);
        trees.on_control(ms(0), CONTROLLER, ToNode::InstallTree(Box::new(from_here)));
        assert!(all(&mut trees).contains(&lead));
    }

    #[test]
    fn neighbours_hear_heartbeats_no_faster_than_is_good_for_them_and_silent_ones_are_told_of() {
        let (mut trees, said) =
            installed(ms(0), TreeOrder { heartbeat: Duration::from_nanos(1), ..order(1) });
        let heartbeats = |said: &[TreeAction<_>]| {
            said.iter().filter(|it| matches!(it, TreeAction::Heartbeat { .. })).count()
        };
        assert_eq!(heartbeats(&said), 3);
        assert_eq!(trees.wake(), Some(ms(10)), "not after a nanosecond");
        let mut silent = Vec::new();
        for n in 1..=4 {
            come(
                &mut trees,
                1,
                &Body::Probe(Probe { number: 0, bytes: Probe::SHORTEST, fits: None }),
                "heartbeat",
            );
            trees.tick(ms(10 * n));
            let told = all(&mut trees);
            silent.extend(told.into_iter().filter_map(|it| match it {
                TreeAction::Tell { control: ToController::Silent { neighbours, .. }, .. } => Some(neighbours),
                _ => None,
            }));
        }
        assert_eq!(silent[0], [at(3), at(4)]);
        let mut now = 40;
        while !trees.is_empty() {
            now += 10;
            trees.tick(ms(now));
            assert!(now < 61_000);
        }
        assert!(now >= 60_000, "forgotten after {now} ms of silence");
    }
}
