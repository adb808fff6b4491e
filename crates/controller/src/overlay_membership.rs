//! Membership of overlays: the parent of each receiver for each stripe of an object, as receivers come and go.
//!
//! ```text
//!   begin    all at once ([`super::striping`]); a place that has been given may be unclaimed for a while
//!   join     one that comes later: a leaf of half of the trees, a few slots in the others, where it takes the place of a leaf that has as
//!            little as itself
//!   mend     a stripe that nobody sends a receiver any more: another parent, never one below it
//!   leave    it is gone: those below it are mended one by one, as they ask
//! ```
//! A parent is chosen that has a slot left in that tree, or else one that sends less than it could; of these one in the same rack, and
//! the one nearest to the source. So where somebody dies, those below it go to its own parents, each of which has one child less.
//!
//! Knows nothing of tasks and flows: the caller says who may be chosen.

#[cfg(test)]
mod tests;
mod trees;

use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{Duration, NodeId, ObjectId, Time};

use crate::striping::{self, Parent, Receiver, Striping};
pub(crate) use trees::Known;
use trees::{MOST_RATED, Member, Overlay};

/// Least interval between changes of a tree because a receiver holds up others.
const RESPITE: Duration = Duration::from_secs(2);
/// Of more members than [`MOST_RATED`], the number of the same rack, and of those that have slots left in the tree,
/// that are looked at first.
const OF_THE_RACK: usize = 64;
const WITH_SLOTS: usize = 32;
/// Number that are looked at whatever they have: where many look for others at once, no slot is left.
const ANY: usize = 64;
/// Number of those below a receiver that are looked at where nobody else can send to it.
const MOST_RAISED: usize = 64;

/// The overlays, by object.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    overlays: BTreeMap<ObjectId, Overlay>,
}

/// A receiver that is there when an overlay begins.
#[derive(Clone, Debug)]
pub(crate) struct Beginner {
    pub(crate) node: NodeId,
    pub(crate) rack: Option<String>,
    /// Its uplink, compared with those of others.
    pub(crate) weight: f64,
}

/// Parents of a receiver, one for each stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parents {
    /// Number of stripes.
    pub(crate) of: u8,
    /// By stripe.
    pub(crate) nodes: Vec<NodeId>,
}

impl Overlays {
    /// T of an object's overlay, if there is one.
    pub(crate) fn symbol_size(&self, object: ObjectId) -> Option<u16> {
        self.overlays.get(&object).map(|overlay| overlay.symbol_size)
    }

    /// Number of those who receive an object, or did, and pass it on.
    pub(crate) fn size(&self, object: ObjectId) -> usize {
        self.overlays.get(&object).map_or(0, |overlay| overlay.members.len())
    }

    /// The same of all objects together.
    pub(crate) fn all_members(&self) -> usize {
        self.overlays.values().map(|overlay| overlay.members.len()).sum()
    }

    /// The stripes of an object's overlay.
    pub(crate) fn stripes(&self, object: ObjectId) -> impl Iterator<Item = u8> + use<> {
        0..self.overlays.get(&object).map_or(0, |overlay| overlay.of)
    }

    /// Whether a node is one of those that receive an object, or did, and pass it on.
    pub(crate) fn has(&self, object: ObjectId, node: NodeId) -> bool {
        self.overlays.get(&object).is_some_and(|overlay| overlay.members.contains_key(&node))
    }

    /// Those who receive an object, or did, and pass it on.
    pub(crate) fn members(&self, object: ObjectId) -> impl Iterator<Item = NodeId> {
        self.overlays.get(&object).into_iter().flat_map(|overlay| overlay.members.keys().copied())
    }

    /// Those who receive an object: first those that pass stripes on, stripe by stripe, from the source on. Looks at all.
    pub(crate) fn in_sending_order(&self, object: ObjectId) -> Vec<NodeId> {
        self.overlays.get(&object).map(Overlay::in_sending_order).unwrap_or_default()
    }

