//! The constants of the machines at the ends.

use headwater_units::{Bytes, Duration};
use headwater_wire::Class;
use serde::{Deserialize, Serialize};

use super::{Amount, DatacastSpec, PamSpec, SwarmSpec};
use crate::text;

/// The constants of the machines at the ends; one set for all of a paper's figures.
///
/// With [`Machines::Product`] the product's own settings take the place of all constants but
/// [`TransportSpec::states_rates`], [`TransportSpec::block_symbols`], [`TransportSpec::decode`] and [`TransportSpec::class`];
/// the others must be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportSpec {
    /// Origin of constants that are left out: PPUSH's, or the product's.
    #[serde(skip_serializing_if = "Machines::are_the_papers")]
    pub machines: Machines,
    /// Hosts of the product have been told what their links carry (`--uplink`, `--downlink`), and say so.
    #[serde(skip_serializing_if = "is_so")]
    pub states_rates: bool,
    /// The window that a flow starts with, packets; 1 (PPUSH §IV-B: W(0) = 1).
    pub initial_window: f64,
    /// The weight of the newest mark fraction (PPUSH g, Eq. 1); 1/16 (§IV-B).
    pub gain: f64,
    /// A packet is lost when this many later ones are acknowledged (PPUSH DUPACKNUM, §III-B); 3.
    pub duplicate_acks: u32,
    /// The least retransmission timeout; 10 ms (the paper does not say; 1 s over WAN).
    #[serde(with = "text::one")]
    pub min_rto: Duration,
    /// TCP's receivers say what they have above a gap (RFC 2018), and its senders repair several losses in a round trip (RFC 6675); no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sack: bool,
    /// Source symbols of a block (RFC 6330 K); 1024 (the paper does not say).
    pub block_symbols: u32,
    /// Which symbols a source sends; by residue class, as PPUSH §III-A.
    pub assignment: Assignment,
    /// Packets per ACK; 1 (PPUSH §III-A: an ACK per symbol).
    pub ack_every: u32,
    /// How a source takes loss; it ignores it (PPUSH Eq. 2 does not know loss).
    pub loss_response: LossResponse,
    /// The least weight, θ-; 0.5 (PPUSH Eq. 21).
    pub theta_floor: f64,
    /// The unloaded round trip d from which each link's θ+ = (C d + K) / 2 follows (PPUSH Eq. 20); the fabric's longest
    /// if absent.
    #[serde(with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub base_rtt: Option<Duration>,
    /// θ+ of every link, whatever its rate; by Eq. 20 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theta_ceiling: Option<f64>,
    /// How often a receiver tells the controller what it still needs; 1 ms (PPUSH §III-A: "periodically").
    #[serde(with = "text::one")]
    pub feedback_every: Duration,
    /// Cost of decoding a block.
    pub decode: Decode,
    /// In which class symbols queue; bulk. ACKs and control are in a class of their own.
    #[serde(skip_serializing_if = "DataClass::is_bulk")]
    pub class: DataClass,
    /// Of the schemes whose receivers pull, which have them instead of `initial_window` and `min_rto`.
    #[serde(skip_serializing_if = "PullSpec::is_default")]
    pub pull: PullSpec,
    /// Of Datacast, which has these alone.
    #[serde(skip_serializing_if = "DatacastSpec::is_default")]
    pub datacast: DatacastSpec,
    /// Of PAM, which has these alone.
    #[serde(skip_serializing_if = "PamSpec::is_default")]
    pub pam: PamSpec,
    /// Of swarms, which have these alone.
    #[serde(skip_serializing_if = "SwarmSpec::is_default")]
    pub swarm: SwarmSpec,
}

/// The constants of the schemes whose receivers pull (SCDP §III, §IV; NDP).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PullSpec {
    /// Packets that a source pushes before it is asked for more (IW); 12 (SCDP §IV).
    pub window: u32,
    /// The least retransmission timeout, and the first; 1 ms (the paper does not say).
    #[serde(with = "text::one")]
    pub min_rto: Duration,
    /// Bytes of their links that receivers leave free for each packet that they pull; none (NDP's authors and SCDP's
    /// leave none; csg-htsim's receivers pull every wire time / 0.99, as with 15 B).
    #[serde(with = "text::one")]
    pub headroom: Bytes,
    /// Symbols that each of several sources pushes, where they send coded symbols (SCDP IW_i); 6 (§IV does not say:
    /// three of them fill the longest path of its network, two its shorter ones).
    #[serde(skip_serializing_if = "is_usual_many_window")]
    pub many_window: u32,
    /// Packets, or bytes of their payload, after which a flow of coded symbols drops a level of priority; 10 KB,
    /// 100 KB, 1 MB and 10 MB (SCDP §IV).
    #[serde(skip_serializing_if = "are_usual_levels")]
    pub levels: [Amount; 4],
    /// Time after which a member that holds its group up is served by itself; 500 ms (SCDP §III-E leaves it to the
    /// application).
    #[serde(with = "text::one", skip_serializing_if = "is_usual_patience")]
    pub detach_after: Duration,
    /// Number of later packets of its flow that must have come before a packet of coded symbols counts as lost; 250:
    /// packets are sprayed, and headers tell of losses. 3 where neither is so (RFC 9002 §6.1.1).
    #[serde(skip_serializing_if = "is_usual_reordering")]
    pub reordering: u16,
}

