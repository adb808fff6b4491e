//! What one host runs: one machine for all that it receives, whichever transport brings it.
//!
//! ```text
//!            packets of flows, by flow            packets of controllers, by request and task
//!                       \                         /
//!   driver --------->  Receivers  --- Session --- Dialogue      (asking, progress, the last farewell)
//!      commands by fetch                  \------ Parting       (the farewell of each flow)
//! ```
//! A fetch is one object that this host wants. The driver numbers it ([`headwater_units::FetchId`]), and commands and
//! events bear the number; that several are under way at once, and that they come by different transports, only
//! [`Receivers`] knows.

pub(crate) mod carrier;
pub(crate) mod dialogue;
pub(crate) mod parting;
mod receivers;
mod session;

pub use receivers::{HostReceiverConfig, Receivers};
