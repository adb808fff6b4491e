//! Blocks, symbols and randomness that several tests share.
#![allow(dead_code)]

use headwater_codec::{BlockEncoder, BlockShape};
use headwater_units::{Bytes, Esi};

/// The block of the test vectors: byte i is (i * i + 7 * i + 3) mod 251.
pub(crate) fn generated_block(len: u64) -> Vec<u8> {
    (0..len).map(|i| ((i * i + 7 * i + 3) % 251) as u8).collect()
}

pub(crate) fn shape(block_bytes: u64, symbol_size: u16) -> BlockShape {
    BlockShape::new(Bytes::new(block_bytes), symbol_size).unwrap()
}

pub(crate) fn generated_encoder(shape: BlockShape) -> BlockEncoder {
    BlockEncoder::new(shape, generated_block(shape.block_bytes().get())).unwrap()
}

pub(crate) fn symbol(encoder: &BlockEncoder, esi: u32) -> Vec<u8> {
    let mut out = vec![0xaa; usize::from(encoder.shape().symbol_size())];
    encoder.symbol(Esi(esi), &mut out).unwrap();
    out
}

/// SplitMix64 (Steele, Lea, Flood 2014): a few lines, and the same numbers everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// All of `items`, in random order.
    pub(crate) fn shuffled<T>(&mut self, items: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut items: Vec<T> = items.into_iter().collect();
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
        items
    }
}
