//! Errors in a trace, and what to do about them.

use thiserror::Error;

use super::{MAX_BYTES, MAX_FLOWS};

/// Where a trace is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, {field}: {problem}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// The field, in words.
    pub field: String,
    /// The problem.
    pub problem: Problem,
}

/// Problem of a field, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file holds other bytes than text.
    #[error("not UTF-8 text; unpack the trace first, or convert it")]
    NotText,
    /// The line ends too early.
    #[error("the line ends before it; the file may be truncated, or a count before it is too large")]
    Missing,
    /// The line goes on.
    #[error("'{text}' follows the last field; the count of mappers or reducers before it is too small")]
    Excess {
        /// The text that follows.
        text: String,
    },
    /// No number.
    #[error("'{text}' is not a number; write digits alone (sizes may have a decimal point)")]
    NotANumber {
        /// As it stands.
        text: String,
    },
    /// Below zero.
    #[error("'{text}' is negative; counts, times, ports and sizes begin at 0")]
    Negative {
        /// As it stands.
        text: String,
    },
    /// Too small or too large.
    #[error("{value} is not within {least} and {most}; correct the field, or leave the coflow out")]
    OutOfRange {
        /// As it stands.
        value: String,
        /// The least that it may be.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A port beyond the first line's.
    #[error(
        "port {port} does not exist: the first line gives {ports} ports, numbered from 0; correct either"
    )]
    NoSuchPort {
        /// As it stands.
        port: String,
        /// How many there are.
        ports: u16,
    },
    /// A port sends or receives twice in one coflow.
    #[error("port {port} is listed already; merge the two, adding up their sizes")]
    PortTwice {
        /// The port.
        port: u16,
    },
    /// Two coflows have one id.
    #[error("coflow {id} is on line {first} already; give each coflow its own id")]
    IdTwice {
        /// The id.
        id: u64,
        /// The line that had it first.
        first: usize,
    },
    /// A reducer without a size.
    #[error("'{text}' has no colon; write <port>:<MB>")]
    NoColon {
        /// As it stands.
        text: String,
    },
    /// Sizes overflow.
    #[error(
        "with {text} MB the trace has more than {MAX_BYTES} bytes in all; sizes are in units of 2^20 bytes: scale them down"
    )]
    TooLarge {
        /// As it stands.
        text: String,
    },
    /// More than fit into memory.
    #[error("the trace has {flows} flows up to here, {MAX_FLOWS} at most; split it into several files")]
    TooManyFlows {
        /// Flows so far.
        flows: u64,
    },
    /// The last line has no end.
    #[error("the last line does not end with a newline; the file may be truncated, else add one")]
    NoNewline,
    /// The file ends too early.
    #[error(
        "there are {found} coflows, and the first line says {count}; the file may be truncated, else correct the first line"
    )]
    FewerCoflows {
        /// By the first line.
        count: u64,
        /// In the file.
        found: usize,
    },
    /// The file goes on.
    #[error("the first line says that there are {count} coflows; correct it, or remove what follows them")]
    MoreCoflows {
        /// By the first line.
        count: u64,
    },
}
