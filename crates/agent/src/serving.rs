//! The other end of a lane: the agent of another host fetches by it what programs of this host have registered.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_units::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustls::ServerConfig;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::assembler::{Assembler, Piece};
use crate::fields::{DATA_HEAD, FrameError, data_head};
use crate::peer_frames::{DATA, FromFetcher, FromSource, LONGEST_FROM_FETCHER};
use crate::peers::Peers;
use crate::refusal::Refusal;
use crate::registry::{Output, Part, Registry};
use crate::secure::{Secure, SecureError};
use crate::tcp::{self, Stream, Turn};

/// How long a dialler's handshake may take.
const SHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Handshakes at once; connections at once.
const HANDSHAKES: usize = 64;
const CONNECTIONS: usize = 4_096;
/// Flows that a peer may have open in a connection, and blocks that it may have asked for.
const OPEN: usize = 65_536;
const ASKED: usize = 4_096;
/// Most bytes that wait for the network while further blocks are read and sealed, and the number of bytes read at a
/// time.
const UNSENT: usize = 256 << 10;
const AT_ONCE: usize = 256 << 10;

/// State that all connections share.
pub(crate) struct Serving {
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) peers: Peers,
    pub(crate) registry: Arc<Mutex<Registry>>,
    pub(crate) block: Bytes,
    pub(crate) counters: Counters,
}

/// Counters of all connections.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    pub(crate) sent: AtomicU64,
    pub(crate) strangers: AtomicU64,
    pub(crate) malformed: AtomicU64,
}

#[derive(Debug, Error)]
enum ServeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Secure(#[from] SecureError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a stranger")]
    Stranger,
    #[error("no handshake within {} s", SHAKE_WITHIN.as_secs())]
    Slow,
    #[error("too many {0}")]
    TooMany(&'static str),
}

impl Serving {
    /// Accepts agents of other hosts until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(turn) = handshakes.clone().acquire_owned().await else { return };
            let tcp = match listener.accept().await {
                Ok((tcp, _)) => tcp,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if connections.len() >= CONNECTIONS {
                continue;
            }
            let serving = self.clone();
            connections.spawn(async move {
                let from = tcp.peer_addr().ok();
                let end = serving.shake_hands(tcp).await;
                drop(turn);
                let end = match end {
                    Ok((stream, early)) => {
                        serving.counters.connections.fetch_add(1, Ordering::Relaxed);
                        let end = Connection::new(&serving, stream).run(early).await;
                        serving.counters.connections.fetch_sub(1, Ordering::Relaxed);
                        end
                    }
                    Err(error) => Err(error),
                };
                let Err(error) = end else { return };
                match error {
                    ServeError::Stranger => serving.counters.strangers.fetch_add(1, Ordering::Relaxed),
                    ServeError::Frame(_) | ServeError::TooMany(_) => {
                        serving.counters.malformed.fetch_add(1, Ordering::Relaxed)
                    }
                    _ => 0,
                };
                tracing::debug!(?from, %error, "a peer's connection ended");
            });
        }
    }

    /// The connection of an agent that is known, and what it has said already.
    async fn shake_hands(&self, tcp: TcpStream) -> Result<(Stream, Vec<u8>), ServeError> {
        tcp::set_up(&tcp)?;
        let mut stream = Stream::new(tcp, Secure::server(self.tls.clone())?);
        let mut early = Vec::new();
        let mut keep = |plain: &[u8]| match early.len() + plain.len() <= AT_ONCE {
            true => {
                early.extend_from_slice(plain);
                Ok(())
            }
            false => Err(ServeError::TooMany("bytes behind a handshake")),
        };
        timeout(SHAKE_WITHIN, stream.shake_hands(&mut keep)).await.map_err(|_| ServeError::Slow)??;
        let peer = stream.secure.peer().ok_or(ServeError::Stranger)?;
        self.peers.name_of(peer).ok_or(ServeError::Stranger)?;
        Ok((stream, early))
    }
}

/// A block to send.
#[derive(Clone, Copy, Debug)]
struct Asked {
    flow: u64,
    offset: u64,
    length: usize,
}

/// Requests of a peer that are not dealt with.
struct Wishes {
    frames: VecDeque<FromFetcher>,
}

struct Connection<'a> {
    serving: &'a Serving,
    stream: Stream,
    flows: BTreeMap<u64, (Arc<Output>, Part)>,
    asked: VecDeque<Asked>,
    /// Blocks that are to be sealed next, in its first `filled` bytes; it only grows.
    plain: Vec<u8>,
    filled: usize,
}

impl<'a> Connection<'a> {
    fn new(serving: &'a Serving, stream: Stream) -> Self {
        let (flows, asked) = (BTreeMap::new(), VecDeque::new());
        Connection { serving, stream, flows, asked, plain: Vec::new(), filled: 0 }
    }

