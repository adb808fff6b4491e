//! What happens when: future events in exact order.
//!
//! Events of one time come out in the order in which they were put in; that, and nothing else, makes a run a function of
//! its seed. A hierarchy of wheels (Varghese and Lauck 1987, scheme 7): the lowest has a slot per nanosecond, each higher
//! one slots 256 times as wide, and an event waits on the lowest wheel on which it is not in the slot of the present. When
//! the present enters a slot, its events move down. So nothing is ever compared or sorted, however dense or sparse events
//! are, and no event moves more often than there are wheels below it: once or twice for a packet.
//!
//! A slot is a chain through one pool of entries, so the memory in use is that of the events pending, and is reused hot.
//! Chains are first in, first out, and an event enters a slot of a lower wheel directly only after the slot above has been
//! emptied into it: so equal times keep their order.

/// Bits of the time that one wheel resolves.
const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
/// Enough for every 64-bit time.
const WHEELS: usize = (u64::BITS / BITS) as usize;
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

#[derive(Clone, Copy)]
struct Wheel {
    occupied: [u64; WORDS],
    slots: [Slot; SLOTS],
}

/// A queue of events by time (nanoseconds), first in first out among equals.
pub(super) struct Agenda<E> {
    now: u64,
    wheels: Box<[Wheel; WHEELS]>,
    pool: Vec<Entry<E>>,
    free: u32,
    len: usize,
}

impl<E: Copy> Agenda<E> {
    /// An empty agenda at time zero.
    pub(super) fn new() -> Self {
        Agenda {
            now: 0,
            wheels: Box::new([Wheel { occupied: [0; WORDS], slots: [EMPTY; SLOTS] }; WHEELS]),
            pool: Vec::with_capacity(1024),
            free: NONE,
            len: 0,
        }
    }

    /// Events pending.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts an event in; a time that has passed counts as now.
    #[inline]
    pub(super) fn push(&mut self, time: u64, event: E) {
        let entry = Entry { time: time.max(self.now), next: NONE, event };
        self.len += 1;
        let index = match self.free {
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
        };
        self.append(time.max(self.now), index);
    }

    /// The earliest event.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u64, E)> {
        loop {
            let wheel = &mut self.wheels[0];
            if let Some(slot) = wheel.next_occupied((self.now % SLOTS as u64) as usize) {
                let place = &mut wheel.slots[slot];
                let index = place.head;
                place.head = self.pool[index as usize].next;
                if place.head == NONE {
                    place.tail = NONE;
                    wheel.occupied[slot / 64] &= !(1 << (slot % 64));
                }
                return Some(self.release(index));
            }
            match self.descend() {
                Descent::Only(index) => return Some(self.release(index)),
                Descent::Many => {}
                Descent::Nothing => return None,
            }
        }
    }

    /// The entry's event happens now.
    #[inline]
    fn release(&mut self, index: u32) -> (u64, E) {
        let entry = &mut self.pool[index as usize];
        let happens = (entry.time, entry.event);
        entry.next = self.free;
        self.free = index;
        self.now = happens.0;
        self.len -= 1;
        happens
    }

    /// Chains an entry to the slot of its time, on the lowest wheel that can tell it from the present.
    #[inline]
    fn append(&mut self, time: u64, index: u32) {
        let level = (u64::BITS - 1 - ((time ^ self.now) | 1).leading_zeros()) / BITS;
        let slot = (time >> (level * BITS)) as usize % SLOTS;
        let wheel = &mut self.wheels[level as usize];
        let place = &mut wheel.slots[slot];
        if place.tail == NONE {
            place.head = index;
            wheel.occupied[slot / 64] |= 1 << (slot % 64);
        } else {
            self.pool[place.tail as usize].next = index;
        }
        place.tail = index;
    }

    /// The present enters the next slot that holds something, of the lowest wheel that has one, and its events move down;
    /// an event alone in its slot need not, since it is the next.
    fn descend(&mut self) -> Descent {
        for level in 1..WHEELS {
            let shift = level as u32 * BITS;
            let present = (self.now >> shift) as usize % SLOTS;
            let wheel = &mut self.wheels[level];
            let Some(slot) = wheel.next_occupied(present) else { continue };
            let Slot { head, tail } = std::mem::replace(&mut wheel.slots[slot], EMPTY);
            wheel.occupied[slot / 64] &= !(1 << (slot % 64));
            if head == tail {
                return Descent::Only(head);
            }
            let above = self.now.checked_shr(shift + BITS).unwrap_or(0);
            self.now = (above.checked_shl(BITS).unwrap_or(0) | slot as u64) << shift;
            let mut index = head;
            while index != NONE {
                let entry = &mut self.pool[index as usize];
                let (time, next) = (entry.time, std::mem::replace(&mut entry.next, NONE));
                self.append(time, index);
                index = next;
            }
            return Descent::Many;
        }
        Descent::Nothing
    }
}

/// What a slot that the present enters held.
enum Descent {
    Nothing,
    /// This entry, taken out.
    Only(u32),
    /// Entries that are now on lower wheels.
    Many,
}

impl Wheel {
    /// The first slot from `from` on that holds something.
    #[inline]
    fn next_occupied(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.occupied[word] & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
