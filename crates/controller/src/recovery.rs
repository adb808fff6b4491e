//! Requests after a restart that wait until the holders have come back.
//!
//! A controller does not store who holds what: nodes state it again after a restart. Until they have had time to
//! ([`super::ControllerConfig::restore_grace`]), a request for an unknown name waits for the first node that states it.

use headwater_machine::{Shares, Taker};
use headwater_units::{PathId, Time};
use headwater_wire::ToController;

use crate::catalog::Catalog;
use crate::timers::Subject;
use crate::turn::Turn;

/// Maximum number of waiting requests: of one peer a quarter at most, of those of one network half. What finds no room is answered at once,
/// but for claims of names whose owners may come back: these are refused.
const MOST: usize = 1024;

/// Requests that came too early.
#[derive(Default)]
pub(crate) struct Recovery {
    /// Until then nodes come back.
    until: Option<Time>,
    asked: Vec<Asked>,
    shares: Shares,
}

struct Asked {
    path: PathId,
    taker: Taker,
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

    /// Whether it is too early to say over a path that nobody has what is asked for, and there is room for what is not answered until then.
    pub(crate) fn is_early(&self, now: Time, catalog: &Catalog, path: PathId, name: &str) -> bool {
        self.awaits_nodes(now) && catalog.resolve(name).is_none() && self.has_room(catalog, path, name)
    }

    /// Whether nodes may still come back from before a restart.
    pub(crate) fn awaits_nodes(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Whether what a peer says of a name can wait, or waits already.
    pub(crate) fn has_room(&self, catalog: &Catalog, path: PathId, name: &str) -> bool {
        catalog.taker_at(path).is_some_and(|taker| self.shares.has_room(&taker, 1, MOST))
            || self.asked.iter().any(|asked| asked.path == path && asked.name == name)
    }

    /// What was asked for too early is heard again when its name is known, or when it is late enough.
    pub(crate) fn hold_back(&mut self, catalog: &Catalog, path: PathId, name: String, control: ToController) {
        let is_known = |asked: &Asked| (asked.path, &asked.name, &asked.control) == (path, &name, &control);
        let Some(taker) = catalog.taker_at(path).filter(|_| !self.asked.iter().any(is_known)) else { return };
        if self.shares.has_room(&taker, 1, MOST) {
            self.shares.take(&taker, 1);
            self.asked.push(Asked { path, taker, name, control });
        }
    }

    /// Requests whose names are known by now.
    pub(crate) fn known(&mut self, catalog: &Catalog) -> Vec<(PathId, ToController)> {
        self.take(|asked| catalog.resolve(&asked.name).is_some())
    }

    /// Ends the waiting for holders; returns all requests that are still unanswered.
    pub(crate) fn end(&mut self) -> Vec<(PathId, ToController)> {
        self.until = None;
        self.take(|_| true)
    }

    /// Forgets the requests of a peer that is gone.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.take(|asked| asked.path == path);
    }

    fn take(&mut self, mut which: impl FnMut(&Asked) -> bool) -> Vec<(PathId, ToController)> {
        let taken: Vec<Asked> = self.asked.extract_if(.., |asked| which(asked)).collect();
        taken.iter().for_each(|asked| self.shares.give_back(&asked.taker, 1));
        taken.into_iter().map(|asked| (asked.path, asked.control)).collect()
    }
}
