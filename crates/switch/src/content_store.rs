//! Content store of a device where a tree branches: recent symbols, and the interests that wait for symbols (Datacast
//! §V-A and §V-C).
//!
//! ```text
//!   interest --held?--yes--> answered out of the port it came in by
//!                |no
//!                +--asked for already, by somebody else?--yes--> joins those who wait
//!                                  |no
//!                                  +--> goes on towards the source
//!   symbol   --> a copy to each who waits; kept, unless it is older than what was already let go
//! ```
//! **One store per tree.** So trees cannot push each other out, and what is kept is found by its name alone. A store is soft
//! state: it comes with the first packet of its tree, and goes when nothing was heard of the tree for longest and the room is
//! wanted. To lose one costs interests that travel further, nothing else.
//!
//! **Duplicates are not kept** (§V-C). The source numbers the packets of a tree as it first sends them, and sends one again
//! under its first number: so a store knows without a flag what is older than the oldest that it holds.
//!
//! **Waiting.** The paper says that a device answers an interest for what it has, and nothing of one that is asked for
//! but not there yet. CCN, on which it builds, keeps the second and answers both by the same packet; so does this,
//! since Fig. 4's "each link exactly once, in any order" needs it. [`StoreConfig::gathers`] turns it off. An interest
//! that the same port repeats goes on: something was lost above. Every port will notice; but one loss is to be one
//! duplicate at the source, so a port that repeats it after the first waits again, until one repeats it twice. Not
//! here: lifetimes of interests (the oldest make room), negative answers, names other than ours.

use std::collections::BTreeMap;

use headwater_units::{Bytes, FlowId, SymbolId};

/// Which packet goes when a store is full (Datacast §VI-B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// The one that came first: new packets will still be asked for, old ones not.
    #[default]
    Fifo,
    /// The one that was not used for longest.
    Lru,
    /// The one that was used least, and of these the one that was not used for longest.
    Lfu,
}

/// How a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes of packets that are kept of one tree.
    pub size: Bytes,
    /// Which packet goes.
    pub replacement: Replacement,
    /// Whether interests for what is in flight wait for it here.
    pub gathers: bool,
    /// Most names that are waited for; the oldest is forgotten, and asked for again by those that miss it.
    pub names: usize,
}

impl Default for StoreConfig {
    /// 512 KB per tree, as Datacast's testbed (§VII-B).
    fn default() -> Self {
        StoreConfig { size: Bytes::new(512_000), replacement: Replacement::Fifo, gathers: true, names: 4096 }
    }
}

/// Result of an interest.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<'a, F> {
    /// It is answered with this packet.
    Held(&'a F),
    /// It waits here.
    Waits,
    /// It goes on towards the source.
    GoesOn,
}

/// Counts of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Interests that were answered.
    pub held: u64,
    /// Interests that were kept back for a packet that was asked for already.
    pub waited: u64,
    /// Interests that went on.
    pub went_on: u64,
    /// Packets that were kept.
    pub kept: u64,
    /// Packets that were let go for others.
    pub let_go: u64,
    /// Packets that were too old to keep.
    pub too_old: u64,
}

/// The order in which packets go: how often used if that counts, then when.
type Rank = (u64, u64);

#[derive(Clone, Debug)]
struct Held<F> {
    packet: F,
    bytes: Bytes,
    number: u64,
    rank: Rank,
}

/// Askers that wait for a name.
#[derive(Clone, Debug)]
struct Waiting<R> {
    /// Each with the round in which it asked last.
    askers: Vec<(R, u32)>,
    /// How often an interest for it has gone on; the rounds before the last one were in vain, or are.
    round: u32,
}

/// The store of one tree. `F` is a packet, `R` where an answer goes: a port, or a path.
#[derive(Clone, Debug)]
pub struct ContentStore<F, R> {
    config: StoreConfig,
    held: BTreeMap<SymbolId, Held<F>>,
    by_rank: BTreeMap<Rank, SymbolId>,
    bytes: Bytes,
    /// Counts uses and arrivals: a clock that only goes forward.
    uses: u64,
    /// The newest number that was let go.
    gone: Option<u64>,
    waiting: BTreeMap<SymbolId, Waiting<R>>,
    /// Empty lists, to be used again.
    spare: Vec<Vec<(R, u32)>>,
    stats: StoreStats,
}

