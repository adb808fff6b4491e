//! `headwater bench`: its commands, and how they show what they are at. The work is done by
//! [`headwater_bench::figures`].

mod agent;
mod codec;
mod delivery;
mod sim;
mod store;
mod wire;

use clap::Subcommand;
use headwater_api::Shutdown;
use headwater_bench::figures::BenchWatch;
use indicatif::ProgressBar;
use serde_json::json;

use self::delivery::{DeliveryArgs, GetsArgs};
use self::sim::SimArgs;
use self::store::StoreArgs;
use self::wire::WireArgs;
use super::Failure;
use super::output::bar::{LINE_INTERVAL, WITH_END, restyle};
use super::output::{JSON_INTERVAL, Pace, Shown, Terminal};
use super::settings::Settings;

/// How fast parts of the product are on this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Two agents and a program that fetches through them: rate, processor time and memory
    Agent(agent::AgentArgs),
    /// Coding and decoding of blocks: MB per CPU second, beside memcpy
    Codec(codec::CodecArgs),
    /// The packet simulator: packet-hops per CPU second
    Sim(SimArgs),
    /// Our UDP path beside the kernel's TCP, over loopback and between two namespaces
    Wire(WireArgs),
    /// Hashing, verifying and writing, and reading of blocks, beside copying memory
    Store(StoreArgs),
    /// Headwater beside curl, aria2, rqbit, libtorrent, uftp and iperf3, on one network of namespaces
    Delivery(DeliveryArgs),
    /// The node of `delivery --scenario many`: fetch many objects at once
    #[command(hide = true)]
    Gets(GetsArgs),
}

/// Runs one.
pub(crate) async fn act(
    command: &BenchCommand,
    settings: &Settings,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    match command {
        BenchCommand::Agent(args) => agent::act(args, terminal, shutdown).await,
        BenchCommand::Codec(args) => tokio::task::block_in_place(|| codec::act(args, terminal)),
        BenchCommand::Sim(args) => sim::act(args, terminal),
        // Nothing else goes on in this runtime but the waiting for signals.
        BenchCommand::Wire(args) => tokio::task::block_in_place(|| wire::act(args, terminal, shutdown)),
        BenchCommand::Store(args) => tokio::task::block_in_place(|| store::act(args, terminal, shutdown)),
        BenchCommand::Delivery(args) => delivery::act(args, terminal, shutdown).await,
        BenchCommand::Gets(args) => delivery::gets(args, settings, terminal, shutdown).await,
    }
}

/// Shows which measurement it is at, as the user wants it.
struct Watching<'a> {
    terminal: &'a Terminal,
    shown: Shown,
    bar: Option<ProgressBar>,
    pace: Pace,
}

impl<'a> Watching<'a> {
    fn new(terminal: &'a Terminal) -> Self {
        let shown = terminal.shown();
        let interval = if shown == Shown::Json { JSON_INTERVAL } else { LINE_INTERVAL };
        Watching { terminal, shown, bar: None, pace: Pace::new(interval) }
    }
}

impl BenchWatch for Watching<'_> {
    fn begun(&mut self, what: &str, number: usize, of: usize) {
        match self.shown {
            Shown::Bar => {
                let bar = self.bar.get_or_insert_with(|| {
                    let bar = self.terminal.bars().add(ProgressBar::no_length());
                    restyle(&bar, WITH_END);
                    bar
                });
                bar.set_length(of as u64);
                bar.set_position(number as u64 - 1);
                bar.set_prefix(format!("{number} of {of}"));
                bar.set_message(what.to_owned());
            }
            Shown::Lines if self.pace.due() => self.terminal.err(&format!("{number} of {of}: {what}")),
            Shown::Json if self.pace.due() => {
                // A reader that went away is told by the result's write, which fails the command.
                let line = json!({ "type": "progress", "what": what, "number": number, "of": of });
                drop(self.terminal.json_line(&line));
            }
            Shown::Lines | Shown::Json | Shown::Nothing => {}
        }
    }

    fn note(&mut self, line: &str) {
        self.terminal.note(line);
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            self.terminal.bars().remove(&bar);
        }
    }
}
