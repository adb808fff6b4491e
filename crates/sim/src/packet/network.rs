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
    Destination, Egress, Fate, FaultCounts, Forwarding, LinkChange, LinkFaults, Offered, Passed, Port,
    PortIndex, PortStats, Seen, Switch, WhenFull,
};
use headwater_units::Time;

use super::Event;
use super::agenda::Agenda;
use super::frame::{Bodies, SimFrame};
use super::groups::Groups;
use super::setup::{Setup, SetupError};

/// Where a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Far {
    Host(u32),
    Switch(u32),
}

/// Where a link begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Near {
    /// Place among all hosts' NICs.
    Nic(u32),
    Switch {
        switch: u32,
        port: PortIndex,
    },
}

#[derive(Debug)]
struct Link {
    near: Near,
    far: Far,
    delay: u64,
    /// It has faults, or is tallied.
    watched: bool,
    /// Its port may be asked late.
    lazy: bool,
    /// When the next departure event of a port that keeps its frames is due; `u64::MAX`: none is.
    serving: u64,
    faults: Option<Box<LinkFaults>>,
}

struct SwitchAt {
    switch: Switch<SimFrame>,
    /// The link behind each port.
    links: Vec<u32>,
}

/// What was seen at the two ends of a link, counted apart from its port: to check one by the other.
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
    /// Of those, frames with no way on.
    pub stray: Seen,
    /// Further copies that the switch made of them, of frames to groups.
    pub copied: Seen,
}

pub(super) struct Network {
    links: Vec<Link>,
    nics: Vec<Port<SimFrame>>,
    /// The links of each host; a host with several sends on the first that is up.
    uplinks: Vec<Vec<u32>>,
    switches: Vec<SwitchAt>,
    seed: u64,
    /// Whom frames to groups are for.
    pub(super) groups: Groups,
    /// Copies that a switch has just made, each with its port.
    copies: Vec<(PortIndex, SimFrame)>,
    /// By link; empty where nobody will look.
    pub(super) tallies: Vec<LinkTally>,
    pub(super) faults: FaultCounts,
}

impl Network {
    /// Ports and routes of a set-up.
    pub(super) fn new(setup: &Setup) -> Result<Self, SetupError> {
        let topology = &setup.topology;
        let fabric = topology.fabric();
        let host_of: Vec<Option<u32>> = {
            let mut of = vec![None; fabric.point_count()];
            for (index, point) in topology.hosts().iter().enumerate() {
                of[point.0 as usize] = Some(index as u32);
            }
            of
        };
        let mut near = vec![Near::Nic(0); fabric.link_count()];
        let (mut nics, mut switches) = (Vec::new(), Vec::new());
        let mut uplinks = vec![Vec::new(); topology.hosts().len()];
        let mut switch_of = vec![0; fabric.point_count()];
        for point in 0..fabric.point_count() {
            let links = fabric.leaving(PointId(point as u32));
            if let Some(host) = host_of[point] {
                for link in links {
                    near[link.0 as usize] = Near::Nic(nics.len() as u32);
                    nics.push(Port::new((setup.port)(*link, true))?);
                    uplinks[host as usize].push(link.0);
                }
                continue;
            }
            let index = switches.len() as u32;
            switch_of[point] = index;
            for (port, link) in links.iter().enumerate() {
                near[link.0 as usize] = Near::Switch { switch: index, port: PortIndex(port as u16) };
            }
            let ports = links.iter().map(|link| (setup.port)(*link, false)).collect();
            let choice = (setup.choice)(index);
            let table = forwarding_table(topology, &setup.routes, PointId(point as u32))
                .expect("a set-up has the routes of its topology");
            let switch = Switch::new(ports, table.with_choice(choice))?;
            switches.push(SwitchAt { switch, links: links.iter().map(|l| l.0).collect() });
        }
        let trims = (0..fabric.link_count() as u32)
            .any(|link| (setup.port)(LinkId(link), false).when_full == WhenFull::Trim);
        let links = (0..fabric.link_count() as u32)
            .map(|id| {
                let link = fabric.link(LinkId(id)).expect("ids count from zero");
                let far = match host_of[link.to.0 as usize] {
                    Some(host) => Far::Host(host),
                    None => Far::Switch(switch_of[link.to.0 as usize]),
                };
                let delay = link.delay.as_nanos();
                let watched = setup.drain.is_some();
                let lazy = trims && !watched;
                Link { near: near[id as usize], far, delay, watched, lazy, serving: u64::MAX, faults: None }
            })
            .collect();
        let seed = setup.seed;
        let tallied = if setup.drain.is_some() { fabric.link_count() } else { 0 };
        let tallies = vec![LinkTally::default(); tallied];
        let (groups, faults) = (Groups::default(), FaultCounts::default());
        Ok(Network { links, nics, uplinks, switches, seed, groups, copies: Vec::new(), tallies, faults })
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
        let link = match self.uplinks[host as usize][..] {
            [only] => only,
            ref several => match several.iter().find(|&&l| !self.is_down(l)) {
                Some(&first) => first,
                None => {
                    self.faults.unroutable += 1;
                    return bodies.forget(frame.body);
                }
            },
        };
        self.offer(now, link, frame, agenda, bodies);
    }

