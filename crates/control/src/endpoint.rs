//! The QUIC endpoint that listens and dials.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use headwater_udp::ask_receive_buffer;
use headwater_units::{Duration, NodeId};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ConnectError, Connection, ConnectionError, IdleTimeout, TransportConfig, VarInt};
use rustls::pki_types::CertificateDer;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::backoff::Backoff;
use super::config::ControlConfig;
use super::error::ControlError;
use super::identity::{Identity, SERVER_NAME, node_of};
use super::link::{Code, Link, Who};
use super::pins::{PinOutcome, Pins, canonical};
use super::presence::{Presence, presence_at};
use super::resets;
use super::slots::{Slot, Slots};
use super::tls::{self, PeerKey};

/// Diallers that wait for their turn; more are refused.
const WAITING: usize = 4096;
/// Bytes that a dialler may send before its turn has come: its first flight, twice.
const FIRST_FLIGHT: u64 = 16 << 10;
/// Number of handshakes from which on a dialler must first show that it receives at its address (QUIC Retry), so that
/// forged addresses cannot keep real ones out.
const HANDSHAKES_UNCHECKED: usize = 32;
/// Accepted links that wait for [`ControlEndpoint::accept`]; more wait inside their handshake.
const ACCEPTED: usize = 64;
/// Maximum data in flight on one stream. 1 MiB: 170 Mbit/s at 50 ms, plenty for lists of hashes.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same of a link that somebody has dialled. 128 KiB: 20 Mbit/s at 50 ms.
const STREAM_WINDOW_ACCEPTED: u32 = 128 << 10;
/// Assumed round-trip time before one is measured. 50 ms: with QUIC's 333 ms (RFC 9002 §6.2.2) one lost handshake
/// packet costs a second, longer than many deliveries; a path that is slower sees one packet twice.
const INITIAL_RTT: std::time::Duration = std::time::Duration::from_millis(50);
/// The last datagrams of links that close have left within this time.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(2);
/// TLS alert "no application protocol" (RFC 7301 §3.2).
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// Which key a dialled address must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The one stored in the pins; if none is, whichever answers is stored.
    Pinned,
    /// This one, as the user demands (`--pin`); it is stored, in place of another if need be.
    Stated(NodeId),
    /// This one, as somebody trusted told us; the pins are neither asked nor changed.
    Known(NodeId),
}

/// Counters of one [`ControlEndpoint`]. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlStats {
    /// Links accepted.
    pub links_accepted: u64,
    /// Links dialled.
    pub links_dialled: u64,
    /// Diallers turned away because there were too many.
    pub diallers_refused: u64,
    /// Diallers whose handshake failed or took too long.
    pub handshakes_failed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    links_accepted: AtomicU64,
    links_dialled: AtomicU64,
    diallers_refused: AtomicU64,
    handshakes_failed: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Listens for diallers and dials, both on one UDP port. Dropping it stops the listening; links live on.
#[derive(Debug)]
pub struct ControlEndpoint {
    endpoint: quinn::Endpoint,
    identity: Arc<Identity>,
    pins: Pins,
    config: ControlConfig,
    alpn: &'static str,
    local: SocketAddr,
    accepted: Mutex<mpsc::Receiver<Link>>,
    accepting: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    buffer_hint: Option<String>,
}

impl ControlEndpoint {
    /// Binds to `listen` (port 0 lets the kernel choose; `[::]` serves IPv4 as well). Inside a tokio runtime only.
    ///
    /// # Errors
    /// [`ControlError::Bind`]; [`ControlError::State`] if the identity cannot be used.
    pub fn bind(
        listen: SocketAddr,
        identity: Arc<Identity>,
        pins: Pins,
        config: ControlConfig,
    ) -> Result<ControlEndpoint, ControlError> {
        Self::bind_speaking(tls::ALPN, listen, identity, pins, config)
    }

