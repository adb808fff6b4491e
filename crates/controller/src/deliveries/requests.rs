//! Messages of receivers (PPUSH §III-A): requests, feedback, distrust, and the end of a task.

use std::collections::BTreeSet;

use headwater_machine::Taker;
use headwater_units::{
    BlockIndex, Bytes, Duration, FlowId, Geometry, NodeId, ObjectId, PathId, Symbols, TaskId,
};
use headwater_wire::{
    Delivery, FlowGrant, FlowView, Outcome, Refusal, Request, SpreadRule, ToNode, ToReceiver,
};

use super::Deliveries;
use crate::catalog::Catalog;
use crate::selection::{self, FlowPlan, Placement};
use crate::tasks::{Flow, FlowState, Pace, Task};
use crate::turn::Turn;
use crate::{ControllerConfig, ControllerEvent};

/// A receiver's report of its progress.
pub(crate) struct Progress {
    pub(crate) first_undecoded: BlockIndex,
    pub(crate) needed: Symbols,
    pub(crate) held_up: bool,
    /// The newest list of flows that it knows.
    pub(crate) version: u32,
    pub(crate) flows: Vec<FlowView>,
}

/// A receiver's part in the trees of a cast.
pub(crate) struct TreesGiven {
    /// Of its task, which no other has.
    pub(crate) id: TaskId,
    pub(crate) object: ObjectId,
    pub(crate) bytes: Bytes,
    pub(crate) symbol_size: u16,
    pub(crate) trees: Vec<FlowGrant>,
}

impl Deliveries {
    /// Makes a task of a request and says so, or why not.
    pub(crate) fn answer(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        path: PathId,
        request: &Request,
        place: Option<Placement>,
    ) -> Option<TaskId> {
        let is_of_overlay = matches!(place, Some(Placement::Overlay(_)));
        match self.begin(turn, catalog, path, request, place) {
            Ok(id) => {
                turn.stats.tasks_accepted += 1;
                if let Some(task) = self.tasks.get(id) {
                    persist(turn, task);
                    accept(turn, path, task);
                }
                self.agenda.touched.insert(id);
                self.agenda.plan = true;
                Some(id)
            }
            Err(reason) => {
                if let (true, Some(object)) = (is_of_overlay, catalog.resolve(&request.name)) {
                    self.overlays.withdraw(object, request.receiver);
                }
                turn.stats.requests_refused += 1;
                turn.answer(path, ToReceiver::Refused { request: request.request, reason });
                None
            }
        }
    }

    /// Makes a task of a request, with its first sources; or as its place has it.
    fn begin(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        path: PathId,
        request: &Request,
        place: Option<Placement>,
    ) -> Result<TaskId, Refusal> {
        let config = turn.config;
        let unresolved = || catalog.why_unresolved(&request.name);
        let object = catalog.resolve(&request.name).ok_or_else(unresolved)?;
        let bytes = catalog.object(object).ok_or(Refusal::UnknownObject)?.bytes;
        let taker = catalog.taker_at(path).unwrap_or(Taker::of_key(request.receiver));
        let mut task = Task::begun(turn.now, (path, taker), request, object, bytes);
        task.facts.max_sources = config.sources_for(request.max_sources);
        task.facts.residue_classes = config.classes_for(request.spread, task.facts.max_sources);
        task.passes_on =
            request.passes_on && selection::is_free(request) && request.spread == SpreadRule::Listed;
        let known = self.known(catalog, config);
        let mut sources = match &place {
            Some(Placement::Group { node: only, .. }) => {
                known.candidates(&task).into_iter().filter(|node| node == only).collect()
            }
            // A node that passes it on need not hold it yet.
            Some(Placement::Overlay(parents)) => parents.nodes.clone(),
            None => known.candidates(&task),
        };
        if let Some(Placement::Overlay(parents)) = &place {
            (task.facts.residue_classes, task.facts.max_sources) = (parents.of, parents.of);
        }
        sources.truncate(usize::from(task.facts.max_sources));
        if sources.is_empty() {
            return Err(catalog.no_source_of(object));
        }
        if !self.tasks.has_room(&taker, config.max_tasks) {
            return Err(Refusal::Full);
        }
        let rooms = sources.iter().filter_map(|node| catalog.node(*node)).map(|node| node.info.room);
        let geometry = Geometry::fitting(bytes, rooms.fold(request.room, u16::min));
        (task.facts.symbol_size, task.needed) = (geometry.symbol_size(), geometry.total_symbols());
        task.facts.task = self.tasks.unused_task(turn.draws);
        // Members of groups and overlays have windows of their own.
        let starts = match place {
            None => known.starts(task.facts.receiver, &sources),
            Some(_) => Vec::new(),
        };
        task.facts.delivery = match &place {
            // As all members of the group.
            Some(_) => request.delivery.unwrap_or_default(),
            None => known.delivery(request, &task, &starts),
        };
        let is_of_overlay = matches!(place, Some(Placement::Overlay(_)));
        if task.facts.spread == SpreadRule::Equal || task.facts.delivery != Delivery::Push && !is_of_overlay {
            // No other source covers the part of one that is not there; of pulled ones, none without repair symbols.
            task.facts.residue_classes = sources.len() as u8;
            // And a source that comes later has no part.
            task.facts.max_sources = task.facts.residue_classes;
        }
        let (id, first_class) = (task.id(), task.free_class());
        task.feedback_every = match is_of_overlay {
            true => spread(config.feedback_of(self.overlays.size(object)), config, id),
            false => config.feedback_every,
        };
        self.tasks.add(task);
        match (place, first_class) {
            (None, _) => {
                for (node, start) in sources.iter().zip(starts) {
                    self.open_flow(turn, catalog, id, *node, start);
                }
            }
            (Some(Placement::Group { node, flow, group, .. }), Some(index)) => {
                let plan = FlowPlan { group: Some(group), ..FlowPlan::of_source(node, index) };
                self.open_flow_as(turn, catalog, id, flow, (plan, None));
            }
            (Some(Placement::Group { .. }), None) => {}
            (Some(Placement::Overlay(parents)), _) => {
                self.open_in_overlay(turn, catalog, id, parents);
                self.move_below(turn, catalog, id);
            }
        }
        Ok(id)
    }

