//! Quantities, times and identities whose arithmetic cannot mix up dimensions.
//!
//! `Bytes / Duration` is a [`BitRate`]; `Bytes + Packets` does not compile. Raw numbers appear only in here and at the
//! edges (parsing a flag, writing a header field). No I/O, no clock: [`Time`] counts from the start of a run, and the
//! driver of a machine says what time it is.

mod geometry;
mod id;
mod quantity;
mod rank;
mod text;
mod time;

pub use geometry::{
    BlockLayout, Geometry, GeometryError, MAX_SOURCE_SYMBOLS, MAX_SYMBOL_SIZE, MIN_SYMBOL_SIZE,
};
pub use id::{
    BlockIndex, ESI_LIMIT, Esi, FetchId, FlowId, FlowKey, NodeId, ObjectId, PacketNumber, ParseIdError,
    PathId, SymbolId, TaskId,
};
pub use quantity::{BitRate, Bytes, FluidRate, Packets, Symbols, Theta};
pub use rank::Rank;
pub use text::ParseQuantityError;
pub use time::{Duration, Time};
