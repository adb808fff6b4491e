//! Supply of a transfer: every source symbol once, in order, and the symbols that receivers miss (PAM §III).
//!
//! ```text
//!   block 0       1       2 | 3 ...             NACK: block 0, ESI 7 and 8      -> these again
//!   all sent ---------------'  fresh ->         NACK: block 1, 3 from ESI K on  -> any 3 that were not sent yet
//! ```
//! A NACK counts what its receiver lacks as of one packet. Symbols that have left after that packet may fill the gap,
//! and so may those that wait to be sent; only the rest is owed. So NACKs may be doubled and late, and of many
//! receivers the one that lost most decides (as of pulled groups).
//!
//! Blocks are asked for ahead of the first symbol, and a few are kept for repairs after the last; an older one is read again.

use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::Output;
use headwater_units::{BlockIndex, ESI_LIMIT, Esi, FlowId, Geometry, SymbolId};
use headwater_wire::Missing;

use crate::SourceEvent;
use headwater_flow::blocks::BlockTable;

/// Blocks that may be repaired at a time. A receiver that is refused asks again.
const MOST_BLOCKS: usize = 1024;
/// Symbols that may be owed at a time, but for the block that reaches it.
const MOST_OWED: u64 = 1 << 16;
/// Most symbols beyond K that a block is owed.
const MOST_EXTRA: u32 = 64;

/// Symbols left to send of an object.
#[derive(Debug)]
pub(super) struct Supply {
    flow: FlowId,
    geometry: Geometry,
    prepare_ahead: u32,
    keep_ready: u32,
    table: BlockTable,
    /// The first symbol that was never sent.
    next: SymbolId,
    /// Source symbols that were never sent.
    fresh: u64,
    repairs: BTreeMap<BlockIndex, Repairs>,
    /// Those of them that have something to send.
    due: BTreeSet<BlockIndex>,
    /// Symbols that these have to send.
    owed: u64,
    /// Runs of missing symbols that made no sense, or found no room.
    refused: u64,
}

/// One block that something is missing of.
#[derive(Debug, Default)]
struct Repairs {
    /// Repair symbols that have left.
    sent: u32,
    /// Repair symbols that are to follow.
    owed: u32,
    /// Source symbols that are to be sent again.
    again: BTreeSet<Esi>,
}

impl Repairs {
    fn is_empty(&self) -> bool {
        self.owed == 0 && self.again.is_empty()
    }
}

impl Supply {
    /// All of an object.
    pub(super) fn new(
        flow: FlowId,
        geometry: Geometry,
        (prepare_ahead, keep_ready): (u32, u32),
        out: &mut impl Extend<Output<SourceEvent>>,
    ) -> Self {
        let mut supply = Supply::of_repairs(flow, geometry, (prepare_ahead, keep_ready));
        supply.next = SymbolId::default();
        supply.fresh = geometry.total_symbols().get();
        supply.look_ahead(out);
        supply
    }

    /// Missing symbols of an object that was sent another way.
    pub(super) fn of_repairs(
        flow: FlowId,
        geometry: Geometry,
        (prepare_ahead, keep_ready): (u32, u32),
    ) -> Self {
        Supply {
            flow,
            geometry,
            prepare_ahead,
            keep_ready,
            table: BlockTable::default(),
            next: SymbolId { block: BlockIndex(geometry.layout().block_count()), esi: Esi(0) },
            fresh: 0,
            repairs: BTreeMap::new(),
            due: BTreeSet::new(),
            owed: 0,
            refused: 0,
        }
    }

    /// Symbols that are left to send.
    pub(super) fn left(&self) -> u64 {
        self.fresh + self.owed
    }

    /// Runs of missing symbols that were ignored.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// The driver has a block.
    pub(super) fn on_ready(&mut self, block: BlockIndex, repair: bool) {
        self.table.on_ready(block, repair);
    }

    /// The symbol that may leave next, if there is one whose block is ready: what is missing first.
    pub(super) fn first(&self) -> Option<SymbolId> {
        self.due.iter().find_map(|block| self.first_repair(*block)).or_else(|| {
            (self.fresh > 0 && self.table.get(self.next.block).is_ready(false)).then_some(self.next)
        })
    }

    fn first_repair(&self, block: BlockIndex) -> Option<SymbolId> {
        let repairs = self.repairs.get(&block)?;
        let again = repairs.again.first().copied();
        let repair = again.is_none();
        let esi = again.unwrap_or(Esi(self.geometry.source_symbols(block) + repairs.sent));
        self.table.get(block).is_ready(repair).then_some(SymbolId { block, esi })
    }

