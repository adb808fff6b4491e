//! A source, a plain receiver and a network between them, driven by hand: enough to see every packet.

use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::{Endpoint, Packet};
use headwater_testkit as testkit;
use headwater_testkit::messages::Object;
use headwater_testkit::{Fate, Line, Link, Network, Preparation, Simulation};
use headwater_transport::source::{FlowStats, Source, SourceConfig};
use headwater_transport::{SourceCommand, SourceEvent};
use headwater_units::{
    BlockIndex, Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId, PacketNumber, PathId, SymbolId, Symbols,
    TaskId, Theta, Time,
};
use headwater_wire::{
    Ack, AckRange, Assign, Assignment, Body, Class, Control, Datagram, Delivery, Ecn, FinReason,
    MAX_ACK_RANGES, MAX_OWED, Owed, Push, SymbolHeader, ToSource,
};

pub(crate) const CONTROLLER: PathId = PathId(1000);
pub(crate) const OBJECT: ObjectId = ObjectId([7; 32]);
/// K = 64 symbols of 4 KiB in a block of 256 KiB.
pub(crate) const T: u16 = 4096;
pub(crate) const K: u32 = 64;
const THERE: usize = 0;
const BACK: usize = 1;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How the network treats packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// One way.
    pub(crate) delay: Duration,
    /// More, at random, so that packets overtake each other.
    pub(crate) jitter: Duration,
    pub(crate) loss: f64,
    pub(crate) ack_loss: f64,
    pub(crate) duplicates: f64,
    /// Packets a second, and how many in the queue before arrivals are marked (CE) and dropped.
    pub(crate) bottleneck: Option<(u64, usize, usize)>,
    /// The disk answers after this.
    pub(crate) disk: Duration,
}

impl Default for Weather {
    fn default() -> Self {
        Weather {
            delay: ms(1),
            jitter: Duration::ZERO,
            loss: 0.0,
            ack_loss: 0.0,
            duplicates: 0.0,
            bottleneck: None,
            disk: Duration::ZERO,
        }
    }
}

/// One flow's receiving end.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) path: PathId,
    pub(crate) assign: Assign,
    nonce: Option<u64>,
    /// Packet numbers that came, as runs, ascending; only the newest ones.
    runs: Vec<(u64, u64)>,
    pub(crate) symbols: BTreeMap<SymbolId, u32>,
    pub(crate) arrivals: u64,
    ecn: [u32; 3],
    unacked: u32,
    largest_at: Time,
    touched: BTreeSet<u32>,
    /// Symbols of a block that decode it; `None`: nothing is ever decoded.
    pub(crate) decodes_with: Option<u32>,
    pub(crate) residue_of: u32,
    pub(crate) first_undecoded: u32,
    pub(crate) silent: bool,
    pub(crate) headers: Vec<(Time, SymbolHeader)>,
    pub(crate) challenges: u32,
    pub(crate) fin_acks: u32,
}

impl Receiver {
    pub(crate) fn new(path: PathId, assignment: Assignment) -> Self {
        let assign = Assign {
            version: 1,
            nonce: None,
            receive_window: 100_000,
            first_undecoded: BlockIndex(0),
            assignment,
            padded: false,
        };
        Receiver {
            path,
            assign,
            nonce: None,
            runs: Vec::new(),
            symbols: BTreeMap::new(),
            arrivals: 0,
            ecn: [0; 3],
            unacked: 0,
            largest_at: Time::ZERO,
            touched: BTreeSet::new(),
            decodes_with: None,
            residue_of: 1,
            first_undecoded: 0,
            silent: false,
            headers: Vec::new(),
            challenges: 0,
            fin_acks: 0,
        }
    }

    fn have(&self, block: u32) -> u32 {
        let of = |esi| SymbolId { block: BlockIndex(block), esi: headwater_units::Esi(esi) };
        self.symbols.range(of(0)..=of(u32::MAX)).count() as u32
    }

