//! Blocks on their way to a consumer that takes them in order: kept in memory until then, within a bound.
//!
//! A block that is kept far ahead of the taker is not reported to the receiving machine ([`BlockSink::is_ahead`]). It counts as one that
//! waits for the disk, and so the machine asks for no others once all that may be open are such: what is here is bounded by the blocks
//! that may be in flight and the lead, however large the object, and however slow the taker.
//!
//! [`BlockSink::is_ahead`]: headwater_driver::BlockSink::is_ahead

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use headwater_store::{BlockHashes, SourceFile, StoreError};
use headwater_units::{BlockIndex, Bytes};

/// Blocks on their way.
pub(crate) struct Spool {
    hashes: BlockHashes,
    range: Range<u64>,
    wanted: Range<u32>,
    /// A block may be so far ahead of the one that is taken next.
    lead: u32,
    own: Option<OwnBlocks>,
    state: Mutex<State>,
}

/// Blocks that a file of this machine has, and that nobody needs to send.
struct OwnBlocks {
    file: SourceFile,
    /// In the order of the wanted blocks.
    has: Vec<bool>,
}

#[derive(Default)]
struct State {
    here: BTreeMap<u32, Vec<u8>>,
    /// Every wanted block below was taken.
    next: u32,
    /// The machine waits for news of blocks that were too far ahead.
    held_back: bool,
}

/// The result of taking a block.
pub(crate) enum Taken {
    /// Its bytes; true if blocks that were held back may be reported now.
    Block(Vec<u8>, bool),
    /// The block has not arrived.
    NotHere,
}

impl Spool {
    /// A spool for the bytes of a range, all of them if there is none. `lead` is what may be here ahead of the taker beside what is in
    /// flight.
    pub(crate) fn new(hashes: BlockHashes, range: Option<Range<u64>>, lead: Bytes) -> Spool {
        let layout = hashes.layout();
        let wanted = match &range {
            Some(range) => layout.covering(Bytes::new(range.start), Bytes::new(range.end)),
            None => 0..layout.block_count(),
        };
        let range = range.unwrap_or(0..hashes.size().get());
        let lead = (lead.get() / layout.block_bytes().get().max(1)).clamp(1, u64::from(u32::MAX)) as u32;
        let state = State { next: wanted.start, ..State::default() };
        Spool { hashes, range, wanted, lead, own: None, state: Mutex::new(state) }
    }

