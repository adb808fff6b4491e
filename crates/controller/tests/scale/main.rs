//! Cost of a controller per node and second, from 64 nodes to 10,000: messages, their bytes, memory and time on the
//! processor.
//!
//! `cargo test -p headwater-controller --test scale -- --nocapture --include-ignored` prints the table.

mod cluster;

use std::alloc::System;
use std::sync::Mutex;

use headwater_units::{Bytes, Duration};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use cluster::{Cluster, Tally};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The counters are those of the whole process, so one cluster runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// How long the cast runs while nothing changes.
const STEADY: Duration = Duration::from_secs(3);

/// Bytes that are allocated now.
fn held() -> i64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64 + stats.bytes_reallocated as i64
}

/// Nanoseconds that this thread was on a processor.
fn on_processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Cost of a phase, per receiver.
#[derive(Debug)]
struct Phase {
    messages: f64,
    bytes: f64,
    microseconds: f64,
}

/// Figures of a run.
struct Figures {
    receivers: u32,
    /// Bytes on the heap of each node that only is there.
    heap_of_node: i64,
    /// Bytes on the heap of each receiver of a cast, besides.
    heap_of_receiver: i64,
    register: Phase,
    begin: Phase,
    /// Per second.
    steady: Phase,
    end: Phase,
    /// Messages and bytes to the asker, in all.
    news: (u64, u64),
    /// From the cast's beginning until half of them knew by which flows it comes.
    began: Duration,
}

impl Figures {
    fn print(&self) {
        let phase = |name: &str, phase: &Phase| {
            println!(
                "  {name:<9} {:>7.2} messages {:>8.0} B {:>8.1} us of a processor, per receiver",
                phase.messages, phase.bytes, phase.microseconds
            );
        };
        let Figures { receivers, heap_of_node, heap_of_receiver, news, began, .. } = self;
        println!(
            "{receivers} receivers: {heap_of_node} B a node, {heap_of_receiver} B more a receiver; begun after {began}"
        );
        phase("register", &self.register);
        phase("begin", &self.begin);
        phase("a second", &self.steady);
        phase("end", &self.end);
        println!("  news      {:>7} messages {:>8} B in all", news.0, news.1);
    }
}

/// Bytes on the heap of a controller: of each of `receivers` nodes that only are there, and of each receiver of a cast
/// besides.
fn heap(receivers: u32) -> (i64, i64) {
    let freed = |cluster: Cluster| {
        let Cluster { controller, .. } = cluster;
        let before = held();
        drop(controller);
        (before - held()) / i64::from(receivers)
    };
    let idle = freed(Cluster::new(receivers));
    let mut cluster = Cluster::new(receivers);
    cluster.cast();
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.served, receivers);
    (idle, freed(cluster) - idle)
}

/// Runs something, and says what of it each receiver has cost.
fn measure(cluster: &mut Cluster, receivers: u32, act: impl FnOnce(&mut Cluster)) -> Phase {
    cluster.tally = Tally { news: cluster.tally.news, ..Tally::default() };
    let before = on_processor();
    act(cluster);
    let (took, each) = (on_processor() - before, f64::from(receivers));
    let Tally { to_controller: to, from_controller: from, .. } = cluster.tally;
    Phase {
        messages: (to.messages + from.messages) as f64 / each,
        bytes: (to.bytes + from.bytes) as f64 / each,
        microseconds: took as f64 / 1e3 / each,
    }
}

fn run(receivers: u32) -> Figures {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (heap_of_node, heap_of_receiver) = heap(receivers);
    let (each, started) = (f64::from(receivers), on_processor());
    let mut cluster = Cluster::new(receivers);
    let own = cluster.tally.to_controller;
    let register = Phase {
        messages: own.messages as f64 / each,
        bytes: own.bytes as f64 / each,
        microseconds: (on_processor() - started) as f64 / 1e3 / each,
    };
    let begun = cluster.now;
    let mut half = Duration::ZERO;
    let begin = measure(&mut cluster, receivers, |cluster| {
        cluster.cast();
        let mut began = None;
        while cluster.served < receivers {
            cluster.pass(Duration::from_micros(100));
            if cluster.served >= receivers / 2 {
                began.get_or_insert(cluster.now.since(begun));
            }
            assert!(cluster.now.since(begun) < Duration::from_secs(10), "{} are served", cluster.served);
        }
        half = began.unwrap_or_default();
    });
    let mut steady = measure(&mut cluster, receivers, |cluster| cluster.pass(STEADY));
    let seconds = STEADY.as_secs_f64();
    (steady.messages, steady.bytes) = (steady.messages / seconds, steady.bytes / seconds);
    steady.microseconds /= seconds;
    let end = measure(&mut cluster, receivers, |cluster| {
        cluster.finish(Duration::from_micros(20));
        cluster.pass(Duration::from_secs(2));
    });
    let over = cluster.over.as_ref().expect("the cast is over");
    assert_eq!(over.of, receivers);
    assert_eq!((cluster.controller.running_casts(), cluster.controller.running_tasks()), (0, 0));
    Figures {
        receivers,
        heap_of_node,
        heap_of_receiver,
        register,
        begin,
        steady,
        end,
        news: (cluster.tally.news.messages, cluster.tally.news.bytes),
        began: half,
    }
}

/// Limits of a controller's cost, however many receivers there are.
#[test]
fn what_a_receiver_costs_does_not_grow_with_their_number() {
    for receivers in [64, 256, 1024] {
        let figures = run(receivers);
        figures.print();
        let Figures { heap_of_node, heap_of_receiver, register, begin, steady, end, news, began, .. } =
            figures;
        assert!(heap_of_node < 1_500 && heap_of_receiver < 10_000, "{heap_of_node} B, {heap_of_receiver} B");
        // Those that are late lose their places, and others must be told of it.
        assert!(register.messages < 3.0 && begin.messages < 30.0 && end.messages < 35.0);
        assert!(began < Duration::from_millis(1), "half of them know their flows after {began}");
        let all = steady.messages * f64::from(receivers);
        assert!(all < 1_500.0, "{all} messages a second");
        // All are told of at the beginning and at the end, and again when they begin and end; others a few each time.
        let most = 4 * u64::from(receivers.div_ceil(64)) + 5 * 8;
        assert!(news.0 <= most, "{} messages to whoever asked, at most {most}", news.0);
    }
}

#[test]
fn where_answers_take_long_no_more_begin_than_a_window() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut cluster = Cluster::new(1024);
    (cluster.answers_after, cluster.brought) = (Duration::from_millis(500), Bytes::ZERO);
    cluster.cast();
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.served, 128, "nothing has come");
    cluster.lose(10);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.served, 138, "who is away is not waited for");
    cluster.brought = Bytes::mib(1);
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.served, 1024);
}

#[test]
#[ignore = "prints figures; takes a minute"]
fn figures_of_many_nodes() {
    for receivers in [64, 256, 1024, 4096, 10_000] {
        run(receivers).print();
    }
}
