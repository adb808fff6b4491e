//! Shares of a bounded table: no peer fills it alone, and neither do all peers of one network.
//!
//! Any program can make as many keys as it likes, so a share for each key bounds nobody. Addresses cost more: a peer whose link has one
//! also counts for its network. A peer gets at most a quarter of a table and a network at most half, so whoever comes beside one that takes
//! all it can finds room.

use core::net::IpAddr;
use std::collections::BTreeMap;

use headwater_units::NodeId;
use serde::{Deserialize, Serialize};

/// Part of a table that one peer may take.
const OF_A_PEER: usize = 4;
/// Part of a table that the peers of one network may take together.
const OF_A_NETWORK: usize = 2;
/// Smaller tables are first come, first served.
const SHARED: usize = 16;

/// Whoever takes places of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taker {
    /// The key that it has proved.
    pub node: NodeId,
    /// The network that its link comes from ([`headwater_wire::network_of`]). `None`: it is a part of this process, or simulated.
    pub network: Option<IpAddr>,
}

impl Taker {
    /// One of whom only the key is known.
    pub fn of_key(node: NodeId) -> Taker {
        Taker { node, network: None }
    }
}

/// The places of a table that are taken, and by whom.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    taken: usize,
    by_node: BTreeMap<NodeId, usize>,
    by_network: BTreeMap<IpAddr, usize>,
}

impl Shares {
    /// Places that are taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Places that a peer has.
    pub fn of(&self, node: NodeId) -> usize {
        self.by_node.get(&node).copied().unwrap_or(0)
    }

    /// Whether `taker` may have so many places more of a table that has `most`.
    pub fn has_room(&self, taker: &Taker, places: usize, most: usize) -> bool {
        let of_network =
            taker.network.and_then(|network| self.by_network.get(&network)).copied().unwrap_or(0);
        let fits = |taken: usize, share: usize| taken.saturating_add(places) <= share;
        let has_share = fits(self.of(taker.node), most / OF_A_PEER) && fits(of_network, most / OF_A_NETWORK);
        fits(self.taken, most) && (most < SHARED || has_share)
    }

    /// `taker` has so many places more.
    pub fn take(&mut self, taker: &Taker, places: usize) {
        if places == 0 {
            return;
        }
        self.taken += places;
        *self.by_node.entry(taker.node).or_default() += places;
        if let Some(network) = taker.network {
            *self.by_network.entry(network).or_default() += places;
        }
    }

    /// `taker` has so many places fewer: some of those that it has taken as this one.
    pub fn give_back(&mut self, taker: &Taker, places: usize) {
        if places == 0 {
            return;
        }
        self.taken -= places;
        take_from(&mut self.by_node, &taker.node, places);
        if let Some(network) = &taker.network {
            take_from(&mut self.by_network, network, places);
        }
    }
}

fn take_from<K: Ord>(counts: &mut BTreeMap<K, usize>, of: &K, places: usize) {
    let count = counts.get_mut(of).expect("only what was taken is given back");
    *count -= places;
    if *count == 0 {
        counts.remove(of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taker(key: u8, ip: Option<[u8; 4]>) -> Taker {
        Taker { node: NodeId([key; 32]), network: ip.map(IpAddr::from) }
    }

    /// Takes single places until there is no more room; how many.
    fn fill(shares: &mut Shares, taker: &Taker, most: usize) -> usize {
        (0..=most)
            .take_while(|_| shares.has_room(taker, 1, most).then(|| shares.take(taker, 1)).is_some())
            .count()
    }

    #[test]
    fn a_peer_gets_a_quarter_and_its_network_half_and_others_find_room() {
        let mut shares = Shares::default();
        let at = Some([10, 0, 0, 1]);
        let of_network: Vec<usize> = (1..=4).map(|key| fill(&mut shares, &taker(key, at), 100)).collect();
        assert_eq!(of_network, [25, 25, 0, 0]);
        assert_eq!(fill(&mut shares, &taker(5, Some([10, 0, 0, 2])), 100), 25, "of another network");
        assert_eq!(fill(&mut shares, &taker(6, None), 100), 25, "of this process");
        assert_eq!((shares.taken(), fill(&mut shares, &taker(7, None), 100)), (100, 0));
        shares.give_back(&taker(1, at), 25);
        assert_eq!(fill(&mut shares, &taker(4, at), 100), 25);
    }

    #[test]
    fn places_are_taken_and_given_back_together() {
        let mut shares = Shares::default();
        let one = taker(1, Some([10, 0, 0, 1]));
        assert!(shares.has_room(&one, 25, 100) && !shares.has_room(&one, 26, 100));
        shares.take(&one, 25);
        assert_eq!(shares.of(one.node), 25);
        shares.give_back(&one, 25);
        assert!(shares.by_node.is_empty() && shares.by_network.is_empty() && shares.taken() == 0);
    }

    #[test]
    fn a_small_table_is_first_come_first_served() {
        assert_eq!(fill(&mut Shares::default(), &taker(1, None), 15), 15);
    }
}
