//! Symbols as text, one per line: the ESI in decimal, a space, the symbol's T bytes in hex.
//!
//! ```text
//! 0 030b15212f3f5165
//! 10 f43c36999c9b05da
//! ```
//! `headwater debug symbols` writes it and `headwater debug decode` reads it, so that anybody can hold this codec
//! against another implementation of RFC 6330. Not for speed.

use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::str::FromStr;

use headwater_units::{BlockIndex, BlockLayout, Bytes, ESI_LIMIT, Esi};
use thiserror::Error;

use crate::{Assembler, BlockEncoder, BlockShape, CodecError, Decoder, Inserted, NeedMore};

/// Symbols could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Block length and symbol size do not go together.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The file does not have this block.
    #[error("there is no block {block}: {object_bytes} are {blocks} blocks, counted from 0")]
    NoSuchBlock {
        /// The block asked for.
        block: BlockIndex,
        /// Blocks in the file.
        blocks: u32,
        /// Length of the file.
        object_bytes: Bytes,
    },
    /// A line is not a symbol of this block.
    #[error("line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// The problem.
        problem: LineProblem,
    },
    /// The lines ended too early.
    #[error(transparent)]
    NeedMore(#[from] NeedMore),
}

/// Why a line is not a symbol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// The first word is not a number below 2^24.
    #[error("'{0}' is not an encoding symbol id: a decimal number below {ESI_LIMIT} expected")]
    Esi(String),
    /// Nothing after the ESI.
    #[error("no bytes after the encoding symbol id")]
    NoBytes,
    /// The second word has a character that is no hex digit.
    #[error("'{character}' at digit {digit} is not a hex digit")]
    NotHex {
        /// The character; `\u{fffd}` if it is not ASCII.
        character: char,
        /// Its position among the hex digits, from 1.
        digit: usize,
    },
    /// Too few or too many bytes, or half a byte.
    #[error("{got} hex digits; a symbol of {symbol_size} bytes has {}", u32::from(*symbol_size) * 2)]
    Length {
        /// Hex digits found.
        got: usize,
        /// T.
        symbol_size: u16,
    },
    /// A third word.
    #[error("unexpected text after the symbol's bytes")]
    Trailing,
    /// Longer than any symbol of this size, so not read to its end.
    #[error("more than {0} characters")]
    TooLong(usize),
    /// The same ESI came before with other bytes.
    #[error("symbol {0} came before with other bytes")]
    Conflict(Esi),
    /// The symbol cannot be one of this block.
    #[error(transparent)]
    Codec(CodecError),
}

/// Consecutive ESIs, both ends included; written `A-B`, or `A` for a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EsiRange {
    first: u32,
    last: u32,
}

/// A text is not a range of ESIs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a range of encoding symbol ids: write A-B with A <= B < {ESI_LIMIT}, or A")]
pub struct ParseEsiRangeError(String);

impl EsiRange {
    /// The ESIs, rising.
    pub fn iter(self) -> impl Iterator<Item = Esi> {
        (self.first..=self.last).map(Esi)
    }
}

impl FromStr for EsiRange {
    type Err = ParseEsiRangeError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (parse_esi(first.trim().as_bytes()), parse_esi(last.trim().as_bytes())) {
            (Some(Esi(first)), Some(Esi(last))) if first <= last => Ok(EsiRange { first, last }),
            _ => Err(ParseEsiRangeError(text.to_owned())),
        }
    }
}

impl fmt::Display for EsiRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Writes symbols of one block of `object`, one line each. Reads only that block.
///
/// # Errors
/// [`TextError::NoSuchBlock`], [`TextError::Codec`], [`TextError::Io`].
pub fn write_symbols(
    object: &mut (impl Read + Seek),
    block: BlockIndex,
    symbol_size: u16,
    esis: EsiRange,
    out: &mut impl Write,
) -> Result<(), TextError> {
    let layout = BlockLayout::of(Bytes::new(object.seek(SeekFrom::End(0))?));
    if block.0 >= layout.block_count() {
        let (blocks, object_bytes) = (layout.block_count(), layout.object_bytes());
        return Err(TextError::NoSuchBlock { block, blocks, object_bytes });
    }
    let shape = BlockShape::new(layout.len(block), symbol_size)?;
    let mut bytes = vec![0; shape.block_len()];
    object.seek(SeekFrom::Start(layout.offset(block).get()))?;
    object.read_exact(&mut bytes)?;

    let encoder = BlockEncoder::new(shape, bytes)?;
    let mut symbol = vec![0; usize::from(symbol_size)];
    for esi in esis.iter() {
        encoder.symbol(esi, &mut symbol)?;
        write_symbol(esi, &symbol, out)?;
    }
    Ok(out.flush()?)
}

