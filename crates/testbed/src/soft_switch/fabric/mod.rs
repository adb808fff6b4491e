//! The emulated network without its I/O: frames in at one host, frames out at others, each when its time has come.
//!
//! The network is that of the packet simulator, put together from the same parts. Every directed link has one egress
//! port at its near end: a host's NIC is a [`Port`], and a switch is a [`Switch`](headwater_switch::Switch) that holds
//! its frames. Behind the port are the link's delay and its [faults](LinkFaults). Only the sender differs: a driver
//! reads whole frames from real hosts.
//!
//! ```text
//!  inject -> NIC (Port) --link--> Switch --link--> ... --link--> poll: Deliver { host, due, frame }
//!                        delay, faults    delay, faults
//! ```
//!
//! Everything has its own time. A frame's departure follows from the line's schedule, its arrival from that and the
//! delay, and it is offered to the next queue at that time, however late the driver asks. So a driver that wakes late
//! loses no rate, and sees from `due` how late it is. The output and its order depend on what was put in and when, and
//! not on when anybody polled: before anything is put in, all that is due by then happens first.
//!
//! At one and the same nanosecond departures come before arrivals, NICs before switches, each by number; arrivals come in
//! the order of their departures.
//!
//! Queues are bounded by their ports' limits. On a link there is no more than what its line sends within its delay, and
//! within the time by which frames are held back, twice at most.
//!
//! Hosts do not forward, as in the simulator, so networks that are made of hosts (BCube, torus) carry what is for a neighbour
//! only, unless those who drive them do ([`EmulatedFabric::let_hosts_forward`]).
//!
//! Not here: where frames come from and go to, and what their bytes mean.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_fabric::{HostId, LinkId, PointId, Routes, Topology};
use headwater_switch::{
    AllocatorView, Choice, Destination, Fate, FaultCounts, Frame, LinkChange, LinkFaults, Offered, Port,
    PortConfig, PortError, PortIndex, PortStats, RateAllocator, Seen, SwitchError, SwitchOutput,
};
use headwater_units::{Duration, Time};
use headwater_wire::Class;
use thiserror::Error;

mod due;
mod keeping;
mod tree;
mod wiring;

use due::Due;
use keeping::Keeping;
use wiring::{Far, Link, Near, Nic, SwitchAt, Wiring};

/// Output of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricOutput<F> {
    /// A frame has come to a host.
    Deliver {
        /// The host.
        host: HostId,
        /// By which of its cables, counted as its links leave it.
        cable: usize,
        /// When its last bit came; how long ago that is now is the driver's lateness.
        due: Time,
        /// The frame.
        frame: F,
    },
    /// A frame is gone, and was counted.
    Dropped {
        /// The link in whose queue or on which it was, or over which it came to where it had no route; none if it never
        /// left its host.
        link: Option<LinkId>,
        /// Reason of the drop.
        why: DropReason,
        /// The frame.
        frame: F,
    },
    /// Nothing more before this time, or before something is put in.
    Wake(Option<Time>),
}

/// Somebody who sees frames leave their ports, marked and trimmed as they are then. Nobody, unless told otherwise: `()`.
pub trait Tap<F> {
    /// The last bit of a frame has left the port of `link` at `at`; what the link does to it is still to come. The times of
    /// one link ascend; those of several do not together.
    fn left(&mut self, link: LinkId, at: Time, frame: &F);
}

impl<F> Tap<F> for () {
    #[inline]
    fn left(&mut self, _: LinkId, _: Time, _: &F) {}
}

impl<F, T: Tap<F>> Tap<F> for Option<T> {
    #[inline]
    fn left(&mut self, link: LinkId, at: Time, frame: &F) {
        if let Some(tap) = self {
            tap.left(link, at, frame);
        }
    }
}

/// Why a frame is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Its queue, or its pool, was full, and it could not be trimmed or found no room then either.
    Full,
    /// It was in a queue when the link was cut.
    Cut,
    /// The link lost it.
    Lost,
    /// There is no such host, no path to it that is up, or nobody else in its group.
    Unroutable,
}

