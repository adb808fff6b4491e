//! One connection between two nodes: ordered small frames, and requests with replies beside them.
//!
//! ```text
//! frames    one long-lived stream, opened by the dialler:  preface each way, then  u32 length | bytes ...
//! requests  one stream each, opened by who asks:           u32 length | bytes | end     and the same back
//! ```
//! Lengths are big-endian. The preface is `H`, the lowest and the highest version of messages that its sender understands, a byte each:
//! both sides speak the highest that both understand. The flow-control windows are sized so that every request and reply of the link can be
//! stuck at once without holding up a frame; frames also go first when packets are filled.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use headwater_units::{Bytes, Duration, NodeId};
use quinn::{
    Connection, ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, VarInt, WriteError,
};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::config::ControlConfig;
use super::error::ControlError;
use super::pins::PinOutcome;
use super::slots::Slot;

/// First byte of the frame stream in both directions: makes the stream visible to the peer and tells the dialler that
/// it was accepted.
const PREFACE: u8 = 0x48;
/// The versions of messages that this program understands. What is added to messages so that an older program cannot read them raises the
/// end; what is no longer understood, the beginning.
const VERSIONS: RangeInclusive<u8> = 3..=4;
/// How long [`Link::finish`] waits for the peer to have everything.
const FINISH_WITHIN: Duration = Duration::from_secs(2);
/// Reading starts with no more memory than this, whatever length the peer claims.
const FIRST_ALLOCATION: usize = 1 << 20;

/// Codes that close a connection or reset a stream (ours; QUIC passes them through).
#[derive(Clone, Copy, Debug)]
pub(super) enum Code {
    /// Nothing is wrong.
    Done = 0,
    /// The peer's message broke the rules.
    Malformed = 1,
    /// The request is not answered.
    Refused = 2,
    /// The dialler does not trust this key after all.
    Untrusted = 3,
}

impl Code {
    pub(super) fn var(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

/// A connection to a node whose key is known. Clones are the same link; dropping the last one closes it at once (see
/// [`Link::finish`] for a gentle end).
#[derive(Clone, Debug)]
pub struct Link {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    peer: NodeId,
    remote: SocketAddr,
    version: u8,
    pin: Option<PinOutcome>,
    connection: Connection,
    max_frame: Bytes,
    outgoing: mpsc::Sender<Outgoing>,
    frames: Mutex<mpsc::Receiver<Frame>>,
    requests: Mutex<mpsc::Receiver<Request>>,
    /// Maximum number of our own concurrent requests; the windows are sized for these.
    asking: Semaphore,
    /// Counts against the endpoint's links while this one lives.
    _slot: Option<Slot>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.connection.close(Code::Done.var(), b"");
    }
}

#[derive(Debug)]
enum Outgoing {
    Frame(Vec<u8>),
    Finish(oneshot::Sender<()>),
}

/// Reason that a process gives when it closes a link because it ends.
pub const GOING_AWAY: &str = "going away";

/// How a link ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEnd {
    /// This side closed it.
    Here,
    /// The peer closed it; the reason it gave, often none.
    ByPeer(String),
    /// Nothing was heard for the idle timeout: the peer or the path is gone.
    Silent,
    /// Anything else, in words.
    Lost(String),
}

impl std::fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkEnd::Here => f.write_str("closed on this side"),
            LinkEnd::ByPeer(reason) if reason.is_empty() => f.write_str("closed by the peer"),
            LinkEnd::ByPeer(reason) => write!(f, "closed by the peer: {reason}"),
            LinkEnd::Silent => f.write_str("the peer fell silent"),
            LinkEnd::Lost(reason) => f.write_str(reason),
        }
    }
}

impl From<ConnectionError> for LinkEnd {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::LocallyClosed => LinkEnd::Here,
            ConnectionError::TimedOut => LinkEnd::Silent,
            ConnectionError::ApplicationClosed(close) => {
                LinkEnd::ByPeer(String::from_utf8_lossy(&close.reason).into_owned())
            }
            ConnectionError::Reset => LinkEnd::ByPeer("it restarted".to_owned()),
            other => LinkEnd::Lost(other.to_string()),
        }
    }
}

