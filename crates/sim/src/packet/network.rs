//! Frames from host to host, or to groups of hosts: ports, lines, links with delay and faults, switches.
//!
//! Every directed link has one egress port at its near end: a host's NIC is a [`Port`] like a switch's. A frame is one
//! event per hop where the port is a plain FIFO, since its departure is known when it arrives; other ports keep their
//! frames and get an event per departure.
//!
//! In networks that trim, no port is plain. There a port is asked for what has left when the next frame comes, and otherwise
//! only when the first frame that nobody asked for comes to the end of its link: a frame arrives no later for it. Links with
//! faults are asked at every departure, since what happens to a frame must be known when it leaves.

use headwater_fabric::{HostId, LinkId, PointId, Routes, Topology};
use headwater_switch::{
    Choice, Destination, Egress, Fate, FaultCounts, Forwarding, Frame, LinkChange, LinkFaults, Offered,
    Passed, Port, PortConfig, PortIndex, PortStats, Seen, SwitchError, WhenFull,
};
use headwater_units::Time;

use super::Event;
use super::agenda::Agenda;
use super::frame::{Bodies, SimFrame};
use super::groups::Groups;
use super::segments::{Segments, Step, is_segment};
use super::setup::SetupError;

/// Where a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Far {
    Host(u32),
    Switch(u32),
}

/// No link, of a host that has not just one.
const SEVERAL: u32 = u32::MAX;

/// How frames get through the port that a link begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortMode {
    /// It is plain.
    Pass,
    /// It keeps its frames and may be asked late.
    Queue,
    /// The link has faults or is tallied, the port grants rates, or it must be asked at every departure.
    Watched,
}

/// A link and the port that it begins at, in the order of use.
#[derive(Debug)]
#[repr(C, align(64))]
struct Link {
    delay: u64,
    /// When the next departure event of a port that keeps its frames is due; `u64::MAX`: none is.
    serving: u64,
    mode: PortMode,
    port: Port<SimFrame>,
    /// The switch that it leaves and the port there; none if it leaves a host.
    leaves: Option<(u32, PortIndex)>,
    faults: Option<Box<LinkFaults>>,
}

struct SwitchAt {
    forwarding: Forwarding,
    /// The link behind each port.
    links: Vec<u32>,
}

/// Counts at the two ends of a link, apart from those of its port: to check one by the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTally {
    /// Offered to the port at its near end.
    pub offered: Seen,
    /// Lost behind the port.
    pub lost: Seen,
    /// Made twice behind the port.
    pub duplicated: Seen,
    /// Come to its far end.
    pub arrived: Seen,
    /// Of those, frames with no route.
    pub stray: Seen,
    /// Further copies that the switch made of them, of frames to groups.
    pub copied: Seen,
}

/// The parts from which a network is built.
pub(super) struct Ground<'a> {
    pub(super) topology: &'a Topology,
    pub(super) routes: &'a Routes,
    /// The port of a link; the flag says whether a host's NIC is meant.
    pub(super) port: &'a dyn Fn(LinkId, bool) -> PortConfig,
    /// How a switch chooses among equal paths.
    pub(super) choice: &'a dyn Fn(u32) -> Choice,
    /// Hosts that could forward do not: packets carry their own route.
    pub(super) on_trees: bool,
    /// Both ends of all links are tallied.
    pub(super) tallied: bool,
    pub(super) seed: u64,
}

pub(super) struct Network {
    links: Vec<Link>,
    /// Of each link; apart, because a frame that comes needs nothing else of its link.
    ends: Vec<Far>,
    /// The link of each host that has but one; [`SEVERAL`] of the others.
    uplink: Vec<u32>,
    /// The links of each host; a host with several sends on the first that is up, if it does not forward.
    uplinks: Vec<Vec<u32>>,
    /// Switches, and behind them hosts that forward.
    switches: Vec<SwitchAt>,
    /// Which of them a host is, if it is one: where hosts forward what is not on trees.
    forwarders: Vec<Option<u32>>,
    seed: u64,
    /// Multicast groups, with the members of each.
    pub(super) groups: Groups,
    /// The paths of frames on trees.
    pub(super) segments: Segments,
    /// Copies that a switch has just made, each with its port.
    copies: Vec<(PortIndex, SimFrame)>,
    /// By link; empty where nobody will look.
    pub(super) tallies: Vec<LinkTally>,
    pub(super) faults: FaultCounts,
}

