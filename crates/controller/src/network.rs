//! The network from the operator's topology file: its cables, which node is which host, and which cables have been found cut.
//!
//! The trees of casts come from it (Datacast §III, Fabric Manager and Master in one). A link counts as cut for
//! [`ControllerConfig::cut_for`](super::ControllerConfig), since nobody monitors cables that no tree uses.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::trees::{self, Group, Hop, PacketSizes, SteinerTree, Switches, Telling};
use headwater_fabric::{FabricError, FabricSpec, HostId, LinkDelay, LinkId, Topology};
use headwater_units::{BitRate, BlockIndex, Bytes, Duration, Esi, FlowId, SymbolId, Time};
use headwater_wire::{Body, Class, Datagram, NodeInfo, SYMBOL_OVERHEAD};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Part of a link that trees may use: the rest is for heartbeats, for messages between nodes and controller, and for
/// queues to empty.
const FOR_TREES: f64 = 0.99;
/// Bytes that Ethernet puts around an IP packet: preamble, addresses, type, check sequence and gap.
const ETHERNET: Bytes = Bytes::new(38);
/// However frames are made.
const MOST_FRAMING: Bytes = Bytes::new(1500);
/// UDP's header with that of IPv4, and with that of IPv6.
const IP_UDP: [Bytes; 2] = [Bytes::new(28), Bytes::new(48)];
/// More trees than this bring nothing that a host's cables could carry.
const MOST_TREES: usize = 32;

/// A network, and where nodes are in it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Its cables.
    pub fabric: FabricSpec,
    /// The addresses of its hosts, in the order of their numbers.
    pub hosts: Vec<HostAddresses>,
    /// Behaviour of its switches where trees branch.
    #[serde(default)]
    pub switches: Switches,
    /// Most trees for one cast; as many as there are, if nothing is stated.
    #[serde(default)]
    pub trees: Option<u8>,
    /// Bytes that a frame has around an IP packet where the fabric's rates count them; 38, Ethernet's with preamble and gap, if
    /// nothing is said. Trees are told how many symbols their links carry.
    #[serde(default)]
    pub framing: Option<Bytes>,
    /// How nodes are told that a tree was rerouted.
    #[serde(default)]
    pub signalling: SignallingMode,
    /// Every port on the way from a host to another grants rates (PAM), those of hosts too: casts may go at these.
    #[serde(default)]
    pub computes_rates: bool,
    /// How long these ports let packets wait, all on a way together (PAM q0), as in `"20 ms"`: only a longer queue is a sign of one that
    /// grants nothing. A round trip or less needs no mention.
    #[serde(default)]
    pub tolerated_queue: LinkDelay,
}

/// How nodes that are on a tree already are told that it was rerouted (Datacast §III).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignallingMode {
    /// Each by its own connection to the controller, all at once. For 16 nodes on links full of symbols that takes as long as down a
    /// tree, and depends on no other node.
    #[default]
    Direct,
    /// Down a tree: the source splits one message among nodes, and they among others.
    Tree,
}

/// The addresses of a host: one, or one for each of its cables in their order, and behind these any others that its node may be known by.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum HostAddresses {
    /// The same by whichever cable.
    One(IpAddr),
    /// By cable.
    Several(Vec<IpAddr>),
}

impl HostAddresses {
    fn all(&self) -> &[IpAddr] {
        match self {
            HostAddresses::One(address) => core::slice::from_ref(address),
            HostAddresses::Several(all) => all,
        }
    }
}

/// Errors in a network that somebody has written down.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The cables.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Not as many hosts as the fabric has.
    #[error("addresses of {given} hosts are given, the fabric has {needed}")]
    Hosts {
        /// With addresses.
        given: usize,
        /// In the fabric.
        needed: usize,
    },
    /// A host has neither one address nor one for each cable.
    #[error("host {host} has {given} addresses: one is needed, or one for each of its {cables} cables")]
    Addresses {
        /// Its number.
        host: usize,
        /// How many are given.
        given: usize,
        /// Its cables.
        cables: usize,
    },
    /// More around a packet than in it.
    #[error(
        "framing = {given}: at most {} bytes are possible around an IP packet; Ethernet has 38 with preamble and gap, 14 without", MOST_FRAMING.get()
    )]
    Framing {
        /// Bytes, as given.
        given: u64,
    },
    /// An address stands for two hosts.
    #[error("{address} is the address of two hosts")]
    Twice {
        /// The address.
        address: IpAddr,
    },
}