    async fn run(mut self, early: Vec<u8>) -> Result<(), ServeError> {
        let mut assembler = Assembler::of_source(LONGEST_FROM_FETCHER);
        let mut wishes = Wishes { frames: VecDeque::new() };
        assembler.push(&early, &mut |piece| wishes.hear(piece))?;
        loop {
            while let Some(frame) = wishes.frames.pop_front() {
                self.handle(frame)?;
            }
            while self.stream.secure.outgoing().len() < UNSENT && !self.asked.is_empty() {
                self.fill().await?;
                self.stream.secure.seal(&self.plain[..self.filled])?;
                self.stream.write()?;
            }
            let mut take = |plain: &[u8]| assembler.push(plain, &mut |piece| wishes.hear(piece));
            if let Turn::Closed = self.stream.turn(&mut take).await? {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, frame: FromFetcher) -> Result<(), ServeError> {
        match frame {
            FromFetcher::Open { flow, application, proof, output, first, count } => {
                if self.flows.len() >= OPEN {
                    return Err(ServeError::TooMany("open flows"));
                }
                let found = {
                    let mut registry = self.serving.registry.lock().unwrap_or_else(PoisonError::into_inner);
                    registry.find(&application, proof.into(), &output)
                };
                let opened = found.and_then(|output| Ok((output.part(first, count)?, output)));
                match opened {
                    Ok((part, output)) => {
                        let Part { length, info, stamp, .. } = part;
                        self.flows.insert(flow, (output, part));
                        self.say(&FromSource::Opened { flow, length, info, stamp })
                    }
                    Err(refusal) => self.say(&refused(flow, refusal, format!("{application} {output}"))),
                }
            }
            FromFetcher::Ask { flow, offset, length } => {
                if self.asked.len() >= ASKED {
                    return Err(ServeError::TooMany("blocks asked for"));
                }
                let length = length as usize;
                // A flow that was refused is asked for until its peer hears of that.
                let Some((_, part)) = self.flows.get(&flow) else { return Ok(()) };
                let left = part.length.get().checked_sub(offset.get());
                if length == 0 || left.is_none_or(|left| (left as usize) < length) {
                    return Err(FrameError::BadField(2).into());
                }
                if length as u64 > self.serving.block.get() {
                    return Err(ServeError::TooMany("bytes in a block"));
                }
                self.asked.push_back(Asked { flow, offset: offset.get(), length });
                Ok(())
            }
            FromFetcher::Close { flow } => {
                self.flows.remove(&flow);
                Ok(())
            }
        }
    }

    fn say(&mut self, frame: &FromSource) -> Result<(), ServeError> {
        let mut plain = Vec::new();
        frame.emit(&mut plain);
        Ok(self.stream.secure.seal(&plain)?)
    }

    /// Puts the next blocks into `plain`.
    async fn fill(&mut self) -> Result<(), ServeError> {
        self.filled = 0;
        while self.filled < AT_ONCE {
            let Some(Asked { flow, offset, length }) = self.asked.pop_front() else { return Ok(()) };
            let Some((output, part)) = self.flows.get(&flow) else { continue };
            let (begun, end) = (self.filled, self.filled + DATA_HEAD + length);
            if self.plain.len() < end {
                self.plain.resize(end, 0);
            }
            let (head, body) = self.plain[begun..end].split_at_mut(DATA_HEAD);
            head.copy_from_slice(&data_head(DATA, flow, offset, length));
            match read(output, body, part.start + offset).await {
                Ok(()) => {
                    self.filled = end;
                    self.serving.counters.sent.fetch_add(length as u64, Ordering::Relaxed);
                }
                Err(error) => {
                    let refusal = match error.kind() {
                        io::ErrorKind::UnexpectedEof => Refusal::Truncated,
                        _ => Refusal::Io,
                    };
                    self.flows.remove(&flow);
                    self.plain.truncate(begun);
                    refused(flow, refusal, error.to_string()).emit(&mut self.plain);
                    self.filled = self.plain.len();
                }
            }
        }
        Ok(())
    }
}

/// Reads this part of an output; if the disk is needed, nobody else waits for it.
///
/// # Errors
/// `UnexpectedEof` if the file ends, or whatever the disk says.
async fn read(output: &Arc<Output>, into: &mut [u8], at: u64) -> io::Result<()> {
    match read_cached(output, into, at) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        done => return done,
    }
    let (output, mut bytes) = (output.clone(), vec![0; into.len()]);
    let reading =
        tokio::task::spawn_blocking(move || output.file.read_exact_at(&mut bytes, at).map(|()| bytes));
    into.copy_from_slice(&reading.await.map_err(io::Error::other)??);
    Ok(())
}

impl Wishes {
    fn hear(&mut self, piece: Piece<'_>) -> Result<(), ServeError> {
        let Piece::Frame(frame) = piece else { return Err(FrameError::UnknownKind(DATA).into()) };
        self.frames.push_back(FromFetcher::parse(frame)?);
        Ok(())
    }
}

fn refused(flow: u64, refusal: Refusal, text: String) -> FromSource {
    FromSource::Refused { flow, refusal, text }
}

/// Reads what memory holds of a file.
///
/// # Errors
/// `WouldBlock` if the disk is needed, `UnexpectedEof` if the file ends.
fn read_cached(output: &Output, mut into: &mut [u8], mut at: u64) -> io::Result<()> {
    while !into.is_empty() {
        let slice = &mut [io::IoSliceMut::new(into)];
        let count = match preadv2(&output.file, slice, at, ReadWriteFlags::NOWAIT) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            // Not every file system can tell.
            Err(Errno::OPNOTSUPP) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => return Err(error.into()),
        };
        into = &mut into[count..];
        at += count as u64;
    }
    Ok(())
}
