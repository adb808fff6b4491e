//! A controller, two sources and a receiver, driven step by step from bytes: which datagram, control message or command
//! is delivered, dropped, doubled, marked, trimmed or kept back, what a hostile peer who holds the keys says, how time
//! passes.
//!
//! Nothing panics, every poll ends, no wake lies in the past, what is said parses, a symbol is kept once, blocks are
//! decoded with at least K symbols, and the task is done only when every block is.
#![no_main]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use arbitrary::{Result, Unstructured};
use headwater_controller::{Controller, ControllerCommand, ControllerConfig, ControllerEvent, TaskRecord};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::flow::path_mtu::PathMtuConfig;
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{LostSymbols, Source, SourceConfig};
use headwater_transport::*;
use headwater_units::*;
use headwater_wire::*;
use libfuzzer_sys::fuzz_target;

/// Hosts: the controller, the receiver, and two sources. A data path is the other host's number; a control path adds 100.
const CONTROLLER: u32 = 0;
const RECEIVER: u32 = 1;
const HOSTS: u32 = 4;
/// What the receiver fetches.
const FETCH: FetchId = FetchId(0);
const CONTROL: u32 = 100;
const OBJECT: ObjectId = ObjectId([9; 32]);
/// Objects that a driver would find no room for.
const DISK: u64 = 8 << 20;
/// A machine has said all by then: more than its window, its flows and its reports together.
const OUTPUTS: usize = 4096;
const UNDER_WAY: usize = 2048;
const STEPS: usize = 400;

/// What the driver of the receiver knows.
#[derive(Default)]
struct Kept {
    geometry: Option<Geometry>,
    wanted: u32,
    /// By block and ESI: the flow that brought it.
    symbols: BTreeMap<u32, BTreeMap<u32, FlowId>>,
    decoding: BTreeSet<u32>,
    done: BTreeSet<u32>,
    ended: bool,
}

struct World<'a> {
    bytes: Unstructured<'a>,
    now: Time,
    controller: Controller,
    receivers: Receivers,
    sources: [Source; 2],
    size: Bytes,
    /// The second source's bytes are wrong.
    lies: bool,
    /// A block with repair symbols needs more than K.
    dependent: bool,
    /// A calm network loses each so manieth packet; none if zero.
    loses: u8,
    delivered: u8,
    packets: VecDeque<(u32, Packet)>,
    commands: VecDeque<(u32, Command)>,
    wakes: [Option<Time>; HOSTS as usize],
    records: BTreeMap<TaskId, TaskRecord>,
    /// Each flow, its source, and the largest packet number that the source has used.
    flows: BTreeMap<FlowId, (u32, u64)>,
    /// Blocks that a source was told are ready, and whether with repair symbols.
    ready: BTreeMap<(FlowId, BlockIndex), bool>,
    tasks: Vec<TaskId>,
    grants: Vec<FlowGrant>,
    kept: Kept,
}

/// What a machine is told.
enum Command {
    Controller(ControllerCommand),
    Receiver(FetchId, ReceiverCommand),
    Source(SourceCommand),
}

/// What a machine says.
enum Event {
    Controller(ControllerEvent),
    Receiver(FetchId, ReceiverEvent),
    Source(SourceEvent),
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
    let pull =
        PullConfig { rate: BitRate::new(1_000_000_000), packet: Bytes::new(1500), catch_up: Duration::ZERO };
    let mut world = World {
        now: Time::from_nanos(1_000_000),
        controller: Controller::new(ControllerConfig::default(), [1; 32]),
        receivers: Receivers::new(HostReceiverConfig { pull }),
        sources: [2, 3].map(|n| Source::new(source.clone(), [n; 32])),
        size: Bytes::new(u64::from(setting >> 5) * 150_000),
        lies: troubles & 1 != 0,
        dependent: troubles & 2 != 0,
        loses: [0, 50, 7, 3][usize::from(troubles >> 2 & 3)],
        delivered: 0,
        bytes,
        packets: VecDeque::new(),
        commands: VecDeque::new(),
        wakes: [None; HOSTS as usize],
        records: BTreeMap::new(),
        flows: BTreeMap::new(),
        ready: BTreeMap::new(),
        tasks: Vec::new(),
        grants: Vec::new(),
        kept: Kept::default(),
    };
    for source in 2..HOSTS {
        world.introduce(source);
        let hold = SourceCommand::Hold { object: OBJECT, bytes: world.size };
        world.tell(source, Command::Source(hold));
    }
    for _ in 0..3 {
        world.deliver(0);
    }
    world.tell(RECEIVER, Command::Receiver(FETCH, ReceiverCommand::Fetch(Box::new(config))));
    for _ in 0..STEPS {
        world.step()?;
    }
    Ok(())
}

