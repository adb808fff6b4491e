//! A star of hosts that all can send and receive, and a controller that is reached in no time to speak of.

mod figures;

use std::collections::{BTreeMap, BTreeSet};

use headwater_controller::{Controller, ControllerCommand, ControllerConfig};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::Agenda;
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::*;
use headwater_units::*;
use headwater_wire::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::happening::{Act, Command, Happening, Line};
use crate::spec::Spec;

const CONTROL: u32 = 1000;
const ASKER: PathId = PathId(999);
const FETCH: FetchId = FetchId(1);
const DELAY: Duration = Duration::from_micros(100);
const OBJECT: ObjectId = ObjectId([9; 32]);

struct Host {
    source: Source,
    receivers: Receivers,
    up: Line,
    down: Line,
    dead: bool,
    /// What is here of blocks that are not whole, and whether the decoder has it.
    blocks: BTreeMap<u32, (BTreeSet<u32>, bool)>,
    whole: BTreeSet<u32>,
    /// Of those, what was with the decoder when the task began anew.
    outrun: BTreeSet<u32>,
    /// So often its task has begun.
    begun: u32,
    /// So often it has waited for a source until it was silent for too long.
    timeouts: u64,
    /// It asks by itself.
    alone: bool,
    sent: u64,
    request: Option<u64>,
    not_passed_on: BTreeSet<FlowId>,
    finished: Option<Time>,
}

pub(crate) struct Net {
    pub(crate) spec: Spec,
    pub(crate) bytes: Bytes,
    now: Time,
    rng: ChaCha8Rng,
    agenda: Agenda<Happening>,
    controller: Controller,
    hosts: Vec<Host>,
    geometry: Option<Geometry>,
    /// Where the sources of flows are.
    sources: BTreeMap<FlowId, usize>,
    wakes: BTreeMap<usize, Time>,
    /// Payload that has entered each rack.
    entered: BTreeMap<&'static str, u64>,
    /// Of each rack: out of it, and into it.
    rack_lines: BTreeMap<&'static str, [Line; 2]>,
    /// Those who are yet to come.
    awaited: usize,
    pub(crate) dropped: u64,
}

fn node(host: usize) -> NodeId {
    NodeId([host as u8 + 1; 32])
}

