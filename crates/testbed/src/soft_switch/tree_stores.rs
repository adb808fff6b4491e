//! Content stores in switches (Datacast §V-A and §V-C): soft state that a switch makes of what it sees, and nobody tells it anything.
//!
//! An interest is a datagram from one host to the next one on the tree; the answer is one back. A switch between them that has
//! heard two hosts ask in a tree is a place where it branches: it keeps symbols, answers interests for those that it has,
//! gathers those for what is in flight, and copies an answer to all who wait, each copy addressed to its asker. Whether there will be a
//! second one it cannot know when the first one asks, so it keeps the beginning of every tree: a host that begins a little later
//! than its neighbour would else have the source asked once more for each symbol of that time, which takes that for congestion and
//! halves its rate as often. Once its store is full with nobody else there, it keeps nothing more. The paper has the
//! route in each packet instead; addresses of the next host come to the same where one switch stands between two, and need no
//! further header.
//!
//! It holds no key, so it believes what it sees: who can send to its hosts can fill a store with wrong packets. They fail their
//! tag where they arrive, and are asked for again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use headwater_switch::{Answer, ContentStore, Frame, StoreConfig, TreeWord};
use headwater_units::FlowId;

use super::address::AddressBook;
use super::frame::RawFrame;

/// Trees of all switches together; the one that was not heard of for longest makes room.
const MOST_TREES: usize = 4096;
/// Hosts behind one switch that are told apart.
const MOST_ASKERS: usize = 256;

/// A frame in which a switch sees what it says on a tree.
pub(super) trait TreeFrame: Frame {
    /// The tree and the word; none of other frames.
    fn in_tree(&self) -> Option<(FlowId, TreeWord)>;
    /// Where an answer goes.
    fn source(&self) -> Option<SocketAddr>;
    /// Makes it one for somebody else.
    fn readdress(&mut self, to: SocketAddr, book: &AddressBook);
}

impl TreeFrame for RawFrame {
    fn in_tree(&self) -> Option<(FlowId, TreeWord)> {
        RawFrame::in_tree(self)
    }
    fn source(&self) -> Option<SocketAddr> {
        RawFrame::source(self)
    }
    fn readdress(&mut self, to: SocketAddr, book: &AddressBook) {
        RawFrame::readdress(self, to, book);
    }
}

/// The stores of all switches of a network.
#[derive(Clone)]
pub(super) struct TreeStores<F> {
    config: StoreConfig,
    book: AddressBook,
    at: BTreeMap<(usize, FlowId), AtSwitch<F>>,
    /// Counts packets of trees: a clock that only goes forward.
    heard: u64,
}

#[derive(Clone)]
struct AtSwitch<F> {
    askers: Vec<SocketAddr>,
    /// At the beginning, and once there are two.
    store: Option<ContentStore<F, SocketAddr>>,
    heard: u64,
}

impl<F> fmt::Debug for TreeStores<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeStores").field("trees", &self.at.len()).finish_non_exhaustive()
    }
}

impl<F: TreeFrame> TreeStores<F> {
    /// Empty ones, for hosts with these addresses.
    pub(super) fn new(config: StoreConfig, book: AddressBook) -> Self {
        TreeStores { config, book, at: BTreeMap::new(), heard: 0 }
    }

    /// A frame has come to a switch; what goes on from there is appended to `out`. Gives back what says nothing on a tree.
    pub(super) fn pass(&mut self, switch: usize, frame: F, out: &mut Vec<F>) -> Option<F> {
        let Some((tree, word)) = frame.in_tree() else { return Some(frame) };
        self.heard += 1;
        match word {
            TreeWord::Interest(_) => self.on_interest(switch, tree, word, frame, out),
            // A symbol of a flow in which nobody asks is none of a tree.
            TreeWord::Data { .. } if !self.at.contains_key(&(switch, tree)) => return Some(frame),
            TreeWord::Data { .. } => self.on_data(switch, tree, word, frame, out),
        }
        None
    }

