//! The running tasks and their flows, with every index of them.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::{Shares, Taker};
use headwater_units::{
    BitRate, BlockIndex, BlockLayout, Bytes, Duration, FlowId, Geometry, NodeId, ObjectId, PathId, Symbols,
    TaskId, Theta, Time,
};
use headwater_wire::{Delivery, FlowGrant, FlowReport, FlowSecret, FlowView, Request, Start, Urgency};

use crate::mending::Mending;
use crate::retry::Retry;
use crate::turn::Draws;
use crate::{TaskFlow, TaskGroup, TaskRecord};

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
pub(crate) enum FlowState {
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
pub(crate) struct Flow {
    pub(crate) facts: TaskFlow,
    pub(crate) state: FlowState,
    /// Where its source may be reached, as granted to the receiver.
    pub(crate) at: Vec<SocketAddr>,
    /// Its weight: planned, and told unless `pushed` is false.
    pub(crate) theta: Theta,
    /// When the weight was last told.
    pub(crate) told: Time,
    /// Whether the order to push was said at all.
    pub(crate) pushed: bool,
    /// The last time that it was ordered again because it was silent.
    pub(crate) reordered: Time,
    /// The receiver's last report of it.
    pub(crate) view: Option<FlowView>,
    /// The source's last report of it.
    pub(crate) report: Option<FlowReport>,
    /// Round-trip time, smoothed over reports.
    pub(crate) rtt: Option<Duration>,
    /// Capacity that it could count on when it was opened.
    pub(crate) start: Option<Start>,
}

impl Flow {
    /// A flow about which nobody was told yet.
    pub(crate) fn new(facts: TaskFlow, at: Vec<SocketAddr>, state: FlowState) -> Self {
        let (theta, told, reordered) = (Theta::ONE, Time::ZERO, Time::ZERO);
        let (view, report, rtt, start) = (None, None, None, None);
        Flow { facts, state, at, theta, told, pushed: false, reordered, view, report, rtt, start }
    }
    pub(crate) fn silent(&self) -> Duration {
        self.view.map_or(Duration::ZERO, |view| view.silent)
    }
    /// Whether its source says that it has sent all, or cannot.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, FlowState::Over { .. })
    }
    /// Whether another source would likely do better: this one is silent for longer than that, or has not answered its order.
    pub(crate) fn is_weak(&self, now: Time, silent_limit: Duration, answer_limit: Duration) -> bool {
        let stuck = match self.state {
            FlowState::Offered { since, .. } => now >= since + answer_limit,
            FlowState::Away { replace_after } => now >= replace_after,
            FlowState::Pushing | FlowState::Over { .. } => false,
        };
        stuck || self.silent() > silent_limit
    }
}

/// Whether a task's flows may send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// They do.
    Running,
    /// The receiver is silent; they are told to stop sending.
    Paused { said: Retry },
    /// The receiver is back; they are told a few times to go on, since nobody confirms it.
    Resuming { said: Retry, times: u8 },
}

/// How many receivers had wrong bytes from a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accusers(usize);

impl Accusers {
    /// So many are believed: one alone may slander it.
    const ENOUGH: usize = 2;

    /// One more. True if they are enough with it.
    pub(crate) fn add(&mut self) -> bool {
        self.0 += 1;
        self.0 == Self::ENOUGH
    }

    /// Whether they are believed.
    pub(crate) fn is_enough(self) -> bool {
        self.0 >= Self::ENOUGH
    }
}

