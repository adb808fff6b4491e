//! The source's end of all trees of one object (Datacast §IV-B, §V-B).
//!
//! ```text
//!   interest --- first for this name ---> waits its turn at the rate r ---> sent
//!            --- its symbol was sent ---> duplicate: r is halved, the symbol leaves at once
//!            --- still waits its turn --> nothing
//!            --- NEXT of a block -------> the block after it is chosen, if it was not, and said
//! ```
//! Repeated symbols are not held back by the rate: they are for the slowest receiver, which must not become slower (§V-B). A
//! symbol keeps the number under which it was first sent; that tells the stores on the way how old it is.

use std::collections::{BTreeMap, VecDeque};

use headwater_units::{
    BitRate, BlockIndex, FlowId, Geometry, MAX_SOURCE_SYMBOLS, PacketNumber, PathId, SymbolId, Time,
};
use headwater_wire::{Announcement, Body, Class, Datagram, Ecn, NEXT, SymbolHeader};

use super::{TreeRate, TreeSourceConfig};
use crate::Packet;
use crate::bits::Bits;

/// Counts of one tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSourceStats {
    /// Symbols that were sent for the first time.
    pub new: u64,
    /// Symbols that were sent again.
    pub repeated: u64,
    /// Interests for symbols that had been sent.
    pub duplicates: u64,
    /// Interests for symbols that were waiting to be sent.
    pub early: u64,
    /// Interests that make no sense, or found no room.
    pub strays: u64,
}

/// A block that a tree carries, or has carried.
#[derive(Debug)]
struct Carried {
    /// The number of its first symbol.
    base: u64,
    asked: Bits,
    sent: Bits,
    /// What follows it in the tree, once somebody has asked.
    follows: Option<Option<BlockIndex>>,
    ready: Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    No,
    Asked,
    Yes,
}

#[derive(Debug)]
struct Tree {
    flow: FlowId,
    path: PathId,
    rate: TreeRate,
    /// When the next new symbol may leave.
    next_at: Time,
    carried: BTreeMap<BlockIndex, Carried>,
    /// Symbols of all blocks that it was given.
    given: u64,
    /// Blocks that are ready or were asked for, in that order.
    ready: VecDeque<BlockIndex>,
    waiting: VecDeque<SymbolId>,
    repeats: VecDeque<SymbolId>,
    stats: TreeSourceStats,
}

/// All trees of one object at its source.
#[derive(Debug)]
pub struct TreeSource {
    config: TreeSourceConfig,
    geometry: Geometry,
    class: Class,
    trees: Vec<Tree>,
    /// The first block that no tree was given.
    next_block: u32,
    says: VecDeque<Packet>,
    /// Blocks to be read, and let go.
    wants: VecDeque<(FlowId, BlockIndex, bool)>,
}

impl TreeSource {
    /// One that sends this object down these trees: of each its number, and the path to its first device. Tree i begins with
    /// block i.
    pub fn new(
        now: Time,
        config: TreeSourceConfig,
        geometry: Geometry,
        class: Class,
        trees: impl IntoIterator<Item = (FlowId, PathId)>,
    ) -> Self {
        let mut source = TreeSource {
            config,
            geometry,
            class,
            trees: Vec::new(),
            next_block: 0,
            says: VecDeque::new(),
            wants: VecDeque::new(),
        };
        for (flow, path) in trees {
            source.trees.push(Tree {
                flow,
                path,
                rate: TreeRate::new(config.rate, now),
                next_at: now,
                carried: BTreeMap::new(),
                given: 0,
                ready: VecDeque::new(),
                waiting: VecDeque::new(),
                repeats: VecDeque::new(),
                stats: TreeSourceStats::default(),
            });
            source.give_block(source.trees.len() - 1);
        }
        source
    }

