//! One wake-up per subject.

use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{FlowId, NodeId, ObjectId, TaskId, Time};

/// Subject of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The weights of all flows.
    Plan,
    /// A task and its flows.
    Task(TaskId),
    /// A flow that is being stopped at its source.
    Ending(NodeId, FlowId),
    /// A cast.
    Cast(u64),
    /// Several gets of one object.
    Swarm(ObjectId),
    /// Nodes have had time to come back.
    Recovery,
    /// Nodes that have come are looked at by standing casts.
    Standing,
}

#[derive(Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Time, Subject)>,
    by_subject: BTreeMap<Subject, Time>,
}

impl Timers {
    /// Sets the subject's only wake-up, or takes it away.
    pub(crate) fn set(&mut self, subject: Subject, at: Option<Time>) {
        let before = match at {
            Some(at) => self.by_subject.insert(subject, at),
            None => self.by_subject.remove(&subject),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, subject));
        }
        if let Some(at) = at {
            self.by_time.insert((at, subject));
        }
    }
    /// Takes the earliest subject whose time has come.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Subject> {
        let &(at, subject) = self.by_time.first()?;
        (at <= now).then(|| {
            self.set(subject, None);
            subject
        })
    }
    pub(crate) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }
}
