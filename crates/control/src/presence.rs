//! Whether a node is there: found by a question that costs the asked node no handshake.
//!
//! A datagram of a QUIC version that does not exist makes a listener say which ones it speaks (RFC 9000 §6), at once and without
//! remembering anything. So a listener that is slow is told from an address where nothing is, and an address that refuses from one
//! that swallows everything.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater_units::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// A version that is reserved to make listeners negotiate (RFC 9000 §15).
const NO_VERSION: u32 = 0x1a2a_3a4a;
/// Listeners answer nothing shorter (RFC 9000 §14.1).
const QUESTION: usize = 1200;
/// Interval at which the question is repeated.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(500);

/// Result of looking for a node at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// A listener that speaks QUIC.
    There,
    /// The machine answers, but nothing listens on that port.
    Refused,
    /// Nothing came back.
    Silent,
}

/// Asks until somebody answers, at most for the time `within`.
pub(super) async fn presence_at(addr: SocketAddr, within: Duration) -> Presence {
    #[allow(clippy::disallowed_methods)] // How long a person waits is not up to a machine.
    let until = Instant::now() + std::time::Duration::from(within);
    let mut presence = Presence::Silent;
    let Ok(socket) = connected(addr).await else { return presence };
    let mut answer = [0; 64];
    while !has_passed(until) {
        if let Err(error) = socket.send(&question()).await {
            note(&mut presence, &error);
        }
        let again = until.min(now() + AGAIN);
        while let Ok(received) = timeout_at(again, socket.recv(&mut answer)).await {
            match received {
                Ok(length) if is_negotiation(&answer[..length]) => return Presence::There,
                Ok(_) => {}
                Err(error) => note(&mut presence, &error),
            }
        }
    }
    presence
}

#[allow(clippy::disallowed_methods)] // As above.
fn now() -> Instant {
    Instant::now()
}

fn has_passed(until: Instant) -> bool {
    now() >= until
}

fn note(presence: &mut Presence, error: &io::Error) {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        *presence = Presence::Refused;
    }
}

async fn connected(addr: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    // Of a connected socket the kernel tells what ICMP says.
    socket.connect(addr).await?;
    Ok(socket)
}

/// A long header (RFC 8999 §5.1) with connection ids of eight bytes, filled up.
fn question() -> Vec<u8> {
    let mut bytes = vec![0xc0];
    bytes.extend(NO_VERSION.to_be_bytes());
    bytes.extend([8, 1, 2, 3, 4, 5, 6, 7, 8]);
    bytes.extend([8, 8, 7, 6, 5, 4, 3, 2, 1]);
    bytes.resize(QUESTION, 0);
    bytes
}

/// A long header of version zero (RFC 8999 §6).
fn is_negotiation(bytes: &[u8]) -> bool {
    matches!(bytes, [first, 0, 0, 0, 0, ..] if first & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_where_nothing_listens_is_told_from_one_that_is_silent() {
        let within = Duration::from_millis(700);
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(presence_at(silent.local_addr().unwrap(), within).await, Presence::Silent);
        let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(presence_at(gone, within).await, Presence::Refused);
    }
}
