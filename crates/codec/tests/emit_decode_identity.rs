//! Goal: whatever K, T and losses, a block that is decoded is the block that was encoded.

mod common;

use common::{Random, shape, symbol};
use headwater_codec::{Assembler, BlockEncoder, Decoder, Inserted};
use headwater_units::{ESI_LIMIT, Esi};
use proptest::prelude::*;

proptest! {
    // Small K mostly: the solver's own checks in an unoptimised build grow faster than K squared.
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_k_plus_3_symbols_give_the_block(
        source_symbols in prop_oneof![8 => 1u64..40, 1 => 40u64..260],
        symbol_size in prop_oneof![1u16..20, Just(64), Just(1376)],
        short_by in 0u64..20,
        kept_per_cent in 0u64..=100,
        seed: u64,
    ) {
        let mut random = Random(seed);
        let size = u64::from(symbol_size);
        let shape = shape(source_symbols * size - short_by % size, symbol_size);
        let block: Vec<u8> = (0..shape.block_bytes().get()).map(|_| random.below(256) as u8).collect();
        let encoder = BlockEncoder::new(shape, block.clone()).unwrap();

        let k = shape.source_symbols();
        let mut esis: Vec<u32> = (0..k).filter(|_| random.below(100) < kept_per_cent).collect();
        while esis.len() < k as usize + 3 {
            let esi = k + random.below(u64::from(ESI_LIMIT - k)) as u32;
            if !esis.contains(&esi) {
                esis.push(esi);
            }
        }
        let mut assembler = Assembler::new(shape);
        for esi in random.shuffled(esis) {
            let payload = symbol(&encoder, esi);
            prop_assert_eq!(assembler.insert(Esi(esi), &payload), Ok(Inserted::New));
            // Other bytes under the same id change nothing: the first symbol stays.
            let other = if esi + 1 == k { payload.clone() } else { vec![0x55; payload.len()] };
            prop_assert_eq!(assembler.insert(Esi(esi), &other), Ok(Inserted::Duplicate));
            prop_assert_eq!(assembler.symbol(Esi(esi)), Some(&*payload));
        }
        prop_assert_eq!(assembler.distinct(), k + 3);
        prop_assert_eq!(assembler.finish(), Ok(&*block));
        prop_assert_eq!(assembler.finish(), Ok(&*block), "and again");
        prop_assert_eq!(assembler.into_buffer(), block);
    }
}
