//! One simulated network for all tests of machines, and what a driver does for them in it.
//!
//! A test builds a [`Network`] of [`Link`]s between numbered hosts, and says as a [`Simulation`] which machine each host is, over which
//! links its packets go, and what its events mean. [`Preparation`] and [`Reception`] do a driver's duties for a source and a receiver,
//! and are the oracle: they panic where a machine breaks its contract. Nothing here reads a clock or draws unseeded randomness.

mod agenda;
pub mod content;
mod link;
pub mod messages;
mod network;
mod preparation;
mod reception;
mod role;

pub use agenda::Agenda;
pub use link::{Addressed, Backlog, Carried, Fate, Faults, Line, Link, Weather, no_faults};
pub use network::{Due, Network, Simulation};
pub use preparation::Preparation;
pub use reception::{Attempt, Duty, Reception};
pub use role::{Command, Event, Machine, Nobody, Role, receivers};
