//! A receiver's end of one task, as far as it is the same whichever transport brings the object.
//!
//! What a fetch can be told, tells and counts; what is here of its object ([`ledger`]); what it says to its controller ([`session`]); how it closes a flow
//! ([`close_handshake`]); and whose fault a wrong block is ([`blame`]). What a transport must be to it ([`side`]), and what those have in
//! common that ask for symbols by name ([`asking`]).

pub(crate) mod asking;
pub(crate) mod blame;
pub(crate) mod brought;
pub(crate) mod close_handshake;
mod commands;
mod config;
pub(crate) mod ledger;
pub(crate) mod outbox;
pub(crate) mod session;
pub(crate) mod side;
mod stats;

pub use asking::Asks;
pub use commands::{
    Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure, ToFetch,
};
pub use config::{ReceiverConfig, SessionConfig, TreeReceiverConfig};
pub use stats::{FlowStats, ReceiverStats, SessionFlow, SessionStats};
