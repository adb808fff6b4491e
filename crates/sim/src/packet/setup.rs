//! The input of a packet run, in plain values: made from a scenario, or by a program.

use headwater_baseline as baseline;
use headwater_controller::ControllerConfig;
use headwater_fabric::{HostId, LinkId, Routes, Topology};
use headwater_switch::{Choice, LinkChange, PortConfig, StoreConfig};
use headwater_transport::pull::SessionConfig;
use headwater_transport::rate::RateReceiverConfig;
use headwater_transport::source::SourceConfig;
use headwater_transport::tree::TreeReceiverConfig;
use headwater_units::{BitRate, Bytes, Duration, Theta, Time};
use headwater_wire::{Class, Delivery, SpreadRule};
use thiserror::Error;

use super::frame::FrameSizes;

/// One packet run: a pure function of this.
pub struct Setup {
    /// The network.
    pub topology: Topology,
    /// Where switches send what is for a host.
    pub routes: Routes,
    /// The port of a link; the flag says whether a host's NIC is meant.
    pub port: Box<dyn Fn(LinkId, bool) -> PortConfig>,
    /// How a switch chooses among equal paths. Where the first one follows its sources ([`Choice::Path`]), all must: then a
    /// host takes another path with every packet, in an order of its own for each other host.
    pub choice: Box<dyn Fn(u32) -> Choice>,
    /// Lengths of frames.
    pub sizes: FrameSizes,
    /// Most time that a host takes to send a packet; the time is random: without it, flows that share a bottleneck can
    /// lock into a pattern in which always the same one finds the queue full (Floyd and Jacobson, "On traffic phase
    /// effects", 1991).
    pub jitter: Jitter,
    /// How control messages travel.
    pub control: ControlPlane,
    /// Transport of sources and receivers.
    pub transport: Transport,
    /// Tasks, ascending by time; background tasks may stand anywhere.
    pub tasks: Vec<TaskPlan>,
    /// Changes to the network and its hosts.
    pub changes: Vec<(Time, Change)>,
    /// Interval of samples, and which queues are sampled.
    pub sample: Option<Sampling>,
    /// The run ends then, whatever is left to do.
    pub until: Option<Time>,
    /// After the last task the run goes on, at most for this time, until all machines that can be reached are at rest.
    pub drain: Option<Duration>,
    /// How long a block takes to decode when symbols were lost, and how many symbols beyond K it needs.
    pub decode: DecodeModel,
    /// The true codec works on true bytes, and every header crosses `wire`.
    pub carry_bytes: bool,
    /// Everything that is drawn.
    pub seed: u64,
}

impl Setup {
    /// One data packet's time on the slowest link from one host to another; zero if there is no path.
    pub(super) fn packet_on_path(&self, from: u32, to: u32) -> Duration {
        let bytes = self.sizes.data.unwrap_or(Bytes::new(1500));
        packet_on_path(&self.topology, &self.routes, bytes, from, to)
    }

    /// How long a receiver waits for anybody.
    pub(super) fn patience(&self) -> Duration {
        match &self.transport {
            Transport::Coded(coded) => coded.source_patience,
            Transport::Baseline { .. } => Duration::ZERO,
        }
    }

    /// Whether a task is one of the product's machines.
    pub(super) fn is_coded(&self, plan: &TaskPlan) -> bool {
        matches!(self.flows_of(plan), Flows::Coded(_))
    }

    /// Transport of a task's flows.
    pub(super) fn flows_of(&self, plan: &TaskPlan) -> Flows {
        match (plan.background, &self.transport) {
            (Some(flows), _) => flows,
            (None, Transport::Coded(coded)) => Flows::Coded(coded.class),
            (None, Transport::Baseline { sender, .. }) => Flows::Baseline(*sender),
        }
    }
}

/// One packet's time on the slowest link from one host to another; zero if there is no path.
pub fn packet_on_path(topology: &Topology, routes: &Routes, packet: Bytes, from: u32, to: u32) -> Duration {
    let path = routes.path(topology, HostId(from), HostId(to), |_, _| 0);
    let links = path.iter().flat_map(|path| path.links());
    let rates = links.filter_map(|link| topology.fabric().link(*link)?.capacity);
    rates.min().map_or(Duration::ZERO, |slowest| packet / slowest)
}