fn node(host: u32) -> NodeId {
    NodeId([host as u8; 32])
}

fn control_packet(path: u32, control: Control) -> Packet {
    let body = Body::Control(Box::new(control));
    let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(0), body };
    Packet { path: PathId(path), ecn: Ecn::NotEct, datagram }
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
        while let Some((to, command)) = self.commands.pop_front() {
            self.tell(to, command);
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
                self.poll(host, None);
            }
        }
    }

    fn deliver(&mut self, at: usize) {
        let Some((to, packet)) = self.packets.remove(at) else { return };
        let symbol = match &packet.datagram.body {
            Body::Symbol(header) => Some(header.symbol),
            _ => None,
        };
        let now = self.now;
        match to {
            CONTROLLER => {
                let path = packet.path;
                let opened = ControllerCommand::PathOpened { path, node: node(path.0 - CONTROL) };
                self.controller.handle(now, Input::Command(opened));
                self.controller.handle(now, Input::Packet(packet));
            }
            RECEIVER => self.receivers.handle(now, Input::Packet(packet)),
            source => self.sources[source as usize - 2].handle(now, Input::Packet(packet)),
        }
        self.poll(to, symbol);
    }

    fn tell(&mut self, to: u32, command: Command) {
        if let Command::Receiver(
            _,
            ReceiverCommand::BlockDecoded { block } | ReceiverCommand::DecodeFailed { block, .. },
        ) = &command
            && !self.kept.decoding.remove(&block.0)
        {
            return;
        }
        if let Command::Receiver(_, ReceiverCommand::BlockDecoded { block }) = &command {
            self.kept.done.insert(block.0);
            self.kept.symbols.remove(&block.0);
        }
        if let Command::Source(SourceCommand::BlockReady { flow, block, repair }) = &command {
            *self.ready.entry((*flow, *block)).or_default() |= repair;
        }
        let now = self.now;
        match command {
            Command::Controller(command) => self.controller.handle(now, Input::Command(command)),
            Command::Receiver(fetch, command) => {
                self.receivers.handle(now, Input::Command(ToFetch(fetch, command)));
            }
            Command::Source(command) => self.sources[to as usize - 2].handle(now, Input::Command(command)),
        }
        self.poll(to, None);
    }

    fn next(&mut self, host: u32) -> Output<Event> {
        match host {
            CONTROLLER => self.controller.poll(self.now).map(Event::Controller),
            RECEIVER => {
                self.receivers.poll(self.now).map(|FromFetch(fetch, event)| Event::Receiver(fetch, event))
            }
            source => self.sources[source as usize - 2].poll(self.now).map(Event::Source),
        }
    }

    /// The law of the two verbs: poll until a wake, which lies ahead.
    fn poll(&mut self, host: u32, mut symbol: Option<SymbolId>) {
        let now = self.now;
        for _ in 0..OUTPUTS {
            match self.next(host) {
                Output::Wake(at) => {
                    assert!(
                        at.is_none_or(|at| at > now),
                        "host {host} wants to be woken at {at:?}, now {now}"
                    );
                    self.wakes[host as usize] = at;
                    return;
                }
                Output::Transmit(packet) => self.send(host, packet),
                Output::Event(Event::Source(event)) => match event {
                    SourceEvent::Prepare { flow, block, repair } => {
                        let ready = SourceCommand::BlockReady { flow, block, repair };
                        self.commands.push_back((host, Command::Source(ready)));
                    }
                    SourceEvent::Opened(opened) => {
                        self.flows.entry(opened.flow).or_insert((host, 0));
                    }
                    // Nobody relays here.
                    SourceEvent::Wanted { .. } => {}
                    SourceEvent::Release { flow, block } => drop(self.ready.remove(&(flow, block))),
                    SourceEvent::Closed { flow } => self.ready.retain(|(of, _), _| *of != flow),
                },
                Output::Event(Event::Receiver(fetch, event)) => {
                    assert_eq!(fetch, FETCH);
                    self.on_receiver(event, &mut symbol);
                }
                Output::Event(Event::Controller(event)) => match event {
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
        let Packet { path, ecn, datagram } = packet;
        let key = HeaderKey::new(&FlowKey([0; 32]));
        let mut bytes = vec![0; datagram.len(8)];
        emit(&datagram, 8, &key, &mut bytes);
        let said = parse(&bytes, &key).unwrap_or_else(|error| panic!("{error}: {datagram:?}")).datagram;
        if let Body::Symbol(header) = &datagram.body
            && let Some((_, largest)) = self.flows.get_mut(&datagram.flow)
        {
            *largest = (*largest).max(header.number.0);
            let SymbolId { block, .. } = header.symbol;
            assert!(self.ready.contains_key(&(datagram.flow, block)), "{block} is named but was not ready");
        }
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
        if to >= HOSTS || (path.0 >= CONTROL) != control || self.packets.len() >= UNDER_WAY {
            return;
        }
        let path = PathId(if control { CONTROL + host } else { host });
        self.packets.push_back((to, Packet { path, ecn, datagram: said }));
    }

    fn on_receiver(&mut self, event: ReceiverEvent, handed_in: &mut Option<SymbolId>) {
        let kept = &mut self.kept;
        let mut answer = |command| self.commands.push_back((RECEIVER, Command::Receiver(FETCH, command)));
        match event {
            ReceiverEvent::Accepted { bytes, symbol_size, .. } => {
                let geometry = Geometry::new(bytes, symbol_size).expect("the machine has checked");
                if bytes.get() > DISK {
                    return answer(ReceiverCommand::Cancel);
                }
                kept.wanted = geometry.layout().block_count();
                kept.geometry = Some(geometry);
                kept.symbols.clear();
                kept.decoding.clear();
                let have = kept.done.iter().map(|&b| BlockIndex(b)).collect();
                answer(ReceiverCommand::Start { wanted: 0..kept.wanted, have });
            }
            ReceiverEvent::Bind(bind) | ReceiverEvent::Moved(bind) => {
                let path = PathId(u32::from(bind.node.0[0]));
                answer(ReceiverCommand::FlowPath { flow: bind.flow, path });
            }
            ReceiverEvent::Symbol { flow, symbol } => {
                assert_eq!(handed_in.take(), Some(symbol), "only what was handed in can be kept");
                assert!(!kept.done.contains(&symbol.block.0), "a symbol of a finished block was kept");
                let before = kept.symbols.entry(symbol.block.0).or_default().insert(symbol.esi.0, flow);
                assert_eq!(before, None, "{symbol:?} was kept twice");
            }
            ReceiverEvent::Decode { block } => {
                let need = kept.geometry.expect("it was accepted").source_symbols(block) as usize;
                let here = kept.symbols.get(&block.0).map_or(0, BTreeMap::len);
                assert!(need > 0 && here >= need, "decoding {block} needs {need} symbols, {here} are here");
                assert!(kept.decoding.insert(block.0), "{block} is being decoded already");
                let symbols = &kept.symbols[&block.0];
                let systematic = symbols.range(..need as u32).count() == need;
                let wrong =
                    self.lies && symbols.values().any(|f| self.flows.get(f).is_some_and(|f| f.0 == 3));
                answer(if self.dependent && !systematic && here == need {
                    ReceiverCommand::DecodeFailed { block, failure: DecodeFailure::NeedMore }
                } else if wrong {
                    ReceiverCommand::DecodeFailed { block, failure: DecodeFailure::Corrupt }
                } else {
                    ReceiverCommand::BlockDecoded { block }
                });
            }
            ReceiverEvent::Discard { block } => {
                assert!(!kept.decoding.contains(&block.0), "a worker has these symbols");
                kept.symbols.remove(&block.0);
            }
            ReceiverEvent::Done => {
                assert_eq!(kept.done.len(), kept.wanted as usize, "done without all blocks");
                assert!(!std::mem::replace(&mut kept.ended, true), "ended twice");
            }
            ReceiverEvent::Failed(_) => assert!(!std::mem::replace(&mut kept.ended, true), "ended twice"),
            ReceiverEvent::Unbind { .. } | ReceiverEvent::Distrusted { .. } => {}
            ReceiverEvent::Ended => assert!(kept.ended, "over without an end"),
        }
    }

    /// One thing that a driver owes, late, early or with bad news.
    fn command_due(&mut self) -> Result<()> {
        if self.commands.is_empty() {
            return Ok(());
        }
        let at = self.bytes.choose_index(self.commands.len().min(256))?;
        let (to, mut command) = self.commands.remove(at).expect("the index is within");
        if let Command::Receiver(_, ReceiverCommand::BlockDecoded { block }) = command {
            let k = self.kept.geometry.map_or(0, |g| g.source_symbols(block));
            let systematic =
                self.kept.symbols.get(&block.0).is_some_and(|s| s.range(..k).count() == k as usize);
            let failure = match self.bytes.int_in_range(0..=3)? {
                0 => Some(DecodeFailure::Corrupt),
                1 if !systematic => Some(DecodeFailure::NeedMore),
                _ => None,
            };
            if let Some(failure) = failure {
                command = Command::Receiver(FETCH, ReceiverCommand::DecodeFailed { block, failure });
            }
        }
        self.tell(to, command);
        Ok(())
    }

    fn introduce(&mut self, source: u32) {
        let info = NodeInfo {
            node: node(source),
            name: format!("source {source}"),
            listen: None,
            data: vec![([10, 0, 0, source as u8], 1).into()],
            uplink: None,
            downlink: None,
            rack: None,
            room: 9000,
            incarnation: 1,
            rtt: None,
            seen: None,
            labels: Default::default(),
        };
        let holding = Holding { object: OBJECT, bytes: self.size, name: Some("object".into()) };
        for control in
            [Control::Controller(ToController::Hello(info)), Control::Controller(ToController::Hold(holding))]
        {
            self.packets.push_back((CONTROLLER, control_packet(CONTROL + source, control)));
        }
    }

    /// What drivers and users do now and then, and answers to what nobody asked.
    fn odd_command(&mut self) -> Result<()> {
        let source = self.bytes.int_in_range(2..=HOSTS - 1)?;
        let block = BlockIndex(self.wild()? as u32);
        let flow = self.some_flow()?;
        match self.bytes.int_in_range(0..=8)? {
            0 => {
                let ready = SourceCommand::BlockReady { flow, block, repair: self.bytes.arbitrary()? };
                self.tell(source, Command::Source(ready));
            }
            1 => self.tell(source, Command::Source(SourceCommand::Withdraw { object: OBJECT })),
            2 => {
                let hold = SourceCommand::Hold { object: OBJECT, bytes: self.size };
                self.tell(source, Command::Source(hold));
                self.introduce(source);
            }
            3 => {
                let path = PathId(self.bytes.int_in_range(0..=HOSTS)?);
                self.tell(RECEIVER, Command::Receiver(FETCH, ReceiverCommand::FlowPath { flow, path }));
            }
            4 => {
                let path = PathId(CONTROL + self.bytes.int_in_range(1..=HOSTS)?);
                self.tell(CONTROLLER, Command::Controller(ControllerCommand::PathLost { path }));
            }
            5 => {
                // The controller dies and comes back with what it wrote down.
                self.controller = Controller::new(ControllerConfig::default(), [2; 32]);
                for record in self.records.values().cloned().collect::<Vec<_>>() {
                    self.tell(CONTROLLER, Command::Controller(ControllerCommand::Restore(Box::new(record))));
                }
                self.poll(CONTROLLER, None);
            }
            8 => {
                let path = PathId(self.bytes.int_in_range(0..=HOSTS)?);
                let fits = self.bytes.arbitrary()?;
                self.tell(source, Command::Source(SourceCommand::TooLong { path, fits }));
            }
            6 if self.bytes.ratio(1, 4)? => {
                self.tell(RECEIVER, Command::Receiver(FETCH, ReceiverCommand::Cancel))
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
            // What comes again, at whichever end.
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
                let push = Push {
                    task,
                    flow: if self.bytes.arbitrary()? { flow } else { FlowId(wild) },
                    object: OBJECT,
                    bytes: if self.bytes.ratio(7, 8)? { self.size } else { Bytes::new(wild) },
                    symbol_size: self.wild()? as u16,
                    key: FlowKey([0; 32]),
                    theta,
                    class: Class::Gentle,
                    receiver: node(RECEIVER),
                    delivery: Delivery::Push,
                    index: 0,
                    of: 1,
                    at: Vec::new(),
                    start: None,
                    role: FlowRole::Single,
                };
                (source, Control::Source(ToSource::Push(push)))
            }
            5 => {
                let keep = self.bytes.int_in_range(0..=self.grants.len())?;
                let mut flows = self.grants[..keep].to_vec();
                flows.extend(self.bytes.arbitrary::<bool>()?.then(|| FlowGrant {
                    flow: FlowId(wild),
                    node: node(source),
                    at: Vec::new(),
                    key: FlowKey([0; 32]),
                    index: 0,
                    of: 2,
                    group: None,
                    relays: false,
                    passed_on: true,
                }));
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
                    bytes: if self.bytes.arbitrary()? { self.size } else { Bytes::new(self.wild()?) },
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
