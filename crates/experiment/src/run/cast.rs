//! A cast on the packet engine: a few lines of text, and what becomes of them.

use headwater_controller::{ControllerConfig, HostAddresses, NetworkSpec};
use headwater_units::{Bytes, Duration, Time};
use headwater_wire::CastWish;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::{Table, Value};

use super::network::{self, NetworkSetup};
use super::{RunError, packet};
use crate::scenario::text;
use crate::scenario::{NetworkTextError, Scenario};
use headwater_sim::packet::cast::MOST_MEMBERS;
use headwater_sim::packet::cast::{self, CastOutcome, CastSetup};

/// One object to many hosts, on a network.
#[derive(Clone, Debug, PartialEq)]
pub struct CastSpec {
    /// The network and what goes wrong: a scenario of which only that is used. What happens to hosts happens to nodes: who is paused
    /// neither hears nor says anything for a while, who is killed is gone, or starts anew when the fault is over, with its objects and
    /// finished blocks.
    pub network: Scenario,
    /// Who is to have what.
    pub cast: CastText,
}

/// The `[cast]` part of the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CastText {
    /// The object's size.
    #[serde(with = "text::one")]
    pub object: Bytes,
    /// The host that holds it.
    #[serde(default)]
    pub source: u32,
    /// Hosts that are to have it; all others if absent but for those of `gets`. None: there is no cast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receivers: Option<Vec<u32>>,
    /// How it is to travel.
    #[serde(default)]
    pub wish: Wish,
    /// Hosts that get it by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gets: Vec<Get>,
    /// One way between a host and the controller: 100 us.
    #[serde(default = "CastText::usual_delay", with = "text::one")]
    pub control_delay: Duration,
    /// A host that says nothing is taken to be gone after so long: 8 s, when links between nodes time out.
    #[serde(default = "CastText::usual_notice", with = "text::one")]
    pub noticed: Duration,
    /// How long it takes to read a block: no time.
    #[serde(default, with = "text::one")]
    pub prepare: Duration,
    /// And to decode one of which symbols were lost: no time.
    #[serde(default, with = "text::one")]
    pub decode: Duration,
    /// Symbols beyond K that such a block needs; drawn if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<u32>,
    /// Hosts say what their links carry. Where nobody does, senders find out.
    #[serde(default)]
    pub states_rates: bool,
    /// The network carries what is sent to groups; it does if that is wished for.
    #[serde(default)]
    pub multicast: bool,
    /// The controller knows the network; it does if trees are wished for.
    #[serde(default)]
    pub knows_network: bool,
    /// The run ends then, whatever is left to do: 10 min.
    #[serde(default = "CastText::usual_end", with = "text::one")]
    pub until: Duration,
}

/// How a cast is to travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    /// The best that works.
    #[default]
    Best,
    /// Receivers pass on to each other what comes.
    Overlay,
    /// Each receiver by itself.
    Unicast,
    /// By a group's address.
    Multicast,
    /// Down trees of a network that is known.
    Trees,
}

/// A host that gets the object by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Get {
    /// Its number.
    pub host: u32,
    /// When.
    #[serde(with = "text::one")]
    pub at: Duration,
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
    #[error("host {host} is {what}; there are {hosts}, each of which is the source or wants the object once")]
    Host {
        /// The host.
        host: u32,
        /// What is wrong.
        what: &'static str,
        /// How many there are.
        hosts: u32,
    },
}

impl CastText {
    fn usual_delay() -> Duration {
        Duration::from_micros(100)
    }
    fn usual_notice() -> Duration {
        Duration::from_secs(8)
    }
    fn usual_end() -> Duration {
        Duration::from_secs(600)
    }
}

impl From<Wish> for CastWish {
    fn from(wish: Wish) -> CastWish {
        match wish {
            Wish::Best => CastWish::Best,
            Wish::Overlay => CastWish::Overlay,
            Wish::Unicast => CastWish::Unicast,
            Wish::Multicast => CastWish::Multicast,
            Wish::Trees => CastWish::Trees,
        }
    }
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
        Ok(CastSpec { network: Scenario::of_network(&network)?, cast: cast.try_into()? })
    }
}

/// Runs a cast. It is a pure function of what it is given.
///
/// # Errors
/// [`CastError`], before anything runs.
pub fn run_cast(spec: &CastSpec, seed: u64) -> Result<CastOutcome, CastError> {
    let setup = setup(spec, seed)?;
    Ok(cast::run(setup).map_err(RunError::from)?)
}

fn setup(spec: &CastSpec, seed: u64) -> Result<CastSetup, CastError> {
    let CastSpec { network: scenario, cast } = spec;
    let NetworkSetup { topology, routes, port, choice, changes } = network::setup(scenario, seed)?;
    let hosts = topology.hosts().len() as u32;
    let receivers = cast.receivers.clone().unwrap_or_else(|| {
        let others = (0..hosts).filter(|host| *host != cast.source);
        others.filter(|host| cast.gets.iter().all(|get| get.host != *host)).collect()
    });
    check(hosts, cast, &receivers)?;
    let mut gets: Vec<(Time, u32)> = cast.gets.iter().map(|get| (Time::ZERO + get.at, get.host)).collect();
    gets.sort();
    let addresses = (0..hosts).map(|host| HostAddresses::One(cast::address(host).ip())).collect();
    let knows_network = cast.knows_network || cast.wish == Wish::Trees;
    let network = knows_network.then(|| NetworkSpec {
        fabric: scenario.fabric.clone(),
        hosts: addresses,
        switches: Default::default(),
        trees: None,
        framing: None,
        signalling: Default::default(),
    });
    if let Some(network) = &network {
        network.check().map_err(|error| packet::unsupported(error.to_string()))?;
    }
    Ok(CastSetup {
        lines: if cast.states_rates { packet::lines(&topology) } else { Vec::new() },
        topology,
        routes,
        port,
        choice,
        jitter: packet::jitter(scenario),
        changes,
        bytes: cast.object,
        source: cast.source,
        receivers,
        wish: cast.wish.into(),
        gets,
        control_delay: cast.control_delay,
        noticed: cast.noticed,
        prepare: cast.prepare,
        decode: cast.decode,
        overhead: cast.overhead,
        controller: ControllerConfig::default(),
        multicast: cast.multicast || cast.wish == Wish::Multicast,
        network,
        until: Time::ZERO + cast.until,
        seed,
    })
}

fn check(hosts: u32, cast: &CastText, receivers: &[u32]) -> Result<(), CastError> {
    let by_group = cast.multicast || cast.wish == Wish::Multicast;
    if by_group && receivers.len() > MOST_MEMBERS {
        return Err(CastError::Group(receivers.len()));
    }
    let mut seen = vec![false; hosts as usize];
    let wanting = receivers.iter().copied().chain(cast.gets.iter().map(|get| get.host));
    for host in std::iter::once(cast.source).chain(wanting) {
        let wrong = |what| CastError::Host { host, what, hosts };
        let seen = seen.get_mut(host as usize).ok_or(wrong("not there"))?;
        if std::mem::replace(seen, true) {
            return Err(wrong("named twice"));
        }
    }
    Ok(())
}
