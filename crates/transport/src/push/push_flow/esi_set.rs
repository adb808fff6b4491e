//! A set of symbols of one block as disjoint intervals: sources send runs, so a handful covers a block.

use std::ops::Range;

/// ESIs as sorted, disjoint, non-touching half-open intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EsiSet {
    intervals: Vec<Range<u32>>,
}

impl EsiSet {
    /// Adds one. False if it was there.
    pub(super) fn insert(&mut self, esi: u32) -> bool {
        // Index of the first interval that ends at or after `esi`: the one that it may join or belong to.
        let i = self.intervals.partition_point(|r| r.end < esi);
        match self.intervals.get_mut(i) {
            Some(r) if r.contains(&esi) => return false,
            Some(r) if r.end == esi => {
                r.end += 1;
                if self.intervals.get(i + 1).is_some_and(|next| next.start == esi + 1) {
                    self.intervals[i].end = self.intervals.remove(i + 1).end;
                }
            }
            Some(r) if r.start == esi + 1 => r.start = esi,
            _ => self.intervals.insert(i, esi..esi + 1),
        }
        true
    }

    /// The first of `range` that is not in the set.
    pub(super) fn first_missing(&self, range: Range<u32>) -> Option<u32> {
        let i = self.intervals.partition_point(|r| r.end <= range.start);
        let first = match self.intervals.get(i) {
            Some(r) if r.start <= range.start => r.end,
            _ => range.start,
        };
        (first < range.end).then_some(first)
    }

    /// How many of `range` are not in the set.
    pub(super) fn missing(&self, range: Range<u32>) -> u32 {
        let from = self.intervals.partition_point(|r| r.end <= range.start);
        let there: u32 = self.intervals[from..]
            .iter()
            .take_while(|r| r.start < range.end)
            .map(|r| r.end.min(range.end) - r.start.max(range.start))
            .sum();
        (range.end - range.start) - there
    }

    /// How many intervals it takes.
    pub(super) fn fragments(&self) -> usize {
        self.intervals.len()
    }

    /// Keeps only what lies in one of `ranges`, in any order.
    pub(super) fn intersect(&mut self, ranges: impl Iterator<Item = Range<u32>>) {
        let mut kept = Vec::new();
        for range in ranges {
            let from = self.intervals.partition_point(|r| r.end <= range.start);
            kept.extend(
                self.intervals[from..]
                    .iter()
                    .take_while(|r| r.start < range.end)
                    .map(|r| r.start.max(range.start)..r.end.min(range.end)),
            );
        }
        kept.sort_unstable_by_key(|r| r.start);
        self.intervals.clear();
        for r in kept {
            match self.intervals.last_mut() {
                Some(last) if last.end >= r.start => last.end = last.end.max(r.end),
                _ => self.intervals.push(r),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_agree_with_a_plain_set(
            esis in proptest::collection::vec(0u32..40, 0..60), start in 0u32..40, length in 0u32..20,
            cuts in proptest::collection::vec((0u32..40, 1u32..10), 0..4)
        ) {
            let (mut set, mut model) = (EsiSet::default(), BTreeSet::new());
            for esi in esis {
                prop_assert_eq!(set.insert(esi), model.insert(esi));
            }
            let range = start..start + length;
            prop_assert_eq!(set.first_missing(range.clone()), range.clone().find(|e| !model.contains(e)));
            prop_assert_eq!(set.missing(range.clone()) as usize, range.filter(|e| !model.contains(e)).count());
            prop_assert!(set.intervals.windows(2).all(|w| w[0].end < w[1].start));
            let cuts: Vec<Range<u32>> = cuts.into_iter().map(|(s, n)| s..s + n).collect();
            set.intersect(cuts.iter().cloned());
            model.retain(|e| cuts.iter().any(|c| c.contains(e)));
            let left: Vec<u32> = set.intervals.iter().flat_map(Clone::clone).collect();
            prop_assert_eq!(left, model.into_iter().collect::<Vec<_>>());
            prop_assert!(set.intervals.windows(2).all(|w| w[0].end < w[1].start));
        }
    }
}
