//! A scenario on the packet engine.

mod by_trees;
mod pulled;
mod scheduled;

use std::collections::BTreeMap;

use headwater_baseline as baseline;
use headwater_fabric::{HostId, LinkId, PointId, Topology};
use headwater_transport::flow::paths::Unanswered;
use headwater_transport::flow::rtt::RttConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_units::{BitRate, Bytes, Duration, NodeId, Packets, PathId, Theta, Time};

use super::common::{self, Ground, base_rtt, watched};
use super::network::{self, NetworkSetup};
use super::{Progress, RunError};
use crate::engine::Engine;
use crate::scenario::{Background, Machines, Quantity, Scenario, Scheme, TransportSpec};
use crate::stats;
use crate::table::{FlowRow, MeasureRow, SampleRow, Tables, TaskRow};
use crate::workload::{self, Network, TaskFlows};
use headwater_sim::packet::{
    self, Change, CodedSetup, ControlPlane, DecodeModel, Flows, FrameSizes, Ran, Records, Sampling, Setup,
    TaskPlan, Transport,
};

/// Bytes of a block of a simulated object: [`headwater_units::BlockLayout`] for everything up to 16 GiB.
const BLOCK: u64 = 256 << 10;
/// Longer than any run.
const NEVER: Duration = Duration::from_secs(1 << 20);
/// Number of looks that a queue's mean over a sampling interval is of.
const LOOKS: u64 = 8;

/// Runs it.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let Prepared { setup, report } = Prepared::new(scenario, seed)?;
    let end = setup.until;
    let records = packet::run(setup, &mut |ran: Ran| {
        let by_time = end.map_or(0.0, |end| ran.at.as_secs_f64() / end.as_secs_f64());
        let by_tasks = ran.tasks_done as f64 / ran.tasks.max(1) as f64;
        watch(Progress { done: by_time.max(by_tasks).min(1.0), events: ran.events });
    })?;
    Ok(report.tables(&records))
}

/// Setup of the run.
pub(super) fn setup(scenario: &Scenario, seed: u64) -> Result<Setup, RunError> {
    Ok(Prepared::new(scenario, seed)?.setup)
}

struct Prepared {
    setup: Setup,
    report: Report,
}

pub(super) fn unsupported(what: impl Into<String>) -> RunError {
    common::unsupported(Engine::Packet, what)
}

impl Prepared {
    fn new(scenario: &Scenario, seed: u64) -> Result<Self, RunError> {
        let ground = Ground::new(scenario, seed)?;
        let mut report = Report::new(scenario, &ground, LOOKS);
        let Ground { topology, network, plans, until, background: beside, arriving, .. } = ground;
        let transport = transport(scenario, &topology, &network)?;
        let mut tasks: Vec<TaskPlan> = plans.iter().map(|plan| task(plan, &network, until)).collect();
        for (task, plan) in tasks.iter_mut().zip(&plans) {
            if let Some(scheme) = instead(plan.flows) {
                task.background = Some(flows(scheme, &scenario.transport)?);
            }
        }
        let in_class = |class| TransportSpec { class, ..scenario.transport.clone() };
        for flow in beside.iter().take(scenario.background.len()) {
            tasks.push(background(flow, &scenario.transport)?);
        }
        if let Some(permuted) = scenario.permuted_background {
            let spec = in_class(permuted.class);
            for flow in beside.iter().skip(scenario.background.len()) {
                tasks.push(background(flow, &spec)?);
            }
        }
        if let Some(requests) = &scenario.arriving_background {
            let flows = Some(flows(scenario.scheme, &in_class(requests.class))?);
            let beside = arriving.iter().map(|plan| task(plan, &network, until));
            tasks.extend(beside.map(|plan| TaskPlan { background: flows, awaited: false, ..plan }));
        }
        if matches!(scenario.scheme, Scheme::Scdp | Scheme::Datacast | Scheme::Pam) {
            tasks.iter_mut().for_each(|plan| pulled::fit(plan, symbol_size(scenario)));
        }
        let NetworkSetup { topology, routes, port, choice, changes } =
            network::setup_on(scenario, topology, seed)?;
        let of_casts = |change: &Change| {
            matches!(change, Change::Member(..) | Change::RestartController | Change::LoseControllerState)
        };
        if changes.iter().any(|(_, change)| of_casts(change)) {
            return Err(unsupported("disks, liars and controllers that forget are for the scheme `cast`"));
        }
        let mut setup = Setup {
            routes,
            port,
            choice,
            sizes: sizes(scenario),
            jitter: network::jitter(scenario),
            control: ControlPlane::Beside { delay: control_delay(scenario, &topology) },
            transport,
            tasks,
            changes,
            sample: sampling(scenario, &topology),
            until,
            drain: None,
            decode: DecodeModel {
                overhead: Some(scenario.transport.decode.overhead),
                ns_per_byte: scenario.transport.decode.latency.as_nanos() as f64 / BLOCK as f64,
                ns_per_byte_whole: 0.0,
            },
            carry_bytes: scenario.carry_bytes,
            seed,
            topology,
        };
        report.unloaded = setup.tasks.iter().take(plans.len()).map(|plan| unloaded(&setup, plan)).collect();
        scheduled::set_deadlines(&mut setup, &plans, &report.unloaded);
        report.expect(&setup.tasks[..plans.len()]);
        Ok(Prepared { setup, report })
    }
}

