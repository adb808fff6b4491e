//! The path of a message: from one machine's `Transmit` to another machine's input.
//!
//! The message waits in a table while its frame goes through the network; or, if the set-up says so, it travels beside the network. A
//! path is an endpoint, or a group of them ([`Delivery::group`]), or a segment of a tree.

use headwater_machine::Packet;
use headwater_switch::{Choice, LinkChange, TreeNode, TreeWord, Walk};
use headwater_units::{Bytes, PathId, Time};
use headwater_wire::{Body, Ecn};
use rand::SeedableRng;
use rand::distr::uniform::{UniformInt, UniformSampler};
use rand_chacha::ChaCha8Rng;

use super::Event;
use super::agenda::Agenda;
use super::carry::Cargo;
use super::frame::{Bodies, FrameSizes, SimFrame};
use super::groups::GROUP;
use super::network::{Ground, Network};
use super::path_numbers::paths_between;
use super::segments::{End, SEGMENT, is_segment};
use super::setup::{ControlPlane, Jitter, Setup, SetupError, Transport};

/// Frames in flight, messages put aside, and everything else that is still to happen.
pub(super) struct Delivery {
    pub(super) agenda: Agenda<Event>,
    pub(super) bodies: Bodies,
    pub(super) network: Network,
    /// True bytes, where a run carries them.
    pub(super) cargo: Option<Cargo>,
    pub(super) rng: ChaCha8Rng,
    sizes: FrameSizes,
    control: ControlPlane,
    jitter: Jitter,
    /// The host of each endpoint.
    hosts: Vec<u32>,
    /// By host: when its last packet leaves its machines.
    launched: Vec<u64>,
    /// By pair of hosts: what a packet from the one to the other is held back at most, once it was asked for.
    jitters: Vec<u32>,
    /// By pair of hosts, where sources choose the paths: which one the next packet takes, once there was a first.
    walks: Vec<Option<Box<Spraying>>>,
    /// For the walks alone, so that they change nothing else that is drawn.
    walks_rng: ChaCha8Rng,
    /// Where trees branch, by number.
    pub(super) nodes: Vec<TreeNode<Packet, u32>>,
    /// Packets that a node has just sent, each with its path.
    outgoing: Vec<(u32, Packet)>,
}

/// How a host's packets to another one spread over the paths between them.
struct Spraying {
    paths: u16,
    walk: Walk,
}

impl Delivery {
    pub(super) fn new(setup: &Setup) -> Result<Self, SetupError> {
        let hosts = setup.topology.hosts().len();
        let pairs = if setup.jitter == Jitter::PacketOnPath { hosts * hosts } else { 0 };
        let sprayed = if matches!((setup.choice)(0), Choice::Path { .. }) { hosts * hosts } else { 0 };
        let mut bodies = Bodies::default();
        if setup.carry_bytes {
            bodies.note_forks();
        }
        Ok(Delivery {
            agenda: Agenda::new(),
            bodies,
            network: Network::new(&ground(setup))?,
            cargo: setup.carry_bytes.then(|| Cargo::new(setup.seed)),
            rng: ChaCha8Rng::seed_from_u64(setup.seed ^ 0x6a69_7474_6572),
            sizes: setup.sizes,
            control: setup.control,
            jitter: setup.jitter,
            hosts: Vec::new(),
            launched: vec![0; hosts],
            jitters: vec![u32::MAX; pairs],
            walks: std::iter::repeat_with(|| None).take(sprayed).collect(),
            walks_rng: ChaCha8Rng::seed_from_u64(setup.seed ^ 0x0073_7072_6179),
            nodes: Vec::new(),
            outgoing: Vec::new(),
        })
    }

    /// One more endpoint, numbered in order.
    pub(super) fn settle(&mut self, host: u32) {
        self.hosts.push(host);
    }

    /// A machine sends.
    pub(super) fn send(&mut self, setup: &Setup, now: Time, from: u32, mut packet: Packet) {
        let to = std::mem::replace(&mut packet.path, PathId(from)).0;
        match self.hosts.get(to as usize) {
            Some(&host) => self.dispatch(setup, now, from, to, (host, host), packet),
            None if is_segment(to) => self.send_along(now, to, packet),
            None => self.send_to_group(setup, now, from, to, packet),
        }
    }

