//! What a source can be told, and what it counts.

use headwater_units::{BitRate, Duration, FlowId, NodeId, ObjectId, Packets, Symbols, TaskId, Theta};
use headwater_wire::{FlowReport, MarkSignal, Push};
use serde::{Deserialize, Serialize};

use crate::flow::marks::DelayMark;
use crate::flow::pacer::PacerConfig;
use crate::flow::path_mtu::PathMtuConfig;
use crate::flow::rtt::RttConfig;
use crate::pull::PullFlowConfig;
use crate::push::wfcc::WfccConfig;
use crate::push::yielding::{YieldingConfig, Yields};
use crate::tree::{TreeSourceConfig, TreeStats};

/// Blocks that a flow looks ahead at most, unless told otherwise.
pub(crate) const LOOK_AHEAD: usize = 64;

/// After how many symbols the receiver is asked for an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AckInterval {
    /// After each: PPUSH §III-A ("immediately generates an acknowledgment").
    EverySymbol,
    /// After a part of the window: the window moves in steps that a mark threshold can take (docs/decisions/0002).
    WindowPart {
        /// One part in so many. 16, not 4 (docs/decisions/0002): each ACK lets as many packets go, a large flow marks
        /// itself by such bursts, and the share drifts from theta (two flows at thetas 1 and 4, marks from 100 packets
        /// on, got 1.2:1 with 4, 2.3:1 with 8 and 3.4:1 with 16; 4.3:1 with an ACK per symbol).
        parts: u8,
        /// At most so many; 46 segments are what one GSO send carries at 1,400 bytes (docs/decisions/0024).
        most: u8,
    },
}

/// What a flow sends in place of a lost symbol, under the residue rule. Under the listed rule the receiver names
/// symbols, so it is always the same one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LostSymbols {
    /// The same one: keeps source symbols source symbols ("would resend the lost symbols if there are", PPUSH §III-A).
    Resend,
    /// A new one of the class: any symbol serves, and the lost one may only be late.
    New,
}

/// Tail loss probes (RFC 9002 §6.2): the last packets of a burst are lost without later ones to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailProbe {
    /// Packets sent per probe. 2: RFC 9002 §6.2.4.
    pub packets: u8,
}

/// Everything that a source can be told at its start. `Default` is the product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceConfig {
    /// Congestion control.
    pub wfcc: WfccConfig,
    /// That of push flows of the gentle class, which yield to everybody; `None`, and so by default: they too go by their weight, as
    /// in all experiments. Whoever drives real sockets sets it.
    pub yielding: Option<YieldingConfig>,
    /// Everything that is sent is of the gentle class, whatever tasks are of.
    pub gentle: bool,
    /// Round-trip time and timeouts.
    pub rtt: RttConfig,
    /// Pacing of each flow; `None`: the window alone.
    pub pacer: Option<PacerConfig>,
    /// All flows together never send faster (datagrams above UDP).
    pub limit: Option<BitRate>,
    /// How often ACKs are asked for.
    pub ack_interval: AckInterval,
    /// Tail probes; `None`: the RTO alone.
    pub tail_probe: Option<TailProbe>,
    /// Queueing delay as mark where no CE arrives; `None`: only CE counts.
    pub delay_mark: Option<DelayMark>,
    /// What replaces a lost symbol.
    pub lost_symbols: LostSymbols,
    /// Packets sent to an address before it has echoed a nonce. 10, an initial window (docs/decisions/0030).
    pub unvalidated_packets: u64,
    /// Packets in flight per flow, whatever window the receiver announces: bounds the table of sent packets (3 MiB).
    pub max_in_flight: u32,
    /// Lost packets remembered per flow to recognise late ACKs: more than a round trip of losses at 8 % and W = 10,000.
    pub lost_memory: usize,
    /// Blocks prepared ahead at least. 4: enough to hide a disk read behind a block on the wire.
    pub prepare_ahead: usize,
    /// And enough blocks to cover this many windows of symbols.
    pub prepare_windows: f64,
    /// Blocks that a flow looks ahead at most.
    pub look_ahead: usize,
    /// How often the controller gets a report. 200 ms.
    pub report_every: Duration,
    /// A flow with packets in flight pauses when its receiver has said nothing for so long (PPUSH §III-A has the
    /// controller pause flows of silent receivers; a source need not wait for it). 10 s.
    pub silent_pause: Duration,
    /// Flows at a time; a push beyond is refused.
    pub max_flows: usize,
    /// Ended flows remembered, so that a repeated FIN is answered and a repeated push does not revive them.
    pub ended_memory: usize,
    /// Receivers whose smallest round-trip time and path MTU are remembered.
    pub path_memory: usize,
    /// How it is found out that a path does not carry what a task sends. `None`, and so by default: not at all, since a
    /// simulated path carries everything and probes would only add packets; whoever drives real sockets sets it.
    pub path_mtu: Option<PathMtuConfig>,
    /// Flows whose receivers pull.
    pub pull: PullFlowConfig,
    /// Trees.
    pub trees: TreeSourceConfig,
}