    /// [`Supply::first`] leaves.
    pub(super) fn on_sent(&mut self, symbol: SymbolId, out: &mut impl Extend<Output<SourceEvent>>) {
        let SymbolId { block, esi } = symbol;
        if symbol == self.next && self.fresh > 0 {
            self.fresh -= 1;
            self.next.esi.0 += 1;
            if self.next.esi.0 == self.geometry.source_symbols(block) {
                self.next = SymbolId { block: BlockIndex(block.0 + 1), esi: Esi(0) };
                self.look_ahead(out);
            }
            return;
        }
        let Some(repairs) = self.repairs.get_mut(&block) else { return };
        if !repairs.again.remove(&esi) {
            repairs.owed = repairs.owed.saturating_sub(1);
            repairs.sent += 1;
        }
        self.owed -= 1;
        if repairs.is_empty() {
            self.due.remove(&block);
            self.let_go(out);
        }
    }

    /// Asks for the next blocks, and lets go those that are behind.
    fn look_ahead(&mut self, out: &mut impl Extend<Output<SourceEvent>>) {
        let next = self.next.block.0;
        let end = self.geometry.layout().block_count().min(next.saturating_add(self.prepare_ahead));
        for block in next..end {
            self.table.prepare(self.flow, BlockIndex(block), false, out);
        }
        self.let_go(out);
    }

    fn let_go(&mut self, out: &mut impl Extend<Output<SourceEvent>>) {
        let kept = self.next.block.0.saturating_sub(self.keep_ready);
        let due = &self.due;
        self.table.release_all(self.flow, |block| block.0 >= kept || due.contains(&block), out);
    }

    /// A receiver misses this, as of a packet after which `recent` has left, sorted.
    pub(super) fn on_missing(
        &mut self,
        missing: &Missing,
        recent: &[SymbolId],
        out: &mut impl Extend<Output<SourceEvent>>,
    ) {
        let Missing { block, first, count } = *missing;
        let is_room = self.repairs.len() < MOST_BLOCKS || self.repairs.contains_key(&block);
        let is_absurd = block.0 >= self.geometry.layout().block_count();
        if is_absurd || self.owed >= MOST_OWED || !(is_room || self.make_room()) {
            self.refused += 1;
            return;
        }
        // Symbols that were never sent will be.
        let source_symbols = self.geometry.source_symbols(block);
        let below = match block.cmp(&self.next.block) {
            core::cmp::Ordering::Less => source_symbols,
            core::cmp::Ordering::Equal => self.next.esi.0,
            core::cmp::Ordering::Greater => 0,
        };
        let recent = &recent[recent.partition_point(|it| it.block < block)..];
        let recent = &recent[..recent.partition_point(|it| it.block == block)];
        let repairs = self.repairs.entry(block).or_default();
        let before = u64::from(repairs.owed) + repairs.again.len() as u64;
        let is_coded = first.0 >= source_symbols;
        if is_coded {
            let wanted = u32::from(count.get()).min(source_symbols + MOST_EXTRA);
            let coming = recent.len() + repairs.again.len();
            let coming = u32::try_from(coming).unwrap_or(u32::MAX).saturating_add(source_symbols - below);
            let most = ESI_LIMIT - source_symbols - repairs.sent;
            repairs.owed = repairs.owed.max(wanted.saturating_sub(coming)).min(most);
        } else {
            let run = first.0..below.min(first.0 + u32::from(count.get()));
            let lost = run.map(Esi).filter(|&esi| recent.binary_search(&SymbolId { block, esi }).is_err());
            repairs.again.extend(lost);
        }
        self.owed += u64::from(repairs.owed) + repairs.again.len() as u64 - before;
        if repairs.is_empty() {
            if repairs.sent == 0 {
                self.repairs.remove(&block);
            }
            return;
        }
        let wants_repair = repairs.owed > 0;
        self.due.insert(block);
        self.table.prepare(self.flow, block, wants_repair, out);
    }

