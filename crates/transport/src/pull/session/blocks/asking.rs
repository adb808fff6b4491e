//! Of which block a flow is asked for its next symbol (SCDP §III-G: the next one when all that is needed of the one before is
//! coming), and what its source is told.

use core::num::NonZeroU16;

use headwater_units::{BlockIndex, ESI_LIMIT, SymbolId};
use headwater_wire::Want;

use super::Blocks;
use super::block::{AskedBlock, Block, FlowView, OWN_REPAIR, Run};
use crate::pull::class_of;

/// Longest run; a longer one goes on as another: a want counts in 16 bits.
const LONGEST_RUN: u32 = 60_000;
/// Number of next blocks of which a source sends its part before it helps out with repair symbols of the first.
const PARTS_AHEAD: usize = 2;

impl Blocks {
    /// A source pushes this much unasked.
    pub(in crate::pull::session) fn expect(&mut self, place: usize, block: BlockIndex, count: u32) {
        match self.open_through(block.0).filter(|&at| self.ledger[at].here.is_filling()) {
            Some(at) => {
                self.begin_run(at, place);
                self.change(at, |block| block.asked.add_coming(place, count));
                self.places[place].newest = self.places[place].newest.max(block.0);
            }
            None => self.places[place].stray += count,
        }
    }

    /// A flow is asked for one more symbol: of which block it is to be. `None` if there is none to ask it for.
    #[inline]
    pub(in crate::pull::session) fn assign(&mut self, place: usize) -> Option<BlockIndex> {
        let at = self.pick(place)?;
        self.begin_run(at, place);
        self.move_run(at, place);
        let entry = &mut self.ledger[at];
        let block = entry.number;
        let run = &mut entry.asked.runs[place];
        let next = run.start + run.stride * (run.gone + run.coming);
        if next >= ESI_LIMIT {
            return None;
        }
        // Source symbols alone determine a block by themselves.
        let mixed = next >= entry.here.source_symbols() && !entry.asked.lossy;
        let before = u64::from(entry.needs());
        let run = &mut entry.asked.runs[place];
        run.coming += 1;
        run.told = run.told.max(run.gone + run.coming);
        entry.asked.coming += 1;
        self.needed = self.needed + u64::from(entry.needs()) - before;
        entry.here.trial.give(self.places[place].flow);
        if mixed {
            self.on_loss(at);
        }
        let it = &mut self.places[place];
        it.oldest = it.oldest.min(block);
        it.newest = it.newest.max(block);
        Some(BlockIndex(block))
    }

    /// Asks a flow to push the symbols of a window, of two blocks at most: a pull names no more. Returns how many it
    /// can be, and of which block the last is.
    pub(in crate::pull::session) fn assign_window(
        &mut self,
        place: usize,
        window: u32,
    ) -> Option<(u32, BlockIndex)> {
        let (mut first, mut last, mut pushed) = (None, None, 0);
        while pushed < window {
            let Some(block) = self.assign(place) else { break };
            let is_third = first != last && last != Some(block);
            if let Some(at) = self.ledger.find(block.0).filter(|_| is_third) {
                self.change(at, |entry| entry.asked.take_coming(place, 1));
                break;
            }
            first.get_or_insert(block);
            last = Some(block);
            pushed += 1;
        }
        last.map(|last| (pushed, last))
    }

    /// The oldest block that needs symbols; where sources share a block of which nothing is lost yet, the oldest that needs some
    /// of this one's part, if that is not far behind: a block of source symbols alone needs no decoding.
    #[inline]
    fn pick(&mut self, place: usize) -> Option<usize> {
        let FlowView { index, of, detached, .. } = self.places[place];
        let (mut fallback, mut passed) = (None, 0);
        let (mut next, mut nothing_needed) = (self.ledger.place_from(self.cursor), true);
        loop {
            let at = next;
            let Some(entry) = self.ledger.at(at) else {
                if !self.open_next() {
                    return fallback;
                }
                continue;
            };
            next += 1;
            if entry.needs() == 0 {
                if nothing_needed {
                    self.cursor = entry.number + 1;
                }
                continue;
            }
            nothing_needed = false;
            if entry.here.trial.has_sole_source() {
                if entry.may_be_asked_of(place, &self.places) {
                    return Some(at);
                }
                continue;
            }
            if of == 1 || detached || entry.asked.lossy || entry.has_part_left(place, index, of) {
                return Some(at);
            }
            if !entry.is_left_to_others(place, &self.places) {
                fallback.get_or_insert(at);
                passed += 1;
                if passed > PARTS_AHEAD {
                    return fallback;
                }
            }
        }
    }

