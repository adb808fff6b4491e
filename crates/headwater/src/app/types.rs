//! What the command line and the commands say to each other: options in, results and progress out. Plain data.
//!
//! Everything that is printed with `--json` is serialized from here, so field names are an interface: rates are bits
//! per second, sizes bytes, times seconds (`_seconds`), shares 0..=1, ids 64 hex digits.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use headwater_store::StoreError;
use headwater_transport::ppush::controller::{GroupRange, NetworkSpec};
use headwater_units::{BitRate, Bytes, Duration, NodeId, ObjectId, TaskId};
use headwater_wire::{CodePoints, Delivery, SpreadRule};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

use super::Experiments;

/// Where a controller listens unless told otherwise: what `--controller HOST` and `--join HOST` add.
pub const CONTROLLER_PORT: u16 = 7000;
/// Where a source listens unless told otherwise: what `--from HOST` adds.
pub const NODE_PORT: u16 = 7001;

/// This port on every address: IPv6 and IPv4 together, or IPv4 alone on a machine without IPv6.
pub fn wildcard(port: u16) -> SocketAddr {
    let six = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    let ip = if six { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    SocketAddr::new(ip, port)
}

/// The file in a state folder that names the controller which the daemon of that folder belongs to.
const CONTROLLER_NOTE: &str = "controller-address";

/// Notes the controller (`host:port`) of a daemon in its state folder, so that other commands with the same folder need
/// no `--controller`.
///
/// # Errors
/// The file cannot be written.
pub fn remember_controller(state: &Path, controller: &str) -> io::Result<()> {
    std::fs::write(state.join(CONTROLLER_NOTE), format!("{controller}\n"))
}

/// What [`remember_controller`] noted last, if anything.
pub fn remembered_controller(state: &Path) -> Option<String> {
    let text = std::fs::read_to_string(state.join(CONTROLLER_NOTE)).ok()?;
    Some(text.trim().to_owned()).filter(|note| !note.is_empty())
}

/// What every command knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// Keys, pins and the store.
    pub state: PathBuf,
    /// The one fingerprint that the contacted node (each of them, with several) may have.
    pub pin: Option<NodeId>,
    /// What this machine may send, as the operator states it.
    pub uplink: Option<BitRate>,
    /// What this machine may receive, as the operator states it.
    pub downlink: Option<BitRate>,
    /// The rack this machine is in, and the capacity of the rack's uplink where known.
    pub rack: Option<(String, Option<BitRate>)>,
    /// What its operator calls this machine by, key and value, beside its rack.
    pub labels: BTreeMap<String, String>,
    /// A cap on what this process sends, or on what it asks to be sent.
    pub limit: Option<BitRate>,
    /// Background class: yields to everything else.
    pub gentle: bool,
    /// Differentiated services code points, by class.
    pub dscp: CodePoints,
    /// The largest IP packet to use; `None`: what the interface and the path say.
    pub mtu: Option<u16>,
    /// UDP port of the data socket; 0: any free one.
    pub data_port: u16,
    /// Loss alone never shrinks a window (the papers' experiments).
    pub loss_response_ignore: bool,
    /// What experiments ask for.
    pub experiments: Experiments,
}

/// Where sources come from. Every address is `host:port`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// A controller chooses them.
    Controller(String),
    /// These, with a controller inside the receiver.
    From(Vec<String>),
}

/// Where an object goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// To this file, or into this folder.
    File(PathBuf),
    /// To standard output, in order, as blocks finish.
    Stdout,
    /// To a file in the current folder with the object's name, or its id if it has none.
    Default,
    /// Into this machine's store, by its daemon if one runs.
    Store,
}

