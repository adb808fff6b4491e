//! The event queue: future events in exact order.
//!
//! Events of one time come out in the order in which they were put in; that, and nothing else, makes a run a function of
//! its seed.
//!
//! A calendar (Brown 1988): a *day* is a power of two of nanoseconds, and has a chain of its events in order. A *year* has
//! 2048 days; only the present year and the one after it have days. Events of later years wait, unsorted, in a chain for each
//! year of the present *age* of 512 years, or in one chain for all later ages, and move down when the year before theirs, or
//! their age, begins. So an event is looked at once or twice, and compared with its neighbour once: what is less than a year
//! ahead, as what crosses a link is, goes to its day at once.
//!
//! How long a day is follows from the work: shorter where events have to be put before others too often, longer where most
//! days have none. It decides what an event costs, never when it comes.
//!
//! Chains go through one pool of entries, so the memory in use is that of the events pending, and is reused hot. They are
//! first in, first out among equals, and nothing is put into a year or an age directly before what waited for it has moved
//! in: so equal times keep their order.

/// Of a year.
const DAYS: usize = 2048;
/// Days of the two years that have any, in a ring.
const RING: usize = 2 * DAYS;
/// Of an age.
const YEARS: usize = 512;
const NONE: u32 = u32::MAX;
/// Number of entries passed over in a year from which on days get shorter at once.
const MAX_PASSED: usize = 8 * DAYS;
/// Days of an age.
const AGE: u64 = (DAYS * YEARS) as u64;
/// A day is at most 2^20 ns.
const MAX_GRAIN: u32 = 20;

#[derive(Clone, Copy)]
struct Entry<E> {
    time: u64,
    event: E,
}

/// The events of a day, in order.
#[derive(Clone, Copy)]
struct Day {
    head: u32,
    /// Without meaning while there is no head, as is the time of the last.
    tail: u32,
    last: u64,
}

#[derive(Clone, Copy)]
struct Chain {
    head: u32,
    /// Without meaning while there is no head.
    tail: u32,
}

const EMPTY: Chain = Chain { head: NONE, tail: NONE };
const FREE: Day = Day { head: NONE, tail: NONE, last: 0 };

/// A queue of events by time (nanoseconds), first in first out among equals.
pub(super) struct Agenda<E> {
    now: u64,
    /// The day of `now`, or one before the next event, counted from time zero.
    today: u64,
    /// Bits of the time within a day.
    grain: u32,
    /// The first day of this year, and how many days from it on are in the ring: two years, or one at the end of an age.
    new_year: u64,
    span: u64,
    days: Box<[Day; RING]>,
    years: Box<[Chain; YEARS]>,
    ages: Chain,
    /// Events pending: this year; the next one, where it has days; else this age; and later.
    this_year: usize,
    following: usize,
    this_age: usize,
    later: usize,
    pool: Vec<Entry<E>>,
    /// Successor of each entry in its chain: apart, so that an entry is not fetched to put another one behind it.
    after: Vec<u32>,
    free: u32,
    /// Events that have happened this year.
    happened: usize,
    /// Entries passed over this year to put others before later ones.
    passed: usize,
}

impl<E: Copy> Agenda<E> {
    /// An empty agenda at time zero.
    pub(super) fn new() -> Self {
        Agenda {
            now: 0,
            today: 0,
            grain: 0,
            new_year: 0,
            span: RING as u64,
            days: Box::new([FREE; RING]),
            years: Box::new([EMPTY; YEARS]),
            ages: EMPTY,
            this_year: 0,
            following: 0,
            this_age: 0,
            later: 0,
            pool: Vec::with_capacity(1024),
            after: Vec::with_capacity(1024),
            free: NONE,
            happened: 0,
            passed: 0,
        }
    }

    /// Events pending.
    pub(super) fn len(&self) -> usize {
        self.this_year + self.following + self.this_age + self.later
    }

    /// Puts an event in; a time that has passed counts as now.
    // Once for every hop of every packet; a call costs a seventh of what it does.
    #[inline(always)]
    pub(super) fn push(&mut self, time: u64, event: E) {
        let time = time.max(self.now);
        let index = match self.after.get_mut(self.free as usize) {
            Some(after) => {
                let index = std::mem::replace(&mut self.free, *after);
                *after = NONE;
                self.pool[index as usize] = Entry { time, event };
                index
            }
            None => self.grow(Entry { time, event }),
        };
        if !self.append_to_day(time, index) {
            self.insert_elsewhere(time, index);
        }
    }

