//! The next symbol to send by PPUSH's own rule (§III-A): source i of M sends the symbols i + kM of every block in order.
//!
//! While fewer packets of a block are in flight than the receiver still wants of it from this source, the block is
//! served, lost symbols first; then the next block is, so that about one bandwidth-delay product of needless symbols is
//! not sent while a block waits to be confirmed. The number of symbols still wanted is in the ACKs; before the first it
//! is ceil((K + 2) / M) (footnote 1).

use std::collections::VecDeque;

use headwater_units::{BlockIndex, ESI_LIMIT, Esi, Geometry, SymbolId};

use super::pick::{Pick, Upcoming};
use headwater_flow::blocks::BlockTable;

/// Symbols beyond K that a block needs to decode: footnote 1 of §III-A, SCDP §II.
const OVERHEAD: u32 = 2;

/// The residue rule for one flow.
#[derive(Clone, Debug)]
pub(super) struct Residue {
    geometry: Geometry,
    look_ahead: usize,
    index: u32,
    of: u32,
    /// Only source symbols, and those are nobody else's: [`headwater_wire::Assignment::Equal`].
    equal: bool,
    /// The block at the front of `open`.
    first: u32,
    /// Consecutive blocks; those that the receiver calls decoded stay until all before them are, since a decoder may yet
    /// ask for more.
    open: VecDeque<Open>,
    /// Number of decoded blocks at the front.
    settled: usize,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// K.
    source_symbols: u32,
    /// The next new symbol.
    next_esi: u32,
    /// Symbols that the receiver still wants of this block from this source.
    owed: u32,
    decoded: bool,
}

impl Residue {
    /// `index` below `of`; the wire checks that, and here it is made so.
    pub(super) fn new(geometry: Geometry, look_ahead: usize, index: u8, of: u8, equal: bool) -> Self {
        let of = u32::from(of.max(1));
        let index = u32::from(index) % of;
        let mut residue =
            Residue { geometry, look_ahead, index, of, equal, first: 0, open: VecDeque::new(), settled: 0 };
        residue.unfold();
        residue.settle();
        residue
    }

    /// Whether this is already the class in force.
    pub(super) fn is(&self, index: u8, of: u8, equal: bool) -> bool {
        (self.index, self.of, self.equal) == (u32::from(index), u32::from(of), equal)
    }

    /// Every block below is decoded.
    pub(super) fn decoded_below(&mut self, block: u32) {
        let end = self.geometry.layout().block_count();
        let block = block.min(end);
        while self.first < block && self.open.pop_front().is_some() {
            self.first += 1;
            self.settled = self.settled.saturating_sub(1);
        }
        self.first = self.first.max(block);
        self.unfold();
        self.settle();
    }

    /// The receiver says its assignment anew: a block did not decode with the symbols that should have sufficed.
    pub(super) fn reopen(&mut self) {
        if !self.equal {
            self.open.iter_mut().filter(|o| o.decoded).for_each(|o| (o.decoded, o.owed) = (false, 1));
            self.settled = 0;
        }
    }

    /// The receiver wants this many more symbols of a block from this source; none if it is decoded.
    pub(super) fn owes(&mut self, block: u32, symbols: u64) {
        if let Some(open) = self.get_mut(block) {
            open.decoded = symbols == 0;
            open.owed = u32::try_from(symbols).unwrap_or(u32::MAX);
            let at = (block - self.first) as usize;
            if symbols > 0 {
                self.settled = self.settled.min(at);
            }
            self.settle();
        }
    }

    /// A symbol of the block arrived, in an ACK that does not say what is owed. The estimate stays above zero: only the
    /// receiver ends a block, and one more symbol makes it repeat that.
    pub(super) fn delivered(&mut self, block: u32) {
        if let Some(open) = self.get_mut(block) {
            open.owed = open.owed.saturating_sub(1).max(1);
        }
    }

    /// The next new symbol whose block is ready; `true` beside it if one before it was not.
    pub(super) fn peek(&self, blocks: &BlockTable) -> (Option<Pick>, bool) {
        let mut skipped = false;
        for at in self.settled..self.open.len() {
            let (block, open) = (BlockIndex(self.first + at as u32), &self.open[at]);
            let held = blocks.get(block);
            let repair = open.next_esi >= open.source_symbols;
            let wanted = if self.equal { !repair } else { open.wants_more(held.in_flight) };
            if open.decoded || !wanted {
                continue;
            }
            if held.is_ready(repair) {
                let symbol = SymbolId { block, esi: Esi(open.next_esi) };
                return (Some(Pick { symbol, attempt: 0 }), skipped);
            }
            skipped = true;
        }
        (None, skipped)
    }

    /// The symbol was sent.
    #[inline]
    pub(super) fn commit(&mut self, pick: Pick) {
        let of = self.of;
        if let Some(open) = self.get_mut(pick.symbol.block.0)
            && open.next_esi == pick.symbol.esi.0
        {
            open.next_esi += of;
        }
    }

    /// Whether what is in flight of its block does not cover what is owed, so that a lost symbol goes out again.
    pub(super) fn needs(&self, symbol: SymbolId, blocks: &BlockTable) -> bool {
        let needs = |o: &Open| self.equal || blocks.get(symbol.block).in_flight < o.owed;
        self.get(symbol.block.0).is_some_and(|o| !o.decoded && needs(o))
    }