    /// As [`Self::bind`], in another protocol version.
    pub(super) fn bind_speaking(
        alpn: &'static str,
        listen: SocketAddr,
        identity: Arc<Identity>,
        pins: Pins,
        config: ControlConfig,
    ) -> Result<ControlEndpoint, ControlError> {
        let bind_failed = |source| ControlError::Bind { addr: listen, source };
        let server = if config.max_links == 0 {
            None
        } else {
            let tls = tls::server(&identity, alpn).map_err(unusable)?;
            let quic = QuicServerConfig::try_from(tls).map_err(unusable)?;
            let mut server = quinn::ServerConfig::with_crypto(Arc::new(quic));
            server.transport_config(Arc::new(accepted_transport(&config)));
            server.max_incoming(2 * WAITING);
            server
                .incoming_buffer_size(FIRST_FLIGHT)
                .incoming_buffer_size_total(WAITING as u64 * FIRST_FLIGHT);
            Some(server)
        };
        let socket = udp_socket(listen).map_err(bind_failed)?;
        let buffer_hint = match server {
            Some(_) => ask_receive_buffer(&socket, config.receive_buffer).map_err(bind_failed)?,
            None => None,
        };
        let socket = std::net::UdpSocket::from(socket);
        let port = socket.local_addr().map_err(bind_failed)?.port();
        let (quic, runtime) = (resets::endpoint_config(&identity, port), Arc::new(quinn::TokioRuntime));
        let endpoint = quinn::Endpoint::new(quic, server, socket, runtime).map_err(bind_failed)?;
        let local = endpoint.local_addr().map_err(bind_failed)?;
        let counters = Arc::new(Counters::default());
        let (to_accept, accepted) = mpsc::channel(ACCEPTED);
        let accepting = (config.max_links > 0).then(|| {
            let acceptor = Acceptor {
                config: config.clone(),
                counters: counters.clone(),
                slots: Slots::new(config.max_links),
                handshakes: Slots::new(config.handshakes_at_once),
                places: Slots::new(WAITING),
                freed: Notify::new(),
                accepted: to_accept,
                of_other_versions: std::sync::Mutex::default(),
            };
            tokio::spawn(acceptor.run(endpoint.clone()))
        });
        Ok(ControlEndpoint {
            endpoint,
            identity,
            pins,
            config,
            alpn,
            local,
            accepted: Mutex::new(accepted),
            accepting,
            counters,
            buffer_hint,
        })
    }

    /// The bound address, with the port the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Advice about a receive buffer that the kernel clipped.
    pub fn buffer_hint(&self) -> Option<&str> {
        self.buffer_hint.as_deref()
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.identity.node()
    }

