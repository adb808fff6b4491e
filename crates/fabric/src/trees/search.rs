//! Breadth-first search for a tree among the links that are up and free (Datacast Fig. 3, RepairSteinerTree).

use super::{Group, SteinerTree};
use crate::{LinkId, PointId, Topology};

/// No link: where the search has not been.
const NONE: LinkId = LinkId(u32::MAX);

/// The free links of a network, and one group.
pub(super) struct Search<'a> {
    topology: &'a Topology,
    group: &'a Group,
    /// By link: up, and of no tree.
    free: Vec<bool>,
    /// By point: a receiver.
    wanted: Vec<bool>,
    /// By point: the link by which it was first reached.
    came_by: Vec<LinkId>,
    queue: Vec<PointId>,
}

impl<'a> Search<'a> {
    pub(super) fn new(topology: &'a Topology, group: &'a Group) -> Self {
        let fabric = topology.fabric();
        let free = (0..fabric.link_count() as u32).map(|link| !topology.is_down(LinkId(link))).collect();
        let mut wanted = vec![false; fabric.point_count()];
        group.leaves().for_each(|point| wanted[point.index()] = true);
        Search { topology, group, free, wanted, came_by: Vec::new(), queue: Vec::new() }
    }

    /// The links of a tree are no longer free.
    pub(super) fn take(&mut self, tree: &SteinerTree) {
        tree.links().iter().for_each(|it| self.free[it.link.index()] = false);
    }

    /// The links of a tree are free again, as far as they are up.
    pub(super) fn release(&mut self, tree: &SteinerTree) {
        for it in tree.links() {
            self.free[it.link.index()] = !self.topology.is_down(it.link);
        }
    }

    /// A tree of free links to all receivers; none if one cannot be reached.
    ///
    /// Each receiver is on a shortest path among the free links behind the source's first one that leads to all, or, if none
    /// does, behind all of them. Of its own links the source has no more than trees: what one tree leaves there another
    /// may need, while further on there is a choice.
    pub(super) fn tree(&mut self, number: u32) -> Option<SteinerTree> {
        let fabric = self.topology.fabric();
        let first: Vec<LinkId> = fabric
            .leaving(self.group.root())
            .iter()
            .filter(|link| self.free[link.index()])
            .copied()
            .collect();
        let one_by_one = first.chunks(1).filter(|_| first.len() > 1);
        let found = one_by_one.chain([&first[..]]).any(|first| self.spread(first) == 0);
        let came_by = |point: PointId| self.came_by[point.index()];
        found.then(|| SteinerTree::pruned(fabric, number, self.group, came_by))
    }

    /// By point, whether free links lead there from the source.
    pub(super) fn reached(mut self) -> Vec<bool> {
        let root = self.group.root();
        self.spread(self.topology.fabric().leaving(root));
        let mut reached: Vec<bool> = self.came_by.iter().map(|link| *link != NONE).collect();
        reached[root.index()] = true;
        reached
    }

    /// Searches from the source over these of its links, until all receivers are found; how many are not.
    fn spread(&mut self, first: &[LinkId]) -> usize {
        let fabric = self.topology.fabric();
        let root = self.group.root();
        let mut missing = self.group.receivers.len();
        self.came_by.clear();
        self.came_by.resize(fabric.point_count(), NONE);
        self.queue.clear();
        self.queue.push(root);
        let mut next = 0;
        while let Some(&from) = self.queue.get(next) {
            next += 1;
            if from != root && !self.topology.forwards(from) {
                continue;
            }
            for &link in if from == root { first } else { fabric.leaving(from) } {
                if !self.free[link.index()] {
                    continue;
                }
                let to = fabric.link(link).expect("what leaves a point is a link").to;
                if to == root || self.came_by[to.index()] != NONE {
                    continue;
                }
                self.came_by[to.index()] = link;
                if self.wanted[to.index()] {
                    missing -= 1;
                    if missing == 0 {
                        return 0;
                    }
                }
                self.queue.push(to);
            }
        }
        missing
    }
}