/// The links with their ports; `leaves` says which switch's port a link leaves from, if it is not a host.
fn links_of(
    ground: &Ground<'_>,
    host_of: &[Option<u32>],
    leaves: &[Option<(u32, PortIndex)>],
) -> Result<Vec<Link>, SetupError> {
    let Ground { topology, port: port_of, tallied, .. } = *ground;
    let fabric = topology.fabric();
    let trims =
        (0..fabric.link_count() as u32).any(|link| port_of(LinkId(link), false).when_full == WhenFull::Trim);
    let mut links = Vec::with_capacity(fabric.link_count());
    for id in (0..fabric.link_count() as u32).map(LinkId) {
        let link = fabric.link(id).expect("ids count from zero");
        let leaves = leaves[id.0 as usize];
        let is_host = host_of[link.from.0 as usize].is_some();
        let port = Port::new(port_of(id, is_host)).map_err(|error| match leaves {
            Some((_, port)) => SetupError::from(SwitchError::Port { port, error }),
            None => error.into(),
        })?;
        let delay = link.delay.as_nanos();
        let mode = match tallied {
            _ if port.has_allocator() => PortMode::Watched,
            false if port.is_plain() => PortMode::Pass,
            false if trims => PortMode::Queue,
            _ => PortMode::Watched,
        };
        links.push(Link { port, delay, serving: u64::MAX, mode, leaves, faults: None });
    }
    Ok(links)
}

impl Network {
    /// Ports and routes.
    pub(super) fn new(ground: &Ground<'_>) -> Result<Self, SetupError> {
        let Ground { topology, routes, choice: choice_of, on_trees, tallied, seed, .. } = *ground;
        let fabric = topology.fabric();
        let host_of: Vec<Option<u32>> = {
            let mut of = vec![None; fabric.point_count()];
            for (index, point) in topology.hosts().iter().enumerate() {
                of[point.0 as usize] = Some(index as u32);
            }
            of
        };
        let mut uplinks = vec![Vec::new(); topology.hosts().len()];
        let mut switches = Vec::new();
        let mut switch_of = vec![0; fabric.point_count()];
        let mut forwarders = vec![None; topology.hosts().len()];
        let mut leaves = vec![None; fabric.link_count()];
        let (hosts, others): (Vec<_>, Vec<_>) =
            (0..fabric.point_count()).partition(|&point| host_of[point].is_some());
        for point in others.into_iter().chain(hosts) {
            let links = fabric.leaving(PointId(point as u32));
            if let Some(host) = host_of[point] {
                uplinks[host as usize].extend(links.iter().map(|link| link.0));
                if on_trees || !topology.forwards(PointId(point as u32)) {
                    continue;
                }
                forwarders[host as usize] = Some(switches.len() as u32);
            }
            // The last index means "no port".
            if links.len() > usize::from(u16::MAX) {
                return Err(SwitchError::TooManyPorts(links.len()).into());
            }
            let index = switches.len() as u32;
            switch_of[point] = index;
            for (port, link) in links.iter().enumerate() {
                leaves[link.0 as usize] = Some((index, PortIndex(port as u16)));
            }
            let choice = choice_of(index);
            let table = forwarding_table(topology, routes, PointId(point as u32))
                .expect("a set-up has the routes of its topology");
            let links = links.iter().map(|link| link.0).collect();
            switches.push(SwitchAt { forwarding: table.with_choice(choice), links });
        }
        let links = links_of(ground, &host_of, &leaves)?;
        let uplink =
            uplinks.iter().map(|links| if let [only] = links[..] { only } else { SEVERAL }).collect();
        let far = |link: u32| {
            let to = fabric.link(LinkId(link)).expect("ids count from zero").to.0 as usize;
            host_of[to].map_or(Far::Switch(switch_of[to]), Far::Host)
        };
        let ends = (0..fabric.link_count() as u32).map(far).collect();
        let tallies = vec![LinkTally::default(); if tallied { fabric.link_count() } else { 0 }];
        let (groups, segments, faults) = (Groups::default(), Segments::default(), FaultCounts::default());
        let copies = Vec::new();
        Ok(Network {
            links,
            ends,
            uplink,
            uplinks,
            switches,
            forwarders,
            seed,
            groups,
            segments,
            copies,
            tallies,
            faults,
        })
    }

    /// A host sends.
    #[inline(always)]
    pub(super) fn launch(
        &mut self,
        now: Time,
        host: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        let link = match self.uplink[host as usize] {
            SEVERAL => match self.next_link(host, &frame).or_else(|| self.first_up(host)) {
                Some(link) => link,
                None => {
                    self.faults.unroutable += 1;
                    return bodies.forget(frame.body());
                }
            },
            only => only,
        };
        self.offer(now, link, frame, agenda, bodies);
    }

