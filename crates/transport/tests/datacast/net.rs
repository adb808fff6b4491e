//! A tree of links with rates, delays and queues, stores where it branches, and the machines at its ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_switch::{StoreConfig, TreeNode, TreeWord};
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::tree::{TreeReceiverConfig, TreeSourceConfig, TreeStats};
use headwater_transport::{FromFetch, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent, ToFetch};
use headwater_units::{
    BitRate, Bytes, Duration, FetchId, FlowId, FlowKey, Geometry, NodeId, ObjectId, PathId, TaskId, Theta,
    Time,
};
use headwater_wire::{Body, Class, Control, Delivery, FlowGrant, FlowRole, Push, ToReceiver, ToSource};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CONTROLLER: PathId = PathId(9);
const FETCH: FetchId = FetchId(1);
pub(crate) const OBJECT: ObjectId = ObjectId([1; 32]);
const KEY: FlowKey = FlowKey([2; 32]);
const SYMBOL: u16 = 1024;
/// Nothing is pulled here.
const PULL: PullConfig =
    PullConfig { rate: BitRate::new(1), packet: Bytes::new(1500), catch_up: Duration::from_nanos(0) };
pub(crate) const TREE: FlowId = FlowId(1);
/// A symbol's packet, and all others (Datacast §VI-B: headers of 16 bytes).
const DATA: u64 = 1500;
const SMALL: u64 = 16;
const QUEUE: usize = 100;
/// From a device to its parent, and from the first one to the source.
const UP: usize = usize::MAX;

/// The controller answers a request: one flow brings the object, which has so many bytes.
pub(crate) fn accepted(request: u64, bytes: Bytes, flow: FlowId, delivery: Delivery) -> Control {
    let grant = FlowGrant {
        flow,
        node: NodeId([6; 32]),
        at: Vec::new(),
        key: KEY,
        index: 0,
        of: 1,
        group: None,
        relays: false,
        passed_on: matches!(delivery, Delivery::Trees { .. }),
    };
    Control::Receiver(ToReceiver::Accepted {
        request,
        task: TaskId(request),
        object: OBJECT,
        bytes,
        symbol_size: SYMBOL,
        feedback_every: Duration::from_secs(1000),
        version: 0,
        flows: vec![grant],
        delivery,
    })
}

/// The link from a device to the one below it; the way up is as fast as the source's.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) rate: BitRate,
    pub(crate) delay: Duration,
    /// Packets on their way down that are lost.
    pub(crate) loss: f64,
}

/// A device: its parent's place among the devices, and whether an application receives here. The first is the source.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    pub(crate) parent: usize,
    pub(crate) down: Link,
    pub(crate) receives: bool,
}

struct Receiver {
    machine: Receivers,
    wake: Time,
    done: Option<Time>,
    /// Symbols that were kept.
    count: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A packet arrives at a device, by this way.
    Arrive {
        at: usize,
        from: usize,
        number: usize,
    },
    Wake {
        at: usize,
    },
}

pub(crate) struct Net {
    devices: Vec<Device>,
    /// By device. Its way up is [`UP`], that to its own application its own place.
    nodes: Vec<TreeNode<Packet, usize>>,
    /// By device: when its link down, and its link up, are free.
    free: Vec<[Time; 2]>,
    source: Source,
    source_wake: Time,
    receivers: BTreeMap<usize, Receiver>,
    agenda: BinaryHeap<Reverse<(Time, u64, What)>>,
    packets: Vec<Option<Packet>>,
    spare: Vec<usize>,
    serial: u64,
    rng: ChaCha8Rng,
    pub(crate) now: Time,
    /// Symbols that crossed each device's link from above.
    pub(crate) carried: Vec<u64>,
    total: u64,
    bytes: u64,
}

