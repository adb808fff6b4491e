//! A block's endless stream of symbols (RFC 6330 §5.3).

use std::fmt;
use std::sync::OnceLock;

use headwater_units::Esi;

use crate::rfc6330::Intermediate;
use crate::{BlockShape, CodecError};

/// Makes any symbol of one block, in any order. Shared between threads by reference.
///
/// Source symbols are copied from the block. The first repair symbol builds the intermediate symbols, which then stay
/// and take about two blocks of memory; a source that sends no repair symbol never pays for them.
pub struct BlockEncoder {
    shape: BlockShape,
    block: Vec<u8>,
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
        Ok(BlockEncoder { shape, block, intermediate: OnceLock::new() })
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
    /// Copies for ESI < K; takes microseconds for a repair symbol, but milliseconds for the first one unless
    /// [`BlockEncoder::prepare_repair`] was called.
    ///
    /// # Errors
    /// [`CodecError::EsiOutOfRange`], [`CodecError::SymbolLength`] if `out` does not have T bytes.
    pub fn symbol(&self, esi: Esi, out: &mut [u8]) -> Result<(), CodecError> {
        self.shape.check_symbol_len(out.len())?;
        if self.shape.is_source(esi)? {
            let start = self.shape.span(esi.0).start;
            let bytes = &self.block[start..self.block.len().min(start + out.len())];
            let (filled, padding) = out.split_at_mut(bytes.len());
            filled.copy_from_slice(bytes);
            padding.fill(0);
        } else {
            self.intermediate().repair(self.shape, esi, out);
        }
        Ok(())
    }

    /// Builds what repair symbols need, unless it is there: to be called on a worker before the first is due.
    pub fn prepare_repair(&self) {
        self.intermediate();
    }

    /// Whether a repair symbol can be had without building anything first.
    pub fn is_repair_ready(&self) -> bool {
        self.intermediate.get().is_some()
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
