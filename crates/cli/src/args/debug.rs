//! `debug`: a look inside.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headwater_codec::text::EsiRange;
use headwater_units::Bytes;

#[cfg(feature = "laboratory")]
use super::shuffle::ShuffleCommand;
#[cfg(feature = "laboratory")]
use super::tcp::{self, TcpCommand};

/// Look inside: symbols as text, recorded runs.
#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Print symbols of one block of a file, one line each: ESI, space, hex digits
    #[command(after_help = "Example, dropping the first source symbol and decoding without it:
  headwater debug symbols FILE --block 0 --symbol-size 1024 --esi 1-260 |
    headwater debug decode --block-bytes 256KiB --symbol-size 1024 >block.bin

Symbols are those of RFC 6330 with one source block per block and one sub-block; ESIs from K on are repair symbols.
With --json each line is an object: esi, symbol.")]
    Symbols(SymbolsArgs),
    /// Read such lines from standard input, in any order, and write the block to standard output
    Decode(DecodeArgs),
    /// Feed a recorded run through the same machines again and compare every output
    Replay(ReplayArgs),
    #[cfg(feature = "laboratory")]
    /// Send and receive by the kernel's TCP, to compare with or to be beside
    #[command(subcommand, after_help = tcp::EXAMPLE)]
    Tcp(TcpCommand),
    #[cfg(feature = "laboratory")]
    /// Programs of a shuffle, to compare agents with plain TCP
    #[command(subcommand)]
    Shuffle(ShuffleCommand),
}

#[derive(Debug, Args)]
pub(crate) struct SymbolsArgs {
    /// The file whose block it is; only that block is read
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Number of the block, from 0; blocks are 256 KiB, larger in files above 16 GiB
    #[arg(long, value_name = "N")]
    pub(crate) block: u32,
    /// Bytes of a symbol (T), as in 1376
    #[arg(long, value_name = "T")]
    pub(crate) symbol_size: u16,
    /// Which symbols, both ends included, as in 0-10 or 7
    #[arg(long, value_name = "A-B")]
    pub(crate) esi: EsiRange,
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// Length of the block, as in 256KiB
    #[arg(long, value_name = "B")]
    pub(crate) block_bytes: Bytes,
    /// Bytes of a symbol (T), as in 1376
    #[arg(long, value_name = "T")]
    pub(crate) symbol_size: u16,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// File that `get --record` or `serve --record` wrote
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}
