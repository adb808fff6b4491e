//! A scenario on the fluid model of PPUSH §IV.
//!
//! Long flows of fixed thetas over a few links, each with the queue of its port ([`headwater_sim::fluid::ppush::model`]), in fine
//! steps; samples are means over the scenario's interval. The propagation delay is that of the path there and back, one
//! for all flows: the longest, since the model has one d. Everything that ends by itself, is lost, or weighs anew while
//! it runs is refused.
//!
//! A flow's `rtt` and `window` are those of Eq. 4 and 5; `goodput` is what leaves its last link, so the utilisation of
//! an earlier link leaves out what still stands in queues behind it.

use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::{HostId, LinkId, Path, Topology};
use headwater_units::{Bytes, Duration, Packets, Theta, Time};

use super::common::{self, Ground};
use super::{Progress, RunError};
use crate::engine::Engine;
use crate::scenario::{Machines, PortSpec, Quantity, Routing, Scenario, Scheme};
use crate::table::{FlowRow, MeasureRow, SampleRow, Tables};
use crate::workload::Workload;
use headwater_sim::fluid::ppush::integrate;
use headwater_sim::fluid::ppush::model::{Link, Model, PushFlow, Series, Step};

/// Samples of a run whose file asks for none: its totals are made of them.
const TOTALS: u64 = 1000;
/// Propagation delays may differ by this part of the loaded round trip, d + K / C, and still count as one.
const ONE_DELAY: f64 = 0.01;

/// Runs it.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let ground = Ground::new(scenario, seed)?;
    let thetas = modelled(scenario, &ground)?;
    let set = SetUp::new(scenario, &ground, thetas)?;
    let asked = scenario.sample.as_ref().map(|sample| sample.every);
    let every = asked.unwrap_or(set.model.end.since(Time::ZERO) / TOTALS);
    let series = integrate(&set.model, Step::Fine, every)?;
    watch(Progress { done: 1.0, events: series.samples.len() as u64 });
    Ok(set.tables(scenario, &ground, &series))
}

fn unsupported(what: impl Into<String>) -> RunError {
    common::unsupported(Engine::Fluid, what)
}

/// The thetas; an error if the equations cannot tell what the scenario is about.
fn modelled(scenario: &Scenario, ground: &Ground) -> Result<Vec<Theta>, RunError> {
    let Scheme::Ppush { weigh, .. } = scenario.scheme else {
        return Err(unsupported(format!("Eq. 3-8 are those of push flows, not of {}", scenario.scheme)));
    };
    let Workload::LongFlows { .. } = scenario.workload else {
        return Err(unsupported("it has long flows alone, not tasks of several sources or of a size"));
    };
    if let Some(plan) = ground.plans.iter().find(|plan| plan.packets.is_some()) {
        return Err(unsupported(format!(
            "flow '{}' ends with its last packet, and there are none",
            plan.name
        )));
    }
    if scenario.has_faults() {
        return Err(unsupported("faults hit packets, and there are none"));
    }
    if scenario.has_background() {
        return Err(unsupported("background is TCP, which lives on losses and marks of packets"));
    }
    if scenario.carry_bytes {
        return Err(unsupported("there are no packets to carry true bytes"));
    }
    if scenario.transport.machines == Machines::Product {
        return Err(unsupported("its windows follow the equations of PPUSH, not the product's machines"));
    }
    if scenario.transport.initial_window != 1.0 {
        let window = scenario.transport.initial_window;
        return Err(unsupported(format!("windows begin at 1 (W(0) of §IV-B), not at {window}")));
    }
    if scenario.sample.iter().any(|sample| sample.what.contains(&Quantity::Rate)) {
        return Err(unsupported("it has goodput, what comes out, but not the rate of what goes in"));
    }
    match ground.stated_thetas(Engine::Fluid)? {
        Some(thetas) => Ok(thetas),
        None if !weigh => Ok(vec![Theta::ONE; ground.plans.len()]),
        None => {
            Err(unsupported("Algorithm 1 changes thetas while flows run; here they are fixed: state them"))
        }
    }
}

struct SetUp {
    model: Model,
    /// The model's links, by their place in it.
    links: Vec<LinkId>,
}

