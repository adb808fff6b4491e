//! B4, a wide-area network between datacenters (PPUSH §V, Fig. 14b).
//!
//! Two public forms; `data/SOURCES.md` says where they come from. PPUSH uses 18 sites and 42 links on four continents; of
//! these the public 18-site form has 40 (28 within a continent, 12 between continents). The continents are the groups
//! that links shorter than 30 ms join. Every site is one switch with its hosts.

use headwater_units::{Bytes, Duration};
use serde::{Deserialize, Serialize};

use super::at_least;
use super::builder::Builder;
use super::{LinkDelay, LinkRate};
use crate::{FabricError, PointId, Topology};

const SITES_18: &str = include_str!("../../data/b4-18.edges");
const SITES_12: &str = include_str!("../../data/b4-12.edges");
/// The first site of every continent of the 18-site form, as the data file says.
const CONTINENTS_18: [u32; 4] = [0, 5, 12, 13];
/// PPUSH §V.
const INTRA_DELAY: LinkDelay = LinkDelay(Duration::from_millis(1));
/// PPUSH §V.
const INTER_DELAY: LinkDelay = LinkDelay(Duration::from_millis(10));

/// B4 with hosts. Points `h0`... (site by site), and `site0`... `site17` or `site1`... `site12`, numbered as in the data. The
/// rack is the site, counted from 0; the pod is the continent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct B4Spec {
    /// Which of the two; 18 sites if left out.
    #[serde(default)]
    pub form: B4Form,
    /// Of every cable between sites.
    pub rate: LinkRate,
    /// Where the delays between sites come from; by continent if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delays: Option<B4Delays>,
    /// Of every cable between sites, one way, instead of `delays`; needed for 12 sites, whose data has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<LinkDelay>,
    /// Within a continent, one way; 1 ms if left out (PPUSH §V).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intra_delay: Option<LinkDelay>,
    /// Between continents, one way; 10 ms if left out (PPUSH §V).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inter_delay: Option<LinkDelay>,
    /// On every site's switch; 1 if left out.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub hosts_per_site: u32,
    /// Of every host's cable; `rate` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_rate: Option<LinkRate>,
    /// Of every host's cable, one way; 1 us if left out (the paper has none, and a site is small).
    #[serde(default = "edge_delay", skip_serializing_if = "is_edge_delay")]
    pub edge_delay: LinkDelay,
}

/// Which public form of B4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum B4Form {
    /// 18 sites, 40 links, with delays and continents.
    #[default]
    #[serde(rename = "18")]
    Sites18,
    /// 12 sites, 19 links, as in the first paper on B4.
    #[serde(rename = "12")]
    Sites12,
}

/// Where the delays between sites come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum B4Delays {
    /// One delay within a continent and one between continents (PPUSH §V).
    ByContinent,
    /// As measured.
    Traced,
}

fn one() -> u32 {
    1
}
fn is_one(n: &u32) -> bool {
    *n == 1
}
fn edge_delay() -> LinkDelay {
    LinkDelay(Duration::from_micros(1))
}
fn is_edge_delay(delay: &LinkDelay) -> bool {
    *delay == edge_delay()
}

impl B4Spec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        at_least(1, "hosts_per_site", self.hosts_per_site)?;
        self.check_delays()?;
        let (cables, first, sites) = match self.form {
            B4Form::Sites18 => (read(SITES_18), 0, 18),
            B4Form::Sites12 => (read(SITES_12), 1, 12),
        };
        let hosts = u128::from(sites) * u128::from(self.hosts_per_site);
        let mut builder = Builder::new(packet, hosts + u128::from(sites), hosts + cables.len() as u128)?;
        let rate = builder.rate("rate", self.rate)?;
        let edge_rate = builder.rate("edge_rate", self.edge_rate.unwrap_or(self.rate))?;
        let edge_delay = builder.delay("edge_delay", self.edge_delay)?;
        let pod = |site: u32| match self.form {
            B4Form::Sites18 => Some(CONTINENTS_18.partition_point(|start| *start <= site) as u32 - 1),
            B4Form::Sites12 => None,
        };
        let hosts: Vec<(PointId, u32)> = (0..sites)
            .flat_map(|site| (0..self.hosts_per_site).map(move |_| site))
            .map(|site| (builder.host(Some(site), pod(site)), site))
            .collect();
        let switches: Vec<PointId> = (0..sites)
            .map(|site| builder.switch(format!("site{}", site + first), 1, Some(site), pod(site)))
            .collect();
        for (host, site) in hosts {
            builder.cable(host, switches[site as usize], edge_rate, edge_delay);
        }
        for cable in cables {
            let ends = [cable.a - first, cable.b - first];
            let (what, delay) = match (self.delay, self.delays, cable.traced) {
                (Some(delay), ..) => ("delay", delay),
                (None, Some(B4Delays::Traced), Some(traced)) => ("delays", LinkDelay(traced)),
                _ if pod(ends[0]) == pod(ends[1]) => ("intra_delay", self.intra_delay.unwrap_or(INTRA_DELAY)),
                _ => ("inter_delay", self.inter_delay.unwrap_or(INTER_DELAY)),
            };
            let delay = builder.delay(what, delay)?;
            builder.cable(switches[ends[0] as usize], switches[ends[1] as usize], rate, delay);
        }
        builder.finish()
    }

    /// Every delay that is given is used.
    fn check_delays(&self) -> Result<(), FabricError> {
        let intra = self.intra_delay.map(|_| "intra_delay");
        let inter = self.inter_delay.map(|_| "inter_delay");
        let delays = self.delays.map(|_| "delays");
        if self.delay.is_some()
            && let Some(other) = delays.or(intra).or(inter)
        {
            return Err(FabricError::Conflict { one: "delay", other });
        }
        if self.delays == Some(B4Delays::Traced)
            && let Some(other) = intra.or(inter)
        {
            return Err(FabricError::Conflict { one: "delays = \"traced\"", other });
        }
        let why = "the 12-site form has neither traced delays nor continents; give 'delay'";
        match (self.form, delays.or(intra).or(inter), self.delay) {
            (B4Form::Sites12, Some(what), _) => Err(FabricError::NotKnown { what, why }),
            (B4Form::Sites12, None, None) => Err(FabricError::Missing { what: "delay", why }),
            _ => Ok(()),
        }
    }
}

/// A line of a data file.
struct Cable {
    a: u32,
    b: u32,
    /// One way.
    traced: Option<Duration>,
}

fn read(file: &str) -> Vec<Cable> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let cables = lines.map(|line| {
        let broken = || -> u32 { panic!("the built-in data reads two sites at the front, not '{line}'") };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let site = |at: usize| fields.get(at).and_then(|site| site.parse().ok()).unwrap_or_else(broken);
        let traced = fields
            .get(2)
            .map(|ms| format!("{ms} ms").parse().expect("the built-in data has its delays in milliseconds"));
        Cable { a: site(0), b: site(1), traced }
    });
    cables.collect()
}
