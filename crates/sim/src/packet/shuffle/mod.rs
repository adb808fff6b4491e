//! Shuffles packet by packet: Hadoop's jobs over DCTCP, with a coflow scheduler or without, and the same jobs with Courier's agents.
//!
//! ```text
//!   job --> reducers --slots of a host--> fetches --> one connection each                      --> packets
//!                                            \----> Courier's agent --> lanes of pairs of hosts --/
//!                                  scheduler: ranks or rates of flows
//! ```
//!
//! * [`setup`]: jobs, limits, scheduler, carrier, in plain values.
//! * `hadoop`: map outputs, the combiner, reducers that wait for slots, fetches that wait for others (Courier §V).
//! * `scheduler`: who is asked when, and what it is told.
//! * `agents`: one [`Courier`](headwater_transport::courier::Courier) per host.
//! * `connection`: a sender and a receiver of `baseline`, and what is to cross between them.
//! * `world`: events; `transit`: frames.
//!
//! Requests and orders travel beside the network and take [`ShuffleSetup::delay`](setup::ShuffleSetup::delay). Data and ACKs are packets.
//! A job is complete when its last reducer has all its map outputs: computing takes no time.

mod agents;
mod connection;
mod hadoop;
mod records;
mod scheduler;
pub mod setup;
mod transit;
mod world;

use super::SetupError;
pub use records::{JobRow, ShuffleOutcome};
pub use setup::{After, Carrier, Classes, JobPlan, Order, ReducerPlan, ShuffleSetup};

/// Runs all jobs to their end; tells `watch` about every million events how many are left, and how many events there were.
///
/// # Errors
/// [`SetupError`] before anything runs.
pub fn run(setup: ShuffleSetup, watch: &mut dyn FnMut(usize, u64)) -> Result<ShuffleOutcome, SetupError> {
    Ok(world::World::new(setup)?.run(watch))
}
