//! Tasks whose receivers pass on to each other what comes: their flows, one for each stripe.

use core::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{BlockLayout, Duration, NodeId, ObjectId, Symbols, TaskId, Time};
use headwater_wire::Request;

use super::Deliveries;
use super::requests::spread;
use crate::ControllerConfig;
use crate::catalog::Catalog;
use crate::overlay_membership::{Beginner, Known, Overlays, Parents};
use crate::selection::{FlowPlan, Placement, is_free};
use crate::tasks::{Flow, Task};
use crate::turn::Turn;

/// Silence after which a receiver is not counted on as a parent: it says ten times a second how it does, of many at
/// least once.
const MEMBER_HEARD: Duration = Duration::from_secs(2);
/// Number of missed reports that count as that silence, where it reports less often.
const MISSED: u64 = 3;

/// The stripes of a task's overlay that have a block. Many receivers have more stripes than a small object has blocks, and a flow that
/// brings nothing costs heartbeats.
pub(super) fn stripes_with_blocks(task: &Task) -> core::ops::Range<u8> {
    let blocks = BlockLayout::of(task.facts.bytes).block_count();
    0..u8::try_from(blocks).unwrap_or(u8::MAX).clamp(1, task.facts.residue_classes.max(1))
}

/// What has been asked about nodes while one place was looked for: the same of each several times, for each stripe.
#[derive(Default)]
pub(super) struct AskedOnce(RefCell<BTreeMap<NodeId, bool>>);

impl AskedOnce {
    pub(super) fn is(&self, node: NodeId, ask: impl FnOnce() -> bool) -> bool {
        *self.0.borrow_mut().entry(node).or_insert_with(ask)
    }
}

impl Deliveries {
    /// The overlays.
    pub(crate) fn overlays(&self) -> &Overlays {
        &self.overlays
    }

    /// Receivers of an object begin to pass on to each other what comes: who sends which stripe to each of them.
    pub(crate) fn begin_overlay(
        &mut self,
        object: ObjectId,
        symbol_size: u16,
        sources: &[NodeId],
        beginners: &[Beginner],
    ) -> Vec<(NodeId, Parents)> {
        self.overlays.begin(object, symbol_size, sources, beginners)
    }

    /// The place of a receiver in an overlay that has begun is kept, although it has not asked for the object yet.
    pub(crate) fn keep_place(&mut self, object: ObjectId, node: NodeId) {
        self.overlays.keep_place(object, node);
    }

    /// A receiver will not ask for the object: if a place was kept for it, that is free.
    pub(crate) fn leave_place(&mut self, object: ObjectId, node: NodeId) {
        if self.overlays.is_unclaimed(object, node) {
            let below = self.overlays.leave(object, node);
            self.touch_fetching(object, below);
        }
    }

    /// Places that nobody has asked for are free, and receivers that were to have something from there are looked
    /// after.
    pub(crate) fn take_unclaimed_places(&mut self, object: ObjectId) {
        let below = self.overlays.take_unclaimed(object);
        self.touch_fetching(object, below);
        if self.tasks.wanting(object).next().is_none() {
            self.overlays.remove(object);
        }
    }

    fn touch_fetching(&mut self, object: ObjectId, nodes: Vec<NodeId>) {
        let task = |node: NodeId| self.tasks.fetching(node, object).map(Task::id);
        let tasks: Vec<TaskId> = nodes.into_iter().filter_map(task).collect();
        self.agenda.touched.extend(tasks);
    }

