//! Engines that compute a run, as the lab sees them: one call per run; any number at a time, but for engines that run
//! in real time.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater_experiment::experiment::{Engine, Job};
use headwater_experiment::run::{RunError, run_job};
use headwater_experiment::table::Tables;
use thiserror::Error;

/// Computes runs. On an engine that does not run in real time the same job gives the same tables, whatever else runs
/// beside it.
pub trait Models: Send + Sync + 'static {
    /// Runs a job to its end on its engine; tells `watch` now and then which part is done, 0..=1.
    ///
    /// A run in real time ([`Engine::is_real_time`]) is alone: no other run of this process is beside it. It looks at
    /// [`RunContext::stop`] at least ten times a second and, once told to stop, removes all that it has set up and returns;
    /// what it returns is then no result.
    ///
    /// # Errors
    /// [`ModelError`].
    fn run(&self, job: &Job, context: &RunContext, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError>;

    /// Names the code behind an engine: runs of another are never mixed with those of this one.
    fn code(&self, engine: Engine) -> &str;
}

/// Resources that a run may use beside its job; nothing of it changes what a run records.
#[derive(Clone, Default)]
pub struct RunContext {
    /// The folder for this run's captures, if they are wanted; not made yet.
    pub pcap: Option<PathBuf>,
    /// The folder for what helps to find out what went wrong, such as logs of processes; not made yet.
    pub logs: Option<PathBuf>,
    /// Set when the run shall stop.
    stopping: Arc<AtomicBool>,
}

impl RunContext {
    /// Without folders; the run stops when `stopping` is set.
    pub(super) fn stopped_by(stopping: Arc<AtomicBool>) -> RunContext {
        RunContext { stopping, ..RunContext::default() }
    }

    /// Whether the run shall stop now.
    pub fn stop(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext")
            .field("pcap", &self.pcap)
            .field("logs", &self.logs)
            .finish_non_exhaustive()
    }
}

/// Why a run gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The engine does not know a scheme or a part of the scenario: claims about it stay pending.
    #[error("{0}")]
    NotModelled(String),
    /// It could not be made on this machine, or not now: no number, neither a pass nor a failure. It is tried again the
    /// next time.
    #[error("{0}")]
    Skipped(String),
    /// It was told to stop and did.
    #[error("stopped")]
    Stopped,
    /// The run went wrong.
    #[error("{0}")]
    Failed(String),
}

/// The models of this binary that need no network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shipped;

impl Models for Shipped {
    fn run(&self, job: &Job, _: &RunContext, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
        run_job(job, &mut |progress| watch(progress.done)).map_err(|error| match error {
            RunError::Unsupported { .. } => ModelError::NotModelled(error.to_string()),
            _ => ModelError::Failed(error.to_string()),
        })
    }

    fn code(&self, _: Engine) -> &str {
        env!("HEADWATER_CODE")
    }
}
