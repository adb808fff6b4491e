//! Small switched shapes: one big switch, the dumbbell, and switches in a row.

use std::collections::BTreeMap;

use headwater_units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use super::at_least;
use super::builder::Builder;
use super::{LinkDelay, LinkRate};
use crate::{FabricError, PointId, Topology};

/// Every host on one switch: congestion only at the hosts' own links. Points `h0`... and `switch`; no racks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BigSwitchSpec {
    /// How many.
    pub hosts: u32,
    /// Of every host's cable.
    pub rate: LinkRate,
    /// Of every host's cable, one way: between two hosts it counts twice.
    pub delay: LinkDelay,
    /// Other rates from the host to the switch, by host (`h3` or `3`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uplinks: BTreeMap<String, LinkRate>,
    /// Other rates from the switch to the host, by host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub downlinks: BTreeMap<String, LinkRate>,
}

impl BigSwitchSpec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        at_least(1, "hosts", self.hosts)?;
        let hosts = u128::from(self.hosts);
        let mut builder = Builder::new(packet, hosts + 1, hosts)?;
        let delay = builder.delay("delay", self.delay)?;
        let rate = builder.rate("rate", self.rate)?;
        let uplinks = self.rates(&builder, "uplinks", rate, &self.uplinks)?;
        let downlinks = self.rates(&builder, "downlinks", rate, &self.downlinks)?;
        let hosts: Vec<PointId> = (0..self.hosts).map(|_| builder.host(None, None)).collect();
        let switch = builder.switch("switch".to_owned(), 1, None, None);
        for (host, rates) in hosts.iter().zip(uplinks.into_iter().zip(downlinks)) {
            builder.uneven_cable(*host, switch, rates, delay);
        }
        builder.finish()
    }

    /// By host.
    fn rates(
        &self,
        builder: &Builder,
        what: &'static str,
        usual: BitRate,
        others: &BTreeMap<String, LinkRate>,
    ) -> Result<Vec<BitRate>, FabricError> {
        let mut rates = vec![usual; self.hosts as usize];
        for (name, rate) in others {
            let number = name.strip_prefix('h').unwrap_or(name);
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            let host = number.parse::<usize>().ok().filter(|_| digits);
            let known = host.and_then(|host| rates.get_mut(host));
            *known.ok_or_else(|| FabricError::UnknownPoint { what, name: name.clone() })? =
                builder.rate(&format!("{what}.{name}"), *rate)?;
        }
        Ok(rates)
    }
}

/// Two switches, `left` and `right`, with hosts on both and one cable between them. The left hosts come first (`h0`...);
/// the racks are 0 and 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumbbellSpec {
    /// How many hosts on the left switch.
    pub left: u32,
    /// How many on the right one.
    pub right: u32,
    /// Of the cable in the middle.
    pub rate: LinkRate,
    /// Of every host's cable; 10 times `rate` if left out, so that the middle is the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_rate: Option<LinkRate>,
    /// Of the cable in the middle, one way.
    pub delay: LinkDelay,
    /// Of every host's cable, one way; none if left out.
    #[serde(default, skip_serializing_if = "LinkDelay::is_zero")]
    pub edge_delay: LinkDelay,
}

impl DumbbellSpec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        at_least(1, "left", self.left)?;
        at_least(1, "right", self.right)?;
        let row = Row {
            hosts: &[self.left, self.right],
            names: &["left".to_owned(), "right".to_owned()],
            rates: &[("rate", self.rate)],
            delays: &[("delay", self.delay)],
            edge_rate: self.edge_rate,
            edge_delay: self.edge_delay,
        };
        row.build(packet)
    }
}

