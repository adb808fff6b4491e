//! A snapshot of everything the controller knows, for people and programs that ask.

use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FlowId, NodeId, ObjectId, Packets, Symbols, TaskId, Theta, Time,
};
use headwater_wire::{CastRoute, MarkSignal, NodeInfo, RateNews, StandingCast, WhyUnscheduled};
use serde::Serialize;

use crate::casts::{Cast, Casts};
use crate::catalog::{Catalog, Node, Object};
use crate::coflows::{CoflowView, Coflows};
use crate::standing_casts::StandingCasts;
use crate::tasks::{Flow, FlowState, Task, Tasks};

/// Snapshot of a controller's state; lists ascend by id, flows come in the order of their opening.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ControllerView {
    /// Nodes that are here, or were.
    pub nodes: Vec<NodeView>,
    /// Objects that somebody holds, or held.
    pub objects: Vec<ObjectView>,
    /// Running tasks.
    pub tasks: Vec<TaskView>,
    /// Running casts.
    pub casts: Vec<CastView>,
    /// Casts that go on for nodes that join later.
    pub standing: Vec<StandingCast>,
    /// Coflows that agents fetch, the most important first.
    pub coflows: Vec<CoflowView>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    /// Its introduction.
    pub info: NodeInfo,
    /// Whether it can be reached now.
    pub here: bool,
    /// Whether it fetches into its store what it is invited to.
    pub keeps: bool,
    /// How many flows it sends.
    pub flows: usize,
    /// How many tasks found it delivering wrong bytes.
    pub distrusts: u32,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectView {
    /// Its id.
    pub object: ObjectId,
    /// Its size.
    pub bytes: Bytes,
    /// Names that its holders give it.
    pub names: Vec<String>,
    /// Connected holders.
    pub holders: Vec<NodeId>,
    /// Holders that are away.
    pub away: Vec<NodeId>,
}

/// One running task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskView {
    /// Its id.
    pub task: TaskId,
    /// The receiver.
    pub receiver: NodeId,
    /// Object of the task.
    pub object: ObjectId,
    /// As asked for.
    pub name: String,
    /// The object's size.
    pub bytes: Bytes,
    /// Bytes left of it, about.
    pub remaining: Bytes,
    /// Symbols that are still needed.
    pub needed: Symbols,
    /// The first block that is not decoded.
    pub first_undecoded: BlockIndex,
    /// T.
    pub symbol_size: u16,
    /// At most this many sources.
    pub max_sources: u8,
    /// The receiver is silent, and the flows are told to wait.
    pub paused: bool,
    /// Its receiver's decoder or disk is the limit.
    pub held_up: bool,
    /// The version of the list of flows.
    pub flows_version: u32,
    /// Its flows.
    pub flows: Vec<FlowStatus>,
}

/// One running cast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CastView {
    /// Its number, drawn by the asker.
    pub cast: u64,
    /// Object that is cast.
    pub object: ObjectId,
    /// As asked for.
    pub name: String,
    /// The object's size.
    pub bytes: Bytes,
    /// The source of the group, if there is one; else the first known holder.
    pub source: NodeId,
    /// How it travels, and why.
    pub route: CastRoute,
    /// Receivers.
    pub of: u64,
    /// Those that have all of it.
    pub done: u64,
    /// Those that will not get it.
    pub failed: u64,
    /// Payload that the source has sent to the group.
    pub to_group: Bytes,
    /// Since it was asked for.
    pub age: Duration,
    /// From then until all should have it, if it matters.
    pub deadline: Option<Duration>,
    /// How it does if it goes at computed rates.
    pub rates: Option<RateNews>,
    /// It was to go at computed rates, and does not for this reason.
    pub unscheduled: Option<WhyUnscheduled>,
}

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FlowStanding {
    /// The source was asked, and has not answered.
    Offered,
    /// The source said that it pushes.
    Pushing,
    /// No path leads to the source.
    Away,
    /// The source has ended it by itself.
    Over,
}