    /// Forgets which repair symbols of the first block were sent that is owed none: it is the longest ago.
    fn make_room(&mut self) -> bool {
        let idle = self.repairs.iter().find(|(_, repairs)| repairs.is_empty()).map(|(block, _)| *block);
        idle.is_some_and(|block| self.repairs.remove(&block).is_some())
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU16;

    use headwater_units::Bytes;

    use super::*;

    /// Two blocks of 64 symbols, all ready, of which `sent` symbols have left.
    fn supply(sent: usize) -> (Supply, Vec<Output<SourceEvent>>) {
        let geometry = Geometry::new(Bytes::kib(512), 4096).unwrap();
        let mut out = Vec::new();
        let mut supply = Supply::new(FlowId(1), geometry, (4, 8), &mut out);
        (0..2).for_each(|block| supply.on_ready(BlockIndex(block), true));
        assert_eq!(send(&mut supply, sent).len(), sent);
        (supply, out)
    }

    fn send(supply: &mut Supply, most: usize) -> Vec<(u32, u32)> {
        let mut sent = Vec::new();
        while sent.len() < most
            && let Some(symbol) = supply.first()
        {
            supply.on_sent(symbol, &mut Vec::new());
            sent.push((symbol.block.0, symbol.esi.0));
        }
        sent
    }

    fn miss(supply: &mut Supply, block: u32, first: u32, count: u16, recent: &[(u32, u32)]) {
        let missing =
            Missing { block: BlockIndex(block), first: Esi(first), count: NonZeroU16::new(count).unwrap() };
        let symbol = |&(block, esi): &(u32, u32)| SymbolId { block: BlockIndex(block), esi: Esi(esi) };
        supply.on_missing(&missing, &recent.iter().map(symbol).collect::<Vec<_>>(), &mut Vec::new());
    }

    #[test]
    fn every_symbol_leaves_once_in_order() {
        let (mut supply, _) = supply(0);
        let all: Vec<_> = (0..2).flat_map(|block| (0..64).map(move |esi| (block, esi))).collect();
        assert_eq!((supply.left(), send(&mut supply, 1000), supply.left()), (128, all, 0));
    }

    #[test]
    fn the_receiver_that_lost_most_decides_how_many_repair_symbols_follow() {
        let (mut supply, _) = supply(100);
        miss(&mut supply, 0, 64, 3, &[]);
        miss(&mut supply, 0, 64, 5, &[]);
        miss(&mut supply, 0, 64, 2, &[]);
        assert_eq!(supply.left(), 28 + 5);
        assert_eq!(send(&mut supply, 5), (64..69).map(|esi| (0, esi)).collect::<Vec<_>>());
        // Symbols sent since make up for it; those lost of them are counted from the next packet on.
        miss(&mut supply, 0, 64, 5, &[(0, 64), (0, 65), (0, 66), (0, 67), (0, 68)]);
        assert_eq!(supply.left(), 28);
        miss(&mut supply, 0, 64, 2, &[(0, 68)]);
        assert_eq!(send(&mut supply, 1), [(0, 69)]);
    }

    #[test]
    fn of_a_block_that_is_being_sent_only_what_was_lost_is_made_good() {
        let (mut supply, _) = supply(74);
        miss(&mut supply, 1, 64, 56, &[]);
        assert_eq!(supply.left(), 54 + 2);
        miss(&mut supply, 1, 0, 64, &[(1, 8), (1, 9)]);
        assert_eq!(
            send(&mut supply, 8),
            (0..8).map(|esi| (1, esi)).collect::<Vec<_>>(),
            "again, and no others"
        );
        assert_eq!(send(&mut supply, 3), [(1, 64), (1, 65), (1, 10)]);
    }

    #[test]
    fn lost_symbols_are_sent_again_once_for_all_who_miss_them() {
        let (mut supply, _) = supply(128);
        miss(&mut supply, 0, 3, 2, &[]);
        miss(&mut supply, 0, 4, 2, &[(0, 5)]);
        assert_eq!(send(&mut supply, 9), [(0, 3), (0, 4)]);
    }

    #[test]
    fn absurd_runs_change_nothing_and_owe_little() {
        let (mut supply, _) = supply(128);
        miss(&mut supply, 2, 0, 1, &[]);
        miss(&mut supply, u32::MAX, 64, 1, &[]);
        assert_eq!((supply.left(), supply.refused()), (0, 2));
        miss(&mut supply, 0, 64, u16::MAX, &[]);
        miss(&mut supply, 1, 0, u16::MAX, &[]);
        assert_eq!(supply.left(), 64 + 64 + 64);
        miss(&mut supply, 1, ESI_LIMIT - 1, 1, &[]);
        assert_eq!(supply.left(), 64 + 64 + 64, "what comes anyway will do");
    }

    #[test]
    fn blocks_are_read_ahead_and_let_go_behind() {
        let geometry = Geometry::new(Bytes::kib(256) * 20, 4096).unwrap();
        let mut out = Vec::new();
        let mut supply = Supply::new(FlowId(1), geometry, (4, 2), &mut out);
        for block in 0..10 {
            supply.on_ready(BlockIndex(block), false);
            for _ in 0..64 {
                let symbol = supply.first().expect("it is ready");
                supply.on_sent(symbol, &mut out);
            }
        }
        let blocks = |released: bool| {
            let of = |output: &Output<SourceEvent>| match output {
                Output::Event(SourceEvent::Prepare { block, .. }) if !released => Some(block.0),
                Output::Event(SourceEvent::Release { block, .. }) if released => Some(block.0),
                _ => None,
            };
            out.iter().filter_map(of).collect::<Vec<_>>()
        };
        assert_eq!(blocks(false), (0..14).collect::<Vec<_>>());
        assert_eq!(blocks(true), (0..8).collect::<Vec<_>>());
        assert_eq!(supply.first(), None, "block 10 is not here yet");
    }
}
