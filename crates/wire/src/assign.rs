//! Assignment: the list of symbols that a receiver asks of a source (docs/decisions/0025): absolute, versioned,
//! repeated until echoed.
//!
//! The first `Assign` also opens the flow: it is the first datagram from the receiver to the source, so that address
//! translators and firewalls on the path let the answer in, and it carries back the source's nonce once there is one.
//!
//! ```text
//! version (4) | rule (1) | index (1) | of (1) | works (1) | receive window (4) | nonce (8) | first undecoded (4)
//! works x [form (1) | attempt (1) | count (2) | block (4) | first ESI (4)]
//! ```

use headwater_units::{BlockIndex, ESI_LIMIT, Esi};
use serde::{Deserialize, Serialize};

use crate::WireError;

/// An assignment has at most this many entries; it fits a 1280-byte path.
pub const MAX_WORK: usize = 96;

const FIXED: usize = 24;
const ENTRY: usize = 12;

/// One piece of work, in the order in which it should be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Every source symbol of `count` blocks from `first` on.
    Blocks {
        /// First block.
        first: BlockIndex,
        /// How many blocks; at least 1.
        count: u16,
        /// Which try this is: a higher one asks for symbols that were sent before under a lower one.
        attempt: u8,
    },
    /// `count` symbols of one block from ESI `first` on, source or repair.
    Symbols {
        /// The block.
        block: BlockIndex,
        /// First ESI.
        first: Esi,
        /// How many symbols; at least 1.
        count: u16,
        /// Which try this is.
        attempt: u8,
    },
}

/// Which symbols a source sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Assignment {
    /// Every block in order, ESI = index + k * of (PPUSH §III-A).
    Residue {
        /// i, this source's place.
        index: u8,
        /// M, the number of places; at least 1.
        of: u8,
    },
    /// Of every block in order the source symbols ESI = index + k * of, which no other source sends.
    Equal {
        /// i, this source's place.
        index: u8,
        /// M, the number of places; at least 1.
        of: u8,
    },
    /// The receiver's list, at most [`MAX_WORK`] entries; symbols that were sent before and are not listed any more are
    /// no longer wanted.
    Listed(Vec<Work>),
}

/// An assignment message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assign {
    /// Strictly increasing per flow; a source ignores what is not newer.
    pub version: u32,
    /// The source's nonce, sent back; proves that the receiver is where its datagrams come from.
    pub nonce: Option<u64>,
    /// Packets that the receiver's socket buffer holds for this flow: never more may be in flight.
    pub receive_window: u32,
    /// Every block below this one is decoded.
    pub first_undecoded: BlockIndex,
    /// The work.
    pub assignment: Assignment,
    /// The datagram is as long as [`OPENING`], with zeros at its end: a source that does not know yet whether the receiver is where its
    /// datagrams come from sends no more than three times what has come from there.
    pub padded: bool,
}

/// Bits of the byte that has the rule.
const NONCE: u8 = 0x80;
const PADDED: u8 = 0x40;
/// Bytes of a datagram that opens a flow, above UDP (as RFC 9000 §14.1).
pub const OPENING: usize = 1200;
/// Bytes that such a datagram has for an assignment.
const OPENING_BODY: usize = OPENING - crate::HEADER;

impl Assign {
    pub(crate) fn len(&self) -> usize {
        let work = match &self.assignment {
            Assignment::Residue { .. } | Assignment::Equal { .. } => 0,
            Assignment::Listed(work) => ENTRY * work.len(),
        };
        let least = if self.padded { OPENING_BODY } else { 0 };
        (FIXED + work).max(least)
    }

