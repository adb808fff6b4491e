//! Who sends which stripe of which object to whom: the trees of overlays, as receivers come and go.
//!
//! ```text
//!   begin    all at once ([`super::striping`]); a place that has been given may be unclaimed for a while
//!   join     one that comes later: a leaf of each tree, and a few slots in those trees that have the fewest left
//!   mend     a stripe that nobody sends a receiver any more: another parent, never one below it
//!   leave    it is gone: those below it are mended one by one, as they ask
//! ```
//! A parent is chosen that has a slot left in that tree, or else one that sends less than it could; of these one in the same rack, and
//! the one nearest to the source. So where somebody dies, those below it go to its own parents, each of which has one child less.
//!
//! Knows nothing of tasks and flows: whoever asks says who may be chosen.

use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{Duration, NodeId, ObjectId, Time};

use crate::striping::{self, Parent, Receiver, Striping};

/// One that comes later has slots in so many trees, and so many in each: trees of two children each are no chain, and soon all trees have
/// some.
const LATE_TREES: usize = 2;
const LATE_SLOTS: u32 = 2;

/// A tree changes at most so often because somebody holds up others.
const RESPITE: Duration = Duration::from_secs(2);
/// Of more members than so many, first some of the same rack and some that have slots left in the tree are looked at.
const MOST_RATED: usize = 256;
const OF_THE_RACK: usize = 64;
const WITH_SLOTS: usize = 32;
/// One in the same rack is chosen although it has no slot left, unless it sends twice what it should already: two copies.
const MOST_LOAD: u32 = 2000;

/// The overlays, by object.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    overlays: BTreeMap<ObjectId, Overlay>,
}

/// The receivers of one object that pass on to each other what comes.
#[derive(Debug)]
struct Overlay {
    symbol_size: u16,
    /// Number of stripes.
    of: u8,
    members: BTreeMap<NodeId, Member>,
    /// By stripe: members that may send it to one more.
    free: Vec<BTreeSet<NodeId>>,
    /// By rack: the members in it.
    racks: BTreeMap<String, BTreeSet<NodeId>>,
    /// By stripe: when somebody became a leaf of its tree last because it held up others.
    demoted: Vec<Option<Time>>,
}

/// One of them.
#[derive(Clone, Debug)]
struct Member {
    rack: Option<String>,
    /// By stripe: who sends it, a receiver of the object or one of its sources; nobody while that is looked for.
    parents: Vec<Option<NodeId>>,
    /// By stripe: how many children it may have, and has.
    slots: Vec<u32>,
    children: Vec<Vec<NodeId>>,
    /// It has all of the object.
    is_done: bool,
    /// Others may have stripes from it.
    passes_on: bool,
    /// It has not asked for the object yet; its place is kept.
    is_unclaimed: bool,
}

/// A receiver that is there when an overlay begins.
#[derive(Clone, Debug)]
pub(crate) struct Beginner {
    pub(crate) node: NodeId,
    pub(crate) rack: Option<String>,
    /// Its uplink, compared with those of others.
    pub(crate) weight: f64,
}

/// Who sends a receiver which stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parents {
    /// Number of stripes.
    pub(crate) of: u8,
    /// By stripe.
    pub(crate) nodes: Vec<NodeId>,
}

/// What whoever asks knows of the nodes.
pub(crate) struct Known<M, H> {
    /// Only these members are looked at, if they are given.
    pub(crate) among: Option<Vec<NodeId>>,
    /// Whether a node may be asked.
    pub(crate) may: M,
    /// Whether it has all of the object.
    pub(crate) holds: H,
    /// Sends what no receiver can send.
    pub(crate) source: Option<NodeId>,
}

