//! What is asked for after a restart, before the nodes have come back that hold it.
//!
//! Who holds what is not kept: nodes say it again. Until they have had time to ([`super::ControllerConfig::restore_grace`]), an unknown
//! name waits for the first node that says it; only then is it known that nobody does.

use headwater_units::{PathId, Time};
use headwater_wire::ToController;

use super::Controller;
use super::timers::Subject;

/// So many wait at most; more are answered at once.
const MOST: usize = 1024;

/// Who asked too early.
#[derive(Default)]
pub(super) struct Recovery {
    /// Until then nodes come back.
    until: Option<Time>,
    asked: Vec<Asked>,
}

#[derive(PartialEq)]
struct Asked {
    path: PathId,
    name: String,
    /// The request, the wish for a cast, or the claim of a name.
    control: ToController,
}

impl Controller {
    /// It has run before: nodes that know it come back from now on.
    pub(super) fn returned(&mut self, now: Time) {
        let until = now + self.config.restore_grace;
        self.recovery.until = Some(until);
        self.timers.set(Subject::Recovery, Some(until));
    }

    /// Whether it is too early to say that nobody has what is asked for.
    pub(super) fn is_early(&self, now: Time, name: &str) -> bool {
        self.awaits_nodes(now) && self.registry.resolve(name).is_none()
    }

    /// Whether nodes may still come back from before a restart, and there is room for what is not answered until then.
    pub(super) fn awaits_nodes(&self, now: Time) -> bool {
        self.recovery.until.is_some_and(|until| now < until) && self.recovery.asked.len() < MOST
    }

    /// What was asked for too early is heard again when its name is known, or when it is late enough.
    pub(super) fn hold_back(&mut self, path: PathId, name: String, control: ToController) {
        let asked = Asked { path, name, control };
        if !self.recovery.asked.contains(&asked) {
            self.recovery.asked.push(asked);
        }
    }

    /// A node has said what it holds.
    pub(super) fn answer_early(&mut self, now: Time) {
        let registry = &self.registry;
        let known = self.recovery.asked.extract_if(.., |asked| registry.resolve(&asked.name).is_some());
        let known: Vec<Asked> = known.collect();
        known.into_iter().for_each(|asked| self.control(now, asked.path, asked.control));
    }

    /// Who has not come back by now is not waited for.
    pub(super) fn end_recovery(&mut self, now: Time) {
        let asked = std::mem::take(&mut self.recovery).asked;
        asked.into_iter().for_each(|asked| self.control(now, asked.path, asked.control));
    }

    /// Whoever asked is gone.
    pub(super) fn forget_early(&mut self, path: PathId) {
        self.recovery.asked.retain(|asked| asked.path != path);
    }
}
