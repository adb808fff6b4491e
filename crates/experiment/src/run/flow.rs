//! A scenario on the rate model.
//!
//! PPUSH(a,b) as [`headwater_sim::flow`] has it: a pool per task or an equal part per source, rounded up to whole packets; thetas
//! by Algorithm 1 over the true paths, as the file states them, or 1. Flows with one of several equal paths get one for
//! good, drawn by the seed, the same under every scheme.
//!
//! There are no packets: so no windows, marks, queues or losses to sample, and what is about them is refused rather than
//! written as zero. Rows that must have a column of them (`timeouts`, `losses`, `marks`) have zeros in it.

use headwater_fabric::{HostId, LinkId, Path, Routes};
use headwater_units::{Bytes, Packets, TaskId, Theta, Time};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::common::{self, Ground};
use super::{Progress, RunError};
use crate::engine::Engine;
use crate::scenario::{Quantity, Routing, Scenario, Scheme, WhenFull};
use crate::table::{FlowRow, MeasureRow, SampleRow, Tables};
use crate::workload::{TaskPlan, Workload};
use headwater_sim::flow::{self, ActiveTask, Allocation, Done, FlowError, Share, Span, Task, Work, weigh};

/// More than any run can bring until its end, and few enough for sums in floats.
const ENDLESS: Bytes = Bytes::new(1 << 56);
/// Spans between two reports of progress.
const REPORT_EVERY: u64 = 4096;

/// Runs it.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let (pool, weighs) = modelled(scenario)?;
    let ground = Ground::new(scenario, seed)?;
    let stated = ground.stated_thetas(Engine::Flow)?;
    let capacities = common::links(&ground.topology).map(|link| common::capacity(&ground.topology, link));
    let network = flow::Network::new(capacities.collect())?;
    let tasks = tasks(scenario, &ground, pool, seed)?;
    let stops = ground.plans.iter().map(|plan| ground.stop(plan)).collect::<Result<Vec<_>, _>>()?;
    let mut ledger = Ledger::new(scenario, &ground, &tasks);
    let count = tasks.len().max(1) as f64;
    let mut look = |span: &Span| {
        ledger.note(span);
        if ledger.spans.is_multiple_of(REPORT_EVERY) {
            watch(Progress { done: span.tasks_done as f64 / count, events: ledger.spans });
        }
    };
    let (rule, mut weigher) = weigher(scenario, &ground, &network, weighs, stated);
    let done = flow::run_until(&network, &tasks, &stops, rule, &mut *weigher, &mut look)?;
    watch(Progress { done: 1.0, events: ledger.spans });
    Ok(ledger.tables(&tasks, &done))
}

fn unsupported(what: impl Into<String>) -> RunError {
    common::unsupported(Engine::Flow, what)
}

/// Whether sources share a pool and Algorithm 1 weighs them; an error if rates cannot tell what the scenario is about.
fn modelled(scenario: &Scenario) -> Result<(bool, bool), RunError> {
    let Scheme::Ppush { pool, weigh } = scenario.scheme else {
        let what = format!("{} differs from PPUSH(0,0) by what only packets show", scenario.scheme);
        return Err(unsupported(what));
    };
    if scenario.has_faults() {
        return Err(unsupported("faults hit packets, and there are none"));
    }
    if let Workload::Requests { .. } = scenario.workload {
        return Err(unsupported("requests may have several receivers; a rate belongs to one"));
    }
    if let Workload::Sessions { awaited: Some(_), .. } = scenario.workload {
        return Err(unsupported("it waits for all tasks"));
    }
    if scenario.has_background() {
        return Err(unsupported("background is TCP, which lives on losses and marks of packets"));
    }
    if [Some(&scenario.port), scenario.nic.as_ref()]
        .into_iter()
        .flatten()
        .any(|p| p.when_full == WhenFull::Trim)
    {
        return Err(unsupported("no queue is ever full, so nothing is trimmed"));
    }
    if matches!(scenario.routing, Routing::Spray | Routing::SourceSpray) {
        return Err(unsupported("a flow has one path here; spraying takes all of them"));
    }
    if scenario.carry_bytes {
        return Err(unsupported("there are no packets to carry true bytes"));
    }
    if let Workload::JoiningFlows { .. } = scenario.workload {
        return Err(unsupported("joining flows are about a queue, and there is none"));
    }
    let known = |what: &Quantity| matches!(what, Quantity::Goodput | Quantity::Rate | Quantity::Theta);
    match scenario.sample.iter().flat_map(|sample| &sample.what).find(|what| !known(what)) {
        Some(what) => {
            Err(unsupported(format!("it has goodput, rate and theta to sample, but no {}", what.name())))
        }
        None => Ok((pool, weigh)),
    }
}

