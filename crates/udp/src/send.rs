//! Sending: groups of equal-size datagrams, many per call.

use std::io;
use std::os::fd::AsFd;

use super::addr::{PathAddr, SockName};
use super::control_message::SendControl;
use super::port::UdpPort;
use super::sys::{self, CHUNK, OutMessage};

/// The longest datagram, and the most bytes of one group: an IPv4 packet of 65,535 less its headers.
pub const MAX_DATAGRAM: usize = 65_507;
/// The most datagrams of one group that every kernel with segmentation takes (`UDP_MAX_SEGMENTS`).
pub const MAX_GROUP: usize = 64;
/// The most distinct failures one [`UdpPort::flush`] lists; further ones are only counted.
const MAX_SOFT_ERRORS: usize = 64;

/// Datagrams that wait to be sent, in one buffer.
///
/// Consecutive ones with the same path, TOS byte and size form a group, which one kernel message carries; a last
/// shorter one may close a group. [`UdpPort::flush`] empties the batch in order.
#[derive(Debug)]
pub struct SendBatch {
    buffer: Box<[u8]>,
    used: usize,
    groups: Vec<Group>,
    max_groups: usize,
    max_group: usize,
    /// The first group that is not wholly sent.
    next: usize,
    pieces: Vec<Piece>,
    soft_errors: Vec<SoftError>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    to: PathAddr,
    tos: u8,
    /// Size of every datagram but possibly the last.
    segment: usize,
    /// First byte that is not sent.
    start: usize,
    /// One past the last byte.
    end: usize,
    /// Datagrams in it, sent ones included.
    count: usize,
    /// No more datagrams may join: the last one is short, or part of the group was sent.
    closed: bool,
    /// The kernel refused to cut this one up: send it datagram by datagram.
    singly: bool,
}

/// One kernel message: a group, or one datagram of it.
#[derive(Clone, Copy, Debug)]
struct Piece {
    group: usize,
    end: usize,
    datagrams: usize,
    name: SockName,
    control: SendControl,
}

/// Result of one [`UdpPort::flush`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Flush {
    /// Kernel messages sent: groups, or single datagrams where segmentation is off.
    pub messages: usize,
    /// Datagrams sent.
    pub datagrams: usize,
    /// Datagrams given up: refused for their destination (see [`SendBatch::soft_errors`]) or dropped for want of
    /// memory.
    pub lost: usize,
    /// The rest of the batch waits for room: flush again when [`Ready::writable`](super::Ready::writable).
    pub blocked: bool,
}

/// Datagrams that could not be sent for a reason that concerns only their destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftError {
    /// Where they were to go.
    pub to: PathAddr,
    /// The kernel's error number, for example `EMSGSIZE` (90): longer than the path allows.
    pub errno: i32,
    /// How many.
    pub datagrams: usize,
}

impl SoftError {
    /// Whether they were longer than the route or the interface there takes: what [`path_mtu`](super::path_mtu) says.
    pub fn is_too_long(self) -> bool {
        self.errno == libc::EMSGSIZE
    }

