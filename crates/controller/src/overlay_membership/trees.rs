//! The trees of one overlay: its members, the slots that they have in each tree, and who sends whom which stripe.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_units::{NodeId, Time};

use crate::mending::Budget;

/// Number of slots that one that comes later has in a tree, in half of the trees: trees of two children each are no chain, and with the
/// second one that comes all trees have some.
const LATE_SLOTS: u32 = 2;

/// Of more members than this not all are looked at.
pub(super) const MOST_RATED: usize = 256;
/// One in the same rack is chosen although it has no slot left, unless it sends twice what it should already: two copies.
const MOST_LOAD: u32 = 2000;
/// Load of a member whose slots all have a child.
const ALL_SLOTS: u32 = 1000;

/// The receivers of one object that pass on to each other what comes.
#[derive(Debug)]
pub(super) struct Overlay {
    pub(super) symbol_size: u16,
    /// Number of stripes.
    pub(super) of: u8,
    pub(super) members: BTreeMap<NodeId, Member>,
    /// Those that have stripes from a node that is no member, such as a source: by that node and stripe.
    outside: BTreeMap<(NodeId, usize), Vec<NodeId>>,
    /// By stripe: members that may send it to one more.
    pub(super) free: Vec<BTreeSet<NodeId>>,
    /// By rack: the members in it.
    pub(super) racks: BTreeMap<String, BTreeSet<NodeId>>,
    /// By stripe: when somebody became a leaf of its tree last because it held up others.
    pub(super) demoted: Vec<Option<Time>>,
    /// Stripes that moved lately because nothing came.
    pub(super) moves: Budget,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) rack: Option<String>,
    /// By stripe: who sends it, a receiver of the object or one of its sources; nobody while that is looked for.
    pub(super) parents: Vec<Option<NodeId>>,
    /// By stripe: how many children it may have, and has.
    pub(super) slots: Vec<u32>,
    pub(super) children: Vec<Vec<NodeId>>,
    /// It has all of the object.
    pub(super) is_done: bool,
    /// Others may have stripes from it.
    pub(super) passes_on: bool,
    /// It has not asked for the object yet; its place is kept.
    pub(super) is_unclaimed: bool,
}

/// The caller's knowledge of the nodes.
pub(crate) struct Known<M, H> {
    /// Only these members are looked at, if they are given.
    pub(crate) among: Option<Vec<NodeId>>,
    /// Whether a node may be asked.
    pub(crate) may: M,
    /// Whether it has all of the object.
    pub(crate) holds: H,
    /// Racks that may be cut off from the receiver.
    pub(crate) suspects: BTreeSet<String>,
    /// A source that is in the receiver's rack: better than a receiver that is not.
    pub(crate) near: Option<NodeId>,
    /// A source that sends the stripe to nobody but those that have failed the receiver: better than a member that has no slot left.
    pub(crate) vacant: Option<NodeId>,
    /// Sends what no receiver can send.
    pub(crate) source: Option<NodeId>,
}

/// Who can send a stripe to a receiver.
#[derive(Clone, Copy)]
struct Best {
    node: NodeId,
    /// It is not in the receiver's rack.
    is_far: bool,
    /// It has no slot left in that tree.
    is_full: bool,
    /// Nor in any other.
    is_spent: bool,
    /// Hops to it from the source.
    depth: u32,
}

impl<M: Fn(NodeId) -> bool, H: Fn(NodeId) -> bool> Known<M, H> {
    /// All members are looked at, wherever they stand.
    pub(crate) fn of_all(may: M, holds: H, source: Option<NodeId>) -> Self {
        Known { among: None, may, holds, suspects: BTreeSet::new(), near: None, vacant: None, source }
    }
}

impl Member {
    pub(super) fn new(rack: Option<String>, of: u8) -> Self {
        let none = vec![0; usize::from(of)];
        Member {
            rack,
            parents: vec![None; usize::from(of)],
            slots: none,
            children: vec![Vec::new(); usize::from(of)],
            is_done: false,
            passes_on: true,
            is_unclaimed: false,
        }
    }

    /// Its parent in a tree, and its children.
    pub(super) fn place(&self, stripe: usize) -> Option<(NodeId, Vec<NodeId>)> {
        Some((self.parents[stripe]?, self.children[stripe].clone()))
    }

