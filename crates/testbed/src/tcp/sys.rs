//! The kernel's own account of a connection (TCP_INFO), which no library reads; the one `unsafe` of this folder.
//!
//! The fields are read by their place in `struct tcp_info` of `linux/tcp.h`, which only ever grows at its end: an older kernel
//! gives fewer of them.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};

use headwater_units::Duration;

/// Room for what kernels may add.
const ROOM: usize = 512;

/// The kernel's figures of a connection; fields that it is too old for are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Info {
    /// Congestion window, packets.
    pub(super) window: u32,
    /// Smoothed round-trip time; none before the first sample.
    pub(super) rtt: Option<Duration>,
    /// Packets sent again.
    pub(super) resent: u32,
    /// Bytes that the other end has acknowledged.
    pub(super) bytes_acked: Option<u64>,
    /// Packets with data sent, every one counted each time.
    pub(super) sent: Option<u32>,
    /// Packets acknowledged as marked (RFC 3168 or, for DCTCP, RFC 8257).
    pub(super) marked: Option<u32>,
    /// Retransmission timeouts; Linux 6.7.
    pub(super) timeouts: Option<u16>,
}

/// Asks the kernel about a connection.
///
/// # Errors
/// The kernel's; none is expected of a TCP socket.
pub(super) fn info(socket: impl AsFd) -> io::Result<Info> {
    let mut bytes = [0_u8; ROOM];
    let mut len = size_of_val(&bytes) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call; the kernel writes at most `len` bytes, which are ours, and any bytes
    // are valid ones.
    let result = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &raw mut len)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let known = &bytes[..(len as usize).min(ROOM)];
    Info::read(known).ok_or_else(|| io::Error::other("the kernel said too little of the connection"))
}

impl Info {
    fn read(bytes: &[u8]) -> Option<Info> {
        let u16_at = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let rtt = u32_at(68)?;
        Some(Info {
            window: u32_at(80)?,
            rtt: (rtt > 0).then(|| Duration::from_micros(rtt.into())),
            resent: u32_at(100)?,
            bytes_acked: u64_at(120),
            sent: u32_at(156),
            marked: u32_at(196),
            timeouts: u16_at(240),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_places_are_those_of_the_system_header() {
        let places = [
            (std::mem::offset_of!(libc::tcp_info, tcpi_rtt), 68),
            (std::mem::offset_of!(libc::tcp_info, tcpi_snd_cwnd), 80),
            (std::mem::offset_of!(libc::tcp_info, tcpi_total_retrans), 100),
        ];
        for (theirs, ours) in places {
            assert_eq!(theirs, ours);
        }
    }

    #[test]
    fn what_a_connection_has_done_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        here.write_all(&[7; 10_000]).unwrap();
        there.read_exact(&mut [0; 10_000]).unwrap();
        there.write_all(b".").unwrap();
        here.read_exact(&mut [0]).unwrap();
        let info = info(&here).unwrap();
        assert!(info.window >= 1 && info.rtt.is_some_and(|rtt| rtt < Duration::from_secs(1)), "{info:?}");
        // The SYN counts as a byte.
        assert!(info.bytes_acked.is_none_or(|bytes| (10_000..=10_001).contains(&bytes)), "{info:?}");
        assert!(info.sent.is_none_or(|sent| (1..=100).contains(&sent)), "{info:?}");
        assert_eq!(info.resent, 0, "{info:?}");
    }

    #[test]
    fn an_older_kernel_leaves_the_newer_fields_out() {
        let info = Info::read(&[1; 104]).unwrap();
        assert_eq!((info.bytes_acked, info.sent, info.marked, info.timeouts), (None, None, None, None));
        assert_eq!(info.window, 0x0101_0101);
        assert_eq!(Info::read(&[1; 103]), None);
    }
}
