//! Errors between two nodes, in words for the person at the keyboard.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
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
        /// The problem.
        reason: String,
    },
    /// A file of the node's identity cannot be written: the disk is full, or the user's quota of it is used up.
    #[error("{path}: {source}", path = path.display())]
    NoRoom {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Nobody answered, or there is no route there.
    #[error("cannot reach {addr}: {reason}")]
    CannotReach {
        /// The address dialled.
        addr: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// Somebody is there, but had no time or room for this node.
    #[error("{addr} answers, but {reason}")]
    Busy {
        /// The address dialled.
        addr: SocketAddr,
        /// The problem, in the peer's words.
        reason: String,
    },
    /// The peer's key is not the one stored at first contact.
    #[error(transparent)]
    KeyChanged(Box<KeyChanged>),
    /// The peer's key is not the one that was demanded.
    #[error(
        "{addr} has another key than demanded: {expected} was demanded, {found} answered. If {found} is what the node there prints \
         as its fingerprint, pass --pin {found}, or no longer demand another one (--pin, HEADWATER_PIN, or `pin` in the config file; \
         `headwater config` says which); else somebody else answers in its place"
    )]
    PinMismatch {
        /// The address dialled.
        addr: SocketAddr,
        /// The key demanded.
        expected: NodeId,
        /// The key that answered.
        found: NodeId,
    },
    /// The peer is no Headwater node of this protocol version.
    #[error(
        "{addr}: peer speaks another protocol version (this one speaks {ours}): install the same headwater on both machines"
    )]
    ProtocolVersion {
        /// The address dialled.
        addr: SocketAddr,
        /// The protocol this node speaks.
        ours: &'static str,
    },
    /// The peer is a Headwater node whose messages this one does not understand.
    #[error(
        "{addr}: peer understands messages of version {} to {}, this one {} to {}: install the same headwater on both machines",
        theirs.start(), theirs.end(), ours.start(), ours.end()
    )]
    MessageVersions {
        /// Where it is.
        addr: SocketAddr,
        /// Versions that this node understands.
        ours: RangeInclusive<u8>,
        /// Versions that the peer understands.
        theirs: RangeInclusive<u8>,
    },
    /// The peer answered, but no connection came of it.
    #[error("handshake with {addr} failed: {reason}; is it a headwater node, and of the same version?")]
    Handshake {
        /// The peer's address.
        addr: SocketAddr,
        /// The peer's reason.
        reason: String,
    },
    /// The link is no longer there.
    #[error("link closed: {reason}")]
    Closed {
        /// How it ended.
        reason: String,
    },
    /// The queue of frames to send is full; only from `try_send`.
    #[error("too many frames are waiting to be sent")]
    QueueFull,
    /// A frame, request or reply is longer than agreed.
    #[error("message of {} bytes is longer than the limit of {} bytes", bytes.get(), limit.get())]
    TooLong {
        /// Its length.
        bytes: Bytes,
        /// The most allowed.
        limit: Bytes,
    },
    /// The answer to a request did not come.
    #[error("no answer to a request within {within}: the peer is very busy; try again")]
    NoReply {
        /// How long it had.
        within: Duration,
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

/// Where nodes listen if nobody says otherwise.
const USUAL_PORTS: &str = "`headwater up` and `controller` listen on UDP port 7000, `node` and `serve` on 7001, unless --listen says otherwise";

impl ControlError {
    /// Nothing at all came back.
    pub fn no_answer(addr: SocketAddr, within: Duration) -> Self {
        let port = addr.port();
        let reason = format!(
            "no answer within {within}: is that machine up and headwater running there, and does no firewall drop UDP port {port}? \
             {USUAL_PORTS}"
        );
        ControlError::CannotReach { addr, reason }
    }

    /// The machine answers that nothing listens there.
    pub fn nothing_listens(addr: SocketAddr) -> Self {
        let port = addr.port();
        let reason = format!(
            "nothing listens on UDP port {port} there: is headwater running, and is it that port? {USUAL_PORTS}"
        );
        ControlError::CannotReach { addr, reason }
    }

    /// Somebody is there, and has no time.
    pub fn busy(addr: SocketAddr, within: Duration) -> Self {
        let reason = format!(
            "it came to no handshake within {within}: it is very busy; try again, or wait longer with --timeout"
        );
        ControlError::Busy { addr, reason }
    }

    /// Whether dialling again may help, if somebody is there.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            ControlError::CannotReach { .. } | ControlError::Busy { .. } | ControlError::Closed { .. }
        )
    }
}
