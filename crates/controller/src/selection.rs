//! The choice of a task's sources: the first ones, joiners, replacements (PPUSH §III-A). Pure: nothing here changes state.

mod starts;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use headwater_units::{BitRate, FlowId, NodeId, ObjectId, TaskId, Time};
use headwater_wire::{Delivery, Request, SpreadRule};

use crate::catalog::Catalog;
use crate::overlay_membership::Parents;
use crate::tasks::{Flow, FlowState, Task, Tasks};
use crate::{ControllerConfig, TaskGroup, TaskRecord};

/// Input of a choice.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) tasks: &'a Tasks,
    pub(crate) config: &'a ControllerConfig,
}

/// Where one of several receivers is put that do not each have sources of their own.
pub(crate) enum Placement {
    /// Into a group that this node serves, by this flow and transport.
    Group { node: NodeId, flow: FlowId, group: TaskGroup, delivery: Delivery },
    /// Among receivers that pass on what comes to them.
    Overlay(Parents),
}

/// Facts of a new flow.
pub(crate) struct FlowPlan {
    pub(crate) node: NodeId,
    pub(crate) index: u8,
    pub(crate) group: Option<TaskGroup>,
    pub(crate) relays: bool,
}

/// A running task that can come to belong to an overlay of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Regroupable {
    pub(crate) receiver: NodeId,
    pub(crate) task: TaskId,
    /// Bytes of symbol that it takes.
    pub(crate) room: u16,
}

impl FlowPlan {
    pub(crate) fn of_source(node: NodeId, index: u8) -> Self {
        FlowPlan { node, index, group: None, relays: false }
    }
}

impl Placement {
    /// By which transport it is served there.
    pub(crate) fn delivery(&self, config: &ControllerConfig) -> Delivery {
        match self {
            Placement::Group { delivery, .. } => *delivery,
            Placement::Overlay(parents) => config.delivery_by_overlay(parents.of),
        }
    }
}

