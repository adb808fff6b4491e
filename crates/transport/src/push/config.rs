//! Configuration of the source of pushed flows.

use headwater_units::Duration;
use serde::{Deserialize, Serialize};

use super::wfcc::WfccConfig;
use super::yielding::YieldingConfig;
use headwater_flow::marks::DelayMark;
use headwater_flow::pacer::PacerConfig;
use headwater_flow::path_mtu::PathMtuConfig;
use headwater_flow::paths::Unanswered;
use headwater_flow::rtt::RttConfig;

/// Blocks that a flow looks ahead at most, unless told otherwise.
pub(crate) const LOOK_AHEAD: usize = 64;

/// After how many symbols the receiver is asked for an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AckInterval {
    /// After each: PPUSH §III-A ("immediately generates an acknowledgment").
    EverySymbol,
    /// After a part of the window: the window moves in steps that a mark threshold can take (docs/decisions/0002).
    WindowPart {
        /// Number of parts. 16, not 4 (docs/decisions/0002): each ACK lets as many packets go, a large flow marks
        /// itself by such bursts, and the share drifts from theta (two flows at thetas 1 and 4, marks from 100 packets
        /// on, got 1.2:1 with 4, 2.3:1 with 8 and 3.4:1 with 16; 4.3:1 with an ACK per symbol).
        parts: u8,
        /// Maximum; 46 segments are what one GSO send carries at 1,400 bytes (docs/decisions/0024).
        most: u8,
    },
}

/// Symbol that a flow sends in place of a lost one, under the residue rule. Under the listed rule the receiver names
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

/// Configuration of pushed flows. `Default` is the product's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushFlowConfig {
    /// Congestion control.
    pub wfcc: WfccConfig,
    /// Window rule of push flows of the gentle class, which yield to everybody; `None`, and so by default: they too go
    /// by their weight, as in all experiments. Drivers of real sockets set it.
    pub yielding: Option<YieldingConfig>,
    /// Round-trip time and timeouts.
    pub rtt: RttConfig,
    /// Pacing of each flow; `None`: the window alone.
    pub pacer: Option<PacerConfig>,
    /// Interval at which ACKs are asked for.
    pub ack_interval: AckInterval,
    /// Tail probes; `None`: the RTO alone.
    pub tail_probe: Option<TailProbe>,
    /// Queueing delay as mark where no CE arrives; `None`: only CE counts.
    pub delay_mark: Option<DelayMark>,
    /// Symbol that replaces a lost one.
    pub lost_symbols: LostSymbols,
    /// Limit of an address that has not echoed a nonce. 10 packets, an initial window; drivers of real sockets set
    /// three times the bytes that came from there (docs/decisions/0030).
    pub unanswered: Unanswered,
    /// Packets in flight per flow, whatever window the receiver announces: bounds the table of sent packets (3 MiB).
    pub max_in_flight: u32,
    /// Lost packets remembered per flow to recognise late ACKs: more than a round trip of losses at 8 % and W = 10,000.
    pub lost_memory: usize,
    /// Blocks prepared ahead at least. 4: enough to hide a disk read behind a block on the wire.
    pub prepare_ahead: usize,
    /// Blocks are prepared ahead to cover this many windows of symbols, too.
    pub prepare_windows: f64,
    /// Blocks that a flow looks ahead at most.
    pub look_ahead: usize,
    /// Silence of its receiver after which a flow with packets in flight pauses (PPUSH §III-A has the controller pause
    /// flows of silent receivers; a source need not wait for it). 10 s.
    pub silent_pause: Duration,
    /// How it is found out that a path does not carry what a task sends. `None`, and so by default: not at all, since a
    /// simulated path carries everything and probes would only add packets; drivers of real sockets set it.
    pub path_mtu: Option<PathMtuConfig>,
}

impl Default for PushFlowConfig {
    fn default() -> Self {
        PushFlowConfig {
            wfcc: WfccConfig::default(),
            yielding: None,
            rtt: RttConfig::default(),
            pacer: Some(PacerConfig::default()),
            ack_interval: AckInterval::WindowPart { parts: 16, most: 46 },
            tail_probe: Some(TailProbe { packets: 2 }),
            delay_mark: Some(DelayMark::default()),
            lost_symbols: LostSymbols::Resend,
            unanswered: Unanswered::Packets(10),
            max_in_flight: 65_536,
            lost_memory: 1024,
            prepare_ahead: 4,
            prepare_windows: 2.0,
            look_ahead: LOOK_AHEAD,
            silent_pause: Duration::from_secs(10),
            path_mtu: None,
        }
    }
}

impl PushFlowConfig {
    /// Configuration of PPUSH's experiments (§IV-B, §V-A): an ACK per symbol, the window alone decides when to send,
    /// marks are CE, loss moves nothing but the RTO. The timeout is 10 ms, which the paper does not give: an order
    /// above the loaded round trip of every experiment but the wide-area ones, whose runs set 1 s.
    pub fn paper() -> Self {
        PushFlowConfig {
            wfcc: WfccConfig::paper(),
            rtt: RttConfig {
                min_rto: Duration::from_millis(10),
                max_rto: Duration::from_secs(60),
                ..RttConfig::default()
            },
            pacer: None,
            ack_interval: AckInterval::EverySymbol,
            tail_probe: None,
            delay_mark: None,
            ..PushFlowConfig::default()
        }
    }
}