/// Time of a task with nobody else in the network and no limit but its links, seconds: its packets one after the other
/// on the slowest link of the path, and the path, from the nearest source to the farthest receiver.
fn unloaded(setup: &Setup, plan: &TaskPlan) -> f64 {
    let Setup { topology, routes, sizes, .. } = setup;
    let Some(packet) = sizes.data else { return f64::NAN };
    let transmission = |from: u32, to: u32| {
        let path = routes.path(topology, HostId(from), HostId(to), |_, _| 0);
        path.map_or(f64::NAN, |path| topology.fabric().latency(&path, packet).as_secs_f64())
    };
    let farthest = |from: &u32| {
        let receivers = std::iter::once(plan.receiver).chain(plan.further.iter().copied());
        receivers.map(|to| transmission(*from, to)).fold(0.0, f64::max)
    };
    let nearest = plan.sources.iter().map(farthest).fold(f64::INFINITY, f64::min);
    let slot = packet::packet_on_path(topology, routes, packet, plan.sources[0], plan.receiver);
    nearest + plan.packets.saturating_sub(1) as f64 * slot.as_secs_f64()
}

/// A task as it is run: also one without an end has a size.
pub(super) fn task(plan: &workload::TaskPlan, network: &Network, until: Option<Time>) -> TaskPlan {
    // A flow without end is one that cannot end: half as much again as its host can send until it is stopped.
    let endless = || {
        let stop = plan.stop.or(until).unwrap_or(plan.at);
        (stop.since(plan.at).as_secs_f64() * network.host_rate * 1.5) as u64 + 10_000
    };
    TaskPlan {
        name: plan.name.clone(),
        at: plan.at,
        stop: plan.stop,
        packets: plan.packets.unwrap_or_else(endless),
        bytes: None,
        sources: plan.sources.clone(),
        receiver: plan.receiver,
        further: plan.further.clone(),
        relayed: plan.relayed,
        thetas: plan.theta.map(|theta| vec![Theta::new(theta); plan.sources.len()]),
        deadline: None,
        awaited: plan.awaited,
        background: None,
    }
}

/// One way between a node and the controller. Of SCDP's there is none in the paper, and a source begins without a handshake: both
/// ends know of a task when it arrives. Datacast's figures begin with the transmission, when its signalling is over.
fn control_delay(scenario: &Scenario, topology: &Topology) -> Duration {
    match scenario.scheme {
        Scheme::Scdp | Scheme::Datacast | Scheme::Pam => Duration::ZERO,
        _ => base_rtt(scenario, topology) / 2,
    }
}

fn background(flow: &Background, spec: &TransportSpec) -> Result<TaskPlan, RunError> {
    Ok(TaskPlan {
        name: flow.name.clone(),
        at: Time::ZERO + flow.start,
        stop: flow.stop.map(|stop| Time::ZERO + stop),
        packets: u64::MAX,
        bytes: None,
        sources: vec![flow.from],
        receiver: flow.to,
        further: Vec::new(),
        relayed: false,
        thetas: None,
        deadline: None,
        awaited: false,
        background: Some(flows(flow.scheme, spec)?),
    })
}

