//! A device on a tree of Datacast (§V-A): interests go towards the source, and their answers go back to the askers.
//!
//! ```text
//!                          parent
//!             interests ^          | data
//!                   +---+----------v---+
//!                   |     TreeNode     |   a ContentStore, where more than one branch leads on
//!                   +-+------+-------+-+
//!                child    child     child (the device's own application is one, if it receives)
//! ```
//! The same machine stands in a switch, in a server that forwards, and in a host of an overlay: a *neighbour* is
//! whatever a driver sends by, a port, a path or an address. Its driver has read the packet's header ([`TreeWord::of`])
//! and does the sending.
//!
//! **Only where a tree branches is anything kept** (§V-A). Elsewhere interests and data pass through.
//!
//! **Neighbours are those of the tree**, which the node was told: an interest is heard from below and data from above. So nobody else
//! can have symbols sent to a place of its choice, or put any into a store. Not here: which trees there are, the packet's
//! bytes, rates, and timers: a node is silent until it is spoken to.

use headwater_units::{Bytes, SymbolId};
use headwater_wire::Body;

use crate::content_store::{Answer, ContentStore, StoreConfig, StoreStats};

/// Meaning of a tree's packet to a device on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeWord {
    /// Somebody below asks for this.
    Interest(SymbolId),
    /// A symbol or an announcement of this name, and its place in the tree's order if it has one.
    Data {
        /// Name that interests ask for it by.
        name: SymbolId,
        /// Packets of a tree are numbered as they are first sent.
        number: Option<u64>,
    },
}

impl TreeWord {
    /// The meaning of a datagram; none if it is none of a tree's, or a symbol that has lost its payload.
    #[inline]
    pub fn of(body: &Body) -> Option<TreeWord> {
        match body {
            Body::Interest(interest) => Some(TreeWord::Interest(interest.name)),
            Body::Symbol(header) if !header.trimmed => {
                Some(TreeWord::Data { name: header.symbol, number: Some(header.number.0) })
            }
            Body::Announcement(it) => Some(TreeWord::Data { name: it.name(), number: None }),
            _ => None,
        }
    }
}

/// Counts of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeNodeStats {
    /// Packets from a neighbour that cannot send them.
    pub strays: u64,
    /// Interests that were sent towards the source.
    pub up: u64,
    /// Packets that were sent away from it, each copy counting.
    pub down: u64,
    /// Of the store; nothing where there is none.
    pub store: StoreStats,
}

/// One tree at one device. `P` is a packet, `R` a neighbour.
#[derive(Clone, Debug)]
pub struct TreeNode<P, R> {
    parent: R,
    children: Vec<R>,
    /// Of one with several children.
    store: Option<ContentStore<P, R>>,
    config: StoreConfig,
    strays: u64,
    up: u64,
    down: u64,
}

impl<P: Clone, R: Clone + PartialEq> TreeNode<P, R> {
    /// A node between its parent and its children, each once. The parent of the node at the source is the source.
    pub fn new(config: StoreConfig, parent: R, children: Vec<R>) -> Self {
        let store = (children.len() > 1).then(|| ContentStore::new(config));
        TreeNode { parent, children, store, config, strays: 0, up: 0, down: 0 }
    }

    /// The tree was repaired: other neighbours from now on. Kept symbols stay.
    pub fn reroute(&mut self, parent: R, children: Vec<R>) {
        if self.store.is_none() && children.len() > 1 {
            self.store = Some(ContentStore::new(self.config));
        }
        (self.parent, self.children) = (parent, children);
    }

    /// The neighbour towards the source.
    pub fn parent(&self) -> &R {
        &self.parent
    }

    /// The neighbours away from it.
    pub fn children(&self) -> &[R] {
        &self.children
    }

    /// Whether it keeps packets.
    pub fn branches(&self) -> bool {
        self.store.is_some()
    }

    /// A packet has come; `bytes` is the room that it takes in a store. Calls `send` for each neighbour that it, or what answers it, goes
    /// by.
    #[inline]
    pub fn handle(&mut self, from: &R, word: TreeWord, packet: P, bytes: Bytes, send: impl FnMut(&R, &P)) {
        match word {
            TreeWord::Interest(name) => self.on_interest(from, name, packet, send),
            TreeWord::Data { name, number } => self.on_data(from, name, number, packet, bytes, send),
        }
    }

    fn on_interest(&mut self, from: &R, name: SymbolId, packet: P, mut send: impl FnMut(&R, &P)) {
        if !self.children.contains(from) {
            self.strays += 1;
            return;
        }
        match self.store.as_mut().map_or(Answer::GoesOn, |store| store.on_interest(name, from.clone())) {
            Answer::Held(held) => {
                self.down += 1;
                send(from, held);
            }
            Answer::Waits => {}
            Answer::GoesOn => {
                self.up += 1;
                send(&self.parent, &packet);
            }
        }
    }

