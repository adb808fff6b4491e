//! Commands and events of a host's agent.

use headwater_units::{Bytes, Duration, FlowId, FluidRate, NodeId, PathId, Rank};
use serde::{Deserialize, Serialize};

use super::Share;

/// The source host, and the pinned path: the key under which flows to this host merge (Algorithm 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PairId {
    /// The host that sends.
    pub peer: NodeId,
    /// The path, where paths are chosen by their ends.
    pub path: Option<PathId>,
}

/// A connection of a pair. Bytes under way in one class stay there: where switches keep buffers apart by class, another
/// class is another connection, whose window begins anew (Courier §IV-A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId {
    /// The pair of hosts.
    pub pair: PairId,
    /// The class that its data travels in, 0 first.
    pub class: u8,
    /// Which of the pair's lanes of that class, from 0.
    pub number: u32,
}

/// Configuration of the agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CourierConfig {
    /// The unit of all requests: 64 KiB (Courier §VI-C). The last block of a flow is shorter.
    pub block: Bytes,
    /// Blocks that may be asked for in a lane and not be here, at least 1. Two: while one is on its way, the peer's agent has another.
    pub pipeline: u32,
    /// Data classes of the network, at least 1: a pair's lanes are in the class of its first rank that has something to ask for, ranks
    /// past the last class in the last. Eight, as IP precedence has (Courier §V, "whose DSCP is the highest").
    pub classes: u8,
    /// Least interval between two choices of lanes; ours: 10 ms on real hosts, none in the paper.
    pub hold: Duration,
    /// Silence of the scheduler after which there is no order; ours: 1 s. Never if absent.
    pub silence: Option<Duration>,
    /// Time after which a pair that waits for a lane gets that of the least important one; ours: 2 s. Never if absent,
    /// as in the paper.
    pub most_defer: Option<Duration>,
    /// Assumed size of a flow of unknown size; ours: 1 MiB, MinSize, so that it is not split.
    pub unknown: Bytes,
}

impl Default for CourierConfig {
    /// For real hosts.
    fn default() -> Self {
        CourierConfig {
            block: Bytes::kib(64),
            pipeline: 2,
            classes: 8,
            hold: Duration::from_millis(10),
            silence: Some(Duration::from_secs(1)),
            most_defer: Some(Duration::from_secs(2)),
            unknown: Bytes::mib(1),
        }
    }
}

impl CourierConfig {
    /// As the paper has it: no pauses, no bounds on waiting.
    pub fn paper() -> Self {
        CourierConfig { hold: Duration::ZERO, silence: None, most_defer: None, ..Self::default() }
    }
}

/// A flow that a local consumer wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Want {
    /// Its name, which no other flow of this host has or had.
    pub flow: FlowId,
    /// The source host and path.
    pub pair: PairId,
    /// Its size, if known. A flow of no bytes is done at once.
    pub size: Option<Bytes>,
    /// How much the consumer has room for already.
    pub credit: Bytes,
    /// Its importance before the next schedule.
    pub share: Share,
}

/// A scheduler's order of all flows to this host (Courier S.schedule()). Flows that it does not list go last, or wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// There is no scheduler (any more).
    Even,
    /// Order-based.
    Ranks(Vec<(FlowId, Rank)>),
    /// Rate-based.
    Rates(Vec<(FlowId, FluidRate)>),
}

/// A block is at its local writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Of this flow.
    pub flow: FlowId,
    /// As it was asked for.
    pub offset: Bytes,
    /// Bytes that came; fewer than were asked for if the flow ends there, or the rest is to be asked for again.
    pub bytes: Bytes,
    /// The flow ends with it, exactly behind its bytes. Only those of unknown size need it; of a block that begins behind the end it is not
    /// said.
    pub last: bool,
}

/// Commands to the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum CourierCommand {
    /// A local consumer wants a flow.
    Want(Want),
    /// A local consumer has room for more bytes of it.
    Grant {
        /// The flow.
        flow: FlowId,
        /// How much more.
        bytes: Bytes,
    },
    /// A flow is not wanted any more.
    Withdraw {
        /// The flow.
        flow: FlowId,
    },
    /// The scheduler has spoken.
    Schedule(Schedule),
    /// A block is here.
    Arrived(Arrival),
    /// A connection is gone; what was asked for in it and is not here will not come.
    LaneLost(LaneId),
}

/// A block to ask the peer's agent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The connection that it is to come by.
    pub lane: LaneId,
    /// Of this flow.
    pub flow: FlowId,
    /// From here.
    pub offset: Bytes,
    /// Length, at most a block.
    pub bytes: Bytes,
}

/// Events of the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum CourierEvent {
    /// Ask for this block.
    Request(Request),
    /// A lane runs from now on at most at this rate: a new one, or one that changes.
    Lane {
        /// The lane.
        lane: LaneId,
        /// At most this; none if the network shares itself out.
        rate: Option<FluidRate>,
    },
    /// Nothing more will be asked for in a lane until it runs again; what was is still to come, and it may stay open.
    Idle(LaneId),
    /// All of a flow is here.
    Done {
        /// The flow.
        flow: FlowId,
    },
}

/// Counters of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CourierStats {
    /// Selections of lanes (Algorithm 1, lines 7 to 9).
    pub selections: u64,
    /// Times that lanes would have been chosen anew and nothing had changed (line 5).
    pub unchanged: u64,
    /// Lanes that began, or ran again.
    pub lanes_started: u64,
    /// The most lanes that ran at once.
    pub most_lanes: u64,
    /// Blocks asked for.
    pub requests: u64,
    /// Of those, blocks that were lost with a connection.
    pub again: u64,
    /// Bytes that are here.
    pub arrived: u64,
    /// Times that the scheduler fell silent.
    pub silences: u64,
    /// Inputs that make no sense: blocks that nobody asked for, flows that are not known.
    pub unexpected: u64,
}
