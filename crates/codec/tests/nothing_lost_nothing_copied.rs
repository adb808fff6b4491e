//! Goal: when every source symbol arrives, the block is where the symbols were put: no decode and no second copy.

mod common;

use common::{Random, generated_encoder, shape, symbol};
use headwater_codec::{Assembler, Decoder};
use headwater_units::Esi;

#[test]
fn the_block_is_the_recycled_buffer_itself() {
    let encoder = generated_encoder(shape(256 << 10, 1424));
    let k = encoder.shape().source_symbols();
    assert_eq!(k, 185);
    let buffer = Vec::with_capacity(185 * 1424);
    let place = buffer.as_ptr();

    let mut assembler = Assembler::with_buffer(encoder.shape(), buffer);
    for esi in Random(5).shuffled(0..k) {
        assert!(!assembler.is_systematic_complete());
        assembler.insert(Esi(esi), &symbol(&encoder, esi)).unwrap();
    }
    assert!(assembler.is_systematic_complete());
    let block = assembler.finish().unwrap();
    assert_eq!(block.as_ptr(), place);
    assert!(block == encoder.block());

    let buffer = assembler.into_buffer();
    assert_eq!((buffer.as_ptr(), buffer.len()), (place, 256 << 10));
    assert!(!encoder.is_repair_ready(), "source symbols alone build nothing at the source either");
}

#[test]
fn a_decode_fills_in_what_is_missing_and_moves_nothing() {
    let encoder = generated_encoder(shape(5000, 100));
    let mut assembler = Assembler::new(encoder.shape());
    for esi in 3..55 {
        assembler.insert(Esi(esi), &symbol(&encoder, esi)).unwrap();
    }
    let before = assembler.symbol(Esi(3)).unwrap().as_ptr();
    let block = assembler.finish().unwrap();
    assert_eq!(block[300..].as_ptr(), before);
    assert!(block == encoder.block());
}
