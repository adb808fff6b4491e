//! Small random networks on which everything goes wrong that may: what a seed makes of one.

#![allow(dead_code)] // Each test uses its part.

mod network;
mod oracle;

use std::fmt;

use headwater_controller::ControllerConfig;
use headwater_fabric::{LinkId, Metric, Routes, Topology};
use headwater_sim::packet::{
    self, Change, CodedSetup, ControlPlane, DecodeModel, FrameSizes, Jitter, LinkChange, Records, Setup,
    TaskPlan, Transport,
};
use headwater_transport::source::SourceConfig;
use headwater_units::{BitRate, Bytes, Duration, Time};
use headwater_wire::{Class, Delivery, SpreadRule};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[allow(unused_imports)] // Each test uses its part.
pub(crate) use oracle::{Outcome, conserved, judge};

/// Far above what the slowest storm needs: beyond it, something turns in circles.
const MOST_EVENTS: u64 = 50_000_000;
/// A task that is neither delivered nor reported failed by then hangs.
const STOP: Duration = Duration::from_secs(2_000);

/// A storm before it breaks loose.
pub(crate) struct Storm {
    pub(crate) setup: Setup,
    pub(crate) facts: Facts,
}

/// Facts that a judge must know beside the records.
pub(crate) struct Facts {
    pub(crate) seed: u64,
    pub(crate) topology: Topology,
    pub(crate) routes: Routes,
    pub(crate) tasks: Vec<TaskPlan>,
    pub(crate) spread: SpreadRule,
    pub(crate) control: ControlPlane,
    pub(crate) changes: Vec<(Time, Change)>,
    /// One line for a reader.
    pub(crate) about: String,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.about)?;
        for TaskPlan { name, at, bytes, sources, receiver, .. } in &self.tasks {
            let bytes = bytes.map_or(0, Bytes::get);
            writeln!(f, "  {:.6} s: {name}, {bytes} bytes from {sources:?} to {receiver}", at.as_secs_f64())?;
        }
        for (at, change) in &self.changes {
            writeln!(f, "  {:.6} s: {change:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

impl Storm {
    pub(crate) fn new(seed: u64) -> Storm {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (topology, kind, rate) = network::fabric(&mut rng);
        let routes = Routes::all(&topology, Metric::Hops).expect("small networks have small tables");
        let hosts = topology.hosts().len() as u32;
        let symbol_size = pick(&mut rng, &[256, 512, 1024, 1200, 1424]);
        let spread = pick(&mut rng, &[SpreadRule::Listed, SpreadRule::Residue, SpreadRule::Equal]);
        let product = rng.random_bool(0.5);
        let control = match rng.random_bool(0.5) {
            true => ControlPlane::Beside { delay: Duration::from_micros(rng.random_range(1..5_000)) },
            false => ControlPlane::AtHost { host: rng.random_range(0..hosts) },
        };
        let tasks = tasks(&mut rng, hosts, symbol_size);
        let changes = faults(&mut rng, &topology, &tasks, rate);
        let setup = Setup {
            port: network::ports(&mut rng, &topology),
            choice: network::choice(&mut rng),
            sizes: FrameSizes { data: None, ack: None, around: Bytes::new(66), symbol: symbol_size },
            jitter: pick(
                &mut rng,
                &[Jitter::None, Jitter::UpTo(Duration::from_micros(1)), Jitter::PacketOnPath],
            ),
            control,
            transport: Transport::Coded(Box::new(ppush(&mut rng, spread, product, symbol_size))),
            tasks: tasks.clone(),
            changes: changes.clone(),
            sample: None,
            until: None,
            drain: Some(Duration::from_secs(700)),
            decode: DecodeModel {
                overhead: None,
                ns_per_byte: pick(&mut rng, &[0.0, 10.0, 200.0]),
                ns_per_byte_whole: pick(&mut rng, &[0.0, 1.0, 20.0]),
            },
            carry_bytes: true,
            seed,
            topology: topology.clone(),
            routes: routes.clone(),
        };
        let config = if product { "product" } else { "paper" };
        let about = format!("{kind} of {hosts}, {spread:?}, {config}, {control:?}, T = {symbol_size}");
        let facts = Facts { seed, topology, routes, tasks, spread, control, changes, about };
        Storm { setup, facts }
    }

    pub(crate) fn run(self) -> (Records, Facts) {
        let seed = self.facts.seed;
        let records = packet::run(self.setup, &mut |ran| {
            assert!(ran.events < MOST_EVENTS, "storm {seed} does not come to an end: {ran:?}");
        });
        (records.unwrap_or_else(|error| panic!("storm {seed}: {error}")), self.facts)
    }
}

pub(crate) fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

/// As often a microsecond as a second.
fn span(rng: &mut ChaCha8Rng, from: Duration, to: Duration) -> Duration {
    let (low, high) = ((from.as_nanos() as f64).ln(), (to.as_nanos() as f64).ln());
    Duration::from_nanos(rng.random_range(low..high).exp() as u64)
}

fn tasks(rng: &mut ChaCha8Rng, hosts: u32, symbol_size: u16) -> Vec<TaskPlan> {
    let mut at = Time::ZERO;
    (0..rng.random_range(1..=4))
        .map(|n| {
            at += span(rng, Duration::from_micros(10), Duration::from_millis(500));
            let mut others: Vec<u32> = (0..hosts).collect();
            others.shuffle(rng);
            let receiver = others.pop().expect("there are at least two hosts");
            others.truncate(rng.random_range(1..=4));
            let bytes = match rng.random_range(0..8) {
                0 => 0,
                1 => 1,
                2 => rng.random_range(2..20_000),
                _ => rng.random_range(20_000..=1 << 20),
            };
            TaskPlan {
                name: format!("t{n}"),
                at,
                stop: Some(at + STOP),
                packets: u64::div_ceil(bytes, u64::from(symbol_size)),
                bytes: Some(Bytes::new(bytes)),
                sources: others,
                receiver,
                further: Vec::new(),
                relayed: false,
                thetas: None,
                deadline: None,
                awaited: true,
                background: None,
            }
        })
        .collect()
}

fn ppush(rng: &mut ChaCha8Rng, spread: SpreadRule, product: bool, symbol_size: u16) -> CodedSetup {
    CodedSetup {
        source: if product { SourceConfig::default() } else { SourceConfig::paper() },
        spread,
        receive_window: pick(rng, &[32, 4096, u32::MAX]),
        blocks_in_flight: pick(rng, &[2, 256]),
        max_ack_delay: Duration::from_millis(2),
        // Longer than the timeouts of some losses in a row.
        source_patience: Duration::from_secs(300),
        controller: ControllerConfig::default(),
        symbol_size,
        class: Class::Bulk,
        host_rate: None,
        lines: Vec::new(),
        racks: Vec::new(),
        delivery: Delivery::Push,
        pull: None,
        trees: None,
        rates: None,
    }
}

/// Faults of links, hosts and controller, by time. Most of it passes; some of it stays.
fn faults(rng: &mut ChaCha8Rng, topology: &Topology, tasks: &[TaskPlan], rate: u64) -> Vec<(Time, Change)> {
    let links = topology.fabric().link_count() as u32;
    let hosts = topology.hosts().len() as u32;
    let mut changes = Vec::new();
    // Some time after some task has arrived: while it runs, more often than not.
    let begin = |rng: &mut ChaCha8Rng| {
        let task = &tasks[rng.random_range(0..tasks.len())];
        task.at + span(rng, Duration::from_micros(10), Duration::from_secs(1))
    };
    let mut add = |rng: &mut ChaCha8Rng, stays: f64, during: Change, after: Option<Change>| {
        let at = begin(rng);
        changes.push((at, during));
        if let Some(after) = after.filter(|_| !rng.random_bool(stays)) {
            changes.push((at + span(rng, Duration::from_micros(100), Duration::from_secs(4)), after));
        }
    };
    let on = |rng: &mut ChaCha8Rng| LinkId(rng.random_range(0..links));
    let several =
        |rng: &mut ChaCha8Rng, most: u32| rng.random_range(0..=most) * u32::from(rng.random_bool(0.6));
    for _ in 0..several(rng, 5) {
        let (link, p) = (on(rng), rng.random_range(0.0..=0.3));
        let [during, after] = [p, 0.0].map(|p| Change::Link(link, LinkChange::Loss(p)));
        add(rng, 0.5, during, Some(after));
    }
    for _ in 0..several(rng, 3) {
        let (link, p) = (on(rng), rng.random_range(0.0..=0.5));
        let by = span(rng, Duration::from_micros(1), Duration::from_millis(5));
        let [during, after] = [p, 0.0].map(|p| Change::Link(link, LinkChange::Reorder(p, by)));
        add(rng, 0.5, during, Some(after));
    }
    for _ in 0..several(rng, 3) {
        let (link, p) = (on(rng), rng.random_range(0.0..=0.3));
        let [during, after] = [p, 0.0].map(|p| Change::Link(link, LinkChange::Duplicate(p)));
        add(rng, 0.5, during, Some(after));
    }
    for _ in 0..several(rng, 1) {
        // Few: one packet goes out per timeout once a flow has lost all, and timeouts double up to a minute.
        let change = Change::Link(on(rng), LinkChange::DropNext(rng.random_range(1..=6)));
        add(rng, 0.0, change, None);
    }
    for _ in 0..several(rng, 2) {
        let link = on(rng);
        let slower = rate / rng.random_range(2..20);
        let to = |rate| Change::Link(link, LinkChange::Rate(BitRate::new(rate)));
        let [during, after] = [slower, rate].map(to);
        add(rng, 0.3, during, Some(after));
    }
    for _ in 0..several(rng, 2) {
        let link = on(rng);
        let [during, after] = [true, false].map(|down| Change::Link(link, LinkChange::Down(down)));
        add(rng, 0.2, during, Some(after));
    }
    for _ in 0..several(rng, 2) {
        let host = rng.random_range(0..hosts);
        let [during, after] = [true, false].map(|paused| Change::Paused(host, paused));
        add(rng, 0.2, during, Some(after));
    }
    for _ in 0..several(rng, 3) {
        // A task that has something to lose.
        let task = &tasks[rng.random_range(0..tasks.len())];
        let host = match rng.random_bool(0.4) {
            true => task.receiver,
            false => pick(rng, &task.sources),
        };
        add(rng, 0.0, Change::Restart(host), None);
    }
    for _ in 0..several(rng, 2) {
        add(rng, 0.0, Change::RestartController, None);
    }
    changes.sort_by_key(|(at, _)| *at);
    changes
}
