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
//! before the first packet) and learns the rest from what nodes say by themselves. What is asked for before they have said it waits
//! ([`ControllerCommand::Returned`]).
//!
//! Any message may be lost, come twice or late. An order is said until it is confirmed: `Push` until `Pushing`, `Stop`
//! until `Stopped`, the list of flows until a `Feedback` echoes its version, a weight until a `Report` shows it. What
//! nobody confirms (`Pause`, `Resume`) is said again while the symptom lasts, and a flow that a source reports and
//! nobody knows is stopped. A receiver need not say `Hello`: its `Request` tells enough. A source must.
//!
//! Differs from the paper: a weight is also planned anew in a fixed interval, not only on arrivals and completions;
//! flows of a silent receiver do not take part in the plan; capacities are measured (docs/decisions/0031).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_units::{FlowId, NodeId, ObjectId, PathId, TaskId, Time};
use headwater_wire::{Body, Control, Datagram, Outcome, ToController, ToReceiver};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

pub use self::commands::{
    CastBegun, ControllerCommand, ControllerEvent, NameRecord, TaskFlow, TaskGroup, TaskRecord,
};
pub use self::config::{ControllerConfig, ControllerStats, GroupRange};
pub use self::network::{HostAddresses, NetworkError, NetworkSpec, SignallingWay};
pub use self::view::{CastView, ControllerView, FlowStanding, FlowStatus, NodeView, ObjectView, TaskView};

use self::casts::Casts;
use self::network::Network;
use self::overlay_membership::Overlays;
use self::recovery::Recovery;
use self::registry::Registry;
use self::tasks::{FlowState, Retry, Tasks};
use self::timers::{Subject, Timers};
use self::weights::Planner;

mod casting;
mod casts;
mod commands;
mod config;
mod fallback;
mod naming;
mod network;
mod nodes;
mod overlay;
mod overlay_membership;
mod racks;
mod recovery;
mod registry;
mod reports;
mod requests;
mod selection;
mod spoiled;
mod starts;
mod swarm_detection;
mod tasks;
mod timers;
mod tree_installation;
mod upkeep;
mod view;
mod weights;

/// The manager of sources and the front end of deliveries.
pub struct Controller {
    config: ControllerConfig,
    /// Ids and keys; nothing else is random.
    rng: ChaCha20Rng,
    /// Whose key was proved by each path.
    links: BTreeMap<PathId, NodeId>,
    registry: Registry,
    tasks: Tasks,
    casts: Casts,
    overlays: Overlays,
    /// Objects of which several gets are under way, and since when.
    swarms: BTreeMap<ObjectId, Time>,
    /// If it is known.
    network: Option<Network>,
    /// Flows that are over here and may not be at their sources.
    ending: BTreeMap<(NodeId, FlowId), Ending>,
    /// Requests whose receivers have said that they are through: in order, and by key.
    finished: VecDeque<(NodeId, u64)>,
    finished_set: BTreeSet<(NodeId, u64)>,
    recovery: Recovery,
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
    out: VecDeque<Output<ControllerEvent>>,
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
            links: BTreeMap::new(),
            registry: Registry::default(),
            tasks: Tasks::default(),
            casts: Casts::default(),
            overlays: Overlays::default(),
            swarms: BTreeMap::new(),
            ending: BTreeMap::new(),
            finished: VecDeque::new(),
            finished_set: BTreeSet::new(),
            recovery: Recovery::default(),
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

    fn control(&mut self, now: Time, path: PathId, control: ToController) {
        match control {
            ToController::Hello(info) => match self.is_from(path, info.node) {
                true => self.hello(now, path, info),
                false => self.stats.strangers += 1,
            },
            ToController::Request(request) => self.request(now, path, request),
            ToController::Feedback { task, first_undecoded, needed, flows_version, flows, held_up } => {
                if self.hear(now, path, task) {
                    let task = self.tasks.get_mut(task).expect("heard of just now");
                    (task.first_undecoded, task.needed, task.held_up) = (first_undecoded, needed, held_up);
                    let task = task.id;
                    self.feedback(now, task, flows_version, &flows);
                } else if self.tasks.get(task).is_none() {
                    self.send(path, ToReceiver::UnknownTask { task });
                }
            }
            ToController::Distrust { task, node } => self.distrust(now, path, task, node),
            ToController::Fin { task, outcome } => self.fin(now, path, task, outcome),
            ToController::Cast(cast) => self.cast(now, path, cast),
            ToController::StopCast { cast } => self.stop_cast(now, path, cast),
            ToController::Claim(claim) => match self.registry.node_at(path) {
                Some(node) => self.claim(now, path, node, claim),
                None => self.stats.strangers += 1,
            },
            // The rest comes from sources, which must have said who they are.
            ToController::Hold(_)
            | ToController::Drop { .. }
            | ToController::Spoiled { .. }
            | ToController::Pushing { .. }
            | ToController::PushRefused { .. }
            | ToController::Stopped { .. }
            | ToController::Keeps
            | ToController::Leaving
            | ToController::Fetched(_)
            | ToController::GroupProbed { .. }
            | ToController::GroupSent { .. }
            | ToController::TreeReady { .. }
            | ToController::Silent { .. }
            | ToController::Signalled(_)
            | ToController::Named(_)
            | ToController::Unname { .. }
            | ToController::Report { .. } => match self.registry.node_at(path) {
                Some(node) => self.source(now, node, control),
                None => self.stats.strangers += 1,
            },
        }
    }