    /// Finds out which blocks a file of this machine has: each is hashed, and once more when it is taken.
    pub(crate) fn find_in(&mut self, file: SourceFile) {
        let mut buffer = Vec::new();
        let has = self.wanted.clone().map(BlockIndex).map(|block| {
            file.read_block(block, &mut buffer).is_ok() && self.hashes.verify_block(block, &buffer)
        });
        let has = has.collect();
        self.own = Some(OwnBlocks { file, has });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn hashes(&self) -> &BlockHashes {
        &self.hashes
    }

    /// The bytes wanted.
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    pub(crate) fn wanted(&self) -> Range<u32> {
        self.wanted.clone()
    }

    fn is_own(&self, block: u32) -> bool {
        let own = self.own.as_ref().zip(block.checked_sub(self.wanted.start));
        own.is_some_and(|(own, at)| own.has.get(at as usize) == Some(&true))
    }

    /// The wanted blocks that need not come any more: here, in a file of this machine, or taken already.
    pub(crate) fn have(&self) -> Vec<BlockIndex> {
        let state = self.state();
        let has = |block: &u32| *block < state.next || state.here.contains_key(block) || self.is_own(*block);
        self.wanted.clone().filter(has).map(BlockIndex).collect()
    }

    /// Number of wanted blocks that need not arrive any more.
    pub(crate) fn count(&self) -> u32 {
        self.have().len() as u32
    }

    /// Verifies a block and keeps it until it is taken.
    pub(crate) fn keep(&self, block: BlockIndex, bytes: &[u8]) -> Result<(), StoreError> {
        if !self.wanted.contains(&block.0) {
            return Err(StoreError::NoSuchBlock { block, wanted: self.wanted.clone() });
        }
        if !self.hashes.verify_block(block, bytes) {
            return Err(StoreError::BlockMismatch { block });
        }
        let mut state = self.state();
        if block.0 >= state.next {
            state.here.entry(block.0).or_insert_with(|| bytes.to_vec());
        }
        Ok(())
    }

    /// Whether a block is too far ahead of the taker; the taker then says when to ask again.
    pub(crate) fn is_ahead(&self, block: BlockIndex) -> bool {
        let mut state = self.state();
        let is_ahead = block.0 >= state.next.saturating_add(self.lead);
        state.held_back |= is_ahead;
        is_ahead
    }

    /// Whether the block is here.
    pub(crate) fn contains(&self, block: BlockIndex) -> bool {
        self.is_own(block.0) || self.state().here.contains_key(&block.0)
    }

    /// Takes the block that is next in the order.
    ///
    /// # Errors
    /// A file of this machine that had the block has it no more.
    pub(crate) fn take(&self, block: BlockIndex) -> Result<Taken, StoreError> {
        let mut state = self.state();
        let bytes = match state.here.remove(&block.0) {
            Some(bytes) => bytes,
            None if self.is_own(block.0) => {
                let own = self.own.as_ref().expect("it was just looked at");
                let mut bytes = Vec::new();
                own.file.read_block(block, &mut bytes)?;
                if !self.hashes.verify_block(block, &bytes) {
                    return Err(StoreError::BlockMismatch { block });
                }
                bytes
            }
            None => return Ok(Taken::NotHere),
        };
        state.next = block.0 + 1;
        let held_back = std::mem::take(&mut state.held_back);
        Ok(Taken::Block(bytes, held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 256 << 10;

    fn object(blocks: usize) -> (Vec<u8>, BlockHashes) {
        let bytes: Vec<u8> = (0..blocks * BLOCK).map(|i| (i >> 16) as u8).collect();
        let hashes = BlockHashes::of_bytes(&bytes);
        (bytes, hashes)
    }

    fn block(bytes: &[u8], index: u32) -> &[u8] {
        &bytes[index as usize * BLOCK..][..BLOCK]
    }

    #[test]
    fn blocks_that_are_too_far_ahead_are_held_back_until_others_were_taken() {
        let (bytes, hashes) = object(6);
        let spool = Spool::new(hashes, None, Bytes::kib(512));
        for index in [1, 2, 0] {
            spool.keep(BlockIndex(index), block(&bytes, index)).unwrap();
        }
        let ahead: Vec<bool> = (0..3).map(|index| spool.is_ahead(BlockIndex(index))).collect();
        assert_eq!(ahead, [false, false, true]);
        let Taken::Block(first, held_back) = spool.take(BlockIndex(0)).unwrap() else { panic!("it is here") };
        assert_eq!((&first[..], held_back), (block(&bytes, 0), true));
        assert!(!spool.is_ahead(BlockIndex(2)));
        let Taken::Block(_, held_back) = spool.take(BlockIndex(1)).unwrap() else { panic!("it is here") };
        assert!(!held_back, "nothing was held back since");
        assert!(matches!(spool.take(BlockIndex(3)).unwrap(), Taken::NotHere));
        // Taken, or here: nobody needs to send them again.
        assert_eq!(spool.have(), [0, 1, 2].map(BlockIndex));
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let (bytes, hashes) = object(2);
        let spool = Spool::new(hashes, None, Bytes::mib(1));
        let wrong = spool.keep(BlockIndex(1), block(&bytes, 0));
        assert!(matches!(wrong, Err(StoreError::BlockMismatch { .. })));
    }

    #[test]
    fn what_a_file_of_this_machine_has_is_taken_from_there_and_its_rot_is_not() {
        let (mut bytes, hashes) = object(3);
        let good = bytes.clone();
        bytes[BLOCK + 5] ^= 1;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        std::fs::write(&path, &bytes).unwrap();
        let mut spool = Spool::new(hashes, None, Bytes::mib(1));
        spool.find_in(SourceFile::open(&path).unwrap());
        assert_eq!(spool.have(), [0, 2].map(BlockIndex));
        assert!(matches!(spool.take(BlockIndex(1)).unwrap(), Taken::NotHere));
        spool.keep(BlockIndex(1), block(&good, 1)).unwrap();
        for index in 0..3 {
            let Taken::Block(taken, _) = spool.take(BlockIndex(index)).unwrap() else { panic!("it is here") };
            assert_eq!(taken, block(&good, index));
        }
    }
}
