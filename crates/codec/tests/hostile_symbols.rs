//! Goal: whatever is inserted, nothing panics, memory stays within its bound, and honest symbols win in the end.

mod common;

use common::{Random, generated_encoder, shape, symbol};
use headwater_codec::{Assembler, BlockEncoder, CodecError, Decoder, Inserted, SPARE_SYMBOLS};
use headwater_units::{ESI_LIMIT, Esi};
use proptest::prelude::*;

#[test]
fn repair_symbols_beyond_k_plus_32_are_not_kept() {
    let encoder = generated_encoder(shape(1000, 10));
    let mut assembler = Assembler::new(encoder.shape());
    for i in 0..1100 {
        let inserted = assembler.insert(Esi(5000 + i), &[i as u8; 10]).unwrap();
        assert_eq!(inserted, if i < 132 { Inserted::New } else { Inserted::Surplus });
    }
    assert_eq!(assembler.distinct(), 100 + SPARE_SYMBOLS);
    assert!(assembler.held_bytes() <= Assembler::held_bytes_limit(encoder.shape()));

    // A flood of repair symbols does not keep source symbols out, and they alone decide.
    for esi in 0..100 {
        assert_eq!(assembler.insert(Esi(esi), &symbol(&encoder, esi)), Ok(Inserted::New));
    }
    assert_eq!(assembler.held_bytes(), Assembler::held_bytes_limit(encoder.shape()));
    assert_eq!(assembler.finish(), Ok(encoder.block()));
}

#[test]
fn a_liars_symbols_can_be_forgotten_and_replaced() {
    let encoder = generated_encoder(shape(300, 10));
    let mut assembler = Assembler::new(encoder.shape());
    let forged = |esi: u32| esi.is_multiple_of(3);
    for esi in 5..35 {
        let payload = if forged(esi) { vec![0xee; 10] } else { symbol(&encoder, esi) };
        assembler.insert(Esi(esi), &payload).unwrap();
    }
    assert_ne!(assembler.finish(), Ok(encoder.block()), "a code for losses does not notice forgeries");

    assert_eq!(assembler.retain(&mut |esi| !forged(esi.0)), 10);
    assert!(!assembler.contains(Esi(6)) && assembler.symbol(Esi(33)).is_none());
    assert_eq!(assembler.finish().unwrap_err().at_least, 10);
    for esi in 35..48 {
        assembler.insert(Esi(esi), &symbol(&encoder, esi)).unwrap();
    }
    assert_eq!(assembler.finish(), Ok(encoder.block()));
    assert_eq!(assembler.retain(&mut |_| true), 0);
    assert_eq!(assembler.into_buffer(), encoder.block(), "forgetting nothing keeps the block");
}

/// The first ESIs whose repair symbol does not depend on the last source symbol of a block of K = `source_symbols`.
fn blind_to_the_last_symbol(source_symbols: usize) -> impl Iterator<Item = u32> {
    let mut block = vec![0; source_symbols];
    block[source_symbols - 1] = 1;
    let encoder = BlockEncoder::new(shape(source_symbols as u64, 1), block).unwrap();
    (source_symbols as u32..ESI_LIMIT).filter(move |&esi| symbol(&encoder, esi) == [0])
}

#[test]
fn esis_picked_to_be_useless_fill_the_room_until_they_are_forgotten() {
    let encoder = BlockEncoder::new(shape(1, 1), vec![7]).unwrap();
    let mut assembler = Assembler::new(encoder.shape());
    for esi in blind_to_the_last_symbol(1).take(33) {
        assert_eq!(assembler.insert(Esi(esi), &[0]), Ok(Inserted::New));
    }
    assert_eq!(assembler.finish().unwrap_err().at_least, 1);
    let honest = ESI_LIMIT - 1;
    assert_eq!(assembler.insert(Esi(honest), &symbol(&encoder, honest)), Ok(Inserted::Surplus));
    assert_eq!(assembler.retain(&mut |_| false), 33);
    assert_eq!(assembler.insert(Esi(honest), &symbol(&encoder, honest)), Ok(Inserted::New));
    assert_eq!(assembler.finish(), Ok(&[7][..]));
}