    fn source(&mut self, now: Time, node: NodeId, control: ToController) {
        match control {
            ToController::Hold(holding) => {
                let object = holding.object;
                match self.registry.hold(node, holding, &self.config) {
                    true => {
                        self.touched.extend(self.tasks.wanting(object));
                        self.forget_names();
                        self.answer_early(now);
                    }
                    false => self.stats.holdings_refused += 1,
                }
            }
            ToController::Drop { object } => self.drop_object(now, node, object),
            ToController::Named(naming) => self.named(now, node, naming),
            ToController::Unname { object, name } => self.unname(node, object, &name),
            ToController::Spoiled { object, how } => self.spoil(now, node, object, how),
            ToController::Keeps => self.registry.keeps(node),
            ToController::Leaving => self.leaving(node),
            ToController::Fetched(fetched) => self.fetched(now, node, fetched),
            ToController::GroupProbed { asked, heard } => self.group_probed(now, node, asked, &heard),
            ToController::GroupSent { flow, sent } => self.group_sent(now, node, flow, sent),
            ToController::TreeReady { tree, version } => self.tree_ready(now, node, tree, version),
            ToController::Silent { tree, neighbours, since } => {
                self.silent(now, node, tree, &neighbours, since)
            }
            ToController::Signalled(answer) => self.signalled(now, node, &answer),
            ToController::Pushing { flow } if self.casts.of_tree(node, flow).is_some() => {
                self.tree_pushing(now, node, flow);
            }
            ToController::PushRefused { flow, .. } | ToController::Stopped { flow }
                if self.casts.of_tree(node, flow).is_some() =>
            {
                self.forget_ending(node, flow);
                self.tree_over(now, node, flow);
            }
            // A group's flow belongs to no task.
            ToController::Pushing { flow } if self.casts.serves(node, flow) => self.group_opened(now, flow),
            ToController::PushRefused { flow, .. } | ToController::Stopped { flow }
                if self.casts.serves(node, flow) =>
            {
                self.forget_ending(node, flow);
                self.group_over(now, flow);
            }
            ToController::Pushing { flow } => {
                if self.is_flow_of(now, node, flow) {
                    self.confirm(flow);
                }
            }
            ToController::PushRefused { flow, reason } => self.push_refused(now, node, flow, reason),
            ToController::Stopped { flow } => self.stopped(now, node, flow),
            ToController::Report { flows } => flows.into_iter().for_each(|f| self.report(now, node, f)),
            _ => unreachable!("only a source's messages are handed on"),
        }
    }

    /// Whether what comes over a path is from this node.
    fn is_from(&self, path: PathId, node: NodeId) -> bool {
        self.links.get(&path) == Some(&node)
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
        self.out.push_back(Output::Event(event));
    }

    /// Says something to a node; nothing if it is away.
    fn send_to(&mut self, node: NodeId, control: impl Into<Control>) {
        if let Some(path) = self.registry.path_of(node) {
            self.send(path, control);
        }
    }

    fn send(&mut self, path: PathId, control: impl Into<Control>) {
        self.out.push_back(Output::Transmit(Packet::control(path, control)));
    }
}

/// The state of a flow whose order to push is said from now on.
fn offered(now: Time, config: &ControllerConfig) -> FlowState {
    FlowState::Offered { since: now, push: Retry::at(now, config.retry_first) }
}

impl Endpoint for Controller {
    type Command = ControllerCommand;
    type Event = ControllerEvent;

    fn handle(&mut self, now: Time, input: Input<ControllerCommand>) {
        match input {
            Input::Packet(Packet {
                path, datagram: Datagram { body: Body::Control(control), .. }, ..
            }) => match *control {
                Control::Controller(control) => self.control(now, path, control),
                Control::Node(_) | Control::Source(_) | Control::Receiver(_) => self.stats.unexpected += 1,
            },
            Input::Command(ControllerCommand::PathOpened { path, node }) => {
                self.links.insert(path, node);
                return;
            }
            Input::Command(ControllerCommand::PathLost { path }) => {
                self.path_lost(now, path);
                self.links.remove(&path);
            }
            Input::Command(ControllerCommand::PathLeft { path }) => {
                self.path_left(now, path);
                self.links.remove(&path);
            }
            Input::Command(ControllerCommand::Restore(record)) => {
                self.restore(now, *record);
            }
            Input::Command(ControllerCommand::RestoreName(record)) => {
                self.restore_name(*record);
            }
            Input::Command(ControllerCommand::Returned) => self.returned(now),
            Input::Command(ControllerCommand::ForgetNode { node }) => {
                self.forget_node(now, node);
            }
            Input::Packet(_) => self.stats.unexpected += 1,
        }
        self.settle(now);
    }

    fn poll(&mut self, now: Time) -> Output<ControllerEvent> {
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
                Some(Subject::Swarm(object)) => self.tick_swarm(now, object),
                Some(Subject::Recovery) => self.end_recovery(now),
            }
            self.settle(now);
        }
    }
}