fn tasks(scenario: &Scenario, ground: &Ground, pool: bool, seed: u64) -> Result<Vec<Task>, RunError> {
    let routes = common::routes(scenario, &ground.topology)?;
    let packet = scenario.packet.data;
    let mut tasks = Vec::new();
    for (plan, id) in ground.plans.iter().zip(0u32..) {
        let mut paths = Vec::new();
        for (&source, place) in plan.sources.iter().zip(0u32..) {
            let path = path(scenario.routing, ground, &routes, (source, plan.receiver), (seed, id, place));
            paths.push(path.ok_or_else(|| {
                unsupported(format!(
                    "task '{}' has no path from host {source} to {}",
                    plan.name, plan.receiver
                ))
            })?);
        }
        let sources = paths.len() as u64;
        let work = match (pool, plan.packets) {
            (true, packets) => Work::Pooled(packets.map_or(ENDLESS, |n| packet * n)),
            (false, packets) => {
                let each = packets.map_or(ENDLESS, |n| packet * n.div_ceil(sources));
                Work::Own(vec![each; paths.len()])
            }
        };
        tasks.push(Task { task: TaskId(u64::from(id)), arrival: plan.at, work, paths });
    }
    Ok(tasks)
}

/// The path of one flow, drawn from a stream of its own: another scheme or another task leaves it as it is.
fn path(
    routing: Routing,
    ground: &Ground,
    routes: &Routes,
    (source, receiver): (u32, u32),
    (seed, task, place): (u64, u32, u32),
) -> Option<Path> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(bytes);
    rng.set_stream(u64::from(task) << 32 | u64::from(place));
    routes.path(&ground.topology, HostId(source), HostId(receiver), |_, equal| match routing {
        Routing::Ecmp if equal.len() > 1 => rng.random_range(0..equal.len()),
        _ => 0,
    })
}

type Weigh = Box<dyn FnMut(&[ActiveTask]) -> Result<Vec<Share>, FlowError>>;

fn weigher(
    scenario: &Scenario,
    ground: &Ground,
    network: &flow::Network,
    weighs: bool,
    stated: Option<Vec<Theta>>,
) -> (Allocation, Weigh) {
    if let Some(thetas) = stated {
        let weigh = move |active: &[ActiveTask]| {
            let of = |task: &ActiveTask| Share { weight: thetas[task.task.task.0 as usize].get(), rank: 0 };
            Ok(active.iter().flat_map(|task| vec![of(task); task.flows.len()]).collect())
        };
        return (Allocation::WeightedMaxMin, Box::new(weigh));
    }
    if !weighs {
        return (Allocation::MaxMin, Box::new(weigh::equal));
    }
    let (spec, packet) = (&scenario.transport, scenario.packet.data);
    let threshold = common::in_packets(scenario.port.mark_threshold, packet).unwrap_or(0.0);
    let propagation = common::base_rtt(scenario, &ground.topology);
    let mut bounds = weigh::theta_bounds(network, propagation, Packets::new(threshold), packet);
    bounds.floor = Theta::new(spec.theta_floor);
    if let Some(ceiling) = spec.theta_ceiling {
        bounds.ceilings.values_mut().for_each(|bound| *bound = Some(Theta::new(ceiling)));
    }
    (Allocation::WeightedMaxMin, Box::new(weigh::thetas(bounds)))
}

/// Sums over the spans of a run.
struct Ledger<'a> {
    scenario: &'a Scenario,
    ground: &'a Ground,
    spans: u64,
    /// The samples so far.
    samples: Vec<SampleRow>,
    /// When the next ones are due, if any are asked for.
    due: Option<Time>,
    /// Bits since the last sample, by task and place.
    gained: Vec<Vec<f64>>,
    /// Until when each flow brought something, by task and place.
    last: Vec<Vec<Option<Time>>>,
    /// By task and place: which of the watched links it crosses.
    crosses: Vec<Vec<Vec<usize>>>,
    watched: Vec<(String, LinkId)>,
    /// Bits over each watched link.
    carried: Vec<f64>,
}

impl<'a> Ledger<'a> {
    fn new(scenario: &'a Scenario, ground: &'a Ground, tasks: &[Task]) -> Self {
        let watched = common::watched(scenario, &ground.topology);
        let on = |path: &Path| -> Vec<usize> {
            (0..watched.len()).filter(|&at| path.links().contains(&watched[at].1)).collect()
        };
        Ledger {
            scenario,
            ground,
            spans: 0,
            samples: Vec::new(),
            due: scenario.sample.as_ref().map(|sample| Time::ZERO + sample.every),
            gained: tasks.iter().map(|task| vec![0.0; task.paths.len()]).collect(),
            last: tasks.iter().map(|task| vec![None; task.paths.len()]).collect(),
            crosses: tasks.iter().map(|task| task.paths.iter().map(on).collect()).collect(),
            carried: vec![0.0; watched.len()],
            watched,
        }
    }

