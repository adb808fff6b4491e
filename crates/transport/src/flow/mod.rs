//! What flows of every kind share: round-trip time, pacing, what is under way and what became of it, marks, the path's MTU; which
//! blocks the driver holds ready, where the receiver is, what is counted and what the driver is told.

pub(crate) mod blocks;
mod events;
pub mod in_flight;
pub mod marks;
pub mod pacer;
pub mod path_mtu;
pub mod paths;
pub mod rtt;
mod shared;
mod source_flow;
mod stats;

pub use events::{Opened, SourceEvent};
pub(crate) use shared::Shared;
pub(crate) use source_flow::{QUANTUM, SourceFlow};
pub use stats::{FlowCounters, FlowStats, TreeStats, Yields};
