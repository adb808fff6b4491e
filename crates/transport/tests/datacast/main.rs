//! Datacast's machines and stores in one tree: what the paper's theorems say of them.

mod forgotten;
mod net;
mod signalling;

use headwater_switch::StoreConfig;
use headwater_transport::tree::{RateConfig, TreeReceiverConfig, TreeSourceConfig};
use headwater_units::{BitRate, Bytes, Duration, Time};
use net::{Device, Link, Net};

fn mbps(n: u64) -> BitRate {
    BitRate::new(n * 1_000_000)
}

fn link(rate: u64) -> Link {
    Link { rate: mbps(rate), delay: Duration::from_micros(5), loss: 0.0 }
}

fn device(parent: usize, rate: u64, receives: bool) -> Device {
    Device { parent, down: link(rate), receives }
}

/// As Datacast Fig. 6a: a switch below the source, a slow receiver behind it, five fast ones further down.
const SLOW: usize = 2;
fn figure_6a() -> Vec<Device> {
    vec![
        device(0, 1000, false),
        device(0, 1000, false),
        device(1, 100, true),
        device(1, 1000, true),
        device(3, 1000, false),
        device(4, 1000, true),
        device(4, 1000, true),
        device(4, 1000, true),
        device(4, 1000, true),
    ]
}

/// delta 5 Mbit/s, T 1 ms, as §VI-B.
fn source(step: f64) -> TreeSourceConfig {
    let rate =
        RateConfig { step: BitRate::new((step * 1e6) as u64), most: mbps(1000), ..RateConfig::default() };
    TreeSourceConfig { rate, packet: Some(Bytes::new(1500)), ..TreeSourceConfig::default() }
}

fn store(kb: u64) -> StoreConfig {
    StoreConfig { size: Bytes::new(1000 * kb), ..StoreConfig::default() }
}

fn credit(credit: u32) -> TreeReceiverConfig {
    TreeReceiverConfig { credit, ..TreeReceiverConfig::default() }
}

/// The slow receiver's share of its link, and repeated over new symbols at the source, after a second to settle.
fn settles(mut net: Net) -> (f64, f64) {
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    net.run(at(1000));
    let (has, stats) = (net.has(SLOW), net.stats());
    net.run(at(3000));
    let packets = (net.has(SLOW) - has) as f64;
    let now = net.stats();
    let duplicates = (now.repeated - stats.repeated) as f64 / (now.new - stats.new) as f64;
    (packets * 1500.0 * 8.0 / 2.0 / 100e6, duplicates)
}

#[test]
fn one_tree_brings_each_symbol_once_over_each_link() {
    let devices = figure_6a().into_iter().map(|it| Device { down: link(1000), ..it }).collect();
    let mut net = Net::new(devices, store(512), source(125.0), credit(16), 50 << 20);
    net.run(Time::MAX);
    let ideal = (50 << 20) as f64 / 1024.0 * 1500.0 * 8.0 / 1e9;
    let took = net.done().into_iter().flatten().max().unwrap().as_secs_f64();
    println!("{took:.4} s of {ideal:.4}, link stress {:.4}", net.link_stress());
    assert!(took < 1.03 * ideal, "{took} s, ideal {ideal}");
    assert!(net.link_stress() < 1.02, "{}", net.link_stress());
}

/// Theorem 1: above R^2 T / (2 delta) - (w MTU - R RTT) the slowest receiver has its full rate.
#[test]
fn the_slowest_receiver_is_served_at_its_full_rate_if_the_store_is_as_large_as_theorem_1_says() {
    for (w, bound) in [(16, 102), (48, 54), (72, 18)] {
        let at = |kb| settles(Net::new(figure_6a(), store(kb), source(5.0), credit(w), 100 << 20));
        let (above, below) = (at(bound + 30), at(8));
        println!("w {w}: {:.4} of the link with {} KB, {:.4} with 8 KB", above.0, bound + 30, below.0);
        assert!(above.0 > 0.985, "w {w}: {above:?}");
        assert!(below.0 <= above.0 + 1e-3, "w {w}: {below:?} {above:?}");
    }
}

/// Theorem 2: repeated over new data is at most delta/T / (delta/T + R / (2 MTU / R + RTT)).
#[test]
fn duplicates_stay_below_what_theorem_2_says_and_grow_with_delta() {
    let mut last = 0.0;
    for step in [0.8, 3.2, 12.8, 51.2] {
        let net = Net::new(figure_6a(), store(4096), source(step), credit(16), 100 << 20);
        let (_, duplicates) = settles(net);
        let rise = step * 1e6 / 1e-3;
        let r: f64 = 100e6;
        let bound = rise / (rise + r / (2.0 * 12000.0 / r + 270e-6));
        println!("delta {step} Mbit/s: {:.3} % of {:.3} %", 100.0 * duplicates, 100.0 * bound);
        assert!(duplicates <= bound && duplicates >= last, "delta {step}: {duplicates}, bound {bound}");
        last = duplicates;
    }
    assert!(last > 0.01, "{last}");
}

#[test]
fn losses_cost_little_since_the_store_answers() {
    let mut devices = figure_6a();
    devices[SLOW].down.loss = 0.0102;
    let lossy = settles(Net::new(devices, store(128), source(5.0), credit(48), 100 << 20));
    let clean = settles(Net::new(figure_6a(), store(128), source(5.0), credit(48), 100 << 20));
    println!("{lossy:?} with 1.02 % of loss, {clean:?} without");
    assert!(lossy.0 > 0.95 * clean.0, "{lossy:?} {clean:?}");
}