impl Link {
    /// The dialler's half of setting up: opens the frame stream and waits until the peer has accepted it.
    pub(super) async fn open(
        connection: Connection,
        who: Who,
        config: &ControlConfig,
    ) -> Result<Link, ControlError> {
        let (mut send, mut receive) = connection.open_bi().await.map_err(ended)?;
        send.write_all(&preface()).await.map_err(|e| write_failed(&connection, e))?;
        let version = expect_preface(&connection, &mut receive).await?;
        Ok(Self::start(connection, version, (send, receive), who, config))
    }

    /// The accepting half: the dialler's first stream is the frame stream.
    pub(super) async fn answer(
        connection: Connection,
        who: Who,
        config: &ControlConfig,
    ) -> Result<Link, ControlError> {
        let (mut send, mut receive) = connection.accept_bi().await.map_err(ended)?;
        // The dialler is told what is understood here even if that is nothing of its own.
        send.write_all(&preface()).await.map_err(|e| write_failed(&connection, e))?;
        let version = expect_preface(&connection, &mut receive).await?;
        Ok(Self::start(connection, version, (send, receive), who, config))
    }

    fn start(
        connection: Connection,
        version: u8,
        (send, receive): (SendStream, RecvStream),
        who: Who,
        config: &ControlConfig,
    ) -> Link {
        // Only fails for a stream that is gone, and then the tasks below notice.
        let _ = send.set_priority(1);
        let (outgoing, to_send) = mpsc::channel(config.queue.max(1));
        let (received, frames) = mpsc::channel(config.queue.max(1));
        let room = Room::new(config.max_unread.max(config.max_frame));
        let (asked, requests) = mpsc::channel(config.requests_at_once.max(1));
        tokio::spawn(write_frames(connection.clone(), send, to_send));
        tokio::spawn(read_frames(connection.clone(), receive, received, (config.max_frame, room)));
        tokio::spawn(read_requests(connection.clone(), asked, config.clone()));
        Link {
            inner: Arc::new(Inner {
                peer: who.peer,
                remote: who.remote,
                version,
                pin: who.pin,
                connection,
                max_frame: config.max_frame,
                outgoing,
                frames: Mutex::new(frames),
                requests: Mutex::new(requests),
                asking: Semaphore::new(config.requests_at_once.max(1)),
                _slot: who.slot,
            }),
        }
    }

    /// The node at the other end; its key has been proven.
    pub fn peer(&self) -> NodeId {
        self.inner.peer
    }

    /// The version of messages that both sides understand.
    pub fn version(&self) -> u8 {
        self.inner.version
    }

    /// The address that was dialled, or that the peer dialled from.
    pub fn remote_addr(&self) -> SocketAddr {
        self.inner.remote
    }

