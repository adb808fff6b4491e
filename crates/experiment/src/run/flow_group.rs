//! One object to a group, on the rate model: Datacast over disjoint trees, and swarms (Datacast §VI-C).
//!
//! The comparison is fair in this: all three have the same links, hosts, object and group, none has headers or losses, and
//! members of a swarm use all their links at once, as trees do. What is left out would cost swarms more than trees: the
//! slow start of their many connections, notices and requests, blocks that come twice. Trees have what their source's start
//! costs ([`dealt`]), and the length of their longest path. Duplicates that caches cause are for packets to show.
//!
//! `finish_s` is when the last receiver has everything, `ideal_s` what the object takes over as many trees as there can be,
//! `network_stress` the bytes over all links, `link_stress` how often a block (of a swarm) or a byte (of trees) crossed a link
//! that it crossed at all, on average.

use headwater_fabric::trees::{self, Group, SteinerTree};
use headwater_fabric::{HostId, Topology};
use headwater_units::{Bytes, Duration, Time};

use super::common::{self, Ground};
use super::{Progress, RunError};
use crate::engine::Engine;
use crate::scenario::{Routing, Scenario, ScenarioError, Scheme};
use crate::table::{MeasureRow, Tables};
use headwater_sim::flow::Network;
use headwater_sim::flow::dealt::{self, Line, Ramp};
use headwater_sim::flow::swarm::{self, Choice, Spread, Swarm};

/// Runs it.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let ground = Ground::new(scenario, seed)?;
    let wanted = wanted(scenario, &ground)?;
    let outcome = match scenario.scheme {
        Scheme::Chain => in_a_swarm(scenario, &ground, &wanted, (Choice::Chain, seed), watch)?,
        Scheme::BtCornet => in_a_swarm(scenario, &ground, &wanted, (Choice::Lot, seed), watch)?,
        Scheme::BtOptimized => in_a_swarm(
            scenario,
            &ground,
            &wanted,
            (Choice::Near(scenario.transport.swarm.ties), seed),
            watch,
        )?,
        _ => over_trees(scenario, &ground, &wanted)?,
    };
    watch(Progress { done: 1.0, events: outcome.blocks });
    Ok(tables(&ground, &wanted, &outcome))
}

fn unsupported(what: impl Into<String>) -> RunError {
    common::unsupported(Engine::Flow, what)
}

/// Object, and the group that wants it.
struct Wanted {
    packets: u64,
    object: Bytes,
    group: Group,
}

struct Outcome {
    finish: Option<Time>,
    blocks: u64,
    carried: Bytes,
    link_stress: f64,
}

fn wanted(scenario: &Scenario, ground: &Ground) -> Result<Wanted, RunError> {
    let [plan] = &ground.plans[..] else {
        return Err(unsupported(format!("{} is about one group at a time; list one task", scenario.scheme)));
    };
    let (&[source], Some(packets)) = (&plan.sources[..], plan.packets) else {
        return Err(unsupported(format!("{} has one source and an object with an end", scenario.scheme)));
    };
    if scenario.has_faults() || scenario.has_background() || scenario.carry_bytes {
        return Err(unsupported("faults, background and true bytes need packets, and there are none"));
    }
    if scenario.sample.is_some() || scenario.until.is_some() || plan.stop.is_some() {
        return Err(unsupported("a group's run ends when everybody has everything, and takes no samples"));
    }
    if plan.at != Time::ZERO {
        return Err(unsupported("a group begins with the run"));
    }
    if scenario.routing != Routing::Ecmp {
        return Err(unsupported("peers are joined by one of the shortest paths each (ecmp)"));
    }
    let receivers: Vec<HostId> = [plan.receiver].iter().chain(&plan.further).copied().map(HostId).collect();
    let group = Group::new(&ground.topology, HostId(source), &receivers).map_err(ScenarioError::from)?;
    Ok(Wanted { packets, object: scenario.packet.data * packets, group })
}

