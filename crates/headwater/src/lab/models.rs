//! What computes a run, as the lab sees it: one call per run, any number at a time.

use headwater_sim::experiment::Job;
use headwater_sim::run::{RunError, run_job};
use headwater_sim::table::Tables;
use thiserror::Error;

/// Computes runs. The same job gives the same tables, whatever else runs beside it.
pub trait Models: Send + Sync + 'static {
    /// Runs a job to its end on its engine; tells `watch` now and then which part is done, 0..=1.
    ///
    /// # Errors
    /// [`ModelError`].
    fn run(&self, job: &Job, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError>;

    /// Names the code: runs of another are never mixed with those of this one.
    fn code(&self) -> &str;
}

/// Why a run gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The engine does not know a scheme or a part of the scenario: claims about it stay pending.
    #[error("{0}")]
    NotModelled(String),
    /// The run went wrong.
    #[error("{0}")]
    Failed(String),
}

/// The models of this binary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shipped;

impl Models for Shipped {
    fn run(&self, job: &Job, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
        run_job(job, &mut |progress| watch(progress.done)).map_err(|error| match error {
            RunError::Unsupported { .. } => ModelError::NotModelled(error.to_string()),
            _ => ModelError::Failed(error.to_string()),
        })
    }

    fn code(&self) -> &str {
        env!("HEADWATER_CODE")
    }
}
