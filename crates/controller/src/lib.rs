//! The controller of PPUSH: knows who holds what, sends sources to receivers, weighs their flows (PPUSH §III-A, §III-C).
//!
//! ```text
//!   node ------ Hello, Hold, Drop ------> catalog -----.
//!   receiver -- Request ----------------> selection ---+--> tasks, flows -- Push, Stop, Pause, Resume --> sources
//!   receiver -- Feedback, Distrust, Fin ----------------'        |  ^------ Pushing, Stopped, Report --- sources
//!            <- Accepted, Flows, FinAck -------------------------'
//!                                       Algorithm 1 over the links --------- SetTheta ----------------> sources
//! ```
//!
//! It is never on the data path: while it is away flows go on as they are. A few facts per task survive a restart
//! ([`ControllerEvent::Persist`]). A restarted controller is told them ([`ControllerCommand::Restore`], all of them
//! before the first packet) and learns the rest from messages of nodes. Requests that come before these wait
//! ([`ControllerCommand::Returned`]).
//!
//! Any message may be lost, doubled or late. An order is repeated until it is confirmed: `Push` until `Pushing`, `Stop`
//! until `Stopped`, the list of flows until a `Feedback` echoes its version, a weight until a `Report` shows it. Orders
//! without a confirmation (`Pause`, `Resume`) are repeated while the symptom lasts. A reported flow that the controller
//! does not know is stopped. A receiver need not send `Hello`: its `Request` tells enough. A source must.
//!
//! It is made of parts. Each owns its state, gets what it needs for one input (`Turn`), and returns what it wants done
//! (`Effect`). A part may use those that are named in its line, and what these use:
//!
//! | Part | Owns | Uses |
//! |---|---|---|
//! | `catalog` | nodes, what they hold or held, what names stand for | `turn` |
//! | `tasks` | the running tasks and their flows, with every index of them | `turn` |
//! | `overlay_membership` | the trees of overlays: who passes on what of which object | `striping` |
//! | `striping` | nothing; deals receivers to stripes | `racks` |
//! | `selection` | nothing; chooses the sources of a task, and how its flows begin | `catalog`, `tasks`, `overlay_membership` |
//! | `endings` | flows that are being stopped | `catalog`, `turn` |
//! | `deliveries` | tasks, endings, overlays, finished requests; sends messages to receivers and sources | `selection`, `endings` |
//! | `weights` | the network as flows measure it, and when weights were planned | `catalog`, `tasks` |
//! | `overlay` | nothing; places receivers in overlays | `selection` |
//! | `swarm_detection` | objects with several running gets | `overlay`, `deliveries` |
//! | `tree_installation` | the trees of one cast, the orders about them, signals, repairs | `network`, `catalog`, `tasks` |
//! | `casts` | the running casts, each with its route and what that needs | `tree_installation`, `swarm_detection` |
//! | `recovery` | requests that came too early after a restart | `catalog`, `turn` |
//! | `view` | nothing; makes a snapshot of all of this | `casts` |
//!
//! This module dispatches messages by sender; `nodes` tells all parts of a node that comes or goes; `settle` ends every input and
//! carries out the effects.
//!
//! Differs from the paper: a weight is also planned anew in a fixed interval, not only on arrivals and completions;
//! flows of a silent receiver do not take part in the plan; capacities are measured (docs/decisions/0031).

use std::collections::VecDeque;

use headwater_machine::{Endpoint, Input, Output, Packet, Taker};
use headwater_units::{NodeId, ObjectId, PathId, Time};
use headwater_wire::{
    Body, Cast, Claim, ClaimRule, Control, Datagram, Naming, NodeInfo, Outcome, Refusal, Request, Spoiled,
    ToController, ToNode, ToReceiver, Urgency, WhyUnnamed,
};

