//! A tree of links with rates, delays and queues, stores where it branches, and the machines at its ends.

use std::collections::BTreeMap;

use headwater_machine::{Endpoint, Input, Packet};
use headwater_switch::{StoreConfig, TreeNode, TreeWord};
use headwater_testkit::messages::{Object, grant};
use headwater_testkit::{
    Addressed, Command, Event, Line, Link as TestLink, Machine, Network, Preparation, Reception, Role,
    Simulation, Weather, receivers,
};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::tree::{TreeReceiverConfig, TreeSourceConfig, TreeStats};
use headwater_transport::{FromFetch, ReceiverCommand, SourceCommand, SourceEvent, ToFetch};
use headwater_units::{
    BitRate, Bytes, Duration, FetchId, FlowId, FlowKey, Geometry, NodeId, ObjectId, PathId, TaskId, Time,
};
use headwater_wire::{Body, Control, Delivery, FlowRole, Push, ToSource};

const CONTROLLER: PathId = PathId(9);
const FETCH: FetchId = FetchId(1);
pub(crate) const OBJECT: ObjectId = ObjectId([1; 32]);
const KEY: FlowKey = FlowKey([2; 32]);
const SYMBOL: u16 = 1024;
pub(crate) const TREE: FlowId = FlowId(1);
/// A symbol's packet, and all others (Datacast §VI-B: headers of 16 bytes).
const DATA: Bytes = Bytes::new(1500);
const SMALL: Bytes = Bytes::new(16);
/// Packets that wait before a line, and the one on it.
const ROOM: usize = 101;
/// The source's host, and the first device.
const SOURCE: usize = 0;
/// From a device to its parent, and from the first one to the source.
const UP: usize = usize::MAX;

fn object(bytes: Bytes) -> Object {
    Object { id: OBJECT, bytes, symbol_size: SYMBOL }
}

/// The controller answers a request: one flow brings the object, which has `bytes` bytes.
pub(crate) fn accepted(request: u64, bytes: Bytes, flow: FlowId, delivery: Delivery) -> Control {
    let flow = grant(flow, NodeId([6; 32]), KEY, 0, 1);
    let rarely = Duration::from_secs(1000);
    object(bytes).accepted(request, TaskId(request), rarely, delivery, vec![flow])
}

/// The link from a device to the one below it; the link up is as fast as the source's.
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

/// The links between a device and its parent: twice its place is the one down, the next the one up.
fn links((place, device): (usize, &Device)) -> [TestLink<Addressed>; 2] {
    let Link { rate, delay, loss } = device.down;
    let up = || TestLink { line: Line::Rate(rate), room: ROOM, ..TestLink::new(delay) };
    [up().with_faults(Weather { loss, ..Weather::default() }.faults(place as u64)), up()]
}

