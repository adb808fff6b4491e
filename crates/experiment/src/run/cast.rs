//! A cast on the packet engine: a few lines of text, and what becomes of them.

use std::collections::BTreeSet;

use headwater_controller::{ControllerConfig, HostAddresses, NetworkSpec};
use headwater_fabric::{HostId, Topology};
use headwater_units::{Duration, Time};
use headwater_wire::TreeRepair;
use thiserror::Error;
use toml::{Table, Value};

use super::common::empty_tables;
use super::network::{self, NetworkSetup};
use super::{Progress, RunError, packet};
use crate::scenario::{Action, Fault, NetworkTextError, Scenario, ScenarioError, Target};
use crate::table::{MeasureRow, Tables, TaskRow};
use crate::workload::{CastText, Get, Wish, Workload, WorkloadError, who_fails_when};
use headwater_sim::packet::cast::MOST_MEMBERS;
use headwater_sim::packet::cast::{self, CastAt, CastOutcome, CastSetup, GetAt};
use headwater_sim::packet::{Change, MemberFault};

/// One object to many hosts, on a network.
#[derive(Clone, Debug, PartialEq)]
pub struct CastSpec {
    /// The network and what goes wrong: a scenario of which only that is used. What happens to hosts happens to nodes: who is paused
    /// says nothing for a while and hears afterwards what the kernel has kept, who is killed is gone, or starts anew when the fault is over, with its objects and
    /// finished blocks.
    pub network: Scenario,
    /// The cast: its object and receivers.
    pub cast: Box<CastText>,
}

/// A cast that cannot be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CastError {
    /// It cannot be read.
    #[error(transparent)]
    Text(#[from] toml::de::Error),
    /// Its network cannot be read.
    #[error(transparent)]
    Network(#[from] NetworkTextError),
    /// Its network cannot be built.
    #[error(transparent)]
    Run(#[from] RunError),
    /// More receivers than a simulated multicast group has members.
    #[error(
        "{0} receivers by multicast; a simulated group has at most {MOST_MEMBERS} members: name fewer, or choose another `wish`"
    )]
    Group(usize),
    /// It names a host that is not there, or one twice.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

impl CastSpec {
    /// Reads a text: a `[cast]`, and besides what a scenario has for its network (`fabric`, `port`, `faults` and so on).
    ///
    /// # Errors
    /// [`CastError`], with the line or the field.
    pub fn of_text(text: &str) -> Result<CastSpec, CastError> {
        let mut table: Table = toml::from_str(text)?;
        let cast = table.remove("cast").unwrap_or(Value::Table(Table::new()));
        let network = toml::to_string(&table).expect("what was read can be written");
        Ok(CastSpec { network: Scenario::of_network(&network)?, cast: Box::new(cast.try_into()?) })
    }
}

/// Runs a cast. It is a pure function of what it is given.
///
/// # Errors
/// [`CastError`], before anything runs.
pub fn run_cast(spec: &CastSpec, seed: u64) -> Result<CastOutcome, CastError> {
    let setup = setup(&spec.network, &spec.cast, seed)?;
    Ok(cast::run(setup, &mut |_, _| ()).map_err(RunError::from)?)
}

/// A job of the scheme `cast` on the packet engine.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let stage = CastStage::new(scenario)?;
    let setup = setup(scenario, stage.cast, seed).map_err(|error| match error {
        CastError::Run(error) => error,
        other => packet::unsupported(other.to_string()),
    })?;
    let wanting = setup.receivers.len() + setup.gets.len();
    let killed = killed(&setup.changes);
    let outcome = cast::run(setup, &mut |left, events| {
        watch(Progress { done: 1.0 - left as f64 / wanting.max(1) as f64, events });
    })?;
    let rows = outcome.receivers.iter().map(|row| (row.host, row.from, row.finished)).collect();
    let repairs: Vec<Repair> = outcome.repairs.iter().map(Repair::from).collect();
    let mut tables = stage.tables(rows, outcome.copies, &repairs);
    for (name, value) in [
        ("messages_per_node", outcome.messages_per_node()),
        ("message_bytes_per_node", outcome.message_bytes_per_node()),
        ("orders_per_node", outcome.orders_per_node()),
        ("host_copies", outcome.host_copies),
        ("host_copies_in", outcome.host_copies_in),
        ("rack_copies_in", outcome.rack_copies.0),
        ("rack_copies_out", outcome.rack_copies.1),
        ("drops", outcome.dropped as f64),
        ("events", outcome.events as f64),
    ] {
        MeasureRow { name: name.to_owned(), value }.push(&mut tables.measures);
    }
    if scenario.has_faults() {
        let without = || outcome.receivers.iter().filter(|row| row.finished.is_none());
        let dead = without().filter(|row| killed.contains(&row.host)).count();
        for (name, value) in [("killed", killed.len()), ("unfinished", without().count() - dead)] {
            MeasureRow { name: name.to_owned(), value: value as f64 }.push(&mut tables.measures);
        }
    }
    Ok(tables)
}

