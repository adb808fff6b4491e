//! The data thread: one UDP socket and those of groups, one machine for all that is sent and one for all that is received, and the loop that
//! drives them.

mod arriving;
mod groups;
mod out;
mod relaying;
mod trees;
mod watched;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver as Queue;
use std::sync::{Arc, Mutex};

use headwater_machine::{Endpoint, Input, Output, Packet, SortedMap};
use headwater_store::{SourceFile, StoreError};
use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_transport::{
    Arriving, Bind, FromFetch, Opened, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent, ToFetch,
};
use headwater_udp::{
    GroupAddr, Merging, PathAddr, RecvBatch, SendBatch, TrimmedBatch, TrimmedPort, UdpPort, Waker, doze,
    wait_with,
};
use headwater_units::{BitRate, BlockIndex, FetchId, FlowId, ObjectId, PathId, Time};
use headwater_wire::{CodePoints, Control, FlowSecret, GroupQuestion, HeaderKey, Spoiled};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::buffers::Buffers;
use super::clock::monotonic_nanos;
use super::naps::Naps;
use super::paths::Paths;
use super::receiving::{BlockSink, FetchEvent, Fetches, Finished, Receiving};
use super::sending::{Prepared, Sources};
use super::timeline::{Timeline, TimelineFile};
use super::workers::Workers;
use super::{Lossy, Said, Snapshot};
use groups::Groups;
pub(crate) use groups::MAX_JOINED;
use trees::TreesHere;

/// What others ask of the data thread.
pub(crate) enum Order {
    Control { path: PathId, control: Control },
    Hold { object: ObjectId, file: Arc<SourceFile> },
    Withdraw { object: ObjectId },
    Fetch { id: FetchId, config: Box<ReceiverConfig>, events: UnboundedSender<FetchEvent> },
    Start { id: FetchId, wanted: std::ops::Range<u32>, have: Vec<BlockIndex>, sink: Arc<dyn BlockSink> },
    GoOn { id: FetchId },
    Cancel { id: FetchId },
    Join { group: GroupAddr, port: Box<UdpPort> },
    Leave { group: GroupAddr },
    AnswerProbes { asked: FlowSecret, own: FlowSecret },
    IgnoreProbes { asked: FlowId },
    ProbeGroup { group: GroupAddr, question: Box<GroupQuestion>, done: oneshot::Sender<Vec<FlowId>> },
    HandOver { done: oneshot::Sender<()> },
    Look { done: oneshot::Sender<()> },
    Limit { limit: Option<BitRate> },
    Stop,
}

/// What workers hand back.
pub(crate) enum Outcome {
    Assembled(FetchId, BlockIndex, Finished),
    Prepared(FlowId, BlockIndex, bool, Prepared),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Source,
    /// All symbols of the flow have this size.
    Receivers {
        symbol_size: u16,
        /// What comes by it may be passed on.
        passed_on: bool,
    },
}

/// What was in the datagram that has just been handed in.
#[derive(Clone, Copy)]
struct Came<'a> {
    payload: &'a [u8],
    /// It may be passed on: it is not of a class that others pass on.
    passed_on: bool,
}

struct FlowEntry {
    key: HeaderKey,
    owner: Owner,
    /// Where a source need not ask whether the receiver is there, until it has been seen there.
    vouched: Vec<SocketAddr>,
}

/// Keys of ended flows are kept for this many, so that a repeated FIN is understood.
const RETIRED: usize = 256;
/// The shared snapshot is refreshed this often.
const SNAPSHOT_EVERY: u64 = 100_000_000;
/// Bytes and groups of one send batch.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_GROUPS: usize = 64;

pub(crate) struct Engine {
    port: UdpPort,
    groups: Groups,
    trees: TreesHere,
    /// Where trimmed datagrams are seen, if they are.
    trimmed: Option<(TrimmedPort, TrimmedBatch)>,
    /// Which sockets beside `port` have something to read: `trimmed`'s, then those of groups.
    ready: u64,
    waker: Waker,
    orders: Queue<Order>,
    said: UnboundedSender<Said>,
    workers: Workers<Outcome>,
    /// What workers handed back last; empty but for its room.
    results: Vec<Outcome>,
    buffers: Buffers,
    started: std::time::Instant,
    /// CLOCK_MONOTONIC when it started, nanoseconds.
    epoch: u64,
    timeline: Option<Timeline>,
    dscp: CodePoints,
    lossy: Option<(ChaCha8Rng, f64)>,
    sources: Sources,
    fetches: Fetches,
    flows: SortedMap<FlowId, Box<FlowEntry>>,
    retired: VecDeque<FlowId>,
    paths: Paths,
    out: SendBatch,
    /// Where the kernel refused datagrams as too long, until the source is told.
    too_long: Vec<PathAddr>,
    blocked: bool,
    shared: Arc<Mutex<Snapshot>>,
    next_snapshot: Time,
    last_snapshot: Time,
    /// The last snapshot was of a busy thread.
    was_busy: bool,
    merging: Merging,
    waits: u64,
    /// `None`: it never rests.
    naps: Option<Naps>,
    /// Control messages cut off, as far as the log says.
    told_truncated: u64,
    strays: u64,
    trimmed_symbols: u64,
    /// Symbols came that are the first of a flow whose receiver pulls.
    pulls: bool,
    dropped_on_purpose: u64,
    unsendable: u64,
}

