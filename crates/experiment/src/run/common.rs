//! Common parts of the adapters: the ground that a scenario gives every engine, and rows that are named alike.

use headwater_fabric::{HostId, LinkId, Metric, Routes, Topology};
use headwater_units::{BitRate, Bytes, Duration, Theta, Time};

use super::RunError;
use crate::engine::Engine;
use crate::scenario::{Amount, Background, Routing, Scenario, ScenarioError, Scheme, link_name, link_named};
use crate::table::{FlowRow, MeasureRow, SampleRow, Tables, TaskRow};
use crate::workload::{Network, TaskPlan};

/// The network and the tasks of one seed.
pub(super) struct Ground {
    pub(super) topology: Topology,
    pub(super) network: Network,
    /// By arrival.
    pub(super) plans: Vec<TaskPlan>,
    /// Long flows beside them: as stated, then as drawn.
    pub(super) background: Vec<Background>,
    /// Requests beside them, by arrival.
    pub(super) arriving: Vec<TaskPlan>,
    /// When the run ends: as stated, or with the last look at the last join.
    pub(super) until: Option<Time>,
    /// Time that normalises completion times, seconds.
    pub(super) normaliser: Option<f64>,
}

impl Ground {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Result<Self, RunError> {
        let topology = scenario.topology().map_err(ScenarioError::from)?;
        let network = Network::of(&topology, scenario.packet.data);
        let mut plans = scenario.plan(&network, seed).map_err(ScenarioError::from)?;
        for plan in &mut plans {
            let lead = scenario.lead.unwrap_or(Duration::ZERO);
            plan.at += lead;
            plan.stop = plan.stop.map(|stop| stop + lead);
        }
        let joined = scenario.workload.join_windows().last().map(|(_, _, end)| *end);
        let until = scenario.until.map(|until| Time::ZERO + until).or(joined);
        let normaliser = scenario.workload.normaliser_s(&network).ok().flatten();
        let background =
            scenario.background.iter().cloned().chain(drawn_background(scenario, &network, seed));
        let background = background.collect();
        let arriving = arriving(scenario, &network, seed, until, &plans)?;
        Ok(Ground { background, arriving, topology, network, plans, until, normaliser })
    }

    /// When a task is broken off: as stated, or with the run.
    ///
    /// # Errors
    /// [`ScenarioError::Endless`] if neither the task nor anything else has an end.
    pub(super) fn stop(&self, plan: &TaskPlan) -> Result<Option<Time>, RunError> {
        let stop = [plan.stop, self.until].into_iter().flatten().min();
        match plan.packets.is_none() && stop.is_none() {
            true => Err(ScenarioError::Endless(plan.name.clone()).into()),
            false => Ok(stop),
        }
    }

    /// The weight of each task's flows, if the file states them; all or none.
    pub(super) fn stated_thetas(&self, engine: Engine) -> Result<Option<Vec<Theta>>, RunError> {
        let stated: Vec<Theta> = self.plans.iter().filter_map(|plan| plan.theta.map(Theta::new)).collect();
        match stated.len() {
            0 => Ok(None),
            all if all == self.plans.len() => Ok(Some(stated)),
            some => {
                let of = self.plans.len();
                Err(unsupported(engine, format!("{some} of {of} tasks state a theta; state all or none")))
            }
        }
    }
}

fn drawn_background(scenario: &Scenario, network: &Network, seed: u64) -> Vec<Background> {
    let Some(permuted) = scenario.permuted_background else { return Vec::new() };
    let pairs = permuted.pairs(network, seed);
    let flow = |(n, (from, to))| Background {
        name: format!("background-{n}"),
        from,
        to,
        scheme: scenario.scheme,
        start: Duration::ZERO,
        stop: None,
    };
    pairs.into_iter().enumerate().map(flow).collect()
}

/// Time for which requests go on arriving after the last task of a run without an end of its own: nobody knows when it
/// will be done.
const STRAGGLERS: Duration = Duration::from_secs(1);

fn arriving(
    scenario: &Scenario,
    network: &Network,
    seed: u64,
    until: Option<Time>,
    plans: &[TaskPlan],
) -> Result<Vec<TaskPlan>, RunError> {
    let Some(background) = &scenario.arriving_background else { return Ok(Vec::new()) };
    let last = plans.last().map_or(Time::ZERO, |plan| plan.at) + STRAGGLERS;
    let until = until.map_or(last, |until| until.min(last));
    Ok(background.arriving().plan(network, seed, until).map_err(ScenarioError::from)?)
}

pub(super) fn unsupported(engine: Engine, what: impl Into<String>) -> RunError {
    RunError::Unsupported { engine, what: what.into() }
}

