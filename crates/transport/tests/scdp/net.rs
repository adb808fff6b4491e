//! Hosts that hold an object, hosts that pull it, and everything on its way between them. Every datagram crosses the wire format.
//!
//! Symbols meet a queue before each receiver's link, which trims what finds no room, or drops it; everything else has a delay. A
//! test decides what else becomes of each. The decoder counts symbols, and knows which of them a liar has sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::pull::queue::{PullConfig, PullQueue};
use headwater_transport::pull::{Ask, PullFlowConfig, Session, SessionConfig};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::{
    DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure, SourceCommand, SourceEvent,
};
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FetchId, FlowId, FlowKey, Geometry, NodeId, ObjectId, PathId,
    TaskId, Theta, Time,
};
use headwater_wire::{
    Body, Class, Control, Delivery, FlowGrant, FlowRole, HeaderKey, Pull, Push, SymbolHeader, ToController,
    ToSource, emit, parse,
};

pub(crate) const OBJECT: ObjectId = ObjectId([7; 32]);
/// 64 symbols of 4 KiB in a block of 256 KiB.
pub(crate) const T: u16 = 4096;
pub(crate) const K: u32 = 64;
/// A packet's time on a receiver's link.
pub(crate) const PACKET: Duration = Duration::from_micros(12);
/// One way.
pub(crate) const DELAY: Duration = Duration::from_micros(30);
const CONTROLLER: PathId = PathId(1000);
const RECEIVERS: u32 = 100;
const GROUP_PATH: PathId = PathId(200);
/// The flow of a group.
pub(crate) const GROUP: FlowId = FlowId(9000);

pub(crate) fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The flow from a source to a receiver.
pub(crate) fn flow(source: usize, receiver: usize) -> FlowId {
    FlowId(1 + source as u64 + 100 * receiver as u64)
}

pub(crate) fn node(source: usize) -> NodeId {
    NodeId([1 + source as u8; 32])
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    Lost,
    /// A symbol loses its payload.
    Trimmed,
    /// So much later than usual.
    Late(Duration),
    /// Twice, the second one so much later.
    Twice(Duration),
}

/// Decides on a packet by how many have left that way before, and by what it is.
pub(crate) type Fates = Box<dyn FnMut(u64, &Packet) -> Fate>;

pub(crate) fn no_faults() -> Fates {
    Box::new(|_, _| Fate::Arrives)
}

/// No source hears a receiver's farewell.
pub(crate) fn farewells_are_lost() -> Fates {
    Box::new(|_, packet| match packet.datagram.body {
        Body::Fin(_) => Fate::Lost,
        _ => Fate::Arrives,
    })
}

type Verdict = Box<dyn FnMut(u32, u32, &BTreeSet<FlowId>) -> Result<(), DecodeFailure>>;

