//! Runs of real processes in network namespaces around our switch, in real time.

use headwater_sim::experiment::Job;
use headwater_sim::table::Tables;

use crate::lab::{ModelError, RunContext};

/// Runs a job to its end; see [`crate::lab::Models::run`].
///
/// # Errors
/// [`ModelError`].
pub fn run(_: &Job, _: &RunContext, _: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
    Err(ModelError::NotModelled("this binary has no netns engine".to_owned()))
}
