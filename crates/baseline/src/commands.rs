//! Commands and events of the ends of a baseline.

use headwater_transport::ReceiverFailure;
use headwater_units::{Duration, FlowId, PathId};

/// Commands of the driver to the sending end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderCommand {
    /// Send nothing more; the flow ends.
    Withdraw,
    /// To the sender of a relayed flow: what it may send has grown.
    Extend {
        /// The flow.
        flow: FlowId,
        /// Packets below this one are here.
        packets: u64,
    },
    /// To a sender of TCP: from now on a packet leaves at most once in this time; as the window allows if `None`.
    Pace {
        /// The interval. The longest there is: none leaves.
        every: Option<Duration>,
    },
    /// To a sender of TCP: its packets have another class from now on, whose queues it knows nothing of. The window is again what it was
    /// at the start, and slow start ends at what it was before (Courier §IV-A says only that it is reset).
    RestartWindow,
}

/// Events of the sending end of a flow for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// The flow is over: forget its path.
    Closed {
        /// The flow.
        flow: FlowId,
    },
}

/// Commands of the driver to the receiving end of a baseline.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkCommand {
    /// To the receiver of one flow: stop, tell the sender, and end with [`SinkEvent::Failed`].
    Cancel,
    /// To a host's receiver of many flows: one more will come.
    Expect(Expect),
    /// To a host's receiver of many flows: this one is not wanted any more.
    Abandon {
        /// The flow.
        flow: FlowId,
    },
}

/// A flow that a host's receiver is to expect. Its sender is not told, and begins by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The flow.
    pub flow: FlowId,
    /// Where its sender is.
    pub path: PathId,
    /// Its length; [`u64::MAX`]: without end.
    pub packets: u64,
    /// Packets that its sender pushes before it is asked for more.
    pub window: u64,
    /// Someone wants to know how far it is: [`SinkEvent::Progress`].
    pub relayed: bool,
}

/// Events of the receiving end of a baseline for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkEvent {
    /// From the receiver of one flow: all of it is here.
    Done,
    /// From the receiver of one flow: it will not be completed.
    Failed(ReceiverFailure),
    /// From a host's receiver of many flows: all packets below this one are here, for the relay that sends them on.
    Progress {
        /// The flow.
        flow: FlowId,
        /// How many are here without a gap.
        packets: u64,
    },
    /// From a host's receiver of many flows: all of this one is here.
    Complete {
        /// The flow.
        flow: FlowId,
    },
}
