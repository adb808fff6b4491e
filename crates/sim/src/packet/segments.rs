//! Trees of Datacast in the network: the paths of their packets, and who stands where paths part (Datacast §V-A).
//!
//! ```text
//!   source ==segment== node ==segment== receiver          a segment: links in order, its twin the same links back
//!                       ||
//!                       ++==segment== node ==== ...       a node: where a tree branches, or a receiver sends on
//! ```
//! Source routing: a frame names the segment that it is on, and every device on the path sends it on by the next of the segment's
//! links, hosts that forward too. At its end is a [`TreeNode`], which decides where it goes on, or a machine. A machine whose host
//! has a node is joined to it by a segment without links.
//!
//! A path may stand for a segment; the twin of a path is the same number with its last bit inverted. Not here: the choice of the
//! trees, and their repair: a tree is fixed for the whole run.

use std::collections::BTreeMap;

use headwater_fabric::trees::{SteinerTree, TreeLink};
use headwater_fabric::{LinkId, PointId, Topology};
use headwater_machine::Packet;
use headwater_switch::{StoreConfig, TreeNode, TreeNodeStats};
use headwater_units::PathId;

use super::groups::GROUP;

/// Highest bit of the numbers of segments; endpoints are below, groups above.
pub(super) const SEGMENT: u32 = 1 << 30;

/// Whether a frame with this destination is on a segment.
#[inline]
pub(super) fn is_segment(to: u32) -> bool {
    (SEGMENT..GROUP).contains(&to)
}

/// Where a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Node(u32),
    Endpoint(u32),
}

/// Next step of a frame that has crossed a link of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It crosses this link next.
    On(u32),
    /// It has arrived.
    There,
    /// It is on no segment that has this link.
    Astray,
}

#[derive(Debug)]
struct Segment {
    links: Box<[u32]>,
    end: End,
    tree: u32,
}

/// All segments of a run.
#[derive(Debug, Default)]
pub(super) struct Segments {
    segments: Vec<Segment>,
    /// By tree: symbols that have crossed a link of it, each link counting once.
    carried: Vec<u64>,
}

impl Segments {
    #[inline]
    fn of(&self, path: u32) -> Option<&Segment> {
        self.segments.get((path ^ SEGMENT) as usize)
    }

    /// A frame has crossed a link.
    pub(super) fn step(&mut self, path: u32, link: u32, is_symbol: bool) -> Step {
        let Some(Segment { links, tree, .. }) = self.segments.get((path ^ SEGMENT) as usize) else {
            return Step::Astray;
        };
        let Some(at) = links.iter().position(|it| *it == link) else { return Step::Astray };
        self.carried[*tree as usize] += u64::from(is_symbol);
        links.get(at + 1).map_or(Step::There, |next| Step::On(*next))
    }

    /// The first link of a segment; nothing of one without links.
    pub(super) fn first(&self, path: u32) -> Option<u32> {
        self.of(path)?.links.first().copied()
    }

    /// Where a segment ends, if there is one.
    pub(super) fn end(&self, path: u32) -> Option<End> {
        Some(self.of(path)?.end)
    }

    /// Symbols that have crossed links of a tree.
    pub(super) fn carried(&self, tree: u32) -> u64 {
        self.carried[tree as usize]
    }

    /// A segment and its twin: down to `lower`, and up to `upper`. Returns the path down.
    fn add(&mut self, tree: u32, down: Box<[u32]>, up: Box<[u32]>, lower: End, upper: End) -> u32 {
        let path = SEGMENT | self.segments.len() as u32;
        assert!(is_segment(path + 1), "a run has less than 2^30 segments");
        self.segments.push(Segment { links: down, end: lower, tree });
        self.segments.push(Segment { links: up, end: upper, tree });
        path
    }
}

/// A tree that has its place in the network.
#[derive(Clone, Debug)]
pub(super) struct InstalledTree {
    /// Its number among all trees of the run.
    pub(super) number: u32,
    /// Number of its links.
    pub(super) links: u64,
    /// Path by which the source sends down.
    pub(super) source: PathId,
    /// Paths by which the receivers ask, in their order.
    pub(super) receivers: Vec<PathId>,
    /// Numbers of its nodes.
    nodes: std::ops::Range<u32>,
}

