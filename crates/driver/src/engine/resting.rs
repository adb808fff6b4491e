//! When the data thread sleeps.

use headwater_udp::{Waker, doze};
use headwater_units::{Duration, Time};

use super::Engine;
use super::sockets::Sockets;
use crate::naps::Naps;

pub(super) struct Resting {
    waker: Waker,
    /// `None`: it never lets packets gather.
    naps: Option<Naps>,
    waits: u64,
}

impl Resting {
    pub(super) fn new(waker: Waker, naps: bool) -> Self {
        Resting { waker, naps: naps.then(Naps::default), waits: 0 }
    }

    /// Waits until there is something to do, so long at most.
    pub(super) fn wait(&mut self, sockets: &mut Sockets, timeout: Option<Duration>) {
        self.waits += 1;
        sockets.wait(&self.waker, timeout);
    }

    /// How often the kernel was asked to wake this thread.
    pub(super) fn waits(&self) -> u64 {
        self.waits
    }
}

impl Engine {
    /// Lets packets gather before the next round, while they are many and may.
    pub(super) fn rest(&mut self, now: Time) {
        let Engine { resting: Resting { waker, naps: Some(naps), waits }, node, sockets, .. } = self else {
            return;
        };
        let slack = || {
            let (source, receivers) = (node.source().machine(), node.receivers().machine());
            let both = source.slack().into_iter().chain(receivers.slack());
            both.min().filter(|_| !node.has_trees())
        };
        let rest = naps.after_round(now, sockets.moved(), slack);
        // A socket that is full is waited for.
        if let Some(rest) = rest.filter(|_| !sockets.is_blocked()) {
            *waits += 1;
            if let Err(error) = doze(waker, rest) {
                tracing::error!(%error, "waiting for orders failed");
            }
        }
    }
}
