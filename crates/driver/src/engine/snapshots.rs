//! Counters of the data thread, published for other threads.

use std::sync::{Arc, Mutex};

use headwater_udp::Merging;
use headwater_units::Time;

use super::Engine;
use crate::Snapshot;

/// Interval at which the shared snapshot is refreshed.
const EVERY: u64 = 100_000_000;

/// The shared snapshot, and when it was refreshed.
pub(super) struct Snapshots {
    shared: Arc<Mutex<Snapshot>>,
    next: Time,
    last: Time,
    /// The last one was of a busy thread.
    was_busy: bool,
    merging: Merging,
    /// Control messages cut off, as far as the log says.
    told_truncated: u64,
}

impl Snapshots {
    pub(super) fn new(shared: Arc<Mutex<Snapshot>>) -> Self {
        Snapshots {
            shared,
            next: Time::ZERO,
            last: Time::ZERO,
            was_busy: false,
            merging: Merging::default(),
            told_truncated: 0,
        }
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.next
    }

    /// When to refresh it. Once more when all is over, or the last one would say for ever that it is not.
    pub(super) fn wake(&self, is_busy: bool) -> Option<Time> {
        (is_busy || self.was_busy).then_some(self.next)
    }
}

impl Engine {
    /// Refreshes the shared snapshot.
    pub(super) fn publish(&mut self, now: Time) {
        let is_busy = self.is_busy();
        let Engine { snapshots, node, sockets, fetches, resting, .. } = self;
        snapshots.next = Time::from_nanos(now.as_nanos() + EVERY);
        let socket = sockets.stats();
        snapshots.merging.look(now.since(snapshots.last), &socket);
        snapshots.was_busy = is_busy;
        snapshots.last = now;
        if socket.control_truncated > snapshots.told_truncated {
            let buffers = socket.control_truncated - snapshots.told_truncated;
            tracing::error!(buffers, "control messages were cut off: marks of these datagrams are lost");
            snapshots.told_truncated = socket.control_truncated;
        }
        let counted = node.stats();
        let ids = fetches.running.iter().map(|(&id, _)| id);
        let machine = node.receivers_mut().machine_mut();
        let receivers = ids.filter_map(|id| Some((id, machine.stats(now, id)?))).collect();
        let snapshot = Snapshot {
            receivers,
            flows: node.source().machine().flows().collect(),
            sources: node.source().machine().stats(),
            socket,
            offload: sockets.offload(),
            merging: snapshots.merging,
            waits: resting.waits(),
            strays: counted.strays,
            trimmed: counted.trimmed,
            sees_trimmed: sockets.trimmed.is_some(),
            pulls: counted.pulls,
            dropped_on_purpose: node.receivers().dropped(),
            unsendable: sockets.unsendable,
        };
        if let Ok(mut shared) = snapshots.shared.lock() {
            *shared = snapshot;
        }
    }
}
