//! A receiver's end of one task, as far as it does not depend on the transport.
//!
//! Commands, events and counters of a fetch; what has arrived of its object ([`ledger`]); its messages with the controller
//! ([`session`]); the closing of flows ([`close_handshake`]); the senders of wrong blocks ([`blame`]). The trait of a transport
//! ([`side`]), and the common part of those that ask for symbols by name ([`asking`]).

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
pub use config::{RateReceiverConfig, ReceiverConfig, Repair, SessionConfig, TreeReceiverConfig};
pub use stats::{FlowStats, ReceiverStats, SessionFlow, SessionStats};
