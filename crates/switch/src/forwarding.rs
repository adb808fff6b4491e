//! Which port a frame leaves by: unicast over equal-cost ports, and multicast copies.
//!
//! A host's routes are a set of ports, all equally good. [`Choice`] picks one of those that are up: by the flow's hash
//! (ECMP, RFC 2992), by spraying each packet anew (SCDP §III-C, as NDP: a random permutation of the ports, reshuffled each
//! round), as the source says, or always the first. A group's frames are copied out of every port of the group but the one they
//! came in by; of frames that say themselves which hosts they are for, one leaves by each port that leads to any of those.
//!
//! Hosts are small numbers and many share a set, so a set is stored once and a host is an index to it: a frame with one
//! path takes two array reads.
//!
//! Not here: how routes are found, and which ports exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Walk;

/// A port of a switch, counted from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortIndex(pub u16);

impl PortIndex {
    /// No port: where frames come from that the device itself sends.
    pub const OWN: PortIndex = PortIndex(u16::MAX);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for PortIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How one of several equally good ports is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// By the flow's hash: all frames of a flow take one way.
    Hash {
        /// Mixed into every hash. Give each switch its own: with one salt for all, what a switch spreads over its ports
        /// arrives at the next ones already sorted, and they use a part of their ports only.
        salt: u64,
    },
    /// Per packet: for each destination a random walk that takes every port once per round.
    Spray {
        /// Decides all walks.
        seed: u64,
    },
    /// As the source says: instead of a hash the frame has the number of its path, and each switch on the path reads another
    /// digit of it. Stands for the UDP source ports by which real sources spray, whose hash is as good as such a number.
    Path {
        /// The number over this, modulo the ports that are up, is the port's place: the product of what the switches before
        /// this one could choose among. Zero counts as one.
        divisor: u32,
    },
    /// The lowest port that is up.
    First,
}

impl Default for Choice {
    fn default() -> Self {
        Choice::Hash { salt: 0 }
    }
}

/// Where a frame leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress<'a> {
    /// By one port.
    One(PortIndex),
    /// A copy by each of these, at least one.
    Copies(&'a [PortIndex]),
    /// Nowhere: the destination is unknown, or no port that leads there is up.
    None,
}

/// One of the ports by which a frame for several hosts leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The port.
    pub port: PortIndex,
    /// Hosts that its copy is for: bit n is the nth host.
    pub hosts: u64,
}

/// Routes cannot be set so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ForwardingError {
    /// The table was made for fewer hosts.
    #[error("host {host} is not among the {hosts} of this table")]
    UnknownHost {
        /// The host.
        host: u32,
        /// How many there are, counted from zero.
        hosts: usize,
    },
}

/// A set of ports, as a part of the table's list of ports: those that are up come first, both parts in order.
#[derive(Clone, Copy, Debug)]
struct Set {
    start: u32,
    len: u16,
    up: u16,
    /// The one that is up; [`PortIndex::OWN`] where there is not just one.
    only: PortIndex,
}

/// Without ports.
const EMPTY: Set = Set { start: 0, len: 0, up: 0, only: PortIndex::OWN };

/// A switch's table: from a destination to ports.
#[derive(Clone, Debug)]
pub struct Forwarding {
    /// For each host, its set.
    hosts: Vec<u32>,
    groups: BTreeMap<u32, u32>,
    /// The first one is empty.
    sets: Vec<Set>,
    ports: Vec<PortIndex>,
    /// Sets by their ports, so that none is stored twice.
    known: BTreeMap<Vec<PortIndex>, u32>,
    down: BTreeSet<PortIndex>,
    choice: Choice,
    rng: ChaCha8Rng,
    /// By host, where frames are sprayed.
    walks: Vec<Walk>,
    /// The ports of the last multicast.
    copies: Vec<PortIndex>,
    /// The same, where the receivers of a copy travel with the frame.
    branches: Vec<Branch>,
}

