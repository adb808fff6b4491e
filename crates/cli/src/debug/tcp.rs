//! `headwater debug tcp`: plain TCP, for comparison.

use std::io;

use headwater_api::{AppError, Shutdown};
use headwater_testbed::tcp::{Receiver, Sender, TcpError};
use headwater_units::{BitRate, Bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::json;

use crate::Failure;
use crate::args::{TcpReceiveArgs, TcpSendArgs};
use crate::output::Terminal;

/// Receives by TCP until interrupted; a line for each connection that ends.
pub(crate) fn tcp_receive(
    args: &TcpReceiveArgs,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let receiver = Receiver::listen(args.options())?;
    let writing = |source| AppError::Io { doing: "cannot write the result".to_owned(), source };
    let listen = receiver.address().map_err(writing)?;
    let ready = json!({"type": "listening", "listen": listen});
    terminal.result(&ready, || format!("listening on {listen}")).map_err(writing)?;
    receiver.run(&|| shutdown.is_set(), &mut |received| {
        terminal.result(received, || {
            let (bytes, rate) = amounts(received.bytes, received.goodput_bit_per_s);
            let how = if received.complete { "" } else { ", not complete" };
            let (name, from, seconds) = (&received.name, received.from, received.seconds);
            format!("{name} from {from}: {bytes} in {seconds:.3} s, {rate}{how}")
        })
    })?;
    Ok(())
}

/// Sends by TCP over one connection.
pub(crate) fn tcp_send(args: &TcpSendArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    let sender = Sender::connect(args.options())?;
    let writing = |source| AppError::Io { doing: "cannot write the result".to_owned(), source };
    if args.wait_for_start {
        match terminal.json() {
            true => terminal.json_line(&json!({"type": "ready"})).map_err(writing)?,
            false => terminal.note("ready; a line on standard input starts it"),
        }
        wait_for_line(shutdown)?;
    }
    let sent = sender.run(&|| shutdown.is_set())?;
    let words = || {
        let (bytes, rate) = amounts(sent.bytes, sent.goodput_bit_per_s);
        let how = if sent.complete { "" } else { ", not complete" };
        let (congestion, seconds, again) = (&sent.congestion, sent.seconds, sent.retransmits);
        format!("{bytes} in {seconds:.3} s, {rate}, {congestion}, {again} packets sent again{how}")
    };
    terminal.result(&sent, words).map_err(writing)?;
    Ok(())
}

fn amounts(bytes: u64, bit_per_s: f64) -> (Bytes, BitRate) {
    (Bytes::new(bytes), BitRate::new(bit_per_s as u64))
}

/// Waits for a line on standard input, looking for the wish to stop meanwhile.
pub(super) fn wait_for_line(shutdown: &Shutdown) -> Result<(), AppError> {
    let failed = |source| AppError::Io { doing: "cannot read standard input".to_owned(), source };
    let a_moment = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let (stdin, mut byte) = (io::stdin(), [0]);
    loop {
        if shutdown.is_set() {
            return Err(AppError::Interrupted { resumable: false });
        }
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&a_moment)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(failed(error.into())),
        }
        // Not `Stdin`, whose buffer could hold a line that `poll` no longer sees.
        match rustix::io::read(&stdin, &mut byte) {
            Ok(0) => {
                return Err(AppError::Failed(
                    "standard input ended before the line that starts it".to_owned(),
                ));
            }
            Ok(_) if byte == [b'\n'] => return Ok(()),
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
}

impl From<TcpError> for Failure {
    fn from(error: TcpError) -> Self {
        Failure::App(match error {
            TcpError::UnknownCongestion { .. }
            | TcpError::ForbiddenCongestion { .. }
            | TcpError::Name { .. }
            | TcpError::Interval { .. } => AppError::Usage(error.to_string()),
            TcpError::Connect { to, source } => {
                AppError::Unreachable { who: to.to_string(), reason: source.to_string() }
            }
            _ => AppError::Failed(error.to_string()),
        })
    }
}
