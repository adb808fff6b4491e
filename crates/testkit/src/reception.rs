//! A receiver's driver: what it keeps, and the oracle of what it is told.

use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::Packet;
use headwater_transport::{Bind, DecodeFailure, ReceiverCommand, ReceiverEvent, ReceiverFailure};
use headwater_units::{BlockIndex, Esi, FlowId, Geometry, NodeId, PathId, SymbolId, Time};
use headwater_wire::Body;

/// Work that a driver owes its receiver, early or late.
#[derive(Debug)]
pub enum Duty {
    /// Tell it this: there is room for the object.
    Start(ReceiverCommand),
    /// Tell it the path of this flow.
    FindPath(Box<Bind>),
    /// Tell it what [`Reception::decode`] gives.
    Decode(BlockIndex),
}

/// Symbols at a decoder.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// Their block.
    pub block: BlockIndex,
    /// How often it has been tried, this time included.
    pub tries: u32,
    /// K.
    pub source_symbols: u32,
    /// The symbols, and which flow brought each.
    pub symbols: &'a BTreeMap<Esi, FlowId>,
}

impl Attempt<'_> {
    /// All of the block itself is here: there is nothing to solve.
    pub fn is_systematic(&self) -> bool {
        self.symbols.range(..Esi(self.source_symbols)).count() == self.source_symbols as usize
    }

    /// Repair symbols, and none to spare: now and then they do not determine the block.
    pub fn is_close(&self) -> bool {
        !self.is_systematic() && self.symbols.len() == self.source_symbols as usize
    }
}

/// State of a receiver's driver for one fetch.
///
/// Panics where a machine breaks its contract: symbols kept twice or unasked, blocks decoded with fewer symbols than they have, ends
/// without all blocks, ends after the end.
#[derive(Debug, Default)]
pub struct Reception {
    /// How the object is cut.
    pub geometry: Option<Geometry>,
    /// Blocks that are whole.
    pub whole: BTreeSet<BlockIndex>,
    /// Blocks in the order in which enough of them was here.
    pub order: Vec<BlockIndex>,
    /// How often the task has begun.
    pub begun: u32,
    /// Symbols that were kept.
    pub kept: u64,
    /// How often what was here of a block was thrown away.
    pub discarded: u32,
    /// Sources that are not believed any more.
    pub distrusted: Vec<NodeId>,
    /// Flows that have begun.
    pub bound: BTreeSet<FlowId>,
    /// Those of them that are over.
    pub unbound: BTreeSet<FlowId>,
    /// When it was done, or had failed.
    pub finished: Option<(Time, Result<(), ReceiverFailure>)>,
    /// All messages have been sent.
    pub ended: bool,
    handed_in: Option<SymbolId>,
    symbols: BTreeMap<BlockIndex, BTreeMap<Esi, FlowId>>,
    tries: BTreeMap<BlockIndex, u32>,
    decoding: BTreeSet<BlockIndex>,
    /// Blocks that were at the decoder when the task began anew.
    outrun: BTreeSet<BlockIndex>,
}

impl Reception {
    /// For a machine that is created with the geometry, and so announces none.
    pub fn of(geometry: Geometry) -> Self {
        Reception { geometry: Some(geometry), ..Reception::default() }
    }

    /// A packet is about to be handed to the machine.
    pub fn hands_in(&mut self, packet: &Packet) {
        self.handed_in = match &packet.datagram.body {
            Body::Symbol(header) if !header.trimmed => Some(header.symbol),
            Body::ScheduledSymbol(header) if !header.trimmed => Some(header.symbol),
            _ => None,
        };
    }

    /// Takes what the machine says at a time.
    pub fn on_event(&mut self, now: Time, event: ReceiverEvent) -> Option<Duty> {
        match event {
            ReceiverEvent::Accepted { bytes, symbol_size, .. } => {
                let geometry = Geometry::new(bytes, symbol_size).expect("the machine has checked");
                self.begun += 1;
                self.geometry = Some(geometry);
                self.symbols.clear();
                self.outrun.append(&mut self.decoding);
                let have = self.whole.iter().copied().collect();
                let start = ReceiverCommand::Start { wanted: 0..geometry.layout().block_count(), have };
                return Some(Duty::Start(start));
            }
            ReceiverEvent::Bind(bind) => {
                let again = !self.bound.insert(bind.flow) && !self.unbound.remove(&bind.flow);
                assert!(!again, "{:?} begins twice", bind.flow);
                return Some(Duty::FindPath(bind));
            }
            ReceiverEvent::Moved(bind) => return Some(Duty::FindPath(bind)),
            ReceiverEvent::Unbind { flow } => {
                assert!(self.unbound.insert(flow), "{flow:?} is over twice");
            }
            ReceiverEvent::Symbol { flow, symbol } => {
                assert_eq!(self.handed_in.take(), Some(symbol), "only what was handed in can be kept");
                self.keep(flow, symbol);
            }
            ReceiverEvent::Decode { block } => {
                let (need, here) = (self.source_symbols(block), self.symbols_of(block).len());
                assert!(need > 0 && here >= need as usize, "{block} needs {need} symbols, {here} are here");
                assert!(self.decoding.insert(block), "{block} is being decoded already");
                self.order.push(block);
                return Some(Duty::Decode(block));
            }
            ReceiverEvent::Discard { block } => {
                assert!(!self.decoding.contains(&block), "the decoder has the symbols of {block}");
                self.discarded += 1;
                self.symbols.remove(&block);
            }
            ReceiverEvent::Distrusted { node } => self.distrusted.push(node),
            ReceiverEvent::Done => {
                let geometry = self.geometry.expect("it was accepted");
                let blocks = geometry.layout().block_count() as usize;
                assert_eq!(self.whole.len(), blocks, "done without all blocks");
                self.finish(now, Ok(()));
            }
            ReceiverEvent::Failed(failure) => self.finish(now, Err(failure)),
            ReceiverEvent::Ended => {
                assert!(self.finished.is_some(), "over without an end");
                self.ended = true;
                self.symbols.clear();
            }
        }
        None
    }

