//! Disjoint spanning trees of BCube and torus, reckoned from the digits of the hosts' numbers.
//!
//! A tree is a rule that says by which link it reaches a point; nothing is searched, and only the points on the path to
//! receivers are looked at. Digits are counted relative to the source's. N(y) are the places at which host y has a digit other
//! than zero, and the place before i in N(y) is the next one down from i that is in N(y), around the end if need be (i itself
//! if there is no other).
//!
//! **BCube(n,k)**, k + 1 trees (Guo et al., "BCube", SIGCOMM 2009, BuildMultipleSPTs, with the source in place of the i-th
//! tree's first server, since here a switch can reach many of its servers at once). Tree i corrects digit i first, then
//! i + 1, i + 2 and so on around:
//! * a host with i in N(y) is reached over the level before i in N(y);
//! * any other is reached over level i, from the host whose digit i is n - 1.
//!
//! Over all i the levels by which y is reached are a permutation of its levels, so no link enters y for two trees; and a host
//! sends for tree i over the levels between the one before i and i, or over level i itself, which are others for every i.
//!
//! **Torus**, 2 d trees, one per place and direction; d if n is 2 (Tang et al., "Independent spanning trees on multidimensional
//! torus networks", IEEE Trans. Computers 2010, has as many; the rule here is the one of BCube carried over to rings). Digits
//! are signed, from -(n-1)/2 to n/2. Tree (i, s) goes from the source in direction s along ring i, then the short way around the
//! rings i + 1, i + 2 and so on:
//! * a host whose digit i has the sign s is reached along the ring before i in N(y), away from zero;
//! * one whose digit i has the other sign is reached along ring i in direction s, from its neighbour further out;
//! * one whose digit i is zero is reached along ring i against direction s.
//!
//! The first kind takes one way into y per place in N(y), all of them the short ones; the second takes the long ones; the
//! third those of the other places. So each of the 2 d links into y serves one tree. Depth: at most d n/2 + n/2 - 1 links for
//! even n.

use crate::topology::Shape;
use crate::{LinkId, PointId, Topology};

/// The rule for a network and a source.
#[derive(Clone, Copy, Debug)]
pub(super) enum Construction {
    /// Nothing is known of the shape but its links.
    None,
    BCube {
        n: u32,
        levels: u32,
        source: u32,
    },
    Torus {
        n: u32,
        d: u32,
        source: u32,
    },
}

impl Construction {
    pub(super) fn of(topology: &Topology, source: PointId) -> Construction {
        // Hosts come first among the points, in the order of their numbers.
        let source = source.0;
        match topology.shape() {
            Shape::BCube { n, levels } => Construction::BCube { n, levels, source },
            Shape::Torus { n, d } => Construction::Torus { n, d, source },
            Shape::FatTree(_) | Shape::Other => Construction::None,
        }
    }

    /// How many trees the rule gives, numbered from zero.
    pub(super) fn trees(self) -> u32 {
        match self {
            Construction::None => 0,
            Construction::BCube { levels, .. } => levels + 1,
            Construction::Torus { n: 2, d, .. } => d,
            Construction::Torus { d, .. } => 2 * d,
        }
    }

    /// The link by which a tree reaches a point that is not the source.
    pub(super) fn came_by(self, topology: &Topology, tree: u32, point: PointId) -> LinkId {
        match self {
            Construction::None => panic!("without a rule there are no trees to ask about"),
            Construction::BCube { n, levels, source } => {
                bcube(topology, (n, levels + 1), source, tree, point.0)
            }
            Construction::Torus { n: 2, d, source } => torus(topology, (2, d), source, (tree, 1), point.0),
            Construction::Torus { n, d, source } => {
                let sign = if tree.is_multiple_of(2) { 1 } else { -1 };
                torus(topology, (n, d), source, (tree / 2, sign), point.0)
            }
        }
    }
}

/// A host's port of level l is its l-th, as cables are laid level by level.
fn bcube(topology: &Topology, (n, digits): (u32, u32), source: u32, tree: u32, point: u32) -> LinkId {
    let fabric = topology.fabric();
    let hosts = n.pow(digits);
    if let Some(switch) = point.checked_sub(hosts) {
        let (level, place) = (switch / (hosts / n), switch % (hosts / n));
        let stride = n.pow(level);
        let first = place / stride * stride * n + place % stride;
        let of_source = digit(source, n, level);
        let above_source = first + of_source * stride;
        let from = match level == tree && above_source != source {
            true => first + (of_source + n - 1) % n * stride,
            false => above_source,
        };
        return fabric.leaving(PointId(from))[level as usize];
    }
    let differs = |level| digit(point, n, level) != digit(source, n, level);
    let level = if differs(tree) { before(tree, digits, differs) } else { tree };
    fabric.entering(PointId(point))[level as usize]
}

fn torus(
    topology: &Topology,
    (n, d): (u32, u32),
    source: u32,
    (ring, sign): (u32, i64),
    host: u32,
) -> LinkId {
    let at = |place| {
        let beyond = i64::from((digit(host, n, place) + n - digit(source, n, place)) % n);
        if beyond > i64::from(n / 2) { beyond - i64::from(n) } else { beyond }
    };
    let (place, step) = match at(ring).signum() {
        0 => (ring, sign),
        short if short == sign => {
            let place = before(ring, d, |place| at(place) != 0);
            (place, -at(place).signum())
        }
        _ => (ring, -sign),
    };
    let stride = n.pow(place);
    let of_host = digit(host, n, place);
    let of_parent = (i64::from(of_host) + step).rem_euclid(i64::from(n)) as u32;
    let parent = PointId(host - of_host * stride + of_parent * stride);
    let fabric = topology.fabric();
    let into = fabric.entering(PointId(host)).iter();
    let mut from_parent = into.filter(|link| fabric.link(**link).is_some_and(|link| link.from == parent));
    *from_parent.next().expect("hosts of a torus that differ by one step are neighbours")
}

fn digit(number: u32, base: u32, place: u32) -> u32 {
    number / base.pow(place) % base
}

/// The next place down from `place`, around the end, for which `is_in` holds; `place` itself if there is no other.
fn before(place: u32, places: u32, is_in: impl Fn(u32) -> bool) -> u32 {
    let down = (1..places).map(|step| (place + places - step) % places);
    let mut found = down.filter(|it| is_in(*it));
    found.next().unwrap_or(place)
}