impl Forwarding {
    /// A table for hosts `0..hosts`, none of which can be reached yet; choices by hash.
    pub fn new(hosts: usize) -> Self {
        Forwarding {
            hosts: vec![0; hosts],
            groups: BTreeMap::new(),
            sets: vec![EMPTY],
            ports: Vec::new(),
            known: BTreeMap::from([(Vec::new(), 0)]),
            down: BTreeSet::new(),
            choice: Choice::default(),
            rng: ChaCha8Rng::seed_from_u64(0),
            walks: Vec::new(),
            copies: Vec::new(),
            branches: Vec::new(),
        }
    }
    /// The same table with another choice.
    pub fn with_choice(mut self, choice: Choice) -> Self {
        self.set_choice(choice);
        self
    }
    /// From now on chooses so; spraying begins anew from its seed.
    pub fn set_choice(&mut self, choice: Choice) {
        self.choice = choice;
        self.walks.clear();
        if let Choice::Spray { seed } = choice {
            self.rng = ChaCha8Rng::seed_from_u64(seed);
            self.walks.resize(self.hosts.len(), Walk::default());
        }
    }
    /// Sets the equally good ports that lead to a host, in any order; none makes it unreachable.
    ///
    /// # Errors
    /// [`ForwardingError::UnknownHost`] beyond the hosts of [`Forwarding::new`].
    pub fn set_routes(&mut self, host: u32, ports: &[PortIndex]) -> Result<(), ForwardingError> {
        let set = self.intern(ports);
        let hosts = self.hosts.len();
        let slot = self.hosts.get_mut(host as usize).ok_or(ForwardingError::UnknownHost { host, hosts })?;
        *slot = set;
        Ok(())
    }
    /// Sets the ports that lead to members of a group, and to its sources, in any order; none forgets the group.
    pub fn set_group(&mut self, group: u32, ports: &[PortIndex]) {
        match self.intern(ports) {
            0 => drop(self.groups.remove(&group)),
            set => drop(self.groups.insert(group, set)),
        }
    }
    /// Leaves a port out of all sets, or takes it in again. At first all are up.
    pub fn set_port_up(&mut self, port: PortIndex, up: bool) {
        let changed = if up { self.down.remove(&port) } else { self.down.insert(port) };
        if changed {
            for set in &mut self.sets {
                sort_set(set, &mut self.ports, &self.down);
            }
        }
    }
    /// Whether a port is up.
    pub fn is_port_up(&self, port: PortIndex) -> bool {
        !self.down.contains(&port)
    }
    /// The ports that lead to a host and are up, in order.
    pub fn routes(&self, host: u32) -> &[PortIndex] {
        self.hosts.get(host as usize).map_or(&[], |&set| self.up_ports(set))
    }