    /// Receivers begin an overlay; who sends which stripe to each, in their order. The stripes come from the sources in turn; there is
    /// one.
    pub(crate) fn begin(
        &mut self,
        object: ObjectId,
        symbol_size: u16,
        sources: &[NodeId],
        receivers: &[Beginner],
    ) -> Vec<(NodeId, Parents)> {
        let of = striping::stripes(receivers.len());
        let mut racks: BTreeMap<&str, usize> = BTreeMap::new();
        let mut numbered = Vec::with_capacity(receivers.len());
        for (at, it) in receivers.iter().enumerate() {
            let rack = match it.rack.as_deref() {
                // One that is in no rack is one by itself.
                None => receivers.len() + at,
                Some(rack) => {
                    let next = racks.len();
                    *racks.entry(rack).or_insert(next)
                }
            };
            numbered.push(Receiver { rack, weight: it.weight });
        }
        let Striping { parents, slots } = Striping::new(&numbered, of);
        let mut overlay = Overlay::new(symbol_size, of);
        for (it, slots) in receivers.iter().zip(slots) {
            let passes_on = slots.iter().any(|slots| *slots > 0);
            overlay.insert(it.node, Member { slots, passes_on, ..Member::new(it.rack.clone(), of) });
        }
        let node_of = |stripe: usize, parent: Parent| match parent {
            Parent::Source => sources[stripe % sources.len()],
            Parent::Receiver(at) => receivers[at].node,
        };
        let mut all = Vec::with_capacity(receivers.len());
        for (it, parents) in receivers.iter().zip(parents) {
            let nodes: Vec<NodeId> =
                parents.into_iter().enumerate().map(|(stripe, parent)| node_of(stripe, parent)).collect();
            (0..).zip(&nodes).for_each(|(stripe, parent)| overlay.adopt(it.node, stripe, *parent));
            all.push((it.node, Parents { of, nodes }));
        }
        overlay.deal_spare();
        self.overlays.insert(object, overlay);
        all
    }

    /// The place of a receiver is kept, although it has not asked for the object yet.
    pub(crate) fn keep_place(&mut self, object: ObjectId, node: NodeId) {
        if let Some(member) = self.member_mut(object, node) {
            member.is_unclaimed = true;
        }
    }

    /// Whether a place is kept for a receiver that has not asked for the object yet.
    pub(crate) fn is_unclaimed(&self, object: ObjectId, node: NodeId) -> bool {
        self.member(object, node).is_some_and(|member| member.is_unclaimed)
    }

    /// A receiver asks that has a place: who sends it which stripe. `None` if it has none, or somebody has gone who was to send to it.
    pub(crate) fn claim(&mut self, object: ObjectId, node: NodeId) -> Option<Parents> {
        let of = self.overlays.get(&object)?.of;
        let member = self.member_mut(object, node).filter(|member| member.is_unclaimed)?;
        let nodes: Option<Vec<NodeId>> = member.parents.iter().copied().collect();
        member.is_unclaimed = nodes.is_none();
        nodes.map(|nodes| Parents { of, nodes })
    }

    /// Places that nobody has asked for are given up. Returns who had a stripe from there.
    pub(crate) fn take_unclaimed(&mut self, object: ObjectId) -> Vec<NodeId> {
        let Some(overlay) = self.overlays.get(&object) else { return Vec::new() };
        let unclaimed = overlay.members.iter().filter(|(_, member)| member.is_unclaimed);
        let unclaimed: Vec<NodeId> = unclaimed.map(|(node, _)| *node).collect();
        unclaimed.into_iter().flat_map(|node| self.leave(object, node)).collect()
    }

    /// Somebody comes later: who sends it which stripe. `None` if there is no such overlay, or nobody for some stripe. In trees in which it
    /// has slots it may stand above a leaf that `yields` its place: that is among its children then.
    pub(crate) fn join(
        &mut self,
        object: ObjectId,
        (node, rack): (NodeId, Option<&str>),
        passes_on: bool,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
        yields: impl Fn(NodeId) -> bool,
    ) -> Option<Parents> {
        self.leave(object, node);
        let overlay = self.overlays.get_mut(&object)?;
        let of = overlay.of;
        overlay.insert(node, Member { passes_on, ..Member::new(rack.map(str::to_owned), of) });
        if passes_on {
            overlay.deal_slots(node);
        }
        let nodes: Option<Vec<NodeId>> =
            (0..usize::from(of)).map(|stripe| overlay.choose_late(node, stripe, known, &yields)).collect();
        if nodes.is_none() {
            self.withdraw(object, node);
        }
        nodes.map(|nodes| Parents { of, nodes })
    }

