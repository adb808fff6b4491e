//! The data thread: one UDP socket, one source machine, any number of receivers, and the loop that drives them.

mod out;
mod watched;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver as Queue, Sender, channel};
use std::sync::{Arc, Mutex};

use headwater_store::SourceFile;
use headwater_transport::ppush::receiver::{Receiver, ReceiverConfig};
use headwater_transport::{
    Bind, Command, Endpoint, Event, Input, Opened, Output, Packet, ReceiverCommand, ReceiverEvent,
    SourceCommand, SourceEvent,
};
use headwater_units::{BlockIndex, FlowId, ObjectId, PathId, Time};
use headwater_wire::{Body, Control, Ecn, HeaderKey};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc::UnboundedSender;

use super::clock::monotonic_nanos;
use super::paths::Paths;
use super::receiving::{BlockSink, FetchEvent, Finished, Receiving};
use super::sending::{Prepared, Sources};
use super::tape::{Machine, Taped};
use super::timeline::{Timeline, TimelineFile};
use super::workers::Workers;
use super::{FetchId, Lossy, Said, Snapshot};
use crate::socket::{PathAddr, RecvBatch, SendBatch, UdpPort, Waker, wait};

/// What others ask of the data thread.
pub(super) enum Order {
    Control {
        path: PathId,
        control: Control,
    },
    Hold {
        object: ObjectId,
        file: Arc<SourceFile>,
    },
    Withdraw {
        object: ObjectId,
    },
    Fetch {
        id: FetchId,
        config: Box<ReceiverConfig>,
        record: Option<PathBuf>,
        events: UnboundedSender<FetchEvent>,
    },
    Start {
        id: FetchId,
        wanted: std::ops::Range<u32>,
        have: Vec<BlockIndex>,
        sink: Arc<dyn BlockSink>,
    },
    Cancel {
        id: FetchId,
    },
    Stop,
}

/// What workers hand back.
pub(super) enum Outcome {
    Assembled(FetchId, BlockIndex, Finished),
    Prepared(FlowId, BlockIndex, bool, Prepared),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Source,
    Receiver(FetchId),
}

struct FlowEntry {
    key: HeaderKey,
    owner: Owner,
}

/// Receive calls in a row before sending gets its turn.
const BATCHES_IN_A_ROW: usize = 4;
/// Keys of ended flows are kept for this many, so that a repeated FIN is understood.
const RETIRED: usize = 256;
/// The shared snapshot is refreshed this often.
const SNAPSHOT_EVERY: u64 = 100_000_000;
/// Bytes and groups of one send batch.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_GROUPS: usize = 64;

pub(super) struct Engine {
    port: UdpPort,
    waker: Waker,
    orders: Queue<Order>,
    results: Queue<Outcome>,
    own_results: Sender<Outcome>,
    said: UnboundedSender<Said>,
    workers: Workers<Outcome>,
    started: std::time::Instant,
    /// CLOCK_MONOTONIC when it started, nanoseconds.
    epoch: u64,
    timeline: Option<Timeline>,
    dscp: u8,
    dscp_control: u8,
    lossy: Option<(ChaCha8Rng, f64)>,
    sources: Sources,
    receivers: BTreeMap<FetchId, Receiving>,
    flows: BTreeMap<FlowId, FlowEntry>,
    retired: VecDeque<FlowId>,
    paths: Paths,
    out: SendBatch,
    /// Where the kernel refused datagrams as too long, until the source is told.
    too_long: Vec<PathAddr>,
    blocked: bool,
    shared: Arc<Mutex<Snapshot>>,
    next_snapshot: Time,
    strays: u64,
    dropped_on_purpose: u64,
    unsendable: u64,
}

pub(super) struct Parts {
    pub(super) port: UdpPort,
    pub(super) waker: Waker,
    pub(super) orders: Queue<Order>,
    pub(super) said: UnboundedSender<Said>,
    pub(super) workers: usize,
    pub(super) dscp: u8,
    pub(super) dscp_control: u8,
    pub(super) timeline: Option<TimelineFile>,
    pub(super) lossy: Option<Lossy>,
    pub(super) sources: Sources,
    pub(super) shared: Arc<Mutex<Snapshot>>,
}