enum Happening {
    Queue(usize, Packet),
    /// A receiver's, and which of its links.
    Line(usize, usize),
    ToReceiver(usize, Packet),
    ToSource(usize, Packet),
    Ready(usize, FlowId, BlockIndex, bool),
    Decoded(usize, BlockIndex, u32),
    Wake(Who),
    Call(Box<dyn FnOnce(&mut Net)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Source(usize),
    Receiver(usize),
}

pub(crate) struct SourceHost {
    pub(crate) source: Source,
    pub(crate) dead: bool,
    /// Each of its packets takes so much longer.
    pub(crate) slow: Duration,
    line_free: Time,
    pub(crate) opened: u64,
    pub(crate) closed_at: Vec<(Time, FlowId)>,
    /// Symbols it sent, in order, with their class.
    pub(crate) sent: Vec<(FlowId, SymbolHeader, Class)>,
    pub(crate) detached_said: u64,
    pub(crate) prepared: BTreeSet<(FlowId, u32)>,
}

pub(crate) struct ReceiverHost {
    pub(crate) session: Session,
    pub(crate) pulls: PullQueue<Ask>,
    pub(crate) frozen: bool,
    pub(crate) path_of: BTreeMap<FlowId, usize>,
    lines: Vec<Line>,
    /// Symbols kept, by block and ESI, with the flow that brought them.
    kept: BTreeMap<u32, BTreeMap<u32, FlowId>>,
    tries: BTreeMap<u32, u32>,
    /// How often each block was decoded.
    pub(crate) decoded: BTreeMap<u32, u32>,
    /// Blocks in the order in which they were complete.
    pub(crate) order: Vec<u32>,
    pub(crate) done_at: Option<Time>,
    pub(crate) failed: Option<ReceiverFailure>,
    pub(crate) distrusted: Vec<NodeId>,
    pub(crate) pulled: Vec<(Time, FlowId, Pull)>,
    pub(crate) unbound: BTreeSet<FlowId>,
    bound: BTreeSet<FlowId>,
    pub(crate) discarded: u32,
}

/// A link to a receiver, and what waits for it.
struct Line {
    packet: Duration,
    queue: VecDeque<Packet>,
    busy: bool,
}

pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) sources: Vec<SourceHost>,
    pub(crate) receivers: Vec<ReceiverHost>,
    pub(crate) blocks: u32,
    geometry: Geometry,
    /// Symbols that wait before a receiver; beyond so many they are trimmed, or dropped if `trims` is off.
    pub(crate) room: usize,
    pub(crate) trims: bool,
    /// One way, for this net.
    pub(crate) delay: Duration,
    pub(crate) there: Fates,
    pub(crate) back: Fates,
    /// Whether a header that trimming has made is lost, by how many it has made before.
    pub(crate) loses_header: Box<dyn FnMut(u64) -> bool>,
    pub(crate) headers: u64,
    pub(crate) headers_lost: u64,
    carried: (u64, u64),
    pub(crate) disk: Duration,
    pub(crate) decoder: Duration,
    /// Says how a decoding ends: by block, by try, and by the flows that sent the symbols.
    pub(crate) verdict: Verdict,
    /// Sources are told where receivers are.
    pub(crate) announces: bool,
    happenings: BTreeMap<(Time, u64), Happening>,
    happened: u64,
    wakes: BTreeMap<Who, Time>,
    pub(crate) stopped: Vec<FlowId>,
}

/// How a net is made.
pub(crate) struct Setup {
    pub(crate) sources: usize,
    pub(crate) receivers: usize,
    pub(crate) bytes: u64,
    pub(crate) window: u16,
    pub(crate) session: SessionConfig,
    pub(crate) source: SourceConfig,
    /// The receivers are one group.
    pub(crate) group: bool,
    /// A packet's time on each of a receiver's links; sources take turns over them.
    pub(crate) lines: Vec<Duration>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            sources: 1,
            receivers: 1,
            bytes: 256 << 10,
            window: 12,
            session: SessionConfig::data_centre(),
            source: SourceConfig { pull: PullFlowConfig::data_centre(), ..SourceConfig::default() },
            group: false,
            lines: vec![PACKET],
        }
    }
}

impl Setup {
    pub(crate) fn blocks(blocks: u64) -> Self {
        Setup { bytes: blocks * (256 << 10), ..Setup::default() }
    }

    pub(crate) fn net(self) -> Net {
        Net::new(self)
    }
}

