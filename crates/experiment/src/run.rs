//! One job on one engine: a scenario and a seed in, tables out.
//!
//! Each engine has an adapter that builds what it needs from the [`Scenario`] and writes the rows that claims read. What an
//! engine cannot model it refuses with [`RunError::Unsupported`].

use thiserror::Error;

use crate::engine::Engine;
use crate::experiment::Job;
use crate::scenario::{Scenario, ScenarioError, Scheme};
use crate::table::Tables;
use crate::workload::Workload;
use headwater_sim::packet::Setup;

mod cast;
mod common;
mod flow;
mod flow_group;
mod fluid;
mod fluid_datacast;
mod fluid_pam;
mod network;
mod packet;
mod shuffle;
mod stage;
mod trees;

pub use cast::{CastError, CastSpec, CastStage, Repair, run_cast};
pub use network::NetworkSetup;
pub use shuffle::ShuffleStage;
pub use stage::{HostFacts, Stage};
pub use trees::TreeSearch;

/// How far a run is: a part of its tasks, in 0..=1, and what it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Part of the work that is done; a guess.
    pub done: f64,
    /// Events so far.
    pub events: u64,
}

/// A run cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The scenario is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The packet engine cannot set it up.
    #[error(transparent)]
    Packet(#[from] headwater_sim::packet::SetupError),
    /// The rate model cannot run it.
    #[error(transparent)]
    Flow(#[from] headwater_sim::flow::FlowError),
    /// The fluid model cannot integrate it.
    #[error(transparent)]
    Fluid(#[from] headwater_sim::fluid::ppush::model::FluidError),
    /// The fluid model of Datacast cannot integrate it.
    #[error(transparent)]
    Datacast(#[from] headwater_sim::fluid::datacast::model::ModelError),
    /// The fluid model of PAM cannot set up an allocator.
    #[error(transparent)]
    Pam(#[from] headwater_switch::RateAllocatorError),
    /// The engine has no model of something in it.
    #[error("the {engine} engine cannot run this: {what}")]
    Unsupported {
        /// The engine.
        engine: Engine,
        /// Part of the scenario that it has no model of.
        what: String,
    },
}

/// Runs a job. Tells `watch` now and then how far it is. The tables have no coordinates yet: see [`Job::gather`].
///
/// # Errors
/// [`RunError`], before anything runs.
pub fn run_job(job: &Job, watch: &mut dyn FnMut(Progress)) -> Result<Tables, RunError> {
    if !matches!(job.engine(), Engine::Trees | Engine::Timed) {
        whole(&job.scenario, job.engine())?;
    }
    if let Workload::Coding { .. } = job.scenario.workload {
        return Err(common::unsupported(job.engine(), "a workload of kind 'coding' is for the timed engine"));
    }
    match job.engine() {
        Engine::Packet if job.scenario.scheme == Scheme::Cast => cast::run(&job.scenario, job.seed, watch),
        Engine::Packet if job.scenario.scheme.is_shuffle() => shuffle::run(&job.scenario, job.seed, watch),
        Engine::Packet => packet::run(&job.scenario, job.seed, watch),
        Engine::Flow if job.scenario.scheme.is_for_groups() => {
            flow_group::run(&job.scenario, job.seed, watch)
        }
        Engine::Flow => flow::run(&job.scenario, job.seed, watch),
        Engine::Fluid if job.scenario.scheme == Scheme::Datacast => {
            fluid_datacast::run(&job.scenario, job.seed, watch)
        }
        Engine::Fluid if job.scenario.scheme == Scheme::Pam => fluid_pam::run(&job.scenario, job.seed, watch),
        Engine::Fluid => fluid::run(&job.scenario, job.seed, watch),
        Engine::Trees => trees::run(&job.scenario, job.seed, watch),
        Engine::Timed => Err(RunError::Unsupported {
            engine: Engine::Timed,
            what: "it needs a clock, which a pure function of a scenario has not".into(),
        }),
        Engine::Netns => Err(RunError::Unsupported {
            engine: Engine::Netns,
            what: "it needs network namespaces, which a pure function of a scenario has not".into(),
        }),
    }
}

/// Setup of the packet engine: also the network, ports and faults for those who run the same scenario on real packets.
///
/// # Errors
/// [`RunError`] if it could not run it.
pub fn packet_setup(scenario: &Scenario, seed: u64) -> Result<Setup, RunError> {
    whole(scenario, Engine::Packet)?;
    packet::setup(scenario, seed)
}

/// Only trees are asked for in networks of which a part has failed before anything began.
fn whole(scenario: &Scenario, engine: Engine) -> Result<(), RunError> {
    match scenario.link_failure_rate > 0.0 {
        true => Err(common::unsupported(engine, "link_failure_rate: cables that are down from the start")),
        false => Ok(()),
    }
}

/// The network of a scenario alone, as [`packet_setup`] has it: also of one without a workload
/// ([`Scenario::of_network`]).
///
/// # Errors
/// [`RunError`] if it cannot be built.
pub fn network_setup(scenario: &Scenario, seed: u64) -> Result<NetworkSetup, RunError> {
    network::setup(scenario, seed)
}