/// The scheme that a task's flows run, if it is not the scenario's.
fn instead(flows: TaskFlows) -> Option<Scheme> {
    match flows {
        TaskFlows::Scheme => None,
        TaskFlows::Reno => Some(Scheme::Reno),
        TaskFlows::Vegas => Some(Scheme::Vegas),
        TaskFlows::Bic => Some(Scheme::Bic),
    }
}

/// Transport of a scheme's flows beside a workload.
fn flows(scheme: Scheme, spec: &TransportSpec) -> Result<Flows, RunError> {
    match scheme {
        Scheme::Scdp => Ok(Flows::Coded(spec.class.into())),
        scheme => Ok(Flows::Baseline(baseline(scheme, spec)?)),
    }
}

/// The sending end of a baseline.
fn baseline(scheme: Scheme, spec: &TransportSpec) -> Result<baseline::SenderConfig, RunError> {
    let scheme = match scheme {
        Scheme::Dctcp => baseline::Scheme::Dctcp(baseline::DctcpConfig {
            gain: spec.source_config().push.wfcc.gain,
            ..baseline::DctcpConfig::default()
        }),
        Scheme::Reno => baseline::Scheme::NewReno,
        Scheme::Bic => baseline::Scheme::Bic,
        Scheme::Vegas => baseline::Scheme::Vegas,
        Scheme::Dccp => baseline::Scheme::DCCP,
        Scheme::Cubic => return Err(unsupported("cubic is the kernel's own TCP: real packets run it")),
        Scheme::Ndp => return Ok(ndp(spec)),
        Scheme::BtCornet | Scheme::BtOptimized | Scheme::Chain => {
            return Err(unsupported(format!("{scheme} has no packets: the flow engine has its rates")));
        }
        scheme => return Err(unsupported(format!("{scheme} is no baseline"))),
    };
    // The timeouts and the first window are those that a push flow would have.
    let source = spec.source_config();
    let config = baseline::SenderConfig::data_centre(scheme);
    Ok(baseline::SenderConfig {
        initial_window: source.push.wfcc.initial_window,
        sack: spec.sack,
        rtt: source.push.rtt,
        ..config
    })
}

fn ndp(spec: &TransportSpec) -> baseline::SenderConfig {
    let pull = &spec.pull;
    let ndp = baseline::NdpConfig { class: spec.class.into(), headroom: pull.headroom };
    let config = baseline::SenderConfig::data_centre(baseline::Scheme::Ndp(ndp));
    baseline::SenderConfig {
        initial_window: Packets::new(f64::from(pull.window)),
        rtt: RttConfig {
            initial_rto: pull.min_rto,
            min_rto: pull.min_rto,
            granularity: Duration::ZERO,
            ..config.rtt
        },
        ..config
    }
}

fn sizes(scenario: &Scenario) -> FrameSizes {
    let stated = !scenario.packet.true_sizes;
    FrameSizes {
        data: stated.then_some(scenario.packet.data),
        ack: stated.then_some(scenario.packet.ack),
        around: Bytes::new(66),
        symbol: symbol_size(scenario),
    }
}

/// T such that a block has as many symbols as stated. No bytes are carried, so it need not fill a packet.
fn symbol_size(scenario: &Scenario) -> u16 {
    let size = BLOCK.div_ceil(u64::from(scenario.transport.block_symbols.max(1)));
    size.clamp(8, 9_152) as u16
}

