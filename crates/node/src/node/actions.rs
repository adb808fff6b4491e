//! What a node has its driver do.

use std::sync::Arc;

use headwater_machine::Packet;
use headwater_transport::{ReceiverEvent, SourceEvent};
use headwater_units::{FetchId, FlowId, ObjectId, PathId, SymbolId};
use headwater_wire::{Body, Control, Datagram, HeaderKey, Spoiled};

use crate::ProbeId;

/// An action for the driver, or an event.
pub enum NodeAction<P, A> {
    /// Send a datagram of a flow, under its key ([`Node::key`](super::Node::key)).
    Transmit {
        /// Who says it.
        by: By,
        /// What to send.
        packet: Packet,
    },
    /// Say this over a control link.
    Tell {
        /// Who says it.
        by: By,
        /// Which.
        path: PathId,
        /// What to say.
        control: Box<Control>,
    },
    /// Keep the payload of a symbol.
    Keep {
        /// The fetch that wants it.
        fetch: FetchId,
        /// The flow that brought it.
        flow: FlowId,
        /// Which symbol.
        symbol: SymbolId,
        /// The parcel that brought it; `None`: the datagram that was handed in last.
        parcel: Option<P>,
    },
    /// Something about a fetch. What it asks for is answered by [`Node::tell_fetch`](super::Node::tell_fetch), a path at once.
    Fetch(FetchId, ReceiverEvent),
    /// Something about what is sent. What it asks for is answered by [`Node::tell_source`](super::Node::tell_source); a path at once,
    /// if the driver knows one.
    Source(SourceEvent),
    /// A fetch's object is passed on while it comes: each block that is whole may be asked for by [`SourceEvent::Prepare`].
    Coming {
        /// The fetch.
        fetch: FetchId,
        /// The object.
        object: ObjectId,
    },
    /// An object is passed on no more.
    Gone {
        /// The object.
        object: ObjectId,
    },
    /// An object is not held any more, since a block of it cannot be read: it is not to be offered.
    Spoiled {
        /// The object.
        object: ObjectId,
        /// What has become of it.
        how: Spoiled,
    },
    /// The source sends on a tree from here: give it a path that leads nowhere else, at once.
    Lead {
        /// The tree.
        tree: FlowId,
    },
    /// Make a parcel of what this node says on a tree, under the tree's key ([`Node::tree_key`](super::Node::tree_key)), and answer with
    /// [`Node::from_here`](super::Node::from_here).
    Wrap(Datagram),
    /// Send a parcel to another node, as it is.
    Forward {
        /// The node.
        to: A,
        /// What to send.
        parcel: P,
    },
    /// Send a datagram of the control class that another node has made, as it is.
    Signal {
        /// Where to.
        to: A,
        /// The datagram.
        datagram: Arc<[u8]>,
    },
    /// Send a datagram of the control class that is no transfer's.
    Send(Box<SingleDatagram<A>>),
    /// A probing is over.
    Heard {
        /// Which.
        id: ProbeId,
        /// Members that have answered, by their flows, in the order of their answers.
        members: Vec<FlowId>,
    },
}

/// The part of a node that sends a packet, for drivers that give each part an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The source.
    Source,
    /// The receivers; which fetch, they say themselves
    /// ([`Receivers::speaker`](headwater_transport::receiver::Receivers::speaker)).
    Receivers,
    /// What stands between them.
    Node,
}

/// A datagram of no flow that a source or receivers have.
pub struct SingleDatagram<A> {
    /// Where to.
    pub to: To<A>,
    /// Its flow.
    pub flow: FlowId,
    /// Key of the flow.
    pub key: HeaderKey,
    /// What to say.
    pub body: Body,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To<A> {
    /// To a node.
    Node(A),
    /// To a group, by its path.
    Group(PathId),
}
