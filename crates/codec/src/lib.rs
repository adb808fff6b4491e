//! Blocks to symbols and back: RaptorQ (RFC 6330), and a phantom that only counts symbols, for simulation.
//!
//! Every block is an RFC 6330 object of its own with one source block and one sub-block, so the wire's 32-bit block
//! index is free of the RFC's 8-bit source block number, and repair symbols are bit-equal to any other
//! implementation's (`tests/vectors/`). An object's cut into blocks is `headwater_units::BlockLayout`.
//!
//! - [`BlockShape`]: block length and symbol size, checked once; everything below is built from one.
//! - [`BlockEncoder`]: a block's endless stream of symbols. Source symbols cost a copy and nothing else.
//! - [`Decoder`]: one block in reception, as [`Assembler`] (bytes) or [`PhantomAssembler`] (counts only).
//! - [`Method`], [`Kernel`]: how lost symbols are solved for and repair symbols made; the fastest way unless told.
//! - [`text`]: symbols as lines of text, for people and for comparison with other implementations.
//!
//! Does no I/O (but for `text`, over readers and writers it is given), reads no clock, spawns no thread. Knows nothing
//! of hashes or of who sent a symbol: a decoded block is right only once its hash has been checked, since a code for
//! losses turns one wrong symbol into a wrong block without noticing.

mod assembler;
mod decoder;
mod dense;
mod encoder;
mod error;
mod gf256;
mod phantom;
mod rfc6330;
mod shape;
mod symbol_set;
pub mod text;

pub use assembler::Assembler;
pub use decoder::{Decoder, Inserted, SPARE_SYMBOLS};
pub use dense::Method;
pub use encoder::BlockEncoder;
pub use error::{CodecError, NeedMore};
pub use gf256::Kernel;
pub use phantom::{PhantomAssembler, drawn_overhead};
pub use shape::BlockShape;
