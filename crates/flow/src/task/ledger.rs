//! Record of the arrived symbols of an object, block by block, whatever transport brings them.
//!
//! ```text
//!                 first asked for             enough to try                verified
//!   untouched ----------------------> Filling ---------------> Decoding ------------> done
//!                                        ^                        |
//!                                        +--- more are needed ----+
//!                                        +--- all of it anew -----+  (a wrong hash; or asked of one source alone, which is gone)
//! ```
//! A fetch has one ledger. A transport's requests for a block, and their sources, are kept with the block (`A`): so a
//! symbol is looked up once, and a fetch that goes on by another transport leaves those and takes the rest along
//! ([`Ledger::map`]).

use core::ops::Range;
use std::collections::VecDeque;

use headwater_machine::Bits;
use headwater_units::{BlockIndex, FlowId, Geometry};

use super::blame::{Blame, Trial};

/// Arrived and missing symbols of one block.
#[derive(Debug)]
pub struct Here {
    source_symbols: u32,
    /// Symbols beyond K that it is to have, unless all source symbols come.
    extra: u32,
    /// Distinct symbols.
    symbols: u32,
    present: Bits,
    /// Ascending.
    repair: Vec<u32>,
    phase: Phase,
    /// Senders of the symbols that are here.
    pub trial: Trial,
    /// Number of attempts before this one.
    attempts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Filling,
    /// The decoder, the hash or the disk has it.
    Decoding,
}

/// A block that is open: neither untouched nor done.
#[derive(Debug)]
pub struct Block<A> {
    /// Its number in the object.
    pub number: u32,
    /// Its symbols that are here.
    pub here: Here,
    /// Record of the requests for its symbols.
    pub asked: A,
}

/// All blocks of a fetch.
#[derive(Debug)]
pub struct Ledger<A> {
    geometry: Geometry,
    wanted: Range<u32>,
    done: Bits,
    /// Every wanted block below is done.
    first_undone: u32,
    /// By number.
    open: VecDeque<Block<A>>,
    /// The place that a symbol was taken in at last: the next one is mostly of the same block.
    recent: usize,
    decoding: usize,
    /// Source symbols of untouched blocks.
    untouched: u64,
}

impl Here {
    fn new(source_symbols: u32) -> Self {
        Here {
            source_symbols,
            extra: 0,
            symbols: 0,
            present: Bits::new(source_symbols),
            repair: Vec::new(),
            phase: Phase::Filling,
            trial: Trial::default(),
            attempts: 0,
        }
    }

    /// K.
    #[inline]
    pub fn source_symbols(&self) -> u32 {
        self.source_symbols
    }

    /// Distinct symbols here.
    #[inline]
    pub fn symbols(&self) -> u32 {
        self.symbols
    }

    /// Source symbols that are not here; once it is decoded, those that repair symbols have stood in for.
    pub fn source_symbols_missing(&self) -> u32 {
        self.source_symbols - self.present.ones()
    }

    /// The first repair symbol above all that are here.
    pub fn next_repair(&self) -> u32 {
        self.repair.last().map_or(self.source_symbols, |last| last + 1)
    }

    /// How often it was begun anew; tells a source that it must send again what it sent before.
    pub fn attempts(&self) -> u8 {
        self.attempts
    }

    /// Whether symbols are waited for, and not the decoder.
    #[inline]
    pub fn is_filling(&self) -> bool {
        self.phase == Phase::Filling
    }

    /// Symbols still needed; none once all source symbols are here, whatever decoding asked for.
    #[inline]
    pub fn missing(&self) -> u32 {
        if self.phase != Phase::Filling || self.present.ones() == self.source_symbols {
            return 0;
        }
        (self.source_symbols + self.extra).saturating_sub(self.symbols)
    }

    /// Sets the minimum number of symbols beyond K that it needs.
    pub fn want_extra(&mut self, extra: u32) {
        self.extra = self.extra.max(extra);
    }

    /// Whether a symbol is here.
    pub fn has(&self, esi: u32) -> bool {
        if esi < self.source_symbols {
            self.present.get(esi)
        } else {
            self.repair.binary_search(&esi).is_ok()
        }
    }

