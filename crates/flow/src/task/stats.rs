//! Counters of a receiver.

use headwater_units::{BitRate, Bytes, Duration, FlowId, NodeId};
use headwater_wire::{Delivery, MarkSignal};
use serde::Serialize;

/// Counters of a receiver.
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
    /// Number of times that the task went on with smaller symbols because a path was too narrow.
    pub narrowed: u32,
    /// Per flow, in order of their ids.
    pub flows: Vec<FlowStats>,
}

/// Counters of one flow at its receiver.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowStats {
    /// The flow.
    pub flow: FlowId,
    /// Its source.
    pub node: NodeId,
    /// Its transport.
    pub came_by: Delivery,
    /// Useful payload.
    pub bytes: Bytes,
    /// Symbols that arrived.
    pub symbols: u64,
    /// Of these, useful ones.
    pub useful: u64,
    /// Useful payload that a group's flow brought, of all of it.
    pub by_group: Bytes,
    /// Its source is a receiver itself, and sends each block on that has come to it.
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

/// Counters of a receiver of pulled flows.
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
    /// Number of times that this receiver was detached from its group, or left it.
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

/// Counters of one flow at its receiver.
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

impl ReceiverStats {
    /// Counters of a session that asks for each symbol.
    pub fn of_session(of: SessionStats, came_by: Delivery, symbol_size: u16) -> Self {
        let symbol = u64::from(symbol_size);
        ReceiverStats {
            blocks: of.blocks,
            blocks_done: of.blocks_done,
            blocks_behind: of.blocks_behind,
            blocks_behind_most: of.blocks_behind_most,
            source_symbols: of.source_symbols,
            needed: of.needed,
            arrivals: of.arrivals,
            useless: of.useless + of.surplus,
            repair_used: of.repair_used,
            corrupt: of.corrupt,
            need_more: of.need_more,
            timeouts: of.timeouts,
            strays: of.strays,
            flows: of.flows.iter().map(|flow| flow_stats(flow, came_by, symbol)).collect(),
            ..ReceiverStats::default()
        }
    }
}

fn flow_stats(of: &SessionFlow, came_by: Delivery, symbol: u64) -> FlowStats {
    FlowStats {
        flow: of.flow,
        node: of.node,
        came_by,
        bytes: Bytes::new(of.useful * symbol),
        symbols: of.symbols,
        useful: of.useful,
        by_group: Bytes::new(of.by_group * symbol),
        relays: false,
        lost: of.lost,
        marked: 0,
        rate: of.rate,
        starved: 0,
        outstanding: of.coming,
        turnaround: of.rtt,
        live: !of.ended && !of.silent,
        silent: of.silent,
        signal: MarkSignal::Unknown,
    }
}
