//! Which packets of a flow have come, and how many are lost: a source numbers its packets without gaps.
//!
//! A number that is missing when `reordering` later ones have been passed is lost; what a probe has passed is lost at
//! once, since nothing may follow it for long. A lost one that comes later is taken, and stays counted.

/// A number that is so far behind was not overtaken: the one before was none of this source's, whatever it said.
pub(super) const RESTART: u32 = 1 << 16;
/// Numbers below the next one of which it is known whether they came.
const MEMORY: u64 = 64;

/// The packets of one flow.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    reordering: u64,
    /// Above the largest that has come; nothing has come before it is known.
    next: Option<u64>,
    /// Bit i: the packet i + 1 below `next` has come.
    came: u64,
    /// Datagrams missing below this count as lost.
    settled: u64,
    lost: u64,
}

impl Arrivals {
    pub(super) fn new(reordering: u8) -> Self {
        let reordering = u64::from(reordering).clamp(1, MEMORY / 2);
        Arrivals { reordering, next: None, came: 0, settled: 0, lost: 0 }
    }

    /// Packets found lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// A packet has come with this lower half of its number, a probe or not. Returns how many are found lost by that; `None`: it
    /// has come before.
    pub(super) fn arrive(&mut self, low: u32, is_probe: bool) -> Option<u64> {
        let next = *self.next.get_or_insert_with(|| {
            self.settled = low.into();
            low.into()
        });
        let ahead = low.wrapping_sub(next as u32) as i32;
        let number = next.saturating_add_signed(ahead.into());
        let before = self.lost;
        if number < next {
            let place = next - 1 - number;
            if place >= u64::from(RESTART) {
                (self.next, self.came, self.settled) = (Some(number + 1), 1, number);
                return Some(0);
            }
            if place >= MEMORY {
                return Some(0);
            }
            let bit = 1 << place;
            if self.came & bit != 0 {
                return None;
            }
            self.came |= bit;
        } else {
            self.advance(next, number);
        }
        let passed = if is_probe { number } else { (number + 1).saturating_sub(self.reordering) };
        self.settle(passed);
        Some(self.lost - before)
    }

    /// The largest number is another one now.
    fn advance(&mut self, next: u64, number: u64) {
        let gap = number - next;
        if gap >= MEMORY / 2 {
            // Too far to wait for any of them.
            self.settle(next);
            self.lost += gap;
            (self.settled, self.came) = (number, 1);
        } else {
            // Numbers forgotten by this were settled long ago: they are further back than packets are reordered.
            self.came = self.came << (gap + 1) | 1;
        }
        self.next = Some(number + 1);
    }

    /// Datagrams missing below this number are lost.
    fn settle(&mut self, below: u64) {
        let next = self.next.unwrap_or_default();
        while self.settled < below {
            let place = next - 1 - self.settled;
            self.lost += u64::from(place < MEMORY && self.came >> place & 1 == 0);
            self.settled += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arrivals(numbers: impl IntoIterator<Item = u32>) -> (Vec<Option<u64>>, u64) {
        let mut arrivals = Arrivals::new(3);
        let said = numbers.into_iter().map(|number| arrivals.arrive(number, false)).collect();
        (said, arrivals.lost())
    }

    #[test]
    fn a_gap_is_a_loss_when_three_later_packets_have_come() {
        assert_eq!(arrivals([7, 9, 10]), (vec![Some(0); 3], 0));
        assert_eq!(arrivals([7, 9, 10, 11]), (vec![Some(0), Some(0), Some(0), Some(1)], 1));
        assert_eq!(arrivals([7, 9, 10, 8, 11, 12]).1, 0, "it was late only");
        assert_eq!(
            arrivals([7, 9, 10, 11, 8, 8]),
            (vec![Some(0), Some(0), Some(0), Some(1), Some(0), None], 1)
        );
    }

    #[test]
    fn a_probe_shows_what_is_missing_at_the_end() {
        let mut arrivals = Arrivals::new(3);
        arrivals.arrive(5, false);
        assert_eq!(arrivals.arrive(9, true), Some(3));
        assert_eq!((arrivals.arrive(10, false), arrivals.lost()), (Some(0), 3));
    }

    #[test]
    fn one_absurd_number_does_not_make_all_others_late() {
        let (said, _) = arrivals([1, 2, 2_000_000_000, 3, 5, 6, 7]);
        assert_eq!(said, [Some(0), Some(0), Some(1_999_999_997), Some(0), Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn a_long_silence_is_one_gap() {
        assert_eq!(
            arrivals([1, 2, 1_000_003, 1_000_004]),
            (vec![Some(0), Some(0), Some(1_000_000), Some(0)], 1_000_000)
        );
        assert_eq!(arrivals([u32::MAX - 1, u32::MAX, 1, 2, 3]).1, 1, "numbers go on above 32 bits");
    }

    proptest! {
        /// Whatever is lost, and however the rest is reordered by less than three: the count is exact once enough has come.
        #[test]
        fn losses_are_counted_exactly(lost in prop::collection::vec(any::<bool>(), 1..300), swaps in any::<u64>()) {
            let mut numbers: Vec<u32> = (0..).zip(&lost).filter(|(_, lost)| !**lost).map(|(number, _)| number).collect();
            for at in (1..numbers.len()).step_by(2).filter(|at| swaps >> (at % 64) & 1 == 1) {
                if numbers[at] - numbers[at - 1] < 3 {
                    numbers.swap(at - 1, at);
                }
            }
            // The first one that comes is where counting begins.
            let Some(&first) = numbers.first() else { return Ok(()) };
            let end = lost.len() as u32;
            let expected = (first..end).filter(|number| !numbers.contains(number)).count() as u64;
            let (_, count) = arrivals(numbers.into_iter().chain(end..end + 3));
            prop_assert_eq!(count, expected);
        }

        #[test]
        fn no_number_is_too_strange(numbers in prop::collection::vec((any::<u32>(), any::<bool>()), 0..200)) {
            let mut arrivals = Arrivals::new(200);
            for (number, is_probe) in numbers {
                arrivals.arrive(number, is_probe);
            }
        }
    }
}
