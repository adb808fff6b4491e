//! Real sockets under the machines: one data thread per node, its workers, and a handle for all other threads.

mod buffers;
mod clock;
mod engine;
mod interrupt_moderation;
mod paths;
mod receiving;
mod sending;
mod tape;
mod timeline;
mod workers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use headwater_machine::Taker;
use headwater_store::SourceFile;
use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{self, Source, SourceConfig, SourceStats};
use headwater_udp::{
    GroupAddr, Merging, Multicast, Offload, SocketOptions, SocketStats, UdpPort, Waker, path_mtu,
    sharpen_timers,
};
use headwater_units::{BitRate, BlockIndex, Bytes, FetchId, FlowId, NodeId, ObjectId, PathId};
use headwater_wire::{CodePoints, Control, FlowSecret, GroupQuestion, Push, SYMBOL_OVERHEAD, Spoiled};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use engine::{Engine, MAX_JOINED, Order, Parts, ReceiversHere, SourceHere};
use tape::{Machine, Taped};

pub use clock::monotonic_nanos;
pub use paths::control_path;
pub use receiving::{BlockSink, FetchEvent};
pub use tape::{ReplayError, Replayed, TapeFile, replay};
pub use timeline::TimelineFile;

/// Symbols dropped on purpose before the machine sees them, for drills on machines without a lossy network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lossy {
    /// Chance of each symbol.
    pub probability: f64,
    /// Decides which.
    pub seed: u64,
}

/// How a node is made.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Where the data socket is bound; port 0 lets the kernel choose.
    pub bind: SocketAddr,
    /// The code point of each class, and that of what switches have trimmed.
    pub dscp: CodePoints,
    /// Whether to look for what switches have trimmed beside the data socket, from the first fetch on that has a use for it; a program that
    /// pulls nothing need not. Closing the
    /// packet sockets takes the kernel some 15 ms.
    pub sees_trimmed: bool,
    /// How far what is sent to groups travels.
    pub multicast: Multicast,
    /// The source machine's settings.
    pub source: SourceConfig,
    /// Seed of the source machine (its nonces); from the system's entropy in real life.
    pub seed: [u8; 32],
    /// The receiving machine's settings.
    pub receivers: HostReceiverConfig,
    /// Where the source machine is recorded.
    pub record_source: Option<TapeFile>,
    /// Where the receiving machine is recorded.
    pub record_receivers: Option<TapeFile>,
    /// Where what each flow does is written, interval by interval.
    pub timeline: Option<TimelineFile>,
    /// Threads that read, decode, verify and write.
    pub workers: usize,
    /// Whether the data thread may let packets gather: what is measured packet by packet wants each at once.
    pub interrupt_moderation: bool,
    /// Loss on purpose.
    pub lossy: Option<Lossy>,
    /// Bytes asked for in the socket's buffers.
    pub buffer: Bytes,
}

/// Events from the data thread to the rest of the process.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "control messages are rare")]
pub enum NodeEvent {
    /// A machine sends this over a control path.
    Control(PathId, Control),
    /// A block of this object cannot be read any more: it is not to be offered.
    Unreadable(ObjectId, Spoiled),
    /// It begins to send an object to a receiver.
    Sending {
        /// The flow.
        flow: FlowId,
        /// The object.
        object: ObjectId,
        /// The receiver.
        receiver: NodeId,
    },
    /// The flow is over.
    Sent(FlowId),
}

/// Counters of the data thread, refreshed ten times a second while it is busy.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By fetch.
    pub receivers: BTreeMap<FetchId, ReceiverStats>,
    /// Flows that this node sends.
    pub flows: Vec<source::FlowStats>,
    /// Totals of the flows that it has sent.
    pub sources: SourceStats,
    /// The socket.
    pub socket: SocketStats,
    /// Kernel offloads of the socket; nothing before the first refresh.
    pub offload: Offload,
    /// Whether it does so when it matters.
    pub merging: Merging,
    /// Times the data thread asked the kernel to wake it: the system calls beside those of the socket.
    pub waits: u64,
    /// Datagrams that belong to nobody or failed their header tag.
    pub strays: u64,
    /// Headers of symbols whose payload a switch has cut off.
    pub trimmed: u64,
    /// Whether those are seen whose UDP length the switch has left as it was; else only those that it has repaired. Not before a fetch
    /// has a use for them.
    pub sees_trimmed: bool,
    /// Symbols have come of flows whose receivers pull: to these, a trimmed symbol is the sign to ask for another.
    pub pulls: bool,
    /// Symbols dropped on purpose.
    pub dropped_on_purpose: u64,
    /// Datagrams given up because the socket was full or their flow had ended.
    pub unsendable: u64,
}

