//! The running tasks: their flows are opened, weighed, replaced and stopped.
//!
//! The sources of a task are chosen in [`selection`](super::selection); this part opens and closes their flows. It
//! changes nothing of who holds what, and knows nothing of casts: those begin tasks here and end them.

mod overlays;
mod parents;
mod reports;
mod requests;
mod sources;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_units::{FlowId, NodeId, ObjectId, TaskId, Theta, Time};
use headwater_wire::{Outcome, Start, ToSource, Urgency};

pub(crate) use self::requests::{Progress, TreesGiven};

use crate::catalog::Catalog;
use crate::endings::Endings;
use crate::mending::Answers;
use crate::overlay_membership::Overlays;
use crate::retry::Retry;
use crate::selection::{FlowPlan, Known};
use crate::tasks::{Flow, FlowState, Task, Tasks};
use crate::timers::Subject;
use crate::turn::Turn;
use crate::{ControllerConfig, ControllerEvent, TaskFlow, TaskRecord};

/// All running tasks and what they leave behind.
#[derive(Default)]
pub(crate) struct Deliveries {
    tasks: Tasks,
    /// Overlays by object, removed when nobody receives the object any more.
    overlays: Overlays,
    endings: Endings,
    answers: Answers,
    /// Requests whose receivers have said that they are through, or were told to be.
    finished: Recent<(NodeId, u64), ()>,
    /// Tasks that ended because their casts were stopped, each with the receiver and the number of the invitation that it was told to stop.
    stopped: Recent<TaskId, (NodeId, u64)>,
    agenda: Agenda,
}

/// Tasks to look after before the next output.
#[derive(Default)]
struct Agenda {
    /// Tasks to look after.
    touched: BTreeSet<TaskId>,
    /// Tasks whose facts changed, to be kept and told.
    changed: BTreeSet<TaskId>,
    /// Weights are to be planned, or as soon as the last plan is old enough.
    plan: bool,
}

/// The newest of what is remembered, by key.
struct Recent<K, V> {
    order: VecDeque<K>,
    values: BTreeMap<K, V>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Recent { order: VecDeque::new(), values: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, V> Recent<K, V> {
    /// Remembers it, and forgets the oldest beyond `most`.
    fn note(&mut self, key: K, value: V, most: usize) {
        if most > 0 && self.values.insert(key, value).is_none() {
            self.order.push_back(key);
            if self.order.len() > most
                && let Some(oldest) = self.order.pop_front()
            {
                self.values.remove(&oldest);
            }
        }
    }
}

/// The state of a flow whose order to push is said from now on.
fn offered(now: Time, config: &ControllerConfig) -> FlowState {
    FlowState::Offered { since: now, push: Retry::at(now, config.retry_first) }
}

impl Deliveries {
    /// The state that choices are made from.
    pub(crate) fn known<'a>(&'a self, catalog: &'a Catalog, config: &'a ControllerConfig) -> Known<'a> {
        Known { catalog, tasks: &self.tasks, config }
    }

    /// The running tasks.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Whether a receiver has said that it is through with this request, or was told to be.
    pub(crate) fn has_finished(&self, receiver: NodeId, request: u64) -> bool {
        self.finished.values.contains_key(&(receiver, request))
    }

    /// A receiver is through with this request, or was told to be: a late copy of it begins no task.
    pub(crate) fn finish_request(&mut self, config: &ControllerConfig, receiver: NodeId, request: u64) {
        self.finished.note((receiver, request), (), config.max_finished);
    }

    /// A task ends because its cast was stopped. Its receiver is told so by the number of its invitation, and told again if it speaks of
    /// the task all the same: it would ask anew for a task that is merely unknown, by a number that nobody has stopped.
    pub(crate) fn stop_task(
        &mut self,
        config: &ControllerConfig,
        task: TaskId,
        (receiver, invitation): (NodeId, u64),
    ) {
        self.stopped.note(task, (receiver, invitation), config.max_finished);
    }

    // ---- what is to be looked after

    /// A task is looked after before the next output.
    pub(crate) fn touch(&mut self, task: TaskId) {
        self.agenda.touched.insert(task);
    }

    /// The object's tasks are looked after: somebody holds it now. Those of an overlay have their parents, of which a holder is one
    /// only if they need another.
    pub(crate) fn touch_wanting(&mut self, object: ObjectId) {
        self.agenda.touched.extend(self.tasks.wanting_apart(object));
    }

    /// Weights are planned before the next output.
    pub(crate) fn plan_anew(&mut self) {
        self.agenda.plan = true;
    }

