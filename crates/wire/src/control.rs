//! Control messages between nodes and the controller (PPUSH §III-A, docs/decisions/0029).
//!
//! Typed, idempotent and bounded. On real hosts they ride QUIC streams, in the simulator they are packets of the top
//! class; either way a message may be lost with its connection or come twice, so each one can be said again.
//! New variants go to the end: the encoding (postcard) numbers them.

use core::net::{IpAddr, SocketAddr, SocketAddrV6};

use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId, Packets, Symbols, TaskId, Theta,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Cast, CastNews, Claim, Class, Fetched, GroupQuestion, Holding, Invitation, NameStands, Naming, NodeInfo,
    Signal, Signalled, TreeOrder,
};

/// No control message is longer.
pub const MAX_CONTROL: usize = 64 << 10;
/// Names, racks and texts are at most this many bytes.
pub const MAX_NAME: usize = 1024;
/// Lists of flows have at most this many entries.
pub const MAX_FLOWS: usize = 256;
pub(crate) const MAX_ADDRESSES: usize = 16;

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

/// What a flow whose receiver pulls is to others (SCDP §III-E).
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
        /// What all trees of the group call it.
        group: FlowId,
        /// The most that its links carry beside what the other trees want of them, in bits of symbols' datagrams (above UDP) per
        /// second, if that is known. The same order with another rate changes it.
        most: Option<BitRate>,
    },
    /// Its source is still receiving the object, or will, and sends symbols of the flow's class on as they come to it.
    Relay,
}

/// A receiver asks for an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Drawn by the receiver; the same number means the same request, said again.
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
    /// The source's place among `of` residue classes.
    pub index: u8,
    /// The number of residue classes.
    pub of: u8,
    /// The group's flow by which its symbols come, if the receiver belongs to a group; that flow has a grant of its own.
    pub group: Option<FlowId>,
    /// The source is a receiver of the object itself, and sends what comes to it.
    pub relays: bool,
    /// What comes by it this receiver passes on itself: it is of the receiver's own class, or of one that it takes into its rack.
    pub passed_on: bool,
}

/// What a controller knows of a flow's way before anything was sent on it, by what the nodes at its ends have stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The flow's part of the links at its ends.
    pub rate: BitRate,
    /// The longer of the round trips of the two nodes to the controller.
    pub rtt: Duration,
}

/// The order to send one flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Push {
    /// The task it serves.
    pub task: TaskId,
    /// The flow.
    pub flow: FlowId,
    /// What to send.
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
    /// Who receives; flows to the same node share what is known of the path.
    pub receiver: NodeId,
    /// Who decides when a symbol leaves.
    pub delivery: Delivery,
    /// The source's place among `of` residue classes; a receiver that does not pull says so itself.
    pub index: u8,
    /// The number of residue classes.
    pub of: u8,
    /// Where the receiver may be reached, best first; if nowhere, its first datagram tells. For a receiver that does not pull, the
    /// addresses that it has proved to be its own. Of a group: its address, and then that of a member, to which the same interface
    /// leads.
    pub at: Vec<SocketAddr>,
    /// What is known of its way; if nothing, the source finds out.
    pub start: Option<Start>,
    /// What the flow is to others.
    pub role: FlowRole,
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

/// What a source says of a flow, to the controller.
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

/// What a receiver says of a flow, to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowView {
    /// The flow.
    pub flow: FlowId,
    /// Useful bytes that came over it.
    pub bytes: Bytes,
    /// At this rate lately.
    pub rate: BitRate,
    /// Nothing came for this long although something was expected.
    pub silent: Duration,
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

