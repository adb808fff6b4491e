//! probe
use headwater_fabric::*;
use headwater_sim::packet::*;
use headwater_switch::*;
use headwater_transport::ppush::controller::ControllerConfig;
use headwater_transport::ppush::source::SourceConfig;
use headwater_units::*;
use headwater_wire::SpreadRule;
fn main() {
    let pool = std::env::args().nth(1).unwrap() == "1";
    let weigh = std::env::args().nth(2).unwrap() == "1";
    let seed: u64 = std::env::args().nth(3).map_or(1, |s| s.parse().unwrap());
    let tasks: usize = std::env::args().nth(4).map_or(200, |s| s.parse().unwrap());
    let spec: FabricSpec = toml::from_str(&format!("kind='big-switch'\nhosts=100\nrate='200000 pps'\ndelay='{} us'", std::env::var("D").unwrap_or("20".into()))).unwrap();
    let delay: f64 = std::env::var("D").unwrap_or("20".into()).parse().unwrap();
    let carry = std::env::var("CARRY").is_ok();
    let topology = spec.build(Bytes::new(1210)).unwrap();
    let routes = Routes::all(&topology, Metric::Hops).unwrap();
    let rate = BitRate::new(200_000 * 1210 * 8);
    use rand::{Rng, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    // web search
    let cdf: Vec<(f64, f64)> = include_str!("/work/shared/data/websearch.cdf").lines().filter(|l| !l.starts_with('#')).map(|l| { let v: Vec<f64> = l.split_whitespace().map(|x| x.parse().unwrap()).collect(); (v[0], *v.last().unwrap()) }).collect();
    let draw = |rng: &mut rand_chacha::ChaCha8Rng| { let u: f64 = rng.random(); for w in cdf.windows(2) { if u < w[1].1 { return w[0].0 + (w[1].0 - w[0].0) * (u - w[0].1) / (w[1].1 - w[0].1).max(1e-12); } } cdf.last().unwrap().0 };
    let (lo, hi) = (cdf[0].0, cdf.last().unwrap().0);
    let scale = |x: f64| 2048.0 + (x - lo) / (hi - lo) * (198.0 * 1024.0);
    let mut mean = 0.0; for _ in 0..100000 { mean += scale(draw(&mut rng)) / 1e5; }
    let lambda = 0.9 * 10.0 * 2e5 / mean;
    let mut t = 0.0; let mut plans = vec![];
    for i in 0..tasks { t += -(1.0 - rng.random::<f64>()).ln() / lambda; let mut s: Vec<u32> = (0..10).collect(); for k in 0..3 { let j = rng.random_range(k..10); s.swap(k, j); } s.truncate(3);
        let receiver = rng.random_range(10..100);
        plans.push(TaskPlan { name: format!("t{i}"), at: Time::ZERO + Duration::from_secs_f64(t + 0.001), stop: None, packets: scale(draw(&mut rng)) as u64, sources: s, receiver, thetas: None }); }
    let setup = Setup { routes, port: Box::new(move |_, _| PortConfig::fifo(rate, Some(Limit::Packets(100)), Some(Threshold::Packets(30)))), choice: Box::new(|_| Choice::First),
        sizes: FrameSizes { data: Some(Bytes::new(1210)), ack: Some(Bytes::new(40)), around: Bytes::new(66), symbol: 256 },
        jitter: Duration::ZERO, control: ControlPlane::Beside { delay: Duration::from_micros(40) },
        transport: Transport::Ppush(Box::new(PpushSetup { source: SourceConfig { look_ahead: 256, unvalidated_packets: 1 << 40, wfcc: headwater_transport::ppush::wfcc::WfccConfig { carry_fraction: carry, ..SourceConfig::paper().wfcc }, ..SourceConfig::paper() }, spread: if pool { SpreadRule::Residue } else { SpreadRule::Equal }, receive_window: 1 << 20, blocks_in_flight: 1024, max_ack_delay: Duration::from_millis(2), source_patience: Duration::from_secs(1000),
            controller: ControllerConfig { feedback_every: Duration::from_millis(1), replan_every: Duration::from_secs(1000), replan_gap: Duration::ZERO, theta_ceiling: Some(Theta::new((delay * 4e-6 * 2e5 + std::env::var("K").map_or(30.0, |k| k.parse().unwrap())) / 2.0)), fixed_theta: (!weigh).then_some(Theta::ONE), ..ControllerConfig::default() }, symbol_size: 256, host_rate: Some(rate), racks: vec![] })),
        tasks: plans, changes: vec![], sample: None, until: None, decode: DecodeModel { overhead: None, ns_per_byte: 0.0, ns_per_byte_whole: 0.0 }, carry_bytes: false, seed, topology };
    let started = std::time::SystemTime::now();
    let r = run(setup, &mut |r| eprintln!("{} {}/{} {}", r.at, r.tasks_done, r.tasks, r.events)).unwrap();
    let s = started.elapsed().unwrap().as_secs_f64();
    let tct: f64 = r.tasks.iter().map(|t| (t.finish.unwrap_or(Time::MAX).as_nanos() - t.arrival.as_nanos()) as f64 / 1e9).sum::<f64>() / r.tasks.len() as f64;
    let total: u64 = r.tasks.iter().map(|t| t.packets).sum();
    let timeouts: u64 = r.flows.iter().map(|f| f.timeouts).sum();
    let sent: u64 = r.flows.iter().map(|f| f.sent).sum();
    println!("mean tct {tct:.4} norm {:.3} packets {total} sent {sent} timeouts {timeouts} hops {} events {} drops {} marks {} wall {s:.2} hops/s {:.2}M", tct / (mean / 2e5), r.counts.hops, r.counts.events, r.counts.drops, r.counts.marks, r.counts.hops as f64 / s / 1e6);
}
