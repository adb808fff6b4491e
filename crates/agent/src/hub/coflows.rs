//! The coflows whose flows are fetched, and the scheduler's order among them.

use std::collections::BTreeMap;

use headwater_transport::courier::Share;
use headwater_units::{Duration, Rank, Time};

use super::CoflowId;

/// A coflow that is being fetched.
#[derive(Clone, Copy, Debug, Default)]
struct Here {
    /// Flows that are not complete.
    flows: usize,
    /// Bytes that have come, of flows that have ended as well.
    bytes: u64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Coflows {
    /// Silence of the scheduler after which there is no order.
    silence: Duration,
    heard_at: Option<Time>,
    ranks: BTreeMap<CoflowId, Rank>,
    here: BTreeMap<CoflowId, Here>,
}

impl Coflows {
    pub(super) fn new(silence: Duration) -> Self {
        Coflows { silence, heard_at: None, ranks: BTreeMap::new(), here: BTreeMap::new() }
    }

    /// One more flow of it.
    pub(super) fn begin(&mut self, id: &CoflowId) {
        self.here.entry(id.clone()).or_default().flows += 1;
    }

    pub(super) fn count(&mut self, id: &CoflowId, bytes: u64) {
        if let Some(here) = self.here.get_mut(id) {
            here.bytes += bytes;
        }
    }

    /// One flow less of it.
    pub(super) fn end(&mut self, id: &CoflowId) {
        if let Some(here) = self.here.get_mut(id) {
            here.flows -= 1;
            if here.flows == 0 {
                self.here.remove(id);
            }
        }
    }

    /// Bytes of it that have come.
    pub(super) fn bytes(&self, id: &CoflowId) -> u64 {
        self.here.get(id).map_or(0, |here| here.bytes)
    }

    pub(super) fn order(&mut self, now: Time, ranks: Vec<(CoflowId, Rank)>) {
        self.ranks = ranks.into_iter().collect();
        self.heard_at = Some(now);
    }

    pub(super) fn is_ordered(&self, now: Time) -> bool {
        self.heard_at.is_some_and(|at| now < at + self.silence)
    }

    pub(super) fn rank(&self, id: &CoflowId) -> Option<Rank> {
        self.ranks.get(id).copied()
    }

    /// Share of a new flow of it until the scheduler speaks again.
    pub(super) fn share(&self, now: Time, id: &CoflowId) -> Share {
        match self.is_ordered(now) {
            true => Share::Rank(self.rank(id).unwrap_or(Rank::LAST)),
            false => Share::Even,
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.here.is_empty()
    }
}
