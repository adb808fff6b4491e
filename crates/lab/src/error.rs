//! Errors of the lab, in the user's words and with what to do next.

use std::io;
use std::path::{Path, PathBuf};

use headwater_experiment::experiment::{Engine, ExperimentError};
use headwater_experiment::table::TableError;
use headwater_experiment::workload::coflow_trace::TraceError;
use thiserror::Error;

/// Why the lab did not do what was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// Nothing has that name.
    #[error("there is no experiment or claim '{name}'{}; `headwater lab list` shows all", did_you_mean(near))]
    Unknown {
        /// As typed.
        name: String,
        /// Similar names, the nearest first.
        near: Vec<String>,
    },
    /// Several experiments end in that name.
    #[error("'{name}' can be any of {}; write it in full", candidates.join(", "))]
    Ambiguous {
        /// As typed.
        name: String,
        /// Their ids.
        candidates: Vec<String>,
    },
    /// Nothing was named.
    #[error("which experiment? Name one, a claim or a file, or give --all; `headwater lab list` shows all")]
    Nothing,
    /// No experiment is left to run.
    #[error("no experiment runs on the {engine} engine at {scale} scale")]
    NothingFits {
        /// Asked for.
        engine: String,
        /// Asked for.
        scale: String,
    },
    /// The experiment file is wrong.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// An experiment cannot have the values that were asked for.
    #[error("{experiment}: {reason}")]
    Variation {
        /// The experiment.
        experiment: String,
        /// The problem, and what to do.
        reason: String,
    },
    /// A folder or file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A folder or file cannot be written.
    #[error("cannot write {}: {source}; choose another folder with {option}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The option that names the folder.
        option: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another process writes there.
    #[error(
        "another `lab run` is writing to {}; wait for it, or choose another folder with --out",
        path.display()
    )]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// Tables of one experiment do not fit together.
    #[error("{experiment}: the runs did not record the same columns: {source}; run it again with --fresh")]
    Tables {
        /// The experiment.
        experiment: String,
        /// The difference.
        source: TableError,
    },
    /// A stored result cannot be understood.
    #[error("{} is not a file of stored results: {reason}; store it again with `lab run --store`", path.display())]
    Results {
        /// The path.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The rows of the papers cannot be understood.
    #[error("the catalogue of the papers' rows (catalogue.toml) is wrong: {reason}")]
    Rows {
        /// Line and reason.
        reason: String,
    },
    /// A finished run is unreadable right after it was written.
    #[error("{} was written but cannot be read back: {reason}", path.display())]
    Lost {
        /// The path.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// There is no folder to store results in or to read them from.
    #[error("no checkout of Headwater (a folder with .git and experiments/) here or above; {hint}")]
    NoCheckout {
        /// Which option names the folder.
        hint: &'static str,
    },
    /// Only results at paper scale are stored.
    #[error("only results at paper scale are kept beside the experiments; add --scale paper to --store")]
    StoreSmall,
    /// Nothing could be captured.
    #[error(
        "--pcap keeps real packets, and the {engine} engine has none; add --engine netns, or leave --pcap out"
    )]
    Captures {
        /// Engine that would compute the runs.
        engine: Engine,
    },
    /// There is nothing to report.
    #[error("no finished experiment is in {}; `headwater lab run ... --out {}` puts some there", path.display(), path.display())]
    NoRuns {
        /// The folder.
        path: PathBuf,
    },
    /// A plot could not be drawn.
    #[error("cannot draw '{title}': {reason}")]
    Draw {
        /// Of the plot.
        title: String,
        /// The canvas' error.
        reason: String,
    },
    /// A coflow trace is wrong.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The path.
        path: PathBuf,
        /// Where, and what is wrong.
        source: Box<TraceError>,
    },
    /// A policy cannot be run on a trace.
    #[error("{policy}: {reason}")]
    Coflow {
        /// The policy.
        policy: String,
        /// The reason.
        reason: String,
    },
    /// A thread of coflow runs is gone.
    #[error("a run ended without a result; this is a bug, please report it with the trace")]
    CoflowThread,
    /// The user stopped coflow runs.
    #[error("stopped; nothing is kept")]
    CoflowsStopped,
    /// A plot's format is not known.
    #[error("{}: plots are SVG or PNG; give a name that ends in .svg or .png", path.display())]
    PlotName {
        /// The file.
        path: PathBuf,
    },
    /// Threads cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The user stopped it.
    #[error("stopped after {done} of {jobs} runs; finished runs are kept in {}, the same command goes on from there", out.display())]
    Stopped {
        /// Finished, earlier ones included.
        done: usize,
        /// All.
        jobs: usize,
        /// Where they are.
        out: PathBuf,
    },
}

impl LabError {
    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        LabError::Read { path: path.to_owned(), source }
    }

    pub(super) fn write(path: &Path, option: &'static str, source: io::Error) -> Self {
        LabError::Write { path: path.to_owned(), option, source }
    }
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(", ")),
    }
}