    fn note(&mut self, span: &Span) {
        self.spans += 1;
        let mut from = span.from;
        while let Some(due) = self.due.filter(|due| *due <= span.to) {
            self.gain(span, from, due);
            self.sample(span, due);
            from = due;
        }
        self.gain(span, from, span.to);
        let seconds = span.to.since(span.from).as_secs_f64();
        for flowing in &span.flows {
            if flowing.rate > 0.0 {
                self.last[flowing.task][flowing.place] = Some(span.to);
            }
            for &link in &self.crosses[flowing.task][flowing.place] {
                self.carried[link] += flowing.rate * seconds;
            }
        }
    }

    fn gain(&mut self, span: &Span, from: Time, to: Time) {
        let seconds = to.since(from).as_secs_f64();
        for flowing in &span.flows {
            self.gained[flowing.task][flowing.place] += flowing.rate * seconds;
        }
    }

    /// One row of each quantity for everybody who brings something now.
    fn sample(&mut self, span: &Span, now: Time) {
        let Some(sample) = &self.scenario.sample else { return };
        let bits = sample.every.as_secs_f64() * self.scenario.packet.data.get() as f64 * 8.0;
        for (at, flowing) in span.flows.iter().enumerate() {
            let plan = &self.ground.plans[flowing.task];
            let mut note = |entity: String, quantity: Quantity, value: f64| {
                let quantity = quantity.name().to_owned();
                self.samples.push(SampleRow { t_s: now.as_secs_f64(), entity, quantity, value });
            };
            let gained = &self.gained[flowing.task];
            let first = at == 0 || span.flows[at - 1].task != flowing.task;
            for what in &sample.what {
                match what {
                    // Goodput is the task's, as a receiver sees it.
                    Quantity::Goodput if first => {
                        note(plan.name.clone(), *what, gained.iter().sum::<f64>() / bits);
                    }
                    Quantity::Rate => {
                        note(common::flow_name(plan, flowing.place), *what, gained[flowing.place] / bits);
                    }
                    Quantity::Theta => {
                        note(common::flow_name(plan, flowing.place), *what, flowing.share.weight);
                    }
                    _ => {}
                }
            }
        }
        self.gained.iter_mut().flatten().for_each(|gained| *gained = 0.0);
        self.due = Some(now + sample.every);
    }

    fn tables(self, tasks: &[Task], done: &[Done]) -> Tables {
        let mut tables = common::empty_tables();
        let packet = self.scenario.packet.data.get();
        let mut useful = Bytes::ZERO;
        for (at, (plan, done)) in self.ground.plans.iter().zip(done).enumerate() {
            let brought: Bytes = done.brought.iter().copied().sum();
            useful += brought;
            let finish = (brought == size(&tasks[at])).then_some(done.finish);
            common::task_row(plan, (plan.at, finish), self.ground.normaliser, 0).push(&mut tables.tasks);
            // A task that would arrive after the end has no flows.
            if self.ground.until.is_none_or(|until| plan.at < until) {
                flow_rows(plan, done, packet, &self.last[at], &mut tables);
            }
        }
        for row in self.samples {
            row.push(&mut tables.samples);
        }
        let last = done.iter().map(|done| done.finish).max().unwrap_or(Time::ZERO);
        let span = self.ground.until.unwrap_or(last).as_secs_f64();
        let mut note = |name: String, value: f64| MeasureRow { name, value }.push(&mut tables.measures);
        note("goodput".into(), useful.get() as f64 / packet as f64 / span);
        note("events".into(), self.spans as f64);
        note("span_s".into(), span);
        if let Some(normaliser) = self.ground.normaliser {
            note("normaliser_s".into(), normaliser);
        }
        for ((name, link), bits) in self.watched.iter().zip(&self.carried) {
            let capacity = common::capacity(&self.ground.topology, *link).get() as f64;
            note(format!("utilisation {name}"), bits / (capacity * span));
        }
        tables
    }
}

/// Packets are whole ones: what a flow of a pool brought in part is nobody's.
fn flow_rows(plan: &TaskPlan, done: &Done, packet: u64, last: &[Option<Time>], tables: &mut Tables) {
    let whole = done.brought.iter().copied().sum::<Bytes>().get() as f64;
    for (place, brought) in done.brought.iter().enumerate() {
        FlowRow {
            task: plan.name.clone(),
            flow: common::flow_name(plan, place),
            source: u64::from(plan.sources[place]),
            receiver: u64::from(plan.receiver),
            packets: brought.get() / packet,
            // Nothing of nothing is NaN, as the column says.
            share: brought.get() as f64 / whole,
            start_s: plan.at.as_secs_f64(),
            finish_s: last[place].map_or(f64::NAN, Time::as_secs_f64),
            timeouts: 0,
            losses: 0,
            marks: 0,
        }
        .push(&mut tables.flows);
    }
}

/// All bytes of a task.
fn size(task: &Task) -> Bytes {
    match &task.work {
        Work::Pooled(bytes) | Work::Equal(bytes) => *bytes,
        Work::Own(sizes) => sizes.iter().copied().sum(),
    }
}
