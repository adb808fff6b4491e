//! Packets in transit between the hosts of a cast, and control messages between them and the controller, which travel beside the network.
//!
//! A path is a host by its number, or a group by the number that [`Transit::group_at`] gives it. Hosts join and leave groups. The
//! network's own groups never change, so each set of members that something is sent to becomes one of those.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use headwater_fabric::{Routes, Topology};
use headwater_machine::Packet;
use headwater_units::{Bytes, Duration, PathId, Time};
use headwater_wire::{Body, Class, Control, Datagram, Ecn, Probe};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::Event;
use super::super::agenda::Agenda;
use super::super::delivery::hash;
use super::super::frame::{Bodies, SimFrame};
use super::super::groups::GROUP;
use super::super::network::Network;
use super::super::setup::{Jitter, packet_on_path};
use super::IP_UDP;
use super::setup::CastSetup;

/// The controller, where hosts have numbers.
pub(super) const CONTROLLER: u32 = GROUP - 1;
/// The path to nowhere, of those who send on trees.
pub(super) const NOWHERE: u32 = GROUP - 2;
/// Groups have numbers from here on, as paths.
const GROUPS: u32 = 1 << 30;
/// Most hosts of a multicast group.
pub const MOST_MEMBERS: usize = 64;

/// Destination of a path.
enum Meant {
    Host(u32),
    /// A membership, and its farthest member.
    Group {
        path: u32,
        others: u32,
        host: u32,
    },
}

struct GroupAt {
    at: SocketAddr,
    members: BTreeSet<u32>,
    /// Of the network, while nobody has joined or left since.
    path: Option<PathId>,
}

/// A packet that has arrived, and where.
pub(super) struct Arrived {
    /// A host, or [`CONTROLLER`].
    pub(super) at: u32,
    pub(super) brought: Brought,
}

/// A packet that has come.
#[derive(Clone)]
pub(super) struct Brought {
    /// Its path is who sent it.
    pub(super) packet: Packet,
    /// It was sent as these.
    pub(super) bytes: Option<Arc<[u8]>>,
    /// Its payload is not that of the symbol that it names.
    pub(super) wrong: bool,
}

pub(super) struct Transit {
    pub(super) agenda: Agenda<Event>,
    pub(super) network: Network,
    bodies: Bodies,
    /// Packets and messages so far.
    pub(super) sent: u64,
    /// Of datagrams that travel as bytes, by the place of their message.
    raw: BTreeMap<u32, Arc<[u8]>>,
    /// Places of messages with a symbol whose bytes are wrong.
    wrong: BTreeSet<u32>,
    groups: Vec<GroupAt>,
    /// Bytes around a datagram on a line.
    around: usize,
    control_delay: Duration,
    /// Hosts whose messages to and from the controller wait.
    cut_off: BTreeSet<u32>,
    /// These messages in the order in which they were sent: from whom, to whom.
    waiting: Vec<(u32, u32, Control)>,
    jitter: Jitter,
    rng: ChaCha8Rng,
    /// By host: when its last packet leaves its machines.
    launched: Vec<u64>,
    /// By pair of hosts: what a packet is held back at most, once it was asked for.
    held_back: Vec<u32>,
}

impl Transit {
    pub(super) fn new(network: Network, setup: &CastSetup) -> Self {
        let CastSetup { control_delay, jitter, seed, .. } = *setup;
        let hosts = setup.topology.hosts().len();
        let pairs = if jitter == Jitter::PacketOnPath { hosts * hosts } else { 0 };
        let mut bodies = Bodies::default();
        bodies.note_forks();
        Transit {
            agenda: Agenda::new(),
            network,
            bodies,
            sent: 0,
            raw: BTreeMap::new(),
            wrong: BTreeSet::new(),
            groups: Vec::new(),
            around: (IP_UDP + setup.framing.get()) as usize,
            control_delay,
            cut_off: BTreeSet::new(),
            waiting: Vec::new(),
            jitter,
            rng: ChaCha8Rng::seed_from_u64(seed ^ 0x6a69_7474_6572),
            launched: vec![0; hosts],
            held_back: vec![u32::MAX; pairs],
        }
    }

    /// Packets and messages on their way.
    pub(super) fn under_way(&self) -> usize {
        self.bodies.len()
    }

    // ---- groups

    /// The path to a group.
    pub(super) fn group_at(&mut self, at: SocketAddr) -> PathId {
        PathId(GROUPS + self.group(at) as u32)
    }

    fn group(&mut self, at: SocketAddr) -> usize {
        self.groups.iter().position(|group| group.at == at).unwrap_or_else(|| {
            self.groups.push(GroupAt { at, members: BTreeSet::new(), path: None });
            self.groups.len() - 1
        })
    }

