//! Datagrams of receivers that ask for every packet: pulls, and receipts for single packets.
//!
//! ```text
//! pull:     sequence (4) | flags (1) | wants (10 each)     bit 0 of the flags: fin, bit 1: detached, bits 2 and 3: how many wants
//! want:     block (4) | start (3) | stride (1) | count (2)
//! receipt:  packet number (8) | sequence (4) | flags (1)   bit 0 of the flags: trimmed; the others are zero
//! ```
//! The sequence counts the packets that the flow was ever asked for; what was pushed at its start does not count. So each
//! message stands for all earlier ones: one that was lost is made good by the next, and an old one says nothing new. It wraps;
//! who reads it compares by RFC 1982.
//!
//! SCDP (§III-B) needs pulls alone. Its receivers choose by their wants of which block a symbol is to be (§III-G); a want is
//! absolute too. NDP (Handley et al., SIGCOMM 2017) has no wants, but receipts, its ACKs and NACKs. All are plain values inside
//! [`crate::Body`], without a box.

use core::num::NonZeroU16;

use headwater_units::{BlockIndex, ESI_LIMIT, PacketNumber};
use serde::{Deserialize, Serialize};

use crate::WireError;

const FIN: u8 = 1;
const DETACHED: u8 = 2;
const WANTS_SHIFT: u32 = 2;
const TRIMMED: u8 = 1;

/// A part of a block that a receiver wants of one flow: a number of symbols in all of the run start, start + stride,
/// start + 2 stride and so on, counted from its beginning, whether they were sent before or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// The block.
    pub block: BlockIndex,
    /// The ESI that the run begins with, below 2^24.
    pub start: u32,
    /// From one ESI of the run to the next, at least 1.
    pub stride: u8,
    /// How many symbols of the run.
    pub count: NonZeroU16,
}

impl Want {
    pub(crate) const LEN: usize = 10;

    /// The last ESI that is wanted; ESIs have 24 bits, and this need not.
    pub fn last(&self) -> u32 {
        self.start + u32::from(self.stride) * u32::from(self.count.get() - 1)
    }

    fn emit(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.block.0.to_be_bytes());
        out[4..8].copy_from_slice(&(self.start << 8 | u32::from(self.stride)).to_be_bytes());
        out[8..10].copy_from_slice(&self.count.get().to_be_bytes());
    }

    fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let count = NonZeroU16::new(u16::from_be_bytes([bytes[8], bytes[9]]));
        let count = count.ok_or(WireError::Field { what: "count of a want" })?;
        let want = Want { block: BlockIndex(word(0)), start: word(4) >> 8, stride: bytes[7], count };
        if want.stride == 0 || want.last() >= ESI_LIMIT {
            return Err(WireError::Field { what: "run of a want" });
        }
        Ok(want)
    }
}

/// A request for packets (SCDP §III-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// Packets asked for since the flow began, this one included; wraps.
    pub sequence: u32,
    /// It asks for the last packet that the receiver needs.
    pub fin: bool,
    /// The receiver no longer belongs to its group: it wants its own packets. They are counted from zero again.
    pub detached: bool,
    /// Of which blocks: the oldest one of which the flow still owes something, and a newer one. A second want needs a first.
    pub wants: [Option<Want>; 2],
}

impl Pull {
    /// One that asks for a packet, whichever comes next.
    pub fn any(sequence: u32) -> Self {
        Pull { sequence, fin: false, detached: false, wants: [None; 2] }
    }

    pub(crate) fn len(&self) -> usize {
        5 + Want::LEN * self.wants.iter().flatten().count()
    }

    pub(crate) fn emit(&self, out: &mut [u8]) {
        let wants = self.wants.iter().flatten();
        out[..4].copy_from_slice(&self.sequence.to_be_bytes());
        let count = (wants.clone().count() as u8) << WANTS_SHIFT;
        out[4] = if self.fin { FIN } else { 0 } | if self.detached { DETACHED } else { 0 } | count;
        wants.zip(out[5..].chunks_exact_mut(Want::LEN)).for_each(|(want, out)| want.emit(out));
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let (head, rest): (&[u8; 5], _) =
            body.split_first_chunk().ok_or(WireError::Short { have: body.len(), need: 5 })?;
        let flags = head[4];
        let count = usize::from(flags >> WANTS_SHIFT);
        if count > 2 {
            return Err(WireError::Field { what: "flags of a pull" });
        }
        let need = 5 + Want::LEN * count;
        if body.len() != need {
            return Err(WireError::Length { have: body.len(), need });
        }
        let mut wants = [None; 2];
        for (want, bytes) in wants.iter_mut().zip(rest.chunks_exact(Want::LEN)) {
            *want = Some(Want::parse(bytes)?);
        }
        let sequence = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        Ok(Pull { sequence, fin: flags & FIN != 0, detached: flags & DETACHED != 0, wants })
    }
}

/// Receipt for one packet that came (NDP's ACK and NACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The packet.
    pub number: PacketNumber,
    /// As [`Pull::sequence`]: a receipt is also a pull where one is due.
    pub sequence: u32,
    /// Only its header came.
    pub trimmed: bool,
}

impl Receipt {
    pub(crate) const LEN: usize = 13;

    pub(crate) fn emit(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.number.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        out[12] = if self.trimmed { TRIMMED } else { 0 };
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let body: &[u8; Self::LEN] =
            body.try_into().map_err(|_| WireError::Length { have: body.len(), need: Self::LEN })?;
        if body[12] & !TRIMMED != 0 {
            return Err(WireError::Field { what: "flags of a receipt" });
        }
        let number = body.first_chunk().expect("13 bytes begin with 8");
        Ok(Receipt {
            number: PacketNumber(u64::from_be_bytes(*number)),
            sequence: u32::from_be_bytes([body[8], body[9], body[10], body[11]]),
            trimmed: body[12] == TRIMMED,
        })
    }
}
