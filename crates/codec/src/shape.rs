//! A block's length and symbol size, checked once so that nothing behind it can be out of range.

use std::ops::Range;

use headwater_units::{BlockIndex, Bytes, ESI_LIMIT, Esi, Geometry, MAX_SOURCE_SYMBOLS};

use crate::CodecError;

/// Length, symbol size (T) and number of source symbols (K = ceil(length / T)) of one block.
///
/// Holds for every value: 1 <= K <= [`MAX_SOURCE_SYMBOLS`] and 1 <= T <= 65,535. T need not be a multiple of
/// anything: with a single sub-block the symbol alignment of RFC 6330 §4.4.1.2 can be one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    block_bytes: Bytes,
    symbol_size: u16,
    source_symbols: u32,
}

impl BlockShape {
    /// The shape of a block of `block_bytes` in symbols of `symbol_size` bytes.
    ///
    /// # Errors
    /// [`CodecError::EmptyBlock`], [`CodecError::ZeroSymbolSize`], [`CodecError::TooManySymbols`].
    pub fn new(block_bytes: Bytes, symbol_size: u16) -> Result<Self, CodecError> {
        if block_bytes == Bytes::ZERO {
            return Err(CodecError::EmptyBlock);
        }
        if symbol_size == 0 {
            return Err(CodecError::ZeroSymbolSize);
        }
        let source_symbols = block_bytes.get().div_ceil(u64::from(symbol_size));
        if source_symbols > MAX_SOURCE_SYMBOLS {
            return Err(CodecError::TooManySymbols { block_bytes, symbol_size, source_symbols });
        }
        Ok(BlockShape { block_bytes, symbol_size, source_symbols: source_symbols as u32 })
    }

    /// The shape of one block of an object.
    ///
    /// # Errors
    /// [`CodecError::EmptyBlock`] past the object's end.
    pub fn of(geometry: &Geometry, block: BlockIndex) -> Result<Self, CodecError> {
        BlockShape::new(geometry.layout().len(block), geometry.symbol_size())
    }

    /// The block's length, without padding.
    pub fn block_bytes(&self) -> Bytes {
        self.block_bytes
    }

    /// T, the bytes of every symbol.
    pub fn symbol_size(&self) -> u16 {
        self.symbol_size
    }

    /// K, the number of source symbols.
    pub fn source_symbols(&self) -> u32 {
        self.source_symbols
    }

    /// Whether an ESI below the limit names a source symbol (ESI < K) rather than a repair symbol.
    ///
    /// # Errors
    /// [`CodecError::EsiOutOfRange`].
    pub(crate) fn is_source(&self, esi: Esi) -> Result<bool, CodecError> {
        if esi.0 >= ESI_LIMIT {
            return Err(CodecError::EsiOutOfRange(esi));
        }
        Ok(esi.0 < self.source_symbols)
    }

    /// # Errors
    /// [`CodecError::SymbolLength`] unless `len` is T.
    pub(crate) fn check_symbol_len(&self, len: usize) -> Result<(), CodecError> {
        if len == usize::from(self.symbol_size) {
            Ok(())
        } else {
            Err(CodecError::SymbolLength { got: len, expected: self.symbol_size })
        }
    }

    /// The block's length as an index.
    pub(crate) fn block_len(&self) -> usize {
        self.block_bytes.get() as usize
    }

    /// K * T, the block's length with padding.
    pub(crate) fn padded_len(&self) -> usize {
        self.source_symbols as usize * usize::from(self.symbol_size)
    }

    /// Where source symbol `index` lies in the padded block.
    pub(crate) fn span(&self, index: u32) -> Range<usize> {
        let size = usize::from(self.symbol_size);
        let start = index as usize * size;
        start..start + size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_as_many_symbols_as_begin_in_it() {
        let shape = BlockShape::new(Bytes::new(155), 16).unwrap();
        assert_eq!((shape.source_symbols(), shape.padded_len(), shape.span(9)), (10, 160, 144..160));
    }

    #[test]
    fn shapes_that_rfc_6330_cannot_code_are_refused() {
        assert_eq!(BlockShape::new(Bytes::ZERO, 8), Err(CodecError::EmptyBlock));
        assert_eq!(BlockShape::new(Bytes::new(8), 0), Err(CodecError::ZeroSymbolSize));
        assert!(BlockShape::new(Bytes::new(56_403), 1).is_ok());
        assert!(matches!(BlockShape::new(Bytes::new(56_404), 1), Err(CodecError::TooManySymbols { .. })));
        assert!(matches!(BlockShape::new(Bytes::new(u64::MAX), 1), Err(CodecError::TooManySymbols { .. })));
    }

    #[test]
    fn the_shape_of_an_objects_block_follows_its_geometry() {
        let geometry = Geometry::new(Bytes::new((256 << 10) + 100), 1376).unwrap();
        assert_eq!(BlockShape::of(&geometry, BlockIndex(0)).unwrap().source_symbols(), 191);
        assert_eq!(BlockShape::of(&geometry, BlockIndex(1)).unwrap().block_bytes(), Bytes::new(100));
        assert_eq!(BlockShape::of(&geometry, BlockIndex(2)), Err(CodecError::EmptyBlock));
    }
}
