//! Signalling of rerouted trees, if the operator wants it (Datacast §III): the source splits one message among some nodes, and they
//! split their parts among others. A node that does not answer is told by its own connection, as every node is that gets a key.
//!
//! ```text
//!   changed orders --> who tells whom --> a datagram for each node, those of the nodes that it tells inside it --> Signal to the source
//!   Signalled of the source --> its orders are confirmed, those of the others said to them at once
//! ```
//! Updates that do not fit into a datagram go into another one along the same path. A part that is too long for one
//! datagram, or that would have to pass more nodes than a datagram has room for, goes directly to its node.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::HostId;
use headwater_units::{FlowId, NodeId, Time};
use headwater_wire::{
    Control, FlowSecret, HEADER, MAX_CONTROL, MAX_SIGNALLED, SYMBOL_OVERHEAD, Signal, SignalBranch,
    Signalled, ToNode, TreeUpdate, answer_key,
};

use super::InstalledTrees;
use crate::SignallingMode;
use crate::catalog::Catalog;
use crate::network::Network;
use crate::retry::Retry;
use crate::turn::Turn;

/// Bytes of a datagram inside another one beside its own, at most: the other fields of a [`SignalBranch`].
const WRAPPED: usize = 58;
/// Bytes that the number of branches may take beside its first byte.
const LONGER_COUNTS: usize = 2;
/// A signal's datagram without parts and branches, at most.
const FRAME: usize = HEADER + 18 + LONGER_COUNTS;
/// Signals whose answer is waited for, at most: those of the newest repairs.
const MOST_WAITING: usize = 64;

/// Trees that a signal tells of, each with its version.
type Told = Vec<(FlowId, u32)>;

/// The signals of a cast.
#[derive(Default)]
pub(super) struct Signals {
    secrets: BTreeMap<NodeId, FlowSecret>,
    last: u32,
    /// By number: who is told by it, and what, in the order in which an answer counts.
    waiting: BTreeMap<u32, Vec<(NodeId, Told)>>,
}

/// A node that is told something, or tells others.
struct Member {
    node: NodeId,
    secret: FlowSecret,
    at: Option<SocketAddr>,
    updates: Vec<TreeUpdate>,
    /// The members that it tells, by place.
    below: Vec<usize>,
}

/// A signal, and who is told by it.
struct Part {
    signal: Signal,
    members: Vec<(NodeId, Told)>,
    levels: u8,
    /// Bytes of its datagram at most.
    len: usize,
}

impl Signals {
    pub(super) fn secret(&self, node: NodeId) -> Option<&FlowSecret> {
        self.secrets.get(&node)
    }

    /// Each of these has a flow of its own for signals.
    pub(super) fn draw_keys<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a NodeId>,
        mut draw: impl FnMut() -> FlowSecret,
    ) {
        for node in nodes {
            self.secrets.entry(*node).or_insert_with(&mut draw);
        }
    }

    fn number(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    fn wait_for(&mut self, part: &Part) {
        self.waiting.insert(part.signal.number, part.members.clone());
        while self.waiting.len() > MOST_WAITING {
            self.waiting.pop_first();
        }
    }
}

impl InstalledTrees {
    /// Whether this is the flow of a node for the signals of these trees.
    pub(crate) fn signals_on(&self, node: NodeId, flow: FlowId) -> bool {
        self.signals.secret(node).is_some_and(|secret| secret.flow == flow)
    }

    /// Updates for nodes that could hear them from others: they have an older version.
    fn changed(&self, now: Time) -> BTreeMap<NodeId, Vec<TreeUpdate>> {
        let mut changed: BTreeMap<NodeId, Vec<TreeUpdate>> = BTreeMap::new();
        for ((node, _), order) in &self.orders {
            if order.known && !order.confirmed && order.say.due() <= now {
                changed.entry(*node).or_default().push(order.order.update());
            }
        }
        changed
    }

    /// Tells nodes whose orders have changed by way of the source, as far as that is possible and worth it. The others stay to be told.
    pub(super) fn signal_orders(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        network: &mut Network,
        standing: &BTreeMap<HostId, NodeId>,
    ) {
        let first = turn.config.retry_first;
        let Some(members) = self.tellings(turn, catalog, network, standing) else { return };
        let datagram = usize::from(self.room) + SYMBOL_OVERHEAD;
        let parts =
            Splitter { members: &members, signals: &mut self.signals }.parts(0, MAX_CONTROL, datagram);
        let mut told = BTreeSet::new();
        for (node, said) in parts.iter().flat_map(|part| &part.members) {
            for (tree, _) in said {
                let Some(order) = self.orders.get_mut(&(*node, *tree)) else { continue };
                // A node that has not confirmed it by then is told whatever becomes of the signal.
                order.say = Retry::at(turn.now + first, first);
                told.insert(*node);
            }
        }
        if let Some(repair) = self.repairs.back_mut() {
            repair.signalled = u16::try_from(told.len()).unwrap_or(u16::MAX);
        }
        turn.stats.nodes_signalled += told.len() as u64;
        for part in parts {
            self.signals.wait_for(&part);
            turn.tell(self.cargo.source, ToNode::Signal(Box::new(part.signal)));
        }
    }

