//! The configuration of a cast's machines: that of daemons with the product's defaults.

use headwater_controller::{ControllerConfig, GroupRange};
use headwater_transport::flow::path_mtu::PathMtuConfig;
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::yielding::YieldingConfig;
use headwater_transport::receiver::HostReceiverConfig;
use headwater_transport::source::SourceConfig;
use headwater_units::{BitRate, Bytes, Duration, PathId};
use headwater_wire::{NodeInfo, SYMBOL_OVERHEAD};

use super::host::HostConfig;
use super::setup::CastSetup;
use super::transit::CONTROLLER;
use super::{IP_UDP, address, node_of};

/// The controller's, for the network that there is.
pub(super) fn controller_config(setup: &CastSetup) -> ControllerConfig {
    ControllerConfig {
        groups: match setup.multicast {
            true => ControllerConfig::default().groups,
            false => Vec::<GroupRange>::new(),
        },
        network: setup.network.clone(),
        ..setup.controller.clone()
    }
}

/// A host as a daemon with the product's defaults sets it up, but for what makes up for being woken late.
pub(super) fn host_config(setup: &CastSetup, host: u32, seed: [u8; 32]) -> HostConfig {
    let line = setup.lines.get(host as usize).copied();
    let rack = setup.racks.get(host as usize).copied().flatten();
    let any = BitRate::new(1_000_000_000_000);
    let mut source = SourceConfig::default();
    source.push.yielding = Some(YieldingConfig::default());
    source.push.path_mtu = Some(PathMtuConfig::default());
    let rate = &mut source.trees.rate;
    rate.most = line.map_or(any, |(uplink, _)| uplink);
    if let Some((uplink, _)) = line {
        (rate.initial, rate.step) = (uplink.mul_f64(0.5), uplink.mul_f64(0.125));
    }
    let pull = PullConfig {
        rate: line.map_or(any, |(_, downlink)| downlink),
        packet: Bytes::new(38 + IP_UDP + SYMBOL_OVERHEAD as u64 + u64::from(setup.room)),
        catch_up: Duration::ZERO,
    };
    let info = NodeInfo {
        data: vec![address(host)],
        uplink: line.map(|(uplink, _)| uplink),
        downlink: line.map(|(_, downlink)| downlink),
        rtt: Some(setup.control_delay * 2),
        seen: Some(address(host).ip()),
        rack: rack.map(|rack| (format!("rack {rack}"), None)),
        ..NodeInfo::new(node_of(host), format!("host {host}"), setup.room)
    };
    HostConfig {
        info,
        controller: PathId(CONTROLLER),
        source,
        receivers: HostReceiverConfig { pull },
        seed,
        prepare: setup.prepare,
        decode: setup.decode,
        overhead: setup.overhead,
    }
}