    /// A symbol has come; false if it was here.
    #[inline]
    pub fn insert(&mut self, esi: u32) -> bool {
        let is_new = if esi < self.source_symbols {
            self.present.set(esi)
        } else {
            let place = self.repair.binary_search(&esi);
            place.inspect_err(|&place| self.repair.insert(place, esi)).is_err()
        };
        self.symbols += u32::from(is_new);
        is_new
    }

    /// All of it anew.
    fn restart(&mut self) {
        let fresh = Here::new(self.source_symbols);
        let trial = std::mem::take(&mut self.trial);
        *self = Here { trial, attempts: self.attempts.saturating_add(1), ..fresh };
    }
}

impl<A> Ledger<A> {
    /// Every wanted block but those in `have` is to be had.
    pub fn new(geometry: Geometry, wanted: Range<u32>, have: &[BlockIndex]) -> Self {
        let end = wanted.end.min(geometry.layout().block_count());
        let wanted = wanted.start.min(end)..end;
        let mut done = Bits::new(end - wanted.start);
        for block in have.iter().filter(|block| wanted.contains(&block.0)) {
            done.set(block.0 - wanted.start);
        }
        let mut ledger = Ledger {
            geometry,
            done,
            first_undone: wanted.start,
            open: VecDeque::new(),
            recent: 0,
            decoding: 0,
            untouched: 0,
            wanted,
        };
        let undone = ledger.wanted.clone().filter(|&block| !ledger.is_done(block));
        ledger.untouched = undone.map(|block| u64::from(ledger.source_symbols(block))).sum();
        ledger.pass_done();
        ledger
    }

    /// The same, with something else beside each open block.
    pub fn map<B>(self, mut asked: impl FnMut(&mut Here) -> B) -> Ledger<B> {
        let Ledger { geometry, wanted, done, first_undone, open, recent, decoding, untouched } = self;
        let open = open.into_iter().map(|Block { number, mut here, .. }| {
            let asked = asked(&mut here);
            Block { number, here, asked }
        });
        Ledger { open: open.collect(), geometry, wanted, done, first_undone, recent, decoding, untouched }
    }

    /// Opens every untouched block below the last open one, for a transport that takes blocks in order. Returns what is the first
    /// block after these.
    pub fn open_between(&mut self, asked: impl Fn(u32) -> A) -> u32 {
        let end = self.open.back().map_or(self.first_undone, |last| last.number + 1);
        for block in self.first_undone..end {
            if !self.is_done(block) && self.find(block).is_none() {
                self.open(block, asked(self.source_symbols(block)));
            }
        }
        end
    }

    /// All flows are over: what was asked of one alone begins anew. Returns the blocks.
    pub fn release_all(&mut self) -> Vec<BlockIndex> {
        let sole = |ledger: &mut Self, place: usize| match ledger.open[place].here.trial.sole_source() {
            Some(flow) => ledger.release(place, flow),
            None => false,
        };
        let anew = (0..self.open.len()).filter(|&place| sole(self, place)).collect::<Vec<_>>();
        anew.into_iter().map(|place| BlockIndex(self.open[place].number)).collect()
    }

    fn pass_done(&mut self) {
        while self.first_undone < self.wanted.end && self.is_done(self.first_undone) {
            self.first_undone += 1;
        }
    }

    // ---- how far it is

    /// K of a block.
    #[inline]
    pub fn source_symbols(&self, block: u32) -> u32 {
        self.geometry.source_symbols(BlockIndex(block))
    }

    /// The blocks that are wanted.
    pub fn wanted(&self) -> &Range<u32> {
        &self.wanted
    }

    /// Blocks wanted in all.
    pub fn wanted_blocks(&self) -> u32 {
        self.wanted.end - self.wanted.start
    }

    /// Whether a wanted block is done.
    pub fn is_done(&self, block: u32) -> bool {
        self.done.get(block - self.wanted.start)
    }

    /// Blocks still to be had.
    pub fn undone(&self) -> u32 {
        self.wanted_blocks() - self.done.ones()
    }

    /// Every wanted block below is done.
    pub fn first_undone(&self) -> BlockIndex {
        BlockIndex(self.first_undone)
    }

    /// Blocks that wait for decoder, hash or disk.
    pub fn decoding(&self) -> usize {
        self.decoding
    }

    /// Source symbols of untouched blocks.
    #[inline]
    pub fn untouched(&self) -> u64 {
        self.untouched
    }