/// An emulated network cannot be made, or changed, so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EmulatedFabricError {
    /// A host's port cannot be as asked for, or a line cannot run at a rate.
    #[error("the port of link {link}: {error}")]
    Port {
        /// Its link.
        link: LinkId,
        /// The error.
        error: PortError,
    },
    /// A switch cannot be as asked for.
    #[error("the switch at point {point}: {error}")]
    Switch {
        /// Where it is.
        point: PointId,
        /// The error.
        error: SwitchError,
    },
    /// The routes name links that do not leave where they should.
    #[error(
        "the routes are not those of this network: at point {point} they name links that do not leave there"
    )]
    ForeignRoutes {
        /// Where that was seen.
        point: PointId,
    },
    /// There is no such link.
    #[error("there is no link {link}: there are {links}, counted from 0")]
    UnknownLink {
        /// The link.
        link: LinkId,
        /// How many there are.
        links: usize,
    },
}

/// Counters of all frames.
///
/// Nothing gets lost: `injected + copied + duplicated = delivered + dropped + lost + unroutable` and what is
/// [queued](EmulatedFabric::queue_len) and [in flight](EmulatedFabric::in_flight) and gathered, in frames; in bytes also what ports have
/// [trimmed](PortStats::bytes_trimmed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounts {
    /// Put in by hosts.
    pub injected: Seen,
    /// Made by switches beyond the first of each multicast, or out of what their content stores hold.
    pub copied: Seen,
    /// Made by links that deliver twice.
    pub duplicated: Seen,
    /// Come to a host that they were for.
    pub delivered: Seen,
    /// Dropped by ports, [full](DropReason::Full) or [cut](DropReason::Cut), with their length on arrival there.
    pub dropped: Seen,
    /// [Lost](DropReason::Lost) on links.
    pub lost: Seen,
    /// [Without a route](DropReason::Unroutable).
    pub unroutable: Seen,
    /// Said on trees, and come to a switch with a content store; what goes on from there counts as copied, were it the same.
    pub gathered: Seen,
    /// Held back by links, in frames.
    pub reordered: u64,
}

impl FabricCounts {
    /// As the simulator reports them.
    pub fn faults(&self) -> FaultCounts {
        FaultCounts {
            lost: self.lost.frames,
            duplicated: self.duplicated.frames,
            reordered: self.reordered,
            unroutable: self.unroutable.frames,
        }
    }
}

/// A network of ports, links and switches under frames of any kind. See the module's description.
///
/// No call panics, whatever frame, host or link it names. Time never runs backwards; where a caller says so, the last
/// time that was told holds on.
#[derive(Clone, Debug)]
pub struct EmulatedFabric<F, T = ()> {
    now: Time,
    seed: u64,
    links: Vec<Link>,
    nics: Vec<Nic<F>>,
    switches: Vec<SwitchAt<F>>,
    /// The links of each host; a host with several sends on the first that is up.
    uplinks: Vec<Vec<u32>>,
    /// The members of each group.
    groups: BTreeMap<u32, BTreeSet<u32>>,
    /// When each NIC, and after these each switch, has its next departure.
    due: Due,
    /// Frames on links, by the time when they have crossed them.
    flying: BTreeMap<(Time, u64), (u32, F)>,
    /// How many have been put on links.
    departed: u64,
    /// Said before anything else happens.
    outbox: VecDeque<FabricOutput<F>>,
    counts: FabricCounts,
    /// Hosts take in what is for others.
    hosts_forward: bool,
    /// Content stores of switches on trees, if they have some.
    keeping: Option<Keeping<F>>,
    tap: T,
}

/// Next event.
#[derive(Clone, Copy, Debug)]
enum Next {
    Departure { device: usize },
    Arrival,
}

/// Why a switch is asked for what it has to say.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// Something is due, or may be.
    Due,
    /// It has taken in a frame, of this length, over this link.
    After { link: u32, bytes: u64 },
    /// A link was cut.
    Cut,
}

