//! Which symbols were asked for and of which source, and which of nobody yet; the ledger says what has arrived.
//!
//! ```text
//!   untouched --open--> asked for (a share of a flow) --arrives--> here --enough--> decoding --verified--> done
//!                            |        ^
//!                flow dies   v        | another flow takes it
//!                           the pool -+
//! ```

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{BlockIndex, ESI_LIMIT, Esi, FlowId, Geometry, NodeId, SymbolId, Time};
use headwater_wire::SpreadRule;

use super::flow::Flow;
use super::stripes::Stripe;
use headwater_flow::task::blame::Blame;
use headwater_flow::task::ledger::{self, Here, Ledger};

/// A part of a block that one flow was asked for: the ESIs `range`, of which `missing` have not come.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) flow: FlowId,
    pub(super) range: Range<u32>,
    missing: u32,
}

/// Requests for a block in reception.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) shares: Vec<Share>,
    next_repair: u32,
    /// When repair symbols were last asked for to help along.
    pub(super) helped_at: Option<Time>,
    /// Source symbols here of each class of the equal rule; empty under the others.
    here_by_class: Vec<u32>,
}

/// A block in reception.
pub(super) type Block = ledger::Block<Asked>;

/// Result of an arrival.
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
    ledger: Ledger<Asked>,
    /// By stripe: its first block that is neither done nor was opened, if none above it was. One, where there are no stripes.
    fresh: Vec<u32>,
    pool: BTreeMap<u32, Vec<Range<u32>>>,
    pooled: u64,
}

impl Blocks {
    /// Every wanted block but those in `have` is to be had.
    pub(super) fn new(geometry: Geometry, wanted: Range<u32>, have: &[BlockIndex]) -> Self {
        let ledger = Ledger::new(geometry, wanted, have);
        let fresh = vec![ledger.first_undone().0];
        Blocks { ledger, fresh, pool: BTreeMap::new(), pooled: 0 }
    }

    /// Goes on with what came by another transport: nobody was asked for the rest.
    pub(super) fn resume(ledger: Ledger<()>) -> Self {
        let mut ledger = ledger.map(|here| Asked::new(here.next_repair()));
        let fresh = vec![ledger.open_between(Asked::new)];
        let mut blocks = Blocks { ledger, fresh, pool: BTreeMap::new(), pooled: 0 };
        blocks.skip_done(Stripe::ALL);
        for place in 0..blocks.ledger.open_count() {
            let Block { number, here, asked } = &mut blocks.ledger[place];
            if !here.is_filling() {
                continue;
            }
            let block = *number;
            let runs = match missing_runs(here, &(0..here.source_symbols())) {
                // The symbols that decoding turned out to need beyond them.
                none if none.is_empty() => vec![asked.fresh_repair(here.missing())],
                runs => runs,
            };
            runs.into_iter().for_each(|run| blocks.add_to_pool(block, run));
        }
        blocks
    }

    /// State for another transport that goes on with the object.
    pub(super) fn into_ledger(self) -> Ledger<()> {
        self.ledger.map(|_| ())
    }

    /// The blocks that were not opened come in `of` stripes from now on, each in its order.
    pub(super) fn set_stripes(&mut self, of: u8) {
        let first = self.ledger.first_undone().0;
        self.fresh = (0..of).map(|index| Stripe::new(index, of).first_from(first)).collect();
        (0..of).for_each(|index| self.skip_done(Stripe::new(index, of)));
    }

    fn skip_done(&mut self, stripe: Stripe) {
        let (end, striped) = (self.ledger.wanted().end, self.fresh.len() > 1);
        let fresh = &mut self.fresh[stripe.index()];
        // Without stripes none above the first that was not opened is open.
        let is_passed = |block| self.ledger.is_done(block) || striped && self.ledger.find(block).is_some();
        while *fresh < end && is_passed(*fresh) {
            *fresh = stripe.next(*fresh);
        }
    }

    /// The first block that was not opened, without stripes.
    fn first_fresh(&self) -> u32 {
        self.fresh[0]
    }

