//! Orders to the source of a cast's trees: a flow for each tree, and the rate that its links carry.
//!
//! Trees cross each other's cables. A source that does not know this fills its links with symbols until the interests of the
//! other trees have no room. The receivers behind such a link then fall behind what stores remember, and have it sent again, which
//! makes the source halve its rate (Datacast §V-B). The controller knows the cables, and limits the rate of each tree
//! ([`trees::rates`](headwater_fabric::trees::rates)). A repair that reroutes a tree sets its limit anew.

use headwater_fabric::trees::SteinerTree;
use headwater_units::{BitRate, Theta};
use headwater_wire::{FlowRole, Push, ToSource};

use super::{Cargo, InstalledTree, InstalledTrees};
use crate::turn::Turn;

impl InstalledTrees {
    /// Sets the new rates of the trees' links, by place.
    pub(super) fn bound(&mut self, rates: Vec<Option<BitRate>>) {
        for (tree, most) in self.trees.iter_mut().zip(rates) {
            tree.told_most &= tree.most == most;
            tree.most = most;
        }
    }

    /// The route of each tree.
    pub(super) fn routes(&self) -> Vec<SteinerTree> {
        self.trees.iter().map(|tree| tree.route.clone()).collect()
    }

    /// The source has a flow for each tree. It is told of those that it does not know, or of which it knows another rate.
    pub(super) fn order_pushes(&mut self, turn: &mut Turn<'_>) {
        let Cargo { object, bytes, class, source, .. } = self.cargo;
        let (of, group) = (self.trees.len() as u8, self.trees.first().map(|tree| tree.secret.flow));
        let Some(group) = group else { return };
        let untold = |(_, tree): &(u8, &mut InstalledTree)| !tree.told_most;
        for (index, tree) in (0..of).zip(&mut self.trees).filter(untold) {
            tree.told_most = true;
            let push = Push {
                task: self.task,
                flow: tree.secret.flow,
                object,
                bytes,
                symbol_size: self.symbol_size,
                key: tree.secret.key,
                theta: Theta::ONE,
                class,
                receiver: source,
                delivery: turn.config.delivery_by_trees(),
                index,
                of,
                at: Vec::new(),
                start: None,
                role: FlowRole::Tree { group, most: tree.most },
            };
            turn.tell(source, ToSource::Push(push));
        }
    }
}