pub(crate) struct Parts {
    pub(crate) port: UdpPort,
    pub(crate) trimmed: Option<TrimmedPort>,
    pub(crate) waker: Waker,
    pub(crate) orders: Queue<Order>,
    pub(crate) said: UnboundedSender<Said>,
    pub(crate) workers: usize,
    pub(crate) dscp: CodePoints,
    pub(crate) timeline: Option<TimelineFile>,
    pub(crate) naps: bool,
    pub(crate) lossy: Option<Lossy>,
    pub(crate) sources: Sources,
    pub(crate) fetches: Fetches,
    pub(crate) shared: Arc<Mutex<Snapshot>>,
}

impl Engine {
    #[allow(clippy::disallowed_methods)] // The clock of this thread's machines starts here.
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        let epoch = monotonic_nanos();
        let timeline = parts.timeline.map(|file| Timeline::start(file, epoch)).transpose()?;
        Ok(Engine {
            workers: Workers::start(parts.workers, &parts.waker)?,
            results: Vec::new(),
            buffers: Buffers::default(),
            port: parts.port,
            groups: Groups::default(),
            trees: TreesHere::default(),
            trimmed: parts.trimmed.map(|port| (port, TrimmedBatch::default())),
            ready: 0,
            waker: parts.waker,
            orders: parts.orders,
            said: parts.said,
            started: std::time::Instant::now(),
            epoch,
            timeline,
            dscp: parts.dscp,
            lossy: parts.lossy.map(|l| (ChaCha8Rng::seed_from_u64(l.seed), l.probability)),
            sources: parts.sources,
            fetches: parts.fetches,
            flows: SortedMap::default(),
            retired: VecDeque::new(),
            paths: Paths::default(),
            out: SendBatch::new(BATCH_BYTES, BATCH_GROUPS),
            too_long: Vec::new(),
            blocked: false,
            shared: parts.shared,
            next_snapshot: Time::ZERO,
            last_snapshot: Time::ZERO,
            was_busy: false,
            merging: Merging::default(),
            waits: 0,
            naps: parts.naps.then(Naps::default),
            told_truncated: 0,
            strays: 0,
            trimmed_symbols: 0,
            pulls: false,
            dropped_on_purpose: 0,
            unsendable: 0,
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.started.elapsed().as_nanos() as u64)
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
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
            if self.groups.probes.wake().is_some_and(|at| at <= self.now()) {
                self.groups.probes.tick(self.now());
                self.do_as_probes_say();
            }
            if self.trees.machine.wake().is_some_and(|at| at <= self.now()) {
                self.trees.machine.tick(self.now());
                self.tend_trees(self.now());
            }
            self.flush();
            if !self.too_long.is_empty() && self.tell_too_long() {
                self.flush();
            }
            let now = self.now();
            if now >= self.next_snapshot {
                self.publish(now);
            }
            if !self.is_busy() {
                self.buffers.clear();
            }
            self.rest(now);
            let wake = self.next_wake();
            let timeout = wake.map(|at| at.since(self.now()));
            self.waits += 1;
            let further =
                self.trimmed.iter().flat_map(|it| it.0.descriptors()).chain(self.groups.descriptors());
            match wait_with(&self.port, further, &self.waker, timeout, self.blocked) {
                Ok(ready) => {
                    self.blocked &= !ready.writable;
                    self.ready = ready.further;
                }
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
        // Once more when all is over, or the last one would say for ever that it is not.
        let snapshot = (self.is_busy() || self.was_busy).then_some(self.next_snapshot);
        let sample = self.timeline.as_ref().and_then(Timeline::wake);
        let probe = self.groups.probes.wake().into_iter().chain(self.trees.machine.wake());
        self.fetches.wake.into_iter().chain(source).chain(snapshot).chain(sample).chain(probe).min()
    }

    /// Lets packets gather before the next round, while they are many and may.
    fn rest(&mut self, now: Time) {
        let Engine { naps: Some(naps), sources, fetches, trees, .. } = self else { return };
        let slack = || {
            let both = sources.taped.machine.slack().into_iter().chain(fetches.taped.machine.slack());
            both.min().filter(|_| trees.machine.is_empty())
        };
        // A socket that is full is waited for.
        let moved = self.port.stats();
        let datagrams = moved.datagrams_sent + moved.datagrams_received;
        if let Some(rest) = naps.after_round(now, datagrams, slack).filter(|_| !self.blocked) {
            self.waits += 1;
            if let Err(error) = doze(&self.waker, rest) {
                tracing::error!(%error, "waiting for orders failed");
            }
        }
    }

    fn is_busy(&self) -> bool {
        !self.fetches.running.is_empty() || self.sources.is_sending()
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
                Order::Fetch { id, config, events } => {
                    self.fetches.running.insert(id, Box::new(Receiving::new(events)));
                    self.tell_receivers(now, id, ReceiverCommand::Fetch(config));
                }
                Order::Start { id, wanted, have, sink } => {
                    if let Some(receiving) = self.fetches.running.get_mut(&id) {
                        receiving.sink = Some(sink.clone());
                    }
                    self.begin_relaying(now, id, &have, &sink);
                    self.tell_receivers(now, id, ReceiverCommand::Start { wanted, have });
                }
                Order::GoOn { id } => self.go_on(now, id),
                Order::Cancel { id } => self.tell_receivers(now, id, ReceiverCommand::Cancel),
                Order::Join { group, port } => self.join(group, *port),
                Order::Leave { group } => self.leave(&group),
                Order::AnswerProbes { asked, own } => self.groups.probes.answer(&asked, &own),
                Order::IgnoreProbes { asked } => self.groups.probes.ignore(asked),
                Order::ProbeGroup { group, question, done } => {
                    self.probe_group(now, &group, &question, done);
                }
                Order::HandOver { done } => {
                    self.end_all_relaying(now);
                    let _ = done.send(());
                }
                Order::Look { done } => {
                    self.publish(now);
                    let _ = done.send(());
                }
                Order::Limit { limit } => self.tell_source(now, SourceCommand::Limit { limit }),
            }
        }
        true
    }

    fn take_results(&mut self) {
        let mut results = std::mem::take(&mut self.results);
        self.workers.take_results(&mut results);
        for outcome in results.drain(..) {
            self.on_outcome(outcome);
        }
        self.results = results;
    }

    fn on_outcome(&mut self, outcome: Outcome) {
        let now = self.now();
        match outcome {
            Outcome::Assembled(id, block, outcome) => {
                let Some(receiving) = self.fetches.running.get_mut(&id) else { return };
                if let Some(command) = receiving.on_assembled(block, outcome, &mut self.buffers)
                    && !receiving.holds_back(&command)
                {
                    self.assembled(now, id, &command);
                    self.tell_receivers(now, id, command);
                }
            }
            Outcome::Prepared(flow, block, repair, Ok(encoder)) => {
                self.sources.on_prepared(flow, block, encoder, &mut self.buffers);
                self.tell_source(now, SourceCommand::BlockReady { flow, block, repair });
            }
            Outcome::Prepared(flow, block, _, Err(error)) => {
                let Some(object) = self.sources.object_of(flow) else { return };
                if !self.sources.holds(object) {
                    tracing::warn!(%object, block = block.0, %error, "object not passed on");
                    return self.end_relaying(now, object);
                }
                tracing::warn!(%object, block = block.0, %error, "object withdrawn");
                self.sources.withdraw(object);
                let how = match error {
                    StoreError::ObjectChanged { .. } => Spoiled::Changed,
                    _ => Spoiled::Unreadable,
                };
                let _ = self.said.send(Said::Unreadable(object, how));
                self.tell_source(now, SourceCommand::Withdraw { object });
            }
        }
    }

    /// Whoever takes the blocks of a fetch has come on: the machine hears of those that were held back.
    fn go_on(&mut self, now: Time, id: FetchId) {
        let ready = self.fetches.running.get_mut(&id).map(|it| it.go_on()).unwrap_or_default();
        for block in ready {
            let command = ReceiverCommand::BlockDecoded { block };
            self.assembled(now, id, &command);
            self.tell_receivers(now, id, command);
        }
    }

    fn on_control(&mut self, now: Time, path: PathId, control: Control) {
        match control {
            Control::Node(order) => self.on_tree_order(now, path, order),
            Control::Source(order) => {
                self.hand_to_source(now, Input::Packet(Packet::control(path, order)));
                self.drive_source(now);
            }
            Control::Receiver(answer) => {
                self.fetches.taped.handle(now, Input::Packet(Packet::control(path, answer)));
                self.drive_receivers(now, None);
            }
            // No machine here is a controller.
            Control::Controller(_) => self.strays += 1,
        }
    }

    fn tell_source(&mut self, now: Time, command: SourceCommand) {
        self.hand_to_source(now, Input::Command(command));
        self.drive_source(now);
    }

    fn tell_receivers(&mut self, now: Time, id: FetchId, command: ReceiverCommand) {
        self.fetches.taped.handle(now, Input::Command(ToFetch(id, command)));
        self.drive_receivers(now, None);
    }

    // ---- machines ------------------------------------------------------------------------------------------------

    fn poll_due(&mut self) {
        let now = self.now();
        if self.sources.wake.is_some_and(|at| at <= now) {
            self.drive_source(now);
        }
        if self.fetches.wake.is_some_and(|at| at <= now) {
            self.drive_receivers(now, None);
        }
    }

    /// Polls the receiving machine until it wants to wait. `came` is with the symbol just handed in.
    fn drive_receivers(&mut self, now: Time, came: Option<Came<'_>>) {
        loop {
            match self.fetches.taped.poll(now) {
                Output::Wake(at) => {
                    self.fetches.wake = at;
                    return self.hand_held(now);
                }
                Output::Transmit(packet) => self.transmit(packet),
                Output::Event(FromFetch(id, ReceiverEvent::Symbol { symbol, .. })) => {
                    let came = came.expect("a symbol is named right after its datagram was handed in");
                    if let Some(receiving) = self.fetches.running.get_mut(&id)
                        && receiving.keep_symbol(symbol, came.payload, &mut self.buffers)
                        && came.passed_on
                        && let Some(object) =
                            receiving.object().filter(|object| self.sources.passes_on(*object))
                    {
                        self.pass_on(now, object, Arriving::Symbol(symbol));
                    }
                }
                Output::Event(FromFetch(id, event)) => self.on_receiver_event(now, id, event),
            }
        }
    }

    fn on_receiver_event(&mut self, now: Time, id: FetchId, event: ReceiverEvent) {
        self.watch_receiver(now, id, &event);
        self.relay_what_happens(now, id, &event);
        let Some(receiving) = self.fetches.running.get_mut(&id) else { return };
        match event {
            ReceiverEvent::Symbol { .. } => unreachable!("kept where its payload is at hand"),
            ReceiverEvent::Decode { block } => {
                if let Some(job) = receiving.assemble(block) {
                    self.workers.submit(move || Outcome::Assembled(id, block, job()));
                }
            }
            ReceiverEvent::Discard { block } => receiving.discard(block, &mut self.buffers),
            ReceiverEvent::Accepted { object, bytes, symbol_size, .. } => {
                receiving.cut(object, bytes, symbol_size, &mut self.buffers);
                let _ = receiving.events.send(FetchEvent::Accepted { object, bytes, symbol_size });
            }
            ReceiverEvent::Bind(bind) => {
                let Bind { flow, node, at, key, passed_on, .. } = *bind;
                let path = self.paths.towards(&at);
                let _ = receiving.events.send(FetchEvent::Source { flow, node, at });
                let symbol_size = receiving.symbol_size().expect("a flow is granted with its object");
                let owner = Owner::Receivers { symbol_size, passed_on };
                let entry = FlowEntry { key: HeaderKey::new(&key), owner, vouched: Vec::new() };
                self.flows.insert(flow, Box::new(entry));
                // Polled by the loop that is running.
                let command = ReceiverCommand::FlowPath { flow, path };
                self.fetches.taped.handle(now, Input::Command(ToFetch(id, command)));
            }
            ReceiverEvent::Moved(bind) => {
                let Bind { flow, node, at, .. } = *bind;
                let path = self.paths.towards(&at);
                let _ = receiving.events.send(FetchEvent::Source { flow, node, at });
                // Polled by the loop that is running.
                let command = ReceiverCommand::FlowPath { flow, path };
                self.fetches.taped.handle(now, Input::Command(ToFetch(id, command)));
            }
            ReceiverEvent::Unbind { flow } => {
                self.flows.remove(&flow);
                let _ = receiving.events.send(FetchEvent::SourceOver { flow });
            }
            ReceiverEvent::Distrusted { node } => {
                let _ = receiving.events.send(FetchEvent::Distrusted(node));
            }
            ReceiverEvent::Done => {
                let at_ns = self.epoch + now.as_nanos();
                self.tell_fetcher(now, id, |stats| FetchEvent::Done { stats, at_ns });
            }
            ReceiverEvent::Failed(failure) => {
                self.tell_fetcher(now, id, |stats| FetchEvent::Failed(failure, stats));
            }
            ReceiverEvent::Ended => {
                receiving.discard_all(&mut self.buffers);
                let _ = receiving.events.send(FetchEvent::Ended);
                self.fetches.running.remove(&id);
                // A process that has got what it wanted may end without waiting for this thread.
                self.fetches.taped.flush();
            }
        }
    }

    /// Tells whoever asked for an object what came of it.
    fn tell_fetcher(&mut self, now: Time, id: FetchId, event: impl FnOnce(Box<ReceiverStats>) -> FetchEvent) {
        let stats = Box::new(self.fetches.stats(now, id));
        if let Some(receiving) = self.fetches.running.get(&id) {
            let _ = receiving.events.send(event(stats));
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
                Output::Event(event) => self.on_source_event(now, event),
            }
        }
        self.sources.wake = Some(now);
    }

    fn on_source_event(&mut self, now: Time, event: SourceEvent) {
        self.watch_source(now, &event);
        match event {
            SourceEvent::Opened(opened) => {
                let Opened { flow, key, object, bytes, symbol_size, at, .. } = *opened;
                self.sources.open(flow, object, bytes, symbol_size);
                if let Some(stats) = self.sources.taped.machine.flow(flow) {
                    let _ = self.said.send(Said::Sending { flow, object, receiver: stats.receiver });
                }
                if let Some(path) = self.group_path(&at) {
                    // Polled by the loop that is running.
                    let command = SourceCommand::FlowPath { flow, path };
                    self.hand_to_source(now, Input::Command(command));
                }
                self.trees.machine.source_opened(flow);
                self.tend_trees(now);
                let entry = FlowEntry { key: HeaderKey::new(&key), owner: Owner::Source, vouched: at };
                self.flows.insert(flow, Box::new(entry));
            }
            SourceEvent::Closed { flow } => {
                let _ = self.said.send(Said::Sent(flow));
                self.sources.close(flow, &mut self.buffers);
                self.trees.machine.source_closed(flow);
                self.retired.push_back(flow);
                if self.retired.len() > RETIRED
                    && let Some(oldest) = self.retired.pop_front()
                {
                    self.flows.remove(&oldest);
                }
            }
            SourceEvent::Prepare { flow, block, repair } => {
                if let Some(job) = self.sources.prepare(flow, block, repair, &mut self.buffers) {
                    self.workers.submit(move || Outcome::Prepared(flow, block, repair, job()));
                }
            }
            SourceEvent::Release { flow, block } => self.sources.release(flow, block, &mut self.buffers),
            SourceEvent::Wanted { object, block, class, symbols } => {
                self.want_more(now, object, ReceiverCommand::Wanted { block, class, symbols });
            }
        }
    }

    fn publish(&mut self, now: Time) {
        self.next_snapshot = Time::from_nanos(now.as_nanos() + SNAPSHOT_EVERY);
        let socket = *self.port.stats() + self.groups.stats();
        self.merging.look(now.since(self.last_snapshot), &socket);
        self.was_busy = self.is_busy();
        self.last_snapshot = now;
        if socket.control_truncated > self.told_truncated {
            let buffers = socket.control_truncated - self.told_truncated;
            tracing::error!(buffers, "control messages were cut off: marks of these datagrams are lost");
            self.told_truncated = socket.control_truncated;
        }
        let Fetches { taped, running, .. } = &mut self.fetches;
        let ids = running.iter().map(|(&id, _)| id);
        let receivers = ids.filter_map(|id| Some((id, taped.machine.stats(now, id)?))).collect();
        let snapshot = Snapshot {
            receivers,
            flows: self.sources.taped.machine.flows().collect(),
            sources: self.sources.taped.machine.stats(),
            socket,
            offload: self.port.offload(),
            merging: self.merging,
            waits: self.waits,
            strays: self.strays,
            trimmed: self.trimmed_symbols,
            sees_trimmed: self.trimmed.is_some(),
            pulls: self.pulls,
            dropped_on_purpose: self.dropped_on_purpose,
            unsendable: self.unsendable,
        };
        if let Ok(mut shared) = self.shared.lock() {
            *shared = snapshot;
        }
    }
}
