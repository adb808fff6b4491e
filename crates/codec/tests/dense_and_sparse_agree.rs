//! Goal: every kernel decodes and encodes bit for bit what the elimination of RFC 6330 does, and fails when it fails.

mod common;

use common::{Random, generated_encoder, shape, symbol};
use headwater_codec::{Assembler, BlockEncoder, BlockShape, Decoder, Kernel, Method};
use headwater_units::{ESI_LIMIT, Esi};

/// Every way there is, the sparse one first.
fn methods() -> Vec<Method> {
    [Method::Sparse, Method::Fastest].into_iter().chain(Kernel::available().map(Method::Dense)).collect()
}

/// A shape with K up to `most`, often small, and with a last symbol that may be one byte or whole.
fn any_shape(random: &mut Random, most: u64) -> BlockShape {
    let most = 1 + random.below(most);
    let source_symbols = 1 + random.below(most);
    let symbol_size = match random.below(4) {
        0 => 1 + random.below(8),
        1 => 64,
        _ => 1 + random.below(300),
    };
    shape(source_symbols * symbol_size - random.below(symbol_size), symbol_size as u16)
}

/// A block of random bytes.
fn any_block(random: &mut Random, shape: BlockShape) -> BlockEncoder {
    let block = (0..shape.block_bytes().get()).map(|_| random.below(256) as u8).collect();
    BlockEncoder::new(shape, block).unwrap()
}

/// The ESIs of a reception: some source symbols, and repair symbols for the rest and `spare` more.
fn reception(random: &mut Random, shape: BlockShape, spare: u32) -> Vec<Esi> {
    let k = shape.source_symbols();
    let loss = random.below(101);
    let mut esis: Vec<Esi> = (0..k).filter(|_| random.below(100) >= loss).map(Esi).collect();
    // From anywhere, from the front, and at a stride, as several sources send them.
    let (first, stride, spread) = match random.below(3) {
        0 => (k, 1, 1),
        1 => (k + random.below(50) as u32, 3, 1),
        _ => (k, 1, u64::from(ESI_LIMIT - k) / 200),
    };
    let mut esi = first;
    while esis.len() < (k + spare) as usize {
        esis.push(Esi(esi));
        esi += stride + random.below(spread) as u32;
    }
    esis
}

fn received(encoder: &BlockEncoder, esis: &[Esi], method: Method) -> Assembler {
    let mut assembler = Assembler::new(encoder.shape());
    assembler.set_method(method);
    for esi in esis {
        assembler.insert(*esi, &symbol(encoder, esi.0)).unwrap();
    }
    assembler
}

/// Decodes `patterns` receptions in every way; returns how many could not be decoded.
fn compare(patterns: u32, most: u64, spare: u32, seed: u64) -> u32 {
    let mut random = Random(seed);
    let mut failed = 0;
    for pattern in 0..patterns {
        let shape = any_shape(&mut random, most);
        let encoder = any_block(&mut random, shape);
        let esis = reception(&mut random, encoder.shape(), spare);
        let wanted = received(&encoder, &esis, Method::Sparse).finish().map(<[u8]>::to_vec);
        failed += u32::from(wanted.is_err());
        if let Ok(block) = &wanted {
            assert!(block == encoder.block(), "pattern {pattern}: the oracle itself");
        }
        for method in methods().into_iter().skip(1) {
            let mut assembler = received(&encoder, &esis, method);
            let given = assembler.finish().map(<[u8]>::to_vec);
            assert!(given == wanted, "pattern {pattern}, {method:?}: {:?}, {esis:?}", encoder.shape());
        }
    }
    failed
}

#[test]
fn two_thousand_small_blocks_with_exactly_enough_symbols_decode_or_fail_alike() {
    let failed = compare(2000, 40, 0, 1);
    // One set in 256 is dependent, of those with a loss.
    assert!((1..=30).contains(&failed), "{failed} dependent sets");
}

#[test]
fn a_thousand_small_blocks_with_symbols_to_spare_decode_alike() {
    assert_eq!(compare(1000, 40, 2, 2), 0);
}

#[test]
fn a_hundred_larger_blocks_decode_alike() {
    assert!(compare(100, 400, 0, 3) <= 3);
}

#[test]
fn repair_symbols_are_the_same_in_every_way_and_across_the_change_from_one_way_to_the_other() {
    let mut random = Random(4);
    for _ in 0..100 {
        let shape = any_shape(&mut random, 300);
        let block = any_block(&mut random, shape).into_block();
        let encoders: Vec<BlockEncoder> = methods()
            .into_iter()
            .map(|method| {
                let mut encoder = BlockEncoder::new(shape, block.clone()).unwrap();
                encoder.set_method(method);
                encoder
            })
            .collect();
        let first = shape.source_symbols() + random.below(1 << 20) as u32;
        let esis: Vec<Esi> = (0..random.below(40) as u32).map(|i| Esi(first + 3 * i)).collect();
        let size = usize::from(shape.symbol_size());
        let mut at_once = vec![vec![0xaa; esis.len() * size]; encoders.len()];
        for (encoder, out) in encoders.iter().zip(&mut at_once) {
            encoder.symbols(&esis, out).unwrap();
        }
        assert!(at_once.windows(2).all(|pair| pair[0] == pair[1]), "{shape:?}, {esis:?}");
        for esi in (first..first + 150).chain([ESI_LIMIT - 1]) {
            let wanted = symbol(&encoders[0], esi);
            for encoder in &encoders[1..] {
                assert!(symbol(encoder, esi) == wanted, "{shape:?}, ESI {esi}");
            }
        }
    }
}

#[test]
fn a_repair_symbol_that_says_nothing_new_is_passed_over() {
    // Source symbol 0 comes late, so that the equations of the first repair symbols may lean on each other.
    let source = generated_encoder(shape(6 * 16, 16));
    let mut last = vec![0; 6];
    last[5] = 1;
    let of_last = BlockEncoder::new(shape(6, 1), last).unwrap();
    let blind: Vec<Esi> =
        (6..ESI_LIMIT).filter(|&esi| symbol(&of_last, esi) == [0]).take(20).map(Esi).collect();
    for method in methods() {
        // All but the last source symbol, and twenty repair symbols that do not have it.
        let esis: Vec<Esi> = (0..5).map(Esi).chain(blind.iter().copied()).collect();
        let mut assembler = received(&source, &esis, method);
        assert_eq!(assembler.finish().unwrap_err().at_least, 1, "{method:?}");
        assembler.insert(Esi(ESI_LIMIT - 1), &symbol(&source, ESI_LIMIT - 1)).unwrap();
        assert_eq!(assembler.finish(), Ok(source.block()), "{method:?}");
        assert_eq!(
            assembler.symbol(blind[3]),
            Some(&*symbol(&source, blind[3].0)),
            "repair symbols stay as received"
        );
    }
}

#[test]
fn repair_is_ready_once_prepared_until_another_way_becomes_faster() {
    let encoder = generated_encoder(shape(100 * 64, 64));
    assert!(!encoder.is_repair_ready());
    encoder.prepare_repair();
    assert!(encoder.is_repair_ready());
    let mut esi = 100;
    while encoder.is_repair_ready() && esi < 10_000 {
        symbol(&encoder, esi);
        esi += 1;
    }
    assert!(esi < 1000, "{esi}: some hundreds at most are made one by one");
    encoder.prepare_repair();
    assert!(encoder.is_repair_ready());
    (esi..esi + 1000).for_each(|esi| drop(symbol(&encoder, esi)));
    assert!(encoder.is_repair_ready(), "for good");
}
