//! The next symbol to send under a list from the receiver (docs/decisions/0025).
//!
//! A list is absolute and is worked off in its order. Symbols sent of a block under an attempt are remembered while the
//! block stays listed under it, so a list that is repeated or extended sends nothing twice; a higher attempt asks for
//! the same symbols anew. What is no longer listed is no longer wanted, and forgotten.
//!
//! A list can name six million blocks in a kilobyte, so it is unfolded lazily: a few open pieces ahead of the sending.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use headwater_units::{BlockIndex, ESI_LIMIT, Esi, Geometry, SymbolId};
use headwater_wire::{MAX_WORK, Work};

use super::esi_set::EsiSet;
use super::pick::{Pick, Upcoming};
use headwater_flow::blocks::BlockTable;

/// Blocks of which something was sent and that are still listed. More would be a gigabyte that was sent and not
/// decoded; the flow waits for the receiver to catch up.
const MAX_OPEN: usize = 4096;
/// Intervals that the memory of one block may take before it is cut to what is listed.
const MAX_FRAGMENTS: usize = 256;

/// The listed rule for one flow.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    geometry: Geometry,
    look_ahead: usize,
    list: Vec<Item>,
    first_undecoded: u32,
    /// Blocks that an ACK said are decoded, under the list in force.
    decoded: BTreeSet<u32>,
    /// Symbols that were sent, by block and attempt.
    sent: BTreeMap<(u32, u8), EsiSet>,
    /// The next pieces with something to send, in order.
    open: VecDeque<Piece>,
    /// Where unfolding goes on: an item, and a block in it.
    item: usize,
    block: u32,
}

/// One checked entry of the list: the same ESIs of consecutive blocks.
#[derive(Clone, Debug, PartialEq)]
struct Item {
    blocks: Range<u32>,
    /// `None`: every source symbol.
    esis: Option<Range<u32>>,
    attempt: u8,
}

#[derive(Clone, Debug)]
struct Piece {
    block: u32,
    attempt: u8,
    esis: Range<u32>,
}

impl Listed {
    pub(super) fn new(geometry: Geometry, look_ahead: usize) -> Self {
        Listed {
            geometry,
            look_ahead,
            list: Vec::new(),
            first_undecoded: 0,
            decoded: BTreeSet::new(),
            sent: BTreeMap::new(),
            open: VecDeque::new(),
            item: 0,
            block: 0,
        }
    }

    /// Takes a new list. Returns how many entries were no work of this object; they are ignored.
    pub(super) fn assign(&mut self, works: &[Work]) -> u64 {
        let end = self.geometry.layout().block_count();
        self.list.clear();
        let mut refused = works.len().saturating_sub(MAX_WORK) as u64;
        for work in works.iter().take(MAX_WORK) {
            let (blocks, esis, attempt) = match *work {
                Work::Blocks { first, count, attempt } => {
                    (first.0..first.0.saturating_add(u32::from(count)).min(end), None, attempt)
                }
                Work::Symbols { block, first, count, attempt } => {
                    let esis = first.0..first.0.saturating_add(u32::from(count)).min(ESI_LIMIT);
                    (block.0..block.0.saturating_add(1).min(end), Some(esis), attempt)
                }
            };
            if blocks.is_empty() || esis.as_ref().is_some_and(Range::is_empty) {
                refused += 1;
            } else {
                self.list.push(Item { blocks, esis, attempt });
            }
        }
        self.decoded.clear();
        let list = &self.list;
        self.sent.retain(|&(block, attempt), set| {
            let named = || list.iter().filter(move |i| i.attempt == attempt && i.blocks.contains(&block));
            if set.fragments() > MAX_FRAGMENTS {
                let geometry = &self.geometry;
                set.intersect(named().map(|i| i.range(geometry, block)));
            }
            named().next().is_some()
        });
        self.open.clear();
        (self.item, self.block) = (0, 0);
        self.unfold();
        refused
    }

    /// Every block below is decoded.
    pub(super) fn decoded_below(&mut self, block: u32) {
        if block > self.first_undecoded {
            self.first_undecoded = block;
            self.sent = self.sent.split_off(&(block, 0));
            self.decoded = self.decoded.split_off(&block);
            self.open.retain(|p| p.block >= block);
            self.unfold();
        }
    }

    /// An ACK that was made under the list in force says that this block is decoded.
    pub(super) fn decoded(&mut self, block: u32) {
        // Symbols of blocks that are neither open nor sent are not worth remembering: so the set is bounded by both.
        let known = self.sent.range((block, 0)..=(block, u8::MAX)).next().is_some();
        if block >= self.first_undecoded && known && self.decoded.insert(block) {
            self.open.retain(|p| p.block != block);
            self.unfold();
        }
    }

