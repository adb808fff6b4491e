//! How an object is cut: into blocks by its size alone, into symbols by the task.
//!
//! A block is a byte range of 2^n KiB (the last one shorter), so it is one BLAKE3 subtree and verifiable alone.
//! A task picks the symbol size from the path MTU; two tasks may cut the same block differently.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{BlockIndex, Bytes, Symbols};

/// RFC 6330 §5.1.2: no block has more source symbols (K'_max).
pub const MAX_SOURCE_SYMBOLS: u64 = 56_403;
/// The smallest symbol: less is all header.
pub const MIN_SYMBOL_SIZE: u16 = 8;
/// The largest symbol a datagram carries: that of a jumbo frame of 9,216 bytes.
pub const MAX_SYMBOL_SIZE: u16 = 9_152;

const SMALLEST_BLOCK: u64 = 256 << 10;
const LARGEST_BLOCK: u64 = 1 << 20;
/// Above this many blocks the block doubles, so that the list of block hashes stays small (2 MiB at most until the
/// largest block size is reached).
const BLOCKS_BEFORE_DOUBLING: u64 = 65_536;

/// An object cut into blocks: a function of its size alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLayout {
    object_bytes: Bytes,
    block_bytes: Bytes,
}

impl BlockLayout {
    /// The layout of an object of this size: blocks of 256 KiB, larger only for objects above 16 GiB.
    pub fn of(object_bytes: Bytes) -> Self {
        let mut block = SMALLEST_BLOCK;
        while block < LARGEST_BLOCK && object_bytes.get().div_ceil(block) > BLOCKS_BEFORE_DOUBLING {
            block *= 2;
        }
        BlockLayout { object_bytes, block_bytes: Bytes::new(block) }
    }
    /// The object's size.
    pub fn object_bytes(&self) -> Bytes {
        self.object_bytes
    }
    /// The size of every block but the last.
    pub fn block_bytes(&self) -> Bytes {
        self.block_bytes
    }
    /// How many blocks there are; none in an empty object.
    pub fn block_count(&self) -> u32 {
        u32::try_from(self.object_bytes.get().div_ceil(self.block_bytes.get())).unwrap_or(u32::MAX)
    }
    /// Where a block begins in the object.
    pub fn offset(&self, block: BlockIndex) -> Bytes {
        self.block_bytes * u64::from(block.0)
    }
    /// The length of a block; zero past the end.
    pub fn len(&self, block: BlockIndex) -> Bytes {
        (self.object_bytes - self.offset(block)).min(self.block_bytes)
    }
    /// Whether there is no block at all.
    pub fn is_empty(&self) -> bool {
        self.object_bytes == Bytes::ZERO
    }
    /// The blocks that cover the byte range `from..to` (clipped to the object).
    pub fn covering(&self, from: Bytes, to: Bytes) -> std::ops::Range<u32> {
        let to = to.min(self.object_bytes).get();
        let from = from.get().min(to);
        if from == to {
            return 0..0;
        }
        (from / self.block_bytes.get()) as u32..to.div_ceil(self.block_bytes.get()) as u32
    }
}

/// A layout together with the task's symbol size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    layout: BlockLayout,
    symbol_size: u16,
}

/// A symbol size that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// Below [`MIN_SYMBOL_SIZE`] or above [`MAX_SYMBOL_SIZE`].
    #[error("symbol size {0} is not in {MIN_SYMBOL_SIZE}..={MAX_SYMBOL_SIZE}")]
    SymbolSize(u16),
    /// A block would have more symbols than RFC 6330 allows.
    #[error("blocks of {0} in symbols of {1} bytes have more than {MAX_SOURCE_SYMBOLS} symbols")]
    TooManySymbols(Bytes, u16),
}