    /// Counts, by tree.
    pub fn stats(&self) -> impl Iterator<Item = (FlowId, TreeSourceStats)> + '_ {
        self.trees.iter().map(|tree| (tree.flow, tree.stats))
    }

    /// The rate of a tree.
    pub fn rate(&mut self, now: Time, flow: FlowId) -> Option<BitRate> {
        self.trees.iter_mut().find(|tree| tree.flow == flow).map(|tree| tree.rate.at(now))
    }

    /// What the driver is to read (`true`) or may let go (`false`), for [`TreeSource::on_block_ready`].
    pub fn take_want(&mut self) -> Option<(FlowId, BlockIndex, bool)> {
        self.wants.pop_front()
    }

    /// A block can be sent.
    pub fn on_block_ready(&mut self, flow: FlowId, block: BlockIndex) {
        let tree = self.trees.iter_mut().find(|tree| tree.flow == flow);
        if let Some(carried) = tree.and_then(|tree| tree.carried.get_mut(&block))
            && carried.ready == Ready::Asked
        {
            carried.ready = Ready::Yes;
        }
    }

    /// An interest has come up a tree.
    pub fn on_interest(&mut self, now: Time, flow: FlowId, name: SymbolId) {
        let Some(place) = self.trees.iter().position(|tree| tree.flow == flow) else { return };
        if name.esi == NEXT {
            return self.announce(place, name.block);
        }
        let symbols = self.symbols(name.block);
        let tree = &mut self.trees[place];
        let Some(carried) = tree.carried.get_mut(&name.block).filter(|_| name.esi.0 < symbols) else {
            tree.stats.strays += 1;
            return;
        };
        if carried.asked.set(name.esi.0) {
            tree.waiting.push_back(name);
        } else if !carried.sent.get(name.esi.0) {
            tree.stats.early += 1;
        } else {
            tree.stats.duplicates += 1;
            tree.rate.on_duplicate(now);
            match tree.repeats.len() < self.config.repeats {
                true => tree.repeats.push_back(name),
                false => tree.stats.strays += 1,
            }
        }
        if carried.ready == Ready::No {
            self.prepare(place, name.block);
        }
    }

    /// The next packet that may leave now.
    pub fn next(&mut self, now: Time) -> Option<Packet> {
        if let Some(packet) = self.says.pop_front() {
            return Some(packet);
        }
        let (class, packet_bytes, catch_up) = (self.class, self.config.packet, self.config.catch_up);
        self.trees.iter_mut().find_map(|tree| {
            let name = match tree.first_repeat() {
                Some(name) => {
                    tree.stats.repeated += 1;
                    name
                }
                None => {
                    let name = *tree.waiting.front().filter(|_| tree.next_at <= now)?;
                    if !tree.is_ready(name.block) {
                        return None;
                    }
                    tree.waiting.pop_front();
                    let since = tree.next_at.max(Time::ZERO + now.since(Time::ZERO).saturating_sub(catch_up));
                    tree.next_at = since + packet_bytes / tree.rate.at(now);
                    tree.stats.new += 1;
                    name
                }
            };
            let carried = tree.carried.get_mut(&name.block)?;
            carried.sent.set(name.esi.0);
            let number = PacketNumber(carried.base + u64::from(name.esi.0));
            Some(tree.packet(class, Body::Symbol(header(name, number))))
        })
    }

    /// When [`TreeSource::next`] has something next, if no interest and no block comes before.
    pub fn deadline(&self) -> Option<Time> {
        let due = self.trees.iter().filter_map(|tree| {
            let first = tree.waiting.front().filter(|name| tree.is_ready(name.block));
            first.map(|_| tree.next_at)
        });
        due.min()
    }

    /// Whether nothing waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.says.is_empty()
            && self.trees.iter().all(|tree| tree.waiting.is_empty() && tree.repeats.is_empty())
    }

    fn symbols(&self, block: BlockIndex) -> u32 {
        self.geometry.source_symbols(block)
    }

    /// The next block goes down this tree.
    fn give_block(&mut self, place: usize) -> Option<BlockIndex> {
        let block = BlockIndex(self.next_block);
        if block.0 >= self.geometry.layout().block_count() {
            return None;
        }
        self.next_block += 1;
        let symbols = self.symbols(block);
        let tree = &mut self.trees[place];
        let bits = Bits::new(symbols);
        let carried =
            Carried { base: tree.given, asked: bits.clone(), sent: bits, follows: None, ready: Ready::No };
        tree.given += u64::from(symbols);
        tree.carried.insert(block, carried);
        self.prepare(place, block);
        Some(block)
    }

    fn announce(&mut self, place: usize, block: BlockIndex) {
        let Some(carried) = self.trees[place].carried.get(&block) else {
            self.trees[place].stats.strays += 1;
            return;
        };
        let next = match carried.follows {
            Some(next) => next,
            None => {
                let next = self.give_block(place);
                if let Some(carried) = self.trees[place].carried.get_mut(&block) {
                    carried.follows = Some(next);
                }
                next
            }
        };
        let body = Body::Announcement(Announcement { block, next });
        self.says.push_back(self.trees[place].packet(Class::Control, body));
    }

    /// Asks for a block's bytes; the one that was asked for first makes room.
    fn prepare(&mut self, place: usize, block: BlockIndex) {
        let tree = &mut self.trees[place];
        while tree.ready.len() >= self.config.ready_blocks.max(2) {
            let Some(old) = tree.ready.pop_front() else { break };
            if let Some(carried) = tree.carried.get_mut(&old) {
                carried.ready = Ready::No;
            }
            self.wants.push_back((tree.flow, old, false));
        }
        if let Some(carried) = tree.carried.get_mut(&block) {
            carried.ready = Ready::Asked;
            tree.ready.push_back(block);
            self.wants.push_back((tree.flow, block, true));
        }
    }
}

