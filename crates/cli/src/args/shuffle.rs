//! The flags of `headwater debug shuffle`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Programs of a shuffle, for experiments: what `headwater lab run emulate/shuffle` runs on each host.
#[derive(Debug, Subcommand)]
pub(crate) enum ShuffleCommand {
    /// Answer each connection with as many bytes as it asks for, until interrupted
    Serve(ShuffleServeArgs),
    /// Fetch what a plan says, by a connection for each flow or through the agent of this host
    Fetch(ShuffleFetchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShuffleServeArgs {
    /// Address and port to listen on; port 0 is any free one, and is printed
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// The kernel's congestion control [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShuffleFetchArgs {
    /// The plan, a JSON file: `via` (`{"kind": "tcp", "congestion": "cubic"}`, or `{"kind": "agent", "socket", "file", "partitions",
    /// "others"}`) and `coflows` (`coflow`, `at_ns`, `flows` of `from`, `partition` and `bytes`)
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) plan: PathBuf,
}
