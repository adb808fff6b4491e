//! A lane: this host's connection to the agent of another host, by which it fetches. It is dialled when first needed
//! and again after it breaks; those that asked for blocks are told, and ask again.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use headwater_control::Identity;
use headwater_transport::courier::LaneId;
use headwater_units::Bytes;
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::assembler::{Assembler, Piece};
use crate::blocks::{Block, Pool};
use crate::fields::FrameError;
use crate::hub::FromLane;
use crate::peer_frames::{ALPN, FromFetcher, FromSource};
use crate::peers::Peers;
use crate::secure::{Secure, SecureError};
use crate::tcp::{self, Stream, Turn};

/// How long dialling and the handshake may take together.
const DIAL_WITHIN: Duration = Duration::from_secs(5);
/// Pauses before dialling again: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Frames are taken from the hub while less than this waits for the network.
const UNSENT: usize = 64 << 10;

/// State that all lanes of an agent share.
#[derive(Debug)]
pub(crate) struct Dialling {
    pub(crate) identity: Arc<Identity>,
    pub(crate) peers: Peers,
    pub(crate) congestion: Vec<String>,
    pub(crate) classes: u8,
    pub(crate) pool: Pool,
    pub(crate) block: Bytes,
    pub(crate) received: AtomicU64,
}

/// A frame for the peer, and the connection that it is meant for: one of an earlier connection is not sent.
#[derive(Debug)]
pub(crate) struct ToPeer {
    pub(crate) epoch: u64,
    pub(crate) frame: FromFetcher,
}

/// Message of a lane to the hub.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) lane: LaneId,
    /// By which of its connections.
    pub(crate) epoch: u64,
    pub(crate) what: FromLane<Block>,
}

#[derive(Debug, Error)]
enum LinkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Secure(#[from] SecureError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the host is not known any more")]
    UnknownHost,
    #[error("no answer within {} s", DIAL_WITHIN.as_secs())]
    Slow,
    #[error("the peer closed the connection")]
    Closed,
    #[error("the agent stops")]
    HubGone,
}

/// Starts a lane, whose first connection has this number; it ends when the sender that it returns is dropped.
pub(crate) fn start(
    lane: LaneId,
    epoch: u64,
    dialling: Arc<Dialling>,
    hub: UnboundedSender<News>,
) -> UnboundedSender<ToPeer> {
    let (sender, frames) = unbounded_channel();
    let link = Link { lane, dialling, hub, frames, epoch };
    tokio::spawn(link.run());
    sender
}

struct Link {
    lane: LaneId,
    dialling: Arc<Dialling>,
    hub: UnboundedSender<News>,
    frames: UnboundedReceiver<ToPeer>,
    epoch: u64,
}

impl Link {
    async fn run(mut self) {
        let mut pause = PAUSES.0;
        loop {
            let error = match self.connect().await {
                Ok(stream) => {
                    let (heard, error) = self.carry(stream).await;
                    if heard {
                        pause = PAUSES.0;
                    }
                    error
                }
                Err(error) => error,
            };
            if matches!(error, LinkError::HubGone) || !self.tell(FromLane::Down(error.to_string())) {
                return;
            }
            self.epoch += 1;
            // The hub's end is noticed at once, and frames keep.
            tokio::select! {
                () = sleep(pause) => {}
                () = self.hub.closed() => return,
            }
            pause = (pause * 2).min(PAUSES.1);
            if self.frames.is_closed() && self.frames.is_empty() {
                return;
            }
        }
    }

    fn tell(&self, what: FromLane<Block>) -> bool {
        self.hub.send(News { lane: self.lane, epoch: self.epoch, what }).is_ok()
    }

    async fn connect(&self) -> Result<Stream, LinkError> {
        let peer = self.lane.pair.peer;
        let address = self.dialling.peers.address_of(peer).ok_or(LinkError::UnknownHost)?;
        let tls = self.dialling.identity.tls_client(peer, ALPN);
        let tls = tls.map_err(|error| io::Error::other(error.to_string()))?;
        let connecting = async {
            let class = (self.lane.class, self.dialling.classes);
            let tcp = tcp::dial(address, &self.dialling.congestion, class).await?;
            let mut stream = Stream::new(tcp, Secure::client(tls)?);
            // Nobody has asked for anything yet.
            let mut nothing = |_: &[u8]| Err(LinkError::Frame(FrameError::UnknownKind(0)));
            stream.shake_hands(&mut nothing).await?;
            Ok(stream)
        };
        timeout(DIAL_WITHIN, connecting).await.unwrap_or(Err(LinkError::Slow))
    }

    /// Carries frames until the connection ends; whether the peer has said anything. Until then nobody knows that it serves this host: in
    /// TLS 1.3 a client's handshake is done before the server has looked at its key.
    async fn carry(&mut self, stream: Stream) -> (bool, LinkError) {
        let heard = AtomicBool::new(false);
        let error = self.carry_until(stream, &heard).await;
        (heard.into_inner(), error)
    }

    async fn carry_until(&mut self, mut stream: Stream, heard: &AtomicBool) -> LinkError {
        let mut assembler = Assembler::of_fetcher(self.dialling.pool.clone());
        let mut refused = BTreeSet::new();
        let (lane, epoch, block) = (self.lane, self.epoch, self.dialling.block.get() as usize);
        let (hub, received) = (self.hub.clone(), self.dialling.clone());
        let mut tell = move |piece: Piece<'_>| {
            if !heard.swap(true, Ordering::Relaxed) {
                hub.send(News { lane, epoch, what: FromLane::Up }).map_err(|_| LinkError::HubGone)?;
            }
            let what = match piece {
                Piece::Frame(frame) => {
                    let frame = FromSource::parse(frame)?;
                    if let FromSource::Refused { flow, .. } = &frame {
                        refused.insert(*flow);
                    }
                    FromLane::Frame(frame)
                }
                Piece::Data { flow, offset, block: bytes } => {
                    if bytes.len() > block || refused.contains(&flow) {
                        return Err(LinkError::Frame(FrameError::BadField(crate::peer_frames::DATA)));
                    }
                    received.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    FromLane::Block { flow, offset, block: bytes }
                }
            };
            hub.send(News { lane, epoch, what }).map_err(|_| LinkError::HubGone)
        };
        let mut take = move |plain: &[u8]| assembler.push(plain, &mut tell);
        let mut plain = Vec::new();
        loop {
            let has_room = stream.secure.outgoing().len() < UNSENT;
            tokio::select! {
                biased;
                frame = self.frames.recv(), if has_room => {
                    let Some(frame) = frame else { return LinkError::HubGone };
                    plain.clear();
                    self.gather(frame, &mut plain);
                    if plain.is_empty() {
                        continue;
                    }
                    let sent = stream.secure.seal(&plain).map_err(LinkError::from);
                    if let Err(error) = sent.and_then(|()| Ok(stream.write()?)) {
                        return error;
                    }
                }
                turn = stream.turn(&mut take) => match turn {
                    Ok(Turn::Moved) => {}
                    Ok(Turn::Closed) => return LinkError::Closed,
                    Err(error) => return error,
                }
            }
        }
    }

    /// This frame and those that wait behind it.
    fn gather(&mut self, first: ToPeer, plain: &mut Vec<u8>) {
        let mut next = Some(first);
        while let Some(ToPeer { epoch, frame }) = next {
            if epoch == self.epoch {
                frame.emit(plain);
            }
            next = if plain.len() < UNSENT { self.frames.try_recv().ok() } else { None };
        }
    }
}
