//! Addresses as the kernel writes them, in safe code.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Both ends of a path: the peer, and which of our own addresses it sees.
///
/// IPv4 peers of a dual-stack socket appear as plain IPv4 here, never as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathAddr {
    /// The peer.
    pub remote: SocketAddr,
    /// Our address; `None` lets the kernel choose. Received datagrams carry the address they were sent to, so that
    /// replies leave from there; `None` for multicast and broadcast, which cannot be a source.
    pub local: Option<IpAddr>,
}

impl PathAddr {
    /// The path to `remote` from whichever address the kernel picks.
    pub fn to(remote: SocketAddr) -> Self {
        PathAddr { remote, local: None }
    }
}

impl From<SocketAddr> for PathAddr {
    fn from(remote: SocketAddr) -> Self {
        PathAddr::to(remote)
    }
}

impl From<PathAddr> for SocketAddr {
    fn from(path: PathAddr) -> Self {
        path.remote
    }
}

/// The size of the longest address we use (`sockaddr_in6`).
pub(super) const NAME_LEN: usize = 28;

/// A `sockaddr_in` or `sockaddr_in6` in the kernel's layout.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct SockName {
    pub(super) bytes: [u8; NAME_LEN],
    pub(super) len: u32,
}

impl SockName {
    pub(super) const EMPTY: SockName = SockName { bytes: [0; NAME_LEN], len: 0 };

    /// `addr` for a socket of the given family; `None` if the socket cannot reach that family.
    pub(super) fn encode(addr: SocketAddr, socket_is_v6: bool) -> Option<Self> {
        let mut name = SockName::EMPTY;
        let (ip, scope) = match addr {
            SocketAddr::V4(v4) => (IpAddr::V4(*v4.ip()), 0),
            SocketAddr::V6(v6) => (v6.ip().to_canonical(), v6.scope_id()),
        };
        let bytes = &mut name.bytes;
        bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        if socket_is_v6 {
            bytes[0..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[8..24].copy_from_slice(&mapped(ip).octets());
            bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
            name.len = 28;
        } else {
            let IpAddr::V4(ip) = ip else { return None };
            bytes[0..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&ip.octets());
            name.len = 16;
        }
        Some(name)
    }

    /// The interface by which a packet came, in the name that a packet socket gives (`sockaddr_ll`).
    pub(super) fn interface(&self) -> u32 {
        u32::from_ne_bytes(self.bytes[4..8].try_into().expect("4 bytes"))
    }

    /// The address, with mapped IPv4 made plain; `None` for anything else than IPv4 and IPv6.
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        match (libc::c_int::from(u16::from_ne_bytes([b[0], b[1]])), self.len) {
            (libc::AF_INET, 16..) => {
                Some(SocketAddrV4::new(Ipv4Addr::new(b[4], b[5], b[6], b[7]), port).into())
            }
            (libc::AF_INET6, 28..) => {
                let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&b[8..24]).expect("16 bytes"));
                let scope = u32::from_ne_bytes(b[24..28].try_into().expect("4 bytes"));
                Some(match ip.to_canonical() {
                    IpAddr::V4(ip) => SocketAddrV4::new(ip, port).into(),
                    IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
                })
            }
            _ => None,
        }
    }
}

/// `ip` as an IPv6 socket writes it.
pub(super) fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// `ip` if a reply may leave from it.
pub(super) fn as_source(ip: IpAddr) -> Option<IpAddr> {
    let ip = ip.to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    (!ip.is_multicast() && !ip.is_unspecified() && !broadcast).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_being_written_and_read() {
        for text in ["10.1.2.3:4450", "[2001:db8::7]:1", "[::1]:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(SockName::encode(addr, true).unwrap().decode(), Some(addr), "{text}");
            let v4 = SockName::encode(addr, false);
            assert_eq!(v4.is_some(), addr.is_ipv4());
            assert!(v4.is_none_or(|name| name.decode() == Some(addr)));
        }
        let scoped = SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 3));
        assert_eq!(SockName::encode(scoped, true).unwrap().decode(), Some(scoped));
    }

    #[test]
    fn mapped_ipv4_is_plain_ipv4() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:80".parse().unwrap();
        let plain: SocketAddr = "10.0.0.1:80".parse().unwrap();
        assert_eq!(SockName::encode(mapped, false).unwrap().decode(), Some(plain));
        assert_eq!(SockName::encode(mapped, true).unwrap().decode(), Some(plain));
    }

    #[test]
    fn group_addresses_are_never_a_source() {
        for text in ["224.0.0.1", "255.255.255.255", "0.0.0.0", "ff02::1", "::"] {
            assert_eq!(as_source(text.parse().unwrap()), None, "{text}");
        }
        assert_eq!(as_source("::ffff:10.0.0.1".parse().unwrap()), Some("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn cut_off_names_are_no_address() {
        let mut name = SockName::encode("10.0.0.1:1".parse().unwrap(), false).unwrap();
        name.len = 8;
        assert_eq!(name.decode(), None);
        assert_eq!(SockName::EMPTY.decode(), None);
    }
}
