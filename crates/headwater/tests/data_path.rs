//! Cost of a delivery beside its bytes: memory asked for and system calls, from file to file through two real nodes in
//! this process.

#![allow(clippy::disallowed_methods)] // A delivery in real time.

use std::alloc::System;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use headwater_driver::{BlockSink, FetchEvent, Node, NodeConfig, NodeEvent, Snapshot, control_path};
use headwater_store::{BlockHashes, Partial, PartialSpec, SourceFile, StoreError};
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::HostReceiverConfig;
use headwater_transport::source::SourceConfig;
use headwater_udp::Multicast;
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FlowId, FlowKey, Geometry, NodeId, ObjectId, TaskId, Theta,
};
use headwater_wire::{
    Class, CodePoints, Control, Delivery, FlowGrant, FlowRole, Push, ToController, ToReceiver, ToSource,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};
use tokio::sync::mpsc::UnboundedReceiver;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The counters are those of the whole process, so one delivery runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Payload of an Ethernet packet.
const ROOM: u16 = 1424;
const FLOW: FlowId = FlowId(5);
const KEY: FlowKey = FlowKey([3; 32]);

/// Keeps blocks in a file, and notes what had been allocated when a quarter and when three quarters were there.
struct Kept {
    partial: Partial,
    blocks: AtomicU32,
    at_quarter: OnceLock<Stats>,
    at_three_quarters: OnceLock<Stats>,
}

impl BlockSink for Kept {
    fn keep(&self, block: BlockIndex, bytes: &[u8]) -> Result<(), StoreError> {
        self.partial.write_block(block, bytes)?;
        let all = self.partial.wanted().end;
        match self.blocks.fetch_add(1, Ordering::Relaxed) + 1 {
            n if n == all / 4 => self.at_quarter.set(ALLOCATOR.stats()).expect("there is one such block"),
            n if n == all / 4 * 3 => {
                self.at_three_quarters.set(ALLOCATOR.stats()).expect("there is one such block")
            }
            _ => {}
        }
        Ok(())
    }
}

/// Cost of a delivery.
struct Cost {
    /// Allocations and reallocations per symbol of the middle half, both ends together.
    allocations_per_symbol: f64,
    symbols: u64,
    seconds: f64,
    source: Snapshot,
    receiver: Snapshot,
    /// `read` and `write` calls and the like, of the whole process.
    reads_and_writes: u64,
}