    /// Somebody that has just joined does not come after all, and nobody has been told of it: each leaf has its place back.
    pub(crate) fn withdraw(&mut self, object: ObjectId, node: NodeId) {
        let Some(overlay) = self.overlays.get_mut(&object) else { return };
        for stripe in 0..usize::from(overlay.of) {
            if let Some(above) = overlay.parent(node, stripe) {
                let below = overlay.children(node, stripe).to_vec();
                below.into_iter().for_each(|leaf| overlay.adopt(leaf, stripe, above));
            }
        }
        self.leave(object, node);
    }

    /// A stripe does not come to a receiver any more: who sends it from now on. If there is nobody else, it stays as it is.
    pub(crate) fn mend(
        &mut self,
        object: ObjectId,
        (node, stripe): (NodeId, u8),
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
    ) -> Option<NodeId> {
        let wants = |overlay: &&mut Overlay| overlay.members.get(&node).is_some_and(|member| !member.is_done);
        let overlay = self.overlays.get_mut(&object).filter(wants)?;
        let stripe = usize::from(stripe);
        let before = overlay.members[&node].parents[stripe];
        overlay.abandon(node, stripe);
        let found = overlay.choose(node, stripe, known);
        if let (None, Some(before)) = (found, before) {
            overlay.adopt(node, stripe, before);
        }
        found
    }

    /// A receiver has all of the object, and needs nobody any more.
    pub(crate) fn done(&mut self, object: ObjectId, node: NodeId) {
        if let Some(overlay) = self.overlays.get_mut(&object) {
            (0..usize::from(overlay.of)).for_each(|stripe| overlay.abandon(node, stripe));
            overlay.members.get_mut(&node).into_iter().for_each(|member| member.is_done = true);
        }
    }

    fn member(&self, object: ObjectId, node: NodeId) -> Option<&Member> {
        self.overlays.get(&object)?.members.get(&node)
    }

    fn member_mut(&mut self, object: ObjectId, node: NodeId) -> Option<&mut Member> {
        self.overlays.get_mut(&object)?.members.get_mut(&node)
    }

    /// Whether one of them has all of the object, or had.
    pub(crate) fn is_done(&self, object: ObjectId, node: NodeId) -> bool {
        self.member(object, node).is_some_and(|member| member.is_done)
    }

    /// Whether one of them has all of the object, or had, or has not asked for it yet.
    pub(crate) fn is_done_or_unclaimed(&self, object: ObjectId, node: NodeId) -> bool {
        self.member(object, node).is_some_and(|member| member.is_done || member.is_unclaimed)
    }

    /// Parent of a receiver for a stripe.
    pub(crate) fn parent(&self, object: ObjectId, node: NodeId, stripe: u8) -> Option<NodeId> {
        self.member(object, node)?.parents.get(usize::from(stripe)).copied()?
    }

    /// Children of a node for a stripe.
    pub(crate) fn children(&self, object: ObjectId, node: NodeId, stripe: u8) -> &[NodeId] {
        self.overlays.get(&object).map_or(&[], |overlay| overlay.children(node, usize::from(stripe)))
    }

    /// Whether a tree may change once more because somebody holds up others.
    pub(crate) fn may_demote(&self, now: Time, object: ObjectId, stripe: u8) -> bool {
        let last = self.overlays.get(&object).and_then(|it| *it.demoted.get(usize::from(stripe))?);
        last.is_none_or(|last| now >= last + RESPITE)
    }

    /// A stripe has moved because nothing came, or nothing since it moved before.
    pub(crate) fn on_moved(&mut self, object: ObjectId, is_in_vain: bool) {
        self.overlays.get_mut(&object).into_iter().for_each(|overlay| overlay.moves.on_moved(is_in_vain));
    }

    /// When one more may, of so many stripes that have blocks; now, if it may.
    pub(crate) fn may_move_at(
        &mut self,
        now: Time,
        object: ObjectId,
        stripes: usize,
        span: Duration,
    ) -> Time {
        let Some(overlay) = self.overlays.get_mut(&object) else { return now };
        let may = overlay.moves.allows(now, overlay.members.len() * stripes, span);
        if may { now } else { overlay.moves.opens(span) }
    }