impl Net {
    fn new(setup: Setup) -> Self {
        let bytes = Bytes::new(setup.bytes);
        let geometry = Geometry::new(bytes, T).unwrap();
        let source = |seed: usize| SourceHost {
            source: Source::new(setup.source.clone(), [seed as u8; 32]),
            dead: false,
            slow: Duration::ZERO,
            line_free: Time::ZERO,
            opened: 0,
            closed_at: Vec::new(),
            sent: Vec::new(),
            detached_said: 0,
            prepared: BTreeSet::new(),
        };
        let pull = PullConfig {
            rate: BitRate::new(setup.lines.iter().map(|packet| 12_000_000_000_000 / packet.as_nanos()).sum()),
            packet: Bytes::new(1500),
            catch_up: Duration::ZERO,
        };
        let receiver = |_| ReceiverHost {
            session: Session::new(FetchId(0), setup.session, geometry, setup.window, 0),
            pulls: PullQueue::new(pull),
            frozen: false,
            path_of: BTreeMap::new(),
            lines: setup
                .lines
                .iter()
                .map(|&packet| Line { packet, queue: VecDeque::new(), busy: false })
                .collect(),
            kept: BTreeMap::new(),
            tries: BTreeMap::new(),
            decoded: BTreeMap::new(),
            order: Vec::new(),
            done_at: None,
            failed: None,
            distrusted: Vec::new(),
            pulled: Vec::new(),
            unbound: BTreeSet::new(),
            bound: BTreeSet::new(),
            discarded: 0,
        };
        let mut net = Net {
            now: Time::ZERO,
            sources: (0..setup.sources).map(source).collect(),
            receivers: (0..setup.receivers).map(receiver).collect(),
            blocks: geometry.layout().block_count(),
            geometry,
            room: 1000,
            trims: true,
            delay: DELAY,
            there: no_faults(),
            back: no_faults(),
            loses_header: Box::new(|_| false),
            headers: 0,
            headers_lost: 0,
            carried: (0, 0),
            disk: Duration::ZERO,
            decoder: us(20),
            verdict: Box::new(|_, _, _| Ok(())),
            announces: !setup.session.opens_flows,
            happenings: BTreeMap::new(),
            happened: 0,
            wakes: BTreeMap::new(),
            stopped: Vec::new(),
        };
        for source in 0..setup.sources {
            let hold = SourceCommand::Hold { object: OBJECT, bytes };
            net.tell_source(source, hold);
        }
        net.call(Duration::ZERO, move |net| net.begin(setup.window, setup.group));
        net
    }

    /// Everybody is told of everybody.
    fn begin(&mut self, window: u16, group: bool) {
        let of = self.sources.len() as u8;
        for source in 0..self.sources.len() {
            let mut roles: Vec<(FlowId, FlowRole, usize)> = Vec::new();
            let flows = (0..self.receivers.len()).map(|receiver| (flow(source, receiver), receiver));
            for (id, receiver) in flows {
                let role = if group { FlowRole::Member { group: GROUP } } else { FlowRole::Single };
                roles.push((id, role, receiver));
            }
            if group {
                let members = roles.iter().map(|it| it.0).collect();
                roles.push((GROUP, FlowRole::Group { members }, 0));
            }
            for (id, role, receiver) in roles {
                let push = self.push(id, source as u8, of, window, role, receiver);
                self.order(source, Control::Source(ToSource::Push(push)));
            }
        }
        for receiver in 0..self.receivers.len() {
            let mut grants: Vec<FlowGrant> = (0..self.sources.len())
                .map(|source| self.grant(source, receiver, of, group.then_some(GROUP)))
                .collect();
            if group {
                grants.push(FlowGrant { flow: GROUP, group: None, ..grants[0].clone() });
            }
            self.start(receiver, grants);
        }
    }

    pub(crate) fn grant(&self, source: usize, receiver: usize, of: u8, group: Option<FlowId>) -> FlowGrant {
        FlowGrant {
            flow: flow(source, receiver),
            node: node(source),
            at: vec![],
            key: FlowKey([0; 32]),
            index: source as u8,
            of,
            group,
            relays: false,
            passed_on: true,
        }
    }

    pub(crate) fn push(
        &self,
        flow: FlowId,
        index: u8,
        of: u8,
        window: u16,
        role: FlowRole,
        receiver: usize,
    ) -> Push {
        Push {
            task: TaskId(1),
            flow,
            object: OBJECT,
            bytes: self.geometry.layout().object_bytes(),
            symbol_size: T,
            key: FlowKey([0; 32]),
            theta: Theta::ONE,
            class: Class::Bulk,
            receiver: NodeId([100 + receiver as u8; 32]),
            delivery: Delivery::Pull { initial_window: window },
            index,
            of,
            at: vec![],
            start: None,
            role,
        }
    }

    fn start(&mut self, receiver: usize, grants: Vec<FlowGrant>) {
        self.set_flows(receiver, grants);
        let start = ReceiverCommand::Start { wanted: 0..self.blocks, have: vec![] };
        self.command(receiver, start);
    }

    pub(crate) fn set_flows(&mut self, receiver: usize, grants: Vec<FlowGrant>) {
        let ReceiverHost { session, pulls, .. } = &mut self.receivers[receiver];
        session.set_flows(self.now, grants, pulls);
        self.poll_receiver(receiver);
    }