/// `headwater get`.
#[derive(Clone, Debug, PartialEq)]
pub struct GetOptions {
    /// What every command knows.
    pub common: Common,
    /// A name, an id, or the beginning of one.
    pub what: String,
    /// Who has it.
    pub at: Where,
    /// Where it goes.
    pub output: Output,
    /// Only these bytes: the first, and the one after the last (`None`: to the end). Not empty.
    pub range: Option<(Bytes, Option<Bytes>)>,
    /// The only id accepted, whatever the name points at.
    pub hash: Option<ObjectId>,
    /// Compute SHA-256 too.
    pub sha256: bool,
    /// Replace an existing file.
    pub overwrite: bool,
    /// Which transport is to bring it; the controller's choice if absent.
    pub delivery: Option<Delivery>,
    /// Which symbols each source sends, where sources push.
    pub spread: SpreadRule,
    /// At most so many sources at once; at least 1.
    pub max_sources: Option<u8>,
    /// A fixed weight for every flow, instead of Algorithm 1; only with [`Where::From`].
    pub theta: Option<f64>,
    /// Record the machines' inputs here.
    pub record: Option<PathBuf>,
    /// Connect, say so, and request only after a line on standard input.
    pub wait_for_start: bool,
    /// Give up after this long; a wait for the start does not count.
    pub timeout: Option<Duration>,
    /// Stay for a moment for those who are served from what came.
    pub linger: bool,
}

/// `headwater serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeOptions {
    /// What every command knows.
    pub common: Common,
    /// Files and folders, at least one.
    pub files: Vec<PathBuf>,
    /// The object's name instead of the file's; only with one file.
    pub name: Option<String>,
    /// Whom to tell (`host:port`).
    pub controller: Option<String>,
    /// Where to listen; `None`: [`wildcard`] of [`NODE_PORT`].
    pub listen: Option<SocketAddr>,
    /// Where Prometheus may ask.
    pub metrics: Option<SocketAddr>,
    /// Record the machines' inputs here.
    pub record: Option<PathBuf>,
}

/// `headwater controller`.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerOptions {
    /// What every command knows.
    pub common: Common,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where Prometheus may ask.
    pub metrics: Option<SocketAddr>,
    /// Weight 1 for every flow instead of Algorithm 1 (control experiments).
    pub equal_theta: bool,
    /// Sources per task; at least 1.
    pub max_sources: Option<u8>,
    /// Addresses for the groups of casts.
    pub groups: Option<Vec<GroupRange>>,
    /// The network, by whose trees casts go.
    pub network: Option<NetworkSpec>,
}

/// `headwater node`, and `headwater up`.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOptions {
    /// What every command knows.
    pub common: Common,
    /// The controller (`host:port`); `None` exactly for `up`.
    pub join: Option<String>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where Prometheus may ask.
    pub metrics: Option<SocketAddr>,
    /// The most the store may hold.
    pub quota: Option<Bytes>,
    /// Run the controller in this process (`up`).
    pub controller_too: bool,
    /// As in [`ControllerOptions`]; only with a controller in this process.
    pub equal_theta: bool,
    /// As in [`ControllerOptions`]; only with a controller in this process.
    pub max_sources: Option<u8>,
    /// As in [`ControllerOptions`]; only with a controller in this process.
    pub groups: Option<Vec<GroupRange>>,
}

/// `headwater put`.
#[derive(Clone, Debug, PartialEq)]
pub struct PutOptions {
    /// What every command knows.
    pub common: Common,
    /// The file or folder.
    pub file: PathBuf,
    /// The object's name instead of the file's.
    pub name: Option<String>,
    /// Link instead of copying: the file must never change again.
    pub link: bool,
    /// The most the store may hold.
    pub quota: Option<Bytes>,
}

/// `headwater ls` and `headwater status`: a question to a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryOptions {
    /// What every command knows.
    pub common: Common,
    /// Whom to ask (`host:port`); `None`: this machine's own state, without any network.
    pub controller: Option<String>,
    /// Give up after this long without an answer.
    pub timeout: Duration,
}

/// `headwater rm`.
#[derive(Clone, Debug, PartialEq)]
pub struct RmOptions {
    /// What every command knows.
    pub common: Common,
    /// A name, an id, or the beginning of one.
    pub what: String,
}