fn transport(scenario: &Scenario, topology: &Topology, network: &Network) -> Result<Transport, RunError> {
    let spec = &scenario.transport;
    if let Some((field, stated, does)) = spec.fixed() {
        return Err(unsupported(format!("transport.{field} = {stated}; its machines have {does}")));
    }
    let (pool, weigh) = match scenario.scheme {
        Scheme::Ppush { pool, weigh } => (pool, weigh),
        Scheme::Scdp => return Ok(Transport::Coded(Box::new(pulled::setup(scenario)))),
        Scheme::Datacast => return Ok(Transport::Coded(Box::new(by_trees::setup(scenario)?))),
        Scheme::Pam => return Ok(Transport::Coded(Box::new(scheduled::setup(scenario)?))),
        scheme if scheme.delivery().is_some() => (true, false),
        scheme => {
            let sender = baseline(scheme, spec)?;
            return Ok(Transport::Baseline { receiver: baseline::ReceiverConfig::of(&sender), sender });
        }
    };
    let rate = network.host_rate;
    let ceiling = theta_ceiling(scenario, topology, rate);
    let packet_bits = scenario.packet.data.get() as f64 * 8.0;
    let receiver = ReceiverConfig::new("", NodeId([0; 32]), PathId(0), 0);
    let mut setup = CodedSetup {
        source: spec.source_config(),
        spread: spec.spread_rule(pool),
        receive_window: receiver.receive_window,
        blocks_in_flight: receiver.blocks_in_flight,
        max_ack_delay: spec.max_ack_delay(),
        source_patience: receiver.source_patience,
        controller: spec.controller_config(Some(Theta::new(ceiling)), weigh),
        symbol_size: symbol_size(scenario),
        class: spec.class.into(),
        host_rate: Some(BitRate::new((rate * packet_bits) as u64)),
        lines: Vec::new(),
        racks: racks(topology),
        delivery: scenario.scheme.delivery().unwrap_or_default(),
        pull: None,
        trees: None,
        rates: None,
    };
    // Symbols without bytes may be as small as they like.
    setup.controller.smallest_room = 8;
    match spec.machines {
        Machines::Paper => unprotect(&mut setup),
        // As operators of real ones would.
        Machines::Product if spec.states_rates => setup.lines = lines(topology),
        Machines::Product => setup.host_rate = None,
    }
    Ok(Transport::Coded(Box::new(setup)))
}

/// Blocks that may be open at once where memory does not matter: at a source that is pulled from as many as at its receiver, since one
/// that has forgotten a block does not answer for it.
const BLOCKS: usize = 1 << 20;

/// Lifts the limits that papers do not have and simulated hosts do not need.
fn unprotect(setup: &mut CodedSetup) {
    let source = &mut setup.source;
    // The simulated receiver is where it says it is, and all its blocks may be open at once.
    let push = &mut source.push;
    push.unanswered = Unanswered::Packets(u64::MAX);
    (push.look_ahead, push.max_in_flight) = (4096, u32::MAX);
    push.silent_pause = NEVER;
    source.pull.open_blocks = BLOCKS;
    let controller = &mut setup.controller;
    // A flow that yields to a heavier one is not dead.
    controller.silent_limit = NEVER;
    controller.receiver_silent = NEVER;
    controller.receiver_gone = Duration::from_secs(1 << 21);
    (controller.max_sources, controller.sources_limit) = (128, 128);
    (setup.receive_window, setup.blocks_in_flight) = (u32::MAX, BLOCKS);
    setup.source_patience = NEVER;
}

/// The largest sum of weights on a link.
pub(super) fn theta_ceiling(scenario: &Scenario, topology: &Topology, host_rate: f64) -> f64 {
    scenario.transport.theta_ceiling.unwrap_or_else(|| {
        // Eq. 20 with the loaded round trip: d and the queue at its threshold.
        let queue = common::in_packets(scenario.port.mark_threshold, scenario.packet.data).unwrap_or(0.0);
        (base_rtt(scenario, topology).as_secs_f64() * bottleneck(scenario, topology, host_rate) + queue) / 2.0
    })
}

/// Packets per second of the slowest link: what θ+ is about.
fn bottleneck(scenario: &Scenario, topology: &Topology, host_rate: f64) -> f64 {
    let fabric = topology.fabric();
    let slowest = (0..fabric.link_count() as u32).filter_map(|id| fabric.link(LinkId(id))?.capacity).min();
    slowest.map_or(host_rate, |rate| rate.get() as f64 / (scenario.packet.data.get() as f64 * 8.0))
}