impl Member {
    fn new(rack: Option<String>, of: u8) -> Self {
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

    /// Slots that it has left in a tree.
    fn free(&self, stripe: usize) -> u32 {
        self.slots[stripe].saturating_sub(self.children[stripe].len() as u32)
    }

    /// How good a parent it is for a receiver of a rack, the best first, but for how deep it stands: sends too much already, is in
    /// another rack, has no slot left, and how much it sends.
    fn rating(&self, stripe: usize, rack: Option<&str>) -> (bool, bool, bool, u32, u32) {
        let (is_full, load) = (self.free(stripe) == 0, self.load());
        let is_far = rack.is_none() || self.rack.as_deref() != rack;
        // Those that are full are compared by how full they are.
        let least = if is_full { load } else { 0 };
        (is_full && load >= MOST_LOAD, is_far, is_full, least, load)
    }

    /// Children that it has in all trees, in thousandths of those that it may have.
    fn load(&self) -> u32 {
        let children: usize = self.children.iter().map(Vec::len).sum();
        (children as u32 * 1000).checked_div(self.slots.iter().sum()).unwrap_or(u32::MAX)
    }
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

    /// Somebody comes later: who sends it which stripe. `None` if there is no such overlay, or nobody for some stripe.
    pub(crate) fn join(
        &mut self,
        object: ObjectId,
        (node, rack): (NodeId, Option<&str>),
        passes_on: bool,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
    ) -> Option<Parents> {
        self.leave(object, node);
        let overlay = self.overlays.get_mut(&object)?;
        let of = overlay.of;
        overlay.insert(node, Member { passes_on, ..Member::new(rack.map(str::to_owned), of) });
        let nodes: Option<Vec<NodeId>> =
            (0..usize::from(of)).map(|stripe| overlay.choose(node, stripe, known)).collect();
        match nodes {
            None => _ = self.leave(object, node),
            Some(_) if passes_on => overlay.deal_slots(node),
            Some(_) => {}
        }
        nodes.map(|nodes| Parents { of, nodes })
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

    /// Who sends a receiver a stripe.
    pub(crate) fn parent(&self, object: ObjectId, node: NodeId, stripe: u8) -> Option<NodeId> {
        self.member(object, node)?.parents.get(usize::from(stripe)).copied()?
    }

    /// Whether a tree may change once more because somebody holds up others.
    pub(crate) fn may_demote(&self, now: Time, object: ObjectId, stripe: u8) -> bool {
        let last = self.overlays.get(&object).and_then(|it| *it.demoted.get(usize::from(stripe))?);
        last.is_none_or(|last| now >= last + RESPITE)
    }

    /// Members among which one is found that sends a stripe to a receiver, if an overlay is large: those of its rack, and some of those
    /// that have slots left. `None`: they are few, and all are looked at.
    pub(crate) fn likely(
        &self,
        object: ObjectId,
        (node, stripe): (NodeId, u8),
        rack: Option<&str>,
    ) -> Option<Vec<NodeId>> {
        let overlay = self.overlays.get(&object).filter(|it| it.members.len() > MOST_RATED)?;
        let free = overlay.free.get(usize::from(stripe))?;
        // Each receiver begins elsewhere, so that not all turn to the same.
        let around = free.range(node..).chain(free.range(..node)).take(WITH_SLOTS);
        let mates = rack.and_then(|rack| overlay.racks.get(rack)).into_iter().flatten().take(OF_THE_RACK);
        let likely: BTreeSet<NodeId> = around.chain(mates).copied().collect();
        Some(likely.into_iter().collect())
    }

    /// A receiver holds up those below it in a tree: one of them takes its place there, and it becomes a leaf. Who has that stripe from
    /// whom from now on; nobody, if there is no such tree.
    pub(crate) fn demote(
        &mut self,
        now: Time,
        object: ObjectId,
        (slow, stripe): (NodeId, u8),
        heir: NodeId,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
    ) -> Vec<(NodeId, NodeId)> {
        let is_due = self.may_demote(now, object, stripe);
        let Some(overlay) = self.overlays.get_mut(&object) else { return Vec::new() };
        let stripe = usize::from(stripe);
        let above = overlay.members.get(&slow).and_then(|member| member.parents[stripe]);
        // Before the last change has shown what it is good for there is no other.
        let may = |above: &NodeId| is_due && overlay.depth(stripe, *above, heir, &known.holds).is_some();
        let Some(above) = above.filter(may) else { return Vec::new() };
        overlay.demoted[stripe] = Some(now);
        let mut below: Vec<NodeId> =
            overlay.members.get(&slow).map_or_else(Vec::new, |member| member.children[stripe].clone());
        below.sort_unstable();
        let mut moved = vec![(heir, above)];
        overlay.adopt(heir, stripe, above);
        if let Some(member) = overlay.members.get_mut(&slow) {
            member.slots[stripe] = 0;
        }
        overlay.note_free(slow, stripe);
        overlay.abandon(slow, stripe);
        for node in below.into_iter().filter(|node| *node != heir).chain([slow]) {
            overlay.abandon(node, stripe);
            let known = Known {
                among: known.among.clone(),
                may: |other| other != slow && (known.may)(other),
                holds: &known.holds,
                source: known.source,
            };
            moved.extend(overlay.choose(node, stripe, &known).map(|parent| (node, parent)));
        }
        moved
    }

    /// A receiver is gone, with its slots. Whoever had a stripe from it is to be mended, and is returned.
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

    /// Whoever had all of the object has it no longer.
    pub(crate) fn lose(&mut self, object: ObjectId, node: NodeId) {
        if self.is_done(object, node) {
            self.leave(object, node);
        }
    }

    /// What is known of an overlay from before a restart: somebody has a stripe from this node.
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
                // Those below it may have been restored before it. Who was to send what is not known any more.
                let of_it = |stripe: usize| {
                    let has = |(_, it): &(&NodeId, &Member)| it.parents[stripe] == Some(node);
                    overlay.members.iter().filter(has).map(|(child, _)| *child).collect()
                };
                let children = (0..usize::from(of)).map(of_it).collect();
                let slots = vec![1; usize::from(of)];
                let member = Member { children, slots, ..Member::new(rack.map(str::to_owned), of) };
                overlay.insert(node, member);
            }
            overlay.adopt(node, usize::from(stripe), parent);
        }
    }

    /// Nobody receives the object any more.
    pub(crate) fn remove(&mut self, object: ObjectId) {
        self.overlays.remove(&object);
    }
}

