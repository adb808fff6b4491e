//! A receiver's end of one task, as far as it is the same whichever transport brings the object.
//!
//! What a fetch can be told, tells and counts; what is here of its object ([`ledger`]); what it says to its controller ([`session`]); how it closes a flow
//! ([`close_handshake`]); and whose fault a wrong block is ([`blame`]).

pub(crate) mod blame;
pub(crate) mod close_handshake;
mod commands;
mod config;
pub(crate) mod ledger;
pub(crate) mod session;
mod stats;

pub use commands::{
    Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure, ToFetch,
};
pub use config::{ReceiverConfig, SessionConfig, TreeReceiverConfig};
pub use stats::{CameBy, FlowStats, ReceiverStats, SessionFlow, SessionStats};

use headwater_units::FlowId;

/// What a transport leaves to the one that brings the object from then on.
#[derive(Debug, Default)]
pub(crate) struct HandedOn {
    /// What is here, once it is known what is wanted.
    pub(crate) ledger: Option<ledger::Ledger<()>>,
    pub(crate) trust: blame::Trust,
    /// Flows that are bound.
    pub(crate) bound: Vec<FlowId>,
}
