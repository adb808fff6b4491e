//! A block in reception that carries no bytes: it counts, so that a simulated network can skip the payload.
//!
//! Same rules as [`crate::Assembler`] for ids, duplicates and bounds; the solver is replaced by a number of symbols
//! beyond K that the block needs, drawn once per block by the caller, who owns the randomness. Payloads are ignored.

use headwater_units::Esi;

use crate::symbol_set::SymbolSet;
use crate::{BlockShape, CodecError, Decoder, Inserted, NeedMore};

/// Below this chance nothing is distinguished: f64 draws have a grain of about 1e-16.
const LARGEST_OVERHEAD: u32 = 7;

/// One block in reception, without its bytes.
#[derive(Debug)]
pub struct PhantomAssembler {
    shape: BlockShape,
    overhead: u32,
    symbols: SymbolSet<()>,
}

impl PhantomAssembler {
    /// Nothing received yet. The block is there once all K source symbols are, or any K + `overhead` symbols;
    /// `overhead` is zero for an ideal code, [`drawn_overhead`] for RaptorQ, and is clipped to 7.
    pub fn new(shape: BlockShape, overhead: u32) -> Self {
        PhantomAssembler { shape, overhead: overhead.min(LARGEST_OVERHEAD), symbols: SymbolSet::new(shape) }
    }
}

/// The symbols beyond K that a RaptorQ block needs, for a `draw` uniform in 0..1.
///
/// A set of K + o random symbols fails to decode with a chance of 10^(-2 (o + 1)): 1 % at K, 1e-4 at K + 1, 1e-6 at
/// K + 2 (SCDP §II). Sets grow, so one draw settles a block: the answer is the smallest o whose chance is not above it.
pub fn drawn_overhead(draw: f64) -> u32 {
    let mut failure = 1e-2;
    let mut overhead = 0;
    while draw < failure && overhead < LARGEST_OVERHEAD {
        failure *= 1e-2;
        overhead += 1;
    }
    overhead
}

impl Decoder for PhantomAssembler {
    fn shape(&self) -> BlockShape {
        self.shape
    }

    fn insert(&mut self, esi: Esi, _payload: &[u8]) -> Result<Inserted, CodecError> {
        Ok(if self.shape.is_source(esi)? {
            self.symbols.insert_source(esi.0)
        } else {
            self.symbols.insert_repair(esi, || ())
        })
    }

    fn contains(&self, esi: Esi) -> bool {
        self.symbols.contains(esi)
    }

    fn source_symbols_present(&self) -> u32 {
        self.symbols.source_symbols_present()
    }

    fn distinct(&self) -> u32 {
        self.symbols.distinct()
    }

    fn retain(&mut self, keep: &mut dyn FnMut(Esi) -> bool) -> u32 {
        self.symbols.retain(keep)
    }

    /// On success there are no bytes to give: the slice is empty.
    fn finish(&mut self) -> Result<&[u8], NeedMore> {
        let (have, source_symbols) = (self.distinct(), self.shape.source_symbols());
        if self.is_systematic_complete() || have >= source_symbols + self.overhead {
            Ok(&[])
        } else {
            Err(NeedMore { have, at_least: source_symbols.saturating_sub(have).max(1), source_symbols })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_units::Bytes;

    fn phantom(overhead: u32) -> PhantomAssembler {
        PhantomAssembler::new(BlockShape::new(Bytes::new(1000), 10).unwrap(), overhead)
    }

    fn feed(phantom: &mut PhantomAssembler, esis: impl Iterator<Item = u32>) {
        for esi in esis {
            assert_eq!(phantom.insert(Esi(esi), &[]), Ok(Inserted::New));
        }
    }

    #[test]
    fn draws_give_the_published_failure_chances() {
        assert_eq!(drawn_overhead(0.5), 0);
        assert_eq!(drawn_overhead(0.01), 0);
        assert_eq!(drawn_overhead(0.00999), 1);
        assert_eq!(drawn_overhead(0.00009), 2);
        assert_eq!(drawn_overhead(0.0000009), 3);
        assert_eq!(drawn_overhead(0.0), LARGEST_OVERHEAD);
        assert_eq!(drawn_overhead(f64::NAN), 0);
        let steps = 1_000_000;
        let failed = (0..steps).filter(|&i| drawn_overhead(f64::from(i) / f64::from(steps)) > 0).count();
        assert_eq!(failed, 10_000, "1 % of uniform draws fail at exactly K");
    }

    #[test]
    fn a_block_is_there_at_k_plus_overhead_and_not_one_earlier() {
        let mut phantom = phantom(2);
        feed(&mut phantom, 50..151);
        assert_eq!(phantom.finish(), Err(NeedMore { have: 101, at_least: 1, source_symbols: 100 }));
        assert_eq!(phantom.insert(Esi(150), &[]), Ok(Inserted::Duplicate));
        assert!(phantom.finish().is_err());
        feed(&mut phantom, 151..152);
        assert_eq!(phantom.finish(), Ok(&[][..]));
    }

    #[test]
    fn all_source_symbols_never_fail() {
        let mut phantom = phantom(7);
        feed(&mut phantom, 0..100);
        assert!(phantom.is_systematic_complete() && phantom.finish().is_ok());
        assert_eq!(phantom.retain(&mut |esi| esi.0 >= 10), 10);
        assert_eq!(phantom.finish(), Err(NeedMore { have: 90, at_least: 10, source_symbols: 100 }));
    }

    #[test]
    fn ids_and_bounds_are_those_of_the_real_one() {
        let mut phantom = phantom(0);
        assert_eq!(phantom.insert(Esi(1 << 24), &[]), Err(CodecError::EsiOutOfRange(Esi(1 << 24))));
        feed(&mut phantom, 1000..1132);
        assert_eq!(phantom.insert(Esi(1132), &[]), Ok(Inserted::Surplus));
    }
}