    /// Slots that it has left in a tree. Where it has lent some to another tree, it has fewer.
    pub(super) fn free(&self, stripe: usize) -> u32 {
        let here = self.slots[stripe].saturating_sub(self.children[stripe].len() as u32);
        let everywhere = self.slots.iter().sum::<u32>().saturating_sub(self.all_children());
        here.min(everywhere)
    }

    fn all_children(&self) -> u32 {
        self.children.iter().map(|children| children.len() as u32).sum()
    }

    /// How good a parent it is for a receiver of a rack, the best first, but for how deep it stands: sends too much already, is in
    /// another rack, has no slot left, and how much it sends.
    pub(super) fn rating(&self, stripe: usize, rack: Option<&str>) -> (bool, bool, bool, u32, u32) {
        let (is_full, load) = (self.free(stripe) == 0, self.load());
        let is_far = rack.is_none() || self.rack.as_deref() != rack;
        // Those that are full are compared by how full they are.
        let least = if is_full { load } else { 0 };
        (is_full && load >= MOST_LOAD, is_far, is_full, least, load)
    }

    /// Children that it has in all trees, in thousandths of those that it may have.
    pub(super) fn load(&self) -> u32 {
        (self.all_children() * 1000).checked_div(self.slots.iter().sum()).unwrap_or(u32::MAX)
    }
}

impl Overlay {
    pub(super) fn new(symbol_size: u16, of: u8) -> Self {
        let stripes = usize::from(of);
        let free = vec![BTreeSet::new(); stripes];
        let (members, outside, racks) = Default::default();
        Overlay {
            symbol_size,
            of,
            members,
            outside,
            free,
            racks,
            demoted: vec![None; stripes],
            moves: Budget::default(),
        }
    }

    pub(super) fn insert(&mut self, node: NodeId, mut member: Member) {
        // Who had a stripe from it before has it still.
        for (stripe, children) in member.children.iter_mut().enumerate() {
            children.extend(self.outside.remove(&(node, stripe)).unwrap_or_default());
        }
        if let Some(rack) = &member.rack {
            self.racks.entry(rack.clone()).or_default().insert(node);
        }
        self.members.insert(node, member);
        self.note_free(node);
    }

    pub(super) fn remove(&mut self, node: NodeId) -> Option<Member> {
        let member = self.members.remove(&node)?;
        self.free.iter_mut().for_each(|free| _ = free.remove(&node));
        if let Some(mates) = member.rack.as_ref().and_then(|rack| self.racks.get_mut(rack)) {
            mates.remove(&node);
        }
        Some(member)
    }

    /// Who sends a stripe to a member.
    pub(super) fn parent(&self, node: NodeId, stripe: usize) -> Option<NodeId> {
        self.members.get(&node)?.parents[stripe]
    }

    /// Those that have a stripe from a node.
    pub(super) fn children(&self, node: NodeId, stripe: usize) -> &[NodeId] {
        match self.members.get(&node) {
            Some(member) => member.children.get(stripe).map_or(&[], Vec::as_slice),
            None => self.outside.get(&(node, stripe)).map_or(&[], Vec::as_slice),
        }
    }

    /// All members: first those that pass stripes on, stripe by stripe, from the source on.
    pub(super) fn in_sending_order(&self) -> Vec<NodeId> {
        let mut order = Vec::with_capacity(self.members.len());
        let mut leaves: BTreeSet<NodeId> = self.members.keys().copied().collect();
        for stripe in 0..usize::from(self.of) {
            let is_member = |parent: NodeId| self.members.contains_key(&parent);
            let roots =
                self.members.iter().filter(|(_, member)| !member.parents[stripe].is_some_and(is_member));
            let mut open: VecDeque<NodeId> = roots.map(|(node, _)| *node).collect();
            while let Some(node) = open.pop_front() {
                let children = self.children(node, stripe);
                open.extend(children);
                if !children.is_empty() && leaves.remove(&node) {
                    order.push(node);
                }
            }
        }
        order.extend(leaves);
        order
    }

    /// Number of children that a member may have in a tree.
    pub(super) fn slots(&self, node: NodeId, stripe: usize) -> u32 {
        self.members.get(&node).map_or(0, |member| member.slots[stripe])
    }

