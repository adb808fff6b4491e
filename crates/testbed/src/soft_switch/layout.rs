//! Where things lie in an Ethernet frame, found once when it arrives.
//!
//! Reads Ethernet II with at most one 802.1Q tag, IPv4 with options (RFC 791) and IPv6 with the extension headers that
//! carry a next header and stand in the clear (RFC 8200 §4: hop-by-hop, routing, fragment, destination). Anything else
//! about a packet, its transport's checksum among it, is the business of the hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use thiserror::Error;

use super::checksum;

/// Ethernet II: two addresses and the type.
const ETHERNET: usize = 14;
const TAG: usize = 4;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const TYPE_TAG: u16 = 0x8100;
const TYPE_IPV6: u16 = 0x86dd;

const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
pub(super) const UDP_HEADER: usize = 8;

const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Why a frame goes nowhere. `reason as usize` counts from zero, for tables of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
#[repr(u8)]
pub enum NotForwarded {
    /// Not even an Ethernet header, or less than the IP header that it promises.
    #[error("the frame ends within its headers")]
    TooShort,
    /// ARP: hosts beyond a switch that knows all addresses have fixed neighbours.
    #[error("it is ARP")]
    Arp,
    /// Another protocol than IP, a length instead of a type, or more than one tag.
    #[error("it is not IP")]
    NotIp,
    /// The version in the IP header is not the one that the Ethernet type names.
    #[error("its IP version is not that of its Ethernet type")]
    BadVersion,
    /// The IPv4 header's length is below 20 bytes.
    #[error("its IPv4 header is too small")]
    BadHeaderLength,
    /// The IP packet is longer than the frame: a frame cut short, or a super-packet that was never segmented.
    #[error("its IP packet is longer than the frame")]
    BeyondFrame,
    /// The IPv4 packet is shorter than its own header, or the extension headers of IPv6 run over its end.
    #[error("its headers are longer than its IP packet")]
    BeyondPacket,
    /// The IPv4 header's checksum is wrong.
    #[error("its IPv4 header's checksum is wrong")]
    BadChecksum,
}

impl NotForwarded {
    /// All reasons, in order of their numbers.
    pub const ALL: [NotForwarded; 8] = [
        NotForwarded::TooShort,
        NotForwarded::Arp,
        NotForwarded::NotIp,
        NotForwarded::BadVersion,
        NotForwarded::BadHeaderLength,
        NotForwarded::BeyondFrame,
        NotForwarded::BeyondPacket,
        NotForwarded::BadChecksum,
    ];
}

/// Which IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// Offsets of one frame, in bytes from its start, and what was read on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) version: Version,
    /// The IP header.
    pub(super) ip: usize,
    /// One past the IP packet: where padding begins.
    pub(super) end: usize,
    /// Protocol of the part that follows the headers that were read; of a fragment, of the part that follows the
    /// headers that all fragments have.
    pub(super) protocol: u8,
    /// The UDP or TCP header of a whole packet, if its ports are there.
    transport: Option<usize>,
}

impl Layout {
    /// Finds its way through a frame.
    pub(super) fn find(frame: &[u8]) -> Result<Layout, NotForwarded> {
        let mut kind = word(frame, ETHERNET - 2).ok_or(NotForwarded::TooShort)?;
        let mut ip = ETHERNET;
        if kind == TYPE_TAG {
            ip += TAG;
            kind = word(frame, ip - 2).ok_or(NotForwarded::TooShort)?;
        }
        match kind {
            TYPE_IPV4 => ipv4(frame, ip),
            TYPE_IPV6 => ipv6(frame, ip),
            TYPE_ARP => Err(NotForwarded::Arp),
            _ => Err(NotForwarded::NotIp),
        }
    }

    /// Source and destination address.
    pub(super) fn addresses(&self, frame: &[u8]) -> (IpAddr, IpAddr) {
        fn at<const N: usize>(frame: &[u8], offset: usize) -> [u8; N] {
            frame[offset..][..N].try_into().expect("a slice of N bytes")
        }
        let ip = self.ip;
        match self.version {
            Version::V4 => {
                (Ipv4Addr::from(at(frame, ip + 12)).into(), Ipv4Addr::from(at(frame, ip + 16)).into())
            }
            Version::V6 => {
                (Ipv6Addr::from(at(frame, ip + 8)).into(), Ipv6Addr::from(at(frame, ip + 24)).into())
            }
        }
    }