    fn first_up(&self, host: u32) -> Option<u32> {
        self.uplinks[host as usize].iter().copied().find(|&link| !self.is_down(link))
    }

    /// A frame on a tree begins its segment with this link.
    pub(super) fn launch_on(
        &mut self,
        now: Time,
        link: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        self.offer(now, link, frame, agenda, bodies);
    }

    /// A frame has crossed a link. Whether it has come to its host, or to one of its group's, or to the end of its segment.
    #[inline(always)]
    pub(super) fn arrive(
        &mut self,
        now: Time,
        link: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) -> bool {
        if let Some(tally) = self.tallies.get_mut(link as usize) {
            tally.arrived.note(&frame);
        }
        match self.ends[link as usize] {
            Far::Host(host) if host == frame.to() => return true,
            Far::Host(_) => {}
            Far::Switch(switch) => {
                let at = &mut self.switches[switch as usize];
                let to = Destination::Host(frame.to());
                if let Egress::One(port) = at.forwarding.egress(PortIndex::OWN, to, frame.flow_hash()) {
                    let link = at.links[usize::from(port.0)];
                    self.offer(now, link, frame, agenda, bodies);
                    return false;
                }
            }
        }
        self.arrive_for_several(now, link, frame, agenda, bodies)
    }

    /// The same of a frame for which there is nobody here, and no route: it is on a tree, for a group, or astray.
    #[inline(never)]
    fn arrive_for_several(
        &mut self,
        now: Time,
        link: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) -> bool {
        if is_segment(frame.to()) {
            match self.segments.step(frame.to(), link, frame.is_whole()) {
                Step::On(next) => self.offer(now, next, frame, agenda, bodies),
                Step::There => return true,
                Step::Astray => self.stray(link, frame, bodies),
            }
            return false;
        }
        match self.ends[link as usize] {
            Far::Host(host) if self.groups.includes(frame.to(), host) => return true,
            Far::Host(host) => match self.next_link(host, &frame) {
                Some(next) => self.offer(now, next, frame, agenda, bodies),
                None => self.stray(link, frame, bodies),
            },
            Far::Switch(switch) => self.part(now, link, switch, frame, agenda, bodies),
        }
        false
    }

    /// By which of its links a host that forwards sends a frame on, if it does.
    fn next_link(&mut self, host: u32, frame: &SimFrame) -> Option<u32> {
        let at = &mut self.switches[self.forwarders[host as usize]? as usize];
        match at.forwarding.egress(PortIndex::OWN, Destination::Host(frame.to()), frame.flow_hash()) {
            Egress::One(port) => Some(at.links[usize::from(port.0)]),
            _ => None,
        }
    }

    /// The endpoint of a group that a frame has come to over this link.
    pub(super) fn member_at(&self, path: u32, link: u32) -> u32 {
        let Far::Host(host) = self.ends[link as usize] else { panic!("a member is at a host") };
        self.groups.endpoint(path, host).expect("a copy comes to members only")
    }

    /// A frame to a group leaves a switch by every port that leads to any of those it is for, a copy for those behind each.
    fn part(
        &mut self,
        now: Time,
        link: u32,
        switch: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        let Network { groups, switches, copies, .. } = self;
        let Some((group, among)) = groups.subset(frame.to()) else { return self.stray(link, frame, bodies) };
        let forwarding = &mut switches[switch as usize].forwarding;
        let mut reached = 0;
        for branch in forwarding.branches(groups.hosts(group), among, frame.flow_hash()) {
            reached |= branch.hosts;
            copies.push((branch.port, frame.redirected(groups.narrowed(group, branch.hosts))));
        }
        if copies.is_empty() {
            return self.stray(link, frame, bodies);
        }
        self.faults.unroutable += u64::from(reached != among);
        let mut copies = std::mem::take(copies);
        // Before any of them is dropped: the message goes with the last one.
        for (_, copy) in &mut copies[1..] {
            *copy = copy.carrying(bodies.copied(copy.body()));
            if let Some(tally) = self.tallies.get_mut(link as usize) {
                tally.copied.note(&*copy);
            }
        }
        for (port, copy) in copies.drain(..) {
            let link = self.switches[switch as usize].links[usize::from(port.0)];
            self.offer(now, link, copy, agenda, bodies);
        }
        self.copies = copies;
    }

