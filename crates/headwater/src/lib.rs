//! The product's library: everything behind the `headwater` binary that touches sockets, threads and clocks.

pub mod app;
pub mod bench;
pub mod cli;
pub mod netns_engine;
pub mod node;
