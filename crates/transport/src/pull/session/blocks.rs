//! Of which blocks symbols are here, how many are coming, and from whom (SCDP §III-H: K of a block, or K + 2 once something of it
//! is lost).
//!
//! ```text
//!   fresh --first need--> Filling --K source symbols, or K + 2--> Decoding --verified--> Done
//!                            ^                                        |
//!                            +------ more are needed, or all anew ----+
//!
//!   what a block has:   here | coming from source 0, 1, ... | needed: nobody was asked for it yet
//! ```
//! Blocks are open from the first one that is not done on, side by side. A symbol is *coming* from the moment on at which it is
//! asked for or known to be pushed, until it, or its header, has come or it is lost; each flow's are counted by block. Which
//! block a lost one was of is a guess where blocks meet: then the count of one is taken for another's, and set right when
//! either is settled, since a flow's counts together are exact.

mod asking;
mod block;
mod relayed;

use core::ops::Range;
use std::collections::{BTreeSet, VecDeque};

use headwater_machine::Bits;
use headwater_units::{BlockIndex, Geometry, SymbolId};

use super::flow::Flow;
use crate::task::blame::Blame;
use block::{Block, Phase, Place, Run};

/// All blocks of a task.
#[derive(Debug)]
pub(super) struct Blocks {
    geometry: Geometry,
    wanted: Range<u32>,
    done: Bits,
    undone: u32,
    extra: u32,
    most_open: usize,
    /// The first of the open ones.
    base: u32,
    open: VecDeque<Block>,
    /// No block below needs anything.
    cursor: u32,
    /// Symbols that open blocks need and nobody was asked for.
    needed: u64,
    /// Source symbols of blocks that are not open yet.
    fresh: u64,
    places: Vec<Place>,
    decoding: usize,
    lossy: u32,
    /// Blocks that are asked of one source alone.
    trials: u32,
    /// Some sources are receivers themselves.
    relayed: bool,
    /// Blocks of which others want symbols that have not been asked for where they come from, with the class of those.
    wanted_by_others: BTreeSet<(u32, u8)>,
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It was here already, or its block is asked of another source alone.
    Useless,
    /// Its block has all that it is to have, or is none of ours.
    Surplus,
    /// Only its header came.
    Trimmed,
    /// Kept; the block is not complete yet.
    Kept,
    /// Kept, and enough to try decoding.
    Complete,
}

impl Blocks {
    /// Every wanted block but those in `have` is to be had.
    pub(super) fn new(
        geometry: Geometry,
        wanted: Range<u32>,
        have: &[BlockIndex],
        extra: u32,
        most_open: u32,
    ) -> Self {
        let end = wanted.end.min(geometry.layout().block_count());
        let wanted = wanted.start.min(end)..end;
        let mut done = Bits::new(end - wanted.start);
        for block in have.iter().filter(|block| wanted.contains(&block.0)) {
            done.set(block.0 - wanted.start);
        }
        let mut blocks = Blocks {
            geometry,
            undone: end - wanted.start - done.ones(),
            extra,
            most_open: most_open.max(1) as usize,
            base: wanted.start,
            open: VecDeque::new(),
            cursor: wanted.start,
            needed: 0,
            fresh: 0,
            places: Vec::new(),
            decoding: 0,
            lossy: 0,
            trials: 0,
            relayed: false,
            wanted_by_others: BTreeSet::new(),
            wanted,
            done,
        };
        let missing = blocks.wanted.clone().filter(|&block| !blocks.is_done(block));
        blocks.fresh = missing.map(|block| u64::from(blocks.source_symbols(block))).sum();
        blocks
    }

    fn source_symbols(&self, block: u32) -> u32 {
        self.geometry.source_symbols(BlockIndex(block))
    }

    fn is_done(&self, block: u32) -> bool {
        self.done.get(block - self.wanted.start)
    }

    /// One more flow, at the next place.
    pub(super) fn add_place(&mut self, flow: &Flow) {
        self.relayed |= flow.relays;
        self.places.push(Place {
            flow: flow.id,
            node: flow.node,
            index: flow.index,
            of: flow.of.max(1),
            alone: false,
            relays: flow.relays,
            passed_on: flow.passed_on,
            heard: true,
            cleared: false,
            stray: 0,
            oldest: self.wanted.start,
            told: 0,
            newest: 0,
        });
    }

