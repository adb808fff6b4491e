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
    /// A block is here; it is given back if it is the next one. It was asked for once, so it is here once.
    pub(crate) fn insert(&mut self, offset: Bytes, block: Block) -> Option<Block> {
        if offset.get() == self.next {
            self.next += block.len() as u64;
            return Some(block);
        }
        self.waiting.insert(offset.get(), block);
        None
    }

    /// The next block that waits, if it is here.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::blocks::Pool;

    proptest! {
        /// In whatever order blocks come, they leave in order.
        #[test]
        fn blocks_leave_in_order(lengths in prop::collection::vec(1_usize..100, 1..20), order in any::<prop::sample::Index>()) {
            let pool = Pool::default();
            let mut offset = 0;
            let mut blocks: Vec<(u64, usize)> = Vec::new();
            for length in &lengths {
                blocks.push((offset, *length));
                offset += *length as u64;
            }
            let turn = order.index(blocks.len());
            blocks.rotate_left(turn);
            blocks.reverse();
            let (mut delivery, mut next) = (Delivery::default(), 0);
            let mut leaves = |at: u64, block: &Block| {
                assert_eq!(at, next);
                next += block.len() as u64;
            };
            for (offset, length) in blocks {
                let mut block = pool.take(length);
                block.push(&vec![0; length]);
                if let Some(block) = delivery.insert(Bytes::new(offset), block) {
                    leaves(offset, &block);
                    while let Some((offset, block)) = delivery.pop() {
                        leaves(offset.get(), &block);
                    }
                }
            }
            prop_assert_eq!(delivery.passed(), offset);
        }
    }
}
