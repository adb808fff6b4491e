//! Points, directed links, and the shortest path between two points (Datacast G(V, E)).
//!
//! The graph does not know the purpose of a point (host, rack, pod): see [`Topology`](crate::Topology).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use headwater_units::{BitRate, Bytes, Duration};

macro_rules! index_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl $name {
            /// Where it stands in a list of all of its kind.
            pub fn index(self) -> usize {
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
index_id!(
    /// A host, counted from zero in the order in which the fabric was described.
    HostId
);

/// One direction of one cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it begins.
    pub from: PointId,
    /// Where it ends.
    pub to: PointId,
    /// Its capacity, if that is known.
    pub capacity: Option<BitRate>,
    /// How long a bit travels (one way, propagation only).
    pub delay: Duration,
    /// The other direction of the same cable, if it has one.
    pub back: Option<LinkId>,
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
    /// Per link: cut for now.
    down: Vec<bool>,
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

    /// Adds a link without delay and without a twin in the other direction.
    ///
    /// # Panics
    /// If an end is not a point of this fabric.
    pub fn add_link(&mut self, from: PointId, to: PointId, capacity: Option<BitRate>) -> LinkId {
        assert!(self.has(from) && self.has(to), "a link joins two points of its own fabric");
        let link = LinkId(u32::try_from(self.links.len()).expect("a fabric has less than 2^32 links"));
        self.links.push(Link { from, to, capacity, delay: Duration::ZERO, back: None });
        self.down.push(false);
        self.leaving[from.index()].push(link);
        self.entering[to.index()].push(link);
        link
    }

    /// Adds a cable: the link from `a` to `b`, then the link from `b` to `a`, alike in rate and delay (one way).
    ///
    /// # Panics
    /// If an end is not a point of this fabric.
    pub fn add_cable(
        &mut self,
        a: PointId,
        b: PointId,
        capacity: Option<BitRate>,
        delay: Duration,
    ) -> (LinkId, LinkId) {
        let there = self.add_link(a, b, capacity);
        let back = self.add_link(b, a, capacity);
        for (link, other) in [(there, back), (back, there)] {
            let link = &mut self.links[link.index()];
            (link.delay, link.back) = (delay, Some(other));
        }
        (there, back)
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
        let (up, down) = self.add_cable(point, network, uplink, Duration::ZERO);
        self.set_capacity(down, downlink);
        Attachment { point, uplink: up, downlink: down }
    }

    /// The link, if it is one of this fabric.
    pub fn link(&self, link: LinkId) -> Option<&Link> {
        self.links.get(link.index())
    }

    /// The links that begin at a point, ascending; none if the point is not one of this fabric.
    pub fn leaving(&self, point: PointId) -> &[LinkId] {
        self.leaving.get(point.index()).map_or(&[], Vec::as_slice)
    }

    /// The links that end at a point, ascending; none if the point is not one of this fabric.
    pub fn entering(&self, point: PointId) -> &[LinkId] {
        self.entering.get(point.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether a link is cut for now; one that does not exist always is.
    pub fn is_down(&self, link: LinkId) -> bool {
        self.down.get(link.index()).copied().unwrap_or(true)
    }

    /// Cuts or mends one direction; the other one stays as it is. Whether there is such a link.
    pub fn set_down(&mut self, link: LinkId, down: bool) -> bool {
        self.down.get_mut(link.index()).map(|state| *state = down).is_some()
    }

    /// Cuts or mends a link and, if it has one, its twin in the other direction. Whether there is such a link.
    pub fn set_cable_down(&mut self, link: LinkId, down: bool) -> bool {
        if let Some(back) = self.link(link).and_then(|link| link.back) {
            self.set_down(back, down);
        }
        self.set_down(link, down)
    }

    /// Gives one direction another rate. Whether there is such a link.
    pub fn set_capacity(&mut self, link: LinkId, capacity: Option<BitRate>) -> bool {
        self.links.get_mut(link.index()).map(|link| link.capacity = capacity).is_some()
    }

    /// How long `frame` takes over a path on which nobody else sends, every point passing it on when it has all of it
    /// (store and forward). Links of unknown rate add their delay only.
    ///
    /// # Panics
    /// If the path is not one of this fabric.
    pub fn latency(&self, path: &Path, frame: Bytes) -> Duration {
        // Whole nanoseconds per link would round once per link; a millionth of one does not show.
        const FINE: u128 = 1_000_000;
        let mut fine = 0u128;
        for link in path.links() {
            let link = self.link(*link).expect("a path is asked about in its own fabric");
            fine = fine.saturating_add(u128::from(link.delay.as_nanos()) * FINE);
            fine = fine.saturating_add(match link.capacity.map(BitRate::get) {
                None => 0,
                Some(0) => u128::MAX,
                Some(rate) => u128::from(frame.get()) * 8_000_000_000 * FINE / u128::from(rate),
            });
        }
        Duration::from_nanos(u64::try_from(fine.saturating_add(FINE / 2) / FINE).unwrap_or(u64::MAX))
    }

    /// How many points there are.
    pub fn point_count(&self) -> usize {
        self.leaving.len()
    }

    /// How many links there are.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// A shortest path by number of links that are not down: the same one every time. `None` if there is no path; empty from a point to
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
            let ends = |link: LinkId| (!self.is_down(link)).then(|| self.links[link.index()]);
            let fan = |edge: &BTreeSet<PointId>, links: &[Vec<LinkId>]| -> usize {
                edge.iter().map(|p| links[p.index()].len()).sum()
            };
            if fan(&ahead.edge, &self.leaving) <= fan(&behind.edge, &self.entering) {
                ahead.deepen(&self.leaving, |link| ends(link).map(|link| link.to));
            } else {
                behind.deepen(&self.entering, |link| ends(link).map(|link| link.from));
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

    fn deepen(&mut self, links: &[Vec<LinkId>], far_end: impl Fn(LinkId) -> Option<PointId>) {
        let mut next = BTreeSet::new();
        for point in std::mem::take(&mut self.edge) {
            for &link in &links[point.index()] {
                let Some(reached) = far_end(link) else { continue };
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

    #[test]
    fn a_cable_is_cut_both_ways_and_a_link_one_way() {
        let mut fabric = Fabric::new();
        let (a, b) = (fabric.add_point(), fabric.add_point());
        let (there, back) = fabric.add_cable(a, b, Some(BitRate::new(8)), Duration::from_micros(3));
        assert_eq!(fabric.link(there).unwrap().back, Some(back));
        assert_eq!(fabric.link(back).unwrap().back, Some(there));
        assert_eq!(fabric.link(back).unwrap().delay, Duration::from_micros(3));
        assert!(fabric.set_down(there, true));
        assert_eq!((fabric.path(a, b), fabric.path(b, a)), (None, Some(Path(vec![back]))));
        assert!(fabric.set_cable_down(there, true));
        assert_eq!(fabric.path(b, a), None);
        assert!(fabric.set_cable_down(back, false));
        assert_eq!(fabric.path(a, b), Some(Path(vec![there])));
        assert!(!fabric.set_down(LinkId(2), true) && !fabric.set_cable_down(LinkId(2), true));
        assert!(fabric.is_down(LinkId(2)), "what does not exist carries nothing");
    }

    #[test]
    fn latency_is_store_and_forward_at_every_point_and_rounds_only_once() {
        let mut fabric = Fabric::new();
        let points: Vec<PointId> = (0..4).map(|_| fabric.add_point()).collect();
        // 1000 bytes take 2666.67 ns at 3 Gbit/s.
        for pair in points.windows(2) {
            fabric.add_cable(pair[0], pair[1], Some(BitRate::new(3_000_000_000)), Duration::from_nanos(100));
        }
        let path = fabric.path(points[0], points[3]).unwrap();
        assert_eq!(fabric.latency(&path, Bytes::new(1_000)), Duration::from_nanos(8_300));
        assert_eq!(fabric.latency(&Path::default(), Bytes::new(1_000)), Duration::ZERO);
        fabric.set_capacity(path.links()[0], Some(BitRate::ZERO));
        assert_eq!(fabric.latency(&path, Bytes::new(1_000)), Duration::MAX);
        fabric.set_capacity(path.links()[0], None);
        assert_eq!(fabric.latency(&path, Bytes::new(3_000)), Duration::from_nanos(16_300));
    }

    proptest! {
        #[test]
        fn a_path_is_connected_shortest_and_the_same_every_time(
            cables in prop::collection::vec((0u32..12, 0u32..12), 0..40), from in 0u32..12, to in 0u32..12,
            down in prop::collection::vec(0u32..40, 0..10),
        ) {
            let mut fabric = Fabric::new();
            (0..12).for_each(|_| { fabric.add_point(); });
            for (a, b) in cables {
                fabric.add_link(PointId(a), PointId(b), None);
            }
            for link in down {
                fabric.set_down(LinkId(link), true);
            }
            // Plain breadth-first search as the reference.
            let mut depth = BTreeMap::from([(PointId(from), 0usize)]);
            let mut queue = std::collections::VecDeque::from([PointId(from)]);
            while let Some(p) = queue.pop_front() {
                for &link in fabric.leaving[p.index()].iter().filter(|link| !fabric.is_down(**link)) {
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
                prop_assert!(!fabric.is_down(*link));
                prop_assert_eq!(fabric.links[link.index()].from, at);
                at = fabric.links[link.index()].to;
            }
            prop_assert!(path.is_none() || at == PointId(to));
        }
    }
}
