//! Sources that come, go, or lose what they held, and what that means for their flows.

use headwater_units::{FlowId, NodeId, ObjectId, TaskId};
use headwater_wire::{NodeInfo, Outcome, Refusal, Spoiled, ToReceiver};

use super::{Deliveries, offered};
use crate::catalog::Catalog;
use crate::tasks::{FlowState, Pace};
use crate::turn::Turn;

impl Deliveries {
    /// A node has said who it is, perhaps over another path than before.
    pub(crate) fn node_up(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        info: &NodeInfo,
        new_path: bool,
    ) {
        let node = info.node;
        self.endings.node_up(turn, catalog, node, info.incarnation, new_path);
        for (flow, id) in self.tasks.of_source(node) {
            self.agenda.touched.insert(id);
            let Some(task) = self.tasks.get_mut(id) else { continue };
            let Some(place) = task.flows.iter().position(|its| its.facts.flow == flow) else { continue };
            let entry = &mut task.flows[place];
            if entry.facts.incarnation != info.incarnation {
                // It has forgotten the objects that it received before.
                self.overlays.leave(task.facts.object, node);
                self.close_flow(turn, catalog, flow, false);
                self.agenda.changed.insert(id);
                continue;
            }
            if entry.at != info.data {
                entry.at.clone_from(&info.data);
                self.agenda.changed.insert(id);
            }
            let away = matches!(entry.state, FlowState::Away { .. });
            let open = matches!(entry.state, FlowState::Offered { .. } | FlowState::Pushing);
            if away || (open && new_path) {
                entry.state = offered(turn.now, turn.config);
                // The last report of its pace may be lost with the old path.
                let anew = turn.retry();
                match &mut task.pace {
                    Pace::Paused { said } => *said = anew,
                    pace => *pace = Pace::Resuming { said: anew, times: 2 },
                }
            }
        }
        if new_path {
            let held = self.tasks.wanted_apart().filter(|object| catalog.holds(node, *object));
            self.agenda.touched.extend(held.flat_map(|object| self.tasks.wanting_apart(object)));
        }
    }

    /// Nothing can be said to a node any more. Its flows may go on, but others are taken instead where there are any.
    pub(crate) fn node_down(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, node: NodeId) {
        for (flow, task) in self.tasks.of_source(node) {
            self.agenda.touched.insert(task);
            let Some(flow) = self.tasks.flow_mut(flow) else { continue };
            if matches!(flow.state, FlowState::Offered { .. } | FlowState::Pushing) {
                flow.state = FlowState::Away { replace_after: turn.now };
            }
        }
        self.endings.node_down(turn, catalog, node);
    }

    /// A node is about to stop. Its tasks go to others where there are any; those of which it is the only source it goes on with.
    pub(crate) fn leaving(&mut self, node: NodeId) {
        self.agenda.touched.extend(self.tasks.of_source(node).into_iter().map(|(_, task)| task));
    }

    /// A node that is away is not expected back: its flows are over.
    pub(crate) fn forget_node(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, node: NodeId) {
        for (flow, task) in self.tasks.of_source(node) {
            self.agenda.changed.insert(task);
            self.close_flow(turn, catalog, flow, false);
        }
        self.endings.forget_node(turn, node);
        self.agenda.plan = true;
    }

    /// A node has an object no longer, and stops sending it.
    pub(crate) fn drop_object(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        node: NodeId,
        object: ObjectId,
    ) {
        self.overlays.lose(object, node);
        for (flow, id) in self.tasks.of_source(node) {
            if self.tasks.get(id).is_some_and(|task| task.facts.object == object) {
                self.close_flow(turn, catalog, flow, true);
                self.agenda.changed.insert(id);
            }
        }
    }

    /// Of all tasks, those that want the object ([`Deliveries::give_up_spoiled`]).
    pub(crate) fn give_up_spoiled_copies(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        object: ObjectId,
    ) {
        let tasks: Vec<TaskId> = self.tasks.wanting(object).collect();
        tasks.into_iter().for_each(|id| self.give_up_spoiled(turn, catalog, id));
    }

    /// Of all tasks ([`Deliveries::give_up_spoiled`]).
    pub(crate) fn give_up_all_spoiled(&mut self, turn: &mut Turn<'_>, catalog: &Catalog) {
        let tasks: Vec<TaskId> = self.tasks.iter().map(|task| task.id()).collect();
        tasks.into_iter().for_each(|id| self.give_up_spoiled(turn, catalog, id));
    }

    /// Ends a task that has no flow left because a copy is spoiled, and that no node that is here could serve: waiting does not mend a
    /// copy. Not to be asked while nodes come back after a restart: the one that holds another copy may be among them. A task whose
    /// other sources are only away is not ended, nor one that comes by trees, which are its cast's.
    pub(crate) fn give_up_spoiled(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if !task.flows.is_empty() || !task.trees.is_empty() {
            return;
        }
        let wrong = task.facts.distrusted.last().map(|node| (*node, Spoiled::Wrong));
        let Some((node, how)) = wrong.or_else(|| catalog.object(task.facts.object)?.spoiled) else { return };
        let may = |other: NodeId| {
            other != node && other != task.facts.receiver && !task.facts.distrusted.contains(&other)
        };
        let known = self.known(catalog, turn.config);
        if !known.sources_of(task.facts.object, task.facts.symbol_size, may).is_empty() {
            return;
        }
        // A receiver that is away asks again when it is back, and is told then.
        if let Some(path) = task.path {
            let (request, reason) = (task.facts.request, Refusal::Spoiled { node, how });
            turn.answer(path, ToReceiver::Refused { request, reason });
        }
        self.end_task(turn, catalog, id, Outcome::Failed);
    }

    /// Has a source stop a flow that belongs to no task, now or when it is back.
    pub(crate) fn stop_flow(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, node: NodeId, flow: FlowId) {
        if let Some(incarnation) = catalog.incarnation_of(node) {
            self.endings.stop(turn, catalog, node, flow, incarnation);
        }
    }

    /// Looks after a flow that is being stopped.
    pub(crate) fn tick_ending(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, node: NodeId, flow: FlowId) {
        self.endings.tick(turn, catalog, node, flow);
    }

    /// A source says that a flow is not running that belongs to no task.
    pub(crate) fn forget_ending(&mut self, turn: &mut Turn<'_>, node: NodeId, flow: FlowId) {
        self.endings.forget(turn, node, flow);
    }

    /// Stops a flow that nobody knows any more, unless that is being done.
    pub(crate) fn stop_unknown(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        node: NodeId,
        flow: FlowId,
    ) {
        if !self.endings.contains(node, flow) {
            self.stop_flow(turn, catalog, node, flow);
        }
    }
}
