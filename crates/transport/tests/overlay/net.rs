//! A star of hosts that all can send and receive, and a controller.

mod figures;

use std::collections::BTreeMap;

use headwater_controller::{Controller, ControllerCommand, ControllerConfig, ControllerStats};
use headwater_machine::{Endpoint, Packet};
use headwater_testkit::messages::node_info;
use headwater_testkit::{
    Addressed, Command, Duty, Event, Line, Link, Network, Reception, Role, Simulation, Weather, receivers,
};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::Receivers;
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::*;
use headwater_units::*;
use headwater_wire::*;

use crate::spec::Spec;

const CONTROL: u32 = 1000;
const ASKER: PathId = PathId(999);
const FETCH: FetchId = FetchId(1);
pub(crate) const DELAY: Duration = Duration::from_micros(100);
const OBJECT: ObjectId = ObjectId([9; 32]);
/// In place of a host.
const CONTROLLER: usize = usize::MAX;
/// The controller's machine.
const PLANS: usize = 0;
/// The link of all control messages.
const CONTROL_LINK: usize = 0;

/// The machine, and the link, by which a host sends.
fn up(host: usize) -> usize {
    1 + 2 * host
}

/// The machine, and the link, by which a host receives.
fn down(host: usize) -> usize {
    2 + 2 * host
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Kill(usize),
    Join(usize),
    /// It says goodbye and goes.
    Leave(usize),
}

/// Action scheduled for later.
pub(crate) enum Later {
    Do(Act),
    Tell(usize, Command),
    Decode(usize, BlockIndex),
}

struct Host {
    source: Source,
    receivers: Receivers,
    dead: bool,
    got: Reception,
    /// By block that is coming: the first source symbol that is not here.
    partly: BTreeMap<BlockIndex, u32>,
    /// It asks by itself.
    by_itself: bool,
    sent: u64,
    request: Option<u64>,
}

pub(crate) struct Net {
    pub(crate) spec: Spec,
    pub(crate) bytes: Bytes,
    network: Network<Addressed, Later>,
    controller: Controller,
    hosts: Vec<Host>,
    geometry: Option<Geometry>,
    /// Where the sources of flows are.
    sources: BTreeMap<FlowId, usize>,
    /// Payload that has entered each rack.
    entered: BTreeMap<&'static str, u64>,
    /// The links of each rack: out of it, and behind that the one into it.
    rack_links: BTreeMap<&'static str, usize>,
    /// Those who are yet to come.
    awaited: usize,
}

fn node(host: usize) -> NodeId {
    NodeId([host as u8 + 1; 32])
}

fn control_path(host: usize) -> PathId {
    PathId(CONTROL + host as u32)
}

