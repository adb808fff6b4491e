//! Messages about a cast: one object that many nodes are to have (SCDP §III-E, the controller's part).
//!
//! ```text
//!   whoever asks -- Cast, UrgentCast, -> controller -- Fetch, StopFetch --> nodes
//!                   StopCast                     <- Request, Fetched ----
//!                <- Casting, -------             -- ProbeGroup --------> source
//!                   CastAtRates,                 <- GroupProbed --------
//!                   CastRefused                  <- Transfers ----------
//!                                                -- TreeOrder, RemoveTree -> nodes on trees
//!                                                <- TreeReady, Silent ---
//!                                                -- Signal ------------> source, and from node to node
//!                                                <- Signalled ----------
//! ```
//! The parts of [`Control`](crate::Control) that only this needs.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_units::{BitRate, Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId};
use serde::{Deserialize, Serialize};

use super::limits::{MAX_FLOWS, MAX_NAME, check};
use super::node::{MAX_LABEL, MAX_LABELS, NodeInfo};
use super::task::WhyUnscheduled;
use crate::Class;

/// Most receivers that a [`CastNews`] tells of; the next one tells of others.
pub const MAX_NEWS: usize = 64;
/// Most receivers that a [`Cast`] names; the next one names others.
pub const MAX_NAMED: usize = 1024;
/// Most bytes of the reason why a receiver has failed.
pub const MAX_REASON: usize = 512;

/// A flow, and the key that those who know it share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSecret {
    /// Its name.
    pub flow: FlowId,
    /// Its key.
    pub key: FlowKey,
}

/// Somebody asks that nodes fetch an object into their stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cast {
    /// Drawn by the asker; the same number means the same cast, asked for again.
    pub cast: u64,
    /// The URI: an object's name or id.
    pub name: String,
    /// Receivers, at most [`MAX_NAMED`] in one message; if nobody is named, all nodes that keep objects.
    pub to: Vec<NodeId>,
    /// Where these begin among all that are to have it: of more than a message has room for each part says all of this
    /// ([`Cast::into_parts`]), the first part first.
    pub first: u32,
    /// How many are named in all; zero: nobody is.
    pub of: u32,
    /// How its symbols queue.
    pub class: Class,
    /// How they are to travel.
    pub wish: CastWish,
}

/// A cast that goes on: nodes that join later and carry its labels are sent the object too, which a name may change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StandingCast {
    /// The URI: an object's name or id.
    pub name: String,
    /// The labels that a node must carry, all of them; without any all nodes that keep objects are meant.
    pub labels: BTreeMap<String, String>,
}

/// How the asker wants a cast to travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CastWish {
    /// The best that works.
    #[default]
    Best,
    /// Each receiver by itself.
    Unicast,
    /// By the group's address.
    Multicast,
    /// By trees of receivers, which pass on what comes.
    Overlay,
    /// Down the trees of the controller's network, or not at all.
    Trees,
    /// By the group's address at the rate that switches compute, where the controller's network says that they do, or not at all.
    Rates,
}

/// Controller to node: fetch this into your store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The number under which to ask for it ([`Request::request`](crate::Request)); another number is another invitation.
    pub request: u64,
    /// Name to keep it under.
    pub name: String,
    /// Object that must arrive.
    pub object: ObjectId,
    /// How its symbols queue.
    pub class: Class,
    /// The group by which it may come: to be joined at once, and its probes answered.
    pub group: Option<GroupInvitation>,
}

/// A multicast group that a receiver is to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInvitation {
    /// Its address and port.
    pub at: SocketAddr,
    /// Where its source's data socket is: the group is joined on the interface that leads there.
    pub source: SocketAddr,
    /// On which all members are asked whether they hear the group.
    pub asked: FlowSecret,
    /// On which this one answers.
    pub own: FlowSecret,
}

