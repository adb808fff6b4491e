//! `headwater debug symbols` and `debug decode`: the codec's text format on files and standard streams. `debug tcp` and
//! `debug shuffle` are for comparison.

#[cfg(feature = "laboratory")]
mod shuffle;
#[cfg(feature = "laboratory")]
mod tcp;

use std::fs::File;
use std::io::{self, BufWriter, Write};

use headwater_api::AppError;
use headwater_codec::text::{self, TextError};
use headwater_units::BlockIndex;
use serde_json::json;

#[cfg(feature = "laboratory")]
pub(crate) use self::shuffle::{shuffle_fetch, shuffle_serve};
#[cfg(feature = "laboratory")]
pub(crate) use self::tcp::{tcp_receive, tcp_send};
use super::args::{DecodeArgs, SymbolsArgs};
use super::output::Terminal;

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