    /// Whether every wanted block is done.
    pub(super) fn all_done(&self) -> bool {
        self.undone() == 0
    }
    /// Blocks still to be had.
    pub(super) fn undone(&self) -> u32 {
        self.ledger.undone()
    }
    /// Blocks wanted in all.
    pub(super) fn wanted(&self) -> u32 {
        self.ledger.wanted_blocks()
    }
    /// Every wanted block below is done.
    pub(super) fn first_undecoded(&self) -> BlockIndex {
        self.ledger.first_undone()
    }
    /// Symbols still needed, of all blocks.
    pub(super) fn needed(&self) -> u64 {
        self.ledger.needed()
    }
    /// Symbols that nobody was asked for.
    pub(super) fn unassigned(&self) -> u64 {
        self.pooled + self.ledger.untouched()
    }
    /// Blocks of which something is here but that are not done.
    pub(super) fn in_reception(&self) -> usize {
        self.ledger.iter().filter(|b| b.here.symbols() > 0 || !b.here.is_filling()).count()
    }
    /// Blocks that were asked for and are not done.
    pub(super) fn opened(&self) -> usize {
        self.ledger.open_count()
    }
    /// Blocks that wait for the decoder, the hash or the disk.
    pub(super) fn decoding(&self) -> usize {
        self.ledger.decoding()
    }
    /// A block in reception.
    pub(super) fn get(&self, block: BlockIndex) -> Option<&Block> {
        self.ledger.get(block.0)
    }
    /// The blocks in reception, ascending.
    pub(super) fn open(&self) -> impl Iterator<Item = &Block> {
        self.ledger.iter()
    }

    /// Opens blocks for the residue rule, where sources choose: everything from the first undecoded on.
    #[inline]
    pub(super) fn open_through(&mut self, block: BlockIndex, most: impl FnOnce() -> usize) {
        if self.first_fresh() > block.0 {
            return;
        }
        let most = most();
        while self.first_fresh() <= block.0 && self.ledger.open_count() < most {
            if self.open_fresh(Stripe::ALL).is_none() {
                return;
            }
        }
    }

    pub(super) fn is_open(&self, block: BlockIndex) -> bool {
        self.ledger.find(block.0).is_some()
    }

    /// Opens the next block of a stripe, if there is one.
    fn open_fresh(&mut self, stripe: Stripe) -> Option<u32> {
        let block = self.fresh[stripe.index()];
        if block >= self.ledger.wanted().end {
            return None;
        }
        let asked = Asked::new(self.ledger.source_symbols(block));
        self.ledger.open(block, asked);
        self.fresh[stripe.index()] = stripe.next(block);
        self.skip_done(stripe);
        Some(block)
    }

    /// Takes in a symbol from one of `of` places. `settle` hears of every flow that owes one symbol (or more) less now.
    // Called at one place, once for every symbol; a call costs a fifth of what it does.
    #[inline(always)]
    pub(super) fn arrive(
        &mut self,
        flow: FlowId,
        node: NodeId,
        symbol: SymbolId,
        rule: SpreadRule,
        (of, relays): (u8, bool),
        mut settle: impl FnMut(FlowId, u32),
    ) -> Arrival {
        let Some(place) = self.ledger.find_again(symbol.block.0) else { return Arrival::Useless };
        let Block { here, asked, .. } = &mut self.ledger[place];
        let esi = symbol.esi.0;
        let refused = !here.is_filling()
            || !here.trial.admits(flow)
            || esi >= if rule == SpreadRule::Listed { asked.next_repair } else { ESI_LIMIT };
        if refused || !here.insert(esi) {
            return Arrival::Useless;
        }
        // A host that passes it on has not verified it, unless it was asked again.
        let hearsay = relays && here.attempts() == 0;
        here.trial.on_symbol(flow, node, hearsay);
        if rule == SpreadRule::Equal {
            asked.count_class(esi, of);
        }
        for share in asked.shares.iter_mut().filter(|share| share.range.contains(&esi)) {
            share.missing -= 1;
            settle(share.flow, 1);
        }
        asked.shares.retain(|share| share.missing > 0);
        if here.missing() > 0 {
            return Arrival::Kept;
        }
        for share in asked.shares.drain(..) {
            settle(share.flow, share.missing);
        }
        self.ledger.decode(place);
        self.drop_from_pool(symbol.block.0);
        Arrival::Complete
    }

    /// The block is verified and kept. Returns the sources that took part when it failed before, but not now that it
    /// came right: that makes them suspicious.
    pub(super) fn finish(&mut self, block: BlockIndex) -> BTreeSet<NodeId> {
        let finished = self.ledger.find(block.0).and_then(|place| self.ledger.finish(place));
        let Some(finished) = finished else { return BTreeSet::new() };
        debug_assert!(finished.asked.shares.is_empty(), "a complete block is owed by nobody");
        if let [_] = self.fresh[..] {
            self.skip_done(Stripe::ALL);
        }
        finished.here.trial.on_verified()
    }