/// Controller to source: do these members hear the group?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupQuestion {
    /// The group's address and port.
    pub at: SocketAddr,
    /// The data socket of a member: the group is reached by the interface that leads there.
    pub towards: SocketAddr,
    /// On which all are asked.
    pub asked: FlowSecret,
    /// On which each answers.
    pub members: Vec<FlowSecret>,
    /// How long the question is, above UDP.
    pub bytes: u16,
}

/// Controller to a node on a tree of Datacast: the neighbours that it asks, and those that it answers (Datacast §V-A).
/// A newer version replaces an older one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeOrder {
    /// The tree, and the key that all its nodes share.
    pub tree: FlowSecret,
    /// Counts the orders of a tree.
    pub version: u32,
    /// T.
    pub symbol_size: u16,
    /// Where the next node towards the source is; `None`: the source is here.
    pub parent: Option<SocketAddr>,
    /// The branches that lead on, at most [`MAX_FLOWS`] addresses in all: each to the nodes that are reached by it. A device between them
    /// and here passes on one of their interests of several that are equal.
    pub branches: Vec<Vec<SocketAddr>>,
    /// This node receives what comes down.
    pub receives: bool,
    /// Bytes of symbols that are kept where more than one branch leads on.
    pub store: Bytes,
    /// How often neighbours are told that this node is there, and are to be heard of; zero: never.
    pub heartbeat: Duration,
    /// The node's own flow, on which later versions may come by way of other nodes ([`Signal`](crate::Signal)); the same for all trees
    /// of a cast.
    pub signals: FlowSecret,
}

/// Timing and extent of a repair of a cast's trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeRepair {
    /// From the cast's beginning to the first word of a neighbour that had fallen silent.
    pub after: Duration,
    /// For how long it had been silent then.
    pub silent: Duration,
    /// From that word to the new trees.
    pub decided: Duration,
    /// From then on until all nodes had confirmed them; `None`: not yet.
    pub told: Option<Duration>,
    /// Cables that count as cut.
    pub cut: u16,
    /// Trees that were rerouted.
    pub rebuilt: u16,
    /// Trees for which there was no path of their own: they share that of another.
    pub shared: u16,
    /// Nodes that were told down a tree of signals.
    pub signalled: u16,
    /// Of these, the ones that did not answer that way, and were then told by their own connection.
    pub unanswered: u16,
}

/// Node to controller: what came of an invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// The invitation's number.
    pub request: u64,
    /// How it ended.
    pub end: FetchEnd,
    /// Useful payload that a group's flow has brought.
    pub by_group: Bytes,
    /// Useful payload that flows of its own have brought.
    pub by_unicast: Bytes,
    /// Of that, what other receivers have passed on.
    pub relayed: Bytes,
    /// Nodes whose own flows have brought parts of that, and how much each; at most [`MAX_FLOWS`] nodes.
    pub from: Vec<(NodeId, Bytes)>,
    /// If the object is a folder's manifest, the size of the files that it lists, all of which are there; else zero.
    pub files: Bytes,
}

/// How a fetch ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchEnd {
    /// It was here already.
    Had,
    /// It is here, verified and kept.
    Kept,
    /// It is not, for this reason, in words.
    Failed(String),
}

/// Why receivers are served one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyUnicast {
    /// The asker wanted it so.
    Wished,
    /// There are not two of them to be served.
    TooFew,
    /// There are more of them than a group has members, or trees receivers.
    TooMany,
    /// The controller has no group addresses to give.
    NoGroups,
    /// Fewer than two of the asked receivers have heard the group.
    Unheard {
        /// How many were asked.
        of: u16,
    },
    /// The source did not say which members heard it, or could not send to it.
    Source,
    /// No tree of the network leads to two of them.
    NoTrees,
}