    pub(crate) fn command(&mut self, receiver: usize, command: ReceiverCommand) {
        let ReceiverHost { session, pulls, .. } = &mut self.receivers[receiver];
        session.on_command(self.now, command, pulls);
        self.poll_receiver(receiver);
    }

    pub(crate) fn order(&mut self, source: usize, control: Control) {
        let packet = Packet::control(CONTROLLER, control);
        self.sources[source].source.handle(self.now, Input::Packet(packet));
        self.poll_source(source);
    }

    fn tell_source(&mut self, source: usize, command: SourceCommand) {
        self.sources[source].source.handle(self.now, Input::Command(command));
        self.poll_source(source);
    }

    /// Does something later.
    pub(crate) fn call(&mut self, after: Duration, what: impl FnOnce(&mut Net) + 'static) {
        self.at(self.now + after, Happening::Call(Box::new(what)));
    }

    fn at(&mut self, time: Time, happening: Happening) {
        self.happened += 1;
        self.happenings.insert((time, self.happened), happening);
    }

    /// Runs until nothing happens any more, or for so long.
    pub(crate) fn run(&mut self, most: Duration) -> &mut Self {
        let until = self.now + most;
        for _ in 0..4_000_000 {
            let Some((&(at, order), _)) = self.happenings.first_key_value() else { return self };
            if at > until {
                self.now = until;
                return self;
            }
            let happening = self.happenings.remove(&(at, order)).unwrap();
            self.now = at;
            self.happen(happening);
        }
        panic!("it goes on for ever");
    }

    /// Runs to the end, which must be good: every block decoded once by everybody, and every flow over.
    pub(crate) fn finish(&mut self) -> &mut Self {
        self.finish_receivers();
        for (index, host) in self.sources.iter().enumerate().filter(|(_, host)| !host.dead) {
            assert_eq!(host.source.flows().count(), 0, "source {index} has flows left");
            assert!(host.prepared.is_empty(), "source {index} keeps {:?}", host.prepared);
        }
        self
    }

    /// The same, but for sources that may have been away when they were told.
    pub(crate) fn finish_receivers(&mut self) {
        self.run(Duration::from_secs(120));
        for (index, receiver) in self.receivers.iter().enumerate() {
            let stats = receiver.session.stats();
            assert!(receiver.done_at.is_some(), "receiver {index}: {:?} {stats:?}", receiver.failed);
            let once: BTreeMap<u32, u32> = (0..self.blocks).map(|block| (block, 1)).collect();
            assert_eq!(receiver.decoded, once, "receiver {index}");
            assert!(receiver.session.has_ended(), "receiver {index} has flows left: {stats:?}");
            assert_eq!(receiver.bound, receiver.unbound, "receiver {index}");
            assert!(receiver.pulls.is_empty());
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Queue(receiver, packet) => self.enqueue(receiver, packet),
            Happening::Line(receiver, line) => {
                let it = &mut self.receivers[receiver].lines[line];
                let packet = it.queue.pop_front().expect("a busy line has a packet");
                it.busy = false;
                self.at(self.now + self.delay, Happening::ToReceiver(receiver, packet));
                self.serve(receiver, line);
            }
            Happening::ToReceiver(receiver, packet) => self.arrive(receiver, packet),
            Happening::ToSource(source, packet) => {
                if !self.sources[source].dead {
                    self.sources[source].source.handle(self.now, Input::Packet(packet));
                    self.poll_source(source);
                }
            }
            Happening::Ready(source, flow, block, repair) => {
                let ready = SourceCommand::BlockReady { flow, block, repair };
                self.tell_source(source, ready);
            }
            Happening::Decoded(receiver, block, try_) => self.decoded(receiver, block, try_),
            Happening::Wake(who) => {
                if self.wakes.get(&who) == Some(&self.now) {
                    self.wakes.remove(&who);
                }
                match who {
                    Who::Source(source) => self.poll_source(source),
                    Who::Receiver(receiver) => self.poll_receiver(receiver),
                }
            }
            Happening::Call(call) => call(self),
        }
    }

