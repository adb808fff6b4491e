//! The prelude, the symbol header, and datagrams as a whole.

use headwater_units::{BlockIndex, Bytes, ESI_LIMIT, Esi, FlowId, MAX_SYMBOL_SIZE, PacketNumber, SymbolId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::tree::{Interest, TreeBody};
use crate::{
    Ack, AckVector, Announcement, Assign, Control, Cumulative, HeaderKey, Probe, ProbeAck, Pull, Receipt,
};

/// Bytes of the prelude that every datagram begins with.
pub const PRELUDE: usize = 16;
/// Bytes of the header tag behind it.
pub const HEADER_TAG: usize = 8;
/// Where the body begins.
pub const HEADER: usize = PRELUDE + HEADER_TAG;
/// Bytes reserved behind a symbol's payload for the tag of a sealed payload.
pub const SEAL: usize = 16;
/// What a symbol costs beside its payload: prelude, header tag, symbol header, seal.
pub const SYMBOL_OVERHEAD: usize = HEADER + SYMBOL_HEADER + SEAL;

/// IPv4 and UDP headers.
const IP_UDP: u64 = 28;

/// A packet of a symbol of this size as it counts against a rate that a node states, which is of the wire.
pub fn on_the_wire(symbol_size: u16) -> Bytes {
    Bytes::new(u64::from(symbol_size) + SYMBOL_OVERHEAD as u64 + IP_UDP)
}

const SYMBOL_HEADER: usize = 8;
/// What the header tag of a symbol covers, with the tag's own place.
pub(crate) const SYMBOL_COVERED: usize = HEADER + SYMBOL_HEADER;
const VERSION: u8 = 1;
pub(crate) const FLAG_TRIMMED: u8 = 0b0_0001;
const FLAG_ACK_NOW: u8 = 0b0_0010;
const FLAG_STARVED: u8 = 0b0_0100;
const FLAG_SYN: u8 = 0b0_1000;
const FLAGS_KNOWN: u8 = FLAG_TRIMMED | FLAG_ACK_NOW | FLAG_STARVED | FLAG_SYN;

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

    const fn from_number(number: u8) -> Option<Self> {
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

/// The header of one symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolHeader {
    /// Position in the flow. 32 bits travel; the receiver restores the rest ([`SymbolHeader::expand`]).
    pub number: PacketNumber,
    /// Which symbol follows.
    pub symbol: SymbolId,
    /// The source asks for an ACK after this many symbols; at least 1.
    pub ack_interval: u8,
    /// The source asks for an ACK at once.
    pub ack_now: bool,
    /// Low 8 bits of the assignment version that the source works by; of a flow that is pulled, of the newest pull that it has heard.
    pub assignment: u8,
    /// The source could send faster, but its disk, its encoder or its own rate limit holds it back; of a flow that is pulled: this is
    /// the last of all that it was asked for.
    pub starved: bool,
    /// Nobody asked for it: it belongs to the window that opens a flow whose receiver pulls (SCDP §III-B).
    pub syn: bool,
    /// A switch cut the payload off.
    pub trimmed: bool,
}

impl SymbolHeader {
    /// Of a whole symbol, of which nothing more is to be said than which it is.
    pub fn new(number: PacketNumber, symbol: SymbolId) -> Self {
        SymbolHeader {
            number,
            symbol,
            ack_interval: 1,
            ack_now: false,
            assignment: 0,
            starved: false,
            syn: false,
            trimmed: false,
        }
    }

    /// The whole packet number, given the largest one seen so far (as RFC 9000 §A.3, with 32 bits).
    pub fn expand(&self, largest: Option<PacketNumber>) -> PacketNumber {
        let expected = largest.map_or(0, |n| n.0 + 1);
        let low = self.number.0 & 0xffff_ffff;
        let candidate = (expected & !0xffff_ffff) | low;
        PacketNumber(if candidate + (1 << 31) <= expected {
            candidate + (1 << 32)
        } else if candidate > expected + (1 << 31) && candidate >= 1 << 32 {
            candidate - (1 << 32)
        } else {
            candidate
        })
    }
}

/// Why a flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinReason {
    /// The receiver has the object.
    Done = 0,
    /// The receiver gave up.
    Cancelled = 1,
    /// The receiver no longer trusts this source.
    Distrusted = 2,
}

