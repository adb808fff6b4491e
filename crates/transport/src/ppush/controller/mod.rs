//! The controller of PPUSH: knows who holds what, sends sources to receivers, weighs their flows (PPUSH §III-A, §III-C).
//!
//! ```text
//!   node ------ Hello, Hold, Drop ------> registry ----.
//!   receiver -- Request ----------------> selection ---+--> tasks, flows -- Push, Stop, Pause, Resume --> sources
//!   receiver -- Feedback, Distrust, Fin ----------------'        |  ^------ Pushing, Stopped, Report --- sources
//!            <- Accepted, Flows, FinAck -------------------------'
//!                                       Algorithm 1 over the links --------- SetTheta ----------------> sources
//! ```
//!
//! It is never on the data path: while it is away flows go on as they are. What must outlast it is a few facts per task
//! ([`ControllerEvent::Persist`]); a restarted controller is told them ([`ControllerCommand::Restore`], all of them
//! before the first packet) and learns the rest from what nodes say by themselves.
//!
//! Any message may be lost, come twice or late. An order is said until it is confirmed: `Push` until `Pushing`, `Stop`
//! until `Stopped`, the list of flows until a `Feedback` echoes its version, a weight until a `Report` shows it. What
//! nobody confirms (`Pause`, `Resume`) is said again while the symptom lasts, and a flow that a source reports and
//! nobody knows is stopped. A receiver need not say `Hello`: its `Request` tells enough. A source must.
//!
//! Differs from the paper: a weight is also planned anew in a fixed interval, not only on arrivals and completions;
//! flows of a silent receiver do not take part in the plan; capacities are measured (architecture decision 17).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_units::{FlowId, NodeId, ObjectId, PathId, TaskId, Time};
use headwater_wire::{Body, Control, Datagram, FlowReport, FlowView, NodeInfo, Outcome, Refusal, Request};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

pub use self::config::{ControllerConfig, ControllerStats, GroupRange};
pub use self::network::{HostAddresses, NetworkError, NetworkSpec, SignallingWay};
pub use self::view::{CastView, ControllerView, FlowStanding, FlowStatus, NodeView, ObjectView, TaskView};

use self::casts::Casts;
use self::circles::Overlays;
use self::network::Network;
use self::registry::Registry;
use self::selection::Place;
use self::tasks::{FlowState, Pace, Retry, Tasks};
use self::timers::{Subject, Timers};
use self::weights::Planner;
use crate::{
    Command, ControllerCommand, ControllerEvent, Endpoint, Event, Input, Output, Packet, TaskRecord,
};

mod alone;
mod casting;
mod casts;
mod circles;
mod config;
mod crowds;
mod network;
mod overlay;
mod planting;
mod racks;
mod registry;
mod selection;
mod starts;
mod tasks;
mod timers;
mod upkeep;
mod view;
mod weights;

/// A weight is as told if it differs by no more than this, relatively; it travels as an exact number.
const SAME_THETA: f64 = 1e-9;
/// How fast a flow's round-trip time follows its reports, which are smoothed themselves: 1/4.
const RTT_GAIN: f64 = 0.25;

/// The manager of sources and the front end of deliveries.
pub struct Controller {
    config: ControllerConfig,
    /// Ids and keys; nothing else is random.
    rng: ChaCha20Rng,
    registry: Registry,
    tasks: Tasks,
    casts: Casts,
    overlays: Overlays,
    /// Objects of which several gets are under way, and since when.
    crowds: BTreeMap<ObjectId, Time>,
    /// If it is known.
    network: Option<Network>,
    /// Flows that are over here and may not be at their sources.
    ending: BTreeMap<(NodeId, FlowId), Ending>,
    /// Requests whose receivers have said that they are through: in order, and by key.
    finished: VecDeque<(NodeId, u64)>,
    finished_set: BTreeSet<(NodeId, u64)>,
    planner: Planner,
    timers: Timers,
    /// Tasks to look after before the next output.
    touched: BTreeSet<TaskId>,
    /// Tasks whose facts changed, to be kept and told before the next output.
    changed: BTreeSet<TaskId>,
    /// Weights are to be planned before the next output, or as soon as the last plan is old enough.
    plan_due: bool,
    /// When they were planned last.
    planned: Option<Time>,
    out: VecDeque<Output>,
    stats: ControllerStats,
}

