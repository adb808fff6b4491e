//! One tree of an object at its source (Datacast §IV-B, §V-B).
//!
//! ```text
//!   interest --- first for this name ---> waits its turn at the rate r ---> sent
//!            --- its symbol was sent ---> duplicate: r is halved, the symbol leaves at once
//!            --- still waits its turn --> nothing
//!            --- NEXT of a block -------> the block after it is chosen, if it was not, and said
//! ```
//! Repeated symbols are not held back by the rate: they are for the slowest receiver, which must not become slower (§V-B). A
//! symbol keeps the number under which it was first sent; that tells the stores on the path how old it is.
//!
//! The order or the driver says where the tree leads, never an asker: so nobody has symbols sent elsewhere.

use std::collections::{BTreeMap, VecDeque};

use headwater_machine::{Bits, Output, Packet};
use headwater_units::{
    BitRate, BlockIndex, Bytes, FlowId, Geometry, MAX_SOURCE_SYMBOLS, PacketNumber, PathId, SymbolId,
    Symbols, Time,
};
use headwater_wire::{Announcement, Body, Class, FlowRole, NEXT, Push, SymbolHeader};

use super::{TreeRate, TreeSourceConfig};
use crate::SourceEvent;
use headwater_flow::in_flight::AckOutcome;
use headwater_flow::{FlowCounters, FlowStats, Shared, SourceFlow, TreeStats};

/// However long a driver was away, it makes up for no more than this: a quarter of what devices keep of a tree on the
/// testbed (512 KB, Datacast §VII-B), so that receivers that are behind afterwards still find there what they ask for.
const CATCH_UP: Bytes = Bytes::new(128_000);

/// By group: which blocks its trees have been given.
pub(crate) type Deals = BTreeMap<FlowId, Dealt>;

/// The assignment of an object's blocks to its trees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dealt {
    /// The first block that no tree was given; the first ones go to the trees in order.
    next: u32,
    /// Trees that there are.
    trees: u32,
}

/// A block that the tree carries, or has carried.
#[derive(Debug)]
struct Carried {
    /// The number of its first symbol.
    base: u64,
    asked: Bits,
    sent: Bits,
    /// The block that follows it in the tree, once somebody has asked.
    follows: Option<Option<BlockIndex>>,
    ready: Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    No,
    Asked,
    Yes,
}

/// One tree.
#[derive(Debug)]
pub(crate) struct TreeFlow {
    push: Push,
    config: TreeSourceConfig,
    geometry: Geometry,
    path: Option<PathId>,
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
    says: VecDeque<Announcement>,
    /// Its turn among the flows has come or will; no timer is needed for it.
    stirs: bool,
    paused: bool,
    stats: TreeStats,
}

impl TreeFlow {
    pub(crate) fn new(
        now: Time,
        config: TreeSourceConfig,
        push: Push,
        geometry: Geometry,
        shared: &mut Shared,
        deals: &mut Deals,
    ) -> Self {
        let dealt = deals.entry(group_of(&push)).or_insert(Dealt { next: push.of.into(), trees: 0 });
        dealt.trees += 1;
        let mut flow = TreeFlow {
            config,
            geometry,
            path: None,
            rate: TreeRate::new(config.rate.within(most_of(&push)), now),
            next_at: now,
            carried: BTreeMap::new(),
            given: 0,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            repeats: VecDeque::new(),
            says: VecDeque::new(),
            stirs: false,
            paused: false,
            stats: TreeStats::default(),
            push,
        };
        let first = BlockIndex(flow.push.index.into());
        if first.0 < geometry.layout().block_count() {
            flow.carry(first, shared);
        }
        flow
    }

    /// Symbols that have left, repeated ones too.
    pub(crate) fn sent(&self) -> Symbols {
        Symbols::new(self.stats.new + self.stats.repeated)
    }

    // ---- what the driver says

    // ---- what comes up the tree

