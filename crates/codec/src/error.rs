//! Errors about a block, a symbol or a set of symbols.

use headwater_units::{Bytes, ESI_LIMIT, Esi, MAX_SOURCE_SYMBOLS};
use thiserror::Error;

/// A block or symbol that the codec refuses. Nothing has changed when one of these is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A block without bytes has no symbols.
    #[error("an empty block has no symbols")]
    EmptyBlock,
    /// A symbol without bytes carries nothing.
    #[error("the symbol size is zero")]
    ZeroSymbolSize,
    /// More source symbols than RFC 6330 §5.1.2 allows.
    #[error(
        "a block of {block_bytes} has {source_symbols} symbols of {symbol_size} bytes; at most {MAX_SOURCE_SYMBOLS}"
    )]
    TooManySymbols {
        /// Length of the block.
        block_bytes: Bytes,
        /// T.
        symbol_size: u16,
        /// The number of source symbols that was computed.
        source_symbols: u64,
    },
    /// The bytes given for a block are not as many as its shape says.
    #[error("{got} bytes given for a block of {expected} bytes")]
    BlockLength {
        /// Bytes given.
        got: usize,
        /// Bytes of the shape.
        expected: u64,
    },
    /// A symbol, or the room for one, is not exactly T bytes.
    #[error("{got} bytes given for a symbol of {expected} bytes")]
    SymbolLength {
        /// Bytes given.
        got: usize,
        /// T.
        expected: u16,
    },
    /// Encoding symbol ids have 24 bits (RFC 6330 §3.2).
    #[error("encoding symbol id {0} is not below {ESI_LIMIT}")]
    EsiOutOfRange(Esi),
    /// The last source symbol is filled up with zeros (RFC 6330 §4.4.1.2); this one is not, so it is damaged or forged.
    #[error("the padding of source symbol {0} is not zero")]
    Padding(Esi),
}

/// The symbols at hand do not give the block yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{have} symbols are too few for a block of {source_symbols} source symbols: at least {at_least} more are needed"
)]
pub struct NeedMore {
    /// Distinct symbols at hand.
    pub have: u32,
    /// How many more are certainly needed; at least one.
    pub at_least: u32,
    /// K of the block.
    pub source_symbols: u32,
}