    /// Where a flow begins in a block, if it has not.
    #[inline]
    fn begin_run(&mut self, at: usize, place: usize) {
        let Block { number, here, asked } = &mut self.ledger[at];
        if asked.runs.len() <= place {
            asked.runs.resize(self.places.len(), Run::default());
        }
        if asked.runs[place].stride > 0 {
            return;
        }
        let it = &self.places[place];
        let (start, stride) = if here.trial.has_sole_source() {
            // The source is to see that it is another run than the one before.
            let again = here.attempts() > 1 || it.of == 1;
            (if again { OWN_REPAIR + u32::from(here.attempts().min(200)) * (1 << 16) } else { 0 }, 1)
        } else if it.detached {
            (if here.symbols() > 0 { OWN_REPAIR } else { 0 }, 1)
        } else {
            // One that has taken the place of another begins where that one stopped.
            let others = self.places.iter().zip(&asked.runs).filter(|(other, run)| {
                other.flow != it.flow
                    && !other.detached
                    && run.stride > 0
                    && (other.index, other.of) == (it.index, it.of)
            });
            let taken = others.map(|(_, run)| run.gone + run.coming).max().unwrap_or(0);
            let stride = u32::from(it.of);
            let mut start = class_of(*number, it.index, it.of);
            // The members of a group have one run together, and not all of them have the same of a block that was begun before.
            while asked.begun_before && !it.grouped && start < here.source_symbols() && here.has(start) {
                start += stride;
            }
            (start + stride * taken, stride)
        };
        asked.runs[place] = Run { start, stride, ..Run::default() };
    }

    /// A symbol that came to a group, whichever member had asked: the source's run has gone at least that far. To a
    /// member that the others are ahead of, asking for less of it brings nothing.
    pub(in crate::pull::session) fn catch_up(&mut self, place: usize, symbol: SymbolId) {
        let Some(at) = self.ledger.find(symbol.block.0).filter(|&at| self.ledger[at].here.is_filling())
        else {
            return;
        };
        self.begin_run(at, place);
        let run = &mut self.ledger[at].asked.runs[place];
        let Some(ahead) = symbol.esi.0.checked_sub(run.start).filter(|ahead| ahead % run.stride == 0) else {
            return;
        };
        let (sent, asked) = (ahead / run.stride + 1, run.gone + run.coming);
        // No source goes further at once, but for one that lies.
        if sent > asked && sent - asked < LONGEST_RUN {
            run.gone = sent - run.coming;
        }
    }

    /// A run of which the source has forgotten the beginning, or that is too long, goes on as a new one.
    #[inline]
    fn move_run(&mut self, at: usize, place: usize) {
        let run = &mut self.ledger[at].asked.runs[place];
        let asked = run.gone + run.coming;
        if run.forgotten || asked.saturating_sub(run.moved) >= LONGEST_RUN {
            (run.moved, run.forgotten) = (asked, false);
        }
    }

    /// Wants to tell a source: for the oldest block of which something is coming, and for the one that it is asked for
    /// now, or else the newest.
    pub(in crate::pull::session) fn wants(&mut self, place: usize, asked: BlockIndex) -> [Option<Want>; 2] {
        let it = &mut self.places[place];
        if it.told == asked.0 && it.oldest == asked.0 && it.newest == asked.0 {
            // Most pulls are for the same block as the ones before.
            return [self.want(place, asked.0), None];
        }
        let from = self.ledger.place_from(it.oldest.min(asked.0));
        let coming = |entry: &&Block| {
            entry.number >= asked.0 || entry.here.is_filling() && entry.asked.coming_from(place) > 0
        };
        let oldest =
            self.ledger.iter().skip(from).find(coming).map_or(asked.0, |entry| entry.number.min(asked.0));
        it.oldest = oldest;
        let newest = it.newest;
        let second = if asked.0 == oldest { newest } else { asked.0 };
        let first = self.want(place, oldest);
        let second = (second > oldest).then(|| self.want(place, second)).flatten();
        let wants = if first.is_some() { [first, second] } else { [second, None] };
        if let Some(first) = wants[0] {
            self.note_told(place, first.block.0);
        }
        wants
    }

    /// The source hears that nothing is wanted of the blocks below this one.
    #[inline]
    fn note_told(&mut self, place: usize, block: u32) {
        let told = std::mem::replace(&mut self.places[place].told, block);
        for at in self.ledger.place_from(told)..self.ledger.open_count() {
            let entry = &mut self.ledger[at];
            if entry.number >= block {
                break;
            }
            if let Some(run) = entry.asked.runs.get_mut(place) {
                run.forgotten = run.stride > 0;
            }
        }
    }

    fn want(&self, place: usize, block: u32) -> Option<Want> {
        let entry = self.ledger.get(block)?;
        let run = entry.asked.runs.get(place).filter(|run| run.stride > 0 && entry.here.is_filling())?;
        let count = (run.gone + run.coming).saturating_sub(run.moved);
        let want = Want {
            block: BlockIndex(block),
            start: run.start + run.stride * run.moved,
            stride: u8::try_from(run.stride).unwrap_or(u8::MAX),
            count: NonZeroU16::new(u16::try_from(count).unwrap_or(u16::MAX))?,
        };
        (want.last() < ESI_LIMIT).then_some(want)
    }

