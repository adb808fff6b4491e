//! Which members exchange blocks, and over which links.

use headwater_fabric::{FabricError, HostId, Metric, Path, PointId, Routes, Topology};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::Connection;

/// How a member chooses its peers (Datacast §VI-C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By lot (BT-Cornet).
    Lot,
    /// The nearest, but one at least of every range of distances in which there is anybody (BT-Optimized). The paper does not
    /// say what a range is; here distances, in links, are cut into ranges of equal width, half as many as a member has
    /// peers at the most. On a fat-tree and on BCube each distance is then a range of its own, on Torus(16,3), with 24
    /// distances, five are together.
    Near(Ties),
    /// Nobody but the member before it, which it only receives from: a chain in the order of the members.
    Chain,
}

/// Choice among members that are equally near. The paper does not say; it "sorts the group members via the distance".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// The peer that a random draw of the choosing member picks.
    #[default]
    Lot,
    /// The peer with the lowest number: the same one for all that choose, as if all sorted one list.
    Number,
}

/// The connections among these hosts, the source first: both ways between any two of which one has chosen the other, in a chain one
/// way.
/// Each way takes one of the shortest paths for good, by lot. By receiver, then by sender; none between hosts that do
/// not reach one another.
///
/// # Errors
/// [`FabricError::UnknownHost`].
pub fn connections(
    topology: &Topology,
    members: &[HostId],
    peers: usize,
    choice: Choice,
    seed: u64,
) -> Result<Vec<Connection>, FabricError> {
    let hosts = topology.hosts().len();
    if let Some(host) = members.iter().copied().find(|host| host.index() >= hosts) {
        return Err(FabricError::UnknownHost { host, hosts });
    }
    let mut neighbours = vec![Vec::new(); members.len()];
    if choice == Choice::Chain {
        (1..members.len()).for_each(|member| neighbours[member].push(member - 1));
    }
    let choosing = if choice == Choice::Chain { 0 } else { members.len() };
    for member in 0..choosing {
        let mut draw = draw(seed, 2 * member as u64);
        let mut others: Vec<usize> = (0..members.len()).filter(|other| *other != member).collect();
        others.shuffle(&mut draw);
        if let Choice::Near(ties) = choice {
            if ties == Ties::Number {
                others.sort_unstable_by_key(|other| members[*other]);
            }
            others = near(topology, members, member, peers, others)?;
        }
        for peer in others.into_iter().take(peers) {
            neighbours[member].push(peer);
            neighbours[peer].push(member);
        }
    }
    let mut all = Vec::new();
    for (to, from) in neighbours.iter_mut().enumerate() {
        from.sort_unstable();
        from.dedup();
        let mut draw = draw(seed, 2 * to as u64 + 1);
        let routes = Routes::towards(topology, members[to], Metric::Hops)?;
        for &from in from.iter() {
            let start = topology.hosts()[members[from].index()];
            if routes.hops(start).is_some() {
                let path = path(topology, start, |at| routes.links(at), &mut draw);
                all.push(Connection { from, to, path });
            }
        }
    }
    Ok(all)
}

fn draw(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut draw = ChaCha8Rng::from_seed(bytes);
    draw.set_stream(stream);
    draw
}

/// The others in the order in which they are to be chosen: the first of every range of distances, then the nearest.
fn near(
    topology: &Topology,
    members: &[HostId],
    member: usize,
    peers: usize,
    others: Vec<usize>,
) -> Result<Vec<usize>, FabricError> {
    let routes = Routes::towards(topology, members[member], Metric::Hops)?;
    let hops = |other: usize| routes.hops(topology.hosts()[members[other].index()]);
    let mut by_distance: Vec<(u32, usize)> =
        others.into_iter().filter_map(|other| Some((hops(other)?, other))).collect();
    by_distance.sort_by_key(|(distance, _)| *distance);
    let farthest = by_distance.last().map_or(0, |(distance, _)| *distance);
    let width = farthest.div_ceil((peers as u32 / 2).max(1)).max(1);
    let range = |distance: u32| distance.saturating_sub(1) / width;
    let mut last = None;
    let (mut first_ones, mut rest) = (Vec::new(), Vec::new());
    for (distance, other) in by_distance {
        let is_first = last.replace(range(distance)) != Some(range(distance));
        if is_first { first_ones.push(other) } else { rest.push(other) }
    }
    first_ones.append(&mut rest);
    Ok(first_ones)
}

fn path<'a>(
    topology: &Topology,
    start: PointId,
    next: impl Fn(PointId) -> &'a [headwater_fabric::LinkId],
    draw: &mut ChaCha8Rng,
) -> Path {
    let (mut at, mut path) = (start, Vec::new());
    loop {
        let equal = next(at);
        let link = match equal.len() {
            0 => return path.into_iter().collect(),
            1 => equal[0],
            several => equal[draw.random_range(0..several)],
        };
        path.push(link);
        at = topology.fabric().link(link).expect("routes are over links of their topology").to;
    }
}
