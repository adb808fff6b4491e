//! The command line as it is typed. What follows from it is [`super::resolve`]'s business.
//!
//! Options that a config file or the environment can set too are `Option`s collected into a [`Layer`]; all others belong
//! to one run and are read from here.

mod experiments;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use headwater_codec::text::EsiRange;
use headwater_units::{Bytes, Duration, NodeId, ObjectId};

pub(crate) use self::experiments::{TimelineFlags, TuningFlag};
use super::bench::BenchCommand;
use super::drill::DrillArgs;
use super::emulate::EmulateArgs;
use super::exit;
use super::groups::Groups;
use super::lab::LabCommand;
use super::labels::{Label, Labels};
use super::settings::Layer;
use super::values::{
    ByteRange, DemoRate, Dscp, DscpLevels, HostPort, Join, Kill, Listen, Loss, LossResponse, Mtu, Port,
    ProgressMode, Rack, Rate, Rerate, SourceCount, Spread, Theta, Transport, Via, truth,
};

pub(crate) use self::tcp::{TcpCommand, TcpReceiveArgs, TcpSendArgs};
use crate::app::Receivers;

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
/// enough. `headwater demo` shows it all on this machine.
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
    /// Offer files and folders where they lie, until stopped; nothing is copied
    Serve(Box<ServeArgs>),
    /// Fetch an object from every source that has it
    Get(Box<GetArgs>),
    /// Send an object to many nodes at once
    Cast(CastArgs),
    /// Keep a copy of a file or folder in this machine's store
    Put(Box<PutArgs>),
    /// List objects and who has them
    Ls(LsArgs),
    /// Remove an object from this machine's store
    Rm(RmArgs),
    /// Show nodes, objects, running tasks and casts
    Status(StatusArgs),
    /// Show many sources and one receiver at work on this machine, with real packets
    Demo(Box<DemoArgs>),
    /// Experiments of the papers in a simulated network: list, run, report
    #[command(subcommand)]
    Lab(LabCommand),
    /// Run a network of a scenario under real programs, each host a network namespace
    Emulate(EmulateArgs),
    /// Try the product on this machine while things go wrong: losses, dead links, dead and frozen sources
    Drill(DrillArgs),
    /// How fast parts of the product are on this machine
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

/// On every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Folder for keys, known fingerprints and the store [env: HEADWATER_HOME] [default: headwater in the user's data
    /// folder]
    #[arg(long, global = true, value_name = "DIR", help_heading = COMMON)]
    state: Option<PathBuf>,

    /// Config file [env: HEADWATER_CONFIG] [default: headwater/config.toml in the user's config folder, if there]
    #[arg(long, global = true, value_name = "FILE", help_heading = COMMON)]
    pub(crate) config: Option<PathBuf>,

    /// Print compact JSON on standard output and nothing else there: one object per line, the result last
    ///
    /// A failure is one object too: {"error":{"kind":...,"message":...,"exit_code":...}}. Where standard output carries
    /// an object's bytes (`-o -`), the JSON goes to standard error.
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", value_parser = truth, hide_possible_values = true, help_heading = COMMON)]
    json: Option<bool>,

    /// How to show progress; bars and plain lines go to standard error
    #[arg(long, global = true, value_name = "HOW", help_heading = COMMON)]
    progress: Option<ProgressMode>,

    /// Log more to standard error: -v, -vv, -vvv; RUST_LOG wins over both
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = COMMON)]
    pub(crate) verbose: u8,

    /// Log errors only, and show neither progress nor summary
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = COMMON)]
    pub(crate) quiet: bool,
}

impl Global {
    pub(crate) fn fill(&self, layer: &mut Layer) {
        layer.state.clone_from(&self.state);
        layer.json = self.json;
        layer.progress = self.progress;
    }
}

/// Which controller, and who it must be.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControllerFlag {
    /// The controller: HOST or HOST:PORT [default port: 7000] [default: the one that this machine's daemon belongs to]
    #[arg(long, value_name = "ADDR", help_heading = NETWORK)]
    controller: Option<HostPort>,

    #[command(flatten)]
    trust: TrustFlag,
}