impl Net {
    pub(crate) fn new(spec: Spec, bytes: Bytes, seed: u64) -> Self {
        let config = ControllerConfig { groups: Vec::new(), ..ControllerConfig::default() };
        let is_late = |host: usize| spec.late.iter().any(|(late, _)| *late == host);
        let host = |host: usize| Host {
            source: Source::new(SourceConfig::default(), [seed as u8 ^ host as u8; 32]),
            receivers: receivers(BitRate::new(10_000_000_000)),
            dead: is_late(host),
            got: Reception::default(),
            partly: BTreeMap::new(),
            by_itself: is_late(host),
            sent: 0,
            request: None,
        };
        let hosts: Vec<Host> = (0..spec.sources + spec.receivers).map(host).collect();
        let link = |rate| Link { line: Line::Rate(rate), room: spec.queue, ..Link::new(spec.delay) };
        let weather = Weather { loss: spec.loss, late: spec.reorder, by: DELAY * 10, ..Weather::default() };
        let mut links = vec![Link::new(DELAY)];
        for host in 0..hosts.len() as u64 {
            links.push(link(spec.rate).with_faults(weather.faults(seed.wrapping_mul(1000) + host)));
            links.push(Link { delay: Duration::ZERO, ..link(spec.rate) });
        }
        let mut rack_links = BTreeMap::new();
        for (rack, rate) in spec.racks.iter().zip(core::iter::repeat(spec.rack_rate)) {
            if let Some(rate) = rate.filter(|_| !rack_links.contains_key(rack)) {
                rack_links.insert(*rack, links.len());
                links.extend([link(rate), link(rate)]);
            }
        }
        let mut net = Net {
            bytes,
            network: Network::new(links),
            controller: Controller::new(config, [seed as u8; 32]),
            hosts,
            geometry: None,
            sources: BTreeMap::new(),
            entered: BTreeMap::new(),
            rack_links,
            awaited: spec.late.len(),
            spec,
        };
        for host in 0..net.hosts.len() {
            if !net.hosts[host].dead {
                net.introduce(host);
            }
        }
        for (late, at) in net.spec.late.clone() {
            net.act(at, Act::Join(late));
        }
        let to: Vec<NodeId> = net.receivers().filter(|host| !net.hosts[*host].by_itself).map(node).collect();
        if !to.is_empty() {
            let (name, class, wish) = ("object".into(), Class::Bulk, CastWish::Best);
            let cast = Cast { cast: 1, name, to, first: 0, of: 0, class, wish };
            let opened =
                ControllerCommand::PathOpened { path: ASKER, node: NodeId([255; 32]), network: None };
            net.tell(PLANS, Role::Controller(opened));
            net.hear(PLANS, Packet::control(ASKER, ToController::Cast(cast)));
        }
        net
    }

    pub(crate) fn controller_stats(&self) -> ControllerStats {
        *self.controller.stats()
    }

    /// Those that are to have the object.
    pub(crate) fn receivers(&self) -> core::ops::Range<usize> {
        self.spec.sources..self.hosts.len()
    }