    pub(crate) fn emit(&self, out: &mut [u8]) {
        let (rule, index, of, works) = match &self.assignment {
            Assignment::Residue { index, of } => (0, *index, *of, &[][..]),
            Assignment::Listed(work) => (1, 0, 0, work.as_slice()),
            Assignment::Equal { index, of } => (2, *index, *of, &[][..]),
        };
        out[..4].copy_from_slice(&self.version.to_be_bytes());
        out[4] = rule | if self.nonce.is_some() { NONCE } else { 0 } | if self.padded { PADDED } else { 0 };
        out[5] = index;
        out[6] = of;
        out[7] = works.len() as u8;
        out[8..12].copy_from_slice(&self.receive_window.to_be_bytes());
        out[12..20].copy_from_slice(&self.nonce.unwrap_or(0).to_be_bytes());
        out[20..24].copy_from_slice(&self.first_undecoded.0.to_be_bytes());
        let (entries, padding) = out[FIXED..].split_at_mut(ENTRY * works.len());
        padding.fill(0);
        for (work, out) in works.iter().zip(entries.chunks_exact_mut(ENTRY)) {
            let (form, attempt, count, block, esi) = match *work {
                Work::Blocks { first, count, attempt } => (0, attempt, count, first, Esi(0)),
                Work::Symbols { block, first, count, attempt } => (1, attempt, count, block, first),
            };
            out[0] = form;
            out[1] = attempt;
            out[2..4].copy_from_slice(&count.to_be_bytes());
            out[4..8].copy_from_slice(&block.0.to_be_bytes());
            out[8..12].copy_from_slice(&esi.0.to_be_bytes());
        }
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let fixed: &[u8; FIXED] =
            body.first_chunk().ok_or(WireError::Short { have: body.len(), need: FIXED })?;
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let count = usize::from(fixed[7]);
        if count > MAX_WORK {
            return Err(WireError::TooMany { what: "pieces of work", have: count });
        }
        let padded = fixed[4] & PADDED != 0;
        let work = FIXED + ENTRY * count;
        let need = work.max(if padded { OPENING_BODY } else { 0 });
        if body.len() != need {
            return Err(WireError::Length { have: body.len(), need });
        }
        if body[work..].iter().any(|byte| *byte != 0) {
            return Err(WireError::Field { what: "padding" });
        }
        let nonce = (u64::from(word(12)) << 32) | u64::from(word(16));
        let nonce = match fixed[4] & NONCE != 0 {
            true => Some(nonce),
            false if nonce == 0 => None,
            false => return Err(WireError::Field { what: "nonce" }),
        };
        let assignment = match fixed[4] & !(NONCE | PADDED) {
            0 if count == 0 && fixed[5] < fixed[6] => Assignment::Residue { index: fixed[5], of: fixed[6] },
            2 if count == 0 && fixed[5] < fixed[6] => Assignment::Equal { index: fixed[5], of: fixed[6] },
            1 if fixed[5] == 0 && fixed[6] == 0 => Assignment::Listed(
                body[FIXED..work].chunks_exact(ENTRY).map(parse_work).collect::<Result<_, _>>()?,
            ),
            _ => return Err(WireError::Field { what: "assignment rule" }),
        };
        Ok(Assign {
            version: word(0),
            nonce,
            receive_window: word(8),
            first_undecoded: BlockIndex(word(20)),
            assignment,
            padded,
        })
    }
}

fn parse_work(entry: &[u8]) -> Result<Work, WireError> {
    let (attempt, count) = (entry[1], u16::from_be_bytes([entry[2], entry[3]]));
    let block = BlockIndex(u32::from_be_bytes([entry[4], entry[5], entry[6], entry[7]]));
    let esi = u32::from_be_bytes([entry[8], entry[9], entry[10], entry[11]]);
    match entry[0] {
        0 if count > 0 && esi == 0 && block.0.checked_add(u32::from(count)).is_some() => {
            Ok(Work::Blocks { first: block, count, attempt })
        }
        1 if count > 0 && esi < ESI_LIMIT && esi + u32::from(count) <= ESI_LIMIT => {
            Ok(Work::Symbols { block, first: Esi(esi), count, attempt })
        }
        _ => Err(WireError::Field { what: "piece of work" }),
    }
}
