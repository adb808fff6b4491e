//! Records of a run.

use headwater_units::{Bytes, TaskId, Time};

/// A job, as it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Its name.
    pub task: TaskId,
    /// When its map outputs were there.
    pub arrival: Time,
    /// When its last reducer had everything.
    pub finished: Option<Time>,
    /// Bytes that crossed the network for it.
    pub bytes: Bytes,
    /// Whether its last flow had a timeout. Flows in lanes have none of their own.
    pub last_timed_out: bool,
}

/// Records of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShuffleOutcome {
    /// In the order of the set-up.
    pub jobs: Vec<JobRow>,
    /// Packets of data that left senders, each time counted.
    pub sent: u64,
    /// Of those, packets that had been sent before.
    pub resent: u64,
    /// Frames that switches dropped.
    pub dropped: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// The longest queue of a switch's port, in frames.
    pub longest_queue: u64,
    /// Flows of jobs that crossed the network.
    pub flows: u64,
    /// The most flows of jobs that were open at once.
    pub most_flows: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// The most connections that had something to carry at once.
    pub most_busy: u64,
    /// The most lanes that one host received by.
    pub most_lanes: u64,
    /// Times that the scheduler was asked.
    pub plans: u64,
    /// Events.
    pub events: u64,
}