/// Writes one line.
///
/// # Errors
/// Those of `out`.
pub fn write_symbol(esi: Esi, symbol: &[u8], out: &mut impl Write) -> io::Result<()> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut line = format!("{esi} ").into_bytes();
    line.reserve(symbol.len() * 2 + 1);
    for byte in symbol {
        line.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    line.push(b'\n');
    out.write_all(&line)
}

/// Reads lines to their end, in any order, and writes the block of `block_bytes` that they give.
///
/// Blank lines, upper case, extra blanks, CRLF and repeated lines are fine. Symbols beyond the
/// [`crate::SPARE_SYMBOLS`] that can be of use are checked and left out.
///
/// # Errors
/// [`TextError::Line`], [`TextError::NeedMore`], [`TextError::Codec`], [`TextError::Io`]. Nothing is written then,
/// unless writing itself failed.
pub fn decode_block(
    mut lines: impl BufRead,
    block_bytes: Bytes,
    symbol_size: u16,
    out: &mut impl Write,
) -> Result<(), TextError> {
    let shape = BlockShape::new(block_bytes, symbol_size)?;
    let mut assembler = Assembler::new(shape);
    let longest = usize::from(symbol_size) * 2 + 64;
    let mut text = Vec::with_capacity(longest);
    for line in 1.. {
        text.clear();
        // One more than the longest line and its end, to tell a long line from a whole one.
        if lines.by_ref().take(longest as u64 + 1).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        read_line(&text, longest, &mut assembler).map_err(|problem| TextError::Line { line, problem })?;
    }
    out.write_all(assembler.finish()?)?;
    Ok(out.flush()?)
}

/// Puts the symbol of one line, if there is one, into the assembler.
fn read_line(text: &[u8], longest: usize, assembler: &mut Assembler) -> Result<(), LineProblem> {
    if text.len() > longest {
        return Err(LineProblem::TooLong(longest));
    }
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return Ok(()) };
    let esi = parse_esi(first).ok_or_else(|| LineProblem::Esi(excerpt(first)))?;
    let symbol = parse_hex(words.next().ok_or(LineProblem::NoBytes)?, assembler.shape().symbol_size())?;
    if words.next().is_some() {
        return Err(LineProblem::Trailing);
    }
    let inserted = assembler.insert(esi, &symbol).map_err(LineProblem::Codec)?;
    if inserted == Inserted::Duplicate && assembler.symbol(esi) != Some(&*symbol) {
        return Err(LineProblem::Conflict(esi));
    }
    Ok(())
}

fn parse_esi(word: &[u8]) -> Option<Esi> {
    let digits = str::from_utf8(word).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok().filter(|&esi| esi < ESI_LIMIT).map(Esi)
}

fn parse_hex(word: &[u8], symbol_size: u16) -> Result<Vec<u8>, LineProblem> {
    let digits: Vec<u8> = word
        .iter()
        .enumerate()
        .map(|(i, &byte)| match char::from(byte).to_digit(16) {
            Some(value) => Ok(value as u8),
            None => Err(LineProblem::NotHex { character: printable(byte), digit: i + 1 }),
        })
        .collect::<Result<_, _>>()?;
    if digits.len() != usize::from(symbol_size) * 2 {
        return Err(LineProblem::Length { got: digits.len(), symbol_size });
    }
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The front of a word, for a message.
fn excerpt(word: &[u8]) -> String {
    word.iter().take(24).map(|&byte| printable(byte)).collect()
}

fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() { char::from(byte) } else { char::REPLACEMENT_CHARACTER }
}
