//! A group's first tree on the fluid model of Datacast's Appendix.
//!
//! One task with a source and several receivers ([`headwater_sim::fluid::datacast::model`]). The tree is the group's first disjoint
//! one, the slowest receiver the one whose path has the least capacity, and the critical caching node the last point of that
//! path that is also on the path to another receiver. Delays are those of propagation. The object has no end: the run has.
//!
//! `goodput` (packets per second, headers and all) and `duplicate_ratio` are means over the second half of the run, when the start is
//! forgotten; `cache_bound` (bytes) and `duplicate_bound` are Theorems 1 and 2 for the same receiver.

use headwater_fabric::trees::{self, Group, SteinerTree};
use headwater_fabric::{FabricError, HostId, LinkId, Topology};
use headwater_units::{BitRate, Duration, Packets, Time};

use super::common::{self, Ground};
use super::{Progress, RunError};
use crate::engine::Engine;
use crate::scenario::{Quantity, Scenario, ScenarioError};
use crate::table::{MeasureRow, SampleRow, Tables};
use crate::workload::TaskPlan;
use headwater_sim::fluid::datacast::bounds::SlowestReceiver;
use headwater_sim::fluid::datacast::model::{self, Delays, Model, Series};

/// Between samples, where the file asks for none.
const SAMPLING: Duration = Duration::from_millis(1);

/// Runs it.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let ground = Ground::new(scenario, seed)?;
    let model = modelled(scenario, &ground)?;
    let every = scenario.sample.as_ref().map_or(SAMPLING, |sample| sample.every);
    let series = model::integrate(&model, every)?;
    watch(Progress { done: 1.0, events: series.samples.len() as u64 });
    Ok(tables(scenario, &ground, &model, &series))
}

fn unsupported(what: impl Into<String>) -> RunError {
    common::unsupported(Engine::Fluid, what)
}

fn modelled(scenario: &Scenario, ground: &Ground) -> Result<Model, RunError> {
    let [plan] = &ground.plans[..] else {
        return Err(unsupported("Eq. 2-4 are those of one tree; list one task"));
    };
    let Some(until) = ground.until else {
        return Err(unsupported("Eq. 2-4 know no last packet: give the run an `until`"));
    };
    if scenario.has_faults() || scenario.has_background() || scenario.carry_bytes {
        return Err(unsupported("faults, background and true bytes need packets, and there are none"));
    }
    let other = |what: &Quantity| !matches!(what, Quantity::Goodput | Quantity::Rate);
    if scenario.sample.iter().any(|sample| sample.what.iter().any(other)) {
        return Err(unsupported("of a tree it has goodput and rate"));
    }
    let (receiver, delays) = receiver(scenario, &ground.topology, plan)?;
    let spec = &scenario.transport.datacast;
    let initial_rate = spec.initial_rate.resolve(scenario.packet.data);
    Ok(Model { receiver, delays, cache: spec.cache, initial_rate, end: until })
}

/// The slowest receiver of a group's first tree, and the parts of its round trip.
pub(super) fn receiver(
    scenario: &Scenario,
    topology: &Topology,
    plan: &TaskPlan,
) -> Result<(SlowestReceiver, Delays), RunError> {
    let &[source] = &plan.sources[..] else {
        return Err(unsupported("Eq. 2-4 know one source: list one"));
    };
    if plan.further.is_empty() {
        return Err(unsupported(
            "a single receiver asks for nothing that others had before: list `further` ones",
        ));
    }
    let receivers: Vec<HostId> = [plan.receiver].iter().chain(&plan.further).copied().map(HostId).collect();
    let group = Group::new(topology, HostId(source), &receivers).map_err(ScenarioError::from)?;
    let all = trees::disjoint(topology, &group);
    let tree = all.first().ok_or_else(|| unsupported("some receiver cannot be reached"))?;
    let (rate, delays) = slowest(topology, &group, tree).map_err(ScenarioError::from)?;
    let spec = &scenario.transport.datacast;
    let packet = scenario.packet.data;
    let receiver = SlowestReceiver {
        rate,
        increase: spec.increase.resolve(packet),
        interval: spec.interval,
        credit: Packets::new(spec.credit.into()),
        packet,
        rtt: delays.rtt(),
    };
    Ok((receiver, delays))
}

/// Rate of the slowest receiver, and the parts of its round trip.
fn slowest(topology: &Topology, group: &Group, tree: &SteinerTree) -> Result<(BitRate, Delays), FabricError> {
    let hosts = topology.hosts().len();
    let path = |host: HostId| -> Result<Vec<LinkId>, FabricError> {
        let path = topology.point_of(host).and_then(|point| tree.path_to(point));
        let path = path.ok_or(FabricError::UnknownHost { host, hosts })?;
        Ok(path.into_iter().map(|it| it.link).collect())
    };
    let paths = group.receivers().map(path).collect::<Result<Vec<_>, _>>()?;
    let capacity = |path: &Vec<LinkId>| path.iter().map(|link| common::capacity(topology, *link)).min();
    let slow = (0..paths.len()).min_by_key(|at| capacity(&paths[*at])).unwrap_or(0);
    let others = || paths.iter().enumerate().filter(|(at, _)| *at != slow).map(|(_, path)| path);
    let shared_with = |path: &Vec<LinkId>| paths[slow].iter().zip(path).take_while(|(a, b)| a == b).count();
    let shared = others().map(shared_with).max().unwrap_or(0);
    let fabric = topology.fabric();
    let delay = |links: &[LinkId]| {
        let each = links.iter().filter_map(|link| fabric.link(*link)).map(|link| link.delay);
        each.fold(Duration::ZERO, |a, b| a + b)
    };
    let (before, after) = paths[slow].split_at(shared);
    let (near, far) = (delay(before), delay(after));
    let delays = Delays { to_source: near, from_source: near, to_receiver: far, from_receiver: far };
    Ok((capacity(&paths[slow]).unwrap_or_default(), delays))
}

fn tables(scenario: &Scenario, ground: &Ground, model: &Model, series: &Series) -> Tables {
    let mut tables = common::empty_tables();
    let bits = scenario.packet.data.get() as f64 * 8.0;
    let half = Time::ZERO + model.end.since(Time::ZERO) / 2;
    let goodput = series.goodput(half).map_or(f64::NAN, |rate| rate.get() as f64 / bits);
    for (name, value) in [
        ("goodput", goodput),
        ("duplicate_ratio", series.duplicate_ratio(half).unwrap_or(f64::NAN)),
        ("cache_bound", model.receiver.cache_bound()),
        ("duplicate_bound", model.receiver.duplicate_bound()),
        ("rtt_s", model.delays.rtt().as_secs_f64()),
    ] {
        MeasureRow { name: name.to_owned(), value }.push(&mut tables.measures);
    }
    for what in scenario.sample.iter().flat_map(|sample| &sample.what) {
        for sample in &series.samples {
            let rate = if *what == Quantity::Rate { sample.source_rate } else { sample.receiver_rate };
            let (entity, quantity) = (ground.plans[0].name.clone(), what.name().to_owned());
            SampleRow { t_s: sample.to.as_secs_f64(), entity, quantity, value: rate.get() as f64 / bits }
                .push(&mut tables.samples);
        }
    }
    tables
}
