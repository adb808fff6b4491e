//! One block in reception, and what each flow was asked for of it.

use headwater_machine::Bits;
use headwater_units::{FlowId, NodeId, SymbolId};

use super::Arrival;
use super::asking::OWN_REPAIR;
use crate::pull::{class_of, part};
use crate::task::blame::Trial;

/// One flow, as blocks see it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) flow: FlowId,
    pub(super) node: NodeId,
    pub(super) index: u8,
    pub(super) of: u8,
    /// It has left its group.
    pub(super) alone: bool,
    /// It is a receiver itself, and sends what comes to it.
    pub(super) relays: bool,
    /// It brings what this receiver passes on.
    pub(super) passed_on: bool,
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

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Filling,
    Decoding,
    Done,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) number: u32,
    pub(super) phase: Phase,
    pub(super) source_symbols: u32,
    /// Symbols beyond K that it is to have, unless all source symbols come.
    pub(super) extra: u32,
    /// Something of it is lost, or replaced by repair symbols: it will have to be decoded.
    pub(super) lossy: bool,
    pub(super) here: u32,
    pub(super) coming: u32,
    pub(super) present: Bits,
    /// Ascending.
    pub(super) repair: Vec<u32>,
    pub(super) runs: Vec<Run>,
    /// Who sent the last symbol: most come in a row.
    pub(super) last: usize,
    pub(super) trial: Trial,
    pub(super) attempts: u8,
    /// By class that this receiver passes on, so many symbols others want.
    pub(super) wanted_by_others: Vec<(u8, u32)>,
}

/// What one flow was asked for of one block: start, start + stride, and so on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) start: u32,
    /// Zero: of this block it was asked for nothing.
    pub(super) stride: u32,
    /// So many have come, or are lost.
    pub(super) gone: u32,
    /// Of those, so many are lost.
    pub(super) lost: u32,
    pub(super) coming: u32,
    /// So many it was ever asked for: more than are gone or coming, where a loss was guessed to be of the wrong block.
    pub(super) told: u32,
    /// So many at its beginning are left out of what the source is told: it has forgotten them.
    pub(super) moved: u32,
    /// The source was told that nothing of the block is wanted any more.
    pub(super) forgotten: bool,
}

impl Place {
    /// What ESIs of its class leave as a remainder, in this block.
    pub(super) fn class_in(&self, block: u32) -> u8 {
        // It is less than `of`.
        class_of(block, self.index, self.of) as u8
    }
}

impl Block {
    pub(super) fn new(number: u32, source_symbols: u32, places: usize) -> Self {
        Block {
            number,
            phase: Phase::Filling,
            source_symbols,
            extra: 0,
            lossy: false,
            here: 0,
            coming: 0,
            present: Bits::new(source_symbols),
            repair: Vec::new(),
            runs: vec![Run::default(); places],
            last: usize::MAX,
            trial: Trial::default(),
            attempts: 0,
            wanted_by_others: Vec::new(),
        }
    }

    pub(super) fn done() -> Self {
        Block { phase: Phase::Done, ..Block::new(0, 0, 0) }
    }

    /// Others want so many symbols of a class.
    pub(super) fn want_for_others(&mut self, class: u8, symbols: u32) {
        // Nobody needs more than all.
        let symbols = symbols.min(self.source_symbols);
        match self.wanted_by_others.iter_mut().find(|(its, _)| *its == class) {
            Some((_, before)) => *before = symbols.max(*before),
            None => self.wanted_by_others.push((class, symbols)),
        }
    }

    /// How many symbols of a class others want.
    pub(super) fn wanted_of(&self, class: u8) -> u32 {
        self.wanted_by_others.iter().find(|(its, _)| *its == class).map_or(0, |(_, symbols)| *symbols)
    }

    /// Symbols still needed, coming or not.
    #[inline]
    pub(super) fn missing(&self) -> u32 {
        if self.phase != Phase::Filling || self.present.ones() == self.source_symbols {
            return 0;
        }
        (self.source_symbols + self.extra).saturating_sub(self.here)
    }

    /// Symbols that nobody was asked for.
    #[inline]
    pub(super) fn needs(&self) -> u32 {
        self.missing().saturating_sub(self.coming)
    }

    /// A symbol of it is here.
    #[inline]
    pub(super) fn take(&mut self, from: usize, place: &Place, symbol: SymbolId) -> Arrival {
        let is_unverified = place.relays && self.trial.is_alone() && symbol.esi.0 < OWN_REPAIR;
        if is_unverified || !self.trial.admits(place.flow) || !self.insert(symbol.esi.0) {
            return Arrival::Useless;
        }
        if self.last != from {
            self.last = from;
            self.trial.on_symbol(place.flow, place.node);
        }
        self.here += 1;
        if self.missing() > 0 {
            return Arrival::Kept;
        }
        self.phase = Phase::Decoding;
        Arrival::Complete
    }

    #[inline]
    pub(super) fn insert(&mut self, esi: u32) -> bool {
        if esi < self.source_symbols {
            return self.present.set(esi);
        }
        let place = self.repair.binary_search(&esi);
        place.inspect_err(|&place| self.repair.insert(place, esi)).is_err()
    }

    /// Whether a flow may be asked for its symbols: any, unless it is asked of one alone.
    pub(super) fn may_be_asked_of(&self, place: usize, places: &[Place]) -> bool {
        match self.trial.alone() {
            _ if !self.trial.is_alone() => true,
            Some(turn) => turn == places[place].flow,
            None => is_tested_first(places, place),
        }
    }

    /// Whether source symbols are left that this source would be asked for.
    #[inline]
    pub(super) fn has_part_left(&self, place: usize, index: u8, of: u8) -> bool {
        let asked = self.runs.get(place).map_or(0, |run| run.gone + run.coming);
        let class = class_of(self.number, index, of);
        asked < part(self.source_symbols, class, of)
    }

    /// Whether what is needed is so little that each of the other sources, which are busy with it, need bring only one more.
    pub(super) fn is_left_to_others(&self, place: usize, places: &[Place]) -> bool {
        let others = places.iter().enumerate().filter(|&(other, it)| {
            other != place && self.coming_from(other) > 0 && self.has_part_left(other, it.index, it.of)
        });
        self.needs() as usize <= others.count()
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

/// Whether a block of which somebody has sent wrong symbols is asked of this source first: alone, a liar convicts itself, so those
/// who have not been asked alone come before those who have.
/// A relay may never have the block whole if its own source lies: it is asked last.
pub(super) fn is_tested_first(places: &[Place], place: usize) -> bool {
    if places[place].relays && places.iter().any(|it| !it.relays && it.heard) {
        return false;
    }
    !places[place].cleared || places.iter().all(|it| it.cleared || !it.heard)
}
