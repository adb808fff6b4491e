//! Nodes in a network without losses, and a controller that follows a script.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use headwater_machine::Packet;
use headwater_node::{Arrived, GroupProbesConfig, Node, NodeAction, Parcel, Room, To};
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::{ReceiverCommand, ReceiverEvent, ReceiverFailure, SourceCommand, SourceEvent};
use headwater_units::*;
use headwater_wire::*;

const CONTROLLER: PathId = PathId(1000);
/// The path to nowhere of those who send on a tree.
const TREE: PathId = PathId(999);
pub(crate) const FETCH: FetchId = FetchId(1);
pub(crate) const OBJECT: ObjectId = ObjectId([9; 32]);
pub(crate) const T: u16 = 1024;
const DELAY: Duration = Duration::from_micros(100);
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

/// Where a flow comes from, for whom, and as what.
#[derive(Clone)]
pub(crate) struct Leg {
    pub(crate) flow: FlowId,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) role: FlowRole,
}

enum What {
    Datagram { from: usize, to: usize, bytes: Vec<u8> },
    Packet { from: usize, to: usize, packet: Packet },
    Control { to: usize, control: Control },
    Decoded { at: usize, block: BlockIndex },
    Wake { at: usize },
}

pub(crate) struct Host {
    pub(crate) node: Machine,
    /// Symbols of blocks that are not whole, and whether the decoder has them.
    pub(crate) blocks: BTreeMap<BlockIndex, (BTreeSet<Esi>, bool)>,
    pub(crate) whole: BTreeSet<BlockIndex>,
    pub(crate) sent: u64,
    /// Of those, symbols of blocks that were not whole.
    pub(crate) sent_early: u64,
    pub(crate) done: bool,
    pub(crate) failed: Option<ReceiverFailure>,
    /// What was said of passing the object on.
    pub(crate) coming: bool,
    /// What controllers were told.
    pub(crate) told: Vec<Control>,
    wake: Option<Time>,
}

pub(crate) struct Net {
    pub(crate) hosts: Vec<Host>,
    pub(crate) now: Time,
    pub(crate) bytes: Bytes,
    /// Whether datagrams travel as bytes.
    written: bool,
    delivery: Delivery,
    pub(crate) legs: Vec<Leg>,
    agenda: BTreeMap<(Time, u64), What>,
    put_down: u64,
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

/// What a symbol's bytes are here.
fn payload(symbol: SymbolId) -> Vec<u8> {
    let name = [symbol.block.0.to_be_bytes(), symbol.esi.0.to_be_bytes()].concat();
    name.into_iter().cycle().take(usize::from(T)).collect()
}

fn payload_of(datagram: &Datagram) -> usize {
    if matches!(datagram.body, Body::Symbol(_)) { usize::from(T) } else { 0 }
}

/// A datagram as it travels.
pub(crate) fn written(datagram: &Datagram, key: &HeaderKey) -> Vec<u8> {
    let symbol_size = payload_of(datagram) as u16;
    let mut bytes = vec![0; datagram.len(symbol_size)];
    let room = emit(datagram, symbol_size, key, &mut bytes);
    if let Body::Symbol(header) = &datagram.body {
        room.copy_from_slice(&payload(header.symbol));
    }
    bytes
}

pub(crate) fn machine(seed: u8) -> Machine {
    let rate = BitRate::new(1_000_000_000);
    let pull = PullConfig { rate, packet: Bytes::new(1500), catch_up: Duration::ZERO };
    let source = Source::new(SourceConfig::default(), [seed; 32]);
    Node::new(source, Receivers::new(HostReceiverConfig { pull }), GroupProbesConfig::default())
}

impl Net {
    /// The first host holds the object.
    pub(crate) fn new(hosts: usize, bytes: Bytes, written: bool, delivery: Delivery, legs: Vec<Leg>) -> Self {
        let host = |seed| Host {
            node: machine(seed as u8),
            blocks: BTreeMap::new(),
            whole: BTreeSet::new(),
            sent: 0,
            sent_early: 0,
            done: false,
            failed: None,
            coming: false,
            told: Vec::new(),
            wake: None,
        };
        let hosts = (0..hosts).map(host).collect();
        let (agenda, put_down, now) = (BTreeMap::new(), 0, Time::ZERO);
        let mut net = Net { hosts, now, bytes, written, delivery, legs, agenda, put_down };
        let blocks = net.geometry().layout().block_count();
        net.hosts[0].whole.extend((0..blocks).map(BlockIndex));
        net.tell_source(0, SourceCommand::Hold { object: OBJECT, bytes });
        net
    }