impl<F: Frame> EmulatedFabric<F> {
    /// One that nobody looks into; see [`EmulatedFabric::with_tap`].
    ///
    /// # Errors
    /// [`EmulatedFabricError`], with the link or point that is wrong.
    pub fn new(
        topology: &Topology,
        routes: &Routes,
        port: &dyn Fn(LinkId, bool) -> PortConfig,
        choice: &dyn Fn(u32) -> Choice,
        seed: u64,
    ) -> Result<Self, EmulatedFabricError> {
        EmulatedFabric::with_tap(topology, routes, port, choice, seed, ())
    }
}

impl<F: Frame, T: Tap<F>> EmulatedFabric<F, T> {
    /// An idle network at time zero.
    ///
    /// `port` says how the port of a link is set up, and is told whether it is a host's NIC; `choice` says how a switch,
    /// counted by its point, chooses among equal paths. Links that the topology has down are cut. Chance follows from `seed`
    /// as in the simulator.
    ///
    /// # Errors
    /// [`EmulatedFabricError`], with the link or point that is wrong.
    pub fn with_tap(
        topology: &Topology,
        routes: &Routes,
        port: &dyn Fn(LinkId, bool) -> PortConfig,
        choice: &dyn Fn(u32) -> Choice,
        seed: u64,
        tap: T,
    ) -> Result<Self, EmulatedFabricError> {
        let Wiring { links, nics, switches, uplinks } = Wiring::new(topology, routes, port, choice)?;
        let devices = nics.len() + switches.len();
        let mut fabric = EmulatedFabric {
            now: Time::ZERO,
            seed,
            links,
            nics,
            switches,
            uplinks,
            groups: BTreeMap::new(),
            due: Due::new(devices),
            flying: BTreeMap::new(),
            departed: 0,
            outbox: VecDeque::new(),
            counts: FabricCounts::default(),
            hosts_forward: false,
            keeping: None,
            tap,
        };
        for link in (0..fabric.links.len() as u32).map(LinkId).filter(|&link| topology.is_down(link)) {
            fabric.change(Time::ZERO, link, LinkChange::Down(true))?;
        }
        Ok(fabric)
    }

    /// A host has put a whole frame on its wire: it enters the queue of the host's NIC, the first one whose link is up.
    ///
    /// A host's only NIC takes frames even while its link is cut; they are lost behind it.
    pub fn inject(&mut self, now: Time, host: HostId, frame: F) {
        let now = self.catch_up(now);
        self.counts.injected.note(&frame);
        let uplinks = self.uplinks.get(host.index()).map_or(&[][..], Vec::as_slice);
        let link = match *uplinks {
            [only] => Some(only),
            ref several => several.iter().copied().find(|&link| !self.links[link as usize].is_down()),
        };
        self.enter(now, link, frame);
    }

    /// From now on what is for another host is delivered too, to the next host on the network's way to it: forwarding
    /// it is that host's affair.
    pub fn let_hosts_forward(&mut self) {
        self.hosts_forward = true;
    }

    /// As [`EmulatedFabric::inject`], by one of the host's cables, counted as its links leave it; the frame is lost behind one that is cut.
    pub fn inject_at(&mut self, now: Time, host: HostId, cable: usize, frame: F) {
        let now = self.catch_up(now);
        self.counts.injected.note(&frame);
        let link = self.uplinks.get(host.index()).and_then(|uplinks| uplinks.get(cable).copied());
        self.enter(now, link, frame);
    }

