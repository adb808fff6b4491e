//! Trees of Datacast that lead through this node: what comes down is handed on at once, to the own receiver and to other nodes, and
//! what they ask for is asked for once.
//!
//! [`TreeNode`] decides; a way is an address, the machine of this node's source, or that of its receivers. Every node on a tree has its
//! key, and a datagram is handed on as it came, so whoever gets it checks the tag that the source made.
//!
//! Where a switch with a store stands between, all nodes behind it are one branch: the answer goes to whoever asked last, and the
//! switch makes copies of it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use headwater_machine::{Input, Packet, SortedMap};
use headwater_switch::{StoreConfig, TreeNode, TreeWord};
use headwater_transport::SourceCommand;
use headwater_transport::tree::Beats;
use headwater_units::{Bytes, Duration, FlowId, PathId, Time};
use headwater_wire::{
    Body, Class, Control, Datagram, Ecn, HeaderKey, Probe, TreeOrder, TreeWay, emit, parse,
};

use super::signals::Signals;
use super::{Came, Engine};
use crate::node::Said;
use crate::socket::PathAddr;

/// More trees than this are a controller that forgets to say when they are over.
const MOST_TREES: usize = 4096;
/// However much a controller wants kept of a tree.
const MOST_KEPT: Bytes = Bytes::mib(16);
/// A tree on which nobody was heard of for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// The controller is told this often that this node does as its order says: one that does not know of the tree, as after a restart,
/// ends it.
const SAY_AGAIN: Duration = Duration::from_secs(5);

/// Where something comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// This node's source.
    Source,
    /// This node's receivers.
    Here,
    /// The node above.
    Parent,
    /// Nodes below, by number of the branch.
    Branch(usize),
}

/// A datagram as it came.
#[derive(Clone, Debug)]
struct Copy {
    tos: u8,
    bytes: Arc<[u8]>,
}

struct Relay {
    key: HeaderKey,
    order: TreeOrder,
    node: TreeNode<Copy, Way>,
    /// By branch: who asked last.
    askers: Vec<SocketAddr>,
    beats: Liveness<SocketAddr>,
    controller: PathId,
    /// When that was told last.
    told: Time,
}

/// The trees of a node.
#[derive(Default)]
pub(super) struct Relays {
    trees: SortedMap<FlowId, Box<Relay>>,
    /// What the own receivers have asked for and was kept here, until their machine can be told.
    held: VecDeque<(FlowId, Copy)>,
    handing: bool,
    /// Empty but for its room.
    sends: Vec<(Way, Copy)>,
    pub(super) signals: Signals,
}

impl Relays {
    pub(super) fn has(&self, tree: FlowId) -> bool {
        !self.trees.is_empty() && self.trees.contains_key(&tree)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// When neighbours are to be told that this node is there, or a signal is to be sent.
    pub(super) fn wake(&self) -> Option<Time> {
        self.trees.iter().filter_map(|(_, relay)| relay.beats.wake()).chain(self.signals.wake()).min()
    }

    fn forget(&mut self, tree: FlowId) {
        let Some(relay) = self.trees.remove(&tree) else { return };
        let flow = relay.order.signals.flow;
        if !self.trees.iter().any(|(_, relay)| relay.order.signals.flow == flow) {
            self.signals.close(flow);
        }
    }
}

fn ways(order: &TreeOrder) -> (Way, Vec<Way>) {
    let parent = if order.parent.is_some() { Way::Parent } else { Way::Source };
    let here = order.receives.then_some(Way::Here);
    (parent, here.into_iter().chain((0..order.branches.len()).map(Way::Branch)).collect())
}

fn neighbours(order: &TreeOrder) -> Vec<SocketAddr> {
    order.parent.into_iter().chain(order.branches.iter().flatten().copied()).collect()
}

fn first_askers(order: &TreeOrder) -> Vec<SocketAddr> {
    order.branches.iter().filter_map(|branch| branch.first().copied()).collect()
}

impl Relay {
    fn new(now: Time, controller: PathId, order: TreeOrder) -> Relay {
        let store = StoreConfig { size: order.store.min(MOST_KEPT), ..StoreConfig::default() };
        let (parent, children) = ways(&order);
        Relay {
            key: HeaderKey::new(&order.tree.key),
            node: TreeNode::new(store, parent, children),
            askers: first_askers(&order),
            beats: Liveness::new(now, order.beat, neighbours(&order)),
            controller,
            told: now,
            order,
        }
    }

    fn replace(&mut self, now: Time, order: TreeOrder) {
        let (parent, children) = ways(&order);
        self.node.reroute(parent, children);
        self.askers = first_askers(&order);
        self.beats.replace(now, neighbours(&order));
        self.order = order;
    }