/// One receiver wants one object.
pub(crate) struct Task {
    /// Its state that survives a restart, but for its flows: those are below.
    pub(crate) facts: TaskRecord,
    /// In the order of their opening.
    pub(crate) flows: Vec<Flow>,
    /// The trees by which it comes, if it does; they are a cast's, and it has no flows of its own then.
    pub(crate) trees: Vec<FlowGrant>,
    /// Whose place in the table of tasks it takes: its receiver's, until it ends.
    pub(crate) taker: Taker,
    /// When it began, or was restored.
    pub(crate) begun: Time,
    /// Where the receiver spoke from last.
    pub(crate) path: Option<PathId>,
    /// How often the receiver is to speak.
    pub(crate) feedback_every: Duration,
    /// When the receiver spoke last.
    pub(crate) heard: Time,
    /// As one of an overlay: when another parent was last looked for, for somebody to whom a stripe came no more from its receiver.
    pub(crate) deserted: Option<Time>,
    /// As one of an overlay: how many others that had a stripe from its receiver had wrong bytes.
    pub(crate) accusers: Accusers,
    pub(crate) pace: Pace,
    /// v of PPUSH Alg. 1, in symbols.
    pub(crate) needed: Symbols,
    /// Its receiver's decoder or disk is the limit.
    pub(crate) held_up: bool,
    pub(crate) first_undecoded: BlockIndex,
    /// Says the list of flows until the receiver echoes its version.
    pub(crate) list: Option<Retry>,
    /// It has begun anew with this version, and the receiver has not confirmed that yet: it is told so with the list.
    pub(crate) anew: Option<u32>,
    /// Its receiver can pass on what comes, and leaves it to us how it comes.
    pub(crate) passes_on: bool,
    /// How much it matters beside others, and when that was asked for. A restarted controller does not know it any more.
    pub(crate) urgency: Option<(Time, Urgency)>,
    /// Sources that failed it lately, and until when they are not chosen again.
    pub(crate) barred: BTreeMap<NodeId, Time>,
    /// As one of an overlay: how often its stripes have moved.
    pub(crate) mending: Mending,
    /// And, by stripe that had another flow before, what such flows have brought.
    pub(crate) brought_before: BTreeMap<u8, Bytes>,
    /// And when it is looked after again, since others come first.
    pub(crate) mend_at: Option<Time>,
    /// Classes that some source has sent symbols of.
    pub(crate) classes_used: BTreeSet<u8>,
}

impl Task {
    /// What a request begins that came by this path from this peer, without sources, symbols and id yet.
    pub(crate) fn begun(
        now: Time,
        (path, taker): (PathId, Taker),
        request: &Request,
        object: ObjectId,
        bytes: Bytes,
    ) -> Task {
        let facts = TaskRecord {
            task: TaskId(0),
            request: request.request,
            receiver: request.receiver,
            object,
            bytes,
            name: request.name.clone(),
            symbol_size: 0,
            class: request.class,
            spread: request.spread,
            delivery: Delivery::Push,
            max_sources: 0,
            residue_classes: 0,
            flows_version: 0,
            flows: Vec::new(),
            distrusted: Vec::new(),
        };
        Task { path: Some(path), taker, ..Task::new(now, facts) }
    }
    /// A task that was running when the controller stopped, without its flows.
    pub(crate) fn restored(now: Time, mut record: TaskRecord) -> Task {
        record.distrusted.sort_unstable();
        // Until its receiver reports, all of it counts as missing.
        let geometry = Geometry::new(record.bytes, record.symbol_size)
            .unwrap_or_else(|_| Geometry::fitting(record.bytes, record.symbol_size));
        // Its receiver may not have heard that it is not pushed to any more.
        let anew = (record.delivery != Delivery::Push).then_some(record.flows_version);
        Task { needed: geometry.total_symbols(), anew, ..Task::new(now, record) }
    }
    /// As one of an overlay: what has come of a stripe, by all flows that brought it, as far as the receiver has said.
    pub(crate) fn brought(&self, stripe: u8) -> Bytes {
        let now = self.flows.iter().filter(|flow| flow.facts.index == stripe).filter_map(|flow| flow.view);
        let before = self.brought_before.get(&stripe).copied().unwrap_or(Bytes::ZERO);
        now.fold(before, |sum, view| sum + view.bytes)
    }

    /// Whether all its sources that are here have answered their orders.
    pub(crate) fn is_answered(&self) -> bool {
        self.flows.iter().all(|flow| !matches!(flow.state, FlowState::Offered { .. }))
    }

    /// Whether anything has come, as far as the receiver has said.
    pub(crate) fn has_brought(&self) -> bool {
        let now = self.flows.iter().filter_map(|flow| flow.view).map(|view| view.bytes);
        self.brought_before.values().copied().chain(now).any(|bytes| bytes > Bytes::ZERO)
    }

    /// Whether one stripe has brought less than all others, by a quarter of a block and more: its receiver waits for that one. A receiver
    /// whose own links are slow has little of all.
    pub(crate) fn waits_for(&self, stripe: u8) -> bool {
        let quarter = Bytes::new(BlockLayout::of(self.facts.bytes).block_bytes().get().div_ceil(4));
        let others = (0..self.facts.residue_classes).filter(|other| *other != stripe);
        let least = others.map(|other| self.brought(other)).min().unwrap_or(Bytes::ZERO);
        self.is_behind(stripe) || self.brought(stripe) + quarter <= least
    }

