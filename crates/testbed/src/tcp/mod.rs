//! Plain TCP of the kernel: what push traffic is compared with, and what it must leave room for, on real networks.
//!
//! ```text
//!   Sender::connect -> (ready) -> Sender::run       one connection; Sent
//!   Receiver::listen -> Receiver::run               any number of connections; Received of each
//! ```
//!
//! A sender begins its connection with one line, its name, which is no part of the data: with it the receiver's rows and
//! results carry the name as well. The window, losses and timeouts are the kernel's own account (TCP_INFO). Each end is one thread
//! that waits in `poll`, so samples are taken between two calls and cost no lock.
//!
//! Knows nothing of objects, blocks or coding, and does not encrypt: it is iperf3 with our clock and our files, for
//! experiments on networks of one's own.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_units::Duration;
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use socket2::Socket;
use thiserror::Error;

mod receive;
mod send;
mod sys;
#[cfg(test)]
mod tests;
mod timeline;

pub use receive::{ReceiveOptions, Received, Receiver};
pub use send::{Amount, SendOptions, Sender, Sent};
pub use timeline::TimelineOptions;

/// The longest name of a connection, bytes.
pub const LONGEST_NAME: usize = 200;
/// How long it takes at most to see that one is asked to stop.
const LOOK: Duration = Duration::from_millis(20);
/// The kernel's list of congestion controls.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// A connection cannot be made, or went wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TcpError {
    /// The kernel has no such congestion control.
    #[error("this kernel has no congestion control '{name}'; it has {there}{}", hint(.name))]
    UnknownCongestion {
        /// As given.
        name: String,
        /// The congestion controls that there are.
        there: String,
    },
    /// The kernel has it, but not for this user.
    #[error(
        "only an administrator may use the congestion control '{name}'; /proc/sys/net/ipv4/tcp_allowed_congestion_control lists what everybody may"
    )]
    ForbiddenCongestion {
        /// As given.
        name: String,
    },
    /// A name that cannot stand in a line of a table.
    #[error(
        "'{name}' is no name for a connection; write 1 to {LONGEST_NAME} bytes without commas, quotes and control characters"
    )]
    Name {
        /// As given.
        name: String,
    },
    /// An interval that is no interval.
    #[error("a timeline cannot have a row every {every}; write 100us or more")]
    Interval {
        /// As given.
        every: Duration,
    },
    /// Nobody accepts the connection.
    #[error("cannot connect to {to}: {source}")]
    Connect {
        /// The peer.
        to: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {on}: {source}")]
    Listen {
        /// The address.
        on: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The connection broke before its end.
    #[error("the connection to {to} broke after {bytes} bytes: {source}")]
    Broken {
        /// The peer.
        to: SocketAddr,
        /// Bytes that were handed to the kernel by then.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A timeline cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Timeline {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Something else that the system refused.
    #[error("{doing}: {source}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Advice about a congestion control that Linux has as a module.
fn hint(name: &str) -> String {
    match name {
        "dctcp" | "bbr" | "cubic" | "reno" => format!("; `modprobe tcp_{name}` may bring it"),
        _ => String::new(),
    }
}

impl TcpError {
    fn io(doing: &'static str) -> impl FnOnce(io::Error) -> TcpError {
        move |source| TcpError::Io { doing, source }
    }
}

/// CLOCK_MONOTONIC in nanoseconds: one clock for all processes of a machine, whatever their namespaces.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until a descriptor is ready or it is `until`, on the clock of [`monotonic_ns`]; a signal may end it earlier.
fn wait(fds: &mut [PollFd<'_>], until: u64) -> Result<(), TcpError> {
    let left = until.saturating_sub(monotonic_ns());
    let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as _ };
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(TcpError::io("cannot wait for a connection")(error.into())),
    }
}

/// Chooses the congestion control, before the connection: DCTCP asks for ECN in its first packet.
fn choose_congestion(socket: &Socket, name: Option<&str>) -> Result<(), TcpError> {
    let Some(name) = name else { return Ok(()) };
    socket.set_tcp_congestion(name.as_bytes()).map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM) => TcpError::ForbiddenCongestion { name: name.to_owned() },
        // The kernel cuts names at 15 bytes and says EINVAL to an empty one.
        Some(libc::ENOENT | libc::EINVAL) => {
            let there = std::fs::read_to_string(AVAILABLE).unwrap_or_else(|_| "none that it tells of".into());
            TcpError::UnknownCongestion {
                name: name.to_owned(),
                there: there.split_whitespace().collect::<Vec<_>>().join(", "),
            }
        }
        _ => TcpError::io("cannot choose a congestion control")(source),
    })
}

/// The congestion control in force.
fn congestion_of(socket: &Socket) -> Result<String, TcpError> {
    let name = socket.tcp_congestion().map_err(TcpError::io("cannot ask for the congestion control"))?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Whether a name can stand in a line of a table.
fn check_name(name: &str) -> Result<(), TcpError> {
    let strange = |c: char| c.is_control() || matches!(c, ',' | '"' | '\'');
    if name.trim().is_empty() || name.len() > LONGEST_NAME || name.contains(strange) {
        return Err(TcpError::Name { name: name.chars().take(LONGEST_NAME).collect() });
    }
    Ok(())
}

/// Bit/s; zero of no time.
fn goodput(bytes: u64, nanos: u64) -> f64 {
    if nanos == 0 { 0.0 } else { bytes as f64 * 8.0 * 1e9 / nanos as f64 }
}
