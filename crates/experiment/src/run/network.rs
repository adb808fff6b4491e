//! The network of a scenario, ready to be built: for the packet engine, and for engines under real packets.

use headwater_fabric::{LinkId, Routes, Topology};
use headwater_switch::{
    Allocator, Choice, ClassMap, Limit, LinkChange, PortConfig, QueueConfig, Service as PortService,
    Threshold, WhenFull as PortFull,
};
use headwater_units::{BitRate, Duration, Time};
use headwater_wire::Class;

use super::{RunError, common};
use crate::engine::Engine;
use crate::scenario::{
    Action, Amount, LossPlace, PortSpec, Routing, Scenario, ScenarioError, Service, Target, WhenFull, look_up,
};
use headwater_sim::packet::{Change, Jitter, MemberFault, packet_on_path, switch_divisors};

/// A network, its ports and its faults. What runs on it is not in here.
pub struct NetworkSetup {
    /// The network.
    pub topology: Topology,
    /// Where switches send what is for a host.
    pub routes: Routes,
    /// The port of a link; the flag says whether a host's NIC is meant.
    pub port: Box<dyn Fn(LinkId, bool) -> PortConfig>,
    /// How a switch, counted in the order of the points, chooses among equal paths.
    pub choice: Box<dyn Fn(u32) -> Choice>,
    /// Faults, ascending by time.
    pub changes: Vec<(Time, Change)>,
}

impl NetworkSetup {
    /// The longest time that a host takes to send a packet to another, by the number of hosts times the one plus the other;
    /// empty if they take none.
    pub fn jitter(&self, scenario: &Scenario) -> Vec<Duration> {
        let hosts = self.topology.hosts().len() as u32;
        let pairs = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to)));
        match jitter(scenario) {
            Jitter::None => Vec::new(),
            Jitter::UpTo(most) => pairs.map(|_| most).collect(),
            Jitter::PacketOnPath => {
                let data = scenario.packet.data;
                pairs.map(|(from, to)| packet_on_path(&self.topology, &self.routes, data, from, to)).collect()
            }
        }
    }
}

/// Time that hosts take to send a packet.
pub(super) fn jitter(scenario: &Scenario) -> Jitter {
    match scenario.jitter {
        None => Jitter::PacketOnPath,
        Some(Duration::ZERO) => Jitter::None,
        Some(most) => Jitter::UpTo(most),
    }
}

/// Builds the network of a scenario.
pub(super) fn setup(scenario: &Scenario, seed: u64) -> Result<NetworkSetup, RunError> {
    setup_on(scenario, scenario.topology().map_err(ScenarioError::from)?, seed)
}

/// The same where the topology is built already.
pub(super) fn setup_on(scenario: &Scenario, topology: Topology, seed: u64) -> Result<NetworkSetup, RunError> {
    if !scenario.drawn_faults.is_empty() {
        return Err(unsupported("drawn faults, but for those of casts"));
    }
    let routes = common::routes(scenario, &topology)?;
    let routing = scenario.routing;
    let divisors = match routing {
        Routing::SourceSpray => switch_divisors(&topology, &routes),
        _ => Vec::new(),
    };
    let choice = move |switch: u32| match routing {
        Routing::SourceSpray => Choice::Path { divisor: divisors.get(switch as usize).copied().unwrap_or(1) },
        Routing::Ecmp => Choice::Hash { salt: u64::from(switch) << 32 | seed },
        Routing::Spray => Choice::Spray { seed: seed ^ (u64::from(switch) << 32) },
        Routing::DModK | Routing::First => Choice::First,
    };
    let rates: Vec<BitRate> =
        common::links(&topology).map(|link| common::capacity(&topology, link)).collect();
    let switch_port = port(&scenario.port);
    let nic = scenario.nic.as_ref().map_or_else(|| switch_port.clone(), port);
    let granting = scenario.nic.as_ref().unwrap_or(&scenario.port).allocator.clone();
    let granting = [scenario.port.allocator.clone(), granting];
    let round_trip = match &granting {
        [None, None] => Duration::ZERO,
        _ => common::base_rtt(scenario, &topology),
    };
    let port = move |link: LinkId, is_nic: bool| {
        let of = if is_nic { &nic } else { &switch_port };
        let allocator = match &granting[usize::from(is_nic)] {
            Some(spec) => Allocator::Pam(spec.config(round_trip, link.0)),
            None => Allocator::None,
        };
        PortConfig { rate: rates[link.0 as usize], allocator, ..of.clone() }
    };
    let changes = changes(scenario, &topology)?;
    Ok(NetworkSetup { topology, routes, port: Box::new(port), choice: Box::new(choice), changes })
}

