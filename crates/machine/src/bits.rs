//! A set of small numbers that knows how many are in it.

/// A fixed set of bits.
#[derive(Clone, Debug)]
pub struct Bits {
    words: Vec<u64>,
    ones: u32,
}

impl Bits {
    /// Room for `len` bits, none of them set.
    pub fn new(len: u32) -> Self {
        Bits { words: vec![0; len.div_ceil(64) as usize], ones: 0 }
    }

    /// How many bits are set.
    #[inline]
    pub fn ones(&self) -> u32 {
        self.ones
    }

    /// Whether a bit is set.
    #[inline]
    pub fn get(&self, at: u32) -> bool {
        self.words[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// Sets a bit; `false` if it was set.
    #[inline]
    pub fn set(&mut self, at: u32) -> bool {
        let (word, bit) = (&mut self.words[at as usize / 64], 1 << (at % 64));
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.ones += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As callers do: `set` inlined, and a branch on what it says. In a release build this is what an optimization of rustc 1.95
    /// (rust-lang/rust#158206) got wrong, when `set` counted with the boolean that it returned.
    #[test]
    fn it_counts_what_is_new_where_callers_branch_on_it() {
        let mut bits = Bits::new(130);
        let mut new = 0;
        for at in (0..130).chain(0..130) {
            if !bits.set(at) {
                continue;
            }
            new += 1;
            assert_eq!(bits.ones(), new);
        }
        assert_eq!(new, 130);
    }
}
