//! Groups of endpoints that one packet reaches (SCDP §III-E), and the receivers of each copy of a frame.
//!
//! A path may stand for a group. A frame on such a path names a *subset* of the group, the receivers of this copy, where other frames
//! name a host. A switch makes a copy for each port that leads to some of them, so the packet crosses every link of its tree once.
//! Elmo does the same with bits in the header; here subsets have numbers, so that frames stay small.
//!
//! Not here: joining and leaving. The members of a group are fixed for the whole run.

use headwater_units::PathId;

/// Highest bit of the numbers of groups, as paths, and of subsets, as destinations; hosts and endpoints are below.
pub(super) const GROUP: u32 = 1 << 31;

/// All groups of a run.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// Group and members: bit n is the nth.
    subsets: Vec<(u32, u64)>,
}

#[derive(Debug)]
struct Group {
    hosts: Vec<u32>,
    /// Of each host.
    endpoints: Vec<u32>,
    /// Members and number of each subset that a frame was ever for, ascending.
    known: Vec<(u64, u32)>,
    /// A host that sent, and the member to which it has the most paths.
    farthest: Option<(u32, u32)>,
}

impl Groups {
    /// One more group: the host and the endpoint of each member.
    ///
    /// # Panics
    /// If there are none, more than 64, or two on one host: its driver would not know which of them a packet is for.
    pub(super) fn add(&mut self, members: &[(u32, u32)]) -> PathId {
        assert!((1..=64).contains(&members.len()), "a group has 1 to 64 members, not {}", members.len());
        let (hosts, endpoints): (Vec<u32>, Vec<u32>) = members.iter().copied().unzip();
        let twice = (1..hosts.len()).find(|&n| hosts[..n].contains(&hosts[n]));
        assert!(twice.is_none(), "a host is in a group once: {hosts:?}");
        let group = self.groups.len() as u32;
        self.groups.push(Group { hosts, endpoints, known: Vec::new(), farthest: None });
        PathId(GROUP | group)
    }

    fn of_path(&self, path: u32) -> Option<&Group> {
        self.groups.get((path ^ GROUP) as usize)
    }

    /// Destination of a frame that a host sends on a group's path: all members but itself. Nothing if there is no such
    /// group, or nobody else in it.
    pub(super) fn others(&mut self, path: u32, from: u32) -> Option<u32> {
        let hosts = &self.of_path(path)?.hosts;
        let others = (0..).zip(hosts).filter(|(_, host)| **host != from);
        let others = others.fold(0, |others, (n, _)| others | 1 << n);
        (others != 0).then(|| self.narrowed(path ^ GROUP, others))
    }

    /// The number of a subset.
    pub(super) fn narrowed(&mut self, group: u32, members: u64) -> u32 {
        let known = &mut self.groups[group as usize].known;
        match known.binary_search_by_key(&members, |it| it.0) {
            Ok(at) => known[at].1,
            Err(at) => {
                let subset = GROUP | self.subsets.len() as u32;
                known.insert(at, (members, subset));
                self.subsets.push((group, members));
                subset
            }
        }
    }

    /// The group and the members that a frame is for, if it is for a group.
    #[inline]
    pub(super) fn subset(&self, to: u32) -> Option<(u32, u64)> {
        self.subsets.get((to ^ GROUP) as usize).copied()
    }

    /// The hosts of a group.
    #[inline]
    pub(super) fn hosts(&self, group: u32) -> &[u32] {
        &self.groups[group as usize].hosts
    }

    /// Whether a frame to a group is for this host among others.
    pub(super) fn includes(&self, to: u32, host: u32) -> bool {
        let place = |group: u32| self.hosts(group).iter().position(|it| *it == host);
        self.subset(to).is_some_and(|(group, among)| place(group).is_some_and(|n| among >> n & 1 == 1))
    }

    /// The endpoint of a group's member at a host.
    pub(super) fn endpoint(&self, path: u32, host: u32) -> Option<u32> {
        let group = self.of_path(path)?;
        let place = group.hosts.iter().position(|it| *it == host)?;
        Some(group.endpoints[place])
    }

    /// The member to which a host has the most paths.
    pub(super) fn farthest(&mut self, path: u32, from: u32, paths: impl Fn(u32) -> u16) -> Option<u32> {
        let group = self.groups.get_mut((path ^ GROUP) as usize)?;
        if let Some((_, to)) = group.farthest.filter(|(known, _)| *known == from) {
            return Some(to);
        }
        let others = group.hosts.iter().copied().filter(|host| *host != from);
        // The first of several: max_by_key would take the last.
        let to = others.rev().max_by_key(|host| paths(*host))?;
        group.farthest = Some((from, to));
        Some(to)
    }
}

#[cfg(test)]
mod tests;
