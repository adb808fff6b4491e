//! A small deterministic network for whole deliveries: a controller, sources with a link each, and a receiver.
//!
//! Not the simulator: no switches, no topology. Just enough to lose, mark, delay, reorder and duplicate packets, to
//! kill hosts, and to check what the machines do against an oracle that remembers every symbol.

#![allow(dead_code, missing_docs, unreachable_pub)]

mod agenda;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use headwater_controller::{Controller, ControllerCommand, ControllerConfig, ControllerEvent, TaskRecord};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::*;
use headwater_units::*;
use headwater_wire::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use agenda::Agenda;

const CONTROL: u32 = 1000;
pub const CONTROLLER: usize = 0;
pub const RECEIVER: usize = 1;
pub const FIRST_SOURCE: usize = 2;
/// The only fetch of the receiver.
pub const FETCH: FetchId = FetchId(9);

/// One source's way to the receiver.
#[derive(Clone, Debug)]
pub struct Path {
    pub rate: BitRate,
    pub delay: Duration,
    /// Packets that wait at most; more are dropped.
    pub queue: usize,
    /// Packets from which arrivals are marked.
    pub mark_from: Option<usize>,
    pub loss: f64,
    pub ack_loss: f64,
    pub duplicate: f64,
    /// Chance that a packet is held back by `delay` once more.
    pub reorder: f64,
    /// The source's bytes are wrong.
    pub lies: bool,
    /// Longer datagrams vanish, without a word (bytes above UDP).
    pub longest: usize,
    /// Whether the source's own host refuses them instead.
    pub refuses: bool,
    /// What the source says that its datagrams carry.
    pub room: u16,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            rate: BitRate::new(100_000_000),
            delay: Duration::from_micros(100),
            queue: 100,
            mark_from: Some(30),
            loss: 0.0,
            ack_loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            lies: false,
            longest: usize::MAX,
            refuses: false,
            room: 1424,
        }
    }
}

enum Happening {
    Arrive { to: usize, packet: Packet },
    Tell { to: usize, command: Command },
    Wake { to: usize },
    Do(Act),
}

/// What a test makes happen at a time.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Kill(usize),
    Revive(usize),
    /// It does nothing until it thaws; what comes meanwhile waits in its socket.
    Freeze(usize),
    Thaw(usize),
    Join(usize),
    RestartController,
    SetRate(usize, BitRate),
    /// From now on longer datagrams vanish.
    SetLongest(usize, usize),
}

impl Happening {
    /// To whom it happens, if to one of the machines.
    fn whom(&self) -> Option<usize> {
        match self {
            Happening::Arrive { to, .. } | Happening::Tell { to, .. } | Happening::Wake { to } => Some(*to),
            Happening::Do(_) => None,
        }
    }
}

pub enum Machine {
    Controller(Box<Controller>),
    Receivers(Box<Receivers>),
    Source(Box<Source>),
}

/// What one of them is told.
pub enum Command {
    Controller(ControllerCommand),
    Receiver(FetchId, ReceiverCommand),
    Source(SourceCommand),
}

/// What one of them says.
#[derive(Debug)]
pub enum Event {
    Controller(ControllerEvent),
    Receiver(FetchId, ReceiverEvent),
    Source(SourceEvent),
}

impl Machine {
    fn hear(&mut self, now: Time, packet: Packet) {
        match self {
            Machine::Controller(m) => m.handle(now, Input::Packet(packet)),
            Machine::Receivers(m) => m.handle(now, Input::Packet(packet)),
            Machine::Source(m) => m.handle(now, Input::Packet(packet)),
        }
    }

    fn tell(&mut self, now: Time, command: Command) {
        match (self, command) {
            (Machine::Controller(m), Command::Controller(it)) => m.handle(now, Input::Command(it)),
            (Machine::Receivers(m), Command::Receiver(fetch, it)) => {
                m.handle(now, Input::Command(ToFetch(fetch, it)));
            }
            (Machine::Source(m), Command::Source(it)) => m.handle(now, Input::Command(it)),
            _ => unreachable!("a command of another machine"),
        }
    }

    fn poll(&mut self, now: Time) -> Output<Event> {
        match self {
            Machine::Controller(m) => m.poll(now).map(Event::Controller),
            Machine::Receivers(m) => m.poll(now).map(|FromFetch(fetch, event)| Event::Receiver(fetch, event)),
            Machine::Source(m) => m.poll(now).map(Event::Source),
        }
    }
}

