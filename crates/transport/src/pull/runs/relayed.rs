//! What was asked for of an object that is still coming ([`crate::pull::relay`]): a run names a class, and is answered with symbols of
//! that class in the order in which they came; once the block is whole, with those of them that did not come, and repair symbols.

use headwater_machine::Output;
use headwater_units::{BlockIndex, ESI_LIMIT, Esi, SymbolId};

use super::{Run, Runs, ready_below};
use crate::SourceEvent;
use crate::pull::relay::{Relayed, Stage};

impl Run {
    /// Whether a symbol is one that was asked for by its class. A run that takes every symbol asks for none by its class.
    fn asks_for_class_of(&self, esi: u32) -> bool {
        self.stride > 1 && esi >= self.start && (esi - self.start).is_multiple_of(self.stride)
    }
}

impl Runs {
    /// The symbol that leaves next, if one is wanted that is here.
    pub(in crate::pull) fn next_relayed(
        &mut self,
        relayed: &Relayed,
        out: &mut impl Extend<Output<SourceEvent>>,
    ) -> Option<SymbolId> {
        for at in 0..self.open.len() {
            let run = &mut self.open[at];
            if run.sent >= run.count {
                continue;
            }
            match relayed.stage(&self.geometry, run.block) {
                Stage::Nothing => {}
                Stage::Listed(symbols) => {
                    while let Some(&esi) = symbols.get(run.listed as usize) {
                        run.listed += 1;
                        if run.asks_for_class_of(esi) {
                            run.sent += 1;
                            return Some(SymbolId { block: BlockIndex(run.block), esi: Esi(esi) });
                        }
                    }
                }
                Stage::Whole => {
                    if let Some(symbol) = self.next_of_whole(at, out) {
                        return Some(symbol);
                    }
                }
            }
        }
        None
    }

    fn next_of_whole(&mut self, at: usize, out: &mut impl Extend<Output<SourceEvent>>) -> Option<SymbolId> {
        let Runs { open, sent_by_list, blocks, geometry, flow, .. } = self;
        let run = &mut open[at];
        let block = BlockIndex(run.block);
        let sent = sent_by_list.get(&run.block).map_or(&[][..], |sent| sent);
        let esi = loop {
            let esi = run.start + run.stride * run.position;
            if esi >= ESI_LIMIT {
                return None;
            }
            if sent.binary_search(&esi).is_err() {
                break esi;
            }
            run.position += 1;
        };
        if esi >= run.ready_below {
            let source_symbols = geometry.source_symbols(block);
            blocks.prepare(*flow, block, esi >= source_symbols, out);
            run.ready_below = ready_below(blocks, block, source_symbols);
            return None;
        }
        run.position += 1;
        run.sent += 1;
        Some(SymbolId { block, esi: Esi(esi) })
    }

    /// A block is whole, of which these symbols had come by themselves.
    pub(in crate::pull) fn on_whole(&mut self, block: BlockIndex, symbols: &[u32]) {
        let Some(run) = self.open.iter().find(|run| run.block == block.0 && run.listed > 0) else { return };
        let sent = symbols.iter().take(run.listed as usize).copied();
        let mut sent: Vec<u32> = sent.filter(|&esi| run.asks_for_class_of(esi)).collect();
        sent.sort_unstable();
        self.sent_by_list.insert(block.0, sent);
    }

    /// What had come of a block, or of all, was thrown away.
    pub(in crate::pull) fn on_anew(&mut self, block: Option<BlockIndex>) {
        let its = self.open.iter_mut().filter(|run| block.is_none_or(|block| run.block == block.0));
        its.for_each(|run| run.listed = 0);
    }
}
