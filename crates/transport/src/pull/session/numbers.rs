//! Which packets of a flow have arrived and which are lost: a source numbers its packets without gaps.
//!
//! ```text
//!            given up                 waited for                   not seen yet
//!   ... 12 13 -- 15 16  |  17 -- 19 20 -- 22 23 24   |   25 26 ...
//!                       `-- reordering ------------'  `- next
//! ```
//! A number that is missing when `reordering` later ones have been passed is lost. One that comes later is a surprise,
//! and counts for nothing. The header of a trimmed packet passes nothing: it goes before all that waits where it was
//! trimmed.

/// Nothing has come of it, and something may.
const AWAITED: u32 = u32::MAX;
/// Nothing has come of it, and nothing is waited for any more.
const GIVEN_UP: u32 = u32::MAX - 1;
/// No honest source leaves such a gap: what may be in flight is a few windows.
const ABSURD_GAP: u64 = 1 << 16;
/// Least packets back for which copies are recognised; and headers may be as far ahead.
const LEAST_MEMORY: u64 = 256;

/// The numbers of one flow, each with the block that its packet was of.
#[derive(Debug)]
pub(super) struct Numbers {
    slots: Box<[u32]>,
    reordering: u64,
    /// Above the largest that came.
    next: u64,
    /// Missing packets below this are given up.
    settled: u64,
    /// The block of the last packet that came before those waited for.
    before: u32,
}

/// The meaning of an arriving packet number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Expected.
    Awaited,
    /// Given up before.
    Late,
    /// A duplicate.
    Again,
    /// No such packet can have been sent.
    Absurd,
}

/// Packets that are lost, as the arrival of a later one shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) packets: u32,
    /// The block of the one before the first of them.
    pub(super) near: u32,
}

impl Numbers {
    pub(super) fn new(reordering: u16) -> Self {
        let reordering = u64::from(reordering.max(1));
        let slots = (reordering + 1).max(LEAST_MEMORY).next_power_of_two();
        let slots = vec![GIVEN_UP; slots as usize].into_boxed_slice();
        Numbers { slots, reordering, next: 0, settled: 0, before: 0 }
    }

