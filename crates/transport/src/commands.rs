//! What sources and receivers are told, and what they tell.

use core::net::SocketAddr;
use core::ops::Range;

use headwater_units::{
    BitRate, BlockIndex, Bytes, FetchId, FlowId, FlowKey, NodeId, ObjectId, PathId, SymbolId, TaskId,
};
use headwater_wire::{Class, FlowGrant, Refusal};
use serde::{Deserialize, Serialize};

use crate::ppush::receiver::ReceiverConfig;

/// What the driver tells a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SourceCommand {
    /// The node holds this object; orders to push it can be followed.
    Hold {
        /// The object.
        object: ObjectId,
        /// Its size.
        bytes: Bytes,
    },
    /// It no longer does: its flows end and the controller is told.
    Withdraw {
        /// The object.
        object: ObjectId,
    },
    /// The block asked for by [`SourceEvent::Prepare`] can be sent now.
    BlockReady {
        /// The flow.
        flow: FlowId,
        /// The block.
        block: BlockIndex,
        /// Whether repair symbols can be made too, without delay.
        repair: bool,
    },
    /// Answers [`SourceEvent::Opened`] where the order says where the receiver or the group is, or the driver knows: begin.
    /// A flow whose receiver does not pull begins with the first datagram of its receiver, but need not ask one that comes by
    /// this path whether it is there.
    FlowPath {
        /// The flow.
        flow: FlowId,
        /// Its path.
        path: PathId,
    },
    /// This host refuses to send datagrams this way that are longer: its interface or route is, or has become, too
    /// narrow for them.
    TooLong {
        /// Which way.
        path: PathId,
        /// The longest that it sends, bytes above UDP.
        fits: u16,
    },
    /// The node is receiving this object, cut like this, and may send on what comes to it: flows with
    /// [`headwater_wire::FlowRole::Relay`] can be served from now on. Until [`SourceCommand::Hold`], or
    /// [`SourceCommand::Arriving`] with [`Arriving::Over`].
    Relay(Box<Relaying>),
    /// How the reception of such an object goes on.
    Arriving {
        /// The object.
        object: ObjectId,
        /// What has happened.
        what: Arriving,
    },
    /// All flows together send no faster than this from now on.
    Limit {
        /// As in [`SourceConfig::limit`](crate::source::SourceConfig::limit).
        limit: Option<BitRate>,
    },
}

/// An object that its receiver sends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relaying {
    /// The object.
    pub object: ObjectId,
    /// Its size.
    pub bytes: Bytes,
    /// T.
    pub symbol_size: u16,
    /// Blocks that are here already, verified.
    pub have: Vec<BlockIndex>,
}

/// What happens to an object that its receiver sends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arriving {
    /// A symbol of the class that this node passes on has come, and can be sent as long as its block is not taken away.
    Symbol(SymbolId),
    /// The symbols of a block cannot be read any more: it is being decoded.
    Decoding(BlockIndex),
    /// They can be read again: they do not determine the block yet.
    NeedsMore(BlockIndex),
    /// They were thrown away; what comes of the block from now on is all that there is of it.
    Anew(BlockIndex),
    /// The block is here, verified, and can be prepared as one of an object that is held.
    Whole(BlockIndex),
    /// Nothing more will come, and what is here may vanish.
    Over,
}

/// What a source tells the driver.
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
    /// Whoever this node passes an object on to wants so many symbols of a class of a block that is still coming, more than are
    /// its part: they are to be had where the class comes from ([`ReceiverCommand::Wanted`]).
    Wanted {
        /// The object.
        object: ObjectId,
        /// The block.
        block: BlockIndex,
        /// What its ESIs leave as a remainder when divided by the number of classes.
        class: u8,
        /// How many of the class, from its first one on.
        symbols: u32,
    },
    /// No symbol of this block will be named again, unless it is prepared anew.
    Release {
        /// The flow.
        flow: FlowId,
        /// The block.
        block: BlockIndex,
    },
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
    /// How its symbols queue.
    pub class: Class,
    /// Where the receiver or the group may be reached, best first, if the order says so.
    pub at: Vec<SocketAddr>,
}

/// Why a block is not there although enough symbols came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DecodeFailure {
    /// The symbols do not determine the block yet.
    NeedMore,
    /// The block decoded, but its bytes are not the object's: somebody lied, or memory failed.
    Corrupt,
}

/// A command to what a host receives with: to this one of its fetches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToFetch(pub FetchId, pub ReceiverCommand);

