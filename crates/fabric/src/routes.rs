//! Which links lead to a destination: all that lie on a shortest path (ECMP), or one of them (D-mod-k).
//!
//! One search per destination, backwards from it, so that the answer for every point comes at once. Shortest means fewest
//! links, or least propagation delay and among these fewest links; capacity and load do not count. Links that are down
//! are left out, and hosts are passed only where [hosts forward](Topology::forwards). Sets are ascending by link. Routes are
//! a snapshot: after a fault they are made anew.
//!
//! D-mod-k (deterministic routing by destination modulo k, as fat-trees are commonly measured with): the destination's
//! slot in its rack chooses the aggregation switch, its rack's place in the pod chooses the core.

use std::collections::BTreeMap;

use headwater_units::{Bytes, Duration};

use crate::shortest_paths::{Distances, Metric};
use crate::{FabricError, HostId, LinkId, Path, PointId, Topology};

/// The most (point, destination) pairs of one [`Routes`]: half a gigabyte of table.
const MAX_ENTRIES: u128 = 1 << 27;

/// The paths to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Towards {
    to: HostId,
    /// By point, and one more: where its links begin in `links`.
    starts: Vec<u32>,
    links: Vec<LinkId>,
    /// By point.
    hops: Vec<Option<u32>>,
}

impl Towards {
    /// Searches the fabric once, backwards from `to`.
    ///
    /// # Errors
    /// [`FabricError::UnknownHost`].
    pub fn new(topology: &Topology, to: HostId, metric: Metric) -> Result<Self, FabricError> {
        let hosts = topology.hosts().len();
        if to.index() >= hosts {
            return Err(FabricError::UnknownHost { host: to, hosts });
        }
        let mut distances = Distances::new(topology);
        distances.measure(topology, to, metric);
        let points = topology.fabric().point_count();
        let (mut starts, mut links) = (Vec::with_capacity(points + 1), Vec::new());
        for at in (0..).map(PointId).take(points) {
            starts.push(links.len() as u32);
            distances.shortest(topology, at, &mut links);
        }
        starts.push(links.len() as u32);
        let hops = (0..).map(PointId).take(points).map(|at| distances.hops(at)).collect();
        Ok(Towards { to, starts, links, hops })
    }

    /// The destination.
    pub fn to(&self) -> HostId {
        self.to
    }

    /// The links to choose from at a point, ascending; none at the destination, or if there is no path.
    pub fn links(&self, at: PointId) -> &[LinkId] {
        match self.starts.get(at.index()..at.index() + 2) {
            Some(range) => &self.links[range[0] as usize..range[1] as usize],
            None => &[],
        }
    }

    /// How many links a path from there has.
    pub fn hops(&self, from: PointId) -> Option<u32> {
        self.hops.get(from.index()).copied().flatten()
    }

    /// Up to `limit` of the equal paths from a point, ascending by their links.
    pub fn paths(&self, topology: &Topology, from: PointId, limit: usize) -> Vec<Path> {
        match self.hops(from) {
            Some(_) => enumerate(topology, from, limit, |at| self.links(at)),
            None => Vec::new(),
        }
    }
}

/// The paths from every point to every host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    points: usize,
    hosts: usize,
    /// By destination, then by point: which of `sets`.
    table: Vec<u32>,
    /// Where a set begins in `links`, and how long it is; the first one is empty.
    sets: Vec<(u32, u32)>,
    links: Vec<LinkId>,
}

impl Routes {
    /// All equal paths to one destination; for networks whose whole table nobody needs.
    ///
    /// # Errors
    /// [`FabricError::UnknownHost`].
    pub fn towards(topology: &Topology, to: HostId, metric: Metric) -> Result<Towards, FabricError> {
        Towards::new(topology, to, metric)
    }

    /// No path to anybody: for networks in which all packets carry their own route.
    pub fn none(topology: &Topology) -> Self {
        Routes {
            points: topology.fabric().point_count(),
            hosts: topology.hosts().len(),
            table: Vec::new(),
            sets: vec![(0, 0)],
            links: Vec::new(),
        }
    }

    /// All equal paths to all destinations.
    ///
    /// # Errors
    /// [`FabricError::TooManyRoutes`] if points times hosts exceed what is kept.
    pub fn all(topology: &Topology, metric: Metric) -> Result<Self, FabricError> {
        Self::collect(topology, metric, |_, _, equal| 0..equal.len())
    }

    /// One path to every destination of a fat-tree: of the equal paths up a rack switch takes the one with the number of
    /// the destination's slot in its rack, an aggregation switch the one with the number of the destination's rack in its
    /// pod, both modulo the number of paths (k/2 when nothing is down).
    ///
    /// # Errors
    /// [`FabricError::NotFatTree`], [`FabricError::TooManyRoutes`].
    pub fn d_mod_k(topology: &Topology) -> Result<Self, FabricError> {
        let shape = topology.fat_tree().ok_or(FabricError::NotFatTree)?;
        Self::collect(topology, Metric::Hops, |at, to, equal| {
            let wanted = match topology.place(at).map_or(0, |place| place.tier) {
                1 => to.0 % shape.hosts_per_rack,
                2 => to.0 / shape.hosts_per_rack % shape.half,
                _ => 0,
            };
            let chosen = wanted as usize % equal.len();
            chosen..chosen + 1
        })
    }

    /// The links to choose from at a point, ascending; none at the destination, if there is no path, or if either does
    /// not exist.
    pub fn next(&self, at: PointId, to: HostId) -> &[LinkId] {
        if at.index() >= self.points {
            return &[];
        }
        let Some(&set) = self.table.get(to.index() * self.points + at.index()) else { return &[] };
        let (start, length) = self.sets[set as usize];
        &self.links[start as usize..(start + length) as usize]
    }