    /// As a lazy driver: an older wake that comes earlier is good enough.
    fn wake(&mut self, who: Who, at: Option<Time>) {
        let Some(at) = at else { return };
        let at = at.max(self.now);
        if self.wakes.get(&who).is_none_or(|earlier| at < *earlier) {
            self.wakes.insert(who, at);
            self.at(at, Happening::Wake(who));
        }
    }

    // ---- the network

    fn enqueue(&mut self, receiver: usize, packet: Packet) {
        let lines = &mut self.receivers[receiver].lines;
        let line = packet.path.0 as usize % lines.len();
        if lines[line].queue.len() < self.room {
            lines[line].queue.push_back(packet);
            return self.serve(receiver, line);
        }
        if self.trims {
            self.trim(self.now + self.delay, receiver, packet);
        }
    }

    /// What is left of a symbol arrives then.
    fn trim(&mut self, at: Time, receiver: usize, mut packet: Packet) {
        let Body::Symbol(header) = &mut packet.datagram.body else { return };
        header.trimmed = true;
        let is_lost = (self.loses_header)(self.headers);
        self.headers += 1;
        self.headers_lost += u64::from(is_lost);
        if !is_lost {
            self.at(at, Happening::ToReceiver(receiver, packet));
        }
    }

    fn serve(&mut self, receiver: usize, line: usize) {
        let it = &mut self.receivers[receiver].lines[line];
        if !it.busy && !it.queue.is_empty() {
            it.busy = true;
            let at = self.now + it.packet;
            self.at(at, Happening::Line(receiver, line));
        }
    }

    fn carry(&mut self, from: usize, packet: Packet) {
        let packet = wired(packet);
        let slow = self.sources[from].slow;
        match packet.path {
            CONTROLLER => {
                if let Body::Control(control) = &packet.datagram.body
                    && let Control::Controller(ToController::Stopped { flow }) = **control
                {
                    self.stopped.push(flow);
                }
            }
            GROUP_PATH => {
                for receiver in 0..self.receivers.len() {
                    self.deliver(from, receiver, packet.clone(), slow);
                }
            }
            PathId(path) => self.deliver(from, (path - RECEIVERS) as usize, packet, slow),
        }
    }

    fn deliver(&mut self, from: usize, receiver: usize, packet: Packet, slow: Duration) {
        let fate = (self.there)(
            self.carried.0,
            &Packet { path: PathId(RECEIVERS + receiver as u32), ..packet.clone() },
        );
        self.carried.0 += 1;
        let packet = Packet { path: PathId(from as u32), ..packet };
        // A slow source has a line of its own.
        let mut left = self.now;
        if slow > Duration::ZERO {
            left = self.sources[from].line_free.max(self.now) + slow;
            self.sources[from].line_free = left;
        }
        let is_symbol = matches!(packet.datagram.body, Body::Symbol(_));
        let happening = |packet| match is_symbol {
            true => Happening::Queue(receiver, packet),
            false => Happening::ToReceiver(receiver, packet),
        };
        let at = left + self.delay;
        match fate {
            Fate::Lost => {}
            Fate::Arrives => self.at(at, happening(packet)),
            Fate::Late(by) => self.at(at + by, happening(packet)),
            Fate::Twice(by) => {
                self.at(at, happening(packet.clone()));
                self.at(at + by, happening(packet));
            }
            Fate::Trimmed => self.trim(at + self.delay, receiver, packet),
        }
    }

    fn carry_back(&mut self, from: usize, packet: Packet) {
        let packet = wired(packet);
        if let Body::Pull(pull) = packet.datagram.body {
            self.receivers[from].pulled.push((self.now, packet.datagram.flow, pull));
        }
        let source = packet.path.0 as usize;
        let fate = (self.back)(self.carried.1, &packet);
        self.carried.1 += 1;
        let packet = Packet { path: PathId(RECEIVERS + from as u32), ..packet };
        let at = self.now + self.delay;
        match fate {
            Fate::Lost | Fate::Trimmed => {}
            Fate::Arrives => self.at(at, Happening::ToSource(source, packet)),
            Fate::Late(by) => self.at(at + by, Happening::ToSource(source, packet)),
            Fate::Twice(by) => {
                self.at(at, Happening::ToSource(source, packet.clone()));
                self.at(at + by, Happening::ToSource(source, packet));
            }
        }
    }

