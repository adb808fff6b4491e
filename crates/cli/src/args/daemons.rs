//! Commands that run until they are stopped.

use std::path::PathBuf;

use clap::Args;

use super::experiments::{TimelineFlags, TuningFlag};
use super::flags::{
    CoflowFlag, DrainFlag, ListenFlag, MachineFlags, MetricsFlag, NameFlag, NodeNameFlag, PlanningFlags,
    QuotaFlag, SendingFlags, TrustFlag,
};
use super::{EXPERIMENT, NETWORK};
use crate::settings::Layer;
use crate::values::HostPort;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater up
  headwater up --uplink 10Gbit/s --quota 500GiB --metrics 127.0.0.1:9464

Then on every other machine:
  headwater node --join FIRST_MACHINE")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    node_name: NameFlag,
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
    pub(crate) coflows: CoflowFlag,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    drain: DrainFlag,
    #[command(flatten)]
    pub(crate) timeline: TimelineFlags,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

impl UpArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.node_name.fill(layer);
        self.listen.fill(layer);
        self.quota.fill(layer);
        self.machine.fill(layer);
        self.sending.fill(layer);
        self.planning.fill(layer);
        self.metrics.fill(layer);
        self.drain.fill(layer);
    }
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
    pub(crate) coflows: CoflowFlag,
    #[command(flatten)]
    metrics: MetricsFlag,
    /// File that describes the network; casts then use its trees
    ///
    /// TOML: `fabric = { kind = "bcube", n = 4, levels = 1, rate = "1 Gbit/s", delay = "5 us" }`, or any other fabric of an experiment;
    /// `hosts = ["10.0.0.1", ...]`, one address per host in the order of their numbers, or one list per host: an address for each of
    /// its cables, then any others that it has; `switches = "plain"`, or "stores" where switches keep and copy what trees carry.
    /// The rates bound what trees send. They count frames with preamble and gap; set `framing = 14` (bytes around an IP packet) if not.
    #[arg(long, value_name = "FILE", help_heading = NETWORK, value_hint = clap::ValueHint::FilePath)]
    pub(crate) topology: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

impl ControllerArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.listen.fill(layer);
        self.planning.fill(layer);
        self.metrics.fill(layer);
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater node --join 10.0.0.1
  headwater node --join 10.0.0.1:7000 --listen 10.0.0.2:7001 --rack r7=10Gbit/s --pin FINGERPRINT
  headwater node --join 10.0.0.1 --name storage-7 --label rack=r7 --label zone=eu

A state folder is one node, wherever it listens and whatever it is called.")]
pub(crate) struct NodeArgs {
    /// The controller: HOST or HOST:PORT [default port: 7000] [default: the setting `controller`]
    #[arg(long, value_name = "ADDR")]
    join: Option<HostPort>,
    #[command(flatten)]
    trust: TrustFlag,
    #[command(flatten)]
    node_name: NameFlag,
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
    drain: DrainFlag,
    #[command(flatten)]
    pub(crate) timeline: TimelineFlags,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

impl NodeArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        layer.controller.clone_from(&self.join);
        self.trust.fill(layer);
        self.node_name.fill(layer);
        self.listen.fill(layer);
        self.quota.fill(layer);
        self.machine.fill(layer);
        self.sending.fill(layer);
        self.metrics.fill(layer);
        self.drain.fill(layer);
    }
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
    /// Leave sockets, pipes, devices and links that lead out of a folder out of its object, instead of refusing it
    #[arg(long)]
    pub(crate) skip_special: bool,
    /// Keep the modification times of a folder's files; equal folders with different times are then different objects
    #[arg(long)]
    pub(crate) keep_mtimes: bool,
    /// Record every input of this source, for `debug replay`
    #[arg(long, value_name = "FILE", help_heading = EXPERIMENT)]
    pub(crate) record: Option<PathBuf>,
    /// Controller to register the objects with: HOST or HOST:PORT [default port: 7000] [default: none]
    #[arg(long, value_name = "ADDR")]
    controller: Option<HostPort>,
    #[command(flatten)]
    trust: TrustFlag,
    #[command(flatten)]
    node_name: NodeNameFlag,
    #[command(flatten)]
    listen: ListenFlag,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    sending: SendingFlags,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    drain: DrainFlag,
    #[command(flatten)]
    pub(crate) timeline: TimelineFlags,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

impl ServeArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        layer.controller.clone_from(&self.controller);
        self.trust.fill(layer);
        self.node_name.fill(layer);
        self.listen.fill(layer);
        self.machine.fill(layer);
        self.sending.fill(layer);
        self.metrics.fill(layer);
        self.drain.fill(layer);
    }
}
