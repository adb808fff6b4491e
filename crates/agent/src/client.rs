//! A program's side of the local socket: blocking, one thread, no runtime. It is also the model for clients in other languages.
//!
//! ```no_run
//! use headwater_agent::client::{Client, Event, Fetch};
//! use headwater_agent::client_frames::Index;
//!
//! # fn main() -> Result<(), headwater_agent::client::ClientError> {
//! let mut client = Client::connect("/run/headwater/agent.sock".as_ref(), "job_17", b"sixteen bytes or more")?;
//! // What this program has written may be fetched by others:
//! let index = Index::Hadoop("/data/job_17/map_3/file.out.index".into());
//! client.register("map_3", "/data/job_17/map_3/file.out", index)?;
//! // And it fetches partition 5 of a map output from another host, as much as there is room for.
//! client.fetch(&Fetch { flow: 1, coflow: 17, host: "host-b", output: "map_9", first: 5, count: 1, credit: 1 << 20 })?;
//! let mut got = Vec::new();
//! loop {
//!     match client.next()? {
//!         Event::Data { flow, bytes, .. } => {
//!             got.extend_from_slice(bytes);
//!             let room = bytes.len() as u64;
//!             client.credit(flow, room)?;
//!         }
//!         Event::Opened { .. } => {}
//!         Event::End { .. } => break,
//!         Event::Broken { refusal, .. } => return Err(refusal.into()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use headwater_units::Bytes;
use thiserror::Error;

use crate::client_frames::{FromAgent, FromProgram, Heard, Index, LONGEST_FROM_AGENT, VERSIONS, length};
use crate::fields::{FrameError, Name};
use crate::refusal::Refusal;

/// Bytes that one read takes at most.
const READ: usize = 1 << 20;

/// Why something did not work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The agent is not there, or has gone.
    #[error("the agent's socket: {0}")]
    Io(#[from] io::Error),
    /// The agent does not do it.
    #[error("the agent refuses: {0}")]
    Refused(#[from] Refusal),
    /// The agent does not keep to the protocol.
    #[error("the agent: {0}")]
    Frame(#[from] FrameError),
    /// A name is empty, longer than 255 bytes, or has control characters.
    #[error("{0:?} is no name")]
    BadName(String),
}

/// Request: partitions `first` to `first + count - 1` of an output of the same application on another host.
#[derive(Clone, Copy, Debug)]
pub struct Fetch<'a> {
    /// The program's own number for it, unique in its connection.
    pub flow: u64,
    /// The coflow that it belongs to.
    pub coflow: u64,
    /// The host that has it, as its agent is called.
    pub host: &'a str,
    /// The output.
    pub output: &'a str,
    /// The first partition.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Bytes that the program has room for already. With none, the agent says how long it is and waits.
    pub credit: u64,
}

/// Event of a flow.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The source has a flow, and this is its length.
    Opened {
        /// The flow.
        flow: u64,
        /// Its length.
        length: u64,
        /// Number that the program which registered it passes on.
        info: u64,
    },
    /// Bytes of a flow, in order.
    Data {
        /// The flow.
        flow: u64,
        /// Where they begin.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A flow is complete.
    End {
        /// The flow.
        flow: u64,
    },
    /// A flow has ended before its end: fetch it another way.
    Broken {
        /// The flow.
        flow: u64,
        /// The reason.
        refusal: Refusal,
        /// More about it, for people.
        text: String,
    },
}

/// A connection to the agent of this host.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    requests: u32,
    block: u64,
    /// Frames that came while the answer to a request was awaited.
    early: VecDeque<Vec<u8>>,
    /// The frame that was read last.
    last: Vec<u8>,
}

impl Client {
    /// Connects, as a program of this application.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with [`Refusal::NotYours`] if the application has another token or owner; others.
    pub fn connect(socket: &Path, application: &str, token: &[u8]) -> Result<Client, ClientError> {
        let mut client = Self::dial(socket)?;
        let (lowest, highest) = VERSIONS;
        let application = name(application)?;
        client.send(&FromProgram::Hello { lowest, highest, application, token: token.to_vec() })?;
        match client.answer(|frame| matches!(frame, FromAgent::Welcome { .. }))? {
            FromAgent::Welcome { block, .. } => client.block = block.get(),
            _ => unreachable!("it was awaited"),
        }
        Ok(client)
    }

    fn dial(socket: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(socket)?;
        Ok(Client {
            stream,
            buffer: vec![0; READ],
            start: 0,
            end: 0,
            requests: 0,
            block: 0,
            early: VecDeque::new(),
            last: Vec::new(),
        })
    }

