//! Repeats a message, each time after twice the wait.

use headwater_units::{Duration, Time};

/// When something is said the next time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    due: Time,
    wait: Duration,
}

impl Retry {
    /// Due at once.
    pub(crate) fn at(now: Time, first: Duration) -> Self {
        Retry { due: now, wait: first }
    }
    pub(crate) fn due(&self) -> Time {
        self.due
    }
    /// Whether it is time to say it; if so, the next time is set.
    pub(crate) fn fire(&mut self, now: Time, longest: Duration) -> bool {
        let due = now >= self.due;
        if due {
            self.due = now + self.wait.min(longest);
            self.wait = (self.wait * 2).min(longest);
        }
        due
    }
}