    /// The next symbol whose block is ready; `true` beside it if one before it was not.
    pub(super) fn peek(&mut self, blocks: &BlockTable) -> (Option<Pick>, bool) {
        let (mut skipped, mut i) = (false, 0);
        while i < self.open.len() {
            let piece = &self.open[i];
            let Some(esi) = self.first_missing(piece.block, piece.attempt, piece.esis.clone()) else {
                self.open.remove(i);
                self.unfold();
                continue;
            };
            let block = BlockIndex(piece.block);
            let known = blocks.get(block);
            let is_ready = known.is_ready(esi >= self.geometry.source_symbols(block));
            if is_ready || known.has(Esi(esi), piece.attempt) {
                let symbol = SymbolId { block, esi: Esi(esi) };
                return (Some(Pick { symbol, attempt: piece.attempt }), skipped);
            }
            skipped = true;
            i += 1;
        }
        (None, skipped)
    }

    /// The symbol was sent.
    pub(super) fn commit(&mut self, pick: Pick) {
        let key = (pick.symbol.block.0, pick.attempt);
        self.sent.entry(key).or_default().insert(pick.symbol.esi.0);
    }

    /// Whether a symbol that was lost is still asked for.
    pub(super) fn wants(&self, symbol: SymbolId, attempt: u8) -> bool {
        let block = symbol.block.0;
        self.undecoded(block)
            && self.list.iter().any(|i| {
                i.attempt == attempt
                    && i.blocks.contains(&block)
                    && i.range(&self.geometry, block).contains(&symbol.esi.0)
            })
    }

    /// Whether a block has listed symbols that were not sent.
    pub(super) fn has_left(&self, block: u32) -> bool {
        self.undecoded(block)
            && self
                .list
                .iter()
                .filter(|i| i.blocks.contains(&block))
                .any(|i| self.first_missing(block, i.attempt, i.range(&self.geometry, block)).is_some())
    }

    /// The blocks that come next.
    pub(super) fn upcoming(&self) -> impl Iterator<Item = Upcoming> + '_ {
        self.open.iter().map(|p| Upcoming {
            block: BlockIndex(p.block),
            repair: p.esis.end > self.geometry.source_symbols(BlockIndex(p.block)),
            symbols: match self.sent.get(&(p.block, p.attempt)) {
                None => p.esis.end - p.esis.start,
                Some(set) => set.missing(p.esis.clone()),
            },
        })
    }

    fn undecoded(&self, block: u32) -> bool {
        block >= self.first_undecoded && !self.decoded.contains(&block)
    }

    fn first_missing(&self, block: u32, attempt: u8, esis: Range<u32>) -> Option<u32> {
        match self.sent.get(&(block, attempt)) {
            None => (!esis.is_empty()).then_some(esis.start),
            Some(set) => set.first_missing(esis),
        }
    }

    /// Opens pieces until enough are open or the list is at its end.
    fn unfold(&mut self) {
        while self.open.len() < self.look_ahead
            && let Some(item) = self.list.get(self.item)
        {
            let block = self.block.max(item.blocks.start).max(self.first_undecoded);
            if block >= item.blocks.end {
                (self.item, self.block) = (self.item + 1, 0);
                continue;
            }
            let (attempt, esis) = (item.attempt, item.range(&self.geometry, block));
            if !self.decoded.contains(&block) && self.first_missing(block, attempt, esis.clone()).is_some() {
                if self.sent.len() + self.open.len() >= MAX_OPEN && !self.sent.contains_key(&(block, attempt))
                {
                    return;
                }
                self.open.push_back(Piece { block, attempt, esis });
            }
            self.block = block + 1;
        }
    }
}

impl Item {
    fn range(&self, geometry: &Geometry, block: u32) -> Range<u32> {
        self.esis.clone().unwrap_or(0..geometry.source_symbols(BlockIndex(block)))
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, FlowId};

    use super::*;

    const T: u16 = 1024;
    const K: u32 = 256;

    fn geometry(blocks: u64) -> Geometry {
        Geometry::new(Bytes::kib(256) * blocks, T).unwrap()
    }

    fn ready(blocks: Range<u32>, repair: bool) -> BlockTable {
        let mut table = BlockTable::default();
        for b in blocks {
            table.prepare(FlowId(0), BlockIndex(b), repair, &mut Vec::new());
            table.on_ready(BlockIndex(b), repair);
        }
        table
    }

    fn take(listed: &mut Listed, table: &BlockTable, most: usize) -> Vec<(u32, u32)> {
        let mut out = Vec::new();
        while out.len() < most
            && let (Some(pick), _) = listed.peek(table)
        {
            listed.commit(pick);
            out.push((pick.symbol.block.0, pick.symbol.esi.0));
        }
        out
    }

    fn blocks(first: u32, count: u16, attempt: u8) -> Work {
        Work::Blocks { first: BlockIndex(first), count, attempt }
    }

