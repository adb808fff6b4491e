//! Maps a [`PathId`] to the peer's socket addresses.
//!
//! Data paths are addresses that an authenticated datagram came from, or that a controller named; that of a multicast group
//! is one of these. Control paths belong to the links of the process and have the high bit set.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use arrayvec::ArrayVec;
use headwater_udp::PathAddr;
use headwater_units::PathId;
use headwater_wire::network_of;

/// Control paths have this bit.
const CONTROL: u32 = 1 << 31;
/// More data paths than this are a peer that keeps changing its port: the oldest path of the network with the most paths is forgotten.
const MOST: usize = 1 << 16;
/// A source that advertises more addresses is tried at the first ones.
const MOST_CANDIDATES: usize = 4;

/// The path of the n-th control link of this process.
pub const fn control_path(n: u32) -> PathId {
    PathId(n | CONTROL)
}

/// Whether packets of this path ride a control link.
pub(crate) const fn is_control(path: PathId) -> bool {
    path.0 & CONTROL != 0
}

/// The data paths of one socket.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    next: u32,
    addresses: BTreeMap<PathId, Addresses>,
    networks: Networks,
    known: BTreeMap<PathAddr, PathId>,
    /// The last look-up: packets mostly come and go in bursts.
    recent: Option<(PathId, Addresses)>,
}

type Addresses = ArrayVec<PathAddr, MOST_CANDIDATES>;

/// The paths to each network, and the networks by how many there are.
#[derive(Debug, Default)]
struct Networks {
    paths: BTreeMap<IpAddr, BTreeSet<PathId>>,
    by_size: BTreeSet<(usize, IpAddr)>,
}

impl Networks {
    fn change(&mut self, network: IpAddr, change: impl FnOnce(&mut BTreeSet<PathId>)) {
        let paths = self.paths.entry(network).or_default();
        self.by_size.remove(&(paths.len(), network));
        change(paths);
        if paths.is_empty() {
            self.paths.remove(&network);
        } else {
            self.by_size.insert((paths.len(), network));
        }
    }

    /// The oldest path of the network with the most paths, which is forgotten.
    fn pop(&mut self) -> Option<PathId> {
        let &(_, largest) = self.by_size.last()?;
        let mut oldest = None;
        self.change(largest, |paths| oldest = paths.pop_first());
        oldest
    }
}

/// The network that a path leads to. A path without an address is a tree's.
fn network(addresses: &Addresses) -> IpAddr {
    addresses.first().map_or(Ipv4Addr::UNSPECIFIED.into(), |first| network_of(first.remote.ip()))
}

impl Paths {
    /// The path that a datagram came by, or that leads to a group ([`GroupAddr::path`](headwater_udp::GroupAddr::path)): the
    /// same each time.
    pub(crate) fn of(&mut self, from: PathAddr) -> PathId {
        match self.known.get(&from) {
            Some(&path) => path,
            None => {
                let path = self.add([from].into_iter().collect());
                self.known.insert(from, path);
                path
            }
        }
    }

    /// The path that a datagram came by of which it is not known to which of our addresses it came (what was trimmed on its
    /// way to a group): one on which this peer is known already, if there is one.
    pub(crate) fn of_peer(&mut self, from: PathAddr) -> PathId {
        let peer = PathAddr::to(from.remote);
        match self.known.range(peer..).next().filter(|(known, _)| known.remote == from.remote) {
            Some((_, &path)) => path,
            None => self.of(from),
        }
    }

    /// The path of an address that datagrams came from.
    pub(crate) fn find(&self, from: &PathAddr) -> Option<PathId> {
        self.known.get(from).copied()
    }

    /// A path to a peer that may be reached at any of these; all are tried until it answers from one.
    pub(crate) fn towards(&mut self, at: &[SocketAddr]) -> PathId {
        self.add(at.iter().take(MOST_CANDIDATES).map(|&a| PathAddr::to(a)).collect())
    }

    fn add(&mut self, addresses: Addresses) -> PathId {
        if self.addresses.len() >= MOST
            && let Some(gone) = self.networks.pop().and_then(|oldest| self.addresses.remove(&oldest))
        {
            gone.iter().for_each(|a| {
                self.known.remove(a);
            });
            self.recent = None;
        }
        let path = PathId(self.next & !CONTROL);
        self.next = (self.next + 1) & !CONTROL;
        self.networks.change(network(&addresses), |paths| _ = paths.insert(path));
        self.addresses.insert(path, addresses);
        path
    }

