//! Which symbols are here, which are asked for, and which nobody was asked for yet.
//!
//! ```text
//!   untouched --open--> asked for (a share of a flow) --arrives--> here --enough--> decoding --verified--> done
//!                            |        ^
//!                flow dies   v        | another flow takes it
//!                           the pool -+
//! ```

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::{Bits, SortedMap};
use headwater_units::{BlockIndex, ESI_LIMIT, Esi, FlowId, Geometry, NodeId, SymbolId, Time};
use headwater_wire::SpreadRule;

use super::flow::Flow;
use crate::task::blame::{Blame, Trial};

/// A part of a block that one flow was asked for: the ESIs `range`, of which `missing` have not come.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) flow: FlowId,
    pub(super) range: Range<u32>,
    missing: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Filling,
    Decoding,
}

/// A block in reception.
#[derive(Debug)]
pub(super) struct Block {
    source_symbols: u32,
    /// Symbols beyond K that decoding turned out to need.
    overhead: u32,
    present: Bits,
    /// Ascending.
    repair: Vec<u32>,
    phase: Phase,
    pub(super) shares: Vec<Share>,
    /// Who sent what is here.
    trial: Trial,
    /// Which try this is; tells a source that it must send again what it sent before.
    pub(super) attempt: u8,
    next_repair: u32,
    /// When repair symbols were last asked for to help along.
    pub(super) helped_at: Option<Time>,
    /// Source symbols here of each class of the equal rule; empty under the others.
    here_by_class: Vec<u32>,
}

/// What became of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Not wanted: here already, decoded, or never asked for.
    Useless,
    /// Kept; the block is not complete yet.
    Kept,
    /// Kept, and enough to try decoding.
    Complete,
}

/// All blocks of the task.
#[derive(Debug)]
pub(super) struct Blocks {
    geometry: Geometry,
    wanted: Range<u32>,
    done: Bits,
    undone: u32,
    first_undecoded: u32,
    fresh: u32,
    open: SortedMap<u32, Block>,
    pool: BTreeMap<u32, Vec<Range<u32>>>,
    fresh_symbols: u64,
    pooled: u64,
    needed: u64,
}

impl Blocks {
    /// Every wanted block but those in `have` is to be had.
    pub(super) fn new(geometry: Geometry, wanted: Range<u32>, have: &[BlockIndex]) -> Self {
        let end = wanted.end.min(geometry.layout().block_count());
        let wanted = wanted.start.min(end)..end;
        let mut blocks = Blocks {
            geometry,
            done: Bits::new(end - wanted.start),
            undone: end - wanted.start,
            first_undecoded: wanted.start,
            fresh: wanted.start,
            open: SortedMap::default(),
            pool: BTreeMap::new(),
            fresh_symbols: 0,
            pooled: 0,
            needed: 0,
            wanted,
        };
        for block in have {
            if blocks.wanted.contains(&block.0) && blocks.done.set(block.0 - blocks.wanted.start) {
                blocks.undone -= 1;
            }
        }
        blocks.fresh_symbols =
            blocks.wanted.clone().filter(|&b| !blocks.is_done(b)).map(|b| u64::from(blocks.k(b))).sum();
        blocks.needed = blocks.fresh_symbols;
        blocks.skip_done();
        blocks
    }

    fn k(&self, block: u32) -> u32 {
        self.geometry.source_symbols(BlockIndex(block))
    }

    fn is_done(&self, block: u32) -> bool {
        self.done.get(block - self.wanted.start)
    }

    fn skip_done(&mut self) {
        while self.first_undecoded < self.wanted.end && self.is_done(self.first_undecoded) {
            self.first_undecoded += 1;
        }
        while self.fresh < self.wanted.end && self.is_done(self.fresh) {
            self.fresh += 1;
        }
    }

