//! Blocks of a flow, which lanes bring in any order, to a program, which gets them in order.

use std::collections::BTreeMap;
use std::ops::Deref;

use headwater_units::Bytes;

/// One flow's blocks.
#[derive(Debug)]
pub(crate) struct Delivery<B> {
    /// Everything below was passed on.
    next: u64,
    waiting: BTreeMap<u64, B>,
}

impl<B> Default for Delivery<B> {
    fn default() -> Self {
        Delivery { next: 0, waiting: BTreeMap::new() }
    }
}

impl<B: Deref<Target = [u8]>> Delivery<B> {
    /// A block is here; it is given back if it is the next one. It was asked for once, so it is here once.
    pub(crate) fn insert(&mut self, offset: Bytes, block: B) -> Option<B> {
        if offset.get() == self.next {
            self.next += block.len() as u64;
            return Some(block);
        }
        self.waiting.insert(offset.get(), block);
        None
    }

    /// The next block that waits, if it is here.
    pub(crate) fn pop(&mut self) -> Option<(Bytes, B)> {
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

    proptest! {
        /// In whatever order blocks come, they leave in order.
        #[test]
        fn blocks_leave_in_order(lengths in prop::collection::vec(1_usize..100, 1..20), order in any::<prop::sample::Index>()) {
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
            let mut leaves = |at: u64, block: &Vec<u8>| {
                assert_eq!(at, next);
                next += block.len() as u64;
            };
            for (offset, length) in blocks {
                if let Some(block) = delivery.insert(Bytes::new(offset), vec![0; length]) {
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
