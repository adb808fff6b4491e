//! What the two ends can be told, and what they count.

use headwater_units::{BitRate, Bytes, Duration, FlowId, NodeId};
use serde::{Deserialize, Serialize};

use crate::flow::rtt::RttConfig;

/// What the source of pulled flows can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullFlowConfig {
    /// A flow of the class [`Bulk`](headwater_wire::Class::Bulk) drops a level ([`headwater_wire::Class::LEVELS`]) when it has
    /// sent so much (payload). 10 KB, 100 KB, 1 MB and 10 MB: SCDP §IV. `None`, and for flows of any other class: no levels.
    pub demotion: Option<[Bytes; 4]>,
    /// Before its address has echoed a nonce, a receiver gets no more than the first window (docs/decisions/0030). Off where
    /// addresses cannot be forged, as in a simulation.
    pub validates_paths: bool,
    /// A flow whose last symbol was asked for is kept so long for what may yet go wrong: that symbol, the decoding, the hash
    /// ("a time period that ensures that the last prioritised symbol packet was not trimmed", SCDP §III-D). 10 s.
    pub release_after: Duration,
    /// A flow whose receiver has said nothing for so long, whatever it may still lack, is let go: its farewells are lost, or it is gone,
    /// and nobody has told this source to stop. Of n sources only the one that is pulled last hears of the end by a pull; of an object
    /// that first windows cover none does, unless a pull has opened the flow. Counted from the moment when it is known where the receiver
    /// is. 40 s: a receiver that waits for something asks every 4 s at least, and gives up after 30 ([`SessionConfig::source_patience`]);
    /// one that is held up by its decoder or disk is silent meanwhile.
    pub silent_release: Duration,
    /// A member that holds its group up for so long is detached (SCDP §III-E leaves it to the application). 500 ms.
    pub detach_after: Duration,
    /// A group waits so long for members that have not said a word, once one has. 1 s: they have the object's hashes to learn, and to
    /// look at what is there of it; whoever takes longer is served alone. Of no matter where nobody need say where he is.
    pub assemble_for: Duration,
    /// A detached member is told so again after this long, until it has understood. 50 ms, doubled each time up to 32 times.
    pub retell: Duration,
    /// Blocks per flow that a receiver may want symbols of at the same time; what it wants of older ones is forgotten. 256: the
    /// blocks that a receiver opens.
    pub open_blocks: usize,
    /// Blocks prepared ahead of the newest that is wanted. 4, as for pushed flows.
    pub prepare_ahead: u32,
}

impl Default for PullFlowConfig {
    fn default() -> Self {
        let kb = |n: u64| Bytes::new(1000 * n);
        PullFlowConfig {
            demotion: Some([kb(10), kb(100), kb(1000), kb(10_000)]),
            validates_paths: true,
            release_after: Duration::from_secs(10),
            silent_release: Duration::from_secs(40),
            detach_after: Duration::from_millis(500),
            assemble_for: Duration::from_secs(1),
            retell: Duration::from_millis(50),
            open_blocks: 256,
            prepare_ahead: 4,
        }
    }
}

impl PullFlowConfig {
    /// For a simulated data centre: addresses are what they are.
    pub fn data_centre() -> Self {
        PullFlowConfig { validates_paths: false, ..PullFlowConfig::default() }
    }
}

/// What a receiver of pulled flows can be told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionConfig {
    /// Symbols beyond K that a block is to have once something of it was lost. 2: SCDP §II (decoding then fails once in 10^6).
    pub extra: u32,
    /// Timeouts: a flow is asked again when nothing has come for so long although something should.
    pub rtt: RttConfig,
    /// A packet is lost when so many later ones of its flow have come whole; headers overtake. 3: RFC 9002 §6.1.1. Where packets are
    /// sprayed, more than paths differ by; where headers of trimmed symbols tell of losses, it may be large.
    pub reordering: u16,
    /// Blocks of which something may be here, or be waiting for the decoder, while older ones are not complete.
    pub open_blocks: u32,
    /// A flow is opened by a pull that asks for nothing but says where the receiver is. Without it the source must know.
    pub opens_flows: bool,
    /// Without a useful symbol for this long, although some are wanted, the receiver gives up. 30 s, as of pushed flows.
    pub source_patience: Duration,
    /// A block that fails its hash this often ends the task. 8, as of pushed flows.
    pub attempts: u8,
    /// A member of a group by which nothing has come for so long leaves it. 2 s: long after a source has detached whoever holds the
    /// group up ([`PullFlowConfig::detach_after`]).
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

/// What a receiver of pulled flows counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionStats {
    /// Blocks wanted.
    pub blocks: u32,
    /// Blocks here, verified.
    pub blocks_done: u32,
    /// Blocks that wait for decoder, hash or disk.
    pub blocks_behind: u32,
    /// The most that ever waited.
    pub blocks_behind_most: u32,
    /// Source symbols wanted in all (of blocks that were not here at the start).
    pub source_symbols: u64,
    /// Symbols still needed.
    pub needed: u64,
    /// Symbols that arrived whole.
    pub arrivals: u64,
    /// Of these, those that brought nothing new.
    pub useless: u64,
    /// Of these, those of blocks that had all they were to have.
    pub surplus: u64,
    /// Headers of trimmed symbols that arrived.
    pub trimmed: u64,
    /// Symbols inferred as lost: from later arrivals, or from time.
    pub lost: u64,
    /// Blocks that something was lost of, so that they were to have more symbols than K.
    pub blocks_lossy: u32,
    /// Repair symbols that stood in for source symbols in a decoded block.
    pub repair_used: u64,
    /// Pulls sent, those that open a flow too.
    pub pulls: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// How often this receiver was detached from its group, or left it.
    pub detached: u32,
    /// Blocks that failed their hash.
    pub corrupt: u64,
    /// Decodings that needed more symbols.
    pub need_more: u64,
    /// Datagrams that made no sense from where they came.
    pub strays: u64,
    /// Per flow, in order of their ids; those that are over too, if anything came by them.
    pub flows: Vec<SessionFlow>,
}

/// What a receiver counted of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SessionFlow {
    /// The flow.
    pub flow: FlowId,
    /// Its source.
    pub node: NodeId,
    /// Symbols that arrived whole, those that a group's flow brought too.
    pub symbols: u64,
    /// Of these, useful ones.
    pub useful: u64,
    /// Of the useful ones, those that a group's flow brought.
    pub by_group: u64,
    /// Its source is a receiver itself, and sends what comes to it.
    pub relays: bool,
    /// Headers that arrived.
    pub trimmed: u64,
    /// Symbols inferred as lost.
    pub lost: u64,
    /// Symbols asked for so far.
    pub asked: u64,
    /// Symbols pushed or asked for that may still come.
    pub coming: u64,
    /// Useful payload, from one word to the controller to the next.
    pub rate: BitRate,
    /// From a pull to its answer.
    pub rtt: Option<Duration>,
    /// Nothing has come for so long that nobody waits for it.
    pub silent: bool,
    /// Over, or ending.
    pub ended: bool,
}