/// One task: a receiver wants an object from some sources; with a baseline, an equal part from each. There may be further
/// receivers: those of symbols that are pulled from one source are a group (SCDP §III-E), all others have flows of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskPlan {
    /// Its name in records.
    pub name: String,
    /// When it arrives.
    pub at: Time,
    /// When it is stopped, if it does not end by itself.
    pub stop: Option<Time>,
    /// Its size in data packets: symbols of [`CodedSetup::symbol_size`] or segments.
    pub packets: u64,
    /// The size of its object, where that is not the whole packets (coded symbols only).
    pub bytes: Option<Bytes>,
    /// Hosts.
    pub sources: Vec<u32>,
    /// Host.
    pub receiver: u32,
    /// Further hosts that want it too (not of pushed symbols).
    pub further: Vec<u32>,
    /// Only the first receiver has it from the source; each other one from the one before it, which sends on what it has (NDP
    /// only). Else each has it from the sources.
    pub relayed: bool,
    /// Weight of each flow, where the experiment states it.
    pub thetas: Option<Vec<Theta>>,
    /// It should be done within this time; of scheduled symbols only.
    pub deadline: Option<Duration>,
    /// Whether the run waits for its end.
    pub awaited: bool,
    /// Its flows run this, whatever [`Setup::transport`] is: background, or a task that is compared with others.
    pub background: Option<Flows>,
}

/// Transport of a task's flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flows {
    /// Coded symbols of this class, by the machines of [`Transport::Coded`]; beside it as background only where they are pulled.
    Coded(Class),
    /// A baseline.
    Baseline(baseline::SenderConfig),
}

impl TaskPlan {
    /// Whether the run goes on until it is done.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Everybody who wants it.
    pub(super) fn receivers(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.receiver).chain(self.further.iter().copied())
    }

    /// The size of its object in symbols of T bytes.
    pub(super) fn object_bytes(&self, symbol: u16) -> Bytes {
        self.bytes.unwrap_or_else(|| object_bytes(self.packets, symbol))
    }
}

/// How long a host may take to send a packet; each packet's time is drawn evenly from zero to this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// No time at all.
    None,
    /// Up to this.
    UpTo(Duration),
    /// Up to one data packet's time on the slowest link of its path.
    PacketOnPath,
}

/// How control messages between nodes and controller travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlPlane {
    /// Beside the network: nothing is lost, everything takes this long one way.
    Beside {
        /// One way.
        delay: Duration,
    },
    /// As packets of the top class, to and from this host. Nobody acknowledges who a node is and what it holds, so nodes
    /// say it again all the time.
    AtHost {
        /// Where the controller runs.
        host: u32,
    },
}

impl ControlPlane {
    /// How long a message takes beside the network, if that is where it travels.
    #[inline]
    pub(super) fn delay(self) -> Option<Duration> {
        match self {
            ControlPlane::Beside { delay } => Some(delay),
            ControlPlane::AtHost { .. } => None,
        }
    }
}

/// Transport of sources and receivers.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Coded symbols, pushed or pulled, by the machines of the product.
    Coded(Box<CodedSetup>),
    /// One of the baselines, a flow from each source.
    Baseline {
        /// The sending end.
        sender: baseline::SenderConfig,
        /// The receiving end.
        receiver: baseline::ReceiverConfig,
    },
}

/// Settings of the machines of PPUSH, SCDP, Datacast and PAM.
#[derive(Clone, Debug)]
pub struct CodedSetup {
    /// Every source.
    pub source: SourceConfig,
    /// How work is spread over sources.
    pub spread: SpreadRule,
    /// Packets that a receiver's buffer holds.
    pub receive_window: u32,
    /// Blocks that a receiver keeps open.
    pub blocks_in_flight: usize,
    /// An ACK never waits longer.
    pub max_ack_delay: Duration,
    /// Time without any symbol after which a receiver gives up.
    pub source_patience: Duration,
    /// The controller's settings.
    pub controller: ControllerConfig,
    /// T.
    pub symbol_size: u16,
    /// How symbols queue.
    pub class: Class,
    /// Capacity of each host's links that Algorithm 1 assumes.
    pub host_rate: Option<BitRate>,
    /// Capacities of each host's own links, away from it and towards it, where each states those instead.
    pub lines: Vec<(BitRate, BitRate)>,
    /// The links that each host shares with its rack, where those are narrower: name and rate.
    pub racks: Vec<Option<(String, BitRate)>>,
    /// Which transport tasks ask for; a pulled one of several sources, with another first window.
    pub delivery: Delivery,
    /// Receivers pull (SCDP), and a script stands for the controller; `None`: sources push.
    pub pull: Option<PullSetup>,
    /// Receivers ask along trees (Datacast), with the same script; `None` where they pull or are pushed to.
    pub trees: Option<TreeSetup>,
    /// Switches compute what sources send at (PAM), with the same script; how receivers answer. `None` where they do not.
    pub rates: Option<RateReceiverConfig>,
}

