//! Which way is faster: the rule.

use super::rows::MOST_SOURCE_SYMBOLS;
use crate::BlockShape;
use crate::gf256::Kernel;

/// How to solve for lost source symbols and how to make repair symbols. The results are the same.
#[derive(Clone, Copy, Debug, Default)]
pub enum Method {
    /// Whichever is faster.
    #[default]
    Fastest,
    /// Sums over the whole block with this kernel: fast for few symbols.
    Dense(Kernel),
    /// The elimination of RFC 6330 §5.4.2 and its intermediate symbols (§5.3.3): fast for many symbols.
    Sparse,
}

impl Method {
    /// The kernel with which `missing` source symbols are filled in, or `None` for the sparse solver.
    pub(crate) fn decoding(self, shape: BlockShape, missing: u32) -> Option<Kernel> {
        match self {
            _ if shape.source_symbols() > MOST_SOURCE_SYMBOLS => None,
            Method::Dense(kernel) => Some(kernel),
            Method::Sparse => None,
            Method::Fastest => Some(Kernel::fastest()).filter(|&kernel| kernel.beats_sparse(shape, missing)),
        }
    }

    /// The kernel with which `count` repair symbols are made by a pass over the block, or `None` if from the
    /// intermediate symbols, which are not there yet. `spent` is the cost of such passes so far.
    pub(crate) fn encoding(self, shape: BlockShape, count: usize, spent: u64) -> Option<Kernel> {
        match self {
            _ if shape.source_symbols() > MOST_SOURCE_SYMBOLS => None,
            Method::Dense(kernel) => Some(kernel),
            Method::Sparse => None,
            Method::Fastest => {
                Some(Kernel::fastest()).filter(|&kernel| is_pass_worth_it(kernel, shape, count, spent))
            }
        }
    }
}

impl Kernel {
    /// Whether a pass over the block with this kernel fills `missing` source symbols in sooner than the sparse solver.
    ///
    /// Both costs are fits, in nanoseconds of one core (Zen 5; thread time; K = 20..1000, T = 64, 1376 and 8192). At T
    /// = 1376 sparse decoding takes 0.43, 0.45, 0.54 and 2.1 ms for K = 191, 256 (8 and 64 lost) and 1000, dense
    /// decoding with `avx512+gfni` 5, 16, 157 and 906 us for 2, 8, 64 and 100 lost. The sparse cost is taken a tenth to
    /// a fifth too low, so that in doubt it is chosen. From how many lost symbols on the sparse solver was faster, and
    /// is chosen (`headwater bench codec --changeover`):
    ///
    /// | | K = 191, T = 1376 | T = 8192 | K = 256, T = 1376 | T = 8192 | K = 1000, T = 1376 |
    /// |---|---|---|---|---|---|
    /// | `avx512+gfni` | 167, 126 | 162, 120 | 165, 137 | never, 124 | 218, 181 |
    /// | `avx512` | 134, 98 | 101, 79 | 129, 104 | 103, 81 | 154, 129 |
    /// | `avx2+gfni` | 100, 87 | 71, 67 | 129, 93 | 83, 68 | 141, 112 |
    /// | `avx2` | 81, 63 | 52, 42 | 81, 66 | 49, 43 | 92, 75 |
    /// | `portable` | 5, 4 | 2, 2 | 5, 4 | 2, 2 | |
    pub fn beats_sparse(self, shape: BlockShape, missing: u32) -> bool {
        let (symbols, symbol_size) = (f64::from(shape.source_symbols()), f64::from(shape.symbol_size()));
        let missing = f64::from(missing);
        // The pass over the block, the known symbols' coefficients, and the inverse, in short and so slow strings.
        let bytes = missing * symbols * symbol_size + missing * missing * symbols + 10.0 * missing.powi(3);
        let dense = bytes / self.speed().many + missing * row_cost(symbols);
        let sparse = symbols.max(10.0) * (1000.0 + 0.5 * symbol_size);
        dense < sparse
    }
}

