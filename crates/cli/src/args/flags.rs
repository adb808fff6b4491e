//! Flags that several commands share.

use std::path::PathBuf;

use clap::Args;
use headwater_units::{Bytes, Duration, NodeId};

use super::{COMMON, EXPERIMENT, NETWORK};
use crate::settings::Layer;
use crate::values::groups::Groups;
use crate::values::labels::{Label, Labels};
use crate::values::{
    Dscp, DscpLevels, HostPort, Listen, LogFormat, LogLevel, LossResponse, Mtu, NodeName, Port, ProgressMode,
    Rack, Rate, SourceCount, size, truth,
};

/// On every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Folder for keys, known fingerprints and the store [env: HEADWATER_HOME] [default: headwater in the user's data
    /// folder]
    #[arg(long, global = true, value_name = "DIR", help_heading = COMMON)]
    pub(super) state: Option<PathBuf>,

    /// Config file, instead of all others [env: HEADWATER_CONFIG] [default: /etc/headwater/config.toml, then
    /// headwater/config.toml in the user's config folder, if there]
    #[arg(long, global = true, value_name = "FILE", help_heading = COMMON)]
    pub(crate) config: Option<PathBuf>,

    /// Print compact JSON on standard output and nothing else there: one object per line, the result last
    ///
    /// A failure is one object too: {"error":{"kind":...,"message":...,"exit_code":...}}. Where standard output carries
    /// an object's bytes (`-o -`), the JSON goes to standard error.
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", value_parser = truth, hide_possible_values = true, help_heading = COMMON)]
    pub(super) json: Option<bool>,

    /// How to show progress; bars and plain lines go to standard error
    #[arg(long, global = true, value_name = "HOW", help_heading = COMMON)]
    progress: Option<ProgressMode>,

    /// Log more to standard error: -v, -vv, -vvv; RUST_LOG wins over both
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = COMMON)]
    pub(crate) verbose: u8,

    /// Log errors only, and show neither progress nor summary
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = COMMON)]
    pub(crate) quiet: bool,

    /// Least severe level to log to standard error; -v, -q and RUST_LOG win over it [default: info for `up`, `node`, `controller` and
    /// `serve`, else warn]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = COMMON)]
    log_level: Option<LogLevel>,

    /// Format of log lines [default: text]
    #[arg(long, global = true, value_name = "HOW", help_heading = COMMON)]
    log_format: Option<LogFormat>,
}

impl Global {
    pub(crate) fn fill(&self, layer: &mut Layer) {
        layer.state.clone_from(&self.state);
        layer.json = self.json;
        layer.progress = self.progress;
        layer.log_level = self.log_level;
        layer.log_format = self.log_format;
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
    pub(super) fn fill(&self, layer: &mut Layer) {
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
    pub(super) fn fill(&self, layer: &mut Layer) {
        layer.pin = self.pin;
    }
}

/// Name of a daemon's machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeNameFlag {
    /// Name of this machine in `headwater status` and by `cast --to` [default: its host name]
    #[arg(long = "node-name", value_name = "NAME", help_heading = NETWORK)]
    node_name: Option<NodeName>,
}

impl NodeNameFlag {
    pub(super) fn fill(&self, layer: &mut Layer) {
        layer.node_name.clone_from(&self.node_name);
    }
}

/// The same where no object has a name.
#[derive(Clone, Debug, Args)]
pub(crate) struct NameFlag {
    /// Name of this machine in `headwater status` and by `cast --to` [default: its host name]
    #[arg(long = "name", visible_alias = "node-name", value_name = "NAME", help_heading = NETWORK)]
    node_name: Option<NodeName>,
}

impl NameFlag {
    pub(super) fn fill(&self, layer: &mut Layer) {
        layer.node_name.clone_from(&self.node_name);
    }
}

/// Properties of this machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineFlags {
    /// Rate at which this machine can send, as in 1Gbit/s (bits) or 125MB/s (bytes): the sum of its links [default: measured]
    #[arg(long, value_name = "RATE", help_heading = NETWORK)]
    uplink: Option<Rate>,

    /// Rate at which this machine can receive, as in 1Gbit/s: the sum of its links [default: measured; pulls are not paced]
    ///
    /// A machine that pulls (`get --transport pull`, some casts) asks for symbols no faster than this, all that it fetches in turns.
    /// Where --uplink and --downlink are stated at both ends of a flow, it begins with a round trip's worth instead of a few packets.
    #[arg(long, value_name = "RATE", help_heading = NETWORK)]
    downlink: Option<Rate>,

    /// The rack this machine is in, and what the rack's uplink carries, as in r7=10Gbit/s
    #[arg(long, value_name = "NAME[=RATE]", help_heading = NETWORK)]
    rack: Option<Rack>,

    /// Label of this machine, as in zone=eu; may be repeated. `rack=NAME` says the same as --rack
    ///
    /// `headwater cast --label zone=eu` sends to all nodes that carry it, and `headwater status` lists them.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help_heading = NETWORK)]
    label: Vec<Label>,

    /// UDP port of the data socket [default: 0, any free one]
    #[arg(long, value_name = "PORT", help_heading = NETWORK)]
    data_port: Option<Port>,
}

