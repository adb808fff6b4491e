//! Common parts of all state machines, without I/O, clock or randomness of their own.
//!
//! Every source, receiver and controller is an [`Endpoint`]: two verbs, driven alike by sockets, by a simulator and by
//! tests. The law: after any `handle`, call `poll` until it says [`Output::Wake`]; then wait for that time or for the
//! next input. Due timers fire inside `poll`.
//!
//! Each endpoint has commands and events of its own, so that a driver cannot tell a source what only a receiver
//! understands. Beside the verbs: the collections that machines are made of, which are quick where a machine is busiest.

mod bits;
mod endpoint;
mod shares;
mod sorted_map;
mod timers;

pub use bits::Bits;
pub use endpoint::{Endpoint, Input, Output, Packet};
pub use shares::{Shares, Taker};
pub use sorted_map::SortedMap;
pub use timers::Timers;
