//! Cost of the disk side of a transfer: reading blocks at a source, hashing them, and verifying and keeping them at a
//! receiver, beside copying memory in the same run.
//!
//! Every operation is the product's own: [`SourceFile::read_block`], [`BlockHashes::verify_block`], and
//! [`Partial::write_block`], which does both hash and write. Each with one thread and with two that share the blocks.
//! No network and no coding; where the folder is memory, no disk either.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use headwater_api::{AppError, Shutdown};
use headwater_store::{BlockHashes, Partial, PartialSpec, SourceFile, StoreError};
use headwater_units::{BlockIndex, Bytes};
use serde::Serialize;

use super::memory::Copier;
use super::{BenchWatch, median_of, ratio};
use crate::subprocess::{Scratch, write_random};

/// Threads of the second series.
const TWO: usize = 2;
/// Where the object's bytes come from.
const SEED: u64 = 1;

/// Options of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreOptions {
    /// Size of the object.
    pub size: Bytes,
    /// Where files go; `None` is memory, where it is a file system and there is room.
    pub folder: Option<PathBuf>,
    /// How often each is measured; medians count.
    pub repeat: u32,
}

/// Something done to all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreOp {
    /// Memory copied, in pieces of a block's size.
    Memcpy,
    /// A block in memory compared with its hash.
    Hash,
    /// A block verified, written to the file of a transfer and marked as here.
    Keep,
    /// A block read from the file of a source, which was read a moment ago.
    Read,
}

const OPS: [StoreOp; 4] = [StoreOp::Memcpy, StoreOp::Hash, StoreOp::Keep, StoreOp::Read];

/// An operation, measured.
#[derive(Clone, Debug, Serialize)]
pub struct StoreBench {
    /// The operation.
    pub op: StoreOp,
    /// Number of threads at once.
    pub threads: usize,
    /// Megabytes per second, all threads together.
    pub mb_per_s: f64,
    /// Of the rate at which as many threads copy memory.
    pub memcpy_share: f64,
    /// Of the rate of one thread.
    pub scaling: f64,
    /// Number of measurements that a median is of.
    pub repeat: u32,
}

/// Measures everything, interleaved.
///
/// # Errors
/// [`AppError::Interrupted`], no room, or what the system says.
pub fn run(
    options: &StoreOptions,
    shutdown: &Shutdown,
    watch: &mut dyn BenchWatch,
) -> Result<Vec<StoreBench>, AppError> {
    let scratch = match &options.folder {
        Some(folder) => Scratch::create_in(folder, "bench", options.size)?,
        None => Scratch::create("bench", options.size, false)?,
    };
    watch.note(&format!("in {}", scratch.path().display()));
    let file = scratch.path().join("object.bin");
    write_random(&file, options.size, SEED)?;
    let (source, hashes) = SourceFile::hash(&file, &mut |_| {})?;
    let mut bench = Bench { folder: scratch.path(), source, hashes, blocks: Vec::new(), copiers: Vec::new() };
    bench.fill()?;
    let series: Vec<(StoreOp, usize)> =
        [1, TWO].into_iter().flat_map(|threads| OPS.map(|op| (op, threads))).collect();
    let mut speeds = vec![Vec::new(); series.len()];
    for round in 0..options.repeat as usize {
        for (index, (op, threads)) in series.iter().enumerate() {
            if shutdown.is_set() {
                return Err(AppError::Interrupted { resumable: false });
            }
            let number = round * series.len() + index + 1;
            watch.begun(&format!("{op}, {threads} threads"), number, series.len() * options.repeat as usize);
            speeds[index].push(bench.measure(*op, *threads)?);
        }
    }
    let medians: Vec<f64> = speeds.into_iter().map(median_of).collect();
    let of = |op: StoreOp, threads: usize| {
        let at = series.iter().position(|one| *one == (op, threads)).expect("all were measured");
        medians[at]
    };
    let results = series.iter().map(|&(op, threads)| StoreBench {
        op,
        threads,
        mb_per_s: of(op, threads),
        memcpy_share: ratio(of(op, threads), of(StoreOp::Memcpy, threads)),
        scaling: ratio(of(op, threads), of(op, 1)),
        repeat: options.repeat,
    });
    Ok(results.collect())
}

impl std::fmt::Display for StoreOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StoreOp::Memcpy => "memcpy",
            StoreOp::Hash => "hash",
            StoreOp::Keep => "keep",
            StoreOp::Read => "read",
        })
    }
}