    /// A member may send stripes to one more, or no longer.
    pub(super) fn note_free(&mut self, node: NodeId) {
        let member = self.members.get(&node).filter(|member| member.passes_on);
        for (stripe, free) in self.free.iter_mut().enumerate() {
            match member.is_some_and(|member| member.free(stripe) > 0) {
                true => _ = free.insert(node),
                false => _ = free.remove(&node),
            }
        }
    }

    /// From now on a receiver has a stripe from this node.
    pub(super) fn adopt(&mut self, node: NodeId, stripe: usize, parent: NodeId) {
        self.abandon(node, stripe);
        if let Some(member) = self.members.get_mut(&node) {
            member.parents[stripe] = Some(parent);
        }
        match self.members.get_mut(&parent) {
            Some(above) => above.children[stripe].push(node),
            None => self.outside.entry((parent, stripe)).or_default().push(node),
        }
        self.note_free(parent);
    }

    /// From now on it has it from nobody.
    pub(super) fn abandon(&mut self, node: NodeId, stripe: usize) {
        let before = self.members.get_mut(&node).and_then(|member| member.parents[stripe].take());
        let Some(parent) = before else { return };
        let of_member = self.members.get_mut(&parent).map(|above| &mut above.children[stripe]);
        let outside = &mut self.outside;
        if let Some(children) = of_member.or_else(|| outside.get_mut(&(parent, stripe))) {
            children.retain(|child| *child != node);
        }
        self.note_free(parent);
    }

    /// Hops to a receiver in a tree, from a node that `holds` the object; none if the way is broken, or leads through
    /// `not`.
    pub(super) fn depth(
        &self,
        stripe: usize,
        node: NodeId,
        not: NodeId,
        holds: impl Fn(NodeId) -> bool,
    ) -> Option<u32> {
        let (mut at, mut hops) = (node, 0);
        loop {
            // No way is longer than there are members.
            if at == not || hops > self.members.len() as u32 {
                return None;
            }
            let Some(member) = self.members.get(&at).filter(|member| !member.is_done && !holds(at)) else {
                return Some(hops);
            };
            (at, hops) = (member.parents[stripe]?, hops + 1);
        }
    }

    /// Finds somebody who sends a stripe to a receiver, and remembers that.
    pub(super) fn choose(
        &mut self,
        node: NodeId,
        stripe: usize,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
    ) -> Option<NodeId> {
        let best = self.best(node, stripe, known);
        self.choose_best(node, stripe, known, best)
    }

    fn choose_best<M, H>(
        &mut self,
        node: NodeId,
        stripe: usize,
        known: &Known<M, H>,
        best: Option<Best>,
    ) -> Option<NodeId> {
        let is_near = best.is_some_and(|best| !best.is_far);
        let near = known.near.filter(|_| !is_near);
        let best = best.filter(|best| !best.is_spent || known.vacant.is_none());
        let parent = near.or(best.map(|best| best.node)).or(known.vacant).or(known.source)?;
        self.adopt(node, stripe, parent);
        Some(parent)
    }

    /// The same for one that comes late. Few have slots left, and those that came last have them: below each other they would be a chain. So
    /// where it has slots itself, it takes the place of a leaf that yields, if that is nearer to the source, and sends to that leaf.
    pub(super) fn choose_late(
        &mut self,
        node: NodeId,
        stripe: usize,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
        yields: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        let best = self.best(node, stripe, known);
        let below_best = best.filter(|best| !best.is_full).map(|best| best.depth + 1);
        let leaf = self.nearest_leaf(node, stripe, known, yields);
        let leaf = leaf.filter(|(depth, _)| below_best.is_none_or(|below_best| *depth < below_best));
        let place = leaf.and_then(|(_, leaf)| Some((leaf, self.parent(leaf, stripe)?)));
        let Some((leaf, above)) = place else { return self.choose_best(node, stripe, known, best) };
        self.adopt(node, stripe, above);
        self.adopt(leaf, stripe, node);
        Some(above)
    }

