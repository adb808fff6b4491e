//! A small deterministic network for whole deliveries: a controller, sources with a link each, and a receiver.
//!
//! Not the simulator: no switches, no topology. Just enough to lose, mark, delay, reorder and duplicate packets, and to kill hosts.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};

use headwater_controller::{Controller, ControllerCommand, ControllerConfig, ControllerEvent, TaskRecord};
use headwater_machine::{Endpoint, Input, Packet};
use headwater_testkit::messages::node_info;
use headwater_testkit::{
    Addressed, Command, Due, Duty, Event, Line, Link, Network, Preparation, Reception, Role, Simulation,
    Weather, receivers,
};
use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_transport::receiver::Receivers;
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::*;
use headwater_units::*;
use headwater_wire::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use headwater_testkit::Machine;

const CONTROL: u32 = 1000;
pub const CONTROLLER: usize = 0;
pub const RECEIVER: usize = 1;
pub const FIRST_SOURCE: usize = 2;
/// The only fetch of the receiver.
pub const FETCH: FetchId = FetchId(9);
const OBJECT: ObjectId = ObjectId([9; 32]);
const DISK: Duration = Duration::from_micros(50);
const ROOM_IS_FOUND: Duration = Duration::from_micros(300);
const DECODES: Duration = Duration::from_micros(200);
/// The link of all control messages; behind it come those of each source, there and back.
const CONTROL_LINK: usize = 0;

/// One source's path to the receiver.
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
    /// Bytes that the source says its datagrams carry.
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

impl Path {
    /// To the receiver, and back.
    fn links(&self, seed: u64) -> [Link<Addressed>; 2] {
        let there = Weather {
            loss: self.loss,
            twice: self.duplicate,
            late: self.reorder,
            marked: 0.0,
            by: self.delay * 2,
        };
        let back = Weather { loss: self.ack_loss, ..Weather::default() };
        let link = Link {
            line: Line::Rate(self.rate),
            room: self.queue,
            mark_from: self.mark_from.unwrap_or(usize::MAX),
            ..Link::new(self.delay)
        };
        [link.with_faults(there.faults(seed)), Link::new(self.delay).with_faults(back.faults(!seed))]
    }
}

/// Action of a test at a given time.
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

/// Action scheduled for later.
pub enum Later {
    Do(Act),
    Tell(usize, Command),
    Decode(BlockIndex),
}

pub struct World {
    pub network: Network<Addressed, Later>,
    rng: ChaCha8Rng,
    pub machines: Vec<Machine>,
    paths: Vec<Path>,
    dead: BTreeSet<usize>,
    /// Packets that wait for them.
    frozen: BTreeMap<usize, Vec<Due<Addressed, Later>>>,
    bytes: Bytes,
    preparations: Vec<Preparation>,
    pub reception: Reception,
    records: BTreeMap<TaskId, TaskRecord>,
    /// The source of each flow, and its T.
    flows: BTreeMap<FlowId, (usize, u16)>,
    /// The receiver's counters when it was last looked at, once it had finished.
    last_stats: Option<ReceiverStats>,
    pub first_use: BTreeMap<usize, Time>,
    /// Datagrams that were longer than their path carries.
    pub too_long: u64,
    controller_config: ControllerConfig,
}

pub fn node(n: usize) -> NodeId {
    NodeId([n as u8; 32])
}

fn control_path(host: usize) -> PathId {
    PathId(CONTROL + host as u32)
}