    /// A frame has crossed a link. Whether it has come to its host, or to one of its group's.
    #[inline]
    pub(super) fn arrive(
        &mut self,
        now: Time,
        link: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) -> bool {
        let state = &self.links[link as usize];
        if state.watched
            && let Some(tally) = self.tallies.get_mut(link as usize)
        {
            tally.arrived.note(&frame);
        }
        match state.far {
            Far::Host(host) if host == frame.to => return true,
            Far::Host(_) => {}
            Far::Switch(switch) => {
                let at = &mut self.switches[switch as usize];
                let to = Destination::Host(frame.to);
                if let Egress::One(port) = at.switch.forwarding_mut().egress(PortIndex::OWN, to, frame.hash) {
                    if let Some(link) = forward(now, at, &mut self.links, port, frame, agenda, bodies) {
                        self.offer(now, link, frame, agenda, bodies);
                    }
                    return false;
                }
            }
        }
        self.arrive_for_several(now, link, frame, agenda, bodies)
    }

    /// The same of a frame for which there is nobody here, and no way on: it is for a group, or astray.
    #[inline(never)]
    fn arrive_for_several(
        &mut self,
        now: Time,
        link: u32,
        frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) -> bool {
        match self.links[link as usize].far {
            Far::Host(host) if self.groups.includes(frame.to, host) => return true,
            Far::Host(_) => self.stray(link, frame, bodies),
            Far::Switch(switch) => self.part(now, link, switch, frame, agenda, bodies),
        }
        false
    }

    /// The endpoint of a group that a frame has come to over this link.
    pub(super) fn member_at(&self, path: u32, link: u32) -> u32 {
        let Far::Host(host) = self.links[link as usize].far else { panic!("a member is at a host") };
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
        let Some((group, among)) = groups.subset(frame.to) else { return self.stray(link, frame, bodies) };
        let forwarding = switches[switch as usize].switch.forwarding_mut();
        let mut reached = 0;
        for branch in forwarding.branches(groups.hosts(group), among, frame.hash) {
            reached |= branch.hosts;
            copies.push((branch.port, SimFrame { to: groups.narrowed(group, branch.hosts), ..frame }));
        }
        if copies.is_empty() {
            return self.stray(link, frame, bodies);
        }
        self.faults.unroutable += u64::from(reached != among);
        let mut copies = std::mem::take(copies);
        // Before any of them is dropped: the message goes with the last one.
        for (_, copy) in &copies[1..] {
            bodies.copied(copy.body);
            if let Some(tally) = self.tallies.get_mut(link as usize) {
                tally.copied.note(copy);
            }
        }
        for (port, copy) in copies.drain(..) {
            let at = &mut self.switches[switch as usize];
            if let Some(link) = forward(now, at, &mut self.links, port, copy, agenda, bodies) {
                self.offer(now, link, copy, agenda, bodies);
            }
        }
        self.copies = copies;
    }

