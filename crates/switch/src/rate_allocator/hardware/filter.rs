//! Which transfers are active, in two Bloom filters with a counter each (PAM §IV-A, Fig. 6).
//!
//! A filter has three arrays of bits, one for each hash, in stages behind one another. A transfer is in it if its bit is set in all
//! three. Every claim goes to both filters; the active one's counter counts. At each swap the other one becomes active, and the one that was is cleared.
//! So a transfer that went without a FIN counts for one to two idle timeouts.
//!
//! ```text
//!  insert:  array 0: set, was it?  ->  array 1: set, was it?  ->  array 2: set, was it?           ->  counter: +1 unless all were
//!  remove:  array 0: is it set?    ->  array 1: is it set?    ->  array 2: clear if both; was it?  ->  counter: -1 if all were
//! ```
//! A removal clears one bit of three. A stage knows only what earlier ones found, so it would clear the others without knowing whether the
//! transfer is in the filter at all; and paused transfers are removed again with every probe.
//!
//! *Errors.* The count differs from the number of active transfers in two ways. It is too low by a transfer whose three bits others have set
//! when it comes (by the paper's formula, (1 - e^(-kn/m))^k with k hashes, n entries and m cells in all; bits of removed transfers
//! stay in two of the arrays and count among the entries there). And a removal clears a bit that another transfer may share: that one counts
//! once more with its next packet. With a cells an array and n active transfers, n / a of those that pause or end leave the count too
//! high by one. Probes that follow add nothing to it: one that finds the bit set again takes one off, and the other transfer puts
//! it back. Both errors end when the filter is cleared.

use headwater_units::FlowId;
use siphasher::sip128::SipHasher13;

use super::register::{Pass, Registers};
use super::word::Word;

/// Hash functions, and arrays of each filter.
pub(super) const HASHES: usize = 3;

/// Places of a filter that are listed when bits are set there. Where there are more, all words are cleared.
const LISTED: usize = 128;

/// Where a transfer's bits are, the same in both filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place([At; HASHES]);

/// Place of a bit in one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    word: usize,
    bit: u64,
}

/// The hash unit of one port. Ports of one device hash differently, since each takes its number in (§IV-A).
#[derive(Clone, Copy, Debug)]
pub(super) struct HashUnit {
    hasher: SipHasher13,
    key: [u64; 2],
    mask: u32,
}

impl HashUnit {
    /// `cells` is a power of two.
    pub(super) fn new(port: u32, cells: u32) -> Self {
        let key = [0x7261_7465, port.into()];
        HashUnit { hasher: SipHasher13::new_with_keys(key[0], key[1]), key, mask: cells - 1 }
    }

    pub(super) fn key(&self) -> [u64; 2] {
        self.key
    }

    pub(super) fn cells(&self) -> u32 {
        self.mask + 1
    }

    pub(super) fn place(&self, transfer: FlowId) -> Place {
        let hash = self.hasher.hash(&transfer.0.to_le_bytes());
        let parts = [hash.h1 as u32, (hash.h1 >> 32) as u32, hash.h2 as u32];
        Place(parts.map(|part| {
            let cell = part & self.mask;
            At { word: (cell >> 6) as usize, bit: 1 << (cell & 63) }
        }))
    }
}

/// One filter with its counter.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// 64 bits a cell; a packet changes one of them.
    arrays: [Registers<Vec<u64>>; HASHES],
    counter: Registers<[Word; 1]>,
    /// Where bits were set since all were cleared, for the control program, which need not look at all the others. None if too many were.
    written: Option<Vec<Place>>,
}

impl Filter {
    pub(super) fn new(cells: u32) -> Self {
        let array = || Registers::new(vec![0; cells as usize / 64]);
        Filter {
            arrays: [array(), array(), array()],
            counter: Registers::new([Word::ZERO]),
            written: Some(Vec::new()),
        }
    }

    /// Counts a transfer unless it is in the filter. Returns the count.
    #[inline]
    pub(super) fn insert(&mut self, pass: Pass, place: &Place) -> Word {
        let mut known = true;
        for (array, at) in self.arrays.iter_mut().zip(&place.0) {
            known &= array.touch(pass, at.word, |bits| {
                let before = *bits;
                *bits |= at.bit;
                before == *bits
            });
        }
        if !known {
            self.note(place);
        }
        self.count(pass, if known { Word::ZERO } else { Word::ONE }, Word::ZERO)
    }

