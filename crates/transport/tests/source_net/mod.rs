//! A source, a plain receiver and a network between them, driven by hand: enough to see every packet.

use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::source::{FlowStats, Source, SourceConfig};
use headwater_transport::{SourceCommand, SourceEvent};
use headwater_units::{
    BlockIndex, Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId, PacketNumber, PathId, SymbolId, Symbols,
    TaskId, Theta, Time,
};
use headwater_wire::{
    Ack, AckRange, Assign, Assignment, Body, Class, Control, Datagram, Delivery, Ecn, FinReason, FlowRole,
    MAX_ACK_RANGES, MAX_OWED, Owed, Push, SymbolHeader, ToSource,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

pub(crate) const CONTROLLER: PathId = PathId(1000);
pub(crate) const OBJECT: ObjectId = ObjectId([7; 32]);
/// K = 64 symbols of 4 KiB in a block of 256 KiB.
pub(crate) const T: u16 = 4096;
pub(crate) const K: u32 = 64;

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
    arrived_at: Time,
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
            arrived_at: Time::ZERO,
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
        if self.unacked == 0 {
            self.arrived_at = now;
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

#[derive(Debug)]
enum What {
    ToSource(Input<SourceCommand>),
    ToReceiver(FlowId, Packet),
    Ready(FlowId, BlockIndex, bool),
    AckTimer(FlowId),
    Assign(FlowId),
    /// The bottleneck sends its first packet.
    Serve,
}

/// The source, its receivers and what is on its way between them.
pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) source: Source,
    pub(crate) weather: Weather,
    pub(crate) receivers: BTreeMap<FlowId, Receiver>,
    rng: ChaCha12Rng,
    agenda: BTreeMap<(Time, u64), What>,
    seq: u64,
    queue: std::collections::VecDeque<(FlowId, Packet)>,
    wake: Option<Time>,
    pub(crate) events: Vec<(Time, SourceEvent)>,
    pub(crate) controls: Vec<(Time, PathId, Control)>,
    pub(crate) sent: u64,
    /// Symbols with these packet numbers are dropped on their way.
    pub(crate) drop: BTreeSet<u64>,
    pub(crate) assign_every: Duration,
    /// So many challenges are lost on their way.
    pub(crate) drop_challenges: u32,
    pub(crate) log: Vec<String>,
    pub(crate) logging: bool,
}

pub(crate) fn push(flow: u64, theta: f64, blocks: u64) -> Push {
    Push {
        task: TaskId(flow),
        flow: FlowId(flow),
        object: OBJECT,
        bytes: Bytes::kib(256) * blocks,
        symbol_size: T,
        key: FlowKey([1; 32]),
        theta: Theta::new(theta),
        class: Class::Bulk,
        receiver: NodeId([flow as u8; 32]),
        delivery: Delivery::Push,
        index: 0,
        of: 1,
        at: Vec::new(),
        start: None,
        role: FlowRole::Single,
    }
}

impl Net {
    pub(crate) fn new(config: SourceConfig, weather: Weather, seed: u64, blocks: u64) -> Self {
        let mut seed_bytes = [0; 32];
        seed_bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let mut net = Net {
            now: Time::ZERO,
            source: Source::new(config, seed_bytes),
            weather,
            receivers: BTreeMap::new(),
            rng: ChaCha12Rng::from_seed(seed_bytes),
            agenda: BTreeMap::new(),
            seq: 0,
            queue: Default::default(),
            wake: None,
            events: Vec::new(),
            controls: Vec::new(),
            sent: 0,
            drop: BTreeSet::new(),
            assign_every: ms(50),
            drop_challenges: 0,
            log: Vec::new(),
            logging: false,
        };
        let bytes = Bytes::kib(256) * blocks;
        net.command(SourceCommand::Hold { object: OBJECT, bytes });
        net
    }

