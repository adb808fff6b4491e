//! One UDP socket, set up for batches, marks and offload.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use headwater_units::Bytes;
use socket2::{Domain, Protocol, Socket, Type};

use super::stats::SocketStats;
use super::sys;

/// How to set up a [`UdpPort`].
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// Receive buffer to ask the kernel for. 8 MiB: 6.7 ms of a 10 Gbit/s link, more than the data thread sleeps
    /// through while a worker holds its core.
    pub receive_buffer: Bytes,
    /// Send buffer to ask for. 2 MiB: 32 full groups, enough to keep a device busy between two wakes; more would only
    /// hide queueing from the pacer.
    pub send_buffer: Bytes,
    /// Use what the kernel and the path offer of these; both by default. Testbeds that mark single packets turn
    /// segmentation off, because a marker in front of it sees whole groups.
    pub offload: Offload,
    /// How what is sent to groups travels.
    pub multicast: Multicast,
}

/// How far datagrams to a multicast group travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// Routers that may pass it on, and one: the time to live. 1, as every kernel has it (RFC 1112 §6.1): the link's own
    /// hosts.
    pub hops: u8,
    /// Whether members on this host get it too. So they do unless told otherwise; without any it costs nothing.
    pub to_this_host: bool,
}

impl Default for Multicast {
    fn default() -> Self {
        Multicast { hops: 1, to_this_host: true }
    }
}

impl Default for SocketOptions {
    fn default() -> Self {
        SocketOptions {
            receive_buffer: Bytes::mib(8),
            send_buffer: Bytes::mib(2),
            offload: Offload { segmentation: true, merging: true },
            multicast: Multicast::default(),
        }
    }
}

/// Kernel services for many datagrams at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// One send becomes many datagrams (UDP GSO).
    pub segmentation: bool,
    /// Many datagrams become one receive buffer (UDP GRO).
    pub merging: bool,
}

/// A bound, non-blocking UDP socket with its counters. Belongs to one thread.
#[derive(Debug)]
pub struct UdpPort {
    pub(super) socket: Socket,
    pub(super) is_v6: bool,
    pub(super) offload: Offload,
    /// A segmented send has succeeded, so a failing one says something about its destination, not about the kernel.
    pub(super) segmentation_proven: bool,
    /// The last cumulative count of `SO_RXQ_OVFL`.
    pub(super) dropped_before: u32,
    pub(super) stats: SocketStats,
    local: SocketAddr,
    buffer_hint: Option<String>,
}

impl UdpPort {
    /// Binds to `addr`; port 0 lets the kernel choose. `[::]` receives IPv4 as well.
    ///
    /// # Errors
    /// The kernel's, if the address cannot be bound or the socket cannot tell TOS bytes and addresses. Missing
    /// offload and small buffers are no errors: see [`UdpPort::offload`] and [`UdpPort::buffer_hint`].
    pub fn bind(addr: SocketAddr, options: &SocketOptions) -> io::Result<UdpPort> {
        UdpPort::open(addr, options, false)
    }

