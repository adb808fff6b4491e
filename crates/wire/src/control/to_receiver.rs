//! Messages of a controller to a receiver that has asked it.

use core::net::SocketAddr;

use headwater_units::{Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId, TaskId};
use serde::{Deserialize, Serialize};

use super::address::resolve_address;
use super::limits::{MAX_ADDRESSES, MAX_FLOWS, check};
use super::{Delivery, Refusal};

/// A message to a receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToReceiver {
    /// The request is granted: the task's summary.
    Accepted {
        /// The request that this answers.
        request: u64,
        /// The task made for it.
        task: TaskId,
        /// Object that the name stands for.
        object: ObjectId,
        /// Its size.
        bytes: Bytes,
        /// T of this task.
        symbol_size: u16,
        /// How often the receiver should send [`Feedback`](super::ToController::Feedback).
        feedback_every: Duration,
        /// Of the list of flows ([`ToReceiver::Flows`]). A task that is running and is told a newer one begins anew, by these flows
        /// and with what it has: it goes on by another transport.
        version: u32,
        /// The flows to begin with.
        flows: Vec<FlowGrant>,
        /// Which transport they are of.
        delivery: Delivery,
    },
    /// The request is not granted.
    Refused {
        /// The request that this answers.
        request: u64,
        /// The reason.
        reason: Refusal,
    },
    /// The flows of the task are now these.
    Flows {
        /// The task.
        task: TaskId,
        /// Strictly increasing per task.
        version: u32,
        /// All of them.
        flows: Vec<FlowGrant>,
    },
    /// The end of the task is understood.
    FinAck {
        /// The task.
        task: TaskId,
    },
    /// There is no such task: the receiver has to ask again.
    UnknownTask {
        /// The task.
        task: TaskId,
    },
}

impl ToReceiver {
    pub(super) fn resolve(&mut self, sender: SocketAddr) {
        if let ToReceiver::Accepted { flows, .. } | ToReceiver::Flows { flows, .. } = self {
            let addresses = flows.iter_mut().flat_map(|grant| &mut grant.at);
            addresses.for_each(|at| *at = resolve_address(*at, sender));
        }
    }

    pub(super) fn within_bounds(&self) -> Result<(), &'static str> {
        match self {
            ToReceiver::Accepted { flows, .. } | ToReceiver::Flows { flows, .. } => {
                check(flows.len() <= MAX_FLOWS, "too many flows")?;
                check(flows.iter().all(|f| f.at.len() <= MAX_ADDRESSES && f.index < f.of), "a malformed flow")
            }
            ToReceiver::Refused { .. } | ToReceiver::FinAck { .. } | ToReceiver::UnknownTask { .. } => Ok(()),
        }
    }
}

/// The right to receive one flow: where its source is and the key they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowGrant {
    /// The flow.
    pub flow: FlowId,
    /// Its source.
    pub node: NodeId,
    /// Where the source's data socket may be reached, best first.
    pub at: Vec<SocketAddr>,
    /// The secret of the flow.
    pub key: FlowKey,
    /// The source's place among `of` residue classes; in an overlay the stripe that it brings.
    pub index: u8,
    /// The number of residue classes; in an overlay that of stripes.
    pub of: u8,
    /// The group's flow by which its symbols come, if the receiver belongs to a group; that flow has a grant of its own.
    pub group: Option<FlowId>,
    /// The source is a receiver of the object itself, and passes symbols on as they come to it. It has not verified them, unless they are
    /// of a block that is asked for again.
    pub relays: bool,
}
