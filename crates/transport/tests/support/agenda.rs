//! What is to happen when. What is due at the same time happens in the order in which it was put down.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::collections::BTreeMap;

use headwater_units::Time;

pub struct Agenda<T> {
    entries: BTreeMap<(Time, u64), T>,
    put_down: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Agenda { entries: BTreeMap::new(), put_down: 0 }
    }
}

impl<T> Agenda<T> {
    pub fn at(&mut self, time: Time, what: T) {
        self.put_down += 1;
        self.entries.insert((time, self.put_down), what);
    }

    pub fn next(&mut self) -> Option<(Time, T)> {
        self.entries.pop_first().map(|((time, _), what)| (time, what))
    }

    pub fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.entries.retain(|_, what| stays(what));
    }
}
