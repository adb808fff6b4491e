//! Small networks point by point: whatever no other shape gives.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use headwater_units::Bytes;
use serde::{Deserialize, Serialize};

use super::builder::Builder;
use super::text::serde_as_text;
use super::{LinkDelay, LinkRate};
use crate::topology::Shape;
use crate::{FabricError, PointId, Topology};

/// A network of named points. Host 0 is the first one listed. A host's rack is the first switch that it is joined to, by
/// its position in `switches`.
///
/// ```toml
/// kind = "graph"
/// switches = ["s1", "s2"]
/// hosts = ["h0 on s1, 1 Mpps, 20 us", "h1 on s2, 1 Mpps, 20 us", "receiver"]
/// links = [
///     { a = "s1", b = "receiver", rate = "750 kpps", delay = "20 us" },
///     { a = "s2", b = "receiver", rate = "250 kpps", delay = "20 us" },
/// ]
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    /// Their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<String>,
    /// Their names, each alone or with its first cable.
    pub hosts: Vec<GraphHost>,
    /// Further cables, between any two points; several between the same two are several paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<GraphLink>,
    /// Whether traffic between other points may pass through hosts; not if left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosts_forward: bool,
}

/// A host of a [`GraphSpec`]; in text `"h0"` or `"h0 on s0, 10 Gbit/s, 40 us"`.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphHost {
    /// Its name.
    pub name: String,
    /// Its first cable: to which point, how fast, how long one way.
    pub on: Option<(String, LinkRate, LinkDelay)>,
}

/// A cable of a [`GraphSpec`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphLink {
    /// One end.
    pub a: String,
    /// The other end.
    pub b: String,
    /// In both directions.
    pub rate: LinkRate,
    /// One way.
    pub delay: LinkDelay,
}

impl FromStr for GraphHost {
    type Err = FabricError;
    fn from_str(text: &str) -> Result<Self, FabricError> {
        let fail = |why: String| FabricError::HostLine { text: text.to_owned(), why };
        let (name, on) = match text.split_once(" on ") {
            None => (text.trim(), None),
            Some((name, cable)) => {
                let parts: Vec<&str> = cable.split(',').map(str::trim).collect();
                let [switch, rate, delay] = parts[..] else {
                    return Err(fail("after 'on' come a point, a rate and a delay, with commas".to_owned()));
                };
                check_name(switch)?;
                let rate = rate.parse().map_err(|error| fail(format!("{error}")))?;
                let delay = delay.parse().map_err(|error| fail(format!("{error}")))?;
                (name.trim(), Some((switch.to_owned(), rate, delay)))
            }
        };
        check_name(name)?;
        Ok(GraphHost { name: name.to_owned(), on })
    }
}

impl fmt::Display for GraphHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.on {
            None => f.write_str(&self.name),
            Some((switch, rate, delay)) => write!(f, "{} on {switch}, {rate}, {delay}", self.name),
        }
    }
}

serde_as_text!(GraphHost, "a host in quotes, such as \"h0\" or \"h0 on s0, 10 Gbit/s, 40 us\"");

impl GraphSpec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        if self.hosts.is_empty() {
            return Err(FabricError::TooSmall { what: "the number of hosts", given: 0, least: 1 });
        }
        let points = self.hosts.len() as u128 + self.switches.len() as u128;
        let first = self.hosts.iter().filter_map(|host| {
            let (switch, rate, delay) = host.on.as_ref()?;
            Some(("hosts", host.name.as_str(), switch.as_str(), *rate, *delay))
        });
        let further = self.links.iter().map(|it| ("links", it.a.as_str(), it.b.as_str(), it.rate, it.delay));
        let cables: Vec<_> = first.chain(further).collect();
        let mut builder = Builder::new(packet, points, cables.len() as u128)?;
        let names: Vec<&str> =
            self.hosts.iter().map(|host| &host.name).chain(&self.switches).map(String::as_str).collect();
        let mut by_name = BTreeMap::new();
        for (point, name) in (0..).map(PointId).zip(&names) {
            check_name(name)?;
            if by_name.insert(*name, point).is_some() {
                return Err(FabricError::DuplicateName { name: (*name).to_owned() });
            }
        }
        let find = |what, name: &str| {
            let unknown = || FabricError::UnknownPoint { what, name: name.to_owned() };
            by_name.get(name).copied().ok_or_else(unknown)
        };
        let hosts = self.hosts.len();
        let mut racks: Vec<Option<u32>> = vec![None; hosts];
        let mut ends = Vec::with_capacity(cables.len());
        for &(what, a, b, _, _) in &cables {
            let (from, to) = (find(what, a)?, find(what, b)?);
            if from == to {
                return Err(FabricError::SelfLink { name: a.to_owned() });
            }
            for (host, switch) in [(from, to), (to, from)] {
                if host.index() < hosts && switch.index() >= hosts {
                    racks[host.index()].get_or_insert((switch.index() - hosts) as u32);
                }
            }
            ends.push((from, to));
        }
        for (host, rack) in self.hosts.iter().zip(racks) {
            builder.host_named(host.name.clone(), rack, None);
        }
        for (rack, switch) in (0..).zip(&self.switches) {
            builder.switch(switch.clone(), 1, Some(rack), None);
        }
        for ((a, b), (what, from, to, rate, delay)) in ends.into_iter().zip(cables) {
            let rate = builder.rate(&format!("{what}: rate of {from}-{to}"), rate)?;
            let delay = builder.delay(&format!("{what}: delay of {from}-{to}"), delay)?;
            builder.cable(a, b, rate, delay);
        }
        if self.hosts_forward { builder.finish_forwarding_hosts(Shape::Other) } else { builder.finish() }
    }
}

/// Names stand between spaces and commas in text.
pub(super) fn check_name(name: &str) -> Result<(), FabricError> {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',') {
        return Err(FabricError::BadName { name: name.to_owned() });
    }
    Ok(())
}
