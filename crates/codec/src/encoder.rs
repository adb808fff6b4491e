//! A block's endless stream of symbols (RFC 6330 §5.3).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use headwater_units::Esi;

use crate::dense::{self, Rows};
use crate::gf256::Kernel;
use crate::rfc6330::Intermediate;
use crate::{BlockShape, CodecError, Method};

/// Makes any symbol of one block, in any order. Shared between threads by reference.
///
/// Source symbols are copied from the block. The first repair symbols, some ten, are each made by one pass over the
/// block; after them the intermediate symbols are built, from which further ones cost next to nothing. Those take
/// about two blocks of memory and then stay. So a source that sends few repair symbols never pays for them.
pub struct BlockEncoder {
    shape: BlockShape,
    block: Vec<u8>,
    method: Method,
    /// The coefficients of repair symbols, for those made one by one.
    rows: OnceLock<Arc<Rows>>,
    /// Cost of those so far, in nanoseconds by the rule's own account.
    spent: AtomicU64,
    intermediate: OnceLock<Intermediate>,
}

impl BlockEncoder {
    /// Encodes `block`, which is as long as `shape` says (without padding). Does no work yet.
    ///
    /// # Errors
    /// [`CodecError::BlockLength`].
    pub fn new(shape: BlockShape, block: Vec<u8>) -> Result<Self, CodecError> {
        if block.len() != shape.block_len() {
            return Err(CodecError::BlockLength { got: block.len(), expected: shape.block_bytes().get() });
        }
        Ok(BlockEncoder {
            shape,
            block,
            method: Method::Fastest,
            rows: OnceLock::new(),
            spent: AtomicU64::new(0),
            intermediate: OnceLock::new(),
        })
    }

    /// Says how to make repair symbols, other than the fastest way: to measure or to compare.
    pub fn set_method(&mut self, method: Method) {
        self.method = method;
    }

    /// The block's shape.
    pub fn shape(&self) -> BlockShape {
        self.shape
    }

    /// The block, without padding.
    pub fn block(&self) -> &[u8] {
        &self.block
    }

    /// Gives the block's buffer back.
    pub fn into_block(self) -> Vec<u8> {
        self.block
    }

    /// Writes one symbol to `out`, which has T bytes.
    ///
    /// Copies for ESI < K. A repair symbol takes the time to read the block (tens of microseconds) for the first ones,
    /// then a microsecond; but about 1 ms per MB for the one that finds the intermediate symbols missing, and up to
    /// milliseconds for the very first unless [`BlockEncoder::prepare_repair`] was called.
    ///
    /// # Errors
    /// [`CodecError::EsiOutOfRange`], [`CodecError::SymbolLength`] if `out` does not have T bytes.
    pub fn symbol(&self, esi: Esi, out: &mut [u8]) -> Result<(), CodecError> {
        self.shape.check_symbol_len(out.len())?;
        if self.shape.is_source(esi)? {
            self.copy(esi, out);
        } else {
            self.make_repair(&[esi], &mut [out]);
        }
        Ok(())
    }

    /// Writes several symbols to `out`, one after the other: repair symbols in one pass over the block, which takes
    /// less than one pass for each.
    ///
    /// # Errors
    /// [`CodecError::EsiOutOfRange`], [`CodecError::SymbolLength`] if `out` does not have T bytes for each: then it is
    /// left as it was.
    pub fn symbols(&self, esis: &[Esi], out: &mut [u8]) -> Result<(), CodecError> {
        let symbol_size = usize::from(self.shape.symbol_size());
        if out.len() != esis.len() * symbol_size {
            let got = out.len() / esis.len().max(1);
            return Err(CodecError::SymbolLength { got, expected: self.shape.symbol_size() });
        }
        let mut are_source = Vec::with_capacity(esis.len());
        for &esi in esis {
            are_source.push(self.shape.is_source(esi)?);
        }
        let (mut repair, mut outputs) = (Vec::new(), Vec::new());
        for ((&esi, is_source), out) in esis.iter().zip(are_source).zip(out.chunks_exact_mut(symbol_size)) {
            if is_source {
                self.copy(esi, out);
            } else {
                repair.push(esi);
                outputs.push(out);
            }
        }
        if !repair.is_empty() {
            self.make_repair(&repair, &mut outputs);
        }
        Ok(())
    }

    /// Builds what the next repair symbols need, unless it is there: to be called on a worker before the first is due.
    ///
    /// That is the coefficients of this K, which all blocks of one K share, or, where those do not serve, or enough
    /// repair symbols were made already, the intermediate symbols.
    pub fn prepare_repair(&self) {
        if self.dense_kernel(1).is_some() {
            self.rows();
        } else {
            self.intermediate();
        }
    }

    /// Makes what the first repair symbols of any block of this shape need, and keeps it for a while: for sources that
    /// will send such blocks soon, and have time now.
    pub fn prepare_shape(shape: BlockShape) {
        if Method::Fastest.encoding(shape, 1, 0).is_some() {
            Rows::of(shape.source_symbols());
        }
    }

    /// Whether a repair symbol can be had without building anything first.
    pub fn is_repair_ready(&self) -> bool {
        self.intermediate.get().is_some() || self.rows.get().is_some() && self.dense_kernel(1).is_some()
    }

