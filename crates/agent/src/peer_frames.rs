//! Frames between two agents, inside TLS (`docs/agent-protocol.md`, part 2). The dialling side is the one that fetches.

use headwater_units::Bytes;

use crate::client_frames::open;
use crate::fields::{FrameError, Name, frame, put_text};
use crate::refusal::Refusal;

/// The protocol's name in TLS (ALPN); what old agents would misread gets another number.
pub const ALPN: &str = "headwater-agent/1";
/// The longest frame of the side that fetches, without its length.
pub const LONGEST_FROM_FETCHER: u32 = 4 << 10;
/// The longest frame of the side that serves, without its length: a block and its head.
pub const LONGEST_FROM_SOURCE: u32 = (1 << 20) + 64;

const OPEN: u8 = 1;
const ASK: u8 = 2;
const CLOSE: u8 = 3;
const OPENED: u8 = 65;
const REFUSED: u8 = 66;
/// The kind of a frame with a block.
pub const DATA: u8 = 67;

/// Frames of the side that fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromFetcher {
    /// These partitions are a flow from now on.
    Open {
        /// The flow, by a number that this side uses once.
        flow: u64,
        /// The application.
        application: Name,
        /// BLAKE3 of its token.
        proof: [u8; 32],
        /// The output.
        output: Name,
        /// The first partition.
        first: u32,
        /// How many.
        count: u32,
    },
    /// This block of a flow is to be sent. A flow goes on in another connection by its offset.
    Ask {
        /// The flow, open in this connection.
        flow: u64,
        /// From here.
        offset: Bytes,
        /// Number of bytes.
        length: u32,
    },
    /// Nothing more is wanted of a flow.
    Close {
        /// The flow.
        flow: u64,
    },
}

/// Frames of the side that serves, but for blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromSource {
    /// A flow is here.
    Opened {
        /// The flow.
        flow: u64,
        /// Its length.
        length: Bytes,
        /// Number that its program passes on.
        info: u64,
        /// Number that tells the file from any other: the same number, the same bytes.
        stamp: u64,
    },
    /// A flow cannot be served, or not to its end.
    Refused {
        /// The flow.
        flow: u64,
        /// The reason.
        refusal: Refusal,
        /// More about it, for people.
        text: String,
    },
}

impl FromFetcher {
    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            FromFetcher::Open { flow, application, proof, output, first, count } => {
                frame(out, OPEN, |out| {
                    out.extend_from_slice(&flow.to_be_bytes());
                    put_text(out, application.as_str());
                    out.extend_from_slice(proof);
                    put_text(out, output.as_str());
                    out.extend_from_slice(&first.to_be_bytes());
                    out.extend_from_slice(&count.to_be_bytes());
                });
            }
            FromFetcher::Ask { flow, offset, length } => frame(out, ASK, |out| {
                out.extend_from_slice(&flow.to_be_bytes());
                out.extend_from_slice(&offset.get().to_be_bytes());
                out.extend_from_slice(&length.to_be_bytes());
            }),
            FromFetcher::Close { flow } => {
                frame(out, CLOSE, |out| out.extend_from_slice(&flow.to_be_bytes()));
            }
        }
    }

    /// The frame in these bytes, which are exactly one.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn parse(bytes: &[u8]) -> Result<FromFetcher, FrameError> {
        let (kind, mut fields) = open(bytes, LONGEST_FROM_FETCHER)?;
        let parsed = match kind {
            OPEN => FromFetcher::Open {
                flow: fields.u64()?,
                application: fields.name()?,
                proof: fields.array()?,
                output: fields.name()?,
                first: fields.u32()?,
                count: fields.u32()?,
            },
            ASK => {
                let (flow, offset) = (fields.u64()?, Bytes::new(fields.u64()?));
                FromFetcher::Ask { flow, offset, length: fields.u32()? }
            }
            CLOSE => FromFetcher::Close { flow: fields.u64()? },
            other => return Err(FrameError::UnknownKind(other)),
        };
        fields.end()?;
        Ok(parsed)
    }
}

impl FromSource {
    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            FromSource::Opened { flow, length, info, stamp } => frame(out, OPENED, |out| {
                out.extend_from_slice(&flow.to_be_bytes());
                out.extend_from_slice(&length.get().to_be_bytes());
                out.extend_from_slice(&info.to_be_bytes());
                out.extend_from_slice(&stamp.to_be_bytes());
            }),
            FromSource::Refused { flow, refusal, text } => frame(out, REFUSED, |out| {
                out.extend_from_slice(&flow.to_be_bytes());
                out.extend_from_slice(&refusal.code().to_be_bytes());
                put_text(out, text);
            }),
        }
    }

    /// The frame in these bytes, which are exactly one and no block.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn parse(bytes: &[u8]) -> Result<FromSource, FrameError> {
        let (kind, mut fields) = open(bytes, LONGEST_FROM_SOURCE)?;
        let parsed = match kind {
            OPENED => FromSource::Opened {
                flow: fields.u64()?,
                length: Bytes::new(fields.u64()?),
                info: fields.u64()?,
                stamp: fields.u64()?,
            },
            REFUSED => FromSource::Refused {
                flow: fields.u64()?,
                refusal: Refusal::of(fields.u16()?),
                text: fields.text(usize::from(u16::MAX))?,
            },
            other => return Err(FrameError::UnknownKind(other)),
        };
        fields.end()?;
        Ok(parsed)
    }
}