    fn rack(&self, host: usize) -> Option<&'static str> {
        self.spec.racks.get(host).copied()
    }

    fn introduce(&mut self, host: usize) {
        let rack = self.rack(host).filter(|_| self.spec.told);
        let rack = rack.map(|name| (name.to_owned(), self.spec.rack_rate));
        let info = NodeInfo { rack, ..node_info(node(host), format!("host {host}"), host as u8) };
        let mut says = vec![ToController::Hello(info)];
        if !self.hosts[host].by_itself {
            says.push(ToController::Keeps);
        }
        if host < self.spec.sources {
            let (object, bytes) = (OBJECT, self.bytes);
            says.push(ToController::Hold(Holding { object, bytes, name: Some("object".into()) }));
            self.tell(up(host), Role::Source(SourceCommand::Hold { object, bytes }));
        }
        says.into_iter().for_each(|says| self.tell_controller(host, Packet::control(ASKER, says)));
    }

    pub(crate) fn set_rate(&mut self, host: usize, factor: f64) {
        let rate = self.spec.rate.mul_f64(factor);
        for link in [up(host), down(host)] {
            self.network.links[link].line = Line::Rate(rate);
        }
    }

    pub(crate) fn act(&mut self, when: Duration, act: Act) {
        self.network.at(Time::ZERO + when, Later::Do(act));
    }

    pub(crate) fn run(&mut self, limit: Duration) {
        let is_over = |net: &Net| {
            let mut hosts = net.receivers().map(|host| &net.hosts[host]);
            net.awaited == 0 && hosts.all(|host| host.dead || host.got.done().is_some())
        };
        while self.step(Time::ZERO + limit) && !is_over(self) {}
    }

    fn perform(&mut self, act: Act) {
        match act {
            // A controller notices after a while.
            Act::Kill(host) => self.go(host, Duration::from_secs(3)),
            Act::Leave(host) if self.hosts[host].dead => {}
            Act::Leave(host) => {
                self.tell(down(host), Role::Receiver(ToFetch(FETCH, ReceiverCommand::Cancel)));
                self.tell_source(host, Arriving::Over);
                // It closes its connections.
                self.go(host, DELAY * 2);
            }
            Act::Join(host) => {
                self.awaited -= 1;
                self.hosts[host].dead = false;
                self.introduce(host);
                // By itself: nobody has invited it.
                self.fetch(host, 4711);
            }
        }
    }

    fn go(&mut self, host: usize, noticed: Duration) {
        self.hosts[host].dead = true;
        let lost = ControllerCommand::PathLost { path: control_path(host) };
        self.network.after(noticed, Later::Tell(PLANS, Role::Controller(lost)));
    }

    fn symbol_size(&self) -> u16 {
        self.geometry.map_or(0, |geometry| geometry.symbol_size())
    }

    fn on_control(&mut self, to: usize, packet: Packet) {
        let Body::Control(control) = &packet.datagram.body else { unreachable!("only control rides there") };
        match &**control {
            Control::Node(ToNode::Fetch(invitation)) => {
                let request = invitation.request;
                if self.hosts[to].request != Some(request) {
                    self.fetch(to, request);
                }
            }
            Control::Node(ToNode::StopFetch { .. }) => {}
            Control::Source(_) => self.hear(up(to), packet),
            _ => self.hear(down(to), packet),
        }
    }

    fn fetch(&mut self, host: usize, request: u64) {
        self.hosts[host].request = Some(request);
        let config = ReceiverConfig {
            delivery: None,
            passes_on: true,
            ..ReceiverConfig::new("object", node(host), control_path(host), request)
        };
        let fetch = ReceiverCommand::Fetch(Box::new(config));
        self.tell(down(host), Role::Receiver(ToFetch(FETCH, fetch)));
    }

    fn tell_controller(&mut self, host: usize, packet: Packet) {
        let path = control_path(host);
        let opened = ControllerCommand::PathOpened { path, node: node(host), network: None };
        self.tell(PLANS, Role::Controller(opened));
        self.hear(PLANS, Packet { path, ..packet });
    }

    fn tell_source(&mut self, host: usize, what: Arriving) {
        self.tell(up(host), Role::Source(SourceCommand::Arriving { object: OBJECT, what }));
    }

    /// A host sends a datagram: it has what it sends.
    fn send(&mut self, from: usize, packet: Packet) {
        let to = packet.path.0 as usize;
        if let Body::Symbol(header) = &packet.datagram.body {
            let symbol_size = u64::from(self.symbol_size());
            let host = &mut self.hosts[from];
            host.sent += symbol_size;
            let has = match from < self.spec.sources {
                true => {
                    let layout = self.geometry.expect("it was accepted").layout();
                    header.symbol.block.0 < layout.block_count()
                }
                false => host.got.has(header.symbol),
            };
            assert!(has, "host {from} sends {:?}, which it has not", header.symbol);
            if let Some(rack) = self.rack(to).filter(|rack| self.rack(from) != Some(rack)) {
                *self.entered.entry(rack).or_default() += symbol_size;
            }
        }
        self.put(up(from), Addressed { from, to, packet: Packet { path: PathId(from as u32), ..packet } });
    }

    fn put(&mut self, link: usize, it: Addressed) {
        let bytes = it.packet.datagram.len(self.symbol_size()) as u64 + 66;
        self.network.send(link, Bytes::new(bytes), it);
    }

    /// The link behind this one on the path of a packet, if it is not there.
    fn next(&self, link: usize, it: &Addressed) -> Option<usize> {
        let [out, into] = [it.from, it.to].map(|host| self.rack(host));
        let leaves = out.filter(|rack| into != Some(rack)).and_then(|rack| self.rack_links.get(rack));
        let enters = into.filter(|rack| out != Some(rack)).and_then(|rack| self.rack_links.get(rack));
        let (leaves, enters, last) = (leaves.copied(), enters.map(|link| link + 1), down(it.to));
        match link {
            _ if link == last => None,
            _ if link == up(it.from) => leaves.or(enters).or(Some(last)),
            _ if Some(link) == leaves => enters.or(Some(last)),
            _ => Some(last),
        }
    }

    fn on_source(&mut self, host: usize, event: SourceEvent) {
        match event {
            SourceEvent::Opened(opened) => _ = self.sources.insert(opened.flow, host),
            SourceEvent::Prepare { flow, block, repair } => {
                let here = host < self.spec.sources || self.hosts[host].got.whole.contains(&block);
                assert!(here, "host {host} is to read {block:?}, which it has not");
                let ready = Role::Source(SourceCommand::BlockReady { flow, block, repair });
                self.network.after(Duration::from_micros(100), Later::Tell(up(host), ready));
            }
            SourceEvent::Closed { .. } | SourceEvent::Release { .. } | SourceEvent::FellBack { .. } => {}
        }
    }

    fn on_receiver(&mut self, host: usize, event: ReceiverEvent) {
        let now = self.network.now();
        match &event {
            ReceiverEvent::Accepted { bytes, symbol_size, .. } => {
                let geometry = Geometry::new(*bytes, *symbol_size).unwrap();
                let before = self.geometry.replace(geometry);
                assert!(before.is_none_or(|before| before == geometry), "cut alike for all");
                for (block, _) in std::mem::take(&mut self.hosts[host].partly) {
                    self.tell_source(host, Arriving::Partly { block, below: Esi(0) });
                }
                let relaying =
                    Relaying { object: OBJECT, bytes: *bytes, symbol_size: *symbol_size, have: Vec::new() };
                let relay = Role::Source(SourceCommand::Relay(Box::new(relaying)));
                self.network.after(Duration::from_micros(300), Later::Tell(up(host), relay));
            }
            ReceiverEvent::Failed(failure) if *failure != ReceiverFailure::Cancelled => {
                panic!("host {host}: {failure:?}")
            }
            ReceiverEvent::Distrusted { node } => panic!("host {host} believes {node} to lie"),
            _ => {}
        }
        let is_done = event == ReceiverEvent::Done;
        let (comes, goes) = match event {
            ReceiverEvent::Symbol { symbol, .. } => (Some(symbol.block), None),
            ReceiverEvent::Decode { block } | ReceiverEvent::Discard { block } => (None, Some(block)),
            _ => (None, None),
        };
        let told = |command| Later::Tell(down(host), Role::Receiver(ToFetch(FETCH, command)));
        match self.hosts[host].got.on_event(now, event) {
            Some(Duty::Start(start)) => self.network.after(Duration::from_micros(300), told(start)),
            Some(Duty::FindPath(bind)) => {
                let path = PathId(u32::from(bind.node.0[0]) - 1);
                let found = ReceiverCommand::FlowPath { flow: bind.flow, path };
                self.network.after(Duration::ZERO, told(found));
            }
            Some(Duty::Decode(block)) => {
                self.network.after(Duration::from_micros(500), Later::Decode(host, block));
            }
            None => {}
        }
        comes.into_iter().for_each(|block| self.tell_what_came(host, block));
        if let Some(block) = goes {
            self.hosts[host].partly.remove(&block);
            self.tell_source(host, Arriving::Partly { block, below: Esi(0) });
        }
        if is_done {
            self.done(host);
        }
    }

    /// As a node does, after every eight symbols.
    fn tell_what_came(&mut self, host: usize, block: BlockIndex) {
        let Host { got, partly, .. } = &mut self.hosts[host];
        let below = partly.entry(block).or_default();
        let before = *below;
        while got.has(SymbolId { block, esi: Esi(*below) }) {
            *below += 1;
        }
        let below = *below;
        if below / 8 > before / 8 {
            self.tell_source(host, Arriving::Partly { block, below: Esi(below / 8 * 8) });
        }
    }

    fn done(&mut self, host: usize) {
        if self.hosts[host].by_itself
            && let Some(drain) = self.spec.drains
        {
            // A block that is here is not held, but can be read.
            return self.network.after(drain, Later::Do(Act::Leave(host)));
        }
        let hold = SourceCommand::Hold { object: OBJECT, bytes: self.bytes };
        self.tell(up(host), Role::Source(hold));
        let kept = Fetched {
            request: self.hosts[host].request.expect("it was invited"),
            end: FetchEnd::Kept,
            by_group: Bytes::ZERO,
            by_unicast: self.bytes,
            relayed: Bytes::ZERO,
            from: Vec::new(),
            files: Bytes::ZERO,
        };
        let holding = Holding { object: OBJECT, bytes: self.bytes, name: None };
        for says in [ToController::Hold(holding), ToController::Fetched(kept)] {
            self.transmit(down(host), Packet::control(ASKER, says));
        }
    }
}