    /// Whether the receiver has said last that a stripe holds it up.
    pub(crate) fn is_behind(&self, stripe: u8) -> bool {
        let of_stripe = self.flows.iter().filter(|flow| flow.facts.index == stripe);
        of_stripe.filter_map(|flow| flow.view).any(|view| view.behind > Duration::ZERO)
    }

    /// Whether a stripe has a flow, of which nobody has said that it holds up its receiver.
    pub(crate) fn is_served(&self, stripe: u8) -> bool {
        self.flows.iter().any(|flow| flow.facts.index == stripe) && !self.is_behind(stripe)
    }

    fn new(now: Time, facts: TaskRecord) -> Task {
        Task {
            taker: Taker::of_key(facts.receiver),
            facts,
            flows: Vec::new(),
            trees: Vec::new(),
            begun: now,
            path: None,
            feedback_every: Duration::ZERO,
            heard: now,
            deserted: None,
            accusers: Accusers::default(),
            pace: Pace::Running,
            needed: Symbols::ZERO,
            held_up: false,
            first_undecoded: BlockIndex(0),
            list: None,
            anew: None,
            passes_on: false,
            urgency: None,
            barred: BTreeMap::new(),
            mending: Mending::default(),
            brought_before: BTreeMap::new(),
            mend_at: None,
            classes_used: BTreeSet::new(),
        }
    }
    pub(crate) fn id(&self) -> TaskId {
        self.facts.task
    }
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.pace, Pace::Paused { .. })
    }
    /// Whether its receiver is one of an overlay.
    pub(crate) fn is_of_overlay(&self) -> bool {
        matches!(self.facts.delivery, Delivery::Overlay { .. })
    }
    /// As one of an overlay: whether its receiver would hardly wait if one that has nothing yet sent it a stripe from now on. It has half a
    /// block of each at most, which does not count as being held up, by what it said no longer ago than `long`.
    pub(crate) fn waits_briefly(&self, now: Time, long: Duration) -> bool {
        let blocks = BlockLayout::of(self.facts.bytes).block_bytes() * u64::from(self.facts.residue_classes);
        let has_little = (self.facts.bytes - self.remaining()) * 2 <= blocks;
        // What it has is not known before it speaks, where the controller has begun after it.
        has_little && self.path.is_some() && now < self.heard + long
    }
    /// v of PPUSH Alg. 1: what is left of the task.
    pub(crate) fn remaining(&self) -> Bytes {
        Bytes::new(self.needed.get().saturating_mul(u64::from(self.facts.symbol_size)))
    }
    pub(crate) fn record(&self) -> TaskRecord {
        TaskRecord { flows: self.flows.iter().map(|flow| flow.facts.clone()).collect(), ..self.facts.clone() }
    }
    /// Whether a node has failed it lately, or is not believed.
    pub(crate) fn avoids(&self, node: NodeId) -> bool {
        self.barred.contains_key(&node) || self.facts.distrusted.contains(&node)
    }
    /// A source delivered wrong bytes to it. False if that is known, or there are `most` of them.
    pub(crate) fn distrust(&mut self, node: NodeId, most: usize) -> bool {
        let distrusted = &mut self.facts.distrusted;
        match distrusted.binary_search(&node) {
            Err(place) if distrusted.len() < most => {
                distrusted.insert(place, node);
                true
            }
            _ => false,
        }
    }
    /// A class for a new flow: one that nobody has sent symbols of if there is such, else any that is free. There is one unless the task
    /// has more sources than it may.
    pub(crate) fn free_class(&self) -> Option<u8> {
        let free = |class: &u8| self.flows.iter().all(|flow| flow.facts.index != *class);
        let fresh = |class: &u8| !self.classes_used.contains(class);
        let mut classes = 0..self.facts.residue_classes;
        classes.clone().find(|c| free(c) && fresh(c)).or_else(|| classes.find(free))
    }
    pub(crate) fn flow_mut(&mut self, flow: FlowId) -> Option<&mut Flow> {
        self.flows.iter_mut().find(|its| its.facts.flow == flow)
    }
    /// Rate of its flows together, by the receiver's report.
    pub(crate) fn rate(&self) -> BitRate {
        self.flows.iter().filter_map(|flow| flow.view).map(|view| view.rate).sum()
    }
    /// Facts of its flows that its receiver needs.
    pub(crate) fn grants(&self) -> Vec<FlowGrant> {
        if !self.trees.is_empty() {
            return self.trees.clone();
        }
        let grant = |flow: &Flow| FlowGrant {
            flow: flow.facts.flow,
            node: flow.facts.node,
            at: flow.at.clone(),
            key: flow.facts.key,
            index: flow.facts.index,
            of: self.facts.residue_classes,
            group: flow.facts.group.as_ref().map(|group| group.flow),
            relays: flow.facts.relays,
        };
        // A group's flow is granted like any other, under the key that all members have.
        let of_group = |flow: &Flow| {
            let TaskGroup { flow: id, key, at } = flow.facts.group.clone()?;
            Some(FlowGrant { flow: id, key, at: vec![at], group: None, ..grant(flow) })
        };
        self.flows.iter().flat_map(|flow| [Some(grant(flow)), of_group(flow)]).flatten().collect()
    }
}

