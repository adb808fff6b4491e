//! Nodes of this process on the hosts of an emulated network, and an object from one or several to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use headwater_driver::{BlockSink, FetchEvent, Node, NodeConfig, NodeEvent, Snapshot, control_path};
use headwater_store::{SourceFile, StoreError};
use headwater_testbed::emulate::EmulatedNet;
use headwater_testbed::soft_switch::in_namespace;
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_transport::receiver::HostReceiverConfig;
use headwater_transport::source::SourceConfig;
use headwater_udp::Multicast;
use headwater_units::{
    BitRate, BlockIndex, Bytes, FetchId, FlowId, FlowKey, Geometry, NodeId, TaskId, Theta,
};
use headwater_wire::{
    self as wire, Class, CodePoints, Control, FlowGrant, FlowRole, Push, ToController, ToReceiver, ToSource,
};
use tokio::sync::mpsc::UnboundedReceiver;

pub(crate) const FLOW: FlowId = FlowId(5);
pub(crate) const KEY: FlowKey = FlowKey([3; 32]);
/// Payload of an Ethernet packet.
const ROOM: u16 = 1424;

/// A node on a host, at its IPv4 address, and what it says.
pub(crate) struct OnHost {
    node: Node,
    said: UnboundedReceiver<NodeEvent>,
    // Its records.
    _folder: tempfile::TempDir,
}