/// Hosts that are killed for good.
fn killed(changes: &[(Time, Change)]) -> BTreeSet<u32> {
    let mut killed = BTreeSet::new();
    for (_, change) in changes {
        match change {
            Change::Killed(host) => _ = killed.insert(*host),
            Change::Restart(host) => _ = killed.remove(host),
            _ => {}
        }
    }
    killed
}

/// A cast for engines outside the models.
pub struct CastStage<'a> {
    /// The cast: its object and receivers.
    pub cast: &'a CastText,
    /// How many hosts there are.
    pub hosts: u32,
    /// The scenario's end.
    until: Time,
    /// Capacity of the source's links.
    uplink: f64,
}

impl<'a> CastStage<'a> {
    /// Of a scenario of the scheme `cast`.
    ///
    /// # Errors
    /// [`RunError`] if it is of another one, or cannot be run at all.
    pub fn new(scenario: &'a Scenario) -> Result<Self, RunError> {
        let Workload::Cast(cast) = &scenario.workload else {
            return Err(ScenarioError::NotCast(scenario.scheme).into());
        };
        let topology = scenario.topology().map_err(ScenarioError::from)?;
        let lines = packet::lines(&topology);
        let hosts = lines.len() as u32;
        cast.plan(hosts).map_err(ScenarioError::from)?;
        let (uplink, _) = lines[cast.source as usize];
        let until = scenario.until.unwrap_or(cast.until);
        Ok(CastStage {
            cast,
            hosts: lines.len() as u32,
            until: Time::ZERO + until,
            uplink: uplink.get() as f64,
        })
    }

    /// When it is broken off.
    pub fn until(&self) -> Time {
        self.until
    }

    /// The tables of those that were to have the object: when each wanted it, and had it. `copies` is what left the source, over one
    /// copy ([`CastText::one_copy`]). Measures of repairs are there where there were any: of the first one, and of the first that all
    /// nodes were told of, since another may overtake one.
    pub fn tables(&self, rows: Vec<(u32, Time, Option<Time>)>, copies: f64, repairs: &[Repair]) -> Tables {
        let mut tables = empty_tables();
        let one_copy = self.cast.one_copy().get() as f64 * 8.0 / self.uplink;
        let packets = self.cast.geometry().total_symbols().get();
        let mut last = 0.0_f64;
        for (host, from, finished) in rows {
            let arrival_s = from.as_secs_f64();
            let finish_s = finished.map_or(f64::NAN, Time::as_secs_f64);
            let tct_s = finish_s - arrival_s;
            // A NaN stays one.
            last = if last.is_nan() || finish_s.is_nan() { f64::NAN } else { last.max(finish_s) };
            let row = TaskRow {
                task: format!("h{host}"),
                arrival_s,
                finish_s,
                tct_s,
                normalised: f64::NAN,
                packets,
                receiver: u64::from(host),
                fanout: 1,
                timeouts: 0,
                goodput: packets as f64 / tct_s,
                slowdown: tct_s / one_copy,
                trimmed: f64::NAN,
                unneeded: f64::NAN,
            };
            row.push(&mut tables.tasks);
        }
        for (name, value) in
            [("finish_s", last), ("one_copy_s", one_copy), ("stretch", last / one_copy), ("copies", copies)]
        {
            MeasureRow { name: name.to_owned(), value }.push(&mut tables.measures);
        }
        if let Some(first) = repairs.first() {
            let told = repairs.iter().find_map(|repair| repair.told_s).unwrap_or(f64::NAN);
            for (name, value) in [
                ("repairs", repairs.len() as f64),
                ("repair_detected_s", first.silent_s + first.decided_s),
                ("repair_told_s", told),
            ] {
                MeasureRow { name: name.to_owned(), value }.push(&mut tables.measures);
            }
        }
        tables
    }
}

/// How long a repair of a cast's trees took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repair {
    /// For how long the neighbour had been silent of which this was first reported.
    pub silent_s: f64,
    /// From the report to the new trees.
    pub decided_s: f64,
    /// From then on until all nodes had confirmed them, if they had.
    pub told_s: Option<f64>,
}

impl From<&TreeRepair> for Repair {
    fn from(repair: &TreeRepair) -> Repair {
        Repair {
            silent_s: repair.silent.as_secs_f64(),
            decided_s: repair.decided.as_secs_f64(),
            told_s: repair.told.map(Duration::as_secs_f64),
        }
    }
}