/// The network, as far as is known.
pub(crate) struct Network {
    topology: Topology,
    switches: Switches,
    framing: Bytes,
    /// Most trees for one cast.
    pub(crate) most_trees: usize,
    pub(crate) signalling: SignallingMode,
    /// Its switches grant rates.
    pub(crate) computes_rates: bool,
    pub(crate) tolerated_queue: Duration,
    addresses: Vec<Vec<IpAddr>>,
    by_address: BTreeMap<IpAddr, HostId>,
    /// Until when a link counts as cut.
    cut: BTreeMap<LinkId, Time>,
}

impl NetworkSpec {
    /// Whether it can be.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn check(&self) -> Result<(), NetworkError> {
        Network::new(self).map(drop)
    }
}

impl Network {
    pub(crate) fn new(spec: &NetworkSpec) -> Result<Network, NetworkError> {
        // Packet size for rates that count packets.
        let topology = spec.fabric.build(Bytes::new(1500))?;
        let needed = topology.hosts().len();
        if spec.hosts.len() != needed {
            return Err(NetworkError::Hosts { given: spec.hosts.len(), needed });
        }
        let framing = spec.framing.unwrap_or(ETHERNET);
        if framing > MOST_FRAMING {
            return Err(NetworkError::Framing { given: framing.get() });
        }
        let mut by_address = BTreeMap::new();
        for (host, addresses) in spec.hosts.iter().enumerate() {
            let (given, cables) =
                (addresses.all().len(), topology.fabric().leaving(topology.hosts()[host]).len());
            if given == 0 || (given > 1 && given < cables) {
                return Err(NetworkError::Addresses { host, given, cables });
            }
            for address in addresses.all() {
                if by_address.insert(*address, HostId(host as u32)).is_some() {
                    return Err(NetworkError::Twice { address: *address });
                }
            }
        }
        let addresses = spec.hosts.iter().map(|addresses| addresses.all().to_vec()).collect();
        Ok(Network {
            topology,
            switches: spec.switches,
            framing,
            most_trees: spec.trees.map_or(MOST_TREES, |trees| usize::from(trees).clamp(1, MOST_TREES)),
            signalling: spec.signalling,
            computes_rates: spec.computes_rates,
            tolerated_queue: spec.tolerated_queue.0,
            addresses,
            by_address,
            cut: BTreeMap::new(),
        })
    }

    /// Where a node stands.
    pub(crate) fn host_of(&self, info: &NodeInfo) -> Option<HostId> {
        let said = info.data.iter().chain(&info.listen).map(|at| at.ip());
        info.seen
            .into_iter()
            .chain(said)
            .find_map(|address| self.by_address.get(&address.to_canonical()).copied())
    }

    /// The rate of the first link that leaves a host, if it is stated.
    pub(crate) fn line_of(&self, host: HostId) -> Option<BitRate> {
        let fabric = self.topology.fabric();
        let leaving = fabric.leaving(*self.topology.hosts().get(host.index())?);
        fabric.link(*leaving.first()?)?.capacity
    }

    /// Bytes that links carry around a datagram above UDP.
    pub(crate) fn around(&self) -> Bytes {
        let ipv6 = self.by_address.keys().any(IpAddr::is_ipv6);
        self.framing + IP_UDP[usize::from(ipv6)]
    }

    /// A host's address on one of its cables.
    pub(crate) fn address(&self, host: HostId, port: usize) -> IpAddr {
        let all = &self.addresses[host.index()];
        all[if all.len() == 1 { 0 } else { port.min(all.len() - 1) }]
    }

    /// The cable of a link, by the smaller number of its two links.
    pub(crate) fn cable(&self, link: LinkId) -> LinkId {
        let back = self.topology.fabric().link(link).and_then(|it| it.back);
        back.map_or(link, |back| back.min(link))
    }

    /// A cable carries nothing, it seems.
    pub(crate) fn cut(&mut self, now: Time, cable: LinkId, lasts: Duration) {
        let back = self.topology.fabric().link(cable).and_then(|it| it.back);
        self.cut.extend([Some(cable), back].into_iter().flatten().map(|link| (link, now + lasts)));
    }

    /// The network as it is now, without the hosts that nobody is at.
    fn now(&mut self, now: Time, is_there: impl Fn(HostId) -> bool) -> Topology {
        self.cut.retain(|_, until| *until > now);
        let mut topology = self.topology.clone();
        self.cut.keys().for_each(|link| _ = topology.set_down(*link, true));
        for (host, point) in (0..).map(HostId).zip(self.topology.hosts()) {
            if !is_there(host) {
                let leaving = self.topology.fabric().leaving(*point);
                leaving.iter().for_each(|link| _ = topology.set_cable_down(*link, true));
            }
        }
        topology
    }

