//! Configuration of a receiver.

use headwater_units::{BitRate, Bytes, Duration, NodeId, PathId};
use headwater_wire::{Class, Delivery, SpreadRule, Urgency};
use serde::{Deserialize, Serialize};

use crate::rtt::RttConfig;

/// Configuration of a fetch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiverConfig {
    /// The object's name or id.
    pub name: String,
    /// This node.
    pub node: NodeId,
    /// The control connection to the controller.
    pub controller: PathId,
    /// Tells this request from others of the same node; drawn by the driver.
    pub request: u64,
    /// Bytes of symbol that a datagram to this node carries.
    pub room: u16,
    /// Class in which the symbols queue.
    pub class: Class,
    /// Transport to use; the controller's choice if absent.
    pub delivery: Option<Delivery>,
    /// Headers of trimmed packets have come to this node lately.
    pub trims: bool,
    /// It takes all of the object, and others may be served from what comes.
    pub passes_on: bool,
    /// How much it matters beside others: the controller weighs its flows by that. None.
    pub urgency: Option<Urgency>,
    /// Further configuration of a receiver that pulls. Its number of open blocks and its patience hold for both kinds
    /// of receivers.
    pub pull: SessionConfig,
    /// Further configuration of a receiver of trees; the controller sets the credit.
    pub trees: TreeReceiverConfig,
    /// Flows whose rate switches compute.
    pub rate: RateReceiverConfig,
    /// How the work is spread over the sources, where they push.
    pub spread: SpreadRule,
    /// At most this many sources; the controller's limit if absent.
    pub max_sources: Option<u8>,
    /// Symbols are asked for at most this fast, all sources together (payload, without headers).
    pub limit: Option<BitRate>,
    /// Packets that the socket's buffer holds; the sources together never have more in flight.
    pub receive_window: u32,
    /// An ACK never waits longer (RFC 9000 §13.2.1 has 25 ms; a data centre wants less).
    pub max_ack_delay: Duration,
    /// Time for which an ACK that is due waits for more packets. Zero by default; a driver that takes in packets by the
    /// batch, all at one time, sets the least that is more, and each flow has one ACK per batch.
    pub ack_gather: Duration,
    /// Interval at which the request is repeated (PPUSH §III-A: "retries until it gets one").
    pub retry: Duration,
    /// Time without a controller after which the receiver gives up.
    pub patience: Duration,
    /// The same for an answer to the request, if longer: a controller that many ask at once is slow, not gone.
    pub busy_patience: Option<Duration>,
    /// Time without any symbol, although some are wanted, after which the receiver gives up.
    pub source_patience: Duration,
    /// Blocks of 256 KiB that may be partly here or waiting for the decoder, and of larger blocks as many fewer: bounds the
    /// memory, since each holds a block of bytes.
    pub blocks_in_flight: usize,
    /// Blocks that were asked for and of which nothing has come count among these, too: a bound that also holds when
    /// the consumer of the blocks does not catch up while much is on its way.
    pub counts_asked_for: bool,
    /// Number of failed hashes of a block that ends the task.
    pub attempts: u8,
    /// Datagrams that open a flow are long ([`headwater_wire::OPENING`]): a source that does not know yet whether this receiver is where it
    /// says may then answer with more. Simulated sources know.
    pub pads_openings: bool,
}

impl ReceiverConfig {
    /// Maximum number of blocks of this size that may be open at once.
    pub fn open_blocks(&self, block: Bytes) -> usize {
        let least = 256 << 10;
        (self.blocks_in_flight as u64 * least / block.get().max(least)).max(1) as usize
    }

    /// Configuration of a session that pulls an object with blocks of this size.
    pub fn session(&self, block: Bytes) -> SessionConfig {
        SessionConfig {
            open_blocks: u32::try_from(self.open_blocks(block)).unwrap_or(u32::MAX),
            source_patience: self.source_patience,
            attempts: self.attempts,
            ..self.pull
        }
    }

    /// A request with the product's defaults.
    pub fn new(name: impl Into<String>, node: NodeId, controller: PathId, request: u64) -> Self {
        ReceiverConfig {
            name: name.into(),
            node,
            controller,
            request,
            room: 1424,
            class: Class::Bulk,
            delivery: Some(Delivery::Push),
            trims: false,
            passes_on: false,
            urgency: None,
            pull: SessionConfig::default(),
            trees: TreeReceiverConfig::default(),
            rate: RateReceiverConfig::default(),
            spread: SpreadRule::Listed,
            max_sources: None,
            limit: None,
            receive_window: 4096,
            max_ack_delay: Duration::from_millis(2),
            ack_gather: Duration::ZERO,
            retry: Duration::from_millis(250),
            patience: Duration::from_secs(20),
            busy_patience: None,
            source_patience: Duration::from_secs(30),
            blocks_in_flight: 256,
            counts_asked_for: false,
            attempts: 8,
            pads_openings: false,
        }
    }
}

