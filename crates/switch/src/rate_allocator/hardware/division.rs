//! Division by table lookups: the divisor is the key, and the entry a few right shifts of the dividend to add up (PAM §IV-A, Fig. 7).
//!
//! The shifts are the leading ones of the binary expansion of 1 / divisor, so a quotient is never too large. With 3, 4 and 5 shifts a
//! coefficient is too small by less than 12.4 %, 6.1 % and 3 %. Up to [`EXACT`] each divisor has an entry of its own. Beyond, a *log
//! table* matches the leading seven bits of the divisor (footnote 6), which makes quotients too small by another 1.6 % at most. A divisor
//! of [`LIMIT`] or more matches nothing, and the quotient is zero.
//!
//! Dividends have [`GUARD`] bits below the unit while their shifts are added. Without them each shift loses up to a unit: of a dividend of
//! 500, four shifts can lose more than a quarter.

use super::word::Word;

/// Divisors up to here have exact entries.
pub(super) const EXACT: u32 = 1024;
/// Divisors from here on match nothing.
pub(super) const LIMIT: u32 = 1 << 20;
/// Bits below the unit of rates.
pub(super) const GUARD: u8 = 8;

/// Most shifts of an entry.
const MOST_SHIFTS: usize = 8;
/// Leading bits that the log table matches.
const MATCHED: u32 = 7;
/// Entries of the log table for each power of two.
const PER_OCTAVE: u32 = 1 << (MATCHED - 1);

/// Stands behind the shifts of an entry that has fewer.
const NONE: u8 = 32;

/// By how much to shift, ascending.
#[derive(Clone, Copy, Debug)]
struct Shifts([u8; MOST_SHIFTS]);

/// Both tables.
#[derive(Clone, Debug)]
pub(super) struct Division {
    /// Of divisors from 0 on; 0 counts as 1.
    exact: Box<[Shifts]>,
    /// By power of two, and within each by the bits behind the leading one.
    log: Box<[Shifts]>,
}

impl Division {
    /// Tables whose entries have this many shifts, at most eight. The control program writes them, so it may divide.
    pub(super) fn new(shifts: u8) -> Self {
        let count = usize::from(shifts).min(MOST_SHIFTS);
        let of = |divisor| Shifts::of(u64::from(divisor), count);
        let octaves = EXACT.ilog2()..LIMIT.ilog2();
        let log = octaves.flat_map(|octave| {
            // The upper end of what the entry matches: rounded down, offers would exceed what there is.
            (1..=PER_OCTAVE).map(move |next| (PER_OCTAVE + next) << (octave + 1 - MATCHED))
        });
        Division { exact: (0..=EXACT).map(|it| of(it.max(1))).collect(), log: log.map(of).collect() }
    }

    /// At most `dividend / divisor`.
    pub(super) fn divide(&self, dividend: Word, divisor: Word) -> Word {
        let Some(shifts) = self.lookup(divisor.get()) else { return Word::ZERO };
        let dividend = dividend.left(GUARD);
        let terms = shifts.0.iter().take_while(|shift| **shift < NONE);
        let sum = terms.fold(Word::ZERO, |sum, shift| sum + dividend.right(*shift));
        sum.right(GUARD)
    }

    fn lookup(&self, divisor: u32) -> Option<&Shifts> {
        if let Some(entry) = self.exact.get(divisor as usize) {
            return Some(entry);
        }
        let octave = divisor.ilog2();
        let leading = divisor >> (octave + 1 - MATCHED);
        let row = (octave - EXACT.ilog2()) << (MATCHED - 1);
        self.log.get((row + (leading - PER_OCTAVE)) as usize)
    }

    /// The entries of both tables.
    pub(super) fn entries(&self) -> (Vec<[u8; 8]>, Vec<[u8; 8]>) {
        let of = |table: &[Shifts]| table.iter().map(|shifts| shifts.0).collect();
        (of(&self.exact), of(&self.log))
    }

