//! Long transfers on the fluid model of ports that grant rates (PAM §III-C).
//!
//! Each flow of the scenario is a transfer to one receiver ([`headwater_sim::fluid::pam::model`]); the allocators are those of the
//! scenario's ports, the round trip is the longest one of the fabric without load. A transfer has one rank for good, so policies are `fair`
//! or a number. `goodput` is what a transfer sends, packets per second; `utilisation` of a link is what it carries over the second half of
//! the run, when the start is forgotten.

use headwater_fabric::LinkId;
use headwater_policy::pam::Order;
use headwater_switch::Allocator;
use headwater_units::{Duration, Rank, Time};

use super::common::{self, Ground};
use super::fluid::paths;
use super::{Progress, RunError, network};
use crate::engine::Engine;
use crate::scenario::{Quantity, Scenario};
use crate::table::{FlowRow, MeasureRow, SampleRow, Tables};
use crate::workload::Workload;
use headwater_sim::fluid::pam::model::{self, Link, Model, Sample, Transfer};

/// Samples of a run whose file asks for none.
const TOTALS: u64 = 100;

/// Runs it.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let ground = Ground::new(scenario, seed)?;
    let rank = modelled(scenario, &ground)?;
    let (model, links) = set_up(scenario, &ground, seed, rank)?;
    let asked = scenario.sample.as_ref().map(|sample| sample.every);
    let every = asked.unwrap_or(model.end.since(Time::ZERO) / TOTALS);
    let samples = model::integrate(&model, every)?;
    watch(Progress { done: 1.0, events: samples.len() as u64 });
    Ok(tables(scenario, &ground, (&model, &links), &samples))
}

fn unsupported(what: impl Into<String>) -> RunError {
    common::unsupported(Engine::Fluid, what)
}

/// The rank of all transfers; an error if the model cannot tell what the scenario is about.
fn modelled(scenario: &Scenario, ground: &Ground) -> Result<Rank, RunError> {
    let endless = ground.plans.iter().all(|plan| plan.packets.is_none() && plan.further.is_empty());
    if !matches!(scenario.workload, Workload::LongFlows { .. }) || !endless {
        return Err(unsupported("its transfers are long flows to one receiver each, without a size"));
    }
    if scenario.has_faults() || scenario.has_background() || scenario.carry_bytes {
        return Err(unsupported("faults, background and true bytes need packets, and there are none"));
    }
    if scenario.sample.iter().any(|sample| sample.what.iter().any(|what| *what != Quantity::Goodput)) {
        return Err(unsupported("of a transfer it has goodput alone"));
    }
    match scenario.transport.pam.policy.0 {
        Order::Fair => Ok(Rank::LAST),
        Order::Stated(rank) => Ok(rank),
        _ => Err(unsupported("ranks that follow sizes, deadlines or starts: state `fair` or a number")),
    }
}

/// The model, and the links that its own stand for.
fn set_up(
    scenario: &Scenario,
    ground: &Ground,
    seed: u64,
    rank: Rank,
) -> Result<(Model, Vec<LinkId>), RunError> {
    let topology = &ground.topology;
    let setup = network::setup_on(scenario, topology.clone(), seed)?;
    let paths = paths(scenario, ground, unsupported)?;
    let ids: Vec<LinkId> = common::links(topology).collect();
    let link = |id: &LinkId| {
        let from = topology.fabric().link(*id).map(|link| link.from);
        let is_nic = from.is_some_and(|from| topology.hosts().contains(&from));
        let allocator = match (setup.port)(*id, is_nic).allocator {
            Allocator::Pam(config) => Some(config),
            _ => None,
        };
        Link { capacity: common::capacity(topology, *id), allocator }
    };
    let mut transfers = Vec::new();
    let mut end = Time::ZERO;
    for (plan, path) in ground.plans.iter().zip(&paths) {
        let stop = ground.stop(plan)?.unwrap_or(Time::MAX);
        end = end.max(stop);
        let path = path.links().iter().map(|link| link.0 as usize).collect();
        transfers.push(Transfer { rank, path, start: plan.at, stop });
    }
    let round_trip = common::base_rtt(scenario, topology);
    if round_trip == Duration::ZERO {
        return Err(unsupported("a network without any round trip"));
    }
    let links = ids.iter().map(link).collect();
    Ok((Model { links, transfers, round_trip, end: ground.until.unwrap_or(end) }, ids))
}

fn tables(
    scenario: &Scenario,
    ground: &Ground,
    (model, links): (&Model, &[LinkId]),
    samples: &[Sample],
) -> Tables {
    let mut tables = common::empty_tables();
    let bits = scenario.packet.data.get() as f64 * 8.0;
    let half = Time::ZERO + model.end.since(Time::ZERO) / 2;
    let settled = || samples.iter().filter(|sample| sample.from >= half);
    let mean = |of: &dyn Fn(&Sample) -> f64| {
        let (sum, count) = settled().fold((0.0, 0.0), |(sum, count), it| (sum + of(it), count + 1.0));
        sum / count
    };
    for (at, (plan, transfer)) in ground.plans.iter().zip(&model.transfers).enumerate() {
        let span = |sample: &Sample| sample.to.since(sample.from).as_secs_f64();
        let packets = samples.iter().map(|sample| sample.sent[at] * span(sample) / bits).sum::<f64>();
        common::task_row(plan, (plan.at, None), ground.normaliser, 0).push(&mut tables.tasks);
        FlowRow {
            task: plan.name.clone(),
            flow: common::flow_name(plan, 0),
            source: u64::from(plan.sources[0]),
            receiver: u64::from(plan.receiver),
            packets: packets as u64,
            share: if packets > 0.0 { 1.0 } else { f64::NAN },
            start_s: plan.at.as_secs_f64(),
            finish_s: transfer.stop.min(model.end).as_secs_f64(),
            timeouts: 0,
            losses: 0,
            marks: 0,
        }
        .push(&mut tables.flows);
        if scenario.sample.is_some() {
            for sample in samples.iter().filter(|sample| sample.from >= transfer.start) {
                let (entity, quantity) = (plan.name.clone(), Quantity::Goodput.name().to_owned());
                let value = sample.sent[at] / bits;
                SampleRow { t_s: sample.to.as_secs_f64(), entity, quantity, value }.push(&mut tables.samples);
            }
        }
    }
    let mut note = |name: String, value: f64| MeasureRow { name, value }.push(&mut tables.measures);
    note("goodput".into(), (0..model.transfers.len()).map(|at| mean(&|it| it.sent[at] / bits)).sum());
    for (name, link) in common::watched(scenario, &ground.topology) {
        let place = links.iter().position(|other| *other == link);
        let used = place.map_or(f64::NAN, |place| mean(&|sample| sample.used[place]));
        note(format!("utilisation {name}"), used);
    }
    tables
}