fn over_trees(scenario: &Scenario, ground: &Ground, wanted: &Wanted) -> Result<Outcome, RunError> {
    let topology = &ground.topology;
    let packet = scenario.packet.data;
    let spec = &scenario.transport.datacast;
    let ramp = Ramp {
        initial: spec.initial_rate.resolve(packet),
        increase: spec.increase.resolve(packet),
        interval: spec.interval,
    };
    let all = trees::disjoint(topology, &wanted.group);
    let lines: Vec<Line> = all.iter().map(|tree| line(topology, packet, tree)).collect();
    let block = packet * u64::from(scenario.transport.block_symbols);
    let dealt = dealt::deal(wanted.object, block, ramp, &lines)?;
    let over = |(tree, bytes): (&SteinerTree, &Bytes)| *bytes * tree.links().len() as u64;
    Ok(Outcome {
        finish: Some(dealt.finish),
        blocks: wanted.object.get().div_ceil(block.get()),
        carried: all.iter().zip(&dealt.bytes).map(over).sum(),
        // A byte goes down one tree, and a tree has a link once.
        link_stress: trees::link_stress(&all) as f64,
    })
}

/// Rate of a tree, and how long its last packet is in flight once the source has sent it.
fn line(topology: &Topology, packet: Bytes, tree: &SteinerTree) -> Line {
    let rates = tree.links().iter().map(|it| common::capacity(topology, it.link));
    let mut arrival = vec![Duration::ZERO; topology.fabric().point_count()];
    // Parents stand before their children.
    for it in tree.links() {
        let delay = topology.fabric().link(it.link).map_or(Duration::ZERO, |link| link.delay);
        let sending = match it.depth {
            1 => Duration::ZERO,
            _ => packet / common::capacity(topology, it.link),
        };
        arrival[it.to.index()] = arrival[it.from.index()] + sending + delay;
    }
    Line {
        rate: rates.min().unwrap_or_default(),
        latency: arrival.into_iter().max().unwrap_or(Duration::ZERO),
    }
}

fn in_a_swarm(
    scenario: &Scenario,
    ground: &Ground,
    wanted: &Wanted,
    (choice, seed): (Choice, u64),
    watch: &mut dyn FnMut(Progress),
) -> Result<Outcome, RunError> {
    let topology = &ground.topology;
    let spec = &scenario.transport.swarm;
    let capacities = common::links(topology).map(|link| common::capacity(topology, link));
    let network = Network::new(capacities.collect())?;
    let mut members: Vec<HostId> =
        [wanted.group.source()].into_iter().chain(wanted.group.receivers()).collect();
    if choice == Choice::Chain {
        // By number from the source on, so that a chain enters a rack once, and that of the source a second time at its end.
        let (source, hosts) = (members[0].0, topology.hosts().len() as u32);
        members.sort_by_key(|member| (member.0 + hosts - source) % hosts);
    }
    let connections = swarm::connections(topology, &members, spec.peers as usize, choice, seed);
    let swarm = Swarm {
        members: members.len(),
        object: wanted.object,
        block: spec.block,
        connections: connections.map_err(ScenarioError::from)?,
    };
    let all = wanted.object.get().div_ceil(spec.block.get().max(1)) * (members.len() as u64 - 1);
    let mut look = |blocks| watch(Progress { done: blocks as f64 / all as f64, events: blocks });
    let Spread { finish, blocks, carried, link_stress } = swarm::spread(&network, &swarm, seed, &mut look)?;
    let last = finish.into_iter().try_fold(Time::ZERO, |last, finish| Some(last.max(finish?)));
    Ok(Outcome { finish: last, blocks, carried, link_stress })
}

fn tables(ground: &Ground, wanted: &Wanted, outcome: &Outcome) -> Tables {
    let mut tables = common::empty_tables();
    common::task_row(&ground.plans[0], (ground.plans[0].at, outcome.finish), None, 0).push(&mut tables.tasks);
    let rate = trees::bound(&ground.topology, &wanted.group) as f64 * ground.network.host_rate;
    for (name, value) in [
        ("finish_s", outcome.finish.map_or(f64::NAN, Time::as_secs_f64)),
        ("ideal_s", wanted.packets as f64 / rate),
        ("network_stress", outcome.carried.get() as f64),
        ("link_stress", outcome.link_stress),
        ("events", outcome.blocks as f64),
    ] {
        MeasureRow { name: name.to_owned(), value }.push(&mut tables.measures);
    }
    tables
}