impl Overlay {
    fn new(symbol_size: u16, of: u8) -> Self {
        let stripes = usize::from(of);
        let free = vec![BTreeSet::new(); stripes];
        let (members, racks) = Default::default();
        Overlay { symbol_size, of, members, free, racks, demoted: vec![None; stripes] }
    }

    fn insert(&mut self, node: NodeId, member: Member) {
        if let Some(rack) = &member.rack {
            self.racks.entry(rack.clone()).or_default().insert(node);
        }
        self.members.insert(node, member);
        (0..usize::from(self.of)).for_each(|stripe| self.note_free(node, stripe));
    }

    fn remove(&mut self, node: NodeId) -> Option<Member> {
        let member = self.members.remove(&node)?;
        self.free.iter_mut().for_each(|free| _ = free.remove(&node));
        if let Some(mates) = member.rack.as_ref().and_then(|rack| self.racks.get_mut(rack)) {
            mates.remove(&node);
        }
        Some(member)
    }

    /// A member may send a stripe to one more, or no longer.
    fn note_free(&mut self, node: NodeId, stripe: usize) {
        let is_free = self.members.get(&node).is_some_and(|it| it.passes_on && it.free(stripe) > 0);
        match is_free {
            true => _ = self.free[stripe].insert(node),
            false => _ = self.free[stripe].remove(&node),
        }
    }

    /// From now on a receiver has a stripe from this node.
    fn adopt(&mut self, node: NodeId, stripe: usize, parent: NodeId) {
        self.abandon(node, stripe);
        if let Some(member) = self.members.get_mut(&node) {
            member.parents[stripe] = Some(parent);
        }
        if let Some(above) = self.members.get_mut(&parent) {
            above.children[stripe].push(node);
            self.note_free(parent, stripe);
        }
    }

    /// From now on it has it from nobody.
    fn abandon(&mut self, node: NodeId, stripe: usize) {
        let before = self.members.get_mut(&node).and_then(|member| member.parents[stripe].take());
        let Some(parent) = before else { return };
        if let Some(above) = self.members.get_mut(&parent) {
            above.children[stripe].retain(|child| *child != node);
            self.note_free(parent, stripe);
        }
    }