    /// A frame that came over this link has no way on.
    fn stray(&mut self, link: u32, frame: SimFrame, bodies: &mut Bodies) {
        self.faults.unroutable += 1;
        if let Some(tally) = self.tallies.get_mut(link as usize) {
            tally.stray.note(&frame);
        }
        bodies.forget(frame.body);
    }

    #[inline]
    fn port(&mut self, near: Near) -> &mut Port<SimFrame> {
        match near {
            Near::Nic(nic) => &mut self.nics[nic as usize],
            Near::Switch { switch, port } => self.switches[switch as usize].switch.port_mut(port),
        }
    }

    /// A frame goes into the queue of a link.
    #[inline]
    fn offer(
        &mut self,
        now: Time,
        link: u32,
        mut frame: SimFrame,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        let state = &mut self.links[link as usize];
        if let Near::Nic(nic) = state.near
            && !state.watched
            && let port = &mut self.nics[nic as usize]
        {
            if port.is_plain() {
                return pass(now, link, state, port, frame, agenda, bodies);
            }
            if state.lazy {
                return queue(now, link, state, port, frame, agenda, bodies);
            }
        }
        if let Some(tally) = self.tallies.get_mut(link as usize) {
            tally.offered.note(&frame);
        }
        let near = state.near;
        let port = self.port(near);
        if port.is_plain() {
            match port.pass(now, &mut frame) {
                Passed::Leaves(at) => self.depart(at, link, frame, agenda, bodies),
                Passed::Dropped => bodies.forget(frame.body),
            }
            return;
        }
        if let Offered::Dropped(frame) = port.enqueue(now, frame) {
            bodies.forget(frame.body);
        }
        self.serve(now, link, agenda, bodies);
    }

    /// Sends what has left the queue of a port that keeps its frames, and looks when the next one will.
    pub(super) fn serve(&mut self, now: Time, link: u32, agenda: &mut Agenda<Event>, bodies: &mut Bodies) {
        let near = self.links[link as usize].near;
        while let Some((at, frame)) = self.port(near).dequeue(now) {
            self.depart(at, link, frame, agenda, bodies);
        }
        let next = self.port(near).next_departure().map_or(u64::MAX, Time::as_nanos);
        let link_state = &mut self.links[link as usize];
        if next < link_state.serving {
            link_state.serving = next;
            agenda.push(next, Event::Serve { link });
        }
    }