impl Default for SourceConfig {
    fn default() -> Self {
        SourceConfig {
            wfcc: WfccConfig::default(),
            yielding: None,
            gentle: false,
            rtt: RttConfig::default(),
            pacer: Some(PacerConfig::default()),
            limit: None,
            ack_interval: AckInterval::WindowPart { parts: 16, most: 46 },
            tail_probe: Some(TailProbe { packets: 2 }),
            delay_mark: Some(DelayMark::default()),
            lost_symbols: LostSymbols::Resend,
            unvalidated_packets: 10,
            max_in_flight: 65_536,
            lost_memory: 1024,
            prepare_ahead: 4,
            prepare_windows: 2.0,
            look_ahead: LOOK_AHEAD,
            report_every: Duration::from_millis(200),
            silent_pause: Duration::from_secs(10),
            max_flows: 4096,
            ended_memory: 1024,
            path_memory: 1024,
            path_mtu: None,
            pull: PullFlowConfig::default(),
            trees: TreeSourceConfig::default(),
        }
    }
}

impl SourceConfig {
    /// That of PPUSH's experiments (§IV-B, §V-A): an ACK per symbol, the window alone decides when to send, marks are
    /// CE, loss moves nothing but the RTO. The timeout is 10 ms, which the paper does not give: an order above the
    /// loaded round trip of every experiment but the wide-area ones, whose runs set 1 s.
    pub fn paper() -> Self {
        SourceConfig {
            wfcc: WfccConfig::paper(),
            rtt: RttConfig { min_rto: Duration::from_millis(10), ..RttConfig::default() },
            pacer: None,
            ack_interval: AckInterval::EverySymbol,
            tail_probe: None,
            delay_mark: None,
            pull: PullFlowConfig::data_centre(),
            ..SourceConfig::default()
        }
    }
}

/// One flow, now: for status pages and time series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowStats {
    /// The flow.
    pub flow: FlowId,
    /// Its task.
    pub task: TaskId,
    /// What it sends.
    pub object: ObjectId,
    /// To whom.
    pub receiver: NodeId,
    /// The weight in force.
    pub theta: Theta,
    /// W.
    pub window: Packets,
    /// α.
    pub mark_fraction: f64,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Smallest recent round-trip time.
    pub min_rtt: Option<Duration>,
    /// The congestion signal.
    pub signal: MarkSignal,
    /// Packets in flight.
    pub in_flight: usize,
    /// Waits for its disk or encoder.
    pub starved: bool,
    /// Paused, by the controller or because the receiver is silent.
    pub paused: bool,
    /// T.
    pub symbol_size: u16,
    /// The longest datagram that passes, bytes above UDP, if its symbols are longer: nothing is sent then.
    pub fits: Option<u16>,
    /// What happened so far.
    pub counters: FlowCounters,
    /// What happened in the tree, if it is one.
    pub tree: Option<TreeStats>,
}

impl FlowStats {
    /// Of a flow that measures nothing of its way and has sent nothing yet.
    pub(crate) fn unmeasured(push: &Push) -> Self {
        FlowStats {
            flow: push.flow,
            task: push.task,
            object: push.object,
            receiver: push.receiver,
            theta: push.theta,
            window: Packets::ZERO,
            mark_fraction: 0.0,
            rtt: None,
            min_rtt: None,
            signal: MarkSignal::Unknown,
            in_flight: 0,
            starved: false,
            paused: false,
            symbol_size: push.symbol_size,
            fits: None,
            counters: FlowCounters::default(),
            tree: None,
        }
    }

    /// What of it the controller is told.
    pub(crate) fn report(&self) -> FlowReport {
        FlowReport {
            flow: self.flow,
            theta: self.theta,
            window: self.window,
            rtt: self.rtt,
            mark_fraction: self.mark_fraction,
            signal: self.signal,
            lost: self.counters.lost - self.counters.spurious,
            starved: self.starved,
        }
    }
}

/// What happened on one flow so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Symbols sent, copies included.
    pub sent: Symbols,
    /// Symbols acknowledged.
    pub acked: Symbols,
    /// Symbols declared lost.
    pub lost: Symbols,
    /// Of those, acknowledged after all.
    pub spurious: Symbols,
    /// Copies sent of lost symbols.
    pub resent: Symbols,
    /// Acknowledged symbols that counted as marked.
    pub marked: Symbols,
    /// Copies sent to probe.
    pub probes: Symbols,
    /// Datagrams without a symbol, sent to find the path's MTU or to say what it is.
    pub path_probes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// How often a gentle flow's window was cut in favour of others.
    pub yields: Yields,
    /// Time without a block to send from although the window was open.
    pub starved: Duration,
    /// ACKs ignored: of packets never sent.
    pub bad_acks: u64,
    /// ACKs whose ECN counters were not believed.
    pub bad_counters: u64,
    /// Entries of assignments ignored: no work of this object.
    pub bad_work: u64,
}

/// What happened on a source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Flows begun.
    pub opened: u64,
    /// Flows ended.
    pub closed: u64,
    /// Symbols that ended flows have sent, copies included.
    pub symbols_sent: u64,
    /// Of those, declared lost.
    pub symbols_lost: u64,
    /// Pushes refused.
    pub refused: u64,
    /// Datagrams and commands of flows that do not exist.
    pub unknown_flow: u64,
    /// Messages that no source takes.
    pub unexpected: u64,
}