    /// Trees from a source to these receivers, and the receivers that it does not reach. `known` are the trees that there were for
    /// the same receivers: those that still are, stay.
    pub(crate) fn trees(
        &mut self,
        now: Time,
        source: HostId,
        receivers: &[HostId],
        known: Vec<SteinerTree>,
        is_there: impl Fn(HostId) -> bool,
    ) -> (Vec<SteinerTree>, Vec<HostId>) {
        let topology = self.now(now, is_there);
        let Ok(group) = Group::new(&topology, source, receivers) else { return (Vec::new(), Vec::new()) };
        let lost = trees::unreachable(&topology, &group);
        if lost.is_empty() {
            let found = match known.is_empty() {
                true => trees::disjoint(&topology, &group),
                false => trees::repair(&topology, &group, known).trees,
            };
            return (found, lost);
        }
        let reached: BTreeSet<HostId> =
            receivers.iter().copied().filter(|host| !lost.contains(host)).collect();
        let reached: Vec<HostId> = reached.into_iter().collect();
        let found = Group::new(&topology, source, &reached).map(|group| trees::disjoint(&topology, &group));
        (found.unwrap_or_default(), lost)
    }

    /// Rate of each of these trees when all send at the same time ([`headwater_wire::FlowRole::Tree`]), by place;
    /// `None` where no rate of its links is stated.
    pub(crate) fn rates(&self, trees: &[SteinerTree], symbol_size: u16) -> Vec<Option<BitRate>> {
        let around = self.around();
        let name = SymbolId { block: BlockIndex(0), esi: Esi(0) };
        let (class, flow, body) = (Class::Control, FlowId(0), Body::Interest(name.into()));
        let interest = Datagram { class, key_epoch: 0, flow, body }.len(0);
        let counted = Bytes::new(u64::from(symbol_size) + SYMBOL_OVERHEAD as u64);
        let sizes =
            PacketSizes { counted, symbol: counted + around, interest: Bytes::new(interest as u64) + around };
        let rate = |link| Some(self.topology.fabric().link(link)?.capacity?.mul_f64(FOR_TREES));
        trees::rates(&self.topology, trees, self.switches, sizes, rate)
    }

    /// Order in which these hosts tell each other if a host begins, each at most `fan_out` others.
    pub(crate) fn tellings(
        &mut self,
        now: Time,
        root: HostId,
        fan_out: usize,
        takes_part: impl Fn(HostId) -> bool,
    ) -> Vec<Telling> {
        trees::signalling(&self.now(now, |_| true), root, fan_out, takes_part)
    }

    /// How hosts hand on what comes down a tree.
    pub(crate) fn hops(&self, tree: &SteinerTree) -> Vec<Hop> {
        trees::hops(&self.topology, tree, self.switches)
    }
}

/// The fewest cables that explain why these hops are silent, each by the cables that it crosses, if those that others are heard over
/// are well. Where several explain as much, all of these.
pub(crate) fn fewest(silent: Vec<BTreeSet<LinkId>>, heard: &BTreeSet<LinkId>) -> BTreeSet<LinkId> {
    // Where each cable is heard over and the hop is silent all the same, the node at its end is.
    let suspects = |cables: BTreeSet<LinkId>| if cables.is_subset(heard) { cables } else { &cables - heard };
    let mut silent: Vec<BTreeSet<LinkId>> = silent.into_iter().map(suspects).collect();
    let mut cut = BTreeSet::new();
    while !silent.is_empty() {
        let mut explains: BTreeMap<LinkId, usize> = BTreeMap::new();
        silent.iter().flatten().for_each(|cable| *explains.entry(*cable).or_default() += 1);
        let most = explains.values().max().copied().unwrap_or(0);
        cut.extend(explains.iter().filter(|(_, count)| **count == most).map(|(cable, _)| *cable));
        silent.retain(|cables| cables.is_disjoint(&cut) && !cables.is_empty());
    }
    cut
}

#[cfg(test)]
mod tests {
    use headwater_fabric::{BigSwitchSpec, LinkDelay};
    use headwater_units::BitRate;

    use super::*;