    /// The signalling tree of changed orders, the source first. `None` if nobody is signalled.
    fn tellings(
        &self,
        turn: &Turn<'_>,
        catalog: &Catalog,
        network: &mut Network,
        standing: &BTreeMap<HostId, NodeId>,
    ) -> Option<Vec<Member>> {
        let (now, source) = (turn.now, self.cargo.source);
        let mut changed = self.changed(now);
        if network.signalling == SignallingMode::Direct || changed.is_empty() {
            return None;
        }
        let have_keys: BTreeSet<NodeId> =
            self.orders.iter().filter(|(_, order)| order.known).map(|((node, _), _)| *node).collect();
        let root = standing.iter().find(|(_, node)| **node == source).map(|(host, _)| *host);
        let root = root.filter(|_| have_keys.contains(&source))?;
        let takes_part = |host: HostId| standing.get(&host).is_some_and(|node| have_keys.contains(node));
        let tellings = network.tellings(now, root, turn.config.signal_fan_out, takes_part);

        let mut members: Vec<Member> = Vec::with_capacity(tellings.len() + 1);
        let mut member = |node: NodeId, at| {
            let secret = self.signals.secret(node)?.clone();
            let updates = changed.remove(&node).unwrap_or_default();
            Some(Member { node, secret, at, updates, below: Vec::new() })
        };
        // The source is at place 0, all others behind it as they are listed.
        members.push(member(source, None)?);
        for telling in &tellings {
            let node = *standing.get(&telling.host)?;
            let port = catalog.data_of(node).map(|at| at.port());
            let at = port.map(|port| SocketAddr::new(network.address(telling.host, telling.port), port));
            members.push(member(node, at)?);
        }
        // Those who tell stand before those that they tell: from the end on, a node that has nothing to say or to hear
        // is left out.
        for (place, telling) in tellings.iter().enumerate().rev() {
            let Member { at, updates, below, .. } = &members[place + 1];
            if at.is_some() && !(updates.is_empty() && below.is_empty()) {
                members[telling.by.map_or(0, |by| by + 1)].below.push(place + 1);
            }
        }
        Some(members)
    }

    /// A node says who was told. False if that is no answer that is waited for.
    pub(crate) fn signalled(&mut self, turn: &mut Turn<'_>, node: NodeId, answer: &Signalled) -> bool {
        if answer.open || node != self.cargo.source {
            return false;
        }
        let Some(members) = self.signals.waiting.remove(&answer.number) else { return false };
        let mut unanswered = 0;
        for (place, (node, said)) in (0..).zip(members) {
            let told = answer.untold.binary_search(&place).is_err();
            for (tree, version) in &said {
                let order = self.orders.get_mut(&(node, *tree));
                let Some(order) = order.filter(|order| order.order.version == *version) else { continue };
                order.confirmed |= told;
                if !order.confirmed {
                    order.say = turn.retry();
                }
            }
            unanswered += u16::from(!told && !said.is_empty());
        }
        if let Some(repair) = self.repairs.back_mut() {
            repair.unanswered = repair.unanswered.saturating_add(unanswered);
        }
        turn.stats.signals_unanswered += u64::from(unanswered);
        self.have_confirmed(turn.now);
        true
    }
}

/// Packs signals into each other.
struct Splitter<'a> {
    members: &'a [Member],
    signals: &'a mut Signals,
}

impl Splitter<'_> {
    fn part(&mut self, place: usize, updates: Vec<TreeUpdate>) -> Part {
        let Member { node, secret, .. } = &self.members[place];
        let said = updates.iter().map(|update| (update.tree, update.version)).collect();
        let signal = Signal { flow: secret.flow, number: self.signals.number(), updates, below: Vec::new() };
        let len =
            HEADER + Control::from(ToNode::Signal(Box::new(signal.clone()))).encoded_len() + LONGER_COUNTS;
        Part { signal, members: vec![(*node, said)], levels: 1, len }
    }

    /// Parts by which a node and those below it are told, each of at most `room` bytes, and those inside it of at most
    /// `inside`.
    fn parts(&mut self, place: usize, room: usize, inside: usize) -> Vec<Part> {
        let members = self.members;
        let mut parts = Vec::new();
        let mut last = self.part(place, members[place].updates.clone());
        if last.len > room {
            last = self.part(place, Vec::new());
        }
        if inside > FRAME {
            for &below in &members[place].below {
                for part in self.parts(below, inside, inside.saturating_sub(FRAME + WRAPPED)) {
                    if !last.has_room(room, &part) {
                        let full = std::mem::replace(&mut last, self.part(place, Vec::new()));
                        parts.extend(full.says_something().then_some(full));
                    }
                    if let (true, Some(to)) = (last.has_room(room, &part), members[below].at) {
                        last.add(part, to, &members[below].secret);
                    }
                }
            }
        }
        parts.extend(last.says_something().then_some(last));
        parts
    }
}

