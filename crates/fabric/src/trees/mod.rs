//! Trees from one source to all receivers of a group that share no link (Datacast §IV-A).
//!
//! "Disjoint" is meant in directed links: the two directions of a cable are two links, and each belongs to one tree at the
//! most. (Undirected, BCube(8,3) could not have the four trees that Datacast §VI-C counts.) [`disjoint`] is the algorithm of
//! Datacast Fig. 3:
//!
//! 1. spanning trees: by the digits of the hosts' numbers where the network is a BCube or a torus,
//!    by breadth-first search elsewhere;
//! 2. each cut back to the links between the source and the receivers: a [`SteinerTree`];
//! 3. a tree with a link that is down is released, and a new one is searched breadth-first among the links that are up and
//!    that no other tree has; if there is none, the tree is given up. [`repair`] is this part alone, for trees in use.
//!
//! Here a search leaves the source by one link if it can. The paper does not say; with plain searches one tree takes links at
//! the source that another needs, and 1.4 % of the possible trees are lost instead of less than 0.1 %.
//!
//! So there is always one tree at least if the source reaches every receiver, and at most as many as [`bound`] says. One
//! search more is tried at the end while there are fewer: links of trees that were given up may serve.
//!
//! [`rates`] says how fast each of them can be. Finds neither the cheapest trees (that is NP-hard) nor always the most, and looks at
//! neither rates nor loads when it does; who caches, sends or asks is not its business.

mod construction;
mod hops;
mod room;
mod search;
mod signalling;
mod tree;

use crate::{FabricError, HostId, LinkId, PointId, Topology};

use construction::Construction;
pub use hops::{Hop, Switches, hops};
pub use room::{PacketSizes, rates};
use search::Search;
pub use signalling::{Telling, signalling};
pub use tree::{SteinerTree, TreeLink, link_stress};

/// A source and the hosts that shall all have what it sends (Datacast D).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    source: (HostId, PointId),
    /// Ascending, each once.
    receivers: Vec<(HostId, PointId)>,
}

impl Group {
    /// Receivers in any order; one that is named twice counts once.
    ///
    /// # Errors
    /// [`FabricError::UnknownHost`], [`FabricError::ReceivesItself`], [`FabricError::NoReceivers`].
    pub fn new(topology: &Topology, source: HostId, receivers: &[HostId]) -> Result<Self, FabricError> {
        let hosts = topology.hosts().len();
        let place = |host: HostId| {
            let unknown = FabricError::UnknownHost { host, hosts };
            topology.point_of(host).map(|point| (host, point)).ok_or(unknown)
        };
        let at = place(source)?;
        if receivers.contains(&source) {
            return Err(FabricError::ReceivesItself { host: source });
        }
        let mut receivers = receivers.iter().map(|host| place(*host)).collect::<Result<Vec<_>, _>>()?;
        receivers.sort_unstable();
        receivers.dedup();
        if receivers.is_empty() {
            return Err(FabricError::NoReceivers { host: source });
        }
        Ok(Group { source: at, receivers })
    }

    /// The host that sends.
    pub fn source(&self) -> HostId {
        self.source.0
    }

    /// The hosts that receive, ascending.
    pub fn receivers(&self) -> impl ExactSizeIterator<Item = HostId> + '_ {
        self.receivers.iter().map(|(host, _)| *host)
    }

    fn root(&self) -> PointId {
        self.source.1
    }

    fn leaves(&self) -> impl Iterator<Item = PointId> + '_ {
        self.receivers.iter().map(|(_, point)| *point)
    }
}

/// State of trees after links failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// The trees that there are now, by number.
    pub trees: Vec<SteinerTree>,
    /// Numbers of trees that go another way than before, or did not exist.
    pub rebuilt: Vec<u32>,
    /// Numbers of trees that are no more.
    pub given_up: Vec<u32>,
}

/// The most trees that can be disjoint (Datacast §VI-A2): links that leave the source, or enter a receiver, whichever are
/// fewest; those that are down do not count.
pub fn bound(topology: &Topology, group: &Group) -> usize {
    let up = |links: &[LinkId]| links.iter().filter(|link| !topology.is_down(**link)).count();
    let fabric = topology.fabric();
    let into = group.leaves().map(|point| up(fabric.entering(point)));
    into.chain([up(fabric.leaving(group.root()))]).min().unwrap_or(0)
}

/// The disjoint trees of a group over links that are up, each from the source to every receiver; none if some receiver
/// cannot be reached. Numbered from zero, and in that order. The same ones every time.
pub fn disjoint(topology: &Topology, group: &Group) -> Vec<SteinerTree> {
    let construction = Construction::of(topology, group.root());
    let pruned = (0..construction.trees()).map(|number| {
        let came_by = |point| construction.came_by(topology, number, point);
        SteinerTree::pruned(topology.fabric(), number, group, came_by)
    });
    repair(topology, group, pruned.collect()).trees
}

/// Releases the trees with links that are down and searches new ones. `trees` are those of [`disjoint`] or of an earlier
/// repair, for the same group. Trees without broken links stay as they are.
pub fn repair(topology: &Topology, group: &Group, trees: Vec<SteinerTree>) -> Repair {
    let is_broken = |tree: &SteinerTree| tree.links().iter().any(|it| topology.is_down(it.link));
    let (broken, mut whole): (Vec<_>, Vec<_>) = trees.into_iter().partition(is_broken);
    let mut search = Search::new(topology, group);
    whole.iter().chain(&broken).for_each(|tree| search.take(tree));
    let (mut rebuilt, mut given_up) = (Vec::new(), Vec::new());
    for tree in broken {
        search.release(&tree);
        match search.tree(tree.number()) {
            Some(tree) => {
                search.take(&tree);
                rebuilt.push(tree.number());
                whole.push(tree);
            }
            None => given_up.push(tree.number()),
        }
    }
    let most = bound(topology, group);
    while whole.len() < most {
        let number = (0..).find(|number| whole.iter().all(|tree| tree.number() != *number));
        let Some(tree) = search.tree(number.expect("there are more numbers than trees")) else { break };
        search.take(&tree);
        given_up.retain(|number| *number != tree.number());
        rebuilt.push(tree.number());
        whole.push(tree);
    }
    whole.sort_unstable_by_key(SteinerTree::number);
    rebuilt.sort_unstable();
    Repair { trees: whole, rebuilt, given_up }
}

/// The receivers that the source cannot reach over links that are up, ascending.
pub fn unreachable(topology: &Topology, group: &Group) -> Vec<HostId> {
    let reached = Search::new(topology, group).reached();
    group.receivers.iter().filter(|(_, point)| !reached[point.index()]).map(|(host, _)| *host).collect()
}