pub use self::coflows::CoflowView;
pub use self::commands::{
    CastBegun, ControllerCommand, ControllerEvent, NameRecord, StandingRecord, TaskFlow, TaskGroup,
    TaskRecord,
};
pub use self::config::{CoflowPolicy, ControllerConfig, ControllerStats, GroupRange};
pub use self::network::{HostAddresses, NetworkError, NetworkSpec, SignallingMode};
pub use self::nodes::{NotForgotten, Origin};
pub use self::view::{CastView, ControllerView, FlowStanding, FlowStatus, NodeView, ObjectView, TaskView};

use self::casts::{Below, Casts};
use self::catalog::{Catalog, Recorded};
use self::coflows::Coflows;
use self::deliveries::{Deliveries, Progress};
use self::network::Network;
use self::recovery::Recovery;
use self::standing_casts::StandingCasts;
use self::swarm_detection::Swarms;
use self::timers::{Subject, Timers};
use self::turn::{Draws, Effect, Turn};
use self::weights::Planner;

mod casts;
mod catalog;
mod coflows;
mod commands;
mod config;
mod deliveries;
mod endings;
mod mending;
mod network;
mod nodes;
mod overlay;
mod overlay_membership;
mod racks;
mod recovery;
mod retry;
mod selection;
mod settle;
mod standing_casts;
mod striping;
mod swarm_detection;
mod tasks;
mod timers;
mod tree_installation;
mod turn;
mod view;
mod weights;

/// The manager of sources and the front end of deliveries.
pub struct Controller {
    catalog: Catalog,
    deliveries: Deliveries,
    swarms: Swarms,
    casts: Casts,
    standing_casts: StandingCasts,
    coflows: Coflows,
    /// If it is known.
    network: Option<Network>,
    recovery: Recovery,
    planner: Planner,
    desk: Desk,
    timers: Timers,
    out: VecDeque<Output<ControllerEvent>>,
}

/// State that all parts work with.
struct Desk {
    config: ControllerConfig,
    draws: Draws,
    effects: VecDeque<Effect>,
    stats: ControllerStats,
}

impl Desk {
    fn turn(&mut self, now: Time) -> Turn<'_> {
        let Desk { config, draws, effects, stats } = self;
        Turn { now, config, draws, stats, effects }
    }
}

impl Controller {
    /// A controller that knows nobody. `seed` must be new at every start: flow ids and keys come from it.
    ///
    /// # Panics
    /// If a setting makes no sense.
    pub fn new(config: ControllerConfig, seed: [u8; 32]) -> Self {
        config.assert_usable();
        Controller {
            catalog: Catalog::default(),
            deliveries: Deliveries::default(),
            swarms: Swarms::default(),
            casts: Casts::default(),
            standing_casts: StandingCasts::default(),
            coflows: Coflows::default(),
            network: config.network.as_ref().and_then(|spec| Network::new(spec).ok()),
            recovery: Recovery::default(),
            planner: Planner::default(),
            desk: Desk {
                config,
                draws: Draws::new(seed),
                effects: VecDeque::new(),
                stats: ControllerStats::default(),
            },
            timers: Timers::default(),
            out: VecDeque::new(),
        }
    }

    /// Its settings.
    pub fn config(&self) -> &ControllerConfig {
        &self.desk.config
    }

    /// Tasks that are not over.
    pub fn running_tasks(&self) -> usize {
        self.deliveries.tasks().len()
    }

    /// Casts that are not over.
    pub fn running_casts(&self) -> usize {
        self.casts.iter().count()
    }

    /// Receivers that pass on to each other what comes, or are counted on to, over all objects.
    pub fn overlay_members(&self) -> usize {
        self.deliveries.overlays().all_members()
    }

    /// Its counters.
    pub fn stats(&self) -> &ControllerStats {
        &self.desk.stats
    }

    /// A picture of everything that is known now.
    pub fn view(&self, now: Time) -> ControllerView {
        let tasks = self.deliveries.tasks();
        view::view(now, &self.catalog, tasks, &self.casts, &self.standing_casts, &self.coflows)
    }

