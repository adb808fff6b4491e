//! What a process remembers of its peers: who said to hold which object, and where nodes are reached.
//!
//! Both tables are bounded, and peers and networks have shares of them (docs/decisions/0044). Of what is not remembered, the controller is
//! asked.

use std::collections::BTreeMap;

use headwater_machine::{Shares, Taker};
use headwater_units::{NodeId, ObjectId, PathId};

/// Maximum number of objects of others: four peers may hold 65,536 each.
const MOST_OBJECTS: usize = 1 << 18;
/// Maximum number of their holders, those of all objects together: 16,384 peers with 256 objects each.
const MOST_HOLDERS: usize = 1 << 22;
/// Maximum number of addresses that nodes have said.
const MOST_LABELS: usize = 1 << 16;
/// With more addresses than this, those of nodes whose links end are forgotten.
const CROWDED_LABELS: usize = MOST_LABELS / 4;

/// Objects that others hold, and by which paths these are reached.
#[derive(Debug, Default)]
pub(super) struct Holders {
    objects: BTreeMap<ObjectId, Holding>,
    entries: Shares,
    holders: Shares,
}

#[derive(Debug)]
struct Holding {
    paths: BTreeMap<PathId, Taker>,
    /// Whose place among the objects it takes: one of the holders.
    taker: Taker,
}

impl Holders {
    /// The paths to those who hold an object.
    pub(super) fn of(&self, object: ObjectId) -> impl Iterator<Item = PathId> + '_ {
        self.objects.get(&object).into_iter().flat_map(|held| held.paths.keys().copied())
    }

    /// Somebody holds an object.
    pub(super) fn note(&mut self, object: ObjectId, path: PathId, taker: Taker) {
        let known = self.objects.get(&object);
        if known.is_some_and(|held| held.paths.contains_key(&path))
            || !self.holders.has_room(&taker, 1, MOST_HOLDERS)
            || known.is_none() && !self.entries.has_room(&taker, 1, MOST_OBJECTS)
        {
            return;
        }
        if known.is_none() {
            self.entries.take(&taker, 1);
        }
        self.holders.take(&taker, 1);
        let held = self.objects.entry(object).or_insert_with(|| Holding { paths: BTreeMap::new(), taker });
        held.paths.insert(path, taker);
    }

    /// Nobody is behind a path any more.
    pub(super) fn lose(&mut self, path: PathId) {
        let Holders { objects, entries, holders } = self;
        objects.retain(|_, held| {
            let Some(taker) = held.paths.remove(&path) else { return true };
            holders.give_back(&taker, 1);
            let heir = held.paths.values().next().copied();
            if heir.is_none() || held.taker == taker {
                entries.give_back(&held.taker, 1);
                if let Some(heir) = heir {
                    entries.take(&heir, 1);
                    held.taker = heir;
                }
            }
            heir.is_some()
        });
    }
}

/// Where nodes are reached, for people to read and for block hashes.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// As they said themselves.
    said: BTreeMap<NodeId, (String, Taker)>,
    shares: Shares,
    /// As the controller said.
    learnt: BTreeMap<NodeId, String>,
}

impl Labels {
    pub(super) fn get(&self, node: NodeId) -> Option<&String> {
        self.said.get(&node).map(|(label, _)| label).or_else(|| self.learnt.get(&node))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (NodeId, &String)> {
        let said = self.said.iter().map(|(node, (label, _))| (*node, label));
        let learnt = self.learnt.iter().filter(|(node, _)| !self.said.contains_key(node));
        said.chain(learnt.map(|(node, label)| (*node, label)))
    }

    /// A node says where it is reached.
    pub(super) fn note(&mut self, taker: Taker, label: String) {
        if let Some((known, _)) = self.said.get_mut(&taker.node) {
            *known = label;
        } else if self.shares.has_room(&taker, 1, MOST_LABELS) {
            self.shares.take(&taker, 1);
            self.said.insert(taker.node, (label, taker));
        }
    }

    /// The link to a node has ended: its address is remembered on, unless many are.
    pub(super) fn lose(&mut self, node: NodeId) {
        if self.said.len() > CROWDED_LABELS
            && let Some((_, taker)) = self.said.remove(&node)
        {
            self.shares.give_back(&taker, 1);
        }
    }

    /// The controller says where nodes are reached that this process has asked for.
    pub(super) fn learn(&mut self, found: impl IntoIterator<Item = (NodeId, String)>) {
        self.learnt.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOD: [u8; 4] = [192, 0, 2, 7];

    fn taker(key: u32, ip: [u8; 4]) -> Taker {
        let mut node = [0; 32];
        node[..4].copy_from_slice(&key.to_be_bytes());
        Taker { node: NodeId(node), network: Some(ip.into()) }
    }

    fn object(n: usize) -> ObjectId {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&n.to_be_bytes());
        ObjectId(id)
    }

    #[test]
    fn objects_of_one_network_leave_room_for_those_of_others_and_a_lost_path_gives_back() {
        let mut holders = Holders::default();
        for key in 0..4_u32 {
            for n in 0..70_000 {
                holders.note(object(key as usize * 100_000 + n), PathId(key), taker(key, FLOOD));
            }
        }
        assert_eq!(holders.objects.len(), MOST_OBJECTS / 2);
        let honest = taker(9, [10, 0, 0, 1]);
        holders.note(object(0), PathId(9), honest);
        holders.note(object(900_000), PathId(9), honest);
        assert_eq!(holders.of(object(0)).collect::<Vec<_>>(), [PathId(0), PathId(9)]);
        assert_eq!(holders.of(object(900_000)).collect::<Vec<_>>(), [PathId(9)]);
        (0..4).for_each(|path| holders.lose(PathId(path)));
        assert_eq!((holders.objects.len(), holders.entries.taken(), holders.holders.taken()), (2, 2, 2));
        assert_eq!(holders.entries.of(honest.node), 2, "it holds on what another said first");
        holders.lose(PathId(9));
        assert_eq!((holders.entries.taken(), holders.holders.taken()), (0, 0));
    }

    #[test]
    fn addresses_of_one_network_leave_room_for_others_and_of_many_those_of_ended_links_are_forgotten() {
        let mut labels = Labels::default();
        let honest = taker(500_000, [10, 0, 0, 1]);
        for key in 0..100_000 {
            labels.note(taker(key, FLOOD), "192.0.2.7:7001".to_owned());
            labels.lose(taker(key, FLOOD).node);
        }
        assert_eq!(labels.all().count(), CROWDED_LABELS);
        for key in 0..100_000 {
            labels.note(taker(key, FLOOD), "192.0.2.7:7001".to_owned());
        }
        assert_eq!(labels.all().count(), MOST_LABELS / 2);
        labels.note(honest, "10.0.0.1:7001".to_owned());
        assert_eq!(labels.get(honest.node).unwrap(), "10.0.0.1:7001");
        labels.lose(honest.node);
        assert_eq!((labels.get(honest.node), labels.shares.taken()), (None, MOST_LABELS / 2));
    }
}