    #[cold]
    fn grow(&mut self, entry: Entry<E>) -> u32 {
        self.pool.push(entry);
        self.after.push(NONE);
        (self.pool.len() - 1) as u32
    }

    /// Takes the earliest event out.
    // A reference, since an optional pair of both by value is copied three times in odd pieces.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> Option<(u64, &E)> {
        while self.this_year == 0 {
            if !self.turn() {
                return None;
            }
        }
        // The first of this year's entries.
        let (days, mut today) = (&mut self.days, self.today);
        while days[today as usize % RING].head == NONE {
            today += 1;
        }
        self.today = today;
        let day = &mut days[today as usize % RING];
        let index = day.head;
        let after = &mut self.after[index as usize];
        day.head = std::mem::replace(after, std::mem::replace(&mut self.free, index));
        self.this_year -= 1;
        self.happened += 1;
        let Entry { time, event } = &self.pool[index as usize];
        self.now = *time;
        Some((self.now, event))
    }

    /// Whether more is to happen at the time of the last event.
    #[inline]
    pub(super) fn has_more_at(&self, now: u64) -> bool {
        debug_assert_eq!(now, self.now, "asked of another time");
        let day = &self.days[self.today as usize % RING];
        self.this_year > 0 && day.head != NONE && self.pool[day.head as usize].time == now
    }

    /// Puts an entry where its time belongs.
    #[inline]
    fn insert(&mut self, time: u64, index: u32) {
        if !self.append_to_day(time, index) {
            self.insert_where_it_belongs(time, index);
        }
    }

    /// Puts an entry at the end of its day, if it belongs there.
    #[inline(always)]
    fn append_to_day(&mut self, time: u64, index: u32) -> bool {
        let date = time >> self.grain;
        if date - self.new_year >= self.span {
            return false;
        }
        let day = &mut self.days[date as usize % RING];
        if day.head == NONE {
            *day = Day { head: index, tail: index, last: time };
        } else {
            if day.last > time {
                return false;
            }
            self.after[day.tail as usize] = index;
            (day.tail, day.last) = (index, time);
        }
        *self.year_of(date) += 1;
        true
    }

    /// The count of the year that a day of the ring is in.
    #[inline(always)]
    fn year_of(&mut self, date: u64) -> &mut usize {
        if date - self.new_year < DAYS as u64 { &mut self.this_year } else { &mut self.following }
    }

    /// Puts in an entry that does not come last in a day of the ring.
    #[inline(never)]
    fn insert_elsewhere(&mut self, time: u64, index: u32) {
        self.insert_where_it_belongs(time, index);
        if self.passed > MAX_PASSED {
            self.regrain(self.grain.saturating_sub(2), self.now);
        }
    }

    fn insert_where_it_belongs(&mut self, time: u64, index: u32) {
        let date = time >> self.grain;
        if date - self.new_year >= self.span {
            return self.insert_later(date, index);
        }
        *self.year_of(date) += 1;
        self.insert_before_last(date, time, index);
    }

    #[cold]
    fn insert_later(&mut self, date: u64, index: u32) {
        let chain = if (date ^ self.today) < AGE {
            self.this_age += 1;
            &mut self.years[(date / DAYS as u64) as usize % YEARS]
        } else {
            self.later += 1;
            &mut self.ages
        };
        append(chain, &mut self.after, index);
    }

    /// Puts an entry into a day whose last entry comes after it.
    #[cold]
    fn insert_before_last(&mut self, date: u64, time: u64, index: u32) {
        let day = &mut self.days[date as usize % RING];
        let (mut before, mut next) = (NONE, day.head);
        while self.pool[next as usize].time <= time {
            (before, next) = (next, self.after[next as usize]);
            self.passed += 1;
        }
        self.after[index as usize] = next;
        match self.after.get_mut(before as usize) {
            Some(after) => *after = index,
            None => day.head = index,
        }
    }

    /// This year has no events any more: the next year that has some begins. False if there is none.
    #[cold]
    fn turn(&mut self) -> bool {
        let turned = self.turn_year();
        if turned {
            self.review();
        }
        turned
    }

    /// At the beginning of a year: are days of a good length?
    fn review(&mut self) {
        let (happened, passed) = (std::mem::take(&mut self.happened), std::mem::take(&mut self.passed));
        let grain = if passed > 2 * happened {
            self.grain.saturating_sub(1)
        } else if happened + self.this_year < DAYS / 2 && passed < happened / 4 {
            (self.grain + 1).min(MAX_GRAIN)
        } else {
            self.grain
        };
        // Nothing is put in before the first event of this year has happened.
        self.regrain(grain, self.today << self.grain);
    }

    fn turn_year(&mut self) -> bool {
        if self.following > 0 {
            self.today = self.new_year + DAYS as u64;
        } else {
            if self.this_age == 0 {
                if self.later == 0 {
                    return false;
                }
                self.turn_age();
            }
            let year = self.today / DAYS as u64;
            let next = (year as usize % YEARS..YEARS).find(|&at| self.years[at].head != NONE);
            let next = next.expect("an event of this age is in one of its years");
            self.today = (year / YEARS as u64 * YEARS as u64 + next as u64) * DAYS as u64;
        }
        self.this_year = std::mem::take(&mut self.following);
        self.look_ahead();
        true
    }

    /// The year of today begins: its events and those of the next one move to their days, if they have not.
    fn look_ahead(&mut self) {
        let year = self.today / DAYS as u64;
        self.new_year = year * DAYS as u64;
        let is_last_of_age = year as usize % YEARS == YEARS - 1;
        self.span = if is_last_of_age { DAYS } else { RING } as u64;
        for year in year..year + self.span / DAYS as u64 {
            let chain = std::mem::replace(&mut self.years[year as usize % YEARS], EMPTY);
            let moved = self.insert_chain(chain);
            self.this_age -= moved;
        }
    }

    /// The age of the earliest of the later events begins, and its events move to their years.
    fn turn_age(&mut self) {
        let Chain { mut head, .. } = std::mem::replace(&mut self.ages, EMPTY);
        self.later = 0;
        let mut first = u64::MAX;
        let mut index = head;
        while index != NONE {
            first = first.min(self.pool[index as usize].time);
            index = self.after[index as usize];
        }
        self.today = (first >> self.grain) / AGE * AGE;
        while head != NONE {
            let (index, date) = (head, self.pool[head as usize].time >> self.grain);
            head = std::mem::replace(&mut self.after[head as usize], NONE);
            if (date ^ self.today) < AGE {
                self.this_age += 1;
                append(&mut self.years[(date / DAYS as u64) as usize % YEARS], &mut self.after, index);
            } else {
                self.later += 1;
                append(&mut self.ages, &mut self.after, index);
            }
        }
    }

    /// Puts the entries of a chain where they belong; says how many there were.
    fn insert_chain(&mut self, chain: Chain) -> usize {
        let (mut index, mut count) = (chain.head, 0);
        while index != NONE {
            let next = std::mem::replace(&mut self.after[index as usize], NONE);
            self.insert(self.pool[index as usize].time, index);
            index = next;
            count += 1;
        }
        count
    }

    /// Sorts all pending events into days of another length; none of them, and none that is put in later, is before `from`.
    #[cold]
    fn regrain(&mut self, grain: u32, from: u64) {
        self.passed = 0;
        if grain == self.grain {
            return;
        }
        let mut pending = self.take_all();
        // Entries of one time are in one chain, in their order; the sort is stable.
        pending.sort_by_key(|index| self.pool[*index as usize].time);
        self.grain = grain;
        self.today = from >> grain;
        self.look_ahead();
        for index in pending {
            self.insert(self.pool[index as usize].time, index);
        }
    }

    /// Takes all entries out, chain by chain. Year by year would cost a look at all later entries for each age that has one.
    fn take_all(&mut self) -> Vec<u32> {
        let Agenda { days, years, ages, after, .. } = self;
        let mut all = Vec::with_capacity(self.this_year + self.following + self.this_age + self.later);
        let mut take = |mut index: u32| {
            while index != NONE {
                all.push(index);
                index = std::mem::replace(&mut after[index as usize], NONE);
            }
        };
        for date in self.today..self.new_year + self.span {
            take(std::mem::replace(&mut days[date as usize % RING].head, NONE));
        }
        years.iter_mut().for_each(|year| take(std::mem::replace(year, EMPTY).head));
        take(std::mem::replace(ages, EMPTY).head);
        (self.this_year, self.following, self.this_age, self.later) = (0, 0, 0, 0);
        all
    }
}

