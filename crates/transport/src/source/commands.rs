//! Commands from the driver to a source; its answers are events of its flows ([`SourceEvent`](crate::SourceEvent)).

use headwater_machine::Taker;
use headwater_units::{BitRate, BlockIndex, Bytes, Esi, FlowId, ObjectId, PathId};
use headwater_wire::Push;
use serde::{Deserialize, Serialize};

/// Commands from the driver to a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SourceCommand {
    /// The node holds this object; orders to push it can be followed.
    Hold {
        /// The object.
        object: ObjectId,
        /// Its size.
        bytes: Bytes,
    },
    /// The host no longer holds the object: its flows end and the controller is told.
    Withdraw {
        /// The object.
        object: ObjectId,
    },
    /// The block asked for by [`SourceEvent::Prepare`](crate::SourceEvent::Prepare) can be sent now.
    BlockReady {
        /// The flow.
        flow: FlowId,
        /// The block.
        block: BlockIndex,
        /// Whether repair symbols can be made too, without delay.
        repair: bool,
    },
    /// Answers [`SourceEvent::Opened`](crate::SourceEvent::Opened) where the order says where the receiver or the group is, or the driver knows: begin.
    /// A flow whose receiver does not pull begins with the first datagram of its receiver, but need not ask one that comes by
    /// this path whether it is there.
    FlowPath {
        /// The flow.
        flow: FlowId,
        /// Its path.
        path: PathId,
    },
    /// This host refuses to send datagrams on this path that are longer: its interface or route is, or has become, too
    /// narrow for them.
    TooLong {
        /// Which path.
        path: PathId,
        /// The longest that it sends, bytes above UDP.
        fits: u16,
    },
    /// The node is receiving this object, cut like this, and may send on what is here of it: flows with
    /// [`headwater_wire::FlowRole::Relay`] can be served from now on. Until [`SourceCommand::Hold`], or
    /// [`SourceCommand::Arriving`] with [`Arriving::Over`].
    Relay(Box<Relaying>),
    /// Progress in the reception of such an object.
    Arriving {
        /// The object.
        object: ObjectId,
        /// The change.
        what: Arriving,
    },
    /// Sets the rate limit of all flows together.
    Limit {
        /// As in [`SourceConfig::limit`](super::SourceConfig::limit).
        limit: Option<BitRate>,
    },
    /// An order to push that came from whoever has dialled this node, and not from its controller: such flows have shares of the table.
    PushOfCaller {
        /// The path that it came by.
        path: PathId,
        /// Who says it.
        caller: Taker,
        /// The order.
        push: Box<Push>,
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

/// Progress of an object that its receiver sends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arriving {
    /// All symbols of the block below this one are here, though not verified yet, and can be sent by flows that are asked for the block for
    /// the first time. Zero: none of them can be read any more.
    Partly {
        /// The block.
        block: BlockIndex,
        /// The first source symbol that is not here.
        below: Esi,
    },
    /// The block is here, verified, and can be prepared as one of an object that is held.
    Whole(BlockIndex),
    /// Nothing more will come, and what is here may vanish.
    Over,
}
