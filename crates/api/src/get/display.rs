//! The progress of one object as a user sees it, and the readers of its verified prefix.

use std::sync::Arc;
use std::time::Duration;

use headwater_transport::push::receiver::ReceiverStats;
use headwater_units::{BitRate, BlockIndex, Bytes, NodeId, ObjectId, PathId};

use super::{GetOptions, Outlet, Writer, Written};
use crate::fetch::{Arrivals, Follower, source_label};
use crate::host::Host;
use crate::{AppError, Phase, Progress, ProgressSource, Shutdown, Watch};

/// Turns counters into progress, and passes the verified prefix on.
pub(crate) struct Display<'a> {
    what: &'a str,
    watch: &'a mut dyn Watch,
    host: &'a Host,
    path: PathId,
    outlet: Option<Arc<Outlet>>,
    sha256: bool,
    arrivals: Option<Arc<Arrivals>>,
    total: Bytes,
    writer: Option<Writer>,
    ticks: u32,
}

impl<'a> Display<'a> {
    pub(crate) fn new(
        options: &'a GetOptions,
        host: &'a Host,
        path: PathId,
        outlet: Option<Arc<Outlet>>,
        watch: &'a mut dyn Watch,
    ) -> Self {
        Display {
            what: &options.what,
            watch,
            host,
            path,
            outlet,
            sha256: options.sha256,
            arrivals: None,
            total: Bytes::ZERO,
            writer: None,
            ticks: 0,
        }
    }

    /// Waits for the consumer of the prefix, after the fetch has `succeeded` or not.
    pub(crate) async fn end(&mut self, succeeded: bool, shutdown: &Shutdown) -> Result<Written, AppError> {
        match self.writer.take() {
            None => Ok(Written::default()),
            Some(writer) => writer.end(succeeded, shutdown).await,
        }
    }
}

impl Follower for Display<'_> {
    fn interval(&self) -> Duration {
        self.watch.interval()
    }
    fn opened(&mut self, arrivals: &Arc<Arrivals>, object: ObjectId, bytes: Bytes) {
        let _ = object;
        let layout = arrivals.hashes().layout();
        self.total = arrivals.wanted().map(|b| layout.len(BlockIndex(b))).sum();
        debug_assert!(self.total <= bytes);
        self.arrivals = Some(arrivals.clone());
        if self.outlet.is_some() || self.sha256 {
            self.writer = Some(Writer::start(arrivals, self.outlet.clone(), self.sha256));
        }
    }

    fn tick(&mut self, stats: &ReceiverStats) {
        let Some(arrivals) = &self.arrivals else { return };
        let layout = arrivals.hashes().layout();
        let done: Bytes = Bytes::new(u64::from(arrivals.count()) * layout.block_bytes().get());
        let done = done.min(self.total);
        let rate: BitRate = stats.flows.iter().filter(|f| f.live).map(|f| f.rate).sum();
        let useful: u64 = stats.flows.iter().map(|f| f.useful).sum();
        self.ticks += 1;
        // The controller knows the addresses of sources that this process has no link to. It is asked ever more seldom: it may not
        // know one either.
        if self.ticks.is_power_of_two() {
            let (host, path) = (self.host.clone(), self.path);
            let nodes: Vec<NodeId> = stats.flows.iter().map(|flow| flow.node).collect();
            tokio::spawn(async move { host.learn_labels(path, nodes).await });
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