    fn spec(hosts: u32, addresses: &[&[u8]]) -> NetworkSpec {
        let address = |n: &u8| IpAddr::from([10, 0, 0, *n]);
        let of = |all: &&[u8]| HostAddresses::Several(all.iter().map(address).collect());
        let rate = BitRate::new(1_000_000_000).into();
        let fabric = BigSwitchSpec {
            hosts,
            rate,
            delay: LinkDelay::ZERO,
            uplinks: BTreeMap::new(),
            downlinks: BTreeMap::new(),
        };
        NetworkSpec {
            fabric: FabricSpec::BigSwitch(fabric),
            hosts: addresses.iter().map(of).collect(),
            switches: Switches::Plain,
            trees: None,
            framing: None,
            signalling: SignallingMode::Direct,
            computes_rates: false,
            tolerated_queue: LinkDelay::ZERO,
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        assert_eq!(spec(2, &[&[1], &[2]]).check(), Ok(()));
        for (wrong, must_say) in [
            (spec(3, &[&[1], &[2]]), "2 hosts"),
            (spec(2, &[&[1], &[]]), "host 1 has 0 addresses"),
            (spec(2, &[&[1], &[2, 1]]), "10.0.0.1 is the address of two hosts"),
            (NetworkSpec { framing: Some(Bytes::new(u64::MAX)), ..spec(1, &[&[1]]) }, "at most 1500 bytes"),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.contains(must_say), "{error}");
        }
    }

    #[test]
    fn one_cable_explains_what_it_can_and_what_is_heard_over_is_well() {
        let cables = |all: &[u32]| all.iter().copied().map(LinkId).collect::<BTreeSet<_>>();
        let of = |silent: &[&[u32]], heard: &[u32]| {
            fewest(silent.iter().map(|hop| cables(hop)).collect(), &cables(heard))
        };
        assert_eq!(of(&[&[1, 2]], &[1, 3]), cables(&[2]), "one end is heard elsewhere");
        assert_eq!(of(&[&[1, 2]], &[]), cables(&[1, 2]), "nobody can tell");
        assert_eq!(of(&[&[1, 2], &[2, 3], &[2, 4]], &[]), cables(&[2]), "one node is gone");
        assert_eq!(of(&[&[1, 2], &[2, 3], &[5, 6]], &[6]), cables(&[2, 5]));
        assert_eq!(of(&[&[1, 2]], &[1, 2]), cables(&[1, 2]), "it is its node that is silent");
        assert_eq!(of(&[], &[1]), cables(&[]));
    }

    #[test]
    fn what_trees_may_send_leaves_room_for_interests_headers_and_a_little() {
        let rates = |spec: NetworkSpec, receivers: &[u32]| {
            let mut network = Network::new(&spec).unwrap();
            let hosts: Vec<HostId> = receivers.iter().copied().map(HostId).collect();
            let (trees, _) = network.trees(Time::ZERO, HostId(0), &hosts, Vec::new(), |_| true);
            network.rates(&trees, 1424)
        };
        let all = || spec(3, &[&[1], &[2], &[3]]);
        // A chain: what one host hands on and what it asks for leave by the same cable.
        let carries = |frame: u64| vec![Some(BitRate::new(990_000_000 * 1472 / frame))];
        assert_eq!(rates(all(), &[1, 2]), carries(1538 + 98));
        assert_eq!(rates(all(), &[1]), carries(1538));
        assert_eq!(rates(NetworkSpec { framing: Some(Bytes::new(14)), ..all() }, &[1]), carries(1514));
    }

    #[test]
    fn a_cut_cable_is_no_way_until_its_time_is_up() {
        let mut network = Network::new(&spec(4, &[&[1], &[2], &[3], &[4]])).unwrap();
        let hosts = [HostId(1), HostId(2), HostId(3)];
        let trees = |network: &mut Network, now| network.trees(now, HostId(0), &hosts, Vec::new(), |_| true);
        let (whole, lost) = trees(&mut network, Time::ZERO);
        assert_eq!((whole.len(), lost.len()), (1, 0));
        let into = *whole[0].links().iter().find(|it| it.to == network.topology.hosts()[2]).unwrap();
        let cable = network.cable(into.link);
        network.cut(Time::ZERO, cable, Duration::from_secs(1));
        let (less, lost) = trees(&mut network, Time::ZERO);
        assert_eq!((network.hops(&less[0]).len(), lost), (2, vec![HostId(2)]));
        let (again, lost) = trees(&mut network, Time::ZERO + Duration::from_secs(2));
        assert_eq!((again, lost.len()), (whole, 0));
        let (_, lost) = network.trees(Time::ZERO, HostId(0), &hosts, Vec::new(), |host| host != HostId(3));
        assert!(lost.contains(&HostId(3)), "nobody is there");
    }
}