impl ControllerFlag {
    fn fill(&self, layer: &mut Layer) {
        layer.controller.clone_from(&self.controller);
        self.trust.fill(layer);
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TrustFlag {
    /// The only fingerprint to accept (64 hex digits, as the other side prints it)
    ///
    /// Without it the first contact with an address is remembered in the state folder, and a different fingerprint
    /// later is refused, as ssh's accept-new does.
    #[arg(long, value_name = "FINGERPRINT", help_heading = NETWORK)]
    pin: Option<NodeId>,
}

impl TrustFlag {
    fn fill(&self, layer: &mut Layer) {
        layer.pin = self.pin;
    }
}

/// What this machine can do.
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineFlags {
    /// What this machine can send, as in 1Gbit/s [default: measured]
    #[arg(long, value_name = "RATE", help_heading = NETWORK)]
    uplink: Option<Rate>,

    /// What this machine can receive, as in 1Gbit/s [default: measured]
    #[arg(long, value_name = "RATE", help_heading = NETWORK)]
    downlink: Option<Rate>,

    /// The rack this machine is in, and what the rack's uplink carries, as in r7=10Gbit/s
    #[arg(long, value_name = "NAME[=RATE]", help_heading = NETWORK)]
    rack: Option<Rack>,

    /// What this machine is to be known by, as in zone=eu; may be repeated. `rack=NAME` says the same as --rack
    ///
    /// `headwater cast --label zone=eu` sends to all nodes that carry it, and `headwater status` lists them.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help_heading = NETWORK)]
    label: Vec<Label>,

    /// UDP port of the data socket [default: 0, any free one]
    #[arg(long, value_name = "PORT", help_heading = NETWORK)]
    data_port: Option<Port>,
}

impl MachineFlags {
    fn fill(&self, layer: &mut Layer) {
        layer.uplink = self.uplink;
        layer.downlink = self.downlink;
        layer.rack.clone_from(&self.rack);
        layer.label = Some(Labels(self.label.clone())).filter(|labels| !labels.0.is_empty());
        layer.data_port = self.data_port;
    }
}

/// How data packets are sent.
#[derive(Clone, Debug, Args)]
pub(crate) struct SendingFlags {
    /// Never go faster than this, as in 200Mbit/s
    #[arg(long, value_name = "RATE", help_heading = NETWORK)]
    limit: Option<Rate>,

    /// Background class: give way to everything else
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", value_parser = truth, help_heading = NETWORK)]
    gentle: Option<bool>,

    /// Differentiated services code point of data packets, 0..=63 [default: 0]
    #[arg(long, value_name = "N", help_heading = NETWORK)]
    dscp: Option<Dscp>,

    /// That of datagrams without data (ACKs, assignments and the like), 0..=63 [default: as --dscp says]
    ///
    /// 48 (CS6) where switches give ACKs a class of their own and trust hosts to say so; at the edge of other networks it
    /// may be remarked or policed. Control connections (QUIC) always have 0.
    #[arg(long, value_name = "N", help_heading = EXPERIMENT)]
    dscp_control: Option<Dscp>,

    /// Those of data packets of flows whose receivers pull, by what a flow has sent, first level first [default: 27,19,11, or
    /// as --dscp says where that is given]
    ///
    /// For switches that have a queue for each level. They are from the pool for local use (RFC 2474): other networks treat
    /// them as the default.
    #[arg(long, value_name = "N,N,N", help_heading = EXPERIMENT)]
    dscp_levels: Option<DscpLevels>,

    /// What packets are known by whose payload a switch has cut off, 0..=63 [default: 51]
    #[arg(long, value_name = "N", help_heading = EXPERIMENT)]
    dscp_trimmed: Option<Dscp>,

    /// Largest IP packet to use, in bytes [default: what the interface says]
    #[arg(long, value_name = "BYTES", help_heading = NETWORK)]
    mtu: Option<Mtu>,

    /// What random loss does to a window [default: guarded]
    #[arg(long, value_name = "HOW", help_heading = EXPERIMENT)]
    loss_response: Option<LossResponse>,
}

impl SendingFlags {
    fn fill(&self, layer: &mut Layer) {
        layer.limit = self.limit;
        layer.gentle = self.gentle;
        layer.dscp = self.dscp;
        layer.dscp_control = self.dscp_control;
        layer.dscp_levels = self.dscp_levels;
        layer.dscp_trimmed = self.dscp_trimmed;
        layer.mtu = self.mtu;
        layer.loss_response = self.loss_response;
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MetricsFlag {
    /// Answer Prometheus at this address, as in 127.0.0.1:9464 or :9464 (every address)
    #[arg(long, value_name = "ADDR", help_heading = NETWORK)]
    metrics: Option<Listen>,
}

impl MetricsFlag {
    fn fill(&self, layer: &mut Layer) {
        layer.metrics = self.metrics;
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SourcesFlag {
    /// Use at most so many sources per task at once [default: 3]
    #[arg(long, value_name = "N", help_heading = NETWORK)]
    max_sources: Option<SourceCount>,
}

impl SourcesFlag {
    fn fill(&self, layer: &mut Layer) {
        layer.max_sources = self.max_sources;
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PlanningFlags {
    #[command(flatten)]
    sources: SourcesFlag,

    /// Give every flow the same weight instead of planning it (PPUSH Algorithm 1)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", value_parser = truth, help_heading = EXPERIMENT)]
    equal_theta: Option<bool>,

    /// Multicast addresses that casts may have, as in 239.195.0.0/16:7003, with commas between; `none`: no multicast [default: 239.195.0.0/16:7003,ff05::4857:0/112:7003]
    ///
    /// Each cast has one of them to itself while it runs. Controllers that share a network should have ranges of their own.
    #[arg(long, value_name = "ADDR/BITS[:PORT],...", help_heading = NETWORK)]
    groups: Option<Groups>,
}

impl PlanningFlags {
    fn fill(&self, layer: &mut Layer) {
        self.sources.fill(layer);
        layer.groups.clone_from(&self.groups);
        layer.equal_theta = self.equal_theta;
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct QuotaFlag {
    /// The most that stored objects may take together, as in 500GiB [default: the disk]
    #[arg(long, value_name = "SIZE")]
    quota: Option<Bytes>,
}

impl QuotaFlag {
    fn fill(&self, layer: &mut Layer) {
        layer.quota = self.quota;
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TimeoutFlag {
    /// Give up after this long, as in 30s
    #[arg(long, value_name = "TIME")]
    timeout: Option<Duration>,
}

impl TimeoutFlag {
    fn fill(&self, layer: &mut Layer) {
        layer.timeout = self.timeout;
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ListenFlag {
    /// Address of this machine to listen on: IP, IP:PORT or :PORT [default: every address; port 7000 for `up` and
    /// `controller`, 7001 for `node` and `serve`]
    ///
    /// It is the control address, which others pass to --join, --controller or --from. Data goes over a UDP port of its
    /// own (--data-port), announced over the control connection. Port 0 takes any free one; what was taken is printed.
    #[arg(long, value_name = "ADDR")]
    listen: Option<Listen>,
}

impl ListenFlag {
    fn fill(&self, layer: &mut Layer) {
        layer.listen = self.listen;
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater up
  headwater up --uplink 10Gbit/s --quota 500GiB --metrics 127.0.0.1:9464

Then on every other machine:
  headwater node --join FIRST_MACHINE")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    listen: ListenFlag,
    #[command(flatten)]
    quota: QuotaFlag,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    sending: SendingFlags,
    #[command(flatten)]
    planning: PlanningFlags,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    pub(crate) timeline: TimelineFlags,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater controller
  headwater controller --listen 10.0.0.1:7000 --state /var/lib/headwater --metrics 127.0.0.1:9464

Tasks survive a restart of the controller; running transfers go on without it.")]
pub(crate) struct ControllerArgs {
    #[command(flatten)]
    listen: ListenFlag,
    #[command(flatten)]
    planning: PlanningFlags,
    #[command(flatten)]
    metrics: MetricsFlag,
    /// The network, in a file: casts go by its trees
    ///
    /// TOML: `fabric = { kind = "bcube", n = 4, levels = 1, rate = "1 Gbit/s", delay = "5 us" }`, or any other fabric of an experiment;
    /// `hosts = ["10.0.0.1", ...]`, an address for each in the order of their numbers, or a list of one for each of its cables, behind
    /// which any others may stand by which it is known; `switches = "plain"`, or "stores" where they keep and copy what trees carry.
    /// The rates bound what trees send. They count frames with preamble and gap; `framing = 14` (bytes around an IP packet) if not.
    #[arg(long, value_name = "FILE", help_heading = NETWORK, value_hint = clap::ValueHint::FilePath)]
    pub(crate) topology: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater node --join 10.0.0.1
  headwater node --join 10.0.0.1:7000 --listen 10.0.0.2:7001 --rack r7=10Gbit/s --pin FINGERPRINT
  headwater node --join 10.0.0.1 --label rack=r7 --label zone=eu")]
pub(crate) struct NodeArgs {
    /// The controller: HOST or HOST:PORT [default port: 7000] [default: the setting `controller`]
    #[arg(long, value_name = "ADDR")]
    join: Option<HostPort>,
    #[command(flatten)]
    trust: TrustFlag,
    #[command(flatten)]
    listen: ListenFlag,
    #[command(flatten)]
    quota: QuotaFlag,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    sending: SendingFlags,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    pub(crate) timeline: TimelineFlags,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater serve model.bin
  headwater serve --name model ./model-v2.bin --controller 10.0.0.1
  headwater serve dataset/ --listen 10.0.0.2:7001 --gentle

Elsewhere:
  headwater get model.bin --from THIS_MACHINE -o model.bin

A file that changes while it is served is withdrawn; serve it again.")]
pub(crate) struct ServeArgs {
    /// Files and folders; a folder becomes one object that lists its files
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Name of the object [default: the file's name]; only with one FILE
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Record every input of this source, for `debug replay`
    #[arg(long, value_name = "FILE", help_heading = EXPERIMENT)]
    pub(crate) record: Option<PathBuf>,
    /// Tell this controller what is here: HOST or HOST:PORT [default port: 7000] [default: tell nobody]
    #[arg(long, value_name = "ADDR")]
    controller: Option<HostPort>,
    #[command(flatten)]
    trust: TrustFlag,
    #[command(flatten)]
    listen: ListenFlag,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    sending: SendingFlags,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    pub(crate) timeline: TimelineFlags,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater get model -o model.bin
  headwater get model.bin --from 10.0.0.1,10.0.0.2,10.0.0.3 --hash HEX
  headwater get backup.tar --from 10.0.0.1 -o - | tar x
  headwater get disk.img --controller 10.0.0.1 --range 1MiB-2MiB -o part.bin
  headwater get model -o model.bin --json --progress json
  headwater get model --keep

An interrupted get goes on from its finished blocks when the same command is run again.")]
pub(crate) struct GetArgs {
    /// A name, an id (64 hex digits), or the beginning of an id
    #[arg(value_name = "NAME|ID")]
    pub(crate) what: String,
    /// Where to write: a file, an existing folder, or - for standard output [default: the object's name]
    ///
    /// A file appears under its name only when it is complete and verified. With `-` verified blocks are written in
    /// order as they finish, nothing else goes to standard output, and --json goes to standard error.
    #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) output: Option<PathBuf>,
    /// Keep it in this machine's store instead of a file
    ///
    /// The daemon of the state folder fetches it over its own data port, keeps it and offers it to others from then on.
    /// Without a daemon this command puts it into the store. What is there already is not fetched again, unless --force
    /// is given.
    #[arg(long, conflicts_with_all = ["output", "from", "range", "sha256", "record", "wait_for_start", "timeline", "tuning"])]
    pub(crate) keep: bool,
    /// Sources to fetch from, without any controller: HOST or HOST:PORT, with commas between [default port: 7001]
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',', conflicts_with = "controller")]
    pub(crate) from: Vec<HostPort>,
    #[command(flatten)]
    controller: ControllerFlag,
    /// Fetch only bytes A to B of the object, A included, B not; `A-` goes to the end
    ///
    /// Counted from 0, with units where you like: 0-1 is the first byte, 1MiB-2MiB the second mebibyte, 4096- all but
    /// the first 4096 bytes. Only the blocks that cover the range are fetched, and each is verified. The output has B - A
    /// bytes; an end behind the object's is cut to it.
    #[arg(long, value_name = "A-B")]
    pub(crate) range: Option<ByteRange>,
    /// Accept only the object with this id (BLAKE3, 64 hex digits), whatever the name points at
    #[arg(long, value_name = "HEX")]
    pub(crate) hash: Option<ObjectId>,
    /// Compute SHA-256 too, while the object comes in
    #[arg(long)]
    pub(crate) sha256: bool,
    /// Replace the output file if there is one
    #[arg(long, visible_alias = "overwrite")]
    pub(crate) force: bool,
    #[command(flatten)]
    timeout: TimeoutFlag,
    #[command(flatten)]
    sources: SourcesFlag,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    sending: SendingFlags,
    /// Who decides when a symbol leaves: its source, by what the path takes, or this receiver, which asks for each
    #[arg(long, value_name = "HOW", default_value_t)]
    pub(crate) transport: Transport,
    /// End at once when the object is here, although others are still served from it
    ///
    /// With a controller, those who fetch one object at the same time pass on to each other what they get, where that is faster
    /// than to be served one by one. Who has all of it says so, and then stays for those whom it serves until they have what they
    /// need of it, 2 seconds at most; Ctrl-C ends that too. Whoever goes before tells them, and they turn to others at once.
    /// Nobody is served from a --range, under a --limit, or with --from.
    #[arg(long)]
    pub(crate) no_linger: bool,
    /// Which symbols a source that pushes sends [default: listed, or what --tuning says]
    #[arg(long, value_name = "HOW", help_heading = EXPERIMENT)]
    spread: Option<Spread>,
    /// Weight of every flow: `auto` or a number of at least 0.5; a number only with --from [default: auto]
    #[arg(long, value_name = "VALUE", help_heading = EXPERIMENT)]
    theta: Option<Theta>,
    /// Record every input of this receiver, for `debug replay`
    #[arg(long, value_name = "FILE", help_heading = EXPERIMENT)]
    pub(crate) record: Option<PathBuf>,
    /// Connect, say so ({"type":"ready"} with --json), and request only after a line on standard input
    ///
    /// The seconds of the result, and --timeout, then count from that line.
    #[arg(long, help_heading = EXPERIMENT)]
    pub(crate) wait_for_start: bool,
    #[command(flatten)]
    pub(crate) timeline: TimelineFlags,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater put model.bin --name model
  headwater cast model --all
  headwater cast model --to 10.0.0.2,10.0.0.3,worker-7
  headwater cast model --label zone=eu --label disk=ssd
  headwater cast model --all --via overlay --json
  headwater cast model --all --via trees        (where the controller runs with --topology FILE)

Every receiver runs `headwater node` (or `up`) and keeps the object in its store, verified, and offers it from then on.

Where the controller was given the network (--topology), the object comes down disjoint trees of it, each symbol about once over
each link. What goes wrong is led around; a receiver that no tree reaches any more is served by itself, unless --via trees insists.

Where the network carries IP multicast from the source to at least two receivers, which a probe finds out before anything is
sent, each symbol leaves the source once and switches copy it. A receiver that stands still for half a second does not hold up
the others: it is detached, and catches up by a flow of its own. Receivers that the probe does not reach are served one by one.

Where multicast does not work, the receivers form an overlay: each gets another part of the object from the source and passes it
on to all others as it comes, so that the source sends about one copy and all have it in about the time of one. A slow receiver
does not hold up the others, and one that dies costs them its part, no more. Where nodes say in which rack they stand
(`headwater node --label rack=NAME`), each part enters a rack about once and is handed on inside. The command says which way it
is and why.

Ctrl-C stops all receivers. What is finished on each is kept: the same command goes on from there, and does nothing on those that
have the object already. If this command is killed or loses the controller, the cast goes on without it.

The command fails if any receiver does not have the object in the end; the table, or --json, says which and why.")]
pub(crate) struct CastArgs {
    /// A name, an id (64 hex digits), or the beginning of an id
    #[arg(value_name = "NAME|ID")]
    pub(crate) what: String,
    /// Which nodes: names, addresses or fingerprints as `headwater status` lists them, with commas between
    #[arg(
        long,
        value_name = "NODE,...",
        value_delimiter = ',',
        required_unless_present_any = ["all", "label"],
        conflicts_with_all = ["all", "label"]
    )]
    pub(crate) to: Vec<String>,
    /// All nodes that keep objects and are connected now
    #[arg(long, conflicts_with = "label")]
    pub(crate) all: bool,
    /// Of those, the ones that carry this label, as in rack=r1; may be repeated: then those that carry all of them
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub(crate) label: Vec<Label>,
    /// How it is to travel
    #[arg(long, value_name = "HOW", default_value_t)]
    pub(crate) via: Via,
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
}

impl CastArgs {
    /// Whom it is for.
    pub(crate) fn receivers(&self) -> Receivers {
        match (self.all, self.label.is_empty()) {
            (true, _) => Receivers::All,
            (false, true) => Receivers::Named(self.to.clone()),
            (false, false) => {
                let labels = self.label.iter().map(|label| (label.key.clone(), label.value.clone()));
                Receivers::Labelled(labels.collect())
            }
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater put model.bin --name model
  headwater put dataset/
  headwater put huge.img --link

The file is cloned where the file system can (no bytes move), else copied. With --link it is hard-linked: quick and
small everywhere, but then the file must never change again.

A daemon on the same state folder offers the object at once; without one, start it: headwater node --join HOST.")]
pub(crate) struct PutArgs {
    /// The file or folder
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) file: PathBuf,
    /// Name of the object [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Hard-link instead of copying; the file must never change again
    #[arg(long)]
    pub(crate) link: bool,
    #[command(flatten)]
    quota: QuotaFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater ls
  headwater ls --controller 10.0.0.1 --json

With --json, one line per object: object, name, bytes, holders.")]
pub(crate) struct LsArgs {
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater rm model
  headwater rm 1f3a9c42

Copies on other machines stay.")]
pub(crate) struct RmArgs {
    /// A name, an id (64 hex digits), or the beginning of an id
    #[arg(value_name = "NAME|ID")]
    pub(crate) what: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater status
  headwater status --watch
  headwater status --controller 10.0.0.1 --json")]
pub(crate) struct StatusArgs {
    /// Show it again and again, every TIME, until interrupted
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater demo
  headwater demo --rates 100,100,300 --loss 1%
  headwater demo --kill 2@2s            the third source vanishes after 2 s, without a goodbye
  headwater demo --join 300@2s          a further source appears
  headwater demo --rerate 2@2s=20       the third source's uplink drops to 20 Mbit/s
  headwater demo --json                 one object at the end

Sources count from 0, those of --rates first, then those of --join. Times run from the first request. As root the
network is built from namespaces with limited links; otherwise it is this machine's loopback with capped sources, and the
demo says so.")]
pub(crate) struct DemoArgs {
    /// Uplink of each source; bare numbers are Mbit/s
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_value = "100,100,300")]
    pub(crate) rates: Vec<DemoRate>,
    /// Size of the object, random bytes
    #[arg(long, default_value = "256MiB")]
    pub(crate) size: Bytes,
    /// Share of data packets lost at random, as in 1% or 0.01
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Loss,
    /// Source I vanishes after T, as in 2@2s; may be repeated
    #[arg(long, value_name = "I@T")]
    pub(crate) kill: Vec<Kill>,
    /// A further source with this uplink appears after T, as in 200@2s; may be repeated
    #[arg(long, value_name = "RATE@T")]
    pub(crate) join: Vec<Join>,
    /// The uplink of source I becomes RATE after T, as in 2@2s=20; may be repeated
    #[arg(long, value_name = "I@T=RATE")]
    pub(crate) rerate: Vec<Rerate>,
    /// Where everything random comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the files and logs, and say where they are
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    sending: SendingFlags,
}

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
    /// Send and receive by the kernel's TCP, to compare with or to be beside
    #[command(subcommand, after_help = tcp::EXAMPLE)]
    Tcp(TcpCommand),
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
    /// What `get --record` or `serve --record` wrote
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_long_help = "Order, the later wins:
  built-in default < config file < environment < flag

The file is TOML, one `name = value` per line without sections, names as printed here; the variable of each setting is
HEADWATER_ and its name in capitals (state: HEADWATER_HOME). What this command prints is a valid config file:
  headwater config --uplink 1Gbit/s >~/.config/headwater/config.toml

A setting that a command has no use for is ignored by it, so one file serves all of them. With --json, one line per
setting: name, value (null where unset), origin (default, daemon, file, env, flag or null), from (the file or variable).")]
/// Print every setting that a config file can hold, and where its value comes from.
///
/// Settings come from built-in defaults, the config file, the environment and flags; the later of these wins.
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    listen: ListenFlag,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    sending: SendingFlags,
    #[command(flatten)]
    planning: PlanningFlags,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    quota: QuotaFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
    /// As in `get`
    #[arg(long, value_name = "HOW", help_heading = EXPERIMENT)]
    spread: Option<Spread>,
    /// As in `get`
    #[arg(long, value_name = "VALUE", help_heading = EXPERIMENT)]
    theta: Option<Theta>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater completions bash >~/.local/share/bash-completion/completions/headwater
  headwater completions zsh  >~/.zfunc/_headwater
  headwater completions fish >~/.config/fish/completions/headwater.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater man | man -l -
  headwater man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write headwater.1 and a page per command into this folder [default: headwater.1 on standard output]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

impl Command {
    /// The settings among this command's flags.
    pub(crate) fn fill(&self, layer: &mut Layer) {
        match self {
            Command::Up(args) => {
                args.listen.fill(layer);
                args.quota.fill(layer);
                args.machine.fill(layer);
                args.sending.fill(layer);
                args.planning.fill(layer);
                args.metrics.fill(layer);
            }
            Command::Controller(args) => {
                args.listen.fill(layer);
                args.planning.fill(layer);
                args.metrics.fill(layer);
            }
            Command::Node(args) => {
                layer.controller.clone_from(&args.join);
                args.trust.fill(layer);
                args.listen.fill(layer);
                args.quota.fill(layer);
                args.machine.fill(layer);
                args.sending.fill(layer);
                args.metrics.fill(layer);
            }
            Command::Serve(args) => {
                layer.controller.clone_from(&args.controller);
                args.trust.fill(layer);
                args.listen.fill(layer);
                args.machine.fill(layer);
                args.sending.fill(layer);
                args.metrics.fill(layer);
            }
            Command::Get(args) => {
                args.controller.fill(layer);
                args.timeout.fill(layer);
                args.sources.fill(layer);
                args.machine.fill(layer);
                args.sending.fill(layer);
                layer.spread = args.spread;
                layer.theta = args.theta;
            }
            Command::Cast(args) => {
                args.controller.fill(layer);
                args.timeout.fill(layer);
            }
            Command::Put(args) => args.quota.fill(layer),
            Command::Ls(args) => {
                args.controller.fill(layer);
                args.timeout.fill(layer);
            }
            Command::Rm(_) => {}
            Command::Status(args) => {
                args.controller.fill(layer);
                args.timeout.fill(layer);
            }
            Command::Demo(args) => args.sending.fill(layer),
            Command::Config(args) => {
                args.controller.fill(layer);
                args.listen.fill(layer);
                args.machine.fill(layer);
                args.sending.fill(layer);
                args.planning.fill(layer);
                args.metrics.fill(layer);
                args.quota.fill(layer);
                args.timeout.fill(layer);
                layer.spread = args.spread;
                layer.theta = args.theta;
            }
            Command::Lab(_)
            | Command::Emulate(_)
            | Command::Drill(_)
            | Command::Bench(_)
            | Command::Debug(_)
            | Command::Completions(_)
            | Command::Man(_) => {}
        }
    }
}

mod tcp;
#[cfg(test)]
mod tests;
