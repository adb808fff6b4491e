//! Commands from the driver to a host's receiving machine, and its events.

use core::net::SocketAddr;
use core::ops::Range;

use headwater_units::{
    BlockIndex, Bytes, FetchId, FlowId, FlowKey, NodeId, ObjectId, PathId, SymbolId, TaskId,
};
use headwater_wire::{FlowGrant, Refusal};
use serde::{Deserialize, Serialize};

use super::ReceiverConfig;

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

/// Commands from the driver about one of a host's fetches.
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
        /// The reason.
        failure: DecodeFailure,
    },
    /// Stop, tell sources and controller, and end with [`ReceiverEvent::Failed`].
    Cancel,
}

/// Events of one of a host's fetches, for the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReceiverEvent {
    /// The controller accepted: learn the object's block hashes, find room, answer with [`ReceiverCommand::Start`]. It may come again:
    /// the task begins anew, with the blocks that are whole: cut otherwise, or by another transport where what is here in part is of no
    /// use.
    Accepted {
        /// The task.
        task: TaskId,
        /// Object that the name stands for.
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
    /// All messages have been sent: the fetch is forgotten.
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
}

impl ReceiverEvent {
    /// A flow that has begun is granted again: the event for it if its source is elsewhere than it was known to be.
    pub fn moved(known: &mut Vec<SocketAddr>, grant: &FlowGrant) -> Option<Self> {
        // A controller that has restarted does not know where a source is until that is back.
        let is_news = !grant.at.is_empty() && *known != grant.at;
        is_news.then(|| {
            known.clone_from(&grant.at);
            ReceiverEvent::Moved(Box::new(Bind::from(grant)))
        })
    }
}

impl From<&FlowGrant> for Bind {
    fn from(grant: &FlowGrant) -> Self {
        Bind { flow: grant.flow, node: grant.node, at: grant.at.clone(), key: grant.key }
    }
}

/// Why a receiver gives up. Finished blocks stay finished.
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
    /// The source has given up, since the transfer's deadline cannot be met any more.
    Late {
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
