//! What the source of a cast's trees is told: a flow for each, and how many symbols its links carry.
//!
//! Trees cross each other's cables, and a source that knows nothing of that fills its links with symbols until the interests of the
//! other trees have no room: the receivers behind such a link fall behind what stores remember, and all of them have what they miss
//! sent again (Datacast §V-B: what makes the source halve its rate). The controller knows the cables, and says
//! ([`trees::rates`](headwater_fabric::trees::rates)) what each tree may send. A repair that leads one another way says it anew.

use headwater_fabric::trees::SteinerTree;
use headwater_units::{BitRate, Theta};
use headwater_wire::{Delivery, FlowRole, Push, ToSource};

use super::{InstalledTree, InstalledTrees};
use crate::Controller;

impl InstalledTrees {
    /// What the links of the trees carry has become this, by place.
    pub(super) fn bound(&mut self, rates: Vec<Option<BitRate>>) {
        for (tree, most) in self.trees.iter_mut().zip(rates) {
            tree.told_most &= tree.most == most;
            tree.most = most;
        }
    }

    /// The way of each tree.
    pub(super) fn ways(&self) -> Vec<SteinerTree> {
        self.trees.iter().map(|tree| tree.way.clone()).collect()
    }
}

impl Controller {
    pub(super) fn delivery_by_trees(&self) -> Delivery {
        Delivery::Trees { credit: self.config.tree_credit.max(1) }
    }

    /// The source has a flow for each tree. It is told of those that it does not know, or of which it knows another rate.
    pub(super) fn order_pushes(&mut self, number: u64) {
        let delivery = self.delivery_by_trees();
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        let installed = cast.installed.as_mut().expect("it has trees");
        let (source, of) = (cast.source, installed.trees.len() as u8);
        let (group, task) = (installed.trees[0].secret.flow, installed.task);
        let untold = |(_, tree): &(u8, &mut InstalledTree)| !tree.told_most;
        let push = |(index, tree): (u8, &mut InstalledTree)| {
            tree.told_most = true;
            Push {
                task,
                flow: tree.secret.flow,
                object: cast.object,
                bytes: cast.bytes,
                symbol_size: cast.symbol_size,
                key: tree.secret.key,
                theta: Theta::ONE,
                class: cast.class,
                receiver: cast.source,
                delivery,
                index,
                of,
                at: Vec::new(),
                start: None,
                role: FlowRole::Tree { group, most: tree.most },
            }
        };
        let pushes: Vec<Push> = (0..of).zip(&mut installed.trees).filter(untold).map(push).collect();
        pushes.into_iter().for_each(|push| self.send_to(source, ToSource::Push(push)));
    }
}