    /// A frame that came over this link has no route.
    fn stray(&mut self, link: u32, frame: SimFrame, bodies: &mut Bodies) {
        self.faults.unroutable += 1;
        if let Some(tally) = self.tallies.get_mut(link as usize) {
            tally.stray.note(&frame);
        }
        bodies.forget(frame.body());
    }

    /// A frame goes into the queue of a link.
    // Once for every hop of every packet; a call costs a seventh of what it does.
    #[inline(always)]
    fn offer(
        &mut self,
        now: Time,
        link: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        let state = &mut self.links[link as usize];
        match state.mode {
            PortMode::Pass => pass(now, link, state, frame, agenda, bodies),
            PortMode::Queue => queue(now, link, state, frame, agenda, bodies),
            PortMode::Watched => self.offer_watched(now, link, frame, agenda, bodies),
        }
    }

    /// The same of a link that does more than it should, or whose port grants rates or is asked at every departure.
    #[inline(never)]
    fn offer_watched(
        &mut self,
        now: Time,
        link: u32,
        mut frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        if let Some(tally) = self.tallies.get_mut(link as usize) {
            tally.offered.note(&frame);
        }
        let port = &mut self.links[link as usize].port;
        if port.has_allocator() {
            let claim = bodies.claim(frame.body());
            if let Some(offer) = port.allocate(now, frame.len(), claim.as_ref()) {
                bodies.lower_offer(frame.body(), offer);
            }
        }
        if port.is_plain() {
            match port.pass(now, &mut frame) {
                Passed::Leaves(at) => self.depart(at, link, frame, agenda, bodies),
                Passed::Dropped => bodies.forget(frame.body()),
            }
            return;
        }
        if let Offered::Dropped(frame) = port.enqueue(now, frame) {
            bodies.forget(frame.body());
        }
        self.serve(now, link, agenda, bodies);
    }

    /// Sends what has left the queue of a port that keeps its frames, and looks when the next one will.
    pub(super) fn serve(&mut self, now: Time, link: u32, agenda: &mut Agenda<Event>, bodies: &mut Bodies) {
        while let Some((at, frame)) = self.links[link as usize].port.dequeue(now) {
            self.depart(at, link, frame, agenda, bodies);
        }
        let state = &mut self.links[link as usize];
        let next = state.port.next_departure().map_or(u64::MAX, Time::as_nanos);
        if next < state.serving {
            state.serving = next;
            agenda.push(next, Event::Serve { link });
        }
    }

    /// The departure event of a link has come. Says which frame has crossed the link, if nothing else is to happen before
    /// that.
    pub(super) fn serve_due(
        &mut self,
        now: Time,
        link: u32,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) -> Option<SimFrame> {
        let state = &mut self.links[link as usize];
        if state.serving == now.as_nanos() {
            state.serving = u64::MAX;
        }
        if state.mode != PortMode::Queue {
            self.serve(now, link, agenda, bodies);
            return None;
        }
        let mut crossed = None;
        while let Some((at, frame)) = state.port.dequeue(now) {
            let arrival = at.as_nanos() + state.delay;
            if arrival == now.as_nanos() && crossed.is_none() && !agenda.has_more_at(arrival) {
                crossed = Some(frame);
            } else {
                agenda.push(arrival, Event::Arrive { link, frame });
            }
        }
        ask_later(link, state, agenda);
        crossed
    }

    /// The last bit of a frame leaves at `at`; the link's delay, and its faults, are before it.
    #[inline]
    fn depart(
        &mut self,
        at: Time,
        link: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        let state = &self.links[link as usize];
        let arrival = at.as_nanos() + state.delay;
        if state.faults.is_some() {
            return self.depart_faulty(arrival, link, frame, agenda, bodies);
        }
        agenda.push(arrival, Event::Arrive { link, frame });
    }

    fn depart_faulty(
        &mut self,
        arrival: u64,
        link: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        let faults = self.links[link as usize].faults.as_mut().expect("seen by the caller");
        let fate = faults.carry(frame.is_whole());
        self.faults.note(fate);
        let Fate::Arrives { later, copy } = fate else {
            if let Some(tally) = self.tallies.get_mut(link as usize) {
                tally.lost.note(&frame);
            }
            return bodies.forget(frame.body());
        };
        if let Some(later) = copy {
            if let Some(tally) = self.tallies.get_mut(link as usize) {
                tally.duplicated.note(&frame);
            }
            let frame = frame.carrying(bodies.copied(frame.body()));
            agenda.push(arrival + later.as_nanos(), Event::Arrive { link, frame });
        }
        agenda.push(arrival + later.as_nanos(), Event::Arrive { link, frame });
    }

