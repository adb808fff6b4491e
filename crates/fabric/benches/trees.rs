//! How long all trees of a group take on one core (Datacast Fig. 5a: below 10 ms on each of these networks).
//!
//! `cargo bench -p headwater-fabric --bench trees`. Prints for each network and part of failed cables the mean and the worst
//! time over all group sizes of the paper and some seeds, the group of all hosts among them; the network is there before
//! the clock starts. A time is worth what the machine is: nothing fails here.

#![allow(missing_docs, clippy::disallowed_methods, reason = "a bench reads a clock")]

use std::hint::black_box;
use std::time::Instant;

use headwater_fabric::trees::{self, Group};
use headwater_fabric::{FabricSpec, HostId, LinkId, Topology};
use headwater_units::Bytes;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const SEEDS: u64 = 10;
const REPEAT: usize = 5;

fn main() {
    println!("{:24} {:>7} {:>8} {:>8} {:>9}", "network", "failed", "mean ms", "worst ms", "trees");
    for (name, shape) in [
        ("Fattree(24,3), 3456", "kind = 'fat-tree'\nk = 24"),
        ("BCube(8,3), 4096", "kind = 'bcube'\nn = 8\nlevels = 3"),
        ("Torus(16,3), 4096", "kind = 'torus'\nn = 16\nd = 3"),
    ] {
        for percent in [0, 1, 3, 5] {
            let (mut times, mut found) = (Vec::new(), 0);
            for seed in 0..SEEDS {
                let topology = network(shape, percent, seed);
                let hosts = topology.hosts().len();
                for size in [8, 16, 32, 64, 128, 256, 512, 1024, hosts] {
                    let group = group(&topology, size, seed);
                    // The least of several: what else the machine does is no part of it.
                    let mut least = f64::INFINITY;
                    for _ in 0..REPEAT {
                        let start = Instant::now();
                        let trees = black_box(trees::disjoint(black_box(&topology), black_box(&group)));
                        least = least.min(start.elapsed().as_secs_f64() * 1e3);
                        found += trees.len();
                    }
                    times.push(least);
                }
            }
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let worst = times.iter().copied().fold(0.0, f64::max);
            let trees = found as f64 / (times.len() * REPEAT) as f64;
            println!("{name:24} {percent:>5} % {mean:>8.2} {worst:>8.2} {trees:>9.2}");
        }
    }
}

fn network(shape: &str, percent: u64, seed: u64) -> Topology {
    let spec: FabricSpec = toml::from_str(&format!("{shape}\nrate = '1 Gbit/s'\ndelay = '5 us'"))
        .expect("the shapes above are written as they should be");
    let mut topology = spec.build(Bytes::new(1_500)).expect("they are of a bearable size");
    let mut draw = ChaCha12Rng::seed_from_u64(seed);
    for cable in 0..topology.fabric().link_count() as u32 / 2 {
        if draw.next_u64() % 100 < percent {
            topology.set_cable_down(LinkId(2 * cable), true);
        }
    }
    topology
}

/// So many hosts, or all that the source reaches.
fn group(topology: &Topology, size: usize, seed: u64) -> Group {
    let mut draw = ChaCha12Rng::seed_from_u64(seed ^ (size as u64) << 32);
    let mut hosts: Vec<HostId> = (0..topology.hosts().len() as u32).map(HostId).collect();
    for at in (1..hosts.len()).rev() {
        hosts.swap(at, (draw.next_u64() % (at as u64 + 1)) as usize);
    }
    let alive = |host: &HostId| {
        let point = topology.hosts()[host.index()];
        topology.fabric().leaving(point).iter().any(|link| !topology.is_down(*link))
    };
    hosts.retain(alive);
    let (source, others) = hosts.split_first().expect("some hosts have a link left");
    let all = Group::new(topology, *source, others).expect("the hosts exist, each once");
    let out_of_reach = trees::unreachable(topology, &all);
    let reached = others.iter().filter(|host| !out_of_reach.contains(host)).take(size - 1);
    let reached: Vec<HostId> = reached.copied().collect();
    Group::new(topology, *source, &reached).expect("the hosts exist, each once")
}