/// A control message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Control {
    /// Node to controller: who I am.
    Hello(NodeInfo),
    /// Node to controller: I hold this.
    Hold(Holding),
    /// Node to controller: I no longer hold this.
    Drop {
        /// The object.
        object: ObjectId,
    },
    /// Receiver to controller.
    Request(Request),
    /// Controller to receiver: the acknowledgment and the task's summary.
    Accepted {
        /// The request that this answers.
        request: u64,
        /// The task made for it.
        task: TaskId,
        /// What the name stands for.
        object: ObjectId,
        /// Its size.
        bytes: Bytes,
        /// T of this task.
        symbol_size: u16,
        /// How often the receiver should send [`Control::Feedback`].
        feedback_every: Duration,
        /// Of the list of flows ([`Control::Flows`]). A task that is running and is told a newer one begins anew, by these flows
        /// and with what it has: it goes on by another transport.
        version: u32,
        /// The flows to begin with.
        flows: Vec<FlowGrant>,
        /// Which transport they are of.
        delivery: Delivery,
    },
    /// Controller to receiver: no.
    Refused {
        /// The request that this answers.
        request: u64,
        /// Why.
        reason: Refusal,
    },
    /// Controller to receiver: the flows of the task are now these.
    Flows {
        /// The task.
        task: TaskId,
        /// Strictly increasing per task.
        version: u32,
        /// All of them.
        flows: Vec<FlowGrant>,
    },
    /// Receiver to controller: progress, and a sign of life (PPUSH §III-A).
    Feedback {
        /// The task.
        task: TaskId,
        /// The first block that is not decoded.
        first_undecoded: BlockIndex,
        /// Symbols still needed in all: the remaining size v of Algorithm 1.
        needed: Symbols,
        /// The newest [`Control::Flows`] version that arrived.
        flows_version: u32,
        /// What came from whom.
        flows: Vec<FlowView>,
        /// Blocks wait for the receiver's decoder or disk: it is the limit, not the network.
        held_up: bool,
    },
    /// Receiver to controller: this source sent bytes that do not verify.
    Distrust {
        /// The task.
        task: TaskId,
        /// The source.
        node: NodeId,
    },
    /// Receiver to controller: the task is over.
    Fin {
        /// The task.
        task: TaskId,
        /// How.
        outcome: Outcome,
    },
    /// Controller to receiver: understood.
    FinAck {
        /// The task.
        task: TaskId,
    },
    /// Controller to receiver: no such task; ask again.
    UnknownTask {
        /// The task.
        task: TaskId,
    },
    /// Controller to source.
    Push(Push),
    /// Source to controller: the flow is set up.
    Pushing {
        /// The flow.
        flow: FlowId,
    },
    /// Source to controller: cannot.
    PushRefused {
        /// The flow.
        flow: FlowId,
        /// Why.
        reason: Refusal,
    },
    /// Controller to source: the weight of a flow.
    SetTheta {
        /// The flow.
        flow: FlowId,
        /// Its weight.
        theta: Theta,
    },
    /// Controller to source: send nothing until told; the receiver has fallen silent.
    Pause {
        /// The flow.
        flow: FlowId,
    },
    /// Controller to source: go on.
    Resume {
        /// The flow.
        flow: FlowId,
    },
    /// Controller to source: the flow is over.
    Stop {
        /// The flow.
        flow: FlowId,
    },
    /// Source to controller: it is.
    Stopped {
        /// The flow.
        flow: FlowId,
    },
    /// Source to controller: how its flows do.
    Report {
        /// All of them.
        flows: Vec<FlowReport>,
    },
    /// Node to controller: I have a store, and fetch into it what I am invited to.
    Keeps,
    /// Somebody to controller: nodes are to have an object.
    Cast(Cast),
    /// The same to controller: they are not to fetch it any more; what is there stays.
    StopCast {
        /// The cast.
        cast: u64,
    },
    /// Controller to whoever asked for a cast.
    Casting(Box<CastNews>),
    /// Controller to whoever asked for a cast: no.
    CastRefused {
        /// The cast.
        cast: u64,
        /// Why.
        reason: Refusal,
    },
    /// Controller to node.
    Fetch(Box<Invitation>),
    /// Controller to node: do not, or no more.
    StopFetch {
        /// The invitation's number.
        request: u64,
    },
    /// Node to controller.
    Fetched(Fetched),
    /// Controller to source.
    ProbeGroup(Box<GroupQuestion>),
    /// Source to controller: who has heard the group.
    GroupProbed {
        /// On which they were asked.
        asked: FlowId,
        /// The flows of those that have answered.
        heard: Vec<FlowId>,
    },
    /// Source to controller: so much has left on a group's flow.
    GroupSent {
        /// The flow.
        flow: FlowId,
        /// Symbols, as often as they were sent; whoever receives them does not matter.
        sent: Symbols,
    },
    /// Controller to a node on a tree.
    PlantTree(Box<TreeOrder>),
    /// Node to controller: it does as that order of a tree says.
    TreeReady {
        /// The tree.
        tree: FlowId,
        /// The order's version.
        version: u32,
    },
    /// Controller to a node: the tree is no more, or does not lead here any more.
    FellTree {
        /// The tree.
        tree: FlowId,
    },
    /// Node to controller: neighbours on a tree are not heard of. Said again while it is so.
    Silent {
        /// The tree.
        tree: FlowId,
        /// Where they are, as in the order; at most [`MAX_FLOWS`].
        neighbours: Vec<SocketAddr>,
        /// For how long the one that is silent for longest has been.
        since: Duration,
    },
    /// Controller to a node on a tree, which sends its parts on.
    Signal(Box<Signal>),
    /// The answer.
    Signalled(Signalled),
    /// Node to controller: an object that it holds has this name, as some controller has granted.
    Named(Naming),
    /// Node to controller.
    Claim(Claim),
    /// Controller to node.
    NameStands(Box<NameStands>),
    /// Node to controller: an object that it holds has this name here no longer.
    Unname {
        /// The object.
        object: ObjectId,
        /// The name.
        name: String,
    },
    /// Node to controller: I am about to stop. Give me no new tasks, and those that I have to others where others can take them; until
    /// then I go on.
    Leaving,
    /// Node to controller: my copy of this is no longer what I said, and I hold it no longer.
    Spoiled {
        /// The object.
        object: ObjectId,
        /// What is wrong with the copy.
        how: Spoiled,
    },
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
        control.within_bounds().map(|()| control)
    }

    /// Puts its sender's address into the place of every unspecified one: a node that listens everywhere knows none of its
    /// own, but whoever hears it has reached it at one. A control message is resolved by the process that it comes to, with the
    /// address at the other end of the link. So `0.0.0.0` and `::` mean the same in both directions: "where you reach me".
    pub fn resolve(&mut self, sender: SocketAddr) {
        let resolve = |at: &mut SocketAddr| *at = resolve_address(*at, sender);
        match self {
            Control::Hello(info) => info.resolve(sender),
            Control::Accepted { flows, .. } | Control::Flows { flows, .. } => {
                flows.iter_mut().flat_map(|grant| &mut grant.at).for_each(resolve);
            }
            Control::Push(push) => push.at.iter_mut().for_each(resolve),
            Control::Fetch(invitation) => {
                invitation.group.iter_mut().map(|group| &mut group.source).for_each(resolve);
            }
            Control::ProbeGroup(question) => resolve(&mut question.towards),
            // No others carry addresses, but for orders about trees: those are the addresses of the controller's network.
            _ => {}
        }
    }

    fn within_bounds(&self) -> Result<(), ControlError> {
        let check = |ok: bool, what| if ok { Ok(()) } else { Err(ControlError::Bound(what)) };
        let theta = |t: Theta| check(t.get().is_finite() && t.get() > 0.0, "a theta that is no weight");
        let grants = |flows: &[FlowGrant]| {
            check(flows.len() <= MAX_FLOWS, "too many flows")?;
            check(flows.iter().all(|f| f.at.len() <= MAX_ADDRESSES && f.index < f.of), "a malformed flow")
        };
        let within = |bound: Result<(), &'static str>| bound.map_err(ControlError::Bound);
        match self {
            Control::Hello(info) => within(info.within_bounds()),
            Control::Hold(h) => check(h.name.as_ref().is_none_or(|n| n.len() <= MAX_NAME), "too long a name"),
            Control::Request(r) => check(r.name.len() <= MAX_NAME, "too long a name"),
            Control::Accepted { flows, .. } | Control::Flows { flows, .. } => grants(flows),
            Control::Feedback { flows, .. } => check(flows.len() <= MAX_FLOWS, "too many flows"),
            Control::Push(push) => {
                check(push.at.len() <= MAX_ADDRESSES, "too many addresses")?;
                check(push.index < push.of, "a malformed flow")?;
                let members = match &push.role {
                    FlowRole::Group { members } => members.len(),
                    FlowRole::Single | FlowRole::Member { .. } | FlowRole::Tree { .. } | FlowRole::Relay => 1,
                };
                check((1..=MAX_FLOWS).contains(&members), "too many flows, or none")?;
                theta(push.theta)
            }
            Control::SetTheta { theta: t, .. } => theta(*t),
            Control::Report { flows } => {
                check(flows.len() <= MAX_FLOWS, "too many flows")?;
                check(
                    flows.iter().all(|f| f.window.get().is_finite() && f.mark_fraction.is_finite()),
                    "a number that is none",
                )?;
                flows.iter().try_for_each(|f| theta(f.theta))
            }
            Control::Cast(cast) => within(cast.within_bounds()),
            Control::Casting(news) => within(news.within_bounds()),
            Control::Fetch(invitation) => within(invitation.within_bounds()),
            Control::Fetched(fetched) => within(fetched.within_bounds()),
            Control::ProbeGroup(question) => within(question.within_bounds()),
            Control::PlantTree(order) => within(order.within_bounds()),
            Control::Signal(signal) => within(signal.within_bounds()),
            Control::Signalled(signalled) => within(signalled.within_bounds()),
            Control::Named(naming) => within(naming.within_bounds()),
            Control::Claim(claim) => within(claim.within_bounds()),
            Control::NameStands(stands) => within(stands.within_bounds()),
            Control::Unname { name, .. } => check(name.len() <= MAX_NAME, "too long a name"),
            Control::Silent { neighbours, .. } => {
                check((1..=MAX_FLOWS).contains(&neighbours.len()), "too many addresses, or none")
            }
            Control::GroupProbed { heard, .. } => check(heard.len() <= MAX_FLOWS, "too many flows"),
            Control::Keeps
            | Control::Leaving
            | Control::GroupSent { .. }
            | Control::TreeReady { .. }
            | Control::FellTree { .. }
            | Control::StopCast { .. }
            | Control::CastRefused { .. }
            | Control::StopFetch { .. }
            | Control::Drop { .. }
            | Control::Spoiled { .. }
            | Control::Refused { .. }
            | Control::Distrust { .. }
            | Control::Fin { .. }
            | Control::FinAck { .. }
            | Control::UnknownTask { .. }
            | Control::Pushing { .. }
            | Control::PushRefused { .. }
            | Control::Pause { .. }
            | Control::Resume { .. }
            | Control::Stop { .. }
            | Control::Stopped { .. } => Ok(()),
        }
    }
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
