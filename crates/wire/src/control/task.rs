//! How a task is served, why it is not, and how it ended.

use headwater_units::{BitRate, Duration, NodeId, Rank};
use serde::{Deserialize, Serialize};

/// How the symbols of a task are spread over its sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpreadRule {
    /// Source i of M sends ESI = i + kM of every block (PPUSH §III-A).
    Residue,
    /// Source i of M sends the source symbols ESI = i + kM of every block, and nobody else ever does: an equal part of
    /// the task for each, decided once. The rule that PPUSH compares itself with (§V-B, PPUSH(0,0) and PPUSH(0,1)); a
    /// task is as slow as its slowest source.
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
    /// Sources push a stripe of the object's blocks each, and all have windows of the same size. A source that is a receiver itself passes
    /// on symbols as they come to it (docs/decisions/0037).
    Overlay {
        /// Packets that each source may have in flight.
        window: u16,
    },
    /// The receiver pulls symbol by symbol (SCDP).
    Pull {
        /// Symbols that each source pushes before it is asked for more (SCDP §III-D, IW).
        initial_window: u16,
    },
    /// The receiver asks for symbols by name, up trees in which devices remember what passed (Datacast).
    Trees {
        /// Interests that it may have out in one tree (Datacast §V-B, w).
        credit: u16,
    },
    /// The source sends at the rate that the switches on the way compute (PAM). Of no use where they compute none.
    Rate {
        /// Receivers of the transfer.
        receivers: u16,
        /// From the order to send until the transfer should be complete, if it matters.
        deadline: Option<Duration>,
        /// Terms of a controller that knows the network; if absent, the source goes by its own settings.
        terms: Option<RateTerms>,
    },
}

/// Order of transfers (PAM Table I).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransferOrder {
    /// The one with the smallest remaining size times number of receivers.
    #[default]
    SmallestRemaining,
    /// The one whose deadline is next; those without a deadline, or that cannot meet it, go last.
    EarliestDeadline,
    /// The one that was asked for first.
    FirstCome,
    /// None before another.
    Fair,
    /// The one with the smallest stated number.
    Stated(Rank),
}

/// How a transfer stands to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Precedence {
    /// Order of transfers.
    pub order: TransferOrder,
    /// A transfer that cannot meet its deadline any more ends. Else it goes on.
    pub drops_late: bool,
}

/// How much a task or a cast matters beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Urgency {
    /// How it stands to them.
    pub precedence: Precedence,
    /// From the first time that it is asked for until it should be complete, if it matters.
    pub deadline: Option<Duration>,
}

/// A controller's terms of a transfer at computed rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateTerms {
    /// How it stands to others.
    pub precedence: Precedence,
    /// Rate of the source's link, if it is known: more is never granted.
    pub link: Option<BitRate>,
    /// Bytes that links carry around a datagram above UDP: rates count them.
    pub around: u16,
    /// How long switches that grant rates let packets wait on a way: a queue that stands for no longer is no sign that one does not.
    pub queue: Duration,
}

/// Why a transfer does not go, or goes no longer, at the rate that switches compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WhyUnscheduled {
    /// Nobody has said that the network's switches compute rates.
    NotStated,
    /// A receiver lost too much of what was sent.
    Loss,
    /// A queue stood on the way to a receiver.
    StandingQueue,
}

impl Delivery {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Delivery::Push => "push",
            Delivery::Overlay { .. } => "overlay",
            Delivery::Pull { .. } => "pull",
            Delivery::Trees { .. } => "trees",
            Delivery::Rate { .. } => "rate",
        }
    }
}

/// Reason why a node's copy of an object is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spoiled {
    /// The file is no longer the one that was hashed.
    Changed,
    /// It cannot be read any more.
    Unreadable,
    /// The bytes that it sends do not have the object's hash.
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
    /// It is another's, who alone may end it.
    NotYours,
    /// It is to go by trees, and the controller was not told of a network.
    NoNetwork,
    /// It is to go by trees, and its source or all receivers but one are not where the controller's network has a host.
    OffNetwork,
    /// It was to be sent at the rate that switches compute, and they compute none as it seems. Also said of a flow that runs.
    Unscheduled(WhyUnscheduled),
    /// Nobody has a good copy: that of the last node that had one is spoiled. Also said of a task that is running.
    Spoiled {
        /// The node.
        node: NodeId,
        /// Reason why its copy is of no use.
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
