//! All decisions of a host, without I/O or clock of its own: a [`Node`] of its source, its receivers and the parts between them.
//!
//! | Machine | Decides |
//! |---|---|
//! | [`Peer`] | which control messages a peer may send over its link |
//! | [`Flows`] | the owner of each datagram, and whether it may get it |
//! | [`PassingOn`] | which objects are passed on while they arrive, and until when |
//! | [`Trees`] | which trees lead through this node and where their packets go on; whether its neighbours are alive (Datacast §III, §V) |
//! | [`GroupProbes`] | which members hear a multicast group |
//! | [`Invitations`] | which casts this node takes part in |
//!
//! Each takes inputs and returns actions. A driver moves bytes and time.

mod door;
mod flows;
mod group_probes;
mod invitations;
mod node;
mod passing_on;
mod reports;
mod signals;
mod trees;

pub use door::{Peer, Refused, Role};
pub use flows::{Flows, For, Read, Unread};
pub use group_probes::{GroupAction, GroupProbes, GroupProbesConfig, ProbeId};
pub use invitations::{BLOCKS_IN_FLIGHT, BLOCKS_OF_A_CAST, InvitationAction, Invitations};
pub use node::{Arrived, By, Node, NodeAction, NodeStats, Parcel, Room, SingleDatagram, To};
pub use passing_on::{Cut, PassingOn, Unreadable};
pub use trees::{TreeAction, Trees};
