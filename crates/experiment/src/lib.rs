//! Experiments: text in, tables out.
//!
//! * [`experiment`]: a file's axes, schemes, claims and plots; its jobs.
//! * [`scenario`] and [`workload`]: what is set up for a run, and what must be delivered.
//! * [`run`]: a job on one of the engines of `headwater-sim`: packets, rates or equations.
//! * [`coflow`]: coflow policies on a trace.
//! * [`table`]: what a run records. * [`claim`] and [`stats`]: what the records show.

mod axis;
pub mod claim;
pub mod coflow;
mod engine;
pub mod experiment;
pub mod run;
pub mod scenario;
pub mod stats;
pub mod table;
mod text;
pub mod workload;
