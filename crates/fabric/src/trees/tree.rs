//! One tree of a group.

use super::Group;
use crate::{Fabric, LinkId, PointId};

/// A link of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLink {
    /// The link.
    pub link: LinkId,
    /// Where it begins: the parent.
    pub from: PointId,
    /// Where it ends: the child.
    pub to: PointId,
    /// How many links there are from the source to its end, itself included.
    pub depth: u32,
}

/// A tree whose root is the source and whose leaves are all receivers; receivers may also be inside (Datacast §I, footnote 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteinerTree {
    number: u32,
    source: PointId,
    /// By depth, then by link.
    links: Vec<TreeLink>,
    /// Indices into `links`, by where the links end.
    by_end: Vec<u32>,
}

impl SteinerTree {
    /// The part of a spanning tree that leads to the receivers (Datacast Fig. 3, Prune). `came_by` gives the link by which
    /// the spanning tree reaches a point, of every point but the source that is on the path to a receiver.
    pub(super) fn pruned(
        fabric: &Fabric,
        number: u32,
        group: &Group,
        came_by: impl Fn(PointId) -> LinkId,
    ) -> SteinerTree {
        const UNSEEN: u32 = u32::MAX;
        let mut depths = vec![UNSEEN; fabric.point_count()];
        depths[group.root().index()] = 0;
        let (mut links, mut path): (Vec<TreeLink>, Vec<TreeLink>) = (Vec::new(), Vec::new());
        for receiver in group.leaves() {
            let mut at = receiver;
            while depths[at.index()] == UNSEEN {
                assert!(path.len() < fabric.point_count(), "a tree has no path that comes back to itself");
                let link = came_by(at);
                let from = fabric.link(link).expect("a tree's links are links of its fabric").from;
                path.push(TreeLink { link, from, to: at, depth: 0 });
                at = from;
            }
            let mut depth = depths[at.index()];
            while let Some(mut link) = path.pop() {
                depth += 1;
                depths[link.to.index()] = depth;
                link.depth = depth;
                links.push(link);
            }
        }
        links.sort_unstable_by_key(|it| (it.depth, it.link));
        let mut by_end: Vec<u32> = (0..links.len() as u32).collect();
        by_end.sort_unstable_by_key(|at| links[*at as usize].to);
        SteinerTree { number, source: group.root(), links, by_end }
    }

    /// Number of the tree among those of its group; it keeps it when it is repaired.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The root.
    pub fn source(&self) -> PointId {
        self.source
    }

    /// All links: by depth, so that a link stands behind the one that leads to it, then by id.
    pub fn links(&self) -> &[TreeLink] {
        &self.links
    }

    /// The most links from the source to a receiver; from server to switch is one (Datacast §VI-A3).
    pub fn depth(&self) -> u32 {
        self.links.last().map_or(0, |it| it.depth)
    }

    /// The link by which a point is reached; none for the source and for points outside the tree.
    pub fn came_by(&self, point: PointId) -> Option<&TreeLink> {
        let found = self.by_end.binary_search_by_key(&point, |at| self.links[*at as usize].to);
        found.ok().map(|at| &self.links[self.by_end[at] as usize])
    }

    /// The links from the source to a point, in that order; empty for the source itself, none outside the tree.
    pub fn path_to(&self, point: PointId) -> Option<Vec<TreeLink>> {
        let mut path = Vec::new();
        let mut at = point;
        while at != self.source {
            let link = *self.came_by(at)?;
            path.push(link);
            at = link.from;
        }
        path.reverse();
        Some(path)
    }

    /// The points from which more than one link goes on, ascending: where Datacast caches (§V-A).
    pub fn branching_nodes(&self) -> Vec<PointId> {
        let mut from: Vec<PointId> = self.links.iter().map(|it| it.from).collect();
        from.sort_unstable();
        let mut branching: Vec<PointId> =
            from.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        branching.dedup();
        branching
    }
}

/// The most of these trees that have one link in common: 1 if they are disjoint, 0 if there are none.
pub fn link_stress(trees: &[SteinerTree]) -> usize {
    let mut links: Vec<LinkId> = trees.iter().flat_map(|tree| &tree.links).map(|it| it.link).collect();
    links.sort_unstable();
    links.chunk_by(|a, b| a == b).map(<[LinkId]>::len).max().unwrap_or(0)
}
