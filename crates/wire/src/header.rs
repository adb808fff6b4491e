//! Header of every datagram, its class, and the reasons why bytes are no datagram of ours.

use headwater_units::{FlowId, PacketNumber};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes of the prelude that every datagram begins with.
pub const PRELUDE: usize = 16;
/// Bytes of the header tag behind it.
pub const HEADER_TAG: usize = 8;
/// Where the body begins.
pub const HEADER: usize = PRELUDE + HEADER_TAG;

/// The protocol version, the upper half of the first byte.
pub(crate) const VERSION: u8 = 1;

// Kinds, the lower half of the first byte.
/// Datagrams of a scheduled flow beside its symbols; the scheduling header tells their kind.
pub(crate) const KIND_SCHEDULED: u8 = 0;
pub(crate) const KIND_SYMBOL: u8 = 1;
pub(crate) const KIND_ACK: u8 = 2;
pub(crate) const KIND_ASSIGN: u8 = 3;
pub(crate) const KIND_CHALLENGE: u8 = 4;
pub(crate) const KIND_FIN: u8 = 5;
pub(crate) const KIND_FIN_ACK: u8 = 6;
pub(crate) const KIND_CONTROL: u8 = 7;
pub(crate) const KIND_CUMULATIVE: u8 = 8;
pub(crate) const KIND_ACK_VECTOR: u8 = 9;
pub(crate) const KIND_PROBE: u8 = 10;
pub(crate) const KIND_PROBE_ACK: u8 = 11;
pub(crate) const KIND_PULL: u8 = 12;
pub(crate) const KIND_RECEIPT: u8 = 13;
/// Notices of a source about itself; the length tells their kind.
pub(crate) const KIND_NOTICE: u8 = 14;
pub(crate) const KIND_TREE: u8 = 15;

/// Queue class of a datagram; the driver maps it to a DSCP.
///
/// The five classes of symbols are the levels of a multi-level feedback queue where there is one ([`Class::LEVELS`]); the
/// numbers, which travel in three bits, are older than the levels and are not their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Acknowledgments, assignments, pulls, headers of trimmed symbols, control: small and first.
    Control = 0,
    /// Symbols.
    #[default]
    Bulk = 1,
    /// Symbols that yield to everything else.
    Gentle = 2,
    /// Symbols of flows that have sent least.
    First = 3,
    /// Symbols of flows that have sent a little more.
    Second = 4,
    /// Symbols of flows that have still sent less than most.
    Third = 5,
}

impl Class {
    /// Every class, by its number.
    pub const ALL: [Class; 6] =
        [Class::Control, Class::Bulk, Class::Gentle, Class::First, Class::Second, Class::Third];
    /// The classes of symbols, who goes first standing first: a flow begins at one and drops a level with each demotion
    /// threshold that it passes (SCDP §III-C and §III-D: five levels).
    pub const LEVELS: [Class; 5] = [Class::First, Class::Second, Class::Third, Class::Bulk, Class::Gentle];

    #[inline]
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }
}

/// The ECN field of the IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ecn {
    /// 00: a router drops rather than marks.
    #[default]
    NotEct = 0,
    /// 01.
    Ect1 = 1,
    /// 10: may be marked; what symbols leave with.
    Ect0 = 2,
    /// 11: marked on the path.
    Ce = 3,
}

impl Ecn {
    /// The low two bits of a TOS or traffic-class byte.
    pub const fn from_tos(tos: u8) -> Self {
        match tos & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// Why bytes are not a datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the smallest message of its kind.
    #[error("{have} bytes where at least {need} are needed")]
    Short {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Another length than the counts inside say.
    #[error("{have} bytes where {need} were announced")]
    Length {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// A protocol version that we do not speak.
    #[error("protocol version {0}, expected {VERSION}")]
    Version(u8),
    /// A kind that we do not know.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// More entries than a message may have.
    #[error("{have} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        have: usize,
    },
    /// A field holds a value that it may not hold.
    #[error("bad {what}")]
    Field {
        /// Which one.
        what: &'static str,
    },
    /// The header tag does not match: not made by the other end of this flow.
    #[error("header tag does not match")]
    Tag,
}

/// The flow that a datagram claims to belong to, before anything is believed; `None` if it cannot be ours.
pub fn peek_flow(bytes: &[u8]) -> Option<FlowId> {
    let header: &[u8; HEADER] = bytes.first_chunk()?;
    (header[0] >> 4 == VERSION)
        .then(|| FlowId(u64::from_be_bytes(header[4..12].try_into().expect("8 bytes"))))
}

/// The whole packet number, given the low 32 bits and the largest one known so far (as RFC 9000 §A.3, with 32 bits).
pub(crate) fn expand(low: u32, largest: Option<PacketNumber>) -> PacketNumber {
    let expected = largest.map_or(0, |n| n.0 + 1);
    let candidate = (expected & !0xffff_ffff) | u64::from(low);
    PacketNumber(if candidate + (1 << 31) <= expected {
        candidate + (1 << 32)
    } else if candidate > expected + (1 << 31) && candidate >= 1 << 32 {
        candidate - (1 << 32)
    } else {
        candidate
    })
}
