//! The command line as it is typed. [`super::resolve`] draws the conclusions.
//!
//! Options that a config file or the environment can set too are `Option`s collected into a [`Layer`]; all others belong
//! to one run and are read from here.

mod cast;
mod daemons;
mod debug;
#[cfg(feature = "laboratory")]
mod demo;
mod experiments;
mod flags;
mod get;
mod itself;
#[cfg(feature = "laboratory")]
mod shuffle;
mod store;
#[cfg(feature = "laboratory")]
mod tcp;
#[cfg(test)]
mod tests;

use clap::{Parser, Subcommand};

pub(crate) use self::cast::{CastArgs, PlanArgs, WhomFlags};
pub(crate) use self::daemons::{ControllerArgs, NodeArgs, ServeArgs, UpArgs};
pub(crate) use self::debug::{DebugCommand, DecodeArgs, SymbolsArgs};
#[cfg(feature = "laboratory")]
pub(crate) use self::demo::DemoArgs;
pub(crate) use self::experiments::{TimelineFlags, TuningFlag};
use self::flags::Global;
pub(crate) use self::flags::{CoflowFlag, CoflowOrder};
pub(crate) use self::get::GetArgs;
use self::itself::{CompletionsArgs, ConfigArgs, ManArgs};
#[cfg(feature = "laboratory")]
pub(crate) use self::shuffle::{ShuffleCommand, ShuffleFetchArgs, ShuffleServeArgs};
pub(crate) use self::store::{ForgetArgs, GcArgs, LsArgs, PutArgs, RmArgs, StatusArgs};
#[cfg(feature = "laboratory")]
pub(crate) use self::tcp::{TcpCommand, TcpReceiveArgs, TcpSendArgs};
use super::agent::AgentArgs;
#[cfg(feature = "laboratory")]
use super::bench::BenchCommand;
#[cfg(feature = "laboratory")]
use super::drill::DrillArgs;
#[cfg(feature = "laboratory")]
use super::emulate::EmulateArgs;
use super::exit;
#[cfg(feature = "laboratory")]
use super::lab::LabCommand;
use super::settings::Layer;

const COMMON: &str = "Common options";
const NETWORK: &str = "Network options";
const EXPERIMENT: &str = "Options for experiments";

#[derive(Debug, Parser)]
#[command(name = "headwater", version, max_term_width = 110, after_long_help = exit::MANUAL, after_help = exit::SHORT)]
#[command(subcommand_required = true, arg_required_else_help = true)]
/// Big objects onto many machines, from every machine that already has them.
///
/// A file on three machines gets onto a fourth from all three at once: each sends different coded symbols, any
/// sufficient set of them makes a block, and every block is verified before it counts.
///
/// Without a controller: `headwater serve FILE` where the file is, `headwater get NAME --from HOST,HOST` where it is
/// wanted. With one, `headwater up` on the first machine and `headwater node --join HOST` on the others; then names are
/// enough.
#[cfg_attr(feature = "laboratory", doc = " `headwater demo` shows it all on this machine.")]
#[cfg_attr(not(feature = "laboratory"), doc = "")]
#[cfg_attr(
    not(feature = "laboratory"),
    doc = "This binary was built without the laboratory: it has no demo, lab, emulate, drill, bench, debug tcp or debug shuffle."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run controller and node in one process: the first machine of a cluster
    Up(Box<UpArgs>),
    /// Run a controller: knows who has what and plans, never touches the data
    Controller(Box<ControllerArgs>),
    /// Run a node: keeps objects, sends and receives them
    Node(Box<NodeArgs>),
    /// Run the agent of a host: programs fetch through it, by one connection for each pair of hosts
    Agent(Box<AgentArgs>),
    /// Offer files and folders in place, until stopped; nothing is copied
    Serve(Box<ServeArgs>),
    /// Fetch an object from every source that has it
    Get(Box<GetArgs>),
    /// Send an object to many nodes at once
    Cast(CastArgs),
    /// Say how long a cast will take, before it begins
    Plan(PlanArgs),
    /// Keep a copy of a file or folder in this machine's store
    Put(Box<PutArgs>),
    /// List objects and who has them
    Ls(LsArgs),
    /// Remove an object from this machine's store
    Rm(RmArgs),
    /// Remove from this machine's store what nothing needs any more
    Gc(GcArgs),
    /// Show nodes, objects, running tasks and casts
    Status(StatusArgs),
    /// Make the controller forget a node that is away
    Forget(ForgetArgs),
    #[cfg(feature = "laboratory")]
    /// Demonstrate many sources and one receiver on this machine, with real packets
    Demo(Box<DemoArgs>),
    #[cfg(feature = "laboratory")]
    /// Experiments of the papers in a simulated network: list, run, report
    #[command(subcommand)]
    Lab(LabCommand),
    #[cfg(feature = "laboratory")]
    /// Run a network of a scenario under real programs, each host a network namespace
    Emulate(EmulateArgs),
    #[cfg(feature = "laboratory")]
    /// Try the product on this machine under faults: losses, dead links, dead and frozen sources
    Drill(DrillArgs),
    #[cfg(feature = "laboratory")]
    /// Measure the speed of parts of the product on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Look inside: symbols as text, recorded runs
    #[command(subcommand)]
    Debug(DebugCommand),
    /// Print every setting that a config file can hold, and where its value comes from
    Config(Box<ConfigArgs>),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
}

impl Command {
    /// The settings among this command's flags.
    pub(crate) fn fill(&self, layer: &mut Layer) {
        match self {
            Command::Up(args) => args.fill(layer),
            Command::Controller(args) => args.fill(layer),
            Command::Node(args) => args.fill(layer),
            Command::Serve(args) => args.fill(layer),
            Command::Get(args) => args.fill(layer),
            Command::Cast(args) => args.fill(layer),
            Command::Plan(args) => args.fill(layer),
            Command::Put(args) => args.fill(layer),
            Command::Ls(args) => args.fill(layer),
            Command::Status(args) => args.fill(layer),
            Command::Forget(args) => args.fill(layer),
            #[cfg(feature = "laboratory")]
            Command::Demo(args) => args.fill(layer),
            Command::Config(args) => args.fill(layer),
            #[cfg(feature = "laboratory")]
            Command::Lab(_) | Command::Emulate(_) | Command::Drill(_) | Command::Bench(_) => {}
            Command::Agent(_)
            | Command::Rm(_)
            | Command::Gc(_)
            | Command::Debug(_)
            | Command::Completions(_)
            | Command::Man(_) => {}
        }
    }
}
