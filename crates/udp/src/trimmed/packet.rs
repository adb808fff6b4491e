//! Finds its way through what is left of a packet, from the IP header on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::MAX_FURTHER;

/// Which IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn ether_type(self) -> u16 {
        match self {
            Family::V4 => libc::ETH_P_IP as u16,
            Family::V6 => libc::ETH_P_IPV6 as u16,
        }
    }
}

/// Which packets are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) dscp: u8,
    pub(super) ports: ArrayVec<u16, MAX_FURTHER>,
}

/// Of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) source: SocketAddr,
    pub(super) destination: IpAddr,
    pub(super) tos: u8,
    /// Where the UDP payload is.
    pub(super) payload: Range<usize>,
}

impl Found {
    /// Addresses of one link mean nothing without it.
    pub(super) fn came_by(mut self, interface: u32) -> Self {
        if let SocketAddr::V6(source) = &mut self.source
            && source.ip().is_unicast_link_local()
        {
            source.set_scope_id(interface);
        }
        self
    }
}

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

/// A trimmed UDP packet for one of the ports, whose UDP length is not its own any more; no fragment, and no IPv6 with
/// extension headers, which no sender of ours makes.
pub(super) fn read(family: Family, packet: &[u8], wanted: &Wanted) -> Option<Found> {
    let (tos, udp, end, addresses): (u8, usize, usize, [IpAddr; 2]) = match family {
        Family::V4 => {
            let header: &[u8; IPV4_HEADER] = packet.first_chunk()?;
            let len = usize::from(header[0] & 15) * 4;
            let is_whole = word(header, 6)? & 0x3fff == 0;
            if header[0] >> 4 != 4 || len < IPV4_HEADER || header[9] != UDP || !is_whole {
                return None;
            }
            let at = |at: usize| IpAddr::from(Ipv4Addr::from(chunk::<4>(header, at)));
            (header[1], len, usize::from(word(header, 2)?), [at(12), at(16)])
        }
        Family::V6 => {
            let header: &[u8; IPV6_HEADER] = packet.first_chunk()?;
            if header[0] >> 4 != 6 || header[6] != UDP {
                return None;
            }
            let at = |at: usize| IpAddr::from(Ipv6Addr::from(chunk::<16>(header, at)));
            let tos = header[0] << 4 | header[1] >> 4;
            (tos, IPV6_HEADER, IPV6_HEADER + usize::from(word(header, 4)?), [at(8), at(24)])
        }
    };
    let [from, to, len] = [word(packet, udp)?, word(packet, udp + 2)?, word(packet, udp + 4)?];
    let stale = usize::from(len) != end.checked_sub(udp)?;
    let payload = udp + UDP_HEADER..end.min(packet.len());
    let is_wanted = tos >> 2 == wanted.dscp && wanted.ports.contains(&to) && stale;
    (is_wanted && payload.start <= payload.end).then_some(Found {
        source: SocketAddr::new(addresses[0], from),
        destination: addresses[1],
        tos,
        payload,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn chunk<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    *header[at..].first_chunk().expect("an address within its header")
}

#[cfg(test)]
pub(super) mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    pub(in crate::trimmed) fn wanted(ports: &[u16]) -> Wanted {
        Wanted { dscp: 51, ports: ports.iter().copied().collect() }
    }

    /// A packet to port 9000 as a switch leaves it that cuts it to `keep` bytes and touches nothing of UDP.
    pub(in crate::trimmed) fn cut(family: Family, tos: u8, keep: usize) -> Vec<u8> {
        let mut packet = Vec::new();
        let payload: Vec<u8> = (0..1000).map(|at| at as u8).collect();
        match family {
            Family::V4 => {
                let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(7, 9000);
                builder.write(&mut packet, &payload).unwrap();
                packet[1] = tos;
                packet[2..4].copy_from_slice(&(keep as u16).to_be_bytes());
            }
            Family::V6 => {
                let mut from = [0; 16];
                (from[0], from[1], from[15]) = (0xfe, 0x80, 1);
                let builder = PacketBuilder::ipv6(from, [9; 16], 64).udp(7, 9000);
                builder.write(&mut packet, &payload).unwrap();
                packet[0] = 0x60 | tos >> 4;
                packet[1] = tos << 4 | packet[1] & 15;
                packet[4..6].copy_from_slice(&((keep - 40) as u16).to_be_bytes());
            }
        }
        packet.truncate(keep);
        packet
    }

    const TOS: u8 = 51 << 2 | 2;

    #[test]
    fn what_is_left_is_found_with_its_sender_and_its_marks() {
        for (family, headers, from) in [(Family::V4, 28, "10.0.0.1:7"), (Family::V6, 48, "[fe80::1%3]:7")] {
            let packet = cut(family, TOS, 114);
            let found = read(family, &packet, &wanted(&[1, 9000])).unwrap().came_by(3);
            assert_eq!((found.source, found.tos), (from.parse().unwrap(), TOS));
            assert_eq!(found.payload, headers..114);
            assert_eq!(packet[headers], 0, "the first byte of the payload");
            assert_eq!(found.destination.is_ipv4(), family == Family::V4);
            // A shorter piece of it, and padding behind it.
            assert_eq!(read(family, &packet[..100], &wanted(&[9000])).unwrap().payload, headers..100);
            let padded = [&packet[..], &[0; 20]].concat();
            assert_eq!(read(family, &padded, &wanted(&[9000])).unwrap().payload, headers..114);
        }
    }

    #[test]
    fn everything_else_is_the_udp_sockets_or_nobodys() {
        for family in [Family::V4, Family::V6] {
            let good = cut(family, TOS, 114);
            let refused = |packet: &[u8], ports: &[u16]| read(family, packet, &wanted(ports)).is_none();
            assert!(!refused(&good, &[9000]));
            assert!(refused(&good, &[9001]), "another port");
            assert!(refused(&cut(family, 0, 114), &[9000]), "another code point");
            // Whole, or with a length that was made right.
            let whole = cut(family, TOS, if family == Family::V4 { 1028 } else { 1048 });
            assert!(refused(&whole, &[9000]));
            let (udp, length) = if family == Family::V4 { (20, 94_u16) } else { (40, 74) };
            let mut repaired = good.clone();
            repaired[udp + 4..udp + 6].copy_from_slice(&length.to_be_bytes());
            assert!(refused(&repaired, &[9000]));
            assert!(refused(&good[..udp + 5], &[9000]), "too short");
            let protocol = if family == Family::V4 { 9 } else { 6 };
            let mut other = good.clone();
            other[protocol] = 6;
            assert!(refused(&other, &[9000]), "TCP");
        }
        let mut fragment = cut(Family::V4, TOS, 114);
        fragment[6] = 0x20;
        assert_eq!(read(Family::V4, &fragment, &wanted(&[9000])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for family in [Family::V4, Family::V6] {
                if let Some(found) = read(family, &bytes, &wanted(&[9000])) {
                    prop_assert!(found.payload.end <= bytes.len());
                }
            }
        }
    }
}
