//! Frames between a program and its host's agent, over a Unix stream socket (`docs/agent-protocol.md`, part 1).
//!
//! Parsing is strict: every frame has a bounded length, nothing follows its last field, and what makes no sense is an error.

use headwater_units::Bytes;

use crate::fields::{DATA_HEAD, Fields, FrameError, HEAD, Name, TOKEN, frame, head, put_text};
use crate::refusal::Refusal;

/// The versions of the protocol that this program speaks, lowest and highest.
pub const VERSIONS: (u8, u8) = (1, 1);
/// The first four bytes that a program sends, behind length and kind: a connection that begins otherwise is not a
/// program's.
pub const MAGIC: [u8; 4] = *b"HWag";
/// The longest frame of a program, without its length.
pub const LONGEST_FROM_PROGRAM: u32 = 128 << 10;
/// The longest frame of an agent, without its length.
pub const LONGEST_FROM_AGENT: u32 = 1 << 20;
/// Bytes of the longest path.
pub const LONGEST_PATH: usize = 4095;
/// The most ranges that one frame lists; longer lists come as an index file.
pub const MOST_RANGES: usize = 4096;

const HELLO: u8 = 1;
const REGISTER: u8 = 2;
const UNREGISTER: u8 = 3;
const DROP: u8 = 4;
const FETCH: u8 = 5;
const CREDIT: u8 = 6;
const CANCEL: u8 = 7;
const STATUS: u8 = 8;
const WELCOME: u8 = 65;
const DONE: u8 = 66;
const REFUSED: u8 = 67;
const OPENED: u8 = 68;
/// The kind of a frame with bytes of a flow.
pub const DATA: u8 = 69;
const END: u8 = 70;
const BROKEN: u8 = 71;
const STATE: u8 = 72;

const INDEX_RANGES: u8 = 0;
const INDEX_HADOOP: u8 = 1;
const INDEX_SPARK: u8 = 2;

/// A part of an output that is fetched as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it begins in the file.
    pub offset: Bytes,
    /// How long it is.
    pub length: Bytes,
    /// Whatever the program wants the reader to know before the first byte, such as the length after decompression.
    pub info: u64,
}

/// Where the partitions of an output lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Index {
    /// Here, at most [`MOST_RANGES`].
    Ranges(Vec<Range>),
    /// In an index file as Hadoop writes it beside `file.out`: for each partition its offset, raw length and length, 64 bits each, then
    /// a checksum of 64 bits. `info` is the raw length.
    Hadoop(String),
    /// In an index file as Spark writes it beside the data: the partitions' offsets and the end of the last, 64 bits each.
    Spark(String),
}

/// Frames of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromProgram {
    /// The first frame of a program that is part of an application.
    Hello {
        /// The lowest version that it speaks.
        lowest: u8,
        /// The highest.
        highest: u8,
        /// Which application.
        application: Name,
        /// 16 to 64 bytes that only programs of the application know. The first one of a host defines it there.
        token: Vec<u8>,
    },
    /// An output is ready to be fetched.
    Register {
        /// Number of the request, by which the answer names it.
        request: u32,
        /// The output's name, unique in its application on this host.
        output: Name,
        /// The absolute path of its file.
        path: String,
        /// Where its partitions lie.
        index: Index,
    },
    /// An output is not to be fetched any more.
    Unregister {
        /// Number of the request.
        request: u32,
        /// The output.
        output: Name,
    },
    /// The application ends here: all its outputs are let go of.
    Drop {
        /// Number of the request.
        request: u32,
    },
    /// Partitions `first` to `first + count - 1` of an output, which lie behind each other, are wanted from another host.
    Fetch {
        /// The flow's name, chosen by the program, unique in this connection.
        flow: u64,
        /// The coflow that it belongs to, by a number that means the same on all hosts (of a shuffle, say).
        coflow: u64,
        /// The host that has the output.
        host: Name,
        /// The output.
        output: Name,
        /// The first partition.
        first: u32,
        /// How many, at least 1.
        count: u32,
        /// How many bytes the program has room for already.
        credit: Bytes,
    },
    /// The program has room for more bytes of a flow.
    Credit {
        /// The flow.
        flow: u64,
        /// How many more.
        bytes: Bytes,
    },
    /// A flow is not wanted any more. Bytes that are under way may still come.
    Cancel {
        /// The flow.
        flow: u64,
    },
    /// How is the agent? May be the first frame, and needs no application.
    Status {
        /// Number of the request.
        request: u32,
    },
}