    /// Some block of which this flow can be asked for a symbol that nobody waits for, to hear whether it is there. Where the
    /// receiver has lost count of what a source has sent, each one makes up for one.
    pub(in crate::pull::session) fn assign_extra(&mut self, place: usize) -> Option<BlockIndex> {
        let block = self.any_for(place)?;
        let at = self.ledger.find(block.0)?;
        let run = &mut self.ledger[at].asked.runs[place];
        run.gone += 1;
        run.told = run.told.max(run.gone + run.coming);
        Some(block)
    }

    /// Some block of which this flow can be asked for a symbol.
    pub(in crate::pull::session) fn any_for(&mut self, place: usize) -> Option<BlockIndex> {
        let flow = self.places[place].flow;
        let may = |block: &Block| {
            block.here.is_filling() && block.here.trial.sole_source().is_none_or(|turn| turn == flow)
        };
        if !self.ledger.iter().any(may) {
            while self.ledger.iter().all(|block| !block.here.is_filling()) {
                if !self.open_next() {
                    return None;
                }
            }
        }
        let at = self.ledger.iter().position(may)?;
        let block = self.ledger[at].number;
        self.begin_run(at, place);
        self.move_run(at, place);
        Some(BlockIndex(block))
    }

    /// A number of symbols that were given up are coming after all.
    pub(in crate::pull::session) fn restore(&mut self, place: usize, count: u32) {
        for done in 0..count {
            let Some(at) = self.pick(place) else {
                self.places[place].stray += count - done;
                return;
            };
            self.begin_run(at, place);
            self.change(at, |entry| entry.asked.add_coming(place, 1));
            let run = &mut self.ledger[at].asked.runs[place];
            run.gone = run.gone.saturating_sub(1).max(run.moved);
            let flow = self.places[place].flow;
            let entry = &mut self.ledger[at];
            entry.here.trial.give(flow);
            let (it, block) = (&mut self.places[place], entry.number);
            (it.oldest, it.newest) = (it.oldest.min(block), it.newest.max(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, Esi, FlowId, FlowKey, Geometry, NodeId, Time};
    use headwater_wire::FlowGrant;

    use super::*;
    use crate::pull::SessionConfig;
    use crate::pull::session::flow::Flow;

    /// Two blocks of 100 symbols from one source.
    fn blocks() -> Blocks {
        let grant = FlowGrant {
            flow: FlowId(1),
            node: NodeId([1; 32]),
            at: Vec::new(),
            key: FlowKey([0; 32]),
            index: 0,
            of: 1,
            group: None,
            relays: false,
        };
        let geometry = Geometry::new(Bytes::kib(512), 2622).unwrap();
        let mut blocks = Blocks::new(geometry, 0..2, &[], 2, 8);
        blocks.add_place(&Flow::new(Time::ZERO, grant, 10, &SessionConfig::data_centre()));
        blocks
    }

    /// Goal: a member of a group that the others are ahead of asks for what was not sent yet, not for what was.
    #[test]
    fn who_is_behind_asks_for_more_than_the_group_was_sent() {
        let symbol = |block, esi| SymbolId { block: BlockIndex(block), esi: Esi(esi) };
        let asked = |blocks: &mut Blocks, block| {
            assert_eq!(blocks.assign(0), Some(BlockIndex(block)));
            blocks.wants(0, BlockIndex(block))[0].unwrap().last() + 1
        };
        let mut blocks = blocks();
        // It had asked for three, the others for a hundred and six, and for all of the next block.
        (0..3).for_each(|_| assert_eq!(blocks.assign(0), Some(BlockIndex(0))));
        for esi in (0..60).chain([105]) {
            blocks.arrive(0, symbol(0, esi), false, esi < 3);
            blocks.catch_up(0, symbol(0, esi));
        }
        assert_eq!(asked(&mut blocks, 0), 107);
        assert_eq!(asked(&mut blocks, 0), 108);
        blocks.catch_up(0, symbol(0, 50));
        assert_eq!(asked(&mut blocks, 0), 109, "an old one changes nothing");
        blocks.catch_up(0, symbol(0, ESI_LIMIT - 1));
        assert_eq!(asked(&mut blocks, 0), 110, "nor what no source sends");
        for esi in 0..98 {
            blocks.arrive(0, symbol(1, esi), false, false);
            blocks.catch_up(0, symbol(1, esi));
        }
        while blocks.assign(0) == Some(BlockIndex(0)) {}
        assert_eq!(blocks.wants(0, BlockIndex(1))[1].unwrap().last() + 1, 99);
    }
}
