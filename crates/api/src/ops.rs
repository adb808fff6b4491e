//! The operational state of a process: its counters, the parts of it that must not end, and what it waits for. The metrics page and the
//! health checks read it ([`super::metrics_page`], [`super::health`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use headwater_store::Store;
use headwater_units::PathId;
use tokio::sync::watch;

use super::AppError;

/// Every reason that a failure is counted under: the kinds of [`AppError`]. A label of a metric has no other values.
pub(super) const REASONS: [&str; 8] =
    ["failed", "identity", "interrupted", "no_room", "no_source", "not_found", "usage", "verification"];

/// Counters of successes, and of failures by reason.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    done: AtomicU64,
    failed: Mutex<BTreeMap<&'static str, u64>>,
}

impl Outcomes {
    /// Counts one.
    pub(crate) fn count<T>(&self, outcome: &Result<T, AppError>) {
        match outcome {
            Ok(_) => self.done.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                let mut failed = lock(&self.failed);
                let times = failed.entry(error.kind()).or_default();
                *times += 1;
                *times
            }
        };
    }

    /// Something is begun that is counted when it ends, or when it is dropped in the middle.
    pub(crate) fn begin(&self) -> Attempt<'_> {
        Attempt { of: self, ended: false }
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// By reason, those that never happened too.
    pub(crate) fn failed(&self) -> BTreeMap<&'static str, u64> {
        let mut all: BTreeMap<&'static str, u64> = REASONS.iter().map(|reason| (*reason, 0)).collect();
        all.extend(lock(&self.failed).iter());
        all
    }
}

/// See [`Outcomes::begin`].
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    of: &'a Outcomes,
    ended: bool,
}

impl Attempt<'_> {
    pub(crate) fn end<T>(mut self, outcome: &Result<T, AppError>) {
        self.ended = true;
        self.of.count(outcome);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.of.count::<()>(&Err(AppError::Interrupted { resumable: true }));
        }
    }
}

/// The controller that a process belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Joins {
    /// Its stated address, as `host:port`.
    pub(crate) at: String,
    /// The link to it.
    pub(crate) path: PathId,
    /// Why there is no connection to it, once a try has failed.
    pub(crate) trouble: Option<String>,
}

/// See the module.
pub(crate) struct Ops {
    started: Instant,
    /// Fetches into its store.
    pub(crate) gets: Outcomes,
    /// Puts into its store by its daemon.
    pub(crate) puts: Outcomes,
    /// Bytes of objects that it fetched into its store.
    kept: AtomicU64,
    /// Parts without which the process is of no use, and which have ended.
    ended: watch::Sender<Vec<&'static str>>,
    joins: Mutex<Option<Joins>>,
    store: OnceLock<Arc<Store>>,
    draining: AtomicBool,
    /// Messages over control links that their senders may not say.
    refused: AtomicU64,
    hashes_told: AtomicU64,
    hashes_referred: AtomicU64,
}

/// A running part of the process ([`Ops::part`]).
pub(crate) struct Part {
    name: &'static str,
    ended: watch::Sender<Vec<&'static str>>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.ended.send_modify(|parts| parts.push(self.name));
    }
}

impl Ops {
    #[allow(clippy::disallowed_methods)] // The metrics page says how long the process has run.
    pub(crate) fn new() -> Self {
        Ops {
            started: Instant::now(),
            gets: Outcomes::default(),
            puts: Outcomes::default(),
            kept: AtomicU64::new(0),
            ended: watch::Sender::default(),
            joins: Mutex::default(),
            store: OnceLock::new(),
            draining: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            hashes_told: AtomicU64::new(0),
            hashes_referred: AtomicU64::new(0),
        }
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Counts an object that was fetched into the store, and its bytes.
    pub(crate) fn keep(&self, bytes: u64) {
        self.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// A part without which the process is of no use. It has ended once this is dropped, by a panic too.
    pub(crate) fn part(&self, name: &'static str) -> Part {
        Part { name, ended: self.ended.clone() }
    }

    /// The parts that have ended.
    pub(crate) fn ended(&self) -> Vec<&'static str> {
        self.ended.borrow().clone()
    }

    /// Waits until a part has ended, and says which.
    pub(crate) async fn end_of_a_part(&self) -> &'static str {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(|parts| !parts.is_empty()).await {
            Ok(parts) => parts[0],
            Err(_) => unreachable!("its sender is here"),
        }
    }

    /// The process belongs to a controller.
    pub(crate) fn join(&self, path: PathId, at: &str) {
        *lock(&self.joins) = Some(Joins { at: at.to_owned(), path, trouble: None });
    }

    /// A try to connect by this path failed, or one went well.
    pub(crate) fn tried(&self, path: PathId, trouble: Option<String>) {
        if let Some(joins) = lock(&self.joins).as_mut().filter(|joins| joins.path == path) {
            joins.trouble = trouble;
        }
    }

    pub(crate) fn joins(&self) -> Option<Joins> {
        lock(&self.joins).clone()
    }

    /// It keeps its objects here.
    pub(crate) fn stores_in(&self, store: Arc<Store>) {
        let _ = self.store.set(store);
    }

    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.get()
    }

    /// Somebody has said over a control link what it may not say.
    pub(crate) fn refuse_message(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused_messages(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Somebody has asked for block hashes and got them.
    pub(crate) fn hashes_told(&self) {
        self.hashes_told.fetch_add(1, Ordering::Relaxed);
    }

    /// Or was sent to another node for them.
    pub(crate) fn hashes_referred(&self) {
        self.hashes_referred.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were told, and how many were sent on.
    pub(crate) fn hash_lists(&self) -> (u64, u64) {
        (self.hashes_told.load(Ordering::Relaxed), self.hashes_referred.load(Ordering::Relaxed))
    }

    /// It is about to stop.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// A number as a log shows it: to three places.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_is_a_reason_that_is_counted_under() {
        let errors = [
            AppError::Usage(String::new()),
            AppError::NotFound(String::new()),
            AppError::Unreachable { who: String::new(), reason: String::new() },
            AppError::Verification(String::new()),
            AppError::NoRoom(String::new()),
            AppError::Identity(String::new()),
            AppError::Interrupted { resumable: true },
            AppError::Failed(String::new()),
        ];
        let outcomes = Outcomes::default();
        errors.into_iter().for_each(|error| outcomes.count::<()>(&Err(error)));
        outcomes.count(&Ok(()));
        assert_eq!(outcomes.done(), 1);
        outcomes.begin().end(&Ok(()));
        assert_eq!(outcomes.done(), 2);
        let before = outcomes.failed()["interrupted"];
        drop(outcomes.begin());
        assert_eq!(outcomes.failed()["interrupted"], before + 1, "dropped in the middle");
        lock(&outcomes.failed).insert("interrupted", before);
        assert_eq!(outcomes.failed().into_iter().collect::<Vec<_>>(), REASONS.map(|reason| (reason, 1)));
    }

    #[tokio::test]
    async fn a_part_that_panics_has_ended() {
        let ops = Ops::new();
        assert!(ops.ended().is_empty());
        let part = ops.part("the data thread");
        let task = tokio::spawn(async move {
            let _part = part;
            panic!("a defect");
        });
        assert_eq!(ops.end_of_a_part().await, "the data thread");
        assert!(task.await.is_err());
        assert_eq!(ops.ended(), ["the data thread"]);
    }
}
