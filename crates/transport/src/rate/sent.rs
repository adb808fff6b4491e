//! The newest packets of a transfer: when each has left, and with which symbol.

use std::collections::VecDeque;

use headwater_units::{SymbolId, Time};

/// Number of packets to remember: as many as leave in a millisecond at 100 Gbit/s.
const MOST: usize = 8192;

/// Packets of one flow, numbered without gaps.
#[derive(Debug)]
pub(super) struct Sent {
    /// The number of the next packet.
    next: u64,
    newest: VecDeque<(Time, Option<SymbolId>)>,
}

impl Sent {
    /// Nothing; the first packet has this number.
    pub(super) fn new(first: u64) -> Self {
        Sent { next: first, newest: VecDeque::new() }
    }

    /// The number of the next packet.
    #[cfg(test)]
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// A packet leaves; returns its number.
    pub(super) fn push(&mut self, now: Time, symbol: Option<SymbolId>) -> u64 {
        if self.newest.len() == MOST {
            self.newest.pop_front();
        }
        self.newest.push_back((now, symbol));
        self.next += 1;
        self.next - 1
    }

    /// The number of the oldest that is remembered.
    fn first(&self) -> u64 {
        self.next - self.newest.len() as u64
    }

    /// The whole number that was sent of which this is the lower half: one that is not above the last.
    pub(super) fn expand(&self, low: u32) -> Option<u64> {
        let last = self.next.checked_sub(1)?;
        last.checked_sub(u64::from((last as u32).wrapping_sub(low)))
    }

    /// When a packet left, and with which symbol, if that is remembered.
    pub(super) fn get(&self, number: u64) -> Option<(Time, Option<SymbolId>)> {
        let place = usize::try_from(number.checked_sub(self.first())?).ok()?;
        self.newest.get(place).copied()
    }

    /// The symbols of all packets after one, sorted, as far as they are remembered.
    pub(super) fn after(&self, number: u64) -> Vec<SymbolId> {
        let skip = usize::try_from((number + 1).saturating_sub(self.first())).unwrap_or(usize::MAX);
        let mut symbols: Vec<SymbolId> =
            self.newest.iter().skip(skip).filter_map(|(_, symbol)| *symbol).collect();
        symbols.sort_unstable();
        symbols
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{BlockIndex, Duration, Esi};

    use super::*;

    fn symbol(esi: u32) -> SymbolId {
        SymbolId { block: BlockIndex(1), esi: Esi(esi) }
    }

    fn at(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    #[test]
    fn the_newest_packets_are_known_by_their_numbers() {
        assert_eq!(Sent::new(0).expand(7), None, "nothing was sent yet that could be meant");
        let mut sent = Sent::new(1 << 32);
        for nth in 0..10 {
            assert_eq!(sent.push(at(nth), (nth % 2 == 0).then(|| symbol(9 - nth as u32))), (1 << 32) + nth);
        }
        assert_eq!(sent.expand(3), Some((1 << 32) + 3));
        assert_eq!(sent.expand(10), Some(10), "or an old one, which is not remembered");
        assert_eq!(sent.get((1 << 32) + 4), Some((at(4), Some(symbol(5)))));
        assert_eq!((sent.get(10), sent.get(u64::MAX)), (None, None));
        assert_eq!(sent.after((1 << 32) + 3), [symbol(1), symbol(3), symbol(5)]);
        assert_eq!(sent.after(0).len(), 5);
        assert_eq!(sent.after(sent.next() - 1), []);
    }

    #[test]
    fn the_memory_has_a_bound() {
        let mut sent = Sent::new(0);
        (0..3 * MOST as u64).for_each(|nth| _ = sent.push(at(nth), None));
        assert_eq!((sent.newest.len(), sent.get(0)), (MOST, None));
        assert_eq!(sent.get(3 * MOST as u64 - 1), Some((at(3 * MOST as u64 - 1), None)));
    }
}
