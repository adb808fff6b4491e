//! Counters of a flow at its source, whatever its transport.

use headwater_units::{Duration, FlowId, NodeId, ObjectId, Packets, Symbols, TaskId, Theta};
use headwater_wire::{FlowReport, MarkSignal, Push};

/// One flow, now: for status pages and time series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowStats {
    /// The flow.
    pub flow: FlowId,
    /// Its task.
    pub task: TaskId,
    /// The object that it sends.
    pub object: ObjectId,
    /// The receiver.
    pub receiver: NodeId,
    /// The weight in force.
    pub theta: Theta,
    /// W.
    pub window: Packets,
    /// α.
    pub mark_fraction: f64,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Smallest recent round-trip time.
    pub min_rtt: Option<Duration>,
    /// The congestion signal.
    pub signal: MarkSignal,
    /// Packets in flight.
    pub in_flight: usize,
    /// Waits for its disk or encoder.
    pub starved: bool,
    /// Paused, by the controller or because the receiver is silent.
    pub paused: bool,
    /// T.
    pub symbol_size: u16,
    /// The longest datagram that passes, bytes above UDP, if its symbols are longer: nothing is sent then.
    pub fits: Option<u16>,
    /// Counters so far.
    pub counters: FlowCounters,
    /// Counters of the tree, if it is one.
    pub tree: Option<TreeStats>,
}

impl FlowStats {
    /// Of a flow that measures nothing of its path and has sent nothing yet.
    pub fn unmeasured(push: &Push) -> Self {
        FlowStats {
            flow: push.flow,
            task: push.task,
            object: push.object,
            receiver: push.receiver,
            theta: push.theta,
            window: Packets::ZERO,
            mark_fraction: 0.0,
            rtt: None,
            min_rtt: None,
            signal: MarkSignal::Unknown,
            in_flight: 0,
            starved: false,
            paused: false,
            symbol_size: push.symbol_size,
            fits: None,
            counters: FlowCounters::default(),
            tree: None,
        }
    }

    /// The part of it that is reported to the controller.
    pub fn report(&self) -> FlowReport {
        FlowReport {
            flow: self.flow,
            theta: self.theta,
            window: self.window,
            rtt: self.rtt,
            mark_fraction: self.mark_fraction,
            signal: self.signal,
            lost: self.counters.lost - self.counters.spurious,
            starved: self.starved,
        }
    }
}

/// Counters of one flow so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Symbols sent, copies included.
    pub sent: Symbols,
    /// Symbols acknowledged.
    pub acked: Symbols,
    /// Symbols declared lost.
    pub lost: Symbols,
    /// Of those, acknowledged after all.
    pub spurious: Symbols,
    /// Copies sent of lost symbols.
    pub resent: Symbols,
    /// Acknowledged symbols that counted as marked.
    pub marked: Symbols,
    /// Copies sent to probe.
    pub probes: Symbols,
    /// Datagrams without a symbol, sent to find the path's MTU or to say what it is.
    pub path_probes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Number of times that a gentle flow's window was cut in favour of others.
    pub yields: Yields,
    /// Time without a block to send from although the window was open.
    pub starved: Duration,
    /// ACKs ignored: of packets never sent.
    pub bad_acks: u64,
    /// ACKs whose ECN counters were not believed.
    pub bad_counters: u64,
    /// Entries of assignments ignored: no work of this object.
    pub bad_work: u64,
}

/// Number of times that the window of a gentle flow was cut, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Yields {
    /// Rounds with queueing delay.
    pub to_delay: u64,
    /// Rounds with marked packets and no queueing delay that would have taken more.
    pub to_marks: u64,
    /// Rounds with loss.
    pub to_loss: u64,
}

impl Yields {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.to_delay + self.to_marks + self.to_loss
    }
}

/// Counts of one tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Symbols that were sent for the first time.
    pub new: u64,
    /// Symbols that were sent again.
    pub repeated: u64,
    /// Interests for symbols that had been sent.
    pub duplicates: u64,
    /// Interests for symbols that were waiting to be sent.
    pub early: u64,
    /// Interests that make no sense, or found no room.
    pub strays: u64,
}
