//! A controller, two sources and a receiver, driven step by step from bytes: which datagram, control message or command
//! is delivered, dropped, doubled, marked, trimmed or kept back, what a hostile peer who holds the keys says, how time
//! passes.
//!
//! Nothing panics, every poll ends, no wake lies in the past, what is said parses, a symbol is kept once, blocks are
//! decoded with at least K symbols, and the task is done only when every block is.
#![no_main]

use std::collections::{BTreeMap, VecDeque};

use arbitrary::{Result, Unstructured};
use headwater_controller::{Controller, ControllerCommand, ControllerConfig, ControllerEvent, TaskRecord};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::content::over_the_wire;
use headwater_testkit::messages::{Object, grant, node_info};
use headwater_testkit::{Command, Duty, Machine, Preparation, Reception, Role, receivers};
use headwater_transport::flow::path_mtu::PathMtuConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::source::{LostSymbols, Source, SourceConfig};
use headwater_transport::*;
use headwater_units::*;
use headwater_wire::*;
use libfuzzer_sys::fuzz_target;

/// Hosts: the controller, the receiver, and two sources. A data path is the other host's number; a control path adds 100.
const CONTROLLER: u32 = 0;
const RECEIVER: u32 = 1;
const HOSTS: u32 = 4;
/// Fetch of the receiver.
const FETCH: FetchId = FetchId(0);
const CONTROL: u32 = 100;
const OBJECT: ObjectId = ObjectId([9; 32]);
/// Objects that a driver would find no room for.
const DISK: u64 = 8 << 20;
/// A machine has said all by then: more than its window, its flows and its reports together.
const OUTPUTS: usize = 4096;
const UNDER_WAY: usize = 2048;
const STEPS: usize = 400;

struct World<'a> {
    bytes: Unstructured<'a>,
    now: Time,
    /// By host.
    machines: Vec<Machine>,
    object: Object,
    /// The second source's bytes are wrong.
    lies: bool,
    /// A block with repair symbols needs more than K.
    dependent: bool,
    /// A calm network loses every `loses`-th packet; none if zero.
    loses: u8,
    delivered: u8,
    packets: VecDeque<(u32, Packet)>,
    /// Answers that drivers owe.
    owed: VecDeque<Later>,
    wakes: [Option<Time>; HOSTS as usize],
    records: BTreeMap<TaskId, TaskRecord>,
    /// Each flow, its source, and the largest packet number that the source has used.
    flows: BTreeMap<FlowId, (u32, u64)>,
    preparation: Preparation,
    tasks: Vec<TaskId>,
    grants: Vec<FlowGrant>,
    reception: Reception,
}

/// Answer that a driver owes a machine.
enum Later {
    Tell(u32, Command),
    Decode(BlockIndex),
}

fuzz_target!(|bytes: &[u8]| {
    // An end of the bytes is an end of the run.
    let _ = run(bytes);
});

fn run(bytes: &[u8]) -> Result<()> {
    let mut bytes = Unstructured::new(bytes);
    let setting: u8 = bytes.arbitrary()?;
    let troubles: u8 = bytes.arbitrary()?;
    let mut config = ReceiverConfig::new("object", node(RECEIVER), PathId(CONTROL), 77);
    config.spread = if setting & 1 == 0 { SpreadRule::Listed } else { SpreadRule::Residue };
    config.room = if setting & 2 == 0 { 9000 } else { 1424 };
    config.limit = (setting & 4 != 0).then_some(BitRate::new(50_000_000));
    let mut source = if setting & 16 == 0 { SourceConfig::default() } else { SourceConfig::paper() };
    source.push.max_in_flight = 256;
    source.push.path_mtu = (setting & 24 != 24).then(PathMtuConfig::default);
    source.push.lost_symbols = if setting & 8 == 0 { LostSymbols::Resend } else { LostSymbols::New };
    let mut world = World {
        now: Time::from_nanos(1_000_000),
        machines: vec![
            Role::Controller(Controller::new(ControllerConfig::default(), [1; 32])),
            Role::Receiver(receivers(BitRate::new(1_000_000_000))),
            Role::Source(Source::new(source.clone(), [2; 32])),
            Role::Source(Source::new(source, [3; 32])),
        ],
        object: Object { id: OBJECT, bytes: Bytes::new(u64::from(setting >> 5) * 150_000), symbol_size: 0 },
        lies: troubles & 1 != 0,
        dependent: troubles & 2 != 0,
        loses: [0, 50, 7, 3][usize::from(troubles >> 2 & 3)],
        delivered: 0,
        bytes,
        packets: VecDeque::new(),
        owed: VecDeque::new(),
        wakes: [None; HOSTS as usize],
        records: BTreeMap::new(),
        flows: BTreeMap::new(),
        preparation: Preparation::default(),
        tasks: Vec::new(),
        grants: Vec::new(),
        reception: Reception::default(),
    };
    for source in 2..HOSTS {
        world.introduce(source);
        let hold = SourceCommand::Hold { object: OBJECT, bytes: world.object.bytes };
        world.tell(source, Role::Source(hold));
    }
    for _ in 0..3 {
        world.deliver(0);
    }
    world.tell(RECEIVER, Role::Receiver(ToFetch(FETCH, ReceiverCommand::Fetch(Box::new(config)))));
    for _ in 0..STEPS {
        world.step()?;
    }
    Ok(())
}

