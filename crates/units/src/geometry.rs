//! How an object is cut: into blocks by its size alone, into symbols by the task.
//!
//! A block is a byte range of 2^n KiB (the last one shorter), so it is one BLAKE3 subtree and verifiable alone.
//! A task picks the symbol size T from the path MTU ([`Geometry::fitting`]); two tasks may cut the same block differently,
//! and one task does when a path turns out narrower than its ends believed.
//!
//! T and K (source symbols of a block), and the influences on them:
//!
//! - **Path MTU**: T is the longest that passes on every path of the task, since each packet costs its headers (5 % of
//!   1,500 bytes) and its part of a system call, and nothing is gained by a shorter one.
//! - **Object size**: decides the blocks. K is what is left to choose then, and is as small as T allows. An object
//!   smaller than a block is one block of the fewest packets that hold it, all of one length. More and shorter ones could
//!   be spread over more sources, but a few packets take no longer from one source than from three.
//! - **Round trip**: decides nothing here. A window larger than a block spans several: the receiver holds up to 256 in
//!   reception. A block as large as the window would have to change with the window, and blocks belong to the object.
//! - **Decoder**: from BASE_PLPMTU (1,200 bytes) up to jumbo frames K is 29 to 911, and 185 for Ethernet. Decoding m losses
//!   from dense rows costs m K T operations, m times the block whatever K is, and inverting costs m^3; m grows with K at a
//!   given loss. At 1 % loss m is 2 for K = 185 and 9 for K = 911, below the 20 to 30 where elimination wins. A smaller K
//!   than 100 (jumbo frames) is cheaper still; its price, that one superfluous symbol is a larger part of the block, is not
//!   paid, since sources are asked for what is missing.

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
    /// The symbol size for a path that carries `room` bytes of symbol per datagram: K = ceil(block / room), the fewest
    /// packets, then T = ceil(block / K), the shortest that still makes no more of them: all packets of a block are as full as
    /// one another. T is not rounded to the 4 or 8 bytes that RFC 6330 §4.3 recommends for alignment: that would send up to
    /// 0.5 % of padding, and a block with one sub-block needs none (§4.4.1.2).
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

    /// From BASE_PLPMTU (1,200 bytes less 48 of ours) to jumbo frames, whatever the block size.
    #[test]
    fn every_usual_path_has_29_to_911_symbols_to_a_block() {
        let sizes = [Bytes::mib(1), Bytes::mib(20 << 10), Bytes::mib(1 << 20)];
        let counts = sizes.into_iter().flat_map(|size| {
            (1152..=MAX_SYMBOL_SIZE)
                .map(move |room| Geometry::fitting(size, room).source_symbols(BlockIndex(0)))
        });
        let (least, most) = counts.fold((u32::MAX, 0), |(least, most), k| (least.min(k), most.max(k)));
        assert_eq!((least, most), (29, 911));
    }

    #[test]
    fn a_small_object_is_the_fewest_packets_and_all_are_equally_full() {
        let cut = |bytes: u64| {
            let geometry = Geometry::fitting(Bytes::new(bytes), 1424);
            (geometry.source_symbols(BlockIndex(0)), geometry.symbol_size())
        };
        assert_eq!(cut(1), (1, 8));
        assert_eq!(cut(1000), (1, 1000));
        assert_eq!(cut(1424), (1, 1424));
        assert_eq!(cut(1425), (2, 713));
        assert_eq!(cut(2848), (2, 1424));
        assert_eq!(cut(10_000), (8, 1250));
        // A byte more than a block: the second block is one symbol of the task's one size.
        let geometry = Geometry::fitting(Bytes::new((256 << 10) + 1), 1424);
        assert_eq!(geometry.source_symbols(BlockIndex(1)), 1);
        assert_eq!((geometry.source_symbols(BlockIndex(0)), geometry.symbol_size()), (185, 1417));
    }

    #[test]
    fn room_is_clipped_to_what_can_be_a_symbol() {
        let size = |room| Geometry::fitting(Bytes::mib(1), room).symbol_size();
        assert_eq!((size(0), size(64), size(71)), (64, 64, 71));
        assert!(size(u16::MAX) <= MAX_SYMBOL_SIZE);
        assert!(size(1431) <= 1431);
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

        /// No shorter T makes as few packets of a full block.
        #[test]
        fn a_full_block_is_the_fewest_packets_with_less_than_a_byte_of_padding_each(
            size in 8u64..1 << 24, room in 64u16..9152,
        ) {
            let g = Geometry::fitting(Bytes::new(size), room);
            let block = g.layout().len(BlockIndex(0)).get();
            let (k, t) = (u64::from(g.source_symbols(BlockIndex(0))), u64::from(g.symbol_size()));
            prop_assert_eq!(k, block.div_ceil(u64::from(room)));
            prop_assert!(k * t - block < k);
        }
    }
}