/// Frames of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAgent {
    /// The program is known.
    Welcome {
        /// The version that both speak from now on.
        version: u8,
        /// Bytes of a block: credit counts in units of this, or of what is left of a flow.
        block: Bytes,
    },
    /// A request is done.
    Done {
        /// The request.
        request: u32,
    },
    /// A request is refused. Request 0 is the connection itself, which then ends.
    Refused {
        /// The request.
        request: u32,
        /// The reason.
        refusal: Refusal,
        /// More about it, for people.
        text: String,
    },
    /// A flow's source has it.
    Opened {
        /// The flow.
        flow: u64,
        /// Its length.
        length: Bytes,
        /// [`Range::info`] of its first partition.
        info: u64,
    },
    /// All of a flow was sent.
    End {
        /// The flow.
        flow: u64,
    },
    /// A flow has ended before its end.
    Broken {
        /// The flow.
        flow: u64,
        /// The reason.
        refusal: Refusal,
        /// More about it, for people.
        text: String,
    },
    /// How the agent is, as one JSON object.
    State {
        /// The request.
        request: u32,
        /// The object.
        json: String,
    },
}

/// One frame of the agent, as a program reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// Anything but bytes of a flow.
    Frame(FromAgent),
    /// Bytes of a flow, which come in order.
    Data {
        /// The flow.
        flow: u64,
        /// Where they begin.
        offset: Bytes,
        /// The bytes, at least one.
        bytes: &'a [u8],
    },
}

/// The length of the frame that begins with these bytes, its length field included; `None` if more bytes are needed to tell.
///
/// # Errors
/// [`FrameError`] if it is longer than `most`, or empty.
pub fn length(bytes: &[u8], most: u32) -> Result<Option<usize>, FrameError> {
    let Some(first) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    let (length, _) = head(*first, most)?;
    Ok(Some(length as usize + 4))
}