    /// Factor that replaces a division by this divisor.
    pub(super) fn coefficient(&self, divisor: u32) -> f64 {
        let terms = self.lookup(divisor).into_iter().flat_map(|shifts| shifts.0);
        terms.filter(|shift| *shift < NONE).map(|shift| 0.5f64.powi(shift.into())).sum()
    }
}

impl Shifts {
    /// The first `count` ones of the binary expansion of `1 / divisor`, by long division.
    fn of(divisor: u64, count: usize) -> Self {
        let (mut shifts, mut found, mut rest) = ([NONE; MOST_SHIFTS], 0, 1);
        for shift in 0..NONE {
            if rest >= divisor && found < count {
                shifts[found] = shift;
                found += 1;
                rest -= divisor;
            }
            rest <<= 1;
        }
        Shifts(shifts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(shifts: u8, divisors: impl Iterator<Item = u32>) -> f64 {
        let table = Division::new(shifts);
        divisors.map(|it| 1.0 - table.coefficient(it) * f64::from(it)).fold(0.0, f64::max)
    }

    /// A-7, PAM Fig. 7: the errors of the coefficients over divisors 1 to 1024.
    #[test]
    fn coefficients_are_as_exact_as_the_paper_says() {
        let errors = [3, 4, 5].map(super::super::accuracy::division_error);
        for (error, (published, exact)) in
            errors.iter().zip([(0.124, 0.1233), (0.061, 0.0607), (0.03, 0.0294)])
        {
            assert!(*error < published && (error - exact).abs() < 5e-5, "{errors:?}");
        }
    }

    #[test]
    fn the_log_table_is_hardly_worse() {
        let beyond = || (EXACT + 1..10_000).chain([1 << 14, (1 << 14) + 1, 99_999, LIMIT - 1]);
        let error = worst(4, beyond());
        assert!((0.06..0.08).contains(&error), "{error}");
        // Never too much, and no divisor is left out.
        let table = Division::new(4);
        for divisor in beyond() {
            let product = table.coefficient(divisor) * f64::from(divisor);
            assert!((0.9..=1.0).contains(&product), "{divisor}: {product}");
        }
    }

    #[test]
    fn quotients_are_never_too_large_and_no_divisor_panics() {
        let table = Division::new(4);
        let word = |it| Word::saturating(it);
        assert_eq!(
            table.divide(word(500), word(0)),
            table.divide(word(500), word(1)),
            "nobody counts as one"
        );
        assert_eq!(table.divide(word(500), word(1)), word(500));
        for divisor in [LIMIT, LIMIT + 1, u32::MAX] {
            assert_eq!(table.divide(word(1 << 24), word(divisor.into())), Word::ZERO);
        }
        for dividend in [0u64, 1, 499, 500, 8_388_608, (1 << 24) - 1] {
            for divisor in (1..3000).chain([65_535, LIMIT - 1]) {
                let quotient = f64::from(table.divide(word(dividend), word(divisor.into())).get());
                let exact = dividend as f64 / f64::from(divisor);
                assert!(quotient <= exact, "{dividend} / {divisor}");
                assert!(quotient + 1.0 >= exact * 0.92 - 4.0 / 256.0, "{dividend} / {divisor}: {quotient}");
            }
        }
    }

    /// The dividend of 500 with four shifts: without guard bits 27 % are lost.
    #[test]
    fn guard_bits_keep_floors_out_of_small_quotients() {
        let table = Division::new(4);
        let worst_of = |dividend: u32, quotient: &dyn Fn(u32) -> u32| {
            let error = |divisor: u32| {
                1.0 - f64::from(quotient(divisor)) / (f64::from(dividend) / f64::from(divisor)).floor()
            };
            (1..=100).map(error).fold(0.0, f64::max)
        };
        let plain = |divisor: u32| {
            let shifts = table.lookup(divisor).unwrap();
            shifts.0.iter().map(|shift| 500u32.checked_shr((*shift).into()).unwrap_or(0)).sum()
        };
        let guarded =
            |divisor: u32| table.divide(Word::saturating(500), Word::saturating(divisor.into())).get();
        let (without, with) = (worst_of(500, &plain), worst_of(500, &guarded));
        assert!(without > 0.27 && with < without, "{without} without, {with} with");
    }
}
