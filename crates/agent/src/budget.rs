//! The agent's memory for bytes that are on their way to programs: one budget, of which each flow may hold a part of what is free.
//!
//! The bound of a flow falls as memory fills, like the dynamic thresholds of a shared buffer (Choudhury and Hahne, ToN 1998): programs
//! that stop reading hold less and less each, and whoever reads goes on.

use headwater_units::Bytes;

/// A flow holds at most this part of what is free. Of 256 MiB that is 2 MiB for the first, and 571 programs that do not read leave nothing.
const PART: u64 = 128;

/// The memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    total: u64,
    used: u64,
    most: u64,
    block: u64,
}

impl Budget {
    pub(crate) fn new(total: Bytes, block: Bytes) -> Self {
        Budget { total: total.get(), used: 0, most: 0, block: block.get() }
    }

    /// How much of `wanted` a flow may have that holds `held` bytes: whole blocks, or all that it wants.
    pub(crate) fn grant(&mut self, held: u64, wanted: u64) -> u64 {
        let free = self.total - self.used;
        let bound = (free / PART).max(self.block);
        let room = bound.saturating_sub(held).min(free);
        let granted = if wanted <= room { wanted } else { room / self.block * self.block };
        self.used += granted;
        self.most = self.most.max(self.used);
        granted
    }

    /// Releases bytes that have left for a program, or will not come.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.used = self.used.checked_sub(bytes).expect("only what was granted is released");
    }

    /// Bytes that are granted and have not left.
    pub(crate) fn used(&self) -> Bytes {
        Bytes::new(self.used)
    }

    /// The most that ever were.
    pub(crate) fn most(&self) -> Bytes {
        Bytes::new(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 64 << 10;

    #[test]
    fn hundreds_of_programs_that_do_not_read_leave_room_for_one_that_does() {
        let mut budget = Budget::new(Bytes::mib(256), Bytes::new(BLOCK));
        let stuck: Vec<u64> = (0..400).map(|_| budget.grant(0, u64::MAX)).collect();
        assert!(stuck.iter().all(|held| *held >= BLOCK));
        for _ in 0..1_000 {
            let granted = budget.grant(0, 1 << 30);
            assert!(granted >= BLOCK, "{budget:?}");
            budget.release(granted);
        }
        assert!(budget.most() <= Bytes::mib(256));
    }

    #[test]
    fn the_last_bytes_of_a_flow_are_granted_though_they_are_no_block() {
        let mut budget = Budget::new(Bytes::mib(1), Bytes::new(BLOCK));
        assert_eq!(budget.grant(0, 10), 10);
        assert_eq!(budget.grant(BLOCK, 10), 0, "it holds its part");
        budget.release(10);
        assert_eq!(budget.used(), Bytes::ZERO);
    }
}
