//! Symbols from anybody, as text and as bytes: nothing panics, memory stays bounded, and symbols that an encoder made
//! give its block or nothing.
#![no_main]

use arbitrary::Arbitrary;
use headwater_codec::{Assembler, BlockEncoder, BlockShape, Decoder as _, text};
use headwater_units::{Bytes, Esi};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// Both are scaled down: large blocks make a slow fuzzer, not a better one.
    block_bytes: u16,
    symbol_size: u8,
    what: What<'a>,
}

#[derive(Arbitrary, Debug)]
enum What<'a> {
    /// Lines for `headwater debug decode`.
    Lines(&'a [u8]),
    /// Symbols with wild ESIs, lengths and bytes.
    Wild(Vec<(u32, &'a [u8])>),
    /// Honest symbols of a block, these ESIs in this order; after some of them the decoder is asked.
    Honest { seed: u8, esis: Vec<(u16, bool)> },
}

fuzz_target!(|input: Input<'_>| {
    let block_bytes = Bytes::new(u64::from(input.block_bytes % 1024));
    // At most 64 source symbols, but zero stays zero: a solver run takes long enough under a sanitizer.
    let symbol_size = match u16::from(input.symbol_size % 64) {
        0 => 0,
        size => size.max(block_bytes.get().div_ceil(64) as u16),
    };
    match input.what {
        What::Lines(lines) => {
            let mut block = Vec::new();
            match text::decode_block(lines, block_bytes, symbol_size, &mut block) {
                Ok(()) => assert_eq!(block.len() as u64, block_bytes.get()),
                Err(_) => assert!(block.is_empty(), "nothing is written on an error"),
            }
        }
        What::Wild(symbols) => {
            let Ok(shape) = BlockShape::new(block_bytes, symbol_size) else { return };
            let mut assembler = Assembler::new(shape);
            for (esi, payload) in symbols {
                let _ = assembler.insert(Esi(esi), payload);
                assert!(assembler.held_bytes() <= Assembler::held_bytes_limit(shape));
            }
            let _ = assembler.finish();
        }
        What::Honest { seed, esis } => {
            let Ok(shape) = BlockShape::new(block_bytes, symbol_size) else { return };
            let block: Vec<u8> =
                (0..block_bytes.get()).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            let encoder = BlockEncoder::new(shape, block.clone()).expect("the block has the shape's length");
            let mut assembler = Assembler::new(shape);
            let mut symbol = vec![0; usize::from(symbol_size)];
            let mut questions = 4;
            for (esi, ask) in esis {
                let esi = Esi(u32::from(esi));
                encoder.symbol(esi, &mut symbol).expect("every small ESI exists");
                assembler.insert(esi, &symbol).expect("an honest symbol is taken");
                if ask && questions > 0 && assembler.distinct() >= shape.source_symbols() {
                    questions -= 1;
                    if let Ok(decoded) = assembler.finish() {
                        assert_eq!(decoded, block);
                    }
                }
            }
        }
    }
});