    /// Whether every wanted block is done.
    pub(super) fn all_done(&self) -> bool {
        self.undone == 0
    }
    /// Blocks still to be had.
    pub(super) fn undone(&self) -> u32 {
        self.undone
    }
    /// Blocks wanted in all.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted.end - self.wanted.start
    }
    /// Every wanted block below is done.
    pub(super) fn first_undecoded(&self) -> BlockIndex {
        BlockIndex(self.first_undecoded)
    }
    /// Symbols still needed, of all blocks.
    pub(super) fn needed(&self) -> u64 {
        self.needed
    }
    /// Symbols that nobody was asked for.
    pub(super) fn unassigned(&self) -> u64 {
        self.pooled + self.fresh_symbols
    }
    /// Blocks of which something is here but that are not done.
    pub(super) fn in_reception(&self) -> usize {
        self.open.values().filter(|b| b.phase == Phase::Decoding || b.distinct() > 0).count()
    }
    /// Blocks that were asked for and are not done.
    pub(super) fn opened(&self) -> usize {
        self.open.len()
    }
    /// Blocks that wait for the decoder, the hash or the disk.
    pub(super) fn decoding(&self) -> usize {
        self.open.values().filter(|b| b.phase == Phase::Decoding).count()
    }
    /// A block in reception.
    pub(super) fn get(&self, block: BlockIndex) -> Option<&Block> {
        self.open.get(&block.0)
    }
    /// The blocks in reception, ascending.
    pub(super) fn open(&self) -> impl Iterator<Item = (BlockIndex, &Block)> {
        self.open.iter().map(|(&b, block)| (BlockIndex(b), block))
    }

    /// Opens blocks for the residue rule, where sources choose: everything from the first undecoded on.
    pub(super) fn open_through(&mut self, block: BlockIndex, most: usize) -> bool {
        while self.fresh <= block.0 && self.fresh < self.wanted.end && self.open.len() < most {
            self.open_fresh();
        }
        self.open.contains_key(&block.0)
    }

    fn open_fresh(&mut self) -> u32 {
        let block = self.fresh;
        let k = self.k(block);
        self.open.insert(block, Block::new(k));
        self.fresh_symbols -= u64::from(k);
        self.fresh += 1;
        self.skip_done();
        block
    }

    /// Takes in a symbol from one of `of` places. `settle` hears of every flow that owes one symbol (or more) less now.
    pub(super) fn arrive(
        &mut self,
        flow: FlowId,
        node: NodeId,
        symbol: SymbolId,
        rule: SpreadRule,
        of: u8,
        mut settle: impl FnMut(FlowId, u32),
    ) -> Arrival {
        let Some(block) = self.open.get_mut(&symbol.block.0) else { return Arrival::Useless };
        let esi = symbol.esi.0;
        let refused = block.phase == Phase::Decoding
            || !block.trial.admits(flow)
            || esi >= if rule == SpreadRule::Listed { block.next_repair } else { ESI_LIMIT };
        let before = block.wants();
        if refused || !block.insert(esi) {
            return Arrival::Useless;
        }
        block.trial.on_symbol(flow, node);
        if rule == SpreadRule::Equal {
            block.count_class(esi, of);
        }
        let wants = block.wants();
        self.needed -= u64::from(before - wants);
        for share in block.shares.iter_mut().filter(|share| share.range.contains(&esi)) {
            share.missing -= 1;
            settle(share.flow, 1);
        }
        block.shares.retain(|share| share.missing > 0);
        if wants > 0 {
            return Arrival::Kept;
        }
        block.phase = Phase::Decoding;
        for share in block.shares.drain(..) {
            settle(share.flow, share.missing);
        }
        self.drop_from_pool(symbol.block.0);
        Arrival::Complete
    }

    /// The block is verified and kept. Returns who took part when it failed before, but not now that it came right:
    /// whom that makes suspicious.
    pub(super) fn finish(&mut self, block: BlockIndex) -> BTreeSet<NodeId> {
        let Some(entry) = self.open.remove(&block.0) else { return BTreeSet::new() };
        debug_assert!(entry.shares.is_empty(), "a complete block is owed by nobody");
        if self.done.set(block.0 - self.wanted.start) {
            self.undone -= 1;
        }
        self.skip_done();
        entry.trial.on_verified()
    }

    /// The symbols here do not determine the block: two more are wanted (each extra one makes failure 100 times rarer,
    /// SCDP §II). Returns the flow that now owes them, if the block is asked of one alone.
    pub(super) fn need_more(&mut self, block: BlockIndex) -> Option<(FlowId, u32)> {
        let entry = self.open.get_mut(&block.0)?;
        let before = entry.wants();
        entry.phase = Phase::Filling;
        entry.overhead += 2;
        self.needed += u64::from(entry.wants() - before);
        let range = entry.fresh_repair(2);
        if let Some(flow) = entry.trial.alone() {
            entry.shares.push(Share { flow, range, missing: 2 });
            return Some((flow, 2));
        }
        self.add_to_pool(block.0, range);
        None
    }

    /// The block decoded but is wrong: everything of it is thrown away and asked of one source alone.
    pub(super) fn corrupt(&mut self, block: BlockIndex) -> Option<Blame> {
        let entry = self.open.get_mut(&block.0)?;
        let blame = entry.trial.on_corrupt();
        self.restart(block.0);
        Some(blame)
    }

    /// Forgets what is here of a block and asks for all of it anew.
    fn restart(&mut self, block: u32) {
        self.drop_from_pool(block);
        let entry = self.open.get_mut(&block).expect("the block is open");
        let before = u64::from(entry.wants());
        entry.reset();
        self.needed = self.needed - before + u64::from(entry.wants());
        let all = 0..entry.source_symbols;
        self.add_to_pool(block, all);
    }

    /// How often this block was tried.
    pub(super) fn attempts(&self, block: BlockIndex) -> u8 {
        self.open.get(&block.0).map_or(0, |b| b.attempt)
    }

    fn add_to_pool(&mut self, block: u32, range: Range<u32>) {
        if !range.is_empty() {
            self.pooled += u64::from(range.end - range.start);
            let ranges = self.pool.entry(block).or_default();
            ranges.push(range);
            // The lowest is taken first, from the end.
            ranges.sort_unstable_by_key(|r| core::cmp::Reverse(r.start));
        }
    }

    fn drop_from_pool(&mut self, block: u32) {
        if let Some(ranges) = self.pool.remove(&block) {
            self.pooled -= ranges.iter().map(|r| u64::from(r.end - r.start)).sum::<u64>();
        }
    }

    /// Gives a flow up to `most` unassigned symbols of one block: the lowest that is in the pool, else a new one.
    /// A block is split only if `split`. Returns the block and how many symbols, or nothing if there is nothing to give.
    /// Opens no new block unless `open_new`.
    pub(super) fn take(
        &mut self,
        flow: FlowId,
        most: u32,
        split: bool,
        open_new: bool,
    ) -> Option<(BlockIndex, u32)> {
        let block = match self.pool.first_key_value() {
            Some((&block, _)) => block,
            None if open_new && self.fresh < self.wanted.end => {
                let block = self.open_fresh();
                self.add_to_pool(block, 0..self.k(block));
                block
            }
            None => return None,
        };
        let mut range =
            self.pool.get_mut(&block).and_then(Vec::pop).expect("no empty list stays in the pool");
        if self.pool[&block].is_empty() {
            self.pool.remove(&block);
        }
        self.pooled -= u64::from(range.end - range.start);
        let entry = self.open.get_mut(&block).expect("only open blocks are in the pool");
        let whole = !split || entry.trial.is_alone();
        if !whole && range.end - range.start > most.max(1) {
            let rest = range.start + most.max(1)..range.end;
            range.end = rest.start;
            self.add_to_pool(block, rest);
        }
        let entry = self.open.get_mut(&block).expect("only open blocks are in the pool");
        entry.trial.give(flow);
        let missing = entry.missing_in(&range);
        entry.shares.push(Share { flow, range, missing });
        Some((BlockIndex(block), missing))
    }

    /// A flow is asked for nothing any more: what it owed goes back to the pool. Returns blocks that must be restarted,
    /// because they were asked of it alone.
    pub(super) fn release(&mut self, flow: FlowId) -> Vec<BlockIndex> {
        let mut restart = Vec::new();
        let mut back = Vec::new();
        for (&block, entry) in self.open.iter_mut() {
            if entry.phase == Phase::Filling && entry.trial.release(flow) {
                entry.shares.clear();
                restart.push(block);
                continue;
            }
            let mut kept = Vec::with_capacity(entry.shares.len());
            for share in std::mem::take(&mut entry.shares) {
                if share.flow == flow {
                    back.extend(entry.missing_runs(&share.range).into_iter().map(|run| (block, run)));
                } else {
                    kept.push(share);
                }
            }
            entry.shares = kept;
        }
        for (block, run) in back {
            self.add_to_pool(block, run);
        }
        for &block in &restart {
            self.restart(block);
        }
        restart.into_iter().map(BlockIndex).collect()
    }

    /// Moves up to `most` not yet sent symbols from the end of what `from` owes in `block` back to the pool. Returns how
    /// many.
    pub(super) fn take_back_tail(&mut self, from: FlowId, block: BlockIndex, most: u32) -> u32 {
        let Some(entry) = self.open.get_mut(&block.0) else { return 0 };
        if entry.trial.is_alone() {
            return 0;
        }
        let Some(at) = entry.shares.iter().rposition(|share| share.flow == from) else { return 0 };
        let range = entry.shares[at].range.clone();
        // Symbols are sent in ascending order, so those behind the last arrival are the ones that may not be under way.
        let unsent = range.clone().rev().take_while(|&esi| !entry.has(esi)).count() as u32;
        let count = unsent.min(most);
        if count == 0 {
            return 0;
        }
        let tail = range.end - count..range.end;
        let share = &mut entry.shares[at];
        share.range.end = tail.start;
        share.missing -= count;
        if share.missing == 0 {
            entry.shares.remove(at);
        }
        self.add_to_pool(block.0, tail);
        count
    }

    /// Asks `flow` for `count` new repair symbols of a block that others are slow with.
    pub(super) fn help(&mut self, now: Time, flow: FlowId, block: BlockIndex, count: u32) -> u32 {
        let Some(entry) = self.open.get_mut(&block.0) else { return 0 };
        if entry.phase == Phase::Decoding || entry.trial.is_alone() || entry.next_repair + count >= ESI_LIMIT
        {
            return 0;
        }
        let range = entry.fresh_repair(count);
        entry.helped_at = Some(now);
        entry.shares.push(Share { flow, range, missing: count });
        count
    }

    /// Whether anything is to be expected of a flow.
    pub(super) fn expects(&self, flow: &Flow, rule: SpreadRule) -> bool {
        let mut filling = self.open.values().filter(|block| block.is_filling());
        match rule {
            SpreadRule::Listed => flow.outstanding > 0,
            SpreadRule::Residue => self.fresh < self.wanted.end || filling.next().is_some(),
            SpreadRule::Equal => {
                let mut fresh = (self.fresh..self.wanted.end).filter(|&block| !self.is_done(block));
                filling.any(|block| block.missing_of_class(flow.index, flow.of) > 0)
                    || fresh.any(|block| class_size(self.k(block), flow.index, flow.of) > 0)
            }
        }
    }

    /// Whether a block is wanted, but there is no room for it yet.
    pub(super) fn is_too_early(&self, block: BlockIndex) -> bool {
        self.wanted.contains(&block.0) && block.0 >= self.fresh && !self.is_done(block.0)
    }

    /// What a source still owes of a block.
    ///
    /// With the residue rule its part of what is missing (PPUSH §III-A, footnote 1: u - v + 2). The footnote's estimate is
    /// an equal part for each of N sources. Here it is the part that the source had in the arrivals lately: otherwise a
    /// slow source goes on with a block that a fast one finishes before its symbols arrive (two sources of 20 : 1 with
    /// blocks of 1024 symbols: most of what the slow one sent came too late, and Fig. 6 could not be had).
    pub(super) fn owed(&self, block: BlockIndex, flow: &Flow, rule: SpreadRule, inflow: Inflow) -> u64 {
        match self.open.get(&block.0) {
            None => self.owed_unopened(block, flow, rule, inflow),
            Some(entry) if entry.phase == Phase::Decoding => 0,
            Some(entry) if rule == SpreadRule::Equal => {
                u64::from(entry.missing_of_class(flow.index, flow.of))
            }
            Some(entry) if rule == SpreadRule::Listed => {
                entry.shares.iter().filter(|s| s.flow == flow.id).map(|s| u64::from(s.missing)).sum()
            }
            Some(entry) => inflow.part_of(entry.wants() + 2, flow),
        }
    }

    #[cold] // An ACK seldom speaks of a block that is not open.
    fn owed_unopened(&self, block: BlockIndex, flow: &Flow, rule: SpreadRule, inflow: Inflow) -> u64 {
        if !self.wanted.contains(&block.0) || self.is_done(block.0) {
            0
        } else if rule == SpreadRule::Equal {
            u64::from(class_size(self.k(block.0), flow.index, flow.of))
        } else {
            inflow.part_of(self.k(block.0) + 2, flow)
        }
    }
}