/// 10 KB, 100 KB, 1 MB and 10 MB.
const USUAL_LEVELS: [Amount; 4] = [
    Amount::Bytes(Bytes::new(10_000)),
    Amount::Bytes(Bytes::new(100_000)),
    Amount::Bytes(Bytes::new(1_000_000)),
    Amount::Bytes(Bytes::new(10_000_000)),
];
const USUAL_MANY_WINDOW: u32 = 6;
const USUAL_PATIENCE: Duration = Duration::from_millis(500);
const USUAL_REORDERING: u16 = 250;

fn is_so(it: &bool) -> bool {
    *it
}

fn is_usual_many_window(window: &u32) -> bool {
    *window == USUAL_MANY_WINDOW
}

fn are_usual_levels(levels: &[Amount; 4]) -> bool {
    *levels == USUAL_LEVELS
}

fn is_usual_patience(patience: &Duration) -> bool {
    *patience == USUAL_PATIENCE
}

fn is_usual_reordering(reordering: &u16) -> bool {
    *reordering == USUAL_REORDERING
}

impl Default for PullSpec {
    /// As each field says.
    fn default() -> Self {
        PullSpec {
            window: 12,
            min_rto: Duration::from_millis(1),
            headroom: Bytes::ZERO,
            many_window: USUAL_MANY_WINDOW,
            levels: USUAL_LEVELS,
            detach_after: USUAL_PATIENCE,
            reordering: USUAL_REORDERING,
        }
    }
}

impl PullSpec {
    // Left out of a scenario's canonical text, as `DataClass::is_bulk`.
    fn is_default(&self) -> bool {
        *self == PullSpec::default()
    }
}

impl Default for TransportSpec {
    /// As each field says.
    fn default() -> Self {
        TransportSpec {
            machines: Machines::default(),
            states_rates: true,
            initial_window: 1.0,
            gain: 1.0 / 16.0,
            duplicate_acks: 3,
            min_rto: Duration::from_millis(10),
            sack: false,
            block_symbols: 1024,
            assignment: Assignment::default(),
            ack_every: 1,
            loss_response: LossResponse::default(),
            theta_floor: 0.5,
            base_rtt: None,
            theta_ceiling: None,
            feedback_every: Duration::from_millis(1),
            decode: Decode::default(),
            class: DataClass::default(),
            pull: PullSpec::default(),
            datacast: DatacastSpec::default(),
            pam: PamSpec::default(),
            swarm: SwarmSpec::default(),
        }
    }
}

/// Machines that run at the ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Machines {
    /// Those of PPUSH's experiments, with the constants of the scenario.
    #[default]
    Paper,
    /// Those that the product ships: listed assignment, guarded loss response, carried fractions, pacing, tail probes, few
    /// ACKs, measured θ+, limits against everybody who is silent or forges addresses.
    Product,
}

impl Machines {
    // Left out of a scenario's canonical text, as `DataClass::is_bulk`.
    fn are_the_papers(&self) -> bool {
        *self == Machines::Paper
    }
}

/// In which class symbols queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataClass {
    /// As other traffic.
    #[default]
    Bulk,
    /// Behind everything else, where ports have classes (RFC 8622, lower effort).
    Gentle,
}

impl DataClass {
    // Left out of a scenario's canonical text, so that runs keep the keys that they had before there was a choice.
    fn is_bulk(&self) -> bool {
        *self == DataClass::Bulk
    }
}

impl From<DataClass> for Class {
    fn from(class: DataClass) -> Class {
        match class {
            DataClass::Bulk => Class::Bulk,
            DataClass::Gentle => Class::Gentle,
        }
    }
}

/// Which symbols a source sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// Source i of M: symbols i, i + M, i + 2M (PPUSH §III-A).
    #[default]
    Residue,
    /// Whole blocks by measured rate, as in the product.
    Listed,
}

/// How a source takes loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossResponse {
    /// Loss never moves the window; only a timeout does.
    #[default]
    Ignore,
    /// Long loss without marks counts as marks, as in the product.
    Guarded,
}

/// Cost of decoding a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Decode {
    /// Symbols beyond K that a block needs; 2 (PPUSH footnote 1).
    pub overhead: u32,
    /// From the last needed symbol to the decoded block; none (the paper models none).
    #[serde(with = "text::one")]
    pub latency: Duration,
}

impl Default for Decode {
    fn default() -> Self {
        Decode { overhead: 2, latency: Duration::ZERO }
    }
}