impl Net {
    pub(crate) fn new(spec: Spec, bytes: Bytes, seed: u64) -> Self {
        let config = ControllerConfig { groups: Vec::new(), ..ControllerConfig::default() };
        let host = |host: usize| Host {
            source: Source::new(SourceConfig::default(), [seed as u8 ^ host as u8; 32]),
            receivers: Receivers::new(HostReceiverConfig {
                pull: PullConfig {
                    rate: BitRate::new(10_000_000_000),
                    packet: Bytes::new(1500),
                    catch_up: Duration::ZERO,
                },
            }),
            up: Line::new(spec.rate),
            down: Line::new(spec.rate),
            dead: spec.late.iter().any(|(late, _)| *late == host),
            blocks: BTreeMap::new(),
            whole: BTreeSet::new(),
            outrun: BTreeSet::new(),
            begun: 0,
            timeouts: 0,
            alone: spec.late.iter().any(|(late, _)| *late == host),
            sent: 0,
            request: None,
            not_passed_on: BTreeSet::new(),
            finished: None,
        };
        let hosts = (0..spec.sources + spec.receivers).map(host).collect();
        let rack_line = || Line::new(spec.rack_rate.unwrap_or_default());
        let rack_lines = spec.racks.iter().map(|rack| (*rack, [rack_line(), rack_line()])).collect();
        let mut net = Net {
            bytes,
            now: Time::ZERO,
            rng: ChaCha8Rng::seed_from_u64(seed),
            agenda: Agenda::default(),
            controller: Controller::new(config, [seed as u8; 32]),
            hosts,
            geometry: None,
            sources: BTreeMap::new(),
            wakes: BTreeMap::new(),
            entered: BTreeMap::new(),
            rack_lines,
            awaited: spec.late.len(),
            dropped: 0,
            spec,
        };
        (0..net.hosts.len())
            .filter(|host| !net.hosts[*host].dead)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|host| net.introduce(host));
        for (late, at) in net.spec.late.clone() {
            net.act(at, Act::Join(late));
        }
        let to: Vec<NodeId> = net.receivers().filter(|host| !net.hosts[*host].alone).map(node).collect();
        if !to.is_empty() {
            let cast = Cast { cast: 1, name: "object".into(), to, class: Class::Bulk, wish: CastWish::Best };
            let packet = Packet::control(ASKER, ToController::Cast(cast));
            let opened = ControllerCommand::PathOpened { path: ASKER, node: NodeId([255; 32]) };
            net.controller.handle(net.now, Input::Command(opened));
            net.controller.handle(net.now, Input::Packet(packet));
            net.drain_controller();
        }
        net
    }

    /// Those that are to have the object.
    pub(crate) fn receivers(&self) -> core::ops::Range<usize> {
        self.spec.sources..self.hosts.len()
    }

    fn rack(&self, host: usize) -> Option<&'static str> {
        self.spec.racks.get(host).copied()
    }

    fn introduce(&mut self, host: usize) {
        let info = NodeInfo {
            node: node(host),
            name: format!("host {host}"),
            listen: None,
            data: vec![([10, 0, 0, host as u8], 1).into()],
            uplink: None,
            downlink: None,
            rack: self
                .rack(host)
                .filter(|_| self.spec.told)
                .map(|name| (name.to_owned(), self.spec.rack_rate)),
            room: 1424,
            incarnation: 1,
            rtt: None,
            seen: None,
            labels: Default::default(),
        };
        let mut says = vec![Control::Controller(ToController::Hello(info))];
        if !self.hosts[host].alone {
            says.push(Control::Controller(ToController::Keeps));
        }
        if host < self.spec.sources {
            says.push(Control::Controller(ToController::Hold(Holding {
                object: OBJECT,
                bytes: self.bytes,
                name: Some("object".into()),
            })));
            let hold = SourceCommand::Hold { object: OBJECT, bytes: self.bytes };
            self.hosts[host].source.handle(self.now, Input::Command(hold));
        }
        for control in says {
            self.tell_controller(host, control);
        }
        self.drain_controller();
    }

    pub(crate) fn set_rate(&mut self, host: usize, factor: f64) {
        let rate = self.spec.rate.mul_f64(factor);
        (self.hosts[host].up.rate, self.hosts[host].down.rate) = (rate, rate);
    }

    pub(crate) fn act(&mut self, when: Duration, act: Act) {
        self.at(Time::ZERO + when, Happening::Do(act));
    }

    fn at(&mut self, time: Time, what: Happening) {
        self.agenda.at(time, what);
    }

    pub(crate) fn run(&mut self, limit: Duration) {
        while let Some(what) = self.agenda.pop() {
            let time = self.agenda.now();
            if time > Time::ZERO + limit {
                break;
            }
            self.now = self.now.max(time);
            self.happen(what);
            if self.awaited == 0
                && self
                    .receivers()
                    .map(|host| &self.hosts[host])
                    .all(|host| host.dead || host.finished.is_some())
            {
                break;
            }
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            // A controller notices after a while.
            Happening::Do(Act::Kill(host)) => self.go(host, Duration::from_secs(3)),
            Happening::Do(Act::Leave(host)) if self.hosts[host].dead => {}
            Happening::Do(Act::Leave(host)) => {
                let cancel = ToFetch(FETCH, ReceiverCommand::Cancel);
                self.hosts[host].receivers.handle(self.now, Input::Command(cancel));
                let over = SourceCommand::Arriving { object: OBJECT, what: Arriving::Over };
                self.hosts[host].source.handle(self.now, Input::Command(over));
                self.drain(host);
                // It closes its connections.
                self.go(host, DELAY * 2);
            }
            Happening::Do(Act::Join(host)) => {
                self.awaited -= 1;
                self.hosts[host].dead = false;
                self.introduce(host);
                // By itself: nobody has invited it.
                self.fetch(host, 4711);
                self.drain(host);
            }
            Happening::Control { from, control } => {
                self.tell_controller(from, control);
                self.drain_controller();
            }
            Happening::WakeController => self.drain_controller(),
            Happening::Tell { command: Command::Controller(command), .. } => {
                self.controller.handle(self.now, Input::Command(command));
                self.drain_controller();
            }
            Happening::LeaveRack { to, .. }
            | Happening::EnterRack { to, .. }
            | Happening::Downlink { to, .. }
            | Happening::Arrive { to, .. }
            | Happening::Hear { to, .. }
            | Happening::Tell { to, .. }
            | Happening::Wake { to }
                if self.hosts[to].dead => {}
            Happening::LeaveRack { to, from, packet } => self.cross(to, from, packet, 0),
            Happening::EnterRack { to, from, packet } => self.cross(to, from, packet, 1),
            Happening::Downlink { to, from, packet } => {
                let bytes = packet.datagram.len(self.symbol_size()) as u64 + 66;
                match self.hosts[to].down.send(self.now, bytes, self.spec.queue) {
                    Some(at) => self.at(at, Happening::Arrive { to, from, packet }),
                    None => self.dropped += 1,
                }
            }
            Happening::Arrive { to, from, mut packet } => {
                packet.path = PathId(from as u32);
                let (flow, is_of_receiver) =
                    (packet.datagram.flow, !matches!(packet.datagram.body, Body::Pull(_) | Body::Fin(_)));
                let at_receiver = self.sources.get(&flow).map_or(is_of_receiver, |source| *source != to);
                match at_receiver {
                    true => self.hosts[to].receivers.handle(self.now, Input::Packet(packet)),
                    false => self.hosts[to].source.handle(self.now, Input::Packet(packet)),
                }
                self.drain(to);
            }
            Happening::Hear { to, control } => {
                self.hear(to, control);
                self.drain(to);
            }
            Happening::Tell { to, command } => {
                if let Command::Receiver(ReceiverCommand::BlockDecoded { block }) = &command {
                    if !self.hosts[to].outrun.contains(&block.0) {
                        self.hosts[to].blocks.remove(&block.0);
                    }
                    self.hosts[to].whole.insert(block.0);
                    self.tell_source(to, Arriving::Whole(*block));
                }
                // Who has begun anew says what is here when it is asked.
                let command = match command {
                    Command::Receiver(ReceiverCommand::Start { wanted, .. }) => {
                        let have: Vec<BlockIndex> =
                            self.hosts[to].whole.iter().map(|block| BlockIndex(*block)).collect();
                        Command::Receiver(ReceiverCommand::Start { wanted, have })
                    }
                    Command::Source(SourceCommand::Relay(mut relaying)) => {
                        relaying.have = self.hosts[to].whole.iter().map(|block| BlockIndex(*block)).collect();
                        Command::Source(SourceCommand::Relay(relaying))
                    }
                    command => command,
                };
                match command {
                    Command::Receiver(command) => {
                        self.hosts[to].receivers.handle(self.now, Input::Command(ToFetch(FETCH, command)));
                    }
                    Command::Source(command) => {
                        self.hosts[to].source.handle(self.now, Input::Command(command));
                    }
                    Command::Controller(_) => unreachable!("it was told above"),
                }
                self.drain(to);
            }
            Happening::Wake { to } => {
                if self.wakes.get(&to).is_some_and(|at| *at <= self.now) {
                    self.wakes.remove(&to);
                    self.drain(to);
                }
            }
        }
    }

    fn go(&mut self, host: usize, noticed: Duration) {
        self.hosts[host].dead = true;
        let lost = ControllerCommand::PathLost { path: PathId(CONTROL + host as u32) };
        let command = Command::Controller(lost);
        self.at(self.now + noticed, Happening::Tell { to: usize::MAX, command });
    }

    fn symbol_size(&self) -> u16 {
        self.geometry.map_or(0, |geometry| geometry.symbol_size())
    }

    fn hear(&mut self, to: usize, control: Control) {
        let path = PathId(CONTROL + to as u32);
        match control {
            Control::Node(ToNode::Fetch(invitation)) => {
                if self.hosts[to].request.replace(invitation.request) != Some(invitation.request) {
                    self.fetch(to, invitation.request);
                }
            }
            Control::Node(ToNode::StopFetch { .. }) => {}
            Control::Source(ToSource::Push(_))
            | Control::Source(ToSource::SetTheta { .. })
            | Control::Source(ToSource::Pause { .. })
            | Control::Source(ToSource::Resume { .. })
            | Control::Source(ToSource::Stop { .. }) => {
                self.hosts[to].source.handle(self.now, Input::Packet(Packet::control(path, control)));
            }
            control => {
                self.hosts[to].receivers.handle(self.now, Input::Packet(Packet::control(path, control)));
            }
        }
    }

    fn fetch(&mut self, host: usize, request: u64) {
        self.hosts[host].request = Some(request);
        let path = PathId(CONTROL + host as u32);
        let config = ReceiverConfig {
            delivery: None,
            passes_on: true,
            ..ReceiverConfig::new("object", node(host), path, request)
        };
        let command = ToFetch(FETCH, ReceiverCommand::Fetch(Box::new(config)));
        self.hosts[host].receivers.handle(self.now, Input::Command(command));
    }

    fn tell_controller(&mut self, host: usize, control: Control) {
        let path = PathId(CONTROL + host as u32);
        let opened = ControllerCommand::PathOpened { path, node: node(host) };
        self.controller.handle(self.now, Input::Command(opened));
        self.controller.handle(self.now, Input::Packet(Packet::control(path, control)));
    }

    fn drain_controller(&mut self) {
        loop {
            match self.controller.poll(self.now) {
                Output::Wake(at) => {
                    if let Some(at) = at {
                        self.at(at, Happening::WakeController);
                    }
                    return;
                }
                Output::Transmit(packet) => {
                    let Body::Control(control) = packet.datagram.body else { unreachable!() };
                    if packet.path.0 >= CONTROL {
                        let to = (packet.path.0 - CONTROL) as usize;
                        self.at(self.now + DELAY, Happening::Hear { to, control: *control });
                    }
                }
                Output::Event(_) => {}
            }
        }
    }

    fn tell_source(&mut self, host: usize, what: Arriving) {
        let command = SourceCommand::Arriving { object: OBJECT, what };
        self.hosts[host].source.handle(self.now, Input::Command(command));
    }

    /// Polls both machines of a host dry.
    fn drain(&mut self, host: usize) {
        let receivers = loop {
            match self.hosts[host].receivers.poll(self.now) {
                Output::Wake(at) => break at,
                Output::Transmit(packet) => self.transmit(host, packet),
                Output::Event(FromFetch(_, event)) => self.on_receiver(host, event),
            }
        };
        let source = self.drain_source(host);
        if let Some(at) = receivers.into_iter().chain(source).min()
            && self.wakes.insert(host, at) != Some(at)
        {
            self.at(at, Happening::Wake { to: host });
        }
    }

    fn drain_source(&mut self, host: usize) -> Option<Time> {
        loop {
            match self.hosts[host].source.poll(self.now) {
                Output::Wake(at) => return at,
                Output::Transmit(packet) => self.transmit(host, packet),
                Output::Event(event) => self.on_source(host, event),
            }
        }
    }

    fn transmit(&mut self, host: usize, packet: Packet) {
        match packet.datagram.body {
            Body::Control(control) => {
                return self.at(self.now + DELAY, Happening::Control { from: host, control: *control });
            }
            Body::Symbol(header) if host < self.spec.sources => {
                self.hosts[host].sent += u64::from(self.symbol_size());
                assert!(
                    header.symbol.block.0 < self.geometry.expect("it was accepted").layout().block_count()
                );
            }
            Body::Symbol(header) => {
                self.hosts[host].sent += u64::from(self.symbol_size());
                let it = &self.hosts[host];
                let (block, esi) = (header.symbol.block.0, header.symbol.esi.0);
                let listed = it.blocks.get(&block).is_some_and(|(here, away)| !away && here.contains(&esi));
                assert!(
                    listed || it.whole.contains(&block),
                    "host {host} sends {:?}, which it has not",
                    header.symbol
                );
            }
            _ => {}
        }
        let to = packet.path.0 as usize;
        if let Some(rack) = self.rack(to).filter(|rack| self.rack(host) != Some(rack))
            && matches!(packet.datagram.body, Body::Symbol(_))
        {
            *self.entered.entry(rack).or_default() += u64::from(self.symbol_size());
        }
        let bytes = packet.datagram.len(self.symbol_size()) as u64 + 66;
        let Some(leaves) = self.hosts[host].up.send(self.now, bytes, self.spec.queue) else {
            self.dropped += 1;
            return;
        };
        if self.rng.random_bool(self.spec.loss) {
            return;
        }
        let late = if self.rng.random_bool(self.spec.reorder) { DELAY * 5 } else { Duration::ZERO };
        let crosses = self.spec.rack_rate.is_some() && self.rack(to) != self.rack(host);
        let next = match (crosses, self.rack(host), self.rack(to)) {
            (true, Some(_), _) => Happening::LeaveRack { to, from: host, packet },
            (true, None, Some(_)) => Happening::EnterRack { to, from: host, packet },
            _ => Happening::Downlink { to, from: host, packet },
        };
        self.at(leaves + DELAY + late, next);
    }

    /// A packet passes the link of a rack: out of its own, and into another.
    fn cross(&mut self, to: usize, from: usize, packet: Packet, way: usize) {
        let bytes = packet.datagram.len(self.symbol_size()) as u64 + 66;
        let rack = self.rack(if way == 0 { from } else { to }).expect("it crosses one");
        let lines = self.rack_lines.get_mut(rack).expect("racks have links");
        let Some(leaves) = lines[way].send(self.now, bytes, self.spec.queue) else {
            self.dropped += 1;
            return;
        };
        let next = match self.rack(to).filter(|_| way == 0) {
            Some(_) => Happening::EnterRack { to, from, packet },
            None => Happening::Downlink { to, from, packet },
        };
        self.at(leaves + DELAY, next);
    }

    fn on_source(&mut self, host: usize, event: SourceEvent) {
        match event {
            SourceEvent::Opened(opened) => _ = self.sources.insert(opened.flow, host),
            SourceEvent::Prepare { flow, block, repair } => {
                let here = host < self.spec.sources || self.hosts[host].whole.contains(&block.0);
                assert!(here, "host {host} is to read {block:?}, which it has not");
                let command = Command::Source(SourceCommand::BlockReady { flow, block, repair });
                self.at(self.now + Duration::from_micros(100), Happening::Tell { to: host, command });
            }
            SourceEvent::Wanted { block, class, symbols, .. } => {
                let command = Command::Receiver(ReceiverCommand::Wanted { block, class, symbols });
                self.at(self.now, Happening::Tell { to: host, command });
            }
            SourceEvent::Closed { .. } | SourceEvent::Release { .. } => {}
        }
    }

    fn on_receiver(&mut self, host: usize, event: ReceiverEvent) {
        let tell = |command| Happening::Tell { to: host, command: Command::Receiver(command) };
        match event {
            ReceiverEvent::Accepted { bytes, symbol_size, .. } => {
                let geometry = Geometry::new(bytes, symbol_size).unwrap();
                assert!(
                    self.geometry.replace(geometry).is_none_or(|before| before == geometry),
                    "cut alike for all"
                );
                let it = &mut self.hosts[host];
                it.begun += 1;
                it.outrun.extend(it.blocks.iter().filter(|(_, (_, away))| *away).map(|(block, _)| *block));
                it.blocks.clear();
                let relaying = Relaying { object: OBJECT, bytes, symbol_size, have: Vec::new() };
                let relay = SourceCommand::Relay(Box::new(relaying));
                let time = self.now + Duration::from_micros(300);
                self.at(time, Happening::Tell { to: host, command: Command::Source(relay) });
                let start =
                    ReceiverCommand::Start { wanted: 0..geometry.layout().block_count(), have: Vec::new() };
                self.at(time, tell(start));
            }
            ReceiverEvent::Bind(bind) => {
                if !bind.passed_on {
                    self.hosts[host].not_passed_on.insert(bind.flow);
                }
                let path = PathId(u32::from(bind.node.0[0]) - 1);
                self.at(self.now, tell(ReceiverCommand::FlowPath { flow: bind.flow, path }));
            }
            ReceiverEvent::Symbol { flow, symbol } => {
                let it = &mut self.hosts[host];
                let finished = it.whole.contains(&symbol.block.0) && !it.outrun.contains(&symbol.block.0);
                assert!(!finished, "a symbol of a finished block was kept");
                let block = it.blocks.entry(symbol.block.0).or_default();
                assert!(!block.1 && block.0.insert(symbol.esi.0), "{symbol:?} was kept twice, or too late");
                if !it.not_passed_on.contains(&flow) {
                    self.tell_source(host, Arriving::Symbol(symbol));
                    _ = self.drain_source(host);
                }
            }
            ReceiverEvent::Decode { block } => {
                let here = self.hosts[host].blocks.get_mut(&block.0).expect("symbols of it came");
                assert!(here.0.len() >= self.geometry.unwrap().source_symbols(block) as usize);
                here.1 = true;
                self.tell_source(host, Arriving::Decoding(block));
                self.at(self.now + Duration::from_micros(500), tell(ReceiverCommand::BlockDecoded { block }));
            }
            ReceiverEvent::Discard { block } => {
                self.hosts[host].blocks.remove(&block.0);
                self.tell_source(host, Arriving::Anew(block));
            }
            ReceiverEvent::Done => {
                let stats = self.hosts[host].receivers.stats(self.now, FETCH);
                self.hosts[host].timeouts = stats.map_or(0, |stats| stats.timeouts);
                self.hosts[host].finished = Some(self.now);
                if self.hosts[host].alone
                    && let Some(linger) = self.spec.lingers
                {
                    // What is here is not held, but can be read.
                    return self.at(self.now + linger, Happening::Do(Act::Leave(host)));
                }
                let hold = SourceCommand::Hold { object: OBJECT, bytes: self.bytes };
                self.hosts[host].source.handle(self.now, Input::Command(hold));
                let request = self.hosts[host].request.expect("it was invited");
                let kept = Fetched {
                    request,
                    end: FetchEnd::Kept,
                    by_group: Bytes::ZERO,
                    alone: self.bytes,
                    relayed: Bytes::ZERO,
                    from: Vec::new(),
                    files: Bytes::ZERO,
                };
                let holding = Holding { object: OBJECT, bytes: self.bytes, name: None };
                for control in [
                    Control::Controller(ToController::Hold(holding)),
                    Control::Controller(ToController::Fetched(kept)),
                ] {
                    self.at(self.now + DELAY, Happening::Control { from: host, control });
                }
            }
            ReceiverEvent::Failed(ReceiverFailure::Cancelled) => {}
            ReceiverEvent::Failed(failure) => panic!("host {host}: {failure:?}"),
            ReceiverEvent::Distrusted { node } => panic!("host {host} believes {node} to lie"),
            ReceiverEvent::Moved(_) | ReceiverEvent::Unbind { .. } | ReceiverEvent::Ended => {}
        }
    }
}