impl Net {
    pub(crate) fn new(
        devices: Vec<Device>,
        store: StoreConfig,
        source: TreeSourceConfig,
        receiver: TreeReceiverConfig,
        bytes: u64,
    ) -> Self {
        let mut children = vec![Vec::new(); devices.len()];
        for (place, device) in devices.iter().enumerate() {
            if place > 0 {
                children[device.parent].push(place);
            }
            if device.receives {
                children[place].push(place);
            }
        }
        let nodes = children.into_iter().map(|children| TreeNode::new(store, UP, children));
        let geometry = Geometry::new(Bytes::new(bytes), SYMBOL).unwrap();
        let receivers = devices.iter().enumerate().filter(|(_, device)| device.receives).map(|(place, _)| {
            let machine = Receivers::new(HostReceiverConfig { pull: PULL });
            (place, Receiver { machine, wake: Time::MAX, done: None, count: 0 })
        });
        let receivers: BTreeMap<_, _> = receivers.collect();
        let config = SourceConfig { trees: source, ..SourceConfig::default() };
        let mut net = Net {
            nodes: nodes.collect(),
            free: vec![[Time::ZERO; 2]; devices.len()],
            source: Source::new(config, [7; 32]),
            source_wake: Time::MAX,
            agenda: BinaryHeap::new(),
            packets: Vec::new(),
            spare: Vec::new(),
            serial: 0,
            rng: ChaCha8Rng::seed_from_u64(7),
            now: Time::ZERO,
            carried: vec![0; devices.len()],
            total: geometry.total_symbols().get(),
            bytes,
            devices,
            receivers,
        };
        net.begin(receiver);
        net
    }

    /// What a controller and the drivers say.
    fn begin(&mut self, receiver: TreeReceiverConfig) {
        let (object, delivery) = (OBJECT, Delivery::Trees { credit: receiver.credit as u16 });
        let bytes = Bytes::new(self.bytes);
        let hold = SourceCommand::Hold { object, bytes };
        self.source.handle(self.now, Input::Command(hold));
        let push = Push {
            task: TaskId(1),
            flow: TREE,
            object,
            bytes,
            symbol_size: SYMBOL,
            key: KEY,
            theta: Theta::ONE,
            class: Class::Bulk,
            receiver: NodeId([3; 32]),
            delivery,
            index: 0,
            of: 1,
            at: Vec::new(),
            start: None,
            role: FlowRole::Tree { group: TREE, most: None },
        };
        let order = Packet::control(CONTROLLER, ToSource::Push(push));
        self.source.handle(self.now, Input::Packet(order));
        self.drain_source();
        let places: Vec<usize> = self.receivers.keys().copied().collect();
        for place in places {
            let config = ReceiverConfig::new("object", NodeId([4; 32]), CONTROLLER, 5);
            let config = ReceiverConfig { delivery: Some(delivery), trees: receiver, ..config };
            let begin = ReceiverCommand::Fetch(Box::new(config));
            self.tell(place, begin);
            let accepted = Packet::control(CONTROLLER, accepted(5, bytes, TREE, delivery));
            let accepted = Input::Packet(accepted);
            self.receivers.get_mut(&place).unwrap().machine.handle(self.now, accepted);
            self.drain_receiver(place);
        }
    }

    fn tell(&mut self, at: usize, command: ReceiverCommand) {
        let receiver = self.receivers.get_mut(&at).expect("somebody receives there");
        receiver.machine.handle(self.now, Input::Command(ToFetch(FETCH, command)));
        self.drain_receiver(at);
    }

    /// Runs until all have everything, or until this time.
    pub(crate) fn run(&mut self, until: Time) {
        while self.receivers.values().any(|receiver| receiver.done.is_none()) {
            let due = self.agenda.peek().map(|Reverse((at, ..))| *at);
            if due.is_some_and(|at| at > until) {
                self.now = until;
                return;
            }
            let Some(Reverse((at, _, what))) = self.agenda.pop() else {
                panic!("nothing will happen any more")
            };
            self.now = at;
            match what {
                What::Wake { at: 0 } => self.drain_source(),
                What::Wake { at } => self.drain_receiver(at),
                What::Arrive { at, from, number } => {
                    let packet = self.packets[number].take().expect("a packet arrives once");
                    self.spare.push(number);
                    self.hears(at, from, packet);
                }
            }
        }
    }

    pub(crate) fn stats(&self) -> TreeStats {
        self.source.flow(TREE).unwrap().tree.unwrap()
    }

    /// When each receiver had everything.
    pub(crate) fn done(&self) -> Vec<Option<Time>> {
        self.receivers.values().map(|receiver| receiver.done).collect()
    }

    /// Symbols that a receiver has.
    pub(crate) fn has(&self, place: usize) -> u64 {
        self.receivers[&place].count
    }

    /// Symbols over links, for each link and symbol of the object.
    pub(crate) fn link_stress(&self) -> f64 {
        self.carried.iter().sum::<u64>() as f64 / (self.total * (self.devices.len() as u64 - 1)) as f64
    }

    fn schedule(&mut self, at: Time, what: What) {
        self.serial += 1;
        self.agenda.push(Reverse((at, self.serial, what)));
    }

