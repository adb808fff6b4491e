//! The header of a symbol: emit, parse, cut in place.

use headwater_units::{BlockIndex, Bytes, ESI_LIMIT, Esi, PacketNumber, SymbolId};
use serde::{Deserialize, Serialize};

use crate::header::{HEADER, KIND_SYMBOL, VERSION, WireError, expand};
use crate::scheduling::{FLAG_SCHEDULED, SCHEDULING_END};

/// Bytes reserved behind a symbol's payload for the tag of a sealed payload.
pub const SEAL: usize = 16;
/// Bytes of a symbol datagram beside its payload: prelude, header tag, symbol header, seal.
pub const SYMBOL_OVERHEAD: usize = HEADER + SYMBOL_HEADER + SEAL;

/// Bytes of the symbol header, behind the header tag.
pub(crate) const SYMBOL_HEADER: usize = 8;
/// Bytes that the header tag of a symbol covers, with the tag's own place.
pub(crate) const SYMBOL_COVERED: usize = HEADER + SYMBOL_HEADER;

/// IPv4 and UDP headers.
const IP_UDP: u64 = 28;

pub(crate) const FLAG_TRIMMED: u8 = 0b0_0001;
const FLAG_ACK_NOW: u8 = 0b0_0010;
const FLAG_STARVED: u8 = 0b0_0100;
const FLAG_SYN: u8 = 0b0_1000;
const FLAGS_KNOWN: u8 = FLAG_TRIMMED | FLAG_ACK_NOW | FLAG_STARVED | FLAG_SYN;

/// A packet of a symbol of this size as it counts against a rate that a node states, which is of the wire.
pub fn on_the_wire(symbol_size: u16) -> Bytes {
    Bytes::new(u64::from(symbol_size) + SYMBOL_OVERHEAD as u64 + IP_UDP)
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
    /// Of a whole symbol, with nothing but its name.
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
        expand(self.number.0 as u32, largest)
    }

    /// Its bits in the second byte of the prelude.
    #[inline]
    pub(crate) fn flags(&self) -> u8 {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        flag(self.trimmed, FLAG_TRIMMED)
            | flag(self.ack_now, FLAG_ACK_NOW)
            | flag(self.starved, FLAG_STARVED)
            | flag(self.syn, FLAG_SYN)
    }

    /// Writes what stands behind the header tag.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8]) {
        debug_assert!(self.symbol.esi.0 < ESI_LIMIT, "an ESI has 24 bits");
        let symbol = u64::from(self.symbol.block.0) << 32
            | u64::from(self.symbol.esi.0 & (ESI_LIMIT - 1)) << 8
            | u64::from(self.assignment);
        out.copy_from_slice(&symbol.to_be_bytes());
    }

    /// Reads what stands behind the header tag; the rest is of the prelude.
    #[inline]
    pub(crate) fn parse(
        bytes: &[u8; SYMBOL_HEADER],
        flags: u8,
        interval: u8,
        number: u32,
    ) -> Result<Self, WireError> {
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
            trimmed: flags & FLAG_TRIMMED != 0,
        })
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
    let left = if header[1] & FLAG_SCHEDULED == 0 { SYMBOL_COVERED } else { SCHEDULING_END };
    (bytes.len() >= left).then_some(left)
}
