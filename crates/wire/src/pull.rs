//! What receivers that ask for every packet say: pulls, and receipts for what came of one packet.
//!
//! ```text
//! pull:     sequence (4) | flags (1)                       bit 0 of the flags: fin; the others are zero
//! receipt:  packet number (8) | sequence (4) | flags (1)   bit 0 of the flags: trimmed; the others are zero
//! ```
//! The sequence counts the packets that the flow was ever asked for; what was pushed at its start does not count. So each
//! message stands for all earlier ones: one that was lost is made good by the next, and an old one says nothing new. It wraps;
//! who reads it compares by RFC 1982.
//!
//! SCDP (§III-B) needs pulls alone; NDP (Handley et al., SIGCOMM 2017) receipts too, its ACKs and NACKs. Both are plain values
//! inside [`crate::Body`], without a box.

use headwater_units::PacketNumber;
use serde::{Deserialize, Serialize};

use crate::WireError;

const FIN: u8 = 1;
const TRIMMED: u8 = 1;

/// A request for packets (SCDP §III-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// Packets asked for since the flow began, this one included; wraps.
    pub sequence: u32,
    /// It asks for the last packet that the receiver needs.
    pub fin: bool,
}

impl Pull {
    pub(crate) const LEN: usize = 5;

    pub(crate) fn emit(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.sequence.to_be_bytes());
        out[4] = if self.fin { FIN } else { 0 };
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let body: &[u8; Self::LEN] =
            body.try_into().map_err(|_| WireError::Length { have: body.len(), need: Self::LEN })?;
        if body[4] & !FIN != 0 {
            return Err(WireError::Field { what: "flags of a pull" });
        }
        let sequence = body.first_chunk().expect("5 bytes begin with 4");
        Ok(Pull { sequence: u32::from_be_bytes(*sequence), fin: body[4] == FIN })
    }
}

/// What came of one packet, one per packet that came (NDP's ACK and NACK).
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