impl<F, R: Clone + PartialEq> ContentStore<F, R> {
    /// An empty one.
    pub fn new(config: StoreConfig) -> Self {
        ContentStore {
            config,
            held: BTreeMap::new(),
            by_rank: BTreeMap::new(),
            bytes: Bytes::ZERO,
            uses: 0,
            gone: None,
            waiting: BTreeMap::new(),
            spare: Vec::new(),
            stats: StoreStats::default(),
        }
    }

    /// An interest for a name, to be answered to this neighbour.
    pub fn on_interest(&mut self, name: SymbolId, from: R) -> Answer<'_, F> {
        if self.held.contains_key(&name) {
            self.stats.held += 1;
            self.use_again(name);
            return Answer::Held(&self.held[&name].packet);
        }
        let gathers = self.config.gathers;
        if !self.waiting.contains_key(&name) && self.waiting.len() >= self.config.names.max(1) {
            let oldest = self.waiting.pop_first();
            self.spare.extend(oldest.map(|(_, waiting)| waiting.askers));
        }
        let spare = &mut self.spare;
        let Waiting { askers, round } = self.waiting.entry(name).or_insert_with(|| {
            let mut askers = spare.pop().unwrap_or_default();
            askers.clear();
            Waiting { askers, round: 0 }
        });
        // Where each interest brings a packet of its own, each is remembered.
        let asked = askers.iter_mut().find(|(asker, _)| gathers && *asker == from);
        let goes_on = !gathers || *round == 0 || asked.as_ref().is_some_and(|(_, last)| last == round);
        *round += u32::from(goes_on);
        match asked {
            Some((_, last)) => *last = *round,
            None => askers.push((from, *round)),
        }
        if goes_on {
            self.stats.went_on += 1;
            return Answer::GoesOn;
        }
        self.stats.waited += 1;
        Answer::Waits
    }

    /// A packet has come: `to` is called for each neighbour that a copy goes. `number` is its place in the tree's order; `None` for
    /// what has none, which is always kept.
    pub fn on_packet(
        &mut self,
        name: SymbolId,
        number: Option<u64>,
        packet: F,
        bytes: Bytes,
        mut to: impl FnMut(&F, &R),
    ) {
        if self.config.gathers {
            if let Some(Waiting { askers, .. }) = self.waiting.remove(&name) {
                askers.iter().for_each(|(asker, _)| to(&packet, asker));
                self.spare.push(askers);
            }
        } else if let Some(Waiting { askers, .. }) = self.waiting.get_mut(&name) {
            to(&packet, &askers.remove(0).0);
            if askers.is_empty() {
                self.waiting.remove(&name);
            }
        }
        let number = number.unwrap_or(self.gone.map_or(0, |gone| gone + 1));
        if self.gone.is_some_and(|gone| number <= gone) {
            self.stats.too_old += 1;
            return;
        }
        if bytes > self.config.size || self.held.contains_key(&name) {
            return;
        }
        while self.bytes + bytes > self.config.size {
            self.let_one_go();
        }
        self.uses += 1;
        let rank = (0, self.uses);
        self.by_rank.insert(rank, name);
        self.held.insert(name, Held { packet, bytes, number, rank });
        self.bytes += bytes;
        self.stats.kept += 1;
    }

    /// Whether the packet of this name is held.
    pub fn holds(&self, name: SymbolId) -> bool {
        self.held.contains_key(&name)
    }

    /// Bytes of packets that are held.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Names that somebody waits for.
    pub fn names(&self) -> usize {
        self.waiting.len()
    }

    /// Its counters.
    pub fn stats(&self) -> StoreStats {
        self.stats
    }

    fn use_again(&mut self, name: SymbolId) {
        let Some(held) = self.held.get_mut(&name) else { return };
        let times = match self.config.replacement {
            Replacement::Fifo => return,
            Replacement::Lru => 0,
            Replacement::Lfu => held.rank.0 + 1,
        };
        self.uses += 1;
        self.by_rank.remove(&held.rank);
        held.rank = (times, self.uses);
        self.by_rank.insert(held.rank, name);
    }

    fn let_one_go(&mut self) {
        let Some((_, name)) = self.by_rank.pop_first() else { return };
        let Some(held) = self.held.remove(&name) else { return };
        self.bytes = Bytes::new(self.bytes.get() - held.bytes.get());
        // Only where the oldest goes first does its number say that everything older is gone too.
        if self.config.replacement == Replacement::Fifo {
            self.gone = self.gone.max(Some(held.number));
        }
        self.stats.let_go += 1;
    }
}