    /// The address of this machine that the peer dialled; `None` if this side dialled, or the system did not tell.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.connection.local_ip().map(|ip| ip.to_canonical())
    }

    /// Result of checking the peer's key against the pins; `None` if they were not asked (an accepted link, or a key
    /// known from elsewhere).
    pub fn pin(&self) -> Option<PinOutcome> {
        self.inner.pin
    }

    /// The smoothed round-trip time that QUIC measured.
    pub fn round_trip(&self) -> Duration {
        self.inner.connection.rtt().into()
    }

    /// Two clones of one link, not only two links to one node.
    pub fn is_same(&self, other: &Link) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Queues a frame; frames arrive in the order queued. Waits while the queue is full. Success means queued, not
    /// delivered.
    ///
    /// # Errors
    /// [`ControlError::TooLong`], [`ControlError::Closed`].
    pub async fn send(&self, frame: Vec<u8>) -> Result<(), ControlError> {
        self.check_frame(&frame)?;
        self.inner.outgoing.send(Outgoing::Frame(frame)).await.map_err(|_| self.closed_error())
    }

    /// As [`Link::send`], without waiting; for threads outside the runtime.
    ///
    /// # Errors
    /// [`ControlError::QueueFull`] too.
    pub fn try_send(&self, frame: Vec<u8>) -> Result<(), ControlError> {
        self.check_frame(&frame)?;
        self.inner.outgoing.try_send(Outgoing::Frame(frame)).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => ControlError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => self.closed_error(),
        })
    }

    /// The next frame; `None` when the link has ended and all that arrived before was taken. May be cancelled.
    pub async fn recv(&self) -> Option<Frame> {
        self.inner.frames.lock().await.recv().await
    }

    /// Asks the peer something and waits for the whole reply, at most `max_reply` long. There is no time limit but
    /// the life of the link: wrap it where one is needed. May be cancelled; the peer then notices.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the peer does not answer, [`ControlError::TooLong`], [`ControlError::Malformed`],
    /// [`ControlError::Closed`].
    pub async fn request(&self, bytes: &[u8], max_reply: Bytes) -> Result<Vec<u8>, ControlError> {
        let connection = &self.inner.connection;
        let _turn = self.inner.asking.acquire().await.expect("the semaphore is never closed");
        let (mut send, mut receive) = connection.open_bi().await.map_err(ended)?;
        write_body(connection, &mut send, bytes).await?;
        let _ = send.finish();
        read_body(connection, &mut receive, max_reply).await
    }

    /// The next request of the peer; `None` when the link has ended. May be cancelled.
    pub async fn incoming_request(&self) -> Option<Request> {
        self.inner.requests.lock().await.recv().await
    }

    /// Waits for the end of the link.
    pub async fn closed(&self) -> LinkEnd {
        self.inner.connection.closed().await.into()
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<LinkEnd> {
        self.inner.connection.close_reason().map(LinkEnd::from)
    }

    /// Whether the peer has ended it because its process ends: asked when no further frame comes. It has then finished its frames in
    /// good order, and the closing of the connection may be on its way.
    pub fn was_left(&self) -> bool {
        match self.end() {
            None => true,
            Some(LinkEnd::ByPeer(reason)) => reason == GOING_AWAY,
            Some(_) => false,
        }
    }

    /// Delivers the queued frames (waiting at most two seconds for the peer to have them) and closes.
    pub async fn finish(&self) {
        let (done, finished) = oneshot::channel();
        let delivered = async {
            if self.inner.outgoing.send(Outgoing::Finish(done)).await.is_ok() {
                let _ = finished.await;
            }
        };
        let _ = timeout(FINISH_WITHIN.into(), delivered).await;
        self.close(GOING_AWAY);
    }

    /// Closes at once, telling the peer why.
    pub fn close(&self, reason: &str) {
        self.inner.connection.close(Code::Done.var(), reason.as_bytes());
    }

    fn check_frame(&self, frame: &[u8]) -> Result<(), ControlError> {
        match self.inner.connection.close_reason() {
            Some(reason) => Err(ended(reason)),
            None => check_length(frame.len(), self.inner.max_frame),
        }
    }

    fn closed_error(&self) -> ControlError {
        closed(&self.inner.connection)
    }
}

/// A message of the peer. As long as it lives it counts against what the peer may have unread here.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    unread: Unread,
}

/// Keeps the room of a message taken that was read and is not dealt with.
#[derive(Debug)]
pub struct Unread {
    _room: OwnedSemaphorePermit,
}

impl Frame {
    /// The record of the request after its bytes have been read.
    pub fn into_unread(self) -> Unread {
        self.unread
    }
}

impl std::ops::Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Memory for each frame of a link beside its bytes.
const FRAME_RECORD: usize = 256;

/// Room for frames that nobody has dealt with: no more is read from a peer than there is.
struct Room {
    bytes: Arc<Semaphore>,
    most: usize,
}

impl Room {
    fn new(most: Bytes) -> Self {
        let most =
            usize::try_from(most.get()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS) + FRAME_RECORD;
        Room { bytes: Arc::new(Semaphore::new(most)), most }
    }

    async fn take(&self, length: usize) -> OwnedSemaphorePermit {
        let bytes = (length + FRAME_RECORD).min(self.most) as u32;
        self.bytes.clone().acquire_many_owned(bytes).await.expect("the semaphore is never closed")
    }
}

/// Peer and slot of a link.
#[derive(Debug)]
pub(super) struct Who {
    pub(super) peer: NodeId,
    pub(super) remote: SocketAddr,
    pub(super) pin: Option<PinOutcome>,
    pub(super) slot: Option<Slot>,
}

