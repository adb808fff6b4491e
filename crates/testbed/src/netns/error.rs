//! Errors of namespaces and links, always with the command at fault.

use std::process::ExitStatus;

use thiserror::Error;

use super::spec::{MAX_HOSTS, MAX_RACKS};

/// Why the network could not be built or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetError {
    /// A tool is not installed.
    #[error("'{tool}' is not installed (Debian and Ubuntu package: {package})")]
    MissingTool {
        /// The program.
        tool: String,
        /// Package to install.
        package: &'static str,
    },
    /// A tool could not be started.
    #[error("could not start '{command}': {source}")]
    Start {
        /// The whole command.
        command: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A tool ran and failed.
    #[error("'{command}' failed ({status}): {stderr}")]
    Failed {
        /// The whole command; of a batch also the line at fault.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// Its error output.
        stderr: String,
    },
    /// A tool printed something that we do not understand.
    #[error("'{command}' printed something unexpected: {output}")]
    Unexpected {
        /// The whole command.
        command: String,
        /// Its output.
        output: String,
    },
    /// There is no such host.
    #[error("no host {host}: there are {hosts}, counted from 0")]
    UnknownHost {
        /// The host as given.
        host: usize,
        /// How many there are.
        hosts: usize,
    },
    /// There is no such rack.
    #[error("no rack {rack}: there are {racks}, counted from 0")]
    UnknownRack {
        /// The rack as given.
        rack: usize,
        /// How many there are.
        racks: usize,
    },
    /// Something that only hosts with a bridge of their own have.
    #[error("hosts on one shared bridge have no {what}")]
    OneBridge {
        /// The link as given.
        what: String,
    },
    /// More than [`MAX_HOSTS`] or [`MAX_RACKS`], or no host at all.
    #[error("a network has 1 to {MAX_HOSTS} hosts and at most {MAX_RACKS} racks, not {hosts} and {racks}")]
    Size {
        /// Hosts asked for.
        hosts: usize,
        /// Racks asked for.
        racks: usize,
    },
    /// A loss probability outside 0..=1.
    #[error("a loss probability lies between 0 and 1, not at {probability}")]
    Probability {
        /// The probability as given.
        probability: f64,
    },
}
