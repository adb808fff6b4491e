//! A fabric whose points have names and places: which are hosts, in which rack and pod.
//!
//! Hosts are counted from zero and come first among the points. The meaning of a place depends on the shape: a rack is
//! the set of hosts behind one switch (the leaf, the rack switch of a fat-tree, a level-0 switch of BCube, a site of
//! B4), a pod is a pod of a fat-tree or a continent of B4. Shapes without racks or pods say `None`.

use headwater_units::BitRate;

use crate::{Fabric, FabricError, HostId, LinkId, PointId};

/// Kind of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointKind {
    /// Where traffic begins and ends.
    Host(HostId),
    /// Where it only passes.
    Switch,
}

/// Where a point stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Host or switch.
    pub kind: PointKind,
    /// 0 for hosts; switches count from 1 upwards: rack or leaf 1, aggregation or spine 2, core 3; level l of BCube l + 1.
    pub tier: u32,
    /// Of a host and of the switch that makes the rack; counted through all pods.
    pub rack: Option<u32>,
    /// Of everything inside the pod.
    pub pod: Option<u32>,
}

/// A fabric with hosts, names and places.
#[derive(Clone, Debug)]
pub struct Topology {
    fabric: Fabric,
    hosts: Vec<PointId>,
    /// By point.
    names: Vec<String>,
    /// Points, ascending by name.
    by_name: Vec<PointId>,
    /// By point.
    places: Vec<Place>,
    hosts_forward: bool,
    shape: Shape,
}

/// The regular shapes whose paths or trees are reckoned from a point's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    FatTree(FatTreeShape),
    /// Digits to base `n`, `levels` + 1 of them; the switches of a level follow those of the level below.
    BCube {
        n: u32,
        levels: u32,
    },
    /// Digits to base `n`, `d` of them.
    Torus {
        n: u32,
        d: u32,
    },
    Other,
}

/// Quantities from which D-mod-k paths are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FatTreeShape {
    /// Half of k: uplinks of a rack switch and of an aggregation switch, and racks of a pod.
    pub(crate) half: u32,
    pub(crate) hosts_per_rack: u32,
}

impl Topology {
    /// Fails if two points have one name.
    pub(crate) fn new(
        fabric: Fabric,
        names: Vec<String>,
        places: Vec<Place>,
        hosts_forward: bool,
        shape: Shape,
    ) -> Result<Self, FabricError> {
        assert!(
            names.len() == fabric.point_count() && places.len() == names.len(),
            "every point has a name and a place"
        );
        let points = (0..).map(PointId).zip(&places);
        let hosts: Vec<PointId> = points
            .filter_map(|(point, place)| matches!(place.kind, PointKind::Host(_)).then_some(point))
            .collect();
        let mut by_name: Vec<PointId> = (0..).map(PointId).take(names.len()).collect();
        by_name.sort_by(|a, b| names[a.index()].cmp(&names[b.index()]));
        let same = by_name.windows(2).find(|pair| names[pair[0].index()] == names[pair[1].index()]);
        if let Some(pair) = same {
            return Err(FabricError::DuplicateName { name: names[pair[0].index()].clone() });
        }
        Ok(Topology { fabric, hosts, names, by_name, places, hosts_forward, shape })
    }

    /// The bare graph.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The hosts' points, by host.
    pub fn hosts(&self) -> &[PointId] {
        &self.hosts
    }

    /// Where a host is in the graph.
    pub fn point_of(&self, host: HostId) -> Option<PointId> {
        self.hosts.get(host.index()).copied()
    }

    /// Where a point stands.
    pub fn place(&self, point: PointId) -> Option<&Place> {
        self.places.get(point.index())
    }

    /// The rack of a host, if the shape has racks.
    pub fn rack_of(&self, host: HostId) -> Option<u32> {
        self.place(self.point_of(host)?)?.rack
    }

    /// The pod of a host, if the shape has pods.
    pub fn pod_of(&self, host: HostId) -> Option<u32> {
        self.place(self.point_of(host)?)?.pod
    }

    /// The name of a point: `h0`, `rack3`, `agg1.2`, `core4`.
    pub fn name(&self, point: PointId) -> Option<&str> {
        self.names.get(point.index()).map(String::as_str)
    }

    /// The point with this name.
    pub fn point(&self, name: &str) -> Option<PointId> {
        let found = self.by_name.binary_search_by(|point| self.names[point.index()].as_str().cmp(name));
        found.ok().map(|at| self.by_name[at])
    }

    /// The link between two neighbours, by their names; the first one if there are several.
    pub fn link_between(&self, from: &str, to: &str) -> Option<LinkId> {
        let (from, to) = (self.point(from)?, self.point(to)?);
        let mut leaving = self.fabric.leaving(from).iter();
        leaving.find(|link| self.fabric.link(**link).is_some_and(|it| it.to == to)).copied()
    }

    /// Whether traffic between other points may pass here: switches always, hosts where the hosts are the network
    /// (BCube, torus).
    pub fn forwards(&self, point: PointId) -> bool {
        let kind = self.place(point).map(|place| place.kind);
        match kind {
            Some(PointKind::Host(_)) => self.hosts_forward,
            Some(PointKind::Switch) => true,
            None => false,
        }
    }

    /// Whether a link is cut for now; one that does not exist always is.
    pub fn is_down(&self, link: LinkId) -> bool {
        self.fabric.is_down(link)
    }

    /// Cuts or mends one direction. Whether there is such a link. Routes made before do not change.
    pub fn set_down(&mut self, link: LinkId, down: bool) -> bool {
        self.fabric.set_down(link, down)
    }

    /// Cuts or mends a cable, named by either of its links. Whether there is such a link.
    pub fn set_cable_down(&mut self, link: LinkId, down: bool) -> bool {
        self.fabric.set_cable_down(link, down)
    }

    /// Gives one direction another rate. Whether there is such a link.
    pub fn set_capacity(&mut self, link: LinkId, capacity: BitRate) -> bool {
        self.fabric.set_capacity(link, Some(capacity))
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn fat_tree(&self) -> Option<FatTreeShape> {
        match self.shape {
            Shape::FatTree(shape) => Some(shape),
            Shape::BCube { .. } | Shape::Torus { .. } | Shape::Other => None,
        }
    }
}
