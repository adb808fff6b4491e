//! The parents of receivers in overlays, when these change: a stripe is silent, or slow, or nobody can send it.

use std::collections::BTreeSet;

use headwater_units::{BlockLayout, Bytes, Duration, FlowId, NodeId, ObjectId, TaskId, Time};

use super::Deliveries;
use super::overlays::{AskedOnce, stripes_with_blocks};
use crate::catalog::Catalog;
use crate::overlay_membership::Known;
use crate::tasks::{Flow, FlowState, Task};
use crate::turn::Turn;
use crate::{ControllerConfig, TaskRecord};

/// Where there is nobody else, a node that has failed a receiver is asked again after this many times the silence that
/// it was given.
const STUCK: u64 = 4;
/// While its parent is here and merely silent, a receiver has a stripe from the source only if fewer receivers than
/// this have. Where all are silent, the machines are busy, and a source that sends each a copy of its own would make
/// them busier.
const MOST_OF_SOURCE: usize = 4;
/// After so many moves in a row to others that brought nothing, a receiver has a stripe from a source, if that has
/// places left. Members that seem well to the controller may all have it from where nothing comes any more: part of the
/// network is cut off from the rest, and their nodes can still talk to the controller.
const IN_VAIN: u32 = 2;
/// Where many begin at once, orders and answers take time: this much for each of them. Until then none of the first parents is replaced
/// who has not brought anything yet.
const BEGINNING: Duration = Duration::from_millis(2);

impl Deliveries {
    /// Finds other nodes for the stripes that do not come to a task any more, or not for much longer. One for which there is nobody else
    /// stays as it is.
    pub(super) fn mend(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId) {
        let (now, config) = (turn.now, turn.config);
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.mend_at = None;
        let (object, receiver) = (task.facts.object, task.facts.receiver);
        let begun = task.begun + BEGINNING * self.overlays.size(object) as u64;
        let Some(task) = self.tasks.get(id) else { return };
        let known = self.known(catalog, config);
        let (least, all) = (config.overlay_silent, task.flows.len());
        let answered = self.answers.patience(least);
        let is_quiet = |flow: &&Flow| !flow.is_over() && flow.is_weak(now, least, answered);
        let quiet = task.flows.iter().filter(is_quiet).count();
        let patience = task.mending.patience_beside(now, least, quiet, all);
        let answer_patience = self.answers.patience(patience);
        let is_weak = |flow: &Flow| flow.is_weak(now, patience, answer_patience);
        let begins = |flow: &Flow| {
            let is_first = !task.brought_before.contains_key(&flow.facts.index);
            now < begun && is_first && flow.view.is_none_or(|view| view.bytes == Bytes::ZERO)
        };
        let is_lost = |flow: &Flow| match flow.state {
            FlowState::Over { replace_after } => now >= replace_after,
            _ => {
                let node = flow.facts.node;
                // One of which the controller hears nothing may be busy. Its children say whether it sends.
                let is_useless = catalog.path_of(node).is_some() && !self.has_or_gets(catalog, node, object);
                is_useless || !begins(flow) && is_weak(flow) || known.is_leaving(flow)
            }
        };
        let facts = |flow: &Flow| {
            // One that nobody else can replace is begun anew, in case its source takes all for sent.
            let may = self.may_send(now, catalog, flow.facts.node, task.facts.object);
            let is_stuck = flow.silent() > task.mending.patience(now, least) * STUCK && may;
            (flow.facts.node, flow.facts.index, is_stuck)
        };
        let flows: Vec<&Flow> = task.flows.iter().filter(|flow| is_lost(flow)).collect();
        let lost: Vec<(NodeId, u8, bool)> = flows.iter().map(|flow| facts(flow)).collect();
        let is_silent = |flow: &&&Flow| !flow.is_over() && is_weak(flow);
        let silent: Vec<NodeId> = flows.iter().filter(is_silent).map(|flow| flow.facts.node).collect();
        let stripes = stripes_with_blocks(task).count();
        let missing: Vec<u8> = stripes_with_blocks(task)
            .filter(|stripe| task.flows.iter().all(|flow| flow.facts.index != *stripe))
            .collect();
        if task.flows.iter().any(begins) {
            self.tasks.get_mut(id).into_iter().for_each(|task| task.mend_at = Some(begun));
        }
        for lost in lost {
            let at = self.overlays.may_move_at(now, object, stripes, config.overlay_silent);
            if at > now {
                self.tasks.get_mut(id).into_iter().for_each(|task| task.mend_at = Some(at));
                break;
            }
            self.replace(turn, catalog, id, lost);
            if silent.contains(&lost.0)
                && let Some(id) = self.tasks.fetching(lost.0, object).map(Task::id)
                && let Some(task) = self.tasks.get_mut(id)
            {
                task.deserted = Some(now);
            }
        }
        for stripe in missing {
            match self.parent_or_heir(turn, catalog, (id, stripe)) {
                Some(other) => self.move_stripe(turn, catalog, id, (other, stripe)),
                None => self.overlays.abandon(object, receiver, stripe),
            }
        }
    }