    #[cold]
    fn note(&mut self, place: &Place) {
        self.written = self.written.take().filter(|written| written.len() < LISTED);
        if let Some(written) = &mut self.written {
            written.push(*place);
        }
    }

    /// Takes a transfer out if it is in the filter. Returns the count.
    #[inline]
    pub(super) fn remove(&mut self, pass: Pass, place: &Place) -> Word {
        let [first, second, last] = &mut self.arrays;
        let [at_first, at_second, at_last] = &place.0;
        let mut known = first.touch(pass, at_first.word, |bits| *bits & at_first.bit != 0);
        known &= second.touch(pass, at_second.word, |bits| *bits & at_second.bit != 0);
        known &= last.touch(pass, at_last.word, |bits| {
            let before = *bits & at_last.bit != 0;
            if known {
                *bits &= !at_last.bit;
            }
            before
        });
        self.count(pass, Word::ZERO, if known { Word::ONE } else { Word::ZERO })
    }

    fn count(&mut self, pass: Pass, more: Word, fewer: Word) -> Word {
        self.counter.touch(pass, 0, |count| {
            *count = *count + more - fewer;
            *count
        })
    }

    /// Its arrays, 64 cells a word.
    pub(super) fn words(&self) -> [&[u64]; HASHES] {
        self.arrays.each_ref().map(|array| &array.cells()[..])
    }

    /// The control program reads the counter.
    pub(super) fn active(&self) -> Word {
        self.counter.cells()[0]
    }

    /// Whether it holds nothing at all, bits of removed transfers included.
    pub(super) fn is_empty(&self) -> bool {
        if self.active() != Word::ZERO {
            return false;
        }
        let mut arrays = self.arrays.iter().enumerate();
        match &self.written {
            Some(written) => {
                arrays.all(|(n, array)| written.iter().all(|place| array.cells()[place.0[n].word] == 0))
            }
            None => arrays.all(|(_, array)| array.cells().iter().all(|bits| *bits == 0)),
        }
    }

    /// Whether a transfer would be taken for one that is in the filter.
    pub(super) fn has(&self, place: Place) -> bool {
        self.arrays.iter().zip(place.0).all(|(array, at)| array.cells()[at.word] & at.bit != 0)
    }

    /// The control program clears all.
    pub(super) fn clear(&mut self) {
        for (n, array) in self.arrays.iter_mut().enumerate() {
            let cells = array.cells_mut();
            match &self.written {
                Some(written) => written.iter().for_each(|place| cells[place.0[n].word] = 0),
                None => cells.fill(0),
            }
        }
        self.written.get_or_insert_default().clear();
        *self.counter.cells_mut() = [Word::ZERO];
    }
}

/// The chance that a transfer is taken for one that is in a filter of `entries` entries and `cells` cells in all (PAM
/// §IV-B).
pub(super) fn false_positives(entries: f64, cells: f64) -> f64 {
    (1.0 - (-(HASHES as f64) * entries / cells).exp()).powi(HASHES as i32)
}

