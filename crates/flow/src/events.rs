//! Events that a source and its flows send to the driver.

use core::net::SocketAddr;

use headwater_units::{BlockIndex, Bytes, FlowId, FlowKey, ObjectId, TaskId};
use headwater_wire::{Class, WhyUnscheduled};
use serde::{Deserialize, Serialize};

/// Events of a source, for the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SourceEvent {
    /// A flow begins: accept datagrams under its key.
    Opened(Box<Opened>),
    /// A flow is over: forget its key, its path and its blocks.
    Closed {
        /// The flow.
        flow: FlowId,
    },
    /// Symbols of this block will be named soon: read it, and build what repair symbols need if asked.
    Prepare {
        /// The flow.
        flow: FlowId,
        /// The block.
        block: BlockIndex,
        /// Repair symbols are wanted.
        repair: bool,
    },
    /// A scheduled flow sends nothing more, since its network does not compute rates as it seems. Its receivers are to be served otherwise;
    /// the controller is told too.
    FellBack {
        /// The flow, of a group or of one receiver.
        flow: FlowId,
        /// The evidence.
        why: WhyFallback,
    },
    /// No symbol of this block will be named again, unless it is prepared anew.
    Release {
        /// The flow.
        flow: FlowId,
        /// The block.
        block: BlockIndex,
    },
}

/// Evidence that no switch computes the rate of a scheduled flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyFallback {
    /// A receiver loses too many packets.
    Loss,
    /// A queue on the way to a receiver does not drain.
    StandingQueue,
}

impl WhyFallback {
    /// In the words of the wire.
    pub fn to_wire(self) -> WhyUnscheduled {
        match self {
            WhyFallback::Loss => WhyUnscheduled::Loss,
            WhyFallback::StandingQueue => WhyUnscheduled::StandingQueue,
        }
    }
}

/// A flow that a source has opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The flow.
    pub flow: FlowId,
    /// Its task.
    pub task: TaskId,
    /// Its key.
    pub key: FlowKey,
    /// The object that it sends.
    pub object: ObjectId,
    /// The object's size.
    pub bytes: Bytes,
    /// T.
    pub symbol_size: u16,
    /// Class in which its symbols queue.
    pub class: Class,
    /// Where the receiver or the group may be reached, best first, if the order says so.
    pub at: Vec<SocketAddr>,
}