    /// Where both addresses stand, one behind the other.
    pub(super) fn address_bytes(&self) -> Range<usize> {
        let (at, len) = match self.version {
            Version::V4 => (12, 8),
            Version::V6 => (8, 32),
        };
        self.ip + at..self.ip + at + len
    }

    /// Source and destination port as they stand in the frame; none of a fragment, nor of what is neither UDP nor TCP.
    pub(super) fn ports<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        self.transport.map(|at| &frame[at..at + 4])
    }

    /// Where the UDP payload begins, or would if the packet were long enough; none of a fragment, nor of what is not UDP.
    pub(super) fn udp_payload(&self) -> Option<usize> {
        self.transport.filter(|_| self.protocol == UDP).map(|at| at + UDP_HEADER)
    }
}

fn ipv4(frame: &[u8], ip: usize) -> Result<Layout, NotForwarded> {
    let header = frame.get(ip..).filter(|it| it.len() >= IPV4_HEADER).ok_or(NotForwarded::TooShort)?;
    if header[0] >> 4 != 4 {
        return Err(NotForwarded::BadVersion);
    }
    let header_len = usize::from(header[0] & 15) * 4;
    if header_len < IPV4_HEADER {
        return Err(NotForwarded::BadHeaderLength);
    }
    let words = header.get(..header_len).ok_or(NotForwarded::TooShort)?;
    if !checksum::is_right(words) {
        return Err(NotForwarded::BadChecksum);
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total > header.len() {
        return Err(NotForwarded::BeyondFrame);
    }
    if total < header_len {
        return Err(NotForwarded::BeyondPacket);
    }
    // More fragments, or not the first (RFC 791 §3.1).
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    let (protocol, end) = (header[9], ip + total);
    let transport = (!is_fragment).then_some(ip + header_len);
    Ok(Layout { version: Version::V4, ip, end, protocol, transport: with_ports(transport, protocol, end) })
}

fn ipv6(frame: &[u8], ip: usize) -> Result<Layout, NotForwarded> {
    let header = frame.get(ip..).filter(|it| it.len() >= IPV6_HEADER).ok_or(NotForwarded::TooShort)?;
    if header[0] >> 4 != 6 {
        return Err(NotForwarded::BadVersion);
    }
    let total = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let packet = header.get(..total).ok_or(NotForwarded::BeyondFrame)?;
    let mut protocol = header[6];
    let mut at = IPV6_HEADER;
    let mut is_fragment = false;
    // Ends: every header moves `at` on by 8 bytes or more. (A jumbogram has length zero, so its hop-by-hop header is beyond.)
    while !is_fragment && matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION | FRAGMENT) {
        let extension = packet.get(at..at + 8).ok_or(NotForwarded::BeyondPacket)?;
        let len = if protocol == FRAGMENT {
            // Offset or "more" (RFC 8200 §4.5); neither is an atomic fragment, which is whole (RFC 6946).
            is_fragment = u16::from_be_bytes([extension[2], extension[3]]) & 0xfff9 != 0;
            8
        } else {
            (usize::from(extension[1]) + 1) * 8
        };
        at += len;
        if at > total {
            return Err(NotForwarded::BeyondPacket);
        }
        protocol = extension[0];
    }
    let transport = (!is_fragment).then_some(ip + at);
    let end = ip + total;
    Ok(Layout { version: Version::V6, ip, end, protocol, transport: with_ports(transport, protocol, end) })
}

/// The transport's header, if it is one with ports and they are within the packet.
fn with_ports(transport: Option<usize>, protocol: u8, end: usize) -> Option<usize> {
    transport.filter(|at| matches!(protocol, UDP | TCP) && at + 4 <= end)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([word[0], word[1]]))
}

#[cfg(test)]
mod tests {
    use super::NotForwarded;

    #[test]
    fn reasons_are_numbered_in_their_order() {
        assert!(NotForwarded::ALL.iter().enumerate().all(|(number, reason)| *reason as usize == number));
    }
}
