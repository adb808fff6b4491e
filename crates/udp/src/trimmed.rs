//! Packets that switches have trimmed (header packets, SCDP §III-B), seen beside the UDP socket.
//!
//! A switch that trims cuts a frame to a fixed length and gives it a code point of its own. Of the headers it promises only
//! IP's length and checksum; UDP's length is mostly that of the whole datagram still, which no UDP socket lets pass. So one
//! packet socket for each IP version looks at every packet that comes in, past the kernel's UDP, and takes what has the
//! code point, one of our ports, and a UDP length that is not that of its packet.
//!
//! ```text
//!  interface --> TrimmedPort: trimmed, UDP length stale
//!           \--> UdpPort: everything else; of trimmed packets those whose UDP length and checksum a switch has repaired
//! ```
//!
//! The two never deliver the same packet, so nobody has to look for doubles. A packet with a repaired length and a stale
//! checksum gets to neither: no switch is known to leave that.
//!
//! A filter in the kernel picks the packets (classic BPF): what is not trimmed costs a handful of instructions per buffer
//! that the kernel has merged, and wakes nobody. Everything is checked again here, where it can be read; [`filter`] is held
//! against [`packet`] by a test. It needs `CAP_NET_RAW`.
//!
//! Not here: whether such a packet is genuine. Its header tag says that, as of every datagram.

mod filter;
mod packet;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use arrayvec::ArrayVec;
use headwater_units::Bytes;
use socket2::{Domain, Protocol, Socket, Type};

use self::packet::{Family, Found, Wanted};
use super::addr::{PathAddr, as_source};
use super::control_message::{RECEIVE_SPACE, Received};
use super::port::{RECEIVE_BUFFER, grant};
use super::sys::{self, InMessage};

/// Bytes kept of a packet, from its IP header on: IPv4 with all options, UDP, and more than any header of ours.
const SNAP: usize = 160;
/// Packets of one [`TrimmedPort::recv`].
const BATCH: usize = sys::CHUNK;
/// Buffer for waiting packets: some thousand headers, as many as a line of 10 Gbit/s brings in a millisecond if it
/// carries nothing else.
const BUFFER: Bytes = Bytes::mib(2);

/// The packet sockets of a node. Belongs to one thread.
#[derive(Debug)]
pub struct TrimmedPort {
    sockets: ArrayVec<(Family, Socket), 2>,
    wanted: Wanted,
    /// Address that the UDP socket is bound to.
    local: IpAddr,
    stats: TrimmedStats,
    /// The last cumulative counts of `SO_RXQ_OVFL`.
    dropped_before: ArrayVec<u32, 2>,
}

/// Counters of a [`TrimmedPort`] since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimmedStats {
    /// Packets delivered to the caller.
    pub received: u64,
    /// Packets that the filter let pass and that were for another address, or came before it was set.
    pub unusable: u64,
    /// Packets dropped because the buffer was full. Learnt with the next one that arrives.
    pub kernel_dropped: u64,
}

/// The rest of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Trimmed<'a> {
    /// The beginning of its UDP payload, as far as the switch left it and at least the first 56 bytes if that is to be one of
    /// ours.
    pub bytes: &'a [u8],
    /// Sender, and the address of ours that it sent to.
    pub from: PathAddr,
    /// The TOS byte.
    pub tos: u8,
}

/// Reused buffers, and what arrived in them last.
pub struct TrimmedBatch {
    data: Box<[u8]>,
    messages: Box<[InMessage]>,
    found: Vec<(usize, Found)>,
}

impl Default for TrimmedBatch {
    fn default() -> Self {
        TrimmedBatch {
            data: vec![0; BATCH * SNAP].into(),
            messages: (0..BATCH).map(|_| InMessage::EMPTY).collect(),
            found: Vec::with_capacity(BATCH),
        }
    }
}

impl TrimmedBatch {
    /// Datagrams of the last [`TrimmedPort::recv`].
    pub fn datagrams(&self) -> impl Iterator<Item = Trimmed<'_>> {
        self.found.iter().map(|(buffer, found)| Trimmed {
            bytes: &self.data[buffer * SNAP..][found.payload.clone()],
            from: PathAddr { remote: found.source, local: as_source(found.destination) },
            tos: found.tos,
        })
    }
}