    /// A running task goes on as one of an overlay.
    pub(crate) fn regroup(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        parents: Parents,
        symbol_size: u16,
    ) {
        let Some(task) = self.tasks.get(id) else { return };
        let flows: Vec<_> = task.flows.iter().map(|flow| flow.facts.flow).collect();
        flows.into_iter().for_each(|flow| self.close_flow(turn, catalog, flow, true));
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.needed = Symbols::new(task.remaining().get().div_ceil(u64::from(symbol_size.max(1))));
        task.facts.symbol_size = symbol_size;
        (task.facts.residue_classes, task.facts.max_sources) = (parents.of, parents.of);
        task.classes_used.clear();
        task.anew = Some(task.facts.flows_version.saturating_add(1));
        task.feedback_every =
            spread(turn.config.feedback_of(self.overlays.size(task.facts.object)), turn.config, id);
        self.tasks.deliver_by_overlay(id, turn.config.delivery_by_overlay(parents.of));
        turn.stats.tasks_regrouped += 1;
        self.open_in_overlay(turn, catalog, id, parents);
        self.agenda.changed.insert(id);
    }

    /// Opens the flows of a task of an overlay: one for each stripe that has a block.
    pub(super) fn open_in_overlay(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        parents: Parents,
    ) {
        let Some(stripes) = self.tasks.get(id).map(stripes_with_blocks) else { return };
        for (stripe, node) in stripes.zip(parents.nodes) {
            self.open_stripe(turn, catalog, id, (node, stripe));
        }
    }

    pub(super) fn open_stripe(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        (node, stripe): (NodeId, u8),
    ) {
        let Some(task) = self.tasks.get(id) else { return };
        let relays = !catalog.holds(node, task.facts.object);
        let plan = FlowPlan { relays, ..FlowPlan::of_source(node, stripe) };
        let flow = self.tasks.unused_flow(turn.draws);
        self.open_flow_as(turn, catalog, id, flow, (plan, None));
    }

    /// Where a receiver is put, and with symbols of which size, that asks for an object when others pass it on to each other already.
    pub(crate) fn join_overlay(
        &mut self,
        now: Time,
        catalog: &Catalog,
        config: &ControllerConfig,
        object: ObjectId,
        (node, room): (NodeId, u16),
        passes_on: bool,
    ) -> Option<(Placement, u16)> {
        let symbol_size = self.overlays.symbol_size(object).filter(|size| *size <= room)?;
        if let Some(parents) = self.overlays.claim(object, node) {
            return Some((Placement::Overlay(parents), symbol_size));
        }
        let known = self.known(catalog, config);
        let sources = known.sources_of(object, symbol_size, |other| other != node);
        let source = sources.first().copied();
        let asked = AskedOnce::default();
        let may = |all: &Self, other| asked.is(other, || all.may_send(now, catalog, other, object));
        let (holds, rack) = (|other| catalog.holds(other, object), catalog.rack_of(node));
        let near = sources.iter().copied().find(|source| catalog.share_rack(node, *source));
        let passes_on = passes_on && catalog.path_of(node).is_some();
        let tasks = &self.tasks;
        let waits_briefly =
            |task: &Task| task.waits_briefly(now, config.overlay_behind) && !task.avoids(node);
        // Who has not asked yet has nothing.
        let yields = |leaf| tasks.fetching(leaf, object).is_none_or(waits_briefly);
        let stripes = self.overlays.stripes(object);
        let likely: Option<Vec<Vec<NodeId>>> = stripes
            .map(|stripe| self.overlays.likely(object, (node, stripe), rack, |it| may(self, it)))
            .collect();
        if let Some(likely) = likely {
            let likely: BTreeSet<NodeId> = likely.into_iter().flatten().collect();
            let among = Some(likely.into_iter().collect());
            let known = Known { among, near, ..Known::of_all(|_| true, holds, None) };
            if let Some(parents) = self.overlays.join(object, (node, rack), passes_on, &known, yields) {
                return Some((Placement::Overlay(parents), symbol_size));
            }
        }
        let candidates = self.overlays.members(object).filter(|other| may(self, *other)).collect();
        let known = Known { among: Some(candidates), near, ..Known::of_all(|_| true, holds, source) };
        let parents = self.overlays.join(object, (node, rack), passes_on, &known, yields)?;
        Some((Placement::Overlay(parents), symbol_size))
    }

