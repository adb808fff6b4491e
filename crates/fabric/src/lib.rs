//! The network as a graph: points joined by directed links, and paths through it.
//!
//! A point is a host or a switch; a link is one direction of one cable (Datacast G(V, E)). Algorithms that plan
//! (PPUSH Alg. 1 first) see only paths: the links of a flow, in order. Where nothing better is known the network is one
//! big switch: hosts [attached](Fabric::attach) to a core by an uplink and a downlink, or to a rack that is attached to
//! the core likewise. No I/O, no time, no traffic: who sends what is the demand's business, not the fabric's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use headwater_units::BitRate;

macro_rules! index_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl $name {
            fn index(self) -> usize {
                self.0 as usize
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index_id!(
    /// A host or a switch.
    PointId
);
index_id!(
    /// One direction of one cable.
    LinkId
);

/// One direction of one cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it begins.
    pub from: PointId,
    /// Where it ends.
    pub to: PointId,
    /// What it carries, if that is known.
    pub capacity: Option<BitRate>,
}

/// The links from one point to another, in the order they are travelled; none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<LinkId>);

impl Path {
    /// The links, first one first.
    pub fn links(&self) -> &[LinkId] {
        &self.0
    }
}

impl FromIterator<LinkId> for Path {
    fn from_iter<I: IntoIterator<Item = LinkId>>(links: I) -> Self {
        Path(links.into_iter().collect())
    }
}

/// How a host hangs on its switch, or a rack on the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The new point.
    pub point: PointId,
    /// From the new point towards the network.
    pub uplink: LinkId,
    /// From the network to the new point.
    pub downlink: LinkId,
}

/// A graph of points and directed links; ids count from zero in the order of adding, and nothing is ever removed.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    links: Vec<Link>,
    /// Per point, ascending.
    leaving: Vec<Vec<LinkId>>,
    /// Per point, ascending.
    entering: Vec<Vec<LinkId>>,
}

impl Fabric {
    /// A network of nothing.
    pub fn new() -> Self {
        Fabric::default()
    }

    /// Adds a host or a switch.
    pub fn add_point(&mut self) -> PointId {
        let point = PointId(u32::try_from(self.leaving.len()).expect("a fabric has less than 2^32 points"));
        self.leaving.push(Vec::new());
        self.entering.push(Vec::new());
        point
    }

    /// Adds one direction of a cable.
    ///
    /// # Panics
    /// If an end is not a point of this fabric.
    pub fn add_link(&mut self, from: PointId, to: PointId, capacity: Option<BitRate>) -> LinkId {
        assert!(self.has(from) && self.has(to), "a link joins two points of its own fabric");
        let link = LinkId(u32::try_from(self.links.len()).expect("a fabric has less than 2^32 links"));
        self.links.push(Link { from, to, capacity });
        self.leaving[from.index()].push(link);
        self.entering[to.index()].push(link);
        link
    }

    /// Adds a point that reaches `network` over an uplink and is reached over a downlink.
    ///
    /// # Panics
    /// If `network` is not a point of this fabric.
    pub fn attach(
        &mut self,
        network: PointId,
        uplink: Option<BitRate>,
        downlink: Option<BitRate>,
    ) -> Attachment {
        let point = self.add_point();
        let uplink = self.add_link(point, network, uplink);
        let downlink = self.add_link(network, point, downlink);
        Attachment { point, uplink, downlink }
    }

    /// The link, if it is one of this fabric.
    pub fn link(&self, link: LinkId) -> Option<&Link> {
        self.links.get(link.index())
    }

    /// How many points there are.
    pub fn point_count(&self) -> usize {
        self.leaving.len()
    }

    /// How many links there are.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// A shortest path by number of links: the same one every time. `None` if there is no way; empty from a point to
    /// itself.
    ///
    /// Searches from both ends at once, one whole level at a time on the side with fewer links to look at, so a
    /// core switch with thousands of hosts is met in the middle instead of being walked through.
    pub fn path(&self, from: PointId, to: PointId) -> Option<Path> {
        if !self.has(from) || !self.has(to) {
            return None;
        }
        let mut ahead = Search::start(from);
        let mut behind = Search::start(to);
        let meeting = loop {
            // Every path of fewer links than both depths together would have been met before: this one is shortest.
            if let Some(&point) = ahead.edge.iter().chain(&behind.edge).find(|p| ahead.and(&behind, p)) {
                break point;
            }
            if ahead.edge.is_empty() || behind.edge.is_empty() {
                return None;
            }
            let fan = |edge: &BTreeSet<PointId>, links: &[Vec<LinkId>]| -> usize {
                edge.iter().map(|p| links[p.index()].len()).sum()
            };
            if fan(&ahead.edge, &self.leaving) <= fan(&behind.edge, &self.entering) {
                ahead.deepen(&self.leaving, |link| self.links[link.index()].to);
            } else {
                behind.deepen(&self.entering, |link| self.links[link.index()].from);
            }
        };
        let mut links = Vec::new();
        let mut at = meeting;
        while let Some(link) = ahead.came_by[&at] {
            links.push(link);
            at = self.links[link.index()].from;
        }
        links.reverse();
        at = meeting;
        while let Some(link) = behind.came_by[&at] {
            links.push(link);
            at = self.links[link.index()].to;
        }
        Some(Path(links))
    }

