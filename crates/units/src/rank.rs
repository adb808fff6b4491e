//! A position in line, as it travels: 24 bits, smaller first.

use serde::{Deserialize, Serialize};

/// Position of a transfer in line (PAM's desired priority p, §III-A): the smaller one goes first. 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank(u32);

/// Bits of a compressed number's mantissa behind the leading one.
const MANTISSA: u32 = 18;

impl Rank {
    /// Goes before all others.
    pub const FIRST: Rank = Rank(0);
    /// Goes after all others: transfers of this rank share what the others leave, and none of them is favoured (PAM Table I, row 4).
    pub const LAST: Rank = Rank((1 << 24) - 1);

    /// This rank; numbers above [`Rank::LAST`] become that.
    pub const fn new(rank: u32) -> Self {
        if rank < Rank::LAST.0 { Rank(rank) } else { Rank::LAST }
    }

    /// The rank of a number of any size, before [`Rank::LAST`]. The order is kept, but numbers that differ by less than one part in
    /// 2^18 can share a rank. Numbers below 2^19 have ranks of their own.
    pub const fn of(number: u64) -> Self {
        let shift = (u64::BITS - number.leading_zeros()).saturating_sub(MANTISSA + 1);
        // The leading one of the mantissa adds one to the exponent, so codes have no gaps.
        Rank((shift << MANTISSA) + (number >> shift) as u32)
    }

    /// The plain number, below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_numbers_never_rank_before_smaller_ones() {
        let mut last = Rank::FIRST;
        let numbers =
            (0..64).flat_map(|bit| [0, 1, 2, 3].map(|low| (1u64 << bit) + ((1u64 << bit) / 4 * low)));
        for number in numbers.chain([u64::MAX]) {
            assert!(Rank::of(number) >= last && Rank::of(number) < Rank::LAST, "{number}");
            assert!(Rank::of(number - 1) <= Rank::of(number));
            last = Rank::of(number);
        }
    }

    #[test]
    fn one_part_in_a_quarter_million_is_told_apart() {
        for number in [1 << 19, 1 << 30, (1 << 40) + 12_345, u64::MAX / 3] {
            assert!(Rank::of(number + (number >> 18) + 1) > Rank::of(number), "{number}");
        }
        assert_eq!(Rank::of((1 << 19) - 1).get(), (1 << 19) - 1);
    }

    #[test]
    fn a_rank_has_24_bits() {
        assert_eq!(Rank::new(u32::MAX), Rank::LAST);
        assert_eq!(Rank::new(7).get(), 7);
        assert_eq!(Rank::LAST.get(), 0xff_ffff);
    }
}
