//! A receiver's end of one task, as far as it does not depend on the transport.
//!
//! Commands, events and counters of a fetch; what has arrived of its object ([`ledger`]); its messages with the controller
//! ([`session`]); the closing of flows ([`close_handshake`]); the senders of wrong blocks ([`blame`]). The trait of a transport
//! ([`side`]), and the common part of those that ask for symbols by name ([`asking`]).

pub mod asking;
pub mod blame;
pub mod brought;
pub mod close_handshake;
mod commands;
mod config;
pub mod ledger;
pub mod outbox;
pub mod session;
pub mod side;
mod stats;

pub use asking::Asks;
pub use commands::{
    Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure, ToFetch,
};
pub use config::{RateReceiverConfig, ReceiverConfig, Repair, SessionConfig, TreeReceiverConfig};
pub use stats::{FlowStats, ReceiverStats, SessionFlow, SessionStats};
