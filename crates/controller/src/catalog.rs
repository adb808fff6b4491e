//! The catalog: which nodes are here, and who holds what under which name.
//!
//! A node is *here* while a path leads to it. One that leaves is remembered, with what it held, until its place is
//! needed: so that a name nobody ever had can be told from one whose holders are away.

mod names;
mod naming;
mod sizes;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::{Shares, Taker};
use headwater_units::{BitRate, Bytes, Duration, NodeId, ObjectId, PathId, Time};
use headwater_wire::{Holding, NodeInfo, Refusal, Spoiled};

use self::names::Names;
use self::sizes::Voice;
use crate::{ControllerConfig, NameRecord};

/// Fewer digits of an id are too easily another's.
const SHORTEST_BEGINNING: usize = 8;

/// What is remembered of a node's objects counts in bytes: this much for each object, and for each of its names beside its own length.
const HOLDING_BYTES: usize = 128;
const NAME_BYTES: usize = 64;

/// One node.
pub(crate) struct Node {
    pub(crate) info: NodeInfo,
    /// Where it is reached now.
    pub(crate) path: Option<PathId>,
    /// Number of tasks that found it delivering wrong bytes.
    pub(crate) distrusts: u32,
    /// It fetches into its store what it is invited to.
    pub(crate) keeps: bool,
    /// It is about to stop: no task begins with it.
    pub(crate) leaving: bool,
    /// When it came, or was last here.
    pub(crate) seen: Time,
    /// What it holds, and the names that it said.
    holds: BTreeMap<ObjectId, BTreeSet<String>>,
    /// Objects that it held before it restarted, until it names them again.
    formerly: BTreeMap<ObjectId, BTreeSet<String>>,
    /// Whose share of the catalog it takes: its own, by the path that it came by last.
    taker: Taker,
}

/// One object that somebody holds or held.
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    /// Nodes that hold it, here or away.
    pub(crate) holders: BTreeSet<NodeId>,
    /// Nodes that hold it as they say, but of other sizes.
    others: BTreeMap<NodeId, Bytes>,
    /// Those that were told this size, while others state another one, and did not get the object.
    against: BTreeSet<Voice>,
    /// Names that stand for it now.
    pub(crate) names: BTreeSet<String>,
    /// The node whose copy was the last to turn out spoiled, and how, until somebody holds the object again.
    pub(crate) spoiled: Option<(NodeId, Spoiled)>,
    /// The holder whose place in the table of objects it takes, while there is one.
    taker: Taker,
}

/// What became of a message that a node holds an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Nothing: there is no room.
    No,
    /// It is remembered, but the object is not served from there: another holder states another size.
    Disputed,
    /// It is recorded, but its name is not: there is no room for that.
    WithoutName,
    /// It is recorded.
    Yes,
}

/// Changes that a node's introduction made.
pub(crate) struct Greeting {
    /// It was away, or is reached over another path than before.
    pub(crate) new_path: bool,
    /// It said something else before, or nothing.
    pub(crate) changed: bool,
    /// Another node was reached over this path until now.
    pub(crate) displaced: Option<NodeId>,
}

#[derive(Default)]
pub(crate) struct Catalog {
    nodes: BTreeMap<NodeId, Node>,
    /// Nodes that have said who they are.
    paths: BTreeMap<PathId, NodeId>,
    /// By path: the peer whose key was proved, and its network.
    links: BTreeMap<PathId, Taker>,
    objects: BTreeMap<ObjectId, Object>,
    /// Objects without a holder: the first to make room.
    orphans: BTreeSet<ObjectId>,
    names: Names,
    /// By rack: the capacities that nodes state for its own links, each with how many do.
    racks: BTreeMap<String, BTreeMap<BitRate, usize>>,
    /// Names that had to make room.
    forgotten_names: Vec<String>,
    /// Objects whose size is another now.
    resized: Vec<ObjectId>,
    /// Objects that somebody holds, by one of the holders.
    held: Shares,
    /// Bytes of what is remembered of each node's objects ([`HOLDING_BYTES`], [`NAME_BYTES`]).
    said: Shares,
}

