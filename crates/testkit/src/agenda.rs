//! Agenda of events: by time, then in the order in which they were put down.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_units::{Duration, Time};

/// Events to come, and the time of the last one that happened.
#[derive(Debug)]
pub struct Agenda<T> {
    now: Time,
    /// When each event is due, its place in the order in which all were put down, and where it lies.
    due: BinaryHeap<Reverse<(Time, u64, usize)>>,
    /// Events are large and stay where they are; some places are free.
    events: Vec<Option<T>>,
    free: Vec<usize>,
    put_down: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        let (due, events, free) = (BinaryHeap::new(), Vec::new(), Vec::new());
        Agenda { now: Time::ZERO, due, events, free, put_down: 0 }
    }
}

impl<T> Agenda<T> {
    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Puts an event down; one of the past happens now.
    pub fn at(&mut self, time: Time, event: T) {
        self.put_down += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.due.push(Reverse((time.max(self.now), self.put_down, place)));
    }

    /// Puts an event down for later.
    pub fn after(&mut self, span: Duration, event: T) {
        self.at(self.now + span, event);
    }

    /// When the next event is due.
    pub fn due(&self) -> Option<Time> {
        self.due.peek().map(|Reverse((time, ..))| *time)
    }

    /// The next event, whose time it is from now on.
    pub fn pop(&mut self) -> Option<T> {
        let Reverse((time, _, place)) = self.due.pop()?;
        self.now = time;
        self.free.push(place);
        self.events[place].take()
    }

    /// Lets time pass in which nothing happens.
    pub fn wait_until(&mut self, time: Time) {
        assert!(self.due().is_none_or(|due| due >= time), "something happens before {time}");
        self.now = self.now.max(time);
    }

    /// Strikes out all other events.
    pub fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        let Agenda { due, events, free, .. } = self;
        due.retain(|Reverse((_, _, place))| {
            let strike = events[*place].take_if(|event| !stays(event)).is_some();
            free.extend(strike.then_some(*place));
            !strike
        });
    }

    /// Whether nothing will happen any more.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
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
