//! What happens when: a calendar of future events in exact order.
//!
//! Events of one time come out in the order in which they were put in; that, and nothing else, makes a run a function of
//! its seed. A ring of slots covers the near future, one slot a power of two of nanoseconds; each slot is a chain
//! through one pool of entries, so the memory in use is that of the events pending and is reused hot. The slot whose turn
//! it is gets sorted into a short list. What lies beyond the ring waits in a heap and moves into the ring before anything
//! can be put beside it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Slots of the ring. 1024: their heads and tails fit the first-level cache.
const SLOTS: usize = 1024;
const WORDS: usize = SLOTS / 64;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry<E> {
    time: u64,
    next: u32,
    event: E,
}

#[derive(Clone, Copy)]
struct Slot {
    head: u32,
    tail: u32,
}

const EMPTY: Slot = Slot { head: NONE, tail: NONE };

/// A queue of events by time (nanoseconds), first in first out among equals.
pub(super) struct Agenda<E> {
    /// A slot is 2^shift ns wide.
    shift: u32,
    /// The number of the slot in `current`; the ring holds the [`SLOTS`] - 1 slots after it.
    now_slot: u64,
    /// Entries of the current slot by time, latest first: the next one is the last.
    current: Vec<(u64, u32)>,
    slots: Box<[Slot; SLOTS]>,
    occupied: [u64; WORDS],
    pool: Vec<Entry<E>>,
    free: u32,
    /// Beyond the ring: time, order of arrival, entry.
    far: BinaryHeap<Reverse<(u64, u64, u32)>>,
    far_count: u64,
    len: usize,
}

impl<E: Copy> Agenda<E> {
    /// An empty agenda whose slots are about `grain` nanoseconds wide: best near the mean distance of two events.
    pub(super) fn new(grain: u64) -> Self {
        Agenda {
            shift: grain.max(1).ilog2().min(40),
            now_slot: 0,
            current: Vec::with_capacity(64),
            slots: Box::new([EMPTY; SLOTS]),
            occupied: [0; WORDS],
            pool: Vec::with_capacity(1024),
            free: NONE,
            far: BinaryHeap::new(),
            far_count: 0,
            len: 0,
        }
    }

    /// Events pending.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts an event in; a time that has passed counts as the earliest still possible.
    #[inline]
    pub(super) fn push(&mut self, time: u64, event: E) {
        let entry = self.allocate(time, event);
        self.len += 1;
        let slot = time >> self.shift;
        if slot <= self.now_slot {
            self.insert_current(time, entry);
        } else if slot - self.now_slot < SLOTS as u64 {
            self.append(slot, entry);
        } else {
            self.far_count += 1;
            self.far.push(Reverse((time, self.far_count, entry)));
        }
    }

    /// The earliest event.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u64, E)> {
        if self.current.is_empty() && !self.advance() {
            return None;
        }
        let (time, index) = self.current.pop().expect("a slot that is not empty has entries");
        let entry = &mut self.pool[index as usize];
        let event = entry.event;
        entry.next = self.free;
        self.free = index;
        self.len -= 1;
        Some((time, event))
    }

    #[inline]
    fn allocate(&mut self, time: u64, event: E) -> u32 {
        let entry = Entry { time, next: NONE, event };
        match self.free {
            NONE => {
                self.pool.push(entry);
                (self.pool.len() - 1) as u32
            }
            index => {
                let place = &mut self.pool[index as usize];
                self.free = place.next;
                *place = entry;
                index
            }
        }
    }

    /// Behind everything of the same time, in the slot whose turn it is.
    #[inline]
    fn insert_current(&mut self, time: u64, entry: u32) {
        let mut at = self.current.len();
        while at > 0 && self.current[at - 1].0 <= time {
            at -= 1;
        }
        self.current.insert(at, (time, entry));
    }

    #[inline]
    fn append(&mut self, slot: u64, entry: u32) {
        let index = slot as usize % SLOTS;
        let place = &mut self.slots[index];
        if place.tail == NONE {
            place.head = entry;
            self.occupied[index / 64] |= 1 << (index % 64);
        } else {
            self.pool[place.tail as usize].next = entry;
        }
        place.tail = entry;
    }

    /// Makes the next occupied slot the current one; false if there is none.
    fn advance(&mut self) -> bool {
        let near = self.next_occupied();
        let far = self.far.peek().map(|Reverse((time, ..))| time >> self.shift);
        let slot = match (near, far) {
            (Some(near), Some(far)) => near.min(far),
            (Some(slot), None) | (None, Some(slot)) => slot,
            (None, None) => return false,
        };
        self.now_slot = slot;
        // What the ring now reaches moves in before anything new can: so equal times keep their order.
        while let Some(&Reverse((time, _, entry))) = self.far.peek()
            && (time >> self.shift) - slot < SLOTS as u64
        {
            self.far.pop();
            self.append(time >> self.shift, entry);
        }
        let index = slot as usize % SLOTS;
        let mut entry = std::mem::replace(&mut self.slots[index], EMPTY).head;
        self.occupied[index / 64] &= !(1 << (index % 64));
        while entry != NONE {
            let Entry { time, next, .. } = self.pool[entry as usize];
            self.insert_current(time, entry);
            entry = next;
        }
        true
    }

    /// The number of the next slot of the ring that holds something.
    fn next_occupied(&self) -> Option<u64> {
        let start = (self.now_slot as usize + 1) % SLOTS;
        let (word, bit) = (start / 64, start % 64);
        // One word more than there are: the first one once for its upper and once for its lower bits.
        for step in 0..=WORDS {
            let at = (word + step) % WORDS;
            let mask = match step {
                0 => u64::MAX << bit,
                WORDS => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let bits = self.occupied[at] & mask;
            if bits != 0 {
                let index = at * 64 + bits.trailing_zeros() as usize;
                let distance = (index + SLOTS - start) % SLOTS;
                return Some(self.now_slot + 1 + distance as u64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_and_then_in_the_order_they_were_put_in(
            grain in 1u64..5000,
            steps in prop::collection::vec((any::<bool>(), 0u64..40, 0u32..24), 1..600),
        ) {
            let mut agenda = Agenda::new(grain);
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

    #[test]
    fn memory_is_that_of_the_events_pending() {
        let mut agenda = Agenda::new(64);
        for i in 0..100_000u64 {
            agenda.push(i * 50, i);
            if i >= 100 {
                agenda.pop();
            }
        }
        assert!(agenda.pool.len() <= 101);
    }
}
