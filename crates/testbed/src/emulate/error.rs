//! Errors of an emulated network.

use std::io;
use std::path::PathBuf;

use headwater_experiment::run::RunError;
use headwater_units::Bytes;
use thiserror::Error;

use super::{ETHERNET, MAX_HOSTS, MAX_MTU};
use crate::netns::{NetError, Unavailable};
use crate::soft_switch::SoftSwitchError;

/// How to get the rights in a user namespace.
const IN_USER_NAMESPACE: &str = "; run it as root, or everything that is to see it inside \
    `unshare --user --map-root-user --net --mount sh -c 'mount -t tmpfs tmpfs /run && exec sh'`";

/// An emulated network cannot be built, changed or asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EmulateError {
    /// The scenario has no network that can be built.
    #[error(transparent)]
    Setup(#[from] RunError),
    /// Too many hosts.
    #[error("a network of namespaces has at most {MAX_HOSTS} hosts, not {hosts}")]
    Size {
        /// Hosts asked for.
        hosts: usize,
    },
    /// Too many cables.
    #[error(
        "hosts have {cables} cables: a host has one, but for networks whose hosts forward, and all together at most {MAX_HOSTS}"
    )]
    Cables {
        /// Of all hosts.
        cables: usize,
    },
    /// Packets are longer than a frame can be.
    #[error("packets of {packet} are too long: a frame has at most {most} bytes here, its Ethernet header included", most = MAX_MTU + ETHERNET)]
    PacketSize {
        /// The scenario's `packet.data`.
        packet: Bytes,
    },
    /// A fault happens to a host, and nobody has said that he carries out those; see
    /// [`NetOptions::hold_faults`](super::NetOptions::hold_faults).
    #[error("faults on hosts cannot be emulated; those on links can")]
    HostFault,
    /// Namespaces or interfaces are not to be had.
    #[error("{0}{hint}", hint = if .0.user_namespace { IN_USER_NAMESPACE } else { "; it needs root" })]
    Unavailable(#[from] Unavailable),
    /// A command failed that usually does not.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Something inside a namespace failed.
    #[error("cannot set up {what}: {source}")]
    Inside {
        /// The part that was set up.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The capture of what leaves ports cannot be written.
    #[error("cannot write captures to {}: {source}", .folder.display())]
    Capture {
        /// Where they were to be.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The switch.
    #[error(transparent)]
    Switch(#[from] SoftSwitchError),
    /// There is no such link.
    #[error("there is no link '{name}'; write the two points it joins, as in '{example}'")]
    UnknownLink {
        /// As given.
        name: String,
        /// One that is there.
        example: String,
    },
    /// Words that are no fault.
    #[error("{0}")]
    Fault(String),
    /// No network is running that could be meant.
    #[error("{0}")]
    NoRun(String),
    /// The other side refused.
    #[error("{0}")]
    Refused(String),
    /// The control socket.
    #[error("control socket {}: {source}", .path.display())]
    Socket {
        /// Where it is.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl EmulateError {
    /// Error of a failure inside a namespace.
    pub(super) fn inside(what: String) -> impl FnOnce(io::Error) -> EmulateError {
        move |source| EmulateError::Inside { what, source }
    }
}