    /// Where a frame leaves that came in by `ingress` ([`PortIndex::OWN`] if the device itself sends it).
    #[inline(always)]
    pub fn egress(&mut self, ingress: PortIndex, to: crate::Destination, flow_hash: u32) -> Egress<'_> {
        match to {
            crate::Destination::Host(host) => self.unicast(host, flow_hash).map_or(Egress::None, Egress::One),
            crate::Destination::Group(group) => self.multicast(ingress, group),
        }
    }

    /// Where copies of a frame leave that says itself which hosts it is for (SCDP §III-E, Elmo): one by each port that
    /// leads to any of them, as a frame for that host alone would leave. Hosts with the same ports to choose from share
    /// a choice, so that copies part as late as they can. `among` says which of `hosts` are meant: bit n is the nth, of
    /// 64 at most. Hosts to which no port leads that is up are in no branch.
    pub fn branches(&mut self, hosts: &[u32], among: u64, flow_hash: u32) -> &[Branch] {
        self.branches.clear();
        let set_of =
            |this: &Self, n: u32| hosts.get(n as usize).and_then(|&h| this.hosts.get(h as usize)).copied();
        let mut left = among;
        while left != 0 {
            let first = left.trailing_zeros();
            let set = set_of(self, first);
            let alike = bits(left).filter(|&n| set_of(self, n) == set).fold(0, |alike, n| alike | 1 << n);
            left &= !alike;
            let port = hosts.get(first as usize).and_then(|&host| self.unicast(host, flow_hash));
            let Some(port) = port else { continue };
            match self.branches.iter_mut().find(|branch| branch.port == port) {
                Some(branch) => branch.hosts |= alike,
                None => self.branches.push(Branch { port, hosts: alike }),
            }
        }
        &self.branches
    }

    #[inline(always)]
    fn unicast(&mut self, host: u32, flow_hash: u32) -> Option<PortIndex> {
        let set = *self.hosts.get(host as usize)?;
        let Set { start, up, only, .. } = self.sets[set as usize];
        match self.choice {
            _ if only != PortIndex::OWN => Some(only),
            // Here, because then every packet chooses at every switch on its way up.
            Choice::Path { divisor } if up > 0 => {
                let place = flow_hash / divisor.max(1) % u32::from(up);
                Some(self.ports[(start + place) as usize])
            }
            _ => self.choose(set, host, flow_hash),
        }
    }

    /// One of several ports, or none of none, where the source does not say which.
    fn choose(&mut self, set: u32, host: u32, flow_hash: u32) -> Option<PortIndex> {
        let set = self.sets[set as usize];
        let place = match (set.up, self.choice) {
            (0, _) | (_, Choice::Path { .. }) => return None,
            (_, Choice::First) => 0,
            (up, Choice::Hash { salt }) => pick(flow_hash, salt, up),
            (up, Choice::Spray { .. }) => self.walks[host as usize].step(up, &mut self.rng),
        };
        Some(self.ports[set.start as usize + usize::from(place)])
    }

    fn multicast(&mut self, ingress: PortIndex, group: u32) -> Egress<'_> {
        let Some(&set) = self.groups.get(&group) else { return Egress::None };
        let Set { start, up, .. } = self.sets[set as usize];
        let ports = &self.ports[start as usize..][..usize::from(up)];
        self.copies.clear();
        self.copies.extend(ports.iter().filter(|&&port| port != ingress));
        if self.copies.is_empty() { Egress::None } else { Egress::Copies(&self.copies) }
    }

    fn up_ports(&self, set: u32) -> &[PortIndex] {
        let Set { start, up, .. } = self.sets[set as usize];
        &self.ports[start as usize..][..usize::from(up)]
    }

    fn intern(&mut self, ports: &[PortIndex]) -> u32 {
        let ports: Vec<PortIndex> = BTreeSet::from_iter(ports).into_iter().copied().collect();
        if let Some(&set) = self.known.get(&ports) {
            return set;
        }
        let mut set = Set {
            start: u32::try_from(self.ports.len()).expect("fewer than 2^32 ports in all sets"),
            len: u16::try_from(ports.len()).expect("a set has fewer ports than there are indices"),
            ..EMPTY
        };
        self.ports.extend(&ports);
        sort_set(&mut set, &mut self.ports, &self.down);
        let id = u32::try_from(self.sets.len()).expect("fewer than 2^32 sets");
        self.sets.push(set);
        self.known.insert(ports, id);
        id
    }
}

fn sort_set(set: &mut Set, ports: &mut [PortIndex], down: &BTreeSet<PortIndex>) {
    let ports = &mut ports[set.start as usize..][..usize::from(set.len)];
    ports.sort_unstable_by_key(|port| (down.contains(port), *port));
    set.up = ports.partition_point(|port| !down.contains(port)) as u16;
    set.only = if set.up == 1 { ports[0] } else { PortIndex::OWN };
}

/// The places of the bits that are set.
fn bits(of: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).filter(move |n| of >> n & 1 == 1)
}

/// One of `0..of` by a hash, evenly: every bit of hash and salt counts.
#[inline]
fn pick(hash: u32, salt: u64, of: u16) -> u16 {
    // The finisher of SplitMix64 (Steele, Lea and Flood 2014); what it is given differs in salt and hash.
    let mut mixed = u64::from(hash) ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((mixed >> 32) * u64::from(of)) >> 32) as u16
}
