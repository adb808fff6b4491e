//! Log lines and counters of a controller's nodes, tasks and casts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use headwater_controller::{CastBegun, ControllerEvent, NameRecord, TaskRecord};
use headwater_units::{Bytes, NodeId, ObjectId, TaskId};
use headwater_wire::Outcome;

use crate::AppError;
use crate::ops::rounded;

/// Counts of tasks and casts since the controller started.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) tasks_done: AtomicU64,
    pub(crate) tasks_cancelled: AtomicU64,
    pub(crate) tasks_failed: AtomicU64,
    /// Of tasks that are done.
    pub(crate) bytes_delivered: AtomicU64,
    pub(crate) casts: AtomicU64,
    pub(crate) cast_receivers_done: AtomicU64,
    pub(crate) cast_receivers_failed: AtomicU64,
    pub(crate) casts_in_time: AtomicU64,
    pub(crate) casts_late: AtomicU64,
}

/// A task that is not over.
struct Underway {
    began: Instant,
    object: ObjectId,
    name: String,
    bytes: Bytes,
    receiver: NodeId,
    /// All that were ever to send to it.
    sources: BTreeSet<NodeId>,
}

/// See the module.
pub(super) struct Chronicle {
    tally: Arc<Tally>,
    tasks: BTreeMap<TaskId, Underway>,
    casts: BTreeMap<u64, Instant>,
    /// Names of nodes that are here.
    names: BTreeMap<NodeId, String>,
    /// Why the connection ended that was lost last.
    reason: String,
    /// Why running tasks cannot be kept, as the log has heard.
    unsaved: Option<String>,
}

