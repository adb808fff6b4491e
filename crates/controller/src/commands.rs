//! Commands to a controller, its events, and the records that survive a restart.

use core::net::{IpAddr, SocketAddr};

use headwater_units::{Bytes, FlowId, FlowKey, NodeId, ObjectId, PathId, TaskId};
use headwater_wire::{Class, Delivery, Naming, NodeInfo, Outcome, SpreadRule, StandingCast};
use serde::{Deserialize, Serialize};

/// Commands from the driver to a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControllerCommand {
    /// The peer at the other end of this path has proved this key. Messages by any other path are ignored.
    PathOpened {
        /// The path.
        path: PathId,
        /// The node that has this key.
        node: NodeId,
        /// The network that it speaks from ([`headwater_wire::network_of`]), if the path has an address.
        network: Option<IpAddr>,
    },
    /// The control connection behind this path is gone.
    PathLost {
        /// The path.
        path: PathId,
    },
    /// A task that was running when the controller stopped.
    Restore(Box<TaskRecord>),
    /// The controller has run before: nodes that know it will come back, and say what they hold.
    Returned,
    /// Object that a name stood for when the controller stopped.
    RestoreName(Box<NameRecord>),
    /// A cast that stood when the controller stopped.
    RestoreStanding(Box<StandingRecord>),
    /// The same as [`ControllerCommand::PathLost`], and the node behind it has ended and does not go on with its tasks.
    PathLeft {
        /// The path.
        path: PathId,
    },
    /// A node that is away will not come back: nothing of it is to be remembered. One that is here stays.
    ForgetNode {
        /// The node.
        node: NodeId,
    },
}

/// Events of a controller, for the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControllerEvent {
    /// Keep this, replacing an older record of the same task.
    Persist(Box<TaskRecord>),
    /// The task is over: forget it.
    Forget {
        /// The task.
        task: TaskId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A node is known now, or again.
    NodeUp(Box<NodeInfo>),
    /// A node is gone.
    NodeDown {
        /// The node.
        node: NodeId,
    },
    /// A name stands for something else, or for nothing: keep this, replacing an older record of the same name.
    NameChanged(Box<NameRecord>),
    /// The name had to make room for others: its record is of no use any more.
    NameForgotten {
        /// The name.
        name: String,
    },
    /// A standing cast has begun: keep this, replacing an older record of the same cast.
    StandingBegun(Box<StandingRecord>),
    /// A standing cast has ended: forget its record.
    StandingEnded(Box<StandingCast>),
    /// Nodes are to have an object.
    CastBegun(Box<CastBegun>),
    /// A cast is over.
    CastOver {
        /// The cast.
        cast: u64,
        /// Number of receivers that have it.
        done: usize,
        /// Number of receivers that failed.
        failed: usize,
        /// Whether all have it and had it in time; `None` without a deadline.
        in_time: Option<bool>,
    },
}

/// Report of a cast that begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastBegun {
    /// The cast.
    pub cast: u64,
    /// As asked for.
    pub name: String,
    /// The object.
    pub object: ObjectId,
    /// Its size.
    pub bytes: Bytes,
    /// Number of receivers.
    pub receivers: usize,
}

/// State of a name that must survive, so that nothing older comes back after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRecord {
    /// Object that it stands for, or stood for last.
    pub naming: Naming,
    /// Nobody holds anything by this name any more.
    pub removed: bool,
}

/// State of a standing cast that must survive a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingRecord {
    /// The cast.
    pub cast: StandingCast,
    /// Key of the asker: nobody else may end it.
    pub owner: NodeId,
}

/// State of a task that must survive a restart of the controller: no times, only facts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The task.
    pub task: TaskId,
    /// The request that it answers.
    pub request: u64,
    /// The receiver.
    pub receiver: NodeId,
    /// Object to deliver.
    pub object: ObjectId,
    /// Its size.
    pub bytes: Bytes,
    /// The name that was asked for.
    pub name: String,
    /// T.
    pub symbol_size: u16,
    /// Class in which its symbols queue.
    pub class: Class,
    /// How the work is spread.
    pub spread: SpreadRule,
    /// Its transport.
    pub delivery: Delivery,
    /// At most this many sources.
    pub max_sources: u8,
    /// Residue classes that its symbols fall into (PPUSH §III-A M).
    pub residue_classes: u8,
    /// The newest version of its list of flows.
    pub flows_version: u32,
    /// Its flows.
    pub flows: Vec<TaskFlow>,
    /// Sources that delivered wrong bytes to it.
    pub distrusted: Vec<NodeId>,
}

/// A flow of a [`TaskRecord`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFlow {
    /// The flow.
    pub flow: FlowId,
    /// Its source.
    pub node: NodeId,
    /// Which start of the source it belongs to: a restarted source has forgotten the flow.
    pub incarnation: u64,
    /// Its key.
    pub key: FlowKey,
    /// Its residue class.
    pub index: u8,
    /// The group by which its symbols come, if its receiver belongs to one.
    pub group: Option<TaskGroup>,
    /// Its source is a receiver of the object itself, and sends each block on that has come to it.
    pub relays: bool,
}

/// The group of a [`TaskFlow`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskGroup {
    /// The group's flow.
    pub flow: FlowId,
    /// Its key.
    pub key: FlowKey,
    /// Its address.
    pub at: SocketAddr,
}