pub(crate) struct Net {
    devices: Vec<Device>,
    /// By device. Its link up is [`UP`], that to its own application its own place.
    nodes: Vec<TreeNode<Packet, usize>>,
    network: Network<Addressed, ()>,
    /// By device: the source at the first one, and receivers.
    machines: BTreeMap<usize, Machine>,
    preparation: Preparation,
    receptions: BTreeMap<usize, Reception>,
    total: u64,
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
        let config = SourceConfig { trees: source, ..SourceConfig::default() };
        let source = Role::Source(Source::new(config, [7; 32]));
        let places = (1..devices.len()).filter(|place| devices[*place].receives);
        // Nothing is pulled here.
        let machine = || Role::Receiver(receivers(BitRate::new(1)));
        let mut net = Net {
            nodes: nodes.collect(),
            network: Network::new(devices.iter().enumerate().flat_map(links).collect()),
            receptions: places.clone().map(|place| (place, Reception::default())).collect(),
            machines: places.map(|place| (place, machine())).chain([(SOURCE, source)]).collect(),
            preparation: Preparation::default(),
            total: Geometry::new(Bytes::new(bytes), SYMBOL).unwrap().total_symbols().get(),
            devices,
        };
        net.begin(receiver, Bytes::new(bytes));
        net
    }

    /// First messages of a controller and the drivers.
    fn begin(&mut self, receiver: TreeReceiverConfig, bytes: Bytes) {
        let delivery = Delivery::Trees { credit: receiver.credit as u16 };
        self.tell(SOURCE, Role::Source(SourceCommand::Hold { object: OBJECT, bytes }));
        let push = object(bytes).push(TaskId(1), TREE, KEY, NodeId([3; 32]), delivery);
        let role = FlowRole::Tree { group: TREE, most: None };
        self.hear(SOURCE, Packet::control(CONTROLLER, ToSource::Push(Push { role, ..push })));
        for place in self.receptions.keys().copied().collect::<Vec<_>>() {
            let config = ReceiverConfig::new("object", NodeId([4; 32]), CONTROLLER, 5);
            let config = ReceiverConfig { delivery: Some(delivery), trees: receiver, ..config };
            let fetch = ReceiverCommand::Fetch(Box::new(config));
            self.tell(place, Role::Receiver(ToFetch(FETCH, fetch)));
            self.hear(place, Packet::control(CONTROLLER, accepted(5, bytes, TREE, delivery)));
        }
    }

    /// Runs until all have everything, or until this time.
    pub(crate) fn run(&mut self, until: Time) {
        while self.receptions.values().any(|it| it.done().is_none()) {
            if !self.step(until) {
                assert!(!self.network.is_quiet(), "nothing will happen any more");
                return self.network.wait_until(until);
            }
        }
    }

    pub(crate) fn stats(&self) -> TreeStats {
        let Role::Source(source) = &self.machines[&SOURCE] else { unreachable!() };
        source.flow(TREE).unwrap().tree.unwrap()
    }

    /// When each receiver had everything.
    pub(crate) fn done(&self) -> Vec<Option<Time>> {
        self.receptions.values().map(Reception::done).collect()
    }

    /// Symbols that a receiver has.
    pub(crate) fn has(&self, place: usize) -> u64 {
        self.receptions[&place].kept
    }

    /// Symbols over links, for each link and symbol of the object. Nothing else goes down.
    pub(crate) fn link_stress(&self) -> f64 {
        let carried: u64 = self.network.links.iter().step_by(2).map(|link| link.carried).sum();
        carried as f64 / (self.total * (self.devices.len() as u64 - 1)) as f64
    }

    /// A packet of the tree is at a device, from one of its neighbours.
    fn pass(&mut self, at: usize, by: usize, packet: Packet) {
        let word = TreeWord::of(&packet.datagram.body).unwrap_or_else(|| panic!("{packet:?} on a tree"));
        let size =
            |packet: &Packet| if matches!(packet.datagram.body, Body::Symbol(_)) { DATA } else { SMALL };
        let (bytes, mut sent) = (size(&packet), Vec::new());
        self.nodes[at].handle(&by, word, packet, bytes, |to, packet| sent.push((*to, packet.clone())));
        for (to, packet) in sent {
            let size = size(&packet);
            match to {
                UP if at == SOURCE => self.hear(SOURCE, packet),
                UP => {
                    let to = self.devices[at].parent;
                    self.network.send(2 * at + 1, size, Addressed { from: at, to, packet });
                }
                to if to != at => self.network.send(2 * to, size, Addressed { from: UP, to, packet }),
                _ => {
                    self.receptions.get_mut(&at).expect("somebody receives there").hands_in(&packet);
                    self.hear(at, packet);
                }
            }
        }
    }
}

impl Simulation for Net {
    type Command = Command;
    type Event = Event;
    type Carried = Addressed;
    type Act = ();

    fn network(&mut self) -> &mut Network<Addressed, ()> {
        &mut self.network
    }

    fn machine(&mut self, host: usize) -> impl Endpoint<Command = Command, Event = Event> {
        self.machines.get_mut(&host).expect("somebody is there")
    }

    fn arrive(&mut self, _: usize, Addressed { from, to, packet }: Addressed) {
        self.pass(to, from, packet);
    }

    fn act(&mut self, (): ()) {}

    fn transmit(&mut self, host: usize, packet: Packet) {
        match packet.datagram.body {
            Body::Control(_) => {}
            _ if host == SOURCE => {
                self.preparation.sends(&packet.datagram);
                self.pass(SOURCE, UP, packet);
            }
            Body::Interest(_) => self.pass(host, host, packet),
            _ => {}
        }
    }

    fn on_event(&mut self, host: usize, event: Event) {
        let now = self.network.now();
        let answer = match event {
            Role::Source(SourceEvent::Opened(opened)) => {
                Some(Role::Source(SourceCommand::FlowPath { flow: opened.flow, path: PathId(0) }))
            }
            Role::Source(event) => self.preparation.answer(&event).map(Role::Source),
            Role::Receiver(FromFetch(fetch, event)) => {
                let reception = self.receptions.get_mut(&host).expect("it is there");
                let answer = reception.answer(now, event, |_| PathId(0));
                answer.map(|command| Role::Receiver(ToFetch(fetch, command)))
            }
            Role::Controller(_) => unreachable!("nobody controls here"),
        };
        if let Some(command) = answer {
            self.handle(host, Input::Command(command));
        }
    }
}