    /// Symbols still needed, of all blocks.
    pub fn needed(&self) -> u64 {
        self.untouched + self.open.iter().map(|block| u64::from(block.here.missing())).sum::<u64>()
    }

    // ---- the open blocks

    /// Number of open blocks.
    #[inline]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// The open blocks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Block<A>> {
        self.open.iter()
    }

    /// The same, to change what was asked for.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Block<A>> {
        self.open.iter_mut()
    }

    /// The block at a place, which is good until one is opened or done.
    #[inline]
    pub fn at(&self, place: usize) -> Option<&Block<A>> {
        self.open.get(place)
    }

    /// Where an open block is.
    #[inline]
    pub fn find(&self, block: u32) -> Option<usize> {
        match self.open.get(self.recent) {
            Some(recent) if recent.number == block => Some(self.recent),
            _ => {
                let place = self.place_from(block);
                self.open.get(place).filter(|found| found.number == block).map(|_| place)
            }
        }
    }

    /// The same, and that is where it is looked for first from now on.
    #[inline]
    pub fn find_again(&mut self, block: u32) -> Option<usize> {
        let place = self.find(block)?;
        self.recent = place;
        Some(place)
    }

    /// Where the first open block is that is not below this one.
    #[inline]
    pub fn place_from(&self, block: u32) -> usize {
        // As good as always the open ones follow each other.
        let first = self.open.front().map_or(block, |first| first.number);
        let guess = block.saturating_sub(first) as usize;
        match self.open.get(guess) {
            Some(found) if found.number == block || guess == 0 => guess,
            _ => self.open.partition_point(|open| open.number < block),
        }
    }

    /// An open block.
    #[inline]
    pub fn get(&self, block: u32) -> Option<&Block<A>> {
        self.find(block).map(|place| &self.open[place])
    }

    /// An open block, to be changed.
    pub fn get_mut(&mut self, block: u32) -> Option<&mut Block<A>> {
        self.find(block).map(|place| &mut self.open[place])
    }

    /// Opens a wanted block that is untouched; returns its place.
    pub fn open(&mut self, block: u32, asked: A) -> usize {
        let source_symbols = self.source_symbols(block);
        self.untouched -= u64::from(source_symbols);
        let opened = Block { number: block, here: Here::new(source_symbols), asked };
        let place = match self.open.back() {
            Some(last) if last.number > block => self.open.partition_point(|open| open.number < block),
            _ => self.open.len(),
        };
        self.open.insert(place, opened);
        place
    }

    // ---- what becomes of them

    /// Enough of a block is here to try decoding.
    pub fn decode(&mut self, place: usize) {
        self.open[place].here.phase = Phase::Decoding;
        self.decoding += 1;
    }

    /// The symbols here do not determine the block: `more` more are wanted, however many came.
    pub fn need_more(&mut self, place: usize, more: u32) {
        let here = &mut self.open[place].here;
        debug_assert_eq!(here.phase, Phase::Decoding, "only what was decoded can need more");
        here.phase = Phase::Filling;
        here.extra = here.symbols.saturating_sub(here.source_symbols) + more;
        self.decoding -= 1;
    }

    /// The block decoded but is wrong: everything of it is thrown away, to be asked of one source alone.
    pub fn corrupt(&mut self, place: usize) -> Blame {
        let blame = self.open[place].here.trial.on_corrupt();
        self.restart(place);
        blame
    }

    /// Forgets what is here of a block.
    pub fn restart(&mut self, place: usize) {
        let here = &mut self.open[place].here;
        self.decoding -= usize::from(here.phase == Phase::Decoding);
        here.restart();
    }

    /// Forgets what is here of a block, since some of it came from a liar.
    pub fn forget(&mut self, place: usize) {
        self.open[place].here.trial.clear();
        self.restart(place);
    }

    /// The flow brings nothing more: whether a block was asked of it alone, and so begins anew.
    pub fn release(&mut self, place: usize, flow: FlowId) -> bool {
        let here = &mut self.open[place].here;
        let anew = here.is_filling() && here.trial.release(flow);
        if anew {
            self.restart(place);
        }
        anew
    }

    /// A block that was decoded is verified and kept. Returns what was known of it.
    pub fn finish(&mut self, place: usize) -> Option<Block<A>> {
        let finished = self.open.remove(place)?;
        debug_assert_eq!(finished.here.phase, Phase::Decoding, "what was not decoded cannot be verified");
        self.decoding -= 1;
        self.done.set(finished.number - self.wanted.start);
        self.pass_done();
        Some(finished)
    }
}

