//! What a receiver can be told, and what it counts.

use headwater_units::{BitRate, Bytes, Duration, FlowId, NodeId, PathId};
use headwater_wire::{Class, Delivery, MarkSignal, SpreadRule};
use serde::{Deserialize, Serialize};

use crate::pull::SessionConfig;
use crate::tree::TreeReceiverConfig;

/// What a receiver needs to know before it begins.
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
    /// How the symbols queue.
    pub class: Class,
    /// Which transport is to bring it; the controller's choice if absent.
    pub delivery: Option<Delivery>,
    /// Headers of trimmed packets have come to this node lately.
    pub trims: bool,
    /// It takes all of the object, and others may be served from what comes.
    pub passes_on: bool,
    /// What a receiver that pulls needs to know besides; how many blocks are open and how long it waits is said here for both.
    pub pull: SessionConfig,
    /// What a receiver of trees needs to know besides; the credit is the controller's word.
    pub trees: TreeReceiverConfig,
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
    /// The request is said again after this long (PPUSH §III-A: "retries until it gets one").
    pub retry: Duration,
    /// Without a controller for this long the receiver gives up.
    pub patience: Duration,
    /// The same for an answer to the request, if longer: a controller that many ask at once is slow, not gone.
    pub busy_patience: Option<Duration>,
    /// Without any symbol for this long, although some are wanted, the receiver gives up.
    pub source_patience: Duration,
    /// Blocks of 256 KiB that may be partly here or waiting for the decoder, and of larger blocks as many fewer: bounds the
    /// memory, since each holds a block of bytes.
    pub blocks_in_flight: usize,
    /// Blocks that were asked for and of which nothing has come count among these, too: a bound that also holds when whoever takes the
    /// blocks does not come on while much is on its way.
    pub counts_asked_for: bool,
    /// A block that fails its hash this often ends the task.
    pub attempts: u8,
}

impl ReceiverConfig {
    /// How many blocks of this size may be open at once.
    pub(super) fn open_blocks(&self, block: Bytes) -> usize {
        let least = 256 << 10;
        (self.blocks_in_flight as u64 * least / block.get().max(least)).max(1) as usize
    }

    /// What a session that pulls an object with blocks of this size is told.
    pub(crate) fn session(&self, block: Bytes) -> SessionConfig {
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
            pull: SessionConfig::default(),
            trees: TreeReceiverConfig::default(),
            spread: SpreadRule::Listed,
            max_sources: None,
            limit: None,
            receive_window: 4096,
            max_ack_delay: Duration::from_millis(2),
            retry: Duration::from_millis(250),
            patience: Duration::from_secs(20),
            busy_patience: None,
            source_patience: Duration::from_secs(30),
            blocks_in_flight: 256,
            counts_asked_for: false,
            attempts: 8,
        }
    }
}

/// What a receiver counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReceiverStats {
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
    /// Symbols that arrived.
    pub arrivals: u64,
    /// Arrivals that brought nothing new.
    pub useless: u64,
    /// Repair symbols that stood in for source symbols in a decoded block.
    pub repair_used: u64,
    /// Blocks that failed their hash.
    pub corrupt: u64,
    /// Decodings that needed more symbols.
    pub need_more: u64,
    /// How often a source was asked again because nothing came, where the receiver pulls; pushed flows time out at their source.
    pub timeouts: u64,
    /// Datagrams that made no sense from where they came.
    pub strays: u64,
    /// Bytes of symbol that a datagram may carry: what the configuration said, or less where a path turned out narrow.
    pub room: u16,
    /// How often one did, so that the task went on with smaller symbols.
    pub narrowed: u32,
    /// Per flow, in order of their ids.
    pub flows: Vec<FlowStats>,
}

/// By which transport a flow's symbols came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CameBy {
    /// Its source pushed them (PPUSH).
    Push,
    /// The receiver asked for each (SCDP).
    Pull,
    /// Down a tree (Datacast).
    Tree,
}

/// What a receiver counted of one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowStats {
    /// The flow.
    pub flow: FlowId,
    /// Its source.
    pub node: NodeId,
    /// By which transport.
    pub came_by: CameBy,
    /// Useful payload.
    pub bytes: Bytes,
    /// Symbols that arrived.
    pub symbols: u64,
    /// Of these, useful ones.
    pub useful: u64,
    /// Useful payload that a group's flow brought, of all of it.
    pub by_group: Bytes,
    /// Its source is a receiver itself, and sends what comes to it.
    pub relays: bool,
    /// Symbols sent and not arrived, as far as the packet numbers tell.
    pub lost: u64,
    /// Symbols that arrived marked CE.
    pub marked: u32,
    /// Lately.
    pub rate: BitRate,
    /// Symbols sent while the source itself was the limit.
    pub starved: u64,
    /// Symbols asked for that have not come.
    pub outstanding: u64,
    /// From asking to receiving.
    pub turnaround: Option<Duration>,
    /// Over, distrusted or silent flows bring nothing.
    pub live: bool,
    /// It owes symbols and has said nothing for so long that nobody waits for it.
    pub silent: bool,
    /// The congestion signal as far as the receiver can tell.
    pub signal: MarkSignal,
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
