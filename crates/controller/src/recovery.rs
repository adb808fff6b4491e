//! Requests after a restart that wait until the holders have come back.
//!
//! A controller does not store who holds what: nodes state it again after a restart. Until they have had time to
//! ([`super::ControllerConfig::restore_grace`]), a request for an unknown name waits for the first node that states it.

use headwater_units::{PathId, Time};
use headwater_wire::ToController;

use crate::catalog::Catalog;
use crate::timers::Subject;
use crate::turn::Turn;

/// Maximum number of waiting requests; more are answered at once.
const MOST: usize = 1024;

/// Requests that came too early.
#[derive(Default)]
pub(crate) struct Recovery {
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

impl Recovery {
    /// The controller has run before: nodes that know it come back from now on.
    pub(crate) fn begin(&mut self, turn: &mut Turn<'_>) {
        let until = turn.now + turn.config.restore_grace;
        self.until = Some(until);
        turn.wake(Subject::Recovery, Some(until));
    }

    /// Whether it is too early to say that nobody has what is asked for.
    pub(crate) fn is_early(&self, now: Time, catalog: &Catalog, name: &str) -> bool {
        self.awaits_nodes(now) && catalog.resolve(name).is_none()
    }

    /// Whether nodes may still come back from before a restart, and there is room for what is not answered until then.
    pub(crate) fn awaits_nodes(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until) && self.asked.len() < MOST
    }

    /// Holds a request back that came too early, until its name is known or it is late enough.
    pub(crate) fn hold_back(&mut self, path: PathId, name: String, control: ToController) {
        let asked = Asked { path, name, control };
        if !self.asked.contains(&asked) {
            self.asked.push(asked);
        }
    }

    /// Requests whose names are known by now.
    pub(crate) fn known(&mut self, catalog: &Catalog) -> Vec<(PathId, ToController)> {
        let known = self.asked.extract_if(.., |asked| catalog.resolve(&asked.name).is_some());
        known.map(|asked| (asked.path, asked.control)).collect()
    }

    /// Ends the waiting for holders; returns all requests that are still unanswered.
    pub(crate) fn end(&mut self) -> Vec<(PathId, ToController)> {
        let asked = std::mem::take(self).asked;
        asked.into_iter().map(|asked| (asked.path, asked.control)).collect()
    }

    /// Forgets the requests of a peer that is gone.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.asked.retain(|asked| asked.path != path);
    }
}