    fn symbols(block: u32, first: u32, count: u16, attempt: u8) -> Work {
        Work::Symbols { block: BlockIndex(block), first: Esi(first), count, attempt }
    }

    #[test]
    fn the_list_is_worked_off_in_its_order() {
        let mut l = Listed::new(geometry(8), 64);
        assert_eq!(l.assign(&[symbols(3, 254, 4, 0), blocks(1, 1, 0)]), 0);
        let sent = take(&mut l, &ready(0..8, true), 1000);
        assert_eq!(&sent[..5], [(3, 254), (3, 255), (3, 256), (3, 257), (1, 0)]);
        assert_eq!(sent.len(), 4 + K as usize);
    }

    #[test]
    fn a_repeated_or_extended_list_sends_nothing_twice_and_a_higher_attempt_does() {
        let (mut l, table) = (Listed::new(geometry(8), 64), ready(0..8, true));
        l.assign(&[blocks(0, 1, 0)]);
        assert_eq!(take(&mut l, &table, 100).len(), 100);
        l.assign(&[blocks(0, 2, 0)]);
        assert_eq!(take(&mut l, &table, 1000).len(), 2 * K as usize - 100);
        l.assign(&[blocks(0, 2, 0)]);
        assert_eq!(take(&mut l, &table, 1000), []);
        l.assign(&[blocks(0, 2, 0), symbols(1, 5, 2, 1)]);
        assert_eq!(take(&mut l, &table, 1000), [(1, 5), (1, 6)]);
    }

    #[test]
    fn a_block_that_is_not_ready_holds_nobody_up() {
        let mut l = Listed::new(geometry(8), 64);
        l.assign(&[blocks(0, 2, 0), symbols(3, K, 1, 0)]);
        let (pick, skipped) = l.peek(&ready(1..2, false));
        assert_eq!((pick.unwrap().symbol.block.0, skipped), (1, true));
        assert_eq!(l.peek(&ready(3..4, false)), (None, true));
        assert_eq!(l.peek(&ready(3..4, true)).0.unwrap().symbol.esi, Esi(K));
        assert_eq!(
            l.upcoming().map(|u| (u.block.0, u.repair)).collect::<Vec<_>>(),
            [(0, false), (1, false), (3, true)]
        );
    }

    #[test]
    fn decoded_blocks_are_dropped() {
        let (mut l, table) = (Listed::new(geometry(8), 64), ready(0..8, true));
        l.assign(&[blocks(0, 8, 0)]);
        take(&mut l, &table, 10);
        l.decoded(0);
        assert_eq!(take(&mut l, &table, 1), [(1, 0)]);
        l.decoded_below(5);
        assert_eq!(take(&mut l, &table, 1), [(5, 0)]);
        assert!(!l.wants(SymbolId { block: BlockIndex(1), esi: Esi(0) }, 0));
        assert!(l.wants(SymbolId { block: BlockIndex(5), esi: Esi(0) }, 0));
        assert!(!l.wants(SymbolId { block: BlockIndex(5), esi: Esi(0) }, 1));
        assert!(l.has_left(5) && !l.has_left(4));
    }

    #[test]
    fn work_that_is_none_is_refused() {
        let mut l = Listed::new(geometry(2), 64);
        let refused = l.assign(&[
            blocks(2, 1, 0),
            blocks(u32::MAX, u16::MAX, 0),
            symbols(0, ESI_LIMIT, 1, 0),
            symbols(u32::MAX, 0, 1, 0),
            symbols(0, ESI_LIMIT - 1, u16::MAX, 0),
        ]);
        assert_eq!(refused, 4);
        assert_eq!(take(&mut l, &ready(0..2, true), 9), [(0, ESI_LIMIT - 1)]);
    }

    #[test]
    fn memory_is_bounded_whatever_is_listed() {
        let mut l = Listed::new(geometry(1 << 15), 64);
        let all: Vec<Work> = (0..200).map(|_| blocks(0, u16::MAX, 0)).collect();
        assert_eq!(l.assign(&all), 104);
        let table = ready(0..1 << 15, false);
        let sent = take(&mut l, &table, 2_000_000);
        assert!(l.open.len() <= 64 && l.sent.len() <= MAX_OPEN);
        assert_eq!(sent.len(), MAX_OPEN * K as usize);
        l.decoded_below(1000);
        assert_eq!(take(&mut l, &table, 1)[0].0, MAX_OPEN as u32);
        // Single symbols far apart, ever new ones of one block.
        let mut l = Listed::new(geometry(2), 64);
        for round in 0..100u32 {
            let works: Vec<Work> = (0..96).map(|i| symbols(0, (round * 96 + i) * 2, 1, 0)).collect();
            l.assign(&works);
            take(&mut l, &ready(0..2, true), 96);
        }
        assert!(l.sent.values().all(|s| s.fragments() <= MAX_FRAGMENTS + 96));
    }
}