/// Further configuration of pulling receivers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PullSetup {
    /// Every receiver.
    pub session: SessionConfig,
    /// Symbols that each of several sources pushes (IW).
    pub many_window: u16,
    /// Bytes that receivers leave free of their links for each symbol that they pull.
    pub headroom: Bytes,
}

/// Further configuration of receivers along trees, and of the devices on these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeSetup {
    /// Every receiver.
    pub receiver: TreeReceiverConfig,
    /// Every device where a tree branches.
    pub store: StoreConfig,
    /// Most trees of a group.
    pub most: usize,
}

impl CodedSetup {
    /// Whether a script stands for the controller, whatever the tasks state.
    pub(super) fn is_scripted(&self) -> bool {
        self.pull.is_some() || self.trees.is_some() || self.rates.is_some()
    }

    /// Which transport a task asks for.
    pub(super) fn delivery(&self, plan: &TaskPlan) -> Delivery {
        match (self.delivery, self.pull) {
            (Delivery::Pull { .. }, Some(PullSetup { many_window: initial_window, .. }))
                if plan.sources.len() > 1 =>
            {
                Delivery::Pull { initial_window }
            }
            (Delivery::Rate { .. }, _) => {
                let receivers = u16::try_from(plan.further.len() + 1).unwrap_or(u16::MAX);
                Delivery::Rate { receivers, deadline: plan.deadline, terms: None }
            }
            (delivery, _) => delivery,
        }
    }
}

/// A change to the network or a host.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// To a link.
    Link(LinkId, LinkChange),
    /// A host hears and says nothing from now on, or again.
    Paused(u32, bool),
    /// A host forgets all but its objects and finished blocks.
    Restart(u32),
    /// A host is gone without a goodbye: it hears and says nothing until it restarts and is no longer paused. Its
    /// knowledge is of no use to it then.
    Killed(u32),
    /// The controller forgets all but what it was told to keep.
    RestartController,
    /// The records that the controller had its driver keep are lost (casts only).
    LoseControllerState,
    /// A host is not as it should be, or is again (casts only).
    Member(u32, MemberFault),
}

/// Faults of a host that takes part in casts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemberFault {
    /// Its disk is full: nothing can be written.
    DiskFull(bool),
    /// Nothing can be read from its disk.
    DiskUnreadable(bool),
    /// Its disk is slower by this delay.
    DiskLate(Duration),
    /// Each symbol that it sends or passes on has wrong bytes with this probability.
    WrongSymbols(f64),
    /// Each ACK, assignment, pull, receipt and interest that it sends says with this probability what is not so.
    ForgedFeedback(f64),
    /// Each datagram that reaches it has a wrong byte in its header with this probability.
    Corrupt(f64),
    /// Each datagram that reaches it, and each message to and from its controller, comes once more with this
    /// probability, later by this time.
    Replay(f64, Duration),
    /// Messages between it and its controller wait until it is no longer cut off.
    CutOff(bool),
}

/// Configuration of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Interval of samples.
    pub every: Duration,
    /// Queues, with the names that records give them.
    pub queues: Vec<(String, LinkId)>,
    /// The flows' windows, mark fractions, rates; not for runs with many tasks.
    pub flows: bool,
}

/// How decoding is modelled where no bytes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeModel {
    /// Symbols beyond K that a block with repair symbols needs; `None`: drawn (1 % need one, 0.01 % two: SCDP §II).
    pub overhead: Option<u32>,
    /// For each byte of a block that has lost symbols.
    pub ns_per_byte: f64,
    /// For each byte of a block that has not.
    pub ns_per_byte_whole: f64,
}

