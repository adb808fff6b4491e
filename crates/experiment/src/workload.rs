//! Workloads: the deliveries, from whom to whom and when: PPUSH's workloads (§IV-B, §V), SCDP's requests (§IV-A) and
//! sessions (§IV-B), and the speed bench's.
//!
//! A [`Workload`] is the description in an experiment file; [`Workload::plan`] makes the concrete tasks of one seed. The
//! same seed gives the same tasks whatever the scheme (common random numbers), so schemes are compared pairwise. What
//! it needs of the network is in [`Network`]: how many hosts, their rate, their pods and racks.

use headwater_fabric::{HostId, Topology};
use headwater_units::{Bytes, Duration, Time};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text;

mod apart;
mod bounds;
mod cast;
pub mod coflow_trace;
mod draw;
mod drawn_faults;
mod generate;
mod group;
mod multicasts;
mod requests;
mod sessions;
mod shuffle;
mod sizes;
mod training;

pub use cast::{By, CastText, Get, Wish};
pub(crate) use drawn_faults::who_fails_when;
pub(crate) use group::{failing, order as group_order};
pub use multicasts::{DrawnDeadlines, Replaced, Spread};
pub use requests::Access;
pub(crate) use requests::Arriving;
pub use shuffle::{Buffers, Jobs, ShuffleText};
pub use sizes::{SizeTable, Sizes};

/// Facts of the network that a workload must know.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The number of hosts; they are numbered from 0.
    pub hosts: u32,
    /// The rate of a host's link, data packets per second; of the slowest where they differ.
    pub host_rate: f64,
    /// The pod of each host, by number; empty where there are no pods.
    pub pods: Vec<u32>,
    /// The rack of each host, by number; empty where there are no racks.
    pub racks: Vec<u32>,
}

impl Network {
    /// Facts of a topology, for data packets of that length.
    pub fn of(topology: &Topology, packet: Bytes) -> Network {
        let fabric = topology.fabric();
        let uplinks = topology.hosts().iter().flat_map(|point| fabric.leaving(*point));
        let rates = uplinks.filter_map(|link| fabric.link(*link)?.capacity).map(|rate| rate.get());
        let slowest = rates.min().unwrap_or(0) as f64;
        let hosts = topology.hosts().len() as u32;
        let pods: Option<Vec<u32>> = (0..hosts).map(|host| topology.pod_of(HostId(host))).collect();
        let racks: Option<Vec<u32>> = (0..hosts).map(|host| topology.rack_of(HostId(host))).collect();
        let host_rate = slowest / (packet.get().max(1) as f64 * 8.0);
        Network { hosts, host_rate, pods: pods.unwrap_or_default(), racks: racks.unwrap_or_default() }
    }
}

/// One task, as the engines take it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskPlan {
    /// Unique in the run.
    pub name: String,
    /// When it is asked for.
    pub at: Time,
    /// Its size in packets; no end if `None`.
    pub packets: Option<u64>,
    /// The hosts that have it, each once; the first has place 0.
    pub sources: Vec<u32>,
    /// The host that wants it; none of the sources.
    pub receiver: u32,
    /// Further hosts that want it too, each once.
    pub further: Vec<u32>,
    /// Each receiver but the first has it from the one before it, which sends on what it has.
    pub relayed: bool,
    /// The weight of its flows, if it is not the scheme's to decide.
    pub theta: Option<f64>,
    /// When it should be done; of schemes that rank tasks alone.
    pub deadline: Option<Deadline>,
    /// Transport of its flows.
    pub flows: TaskFlows,
    /// When it is given up, whatever has arrived.
    pub stop: Option<Time>,
    /// Whether the run waits for its end.
    pub awaited: bool,
}

/// Transport of a task's flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskFlows {
    /// The scenario's scheme.
    #[default]
    Scheme,
    /// TCP NewReno, by packets alone.
    Reno,
    /// TCP Vegas, by packets alone.
    Vegas,
    /// BIC TCP, by packets alone.
    Bic,
}

impl TaskFlows {
    // Left out of a scenario's canonical text, so that runs keep the keys that they had before there was a choice.
    fn are_the_schemes(&self) -> bool {
        *self == TaskFlows::Scheme
    }
}

/// When a task should be done, from its arrival on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deadline {
    /// A fixed time after it.
    After(Duration),
    /// A multiple of the time that the task takes in an empty network, after it.
    TimesUnloaded(f64),
}

