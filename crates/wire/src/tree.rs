//! Datagrams up and down a tree of Datacast (§V-A): interests, and the announcement of the next block.
//!
//! ```text
//! interest:      0 (1) | block (4) | ESI (3)
//! announcement:  1 (1) | block (4) | 0 (3), or 1 (3) with the next block (4)
//! ```
//! The fourth byte of the prelude counts the nodes that have handed an interest on; the tag does not cover it.
//!
//! An interest names one symbol; the symbol itself is the answer, an ordinary one. The source feeds a tree block after block, and
//! which block follows is known only when its turn comes; so each block has one more name, [`NEXT`], which the receivers ask
//! for when they begin the block. The answer is kept and copied in the tree like any symbol.

use headwater_units::{BlockIndex, ESI_LIMIT, Esi, SymbolId};
use serde::{Deserialize, Serialize};

use crate::header::{KIND_TREE, VERSION, WireError};

/// The ESI by which a receiver asks what follows a block: no symbol has it.
pub const NEXT: Esi = Esi(ESI_LIMIT - 1);

const INTEREST: u8 = 0;
const ANNOUNCEMENT: u8 = 1;

/// A symbol that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interest {
    /// Its name.
    pub name: SymbolId,
    /// The nodes that have handed the interest on. Nobody can vouch for it, as each of them changes it.
    pub hops: u8,
}

impl Interest {
    /// Maximum number of hops of an interest: it ends there if the nodes' orders for a tree form a loop.
    pub const MAX_HOPS: u8 = 255;
}

impl From<SymbolId> for Interest {
    fn from(name: SymbolId) -> Self {
        Interest { name, hops: 0 }
    }
}

/// Which block a tree carries after another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// After this block.
    pub block: BlockIndex,
    /// Comes this one; `None`: it is the tree's last.
    pub next: Option<BlockIndex>,
}

impl Announcement {
    /// The name that an interest asks for it by.
    pub fn name(&self) -> SymbolId {
        SymbolId { block: self.block, esi: NEXT }
    }
}

/// Either of them: they share a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeBody {
    Interest(SymbolId),
    Announcement(Announcement),
}

impl TreeBody {
    pub(crate) fn len(self) -> usize {
        match self {
            TreeBody::Interest(_) | TreeBody::Announcement(Announcement { next: None, .. }) => 8,
            TreeBody::Announcement(_) => 12,
        }
    }

    pub(crate) fn emit(self, out: &mut [u8]) {
        let (kind, block, low) = match self {
            TreeBody::Interest(name) => (INTEREST, name.block, name.esi.0),
            TreeBody::Announcement(it) => (ANNOUNCEMENT, it.block, u32::from(it.next.is_some())),
        };
        out[1..5].copy_from_slice(&block.0.to_be_bytes());
        out[5..8].copy_from_slice(&low.to_be_bytes()[1..]);
        out[0] = kind;
        if let TreeBody::Announcement(Announcement { next: Some(next), .. }) = self {
            out[8..12].copy_from_slice(&next.0.to_be_bytes());
        }
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let head: &[u8; 8] = body.first_chunk().ok_or(WireError::Short { have: body.len(), need: 8 })?;
        let block = BlockIndex(u32::from_be_bytes([head[1], head[2], head[3], head[4]]));
        let low = u32::from_be_bytes([0, head[5], head[6], head[7]]);
        let exactly = |need: usize| match body.len() == need {
            true => Ok(()),
            false => Err(WireError::Length { have: body.len(), need }),
        };
        match (head[0], low) {
            (INTEREST, esi) => {
                exactly(8)?;
                Ok(TreeBody::Interest(SymbolId { block, esi: Esi(esi) }))
            }
            (ANNOUNCEMENT, 0) => {
                exactly(8)?;
                Ok(TreeBody::Announcement(Announcement { block, next: None }))
            }
            (ANNOUNCEMENT, 1) => {
                exactly(12)?;
                let next = u32::from_be_bytes(body[8..12].try_into().expect("4 bytes"));
                Ok(TreeBody::Announcement(Announcement { block, next: Some(BlockIndex(next)) }))
            }
            _ => Err(WireError::Field { what: "kind of a tree's message" }),
        }
    }
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