/// The stores of one device, a tree each.
#[derive(Clone, Debug)]
pub struct ContentStores<F, R> {
    config: StoreConfig,
    trees: usize,
    /// With the time of the last use, in uses.
    stores: BTreeMap<FlowId, (u64, ContentStore<F, R>)>,
    uses: u64,
}

impl<F, R: Clone + PartialEq> ContentStores<F, R> {
    /// With `memory` bytes in all, at least one tree: 4 GB hold 32,000 trees of 125 KB (Datacast §V-C).
    pub fn new(config: StoreConfig, memory: Bytes) -> Self {
        let trees = (memory.get() / config.size.get().max(1)).max(1) as usize;
        ContentStores { config, trees, stores: BTreeMap::new(), uses: 0 }
    }

    /// How many trees have room at once.
    pub fn trees(&self) -> usize {
        self.trees
    }

    /// The store of a tree, made if it is not there; that of the tree that was not heard of for longest makes room.
    pub fn of(&mut self, tree: FlowId) -> &mut ContentStore<F, R> {
        if !self.stores.contains_key(&tree) && self.stores.len() >= self.trees {
            let oldest = self.stores.iter().min_by_key(|(_, (used, _))| *used).map(|(tree, _)| *tree);
            oldest.map(|tree| self.stores.remove(&tree));
        }
        self.uses += 1;
        let config = self.config;
        let entry = self.stores.entry(tree).or_insert_with(|| (0, ContentStore::new(config)));
        entry.0 = self.uses;
        &mut entry.1
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{BlockIndex, Esi};

    use super::*;

    const PACKET: Bytes = Bytes::new(1000);

    fn name(esi: u32) -> SymbolId {
        SymbolId { block: BlockIndex(0), esi: Esi(esi) }
    }

    fn store(packets: u64, replacement: Replacement) -> ContentStore<u32, u16> {
        let size = Bytes::new(1000 * packets);
        ContentStore::new(StoreConfig { size, replacement, ..StoreConfig::default() })
    }

    fn brings(store: &mut ContentStore<u32, u16>, n: u32) -> Vec<u16> {
        let mut to = Vec::new();
        store.on_packet(name(n), Some(u64::from(n)), n, PACKET, |packet, to_whom| {
            assert_eq!(*packet, n);
            to.push(*to_whom);
        });
        to
    }

    #[test]
    fn one_packet_answers_all_who_ask_in_whatever_order() {
        let mut store = store(10, Replacement::Fifo);
        assert_eq!(store.on_interest(name(1), 7), Answer::GoesOn);
        assert_eq!(store.on_interest(name(1), 8), Answer::Waits);
        assert_eq!(brings(&mut store, 1), [7, 8]);
        assert_eq!(store.on_interest(name(1), 9), Answer::Held(&1));
        assert_eq!(store.names(), 0);
    }

    #[test]
    fn whoever_asks_again_is_heard_further_up() {
        let mut store = store(10, Replacement::Fifo);
        store.on_interest(name(1), 7);
        store.on_interest(name(1), 8);
        assert_eq!(store.on_interest(name(1), 8), Answer::GoesOn);
        assert_eq!(brings(&mut store, 1), [7, 8], "and answered once");
        assert_eq!(brings(&mut store, 1), [], "a second packet is nobody's");
    }

    #[test]
    fn all_who_miss_the_same_packet_repeat_it_to_the_source_once_a_round() {
        let mut store = store(10, Replacement::Fifo);
        let mut asks = |from| store.on_interest(name(1), from) == Answer::GoesOn;
        assert_eq!([7, 8, 9].map(&mut asks), [true, false, false]);
        assert_eq!([8, 7, 9].map(&mut asks), [true, false, false], "all have missed it");
        assert_eq!([9, 9, 8, 7].map(&mut asks), [true, true, false, false], "and one more often than others");
        assert_eq!(brings(&mut store, 1), [7, 8, 9]);
    }

    #[test]
    fn a_duplicate_is_passed_on_and_not_kept() {
        let mut store = store(3, Replacement::Fifo);
        for n in 0..6 {
            brings(&mut store, n);
        }
        assert_eq!(store.on_interest(name(1), 7), Answer::GoesOn, "let go");
        assert_eq!(brings(&mut store, 1), [7]);
        assert_eq!(store.on_interest(name(1), 8), Answer::GoesOn, "not kept");
        assert_eq!(store.on_interest(name(3), 8), Answer::Held(&3), "and nothing went for it");
        assert_eq!(store.stats().too_old, 1);
    }

    #[test]
    fn a_packet_that_was_lost_above_is_kept_when_it_comes() {
        let mut store = store(10, Replacement::Fifo);
        for n in [0, 1, 3, 4] {
            brings(&mut store, n);
        }
        brings(&mut store, 2);
        assert_eq!(store.on_interest(name(2), 7), Answer::Held(&2));
    }

    #[test]
    fn without_gathering_each_interest_goes_on_and_has_its_own_packet() {
        let config = StoreConfig { gathers: false, size: Bytes::new(1), ..StoreConfig::default() };
        let mut store: ContentStore<u32, u16> = ContentStore::new(config);
        assert_eq!(store.on_interest(name(1), 7), Answer::GoesOn);
        assert_eq!(store.on_interest(name(1), 8), Answer::GoesOn);
        assert_eq!((brings(&mut store, 1), brings(&mut store, 1)), (vec![7], vec![8]));
        assert_eq!(brings(&mut store, 1), []);
    }

    #[test]
    fn what_goes_depends_on_the_rule() {
        let left = |replacement| {
            let mut store = store(3, replacement);
            for n in 0..3 {
                brings(&mut store, n);
            }
            // 1 is used twice, 0 once and last.
            for n in [1, 1, 0] {
                store.on_interest(name(n), 7);
            }
            brings(&mut store, 3);
            brings(&mut store, 4);
            let held = |n| matches!(store.clone().on_interest(name(n), 9), Answer::Held(_));
            (0..5).filter(|n| held(*n)).collect::<Vec<_>>()
        };
        assert_eq!(left(Replacement::Fifo), [2, 3, 4]);
        assert_eq!(left(Replacement::Lru), [0, 3, 4]);
        assert_eq!(left(Replacement::Lfu), [0, 1, 4]);
    }

    #[test]
    fn a_flood_of_names_takes_no_more_room_than_stated() {
        let config = StoreConfig { names: 100, ..StoreConfig::default() };
        let mut store: ContentStore<u32, u16> = ContentStore::new(config);
        for n in 0..10_000 {
            store.on_interest(name(n), (n % 7) as u16);
        }
        assert_eq!(store.names(), 100);
    }

    #[test]
    fn four_gigabytes_hold_thirty_two_thousand_trees() {
        let config = StoreConfig { size: Bytes::new(125_000), ..StoreConfig::default() };
        let stores: ContentStores<u32, u16> = ContentStores::new(config, Bytes::new(4_000_000_000));
        assert_eq!(stores.trees(), 32_000);
    }

    #[test]
    fn the_tree_that_was_silent_for_longest_makes_room() {
        let config = StoreConfig { size: Bytes::new(10_000), ..StoreConfig::default() };
        let mut stores: ContentStores<u32, u16> = ContentStores::new(config, Bytes::new(20_000));
        for tree in [1, 2, 1, 3] {
            stores.of(FlowId(tree)).on_packet(name(0), Some(0), 0, PACKET, |_, _| ());
        }
        let held = |stores: &mut ContentStores<u32, u16>, tree| stores.of(FlowId(tree)).bytes() > Bytes::ZERO;
        assert!(held(&mut stores, 1) && held(&mut stores, 3));
        assert!(!held(&mut stores, 2));
    }
}
