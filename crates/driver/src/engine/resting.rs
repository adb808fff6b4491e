//! When the data thread sleeps.

use headwater_udp::{Waker, doze};
use headwater_units::{Duration, Time};

use super::Engine;
use super::sockets::Sockets;
use crate::interrupt_moderation::InterruptModeration;

pub(super) struct Resting {
    waker: Waker,
    /// `None`: it never lets packets gather.
    moderation: Option<InterruptModeration>,
    waits: u64,
}

impl Resting {
    pub(super) fn new(waker: Waker, interrupt_moderation: bool) -> Self {
        Resting { waker, moderation: interrupt_moderation.then(InterruptModeration::default), waits: 0 }
    }

    /// Waits until there is something to do, at most for the time `timeout`.
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
        let Engine { resting: Resting { waker, moderation: Some(moderation), waits }, node, sockets, .. } =
            self
        else {
            return;
        };
        let slack = || {
            let (source, receivers) = (node.source().machine(), node.receivers().machine());
            let both = source.slack().into_iter().chain(receivers.slack());
            both.min().filter(|_| !node.has_trees())
        };
        let rest = moderation.after_round(now, sockets.moved(), slack);
        // A socket that is full is waited for.
        if let Some(rest) = rest.filter(|_| !sockets.is_blocked()) {
            *waits += 1;
            if let Err(error) = doze(waker, rest) {
                tracing::error!(%error, "waiting for orders failed");
            }
        }
    }
}