/// A flow that is being stopped.
struct Ending {
    incarnation: u64,
    stop: Retry,
    /// Given up then.
    until: Time,
}

impl Controller {
    /// A controller that knows nobody. `seed` must be new at every start: flow ids and keys come from it.
    ///
    /// # Panics
    /// If a setting makes no sense.
    pub fn new(config: ControllerConfig, seed: [u8; 32]) -> Self {
        config.assert_usable();
        let network = config.network.as_ref().and_then(|spec| Network::new(spec).ok());
        Controller {
            network,
            config,
            rng: ChaCha20Rng::from_seed(seed),
            registry: Registry::default(),
            tasks: Tasks::default(),
            casts: Casts::default(),
            overlays: Overlays::default(),
            crowds: BTreeMap::new(),
            ending: BTreeMap::new(),
            finished: VecDeque::new(),
            finished_set: BTreeSet::new(),
            planner: Planner::default(),
            timers: Timers::default(),
            touched: BTreeSet::new(),
            changed: BTreeSet::new(),
            plan_due: false,
            planned: None,
            out: VecDeque::new(),
            stats: ControllerStats::default(),
        }
    }

    /// Its settings.
    pub fn config(&self) -> &ControllerConfig {
        &self.config
    }

    /// Tasks that are not over.
    pub fn running_tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Its counters.
    pub fn stats(&self) -> &ControllerStats {
        &self.stats
    }

    fn control(&mut self, now: Time, path: PathId, control: Control) {
        match control {
            Control::Hello(info) => self.hello(now, path, info),
            Control::Request(request) => self.request(now, path, request),
            Control::Feedback { task, first_undecoded, needed, flows_version, flows, held_up } => {
                if self.hear(now, path, task) {
                    let task = self.tasks.get_mut(task).expect("heard of just now");
                    (task.first_undecoded, task.needed, task.held_up) = (first_undecoded, needed, held_up);
                    let task = task.id;
                    self.feedback(now, task, flows_version, &flows);
                } else if self.tasks.get(task).is_none() {
                    self.send(path, Control::UnknownTask { task });
                }
            }
            Control::Distrust { task, node } => self.distrust(now, path, task, node),
            Control::Fin { task, outcome } => self.fin(now, path, task, outcome),
            Control::Cast(cast) => self.cast(now, path, cast),
            Control::StopCast { cast } => self.stop_cast(now, path, cast),
            // The rest comes from sources, which must have said who they are.
            Control::Hold(_)
            | Control::Drop { .. }
            | Control::Pushing { .. }
            | Control::PushRefused { .. }
            | Control::Stopped { .. }
            | Control::Keeps
            | Control::Fetched(_)
            | Control::GroupProbed { .. }
            | Control::GroupSent { .. }
            | Control::TreeReady { .. }
            | Control::Silent { .. }
            | Control::Signalled(_)
            | Control::Report { .. } => match self.registry.node_at(path) {
                Some(node) => self.source(now, node, control),
                None => self.stats.strangers += 1,
            },
            _ => self.stats.unexpected += 1,
        }
    }