/// An event of what a host receives with: of this one of its fetches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FromFetch(pub FetchId, pub ReceiverEvent);

/// What the driver tells a host's receiving machine about one of its fetches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReceiverCommand {
    /// Begin it, under a number that no other fetch of the host has.
    Fetch(Box<ReceiverConfig>),
    /// The object is known and its disk space is there: begin.
    Start {
        /// Blocks wanted: all, or those that cover a byte range.
        wanted: Range<u32>,
        /// Blocks that are here already, ascending.
        have: Vec<BlockIndex>,
    },
    /// Answers [`ReceiverEvent::Bind`] and [`ReceiverEvent::Moved`]: datagrams of the flow go here.
    FlowPath {
        /// The flow.
        flow: FlowId,
        /// Its path.
        path: PathId,
    },
    /// The block is decoded, verified and kept.
    BlockDecoded {
        /// The block.
        block: BlockIndex,
    },
    /// The block asked for by [`ReceiverEvent::Decode`] could not be had.
    DecodeFailed {
        /// The block.
        block: BlockIndex,
        /// Why.
        failure: DecodeFailure,
    },
    /// Others, to whom what comes is passed on, want so many symbols of a class of a block.
    Wanted {
        /// The block.
        block: BlockIndex,
        /// As in [`SourceEvent::Wanted`].
        class: u8,
        /// How many of the class, from its first one on.
        symbols: u32,
    },
    /// Stop, say so to everybody, and end with [`ReceiverEvent::Failed`].
    Cancel,
}

/// What a host's receiving machine tells the driver about one of its fetches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReceiverEvent {
    /// The controller accepted: learn the object's block hashes, find room, answer with [`ReceiverCommand::Start`]. It may come again:
    /// the task begins anew, cut otherwise or by another transport, with the blocks that are whole.
    Accepted {
        /// The task.
        task: TaskId,
        /// What the name stands for.
        object: ObjectId,
        /// Its size.
        bytes: Bytes,
        /// T.
        symbol_size: u16,
    },
    /// A flow begins: accept datagrams under its key, find a path, answer with [`ReceiverCommand::FlowPath`].
    Bind(Box<Bind>),
    /// The source of a flow that has begun is reached elsewhere from now on: find a path, answer with [`ReceiverCommand::FlowPath`].
    Moved(Box<Bind>),
    /// A flow is over.
    Unbind {
        /// The flow.
        flow: FlowId,
    },
    /// Keep the payload of the symbol that was handed in last.
    Symbol {
        /// Which flow brought it.
        flow: FlowId,
        /// Which symbol.
        symbol: SymbolId,
    },
    /// Enough symbols are here: decode and verify.
    Decode {
        /// The block.
        block: BlockIndex,
    },
    /// Throw away what is here of this block and start it anew.
    Discard {
        /// The block.
        block: BlockIndex,
    },
    /// Nothing of this source is believed any more.
    Distrusted {
        /// The source.
        node: NodeId,
    },
    /// Every wanted block is here.
    Done,
    /// It will not be completed.
    Failed(ReceiverFailure),
    /// Everything was said to everybody: the fetch is forgotten.
    Ended,
}

/// A flow that a receiver expects, and where its source is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bind {
    /// The flow.
    pub flow: FlowId,
    /// Its source.
    pub node: NodeId,
    /// Where the source may be reached, best first.
    pub at: Vec<SocketAddr>,
    /// The key.
    pub key: FlowKey,
    /// The source is a receiver itself, and sends what comes to it.
    pub relays: bool,
    /// What comes by it is what this receiver passes on.
    pub passed_on: bool,
}

impl From<&FlowGrant> for Bind {
    fn from(grant: &FlowGrant) -> Self {
        Bind {
            flow: grant.flow,
            node: grant.node,
            at: grant.at.clone(),
            key: grant.key,
            relays: grant.relays,
            passed_on: grant.passed_on,
        }
    }
}

/// Why a receiver gives up. What is finished stays finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReceiverFailure {
    /// The controller did not answer.
    NoController,
    /// The controller said no.
    Refused(Refusal),
    /// Every source has fallen silent, and no other came.
    NoSource {
        /// Blocks that are still missing.
        missing: u32,
    },
    /// A block failed its hash too often.
    Corrupt {
        /// The block.
        block: BlockIndex,
    },
    /// The name now stands for another object than when the task began.
    Changed,
    /// The user stopped it.
    Cancelled,
}
