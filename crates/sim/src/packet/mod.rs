//! The packet simulator: the machines of `transport` and the switch of `switch`, driven by events.
//!
//! ```text
//!   Setup -> World --Start--> machines --Transmit--> NIC (Port) --link--> Switch --link--> ... --> machine
//!              ^                  | Event                                                           |
//!              +---- Agenda <-----+------------------------ Wake, Decoded --------------------------+
//! ```
//!
//! A run is a pure function of its [`Setup`]: integer time, one agenda in a fixed order, randomness from the seed alone.
//! Symbols are names; with `carry_bytes` every message is also written and read by `wire`, and the true codec decodes.
//!
//! [`cast`] has the same network under whole nodes, with the product's controller beside it; [`shuffle`] under Hadoop's jobs, with
//! Courier's agents or without.

mod agenda;
mod assembly;
mod carry;
pub mod cast;
mod delivery;
mod director;
mod frame;
mod groups;
mod network;
mod path_numbers;
mod records;
mod segments;
mod setup;
pub mod shuffle;
mod world;

use headwater_units::Time;

pub use frame::FrameSizes;
pub use headwater_switch::{FaultCounts, LinkChange, Seen};
pub use network::{LinkTally, forwarding_table};
pub use path_numbers::switch_divisors;
pub use records::{Counts, FlowRow, Negotiation, Records, SampleRow, TaskRow, TreeRow};
pub use setup::packet_on_path;
pub use setup::{
    Change, CodedSetup, ControlPlane, DecodeModel, Flows, Jitter, MemberFault, PullSetup, Sampling, Setup,
    SetupError, TaskPlan, Transport, TreeSetup,
};

use frame::SimFrame;

/// Events of a run.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A frame has crossed a link.
    Arrive { link: u32, frame: SimFrame },
    /// A machine asked to be polled.
    Wake { slot: u32 },
    /// A frame may have left a port that keeps its frames.
    Serve { link: u32 },
    /// A message that does not cross the network arrives.
    Deliver { body: u32 },
    /// A task arrives.
    Start { task: u32 },
    /// A task is broken off.
    Stop { task: u32 },
    /// A block has been decoded.
    Decoded { endpoint: u32, block: u32 },
    /// Something happens to the network.
    Change { index: u32 },
    /// A host says again who it is.
    Introduce { host: u32 },
    /// A host's link to the controller is there again.
    Link { host: u32 },
    /// Time to look.
    Sample,
    /// Half of the run is over.
    Midway,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Simulated time.
    pub at: Time,
    /// Tasks that are over.
    pub tasks_done: usize,
    /// Tasks in all.
    pub tasks: usize,
    /// Events so far.
    pub events: u64,
}

/// Runs to the end; tells `watch` about every million events how far it is.
///
/// # Errors
/// [`SetupError`] before anything runs.
pub fn run(setup: Setup, watch: &mut dyn FnMut(Ran)) -> Result<Records, SetupError> {
    Ok(world::World::new(setup)?.run(watch))
}
