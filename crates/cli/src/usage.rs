//! Errors in a command line.

use headwater_units::Duration;
use thiserror::Error;

use super::settings::SettingsError;

/// Below that the looking would be most of what the data thread does.
pub(crate) const TIMELINE_LEAST: Duration = Duration::from_micros(100);

/// The options do not go together.
#[derive(Debug, Error)]
pub(crate) enum UsageError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error("{0}")]
    Options(String),
}

/// An option for experiments cannot be followed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ExperimentError {
    #[error("--timeline-every: {0} is too often; at least {TIMELINE_LEAST} must lie between samples")]
    TooOften(Duration),
    #[error(
        "--tuning: cannot read {path}: {reason}; text instead of a file has a '=', as in 'gain = 0.0625'"
    )]
    Unreadable { path: String, reason: std::io::Error },
    #[error("--tuning: {0}")]
    Syntax(String),
    #[error("--tuning: {0}")]
    Range(#[from] headwater_experiment::scenario::ScenarioError),
    #[error("--tuning: {field} = {stated} is not possible: all machines have {does}")]
    Fixed { field: &'static str, stated: u32, does: u32 },
    #[error("--tuning: {0} works in simulations only: no real host follows it")]
    Simulated(&'static str),
}