    fn enter(&mut self, now: Time, link: Option<u32>, mut frame: F) {
        let Some(link) = link else {
            return self.discard(None, DropReason::Unroutable, frame.len().get(), frame);
        };
        let Near::Nic(nic) = self.links[link as usize].near else {
            unreachable!("a host's uplink begins at a NIC")
        };
        let bytes = frame.len().get();
        let port = &mut self.nics[nic].port;
        // As a switch does: the first port that grants a rate is that of the host itself (PAM footnote 2).
        if port.has_allocator()
            && let Some(offer) = port.allocate(now, frame.len(), frame.claim().as_ref())
        {
            frame.lower_offer(offer);
        }
        let offered = port.enqueue(now, frame);
        self.due.set(nic, port.next_departure());
        if let Offered::Dropped(frame) = offered {
            self.discard(Some(link), DropReason::Full, bytes, frame);
        }
    }

    /// The next thing to do; ask again until it is [`FabricOutput::Wake`]. Events come in the order in which they
    /// happened.
    pub fn poll(&mut self, now: Time) -> FabricOutput<F> {
        self.now = self.now.max(now);
        loop {
            if let Some(output) = self.outbox.pop_front() {
                return output;
            }
            match self.next() {
                Some((at, next)) if at <= self.now => self.step(at, next),
                later => return FabricOutput::Wake(later.map(|it| it.0)),
            }
        }
    }

    /// Changes how a link behaves from `now` on: after all that is due by then.
    ///
    /// Down, what is in the link's queue is dropped and what is on the link still arrives.
    ///
    /// # Errors
    /// [`EmulatedFabricError::UnknownLink`]; [`EmulatedFabricError::Port`] for a rate at which no line runs. Nothing has
    /// changed then.
    pub fn change(&mut self, now: Time, link: LinkId, change: LinkChange) -> Result<(), EmulatedFabricError> {
        let now = self.catch_up(now);
        let links = self.links.len();
        let Some(state) = self.links.get_mut(link.index()) else {
            return Err(EmulatedFabricError::UnknownLink { link, links });
        };
        let near = state.near;
        if let LinkChange::Rate(rate) = change {
            let changed = self.port(near).set_rate(now, rate);
            self.refresh(now, near);
            return changed.map_err(|error| EmulatedFabricError::Port { link, error });
        }
        state.faults.get_or_insert_with(|| Box::new(LinkFaults::new(self.seed, link.0))).change(change);
        if let LinkChange::Down(down) = change {
            self.cut_or_mend(now, link.0, down);
        }
        Ok(())
    }

    /// How many frames are in the queue of a link at `now`, the one on the line included; none if there is no such link.
    pub fn queue_len(&mut self, now: Time, link: LinkId) -> u64 {
        self.look(now, link, |port, now| port.queue_len(now))
    }

    /// Counters of the port of a link by `now`; zero if there is no such link.
    pub fn stats(&mut self, now: Time, link: LinkId) -> PortStats {
        self.look(now, link, |port, now| {
            // Tells the port the time.
            port.queue_len(now);
            port.stats()
        })
    }

    /// Grants of the port of a link to scheduled transfers, as of the last frame; `None` if it grants no rates.
    pub fn allocator(&mut self, now: Time, link: LinkId) -> Option<AllocatorView> {
        self.look(now, link, |port, _| port.allocator().map(RateAllocator::view))
    }

    /// Counters of all frames, by the last time that was told.
    pub fn counts(&self) -> FabricCounts {
        self.counts
    }

    /// The observer of leaving frames.
    pub fn tap_mut(&mut self) -> &mut T {
        &mut self.tap
    }

    /// Frames on links, behind their queues: sent and not yet arrived.
    pub fn in_flight(&self) -> Seen {
        let mut seen = Seen::default();
        self.flying.values().for_each(|(_, frame)| seen.note(frame));
        seen
    }

