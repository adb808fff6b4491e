//! The common ground of both protocols: frames with a bounded length, and big-endian fields.
//!
//! ```text
//!  0        4      5
//!  | length | kind | fields ...        length counts what follows it, so at least 1
//! ```

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// Bytes of the length and the kind.
pub(crate) const HEAD: usize = 5;
/// Bytes of a token at least, and at most.
pub(crate) const TOKEN: std::ops::RangeInclusive<usize> = 16..=64;

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Its length is zero.
    #[error("a frame without a kind")]
    Empty,
    /// It claims to be longer than frames may be.
    #[error("a frame of {length} bytes, more than {most}")]
    TooLong {
        /// Bytes that it claims.
        length: u32,
        /// Bytes that it may have.
        most: u32,
    },
    /// Nobody has defined this kind.
    #[error("a frame of unknown kind {0}")]
    UnknownKind(u8),
    /// It ends before its fields do.
    #[error("a frame of kind {0} ends before its fields do")]
    Short(u8),
    /// It goes on after its last field.
    #[error("a frame of kind {0} goes on after its last field")]
    Trailing(u8),
    /// A field has a value that it cannot have.
    #[error("a frame of kind {0} has a field of impossible value")]
    BadField(u8),
}

/// The name of an application, output or host: 1 to 255 bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

impl Name {
    /// Bytes of the longest name.
    pub const MOST: usize = 255;

    /// This text, if it can be a name.
    pub fn new(text: impl Into<String>) -> Option<Name> {
        let text = text.into();
        let fits = !text.is_empty() && text.len() <= Self::MOST && !text.chars().any(char::is_control);
        fits.then_some(Name(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Length and kind of the frame that begins here.
///
/// # Errors
/// [`FrameError::Empty`], [`FrameError::TooLong`].
pub(crate) fn head(bytes: [u8; HEAD], most: u32) -> Result<(u32, u8), FrameError> {
    let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match length {
        0 => Err(FrameError::Empty),
        _ if length > most => Err(FrameError::TooLong { length, most }),
        _ => Ok((length, bytes[4])),
    }
}

/// The fields of a frame that are still to be read.
pub(crate) struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(kind: u8, rest: &'a [u8]) -> Self {
        Fields { kind, rest }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(FrameError::Short(self.kind))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        Ok(self.take(N)?.try_into().expect("it is as long as it was asked for"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Text behind its length in 16 bits.
    pub(crate) fn text(&mut self, most: usize) -> Result<String, FrameError> {
        let length = usize::from(self.u16()?);
        if length > most {
            return Err(self.bad());
        }
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| self.bad())?;
        Ok(text.to_owned())
    }

    pub(crate) fn name(&mut self) -> Result<Name, FrameError> {
        let text = self.text(Name::MOST)?;
        Name::new(text).ok_or(self.bad())
    }

    pub(crate) fn bad(&self) -> FrameError {
        FrameError::BadField(self.kind)
    }

    /// Nothing may follow the last field.
    pub(crate) fn end(self) -> Result<(), FrameError> {
        if self.rest.is_empty() { Ok(()) } else { Err(FrameError::Trailing(self.kind)) }
    }
}

/// Appends a frame of this kind, whose fields `fields` appends.
pub(crate) fn frame(out: &mut Vec<u8>, kind: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    fields(out);
    let length = u32::try_from(out.len() - start - 4).expect("frames are short");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends text behind its length in 16 bits; what does not fit there is cut off.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let cut = text.floor_char_boundary_at(usize::from(u16::MAX));
    let length = u16::try_from(cut.len()).expect("it was cut");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(cut.as_bytes());
}

trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, most: usize) -> &str;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, most: usize) -> &str {
        let mut end = self.len().min(most);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        &self[..end]
    }
}

/// The head of a block of data, in both protocols: length, kind, flow, offset.
pub(crate) const DATA_HEAD: usize = HEAD + 16;

/// The head of a frame with this many bytes of a flow.
pub(crate) fn data_head(kind: u8, flow: u64, offset: u64, bytes: usize) -> [u8; DATA_HEAD] {
    let length = u32::try_from(bytes + DATA_HEAD - 4).expect("blocks are short");
    let mut head = [0; DATA_HEAD];
    head[..4].copy_from_slice(&length.to_be_bytes());
    head[4] = kind;
    head[5..13].copy_from_slice(&flow.to_be_bytes());
    head[13..].copy_from_slice(&offset.to_be_bytes());
    head
}
