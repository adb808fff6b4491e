//! The symbols that a source was asked for: one run for each open block, and how much of it is sent.
//!
//! ```text
//!   wants of the newest pulls          block   run             of it
//!   3: 17 of 0, 1, 2, ...     ----->   3       0, 1, 2, ...    16 sent of 17      <- what leaves next
//!   5: 4 of 0, 1, 2, ...               4       0, 1, 2, ...    90 sent of 90
//!                                      5       0, 1, 2, ...    0 sent of 4
//! ```
//! The oldest block goes first. Symbols below the oldest one that a receiver wants are settled, and forgotten: if it
//! wants more of them after all, it names a run that begins elsewhere.

use std::collections::VecDeque;

use headwater_machine::Output;
use headwater_units::{BlockIndex, ESI_LIMIT, Esi, FlowId, Geometry, SymbolId};
use headwater_wire::Want;

use crate::SourceEvent;
use headwater_flow::blocks::BlockTable;

/// The runs of one flow, ascending by block.
#[derive(Debug)]
pub(super) struct Runs {
    flow: FlowId,
    geometry: Geometry,
    open: VecDeque<Run>,
    most: usize,
    blocks: BlockTable,
    ahead: u32,
    /// Where the flow began.
    first: u32,
    /// Every block below was prepared, or is settled.
    prepared: u32,
    /// Wants that make no sense.
    refused: u64,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    block: u32,
    start: u32,
    stride: u32,
    count: u32,
    sent: u32,
    /// Below this ESI symbols can be named now.
    ready_below: u32,
}

impl Run {
    fn new(block: u32, start: u32, stride: u32) -> Self {
        Run { block, start, stride, count: 0, sent: 0, ready_below: 0 }
    }

    fn next(&self) -> u32 {
        self.start + self.stride * self.sent
    }

    fn is_ready(&self) -> bool {
        self.sent < self.count && self.next() < self.ready_below
    }
}

impl Runs {
    pub(super) fn new(flow: FlowId, geometry: Geometry, most: usize, ahead: u32) -> Self {
        Runs {
            flow,
            geometry,
            open: VecDeque::new(),
            most: most.max(2),
            blocks: BlockTable::default(),
            ahead,
            first: 0,
            prepared: 0,
            refused: 0,
        }
    }

    /// Sets the number of symbols of a run that are wanted in all. A run that begins elsewhere, or goes by other steps,
    /// replaces the block's run before; `grow`: of the same run never fewer than before.
    pub(super) fn want(&mut self, want: &Want, grow: bool, out: &mut impl Extend<Output<SourceEvent>>) {
        let (block, stride) = (want.block.0, u32::from(want.stride));
        let source_symbols = self.geometry.source_symbols(want.block);
        if source_symbols == 0 || stride == 0 || want.start >= ESI_LIMIT {
            self.refused += 1;
            return;
        }
        let count = u32::from(want.count.get());
        let at = match self.open.iter().rposition(|run| run.block <= block) {
            Some(at) if self.open[at].block == block => at,
            below => {
                let mut at = below.map_or(0, |below| below + 1);
                if self.open.len() >= self.most {
                    // A receiver that wants symbols of more blocks than fit does without those of the oldest.
                    if at == 0 {
                        self.refused += 1;
                        return;
                    }
                    self.drop_first(out);
                    at -= 1;
                }
                let run = Run::new(block, want.start, stride);
                self.open.insert(at, run);
                at
            }
        };
        let run = &mut self.open[at];
        if (run.start, run.stride) != (want.start, stride) {
            *run = Run { ready_below: run.ready_below, ..Run::new(block, want.start, stride) };
        }
        if count > run.count || !grow {
            run.count = count;
        }
        let repair = want.start + stride * (count - 1) >= source_symbols;
        if run.ready_below == 0 || (repair && run.ready_below < ESI_LIMIT) {
            self.make_ready(at, repair, source_symbols, out);
        }
        if self.prepared == 0 {
            self.first = block;
        }
        if block.saturating_add(self.reach(block)) >= self.prepared {
            self.prepare_ahead(block, out);
        }
    }