/// A run cannot be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A port cannot be as asked for.
    #[error(transparent)]
    Port(#[from] headwater_switch::PortError),
    /// A switch cannot be as asked for.
    #[error(transparent)]
    Switch(#[from] headwater_switch::SwitchError),
    /// A coflow scheduler, or a limit of Courier's, cannot be as asked for.
    #[error(transparent)]
    Plan(#[from] headwater_policy::PlanError),
    /// More flows of shuffles than numbers for them.
    #[error("the jobs have 2^32 flows or more; give fewer jobs, mappers or reducers")]
    TooManyFlows,
    /// More bytes of shuffles than can be counted exactly.
    #[error("the jobs have more than 2^53 bytes (8 PiB); give fewer or smaller map outputs")]
    TooManyBytes,
    /// A task names a host that is not there.
    #[error("task '{task}' names host {host}; there are {hosts}")]
    NoSuchHost {
        /// The task.
        task: String,
        /// The host.
        host: u32,
        /// Number of hosts.
        hosts: u32,
    },
    /// A task has no source, or its weights are not one for each.
    #[error(
        "task '{task}' has {sources} sources and {thetas} weights; give one weight for each of 1..=128 sources"
    )]
    Weights {
        /// The task.
        task: String,
        /// Its sources.
        sources: usize,
        /// Its weights.
        thetas: usize,
    },
    /// Some tasks state weights and some do not.
    #[error("task '{task}' states weights and others do not: either the script or Algorithm 1 decides")]
    MixedWeights {
        /// The task.
        task: String,
    },
    /// The baselines count segments; they have no bytes to carry.
    #[error("only coded symbols can carry true bytes: the segments of the baselines have none")]
    NothingToCarry,
    /// Pushed symbols go to one receiver, and a task has 256 flows at most.
    #[error("task '{task}' has {receivers} receivers; pushed symbols go to one, others by up to 256 flows")]
    ManyReceivers {
        /// The task.
        task: String,
        /// Number of its receivers.
        receivers: usize,
    },
    /// Those who are to have the same symbols cannot be a group.
    #[error("task '{task}' has {receivers} receivers; a group has up to 64, each on a host of its own")]
    Group {
        /// The task.
        task: String,
        /// Number of its receivers.
        receivers: usize,
    },
    /// There is no tree from the source to all receivers.
    #[error("task '{task}' has no tree: its source cannot reach every receiver, or is one")]
    NoTree {
        /// The task.
        task: String,
    },
    /// A group that is served by trees, or at the rate that switches compute, has one source.
    #[error("task '{task}' has {sources} sources; trees and scheduled transfers have one")]
    SeveralSources {
        /// The task.
        task: String,
        /// Its sources.
        sources: usize,
    },
    /// Coded symbols are not relayed.
    #[error("task '{task}' is relayed; coded symbols go to each receiver from the source itself")]
    RelayedSymbols {
        /// The task.
        task: String,
    },
    /// Background that nobody can send.
    #[error(
        "background '{task}' is of coded symbols; only beside tasks of pulled ones there is somebody to send it"
    )]
    NoMachines {
        /// Its name.
        task: String,
    },
    /// A chain of relays that cannot be.
    #[error("task '{task}' is relayed from {sources} sources by {scheme:?}; relays run NDP, from one source")]
    Relay {
        /// The task.
        task: String,
        /// Its sources.
        sources: usize,
        /// Transport of its flows.
        scheme: baseline::Scheme,
    },
    /// T and the size make no object.
    #[error("task '{task}' of {packets} packets of {symbol} bytes cannot be an object: {why}")]
    Object {
        /// The task.
        task: String,
        /// Its packets.
        packets: u64,
        /// T.
        symbol: u16,
        /// The problem.
        why: headwater_units::GeometryError,
    },
}

/// An object of `packets` symbols, at most 2^62 bytes: what endless flows send.
fn object_bytes(packets: u64, symbol: u16) -> Bytes {
    Bytes::new(packets.saturating_mul(u64::from(symbol)).min(1 << 46))
}
