//! What brings the symbols of a fetch whose receiver asks for each: pulls (SCDP) or trees (Datacast).

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, FetchId, FlowId, Geometry, NodeId, SymbolId, Symbols, Time};
use headwater_wire::{Delivery, FlowGrant, FlowView};

use crate::ppush::receiver::{CameBy, ReceiverConfig};
use crate::pull_queue::PullQueue;
use crate::scdp::{Ask, SessionFlow, SessionStats};
use crate::{FromFetch, ReceiverCommand, ReceiverFailure, datacast, scdp};

/// Either of them.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is behind a box, and nearly always the large one")]
pub(crate) enum Carrier {
    Pulls(scdp::Session),
    Trees(Box<datacast::Session>),
}

/// Calls the method of the same name, whichever it is.
macro_rules! either {
    ($carrier:expr, $name:ident($($argument:expr),*)) => {
        match $carrier {
            Carrier::Pulls(session) => session.$name($($argument),*),
            Carrier::Trees(session) => session.$name($($argument),*),
        }
    };
}

impl Carrier {
    /// Of an object that is cut like this. `turn` is the fetch's number in the host's pull queue.
    pub(crate) fn new(
        fetch: FetchId,
        config: &ReceiverConfig,
        geometry: Geometry,
        delivery: Delivery,
        turn: u32,
    ) -> Self {
        let session = config.session(geometry.layout().block_bytes());
        match delivery {
            Delivery::Trees { credit } => {
                let trees = datacast::TreeReceiverConfig { credit: credit.max(1).into(), ..config.trees };
                Carrier::Trees(Box::new(datacast::Session::new(fetch, trees, &session, geometry)))
            }
            Delivery::Pull { initial_window } => {
                Carrier::Pulls(scdp::Session::new(fetch, session, geometry, initial_window, turn))
            }
            Delivery::Push => unreachable!("who is pushed to asks for nothing"),
        }
    }

    pub(crate) fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, pulls: &mut PullQueue<Ask>) {
        match self {
            Carrier::Pulls(session) => session.set_flows(now, grants, pulls),
            Carrier::Trees(session) => session.set_flows(now, grants),
        }
    }

    #[inline]
    pub(crate) fn on_packet(&mut self, now: Time, packet: Packet, pulls: &mut PullQueue<Ask>) {
        match self {
            Carrier::Pulls(session) => session.on_packet(now, packet, pulls),
            Carrier::Trees(session) => session.on_packet(now, packet),
        }
    }

    pub(crate) fn on_command(&mut self, now: Time, command: ReceiverCommand, pulls: &mut PullQueue<Ask>) {
        match self {
            Carrier::Pulls(session) => session.on_command(now, command, pulls),
            Carrier::Trees(session) => session.on_command(now, command),
        }
    }

    #[inline]
    pub(crate) fn pull(&mut self, now: Time, ask: Ask) -> Option<Packet> {
        match self {
            Carrier::Pulls(session) => session.pull(now, ask),
            Carrier::Trees(_) => None,
        }
    }

    pub(crate) fn fail(&mut self, now: Time, failure: ReceiverFailure, pulls: &mut PullQueue<Ask>) {
        match self {
            Carrier::Pulls(session) => session.fail(now, failure, pulls),
            Carrier::Trees(session) => session.fail(failure),
        }
    }

    #[inline]
    pub(crate) fn poll(&mut self, now: Time, pulls: &mut PullQueue<Ask>) -> Output<FromFetch> {
        match self {
            Carrier::Pulls(session) => session.poll(now, pulls),
            Carrier::Trees(session) => session.poll(now),
        }
    }

    #[inline]
    pub(crate) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        either!(self, take_kept())
    }

    pub(crate) fn bound(&self) -> Vec<FlowId> {
        match self {
            Carrier::Pulls(session) => session.bound().collect(),
            Carrier::Trees(session) => session.bound().collect(),
        }
    }

    pub(crate) fn is_distrusted(&self, node: NodeId) -> bool {
        either!(self, is_distrusted(node))
    }

    pub(crate) fn has_ended(&self) -> bool {
        either!(self, has_ended())
    }

    pub(crate) fn blocks_behind(&self) -> usize {
        either!(self, blocks_behind())
    }

    pub(crate) fn first_undecoded(&self) -> BlockIndex {
        either!(self, first_undecoded())
    }

    pub(crate) fn needed(&self) -> Symbols {
        either!(self, needed())
    }

    pub(crate) fn views(&mut self, now: Time) -> Vec<FlowView> {
        either!(self, views(now))
    }

    pub(crate) fn came_by(&self) -> CameBy {
        match self {
            Carrier::Pulls(_) => CameBy::Pull,
            Carrier::Trees(_) => CameBy::Tree,
        }
    }

    pub(crate) fn stats(&self) -> SessionStats {
        either!(self, stats())
    }

    pub(crate) fn flow(&self, flow: FlowId) -> Option<SessionFlow> {
        either!(self, flow(flow))
    }

    pub(crate) fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_> {
        match self {
            Carrier::Pulls(session) => Box::new(session.useful()),
            Carrier::Trees(session) => Box::new(session.useful()),
        }
    }
}