    fn source(&mut self, now: Time, node: NodeId, control: Control) {
        match control {
            Control::Hold(holding) => {
                let object = holding.object;
                match self.registry.hold(node, holding, &self.config) {
                    true => self.touched.extend(self.tasks.wanting(object)),
                    false => self.stats.holdings_refused += 1,
                }
            }
            Control::Drop { object } => self.drop_object(now, node, object),
            Control::Keeps => self.registry.keeps(node),
            Control::Fetched(fetched) => self.fetched(now, node, fetched),
            Control::GroupProbed { asked, heard } => self.group_probed(now, node, asked, &heard),
            Control::GroupSent { flow, sent } => self.group_sent(now, node, flow, sent),
            Control::TreeReady { tree, version } => self.tree_ready(now, node, tree, version),
            Control::Silent { tree, neighbours, since } => self.silent(now, node, tree, &neighbours, since),
            Control::Signalled(answer) => self.signalled(now, node, &answer),
            Control::Pushing { flow } if self.casts.of_tree(node, flow).is_some() => {
                self.tree_pushing(now, node, flow);
            }
            Control::PushRefused { flow, .. } | Control::Stopped { flow }
                if self.casts.of_tree(node, flow).is_some() =>
            {
                self.forget_ending(node, flow);
                self.tree_over(now, node, flow);
            }
            // A group's flow belongs to no task.
            Control::Pushing { flow } if self.casts.serves(node, flow) => self.group_opened(now, flow),
            Control::PushRefused { flow, .. } | Control::Stopped { flow }
                if self.casts.serves(node, flow) =>
            {
                self.forget_ending(node, flow);
                self.group_over(now, flow);
            }
            Control::Pushing { flow } => {
                if self.is_flow_of(now, node, flow) {
                    self.confirm(flow);
                }
            }
            Control::PushRefused { flow, reason } => self.push_refused(now, node, flow, reason),
            Control::Stopped { flow } => self.stopped(now, node, flow),
            Control::Report { flows } => flows.into_iter().for_each(|f| self.report(now, node, f)),
            _ => unreachable!("only a source's messages are handed on"),
        }
    }

    fn hello(&mut self, now: Time, path: PathId, info: NodeInfo) {
        let node = info.node;
        let tasks = &self.tasks;
        let busy = |node| tasks.load(node) > 0;
        let Some(greeting) = self.registry.greet(now, path, info.clone(), &self.config, busy) else {
            self.stats.nodes_refused += 1;
            return;
        };
        if let Some(other) = greeting.displaced {
            self.node_down(now, other);
        }
        if greeting.changed {
            self.planner.forget_topology();
        }
        let stops: Vec<FlowId> = self.endings_of(node).collect();
        for flow in stops {
            let ending = self.ending.get_mut(&(node, flow)).expect("listed just now");
            if ending.incarnation != info.incarnation {
                self.forget_ending(node, flow);
            } else if greeting.new_path {
                ending.stop = Retry::at(now, self.config.retry_first);
                self.tick_ending(now, node, flow);
            }
        }
        let flows: Vec<FlowId> = self.tasks.flows_of(node).collect();
        for flow in flows {
            let id = self.tasks.of_flow(flow).expect("flows and sources agree");
            self.touched.insert(id);
            let task = self.tasks.get_mut(id).expect("a flow belongs to a task");
            let entry = task.flows.iter_mut().find(|f| f.facts.flow == flow).expect("a task lists its flows");
            if entry.facts.incarnation != info.incarnation {
                self.close_flow(now, flow, false);
                self.changed.insert(id);
                continue;
            }
            if entry.at != info.data {
                entry.at.clone_from(&info.data);
                self.changed.insert(id);
            }
            let away = matches!(entry.state, FlowState::Away { .. });
            let open = matches!(entry.state, FlowState::Offered { .. } | FlowState::Pushing);
            if away || (open && greeting.new_path) {
                entry.state = offered(now, &self.config);
                // What was said of its pace may be lost with the old path.
                let anew = Retry::at(now, self.config.retry_first);
                match &mut task.pace {
                    Pace::Paused { said } => *said = anew,
                    pace => *pace = Pace::Resuming { said: anew, times: 2 },
                }
            }
        }
        if greeting.new_path {
            let held = self.tasks.wanted().filter(|object| self.registry.holds(node, *object));
            self.touched.extend(held.flat_map(|object| self.tasks.wanting(object)));
        }
        if greeting.new_path || greeting.changed {
            self.event(ControllerEvent::NodeUp(Box::new(info)));
        }
    }

    fn path_lost(&mut self, now: Time, path: PathId) {
        for task in self.tasks.iter_mut().filter(|task| task.path == Some(path)) {
            task.path = None;
        }
        if let Some(node) = self.registry.lose(now, path) {
            self.node_down(now, node);
        }
    }

