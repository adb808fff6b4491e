//! A set of small numbers that knows how many are in it.

/// A fixed set of bits.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
    ones: u32,
}

impl Bits {
    /// Room for so many bits, none of them set.
    pub(crate) fn new(len: u32) -> Self {
        Bits { words: vec![0; len.div_ceil(64) as usize], ones: 0 }
    }

    /// How many bits are set.
    #[inline]
    pub(crate) fn ones(&self) -> u32 {
        self.ones
    }

    /// Whether a bit is set.
    pub(crate) fn get(&self, at: u32) -> bool {
        self.words[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// Sets a bit; `false` if it was set.
    #[inline]
    pub(crate) fn set(&mut self, at: u32) -> bool {
        let (word, bit) = (&mut self.words[at as usize / 64], 1 << (at % 64));
        let new = *word & bit == 0;
        *word |= bit;
        self.ones += u32::from(new);
        new
    }
}