impl TrimmedPort {
    /// Looks for trimmed datagrams to a UDP socket that is bound to `local`, known by this code point.
    ///
    /// # Errors
    /// The kernel's: no right to (`CAP_NET_RAW`), or no packet sockets.
    pub fn open(local: SocketAddr, dscp: u8) -> io::Result<TrimmedPort> {
        let ip = local.ip().to_canonical();
        let families: &[Family] = match ip {
            IpAddr::V4(_) => &[Family::V4],
            IpAddr::V6(ip) if ip.is_unspecified() => &[Family::V4, Family::V6],
            IpAddr::V6(_) => &[Family::V6],
        };
        let mut port = TrimmedPort {
            sockets: ArrayVec::new(),
            wanted: Wanted { dscp, ports: ArrayVec::new() },
            local: ip,
            stats: TrimmedStats::default(),
            dropped_before: ArrayVec::new(),
        };
        for &family in families {
            // Of one protocol: such sockets see what the IP stack sees, each packet once, whatever bridges, bonds and VLANs
            // it has passed on its way up, and nothing that leaves.
            let protocol = Protocol::from(i32::from(family.ether_type().to_be()));
            let socket = Socket::new(Domain::PACKET, Type::DGRAM.nonblocking(), Some(protocol))?;
            sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
            // A smaller one does as well.
            let _ = grant(&socket, &RECEIVE_BUFFER, BUFFER);
            port.sockets.push((family, socket));
            port.dropped_before.push(0);
        }
        port.set_ports(std::iter::once(local.port()))?;
        Ok(port)
    }

    /// Looks for datagrams to these ports from now on: that of the data socket, and those of groups. Beyond
    /// [`MAX_FURTHER`](super::MAX_FURTHER) ports nothing is seen.
    ///
    /// # Errors
    /// The kernel's; the ports are as before then.
    pub fn set_ports(&mut self, ports: impl Iterator<Item = u16>) -> io::Result<()> {
        let mut wanted = Wanted { dscp: self.wanted.dscp, ports: ArrayVec::new() };
        for port in ports {
            if !wanted.ports.contains(&port) && !wanted.ports.is_full() {
                wanted.ports.push(port);
            }
        }
        for (family, socket) in &self.sockets {
            socket.attach_filter(&filter::program(*family, &wanted, SNAP))?;
        }
        self.wanted = wanted;
        Ok(())
    }

    /// To wait for.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(_, socket)| socket.as_fd())
    }

    /// The counters so far.
    pub fn stats(&self) -> TrimmedStats {
        self.stats
    }

    /// Takes what is there, up to the size of the batch, without waiting; returns how many packets the kernel handed over:
    /// zero if nothing is there.
    ///
    /// # Errors
    /// Only those that leave the sockets useless.
    pub fn recv(&mut self, batch: &mut TrimmedBatch) -> io::Result<usize> {
        batch.found.clear();
        let mut taken = 0;
        for (place, (family, socket)) in self.sockets.iter().enumerate() {
            let messages = &mut batch.messages[taken..];
            let data = &mut batch.data[taken * SNAP..];
            let count = match sys::receive_many(socket.as_fd(), messages, data, SNAP, RECEIVE_SPACE) {
                Ok(count) => count,
                Err(error) => match error.raw_os_error() {
                    // An interface that goes down says so to sockets that listen on all.
                    Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::ENOBUFS | libc::ENOMEM) => 0,
                    _ => return Err(error),
                },
            };
            for (buffer, message) in (taken..).zip(&messages[..count]) {
                let told = Received::parse(&message.control[..message.control_len]);
                if let Some(dropped) = told.dropped {
                    let before = std::mem::replace(&mut self.dropped_before[place], dropped);
                    self.stats.kernel_dropped += u64::from(dropped.wrapping_sub(before));
                }
                let bytes = &batch.data[buffer * SNAP..][..message.len.min(SNAP)];
                let found = packet::read(*family, bytes, &self.wanted);
                match found.filter(|found| is_for(self.local, found.destination)) {
                    Some(found) => batch.found.push((buffer, found.came_by(message.name.interface()))),
                    None => self.stats.unusable += 1,
                }
            }
            taken += count;
        }
        self.stats.received += batch.found.len() as u64;
        Ok(taken)
    }
}

/// Whether a socket that is bound to `local`, or one beside it that is bound to a group, would get it.
fn is_for(local: IpAddr, destination: IpAddr) -> bool {
    local.is_unspecified() || destination.is_multicast() || local == destination
}