    /// The counters so far.
    pub fn stats(&self) -> ControlStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ControlStats {
            links_accepted: read(&self.counters.links_accepted),
            links_dialled: read(&self.counters.links_dialled),
            diallers_refused: read(&self.counters.diallers_refused),
            handshakes_failed: read(&self.counters.handshakes_failed),
        }
    }

    /// Connects to the node at `addr`. Returns when the key is as `expect` says and the peer has accepted.
    ///
    /// # Errors
    /// [`ControlError::CannotReach`], [`ControlError::KeyChanged`], [`ControlError::PinMismatch`],
    /// [`ControlError::ProtocolVersion`], [`ControlError::Handshake`], [`ControlError::State`] (pins).
    pub async fn dial(&self, addr: SocketAddr, expect: Expect) -> Result<Link, ControlError> {
        let addr = canonical(addr);
        let within = self.config.dial_timeout;
        let attempts = async {
            let mut first = pin!(self.attempt(addr, expect));
            tokio::select! {
                done = &mut first => return done,
                () = tokio::time::sleep((within * 3 / 5).into()) => {}
            }
            // A peer that restarted in the middle of the first does not know it any more, and says nothing.
            tokio::select! {
                done = first => done,
                done = self.attempt(addr, expect) => done,
            }
        };
        let link = timeout(within.into(), attempts).await;
        let link = link.unwrap_or_else(|_| Err(ControlError::no_answer(addr, within)))?;
        count(&self.counters.links_dialled);
        Ok(link)
    }

    /// As [`ControlEndpoint::dial`], but goes on dialling for up to `patience` while somebody is there who only does not come to it:
    /// one that is asked by many at once is slow, not gone. An address where nothing listens fails as fast as ever, with the likely
    /// cause, and so does one from which nothing comes back, unless `silent_too`: it may be a listener that stands still.
    ///
    /// # Errors
    /// As [`ControlEndpoint::dial`], and [`ControlError::Busy`].
    pub async fn dial_patiently(
        &self,
        addr: SocketAddr,
        expect: Expect,
        patience: Duration,
        silent_too: bool,
    ) -> Result<Link, ControlError> {
        let addr = canonical(addr);
        let within = self.config.dial_timeout;
        let look_after = within * 2 / 5;
        #[allow(clippy::disallowed_methods)] // How long a person waits is not up to a machine.
        let started = tokio::time::Instant::now();
        let mut backoff = Backoff::new(self.seed());
        loop {
            let mut looking = pin!(async {
                tokio::time::sleep(look_after.into()).await;
                presence_at(addr, within - look_after).await
            });
            let (dialled, seen) = {
                let (mut dialling, mut seen) = (pin!(self.dial(addr, expect)), None);
                loop {
                    tokio::select! {
                        dialled = &mut dialling => break (dialled, seen),
                        presence = &mut looking, if seen.is_none() => seen = Some(presence),
                    }
                }
            };
            let error = match dialled {
                Ok(link) => return Ok(link),
                Err(error) if !error.may_pass() => return Err(error),
                Err(error) => error,
            };
            let presence = match (&error, seen) {
                // It has said so itself.
                (ControlError::Busy { .. } | ControlError::Closed { .. }, _) => Presence::There,
                (_, Some(presence)) => presence,
                // Refused by this machine, before anything was sent.
                (_, None) if started.elapsed() < std::time::Duration::from(look_after) => return Err(error),
                (_, None) => looking.await,
            };
            // One more try would end after the patience does, and say less than this error.
            let is_last =
                started.elapsed() + std::time::Duration::from(within) >= std::time::Duration::from(patience);
            match presence {
                Presence::Silent if silent_too && !is_last => {
                    tracing::warn!(%error, "dialling on");
                    tokio::time::sleep(backoff.next_wait().into()).await;
                }
                Presence::There if started.elapsed() < std::time::Duration::from(patience) => {
                    tracing::debug!(%addr, %error, "busy, dialling again");
                    tokio::time::sleep(backoff.next_wait().into()).await;
                }
                Presence::There => return Err(ControlError::busy(addr, patience)),
                Presence::Refused => return Err(ControlError::nothing_listens(addr)),
                Presence::Silent => return Err(error),
            }
        }
    }

    /// Another one for each process.
    fn seed(&self) -> u64 {
        let node = self.identity.node();
        let bytes = node.0.first_chunk::<8>().expect("an id has 32 bytes");
        u64::from_le_bytes(*bytes) ^ u64::from(self.local.port()) << 32 ^ u64::from(std::process::id())
    }

    /// Dials once. May be cancelled.
    async fn attempt(&self, addr: SocketAddr, expect: Expect) -> Result<Link, ControlError> {
        let expected = match expect {
            Expect::Stated(node) | Expect::Known(node) => Some(node),
            Expect::Pinned => self.with_pins(move |pins| pins.get(addr)).await?,
        };
        let connection = self.connect(addr, expect, expected).await?;
        let Some(peer) = peer_of(&connection) else {
            return Err(ControlError::Handshake { addr, reason: "the peer showed no key".to_owned() });
        };
        // Only now has the peer proven its key, so only now it is stored. Until here nothing was sent over the link.
        let pin = match self.pin(addr, expect, peer).await {
            Ok(pin) => pin,
            Err(error) => {
                connection.close(Code::Untrusted.var(), b"another key is pinned");
                return Err(error);
            }
        };
        let who = Who { peer, remote: addr, pin, slot: None };
        Link::open(connection.clone(), who, &self.config).await.map_err(|error| {
            match connection.close_reason() {
                Some(reason) => self.dial_error(addr, reason),
                None => error,
            }
        })
    }

    /// The next link that another node dialled; `None` after [`ControlEndpoint::close`] or if nobody is listened to.
    /// May be cancelled.
    pub async fn accept(&self) -> Option<Link> {
        self.accepted.lock().await.recv().await
    }

    /// Closes all links, dialled and accepted, with `reason`, and waits until the peers should know: until the word has left, not
    /// until nobody can ask for it again ([`quinn::Endpoint::wait_idle`] does, for three timeouts of each link).
    pub async fn close(&self, reason: &str) {
        if let Some(task) = &self.accepting {
            task.abort();
        }
        self.endpoint.close(Code::Done.var(), reason.as_bytes());
        let _ = timeout(FAREWELL, self.endpoint.wait_idle()).await;
    }

    async fn connect(
        &self,
        addr: SocketAddr,
        expect: Expect,
        expected: Option<NodeId>,
    ) -> Result<Connection, ControlError> {
        let verifier = Arc::new(expected.map_or_else(PeerKey::any, PeerKey::exactly));
        let tls = tls::client(&self.identity, verifier.clone(), self.alpn).map_err(unusable)?;
        let quic = QuicClientConfig::try_from(tls).map_err(unusable)?;
        let mut config = quinn::ClientConfig::new(Arc::new(quic));
        config.transport_config(Arc::new(transport(&self.config)));
        let connecting = self.endpoint.connect_with(config, addr, SERVER_NAME).map_err(|error| {
            let reason = match error {
                ConnectError::InvalidRemoteAddress(_) if addr.is_ipv6() && self.local.is_ipv4() => {
                    format!("this node listens on {} and so speaks IPv4 only", self.local)
                }
                other => other.to_string(),
            };
            ControlError::CannotReach { addr, reason }
        })?;
        connecting.await.map_err(|reason| match verifier.mismatch() {
            Some((expected, found)) if expect == Expect::Pinned => {
                self.pins.key_changed(addr, expected, found)
            }
            Some((expected, found)) => ControlError::PinMismatch { addr, expected, found },
            None => self.dial_error(addr, reason),
        })
    }

    /// Puts a proven key into the pins as `expect` says.
    async fn pin(
        &self,
        addr: SocketAddr,
        expect: Expect,
        peer: NodeId,
    ) -> Result<Option<PinOutcome>, ControlError> {
        match expect {
            Expect::Known(_) => Ok(None),
            Expect::Pinned => self.with_pins(move |pins| pins.accept(addr, peer)).await.map(Some),
            Expect::Stated(_) => self.with_pins(move |pins| pins.set(addr, peer)).await.map(Some),
        }
    }

    /// Runs file work off the runtime's threads.
    async fn with_pins<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Pins) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let pins = self.pins.clone();
        let file = pins.path().to_owned();
        tokio::task::spawn_blocking(move || work(&pins))
            .await
            .unwrap_or_else(|stopped| Err(ControlError::State { path: file, reason: stopped.to_string() }))
    }

    fn dial_error(&self, addr: SocketAddr, error: ConnectionError) -> ControlError {
        let handshake = |reason: String| ControlError::Handshake { addr, reason };
        match error {
            ConnectionError::TimedOut => ControlError::no_answer(addr, self.config.idle_timeout),
            ConnectionError::ApplicationClosed(close) if close.error_code == Code::Done.var() => {
                ControlError::Busy { addr, reason: "closed before the link was there".to_owned() }
            }
            ConnectionError::Reset => ControlError::Busy { addr, reason: "restarted".to_owned() },
            ConnectionError::VersionMismatch => ControlError::ProtocolVersion { addr, ours: self.alpn },
            ConnectionError::ConnectionClosed(close) => {
                if close.error_code == quinn::TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL) {
                    ControlError::ProtocolVersion { addr, ours: self.alpn }
                } else if close.error_code == quinn::TransportErrorCode::CONNECTION_REFUSED {
                    ControlError::Busy { addr, reason: "it accepts no more links".to_owned() }
                } else {
                    handshake(format!("the peer said: {close}"))
                }
            }
            ConnectionError::TransportError(error)
                if error.code == quinn::TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL) =>
            {
                ControlError::ProtocolVersion { addr, ours: self.alpn }
            }
            other => handshake(other.to_string()),
        }
    }
}

