//! The receiving machine of a host: all its fetches, whatever their transports.
//!
//! ```text
//!            packets of flows, by flow            packets of controllers, by request and task
//!                       \                         /
//!   driver --------->  Receivers  ---  Fetch  --- TaskSession     (asking, progress, the final FIN)
//!      commands by fetch                  \------ Side            (pushed, pulled, or down trees: flows and blocks)
//! ```
//! A fetch is one object that this host wants. The driver numbers it ([`headwater_units::FetchId`]), and commands and
//! events carry the number. Only [`Receivers`] knows that several fetches run at once, by different transports.

mod fetch;
mod receivers;

pub use receivers::{HostReceiverConfig, Receivers};

pub use headwater_flow::task::{
    Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure, ToFetch,
};