/// Capacity of a link.
pub(super) fn capacity(topology: &Topology, link: LinkId) -> BitRate {
    topology.fabric().link(link).and_then(|link| link.capacity).unwrap_or_default()
}

/// All links, by id.
pub(super) fn links(topology: &Topology) -> impl Iterator<Item = LinkId> {
    (0..topology.fabric().link_count() as u32).map(LinkId)
}

/// The paths between which [`Routing`] chooses; none where nothing asks for them.
pub(super) fn routes(scenario: &Scenario, topology: &Topology) -> Result<Routes, RunError> {
    // On trees packets carry their own route, and networks of thousands of hosts have tables that take minutes.
    if scenario.scheme == Scheme::Datacast && !scenario.has_background() {
        return Ok(Routes::none(topology));
    }
    let routes = match scenario.routing {
        Routing::DModK => Routes::d_mod_k(topology),
        Routing::Ecmp | Routing::Spray | Routing::SourceSpray | Routing::First => {
            Routes::all(topology, Metric::Hops)
        }
    };
    Ok(routes.map_err(ScenarioError::from)?)
}

/// The longest unloaded round trip between two hosts.
pub(super) fn base_rtt(scenario: &Scenario, topology: &Topology) -> Duration {
    let longest = || {
        let hosts = topology.hosts().len() as u32;
        // One host to all others, and back from the farthest: exact on the symmetric networks, a lower bound on others.
        let rtt = |from, to| {
            let (data, ack) = (scenario.packet.data, scenario.packet.ack);
            topology.unloaded_rtt(HostId(from), HostId(to), data, ack)
        };
        (1..hosts).filter_map(|to| rtt(0, to)).max().unwrap_or(Duration::from_micros(100))
    };
    scenario.transport.base_rtt.unwrap_or_else(longest)
}

/// An amount in data packets; nothing if it is unlimited.
pub(super) fn in_packets(amount: Amount, packet: Bytes) -> Option<f64> {
    match amount {
        Amount::Packets(n) => Some(f64::from(n)),
        Amount::Bytes(n) => Some(n.get() as f64 / packet.get().max(1) as f64),
        Amount::Unlimited => None,
    }
}

/// The links that samples and measures are about: those named, else the bottlenecks of dumbbells and chains.
pub(super) fn watched(scenario: &Scenario, topology: &Topology) -> Vec<(String, LinkId)> {
    let named = scenario.sample.iter().flat_map(|sample| &sample.links);
    let links: Vec<(String, LinkId)> =
        named.filter_map(|name| Some((name.clone(), link_named(topology, name)?))).collect();
    if links.is_empty() { between_switches(topology) } else { links }
}

/// Links from switch to switch, if there are few.
fn between_switches(topology: &Topology) -> Vec<(String, LinkId)> {
    let fabric = topology.fabric();
    let is_host = |point| topology.hosts().contains(&point);
    let between: Vec<LinkId> = links(topology)
        .filter(|id| fabric.link(*id).is_some_and(|link| !is_host(link.from) && !is_host(link.to)))
        .take(17)
        .collect();
    if between.len() > 16 {
        return Vec::new();
    }
    between.into_iter().filter_map(|id| Some((link_name(topology, id)?, id))).collect()
}

/// Tables with all their columns and no rows.
pub(super) fn empty_tables() -> Tables {
    Tables {
        tasks: TaskRow::table(),
        flows: FlowRow::table(),
        samples: SampleRow::table(),
        measures: MeasureRow::table(),
    }
}

/// Name of a flow: that of its task if it is the only one, else with its place.
pub(super) fn flow_name(plan: &TaskPlan, place: usize) -> String {
    match plan.sources.len() {
        1 => plan.name.clone(),
        _ => format!("{}.{place}", plan.name),
    }
}

/// The row of a task; `finish` is `None` if it never had all. What only packets show is left out.
pub(super) fn task_row(
    plan: &TaskPlan,
    (arrival, finish): (Time, Option<Time>),
    normaliser: Option<f64>,
    timeouts: u64,
) -> TaskRow {
    let tct = finish.map_or(f64::NAN, |at| at.since(arrival).as_secs_f64());
    TaskRow {
        task: plan.name.clone(),
        arrival_s: arrival.as_secs_f64(),
        finish_s: finish.map_or(f64::NAN, Time::as_secs_f64),
        tct_s: tct,
        normalised: normaliser.map_or(f64::NAN, |by| tct / by),
        packets: plan.packets.unwrap_or(0),
        receiver: u64::from(plan.receiver),
        fanout: plan.sources.len() as u64,
        timeouts,
        goodput: plan.packets.map_or(f64::NAN, |packets| packets as f64 / tct),
        slowdown: f64::NAN,
        trimmed: f64::NAN,
        unneeded: f64::NAN,
    }
}
