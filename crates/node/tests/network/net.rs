//! Nodes in a network without losses, and a controller that follows a script.

use std::net::SocketAddr;
use std::sync::Arc;

use headwater_machine::Packet;
use headwater_node::{Arrived, GroupProbesConfig, Node, NodeAction, Parcel, Room, To};
use headwater_testkit::messages::{Object, grant};
use headwater_testkit::{Carried, Due, Duty, Link, Network, Reception, content, receivers};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::Receivers;
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::{ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent};
use headwater_units::*;
use headwater_wire::*;

const CONTROLLER: PathId = PathId(1000);
/// The path to nowhere of those who send on a tree.
const TREE: PathId = PathId(999);
pub(crate) const FETCH: FetchId = FetchId(1);
pub(crate) const OBJECT: ObjectId = ObjectId([9; 32]);
pub(crate) const T: u16 = 1024;
const DELAY: Duration = Duration::from_micros(100);
/// Receivers report less often than a test lasts.
const RARELY: Duration = Duration::from_secs(1000);
const DECODES: Duration = Duration::from_micros(500);

/// A packet of a tree: its bytes, or only what it says where the network carries no bytes.
#[derive(Clone)]
pub(crate) struct Passed {
    datagram: Datagram,
    bytes: Option<Arc<[u8]>>,
}

impl Parcel for Passed {
    fn open(&self, key: &HeaderKey) -> Option<(Datagram, usize)> {
        match &self.bytes {
            Some(bytes) => parse(bytes, key).ok().map(|parsed| (parsed.datagram, parsed.payload.len())),
            None => Some((self.datagram.clone(), payload_of(&self.datagram))),
        }
    }

    fn count_hop(&mut self) {
        if let Some(bytes) = &mut self.bytes {
            count_hop(Arc::make_mut(bytes));
        }
        if let Body::Interest(interest) = &mut self.datagram.body {
            interest.hops += 1;
        }
    }
}

pub(crate) type Machine = Node<Source, Receivers, Passed, SocketAddr>;

/// Source, receiver and role of a flow.
#[derive(Clone)]
pub(crate) struct Leg {
    pub(crate) flow: FlowId,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) role: FlowRole,
}

/// A message on its way, and its two ends.
#[derive(Clone)]
struct Sent {
    from: usize,
    to: usize,
    what: What,
}

#[derive(Clone)]
enum What {
    Datagram(Vec<u8>),
    Packet(Packet),
    Control(Box<Control>),
}

impl Carried for Sent {}

/// A decoder is done with a block, or its host's other work begins.
struct Decoded {
    at: usize,
    block: BlockIndex,
}

pub(crate) struct Host {
    pub(crate) node: Machine,
    pub(crate) got: Reception,
    pub(crate) sent: u64,
    /// Of those, symbols that left before all of the object was here.
    pub(crate) sent_early: u64,
    /// Whether it was said that the object is passed on.
    pub(crate) coming: bool,
    /// Messages to controllers.
    pub(crate) told: Vec<Control>,
}

pub(crate) struct Net {
    pub(crate) hosts: Vec<Host>,
    network: Network<Sent, Decoded>,
    pub(crate) object: Object,
    /// Whether datagrams travel as bytes.
    written: bool,
    delivery: Delivery,
    pub(crate) legs: Vec<Leg>,
}

pub(crate) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 7000))
}

fn host_at(address: SocketAddr) -> usize {
    let SocketAddr::V4(v4) = address else { panic!("{address}") };
    usize::from(v4.ip().octets()[3])
}

fn node(host: usize) -> NodeId {
    NodeId([host as u8 + 1; 32])
}

pub(crate) fn key(flow: FlowId) -> FlowKey {
    FlowKey([flow.0 as u8; 32])
}

fn payload_of(datagram: &Datagram) -> usize {
    if matches!(datagram.body, Body::Symbol(_)) { usize::from(T) } else { 0 }
}

/// A datagram as it travels.
pub(crate) fn written(datagram: &Datagram, key: &HeaderKey) -> Vec<u8> {
    content::written(datagram, payload_of(datagram) as u16, key)
}