/// A host that has been told to fetch this.
fn fetching(config: ReceiverConfig) -> Receivers {
    let mut receivers = receivers(BitRate::new(10_000_000_000));
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
            Role::Controller(Controller::new(controller_config.clone(), [seed as u8; 32])),
            Role::Receiver(fetching(config)),
        ];
        let mut links = vec![Link::new(Duration::from_micros(150))];
        for (i, path) in paths.iter().enumerate() {
            machines.push(Role::Source(Source::new(source.clone(), [seed as u8 ^ (i as u8 + 1); 32])));
            links.extend(path.links(seed.wrapping_add(i as u64)));
        }
        let mut world = World {
            network: Network::new(links),
            rng: ChaCha8Rng::seed_from_u64(seed),
            preparations: machines.iter().map(|_| Preparation::default()).collect(),
            machines,
            paths,
            dead: BTreeSet::new(),
            frozen: BTreeMap::new(),
            bytes,
            reception: Reception::default(),
            records: BTreeMap::new(),
            flows: BTreeMap::new(),
            last_stats: None,
            first_use: BTreeMap::new(),
            too_long: 0,
            controller_config,
        };
        (FIRST_SOURCE..world.machines.len()).for_each(|source| world.introduce(source));
        world.network.wake(RECEIVER, Some(Time::from_nanos(1_000_000)));
        world
    }

    /// A source that is there only from `when` on.
    pub fn joins(&mut self, index: usize, when: Duration) {
        let source = FIRST_SOURCE + index;
        self.dead.insert(source);
        self.network.retain(|due| !matches!(due, Due::Arrives { packet, .. } if packet.from == source));
        self.act(when, Act::Join(source));
    }

    pub fn act(&mut self, when: Duration, act: Act) {
        self.network.at(Time::ZERO + when, Later::Do(act));
    }

    fn later(&mut self, after: Duration, host: usize, command: Command) {
        self.network.after(after, Later::Tell(host, command));
    }

    fn introduce(&mut self, source: usize) {
        let room = self.paths[source - FIRST_SOURCE].room;
        let info = NodeInfo { room, ..node_info(node(source), format!("source {source}"), source as u8) };
        let holding = Holding { object: OBJECT, bytes: self.bytes, name: Some("object".into()) };
        for control in [ToController::Hello(info), ToController::Hold(holding)] {
            self.send(source, Packet::control(control_path(CONTROLLER), control));
        }
        let hold = SourceCommand::Hold { object: OBJECT, bytes: self.bytes };
        self.later(Duration::ZERO, source, Role::Source(hold));
    }

    /// Runs until the receiver has ended, or `limit`.
    pub fn run(&mut self, limit: Duration) -> ReceiverStats {
        while !self.reception.ended && self.step(Time::ZERO + limit) {}
        self.stats().or_else(|| self.last_stats.clone()).expect("its last words are known")
    }

    fn stats(&mut self) -> Option<ReceiverStats> {
        let now = self.network.now();
        let Role::Receiver(receivers) = &mut self.machines[RECEIVER] else { unreachable!() };
        receivers.stats(now, FETCH)
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Kill(host) => _ = self.dead.insert(host),
            Act::Revive(host) => {
                self.dead.remove(&host);
                self.drain(host);
            }
            Act::Freeze(host) => _ = self.frozen.insert(host, Vec::new()),
            Act::Thaw(host) => {
                for due in self.frozen.remove(&host).into_iter().flatten() {
                    self.happen(due);
                }
                self.drain(host);
            }
            Act::Join(host) => {
                self.dead.remove(&host);
                self.introduce(host);
            }
            Act::SetRate(index, rate) => self.network.links[1 + 2 * index].line = Line::Rate(rate),
            Act::SetLongest(index, longest) => self.paths[index].longest = longest,
            Act::RestartController => {
                let controller = Controller::new(self.controller_config.clone(), [200; 32]);
                self.machines[CONTROLLER] = Role::Controller(controller);
                self.tell(CONTROLLER, Role::Controller(ControllerCommand::Returned));
                for record in self.records.values().cloned().collect::<Vec<_>>() {
                    let restore = ControllerCommand::Restore(Box::new(record));
                    self.tell(CONTROLLER, Role::Controller(restore));
                }
                for source in FIRST_SOURCE..self.machines.len() {
                    if !self.dead.contains(&source) {
                        self.introduce(source);
                    }
                }
            }
        }
    }

    /// Puts a packet on the link that its path means.
    fn send(&mut self, host: usize, packet: Packet) {
        let Packet { path: PathId(target), ecn, datagram } = packet;
        let addressed = |to: u32, path, datagram| {
            let packet = Packet { path, ecn, datagram };
            Addressed { from: host, to: to as usize, packet }
        };
        if target >= CONTROL {
            assert!(matches!(datagram.body, Body::Control(_)), "only control messages ride links");
            let control = addressed(target - CONTROL, control_path(host), datagram);
            return self.network.send(CONTROL_LINK, Bytes::ZERO, control);
        }
        let data = addressed(target, PathId(host as u32), datagram);
        if host == RECEIVER {
            let index = data.to - FIRST_SOURCE;
            return self.network.send(2 + 2 * index, Bytes::ZERO, data);
        }
        let index = host - FIRST_SOURCE;
        let symbol_size =
            self.flows.get(&data.packet.datagram.flow).map_or(0, |(_, symbol_size)| *symbol_size);
        let len = data.packet.datagram.len(symbol_size);
        let Path { longest, refuses, .. } = self.paths[index];
        if len <= longest {
            return self.network.send(1 + 2 * index, Bytes::new(len as u64 + 42), data);
        }
        self.too_long += 1;
        if refuses {
            let too_long = SourceCommand::TooLong { path: PathId(target), fits: longest as u16 };
            self.later(Duration::ZERO, host, Role::Source(too_long));
        }
    }

    /// Keeps a packet for a frozen host until it thaws.
    fn waits(&mut self, host: usize, due: Due<Addressed, Later>) -> Option<Due<Addressed, Later>> {
        match self.frozen.get_mut(&host) {
            Some(waiting) => {
                waiting.push(due);
                None
            }
            None => Some(due),
        }
    }

    fn on_source(&mut self, host: usize, event: SourceEvent) {
        if let SourceEvent::Opened(opened) = &event {
            self.flows.insert(opened.flow, (host, opened.symbol_size));
        }
        if let Some(ready) = self.preparations[host].on_event(&event) {
            self.later(DISK, host, Role::Source(ready));
        }
    }

    fn on_receiver(&mut self, event: ReceiverEvent) {
        let now = self.network.now();
        match &event {
            ReceiverEvent::Accepted { object, bytes, .. } => {
                assert_eq!((*object, *bytes), (OBJECT, self.bytes));
            }
            ReceiverEvent::Symbol { flow, .. } => {
                self.first_use.entry(self.flows[flow].0 - FIRST_SOURCE).or_insert(now);
            }
            _ => {}
        }
        let told = |command| Role::Receiver(ToFetch(FETCH, command));
        match self.reception.on_event(now, event) {
            Some(Duty::Start(start)) => self.later(ROOM_IS_FOUND, RECEIVER, told(start)),
            Some(Duty::FindPath(bind)) => {
                let path = PathId(u32::from(bind.node.0[0]));
                let found = ReceiverCommand::FlowPath { flow: bind.flow, path };
                self.later(Duration::ZERO, RECEIVER, told(found));
            }
            Some(Duty::Decode(block)) => self.network.after(DECODES, Later::Decode(block)),
            None => {}
        }
        if self.reception.finished.is_some() && !self.reception.ended {
            self.last_stats = self.stats();
        }
    }

    fn decode(&mut self, block: BlockIndex) {
        let World { reception, flows, paths, rng, .. } = self;
        let lies = |flow: &FlowId| paths[flows[flow].0 - FIRST_SOURCE].lies;
        let decoded = reception.decode(block, |attempt| {
            // One block in 200 with repair symbols needs more than K.
            if attempt.is_close() && rng.random_bool(1.0 / 200.0) {
                Err(DecodeFailure::NeedMore)
            } else if attempt.symbols.values().any(lies) {
                Err(DecodeFailure::Corrupt)
            } else {
                Ok(())
            }
        });
        if let Some(command) = decoded {
            self.tell(RECEIVER, Role::Receiver(ToFetch(FETCH, command)));
        }
    }

    /// Packets that queues have dropped.
    pub fn dropped(&self) -> u64 {
        self.network.links.iter().map(|link| link.dropped).sum()
    }

    /// Seconds from the request to the end.
    pub fn seconds(&self) -> f64 {
        self.reception.done_at().since(Time::from_nanos(1_000_000)).as_secs_f64()
    }
}