    /// Members among which one is found that sends a stripe to a receiver, if an overlay is large: those of its rack, some of those
    /// that have slots left, and some others, of those that `may` send. `None`: they are few, and all are looked at.
    pub(crate) fn likely(
        &self,
        object: ObjectId,
        (node, stripe): (NodeId, u8),
        rack: Option<&str>,
        may: impl Fn(NodeId) -> bool,
    ) -> Option<Vec<NodeId>> {
        let overlay = self.overlays.get(&object).filter(|it| it.members.len() > MOST_RATED)?;
        let free = overlay.free.get(usize::from(stripe))?;
        // Each receiver begins elsewhere, so that not all turn to the same.
        let around = free.range(node..).chain(free.range(..node)).filter(|it| may(**it)).take(WITH_SLOTS);
        let any = overlay.members.range(node..).chain(overlay.members.range(..node)).map(|(it, _)| it);
        let any = any.filter(|it| may(**it)).take(ANY);
        let mates = rack
            .and_then(|rack| overlay.racks.get(rack))
            .into_iter()
            .flatten()
            .filter(|it| may(**it))
            .take(OF_THE_RACK);
        let likely: BTreeSet<NodeId> = around.chain(mates).chain(any).copied().collect();
        Some(likely.into_iter().collect())
    }

    /// From now on a receiver has a stripe from nobody.
    pub(crate) fn abandon(&mut self, object: ObjectId, node: NodeId, stripe: u8) {
        let overlay = self.overlays.get_mut(&object);
        overlay.into_iter().for_each(|overlay| overlay.abandon(node, usize::from(stripe)));
    }

    /// Whoever is below a receiver in a tree may stand above it from now on, if there has been no such change lately: the nearest of them,
    /// but not very many. Nobody is above the receiver then.
    pub(crate) fn raisable(&mut self, now: Time, object: ObjectId, node: NodeId, stripe: u8) -> Vec<NodeId> {
        if !self.may_demote(now, object, stripe) {
            return Vec::new();
        }
        let mut below = self.children(object, node, stripe).to_vec();
        let mut at = 0;
        while let Some(node) = below.get(at).filter(|_| below.len() < MOST_RAISED) {
            below.extend_from_slice(self.children(object, *node, stripe));
            at += 1;
        }
        if let Some(overlay) = self.overlays.get_mut(&object).filter(|_| !below.is_empty()) {
            overlay.demoted[usize::from(stripe)] = Some(now);
            overlay.abandon(node, usize::from(stripe));
        }
        below
    }

    /// Those below a member in a tree.
    pub(crate) fn below(&self, object: ObjectId, node: NodeId, stripe: u8) -> BTreeSet<NodeId> {
        let (mut all, mut next) = (BTreeSet::new(), vec![node]);
        while let Some(at) = next.pop() {
            next.extend(self.children(object, at, stripe).iter().filter(|child| all.insert(**child)));
        }
        all
    }