pub(crate) fn machine(seed: u8) -> Machine {
    let source = Source::new(SourceConfig::default(), [seed; 32]);
    Node::new(source, receivers(BitRate::new(1_000_000_000)), GroupProbesConfig::default())
}

impl Net {
    /// The first host holds the object.
    pub(crate) fn new(hosts: usize, bytes: Bytes, written: bool, delivery: Delivery, legs: Vec<Leg>) -> Self {
        let host = |seed| Host {
            node: machine(seed as u8),
            got: Reception::default(),
            sent: 0,
            sent_early: 0,
            coming: false,
            told: Vec::new(),
        };
        let hosts = (0..hosts).map(host).collect();
        let (network, object) =
            (Network::new(vec![Link::new(DELAY)]), Object { id: OBJECT, bytes, symbol_size: T });
        let mut net = Net { hosts, network, object, written, delivery, legs };
        let blocks = net.geometry().layout().block_count();
        net.hosts[0].got.whole.extend((0..blocks).map(BlockIndex));
        net.tell_source(0, SourceCommand::Hold { object: OBJECT, bytes });
        net
    }

    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    fn geometry(&self) -> Geometry {
        Geometry::new(self.object.bytes, T).unwrap()
    }

    /// Symbols of the object without repair.
    pub(crate) fn symbols(&self) -> u64 {
        self.geometry().total_symbols().get()
    }

    pub(crate) fn fetch(&mut self, host: usize) {
        let config = ReceiverConfig {
            delivery: Some(self.delivery),
            room: T,
            ..ReceiverConfig::new("object", node(host), CONTROLLER, host as u64)
        };
        self.tell_fetch(host, ReceiverCommand::Fetch(Box::new(config)));
    }

    pub(crate) fn tell_fetch(&mut self, host: usize, command: ReceiverCommand) {
        self.hosts[host].node.tell_fetch(self.network.now(), FETCH, command);
        self.drain(host, Room::Free, &[]);
    }

    pub(crate) fn tell_source(&mut self, host: usize, command: SourceCommand) {
        self.hosts[host].node.tell_source(self.network.now(), command);
        self.drain(host, Room::Free, &[]);
    }

    pub(crate) fn order(&mut self, host: usize, control: Control) {
        self.hosts[host].node.on_control(self.network.now(), CONTROLLER, control);
        self.drain(host, Room::Free, &[]);
    }

    /// A datagram of a tree comes to a host from another one now; what it hands on.
    pub(crate) fn hand_on(&mut self, host: usize, from: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let arrived = Arrived { bytes, from: address(from), ecn: Ecn::NotEct, trimmed: false };
        let parcel =
            |datagram: &Datagram| Passed { datagram: datagram.clone(), bytes: Some(Arc::from(bytes)) };
        let node = &mut self.hosts[host].node;
        node.on_datagram(self.network.now(), arrived, || PathId(0), parcel);
        std::iter::from_fn(|| node.poll(self.network.now(), Room::Free)).find_map(|action| match action {
            NodeAction::Forward { parcel, .. } => Some(parcel.bytes.expect("it was written").to_vec()),
            _ => None,
        })
    }

    /// Goes on until this is true.
    pub(crate) fn run_until(&mut self, is_enough: impl Fn(&Net) -> bool) {
        let limit = Time::ZERO + Duration::from_secs(60);
        while !is_enough(self) {
            match self.network.next(limit).expect("something will happen, and soon enough") {
                Due::Arrives { packet, .. } => self.arrive(packet),
                Due::Acts(Decoded { at, block }) => {
                    if let Some(decoded) = self.hosts[at].got.decode(block, |_| Ok(())) {
                        self.tell_fetch(at, decoded);
                    }
                }
                Due::Wakes { host } => self.drain(host, Room::Free, &[]),
            }
        }
    }

