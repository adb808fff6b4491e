//! What a host decides, without I/O or clock of its own: a [`Node`], of its source, its receivers and what stands between them.
//!
//! | Machine | Decides |
//! |---|---|
//! | [`Peer`] | who may say what over a control link |
//! | [`Flows`] | whose a datagram is, and whether they may get it |
//! | [`PassingOn`] | what it passes on while it still receives it, and until when |
//! | [`Trees`] | which trees lead through this node and where their packets go on; whether its neighbours are there (Datacast §III, §V) |
//! | [`GroupProbes`] | who hears a multicast group |
//! | [`Invitations`] | which casts this node takes part in |
//!
//! Each is handed what happens and says what is to be done. A driver moves bytes and time.

mod door;
mod flows;
mod group_probes;
mod invitations;
mod node;
mod passing_on;
mod signals;
mod trees;

pub use door::{Peer, Refused, Role};
pub use flows::{Flows, For, Read, Unread};
pub use group_probes::{GroupAction, GroupProbes, GroupProbesConfig, ProbeId};
pub use invitations::{InvitationAction, Invitations};
pub use node::{Arrived, By, Node, NodeAction, NodeStats, Parcel, Room, SingleDatagram, To};
pub use passing_on::{Cut, PassingOn, Unreadable};
pub use trees::{TreeAction, Trees};
