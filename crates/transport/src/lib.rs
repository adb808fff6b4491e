//! What the ends of a delivery run, without I/O, clock or randomness of their own.
//!
//! Every source, receiver and controller is an [`Endpoint`]: two verbs, driven alike by sockets, by a simulator and by
//! tests. The law: after any `handle`, call `poll` until it says [`Output::Wake`]; then wait for that time or for the
//! next input. Due timers fire inside `poll`.
//!
//! Bytes never pass through. A machine names a symbol, and the driver moves its bytes.

pub mod baseline;
mod bits;
mod blame;
pub mod datacast;
mod endpoint;
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
mod timers;

pub use endpoint::{
    Arriving, Bind, CastBegun, Command, ControllerCommand, ControllerEvent, DecodeFailure, Endpoint, Event,
    Expect, Input, NameRecord, Opened, Output, Packet, ReceiverCommand, ReceiverEvent, ReceiverFailure,
    Relaying, SinkCommand, SinkEvent, SourceCommand, SourceEvent, TaskFlow, TaskGroup, TaskRecord,
};