    /// Whether a symbol that was lost is still of use.
    pub(super) fn wants(&self, symbol: SymbolId) -> bool {
        symbol.esi.0 % self.of == self.index && self.has_left(symbol.block.0)
    }

    /// Whether symbols of a block may still be sent.
    pub(super) fn has_left(&self, block: u32) -> bool {
        self.get(block).is_some_and(|o| !o.decoded)
    }

    /// The block `i` places ahead, if that many are open, and what of it comes next.
    pub(super) fn upcoming(&self, i: usize, blocks: &BlockTable) -> Option<Upcoming> {
        let open = self.open.get(i)?;
        let block = BlockIndex(self.first + i as u32);
        let symbols = if open.decoded { 0 } else { open.owed.saturating_sub(blocks.get(block).in_flight) };
        let last = open.next_esi.saturating_add(self.of.saturating_mul(symbols.saturating_sub(1)));
        let repair = !self.equal && last >= open.source_symbols;
        Some(Upcoming { block, repair, symbols })
    }

    fn get(&self, block: u32) -> Option<&Open> {
        self.open.get(block.checked_sub(self.first)? as usize)
    }

    fn get_mut(&mut self, block: u32) -> Option<&mut Open> {
        self.open.get_mut(block.checked_sub(self.first)? as usize)
    }

    fn settle(&mut self) {
        while self.open.get(self.settled).is_some_and(|o| o.decoded) {
            self.settled += 1;
        }
    }

    fn unfold(&mut self) {
        let end = self.geometry.layout().block_count();
        while self.open.len() < self.look_ahead && self.first + (self.open.len() as u32) < end {
            let block = BlockIndex(self.first + self.open.len() as u32);
            let source_symbols = self.geometry.source_symbols(block);
            let owed = match self.equal {
                true => source_symbols.saturating_sub(self.index).div_ceil(self.of),
                false => (source_symbols + OVERHEAD).div_ceil(self.of),
            };
            self.open.push_back(Open { source_symbols, next_esi: self.index, owed, decoded: owed == 0 });
        }
    }
}

impl Open {
    fn wants_more(&self, in_flight: u32) -> bool {
        !self.decoded && in_flight < self.owed && self.next_esi < ESI_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, FlowId};

    use super::*;

    fn setting(blocks: u32) -> (Geometry, BlockTable) {
        let mut table = BlockTable::default();
        for b in 0..blocks {
            table.prepare(FlowId(0), BlockIndex(b), true, &mut Vec::new());
            table.on_ready(BlockIndex(b), true);
        }
        (Geometry::new(Bytes::kib(256) * u64::from(blocks), 4096).unwrap(), table)
    }

    fn send(r: &mut Residue, table: &mut BlockTable) -> Option<(u32, u32)> {
        let pick = r.peek(table).0?;
        r.commit(pick);
        table.sent(pick.symbol.block);
        Some((pick.symbol.block.0, pick.symbol.esi.0))
    }

    #[test]
    fn a_source_sends_its_class_of_each_block_until_the_packets_in_flight_cover_what_is_owed() {
        let (geometry, mut table) = setting(3); // K = 64
        let mut r = Residue::new(geometry, 64, 1, 3, false);
        let sent: Vec<_> = std::iter::from_fn(|| send(&mut r, &mut table)).collect();
        let expected: Vec<_> = (0..3).flat_map(|b| (0..22).map(move |k| (b, 1 + 3 * k))).collect();
        assert_eq!(sent, expected, "ceil((64 + 2) / 3) = 22 of each block");
    }

    #[test]
    fn a_block_that_owes_more_than_is_in_flight_goes_on_before_later_ones() {
        let (geometry, mut table) = setting(2);
        let mut r = Residue::new(geometry, 64, 0, 1, false);
        for _ in 0..66 {
            send(&mut r, &mut table);
        }
        assert_eq!(send(&mut r, &mut table), Some((1, 0)));
        table.landed(BlockIndex(0));
        assert_eq!(send(&mut r, &mut table), Some((0, 66)), "one was lost, 66 are owed");
        table.landed(BlockIndex(0));
        r.owes(0, 65);
        assert_eq!(send(&mut r, &mut table), Some((1, 1)), "one arrived, 65 are owed and in flight");
        r.owes(0, 0);
        assert!(!r.has_left(0) && r.has_left(1));
        assert!(!r.wants(SymbolId { block: BlockIndex(0), esi: Esi(3) }));
    }

    #[test]
    fn without_word_from_the_receiver_a_block_never_ends() {
        let (geometry, mut table) = setting(1);
        let mut r = Residue::new(geometry, 64, 0, 1, false);
        for _ in 0..200 {
            send(&mut r, &mut table);
            table.landed(BlockIndex(0));
            r.delivered(0);
        }
        assert!(r.peek(&table).0.is_some());
        r.decoded_below(u32::MAX);
        assert_eq!(r.peek(&table), (None, false));
    }

    #[test]
    fn open_blocks_are_bounded() {
        let (geometry, table) = setting(500);
        let mut r = Residue::new(geometry, 64, 9, 3, false);
        assert_eq!(r.open.len(), 64);
        r.decoded_below(470);
        assert_eq!((r.first, r.open.len()), (470, 30));
        r.owes(480, u64::MAX);
        assert_eq!(r.upcoming(10, &table).unwrap().symbols, u32::MAX);
        assert_eq!(r.upcoming(30, &table), None);
    }
}
