//! The system calls, each behind a safe function; all `unsafe` of the sockets is here.
//!
//! Slices and borrowed descriptors go in, counts and `io::Error`s come out. The meaning of the bytes (addresses,
//! control messages) is left to safe code elsewhere.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;

use arrayvec::ArrayVec;
use headwater_units::Duration;

use super::addr::SockName;
use super::control_message::RECEIVE_SPACE;

/// Most messages of one `sendmmsg` or `recvmmsg`; bounds the headers built on the stack (2.5 KiB).
pub(super) const CHUNK: usize = 32;

/// One message to send: where to, what it is, and its control messages.
#[derive(Clone, Copy)]
pub(super) struct OutMessage<'a> {
    pub(super) name: &'a SockName,
    pub(super) control: &'a [u8],
    pub(super) data: &'a [u8],
}

/// One buffer's name and control space, and what `recvmmsg` said about it.
#[repr(C, align(8))]
pub(super) struct InMessage {
    pub(super) control: [u8; RECEIVE_SPACE],
    pub(super) control_len: usize,
    pub(super) name: SockName,
    pub(super) len: usize,
    pub(super) data_truncated: bool,
    pub(super) control_truncated: bool,
}

impl InMessage {
    pub(super) const EMPTY: InMessage = InMessage {
        control: [0; RECEIVE_SPACE],
        control_len: 0,
        name: SockName::EMPTY,
        len: 0,
        data_truncated: false,
        control_truncated: false,
    };
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets an integer socket option.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel reads exactly the `c_int` whose
    // address and size are given and keeps neither.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Reads an integer socket option.
pub(super) fn option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `len` bytes, the size of `value`, and any bytes are a
    // valid `c_int`.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// Sends the first [`CHUNK`] of `messages` without waiting; returns how many of them, from the first, the kernel took.
///
/// # Errors
/// Whatever the first message met (`EAGAIN` if the send buffer is full); errors of later ones show on the next call.
pub(super) fn send_many<'a>(
    socket: BorrowedFd<'_>,
    messages: impl Iterator<Item = OutMessage<'a>>,
) -> io::Result<usize> {
    // SAFETY: both are plain C structs of integers and pointers, for which all zeroes (null, empty) is a valid value.
    let (mut headers, mut vectors): ([libc::mmsghdr; CHUNK], [libc::iovec; CHUNK]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut count = 0;
    for ((message, header), vector) in messages.zip(&mut headers).zip(&mut vectors) {
        vector.iov_base = message.data.as_ptr().cast_mut().cast();
        vector.iov_len = message.data.len();
        let header = &mut header.msg_hdr;
        header.msg_name = message.name.bytes.as_ptr().cast_mut().cast();
        header.msg_namelen = message.name.len;
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        if !message.control.is_empty() {
            header.msg_control = message.control.as_ptr().cast_mut().cast();
            header.msg_controllen = message.control.len() as _;
        }
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: `count` headers are filled in; each points to a name, a vector, control bytes and data with their true
    // lengths, all of which outlive the call (`'a`, or this frame). The kernel only reads through these pointers (the
    // casts to `*mut` are what the C type wants) and writes only `msg_len` of the headers.
    let sent = check(unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    })?;
    Ok(sent as usize)
}

/// Receives into `data`, one message per `stride` bytes, at most `messages.len()` and [`CHUNK`] of them, without
/// waiting; returns how many arrived. `control_space` is how much of each control buffer may be used.
///
/// # Errors
/// As `recvmmsg`: `EAGAIN` if nothing is there.
pub(super) fn receive_many(
    socket: BorrowedFd<'_>,
    messages: &mut [InMessage],
    data: &mut [u8],
    stride: usize,
    control_space: usize,
) -> io::Result<usize> {
    // SAFETY: as in `send_many`, all zeroes is a valid value of both.
    let (mut headers, mut vectors): ([libc::mmsghdr; CHUNK], [libc::iovec; CHUNK]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut count = 0;
    for (((message, header), vector), buffer) in
        messages.iter_mut().zip(&mut headers).zip(&mut vectors).zip(data.chunks_exact_mut(stride))
    {
        vector.iov_base = buffer.as_mut_ptr().cast();
        vector.iov_len = buffer.len();
        let header = &mut header.msg_hdr;
        header.msg_name = message.name.bytes.as_mut_ptr().cast();
        header.msg_namelen = message.name.bytes.len() as libc::socklen_t;
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header.msg_control = message.control.as_mut_ptr().cast();
        header.msg_controllen = message.control.len().min(control_space) as _;
        count += 1;
    }
    // SAFETY: `count` headers are filled in; each points to a name, a vector, control space and data that are
    // exclusively borrowed for the call, are distinct from each other, and have at least the lengths given. Any bytes
    // are valid there. A null timeout is allowed, and nothing is kept after the call.
    let received = check(unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    })? as usize;
    for (message, header) in messages.iter_mut().zip(&headers).take(received) {
        message.len = header.msg_len as usize;
        message.name.len = header.msg_hdr.msg_namelen;
        #[allow(clippy::unnecessary_cast, reason = "a socklen_t in musl, a size_t in glibc")]
        let control_len = header.msg_hdr.msg_controllen as usize;
        message.control_len = control_len.min(message.control.len());
        message.data_truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        message.control_truncated = header.msg_hdr.msg_flags & libc::MSG_CTRUNC != 0;
    }
    Ok(received)
}

/// Most descriptors of one [`poll`].
pub(super) const MAX_POLLED: usize = 64;

/// Waits until one of `events` (as `poll(2)` writes them) is there, `timeout` is over, or a signal came (then no
/// event is set); `None` waits for ever. Returns the events that are there, in the same order. Beyond [`MAX_POLLED`] none
/// is waited for.
pub(super) fn poll<'a>(
    events: impl Iterator<Item = (BorrowedFd<'a>, libc::c_short)>,
    timeout: Option<Duration>,
) -> io::Result<ArrayVec<libc::c_short, MAX_POLLED>> {
    let polled = events.map(|(fd, events)| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
    let mut polled: ArrayVec<libc::pollfd, MAX_POLLED> = polled.take(MAX_POLLED).collect();
    let timeout = timeout.map(|t| {
        let mut spec: libc::timespec = {
            // SAFETY: a plain C struct of integers; all zeroes is a valid value.
            unsafe { mem::zeroed() }
        };
        spec.tv_sec = (t.as_nanos() / 1_000_000_000).try_into().unwrap_or(libc::time_t::MAX);
        spec.tv_nsec = (t.as_nanos() % 1_000_000_000) as _;
        spec
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `polled` holds that many valid `pollfd`s, whose descriptors are borrowed for `'a`, so open; `timeout` is null
    // or points to a timespec of this frame; a null signal mask leaves the mask alone.
    let result = check(unsafe {
        libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout, ptr::null())
    });
    let nothing = match result {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
        Err(error) => return Err(error),
    };
    Ok(polled.iter().map(|p| if nothing { 0 } else { p.revents }).collect())
}

/// How late the kernel may wake this thread after a timeout, to save power (50 us unless set).
pub(super) fn set_timer_slack(slack: Duration) -> io::Result<()> {
    let nanos = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX).max(1);
    // SAFETY: this prctl takes one number, touches no memory, and changes the calling thread only.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos) }).map(drop)
}

/// A new non-blocking eventfd; reading and writing it are ordinary file operations.
pub(super) fn event_fd() -> io::Result<File> {
    // SAFETY: takes two numbers, touches no memory.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and open, and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::super::addr::PathAddr;
    use super::super::control_message::SendControl;
    use super::*;

    /// The safe writer of control messages against libc's own macros.
    #[test]
    fn control_messages_are_laid_out_as_libc_lays_them_out() {
        let path = PathAddr {
            remote: "[2001:db8::1]:1".parse().unwrap(),
            local: Some("2001:db8::2".parse().unwrap()),
        };
        let mut control = SendControl::EMPTY;
        control.write(&path, 0x2e, Some(1400), true);

        let expected: [(libc::c_int, libc::c_int, &[u8]); 3] = [
            (libc::SOL_IPV6, libc::IPV6_TCLASS, &0x2e_i32.to_ne_bytes()),
            (libc::SOL_IPV6, libc::IPV6_PKTINFO, &{
                let mut info = [0; 20];
                info[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
                info[15] = 2;
                info
            }),
            (libc::SOL_UDP, libc::UDP_SEGMENT, &1400_u16.to_ne_bytes()),
        ];
        #[repr(align(8))]
        struct Space([u8; 128]);
        let mut space = Space([0; 128]);
        let total: u32 = {
            // SAFETY: CMSG_SPACE is arithmetic on its argument.
            expected.iter().map(|(_, _, data)| unsafe { libc::CMSG_SPACE(data.len() as u32) }).sum()
        };
        // SAFETY: all zeroes is a valid msghdr; its control buffer is 8-aligned and at least `total` long, so every
        // pointer that the macros return lies within it, with room for the data written.
        unsafe {
            let mut header: libc::msghdr = mem::zeroed();
            header.msg_control = space.0.as_mut_ptr().cast();
            header.msg_controllen = total as _;
            let mut at = libc::CMSG_FIRSTHDR(&raw const header);
            for (level, kind, data) in expected {
                (*at).cmsg_level = level;
                (*at).cmsg_type = kind;
                (*at).cmsg_len = libc::CMSG_LEN(data.len() as u32) as _;
                ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(at), data.len());
                at = libc::CMSG_NXTHDR(&raw const header, at);
            }
        }
        assert_eq!(control.as_bytes(), &space.0[..total as usize]);
    }

    #[test]
    fn options_are_set_and_read() {
        use std::os::fd::AsFd;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        set_option(socket.as_fd(), libc::SOL_IP, libc::IP_RECVTOS, 1).unwrap();
        assert_eq!(option(socket.as_fd(), libc::SOL_IP, libc::IP_RECVTOS).unwrap(), 1);
        assert!(set_option(socket.as_fd(), 9999, 1, 1).is_err());
    }
}
