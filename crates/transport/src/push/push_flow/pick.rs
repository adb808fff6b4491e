//! Choice of the next symbol of a flow, under either rule of assignment.

use headwater_units::{BlockIndex, SymbolId};

/// A symbol to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub(super) symbol: SymbolId,
    pub(super) attempt: u8,
}

/// A block whose symbols will be sent soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Upcoming {
    pub(super) block: BlockIndex,
    /// Repair symbols among them.
    pub(super) repair: bool,
    /// How many.
    pub(super) symbols: u32,
}