/// A running node: its data thread and the ways to talk to it.
pub struct Node {
    orders: Sender<Order>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    data: SocketAddr,
    hint: Option<String>,
    options: SocketOptions,
    /// How often each was joined.
    joined: Mutex<BTreeMap<GroupAddr, u32>>,
    receive_buffer: Bytes,
    shared: Arc<Mutex<Snapshot>>,
    next_fetch: std::sync::atomic::AtomicU64,
}

/// Loopback carries 65,507 bytes; beyond a jumbo frame nothing is gained.
const LARGEST_PAYLOAD: u64 = 9216 - 28;
/// Where the route's MTU is not known: Ethernet with IPv6.
const UNKNOWN_PAYLOAD: u64 = 1500 - 48;
/// Bytes that a buffered packet counts against the socket's buffer beside its own.
const PACKET_RECORD: u64 = 640;

impl Node {
    /// Binds the data socket and starts its thread. The second value yields what it says to the rest of the process.
    ///
    /// # Errors
    /// When the socket cannot be bound, or a record cannot be begun.
    pub fn start(config: NodeConfig) -> std::io::Result<(Node, UnboundedReceiver<NodeEvent>)> {
        let options = SocketOptions {
            receive_buffer: config.buffer,
            send_buffer: config.buffer,
            multicast: config.multicast,
            ..SocketOptions::default()
        };
        let port = UdpPort::bind(config.bind, &options)?;
        let data = port.local_addr();
        let hint = port.buffer_hint();
        let receive_buffer = port.receive_buffer();
        let waker = Waker::new()?;
        let (events, listener) = unbounded_channel();
        let (orders, queue) = channel();
        let shared = Arc::new(Mutex::new(Snapshot::default()));
        let machine = Source::new(config.source.clone(), config.seed);
        let made = || Machine::Source(Box::new(config.source.clone()), config.seed);
        let source = Taped::new(machine, made, config.record_source)?;
        let made = || Machine::Receivers(config.receivers);
        let receivers = Taped::new(Receivers::new(config.receivers), made, config.record_receivers)?;
        let parts = Parts {
            source: SourceHere::new(source, config.timeline.is_some()),
            receivers: ReceiversHere::new(receivers, config.lossy),
            port,
            may_look: config.sees_trimmed,
            waker: waker.clone(),
            orders: queue,
            events,
            workers: config.workers,
            dscp: config.dscp,
            timeline: config.timeline,
            interrupt_moderation: config.interrupt_moderation,
            shared: shared.clone(),
        };
        let engine = Engine::new(parts)?;
        let thread = std::thread::Builder::new().name("data".into()).spawn(move || {
            if let Err(error) = sharpen_timers() {
                tracing::debug!(%error, "timers stay coarse");
            }
            engine.run();
        })?;
        let node = Node {
            orders,
            waker,
            thread: Some(thread),
            data,
            hint,
            options,
            joined: Mutex::default(),
            receive_buffer,
            shared,
            next_fetch: Default::default(),
        };
        Ok((node, listener))
    }

    fn order(&self, order: Order) {
        // The thread ends only when told to, or by a panic that its join reports.
        let _ = self.orders.send(order);
        self.waker.wake();
    }

    /// Where the data socket receives.
    pub fn data_address(&self) -> SocketAddr {
        self.data
    }

    /// Advice about socket buffers that the kernel clipped.
    pub fn buffer_hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Packets with `room` bytes of symbol that the socket's buffer holds. The kernel counts its own record of a packet
    /// too, and rounds up.
    pub fn receive_window(&self, room: u16) -> u32 {
        let packet = u64::from(room) * 5 / 4 + PACKET_RECORD;
        (self.receive_buffer.get() / packet).clamp(32, 1 << 20) as u32
    }

