//! Which symbols of a block are at hand: a bitmap for source symbols, a sorted list for repair symbols.

use headwater_units::Esi;

use crate::{BlockShape, Inserted, SPARE_SYMBOLS};

/// Distinct symbols of one block; `P` is what is kept with each repair symbol.
#[derive(Debug)]
pub(crate) struct SymbolSet<P> {
    source_symbols: u32,
    present: Vec<u64>,
    present_count: u32,
    /// In rising order of ESI, in which most of them come: so one goes to the end, or near it.
    repair: Vec<(Esi, P)>,
}

impl<P> SymbolSet<P> {
    pub(crate) fn new(shape: BlockShape) -> Self {
        let source_symbols = shape.source_symbols();
        SymbolSet {
            source_symbols,
            present: vec![0; source_symbols.div_ceil(64) as usize],
            present_count: 0,
            repair: Vec::new(),
        }
    }

    pub(crate) fn source_symbols_present(&self) -> u32 {
        self.present_count
    }

    pub(crate) fn distinct(&self) -> u32 {
        self.present_count + self.repair.len() as u32
    }

    pub(crate) fn contains(&self, esi: Esi) -> bool {
        if esi.0 < self.source_symbols { self.has_source(esi.0) } else { self.find_repair(esi).is_ok() }
    }

    pub(crate) fn has_source(&self, index: u32) -> bool {
        self.present[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Marks a source symbol present. `index` is below K.
    pub(crate) fn insert_source(&mut self, index: u32) -> Inserted {
        if self.has_source(index) {
            return Inserted::Duplicate;
        }
        self.present[index as usize / 64] |= 1 << (index % 64);
        self.present_count += 1;
        Inserted::New
    }

    /// Keeps a repair symbol, made by `keep` only if it is new and there is room. `esi` is at least K.
    pub(crate) fn insert_repair(&mut self, esi: Esi, keep: impl FnOnce() -> P) -> Inserted {
        let Err(place) = self.find_repair(esi) else { return Inserted::Duplicate };
        if self.distinct() >= self.source_symbols + SPARE_SYMBOLS {
            return Inserted::Surplus;
        }
        self.repair.insert(place, (esi, keep()));
        Inserted::New
    }

    /// Source symbols that are (`true`) or are not (`false`) present, in rising order.
    pub(crate) fn sources(&self, present: bool) -> impl Iterator<Item = u32> + '_ {
        (0..self.source_symbols).filter(move |&index| self.has_source(index) == present)
    }

    /// Repair symbols at hand, in rising order of ESI.
    pub(crate) fn repair(&self) -> &[(Esi, P)] {
        &self.repair
    }

    /// The payload kept with a repair symbol.
    pub(crate) fn repair_symbol(&self, esi: Esi) -> Option<&P> {
        self.find_repair(esi).ok().map(|at| &self.repair[at].1)
    }

    /// Forgets every symbol for which `keep` is false; returns how many.
    pub(crate) fn retain(&mut self, keep: &mut dyn FnMut(Esi) -> bool) -> u32 {
        let before = self.distinct();
        for index in 0..self.source_symbols {
            if self.has_source(index) && !keep(Esi(index)) {
                self.present[index as usize / 64] &= !(1 << (index % 64));
                self.present_count -= 1;
            }
        }
        self.repair.retain(|&(esi, _)| keep(esi));
        before - self.distinct()
    }

    fn find_repair(&self, esi: Esi) -> Result<usize, usize> {
        self.repair.binary_search_by_key(&esi, |&(esi, _)| esi)
    }
}