#[allow(clippy::disallowed_methods, reason = "the log says how long tasks took")]
fn now() -> Instant {
    Instant::now()
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Chronicle {
    pub(super) fn new(tally: Arc<Tally>) -> Self {
        let (tasks, casts, names, reason, unsaved) = Default::default();
        Chronicle { tally, tasks, casts, names, reason, unsaved }
    }

    /// A task that was running when the controller stopped.
    pub(super) fn restored(&mut self, record: &TaskRecord) {
        self.enter(record);
        tracing::info!(task = %record.task, object = %record.object, name = record.name, "task restored");
    }

    /// The next node that goes does so for this reason.
    pub(super) fn path_lost(&mut self, reason: String) {
        self.reason = reason;
    }

    pub(super) fn on_event(&mut self, event: &ControllerEvent) {
        match event {
            ControllerEvent::Persist(record) => self.planned(record),
            ControllerEvent::Forget { task, outcome } => self.over(*task, *outcome),
            ControllerEvent::NodeUp(info) => {
                let (node, name) = (info.node, info.name.as_str());
                let address = info.listen.or_else(|| info.data.first().copied());
                let address = address.map_or_else(String::new, |at| at.to_string());
                match self.names.insert(node, name.to_owned()) {
                    None => tracing::info!(%node, name, address, "node joined"),
                    Some(_) => tracing::info!(%node, name, address, "node reconnected or changed"),
                }
            }
            ControllerEvent::NodeDown { node } => {
                let (name, reason) = (self.names.remove(node).unwrap_or_default(), &self.reason);
                tracing::info!(%node, name, reason, "node left");
            }
            ControllerEvent::NameChanged(record) => {
                let NameRecord { naming, removed } = &**record;
                let (name, generation, object) = (&naming.name, naming.generation, naming.object);
                match removed {
                    true => tracing::info!(name, generation, "name removed"),
                    false => tracing::info!(name, %object, generation, owner = %naming.owner, "name given"),
                }
            }
            ControllerEvent::NameForgotten { name } => tracing::debug!(name, "name forgotten"),
            ControllerEvent::StandingBegun(record) => {
                let (name, owner) = (&record.cast.name, record.owner);
                tracing::info!(name, labels = ?record.cast.labels, %owner, "standing cast begun");
            }
            ControllerEvent::StandingEnded(cast) => {
                tracing::info!(name = cast.name, labels = ?cast.labels, "standing cast ended");
            }
            ControllerEvent::CastBegun(begun) => {
                let CastBegun { cast, name, object, bytes, receivers } = &**begun;
                add(&self.tally.casts, 1);
                self.casts.insert(*cast, now());
                tracing::info!(%cast, name, %object, bytes = bytes.get(), receivers, "cast begun");
            }
            ControllerEvent::CastOver { cast, done, failed, in_time } => {
                match in_time {
                    Some(true) => add(&self.tally.casts_in_time, 1),
                    Some(false) => add(&self.tally.casts_late, 1),
                    None => {}
                }
                add(&self.tally.cast_receivers_done, *done as u64);
                add(&self.tally.cast_receivers_failed, *failed as u64);
                let began = self.casts.remove(cast);
                let seconds = began.map_or(0.0, |began| rounded(began.elapsed().as_secs_f64()));
                tracing::info!(%cast, done, failed, seconds, "cast over");
            }
        }
    }

    fn enter(&mut self, record: &TaskRecord) -> bool {
        let is_new = !self.tasks.contains_key(&record.task);
        let underway = self.tasks.entry(record.task).or_insert_with(|| Underway {
            began: now(),
            object: record.object,
            name: record.name.clone(),
            bytes: record.bytes,
            receiver: record.receiver,
            sources: BTreeSet::new(),
        });
        underway.sources.extend(record.flows.iter().map(|flow| flow.node));
        is_new
    }

    fn called(&self, node: &NodeId) -> String {
        self.names.get(node).cloned().unwrap_or_else(|| node.short())
    }

    fn planned(&mut self, record: &TaskRecord) {
        if !self.enter(record) {
            return;
        }
        let TaskRecord { task, object, name, bytes, flows, .. } = record;
        let (receiver, bytes, sources) = (self.called(&record.receiver), bytes.get(), flows.len());
        tracing::info!(%task, %object, name, receiver, bytes, sources, "task begun");
    }

    fn over(&mut self, task: TaskId, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Done => &self.tally.tasks_done,
            Outcome::Cancelled => &self.tally.tasks_cancelled,
            Outcome::Failed => &self.tally.tasks_failed,
        };
        add(counter, 1);
        // Tasks that go by trees are those of a cast, which has its own lines.
        let Some(done) = self.tasks.remove(&task) else {
            return tracing::debug!(%task, ?outcome, "task over");
        };
        let Underway { began, object, ref name, bytes, receiver, ref sources } = done;
        let (receiver, bytes, sources) = (self.called(&receiver), bytes.get(), sources.len());
        let seconds = began.elapsed().as_secs_f64();
        let (seconds, mbit_per_s) = (rounded(seconds), rounded(bytes as f64 * 8e-6 / seconds.max(1e-9)));
        match outcome {
            Outcome::Done => {
                add(&self.tally.bytes_delivered, bytes);
                tracing::info!(%task, %object, name, receiver, bytes, seconds, mbit_per_s, sources, "task done");
            }
            Outcome::Cancelled => {
                tracing::info!(%task, %object, name, receiver, bytes, seconds, sources, "task cancelled");
            }
            Outcome::Failed => {
                tracing::info!(%task, %object, name, receiver, bytes, seconds, sources, "task failed");
            }
        }
    }

    /// A task was written down, or could not be: logged once per cause.
    pub(super) fn saved(&mut self, outcome: Result<(), AppError>) {
        match outcome.map_err(|error| error.to_string()) {
            Ok(()) => {
                if self.unsaved.take().is_some() {
                    tracing::info!("running tasks are kept again");
                }
            }
            Err(cause) => {
                if self.unsaved.as_ref() != Some(&cause) {
                    tracing::error!(cause, "running tasks will not survive a restart of this controller");
                }
                self.unsaved = Some(cause);
            }
        }
    }
}
