//! Folded Clos networks: leaf-spine and fat-tree.

use headwater_units::Bytes;
use serde::{Deserialize, Serialize};

use super::at_least;
use super::builder::Builder;
use super::{LinkDelay, LinkRate};
use crate::topology::FatTreeShape;
use crate::{FabricError, PointId, Topology};

/// Two layers, every leaf on every spine. Points `h0`..., `leaf0`..., `spine0`...; the racks are the leaves, with
/// consecutive hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeafSpineSpec {
    /// How many.
    pub leaves: u32,
    /// On every leaf.
    pub hosts_per_leaf: u32,
    /// How many.
    pub spines: u32,
    /// Of every host's cable.
    pub rate: LinkRate,
    /// Of every cable between leaf and spine; `rate` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_rate: Option<LinkRate>,
    /// Of every host's cable, one way.
    pub delay: LinkDelay,
    /// Of every cable between leaf and spine, one way; `delay` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_delay: Option<LinkDelay>,
}

impl LeafSpineSpec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        at_least(1, "leaves", self.leaves)?;
        at_least(1, "hosts_per_leaf", self.hosts_per_leaf)?;
        at_least(1, "spines", self.spines)?;
        let (leaves, spines) = (u128::from(self.leaves), u128::from(self.spines));
        let hosts = leaves * u128::from(self.hosts_per_leaf);
        let mut builder = Builder::new(packet, hosts + leaves + spines, hosts + leaves * spines)?;
        let rate = builder.rate("rate", self.rate)?;
        let fabric_rate = builder.rate("fabric_rate", self.fabric_rate.unwrap_or(self.rate))?;
        let delay = builder.delay("delay", self.delay)?;
        let fabric_delay = builder.delay("fabric_delay", self.fabric_delay.unwrap_or(self.delay))?;
        let hosts: Vec<(PointId, u32)> = (0..self.leaves)
            .flat_map(|leaf| (0..self.hosts_per_leaf).map(move |_| leaf))
            .map(|leaf| (builder.host(Some(leaf), None), leaf))
            .collect();
        let leaves: Vec<PointId> =
            (0..self.leaves).map(|leaf| builder.switch(format!("leaf{leaf}"), 1, Some(leaf), None)).collect();
        let spines: Vec<PointId> =
            (0..self.spines).map(|spine| builder.switch(format!("spine{spine}"), 2, None, None)).collect();
        for (host, leaf) in hosts {
            builder.cable(host, leaves[leaf as usize], rate, delay);
        }
        for leaf in &leaves {
            for spine in &spines {
                builder.cable(*leaf, *spine, fabric_rate, fabric_delay);
            }
        }
        builder.finish()
    }
}

/// k pods of k/2 racks and k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts (k = 8: 128; k = 10: the 250 hosts of SCDP
/// §V). Points `h0`..., `rack0`... (through all pods), `agg<pod>.<place>`, `core0`...; rack switch r of a pod and
/// aggregation switch a of it are joined, and aggregation switch a of every pod with the cores a k/2 to a k/2 + k/2 - 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FatTreeSpec {
    /// Ports of every switch; even.
    pub k: u32,
    /// Hosts of a rack; k/2 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts_per_edge: Option<u32>,
    /// Of every cable.
    pub rate: LinkRate,
    /// Of every host's cable, one way.
    pub delay: LinkDelay,
    /// Of every cable between rack and aggregation, one way; `delay` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation_delay: Option<LinkDelay>,
    /// Of every cable between aggregation and core, one way; `delay` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_delay: Option<LinkDelay>,
}

impl FatTreeSpec {
    pub(super) fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        at_least(2, "k", self.k)?;
        if !self.k.is_multiple_of(2) {
            return Err(FabricError::OddK { given: self.k });
        }
        let half = self.k / 2;
        let per_rack = self.hosts_per_edge.unwrap_or(half);
        at_least(1, "hosts_per_edge", per_rack)?;
        let (wide_k, wide_half) = (u128::from(self.k), u128::from(half));
        let racks = wide_k * wide_half;
        let hosts = racks * u128::from(per_rack);
        // As many cables from rack to aggregation as from aggregation to core.
        let cables = hosts.saturating_add(2 * racks * wide_half);
        let points = hosts.saturating_add(2 * racks + wide_half * wide_half);
        let mut builder = Builder::new(packet, points, cables)?;
        let rate = builder.rate("rate", self.rate)?;
        let delay = builder.delay("delay", self.delay)?;
        let to_aggregation =
            builder.delay("aggregation_delay", self.aggregation_delay.unwrap_or(self.delay))?;
        let to_core = builder.delay("core_delay", self.core_delay.unwrap_or(self.delay))?;
        let racks = self.k * half;
        let hosts: Vec<(PointId, u32)> = (0..racks)
            .flat_map(|rack| (0..per_rack).map(move |_| rack))
            .map(|rack| (builder.host(Some(rack), Some(rack / half)), rack))
            .collect();
        let racks: Vec<PointId> = (0..racks)
            .map(|rack| builder.switch(format!("rack{rack}"), 1, Some(rack), Some(rack / half)))
            .collect();
        let mut aggregations: Vec<PointId> = Vec::new();
        for pod in 0..self.k {
            let place = |at| builder.switch(format!("agg{pod}.{at}"), 2, None, Some(pod));
            aggregations.extend((0..half).map(place));
        }
        let cores: Vec<PointId> =
            (0..half * half).map(|core| builder.switch(format!("core{core}"), 3, None, None)).collect();
        for (host, rack) in hosts {
            builder.cable(host, racks[rack as usize], rate, delay);
        }
        let half = half as usize;
        for (racks, aggregations) in racks.chunks(half).zip(aggregations.chunks(half)) {
            for rack in racks {
                for aggregation in aggregations {
                    builder.cable(*rack, *aggregation, rate, to_aggregation);
                }
            }
        }
        for aggregations in aggregations.chunks(half) {
            for (aggregation, cores) in aggregations.iter().zip(cores.chunks(half)) {
                for core in cores {
                    builder.cable(*aggregation, *core, rate, to_core);
                }
            }
        }
        builder.finish_fat_tree(FatTreeShape { half: half as u32, hosts_per_rack: per_rack })
    }
}
