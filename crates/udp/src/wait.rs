//! Sleeping until there is something to do.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater_units::Duration;

use super::port::UdpPort;
use super::sys;

/// Wakes a thread that sits in [`wait`], from any thread. Clones wake the same one.
///
/// Put the work where the thread will look *before* waking it; wakes that come while one is pending cost no system
/// call.
#[derive(Clone, Debug)]
pub struct Waker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    event: File,
    pending: AtomicBool,
}

impl Waker {
    /// A waker that nobody waits on yet.
    ///
    /// # Errors
    /// The kernel's, if there are no more descriptors.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker { inner: Arc::new(Inner { event: sys::event_fd()?, pending: AtomicBool::new(false) }) })
    }

    /// Makes the current or next [`wait`] return with [`Ready::woken`].
    pub fn wake(&self) {
        if !self.inner.pending.swap(true, Ordering::AcqRel) {
            // Fails only when the counter is full, and then the waiter wakes anyway.
            let _ = (&self.inner.event).write(&1_u64.to_ne_bytes());
        }
    }

    /// Forgets the wakes so far. The flag goes down after the counter: a wake in between is seen by the thread that
    /// looks for work afterwards, and the reverse order could lose one for ever.
    fn rearm(&self) {
        let _ = (&self.inner.event).read(&mut [0; 8]);
        self.inner.pending.swap(false, Ordering::AcqRel);
    }
}

/// Why [`wait`] returned; nothing set means that the time is over or a signal came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Datagrams (or an error) are there: call [`UdpPort::recv`].
    pub readable: bool,
    /// The send buffer has room again; only if it was asked for.
    pub writable: bool,
    /// The waker was used: look for commands.
    pub woken: bool,
    /// Which of the further descriptors have something, by their place; see [`wait_with`].
    pub further: u64,
}

/// Sleeps until `port` has datagrams, `waker` is used, `want_write` is set and the send buffer has room, or `timeout`
/// (kept to the nanosecond as far as the kernel's timer slack allows) is over; `None` is for ever.
///
/// # Errors
/// The kernel's; none is expected while the port is open.
pub fn wait(port: &UdpPort, waker: &Waker, timeout: Option<Duration>, want_write: bool) -> io::Result<Ready> {
    wait_with(port, std::iter::empty(), waker, timeout, want_write)
}

/// The most further descriptors of [`wait_with`].
pub const MAX_FURTHER: usize = sys::MAX_POLLED - 2;

/// As [`wait`], and until one of these has something to read too; those beyond [`MAX_FURTHER`] are not waited for.
///
/// # Errors
/// The kernel's; none is expected while all are open.
pub fn wait_with<'a>(
    port: &'a UdpPort,
    further: impl Iterator<Item = BorrowedFd<'a>>,
    waker: &'a Waker,
    timeout: Option<Duration>,
    want_write: bool,
) -> io::Result<Ready> {
    let interest = libc::POLLIN | if want_write { libc::POLLOUT } else { 0 };
    let first = [(port.as_fd(), interest), (waker.inner.event.as_fd(), libc::POLLIN)];
    let all = first.into_iter().chain(further.map(|fd| (fd, libc::POLLIN)));
    let events = sys::poll(all, timeout)?;
    let (socket, woken) = (events[0], events[1] != 0);
    let bits = events[2..].iter().enumerate().filter(|(_, events)| **events != 0);
    let further = bits.fold(0, |bits, (place, _)| bits | 1 << place);
    if woken {
        waker.rearm();
    }
    let failed = socket & (libc::POLLERR | libc::POLLHUP) != 0;
    Ok(Ready {
        readable: socket & libc::POLLIN != 0 || failed,
        writable: socket & libc::POLLOUT != 0 || (failed && want_write),
        woken,
        further,
    })
}

/// Sleeps for the time `time` whatever datagrams come, unless `waker` is used; the next [`wait`] then says so.
///
/// # Errors
/// The kernel's; none is expected while the waker is open.
pub fn doze(waker: &Waker, time: Duration) -> io::Result<()> {
    sys::poll(std::iter::once((waker.inner.event.as_fd(), libc::POLLIN)), Some(time)).map(drop)
}

/// Lets the kernel wake the calling thread within 1 us of a timeout instead of 50 us; call it on the data thread.
///
/// # Errors
/// The kernel's, where a sandbox forbids the call; pacing is then coarser and nothing else.
pub fn sharpen_timers() -> io::Result<()> {
    sys::set_timer_slack(Duration::from_micros(1))
}
