//! The data thread: it moves bytes and time for one [`headwater_node::Node`].
//!
//! ```text
//!   orders, results of workers, sockets --> Node --> acting: packets out, blocks to workers, events to whoever asked
//! ```

mod acting;
mod arriving;
mod groups;
mod jobs;
mod out;
mod parcel;
mod resting;
mod snapshots;
mod sockets;
mod watched;

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver as Queue;
use std::sync::{Arc, Mutex};

use headwater_machine::Taker;
use headwater_node::{GroupProbesConfig, Node, ProbeId};
use headwater_store::{SourceFile, StoreError};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::{ReceiverCommand, SourceCommand};
use headwater_udp::{GroupAddr, PathAddr, RecvBatch, UdpPort, Waker};
use headwater_units::{BitRate, BlockIndex, FetchId, FlowId, ObjectId, PathId, Time};
use headwater_wire::{CodePoints, Control, FlowSecret, GroupQuestion, Push, Spoiled};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::clock::monotonic_nanos;
use super::paths::Paths;
use super::receiving::{BlockSink, FetchEvent, Fetches, Receiving};
use super::sending::Sources;
use super::timeline::{Timeline, TimelineFile};
use super::{NodeEvent, Snapshot};
pub(crate) use groups::MAX_JOINED;
use jobs::{Jobs, Outcome};
use parcel::Copy;
use resting::Resting;
use snapshots::Snapshots;
use sockets::Sockets;
pub(crate) use watched::{ReceiversHere, SourceHere};

/// Orders to the data thread.
pub(crate) enum Order {
    Control { path: PathId, control: Box<Control> },
    PushOfCaller { path: PathId, caller: Taker, push: Box<Push> },
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

/// The clock of this thread's machines.
struct Clock {
    started: std::time::Instant,
    /// CLOCK_MONOTONIC when it started, nanoseconds.
    epoch: u64,
}

impl Clock {
    #[allow(clippy::disallowed_methods)] // The clock of this thread's machines starts here.
    fn start() -> Self {
        let epoch = monotonic_nanos();
        Clock { started: std::time::Instant::now(), epoch }
    }

    /// A time by CLOCK_MONOTONIC, nanoseconds.
    fn monotonic(&self, time: Time) -> u64 {
        self.epoch + time.as_nanos()
    }
}

pub(crate) struct Engine {
    clock: Clock,
    node: Node<SourceHere, ReceiversHere, Copy, PathAddr>,
    sockets: Sockets,
    paths: Paths,
    sources: Sources,
    fetches: Fetches,
    jobs: Jobs,
    orders: Queue<Order>,
    events: UnboundedSender<NodeEvent>,
    /// Callers that wait for the members of a group that have answered, by probe.
    askers: BTreeMap<ProbeId, oneshot::Sender<Vec<FlowId>>>,
    resting: Resting,
    snapshots: Snapshots,
    timeline: Option<Timeline>,
}

pub(crate) struct Parts {
    pub(crate) port: UdpPort,
    /// Whether to look for trimmed packets once somebody has a use for them.
    pub(crate) may_look: bool,
    pub(crate) waker: Waker,
    pub(crate) orders: Queue<Order>,
    pub(crate) events: UnboundedSender<NodeEvent>,
    pub(crate) workers: usize,
    pub(crate) dscp: CodePoints,
    pub(crate) timeline: Option<TimelineFile>,
    pub(crate) interrupt_moderation: bool,
    pub(crate) source: SourceHere,
    pub(crate) receivers: ReceiversHere,
    pub(crate) shared: Arc<Mutex<Snapshot>>,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        let clock = Clock::start();
        let timeline = parts.timeline.map(|file| Timeline::start(file, clock.epoch)).transpose()?;
        Ok(Engine {
            clock,
            node: Node::new(parts.source, parts.receivers, GroupProbesConfig::default()),
            sockets: Sockets::new(parts.port, parts.may_look, parts.dscp),
            paths: Paths::default(),
            sources: Sources::default(),
            fetches: Fetches::default(),
            jobs: Jobs::start(parts.workers, &parts.waker)?,
            orders: parts.orders,
            events: parts.events,
            askers: BTreeMap::new(),
            resting: Resting::new(parts.waker, parts.interrupt_moderation),
            snapshots: Snapshots::new(parts.shared),
            timeline,
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.started.elapsed().as_nanos() as u64)
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
            self.drive(self.now());
            self.sockets.flush();
            if self.tell_too_long() {
                self.sockets.flush();
            }
            let now = self.now();
            if self.snapshots.is_due(now) {
                self.publish(now);
            }
            if !self.is_busy() {
                self.jobs.buffers.clear();
            }
            self.rest(now);
            let timeout = self.next_wake().map(|at| at.since(self.now()));
            self.resting.wait(&mut self.sockets, timeout);
        }
        let now = self.now();
        self.sockets.flush();
        self.publish(now);
        self.end_timeline(now);
    }