#[cfg(test)]
mod tests {
    use rand::{Rng as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// A-BF: 1,000 transfers with a fanout of 20 in 2 MB for two filters, which are 8 million cells each.
    #[test]
    fn filters_of_the_papers_size_err_as_rarely_as_the_paper_says() {
        let bound = false_positives(20_000.0, 8e6);
        assert!(bound < 4.2e-7 && (bound - 4.17e-7).abs() < 1e-9, "{bound}");

        // Three arrays of 2^21 bits are the nearest below.
        let cells = 1 << 21;
        let mut filter = Filter::new(cells);
        let mut pass = Pass::NONE;
        for port in 0..20 {
            let unit = HashUnit::new(port, cells);
            for transfer in 0..1000 {
                pass = pass.next();
                filter.insert(pass, &unit.place(FlowId(transfer)));
            }
        }
        assert!(19_999 <= filter.active().get(), "{:?}", filter.active());
        let unit = HashUnit::new(0, cells);
        let absent = 1_000_000;
        let present = |transfer: u64| filter.has(unit.place(FlowId(transfer)));
        assert!((0..1000).all(present), "a filter forgets nothing");
        let mistaken = (1000..1000 + absent).filter(|it| present(*it)).count();
        assert!((mistaken as f64) < 1e-5 * absent as f64, "{mistaken} of {absent}");
    }

    /// Of small filters, where mistakes are frequent, the formula says how frequent.
    #[test]
    fn the_formula_holds_where_it_can_be_measured() {
        let cells = 1 << 10;
        let (mut filter, unit, mut pass) = (Filter::new(cells), HashUnit::new(7, cells), Pass::NONE);
        for transfer in 0..300 {
            pass = pass.next();
            filter.insert(pass, &unit.place(FlowId(transfer)));
        }
        let present = |transfer: u64| filter.has(unit.place(FlowId(transfer)));
        let measured = (300..100_300).filter(|it| present(*it)).count() as f64 / 1e5;
        let expected = false_positives(300.0, 3.0 * f64::from(cells));
        assert!((measured / expected - 1.0).abs() < 0.15, "{measured} where {expected} are expected");
    }

    /// The count's error, as the module's description defines it. In each of twenty rounds, which are two idle timeouts of ten round trips, one
    /// in a hundred transfers is paused and another one begins, all active ones send, and all paused ones probe.
    #[test]
    fn removals_make_the_count_too_high_by_little() {
        for (active, cells, most) in [(200, 1 << 16, 0.001), (1_000, 1 << 16, 0.005), (1_000, 1 << 14, 0.02)]
        {
            let mut rng = ChaCha8Rng::seed_from_u64(5);
            let (mut filter, unit, mut pass) = (Filter::new(cells), HashUnit::new(1, cells), Pass::NONE);
            let mut next = || {
                pass = pass.next();
                pass
            };
            let mut members: Vec<u64> = (0..active).collect();
            let mut paused = Vec::new();
            let mut worst: f64 = 0.0;
            for _ in 0..20 {
                for _ in 0..active / 100 {
                    let begins = rng.random_range(active..1 << 40);
                    let place = rng.random_range(0..members.len());
                    paused.push(std::mem::replace(&mut members[place], begins));
                }
                for transfer in &paused {
                    filter.remove(next(), &unit.place(FlowId(*transfer)));
                }
                for transfer in &members {
                    filter.insert(next(), &unit.place(FlowId(*transfer)));
                }
                let error = f64::from(filter.active().get()) / members.len() as f64 - 1.0;
                worst = worst.max(error.abs());
            }
            println!("{active} active, {cells} cells an array: wrong by {worst:.4} at most");
            assert!(worst <= most, "{active} active, {cells} cells: {worst}");
            filter.clear();
            assert!(filter.is_empty());
        }
    }

    /// Few or many transfers, removed ones among them: the list of what was written leaves nothing out.
    #[test]
    fn cleared_filters_are_empty_in_every_word() {
        let (mut filter, unit, mut pass) = (Filter::new(1 << 12), HashUnit::new(2, 1 << 12), Pass::NONE);
        for transfers in [0, 1, LISTED as u64, LISTED as u64 + 1, 3_000, 5] {
            for transfer in (0..transfers).chain(0..transfers / 2) {
                pass = pass.next();
                filter.insert(pass, &unit.place(FlowId(transfer)));
                if transfer % 3 == 0 {
                    pass = pass.next();
                    filter.remove(pass, &unit.place(FlowId(transfer)));
                }
            }
            let nothing =
                |filter: &Filter| filter.words().iter().all(|words| words.iter().all(|it| *it == 0));
            assert_eq!(filter.is_empty(), nothing(&filter), "{transfers} transfers");
            filter.clear();
            assert!(filter.is_empty() && nothing(&filter), "{transfers} transfers");
        }
    }

    #[test]
    fn ports_hash_differently() {
        let place = |port| HashUnit::new(port, 1 << 14).place(FlowId(1)).0;
        assert_ne!(place(0), place(1));
        assert_eq!(place(3), place(3));
    }
}