    /// A message leaves a host: to its end, by the path to this host.
    // The message is looked at where it is, and moved once.
    #[inline(always)]
    fn dispatch(
        &mut self,
        setup: &Setup,
        now: Time,
        from: u32,
        to: u32,
        (target, to_host): (u32, u32),
        packet: Packet,
    ) {
        let here = self.hosts[from as usize];
        let flow = packet.datagram.flow.0;
        let is_control = matches!(packet.datagram.body, Body::Control(_));
        let frame = self.sizes.frame(&packet, target);
        let body = self.put(packet, to);
        if is_control
            && target == to_host
            && let Some(delay) = self.control.delay()
        {
            return self.agenda.push((now + delay).as_nanos(), Event::Deliver { body });
        }
        if to_host == here {
            return self.agenda.push(now.as_nanos(), Event::Deliver { body });
        }
        let hash = match self.walks.is_empty() {
            true => hash(flow, from, to),
            false => self.path_of_next(setup, here, to_host),
        };
        let at = if self.jitter == Jitter::None { now } else { self.hold_back(setup, now, here, to_host) };
        let frame = frame.carrying(body).with_hash(hash);
        self.network.launch(at, here, frame, &mut self.agenda, &mut self.bodies);
    }

    /// Keeps a message that leaves, with its true bytes if a run carries them.
    #[inline(always)]
    fn put(&mut self, packet: Packet, to: u32) -> u32 {
        let body = self.bodies.put(packet, to);
        if self.cargo.is_some() {
            self.load(body);
        }
        body
    }

    #[cold]
    fn load(&mut self, body: u32) {
        if let Some(cargo) = &mut self.cargo {
            cargo.forked(self.bodies.take_forks());
            cargo.sent(body, &self.bodies.get(body).packet);
        }
    }

    /// A path that stands for these endpoints, each on a host of its own: what is sent on it is sent once and comes to all of
    /// them.
    pub(super) fn group(&mut self, members: &[u32]) -> PathId {
        let members: Vec<(u32, u32)> = members.iter().map(|&it| (self.hosts[it as usize], it)).collect();
        self.network.groups.add(&members)
    }

    /// A message to a group goes by the path to its farthest member. A member at the host that sends has it at once.
    #[inline(never)]
    fn send_to_group(&mut self, setup: &Setup, now: Time, from: u32, path: u32, packet: Packet) {
        let here = self.hosts[from as usize];
        if let Some(endpoint) = self.network.groups.endpoint(path, here) {
            self.dispatch(setup, now, from, endpoint, (here, here), packet.clone());
        }
        let sprays = !self.walks.is_empty();
        let paths = |host| if sprays { paths_between(&setup.topology, &setup.routes, here, host) } else { 1 };
        let groups = &mut self.network.groups;
        if let (Some(others), Some(host)) = (groups.others(path, here), groups.farthest(path, here, paths)) {
            self.dispatch(setup, now, from, path, (others, host), packet);
        }
    }

    /// A message goes along a segment of a tree. Hosts take no time to send it: its source has a rate to keep.
    fn send_along(&mut self, now: Time, path: u32, packet: Packet) {
        let frame = self.sizes.frame(&packet, path);
        let body = self.put(packet, path);
        let Some(link) = self.network.segments.first(path) else {
            return self.agenda.push(now.as_nanos(), Event::Deliver { body });
        };
        let frame = frame.carrying(body);
        self.network.launch_on(now, link, frame, &mut self.agenda, &mut self.bodies);
    }

    /// A message has come to a node of its tree, by a segment: on it goes, or what answers it.
    pub(super) fn pass_on(&mut self, now: Time, node: u32, path: u32, packet: Packet) {
        let Some(word) = TreeWord::of(&packet.datagram.body) else { return };
        let bytes = Bytes::new(self.sizes.of(&packet).into());
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let from = path ^ 1;
        self.nodes[node as usize].handle(&from, word, packet, bytes, |to, packet| {
            outgoing.push((*to, packet.clone()));
        });
        for (to, packet) in outgoing.drain(..) {
            self.send_along(now, to, packet);
        }
        self.outgoing = outgoing;
    }