/// A question from the peer.
#[derive(Debug)]
pub struct Request {
    /// The request.
    pub bytes: Vec<u8>,
    /// Where the answer goes.
    pub responder: Responder,
}

/// Answers one request; dropping it unanswered refuses.
#[derive(Debug)]
pub struct Responder {
    connection: Connection,
    send: SendStream,
    answered: bool,
}

impl Responder {
    /// Sends the reply and waits until the peer has it all.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the peer no longer wants it, [`ControlError::Closed`], [`ControlError::TooLong`]
    /// beyond 4 GiB.
    pub async fn respond(mut self, bytes: &[u8]) -> Result<(), ControlError> {
        write_body(&self.connection, &mut self.send, bytes).await?;
        let _ = self.send.finish();
        self.answered = true;
        match self.send.stopped().await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(ControlError::Refused),
            Err(_) => Err(closed(&self.connection)),
        }
    }

    /// Does not answer; the peer's request fails with [`ControlError::Refused`].
    pub fn refuse(self) {}
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            // Without this the stream would end in good order, as if the reply were empty.
            let _ = self.send.reset(Code::Refused.var());
        }
    }
}

async fn write_frames(connection: Connection, mut send: SendStream, mut queue: mpsc::Receiver<Outgoing>) {
    loop {
        // Without this an idle writer would go on taking frames for a link that is gone.
        let next = tokio::select! {
            next = queue.recv() => next,
            _ = connection.closed() => return,
        };
        let Some(next) = next else { return };
        match next {
            Outgoing::Frame(frame) => {
                if write_body(&connection, &mut send, &frame).await.is_err() {
                    return;
                }
            }
            Outgoing::Finish(done) => {
                let _ = send.finish();
                let _ = send.stopped().await;
                let _ = done.send(());
                return;
            }
        }
    }
}

async fn read_frames(
    connection: Connection,
    mut receive: RecvStream,
    frames: mpsc::Sender<Frame>,
    (max_frame, room): (Bytes, Room),
) {
    loop {
        let mut length = [0; 4];
        match receive.read_exact(&mut length).await {
            Ok(()) => {}
            // The peer finished, or the connection is gone.
            Err(ReadExactError::FinishedEarly(0) | ReadExactError::ReadError(_)) => return,
            Err(ReadExactError::FinishedEarly(_)) => {
                return connection.close(Code::Malformed.var(), b"frame cut off");
            }
        }
        let length = u32::from_be_bytes(length) as usize;
        if check_length(length, max_frame).is_err() {
            return connection.close(Code::Malformed.var(), b"frame too long");
        }
        let held = room.take(length).await;
        let mut bytes = vec![0; length];
        match receive.read_exact(&mut bytes).await {
            Ok(()) => {}
            Err(ReadExactError::ReadError(_)) => return,
            Err(ReadExactError::FinishedEarly(_)) => {
                return connection.close(Code::Malformed.var(), b"frame cut off");
            }
        }
        if frames.send(Frame { bytes, unread: Unread { _room: held } }).await.is_err() {
            return;
        }
    }
}

async fn read_requests(connection: Connection, asked: mpsc::Sender<Request>, config: ControlConfig) {
    while let Ok((send, mut receive)) = connection.accept_bi().await {
        let (connection, asked) = (connection.clone(), asked.clone());
        let (most, within) = (config.max_request, config.request_timeout);
        // As many at once as the peer may open streams.
        tokio::spawn(async move {
            let responder = Responder { connection: connection.clone(), send, answered: false };
            let read = timeout(within.into(), read_body(&connection, &mut receive, most)).await;
            match read.unwrap_or(Err(ControlError::Malformed("request that does not end"))) {
                Ok(bytes) => drop(asked.send(Request { bytes, responder }).await),
                Err(error) => {
                    let _ = receive.stop(Code::Refused.var());
                    tracing::debug!(%error, remote = %connection.remote_address(), "request refused");
                }
            }
        });
    }
}

