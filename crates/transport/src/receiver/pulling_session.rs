//! What brings the symbols of a fetch whose receiver asks for each: pulls (SCDP) or trees (Datacast).

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, FetchId, FlowId, Geometry, NodeId, SymbolId, Symbols, Time};
use headwater_wire::{Delivery, FlowGrant, FlowView};

use crate::pull::Ask;
use crate::pull::queue::PullQueue;
use crate::task::{CameBy, ReceiverConfig, SessionFlow, SessionStats};
use crate::{FromFetch, ReceiverCommand, ReceiverFailure, pull, tree};

/// Either of them.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is behind a box, and nearly always the large one")]
pub(super) enum PullingSession {
    Pulls(pull::Session),
    Trees(Box<tree::Session>),
}

/// Calls the method of the same name, whichever it is.
macro_rules! either {
    ($session:expr, $name:ident($($argument:expr),*)) => {
        match $session {
            PullingSession::Pulls(session) => session.$name($($argument),*),
            PullingSession::Trees(session) => session.$name($($argument),*),
        }
    };
}

impl PullingSession {
    /// Of an object that is cut like this. `turn` is the fetch's number in the host's pull queue.
    pub(super) fn new(
        fetch: FetchId,
        config: &ReceiverConfig,
        geometry: Geometry,
        delivery: Delivery,
        turn: u32,
    ) -> Self {
        let session = config.session(geometry.layout().block_bytes());
        match delivery {
            Delivery::Trees { credit } => {
                let trees = tree::TreeReceiverConfig { credit: credit.max(1).into(), ..config.trees };
                PullingSession::Trees(Box::new(tree::Session::new(fetch, trees, &session, geometry)))
            }
            Delivery::Pull { initial_window } => {
                PullingSession::Pulls(pull::Session::new(fetch, session, geometry, initial_window, turn))
            }
            Delivery::Push => unreachable!("who is pushed to asks for nothing"),
        }
    }

    pub(super) fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, pulls: &mut PullQueue<Ask>) {
        match self {
            PullingSession::Pulls(session) => session.set_flows(now, grants, pulls),
            PullingSession::Trees(session) => session.set_flows(now, grants),
        }
    }

    #[inline]
    pub(super) fn on_packet(&mut self, now: Time, packet: Packet, pulls: &mut PullQueue<Ask>) {
        match self {
            PullingSession::Pulls(session) => session.on_packet(now, packet, pulls),
            PullingSession::Trees(session) => session.on_packet(now, packet),
        }
    }

    pub(super) fn on_command(&mut self, now: Time, command: ReceiverCommand, pulls: &mut PullQueue<Ask>) {
        match self {
            PullingSession::Pulls(session) => session.on_command(now, command, pulls),
            PullingSession::Trees(session) => session.on_command(now, command),
        }
    }

    #[inline]
    pub(super) fn pull(&mut self, now: Time, ask: Ask) -> Option<Packet> {
        match self {
            PullingSession::Pulls(session) => session.pull(now, ask),
            PullingSession::Trees(_) => None,
        }
    }

    pub(super) fn fail(&mut self, now: Time, failure: ReceiverFailure, pulls: &mut PullQueue<Ask>) {
        match self {
            PullingSession::Pulls(session) => session.fail(now, failure, pulls),
            PullingSession::Trees(session) => session.fail(failure),
        }
    }

    #[inline]
    pub(super) fn poll(&mut self, now: Time, pulls: &mut PullQueue<Ask>) -> Output<FromFetch> {
        match self {
            PullingSession::Pulls(session) => session.poll(now, pulls),
            PullingSession::Trees(session) => session.poll(now),
        }
    }

    #[inline]
    pub(super) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        either!(self, take_kept())
    }

    pub(super) fn bound(&self) -> Vec<FlowId> {
        match self {
            PullingSession::Pulls(session) => session.bound().collect(),
            PullingSession::Trees(session) => session.bound().collect(),
        }
    }

    pub(super) fn is_distrusted(&self, node: NodeId) -> bool {
        either!(self, is_distrusted(node))
    }

    pub(super) fn has_ended(&self) -> bool {
        either!(self, has_ended())
    }

    pub(super) fn blocks_behind(&self) -> usize {
        either!(self, blocks_behind())
    }

    pub(super) fn first_undecoded(&self) -> BlockIndex {
        either!(self, first_undecoded())
    }

    pub(super) fn needed(&self) -> Symbols {
        either!(self, needed())
    }

    pub(super) fn views(&mut self, now: Time) -> Vec<FlowView> {
        either!(self, views(now))
    }

    pub(super) fn came_by(&self) -> CameBy {
        match self {
            PullingSession::Pulls(_) => CameBy::Pull,
            PullingSession::Trees(_) => CameBy::Tree,
        }
    }

    pub(super) fn stats(&self) -> SessionStats {
        either!(self, stats())
    }

    pub(super) fn flow(&self, flow: FlowId) -> Option<SessionFlow> {
        either!(self, flow(flow))
    }

    pub(super) fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_> {
        match self {
            PullingSession::Pulls(session) => Box::new(session.useful()),
            PullingSession::Trees(session) => Box::new(session.useful()),
        }
    }
}
