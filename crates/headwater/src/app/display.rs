//! What a user sees of one object while it comes in, and whoever takes the verified prefix.

use std::io::Write;
use std::sync::Arc;
use std::thread::JoinHandle;

use headwater_transport::ppush::receiver::ReceiverStats;
use headwater_units::{BitRate, BlockIndex, Bytes, ObjectId, PathId};
use sha2::{Digest, Sha256};

use super::fetch::{Arrivals, Follower, source_label};
use super::host::Host;
use super::{AppError, GetOptions, Output, Phase, Progress, ProgressSource, Watch};

pub(super) type Followed = Result<(Option<String>, u64), AppError>;

/// Turns counters into progress, and passes the verified prefix on.
pub(super) struct Display<'a> {
    what: &'a str,
    watch: &'a mut dyn Watch,
    host: &'a Host,
    path: PathId,
    to_stdout: bool,
    sha256: bool,
    arrivals: Option<Arc<Arrivals>>,
    total: Bytes,
    follower: Option<JoinHandle<Followed>>,
    ticks: u32,
}

impl<'a> Display<'a> {
    pub(super) fn new(
        options: &'a GetOptions,
        host: &'a Host,
        path: PathId,
        watch: &'a mut dyn Watch,
    ) -> Self {
        Display {
            what: &options.what,
            watch,
            host,
            path,
            to_stdout: options.output == Output::Stdout,
            sha256: options.sha256,
            arrivals: None,
            total: Bytes::ZERO,
            follower: None,
            ticks: 0,
        }
    }

    /// Waits for whoever follows the prefix.
    pub(super) fn join(&mut self) -> Followed {
        if let Some(arrivals) = &self.arrivals {
            arrivals.stop();
        }
        match self.follower.take().map(JoinHandle::join) {
            None => Ok((None, 0)),
            Some(Ok(followed)) => followed,
            Some(Err(_)) => Err(AppError::Failed("passing the object on has failed".to_owned())),
        }
    }
}

impl Follower for Display<'_> {
    fn opened(&mut self, arrivals: &Arc<Arrivals>, object: ObjectId, bytes: Bytes) {
        let _ = object;
        let layout = arrivals.partial.hashes().layout();
        self.total = arrivals.partial.wanted().map(|b| layout.len(BlockIndex(b))).sum();
        debug_assert!(self.total <= bytes);
        self.arrivals = Some(arrivals.clone());
        if self.to_stdout || self.sha256 {
            let (arrivals, to_stdout, sha256) = (arrivals.clone(), self.to_stdout, self.sha256);
            self.follower = Some(std::thread::spawn(move || follow(&arrivals, to_stdout, sha256)));
        }
    }

    fn tick(&mut self, stats: &ReceiverStats) {
        let Some(arrivals) = &self.arrivals else { return };
        let layout = arrivals.partial.hashes().layout();
        let done: Bytes = Bytes::new(u64::from(arrivals.partial.have().count()) * layout.block_bytes().get());
        let done = done.min(self.total);
        let rate: BitRate = stats.flows.iter().filter(|f| f.live).map(|f| f.rate).sum();
        let useful: u64 = stats.flows.iter().map(|f| f.useful).sum();
        self.ticks += 1;
        // The controller knows the addresses of sources that this process has no link to.
        if self.ticks % 10 == 1 && stats.flows.iter().any(|f| self.host.label(f.node).is_none()) {
            let (host, path) = (self.host.clone(), self.path);
            tokio::spawn(async move { host.learn_labels(path).await });
        }
        let sources = stats.flows.iter().map(|f| ProgressSource {
            node: self.host.label(f.node).unwrap_or_else(|| source_label(f.node)),
            rate: f.rate,
            share: if useful == 0 { 0.0 } else { f.useful as f64 / useful as f64 },
            theta: None,
            live: f.live,
        });
        let progress = Progress {
            object: self.what.to_owned(),
            bytes_done: done.get(),
            bytes_total: self.total.get(),
            rate,
            eta: (rate > BitRate::ZERO).then(|| (self.total - done) / rate),
            sources: sources.collect(),
            receivers: Vec::new(),
            phase: Phase::Receiving,
        };
        self.watch.progress(&progress);
    }

    fn note(&mut self, line: &str) {
        self.watch.note(line);
    }
}

/// Passes the blocks on in their order as they become verified: to standard output, and through SHA-256.
fn follow(arrivals: &Arrivals, to_stdout: bool, sha256: bool) -> Followed {
    let partial = &arrivals.partial;
    let layout = partial.hashes().layout();
    let size = layout.object_bytes().get();
    let range = partial.spec().range.clone().unwrap_or(0..size);
    let mut out = std::io::stdout().lock();
    let mut hasher = Sha256::new();
    let (mut block, mut passed) = (Vec::new(), 0);
    for index in partial.wanted().map(BlockIndex) {
        if !arrivals.wait_for(index) {
            return Err(AppError::Interrupted { resumable: true });
        }
        partial.read_block(index, &mut block)?;
        let offset = layout.offset(index).get();
        let from = range.start.saturating_sub(offset).min(block.len() as u64) as usize;
        let to = (range.end - offset).min(block.len() as u64) as usize;
        let bytes = &block[from..to];
        if to_stdout {
            out.write_all(bytes).map_err(|e| AppError::io("cannot write to standard output", e))?;
        }
        if sha256 {
            hasher.update(bytes);
        }
        passed += bytes.len() as u64;
    }
    out.flush().map_err(|e| AppError::io("cannot write to standard output", e))?;
    let digest = sha256.then(|| hasher.finalize().iter().map(|b| format!("{b:02x}")).collect());
    Ok((digest, passed))
}
