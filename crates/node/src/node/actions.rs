//! Actions that a node requests from its driver.

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
        /// The part of the node that sends it.
        by: By,
        /// The packet to send.
        packet: Packet,
    },
    /// Say this over a control link.
    Tell {
        /// The part of the node that sends it.
        by: By,
        /// The path.
        path: PathId,
        /// The message.
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
    /// Something about a fetch. [`Node::tell_fetch`](super::Node::tell_fetch) answers its requests, a path at once.
    Fetch(FetchId, ReceiverEvent),
    /// Something about what is sent. [`Node::tell_source`](super::Node::tell_source) answers its requests; a path at
    /// once, if the driver knows one.
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
        /// The change in the copy.
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
        /// The packet to send.
        parcel: P,
    },
    /// Send a datagram of the control class that another node has made, as it is.
    Signal {
        /// Destination.
        to: A,
        /// The datagram.
        datagram: Arc<[u8]>,
    },
    /// Send a datagram of the control class that is no transfer's.
    Send(Box<SingleDatagram<A>>),
    /// A probing is over.
    Heard {
        /// The probe.
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
    /// The node itself, which stands between them.
    Node,
}

/// A datagram of no flow that a source or receivers have.
pub struct SingleDatagram<A> {
    /// Destination.
    pub to: To<A>,
    /// Its flow.
    pub flow: FlowId,
    /// Key of the flow.
    pub key: HeaderKey,
    /// The message.
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
