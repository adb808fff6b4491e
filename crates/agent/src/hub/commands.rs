//! Commands and events of the hub.

use headwater_transport::courier::LaneId;
use headwater_units::{Bytes, FlowId, NodeId, Rank};

use super::{CoflowId, SessionId, Wanted};
use crate::client_frames::FromAgent;
use crate::peer_frames::{FromFetcher, FromSource};

/// A program wants a flow.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) session: SessionId,
    /// As the program calls it.
    pub(crate) name: u64,
    pub(crate) user: u32,
    /// The host that has it, if the agent knows that host.
    pub(crate) peer: Option<NodeId>,
    pub(crate) wanted: Wanted,
    /// Bytes that the program has room for.
    pub(crate) credit: Bytes,
}

/// Commands to the hub; blocks are of type `B`.
#[derive(Debug)]
pub(crate) enum HubCommand<B> {
    /// A program wants a flow.
    Fetch(Box<Fetch>),
    /// It has room for more of it.
    Credit { session: SessionId, name: u64, bytes: Bytes },
    /// It does not want it any more.
    Cancel { session: SessionId, name: u64 },
    /// Bytes of flows that were written to programs, or will never be.
    Drained(Vec<(FlowId, u64)>),
    /// A program is gone: what it is told from now on, nobody hears.
    Gone { session: SessionId },
    /// A scheduler has spoken.
    Ranks(Vec<(CoflowId, Rank)>),
    /// Something has happened in this connection of a lane.
    Lane { lane: LaneId, epoch: u64, what: FromLane<B> },
}

/// Events of a lane.
#[derive(Debug)]
pub(crate) enum FromLane<B> {
    /// The peer serves this host.
    Up,
    /// The peer has said something.
    Frame(FromSource),
    /// Bytes of a flow.
    Block { flow: u64, offset: Bytes, block: B },
    /// The connection has ended, or there is none. The next one has the next epoch.
    Down(String),
}

/// Events of the hub.
#[derive(Debug, PartialEq)]
pub(crate) enum HubEvent<B> {
    /// To a program.
    Say { session: SessionId, frame: FromAgent },
    /// A block to a program, in order. Whether or not it can be written, [`HubCommand::Drained`] must say so.
    Data { session: SessionId, flow: FlowId, name: u64, offset: Bytes, block: B },
    /// A lane is needed from now on. Its connections count from this epoch.
    Dial { lane: LaneId, epoch: u64 },
    /// To the peer, in no other connection than this.
    Send { lane: LaneId, epoch: u64, frame: FromFetcher },
    /// A lane is not needed any more.
    HangUp(LaneId),
}
