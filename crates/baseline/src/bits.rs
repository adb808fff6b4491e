//! A bit for each of the newest packets of a flow, in a ring that never grows.
//!
//! A packet's number names its bit modulo the size of the ring; who uses it sees to it that no two packets in use share one.

/// Bits of a range of packet numbers that slides upwards.
#[derive(Clone, Debug)]
pub(super) struct BitRing {
    /// A power of two of them.
    words: Box<[u64]>,
}

impl BitRing {
    /// For at least `packets` neighbours; all bits are clear.
    pub(super) fn new(packets: u64) -> Self {
        let words = packets.div_ceil(64).next_power_of_two().max(2);
        BitRing { words: vec![0; words as usize].into_boxed_slice() }
    }

    /// How many neighbouring packets have a bit each.
    pub(super) fn span(&self) -> u64 {
        64 * self.words.len() as u64
    }

    fn at(&self, number: u64) -> usize {
        (number >> 6) as usize & (self.words.len() - 1)
    }

    /// Whether a bit is set.
    pub(super) fn get(&self, number: u64) -> bool {
        self.words[self.at(number)] >> (number & 63) & 1 == 1
    }

    /// Sets a bit; true if it was clear.
    pub(super) fn set(&mut self, number: u64) -> bool {
        let (word, bit) = (self.at(number), 1 << (number & 63));
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Clears a bit; true if it was set.
    pub(super) fn take(&mut self, number: u64) -> bool {
        let (word, bit) = (self.at(number), 1 << (number & 63));
        let held = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        held
    }

    /// Clears the bits of `from..to`; all of them if that is more than there are.
    pub(super) fn clear(&mut self, from: u64, to: u64) {
        if to.saturating_sub(from) >= self.span() {
            self.words.fill(0);
            return;
        }
        for_each_word(from, to, |number, mask| {
            let at = self.at(number);
            self.words[at] &= !mask;
        });
    }

    /// How many bits of `from..to` are clear.
    pub(super) fn clear_bits(&self, from: u64, to: u64) -> u64 {
        let mut clear = 0;
        for_each_word(from, to, |number, mask| {
            clear += u64::from((!self.words[self.at(number)] & mask).count_ones());
        });
        clear
    }

    /// The bits of the 32 packets that end with `last`, which is bit 31.
    pub(super) fn last_32(&self, last: u64) -> u32 {
        // Before packet 31 this wraps to numbers that no flow reaches, whose bits are clear.
        let first = last.wrapping_sub(31);
        let shift = first & 63;
        let low = self.words[self.at(first)] >> shift;
        let high = if shift > 32 { self.words[self.at(last)] << (64 - shift) } else { 0 };
        (low | high) as u32
    }
}

/// Splits `from..to` where words end: a number inside each word, and the mask of the bits meant.
fn for_each_word(from: u64, to: u64, mut each: impl FnMut(u64, u64)) {
    let mut number = from;
    while number < to {
        let start = number & 63;
        let count = (64 - start).min(to - number);
        each(number, (u64::MAX >> (64 - count)) << start);
        number += count;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The ring says what a plain set says, about any range that it has room for.
        #[test]
        fn the_ring_is_a_set_of_the_newest_numbers(
            start in 0u64..1000,
            steps in proptest::collection::vec((0u64..128, 0u8..4, 0u64..128), 1..200),
        ) {
            let mut ring = BitRing::new(100);
            let span = ring.span();
            prop_assert_eq!(span, 128);
            let mut set = BTreeSet::new();
            for (offset, action, length) in steps {
                let number = start + offset % span;
                let to = (number + length).min(start + span);
                match action {
                    0 | 1 => prop_assert_eq!(ring.set(number), set.insert(number)),
                    2 => prop_assert_eq!(ring.take(number), set.remove(&number)),
                    _ => {
                        ring.clear(number, to);
                        set.retain(|n| !(number..to).contains(n));
                    }
                }
                prop_assert_eq!(ring.get(number), set.contains(&number));
                let clear = (number..to).filter(|n| !set.contains(n)).count() as u64;
                prop_assert_eq!(ring.clear_bits(number, to), clear);
                if number >= start + 31 {
                    let expected = (0..32).fold(0u32, |bits, back| {
                        bits | u32::from(set.contains(&(number - back))) << (31 - back)
                    });
                    prop_assert_eq!(ring.last_32(number), expected);
                }
            }
        }
    }

    #[test]
    fn before_the_first_packets_there_is_nothing() {
        let mut ring = BitRing::new(64);
        for number in 0..5 {
            ring.set(number);
        }
        assert_eq!(ring.last_32(4), 0b11111 << 27);
        ring.clear(3, 3 + 1_000_000);
        assert_eq!(ring.last_32(4), 0);
    }
}
