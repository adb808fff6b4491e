//! The paths that a source can choose among, as numbers whose digits the switches on the path read ([`Choice::Path`]).
//!
//! Each switch that has a choice reads one digit: those next to hosts the last one, those a link farther from any host the
//! one before it, and so on. A digit has as many values as any switch of its tier has ports to choose from. On fat-trees and
//! leaf-spines, where choices are made on the way up alone and alike everywhere, a number is a path and every path has one.
//!
//! [`Choice::Path`]: headwater_switch::Choice::Path

use headwater_fabric::{HostId, Routes, Topology};

/// Maximum number of paths that are told apart.
const MAX_PATHS: u64 = 4096;

/// Divisor by which each switch divides the number of a path, in the order of the switches' points.
pub fn switch_divisors(topology: &Topology, routes: &Routes) -> Vec<u32> {
    let mut divisors = divisors(topology, routes);
    let mut is_host = vec![false; divisors.len()];
    topology.hosts().iter().for_each(|host| is_host[host.0 as usize] = true);
    let mut of_host = is_host.into_iter();
    divisors.retain(|_| of_host.next() == Some(false));
    divisors
}

/// For each point what the number of a path is divided by there; 1 for hosts.
fn divisors(topology: &Topology, routes: &Routes) -> Vec<u32> {
    let fabric = topology.fabric();
    // How far each point is from a host.
    let mut tier = vec![usize::MAX; fabric.point_count()];
    let mut ring = topology.hosts().to_vec();
    let mut farthest = 0;
    for at in 0.. {
        ring.retain(|point| {
            let of_point = &mut tier[point.0 as usize];
            let is_new = *of_point > at;
            *of_point = at.min(*of_point);
            is_new
        });
        if ring.is_empty() {
            break;
        }
        farthest = at;
        let links = ring.iter().flat_map(|point| fabric.leaving(*point));
        ring = links.filter_map(|link| Some(fabric.link(*link)?.to)).collect();
    }
    let mut widths = vec![1u64; farthest + 1];
    for (point, &tier) in (0..).zip(&tier) {
        let hosts = 0..topology.hosts().len() as u32;
        let widest =
            hosts.map(|host| routes.next(headwater_fabric::PointId(point), HostId(host)).len()).max();
        if let (1.., Some(width)) = (tier, widths.get_mut(tier)) {
            *width = (*width).max(widest.unwrap_or(1) as u64);
        }
    }
    let divisor = |tier: usize| widths.iter().take(tier).product::<u64>().min(MAX_PATHS) as u32;
    tier.into_iter().map(|tier| if tier == usize::MAX { 1 } else { divisor(tier) }).collect()
}

/// How many paths there are from one host to another; 1 where there are too many to be told apart, or none.
pub(super) fn paths_between(topology: &Topology, routes: &Routes, from: u32, to: u32) -> u16 {
    let (Some(mut at), Some(end)) = (topology.point_of(HostId(from)), topology.point_of(HostId(to))) else {
        return 1;
    };
    let mut paths = 1u64;
    // No shortest path visits a point twice.
    for _ in 0..topology.fabric().point_count() {
        if at == end {
            break;
        }
        let next = routes.next(at, HostId(to));
        if topology.forwards(at) {
            paths *= next.len().max(1) as u64;
        }
        match next.first().and_then(|link| topology.fabric().link(*link)) {
            Some(link) => at = link.to,
            None => return 1,
        }
    }
    u16::try_from(paths.min(MAX_PATHS)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_fabric::{FabricSpec, Metric};
    use headwater_units::Bytes;

    use super::*;

    fn build(text: &str) -> (Topology, Routes) {
        let spec: FabricSpec = toml::from_str(text).unwrap();
        let topology = spec.build(Bytes::new(1500)).unwrap();
        let routes = Routes::all(&topology, Metric::Hops).unwrap();
        (topology, routes)
    }

    /// The points that a packet passes whose path has this number.
    fn walk(topology: &Topology, routes: &Routes, from: u32, to: u32, number: u32) -> Vec<u32> {
        let divisors = divisors(topology, routes);
        let (mut at, end) =
            (topology.point_of(HostId(from)).unwrap(), topology.point_of(HostId(to)).unwrap());
        let mut points = Vec::new();
        while at != end {
            let next = routes.next(at, HostId(to));
            let link = next[number as usize / divisors[at.0 as usize] as usize % next.len()];
            at = topology.fabric().link(link).unwrap().to;
            points.push(at.0);
        }
        points
    }

    #[test]
    fn every_number_is_another_path_of_a_fat_tree() {
        let (topology, routes) = build("kind = 'fat-tree'\nk = 8\nrate = '100 Gbit/s'\ndelay = '1 us'");
        // Hosts 0 and 127 are in different pods, 0 and 5 in different racks of one, 0 and 1 in one rack.
        for (to, count) in [(127, 16), (5, 4), (1, 1)] {
            assert_eq!(paths_between(&topology, &routes, 0, to), count);
            let paths: BTreeSet<_> =
                (0..u32::from(count)).map(|number| walk(&topology, &routes, 0, to, number)).collect();
            assert_eq!(paths.len(), usize::from(count), "to {to}");
        }
    }

    #[test]
    fn one_big_switch_leaves_no_choice() {
        let (topology, routes) = build("kind = 'big-switch'\nhosts = 4\nrate = '1 Gbit/s'\ndelay = '1 us'");
        assert_eq!(paths_between(&topology, &routes, 0, 3), 1);
        assert_eq!(divisors(&topology, &routes), [1; 5]);
    }
}