    /// Nothing can be said to a node any more. Its flows may go on, but others are taken instead where there are any.
    fn node_down(&mut self, now: Time, node: NodeId) {
        let flows: Vec<FlowId> = self.tasks.flows_of(node).collect();
        for flow in flows {
            self.touched.extend(self.tasks.of_flow(flow));
            let flow = self.tasks.flow_mut(flow).expect("flows and sources agree");
            if matches!(flow.state, FlowState::Offered { .. } | FlowState::Pushing) {
                flow.state = FlowState::Away { replace_after: now };
            }
        }
        let stops: Vec<FlowId> = self.endings_of(node).collect();
        stops.into_iter().for_each(|flow| self.tick_ending(now, node, flow));
        self.event(ControllerEvent::NodeDown { node });
    }

    fn drop_object(&mut self, now: Time, node: NodeId, object: ObjectId) {
        self.registry.unhold(node, object);
        let flows: Vec<FlowId> = self.tasks.flows_of(node).collect();
        for flow in flows {
            let id = self.tasks.of_flow(flow).expect("flows and sources agree");
            if self.tasks.get(id).is_some_and(|task| task.object == object) {
                self.close_flow(now, flow, true);
                self.changed.insert(id);
            }
        }
    }

    fn request(&mut self, now: Time, path: PathId, request: Request) {
        let key = (request.receiver, request.request);
        if let Some(id) = self.tasks.of_request(key.0, key.1) {
            if self.hear(now, path, id) {
                self.accept(path, id);
            }
            return;
        }
        if !self.may_speak_for(path, request.receiver) {
            self.stats.strangers += 1;
            return;
        }
        if self.finished_set.contains(&key) {
            self.stats.requests_late += 1;
            return;
        }
        if self.casts.of_request(key).is_some() {
            return self.asked_for_cast(now, path, request);
        }
        let (request, place) = self.joins(request);
        if let Some(id) = self.answer(now, path, &request, place)
            && let Some(task) = self.tasks.get(id)
        {
            self.watch_crowd(now, task.object);
        }
    }

    /// Makes a task of a request and says so, or why not.
    fn answer(&mut self, now: Time, path: PathId, request: &Request, place: Option<Place>) -> Option<TaskId> {
        match self.begin(now, path, request, place) {
            Ok(id) => {
                self.stats.tasks_accepted += 1;
                self.persist(id);
                self.accept(path, id);
                self.touched.insert(id);
                self.plan_due = true;
                Some(id)
            }
            Err(reason) => {
                self.stats.requests_refused += 1;
                self.send(path, Control::Refused { request: request.request, reason });
                None
            }
        }
    }

    fn accept(&mut self, path: PathId, id: TaskId) {
        let task = self.tasks.get(id).expect("accepted tasks are known");
        let accepted = Control::Accepted {
            request: task.request,
            task: id,
            object: task.object,
            bytes: task.bytes,
            symbol_size: task.symbol_size,
            feedback_every: self.config.feedback_every,
            version: task.version,
            flows: self.grants(task),
            delivery: task.delivery,
        };
        self.send(path, accepted);
    }

    /// The receiver of a task says something. False if there is no such task or the sender is somebody else.
    fn hear(&mut self, now: Time, path: PathId, id: TaskId) -> bool {
        let Some(task) = self.tasks.get(id) else { return false };
        if !self.may_speak_for(path, task.receiver) {
            self.stats.strangers += 1;
            return false;
        }
        let task = self.tasks.get_mut(id).expect("looked up just now");
        if let (true, Some(list)) = (task.path != Some(path), &mut task.list) {
            *list = Retry::at(now, self.config.retry_first);
        }
        (task.heard, task.path) = (now, Some(path));
        if task.is_paused() {
            task.pace = Pace::Resuming { said: Retry::at(now, self.config.retry_first), times: 4 };
            self.plan_due = true;
        }
        self.touched.insert(id);
        true
    }