#[derive(Default)]
struct Here {
    /// Who brought which symbol.
    symbols: BTreeMap<u32, usize>,
}

pub struct World {
    pub now: Time,
    rng: ChaCha8Rng,
    agenda: Agenda<Happening>,
    pub machines: Vec<Machine>,
    paths: Vec<Path>,
    busy_until: Vec<Time>,
    backlog: Vec<BinaryHeap<Reverse<Time>>>,
    wakes: BTreeMap<usize, Time>,
    dead: BTreeSet<usize>,
    /// What waits for them.
    frozen: BTreeMap<usize, Vec<Happening>>,
    absent: BTreeSet<usize>,
    object: ObjectId,
    bytes: Bytes,
    geometry: Option<Geometry>,
    blocks: BTreeMap<u32, Here>,
    done_blocks: BTreeSet<u32>,
    records: BTreeMap<TaskId, TaskRecord>,
    flow_source: BTreeMap<FlowId, usize>,
    /// T of each flow, as its source was told.
    flow_symbols: BTreeMap<FlowId, u16>,
    pub finished: Option<(Time, Result<(), ReceiverFailure>)>,
    /// What the receiver had counted when it was last looked at, once it had finished.
    last_stats: Option<ReceiverStats>,
    /// It has said all to everybody.
    ended: bool,
    pub distrusted: Vec<NodeId>,
    pub first_use: BTreeMap<usize, Time>,
    pub dropped: u64,
    /// Datagrams that were longer than their path carries.
    pub too_long: u64,
    /// Hash over every output, for determinism.
    pub digest: u64,
    pub digesting: bool,
    decode_time: Duration,
    controller_config: ControllerConfig,
    tasks_seen: u32,
}

pub fn node(n: usize) -> NodeId {
    NodeId([n as u8; 32])
}

/// A host that has been told to fetch this.
fn fetching(config: ReceiverConfig) -> Receivers {
    let pull =
        PullConfig { rate: BitRate::new(10_000_000_000), packet: Bytes::new(1500), catch_up: Duration::ZERO };
    let mut receivers = Receivers::new(HostReceiverConfig { pull });
    let fetch = ReceiverCommand::Fetch(Box::new(config));
    receivers.handle(Time::ZERO, Input::Command(ToFetch(FETCH, fetch)));
    receivers
}

impl World {
    pub fn new(bytes: Bytes, paths: Vec<Path>, seed: u64) -> Self {
        Self::with(bytes, paths, seed, SourceConfig::default(), |_| {})
    }

    pub fn with(
        bytes: Bytes,
        paths: Vec<Path>,
        seed: u64,
        source: SourceConfig,
        tune: impl FnOnce(&mut ReceiverConfig),
    ) -> Self {
        let controller_config = ControllerConfig::default();
        let mut config = ReceiverConfig::new("object", node(RECEIVER), PathId(CONTROL), 77);
        tune(&mut config);
        let mut machines = vec![
            Machine::Controller(Box::new(Controller::new(controller_config.clone(), [seed as u8; 32]))),
            Machine::Receivers(Box::new(fetching(config))),
        ];
        for i in 0..paths.len() {
            let seed = [seed as u8 ^ (i as u8 + 1); 32];
            machines.push(Machine::Source(Box::new(Source::new(source.clone(), seed))));
        }
        let mut world = World {
            now: Time::ZERO,
            rng: ChaCha8Rng::seed_from_u64(seed),
            agenda: Agenda::default(),
            busy_until: vec![Time::ZERO; paths.len()],
            backlog: (0..paths.len()).map(|_| BinaryHeap::new()).collect(),
            machines,
            paths,
            wakes: BTreeMap::new(),
            dead: BTreeSet::new(),
            frozen: BTreeMap::new(),
            absent: BTreeSet::new(),
            object: ObjectId([9; 32]),
            bytes,
            geometry: None,
            blocks: BTreeMap::new(),
            done_blocks: BTreeSet::new(),
            records: BTreeMap::new(),
            flow_source: BTreeMap::new(),
            flow_symbols: BTreeMap::new(),
            finished: None,
            last_stats: None,
            ended: false,
            distrusted: Vec::new(),
            first_use: BTreeMap::new(),
            dropped: 0,
            too_long: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            digesting: false,
            decode_time: Duration::from_micros(200),
            controller_config,
            tasks_seen: 0,
        };
        for source in FIRST_SOURCE..world.machines.len() {
            world.introduce(source);
        }
        world.at(Time::from_nanos(1_000_000), Happening::Wake { to: RECEIVER });
        world
    }