impl FromProgram {
    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            FromProgram::Hello { lowest, highest, application, token } => frame(out, HELLO, |out| {
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&[*lowest, *highest]);
                put_text(out, application.as_str());
                out.push(token.len() as u8);
                out.extend_from_slice(token);
            }),
            FromProgram::Register { request, output, path, index } => frame(out, REGISTER, |out| {
                out.extend_from_slice(&request.to_be_bytes());
                put_text(out, output.as_str());
                put_text(out, path);
                emit_index(out, index);
            }),
            FromProgram::Unregister { request, output } => frame(out, UNREGISTER, |out| {
                out.extend_from_slice(&request.to_be_bytes());
                put_text(out, output.as_str());
            }),
            FromProgram::Drop { request } => {
                frame(out, DROP, |out| out.extend_from_slice(&request.to_be_bytes()));
            }
            FromProgram::Fetch { flow, coflow, host, output, first, count, credit } => {
                frame(out, FETCH, |out| {
                    out.extend_from_slice(&flow.to_be_bytes());
                    out.extend_from_slice(&coflow.to_be_bytes());
                    put_text(out, host.as_str());
                    put_text(out, output.as_str());
                    out.extend_from_slice(&first.to_be_bytes());
                    out.extend_from_slice(&count.to_be_bytes());
                    out.extend_from_slice(&credit.get().to_be_bytes());
                });
            }
            FromProgram::Credit { flow, bytes } => frame(out, CREDIT, |out| {
                out.extend_from_slice(&flow.to_be_bytes());
                out.extend_from_slice(&bytes.get().to_be_bytes());
            }),
            FromProgram::Cancel { flow } => {
                frame(out, CANCEL, |out| out.extend_from_slice(&flow.to_be_bytes()));
            }
            FromProgram::Status { request } => {
                frame(out, STATUS, |out| out.extend_from_slice(&request.to_be_bytes()));
            }
        }
    }

    /// The frame in these bytes, which are exactly one ([`length`]).
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn parse(bytes: &[u8]) -> Result<FromProgram, FrameError> {
        let (kind, mut fields) = open(bytes, LONGEST_FROM_PROGRAM)?;
        let parsed = match kind {
            HELLO => {
                if fields.array()? != MAGIC {
                    return Err(fields.bad());
                }
                let (lowest, highest) = (fields.u8()?, fields.u8()?);
                let application = fields.name()?;
                let length = usize::from(fields.u8()?);
                if !TOKEN.contains(&length) {
                    return Err(fields.bad());
                }
                FromProgram::Hello { lowest, highest, application, token: fields.take(length)?.to_vec() }
            }
            REGISTER => FromProgram::Register {
                request: fields.u32()?,
                output: fields.name()?,
                path: fields.text(LONGEST_PATH)?,
                index: parse_index(&mut fields)?,
            },
            UNREGISTER => FromProgram::Unregister { request: fields.u32()?, output: fields.name()? },
            DROP => FromProgram::Drop { request: fields.u32()? },
            FETCH => FromProgram::Fetch {
                flow: fields.u64()?,
                coflow: fields.u64()?,
                host: fields.name()?,
                output: fields.name()?,
                first: fields.u32()?,
                count: fields.u32()?,
                credit: Bytes::new(fields.u64()?),
            },
            CREDIT => FromProgram::Credit { flow: fields.u64()?, bytes: Bytes::new(fields.u64()?) },
            CANCEL => FromProgram::Cancel { flow: fields.u64()? },
            STATUS => FromProgram::Status { request: fields.u32()? },
            other => return Err(FrameError::UnknownKind(other)),
        };
        fields.end()?;
        Ok(parsed)
    }
}

impl FromAgent {
    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            FromAgent::Welcome { version, block } => frame(out, WELCOME, |out| {
                out.push(*version);
                out.extend_from_slice(&block.get().to_be_bytes());
            }),
            FromAgent::Done { request } => {
                frame(out, DONE, |out| out.extend_from_slice(&request.to_be_bytes()));
            }
            FromAgent::Refused { request, refusal, text } => frame(out, REFUSED, |out| {
                out.extend_from_slice(&request.to_be_bytes());
                out.extend_from_slice(&refusal.code().to_be_bytes());
                put_text(out, text);
            }),
            FromAgent::Opened { flow, length, info } => frame(out, OPENED, |out| {
                out.extend_from_slice(&flow.to_be_bytes());
                out.extend_from_slice(&length.get().to_be_bytes());
                out.extend_from_slice(&info.to_be_bytes());
            }),
            FromAgent::End { flow } => frame(out, END, |out| out.extend_from_slice(&flow.to_be_bytes())),
            FromAgent::Broken { flow, refusal, text } => frame(out, BROKEN, |out| {
                out.extend_from_slice(&flow.to_be_bytes());
                out.extend_from_slice(&refusal.code().to_be_bytes());
                put_text(out, text);
            }),
            FromAgent::State { request, json } => frame(out, STATE, |out| {
                out.extend_from_slice(&request.to_be_bytes());
                out.extend_from_slice(json.as_bytes());
            }),
        }
    }
}

