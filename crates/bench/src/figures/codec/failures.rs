//! How often a block does not decode although K symbols and some more are here.

use headwater_codec::{Assembler, BlockEncoder, Decoder as _, Method};
use headwater_units::Esi;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{CodecBenchError, Wanted, shapes};

/// Number of ESIs that repair symbols are drawn from.
const ESIS: u32 = 1 << 20;

/// One row: blocks of one K with some number of symbols beyond K.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// Source symbols of a block.
    pub k: u32,
    /// Symbols beyond K.
    pub extra: u32,
    /// Blocks that were tried.
    pub blocks: u32,
    /// Blocks that did not decode.
    pub failed: u32,
}

impl Failures {
    /// Probability cited for RFC 6330 (SCDP §II): a hundredth, and a hundredth of that with each symbol more.
    pub fn published(&self) -> f64 {
        0.01f64.powi(self.extra as i32 + 1)
    }
}

/// Tries `blocks` blocks of each K, with K, K + 1 and K + 2 symbols drawn at random, each a source symbol as often as a
/// repair symbol; says each row when it is there. Symbols have one byte: what decodes does not depend on their length.
/// Another `seed` draws other symbols.
///
/// # Errors
/// [`CodecBenchError`].
pub fn failures(
    wanted: &Wanted,
    blocks: u32,
    seed: u64,
    mut done: impl FnMut(&Failures),
) -> Result<Vec<Failures>, CodecBenchError> {
    let one_byte = Wanted { symbol_sizes: vec![1], ..wanted.clone() };
    let mut results = Vec::new();
    for shape in shapes(&one_byte)? {
        let k = shape.source_symbols();
        let bytes = (0..k).map(|n| (n * 31 + 7) as u8).collect();
        let mut encoder = BlockEncoder::new(shape, bytes)?;
        encoder.set_method(Method::Sparse);
        encoder.prepare_repair();
        for extra in 0..3 {
            let mut random = ChaCha8Rng::seed_from_u64(seed << 2 | u64::from(extra));
            let mut failed = 0;
            for _ in 0..blocks {
                let mut assembler = Assembler::new(shape);
                let mut symbol = [0];
                while assembler.distinct() < k + extra {
                    let esi = match random.random_bool(0.5) {
                        true => random.random_range(0..k),
                        false => random.random_range(k..ESIS),
                    };
                    encoder.symbol(Esi(esi), &mut symbol)?;
                    assembler.insert(Esi(esi), &symbol)?;
                }
                match assembler.finish() {
                    Ok(block) if block == encoder.block() => {}
                    Ok(_) => return Err(CodecBenchError::Wrong { op: "decode", symbols: k, shape }),
                    Err(_) => failed += 1,
                }
            }
            let row = Failures { k, extra, blocks, failed };
            done(&row);
            results.push(row);
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fail_as_often_as_a_random_system_over_256_elements() {
        let wanted =
            Wanted { source_symbols: vec![20], symbol_sizes: vec![9], losses: Vec::new(), repeat: 1 };
        let mut said = 0;
        let rows = failures(&wanted, 5000, 0, |_| said += 1).unwrap();
        let counts: Vec<_> = rows.iter().map(|row| (row.extra, row.blocks, row.failed)).collect();
        assert_eq!((said, counts.len()), (3, 3));
        // One in 256 without a further symbol: 20 of 5000; one in 65,536 with one.
        assert!((8..=50).contains(&counts[0].2), "{counts:?}");
        assert!(counts[1].2 <= 2 && counts[2].2 == 0, "{counts:?}");
        assert!((rows[2].published() - 1e-6).abs() < 1e-12);
    }
}
