//! The two compact acknowledgments of the comparison schemes: TCP's cumulative one, and DCCP's vector.
//!
//! ```text
//! cumulative:  next expected (8) | flags (1) [| from (4) | to (4)]
//!              bit 0 of the flags: echo; bit 1: a block follows; the others are zero
//! vector:      largest (8) | received (4) | marked (4)         bit 31 is `largest`, bit 0 is `largest` - 31
//! ```
//! Both are plain values inside [`crate::Body`], without a box: a simulation makes one for every packet. They know nothing of
//! blocks, delays or sums of marks; the product's own sources read [`crate::Ack`].

use headwater_units::PacketNumber;
use serde::{Deserialize, Serialize};

use crate::WireError;

const ECHO: u8 = 1;
const BLOCK: u8 = 2;

/// A cumulative acknowledgment, one per packet that came (RFC 9293 §3.4, RFC 5681 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cumulative {
    /// Every packet below this one is here (SEG.ACK, counted in packets).
    pub next: PacketNumber,
    /// The packet that caused this ACK carried CE (ECE; RFC 8257 §3.2 with an ACK per packet, so the echo is exact).
    pub echo: bool,
    /// The run of packets above `next` in which the packet is that caused this ACK, if it is not below: the first block of RFC 2018.
    /// Further ones, which repeat what earlier ACKs have said, do not travel.
    pub block: Option<AheadBlock>,
}

/// Packets `next + from` up to but not `next + to` are here, and neither of their neighbours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AheadBlock {
    /// At least 1: `next` itself is not here.
    pub from: u32,
    /// More than `from`.
    pub to: u32,
}

impl Cumulative {
    const LEN: usize = 9;
    const LEN_WITH_BLOCK: usize = 17;

    pub(crate) fn len(&self) -> usize {
        if self.block.is_some() { Self::LEN_WITH_BLOCK } else { Self::LEN }
    }

    pub(crate) fn emit(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.next.0.to_be_bytes());
        out[8] = if self.echo { ECHO } else { 0 };
        if let Some(AheadBlock { from, to }) = self.block {
            out[8] |= BLOCK;
            out[9..13].copy_from_slice(&from.to_be_bytes());
            out[13..17].copy_from_slice(&to.to_be_bytes());
        }
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let (&next, rest) =
            body.split_first_chunk().ok_or(WireError::Length { have: body.len(), need: Self::LEN })?;
        let (&flags, block) =
            rest.split_first().ok_or(WireError::Length { have: body.len(), need: Self::LEN })?;
        if flags & !(ECHO | BLOCK) != 0 {
            return Err(WireError::Field { what: "flags of a cumulative ACK" });
        }
        let has_block = flags & BLOCK != 0;
        let need = if has_block { Self::LEN_WITH_BLOCK } else { Self::LEN };
        if body.len() != need {
            return Err(WireError::Length { have: body.len(), need });
        }
        let block = has_block.then(|| {
            let word =
                |at: usize| u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
            AheadBlock { from: word(0), to: word(4) }
        });
        if block.is_some_and(|block| block.from == 0 || block.to <= block.from) {
            return Err(WireError::Field { what: "block of a cumulative ACK" });
        }
        Ok(Cumulative { next: PacketNumber(u64::from_be_bytes(next)), echo: flags & ECHO != 0, block })
    }
}

/// States of the newest 32 packets: the states of an Ack Vector (RFC 4340 §11.4), two bits a packet.
///
/// Bit 31 of both masks stands for `largest`, bit 30 for the packet before it, and so on; bits of packets before the
/// first one are zero. A packet that was received and marked is state 1, received alone state 0, neither state 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckVector {
    /// The largest packet number received.
    pub largest: PacketNumber,
    /// Packets that are here; always includes `largest`.
    pub received: u32,
    /// Those of them that carried CE.
    pub marked: u32,
}

impl AckVector {
    /// How many packets a vector tells of.
    pub const SPAN: u32 = 32;

    pub(crate) const LEN: usize = 16;

    /// The bits that may be set in a vector with this `largest`: a flow has no packets before its first.
    pub const fn possible(largest: PacketNumber) -> u32 {
        if largest.0 >= 31 { u32::MAX } else { u32::MAX << (31 - largest.0) }
    }

    pub(crate) fn emit(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.largest.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.received.to_be_bytes());
        out[12..16].copy_from_slice(&self.marked.to_be_bytes());
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let body: &[u8; Self::LEN] =
            body.try_into().map_err(|_| WireError::Length { have: body.len(), need: Self::LEN })?;
        let word = |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let vector = AckVector {
            largest: PacketNumber((u64::from(word(0)) << 32) | u64::from(word(4))),
            received: word(8),
            marked: word(12),
        };
        let holds_largest = vector.received >> 31 == 1;
        let impossible = vector.received & !Self::possible(vector.largest);
        if !holds_largest || impossible != 0 || vector.marked & !vector.received != 0 {
            return Err(WireError::Field { what: "ACK vector" });
        }
        Ok(vector)
    }
}
