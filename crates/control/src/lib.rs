//! The control plane: links between nodes over QUIC with pinned keys.
//!
//! A [`ControlEndpoint`] listens and dials on one UDP port. Every node has an [`Identity`], a key made on first start;
//! its [`NodeId`](headwater_units::NodeId) is the hash of that key. The dialling side decides by [`Expect`] which key
//! it accepts, before the connection is usable; the accepting side learns the dialler's key and takes it as a name
//! (what a name may do is decided elsewhere). A [`Link`] carries small frames in order, and beside them requests with
//! replies of any size, so that a long reply never holds up a frame.
//!
//! Frames and requests are opaque bytes here: what they say is `headwater-wire`'s. Reconnecting is the caller's, with
//! a [`Backoff`]. Runs on tokio; the data path does not pass through here.

mod backoff;
mod config;
mod endpoint;
mod error;
mod files;
mod identity;
mod link;
mod pins;
mod presence;
mod resets;
mod slots;
pub mod streams;
#[cfg(test)]
mod tests;
mod tls;

pub use backoff::Backoff;
pub use config::ControlConfig;
pub use endpoint::{ControlEndpoint, ControlStats, Expect};
pub use error::{ControlError, KeyChanged};
pub use identity::Identity;
pub use link::{Frame, GOING_AWAY, Link, LinkEnd, Request, Responder, Unread};
pub use pins::{PinOutcome, Pins};