    /// An interest.
    pub(crate) fn on_interest(&mut self, now: Time, name: SymbolId, shared: &mut Shared, deals: &mut Deals) {
        if name.esi == NEXT {
            return self.announce(name.block, shared, deals);
        }
        let Some(carried) = self.carried.get_mut(&name.block) else {
            self.stats.strays += 1;
            return;
        };
        if name.esi.0 >= self.geometry.source_symbols(name.block) {
            self.stats.strays += 1;
            return;
        }
        if carried.asked.set(name.esi.0) {
            self.waiting.push_back(name);
        } else if !carried.sent.get(name.esi.0) {
            self.stats.early += 1;
        } else {
            self.stats.duplicates += 1;
            self.rate.on_duplicate(now);
            match self.repeats.len() < self.config.repeats {
                true => self.repeats.push_back(name),
                false => self.stats.strays += 1,
            }
        }
        if carried.ready == Ready::No {
            self.prepare(name.block, shared);
        }
    }

    fn announce(&mut self, block: BlockIndex, shared: &mut Shared, deals: &mut Deals) {
        let Some(carried) = self.carried.get_mut(&block) else {
            self.stats.strays += 1;
            return;
        };
        let next = match carried.follows {
            Some(next) => next,
            None => {
                let dealt = deals.get_mut(&group_of(&self.push));
                let dealt = dealt.filter(|dealt| dealt.next < self.geometry.layout().block_count());
                let next = dealt.map(|dealt| {
                    dealt.next += 1;
                    BlockIndex(dealt.next - 1)
                });
                carried.follows = Some(next);
                if let Some(next) = next {
                    self.carry(next, shared);
                }
                next
            }
        };
        self.says.push_back(Announcement { block, next });
    }

    /// The next block goes down this tree.
    fn carry(&mut self, block: BlockIndex, shared: &mut Shared) {
        let symbols = self.geometry.source_symbols(block);
        let bits = Bits::new(symbols);
        let carried =
            Carried { base: self.given, asked: bits.clone(), sent: bits, follows: None, ready: Ready::No };
        self.given += u64::from(symbols);
        self.carried.insert(block, carried);
        self.prepare(block, shared);
    }

    /// Asks for a block's bytes; the one that was asked for first makes room.
    fn prepare(&mut self, block: BlockIndex, shared: &mut Shared) {
        let flow = self.push.flow;
        let mut say = |event| shared.out.push_back(Output::Event(event));
        while self.ready.len() >= self.config.ready_blocks.max(2) {
            let Some(old) = self.ready.pop_front() else { break };
            if let Some(carried) = self.carried.get_mut(&old) {
                carried.ready = Ready::No;
            }
            say(SourceEvent::Release { flow, block: old });
        }
        if let Some(carried) = self.carried.get_mut(&block) {
            carried.ready = Ready::Asked;
            self.ready.push_back(block);
            say(SourceEvent::Prepare { flow, block, repair: false });
        }
    }

    // ---- sending

    fn first(&mut self, now: Time) -> Option<Packet> {
        let path = self.open_path()?;
        if let Some(announcement) = self.says.pop_front() {
            return Some(self.packet(path, Class::Control, Body::Announcement(announcement)));
        }
        let name = match self.first_repeat() {
            Some(name) => {
                self.stats.repeated += 1;
                name
            }
            None => {
                let name = *self.waiting.front().filter(|_| self.next_at <= now)?;
                if !self.is_ready(name.block) {
                    return None;
                }
                self.waiting.pop_front();
                let rate = self.rate.at(now);
                let late = self.config.catch_up.min(CATCH_UP / rate);
                let earliest = Time::ZERO + now.since(Time::ZERO).saturating_sub(late);
                let bytes = self.config.packet.unwrap_or(Bytes::new(self.packet_bytes()));
                self.next_at = self.next_at.max(earliest) + bytes / rate;
                self.stats.new += 1;
                name
            }
        };
        let carried = self.carried.get_mut(&name.block)?;
        carried.sent.set(name.esi.0);
        let number = PacketNumber(carried.base + u64::from(name.esi.0));
        Some(self.packet(path, self.push.class, Body::Symbol(SymbolHeader::new(number, name))))
    }

    fn is_ready(&self, block: BlockIndex) -> bool {
        self.carried.get(&block).is_some_and(|carried| carried.ready == Ready::Yes)
    }

    /// Something waits for the disk alone.
    fn is_starved(&self) -> bool {
        let mut waits = self.waiting.front().into_iter().chain(&self.repeats);
        waits.any(|name| !self.is_ready(name.block))
    }

