//! When a flow of an overlay that has nothing to send says that it lives.
//!
//! The bytes that it is to send next may not have come to its host yet. Its receiver cannot tell that from a host that
//! has died, and would turn to others; and it would say its assignment again and again, of which no symbol says that it
//! was heard.

use headwater_units::{Duration, Time};

/// First interval between heartbeats of a source that waits; each further one is twice as long: in an overlay of a
/// thousand members nearly all wait.
const FIRST: Duration = Duration::from_millis(100);
/// Longest interval between heartbeats. A receiver waits for four times the interval that it has seen last, so a source that died
/// while it had nothing to send is missed after 3.2 s, about as soon as the controller misses its host.
pub(crate) const LONGEST: Duration = Duration::from_millis(800);
/// Time after which an assignment is confirmed of which nothing can be sent yet.
const SOON: Duration = Duration::from_millis(5);

/// The heartbeats of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    /// A symbol or a heartbeat left last.
    sent_at: Time,
    /// The newest assignment that these have confirmed.
    confirmed: u32,
    /// Until the next one.
    interval: Duration,
}

impl Heartbeat {
    pub(super) fn new(now: Time) -> Self {
        Heartbeat { sent_at: now, confirmed: 0, interval: FIRST }
    }

    /// A symbol leaves, which confirms this assignment.
    #[inline]
    pub(super) fn on_symbol(&mut self, now: Time, assignment: u32) {
        *self = Heartbeat { sent_at: now, confirmed: assignment, interval: FIRST };
    }

    /// A heartbeat leaves, which confirms it too.
    pub(super) fn on_heartbeat(&mut self, now: Time, assignment: u32) {
        let interval =
            if self.confirmed == assignment { (self.interval * 2).min(LONGEST) } else { self.interval };
        *self = Heartbeat { sent_at: now, confirmed: assignment, interval };
    }

    /// When the next one is due of a flow that has had nothing to send since then, under this assignment.
    pub(super) fn due(&self, assignment: u32, since: Time) -> Time {
        self.sent_at.max(since) + if self.confirmed == assignment { self.interval } else { SOON }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_says_so_more_and_more_rarely_until_a_symbol_leaves() {
        let mut heartbeat = Heartbeat::new(Time::ZERO);
        let said = |heartbeat: &mut Heartbeat, assignment| {
            let (before, at) = (heartbeat.sent_at, heartbeat.due(assignment, Time::ZERO));
            heartbeat.on_heartbeat(at, assignment);
            at.since(before).as_nanos() / 1_000_000
        };
        assert_eq!([0; 6].map(|_| said(&mut heartbeat, 0)), [100, 200, 400, 800, 800, 800]);
        assert_eq!(
            [1, 1, 2].map(|assignment| said(&mut heartbeat, assignment)),
            [5, 800, 5],
            "new work is confirmed at once"
        );
        heartbeat.on_symbol(heartbeat.sent_at, 2);
        assert_eq!([0; 2].map(|_| said(&mut heartbeat, 2)), [100, 200]);
    }
}
