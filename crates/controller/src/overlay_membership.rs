//! Who passes on what of which object: the meshes of overlays.
//!
//! ```text
//!   class   begun by   taken over by those who come later, in their order: L1, L2, ...
//!     0        r0         L1   L4            L5 asks L4 for class 0, L2 for class 1 and L3 for class 2,
//!     1        r1         L2   (L5)          and takes over class 1, which was taken longest ago
//!     2        r2         L3
//! ```
//! A mesh has n classes of each block's symbols, as many as receivers began it. Who comes later asks, for each class, whoever took
//! that class last, and takes over the class that was taken longest ago. So nobody serves more than n of those who come later, each
//! with one n-th of the object: one copy at most, however many come. Where nobody is left who passes a class on, a source sends it to
//! whoever comes next.
//!
//! Where receivers say in which rack they stand, those who begin a mesh take classes into their racks ([`super::racks`]), and who comes
//! later is put where mates of its rack are and asks them first, the youngest who took a class or else who takes it in.
//!
//! Knows nothing of tasks and flows: whoever asks says who may be chosen.

use std::collections::BTreeMap;

use headwater_units::{NodeId, ObjectId};

use crate::racks::entries;

/// Of each class of a mesh the last so many who took it are remembered: the younger ones may go before the older.
const REMEMBERED: usize = 4;

/// The overlays, by object.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    overlays: BTreeMap<ObjectId, Overlay>,
}

/// The receivers of one object that pass on to each other what comes.
#[derive(Debug)]
struct Overlay {
    symbol_size: u16,
    meshes: Vec<Mesh>,
}

/// One mesh.
#[derive(Debug)]
struct Mesh {
    /// n.
    of: u8,
    /// Those who pass on, in the order in which they came.
    relays: Vec<Relay>,
}

/// One that passes on.
#[derive(Clone, Debug)]
struct Relay {
    node: NodeId,
    class: u8,
    rack: Option<String>,
    entry: Entry,
}

/// The classes of others that a receiver takes into its rack and hands on there, each with whose it is.
type Entry = Vec<(u8, NodeId)>;

/// A receiver that is there when an overlay begins.
#[derive(Clone, Debug)]
pub(crate) struct Beginner {
    pub(crate) node: NodeId,
    pub(crate) rack: Option<String>,
    /// From which its class comes.
    pub(crate) source: NodeId,
}

/// A receiver that passes a class on to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Giver {
    pub(crate) node: NodeId,
    pub(crate) class: u8,
    /// Which passes it on itself: it takes the class over, or into its rack.
    pub(crate) passed_on: bool,
}

/// The role of a receiver in a mesh: its sources, each with its class of `of`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeshRole {
    /// The number of the mesh among those of its overlay.
    pub(crate) number: usize,
    /// Which has the object, and sends a class that nobody else does; none: all classes come from others.
    pub(crate) source: Option<(NodeId, u8)>,
    /// The others: one for each class, perhaps the same for several.
    pub(crate) relays: Vec<Giver>,
    pub(crate) of: u8,
    /// The class that this receiver passes on, if it does.
    pub(crate) class: Option<u8>,
    rack: Option<String>,
    entry: Entry,
}

impl Relay {
    fn is_in(&self, rack: Option<&str>) -> bool {
        rack.is_some() && self.rack.as_deref() == rack
    }

    /// Whether it takes a class into its rack that somebody sends it whom it `may` count on.
    fn enters(&self, class: u8, may: impl Fn(NodeId) -> bool) -> bool {
        self.entry.iter().any(|(its, from)| *its == class && may(*from))
    }
}

impl Overlays {
    /// T of an object's overlay, if there is one.
    pub(crate) fn symbol_size(&self, object: ObjectId) -> Option<u16> {
        self.overlays.get(&object).map(|overlay| overlay.symbol_size)
    }

