//! Requests to each flow for an open block.

use headwater_units::{FlowId, NodeId, SymbolId};

use super::Arrival;
use crate::pull::{class_of, part};
use headwater_flow::task::ledger;

/// Where a detached receiver's runs begin in blocks of which it has a part: above everything that a group was sent.
pub(super) const OWN_REPAIR: u32 = 1 << 20;

/// One flow, as blocks see it.
#[derive(Debug)]
pub(super) struct FlowView {
    pub(super) flow: FlowId,
    pub(super) node: NodeId,
    pub(super) index: u8,
    pub(super) of: u8,
    /// Its receiver belongs, or belonged, to a group.
    pub(super) grouped: bool,
    /// It has left its group.
    pub(super) detached: bool,
    /// It has been heard since it was given up last.
    pub(super) heard: bool,
    /// It was asked for a whole block alone, because of a wrong one, and told the truth.
    pub(super) cleared: bool,
    /// Of its symbols that are coming, those of blocks that are done with.
    pub(super) stray: u32,
    /// Nothing of lower blocks is coming.
    pub(super) oldest: u32,
    /// The source was told last that nothing of lower blocks is wanted.
    pub(super) told: u32,
    /// The highest block that it was asked for.
    pub(super) newest: u32,
}

/// A block in reception.
pub(super) type Block = ledger::Block<Asked>;

/// Requests for its symbols.
#[derive(Debug)]
pub(super) struct Asked {
    /// Something of it is lost, or replaced by repair symbols: it will have to be decoded.
    pub(super) lossy: bool,
    /// Some of its symbols may have come by another transport.
    pub(super) begun_before: bool,
    pub(super) coming: u32,
    pub(super) runs: Vec<Run>,
    /// The flow of the last symbol: most come in a row.
    pub(super) last: usize,
}

/// Request to one flow for symbols of one block: start, start + stride, and so on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) start: u32,
    /// Zero: of this block it was asked for nothing.
    pub(super) stride: u32,
    /// Symbols that have arrived or are lost.
    pub(super) gone: u32,
    pub(super) coming: u32,
    /// Symbols ever asked for. More than those gone or coming if a loss was charged to the wrong block.
    pub(super) told: u32,
    /// Symbols at the beginning of its run that the source is not told of, since it has forgotten them.
    pub(super) moved: u32,
    /// The source was told that nothing of the block is wanted any more.
    pub(super) forgotten: bool,
}

impl Asked {
    pub(super) fn new(places: usize) -> Self {
        Asked {
            lossy: false,
            begun_before: false,
            coming: 0,
            runs: vec![Run::default(); places],
            last: usize::MAX,
        }
    }

    pub(super) fn coming_from(&self, place: usize) -> u32 {
        self.runs.get(place).map_or(0, |run| run.coming)
    }

    pub(super) fn add_coming(&mut self, place: usize, count: u32) {
        self.runs[place].coming += count;
        self.coming += count;
    }

    pub(super) fn take_coming(&mut self, place: usize, count: u32) {
        self.runs[place].coming -= count;
        self.coming -= count;
    }
}

/// Wanted symbols of a block, and the flows to ask for them.
pub(super) trait AskedBlock {
    /// Symbols that nobody was asked for.
    fn needs(&self) -> u32;

    /// A symbol of it is here.
    fn take(&mut self, from: usize, place: &FlowView, symbol: SymbolId) -> Arrival;

    /// Whether a flow may be asked for its symbols: any, unless it is asked of one alone.
    fn may_be_asked_of(&self, place: usize, places: &[FlowView]) -> bool;

    /// Whether source symbols are left that this source would be asked for.
    fn has_part_left(&self, place: usize, index: u8, of: u8) -> bool;

    /// Whether what is needed is so little that each of the other sources, which are busy with it, need bring only one more.
    fn is_left_to_others(&self, place: usize, places: &[FlowView]) -> bool;
}

impl AskedBlock for Block {
    #[inline]
    fn needs(&self) -> u32 {
        self.here.missing().saturating_sub(self.asked.coming)
    }

    #[inline]
    fn take(&mut self, from: usize, place: &FlowView, symbol: SymbolId) -> Arrival {
        if !self.here.trial.admits(place.flow) || !self.here.insert(symbol.esi.0) {
            return Arrival::Useless;
        }
        if self.asked.last != from {
            self.asked.last = from;
            self.here.trial.on_symbol(place.flow, place.node, false);
        }
        if self.here.missing() > 0 { Arrival::Kept } else { Arrival::Complete }
    }

    fn may_be_asked_of(&self, place: usize, places: &[FlowView]) -> bool {
        match self.here.trial.sole_source() {
            _ if !self.here.trial.has_sole_source() => true,
            Some(turn) => turn == places[place].flow,
            None => is_tested_first(places, place),
        }
    }

    #[inline]
    fn has_part_left(&self, place: usize, index: u8, of: u8) -> bool {
        let asked = self.asked.runs.get(place).map_or(0, |run| run.gone + run.coming);
        let class = class_of(self.number, index, of);
        asked < part(self.here.source_symbols(), class, of)
    }

    fn is_left_to_others(&self, place: usize, places: &[FlowView]) -> bool {
        let others = places.iter().enumerate().filter(|&(other, it)| {
            other != place && self.asked.coming_from(other) > 0 && self.has_part_left(other, it.index, it.of)
        });
        self.needs() as usize <= others.count()
    }
}

/// Whether a block of which somebody has sent wrong symbols is asked of this source first: alone, a liar convicts itself, so those
/// who have not been asked alone come before those who have.
pub(super) fn is_tested_first(places: &[FlowView], place: usize) -> bool {
    !places[place].cleared || places.iter().all(|it| it.cleared || !it.heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places with these traits, by the bits of a number: it is heard, it is cleared.
    fn places(bits: u32) -> Vec<FlowView> {
        let place = |n: u32| {
            let has = |bit: u32| bits >> (2 * n + bit) & 1 == 1;
            FlowView {
                flow: FlowId(u64::from(n)),
                node: NodeId([n as u8; 32]),
                index: n as u8,
                of: 3,
                grouped: false,
                detached: false,
                heard: has(0),
                cleared: has(1),
                stray: 0,
                oldest: 0,
                told: 0,
                newest: 0,
            }
        };
        (0..3).map(place).collect()
    }

    #[test]
    fn a_wrong_block_can_always_be_asked_of_somebody_who_is_heard() {
        for bits in 0..1 << 6 {
            let places = places(bits);
            let heard: Vec<usize> = (0..3).filter(|place| places[*place].heard).collect();
            let asked = heard.iter().any(|place| is_tested_first(&places, *place));
            assert!(asked || heard.is_empty(), "{places:?}");
        }
    }
}
