//! What happens when: by time, then in the order in which it was put down.

use std::collections::BTreeMap;

use headwater_units::{Duration, Time};

/// Events to come, and the time of the last one that happened.
#[derive(Debug)]
pub struct Agenda<T> {
    now: Time,
    entries: BTreeMap<(Time, u64), T>,
    put_down: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Agenda { now: Time::ZERO, entries: BTreeMap::new(), put_down: 0 }
    }
}

impl<T> Agenda<T> {
    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Puts an event down; one of the past happens now.
    pub fn at(&mut self, time: Time, what: T) {
        self.put_down += 1;
        self.entries.insert((time.max(self.now), self.put_down), what);
    }

    /// Puts an event down for later.
    pub fn after(&mut self, span: Duration, what: T) {
        self.at(self.now + span, what);
    }

    /// When the next event is due.
    pub fn due(&self) -> Option<Time> {
        self.entries.first_key_value().map(|((time, _), _)| *time)
    }

    /// The next event, whose time it is from now on.
    pub fn pop(&mut self) -> Option<T> {
        let ((time, _), what) = self.entries.pop_first()?;
        self.now = time;
        Some(what)
    }

    /// Lets time pass in which nothing happens.
    pub fn wait_until(&mut self, time: Time) {
        assert!(self.due().is_none_or(|due| due >= time), "something happens before {time}");
        self.now = self.now.max(time);
    }

    /// Strikes out all others.
    pub fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.entries.retain(|_, what| stays(what));
    }

    /// Whether nothing will happen any more.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_together_happens_in_the_order_in_which_it_was_put_down() {
        let mut agenda = Agenda::default();
        let at = |us| Time::ZERO + Duration::from_micros(us);
        for (us, what) in [(2, 'a'), (1, 'b'), (2, 'c'), (1, 'd')] {
            agenda.at(at(us), what);
        }
        agenda.retain(|what| *what != 'd');
        assert_eq!((agenda.pop(), agenda.now()), (Some('b'), at(1)));
        agenda.at(at(0), 'e');
        assert_eq!((agenda.pop(), agenda.now()), (Some('e'), at(1)), "the past is over");
        assert_eq!((agenda.pop(), agenda.pop(), agenda.pop()), (Some('a'), Some('c'), None));
    }
}
