//! How fast blocks are coded and decoded, beside the same work by the elimination of RFC 6330 alone and beside memcpy.
//!
//! All three take turns in one run, on one thread and in its CPU time, over an object of 20 to 30 MB cut in blocks,
//! which no second-level cache holds. The result is compared with the object. Tables that all blocks of one K share are
//! there before the clock starts.

mod failures;

use std::time::Duration;

use cpu_time::ThreadTime;
use headwater_codec::{Assembler, BlockEncoder, BlockShape, CodecError, Decoder as _, Kernel, Method};
use headwater_units::{Bytes, Esi};
use rand::seq::index;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use thiserror::Error;

pub use failures::{Failures, failures};

/// The object's length at least, bytes.
const OBJECT_BYTES: usize = 20_000_000;

/// Repair symbols kept beside those given, for when those are dependent (one block in 256).
const MORE_REPAIR: u32 = 4;

/// Shapes and losses to measure.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Source symbols of a block.
    pub source_symbols: Vec<u32>,
    /// Bytes of a symbol.
    pub symbol_sizes: Vec<u16>,
    /// Shares of a block's source symbols that are lost, 0..=1.
    pub losses: Vec<f64>,
    /// How often each figure is taken; its median counts.
    pub repeat: u32,
}

/// One figure and those it is held against. MB are 10^6 bytes of source, per second of CPU time.
#[derive(Clone, Debug, Serialize)]
pub struct CodecBench {
    /// Source symbols of a block.
    pub k: u32,
    /// Bytes of a symbol.
    pub t: u16,
    /// The share of the source symbols that was lost, or in place of which repair symbols were made.
    pub loss: f64,
    /// `decode`: filling in what was lost, from as many repair symbols (without a loss: putting K source symbols in
    /// their places). `encode`: making as many repair symbols at once, at least one (without a loss: K source symbols).
    pub op: &'static str,
    /// As the product does it.
    pub mb_per_s: f64,
    /// `mb_per_s` as a share of that of memcpy.
    pub memcpy_share: f64,
    /// With the `raptorq` crate for everything but source symbols.
    pub crate_mb_per_s: f64,
    /// memcpy of the object in pieces of `t` bytes.
    pub memcpy_mb_per_s: f64,
    /// Symbols lost, or made.
    pub symbols: u32,
    /// The instructions of the product's own way.
    pub kernel: &'static str,
}

/// From how many lost symbols on the sparse solver is faster.
#[derive(Clone, Debug, Serialize)]
pub struct Changeover {
    /// Source symbols of a block.
    pub k: u32,
    /// Bytes of a symbol.
    pub t: u16,
    /// The instructions.
    pub kernel: &'static str,
    /// As measured; `null` if it never is.
    pub measured: Option<u32>,
    /// Where the product changes over with this kernel; `null` if it never does.
    pub rule: Option<u32>,
}

/// The benchmark cannot be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CodecBenchError {
    /// No block has this many symbols of this size.
    #[error(transparent)]
    Shape(#[from] CodecError),
    /// Not a share.
    #[error("{0} is not a share of a block's symbols between 0 and 1")]
    Loss(f64),
    /// The result is not the object.
    #[error("{op} with {symbols} symbols of {shape:?} gave other bytes than it was given")]
    Wrong {
        /// The operation.
        op: &'static str,
        /// Symbols lost, or made.
        symbols: u32,
        /// With which blocks.
        shape: BlockShape,
    },
}

/// Measures all that is wanted; says each figure when it is there.
///
/// # Errors
/// [`CodecBenchError`].
pub fn run(wanted: &Wanted, mut done: impl FnMut(&CodecBench)) -> Result<Vec<CodecBench>, CodecBenchError> {
    if let Some(&loss) = wanted.losses.iter().find(|loss| !(0.0..=1.0).contains(*loss)) {
        return Err(CodecBenchError::Loss(loss));
    }
    let mut results = Vec::new();
    for shape in shapes(wanted)? {
        let object = Object::new(shape);
        for &loss in &wanted.losses {
            for result in [
                object.measure("decode", loss, wanted.repeat, Object::decode)?,
                object.measure("encode", loss, wanted.repeat, Object::encode)?,
            ] {
                done(&result);
                results.push(result);
            }
        }
    }
    Ok(results)
}