impl Catalog {
    pub(crate) fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }
    pub(crate) fn node_at(&self, path: PathId) -> Option<NodeId> {
        self.paths.get(&path).copied()
    }
    /// The rack that a node says it stands in.
    pub(crate) fn rack_of(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(&node)?.info.rack_name()
    }
    /// Whether two nodes say that they stand in the same rack.
    pub(crate) fn share_rack(&self, node: NodeId, other: NodeId) -> bool {
        let rack = self.rack_of(node);
        rack.is_some() && self.rack_of(other) == rack
    }
    /// The longest round trip from here to any of these, of those that have said it.
    pub(crate) fn farthest<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeId>) -> Option<Duration> {
        nodes.into_iter().filter_map(|node| self.node(*node)?.info.rtt).max()
    }
    pub(crate) fn path_of(&self, node: NodeId) -> Option<PathId> {
        self.nodes.get(&node)?.path
    }
    pub(crate) fn object(&self, object: ObjectId) -> Option<&Object> {
        self.objects.get(&object)
    }
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&ObjectId, &Object)> {
        self.objects.iter()
    }
    pub(crate) fn holds(&self, node: NodeId, object: ObjectId) -> bool {
        self.nodes.get(&node).is_some_and(|n| n.holds.contains_key(&object))
    }
    /// The object behind a URI: an id as 64 hex digits and nothing else, else a name, else the only id that begins with these digits.
    pub(crate) fn resolve(&self, uri: &str) -> Option<ObjectId> {
        let known = |id: &ObjectId| self.objects.contains_key(id);
        match (uri.parse().ok(), self.names.get(uri)) {
            (Some(id), _) | (None, Some(id)) => Some(id).filter(known),
            (None, None) => self.beginning(uri),
        }
    }
    /// Why something cannot be resolved: a name that stands for an object comes back with the holder of that.
    pub(crate) fn why_unresolved(&self, uri: &str) -> Refusal {
        match self.names.get(uri) {
            Some(_) if uri.parse::<ObjectId>().is_err() => Refusal::NoSource,
            _ => Refusal::UnknownObject,
        }
    }
    fn beginning(&self, digits: &str) -> Option<ObjectId> {
        if !(SHORTEST_BEGINNING..64).contains(&digits.len()) || !digits.is_ascii() {
            return None;
        }
        let first: ObjectId = format!("{digits:0<64}").parse().ok()?;
        let digits = digits.to_ascii_lowercase();
        let mut matching = self
            .objects
            .range(first..)
            .map(|(id, _)| *id)
            .take_while(|id| id.to_string().starts_with(&digits));
        matching.next().filter(|_| matching.next().is_none())
    }
    /// The smallest capacity that a node of the rack states for the rack's own links.
    pub(crate) fn rack_capacity(&self, rack: &str) -> Option<BitRate> {
        self.racks.get(rack)?.keys().next().copied()
    }
    /// A node states what its rack's links carry, or no more.
    fn count_rack(&mut self, info: &NodeInfo, states: bool) {
        let Some((rack, Some(capacity))) = &info.rack else { return };
        let stated = self.racks.entry(rack.clone()).or_default();
        let count = stated.entry(*capacity).or_default();
        *count = if states { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            stated.remove(capacity);
        }
        if stated.is_empty() {
            self.racks.remove(rack);
        }
    }
    /// Why a known object cannot be had: the last copies were spoiled, or those who hold it are away.
    pub(crate) fn no_source_of(&self, object: ObjectId) -> Refusal {
        let orphan = self.objects.get(&object).filter(|known| known.holders.is_empty());
        match orphan.and_then(|known| known.spoiled) {
            Some((node, how)) => Refusal::Spoiled { node, how },
            None => Refusal::NoSource,
        }
    }
    /// Whoever speaks by this path has proved this key, and speaks from this network.
    pub(crate) fn open_path(&mut self, path: PathId, peer: Taker) {
        self.links.insert(path, peer);
    }
    /// The node whose key the peer at this path has proved.
    pub(crate) fn peer_at(&self, path: PathId) -> Option<NodeId> {
        self.links.get(&path).map(|peer| peer.node)
    }
    /// Whoever takes places of tables by what comes over this path.
    pub(crate) fn taker_at(&self, path: PathId) -> Option<Taker> {
        self.links.get(&path).copied()
    }
    /// Whether what comes over a path is from this node.
    pub(crate) fn is_from(&self, path: PathId, node: NodeId) -> bool {
        self.peer_at(path) == Some(node)
    }
    /// The incarnation of a node: it changes with each start.
    pub(crate) fn incarnation_of(&self, node: NodeId) -> Option<u64> {
        Some(self.nodes.get(&node)?.info.incarnation)
    }
    /// Where a node's data socket is.
    pub(crate) fn data_of(&self, node: NodeId) -> Option<SocketAddr> {
        self.nodes.get(&node)?.info.data.first().copied()
    }
    pub(crate) fn distrust(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.distrusts = node.distrusts.saturating_add(1);
        }
    }

    /// A node says who it is, on this path. `None` if the table is full of nodes that are here or `busy`.
    pub(crate) fn greet(
        &mut self,
        now: Time,
        path: PathId,
        info: NodeInfo,
        config: &ControllerConfig,
        busy: impl Fn(NodeId) -> bool,
    ) -> Option<Greeting> {
        let id = info.node;
        let taker = self.taker_at(path).unwrap_or(Taker::of_key(id));
        if !self.nodes.contains_key(&id) && self.nodes.len() >= config.max_nodes {
            let idle = self.nodes.values().filter(|n| n.path.is_none() && !busy(n.info.node));
            let oldest = idle.min_by_key(|n| (n.seen, n.info.node)).map(|n| n.info.node)?;
            self.forget(oldest);
        }
        let displaced = self.paths.insert(path, id).filter(|other| *other != id);
        if let Some(other) = displaced.and_then(|other| self.nodes.get_mut(&other)) {
            other.path = None;
        }
        let mut greeting = Greeting { new_path: true, changed: true, displaced };
        self.count_rack(&info, true);
        if let Some(before) = self.nodes.get(&id).map(|node| node.info.clone()) {
            self.count_rack(&before, false);
        }
        match self.nodes.get_mut(&id) {
            None => {
                let (holds, formerly) = Default::default();
                self.nodes.insert(
                    id,
                    Node {
                        info,
                        path: Some(path),
                        distrusts: 0,
                        keeps: false,
                        leaving: false,
                        seen: now,
                        holds,
                        formerly,
                        taker,
                    },
                );
            }
            Some(node) => {
                greeting.new_path = node.path != Some(path);
                greeting.changed = node.info != info;
                if let Some(old) = node.path.replace(path).filter(|old| *old != path) {
                    self.paths.remove(&old);
                }
                node.seen = now;
                let said = self.said.of(id);
                self.said.give_back(&node.taker, said);
                self.said.take(&taker, said);
                node.taker = taker;
                let restarted = node.info.incarnation != info.incarnation;
                node.info = info;
                if restarted {
                    (node.keeps, node.leaving) = (false, false);
                    let lost = std::mem::take(&mut node.holds);
                    let lost_objects: Vec<ObjectId> = lost.keys().copied().collect();
                    node.formerly.extend(lost);
                    lost_objects.into_iter().for_each(|object| self.orphan(object, id));
                }
            }
        }
        Some(greeting)
    }

    /// A known node fetches what it is invited to.
    pub(crate) fn keeps(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.keeps = true;
        }
    }

    /// A known node is about to stop, and is given nothing new.
    pub(crate) fn leaving(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            (node.keeps, node.leaving) = (false, true);
        }
    }

    pub(crate) fn is_leaving(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.leaving)
    }

    /// A path is gone. The node that it led to, which is away now.
    pub(crate) fn lose(&mut self, now: Time, path: PathId) -> Option<NodeId> {
        self.links.remove(&path);
        let id = self.paths.remove(&path)?;
        let node = self.nodes.get_mut(&id)?;
        (node.path, node.seen) = (None, now);
        Some(id)
    }

    /// A known node holds an object.
    pub(crate) fn hold(&mut self, id: NodeId, holding: Holding, config: &ControllerConfig) -> Recorded {
        let Holding { object, bytes, name } = holding;
        let Some(node) = self.nodes.get(&id) else { return Recorded::No };
        let (taker, is_new) =
            (node.taker, !node.holds.contains_key(&object) && !node.formerly.contains_key(&object));
        if !self.make_room_for(object, &taker, config) || is_new && !self.make_room_of(id, config) {
            return Recorded::No;
        }
        let known = self.objects.entry(object).or_insert_with(|| Object {
            bytes,
            holders: BTreeSet::new(),
            others: BTreeMap::new(),
            against: BTreeSet::new(),
            names: BTreeSet::new(),
            spoiled: None,
            taker,
        });
        let is_new_dispute = if Catalog::agrees(known, id, bytes) {
            known.bytes = bytes;
            known.others.remove(&id);
            if known.holders.is_empty() {
                known.taker = taker;
                self.held.take(&taker, 1);
            }
            known.holders.insert(id);
            known.spoiled = None;
            None
        } else {
            Some(known.others.insert(id, bytes) != Some(bytes))
        };
        if self.orphans.remove(&object) {
            self.names.held(known.names.iter());
        }
        if is_new {
            self.said.take(&taker, HOLDING_BYTES);
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            let formerly = node.formerly.remove(&object);
            node.holds.entry(object).or_insert_with(|| formerly.unwrap_or_default());
        }
        let is_named = name.is_none_or(|name| self.suppose(id, object, name, config));
        match is_new_dispute {
            None if is_named => Recorded::Yes,
            None => Recorded::WithoutName,
            Some(is_new) => {
                if is_new {
                    self.unhold_as_holder(object, id);
                    self.weigh_sizes(object);
                }
                Recorded::Disputed
            }
        }
    }

    /// A node no longer holds an object. Whether it did.
    pub(crate) fn unhold(&mut self, id: NodeId, object: ObjectId) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        let (formerly, holds) = (node.formerly.remove(&object), node.holds.remove(&object));
        for names in formerly.iter().chain(&holds) {
            self.said.give_back(&node.taker, bytes_of(names));
        }
        if holds.is_some() {
            self.orphan(object, id);
        }
        holds.is_some()
    }

    /// A node's copy of an object is not the object. Whether it held one.
    pub(crate) fn spoil(&mut self, id: NodeId, object: ObjectId, how: Spoiled) -> bool {
        let held = self.unhold(id, object);
        if held && let Some(object) = self.objects.get_mut(&object) {
            object.spoiled = Some((id, how));
        }
        held
    }

    /// Makes room for an object that a peer holds, if need be at the cost of one that nobody holds. What somebody holds has its place.
    fn make_room_for(&mut self, object: ObjectId, taker: &Taker, config: &ControllerConfig) -> bool {
        let known = self.objects.get(&object);
        if known.is_some_and(|known| !known.holders.is_empty()) {
            return true;
        }
        if !self.held.has_room(taker, 1, config.max_objects) {
            return false;
        }
        known.is_some()
            || self.objects.len() < config.max_objects
            || self.orphans.pop_first().is_some_and(|orphan| self.objects.remove(&orphan).is_some())
    }

    /// Makes room for another object of a node, if need be at the cost of what it held before it restarted.
    fn make_room_of(&mut self, id: NodeId, config: &ControllerConfig) -> bool {
        loop {
            let has_room = self.has_room_of(id, HOLDING_BYTES, config);
            let Some(node) = self.nodes.get_mut(&id) else { return false };
            if has_room && node.holds.len() + node.formerly.len() < config.max_objects_per_node {
                return true;
            }
            let Some((_, names)) = node.formerly.pop_first() else { return false };
            self.said.give_back(&node.taker, bytes_of(&names));
        }
    }

    /// Whether so many bytes more may be remembered of a node's objects.
    fn has_room_of(&self, id: NodeId, bytes: usize, config: &ControllerConfig) -> bool {
        let (most, of_node) =
            (config.max_said_bytes.get() as usize, config.max_said_bytes_of_node.get() as usize);
        self.said.of(id) + bytes <= of_node
            && self.nodes.get(&id).is_some_and(|node| self.said.has_room(&node.taker, bytes, most))
    }

    /// A node that is away is not expected back. Objects that nobody else holds go with it, and so do their names, but for those that
    /// are `wanted`. What there is to keep of these names.
    pub(crate) fn forget_with_objects(
        &mut self,
        id: NodeId,
        wanted: impl Fn(ObjectId) -> bool,
    ) -> Vec<NameRecord> {
        let Some(node) = self.nodes.get(&id) else { return Vec::new() };
        let is_sole_holder = |object: &ObjectId| {
            self.objects.get(object).is_some_and(|known| {
                known.holders.iter().chain(known.others.keys()).all(|holder| *holder == id)
            })
        };
        let known = node.holds.iter().chain(&node.formerly);
        let gone: Vec<(ObjectId, BTreeSet<String>)> = known
            .filter(|(object, _)| is_sole_holder(object) && !wanted(**object))
            .map(|(object, names)| (*object, names.clone()))
            .collect();
        let mut records = Vec::new();
        for (object, names) in &gone {
            records.extend(names.iter().filter_map(|name| self.note_unnamed(id, *object, name)));
        }
        self.forget(id);
        for (object, _) in gone {
            self.orphans.remove(&object);
            self.objects.remove(&object);
        }
        records
    }

    fn forget(&mut self, id: NodeId) {
        let node = self.nodes.remove(&id);
        node.iter().for_each(|node| {
            self.count_rack(&node.info, false);
            self.said.give_back(&node.taker, self.said.of(id));
        });
        for object in node.iter().flat_map(|node| node.holds.keys()) {
            self.orphan(*object, id);
        }
    }

    /// A node holds an object no longer, which may have been the last that did.
    fn orphan(&mut self, object: ObjectId, node: NodeId) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.others.remove(&node);
        }
        self.unhold_as_holder(object, node);
    }

    /// A node is no holder of an object that it may hold on with another size.
    fn unhold_as_holder(&mut self, object: ObjectId, node: NodeId) {
        let Some(known) = self.objects.get_mut(&object) else { return };
        if !known.holders.remove(&node) {
            return;
        }
        if known.holders.is_empty() && !known.others.is_empty() {
            return self.weigh_sizes(object);
        }
        let heir = known.holders.first().and_then(|holder| self.nodes.get(holder)).map(|node| node.taker);
        match heir {
            None => {
                self.held.give_back(&known.taker, 1);
                self.orphans.insert(object);
                self.names.unheld(known.names.iter());
            }
            Some(heir) if known.taker.node == node => {
                self.held.give_back(&known.taker, 1);
                self.held.take(&heir, 1);
                known.taker = heir;
            }
            Some(_) => {}
        }
    }
}

/// What is remembered of an object of a node that has these names.
fn bytes_of(names: &BTreeSet<String>) -> usize {
    HOLDING_BYTES + names.iter().map(|name| NAME_BYTES + name.len()).sum::<usize>()
}