impl SetUp {
    fn new(scenario: &Scenario, ground: &Ground, thetas: Vec<Theta>) -> Result<Self, RunError> {
        let topology = &ground.topology;
        let paths = paths(scenario, ground, unsupported)?;
        let order = upwards(&paths).ok_or_else(|| unsupported("the paths of its flows form a cycle"))?;
        let place = |link: &LinkId| order.iter().position(|other| other == link);
        let mut flows = Vec::new();
        let mut end = Time::ZERO;
        for ((plan, path), theta) in ground.plans.iter().zip(&paths).zip(thetas) {
            let stop = ground.stop(plan)?.unwrap_or(Time::MAX);
            end = end.max(stop);
            let path = path.links().iter().filter_map(place).collect();
            flows.push(PushFlow { theta, start: plan.at, stop, path });
        }
        let links = order.iter().map(|link| queue_of(scenario, topology, *link)).collect::<Result<_, _>>()?;
        let mut model = Model {
            links,
            flows,
            packet: scenario.packet.data,
            propagation: Duration::ZERO,
            gain: scenario.transport.gain,
            end: ground.until.unwrap_or(end),
        };
        model.propagation = one_delay(&model, topology, &paths)?;
        Ok(SetUp { model, links: order })
    }

    fn tables(&self, scenario: &Scenario, ground: &Ground, series: &Series) -> Tables {
        let mut tables = common::empty_tables();
        let bits = scenario.packet.data.get() as f64 * 8.0;
        let span = self.model.end.as_secs_f64();
        let mut total = 0.0;
        for (at, (plan, flow)) in ground.plans.iter().zip(&self.model.flows).enumerate() {
            let packets = self.packets(series, at, bits);
            total += packets;
            common::task_row(plan, (plan.at, None), ground.normaliser, 0).push(&mut tables.tasks);
            FlowRow {
                task: plan.name.clone(),
                flow: common::flow_name(plan, 0),
                source: u64::from(plan.sources[0]),
                receiver: u64::from(plan.receiver),
                packets: packets as u64,
                share: if packets > 0.0 { 1.0 } else { f64::NAN },
                start_s: plan.at.as_secs_f64(),
                finish_s: if packets > 0.0 { flow.stop.min(self.model.end).as_secs_f64() } else { f64::NAN },
                timeouts: 0,
                losses: 0,
                marks: 0,
            }
            .push(&mut tables.flows);
        }
        self.samples(scenario, ground, series, &mut tables);
        let mut note = |name: String, value: f64| MeasureRow { name, value }.push(&mut tables.measures);
        note("goodput".into(), total / span);
        note("span_s".into(), span);
        for (name, link) in common::watched(scenario, &ground.topology) {
            let Some(place) = self.links.iter().position(|other| *other == link) else { continue };
            let over = (0..self.model.flows.len()).filter(|&at| self.model.flows[at].path.contains(&place));
            let packets: f64 = over.map(|at| self.packets(series, at, bits)).sum();
            let capacity = self.model.links[place].capacity.get() as f64;
            note(format!("utilisation {name}"), packets * bits / (capacity * span));
            let mean = series.mean(Time::ZERO, self.model.end, |sample| sample.queue[place].get());
            note(format!("mean_queue {name}"), mean.unwrap_or(0.0));
        }
        tables
    }

    /// Packets that a flow brought over the whole run.
    fn packets(&self, series: &Series, flow: usize, bits: f64) -> f64 {
        let brought = series
            .samples
            .iter()
            .map(|sample| sample.rate[flow].get() as f64 * sample.to.since(sample.from).as_secs_f64() / bits);
        brought.sum()
    }

    fn samples(&self, scenario: &Scenario, ground: &Ground, series: &Series, tables: &mut Tables) {
        let Some(asked) = &scenario.sample else { return };
        let bits = scenario.packet.data.get() as f64 * 8.0;
        let watched: Vec<(String, Option<usize>)> = common::watched(scenario, &ground.topology)
            .into_iter()
            .map(|(name, link)| (name, self.links.iter().position(|other| *other == link)))
            .collect();
        for sample in &series.samples {
            let t_s = sample.to.as_secs_f64();
            let mut note = |entity: &str, quantity: Quantity, value: f64| {
                let (entity, quantity) = (entity.to_owned(), quantity.name().to_owned());
                SampleRow { t_s, entity, quantity, value }.push(&mut tables.samples);
            };
            if asked.what.contains(&Quantity::Queue) {
                for (name, place) in &watched {
                    // A link that no flow crosses is not part of the model: its queue is empty.
                    note(name, Quantity::Queue, place.map_or(0.0, |place| sample.queue[place].get()));
                }
            }
            for (at, (plan, flow)) in ground.plans.iter().zip(&self.model.flows).enumerate() {
                // Samples end on floats, which may be a nanosecond off the times that the file states.
                let slack = sample.to.since(sample.from) / 1000;
                if flow.start > sample.from + slack || flow.stop + slack < sample.to {
                    continue;
                }
                for what in &asked.what {
                    let value = match what {
                        Quantity::Window => sample.window[at].get(),
                        Quantity::Rtt => sample.rtt[at].as_secs_f64(),
                        Quantity::MarkFraction => sample.mark_fraction[at],
                        Quantity::Goodput => sample.rate[at].get() as f64 / bits,
                        Quantity::Theta => flow.theta.get(),
                        Quantity::Queue | Quantity::Rate => continue,
                    };
                    note(&plan.name, *what, value);
                }
            }
        }
    }
}