/// Finds for each K and T, and each kernel of this machine, from how many losses on the sparse solver is faster; says
/// each when it is there.
///
/// # Errors
/// [`CodecBenchError`].
pub fn changeovers(
    wanted: &Wanted,
    mut done: impl FnMut(&Changeover),
) -> Result<Vec<Changeover>, CodecBenchError> {
    let mut results = Vec::new();
    for shape in shapes(wanted)? {
        let object = Object::new(shape);
        for kernel in Kernel::available() {
            let measured = first(shape.source_symbols(), |lost| {
                let (mut dense, mut sparse) = (Vec::new(), Vec::new());
                for seed in 0..wanted.repeat {
                    dense.push(object.decode(Method::Dense(kernel), lost, seed)?);
                    sparse.push(object.decode(Method::Sparse, lost, seed)?);
                }
                Ok::<_, CodecBenchError>(median(&mut dense) > median(&mut sparse))
            })?;
            let by_rule = |lost| Ok::<_, CodecBenchError>(!kernel.beats_sparse(shape, lost));
            let rule = first(shape.source_symbols(), by_rule)?;
            let (k, t) = (shape.source_symbols(), shape.symbol_size());
            let result = Changeover { k, t, kernel: kernel.name(), measured, rule };
            done(&result);
            results.push(result);
        }
    }
    Ok(results)
}

/// The first of 1..=`last` for which `is` holds, given that it holds for all after one for which it does.
fn first<E>(last: u32, mut is: impl FnMut(u32) -> Result<bool, E>) -> Result<Option<u32>, E> {
    if !is(last)? {
        return Ok(None);
    }
    let (mut not, mut yes) = (0, last);
    while yes - not > 1 {
        let middle = not + (yes - not) / 2;
        if is(middle)? { yes = middle } else { not = middle }
    }
    Ok(Some(yes))
}

fn shapes(wanted: &Wanted) -> Result<Vec<BlockShape>, CodecBenchError> {
    let mut shapes = Vec::new();
    for &k in &wanted.source_symbols {
        for &t in &wanted.symbol_sizes {
            shapes.push(BlockShape::new(Bytes::new(u64::from(k) * u64::from(t)), t)?);
        }
    }
    Ok(shapes)
}

/// Random bytes, cut in blocks of one shape.
struct Object {
    shape: BlockShape,
    blocks: Vec<Vec<u8>>,
}

impl Object {
    fn new(shape: BlockShape) -> Object {
        let len = shape.block_bytes().get() as usize;
        let mut random = ChaCha8Rng::seed_from_u64(6330);
        let mut block = || {
            let mut bytes = vec![0; len];
            random.fill_bytes(&mut bytes);
            bytes
        };
        Object { shape, blocks: (0..OBJECT_BYTES.div_ceil(len)).map(|_| block()).collect() }
    }

    fn bytes(&self) -> f64 {
        (self.blocks.len() as u64 * self.shape.block_bytes().get()) as f64
    }