    /// Takes a symbol; true if an ACK should go out now.
    fn on_symbol(&mut self, now: Time, ecn: Ecn, header: SymbolHeader) -> bool {
        self.arrivals += 1;
        let largest = self.runs.last().map(|r| r.1);
        let number = header.expand(largest.map(PacketNumber)).0;
        self.ecn[match ecn {
            Ecn::Ect0 => 0,
            Ecn::Ce => 1,
            _ => 2,
        }] += 1;
        if largest.is_none_or(|l| l < number) {
            self.largest_at = now;
        }
        self.insert(number);
        *self.symbols.entry(header.symbol).or_default() += 1;
        self.touched.insert(header.symbol.block.0);
        if let Some(enough) = self.decodes_with {
            while self.have(self.first_undecoded) >= enough {
                self.first_undecoded += 1;
            }
        }
        self.unacked += 1;
        header.ack_now || self.unacked >= u32::from(header.ack_interval)
    }

    fn insert(&mut self, number: u64) {
        let i = self.runs.partition_point(|r| r.1 < number);
        let below = i.checked_sub(1).filter(|b| self.runs[*b].1 + 1 == number);
        let above = Some(i).filter(|a| self.runs.get(*a).is_some_and(|r| r.0 <= number + 1));
        match (below, above) {
            (Some(b), Some(a)) if self.runs[a].0 == number + 1 => {
                self.runs[b].1 = self.runs[a].1;
                self.runs.remove(a);
            }
            (_, Some(a)) => self.runs[a].0 = self.runs[a].0.min(number),
            (Some(b), None) => self.runs[b].1 = number,
            (None, None) => self.runs.insert(i, (number, number)),
        }
        if self.runs.len() > 500 {
            self.runs.remove(0);
        }
    }

    /// Its assignment as it is now, and the path by which it is sent.
    fn assignment(&mut self) -> Option<(PathId, Body)> {
        self.assign.nonce = self.nonce;
        self.assign.first_undecoded = BlockIndex(self.first_undecoded);
        let body = Body::Assign(Box::new(self.assign.clone()));
        (!self.silent).then_some((self.path, body))
    }

    pub(crate) fn ack(&mut self, now: Time) -> Option<Ack> {
        let largest = self.runs.last()?.1;
        // A gap or a run that its field does not hold ends the list: what lies below was acknowledged long ago.
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &(first, last) in self.runs.iter().rev().take(1 + MAX_ACK_RANGES) {
            if runs.last().is_some_and(|above| above.0 - last > 65_000) {
                break;
            }
            runs.push((first.max(last.saturating_sub(65_000)), last));
            if last - first > 65_000 {
                break;
            }
        }
        let ranges = runs
            .windows(2)
            .map(|w| AckRange { gap: (w[0].0 - w[1].1 - 1) as u16, run: (w[1].1 - w[1].0 + 1) as u16 })
            .collect();
        let owed = std::mem::take(&mut self.touched)
            .into_iter()
            .take(MAX_OWED)
            .filter_map(|block| {
                let enough = self.decodes_with?;
                let missing = if block < self.first_undecoded {
                    0
                } else {
                    enough.saturating_sub(self.have(block)).div_ceil(self.residue_of)
                };
                Some(Owed { block: BlockIndex(block), symbols: Symbols::new(u64::from(missing)) })
            })
            .collect();
        self.unacked = 0;
        Some(Ack {
            largest: PacketNumber(largest),
            delay: now.since(self.largest_at),
            first_run: (runs[0].1 - runs[0].0 + 1) as u16,
            ranges,
            ect0: self.ecn[0],
            ce: self.ecn[1],
            not_ect: self.ecn[2],
            first_undecoded: BlockIndex(self.first_undecoded),
            owed,
        })
    }
}

/// Action of the receivers and the disk that happens later.
#[derive(Debug)]
pub(crate) enum Later {
    Ready(SourceCommand),
    Ack(FlowId),
    Assign(FlowId),
}

/// The source, its receivers and what is on its way between them.
pub(crate) struct Net {
    network: Network<Packet, Later>,
    pub(crate) source: Source,
    disk: Duration,
    preparation: Preparation,
    pub(crate) receivers: BTreeMap<FlowId, Receiver>,
    pub(crate) events: Vec<(Time, SourceEvent)>,
    pub(crate) controls: Vec<(Time, PathId, Control)>,
    pub(crate) sent: u64,
    /// Symbols with these packet numbers are dropped on their way.
    pub(crate) drop: BTreeSet<u64>,
    pub(crate) assign_every: Duration,
    /// Number of challenges to lose on their way.
    pub(crate) drop_challenges: u32,
}

fn object(blocks: u64) -> Object {
    Object { id: OBJECT, bytes: Bytes::kib(256) * blocks, symbol_size: T }
}