    /// Hops to a receiver in a tree, from whoever `holds` the object; none if the way is broken, or leads through `not`.
    fn depth(&self, stripe: usize, node: NodeId, not: NodeId, holds: impl Fn(NodeId) -> bool) -> Option<u32> {
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
    fn choose(
        &mut self,
        node: NodeId,
        stripe: usize,
        known: &Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool>,
    ) -> Option<NodeId> {
        let rack = self.members.get(&node)?.rack.as_deref();
        let may = |(other, member): &(&NodeId, &Member)| {
            **other != node && member.passes_on && (known.may)(**other)
        };
        let likely = known.among.iter().flatten().filter_map(|other| self.members.get_key_value(other));
        let all = self.members.iter().filter(|_| known.among.is_none());
        let rated = likely.chain(all).filter(may).filter_map(|(other, member)| {
            let (is_overloaded, is_far, is_full, least, load) = member.rating(stripe, rack);
            let depth = self.depth(stripe, *other, node, &known.holds)?;
            Some(((is_overloaded, is_far, is_full, least, depth, load), *other))
        });
        let parent = rated.min().map(|(_, other)| other).or(known.source)?;
        self.adopt(node, stripe, parent);
        Some(parent)
    }

    /// Slots for one that comes later, in those trees that have the fewest left.
    fn deal_slots(&mut self, node: NodeId) {
        // Of many it is enough to know how many have some.
        let slots_left = |stripe: usize| match self.members.len() > MOST_RATED {
            true => self.free[stripe].len() as u32,
            false => self.members.values().map(|member| member.free(stripe)).sum(),
        };
        let mut left: Vec<(u32, usize)> =
            (0..usize::from(self.of)).map(|stripe| (slots_left(stripe), stripe)).collect();
        left.sort_unstable();
        let trees = left.iter().take(LATE_TREES).map(|(_, stripe)| *stripe).collect::<Vec<_>>();
        if let Some(member) = self.members.get_mut(&node) {
            trees.iter().for_each(|stripe| member.slots[*stripe] = LATE_SLOTS);
        }
        trees.into_iter().for_each(|stripe| self.note_free(node, stripe));
    }

    /// Trees need a few edges fewer than there are slots: everybody may send a whole copy, for those who come later.
    fn deal_spare(&mut self) {
        let of = u32::from(self.of);
        for member in self.members.values_mut() {
            let sum: u32 = member.slots.iter().sum();
            let Some(spare) = of.checked_sub(sum).filter(|_| sum > 0) else { continue };
            let mut inside: Vec<&mut u32> = member.slots.iter_mut().filter(|slots| **slots > 0).collect();
            let trees = inside.len();
            (0..spare as usize).for_each(|n| *inside[n % trees] += 1);
        }
        let members: Vec<NodeId> = self.members.keys().copied().collect();
        for node in members {
            (0..usize::from(self.of)).for_each(|stripe| self.note_free(node, stripe));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OBJECT: ObjectId = ObjectId([9; 32]);

    fn node(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    fn source() -> NodeId {
        node(255)
    }

    /// These may be asked, and the source.
    fn only(may: impl Fn(NodeId) -> bool) -> Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool> {
        Known { among: None, may, holds: |_| false, source: Some(source()) }
    }

    fn all() -> Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool> {
        only(|_| true)
    }

    /// So many, from 1 on, in racks of `rack` if that is not 0.
    fn begun(count: u8, rack: u8) -> Overlays {
        let rack = |n: u8| n.checked_div(rack).map(|number| number.to_string());
        let one = |n| Beginner { node: node(n), rack: rack(n), weight: 1.0 };
        let mut overlays = Overlays::default();
        overlays.begin(OBJECT, 1000, &[source()], &(1..=count).map(one).collect::<Vec<_>>());
        overlays
    }

    impl Overlays {
        fn only(&self) -> &Overlay {
            &self.overlays[&OBJECT]
        }

        /// Those who have a stripe from a node.
        fn below(&self, parent: NodeId, stripe: usize) -> Vec<NodeId> {
            let has = |(node, member): (&NodeId, &Member)| {
                (member.parents[stripe] == Some(parent)).then_some(*node)
            };
            self.only().members.iter().filter_map(has).collect()
        }

        fn check(&self, holders: &BTreeSet<NodeId>) -> Result<(), TestCaseError> {
            let overlay = self.only();
            for (stripe, (node, member)) in (0..usize::from(overlay.of))
                .flat_map(|stripe| overlay.members.iter().map(move |it| (stripe, it)))
            {
                prop_assert_eq!(
                    member.children[stripe].iter().copied().collect::<BTreeSet<_>>(),
                    self.below(*node, stripe).into_iter().collect()
                );
                prop_assert_ne!(member.parents[stripe], Some(*node));
                let is_free = member.passes_on && member.free(stripe) > 0;
                prop_assert_eq!(overlay.free[stripe].contains(node), is_free);
                let mates = member.rack.as_ref().map(|rack| overlay.racks[rack].contains(node));
                prop_assert_ne!(mates, Some(false));
                prop_assert!(!member.is_done || member.parents[stripe].is_none());
                let is_root =
                    |at: &NodeId| holders.contains(at) || overlay.members.get(at).is_none_or(|it| it.is_done);
                let way = std::iter::successors(Some(*node), |at| {
                    if is_root(at) { None } else { overlay.members[at].parents[stripe] }
                });
                prop_assert!(
                    way.take(overlay.members.len() + 2).count() <= overlay.members.len() + 1,
                    "a circle"
                );
            }
            let listed = overlay.free.iter().chain(overlay.racks.values()).flatten();
            for node in listed {
                prop_assert!(overlay.members.contains_key(node), "{node:?} is gone");
            }
            Ok(())
        }
    }

    #[test]
    fn of_many_some_are_looked_at_that_have_slots_left_and_those_of_the_rack() {
        let number = |n: u32| {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            NodeId(id)
        };
        let one = |n| Beginner { node: number(n), rack: Some((n / 32).to_string()), weight: 1.0 };
        let mut overlays = Overlays::default();
        overlays.begin(OBJECT, 1000, &[source()], &(0..2_000).map(one).collect::<Vec<_>>());
        let (receiver, rack, mut found) = (number(700), (700 / 32).to_string(), 0);
        for stripe in 0..8 {
            let likely = overlays.likely(OBJECT, (receiver, stripe), Some(&rack)).unwrap();
            assert!((WITH_SLOTS..=WITH_SLOTS + 32).contains(&likely.len()), "{}", likely.len());
            let mates =
                likely.iter().filter(|it| u32::from_be_bytes(it.0[..4].try_into().unwrap()) / 32 == 21);
            assert_eq!(mates.count(), 32);
            let known = Known { among: Some(likely.clone()), may: |_| true, holds: |_| false, source: None };
            // Where it stands above all of them nobody is found.
            let parent = overlays.mend(OBJECT, (receiver, stripe), &known);
            found += u32::from(parent.is_some());
            assert!(parent.is_none_or(|it| likely.contains(&it)));
        }
        assert!(found >= 6, "{found} of 8");
        overlays.check(&BTreeSet::new()).unwrap();
        assert_eq!(begun(200, 0).likely(OBJECT, (node(1), 0), None), None, "all of few");
    }

    #[test]
    fn who_comes_late_has_all_stripes_and_slots_in_the_trees_that_have_the_fewest() {
        let mut overlays = begun(10, 0);
        let left = |overlays: &Overlays, stripe: usize| -> u32 {
            overlays.only().members.values().map(|member| member.free(stripe)).sum()
        };
        for n in 11..=40 {
            let parents = overlays.join(OBJECT, (node(n), None), true, &all()).unwrap();
            assert_eq!((parents.of, parents.nodes.len()), (4, 4));
            assert!(!parents.nodes.contains(&source()), "the source sends no second copy");
            assert_eq!(overlays.only().members[&node(n)].slots.iter().sum::<u32>(), 4);
            overlays.check(&BTreeSet::new()).unwrap();
        }
        let left: Vec<u32> = (0..4).map(|stripe| left(&overlays, stripe)).collect();
        assert!(left.iter().max().unwrap() - left.iter().min().unwrap() <= 4, "{left:?}");
    }

    #[test]
    fn who_passes_nothing_on_is_nobodys_parent() {
        let mut overlays = begun(2, 0);
        overlays.join(OBJECT, (node(3), None), false, &all()).unwrap();
        let known = only(|other| other == node(3));
        assert_eq!(overlays.mend(OBJECT, (node(1), 0), &known), Some(source()));
    }

    #[test]
    fn who_has_all_needs_no_parent_and_is_as_near_as_the_source() {
        let mut overlays = begun(12, 0);
        overlays.done(OBJECT, node(5));
        assert!(overlays.is_done(OBJECT, node(5)));
        assert!((0..4).all(|stripe| overlays.parent(OBJECT, node(5), stripe).is_none()));
        assert_eq!(overlays.only().depth(0, node(5), node(1), |_| false), Some(0));
        // Whoever had nobody else has it.
        let top = overlays.below(source(), 0)[0];
        let known = only(|other| other == node(5));
        assert_eq!(overlays.mend(OBJECT, (top, 0), &known), Some(node(5)));
        overlays.lose(OBJECT, top);
        overlays.lose(OBJECT, node(5));
        assert!(overlays.has(OBJECT, top) && !overlays.has(OBJECT, node(5)), "it has it no longer");
    }

    #[test]
    fn who_holds_up_others_becomes_a_leaf_and_no_other_in_the_next_two_seconds() {
        let mut overlays = begun(6, 0);
        let slow = overlays.below(source(), 0)[0];
        let below = overlays.below(slow, 0);
        let mut demote = |at: u64, slow, heir| {
            let now = Time::ZERO + Duration::from_millis(at);
            let moved = overlays.demote(now, OBJECT, (slow, 0), heir, &all());
            overlays.check(&BTreeSet::new()).unwrap();
            moved
        };
        let moved = demote(1000, slow, below[1]);
        let told: BTreeSet<NodeId> = moved.iter().map(|(node, _)| *node).collect();
        assert_eq!((moved[0], moved.len()), ((below[1], source()), 6), "the heir stands where it stood");
        assert_eq!(told, below.iter().copied().chain([slow]).collect());
        assert!(moved.iter().all(|(_, parent)| *parent != slow));
        let next = moved.iter().find(|(_, parent)| *parent == below[1]).unwrap().0;
        assert_eq!(demote(2999, below[1], next), []);
        assert_eq!(demote(3000, below[1], next)[0], (next, source()));
    }

    #[test]
    fn where_somebody_dies_its_children_go_to_those_that_have_slots_left() {
        for count in [10, 20, 40, 64, 200] {
            let mut overlays = begun(count, 0);
            let is_inner = |it: &Member| it.children[1].len() > 1 && it.parents[1] != Some(source());
            let dead = *overlays.only().members.iter().find(|(_, it)| is_inner(it)).unwrap().0;
            let orphans = overlays.below(dead, 1);
            overlays.leave(OBJECT, dead);
            assert!(orphans.iter().all(|it| overlays.parent(OBJECT, *it, 1).is_none()));
            let mut with_slots = 0;
            for orphan in orphans {
                let before = overlays.only().members.clone();
                let is_rooted = |it: NodeId| overlays.only().depth(1, it, orphan, |_| false).is_some();
                let is_free = before.iter().any(|(it, member)| member.free(1) > 0 && is_rooted(*it));
                let parent = overlays.mend(OBJECT, (orphan, 1), &all()).unwrap();
                assert!(
                    parent != source() && (!is_free || before[&parent].free(1) > 0),
                    "{count}: {parent:?}"
                );
                with_slots += u32::from(is_free);
                overlays.check(&BTreeSet::new()).unwrap();
            }
            assert!(with_slots > 0, "{count}: its own parent has one");
        }
    }

    #[test]
    fn where_the_first_of_a_tree_dies_one_of_its_children_stands_where_it_stood() {
        for (count, rack) in [(3, 0), (8, 0), (10, 0), (64, 0), (48, 8)] {
            let mut overlays = begun(count, rack);
            let dead = overlays.below(source(), 1)[0];
            let orphans = overlays.below(dead, 1);
            overlays.leave(OBJECT, dead);
            for orphan in orphans {
                overlays.mend(OBJECT, (orphan, 1), &all()).unwrap();
            }
            assert_eq!(overlays.below(source(), 1).len(), 1, "{count} in racks of {rack}");
            overlays.check(&BTreeSet::new()).unwrap();
        }
    }

    #[test]
    fn who_is_restored_before_its_parent_is_counted() {
        let mut overlays = Overlays::default();
        for (child, parent) in [(2, node(1)), (3, node(2)), (1, source())] {
            for stripe in 0..3 {
                overlays.restore(OBJECT, (1000, 3), (node(child), None), (stripe, parent));
            }
        }
        overlays.check(&BTreeSet::new()).unwrap();
        assert_eq!(overlays.mend(OBJECT, (node(1), 0), &all()), Some(source()), "all others are below it");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join(u8, bool),
        Leave(u8),
        Mend(u8, u8),
        Hold(u8),
        Done(u8),
        Demote(u8, u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (n, stripe) = (|| 1..=40u8, || 0..9u8);
        prop_oneof![
            (n(), any::<bool>()).prop_map(|(n, passes_on)| Step::Join(n, passes_on)),
            n().prop_map(Step::Leave),
            (n(), stripe()).prop_map(|(n, stripe)| Step::Mend(n, stripe)),
            n().prop_map(Step::Hold),
            n().prop_map(Step::Done),
            (n(), stripe()).prop_map(|(n, stripe)| Step::Demote(n, stripe)),
        ]
    }

    proptest! {
        /// Whoever comes, goes and fails: trees are trees, and nobody has a stripe from somebody below it.
        #[test]
        fn trees_are_trees_whatever_happens(
            (count, rack) in (2..=40u8, 0..9u8),
            steps in prop::collection::vec((step(), any::<u64>(), any::<bool>()), 1..60),
        ) {
            let mut overlays = begun(count, rack);
            let of = overlays.only().of;
            let mut holders = BTreeSet::new();
            overlays.check(&holders)?;
            for (at, (step, here, has_source)) in (0..).zip(steps) {
                let may = |other: NodeId| here >> other.0[0] & 1 == 1;
                let holds = |other| holders.contains(&other);
                let known = Known { among: None, may, holds, source: has_source.then(source) };
                match step {
                    Step::Join(n, passes_on) => {
                        let rack = (n + rack).to_string();
                        overlays.join(OBJECT, (node(n), Some(&rack)), passes_on, &known);
                    }
                    Step::Leave(n) => _ = overlays.leave(OBJECT, node(n)),
                    Step::Mend(n, stripe) => {
                        let (n, stripe) = (node(n), stripe % of);
                        let parent = overlays.mend(OBJECT, (n, stripe), &known);
                        prop_assert!(parent.is_none_or(|it| it == source() || may(it)));
                        prop_assert!(parent.is_none_or(|it| overlays.parent(OBJECT, n, stripe) == Some(it)));
                    }
                    Step::Hold(n) => _ = holders.insert(node(n)),
                    Step::Done(n) => overlays.done(OBJECT, node(n)),
                    Step::Demote(n, stripe) => {
                        let (slow, stripe) = (node(n), stripe % of);
                        let now = Time::ZERO + Duration::from_millis(500) * at;
                        let Some(heir) = overlays.below(slow, usize::from(stripe)).pop() else { continue };
                        let above = overlays.parent(OBJECT, slow, stripe);
                        let moved = overlays.demote(now, OBJECT, (slow, stripe), heir, &known);
                        prop_assert!(moved.first().is_none_or(|it| Some(*it) == above.map(|above| (heir, above))));
                        if !moved.is_empty() {
                            prop_assert!(overlays.only().members[&slow].children[usize::from(stripe)].is_empty());
                        }
                    }
                }
                overlays.check(&holders)?;
            }
        }
    }
}