    // ---- the hosts

    pub(crate) fn poll_source(&mut self, index: usize) {
        if self.sources[index].dead {
            return;
        }
        loop {
            match self.sources[index].source.poll(self.now) {
                Output::Transmit(packet) => {
                    match packet.datagram.body {
                        Body::Symbol(header) => {
                            let flow = packet.datagram.flow;
                            let prepared = (flow, header.symbol.block.0);
                            let host = &mut self.sources[index];
                            assert!(host.prepared.contains(&prepared), "{header:?} was not prepared");
                            host.sent.push((flow, header, packet.datagram.class));
                        }
                        Body::Detached => self.sources[index].detached_said += 1,
                        _ => {}
                    }
                    self.carry(index, packet);
                }
                Output::Event(event) => self.on_source_event(index, event),
                Output::Wake(at) => return self.wake(Who::Source(index), at),
            }
        }
    }

    fn on_source_event(&mut self, index: usize, event: SourceEvent) {
        match event {
            SourceEvent::Opened(opened) => {
                self.sources[index].opened += 1;
                let path = match opened.flow {
                    GROUP => GROUP_PATH,
                    flow => PathId(RECEIVERS + (flow.0 / 100) as u32),
                };
                if self.announces || opened.flow == GROUP {
                    let command = SourceCommand::FlowPath { flow: opened.flow, path };
                    self.sources[index].source.handle(self.now, Input::Command(command));
                }
            }
            SourceEvent::Closed { flow } => {
                let now = self.now;
                self.sources[index].closed_at.push((now, flow));
                self.sources[index].prepared.retain(|(of, _)| *of != flow);
            }
            SourceEvent::Prepare { flow, block, repair } => {
                self.sources[index].prepared.insert((flow, block.0));
                self.at(self.now + self.disk, Happening::Ready(index, flow, block, repair));
            }
            SourceEvent::Release { flow, block } => {
                assert!(self.sources[index].prepared.remove(&(flow, block.0)), "{block} is released once");
            }
            SourceEvent::Wanted { .. } => unreachable!("a source that has it all asks for nothing"),
        }
    }

    fn arrive(&mut self, receiver: usize, packet: Packet) {
        let ReceiverHost { session, pulls, frozen, .. } = &mut self.receivers[receiver];
        if *frozen {
            return;
        }
        let symbol = match &packet.datagram.body {
            Body::Symbol(header) if !header.trimmed => Some(*header),
            _ => None,
        };
        session.on_packet(self.now, packet, pulls);
        self.poll_with(receiver, symbol);
    }

    pub(crate) fn thaw(&mut self, receiver: usize) {
        self.receivers[receiver].frozen = false;
        self.poll_receiver(receiver);
    }

    pub(crate) fn poll_receiver(&mut self, receiver: usize) {
        self.poll_with(receiver, None);
    }

    fn poll_with(&mut self, receiver: usize, mut handed_in: Option<SymbolHeader>) {
        if self.receivers[receiver].frozen {
            return;
        }
        loop {
            let ReceiverHost { session, pulls, .. } = &mut self.receivers[receiver];
            match session.poll(self.now, pulls) {
                Output::Transmit(packet) => self.carry_back(receiver, packet),
                Output::Event(FromFetch(_, event)) => {
                    self.on_receiver_event(receiver, event, &mut handed_in);
                }
                Output::Wake(at) => {
                    assert!(
                        at.is_none_or(|at| at > self.now),
                        "a wake in the past: {at:?}, now {:?}",
                        self.now
                    );
                    let ReceiverHost { session, pulls, .. } = &mut self.receivers[receiver];
                    if let Some((turn, ask)) = pulls.poll(self.now) {
                        assert_eq!(turn, 0);
                        if let Some(packet) = session.pull(self.now, ask) {
                            self.carry_back(receiver, packet);
                        }
                        continue;
                    }
                    let pull = pulls.wake();
                    self.wake(Who::Receiver(receiver), at);
                    return self.wake(Who::Receiver(receiver), pull);
                }
            }
        }
    }

