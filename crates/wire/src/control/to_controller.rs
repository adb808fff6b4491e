//! Messages to a controller: from nodes that hold objects, from sources about their flows, from receivers about their
//! tasks, and from nodes that want a cast.

use core::net::SocketAddr;

use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FlowId, NodeId, ObjectId, Packets, Rank, Symbols, TaskId, Theta,
};
use serde::{Deserialize, Serialize};

use super::limits::{MAX_FLOWS, MAX_NAME, check, weight};
use super::{
    Cast, Claim, CoflowTotals, Delivery, Fetched, Holding, Naming, NodeInfo, Outcome, Refusal, Signalled,
    Spoiled, SpreadRule, StandingCast, Urgency,
};
use crate::Class;

/// A message to a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToController {
    // ---- a node, of itself
    /// Introduction of the node.
    Hello(NodeInfo),
    /// The node holds this object.
    Hold(Holding),
    /// The node no longer holds this object.
    Drop {
        /// The object.
        object: ObjectId,
    },
    /// The node's copy of this is no longer what it said, and the node holds it no longer.
    Spoiled {
        /// The object.
        object: ObjectId,
        /// Reason why the copy is of no use.
        how: Spoiled,
    },
    /// An object that the node holds has this name, as some controller has granted.
    Named(Naming),
    /// The node wants a name for an object that it holds.
    Claim(Claim),
    /// An object that the node holds has this name here no longer.
    Unname {
        /// The object.
        object: ObjectId,
        /// The name.
        name: String,
    },
    /// The node has a store, and fetches into it what it is invited to.
    Keeps,
    /// The node is about to stop. It is to get no new tasks, and those that it has go to others where others can take them; until then
    /// it goes on.
    Leaving,

    // ---- a receiver, of its tasks
    /// A receiver asks for an object.
    Request(Request),
    /// Progress, and a sign of life (PPUSH §III-A).
    Feedback {
        /// The task.
        task: TaskId,
        /// The first block that is not decoded.
        first_undecoded: BlockIndex,
        /// Symbols still needed in all: the remaining size v of Algorithm 1.
        needed: Symbols,
        /// The newest version of [`Flows`](super::ToReceiver::Flows) that arrived.
        flows_version: u32,
        /// Report of each flow.
        flows: Vec<FlowView>,
        /// Blocks wait for the receiver's decoder or disk: it is the limit, not the network.
        held_up: bool,
    },
    /// A source sent bytes that do not verify.
    Distrust {
        /// The task.
        task: TaskId,
        /// The source.
        node: NodeId,
    },
    /// The task is over.
    Fin {
        /// The task.
        task: TaskId,
        /// The outcome.
        outcome: Outcome,
    },

    // ---- a source, of its flows
    /// The flow is set up.
    Pushing {
        /// The flow.
        flow: FlowId,
    },
    /// The flow cannot be set up.
    PushRefused {
        /// The flow.
        flow: FlowId,
        /// The reason.
        reason: Refusal,
    },
    /// The flow is over.
    Stopped {
        /// The flow.
        flow: FlowId,
    },
    /// How the source's flows do.
    Report {
        /// All of them.
        flows: Vec<FlowReport>,
    },
    /// Members that have heard a group.
    GroupProbed {
        /// The flow on which they were asked.
        asked: FlowId,
        /// The flows of those that have answered.
        heard: Vec<FlowId>,
    },
    /// Number of symbols that have left on a group's flow.
    GroupSent {
        /// The flow.
        flow: FlowId,
        /// Symbols, as often as they were sent; their receivers do not matter.
        sent: Symbols,
    },

    // ---- a node on a tree
    /// The node does as this order of a tree says.
    TreeReady {
        /// The tree.
        tree: FlowId,
        /// The order's version.
        version: u32,
    },
    /// Neighbours on a tree are not heard of. Repeated while it is so.
    Silent {
        /// The tree.
        tree: FlowId,
        /// Where they are, as in the order; at most [`MAX_FLOWS`].
        neighbours: Vec<SocketAddr>,
        /// For how long the one that is silent for longest has been.
        since: Duration,
    },
    /// The answer to a signal.
    Signalled(Signalled),

    // ---- casts
    /// Somebody wants nodes to have an object.
    Cast(Cast),
    /// The node that wanted a cast wants it no more; copies that have arrived stay.
    StopCast {
        /// The cast.
        cast: u64,
    },
    /// Result of an invitation.
    Fetched(Fetched),
    /// Somebody wants nodes that join later to have an object too, or not any more.
    StandingCast {
        /// Drawn by the asker; the answer has the same number.
        number: u64,
        /// The cast.
        cast: StandingCast,
        /// It begins, or ends.
        stands: bool,
    },

    // ---- a source, of scheduled transfers
    /// How the source's transfers at computed rates do.
    Transfers {
        /// All of them.
        transfers: Vec<TransferReport>,
    },

    // ---- what matters beside others
    /// As [`ToController::Request`], and how much it matters.
    UrgentRequest(Request, Urgency),
    /// As [`ToController::Cast`], and how much it matters.
    UrgentCast(Cast, Urgency),

    // ---- the agent of a host, of what it fetches
    /// Totals of its coflows. Repeated; each is answered.
    Coflows(CoflowTotals),
}