/// An object on disk and in memory.
struct Bench<'a> {
    folder: &'a Path,
    source: SourceFile,
    hashes: BlockHashes,
    blocks: Vec<Vec<u8>>,
    copiers: Vec<Copier>,
}

impl Bench<'_> {
    fn fill(&mut self) -> Result<(), StoreError> {
        for block in 0..self.hashes.layout().block_count() {
            let mut bytes = Vec::new();
            self.source.read_block(BlockIndex(block), &mut bytes)?;
            self.blocks.push(bytes);
        }
        self.copiers = (0..TWO).map(|_| Copier::new()).collect();
        Ok(())
    }

    /// Megabytes per second.
    fn measure(&mut self, op: StoreOp, threads: usize) -> Result<f64, AppError> {
        if op == StoreOp::Memcpy {
            return Ok(self.copy(threads));
        }
        let Bench { folder, source, hashes, blocks, .. } = self;
        let spec = PartialSpec {
            hashes: hashes.clone(),
            destination: folder.join("kept.bin"),
            state_folder: folder.join("partial"),
            range: None,
            overwrite: true,
        };
        let partial = match op {
            StoreOp::Keep => Some(Partial::open_or_create(spec, &mut |_| {})?),
            _ => None,
        };
        let seconds = share(blocks.len(), threads, |block, buffer| {
            let (index, bytes) = (BlockIndex(block as u32), &blocks[block]);
            match (&partial, op) {
                (Some(partial), _) => partial.write_block(index, bytes).map(drop),
                (None, StoreOp::Read) => {
                    source.read_block(index, buffer)?;
                    black_box(&buffer);
                    Ok(())
                }
                (None, _) => match hashes.verify_block(index, bytes) {
                    true => Ok(()),
                    false => Err(StoreError::BlockMismatch { block: index }),
                },
            }
        })?;
        if let Some(partial) = partial {
            partial.discard()?;
        }
        Ok(hashes.size().get() as f64 / seconds / 1e6)
    }

    /// The sum of what each thread does in its own memory.
    fn copy(&mut self, threads: usize) -> f64 {
        std::thread::scope(|scope| {
            let copying: Vec<_> =
                self.copiers[..threads].iter_mut().map(|copier| scope.spawn(|| copier.mb_per_s())).collect();
            copying.into_iter().map(|thread| thread.join().expect("copying does not panic")).sum()
        })
    }
}

/// Does `work` with every block, by threads that take the next one; returns the seconds it took.
#[allow(clippy::disallowed_methods, reason = "this measures the machine")]
fn share(
    blocks: usize,
    threads: usize,
    work: impl Fn(usize, &mut Vec<u8>) -> Result<(), StoreError> + Sync,
) -> Result<f64, StoreError> {
    let next = AtomicU32::new(0);
    let one = || {
        let mut buffer = Vec::new();
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed) as usize;
            if block >= blocks {
                return Ok(());
            }
            work(block, &mut buffer)?;
        }
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let ended = running.into_iter().map(|thread| thread.join().expect("a block is no reason to panic"));
        ended.fold(Ok(()), Result::and)
    })?;
    Ok(start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl BenchWatch for Nobody {
        fn begun(&mut self, _: &str, _: usize, _: usize) {}
        fn note(&mut self, _: &str) {}
    }

    #[test]
    fn every_operation_is_measured_with_one_thread_and_with_two_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { size: Bytes::mib(3), folder: Some(folder.path().to_owned()), repeat: 2 };
        let (_trigger, shutdown) = Shutdown::channel();
        let results = run(&options, &shutdown, &mut Nobody).unwrap();
        let measured: Vec<_> = results.iter().map(|r| (r.op, r.threads)).collect();
        assert_eq!(measured, [1, 2].into_iter().flat_map(|n| OPS.map(|op| (op, n))).collect::<Vec<_>>());
        for result in &results {
            assert!(result.mb_per_s > 1.0 && result.memcpy_share > 0.0 && result.scaling > 0.0, "{result:?}");
        }
        assert_eq!((results[0].memcpy_share, results[0].scaling), (1.0, 1.0));
        let line = serde_json::to_value(&results[2]).unwrap();
        assert_eq!((line["op"].as_str(), line["threads"].as_u64()), (Some("keep"), Some(1)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_user_who_stops_it_is_obeyed() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { size: Bytes::mib(1), folder: Some(folder.path().to_owned()), repeat: 1 };
        let (trigger, shutdown) = Shutdown::channel();
        trigger.set();
        let stopped = run(&options, &shutdown, &mut Nobody).unwrap_err();
        assert!(matches!(stopped, AppError::Interrupted { resumable: false }), "{stopped}");
    }
}
