//! Control messages (`cmsg(3)`) read and written in safe code.
//!
//! The layout is the kernel's: a header of `size_t` length, `int` level, `int` type, the data, and padding to the
//! alignment of `size_t`. A test holds it against libc's `CMSG_*` macros.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::addr::{PathAddr, as_source, mapped};

const ALIGN: usize = size_of::<usize>();
const HEADER: usize = size_of::<usize>() + 8;

/// Space for one received buffer's control messages. The four we ask for need 112 bytes on IPv4 and 120 on IPv6.
pub(super) const RECEIVE_SPACE: usize = 256;
/// Space for one sent message's control messages: TOS, source address, segment size.
const SEND_SPACE: usize = 128;

/// The control messages of one send.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct SendControl {
    bytes: [u8; SEND_SPACE],
    len: usize,
}

impl SendControl {
    pub(super) const EMPTY: SendControl = SendControl { bytes: [0; SEND_SPACE], len: 0 };

    /// Writes the control message of a datagram down `path` with this TOS byte; `segment` is the size to cut it into,
    /// if at all.
    ///
    /// A local address of the wrong family is left out: the send then fails or leaves from another address, as if
    /// `path` had named none.
    pub(super) fn write(&mut self, path: &PathAddr, tos: u8, segment: Option<u16>, socket_is_v6: bool) {
        self.len = 0;
        let remote = path.remote.ip().to_canonical();
        let tos = i32::from(tos).to_ne_bytes();
        match remote {
            IpAddr::V4(_) => self.append(libc::SOL_IP, libc::IP_TOS, &tos),
            IpAddr::V6(_) => self.append(libc::SOL_IPV6, libc::IPV6_TCLASS, &tos),
        }
        match (path.local.map(|ip| ip.to_canonical()), remote) {
            (Some(local @ IpAddr::V4(_)), IpAddr::V4(_)) if socket_is_v6 => {
                self.append_v6_source(mapped(local), 0)
            }
            (Some(IpAddr::V4(local)), IpAddr::V4(_)) => {
                // struct in_pktinfo: interface index (any), source address, destination (ignored).
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&local.octets());
                self.append(libc::SOL_IP, libc::IP_PKTINFO, &info);
            }
            (Some(IpAddr::V6(local)), IpAddr::V6(_)) => {
                let scope = match path.remote {
                    std::net::SocketAddr::V6(remote) => remote.scope_id(),
                    std::net::SocketAddr::V4(_) => 0,
                };
                self.append_v6_source(local, scope);
            }
            _ => {}
        }
        if let Some(segment) = segment {
            self.append(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn append_v6_source(&mut self, local: Ipv6Addr, interface: u32) {
        // struct in6_pktinfo: source address, interface index.
        let mut info = [0; 20];
        info[..16].copy_from_slice(&local.octets());
        info[16..].copy_from_slice(&interface.to_ne_bytes());
        self.append(libc::SOL_IPV6, libc::IPV6_PKTINFO, &info);
    }

    fn append(&mut self, level: i32, kind: i32, data: &[u8]) {
        let at = self.len;
        let end = at + (HEADER + data.len()).next_multiple_of(ALIGN);
        assert!(end <= SEND_SPACE, "send control space is sized for every message we write");
        let out = &mut self.bytes[at..end];
        out.fill(0);
        out[..ALIGN].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        out[ALIGN..ALIGN + 4].copy_from_slice(&level.to_ne_bytes());
        out[ALIGN + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        out[HEADER..HEADER + data.len()].copy_from_slice(data);
        self.len = end;
    }
}

/// The kernel's statements about one received buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// The TOS or traffic class byte.
    pub(super) tos: Option<u8>,
    /// The address the datagrams were sent to, if replies may leave from it.
    pub(super) local: Option<IpAddr>,
    /// The size of each datagram of a merged buffer but the last.
    pub(super) segment: Option<usize>,
    /// Datagrams dropped for want of buffer since the socket was made, modulo 2^32.
    pub(super) dropped: Option<u32>,
}

impl Received {
    /// Reads all messages in `control`; unknown and malformed ones are skipped.
    pub(super) fn parse(control: &[u8]) -> Self {
        let mut out = Received::default();
        for (level, kind, data) in Messages(control) {
            match (level, kind) {
                (libc::SOL_IP, libc::IP_TOS) => out.tos = data.first().copied(),
                (libc::SOL_IPV6, libc::IPV6_TCLASS) => out.tos = int(data).map(|n| n as u8),
                (libc::SOL_IP, libc::IP_PKTINFO) => {
                    // The second field: for a multicast destination it is the address to answer from.
                    if let Some(source) = data.get(4..8) {
                        let octets: [u8; 4] = source.try_into().expect("4 bytes");
                        out.local = as_source(Ipv4Addr::from(octets).into());
                    }
                }
                (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                    if let Some(source) = data.get(..16) {
                        let octets: [u8; 16] = source.try_into().expect("16 bytes");
                        out.local = as_source(Ipv6Addr::from(octets).into());
                    }
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    out.segment = int(data).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => out.dropped = int(data).map(|n| n as u32),
                _ => {}
            }
        }
        out
    }
}

fn int(data: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(data.get(..4)?.try_into().expect("4 bytes")))
}

/// The (level, type, data) of each message; ends at the first that does not fit.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (i32, i32, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from_ne_bytes(self.0.get(..ALIGN)?.try_into().expect("a word"));
        let level = int(self.0.get(ALIGN..)?)?;
        let kind = int(self.0.get(ALIGN + 4..)?)?;
        let data = self.0.get(HEADER..len)?;
        self.0 = self.0.get(len.next_multiple_of(ALIGN)..).unwrap_or(&[]);
        Some((level, kind, data))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn everything_a_send_says_can_be_read_back() {
        let path =
            PathAddr { remote: "10.0.0.1:1".parse().unwrap(), local: Some("10.0.0.2".parse().unwrap()) };
        let mut control = SendControl::EMPTY;
        control.write(&path, 0xb9, Some(1400), false);
        let messages: Vec<_> = Messages(control.as_bytes()).collect();
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[0], (libc::SOL_IP, libc::IP_TOS, &0xb9_i32.to_ne_bytes()[..]));
        assert_eq!(messages[2], (libc::SOL_UDP, libc::UDP_SEGMENT, &1400_u16.to_ne_bytes()[..]));
        let read = Received::parse(control.as_bytes());
        assert_eq!((read.tos, read.local), (Some(0xb9), path.local));
    }

    #[test]
    fn the_longest_send_fits() {
        let path = PathAddr {
            remote: "[2001:db8::1]:1".parse().unwrap(),
            local: Some("2001:db8::2".parse().unwrap()),
        };
        let mut control = SendControl::EMPTY;
        control.write(&path, 0xff, Some(u16::MAX), true);
        assert_eq!(Messages(control.as_bytes()).count(), 3);
        let v4 = PathAddr { remote: "10.0.0.1:1".parse().unwrap(), local: Some("10.0.0.2".parse().unwrap()) };
        control.write(&v4, 1, None, true);
        assert_eq!(Received::parse(control.as_bytes()).local, v4.local, "mapped on a dual-stack socket");
    }

    #[test]
    fn a_length_beyond_the_buffer_ends_the_list() {
        let mut control = SendControl::EMPTY;
        control.write(&PathAddr::to("10.0.0.1:1".parse().unwrap()), 3, None, false);
        let mut bytes = control.as_bytes().to_vec();
        bytes[..ALIGN].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(Received::parse(&bytes), Received::default());
        bytes[..ALIGN].copy_from_slice(&3_usize.to_ne_bytes());
        assert_eq!(Received::parse(&bytes), Received::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            Received::parse(&bytes);
        }
    }
}