    fn on_data(
        &mut self,
        from: &R,
        name: SymbolId,
        number: Option<u64>,
        packet: P,
        bytes: Bytes,
        mut send: impl FnMut(&R, &P),
    ) {
        if *from != self.parent {
            self.strays += 1;
            return;
        }
        let TreeNode { children, store, down, .. } = self;
        // The asker may be no neighbour any more.
        let mut to_child = |packet: &P, to: &R| {
            if children.contains(to) {
                *down += 1;
                send(to, packet);
            }
        };
        match (store, children.first()) {
            (Some(store), _) => store.on_packet(name, number, packet, bytes, to_child),
            (None, Some(only)) => to_child(&packet, only),
            (None, None) => {}
        }
    }

    /// Its counters.
    pub fn stats(&self) -> TreeNodeStats {
        let TreeNode { strays, up, down, store, .. } = self;
        let store = store.as_ref().map(ContentStore::stats).unwrap_or_default();
        TreeNodeStats { strays: *strays, up: *up, down: *down, store }
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{BlockIndex, Esi};

    use super::*;

    const BYTES: Bytes = Bytes::new(1000);
    const UP: u16 = 0;

    fn name(esi: u32) -> SymbolId {
        SymbolId { block: BlockIndex(0), esi: Esi(esi) }
    }

    fn asks(node: &mut TreeNode<&'static str, u16>, from: u16, esi: u32) -> Vec<(u16, &'static str)> {
        let mut sent = Vec::new();
        let interest = TreeWord::Interest(name(esi));
        node.handle(&from, interest, "interest", BYTES, |to, packet| sent.push((*to, *packet)));
        sent
    }

    fn brings(node: &mut TreeNode<&'static str, u16>, from: u16, esi: u32) -> Vec<(u16, &'static str)> {
        let mut sent = Vec::new();
        let data = TreeWord::Data { name: name(esi), number: Some(esi.into()) };
        node.handle(&from, data, "data", BYTES, |to, packet| sent.push((*to, *packet)));
        sent
    }

    fn node(children: &[u16]) -> TreeNode<&'static str, u16> {
        TreeNode::new(StoreConfig::default(), UP, children.to_vec())
    }

    #[test]
    fn each_link_below_and_the_one_above_are_crossed_once_in_any_order() {
        let mut node = node(&[1, 2, 3]);
        assert_eq!(asks(&mut node, 2, 7), [(UP, "interest")]);
        assert_eq!(asks(&mut node, 1, 7), []);
        assert_eq!(brings(&mut node, UP, 7), [(2, "data"), (1, "data")]);
        assert_eq!(asks(&mut node, 3, 7), [(3, "data")], "it is held");
        let stats = node.stats();
        assert_eq!((stats.up, stats.down, stats.strays, stats.store.held), (1, 3, 0, 1));
    }

    #[test]
    fn where_nothing_branches_all_passes_and_nothing_is_kept() {
        let mut node = node(&[1]);
        assert!(!node.branches());
        assert_eq!(
            (asks(&mut node, 1, 7), brings(&mut node, UP, 7)),
            (vec![(UP, "interest")], vec![(1, "data")])
        );
        assert_eq!(asks(&mut node, 1, 7), [(UP, "interest")]);
        assert_eq!(node.stats().store, StoreStats::default());
    }

    #[test]
    fn what_comes_from_no_neighbour_is_counted_and_dropped() {
        let mut node = node(&[1, 2]);
        assert_eq!((asks(&mut node, 9, 7), asks(&mut node, UP, 7)), (vec![], vec![]));
        asks(&mut node, 1, 7);
        assert_eq!((brings(&mut node, 2, 7), brings(&mut node, 9, 7)), (vec![], vec![]));
        assert_eq!(node.stats().strays, 4);
        assert_eq!(brings(&mut node, UP, 7), [(1, "data")], "it still waits");
    }

    #[test]
    fn after_a_repair_it_serves_the_new_neighbours_alone_from_what_it_has() {
        let mut node = node(&[1, 2]);
        asks(&mut node, 1, 7);
        brings(&mut node, UP, 7);
        asks(&mut node, 2, 8);
        node.reroute(5, vec![1, 3]);
        assert_eq!(asks(&mut node, 3, 7), [(3, "data")]);
        assert_eq!((brings(&mut node, UP, 8), brings(&mut node, 5, 8)), (vec![], vec![]), "2 is gone");
        assert_eq!(asks(&mut node, 2, 8), []);
        let mut alone = super::tests::node(&[1]);
        alone.reroute(UP, vec![1, 2]);
        assert!(alone.branches());
    }

    #[test]
    fn a_symbol_without_its_payload_is_nothing_to_it() {
        use headwater_units::PacketNumber;
        use headwater_wire::{Announcement, NEXT, SymbolHeader};
        let header = |trimmed| SymbolHeader { trimmed, ..SymbolHeader::new(PacketNumber(3), name(1)) };
        assert_eq!(TreeWord::of(&Body::Symbol(header(true))), None);
        let data = TreeWord::Data { name: name(1), number: Some(3) };
        assert_eq!(TreeWord::of(&Body::Symbol(header(false))), Some(data));
        let next = Announcement { block: BlockIndex(0), next: None };
        let data = TreeWord::Data { name: SymbolId { block: BlockIndex(0), esi: NEXT }, number: None };
        assert_eq!(TreeWord::of(&Body::Announcement(next)), Some(data));
    }
}
