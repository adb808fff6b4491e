//! One block in reception, whatever the symbols carry.

use headwater_units::Esi;

use crate::{BlockShape, CodecError, NeedMore};

/// How many symbols beyond K are kept.
///
/// Each symbol beyond K makes a failed decode about a hundred times less likely (RFC 6330's code: 1e-6 at K + 2, SCDP
/// §II), so more than a few are never of use; 32 leaves room for H <= 16 (RFC 6330 §5.6), from where the solver needs
/// no GF(256) arithmetic. With it a block in reception holds at most (2 K + 32) T bytes, whatever arrives.
pub const SPARE_SYMBOLS: u32 = 32;

/// Result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It was not at hand and is now.
    New,
    /// A symbol with this ESI was at hand; that one stays, whatever the bytes of this one.
    Duplicate,
    /// A repair symbol when K + [`SPARE_SYMBOLS`] symbols are at hand already: not kept. Source symbols always are.
    ///
    /// If [`Decoder::finish`] fails even then, somebody picked ESIs whose equations are dependent (honest ones have a
    /// chance below 1e-60): forget the symbols of a suspect with [`Decoder::retain`] to make room.
    Surplus,
}

/// Collects the symbols of one block and gives the block back.
///
/// ```text
///            insert New, retain              finish: fewer than K, or the solver fails
///   ┌──────────────────────────► Collecting ◄─────────┐ (NeedMore; not tried again before a New)
///   │                                │ finish         │
///   └── Decoded ◄────────────────────┴────────────────┘
/// ```
/// The check of the block's hash decides what is true: after a failed check, [`Decoder::retain`] forgets the symbols of
/// a suspect and reception goes on.
pub trait Decoder: Send {
    /// The block's shape.
    fn shape(&self) -> BlockShape;

    /// Takes one symbol in. Any order, any source, duplicates welcome.
    ///
    /// # Errors
    /// [`CodecError::EsiOutOfRange`], [`CodecError::SymbolLength`], [`CodecError::Padding`].
    fn insert(&mut self, esi: Esi, payload: &[u8]) -> Result<Inserted, CodecError>;

    /// Whether the symbol is at hand (received, not decoded).
    fn contains(&self, esi: Esi) -> bool;

    /// How many source symbols have been received.
    fn source_symbols_present(&self) -> u32;

    /// How many different symbols are at hand, source and repair.
    fn distinct(&self) -> u32;

    /// Whether every source symbol has been received, so that [`Decoder::finish`] has nothing to decode.
    fn is_systematic_complete(&self) -> bool {
        self.source_symbols_present() == self.shape().source_symbols()
    }

    /// Forgets every symbol for which `keep` is false, as after a failed hash; returns how many.
    fn retain(&mut self, keep: &mut dyn FnMut(Esi) -> bool) -> u32;

    /// Gives the block, without padding, if the symbols at hand suffice. May be called again, before and after success.
    ///
    /// A matter of microseconds when nothing was lost, of milliseconds otherwise: call it on a worker, and not before
    /// K distinct symbols are at hand.
    ///
    /// # Errors
    /// [`NeedMore`] with fewer than K symbols, or with K or more whose equations happen to be dependent.
    fn finish(&mut self) -> Result<&[u8], NeedMore>;
}