/// `headwater demo`. Sources count from zero: those of `rates`, then those of `joins` in the order given.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoOptions {
    /// What every command knows.
    pub common: Common,
    /// The uplinks of the sources that are there from the start; at least one.
    pub rates: Vec<BitRate>,
    /// Size of the object; not zero.
    pub size: Bytes,
    /// Share of data packets lost at random, 0..1.
    pub loss: f64,
    /// These sources vanish, so long after the first request.
    pub kills: Vec<(usize, Duration)>,
    /// Further sources of this uplink appear, so long after the first request.
    pub joins: Vec<(BitRate, Duration)>,
    /// These sources' uplinks change, so long after the first request.
    pub rerates: Vec<(usize, Duration, BitRate)>,
    /// Everything random comes from it.
    pub seed: u64,
    /// Leave files and logs behind.
    pub keep: bool,
}

/// A daemon or source is ready. `--json` prints it as one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listening {
    /// The control address: what others pass to `--controller`, `--join` or `--from`.
    pub address: SocketAddr,
    /// Where data packets go; a controller has none.
    pub data_address: Option<SocketAddr>,
    /// What others pass to `--pin`.
    #[serde(with = "as_text")]
    pub fingerprint: NodeId,
    /// What can be fetched from here now.
    pub objects: Vec<ObjectLine>,
}

/// What one source did for a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceShare {
    /// Its control address.
    pub node: String,
    /// Useful bytes of symbols from it.
    pub bytes: u64,
    /// Its part of all useful bytes, 0..=1.
    pub share: f64,
    /// Useful symbols from it.
    pub symbols: u64,
    /// Symbols it sent that never arrived.
    pub lost: u64,
    /// Its fingerprint.
    #[serde(default)]
    pub id: String,
    /// Of its bytes, those that came by a multicast group.
    #[serde(default)]
    pub group_bytes: u64,
}

/// The end of a `get`, and of a `demo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GetResult {
    /// Its id.
    pub object: String,
    /// Bytes of the object, or of the range asked for.
    pub bytes: u64,
    /// From the first request until the object is verified under its final name.
    pub seconds: f64,
    /// Bytes over the sum of the sources' rates, with kills and rate changes counted in, where the rates are known.
    pub ideal_seconds: Option<f64>,
    /// `seconds / ideal_seconds`.
    pub ratio: Option<f64>,
    /// T, bytes of a symbol: the longest that the paths carry; that of the last part where one turned out narrow meanwhile.
    #[serde(default)]
    pub symbol_size: u16,
    /// Bytes on the wire per byte of symbol: what no transfer with this packet size goes below.
    pub wire_floor: f64,
    /// Bytes per second, in millions.
    pub mb_per_s: f64,
    /// Every block and the whole were checked against the id.
    pub verified: bool,
    /// Repair symbols used / source symbols.
    pub repair_share: f64,
    /// Useless arrivals / arrivals.
    pub duplicate_share: f64,
    /// Times that a source was asked again because nothing had come from it, where this end pulls.
    #[serde(default)]
    pub timeouts: u64,
    /// The most memory this process had resident.
    pub peak_rss_bytes: u64,
    /// User and system time: of this process, in `demo` of all of them.
    pub cpu_seconds: f64,
    /// The congestion signal that the flows went by: `ecn`, `delay`, `mixed` or `unknown`.
    pub mark_signal: String,
    /// What held the task back most of the time: `source`, `path`, `disk` or `cpu`.
    pub limited_by: String,
    /// In the order of the request.
    pub sources: Vec<SourceShare>,
    /// The object's name, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// With `--sha256`.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Bytes that were here already from an interrupted run.
    #[serde(default)]
    pub resumed_bytes: u64,
    /// Where the object is: a file, or the store's folder; `None` for standard output.
    #[serde(default)]
    pub output: Option<String>,
    /// Symbols dropped by this process itself, in a drill.
    #[serde(default)]
    pub dropped_on_purpose: Option<u64>,
    /// Useful bytes of symbols that came by a multicast group, of those of all sources.
    #[serde(default)]
    pub group_bytes: u64,
    /// Useful bytes of symbols that other receivers have passed on, of those of all sources.
    #[serde(default)]
    pub relayed_bytes: u64,
    /// When the first request was made, nanoseconds of CLOCK_MONOTONIC: a clock that all processes of a machine share.
    #[serde(default)]
    pub start_ns: u64,
    /// When the last block was decoded and verified, on the same clock.
    #[serde(default)]
    pub received_ns: u64,
    /// When the object was there under its final name, on the same clock.
    #[serde(default)]
    pub finish_ns: u64,
}

