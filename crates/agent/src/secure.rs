//! TLS 1.3 of one connection, without its socket: bytes of the network in, plaintext out, and back. Records are opened where they lie,
//! and sealed into one buffer that goes out in few system calls.

use std::sync::Arc;

use headwater_control::streams;
use headwater_units::NodeId;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, ServerConfig};
use thiserror::Error;

use crate::fields::FrameError;

/// Bytes that one read takes at most, of the side that receives data, and of the side that is only asked for it. Both are longer than a
/// record.
const INCOMING: (usize, usize) = (512 << 10, 32 << 10);
/// Bytes that a record adds to its plaintext of at most 16 KiB: head, type and tag, generously.
const RECORD: usize = 16 << 10;
const ADDED: usize = 64;

/// Why a connection ends.
#[derive(Debug, Error)]
pub(crate) enum SecureError {
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("TLS: {0}")]
    Encode(#[from] EncodeError),
    #[error("TLS: {0}")]
    Encrypt(#[from] EncryptError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a record is longer than any may be")]
    LongRecord,
    #[error("sent before the handshake was done")]
    TooEarly,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// One connection's TLS.
pub(crate) struct Secure {
    side: Side,
    incoming: Buffer,
    /// Bytes that `incoming` holds at most.
    most: usize,
    outgoing: Buffer,
    is_ready: bool,
    is_closed: bool,
}

/// Bytes between `start` and `end` of a buffer that only grows.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn discard(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room for `count` bytes behind what is there.
    fn room(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < count && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < count {
            self.bytes.resize(self.end + count, 0);
        }
        &mut self.bytes[self.end..]
    }
}

/// Consumer of plaintext.
type Take<'a, E> = &'a mut dyn FnMut(&[u8]) -> Result<(), E>;

impl Secure {
    pub(crate) fn client(config: Arc<ClientConfig>) -> Result<Secure, SecureError> {
        let connection = UnbufferedClientConnection::new(config, streams::server_name())?;
        Ok(Self::new(Side::Client(Box::new(connection)), INCOMING.0))
    }

    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Secure, SecureError> {
        Ok(Self::new(Side::Server(Box::new(UnbufferedServerConnection::new(config)?)), INCOMING.1))
    }

    fn new(side: Side, most: usize) -> Secure {
        let (incoming, outgoing) = (Buffer::default(), Buffer::default());
        Secure { side, incoming, most, outgoing, is_ready: false, is_closed: false }
    }

    /// The handshake is done on this side.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The peer has said that nothing more comes.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Node whose key the handshake has proved.
    pub(crate) fn peer(&self) -> Option<NodeId> {
        match &self.side {
            Side::Client(it) => streams::peer(it.peer_certificates()),
            Side::Server(it) => streams::peer(it.peer_certificates()),
        }
    }

    /// Where bytes of the network are to be put; empty if a record is too long.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let held = self.incoming.filled().len();
        let room = self.most.saturating_sub(held);
        &mut self.incoming.room(room)[..room]
    }

    /// Takes `count` bytes that were put there.
    ///
    /// # Errors
    /// [`SecureError`] of TLS, or whatever `take` says of the plaintext.
    pub(crate) fn received<E: From<SecureError>>(
        &mut self,
        count: usize,
        take: Take<'_, E>,
    ) -> Result<(), E> {
        self.incoming.end += count;
        self.proceed(None, take)?;
        // A record is much shorter than the buffer: one that fills it never ends.
        if self.incoming.filled().len() >= self.most {
            return Err(SecureError::LongRecord.into());
        }
        Ok(())
    }

    /// Seals plaintext; what that gives is in [`Self::outgoing`].
    ///
    /// # Errors
    /// [`SecureError::TooEarly`] before the handshake is done; others of TLS.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<(), SecureError> {
        // All that came was opened when it came.
        self.proceed(Some(plain), &mut |_| Err(SecureError::TooEarly))
    }

    /// Begins the handshake.
    ///
    /// # Errors
    /// [`SecureError`].
    pub(crate) fn begin(&mut self) -> Result<(), SecureError> {
        self.proceed(None, &mut |_| Ok(()))
    }

    /// Bytes for the network.
    pub(crate) fn outgoing(&self) -> &[u8] {
        self.outgoing.filled()
    }

    /// Notes that `count` of them were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.outgoing.discard(count);
    }

    fn proceed<E: From<SecureError>>(&mut self, plain: Option<&[u8]>, take: Take<'_, E>) -> Result<(), E> {
        let mut plain = plain;
        loop {
            let Buffer { bytes, start, end } = &mut self.incoming;
            let incoming = &mut bytes[*start..*end];
            let (discard, step) = match &mut self.side {
                Side::Client(it) => {
                    step(it.process_tls_records(incoming), &mut plain, &mut self.outgoing, take)?
                }
                Side::Server(it) => {
                    step(it.process_tls_records(incoming), &mut plain, &mut self.outgoing, take)?
                }
            };
            self.incoming.discard(discard);
            match step {
                Step::Again => {}
                Step::Wait => break,
                Step::Ready => {
                    self.is_ready = true;
                    break;
                }
                Step::Closed => {
                    self.is_closed = true;
                    break;
                }
            }
        }
        if plain.is_some() { Err(SecureError::TooEarly.into()) } else { Ok(()) }
    }
}

enum Step {
    Again,
    Wait,
    Ready,
    Closed,
}

/// Deals with one state of a connection; how many incoming bytes are done with.
fn step<Data, E: From<SecureError>>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &mut Option<&[u8]>,
    outgoing: &mut Buffer,
    take: Take<'_, E>,
) -> Result<(usize, Step), E> {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state.map_err(SecureError::from)? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(SecureError::from)?;
                discard += record.discard;
                take(record.payload)?;
            }
            Step::Again
        }
        ConnectionState::EncodeTlsData(mut data) => {
            loop {
                match data.encode(outgoing.room(RECORD)) {
                    Ok(written) => break outgoing.end += written,
                    Err(EncodeError::InsufficientSize(more)) => {
                        outgoing.room(more.required_size);
                    }
                    Err(error) => return Err(SecureError::from(error).into()),
                }
            }
            Step::Again
        }
        // It is sent with what comes next; the buffer keeps it until then.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Step::Again
        }
        ConnectionState::WriteTraffic(mut traffic) => {
            if let Some(plain) = plain.take() {
                let records = plain.len().div_ceil(RECORD);
                let room = outgoing.room(plain.len() + records * ADDED);
                let written = traffic.encrypt(plain, room).map_err(SecureError::from)?;
                outgoing.end += written;
            }
            Step::Ready
        }
        ConnectionState::PeerClosed | ConnectionState::Closed => Step::Closed,
        _ => Step::Wait,
    };
    Ok((discard, step))
}