    /// Changes how a link behaves from now on.
    pub(super) fn change(
        &mut self,
        now: Time,
        link: u32,
        change: LinkChange,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        let state = &mut self.links[link as usize];
        if state.mode == PortMode::Queue {
            state.mode = PortMode::Watched;
            self.serve(now, link, agenda, bodies);
        }
        if let LinkChange::Rate(rate) = change {
            self.links[link as usize].port.set_rate(now, rate).expect("the set-up was checked");
            return self.serve(now, link, agenda, bodies);
        }
        let seed = self.seed;
        let state = &mut self.links[link as usize];
        state.mode = PortMode::Watched;
        state.faults.get_or_insert_with(|| Box::new(LinkFaults::new(seed, link))).change(change);
        if let LinkChange::Down(down) = change {
            for frame in state.port.clear(now).frames {
                bodies.forget(frame.body());
            }
            if let Some((switch, port)) = state.leaves {
                self.switches[switch as usize].forwarding.set_port_up(port, !down);
            }
        }
    }

    /// The port of this link must be able to change its rate or to be cut: it keeps its frames from the start.
    pub(super) fn keep_frames(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        state.port.make_plain(false);
        state.mode = PortMode::Watched;
    }

    fn is_down(&self, link: u32) -> bool {
        self.links[link as usize].faults.as_ref().is_some_and(|f| f.is_down())
    }

    /// Frames in the queue of a link, the one on the line included.
    pub(super) fn queue_len(&mut self, now: Time, link: u32) -> u64 {
        self.links[link as usize].port.queue_len(now)
    }

    /// Counters of the port of a link.
    pub(super) fn stats(&mut self, now: Time, link: u32) -> PortStats {
        let port = &mut self.links[link as usize].port;
        port.queue_len(now);
        port.stats()
    }

    pub(super) fn link_count(&self) -> u32 {
        self.links.len() as u32
    }
}

/// A frame goes through a plain port to a link that does what it should.
// Once for every hop of every packet; a call costs a seventh of what it does.
#[inline(always)]
fn pass(
    now: Time,
    link: u32,
    state: &mut Link,
    mut frame: SimFrame,
    agenda: &mut Agenda<Event>,
    bodies: &mut Bodies,
) {
    match state.port.pass(now, &mut frame) {
        Passed::Leaves(at) => agenda.push(at.as_nanos() + state.delay, Event::Arrive { link, frame }),
        Passed::Dropped => bodies.forget(frame.body()),
    }
}

/// A frame goes into a port that keeps its frames and may be asked late.
#[inline(always)]
fn queue(
    now: Time,
    link: u32,
    state: &mut Link,
    frame: SimFrame,
    agenda: &mut Agenda<Event>,
    bodies: &mut Bodies,
) {
    while let Some((at, frame)) = state.port.dequeue(now) {
        agenda.push(at.as_nanos() + state.delay, Event::Arrive { link, frame });
    }
    if let Offered::Dropped(frame) = state.port.enqueue(now, frame) {
        bodies.forget(frame.body());
    }
    if state.serving == u64::MAX {
        ask_later(link, state, agenda);
    }
}

/// The port is asked again when the next frame that leaves it has crossed the link, if nothing comes before.
#[inline]
fn ask_later(link: u32, state: &mut Link, agenda: &mut Agenda<Event>) {
    if let Some(next) = state.port.next_departure() {
        state.serving = next.as_nanos() + state.delay;
        agenda.push(state.serving, Event::Serve { link });
    }
}

/// Where the switch at a point sends what is for each host: port `n` is the `n`th link that leaves there. None if the routes
/// are those of another topology.
pub fn forwarding_table(topology: &Topology, routes: &Routes, at: PointId) -> Option<Forwarding> {
    let hosts = topology.hosts().len();
    let links = topology.fabric().leaving(at);
    let mut forwarding = Forwarding::new(hosts);
    for host in 0..hosts as u32 {
        let port = |link| links.iter().position(|it| it == link).map(|port| PortIndex(port as u16));
        let set = routes.next(at, HostId(host)).iter().map(port).collect::<Option<Vec<PortIndex>>>()?;
        forwarding.set_routes(host, &set).expect("the table was made for all hosts");
    }
    Some(forwarding)
}
