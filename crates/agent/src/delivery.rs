//! Blocks of a flow, which lanes bring in any order, to a program, which gets them in order.

use std::collections::BTreeMap;

use headwater_units::Bytes;

use crate::blocks::Block;

/// One flow's blocks.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// Everything below was passed on.
    next: u64,
    waiting: BTreeMap<u64, Block>,
}

impl Delivery {
    /// A block is here. Bytes that came before are left out.
    pub(crate) fn insert(&mut self, offset: Bytes, block: Block) {
        if offset.get() >= self.next && !block.is_empty() {
            self.waiting.entry(offset.get()).or_insert(block);
        }
    }

    /// The next block in order, if it is here.
    pub(crate) fn pop(&mut self) -> Option<(Bytes, Block)> {
        let entry = self.waiting.first_entry()?;
        if *entry.key() != self.next {
            return None;
        }
        let (offset, block) = entry.remove_entry();
        self.next += block.len() as u64;
        Some((Bytes::new(offset), block))
    }

    /// Bytes that were passed on.
    pub(crate) fn passed(&self) -> u64 {
        self.next
    }
}
