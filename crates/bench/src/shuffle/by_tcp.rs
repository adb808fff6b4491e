//! A connection for each flow: what agents are compared with.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use headwater_api::{AppError, Shutdown};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{Ends, PlannedCoflow, PlannedFlow};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// How often a connection that is refused or has no answer is tried again.
const TRIES: u32 = 5;

/// Answers each connection with as many bytes as it asks for, until asked to stop. `ready` is told where it listens.
///
/// # Errors
/// The address is taken or not ours, or the kernel has no such congestion control.
pub async fn serve(
    listen: SocketAddr,
    congestion: Option<&str>,
    shutdown: &Shutdown,
    ready: impl FnOnce(SocketAddr) -> Result<(), AppError>,
) -> Result<(), AppError> {
    let failed = |source| AppError::io(format!("cannot listen on {listen}"), source);
    let socket = socket(listen, congestion).map_err(failed)?;
    socket.set_reuseaddr(true).map_err(failed)?;
    socket.bind(listen).map_err(failed)?;
    let listener: TcpListener = socket.listen(BACKLOG).map_err(failed)?;
    ready(listener.local_addr().map_err(failed)?)?;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.wait() => return Ok(()),
        };
        let (stream, _) = accepted.map_err(failed)?;
        // The fetching side sees that it has ended too early.
        tokio::spawn(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut left = stream.read_u64().await?;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
        left -= stream.write(&ZEROS[..most]).await? as u64;
    }
    stream.shutdown().await
}

fn socket(towards: SocketAddr, congestion: Option<&str>) -> io::Result<TcpSocket> {
    let socket = match towards {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    if let Some(name) = congestion {
        rustix::net::sockopt::set_tcp_congestion(&socket, name)?;
    }
    Ok(socket)
}

/// Fetches a coflow's flows, all at its time.
pub(super) fn begin(coflow: PlannedCoflow, after: Duration, congestion: Option<String>, ends: Ends) {
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        let mut flows = tokio::task::JoinSet::new();
        for flow in coflow.flows {
            let congestion = congestion.clone();
            flows.spawn(async move { fetch(&flow, congestion.as_deref()).await });
        }
        let mut end = Ok(coflow.coflow);
        while let Some(fetched) = flows.join_next().await {
            match fetched {
                Ok(Ok(())) => {}
                Ok(Err(error)) => end = Err(error),
                Err(error) => end = Err(AppError::Failed(error.to_string())),
            }
        }
        // The listener is gone only if another coflow has failed.
        let _ = ends.send(end);
    });
}

async fn fetch(flow: &PlannedFlow, congestion: Option<&str>) -> Result<(), AppError> {
    let failed = |source| AppError::io(format!("a flow from {} broke", flow.from), source);
    let from: SocketAddr =
        flow.from.parse().map_err(|_| AppError::Failed(format!("{} is no IP:PORT", flow.from)))?;
    let mut tries = 0;
    let mut stream = loop {
        tries += 1;
        match socket(from, congestion).map_err(failed)?.connect(from).await {
            Ok(stream) => break stream,
            Err(error) if tries == TRIES => return Err(failed(error)),
            Err(_) => {}
        }
    };
    stream.write_u64(flow.bytes).await.map_err(failed)?;
    let (mut got, mut room) = (0, vec![0; 16 << 10]);
    loop {
        match stream.read(&mut room).await.map_err(failed)? {
            0 => break,
            count => got += count as u64,
        }
    }
    match got == flow.bytes {
        true => Ok(()),
        false => Err(AppError::Failed(format!("{got} bytes came of {} from {}", flow.bytes, flow.from))),
    }
}