impl Drop for ControlEndpoint {
    fn drop(&mut self) {
        if let Some(task) = &self.accepting {
            task.abort();
            // New diallers are told at once instead of waiting for nobody.
            self.endpoint.set_server_config(None);
        }
    }
}

/// Turns diallers into links, each in its own task, so that a slow one holds up nobody. Of more than it takes at once the others wait, and
/// are taken in the order of their arrival.
struct Acceptor {
    config: ControlConfig,
    counters: Arc<Counters>,
    slots: Arc<Slots>,
    handshakes: Arc<Slots>,
    places: Arc<Slots>,
    /// A handshake has ended.
    freed: Notify,
    accepted: mpsc::Sender<Link>,
    /// From where programs of another version have dialled, so that the log says it once of each.
    of_other_versions: std::sync::Mutex<BTreeSet<IpAddr>>,
}

/// A dialler that waits for its turn.
struct Waiting {
    incoming: quinn::Incoming,
    remote: SocketAddr,
    since: Instant,
    _place: Slot,
}

/// Maximum number of addresses remembered for running another version.
const OTHER_VERSIONS: usize = 64;

fn is_of_another_version(reason: &ConnectionError) -> bool {
    let no_common = quinn::TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL);
    matches!(reason, ConnectionError::TransportError(error) if error.code == no_common)
}