    /// Hands in what a controller or a node said over a control link.
    pub fn control(&self, path: PathId, control: impl Into<Control>) {
        self.order(Order::Control { path, control: Box::new(control.into()) });
    }

    /// Hands in an order to push of whoever has dialled this process.
    pub fn push_of_caller(&self, path: PathId, caller: Taker, push: Push) {
        self.order(Order::PushOfCaller { path, caller, push: Box::new(push) });
    }

    /// Offers an object to be sent.
    pub fn hold(&self, object: ObjectId, file: Arc<SourceFile>) {
        self.order(Order::Hold { object, file });
    }

    /// Offers an object no longer.
    pub fn withdraw(&self, object: ObjectId) {
        self.order(Order::Withdraw { object });
    }

    /// Begins to receive. Events come until [`FetchEvent::Ended`].
    pub fn fetch(&self, mut config: ReceiverConfig) -> (FetchId, UnboundedReceiver<FetchEvent>) {
        let id = FetchId(self.next_fetch.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let (events, receiver): (UnboundedSender<FetchEvent>, _) = unbounded_channel();
        // The data thread takes in a batch of packets at one time.
        config.ack_gather = headwater_units::Duration::from_nanos(1);
        self.order(Order::Fetch { id, config: Box::new(config), events });
        (id, receiver)
    }

    /// Answers [`FetchEvent::Accepted`].
    pub fn start_fetch(
        &self,
        id: FetchId,
        wanted: std::ops::Range<u32>,
        have: Vec<BlockIndex>,
        sink: Arc<dyn BlockSink>,
    ) {
        self.order(Order::Start { id, wanted, have, sink });
    }

    /// The consumer of a fetch's blocks has caught up, after [`BlockSink::is_ahead`].
    pub fn go_on(&self, id: FetchId) {
        self.order(Order::GoOn { id });
    }

    /// Ends a fetch; what is finished stays.
    pub fn cancel(&self, id: FetchId) {
        self.order(Order::Cancel { id });
    }

    /// Stops passing on objects that this node has received and does not hold: their receivers turn to other sources,
    /// and controllers hear of it too.
    pub async fn hand_over(&self) {
        let (done, answer) = oneshot::channel();
        self.order(Order::HandOver { done });
        // A thread that has ended serves nobody.
        let _ = answer.await;
    }

    /// Refreshes the counters. False if the data thread has ended.
    pub async fn look(&self) -> bool {
        let (done, answer) = oneshot::channel();
        self.order(Order::Look { done });
        answer.await.is_ok()
    }

    /// Sets the rate limit of all flows together.
    pub fn limit(&self, limit: Option<BitRate>) {
        self.order(Order::Limit { limit });
    }

    /// Receives what is sent to a group, until as many [`Node::leave`]s. Its datagrams are those of flows, as all others.
    ///
    /// # Errors
    /// The kernel's, or more groups than a node can be in.
    pub fn join(&self, group: GroupAddr) -> std::io::Result<()> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = joined.get_mut(&group) {
            *times += 1;
            return Ok(());
        }
        if joined.len() >= MAX_JOINED {
            return Err(std::io::Error::other(format!("a node is in {MAX_JOINED} groups at most")));
        }
        let port = UdpPort::join(&group, &self.options)?;
        joined.insert(group, 1);
        self.order(Order::Join { group, port: Box::new(port) });
        Ok(())
    }

    /// Undoes one [`Node::join`].
    pub fn leave(&self, group: GroupAddr) {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(times) = joined.get_mut(&group) else { return };
        *times -= 1;
        if *times == 0 {
            joined.remove(&group);
            self.order(Order::Leave { group });
        }
    }

    /// From now on answers probes of a group on the flow `asked`, on the flow `own`.
    pub fn answer_probes(&self, asked: FlowSecret, own: FlowSecret) {
        self.order(Order::AnswerProbes { asked, own });
    }