/// A task of no size yet, with nothing special.
fn plain(name: String, at: Time, sources: Vec<u32>, receiver: u32) -> TaskPlan {
    TaskPlan {
        name,
        at,
        packets: None,
        sources,
        receiver,
        further: Vec::new(),
        relayed: false,
        theta: None,
        deadline: None,
        flows: TaskFlows::Scheme,
        stop: None,
        awaited: true,
    }
}

/// Deliveries of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Workload {
    /// Flows that are listed one by one (PPUSH Fig. 2-5, 7, 14a).
    LongFlows {
        /// In any order; names must differ.
        flows: Vec<LongFlow>,
    },
    /// Endless flows that join one at a time from one source, a receiver each, up to this number (PPUSH §V-A, incast).
    /// After each join the run waits `settle`, then takes the mean queue over `measure`.
    JoiningFlows {
        /// How many join; receivers are the hosts but the source, in their order, again and again if there are fewer.
        flows: u32,
        /// The host that sends.
        source: u32,
        /// From a join until the queue counts as stable.
        #[serde(with = "text::one")]
        settle: Duration,
        /// How long the queue is then watched.
        #[serde(with = "text::one")]
        measure: Duration,
    },
    /// Tasks that are listed one by one (PPUSH Fig. 6).
    TaskList {
        /// In any order; names must differ.
        tasks: Vec<ListedTask>,
    },
    /// Tasks that arrive as a Poisson process (PPUSH §V-B).
    Tasks {
        /// How many.
        count: u32,
        /// The mean offered load of the links that `load_on` names; 0.9 in the paper.
        load: f64,
        /// Which links carry it.
        load_on: LoadOn,
        /// How large they are.
        sizes: Sizes,
        /// Hosts that send and hosts that receive.
        placement: Placement,
    },
    /// A site is lost and its objects are made anew elsewhere, all at once (PPUSH §V-B, "data redistribution").
    Redistribution {
        /// How many objects there are; 300 in the paper.
        objects: u32,
        /// Sites that hold each; 5 in the paper.
        replicas: u32,
        /// How many of the surviving ones send; 3, the paper's default fanout.
        fanout: u32,
        /// How large they are.
        sizes: Sizes,
    },
    /// Blocks are written to, or read from, storage that keeps several copies of each (SCDP §IV-A); clients are drawn from all
    /// hosts, places by HDFS's default policy.
    Requests {
        /// How many; 2000 in the paper.
        count: u32,
        /// Requests per second on average, which arrive as a Poisson process; 2000 or 4000 in the paper (lambda).
        per_second: f64,
        /// Of each request.
        packets: u64,
        /// Copies of each block; 3 in the paper.
        replicas: u32,
        /// Kind of the requests.
        access: Access,
    },
    /// Sessions between random hosts, one sender and one receiver each, that arrive as a Poisson process (SCDP §IV-B, §IV-G).
    Sessions {
        /// How many; 20,000 in the paper.
        count: u32,
        /// Sessions per second on average; 2500 in the paper (lambda).
        per_second: f64,
        /// How large they are.
        sizes: Sizes,
        /// Largest session that the run waits for, in packets; larger ones go on until it ends, and may have no end
        /// themselves. All are waited for if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        awaited: Option<u64>,
    },
    /// Files from one host to several others each, as a group where the scheme has groups, that arrive as a Poisson process (PAM §V).
    Multicasts {
        /// How many; seven for each host in the paper.
        count: u32,
        /// The mean offered load of the uplinks of the hosts that send; 0.9 in the paper.
        load: f64,
        /// How large they are.
        sizes: Sizes,
        /// Sender and receivers of each.
        spread: Spread,
        /// When they should be done; whenever if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadlines: Option<DrawnDeadlines>,
        /// Some of them are flows of TCP instead; none if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaced: Option<Replaced>,
    },
    /// One object goes from one host to a group of others, all at time zero (Datacast §VI-A, §VI-C). Source and receivers are
    /// drawn by the seed; a small group is part of a larger one.
    Group {
        /// Hosts of the group, its source among them; 8 to 1024 in the paper.
        members: u32,
        /// Of the object.
        packets: u64,
    },
    /// Every host i sends to host (multiplier * i + offset) mod hosts, all at time zero (speed bench, job A1).
    Permutation {
        /// Must have no common divisor with the number of hosts.
        multiplier: u32,
        /// Added.
        offset: u32,
        /// Of each flow.
        packets: u64,
    },
    /// Many hosts send to one, a flow each, all at time zero (speed bench, job B; SCDP §IV-D).
    Incast {
        /// Hosts that send: the first so many that are not the receiver.
        senders: u32,
        /// They are drawn by the seed instead, from everywhere.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        drawn: bool,
        /// The host that receives.
        receiver: u32,
        /// Of each flow.
        packets: u64,
    },
    /// Blocks are coded and decoded; nothing is sent. For the timed engine alone.
    Coding {
        /// Source symbols of a block.
        source_symbols: u32,
        /// Bytes of a symbol.
        symbol_size: u16,
        /// The share of the source symbols that is lost.
        loss: f64,
        /// Blocks that are decoded from random symbols to see how often that fails.
        trials: u32,
    },
    /// One object to many hosts, by the scheme `cast` alone.
    Cast(Box<CastText>),
    /// Jobs of MapReduce, by the schemes of shuffles alone.
    Shuffle(Box<ShuffleText>),
}