/// What a datagram is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// A symbol; its payload follows the header.
    Symbol(SymbolHeader),
    /// Receiver to source: what came.
    Ack(Box<Ack>),
    /// Receiver to source: what to send. Opens the flow.
    Assign(Box<Assign>),
    /// Source to receiver: send this nonce back from where you are. A receiver that pulls sends back the same body.
    Challenge {
        /// Any number but zero.
        nonce: u64,
    },
    /// Receiver to source: the flow is over. Source to a receiver that pulls: nothing comes of it any more; that is not answered.
    Fin(FinReason),
    /// Source to receiver: understood.
    FinAck,
    /// A control message that travels as a datagram (simulation; on real hosts they ride QUIC streams).
    Control(Box<Control>),
    /// Receiver to source, of a flow that runs TCP: what came, without a gap.
    Cumulative(Cumulative),
    /// Receiver to source, of a flow that runs DCCP: which of the newest packets came.
    AckVector(AckVector),
    /// Source to receiver: does a datagram of this length arrive?
    Probe(Probe),
    /// Receiver to source: it did.
    ProbeAck(ProbeAck),
    /// Receiver to source, of a flow whose receiver pulls: send more.
    Pull(Pull),
    /// Receiver to source, of a flow whose receiver pulls: what came of one packet.
    Receipt(Receipt),
    /// Source to a receiver that pulls as one of a group: it has held the group up, and gets nothing by it any more; its pulls
    /// are answered to it alone from now on.
    Detached,
    /// Receiver towards source, up a tree: a symbol is wanted (Datacast §V-A).
    Interest(Interest),
    /// Source to receivers, down a tree: which block comes after another one.
    Announcement(Announcement),
}

impl Body {
    /// Whether it is the header of a symbol whose payload a switch has cut off.
    pub fn is_trimmed(&self) -> bool {
        matches!(self, Body::Symbol(header) if header.trimmed)
    }
}

/// A datagram's meaning, without payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Datagram {
    /// Queue class.
    pub class: Class,
    /// Generation of the flow key.
    pub key_epoch: u8,
    /// The flow.
    pub flow: FlowId,
    /// The rest.
    pub body: Body,
}

/// A datagram and the part of the input that is its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed<'a> {
    /// The meaning.
    pub datagram: Datagram,
    /// A symbol's T bytes; empty for everything else and for a trimmed symbol.
    pub payload: &'a [u8],
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

/// Reads a datagram and checks that the holder of `key` made it.
///
/// # Errors
/// [`WireError`]; the bytes are hostile until this returns `Ok`.
pub fn parse<'a>(bytes: &'a [u8], key: &HeaderKey) -> Result<Parsed<'a>, WireError> {
    read(bytes, Some(key))
}

/// Reads what may be said on a tree, as a device on the path must, which holds no key: nothing of it is proven. `None` for all that
/// is neither a symbol nor [`Body::Interest`] nor [`Body::Announcement`].
pub fn peek_tree(bytes: &[u8]) -> Option<Datagram> {
    matches!(bytes.first()? & 15, KIND_SYMBOL | KIND_TREE)
        .then(|| read(bytes, None).ok())?
        .map(|it| it.datagram)
}