    /// The symbols here do not determine the block: two more are wanted (each extra one makes failure 100 times rarer,
    /// SCDP §II). Returns the flow that now owes them, if the block is asked of one alone.
    pub(super) fn need_more(&mut self, block: BlockIndex) -> Option<(FlowId, u32)> {
        let place = self.ledger.find(block.0)?;
        self.ledger.need_more(place, 2);
        let Block { here, asked, .. } = &mut self.ledger[place];
        let range = asked.fresh_repair(2);
        if let Some(flow) = here.trial.sole_source() {
            asked.shares.push(Share { flow, range, missing: 2 });
            return Some((flow, 2));
        }
        self.add_to_pool(block.0, range);
        None
    }

    /// The block decoded but is wrong: everything of it is thrown away and asked of one source alone.
    pub(super) fn corrupt(&mut self, block: BlockIndex) -> Option<Blame> {
        let place = self.ledger.find(block.0)?;
        let blame = self.ledger.corrupt(place);
        self.ask_anew(place);
        Some(blame)
    }

    /// Blocks to come that a liar has sent a part of begin anew, but those that are asked of others too. Returns them.
    pub(super) fn forget_from(&mut self, node: NodeId) -> Vec<BlockIndex> {
        let is_spoiled = |block: &Block| {
            block.here.is_filling() && block.here.trial.has_from(node) && block.asked.shares.is_empty()
        };
        let spoiled: Vec<usize> =
            (0..self.ledger.open_count()).filter(|&place| is_spoiled(&self.ledger[place])).collect();
        let forget = |place: usize| {
            self.ledger.forget(place);
            self.ask_anew(place);
            BlockIndex(self.ledger[place].number)
        };
        spoiled.into_iter().map(forget).collect()
    }

    /// All of a block that has begun anew is to be asked for.
    fn ask_anew(&mut self, place: usize) {
        let Block { number, here, asked } = &mut self.ledger[place];
        debug_assert!(asked.shares.is_empty(), "a block starts anew only when nobody owes it");
        asked.here_by_class.clear();
        let (block, all) = (*number, 0..here.source_symbols());
        self.drop_from_pool(block);
        self.add_to_pool(block, all);
    }