/// The live flows of a task together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inflow {
    pub(super) flows: u32,
    /// Arrivals lately, of all of them.
    pub(super) recent: u32,
}

impl Inflow {
    /// A flow's part of so many symbols, at least one; equal parts as long as little has come.
    fn part_of(self, symbols: u32, flow: &Flow) -> u64 {
        let own = u64::from(flow.recent) + 1;
        let all = u64::from(self.recent) + u64::from(self.flows.max(1));
        (u64::from(symbols) * own).div_ceil(all)
    }
}

impl Block {
    fn new(source_symbols: u32) -> Self {
        Block {
            source_symbols,
            overhead: 0,
            present: Bits::new(source_symbols),
            repair: Vec::new(),
            phase: Phase::Filling,
            shares: Vec::new(),
            trial: Trial::default(),
            attempt: 0,
            next_repair: source_symbols,
            helped_at: None,
            here_by_class: Vec::new(),
        }
    }

    fn reset(&mut self) {
        self.present = Bits::new(self.source_symbols);
        self.repair.clear();
        self.here_by_class.clear();
        self.overhead = 0;
        self.phase = Phase::Filling;
        self.attempt = self.attempt.saturating_add(1);
        debug_assert!(self.shares.is_empty(), "a block starts anew only when nobody owes it");
    }