fn unsupported(what: &str) -> RunError {
    common::unsupported(Engine::Packet, what)
}

/// One port of the file, but for the rate of its link.
fn port(spec: &PortSpec) -> PortConfig {
    let limit = |amount: Amount| match amount {
        Amount::Packets(n) => Some(Limit::Packets(n)),
        Amount::Bytes(n) => Some(Limit::Bytes(n)),
        Amount::Unlimited => None,
    };
    let threshold = |amount: Amount| match amount {
        Amount::Packets(n) => Some(Threshold::Packets(n)),
        Amount::Bytes(n) => Some(Threshold::Bytes(n)),
        Amount::Unlimited => None,
    };
    let mut config = PortConfig::fifo(BitRate::ZERO, limit(spec.queue), threshold(spec.mark_threshold));
    if !spec.classes.is_empty() {
        config.pool = limit(spec.queue);
        config.queues = spec
            .classes
            .iter()
            .map(|class| QueueConfig {
                limit: limit(class.queue),
                mark_threshold: threshold(class.mark_threshold.unwrap_or(spec.mark_threshold)),
                shares_pool: config.pool.is_some() && !class.apart,
            })
            .collect();
        let named = |class: Class| spec.classes.iter().position(|c| c.of.contains(&(class as u8)));
        let queue_of = |class: Class| match class {
            // Ports that know no levels have them where bulk is.
            Class::First | Class::Second | Class::Third => named(class).or(named(Class::Bulk)).unwrap_or(0),
            _ => named(class).unwrap_or(0),
        };
        config.classes = ClassMap::by(queue_of);
        config.service = match spec.service {
            Service::Strict => PortService::Strict,
            Service::Weighted => PortService::Weighted(spec.classes.iter().map(|c| c.weight).collect()),
            Service::FirstAgainstRest => PortService::FirstAgainstRest {
                first: spec.classes[0].weight,
                rest: spec.classes.get(1).map_or(1, |class| class.weight),
            },
        };
    }
    config.when_full = match spec.when_full {
        WhenFull::Drop => PortFull::Drop,
        WhenFull::Trim => PortFull::Trim,
    };
    config
}

