//! The running tasks and their flows, and every way to look them up.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{
    BlockIndex, Bytes, Duration, FlowId, NodeId, ObjectId, PathId, Symbols, TaskId, Theta, Time,
};
use headwater_wire::{Class, Delivery, FlowGrant, FlowReport, FlowView, SpreadRule, Start};

use crate::{TaskFlow, TaskRecord};

/// Says something again and again, each time after twice the wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    due: Time,
    wait: Duration,
}

impl Retry {
    /// Due at once.
    pub(super) fn at(now: Time, first: Duration) -> Self {
        Retry { due: now, wait: first }
    }
    pub(super) fn due(&self) -> Time {
        self.due
    }
    /// Whether it is time to say it; if so, the next time is set.
    pub(super) fn fire(&mut self, now: Time, longest: Duration) -> bool {
        let due = now >= self.due;
        if due {
            self.due = now + self.wait.min(longest);
            self.wait = (self.wait * 2).min(longest);
        }
        due
    }
}

/// Where a flow stands.
///
/// ```text
///             Pushing, or a sign of it
///   Offered ---------------------------> Pushing ---- Stopped, unasked ----> Over
///     ^  \                                  |                                  | grace passed
///     |   `------ path to source lost ------+----> Away                        v
///     `------ the same incarnation is back ---------'  `-- replaced -------> (gone)
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) enum FlowState {
    /// The order to push is being said; its source is here.
    Offered { since: Time, push: Retry },
    /// The source confirmed it.
    Pushing,
    /// No path leads to its source, which may come back with the flow still running.
    Away { replace_after: Time },
    /// The source has ended it without being told; most likely the receiver is done, and says so any moment.
    Over { replace_after: Time },
}

/// One flow of a task.
pub(super) struct Flow {
    pub(super) facts: TaskFlow,
    pub(super) state: FlowState,
    /// Where its source may be reached, as granted to the receiver.
    pub(super) at: Vec<SocketAddr>,
    /// Its weight: planned, and told unless `pushed` is false.
    pub(super) theta: Theta,
    /// When the weight was last told.
    pub(super) told: Time,
    /// Whether the order to push was said at all.
    pub(super) pushed: bool,
    /// The last time that it was ordered again because it was silent.
    pub(super) reordered: Time,
    /// What the receiver said of it last.
    pub(super) view: Option<FlowView>,
    /// What the source said of it last.
    pub(super) report: Option<FlowReport>,
    /// Round-trip time, smoothed over reports.
    pub(super) rtt: Option<Duration>,
    /// What it could count on when it was opened.
    pub(super) start: Option<Start>,
}

impl Flow {
    /// A flow about which nobody was told yet.
    pub(super) fn new(facts: TaskFlow, at: Vec<SocketAddr>, state: FlowState) -> Self {
        let (theta, told, reordered) = (Theta::ONE, Time::ZERO, Time::ZERO);
        let (view, report, rtt, start) = (None, None, None, None);
        Flow { facts, state, at, theta, told, pushed: false, reordered, view, report, rtt, start }
    }
    pub(super) fn silent(&self) -> Duration {
        self.view.map_or(Duration::ZERO, |view| view.silent)
    }
    /// Whether another source would likely do better.
    pub(super) fn is_weak(&self, now: Time, silent_limit: Duration) -> bool {
        let stuck = match self.state {
            FlowState::Offered { since, .. } => now >= since + silent_limit,
            FlowState::Away { replace_after } => now >= replace_after,
            FlowState::Pushing | FlowState::Over { .. } => false,
        };
        stuck || self.silent() > silent_limit
    }
}

/// Whether a task's flows may send.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// They do.
    Running,
    /// The receiver is silent; they are told to stop sending.
    Paused { said: Retry },
    /// The receiver is back; they are told a few times to go on, since nobody confirms it.
    Resuming { said: Retry, times: u8 },
}