    /// Source symbols of one class of the equal rule that are not here.
    fn missing_of_class(&self, index: u8, of: u8) -> u32 {
        let all = class_size(self.source_symbols, index, of);
        let here = self.here_by_class.get(usize::from(index)).map_or(0, |here| *here);
        all.saturating_sub(here)
    }

    fn has(&self, esi: u32) -> bool {
        if esi < self.source_symbols {
            self.present.get(esi)
        } else {
            self.repair.binary_search(&esi).is_ok()
        }
    }

    fn insert(&mut self, esi: u32) -> bool {
        if esi < self.source_symbols {
            return self.present.set(esi);
        }
        let place = self.repair.binary_search(&esi);
        place.inspect_err(|&place| self.repair.insert(place, esi)).is_err()
    }

    /// Distinct symbols here.
    pub(super) fn distinct(&self) -> u32 {
        self.present.ones() + self.repair.len() as u32
    }
    /// Source symbols here; the others were replaced by repair symbols.
    pub(super) fn source_symbols_missing(&self) -> u32 {
        self.source_symbols - self.present.ones()
    }
    /// Symbols still wanted; none once all source symbols are here, whatever decoding asked for.
    pub(super) fn wants(&self) -> u32 {
        if self.present.ones() == self.source_symbols {
            return 0;
        }
        (self.source_symbols + self.overhead).saturating_sub(self.distinct())
    }
    /// Whether the receiver waits for symbols of it (and not for the decoder).
    pub(super) fn is_filling(&self) -> bool {
        self.phase == Phase::Filling
    }

