//! Which cables are cut, deduced from what nodes report of their neighbours.

use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::trees::{Hop, SteinerTree};
use headwater_fabric::{HostId, LinkId};
use headwater_units::{FlowId, NodeId};

use super::InstalledTrees;
use crate::network;

/// The fewest cables that explain which hops are silent; see the description of [`tree_installation`](super).
pub(super) fn cut_cables(
    installed: &InstalledTrees,
    standing: &BTreeMap<HostId, NodeId>,
    hops: impl Fn(&SteinerTree) -> Vec<Hop>,
    cable: impl Fn(LinkId) -> LinkId,
) -> BTreeSet<LinkId> {
    let (mut silent, mut heard) = (Vec::new(), BTreeSet::new());
    for tree in &installed.trees {
        for hop in hops(&tree.route) {
            let (Some(above), Some(below)) = (standing.get(&hop.from), standing.get(&hop.to)) else {
                continue;
            };
            let cables: BTreeSet<LinkId> = hop.links.iter().map(|link| cable(*link)).collect();
            match installed.is_silent(tree.secret.flow, *above, *below) {
                true => silent.push(cables),
                false => heard.extend(cables),
            }
        }
    }
    network::fewest(silent, &heard)
}

impl InstalledTrees {
    /// Whether one end of a hop has reported the other.
    fn is_silent(&self, tree: FlowId, above: NodeId, below: NodeId) -> bool {
        let order = |node: NodeId| self.orders.get(&(node, tree)).map(|it| &it.order);
        let parent = order(below).and_then(|order| order.parent);
        if parent.is_some_and(|at| self.silent.contains(&(below, tree, at))) {
            return true;
        }
        let children = order(above).into_iter().flat_map(|order| order.branches.iter().flatten());
        let mut reported = children.filter(|at| self.silent.contains(&(above, tree, **at)));
        reported.any(|at| self.addresses.get(&(below, tree)) == Some(at))
    }
}