fn start(source: SourceConfig) -> (Node, UnboundedReceiver<NodeEvent>) {
    let config = NodeConfig {
        bind: "127.0.0.1:0".parse().unwrap(),
        dscp: CodePoints::default(),
        sees_trimmed: true,
        multicast: Multicast::default(),
        source,
        seed: [1; 32],
        receivers: HostReceiverConfig {
            pull: PullConfig {
                rate: BitRate::new(1_000_000_000_000),
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
        buffer: Bytes::mib(4),
    };
    Node::start(config).unwrap()
}

/// Calls that read or wrote so far, the socket's aside.
fn reads_and_writes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let calls = text.lines().filter(|line| line.starts_with("sysc"));
    calls.filter_map(|line| line.split_once(": ")?.1.parse::<u64>().ok()).sum()
}

fn kept(folder: &Path, hashes: BlockHashes) -> Arc<Kept> {
    let spec = PartialSpec {
        hashes,
        destination: folder.join("copy"),
        state_folder: folder.join("state"),
        range: None,
        overwrite: false,
    };
    Arc::new(Kept {
        partial: Partial::open_or_create(spec, &mut |_| {}).unwrap(),
        blocks: AtomicU32::new(0),
        at_quarter: OnceLock::new(),
        at_three_quarters: OnceLock::new(),
    })
}

/// Order for the source.
fn order(object: ObjectId, size: Bytes, geometry: &Geometry) -> Push {
    Push {
        task: TaskId(1),
        flow: FLOW,
        object,
        bytes: size,
        symbol_size: geometry.symbol_size(),
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
    }
}

/// Grant for the receiver.
fn accepted(object: ObjectId, size: Bytes, geometry: &Geometry, source: SocketAddr) -> Control {
    let grant = FlowGrant {
        flow: FLOW,
        node: NodeId([1; 32]),
        at: vec![source],
        key: KEY,
        index: 0,
        of: 1,
        group: None,
        relays: false,
    };
    Control::Receiver(ToReceiver::Accepted {
        request: 7,
        task: TaskId(1),
        object,
        bytes: size,
        symbol_size: geometry.symbol_size(),
        feedback_every: Duration::from_secs(1),
        version: 0,
        flows: vec![grant],
        delivery: Delivery::Push,
    })
}

/// Sends an object from one node to another.
async fn deliver(size: Bytes, source_config: SourceConfig) -> Cost {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("object");
    let bytes: Vec<u8> =
        (0..size.get() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 21) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let (file, hashes) = SourceFile::hash(&path, &mut |_| {}).unwrap();
    let (object, sink) = (hashes.root(), kept(folder.path(), hashes.clone()));
    let geometry = Geometry::fitting(size, ROOM);

    let (source, mut source_says) = start(source_config);
    let (receiver, mut receiver_says) = start(SourceConfig::default());
    source.hold(object, Arc::new(file));
    source.control(control_path(1), ToSource::Push(order(object, size, &geometry)));
    assert!(matches!(source_says.recv().await, Some(NodeEvent::Sending { flow: FLOW, .. })));
    assert_eq!(
        source_says.recv().await,
        Some(NodeEvent::Control(control_path(1), Control::Controller(ToController::Pushing { flow: FLOW })))
    );

    let mut config = ReceiverConfig::new("object", NodeId([9; 32]), control_path(2), 7);
    config.receive_window = receiver.receive_window(ROOM);
    let (before, began) = (reads_and_writes(), std::time::Instant::now());
    let (id, mut events) = receiver.fetch(config);
    let request = receiver_says.recv().await;
    assert!(
        matches!(request, Some(NodeEvent::Control(_, Control::Controller(ToController::Request(_))))),
        "{request:?}"
    );
    let accepted = accepted(object, size, &geometry, source.data_address());
    receiver.control(control_path(2), accepted);
    assert!(matches!(events.recv().await, Some(FetchEvent::Accepted { .. })));
    receiver.start_fetch(id, sink.partial.wanted(), Vec::new(), sink.clone());
    let done = loop {
        match events.recv().await {
            // Events that name the source are sent as well.
            Some(FetchEvent::Source { .. } | FetchEvent::SourceOver { .. }) => {}
            event => break event,
        }
    };
    assert!(matches!(done, Some(FetchEvent::Done { .. })), "{done:?}");
    let seconds = began.elapsed().as_secs_f64();
    let reads_and_writes = reads_and_writes() - before;
    // Until both have published what they counted.
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    let (at_source, at_receiver) = (source.snapshot(), receiver.snapshot());
    drop((source, receiver));
    sink.partial.finish().unwrap();
    assert_eq!(std::fs::read(folder.path().join("copy")).unwrap(), bytes);

    let count = |stats: &OnceLock<Stats>| {
        let stats = stats.get().expect("every block came");
        (stats.allocations + stats.reallocations) as u64
    };
    let all = hashes.layout().block_count();
    let middle = u64::from(all / 4 * 3 - all / 4) * u64::from(geometry.source_symbols(BlockIndex(0)));
    let allocations = count(&sink.at_three_quarters) - count(&sink.at_quarter);
    Cost {
        allocations_per_symbol: allocations as f64 / middle as f64,
        symbols: geometry.total_symbols().get(),
        seconds,
        source: at_source,
        receiver: at_receiver,
        reads_and_writes,
    }
}

fn run(size: Bytes, source: SourceConfig) -> Cost {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(deliver(size, source))
}

#[test]
fn a_symbol_on_its_way_asks_for_no_memory() {
    let cost = run(Bytes::mib(96), SourceConfig::default());
    // An ACK is boxed at both ends, and what is left is asked for once per block of 190 symbols. How many symbols an ACK
    // speaks of depends on the window, which depends on how busy this machine is.
    let acks = cost.receiver.socket.datagrams_sent as f64 / cost.symbols as f64;
    let without_acks = cost.allocations_per_symbol - 2.0 * acks;
    println!(
        "{:.4} allocations per symbol, both ends together; {without_acks:.4} without the {acks:.4} ACKs per symbol",
        cost.allocations_per_symbol
    );
    assert!(without_acks < 2.0 * 0.05, "{without_acks}");
}

#[test]
fn system_calls_move_many_packets_each() {
    let size = Bytes::mib(96);
    let cost = run(size, SourceConfig::default());
    let gib = size.get() as f64 / (1u64 << 30) as f64;
    let (s, r) = (&cost.source, &cost.receiver);
    let socket = |at: &Snapshot| at.socket.send_calls + at.socket.receive_calls;
    let calls = socket(s) + socket(r) + s.waits + r.waits + cost.reads_and_writes;
    println!(
        "per GiB: source {:.0} sends {:.0} receives {:.0} waits, receiver {:.0} sends {:.0} receives {:.0} waits, both \
         {:.0} reads and writes, {:.0} in all for {:.0} symbols",
        s.socket.send_calls as f64 / gib,
        s.socket.receive_calls as f64 / gib,
        s.waits as f64 / gib,
        r.socket.send_calls as f64 / gib,
        r.socket.receive_calls as f64 / gib,
        r.waits as f64 / gib,
        cost.reads_and_writes as f64 / gib,
        calls as f64 / gib,
        cost.symbols as f64 / gib,
    );
    // Each 64 KiB may cost twenty calls at both ends together: four on a machine at rest, seven where others have it most of the
    // time, since a thread that waited finds other numbers of packets. Symbol by symbol it would be 190.
    let most = 20.0 * size.get() as f64 / 65_536.0;
    assert!((calls as f64) < most, "{calls} calls, at most {most}");
}

#[test]
fn a_slow_flow_wakes_the_data_thread_once_per_quantum() {
    let limit = BitRate::new(40_000_000);
    let cost = run(Bytes::mib(5), SourceConfig { limit: Some(limit), ..SourceConfig::default() });
    let quanta = cost.symbols as f64 / 2.0;
    println!(
        "{:.0} symbols/s in {:.2} s: {:.0} waits/s at the source, {:.0} at the receiver",
        cost.symbols as f64 / cost.seconds,
        cost.seconds,
        cost.source.waits as f64 / cost.seconds,
        cost.receiver.waits as f64 / cost.seconds,
    );
    // A quantum is two packets here, and its ACK comes in between; a thread that burnt its core would ask a hundred times
    // as often.
    assert!((cost.source.waits as f64) < 4.0 * quanta, "{} waits for {quanta} quanta", cost.source.waits);
}