impl Simulation for World {
    type Command = Command;
    type Event = Event;
    type Carried = Addressed;
    type Act = Later;

    fn network(&mut self) -> &mut Network<Addressed, Later> {
        &mut self.network
    }

    fn machine(&mut self, host: usize) -> impl Endpoint<Command = Command, Event = Event> {
        &mut self.machines[host]
    }

    fn is_up(&self, host: usize) -> bool {
        !self.dead.contains(&host) && !self.frozen.contains_key(&host)
    }

    fn transmit(&mut self, host: usize, packet: Packet) {
        self.preparations[host].sends(&packet.datagram);
        self.send(host, packet);
    }

    fn on_event(&mut self, host: usize, event: Event) {
        match event {
            Role::Source(event) => self.on_source(host, event),
            Role::Receiver(FromFetch(fetch, event)) => {
                assert_eq!(fetch, FETCH);
                self.on_receiver(event);
            }
            Role::Controller(ControllerEvent::Persist(record)) => {
                self.records.insert(record.task, *record);
            }
            Role::Controller(ControllerEvent::Forget { task, .. }) => _ = self.records.remove(&task),
            Role::Controller(_) => {}
        }
    }

    fn arrive(&mut self, link: usize, packet: Addressed) {
        let Some(Due::Arrives { packet: Addressed { from, to, packet }, .. }) =
            self.waits(packet.to, Due::Arrives { link, packet })
        else {
            return;
        };
        match to {
            CONTROLLER => {
                let opened =
                    ControllerCommand::PathOpened { path: packet.path, node: node(from), network: None };
                self.tell(CONTROLLER, Role::Controller(opened));
            }
            RECEIVER => self.reception.hands_in(&packet),
            _ => {}
        }
        self.hear(to, packet);
    }

    fn act(&mut self, later: Later) {
        match later {
            Later::Do(act) => self.perform(act),
            Later::Decode(block) => self.decode(block),
            Later::Tell(host, command) => {
                let Some(Due::Acts(Later::Tell(_, command))) =
                    self.waits(host, Due::Acts(Later::Tell(host, command)))
                else {
                    return;
                };
                if let Role::Source(command) = &command {
                    self.preparations[host].ready(command);
                }
                self.tell(host, command);
            }
        }
    }
}
