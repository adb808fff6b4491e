//! Memory of a plain port about the frames that it has passed: when each leaves, and how long it is.
//!
//! A ring of departures in order. The totals make it cheap: each slot has the bytes of all frames up to and including its
//! own, so what is still here is one subtraction, however many frames left since the last look. A look is only needed where what
//! was here at the last one, and what came since, reaches a bound.

use headwater_units::Time;

use crate::config::Occupancy;

/// The smallest ring that is ever allocated, in slots.
const FIRST_SLOTS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    at: Time,
    /// Bytes of all frames up to and including this one, since the beginning.
    bytes_so_far: u64,
}

/// Departures that were promised and are still to come, and totals of those that came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departures {
    /// A power of two of them, or none at first.
    slots: Box<[Slot]>,
    /// How many have left; also the place of the next to leave.
    kept: u64,
    /// How many were made.
    made: u64,
    bytes_kept: u64,
    bytes_made: u64,
    /// The latest time at which a frame has come: where time runs backwards, here it stands still.
    told: Time,
}

impl Departures {
    /// A frame comes; at that time, or at a later one at which another has come.
    #[inline(always)]
    pub(crate) fn tell(&mut self, now: Time) -> Time {
        self.told = self.told.max(now);
        self.told
    }
    /// Lets go of all that have left at `now`.
    pub(crate) fn settle(&mut self, now: Time) {
        let now = now.max(self.told);
        while self.kept != self.made {
            let slot = self.slots[self.place(self.kept)];
            if slot.at > now {
                return;
            }
            self.bytes_kept = slot.bytes_so_far;
            self.kept += 1;
        }
    }
    /// Lets go of all.
    #[inline(always)]
    pub(crate) fn settle_all(&mut self) {
        (self.kept, self.bytes_kept) = (self.made, self.bytes_made);
    }
    /// Makes room for one more; says for how many there is room in all.
    pub(crate) fn make_room(&mut self) -> u64 {
        if self.made - self.kept == self.slots.len() as u64 {
            self.grow();
        }
        self.slots.len() as u64
    }
    /// One more, not before the last one, that there is room for.
    #[inline(always)]
    pub(crate) fn push(&mut self, at: Time, len: u64) {
        let place = self.place(self.made);
        self.made += 1;
        self.bytes_made += len;
        self.slots[place] = Slot { at, bytes_so_far: self.bytes_made };
    }
    /// Frames that have not left, as of the last [`Departures::settle`].
    #[inline]
    pub(crate) fn here(&self) -> Occupancy {
        Occupancy { packets: self.made - self.kept, bytes: self.bytes_made - self.bytes_kept }
    }
    /// Frames that have left.
    pub(crate) fn gone(&self) -> Occupancy {
        Occupancy { packets: self.kept, bytes: self.bytes_kept }
    }
    /// The last departure still to come.
    pub(crate) fn last(&self) -> Option<Time> {
        (self.made != self.kept).then(|| self.slots[self.place(self.made - 1)].at)
    }
    /// Takes back all that are still to come.
    pub(crate) fn revoke(&mut self) -> Occupancy {
        let here = self.here();
        (self.made, self.bytes_made) = (self.kept, self.bytes_kept);
        here
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & self.slots.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(FIRST_SLOTS);
        let mut slots = vec![Slot::default(); size].into_boxed_slice();
        for number in self.kept..self.made {
            slots[number as usize & (size - 1)] = self.slots[self.place(number)];
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ring_holds_what_a_plain_list_would(steps in prop::collection::vec((0u64..20, 0u64..2_000, 0u8..40), 1..400)) {
            let (mut departures, mut list) = (Departures::default(), VecDeque::new());
            let (mut now, mut end) = (0, 0);
            for (gap, len, what) in steps {
                now += gap;
                departures.settle(Time::from_nanos(now));
                list.retain(|&(at, _)| at > now);
                if what == 0 {
                    departures.revoke();
                    list.clear();
                    end = now;
                } else {
                    end = now.max(end) + u64::from(what);
                    departures.make_room();
                    departures.push(Time::from_nanos(end), len);
                    list.push_back((end, len));
                }
                let bytes = list.iter().map(|it| it.1).sum();
                prop_assert_eq!(departures.here(), Occupancy { packets: list.len() as u64, bytes });
                prop_assert_eq!(departures.last(), list.back().map(|it| Time::from_nanos(it.0)));
            }
        }
    }
}
