//! The kernel's TCP between two ends, with large writes and reads.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use headwater_api::AppError;

use super::{Both, End, Setting, TcpFigures, both, gbit, per_gib};

/// Written and read at a time: more gains nothing.
const PIECE: usize = 256 << 10;

/// Sends for `time`.
pub(super) fn measure(setting: &Setting, time: Duration) -> Result<TcpFigures, AppError> {
    let listener = setting.open(End::Receiver, || TcpListener::bind((setting.address, 0)))?;
    let failed = |error| AppError::io("cannot connect two ends", error);
    let to = listener.local_addr().map_err(failed)?;
    // The kernel completes the connection before it is accepted.
    let out = setting.open(End::Sender, || TcpStream::connect(to))?;
    let (inbound, _) = listener.accept().map_err(failed)?;
    let Both { send_cpu, received: (bytes, seconds), receive_cpu, .. } =
        both(|| send(out, time), || receive(inbound))?;
    Ok(TcpFigures {
        gbit_per_s: gbit(bytes, seconds),
        send_cpu_s_per_gib: per_gib(send_cpu, bytes),
        receive_cpu_s_per_gib: per_gib(receive_cpu, bytes),
    })
}

#[allow(clippy::disallowed_methods, reason = "this measures the machine")]
fn send(mut out: TcpStream, time: Duration) -> std::io::Result<()> {
    let piece = vec![0; PIECE];
    let start = Instant::now();
    while start.elapsed() < time {
        out.write_all(&piece)?;
    }
    out.shutdown(Shutdown::Write)
}

/// Bytes, and the seconds from the first to the last.
#[allow(clippy::disallowed_methods, reason = "this measures the machine")]
fn receive(mut inbound: TcpStream) -> std::io::Result<(u64, f64)> {
    let mut piece = vec![0; PIECE];
    let mut bytes = inbound.read(&mut piece)? as u64;
    let start = Instant::now();
    loop {
        match inbound.read(&mut piece)? as u64 {
            0 => return Ok((bytes, start.elapsed().as_secs_f64())),
            more => bytes += more,
        }
    }
}
