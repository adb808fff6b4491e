//! Protocols that could carry flows between agents, without agents around them: TLS 1.3 over TCP, and QUIC, each with
//! the keys and checks of agents.
//!
//! One connection and one stream over loopback, from memory to nowhere, both ends in this process: what they cost is this process's
//! processor time. TCP's packets are as large as loopback takes and are cut nowhere; QUIC's are those of a path of 1,500 bytes, since it
//! finds none that are larger there by itself.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use cpu_time::ProcessTime;
use headwater_api::{AppError, Shutdown};
use headwater_control::{Identity, streams};
use headwater_units::Bytes;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use serde::Serialize;

use super::{BenchWatch, median_of, ratio};
use crate::agents::now;

/// Number of measurements of each, in turn.
const ROUNDS: usize = 3;
/// Size of one write: a block of an agent.
const WRITE: usize = 64 << 10;
const PROTOCOL: &str = "headwater-bench";
/// Bytes that may be under way: more than loopback can hold.
const WINDOW: u32 = 16 << 20;
const GIB: f64 = 1_073_741_824.0;

/// Figures of one protocol, in the median.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Carried {
    /// `tls` or `quic`.
    pub carrier: &'static str,
    /// From the first byte written to the last one read.
    pub gbit_per_s: f64,
    /// Processor seconds of both ends per GiB.
    pub cpu_s_per_gib: f64,
}

/// Measures both, with `size` bytes a time.
///
/// # Errors
/// [`AppError::Interrupted`], or a connection that fails.
pub async fn run(
    size: Bytes,
    shutdown: &Shutdown,
    watch: &mut dyn BenchWatch,
) -> Result<Vec<Carried>, AppError> {
    let carriers = ["tls", "quic"];
    let mut seen = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for (at, carrier) in carriers.into_iter().enumerate() {
            watch.begun(carrier, round * carriers.len() + at + 1, ROUNDS * carriers.len());
            let carried = async {
                match carrier {
                    "tls" => tokio::task::spawn_blocking(move || by_tls(size)).await.map_err(failed)?,
                    _ => by_quic(size).await,
                }
            };
            seen[at].push(tokio::select! {
                carried = carried => carried?,
                () = shutdown.wait() => return Err(AppError::Interrupted { resumable: false }),
            });
        }
    }
    let carried = |(carrier, seen): (&'static str, Vec<Spent>)| Carried {
        carrier,
        gbit_per_s: median_of(seen.iter().map(|it| ratio(size.get() as f64 * 8.0, it.seconds) / 1e9)),
        cpu_s_per_gib: median_of(seen.iter().map(|it| ratio(it.cpu, size.get() as f64 / GIB))),
    };
    Ok(carriers.into_iter().zip(seen).map(carried).collect())
}

struct Spent {
    seconds: f64,
    cpu: f64,
}

/// A measurement that goes on.
struct Begun {
    at: std::time::Instant,
    cpu: ProcessTime,
}

impl Begun {
    fn now() -> Begun {
        Begun { at: now(), cpu: ProcessTime::now() }
    }

    /// Time and processor time, if everything has come.
    fn end(self, came: u64, size: Bytes) -> Result<Spent, AppError> {
        if came != size.get() {
            return Err(failed(format!("{came} bytes came of {size}")));
        }
        Ok(Spent { seconds: self.at.elapsed().as_secs_f64(), cpu: self.cpu.elapsed().as_secs_f64() })
    }
}

