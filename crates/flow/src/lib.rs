//! Common parts of the flows of all transports: round-trip time, pacing, packets in flight, marks, the path's MTU,
//! blocks that the driver holds ready, the path to the receiver, counters and events.

pub mod blocks;
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
pub mod task;

pub use events::{Opened, SourceEvent, WhyFallback};
pub use shared::Shared;
pub use source_flow::{QUANTUM, SourceFlow};
pub use stats::{FlowCounters, FlowStats, TreeStats, Yields};