impl Acceptor {
    fn tell_of_another_version(&self, remote: SocketAddr) {
        let mut told = self.of_other_versions.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < OTHER_VERSIONS && told.insert(remote.ip()) {
            tracing::warn!(
                %remote,
                "a program of another version was refused: install the same headwater on both machines (this one speaks {})",
                tls::ALPN
            );
        }
    }

    async fn run(self, endpoint: quinn::Endpoint) {
        let acceptor = Arc::new(self);
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        loop {
            tokio::select! {
                incoming = endpoint.accept() => match incoming {
                    Some(incoming) => waiting.extend(acceptor.arrived(incoming, !waiting.is_empty())),
                    None => return,
                },
                () = acceptor.freed.notified() => {}
            }
            while let Some((next, turn)) = acceptor.next(&mut waiting) {
                acceptor.clone().begin(next, turn);
            }
        }
    }

    /// A dialler has come. It may wait, unless it has to show first where it is, or too many wait.
    fn arrived(&self, incoming: quinn::Incoming, others_wait: bool) -> Option<Waiting> {
        let remote = canonical(incoming.remote_address());
        let is_busy = others_wait || self.handshakes.taken() >= HANDSHAKES_UNCHECKED;
        if is_busy && incoming.may_retry() && !incoming.remote_address_validated() {
            let _ = incoming.retry();
            return None;
        }
        let Some(place) = self.places.take(remote.ip()) else {
            count(&self.counters.diallers_refused);
            incoming.refuse();
            return None;
        };
        #[allow(clippy::disallowed_methods)] // How long a dialler waits is not up to a machine.
        let since = Instant::now();
        Some(Waiting { incoming, remote, since, _place: place })
    }

    /// The first waiting dialler for whom there is room: one network does not take the turns of others.
    fn next(&self, waiting: &mut VecDeque<Waiting>) -> Option<(Waiting, Slot)> {
        // Those have given up, and begin anew.
        let patience = std::time::Duration::from(self.config.dial_timeout);
        while waiting.front().is_some_and(|it| it.since.elapsed() >= patience) {
            waiting.pop_front()?.incoming.ignore();
            count(&self.counters.diallers_refused);
        }
        let turns = waiting.iter().enumerate();
        let (place, turn) =
            turns.into_iter().find_map(|(place, it)| Some((place, self.handshakes.take(it.remote.ip())?)))?;
        Some((waiting.remove(place)?, turn))
    }

