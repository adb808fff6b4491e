//! Which sum of the symbols at hand each missing source symbol is.

use crate::gf256::{Kernel, inverse};

/// Gauss-Jordan elimination of the equations that repair symbols give, one after the other.
///
/// Each equation says that the repair symbol is the sum of the known and of the missing source symbols, times the
/// coefficients of its row. Only the missing ones' columns take part, beside an identity that becomes the inverse:
///
/// ```text
///   missing source symbols    repair symbols
/// | m                       | m              |
/// ```
/// After m independent equations the left part is a permutation, so each row says what one missing symbol is, and the
/// inverse times the coefficients of the known symbols says what those add to it.
pub(super) struct Elimination {
    kernel: Kernel,
    /// Which of the K source symbols are at hand.
    known: Vec<usize>,
    /// Which are not.
    missing: Vec<usize>,
    /// One row of 2 m bytes after the other.
    rows: Vec<u8>,
    /// For each row the missing symbol (counted among them) that it, and no other row, has: with coefficient 1.
    pivots: Vec<usize>,
    /// The coefficients of the known source symbols, for each equation that was of use.
    of_known: Vec<u8>,
    row: Vec<u8>,
    scratch: Vec<u8>,
}

impl Elimination {
    /// No equation yet. `known` and `missing` are K indices together; something is missing.
    pub(super) fn new(kernel: Kernel, known: Vec<usize>, missing: Vec<usize>) -> Self {
        assert!(!missing.is_empty(), "nothing to solve for");
        let (count, width) = (missing.len(), 2 * missing.len());
        Elimination {
            kernel,
            rows: Vec::with_capacity(count * width),
            pivots: Vec::with_capacity(count),
            of_known: Vec::with_capacity(count * known.len()),
            row: vec![0; width],
            scratch: Vec::with_capacity(width),
            known,
            missing,
        }
    }

    pub(super) fn is_solved(&self) -> bool {
        self.pivots.len() == self.missing.len()
    }

    /// Takes the equation of one more repair symbol in, whose K coefficients are `coefficients`; false if it says
    /// nothing that the others do not say.
    pub(super) fn add(&mut self, coefficients: &[u8]) -> bool {
        assert!(!self.is_solved(), "an equation too many");
        let width = self.row.len();
        let (missing, repair) = self.row.split_at_mut(self.missing.len());
        for (place, &index) in missing.iter_mut().zip(&self.missing) {
            *place = coefficients[index];
        }
        repair.fill(0);
        repair[self.pivots.len()] = 1;

        // The part that earlier rows know is taken out.
        let factors: Vec<u8> = self.pivots.iter().map(|&pivot| self.row[pivot]).collect();
        let earlier: Vec<&[u8]> = self.rows.chunks_exact(width).collect();
        self.kernel.combine(&mut [&mut self.row], &earlier, &[&factors]);
        let Some(pivot) = self.row[..self.missing.len()].iter().position(|&coefficient| coefficient != 0)
        else {
            return false;
        };
        let factor = inverse(self.row[pivot]);
        self.kernel.scale(&mut self.row, factor, &mut self.scratch);

        // The part that this row knows is taken out of the earlier ones, too.
        let mut earlier: Vec<&mut [u8]> = self.rows.chunks_exact_mut(width).collect();
        let factors: Vec<u8> = earlier.iter().map(|row| row[pivot]).collect();
        self.kernel.combine(&mut earlier, &[&self.row], &factors.chunks(1).collect::<Vec<_>>());
        self.rows.extend_from_slice(&self.row);
        self.pivots.push(pivot);
        self.of_known.extend(self.known.iter().map(|&index| coefficients[index]));
        true
    }

    /// For each missing symbol, one after the other, the coefficients of the known source symbols and of the repair
    /// symbols that were of use: K in all.
    pub(super) fn solution(self) -> Vec<u8> {
        assert!(self.is_solved(), "a solution has as many equations as unknowns");
        let (known, missing) = (self.known.len(), self.missing.len());
        let mut solution = vec![0; missing * (known + missing)];
        let mut inverse: Vec<&[u8]> = vec![&[]; missing];
        for (row, &pivot) in self.rows.chunks_exact(2 * missing).zip(&self.pivots) {
            inverse[pivot] = &row[missing..];
        }
        let mut sums: Vec<&mut [u8]> = Vec::with_capacity(missing);
        for (row, inverse) in solution.chunks_exact_mut(known + missing).zip(&inverse) {
            let (of_known, of_repair) = row.split_at_mut(known);
            of_repair.copy_from_slice(inverse);
            sums.push(of_known);
        }
        if known > 0 {
            self.kernel.combine(&mut sums, &self.of_known.chunks_exact(known).collect::<Vec<_>>(), &inverse);
        }
        solution
    }
}
