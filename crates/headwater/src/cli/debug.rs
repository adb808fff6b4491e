//! `headwater debug symbols` and `debug decode`: the codec's text format on files and standard streams. `debug tcp`: plain
//! TCP, for comparison.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use headwater_codec::text::{self, TextError};
use headwater_testbed::tcp::{Receiver, Sender, TcpError};
use headwater_units::{BitRate, BlockIndex, Bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::json;

use super::args::{DecodeArgs, SymbolsArgs, TcpReceiveArgs, TcpSendArgs};
use super::output::Terminal;
use crate::app::{AppError, Shutdown};

/// Prints symbols of one block of a file; reads only that block.
pub(crate) fn symbols(args: &SymbolsArgs, terminal: &Terminal) -> Result<(), AppError> {
    let open = |source: io::Error| {
        let doing = format!("cannot open {}", args.file.display());
        if source.kind() == io::ErrorKind::NotFound {
            AppError::NotFound(format!("{doing}: {source}"))
        } else {
            AppError::Io { doing, source }
        }
    };
    let mut file = File::open(&args.file).map_err(open)?;
    let (block, size) = (BlockIndex(args.block), args.symbol_size);
    let out = BufWriter::new(io::stdout().lock());
    if terminal.json() {
        text::write_symbols(&mut file, block, size, args.esi, &mut JsonLines { out, line: Vec::new() })
    } else {
        text::write_symbols(&mut file, block, size, args.esi, &mut { out })
    }
    .map_err(|error| explain(error, &format!("symbols of {}", args.file.display())))
}

/// Reads symbols from standard input and writes their block to standard output.
pub(crate) fn decode(args: &DecodeArgs, terminal: &Terminal) -> Result<(), AppError> {
    let mut out = BufWriter::new(io::stdout().lock());
    text::decode_block(io::stdin().lock(), args.block_bytes, args.symbol_size, &mut out)
        .map_err(|error| explain(error, "decoding standard input"))?;
    drop(out);
    if terminal.json() {
        terminal
            .json_line(&json!({"block_bytes": args.block_bytes}))
            .map_err(|source| AppError::Io { doing: "cannot write the result".to_owned(), source })?;
    }
    Ok(())
}

fn explain(error: TextError, doing: &str) -> AppError {
    match error {
        TextError::Io(source) => AppError::Io { doing: doing.to_owned(), source },
        TextError::Codec(_) => AppError::Usage(error.to_string()),
        TextError::NoSuchBlock { .. } => AppError::NotFound(error.to_string()),
        _ => AppError::Failed(format!("{doing}: {error}")),
    }
}

/// Receives by TCP until interrupted; a line for each connection that ends.
pub(crate) fn tcp_receive(
    args: &TcpReceiveArgs,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), AppError> {
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
pub(crate) fn tcp_send(args: &TcpSendArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), AppError> {
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
    terminal.result(&sent, words).map_err(writing)
}

fn amounts(bytes: u64, bit_per_s: f64) -> (Bytes, BitRate) {
    (Bytes::new(bytes), BitRate::new(bit_per_s as u64))
}

/// Waits for a line on standard input, looking for the wish to stop meanwhile.
fn wait_for_line(shutdown: &Shutdown) -> Result<(), AppError> {
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

impl From<TcpError> for AppError {
    fn from(error: TcpError) -> Self {
        match error {
            TcpError::UnknownCongestion { .. }
            | TcpError::ForbiddenCongestion { .. }
            | TcpError::Name { .. }
            | TcpError::Interval { .. } => AppError::Usage(error.to_string()),
            TcpError::Connect { to, source } => {
                AppError::Unreachable { who: to.to_string(), reason: source.to_string() }
            }
            _ => AppError::Failed(error.to_string()),
        }
    }
}

/// Turns each line `ESI HEX` into an object.
struct JsonLines<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.ends_with(b"\n") {
                // Digits and hex digits: nothing that JSON would escape.
                let text = String::from_utf8_lossy(&self.line);
                let (esi, symbol) = text.trim_end().split_once(' ').unwrap_or((&text, ""));
                writeln!(self.out, "{{\"esi\":{esi},\"symbol\":\"{symbol}\"}}")?;
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_objects_however_they_are_cut() {
        for cut in 1..12 {
            let mut lines = JsonLines { out: Vec::new(), line: Vec::new() };
            for part in b"0 ab\n10 cdef\n".chunks(cut) {
                lines.write_all(part).unwrap();
            }
            let expected = "{\"esi\":0,\"symbol\":\"ab\"}\n{\"esi\":10,\"symbol\":\"cdef\"}\n";
            assert_eq!(String::from_utf8(lines.out).unwrap(), expected);
        }
    }
}
