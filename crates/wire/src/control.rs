//! Control messages between nodes and the controller (PPUSH §III-A, docs/decisions/0029).
//!
//! Typed by who is told, idempotent and bounded. On real hosts they ride QUIC streams, in the simulator they are packets of the top
//! class; either way a message may be lost with its connection or come twice, so each one can be said again. Who may say which of them
//! is the door's to know, in `headwater_node`.
//! New variants go to the end of a release's list: the encoding (postcard) numbers them.

mod cast;
mod naming;
mod node;
mod signal;
mod to_controller;
mod to_node;
mod to_receiver;
mod to_source;

use core::net::{IpAddr, SocketAddr, SocketAddrV6};

use headwater_units::{NodeId, Theta};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use cast::{
    Cast, CastNews, CastWay, CastWish, FetchEnd, Fetched, FlowSecret, GroupInvitation, GroupQuestion,
    Invitation, MAX_NEWS, MAX_REASON, MemberNews, MemberStanding, TreeOrder, TreeRepair, WhyUnicast,
};
pub use naming::{Claim, ClaimRule, NameStands, Naming};
pub use node::{Holding, MAX_LABEL, MAX_LABELS, NodeInfo};
pub use signal::{MAX_SIGNALLED, Signal, SignalBranch, Signalled, TreeWay, answer_key, answer_tags};
pub use to_controller::{FlowReport, FlowView, MarkSignal, Request, ToController};
pub use to_node::ToNode;
pub use to_receiver::{FlowGrant, ToReceiver};
pub use to_source::{FlowRole, Push, Start, ToSource};

/// No control message is longer.
pub const MAX_CONTROL: usize = 64 << 10;
/// Names, racks and texts are at most this many bytes.
pub const MAX_NAME: usize = 1024;
/// Lists of flows have at most this many entries.
pub const MAX_FLOWS: usize = 256;
pub(crate) const MAX_ADDRESSES: usize = 16;

/// A control message, by who is told.
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

/// How the symbols of a task are spread over its sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpreadRule {
    /// Source i of M sends ESI = i + kM of every block (PPUSH §III-A).
    Residue,
    /// Source i of M sends the source symbols ESI = i + kM of every block, and nobody else ever does: an equal part of
    /// the task for each, decided once. What PPUSH compares itself with (§V-B, PPUSH(0,0) and PPUSH(0,1)); a task is as
    /// slow as its slowest source.
    Equal,
    /// The receiver lists blocks and ranges by measured rate (docs/decisions/0025).
    #[default]
    Listed,
}

/// Which transport brings a task's symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// Sources push, each at the rate that its path takes (PPUSH).
    #[default]
    Push,
    /// The receiver pulls symbol by symbol (SCDP).
    Pull {
        /// What each source pushes before it is asked for more, in symbols (SCDP §III-D, IW).
        initial_window: u16,
    },
    /// The receiver asks for symbols by name, up trees in which devices remember what passed (Datacast).
    Trees {
        /// Interests that it may have out in one tree (Datacast §V-B, w).
        credit: u16,
    },
}

impl Delivery {
    /// What results call it.
    pub fn name(self) -> &'static str {
        match self {
            Delivery::Push => "push",
            Delivery::Pull { .. } => "pull",
            Delivery::Trees { .. } => "trees",
        }
    }
}

/// What is wrong with a node's copy of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spoiled {
    /// The file is no longer the one that was hashed.
    Changed,
    /// It cannot be read any more.
    Unreadable,
    /// What it sends of it does not have the object's hash.
    Wrong,
}

/// Why a request is not granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// Nobody ever had it.
    UnknownObject,
    /// It is known, but no node that holds it is online.
    NoSource,
    /// The source cannot read it any more.
    Gone,
    /// The controller's table of tasks is full.
    Full,
    /// More receivers than one cast may have.
    TooMany,
    /// There is no node that could receive it.
    Nobody,
    /// It is to go by trees, and the controller was not told of a network.
    NoNetwork,
    /// It is to go by trees, and its source or all receivers but one are not where the controller's network has a host.
    OffNetwork,
    /// Nobody has a good copy: that of the last node that had one is spoiled. Also said of a task that is running.
    Spoiled {
        /// The node.
        node: NodeId,
        /// What is wrong with its copy.
        how: Spoiled,
    },
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The receiver has the object, verified.
    Done,
    /// The user stopped it.
    Cancelled,
    /// It could not be completed.
    Failed,
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

    /// Puts its sender's address into the place of every unspecified one: a node that listens everywhere knows none of its
    /// own, but whoever hears it has reached it at one. A control message is resolved by the process that it comes to, with the
    /// address at the other end of the link. So `0.0.0.0` and `::` mean the same in both directions: "where you reach me".
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

fn check(ok: bool, what: &'static str) -> Result<(), &'static str> {
    if ok { Ok(()) } else { Err(what) }
}

fn weight(theta: Theta) -> Result<(), &'static str> {
    check(theta.get().is_finite() && theta.get() > 0.0, "a theta that is no weight")
}

/// An address as its hearer can use it ([`Control::resolve`]).
pub fn resolve_address(at: SocketAddr, sender: SocketAddr) -> SocketAddr {
    match (at.ip().is_unspecified(), sender.ip().to_canonical()) {
        (false, _) => at,
        (true, IpAddr::V4(ip)) => SocketAddr::from((ip, at.port())),
        (true, IpAddr::V6(ip)) => {
            let scope = match sender {
                SocketAddr::V6(sender) => sender.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            SocketAddrV6::new(ip, at.port(), 0, scope).into()
        }
    }
}