    /// Answers a request with a task that comes by a cast's trees. False if there are too many tasks, of all or of this receiver.
    pub(crate) fn answer_by_trees(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        path: PathId,
        request: &Request,
        given: TreesGiven,
    ) -> bool {
        let TreesGiven { id, object, bytes, symbol_size, trees } = given;
        let taker = catalog.taker_at(path).unwrap_or(Taker::of_key(request.receiver));
        if !self.tasks.has_room(&taker, turn.config.max_tasks) {
            turn.stats.requests_refused += 1;
            turn.answer(path, ToReceiver::Refused { request: request.request, reason: Refusal::Full });
            return false;
        }
        // Nobody else brings a part of it: it has no classes and no sources.
        let mut task = Task::begun(turn.now, (path, taker), request, object, bytes);
        (task.facts.task, task.facts.symbol_size, task.trees) = (id, symbol_size, trees);
        task.facts.delivery = turn.config.delivery_by_trees();
        task.feedback_every = turn.config.feedback_every;
        task.needed = Geometry::new(bytes, symbol_size).map_or(Symbols::ZERO, |it| it.total_symbols());
        turn.stats.tasks_accepted += 1;
        accept(turn, path, &task);
        self.tasks.add(task);
        self.agenda.touched.insert(id);
        true
    }

    /// The request of a running task has come once more.
    pub(crate) fn asked_again(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, path: PathId, id: TaskId) {
        if let Some(task) = self.hear(turn, catalog, path, id) {
            accept(turn, path, task);
        }
    }

    /// The receiver of a task says something. `None` if there is no such task or the sender is somebody else.
    fn hear(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        path: PathId,
        id: TaskId,
    ) -> Option<&mut Task> {
        let task = self.tasks.get_mut(id)?;
        if !catalog.is_from(path, task.facts.receiver) {
            turn.stats.strangers += 1;
            return None;
        }
        if let (true, Some(list)) = (task.path != Some(path), &mut task.list) {
            *list = turn.retry();
        }
        (task.heard, task.path) = (turn.now, Some(path));
        if task.is_paused() {
            task.pace = Pace::Resuming { said: turn.retry(), times: 4 };
            self.agenda.plan = true;
        }
        self.agenda.touched.insert(id);
        Some(task)
    }