impl std::ops::Deref for OnHost {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

pub(crate) fn node(net: &EmulatedNet, host: usize) -> OnHost {
    node_with(net, host, |_| {})
}

/// The same with other settings.
pub(crate) fn node_with(net: &EmulatedNet, host: usize, set: impl FnOnce(&mut NodeConfig)) -> OnHost {
    let mut config = NodeConfig {
        bind: (net.ipv4(host), 0).into(),
        dscp: CodePoints::default(),
        sees_trimmed: true,
        multicast: Multicast { hops: 4, to_this_host: false },
        source: SourceConfig::default(),
        seed: [1; 32],
        receivers: HostReceiverConfig {
            pull: PullConfig {
                rate: BitRate::new(1_000_000_000),
                packet: Bytes::new(1500),
                catch_up: headwater_units::Duration::from_millis(1),
            },
        },
        record_source: None,
        record_receivers: None,
        timeline: None,
        workers: 1,
        interrupt_moderation: false,
        lossy: None,
        buffer: Bytes::mib(4),
    };
    set(&mut config);
    let (node, said) = in_namespace(net.namespace(host).unwrap(), || Node::start(config)).unwrap().unwrap();
    OnHost { node, said, _folder: tempfile::tempdir().unwrap() }
}

/// Compares every block with what was sent.
struct Compare {
    bytes: Vec<u8>,
    block: usize,
    blocks: AtomicU32,
}

impl BlockSink for Compare {
    fn keep(&self, block: BlockIndex, bytes: &[u8]) -> Result<(), StoreError> {
        let at = block.0 as usize * self.block;
        assert!(self.bytes[at..].starts_with(bytes), "block {block:?} is another than was sent");
        self.blocks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// An object on its way, from host 0 to host 1 unless stated otherwise.
pub(crate) struct Delivery {
    sources: Vec<OnHost>,
    receiver: OnHost,
    fetch: FetchId,
    events: UnboundedReceiver<FetchEvent>,
    sink: Arc<Compare>,
    blocks: u32,
}

impl Delivery {
    pub(crate) fn begin(net: &EmulatedNet, size: Bytes) -> Delivery {
        Delivery::begin_at(net, node(net, 1), size)
    }

    /// The receiver is there already. It has been told of its flow when this returns, and nothing is sent yet.
    pub(crate) fn begin_at(net: &EmulatedNet, receiver: OnHost, size: Bytes) -> Delivery {
        Delivery::begin_by(wire::Delivery::Push, vec![node(net, 0)], receiver, size)
    }

    /// The same by either transport, from all of these sources.
    pub(crate) fn begin_by(
        delivery: wire::Delivery,
        mut sources: Vec<OnHost>,
        mut receiver: OnHost,
        size: Bytes,
    ) -> Delivery {
        let path = receiver._folder.path().join("object");
        let bytes: Vec<u8> =
            (0..size.get() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 21) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let (file, hashes) = SourceFile::hash(&path, &mut |_| {}).unwrap();
        let (file, object, geometry) = (Arc::new(file), hashes.root(), Geometry::fitting(size, ROOM));
        let of = sources.len() as u8;
        let mut flows = Vec::new();
        for (index, source) in (0..of).zip(&mut sources) {
            let flow = FlowId(FLOW.0 + u64::from(index));
            source.hold(object, file.clone());
            let push = Push {
                task: TaskId(1),
                flow,
                object,
                bytes: size,
                symbol_size: geometry.symbol_size(),
                key: KEY,
                theta: Theta::ONE,
                class: Class::Bulk,
                receiver: NodeId([9; 32]),
                delivery,
                index,
                of,
                at: Vec::new(),
                start: None,
                role: FlowRole::Single,
            };
            source.control(control_path(1), ToSource::Push(push));
            assert!(matches!(source.said.blocking_recv(), Some(NodeEvent::Sending { .. })));
            assert!(matches!(
                source.said.blocking_recv(),
                Some(NodeEvent::Control(_, Control::Controller(ToController::Pushing { .. })))
            ));
            flows.push(FlowGrant {
                flow,
                node: NodeId([1 + index; 32]),
                at: vec![source.data_address()],
                key: KEY,
                index,
                of,
                group: None,
                relays: false,
            });
        }

        let mut config = ReceiverConfig::new("object", NodeId([9; 32]), control_path(2), 7);
        config.receive_window = receiver.receive_window(ROOM);
        config.delivery = Some(delivery);
        let (fetch, mut events) = receiver.fetch(config);
        assert!(matches!(
            receiver.said.blocking_recv(),
            Some(NodeEvent::Control(_, Control::Controller(ToController::Request(_))))
        ));
        let accepted = Control::Receiver(ToReceiver::Accepted {
            request: 7,
            task: TaskId(1),
            object,
            bytes: size,
            symbol_size: geometry.symbol_size(),
            feedback_every: headwater_units::Duration::from_secs(1),
            version: 0,
            delivery,
            flows,
        });
        receiver.control(control_path(2), accepted);
        assert!(matches!(events.blocking_recv(), Some(FetchEvent::Accepted { .. })));
        let block = geometry.layout().len(BlockIndex(0)).get() as usize;
        let blocks = hashes.layout().block_count();
        let sink = Arc::new(Compare { bytes, block, blocks: AtomicU32::new(0) });
        Delivery { sources, receiver, fetch, events, sink, blocks }
    }

    /// Where symbols of the first source come from.
    pub(crate) fn source_port(&self) -> u16 {
        self.sources[0].data_address().port()
    }

    /// Counters of the receiver, as of 100 ms ago while it is busy.
    pub(crate) fn receiver_now(&self) -> Snapshot {
        self.receiver.snapshot()
    }

    /// Next event of the fetch, but for those that name its sources.
    fn next_event(&mut self) -> Option<FetchEvent> {
        loop {
            match self.events.blocking_recv() {
                Some(FetchEvent::Source { .. } | FetchEvent::SourceOver { .. }) => {}
                event => return event,
            }
        }
    }

    /// Lets it come, and says what the receiver has counted.
    pub(crate) fn end(self) -> Snapshot {
        self.end_counted().0
    }

    /// The same, and what it has counted of this task.
    pub(crate) fn end_counted(mut self) -> (Snapshot, ReceiverStats) {
        self.receiver.start_fetch(self.fetch, 0..self.blocks, Vec::new(), self.sink.clone());
        let start = Instant::now();
        let stats = match self.next_event() {
            Some(FetchEvent::Done { stats, .. }) => *stats,
            other => panic!("it is not done: {other:?}"),
        };
        assert!(matches!(self.next_event(), Some(FetchEvent::Ended)), "{:?}", start.elapsed());
        assert_eq!(self.sink.blocks.load(Ordering::Relaxed), self.blocks);
        // Until it has published what it counted, and what was under way has come.
        std::thread::sleep(Duration::from_millis(250));
        (self.receiver.snapshot(), stats)
    }
}
