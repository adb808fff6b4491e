//! Processes of this binary that another of its processes runs, and a folder for them: for the demo, and for experiments on
//! real packets. Both are gone when their maker is.

mod process;
mod scratch;

pub(crate) use process::{Ended, Guard, Process, cpu_seconds, without_settings};
pub(crate) use scratch::{Scratch, hash, write_random};
