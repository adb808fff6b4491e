//! The coefficients of repair symbols, read out of the RFC 6330 encoder once per K.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use headwater_units::{Bytes, Esi};

use crate::BlockShape;
use crate::rfc6330::Intermediate;

/// Blocks of more symbols are left to the sparse solver. The table of one K takes about 2 K^2 bytes, and to make it as
/// long as to decode one block of 1376-byte symbols: 0.4 and 0.6 ms at K = 191, 3.0 and 3.7 at 1000, 4.9 and 5.3 at
/// 1500, but 9.8 and 7.6 at 2040. Blocks have 1 MiB at most.
pub(super) const MOST_SOURCE_SYMBOLS: u32 = 1500;

/// Tables that are kept: objects of one symbol size share one but for their last blocks.
const MOST_TABLES: usize = 32;

/// Most bytes that tables may take together: one of the largest and many of the usual ones (K = 191: 80 KB).
const MOST_BYTES: usize = 16 << 20;

/// The coefficients of every repair symbol of blocks of K source symbols.
///
/// An encoder whose block is the K x K identity: source symbol i is one in byte i and zero elsewhere, so byte i of a
/// repair symbol is the coefficient of source symbol i. A row costs what a repair symbol of K bytes costs, below a
/// microsecond, so rows themselves are not kept (191 bytes: 0.6 us, where the pass over a 256 KiB block takes 5).
pub(crate) struct Rows {
    shape: BlockShape,
    identity: Intermediate,
}

/// One K's table, which the first user makes while others that want it wait.
struct Entry {
    source_symbols: u32,
    rows: OnceLock<Arc<Rows>>,
}

/// The tables that are kept, the last used at the end.
struct Tables(Vec<Arc<Entry>>);

static TABLES: Mutex<Tables> = Mutex::new(Tables(Vec::new()));

impl Rows {
    /// Those of blocks of `source_symbols`, at most [`MOST_SOURCE_SYMBOLS`]: made at the first call, about as long as a
    /// sparse solution takes, and then kept for a while.
    pub(crate) fn of(source_symbols: u32) -> Arc<Rows> {
        // A panic elsewhere leaves the list as whole as it was. Nothing is made while the lock is held.
        let entry = TABLES.lock().unwrap_or_else(PoisonError::into_inner).entry(source_symbols);
        entry.rows.get_or_init(|| Arc::new(Rows::new(source_symbols))).clone()
    }

    fn new(source_symbols: u32) -> Rows {
        assert!(source_symbols <= MOST_SOURCE_SYMBOLS, "a table of {source_symbols}^2 bytes is too large");
        let symbols = source_symbols as usize;
        let shape = BlockShape::new(Bytes::new((symbols * symbols) as u64), source_symbols as u16)
            .expect("a square block of at most 1500 symbols");
        let mut identity = vec![0; symbols * symbols];
        identity.iter_mut().step_by(symbols + 1).for_each(|diagonal| *diagonal = 1);
        Rows { shape, identity: Intermediate::of(shape, &identity) }
    }

    /// The K coefficients of the repair symbol with this ESI, which is in K..2^24.
    pub(crate) fn row(&self, esi: Esi) -> Vec<u8> {
        let mut row = vec![0; usize::from(self.shape.symbol_size())];
        self.identity.repair(self.shape, esi, &mut row);
        row
    }
}

impl Tables {
    /// The place of one K's table, which is now the last used; the longest unused make room for it.
    fn entry(&mut self, source_symbols: u32) -> Arc<Entry> {
        let entry = match self.0.iter().position(|entry| entry.source_symbols == source_symbols) {
            Some(at) => self.0.remove(at),
            None => Arc::new(Entry { source_symbols, rows: OnceLock::new() }),
        };
        let mut left = MOST_BYTES.saturating_sub(table_bytes(source_symbols));
        let kept = self.0.iter().rev().take(MOST_TABLES - 1).take_while(|entry| {
            let bytes = table_bytes(entry.source_symbols);
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        });
        let dropped = self.0.len() - kept.count();
        self.0.drain(..dropped);
        self.0.push(entry.clone());
        entry
    }
}

/// Bytes that the encoder of an identity holds: K source symbols and, at most, K + 200 intermediate symbols of K bytes.
fn table_bytes(source_symbols: u32) -> usize {
    source_symbols as usize * (2 * source_symbols as usize + 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tables {
        fn kept(&self) -> Vec<u32> {
            self.0.iter().map(|entry| entry.source_symbols).collect()
        }
    }

    #[test]
    fn tables_are_bounded_in_number_and_bytes_and_the_longest_unused_go_first() {
        let mut tables = Tables(Vec::new());
        let first = tables.entry(31);
        assert!(Arc::ptr_eq(&first, &tables.entry(31)));
        for source_symbols in 100..100 + MOST_TABLES as u32 {
            tables.entry(source_symbols);
            tables.entry(100);
        }
        assert_eq!(tables.kept().len(), MOST_TABLES);
        assert!(!tables.kept().contains(&31) && tables.kept().ends_with(&[131, 100]));
        for source_symbols in 1000..1040 {
            tables.entry(source_symbols);
            assert!(tables.kept().iter().map(|&k| table_bytes(k)).sum::<usize>() <= MOST_BYTES);
        }
        assert_eq!(tables.kept(), (1033..1040).collect::<Vec<_>>());
        tables.entry(MOST_SOURCE_SYMBOLS);
        assert!(tables.kept().ends_with(&[MOST_SOURCE_SYMBOLS]));
        assert!(table_bytes(MOST_SOURCE_SYMBOLS) <= MOST_BYTES);
    }

    #[test]
    fn the_table_of_one_k_is_made_once_and_its_rows_depend_on_the_esi_alone() {
        let rows = Rows::of(57);
        assert!(Arc::ptr_eq(&rows, &Rows::of(57)));
        assert_eq!(rows.row(Esi(500)), Rows::new(57).row(Esi(500)));
        assert_ne!(rows.row(Esi(500)), rows.row(Esi(501)));
    }
}