    /// By which way something comes from a neighbour; `None`: nobody that is known, or the wrong way.
    fn way_from(&mut self, from: SocketAddr, word: TreeWord) -> Option<Way> {
        match word {
            TreeWord::Data { .. } => (self.order.parent == Some(from)).then_some(Way::Parent),
            TreeWord::Interest(_) => {
                let branch = self.order.branches.iter().position(|branch| branch.contains(&from))?;
                self.askers[branch] = from;
                Some(Way::Branch(branch))
            }
        }
    }
}

impl Engine {
    // ---- the controller

    /// What a controller says of trees; gives back what is about something else.
    pub(super) fn on_tree_order(&mut self, now: Time, path: PathId, control: Control) -> Option<Control> {
        match control {
            Control::PlantTree(order) => self.plant(now, path, *order),
            Control::Signal(signal) => self.on_controllers_signal(now, path, *signal),
            Control::FellTree { tree } => self.relays.forget(tree),
            other => return Some(other),
        }
        None
    }

    fn plant(&mut self, now: Time, path: PathId, order: TreeOrder) {
        let (tree, version) = (order.tree.flow, order.version);
        let from_here = order.parent.is_none();
        let full = self.relays.trees.len() >= MOST_TREES;
        match self.relays.trees.get_mut(&tree) {
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
                self.relays.signals.open(&order.signals);
                self.relays.trees.insert(tree, Box::new(Relay::new(now, path, order)));
            }
        }
        let _ = self.said.send(Said::Control(path, Control::TreeReady { tree, version }));
        if from_here && self.sources.object_of(tree).is_some() {
            self.lead_tree(now, tree);
            self.drive_source(now);
        }
        self.drive_beats(now);
    }

    /// A tree leads another way, says a signal on this flow; whether this node knows the tree, and does so.
    pub(super) fn lead(&mut self, now: Time, signals: FlowId, way: &TreeWay) -> bool {
        let tree = way.tree;
        let relay = self.relays.trees.get_mut(&tree).filter(|it| it.order.signals.flow == signals);
        let Some(relay) = relay else { return false };
        if relay.order.version < way.version {
            relay.replace(now, relay.order.led(way.clone()));
            if way.parent.is_none() && self.sources.object_of(tree).is_some() {
                self.lead_tree(now, tree);
                self.drive_source(now);
            }
            self.drive_beats(now);
        }
        true
    }

    /// The source's machine may send on a tree that begins here: what it sends is handed on as the order says.
    pub(super) fn lead_tree(&mut self, now: Time, tree: FlowId) {
        if self.relays.trees.get(&tree).is_some_and(|relay| relay.order.parent.is_none()) {
            let path = self.paths.towards(&[]);
            let command = SourceCommand::FlowPath { flow: tree, path };
            self.hand_to_source(now, Input::Command(command));
        }
    }

    /// Tells neighbours that this node is there, and the controller whom it does not hear of.
    pub(super) fn drive_beats(&mut self, now: Time) {
        let mut beats = Vec::new();
        for (&tree, relay) in self.relays.trees.iter_mut() {
            if let Some(beat) = relay.beats.beat(now) {
                beats.push((tree, relay.controller, relay.key.clone(), beat));
                if now.since(relay.told) >= SAY_AGAIN {
                    relay.told = now;
                    let ready = Control::TreeReady { tree, version: relay.order.version };
                    let _ = self.said.send(Said::Control(relay.controller, ready));
                }
            }
        }
        let probe = Probe { number: 0, bytes: Probe::SHORTEST, fits: None };
        for (tree, controller, key, beat) in beats {
            let all = beat.tell.len();
            for to in beat.tell {
                self.send_alone(PathAddr::to(to), tree, Body::Probe(probe), &key);
            }
            let Some((neighbours, since)) = beat.silent else { continue };
            if neighbours.len() == all && since >= FORGOTTEN {
                self.relays.forget(tree);
                continue;
            }
            let _ = self.said.send(Said::Control(controller, Control::Silent { tree, neighbours, since }));
        }
    }

    // ---- packets

    /// A datagram of a tree that leads through this node has come.
    pub(super) fn on_tree_datagram(&mut self, now: Time, tree: FlowId, bytes: &[u8], from: PathAddr) {
        let Some(relay) = self.relays.trees.get_mut(&tree) else { return };
        let Ok(parsed) = parse(bytes, &relay.key) else {
            self.strays += 1;
            return;
        };
        let is_neighbour = relay.beats.heard(now, &from.remote);
        let word = TreeWord::of(&parsed.datagram.body);
        let Some((word, way)) = word.and_then(|word| Some((word, relay.way_from(from.remote, word)?))) else {
            let is_beat = is_neighbour && matches!(parsed.datagram.body, Body::Probe(_));
            self.strays += u64::from(!is_beat);
            return;
        };
        let copy = Copy { tos: self.dscp.of(parsed.datagram.class) << 2, bytes: bytes.into() };
        self.hand_on(now, tree, way, word, copy);
    }

