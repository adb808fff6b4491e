//! Models of a network: packets (discrete events), rates (flow), equations (fluid); scenarios, workloads, claims.
//!
//! * [`experiment`]: a file's axes, schemes, claims and plots; its jobs.
//! * [`scenario`] and [`workload`]: what is set up for a run, and what must be delivered.
//! * [`run`]: a job on one of the engines, [`packet`], [`flow`] or [`fluid`].
//! * [`table`]: what a run records. * [`claim`] and [`stats`]: what the records show.

pub mod claim;
pub mod experiment;
pub mod flow;
pub mod fluid;
pub mod packet;
pub mod run;
pub mod scenario;
pub mod stats;
pub mod table;
pub mod workload;
