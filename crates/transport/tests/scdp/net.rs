//! Hosts that hold an object, hosts that pull it, and everything on its way between them. Every datagram crosses the wire format.
//!
//! Symbols meet a queue before each receiver's link, which trims what finds no room, or drops it; everything else has a delay. A
//! test decides what else becomes of each. The decoder counts symbols, and knows which of them a liar has sent.

use std::collections::BTreeSet;

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::content::over_the_wire;
use headwater_testkit::messages::{self, Object};
pub(crate) use headwater_testkit::{Addressed, Fate, Faults, no_faults};
use headwater_testkit::{Duty, Line, Link, Network, Nobody, Preparation, Reception, Role, Simulation};
use headwater_transport::pull::queue::{PullConfig, PullQueue};
use headwater_transport::pull::{Ask, PullFlowConfig, Session, SessionConfig};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::{
    DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent,
};
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FetchId, FlowId, FlowKey, Geometry, NodeId, ObjectId, PathId,
    TaskId, Time,
};
use headwater_wire::{
    Body, Class, Control, Delivery, FlowGrant, FlowRole, Pull, Push, SymbolHeader, ToController, ToSource,
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
/// The link of all that sources send, that of all that receivers send, and that of headers past the queues.
const THERE: usize = 0;
const BACK: usize = 1;
const PAST: usize = 2;
/// The links of slow sources come first behind those, then those before receivers.
const OWN: usize = 3;

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

pub(crate) fn object(id: ObjectId, bytes: Bytes) -> Object {
    Object { id, bytes, symbol_size: T }
}

/// No source hears a receiver's farewell.
pub(crate) fn farewells_are_lost() -> Faults<Addressed> {
    Box::new(|_, it| match it.packet.datagram.body {
        Body::Fin(_) => Fate::Lost,
        _ => Fate::Arrives,
    })
}

type Verdict = Box<dyn FnMut(u32, u32, &BTreeSet<FlowId>) -> Result<(), DecodeFailure>>;

/// Action that happens later.
pub(crate) enum Later {
    Ready(usize, SourceCommand),
    Decode(usize, BlockIndex),
    Call(Box<dyn FnOnce(&mut Net)>),
}

pub(crate) struct SourceHost {
    pub(crate) source: Source,
    pub(crate) dead: bool,
    /// Extra time of each of its packets.
    pub(crate) slow: Duration,
    pub(crate) opened: u64,
    pub(crate) closed_at: Vec<(Time, FlowId)>,
    /// Symbols it sent, in order, with their class.
    pub(crate) sent: Vec<(FlowId, SymbolHeader, Class)>,
    pub(crate) detached_sent: u64,
    pub(crate) preparation: Preparation,
}

pub(crate) struct ReceiverHost {
    pub(crate) session: Session,
    pub(crate) pulls: PullQueue<Ask>,
    pub(crate) frozen: bool,
    pub(crate) got: Reception,
    pub(crate) pulled: Vec<(Time, FlowId, Pull)>,
}

impl Endpoint for ReceiverHost {
    type Command = ReceiverCommand;
    type Event = ReceiverEvent;

    fn handle(&mut self, now: Time, input: Input<ReceiverCommand>) {
        match input {
            Input::Packet(packet) => self.session.on_packet(now, packet, &mut self.pulls),
            Input::Command(command) => self.session.on_command(now, command, &mut self.pulls),
        }
    }

    fn poll(&mut self, now: Time) -> Output<ReceiverEvent> {
        loop {
            match self.session.poll(now, &mut self.pulls) {
                Output::Wake(at) => {
                    let Some((turn, ask)) = self.pulls.poll(now) else {
                        return Output::Wake(at.into_iter().chain(self.pulls.wake()).min());
                    };
                    assert_eq!(turn, 0);
                    if let Some(packet) = self.session.pull(now, ask) {
                        return Output::Transmit(packet);
                    }
                }
                output => return output.map(|FromFetch(_, event)| event),
            }
        }
    }
}

pub(crate) struct Net {
    network: Network<Addressed, Later>,
    pub(crate) sources: Vec<SourceHost>,
    pub(crate) receivers: Vec<ReceiverHost>,
    pub(crate) blocks: u32,
    object: Object,
    /// Links of each receiver.
    lines: usize,
    /// Whether a header that trimming has made is lost, by how many there were before.
    pub(crate) loses_header: Box<dyn FnMut(u64) -> bool>,
    pub(crate) headers: u64,
    pub(crate) headers_lost: u64,
    pub(crate) disk: Duration,
    pub(crate) decoder: Duration,
    /// Says how a decoding ends: by block, by try, and by the flows that sent the symbols.
    pub(crate) verdict: Verdict,
    /// Sources are told where receivers are.
    announces: bool,
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
            opened: 0,
            closed_at: Vec::new(),
            sent: Vec::new(),
            detached_sent: 0,
            preparation: Preparation::default(),
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
            got: Reception::of(geometry),
            pulled: Vec::new(),
        };
        let line = |packet: &Duration| Link {
            line: Line::Each(*packet),
            room: 1000,
            trims: true,
            ..Link::new(DELAY)
        };
        let mut links = vec![Link::new(DELAY), Link::new(DELAY), Link::new(DELAY)];
        links.extend((0..setup.sources).map(|_| Link::new(Duration::ZERO)));
        links.extend((0..setup.receivers).flat_map(|_| setup.lines.iter().map(line)));
        let mut net = Net {
            network: Network::new(links),
            sources: (0..setup.sources).map(source).collect(),
            receivers: (0..setup.receivers).map(receiver).collect(),
            blocks: geometry.layout().block_count(),
            object: object(OBJECT, bytes),
            lines: setup.lines.len(),
            loses_header: Box::new(|_| false),
            headers: 0,
            headers_lost: 0,
            disk: Duration::ZERO,
            decoder: us(20),
            verdict: Box::new(|_, _, _| Ok(())),
            announces: !setup.session.opens_flows,
            stopped: Vec::new(),
        };
        for source in 0..setup.sources {
            net.tell(source, Role::Source(SourceCommand::Hold { object: OBJECT, bytes }));
        }
        net.call(Duration::ZERO, move |net| net.begin(setup.window, setup.group));
        net
    }

    /// Everybody gets the addresses and keys of everybody.
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
        let key = FlowKey([0; 32]);
        FlowGrant { group, ..messages::grant(flow(source, receiver), node(source), key, source as u8, of) }
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
        let (receiver, delivery) =
            (NodeId([100 + receiver as u8; 32]), Delivery::Pull { initial_window: window });
        let push = self.object.push(TaskId(1), flow, FlowKey([0; 32]), receiver, delivery);
        Push { index, of, role, ..push }
    }

    fn start(&mut self, receiver: usize, grants: Vec<FlowGrant>) {
        self.set_flows(receiver, grants);
        let start = ReceiverCommand::Start { wanted: 0..self.blocks, have: vec![] };
        self.command(receiver, start);
    }

    pub(crate) fn set_flows(&mut self, receiver: usize, grants: Vec<FlowGrant>) {
        let ReceiverHost { session, pulls, .. } = &mut self.receivers[receiver];
        session.set_flows(self.network.now(), grants, pulls);
        self.drain(self.sources.len() + receiver);
    }

    /// A receiver hears it even if it is frozen: it says nothing, then.
    pub(crate) fn command(&mut self, receiver: usize, command: ReceiverCommand) {
        let host = self.sources.len() + receiver;
        self.handle(host, Input::Command(Role::Receiver(command)));
        self.drain(host);
    }

    /// A source hears it even if it is dead: it says nothing, then.
    pub(crate) fn order(&mut self, source: usize, control: Control) {
        self.handle(source, Input::Packet(Packet::control(CONTROLLER, control)));
        self.drain(source);
    }

    /// Does something later.
    pub(crate) fn call(&mut self, after: Duration, what: impl FnOnce(&mut Net) + 'static) {
        self.network.after(after, Later::Call(Box::new(what)));
    }

    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    /// Sets the faults on the way from the sources, by the number of packets that have left before.
    pub(crate) fn there(&mut self, faults: impl FnMut(u64, &mut Addressed) -> Fate + 'static) {
        self.network.links[THERE].faults = Box::new(faults);
    }

    /// The same of all that receivers send.
    pub(crate) fn back(&mut self, faults: impl FnMut(u64, &mut Addressed) -> Fate + 'static) {
        self.network.links[BACK].faults = Box::new(faults);
    }

    /// One way, for this net.
    pub(crate) fn set_delay(&mut self, delay: Duration) {
        let own = OWN..OWN + self.sources.len();
        let links = self.network.links.iter_mut().enumerate();
        links.filter(|(place, _)| !own.contains(place)).for_each(|(_, link)| link.delay = delay);
    }

    pub(crate) fn delay(&self) -> Duration {
        self.network.links[THERE].delay
    }

    /// Number of symbols that wait before each receiver; further ones are trimmed, or dropped.
    pub(crate) fn set_room(&mut self, room: usize) {
        let lines = OWN + self.sources.len()..;
        self.network.links[lines].iter_mut().for_each(|link| link.room = room);
    }

    pub(crate) fn set_trims(&mut self, trims: bool) {
        let lines = OWN + self.sources.len()..;
        self.network.links[lines].iter_mut().for_each(|link| link.trims = trims);
    }

    /// Runs until nothing happens any more, or for the time `most`.
    pub(crate) fn run(&mut self, most: Duration) -> &mut Self {
        let until = self.now() + most;
        assert!((0..4_000_000).any(|_| !self.step(until)), "it goes on for ever");
        if !self.network.is_quiet() {
            self.network.wait_until(until);
        }
        self
    }

    /// Runs to the end, which must be good: every block decoded once by everybody, and every flow over.
    pub(crate) fn finish(&mut self) -> &mut Self {
        self.finish_receivers();
        for (index, host) in self.sources.iter().enumerate().filter(|(_, host)| !host.dead) {
            assert_eq!(host.source.flows().count(), 0, "source {index} has flows left");
            assert!(host.preparation.is_empty(), "source {index} keeps {:?}", host.preparation);
        }
        self
    }

    /// The same, but for sources that may have been away when they were told.
    pub(crate) fn finish_receivers(&mut self) {
        self.run(Duration::from_secs(120));
        for (index, receiver) in self.receivers.iter().enumerate() {
            let (stats, got) = (receiver.session.stats(), &receiver.got);
            assert!(
                matches!(got.finished, Some((_, Ok(())))),
                "receiver {index}: {:?} {stats:?}",
                got.finished
            );
            assert!(receiver.session.has_ended(), "receiver {index} has flows left: {stats:?}");
            assert_eq!(got.bound, got.unbound, "receiver {index}");
            assert!(receiver.pulls.is_empty());
        }
    }

    pub(crate) fn thaw(&mut self, receiver: usize) {
        self.receivers[receiver].frozen = false;
        self.drain(self.sources.len() + receiver);
    }

    /// Puts a packet of a source on its way to a receiver.
    fn deliver(&mut self, from: usize, receiver: usize, packet: Packet) {
        let to = self.sources.len() + receiver;
        let packet = Packet { path: PathId(from as u32), ..packet };
        let slow = self.sources[from].slow;
        let link = if slow > Duration::ZERO { OWN + from } else { THERE };
        self.network.links[OWN + from].line = Line::Each(slow);
        self.network.send(link, Bytes::ZERO, Addressed { from, to, packet });
    }

    fn at_receiver(&mut self, receiver: usize, packet: Packet) {
        if matches!(packet.datagram.body, Body::Symbol(SymbolHeader { trimmed: true, .. })) {
            let is_lost = (self.loses_header)(self.headers);
            self.headers += 1;
            self.headers_lost += u64::from(is_lost);
            if is_lost {
                return;
            }
        }
        self.receivers[receiver].got.hands_in(&packet);
        self.hear(self.sources.len() + receiver, packet);
    }

    fn source_sends(&mut self, from: usize, packet: Packet) {
        let packet = over_the_wire(packet);
        let host = &mut self.sources[from];
        host.preparation.sends(&packet.datagram);
        match &packet.datagram.body {
            Body::Symbol(header) => {
                host.sent.push((packet.datagram.flow, *header, packet.datagram.class));
            }
            Body::Detached => host.detached_sent += 1,
            _ => {}
        }
        match packet.path {
            CONTROLLER => {
                if let Body::Control(control) = &packet.datagram.body
                    && let Control::Controller(ToController::Stopped { flow }) = **control
                {
                    self.stopped.push(flow);
                }
            }
            GROUP_PATH => {
                (0..self.receivers.len()).for_each(|receiver| self.deliver(from, receiver, packet.clone()));
            }
            PathId(path) => self.deliver(from, (path - RECEIVERS) as usize, packet),
        }
    }

    fn receiver_sends(&mut self, receiver: usize, packet: Packet) {
        let packet = over_the_wire(packet);
        if let Body::Pull(pull) = packet.datagram.body {
            let now = self.now();
            self.receivers[receiver].pulled.push((now, packet.datagram.flow, pull));
        }
        let to = packet.path.0 as usize;
        let packet = Packet { path: PathId(RECEIVERS + receiver as u32), ..packet };
        self.network.send(BACK, Bytes::ZERO, Addressed { from: self.sources.len() + receiver, to, packet });
    }

    fn on_source(&mut self, index: usize, event: SourceEvent) {
        let (now, host) = (self.network.now(), &mut self.sources[index]);
        if let Some(ready) = host.preparation.on_event(&event) {
            self.network.after(self.disk, Later::Ready(index, ready));
        }
        match event {
            SourceEvent::Opened(opened) => {
                host.opened += 1;
                let path = match opened.flow {
                    GROUP => GROUP_PATH,
                    flow => PathId(RECEIVERS + (flow.0 / 100) as u32),
                };
                if self.announces || opened.flow == GROUP {
                    let command = SourceCommand::FlowPath { flow: opened.flow, path };
                    host.source.handle(now, Input::Command(command));
                }
            }
            SourceEvent::Closed { flow } => host.closed_at.push((now, flow)),
            SourceEvent::Prepare { .. } | SourceEvent::Release { .. } | SourceEvent::FellBack { .. } => {}
        }
    }

    fn on_receiver(&mut self, receiver: usize, event: ReceiverEvent) {
        let (now, host) = (self.network.now(), &mut self.receivers[receiver]);
        match host.got.on_event(now, event) {
            Some(Duty::FindPath(bind)) => {
                let path = PathId(u32::from(bind.node.0[0]) - 1);
                host.handle(now, Input::Command(ReceiverCommand::FlowPath { flow: bind.flow, path }));
            }
            Some(Duty::Decode(block)) => self.network.after(self.decoder, Later::Decode(receiver, block)),
            Some(Duty::Start(_)) => unreachable!("a session is told to start"),
            None => {}
        }
    }

    fn decode(&mut self, receiver: usize, block: BlockIndex) {
        let verdict = &mut self.verdict;
        let decoded = self.receivers[receiver].got.decode(block, |attempt| {
            verdict(block.0, attempt.tries, &attempt.symbols.values().copied().collect())
        });
        if let Some(command) = decoded {
            self.command(receiver, command);
        }
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

impl Simulation for Net {
    type Command = Role<Nobody, SourceCommand, ReceiverCommand>;
    type Event = Role<Nobody, SourceEvent, ReceiverEvent>;
    type Carried = Addressed;
    type Act = Later;

    fn network(&mut self) -> &mut Network<Addressed, Later> {
        &mut self.network
    }

    fn machine(&mut self, host: usize) -> impl Endpoint<Command = Self::Command, Event = Self::Event> {
        match host.checked_sub(self.sources.len()) {
            None => Role::<Nobody, _, _>::Source(&mut self.sources[host].source),
            Some(receiver) => Role::Receiver(&mut self.receivers[receiver]),
        }
    }

    fn is_up(&self, host: usize) -> bool {
        match host.checked_sub(self.sources.len()) {
            None => !self.sources[host].dead,
            Some(receiver) => !self.receivers[receiver].frozen,
        }
    }

    fn transmit(&mut self, host: usize, packet: Packet) {
        match host.checked_sub(self.sources.len()) {
            None => self.source_sends(host, packet),
            Some(receiver) => self.receiver_sends(receiver, packet),
        }
    }

    fn on_event(&mut self, host: usize, event: Self::Event) {
        match event {
            Role::Source(event) => self.on_source(host, event),
            Role::Receiver(event) => self.on_receiver(host - self.sources.len(), event),
            Role::Controller(nobody) => match nobody {},
        }
    }

    fn arrive(&mut self, link: usize, it: Addressed) {
        let receiver = it.to.wrapping_sub(self.sources.len());
        match (link, &it.packet.datagram.body) {
            (BACK, _) => self.hear(it.to, it.packet),
            (THERE, Body::Symbol(SymbolHeader { trimmed: true, .. })) => {
                self.network.send(PAST, Bytes::ZERO, it);
            }
            (THERE, Body::Symbol(_)) => {
                let first = OWN + self.sources.len() + receiver * self.lines;
                self.network.send(first + it.from % self.lines, Bytes::ZERO, it);
            }
            (own, _) if (OWN..OWN + self.sources.len()).contains(&own) => {
                self.network.send(THERE, Bytes::ZERO, it);
            }
            _ => self.at_receiver(receiver, it.packet),
        }
    }

    fn act(&mut self, later: Later) {
        match later {
            Later::Ready(source, ready) => {
                self.sources[source].preparation.ready(&ready);
                self.handle(source, Input::Command(Role::Source(ready)));
                self.drain(source);
            }
            Later::Decode(receiver, block) => self.decode(receiver, block),
            Later::Call(call) => call(self),
        }
    }
}