/// All tasks, with indexes that cannot disagree: tasks and flows are added and removed only here.
#[derive(Default)]
pub(crate) struct Tasks {
    tasks: BTreeMap<TaskId, Task>,
    requests: BTreeMap<(NodeId, u64), TaskId>,
    by_object: BTreeMap<ObjectId, BTreeSet<TaskId>>,
    /// Tasks that are not of an overlay: those that have weights, and choose among all who hold the object.
    apart: BTreeSet<TaskId>,
    apart_by_object: BTreeMap<ObjectId, BTreeSet<TaskId>>,
    by_flow: BTreeMap<FlowId, TaskId>,
    by_source: BTreeMap<NodeId, BTreeSet<FlowId>>,
    by_receiver: BTreeMap<NodeId, BTreeSet<TaskId>>,
    shares: Shares,
}

impl Tasks {
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }
    /// Whether a task of this peer finds room among `most`.
    pub(crate) fn has_room(&self, taker: &Taker, most: usize) -> bool {
        self.shares.has_room(taker, 1, most)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }
    pub(crate) fn get(&self, task: TaskId) -> Option<&Task> {
        self.tasks.get(&task)
    }
    pub(crate) fn get_mut(&mut self, task: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(&task)
    }
    pub(crate) fn of_request(&self, receiver: NodeId, request: u64) -> Option<TaskId> {
        self.requests.get(&(receiver, request)).copied()
    }
    pub(crate) fn of_flow(&self, flow: FlowId) -> Option<TaskId> {
        self.by_flow.get(&flow).copied()
    }
    /// The tasks that want an object.
    pub(crate) fn wanting(&self, object: ObjectId) -> impl Iterator<Item = TaskId> + '_ {
        self.by_object.get(&object).into_iter().flatten().copied()
    }
    /// The tasks that want an object and are not of an overlay.
    pub(crate) fn wanting_apart(&self, object: ObjectId) -> impl Iterator<Item = TaskId> + '_ {
        self.apart_by_object.get(&object).into_iter().flatten().copied()
    }
    /// The tasks that are not of an overlay.
    pub(crate) fn apart(&self) -> impl Iterator<Item = &Task> {
        self.apart.iter().filter_map(|task| self.tasks.get(task))
    }
    /// The tasks of a receiver.
    pub(crate) fn of_receiver(&self, receiver: NodeId) -> impl Iterator<Item = &Task> {
        self.by_receiver.get(&receiver).into_iter().flatten().filter_map(|task| self.tasks.get(task))
    }
    /// A task comes by an overlay from now on.
    pub(crate) fn deliver_by_overlay(&mut self, id: TaskId, delivery: Delivery) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.facts.delivery = delivery;
        self.apart.remove(&id);
        remove_from(&mut self.apart_by_object, &task.facts.object, &id);
    }
    /// The task by which a receiver fetches an object: the one of which it spoke last, since it may have been begun anew.
    pub(crate) fn fetching(&self, receiver: NodeId, object: ObjectId) -> Option<&Task> {
        self.of_receiver(receiver).filter(|task| task.facts.object == object).max_by_key(|task| task.heard)
    }
    /// The objects that some task wants that is not of an overlay.
    pub(crate) fn wanted_apart(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.apart_by_object.keys().copied()
    }
    /// The flows of a source.
    fn flows_of(&self, source: NodeId) -> impl Iterator<Item = FlowId> + '_ {
        self.by_source.get(&source).into_iter().flatten().copied()
    }
    /// The flows of a source, each with the task that it belongs to.
    pub(crate) fn of_source(&self, source: NodeId) -> Vec<(FlowId, TaskId)> {
        self.flows_of(source).filter_map(|flow| Some((flow, self.of_flow(flow)?))).collect()
    }
    /// Whether a source's flow is the group's of some task.
    pub(crate) fn is_group(&self, source: NodeId, group: FlowId) -> bool {
        let is_its = |flow: FlowId| self.flow(flow)?.facts.group.as_ref().map(|it| it.flow == group);
        self.flows_of(source).any(|flow| is_its(flow) == Some(true))
    }
    /// How many flows a source has.
    pub(crate) fn load(&self, source: NodeId) -> usize {
        self.by_source.get(&source).map_or(0, BTreeSet::len)
    }
    /// How many flows a receiver has, of all its tasks.
    pub(crate) fn flows_to(&self, receiver: NodeId) -> usize {
        self.of_receiver(receiver).map(|task| task.flows.len()).sum()
    }
    pub(crate) fn flow(&self, flow: FlowId) -> Option<&Flow> {
        let task = self.tasks.get(self.by_flow.get(&flow)?)?;
        task.flows.iter().find(|f| f.facts.flow == flow)
    }
    pub(crate) fn flow_mut(&mut self, flow: FlowId) -> Option<&mut Flow> {
        self.tasks.get_mut(self.by_flow.get(&flow)?)?.flow_mut(flow)
    }
    /// A flow id that no flow of a task has.
    pub(crate) fn unused_flow(&self, draws: &mut Draws) -> FlowId {
        draws.flow(|id| self.by_flow.contains_key(&id))
    }
    /// A task id that no task has.
    pub(crate) fn unused_task(&self, draws: &mut Draws) -> TaskId {
        draws.task(|id| self.tasks.contains_key(&id))
    }
    /// A flow of its own for a purpose that is no task's, with its key.
    pub(crate) fn secret(&self, draws: &mut Draws) -> FlowSecret {
        FlowSecret { flow: self.unused_flow(draws), key: draws.key() }
    }
    pub(crate) fn add(&mut self, task: Task) {
        assert!(task.flows.is_empty(), "flows are added one by one");
        let TaskRecord { task: id, receiver, request, object, .. } = task.facts;
        self.requests.insert((receiver, request), id);
        self.by_object.entry(object).or_default().insert(id);
        self.by_receiver.entry(receiver).or_default().insert(id);
        if !task.is_of_overlay() {
            self.apart.insert(id);
            self.apart_by_object.entry(object).or_default().insert(id);
        }
        self.shares.take(&task.taker, 1);
        let before = self.tasks.insert(id, task);
        assert!(before.is_none(), "a task id is used once");
    }
    /// Takes a task out; its flows must be gone.
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        assert!(task.flows.is_empty(), "flows end before their task");
        self.shares.give_back(&task.taker, 1);
        let TaskRecord { receiver, request, object, .. } = task.facts;
        self.requests.remove(&(receiver, request));
        self.apart.remove(&id);
        remove_from(&mut self.apart_by_object, &object, &id);
        remove_from(&mut self.by_object, &object, &id);
        remove_from(&mut self.by_receiver, &receiver, &id);
        Some(task)
    }
    pub(crate) fn add_flow(&mut self, id: TaskId, flow: Flow) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let before = self.by_flow.insert(flow.facts.flow, id);
        assert!(before.is_none(), "a flow id is used once");
        self.by_source.entry(flow.facts.node).or_default().insert(flow.facts.flow);
        task.classes_used.insert(flow.facts.index);
        task.flows.push(flow);
    }
    pub(crate) fn remove_flow(&mut self, flow: FlowId) -> Option<Flow> {
        let task = self.tasks.get_mut(&self.by_flow.remove(&flow)?)?;
        let place = task.flows.iter().position(|f| f.facts.flow == flow)?;
        let flow = task.flows.remove(place);
        if task.is_of_overlay() {
            let brought = flow.view.map_or(Bytes::ZERO, |view| view.bytes);
            *task.brought_before.entry(flow.facts.index).or_default() += brought;
        }
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