    /// The path that `choose` takes: at every point it is given the links to choose from and names one by its position,
    /// counted round and round. `None` if there is no path.
    pub fn path(
        &self,
        topology: &Topology,
        from: HostId,
        to: HostId,
        mut choose: impl FnMut(PointId, &[LinkId]) -> usize,
    ) -> Option<Path> {
        let (mut at, end) = (topology.point_of(from)?, topology.point_of(to)?);
        let mut path = Vec::new();
        while at != end {
            let equal = self.next(at, to);
            if equal.is_empty() {
                return None;
            }
            let link = equal[choose(at, equal) % equal.len()];
            path.push(link);
            at = topology.fabric().link(link)?.to;
        }
        Some(path.into_iter().collect())
    }

    /// Up to `limit` of the equal paths between two hosts, ascending by their links.
    pub fn paths(&self, topology: &Topology, from: HostId, to: HostId, limit: usize) -> Vec<Path> {
        let (Some(start), Some(_)) = (topology.point_of(from), topology.point_of(to)) else {
            return Vec::new();
        };
        if from != to && self.next(start, to).is_empty() {
            return Vec::new();
        }
        enumerate(topology, start, limit, |at| self.next(at, to))
    }

    /// Keeps of the equal paths at every point those that `keep` names; it is asked only where there are some.
    fn collect(
        topology: &Topology,
        metric: Metric,
        keep: impl Fn(PointId, HostId, &[LinkId]) -> std::ops::Range<usize>,
    ) -> Result<Self, FabricError> {
        let (points, hosts) = (topology.fabric().point_count(), topology.hosts().len());
        let entries = points as u128 * hosts as u128;
        if entries > MAX_ENTRIES {
            return Err(FabricError::TooManyRoutes { points, hosts, entries, most: MAX_ENTRIES });
        }
        let mut routes = Routes {
            points,
            hosts,
            table: Vec::with_capacity(entries as usize),
            sets: vec![(0, 0)],
            links: Vec::new(),
        };
        // Most sets have one link: these are found by it, without a search.
        let mut single = vec![0u32; topology.fabric().link_count()];
        let mut several: BTreeMap<Box<[LinkId]>, u32> = BTreeMap::new();
        let mut distances = Distances::new(topology);
        let mut equal = Vec::new();
        for to in (0..).map(HostId).take(hosts) {
            distances.measure(topology, to, metric);
            for at in (0..).map(PointId).take(points) {
                equal.clear();
                distances.shortest(topology, at, &mut equal);
                let kept = if equal.is_empty() { &[][..] } else { &equal[keep(at, to, &equal)] };
                let set = match kept {
                    [] => 0,
                    [link] => {
                        let known = &mut single[link.index()];
                        if *known == 0 {
                            *known = routes.add_set(kept)?;
                        }
                        *known
                    }
                    _ => match several.get(kept) {
                        Some(known) => *known,
                        None => {
                            let new = routes.add_set(kept)?;
                            several.insert(kept.into(), new);
                            new
                        }
                    },
                };
                routes.table.push(set);
            }
        }
        Ok(routes)
    }

    fn add_set(&mut self, links: &[LinkId]) -> Result<u32, FabricError> {
        // Sets are few unless no two points see the network alike; then their links are what fills memory.
        let entries = (self.links.len() + links.len()) as u128;
        if entries > MAX_ENTRIES {
            let (points, hosts) = (self.points, self.hosts);
            return Err(FabricError::TooManyRoutes { points, hosts, entries, most: MAX_ENTRIES });
        }
        let set = self.sets.len() as u32;
        self.sets.push((self.links.len() as u32, links.len() as u32));
        self.links.extend_from_slice(links);
        Ok(set)
    }
}

impl Topology {
    /// Up to `limit` paths of fewest links, ascending by their links; none if there is no path or no such host.
    pub fn paths(&self, from: HostId, to: HostId, limit: usize) -> Vec<Path> {
        let Some(start) = self.point_of(from) else { return Vec::new() };
        Towards::new(self, to, Metric::Hops)
            .map_or_else(|_| Vec::new(), |towards| towards.paths(self, start, limit))
    }

    /// How long `packet` takes one way and `ack` takes back when nobody else sends: store and forward at every point, on
    /// the first of the paths of fewest links. `None` if there is no path.
    pub fn unloaded_rtt(&self, from: HostId, to: HostId, packet: Bytes, ack: Bytes) -> Option<Duration> {
        let there = self.paths(from, to, 1).pop()?;
        let back = self.paths(to, from, 1).pop()?;
        Some(self.fabric().latency(&there, packet) + self.fabric().latency(&back, ack))
    }
}

/// Walks depth first, always the next link that was not tried. Every link leads nearer to the destination, so this ends.
fn enumerate<'a>(
    topology: &Topology,
    from: PointId,
    limit: usize,
    next: impl Fn(PointId) -> &'a [LinkId],
) -> Vec<Path> {
    let (mut paths, mut path) = (Vec::new(), Vec::new());
    // Links still to be tried at every point of the path so far.
    let mut open = vec![next(from).iter()];
    if open[0].len() == 0 {
        // Already there.
        return vec![Path::default(); limit.min(1)];
    }
    while paths.len() < limit {
        let Some(untried) = open.last_mut() else { break };
        let Some(link) = untried.next() else {
            open.pop();
            path.pop();
            continue;
        };
        let reached = topology.fabric().link(*link).expect("routes belong to this topology").to;
        path.push(*link);
        let further = next(reached);
        if further.is_empty() {
            paths.push(path.iter().copied().collect());
            path.pop();
        } else {
            open.push(further.iter());
        }
    }
    paths
}