/// How a cast's symbols travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CastRoute {
    /// It is not known yet.
    Open,
    /// Each once, to a group.
    Multicast {
        /// Its address.
        at: SocketAddr,
        /// Number of its receivers.
        members: u16,
        /// Of so many that were asked whether they hear it.
        of: u16,
    },
    /// To each receiver by itself.
    Unicast(WhyUnicast),
    /// Down trees of a network that is known (Datacast).
    Trees {
        /// Number of trees, which share no link.
        trees: u16,
        /// Number of receivers on them.
        members: u16,
        /// Of so many that are to have it.
        of: u16,
        /// From the source to the last receiver, nodes that hand on count one each.
        hops: u16,
    },
    /// Each stripe of the object's blocks down a tree of receivers, which pass symbols on as they come.
    Overlay {
        /// Number of receivers.
        members: u16,
        /// Why not to a group.
        why: WhyUnicast,
        /// Number of racks with several receivers: each part enters those once, and is handed on within.
        racks: u16,
    },
    /// Each once, to a group, at the rate that switches compute (PAM).
    Rates {
        /// Its address.
        at: SocketAddr,
        /// Number of its receivers.
        members: u16,
        /// Of so many that were asked whether they hear it.
        of: u16,
    },
}

/// Where a receiver of a cast stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberStanding {
    /// Nobody is there under its name, or no longer.
    Away,
    /// It was told to fetch.
    Invited,
    /// Symbols come.
    Receiving,
    /// It had the object already.
    Had,
    /// It has the object now, verified.
    Kept,
    /// It could not, for this reason.
    Failed(String),
}

/// State of one receiver of a cast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberNews {
    /// The receiver.
    pub node: NodeId,
    /// Where it stands.
    pub standing: MemberStanding,
    /// It belongs to the group, or did.
    pub grouped: bool,
    /// How much of the object is there; of a folder at the end, with its files.
    pub bytes: Bytes,
    /// Useful payload that the group's flow has brought; known at its end.
    pub by_group: Bytes,
    /// Useful payload that flows of its own have brought; known at its end.
    pub by_unicast: Bytes,
    /// Of that, what other receivers have passed on; known at its end.
    pub relayed: Bytes,
    /// Useful payload that others have got of it by flows of their own, as far as they have ended.
    pub passed_on: Bytes,
    /// From the cast's beginning to its end, or so far.
    pub after: Duration,
}

/// Controller to the asker of a cast that goes at computed rates, or did: how it does. Said with [`CastNews`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtRates {
    /// It goes so.
    Goes(RateNews),
    /// It goes so no longer, for this reason.
    Left(WhyUnscheduled),
}

/// How a cast at computed rates does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateNews {
    /// Rate at which its source sends.
    pub rate: BitRate,
    /// The receiver whose path grants least, and how much.
    pub least: Option<(NodeId, BitRate)>,
    /// Time for which the source has waited for an offer.
    pub paused: Option<Duration>,
    /// A cast that goes before it and is being sent, if it waits: its number.
    pub behind: Option<u64>,
    /// From the cast's beginning until all will have it, at this rate.
    pub finish: Option<Duration>,
}

/// Controller to the asker: how a cast does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastNews {
    /// The cast.
    pub cast: u64,
    /// Object that its name stands for.
    pub object: ObjectId,
    /// The object's size.
    pub bytes: Bytes,
    /// If the object is a folder's manifest, the size of the files that it lists, once a receiver has said so; else zero.
    pub files: Bytes,
    /// Node that sends it.
    pub source: NodeId,
    /// How it travels.
    pub route: CastRoute,
    /// Payload that the source has sent to the group, as far as it has said.
    pub to_group: Bytes,
    /// Useful payload that receivers have got by flows of their own from nodes that are none themselves; at most [`MAX_NEWS`].
    pub given: Vec<(NodeId, Bytes)>,
    /// Of what receivers have got by flows of their own, that which came from another rack; `None`: no receiver says in which rack it
    /// stands.
    pub between_racks: Option<Bytes>,
    /// Receivers, at most [`MAX_NEWS`] of them: those of which there is something new, and others in turn. At the end all are told of.
    pub members: Vec<MemberNews>,
    /// How many there are in all.
    pub of: u32,
    /// Of these, the ones that have the object.
    pub done: u32,
    /// Number of receivers that will not get it.
    pub failed: u32,
    /// How much of the object the one has that is behind all others; all of it, if all are through.
    pub behind: Bytes,
    /// Repairs of its trees, the newest at most [`MAX_NEWS`].
    pub repairs: Vec<TreeRepair>,
    /// Nothing more will happen, and all receivers have been told of.
    pub over: bool,
}