/// Whether `count` repair symbols asked for at once are made sooner by a pass over the block than by building the
/// intermediate symbols, and no more than a quarter of what those cost has been `spent` on passes: a source that asks
/// for ever more symbols one by one pays at most that quarter more than with intermediate symbols from the start.
///
/// On the same machine those take 1.0 us per source symbol at T = 1376 and 4.7 at T = 8192, a little more for K = 64
/// and K = 1000. So with `avx512+gfni`, for K = 191 and T = 1376, nine repair symbols are made one by one, or up to 100
/// at once; with `portable`, one.
fn is_pass_worth_it(kernel: Kernel, shape: BlockShape, count: usize, spent: u64) -> bool {
    let (symbols, symbol_size) = (f64::from(shape.source_symbols()), f64::from(shape.symbol_size()));
    let intermediate = (symbols.max(10.0) * (250.0 + 0.5 * symbol_size)) as u64;
    pass_cost(kernel, shape, count) <= intermediate && spent <= intermediate / 4
}

/// Cost of making `count` repair symbols by a pass over the block, in nanoseconds as above.
pub(crate) fn pass_cost(kernel: Kernel, shape: BlockShape, count: usize) -> u64 {
    let (symbols, symbol_size) = (f64::from(shape.source_symbols()), f64::from(shape.symbol_size()));
    let (count, bytes, speed) = (count as f64, symbols * symbol_size, kernel.speed());
    ((bytes / speed.one).max(count * bytes / speed.many) + count * row_cost(symbols)) as u64
}

/// Cost of reading one row of coefficients and of the solver's work on it that does not depend on its length.
fn row_cost(symbols: f64) -> f64 {
    500.0 + 0.7 * symbols
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_units::Bytes;

    fn kernel(name: &str) -> Option<Kernel> {
        Kernel::available().find(|kernel| kernel.name() == name)
    }

    fn shape(symbols: u64, symbol_size: u16) -> BlockShape {
        BlockShape::new(Bytes::new(symbols * u64::from(symbol_size)), symbol_size).unwrap()
    }

    /// From how many lost symbols on the sparse solver is chosen.
    fn changeover(kernel: Kernel, symbols: u32, symbol_size: u16) -> Option<u32> {
        let shape = shape(u64::from(symbols), symbol_size);
        let dense: Vec<bool> = (1..=symbols).map(|missing| kernel.beats_sparse(shape, missing)).collect();
        assert!(dense.is_sorted_by(|fewer, more| fewer >= more), "dearer with every loss");
        dense.iter().position(|dense| !dense).map(|at| at as u32 + 1)
    }

    /// How many repair symbols of a usual block are made one by one, and at once.
    fn few(kernel: Kernel) -> (u64, usize) {
        let shape = shape(191, 1376);
        let pass = pass_cost(kernel, shape, 1);
        let one_by_one = (0..1000).take_while(|made| is_pass_worth_it(kernel, shape, 1, made * pass)).count();
        let at_once = (1..1000).take_while(|&count| is_pass_worth_it(kernel, shape, count, 0)).count();
        (one_by_one as u64, at_once)
    }

    #[test]
    fn the_rule_changes_over_where_its_documentation_says() {
        let documented = [
            ("avx512+gfni", [126, 120, 137, 124, 181]),
            ("avx512", [98, 79, 104, 81, 129]),
            ("avx2+gfni", [87, 67, 93, 68, 112]),
            ("avx2", [63, 42, 66, 43, 75]),
            ("portable", [4, 2, 4, 2, 4]),
        ];
        for (name, documented) in documented {
            // Only those of this machine.
            let Some(kernel) = kernel(name) else { continue };
            let shapes = [(191, 1376), (191, 8192), (256, 1376), (256, 8192), (1000, 1376)];
            assert_eq!(shapes.map(|(k, t)| changeover(kernel, k, t).unwrap()), documented, "{name}");
        }
        assert_eq!(few(kernel("portable").expect("runs anywhere")), (1, 1));
        if let Some(kernel) = kernel("avx512+gfni") {
            assert_eq!(few(kernel), (9, 100));
        }
    }

    #[test]
    fn blocks_too_large_for_a_table_are_left_to_the_sparse_solver_whatever_is_asked() {
        let (large, most) =
            (shape(u64::from(MOST_SOURCE_SYMBOLS) + 1, 1), shape(u64::from(MOST_SOURCE_SYMBOLS), 1));
        for method in [Method::Fastest, Method::Dense(Kernel::fastest()), Method::Sparse] {
            assert!(method.decoding(large, 1).is_none() && method.encoding(large, 1, 0).is_none());
        }
        assert!(Method::Dense(Kernel::fastest()).decoding(most, 1500).is_some());
        assert!(Method::Sparse.decoding(most, 1).is_none() && Method::Sparse.encoding(most, 1, 0).is_none());
    }
}
