//! Objects of which nodes state different sizes.
//!
//! An object's id is the hash of its bytes, so one size is right; which one, a controller cannot tell, since it never sees the bytes. It believes
//! the size that is stated from most networks, of equals the one that was stated first, and serves the object from those who state it.
//! The others are remembered. Whoever could not receive an object whose size is disputed speaks against it, one voice for each network: so
//! a liar that came first stands in the way of the first receiver at most, and does not keep honest holders out.

use core::net::IpAddr;
use std::collections::BTreeSet;

use headwater_machine::Taker;
use headwater_units::{Bytes, NodeId, ObjectId};

use super::{Catalog, Object};

/// Voices against a size that are remembered.
const MOST_VOICES: usize = 64;

/// One voice about a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Voice {
    Network(IpAddr),
    /// Of one that has no network, only a key.
    Key(NodeId),
}

impl Voice {
    fn of(taker: &Taker) -> Voice {
        taker.network.map_or(Voice::Key(taker.node), Voice::Network)
    }
}

impl Catalog {
    /// Whether a node may be recorded as a holder of an object of this size: nobody else holds it with another one.
    pub(super) fn agrees(known: &Object, id: NodeId, bytes: Bytes) -> bool {
        known.bytes == bytes || known.holders.iter().all(|holder| *holder == id)
    }

    /// A task of this object, which was to have this size, came to nothing. Of those who state another size that is no news.
    pub(crate) fn doubt_size(&mut self, object: ObjectId, bytes: Bytes, taker: &Taker) {
        let Some(known) = self.objects.get_mut(&object) else { return };
        let voice = Voice::of(taker);
        let mut others = known.others.keys().filter_map(|other| self.nodes.get(other));
        let has_spoken = others.any(|other| Voice::of(&other.taker) == voice);
        if known.bytes == bytes
            && !known.others.is_empty()
            && !has_spoken
            && known.against.len() < MOST_VOICES
        {
            known.against.insert(voice);
            self.weigh_sizes(object);
        }
    }

    /// Objects whose size is another now than tasks of them were told.
    pub(crate) fn take_resized(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.resized)
    }

    /// Believes another size if more speaks for it.
    pub(super) fn weigh_sizes(&mut self, object: ObjectId) {
        let Some(known) = self.objects.get(&object).filter(|known| !known.others.is_empty()) else { return };
        let voices = |nodes: &mut dyn Iterator<Item = NodeId>| {
            let here = nodes.filter_map(|node| self.nodes.get(&node)).filter(|node| node.path.is_some());
            here.map(|node| Voice::of(&node.taker)).collect::<BTreeSet<_>>().len()
        };
        let believed = voices(&mut known.holders.iter().copied()).saturating_sub(known.against.len());
        let sizes: BTreeSet<Bytes> = known.others.values().copied().collect();
        let by_voices = sizes.into_iter().map(|size| {
            let of_it = known.others.iter().filter(|(_, other)| **other == size).map(|(node, _)| *node);
            (voices(&mut of_it.into_iter()), size)
        });
        let best = by_voices.max_by_key(|(voices, size)| (*voices, core::cmp::Reverse(*size)));
        if let Some((voices, size)) = best
            && (known.holders.is_empty() || voices > believed)
        {
            self.believe_size(object, size);
        }
    }

    fn believe_size(&mut self, object: ObjectId, bytes: Bytes) {
        let Some(known) = self.objects.get_mut(&object) else { return };
        let before = std::mem::replace(&mut known.bytes, bytes);
        let liars: Vec<NodeId> = std::mem::take(&mut known.holders).into_iter().collect();
        known.others.extend(liars.into_iter().map(|node| (node, before)));
        known.against.clear();
        let holders = known.others.iter().filter(|(_, size)| **size == bytes).map(|(node, _)| *node);
        known.holders = holders.collect();
        known.others.retain(|_, size| *size != bytes);
        let heir = known.holders.first().and_then(|holder| self.nodes.get(holder)).map(|node| node.taker);
        if let Some(heir) = heir {
            self.held.give_back(&known.taker, 1);
            self.held.take(&heir, 1);
            known.taker = heir;
        }
        self.resized.push(object);
    }
}
