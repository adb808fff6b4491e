//! Which sources serve a task: the first ones, joiners, replacements (PPUSH §III-A).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{
    BitRate, BlockIndex, FlowId, FlowKey, Geometry, NodeId, ObjectId, PathId, TaskId, Theta, Time,
};
use headwater_wire::{Delivery, FlowGrant, Outcome, Refusal, Request, SpreadRule, Start};
use rand::Rng;

use super::overlay_membership::Circle;
use super::tasks::{Flow, FlowState, Pace, Task};
use super::timers::Subject;
use super::{Controller, ControllerConfig, offered};
use crate::{ControllerEvent, TaskFlow, TaskGroup, TaskRecord};

/// Where a cast puts one of its receivers.
pub(super) enum Place {
    /// Into a group that this node serves, by this flow.
    Group { node: NodeId, flow: FlowId, group: TaskGroup },
    /// Among receivers that pass on what comes to them.
    Overlay(Circle),
}

/// What a new flow is to be.
pub(super) struct FlowPlan {
    pub(super) node: NodeId,
    pub(super) index: u8,
    pub(super) group: Option<TaskGroup>,
    pub(super) relays: bool,
    pub(super) passed_on: bool,
}

impl FlowPlan {
    pub(super) fn of_source(node: NodeId, index: u8) -> Self {
        FlowPlan { node, index, group: None, relays: false, passed_on: true }
    }
}

impl Place {
    /// The flow that was chosen for it, if one was.
    pub(super) fn flow(&self) -> Option<FlowId> {
        match self {
            Place::Group { flow, .. } => Some(*flow),
            Place::Overlay(_) => None,
        }
    }

    /// What each of its sources pushes.
    pub(super) fn window(&self, config: &ControllerConfig) -> u16 {
        match self {
            Place::Group { .. } => config.cast_window,
            Place::Overlay(circle) => Place::overlay_window(circle.of, config),
        }
    }

    /// The same in a circle of so many.
    pub(super) fn overlay_window(of: u8, config: &ControllerConfig) -> u16 {
        // Each symbol that comes to a relay is sent on to all others at once: the more they are, the fewer may come together.
        let of = u16::from(of.max(1));
        (config.overlay_window / of.max(of * of / 6)).max(2)
    }
}

impl Controller {
    /// Makes a task of a request, with its first sources; or as a cast has it.
    pub(super) fn begin(
        &mut self,
        now: Time,
        path: PathId,
        request: &Request,
        place: Option<Place>,
    ) -> Result<TaskId, Refusal> {
        let unresolved = || self.registry.why_unresolved(&request.name);
        let object = self.registry.resolve(&request.name).ok_or_else(unresolved)?;
        let bytes = self.registry.object(object).ok_or(Refusal::UnknownObject)?.bytes;
        let max_sources = self.config.sources_for(request.max_sources);
        let mut task = Task {
            id: TaskId(0),
            request: request.request,
            receiver: request.receiver,
            object,
            bytes,
            name: request.name.clone(),
            symbol_size: 0,
            class: request.class,
            spread: request.spread,
            delivery: Delivery::Push,
            max_sources,
            classes: self.config.classes_for(request.spread, max_sources),
            version: 0,
            flows: Vec::new(),
            trees: Vec::new(),
            distrusted: BTreeSet::new(),
            path: Some(path),
            heard: now,
            pace: Pace::Running,
            needed: Default::default(),
            held_up: false,
            first_undecoded: BlockIndex(0),
            list: None,
            anew: None,
            passes_on: request.passes_on
                && super::overlay::is_free(request)
                && request.spread == SpreadRule::Listed,
            barred: BTreeMap::new(),
            classes_used: BTreeSet::new(),
        };
        let mut sources = self.candidates(&task);
        match &place {
            Some(Place::Group { node: only, .. }) => sources.retain(|node| node == only),
            // Who passes it on need not hold it yet.
            Some(Place::Overlay(circle)) => {
                let own = circle.source.iter().map(|(node, _)| *node);
                sources = own.chain(circle.relays.iter().map(|giver| giver.node)).collect();
            }
            None => {}
        }
        sources.truncate(usize::from(max_sources));
        if sources.is_empty() {
            return Err(self.no_source_of(object));
        }
        if self.tasks.len() >= self.config.max_tasks {
            return Err(Refusal::Full);
        }
        let rooms = sources.iter().filter_map(|node| self.registry.node(*node)).map(|node| node.info.room);
        let geometry = Geometry::fitting(bytes, rooms.fold(request.room, u16::min));
        (task.symbol_size, task.needed) = (geometry.symbol_size(), geometry.total_symbols());
        task.id = self.unused_task_id();
        let id = task.id;
        let starts = self.starts(task.receiver, &sources);
        task.delivery = match &place {
            // As all members of the group.
            Some(_) => request.delivery.unwrap_or_default(),
            None => self.delivery(request, &task, &starts),
        };
        if let Some(Place::Overlay(circle)) = &place {
            (task.classes, task.max_sources) = (circle.of, circle.of);
        } else if task.spread == SpreadRule::Equal || task.delivery != Delivery::Push {
            // No other source covers the part of one that is not there; of pulled ones, none without repair symbols.
            task.classes = sources.len() as u8;
            // And a source that comes later has no part.
            task.max_sources = task.classes;
        }
        self.tasks.add(task);
        match place {
            None => {
                sources.iter().zip(starts).for_each(|(node, start)| self.open_flow(now, id, *node, start))
            }
            Some(Place::Group { node, flow, group }) => {
                let index = self.free_class(id);
                let plan = FlowPlan { group: Some(group), ..FlowPlan::of_source(node, index) };
                self.open_flow_as(now, id, flow, plan, None);
            }
            Some(Place::Overlay(circle)) => self.open_circle(now, id, circle),
        }
        Ok(id)
    }