    fn arrive(&mut self, Sent { from, to, what }: Sent) {
        let (now, node) = (self.network.now(), &mut self.hosts[to].node);
        match what {
            What::Control(control) => return self.order(to, *control),
            What::Datagram(bytes) => {
                let arrived =
                    Arrived { bytes: &bytes, from: address(from), ecn: Ecn::NotEct, trimmed: false };
                let parcel = |datagram: &Datagram| Passed {
                    datagram: datagram.clone(),
                    bytes: Some(bytes.as_slice().into()),
                };
                if let Some(payload) = node.on_datagram(now, arrived, || PathId(from as u32), parcel) {
                    self.drain(to, Room::Gathering, payload);
                }
            }
            What::Packet(packet) => {
                let parcel = |datagram: &Datagram| Passed { datagram: datagram.clone(), bytes: None };
                let bytes = Bytes::new(packet.datagram.len(T) as u64);
                node.on_packet(now, address(from), packet, bytes, parcel);
            }
        }
        self.drain(to, Room::Free, &[]);
    }

    fn send(&mut self, from: usize, to: usize, what: What) {
        self.network.send(0, Bytes::ZERO, Sent { from, to, what });
    }

    /// Has a node say all that it has to say.
    pub(crate) fn drain(&mut self, host: usize, room: Room, payload: &[u8]) {
        let now = self.network.now();
        while let Some(action) = self.hosts[host].node.poll(now, room) {
            self.act(host, action, payload);
        }
        // Packets that are wanted now wait for room: they leave when there is some.
        let wake = self.hosts[host].node.wake(room).filter(|at| *at > now);
        self.network.wake(host, wake);
    }

    fn act(&mut self, host: usize, action: NodeAction<Passed, SocketAddr>, payload_at_hand: &[u8]) {
        let now = self.network.now();
        match action {
            NodeAction::Transmit { packet, .. } => self.transmit(host, packet),
            NodeAction::Tell { control, .. } => self.on_controller(host, *control),
            NodeAction::Keep { flow, symbol, parcel, .. } => {
                let it = &mut self.hosts[host];
                if self.written {
                    let bytes = parcel.and_then(|parcel| parcel.bytes);
                    let key = bytes.as_ref().map(|_| HeaderKey::new(&key(self.legs[0].flow)));
                    let parsed =
                        bytes.as_ref().zip(key.as_ref()).map(|(bytes, key)| parse(bytes, key).unwrap());
                    let brought = parsed.as_ref().map_or(payload_at_hand, |parsed| parsed.payload);
                    assert!(brought == content::payload(symbol, T), "the payload of another symbol");
                }
                it.got.keep(flow, symbol);
            }
            NodeAction::Fetch(_, event) => self.on_fetch(host, event),
            NodeAction::Source(event) => self.on_source(host, event),
            NodeAction::Coming { .. } => self.hosts[host].coming = true,
            NodeAction::Gone { .. } => self.hosts[host].coming = false,
            NodeAction::Spoiled { .. } => _ = self.hosts[host].got.whole.pop_first(),
            NodeAction::Lead { tree } => {
                let path = SourceCommand::FlowPath { flow: tree, path: TREE };
                self.hosts[host].node.tell_source(now, path);
            }
            NodeAction::Wrap(datagram) => {
                self.note_sent(host, &datagram);
                let key = self.hosts[host].node.tree_key(datagram.flow).expect("it is a tree's").clone();
                let bytes = self.written.then(|| written(&datagram, &key).into());
                let parcel = Passed { datagram: datagram.clone(), bytes };
                self.hosts[host].node.from_here(&datagram, datagram.len(T), parcel);
            }
            NodeAction::Forward { to, parcel } => {
                let to = host_at(to);
                let what = match parcel.bytes {
                    Some(bytes) => What::Datagram(bytes.to_vec()),
                    None => {
                        let packet = Packet { path: PathId(0), ecn: Ecn::NotEct, datagram: parcel.datagram };
                        What::Packet(packet)
                    }
                };
                self.send(host, to, what);
            }
            NodeAction::Send(alone) => {
                let To::Node(to) = alone.to else { panic!("there are no groups here") };
                let (class, flow, body) = (Class::Control, alone.flow, alone.body);
                let bytes = written(&Datagram { class, key_epoch: 0, flow, body }, &alone.key);
                self.send(host, host_at(to), What::Datagram(bytes));
            }
            NodeAction::Signal { .. } | NodeAction::Heard { .. } => panic!("nobody signals or probes here"),
        }
    }