    /// Undoes [`Node::answer_probes`].
    pub fn ignore_probes(&self, asked: FlowId) {
        self.order(Order::IgnoreProbes { asked });
    }

    /// Asks a group's members to answer, and says who did, by their flows ([`headwater_node::GroupProbes`]).
    pub async fn probe_group(&self, group: GroupAddr, question: GroupQuestion) -> Vec<FlowId> {
        let (done, answer) = oneshot::channel();
        self.order(Order::ProbeGroup { group, question: Box::new(question), done });
        // A thread that has ended has heard nobody.
        answer.await.unwrap_or_default()
    }

    /// The newest counters.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.lock().map(|s| s.clone()).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the data thread ended with a panic");
        }
    }
}

/// Bytes of symbol that a datagram to `remote` carries, by the MTU of the interface towards it.
pub fn room_towards(remote: SocketAddr) -> u16 {
    let payload = path_mtu(remote).map_or(UNKNOWN_PAYLOAD, Bytes::get).min(LARGEST_PAYLOAD);
    payload.saturating_sub(SYMBOL_OVERHEAD as u64) as u16
}

/// The same for a stated MTU.
pub fn room_in(mtu: u16, remote: SocketAddr) -> u16 {
    let headers = if remote.ip().to_canonical().is_ipv4() { 20 + 8 } else { 40 + 8 };
    mtu.saturating_sub(headers + SYMBOL_OVERHEAD as u16)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::path::Path;

    use headwater_transport::pull::queue::PullConfig;
    use headwater_transport::push::PushFlowConfig;
    use headwater_udp::{PathAddr, RecvBatch, SendBatch};
    use headwater_units::{BitRate, Duration, FlowId, FlowKey, NodeId, TaskId, Theta};
    use headwater_wire::{
        Assign, Assignment, Body, Class, Datagram, Delivery, Ecn, FlowRole, HeaderKey, Push, ToController,
        ToSource, emit,
    };

    use super::*;

    const FLOW: FlowId = FlowId(5);
    const KEY: FlowKey = FlowKey([3; 32]);

    fn code_points(dscp: u8, control: u8) -> CodePoints {
        CodePoints::new(|class| if class == Class::Control { control } else { dscp }, 51).unwrap()
    }

    /// A node that has pushed, for a test's flow, an object of 100,000 bytes.
    async fn pushing(
        dscp: CodePoints,
        source: SourceConfig,
        folder: &Path,
    ) -> (Node, UnboundedReceiver<NodeEvent>) {
        let path = folder.join("object");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let (file, hashes) = SourceFile::hash(&path, &mut |_| {}).unwrap();
        let config = NodeConfig {
            bind: "127.0.0.1:0".parse().unwrap(),
            dscp,
            sees_trimmed: true,
            multicast: Multicast::default(),
            source,
            seed: [1; 32],
            receivers: HostReceiverConfig {
                pull: PullConfig {
                    rate: BitRate::new(1_000_000_000),
                    packet: Bytes::new(1500),
                    catch_up: Duration::from_millis(1),
                },
            },
            record_source: None,
            record_receivers: None,
            timeline: None,
            workers: 1,
            interrupt_moderation: true,
            lossy: None,
            buffer: Bytes::kib(256),
        };
        let (node, mut events) = Node::start(config).unwrap();
        node.hold(hashes.root(), Arc::new(file));
        let push = Push {
            task: TaskId(1),
            flow: FLOW,
            object: hashes.root(),
            bytes: hashes.size(),
            symbol_size: 1024,
            key: KEY,
            theta: Theta::ONE,
            class: Class::Bulk,
            receiver: NodeId([9; 32]),
            delivery: Delivery::Push,
            index: 0,
            of: 1,
            at: Vec::new(),
            start: None,
            role: FlowRole::Single,
        };
        let sending = NodeEvent::Sending { flow: FLOW, object: push.object, receiver: push.receiver };
        node.control(control_path(1), ToSource::Push(push));
        assert_eq!(events.recv().await, Some(sending));
        assert_eq!(
            events.recv().await,
            Some(NodeEvent::Control(
                control_path(1),
                Control::Controller(ToController::Pushing { flow: FLOW })
            ))
        );
        (node, events)
    }

    fn emitted(body: Body) -> Vec<u8> {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: FLOW, body };
        let mut bytes = vec![0; datagram.len(0)];
        emit(&datagram, 0, &HeaderKey::new(&KEY), &mut bytes);
        bytes
    }

    /// Asks for everything.
    fn assign() -> Vec<u8> {
        emitted(Body::Assign(Box::new(Assign {
            version: 1,
            nonce: None,
            receive_window: 100,
            first_undecoded: BlockIndex(0),
            assignment: Assignment::Residue { index: 0, of: 1 },
            padded: false,
        })))
    }

    #[tokio::test]
    async fn a_burst_is_cut_at_the_flows_quantum() {
        let folder = tempfile::tempdir().unwrap();
        // Unpaced, the initial window of 10 packets leaves at once; its quantum is half of it.
        let source = SourceConfig {
            push: PushFlowConfig { pacer: None, ..PushFlowConfig::default() },
            ..SourceConfig::default()
        };
        let (node, _said) = pushing(code_points(0, 0), source, folder.path()).await;
        let mut port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::default()).unwrap();
        let assign = assign();
        let mut batch = RecvBatch::new(RecvBatch::DEFAULT_BUFFERS);
        let mut out = SendBatch::new(4096, 4);
        let mut runs = Vec::new();
        while runs.iter().sum::<usize>() < 10 {
            out.push(PathAddr::to(node.data_address()), 0, assign.len()).unwrap().copy_from_slice(&assign);
            assert!(!port.flush(&mut out).unwrap().blocked);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            port.recv(&mut batch).unwrap();
            for run in batch.runs() {
                let symbol_long = |bytes: &&mut [u8]| bytes.len() > 1024;
                runs.push(run.datagrams().filter(symbol_long).count());
            }
            runs.retain(|&symbols| symbols > 0);
        }
        let merged = port.offload().merging;
        let expected = if merged { vec![5; 2] } else { vec![1; 10] };
        assert_eq!(runs, expected, "symbols per buffer");
    }

    #[tokio::test]
    async fn symbols_and_what_has_none_leave_with_code_points_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let (node, _said) = pushing(code_points(10, 48), SourceConfig::default(), folder.path()).await;
        let mut port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::default()).unwrap();
        let assign = assign();
        let mut batch = RecvBatch::new(RecvBatch::DEFAULT_BUFFERS);
        let mut out = SendBatch::new(4096, 4);
        let (mut symbols, mut others) = (0, 0);
        while symbols == 0 || others == 0 {
            let to = PathAddr::to(node.data_address());
            out.push(to, 0, assign.len()).unwrap().copy_from_slice(&assign);
            assert!(!port.flush(&mut out).unwrap().blocked);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            if port.recv(&mut batch).unwrap() == 0 {
                continue;
            }
            for datagram in batch.datagrams() {
                let parsed = headwater_wire::parse(datagram.bytes, &HeaderKey::new(&KEY)).unwrap();
                let tos = datagram.tos.unwrap();
                match parsed.datagram.body {
                    Body::Symbol(_) => {
                        assert_eq!(tos, 10 << 2 | Ecn::Ect0 as u8);
                        symbols += 1;
                    }
                    other => {
                        assert_eq!(tos, 48 << 2 | Ecn::NotEct as u8, "{other:?}");
                        others += 1;
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn a_flow_key_gives_no_right_to_give_orders() {
        let folder = tempfile::tempdir().unwrap();
        let (node, _said) = pushing(code_points(0, 0), SourceConfig::default(), folder.path()).await;

        // The receiver of the flow tries to raise its own weight over the data port.
        let order = Control::Source(ToSource::SetTheta { flow: FLOW, theta: Theta::new(50.0) });
        let bytes = emitted(Body::Control(Box::new(order)));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let snapshot = loop {
            socket.send_to(&bytes, node.data_address()).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let snapshot = node.snapshot();
            if snapshot.strays > 0 && !snapshot.flows.is_empty() {
                break snapshot;
            }
        };
        assert_eq!(snapshot.flows[0].theta, Theta::ONE);
    }
}
