//! Arithmetic of a data plane.

use std::ops::{Add, Sub};

/// A word of 32 bits that can be added, subtracted, shifted and compared. It has no multiplication and no division, since data planes have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Word(u32);

impl Word {
    pub(super) const ZERO: Word = Word(0);
    pub(super) const ONE: Word = Word(1);

    /// Numbers of more than 32 bits become the largest word.
    pub(super) fn saturating(number: u64) -> Self {
        Word(number.try_into().unwrap_or(u32::MAX))
    }

    pub(super) const fn get(self) -> u32 {
        self.0
    }

    /// Shifted to the right by `by` bits; by 32 or more, nothing is left.
    pub(super) fn right(self, by: u8) -> Self {
        Word(self.0.checked_shr(by.into()).unwrap_or(0))
    }

    /// Shifted to the left by `by` bits; the largest word where bits would be lost.
    pub(super) fn left(self, by: u8) -> Self {
        if self.0.leading_zeros() >= u32::from(by) { Word(self.0 << by) } else { Word(u32::MAX) }
    }
}

impl Add for Word {
    type Output = Word;
    /// The largest word at most.
    fn add(self, other: Word) -> Word {
        Word(self.0.saturating_add(other.0))
    }
}

impl Sub for Word {
    type Output = Word;
    /// Zero at least.
    fn sub(self, other: Word) -> Word {
        Word(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_saturate_at_both_ends() {
        let most = Word::saturating(u64::MAX);
        assert_eq!(most.get(), u32::MAX);
        assert_eq!((most + Word::ONE, Word::ZERO - Word::ONE), (most, Word::ZERO));
        assert_eq!(
            (Word::ONE.left(31).get(), Word::ONE.left(32), Word::saturating(3).left(31)),
            (1 << 31, most, most)
        );
        assert_eq!((most.right(31), most.right(32), most.right(255)), (Word::ONE, Word::ZERO, Word::ZERO));
    }
}