impl Simulation for Net {
    type Command = Command;
    type Event = Event;
    type Carried = Addressed;
    type Act = Later;

    fn network(&mut self) -> &mut Network<Addressed, Later> {
        &mut self.network
    }

    fn machine(&mut self, machine: usize) -> impl Endpoint<Command = Command, Event = Event> {
        match machine.checked_sub(1) {
            None => Role::Controller(&mut self.controller),
            Some(place) if place % 2 == 0 => Role::Source(&mut self.hosts[place / 2].source),
            Some(place) => Role::Receiver(&mut self.hosts[place / 2].receivers),
        }
    }

    fn is_up(&self, machine: usize) -> bool {
        machine == PLANS || !self.hosts[(machine - 1) / 2].dead
    }

    fn transmit(&mut self, machine: usize, packet: Packet) {
        let is_control = matches!(packet.datagram.body, Body::Control(_));
        let (from, to) = match machine.checked_sub(1) {
            None if packet.path == ASKER => return,
            None => (CONTROLLER, (packet.path.0 - CONTROL) as usize),
            Some(place) if is_control => (place / 2, CONTROLLER),
            Some(place) => return self.send(place / 2, packet),
        };
        self.network.send(CONTROL_LINK, Bytes::ZERO, Addressed { from, to, packet });
    }