/// The version of messages that both sides understand.
async fn expect_preface(connection: &Connection, receive: &mut RecvStream) -> Result<u8, ControlError> {
    let mut preface = [0; 3];
    receive.read_exact(&mut preface).await.map_err(|e| read_failed(connection, e))?;
    let [PREFACE, lowest, highest] = preface else {
        connection.close(Code::Malformed.var(), b"bad preface");
        return Err(ControlError::Malformed("bad preface"));
    };
    match common_version(&VERSIONS, &(lowest..=highest)) {
        Some(version) => Ok(version),
        None => {
            let error = ControlError::MessageVersions {
                addr: connection.remote_address(),
                ours: VERSIONS,
                theirs: lowest..=highest,
            };
            connection.close(Code::Malformed.var(), error.to_string().as_bytes());
            Err(error)
        }
    }
}

fn preface() -> [u8; 3] {
    [PREFACE, *VERSIONS.start(), *VERSIONS.end()]
}

/// The highest version that both understand.
fn common_version(ours: &RangeInclusive<u8>, theirs: &RangeInclusive<u8>) -> Option<u8> {
    let highest = *ours.end().min(theirs.end());
    (ours.contains(&highest) && theirs.contains(&highest)).then_some(highest)
}

async fn write_body(
    connection: &Connection,
    send: &mut SendStream,
    bytes: &[u8],
) -> Result<(), ControlError> {
    check_length(bytes.len(), Bytes::new(u32::MAX.into()))?;
    let length = (bytes.len() as u32).to_be_bytes();
    send.write_all(&length).await.map_err(|e| write_failed(connection, e))?;
    send.write_all(bytes).await.map_err(|e| write_failed(connection, e))
}

/// Reads one length-prefixed body and the end of the stream, so that a cut-off one is never taken for whole.
async fn read_body(
    connection: &Connection,
    receive: &mut RecvStream,
    limit: Bytes,
) -> Result<Vec<u8>, ControlError> {
    let mut length = [0; 4];
    receive.read_exact(&mut length).await.map_err(|e| read_failed(connection, e))?;
    let length = u32::from_be_bytes(length) as usize;
    check_length(length, limit)?;
    let mut body = Vec::with_capacity(length.min(FIRST_ALLOCATION));
    loop {
        let left = length - body.len();
        // One byte more than is due shows a body that is longer than it said.
        match receive.read_chunk(left + 1, true).await {
            Ok(Some(chunk)) if chunk.bytes.len() > left => {
                return Err(ControlError::Malformed("body longer than it said"));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk.bytes),
            Ok(None) if left == 0 => return Ok(body),
            Ok(None) => return Err(ControlError::Malformed("body cut off")),
            Err(error) => return Err(read_failed(connection, error.into())),
        }
    }
}

fn check_length(length: usize, limit: Bytes) -> Result<(), ControlError> {
    let bytes = Bytes::new(length as u64);
    if bytes > limit { Err(ControlError::TooLong { bytes, limit }) } else { Ok(()) }
}

fn closed(connection: &Connection) -> ControlError {
    match connection.close_reason() {
        Some(reason) => ended(reason),
        None => ControlError::Closed { reason: "the peer takes no more".to_owned() },
    }
}

fn ended(error: ConnectionError) -> ControlError {
    ControlError::Closed { reason: LinkEnd::from(error).to_string() }
}

fn write_failed(connection: &Connection, error: WriteError) -> ControlError {
    match error {
        WriteError::Stopped(_) => ControlError::Refused,
        _ => closed(connection),
    }
}

fn read_failed(connection: &Connection, error: ReadExactError) -> ControlError {
    match error {
        ReadExactError::FinishedEarly(_) => ControlError::Malformed("body cut off"),
        ReadExactError::ReadError(ReadError::Reset(_)) => ControlError::Refused,
        ReadExactError::ReadError(_) => closed(connection),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_find_the_same_version_or_none() {
        for (a, b, common) in [
            (1..=1, 1..=1, Some(1)),
            (1..=3, 2..=5, Some(3)),
            (2..=5, 1..=3, Some(3)),
            (1..=2, 3..=4, None),
            (3..=4, 1..=2, None),
            (1..=9, 4..=4, Some(4)),
        ] {
            assert_eq!((common_version(&a, &b), common_version(&b, &a)), (common, common), "{a:?} {b:?}");
        }
    }
}