#[test]
fn one_useful_repair_symbol_among_useless_ones_is_found() {
    let encoder = BlockEncoder::new(shape(2, 1), vec![7, 9]).unwrap();
    let mut assembler = Assembler::new(encoder.shape());
    for esi in blind_to_the_last_symbol(2).take(33).chain([ESI_LIMIT - 1]) {
        assert_eq!(assembler.insert(Esi(esi), &symbol(&encoder, esi)), Ok(Inserted::New));
    }
    assembler.insert(Esi(0), &[7]).unwrap();
    assert_eq!(assembler.finish(), Ok(&[7, 9][..]));
}

#[test]
fn a_source_symbol_with_dirty_padding_is_refused() {
    let encoder = generated_encoder(shape(25, 10));
    let mut assembler = Assembler::new(encoder.shape());
    let mut last = symbol(&encoder, 2);
    last[5] = 1;
    assert_eq!(assembler.insert(Esi(2), &last), Err(CodecError::Padding(Esi(2))));
    last[5] = 0;
    assert_eq!(assembler.insert(Esi(2), &last), Ok(Inserted::New));
}

#[test]
fn a_late_source_symbol_is_believed_only_after_another_decode() {
    let encoder = generated_encoder(shape(200, 10));
    let mut assembler = Assembler::new(encoder.shape());
    for esi in 2..24 {
        assembler.insert(Esi(esi), &symbol(&encoder, esi)).unwrap();
    }
    assert_eq!(assembler.finish(), Ok(encoder.block()));
    assembler.insert(Esi(0), &symbol(&encoder, 0)).unwrap();
    assert!(assembler.into_buffer().is_empty(), "not finished since");
}

#[test]
fn a_recycled_buffer_never_shows_what_it_held() {
    let encoder = generated_encoder(shape(25, 10));
    for old in [vec![], vec![0xff; 7], vec![0xff; 4000]] {
        let mut assembler = Assembler::with_buffer(encoder.shape(), old);
        assert!(assembler.finish().is_err());
        for esi in 1..6 {
            assembler.insert(Esi(esi), &symbol(&encoder, esi)).unwrap();
        }
        assert_eq!(assembler.finish(), Ok(encoder.block()));
        assert_eq!(assembler.into_buffer(), encoder.block());
    }
    assert!(Assembler::with_buffer(encoder.shape(), vec![0xff; 4000]).into_buffer().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn junk_never_panics_and_never_exceeds_the_memory_bound(
        block_bytes in 1u64..200,
        symbol_size in 1u16..12,
        seed: u64,
        forget_per_cent in 0u64..100,
    ) {
        let mut random = Random(seed);
        let shape = shape(block_bytes, symbol_size);
        let (k, limit) = (shape.source_symbols(), Assembler::held_bytes_limit(shape));
        let mut assembler = Assembler::new(shape);
        for round in 0..4 {
            for _ in 0..k + 1000 {
                let esi = match random.below(4) {
                    0 => random.below(u64::from(k)) as u32,
                    1 => k + random.below(u64::from(k)) as u32,
                    2 => random.below(u64::from(ESI_LIMIT)) as u32,
                    _ => random.below(1 << 32) as u32,
                };
                let right = usize::from(symbol_size);
                let len = if random.below(3) == 0 { random.below(2000) as usize } else { right };
                let payload: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                match assembler.insert(Esi(esi), &payload) {
                    Ok(_) => prop_assert!(len == right && esi < ESI_LIMIT),
                    Err(CodecError::Padding(esi)) => prop_assert_eq!(esi.0, k - 1),
                    Err(_) => prop_assert!(len != right || esi >= ESI_LIMIT),
                }
                prop_assert!(assembler.held_bytes() <= limit);
            }
            if let Ok(block) = assembler.finish() {
                prop_assert_eq!(block.len() as u64, block_bytes, "round {}", round);
            }
            assembler.retain(&mut |_| random.below(100) >= forget_per_cent);
        }
    }

    #[test]
    fn symbols_all_of_one_kind_are_solved_or_refused_but_never_panic(
        source_symbols in 1u64..30,
        spare in 0..=SPARE_SYMBOLS,
        first in 0..ESI_LIMIT / 2,
        stride in 1u32..5000,
    ) {
        let encoder = generated_encoder(shape(source_symbols * 4, 4));
        let k = encoder.shape().source_symbols();
        let mut assembler = Assembler::new(encoder.shape());
        for i in 0..k + spare {
            let esi = k + first + i * stride;
            assembler.insert(Esi(esi), &symbol(&encoder, esi)).unwrap();
        }
        match assembler.finish() {
            Ok(block) => prop_assert_eq!(block, encoder.block()),
            Err(need) => prop_assert_eq!(need.at_least, 1),
        }
    }
}
