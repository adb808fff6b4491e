//! Networks whose hosts forward: BCube (Guo et al., SIGCOMM 2009) and the torus of direct links (Datacast §VI).

use headwater_units::Bytes;
use serde::{Deserialize, Serialize};

use super::at_least;
use super::builder::Builder;
use super::{LinkDelay, LinkRate};
use crate::topology::Shape;
use crate::{FabricError, PointId, Topology};

/// BCube(n, k): n^(k+1) hosts with k+1 ports each, (k+1) n^k switches with n ports.
///
/// A host's number in base n has the digits a_k ... a_0; the switch `sw<l>.<i>` of level l joins the n hosts whose digits
/// without a_l spell i. The racks are the level-0 switches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BCubeSpec {
    /// Ports of a switch.
    pub n: u32,
    /// The paper's k: the highest level. 0 is one switch, and every level more multiplies the hosts by n.
    #[serde(alias = "k")]
    pub levels: u32,
    /// Of every cable.
    pub rate: LinkRate,
    /// Of every cable, one way.
    pub delay: LinkDelay,
}

impl BCubeSpec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        at_least(2, "n", self.n)?;
        let per_level = power(self.n, self.levels);
        let hosts = per_level.saturating_mul(u128::from(self.n));
        let levels = u128::from(self.levels) + 1;
        let points = per_level.saturating_mul(levels).saturating_add(hosts);
        let mut builder = Builder::new(packet, points, hosts.saturating_mul(levels))?;
        let rate = builder.rate("rate", self.rate)?;
        let delay = builder.delay("delay", self.delay)?;
        let (n, per_level) = (self.n as usize, per_level as usize);
        let hosts: Vec<PointId> =
            (0..per_level * n).map(|host| builder.host(Some((host / n) as u32), None)).collect();
        let mut stride = 1;
        for level in 0..=self.levels {
            let rack = |switch: usize| (level == 0).then_some(switch as u32);
            for switch in 0..per_level {
                let point = builder.switch(format!("sw{level}.{switch}"), level + 1, rack(switch), None);
                let first = switch / stride * stride * n + switch % stride;
                for digit in 0..n {
                    builder.cable(hosts[first + digit * stride], point, rate, delay);
                }
            }
            stride *= n;
        }
        builder.finish_forwarding_hosts(Shape::BCube { n: self.n, levels: self.levels })
    }
}

/// n^d hosts in a d-dimensional grid that closes on itself, each joined to both neighbours in every dimension (which are
/// one and the same if n is 2). No switches, no racks. A host's number in base n spells its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TorusSpec {
    /// Hosts along a dimension.
    pub n: u32,
    /// Dimensions.
    pub d: u32,
    /// Of every cable.
    pub rate: LinkRate,
    /// Of every cable, one way.
    pub delay: LinkDelay,
}

impl TorusSpec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        at_least(2, "n", self.n)?;
        at_least(1, "d", self.d)?;
        let hosts = power(self.n, self.d);
        let cables = hosts.saturating_mul(u128::from(self.d)) / if self.n == 2 { 2 } else { 1 };
        let mut builder = Builder::new(packet, hosts, cables)?;
        let rate = builder.rate("rate", self.rate)?;
        let delay = builder.delay("delay", self.delay)?;
        let n = self.n as usize;
        let hosts: Vec<PointId> = (0..hosts).map(|_| builder.host(None, None)).collect();
        for at in 0..hosts.len() {
            let mut stride = 1;
            for _ in 0..self.d {
                let place = at / stride % n;
                let next = if place + 1 < n { at + stride } else { at - place * stride };
                // With n = 2 the way on and the way round end at the same neighbour: one cable.
                if n > 2 || next > at {
                    builder.cable(hosts[at], hosts[next], rate, delay);
                }
                stride *= n;
            }
        }
        builder.finish_forwarding_hosts(Shape::Torus { n: self.n, d: self.d })
    }
}

fn power(base: u32, exponent: u32) -> u128 {
    u128::from(base).saturating_pow(exponent)
}