    /// What a machine of this node says on a tree.
    pub(super) fn say_in_tree(&mut self, datagram: &Datagram) {
        let tree = datagram.flow;
        let (Some(word), Some(relay)) = (TreeWord::of(&datagram.body), self.relays.trees.get_mut(&tree))
        else {
            return;
        };
        let (way, block) = match (word, &datagram.body) {
            (TreeWord::Interest(_), _) => (Way::Here, None),
            (_, Body::Symbol(header)) => {
                let Some(block) = self.sources.block(tree, header.symbol) else {
                    debug_assert!(false, "a symbol of a block that is not ready");
                    self.unsendable += 1;
                    return;
                };
                (Way::Source, Some((block, header.symbol.esi)))
            }
            _ => (Way::Source, None),
        };
        let symbol_size = block.map_or(0, |(block, _)| block.shape().symbol_size());
        let mut bytes = vec![0; datagram.len(symbol_size)];
        let room = emit(datagram, symbol_size, &relay.key, &mut bytes);
        if let Some((block, esi)) = block {
            block.symbol(esi, room).expect("the machine names symbols of the block");
        }
        let copy = Copy { tos: self.dscp.of(datagram.class) << 2, bytes: bytes.into() };
        let now = self.now();
        self.hand_on(now, tree, way, word, copy);
    }

    fn hand_on(&mut self, now: Time, tree: FlowId, from: Way, word: TreeWord, copy: Copy) {
        let Some(relay) = self.relays.trees.get_mut(&tree) else { return };
        let mut sends = std::mem::take(&mut self.relays.sends);
        let bytes = Bytes::new(copy.bytes.len() as u64);
        relay.node.handle(&from, word, copy, bytes, |way, copy| sends.push((*way, copy.clone())));
        for (way, copy) in sends.drain(..) {
            let Some(relay) = self.relays.trees.get(&tree) else { break };
            let to = match way {
                Way::Parent => relay.order.parent,
                Way::Branch(branch) => relay.askers.get(branch).copied(),
                Way::Here => {
                    self.relays.held.push_back((tree, copy));
                    continue;
                }
                Way::Source => {
                    if let Ok(parsed) = parse(&copy.bytes, &relay.key) {
                        let path = PathId(0);
                        let packet = Packet { path, ecn: Ecn::NotEct, datagram: parsed.datagram };
                        self.hand_to_source(now, Input::Packet(packet));
                    }
                    continue;
                }
            };
            if let Some(to) = to {
                self.send_copy(PathAddr::to(to), &copy);
            }
        }
        self.relays.sends = sends;
        // A machine that is just being polled is told when it has said all that it had to say.
        if from != Way::Here {
            self.hand_held(now);
        }
    }

    /// Another's datagram, as it came, in the class of what is said beside data.
    pub(super) fn send_bytes(&mut self, to: PathAddr, bytes: &Arc<[u8]>) {
        let tos = self.dscp.of(Class::Control) << 2;
        self.send_copy(to, &Copy { tos, bytes: bytes.clone() });
    }

    fn send_copy(&mut self, to: PathAddr, copy: &Copy) {
        if !self.out.has_room(&to, copy.tos, copy.bytes.len()) {
            self.flush();
        }
        match self.out.push(to, copy.tos, copy.bytes.len()) {
            Some(room) => room.copy_from_slice(&copy.bytes),
            // The socket is full: it is asked for again.
            None => self.unsendable += 1,
        }
    }

    /// Gives the own receivers what came for them, or was kept here.
    pub(super) fn hand_held(&mut self, now: Time) {
        if self.relays.held.is_empty() || std::mem::replace(&mut self.relays.handing, true) {
            return;
        }
        while let Some((tree, copy)) = self.relays.held.pop_front() {
            let Some(relay) = self.relays.trees.get(&tree) else { continue };
            let symbol_size = relay.order.symbol_size;
            let Ok(parsed) = parse(&copy.bytes, &relay.key) else { continue };
            let packet = Packet { path: PathId(0), ecn: Ecn::NotEct, datagram: parsed.datagram };
            let came = Came { payload: parsed.payload, passed_on: true };
            self.receivers_get(now, packet, came, symbol_size);
        }
        self.relays.handing = false;
    }
}
