//! The product's library: everything behind the `headwater` binary that touches sockets, threads and clocks.

pub mod app;
#[cfg(feature = "laboratory")]
pub mod bench;
pub mod cli;
#[cfg(feature = "laboratory")]
pub mod netns_engine;
pub mod node;
