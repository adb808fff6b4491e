//! How long to wait before dialling again.

use headwater_units::Duration;

/// Waits that double from 100 ms to 5 s: quick after a restart, gentle while a peer stays away. Each is cut by up to a half, by the
/// seed, so that many diallers who began together do not come together again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    next: Duration,
    /// Of an xorshift generator; never zero.
    seed: u64,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    /// The longest wait.
    pub const LONGEST: Duration = Duration::from_secs(5);

    /// Starts with the shortest wait. Diallers with other seeds wait for other times.
    pub const fn new(seed: u64) -> Self {
        Backoff { next: Self::FIRST, seed: seed | 1 }
    }

    /// The wait before the next try.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(Self::LONGEST);
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let cut = (self.seed >> 11) as f64 / (1_u64 << 53) as f64;
        wait.mul_f64(1.0 - cut / 2.0)
    }

    /// A try succeeded: the next wait is the shortest again.
    pub fn reset(&mut self) {
        self.next = Self::FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds_less_a_part_of_each_and_start_over() {
        for seed in 0..50 {
            let mut backoff = Backoff::new(seed);
            for most in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
                let wait = backoff.next_wait().as_micros();
                assert!((most * 500..=most * 1000).contains(&wait), "{wait} us of {most} ms");
            }
            backoff.reset();
            assert!(backoff.next_wait() <= Duration::from_millis(100));
        }
    }

    #[test]
    fn diallers_who_began_together_do_not_come_together_again() {
        let third = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..3).map(|_| backoff.next_wait()).last()
        };
        let times: std::collections::BTreeSet<_> =
            (0..64_u64).map(|n| third(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        assert!(times.len() > 48, "{}", times.len());
    }
}