impl<'a> Heard<'a> {
    /// The frame in these bytes, which are exactly one ([`length`]).
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Heard<'a>, FrameError> {
        let (kind, mut fields) = open(bytes, LONGEST_FROM_AGENT)?;
        if kind == DATA {
            let (flow, offset) = (fields.u64()?, Bytes::new(fields.u64()?));
            let bytes = &bytes[DATA_HEAD..];
            return if bytes.is_empty() {
                Err(FrameError::Short(kind))
            } else {
                Ok(Heard::Data { flow, offset, bytes })
            };
        }
        let parsed = match kind {
            WELCOME => FromAgent::Welcome { version: fields.u8()?, block: Bytes::new(fields.u64()?) },
            DONE => FromAgent::Done { request: fields.u32()? },
            REFUSED => FromAgent::Refused {
                request: fields.u32()?,
                refusal: Refusal::of(fields.u16()?),
                text: fields.text(usize::from(u16::MAX))?,
            },
            OPENED => FromAgent::Opened {
                flow: fields.u64()?,
                length: Bytes::new(fields.u64()?),
                info: fields.u64()?,
            },
            END => FromAgent::End { flow: fields.u64()? },
            BROKEN => FromAgent::Broken {
                flow: fields.u64()?,
                refusal: Refusal::of(fields.u16()?),
                text: fields.text(usize::from(u16::MAX))?,
            },
            STATE => {
                let request = fields.u32()?;
                let json = std::str::from_utf8(&bytes[HEAD + 4..]).map_err(|_| fields.bad())?;
                return Ok(Heard::Frame(FromAgent::State { request, json: json.to_owned() }));
            }
            other => return Err(FrameError::UnknownKind(other)),
        };
        fields.end()?;
        Ok(Heard::Frame(parsed))
    }
}

/// Kind and fields of a whole frame.
pub(crate) fn open(bytes: &[u8], most: u32) -> Result<(u8, Fields<'_>), FrameError> {
    let first = bytes.first_chunk::<HEAD>().ok_or(FrameError::Empty)?;
    let (length, kind) = head(*first, most)?;
    match bytes.len().cmp(&(length as usize + 4)) {
        std::cmp::Ordering::Less => Err(FrameError::Short(kind)),
        std::cmp::Ordering::Greater => Err(FrameError::Trailing(kind)),
        std::cmp::Ordering::Equal => Ok((kind, Fields::new(kind, &bytes[HEAD..]))),
    }
}

fn emit_index(out: &mut Vec<u8>, index: &Index) {
    match index {
        Index::Ranges(ranges) => {
            out.push(INDEX_RANGES);
            out.extend_from_slice(&(ranges.len() as u32).to_be_bytes());
            for range in ranges {
                out.extend_from_slice(&range.offset.get().to_be_bytes());
                out.extend_from_slice(&range.length.get().to_be_bytes());
                out.extend_from_slice(&range.info.to_be_bytes());
            }
        }
        Index::Hadoop(path) => {
            out.push(INDEX_HADOOP);
            put_text(out, path);
        }
        Index::Spark(path) => {
            out.push(INDEX_SPARK);
            put_text(out, path);
        }
    }
}

fn parse_index(fields: &mut Fields<'_>) -> Result<Index, FrameError> {
    match fields.u8()? {
        INDEX_RANGES => {
            let count = fields.u32()? as usize;
            if count > MOST_RANGES {
                return Err(fields.bad());
            }
            let range = |fields: &mut Fields<'_>| {
                let (offset, length) = (Bytes::new(fields.u64()?), Bytes::new(fields.u64()?));
                Ok(Range { offset, length, info: fields.u64()? })
            };
            Ok(Index::Ranges((0..count).map(|_| range(fields)).collect::<Result<_, FrameError>>()?))
        }
        INDEX_HADOOP => Ok(Index::Hadoop(fields.text(LONGEST_PATH)?)),
        INDEX_SPARK => Ok(Index::Spark(fields.text(LONGEST_PATH)?)),
        _ => Err(fields.bad()),
    }
}