/// Checks the tag if there is a key.
fn read<'a>(bytes: &'a [u8], key: Option<&HeaderKey>) -> Result<Parsed<'a>, WireError> {
    let header: &[u8; HEADER] =
        bytes.first_chunk().ok_or(WireError::Short { have: bytes.len(), need: HEADER })?;
    if header[0] >> 4 != VERSION {
        return Err(WireError::Version(header[0] >> 4));
    }
    let kind = header[0] & 15;
    let class = Class::from_number(header[1] >> 5).ok_or(WireError::Field { what: "class" })?;
    let flags = header[1] & 0x1f;
    let flow = FlowId(u64::from_be_bytes(header[4..12].try_into().expect("8 bytes")));
    let number = u32::from_be_bytes(header[12..16].try_into().expect("4 bytes"));
    let covered = if kind == KIND_SYMBOL { SYMBOL_COVERED.min(bytes.len()) } else { bytes.len() };
    if key.is_some_and(|key| !key.matches(bytes, covered)) {
        return Err(WireError::Tag);
    }
    let detail = if kind == KIND_TREE { 0 } else { header[3] };
    if kind != KIND_SYMBOL && (flags, detail, number) != (0, 0, 0) {
        return Err(WireError::Field { what: "reserved bits" });
    }
    let rest = &bytes[HEADER..];
    let exactly = |need: usize| match rest.len() == need {
        true => Ok(()),
        false => Err(WireError::Length { have: rest.len(), need }),
    };
    let mut payload = &[][..];
    let body = match kind {
        KIND_SYMBOL => {
            let trimmed = flags & FLAG_TRIMMED != 0;
            let (symbol, after) =
                rest.split_first_chunk().ok_or(WireError::Short { have: rest.len(), need: SYMBOL_HEADER })?;
            if !trimmed {
                let size = after
                    .len()
                    .checked_sub(SEAL)
                    .ok_or(WireError::Short { have: after.len(), need: SEAL })?;
                if size == 0 || size > usize::from(MAX_SYMBOL_SIZE) {
                    return Err(WireError::Field { what: "symbol size" });
                }
                payload = &after[..size];
            }
            Body::Symbol(parse_symbol(symbol, flags, header[3], number, trimmed)?)
        }
        KIND_ACK => Body::Ack(Box::new(Ack::parse(rest)?)),
        KIND_ASSIGN => Body::Assign(Box::new(Assign::parse(rest)?)),
        KIND_CHALLENGE => {
            exactly(8)?;
            match u64::from_be_bytes(rest.try_into().expect("8 bytes")) {
                0 => return Err(WireError::Field { what: "nonce" }),
                nonce => Body::Challenge { nonce },
            }
        }
        KIND_FIN => {
            exactly(1)?;
            Body::Fin(match rest[0] {
                0 => FinReason::Done,
                1 => FinReason::Cancelled,
                2 => FinReason::Distrusted,
                _ => return Err(WireError::Field { what: "reason" }),
            })
        }
        KIND_FIN_ACK => {
            exactly(0)?;
            Body::FinAck
        }
        KIND_CONTROL => Body::Control(Box::new(
            Control::parse(rest).map_err(|_| WireError::Field { what: "control message" })?,
        )),
        KIND_CUMULATIVE => Body::Cumulative(Cumulative::parse(rest)?),
        KIND_ACK_VECTOR => Body::AckVector(AckVector::parse(rest)?),
        KIND_PROBE => Body::Probe(Probe::parse(rest)?),
        KIND_PROBE_ACK => Body::ProbeAck(ProbeAck::parse(rest)?),
        KIND_PULL => Body::Pull(Pull::parse(rest)?),
        KIND_RECEIPT => Body::Receipt(Receipt::parse(rest)?),
        KIND_DETACHED => {
            exactly(0)?;
            Body::Detached
        }
        KIND_TREE => match TreeBody::parse(rest)? {
            TreeBody::Interest(name) => Body::Interest(Interest { name, hops: header[3] }),
            TreeBody::Announcement(announcement) if header[3] == 0 => Body::Announcement(announcement),
            TreeBody::Announcement(_) => return Err(WireError::Field { what: "reserved bits" }),
        },
        other => return Err(WireError::Kind(other)),
    };
    Ok(Parsed { datagram: Datagram { class, key_epoch: header[2], flow, body }, payload })
}

/// Reads what a switch has left of a symbol: the header, whatever else is still there or is not.
///
/// That it was trimmed is for the caller to know, by the packet's code point ([`CodePoints`](crate::CodePoints)): a switch
/// knows nothing of our flags, and anybody on the path could set them, since the tag does not cover the one in question.
///
/// # Errors
/// [`WireError`]: too short for a symbol's header, no symbol, or as [`parse`].
pub fn parse_trimmed(bytes: &[u8], key: &HeaderKey) -> Result<Datagram, WireError> {
    let mut header: [u8; SYMBOL_COVERED] =
        *bytes.first_chunk().ok_or(WireError::Short { have: bytes.len(), need: SYMBOL_COVERED })?;
    if header[0] & 15 != KIND_SYMBOL {
        return Err(WireError::Kind(header[0] & 15));
    }
    header[1] |= FLAG_TRIMMED;
    parse(&header, key).map(|parsed| parsed.datagram)
}

