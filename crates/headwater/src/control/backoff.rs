//! How long to wait before dialling again.

use headwater_units::Duration;

/// Waits that double from 100 ms to 5 s: quick after a restart, gentle while a peer stays away. Not random: a peer
/// has few diallers, and each starts its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    /// The longest wait.
    pub const LONGEST: Duration = Duration::from_secs(5);

    /// Starts with the shortest wait.
    pub const fn new() -> Self {
        Backoff { next: Self::FIRST }
    }

    /// The wait before the next try.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(Self::LONGEST);
        wait
    }

    /// A try succeeded: the next wait is the shortest again.
    pub fn reset(&mut self) {
        *self = Self::new();
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds_and_start_over() {
        let mut backoff = Backoff::new();
        let waits: Vec<u64> = (0..8).map(|_| backoff.next_wait().as_micros() / 1000).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), Duration::from_millis(100));
    }
}