    fn on_interest(&mut self, switch: usize, tree: FlowId, word: TreeWord, frame: F, out: &mut Vec<F>) {
        let (TreeWord::Interest(name), Some(from)) = (word, frame.source()) else { return out.push(frame) };
        if !self.at.contains_key(&(switch, tree)) && self.at.len() >= MOST_TREES {
            let oldest = self.at.iter().min_by_key(|(_, it)| it.heard).map(|(key, _)| *key);
            oldest.map(|oldest| self.at.remove(&oldest));
        }
        let here = self.at.entry((switch, tree)).or_insert_with(|| AtSwitch {
            askers: Vec::new(),
            store: Some(ContentStore::new(self.config)),
            heard: 0,
        });
        here.heard = self.heard;
        if !here.askers.contains(&from) && here.askers.len() < MOST_ASKERS {
            here.askers.push(from);
        }
        if here.askers.len() > 1 && here.store.is_none() {
            here.store = Some(ContentStore::new(self.config));
        }
        match here.store.as_mut().map_or(Answer::GoesOn, |store| store.on_interest(name, from)) {
            Answer::GoesOn => out.push(frame),
            Answer::Waits => {}
            Answer::Held(held) => {
                let mut answer = held.clone();
                answer.readdress(from, &self.book);
                out.push(answer);
            }
        }
    }