fn parse_symbol(
    bytes: &[u8; SYMBOL_HEADER],
    flags: u8,
    interval: u8,
    number: u32,
    trimmed: bool,
) -> Result<SymbolHeader, WireError> {
    if flags & !FLAGS_KNOWN != 0 {
        return Err(WireError::Field { what: "flags" });
    }
    if interval == 0 {
        return Err(WireError::Field { what: "ACK interval" });
    }
    let block = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let esi = u32::from_be_bytes([0, bytes[4], bytes[5], bytes[6]]);
    Ok(SymbolHeader {
        number: PacketNumber(u64::from(number)),
        symbol: SymbolId { block: BlockIndex(block), esi: Esi(esi) },
        ack_interval: interval,
        ack_now: flags & FLAG_ACK_NOW != 0,
        starved: flags & FLAG_STARVED != 0,
        syn: flags & FLAG_SYN != 0,
        assignment: bytes[7],
        trimmed,
    })
}

const KIND_SYMBOL: u8 = 1;
const KIND_ACK: u8 = 2;
const KIND_ASSIGN: u8 = 3;
const KIND_CHALLENGE: u8 = 4;
const KIND_FIN: u8 = 5;
const KIND_FIN_ACK: u8 = 6;
const KIND_CONTROL: u8 = 7;
const KIND_CUMULATIVE: u8 = 8;
const KIND_ACK_VECTOR: u8 = 9;
const KIND_PROBE: u8 = 10;
const KIND_PROBE_ACK: u8 = 11;
const KIND_PULL: u8 = 12;
const KIND_RECEIPT: u8 = 13;
const KIND_DETACHED: u8 = 14;
pub(crate) const KIND_TREE: u8 = 15;

impl Datagram {
    /// Bytes on the wire, above UDP; `symbol_size` counts only for an untrimmed symbol.
    pub fn len(&self, symbol_size: u16) -> usize {
        HEADER
            + match &self.body {
                Body::Symbol(s) if s.trimmed => SYMBOL_HEADER,
                Body::Symbol(_) => SYMBOL_HEADER + usize::from(symbol_size) + SEAL,
                Body::Ack(ack) => ack.len(),
                Body::Assign(assign) => assign.len(),
                Body::Challenge { .. } => 8,
                Body::Fin(_) => 1,
                Body::FinAck | Body::Detached => 0,
                Body::Control(control) => control.encoded_len(),
                Body::Cumulative(_) => Cumulative::LEN,
                Body::AckVector(_) => AckVector::LEN,
                Body::Probe(probe) => probe.len(),
                Body::ProbeAck(_) => ProbeAck::LEN,
                Body::Pull(pull) => pull.len(),
                Body::Receipt(_) => Receipt::LEN,
                Body::Interest(interest) => TreeBody::Interest(interest.name).len(),
                &Body::Announcement(announcement) => TreeBody::Announcement(announcement).len(),
            }
    }
}

