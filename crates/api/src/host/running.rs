//! Changes to a running process: new settings, and the order to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_units::{BitRate, PathId};
use headwater_wire::{NodeInfo, ToController};
use tokio::task::AbortHandle;

use super::{Host, LOCAL};
use crate::events::EventFeed;
use crate::ops::Ops;

/// Maximum time for the remaining work of a closed process to end, and the interval of checks.
const LETTING_GO: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Receivers that a process serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Serving {
    /// Flows whose receivers are heard of.
    pub(crate) flows: usize,
    /// Receivers of those.
    pub(crate) receivers: usize,
}

impl Serving {
    pub(crate) fn is_empty(self) -> bool {
        self.flows == 0
    }
}

impl Host {
    /// Its counters and the parts that it depends on.
    pub(crate) fn ops(&self) -> &Ops {
        &self.inner.ops
    }

    /// Where everything that happens is told.
    pub(crate) fn events(&self) -> &EventFeed {
        &self.inner.events
    }

    /// Runs something as long as the process does.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let task = tokio::spawn(work).abort_handle();
        let mut tasks = self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task.clone());
        task
    }

    /// The same of something without which it is of no use.
    pub(crate) fn depends_on(
        &self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let part = self.inner.ops.part(name);
        self.spawn(async move {
            let _part = part;
            work.await;
        })
    }

    /// Ends all that it runs, without waiting for it. It was closed before ([`Host::close`]).
    pub(crate) fn abandon(&self) {
        for task in self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }

    /// Ends all that it runs, and so lets go of sockets, threads and files. It was closed before ([`Host::close`]).
    pub(crate) async fn end(self) {
        self.abandon();
        let inner = Arc::downgrade(&self.inner);
        drop(self);
        let gone = async {
            while inner.strong_count() > 0 {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        if tokio::time::timeout(LETTING_GO, gone).await.is_err() {
            tracing::warn!("a node was closed, and something still uses its sockets");
        }
    }

    /// Its introduction.
    pub(super) fn template(&self) -> MutexGuard<'_, NodeInfo> {
        self.inner.template.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a connection by this path.
    pub(crate) fn has_link(&self, path: PathId) -> bool {
        self.state().peers.contains_key(&path)
    }

    /// From now on it stands in this rack and carries these labels, and says so to everybody.
    pub(crate) fn restate(&self, rack: Option<(String, Option<BitRate>)>, labels: BTreeMap<String, String>) {
        {
            let mut template = self.template();
            if (&template.rack, &template.labels) == (&rack, &labels) {
                return;
            }
            (template.rack, template.labels) = (rack, labels);
        }
        if !self.introduces_itself() {
            return;
        }
        let peers: Vec<_> =
            self.state().peers.values().map(|peer| (peer.link.clone(), peer.out.clone())).collect();
        for (link, out) in peers {
            out.say(ToController::Hello(self.info_for(&link)));
        }
        if self.inner.controller.is_some() {
            self.attach_local();
        }
    }

    /// It is about to stop: everybody is told to give it nothing new. False if there is nobody to tell.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.state();
        state.leaving = true;
        let mut told = self.inner.controller.is_some();
        for peer in state.peers.values() {
            told |= peer.say(ToController::Leaving);
        }
        drop(state);
        self.say(LOCAL, ToController::Leaving);
        told
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.state().leaving
    }

    /// Receivers that it serves at this moment. Flows to a receiver that has fallen silent do not count.
    pub(crate) async fn serves_now(&self) -> Serving {
        let Some(node) = &self.inner.node else { return Serving::default() };
        node.look().await;
        let flows: Vec<_> = node.snapshot().flows.into_iter().filter(|flow| !flow.paused).collect();
        let receivers: BTreeSet<_> = flows.iter().map(|flow| flow.receiver).collect();
        Serving { flows: flows.len(), receivers: receivers.len() }
    }
}