    /// Introduction of a node, if it is known.
    pub fn info_of(&self, node: NodeId) -> Option<&NodeInfo> {
        self.catalog.node(node).map(|node| &node.info)
    }

    fn control(&mut self, now: Time, path: PathId, control: ToController) {
        let Controller { catalog, deliveries, desk, .. } = self;
        let turn = &mut desk.turn(now);
        match control {
            ToController::Hello(info) => match catalog.is_from(path, info.node) {
                true => self.hello(now, path, info),
                false => turn.stats.strangers += 1,
            },
            ToController::Request(request) => self.request(now, path, (request, None)),
            ToController::UrgentRequest(request, urgency) => {
                self.request(now, path, (request, Some(urgency)));
            }
            ToController::Feedback { task, first_undecoded, needed, flows_version, flows, held_up } => {
                let said = Progress { first_undecoded, needed, held_up, version: flows_version, flows };
                deliveries.feedback(turn, catalog, path, task, said);
            }
            ToController::Distrust { task, node } => {
                deliveries.distrust(turn, catalog, path, task, node);
                if !self.recovery.awaits_nodes(now) {
                    deliveries.give_up_spoiled(turn, catalog, task);
                }
            }
            ToController::Fin { task, outcome } => {
                let ended = deliveries.tasks().get(task).map(|task| &task.facts);
                if let (Some(facts), Some(taker)) = (ended, catalog.taker_at(path))
                    && facts.receiver == taker.node
                    && outcome != Outcome::Done
                {
                    catalog.doubt_size(facts.object, facts.bytes, &taker);
                }
                deliveries.fin(turn, catalog, path, task, outcome);
            }
            ToController::Cast(cast) => self.cast(now, path, (cast, None)),
            ToController::UrgentCast(cast, urgency) => self.cast(now, path, (cast, Some(urgency))),
            ToController::StopCast { cast } => {
                let (casts, below) = &mut self.casts(now);
                casts.stop(below, path, cast);
            }
            ToController::StandingCast { number, cast, stands } => match catalog.taker_at(path) {
                Some(peer) => {
                    let changed = self.standing_casts.change(turn, peer, cast, stands);
                    turn.answer(
                        path,
                        match changed {
                            Ok(()) => ToNode::StandingCastChanged { number },
                            Err(reason) => ToNode::CastRefused { cast: number, reason },
                        },
                    );
                }
                None => turn.stats.strangers += 1,
            },
            ToController::Coflows(totals) => match catalog.taker_at(path) {
                Some(taker) => self.coflows.report(turn, (path, taker), totals),
                None => turn.stats.strangers += 1,
            },
            ToController::Claim(claim) => match catalog.node_at(path) {
                Some(node) => self.claim(now, path, node, claim),
                None => turn.stats.strangers += 1,
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
            | ToController::Transfers { .. }
            | ToController::TreeReady { .. }
            | ToController::Silent { .. }
            | ToController::Signalled(_)
            | ToController::Named(_)
            | ToController::Unname { .. }
            | ToController::Report { .. } => match catalog.node_at(path) {
                Some(node) => self.source(now, node, control),
                None => turn.stats.strangers += 1,
            },
        }
    }

    fn source(&mut self, now: Time, node: NodeId, control: ToController) {
        let Some(control) = self.of_cast(now, node, control) else { return };
        let Controller { catalog, deliveries, desk, .. } = self;
        let turn = &mut desk.turn(now);
        match control {
            ToController::Hold(holding) => {
                let object = holding.object;
                match catalog.hold(node, holding, turn.config) {
                    Recorded::No | Recorded::Disputed => {
                        turn.stats.holdings_refused += 1;
                        return;
                    }
                    Recorded::WithoutName => turn.stats.names_refused += 1,
                    Recorded::Yes => {}
                }
                deliveries.touch_wanting(object);
                catalog.forget_names(turn);
                self.answer_early(now);
            }
            ToController::Drop { object } => {
                catalog.unhold(node, object);
                deliveries.drop_object(turn, catalog, node, object);
            }
            ToController::Named(naming) => self.named(now, node, naming),
            ToController::Unname { object, name } => catalog.unname(turn, node, object, &name),
            ToController::Spoiled { object, how } => self.spoiled(now, node, object, how),
            ToController::Keeps => {
                catalog.keeps(node);
                self.standing_casts.came(turn, node);
            }
            ToController::Leaving => {
                catalog.leaving(node);
                deliveries.leaving(node);
            }
            ToController::GroupSent { flow, sent } => {
                let known = self.casts.sent(node, flow, sent) || deliveries.tasks().is_group(node, flow);
                if !known {
                    // Nobody knows what it is for.
                    deliveries.stop_unknown(turn, catalog, node, flow);
                }
            }
            ToController::Pushing { flow } => deliveries.pushing(turn, catalog, node, flow),
            ToController::PushRefused { flow, reason } => {
                deliveries.push_refused(turn, catalog, (node, flow), &reason);
            }
            ToController::Stopped { flow } => deliveries.stopped(turn, node, flow),
            ToController::Report { flows } => {
                flows.into_iter().for_each(|report| deliveries.report(turn, catalog, node, report));
            }
            _ => unreachable!("only a source's messages are handed on"),
        }
    }

    /// Handles messages of nodes about casts; a group's flow belongs to no task, nor does a tree. Anything else is
    /// given back.
    fn of_cast(&mut self, now: Time, node: NodeId, control: ToController) -> Option<ToController> {
        let (casts, below) = &mut self.casts(now);
        match control {
            ToController::Fetched(fetched) => casts.fetched(below, node, fetched),
            ToController::GroupProbed { asked, heard } => casts.group_probed(below, node, asked, &heard),
            ToController::TreeReady { tree, version } => casts.tree_ready(below, node, tree, version),
            ToController::Silent { tree, neighbours, since } => {
                casts.silent(below, (node, tree), &neighbours, since);
            }
            ToController::Signalled(answer) => casts.signalled(below, node, &answer),
            ToController::Pushing { flow } if casts.has_tree(node, flow) => {
                casts.tree_pushing(below, node, flow)
            }
            ToController::Pushing { flow } if casts.serves(node, flow) => {
                casts.group_opened(below, node, flow)
            }
            ToController::PushRefused { flow, .. } | ToController::Stopped { flow }
                if casts.has_tree(node, flow) =>
            {
                below.deliveries.forget_ending(&mut below.turn, node, flow);
                casts.tree_over(below, node, flow);
            }
            ToController::PushRefused { flow, reason } if casts.serves(node, flow) => {
                below.deliveries.forget_ending(&mut below.turn, node, flow);
                casts.group_refused(below, (node, flow), &reason);
            }
            ToController::Stopped { flow } if casts.serves(node, flow) => {
                below.deliveries.forget_ending(&mut below.turn, node, flow);
                casts.group_over(below, node, flow);
            }
            ToController::Transfers { transfers } => casts.transfers(now, node, &transfers),
            other => return Some(other),
        }
        None
    }

    /// Somebody wants nodes to have an object.
    fn cast(&mut self, now: Time, path: PathId, (cast, urgency): (Cast, Option<Urgency>)) {
        if !self.casts.is_known(cast.cast) && self.recovery.is_early(now, &self.catalog, path, &cast.name) {
            let name = cast.name.clone();
            let again = match urgency {
                None => ToController::Cast(cast),
                Some(urgency) => ToController::UrgentCast(cast, urgency),
            };
            return self.recovery.hold_back(&self.catalog, path, name, again);
        }
        let nodes_may_come = self.recovery.awaits_nodes(now);
        let (casts, below) = &mut self.casts(now);
        casts.ask(below, path, (cast, urgency), nodes_may_come);
    }

    fn request(&mut self, now: Time, path: PathId, (request, urgency): (Request, Option<Urgency>)) {
        let Controller { catalog, deliveries, swarms, casts, recovery, desk, .. } = self;
        let turn = &mut desk.turn(now);
        let (receiver, number) = (request.receiver, request.request);
        if let Some(id) = deliveries.tasks().of_request(receiver, number) {
            return deliveries.asked_again(turn, catalog, path, id);
        }
        if !catalog.is_from(path, receiver) {
            turn.stats.strangers += 1;
            return;
        }
        if deliveries.has_finished(receiver, number) {
            turn.stats.requests_late += 1;
            // Mostly nobody waits for this. But a node that was to stop may not have heard it.
            let reason = Refusal::UnknownObject;
            return turn.answer(path, ToReceiver::Refused { request: number, reason });
        }
        if casts.has_invited(receiver, number) {
            let (casts, below) = &mut self.casts(now);
            return casts.asked_by_receiver(below, path, request);
        }
        if recovery.is_early(now, catalog, path, &request.name) {
            let name = request.name.clone();
            let again = match urgency {
                None => ToController::Request(request),
                Some(urgency) => ToController::UrgentRequest(request, urgency),
            };
            return recovery.hold_back(catalog, path, name, again);
        }
        let (request, place) = deliveries.joins(now, catalog, turn.config, request);
        turn.stats.overlays_joined += u64::from(place.is_some());
        let id = deliveries.answer(turn, catalog, path, &request, place);
        if let Some((id, urgency)) = id.zip(urgency) {
            deliveries.put_in_line(id, now, urgency);
        }
        let begun = id.and_then(|id| deliveries.tasks().get(id)).map(|task| task.facts.object);
        if let Some(object) = begun {
            swarms.watch(turn, catalog, deliveries, object);
        }
    }

    /// A node holds an object by a name that was granted once.
    fn named(&mut self, now: Time, node: NodeId, naming: Naming) {
        let turn = &mut self.desk.turn(now);
        if !self.catalog.holds(node, naming.object) {
            turn.stats.names_refused += 1;
            return;
        }
        self.catalog.named(turn, node, naming);
        self.answer_early(now);
    }

    /// A node wants a name for an object that it holds.
    fn claim(&mut self, now: Time, path: PathId, node: NodeId, claim: Claim) {
        let turn = &mut self.desk.turn(now);
        if !self.catalog.holds(node, claim.object) {
            turn.stats.names_refused += 1;
            return;
        }
        let is_early = claim.rule != ClaimRule::Copy
            && self.recovery.awaits_nodes(now)
            && self.catalog.owner_is_missing(node, &claim);
        if is_early {
            // Else it would be granted now, and the name's owner is on its way back.
            if !self.recovery.has_room(&self.catalog, path, &claim.name) {
                return self.catalog.refuse_claim(turn, node, &claim, WhyUnnamed::Full);
            }
            let name = claim.name.clone();
            return self.recovery.hold_back(&self.catalog, path, name, ToController::Claim(claim));
        }
        self.catalog.claim(turn, node, &claim);
        self.answer_early(now);
    }

    /// A node's copy of an object is not the object any more.
    fn spoiled(&mut self, now: Time, node: NodeId, object: ObjectId, how: Spoiled) {
        self.catalog.spoil(node, object, how);
        self.deliveries.drop_object(&mut self.desk.turn(now), &self.catalog, node, object);
        // A receiver of which only spoiled copies are left is told so, once all nodes that know this controller have
        // had time to come.
        if !self.recovery.awaits_nodes(now) {
            self.deliveries.give_up_spoiled_copies(&mut self.desk.turn(now), &self.catalog, object);
        }
    }

    /// A node has said what it holds: who asked for it too early is answered.
    fn answer_early(&mut self, now: Time) {
        let known = self.recovery.known(&self.catalog);
        known.into_iter().for_each(|(path, control)| self.control(now, path, control));
    }

    /// The casts, and what they work with.
    fn casts(&mut self, now: Time) -> (&mut Casts, Below<'_>) {
        let Controller { catalog, deliveries, swarms, casts, network, desk, .. } = self;
        (casts, Below { turn: desk.turn(now), catalog, deliveries, swarms, network })
    }

    /// Handles a timer that is due.
    fn due(&mut self, now: Time, subject: Subject) {
        let Controller { catalog, deliveries, swarms, recovery, desk, .. } = self;
        match subject {
            Subject::Plan => deliveries.plan_anew(),
            Subject::Task(task) => deliveries.touch(task),
            Subject::Ending(node, flow) => {
                deliveries.tick_ending(&mut desk.turn(now), catalog, node, flow);
            }
            Subject::Cast(cast) => {
                let (casts, below) = &mut self.casts(now);
                casts.tick(below, cast);
            }
            Subject::Swarm(object) => swarms.tick(&mut desk.turn(now), catalog, deliveries, object),
            Subject::Standing => {
                let wanted = self.standing_casts.due(&mut desk.turn(now), catalog);
                let nodes_may_come = recovery.awaits_nodes(now);
                let (casts, below) = &mut self.casts(now);
                let supply = |(by, cast)| casts.supply(below, by, cast, nodes_may_come);
                let waiting: Vec<NodeId> = wanted.into_iter().flat_map(supply).collect();
                self.standing_casts.wait(&mut self.desk.turn(now), waiting);
            }
            Subject::Recovery => {
                let asked = recovery.end();
                deliveries.give_up_all_spoiled(&mut desk.turn(now), catalog);
                asked.into_iter().for_each(|(path, control)| self.control(now, path, control));
            }
        }
    }
}

impl Endpoint for Controller {
    type Command = ControllerCommand;
    type Event = ControllerEvent;