/// Writes a datagram into `out`, which must be exactly [`Datagram::len`] bytes long, and returns the room for the
/// symbol's payload (empty for everything else). The tag does not cover the payload, so fill it before or after.
///
/// # Panics
/// If `out` has another length: the caller asked for it a line above.
pub fn emit<'a>(datagram: &Datagram, symbol_size: u16, key: &HeaderKey, out: &'a mut [u8]) -> &'a mut [u8] {
    assert_eq!(out.len(), datagram.len(symbol_size), "a datagram is emitted into a buffer of its own length");
    let (mut flags, mut detail, mut number) = (0, 0, 0);
    let mut covered = out.len();
    let kind = match &datagram.body {
        Body::Symbol(s) => {
            if s.trimmed {
                flags |= FLAG_TRIMMED;
            }
            if s.ack_now {
                flags |= FLAG_ACK_NOW;
            }
            if s.starved {
                flags |= FLAG_STARVED;
            }
            if s.syn {
                flags |= FLAG_SYN;
            }
            (detail, number) = (s.ack_interval.max(1), s.number.0 as u32);
            debug_assert!(s.symbol.esi.0 < ESI_LIMIT, "an ESI has 24 bits");
            covered = SYMBOL_COVERED;
            let symbol = u64::from(s.symbol.block.0) << 32
                | u64::from(s.symbol.esi.0 & (ESI_LIMIT - 1)) << 8
                | u64::from(s.assignment);
            out[HEADER..HEADER + SYMBOL_HEADER].copy_from_slice(&symbol.to_be_bytes());
            KIND_SYMBOL
        }
        Body::Ack(ack) => {
            ack.emit(&mut out[HEADER..]);
            KIND_ACK
        }
        Body::Assign(assign) => {
            assign.emit(&mut out[HEADER..]);
            KIND_ASSIGN
        }
        Body::Challenge { nonce } => {
            out[HEADER..].copy_from_slice(&nonce.to_be_bytes());
            KIND_CHALLENGE
        }
        Body::Fin(reason) => {
            out[HEADER] = *reason as u8;
            KIND_FIN
        }
        Body::FinAck => KIND_FIN_ACK,
        Body::Control(control) => {
            control.emit_into(&mut out[HEADER..]);
            KIND_CONTROL
        }
        Body::Cumulative(ack) => {
            ack.emit(&mut out[HEADER..]);
            KIND_CUMULATIVE
        }
        Body::AckVector(vector) => {
            vector.emit(&mut out[HEADER..]);
            KIND_ACK_VECTOR
        }
        Body::Probe(probe) => {
            probe.emit(&mut out[HEADER..]);
            KIND_PROBE
        }
        Body::ProbeAck(ack) => {
            ack.emit(&mut out[HEADER..]);
            KIND_PROBE_ACK
        }
        Body::Pull(pull) => {
            pull.emit(&mut out[HEADER..]);
            KIND_PULL
        }
        Body::Receipt(receipt) => {
            receipt.emit(&mut out[HEADER..]);
            KIND_RECEIPT
        }
        Body::Detached => KIND_DETACHED,
        Body::Interest(interest) => {
            detail = interest.hops;
            TreeBody::Interest(interest.name).emit(&mut out[HEADER..]);
            KIND_TREE
        }
        &Body::Announcement(announcement) => {
            TreeBody::Announcement(announcement).emit(&mut out[HEADER..]);
            KIND_TREE
        }
    };
    let first = [(VERSION << 4) | kind, ((datagram.class as u8) << 5) | flags, datagram.key_epoch, detail];
    let prelude =
        u128::from(u32::from_be_bytes(first)) << 96 | u128::from(datagram.flow.0) << 32 | u128::from(number);
    out[..PRELUDE].copy_from_slice(&prelude.to_be_bytes());
    key.write(out, covered);
    match datagram.body {
        Body::Symbol(SymbolHeader { trimmed: false, .. }) => {
            let end = out.len() - SEAL;
            out[end..].fill(0);
            &mut out[covered..end]
        }
        _ => &mut [],
    }
}

/// Cuts a symbol's payload off in place, as a switch does, and returns how many bytes are left.
///
/// `None` if the bytes are not an untrimmed symbol. The header tag stays valid: it does not cover the flag.
pub fn mark_trimmed(bytes: &mut [u8]) -> Option<usize> {
    let header: &mut [u8; HEADER] = bytes.first_chunk_mut()?;
    if header[0] != (VERSION << 4) | KIND_SYMBOL || header[1] & FLAG_TRIMMED != 0 {
        return None;
    }
    header[1] |= FLAG_TRIMMED;
    (bytes.len() >= HEADER + SYMBOL_HEADER).then_some(HEADER + SYMBOL_HEADER)
}

/// Counts one hop more of an interest in place, as a node does that hands it on; false if the bytes are no interest, or one that has
/// made [`Interest::MAX_HOPS`]. The header tag stays valid: it does not cover the count.
pub fn count_hop(bytes: &mut [u8]) -> bool {
    match bytes {
        [first, _, _, hops, ..] if *first == (VERSION << 4) | KIND_TREE && *hops < Interest::MAX_HOPS => {
            *hops += 1;
            true
        }
        _ => false,
    }
}