    /// `shared`: others that say so too may be bound to the same address.
    pub(super) fn open(addr: SocketAddr, options: &SocketOptions, shared: bool) -> io::Result<UdpPort> {
        let is_v6 = addr.is_ipv6();
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if is_v6 {
            socket.set_only_v6(!addr.ip().is_unspecified() && !is_mapped(addr))?;
        }
        socket.set_reuse_address(shared)?;
        let set = |level, name, value| sys::set_option(socket.as_fd(), level, name, value);

        // IPv4 options matter on IPv6 sockets too: a dual-stack socket carries both. DO sets "don't fragment" and
        // turns an MTU that the kernel learnt into EMSGSIZE, which is reported per destination.
        set(libc::SOL_IP, libc::IP_RECVTOS, 1)?;
        set(libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        if is_v6 {
            set(libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            set(libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            set(libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
        } else {
            set(libc::SOL_IP, libc::IP_PKTINFO, 1)?;
        }
        let Multicast { hops, to_this_host } = options.multicast;
        set(libc::SOL_IP, libc::IP_MULTICAST_TTL, hops.into())?;
        set(libc::SOL_IP, libc::IP_MULTICAST_LOOP, to_this_host.into())?;
        if is_v6 {
            set(libc::SOL_IPV6, libc::IPV6_MULTICAST_HOPS, hops.into())?;
            set(libc::SOL_IPV6, libc::IPV6_MULTICAST_LOOP, to_this_host.into())?;
        }
        set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        // A kernel without segmentation would ignore the request and send one huge datagram, so ask it first.
        let segmentation = options.offload.segmentation
            && sys::option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok();
        let merging = options.offload.merging && set(libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();

        let clipped = [
            grant(&socket, &RECEIVE_BUFFER, options.receive_buffer)?,
            grant(&socket, &SEND_BUFFER, options.send_buffer)?,
        ];
        socket.bind(&addr.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(UdpPort {
            socket,
            is_v6,
            offload: Offload { segmentation, merging },
            segmentation_proven: false,
            dropped_before: 0,
            stats: SocketStats::default(),
            local,
            buffer_hint: hint(clipped),
        })
    }

    /// The bound address, with the port the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Kernel services of this port. Segmentation goes off for good when the first attempt shows that it is refused.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// One line for people if the kernel's limits clipped the buffers that were asked for, with what to set.
    pub fn buffer_hint(&self) -> Option<String> {
        self.buffer_hint.clone()
    }

    /// Size of the receive buffer, counted the kernel's way: a packet takes more than its bytes.
    pub fn receive_buffer(&self) -> Bytes {
        let doubled = sys::option(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
        Bytes::new(u64::try_from(doubled).unwrap_or(0))
    }

    /// The counters so far.
    pub fn stats(&self) -> &SocketStats {
        &self.stats
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The longest UDP payload that reaches `remote` unfragmented, as far as the kernel knows: its route's MTU, or less
/// if the network said so. A guess, not a probe.
///
/// # Errors
/// The kernel's, if there is no route.
pub fn path_mtu(remote: SocketAddr) -> io::Result<Bytes> {
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&remote.into())?;
    let (level, name, headers) = match remote.ip() {
        IpAddr::V4(_) => (libc::SOL_IP, libc::IP_MTU, 20 + 8),
        IpAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_MTU, 40 + 8),
    };
    let mtu = sys::option(socket.as_fd(), level, name)?;
    Ok(Bytes::new(u64::try_from(mtu).unwrap_or(0).saturating_sub(headers)))
}

/// Our address by which `remote` is reached, as the kernel's routes have it now.
///
/// # Errors
/// The kernel's, if there is no route.
pub fn own_address(remote: SocketAddr) -> io::Result<IpAddr> {
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&remote.into())?;
    let own = socket.local_addr()?.as_socket();
    own.map(|own| own.ip()).ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

fn is_mapped(addr: SocketAddr) -> bool {
    matches!(addr, SocketAddr::V6(addr) if addr.ip().to_ipv4_mapped().is_some())
}

/// Asks the kernel for a socket's receive buffer, past the limit if we may. One line for people if less was granted, with what to set.
///
/// # Errors
/// The kernel's, if the socket cannot be asked.
pub fn ask_receive_buffer(socket: &Socket, size: Bytes) -> io::Result<Option<String>> {
    Ok(hint([grant(socket, &RECEIVE_BUFFER, size)?, None]))
}

/// One of the two socket buffers.
#[derive(Debug)]
pub(super) struct BufferKind {
    word: &'static str,
    force: libc::c_int,
    plain: libc::c_int,
    sysctl: &'static str,
}

pub(super) const RECEIVE_BUFFER: BufferKind = BufferKind {
    word: "receive",
    force: libc::SO_RCVBUFFORCE,
    plain: libc::SO_RCVBUF,
    sysctl: "net.core.rmem_max",
};
const SEND_BUFFER: BufferKind = BufferKind {
    word: "send",
    force: libc::SO_SNDBUFFORCE,
    plain: libc::SO_SNDBUF,
    sysctl: "net.core.wmem_max",
};

/// A buffer that came out smaller than asked for.
#[derive(Debug)]
pub(super) struct Clipped {
    kind: &'static BufferKind,
    asked: Bytes,
    granted: Bytes,
}

/// Asks for a buffer, past the limit if we may; says if less was granted.
pub(super) fn grant(socket: &Socket, kind: &'static BufferKind, asked: Bytes) -> io::Result<Option<Clipped>> {
    // The kernel doubles the number for its own bookkeeping, so half of the largest is the most one can ask for.
    let value = libc::c_int::try_from(asked.get()).unwrap_or(libc::c_int::MAX).min(libc::c_int::MAX / 2);
    if sys::set_option(socket.as_fd(), libc::SOL_SOCKET, kind.force, value).is_err() {
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, kind.plain, value)?;
    }
    let doubled = sys::option(socket.as_fd(), libc::SOL_SOCKET, kind.plain)?;
    let granted = Bytes::new(u64::try_from(doubled / 2).unwrap_or(0));
    let asked = Bytes::new(value as u64);
    Ok((granted < asked).then_some(Clipped { kind, asked, granted }))
}

fn hint(clipped: [Option<Clipped>; 2]) -> Option<String> {
    let clipped: Vec<Clipped> = clipped.into_iter().flatten().collect();
    if clipped.is_empty() {
        return None;
    }
    let said: Vec<String> = clipped
        .iter()
        .map(|c| {
            format!("{} buffer {} KiB of {} KiB", c.kind.word, c.granted.get() >> 10, c.asked.get() >> 10)
        })
        .collect();
    let set: Vec<String> = clipped.iter().map(|c| format!("{}={}", c.kind.sysctl, c.asked.get())).collect();
    Some(format!(
        "the kernel limits socket buffers ({}); packets that come fast may be lost. To allow more: sudo sysctl -w {}",
        said.join(", "),
        set.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clip(kind: &'static BufferKind, asked: u64, granted: u64) -> Option<Clipped> {
        Some(Clipped { kind, asked: Bytes::new(asked), granted: Bytes::new(granted) })
    }

    #[test]
    fn a_clipped_buffer_is_explained_in_one_line() {
        let text = hint([clip(&RECEIVE_BUFFER, 8 << 20, 212_992), None]).unwrap();
        assert!(text.contains("receive buffer 208 KiB of 8192 KiB"), "{text}");
        assert!(text.ends_with("sudo sysctl -w net.core.rmem_max=8388608"), "{text}");
        assert!(!text.contains('\n') && !text.contains("wmem"), "{text}");
        let both = hint([clip(&RECEIVE_BUFFER, 8 << 20, 1), clip(&SEND_BUFFER, 2 << 20, 1)]).unwrap();
        assert!(both.ends_with("net.core.rmem_max=8388608 net.core.wmem_max=2097152"), "{both}");
        assert_eq!(hint([None, None]), None);
    }

    #[test]
    fn more_than_the_kernel_has_gives_a_hint_and_still_binds() {
        // Past even what root may ask for: the kernel caps at half of the largest int.
        let options = SocketOptions { receive_buffer: Bytes::mib(4), ..SocketOptions::default() };
        let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let doubled = sys::option(port.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap();
        assert_eq!(port.buffer_hint().is_some_and(|h| h.contains("rmem_max=4194304")), doubled < 8 << 20);
    }

    #[test]
    fn a_route_says_our_own_address() {
        assert_eq!(own_address("127.0.0.7:9".parse().unwrap()).unwrap(), IpAddr::from([127, 0, 0, 1]));
    }

    #[test]
    fn the_loopback_path_takes_long_datagrams() {
        let v4 = path_mtu("127.0.0.1:9".parse().unwrap()).unwrap();
        assert!(v4 >= Bytes::new(1472), "{v4:?}");
    }
}