    /// How often this block was tried.
    pub(super) fn attempts(&self, block: BlockIndex) -> u8 {
        self.ledger.get(block.0).map_or(0, |b| b.here.attempts())
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

    /// Whether no block is left that nobody was asked for.
    pub(super) fn are_all_asked_for(&self) -> bool {
        self.fresh.iter().all(|fresh| *fresh >= self.ledger.wanted().end)
    }

    /// Gives a flow up to `most` unassigned symbols of one block of a stripe: the lowest that is in the pool, else a new one.
    /// A block is split only if `split`. Returns the block and how many symbols, or nothing if there is nothing to give.
    /// Opens no new block but below `open_below`.
    pub(super) fn take(
        &mut self,
        flow: FlowId,
        most: u32,
        split: bool,
        open_below: u32,
        stripe: Stripe,
    ) -> Option<(BlockIndex, u32)> {
        let block = match self.pool.keys().find(|block| stripe.has(**block)) {
            Some(&block) => block,
            None if self.fresh[stripe.index()] < open_below => {
                let block = self.open_fresh(stripe)?;
                self.add_to_pool(block, 0..self.ledger.source_symbols(block));
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
        let place = self.ledger.find(block).expect("only open blocks are in the pool");
        let whole = !split || self.ledger[place].here.trial.has_sole_source();
        if !whole && range.end - range.start > most.max(1) {
            let rest = range.start + most.max(1)..range.end;
            range.end = rest.start;
            self.add_to_pool(block, rest);
        }
        let Block { here, asked, .. } = &mut self.ledger[place];
        here.trial.give(flow);
        let missing = missing_in(here, &range);
        asked.shares.push(Share { flow, range, missing });
        Some((BlockIndex(block), missing))
    }

    /// A flow is asked for nothing of a stripe any more: what it owed goes back to the pool, whoever else is asked for it, since that one may
    /// wait for this very receiver. Returns blocks that must be restarted,
    /// because they were asked of it alone, and how many symbols it owed.
    pub(super) fn release(&mut self, flow: FlowId, stripe: Stripe) -> (Vec<BlockIndex>, u64) {
        let has = |ledger: &Ledger<Asked>, place: usize| stripe.has(ledger[place].number);
        let owed: u64 = (self.ledger.iter().filter(|block| stripe.has(block.number)))
            .flat_map(|block| block.asked.shares.iter().filter(|share| share.flow == flow))
            .map(|share| u64::from(share.missing))
            .sum();
        let anew: Vec<usize> = (0..self.ledger.open_count())
            .filter(|&place| has(&self.ledger, place) && self.ledger.release(place, flow))
            .collect();
        for &place in &anew {
            self.ledger[place].asked.shares.clear();
        }
        let mut back = Vec::new();
        for Block { number, here, asked } in self.ledger.iter_mut().filter(|block| stripe.has(block.number)) {
            let mut kept = Vec::with_capacity(asked.shares.len());
            for share in std::mem::take(&mut asked.shares) {
                if share.flow == flow {
                    back.extend(missing_runs(here, &share.range).into_iter().map(|run| (*number, run)));
                } else {
                    kept.push(share);
                }
            }
            asked.shares = kept;
        }
        for (block, run) in back {
            self.add_to_pool(block, run);
        }
        for &place in &anew {
            self.ask_anew(place);
        }
        (anew.into_iter().map(|place| BlockIndex(self.ledger[place].number)).collect(), owed)
    }

    /// Moves up to `most` not yet sent symbols from the end of what `from` owes in `block` back to the pool. Returns how
    /// many.
    pub(super) fn take_back_tail(&mut self, from: FlowId, block: BlockIndex, most: u32) -> u32 {
        let Some(Block { here, asked, .. }) = self.ledger.get_mut(block.0) else { return 0 };
        if here.trial.has_sole_source() {
            return 0;
        }
        let Some(at) = asked.shares.iter().rposition(|share| share.flow == from) else { return 0 };
        let range = asked.shares[at].range.clone();
        // Symbols are sent in ascending order, so those behind the last arrival are the ones that may not be in flight.
        let unsent = range.clone().rev().take_while(|&esi| !here.has(esi)).count() as u32;
        let count = unsent.min(most);
        if count == 0 {
            return 0;
        }
        let tail = range.end - count..range.end;
        let share = &mut asked.shares[at];
        share.range.end = tail.start;
        share.missing -= count;
        if share.missing == 0 {
            asked.shares.remove(at);
        }
        self.add_to_pool(block.0, tail);
        count
    }

    /// Asks `flow` for `count` new repair symbols of a block that others are slow with.
    pub(super) fn help(&mut self, now: Time, flow: FlowId, block: BlockIndex, count: u32) -> u32 {
        let Some(Block { here, asked, .. }) = self.ledger.get_mut(block.0) else { return 0 };
        if !here.is_filling() || here.trial.has_sole_source() || asked.next_repair + count >= ESI_LIMIT {
            return 0;
        }
        let range = asked.fresh_repair(count);
        asked.helped_at = Some(now);
        asked.shares.push(Share { flow, range, missing: count });
        count
    }

    /// Asks `flow` for all that is missing of an open block, beside whoever is asked for it already. Returns how many symbols, none if the
    /// flow is asked for it, or must not be.
    pub(super) fn ask_beside(&mut self, flow: FlowId, block: BlockIndex) -> u32 {
        let Some(Block { here, asked, .. }) = self.ledger.get_mut(block.0) else { return 0 };
        let is_asked = asked.shares.iter().any(|share| share.flow == flow);
        if is_asked || !here.is_filling() || here.trial.has_sole_source() {
            return 0;
        }
        let runs = missing_runs(here, &(0..here.source_symbols()));
        let shares = runs.into_iter().map(|range| Share { flow, missing: range.end - range.start, range });
        let before = asked.shares.len();
        asked.shares.extend(shares);
        asked.shares[before..].iter().map(|share| share.missing).sum()
    }

    /// By stripe: the blocks that are asked for and not complete, in their order.
    pub(super) fn filling(&self, of: u8) -> Vec<Vec<u32>> {
        let mut filling = vec![Vec::new(); usize::from(of)];
        for block in self.ledger.iter().filter(|block| block.here.is_filling()) {
            filling[block.number as usize % usize::from(of)].push(block.number);
        }
        filling
    }

    /// Whether anything is to be expected of a flow.
    pub(super) fn expects(&self, flow: &Flow, rule: SpreadRule) -> bool {
        let mut filling = self.ledger.iter().filter(|block| block.here.is_filling());
        let end = self.ledger.wanted().end;
        match rule {
            SpreadRule::Listed => flow.asked.outstanding > 0,
            SpreadRule::Residue => self.first_fresh() < end || filling.next().is_some(),
            SpreadRule::Equal => {
                let mut fresh = (self.first_fresh()..end).filter(|&block| !self.ledger.is_done(block));
                filling.any(|block| missing_of_class(block, flow) > 0)
                    || fresh.any(|block| class_size(self.ledger.source_symbols(block), flow) > 0)
            }
        }
    }

    /// Whether a block is wanted, but there is no room for it yet.
    pub(super) fn is_too_early(&self, block: BlockIndex) -> bool {
        self.ledger.wanted().contains(&block.0)
            && block.0 >= self.first_fresh()
            && !self.ledger.is_done(block.0)
    }

    /// Number of symbols that a source still owes of a block.
    ///
    /// With the residue rule its part of what is missing (PPUSH §III-A, footnote 1: u - v + 2). The footnote's estimate is
    /// an equal part for each of N sources. Here it is the part that the source had in the arrivals lately: otherwise a
    /// slow source goes on with a block that a fast one finishes before its symbols arrive (two sources of 20 : 1 with
    /// blocks of 1024 symbols: most of what the slow one sent came too late, and Fig. 6 could not be had).
    pub(super) fn owed(&self, block: BlockIndex, flow: &Flow, rule: SpreadRule, inflow: Inflow) -> u64 {
        let Some(entry) = self.ledger.get(block.0) else {
            return self.owed_unopened(block, flow, rule, inflow);
        };
        if !entry.here.is_filling() {
            return 0;
        }
        match rule {
            SpreadRule::Equal => u64::from(missing_of_class(entry, flow)),
            SpreadRule::Listed => {
                let own = entry.asked.shares.iter().filter(|share| share.flow == flow.id());
                own.map(|share| u64::from(share.missing)).sum()
            }
            SpreadRule::Residue => inflow.part_of(entry.here.missing() + 2, flow),
        }
    }

    #[cold] // An ACK seldom speaks of a block that is not open.
    fn owed_unopened(&self, block: BlockIndex, flow: &Flow, rule: SpreadRule, inflow: Inflow) -> u64 {
        if !self.ledger.wanted().contains(&block.0) || self.ledger.is_done(block.0) {
            0
        } else if rule == SpreadRule::Equal {
            u64::from(class_size(self.ledger.source_symbols(block.0), flow))
        } else {
            inflow.part_of(self.ledger.source_symbols(block.0) + 2, flow)
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
    /// A flow's part of `symbols` symbols, at least one; equal parts as long as little has come.
    fn part_of(self, symbols: u32, flow: &Flow) -> u64 {
        let own = u64::from(flow.recent) + 1;
        let all = u64::from(self.recent) + u64::from(self.flows.max(1));
        (u64::from(symbols) * own).div_ceil(all)
    }
}

impl Asked {
    fn new(next_repair: u32) -> Self {
        Asked { shares: Vec::new(), next_repair, helped_at: None, here_by_class: Vec::new() }
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
}

/// Source symbols of a flow's class of the equal rule that are not here.
fn missing_of_class(block: &Block, flow: &Flow) -> u32 {
    let all = class_size(block.here.source_symbols(), flow);
    let here = block.asked.here_by_class.get(usize::from(flow.grant.index)).map_or(0, |here| *here);
    all.saturating_sub(here)
}

fn missing_in(here: &Here, range: &Range<u32>) -> u32 {
    range.clone().filter(|&esi| !here.has(esi)).count() as u32
}

fn missing_runs(here: &Here, range: &Range<u32>) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for esi in range.clone().filter(|&esi| !here.has(esi)) {
        match runs.last_mut() {
            Some(run) if run.end == esi => run.end = esi + 1,
            _ => runs.push(esi..esi + 1),
        }
    }
    runs
}

/// Source symbols i, i + M, i + 2M and so on below K.
fn class_size(source_symbols: u32, flow: &Flow) -> u32 {
    let (index, of) = (flow.grant.index, flow.grant.of);
    source_symbols.saturating_sub(u32::from(index)).div_ceil(u32::from(of.max(1)))
}

impl Share {
    /// First ESI of the share.
    pub(super) fn first(&self) -> Esi {
        Esi(self.range.start)
    }
    /// Whether it is exactly all source symbols of its block.
    pub(super) fn is_whole(&self, block: &Block) -> bool {
        self.range == (0..block.here.source_symbols())
    }
}