    fn copy(&self, esi: Esi, out: &mut [u8]) {
        let start = self.shape.span(esi.0).start;
        let bytes = &self.block[start..self.block.len().min(start + out.len())];
        let (filled, padding) = out.split_at_mut(bytes.len());
        filled.copy_from_slice(bytes);
        padding.fill(0);
    }

    fn make_repair(&self, esis: &[Esi], outputs: &mut [&mut [u8]]) {
        let Some(kernel) = self.dense_kernel(esis.len()) else {
            let intermediate = self.intermediate();
            for (&esi, out) in esis.iter().zip(outputs) {
                intermediate.repair(self.shape, esi, out);
            }
            return;
        };
        // Threads that ask at the same time may make one or two more in this way; that is slower, not wrong.
        self.spent.fetch_add(dense::pass_cost(kernel, self.shape, esis.len()), Ordering::Relaxed);
        let rows: Vec<Vec<u8>> = esis.iter().map(|&esi| self.rows().row(esi)).collect();
        let rows: Vec<&[u8]> = rows.iter().map(|row| &**row).collect();
        dense::repair(kernel, self.shape, &self.block, &rows, outputs);
    }

    /// The kernel that makes this many repair symbols by a pass over the block, if that is the way for them.
    fn dense_kernel(&self, count: usize) -> Option<Kernel> {
        if self.intermediate.get().is_some() {
            return None;
        }
        self.method.encoding(self.shape, count, self.spent.load(Ordering::Relaxed))
    }

    fn rows(&self) -> &Rows {
        self.rows.get_or_init(|| Rows::of(self.shape.source_symbols()))
    }

    fn intermediate(&self) -> &Intermediate {
        self.intermediate.get_or_init(|| {
            if self.block.len() == self.shape.padded_len() {
                return Intermediate::of(self.shape, &self.block);
            }
            let mut padded = Vec::with_capacity(self.shape.padded_len());
            padded.extend_from_slice(&self.block);
            padded.resize(self.shape.padded_len(), 0);
            Intermediate::of(self.shape, &padded)
        })
    }
}

impl fmt::Debug for BlockEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockEncoder")
            .field("shape", &self.shape)
            .field("repair_ready", &self.is_repair_ready())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_units::{Bytes, ESI_LIMIT};

    fn encoder() -> BlockEncoder {
        let shape = BlockShape::new(Bytes::new(20), 8).unwrap();
        BlockEncoder::new(shape, (1..=20).collect()).unwrap()
    }

    #[test]
    fn source_symbols_are_the_blocks_bytes_padded_with_zeros() {
        let mut out = [0xff; 8];
        encoder().symbol(Esi(1), &mut out).unwrap();
        assert_eq!(out, [9, 10, 11, 12, 13, 14, 15, 16]);
        encoder().symbol(Esi(2), &mut out).unwrap();
        assert_eq!(out, [17, 18, 19, 20, 0, 0, 0, 0]);
    }

    #[test]
    fn repair_is_built_by_the_first_repair_symbol_and_not_before() {
        let (encoder, mut out) = (encoder(), [0; 8]);
        encoder.symbol(Esi(2), &mut out).unwrap();
        assert!(!encoder.is_repair_ready());
        encoder.symbol(Esi(3), &mut out).unwrap();
        assert!(encoder.is_repair_ready());
    }

    #[test]
    fn several_symbols_at_once_are_the_same_as_one_by_one() {
        let esis = [7, 0, 2, 900_000, 3, 3, 1].map(Esi);
        let (mut all, mut one) = ([0xff; 7 * 8], [0; 8]);
        encoder().symbols(&esis, &mut all).unwrap();
        for (&esi, symbol) in esis.iter().zip(all.chunks(8)) {
            encoder().symbol(esi, &mut one).unwrap();
            assert_eq!(symbol, one, "{esi}");
        }
        encoder().symbols(&[], &mut []).unwrap();
        let before = all;
        let (out_of_range, short) =
            ([Esi(0), Esi(ESI_LIMIT)], CodecError::SymbolLength { got: 7, expected: 8 });
        assert_eq!(
            encoder().symbols(&out_of_range, &mut all[..16]),
            Err(CodecError::EsiOutOfRange(Esi(ESI_LIMIT)))
        );
        assert_eq!(encoder().symbols(&esis[..2], &mut all[..15]), Err(short));
        assert_eq!(all, before);
    }

    #[test]
    fn wrong_lengths_and_ids_are_errors() {
        let shape = BlockShape::new(Bytes::new(20), 8).unwrap();
        assert_eq!(
            BlockEncoder::new(shape, vec![0; 24]).unwrap_err(),
            CodecError::BlockLength { got: 24, expected: 20 }
        );
        let encoder = encoder();
        assert_eq!(
            encoder.symbol(Esi(0), &mut [0; 7]),
            Err(CodecError::SymbolLength { got: 7, expected: 8 })
        );
        assert_eq!(
            encoder.symbol(Esi(ESI_LIMIT), &mut [0; 8]),
            Err(CodecError::EsiOutOfRange(Esi(ESI_LIMIT)))
        );
        assert_eq!(encoder.symbol(Esi(ESI_LIMIT - 1), &mut [0; 8]), Ok(()));
    }

    #[test]
    fn threads_share_an_encoder() {
        fn shared<T: Send + Sync>(_: &T) {}
        shared(&encoder());
    }
}
