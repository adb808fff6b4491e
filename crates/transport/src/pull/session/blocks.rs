//! Which blocks' symbols are coming, how many, and from which source; the ledger has the symbols that are here (SCDP
//! §III-H: K of a block, or K + 2 once something of it is lost).
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

use core::ops::Range;

use headwater_units::{BlockIndex, Geometry, SymbolId};

use super::flow::Flow;
use block::{Asked, AskedBlock, Block, FlowView, Run};
use headwater_flow::task::blame::Blame;
use headwater_flow::task::ledger::Ledger;

/// All blocks of a task.
#[derive(Debug)]
pub(super) struct Blocks {
    ledger: Ledger<Asked>,
    extra: u32,
    most_open: usize,
    /// The next block to be opened.
    next: u32,
    /// No block below needs anything.
    cursor: u32,
    /// Symbols that open blocks need and nobody was asked for.
    needed: u64,
    places: Vec<FlowView>,
    lossy: u32,
    /// Blocks that are asked of one source alone.
    trials: u32,
}

/// The meaning of an arrival.
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
        Blocks::of(Ledger::new(geometry, wanted, have), extra, most_open)
    }

    /// Goes on with what came by another transport.
    pub(super) fn resume(ledger: Ledger<()>, extra: u32, most_open: u32) -> Self {
        let ledger = ledger.map(|here| {
            let lossy = here.next_repair() > here.source_symbols();
            if lossy {
                here.want_extra(extra);
            }
            Asked { lossy, begun_before: true, ..Asked::new(0) }
        });
        let mut blocks = Blocks::of(ledger, extra, most_open);
        blocks.next = blocks.ledger.open_between(|_| Asked::new(0));
        blocks.needed = blocks.ledger.iter().map(|entry| u64::from(entry.needs())).sum();
        blocks.lossy = blocks.ledger.iter().filter(|entry| entry.asked.lossy).count() as u32;
        blocks.trials =
            blocks.ledger.iter().filter(|entry| entry.here.trial.has_sole_source()).count() as u32;
        blocks
    }

    /// State for another transport that goes on with the object.
    pub(super) fn into_ledger(self) -> Ledger<()> {
        self.ledger.map(|_| ())
    }

    fn of(ledger: Ledger<Asked>, extra: u32, most_open: u32) -> Self {
        Blocks {
            extra,
            most_open: most_open.max(1) as usize,
            next: ledger.wanted().start,
            cursor: ledger.wanted().start,
            needed: 0,
            places: Vec::new(),
            lossy: 0,
            trials: 0,
            ledger,
        }
    }

    /// The first open block, or else the next to be opened: all wanted ones below are done.
    fn base(&self) -> u32 {
        self.ledger.at(0).map_or(self.next, |first| first.number)
    }

    /// Blocks from the first open one to the last, done or not.
    fn span(&self) -> usize {
        (self.next - self.base()) as usize
    }

    /// One more flow, at the next place.
    pub(super) fn add_place(&mut self, flow: &Flow) {
        let grant = &flow.grant;
        self.places.push(FlowView {
            flow: grant.flow,
            node: grant.node,
            index: grant.index,
            of: grant.of.max(1),
            grouped: grant.group.is_some(),
            detached: false,
            heard: true,
            cleared: false,
            stray: 0,
            oldest: self.ledger.wanted().start,
            told: 0,
            newest: 0,
        });
    }

    // ---- how far it is

    /// Blocks wanted in all.
    pub(super) fn wanted(&self) -> u32 {
        self.ledger.wanted_blocks()
    }
    /// Blocks still to be had.
    pub(super) fn undone(&self) -> u32 {
        self.ledger.undone()
    }
    /// Blocks that wait for the decoder, the hash or the disk.
    pub(super) fn decoding(&self) -> usize {
        self.ledger.decoding()
    }
    /// Blocks that something was lost of, or replaced.
    pub(super) fn lossy(&self) -> u32 {
        self.lossy
    }
    /// Every wanted block below is done.
    pub(super) fn first_undecoded(&self) -> BlockIndex {
        self.ledger.first_undone()
    }
    /// Symbols still needed, coming or not.
    pub(super) fn missing(&self) -> u64 {
        self.ledger.needed()
    }
    /// Whether symbols beyond `asked` could be asked of a flow now.
    #[inline]
    pub(super) fn needs_beyond(&self, place: usize, asked: u64) -> bool {
        let needed = if self.trials == 0 { self.needed } else { self.needed_of(place) };
        needed > asked || (self.ledger.untouched() > 0 && needed + self.openable() > asked)
    }

    /// Symbols that open blocks need and this flow may be asked for.
    #[cold]
    fn needed_of(&self, place: usize) -> u64 {
        let may = |block: &&Block| block.may_be_asked_of(place, &self.places);
        self.ledger.iter().filter(may).map(|block| u64::from(block.needs())).sum()
    }
    /// Whether all that is needed is coming.
    #[inline]
    pub(super) fn needs_nothing(&self) -> bool {
        self.needed == 0 && self.ledger.untouched() == 0
    }
    /// Whether symbols are waited for, and not only for the decoder.
    pub(super) fn is_filling(&self) -> bool {
        self.ledger.untouched() > 0 || self.undone() as usize > self.decoding()
    }
    /// Number of attempts at a block.
    pub(super) fn attempts(&self, block: BlockIndex) -> u8 {
        self.ledger.get(block.0).map_or(0, |entry| entry.here.attempts())
    }

    /// A lower bound of what fresh blocks would need that may be opened: one each.
    fn openable(&self) -> u64 {
        let end = self.ledger.wanted().end;
        let room = self.most_open - self.span().min(self.most_open);
        let blocks = u64::from(end - self.next.min(end)).min(room as u64);
        match blocks {
            0 => 0,
            _ => self.ledger.untouched().min(blocks * u64::from(self.ledger.source_symbols(self.next))),
        }
    }

    // ---- opening

    /// Opens the next block, or passes one that is done. False if there is no room or no block.
    fn open_next(&mut self) -> bool {
        let block = self.next;
        if block >= self.ledger.wanted().end || self.span() >= self.most_open {
            return false;
        }
        self.next += 1;
        if !self.ledger.is_done(block) {
            self.ledger.open(block, Asked::new(self.places.len()));
            self.needed += u64::from(self.ledger.source_symbols(block));
        }
        true
    }

    /// Opens everything up to a block, if there is room.
    fn open_through(&mut self, block: u32) -> Option<usize> {
        if !(self.ledger.wanted().contains(&block) && block >= self.base()) {
            return None;
        }
        while self.next <= block {
            if !self.open_next() {
                return None;
            }
        }
        self.ledger.find(block)
    }

    // ---- arriving

    /// A symbol has come from a flow, or its header. `counted`: it was coming, and is not one that was given up or sent to others.
    #[inline]
    pub(super) fn arrive(&mut self, place: usize, symbol: SymbolId, trimmed: bool, counted: bool) -> Arrival {
        let block = symbol.block.0;
        self.places[place].heard = true;
        let own = self.ledger.find_again(block).or_else(|| self.open_through(block));
        let Some(at) = own.filter(|&at| self.ledger[at].here.is_filling()) else {
            if counted {
                self.settle(place, own);
            }
            return if trimmed { Arrival::Trimmed } else { Arrival::Surplus };
        };
        let entry = &mut self.ledger[at];
        let before = entry.needs();
        // It may have been counted as another block's.
        let mut elsewhere = counted;
        if let Some(run) = entry.asked.runs.get_mut(place)
            && run.stride > 0
        {
            run.gone += u32::from(counted);
            if elsewhere && run.coming > 0 {
                elsewhere = false;
                run.coming -= 1;
                entry.asked.coming -= 1;
            }
        }
        let arrival = if trimmed { Arrival::Trimmed } else { entry.take(place, &self.places[place], symbol) };
        let after = entry.needs();
        if arrival == Arrival::Complete {
            self.ledger.decode(at);
        }
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
        let has = |entry: &Block| entry.asked.coming_from(place) > 0;
        let at = match own {
            Some(at) if has(&self.ledger[at]) => Some(at),
            _ if self.places[place].stray > 0 => {
                self.places[place].stray -= 1;
                return None;
            }
            _ => self.ledger.iter().position(has),
        };
        if let Some(at) = at {
            self.change(at, |entry| entry.asked.take_coming(place, 1));
        }
        at
    }

    /// A packet of a flow is lost; the one before it was of this block.
    pub(super) fn lose(&mut self, place: usize, near: u32) {
        self.lose_of(place, self.ledger.find(near));
    }

    /// A number of symbols that were coming from a flow will not come. Which blocks they are of is not known; the oldest are
    /// charged.
    #[cold]
    pub(super) fn lose_oldest(&mut self, place: usize, count: u32) {
        (0..count).for_each(|_| self.lose_of(place, None));
    }

    /// One that was coming from a flow is lost: of this block, or else of the oldest.
    fn lose_of(&mut self, place: usize, own: Option<usize>) {
        if let Some(at) = self.settle(place, own) {
            let run = &mut self.ledger[at].asked.runs[place];
            run.gone += 1;
            self.on_loss(at);
        }
    }

    /// Nothing is coming from a flow any more.
    pub(super) fn lose_all(&mut self, place: usize) {
        (self.places[place].stray, self.places[place].heard) = (0, false);
        for at in 0..self.ledger.open_count() {
            let coming = self.ledger[at].asked.coming_from(place);
            if coming > 0 {
                self.change(at, |entry| entry.asked.take_coming(place, coming));
                let run = &mut self.ledger[at].asked.runs[place];
                run.gone += coming;
                self.on_loss(at);
            }
            // Nothing is in flight that a wrong guess could be set right by: whatever is asked for now is more than ever before.
            if let Some(run) = self.ledger[at].asked.runs.get_mut(place) {
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
        for at in 0..self.ledger.open_count() {
            let before = u64::from(self.ledger[at].needs());
            if self.ledger.release(at, flow) {
                self.ask_anew(at);
                self.count_needs(at, before);
                anew.push(BlockIndex(self.ledger[at].number));
            }
        }
        anew
    }

    /// The receiver has left its group: the flow serves it alone from now on, and has sent nothing yet.
    pub(super) fn leave_group(&mut self, place: usize) {
        self.lose_all(place);
        let base = self.base();
        let it = &mut self.places[place];
        it.detached = true;
        (it.told, it.oldest, it.newest) = (0, base, 0);
        for entry in self.ledger.iter_mut() {
            if let Some(run) = entry.asked.runs.get_mut(place) {
                *run = Run::default();
            }
        }
    }

    /// Something of a block is lost, or replaced: decoding takes more symbols than K.
    #[cold]
    fn on_loss(&mut self, at: usize) {
        let entry = &self.ledger[at];
        if entry.here.is_filling() && !entry.asked.lossy {
            self.lossy += 1;
            let extra = self.extra;
            self.change(at, |entry| {
                entry.asked.lossy = true;
                entry.here.want_extra(extra);
            });
        }
    }

    // ---- decoding

    /// The source symbols of a block that have not come, if it waits for the decoder.
    pub(super) fn replaced(&self, block: BlockIndex) -> Option<u32> {
        let here = &self.ledger.get(block.0)?.here;
        (!here.is_filling()).then(|| here.source_symbols_missing())
    }

    /// The block is verified and kept.
    pub(super) fn finish(&mut self, block: BlockIndex) {
        let Some(at) = self.ledger.find(block.0) else { return };
        let trial = &self.ledger[at].here.trial;
        self.trials -= u32::from(trial.has_sole_source());
        if let Some(flow) = trial.sole_source() {
            self.places.iter_mut().filter(|place| place.flow == flow).for_each(|place| place.cleared = true);
        }
        self.let_go(at);
        self.ledger.finish(at);
    }

    /// Symbols of a block that are still coming are useless now.
    fn let_go(&mut self, at: usize) {
        for (place, run) in self.places.iter_mut().zip(&self.ledger[at].asked.runs) {
            place.stray += run.coming;
        }
    }

    /// The symbols here do not determine the block: more are wanted.
    pub(super) fn need_more(&mut self, block: BlockIndex) {
        let Some(at) = self.ledger.find(block.0) else { return };
        let before = u64::from(self.ledger[at].needs());
        self.ledger.need_more(at, self.extra.max(1));
        self.count_needs(at, before);
    }

    /// The block decoded but is wrong: all of it is thrown away and asked of one source alone.
    pub(super) fn corrupt(&mut self, block: BlockIndex) -> Option<Blame> {
        let at = self.ledger.find(block.0)?;
        self.trials += u32::from(!self.ledger[at].here.trial.has_sole_source());
        let before = u64::from(self.ledger[at].needs());
        let blame = self.ledger.corrupt(at);
        self.ask_anew(at);
        self.count_needs(at, before);
        Some(blame)
    }

    /// Nothing of a block that begins anew was asked for.
    fn ask_anew(&mut self, at: usize) {
        self.let_go(at);
        self.ledger[at].asked = Asked::new(self.places.len());
    }

    /// Changes a block, and with it what is needed.
    #[inline]
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Block)) {
        let entry = &mut self.ledger[at];
        let before = u64::from(entry.needs());
        change(entry);
        self.count_needs(at, before);
    }

    /// A block whose need was `before` may need something else now.
    #[inline]
    fn count_needs(&mut self, at: usize, before: u64) {
        let entry = &self.ledger[at];
        let after = u64::from(entry.needs());
        self.needed = self.needed + after - before;
        if after > 0 {
            self.cursor = self.cursor.min(entry.number);
        }
    }
}