    /// Notes a sent symbol, and checks that it is here.
    fn note_sent(&mut self, host: usize, datagram: &Datagram) {
        let Body::Symbol(SymbolHeader { symbol, .. }) = datagram.body else { return };
        let (blocks, it) = (self.geometry().layout().block_count() as usize, &mut self.hosts[host]);
        assert!(it.got.whole.contains(&symbol.block), "host {host} has not all of {}", symbol.block);
        it.sent += 1;
        it.sent_early += u64::from(it.got.whole.len() < blocks);
    }

    fn transmit(&mut self, host: usize, packet: Packet) {
        self.note_sent(host, &packet.datagram);
        let to = packet.path.0 as usize;
        let what = if self.written {
            let key = self.hosts[host].node.key(packet.datagram.flow).expect("the flow is here");
            What::Datagram(written(&packet.datagram, key))
        } else {
            What::Packet(Packet { path: PathId(host as u32), ..packet })
        };
        self.send(host, to, what);
    }

    fn on_fetch(&mut self, host: usize, event: ReceiverEvent) {
        let (now, it) = (self.network.now(), &mut self.hosts[host]);
        // Polled by the loop that is running.
        match it.got.on_event(now, event) {
            Some(Duty::Start(start)) => it.node.tell_fetch(now, FETCH, start),
            Some(Duty::FindPath(bind)) => {
                let path = PathId(u32::from(bind.node.0[0]) - 1);
                it.node.tell_fetch(now, FETCH, ReceiverCommand::FlowPath { flow: bind.flow, path });
            }
            Some(Duty::Decode(block)) => self.network.after(DECODES, Decoded { at: host, block }),
            None => {}
        }
    }

    fn on_source(&mut self, host: usize, event: SourceEvent) {
        match event {
            SourceEvent::Prepare { flow, block, repair } => {
                if self.hosts[host].got.whole.contains(&block) {
                    let ready = SourceCommand::BlockReady { flow, block, repair };
                    self.hosts[host].node.tell_source(self.network.now(), ready);
                } else {
                    self.hosts[host].node.unreadable(self.network.now(), flow, Spoiled::Unreadable);
                }
            }
            SourceEvent::Opened(_)
            | SourceEvent::Closed { .. }
            | SourceEvent::Release { .. }
            | SourceEvent::FellBack { .. } => {}
        }
    }

    fn on_controller(&mut self, host: usize, control: Control) {
        match &control {
            Control::Controller(ToController::Request(request)) => {
                let legs: Vec<Leg> = self.legs.iter().filter(|leg| leg.to == host).cloned().collect();
                for leg in &legs {
                    let push = Control::Source(ToSource::Push(self.push(leg)));
                    self.send(host, leg.from, What::Control(Box::new(push)));
                }
                let of = legs.len() as u8;
                let grants = legs.iter().zip(0..).map(|(leg, index)| {
                    let (at, relays) = (vec![address(leg.from)], leg.role == FlowRole::Relay);
                    let grant = grant(leg.flow, node(leg.from), key(leg.flow), index, of);
                    FlowGrant { at, relays, ..grant }
                });
                let (number, task) = (request.request, TaskId(request.request));
                let grants = grants.collect();
                let accepted = self.object.accepted(number, task, RARELY, self.delivery, grants);
                self.send(host, host, What::Control(Box::new(accepted)));
            }
            Control::Controller(ToController::Fin { task, .. }) => {
                let control = Control::Receiver(ToReceiver::FinAck { task: *task });
                self.send(host, host, What::Control(Box::new(control)));
            }
            _ => {}
        }
        self.hosts[host].told.push(control);
    }

    fn push(&self, leg: &Leg) -> Push {
        let push =
            self.object.push(TaskId(leg.to as u64), leg.flow, key(leg.flow), node(leg.to), self.delivery);
        Push { at: vec![address(leg.to)], role: leg.role.clone(), ..push }
    }
}