/// Faults of a scenario, ascending by time.
pub(super) fn changes(scenario: &Scenario, topology: &Topology) -> Result<Vec<(Time, Change)>, RunError> {
    let mut changes = Vec::new();
    for (i, fault) in scenario.faults.iter().enumerate() {
        let (begin, end) = (Time::ZERO + fault.at, fault.until.map(|until| Time::ZERO + until));
        let mut both = |during: Change, after: Option<Change>| {
            changes.push((begin, during));
            changes.extend(end.zip(after));
        };
        match (&fault.on, &fault.what) {
            (Target::Link(name), what) => {
                let link = look_up(topology, &format!("faults.{i}"), name)?;
                let rate = topology.fabric().link(link).and_then(|l| l.capacity).unwrap_or_default();
                let (during, after) = match *what {
                    Action::DropRun { packets } => (LinkChange::DropNext(u64::from(packets)), None),
                    Action::RandomLoss { place: LossPlace::BeforeQueue, .. } => {
                        return Err(unsupported("loss before the queue"));
                    }
                    Action::RandomLoss { p, .. } => (LinkChange::Loss(p), Some(LinkChange::Loss(0.0))),
                    Action::Reorder { p, by } => {
                        (LinkChange::Reorder(p, by), Some(LinkChange::Reorder(0.0, by)))
                    }
                    Action::Duplicate { p } => (LinkChange::Duplicate(p), Some(LinkChange::Duplicate(0.0))),
                    Action::SetRate { rate: to } => {
                        let to = to.resolve(scenario.packet.data);
                        (LinkChange::Rate(to), Some(LinkChange::Rate(rate)))
                    }
                    Action::LinkDown => (LinkChange::Down(true), Some(LinkChange::Down(false))),
                    _ => return Err(unsupported("on a link what happens to hosts")),
                };
                both(Change::Link(link, during), after.map(|after| Change::Link(link, after)));
            }
            (&Target::Rack(rack), Action::RackCut) => {
                for link in links_across(topology, rack) {
                    let change = |down| Change::Link(link, LinkChange::Down(down));
                    both(change(true), Some(change(false)));
                }
            }
            (Target::Rack(_), _) => return Err(unsupported("another fault on a rack")),
            (&Target::Host(host), Action::HostPause) => {
                both(Change::Paused(host, true), Some(Change::Paused(host, false)));
            }
            (&Target::Host(host), Action::HostRestart) => both(Change::Restart(host), None),
            (&Target::Host(host), Action::HostKill) => {
                both(Change::Killed(host), Some(Change::Restart(host)));
                // It starts anew in silence, and speaks at once after that.
                changes.extend(end.map(|end| (end, Change::Paused(host, false))));
            }
            (&Target::Host(host), what) => {
                let (during, after) =
                    member_fault(what).ok_or_else(|| unsupported("a link's fault on a host"))?;
                both(Change::Member(host, during), Some(Change::Member(host, after)));
            }
            (Target::Controller, Action::ControllerRestart { forgets }) => {
                if *forgets {
                    both(Change::LoseControllerState, None);
                }
                both(Change::RestartController, None);
            }
            (Target::Controller, _) => return Err(unsupported("another fault on the controller")),
        }
    }
    // Stable: changes of one moment happen in the order of the file.
    changes.sort_by_key(|(at, _)| *at);
    Ok(changes)
}

/// Links into and out of a rack, ascending.
fn links_across(topology: &Topology, rack: u32) -> impl Iterator<Item = LinkId> {
    let is_within = move |point| topology.place(point).is_some_and(|place| place.rack == Some(rack));
    common::links(topology).filter(move |link| {
        let link = topology.fabric().link(*link);
        link.is_some_and(|link| is_within(link.from) != is_within(link.to))
    })
}

/// Fault of a cast's member during a fault of the scenario, and its state after it.
fn member_fault(what: &Action) -> Option<(MemberFault, MemberFault)> {
    Some(match *what {
        Action::DiskFull => (MemberFault::DiskFull(true), MemberFault::DiskFull(false)),
        Action::DiskUnreadable => (MemberFault::DiskUnreadable(true), MemberFault::DiskUnreadable(false)),
        Action::DiskLate { by } => (MemberFault::DiskLate(by), MemberFault::DiskLate(Duration::ZERO)),
        Action::WrongSymbols { p } => (MemberFault::WrongSymbols(p), MemberFault::WrongSymbols(0.0)),
        Action::ForgedFeedback { p } => (MemberFault::ForgedFeedback(p), MemberFault::ForgedFeedback(0.0)),
        Action::Corrupt { p } => (MemberFault::Corrupt(p), MemberFault::Corrupt(0.0)),
        Action::Replay { p, by } => (MemberFault::Replay(p, by), MemberFault::Replay(0.0, by)),
        _ => return None,
    })
}