fn setup(scenario: &Scenario, cast: &CastText, seed: u64) -> Result<CastSetup, CastError> {
    let hosts =
        scenario.topology().map_err(|error| RunError::from(ScenarioError::from(error)))?.hosts().len() as u32;
    let scenario = &with_drawn_faults(scenario, cast, hosts, seed);
    let NetworkSetup { topology, routes, port, choice, mut changes } = network::setup(scenario, seed)?;
    cut_from_controller(scenario, &topology, &mut changes);
    let receivers = cast.receivers(hosts);
    let most = cast.further.iter().map(|cast| cast.receivers.len()).chain([receivers.len()]).max();
    check(hosts, cast, most.unwrap_or(0))?;
    let get = |get: &Get| GetAt { at: Time::ZERO + get.at, host: get.host, delivery: get.by.map(Into::into) };
    let mut gets: Vec<GetAt> = cast.gets.iter().map(get).collect();
    gets.sort_by_key(|get| (get.at, get.host));
    let mut further: Vec<CastAt> = (cast.further.iter())
        .map(|cast| CastAt { at: Time::ZERO + cast.at, receivers: cast.receivers.clone() })
        .collect();
    further.sort_by_key(|cast| cast.at);
    let addresses = (0..hosts).map(|host| HostAddresses::One(cast::address(host).ip())).collect();
    let knows_network = cast.knows_network || matches!(cast.wish, Wish::Trees | Wish::Rates);
    let network = knows_network.then(|| NetworkSpec {
        fabric: scenario.fabric.clone(),
        hosts: addresses,
        switches: Default::default(),
        trees: None,
        framing: Some(cast.framing),
        signalling: cast.signalling,
        computes_rates: scenario.grants_rates(),
        tolerated_queue: scenario.tolerated_queue().into(),
    });
    if let Some(network) = &network {
        network.check().map_err(|error| packet::unsupported(error.to_string()))?;
    }
    Ok(CastSetup {
        room: cast.room(),
        racks: if cast.states_racks { racks(&topology) } else { Vec::new() },
        lines: if cast.states_rates { packet::lines(&topology) } else { Vec::new() },
        topology,
        routes,
        port,
        choice,
        jitter: network::jitter(scenario),
        changes,
        bytes: cast.object,
        source: cast.source,
        holders: cast.holders.clone(),
        receivers,
        wish: cast.wish.into(),
        gets,
        further,
        control_delay: cast.control_delay,
        noticed: cast.noticed,
        prepare: cast.prepare,
        decode: cast.decode,
        overhead: cast.overhead,
        controller: ControllerConfig::default(),
        multicast: by_group(cast),
        network,
        framing: cast.framing,
        until: Time::ZERO + scenario.until.unwrap_or(cast.until),
        drain: cast.drain,
        seed,
    })
}

/// The scenario with the faults of one seed. Hosts that hold the object from the start have none of those that are drawn.
fn with_drawn_faults(scenario: &Scenario, cast: &CastText, hosts: u32, seed: u64) -> Scenario {
    let holds = |host: &u32| *host == cast.source || cast.holders.contains(host);
    let others: Vec<u32> = (0..hosts).filter(|host| !holds(host)).collect();
    let mut scenario = scenario.clone();
    for (number, drawn) in (0..).zip(std::mem::take(&mut scenario.drawn_faults)) {
        let many = (drawn.share * f64::from(hosts)).ceil() as u32;
        let failing = who_fails_when((seed, number), &others, many, (drawn.from, drawn.to));
        let fault = |(host, at)| Fault { at, until: None, on: Target::Host(host), what: drawn.what.clone() };
        scenario.faults.extend(failing.into_iter().map(fault));
    }
    scenario
}

/// Messages travel beside the network, so those of a rack that is cut off must be held up too.
fn cut_from_controller(scenario: &Scenario, topology: &Topology, changes: &mut Vec<(Time, Change)>) {
    for fault in &scenario.faults {
        let (Target::Rack(rack), Action::RackCut) = (&fault.on, &fault.what) else { continue };
        let hosts =
            (0..topology.hosts().len() as u32).filter(|host| topology.rack_of(HostId(*host)) == Some(*rack));
        for host in hosts {
            let change =
                |at: Duration, cut| (Time::ZERO + at, Change::Member(host, MemberFault::CutOff(cut)));
            changes.push(change(fault.at, true));
            changes.extend(fault.until.map(|until| change(until, false)));
        }
    }
    changes.sort_by_key(|(at, _)| *at);
}

/// By host: the rack that it stands in, if it stands in one.
fn racks(topology: &Topology) -> Vec<Option<u32>> {
    (0..topology.hosts().len() as u32).map(|host| topology.rack_of(HostId(host))).collect()
}

/// Whether the network carries what is sent to groups.
fn by_group(cast: &CastText) -> bool {
    cast.multicast || matches!(cast.wish, Wish::Multicast | Wish::Rates)
}

/// `most`: receivers of the cast with the most.
fn check(hosts: u32, cast: &CastText, most: usize) -> Result<(), CastError> {
    if by_group(cast) && most > MOST_MEMBERS {
        return Err(CastError::Group(most));
    }
    cast.plan(hosts)?;
    Ok(())
}
