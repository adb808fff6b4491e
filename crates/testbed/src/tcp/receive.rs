//! The receiving end: any number of connections, each with a result when it ends.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};

use headwater_units::Bytes;
use rustix::event::{PollFd, PollFlags};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use super::timeline::{Due, Timeline};
use super::{
    LONGEST_NAME, LOOK, TcpError, TimelineOptions, check_name, choose_congestion, goodput, monotonic_ns, wait,
};

/// Connections at a time; those beyond wait to be accepted.
const MOST: usize = 1024;
/// Bytes of one call.
const CHUNK: usize = 256 << 10;
/// Calls for one connection before it is the others' turn.
const TURNS: usize = 8;

/// Options of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// The congestion control of its ACKs, which matters for DCTCP alone: it echoes marks packet by packet only if both ends
    /// run it (RFC 8257 §3.2).
    pub congestion: Option<String>,
    /// Bytes of data of a packet, in which rows count.
    pub packet: Bytes,
    /// Time series of the goodput and of all that came; none if absent.
    pub timeline: Option<TimelineOptions>,
}

/// Result of a connection, at the receiving end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Received {
    /// `received`.
    pub r#type: &'static str,
    /// Of the connection; empty if it never said one.
    pub name: String,
    /// The sender.
    pub from: SocketAddr,
    /// Whether the sender said that this was all.
    pub complete: bool,
    /// Bytes of data.
    pub bytes: u64,
    /// From `start_ns` to `finish_ns`.
    pub seconds: f64,
    /// The first byte of data was here: CLOCK_MONOTONIC, ns.
    pub start_ns: u64,
    /// The last byte was here: CLOCK_MONOTONIC, ns.
    pub finish_ns: u64,
    /// `bytes` over `seconds`, bit/s.
    pub goodput_bit_per_s: f64,
}

/// A socket that listens.
#[derive(Debug)]
pub struct Receiver {
    listener: TcpListener,
    options: ReceiveOptions,
}