impl Known<'_> {
    /// Nodes that could serve a task and do not yet, in the order of [`Known::sources_for`].
    pub(crate) fn candidates(&self, task: &Task) -> Vec<NodeId> {
        self.sources_for(task, &self.suspects(task), |node| {
            !task.barred.contains_key(&node) && task.flows.iter().all(|flow| flow.facts.node != node)
        })
    }

    /// Nodes that could serve a task, best first: those of racks that have not failed it, then those that no task found lying, then the
    /// least loaded, then the largest stated uplink, then by id.
    pub(crate) fn sources_for(
        &self,
        task: &Task,
        suspects: &BTreeSet<String>,
        may: impl Fn(NodeId) -> bool,
    ) -> Vec<NodeId> {
        let TaskRecord { object, receiver, symbol_size, distrusted, .. } = &task.facts;
        let mut found = self.sources_of(*object, *symbol_size, |node| {
            node != *receiver && !distrusted.contains(&node) && may(node)
        });
        found.sort_by_key(|node| self.is_suspect(*node, suspects));
        found
    }

    /// Racks other than its own of nodes that have failed a task lately: they may be cut off altogether, and nobody tells the controller.
    pub(crate) fn suspects(&self, task: &Task) -> BTreeSet<String> {
        let own = self.catalog.rack_of(task.facts.receiver);
        let racks = task.barred.keys().filter_map(|node| self.catalog.rack_of(*node));
        racks.filter(|rack| Some(*rack) != own).map(str::to_owned).collect()
    }

    /// Whether a node stands in one of them.
    pub(crate) fn is_suspect(&self, node: NodeId, suspects: &BTreeSet<String>) -> bool {
        self.catalog.rack_of(node).is_some_and(|rack| suspects.contains(rack))
    }

    /// Nodes that are here and hold an object, and may be asked for symbols of this size; in the same order.
    pub(crate) fn sources_of(
        &self,
        object: ObjectId,
        symbol_size: u16,
        may: impl Fn(NodeId) -> bool,
    ) -> Vec<NodeId> {
        let Some(object) = self.catalog.object(object) else { return Vec::new() };
        let least_room = symbol_size.max(self.config.smallest_room);
        let mut nodes: Vec<_> = object
            .holders
            .iter()
            .filter(|node| may(**node))
            .filter_map(|node| self.catalog.node(*node))
            .filter(|node| node.path.is_some() && !node.leaving && node.info.room >= least_room)
            .map(|node| {
                let uplink = node.info.uplink.unwrap_or(BitRate::ZERO);
                (node.distrusts > 0, self.tasks.load(node.info.node), Reverse(uplink), node.info.node)
            })
            .collect();
        nodes.sort_unstable();
        nodes.into_iter().map(|(.., node)| node).collect()
    }

    /// Tasks whose receivers leave it to us how they are served, and can pass on what comes; by receiver, one of each.
    pub(crate) fn regroupable(&self, object: ObjectId) -> Vec<Regroupable> {
        let mut found: Vec<Regroupable> = self.regroupable_tasks(object).collect();
        found.sort_unstable();
        found.dedup_by_key(|it| it.receiver);
        found
    }

    /// Whether there are two of them.
    pub(crate) fn are_regroupable(&self, object: ObjectId) -> bool {
        let mut tasks = self.regroupable_tasks(object);
        tasks.next().is_some_and(|first| tasks.any(|other| other.receiver != first.receiver))
    }

    fn regroupable_tasks(&self, object: ObjectId) -> impl Iterator<Item = Regroupable> + '_ {
        let here = move |node: NodeId| {
            let node = self.catalog.node(node);
            node.is_some_and(|node| node.path.is_some() && !node.info.data.is_empty())
        };
        let tasks = self.tasks.wanting_apart(object).filter_map(|task| self.tasks.get(task));
        let may = move |task: &&Task| {
            task.passes_on
                && task.facts.delivery == Delivery::Push
                && !task.is_paused()
                && here(task.facts.receiver)
        };
        let regroupable = |task: &Task| Regroupable {
            receiver: task.facts.receiver,
            task: task.id(),
            room: task.facts.symbol_size,
        };
        tasks.filter(may).map(regroupable)
    }

    /// Whether a flow's source is about to stop.
    pub(crate) fn is_leaving(&self, flow: &Flow) -> bool {
        self.catalog.is_leaving(flow.facts.node) && flow.facts.group.is_none()
    }

    /// Flows whose sources are about to stop and need not go on with a task that others push: they send what is left.
    pub(crate) fn dispensable(&self, now: Time, task: &Task) -> Vec<FlowId> {
        let stays = |flow: &Flow| {
            let pushes = matches!(flow.state, FlowState::Pushing);
            pushes
                && !self.is_leaving(flow)
                && !flow.is_weak(now, self.config.silent_limit, self.config.silent_limit)
        };
        let others_do = task.facts.delivery == Delivery::Push
            && task.facts.spread == SpreadRule::Listed
            && task.flows.iter().any(stays);
        let leaving = task.flows.iter().filter(|flow| others_do && self.is_leaving(flow));
        leaving.map(|flow| flow.facts.flow).collect()
    }

    /// Flows that are to give way to other sources, if there are any: those whose sources are away first, then the longest silent.
    pub(crate) fn weak<'t>(&self, now: Time, task: &'t Task, no_place_is_free: bool) -> Vec<&'t Flow> {
        let limit = self.config.silent_limit;
        // Where there is a free place another source is there before the one that is leaving has gone.
        let is_weak =
            |flow: &&Flow| flow.is_weak(now, limit, limit) || (no_place_is_free && self.is_leaving(flow));
        let mut weak: Vec<&Flow> = task.flows.iter().filter(is_weak).collect();
        weak.sort_by_key(|flow| (!matches!(flow.state, FlowState::Away { .. }), Reverse(flow.silent())));
        weak
    }
}

/// Whether a request leaves it to the controller how it is served.
pub(crate) fn is_free(request: &Request) -> bool {
    request.delivery.is_none() && request.max_sources.is_none()
}
