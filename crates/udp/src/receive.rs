//! Receiving: many datagrams per call, each with its TOS byte.

use std::io;

use super::addr::PathAddr;
use super::control_message::{RECEIVE_SPACE, Received};
use super::port::UdpPort;
use super::sys::{self, InMessage};

/// One buffer holds the longest merged run there is.
const BUFFER: usize = 1 << 16;
/// Soft errors in a row before [`UdpPort::recv`] lets its caller do something else.
const MAX_SOFT_ERRORS: usize = 16;

/// Reused receive buffers (64 KiB each) and what arrived in them last.
pub struct RecvBatch {
    data: Box<[u8]>,
    messages: Box<[InMessage]>,
    filled: Vec<Filled>,
    full: bool,
    control_space: usize,
}

/// Content of one buffer.
#[derive(Clone, Copy, Debug)]
struct Filled {
    buffer: usize,
    len: usize,
    segment: usize,
    from: PathAddr,
    tos: Option<u8>,
}

/// One received datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The UDP payload; never empty. It may be changed in place, for example decrypted.
    pub bytes: &'a mut [u8],
    /// Sender, and the address of ours that it sent to.
    pub from: PathAddr,
    /// The TOS byte (DSCP and ECN) it arrived with; `None` if the kernel did not say.
    pub tos: Option<u8>,
}

/// Datagrams that arrived together: from one peer, with one TOS byte, of one size but for the last.
#[derive(Debug)]
pub struct Run<'a> {
    bytes: &'a mut [u8],
    segment: usize,
    /// As [`Datagram::from`].
    pub from: PathAddr,
    /// As [`Datagram::tos`].
    pub tos: Option<u8>,
}

impl<'a> Run<'a> {
    /// The UDP payloads; each may be changed in place, and none is empty.
    pub fn datagrams(self) -> impl Iterator<Item = &'a mut [u8]> {
        self.bytes.chunks_mut(self.segment)
    }
}

impl RecvBatch {
    /// As many buffers as one system call fills.
    pub const DEFAULT_BUFFERS: usize = sys::CHUNK;

    /// `buffers` of 64 KiB, between 1 and [`Self::DEFAULT_BUFFERS`].
    pub fn new(buffers: usize) -> Self {
        Self::with_control_space(buffers, RECEIVE_SPACE)
    }

    /// With less control space than the kernel needs, to see what truncation does.
    pub(super) fn with_control_space(buffers: usize, control_space: usize) -> Self {
        let buffers = buffers.clamp(1, sys::CHUNK);
        RecvBatch {
            data: vec![0; buffers * BUFFER].into_boxed_slice(),
            messages: (0..buffers).map(|_| InMessage::EMPTY).collect(),
            filled: Vec::with_capacity(buffers),
            full: false,
            control_space,
        }
    }

    /// Datagrams of the last [`UdpPort::recv`], in order of arrival, in runs that the kernel had merged.
    pub fn runs(&mut self) -> impl Iterator<Item = Run<'_>> {
        let mut filled = self.filled.iter().peekable();
        self.data.chunks_exact_mut(BUFFER).enumerate().filter_map(move |(index, buffer)| {
            let f = filled.next_if(|f| f.buffer == index)?;
            Some(Run { bytes: &mut buffer[..f.len], segment: f.segment, from: f.from, tos: f.tos })
        })
    }

    /// The datagrams of the last [`UdpPort::recv`], in order of arrival.
    pub fn datagrams(&mut self) -> impl Iterator<Item = Datagram<'_>> {
        self.runs().flat_map(|run| {
            let (from, tos) = (run.from, run.tos);
            run.datagrams().map(move |bytes| Datagram { bytes, from, tos })
        })
    }

    /// The last [`UdpPort::recv`] filled every buffer, so that more may be waiting.
    pub fn is_full(&self) -> bool {
        self.full
    }
}

impl UdpPort {
    /// Receives what is there, up to the size of `batch`, without waiting; returns the number of datagrams.
    ///
    /// Zero means that nothing is there, or that all of it was unusable (counted in the statistics).
    ///
    /// # Errors
    /// Only those that leave the socket useless.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.filled.clear();
        batch.full = false;
        let received = 'received: {
            for _ in 0..MAX_SOFT_ERRORS {
                self.stats.receive_calls += 1;
                match sys::receive_many(
                    socket_fd(self),
                    &mut batch.messages,
                    &mut batch.data,
                    BUFFER,
                    batch.control_space,
                ) {
                    Ok(received) => break 'received received,
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EAGAIN) => return Ok(0),
                        Some(libc::EINTR) => {}
                        // Reports about a datagram sent earlier, or a kernel short of memory for a moment.
                        Some(
                            libc::ECONNREFUSED
                            | libc::EHOSTUNREACH
                            | libc::ENETUNREACH
                            | libc::EHOSTDOWN
                            | libc::ENETDOWN
                            | libc::EMSGSIZE
                            | libc::EPROTO
                            | libc::ENOPROTOOPT
                            | libc::EACCES
                            | libc::EPERM
                            | libc::ENOBUFS
                            | libc::ENOMEM,
                        ) => self.stats.receive_errors += 1,
                        _ => return Err(error),
                    },
                }
            }
            return Ok(0);
        };
        batch.full = received == batch.messages.len();
        let mut datagrams = 0;
        for (buffer, message) in batch.messages[..received].iter().enumerate() {
            self.stats.buffers_received += 1;
            let told = Received::parse(&message.control[..message.control_len]);
            if let Some(dropped) = told.dropped {
                self.stats.kernel_dropped += u64::from(dropped.wrapping_sub(self.dropped_before));
                self.dropped_before = dropped;
            }
            if message.control_truncated {
                self.stats.control_truncated += 1;
            }
            if message.len == 0 {
                self.stats.empty_received += 1;
                continue;
            }
            // Without the segment size a merged buffer cannot be told from one long datagram.
            let unsplittable = message.control_truncated && self.offload.merging && told.segment.is_none();
            let Some(remote) = message.name.decode().filter(|_| !message.data_truncated && !unsplittable)
            else {
                self.stats.buffers_discarded += 1;
                continue;
            };
            let segment = told.segment.unwrap_or(message.len);
            let tos = told.tos.filter(|_| !message.control_truncated);
            datagrams += message.len.div_ceil(segment);
            self.stats.bytes_received += message.len as u64;
            batch.filled.push(Filled {
                buffer,
                len: message.len,
                segment,
                from: PathAddr { remote, local: told.local },
                tos,
            });
        }
        self.stats.datagrams_received += datagrams as u64;
        Ok(datagrams)
    }
}

fn socket_fd(port: &UdpPort) -> std::os::fd::BorrowedFd<'_> {
    use std::os::fd::AsFd;
    port.socket.as_fd()
}
