//! The sending end: one connection, for a number of bytes or for some time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use headwater_units::{Bytes, Duration};
use rustix::event::{PollFd, PollFlags};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use super::timeline::Timeline;
use super::{
    LOOK, TcpError, TimelineOptions, check_name, choose_congestion, congestion_of, goodput, monotonic_ns,
    sys, wait,
};

/// Most bytes that wait in the kernel unsent, beyond the window: so that a sender that is told to end does, whatever
/// room its buffer has.
const UNSENT: u32 = 64 << 10;
/// Bytes of one call.
const CHUNK: usize = 64 << 10;
/// How long a connection may take to be made.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// How long one that was stopped waits for the other end to have it all.
const LAST_PACKETS: u64 = 1_000_000_000;

/// How much is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of bytes.
    Bytes(Bytes),
    /// As many as there is time for.
    For(Duration),
}

/// Options of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// The receiver.
    pub to: SocketAddr,
    /// How much.
    pub amount: Amount,
    /// `reno`, `cubic`, `bbr`, `dctcp`, or what else the kernel has; its default if absent.
    pub congestion: Option<String>,
    /// Name of the connection in results and rows.
    pub name: String,
    /// Time series of the window, the round-trip time, and packets sent, lost and marked; none if absent.
    pub timeline: Option<TimelineOptions>,
}

/// Result of a connection, at the sending end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sent {
    /// `sent`.
    pub r#type: &'static str,
    /// Of the connection.
    pub name: String,
    /// The receiver.
    pub to: SocketAddr,
    /// The congestion control that it ran.
    pub congestion: String,
    /// Whether the other end has confirmed all bytes.
    pub complete: bool,
    /// Bytes handed to the kernel, the name left out.
    pub bytes: u64,
    /// From `start_ns` to `finish_ns`.
    pub seconds: f64,
    /// The first byte was handed to the kernel: CLOCK_MONOTONIC, ns.
    pub start_ns: u64,
    /// The other end had confirmed the last byte, or the sender gave up: CLOCK_MONOTONIC, ns.
    pub finish_ns: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Retransmission timeouts, where the kernel counts them (Linux 6.7).
    pub timeouts: Option<u64>,
    /// `bytes` over `seconds`, bit/s.
    pub goodput_bit_per_s: f64,
}

/// A connection that is made and has not begun.
#[derive(Debug)]
pub struct Sender {
    stream: TcpStream,
    congestion: String,
    options: SendOptions,
}

impl Sender {
    /// Connects, and says the name.
    ///
    /// # Errors
    /// [`TcpError`]: a name that cannot be, a congestion control that the kernel lacks, nobody there.
    pub fn connect(options: SendOptions) -> Result<Sender, TcpError> {
        check_name(&options.name)?;
        let to = options.to;
        let failed = |source| TcpError::Connect { to, source };
        let socket =
            Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
        choose_congestion(&socket, options.congestion.as_deref())?;
        socket.set_tcp_notsent_lowat(UNSENT).map_err(TcpError::io("cannot bound what waits unsent"))?;
        socket.connect_timeout(&to.into(), PATIENCE).map_err(failed)?;
        let congestion = congestion_of(&socket)?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(format!("{}\n", options.name).as_bytes()).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        Ok(Sender { stream, congestion, options })
    }

    /// Sends, and waits until the other end has it all. Once `stop` says so it sends nothing more, and waits a second at most.
    ///
    /// # Errors
    /// [`TcpError::Broken`] if the other end goes away, [`TcpError::Timeline`].
    pub fn run(self, stop: &dyn Fn() -> bool) -> Result<Sent, TcpError> {
        let start = monotonic_ns();
        let timeline = Timeline::create(self.options.timeline.as_ref(), start)?;
        let mut run = Run { sender: self, timeline, start, written: 0, stopped: None };
        run.write(stop)?;
        let complete = run.confirm(stop)?;
        run.end(complete)
    }
}