    /// Who sends a stripe to a receiver from now on. If all that could have it by way of that very receiver, one of them has it from
    /// elsewhere first.
    fn parent_or_heir(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        (id, stripe): (TaskId, u8),
    ) -> Option<NodeId> {
        let (now, config) = (turn.now, turn.config);
        let found = self.other_parent(now, catalog, config, (id, stripe));
        if found.is_some() {
            return found;
        }
        let TaskRecord { object, receiver, .. } = self.tasks.get(id)?.facts;
        let has_other = |all: &mut Self, turn: &mut Turn<'_>, node: &NodeId| {
            let heir = all.tasks.fetching(*node, object).filter(|task| task.is_of_overlay())?.id();
            let parent = all.other_parent(now, catalog, config, (heir, stripe))?;
            all.move_stripe(turn, catalog, heir, (parent, stripe));
            Some(())
        };
        let below = self.overlays.raisable(now, object, receiver, stripe);
        below.iter().find_map(|node| has_other(self, turn, node))?;
        turn.stats.demoted += 1;
        self.other_parent(now, catalog, config, (id, stripe))
    }

    /// A stripe comes to a task from this node from now on.
    pub(super) fn move_stripe(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        (parent, stripe): (NodeId, u8),
    ) {
        let flow =
            |task: &Task| task.flows.iter().find(|flow| flow.facts.index == stripe).map(|it| it.facts.flow);
        let before = self.tasks.get(id).and_then(flow);
        before.into_iter().for_each(|flow| self.close_flow(turn, catalog, flow, true));
        self.open_stripe(turn, catalog, id, (parent, stripe));
        self.agenda.changed.insert(id);
    }

    /// A receiver has said how it does: what holds it up is looked at.
    pub(super) fn look_for_slow(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let is_behind = |flow: &&Flow| flow.view.is_some_and(|view| view.behind > turn.config.overlay_behind);
        let behind = task.flows.iter().filter(is_behind).map(|flow| flow.facts.flow);
        for flow in behind.collect::<Vec<_>>() {
            self.look_above(turn, catalog, id, flow);
        }
    }

    /// If a stripe alone holds a receiver up, the first node on its way to the source that the stripe does not hold up is slow: it
    /// becomes a leaf of the stripe's tree. But if most of its children do not complain, only the receiver gets another parent: in a queue
    /// that is shorter than what is in flight, any flow may lose its window for some hundred milliseconds.
    fn look_above(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId, flow: FlowId) {
        let (now, config) = (turn.now, turn.config);
        let Some(task) = self.tasks.get(id) else { return };
        let Some(flow) = task.flows.iter().find(|its| its.facts.flow == flow) else { return };
        let (object, receiver) = (task.facts.object, task.facts.receiver);
        let (stripe, parent) = (flow.facts.index, flow.facts.node);
        let lost = (parent, stripe, false);
        if !self.overlays.may_demote(now, object, stripe) {
            return;
        }
        let may_move = task.mending.may_move(now, config.overlay_silent);
        let is_its_parent = self.overlays.parent(object, receiver, stripe) == Some(parent);
        if !is_its_parent || self.overlays.parent(object, parent, stripe).is_none() {
            // It has all of it, or nobody to have it from, or is no member any more. Or what it sent before waits in front of a slow link
            // of the receiver's, and what others send waits behind that: so the next move is not soon.
            return if may_move {
                self.replace(turn, catalog, id, lost)
            };
        }
        let Some(slow) = self.slow_above(object, receiver, stripe) else { return };
        let waits = |node: &NodeId| self.tasks.fetching(*node, object).is_some_and(|it| it.waits_for(stripe));
        let is_behind =
            |node: &&NodeId| self.tasks.fetching(**node, object).is_some_and(|it| it.is_behind(stripe));
        let children = self.overlays.children(object, slow, stripe);
        let behind = children.iter().filter(is_behind).count();
        if behind * 2 <= children.len() {
            return if slow == parent && may_move {
                self.replace(turn, catalog, id, lost)
            };
        }
        // Whoever waits for the slow one does not any longer when that is a leaf.
        let below = self.overlays.below(object, slow, stripe);
        let waiting: BTreeSet<NodeId> = (self.tasks.wanting(object).filter_map(|id| self.tasks.get(id)))
            .map(|task| task.facts.receiver)
            .filter(|node| !below.contains(node) && waits(node))
            .collect();
        self.make_leaf(turn, catalog, id, (slow, stripe), &waiting);
    }

    /// A member of a task's overlay passes a stripe on to nobody any more: one of its children takes its place in the tree, and the
    /// others have it from others, but from nobody who is `waiting`.
    pub(super) fn make_leaf(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        (leaf, stripe): (NodeId, u8),
        waiting: &BTreeSet<NodeId>,
    ) {
        let (now, config) = (turn.now, turn.config);
        let Some(task) = self.tasks.get(id) else { return };
        let object = task.facts.object;
        let known = self.known(catalog, config);
        let sources = known.sources_of(object, task.facts.symbol_size, |_| true);
        let source = sources.get(usize::from(stripe) % sources.len().max(1)).copied();
        let may = |node: NodeId| self.may_send(now, catalog, node, object) && !waiting.contains(&node);
        let candidates: BTreeSet<NodeId> = self.overlays.members(object).filter(|node| may(*node)).collect();
        let holds = |node| catalog.holds(node, object);
        let known = Known::of_all(|node| candidates.contains(&node), holds, source);
        let takes = |node, from| {
            self.tasks.fetching(node, object).is_none_or(|task| !task.facts.distrusted.contains(&from))
        };
        let moved = self.overlays.demote(now, object, (leaf, stripe), takes, &known);
        turn.stats.demoted += u64::from(!moved.is_empty());
        for (node, parent) in moved {
            let task = self.tasks.fetching(node, object).filter(|task| task.is_of_overlay()).map(Task::id);
            task.into_iter().for_each(|id| self.move_stripe(turn, catalog, id, (parent, stripe)));
        }
    }

    /// Who keeps a stripe from a receiver that waits for it. Who is far below the slow one may complain first: that is the first on the
    /// way to the source that has a block more of the stripe than those below it, or does not wait for it itself, and not because it has
    /// nothing of it yet.
    fn slow_above(&self, object: ObjectId, receiver: NodeId, stripe: u8) -> Option<NodeId> {
        let parent = |node: &NodeId| self.overlays.parent(object, *node, stripe);
        let way = core::iter::successors(Some(receiver), parent).take(self.overlays.size(object));
        let edges = way.filter_map(|node| Some((node, parent(&node)?)));
        let mut edges = edges.take_while(|(_, above)| parent(above).is_some());
        let task = |node: &NodeId| self.tasks.fetching(*node, object);
        let is_slow = |(node, above): &(NodeId, NodeId)| {
            let (Some(below), Some(above)) = (task(node), task(above)) else { return false };
            let block = BlockLayout::of(above.facts.bytes).block_bytes();
            let (below, its) = (below.brought(stripe), above.brought(stripe));
            its > below + block || its > Bytes::ZERO && !above.waits_for(stripe)
        };
        edges.find(is_slow).map(|(_, slow)| slow)
    }

    /// A stripe of a task is to come from another node, if there is one, or by a new flow from the same one if it `is_stuck`.
    fn replace(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        (node, stripe, is_stuck): (NodeId, u8, bool),
    ) {
        let (now, config) = (turn.now, turn.config);
        if let Some(task) = self.tasks.get_mut(id) {
            task.barred.entry(node).or_insert(now + config.bar);
        }
        let other = self.other_parent(now, catalog, config, (id, stripe)).filter(|other| *other != node);
        if let Some(other) = other.or(Some(node).filter(|_| is_stuck)) {
            self.move_stripe(turn, catalog, id, (other, stripe));
            turn.stats.flows_replaced += 1;
            if let Some(task) = self.tasks.get_mut(id) {
                let is_in_vain = task.mending.moves_in_vain(task.needed) > 0;
                task.mending.on_moved(now, config.overlay_silent, task.needed);
                self.overlays.on_moved(task.facts.object, is_in_vain);
            }
        }
    }

    /// New parent of a task for a stripe: a node that has not failed it, or else not for a while.
    fn other_parent(
        &mut self,
        now: Time,
        catalog: &Catalog,
        config: &ControllerConfig,
        place: (TaskId, u8),
    ) -> Option<NodeId> {
        let again = config.overlay_silent * STUCK;
        let other = self.parent_but(now, catalog, config, place, |_| true);
        other.or_else(|| {
            self.parent_but(now, catalog, config, place, |until| now + config.bar < until + again)
        })
    }

    /// New parent of a task for a stripe, other than those that are barred until then.
    fn parent_but(
        &mut self,
        now: Time,
        catalog: &Catalog,
        config: &ControllerConfig,
        (id, stripe): (TaskId, u8),
        is_barred: impl Fn(Time) -> bool,
    ) -> Option<NodeId> {
        let task = self.tasks.get(id)?;
        let TaskRecord { object, receiver, .. } = task.facts;
        let distrusted = task.facts.distrusted.clone();
        let barred = task.barred.iter().filter(|(_, until)| is_barred(**until));
        let barred: BTreeSet<NodeId> = barred.map(|(node, _)| *node).collect();
        let asked = AskedOnce::default();
        let may = |all: &Self, node: NodeId| {
            asked.is(node, || {
                let failed = distrusted.contains(&node)
                    || barred.contains(&node)
                    || all.gets_no_children(node, object);
                !failed && all.may_send(now, catalog, node, object)
            })
        };
        let known = self.known(catalog, config);
        let suspects = known.suspects(task);
        let sources = known.sources_for(task, &suspects, |node| may(self, node));
        let in_turn = |of: &[NodeId]| of.get(usize::from(stripe) % of.len().max(1)).copied();
        let sound = sources.partition_point(|source| !known.is_suspect(*source, &suspects));
        let source = in_turn(&sources[..if sound > 0 { sound } else { sources.len() }]);
        if !self.overlays.has(object, receiver) {
            // Nothing is known of its overlay.
            return source;
        }
        let is_near = |source: &NodeId| catalog.share_rack(receiver, *source);
        let near: Vec<NodeId> = sources.iter().copied().filter(is_near).collect();
        let near = in_turn(&near).filter(|source| self.has_places(object, *source, stripe));
        let holds = |node| catalog.holds(node, object);
        let place = (receiver, stripe);
        let open = source.filter(|source| self.has_places(object, *source, stripe));
        if let Some(source) = near.or(open).filter(|_| task.mending.moves_in_vain(task.needed) >= IN_VAIN) {
            let among = Some(Vec::new());
            let known =
                Known { among, may: |_| false, holds, suspects, near, vacant: None, source: Some(source) };
            return self.overlays.mend(object, place, &known);
        }
        let rack = catalog.rack_of(receiver);
        // Whoever leaves a dead root last finds all others with slots below itself: it takes the root's place. Not in racks, where the root's
        // may merely be cut off: when it is back, the source would send both a copy.
        let has_failed = |node: &NodeId| barred.contains(node) || distrusted.contains(node);
        let is_vacant =
            |source: &NodeId| self.overlays.children(object, *source, stripe).iter().all(has_failed);
        let vacant = source.filter(|source| rack.is_none() && is_vacant(source));
        // To whom nothing comes has nothing to send either.
        let has_some = |all: &Self, node: NodeId| {
            may(all, node) && all.tasks.fetching(node, object).is_none_or(|task| task.is_served(stripe))
        };
        if let Some(likely) = self.overlays.likely(object, place, rack, |node| has_some(self, node)) {
            let (among, suspects) = (Some(likely), suspects.clone());
            let known = Known { among, may: |_| true, holds, suspects, near, vacant, source: None };
            if let Some(found) = self.overlays.mend(object, place, &known) {
                return Some(found);
            }
        }
        let has_parent = self.overlays.parent(object, receiver, stripe);
        let has_parent = has_parent.is_some_and(|parent| catalog.path_of(parent).is_some());
        let source = if has_parent { open } else { source };
        let known = |among: Vec<NodeId>| Known {
            among: Some(among),
            may: |_| true,
            holds,
            suspects: suspects.clone(),
            near,
            vacant,
            source,
        };
        let members = self.overlays.members(object);
        let among = members.filter(|node| has_some(self, *node)).collect();
        self.overlays.mend(object, place, &known(among)).or_else(|| {
            let members = self.overlays.members(object);
            let among = members.filter(|node| may(self, *node)).collect();
            self.overlays.mend(object, place, &known(among))
        })
    }

    /// Whether a source may send a stripe to one more, beside those that it sends it to already: to few, but not all of them may get it.
    fn has_places(&self, object: ObjectId, source: NodeId, stripe: u8) -> bool {
        let children = self.overlays.children(object, source, stripe);
        let is_served =
            |node: &&NodeId| self.tasks.fetching(**node, object).is_none_or(|task| task.is_served(stripe));
        let served = children.iter().filter(is_served).count();
        children.len() < MOST_OF_SOURCE * MOST_OF_SOURCE && served < MOST_OF_SOURCE
    }
}
