//! The repair of trees whose nodes have fallen silent: trees are rerouted around cut cables (Datacast §III).

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_fabric::HostId;
use headwater_units::{Duration, FlowId, NodeId, Time};
use headwater_wire::{MAX_NEWS, TreeRepair};

use super::cuts::cut_cables;
use super::{InstalledTrees, Order};
use crate::catalog::Catalog;
use crate::network::Network;
use crate::tasks::Tasks;
use crate::turn::Turn;

/// Rerouted trees, of which nobody was told yet.
pub(crate) struct Repaired {
    /// Receivers that no path leads to.
    pub(crate) lost: Vec<NodeId>,
    standing: BTreeMap<HostId, NodeId>,
}

impl InstalledTrees {
    /// A node does not hear of neighbours on a tree.
    pub(crate) fn silent(
        &mut self,
        now: Time,
        node: NodeId,
        tree: FlowId,
        neighbours: &[SocketAddr],
        since: Duration,
    ) {
        let Some(Order { order, .. }) = self.orders.get(&(node, tree)) else { return };
        // Whatever a node says, its neighbours are few.
        let is_its = |at: &&SocketAddr| {
            order.parent == Some(**at) || order.branches.iter().flatten().any(|its| its == *at)
        };
        self.silent.extend(neighbours.iter().filter(is_its).map(|at| (node, tree, *at)));
        // A report about a node that is no neighbour any more was made before an order came.
        if !self.silent.is_empty() {
            self.reported.get_or_insert((now, since));
        }
    }

    /// When what was reported is to be repaired: the other neighbours of what has failed notice within a heartbeat.
    pub(crate) fn repair_at(&self, heartbeat: Duration) -> Option<Time> {
        self.reported.map(|(at, _)| at + heartbeat)
    }

    /// Leads trees around what is cut, to the receivers that are still `open`. `None` if nothing is to be done.
    pub(crate) fn repair(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        network: &mut Network,
        is_open: impl Fn(NodeId) -> bool,
    ) -> Option<Repaired> {
        let mut standing = super::standing(network, catalog);
        let (reported, silence) = self.reported.take()?;
        // A node whose connection to the controller has gone may stand on a tree all the same.
        for (node, _) in self.orders.keys() {
            let host = catalog.node(*node).and_then(|it| network.host_of(&it.info));
            host.map(|host| standing.insert(host, *node));
        }
        let cut = cut_cables(self, &standing, |route| network.hops(route), |link| network.cable(link));
        self.silent.clear();
        let open = self.receivers.iter().filter(|(node, _)| is_open(**node));
        let receivers: BTreeMap<NodeId, HostId> = open.map(|(node, host)| (*node, *host)).collect();
        let source = self.cargo.source;
        let root = standing.iter().find(|(_, node)| **node == source).map(|(host, _)| *host);
        let root = root.filter(|_| !receivers.is_empty())?;
        cut.iter().for_each(|cable| network.cut(turn.now, *cable, turn.config.cut_for));
        let hosts: Vec<HostId> = receivers.values().copied().collect();
        let is_there = |host| standing.contains_key(&host);
        let (routes, lost) = network.trees(turn.now, root, &hosts, self.routes(), is_there);
        let (mut rebuilt, mut shared) = (0, 0);
        for (place, tree) in self.trees.iter_mut().enumerate() {
            let own = routes.iter().find(|route| route.number() == tree.route.number());
            let Some(route) = own.or_else(|| routes.get(place % routes.len().max(1))) else { continue };
            shared += u16::from(own.is_none());
            rebuilt += u16::from(tree.route.links() != route.links());
            tree.route = route.clone();
        }
        self.bound(network.rates(&self.routes(), self.symbol_size));
        self.repairs.push_back(TreeRepair {
            after: reported.since(self.cargo.begun),
            silent: silence,
            decided: turn.now.since(reported),
            told: None,
            cut: u16::try_from(cut.len()).unwrap_or(u16::MAX),
            rebuilt,
            shared,
            signalled: 0,
            unanswered: 0,
        });
        if self.repairs.len() > MAX_NEWS {
            self.repairs.pop_front();
        }
        self.receivers.retain(|_, host| !lost.contains(host));
        turn.stats.trees_repaired += 1;
        let lost = receivers.into_iter().filter(|(_, host)| lost.contains(host)).map(|(node, _)| node);
        Some(Repaired { lost: lost.collect(), standing })
    }

    /// Tells everybody of a repair whose part has changed.
    pub(crate) fn tell_repair(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        tasks: &Tasks,
        network: &mut Network,
        repaired: &Repaired,
    ) {
        self.order_pushes(turn);
        self.give_orders(turn, catalog, tasks, network, &repaired.standing);
        // Where nobody's part has changed nobody is told, and there is nothing to wait for.
        let told = self.orders.values().any(|order| !order.confirmed);
        self.told_since = told.then_some(turn.now);
    }
}