    /// The first repeated symbol whose block is ready; those before it wait for theirs.
    fn first_repeat(&mut self) -> Option<SymbolId> {
        let at = self.repeats.iter().position(|name| self.is_ready(name.block))?;
        self.repeats.remove(at)
    }

    fn packet(&self, path: PathId, class: Class, body: Body) -> Packet {
        Packet::of_flow(path, self.push.flow, class, body)
    }
}

impl SourceFlow for TreeFlow {
    type Common = Deals;

    fn order(&self) -> &Push {
        &self.push
    }

    // The capacity of its links makes no difference either.
    fn is(&self, push: &Push) -> bool {
        let role = match (&self.push.role, &push.role) {
            (FlowRole::Tree { group, .. }, FlowRole::Tree { most, .. }) => {
                FlowRole::Tree { group: *group, most: *most }
            }
            (own, _) => own.clone(),
        };
        Push { theta: push.theta, role, ..self.push.clone() } == *push
    }

    // The tree may be rerouted now.
    fn order_again(&mut self, now: Time, push: &Push) {
        if most_of(push) != most_of(&self.push) {
            self.push.role = push.role.clone();
            self.rate.follow(now, self.config.rate.within(most_of(push)));
        }
    }

    fn sent_to_group(&self) -> Option<Symbols> {
        Some(self.sent())
    }

    fn open_path(&self) -> Option<PathId> {
        self.path.filter(|_| !self.paused)
    }

    fn pause(&mut self, _now: Time) {
        self.paused = true;
    }

    fn resume(&mut self, _now: Time) {
        self.paused = false;
    }

    fn stats(&self) -> FlowStats {
        FlowStats {
            starved: self.is_starved(),
            paused: self.paused,
            counters: FlowCounters {
                sent: self.sent(),
                resent: Symbols::new(self.stats.repeated),
                bad_work: self.stats.strays,
                ..FlowCounters::default()
            },
            tree: Some(self.stats),
            ..FlowStats::unmeasured(&self.push)
        }
    }

    fn on_flow_path(&mut self, _now: Time, path: PathId, _: &mut Shared) {
        self.path = Some(path);
    }

    fn on_block_ready(&mut self, block: BlockIndex, _repair: bool) {
        if let Some(carried) = self.carried.get_mut(&block).filter(|carried| carried.ready == Ready::Asked) {
            carried.ready = Ready::Yes;
        }
    }

    fn hear(
        &mut self,
        now: Time,
        _path: PathId,
        body: &Body,
        shared: &mut Shared,
        _: &mut AckOutcome,
        deals: &mut Deals,
    ) -> bool {
        let Body::Interest(interest) = body else { return false };
        self.on_interest(now, interest.name, shared, deals);
        true
    }

    fn next(&mut self, now: Time, _: &mut Shared, _: &mut Deals) -> Option<Packet> {
        let next = self.first(now);
        self.stirs = next.is_some();
        next
    }

    fn deadline(&self) -> Option<Time> {
        self.waiting.front().filter(|name| self.is_ready(name.block))?;
        self.open_path().filter(|_| !self.stirs).map(|_| self.next_at)
    }

    fn on_timer(&mut self, _: Time, _: &mut AckOutcome, _: &mut Shared) -> bool {
        self.stirs = true;
        false
    }

    // The group's dealt blocks are forgotten with the last tree.
    fn leave(&self, deals: &mut Deals) {
        let group = group_of(&self.push);
        if let Some(dealt) = deals.get_mut(&group) {
            dealt.trees -= 1;
            if dealt.trees == 0 {
                deals.remove(&group);
            }
        }
    }
}

/// The group that the trees of one object share.
fn group_of(push: &Push) -> FlowId {
    match push.role {
        FlowRole::Tree { group, .. } => group,
        _ => push.flow,
    }
}

/// The rate that the tree's links carry, if known.
fn most_of(push: &Push) -> Option<BitRate> {
    match push.role {
        FlowRole::Tree { most, .. } => most,
        _ => None,
    }
}

/// The ESI that [`NEXT`] is must be no symbol's.
const _: () = assert!(NEXT.0 > MAX_SOURCE_SYMBOLS as u32);

#[cfg(test)]
mod tests;