    /// The error as the standard library words it.
    pub fn to_io(self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

impl SendBatch {
    /// Room for `bytes` in at most `max_groups` groups; at least one datagram of any size fits.
    pub fn new(bytes: usize, max_groups: usize) -> Self {
        let max_groups = max_groups.max(1);
        SendBatch {
            buffer: vec![0; bytes.max(MAX_DATAGRAM)].into_boxed_slice(),
            used: 0,
            groups: Vec::with_capacity(max_groups),
            max_groups,
            max_group: MAX_GROUP,
            next: 0,
            pieces: Vec::with_capacity(CHUNK),
            soft_errors: Vec::with_capacity(MAX_SOFT_ERRORS),
        }
    }

    /// The most datagrams of a group from now on, 1 to [`MAX_GROUP`]: a group leaves the host back to back, so it is
    /// bounded by what the pacer and the marking threshold bear.
    pub fn set_max_group(&mut self, datagrams: usize) {
        self.max_group = datagrams.clamp(1, MAX_GROUP);
    }

    /// Adds a datagram of `len` bytes (1 to [`MAX_DATAGRAM`]) and returns its bytes, to be overwritten whole: they
    /// hold remains of earlier ones. `None` if the batch is full: flush first.
    pub fn push(&mut self, to: PathAddr, tos: u8, len: usize) -> Option<&mut [u8]> {
        assert!((1..=MAX_DATAGRAM).contains(&len), "a datagram has 1 to {MAX_DATAGRAM} bytes, not {len}");
        let start = self.used;
        let end = start + len;
        if end > self.buffer.len() {
            return None;
        }
        let no_more_groups = self.groups.len() == self.max_groups;
        match self.groups.last_mut() {
            Some(group) if group.takes(&to, tos, len, self.max_group) => {
                group.end = end;
                group.count += 1;
                group.closed = len < group.segment;
            }
            _ if no_more_groups => return None,
            _ => self.groups.push(Group {
                to,
                tos,
                segment: len,
                start,
                end,
                count: 1,
                closed: false,
                singly: false,
            }),
        }
        self.used = end;
        Some(&mut self.buffer[start..end])
    }

    /// Whether [`SendBatch::push`] would take such a datagram.
    pub fn has_room(&self, to: &PathAddr, tos: u8, len: usize) -> bool {
        self.used + len <= self.buffer.len()
            && (self.groups.len() < self.max_groups
                || self.groups.last().is_some_and(|group| group.takes(to, tos, len, self.max_group)))
    }

    /// Nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Datagrams that wait to be sent.
    pub fn len(&self) -> usize {
        self.groups[self.next..].iter().map(Group::remaining).sum()
    }

    /// The destinations the last flush failed for; those next to each other with the same error are one entry.
    pub fn soft_errors(&self) -> &[SoftError] {
        &self.soft_errors
    }

    /// Drops everything unsent.
    pub fn clear(&mut self) {
        self.groups.clear();
        self.used = 0;
        self.next = 0;
    }

    /// Lists the next kernel messages, at most [`CHUNK`]; none if the next group cannot be addressed.
    fn prepare(&mut self, socket_is_v6: bool, segmentation: bool) {
        self.pieces.clear();
        for (index, group) in self.groups.iter().enumerate().skip(self.next) {
            let Some(name) = SockName::encode(group.to.remote, socket_is_v6) else { return };
            let whole = segmentation && !group.singly;
            let cut = (whole && group.remaining() > 1)
                .then(|| u16::try_from(group.segment).expect("bounded by MAX_DATAGRAM"));
            let mut control = SendControl::EMPTY;
            control.write(&group.to, group.tos, cut, socket_is_v6);
            let mut at = group.start;
            while at < group.end {
                if self.pieces.len() == CHUNK {
                    return;
                }
                let (end, datagrams) = if whole {
                    (group.end, group.remaining())
                } else {
                    (group.end.min(at + group.segment), 1)
                };
                self.pieces.push(Piece { group: index, end, datagrams, name, control });
                at = end;
            }
        }
    }

    /// The prepared messages, as the kernel wants them.
    fn messages(&self) -> impl Iterator<Item = OutMessage<'_>> {
        let mut before: Option<&Piece> = None;
        self.pieces.iter().map(move |piece| {
            let start = match before.filter(|b| b.group == piece.group) {
                Some(before) => before.end,
                None => self.groups[piece.group].start,
            };
            before = Some(piece);
            OutMessage {
                name: &piece.name,
                control: piece.control.as_bytes(),
                data: &self.buffer[start..piece.end],
            }
        })
    }

    /// The prepared message `piece` is dealt with, sent or not; returns its bytes.
    fn complete(&mut self, piece: usize) -> usize {
        let Piece { group: index, end, .. } = self.pieces[piece];
        let group = &mut self.groups[index];
        let bytes = end - group.start;
        group.start = end;
        group.closed = true;
        if group.start == group.end {
            self.next = index + 1;
        }
        bytes
    }

    fn note(&mut self, error: SoftError) {
        let full = self.soft_errors.len() == MAX_SOFT_ERRORS;
        match self.soft_errors.last_mut() {
            Some(last) if last.to == error.to && last.errno == error.errno => {
                last.datagrams += error.datagrams
            }
            _ if full => {}
            _ => self.soft_errors.push(error),
        }
    }
}

impl Group {
    fn takes(&self, to: &PathAddr, tos: u8, len: usize, max_group: usize) -> bool {
        !self.closed
            && self.to == *to
            && self.tos == tos
            && len <= self.segment
            && self.count < max_group
            && self.end - self.start + len <= MAX_DATAGRAM
    }

