//! What is behind a [`PathId`].
//!
//! Data paths are addresses that an authenticated datagram came from, or that a controller named; control paths belong
//! to the links of the process and have the high bit set.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use headwater_units::PathId;

use crate::socket::PathAddr;

/// Control paths have this bit.
const CONTROL: u32 = 1 << 31;
/// More data paths than this are a peer that keeps changing its port; the oldest are forgotten.
const MOST: usize = 1 << 16;
/// A source that advertises more addresses is tried at the first ones.
const MOST_CANDIDATES: usize = 4;

/// The path of the n-th control link of this process.
pub(crate) const fn control_path(n: u32) -> PathId {
    PathId(n | CONTROL)
}

/// Whether packets of this path ride a control link.
pub(super) const fn is_control(path: PathId) -> bool {
    path.0 & CONTROL != 0
}

/// The data paths of one socket.
#[derive(Debug, Default)]
pub(super) struct Paths {
    next: u32,
    addresses: BTreeMap<PathId, Vec<PathAddr>>,
    known: BTreeMap<PathAddr, PathId>,
}

impl Paths {
    /// The path that a datagram came by.
    pub(super) fn of(&mut self, from: PathAddr) -> PathId {
        match self.known.get(&from) {
            Some(&path) => path,
            None => {
                let path = self.add(vec![from]);
                self.known.insert(from, path);
                path
            }
        }
    }

    /// The path of an address that datagrams came from.
    pub(super) fn find(&self, from: &PathAddr) -> Option<PathId> {
        self.known.get(from).copied()
    }

    /// A path to a peer that may be reached at any of these; all are tried until it answers from one.
    pub(super) fn towards(&mut self, at: &[SocketAddr]) -> PathId {
        self.add(at.iter().take(MOST_CANDIDATES).map(|&a| PathAddr::to(a)).collect())
    }

    fn add(&mut self, addresses: Vec<PathAddr>) -> PathId {
        if self.addresses.len() >= MOST
            && let Some((_, gone)) = self.addresses.pop_first()
        {
            gone.iter().for_each(|a| {
                self.known.remove(a);
            });
        }
        let path = PathId(self.next & !CONTROL);
        self.next = (self.next + 1) & !CONTROL;
        self.addresses.insert(path, addresses);
        path
    }

    /// Where packets of a path go.
    pub(super) fn addresses(&self, path: PathId) -> &[PathAddr] {
        self.addresses.get(&path).map_or(&[], Vec::as_slice)
    }
}