    fn next_wake(&self) -> Option<Time> {
        let node = self.node.wake(self.sockets.room(false));
        let snapshot = self.snapshots.wake(self.is_busy());
        let sample = self.timeline.as_ref().and_then(Timeline::wake);
        node.into_iter().chain(snapshot).chain(sample).min()
    }

    fn is_busy(&self) -> bool {
        !self.fetches.running.is_empty() || self.sources.is_sending()
    }

    // ---- orders and results --------------------------------------------------------------------------------------

    /// False if the thread is to end.
    fn take_orders(&mut self) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            let now = self.now();
            self.sample_if_due(now);
            match order {
                Order::Stop => return false,
                Order::Control { path, control } => {
                    self.node.on_control(now, path, *control);
                    if self.node.wants_trimmed() {
                        self.sockets.see_trimmed();
                    }
                }
                Order::PushOfCaller { path, caller, push } => {
                    self.node.tell_source(now, SourceCommand::PushOfCaller { path, caller, push });
                }
                Order::Hold { object, file } => {
                    let bytes = file.size();
                    self.sources.hold(object, file);
                    self.node.tell_source(now, SourceCommand::Hold { object, bytes });
                }
                Order::Withdraw { object } => {
                    self.sources.withdraw(object);
                    self.node.tell_source(now, SourceCommand::Withdraw { object });
                }
                Order::Fetch { id, config, events } => {
                    self.fetches.running.insert(id, Box::new(Receiving::new(events)));
                    self.node.tell_fetch(now, id, ReceiverCommand::Fetch(config));
                }
                Order::Start { id, wanted, have, sink } => {
                    if let Some(receiving) = self.fetches.running.get_mut(&id) {
                        receiving.sink = Some(sink);
                    }
                    self.node.tell_fetch(now, id, ReceiverCommand::Start { wanted, have });
                }
                Order::GoOn { id } => self.go_on(now, id),
                Order::Cancel { id } => self.node.tell_fetch(now, id, ReceiverCommand::Cancel),
                Order::Join { group, port } => self.sockets.join(group, *port),
                Order::Leave { group } => self.sockets.leave(&group),
                Order::AnswerProbes { asked, own } => self.node.answer_probes(&asked, &own),
                Order::IgnoreProbes { asked } => self.node.ignore_probes(asked),
                Order::ProbeGroup { group, question, done } => {
                    self.probe_group(now, &group, &question, done);
                }
                Order::HandOver { done } => {
                    self.node.hand_over(now);
                    self.drive(now);
                    let _ = done.send(());
                }
                Order::Look { done } => {
                    self.publish(now);
                    let _ = done.send(());
                }
                Order::Limit { limit } => self.node.tell_source(now, SourceCommand::Limit { limit }),
            }
            self.drive(now);
        }
        true
    }

    fn take_results(&mut self) {
        let mut results = self.jobs.take_results();
        for outcome in results.drain(..) {
            let now = self.now();
            self.sample_if_due(now);
            self.on_outcome(now, outcome);
            self.drive(now);
        }
        self.jobs.put_results(results);
    }

    fn on_outcome(&mut self, now: Time, outcome: Outcome) {
        match outcome {
            Outcome::Assembled(id, block, outcome) => {
                let Some(receiving) = self.fetches.running.get_mut(&id) else { return };
                if let Some(command) = receiving.on_assembled(block, outcome, &mut self.jobs.buffers)
                    && !receiving.holds_back(&command)
                {
                    self.node.tell_fetch(now, id, command);
                }
            }
            Outcome::Prepared(flow, block, repair, Ok(encoder)) => {
                self.sources.on_prepared(flow, block, encoder, &mut self.jobs.buffers);
                self.node.tell_source(now, SourceCommand::BlockReady { flow, block, repair });
            }
            Outcome::Prepared(flow, block, _, Err(error)) => {
                let Some(object) = self.sources.object_of(flow) else { return };
                tracing::warn!(%object, block = block.0, %error, "a block cannot be sent");
                let how = match error {
                    StoreError::ObjectChanged { .. } => Spoiled::Changed,
                    _ => Spoiled::Unreadable,
                };
                self.node.unreadable(now, flow, how);
            }
        }
    }

    /// The consumer of a fetch's blocks has caught up: the node hears of the blocks that were held back.
    fn go_on(&mut self, now: Time, id: FetchId) {
        let ready = self.fetches.running.get_mut(&id).map(|it| it.go_on()).unwrap_or_default();
        for block in ready {
            self.node.tell_fetch(now, id, ReceiverCommand::BlockDecoded { block });
        }
    }
}
