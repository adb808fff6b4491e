//! Which blocks the driver holds ready for a flow, and which it may let go (docs/decisions/0027).
//!
//! ```text
//!  unknown --Prepare--> Asked --BlockReady--> Ready --Release--> unknown
//!                                   ^           | repair symbols are wanted too
//!                                   +--Prepare--+
//! ```
//! A block is released when nothing of it is left to send, to resend or in flight.

use headwater_machine::{Output, SortedMap};
use headwater_units::{BlockIndex, Esi, FlowId};

use super::SourceEvent;

/// Blocks of one flow that were asked for or are in use.
#[derive(Clone, Debug, Default)]
pub struct BlockTable {
    blocks: SortedMap<u32, Block>,
}

/// Blocks that the driver has ready, and packets of them that a flow has in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// Asked for: with repair symbols or without.
    asked: Option<bool>,
    /// Ready: with repair symbols or without.
    ready: Option<bool>,
    /// Of a block that is still coming: symbols below this one are here; none once it is known to be whole.
    below: Option<u32>,
    /// Packets of it in flight.
    pub in_flight: u32,
    to_resend: u32,
}

impl Block {
    /// Whether a symbol of the block can be named now.
    pub fn is_ready(&self, repair: bool) -> bool {
        self.ready.is_some_and(|with_repair| with_repair || !repair)
    }

    /// Whether it is a block that is still coming.
    pub fn is_partly_here(&self) -> bool {
        self.below.is_some() && self.ready.is_none()
    }

    /// Whether a symbol has come of a block that is still coming. It has not been verified: who asks again is to have what is.
    pub fn has(&self, esi: Esi, attempt: u8) -> bool {
        attempt == 0 && self.below.is_some_and(|below| esi.0 < below)
    }

    fn in_use(&self) -> bool {
        self.in_flight > 0 || self.to_resend > 0
    }
}

impl BlockTable {
    /// State of a block; the default for a block that nothing was done with.
    pub fn get(&self, block: BlockIndex) -> Block {
        self.blocks.get(&block.0).copied().unwrap_or_default()
    }

    /// Whether packets of the block are in flight or to be resent.
    pub fn is_in_use(&self, block: BlockIndex) -> bool {
        self.blocks.get(&block.0).is_some_and(Block::in_use)
    }

    /// Asks the driver for the block unless that was done.
    pub fn prepare(
        &mut self,
        flow: FlowId,
        block: BlockIndex,
        repair: bool,
        out: &mut impl Extend<Output<SourceEvent>>,
    ) {
        let entry = self.blocks.get_or_default(block.0);
        if entry.asked.is_none_or(|asked| repair && !asked) {
            entry.asked = Some(repair);
            out.extend([Output::Event(SourceEvent::Prepare { flow, block, repair })]);
        }
    }

    /// The driver has it. False if nobody asked (any more).
    pub fn on_ready(&mut self, block: BlockIndex, repair: bool) -> bool {
        match self.blocks.get_mut(&block.0) {
            Some(entry) if entry.asked.is_some() => {
                entry.ready = Some(repair || entry.ready == Some(true));
                true
            }
            _ => false,
        }
    }

    /// A block that was asked for is here up to this symbol.
    pub fn on_partly_here(&mut self, block: BlockIndex, below: Esi) {
        if let Some(entry) = self.blocks.get_mut(&block.0).filter(|entry| entry.asked.is_some()) {
            entry.below = Some(below.0);
        }
    }

    /// A packet of the block leaves.
    pub fn sent(&mut self, block: BlockIndex) {
        self.blocks.get_or_default(block.0).in_flight += 1;
    }
    /// A packet of the block was acknowledged or lost. True if the block is not in use now.
    pub fn landed(&mut self, block: BlockIndex) -> bool {
        self.change(block, |b| b.in_flight = b.in_flight.saturating_sub(1))
    }
    /// A lost symbol of the block shall go out again.
    pub fn resend_wanted(&mut self, block: BlockIndex) {
        self.change(block, |b| b.to_resend += 1);
    }
    /// A resend has happened, or is no longer needed. True if the block is not in use now.
    pub fn resend_settled(&mut self, block: BlockIndex) -> bool {
        self.change(block, |b| b.to_resend = b.to_resend.saturating_sub(1))
    }

    fn change(&mut self, block: BlockIndex, change: impl FnOnce(&mut Block)) -> bool {
        match self.blocks.get_mut(&block.0) {
            Some(entry) => {
                change(entry);
                !entry.in_use()
            }
            None => false,
        }
    }

    /// Lets a block go that is not in use; the caller knows that nothing of it is left to send.
    pub fn release(&mut self, flow: FlowId, block: BlockIndex, out: &mut impl Extend<Output<SourceEvent>>) {
        if self.blocks.get(&block.0).is_some_and(|b| !b.in_use()) {
            let entry = self.blocks.remove(&block.0).expect("looked up above");
            if entry.asked.is_some() {
                out.extend([Output::Event(SourceEvent::Release { flow, block })]);
            }
        }
    }

    /// Lets every block go that is not in use and of which `left` says that nothing is left to send.
    pub fn release_all(
        &mut self,
        flow: FlowId,
        left: impl Fn(BlockIndex) -> bool,
        out: &mut impl Extend<Output<SourceEvent>>,
    ) {
        self.blocks.retain(|&index, entry| {
            let block = BlockIndex(index);
            let keep = entry.in_use() || left(block);
            if !keep && entry.asked.is_some() {
                out.extend([Output::Event(SourceEvent::Release { flow, block })]);
            }
            keep
        });
    }

    /// Number of known blocks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: FlowId = FlowId(1);
    const BLOCK: BlockIndex = BlockIndex(7);

    #[test]
    fn a_block_is_asked_for_once_and_again_when_repair_symbols_are_wanted() {
        let (mut table, mut out) = (BlockTable::default(), Vec::new());
        table.prepare(FLOW, BLOCK, false, &mut out);
        table.prepare(FLOW, BLOCK, false, &mut out);
        assert_eq!(out.len(), 1);
        assert!(table.on_ready(BLOCK, false));
        assert!(table.get(BLOCK).is_ready(false) && !table.get(BLOCK).is_ready(true));
        table.prepare(FLOW, BLOCK, true, &mut out);
        table.prepare(FLOW, BLOCK, false, &mut out);
        assert_eq!(out.len(), 2);
        assert!(table.get(BLOCK).is_ready(false), "source symbols go on meanwhile");
        assert!(table.on_ready(BLOCK, true) && table.get(BLOCK).is_ready(true));
    }

    #[test]
    fn a_block_in_use_is_not_released() {
        let (mut table, mut out) = (BlockTable::default(), Vec::new());
        table.prepare(FLOW, BLOCK, false, &mut out);
        table.on_ready(BLOCK, false);
        table.sent(BLOCK);
        table.release(FLOW, BLOCK, &mut out);
        table.resend_wanted(BLOCK);
        assert!(!table.landed(BLOCK));
        table.release_all(FLOW, |_| false, &mut out);
        assert_eq!((out.len(), table.len()), (1, 1));
        assert!(table.resend_settled(BLOCK));
        table.release(FLOW, BLOCK, &mut out);
        assert_eq!((out.len(), table.len()), (2, 0));
        assert!(!table.on_ready(BLOCK, false), "an answer to a block let go is no news");
    }
}