impl InstalledTree {
    /// Counters of its nodes, together.
    pub(super) fn stats(&self, nodes: &[TreeNode<Packet, u32>]) -> TreeNodeStats {
        let mut sum = TreeNodeStats::default();
        for node in &nodes[self.nodes.start as usize..self.nodes.end as usize] {
            let TreeNodeStats { strays, up, down, store } = node.stats();
            sum.strays += strays;
            sum.up += up;
            sum.down += down;
            sum.store.held += store.held;
            sum.store.waited += store.waited;
            sum.store.went_on += store.went_on;
            sum.store.kept += store.kept;
            sum.store.let_go += store.let_go;
            sum.store.too_old += store.too_old;
        }
        sum
    }
}

/// Puts trees into the network.
pub(super) struct TreeInstaller<'a> {
    pub(super) topology: &'a Topology,
    pub(super) segments: &'a mut Segments,
    pub(super) nodes: &'a mut Vec<TreeNode<Packet, u32>>,
    pub(super) store: StoreConfig,
}

/// The neighbours of a node that is being made.
struct Neighbours {
    parent: u32,
    children: Vec<u32>,
}

impl TreeInstaller<'_> {
    /// Installs a tree from the endpoint of its source to those of its receivers, each at its point. Nothing if some cable of it
    /// carries one way alone, so that nobody could ask.
    pub(super) fn install(
        &mut self,
        tree: &SteinerTree,
        source: u32,
        receivers: &[(PointId, u32)],
    ) -> Option<InstalledTree> {
        let mut below: BTreeMap<PointId, Vec<TreeLink>> = BTreeMap::new();
        tree.links().iter().for_each(|link| below.entry(link.from).or_default().push(*link));
        let endpoint_at: BTreeMap<PointId, u32> = receivers.iter().copied().collect();
        let branches = |point: PointId| {
            below.get(&point).map_or(0, Vec::len) + usize::from(endpoint_at.contains_key(&point)) > 1
        };
        let number = self.segments.carried.len() as u32;
        self.segments.carried.push(0);
        let first_node = self.nodes.len() as u32;
        let mut neighbours: Vec<Neighbours> = Vec::new();
        let mut asks: BTreeMap<PointId, u32> = BTreeMap::new();
        // A node, or the source: where it is, and what a segment up to it ends at.
        let mut open: Vec<(PointId, End)> = Vec::new();
        let root = tree.source();
        let mut source_path = None;
        if branches(root) {
            let node = End::Node(first_node);
            let path = self.segments.add(number, [].into(), [].into(), node, End::Endpoint(source));
            neighbours.push(Neighbours { parent: path ^ 1, children: Vec::new() });
            source_path = Some(path);
            open.push((root, node));
        } else {
            open.push((root, End::Endpoint(source)));
        }
        while let Some((point, upper)) = open.pop() {
            for link in below.get(&point).into_iter().flatten() {
                let (mut down, mut at) = (vec![link.link], link.to);
                while let Some([only]) = below.get(&at).map(Vec::as_slice).filter(|_| !branches(at)) {
                    down.push(only.link);
                    at = only.to;
                }
                let up = self.backwards(&down)?;
                let down = down.iter().map(|link| link.0).collect();
                let node = End::Node(first_node + neighbours.len() as u32);
                let leaf = endpoint_at.get(&at).copied();
                let lower = if branches(at) { node } else { End::Endpoint(leaf?) };
                let path = self.segments.add(number, down, up, lower, upper);
                match upper {
                    End::Node(above) => neighbours[(above - first_node) as usize].children.push(path),
                    End::Endpoint(_) => source_path = Some(path),
                }
                if lower != node {
                    asks.insert(at, path ^ 1);
                    continue;
                }
                let mut children = Vec::new();
                if let Some(endpoint) = leaf {
                    let own = self.segments.add(number, [].into(), [].into(), End::Endpoint(endpoint), node);
                    asks.insert(at, own ^ 1);
                    children.push(own);
                }
                neighbours.push(Neighbours { parent: path ^ 1, children });
                open.push((at, node));
            }
        }
        let made = neighbours
            .into_iter()
            .map(|Neighbours { parent, children }| TreeNode::new(self.store, parent, children));
        self.nodes.extend(made);
        let ask = |(point, _): &(PointId, u32)| asks.get(point).map(|path| PathId(*path));
        Some(InstalledTree {
            number,
            links: tree.links().len() as u64,
            source: PathId(source_path?),
            receivers: receivers.iter().map(ask).collect::<Option<_>>()?,
            nodes: first_node..self.nodes.len() as u32,
        })
    }

    /// The same cables the other way, from the end.
    fn backwards(&self, links: &[LinkId]) -> Option<Box<[u32]>> {
        let back = |link: &LinkId| Some(self.topology.fabric().link(*link)?.back?.0);
        links.iter().rev().map(back).collect()
    }
}

