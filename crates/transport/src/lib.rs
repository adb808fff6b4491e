//! What the ends of a delivery run, without I/O, clock or randomness of their own.
//!
//! Every source and receiver is an [`Endpoint`](headwater_machine::Endpoint) with commands and events of its own. The controller
//! that sends sources to receivers is not here: they know it only by its messages.
//!
//! Bytes never pass through. A machine names a symbol, and the driver moves its bytes.

mod blame;
mod commands;
pub mod datacast;
mod first_window;
pub mod host;
pub mod in_flight;
pub mod marks;
pub mod pacer;
pub mod path_mtu;
pub mod ppush;
pub mod pull_queue;
pub mod rtt;
pub mod scdp;
pub mod source;

pub use commands::{
    Arriving, Bind, DecodeFailure, FromFetch, Opened, ReceiverCommand, ReceiverEvent, ReceiverFailure,
    Relaying, SourceCommand, SourceEvent, ToFetch,
};