    // ---- how far it is

    /// Blocks wanted in all.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted.end - self.wanted.start
    }
    /// Blocks still to be had.
    pub(super) fn undone(&self) -> u32 {
        self.undone
    }
    /// Blocks that wait for the decoder, the hash or the disk.
    pub(super) fn decoding(&self) -> usize {
        self.decoding
    }
    /// Blocks that something was lost of, or replaced.
    pub(super) fn lossy(&self) -> u32 {
        self.lossy
    }
    /// Every wanted block below is done.
    pub(super) fn first_undecoded(&self) -> BlockIndex {
        let mut rest = self.base + self.open.len() as u32..self.wanted.end;
        let open = self.open.iter().position(|block| block.phase != Phase::Done);
        let first = open.map(|at| self.base + at as u32);
        BlockIndex(first.or_else(|| rest.find(|&block| !self.is_done(block))).unwrap_or(self.wanted.end))
    }
    /// Symbols still needed, coming or not.
    pub(super) fn missing(&self) -> u64 {
        self.fresh + self.open.iter().map(|block| u64::from(block.missing())).sum::<u64>()
    }
    /// Whether symbols beyond `asked` could be asked of a flow now.
    #[inline]
    pub(super) fn needs_beyond(&self, place: usize, asked: u64) -> bool {
        if !self.wanted_by_others.is_empty() && self.is_wanted_by_others(place) {
            return true;
        }
        let needed = if self.trials == 0 { self.needed } else { self.needed_of(place) };
        needed > asked || (self.fresh > 0 && needed + self.openable() > asked)
    }

    /// Symbols that open blocks need and this flow may be asked for.
    #[cold]
    fn needed_of(&self, place: usize) -> u64 {
        let may = |block: &&Block| block.may_be_asked_of(place, &self.places);
        self.open.iter().filter(may).map(|block| u64::from(block.needs())).sum()
    }
    /// Whether all that is needed is coming.
    #[inline]
    pub(super) fn needs_nothing(&self) -> bool {
        self.needed == 0 && self.fresh == 0
    }
    /// Whether symbols are waited for, and not only for the decoder.
    pub(super) fn is_filling(&self) -> bool {
        self.fresh > 0 || self.undone as usize > self.decoding
    }
    /// How often a block was tried.
    pub(super) fn attempts(&self, block: BlockIndex) -> u8 {
        self.at(block.0).map_or(0, |at| self.open[at].attempts)
    }

    /// A lower bound of what fresh blocks would need that may be opened: one each.
    fn openable(&self) -> u64 {
        let after_open = self.base + self.open.len() as u32;
        let fresh = u64::from(self.wanted.end - after_open.min(self.wanted.end));
        let room = (self.most_open - self.open.len().min(self.most_open)) as u64;
        let blocks = fresh.min(room);
        if blocks == 0 { 0 } else { self.fresh.min(blocks * u64::from(self.source_symbols(after_open))) }
    }

    fn at(&self, block: u32) -> Option<usize> {
        let at = block.checked_sub(self.base)? as usize;
        (at < self.open.len()).then_some(at)
    }

    // ---- opening

    /// Opens the next block, or passes one that is done. False if there is no room or no block.
    fn open_next(&mut self) -> bool {
        let block = self.base + self.open.len() as u32;
        if block >= self.wanted.end || self.open.len() >= self.most_open {
            return false;
        }
        if self.is_done(block) {
            self.open.push_back(Block::done());
            self.pop_done();
            return true;
        }
        let source_symbols = self.source_symbols(block);
        self.open.push_back(Block::new(block, source_symbols, self.places.len()));
        self.fresh -= u64::from(source_symbols);
        self.needed += u64::from(source_symbols);
        true
    }

    fn pop_done(&mut self) {
        while self.open.front().is_some_and(|block| block.phase == Phase::Done) {
            self.open.pop_front();
            self.base += 1;
        }
        self.cursor = self.cursor.max(self.base);
    }

    /// Opens everything up to a block, if there is room.
    fn open_through(&mut self, block: u32) -> Option<usize> {
        if !(self.wanted.contains(&block) && block >= self.base) {
            return None;
        }
        while self.base + self.open.len() as u32 <= block {
            if !self.open_next() {
                return None;
            }
        }
        self.at(block)
    }

    // ---- arriving

    /// A symbol has come from a flow, or its header. `counted`: it was coming, and is not one that was given up or sent to others.
    #[inline]
    pub(super) fn arrive(&mut self, place: usize, symbol: SymbolId, trimmed: bool, counted: bool) -> Arrival {
        let block = symbol.block.0;
        self.places[place].heard = true;
        let own = self.at(block).or_else(|| self.open_through(block));
        let Some(at) = own.filter(|&at| self.open[at].phase == Phase::Filling) else {
            if counted {
                self.settle(place, own);
            }
            return if trimmed { Arrival::Trimmed } else { Arrival::Surplus };
        };
        let entry = &mut self.open[at];
        let before = entry.needs();
        // It may have been counted as another block's.
        let mut elsewhere = counted;
        if let Some(run) = entry.runs.get_mut(place)
            && run.stride > 0
        {
            run.gone += u32::from(counted);
            if elsewhere && run.coming > 0 {
                elsewhere = false;
                run.coming -= 1;
                entry.coming -= 1;
            }
        }
        let arrival = if trimmed { Arrival::Trimmed } else { entry.take(place, &self.places[place], symbol) };
        self.decoding += usize::from(arrival == Arrival::Complete);
        let after = self.open[at].needs();
        self.needed = self.needed + u64::from(after) - u64::from(before);
        if after > before {
            self.cursor = self.cursor.min(block);
        }
        if trimmed {
            self.on_loss(at);
        }
        if elsewhere {
            self.settle(place, None);
        }
        arrival
    }

    /// One less is coming from a flow: of this block, or else of another one, which is returned.
    #[inline]
    fn settle(&mut self, place: usize, own: Option<usize>) -> Option<usize> {
        let has = |entry: &Block| entry.runs.get(place).is_some_and(|run| run.coming > 0);
        let at = match own {
            Some(at) if has(&self.open[at]) => Some(at),
            _ if self.places[place].stray > 0 => {
                self.places[place].stray -= 1;
                return None;
            }
            _ => self.open.iter().position(has),
        };
        if let Some(at) = at {
            self.change(at, |entry| entry.take_coming(place, 1));
        }
        at
    }

    /// A packet of a flow is lost; the one before it was of this block.
    pub(super) fn lose(&mut self, place: usize, near: u32) {
        self.lose_of(place, self.at(near));
    }

    /// So many that were coming from a flow will not come, of whatever block: the oldest waits most for them.
    #[cold]
    pub(super) fn lose_oldest(&mut self, place: usize, count: u32) {
        (0..count).for_each(|_| self.lose_of(place, None));
    }

    /// One that was coming from a flow is lost: of this block, or else of the oldest.
    fn lose_of(&mut self, place: usize, own: Option<usize>) {
        if let Some(at) = self.settle(place, own) {
            let run = &mut self.open[at].runs[place];
            (run.gone, run.lost) = (run.gone + 1, run.lost + 1);
            self.on_loss(at);
        }
    }

    /// Nothing is coming from a flow any more.
    pub(super) fn lose_all(&mut self, place: usize) {
        (self.places[place].stray, self.places[place].heard) = (0, false);
        for at in 0..self.open.len() {
            let coming = self.open[at].coming_from(place);
            if coming > 0 {
                self.change(at, |entry| entry.take_coming(place, coming));
                let run = &mut self.open[at].runs[place];
                (run.gone, run.lost) = (run.gone + coming, run.lost + coming);
                self.on_loss(at);
            }
            // Nothing is under way that a wrong guess could be set right by: whatever is asked for now is more than ever before.
            if let Some(run) = self.open[at].runs.get_mut(place) {
                run.gone = run.gone.max(run.told);
            }
        }
    }

    /// The flow is over: nothing comes from it. Returns the blocks that were asked of it alone, and begin anew.
    pub(super) fn release(&mut self, place: usize) -> Vec<BlockIndex> {
        self.lose_all(place);
        let anew = self.hand_on(place);
        self.places[place].stray = 0;
        anew
    }

    /// Others are to have what was asked of this flow alone; returns the blocks that begin anew.
    pub(super) fn hand_on(&mut self, place: usize) -> Vec<BlockIndex> {
        let flow = self.places[place].flow;
        let mut anew = Vec::new();
        for at in 0..self.open.len() {
            let entry = &mut self.open[at];
            if entry.phase == Phase::Filling && entry.trial.release(flow) {
                self.restart(at);
                anew.push(BlockIndex(self.base + at as u32));
            }
        }
        anew
    }

    /// The receiver has left its group: the flow serves it alone from now on, and has sent nothing yet.
    pub(super) fn leave_group(&mut self, place: usize) {
        self.lose_all(place);
        let it = &mut self.places[place];
        it.alone = true;
        (it.told, it.oldest, it.newest) = (0, self.base, 0);
        for entry in &mut self.open {
            if let Some(run) = entry.runs.get_mut(place) {
                *run = Run::default();
            }
        }
    }

    /// Something of a block is lost, or replaced: decoding takes more symbols than K.
    #[cold]
    fn on_loss(&mut self, at: usize) {
        if self.open[at].phase == Phase::Filling && !self.open[at].lossy {
            self.lossy += 1;
            let extra = self.extra;
            self.change(at, |entry| (entry.lossy, entry.extra) = (true, entry.extra.max(extra)));
        }
    }

    // ---- decoding

    /// The source symbols of a block that have not come, if it waits for the decoder.
    pub(super) fn replaced(&self, block: BlockIndex) -> Option<u32> {
        let entry = &self.open[self.at(block.0)?];
        (entry.phase == Phase::Decoding).then(|| entry.source_symbols - entry.present.ones())
    }

    /// The block is verified and kept.
    pub(super) fn finish(&mut self, block: BlockIndex) {
        let Some(at) = self.at(block.0) else { return };
        self.trials -= u32::from(self.open[at].trial.is_alone());
        if let Some(flow) = self.open[at].trial.alone() {
            self.places.iter_mut().filter(|place| place.flow == flow).for_each(|place| place.cleared = true);
        }
        self.let_go(at);
        self.open[at] = Block::done();
        // From now on it is made from the block itself.
        self.wanted_by_others.retain(|(its, _)| *its != block.0);
        self.decoding -= 1;
        if self.done.set(block.0 - self.wanted.start) {
            self.undone -= 1;
        }
        self.pop_done();
    }

    /// What is coming of a block comes for nothing.
    fn let_go(&mut self, at: usize) {
        for (place, run) in self.places.iter_mut().zip(&self.open[at].runs) {
            place.stray += run.coming;
        }
    }

    /// The symbols here do not determine the block: more are wanted.
    pub(super) fn need_more(&mut self, block: BlockIndex) {
        let Some(at) = self.at(block.0) else { return };
        self.decoding -= 1;
        let extra = self.extra.max(1);
        self.change(at, |entry| {
            entry.phase = Phase::Filling;
            // However many came.
            entry.extra = (entry.here - entry.source_symbols.min(entry.here)) + extra;
        });
    }

    /// The block decoded but is wrong: all of it is thrown away and asked of one source alone.
    pub(super) fn corrupt(&mut self, block: BlockIndex) -> Option<Blame> {
        let at = self.at(block.0)?;
        self.trials += u32::from(!self.open[at].trial.is_alone());
        let blame = self.open[at].trial.on_corrupt();
        self.decoding -= 1;
        self.restart(at);
        Some(blame)
    }

    /// Forgets what is here of a block.
    fn restart(&mut self, at: usize) {
        self.let_go(at);
        let places = self.places.len();
        self.change(at, |entry| {
            let fresh = Block::new(entry.number, entry.source_symbols, places);
            let trial = std::mem::take(&mut entry.trial);
            *entry = Block { trial, attempts: entry.attempts.saturating_add(1), ..fresh };
        });
    }

    /// Changes a block, and with it what is needed.
    #[inline]
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Block)) {
        let entry = &mut self.open[at];
        let before = u64::from(entry.needs());
        change(entry);
        let after = u64::from(entry.needs());
        self.needed = self.needed + after - before;
        if after > 0 {
            self.cursor = self.cursor.min(self.base + at as u32);
        }
    }
}
