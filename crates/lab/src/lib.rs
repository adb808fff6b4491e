//! The lab: experiments of the papers, run in models of a network, judged, stored and reported.
//!
//! `sim` is pure: it turns an experiment file into runs, a run into tables, tables into verdicts. Files, threads and
//! clocks are used here only. The same experiment, seeds and code give the same bytes, whatever the number of threads,
//! but for runs in real time, which are made one at a time; a run that was stopped or killed goes on where it was.
//!
//! ```text
//!   catalogue (what there is) -> run -> pool (threads) -> run_file (finished runs) -> join, verdicts
//!                                                         results (what is kept) -> report -> chart
//!   coflow (a user's trace and some policies)                                     ->           chart
//! ```
//!
//! The lab does not compute anything about a network, or choose a pass line.

mod catalogue;
mod chart;
mod checkout;
mod coflow;
mod columns;
mod error;
mod estimate;
mod files;
#[cfg(test)]
mod fixture;
mod freshness;
mod list;
mod machine;
mod models;
mod pool;
mod report;
mod results;
mod rows;
mod run;
mod run_file;
mod variation;

pub use catalogue::{Catalogue, Chosen};
pub use checkout::Checkout;
pub use coflow::{
    CoflowLine, CoflowOptions, CoflowOutcome, PlotFormat, draw_coflows, plot_format, read_trace, run_coflows,
};
pub use error::LabError;
pub use freshness::{Stale, stale};
pub use list::{ClaimLine, ExperimentLine, JobCount, StoredVerdict, list};
pub use machine::Machine;
pub use models::{ModelError, Models, RunContext, Shipped};
pub use report::page::digits;
pub use report::{Counts, Report, ReportOptions, Standing, report, report_runs, standing, verdicts_of_runs};
pub use results::{Drawn, Heading, Kind, Line, Means, Provenance, SkippedRun, Stored, StoredRun, load};
pub use rows::{Extreme, Part, Row, RowCounts, RowOutcome, RowResult, Rows};
pub use run::{ExperimentRun, Judged, RunOptions, run};
pub use variation::Variation;

/// Listener to the progress of a run.
pub trait LabWatch {
    /// How far; ten times a second or so.
    fn progress(&mut self, progress: &LabProgress);
    /// Something the user should know now, one line.
    fn note(&mut self, line: &str);
    /// An experiment is done; they come in the order in which they were asked for, however they end.
    fn concluded(&mut self, run: &ExperimentRun);
}

/// How far a set of runs is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabProgress {
    /// All runs.
    pub runs: usize,
    /// Runs that are over.
    pub done: usize,
    /// Those of them that could not be made here and now.
    pub skipped: usize,
    /// The part of the work that is done, 0..=1.
    pub part: f64,
    /// Seconds that are left, once anything is known.
    pub left: Option<f64>,
    /// The experiment of the run that has been at work longest.
    pub experiment: String,
}