/// Configuration of a receiver of pulled flows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionConfig {
    /// Symbols beyond K that a block is to have once something of it was lost. 2: SCDP §II (decoding then fails once in 10^6).
    pub extra: u32,
    /// Timeouts: a flow is asked again when nothing has come for a timeout although something should.
    pub rtt: RttConfig,
    /// Number of later packets of its flow that must have come whole before a packet counts as lost; headers overtake.
    /// 3: RFC 9002 §6.1.1. Where packets are sprayed, more than paths differ by; where headers of trimmed symbols tell
    /// of losses, it may be large.
    pub reordering: u16,
    /// Blocks of which something may be here, or be waiting for the decoder, while older ones are not complete.
    pub open_blocks: u32,
    /// A flow is opened by a pull that asks for nothing but says where the receiver is. Without it the source must know.
    pub opens_flows: bool,
    /// Time without a useful symbol, although some are wanted, after which the receiver gives up. 30 s, as of pushed
    /// flows.
    pub source_patience: Duration,
    /// Number of failed hashes of a block that ends the task. 8, as of pushed flows.
    pub attempts: u8,
    /// Silence of a group after which a member leaves it. 2 s: long after a source has detached a member that holds the
    /// group up (`PullFlowConfig::detach_after` of the transport).
    pub group_patience: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        SessionConfig {
            extra: 2,
            rtt: RttConfig { initial_rto: Duration::from_millis(200), ..RttConfig::default() },
            reordering: 3,
            open_blocks: 256,
            opens_flows: true,
            source_patience: Duration::from_secs(30),
            attempts: 8,
            group_patience: Duration::from_secs(2),
        }
    }
}

impl SessionConfig {
    /// For a simulated data centre: packets are sprayed, switches trim, sources know where receivers are, and timeouts are at
    /// least 1 ms (catalogue of experiments, "Choices").
    pub fn data_centre() -> Self {
        let ms = Duration::from_millis;
        SessionConfig {
            rtt: RttConfig {
                initial_rto: ms(1),
                min_rto: ms(1),
                granularity: Duration::from_micros(100),
                ..RttConfig::default()
            },
            reordering: 250,
            opens_flows: false,
            ..SessionConfig::default()
        }
    }
}

/// Configuration of a receiver of trees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeReceiverConfig {
    /// w: interests that may be out in one tree. 16: fills 1 Gbit/s at a round trip of 200 us (§V-B).
    pub credit: u32,
    /// The timer of an interest: that of TCP (RFC 6298), but never below 2 ms, and never so long that the symbol has left the
    /// stores meanwhile.
    pub rtt: RttConfig,
}

impl Default for TreeReceiverConfig {
    fn default() -> Self {
        let ms = Duration::from_millis;
        let rtt =
            RttConfig { initial_rto: ms(100), min_rto: ms(2), max_rto: ms(100), ..RttConfig::default() };
        TreeReceiverConfig { credit: 16, rtt: RttConfig { granularity: Duration::from_micros(100), ..rtt } }
    }
}

impl TreeReceiverConfig {
    /// On hosts whose nodes are programs: their scheduler may hold one up for longer than a symbol takes, and who asks again too early
    /// has it sent twice. Between the paper's 2 ms and PPUSH's 50 ms, since a store does not remember for long.
    pub fn on_hosts() -> Self {
        let defaults = TreeReceiverConfig::default();
        let ms = Duration::from_millis;
        let rtt = RttConfig { min_rto: ms(20), max_rto: ms(200), granularity: ms(1), ..defaults.rtt };
        TreeReceiverConfig { rtt, ..defaults }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_take_as_much_memory() {
        let config = ReceiverConfig::new("object", NodeId([1; 32]), PathId(1), 1);
        let open = |kib: u64| config.open_blocks(Bytes::kib(kib));
        assert_eq!([open(1), open(256), open(512), open(1024)], [256, 256, 128, 64]);
        assert_eq!(ReceiverConfig { blocks_in_flight: 1, ..config }.open_blocks(Bytes::mib(1)), 1);
    }
}

/// Configuration of the receiver of scheduled transfers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateReceiverConfig {
    /// Offers that differ from the last one by this share are fed back (PAM Alg. 1, γ). 0.05: §III-B.
    pub gamma: f64,
    /// Probability with which a packet is answered all the same, divided by the number of receivers (PAM §III-B, τ_b). 0.01.
    pub tau: f64,
    /// Longest interval between feedback while packets come. 100 ms: a source that hears nothing cannot tell a receiver
    /// that is content from one that is gone.
    pub keep_alive: Duration,
    /// Number of later packets that must have come before a packet counts as lost. 3: RFC 9002 §6.1.1.
    pub reordering: u8,
    /// How lost symbols are made good.
    pub repair: Repair,
}

/// How lost symbols are made good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repair {
    /// By as many repair symbols as the worst receiver needs, which serve all of them.
    Coded,
    /// By the lost symbols themselves (PAM §III: "receiver-triggered NACKs for lost packet retransmission").
    Retransmitted,
}

impl Default for RateReceiverConfig {
    fn default() -> Self {
        RateReceiverConfig {
            gamma: 0.05,
            tau: 0.01,
            keep_alive: Duration::from_millis(100),
            reordering: 3,
            repair: Repair::Coded,
        }
    }
}

impl RateReceiverConfig {
    /// Configuration of the paper's simulations: lost symbols are sent again.
    pub fn paper() -> Self {
        RateReceiverConfig { repair: Repair::Retransmitted, ..RateReceiverConfig::default() }
    }
}