    fn feedback(&mut self, now: Time, id: TaskId, version: u32, views: &[FlowView]) {
        let config = &self.config;
        let task = self.tasks.get_mut(id).expect("heard of just now");
        if version == task.version {
            task.list = None;
        } else if version > task.version {
            // The record that we were restored from was older than what the receiver had been told.
            task.version = version;
            self.changed.insert(id);
        } else if task.list.is_none() {
            task.list = Some(Retry::at(now, config.retry_first));
        }
        task.anew = task.anew.filter(|anew| version < *anew);
        for view in views {
            let Some(flow) = task.flows.iter_mut().find(|f| f.facts.flow == view.flow) else { continue };
            let grown = flow.view.map_or(0, |before| before.bytes.get()) < view.bytes.get();
            flow.view = Some(*view);
            if grown && matches!(flow.state, FlowState::Offered { .. }) && flow.pushed {
                flow.state = FlowState::Pushing;
            }
        }
    }

    fn distrust(&mut self, now: Time, path: PathId, id: TaskId, node: NodeId) {
        if !self.hear(now, path, id) {
            return;
        }
        let task = self.tasks.get_mut(id).expect("heard of just now");
        if task.distrusted.len() >= self.config.max_distrusted || !task.distrusted.insert(node) {
            return;
        }
        let flows: Vec<FlowId> =
            task.flows.iter().filter(|f| f.facts.node == node).map(|f| f.facts.flow).collect();
        flows.into_iter().for_each(|flow| self.close_flow(now, flow, true));
        self.registry.distrust(node);
        self.stats.distrusts += 1;
        self.changed.insert(id);
    }

    fn fin(&mut self, now: Time, path: PathId, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get(id) else {
            self.send(path, Control::FinAck { task: id });
            return;
        };
        let key = (task.receiver, task.request);
        if !self.hear(now, path, id) {
            return;
        }
        self.send(path, Control::FinAck { task: id });
        self.end_task(now, id, outcome);
        if self.config.max_finished > 0 && self.finished_set.insert(key) {
            self.finished.push_back(key);
            if self.finished.len() > self.config.max_finished {
                let oldest = self.finished.pop_front().expect("it is longer than its bound");
                self.finished_set.remove(&oldest);
            }
        }
    }

    fn confirm(&mut self, flow: FlowId) {
        self.touched.extend(self.tasks.of_flow(flow));
        let flow = self.tasks.flow_mut(flow).expect("checked to be the node's");
        if let FlowState::Offered { .. } = flow.state {
            flow.state = FlowState::Pushing;
        }
    }

    fn push_refused(&mut self, now: Time, node: NodeId, flow: FlowId, reason: Refusal) {
        self.forget_ending(node, flow);
        let Some(id) = self.tasks.of_flow(flow) else { return };
        if self.tasks.flow(flow).is_none_or(|f| f.facts.node != node) {
            self.stats.strangers += 1;
            return;
        }
        self.stats.pushes_refused += 1;
        let task = self.tasks.get_mut(id).expect("a flow belongs to a task");
        task.barred.insert(node, now + self.config.bar);
        let object = task.object;
        if matches!(reason, Refusal::Gone | Refusal::UnknownObject) {
            self.registry.unhold(node, object);
        }
        self.close_flow(now, flow, false);
        self.changed.insert(id);
    }

    fn stopped(&mut self, now: Time, node: NodeId, flow: FlowId) {
        self.forget_ending(node, flow);
        let Some(entry) = self.tasks.flow_mut(flow) else { return };
        if entry.facts.node != node {
            self.stats.strangers += 1;
        } else if !matches!(entry.state, FlowState::Over { .. }) {
            entry.state = FlowState::Over { replace_after: now + self.config.silent_limit };
            self.touched.extend(self.tasks.of_flow(flow));
        }
    }