    /// The best of those members that can send a stripe to a receiver.
    fn best(
        &self,
        node: NodeId,
        stripe: usize,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
    ) -> Option<Best> {
        let rack = self.members.get(&node)?.rack.as_deref();
        let may =
            |(other, member): &(NodeId, &Member)| *other != node && member.passes_on && (known.may)(*other);
        let rated = self.looked_at(known).filter(may).filter_map(|(other, member)| {
            let (is_overloaded, is_far, is_full, least, load) = member.rating(stripe, rack);
            // Who sends one more than it can is late for all below it: so nobody who has many there.
            let below = if is_full { self.grandchildren(member) } else { 0 };
            let depth = self.depth(stripe, other, node, &known.holds)?;
            let is_suspect = member.rack.as_ref().is_some_and(|rack| known.suspects.contains(rack));
            Some(((is_overloaded, is_suspect, is_far, is_full, least, below, depth, load), other))
        });
        let ((_, _, is_far, is_full, _, _, depth, load), node) = rated.min()?;
        Some(Best { node, is_far, is_full, is_spent: is_full && load >= ALL_SLOTS, depth })
    }

    /// Number of those who have a stripe from those that have it from a member.
    fn grandchildren(&self, member: &Member) -> usize {
        let each = member.children.iter().enumerate();
        let children = each.flat_map(|(stripe, its)| its.iter().map(move |child| (*child, stripe)));
        children.map(|(child, stripe)| self.children(child, stripe).len()).sum()
    }

    /// The leaf of a tree that is nearest to the source, of those that yield to a receiver that can send to it; and how near. It is of the
    /// receiver's rack: so what comes to that enters it no more often than before.
    fn nearest_leaf(
        &self,
        node: NodeId,
        stripe: usize,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
        yields: impl Fn(NodeId) -> bool,
    ) -> Option<(u32, NodeId)> {
        let above = self.members.get(&node).filter(|member| member.free(stripe) > 0)?;
        let is_leaf = |member: &Member| member.slots[stripe] == 0 && member.children[stripe].is_empty();
        let may = |(other, member): &(NodeId, &Member)| {
            *other != node
                && member.rack == above.rack
                && is_leaf(member)
                && (known.may)(*other)
                && yields(*other)
        };
        let leaves = self.looked_at(known).filter(may);
        // One that has the object needs nobody.
        let depth = |leaf| self.depth(stripe, leaf, node, &known.holds).filter(|depth| *depth > 0);
        leaves.filter_map(|(leaf, _)| Some((depth(leaf)?, leaf))).min()
    }

    /// The members that are looked at.
    fn looked_at<M, H>(&self, known: &Known<M, H>) -> impl Iterator<Item = (NodeId, &Member)> {
        let likely = known.among.iter().flatten().filter_map(|node| self.members.get_key_value(node));
        let all = self.members.iter().filter(|_| known.among.is_none());
        likely.chain(all).map(|(node, member)| (*node, member))
    }

    /// Slots for one that comes later, in those trees that have the fewest left.
    pub(super) fn deal_slots(&mut self, node: NodeId) {
        // Of many it is enough to know how many have some.
        let slots_left = |stripe: usize| match self.members.len() > MOST_RATED {
            true => self.free[stripe].len() as u32,
            false => self.members.values().map(|member| member.free(stripe)).sum(),
        };
        let mut left: Vec<(u32, usize)> =
            (0..usize::from(self.of)).map(|stripe| (slots_left(stripe), stripe)).collect();
        left.sort_unstable();
        if let Some(member) = self.members.get_mut(&node) {
            let mut copy = u32::from(self.of);
            for (_, stripe) in left {
                member.slots[stripe] = LATE_SLOTS.min(copy);
                copy -= member.slots[stripe];
            }
        }
        self.note_free(node);
    }

    /// Trees need a few edges fewer than there are slots: everybody may send a whole copy, for those who come later.
    pub(super) fn deal_spare(&mut self) {
        let of = u32::from(self.of);
        for member in self.members.values_mut() {
            let sum: u32 = member.slots.iter().sum();
            let Some(spare) = of.checked_sub(sum).filter(|_| sum > 0) else { continue };
            let mut inside: Vec<&mut u32> = member.slots.iter_mut().filter(|slots| **slots > 0).collect();
            let trees = inside.len();
            (0..spare as usize).for_each(|n| *inside[n % trees] += 1);
        }
        let members: Vec<NodeId> = self.members.keys().copied().collect();
        members.into_iter().for_each(|node| self.note_free(node));
    }
}