pub(crate) fn push(flow: u64, theta: f64, blocks: u64) -> Push {
    let (receiver, key) = (NodeId([flow as u8; 32]), FlowKey([1; 32]));
    let push = object(blocks).push(TaskId(flow), FlowId(flow), key, receiver, Delivery::Push);
    Push { theta: Theta::new(theta), ..push }
}

/// A bottleneck of `rate` packets a second, with the queue lengths from which arrivals are marked and dropped.
pub(crate) fn bottleneck(link: Link<Packet>, (rate, mark_from, room): (u64, usize, usize)) -> Link<Packet> {
    Link { line: Line::Each(Duration::from_nanos(1_000_000_000 / rate)), mark_from, room, ..link }
}

impl Weather {
    /// There and back. Of what goes there only symbols are lost or doubled, and of what comes back only ACKs.
    fn links(&self, seed: u64) -> Vec<Link<Packet>> {
        let late = if self.jitter > Duration::ZERO { 1.0 } else { 0.0 };
        let link = |loss, twice, seed, suffers: fn(&Body) -> bool| {
            let weather = testkit::Weather { loss, twice, late, marked: 0.0, by: self.jitter };
            let mut faults = weather.faults(seed);
            Link::new(self.delay).with_faults(Box::new(move |nth, packet: &mut Packet| {
                match faults(nth, packet) {
                    Fate::Lost | Fate::Twice(_) if !suffers(&packet.datagram.body) => Fate::Arrives,
                    fate => fate,
                }
            }))
        };
        let there = link(self.loss, self.duplicates, seed, |body| matches!(body, Body::Symbol(_)));
        let there = self.bottleneck.into_iter().fold(there, bottleneck);
        vec![there, link(self.ack_loss, 0.0, !seed, |body| matches!(body, Body::Ack(_)))]
    }
}

fn datagram(path: PathId, flow: FlowId, body: Body) -> Packet {
    Packet { path, ecn: Ecn::NotEct, datagram: Datagram { class: Class::Control, key_epoch: 0, flow, body } }
}

impl Net {
    pub(crate) fn new(config: SourceConfig, weather: Weather, seed: u64, blocks: u64) -> Self {
        let mut seed_bytes = [0; 32];
        seed_bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let mut net = Net {
            network: Network::new(weather.links(seed)),
            source: Source::new(config, seed_bytes),
            disk: weather.disk,
            preparation: Preparation::default(),
            receivers: BTreeMap::new(),
            events: Vec::new(),
            controls: Vec::new(),
            sent: 0,
            drop: BTreeSet::new(),
            assign_every: ms(50),
            drop_challenges: 0,
        };
        net.command(SourceCommand::Hold { object: OBJECT, bytes: object(blocks).bytes });
        net
    }

    /// One flow of everything, listed.
    pub(crate) fn with_flow(config: SourceConfig, weather: Weather, seed: u64, blocks: u16) -> Self {
        let mut net = Net::new(config, weather, seed, u64::from(blocks));
        let work = headwater_wire::Work::Blocks { first: BlockIndex(0), count: blocks, attempt: 0 };
        net.start(push(1, 1.0, u64::from(blocks)), Receiver::new(PathId(1), Assignment::Listed(vec![work])));
        net
    }

    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    /// The link to the receivers.
    pub(crate) fn there(&mut self) -> &mut Link<Packet> {
        &mut self.network.links[THERE]
    }

    pub(crate) fn start(&mut self, push: Push, receiver: Receiver) {
        let flow = push.flow;
        self.receivers.insert(flow, receiver);
        self.control(ToSource::Push(push));
        self.network.after(Duration::ZERO, Later::Assign(flow));
    }

    pub(crate) fn control(&mut self, control: ToSource) {
        self.hear(0, Packet::control(CONTROLLER, control));
    }

    /// Hands a datagram to the source at once.
    pub(crate) fn datagram(&mut self, path: PathId, flow: FlowId, body: Body) {
        self.hear(0, datagram(path, flow, body));
    }

    pub(crate) fn command(&mut self, command: SourceCommand) {
        self.tell(0, command);
    }

    pub(crate) fn receiver(&mut self) -> &mut Receiver {
        self.receivers.get_mut(&FlowId(1)).unwrap()
    }

    pub(crate) fn flow(&self) -> FlowStats {
        self.source.flow(FlowId(1)).unwrap()
    }