    fn remaining(&self) -> usize {
        (self.end - self.start).div_ceil(self.segment)
    }
}

/// Action for a message that the kernel did not take.
enum Verdict {
    Again,
    Blocked,
    /// No memory or a full device queue: this one is lost, the next may wait.
    Dropped,
    /// Only this destination's problem.
    Soft,
    /// Perhaps the kernel or the device cannot cut groups up.
    Unsegmentable,
    Fatal,
}

impl Verdict {
    fn of(error: &io::Error, segmented: bool) -> Verdict {
        match error.raw_os_error() {
            Some(libc::EINTR) => Verdict::Again,
            Some(libc::EAGAIN) => Verdict::Blocked,
            Some(libc::ENOBUFS | libc::ENOMEM) => Verdict::Dropped,
            Some(libc::EIO | libc::EINVAL) if segmented => Verdict::Unsegmentable,
            Some(
                libc::EMSGSIZE
                | libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
                | libc::EPERM
                | libc::EACCES
                | libc::EADDRNOTAVAIL
                | libc::EAFNOSUPPORT
                | libc::ENODEV
                | libc::ENXIO
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EIO
                // A source address that is no longer ours, or a destination like port 0.
                | libc::EINVAL,
            ) => Verdict::Soft,
            _ => Verdict::Fatal,
        }
    }
}

impl UdpPort {
    /// Sends the batch in order, without waiting, and empties it as far as that goes.
    ///
    /// Where the send buffer is full the rest stays and [`Flush::blocked`] is set. Trouble with single destinations
    /// is counted, listed in [`SendBatch::soft_errors`] and never stops the others.
    ///
    /// # Errors
    /// Only those that leave the socket useless; the unsent rest stays in the batch.
    pub fn flush(&mut self, batch: &mut SendBatch) -> io::Result<Flush> {
        let mut flush = Flush::default();
        batch.soft_errors.clear();
        while batch.next < batch.groups.len() {
            batch.prepare(self.is_v6, self.offload.segmentation);
            if batch.pieces.is_empty() {
                self.give_up_group(batch, libc::EAFNOSUPPORT, &mut flush);
                continue;
            }
            self.stats.send_calls += 1;
            let error = match sys::send_many(self.socket.as_fd(), batch.messages()) {
                Ok(sent) => {
                    self.record_sent(batch, sent, &mut flush);
                    continue;
                }
                Err(error) => error,
            };
            let Piece { group, datagrams, .. } = batch.pieces[0];
            match Verdict::of(&error, datagrams > 1) {
                Verdict::Again => {}
                Verdict::Unsegmentable => batch.groups[group].singly = true,
                Verdict::Blocked => {
                    self.stats.sends_blocked += 1;
                    flush.blocked = true;
                    return Ok(flush);
                }
                Verdict::Dropped => {
                    batch.complete(0);
                    self.stats.sends_dropped += datagrams as u64;
                    flush.lost += datagrams;
                    if batch.next < batch.groups.len() {
                        flush.blocked = true;
                        return Ok(flush);
                    }
                }
                Verdict::Soft => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    let to = batch.groups[group].to;
                    batch.complete(0);
                    self.stats.sends_refused += datagrams as u64;
                    flush.lost += datagrams;
                    batch.note(SoftError { to, errno, datagrams });
                }
                Verdict::Fatal => return Err(error),
            }
        }
        batch.clear();
        Ok(flush)
    }

    fn record_sent(&mut self, batch: &mut SendBatch, sent: usize, flush: &mut Flush) {
        for piece in 0..sent {
            let Piece { group, datagrams, .. } = batch.pieces[piece];
            self.stats.bytes_sent += batch.complete(piece) as u64;
            self.stats.datagrams_sent += datagrams as u64;
            self.stats.messages_sent += 1;
            flush.messages += 1;
            flush.datagrams += datagrams;
            if datagrams > 1 {
                self.segmentation_proven = true;
            } else if batch.groups[group].singly && !self.segmentation_proven {
                // Whole it was refused, singly it goes: it was not the destination.
                self.offload.segmentation = false;
            }
        }
    }