/// The end of a `put`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PutResult {
    /// Its id.
    pub object: String,
    /// Its name.
    pub name: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// How it came into the store: `copied`, `reflinked`, `linked` or `known` (it was there already).
    pub placed: String,
}

/// The end of an `rm`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RmResult {
    /// The id of what was removed.
    pub object: String,
    /// Its name, if it had one.
    pub name: Option<String>,
    /// Bytes set free; zero if another name still points at the object.
    pub freed_bytes: u64,
}

/// The end of a `debug replay`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayResult {
    /// Inputs fed.
    pub inputs: u64,
    /// Outputs compared.
    pub outputs: u64,
    /// Every output was the recorded one.
    pub identical: bool,
    /// The first one that was not, in words.
    pub difference: Option<String>,
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Reading a file to name it.
    Hashing,
    /// Waiting for the controller's or the sources' answer.
    #[default]
    Asking,
    /// Checking what an interrupted run left.
    Checking,
    /// Symbols are coming in.
    Receiving,
    /// Everything is here; syncing and renaming.
    Finishing,
}

/// One source, now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressSource {
    /// Its control address.
    pub node: String,
    /// What it delivers.
    pub rate: BitRate,
    /// Its part of all useful bytes so far, 0..=1.
    pub share: f64,
    /// Its weight, where known.
    pub theta: Option<f64>,
    /// Whether it still answers.
    pub live: bool,
}

/// One receiver of a cast, now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressReceiver {
    /// Its control address.
    pub node: String,
    /// How much of the object is there.
    pub bytes_done: u64,
    /// `waiting`, `receiving`, `done`, `failed` or `away`.
    pub state: String,
}

/// A task, now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The object's name or id.
    pub object: String,
    /// Verified, or hashed.
    pub bytes_done: u64,
    /// Of so many; zero while unknown.
    pub bytes_total: u64,
    /// The rate now.
    pub rate: BitRate,
    /// How long it will go on at this rate.
    #[serde(rename = "eta_seconds", with = "optional_seconds")]
    pub eta: Option<Duration>,
    /// In the order in which they came.
    pub sources: Vec<ProgressSource>,
    /// Of a cast, in the order of their addresses; then there are no sources here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<ProgressReceiver>,
    /// What is going on.
    pub phase: Phase,
}

/// Whom a command tells how far it is: a bar, JSON lines, or nobody.
///
/// Call as often as convenient, 10 times a second or so; whoever prints leaves out what would be too much.
pub trait Watch: Send {
    /// How far it is.
    fn progress(&mut self, progress: &Progress);
    /// Something the user should know now, one line.
    fn note(&mut self, line: &str);
}

/// An object and who has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectLine {
    /// Its id.
    #[serde(with = "as_text")]
    pub object: ObjectId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its size.
    pub bytes: Bytes,
    /// Control addresses (`ip:port`) of the nodes that have all of it.
    pub holders: Vec<String>,
}

/// A node as its controller knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeLine {
    /// What it calls itself.
    pub name: String,
    /// Its fingerprint.
    #[serde(with = "as_text")]
    pub id: NodeId,
    /// Its control address.
    pub listen: String,
    /// What it may send: stated, else measured, else unknown.
    pub uplink: Option<BitRate>,
    /// What it may receive: stated, else measured, else unknown.
    pub downlink: Option<BitRate>,
    /// Its rack.
    pub rack: Option<String>,
    /// What its operator calls it by, its rack too.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether it can be a receiver of casts.
    #[serde(default)]
    pub keeps: bool,
    /// How many objects it has.
    pub objects: u64,
    /// Whether it was heard of lately.
    pub up: bool,
    /// How its data socket does; absent if it did not answer, or has none.
    #[serde(default)]
    pub data_path: Option<DataPath>,
}