    /// The next assignment of flow 1, delivered at once.
    pub(crate) fn assign(&mut self, change: impl FnOnce(&mut Assign)) {
        let receiver = self.receiver();
        receiver.assign.version = receiver.assign.version.wrapping_add(1);
        change(&mut receiver.assign);
        if let Some((path, body)) = receiver.assignment() {
            self.datagram(path, FlowId(1), body);
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let until = self.now() + span;
        self.run(until, |_| false);
    }

    /// Runs until `done` or the time; true if `done`.
    pub(crate) fn run(&mut self, until: Time, done: impl Fn(&Net) -> bool) -> bool {
        while !done(self) {
            if !self.step(until) {
                self.network.wait_until(until);
                return false;
            }
        }
        true
    }

    fn send_ack(&mut self, flow: FlowId) {
        let now = self.now();
        let receiver = self.receivers.get_mut(&flow).expect("a known flow");
        let (path, silent) = (receiver.path, receiver.silent);
        if let Some(ack) = receiver.ack(now).filter(|_| !silent) {
            self.network.send(BACK, Bytes::ZERO, datagram(path, flow, Body::Ack(Box::new(ack))));
        }
    }

    fn send_assign(&mut self, flow: FlowId) {
        if let Some((path, body)) = self.receivers.get_mut(&flow).and_then(Receiver::assignment) {
            self.network.send(BACK, Bytes::ZERO, datagram(path, flow, body));
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let (now, flow) = (self.now(), packet.datagram.flow);
        let Some(receiver) = self.receivers.get_mut(&flow) else { return };
        match packet.datagram.body {
            Body::Symbol(header) => {
                receiver.headers.push((now, header));
                let first = receiver.unacked == 0;
                if receiver.on_symbol(now, packet.ecn, header) {
                    self.send_ack(flow);
                } else if first {
                    self.network.after(ms(5), Later::Ack(flow));
                }
            }
            Body::Challenge { nonce } => {
                receiver.challenges += 1;
                receiver.nonce = Some(nonce);
                self.send_assign(flow);
            }
            Body::FinAck => receiver.fin_acks += 1,
            other => panic!("a source does not send {other:?}"),
        }
    }

    /// FIN from flow 1's receiver.
    pub(crate) fn fin(&mut self) {
        let path = self.receiver().path;
        self.datagram(path, FlowId(1), Body::Fin(FinReason::Done));
    }
}

impl Simulation for Net {
    type Command = SourceCommand;
    type Event = SourceEvent;
    type Carried = Packet;
    type Act = Later;

    fn network(&mut self) -> &mut Network<Packet, Later> {
        &mut self.network
    }

    fn machine(&mut self, _: usize) -> impl Endpoint<Command = SourceCommand, Event = SourceEvent> {
        &mut self.source
    }

    fn transmit(&mut self, _: usize, packet: Packet) {
        self.preparation.sends(&packet.datagram);
        match &packet.datagram.body {
            Body::Control(control) => {
                return self.controls.push((self.now(), packet.path, (**control).clone()));
            }
            Body::Symbol(header) => {
                self.sent += 1;
                assert_eq!(packet.ecn, Ecn::Ect0);
                if self.drop.remove(&header.number.0) {
                    return;
                }
            }
            Body::Challenge { .. } if self.drop_challenges > 0 => {
                self.drop_challenges -= 1;
                return;
            }
            _ => {}
        }
        self.network.send(THERE, Bytes::ZERO, packet);
    }

    fn on_event(&mut self, _: usize, event: SourceEvent) {
        if let Some(ready) = self.preparation.on_event(&event) {
            self.network.after(self.disk, Later::Ready(ready));
        }
        self.events.push((self.now(), event));
    }

    fn arrive(&mut self, link: usize, packet: Packet) {
        match link {
            THERE => self.deliver(packet),
            _ => self.hear(0, packet),
        }
    }

    fn act(&mut self, act: Later) {
        match act {
            Later::Ready(ready) => {
                self.preparation.ready(&ready);
                self.command(ready);
            }
            Later::Ack(flow) => {
                if self.receivers.get(&flow).is_some_and(|receiver| receiver.unacked > 0) {
                    self.send_ack(flow);
                }
            }
            Later::Assign(flow) => {
                self.send_assign(flow);
                self.network.after(self.assign_every, Later::Assign(flow));
            }
        }
    }
}