    /// Takes over a task from before a restart; its sources have yet to come back.
    pub(super) fn adopt(&mut self, now: Time, record: TaskRecord) {
        // Until its receiver reports, all of it counts as missing.
        let needed = Geometry::new(record.bytes, record.symbol_size).map_or_else(
            |_| Geometry::fitting(record.bytes, record.symbol_size).total_symbols(),
            |geometry| geometry.total_symbols(),
        );
        let id = record.task;
        self.tasks.add(Task {
            id,
            request: record.request,
            receiver: record.receiver,
            object: record.object,
            bytes: record.bytes,
            name: record.name,
            symbol_size: record.symbol_size,
            class: record.class,
            spread: record.spread,
            delivery: record.delivery,
            max_sources: record.max_sources,
            classes: record.residue_classes,
            version: record.flows_version,
            flows: Vec::new(),
            trees: Vec::new(),
            distrusted: record.distrusted.into_iter().collect(),
            path: None,
            heard: now,
            pace: Pace::Running,
            needed,
            held_up: false,
            first_undecoded: BlockIndex(0),
            list: None,
            // Its receiver may not have heard that it is not pushed to any more.
            anew: (record.delivery != Delivery::Push).then_some(record.flows_version),
            passes_on: false,
            barred: BTreeMap::new(),
            classes_used: BTreeSet::new(),
        });
        for facts in record.flows {
            if self.tasks.of_flow(facts.flow).is_none() {
                let state = FlowState::Away { replace_after: now + self.config.restore_grace };
                self.tasks.add_flow(id, Flow::new(facts, Vec::new(), state));
            }
        }
    }