    /// One flow of everything, listed.
    pub(crate) fn with_flow(config: SourceConfig, weather: Weather, seed: u64, blocks: u16) -> Self {
        let mut net = Net::new(config, weather, seed, u64::from(blocks));
        let work = headwater_wire::Work::Blocks { first: BlockIndex(0), count: blocks, attempt: 0 };
        net.start(push(1, 1.0, u64::from(blocks)), Receiver::new(PathId(1), Assignment::Listed(vec![work])));
        net
    }

    pub(crate) fn start(&mut self, push: Push, receiver: Receiver) {
        let flow = push.flow;
        self.receivers.insert(flow, receiver);
        self.control(ToSource::Push(push));
        self.schedule(Duration::ZERO, What::Assign(flow));
    }

    pub(crate) fn control(&mut self, control: ToSource) {
        let body = Body::Control(Box::new(control.into()));
        self.datagram(CONTROLLER, FlowId(0), body);
    }

    /// Hands a datagram to the source at once.
    pub(crate) fn datagram(&mut self, path: PathId, flow: FlowId, body: Body) {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
        self.handle(Input::Packet(Packet { path, ecn: Ecn::NotEct, datagram }));
    }

    pub(crate) fn command(&mut self, command: SourceCommand) {
        self.handle(Input::Command(command));
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
        self.send_assign(FlowId(1), Duration::ZERO);
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        self.run(until, |_| false);
    }