    fn begin(self: Arc<Self>, next: Waiting, turn: Slot) {
        let Waiting { incoming, remote, .. } = next;
        let Some(slot) = self.slots.take(remote.ip()) else {
            count(&self.counters.diallers_refused);
            return incoming.refuse();
        };
        tokio::spawn(async move {
            let within = self.config.dial_timeout;
            let link = timeout(within.into(), self.handshake(incoming, remote, slot)).await;
            drop(turn);
            self.freed.notify_one();
            match link {
                Ok(Ok(link)) => {
                    count(&self.counters.links_accepted);
                    // Fails when nobody accepts any more; dropping the link then closes it.
                    let _ = self.accepted.send(link).await;
                }
                Ok(Err(error)) => {
                    count(&self.counters.handshakes_failed);
                    tracing::debug!(%remote, %error, "dialler failed");
                }
                Err(_) => {
                    count(&self.counters.handshakes_failed);
                    tracing::debug!(%remote, "dialler took longer than {within}");
                }
            }
        });
    }

    async fn handshake(
        &self,
        incoming: quinn::Incoming,
        remote: SocketAddr,
        slot: Slot,
    ) -> Result<Link, ControlError> {
        let failed = |reason: ConnectionError| {
            if is_of_another_version(&reason) {
                self.tell_of_another_version(remote);
            }
            ControlError::Handshake { addr: remote, reason: reason.to_string() }
        };
        let connection = incoming.accept().map_err(failed)?.await.map_err(failed)?;
        let Some(peer) = peer_of(&connection) else {
            connection.close(Code::Untrusted.var(), b"no key");
            return Err(ControlError::Handshake { addr: remote, reason: "it showed no key".to_owned() });
        };
        let who = Who { peer, remote, pin: None, slot: Some(slot) };
        Link::answer(connection, who, &self.config).await
    }
}

/// The node whose key the handshake proved.
fn peer_of(connection: &Connection) -> Option<NodeId> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    node_of(chain.first()?).ok()
}

fn unusable(reason: impl std::fmt::Display) -> ControlError {
    ControlError::State { path: "identity".into(), reason: format!("cannot be used for TLS: {reason}") }
}

/// A UDP socket for QUIC; a wildcard IPv6 one takes IPv4 too, whatever the system's default is.
fn udp_socket(listen: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(listen), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if let SocketAddr::V6(addr) = listen {
        socket.set_only_v6(!addr.ip().is_unspecified() && addr.ip().to_ipv4_mapped().is_none())?;
    }
    socket.bind(&listen.into())?;
    Ok(socket)
}

/// QUIC's settings for a link that somebody has dialled. Diallers are many and anybody: what each can make this side
/// hold in memory is little. A peer that does not read its replies holds up its own frames.
fn accepted_transport(config: &ControlConfig) -> TransportConfig {
    let mut transport = transport(config);
    transport
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_ACCEPTED))
        .receive_window(VarInt::from_u32(2 * STREAM_WINDOW_ACCEPTED))
        .send_window(u64::from(STREAM_WINDOW));
    transport
}

/// QUIC's settings for a link.
fn transport(config: &ControlConfig) -> TransportConfig {
    let requests = u32::try_from(config.requests_at_once.clamp(1, 1024)).expect("clamped");
    // Requests of both sides, and the frames: with less, replies that nobody reads would hold up frames.
    let window = u64::from(2 * requests + 1) * u64::from(STREAM_WINDOW);
    // QUIC counts the idle timeout in milliseconds of a 62-bit integer.
    let idle = std::time::Duration::from(config.idle_timeout);
    let mut transport = TransportConfig::default();
    transport
        .initial_rtt(INITIAL_RTT)
        .keep_alive_interval(Some(config.keep_alive.into()))
        .max_idle_timeout(IdleTimeout::try_from(idle).ok())
        .max_concurrent_bidi_streams(VarInt::from_u32(requests + 1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u64(window).unwrap_or(VarInt::MAX))
        .send_window(window);
    transport
}