    /// Where packets of a path go.
    pub(crate) fn addresses(&mut self, path: PathId) -> &[PathAddr] {
        if self.recent.as_ref().is_none_or(|(recent, _)| *recent != path) {
            self.recent = self.addresses.get(&path).map(|addresses| (path, addresses.clone()));
        }
        self.recent.as_ref().map_or(&[], |(_, addresses)| addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(port: u16) -> PathAddr {
        PathAddr::to(([127, 0, 0, 1], port).into())
    }

    #[test]
    fn a_path_is_found_again_by_its_number_and_by_its_address() {
        let mut paths = Paths::default();
        let (one, two) = (paths.of(from(1)), paths.of(from(2)));
        assert_ne!(one, two);
        assert_eq!((paths.of(from(1)), paths.of(from(2))), (one, two));
        for _ in 0..2 {
            assert_eq!(paths.addresses(one), [from(1)]);
            assert_eq!(paths.addresses(two), [from(2)]);
        }
        let many: Vec<SocketAddr> = (1..9).map(|port| from(port).remote).collect();
        let towards = paths.towards(&many);
        assert_eq!(paths.addresses(towards).len(), MOST_CANDIDATES);
        assert_eq!(paths.addresses(PathId(99)), []);
    }

    #[test]
    fn a_group_has_a_path_of_its_own_for_each_interface() {
        use headwater_udp::GroupAddr;

        let mut paths = Paths::default();
        let by = |own: [u8; 4]| GroupAddr::new(([239, 1, 1, 1], 9).into(), Some(own.into())).unwrap();
        let (here, there) = (by([10, 0, 0, 1]), by([10, 0, 1, 1]));
        let path = paths.of(here.path());
        assert_ne!(paths.of(there.path()), path);
        assert_eq!((paths.of(here.path()), paths.find(&here.path())), (path, Some(path)));
        assert_eq!(paths.addresses(path), [here.path()]);
    }

    #[test]
    fn a_peer_is_known_again_without_our_own_address() {
        let mut paths = Paths::default();
        let by = |port: u16| PathAddr { local: Some([10, 0, 0, 1].into()), ..from(port) };
        let (one, two) = (paths.of(by(1)), paths.of(by(3)));
        assert_eq!((paths.of_peer(from(1)), paths.of_peer(from(3))), (one, two));
        let between = paths.of_peer(from(2));
        assert!(between != one && between != two);
        assert_eq!((paths.of_peer(from(2)), paths.of(from(2))), (between, between));
    }

    #[test]
    fn a_peer_that_keeps_changing_its_port_makes_no_other_forgotten() {
        let mut paths = Paths::default();
        let others: Vec<PathAddr> = (1..=200).map(|n| PathAddr::to(([10, 0, 0, n], 7001).into())).collect();
        let known: Vec<PathId> = others.iter().map(|other| paths.of(*other)).collect();
        let mut newest = PathId(0);
        for ip in [[192, 0, 2, 7], [192, 0, 2, 8]] {
            for port in 1..=u16::MAX {
                newest = paths.of(PathAddr::to((ip, port).into()));
            }
        }
        for (other, path) in others.iter().zip(&known) {
            assert_eq!((paths.find(other), paths.addresses(*path)), (Some(*path), &[*other][..]));
        }
        assert_eq!(paths.addresses(newest).len(), 1, "its last address is known");
        assert_eq!(paths.addresses.len(), MOST);
        let counted: usize = paths.networks.paths.values().map(BTreeSet::len).sum();
        assert_eq!((counted, paths.networks.by_size.len()), (MOST, 202));
    }

    #[test]
    fn what_is_forgotten_is_not_found_any_more() {
        let mut paths = Paths::default();
        let first = paths.towards(&[from(1).remote]);
        assert_eq!(paths.addresses(first).len(), 1);
        (0..MOST).for_each(|_| _ = paths.towards(&[from(2).remote]));
        assert_eq!(paths.addresses(first), []);
    }
}
