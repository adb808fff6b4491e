//! When many subjects of one machine want to be called, each at one time.

use std::collections::BTreeSet;

use headwater_units::Time;

/// The times, in order; of equal ones the smaller key first.
#[derive(Debug)]
pub struct Timers<K> {
    entries: BTreeSet<(Time, K)>,
    /// The time of the first, or [`Time::MAX`]: every poll asks for it.
    first: Time,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { entries: BTreeSet::new(), first: Time::MAX }
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// The first time, or [`Time::MAX`].
    #[inline]
    pub fn first(&self) -> Time {
        self.first
    }

    /// Makes sure that there is an entry not later than the deadline. `timer` is that of the key's entry, kept by the
    /// caller. An entry that has become too early stays: to move it with every packet would cost more than one idle call
    /// when it fires.
    #[inline]
    pub fn arm(&mut self, timer: &mut Option<Time>, deadline: Option<Time>, key: K) {
        let keep = match (*timer, deadline) {
            (Some(timer), Some(deadline)) => timer <= deadline,
            (None, None) => true,
            _ => false,
        };
        if !keep {
            self.move_entry(timer, deadline, key);
        }
    }

    fn move_entry(&mut self, timer: &mut Option<Time>, deadline: Option<Time>, key: K) {
        if let Some(timer) = *timer {
            self.remove(timer, key);
        }
        if let Some(deadline) = deadline {
            self.entries.insert((deadline, key));
            self.find_first();
        }
        *timer = deadline;
    }

    /// Takes out an entry.
    pub fn remove(&mut self, at: Time, key: K) {
        self.entries.remove(&(at, key));
        self.find_first();
    }

    /// Takes out the first that is due.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        if now < self.first {
            return None;
        }
        let (_, key) = self.entries.pop_first()?;
        self.find_first();
        Some(key)
    }

    fn find_first(&mut self) {
        self.first = self.entries.first().map_or(Time::MAX, |&(at, _)| at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the deadlines become, each is called no later than it wants to be, and not once it wants nothing.
        #[test]
        fn nobody_is_called_too_late(steps in proptest::collection::vec((0u8..4, proptest::option::of(0u64..40)), 0..200)) {
            let (mut timers, mut entries, mut wishes) = (Timers::default(), [None; 4], [None; 4]);
            for (step, (key, wish)) in steps.into_iter().enumerate() {
                let now = Time::from_nanos(step as u64);
                let wish = wish.map(|ahead| Time::from_nanos(step as u64 + 1 + ahead));
                wishes[usize::from(key)] = wish;
                timers.arm(&mut entries[usize::from(key)], wish, key);
                while let Some(due) = timers.pop_due(now) {
                    let due = usize::from(due);
                    entries[due] = None;
                    prop_assert!(wishes[due].is_some());
                    wishes[due] = wishes[due].filter(|at| *at > now);
                    timers.arm(&mut entries[due], wishes[due], due as u8);
                }
                prop_assert!(wishes.iter().flatten().all(|at| *at > now));
                prop_assert_eq!(timers.first(), entries.iter().flatten().min().copied().unwrap_or(Time::MAX));
            }
        }
    }
}
