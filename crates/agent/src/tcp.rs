//! Sockets between agents: their options, and reading and writing in large pieces.

use std::io;
use std::net::SocketAddr;

use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::secure::{Secure, SecureError};

/// Time without confirmed data after which a peer counts as gone: less than a frozen machine may need to come back,
/// more than a loss.
const USER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
const KEEPALIVE_IDLE: std::time::Duration = std::time::Duration::from_secs(10);
const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);
/// Reads in a row before others have their turn.
const READS: usize = 4;

/// A socket that listens for agents.
///
/// # Errors
/// The address cannot be used.
pub(crate) fn listen(address: SocketAddr, congestion: &[String]) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if let SocketAddr::V6(v6) = address {
        socket.set_only_v6(!v6.ip().is_unspecified() && v6.ip().to_ipv4_mapped().is_none())?;
    }
    socket.set_reuse_address(true)?;
    // Connections inherit it.
    choose_congestion(&socket, congestion);
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

/// A connection to an agent, in one of the network's `classes`.
///
/// # Errors
/// It cannot be made.
pub(crate) async fn dial(
    address: SocketAddr,
    congestion: &[String],
    (class, classes): (u8, u8),
) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    choose_congestion(&socket, congestion);
    set_class(&SockRef::from(&socket), address, (class, classes));
    let stream = socket.connect(address).await?;
    set_up(&stream)?;
    Ok(stream)
}

/// The first of these that the kernel has and gives; it goes on with its own if there is none.
fn choose_congestion(socket: &impl std::os::fd::AsFd, names: &[String]) {
    let _ = names.iter().any(|name| sockopt::set_tcp_congestion(socket, name).is_ok());
}

/// Options of every connection.
///
/// # Errors
/// The socket is of no use.
pub(crate) fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

/// Marks what is sent with its class: the first class in the highest IP precedence, the last in none. The kernel keeps the ECN bits.
pub(crate) fn set_class(socket: &SockRef<'_>, address: SocketAddr, (class, classes): (u8, u8)) {
    let precedence = u32::from(classes.saturating_sub(1).saturating_sub(class).min(7)) << 5;
    let _ = match address {
        SocketAddr::V4(_) => socket.set_tos_v4(precedence),
        SocketAddr::V6(_) => socket.set_tclass_v6(precedence),
    };
}

/// The congestion control of a socket, as the kernel says.
pub(crate) fn congestion(socket: &impl std::os::fd::AsFd) -> String {
    sockopt::tcp_congestion(socket).unwrap_or_default()
}

/// Result of waiting for a connection.
pub(crate) enum Turn {
    /// Bytes came or went.
    Moved,
    /// The peer has closed it.
    Closed,
}

/// A connection and its TLS.
pub(crate) struct Stream {
    tcp: TcpStream,
    pub(crate) secure: Secure,
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, secure: Secure) -> Self {
        Stream { tcp, secure }
    }

    /// Does the handshake. Bytes of the peer behind it go to `take`.
    ///
    /// # Errors
    /// It fails; the peer's word may be the reason.
    pub(crate) async fn shake_hands<E: From<SecureError> + From<io::Error>>(
        &mut self,
        take: &mut (dyn FnMut(&[u8]) -> Result<(), E> + Send),
    ) -> Result<(), E> {
        self.secure.begin()?;
        while !self.secure.is_ready() || !self.secure.outgoing().is_empty() {
            if let Turn::Closed = self.turn(take).await? {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }

    /// Waits until bytes can be read, or written if any wait for that, and does so. May be dropped at any time.
    ///
    /// # Errors
    /// The connection breaks, or whatever `take` says of what came.
    pub(crate) async fn turn<E: From<SecureError> + From<io::Error>>(
        &mut self,
        take: &mut (dyn FnMut(&[u8]) -> Result<(), E> + Send),
    ) -> Result<Turn, E> {
        let writes = !self.secure.outgoing().is_empty();
        let interest = if writes { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let ready = self.tcp.ready(interest).await?;
        if ready.is_writable() {
            self.write()?;
        }
        if ready.is_readable() {
            for _ in 0..READS {
                match self.tcp.try_read(self.secure.space()) {
                    Ok(0) => return Ok(Turn::Closed),
                    Ok(count) => self.secure.received(count, take)?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
                if self.secure.is_closed() {
                    return Ok(Turn::Closed);
                }
            }
        }
        Ok(Turn::Moved)
    }

    /// Writes what can be written without waiting.
    ///
    /// # Errors
    /// The connection breaks.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        while !self.secure.outgoing().is_empty() {
            match self.tcp.try_write(self.secure.outgoing()) {
                Ok(count) => self.secure.sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