impl Tree {
    fn is_ready(&self, block: BlockIndex) -> bool {
        self.carried.get(&block).is_some_and(|carried| carried.ready == Ready::Yes)
    }

    /// The first repeated symbol whose block is ready; those before it wait for theirs.
    fn first_repeat(&mut self) -> Option<SymbolId> {
        let at = self.repeats.iter().position(|name| self.is_ready(name.block))?;
        self.repeats.remove(at)
    }

    fn packet(&self, class: Class, body: Body) -> Packet {
        let ecn = Ecn::NotEct;
        Packet { path: self.path, ecn, datagram: Datagram { class, key_epoch: 0, flow: self.flow, body } }
    }
}

fn header(symbol: SymbolId, number: PacketNumber) -> SymbolHeader {
    SymbolHeader {
        number,
        symbol,
        ack_interval: 1,
        ack_now: false,
        assignment: 0,
        starved: false,
        syn: false,
        trimmed: false,
    }
}

/// The ESI that [`NEXT`] is must be no symbol's.
const _: () = assert!(NEXT.0 > MAX_SOURCE_SYMBOLS as u32);

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, Duration, Esi};

    use super::*;
    use crate::datacast::RateConfig;

    const TREE: FlowId = FlowId(1);
    const OTHER: FlowId = FlowId(2);

    fn at(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    fn source(trees: &[FlowId], bytes: u64) -> TreeSource {
        // 1500 B each 12 us.
        let rate =
            RateConfig { initial: BitRate::new(1_000_000_000), step: BitRate::ZERO, ..RateConfig::default() };
        let config = TreeSourceConfig { rate, ..TreeSourceConfig::default() };
        let geometry = Geometry::new(Bytes::new(bytes), 1024).unwrap();
        let paths = trees.iter().map(|flow| (*flow, PathId(flow.0 as u32)));
        let mut source = TreeSource::new(at(0), config, geometry, Class::Bulk, paths);
        read(&mut source);
        source
    }

    /// A disk that takes no time.
    fn read(source: &mut TreeSource) {
        while let Some((flow, block, read)) = source.take_want() {
            if read {
                source.on_block_ready(flow, block);
            }
        }
    }

    fn name(block: u32, esi: u32) -> SymbolId {
        SymbolId { block: BlockIndex(block), esi: Esi(esi) }
    }

    /// Names and numbers of the symbols that leave now.
    fn leaves(source: &mut TreeSource, now: Time) -> Vec<(SymbolId, u64)> {
        let mut out = Vec::new();
        while let Some(packet) = source.next(now) {
            if let Body::Symbol(header) = packet.datagram.body {
                out.push((header.symbol, header.number.0));
            }
        }
        out
    }

    #[test]
    fn new_symbols_leave_at_the_rate_in_the_order_they_were_asked_for() {
        let mut source = source(&[TREE], 1 << 20);
        for esi in [0, 2, 1] {
            source.on_interest(at(0), TREE, name(0, esi));
        }
        assert_eq!(leaves(&mut source, at(0)), [(name(0, 0), 0)]);
        assert_eq!(source.deadline(), Some(at(12)));
        assert_eq!(leaves(&mut source, at(12)), [(name(0, 2), 2)]);
        assert_eq!(leaves(&mut source, at(23)), []);
        assert_eq!(leaves(&mut source, at(24)), [(name(0, 1), 1)]);
        assert!(source.is_idle() && source.deadline().is_none());
    }

    #[test]
    fn what_was_sent_and_is_asked_for_again_leaves_at_once_and_halves_the_rate() {
        let mut source = source(&[TREE], 1 << 20);
        source.on_interest(at(0), TREE, name(0, 0));
        source.on_interest(at(0), TREE, name(0, 1));
        source.on_interest(at(0), TREE, name(0, 1));
        leaves(&mut source, at(0));
        assert_eq!(source.rate(at(0), TREE), Some(BitRate::new(1_000_000_000)), "1 was not sent yet");
        source.on_interest(at(1), TREE, name(0, 0));
        assert_eq!(leaves(&mut source, at(1)), [(name(0, 0), 0)], "under its first number");
        assert_eq!(source.rate(at(1), TREE), Some(BitRate::new(500_000_000)));
        assert_eq!(leaves(&mut source, at(12)), [(name(0, 1), 1)]);
        let (_, stats) = source.stats().next().unwrap();
        assert_eq!((stats.new, stats.repeated, stats.duplicates, stats.early), (2, 1, 1, 1));
    }

    #[test]
    fn each_tree_gets_the_next_block_when_somebody_asks_and_says_the_same_to_all() {
        let mut source = source(&[TREE, OTHER], 4 << 18);
        let next = |source: &mut TreeSource, tree, block| {
            source.on_interest(at(0), tree, name(block, NEXT.0));
            let Some(Packet { path, datagram: Datagram { body: Body::Announcement(it), .. }, .. }) =
                source.next(at(0))
            else {
                panic!("an answer")
            };
            assert_eq!((path, it.block), (PathId(tree.0 as u32), BlockIndex(block)));
            it.next.map(|block| block.0)
        };
        assert_eq!(next(&mut source, OTHER, 1), Some(2));
        assert_eq!(next(&mut source, TREE, 0), Some(3));
        assert_eq!(next(&mut source, OTHER, 1), Some(2));
        assert_eq!((next(&mut source, OTHER, 2), next(&mut source, TREE, 3)), (None, None));
        // Numbers go on from block to block.
        read(&mut source);
        source.on_interest(at(0), OTHER, name(2, 0));
        assert_eq!(leaves(&mut source, at(0)), [(name(2, 0), 256)]);
    }

    #[test]
    fn nonsense_is_counted_and_answered_by_nothing() {
        let mut source = source(&[TREE], 1 << 20);
        source.on_interest(at(0), TREE, name(0, 70_000));
        source.on_interest(at(0), TREE, name(77, 0));
        source.on_interest(at(0), TREE, name(77, NEXT.0));
        source.on_interest(at(0), OTHER, name(0, 0));
        assert!(source.next(at(0)).is_none());
        assert_eq!(source.stats().next().unwrap().1.strays, 3);
    }

    #[test]
    fn a_block_that_was_let_go_is_read_again_for_whoever_is_late() {
        let mut source = source(&[TREE], 64 << 18);
        source.on_interest(at(0), TREE, name(0, 0));
        leaves(&mut source, at(0));
        for block in 0..40 {
            source.on_interest(at(0), TREE, name(block, NEXT.0));
        }
        leaves(&mut source, at(0));
        let wants: Vec<_> = std::iter::from_fn(|| source.take_want()).collect();
        assert!(wants.contains(&(TREE, BlockIndex(0), false)));
        source.on_interest(at(100), TREE, name(0, 0));
        assert_eq!(leaves(&mut source, at(100)), []);
        assert_eq!(source.take_want(), Some((TREE, BlockIndex(33), false)));
        assert_eq!(source.take_want(), Some((TREE, BlockIndex(0), true)));
        source.on_block_ready(TREE, BlockIndex(0));
        assert_eq!(leaves(&mut source, at(100)), [(name(0, 0), 0)]);
    }
}