    /// One figure: `work` in both ways and memcpy, by turns.
    fn measure(
        &self,
        op: &'static str,
        loss: f64,
        repeat: u32,
        work: impl Fn(&Object, Method, u32, u32) -> Result<Duration, CodecBenchError>,
    ) -> Result<CodecBench, CodecBenchError> {
        let k = self.shape.source_symbols();
        // 0.07 * 100 is a little more than 7.
        let symbols = (f64::from(k) * loss - 1e-9).ceil().max(0.0) as u32;
        let (mut ours, mut theirs, mut memcpy) = (Vec::new(), Vec::new(), Vec::new());
        let mut copy = self.blocks.clone();
        for seed in 0..repeat.max(1) {
            memcpy.push(self.copy(&mut copy));
            // The second one to run finds a warmer machine: so it is each in turn.
            if seed % 2 == 0 {
                ours.push(work(self, Method::Fastest, symbols, seed)?);
                theirs.push(work(self, Method::Sparse, symbols, seed)?);
            } else {
                theirs.push(work(self, Method::Sparse, symbols, seed)?);
                ours.push(work(self, Method::Fastest, symbols, seed)?);
            }
        }
        let rate = |times: &mut Vec<Duration>| self.bytes() / median(times).as_secs_f64() / 1e6;
        let (mb_per_s, crate_mb_per_s) = (rate(&mut ours), rate(&mut theirs));
        let memcpy_mb_per_s = rate(&mut memcpy);
        Ok(CodecBench {
            k,
            t: self.shape.symbol_size(),
            loss,
            op,
            mb_per_s,
            memcpy_share: mb_per_s / memcpy_mb_per_s,
            crate_mb_per_s,
            memcpy_mb_per_s,
            symbols,
            kernel: Kernel::fastest().name(),
        })
    }

    fn copy(&self, to: &mut [Vec<u8>]) -> Duration {
        let size = usize::from(self.shape.symbol_size());
        let begun = ThreadTime::now();
        for (to, from) in to.iter_mut().zip(&self.blocks) {
            for (to, from) in to.chunks_mut(size).zip(from.chunks(size)) {
                to.copy_from_slice(from);
            }
        }
        let time = begun.elapsed();
        std::hint::black_box(to);
        time
    }

    /// Decodes all blocks, `lost` source symbols of each lost at random.
    fn decode(&self, method: Method, lost: u32, seed: u32) -> Result<Duration, CodecBenchError> {
        let mut random = ChaCha8Rng::seed_from_u64(u64::from(seed));
        let k = self.shape.source_symbols();
        // Repair symbols from anywhere in the stream, as a source would be given a part of it.
        let first = k + random.random_range(0..1 << 20);
        let mut receptions = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            let encoder = self.encoder(block, Method::Fastest);
            let mut is_lost = vec![false; k as usize];
            index::sample(&mut random, k as usize, lost as usize).iter().for_each(|i| is_lost[i] = true);
            // As in the product, where buffers go round: this memory has been touched.
            let mut assembler = Assembler::with_buffer(self.shape, vec![0xff; block.len()]);
            assembler.set_method(method);
            if lost > 0 {
                for esi in (0..k).filter(|&i| !is_lost[i as usize]).chain(first..first + lost) {
                    insert(&encoder, esi, &mut assembler);
                }
            }
            receptions.push((encoder, assembler));
        }
        if lost > 0 {
            // The coefficients of this K.
            self.encoder(&self.blocks[0], Method::Dense(Kernel::fastest())).prepare_repair();
        }

