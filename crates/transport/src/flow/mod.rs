//! What flows of every kind share: round-trip time, pacing, what is under way and what became of it, marks, the path's MTU.

pub mod in_flight;
pub mod marks;
pub mod pacer;
pub mod path_mtu;
pub mod rtt;