    fn on_receiver_event(
        &mut self,
        receiver: usize,
        event: ReceiverEvent,
        handed_in: &mut Option<SymbolHeader>,
    ) {
        let now = self.now;
        let host = &mut self.receivers[receiver];
        match event {
            ReceiverEvent::Bind(bind) => {
                assert!(host.bound.insert(bind.flow), "{:?} is bound once", bind.flow);
                let source = bind.node.0[0] as usize - 1;
                host.path_of.insert(bind.flow, source);
                let command = ReceiverCommand::FlowPath { flow: bind.flow, path: PathId(source as u32) };
                let ReceiverHost { session, pulls, .. } = host;
                session.on_command(now, command, pulls);
            }
            ReceiverEvent::Moved(_) => {}
            ReceiverEvent::Unbind { flow } => assert!(host.unbound.insert(flow), "{flow:?} is over once"),
            ReceiverEvent::Symbol { flow, symbol } => {
                let header = handed_in.take().expect("a symbol was handed in");
                assert_eq!(header.symbol, symbol);
                let kept = host.kept.entry(symbol.block.0).or_default();
                assert_eq!(kept.insert(symbol.esi.0, flow), None, "a symbol is kept once");
            }
            ReceiverEvent::Decode { block } => {
                let tries = host.tries.entry(block.0).or_default();
                *tries += 1;
                let try_ = *tries;
                host.order.push(block.0);
                self.at(self.now + self.decoder, Happening::Decoded(receiver, block, try_));
            }
            ReceiverEvent::Discard { block } => {
                host.discarded += 1;
                host.kept.remove(&block.0);
            }
            ReceiverEvent::Distrusted { node } => host.distrusted.push(node),
            ReceiverEvent::Done => host.done_at = Some(now),
            ReceiverEvent::Failed(failure) => host.failed = Some(failure),
            other => panic!("{other:?}"),
        }
    }

    fn decoded(&mut self, receiver: usize, block: BlockIndex, try_: u32) {
        let host = &mut self.receivers[receiver];
        if host.failed.is_some() {
            return;
        }
        let kept = host.kept.get(&block.0).cloned().unwrap_or_default();
        let source_symbols = self.geometry.source_symbols(block);
        assert!(kept.len() as u32 >= source_symbols, "{block} cannot be decoded from {} symbols", kept.len());
        let senders: BTreeSet<FlowId> = kept.values().copied().collect();
        let determined = (0..source_symbols).all(|esi| kept.contains_key(&esi));
        let verdict = match (self.verdict)(block.0, try_, &senders) {
            // Source symbols are the block.
            Err(DecodeFailure::NeedMore) if determined => Ok(()),
            verdict => verdict,
        };
        let host = &mut self.receivers[receiver];
        let command = match verdict {
            Ok(()) => {
                *host.decoded.entry(block.0).or_default() += 1;
                ReceiverCommand::BlockDecoded { block }
            }
            Err(failure) => ReceiverCommand::DecodeFailed { block, failure },
        };
        self.command(receiver, command);
    }

    // ---- what is asserted

    /// Symbols that a source sent by a flow.
    pub(crate) fn sent(&self, source: usize, flow: FlowId) -> Vec<SymbolHeader> {
        let of_flow = self.sources[source].sent.iter().filter(|(of, _, _)| *of == flow);
        of_flow.map(|(_, header, _)| *header).collect()
    }

    /// Pulls that a receiver sent, those that open a flow not counted.
    pub(crate) fn pulls(&self, receiver: usize) -> usize {
        self.receivers[receiver].pulled.iter().filter(|(_, _, pull)| pull.sequence > 0).count()
    }
}

/// What arrives when this is sent.
pub(crate) fn wired(packet: Packet) -> Packet {
    let Packet { path, ecn, datagram } = packet;
    let key = HeaderKey::new(&FlowKey([0; 32]));
    let mut bytes = vec![0; datagram.len(8)];
    emit(&datagram, 8, &key, &mut bytes);
    let datagram = parse(&bytes, &key).unwrap_or_else(|error| panic!("{error}: {datagram:?}")).datagram;
    Packet { path, ecn, datagram }
}