    /// Brings everything that the last input or timer touched into order: facts kept and told, weights planned, tasks
    /// looked after. Afterwards nothing is due before the timers say so. `plan` may have none for now.
    pub(crate) fn settle(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        mut plan: impl FnMut(&mut Turn<'_>, &Tasks) -> Option<BTreeMap<FlowId, Theta>>,
    ) {
        loop {
            self.announce_changed(turn, catalog);
            if std::mem::take(&mut self.agenda.plan)
                && let Some(weights) = plan(turn, &self.tasks)
            {
                self.weigh(turn, weights);
            }
            match self.agenda.touched.pop_first() {
                Some(id) => self.tick_task(turn, catalog, id),
                None if self.agenda.changed.is_empty() && !self.agenda.plan => return,
                None => {}
            }
        }
    }

    // ---- flows

    /// Opens a flow from each of these sources.
    fn open_flows(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        (id, receiver): (TaskId, NodeId),
        sources: &[NodeId],
    ) {
        let starts = self.known(catalog, turn.config).starts(receiver, sources);
        for (node, start) in sources.iter().zip(starts) {
            self.open_flow(turn, catalog, id, *node, start);
        }
    }

    fn open_flow(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        node: NodeId,
        start: Option<Start>,
    ) {
        let flow = self.tasks.unused_flow(turn.draws);
        if let Some(index) = self.tasks.get(id).and_then(Task::free_class) {
            self.open_flow_as(turn, catalog, id, flow, (FlowPlan::of_source(node, index), start));
        }
    }

    fn open_flow_as(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        flow: FlowId,
        (plan, start): (FlowPlan, Option<Start>),
    ) {
        let FlowPlan { node, index, group, relays } = plan;
        let Some(source) = catalog.node(node) else { return };
        let (incarnation, at) = (source.info.incarnation, source.info.data.clone());
        let key = turn.draws.key();
        let facts = TaskFlow { flow, node, incarnation, key, index, group, relays };
        let mut flow = Flow::new(facts, at, offered(turn.now, turn.config));
        flow.theta = turn.config.fixed_theta.unwrap_or(Theta::ONE);
        flow.start = start;
        self.tasks.add_flow(id, flow);
        turn.stats.flows_opened += 1;
        self.agenda.touched.insert(id);
    }

    /// Takes a flow out of its task, and stops it at its source unless that has lost it.
    fn close_flow(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, flow: FlowId, stop: bool) {
        let Some(flow) = self.tasks.remove_flow(flow) else { return };
        if stop {
            let TaskFlow { flow, node, incarnation, .. } = flow.facts;
            self.endings.stop(turn, catalog, node, flow, incarnation);
        }
        self.agenda.plan = true;
    }

    /// Fills a task's free places, and lets better sources take the places of weak ones. Without any, all stay.
    fn refill(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId) {
        let now = turn.now;
        let Some(task) = self.tasks.get(id).filter(|task| !task.is_paused()) else { return };
        if task.is_of_overlay() {
            return self.mend(turn, catalog, id);
        }
        let is_past =
            |f: &&Flow| matches!(f.state, FlowState::Over { replace_after } if now >= replace_after);
        let past: Vec<FlowId> = task.flows.iter().filter(is_past).map(|f| f.facts.flow).collect();
        self.let_go(turn, catalog, id, past, false);
        let Some(task) = self.tasks.get(id) else { return };
        let dispensable = self.known(catalog, turn.config).dispensable(now, task);
        self.let_go(turn, catalog, id, dispensable, true);
        let Some(task) = self.tasks.get(id) else { return };
        let (known, receiver) = (self.known(catalog, turn.config), task.facts.receiver);
        let free = usize::from(task.facts.max_sources).saturating_sub(task.flows.len());
        let weak = known.weak(now, task, free == 0);
        if free == 0 && weak.is_empty() {
            return;
        }
        let facts = |f: &&Flow| (f.facts.flow, f.facts.node, matches!(f.state, FlowState::Away { .. }));
        let weak: Vec<(FlowId, NodeId, bool)> = weak.iter().map(facts).collect();
        let mut better = known.candidates(task).into_iter();
        let joining: Vec<NodeId> = better.by_ref().take(free).collect();
        if !joining.is_empty() {
            self.open_flows(turn, catalog, (id, receiver), &joining);
            self.agenda.changed.insert(id);
        }
        for (node, (flow, failed, away)) in better.zip(weak) {
            if let (false, Some(task)) = (away, self.tasks.get_mut(id)) {
                task.barred.insert(failed, now + turn.config.bar);
            }
            self.close_flow(turn, catalog, flow, true);
            self.open_flows(turn, catalog, (id, receiver), &[node]);
            turn.stats.flows_replaced += 1;
            self.agenda.changed.insert(id);
        }
    }

    /// A task goes on without these flows.
    fn let_go(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId, flows: Vec<FlowId>, stop: bool) {
        for flow in flows {
            self.close_flow(turn, catalog, flow, stop);
            self.agenda.changed.insert(id);
        }
    }

    // ---- tasks

    /// It was said how much a task matters beside others, when it was asked for or its cast was.
    pub(crate) fn put_in_line(&mut self, id: TaskId, begun: Time, urgency: Urgency) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.urgency = Some((begun, urgency));
            self.agenda.plan = true;
        }
    }

    /// Takes over a task from before a restart; its sources have yet to come back.
    pub(crate) fn restore(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, mut record: TaskRecord) {
        let task = record.task;
        if self.tasks.get(task).is_some() {
            return;
        }
        if self.tasks.len() >= turn.config.max_tasks {
            turn.stats.tasks_failed += 1;
            turn.event(ControllerEvent::Forget { task, outcome: Outcome::Failed });
            return;
        }
        turn.stats.tasks_restored += 1;
        let flows = std::mem::take(&mut record.flows);
        self.tasks
            .add(Task { feedback_every: turn.config.feedback_every, ..Task::restored(turn.now, record) });
        for facts in flows {
            if self.tasks.of_flow(facts.flow).is_none() {
                let state = FlowState::Away { replace_after: turn.now + turn.config.restore_grace };
                self.tasks.add_flow(task, Flow::new(facts, Vec::new(), state));
            }
        }
        self.restore_overlay(catalog, task);
        self.agenda.touched.insert(task);
        self.agenda.plan = true;
    }

    /// A task is known by this name from now on.
    pub(crate) fn call(&mut self, id: TaskId, name: &str) {
        if let Some(task) = self.tasks.get_mut(id) {
            name.clone_into(&mut task.facts.name);
        }
    }

    /// Ends a task and its flows.
    pub(crate) fn end_task(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get(id) else { return };
        let object = task.facts.object;
        let flows: Vec<FlowId> = task.flows.iter().map(|flow| flow.facts.flow).collect();
        flows.into_iter().for_each(|flow| self.close_flow(turn, catalog, flow, true));
        let ended = self.tasks.remove(id).filter(Task::is_of_overlay).map(|task| task.facts.receiver);
        // A receiver that has asked anew belongs to the overlay by its other task.
        let goes_on = |node: &NodeId| self.tasks.fetching(*node, object).is_some_and(Task::is_of_overlay);
        match (ended.filter(|node| !goes_on(node)), outcome) {
            (Some(receiver), Outcome::Done) => self.overlays.done(object, receiver),
            (Some(receiver), _) => _ = self.overlays.leave(object, receiver),
            (None, _) => {}
        }
        if self.tasks.wanting(object).next().is_none() {
            self.overlays.remove(object);
        }
        turn.wake(Subject::Task(id), None);
        self.agenda.touched.remove(&id);
        self.agenda.changed.remove(&id);
        match outcome {
            Outcome::Done => turn.stats.tasks_done += 1,
            Outcome::Cancelled | Outcome::Failed => turn.stats.tasks_failed += 1,
        }
        turn.event(ControllerEvent::Forget { task: id, outcome });
        self.agenda.plan = true;
    }

    /// An object has another size than was believed: tasks that were told that one end, and their receivers ask anew.
    pub(crate) fn end_tasks_of_another_size(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        object: ObjectId,
    ) {
        let Some(bytes) = catalog.object(object).map(|known| known.bytes) else { return };
        let is_told_another = |id: &TaskId| self.tasks.get(*id).is_some_and(|task| task.facts.bytes != bytes);
        let over: Vec<TaskId> = self.tasks.wanting(object).filter(is_told_another).collect();
        over.into_iter().for_each(|id| self.end_task(turn, catalog, id, Outcome::Failed));
    }

    /// Flows weigh this from now on: tells those whose weight has changed.
    fn weigh(&mut self, turn: &mut Turn<'_>, weights: BTreeMap<FlowId, Theta>) {
        for (id, theta) in weights {
            let Some(flow) = self.tasks.flow_mut(id) else { continue };
            if !flow.pushed {
                flow.theta = theta; // The first Push will tell it.
            } else if (theta.get() - flow.theta.get()).abs() > turn.config.theta_step * flow.theta.get() {
                (flow.theta, flow.told) = (theta, turn.now);
                turn.stats.thetas_told += 1;
                turn.tell(flow.facts.node, ToSource::SetTheta { flow: id, theta });
            }
        }
    }
}