    /// The departure event of a link has come.
    pub(super) fn serve_due(
        &mut self,
        now: Time,
        link: u32,
        agenda: &mut Agenda<Event>,
        bodies: &mut Bodies,
    ) {
        let state = &mut self.links[link as usize];
        if state.serving == now.as_nanos() {
            state.serving = u64::MAX;
        }
        if state.lazy {
            let port = match state.near {
                Near::Nic(nic) => &mut self.nics[nic as usize],
                Near::Switch { switch, port } => self.switches[switch as usize].switch.port_mut(port),
            };
            collect(now, link, state, port, agenda);
            return ask_later(link, state, port, agenda);
        }
        self.serve(now, link, agenda, bodies);
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
        let fate = faults.carry(frame.trimmed_len > 0);
        self.faults.note(fate);
        let Fate::Arrives { later, copy } = fate else {
            if let Some(tally) = self.tallies.get_mut(link as usize) {
                tally.lost.note(&frame);
            }
            return bodies.forget(frame.body);
        };
        if let Some(later) = copy {
            if let Some(tally) = self.tallies.get_mut(link as usize) {
                tally.duplicated.note(&frame);
            }
            bodies.copied(frame.body);
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
        if std::mem::replace(&mut self.links[link as usize].lazy, false) {
            self.serve(now, link, agenda, bodies);
        }
        let near = self.links[link as usize].near;
        if let LinkChange::Rate(rate) = change {
            self.port(near).set_rate(now, rate).expect("the set-up was checked");
            return self.serve(now, link, agenda, bodies);
        }
        let seed = self.seed;
        let state = &mut self.links[link as usize];
        state.watched = true;
        state.faults.get_or_insert_with(|| Box::new(LinkFaults::new(seed, link))).change(change);
        if let LinkChange::Down(down) = change {
            for frame in self.port(near).clear(now).frames {
                bodies.forget(frame.body);
            }
            if let Near::Switch { switch, port } = near {
                self.switches[switch as usize].switch.forwarding_mut().set_port_up(port, !down);
            }
        }
    }

    /// The port of this link must be able to change its rate or to be cut: it keeps its frames from the start.
    pub(super) fn keep_frames(&mut self, link: u32) {
        let near = self.links[link as usize].near;
        self.port(near).make_plain(false);
        self.links[link as usize].lazy = false;
    }

    fn is_down(&self, link: u32) -> bool {
        self.links[link as usize].faults.as_ref().is_some_and(|f| f.is_down())
    }

    /// Frames in the queue of a link, the one on the line included.
    pub(super) fn queue_len(&mut self, now: Time, link: u32) -> u64 {
        let near = self.links[link as usize].near;
        self.port(near).queue_len(now)
    }

    /// What the port of a link counted.
    pub(super) fn stats(&mut self, now: Time, link: u32) -> PortStats {
        let near = self.links[link as usize].near;
        self.port(near).queue_len(now);
        self.port(near).stats()
    }

    pub(super) fn link_count(&self) -> u32 {
        self.links.len() as u32
    }
}

/// A frame leaves a switch, by a link that does what it should. Another one is given back: the frame must be offered to it.
// Once for every hop of every packet; a call costs a seventh of what it does.
#[inline(always)]
fn forward(
    now: Time,
    at: &mut SwitchAt,
    links: &mut [Link],
    port: PortIndex,
    frame: SimFrame,
    agenda: &mut Agenda<Event>,
    bodies: &mut Bodies,
) -> Option<u32> {
    let link = at.links[usize::from(port.0)];
    let state = &mut links[link as usize];
    let port = at.switch.port_mut(port);
    if port.is_plain() && !state.watched {
        pass(now, link, state, port, frame, agenda, bodies);
    } else if state.lazy {
        queue(now, link, state, port, frame, agenda, bodies);
    } else {
        return Some(link);
    }
    None
}

/// A frame goes through a plain port to a link that does what it should.
// Once for every hop of every packet; a call costs a seventh of what it does.
#[inline(always)]
fn pass(
    now: Time,
    link: u32,
    state: &Link,
    port: &mut Port<SimFrame>,
    mut frame: SimFrame,
    agenda: &mut Agenda<Event>,
    bodies: &mut Bodies,
) {
    match port.pass(now, &mut frame) {
        Passed::Leaves(at) => agenda.push(at.as_nanos() + state.delay, Event::Arrive { link, frame }),
        Passed::Dropped => bodies.forget(frame.body),
    }
}

/// A frame goes into a port that keeps its frames and may be asked late.
#[inline]
fn queue(
    now: Time,
    link: u32,
    state: &mut Link,
    port: &mut Port<SimFrame>,
    frame: SimFrame,
    agenda: &mut Agenda<Event>,
    bodies: &mut Bodies,
) {
    let delay = state.delay;
    let left = |at: Time, frame| agenda.push(at.as_nanos() + delay, Event::Arrive { link, frame });
    if let Offered::Dropped(frame) = port.exchange(now, frame, left) {
        bodies.forget(frame.body);
    }
    if state.serving == u64::MAX {
        ask_later(link, state, port, agenda);
    }
}

/// Everything that has left a port is on its way.
#[inline]
fn collect(now: Time, link: u32, state: &Link, port: &mut Port<SimFrame>, agenda: &mut Agenda<Event>) {
    while let Some((at, frame)) = port.dequeue(now) {
        agenda.push(at.as_nanos() + state.delay, Event::Arrive { link, frame });
    }
}

/// The port is asked again when the next frame that leaves it has crossed the link, if nothing comes before.
#[inline]
fn ask_later(link: u32, state: &mut Link, port: &Port<SimFrame>, agenda: &mut Agenda<Event>) {
    if let Some(next) = port.next_departure() {
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
