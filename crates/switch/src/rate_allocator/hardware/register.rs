//! Register arrays: the memory of a data plane's stages.
//!
//! A stage reads, changes and writes one cell of its array while a packet passes, and a packet passes each stage once. So a program that touches
//! an array twice for one packet does not run on such a switch, and panics here.

use std::ops::IndexMut;

/// One packet on its way through the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass(u64);

impl Pass {
    /// Before the first packet.
    pub(super) const NONE: Pass = Pass(0);

    pub(super) fn next(self) -> Self {
        Pass(self.0 + 1)
    }
}

/// An array of cells: a `Vec` of them, or an array where their number is known.
#[derive(Clone, Debug)]
pub(super) struct Registers<A> {
    cells: A,
    touched: Pass,
}

impl<A: IndexMut<usize>> Registers<A>
where
    A::Output: Sized,
{
    pub(super) fn new(cells: A) -> Self {
        Registers { cells, touched: Pass::NONE }
    }

    /// A packet's one access: reads, changes and writes a cell.
    ///
    /// # Panics
    /// If the packet has touched this array before.
    #[inline]
    pub(super) fn touch<R>(&mut self, pass: Pass, at: usize, action: impl FnOnce(&mut A::Output) -> R) -> R {
        assert!(self.touched != pass, "a packet touches each register array once");
        self.touched = pass;
        action(&mut self.cells[at])
    }

    /// The control program's view, between packets.
    pub(super) fn cells(&self) -> &A {
        &self.cells
    }

    /// The same, to change them.
    pub(super) fn cells_mut(&mut self) -> &mut A {
        &mut self.cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a packet touches each register array once")]
    fn a_second_touch_for_one_packet_panics() {
        let mut registers = Registers::new([0u32; 4]);
        let first = Pass::NONE.next();
        registers.touch(first, 0, |cell| *cell += 1);
        registers.touch(first.next(), 0, |cell| *cell += 1);
        assert_eq!(*registers.cells(), [2, 0, 0, 0]);
        registers.touch(first.next(), 1, |cell| *cell += 1);
    }
}