impl MachineFlags {
    pub(super) fn fill(&self, layer: &mut Layer) {
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
    /// Never go faster than this, as in 200Mbit/s (bits) or 25MB/s (bytes)
    #[arg(long, value_name = "RATE", help_heading = NETWORK)]
    limit: Option<Rate>,

    /// Background class: yield to all other traffic, as far as the network shows it
    ///
    /// Packets carry the code point of lower effort (DSCP 1, RFC 8622), which switches with classes serve last. Among the tasks of a
    /// controller, those of this class come last. Where switches have no classes, pushed flows follow the delay of the queue: they
    /// leave TCP and other flows of Headwater nine tenths or more of their usual rate if the queue holds about 1 ms or more, and less
    /// in shorter queues or on long paths. Without other traffic they fill the link. Receivers that pull, overlays and trees do not
    /// follow delay. With `serve`, `node` and `up`: everything that this machine sends. docs/gentle.md has the rules.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", value_parser = truth, help_heading = NETWORK)]
    gentle: Option<bool>,

    /// Differentiated services code point of data packets, 0..=63 [default: 0]
    #[arg(long, value_name = "N", help_heading = NETWORK)]
    dscp: Option<Dscp>,

    /// Code point of datagrams without data (ACKs, assignments and the like), 0..=63 [default: the value of --dscp]
    ///
    /// 48 (CS6) where switches give ACKs and pulls a class of their own and trust hosts to say so, as switches that trim should; at
    /// the edge of other networks it may be remarked or policed. Control connections (QUIC) always have 0.
    #[arg(long, value_name = "N", help_heading = EXPERIMENT)]
    dscp_control: Option<Dscp>,

    /// Code points of a pulled flow's first 10 KB, of the bytes up to 100 KB, and of those up to 1 MB [default: 27,19,11, or the
    /// value of --dscp where that is given]
    ///
    /// From 1 to 10 MB a pulled flow has --dscp, then 1, lower effort. Its first window and its last symbol have the first level
    /// whatever its length, and so has the first window of a pushed flow where --uplink and --downlink are stated at its ends. For
    /// switches that have a queue for each level. They are from the pool for local use (RFC 2474): other networks treat them as the
    /// default.
    #[arg(long, value_name = "N,N,N", help_heading = EXPERIMENT)]
    dscp_levels: Option<DscpLevels>,

    /// Code point of trimmed packets, whose payload a switch has cut off, 0..=63 [default: 51]
    #[arg(long, value_name = "N", help_heading = EXPERIMENT)]
    dscp_trimmed: Option<Dscp>,

    /// Largest IP packet to use, in bytes [default: the interface's]
    #[arg(long, value_name = "BYTES", help_heading = NETWORK)]
    mtu: Option<Mtu>,

    /// How a window reacts to random loss [default: guarded]
    #[arg(long, value_name = "HOW", help_heading = EXPERIMENT)]
    loss_response: Option<LossResponse>,
}

impl SendingFlags {
    pub(super) fn fill(&self, layer: &mut Layer) {
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
    /// Answer Prometheus and health checks at this address, as in 127.0.0.1:9464 or :9464 (every address)
    ///
    /// `/metrics`: counters and gauges. `/healthz`: 200 while the process works, 503 and a reason if a part of it has ended: restart
    /// it. `/readyz`: 200 while it serves: its controller is joined, its store can be written, and it is not draining; else 503 and the
    /// reasons.
    #[arg(long, value_name = "ADDR", help_heading = NETWORK)]
    metrics: Option<Listen>,
}

impl MetricsFlag {
    pub(super) fn fill(&self, layer: &mut Layer) {
        layer.metrics = self.metrics;
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DrainFlag {
    /// When asked to stop (SIGTERM, Ctrl-C), go on serving receivers for at most this long [default: 30s; 0: stop at once]
    ///
    /// Meanwhile it gets no new task, and receivers that other sources can serve are handed over. A second signal stops it at once.
    #[arg(long, value_name = "TIME")]
    drain: Option<Duration>,
}

impl DrainFlag {
    pub(super) fn fill(&self, layer: &mut Layer) {
        layer.drain = self.drain;
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SourcesFlag {
    /// Maximum number of sources per task at once [default: 3]
    #[arg(long, value_name = "N", help_heading = NETWORK)]
    max_sources: Option<SourceCount>,
}

impl SourcesFlag {
    pub(super) fn fill(&self, layer: &mut Layer) {
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

    /// Multicast addresses for casts, as in 239.195.0.0/16:7003, with commas between; `none`: no multicast [default: 239.195.0.0/16:7003,ff05::4857:0/112:7003]
    ///
    /// Each cast has one of them to itself while it runs. Controllers that share a network should have ranges of their own.
    #[arg(long, value_name = "ADDR/BITS[:PORT],...", help_heading = NETWORK)]
    groups: Option<Groups>,
}

impl PlanningFlags {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.sources.fill(layer);
        layer.groups.clone_from(&self.groups);
        layer.equal_theta = self.equal_theta;
    }
}

/// How a controller orders what agents fetch.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CoflowFlag {
    /// Order of the coflows that agents fetch, where they name this controller
    #[arg(long, value_name = "POLICY", default_value = "aalo", help_heading = NETWORK)]
    pub(crate) coflow_order: CoflowOrder,
}

/// A policy that gives an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CoflowOrder {
    /// By what each has sent so far; needs no sizes
    Aalo,
    /// By bottleneck, select, scale, iterate, over what is left
    Sincronia,
    /// The smallest effective bottleneck first
    Varys,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct QuotaFlag {
    /// Maximum total size of stored objects, as in 500GiB [default: the disk's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    quota: Option<Bytes>,
}

impl QuotaFlag {
    pub(super) fn fill(&self, layer: &mut Layer) {
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
    pub(super) fn fill(&self, layer: &mut Layer) {
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
    pub(super) fn fill(&self, layer: &mut Layer) {
        layer.listen = self.listen;
    }
}