    /// A receiver that has come late may have been put above others: they have those stripes from it from now on.
    pub(super) fn move_below(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let (object, receiver) = (task.facts.object, task.facts.receiver);
        for stripe in stripes_with_blocks(task) {
            for node in self.overlays.children(object, receiver, stripe).to_vec() {
                let below = self.tasks.fetching(node, object).filter(|task| task.is_of_overlay());
                let has_it = |flow: &Flow| flow.facts.index == stripe && flow.facts.node == receiver;
                if let Some(below) = below.filter(|task| !task.flows.iter().any(has_it)).map(Task::id) {
                    self.move_stripe(turn, catalog, below, (receiver, stripe));
                }
            }
        }
    }

    /// A request for an object that others pass on to each other at this moment is served by them, unless it says otherwise: its place
    /// among them, and the request as it is then.
    pub(crate) fn joins(
        &mut self,
        now: Time,
        catalog: &Catalog,
        config: &ControllerConfig,
        mut request: Request,
    ) -> (Request, Option<Placement>) {
        let object = catalog.resolve(&request.name).filter(|_| is_free(&request));
        let receiver = (request.receiver, request.room);
        let place =
            object.and_then(|it| self.join_overlay(now, catalog, config, it, receiver, request.passes_on));
        let Some((place, room)) = place else { return (request, None) };
        (request.room, request.delivery) = (room, Some(place.delivery(config)));
        (request, Some(place))
    }

    /// Whether a receiver gets no children: nothing has been heard of it since one that had a stripe from it in vain has moved, or it has
    /// sent wrong bytes. All that were below it move, so it has places left.
    pub(super) fn gets_no_children(&self, node: NodeId, object: ObjectId) -> bool {
        let is_silent = |task: &Task| task.deserted.is_some_and(|since| since >= task.heard);
        self.tasks.fetching(node, object).is_some_and(|task| is_silent(task) || task.accusers.is_enough())
    }

    /// Whether a node may be given receivers: it [has what they need](Self::has_or_gets), and the controller hears of it.
    pub(super) fn may_send(&self, now: Time, catalog: &Catalog, node: NodeId, object: ObjectId) -> bool {
        let is_heard = |task: &Task| {
            !task.is_paused() && now < task.heard + MEMBER_HEARD.max(task.feedback_every * MISSED)
        };
        self.has_or(catalog, node, object, is_heard)
    }

    /// Whether a node is here and stays, and has an object, or is receiving it as others do.
    pub(super) fn has_or_gets(&self, catalog: &Catalog, node: NodeId, object: ObjectId) -> bool {
        self.has_or(catalog, node, object, |_| true)
    }

    /// The same, where of one that is receiving it this holds too.
    fn has_or(
        &self,
        catalog: &Catalog,
        node: NodeId,
        object: ObjectId,
        holds: impl Fn(&Task) -> bool,
    ) -> bool {
        let is_here = catalog
            .node(node)
            .is_some_and(|node| node.path.is_some() && !node.leaving && !node.info.data.is_empty());
        let gets = |task: &Task| task.is_of_overlay() && holds(task);
        is_here && (self.has(catalog, node, object) || self.tasks.fetching(node, object).is_some_and(gets))
    }

    fn has(&self, catalog: &Catalog, node: NodeId, object: ObjectId) -> bool {
        self.overlays.is_done_or_unclaimed(object, node) || catalog.holds(node, object)
    }

    /// A task was running when the controller stopped: who sent what to whom.
    pub(super) fn restore_overlay(&mut self, catalog: &Catalog, id: TaskId) {
        let Some(task) = self.tasks.get(id).filter(|task| task.is_of_overlay()) else {
            return;
        };
        let (facts, rack) = (&task.facts, catalog.rack_of(task.facts.receiver));
        for flow in &task.flows {
            let cut = (facts.symbol_size, facts.residue_classes);
            let edge = (flow.facts.index, flow.facts.node);
            self.overlays.restore(facts.object, cut, (facts.receiver, rack), edge);
        }
    }
}