    /// Runs until `done` or the time; true if `done`.
    pub(crate) fn run(&mut self, until: Time, done: impl Fn(&Net) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            let next = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let next = [next, self.wake].into_iter().flatten().min();
            match next {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => {
                    self.now = until;
                    return false;
                }
            }
            if self.wake.is_some_and(|w| w <= self.now) {
                self.drain();
                continue;
            }
            let (_, what) = self.agenda.pop_first().expect("it was due");
            self.act(what);
        }
    }

    fn act(&mut self, what: What) {
        match what {
            What::ToSource(input) => self.handle(input),
            What::Ready(flow, block, repair) => {
                self.command(SourceCommand::BlockReady { flow, block, repair });
            }
            What::ToReceiver(flow, packet) => self.deliver(flow, packet),
            What::AckTimer(flow) => {
                if self.receivers.get(&flow).is_some_and(|r| r.unacked > 0) {
                    self.send_ack(flow);
                }
            }
            What::Assign(flow) => {
                self.send_assign(flow, self.weather.delay);
                self.schedule(self.assign_every, What::Assign(flow));
            }
            What::Serve => {
                let (rate, _, _) = self.weather.bottleneck.expect("only a bottleneck serves");
                let (flow, packet) = self.queue.pop_front().expect("it is busy");
                if !self.queue.is_empty() {
                    self.schedule(Duration::from_nanos(1_000_000_000 / rate), What::Serve);
                }
                self.schedule(self.weather.delay, What::ToReceiver(flow, packet));
            }
        }
    }

    fn deliver(&mut self, flow: FlowId, packet: Packet) {
        let now = self.now;
        let Some(receiver) = self.receivers.get_mut(&flow) else { return };
        match packet.datagram.body {
            Body::Symbol(header) => {
                receiver.headers.push((now, header));
                let first = receiver.unacked == 0;
                if receiver.on_symbol(now, packet.ecn, header) {
                    self.send_ack(flow);
                } else if first {
                    self.schedule(ms(5), What::AckTimer(flow));
                }
            }
            Body::Challenge { nonce } => {
                receiver.challenges += 1;
                receiver.nonce = Some(nonce);
                self.send_assign(flow, self.weather.delay);
            }
            Body::FinAck => receiver.fin_acks += 1,
            other => panic!("a source does not send {other:?}"),
        }
    }

    pub(crate) fn send_ack(&mut self, flow: FlowId) {
        let now = self.now;
        let lost = self.rng.random_bool(self.weather.ack_loss);
        let receiver = self.receivers.get_mut(&flow).expect("a known flow");
        let (path, silent) = (receiver.path, receiver.silent);
        if let Some(ack) = receiver.ack(now)
            && !lost
            && !silent
        {
            self.back(path, flow, Body::Ack(Box::new(ack)), self.weather.delay);
        }
    }

    fn send_assign(&mut self, flow: FlowId, delay: Duration) {
        let Some(receiver) = self.receivers.get_mut(&flow) else { return };
        if receiver.silent {
            return;
        }
        receiver.assign.nonce = receiver.nonce;
        receiver.assign.first_undecoded = BlockIndex(receiver.first_undecoded);
        let (path, body) = (receiver.path, Body::Assign(Box::new(receiver.assign.clone())));
        self.back(path, flow, body, delay);
    }

    fn back(&mut self, path: PathId, flow: FlowId, body: Body, delay: Duration) {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
        let input = Input::Packet(Packet { path, ecn: Ecn::NotEct, datagram });
        let jitter = self.jitter();
        self.schedule(delay + jitter, What::ToSource(input));
    }

    fn jitter(&mut self) -> Duration {
        match self.weather.jitter.as_nanos() {
            0 => Duration::ZERO,
            n => Duration::from_nanos(self.rng.random_range(0..n)),
        }
    }

    fn schedule(&mut self, after: Duration, what: What) {
        self.seq += 1;
        self.agenda.insert((self.now + after, self.seq), what);
    }

    fn handle(&mut self, input: Input<SourceCommand>) {
        if self.logging {
            self.log.push(format!("{:?} < {input:?}", self.now));
        }
        self.source.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            let output = self.source.poll(self.now);
            if self.logging {
                self.log.push(format!("{:?} > {output:?}", self.now));
            }
            match output {
                Output::Wake(at) => {
                    assert!(at.is_none_or(|at| at > self.now), "a machine does not ask to be polled now");
                    self.wake = at;
                    return;
                }
                Output::Event(event) => {
                    if let SourceEvent::Prepare { flow, block, repair } = event {
                        self.schedule(self.weather.disk, What::Ready(flow, block, repair));
                    }
                    self.events.push((self.now, event));
                }
                Output::Transmit(packet) => self.forward(packet),
            }
        }
    }

    fn forward(&mut self, mut packet: Packet) {
        let flow = packet.datagram.flow;
        match &packet.datagram.body {
            Body::Control(control) => {
                self.controls.push((self.now, packet.path, (**control).clone()));
                return;
            }
            Body::Symbol(header) => {
                self.sent += 1;
                assert_eq!(packet.ecn, Ecn::Ect0);
                let random = self.rng.random_bool(self.weather.loss);
                if random || self.drop.remove(&header.number.0) {
                    return;
                }
                if self.rng.random_bool(self.weather.duplicates) {
                    let jitter = self.jitter();
                    self.schedule(self.weather.delay + jitter, What::ToReceiver(flow, packet.clone()));
                }
                if let Some((rate, mark, most)) = self.weather.bottleneck {
                    if self.queue.len() >= most {
                        return;
                    }
                    if self.queue.len() >= mark {
                        packet.ecn = Ecn::Ce;
                    }
                    self.queue.push_back((flow, packet));
                    if self.queue.len() == 1 {
                        self.schedule(Duration::from_nanos(1_000_000_000 / rate), What::Serve);
                    }
                    return;
                }
            }
            Body::Challenge { .. } if self.drop_challenges > 0 => {
                self.drop_challenges -= 1;
                return;
            }
            _ => {}
        }
        let jitter = self.jitter();
        self.schedule(self.weather.delay + jitter, What::ToReceiver(flow, packet));
    }

    /// FIN from flow 1's receiver.
    pub(crate) fn fin(&mut self) {
        let path = self.receiver().path;
        self.datagram(path, FlowId(1), Body::Fin(FinReason::Done));
    }
}
