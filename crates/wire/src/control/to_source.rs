//! Messages to a source from the peer that made a flow: the controller of its task.

use core::net::SocketAddr;

use headwater_units::{BitRate, Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId, TaskId, Theta};
use serde::{Deserialize, Serialize};

use super::Delivery;
use super::address::resolve_address;
use super::limits::{MAX_ADDRESSES, MAX_FLOWS, check, weight};
use crate::Class;

/// A message to a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "control messages are rare, and travel boxed in a datagram's body"
)]
pub enum ToSource {
    /// A new flow, or the same again.
    Push(Push),
    /// The weight of a flow.
    SetTheta {
        /// The flow.
        flow: FlowId,
        /// Its weight.
        theta: Theta,
    },
    /// The flow is to send nothing until it is told to; the receiver has fallen silent.
    Pause {
        /// The flow.
        flow: FlowId,
    },
    /// The flow is to go on.
    Resume {
        /// The flow.
        flow: FlowId,
    },
    /// The flow is over.
    Stop {
        /// The flow.
        flow: FlowId,
    },
}

impl ToSource {
    /// The flow that it is about.
    pub fn flow(&self) -> FlowId {
        match self {
            ToSource::Push(push) => push.flow,
            ToSource::SetTheta { flow, .. }
            | ToSource::Pause { flow }
            | ToSource::Resume { flow }
            | ToSource::Stop { flow } => *flow,
        }
    }

    pub(super) fn resolve(&mut self, sender: SocketAddr) {
        if let ToSource::Push(push) = self {
            push.at.iter_mut().for_each(|at| *at = resolve_address(*at, sender));
        }
    }

    pub(super) fn within_bounds(&self) -> Result<(), &'static str> {
        match self {
            ToSource::Push(push) => {
                check(push.at.len() <= MAX_ADDRESSES, "too many addresses")?;
                check(push.index < push.of, "a malformed flow")?;
                let members = match &push.role {
                    FlowRole::Group { members } => members.len(),
                    FlowRole::Single | FlowRole::Member { .. } | FlowRole::Tree { .. } | FlowRole::Relay => 1,
                };
                check((1..=MAX_FLOWS).contains(&members), "too many flows, or none")?;
                weight(push.theta)
            }
            ToSource::SetTheta { theta, .. } => weight(*theta),
            ToSource::Pause { .. } | ToSource::Resume { .. } | ToSource::Stop { .. } => Ok(()),
        }
    }
}

/// The order to send one flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Push {
    /// The task it serves.
    pub task: TaskId,
    /// The flow.
    pub flow: FlowId,
    /// Object to send.
    pub object: ObjectId,
    /// The object's size.
    pub bytes: Bytes,
    /// T of this task.
    pub symbol_size: u16,
    /// The secret of the flow.
    pub key: FlowKey,
    /// The flow's weight to start with.
    pub theta: Theta,
    /// How its symbols queue.
    pub class: Class,
    /// Receiver; flows to the same node share their memory of the path.
    pub receiver: NodeId,
    /// Transport of the flow, which decides when a symbol leaves.
    pub delivery: Delivery,
    /// The source's place among `of` residue classes; a receiver that does not pull says so itself. In an overlay the stripe that it sends.
    pub index: u8,
    /// The number of residue classes; in an overlay that of stripes.
    pub of: u8,
    /// Where the receiver may be reached, best first; if nowhere, its first datagram tells. For a receiver that does not pull, the
    /// addresses that it has proved to be its own. Of a group: its address, and then that of a member, to which the same interface
    /// leads.
    pub at: Vec<SocketAddr>,
    /// Facts about its path; if absent, the source finds out.
    pub start: Option<Start>,
    /// Role of the flow among others.
    pub role: FlowRole,
}

/// Role of a flow among others (SCDP §III-E, Datacast §IV-B, overlays).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlowRole {
    /// One source, one receiver, nothing to do with others.
    #[default]
    Single,
    /// Its receiver gets its symbols by a group's flow: the pulls of this one count for that one.
    Member {
        /// The group's flow.
        group: FlowId,
    },
    /// The group's flow, which is pulled by its members only.
    Group {
        /// A flow for each receiver.
        members: Vec<FlowId>,
    },
    /// One of the trees of a group, `index` of `of` (Datacast §IV-B).
    Tree {
        /// Common id of all trees of the group.
        group: FlowId,
        /// The most that its links carry beside what the other trees want of them, in bits of symbols' datagrams (above UDP) per
        /// second, if that is known. The same order with another rate changes it.
        most: Option<BitRate>,
    },
    /// Its source is still receiving the object, or will, and passes on the symbols of each block in their order as they come; of a block
    /// that is asked for again, only once it has verified it.
    Relay,
}

/// Facts about a flow's path before anything was sent on it, by the statements of the nodes at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The flow's part of the links at its ends.
    pub rate: BitRate,
    /// The longer of the round trips of the two nodes to the controller.
    pub rtt: Duration,
}