    fn report(&mut self, now: Time, node: NodeId, report: FlowReport) {
        if !self.is_flow_of(now, node, report.flow) {
            return;
        }
        self.confirm(report.flow);
        let flow = self.tasks.flow_mut(report.flow).expect("checked to be the node's");
        if let Some(rtt) = report.rtt {
            flow.rtt = Some(flow.rtt.map_or(rtt, |old| old.mul_f64(1.0 - RTT_GAIN) + rtt.mul_f64(RTT_GAIN)));
        }
        let misheard = (report.theta.get() - flow.theta.get()).abs() > SAME_THETA * flow.theta.get();
        let again = misheard && flow.pushed && now >= flow.told + self.config.retry_first;
        let (id, theta) = (report.flow, flow.theta);
        flow.report = Some(report);
        if again {
            flow.told = now;
            self.send_to(node, Control::SetTheta { flow: id, theta });
        }
    }

    /// Whether a flow is known and this node's. One that nobody knows any more is stopped.
    fn is_flow_of(&mut self, now: Time, node: NodeId, flow: FlowId) -> bool {
        match self.tasks.flow(flow) {
            Some(known) if known.facts.node == node => true,
            Some(_) => {
                self.stats.strangers += 1;
                false
            }
            None => {
                let incarnation = self.registry.node(node).expect("it has a path").info.incarnation;
                if !self.ending.contains_key(&(node, flow)) {
                    self.stop_flow(now, node, flow, incarnation);
                }
                false
            }
        }
    }

    /// Whether what comes over a path may be from this receiver: always, unless another node is known to be there.
    fn may_speak_for(&self, path: PathId, receiver: NodeId) -> bool {
        self.registry.node_at(path).is_none_or(|node| node == receiver)
    }

    fn restore(&mut self, now: Time, record: TaskRecord) {
        let (task, duplicate) = (record.task, self.tasks.get(record.task).is_some());
        if duplicate {
            return;
        }
        if self.tasks.len() >= self.config.max_tasks {
            self.stats.tasks_failed += 1;
            self.event(ControllerEvent::Forget { task, outcome: Outcome::Failed });
            return;
        }
        self.stats.tasks_restored += 1;
        self.adopt(now, record);
        self.touched.insert(task);
        self.plan_due = true;
    }

    fn persist(&mut self, id: TaskId) {
        let task = self.tasks.get(id).expect("only running tasks are kept");
        if !task.trees.is_empty() {
            // Its trees do not outlast us.
            return;
        }
        let record = task.record();
        self.event(ControllerEvent::Persist(Box::new(record)));
    }

    fn event(&mut self, event: ControllerEvent) {
        self.out.push_back(Output::Event(Event::Controller(event)));
    }

    /// Says something to a node; nothing if it is away.
    fn send_to(&mut self, node: NodeId, control: Control) {
        if let Some(path) = self.registry.path_of(node) {
            self.send(path, control);
        }
    }

    fn send(&mut self, path: PathId, control: Control) {
        self.out.push_back(Output::Transmit(Packet::control(path, control)));
    }
}

/// The state of a flow whose order to push is said from now on.
fn offered(now: Time, config: &ControllerConfig) -> FlowState {
    FlowState::Offered { since: now, push: Retry::at(now, config.retry_first) }
}

impl Endpoint for Controller {
    fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Packet(Packet {
                path, datagram: Datagram { body: Body::Control(control), .. }, ..
            }) => {
                self.control(now, path, *control);
            }
            Input::Command(Command::Controller(ControllerCommand::PathLost { path })) => {
                self.path_lost(now, path);
            }
            Input::Command(Command::Controller(ControllerCommand::Restore(record))) => {
                self.restore(now, *record);
            }
            Input::Packet(_) | Input::Command(_) => self.stats.unexpected += 1,
        }
        self.settle(now);
    }

    fn poll(&mut self, now: Time) -> Output {
        loop {
            if let Some(output) = self.out.pop_front() {
                return output;
            }
            match self.timers.take_due(now) {
                None => return Output::Wake(self.timers.next()),
                Some(Subject::Plan) => self.plan_due = true,
                Some(Subject::Task(task)) => {
                    self.touched.insert(task);
                }
                Some(Subject::Ending(node, flow)) => self.tick_ending(now, node, flow),
                Some(Subject::Cast(cast)) => self.tick_cast(now, cast),
                Some(Subject::Crowd(object)) => self.tick_crowd(now, object),
            }
            self.settle(now);
        }
    }
}
