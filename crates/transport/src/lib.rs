//! The machines at both ends of a delivery, without I/O, clock or randomness of their own.
//!
//! Every source and receiver is an [`Endpoint`](headwater_machine::Endpoint) with commands and events of its own. The controller
//! that sends sources to receivers is not here: they know it only by its messages.
//!
//! Bytes never pass through. A machine names a symbol, and the driver moves its bytes.

pub mod courier;
pub mod pull;
pub mod push;
pub mod rate;
pub mod receiver;
pub mod source;
mod transports;
pub mod tree;

pub use headwater_flow as flow;
pub use headwater_flow::task::{
    Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure, ToFetch,
};
pub use headwater_flow::{Opened, SourceEvent, WhyFallback};
pub use source::{Arriving, Relaying, SourceCommand};