    /// A receiver holds up those below it in a tree: one of its children takes its place there, the one that may have most of its own,
    /// and it becomes a leaf. A receiver has it from a node only if it `takes` it from there. Who has that stripe from whom from now on, the
    /// heir first; nobody, if there is no such tree.
    pub(crate) fn demote(
        &mut self,
        now: Time,
        object: ObjectId,
        (slow, stripe): (NodeId, u8),
        takes: impl Fn(NodeId, NodeId) -> bool,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
    ) -> Vec<(NodeId, NodeId)> {
        // Before the last change has shown what it is good for there is no other.
        let is_due = self.may_demote(now, object, stripe);
        let Some(overlay) = self.overlays.get_mut(&object).filter(|_| is_due) else { return Vec::new() };
        let stripe = usize::from(stripe);
        let Some((above, below)) = overlay.members.get(&slow).and_then(|it| it.place(stripe)) else {
            return Vec::new();
        };
        let passes_on = |node: &NodeId| overlay.members.get(node).is_some_and(|it| it.passes_on);
        let can = |node: &NodeId| passes_on(node) && (known.may)(*node) && takes(*node, above);
        let heirs = below.iter().copied().filter(can);
        let heirs = heirs.map(|node| (overlay.slots(node, stripe), Reverse(node)));
        let Some((most, Reverse(heir))) = heirs.max() else { return Vec::new() };
        if overlay.depth(stripe, above, heir, &known.holds).is_none() {
            return Vec::new();
        }
        overlay.demoted[stripe] = Some(now);
        overlay.adopt(heir, stripe, above);
        if let Some(member) = overlay.members.get_mut(&slow) {
            member.slots[stripe] = 0;
        }
        overlay.note_free(slow);
        // An uplink that sends too much is the next that is slow: the heir keeps what it has room for, those first that send to others.
        let children = overlay.members.get(&heir).map_or_else(Vec::new, |it| it.children[stripe].clone());
        let mut moving: Vec<NodeId> =
            below.into_iter().filter(|node| *node != heir).chain(children).collect();
        moving.sort_by_cached_key(|node| (Reverse(overlay.slots(*node, stripe)), *node));
        let stay = |node: &NodeId| overlay.parent(*node, stripe) == Some(heir);
        let kept: Vec<NodeId> = moving.iter().take(most as usize).copied().filter(stay).collect();
        moving.retain(|node| !kept.contains(node));
        moving.push(slow);
        moving.iter().for_each(|node| overlay.abandon(*node, stripe));
        let mut placed = vec![(heir, above)];
        let mut left = Vec::new();
        for node in moving {
            let may = |other| other != slow && (known.may)(other) && takes(node, other);
            let source = known.source.filter(|source| takes(node, *source));
            let known = Known { among: known.among.clone(), ..Known::of_all(may, &known.holds, source) };
            match overlay.choose(node, stripe, &known) {
                Some(parent) => placed.push((node, parent)),
                None => left.push(node),
            }
        }
        // Nobody is found for one that is above all others, and needs nobody since it has the object, but stood below too.
        for node in left {
            let parent = if takes(node, heir) { heir } else { slow };
            overlay.adopt(node, stripe, if node == slow { above } else { parent });
        }
        placed
    }

    /// The stripes that somebody has from a node.
    pub(crate) fn passed_on_by(&self, object: ObjectId, node: NodeId) -> Vec<u8> {
        let member = self.overlays.get(&object).and_then(|overlay| overlay.members.get(&node));
        let children = member.into_iter().flat_map(|it| (0..).zip(&it.children));
        children.filter(|(_, its)| !its.is_empty()).map(|(stripe, _)| stripe).collect()
    }

    /// A receiver is gone, with its slots. Returns the receivers that had a stripe from it, which are to be mended.
    pub(crate) fn leave(&mut self, object: ObjectId, node: NodeId) -> Vec<NodeId> {
        let Some(overlay) = self.overlays.get_mut(&object) else { return Vec::new() };
        (0..usize::from(overlay.of)).for_each(|stripe| overlay.abandon(node, stripe));
        let Some(gone) = overlay.remove(node) else { return Vec::new() };
        for (stripe, children) in gone.children.iter().enumerate() {
            // Their way to the source is broken until they are mended.
            for child in children {
                overlay.members.get_mut(child).into_iter().for_each(|child| child.parents[stripe] = None);
            }
        }
        gone.children.concat()
    }

    /// A node that had all of the object has it no longer.
    pub(crate) fn lose(&mut self, object: ObjectId, node: NodeId) {
        if self.is_done(object, node) {
            self.leave(object, node);
        }
    }

    /// Restores one edge of an overlay after a restart: `node` has the stripe from `parent`.
    pub(crate) fn restore(
        &mut self,
        object: ObjectId,
        (symbol_size, of): (u16, u8),
        (node, rack): (NodeId, Option<&str>),
        (stripe, parent): (u8, NodeId),
    ) {
        let overlay = self.overlays.entry(object).or_insert_with(|| Overlay::new(symbol_size, of));
        let of = overlay.of;
        if stripe < overlay.of {
            if !overlay.members.contains_key(&node) {
                // Who was to send what is not known any more.
                let slots = vec![1; usize::from(of)];
                overlay.insert(node, Member { slots, ..Member::new(rack.map(str::to_owned), of) });
            }
            overlay.adopt(node, usize::from(stripe), parent);
        }
    }

    /// Nobody receives the object any more.
    pub(crate) fn remove(&mut self, object: ObjectId) {
        self.overlays.remove(&object);
    }
}