impl ToController {
    pub(super) fn resolve(&mut self, sender: SocketAddr) {
        if let ToController::Hello(info) = self {
            info.resolve(sender);
        }
    }

    pub(super) fn within_bounds(&self) -> Result<(), &'static str> {
        match self {
            ToController::Hello(info) => info.within_bounds(),
            ToController::Hold(h) => {
                check(h.name.as_ref().is_none_or(|n| n.len() <= MAX_NAME), "too long a name")
            }
            ToController::Request(r) | ToController::UrgentRequest(r, _) => {
                check(r.name.len() <= MAX_NAME, "too long a name")
            }
            ToController::Feedback { flows, .. } => check(flows.len() <= MAX_FLOWS, "too many flows"),
            ToController::Report { flows } => {
                check(flows.len() <= MAX_FLOWS, "too many flows")?;
                check(
                    flows.iter().all(|f| f.window.get().is_finite() && f.mark_fraction.is_finite()),
                    "a number that is none",
                )?;
                flows.iter().try_for_each(|f| weight(f.theta))
            }
            ToController::Transfers { transfers } => {
                check(transfers.len() <= MAX_FLOWS, "too many transfers")
            }
            ToController::Cast(cast) | ToController::UrgentCast(cast, _) => cast.within_bounds(),
            ToController::StandingCast { cast, .. } => cast.within_bounds(),
            ToController::Coflows(totals) => totals.within_bounds(),
            ToController::Fetched(fetched) => fetched.within_bounds(),
            ToController::Signalled(signalled) => signalled.within_bounds(),
            ToController::Named(naming) => naming.within_bounds(),
            ToController::Claim(claim) => claim.within_bounds(),
            ToController::Unname { name, .. } => check(name.len() <= MAX_NAME, "too long a name"),
            ToController::Silent { neighbours, .. } => {
                check((1..=MAX_FLOWS).contains(&neighbours.len()), "too many addresses, or none")
            }
            ToController::GroupProbed { heard, .. } => check(heard.len() <= MAX_FLOWS, "too many flows"),
            ToController::Drop { .. }
            | ToController::Spoiled { .. }
            | ToController::Keeps
            | ToController::Leaving
            | ToController::Distrust { .. }
            | ToController::Fin { .. }
            | ToController::Pushing { .. }
            | ToController::PushRefused { .. }
            | ToController::Stopped { .. }
            | ToController::GroupSent { .. }
            | ToController::TreeReady { .. }
            | ToController::StopCast { .. } => Ok(()),
        }
    }
}

/// A receiver asks for an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Drawn by the receiver; the same number means the same request, repeated.
    pub request: u64,
    /// The URI: an object's name or id.
    pub name: String,
    /// The asking device.
    pub receiver: NodeId,
    /// Bytes of symbol that a datagram to the receiver carries.
    pub room: u16,
    /// How its symbols queue.
    pub class: Class,
    /// How the work is spread.
    pub spread: SpreadRule,
    /// At most this many sources; the controller's own limit if absent.
    pub max_sources: Option<u8>,
    /// Which transport it is to come by; if absent, the controller chooses. Where links are known, a first window that is stated
    /// here gives way to what they carry.
    pub delivery: Option<Delivery>,
    /// Headers of trimmed packets have come to this device: the network before it trims instead of dropping.
    pub trims: bool,
    /// It takes all of the object, and can pass on to other receivers what comes.
    pub passes_on: bool,
}

/// A receiver's report about a flow, to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowView {
    /// The flow.
    pub flow: FlowId,
    /// Useful bytes that came over it.
    pub bytes: Bytes,
    /// At this rate lately.
    pub rate: BitRate,
    /// Time for which nothing came although something was expected.
    pub silent: Duration,
    /// In an overlay: time for which others have been ahead while it brought little.
    pub behind: Duration,
}

/// A source's report about a flow, to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// The flow.
    pub flow: FlowId,
    /// The weight in force.
    pub theta: Theta,
    /// The window.
    pub window: Packets,
    /// Smoothed round-trip time, if measured.
    pub rtt: Option<Duration>,
    /// α of Eq. 1.
    pub mark_fraction: f64,
    /// The congestion signal.
    pub signal: MarkSignal,
    /// Symbols sent and never acknowledged.
    pub lost: Symbols,
    /// Whether the flow waits for its own disk or encoder rather than for the network.
    pub starved: bool,
}

/// A source's report about a transfer at computed rates, to the controller (PAM §III-A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferReport {
    /// The flow, of a group or of one receiver.
    pub flow: FlowId,
    /// Rate at which it sends; zero: it waits.
    pub rate: BitRate,
    /// Its position in line.
    pub rank: Rank,
    /// Bytes of symbols that are left to send.
    pub left: Bytes,
    /// Time for which it has waited for an offer; `None`: it sends, or has nothing to send.
    pub paused: Option<Duration>,
    /// The flow of the receiver that offers least, and its offer, once all have offered something.
    pub least: Option<(FlowId, BitRate)>,
}

/// Which congestion signal a flow goes by (docs/decisions/0001).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkSignal {
    /// Nothing was acknowledged yet.
    #[default]
    Unknown,
    /// Routers on the path mark CE.
    Ecn,
    /// No CE was ever seen, or it is bleached: a queueing delay above target counts as the mark.
    Delay,
}