/// The path of every flow.
pub(super) fn paths(
    scenario: &Scenario,
    ground: &Ground,
    unsupported: fn(String) -> RunError,
) -> Result<Vec<Path>, RunError> {
    let routes = common::routes(scenario, &ground.topology)?;
    let mut paths = Vec::new();
    for plan in &ground.plans {
        let (from, to) = (HostId(plan.sources[0]), HostId(plan.receiver));
        let mut several = false;
        let path = routes.path(&ground.topology, from, to, |_, equal| {
            several |= equal.len() > 1;
            0
        });
        if several && scenario.routing != Routing::First {
            return Err(unsupported(format!(
                "flow '{}' has several equal paths; it is for one bottleneck or a chain of them",
                plan.name
            )));
        }
        let none = || unsupported(format!("flow '{}' has no path from host {from} to {to}", plan.name));
        paths.push(path.ok_or_else(none)?);
    }
    Ok(paths)
}

/// The links of all paths in an order in which every path goes upwards; `None` if there is none. Of those that may come
/// next, the lowest does.
fn upwards(paths: &[Path]) -> Option<Vec<LinkId>> {
    let mut before: BTreeMap<LinkId, BTreeSet<LinkId>> = BTreeMap::new();
    for path in paths {
        for (at, link) in path.links().iter().enumerate() {
            before.entry(*link).or_default().extend(&path.links()[at.saturating_sub(1)..at]);
        }
    }
    let mut order = Vec::new();
    while !before.is_empty() {
        let next = before.iter().find(|(_, needs)| needs.is_empty()).map(|(link, _)| *link)?;
        before.remove(&next);
        before.values_mut().for_each(|needs| {
            needs.remove(&next);
        });
        order.push(next);
    }
    Some(order)
}

/// A link with the queue of its port: a host's NIC or a switch's port.
fn queue_of(scenario: &Scenario, topology: &Topology, link: LinkId) -> Result<Link, RunError> {
    let fabric = topology.fabric();
    let at_host = fabric.link(link).is_some_and(|link| topology.hosts().contains(&link.from));
    let port: &PortSpec = scenario.nic.as_ref().filter(|_| at_host).unwrap_or(&scenario.port);
    if !port.classes.is_empty() {
        return Err(unsupported("a link has one queue here, not one per class"));
    }
    let packet: Bytes = scenario.packet.data;
    // A port that never marks has no p of Eq. 3; its queue may be as long as it likes, but not infinite.
    let endless = f64::from(u32::MAX);
    let limit = common::in_packets(port.queue, packet).unwrap_or(endless);
    let mark_threshold = common::in_packets(port.mark_threshold, packet).unwrap_or(limit);
    Ok(Link {
        capacity: common::capacity(topology, link),
        mark_threshold: Packets::new(mark_threshold),
        limit: Packets::new(limit),
    })
}

/// The propagation delay there and back of the longest path; an error if that of another is too far from it.
fn one_delay(model: &Model, topology: &Topology, paths: &[Path]) -> Result<Duration, RunError> {
    let delay = |link: &LinkId| topology.fabric().link(*link).map_or(Duration::ZERO, |link| link.delay);
    let there_and_back = |path: &Path| path.links().iter().map(delay).fold(Duration::ZERO, |a, b| a + b) * 2;
    let delays: Vec<Duration> = paths.iter().map(there_and_back).collect();
    let longest = delays.iter().copied().max().unwrap_or(Duration::ZERO);
    for (flow, delay) in model.flows.iter().zip(delays) {
        let queueing = flow.path.iter().map(|&link| {
            let link = &model.links[link];
            link.mark_threshold.get() * model.packet.get() as f64 * 8.0 / link.capacity.get() as f64
        });
        let loaded = delay.as_secs_f64() + queueing.fold(0.0, f64::max);
        if longest.saturating_sub(delay).as_secs_f64() > ONE_DELAY * loaded {
            return Err(unsupported(format!(
                "it has one propagation delay for all flows, and here they are {delay} and {longest} there and back"
            )));
        }
    }
    Ok(longest)
}