fn node(host: u32) -> NodeId {
    NodeId([host as u8; 32])
}

fn control_packet(path: u32, control: Control) -> Packet {
    Packet::control(PathId(path), control)
}

impl World<'_> {
    fn step(&mut self) -> Result<()> {
        let pick = |bytes: &mut Unstructured<'_>, len: usize| match len {
            0 => Ok(None),
            len => bytes.choose_index(len.min(256)).map(Some),
        };
        match self.bytes.int_in_range(0..=13)? {
            // As a calm network does it, for a while.
            0 | 1 => {
                for _ in 0..self.bytes.int_in_range(1..=8)? {
                    self.calm();
                }
            }
            2 => {
                for _ in 0..self.bytes.int_in_range(1..=32)? {
                    self.deliver(0);
                }
            }
            3 => match pick(&mut self.bytes, self.packets.len())? {
                Some(at) => self.deliver(at),
                None => {}
            },
            4 => drop(pick(&mut self.bytes, self.packets.len())?.and_then(|at| self.packets.remove(at))),
            5 => {
                if let Some(at) = pick(&mut self.bytes, self.packets.len())? {
                    let again = self.packets[at].clone();
                    self.packets.push_front(again);
                    self.deliver(0);
                }
            }
            6 => {
                if let Some(at) = pick(&mut self.bytes, self.packets.len())? {
                    let packet = &mut self.packets[at].1;
                    match &mut packet.datagram.body {
                        Body::Symbol(symbol) if self.bytes.arbitrary()? => symbol.trimmed = true,
                        _ => packet.ecn = *self.bytes.choose(&[Ecn::Ce, Ecn::NotEct, Ecn::Ect1])?,
                    }
                }
            }
            7 => self.command_due()?,
            8 | 9 => {
                let shift = self.bytes.int_in_range(0..=36)?;
                let time = self.now + Duration::from_nanos(1 << shift);
                self.advance(time);
            }
            10 | 11 => self.hostile_datagram()?,
            12 => self.hostile_control()?,
            _ => self.odd_command()?,
        }
        Ok(())
    }

    /// Delivers what is under way, answers what is asked, and goes on to the next wake.
    fn calm(&mut self) {
        for _ in 0..self.packets.len() {
            self.delivered = self.delivered.wrapping_add(1);
            match self.delivered.checked_rem(self.loses) {
                Some(0) => drop(self.packets.pop_front()),
                _ => self.deliver(0),
            }
        }
        while let Some(owed) = self.owed.pop_front() {
            self.pay(owed, None);
        }
        if self.packets.is_empty()
            && let Some(next) = self.wakes.iter().flatten().min()
        {
            self.advance(*next);
        }
    }

    fn advance(&mut self, time: Time) {
        self.now = self.now.max(time);
        for host in 0..HOSTS {
            if self.wakes[host as usize].is_some_and(|at| at <= self.now) {
                self.poll(host);
            }
        }
    }

    fn deliver(&mut self, at: usize) {
        let Some((to, packet)) = self.packets.remove(at) else { return };
        match to {
            CONTROLLER => {
                let path = packet.path;
                let opened = ControllerCommand::PathOpened { path, node: node(path.0 - CONTROL), network: None };
                self.hand(to, Input::Command(Role::Controller(opened)));
            }
            RECEIVER => self.reception.hands_in(&packet),
            _ => {}
        }
        self.hand(to, Input::Packet(packet));
        self.poll(to);
    }

    fn tell(&mut self, to: u32, command: Command) {
        if let Role::Source(command) = &command {
            self.preparation.ready(command);
        }
        self.hand(to, Input::Command(command));
        self.poll(to);
    }

    fn hand(&mut self, to: u32, input: Input<Command>) {
        self.machines[to as usize].handle(self.now, input);
    }

    /// Does what a driver owes. The decoder's answer may be forced.
    fn pay(&mut self, owed: Later, forced: Option<DecodeFailure>) {
        match owed {
            Later::Tell(to, command) => self.tell(to, command),
            Later::Decode(block) => {
                let World { lies, dependent, flows, .. } = self;
                let wrong = |flow: &FlowId| *lies && flows.get(flow).is_some_and(|flow| flow.0 == 3);
                let decoded = self.reception.decode(block, |attempt| match forced {
                    Some(failure) => Err(failure),
                    None if *dependent && attempt.is_close() => Err(DecodeFailure::NeedMore),
                    None if attempt.symbols.values().any(wrong) => Err(DecodeFailure::Corrupt),
                    None => Ok(()),
                });
                if let Some(command) = decoded {
                    self.tell(RECEIVER, Role::Receiver(ToFetch(FETCH, command)));
                }
            }
        }
    }

    /// The law of the two verbs: poll until a wake, which lies ahead.
    fn poll(&mut self, host: u32) {
        let now = self.now;
        for _ in 0..OUTPUTS {
            match self.machines[host as usize].poll(now) {
                Output::Wake(at) => {
                    assert!(
                        at.is_none_or(|at| at > now),
                        "host {host} wants to be woken at {at:?}, now {now}"
                    );
                    self.wakes[host as usize] = at;
                    return;
                }
                Output::Transmit(packet) => self.send(host, packet),
                Output::Event(Role::Source(event)) => {
                    if let SourceEvent::Opened(opened) = &event {
                        self.flows.entry(opened.flow).or_insert((host, 0));
                    }
                    let ready = self.preparation.on_event(&event);
                    self.owed.extend(ready.map(|ready| Later::Tell(host, Role::Source(ready))));
                }
                Output::Event(Role::Receiver(FromFetch(fetch, event))) => {
                    assert_eq!(fetch, FETCH);
                    self.on_receiver(event);
                }
                Output::Event(Role::Controller(event)) => match event {
                    ControllerEvent::Persist(record) => drop(self.records.insert(record.task, *record)),
                    ControllerEvent::Forget { task, .. } => drop(self.records.remove(&task)),
                    _ => {}
                },
            }
        }
        panic!("host {host} never waits");
    }

    /// Everything crosses the wire: what one end says, the other end must be able to read.
    fn send(&mut self, host: u32, packet: Packet) {
        if let Body::Symbol(header) = &packet.datagram.body
            && let Some((_, largest)) = self.flows.get_mut(&packet.datagram.flow)
        {
            *largest = (*largest).max(header.number.0);
            self.preparation.sends(&packet.datagram);
        }
        let Packet { path, ecn, datagram: said } = over_the_wire(packet);
        if let Body::Control(control) = &said.body {
            match &**control {
                Control::Receiver(ToReceiver::Accepted { task, flows, .. })
                | Control::Receiver(ToReceiver::Flows { task, flows, .. }) => {
                    self.grants.clone_from(flows);
                    if !self.tasks.contains(task) {
                        self.tasks.push(*task);
                    }
                }
                _ => {}
            }
        }
        let control = matches!(said.body, Body::Control(_));
        let to = if path.0 >= CONTROL { path.0 - CONTROL } else { path.0 };
        // The controller has no data path.
        let nowhere = to >= HOSTS || to == CONTROLLER && !control;
        if nowhere || (path.0 >= CONTROL) != control || self.packets.len() >= UNDER_WAY {
            return;
        }
        let path = PathId(if control { CONTROL + host } else { host });
        self.packets.push_back((to, Packet { path, ecn, datagram: said }));
    }

    fn on_receiver(&mut self, event: ReceiverEvent) {
        let room = !matches!(event, ReceiverEvent::Accepted { bytes, .. } if bytes.get() > DISK);
        let told = |command| Later::Tell(RECEIVER, Role::Receiver(ToFetch(FETCH, command)));
        match self.reception.on_event(self.now, event) {
            Some(Duty::Start(start)) => {
                self.owed.push_back(told(if room { start } else { ReceiverCommand::Cancel }));
            }
            Some(Duty::FindPath(bind)) => {
                let path = PathId(u32::from(bind.node.0[0]));
                self.owed.push_back(told(ReceiverCommand::FlowPath { flow: bind.flow, path }));
            }
            Some(Duty::Decode(block)) => self.owed.push_back(Later::Decode(block)),
            None => {}
        }
    }

    /// One thing that a driver owes, late, early or with bad news.
    fn command_due(&mut self) -> Result<()> {
        if self.owed.is_empty() {
            return Ok(());
        }
        let at = self.bytes.choose_index(self.owed.len().min(256))?;
        let owed = self.owed.remove(at).expect("the index is within");
        let forced = match owed {
            Later::Decode(_) => match self.bytes.int_in_range(0..=3)? {
                0 => Some(DecodeFailure::Corrupt),
                1 => Some(DecodeFailure::NeedMore),
                _ => None,
            },
            Later::Tell(..) => None,
        };
        self.pay(owed, forced);
        Ok(())
    }

    fn introduce(&mut self, source: u32) {
        let info = node_info(node(source), format!("source {source}"), source as u8);
        let info = NodeInfo { room: 9000, ..info };
        let holding = Holding { object: OBJECT, bytes: self.object.bytes, name: Some("object".into()) };
        for control in
            [Control::Controller(ToController::Hello(info)), Control::Controller(ToController::Hold(holding))]
        {
            self.packets.push_back((CONTROLLER, control_packet(CONTROL + source, control)));
        }
    }

    /// Commands that drivers and users send now and then, and answers to questions that nobody asked.
    fn odd_command(&mut self) -> Result<()> {
        let source = self.bytes.int_in_range(2..=HOSTS - 1)?;
        let block = BlockIndex(self.wild()? as u32);
        let flow = self.some_flow()?;
        match self.bytes.int_in_range(0..=8)? {
            0 => {
                let repair = self.bytes.arbitrary()?;
                // As if it had been asked for.
                self.preparation.on_event(&SourceEvent::Prepare { flow, block, repair });
                let ready = SourceCommand::BlockReady { flow, block, repair };
                self.tell(source, Role::Source(ready));
            }
            1 => self.tell(source, Role::Source(SourceCommand::Withdraw { object: OBJECT })),
            2 => {
                let hold = SourceCommand::Hold { object: OBJECT, bytes: self.object.bytes };
                self.tell(source, Role::Source(hold));
                self.introduce(source);
            }
            3 => {
                let path = PathId(self.bytes.int_in_range(0..=HOSTS)?);
                self.tell(RECEIVER, Role::Receiver(ToFetch(FETCH, ReceiverCommand::FlowPath { flow, path })));
            }
            4 => {
                let path = PathId(CONTROL + self.bytes.int_in_range(1..=HOSTS)?);
                self.tell(CONTROLLER, Role::Controller(ControllerCommand::PathLost { path }));
            }
            5 => {
                // The controller dies and comes back with what it wrote down.
                self.machines[CONTROLLER as usize] =
                    Role::Controller(Controller::new(ControllerConfig::default(), [2; 32]));
                for record in self.records.values().cloned().collect::<Vec<_>>() {
                    self.tell(CONTROLLER, Role::Controller(ControllerCommand::Restore(Box::new(record))));
                }
                self.poll(CONTROLLER);
            }
            8 => {
                let path = PathId(self.bytes.int_in_range(0..=HOSTS)?);
                let fits = self.bytes.arbitrary()?;
                self.tell(source, Role::Source(SourceCommand::TooLong { path, fits }));
            }
            6 if self.bytes.ratio(1, 4)? => {
                self.tell(RECEIVER, Role::Receiver(ToFetch(FETCH, ReceiverCommand::Cancel)))
            }
            _ => {}
        }
        Ok(())
    }

    /// Whatever the holder of a flow's key can say in a datagram.
    fn hostile_datagram(&mut self) -> Result<()> {
        let flow = self.some_flow()?;
        let (source, largest) = self.flows.get(&flow).copied().unwrap_or((2, 0));
        let to_source: bool = self.bytes.arbitrary()?;
        let near =
            |bytes: &mut Unstructured<'_>| Ok(largest.saturating_sub(u64::from(bytes.arbitrary::<u8>()?)));
        let body = match self.bytes.int_in_range(0..=8)? {
            0 | 1 if !to_source => Body::Symbol(SymbolHeader {
                number: PacketNumber(if self.bytes.arbitrary()? {
                    self.wild()?
                } else {
                    near(&mut self.bytes)?
                }),
                symbol: SymbolId {
                    block: BlockIndex(self.wild()? as u32),
                    esi: Esi(self.wild()? as u32 % ESI_LIMIT),
                },
                ack_interval: self.bytes.arbitrary::<u8>()?.max(1),
                ack_now: self.bytes.arbitrary()?,
                assignment: self.bytes.arbitrary()?,
                starved: self.bytes.arbitrary()?,
                syn: self.bytes.arbitrary()?,
                trimmed: self.bytes.ratio(1, 8)?,
            }),
            0 => {
                let wild = self.bytes.ratio(1, 8)?;
                let mut ack = Ack {
                    largest: PacketNumber(if wild { self.wild()? } else { near(&mut self.bytes)? }),
                    delay: Duration::from_micros(self.wild()?),
                    first_run: self.bytes.arbitrary::<u16>()?.max(1),
                    ranges: Default::default(),
                    ect0: self.wild()? as u32,
                    ce: self.wild()? as u32,
                    not_ect: self.wild()? as u32,
                    first_undecoded: BlockIndex(self.wild()? as u32),
                    owed: Default::default(),
                };
                for _ in 0..self.bytes.int_in_range(0..=4)? {
                    let (gap, run): (u16, u16) = self.bytes.arbitrary()?;
                    ack.ranges.push(AckRange { gap: gap.max(1), run: run.max(1) });
                    let symbols = Symbols::new(self.wild()?);
                    ack.owed.push(Owed { block: BlockIndex(self.wild()? as u32), symbols });
                }
                Body::Ack(Box::new(ack))
            }
            1 => {
                let mut works = Vec::new();
                for _ in 0..self.bytes.int_in_range(0..=6)? {
                    let (block, count, attempt) =
                        (BlockIndex(self.wild()? as u32), self.wild()? as u16, self.bytes.arbitrary()?);
                    works.push(match self.bytes.arbitrary()? {
                        true => Work::Blocks { first: block, count, attempt },
                        false => Work::Symbols {
                            block,
                            first: Esi(self.wild()? as u32 % ESI_LIMIT),
                            count,
                            attempt,
                        },
                    });
                }
                let (index, of) = self.bytes.arbitrary()?;
                Body::Assign(Box::new(Assign {
                    version: self.wild()? as u32,
                    nonce: self.bytes.arbitrary()?,
                    receive_window: self.wild()? as u32,
                    first_undecoded: BlockIndex(self.wild()? as u32),
                    assignment: match self.bytes.arbitrary()? {
                        true => Assignment::Listed(works),
                        false => Assignment::Residue { index, of },
                    },
                    padded: self.bytes.arbitrary()?,
                }))
            }
            2 => Body::Challenge { nonce: self.wild()?.max(1) },
            3 => Body::Fin(*self.bytes.choose(&[
                FinReason::Done,
                FinReason::Cancelled,
                FinReason::Distrusted,
            ])?),
            4 => Body::FinAck,
            7 => Body::Probe(Probe {
                number: self.bytes.arbitrary()?,
                bytes: self.bytes.int_in_range(Probe::SHORTEST..=9_000)?,
                fits: Some(self.bytes.arbitrary()?).filter(|fits| *fits > 0),
            }),
            8 => Body::ProbeAck(ProbeAck {
                number: self.bytes.int_in_range(0..=40)?,
                bytes: *self.bytes.choose(&[1200, 548, 1472, 9048, 1252])?,
            }),
            // A packet comes again, at whichever end.
            _ => match self.packets.front() {
                Some((_, packet)) => packet.datagram.body.clone(),
                None => return Ok(()),
            },
        };
        if matches!(body, Body::Control(_)) {
            return Ok(());
        }
        let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow, body };
        let key = HeaderKey::new(&FlowKey([0; 32]));
        let mut bytes = vec![0; datagram.len(8)];
        emit(&datagram, 8, &key, &mut bytes);
        let Ok(parsed) = parse(&bytes, &key) else { return Ok(()) };
        let (from, to) = if to_source { (RECEIVER, source) } else { (source, RECEIVER) };
        let path = PathId(if self.bytes.ratio(1, 8)? { 50 } else { from });
        let ecn = *self.bytes.choose(&[Ecn::Ect0, Ecn::Ce, Ecn::NotEct])?;
        self.packets.push_front((to, Packet { path, ecn, datagram: parsed.datagram }));
        self.deliver(0);
        Ok(())
    }

    /// Whatever a node, or a controller gone wild, can say over a control connection.
    fn hostile_control(&mut self) -> Result<()> {
        let flow = self.some_flow()?;
        let task = match self.tasks.is_empty() {
            true => TaskId(self.wild()?),
            false => *self.bytes.choose(&self.tasks)?,
        };
        let theta = Theta::new(f64::from(self.bytes.arbitrary::<f32>()?));
        let refusal = self.bytes.choose(&[Refusal::UnknownObject, Refusal::Full, Refusal::Gone])?.clone();
        let (source, wild) = (self.bytes.int_in_range(2..=HOSTS - 1)?, self.wild()?);
        let (to, control) = match self.bytes.int_in_range(0..=17)? {
            0 => (source, Control::Source(ToSource::SetTheta { flow, theta })),
            1 => (source, Control::Source(ToSource::Pause { flow })),
            2 => (source, Control::Source(ToSource::Resume { flow })),
            3 => (source, Control::Source(ToSource::Stop { flow })),
            4 => {
                let flow = if self.bytes.arbitrary()? { flow } else { FlowId(wild) };
                let bytes = if self.bytes.ratio(7, 8)? { self.object.bytes } else { Bytes::new(wild) };
                let object = Object { bytes, symbol_size: self.wild()? as u16, ..self.object };
                let push = object.push(task, flow, FlowKey([0; 32]), node(RECEIVER), Delivery::Push);
                let push = Push { theta, class: Class::Gentle, ..push };
                (source, Control::Source(ToSource::Push(push)))
            }
            5 => {
                let keep = self.bytes.int_in_range(0..=self.grants.len())?;
                let mut flows = self.grants[..keep].to_vec();
                flows.extend(
                    self.bytes
                        .arbitrary::<bool>()?
                        .then(|| grant(FlowId(wild), node(source), FlowKey([0; 32]), 0, 2)),
                );
                (RECEIVER, Control::Receiver(ToReceiver::Flows { task, version: self.wild()? as u32, flows }))
            }
            6 => (RECEIVER, Control::Receiver(ToReceiver::UnknownTask { task })),
            7 => (RECEIVER, Control::Receiver(ToReceiver::Refused { request: 77, reason: refusal })),
            8 => (RECEIVER, Control::Receiver(ToReceiver::FinAck { task })),
            9 => {
                let accepted = Control::Receiver(ToReceiver::Accepted {
                    request: 77 + self.bytes.int_in_range(0..=3)?,
                    task,
                    object: OBJECT,
                    bytes: if self.bytes.arbitrary()? { self.object.bytes } else { Bytes::new(self.wild()?) },
                    symbol_size: self.wild()? as u16,
                    feedback_every: Duration::from_micros(self.wild()?),
                    version: self.bytes.int_in_range(0..=2)?,
                    flows: self.grants.clone(),
                    delivery: Delivery::Push,
                });
                (RECEIVER, accepted)
            }
            10 => {
                let view = FlowView {
                    flow,
                    bytes: Bytes::new(self.wild()?),
                    rate: BitRate::new(self.wild()?),
                    silent: Duration::from_nanos(self.wild()?),
                    behind: Duration::from_nanos(self.wild()?),
                };
                let feedback = Control::Controller(ToController::Feedback {
                    task,
                    first_undecoded: BlockIndex(self.wild()? as u32),
                    needed: Symbols::new(wild),
                    flows_version: self.wild()? as u32,
                    flows: vec![view; self.bytes.int_in_range(0..=3)?],
                    held_up: self.bytes.arbitrary()?,
                });
                (CONTROLLER, feedback)
            }
            11 => (CONTROLLER, Control::Controller(ToController::Distrust { task, node: node(source) })),
            12 => (CONTROLLER, Control::Controller(ToController::Fin { task, outcome: Outcome::Failed })),
            13 if wild % 2 == 0 => (CONTROLLER, Control::Controller(ToController::Drop { object: OBJECT })),
            13 => (
                CONTROLLER,
                Control::Controller(ToController::Spoiled { object: OBJECT, how: Spoiled::Changed }),
            ),
            14 => (CONTROLLER, Control::Controller(ToController::PushRefused { flow, reason: refusal })),
            15 => {
                let report = FlowReport {
                    flow,
                    theta,
                    window: Packets::new(f64::from(self.bytes.arbitrary::<f32>()?)),
                    rtt: Some(Duration::from_nanos(self.wild()?)),
                    mark_fraction: f64::from(self.bytes.arbitrary::<f32>()?),
                    signal: MarkSignal::Ecn,
                    lost: Symbols::new(self.wild()?),
                    starved: false,
                };
                (CONTROLLER, Control::Controller(ToController::Report { flows: vec![report] }))
            }
            16 => {
                let request = Request {
                    request: self.bytes.int_in_range(77..=79)?,
                    name: "object".into(),
                    receiver: node(RECEIVER),
                    room: self.wild()? as u16,
                    class: Class::Bulk,
                    spread: SpreadRule::Residue,
                    max_sources: self.bytes.arbitrary()?,
                    delivery: self.bytes.arbitrary::<bool>()?.then_some(Delivery::Push),
                    trims: self.bytes.arbitrary()?,
                    passes_on: self.bytes.arbitrary()?,
                };
                (CONTROLLER, Control::Controller(ToController::Request(request)))
            }
            _ => {
                let holding =
                    Holding { object: OBJECT, bytes: Bytes::new(wild), name: Some("object".into()) };
                (CONTROLLER, Control::Controller(ToController::Hold(holding)))
            }
        };
        let Ok(control) = Control::parse(&control.to_bytes()) else { return Ok(()) };
        let from = match to {
            CONTROLLER => self.bytes.int_in_range(1..=HOSTS)?,
            _ => CONTROLLER,
        };
        self.packets.push_front((to, control_packet(CONTROL + from, control)));
        self.deliver(0);
        Ok(())
    }

    fn some_flow(&mut self) -> Result<FlowId> {
        let known: Vec<FlowId> = self.flows.keys().copied().collect();
        match known.is_empty() || self.bytes.ratio(1, 16)? {
            true => Ok(FlowId(self.bytes.arbitrary::<u8>()?.into())),
            false => self.bytes.choose(&known).copied(),
        }
    }

    /// A number near an edge, or any other.
    fn wild(&mut self) -> Result<u64> {
        let small = u64::from(self.bytes.arbitrary::<u8>()?);
        Ok(match self.bytes.int_in_range(0..=9)? {
            0..=4 => small % 8,
            5 => small,
            6 => u64::MAX - small,
            7 => u64::from(u32::MAX) - small,
            8 => 8 << (small % 61),
            _ => self.bytes.arbitrary()?,
        })
    }
}