impl Receiver {
    /// Listens.
    ///
    /// # Errors
    /// [`TcpError`]: the address is taken or not ours, the congestion control is not there.
    pub fn listen(options: ReceiveOptions) -> Result<Receiver, TcpError> {
        let on = options.listen;
        let failed = |source| TcpError::Listen { on, source };
        let socket =
            Socket::new(Domain::for_address(on), Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
        choose_congestion(&socket, options.congestion.as_deref())?;
        socket.set_reuse_address(true).map_err(failed)?;
        socket.bind(&on.into()).and_then(|()| socket.listen(128)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Receiver { listener: socket.into(), options })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Receives until `stop` says so; what is open then ends as it stands. Tells `finished` of every connection that ends.
    ///
    /// # Errors
    /// [`TcpError::Timeline`], or what `finished` says. A connection that breaks is no error: its result is not complete.
    pub fn run(
        self,
        stop: &dyn Fn() -> bool,
        finished: &mut dyn FnMut(&Received) -> io::Result<()>,
    ) -> Result<(), TcpError> {
        let timeline = Timeline::create(self.options.timeline.as_ref(), monotonic_ns())?;
        let packet = self.options.packet.get().max(1) as f64;
        let mut run = Run { timeline, packet, open: Vec::new(), buffer: vec![0; CHUNK] };
        while !stop() {
            let now = monotonic_ns();
            run.look(now)?;
            let until = run.timeline.next().min(now + LOOK.as_nanos());
            let mut fds: Vec<PollFd<'_>> =
                run.open.iter().map(|open| PollFd::new(&open.stream, PollFlags::IN)).collect();
            if run.open.len() < MOST {
                fds.push(PollFd::new(&self.listener, PollFlags::IN));
            }
            wait(&mut fds, until)?;
            let mut ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let calls = ready.len() > run.open.len() && ready.pop() == Some(true);
            // Before the bytes of now: what came since the last row and what comes after this one are kept apart.
            run.look(monotonic_ns())?;
            run.read(&ready, finished)?;
            if calls {
                run.accept(&self.listener)?;
            }
        }
        run.end(finished)
    }
}

/// A connection.
struct Open {
    stream: TcpStream,
    from: SocketAddr,
    /// Received part of the line with the name.
    line: Vec<u8>,
    name: Option<String>,
    bytes: u64,
    /// When the first byte of data came.
    first: Option<u64>,
    last: u64,
    /// Bytes at the last row.
    sampled: u64,
}

struct Run {
    timeline: Timeline,
    packet: f64,
    open: Vec<Open>,
    buffer: Vec<u8>,
}

impl Run {
    fn accept(&mut self, listener: &TcpListener) -> Result<(), TcpError> {
        while self.open.len() < MOST {
            match listener.accept() {
                Ok((stream, from)) => {
                    stream.set_nonblocking(true).map_err(TcpError::io("cannot take a connection"))?;
                    self.open.push(Open {
                        stream,
                        from,
                        line: Vec::new(),
                        name: None,
                        bytes: 0,
                        first: None,
                        last: 0,
                        sampled: 0,
                    });
                }
                // A connection that was gone again before it was taken is not ours to mourn.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(TcpError::io("cannot take a connection")(error)),
            }
        }
        Ok(())
    }

    /// Writes the rows that are due.
    fn look(&mut self, now: u64) -> Result<(), TcpError> {
        let Some(Due { at, span }) = self.timeline.due(now) else { return Ok(()) };
        for open in self.open.iter_mut().filter(|open| open.first.is_some()) {
            let gained = open.bytes - std::mem::replace(&mut open.sampled, open.bytes);
            let name = open.name.as_deref().unwrap_or_default();
            let rate = gained as f64 / self.packet / (span as f64 / 1e9);
            self.timeline.row(at, name, "goodput", rate)?;
            self.timeline.row(at, name, "useful", open.bytes as f64 / self.packet)?;
        }
        Ok(())
    }

    /// Reads from those that have something.
    fn read(
        &mut self,
        ready: &[bool],
        finished: &mut dyn FnMut(&Received) -> io::Result<()>,
    ) -> Result<(), TcpError> {
        let mut ended = Vec::new();
        for (place, open) in self.open.iter_mut().enumerate().filter(|(place, _)| ready[*place]) {
            for _ in 0..TURNS {
                match open.stream.read(&mut self.buffer) {
                    Ok(0) => {
                        ended.push((place, open.name.is_some()));
                        break;
                    }
                    Ok(bytes) => {
                        if !open.take(&self.buffer[..bytes], monotonic_ns()) {
                            ended.push((place, false));
                            break;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        ended.push((place, false));
                        break;
                    }
                }
            }
        }
        for (place, complete) in ended.into_iter().rev() {
            self.look(monotonic_ns())?;
            let open = self.open.remove(place);
            self.close(open, complete, finished)?;
        }
        Ok(())
    }

    fn close(
        &mut self,
        open: Open,
        complete: bool,
        finished: &mut dyn FnMut(&Received) -> io::Result<()>,
    ) -> Result<(), TcpError> {
        let received = open.received(complete);
        if open.first.is_some() {
            self.timeline.row(monotonic_ns(), &received.name, "useful", open.bytes as f64 / self.packet)?;
        }
        self.timeline.flush()?;
        // Closing tells the sender that all is here.
        drop(open);
        finished(&received).map_err(TcpError::io("cannot write the result"))
    }

    fn end(mut self, finished: &mut dyn FnMut(&Received) -> io::Result<()>) -> Result<(), TcpError> {
        self.look(monotonic_ns())?;
        for open in std::mem::take(&mut self.open) {
            self.close(open, false, finished)?;
        }
        self.timeline.flush()
    }
}

impl Open {
    /// Takes what has come. Whether it goes on: no with something else than a name at its beginning.
    fn take(&mut self, bytes: &[u8], now: u64) -> bool {
        let mut data = bytes;
        if self.name.is_none() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let line = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + line.len() > LONGEST_NAME {
                return false;
            }
            self.line.extend_from_slice(line);
            let Some(end) = end else { return true };
            let Ok(name) = String::from_utf8(std::mem::take(&mut self.line)) else { return false };
            if check_name(&name).is_err() {
                return false;
            }
            self.name = Some(name);
            data = &bytes[end + 1..];
        }
        if !data.is_empty() {
            self.first.get_or_insert(now);
            self.last = now;
            self.bytes += data.len() as u64;
        }
        true
    }

    fn received(&self, complete: bool) -> Received {
        let start = self.first.unwrap_or_else(monotonic_ns);
        let finish = self.last.max(start);
        Received {
            r#type: "received",
            name: self.name.clone().unwrap_or_default(),
            from: self.from,
            complete,
            bytes: self.bytes,
            seconds: (finish - start) as f64 / 1e9,
            start_ns: start,
            finish_ns: finish,
            goodput_bit_per_s: goodput(self.bytes, finish - start),
        }
    }
}