/// For each host the switch that it shares with others and the links of which carry less than those of its hosts: what
/// Algorithm 1 must know beside the hosts' own links.
pub(super) fn racks(topology: &Topology) -> Vec<Option<(String, BitRate)>> {
    let fabric = topology.fabric();
    let is_host = |point| topology.hosts().contains(&point);
    let rate = |link: &LinkId| fabric.link(*link).and_then(|l| l.capacity).map_or(0, BitRate::get);
    let rack = |host: &PointId| {
        let [uplink] = fabric.leaving(*host) else { return None };
        let switch = fabric.link(*uplink)?.to;
        let (mut outwards, mut inwards) = (0u64, 0u64);
        for link in fabric.leaving(switch) {
            let to = fabric.link(*link)?.to;
            *(if is_host(to) { &mut inwards } else { &mut outwards }) += rate(link);
        }
        let name = topology.name(switch)?.to_owned();
        (outwards > 0 && outwards < inwards).then(|| (name, BitRate::new(outwards)))
    };
    topology.hosts().iter().map(rack).collect()
}

/// Capacities of each host's own links, away from it and towards it.
pub(super) fn lines(topology: &Topology) -> Vec<(BitRate, BitRate)> {
    let sum = |links: &[LinkId]| {
        BitRate::new(links.iter().map(|link| common::capacity(topology, *link).get()).sum())
    };
    let fabric = topology.fabric();
    topology.hosts().iter().map(|host| (sum(fabric.leaving(*host)), sum(fabric.entering(*host)))).collect()
}

fn sampling(scenario: &Scenario, topology: &Topology) -> Option<Sampling> {
    let queues = watched(scenario, topology);
    let joins = scenario.workload.join_windows();
    if let Some((_, from, to)) = joins.first() {
        return Some(Sampling { every: to.since(*from) / 40, queues, flows: false });
    }
    let sample = scenario.sample.as_ref()?;
    let looks_at_queues = sample.what.contains(&Quantity::Queue);
    Some(Sampling {
        every: if looks_at_queues { sample.every / LOOKS } else { sample.every },
        queues: if looks_at_queues { queues } else { Vec::new() },
        flows: sample.what.iter().any(|what| *what != Quantity::Queue),
    })
}

/// Turns records into tables.
pub(super) struct Report {
    what: Vec<Quantity>,
    /// Looks at queues per sample.
    looks: u64,
    joins: Vec<(u32, Time, Time)>,
    normaliser: Option<f64>,
    /// Of the tasks, and behind them of background.
    plans: Vec<workload::TaskPlan>,
    /// How many are tasks.
    tasks: u32,
    /// Time of each task in an empty network, seconds; empty where nobody knows.
    unloaded: Vec<f64>,
    /// When each task is late; empty where none ever is.
    deadlines: Vec<Option<Time>>,
    /// Switches compute what sources send at.
    is_scheduled: bool,
    /// How many long flows of background, the last of the plans, the seed drew; behind the plans are the requests beside them.
    drawn: usize,
    /// Hosts, if requests arrive beside the tasks.
    requested: Option<u32>,
    links: Vec<(String, LinkId, BitRate)>,
    until: Option<Time>,
    /// Measures of trees, where they serve.
    trees: Option<by_trees::TreeMeasures>,
}

impl Report {
    /// Queues are looked at `looks` times for each sample.
    pub(super) fn new(scenario: &Scenario, ground: &Ground, looks: u64) -> Self {
        let topology = &ground.topology;
        let links = watched(scenario, topology).into_iter();
        let links = links.map(|(name, link)| (name, link, common::capacity(topology, link)));
        let sample = scenario.sample.as_ref();
        let what = sample.map(|s| s.what.clone()).unwrap_or_default();
        let background = ground.background.iter().map(workload::TaskPlan::of_background);
        Report {
            unloaded: Vec::new(),
            deadlines: Vec::new(),
            is_scheduled: scenario.scheme == Scheme::Pam,
            drawn: ground.background.len() - scenario.background.len(),
            requested: scenario.arriving_background.is_some().then_some(ground.network.hosts),
            looks: if what.contains(&Quantity::Queue) { looks } else { 1 },
            what,
            joins: scenario.workload.join_windows(),
            normaliser: ground.normaliser,
            plans: ground.plans.iter().cloned().chain(background).collect(),
            tasks: ground.plans.len() as u32,
            links: links.collect(),
            until: ground.until,
            trees: by_trees::TreeMeasures::of(scenario, ground),
        }
    }