    /// Fills a task's free places, and lets better sources take the places of weak ones. Without any, all stay.
    pub(super) fn refill(&mut self, now: Time, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if task.is_paused() {
            return;
        }
        let is_past =
            |f: &&Flow| matches!(f.state, FlowState::Over { replace_after } if now >= replace_after);
        let past: Vec<FlowId> = task.flows.iter().filter(is_past).map(|f| f.facts.flow).collect();
        for flow in past {
            self.close_flow(now, flow, false);
            self.changed.insert(id);
        }
        self.let_go(now, id);
        let task = self.tasks.get(id).expect("closing a flow ends no task");
        let free = usize::from(task.max_sources).saturating_sub(task.flows.len());
        let limit = self.config.silent_limit;
        // Where there is a free place another source is there before the parting one goes.
        let weak = |flow: &&Flow| flow.is_weak(now, limit) || (free == 0 && self.is_parting(flow));
        let mut weak: Vec<&Flow> = task.flows.iter().filter(weak).collect();
        if free == 0 && weak.is_empty() {
            return;
        }
        // Those whose sources are away first, then the longest silent.
        weak.sort_by_key(|f| (!matches!(f.state, FlowState::Away { .. }), Reverse(f.silent())));
        let facts = |f: &&Flow| (f.facts.flow, f.facts.node, matches!(f.state, FlowState::Away { .. }));
        let weak: Vec<(FlowId, NodeId, bool)> = weak.iter().map(facts).collect();
        let mut better = self.candidates(task).into_iter();
        let joining: Vec<NodeId> = better.by_ref().take(free).collect();
        if !joining.is_empty() {
            self.open_flows(now, id, &joining);
            self.changed.insert(id);
        }
        for (node, (flow, failed, away)) in better.zip(weak) {
            if !away {
                let task = self.tasks.get_mut(id).expect("closing a flow ends no task");
                task.barred.insert(failed, now + self.config.bar);
            }
            self.close_flow(now, flow, true);
            self.open_flows(now, id, &[node]);
            self.stats.flows_replaced += 1;
            self.changed.insert(id);
        }
    }

    /// Whether a flow's source is about to stop. One that passes on what comes to it says so to its receivers itself.
    fn is_parting(&self, flow: &Flow) -> bool {
        self.registry.is_leaving(flow.facts.node) && !flow.facts.relays && flow.facts.group.is_none()
    }

    /// Sources that are about to stop need not go on with a task that others push: they send what is left.
    fn let_go(&mut self, now: Time, id: TaskId) {
        let task = self.tasks.get(id).expect("the caller has found it");
        let stays = |flow: &Flow| {
            let pushes = matches!(flow.state, FlowState::Pushing);
            pushes && !self.is_parting(flow) && !flow.is_weak(now, self.config.silent_limit)
        };
        let others_do = task.delivery == Delivery::Push
            && task.spread == SpreadRule::Listed
            && task.flows.iter().any(stays);
        if others_do {
            let parting = task.flows.iter().filter(|flow| self.is_parting(flow));
            let parting: Vec<FlowId> = parting.map(|flow| flow.facts.flow).collect();
            for flow in parting {
                self.close_flow(now, flow, true);
                self.changed.insert(id);
            }
        }
    }

    /// Nodes that could serve a task and do not yet, best first: those that no task found lying, then the least loaded,
    /// then the largest stated uplink, then by id.
    fn candidates(&self, task: &Task) -> Vec<NodeId> {
        self.sources_of(task.object, task.symbol_size, |node| {
            node != task.receiver
                && !task.distrusted.contains(&node)
                && !task.barred.contains_key(&node)
                && task.flows.iter().all(|flow| flow.facts.node != node)
        })
    }

    /// Nodes that are here and hold an object, and may be asked for symbols of this size; in the same order.
    pub(super) fn sources_of(
        &self,
        object: ObjectId,
        symbol_size: u16,
        may: impl Fn(NodeId) -> bool,
    ) -> Vec<NodeId> {
        let Some(object) = self.registry.object(object) else { return Vec::new() };
        let least_room = symbol_size.max(self.config.smallest_room);
        let mut nodes: Vec<_> = object
            .holders
            .iter()
            .filter(|node| may(**node))
            .filter_map(|node| self.registry.node(*node))
            .filter(|node| node.path.is_some() && !node.leaving && node.info.room >= least_room)
            .map(|node| {
                let uplink = node.info.uplink.unwrap_or(BitRate::ZERO);
                (node.distrusts > 0, self.tasks.load(node.info.node), Reverse(uplink), node.info.node)
            })
            .collect();
        nodes.sort_unstable();
        nodes.into_iter().map(|(.., node)| node).collect()
    }

    fn open_flows(&mut self, now: Time, id: TaskId, sources: &[NodeId]) {
        let receiver = self.tasks.get(id).expect("flows are opened for running tasks").receiver;
        let starts = self.starts(receiver, sources);
        sources.iter().zip(starts).for_each(|(node, start)| self.open_flow(now, id, *node, start));
    }