/// A flow of [`Workload::LongFlows`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongFlow {
    /// Name in the claims.
    pub name: String,
    /// The host that sends.
    pub from: u32,
    /// The host that receives.
    pub to: u32,
    /// When it starts; at once if absent.
    #[serde(default, with = "text::one")]
    pub start: Duration,
    /// When it stops; with the run if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
    /// Its weight, whatever the scheme; the scheme's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theta: Option<f64>,
    /// Its size, which ranks it in Algorithm 1; no end if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
}

/// A task of [`Workload::TaskList`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedTask {
    /// Name in the claims.
    pub name: String,
    /// When it is asked for; at once if absent.
    #[serde(default, with = "text::one")]
    pub at: Duration,
    /// Its size.
    pub packets: u64,
    /// The hosts that have it.
    pub sources: Vec<u32>,
    /// The host that wants it.
    pub receiver: u32,
    /// When it is broken off; not before it ends if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
    /// Further hosts that want it too; none if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<u32>,
    /// The weight of its flows, whatever the scheme; the scheme's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theta: Option<f64>,
    /// Transport of its flows; the scenario's scheme if absent.
    #[serde(default, skip_serializing_if = "TaskFlows::are_the_schemes")]
    pub flows: TaskFlows,
    /// Time after `at` by which it should be done, where the scheme ranks tasks by that (PAM); whenever if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
}

/// Which links carry the stated load on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadOn {
    /// The storage nodes' uplinks: all bytes leave there.
    StorageUplinks,
    /// All hosts' links: all bytes leave and arrive there, spread evenly.
    HostLinks,
}

/// Hosts that send and hosts that receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Placement {
    /// A fixed set of hosts, drawn once per seed, holds everything; each task has `fanout` of them, drawn anew. A
    /// receiver is any host that is not among them.
    Storage {
        /// How many hold everything; 10 in the paper. With `per_pod` it must be the number of pods.
        nodes: u32,
        /// Sources of a task; 3 in the paper.
        fanout: u32,
        /// One in each pod (PPUSH §V-B, fat-tree).
        #[serde(default)]
        per_pod: bool,
    },
    /// Sources and receiver are drawn from all hosts for each task (PPUSH Fig. 12).
    RandomSources {
        /// Sources of a task.
        fanout: u32,
    },
}

/// Why a workload cannot be planned on a network.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A host's number is too large.
    #[error("{what} is host {host}, but the fabric has {hosts} hosts, numbered from 0")]
    NoHost {
        /// Which field.
        what: String,
        /// The number given.
        host: u32,
        /// How many there are.
        hosts: u32,
    },
    /// More hosts are needed than there are.
    #[error("{what} needs {needed} hosts, but there are {there}")]
    TooFewHosts {
        /// Which field.
        what: &'static str,
        /// How many it needs.
        needed: u64,
        /// How many there are for it.
        there: u64,
    },
    /// A number outside its range.
    #[error("{what} is {value}; it must be {must}")]
    OutOfRange {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: f64,
        /// Condition that it must meet.
        must: &'static str,
    },
    /// Two tasks of one name.
    #[error("two tasks are called '{0}'")]
    NameTwice(String),
    /// A host that would send to itself, or a source twice.
    #[error("task '{task}' lists host {host} twice among its sources and receiver")]
    HostTwice {
        /// The task.
        task: String,
        /// The host.
        host: u32,
    },
    /// A storage node per pod where that cannot be.
    #[error("one storage node per pod gives {pods} nodes on this fabric, not {nodes}")]
    PerPod {
        /// The number of pods.
        pods: u32,
        /// The number asked for.
        nodes: u32,
    },
    /// The multiplier of a permutation divides hosts into groups.
    #[error(
        "multiplier {multiplier} and {hosts} hosts have a common divisor or map a host to itself: no permutation"
    )]
    NoPermutation {
        /// The multiplier.
        multiplier: u32,
        /// The number of hosts.
        hosts: u32,
    },
}