    fn geometry(&self) -> Geometry {
        Geometry::new(self.bytes, T).unwrap()
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
        self.hosts[host].node.tell_fetch(self.now, FETCH, command);
        self.drain(host, Room::Free, &[]);
    }

    pub(crate) fn tell_source(&mut self, host: usize, command: SourceCommand) {
        self.hosts[host].node.tell_source(self.now, command);
        self.drain(host, Room::Free, &[]);
    }

    pub(crate) fn order(&mut self, host: usize, control: Control) {
        self.hosts[host].node.on_control(self.now, CONTROLLER, control);
        self.drain(host, Room::Free, &[]);
    }

    fn at(&mut self, time: Time, what: What) {
        self.put_down += 1;
        self.agenda.insert((time, self.put_down), what);
    }

    /// Goes on until this is true.
    /// A datagram of a tree comes to a host from another one now; what it hands on.
    pub(crate) fn hand_on(&mut self, host: usize, from: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let arrived = Arrived { bytes, from: address(from), ecn: Ecn::NotEct, trimmed: false };
        let parcel =
            |datagram: &Datagram| Passed { datagram: datagram.clone(), bytes: Some(Arc::from(bytes)) };
        let node = &mut self.hosts[host].node;
        node.on_datagram(self.now, arrived, || PathId(0), parcel);
        std::iter::from_fn(|| node.poll(self.now, Room::Free)).find_map(|action| match action {
            NodeAction::Forward { parcel, .. } => Some(parcel.bytes.expect("it was written").to_vec()),
            _ => None,
        })
    }

    pub(crate) fn run_until(&mut self, is_enough: impl Fn(&Net) -> bool) {
        while !is_enough(self) {
            let ((time, _), what) = self.agenda.pop_first().expect("something will still happen");
            assert!(time < Time::ZERO + Duration::from_secs(60), "it takes too long");
            self.now = time;
            self.happen(what);
        }
    }

    fn happen(&mut self, what: What) {
        let now = self.now;
        match what {
            What::Control { to, control } => self.order(to, control),
            What::Decoded { at, block } => {
                self.hosts[at].blocks.remove(&block);
                self.hosts[at].whole.insert(block);
                self.tell_fetch(at, ReceiverCommand::BlockDecoded { block });
            }
            What::Wake { at } => {
                self.hosts[at].wake = None;
                self.drain(at, Room::Free, &[]);
            }
            What::Datagram { from, to, bytes } => {
                let arrived =
                    Arrived { bytes: &bytes, from: address(from), ecn: Ecn::NotEct, trimmed: false };
                let parcel = |datagram: &Datagram| Passed {
                    datagram: datagram.clone(),
                    bytes: Some(bytes.as_slice().into()),
                };
                let node = &mut self.hosts[to].node;
                if let Some(payload) = node.on_datagram(now, arrived, || PathId(from as u32), parcel) {
                    self.drain(to, Room::Gathering, payload);
                }
                self.drain(to, Room::Free, &[]);
            }
            What::Packet { from, to, packet } => {
                let parcel = |datagram: &Datagram| Passed { datagram: datagram.clone(), bytes: None };
                let bytes = Bytes::new(packet.datagram.len(T) as u64);
                self.hosts[to].node.on_packet(now, address(from), packet, bytes, parcel);
                self.drain(to, Room::Free, &[]);
            }
        }
    }