    fn free_class(&self, id: TaskId) -> u8 {
        self.tasks.get(id).expect("flows are opened for running tasks").free_class()
    }

    fn open_flow(&mut self, now: Time, id: TaskId, node: NodeId, start: Option<Start>) {
        let (flow, index) = (self.unused_flow_id(), self.free_class(id));
        self.open_flow_as(now, id, flow, FlowPlan::of_source(node, index), start);
    }

    pub(super) fn open_flow_as(
        &mut self,
        now: Time,
        id: TaskId,
        flow: FlowId,
        plan: FlowPlan,
        start: Option<Start>,
    ) {
        let FlowPlan { node, index, group, relays, passed_on } = plan;
        let info = &self.registry.node(node).expect("sources are chosen among known nodes").info;
        let (incarnation, at) = (info.incarnation, info.data.clone());
        let key = FlowKey(self.rng.random());
        let facts = TaskFlow { flow, node, incarnation, key, index, group, relays, passed_on };
        let mut flow = Flow::new(facts, at, offered(now, &self.config));
        flow.theta = self.config.fixed_theta.unwrap_or(Theta::ONE);
        flow.start = start;
        self.tasks.add_flow(id, flow);
        self.stats.flows_opened += 1;
        self.touched.insert(id);
    }

    /// Takes a flow out of its task, and stops it at its source unless that has lost it.
    pub(super) fn close_flow(&mut self, now: Time, flow: FlowId, stop: bool) {
        let Some(flow) = self.tasks.remove_flow(flow) else { return };
        if stop {
            let TaskFlow { flow, node, incarnation, .. } = flow.facts;
            self.stop_flow(now, node, flow, incarnation);
        }
        self.plan_due = true;
    }

    /// Ends a task and its flows.
    pub(super) fn end_task(&mut self, now: Time, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get(id) else { return };
        let object = task.object;
        let flows: Vec<FlowId> = task.flows.iter().map(|flow| flow.facts.flow).collect();
        flows.into_iter().for_each(|flow| self.close_flow(now, flow, true));
        self.tasks.remove(id);
        if self.tasks.wanting(object).next().is_none() {
            self.overlays.remove(object);
        }
        self.timers.set(Subject::Task(id), None);
        self.touched.remove(&id);
        self.changed.remove(&id);
        match outcome {
            Outcome::Done => self.stats.tasks_done += 1,
            Outcome::Cancelled | Outcome::Failed => self.stats.tasks_failed += 1,
        }
        self.event(ControllerEvent::Forget { task: id, outcome });
        self.plan_due = true;
    }

    /// What a receiver needs to know of a task's flows.
    pub(super) fn grants(&self, task: &Task) -> Vec<FlowGrant> {
        if !task.trees.is_empty() {
            return task.trees.clone();
        }
        let grant = |flow: &Flow| FlowGrant {
            flow: flow.facts.flow,
            node: flow.facts.node,
            at: flow.at.clone(),
            key: flow.facts.key,
            index: flow.facts.index,
            of: task.classes,
            group: flow.facts.group.as_ref().map(|group| group.flow),
            relays: flow.facts.relays,
            passed_on: flow.facts.passed_on,
        };
        // A group's flow is granted like any other, under the key that all members have.
        let of_group = |flow: &Flow| {
            let TaskGroup { flow: id, key, at } = flow.facts.group.clone()?;
            Some(FlowGrant { flow: id, key, at: vec![at], group: None, ..grant(flow) })
        };
        task.flows.iter().flat_map(|flow| [Some(grant(flow)), of_group(flow)]).flatten().collect()
    }

    pub(super) fn unused_task_id(&mut self) -> TaskId {
        loop {
            let id = TaskId(self.rng.random());
            if self.tasks.get(id).is_none() {
                return id;
            }
        }
    }

    pub(super) fn unused_flow_id(&mut self) -> FlowId {
        loop {
            // Zero stands for "no flow" in control datagrams.
            let id = FlowId(self.rng.random());
            if id != FlowId(0) && self.tasks.of_flow(id).is_none() {
                return id;
            }
        }
    }
}