    fn give_up_group(&mut self, batch: &mut SendBatch, errno: i32, flush: &mut Flush) {
        let group = &mut batch.groups[batch.next];
        let (to, datagrams) = (group.to, group.remaining());
        batch.next += 1;
        self.stats.sends_refused += datagrams as u64;
        flush.lost += datagrams;
        batch.note(SoftError { to, errno, datagrams });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(port: u16) -> PathAddr {
        PathAddr::to(([127, 0, 0, 1], port).into())
    }

    fn shape(batch: &SendBatch) -> Vec<(usize, usize)> {
        batch.groups.iter().map(|g| (g.segment, g.count)).collect()
    }

    #[test]
    fn a_group_ends_with_its_size_tos_or_path() {
        let mut batch = SendBatch::new(1 << 20, 64);
        for (path, tos, len) in [
            (to(1), 2, 100),
            (to(1), 2, 100),
            (to(1), 2, 40),
            (to(1), 2, 40), // the shorter one closed the group
            (to(1), 2, 41), // longer than its group
            (to(1), 3, 41),
            (to(2), 3, 41),
        ] {
            batch.push(path, tos, len).unwrap().fill(0);
        }
        assert_eq!(shape(&batch), [(100, 3), (40, 1), (41, 1), (41, 1), (41, 1)]);
        assert_eq!(batch.len(), 7);
    }

    #[test]
    fn a_group_stays_within_the_kernels_limits() {
        let mut batch = SendBatch::new(1 << 20, 64);
        (0..70).for_each(|_| assert!(batch.push(to(1), 0, 1400).is_some()));
        assert_eq!(shape(&batch), [(1400, 46), (1400, 24)], "46 x 1400 <= 65,507");
        batch.clear();
        (0..70).for_each(|_| assert!(batch.push(to(1), 0, 10).is_some()));
        assert_eq!(shape(&batch), [(10, 64), (10, 6)]);
        batch.clear();
        batch.set_max_group(2);
        (0..5).for_each(|_| assert!(batch.push(to(1), 0, 10).is_some()));
        assert_eq!(shape(&batch), [(10, 2), (10, 2), (10, 1)]);
    }

    #[test]
    fn a_full_batch_takes_no_more() {
        let mut batch = SendBatch::new(0, 2);
        assert!(batch.push(to(1), 0, MAX_DATAGRAM).is_some());
        assert!(batch.push(to(1), 0, 1).is_none(), "no bytes left");
        batch.clear();
        assert!(batch.push(to(1), 0, 1).is_some());
        assert!(batch.push(to(2), 0, 1).is_some());
        assert!(batch.push(to(3), 0, 1).is_none(), "no groups left");
        assert!(batch.push(to(2), 0, 1).is_some(), "but the open group takes one");
    }

    #[test]
    fn pieces_cover_every_byte_once() {
        let mut batch = SendBatch::new(1 << 20, 64);
        for (i, len) in [(1, 500), (1, 500), (1, 7), (2, 9), (2, 9)] {
            batch.push(to(i), 0, len).unwrap().fill(i as u8);
        }
        for (segmentation, lens) in [(true, vec![1007, 18]), (false, vec![500, 500, 7, 9, 9])] {
            batch.prepare(false, segmentation);
            assert_eq!(batch.messages().map(|m| m.data.len()).collect::<Vec<_>>(), lens);
        }
        // After a part was sent singly, the rest starts where it ended.
        batch.complete(0);
        batch.prepare(false, false);
        assert_eq!(batch.messages().map(|m| m.data.len()).collect::<Vec<_>>(), [500, 7, 9, 9]);
        assert_eq!(batch.len(), 4);
    }

    #[test]
    fn errors_are_judged_by_whom_they_concern() {
        let of = |errno, segmented| Verdict::of(&io::Error::from_raw_os_error(errno), segmented);
        assert!(matches!(of(libc::EAGAIN, true), Verdict::Blocked));
        assert!(matches!(of(libc::ENOBUFS, true), Verdict::Dropped));
        assert!(matches!(of(libc::EMSGSIZE, true), Verdict::Soft));
        assert!(matches!(of(libc::EIO, true), Verdict::Unsegmentable));
        assert!(matches!(of(libc::EINVAL, false), Verdict::Soft));
        assert!(matches!(of(libc::EBADF, false), Verdict::Fatal));
    }
}