impl<A> core::ops::Index<usize> for Ledger<A> {
    type Output = Block<A>;

    #[inline]
    fn index(&self, place: usize) -> &Block<A> {
        &self.open[place]
    }
}

impl<A> core::ops::IndexMut<usize> for Ledger<A> {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut Block<A> {
        &mut self.open[place]
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, NodeId};

    use super::*;

    const FLOW: FlowId = FlowId(1);

    /// Four blocks of 64 symbols, of which the second is done.
    fn ledger() -> Ledger<()> {
        let geometry = Geometry::new(Bytes::kib(1024), 4096).unwrap();
        Ledger::new(geometry, 0..9, &[BlockIndex(1), BlockIndex(9)])
    }

    /// Opens a block and takes in `source` source symbols and `repair` repair symbols.
    fn fill(ledger: &mut Ledger<()>, block: u32, source: u32, repair: u32) -> usize {
        let place = ledger.open(block, ());
        for esi in (0..source).chain(1000..1000 + repair) {
            assert!(ledger[place].here.insert(esi) && !ledger[place].here.insert(esi));
        }
        place
    }

    #[test]
    fn a_block_is_found_whatever_is_open_beside_it() {
        let mut ledger = ledger();
        assert_eq!((ledger.find(0), ledger.place_from(2)), (None, 0));
        for block in [3, 0, 2] {
            ledger.open(block, ());
        }
        let places = |ledger: &Ledger<()>| (0..5).map(|block| ledger.find(block)).collect::<Vec<_>>();
        assert_eq!(places(&ledger), [Some(0), None, Some(1), Some(2), None]);
        assert_eq!(ledger.find_again(3), Some(2));
        assert_eq!((0..5).map(|block| ledger.place_from(block)).collect::<Vec<_>>(), [0, 1, 1, 2, 3]);
        ledger.decode(1);
        assert_eq!(ledger.finish(1).map(|block| block.number), Some(2));
        assert_eq!(places(&ledger), [Some(0), None, None, Some(1), None]);
    }

    #[test]
    fn what_is_needed_is_what_is_neither_here_nor_done() {
        let mut ledger = ledger();
        assert_eq!((ledger.wanted_blocks(), ledger.undone(), ledger.needed()), (4, 3, 192));
        let place = fill(&mut ledger, 0, 60, 3);
        assert_eq!((ledger.needed(), ledger.untouched(), ledger[place].here.missing()), (129, 128, 1));
        ledger[place].here.want_extra(2);
        assert_eq!(ledger[place].here.missing(), 3);
        (60..64).for_each(|esi| assert!(ledger[place].here.insert(esi)));
        assert_eq!(ledger[place].here.missing(), 0, "source symbols alone determine a block");
        ledger.decode(place);
        assert_eq!((ledger.decoding(), ledger.first_undone()), (1, BlockIndex(0)));
        ledger.finish(place);
        assert_eq!((ledger.decoding(), ledger.undone(), ledger.first_undone()), (0, 2, BlockIndex(2)));
    }

    #[test]
    fn a_block_that_does_not_decode_needs_more_than_came_and_one_that_is_wrong_all_of_it() {
        let mut ledger = ledger();
        let place = fill(&mut ledger, 0, 60, 4);
        ledger.decode(place);
        ledger.need_more(place, 2);
        assert_eq!((ledger[place].here.missing(), ledger[place].here.attempts()), (2, 0));
        assert!(ledger[place].here.insert(2000) && ledger[place].here.insert(2001));
        ledger[place].here.trial.on_symbol(FLOW, NodeId([1; 32]), false);
        ledger.decode(place);
        assert_eq!(ledger.corrupt(place), Blame::Liar(NodeId([1; 32])));
        let here = &mut ledger[place].here;
        assert_eq!((here.missing(), here.symbols(), here.attempts()), (64, 0, 1));
        here.trial.give(FLOW);
        assert!(here.insert(5) && here.trial.has_sole_source());
        assert!(!ledger.release(place, FlowId(2)) && ledger.release(place, FLOW));
        assert_eq!((ledger[place].here.missing(), ledger[place].here.attempts()), (64, 2));
    }
}