/// A connection that is under way.
struct Run {
    sender: Sender,
    timeline: Timeline,
    start: u64,
    written: u64,
    /// When it was asked to stop.
    stopped: Option<u64>,
}

impl Run {
    fn write(&mut self, stop: &dyn Fn() -> bool) -> Result<(), TcpError> {
        let (most, end) = match self.sender.options.amount {
            Amount::Bytes(bytes) => (bytes.get(), u64::MAX),
            Amount::For(time) => (u64::MAX, self.start.saturating_add(time.as_nanos())),
        };
        let chunk = vec![0x5a; CHUNK];
        while self.written < most {
            let now = self.look(stop)?;
            if self.stopped.is_some() || now >= end {
                break;
            }
            let len = (most - self.written).min(CHUNK as u64) as usize;
            match self.sender.stream.write(&chunk[..len]) {
                Ok(bytes) => self.written += bytes as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT, now, end)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
        Ok(())
    }

    /// Says that this is all, and waits for the other end to say the same. Whether it did.
    fn confirm(&mut self, stop: &dyn Fn() -> bool) -> Result<bool, TcpError> {
        if let Err(error) = self.sender.stream.shutdown(Shutdown::Write) {
            return Err(self.broken(error));
        }
        let mut byte = [0];
        loop {
            let now = self.look(stop)?;
            if self.stopped.is_some_and(|since| now > since + LAST_PACKETS) {
                return Ok(false);
            }
            match self.sender.stream.read(&mut byte) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN, now, u64::MAX)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// Takes a sample if one is due, and notes a wish to stop. The time.
    fn look(&mut self, stop: &dyn Fn() -> bool) -> Result<u64, TcpError> {
        let now = monotonic_ns();
        if self.stopped.is_none() && stop() {
            self.stopped = Some(now);
        }
        if let Some(due) = self.timeline.due(now) {
            self.sample(due.at)?;
        }
        Ok(now)
    }

    fn wait(&self, what: PollFlags, now: u64, end: u64) -> Result<(), TcpError> {
        let until = end.min(self.timeline.next()).min(now + LOOK.as_nanos());
        wait(&mut [PollFd::new(&self.sender.stream, what)], until)
    }

    fn sample(&mut self, at: u64) -> Result<sys::Info, TcpError> {
        let info =
            sys::info(&self.sender.stream).map_err(TcpError::io("cannot ask for the connection's state"))?;
        let name = &self.sender.options.name;
        let rows = [
            ("window", Some(f64::from(info.window))),
            ("rtt", info.rtt.map(Duration::as_secs_f64)),
            ("sent", info.sent.map(f64::from)),
            ("lost", Some(f64::from(info.resent))),
            ("marked", info.marked.map(f64::from)),
            ("timeouts", info.timeouts.map(f64::from)),
        ];
        for (quantity, value) in rows {
            if let Some(value) = value {
                self.timeline.row(at, name, quantity, value)?;
            }
        }
        Ok(info)
    }

    fn end(mut self, complete: bool) -> Result<Sent, TcpError> {
        let finish = monotonic_ns();
        // Rows ascend: what was due before the last ones comes before them.
        if let Some(due) = self.timeline.due(finish) {
            self.sample(due.at)?;
        }
        let info = self.sample(finish)?;
        self.timeline.flush()?;
        let nanos = finish - self.start;
        Ok(Sent {
            r#type: "sent",
            name: self.sender.options.name,
            to: self.sender.options.to,
            congestion: self.sender.congestion,
            complete,
            bytes: self.written,
            seconds: nanos as f64 / 1e9,
            start_ns: self.start,
            finish_ns: finish,
            retransmits: info.resent.into(),
            timeouts: info.timeouts.map(u64::from),
            goodput_bit_per_s: goodput(self.written, nanos),
        })
    }

    fn broken(&self, source: std::io::Error) -> TcpError {
        TcpError::Broken { to: self.sender.options.to, bytes: self.written, source }
    }
}
