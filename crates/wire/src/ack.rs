//! Acknowledgment of symbols by a receiver to a source (docs/decisions/0023).
//!
//! ```text
//! largest (8) | delay us (4) | ECT(0) (4) | CE (4) | Not-ECT (4) | first undecoded (4) | first run (2) | ranges (1) | owed (1)
//! ranges x [gap (2) | run (2)]   owed x [block (4) | symbols (4)]
//! ```
//! The send time is named, not carried (docs/decisions/0004): `largest` is the packet whose send time the source
//! kept, and `delay` is how long the receiver held it. No clock crosses the network.

use arrayvec::ArrayVec;
use headwater_units::{BlockIndex, Duration, PacketNumber, Symbols};
use serde::{Deserialize, Serialize};

use crate::WireError;

/// An ACK has at most this many ranges behind the first; older gaps have been reported often enough.
pub const MAX_ACK_RANGES: usize = 31;
/// An ACK tells what is owed of at most this many blocks.
pub const MAX_OWED: usize = 8;

const FIXED: usize = 36;

/// A run of acknowledged packets below a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckRange {
    /// Packets missing between this run and the one above; at least 1.
    pub gap: u16,
    /// Packets in this run; at least 1.
    pub run: u16,
}

/// Symbols of one block that the receiver still wants from this source (PPUSH §III-A, footnote 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// The block.
    pub block: BlockIndex,
    /// Symbols still wanted; zero when the block is decoded.
    pub symbols: Symbols,
}

/// An acknowledgment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ack {
    /// The largest packet number received.
    pub largest: PacketNumber,
    /// From the arrival of `largest` to the sending of this ACK, whole microseconds.
    pub delay: Duration,
    /// Length of the run that ends with `largest`; at least 1.
    pub first_run: u16,
    /// Further runs, downwards.
    pub ranges: ArrayVec<AckRange, MAX_ACK_RANGES>,
    /// Packets that arrived with ECT(0) since the flow began; wraps.
    pub ect0: u32,
    /// Packets that arrived with CE since the flow began; wraps.
    pub ce: u32,
    /// Packets that arrived with Not-ECT (or ECT(1)) since the flow began; wraps.
    pub not_ect: u32,
    /// Every block below this one is decoded.
    pub first_undecoded: BlockIndex,
    /// Blocks touched since the last ACK, in ascending order.
    pub owed: ArrayVec<Owed, MAX_OWED>,
}

impl Ack {
    /// The acknowledged packet numbers as inclusive runs `(first, last)`, downwards from `largest`.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut next_last = Some(self.largest.0);
        let lengths = std::iter::once((0, self.first_run)).chain(self.ranges.iter().map(|r| (r.gap, r.run)));
        lengths.map_while(move |(gap, run)| {
            let last = next_last?.checked_sub(u64::from(gap))?;
            let first = last.checked_sub(u64::from(run).checked_sub(1)?)?;
            next_last = first.checked_sub(1);
            Some((first, last))
        })
    }

    pub(crate) fn len(&self) -> usize {
        FIXED + 4 * self.ranges.len() + 8 * self.owed.len()
    }

    pub(crate) fn emit(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.largest.0.to_be_bytes());
        let delay = u32::try_from(self.delay.as_micros()).unwrap_or(u32::MAX);
        for (i, word) in
            [delay, self.ect0, self.ce, self.not_ect, self.first_undecoded.0].into_iter().enumerate()
        {
            out[8 + 4 * i..12 + 4 * i].copy_from_slice(&word.to_be_bytes());
        }
        out[28..30].copy_from_slice(&self.first_run.to_be_bytes());
        out[30] = self.ranges.len() as u8;
        out[31] = self.owed.len() as u8;
        out[32..36].fill(0);
        let mut at = FIXED;
        for range in &self.ranges {
            out[at..at + 2].copy_from_slice(&range.gap.to_be_bytes());
            out[at + 2..at + 4].copy_from_slice(&range.run.to_be_bytes());
            at += 4;
        }
        for owed in &self.owed {
            out[at..at + 4].copy_from_slice(&owed.block.0.to_be_bytes());
            let symbols = u32::try_from(owed.symbols.get()).unwrap_or(u32::MAX);
            out[at + 4..at + 8].copy_from_slice(&symbols.to_be_bytes());
            at += 8;
        }
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let fixed: &[u8; FIXED] =
            body.first_chunk().ok_or(WireError::Short { have: body.len(), need: FIXED })?;
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let (range_count, owed_count) = (usize::from(fixed[30]), usize::from(fixed[31]));
        if range_count > MAX_ACK_RANGES || owed_count > MAX_OWED {
            return Err(WireError::TooMany {
                what: "ACK ranges or owed blocks",
                have: range_count.max(owed_count),
            });
        }
        let need = FIXED + 4 * range_count + 8 * owed_count;
        if body.len() != need {
            return Err(WireError::Length { have: body.len(), need });
        }
        let (ranges, owed) = body[FIXED..].split_at(4 * range_count);
        let ack = Ack {
            largest: PacketNumber((u64::from(word(0)) << 32) | u64::from(word(4))),
            delay: Duration::from_micros(u64::from(word(8))),
            first_run: u16::from_be_bytes([fixed[28], fixed[29]]),
            ranges: ranges
                .chunks_exact(4)
                .map(|c| AckRange {
                    gap: u16::from_be_bytes([c[0], c[1]]),
                    run: u16::from_be_bytes([c[2], c[3]]),
                })
                .collect(),
            ect0: word(12),
            ce: word(16),
            not_ect: word(20),
            first_undecoded: BlockIndex(word(24)),
            owed: owed
                .chunks_exact(8)
                .map(|c| Owed {
                    block: BlockIndex(u32::from_be_bytes([c[0], c[1], c[2], c[3]])),
                    symbols: Symbols::new(u64::from(u32::from_be_bytes([c[4], c[5], c[6], c[7]]))),
                })
                .collect(),
        };
        let positive = ack.first_run > 0 && ack.ranges.iter().all(|r| r.gap > 0 && r.run > 0);
        if !positive || ack.runs().count() != 1 + range_count || word(32) != 0 {
            return Err(WireError::Field { what: "ACK ranges" });
        }
        Ok(ack)
    }
}
