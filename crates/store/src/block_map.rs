//! Which blocks of an object are here: one bit each, set by any thread, never taken back.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headwater_units::BlockIndex;

/// A set of blocks that only grows. Shared by reference between threads.
#[derive(Debug)]
pub struct BlockMap {
    blocks: u32,
    words: Box<[AtomicU64]>,
    count: AtomicU32,
}

impl BlockMap {
    /// None of `blocks` blocks.
    pub fn new(blocks: u32) -> Self {
        let words = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        BlockMap { blocks, words, count: AtomicU32::new(0) }
    }
    /// How many blocks there could be.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }
    /// How many are here.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }
    /// Whether this one is here; false past the end.
    pub fn contains(&self, block: BlockIndex) -> bool {
        block.0 < self.blocks
            && self.words[block.0 as usize / 64].load(Ordering::Acquire) & (1 << (block.0 % 64)) != 0
    }
    /// Adds a block of the map. True if it was not here before; of several threads that add it, one hears true.
    pub(crate) fn insert(&self, block: BlockIndex) -> bool {
        assert!(block.0 < self.blocks, "block {block} of a map of {}", self.blocks);
        let bit = 1 << (block.0 % 64);
        let new = self.words[block.0 as usize / 64].fetch_or(bit, Ordering::AcqRel) & bit == 0;
        if new {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        new
    }
    /// The blocks of `range` that are here, ascending.
    pub fn here(&self, range: Range<u32>) -> impl Iterator<Item = BlockIndex> + '_ {
        self.clip(range).map(BlockIndex).filter(|b| self.contains(*b))
    }
    /// The blocks of `range` that are not here, ascending.
    pub fn missing(&self, range: Range<u32>) -> impl Iterator<Item = BlockIndex> + '_ {
        self.clip(range).map(BlockIndex).filter(|b| !self.contains(*b))
    }
    fn clip(&self, range: Range<u32>) -> Range<u32> {
        range.start..range.end.min(self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_new_to_one_thread_only() {
        let map = BlockMap::new(1000);
        let new: usize = std::thread::scope(|s| {
            let threads: Vec<_> = (0..4)
                .map(|_| s.spawn(|| (0..1000).filter(|b| map.insert(BlockIndex(*b))).count()))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!((new, map.count()), (1000, 1000));
    }

    #[test]
    fn here_and_missing_share_a_range_between_them() {
        let map = BlockMap::new(130);
        assert!([0, 63, 64, 129].into_iter().all(|b| map.insert(BlockIndex(b))));
        assert_eq!(map.here(1..500).map(|b| b.0).collect::<Vec<_>>(), [63, 64, 129]);
        assert_eq!(map.missing(0..130).count(), 126);
        assert!(!map.contains(BlockIndex(130)));
    }
}