#[cfg(test)]
mod tests {
    use headwater_fabric::trees::{self, Group};
    use headwater_fabric::{FabricSpec, HostId};
    use headwater_units::Bytes;

    use super::*;

    /// Datacast Fig. 6a: BCube(4,1), from 00 to 02, 10, 21, 23, 31 and 33.
    fn figure_6a() -> (Topology, Vec<SteinerTree>, Vec<(PointId, u32)>) {
        let spec = "kind = 'bcube'\nn = 4\nk = 1\nrate = '1 Gbit/s'\ndelay = '5 us'";
        let topology = toml::from_str::<FabricSpec>(spec).unwrap().build(Bytes::new(1500)).unwrap();
        let hosts = [0o2, 4, 9, 11, 13, 15].map(HostId);
        let group = Group::new(&topology, HostId(0), &hosts).unwrap();
        let trees = trees::disjoint(&topology, &group);
        let receivers =
            (100..).zip(hosts).map(|(endpoint, host)| (topology.point_of(host).unwrap(), endpoint));
        let receivers = receivers.collect();
        (topology, trees, receivers)
    }

    #[test]
    fn every_receiver_reaches_the_source_through_the_nodes_and_back() {
        let (topology, trees, receivers) = figure_6a();
        assert_eq!(trees.len(), 2);
        let (mut segments, mut nodes) = (Segments::default(), Vec::new());
        let mut installer = TreeInstaller {
            topology: &topology,
            segments: &mut segments,
            nodes: &mut nodes,
            store: StoreConfig::default(),
        };
        let installed: Vec<InstalledTree> =
            trees.iter().map(|tree| installer.install(tree, 7, &receivers).unwrap()).collect();
        for (tree, installed) in trees.iter().zip(&installed) {
            assert_eq!(installed.links, tree.links().len() as u64);
            for ((point, endpoint), path) in receivers.iter().zip(&installed.receivers) {
                let (mut up, mut links) = (path.0, Vec::new());
                assert_eq!(segments.end(up ^ 1), Some(End::Endpoint(*endpoint)));
                loop {
                    let here = segments.of(up ^ 1).unwrap().links.iter().rev();
                    links.extend(here.copied());
                    match segments.end(up).unwrap() {
                        End::Endpoint(source) => {
                            assert_eq!(source, 7);
                            break;
                        }
                        End::Node(node) => {
                            let node = &nodes[node as usize];
                            assert!(node.branches() && node.children().contains(&(up ^ 1)));
                            up = *node.parent();
                        }
                    }
                }
                let path = tree.path_to(*point).unwrap();
                let path: Vec<u32> = path.iter().rev().map(|it| it.link.0).collect();
                assert_eq!(links, path, "to {point:?}");
            }
        }
        // Where the first tree branches: the switch of 00 to 03, two of level 1; the second one at 00's other switch too.
        let nodes_of = |at: usize| installed[at].nodes.len();
        assert_eq!(nodes_of(0), trees[0].branching_nodes().len());
        assert!(nodes_of(1) >= trees[1].branching_nodes().len(), "receivers that send on are nodes too");
    }

    #[test]
    fn a_frame_goes_from_link_to_link_and_never_off_its_segment() {
        let mut segments = Segments { carried: vec![0], ..Segments::default() };
        let path = segments.add(0, [3, 5].into(), [4, 2].into(), End::Endpoint(1), End::Endpoint(0));
        assert_eq!((segments.first(path), segments.first(path ^ 1)), (Some(3), Some(4)));
        assert_eq!(segments.step(path, 3, true), Step::On(5));
        assert_eq!(segments.step(path, 5, false), Step::There);
        assert_eq!(segments.step(path ^ 1, 4, true), Step::On(2));
        assert_eq!(segments.step(path, 4, true), Step::Astray);
        assert_eq!(segments.step(path + 2, 3, true), Step::Astray);
        assert_eq!(segments.carried(0), 2);
    }
}