    /// Answer of a driver whose decoder takes no time, and that finds sources at the given path.
    pub fn answer(
        &mut self,
        now: Time,
        event: ReceiverEvent,
        path: impl FnOnce(&Bind) -> PathId,
    ) -> Option<ReceiverCommand> {
        match self.on_event(now, event)? {
            Duty::Start(start) => Some(start),
            Duty::FindPath(bind) => Some(ReceiverCommand::FlowPath { flow: bind.flow, path: path(&bind) }),
            Duty::Decode(block) => self.decode(block, |_| Ok(())),
        }
    }

    /// Keeps a symbol that a flow has brought.
    pub fn keep(&mut self, flow: FlowId, symbol: SymbolId) {
        let SymbolId { block, esi } = symbol;
        let is_late =
            !self.outrun.contains(&block) && (self.whole.contains(&block) || self.decoding.contains(&block));
        assert!(!is_late, "{symbol:?} of a block that is whole or at the decoder is kept");
        let before = self.symbols.entry(block).or_default().insert(esi, flow);
        assert_eq!(before, None, "{symbol:?} is kept twice");
        self.kept += 1;
    }

    /// Result of decoding a block now: success, unless `verdict` says otherwise. Nothing if nobody waits for it any
    /// more.
    pub fn decode(
        &mut self,
        block: BlockIndex,
        verdict: impl FnOnce(&Attempt<'_>) -> Result<(), DecodeFailure>,
    ) -> Option<ReceiverCommand> {
        if self.finished.is_some() {
            return None;
        }
        // The symbols of the attempt that was outrun are gone, but it had enough of them.
        let outrun = !self.decoding.remove(&block) && self.outrun.contains(&block);
        let tries = self.tries.entry(block).or_default();
        *tries += 1;
        let attempt = Attempt {
            block,
            tries: *tries,
            source_symbols: self.geometry.map_or(0, |geometry| geometry.source_symbols(block)),
            symbols: self.symbols.get(&block).unwrap_or(const { &BTreeMap::new() }),
        };
        match verdict(&attempt) {
            // Source symbols are the block.
            Err(DecodeFailure::NeedMore) if attempt.is_systematic() => {}
            Err(failure) => return Some(ReceiverCommand::DecodeFailed { block, failure }),
            Ok(()) => {}
        }
        if !outrun {
            self.symbols.remove(&block);
        }
        self.whole.insert(block);
        Some(ReceiverCommand::BlockDecoded { block })
    }

    /// Blocks of which something is here, whole or not.
    pub fn blocks(&self) -> usize {
        self.whole.len() + self.symbols.len()
    }

    /// Symbols that are here of a block that is not whole, and which flow brought each.
    pub fn symbols_of(&self, block: BlockIndex) -> &BTreeMap<Esi, FlowId> {
        self.symbols.get(&block).unwrap_or(const { &BTreeMap::new() })
    }

    /// Whether a symbol can be read: its block is whole, or it was kept and is not at the decoder.
    pub fn has(&self, symbol: SymbolId) -> bool {
        let SymbolId { block, esi } = symbol;
        self.whole.contains(&block)
            || !self.decoding.contains(&block) && self.symbols_of(block).contains_key(&esi)
    }

    /// When it was done, if it was.
    pub fn done(&self) -> Option<Time> {
        self.finished.as_ref().filter(|(_, how)| how.is_ok()).map(|(at, _)| *at)
    }

    /// When it was done.
    ///
    /// # Panics
    /// If it was not.
    pub fn done_at(&self) -> Time {
        match &self.finished {
            Some((at, Ok(()))) => *at,
            other => panic!("{other:?}"),
        }
    }

    fn source_symbols(&self, block: BlockIndex) -> u32 {
        self.geometry.map_or(0, |geometry| geometry.source_symbols(block))
    }

    fn finish(&mut self, now: Time, how: Result<(), ReceiverFailure>) {
        assert_eq!(self.finished, None, "it ends twice");
        self.finished = Some((now, how));
    }
}