    fn count_class(&mut self, esi: u32, of: u8) {
        let of = usize::from(of.max(1));
        self.here_by_class.resize(of, 0);
        self.here_by_class[esi as usize % of] += 1;
    }

    fn fresh_repair(&mut self, count: u32) -> Range<u32> {
        let first = self.next_repair;
        self.next_repair = (first + count).min(ESI_LIMIT);
        first..self.next_repair
    }

    fn missing_in(&self, range: &Range<u32>) -> u32 {
        range.clone().filter(|&esi| !self.has(esi)).count() as u32
    }

    fn missing_runs(&self, range: &Range<u32>) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for esi in range.clone().filter(|&esi| !self.has(esi)) {
            match runs.last_mut() {
                Some(run) if run.end == esi => run.end = esi + 1,
                _ => runs.push(esi..esi + 1),
            }
        }
        runs
    }
}

/// Source symbols i, i + M, i + 2M and so on below K.
fn class_size(source_symbols: u32, index: u8, of: u8) -> u32 {
    source_symbols.saturating_sub(u32::from(index)).div_ceil(u32::from(of.max(1)))
}

impl Share {
    /// First ESI of the share.
    pub(super) fn first(&self) -> Esi {
        Esi(self.range.start)
    }
    /// Whether it is exactly all source symbols of its block.
    pub(super) fn is_whole(&self, block: &Block) -> bool {
        self.range == (0..block.source_symbols)
    }
}