    /// Has the driver make a block ready, unless it is or was told to.
    #[cold]
    fn make_ready(
        &mut self,
        at: usize,
        repair: bool,
        source_symbols: u32,
        out: &mut impl Extend<Output<SourceEvent>>,
    ) {
        let run = &mut self.open[at];
        let block = BlockIndex(run.block);
        self.blocks.prepare(self.flow, block, repair, out);
        run.ready_below = ready_below(&self.blocks, block, source_symbols);
    }

    /// How far beyond the newest block that is wanted: one block at first, one more with each that has been wanted. The first is then
    /// not held up by those that have time, on hosts where many flows begin at once.
    #[inline]
    fn reach(&self, newest: u32) -> u32 {
        newest.saturating_sub(self.first).saturating_add(1).min(self.ahead)
    }

    /// The next blocks will be wanted soon.
    #[cold]
    fn prepare_ahead(&mut self, newest: u32, out: &mut impl Extend<Output<SourceEvent>>) {
        let reached = newest.saturating_add(self.reach(newest) + 1);
        for block in self.prepared.max(newest)..reached.min(self.geometry.layout().block_count()) {
            self.blocks.prepare(self.flow, BlockIndex(block), false, out);
        }
        self.prepared = self.prepared.max(reached);
    }

    /// The driver has a block.
    pub(super) fn on_ready(&mut self, block: BlockIndex, repair: bool) {
        if !self.blocks.on_ready(block, repair) {
            return;
        }
        let source_symbols = self.geometry.source_symbols(block);
        if let Some(run) = self.open.iter_mut().find(|run| run.block == block.0) {
            run.ready_below = ready_below(&self.blocks, block, source_symbols);
        }
    }

    /// Nothing is wanted of the blocks below this one.
    #[inline]
    pub(super) fn settle_below(&mut self, block: BlockIndex, out: &mut impl Extend<Output<SourceEvent>>) {
        while self.open.front().is_some_and(|run| run.block < block.0) {
            self.drop_first(out);
        }
    }

    /// Nothing is wanted.
    pub(super) fn clear(&mut self, out: &mut impl Extend<Output<SourceEvent>>) {
        self.open.clear();
        self.blocks.release_all(self.flow, |_| false, out);
        self.prepared = 0;
    }

    fn drop_first(&mut self, out: &mut impl Extend<Output<SourceEvent>>) {
        if let Some(run) = self.open.pop_front() {
            // Also what was prepared and is skipped.
            let below = self.open.front().map_or(run.block + 1, |next| next.block);
            self.blocks.release_all(self.flow, |block| block.0 >= below, out);
        }
    }

    /// The symbol that leaves next, if one is wanted and can be named.
    #[inline]
    pub(super) fn next(&mut self) -> Option<SymbolId> {
        let run = self.open.iter_mut().find(|run| run.is_ready())?;
        let symbol = SymbolId { block: BlockIndex(run.block), esi: Esi(run.next()) };
        run.sent += 1;
        Some(symbol)
    }

    /// Whether a symbol is wanted that can be named.
    pub(super) fn has_next(&self) -> bool {
        self.open.iter().any(Run::is_ready)
    }

    /// Whether a symbol is wanted, here or not.
    pub(super) fn wants_more(&self) -> bool {
        self.open.iter().any(|run| run.sent < run.count)
    }

    /// Whether a symbol is wanted, and nothing that can be named.
    pub(super) fn is_starved(&self) -> bool {
        !self.has_next() && self.open.iter().any(|run| run.sent < run.count && run.next() < ESI_LIMIT)
    }

    /// Wants that were ignored.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

fn ready_below(blocks: &BlockTable, block: BlockIndex, source_symbols: u32) -> u32 {
    let known = blocks.get(block);
    match (known.is_ready(true), known.is_ready(false)) {
        (true, _) => ESI_LIMIT,
        (false, true) => source_symbols,
        (false, false) => 0,
    }
}