/// Ok, or the field that is out of bounds.
type Bound = Result<(), &'static str>;

impl Cast {
    /// The same wish, in as many messages as its receivers need.
    pub fn into_parts(self) -> Vec<Cast> {
        let of = u32::try_from(self.to.len()).unwrap_or(u32::MAX);
        let starts = (0..).step_by(MAX_NAMED);
        let part = |(first, to): (u32, &[NodeId])| Cast {
            name: self.name.clone(),
            to: to.to_vec(),
            first,
            of,
            ..self
        };
        match of {
            0 => vec![part((0, &[]))],
            _ => starts.zip(self.to.chunks(MAX_NAMED)).map(part).collect(),
        }
    }

    pub(crate) fn within_bounds(&self) -> Bound {
        check(self.name.len() <= MAX_NAME, "too long a name")?;
        check(self.to.len() <= MAX_NAMED, "too many receivers")?;
        let end = u64::from(self.first) + self.to.len() as u64;
        check(
            end <= u64::from(self.of) && self.to.is_empty() == (self.of == 0),
            "a malformed list of receivers",
        )
    }
}

impl StandingCast {
    /// Whether this node is meant.
    pub fn is_for(&self, node: &NodeInfo) -> bool {
        self.labels.iter().all(|(key, value)| node.label(key) == Some(value))
    }

    pub(crate) fn within_bounds(&self) -> Bound {
        check(self.name.len() <= MAX_NAME, "too long a name")?;
        check(self.labels.len() <= MAX_LABELS, "too many labels")?;
        let fits = |(key, value): (&String, &String)| key.len() <= MAX_LABEL && value.len() <= MAX_LABEL;
        check(self.labels.iter().all(fits), "too long a label")
    }
}

impl Invitation {
    pub(crate) fn within_bounds(&self) -> Bound {
        check(self.name.len() <= MAX_NAME, "too long a name")
    }
}

impl GroupQuestion {
    pub(crate) fn within_bounds(&self) -> Bound {
        check(self.members.len() <= MAX_FLOWS, "too many flows")
    }
}

impl TreeOrder {
    pub(crate) fn within_bounds(&self) -> Bound {
        let addresses: usize = self.branches.iter().map(Vec::len).sum();
        check(addresses <= MAX_FLOWS && self.branches.len() <= MAX_FLOWS, "too many branches")?;
        check(self.branches.iter().all(|branch| !branch.is_empty()), "a branch that leads nowhere")
    }
}

impl Fetched {
    pub(crate) fn within_bounds(&self) -> Bound {
        check(self.from.len() <= MAX_FLOWS, "too many sources")?;
        match &self.end {
            FetchEnd::Failed(reason) => check(reason.len() <= MAX_REASON, "too long a reason"),
            FetchEnd::Had | FetchEnd::Kept => Ok(()),
        }
    }
}

impl CastNews {
    pub(crate) fn within_bounds(&self) -> Bound {
        check(self.members.len() <= MAX_NEWS, "too many receivers")?;
        check(self.repairs.len() <= MAX_NEWS, "too many repairs")?;
        check(self.given.len() <= MAX_NEWS, "too many sources")?;
        let fits = |member: &MemberNews| match &member.standing {
            MemberStanding::Failed(reason) => reason.len() <= MAX_REASON,
            _ => true,
        };
        check(self.members.iter().all(fits), "too long a reason")
    }
}