/// One receiver wants one object.
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) request: u64,
    pub(super) receiver: NodeId,
    pub(super) object: ObjectId,
    pub(super) bytes: Bytes,
    pub(super) name: String,
    pub(super) symbol_size: u16,
    pub(super) class: Class,
    pub(super) spread: SpreadRule,
    pub(super) delivery: Delivery,
    pub(super) max_sources: u8,
    /// M: residue classes of its symbols.
    pub(super) classes: u8,
    /// Of its list of flows.
    pub(super) version: u32,
    /// In the order of their opening.
    pub(super) flows: Vec<Flow>,
    /// The trees by which it comes, if it does; they are a cast's, and it has no flows of its own then.
    pub(super) trees: Vec<FlowGrant>,
    pub(super) distrusted: BTreeSet<NodeId>,
    /// Where the receiver spoke from last.
    pub(super) path: Option<PathId>,
    /// When the receiver spoke last.
    pub(super) heard: Time,
    pub(super) pace: Pace,
    /// v of PPUSH Alg. 1, in symbols.
    pub(super) needed: Symbols,
    /// Its receiver's decoder or disk is the limit.
    pub(super) held_up: bool,
    pub(super) first_undecoded: BlockIndex,
    /// Says the list of flows until the receiver echoes its version.
    pub(super) list: Option<Retry>,
    /// It has begun anew with this version, and the receiver has not confirmed that yet: it is told so with the list.
    pub(super) anew: Option<u32>,
    /// Its receiver can pass on what comes, and leaves it to us how it comes.
    pub(super) passes_on: bool,
    /// Sources that failed it lately, and until when they are not chosen again.
    pub(super) barred: BTreeMap<NodeId, Time>,
    /// Classes that some source has sent symbols of.
    pub(super) classes_used: BTreeSet<u8>,
}

impl Task {
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.pace, Pace::Paused { .. })
    }
    /// v of PPUSH Alg. 1: what is left of the task.
    pub(super) fn remaining(&self) -> Bytes {
        Bytes::new(self.needed.get().saturating_mul(u64::from(self.symbol_size)))
    }
    pub(super) fn record(&self) -> TaskRecord {
        TaskRecord {
            task: self.id,
            request: self.request,
            receiver: self.receiver,
            object: self.object,
            bytes: self.bytes,
            name: self.name.clone(),
            symbol_size: self.symbol_size,
            class: self.class,
            spread: self.spread,
            delivery: self.delivery,
            max_sources: self.max_sources,
            residue_classes: self.classes,
            flows_version: self.version,
            flows: self.flows.iter().map(|flow| flow.facts.clone()).collect(),
            distrusted: self.distrusted.iter().copied().collect(),
        }
    }
    /// A class for a new flow: one that nobody has sent symbols of if there is such, else any that is free.
    pub(super) fn free_class(&self) -> u8 {
        let free = |class: &u8| self.flows.iter().all(|flow| flow.facts.index != *class);
        let fresh = |class: &u8| !self.classes_used.contains(class);
        let mut classes = 0..self.classes;
        let found = classes.clone().find(|c| free(c) && fresh(c)).or_else(|| classes.find(free));
        found.expect("a task has at least as many classes as sources")
    }
}

/// All tasks, with indexes that cannot disagree: tasks and flows are added and removed only here.
#[derive(Default)]
pub(super) struct Tasks {
    tasks: BTreeMap<TaskId, Task>,
    requests: BTreeMap<(NodeId, u64), TaskId>,
    by_object: BTreeMap<ObjectId, BTreeSet<TaskId>>,
    by_flow: BTreeMap<FlowId, TaskId>,
    by_source: BTreeMap<NodeId, BTreeSet<FlowId>>,
    by_receiver: BTreeMap<NodeId, BTreeSet<TaskId>>,
}

