//! One object to many hosts by what runs on real hosts: a controller and a node on each.

use std::collections::BTreeSet;

use headwater_controller::SignallingMode;
use headwater_units::{Bytes, Duration, Geometry, Time};
use headwater_wire::{CastWish, Delivery, SYMBOL_OVERHEAD};
use serde::{Deserialize, Serialize};

use super::{TaskFlows, TaskPlan, WorkloadError};
use crate::text;

/// IPv4 and UDP in an IP packet.
const IP_UDP: u16 = 28;
/// Symbols that each source pushes to a get that pulls, before it is asked for more.
const INITIAL_WINDOW: u16 = 16;

/// A cast, and gets beside it. Those fields that say so are for models; on real packets things are as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CastText {
    /// The object's size.
    #[serde(with = "text::one")]
    pub object: Bytes,
    /// The host that holds it.
    #[serde(default)]
    pub source: u32,
    /// Models: hosts that hold it besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<u32>,
    /// On real packets the host by which the controller runs, if possible one that has no other part in it: the last of those, or the
    /// source, if absent. In models its messages travel beside the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<u32>,
    /// Bytes that a line carries around an IP packet, as in a topology file for casts: 38 B if absent, Ethernet with
    /// preamble, check sequence and gap. Emulated networks count 14 B.
    #[serde(default = "CastText::usual_framing", with = "text::one")]
    pub framing: Bytes,
    /// The longest IP packet; 1500 B if absent, Ethernet's.
    #[serde(
        default = "CastText::usual_mtu",
        with = "text::one",
        skip_serializing_if = "CastText::is_usual_mtu"
    )]
    pub mtu: Bytes,
    /// Hosts that are to have it; all others if absent but for those of `gets` and `further`. None: there is no cast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receivers: Option<Vec<u32>>,
    /// How it is to travel.
    #[serde(default)]
    pub wish: Wish,
    /// Hosts that get it by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gets: Vec<Get>,
    /// Models: further casts of the object by the same asker, with the same wish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Further>,
    /// Models: one way between a host and the controller; 100 us if absent.
    #[serde(default = "CastText::usual_delay", with = "text::one")]
    pub control_delay: Duration,
    /// Models: silence after which a host is taken to be gone; 8 s if absent, when links between nodes time out.
    #[serde(default = "CastText::usual_notice", with = "text::one")]
    pub noticed: Duration,
    /// Models: how long it takes to read a block; no time if absent.
    #[serde(default, with = "text::one")]
    pub prepare: Duration,
    /// Models: and to decode one of which symbols were lost; no time if absent.
    #[serde(default, with = "text::one")]
    pub decode: Duration,
    /// Models: symbols beyond K that such a block needs; drawn if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<u32>,
    /// Hosts say what their links carry. Where nobody does, senders find out.
    #[serde(default)]
    pub states_rates: bool,
    /// Hosts say in which rack they stand, where the fabric has racks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub states_racks: bool,
    /// The network carries what is sent to groups; it does if that is wished for.
    #[serde(default)]
    pub multicast: bool,
    /// The controller knows the network; it does if trees are wished for.
    #[serde(default)]
    pub knows_network: bool,
    /// How nodes are told that a tree was rerouted, as in a topology file.
    #[serde(default, skip_serializing_if = "CastText::is_usual_signalling")]
    pub signalling: SignallingMode,
    /// The run ends then, whatever is left to do; after 10 min if absent.
    #[serde(default = "CastText::usual_end", with = "text::one")]
    pub until: Duration,
    /// Models: most time that the run goes on after the last receiver and the last fault, until controller and hosts are at rest; none
    /// if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub drain: Option<Duration>,
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
    /// By a group's address, at the rates that the ports of a network grant that is known.
    Rates,
}

/// A host that gets the object by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Get {
    /// Its number.
    pub host: u32,
    /// The time.
    #[serde(with = "text::one")]
    pub at: Duration,
    /// Models: the transport that it asks for; the controller chooses if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// A further cast, while an earlier one may still run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Further {
    /// The time.
    #[serde(with = "text::one")]
    pub at: Duration,
    /// Its receivers: any hosts but those that hold the object from the beginning, also such that another cast or a get serves.
    pub receivers: Vec<u32>,
}

/// A transport that a get may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Sources push (PPUSH).
    Push,
    /// It pulls (SCDP).
    Pull,
}