impl Engine {
    #[allow(clippy::disallowed_methods)] // The clock of this thread's machines starts here.
    pub(super) fn new(parts: Parts) -> std::io::Result<Self> {
        let (own_results, results) = channel();
        let epoch = monotonic_nanos();
        let timeline = parts.timeline.map(|file| Timeline::start(file, epoch)).transpose()?;
        Ok(Engine {
            workers: Workers::start(parts.workers, &own_results, &parts.waker)?,
            port: parts.port,
            waker: parts.waker,
            orders: parts.orders,
            results,
            own_results,
            said: parts.said,
            started: std::time::Instant::now(),
            epoch,
            timeline,
            dscp: parts.dscp,
            dscp_control: parts.dscp_control,
            lossy: parts.lossy.map(|l| (ChaCha8Rng::seed_from_u64(l.seed), l.probability)),
            sources: parts.sources,
            receivers: BTreeMap::new(),
            flows: BTreeMap::new(),
            retired: VecDeque::new(),
            paths: Paths::default(),
            out: SendBatch::new(BATCH_BYTES, BATCH_GROUPS),
            too_long: Vec::new(),
            blocked: false,
            shared: parts.shared,
            next_snapshot: Time::ZERO,
            strays: 0,
            dropped_on_purpose: 0,
            unsendable: 0,
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.started.elapsed().as_nanos() as u64)
    }

    /// Runs until told to stop.
    pub(super) fn run(mut self) {
        let mut incoming = RecvBatch::new(RecvBatch::DEFAULT_BUFFERS);
        loop {
            if self.timeline.is_some() {
                self.sample_if_due(self.now());
            }
            if !self.take_orders() {
                break;
            }
            self.take_results();
            self.receive(&mut incoming);
            self.poll_due();
            self.flush();
            if !self.too_long.is_empty() && self.tell_too_long() {
                self.flush();
            }
            let now = self.now();
            if now >= self.next_snapshot {
                self.publish(now);
            }
            let wake = self.next_wake();
            let timeout = wake.map(|at| at.since(self.now()));
            match wait(&self.port, &self.waker, timeout, self.blocked) {
                Ok(ready) => self.blocked &= !ready.writable,
                Err(error) => tracing::error!(%error, "waiting for the data socket failed"),
            }
        }
        let now = self.now();
        self.flush();
        self.publish(now);
        self.end_timeline(now);
    }

    fn next_wake(&self) -> Option<Time> {
        let source = if self.blocked { None } else { self.sources.wake };
        let busy = !self.receivers.is_empty() || self.sources.is_sending();
        let snapshot = busy.then_some(self.next_snapshot);
        let sample = self.timeline.as_ref().and_then(Timeline::wake);
        self.receivers.values().filter_map(|r| r.wake).chain(source).chain(snapshot).chain(sample).min()
    }

    // ---- orders and results --------------------------------------------------------------------------------------

    fn take_orders(&mut self) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            let now = self.now();
            match order {
                Order::Stop => return false,
                Order::Control { path, control } => self.on_control(now, path, control),
                Order::Hold { object, file } => {
                    let bytes = file.size();
                    self.sources.hold(object, file);
                    self.tell_source(now, SourceCommand::Hold { object, bytes });
                }
                Order::Withdraw { object } => {
                    self.sources.withdraw(object);
                    self.tell_source(now, SourceCommand::Withdraw { object });
                }
                Order::Fetch { id, config, record, events } => self.fetch(id, config, record, events),
                Order::Start { id, wanted, have, sink } => {
                    if let Some(receiving) = self.receivers.get_mut(&id) {
                        receiving.sink = Some(sink);
                    }
                    self.tell_receiver(now, id, ReceiverCommand::Start { wanted, have });
                }
                Order::Cancel { id } => self.tell_receiver(now, id, ReceiverCommand::Cancel),
            }
        }
        true
    }

    fn fetch(
        &mut self,
        id: FetchId,
        config: Box<ReceiverConfig>,
        record: Option<PathBuf>,
        events: UnboundedSender<FetchEvent>,
    ) {
        let controller = config.controller;
        let made = config.clone();
        match Taped::new(Receiver::new(*config), || Machine::Receiver(made), record.as_deref()) {
            Ok(taped) => {
                self.receivers.insert(id, Receiving::new(taped, controller, events));
                self.drive_receiver(self.now(), id, None);
            }
            Err(source) => {
                let path = record.unwrap_or_default();
                let _ = events.send(FetchEvent::Unrecordable { path, source });
            }
        }
    }

    fn take_results(&mut self) {
        while let Ok(outcome) = self.results.try_recv() {
            let now = self.now();
            match outcome {
                Outcome::Assembled(id, block, outcome) => {
                    let Some(receiving) = self.receivers.get_mut(&id) else { continue };
                    let Some(input) = receiving.on_assembled(block, outcome) else { continue };
                    receiving.taped.handle(now, input);
                    self.drive_receiver(now, id, None);
                }
                Outcome::Prepared(flow, block, repair, Ok(encoder)) => {
                    self.sources.on_prepared(flow, block, encoder);
                    self.tell_source(now, SourceCommand::BlockReady { flow, block, repair });
                }
                Outcome::Prepared(flow, block, _, Err(error)) => {
                    let Some(object) = self.sources.object_of(flow) else { continue };
                    tracing::warn!(%object, block = block.0, %error, "object withdrawn");
                    self.sources.withdraw(object);
                    let _ = self.said.send(Said::Unreadable(object));
                    self.tell_source(now, SourceCommand::Withdraw { object });
                }
            }
        }
    }

    fn submit(&mut self, job: impl FnOnce() -> Outcome + Send + 'static) {
        if let Some(outcome) = self.workers.submit(job) {
            let _ = self.own_results.send(outcome);
            self.waker.wake();
        }
    }

    fn on_control(&mut self, now: Time, path: PathId, control: Control) {
        if is_for_source(&control) {
            self.hand_to_source(now, Input::Packet(Packet::control(path, control)));
            self.drive_source(now);
            return;
        }
        let ids: Vec<FetchId> =
            self.receivers.iter().filter(|(_, r)| r.controller == path).map(|(&id, _)| id).collect();
        for id in ids {
            if let Some(receiving) = self.receivers.get_mut(&id) {
                receiving.taped.handle(now, Input::Packet(Packet::control(path, control.clone())));
            }
            self.drive_receiver(now, id, None);
        }
    }

    fn tell_source(&mut self, now: Time, command: SourceCommand) {
        self.hand_to_source(now, Input::Command(Command::Source(command)));
        self.drive_source(now);
    }

    fn tell_receiver(&mut self, now: Time, id: FetchId, command: ReceiverCommand) {
        if let Some(receiving) = self.receivers.get_mut(&id) {
            receiving.taped.handle(now, Input::Command(Command::Receiver(command)));
            self.drive_receiver(now, id, None);
        }
    }

    // ---- datagrams in --------------------------------------------------------------------------------------------

    fn receive(&mut self, batch: &mut RecvBatch) {
        for _ in 0..BATCHES_IN_A_ROW {
            match self.port.recv(batch) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "receiving failed");
                    return;
                }
            }
            let now = self.now();
            let full = batch.is_full();
            for datagram in batch.datagrams() {
                self.on_datagram(now, datagram.bytes, datagram.from, datagram.tos);
            }
            // The sources' answers to the ACKs of this batch leave together.
            self.drive_source(now);
            self.flush();
            if !full {
                return;
            }
        }
    }

    fn on_datagram(&mut self, now: Time, bytes: &[u8], from: PathAddr, tos: Option<u8>) {
        let Some((flow, entry)) =
            headwater_wire::peek_flow(bytes).and_then(|f| Some((f, self.flows.get(&f)?)))
        else {
            self.strays += 1;
            return;
        };
        let Ok(parsed) = headwater_wire::parse(bytes, &entry.key) else {
            self.strays += 1;
            return;
        };
        let owner = entry.owner;
        // Orders come over control links, whose peer is known; a flow's key gives no right to give any.
        if matches!(parsed.datagram.body, Body::Control(_)) {
            self.strays += 1;
            return;
        }
        if let Body::Symbol(header) = &parsed.datagram.body {
            if let Some((rng, probability)) = &mut self.lossy
                && rng.random_bool(*probability)
            {
                self.dropped_on_purpose += 1;
                return;
            }
            let expected = match owner {
                Owner::Receiver(id) => self.receivers.get(&id).and_then(Receiving::symbol_size),
                Owner::Source => None,
            };
            if !header.trimmed && expected.is_none_or(|t| usize::from(t) != parsed.payload.len()) {
                self.strays += 1;
                return;
            }
        }
        let packet = Packet {
            path: self.paths.of(from),
            // A lost control message says nothing about marks: as if the field had been bleached.
            ecn: tos.map_or(Ecn::NotEct, Ecn::from_tos),
            datagram: parsed.datagram,
        };
        match owner {
            Owner::Source => self.hand_to_source(now, Input::Packet(packet)),
            Owner::Receiver(id) => {
                if let Some(receiving) = self.receivers.get_mut(&id) {
                    receiving.taped.handle(now, Input::Packet(packet));
                    self.drive_receiver(now, id, Some(parsed.payload));
                }
            }
        }
        debug_assert!(self.flows.contains_key(&flow) || owner != Owner::Source);
    }

    // ---- machines ------------------------------------------------------------------------------------------------

    fn poll_due(&mut self) {
        let now = self.now();
        if self.sources.wake.is_some_and(|at| at <= now) {
            self.drive_source(now);
        }
        let due: Vec<FetchId> = self
            .receivers
            .iter()
            .filter(|(_, r)| r.wake.is_some_and(|at| at <= now))
            .map(|(&id, _)| id)
            .collect();
        for id in due {
            self.drive_receiver(now, id, None);
        }
    }

    /// Polls a receiver until it wants to wait. `payload` is that of the symbol just handed in.
    fn drive_receiver(&mut self, now: Time, id: FetchId, payload: Option<&[u8]>) {
        loop {
            let Some(receiving) = self.receivers.get_mut(&id) else { return };
            match receiving.taped.poll(now) {
                Output::Wake(at) => {
                    receiving.wake = at;
                    if receiving.taped.machine.has_ended() {
                        self.forget_receiver(id);
                    }
                    return;
                }
                Output::Transmit(packet) => self.transmit(packet),
                Output::Event(Event::Receiver(event)) => self.on_receiver_event(now, id, event, payload),
                Output::Event(_) => unreachable!("a receiver has receiver events"),
            }
        }
    }

    fn forget_receiver(&mut self, id: FetchId) {
        if let Some(receiving) = self.receivers.remove(&id) {
            for flow in receiving.flows() {
                self.flows.remove(flow);
            }
            let _ = receiving.events.send(FetchEvent::Ended);
        }
    }

    fn on_receiver_event(&mut self, now: Time, id: FetchId, event: ReceiverEvent, payload: Option<&[u8]>) {
        self.watch_receiver(now, id, &event);
        let Some(receiving) = self.receivers.get_mut(&id) else { return };
        match event {
            ReceiverEvent::Symbol { symbol, .. } => {
                let payload = payload.expect("a symbol is named right after its datagram was handed in");
                receiving.keep_symbol(symbol, payload);
            }
            ReceiverEvent::Decode { block } => {
                if let Some(job) = receiving.assemble(block) {
                    self.submit(move || Outcome::Assembled(id, block, job()));
                }
            }
            ReceiverEvent::Discard { block } => receiving.discard(block),
            ReceiverEvent::Accepted { object, bytes, symbol_size, .. } => {
                receiving.cut(object, bytes, symbol_size);
                let _ = receiving.events.send(FetchEvent::Accepted { object, bytes, symbol_size });
            }
            ReceiverEvent::Bind(bind) => {
                let Bind { flow, at, key, .. } = *bind;
                receiving.bind(flow);
                let path = self.paths.towards(&at);
                let entry = FlowEntry { key: HeaderKey::new(&key), owner: Owner::Receiver(id) };
                self.flows.insert(flow, entry);
                let command = ReceiverCommand::FlowPath { flow, path };
                receiving.taped.handle(now, Input::Command(Command::Receiver(command)));
            }
            ReceiverEvent::Unbind { flow } => {
                receiving.unbind(flow);
                self.flows.remove(&flow);
            }
            ReceiverEvent::Distrusted { node } => {
                let _ = receiving.events.send(FetchEvent::Distrusted(node));
            }
            // Of receivers of many flows, which no node runs.
            ReceiverEvent::Progress { .. } | ReceiverEvent::Complete { .. } => {}
            ReceiverEvent::Done => {
                let stats = Box::new(receiving.taped.machine.stats(now));
                let at_ns = self.epoch + now.as_nanos();
                let _ = receiving.events.send(FetchEvent::Done { stats, at_ns });
            }
            ReceiverEvent::Failed(failure) => {
                let stats = Box::new(receiving.taped.machine.stats(now));
                let _ = receiving.events.send(FetchEvent::Failed(failure, stats));
            }
        }
    }

    /// Polls the source machine until it wants to wait, unless the socket is full: then it is asked later, and the
    /// symbols it names then carry the time at which they really leave.
    fn drive_source(&mut self, now: Time) {
        while !self.blocked {
            match self.sources.taped.poll(now) {
                Output::Wake(at) => {
                    self.sources.wake = at;
                    return;
                }
                Output::Transmit(packet) => self.transmit(packet),
                Output::Event(Event::Source(event)) => self.on_source_event(now, event),
                Output::Event(_) => unreachable!("a source has source events"),
            }
        }
        self.sources.wake = Some(now);
    }

    fn on_source_event(&mut self, now: Time, event: SourceEvent) {
        self.watch_source(now, &event);
        match event {
            SourceEvent::Opened(opened) => {
                let Opened { flow, key, object, symbol_size, .. } = *opened;
                self.sources.open(flow, object, symbol_size);
                let entry = FlowEntry { key: HeaderKey::new(&key), owner: Owner::Source };
                self.flows.insert(flow, entry);
            }
            SourceEvent::Closed { flow } => {
                self.sources.close(flow);
                self.retired.push_back(flow);
                if self.retired.len() > RETIRED
                    && let Some(oldest) = self.retired.pop_front()
                {
                    self.flows.remove(&oldest);
                }
            }
            SourceEvent::Prepare { flow, block, repair } => {
                if let Some(job) = self.sources.prepare(flow, block, repair) {
                    self.submit(move || Outcome::Prepared(flow, block, repair, job()));
                }
            }
            SourceEvent::Release { flow, block } => self.sources.release(flow, block),
        }
    }

    fn publish(&mut self, now: Time) {
        self.next_snapshot = Time::from_nanos(now.as_nanos() + SNAPSHOT_EVERY);
        let receivers = self.receivers.iter_mut().map(|(&id, r)| (id, r.taped.machine.stats(now))).collect();
        let snapshot = Snapshot {
            receivers,
            flows: self.sources.taped.machine.flows().collect(),
            socket: *self.port.stats(),
            strays: self.strays,
            dropped_on_purpose: self.dropped_on_purpose,
            unsendable: self.unsendable,
        };
        if let Ok(mut shared) = self.shared.lock() {
            *shared = snapshot;
        }
    }
}

fn is_for_source(control: &Control) -> bool {
    matches!(
        control,
        Control::Push(_)
            | Control::SetTheta { .. }
            | Control::Pause { .. }
            | Control::Resume { .. }
            | Control::Stop { .. }
    )
}