    /// Makes these hosts the members of a group; none forgets it. Holds for frames that come to a switch after `now`.
    ///
    /// A frame for the group gets to each member once, but not to the one that sent it; who sends need not be a member. It
    /// goes along a tree that spans the network, on shortest paths to the first member, less all branches without members.
    /// Hosts that are not there, or that no path leads to, are left out.
    ///
    /// Like routes, the tree is a snapshot: cables that are down in either direction are left out of it, and after a change
    /// the group is set again. A host with several links is joined to the tree by the first of them; should that go down and
    /// the host send by another, a member gets its own frames.
    pub fn set_group(&mut self, now: Time, group: u32, members: &[HostId]) {
        self.catch_up(now);
        let members: Vec<u32> =
            members.iter().map(|it| it.0).filter(|&it| (it as usize) < self.uplinks.len()).collect();
        let ports = tree::ports(&self.links, &self.switches, &self.uplinks, &members);
        for (at, ports) in self.switches.iter_mut().zip(ports) {
            at.switch.forwarding_mut().set_group(group, &ports);
        }
        match members.is_empty() {
            true => drop(self.groups.remove(&group)),
            false => drop(self.groups.insert(group, members.into_iter().collect())),
        }
    }

    /// Lets all happen that is due by `now`, and says which time it is.
    fn catch_up(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        while let Some((at, next)) = self.next().filter(|(at, _)| *at <= self.now) {
            self.step(at, next);
        }
        self.now
    }

    fn next(&self) -> Option<(Time, Next)> {
        let departure = self.due.first().map(|(at, device)| (at, Next::Departure { device }));
        let arrival = self.flying.first_key_value().map(|((at, _), _)| (*at, Next::Arrival));
        // Of equal times the first one.
        departure.into_iter().chain(arrival).min_by_key(|(at, _)| *at)
    }

    fn step(&mut self, at: Time, next: Next) {
        match next {
            Next::Departure { device } => match device.checked_sub(self.nics.len()) {
                None => self.serve_nic(at, device),
                Some(switch) => self.serve_switch(at, switch, Asked::Due),
            },
            Next::Arrival => {
                let ((_, _), (link, frame)) = self.flying.pop_first().expect("seen by the caller");
                self.arrive(at, link, frame);
            }
        }
    }

    /// A frame has crossed a link.
    fn arrive(&mut self, at: Time, link: u32, frame: F) {
        let Link { far, ingress, .. } = self.links[link as usize];
        match far {
            Far::Host { host, cable } if self.hosts_forward || self.is_for(host, &frame) => {
                self.counts.delivered.note(&frame);
                self.outbox.push_back(FabricOutput::Deliver { host: HostId(host), cable, due: at, frame });
            }
            Far::Host { .. } => self.discard(Some(link), DropReason::Unroutable, frame.len().get(), frame),
            Far::Switch(index) => self.enter_switch(at, index, (link, ingress), frame),
        }
    }

    fn switch_takes(&mut self, at: Time, index: usize, (link, ingress): (u32, PortIndex), frame: F) {
        let bytes = frame.len().get();
        let switch = &mut self.switches[index].switch;
        let before = switch.stats().copies;
        switch.handle(at, ingress, frame);
        let copies = switch.stats().copies - before;
        self.counts.copied.add(copies, bytes);
        self.serve_switch(at, index, Asked::After { link, bytes });
    }

    fn is_for(&self, host: u32, frame: &F) -> bool {
        match frame.destination() {
            Destination::Host(to) => to == host,
            Destination::Group(group) => self.groups.get(&group).is_some_and(|it| it.contains(&host)),
        }
    }

    /// Sends what has left a NIC.
    fn serve_nic(&mut self, now: Time, nic: usize) {
        let Nic { port, link } = &mut self.nics[nic];
        let (left, link) = (port.dequeue(now), *link);
        self.due.set(nic, port.next_departure());
        if let Some((at, frame)) = left {
            self.depart(at, link, frame);
        }
    }

