//! Jobs of the workers for the data thread, and the buffers that they use.

use headwater_udp::Waker;
use headwater_units::{BlockIndex, FetchId, FlowId};

use crate::buffers::Buffers;
use crate::receiving::Finished;
use crate::sending::Prepared;
use crate::workers::Workers;

/// Results of workers.
pub(super) enum Outcome {
    Assembled(FetchId, BlockIndex, Finished),
    Prepared(FlowId, BlockIndex, bool, Prepared),
}

pub(super) struct Jobs {
    workers: Workers<Outcome>,
    /// The list handed out last, empty: kept for its memory.
    results: Vec<Outcome>,
    pub(super) buffers: Buffers,
}

impl Jobs {
    pub(super) fn start(workers: usize, waker: &Waker) -> std::io::Result<Self> {
        let workers = Workers::start(workers, waker)?;
        Ok(Jobs { workers, results: Vec::new(), buffers: Buffers::default() })
    }

    pub(super) fn submit(&self, job: impl FnOnce() -> Outcome + Send + 'static) {
        self.workers.submit(job);
    }

    /// Results since the last call; to be given back by [`Jobs::put_results`], so that the list is not allocated anew.
    pub(super) fn take_results(&mut self) -> Vec<Outcome> {
        let mut results = std::mem::take(&mut self.results);
        self.workers.take_results(&mut results);
        results
    }

    pub(super) fn put_results(&mut self, emptied: Vec<Outcome>) {
        self.results = emptied;
    }
}
