//! The agents of other hosts: their names, addresses and keys. Nobody else is served.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use headwater_units::NodeId;

use crate::fields::Name;

/// The agent of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its key's hash.
    pub node: NodeId,
    /// Where it listens.
    pub address: SocketAddr,
}

/// All that are known, by the names of their hosts. Clones are the same list, which may change while an agent runs.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    by_name: Arc<RwLock<BTreeMap<Name, Peer>>>,
}

impl Peers {
    /// From now on exactly these are known.
    pub fn set(&self, peers: impl IntoIterator<Item = (Name, Peer)>) {
        *self.by_name.write().unwrap_or_else(PoisonError::into_inner) = peers.into_iter().collect();
    }

    /// The agent of this host.
    pub fn find(&self, host: &Name) -> Option<Peer> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(host).copied()
    }

    /// The name of the host whose agent has this key.
    pub fn name_of(&self, node: NodeId) -> Option<Name> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.iter().find(|(_, peer)| peer.node == node).map(|(name, _)| name.clone())
    }

    /// The address of the agent that has this key.
    pub(crate) fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.values().find(|peer| peer.node == node).map(|peer| peer.address)
    }
}
