//! Arrived symbols of each block, and those that a flow may ask for.

use headwater_units::{BlockIndex, Esi, FlowId, NodeId, SymbolId};

use crate::task::ledger::{Block, Ledger};

/// Missing symbols of a receiver, as its flows ask for them.
pub trait Asks {
    /// The first symbol of a block, from this ESI on, that is neither here nor of no use; `None`: none.
    fn first_missing(&self, block: BlockIndex, from: u32) -> Option<u32>;

    /// Whether there is room to begin with this block.
    fn has_room(&self, _block: BlockIndex) -> bool {
        true
    }

    /// The first of all symbols, if there are `blocks` blocks.
    fn first_of(&self, blocks: u32) -> Option<SymbolId> {
        (0..blocks).map(BlockIndex).filter(|block| self.has_room(*block)).find_map(|block| {
            let esi = Esi(self.first_missing(block, 0)?);
            Some(SymbolId { block, esi })
        })
    }
}

/// Missing symbols that one flow of a receiver may ask for.
pub struct Lacks<'a> {
    pub(super) blocks: &'a Blocks,
    pub(super) flow: FlowId,
    /// Symbols that other flows are to bring.
    pub(super) awaited: &'a [SymbolId],
}

impl Asks for Lacks<'_> {
    fn first_missing(&self, block: BlockIndex, from: u32) -> Option<u32> {
        let Blocks { ledger, .. } = self.blocks;
        let is_free = |esi: &u32| !self.awaited.contains(&SymbolId { block, esi: Esi(*esi) });
        let open = ledger.get(block.0).map(|open| &open.here);
        let may = match open {
            Some(here) => {
                here.is_filling() && (here.trial.admits(self.flow) || here.trial.sole_source().is_none())
            }
            None => ledger.wanted().contains(&block.0) && !ledger.is_done(block.0),
        };
        if !may {
            return None;
        }
        let mut symbols = from..ledger.source_symbols(block.0);
        symbols.find(|esi| open.is_none_or(|here| !here.has(*esi)) && is_free(esi))
    }

    fn has_room(&self, block: BlockIndex) -> bool {
        self.blocks.ledger.open_count() < self.blocks.most_open || self.blocks.ledger.find(block.0).is_some()
    }
}

/// Blocks of which something has arrived, each with the flow that brought its last symbol.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub ledger: Ledger<usize>,
    pub(super) most_open: usize,
}

/// The meaning of an arriving symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Useless,
    Kept,
    Complete,
}

/// The flow that a symbol has come by.
#[derive(Clone, Copy, Debug)]
pub(super) struct By {
    pub(super) place: usize,
    pub(super) flow: FlowId,
    pub(super) node: NodeId,
    /// Others pass on what comes by it, unverified.
    pub(super) hearsay: bool,
}

impl Blocks {
    /// A symbol has come.
    pub(super) fn arrive(&mut self, by: By, name: SymbolId) -> Arrival {
        let Blocks { ledger, .. } = self;
        let By { place, flow, node, hearsay } = by;
        let SymbolId { block, esi } = name;
        let known = ledger.find_again(block.0);
        if known.is_none() && (!ledger.wanted().contains(&block.0) || ledger.is_done(block.0))
            || esi.0 >= ledger.source_symbols(block.0)
        {
            return Arrival::Useless;
        }
        let at = known.unwrap_or_else(|| ledger.open(block.0, place));
        let Block { here, asked, .. } = &mut ledger[at];
        if !here.is_filling() || !here.trial.admits(flow) || !here.insert(esi.0) {
            return Arrival::Useless;
        }
        here.trial.on_symbol(flow, node, hearsay);
        *asked = place;
        if here.missing() > 0 {
            return Arrival::Kept;
        }
        ledger.decode(at);
        Arrival::Complete
    }

    /// A flow asks for a symbol of this block: for all of them, if it is asked of one alone.
    pub(super) fn give(&mut self, block: BlockIndex, flow: FlowId) {
        if let Some(Block { here, .. }) = self.ledger.get_mut(block.0) {
            here.trial.give(flow);
        }
    }

    /// A flow brings nothing more. Returns the blocks that begin anew.
    pub(super) fn release(&mut self, flow: FlowId) -> Vec<BlockIndex> {
        let ledger = &mut self.ledger;
        let anew = (0..ledger.open_count()).filter(|at| ledger.release(*at, flow)).collect::<Vec<_>>();
        anew.into_iter().map(|at| BlockIndex(ledger[at].number)).collect()
    }

    /// Where a block is that waits for decoder, hash or disk.
    pub(super) fn decoding(&self, block: BlockIndex) -> Option<usize> {
        self.ledger.find(block.0).filter(|at| !self.ledger[*at].here.is_filling())
    }
}