/// How a node's data socket does, counted since the node started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataPath {
    /// One send becomes many datagrams (UDP GSO).
    pub segmentation: bool,
    /// Many datagrams become one receive buffer (UDP GRO), if they come close enough.
    pub merging: bool,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Messages that carried them, each of one or more datagrams.
    pub messages_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Buffers that they came in, each of one or more.
    pub buffers_received: u64,
    /// Of all datagrams; absent before the first. ACKs and what comes slowly pull it down.
    pub datagrams_per_buffer: Option<f64>,
    /// Of long datagrams that came at a high rate: at least 512 bytes on average, and 10,000 per second. Absent until
    /// 1,000 did.
    pub datagrams_per_buffer_at_speed: Option<f64>,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received.
    pub receive_calls: u64,
    /// System calls that waited.
    pub waits: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub dropped_by_kernel: u64,
    /// Times that the send buffer was full.
    pub sends_blocked: u64,
    /// Datagrams that could not be sent: no memory, a full device queue, or refused for their destination.
    pub sends_failed: u64,
    /// Buffers whose control messages were cut off, so that their marks are lost: always a fault of this program.
    pub control_truncated: u64,
    /// Datagrams of nobody, or that failed their header tag.
    pub strays: u64,
    /// Headers of symbols whose payload a switch has cut off.
    pub trimmed: u64,
    /// Whether those are seen whose UDP header the switch has left as it was.
    pub sees_trimmed: bool,
    /// What somebody should look after, in words.
    pub warnings: Vec<String>,
}

/// One source of a running task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSource {
    /// Its control address.
    pub node: String,
    /// Its part of the useful bytes so far, 0..=1.
    pub share: f64,
    /// What it delivers.
    pub rate: BitRate,
    /// Its weight.
    pub theta: f64,
    /// What it takes for congestion: `ecn`, `delay` or `unknown`.
    pub mark_signal: String,
    /// Smoothed round-trip time, if measured.
    #[serde(rename = "rtt_seconds", with = "optional_seconds")]
    pub rtt: Option<Duration>,
    /// Its window in packets.
    pub window: f64,
    /// Waits for its own disk or encoder rather than for the network.
    pub starved: bool,
}

/// A running task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskLine {
    /// Its number.
    pub task: TaskId,
    /// What is wanted.
    #[serde(with = "as_text")]
    pub object: ObjectId,
    /// The object's name, if it has one.
    pub name: Option<String>,
    /// Who wants it: its name or address.
    pub receiver: String,
    /// How much is wanted.
    pub bytes: Bytes,
    /// How much of it is there, verified.
    pub done: Bytes,
    /// What comes in now.
    pub rate: BitRate,
    /// How long it will go on at this rate.
    #[serde(rename = "eta_seconds", with = "optional_seconds")]
    pub eta: Option<Duration>,
    /// What holds it back: `source`, `path`, `disk` or `cpu`.
    pub limited_by: String,
    /// T, bytes of a symbol.
    #[serde(default)]
    pub symbol_size: u16,
    /// In the order in which they came.
    pub sources: Vec<TaskSource>,
}

/// A running cast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CastLine {
    /// Its number, as whoever asked for it drew it.
    pub cast: u64,
    /// What is cast: an id.
    pub object: String,
    /// The object's name, if that was asked for.
    pub name: Option<String>,
    /// The object's size.
    pub bytes: Bytes,
    /// The control address of the node that sends it to the group, or that was the first to be found to have it.
    pub source: String,
    /// How it travels: `multicast`, `trees`, `overlay`, `unicast`, or `undecided` while that is found out.
    pub via: String,
    /// Why so, in words.
    pub why: String,
    /// How many are to have it.
    pub receivers: u64,
    /// How many of them do.
    pub done: u64,
    /// How many of them will not.
    pub failed: u64,
    /// Payload that the source has sent to the group, each symbol counted once.
    pub multicast_bytes: Bytes,
    /// Since it was asked for.
    pub age_seconds: f64,
}

