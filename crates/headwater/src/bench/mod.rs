//! Benchmarks: how fast parts of the product are on this machine, as figures.

pub mod sim;