    pub(super) fn join(&mut self, host: u32, at: SocketAddr, joins: bool) {
        let group = self.group(at);
        let GroupAt { members, path, .. } = &mut self.groups[group];
        let changed = if joins { members.insert(host) } else { members.remove(&host) };
        if changed {
            *path = None;
        }
    }

    /// A process has ended: its host hears no group any more.
    pub(super) fn leave_all(&mut self, host: u32) {
        for group in &mut self.groups {
            if group.members.remove(&host) {
                group.path = None;
            }
        }
    }

    /// Nobody is meant by a path to nowhere, nor by one to a group without other members.
    fn meant(&mut self, from: u32, path: PathId) -> Option<Meant> {
        if path.0 < GROUPS {
            return Some(Meant::Host(path.0));
        }
        let GroupAt { members, path, .. } = self.groups.get_mut((path.0 - GROUPS) as usize)?;
        let host = *members.iter().find(|member| **member != from)?;
        let path = path.get_or_insert_with(|| {
            let members: Vec<(u32, u32)> = members.iter().take(MOST_MEMBERS).map(|it| (*it, *it)).collect();
            self.network.groups.add(&members)
        });
        let others = self.network.groups.others(path.0, from)?;
        Some(Meant::Group { path: path.0, others, host })
    }

    // ---- what is sent

    /// A host sends a packet by a path; `bytes` is its length above UDP, `wrong`: they are not the symbol's that it names.
    #[inline]
    pub(super) fn send(
        &mut self,
        view: &NetworkView<'_>,
        now: Time,
        from: u32,
        mut packet: Packet,
        (bytes, wrong): (usize, bool),
    ) {
        let path = std::mem::replace(&mut packet.path, PathId(from));
        match self.meant(from, path) {
            Some(meant) => self.launch(view, now, from, meant, packet, (bytes, wrong)),
            None => self.network.faults.unroutable += 1,
        }
    }

    /// The same of a datagram that travels as bytes.
    pub(super) fn send_bytes(
        &mut self,
        view: &NetworkView<'_>,
        now: Time,
        from: u32,
        path: PathId,
        bytes: Arc<[u8]>,
    ) {
        let Some(meant) = self.meant(from, path) else { return };
        let body = Body::Probe(Probe { number: 0, bytes: Probe::SHORTEST, fits: None });
        let flow = headwater_wire::peek_flow(&bytes).unwrap_or_default();
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
        let packet = Packet { path: PathId(from), ecn: Ecn::NotEct, datagram };
        let (to, len) = (meant.place(), bytes.len());
        let place = self.put(packet, to, Some(bytes));
        self.launch_put(view, now, from, meant, place, (len, Class::Control, Ecn::NotEct, flow.0, false));
    }

    fn put(&mut self, packet: Packet, to: u32, bytes: Option<Arc<[u8]>>) -> u32 {
        self.follow_forks();
        self.sent += 1;
        let place = self.bodies.put(packet, to);
        match bytes {
            Some(bytes) => _ = self.raw.insert(place, bytes),
            None if !self.raw.is_empty() => _ = self.raw.remove(&place),
            None => {}
        }
        if !self.wrong.is_empty() {
            self.wrong.remove(&place);
        }
        place
    }

    /// Entries by place go along with messages that were copied to places of their own.
    #[inline]
    fn follow_forks(&mut self) {
        for (from, to) in self.bodies.take_forks() {
            match self.raw.get(&from).cloned() {
                Some(bytes) => _ = self.raw.insert(to, bytes),
                None => _ = self.raw.remove(&to),
            }
            if !self.wrong.contains(&from) {
                self.wrong.remove(&to);
            } else {
                self.wrong.insert(to);
            }
        }
    }

    fn launch(
        &mut self,
        view: &NetworkView<'_>,
        now: Time,
        from: u32,
        meant: Meant,
        packet: Packet,
        (bytes, wrong): (usize, bool),
    ) {
        let Packet { ecn, datagram: Datagram { class, flow, body, .. }, .. } = &packet;
        let of = (bytes, *class, *ecn, flow.0, matches!(body, Body::Symbol(_) | Body::ScheduledSymbol(_)));
        let place = self.put(packet, meant.place(), None);
        if wrong {
            self.wrong.insert(place);
        }
        self.launch_put(view, now, from, meant, place, of);
    }