impl Geometry {
    /// Cuts with a given symbol size.
    ///
    /// # Errors
    /// See [`GeometryError`].
    pub fn new(object_bytes: Bytes, symbol_size: u16) -> Result<Self, GeometryError> {
        let layout = BlockLayout::of(object_bytes);
        if !(MIN_SYMBOL_SIZE..=MAX_SYMBOL_SIZE).contains(&symbol_size) {
            return Err(GeometryError::SymbolSize(symbol_size));
        }
        if layout.block_bytes.get().div_ceil(u64::from(symbol_size)) > MAX_SOURCE_SYMBOLS {
            return Err(GeometryError::TooManySymbols(layout.block_bytes, symbol_size));
        }
        Ok(Geometry { layout, symbol_size })
    }
    /// The symbol size for a path that carries `room` bytes of symbol per datagram: K = ceil(block / room), then
    /// T = ceil(block / K). T is not rounded to the 4 or 8 bytes that RFC 6330 §4.3 recommends for alignment: that would send
    /// up to 0.5 % of padding, and a block with one sub-block needs none (§4.4.1.2).
    ///
    /// `room` is clipped to 64..=[`MAX_SYMBOL_SIZE`].
    pub fn fitting(object_bytes: Bytes, room: u16) -> Self {
        let layout = BlockLayout::of(object_bytes);
        let room = u64::from(room.clamp(64, MAX_SYMBOL_SIZE));
        let block = layout.block_bytes.min(object_bytes).get().max(1);
        let count = block.div_ceil(room);
        let size = block.div_ceil(count).max(u64::from(MIN_SYMBOL_SIZE));
        Geometry { layout, symbol_size: size as u16 }
    }
    /// How the object is cut into blocks.
    pub fn layout(&self) -> BlockLayout {
        self.layout
    }
    /// T, the bytes of a symbol; the last source symbol of a block is padded with zeros.
    pub fn symbol_size(&self) -> u16 {
        self.symbol_size
    }
    /// K of a block; zero past the end.
    pub fn source_symbols(&self, block: BlockIndex) -> u32 {
        self.layout.len(block).get().div_ceil(u64::from(self.symbol_size)) as u32
    }
    /// The source symbols of the whole object.
    pub fn total_symbols(&self) -> Symbols {
        let Some(last) = self.layout.block_count().checked_sub(1) else { return Symbols::ZERO };
        let full = u64::from(self.source_symbols(BlockIndex(0)));
        Symbols::new(full * u64::from(last) + u64::from(self.source_symbols(BlockIndex(last))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_256_kib_until_the_hash_list_would_grow_past_2_mib() {
        assert_eq!(BlockLayout::of(Bytes::mib(1)).block_bytes(), Bytes::kib(256));
        assert_eq!(BlockLayout::of(Bytes::mib(16 << 10)).block_bytes(), Bytes::kib(256));
        assert_eq!(BlockLayout::of(Bytes::mib((16 << 10) + 1)).block_bytes(), Bytes::kib(512));
        assert_eq!(BlockLayout::of(Bytes::mib(1 << 20)).block_bytes(), Bytes::mib(1));
    }

    #[test]
    fn a_block_on_a_1500_byte_path_has_one_byte_of_padding() {
        let geometry = Geometry::fitting(Bytes::mib(256), 1424);
        assert_eq!(geometry.source_symbols(BlockIndex(0)), 185);
        assert_eq!(geometry.symbol_size(), 1417);
        assert_eq!(185 * 1417 - (256 << 10), 1);
    }

    #[test]
    fn an_empty_object_has_no_blocks() {
        let geometry = Geometry::fitting(Bytes::ZERO, 1424);
        assert_eq!(geometry.layout().block_count(), 0);
        assert_eq!(geometry.total_symbols(), Symbols::ZERO);
    }

    proptest! {
        #[test]
        fn blocks_tile_the_object(size in 0u64..1 << 34) {
            let layout = BlockLayout::of(Bytes::new(size));
            let sum: u64 = (0..layout.block_count()).map(|b| layout.len(BlockIndex(b)).get()).sum();
            prop_assert_eq!(sum, size);
        }

        #[test]
        fn fitted_symbols_cover_every_block_and_fit_the_room(size in 0u64..1 << 24, room in 64u16..9152) {
            let g = Geometry::fitting(Bytes::new(size), room);
            prop_assert!(g.symbol_size() <= room && g.symbol_size() >= MIN_SYMBOL_SIZE);
            prop_assert!(Geometry::new(Bytes::new(size), g.symbol_size()).is_ok());
            for b in 0..g.layout().block_count() {
                let (k, t) = (u64::from(g.source_symbols(BlockIndex(b))), u64::from(g.symbol_size()));
                let len = g.layout().len(BlockIndex(b)).get();
                prop_assert!(k * t >= len && (k - 1) * t < len);
            }
        }
    }
}
