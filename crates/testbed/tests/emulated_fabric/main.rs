//! The emulated network, without I/O: it keeps the simulator's schedule and loses no frame.

mod common;
mod conservation;
mod faults;
mod multicast;
mod schedule;
mod setup;