    /// The agent's status as JSON. Needs no application.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status(socket: &Path) -> Result<String, ClientError> {
        let mut client = Self::dial(socket)?;
        client.send(&FromProgram::Status { request: 1 })?;
        match client.answer(|frame| matches!(frame, FromAgent::State { .. }))? {
            FromAgent::State { json, .. } => Ok(json),
            _ => unreachable!("it was awaited"),
        }
    }

    /// Bytes of a block: credit counts in whole ones, or what is left of a flow.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Waits no longer than this for the agent; without limit if `None`.
    ///
    /// # Errors
    /// [`ClientError::Io`] if it is zero.
    pub fn patience(&self, patience: Option<Duration>) -> Result<(), ClientError> {
        Ok(self.stream.set_read_timeout(patience)?)
    }

    /// A file of this program is ready to be fetched.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the agent's reason; others.
    pub fn register(&mut self, output: &str, path: &str, index: Index) -> Result<(), ClientError> {
        let (request, output, path) = (self.request(), name(output)?, path.to_owned());
        self.ask(request, &FromProgram::Register { request, output, path, index })
    }

    /// An output is not to be fetched any more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn unregister(&mut self, output: &str) -> Result<(), ClientError> {
        let (request, output) = (self.request(), name(output)?);
        self.ask(request, &FromProgram::Unregister { request, output })
    }

    /// All outputs of the application on this host are let go of.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn drop_outputs(&mut self) -> Result<(), ClientError> {
        let request = self.request();
        self.ask(request, &FromProgram::Drop { request })
    }

    /// Wants a flow. [`Self::next`] tells the result.
    ///
    /// # Errors
    /// [`ClientError`] of the socket, or of a name.
    pub fn fetch(&mut self, fetch: &Fetch<'_>) -> Result<(), ClientError> {
        let Fetch { flow, coflow, first, count, .. } = *fetch;
        let (host, output, credit) = (name(fetch.host)?, name(fetch.output)?, Bytes::new(fetch.credit));
        self.send(&FromProgram::Fetch { flow, coflow, host, output, first, count, credit })
    }

    /// Grants the agent `bytes` more of a flow: the program has room for them.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn credit(&mut self, flow: u64, bytes: u64) -> Result<(), ClientError> {
        self.send(&FromProgram::Credit { flow, bytes: Bytes::new(bytes) })
    }

    /// Does not want a flow any more.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn cancel(&mut self, flow: u64) -> Result<(), ClientError> {
        self.send(&FromProgram::Cancel { flow })
    }

    /// Waits for the next event of any flow.
    ///
    /// # Errors
    /// [`ClientError`]; after one of [`ClientError::Io`] with a timeout ([`Self::patience`]) it may be called again.
    #[expect(clippy::should_implement_trait, reason = "what it returns borrows the buffer")]
    pub fn next(&mut self) -> Result<Event<'_>, ClientError> {
        if let Some(frame) = self.early.pop_front() {
            self.last = frame;
            return event(Heard::parse(&self.last)?);
        }
        let length = self.fill()?;
        let frame = &self.buffer[self.start..self.start + length];
        self.start += length;
        event(Heard::parse(frame)?)
    }

    // ---- frames

    fn request(&mut self) -> u32 {
        self.requests = self.requests.checked_add(1).unwrap_or(1);
        self.requests
    }

    fn send(&mut self, frame: &FromProgram) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        Ok(self.stream.write_all(&bytes)?)
    }

    fn ask(&mut self, request: u32, frame: &FromProgram) -> Result<(), ClientError> {
        self.send(frame)?;
        self.answer(|frame| matches!(frame, FromAgent::Done { request: it } if *it == request)).map(drop)
    }

    /// Waits for an answer. Frames before it are kept.
    fn answer(&mut self, is_it: impl Fn(&FromAgent) -> bool) -> Result<FromAgent, ClientError> {
        loop {
            let length = self.fill()?;
            let frame = &self.buffer[self.start..self.start + length];
            self.start += length;
            match Heard::parse(frame)? {
                Heard::Frame(answer) if is_it(&answer) => return Ok(answer),
                Heard::Frame(FromAgent::Refused { refusal, .. }) => return Err(refusal.into()),
                _ => self.early.push_back(frame.to_vec()),
            }
        }
    }

    /// Reads until a whole frame is there; how long it is.
    fn fill(&mut self) -> Result<usize, ClientError> {
        loop {
            if let Some(length) = length(&self.buffer[self.start..self.end], LONGEST_FROM_AGENT)? {
                if length <= self.end - self.start {
                    return Ok(length);
                }
                if self.start + length > self.buffer.len() {
                    self.buffer.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                    self.buffer.resize(self.buffer.len().max(length), 0);
                }
            }
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.end == self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn name(text: &str) -> Result<Name, ClientError> {
    Name::new(text).ok_or_else(|| ClientError::BadName(text.to_owned()))
}

fn event(heard: Heard<'_>) -> Result<Event<'_>, ClientError> {
    Ok(match heard {
        Heard::Data { flow, offset, bytes } => Event::Data { flow, offset: offset.get(), bytes },
        Heard::Frame(FromAgent::Opened { flow, length, info }) => {
            Event::Opened { flow, length: length.get(), info }
        }
        Heard::Frame(FromAgent::End { flow }) => Event::End { flow },
        Heard::Frame(FromAgent::Broken { flow, refusal, text }) => Event::Broken { flow, refusal, text },
        Heard::Frame(FromAgent::Refused { refusal, .. }) => return Err(refusal.into()),
        Heard::Frame(_) => return Err(FrameError::BadField(0).into()),
    })
}