impl CastText {
    fn usual_framing() -> Bytes {
        Bytes::new(38)
    }
    fn usual_mtu() -> Bytes {
        Bytes::new(1500)
    }
    fn is_usual_mtu(mtu: &Bytes) -> bool {
        *mtu == CastText::usual_mtu()
    }
    fn is_usual_signalling(signalling: &SignallingMode) -> bool {
        *signalling == SignallingMode::default()
    }
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

impl From<By> for Delivery {
    fn from(by: By) -> Delivery {
        match by {
            By::Push => Delivery::Push,
            By::Pull => Delivery::Pull { initial_window: INITIAL_WINDOW },
        }
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
            Wish::Rates => CastWish::Rates,
        }
    }
}

impl CastText {
    /// Hosts that are to have the object by the cast, of `hosts` hosts.
    pub fn receivers(&self, hosts: u32) -> Vec<u32> {
        let others = |host: &u32| {
            let part = Some(*host) != self.controller && *host != self.source && !self.holders.contains(host);
            let later = self.further.iter().any(|cast| cast.receivers.contains(host));
            part && !later && self.gets.iter().all(|get| get.host != *host)
        };
        self.receivers.clone().unwrap_or_else(|| (0..hosts).filter(others).collect())
    }

    /// Where the controller runs on real packets.
    pub fn controller(&self, hosts: u32) -> u32 {
        let receivers = self.receivers(hosts);
        let idle = (0..hosts).rev().find(|host| {
            let wants = receivers.contains(host) || self.gets.iter().any(|get| get.host == *host);
            !wants && *host != self.source
        });
        self.controller.or(idle).unwrap_or(self.source)
    }

    /// Bytes of symbol that a datagram carries.
    pub fn room(&self) -> u16 {
        u16::try_from(self.mtu.get()).unwrap_or(u16::MAX).saturating_sub(IP_UDP + SYMBOL_OVERHEAD as u16)
    }

    /// How the object is cut where packets are as long as they may be.
    pub fn geometry(&self) -> Geometry {
        Geometry::fitting(self.object, self.room())
    }

    /// Bytes of one copy of the object on a line, all headers included.
    pub fn one_copy(&self) -> Bytes {
        let geometry = self.geometry();
        let around = u64::from(IP_UDP) + SYMBOL_OVERHEAD as u64 + self.framing.get();
        Bytes::new(geometry.total_symbols().get() * (u64::from(geometry.symbol_size()) + around))
    }

    /// A task for each that is to have it: `h3` is that of host 3.
    ///
    /// # Errors
    /// [`WorkloadError`] if it names a host that is not there, or one twice.
    pub(crate) fn plan(&self, hosts: u32) -> Result<Vec<TaskPlan>, WorkloadError> {
        let packets = self.geometry().total_symbols().get();
        let cast = self.receivers(hosts).into_iter().map(|host| (Time::ZERO, host));
        let gets = self.gets.iter().map(|get| (Time::ZERO + get.at, get.host));
        let wanting: Vec<(Time, u32)> = cast.chain(gets).collect();
        let mut seen = vec![false; hosts as usize];
        let holding = std::iter::once(self.source).chain(self.holders.iter().copied());
        for host in holding.chain(wanting.iter().map(|(_, host)| *host)) {
            let known = seen.get_mut(host as usize);
            let known = known.ok_or(WorkloadError::NoHost { what: "the cast".to_owned(), host, hosts })?;
            if std::mem::replace(known, true) {
                return Err(WorkloadError::HostTwice { task: "cast".to_owned(), host });
            }
        }
        for cast in &self.further {
            let mut named = BTreeSet::new();
            for host in cast.receivers.iter().copied() {
                if host >= hosts {
                    return Err(WorkloadError::NoHost { what: "a further cast".to_owned(), host, hosts });
                }
                if !named.insert(host) || host == self.source || self.holders.contains(&host) {
                    return Err(WorkloadError::HostTwice { task: "further cast".to_owned(), host });
                }
            }
        }
        let task = |(at, host): (Time, u32)| TaskPlan {
            name: format!("h{host}"),
            at,
            packets: Some(packets),
            sources: vec![self.source],
            receiver: host,
            further: Vec::new(),
            relayed: false,
            theta: None,
            deadline: None,
            flows: TaskFlows::Scheme,
            stop: None,
            awaited: true,
        };
        Ok(wanting.into_iter().map(task).collect())
    }
}