/// One flow of a running task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowStatus {
    /// Its id.
    pub flow: FlowId,
    /// Its source.
    pub node: NodeId,
    /// Where it stands.
    pub standing: FlowStanding,
    /// Its weight, as planned.
    pub theta: Theta,
    /// Rate that it delivers lately.
    pub rate: BitRate,
    /// Useful bytes that it has delivered.
    pub bytes: Bytes,
    /// Time for which nothing came although something was expected.
    pub silent: Duration,
    /// Its congestion signal.
    pub signal: MarkSignal,
    /// Its round-trip time, smoothed.
    pub rtt: Option<Duration>,
    /// Its window.
    pub window: Packets,
    /// α of Eq. 1.
    pub mark_fraction: f64,
    /// Symbols sent and never acknowledged.
    pub lost: Symbols,
    /// It waits for its source's disk or encoder.
    pub starved: bool,
}

/// A picture of everything that is known now.
pub(crate) fn view(
    now: Time,
    catalog: &Catalog,
    tasks: &Tasks,
    casts: &Casts,
    standing: &StandingCasts,
    coflows: &Coflows,
) -> ControllerView {
    let here = |node: &NodeId| catalog.path_of(*node).is_some();
    let object = |(id, object): (&ObjectId, &Object)| {
        let (holders, away) = object.holders.iter().copied().partition(here);
        let said = |name: &&String| object.holders.iter().any(|node| catalog.says(*node, name, *id));
        let names = object.names.iter().filter(said).cloned().collect();
        ObjectView { object: *id, bytes: object.bytes, names, holders, away }
    };
    let node = |node: &Node| NodeView {
        info: node.info.clone(),
        here: node.path.is_some(),
        keeps: node.keeps,
        flows: tasks.load(node.info.node),
        distrusts: node.distrusts,
    };
    ControllerView {
        nodes: catalog.nodes().map(node).collect(),
        objects: catalog.objects().map(object).collect(),
        tasks: tasks.iter().map(task_view).collect(),
        casts: casts.iter().map(|cast| cast_view(now, cast)).collect(),
        standing: standing.iter().cloned().collect(),
        coflows: coflows.view(now),
    }
}

fn cast_view(now: Time, cast: &Cast) -> CastView {
    let (of, done, open) = (cast.members.len(), cast.members.done(), cast.members.open());
    CastView {
        cast: cast.number,
        object: cast.object,
        name: cast.name.clone(),
        bytes: cast.bytes,
        source: cast.source,
        route: cast.route(),
        of: of as u64,
        done: done as u64,
        failed: (of - open - done) as u64,
        to_group: cast.to_group,
        age: now.since(cast.begun),
        deadline: cast.urgency.and_then(|urgency| urgency.deadline),
        rates: cast.rate_news(now),
        unscheduled: cast.unscheduled,
    }
}

fn task_view(task: &Task) -> TaskView {
    TaskView {
        task: task.id(),
        receiver: task.facts.receiver,
        object: task.facts.object,
        name: task.facts.name.clone(),
        bytes: task.facts.bytes,
        remaining: task.remaining().min(task.facts.bytes),
        needed: task.needed,
        first_undecoded: task.first_undecoded,
        symbol_size: task.facts.symbol_size,
        max_sources: task.facts.max_sources,
        paused: task.is_paused(),
        held_up: task.held_up,
        flows_version: task.facts.flows_version,
        flows: task.flows.iter().map(flow_status).collect(),
    }
}

fn flow_status(flow: &Flow) -> FlowStatus {
    let report = flow.report.as_ref();
    FlowStatus {
        flow: flow.facts.flow,
        node: flow.facts.node,
        standing: match flow.state {
            FlowState::Offered { .. } => FlowStanding::Offered,
            FlowState::Pushing => FlowStanding::Pushing,
            FlowState::Away { .. } => FlowStanding::Away,
            FlowState::Over { .. } => FlowStanding::Over,
        },
        theta: flow.theta,
        rate: flow.view.map_or(BitRate::ZERO, |view| view.rate),
        bytes: flow.view.map_or(Bytes::ZERO, |view| view.bytes),
        silent: flow.silent(),
        signal: report.map_or(MarkSignal::Unknown, |report| report.signal),
        rtt: flow.rtt,
        window: report.map_or(Packets::ZERO, |report| report.window),
        mark_fraction: report.map_or(0.0, |report| report.mark_fraction),
        lost: report.map_or(Symbols::ZERO, |report| report.lost),
        starved: report.is_some_and(|report| report.starved),
    }
}