    fn on_event(&mut self, machine: usize, event: Event) {
        match event {
            Role::Source(event) => self.on_source((machine - 1) / 2, event),
            Role::Receiver(FromFetch(_, event)) => self.on_receiver((machine - 1) / 2, event),
            Role::Controller(_) => {}
        }
    }

    fn arrive(&mut self, link: usize, it: Addressed) {
        if it.to == CONTROLLER {
            return self.tell_controller(it.from, it.packet);
        }
        if self.hosts[it.to].dead {
            return;
        }
        if link == CONTROL_LINK {
            return self.on_control(it.to, it.packet);
        }
        if let Some(next) = self.next(link, &it) {
            return self.put(next, it);
        }
        let Addressed { to, packet, .. } = it;
        let of_receivers =
            |body: &Body| matches!(body, Body::Assign(_) | Body::Ack(_) | Body::ProbeAck(_) | Body::Fin(_));
        let is_for_receiver = !of_receivers(&packet.datagram.body);
        let source = self.sources.get(&packet.datagram.flow);
        if source.map_or(is_for_receiver, |source| *source != to) {
            self.hosts[to].got.hands_in(&packet);
            self.hear(down(to), packet);
        } else {
            self.hear(up(to), packet);
        }
    }

    fn act(&mut self, later: Later) {
        match later {
            Later::Do(act) => self.perform(act),
            Later::Decode(host, block) => {
                if self.hosts[host].dead {
                    return;
                }
                if let Some(decoded) = self.hosts[host].got.decode(block, |_| Ok(())) {
                    self.tell_source(host, Arriving::Whole(block));
                    self.tell(down(host), Role::Receiver(ToFetch(FETCH, decoded)));
                }
            }
            Later::Tell(machine, mut command) => {
                // A host that has begun anew names its blocks when it is asked.
                if let Role::Receiver(ToFetch(_, ReceiverCommand::Start { have, .. })) = &mut command {
                    *have = self.hosts[(machine - 1) / 2].got.whole.iter().copied().collect();
                }
                if let Role::Source(SourceCommand::Relay(relaying)) = &mut command {
                    relaying.have = self.hosts[(machine - 1) / 2].got.whole.iter().copied().collect();
                }
                self.tell(machine, command);
            }
        }
    }
}
