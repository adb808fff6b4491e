//! The input of a run, in plain values.

use headwater_baseline::SenderConfig;
use headwater_fabric::{LinkId, Routes, Topology};
use headwater_policy::coflow::Queues;
use headwater_policy::coflow::courier::Limits;
use headwater_switch::{Choice, PortConfig};
use headwater_transport::courier::CourierConfig;
use headwater_units::{Bytes, Duration, TaskId, Time};

use super::super::setup::Jitter;

/// One run: a pure function of this.
pub struct ShuffleSetup {
    /// The network.
    pub topology: Topology,
    /// Where switches send what is for a host.
    pub routes: Routes,
    /// The port of a link; the flag says whether a host's NIC is meant. With several [`Classes`], queue 0 is for control and queue
    /// n + 1 for data of class n.
    pub port: Box<dyn Fn(LinkId, bool) -> PortConfig>,
    /// How a switch chooses among equal paths.
    pub choice: Box<dyn Fn(u32) -> Choice>,
    /// Length of a frame of data, all headers included.
    pub data: Bytes,
    /// Length of an ACK's frame.
    pub ack: Bytes,
    /// Payload of a frame of data.
    pub payload: Bytes,
    /// Time that a host takes to send a packet ([`Jitter::PacketOnPath`] counts as one packet at the NIC's rate).
    pub jitter: Jitter,
    /// How long requests and orders take, one way.
    pub delay: Duration,
    /// DCTCP, or another TCP.
    pub sender: SenderConfig,
    /// Ascending by arrival.
    pub jobs: Vec<JobPlan>,
    /// Reducers that a host runs at once; the others wait in order. No bound if absent.
    pub slots: Option<u32>,
    /// Map outputs that a reducer fetches at once (Hadoop's parallel copies); no bound if absent.
    pub fetches: Option<u32>,
    /// Whether the outputs that a host has for one reducer are one flow.
    pub combiner: bool,
    /// Scheduler that orders flows.
    pub order: Order,
    /// Classes of data.
    pub classes: Classes,
    /// Carrier of flows.
    pub carrier: Carrier,
    /// The run ends then, whatever is left.
    pub until: Option<Time>,
    /// Everything that is drawn.
    pub seed: u64,
}

/// A job whose map outputs are there when it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// Its name.
    pub task: TaskId,
    /// When its map outputs are there.
    pub at: Time,
    /// The job that must end before that, if any; then they are there some time after its end.
    pub after: Option<After>,
    /// In the order in which they want slots.
    pub reducers: Vec<ReducerPlan>,
}

/// Job that a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// Its place in [`ShuffleSetup::jobs`].
    pub job: usize,
    /// From its end on.
    pub pause: Duration,
}

/// A reducer and what it must fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReducerPlan {
    /// Where it runs.
    pub host: u32,
    /// The host of each map output, and what of it is for this reducer.
    pub outputs: Vec<(u32, Bytes)>,
}

/// Scheduler that orders flows.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Nobody.
    None,
    /// Aalo, as rates. What coflows have sent is known at each period of its queues; flows that begin or end are known at once.
    Aalo(Queues),
    /// Sincronia: an order anew with each arrival and end of a coflow, which hosts enforce by classes.
    Sincronia,
    /// The same with its order turned about, the most urgent last: what an order is worth.
    SincroniaInverted,
    /// The stand-in for Django: rates for a bounded number of flows of a host.
    DjangoLike {
        /// The most flows of a host.
        flows: u32,
        /// How often it looks.
        period: Duration,
    },
}

/// Classes of data that ports keep apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    /// How many, 1 to 8; a rank beyond goes to the last.
    pub count: u8,
    /// Whether a connection that changes its class begins with the first window again (Courier §IV-A).
    pub restart_window: bool,
}

impl Classes {
    /// One for everything.
    pub const ONE: Classes = Classes { count: 1, restart_window: false };
}

/// Carrier of flows.
#[derive(Clone, Debug, PartialEq)]
pub enum Carrier {
    /// A connection for each.
    Flows,
    /// Courier's agents.
    Courier {
        /// MaxNum, MinSize and lanes per pair.
        limits: Limits,
        /// Blocks, pipeline and timers. Its classes are those of the run.
        agent: CourierConfig,
        /// Lane n from host h takes path h + n, around the end; else switches choose by hash.
        pinned: bool,
        /// Whether a lane of another class is another connection; else the unified flow keeps the one that it has, which changes its
        /// class (Courier §IV-A).
        per_class: bool,
        /// Whether the flows of a pair of hosts are merged; else each is a unified flow of its own: what merging is worth.
        merges: bool,
    },
}