    /// Receivers begin an overlay, in meshes of at most `largest`; returns where each belongs. Those of a rack are given in a row.
    /// Nobody passes anything on before it is entered ([`Overlays::enter`]).
    pub(crate) fn begin(
        &mut self,
        object: ObjectId,
        symbol_size: u16,
        receivers: &[Beginner],
        largest: u8,
    ) -> Vec<(NodeId, MeshRole)> {
        let count = receivers.len().div_ceil(usize::from(largest)).max(1);
        let mut overlay = Overlay { symbol_size, meshes: Vec::with_capacity(count) };
        let mut places = Vec::with_capacity(receivers.len());
        for (number, nodes) in receivers.chunks(receivers.len().div_ceil(count).max(1)).enumerate() {
            let of = nodes.len() as u8;
            overlay.meshes.push(Mesh { of, relays: Vec::with_capacity(nodes.len()) });
            let relays = beginning(nodes);
            for (to, Beginner { source, .. }) in relays.iter().zip(nodes) {
                let role = MeshRole {
                    number,
                    source: Some((*source, to.class)),
                    relays: givers(to, &relays),
                    of,
                    class: Some(to.class),
                    rack: to.rack.clone(),
                    entry: to.entry.clone(),
                };
                places.push((to.node, role));
            }
        }
        self.overlays.insert(object, overlay);
        places
    }

    /// Where somebody of this rack belongs who comes later, and takes over a class if it `passes_on`; of those who `may` be asked.
    /// `None` if fewer than two are left: one alone would have to bring everything.
    pub(crate) fn place(
        &self,
        object: ObjectId,
        (node, rack): (NodeId, Option<&str>),
        passes_on: bool,
        may: impl Fn(NodeId) -> bool,
    ) -> Option<MeshRole> {
        let meshes = self.overlays.get(&object)?.meshes.iter().enumerate().filter(|(_, mesh)| mesh.of > 1);
        let has_mates = |mesh: &Mesh| mesh.relays.iter().any(|relay| relay.is_in(rack));
        let (number, mesh) = meshes.min_by_key(|(_, mesh)| (!has_mates(mesh), mesh.relays.len()))?;
        let here: Vec<&Relay> =
            mesh.relays.iter().filter(|relay| relay.node != node && may(relay.node)).collect();
        let mut youngest: Vec<&Relay> = Vec::with_capacity(usize::from(mesh.of));
        for relay in here.iter().rev() {
            if youngest.iter().all(|its| its.class != relay.class) {
                youngest.push(relay);
            }
        }
        // The one who took its class longest ago first.
        youngest.reverse();
        let orphan = (0..mesh.of).find(|class| youngest.iter().all(|its| its.class != *class));
        let class = orphan.or(youngest.first().map(|its| its.class)).filter(|_| passes_on);
        let passed_on = |its: u8| class == Some(its);
        let far = |its: &&Relay| Giver { node: its.node, class: its.class, passed_on: passed_on(its.class) };
        let near = |its: &&Relay| {
            let mut mates = here.iter().rev().filter(|relay| relay.is_in(rack));
            let owner = mates.clone().find(|mate| mate.class == its.class);
            let mate = owner.or_else(|| mates.find(|mate| mate.enters(its.class, &may)));
            Giver { node: mate.unwrap_or(its).node, ..far(its) }
        };
        let mut relays: Vec<Giver> = youngest.iter().map(near).collect();
        if relays.iter().all(|giver| giver.node == relays[0].node) {
            relays = youngest.iter().map(far).collect();
        }
        (relays.len() >= 2).then(|| MeshRole {
            number,
            source: None,
            relays,
            of: mesh.of,
            class,
            rack: rack.map(str::to_owned),
            entry: Entry::new(),
        })
    }

    /// From now on a receiver passes on its class.
    pub(crate) fn enter(&mut self, object: ObjectId, node: NodeId, role: &MeshRole) {
        let mesh = self.overlays.get_mut(&object).and_then(|overlay| overlay.meshes.get_mut(role.number));
        let (Some(mesh), Some(class)) = (mesh, role.class) else { return };
        mesh.relays.retain(|relay| relay.node != node);
        if mesh.relays.len() >= REMEMBERED * usize::from(mesh.of) {
            mesh.relays.remove(0);
        }
        let MeshRole { rack, entry, .. } = role.clone();
        mesh.relays.push(Relay { node, class, rack, entry });
    }

    /// Nobody receives the object any more.
    pub(crate) fn remove(&mut self, object: ObjectId) {
        self.overlays.remove(&object);
    }
}

impl MeshRole {
    /// The class that nobody is there to send, if there is one.
    pub(crate) fn orphan(&self) -> Option<u8> {
        let relayed = self.relays.iter().map(|giver| giver.class);
        let sent = relayed.chain(self.source.map(|(_, class)| class));
        (0..self.of).find(|class| !sent.clone().any(|its| its == *class))
    }
}