impl Tasks {
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.tasks.values_mut()
    }
    pub(super) fn get(&self, task: TaskId) -> Option<&Task> {
        self.tasks.get(&task)
    }
    pub(super) fn get_mut(&mut self, task: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(&task)
    }
    pub(super) fn of_request(&self, receiver: NodeId, request: u64) -> Option<TaskId> {
        self.requests.get(&(receiver, request)).copied()
    }
    pub(super) fn of_flow(&self, flow: FlowId) -> Option<TaskId> {
        self.by_flow.get(&flow).copied()
    }
    /// The tasks that want an object.
    pub(super) fn wanting(&self, object: ObjectId) -> impl Iterator<Item = TaskId> + '_ {
        self.by_object.get(&object).into_iter().flatten().copied()
    }
    /// Whether it is a task of this receiver.
    pub(super) fn is_of(&self, task: TaskId, receiver: NodeId) -> bool {
        self.tasks.get(&task).is_some_and(|task| task.receiver == receiver)
    }
    /// The objects that some task wants.
    pub(super) fn wanted(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.by_object.keys().copied()
    }
    /// The flows of a source.
    pub(super) fn flows_of(&self, source: NodeId) -> impl Iterator<Item = FlowId> + '_ {
        self.by_source.get(&source).into_iter().flatten().copied()
    }
    /// Whether a source's flow is the group's of some task.
    pub(super) fn is_group(&self, source: NodeId, group: FlowId) -> bool {
        let is_its = |flow: FlowId| self.flow(flow)?.facts.group.as_ref().map(|it| it.flow == group);
        self.flows_of(source).any(|flow| is_its(flow) == Some(true))
    }
    /// How many flows a source has.
    pub(super) fn load(&self, source: NodeId) -> usize {
        self.by_source.get(&source).map_or(0, BTreeSet::len)
    }
    /// How many flows a receiver has, of all its tasks.
    pub(super) fn flows_to(&self, receiver: NodeId) -> usize {
        let tasks = self.by_receiver.get(&receiver).into_iter().flatten();
        tasks.filter_map(|task| self.tasks.get(task)).map(|task| task.flows.len()).sum()
    }
    pub(super) fn flow(&self, flow: FlowId) -> Option<&Flow> {
        let task = self.tasks.get(self.by_flow.get(&flow)?)?;
        task.flows.iter().find(|f| f.facts.flow == flow)
    }
    pub(super) fn flow_mut(&mut self, flow: FlowId) -> Option<&mut Flow> {
        let task = self.tasks.get_mut(self.by_flow.get(&flow)?)?;
        task.flows.iter_mut().find(|f| f.facts.flow == flow)
    }
    pub(super) fn add(&mut self, task: Task) {
        assert!(task.flows.is_empty(), "flows are added one by one");
        self.requests.insert((task.receiver, task.request), task.id);
        self.by_object.entry(task.object).or_default().insert(task.id);
        self.by_receiver.entry(task.receiver).or_default().insert(task.id);
        let before = self.tasks.insert(task.id, task);
        assert!(before.is_none(), "a task id is used once");
    }
    /// Takes a task out; its flows must be gone.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        assert!(task.flows.is_empty(), "flows end before their task");
        self.requests.remove(&(task.receiver, task.request));
        remove_from(&mut self.by_object, &task.object, &id);
        remove_from(&mut self.by_receiver, &task.receiver, &id);
        Some(task)
    }
    pub(super) fn add_flow(&mut self, id: TaskId, flow: Flow) {
        let task = self.tasks.get_mut(&id).expect("a flow belongs to a task");
        let before = self.by_flow.insert(flow.facts.flow, id);
        assert!(before.is_none(), "a flow id is used once");
        self.by_source.entry(flow.facts.node).or_default().insert(flow.facts.flow);
        task.classes_used.insert(flow.facts.index);
        task.flows.push(flow);
    }
    pub(super) fn remove_flow(&mut self, flow: FlowId) -> Option<Flow> {
        let task = self.tasks.get_mut(&self.by_flow.remove(&flow)?)?;
        let place = task.flows.iter().position(|f| f.facts.flow == flow)?;
        let flow = task.flows.remove(place);
        remove_from(&mut self.by_source, &flow.facts.node, &flow.facts.flow);
        Some(flow)
    }
}

fn remove_from<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = index.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            index.remove(key);
        }
    }
}