        let size = usize::from(self.shape.symbol_size());
        let begun = ThreadTime::now();
        for ((encoder, assembler), block) in receptions.iter_mut().zip(&self.blocks) {
            if lost == 0 {
                for (esi, symbol) in block.chunks(size).enumerate() {
                    assembler.insert(Esi(esi as u32), symbol)?;
                }
            }
            let mut more = first + lost..first + lost + MORE_REPAIR;
            while assembler.finish().is_err() {
                let Some(esi) = more.next() else { break };
                insert(encoder, esi, assembler);
            }
        }
        let time = begun.elapsed();
        for ((_, assembler), block) in receptions.iter_mut().zip(&self.blocks) {
            if assembler.finish() != Ok(block) {
                return Err(CodecBenchError::Wrong { op: "decode", symbols: lost, shape: self.shape });
            }
        }
        Ok(time)
    }

    /// Makes `repair` symbols of each block, at least one; if none, its source symbols.
    fn encode(&self, method: Method, repair: u32, _seed: u32) -> Result<Duration, CodecBenchError> {
        let k = self.shape.source_symbols();
        let (esis, source) = if repair == 0 { (0..k, true) } else { (k..k + repair, false) };
        let encoders: Vec<BlockEncoder> =
            self.blocks.iter().map(|block| self.encoder(block, method)).collect();
        if !source {
            // Work that this K needs once: the coefficients, and the crate's plan for the intermediate symbols.
            self.encoder(&self.blocks[0], method).prepare_repair();
            self.encoder(&self.blocks[0], Method::Sparse).prepare_repair();
        }
        let wanted: Vec<Esi> = esis.clone().map(Esi).collect();
        let mut symbols = vec![0; wanted.len() * usize::from(self.shape.symbol_size())];
        let mut time = Duration::ZERO;
        for encoder in &encoders {
            let begun = ThreadTime::now();
            encoder.symbols(&wanted, &mut symbols)?;
            time += begun.elapsed();
            std::hint::black_box(&mut symbols);
        }
        if !self.are_symbols(&symbols, esis, encoders.last().expect("an object has blocks"))? {
            return Err(CodecBenchError::Wrong { op: "encode", symbols: repair, shape: self.shape });
        }
        Ok(time)
    }

    /// Whether these are the symbols of the last block: source symbols its bytes, repair symbols those of the crate.
    fn are_symbols(
        &self,
        symbols: &[u8],
        esis: std::ops::Range<u32>,
        last: &BlockEncoder,
    ) -> Result<bool, CodecBenchError> {
        if esis.start == 0 {
            return Ok(symbols == last.block());
        }
        let oracle = self.encoder(last.block(), Method::Sparse);
        let mut wanted = vec![0; usize::from(self.shape.symbol_size())];
        for (esi, symbol) in esis.zip(symbols.chunks_exact(wanted.len())) {
            oracle.symbol(Esi(esi), &mut wanted)?;
            if symbol != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn encoder(&self, block: &[u8], method: Method) -> BlockEncoder {
        let mut encoder =
            BlockEncoder::new(self.shape, block.to_vec()).expect("a block has the shape's length");
        encoder.set_method(method);
        encoder
    }
}

fn insert(encoder: &BlockEncoder, esi: u32, assembler: &mut Assembler) {
    let mut symbol = vec![0; usize::from(encoder.shape().symbol_size())];
    encoder.symbol(Esi(esi), &mut symbol).expect("an ESI far below 2^24");
    assembler.insert(Esi(esi), &symbol).expect("an honest symbol");
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(source_symbols: u32, losses: &[f64]) -> Wanted {
        Wanted {
            source_symbols: vec![source_symbols],
            symbol_sizes: vec![8192],
            losses: losses.to_vec(),
            repeat: 1,
        }
    }

    #[test]
    fn each_loss_is_decoded_and_encoded_and_counts_its_symbols() {
        let mut said = 0;
        let results = run(&wanted(100, &[0.0, 0.07, 0.001]), |_| said += 1).unwrap();
        let rows: Vec<_> = results.iter().map(|r| (r.op, r.symbols)).collect();
        assert_eq!(
            rows,
            [("decode", 0), ("encode", 0), ("decode", 7), ("encode", 7), ("decode", 1), ("encode", 1)]
        );
        assert_eq!(said, 6);
        for r in &results {
            assert!((r.memcpy_share - r.mb_per_s / r.memcpy_mb_per_s).abs() < 1e-9);
            assert!(r.mb_per_s > 0.0 && r.crate_mb_per_s > 0.0 && r.k == 100 && r.t == 8192);
        }
    }

    #[test]
    fn blocks_and_losses_that_cannot_be_are_refused() {
        assert!(matches!(run(&wanted(60_000, &[0.1]), |_| ()), Err(CodecBenchError::Shape(_))));
        assert!(matches!(run(&wanted(10, &[1.5]), |_| ()), Err(CodecBenchError::Loss(_))));
        assert!(matches!(run(&wanted(10, &[f64::NAN]), |_| ()), Err(CodecBenchError::Loss(_))));
    }

    #[test]
    fn the_first_number_that_is_dearer_is_found_or_none() {
        for limit in 1..=40 {
            let found = first(40, |n| Ok::<_, ()>(n >= limit));
            assert_eq!(found, Ok(Some(limit)));
        }
        assert_eq!(first(40, |_| Ok::<_, ()>(false)), Ok(None));
    }
}