    /// Above the largest number that came.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn slot(&mut self, number: u64) -> &mut u32 {
        let at = number as usize & (self.slots.len() - 1);
        &mut self.slots[at]
    }

    /// A packet has come, of this block, or its header (`trimmed`).
    #[inline]
    pub(super) fn arrive(&mut self, number: u64, block: u32, trimmed: bool) -> (Seen, Lost) {
        let block = block.min(GIVEN_UP - 1);
        let mut lost = Lost::default();
        let seen = if number >= self.next {
            if number - self.next >= ABSURD_GAP {
                return (Seen::Absurd, lost);
            }
            for passed in self.next..=number {
                // Packets that are forgotten are not waited for either.
                self.settle((passed + 1).saturating_sub(self.slots.len() as u64), &mut lost);
                *self.slot(passed) = AWAITED;
            }
            *self.slot(number) = block;
            self.next = number + 1;
            Seen::Awaited
        } else if self.next - number > self.slots.len() as u64 {
            return (Seen::Late, lost);
        } else {
            match std::mem::replace(self.slot(number), block) {
                AWAITED => Seen::Awaited,
                GIVEN_UP => Seen::Late,
                _ => Seen::Again,
            }
        };
        if !trimmed {
            self.settle((number + 1).saturating_sub(self.reordering), &mut lost);
        }
        (seen, lost)
    }

    /// Packets still missing below this are lost.
    #[inline]
    fn settle(&mut self, below: u64, lost: &mut Lost) {
        while self.settled < below {
            self.give_up(self.settled, lost);
            self.settled += 1;
        }
    }

    #[inline]
    fn give_up(&mut self, old: u64, lost: &mut Lost) {
        let slot = self.slot(old);
        match *slot {
            AWAITED => {
                *slot = GIVEN_UP;
                if lost.packets == 0 {
                    lost.near = self.before;
                }
                lost.packets += 1;
            }
            GIVEN_UP => {}
            block => self.before = block,
        }
    }

    /// Nothing of what is missing is waited for any more.
    pub(super) fn give_up_all(&mut self) {
        self.slots.iter_mut().filter(|slot| **slot == AWAITED).for_each(|slot| *slot = GIVEN_UP);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lost(packets: u32, near: u32) -> Lost {
        Lost { packets, near }
    }

    #[test]
    fn a_gap_is_a_loss_when_three_later_packets_have_come() {
        let mut numbers = Numbers::new(3);
        assert_eq!(numbers.arrive(0, 7, false), (Seen::Awaited, lost(0, 0)));
        assert_eq!(numbers.arrive(2, 7, false), (Seen::Awaited, lost(0, 0)));
        assert_eq!(numbers.arrive(3, 8, false), (Seen::Awaited, lost(0, 0)));
        assert_eq!(numbers.arrive(4, 8, false), (Seen::Awaited, lost(1, 7)));
        assert_eq!(numbers.arrive(1, 7, false), (Seen::Late, lost(0, 0)), "it was only late");
        assert_eq!(numbers.arrive(1, 7, false), (Seen::Again, lost(0, 0)));
        assert_eq!(numbers.arrive(4, 8, false), (Seen::Again, lost(0, 0)));
    }

    #[test]
    fn headers_overtake_and_what_they_overtake_is_not_lost() {
        let mut numbers = Numbers::new(3);
        for header in [10, 12, 20] {
            assert_eq!(numbers.arrive(header, 1, true), (Seen::Awaited, lost(0, 0)));
        }
        assert_eq!(numbers.arrive(0, 1, false), (Seen::Awaited, lost(0, 0)));
        assert_eq!(numbers.arrive(5, 1, false), (Seen::Awaited, lost(2, 1)), "1 and 2 were before it");
        assert_eq!(numbers.arrive(3, 1, false), (Seen::Awaited, lost(0, 0)));
        assert_eq!(numbers.arrive(21, 1, false), (Seen::Awaited, lost(12, 1)), "4, 6 to 9, 11, and 13 to 18");
    }

    #[test]
    fn what_a_header_is_too_far_ahead_of_is_forgotten() {
        let mut numbers = Numbers::new(3);
        let far = LEAST_MEMORY + 9;
        assert_eq!(numbers.arrive(far, 1, true), (Seen::Awaited, lost(10, 0)), "0 to 9");
        assert_eq!(numbers.arrive(9, 1, false).0, Seen::Late);
        assert_eq!(numbers.arrive(10, 1, false), (Seen::Awaited, lost(0, 0)));
    }

    #[test]
    fn what_is_given_up_at_once_is_not_lost_a_second_time() {
        let mut numbers = Numbers::new(3);
        numbers.arrive(0, 0, false);
        numbers.arrive(3, 0, false);
        numbers.give_up_all();
        assert_eq!(numbers.arrive(40, 0, false), (Seen::Awaited, lost(36 - 2, 0)), "4 to 37");
        assert_eq!(numbers.arrive(2, 0, false).0, Seen::Late);
        assert_eq!(numbers.next(), 41);
    }

    #[test]
    fn absurd_numbers_and_blocks_change_nothing() {
        let mut numbers = Numbers::new(250);
        assert_eq!(numbers.arrive(1 << 40, 0, false).0, Seen::Absurd);
        assert_eq!(numbers.arrive(0, u32::MAX, false).0, Seen::Awaited);
        assert_eq!(numbers.arrive(0, u32::MAX, false).0, Seen::Again);
    }

    proptest! {
        /// Whatever comes in which order: each number is counted once, as come, lost or given up, once it has been passed.
        #[test]
        fn every_number_has_one_fate(
            reordering in 1u16..300, steps in prop::collection::vec((0u64..9, any::<bool>()), 1..600),
        ) {
            let mut numbers = Numbers::new(reordering);
            let (mut highest, mut come, mut lost) = (0u64, 0u64, 0u64);
            let mut seen = std::collections::BTreeSet::new();
            for (step, back) in steps {
                let number = if back { highest.saturating_sub(step) } else { highest + step };
                highest = highest.max(number);
                let (fate, gone) = numbers.arrive(number, 3, false);
                lost += u64::from(gone.packets);
                let fresh = seen.insert(number);
                prop_assert!(fresh || fate != Seen::Awaited, "counted twice");
                come += u64::from(fate == Seen::Awaited);
                let next = numbers.next();
                prop_assert!(come + lost <= next);
                prop_assert!(next - come - lost <= u64::from(reordering), "all but the newest are settled");
            }
        }
    }
}