    /// The number of the path that the next packet from one host to another takes.
    fn path_of_next(&mut self, setup: &Setup, from: u32, to: u32) -> u32 {
        let place = &mut self.walks[from as usize * self.launched.len() + to as usize];
        let spraying = place.get_or_insert_with(|| {
            let paths = paths_between(&setup.topology, &setup.routes, from, to);
            Box::new(Spraying { paths, walk: Walk::default() })
        });
        u32::from(spraying.walk.step(spraying.paths, &mut self.walks_rng))
    }

    /// When a packet that is sent now leaves its host's machines: later by a random part of the jitter, but never before what
    /// the host sent earlier, so that the queue of its NIC may be told at once.
    // Once for every packet; a call costs a third of what it does.
    #[inline(always)]
    fn hold_back(&mut self, setup: &Setup, now: Time, from: u32, to: u32) -> Time {
        let most = match self.jitter {
            Jitter::None => 0,
            Jitter::UpTo(most) => most.as_nanos(),
            Jitter::PacketOnPath => {
                let place = &mut self.jitters[from as usize * self.launched.len() + to as usize];
                if *place == u32::MAX {
                    *place = setup.packet_on_path(from, to).as_nanos().min(u64::from(u32::MAX - 1)) as u32;
                }
                u64::from(*place)
            }
        };
        // As `random_range(0..=most)`, which is not inlined.
        let drawn = UniformInt::<u64>::sample_single_inclusive(0, most, &mut self.rng);
        let drawn = drawn.expect("zero is not above anything");
        let last = &mut self.launched[from as usize];
        *last = (*last).max(now.as_nanos() + drawn);
        Time::from_nanos(*last)
    }

    /// A frame has crossed a link. Whether it has come to its end.
    #[inline(always)]
    pub(super) fn arrive(&mut self, now: Time, link: u32, frame: SimFrame) -> bool {
        self.network.arrive(now, link, frame, &mut self.agenda, &mut self.bodies)
    }

    /// The departure event of a link has come. Says which frame has crossed the link, if one has and is next.
    pub(super) fn serve(&mut self, now: Time, link: u32) -> Option<SimFrame> {
        self.network.serve_due(now, link, &mut self.agenda, &mut self.bodies)
    }

    /// A link behaves otherwise from now on.
    pub(super) fn change(&mut self, now: Time, link: u32, change: LinkChange) {
        self.network.change(now, link, change, &mut self.agenda, &mut self.bodies);
    }

    /// Takes a message that has come to its end, perhaps marked or cut.
    pub(super) fn take(&mut self, body: u32, ecn: Ecn, cut: bool) -> Packet {
        let packet = self.bodies.take(body, ecn, cut);
        let Some(cargo) = &mut self.cargo else { return packet };
        cargo.forked(self.bodies.take_forks());
        cargo.arrived(body, packet)
    }

    /// The end that a message is for, which came over this link, if over any; `None` if its segment does not exist.
    #[inline]
    pub(super) fn end(&self, to: u32, link: u32) -> Option<End> {
        match to {
            ..SEGMENT => Some(End::Endpoint(to)),
            SEGMENT..GROUP => self.network.segments.end(to),
            GROUP.. => Some(End::Endpoint(self.network.member_at(to, link))),
        }
    }
}

/// The parts of a set-up from which its network is built.
fn ground(setup: &Setup) -> Ground<'_> {
    Ground {
        topology: &setup.topology,
        routes: &setup.routes,
        port: &*setup.port,
        choice: &*setup.choice,
        on_trees: matches!(&setup.transport, Transport::Coded(coded) if coded.trees.is_some()),
        tallied: setup.drain.is_some(),
        seed: setup.seed,
    }
}

/// Spreads flows over the numbers; switches mix it further with salts of their own.
#[inline]
pub(super) fn hash(flow: u64, from: u32, to: u32) -> u32 {
    let ends = (u64::from(from) << 32 | u64::from(to)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((flow ^ ends).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}
