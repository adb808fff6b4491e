//! When a flow of an overlay that has nothing to send says that it lives.
//!
//! What it is to send next may not have come to its host yet. Its receiver cannot tell that from a host that has died, and would turn to
//! others; and it would say its assignment again and again, of which no symbol says that it was heard.

use headwater_units::{Duration, Time};

/// While it waits.
const EVERY: Duration = Duration::from_millis(100);
/// An assignment of which nothing can be sent yet is confirmed after this long.
const SOON: Duration = Duration::from_millis(5);

/// The heartbeats of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    /// A symbol or a heartbeat left last.
    sent_at: Time,
    /// The newest assignment that these have confirmed.
    confirmed: u32,
}

impl Heartbeat {
    pub(super) fn new(now: Time) -> Self {
        Heartbeat { sent_at: now, confirmed: 0 }
    }

    /// A symbol or a heartbeat leaves, which confirms this assignment.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Time, assignment: u32) {
        *self = Heartbeat { sent_at: now, confirmed: assignment };
    }

    /// When the next one is due of a flow that has had nothing to send since then, under this assignment.
    pub(super) fn due(&self, assignment: u32, since: Time) -> Time {
        self.sent_at.max(since) + if self.confirmed == assignment { EVERY } else { SOON }
    }
}