    fn handle(&mut self, now: Time, input: Input<ControllerCommand>) {
        let Controller { catalog, deliveries, recovery, desk, .. } = self;
        let turn = &mut desk.turn(now);
        match input {
            Input::Packet(Packet {
                path, datagram: Datagram { body: Body::Control(control), .. }, ..
            }) => match *control {
                Control::Controller(control) => self.control(now, path, control),
                Control::Node(_) | Control::Source(_) | Control::Receiver(_) => turn.stats.unexpected += 1,
            },
            Input::Command(ControllerCommand::PathOpened { path, node, network }) => {
                return catalog.open_path(path, Taker { node, network });
            }
            Input::Command(ControllerCommand::PathLost { path }) => {
                self.coflows.lost(path);
                self.path_lost(now, path);
            }
            Input::Command(ControllerCommand::PathLeft { path }) => {
                self.coflows.lost(path);
                self.path_left(now, path);
            }
            Input::Command(ControllerCommand::Restore(record)) => deliveries.restore(turn, catalog, *record),
            Input::Command(ControllerCommand::RestoreName(record)) => catalog.restore_name(turn, *record),
            Input::Command(ControllerCommand::RestoreStanding(record)) => {
                self.standing_casts.restore(*record);
            }
            Input::Command(ControllerCommand::Returned) => recovery.begin(turn),
            Input::Command(ControllerCommand::ForgetNode { node }) => {
                self.forget_node(now, node);
            }
            Input::Packet(_) => turn.stats.unexpected += 1,
        }
        self.settle(now);
    }

    fn poll(&mut self, now: Time) -> Output<ControllerEvent> {
        loop {
            if let Some(output) = self.out.pop_front() {
                return output;
            }
            let Some(subject) = self.timers.take_due(now) else { return Output::Wake(self.timers.next()) };
            self.due(now, subject);
            self.settle(now);
        }
    }
}