    /// A source that is there only from `when` on.
    pub fn joins(&mut self, index: usize, when: Duration) {
        let source = FIRST_SOURCE + index;
        self.absent.insert(source);
        self.agenda.retain(|what| match what {
            Happening::Arrive { packet, .. } => packet.path != PathId(CONTROL + source as u32),
            _ => true,
        });
        self.act(when, Act::Join(source));
    }

    pub fn act(&mut self, when: Duration, act: Act) {
        self.at(Time::ZERO + when, Happening::Do(act));
    }

    fn at(&mut self, time: Time, what: Happening) {
        self.agenda.at(time, what);
    }

    fn control_packet(&self, from: usize, control: Control) -> Packet {
        let body = Body::Control(Box::new(control));
        Packet {
            path: PathId(CONTROL + from as u32),
            ecn: Ecn::NotEct,
            datagram: Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(0), body },
        }
    }

    fn introduce(&mut self, source: usize) {
        let info = NodeInfo {
            node: node(source),
            name: format!("source {source}"),
            listen: None,
            data: vec![([10, 0, 0, source as u8], 1).into()],
            uplink: None,
            downlink: None,
            rack: None,
            room: self.paths[source - FIRST_SOURCE].room,
            incarnation: 1,
            rtt: None,
            seen: None,
            labels: Default::default(),
        };
        let holding = Holding { object: self.object, bytes: self.bytes, name: Some("object".into()) };
        for control in
            [Control::Controller(ToController::Hello(info)), Control::Controller(ToController::Hold(holding))]
        {
            let packet = self.control_packet(source, control);
            self.at(self.now, Happening::Arrive { to: CONTROLLER, packet });
        }
        let hold = SourceCommand::Hold { object: self.object, bytes: self.bytes };
        self.at(self.now, Happening::Tell { to: source, command: Command::Source(hold) });
    }

    /// Runs until the receiver has ended, or `limit`.
    pub fn run(&mut self, limit: Duration) -> ReceiverStats {
        while let Some((time, what)) = self.agenda.next() {
            if time > Time::ZERO + limit {
                break;
            }
            self.now = self.now.max(time);
            if let Some(waiting) = what.whom().and_then(|host| self.frozen.get_mut(&host)) {
                waiting.push(what);
                continue;
            }
            match what {
                Happening::Arrive { to, packet } => {
                    if !self.is_down(to) {
                        let source = to == RECEIVER && packet.path.0 < CONTROL;
                        let from = packet.path.0 as usize;
                        if to == CONTROLLER {
                            let path = packet.path;
                            let opened = ControllerCommand::PathOpened {
                                path,
                                node: node((path.0 - CONTROL) as usize),
                            };
                            self.machines[to].tell(self.now, Command::Controller(opened));
                        }
                        self.machines[to].hear(self.now, packet);
                        self.drain(to, source.then_some(from));
                    }
                }
                Happening::Tell { to, command } => {
                    if !self.is_down(to) {
                        self.machines[to].tell(self.now, command);
                        self.drain(to, None);
                    }
                }
                Happening::Wake { to } => {
                    // Only the newest wake counts; older ones were overtaken.
                    let due = self.wakes.get(&to).is_none_or(|&at| at <= self.now);
                    if due && !self.is_down(to) {
                        self.wakes.remove(&to);
                        self.drain(to, None);
                    }
                }
                Happening::Do(act) => self.perform(act),
            }
            if self.ended {
                break;
            }
        }
        self.stats().or_else(|| self.last_stats.clone()).expect("its last words are known")
    }

    fn stats(&mut self) -> Option<ReceiverStats> {
        let Machine::Receivers(receivers) = &mut self.machines[RECEIVER] else { unreachable!() };
        receivers.stats(self.now, FETCH)
    }

    fn is_down(&self, host: usize) -> bool {
        self.dead.contains(&host) || self.absent.contains(&host)
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Kill(host) => {
                self.dead.insert(host);
            }
            Act::Revive(host) => {
                self.dead.remove(&host);
                self.at(self.now, Happening::Wake { to: host });
            }
            Act::Freeze(host) => drop(self.frozen.insert(host, Vec::new())),
            Act::Thaw(host) => {
                for what in self.frozen.remove(&host).into_iter().flatten() {
                    self.at(self.now, what);
                }
            }
            Act::Join(host) => {
                self.absent.remove(&host);
                self.introduce(host);
            }
            Act::SetRate(index, rate) => self.paths[index].rate = rate,
            Act::SetLongest(index, longest) => self.paths[index].longest = longest,
            Act::RestartController => {
                let controller = Controller::new(self.controller_config.clone(), [200; 32]);
                self.machines[CONTROLLER] = Machine::Controller(Box::new(controller));
                let command = Command::Controller(ControllerCommand::Returned);
                self.at(self.now, Happening::Tell { to: CONTROLLER, command });
                for record in self.records.values().cloned().collect::<Vec<_>>() {
                    let command = Command::Controller(ControllerCommand::Restore(Box::new(record)));
                    self.at(self.now, Happening::Tell { to: CONTROLLER, command });
                }
                for source in FIRST_SOURCE..self.machines.len() {
                    if !self.is_down(source) {
                        self.introduce(source);
                    }
                }
            }
        }
    }

    fn note(&mut self, text: &str) {
        for byte in text.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Polls a machine dry. `from` is the source whose packet was just handed to the receiver.
    fn drain(&mut self, host: usize, from: Option<usize>) {
        for _ in 0..1_000_000 {
            let output = self.machines[host].poll(self.now);
            if self.digesting {
                self.note(&format!("{host} {} {output:?}", self.now));
            }
            match output {
                Output::Wake(None) => {
                    self.wakes.remove(&host);
                    return;
                }
                Output::Wake(Some(time)) => {
                    if self.wakes.insert(host, time) == Some(time) {
                        return;
                    }
                    assert!(
                        time > self.now,
                        "machine {host} wants to be woken in the past: {time} at {}",
                        self.now
                    );
                    return self.at(time, Happening::Wake { to: host });
                }
                Output::Transmit(packet) => self.send(host, packet),
                Output::Event(Event::Source(event)) => self.on_source(host, event),
                Output::Event(Event::Receiver(fetch, event)) => {
                    assert_eq!(fetch, FETCH);
                    self.on_receiver(event, from);
                }
                Output::Event(Event::Controller(event)) => match event {
                    ControllerEvent::Persist(record) => drop(self.records.insert(record.task, *record)),
                    ControllerEvent::Forget { task, .. } => drop(self.records.remove(&task)),
                    _ => {}
                },
            }
        }
        panic!("machine {host} never waits");
    }

    fn send(&mut self, host: usize, mut packet: Packet) {
        let target = packet.path.0;
        if target >= CONTROL {
            assert!(matches!(packet.datagram.body, Body::Control(_)), "only control messages ride links");
            packet.path = PathId(CONTROL + host as u32);
            let time = self.now + Duration::from_micros(150);
            return self.at(time, Happening::Arrive { to: (target - CONTROL) as usize, packet });
        }
        let to = target as usize;
        packet.path = PathId(host as u32);
        let index = if host == RECEIVER { to } else { host } - FIRST_SOURCE;
        let path = self.paths[index].clone();
        if host == RECEIVER {
            if !self.rng.random_bool(path.ack_loss) {
                self.at(self.now + path.delay, Happening::Arrive { to, packet });
            }
            return;
        }
        // The source's link: a FIFO in front of a line.
        let backlog = &mut self.backlog[index];
        while backlog.peek().is_some_and(|Reverse(left)| *left <= self.now) {
            backlog.pop();
        }
        if backlog.len() >= path.queue {
            self.dropped += 1;
            return;
        }
        if packet.ecn == Ecn::Ect0 && path.mark_from.is_some_and(|from| backlog.len() >= from) {
            packet.ecn = Ecn::Ce;
        }
        let symbol_size = self.flow_symbols.get(&packet.datagram.flow).copied().unwrap_or(0);
        let len = packet.datagram.len(symbol_size);
        if len > path.longest {
            self.too_long += 1;
            if path.refuses {
                let fits = path.longest as u16;
                let command = Command::Source(SourceCommand::TooLong { path: PathId(target), fits });
                self.at(self.now, Happening::Tell { to: host, command });
            }
            return;
        }
        let size = len as u64 + 42;
        let start = self.busy_until[index].max(self.now);
        let leaves = start + Bytes::new(size) / path.rate;
        self.busy_until[index] = leaves;
        self.backlog[index].push(Reverse(leaves));
        let copies = 1 + u32::from(self.rng.random_bool(path.duplicate));
        for _ in 0..copies {
            if self.rng.random_bool(path.loss) {
                self.dropped += 1;
                continue;
            }
            let late = if self.rng.random_bool(path.reorder) { path.delay } else { Duration::ZERO };
            self.at(leaves + path.delay + late, Happening::Arrive { to, packet: packet.clone() });
        }
    }

    fn on_source(&mut self, host: usize, event: SourceEvent) {
        match event {
            SourceEvent::Prepare { flow, block, repair } => {
                let ready = SourceCommand::BlockReady { flow, block, repair };
                let time = self.now + Duration::from_micros(50);
                self.at(time, Happening::Tell { to: host, command: Command::Source(ready) });
            }
            SourceEvent::Opened(opened) => {
                self.flow_source.insert(opened.flow, host);
                self.flow_symbols.insert(opened.flow, opened.symbol_size);
            }
            SourceEvent::Closed { .. } | SourceEvent::Release { .. } | SourceEvent::Wanted { .. } => {}
        }
    }

    fn on_receiver(&mut self, event: ReceiverEvent, from: Option<usize>) {
        let tell = |command| Happening::Tell { to: RECEIVER, command: Command::Receiver(FETCH, command) };
        match event {
            ReceiverEvent::Accepted { object, bytes, symbol_size, .. } => {
                assert_eq!((object, bytes), (self.object, self.bytes));
                self.tasks_seen += 1;
                let geometry = Geometry::new(bytes, symbol_size).unwrap();
                if self.geometry.replace(geometry) != Some(geometry) {
                    self.blocks.clear();
                }
                let have = self.done_blocks.iter().map(|&b| BlockIndex(b)).collect();
                let start = ReceiverCommand::Start { wanted: 0..geometry.layout().block_count(), have };
                self.at(self.now + Duration::from_micros(300), tell(start));
            }
            ReceiverEvent::Bind(bind) => {
                let path = PathId(u32::from(bind.node.0[0]));
                self.at(self.now, tell(ReceiverCommand::FlowPath { flow: bind.flow, path }));
            }
            ReceiverEvent::Symbol { symbol, .. } => {
                let from = from.expect("a symbol is kept right after it came");
                let block = self.blocks.entry(symbol.block.0).or_default();
                assert!(!self.done_blocks.contains(&symbol.block.0), "a symbol of a finished block was kept");
                assert!(block.symbols.insert(symbol.esi.0, from).is_none(), "{symbol:?} was kept twice");
                self.first_use.entry(from - FIRST_SOURCE).or_insert(self.now);
            }
            ReceiverEvent::Decode { block } => {
                let k = self.geometry.unwrap().source_symbols(block);
                let here = &self.blocks[&block.0].symbols;
                assert!(
                    here.len() >= k as usize,
                    "decoding {block} needs {k} symbols, {} are here",
                    here.len()
                );
                let corrupt = here.values().any(|&host| self.paths[host - FIRST_SOURCE].lies);
                let systematic = here.range(..k).count() == k as usize;
                // One block in 200 with repair symbols needs more than K.
                let dependent = !systematic && here.len() == k as usize && self.rng.random_bool(1.0 / 200.0);
                let command = if dependent {
                    ReceiverCommand::DecodeFailed { block, failure: DecodeFailure::NeedMore }
                } else if corrupt {
                    ReceiverCommand::DecodeFailed { block, failure: DecodeFailure::Corrupt }
                } else {
                    self.done_blocks.insert(block.0);
                    self.blocks.remove(&block.0);
                    ReceiverCommand::BlockDecoded { block }
                };
                self.at(self.now + self.decode_time, tell(command));
            }
            ReceiverEvent::Discard { block } => drop(self.blocks.remove(&block.0)),
            ReceiverEvent::Distrusted { node } => self.distrusted.push(node),
            ReceiverEvent::Done => {
                assert_eq!(
                    self.done_blocks.len() as u32,
                    self.geometry.unwrap().layout().block_count(),
                    "done without all blocks"
                );
                assert!(self.finished.is_none(), "ended twice");
                self.finished = Some((self.now, Ok(())));
            }
            ReceiverEvent::Failed(failure) => {
                assert!(self.finished.is_none(), "ended twice");
                self.finished = Some((self.now, Err(failure)));
            }
            ReceiverEvent::Moved(_) | ReceiverEvent::Unbind { .. } => {}
            ReceiverEvent::Ended => {
                assert!(self.finished.is_some(), "over without an end");
                self.ended = true;
            }
        }
        if self.finished.is_some() && !self.ended {
            self.last_stats = self.stats();
        }
    }

    /// Seconds from the request to the end.
    pub fn seconds(&self) -> f64 {
        let (at, outcome) = self.finished.clone().expect("the task has ended");
        assert_eq!(outcome, Ok(()));
        at.since(Time::from_nanos(1_000_000)).as_secs_f64()
    }
}