    /// Notes the deadlines of the tasks.
    pub(super) fn expect(&mut self, tasks: &[TaskPlan]) {
        self.deadlines = scheduled::deadlines(tasks);
    }

    pub(super) fn tables(&self, records: &Records) -> Tables {
        let mut tables = common::empty_tables();
        self.tasks(records, &mut tables);
        self.flows(records, &mut tables);
        self.samples(records, &mut tables);
        self.measures(records, &mut tables);
        tables
    }

    fn tasks(&self, records: &Records, tables: &mut Tables) {
        for row in records.tasks.iter().filter(|row| row.task < self.tasks) {
            // They stand in the order of their tasks.
            let first = records.flows.partition_point(|flow| flow.task < row.task);
            let flows = || records.flows[first..].iter().take_while(|flow| flow.task == row.task);
            let timeouts = flows().map(|flow| flow.timeouts).sum();
            let task = row.task as usize;
            let made =
                common::task_row(&self.plans[task], (row.arrival, row.finish), self.normaliser, timeouts);
            let count = |what: fn(&packet::FlowRow) -> u64| match row.finish {
                Some(_) => flows().map(what).sum::<u64>() as f64,
                None => f64::NAN,
            };
            TaskRow {
                slowdown: self.unloaded.get(task).map_or(f64::NAN, |unloaded| made.tct_s / unloaded),
                trimmed: count(|flow| flow.trimmed),
                unneeded: count(|flow| flow.unneeded),
                ..made
            }
            .push(&mut tables.tasks);
        }
    }

    fn flows(&self, records: &Records, tables: &mut Tables) {
        let mut of_task = (u32::MAX, 0);
        for row in records.flows.iter().filter(|row| (row.task as usize) < self.plans.len()) {
            of_task = if of_task.0 == row.task { (row.task, of_task.1 + 1) } else { (row.task, 0) };
            let plan = &self.plans[row.task as usize];
            let place = plan.sources.iter().position(|s| *s == row.source).unwrap_or(of_task.1);
            FlowRow {
                task: plan.name.clone(),
                flow: common::flow_name(plan, place),
                source: u64::from(row.source),
                receiver: u64::from(plan.receiver),
                packets: row.useful,
                share: row.share,
                start_s: row.start.as_secs_f64(),
                finish_s: row.last.map_or(f64::NAN, Time::as_secs_f64),
                timeouts: row.timeouts,
                losses: row.lost,
                marks: row.marked,
            }
            .push(&mut tables.flows);
        }
    }

    fn samples(&self, records: &Records, tables: &mut Tables) {
        if !self.joins.is_empty() {
            return self.joined(records, tables);
        }
        // Queues are looked at more often than is written: a row has the mean since the last, where a mean makes sense.
        let mut sums: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        let mut last = (Time::MAX, 0);
        for row in &records.samples {
            if row.at != last.0 {
                last = (row.at, last.1 + 1);
            }
            let whole = last.1 % self.looks == 0;
            let mut value = row.value;
            if matches!(row.quantity, "queue" | "goodput") {
                let sum = sums.entry((&row.entity, row.quantity)).or_default();
                *sum += row.value;
                value = *sum / self.looks as f64;
                if whole {
                    *sum = 0.0;
                }
            }
            if whole && self.what.iter().any(|what| what.name() == row.quantity) {
                let (entity, quantity) = (row.entity.clone(), row.quantity.to_owned());
                SampleRow { t_s: row.at.as_secs_f64(), entity, quantity, value }.push(&mut tables.samples);
            }
        }
    }

    /// The mean queue of the bottleneck after each join.
    fn joined(&self, records: &Records, tables: &mut Tables) {
        let Some((link, ..)) = self.links.first() else { return };
        for (flows, from, to) in &self.joins {
            let within = |row: &&packet::SampleRow| {
                row.quantity == "queue" && row.entity == *link && row.at > *from && row.at <= *to
            };
            let looks: Vec<f64> = records.samples.iter().filter(within).map(|row| row.value).collect();
            let Some(value) = stats::mean(&looks) else { continue };
            let quantity = "mean_queue_after_join".to_owned();
            SampleRow { t_s: to.as_secs_f64(), entity: flows.to_string(), quantity, value }
                .push(&mut tables.samples);
        }
    }