impl Part {
    fn says_something(&self) -> bool {
        !(self.signal.updates.is_empty() && self.signal.below.is_empty())
    }

    fn has_room(&self, room: usize, part: &Part) -> bool {
        self.len + WRAPPED + part.len <= room && self.members.len() + part.members.len() < MAX_SIGNALLED
    }

    fn add(&mut self, part: Part, to: SocketAddr, secret: &FlowSecret) {
        let Part { signal, members, levels, .. } = part;
        let branch = SignalBranch {
            to,
            flow: secret.flow,
            number: signal.number,
            answers: answer_key(&secret.key),
            members: u16::try_from(members.len()).expect("a signal has a limited number of members"),
            levels,
            datagram: signal.into_datagram(secret),
        };
        self.len += WRAPPED + branch.datagram.len();
        self.levels = self.levels.max(levels.saturating_add(1));
        self.members.extend(members);
        self.signal.below.push(branch);
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::FlowKey;
    use headwater_wire::{Body, HeaderKey, parse};
    use proptest::prelude::*;

    use super::*;

    /// Members of a tree, each with the number of trees that it is told of; each is told by one before it.
    fn members(by: &[(usize, usize)]) -> Vec<Member> {
        let at = |n: usize| SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 60_000));
        let update = |tree: usize| TreeUpdate {
            tree: FlowId(u64::MAX - tree as u64),
            version: u32::MAX,
            parent: Some(at(tree)),
            branches: vec![vec![at(1), at(2)], vec![at(3)]],
            receives: true,
        };
        let mut members: Vec<Member> = Vec::new();
        for (n, (before, trees)) in by.iter().enumerate() {
            let secret = FlowSecret { flow: FlowId(n as u64), key: FlowKey([n as u8; 32]) };
            members.push(Member {
                node: NodeId([n as u8; 32]),
                secret,
                at: Some(at(n)),
                updates: (0..*trees).map(update).collect(),
                below: Vec::new(),
            });
            if n > 0 {
                members[before % n].below.push(n);
            }
        }
        members
    }

    /// Nodes that a signal tells, in the order in which answers count; each datagram inside it must be its node's, and
    /// not too long.
    fn unpacked(signal: &Signal, members: &[Member], room: usize) -> Vec<(NodeId, usize)> {
        let its = &members[signal.flow.0 as usize];
        let mut told = vec![(its.node, signal.updates.len())];
        for branch in &signal.below {
            assert!(branch.datagram.len() <= room, "{} of {room}", branch.datagram.len());
            let its = &members[branch.flow.0 as usize];
            let parsed = parse(&branch.datagram, &HeaderKey::new(&its.secret.key)).unwrap().datagram;
            let Body::Control(control) = parsed.body else { panic!("{parsed:?}") };
            let Control::Node(ToNode::Signal(inside)) = *control else { panic!("{control:?}") };
            assert_eq!((inside.flow, inside.number, parsed.flow), (branch.flow, branch.number, branch.flow));
            let of_branch = unpacked(&inside, members, room);
            assert_eq!((of_branch.len(), Some(branch.to)), (usize::from(branch.members), its.at));
            told.extend(of_branch);
        }
        told
    }

    proptest! {
        /// Whatever the tree, each node's part is in one signal at most, and no datagram is longer than may be.
        #[test]
        fn signals_hold_each_part_once_and_fit(
            by in proptest::collection::vec((any::<usize>(), 0usize..3), 2..200),
            room in 100usize..1500,
        ) {
            let members = members(&by);
            let mut signals = Signals::default();
            let parts = Splitter { members: &members, signals: &mut signals }.parts(0, MAX_CONTROL, room);
            let mut told: BTreeMap<NodeId, usize> = BTreeMap::new();
            let mut numbers = BTreeSet::new();
            for part in &parts {
                prop_assert!(numbers.insert(part.signal.number));
                prop_assert!(Control::from(ToNode::Signal(Box::new(part.signal.clone()))).encoded_len() <= MAX_CONTROL);
                let unpacked = unpacked(&part.signal, &members, room);
                let counted: Vec<(NodeId, usize)> =
                    part.members.iter().map(|(node, said)| (*node, said.len())).collect();
                prop_assert_eq!(&counted, &unpacked);
                for (node, updates) in unpacked {
                    *told.entry(node).or_default() += updates;
                }
            }
            for member in &members {
                let all = told.get(&member.node).copied().unwrap_or(0);
                prop_assert!(all == 0 || all == member.updates.len());
            }
            // Where there is room for a few, the near ones are told.
            let near = |member: &&Member| members[0].below.iter().any(|n| members[*n].node == member.node);
            for member in members.iter().filter(near).filter(|_| room > 400) {
                prop_assert_eq!(told.get(&member.node).copied().unwrap_or(0), member.updates.len());
            }
        }
    }
}
