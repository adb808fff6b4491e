//! What can go wrong between two nodes, in words for the person at the keyboard.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_units::{Bytes, Duration, NodeId};
use thiserror::Error;

/// A control operation failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The listening address cannot be used.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of the node's identity cannot be read or written.
    #[error("{path}: {reason}", path = path.display())]
    State {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answered, or there is no way there.
    #[error("cannot reach {addr}: {reason}")]
    CannotReach {
        /// The address dialled.
        addr: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The peer's key is not the one stored at first contact.
    #[error(transparent)]
    KeyChanged(Box<KeyChanged>),
    /// The peer's key is not the one that was demanded.
    #[error("{addr} has another key than demanded: {expected} was expected, {found} answered")]
    PinMismatch {
        /// The address dialled.
        addr: SocketAddr,
        /// The key demanded.
        expected: NodeId,
        /// The key that answered.
        found: NodeId,
    },
    /// The peer is no Headwater node of this protocol version.
    #[error("{addr}: peer speaks another protocol version (this one speaks {ours})")]
    ProtocolVersion {
        /// The address dialled.
        addr: SocketAddr,
        /// The protocol this node speaks.
        ours: &'static str,
    },
    /// The peer answered, but no connection came of it.
    #[error("handshake with {addr} failed: {reason}")]
    Handshake {
        /// The peer's address.
        addr: SocketAddr,
        /// What was said.
        reason: String,
    },
    /// The link is no longer there.
    #[error("link closed: {reason}")]
    Closed {
        /// How it ended.
        reason: String,
    },
    /// The queue of frames to send is full; only from `try_send`.
    #[error("too many frames wait to be sent")]
    QueueFull,
    /// A frame, request or reply is longer than agreed.
    #[error("message of {} bytes is longer than the limit of {} bytes", bytes.get(), limit.get())]
    TooLong {
        /// Its length.
        bytes: Bytes,
        /// The most allowed.
        limit: Bytes,
    },
    /// The peer did not want to answer a request.
    #[error("peer refused the request")]
    Refused,
    /// The peer broke the rules of the link.
    #[error("peer sent a malformed message: {0}")]
    Malformed(&'static str),
}

/// Another key answers at an address than the one stored at first contact.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the key of {addr} has changed: it was {expected}, now it is {found}. Either the node was set up anew, or \
     somebody else answers in its place. If you know that it is right, remove line {line} of {file} or pass \
     --pin {found}",
    file = file.display()
)]
pub struct KeyChanged {
    /// The address dialled.
    pub addr: SocketAddr,
    /// The stored key.
    pub expected: NodeId,
    /// The key that answered.
    pub found: NodeId,
    /// The file that holds the stored key.
    pub file: PathBuf,
    /// Its line there, from one; zero if another process just removed it.
    pub line: usize,
}

impl ControlError {
    pub(super) fn no_answer(addr: SocketAddr, within: Duration) -> Self {
        ControlError::CannotReach { addr, reason: format!("no answer within {within}") }
    }
}