fn failed(error: impl std::fmt::Display) -> AppError {
    AppError::Failed(format!("a connection of the bench: {error}"))
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The lengths of what is written.
fn writes(size: Bytes) -> impl Iterator<Item = usize> {
    (0..size.get()).step_by(WRITE).map(move |at| (size.get() - at).min(WRITE as u64) as usize)
}

fn by_tls(size: Bytes) -> Result<Spent, AppError> {
    let (source, receiver) = (Identity::ephemeral()?, Identity::ephemeral()?);
    let server = source.tls_server(PROTOCOL)?;
    let client = receiver.tls_client(source.node(), PROTOCOL)?;
    let listener = TcpListener::bind(loopback()).map_err(failed)?;
    let to = listener.local_addr().map_err(failed)?;
    let sending = std::thread::spawn(move || -> Result<(), AppError> {
        let (stream, _) = listener.accept().map_err(failed)?;
        let session = rustls::ServerConnection::new(server).map_err(failed)?;
        let mut tls = rustls::StreamOwned::new(session, stream);
        // The receiver says when.
        tls.read_exact(&mut [0]).map_err(failed)?;
        let bytes = vec![7; WRITE];
        for length in writes(size) {
            tls.write_all(&bytes[..length]).map_err(failed)?;
        }
        tls.conn.send_close_notify();
        tls.flush().map_err(failed)
    });
    let stream = TcpStream::connect(to).map_err(failed)?;
    let session = rustls::ClientConnection::new(client, streams::server_name()).map_err(failed)?;
    let mut tls = rustls::StreamOwned::new(session, stream);
    tls.write_all(&[1]).map_err(failed)?;
    let begun = Begun::now();
    let (mut came, mut some) = (0, vec![0; 4 * WRITE]);
    loop {
        match tls.read(&mut some).map_err(failed)? {
            0 => break,
            count => came += count as u64,
        }
    }
    let spent = begun.end(came, size)?;
    sending.join().map_err(|_| failed("the sending thread has panicked"))??;
    Ok(spent)
}

async fn by_quic(size: Bytes) -> Result<Spent, AppError> {
    let (source, receiver) = (Identity::ephemeral()?, Identity::ephemeral()?);
    let mut transport = quinn::TransportConfig::default();
    transport
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(WINDOW.into())
        .initial_rtt(Duration::from_millis(1));
    let transport = Arc::new(transport);
    let crypto = QuicServerConfig::try_from(source.tls_server(PROTOCOL)?).map_err(failed)?;
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    server.transport_config(transport.clone());
    let crypto = QuicClientConfig::try_from(receiver.tls_client(source.node(), PROTOCOL)?).map_err(failed)?;
    let mut client = quinn::ClientConfig::new(Arc::new(crypto));
    client.transport_config(transport);
    let accepting = quinn::Endpoint::server(server, loopback()).map_err(failed)?;
    let to = accepting.local_addr().map_err(failed)?;
    let sending = tokio::spawn(async move {
        let incoming = accepting.accept().await.ok_or_else(|| failed("nobody has come"))?;
        let connection = incoming.await.map_err(failed)?;
        let (mut stream, mut word) = connection.accept_bi().await.map_err(failed)?;
        // The receiver says when.
        word.read_exact(&mut [0]).await.map_err(failed)?;
        let bytes = vec![7; WRITE];
        for length in writes(size) {
            stream.write_all(&bytes[..length]).await.map_err(failed)?;
        }
        stream.finish().map_err(failed)?;
        connection.closed().await;
        Ok::<(), AppError>(())
    });
    let dialling = quinn::Endpoint::client(loopback()).map_err(failed)?;
    let name = streams::server_name().to_str().into_owned();
    let connection = dialling.connect_with(client, to, &name).map_err(failed)?.await.map_err(failed)?;
    let (mut word, mut stream) = connection.open_bi().await.map_err(failed)?;
    word.write_all(&[1]).await.map_err(failed)?;
    let begun = Begun::now();
    let mut came = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await.map_err(failed)? {
        came += chunk.bytes.len() as u64;
    }
    let spent = begun.end(came, size)?;
    connection.close(0_u32.into(), b"done");
    sending.await.map_err(failed)??;
    Ok(spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_all_the_bytes() {
        for size in [1, WRITE as u64, 3 * WRITE as u64 + 7] {
            assert_eq!(writes(Bytes::new(size)).sum::<usize>() as u64, size);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn both_bring_all_bytes() {
        let size = Bytes::new((1 << 20) + 3);
        assert!(by_tls(size).unwrap().seconds > 0.0);
        assert!(by_quic(size).await.unwrap().seconds > 0.0);
    }
}