/// Those with which a mesh begins.
fn beginning(nodes: &[Beginner]) -> Vec<Relay> {
    let racks: Vec<Option<&str>> = nodes.iter().map(|it| it.rack.as_deref()).collect();
    let entry =
        |classes: Vec<u8>| classes.iter().map(|class| (*class, nodes[usize::from(*class)].node)).collect();
    let relay = |((class, it), enters): ((u8, &Beginner), Vec<u8>)| Relay {
        node: it.node,
        class,
        rack: it.rack.clone(),
        entry: entry(enters),
    };
    (0..).zip(nodes).zip(entries(&racks)).map(relay).collect()
}

/// Who of those with which a mesh begins passes each class on to one of them: whose own it is, if that one stands in the same rack; else
/// who takes it into this rack; else whose own it is.
fn givers(to: &Relay, all: &[Relay]) -> Vec<Giver> {
    let mates = || all.iter().filter(|relay| relay.is_in(to.rack.as_deref()));
    let giver = |owner: &Relay| {
        let is_far = !owner.is_in(to.rack.as_deref());
        let entry = mates().find(|mate| is_far && mate.enters(owner.class, |_| true));
        let giver = entry.filter(|mate| mate.node != to.node).unwrap_or(owner);
        let passed_on = entry.is_some_and(|mate| mate.node == to.node);
        Giver { node: giver.node, class: owner.class, passed_on }
    };
    all.iter().filter(|owner| owner.node != to.node).map(giver).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId([1; 32]);

    fn node(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    fn beginners(racks: &[Option<&str>], sources: &[NodeId]) -> Vec<Beginner> {
        let beginner = |(n, rack): (usize, &Option<&str>)| Beginner {
            node: node(n as u8),
            rack: rack.map(str::to_owned),
            source: sources[n % sources.len()],
        };
        racks.iter().enumerate().map(beginner).collect()
    }

    fn giver(role: &MeshRole, class: u8) -> (u8, bool) {
        let giver = role.relays.iter().find(|giver| giver.class == class).unwrap();
        (giver.node.0[0], giver.passed_on)
    }

    /// Three who began, and whoever comes later in the order of their numbers.
    fn overlay(late: u8) -> (Overlays, Vec<MeshRole>) {
        let mut overlays = Overlays::default();
        for (node, role) in overlays.begin(OBJECT, 1024, &beginners(&[None; 3], &[node(99)]), 32) {
            overlays.enter(OBJECT, node, &role);
        }
        let mut places = Vec::new();
        for n in 3..3 + late {
            let role = overlays.place(OBJECT, (node(n), None), true, |_| true).unwrap();
            overlays.enter(OBJECT, node(n), &role);
            places.push(role);
        }
        (overlays, places)
    }

    #[test]
    fn nobody_serves_more_late_ones_than_there_are_classes() {
        let (_, places) = overlay(40);
        let mut serves: BTreeMap<NodeId, usize> = BTreeMap::new();
        for role in &places {
            let mut classes: Vec<u8> = role.relays.iter().map(|giver| giver.class).collect();
            classes.sort_unstable();
            assert_eq!(classes, [0, 1, 2], "each class from one");
            role.relays.iter().for_each(|giver| *serves.entry(giver.node).or_default() += 1);
        }
        assert_eq!([0, 1, 2].map(|n| serves[&node(n)]), [1, 2, 3]);
        assert!(serves.values().all(|served| *served <= 3), "{serves:?}");
    }

    #[test]
    fn what_nobody_is_left_to_pass_on_the_next_one_takes() {
        let (overlays, _) = overlay(1);
        // The first late one has taken over class 0.
        let role =
            overlays.place(OBJECT, (node(9), None), true, |it| ![node(0), node(3)].contains(&it)).unwrap();
        assert_eq!((role.class, role.orphan()), (Some(0), Some(0)));
        let role = overlays.place(OBJECT, (node(9), None), true, |it| it != node(3)).unwrap();
        assert_eq!(giver(&role, 0).0, 0, "the older one is there again");
        assert_eq!(overlays.place(OBJECT, (node(9), None), true, |it| it == node(2)), None);
        let role = overlays.place(OBJECT, (node(9), None), false, |_| true).unwrap();
        assert_eq!(role.class, None);
    }

    #[test]
    fn circles_are_of_equal_size_and_the_smaller_one_takes_the_next() {
        let mut overlays = Overlays::default();
        let nodes = beginners(&[None; 5], &[node(98), node(99)]);
        let places = overlays.begin(OBJECT, 1024, &nodes, 4);
        let numbers: Vec<(usize, u8)> = places.iter().map(|(_, role)| (role.number, role.of)).collect();
        assert_eq!(numbers, [(0, 3), (0, 3), (0, 3), (1, 2), (1, 2)]);
        let sources = places.iter().map(|(_, role)| role.source.unwrap().0.0[0]).collect::<Vec<_>>();
        assert_eq!(sources, [98, 99, 98, 99, 98]);
        places.iter().for_each(|(node, role)| overlays.enter(OBJECT, *node, role));
        assert_eq!(overlays.place(OBJECT, (node(7), None), true, |_| true).unwrap().number, 1);
    }

    const A: Option<&str> = Some("a");
    const B: Option<&str> = Some("b");

    /// Two racks of two.
    fn racks() -> (Overlays, Vec<(NodeId, MeshRole)>) {
        let mut overlays = Overlays::default();
        let places = overlays.begin(OBJECT, 1024, &beginners(&[A, A, B, B], &[node(99)]), 32);
        places.iter().for_each(|(node, role)| overlays.enter(OBJECT, *node, role));
        (overlays, places)
    }

    #[test]
    fn a_class_comes_from_the_rack_but_to_its_entry() {
        let (_, places) = racks();
        // 0 takes class 2 into rack a and 1 class 3, 2 takes class 0 into rack b and 3 class 1.
        let given = |at: usize| -> Vec<(u8, (u8, bool))> {
            let role = &places[at].1;
            role.relays.iter().map(|it| (it.class, giver(role, it.class))).collect()
        };
        assert_eq!(given(0), [(1, (1, false)), (2, (2, true)), (3, (1, false))]);
        assert_eq!(given(3), [(0, (2, false)), (1, (1, true)), (2, (2, false))]);
    }

    #[test]
    fn who_comes_late_asks_its_rack_first() {
        let (mut overlays, _) = racks();
        let first = overlays.place(OBJECT, (node(4), A), true, |_| true).unwrap();
        assert_eq!([0, 1, 2, 3].map(|class| giver(&first, class).0), [0, 1, 0, 1]);
        assert_eq!((first.class, giver(&first, 0)), (Some(0), (0, true)));
        overlays.enter(OBJECT, node(4), &first);
        let next = overlays.place(OBJECT, (node(5), A), true, |_| true).unwrap();
        assert_eq!([0, 1, 2, 3].map(|class| giver(&next, class).0), [4, 1, 0, 1]);
        assert_eq!(next.class, Some(1));
        // Those of the other rack have it all from each other.
        let far = overlays.place(OBJECT, (node(6), B), true, |_| true).unwrap();
        assert_eq!([0, 1, 2, 3].map(|class| giver(&far, class).0), [2, 3, 2, 3]);
        let stranger = overlays.place(OBJECT, (node(6), None), true, |_| true).unwrap();
        assert_eq!([0, 1, 2, 3].map(|class| giver(&stranger, class).0), [4, 1, 2, 3]);
        // Whose class it is has gone: what its entry takes in has dried up. And one mate does not bring everything.
        let left = overlays.place(OBJECT, (node(7), A), true, |it| it != node(2)).unwrap();
        assert_eq!((left.orphan(), left.class), (Some(2), Some(2)));
        let alone =
            overlays.place(OBJECT, (node(7), A), true, |it| [node(0), node(2)].contains(&it)).unwrap();
        assert_eq!([0, 2].map(|class| giver(&alone, class).0), [0, 2]);
    }

    #[test]
    fn who_comes_late_is_put_where_its_rack_is() {
        let mut overlays = Overlays::default();
        let places = overlays.begin(OBJECT, 1024, &beginners(&[A, A, A, B, B], &[node(99)]), 3);
        places.iter().for_each(|(node, role)| overlays.enter(OBJECT, *node, role));
        for (rack, number) in [(A, 0), (B, 1), (None, 1)] {
            assert_eq!(overlays.place(OBJECT, (node(8), rack), true, |_| true).unwrap().number, number);
        }
    }
}
