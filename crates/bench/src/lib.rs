//! The product tried with real processes: the demo, figures of speed, and scenarios with real daemons on an emulated network.

mod agents;
pub mod demo;
mod engines;
pub mod figures;
mod netns_engine;
pub mod shuffle;
pub(crate) mod subprocess;
mod timed_engine;

pub use engines::AllEngines;