    fn has(&self, point: PointId) -> bool {
        point.index() < self.leaving.len()
    }
}

/// One side of a search in both directions.
struct Search {
    /// Every point reached, and the link it was first reached by; none for the start.
    came_by: BTreeMap<PointId, Option<LinkId>>,
    /// The points of the deepest level.
    edge: BTreeSet<PointId>,
}

impl Search {
    fn start(point: PointId) -> Self {
        Search { came_by: BTreeMap::from([(point, None)]), edge: BTreeSet::from([point]) }
    }

    fn and(&self, other: &Search, point: &PointId) -> bool {
        self.came_by.contains_key(point) && other.came_by.contains_key(point)
    }

    fn deepen(&mut self, links: &[Vec<LinkId>], far_end: impl Fn(LinkId) -> PointId) {
        let mut next = BTreeSet::new();
        for point in std::mem::take(&mut self.edge) {
            for &link in &links[point.index()] {
                let reached = far_end(link);
                self.came_by.entry(reached).or_insert_with(|| {
                    next.insert(reached);
                    Some(link)
                });
            }
        }
        self.edge = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn in_one_big_switch_a_path_is_an_uplink_and_a_downlink() {
        let mut fabric = Fabric::new();
        let core = fabric.add_point();
        let hosts: Vec<Attachment> =
            (0..5).map(|_| fabric.attach(core, Some(BitRate::new(1_000)), None)).collect();
        let path = fabric.path(hosts[1].point, hosts[4].point).unwrap();
        assert_eq!(path.links(), [hosts[1].uplink, hosts[4].downlink]);
        assert_eq!(fabric.link(hosts[1].uplink).unwrap().capacity, Some(BitRate::new(1_000)));
        assert_eq!(fabric.link(hosts[4].downlink).unwrap().capacity, None);
    }

    #[test]
    fn racks_add_their_own_links_only_between_racks() {
        let mut fabric = Fabric::new();
        let core = fabric.add_point();
        let (left, right) = (fabric.attach(core, None, None), fabric.attach(core, None, None));
        let a = fabric.attach(left.point, None, None);
        let b = fabric.attach(left.point, None, None);
        let c = fabric.attach(right.point, None, None);
        let bare = fabric.attach(core, None, None);
        let links = |from: Attachment, to: Attachment| fabric.path(from.point, to.point).unwrap().0;
        assert_eq!(links(a, b), [a.uplink, b.downlink]);
        assert_eq!(links(a, c), [a.uplink, left.uplink, right.downlink, c.downlink]);
        assert_eq!(links(c, bare), [c.uplink, right.uplink, bare.downlink]);
    }

    #[test]
    fn without_a_way_there_is_no_path_and_to_oneself_it_is_empty() {
        let mut fabric = Fabric::new();
        let (a, b) = (fabric.add_point(), fabric.add_point());
        fabric.add_link(a, b, None);
        assert_eq!(fabric.path(b, a), None);
        assert_eq!(fabric.path(a, PointId(9)), None);
        assert_eq!(fabric.path(a, a), Some(Path::default()));
    }

    proptest! {
        #[test]
        fn a_path_is_connected_shortest_and_the_same_every_time(
            cables in prop::collection::vec((0u32..12, 0u32..12), 0..40), from in 0u32..12, to in 0u32..12,
        ) {
            let mut fabric = Fabric::new();
            (0..12).for_each(|_| { fabric.add_point(); });
            for (a, b) in cables {
                fabric.add_link(PointId(a), PointId(b), None);
            }
            // Plain breadth-first search as the reference.
            let mut depth = BTreeMap::from([(PointId(from), 0usize)]);
            let mut queue = std::collections::VecDeque::from([PointId(from)]);
            while let Some(p) = queue.pop_front() {
                for &link in &fabric.leaving[p.index()] {
                    let next = fabric.links[link.index()].to;
                    if !depth.contains_key(&next) {
                        depth.insert(next, depth[&p] + 1);
                        queue.push_back(next);
                    }
                }
            }
            let path = fabric.path(PointId(from), PointId(to));
            prop_assert_eq!(&path, &fabric.path(PointId(from), PointId(to)));
            prop_assert_eq!(path.as_ref().map(|p| p.0.len()), depth.get(&PointId(to)).copied());
            let mut at = PointId(from);
            for link in path.iter().flat_map(|p| p.links()) {
                prop_assert_eq!(fabric.links[link.index()].from, at);
                at = fabric.links[link.index()].to;
            }
            prop_assert!(path.is_none() || at == PointId(to));
        }
    }
}