/// Puts an entry at a chain's end.
#[inline]
fn append(chain: &mut Chain, after: &mut [u32], index: u32) {
    if chain.head == NONE {
        chain.head = index;
    } else {
        after[chain.tail as usize] = index;
    }
    chain.tail = index;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl<E: Copy> Agenda<E> {
        pub(in crate::packet) fn pop(&mut self) -> Option<(u64, E)> {
            self.advance().map(|(time, event)| (time, *event))
        }
    }

    proptest! {
        #[test]
        fn events_come_by_time_and_then_in_the_order_they_were_put_in(
            steps in prop::collection::vec((any::<bool>(), 0u64..40, 0u32..50), 1..600),
        ) {
            let mut agenda = Agenda::new();
            let mut oracle: Vec<(u64, u32)> = Vec::new();
            let (mut now, mut number) = (0, 0);
            for (push, mantissa, scale) in steps {
                if push {
                    let time = now + (mantissa << scale);
                    number += 1;
                    agenda.push(time, number);
                    oracle.push((time, number));
                } else {
                    let first = oracle.iter().enumerate().min_by_key(|(_, e)| **e).map(|(i, _)| i);
                    let expected = first.map(|i| oracle.remove(i));
                    prop_assert_eq!(agenda.pop(), expected);
                    now = expected.map_or(now, |(time, _)| time);
                }
                prop_assert_eq!(agenda.len(), oracle.len());
            }
            oracle.sort_unstable();
            for expected in oracle {
                prop_assert_eq!(agenda.pop(), Some(expected));
            }
            prop_assert_eq!(agenda.pop(), None);
        }
    }

    /// Some were put in when their year had no days yet, or their age no years, and some straight into their day.
    #[test]
    fn equal_times_keep_their_order_whenever_they_were_put_in() {
        for far in [DAYS as u64, RING as u64 + 5, 5 * DAYS as u64, AGE - 1, AGE, AGE + 5, 3 * AGE] {
            let mut agenda = Agenda::new();
            let mut count = 0;
            for now in (0..far).step_by(DAYS / 4) {
                agenda.push(far, count);
                agenda.push(now, u64::MAX);
                assert_eq!(agenda.pop(), Some((now, u64::MAX)));
                count += 1;
            }
            for number in 0..count {
                assert_eq!(agenda.pop(), Some((far, number)));
            }
            assert_eq!(agenda.pop(), None);
        }
    }

    /// Dense and sparse times by turns, so that days get shorter and longer.
    #[test]
    fn order_does_not_depend_on_how_long_days_are() {
        let (mut agenda, mut oracle) = (Agenda::new(), std::collections::BTreeMap::new());
        let (mut random, mut now, mut grains) = (7u64, 0, std::collections::BTreeSet::new());
        for number in 0..400_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let spread = [300, 3_000_000, 40, 500_000_000][number as usize / 50_000 % 4];
            let time = now + (random >> 33) % spread;
            agenda.push(time, number);
            oracle.insert((time, number), ());
            if number % 500 > 200 {
                let ((time, number), ()) = oracle.pop_first().unwrap();
                assert_eq!(agenda.pop(), Some((time, number)));
                now = time;
            }
            if oracle.len() > 2_000 {
                for ((time, number), ()) in std::mem::take(&mut oracle) {
                    assert_eq!(agenda.pop(), Some((time, number)));
                    now = time;
                }
            }
            grains.insert(agenda.grain);
            assert_eq!(agenda.len(), oracle.len());
        }
        assert!(grains.len() > 5, "days were always {grains:?} bits long");
    }

    #[test]
    fn memory_is_that_of_the_events_pending() {
        let mut agenda = Agenda::new();
        for i in 0..100_000u64 {
            agenda.push(i * 50, i);
            if i >= 100 {
                agenda.pop();
            }
        }
        assert!(agenda.pool.len() <= 101);
    }
}