    /// Symbols that count of those that a task's receivers have: symbols beyond the object's own packets are what the
    /// code costs.
    fn goods(&self, task: &packet::TaskRow) -> u64 {
        let plan = &self.plans[task.task as usize];
        let whole = plan.packets.map(|packets| packets * (1 + plan.further.len() as u64));
        whole.map_or(task.useful, |whole| task.useful.min(whole))
    }

    fn measures(&self, records: &Records, tables: &mut Tables) {
        let mut note = |name: String, value: f64| MeasureRow { name, value }.push(&mut tables.measures);
        let counts = &records.counts;
        let span = self.until.unwrap_or(counts.ended).as_secs_f64();
        let tasks = || records.tasks.iter().filter(|task| task.task < self.tasks);
        let useful: u64 = tasks().map(|task| self.goods(task)).sum();
        match &self.trees {
            Some(trees) => trees.measures(records, &mut note),
            None => note("goodput".into(), useful as f64 / span),
        }
        note("drops".into(), counts.drops as f64);
        note("marks".into(), counts.marks as f64);
        note("trims".into(), counts.trims as f64);
        note("lost".into(), counts.faults.lost as f64);
        let flows = records.flows.iter().filter(|flow| flow.task < self.tasks);
        note("timeouts".into(), flows.map(|flow| flow.timeouts).sum::<u64>() as f64);
        note("events".into(), counts.events as f64);
        note("hops".into(), counts.hops as f64);
        note("span_s".into(), span);
        let of_background = |from: usize, to: usize| {
            let flows = records.flows.iter().filter(|flow| (from..to).contains(&(flow.task as usize)));
            flows.map(|flow| flow.useful).sum::<u64>() as f64 / span
        };
        if self.drawn > 0 {
            let all = of_background(self.plans.len() - self.drawn, self.plans.len());
            note("background_goodput".into(), all / self.drawn as f64);
        }
        if let Some(hosts) = self.requested {
            let all = of_background(self.plans.len(), usize::MAX);
            note("requested_goodput".into(), all / f64::from(hosts.max(1)));
        }
        if let Some(first) = tasks().map(|task| task.arrival).min() {
            // A task that has not finished is busy until the run ends.
            let last = tasks().map(|task| task.finish.unwrap_or(counts.ended)).max().unwrap_or(first);
            note("aggregate_goodput".into(), useful as f64 / last.since(first).as_secs_f64());
        }
        scheduled::missed(&self.deadlines, records, &mut note);
        scheduled::replaced(&self.plans, records, &mut note);
        if self.is_scheduled {
            scheduled::feedback(&records.negotiation, &mut note);
        }
        if let Some(normaliser) = self.normaliser {
            note("normaliser_s".into(), normaliser);
        }
        for (name, link, rate) in &self.links {
            let stats = &records.links[link.0 as usize];
            let carried = stats.bytes_out.get() as f64 * 8.0 / (rate.get() as f64 * span);
            note(format!("utilisation {name}"), carried);
            note(format!("max_queue {name}"), stats.high_water as f64);
            let looks = records.samples.iter().filter(|s| s.quantity == "queue" && s.entity == *name);
            let (sum, count) = looks.fold((0.0, 0u32), |(sum, count), row| (sum + row.value, count + 1));
            if count > 0 {
                note(format!("mean_queue {name}"), sum / f64::from(count));
            }
        }
        let closed: Vec<f64> = tasks()
            .filter_map(|task| Some(task.closed.or(task.finish)?.since(task.arrival).as_secs_f64()))
            .collect();
        if !closed.is_empty() {
            for (name, value) in [
                ("fct_mean_s", stats::mean(&closed)),
                ("fct_p50_s", stats::quantile(&closed, 0.5)),
                ("fct_p99_s", stats::quantile(&closed, 0.99)),
                ("fct_max_s", stats::quantile(&closed, 1.0)),
            ] {
                note(name.into(), value.unwrap_or(f64::NAN));
            }
        }
    }
}
