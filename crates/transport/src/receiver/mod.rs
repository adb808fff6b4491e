//! What one host runs: one machine for all that it receives, whichever transport brings it.
//!
//! ```text
//!            packets of flows, by flow            packets of controllers, by request and task
//!                       \                         /
//!   driver --------->  Receivers  --- Session --- TaskSession     (asking, progress, the last farewell)
//!      commands by fetch                  \------ CloseHandshake  (how each flow is closed)
//! ```
//! A fetch is one object that this host wants. The driver numbers it ([`headwater_units::FetchId`]), and commands and
//! events bear the number; that several are under way at once, and that they come by different transports, only
//! [`Receivers`] knows.

pub(crate) mod blame;
pub(crate) mod close_handshake;
mod commands;
pub(crate) mod pulling_session;
mod receivers;
mod session;
pub(crate) mod task_session;

pub use commands::{
    Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure, ToFetch,
};
pub use receivers::{HostReceiverConfig, Receivers};