    fn on_data(&mut self, switch: usize, tree: FlowId, word: TreeWord, frame: F, out: &mut Vec<F>) {
        let here = self.at.get_mut(&(switch, tree));
        let (TreeWord::Data { name, number }, Some(here)) = (word, here) else { return out.push(frame) };
        here.heard = self.heard;
        let Some(store) = &mut here.store else { return out.push(frame) };
        if here.askers.len() < 2 && store.bytes() + frame.len() > self.config.size {
            here.store = None;
            return out.push(frame);
        }
        let (known, before) = (store.holds(name), out.len());
        store.on_packet(name, number, frame.clone(), frame.len(), |frame, to| {
            let mut copy = frame.clone();
            copy.readdress(*to, &self.book);
            out.push(copy);
        });
        // Asked for before the store was there, or by somebody who was forgotten. One that is held has been answered.
        if out.len() == before && !known {
            out.push(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{BlockIndex, Bytes, Esi, SymbolId};
    use headwater_wire::{Class, Ecn};

    use super::*;

    /// From one port of a host to another, saying this.
    #[derive(Clone, Debug, PartialEq)]
    struct Toy {
        from: u16,
        to: u16,
        says: Option<TreeWord>,
    }

    fn at(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    impl Frame for Toy {
        fn len(&self) -> Bytes {
            Bytes::new(1000)
        }
        fn class(&self) -> Class {
            Class::Bulk
        }
        fn ecn(&self) -> Ecn {
            Ecn::NotEct
        }
        fn mark(&mut self) {}
        fn trim(&mut self) -> bool {
            false
        }
        fn flow_hash(&self) -> u32 {
            0
        }
        fn destination(&self) -> headwater_switch::Destination {
            headwater_switch::Destination::Host(self.to.into())
        }
    }

    impl TreeFrame for Toy {
        fn in_tree(&self) -> Option<(FlowId, TreeWord)> {
            self.says.map(|word| (FlowId(1), word))
        }
        fn source(&self) -> Option<SocketAddr> {
            Some(at(self.from))
        }
        fn readdress(&mut self, to: SocketAddr, _: &AddressBook) {
            self.to = to.port();
        }
    }

    fn name(esi: u32) -> SymbolId {
        SymbolId { block: BlockIndex(0), esi: Esi(esi) }
    }

    /// The parent is 9.
    fn asks(from: u16, esi: u32) -> Toy {
        Toy { from, to: 9, says: Some(TreeWord::Interest(name(esi))) }
    }

    fn brings(to: u16, esi: u32) -> Toy {
        Toy { from: 9, to, says: Some(TreeWord::Data { name: name(esi), number: Some(esi.into()) }) }
    }

    fn pass(stores: &mut TreeStores<Toy>, frame: Toy) -> Vec<Toy> {
        let mut out = Vec::new();
        out.extend(stores.pass(0, frame, &mut Vec::new()));
        out
    }

    fn goes_on(stores: &mut TreeStores<Toy>, frame: Toy) -> Vec<Toy> {
        let mut out = Vec::new();
        assert_eq!(stores.pass(0, frame, &mut out), None);
        out
    }

    fn stores() -> TreeStores<Toy> {
        TreeStores::new(StoreConfig::default(), AddressBook::new())
    }

    #[test]
    fn what_two_ask_for_is_asked_for_once_and_each_gets_a_copy_of_its_own() {
        let mut stores = stores();
        assert_eq!(goes_on(&mut stores, asks(1, 5)), [asks(1, 5)]);
        assert_eq!(goes_on(&mut stores, brings(1, 5)), [brings(1, 5)], "nothing branches here yet");
        assert_eq!(goes_on(&mut stores, asks(2, 6)), [asks(2, 6)]);
        assert_eq!(goes_on(&mut stores, asks(1, 6)), []);
        assert_eq!(goes_on(&mut stores, brings(2, 6)), [brings(2, 6), brings(1, 6)]);
        assert_eq!(goes_on(&mut stores, asks(3, 6)), [brings(3, 6)], "it is held");
        assert_eq!(goes_on(&mut stores, brings(2, 6)), [], "and was answered");
    }

    #[test]
    fn who_begins_later_than_its_neighbour_is_given_what_that_one_had_and_the_source_is_not_asked_again() {
        let mut stores = stores();
        for esi in 0..3 {
            assert_eq!(goes_on(&mut stores, asks(1, esi)), [asks(1, esi)]);
        }
        assert_eq!(goes_on(&mut stores, brings(1, 0)), [brings(1, 0)]);
        assert_eq!(goes_on(&mut stores, asks(2, 0)), [brings(2, 0)], "it is held");
        assert_eq!(goes_on(&mut stores, asks(2, 1)), [], "it is in flight");
        assert_eq!(goes_on(&mut stores, brings(1, 1)), [brings(1, 1), brings(2, 1)]);
    }

    #[test]
    fn where_nobody_else_asks_nothing_is_kept_once_the_store_was_full() {
        let config = StoreConfig { size: Bytes::new(3000), ..StoreConfig::default() };
        let mut stores = TreeStores::new(config, AddressBook::new());
        for esi in 0..5 {
            assert_eq!(goes_on(&mut stores, asks(1, esi)), [asks(1, esi)]);
            assert_eq!(goes_on(&mut stores, brings(1, esi)), [brings(1, esi)]);
        }
        assert!(stores.at.values().all(|here| here.store.is_none()));
        assert_eq!(goes_on(&mut stores, asks(2, 2)), [asks(2, 2)], "from here on it branches");
        assert_eq!(goes_on(&mut stores, brings(2, 2)), [brings(2, 2)]);
        assert_eq!(goes_on(&mut stores, asks(1, 2)), [brings(1, 2)]);
    }

    #[test]
    fn what_was_asked_for_before_it_branched_goes_where_it_is_addressed() {
        let mut stores = stores();
        goes_on(&mut stores, asks(1, 5));
        goes_on(&mut stores, asks(2, 6));
        assert_eq!(goes_on(&mut stores, brings(1, 5)), [brings(1, 5)]);
    }

    #[test]
    fn symbols_of_other_flows_and_all_else_are_left_alone() {
        let mut stores = stores();
        let other = Toy { says: None, ..asks(1, 1) };
        assert_eq!(pass(&mut stores, other.clone()), [other]);
        assert_eq!(pass(&mut stores, brings(1, 5)), [brings(1, 5)], "nobody asks in this flow");
    }
}