/// Everything a controller knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Its address.
    pub controller: String,
    /// By name.
    pub nodes: Vec<NodeLine>,
    /// By name.
    pub objects: Vec<ObjectLine>,
    /// By number.
    pub tasks: Vec<TaskLine>,
    /// By number.
    #[serde(default)]
    pub casts: Vec<CastLine>,
}

/// A command did not do what was asked. The exit code says which way, the message what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AppError {
    /// The options do not go together, seen only while acting on them.
    #[error("{0}")]
    Usage(String),
    /// No such object, or no such file.
    #[error("{0}")]
    NotFound(String),
    /// The controller or every source is out of reach.
    #[error("cannot reach {who}: {reason}")]
    Unreachable {
        /// Address or addresses.
        who: String,
        /// What was tried and what came back.
        reason: String,
    },
    /// Reachable, but nobody has what is missing.
    #[error("no source left for {object}: {missing} missing; {hint}")]
    NoSource {
        /// Name or id.
        object: String,
        /// What is missing.
        missing: Bytes,
        /// What to do.
        hint: String,
    },
    /// What came or what is here is not the object asked for.
    #[error("{0}")]
    Verification(String),
    /// No room, by disk or by quota.
    #[error("{0}")]
    NoRoom(String),
    /// Whoever answered is not who it should be.
    #[error("{0}")]
    Identity(String),
    /// Not done within `--timeout`.
    #[error("not done after {after}: {state}")]
    TimedOut {
        /// The time given.
        after: Duration,
        /// How far it got and what to do.
        state: String,
    },
    /// The user stopped it.
    #[error("interrupted{}", if *resumable { "; what is finished is kept, run the same command again to go on" } else { "" })]
    Interrupted {
        /// Whether running the same command again goes on where this stopped.
        resumable: bool,
    },
    /// Reading or writing failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried, as in "cannot write out.bin".
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon of this machine could not do it.
    #[error("{message}")]
    Daemon {
        /// Its own exit code for that.
        code: u8,
        /// Its own words.
        message: String,
    },
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl AppError {
    /// The exit code of a process that ends with this, as `--help` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            AppError::Io { source, .. } if no_room(source) => 6,
            AppError::Io { .. } | AppError::Failed(_) | AppError::TimedOut { .. } => 1,
            AppError::Usage(_) => 2,
            AppError::NotFound(_) => 3,
            AppError::Unreachable { .. } | AppError::NoSource { .. } => 4,
            AppError::Verification(_) => 5,
            AppError::NoRoom(_) => 6,
            AppError::Identity(_) => 7,
            AppError::Interrupted { .. } => 130,
            AppError::Daemon { code, .. } => *code,
        }
    }

    /// One word for programs: the `kind` of a `--json` error.
    pub fn kind(&self) -> &'static str {
        match self.exit_code() {
            2 => "usage",
            3 => "not_found",
            4 => "no_source",
            5 => "verification",
            6 => "no_room",
            7 => "identity",
            130 => "interrupted",
            _ => "failed",
        }
    }
}

fn no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        match error {
            StoreError::DiskFull { .. } | StoreError::QuotaExceeded { .. } => AppError::NoRoom(text),
            StoreError::NotFound { .. } => AppError::NotFound(text),
            StoreError::HashesMismatch { .. }
            | StoreError::BlockMismatch { .. }
            | StoreError::ObjectChanged { .. }
            | StoreError::ObjectDamaged { .. } => AppError::Verification(text),
            StoreError::BadName { .. } | StoreError::Ambiguous { .. } => AppError::Usage(text),
            _ => AppError::Failed(text),
        }
    }
}

/// Whether the user asked the process to stop. Clones see the same request.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// The other end of a [`Shutdown`].
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

impl Shutdown {
    /// A request not made yet, and the means to make it.
    pub fn channel() -> (ShutdownTrigger, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (ShutdownTrigger(sender), Shutdown(receiver))
    }

