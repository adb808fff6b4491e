//! Control messages between nodes and the controller (PPUSH §III-A, docs/decisions/0029).
//!
//! Typed by their receiver, idempotent and bounded. On real hosts they ride QUIC streams, in the simulator they are
//! packets of the top class; either way a message may be lost with its connection or come twice, so each one can be
//! repeated. Who may say which of them is the door's to know, in `headwater_node`. New variants go to the end of a
//! release's list: the encoding (postcard) numbers them.

mod address;
mod cast;
mod coflows;
mod limits;
mod naming;
mod node;
mod signal;
mod task;
mod to_controller;
mod to_node;
mod to_receiver;
mod to_source;

use core::net::SocketAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use address::{network_of, resolve_address};
pub use cast::{
    AtRates, Cast, CastNews, CastRoute, CastWish, FetchEnd, Fetched, FlowSecret, GroupInvitation,
    GroupQuestion, Invitation, MAX_NAMED, MAX_NEWS, MAX_REASON, MemberNews, MemberStanding, RateNews,
    StandingCast, TreeOrder, TreeRepair, WhyUnicast,
};
pub use coflows::{CoflowName, CoflowRank, CoflowTotal, CoflowTotals, MAX_COFLOWS, MAX_PAIRS, PairTotal};
pub use limits::{MAX_FLOWS, MAX_NAME, MAX_NAMES};
pub use naming::{Claim, ClaimRule, NameStands, Naming, WhyUnnamed};
pub use node::{Holding, MAX_LABEL, MAX_LABELS, NodeInfo};
pub use signal::{MAX_SIGNALLED, Signal, SignalBranch, Signalled, TreeUpdate, answer_key, answer_tags};
pub use task::{
    Delivery, Outcome, Precedence, RateTerms, Refusal, Spoiled, SpreadRule, TransferOrder, Urgency,
    WhyUnscheduled,
};
pub use to_controller::{FlowReport, FlowView, MarkSignal, Request, ToController, TransferReport};
pub use to_node::ToNode;
pub use to_receiver::{FlowGrant, ToReceiver};
pub use to_source::{FlowRole, Push, Start, ToSource};

/// No control message is longer.
pub const MAX_CONTROL: usize = 64 << 10;

/// A control message, by its receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// A controller.
    Controller(ToController),
    /// A node.
    Node(ToNode),
    /// The source of a flow.
    Source(ToSource),
    /// The receiver of a task.
    Receiver(ToReceiver),
}

impl Control {
    /// The version of messages from which on peers can read it.
    pub fn version(&self) -> u8 {
        match self {
            Control::Node(ToNode::NameRefused { .. }) => 4,
            _ => 3,
        }
    }
}

impl From<ToController> for Control {
    fn from(message: ToController) -> Self {
        Control::Controller(message)
    }
}

impl From<ToNode> for Control {
    fn from(message: ToNode) -> Self {
        Control::Node(message)
    }
}

impl From<ToSource> for Control {
    fn from(message: ToSource) -> Self {
        Control::Source(message)
    }
}

impl From<ToReceiver> for Control {
    fn from(message: ToReceiver) -> Self {
        Control::Receiver(message)
    }
}

/// Why bytes are not a control message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Longer than [`MAX_CONTROL`].
    #[error("control message of {0} bytes, at most {MAX_CONTROL} are allowed")]
    TooLong(usize),
    /// Not an encoding of any message.
    #[error("control message does not parse: {0}")]
    Encoding(String),
    /// A name or list beyond its bound, or a number that is none.
    #[error("control message with {0}")]
    Bound(&'static str),
}

impl Control {
    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        postcard::serialize_with_flavor(self, postcard::ser_flavors::Size::default())
            .expect("counting bytes cannot fail")
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.encoded_len()];
        self.emit_into(&mut out);
        out
    }

    pub(crate) fn emit_into(&self, out: &mut [u8]) {
        postcard::to_slice(self, out).expect("the buffer has the length of the encoding");
    }

    /// Reads a message from exactly these bytes.
    ///
    /// # Errors
    /// [`ControlError`]; whatever parses is within its bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        if bytes.len() > MAX_CONTROL {
            return Err(ControlError::TooLong(bytes.len()));
        }
        let (control, rest): (Control, _) =
            postcard::take_from_bytes(bytes).map_err(|e| ControlError::Encoding(e.to_string()))?;
        if !rest.is_empty() {
            return Err(ControlError::Encoding(format!("{} bytes too many", rest.len())));
        }
        control.within_bounds().map(|()| control).map_err(ControlError::Bound)
    }

    /// Puts its sender's address into the place of every unspecified one: a node that listens everywhere knows none of
    /// its own, but a hearer has reached it at one. A control message is resolved by the process that it comes to, with
    /// the address at the other end of the link. So `0.0.0.0` and `::` mean the same in both directions: "where you
    /// reach me".
    pub fn resolve(&mut self, sender: SocketAddr) {
        match self {
            Control::Controller(message) => message.resolve(sender),
            Control::Node(message) => message.resolve(sender),
            Control::Source(message) => message.resolve(sender),
            Control::Receiver(message) => message.resolve(sender),
        }
    }

    fn within_bounds(&self) -> Result<(), &'static str> {
        match self {
            Control::Controller(message) => message.within_bounds(),
            Control::Node(message) => message.within_bounds(),
            Control::Source(message) => message.within_bounds(),
            Control::Receiver(message) => message.within_bounds(),
        }
    }
}
