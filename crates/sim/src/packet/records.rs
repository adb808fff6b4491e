//! The results of a packet run: rows and counters, in simulated time.

use headwater_switch::{FaultCounts, PortStats, TreeNodeStats};
use headwater_transport::ReceiverFailure;
use headwater_units::{BitRate, FlowId, Time};
use headwater_wire::{Body, RateFeedback};

use super::network::LinkTally;

/// Everything that a run recorded.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// By task.
    pub tasks: Vec<TaskRow>,
    /// By task and flow.
    pub flows: Vec<FlowRow>,
    /// By task and tree.
    pub trees: Vec<TreeRow>,
    /// By time.
    pub samples: Vec<SampleRow>,
    /// Of each link's port, by link.
    pub links: Vec<PortStats>,
    /// Of each link's two ends, by link, counted apart from its port; empty unless the run drains.
    pub tallies: Vec<LinkTally>,
    /// Flows that sources had at the end: host and flow.
    pub flows_left: Vec<(u32, FlowId)>,
    /// Of the whole run.
    pub counts: Counts,
    /// Of all scheduled transfers.
    pub negotiation: Negotiation,
}

/// Datagrams that came to the ends of scheduled transfers (PAM).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiation {
    /// Symbols that came to receivers.
    pub symbols: u64,
    /// Probes that came to receivers.
    pub probes: u64,
    /// Answers of receivers to symbols that came to sources, NACKs included.
    pub symbol_answers: u64,
    /// Their answers to probes, likewise.
    pub probe_answers: u64,
}

impl Negotiation {
    /// Anything but a symbol has come. An answer repeats the rate that the datagram stated: that of a probe is zero.
    pub(super) fn note(&mut self, body: &Body) {
        let answer = match body {
            Body::RateFeedback(feedback) => feedback,
            Body::Nack(nack) => &nack.feedback,
            Body::RateProbe(_) => return self.probes += 1,
            _ => return,
        };
        let RateFeedback { held, scheduling, .. } = answer;
        match scheduling.rate() {
            // A receiver that has heard nothing yet answers nothing.
            _ if held.as_nanos() >= u64::from(u32::MAX) => {}
            BitRate::ZERO => self.probe_answers += 1,
            _ => self.symbol_answers += 1,
        }
    }
}

/// One task.
#[derive(Clone, Debug)]
pub struct TaskRow {
    /// Its place among the plans.
    pub task: u32,
    /// Its name.
    pub name: String,
    /// When it arrived.
    pub arrival: Time,
    /// When its receiver had everything, if it ever had.
    pub finish: Option<Time>,
    /// Why its receiver gave up, if it did.
    pub failure: Option<ReceiverFailure>,
    /// Blocks that were decoded, and verified where bytes are carried (coded symbols), of all receivers together.
    pub blocks_done: u32,
    /// Blocks of its object, as far as receivers were told of it, for each of them.
    pub blocks: Option<u32>,
    /// When the last ACK was back at the last sender (baselines).
    pub closed: Option<Time>,
    /// Its size.
    pub packets: u64,
    /// Symbols or packets that were new to the receiver.
    pub useful: u64,
    /// Host.
    pub receiver: u32,
    /// Number of sources.
    pub sources: u32,
}

/// One flow of a task.
#[derive(Clone, Debug, Default)]
pub struct FlowRow {
    /// Its task.
    pub task: u32,
    /// Its id.
    pub flow: FlowId,
    /// Host.
    pub source: u32,
    /// When it began.
    pub start: Time,
    /// When its last useful packet came.
    pub last: Option<Time>,
    /// Packets that were new to the receiver.
    pub useful: u64,
    /// Its part of all useful packets of the task.
    pub share: f64,
    /// Packets sent, copies included.
    pub sent: u64,
    /// Packets taken for lost.
    pub lost: u64,
    /// Packets acknowledged as marked.
    pub marked: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Packets of which only the header came.
    pub trimmed: u64,
    /// Packets that came whole and were of no use.
    pub unneeded: u64,
    /// Its weight at the end.
    pub theta: f64,
}

/// One tree of a task (Datacast).
#[derive(Clone, Debug)]
pub struct TreeRow {
    /// Its task.
    pub task: u32,
    /// Its place among the task's trees.
    pub tree: u32,
    /// Number of its links.
    pub links: u64,
    /// Symbols that crossed them, each link counting once.
    pub carried: u64,
    /// Symbols that the source sent for the first time.
    pub new: u64,
    /// Symbols that it sent again.
    pub repeated: u64,
    /// Interests for symbols that it had sent.
    pub duplicates: u64,
    /// The symbols of the first half of the run, sent for the first time and again; of runs with a stated end.
    pub midway: Option<(u64, u64)>,
    /// Symbols, of all trees of the task, that the receiver with the fewest had in the second half.
    pub settled: u64,
    /// Counters of the devices where it branches, together.
    pub nodes: TreeNodeStats,
}

/// One value of a time series.
#[derive(Clone, Debug)]
pub struct SampleRow {
    /// The time.
    pub at: Time,
    /// The entity that is measured.
    pub entity: String,
    /// Which quantity: packets, seconds, packets per second, fractions.
    pub quantity: &'static str,
    /// Its value.
    pub value: f64,
}

impl SampleRow {
    pub(super) fn new(at: Time, entity: &str, quantity: &'static str, value: f64) -> Self {
        SampleRow { at, entity: entity.to_owned(), quantity, value }
    }
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// When it ended.
    pub ended: Time,
    /// Events handled.
    pub events: u64,
    /// Frames that left over a link, each link counting once.
    pub hops: u64,
    /// Frames that came to a port.
    pub offered: u64,
    /// Frames dropped for want of room, or with a cut link.
    pub drops: u64,
    /// Frames marked.
    pub marks: u64,
    /// Frames trimmed.
    pub trims: u64,
    /// Frames in queues at the end.
    pub queued: u64,
    /// Counters of link faults.
    pub faults: FaultCounts,
    /// Blocks that decoded to other bytes than the object's.
    pub corrupt: u64,
    /// Messages in flight at the end.
    pub in_flight: u64,
    /// Events pending at the end.
    pub pending: u64,
}

impl Counts {
    pub(super) fn add(&mut self, port: &PortStats) {
        self.hops += port.frames_out;
        self.offered += port.frames_in;
        self.drops += port.dropped;
        self.marks += port.marked;
        self.trims += port.trimmed;
        self.queued += port.frames_in - port.frames_out - port.dropped;
    }
}