    #[inline]
    fn launch_put(
        &mut self,
        view: &NetworkView<'_>,
        now: Time,
        from: u32,
        meant: Meant,
        place: u32,
        (bytes, class, ecn, flow, whole): (usize, Class, Ecn, u64, bool),
    ) {
        let (to, host) = match meant {
            Meant::Host(host) if host == from => {
                return self.agenda.push(now.as_nanos(), Event::Deliver { body: place });
            }
            Meant::Host(host) => (host, host),
            Meant::Group { others, host, .. } => (others, host),
        };
        let frame = SimFrame::new(place, to, (bytes + self.around) as u32, class, ecn);
        let frame = frame.with_hash(hash(flow, from, host));
        let frame = if whole { frame.whole() } else { frame };
        let at = self.hold_back(view, now, from, host);
        self.network.launch(at, from, frame, &mut self.agenda, &mut self.bodies);
    }

    /// When a packet that is sent now leaves its host's machines: later by a random part of the jitter, but never before what the host
    /// sent earlier.
    fn hold_back(&mut self, view: &NetworkView<'_>, now: Time, from: u32, to: u32) -> Time {
        let most = match self.jitter {
            Jitter::None => return now,
            Jitter::UpTo(most) => most.as_nanos(),
            Jitter::PacketOnPath => {
                let place = &mut self.held_back[from as usize * self.launched.len() + to as usize];
                if *place == u32::MAX {
                    let most = packet_on_path(view.topology, view.routes, Bytes::new(1500), from, to);
                    *place = most.as_nanos().min(u64::from(u32::MAX - 1)) as u32;
                }
                u64::from(*place)
            }
        };
        let drawn = self.rng.random_range(0..=most);
        let last = &mut self.launched[from as usize];
        *last = (*last).max(now.as_nanos() + drawn);
        Time::from_nanos(*last)
    }

    /// A host and the controller say something to each other, beside the network.
    pub(super) fn say(&mut self, now: Time, from: u32, to: u32, control: Control) {
        if !self.cut_off.is_empty() && (self.cut_off.contains(&from) || self.cut_off.contains(&to)) {
            return self.waiting.push((from, to, control));
        }
        let body = self.put(Packet::control(PathId(from), control), to, None);
        self.agenda.push((now + self.control_delay).as_nanos(), Event::Deliver { body });
    }

    /// From now on messages between a host and the controller wait, or no longer.
    pub(super) fn cut_off(&mut self, now: Time, host: u32, cut: bool) {
        if cut {
            self.cut_off.insert(host);
        } else if self.cut_off.remove(&host) {
            for (from, to, control) in std::mem::take(&mut self.waiting) {
                self.say(now, from, to, control);
            }
        }
    }

    /// Something that has come to a host, or to the controller, comes once more. Says where it is kept until then.
    pub(super) fn again(&mut self, at: Time, to: u32, Brought { packet, bytes, wrong }: Brought) -> u32 {
        let place = self.put(packet, to, bytes);
        if wrong {
            self.wrong.insert(place);
        }
        self.agenda.push(at.as_nanos(), Event::Deliver { body: place });
        place
    }

    // ---- what comes

    /// A frame has crossed a link. Whether it has come to its end.
    #[inline(always)]
    pub(super) fn arrive(&mut self, now: Time, link: u32, frame: SimFrame) -> bool {
        self.network.arrive(now, link, frame, &mut self.agenda, &mut self.bodies)
    }

    /// The departure event of a link has come. Says which frame has crossed the link, if one has and is next.
    pub(super) fn serve(&mut self, now: Time, link: u32) -> Option<SimFrame> {
        self.network.serve_due(now, link, &mut self.agenda, &mut self.bodies)
    }

    pub(super) fn change(&mut self, now: Time, link: u32, change: super::super::LinkChange) {
        self.network.change(now, link, change, &mut self.agenda, &mut self.bodies);
    }

    /// Content of a frame that came to its end over this link, if over any.
    #[inline]
    pub(super) fn take(&mut self, place: u32, link: u32, ecn: Ecn, cut: bool) -> Arrived {
        self.follow_forks();
        let bytes = if self.raw.is_empty() { None } else { self.raw.get(&place).cloned() };
        let wrong = !self.wrong.is_empty() && self.wrong.contains(&place);
        let to = self.bodies.get(place).to;
        let packet = self.bodies.take(place, ecn, cut);
        let at = if to < GROUP { to } else { self.network.member_at(to, link) };
        Arrived { at, brought: Brought { packet, bytes, wrong } }
    }
}

impl Meant {
    /// Number of the host or path that its message is kept for.
    fn place(&self) -> u32 {
        match self {
            Meant::Host(host) => *host,
            Meant::Group { path, .. } => *path,
        }
    }
}

/// The network as a sender knows it.
pub(super) struct NetworkView<'a> {
    pub(super) topology: &'a Topology,
    pub(super) routes: &'a Routes,
}