    /// Has a node say all that it has to say.
    pub(crate) fn drain(&mut self, host: usize, room: Room, payload: &[u8]) {
        while let Some(action) = self.hosts[host].node.poll(self.now, room) {
            self.act(host, action, payload);
        }
        if let Some(at) = self.hosts[host].node.wake(room)
            && self.hosts[host].wake.is_none_or(|before| at < before)
        {
            self.hosts[host].wake = Some(at);
            self.at(at.max(self.now), What::Wake { at: host });
        }
    }

    fn act(&mut self, host: usize, action: NodeAction<Passed, SocketAddr>, payload_at_hand: &[u8]) {
        let now = self.now;
        match action {
            NodeAction::Transmit { packet, .. } => self.transmit(host, packet),
            NodeAction::Tell { control, .. } => self.on_controller(host, *control),
            NodeAction::Keep { fetch, symbol, parcel, .. } => {
                let it = &mut self.hosts[host];
                if self.written {
                    let bytes = parcel.and_then(|parcel| parcel.bytes);
                    let key = bytes.as_ref().map(|_| HeaderKey::new(&key(self.legs[0].flow)));
                    let parsed =
                        bytes.as_ref().zip(key.as_ref()).map(|(bytes, key)| parse(bytes, key).unwrap());
                    let brought = parsed.as_ref().map_or(payload_at_hand, |parsed| parsed.payload);
                    assert!(brought == payload(symbol), "the payload of another symbol");
                }
                let (symbols, decoding) = it.blocks.entry(symbol.block).or_default();
                assert!(!*decoding && symbols.insert(symbol.esi), "{symbol:?} is kept twice, or too late");
                it.node.kept(now, fetch, symbol);
            }
            NodeAction::Fetch(_, event) => self.on_fetch(host, event),
            NodeAction::Source(event) => self.on_source(host, event),
            NodeAction::Coming { .. } => self.hosts[host].coming = true,
            NodeAction::Gone { .. } => self.hosts[host].coming = false,
            NodeAction::Spoiled { .. } => _ = self.hosts[host].whole.pop_first(),
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
                    Some(bytes) => What::Datagram { from: host, to, bytes: bytes.to_vec() },
                    None => {
                        let packet = Packet { path: PathId(0), ecn: Ecn::NotEct, datagram: parcel.datagram };
                        What::Packet { from: host, to, packet }
                    }
                };
                self.at(now + DELAY, what);
            }
            NodeAction::Send(alone) => {
                let To::Node(to) = alone.to else { panic!("there are no groups here") };
                let (class, flow, body) = (Class::Control, alone.flow, alone.body);
                let bytes = written(&Datagram { class, key_epoch: 0, flow, body }, &alone.key);
                self.at(now + DELAY, What::Datagram { from: host, to: host_at(to), bytes });
            }
            NodeAction::Signal { .. } | NodeAction::Heard { .. } => panic!("nobody signals or probes here"),
        }
    }

    /// What is sent is here.
    fn note_sent(&mut self, host: usize, datagram: &Datagram) {
        let Body::Symbol(SymbolHeader { symbol, .. }) = datagram.body else { return };
        let it = &mut self.hosts[host];
        it.sent += 1;
        if !it.whole.contains(&symbol.block) {
            let (symbols, decoding) = &it.blocks[&symbol.block];
            assert!(!decoding && symbols.contains(&symbol.esi), "host {host} has no {symbol:?}");
            it.sent_early += 1;
        }
    }

    fn transmit(&mut self, host: usize, packet: Packet) {
        self.note_sent(host, &packet.datagram);
        let to = packet.path.0 as usize;
        let what = if self.written {
            let key = self.hosts[host].node.key(packet.datagram.flow).expect("the flow is here");
            What::Datagram { from: host, to, bytes: written(&packet.datagram, key) }
        } else {
            What::Packet { from: host, to, packet: Packet { path: PathId(host as u32), ..packet } }
        };
        self.at(self.now + DELAY, what);
    }

    fn on_fetch(&mut self, host: usize, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Accepted { .. } => {
                let wanted = 0..self.geometry().layout().block_count();
                // Polled by the loop that is running.
                let start = ReceiverCommand::Start { wanted, have: Vec::new() };
                self.hosts[host].node.tell_fetch(self.now, FETCH, start);
            }
            ReceiverEvent::Bind(bind) => {
                let (flow, path) = (bind.flow, PathId(u32::from(bind.node.0[0]) - 1));
                let found = ReceiverCommand::FlowPath { flow, path };
                self.hosts[host].node.tell_fetch(self.now, FETCH, found);
            }
            ReceiverEvent::Decode { block } => {
                self.hosts[host].blocks.get_mut(&block).expect("symbols of it came").1 = true;
                self.at(self.now + DECODES, What::Decoded { at: host, block });
            }
            ReceiverEvent::Discard { block } => drop(self.hosts[host].blocks.remove(&block)),
            ReceiverEvent::Done => self.hosts[host].done = true,
            ReceiverEvent::Failed(failure) => self.hosts[host].failed = Some(failure),
            ReceiverEvent::Ended => self.hosts[host].blocks.clear(),
            _ => {}
        }
    }

    fn on_source(&mut self, host: usize, event: SourceEvent) {
        match event {
            SourceEvent::Prepare { flow, block, repair } => {
                if self.hosts[host].whole.contains(&block) {
                    let ready = SourceCommand::BlockReady { flow, block, repair };
                    self.hosts[host].node.tell_source(self.now, ready);
                } else {
                    self.hosts[host].node.unreadable(self.now, flow, Spoiled::Unreadable);
                }
            }
            SourceEvent::Opened(_) | SourceEvent::Closed { .. } | SourceEvent::Release { .. } => {}
            SourceEvent::Wanted { .. } => panic!("the node's receivers are told"),
        }
    }

    fn on_controller(&mut self, host: usize, control: Control) {
        match &control {
            Control::Controller(ToController::Request(request)) => {
                let legs: Vec<Leg> = self.legs.iter().filter(|leg| leg.to == host).cloned().collect();
                for leg in &legs {
                    let push = Control::Source(ToSource::Push(self.push(leg)));
                    self.at(self.now + DELAY, What::Control { to: leg.from, control: push });
                }
                let grants = legs.iter().zip(0..).map(|(leg, index)| FlowGrant {
                    flow: leg.flow,
                    node: node(leg.from),
                    at: vec![address(leg.from)],
                    key: key(leg.flow),
                    index,
                    of: legs.len() as u8,
                    group: None,
                    relays: leg.role == FlowRole::Relay,
                    passed_on: leg.role != FlowRole::Relay,
                });
                let accepted = Control::Receiver(ToReceiver::Accepted {
                    request: request.request,
                    task: TaskId(request.request),
                    object: OBJECT,
                    bytes: self.bytes,
                    symbol_size: T,
                    feedback_every: Duration::from_secs(1000),
                    version: 0,
                    flows: grants.collect(),
                    delivery: self.delivery,
                });
                self.at(self.now + DELAY * 2, What::Control { to: host, control: accepted });
            }
            Control::Controller(ToController::Fin { task, .. }) => {
                let control = Control::Receiver(ToReceiver::FinAck { task: *task });
                self.at(self.now + DELAY, What::Control { to: host, control });
            }
            _ => {}
        }
        self.hosts[host].told.push(control);
    }

    fn push(&self, leg: &Leg) -> Push {
        Push {
            task: TaskId(leg.to as u64),
            flow: leg.flow,
            object: OBJECT,
            bytes: self.bytes,
            symbol_size: T,
            key: key(leg.flow),
            theta: Theta::ONE,
            class: Class::Bulk,
            receiver: node(leg.to),
            delivery: self.delivery,
            index: 0,
            of: 1,
            at: vec![address(leg.to)],
            start: None,
            role: leg.role.clone(),
        }
    }
}