/// Switches in a row, each with its own number of hosts, numbered from the first switch to the last; the rack is the
/// switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainSpec {
    /// How many hosts hang on each switch; the length of the list is the number of switches.
    pub hosts: Vec<u32>,
    /// Names of the switches; `s0`, `s1`... if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Of the cables between neighbours, from the first to the last: one fewer than switches.
    pub rates: Vec<LinkRate>,
    /// Of the same cables, one way.
    pub delays: Vec<LinkDelay>,
    /// Of every host's cable; 10 times the largest of `rates` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_rate: Option<LinkRate>,
    /// Of every host's cable, one way; none if left out.
    #[serde(default, skip_serializing_if = "LinkDelay::is_zero")]
    pub edge_delay: LinkDelay,
}

impl ChainSpec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        let switches = self.hosts.len();
        if switches == 0 {
            return Err(FabricError::TooSmall {
                what: "the number of switches (length of hosts)",
                given: 0,
                least: 1,
            });
        }
        let same = |what, given, needed, why| {
            if given == needed { Ok(()) } else { Err(FabricError::WrongLength { what, given, needed, why }) }
        };
        same("rates", self.rates.len(), switches - 1, "one per pair of neighbouring switches")?;
        same("delays", self.delays.len(), switches - 1, "one per pair of neighbouring switches")?;
        let names = match &self.names[..] {
            [] => (0..switches).map(|switch| format!("s{switch}")).collect(),
            names => names.to_vec(),
        };
        same("names", names.len(), switches, "one per switch")?;
        names.iter().try_for_each(|name| super::explicit::check_name(name))?;
        let row = Row {
            hosts: &self.hosts,
            names: &names,
            rates: &self.rates.iter().map(|rate| ("rates", *rate)).collect::<Vec<_>>(),
            delays: &self.delays.iter().map(|delay| ("delays", *delay)).collect::<Vec<_>>(),
            edge_rate: self.edge_rate,
            edge_delay: self.edge_delay,
        };
        row.build(packet)
    }
}

/// Common parts of the dumbbell and the chain; lists fit each other.
struct Row<'a> {
    hosts: &'a [u32],
    names: &'a [String],
    rates: &'a [(&'static str, LinkRate)],
    delays: &'a [(&'static str, LinkDelay)],
    edge_rate: Option<LinkRate>,
    edge_delay: LinkDelay,
}

impl Row<'_> {
    fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        let hosts: u128 = self.hosts.iter().map(|hosts| u128::from(*hosts)).sum();
        if hosts == 0 {
            return Err(FabricError::TooSmall { what: "the number of hosts", given: 0, least: 1 });
        }
        let mut builder =
            Builder::new(packet, hosts + self.names.len() as u128, hosts + self.rates.len() as u128)?;
        let rates = self.rates.iter().map(|(what, rate)| builder.rate(what, *rate));
        let rates = rates.collect::<Result<Vec<_>, _>>()?;
        let delays = self.delays.iter().map(|(what, delay)| builder.delay(what, *delay));
        let delays = delays.collect::<Result<Vec<_>, _>>()?;
        let edge_rate = match (self.edge_rate, rates.iter().max()) {
            (None, None) => {
                let why = "without a cable between switches there is no rate to derive it from";
                return Err(FabricError::Missing { what: "edge_rate", why });
            }
            (given, fastest) => builder.edge_rate(given, fastest.copied().unwrap_or_default())?,
        };
        let edge_delay = builder.delay("edge_delay", self.edge_delay)?;
        let mut points = Vec::new();
        for (rack, hosts) in (0..).zip(self.hosts) {
            points.extend((0..*hosts).map(|_| (builder.host(Some(rack), None), rack)));
        }
        let names = (0..).zip(self.names);
        let switches: Vec<PointId> =
            names.map(|(rack, name)| builder.switch(name.clone(), 1, Some(rack), None)).collect();
        for (host, rack) in points {
            builder.cable(host, switches[rack as usize], edge_rate, edge_delay);
        }
        for (pair, (rate, delay)) in switches.windows(2).zip(rates.into_iter().zip(delays)) {
            builder.cable(pair[0], pair[1], rate, delay);
        }
        builder.finish()
    }
}