    /// Over the link between a device and its parent; a full queue drops.
    fn cross(&mut self, child: usize, up: bool, packet: Packet) {
        let Link { rate, delay, loss } = self.devices[child].down;
        let is_data = matches!(packet.datagram.body, Body::Symbol(_));
        let took = Bytes::new(if is_data { DATA } else { SMALL }) / rate;
        let free = &mut self.free[child][usize::from(up)];
        let waits = free.since(self.now);
        if waits.as_nanos() > (Bytes::new(DATA) / rate).as_nanos() * QUEUE as u64 {
            return;
        }
        let leaves = self.now + waits + took;
        *free = leaves;
        if is_data {
            self.carried[child] += 1;
            if self.rng.random_bool(loss) {
                return;
            }
        }
        let number = self.spare.pop().unwrap_or_else(|| {
            self.packets.push(None);
            self.packets.len() - 1
        });
        self.packets[number] = Some(packet);
        let (at, from) = if up { (self.devices[child].parent, child) } else { (child, UP) };
        self.schedule(leaves + delay, What::Arrive { at, from, number });
    }

    /// A packet of the tree is at a device.
    fn hears(&mut self, at: usize, from: usize, packet: Packet) {
        let body = &packet.datagram.body;
        let word = TreeWord::of(body).unwrap_or_else(|| panic!("{body:?} on a tree"));
        let bytes = Bytes::new(if matches!(body, Body::Symbol(_)) { DATA } else { SMALL });
        let mut sent = Vec::new();
        self.nodes[at].handle(&from, word, packet, bytes, |way, packet| sent.push((*way, packet.clone())));
        sent.into_iter().for_each(|(way, packet)| self.give(at, way, packet));
    }

    /// From a device by one of its ways.
    fn give(&mut self, at: usize, way: usize, packet: Packet) {
        match way {
            UP if at == 0 => {
                self.source.handle(self.now, Input::Packet(packet));
                self.drain_source();
            }
            UP => self.cross(at, true, packet),
            child if child != at => self.cross(child, false, packet),
            _ => {
                let receiver = self.receivers.get_mut(&at).expect("somebody receives there");
                receiver.machine.handle(self.now, Input::Packet(packet));
                self.drain_receiver(at);
            }
        }
    }

    fn drain_receiver(&mut self, at: usize) {
        let now = self.now;
        loop {
            let receiver = self.receivers.get_mut(&at).expect("it is there");
            match receiver.machine.poll(now) {
                Output::Transmit(packet) => {
                    if matches!(packet.datagram.body, Body::Interest(_)) {
                        self.hears(at, at, packet);
                    }
                }
                Output::Event(FromFetch(_, event)) => match event {
                    ReceiverEvent::Accepted { .. } => {
                        self.tell(at, ReceiverCommand::Start { wanted: 0..u32::MAX, have: Vec::new() });
                    }
                    ReceiverEvent::Bind(bind) => {
                        self.tell(at, ReceiverCommand::FlowPath { flow: bind.flow, path: PathId(0) });
                    }
                    ReceiverEvent::Symbol { .. } => receiver.count += 1,
                    ReceiverEvent::Decode { block } => {
                        self.tell(at, ReceiverCommand::BlockDecoded { block });
                    }
                    ReceiverEvent::Done => receiver.done = Some(now),
                    ReceiverEvent::Failed(failure) => panic!("{failure:?} at {at}"),
                    _ => {}
                },
                Output::Wake(due) => {
                    if let Some(due) = due.filter(|due| *due < receiver.wake || receiver.wake <= now) {
                        receiver.wake = due;
                        self.schedule(due, What::Wake { at });
                    }
                    return;
                }
            }
        }
    }

    fn drain_source(&mut self) {
        loop {
            match self.source.poll(self.now) {
                Output::Transmit(packet) => {
                    if !matches!(packet.datagram.body, Body::Control(_)) {
                        self.hears(0, UP, packet);
                    }
                }
                Output::Event(SourceEvent::Opened(opened)) => {
                    let path = SourceCommand::FlowPath { flow: opened.flow, path: PathId(0) };
                    self.source.handle(self.now, Input::Command(path));
                }
                Output::Event(SourceEvent::Prepare { flow, block, .. }) => {
                    let ready = SourceCommand::BlockReady { flow, block, repair: false };
                    self.source.handle(self.now, Input::Command(ready));
                }
                Output::Event(_) => {}
                Output::Wake(due) => {
                    if let Some(due) =
                        due.filter(|due| *due < self.source_wake || self.source_wake <= self.now)
                    {
                        self.source_wake = due;
                        self.schedule(due, What::Wake { at: 0 });
                    }
                    return;
                }
            }
        }
    }
}