    /// Does what a switch says until it wants to sleep.
    fn serve_switch(&mut self, now: Time, index: usize, asked: Asked) {
        loop {
            let at = &mut self.switches[index];
            match at.switch.poll(now) {
                SwitchOutput::Transmit { port, at: left, frame } => {
                    let link = at.links[usize::from(port.0)];
                    self.depart(left, link, frame);
                }
                SwitchOutput::Dropped { port, frame } => {
                    let queue = port.map(|port| at.links[usize::from(port.0)]);
                    let stood = frame.len().get();
                    let (link, why, bytes) = match (asked, queue) {
                        (Asked::Cut, queue) => (queue, DropReason::Cut, stood),
                        (Asked::After { bytes, .. }, Some(queue)) => (Some(queue), DropReason::Full, bytes),
                        (Asked::After { link, .. }, None) => (Some(link), DropReason::Unroutable, stood),
                        (Asked::Due, _) => unreachable!("a switch drops only what comes in and what is cut"),
                    };
                    self.discard(link, why, bytes, frame);
                }
                SwitchOutput::Wake(wake) => return self.due.set(self.nics.len() + index, wake),
            }
        }
    }

    /// The last bit of a frame has left the line at `at`; the link's delay, and its faults, are before it.
    fn depart(&mut self, at: Time, link: u32, frame: F) {
        self.tap.left(LinkId(link), at, &frame);
        let Link { faults, delay, .. } = &mut self.links[link as usize];
        let arrival = at + *delay;
        let fate = match faults {
            None => Fate::Arrives { later: Duration::ZERO, copy: None },
            // All symbols travel in the other classes, until a switch cuts them off (see `Class`).
            Some(faults) => faults.carry(frame.class() != Class::Control),
        };
        match fate {
            Fate::Lost => self.discard(Some(link), DropReason::Lost, frame.len().get(), frame),
            Fate::Arrives { later, copy } => {
                self.counts.reordered += u64::from(later > Duration::ZERO);
                if let Some(later) = copy {
                    self.counts.duplicated.note(&frame);
                    self.fly(arrival + later, link, frame.clone());
                }
                self.fly(arrival + later, link, frame);
            }
        }
    }

    fn fly(&mut self, arrival: Time, link: u32, frame: F) {
        self.flying.insert((arrival, self.departed), (link, frame));
        self.departed += 1;
    }

    fn discard(&mut self, link: Option<u32>, why: DropReason, bytes: u64, frame: F) {
        let seen = match why {
            DropReason::Full | DropReason::Cut => &mut self.counts.dropped,
            DropReason::Lost => &mut self.counts.lost,
            DropReason::Unroutable => &mut self.counts.unroutable,
        };
        seen.add(1, bytes);
        self.outbox.push_back(FabricOutput::Dropped { link: link.map(LinkId), why, frame });
    }

    fn cut_or_mend(&mut self, now: Time, link: u32, down: bool) {
        match self.links[link as usize].near {
            Near::Nic(nic) => {
                // Frames that have gathered in front of a cut link are old news when it is mended; the simulator does
                // the same.
                let cleared = self.nics[nic].port.clear(now);
                self.due.set(nic, self.nics[nic].port.next_departure());
                for frame in cleared.frames {
                    self.discard(Some(link), DropReason::Cut, frame.len().get(), frame);
                }
            }
            Near::Switch { switch, port } => {
                self.switches[switch].switch.set_port_up(now, port, !down);
                self.serve_switch(now, switch, Asked::Cut);
            }
        }
    }

    /// A port has changed: when its next frame leaves has to be asked anew.
    fn refresh(&mut self, now: Time, near: Near) {
        match near {
            Near::Nic(nic) => self.due.set(nic, self.nics[nic].port.next_departure()),
            Near::Switch { switch, .. } => self.serve_switch(now, switch, Asked::Due),
        }
    }

    fn look<R: Default>(&mut self, now: Time, link: LinkId, at: impl FnOnce(&mut Port<F>, Time) -> R) -> R {
        let now = self.catch_up(now);
        let near = self.links.get(link.index()).map(|link| link.near);
        near.map_or_else(R::default, |near| at(self.port(near), now))
    }

    fn port(&mut self, near: Near) -> &mut Port<F> {
        match near {
            Near::Nic(nic) => &mut self.nics[nic].port,
            Near::Switch { switch, port } => self.switches[switch].switch.port_mut(port),
        }
    }
}
