//! The network of a storm: its shape, its ports, its choice among equal paths.

use headwater_fabric::{FabricSpec, LinkId, Topology};
use headwater_switch::{Choice, ClassMap, Limit, PortConfig, QueueConfig, Service, Threshold, WhenFull};
use headwater_units::{BitRate, Bytes};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::pick;

/// A shape, what it is called, and the rate of its hosts' links in bits per second.
pub(super) fn fabric(rng: &mut ChaCha8Rng) -> (Topology, &'static str, u64) {
    let rate: u64 = pick(rng, &[20_000_000, 100_000_000, 1_000_000_000, 10_000_000_000]);
    let delay = pick(rng, &["1 us", "20 us", "200 us", "2 ms"]);
    let (kind, rest) = match rng.random_range(0..5) {
        0 => ("big-switch", format!("hosts = {}", rng.random_range(2..=8))),
        1 => {
            let [left, right] = [rng.random_range(1..=4), rng.random_range(1..=4)];
            ("dumbbell", format!("left = {left}\nright = {right}\nedge_rate = '{rate} bit/s'"))
        }
        2 => {
            let [leaves, spines] = [rng.random_range(2..=3), rng.random_range(1..=3)];
            ("leaf-spine", format!("leaves = {leaves}\nspines = {spines}\nhosts_per_leaf = 2"))
        }
        3 => ("fat-tree", "k = 4".to_owned()),
        _ => {
            let hosts: Vec<u32> = (0..rng.random_range(2..=4)).map(|_| rng.random_range(1..=3)).collect();
            let of_cables = |value: String| vec![value; hosts.len() - 1].join(", ");
            let (rates, delays) = (of_cables(format!("'{rate} bit/s'")), of_cables(format!("'{delay}'")));
            let text = format!(
                "kind = 'chain'\nhosts = {hosts:?}\nrates = [{rates}]\ndelays = [{delays}]\nedge_rate = '{rate} bit/s'"
            );
            return (built(&text), "chain", rate);
        }
    };
    let text = format!("kind = '{kind}'\n{rest}\nrate = '{rate} bit/s'\ndelay = '{delay}'");
    (built(&text), kind, rate)
}

fn built(text: &str) -> Topology {
    let spec: FabricSpec = toml::from_str(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    spec.build(Bytes::new(1500)).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// One kind of port for all switches, and for the hosts that or one with room for everything.
pub(super) fn ports(rng: &mut ChaCha8Rng, topology: &Topology) -> Box<dyn Fn(LinkId, bool) -> PortConfig> {
    let fabric = topology.fabric();
    let rates: Vec<BitRate> = (0..fabric.link_count() as u32)
        .map(|id| fabric.link(LinkId(id)).and_then(|link| link.capacity).expect("every shape states rates"))
        .collect();
    let packets: u32 = pick(rng, &[6, 30, 100, 1000]);
    let limit = match rng.random_bool(0.2) {
        true => Limit::Bytes(Bytes::new(u64::from(packets) * 1500)),
        false => Limit::Packets(packets),
    };
    let marks = rng.random_bool(0.7).then(|| Threshold::Packets(packets.div_ceil(3)));
    let mut port = PortConfig::fifo(BitRate::ZERO, Some(limit), marks);
    if rng.random_bool(0.5) {
        let queue = QueueConfig { limit: Some(limit), mark_threshold: marks, shares_pool: false };
        port.queues = vec![queue; 3];
        port.classes = ClassMap::without_levels();
        port.service = match rng.random_bool(0.5) {
            true => Service::Strict,
            false => Service::Weighted(vec![4, 2, 1]),
        };
        if rng.random_bool(0.4) {
            port.when_full = WhenFull::Trim;
        }
    }
    let nic = match rng.random_bool(0.5) {
        true => port.clone(),
        false => PortConfig::fifo(BitRate::ZERO, None, None),
    };
    Box::new(move |link, is_nic| {
        let kind = if is_nic { &nic } else { &port };
        PortConfig { rate: rates[link.0 as usize], ..kind.clone() }
    })
}

pub(super) fn choice(rng: &mut ChaCha8Rng) -> Box<dyn Fn(u32) -> Choice> {
    let (kind, seed) = (rng.random_range(0..3), rng.random::<u64>());
    Box::new(move |switch| match kind {
        0 => Choice::Hash { salt: seed ^ u64::from(switch) << 32 },
        1 => Choice::Spray { seed: seed ^ u64::from(switch) << 32 },
        _ => Choice::First,
    })
}