    /// A receiver says how far it is.
    pub(crate) fn feedback(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        path: PathId,
        id: TaskId,
        said: Progress,
    ) {
        let mut answers = self.answers;
        let Some(task) = self.hear(turn, catalog, path, id) else {
            if self.tasks.get(id).is_none() {
                match self.stopped.values.get(&id) {
                    Some((receiver, request)) if catalog.is_from(path, *receiver) => {
                        turn.answer(path, ToNode::StopFetch { request: *request });
                    }
                    _ => turn.answer(path, ToReceiver::UnknownTask { task: id }),
                }
            }
            return;
        };
        (task.first_undecoded, task.needed, task.held_up) = (said.first_undecoded, said.needed, said.held_up);
        task.anew = task.anew.filter(|anew| said.version < *anew);
        for view in said.flows {
            let Some(flow) = task.flow_mut(view.flow) else { continue };
            let grown = flow.view.map_or(0, |before| before.bytes.get()) < view.bytes.get();
            flow.view = Some(view);
            if let (true, true, FlowState::Offered { since, .. }) = (grown, flow.pushed, flow.state) {
                answers.on_answer(turn.now.since(since));
                flow.state = FlowState::Pushing;
            }
        }
        let is_of_overlay = task.is_of_overlay();
        if said.version == task.facts.flows_version {
            task.list = None;
        } else if said.version > task.facts.flows_version {
            // The record that we were restored from was older than what the receiver had been told.
            task.facts.flows_version = said.version;
            self.agenda.changed.insert(id);
        } else if task.list.is_none() {
            task.list = Some(turn.retry());
        }
        self.answers = answers;
        if is_of_overlay {
            self.look_for_slow(turn, catalog, id);
        }
    }

    /// A source has sent a receiver bytes that do not verify.
    pub(crate) fn distrust(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &mut Catalog,
        path: PathId,
        id: TaskId,
        node: NodeId,
    ) {
        let most = turn.config.max_distrusted;
        let Some(task) = self.hear(turn, catalog, path, id) else { return };
        if !task.distrust(node, most) {
            return;
        }
        let object = task.facts.object;
        let is_its = |flow: &&Flow| flow.facts.node == node;
        let flows: Vec<FlowId> = task.flows.iter().filter(is_its).map(|flow| flow.facts.flow).collect();
        let accused = self.tasks.fetching(node, object).map(Task::id).filter(|_| !flows.is_empty());
        let accused = accused.and_then(|id| self.tasks.get_mut(id));
        if accused.is_some_and(|task| task.accusers.add()) {
            // What those below it have of its stripes is as wrong, whoever sent it to them.
            for stripe in self.overlays.passed_on_by(object, node) {
                self.make_leaf(turn, catalog, id, (node, stripe), &BTreeSet::new());
            }
        }
        flows.into_iter().for_each(|flow| self.close_flow(turn, catalog, flow, true));
        catalog.distrust(node);
        turn.stats.distrusts += 1;
        self.agenda.changed.insert(id);
    }

    /// A receiver is through.
    pub(crate) fn fin(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        path: PathId,
        id: TaskId,
        outcome: Outcome,
    ) {
        if self.tasks.get(id).is_none() {
            return turn.answer(path, ToReceiver::FinAck { task: id });
        }
        let Some(task) = self.hear(turn, catalog, path, id) else { return };
        let (receiver, request) = (task.facts.receiver, task.facts.request);
        turn.answer(path, ToReceiver::FinAck { task: id });
        self.end_task(turn, catalog, id, outcome);
        self.finish_request(turn.config, receiver, request);
    }

    /// Nobody is behind a path any more that this node spoke by.
    pub(crate) fn path_lost(&mut self, peer: NodeId, path: PathId) {
        let by_path = self.tasks.of_receiver(peer).filter(|task| task.path == Some(path));
        let by_path: Vec<TaskId> = by_path.map(Task::id).collect();
        for id in by_path {
            self.tasks.get_mut(id).into_iter().for_each(|task| task.path = None);
        }
    }
}

/// An interval of reports that is longer than usual, a little shorter for each task: or those that have begun together would report
/// together.
pub(super) fn spread(every: Duration, config: &ControllerConfig, task: TaskId) -> Duration {
    match every > config.feedback_every {
        true => every.mul_f64(1.0 - (task.0 % 256) as f64 / 1024.0),
        false => every,
    }
}

/// Tells a receiver what its task is, and its flows.
pub(super) fn accept(turn: &mut Turn<'_>, path: PathId, task: &Task) {
    let accepted = ToReceiver::Accepted {
        request: task.facts.request,
        task: task.id(),
        object: task.facts.object,
        bytes: task.facts.bytes,
        symbol_size: task.facts.symbol_size,
        feedback_every: task.feedback_every,
        version: task.facts.flows_version,
        flows: task.grants(),
        delivery: task.facts.delivery,
    };
    turn.answer(path, accepted);
}

/// Has the driver keep a task's facts.
pub(super) fn persist(turn: &mut Turn<'_>, task: &Task) {
    // Trees do not outlast us.
    if task.trees.is_empty() {
        turn.event(ControllerEvent::Persist(Box::new(task.record())));
    }
}