    /// Returns once the process should stop; never if the trigger is gone without having been used.
    pub async fn wait(&self) {
        if self.0.clone().wait_for(|&stop| stop).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Whether the process should stop.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }
}

impl ShutdownTrigger {
    /// Asks everyone to stop; again does nothing.
    pub fn set(&self) {
        self.0.send_replace(true);
    }
}

/// Ids as their hex digits.
mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(Error::custom)
    }
}

/// Spans as seconds.
mod optional_seconds {
    use headwater_units::Duration;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option, reason = "the shape that serde asks for")]
    pub(super) fn serialize<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        span.map(Duration::as_secs_f64).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<f64>::deserialize(from)?.map(Duration::from_secs_f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_json_and_ids_are_hex_there() {
        let (object, id) = (ObjectId([0xab; 32]), NodeId([1; 32]));
        let report = StatusReport {
            controller: "10.0.0.1:7000".into(),
            nodes: vec![NodeLine {
                name: "a".into(),
                id,
                listen: "10.0.0.2:7001".into(),
                uplink: Some(BitRate::new(100_000_000)),
                downlink: None,
                rack: Some("r1".into()),
                labels: [("rack".into(), "r1".into())].into(),
                keeps: true,
                objects: 1,
                up: true,
                data_path: Some(DataPath { datagrams_per_buffer: Some(1.5), ..DataPath::default() }),
            }],
            objects: vec![ObjectLine { object, name: None, bytes: Bytes::kib(1), holders: vec![] }],
            tasks: vec![TaskLine {
                task: TaskId(7),
                object,
                name: Some("model".into()),
                receiver: "b".into(),
                bytes: Bytes::kib(2),
                done: Bytes::kib(1),
                rate: BitRate::new(8000),
                eta: Some(Duration::from_millis(1500)),
                limited_by: "path".into(),
                symbol_size: 1424,
                sources: vec![],
            }],
            casts: vec![CastLine { cast: 9, via: "overlay".into(), age_seconds: 1.5, ..CastLine::default() }],
        };
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains(&format!(r#""object":"{}""#, "ab".repeat(32))), "{text}");
        assert!(text.contains(r#""eta_seconds":1.5"#), "{text}");
        assert!(text.contains(r#""uplink":100000000"#), "{text}");
        assert_eq!(serde_json::from_str::<StatusReport>(&text).unwrap(), report);
        let wire = postcard::to_stdvec(&report).unwrap();
        assert_eq!(postcard::from_bytes::<StatusReport>(&wire).unwrap(), report);
    }

    #[test]
    fn a_result_lists_its_fields_in_the_order_of_the_manual() {
        let text = serde_json::to_string(&GetResult::default()).unwrap();
        let order =
            ["object", "bytes", "seconds", "ideal_seconds", "ratio", "wire_floor", "mb_per_s", "verified"];
        let places: Vec<_> = order.iter().map(|key| text.find(&format!("\"{key}\":")).expect(key)).collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn full_disks_have_their_own_exit_code_wherever_they_show() {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(AppError::Io { doing: "cannot write".into(), source }.exit_code(), 6);
        let error =
            StoreError::QuotaExceeded { quota: Bytes::kib(1), used: Bytes::ZERO, needed: Bytes::kib(2) };
        assert_eq!(AppError::from(error).exit_code(), 6);
    }

    #[test]
    fn a_controller_is_remembered_in_the_state_folder() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(remembered_controller(state.path()), None);
        remember_controller(state.path(), "10.0.0.1:7000").unwrap();
        assert_eq!(remembered_controller(state.path()).as_deref(), Some("10.0.0.1:7000"));
    }

    #[tokio::test]
    async fn every_clone_learns_of_the_request_to_stop() {
        let (trigger, shutdown) = Shutdown::channel();
        let other = shutdown.clone();
        assert!(!other.is_set());
        trigger.set();
        other.wait().await;
        assert!(shutdown.is_set());
    }
}
