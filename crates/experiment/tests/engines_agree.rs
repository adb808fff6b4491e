//! The rate model gives what the packet engine gives, where both can: long flows that have settled.
//!
//! A settled flow has had some times 2 theta / alpha^2 round trips (PPUSH Eq. 5 around its steady state), which by Eq. 18
//! is its own window of Eq. 19, counted in round trips. The packet engine's numbers are means of some seeds, since a share
//! wanders for longer than a run. Paths are such that every window of Eq. 19 is at least 10 packets
//! and thetas stay below Eq. 20: below that, whole packets and the floor of one packet bend Theorem 1.

use std::collections::BTreeMap;

use headwater_experiment::experiment::{Engine, Experiment, Scale};
use headwater_experiment::run::run_job;
use headwater_experiment::table::{Column, Table, Tables};

/// How far the packet engine may be from the rate model, as a part of the latter: what a sawtooth leaves unused of a link,
/// and how far a share wanders in some hundred round trips.
const TOLERANCE: f64 = 0.05;
/// How far a share may be from Theorem 1.
const THEOREM: f64 = 0.1;

/// A file of one scenario without axes.
fn file(scheme: &str, scenario: &str) -> String {
    format!(
        r#"
        title = "t"
        source = "s"
        engines = ["packet", "flow", "fluid"]
        schemes = ["{scheme}"]
        [scale.small]
        seeds = 1
        [scenario]
        port = {{ queue = "100 packets", mark_threshold = "30 packets" }}
        {scenario}
        [[claim]]
        id = "X-1"
        about = "goodput"
        source = "here"
        within = "report"
        metric = {{ kind = "measure", name = "goodput" }}
        "#
    )
}

/// Every seed's tables.
fn ran(text: &str, engine: Engine, seeds: u32) -> Vec<Tables> {
    let experiment = Experiment::parse("x/agree", text).unwrap_or_else(|error| panic!("{error}"));
    let jobs = experiment.jobs(engine, Scale::Small, Some(seeds)).unwrap();
    jobs.iter().map(|job| run_job(job, &mut |_| ()).unwrap()).collect()
}

fn numbers<'a>(table: &'a Table, column: &str) -> &'a [f64] {
    match table.column(column) {
        Some(Column::F64(values)) => values,
        _ => panic!("no column {column} of numbers"),
    }
}

fn texts(table: &Table, column: &str) -> Vec<String> {
    let texts = table.column(column).unwrap_or_else(|| panic!("no column {column}"));
    (0..table.rows()).map(|row| texts.text(row)).collect()
}

/// Seeds of the packet engine; the rate model draws nothing here.
const SEEDS: u32 = 4;

/// Mean of a quantity from a moment on, by whose it is, over all seeds.
fn means(tables: &[Tables], quantity: &str, from_s: f64) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for samples in tables.iter().map(|tables| &tables.samples) {
        let (times, values) = (numbers(samples, "t_s"), numbers(samples, "value"));
        let (entities, quantities) = (texts(samples, "entity"), texts(samples, "quantity"));
        for row in (0..samples.rows()).filter(|&row| quantities[row] == quantity && times[row] > from_s) {
            let (sum, count) = sums.entry(entities[row].clone()).or_default();
            *sum += values[row];
            *count += 1.0;
        }
    }
    sums.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect()
}

/// Runs both engines and compares every task's goodput from a moment on.
fn agree(text: &str, from_s: f64) {
    let rates = means(&ran(text, Engine::Flow, 1), "goodput", from_s);
    let packets = means(&ran(text, Engine::Packet, SEEDS), "goodput", from_s);
    assert!(!rates.is_empty() && rates.keys().eq(packets.keys()), "{rates:?} and {packets:?}");
    for (name, rate) in &rates {
        println!("{name}: {rate:.0} by rates, {:.0} by packets ({:.3})", packets[name], packets[name] / rate);
    }
    for (name, rate) in &rates {
        let off = packets[name] / rate - 1.0;
        assert!(off.abs() < TOLERANCE, "{name}: {rate} by rates, {} by packets", packets[name]);
    }
}

/// Flows of these weights over one link of 10^5 packets/s and 2 ms: C d + K is some 230 packets.
fn dumbbell(thetas: &[f64], until: &str) -> String {
    let n = thetas.len();
    let flows: Vec<String> = (0..n)
        .map(|i| format!("{{ name = \"f{i}\", from = {i}, to = {}, theta = {:?} }}", n + i, thetas[i]))
        .collect();
    file(
        "ppush(0,0)",
        &format!(
            r#"
            fabric = {{ kind = "dumbbell", left = {n}, right = {n}, rate = "100000 pps", delay = "1 ms" }}
            sample = {{ every = "10 ms", what = ["goodput"] }}
            until = "{until}"
            workload = {{ kind = "long-flows", flows = [{}] }}
            "#,
            flows.join(", ")
        ),
    )
}

#[test]
fn equal_flows_of_one_link_get_what_rates_say() {
    agree(&dumbbell(&[1.0; 4], "4 s"), 1.0);
}

#[test]
fn weighted_flows_of_one_link_get_what_rates_say() {
    agree(&dumbbell(&[1.0, 2.0, 4.0], "6 s"), 1.5);
}

/// As Fig. 3: f2 and f3 are held back by the link between B and C, and f1 has all they leave of that from C to D.
#[test]
fn flows_of_a_chain_get_what_rates_say() {
    let scenario = r#"
        sample = { every = "10 ms", what = ["goodput"] }
        until = "4 s"
        [scenario.fabric]
        kind = "chain"
        names = ["B", "C", "D"]
        hosts = [2, 1, 3]
        rates = ["25000 pps", "100000 pps"]
        delays = ["500 us", "500 us"]
        [scenario.workload]
        kind = "long-flows"
        flows = [
            { name = "f1", from = 2, to = 3, theta = 1.0 },
            { name = "f2", from = 0, to = 4, theta = 4.0 },
            { name = "f3", from = 1, to = 5, theta = 4.0 },
        ]
        "#;
    agree(&file("ppush(0,0)", scenario), 1.0);
}

/// Where the rate model ends: in a parking lot f0 crosses two full links and is marked on both, and its round trip is the
/// longest. Max-min grants it 20,000 of 60,000; by Eq. 15 its window is what the marks of both leave, far less.
#[test]
fn a_flow_over_two_full_links_has_the_marks_of_both_and_less_than_rates_say() {
    let scenario = r#"
        sample = { every = "10 ms", what = ["goodput", "mark_fraction"] }
        until = "4 s"
        [scenario.fabric]
        kind = "chain"
        names = ["A", "B", "C"]
        hosts = [2, 2, 2]
        rates = ["60000 pps", "100000 pps"]
        delays = ["1 ms", "500 us"]
        [scenario.workload]
        kind = "long-flows"
        flows = [
            { name = "f0", from = 0, to = 4, theta = 1.0 },
            { name = "f1", from = 1, to = 2, theta = 2.0 },
            { name = "f2", from = 3, to = 5, theta = 1.0 },
        ]
        "#;
    let text = file("ppush(0,0)", scenario);
    let by_rates = means(&ran(&text.replace(", \"mark_fraction\"", ""), Engine::Flow, 1), "goodput", 1.0);
    assert!(
        (by_rates["f0"] - 20_000.0).abs() < 1.0 && (by_rates["f2"] - 80_000.0).abs() < 1.0,
        "{by_rates:?}"
    );
    let by_packets = ran(&text, Engine::Packet, 2);
    let (goodput, marked) = (means(&by_packets, "goodput", 1.0), means(&by_packets, "mark_fraction", 1.0));
    println!("{goodput:?} {marked:?}");
    let either = 1.0 - (1.0 - marked["f1"]) * (1.0 - marked["f2"]);
    assert!((marked["f0"] / either - 1.0).abs() < 0.1, "marked on either link: {marked:?}");
    assert!(goodput["f0"] < 0.5 * by_rates["f0"], "{goodput:?}");
    for (link, other, rate) in [("A-B", "f1", 60_000.0), ("B-C", "f2", 100_000.0)] {
        let carried = (goodput["f0"] + goodput[other]) / rate;
        assert!(carried > 0.97, "{link} is full all the same: {carried}");
    }
}

/// Three flows share the uplink of h0 by weight, each to a receiver of its own, and two the downlink of h6.
///
/// No weights at the downlink: where hosts are as fast as the link at which they meet, the packet engine marks the heavier
/// flow less often than the lighter one, and of 3 to 1 become about 4 to 1.
#[test]
fn flows_of_a_big_switch_to_several_receivers_get_what_rates_say() {
    let scenario = r#"
        fabric = { kind = "big-switch", hosts = 7, rate = "50000 pps", delay = "500 us" }
        sample = { every = "10 ms", what = ["goodput"] }
        until = "5 s"
        [scenario.workload]
        kind = "long-flows"
        flows = [
            { name = "f1", from = 0, to = 3, theta = 1.0 },
            { name = "f2", from = 0, to = 4, theta = 2.0 },
            { name = "f3", from = 0, to = 5, theta = 4.0 },
            { name = "f4", from = 1, to = 6, theta = 1.0 },
            { name = "f5", from = 2, to = 6, theta = 1.0 },
        ]
        "#;
    agree(&file("ppush(0,0)", scenario), 1.5);
}

/// The task takes both paths whole, three to one, and both engines divide it so.
#[test]
fn a_pooled_task_of_two_sources_takes_the_sum_of_their_paths() {
    let scenario = r#"
        workload = { kind = "task-list", tasks = [{ name = "t", packets = 150000, sources = [0, 1], receiver = 2 }] }
        [scenario.fabric]
        kind = "graph"
        switches = ["s1", "s2", "s3"]
        hosts = ["a on s1, 1 Mpps, 0 us", "b on s2, 1 Mpps, 0 us", "r on s3, 1 Mpps, 0 us"]
        links = [
            { a = "s1", b = "s3", rate = "75000 pps", delay = "200 us" },
            { a = "s2", b = "s3", rate = "25000 pps", delay = "200 us" },
        ]
        "#;
    let text = file("ppush(1,1)", scenario);
    let [rates, packets] = [Engine::Flow, Engine::Packet].map(|engine| ran(&text, engine, 1).remove(0));
    let (by_rates, by_packets) = (numbers(&rates.tasks, "tct_s")[0], numbers(&packets.tasks, "tct_s")[0]);
    println!("{by_rates} s by rates, {by_packets} s by packets");
    assert!((by_rates - 1.5).abs() < 1e-6 && (by_packets / by_rates - 1.0).abs() < TOLERANCE, "{by_packets}");
    assert_eq!(texts(&rates.flows, "flow"), texts(&packets.flows, "flow"));
    for (by_rates, by_packets) in numbers(&rates.flows, "share").iter().zip(numbers(&packets.flows, "share"))
    {
        println!("{by_rates} by rates, {by_packets} by packets");
        assert!(
            (by_packets / by_rates - 1.0).abs() < TOLERANCE,
            "{by_rates} by rates, {by_packets} by packets"
        );
    }
}

/// Shares of weighted flows on the packet engine beside theta over the sum of thetas.
fn theorem_1(thetas: &[f64], until: &str, from_s: f64) {
    let total: f64 = thetas.iter().sum();
    // C d + K, the delay alone: whatever else a round trip has adds to it.
    let room = 100_000.0 * 2e-3 + 30.0;
    assert!(thetas.iter().all(|theta| theta / total * room >= 10.0), "every W of Eq. 19 is at least 10");
    assert!(total <= room / 2.0, "Eq. 20 holds");
    let goodputs = means(&ran(&dumbbell(thetas, until), Engine::Packet, SEEDS), "goodput", from_s);
    let sum: f64 = goodputs.values().sum();
    for (at, theta) in thetas.iter().enumerate() {
        let (share, expected) = (goodputs[&format!("f{at}")] / sum, theta / total);
        println!("theta {theta}: {share:.4}, by Theorem 1 {expected:.4} ({:.3})", share / expected);
    }
    for (at, theta) in thetas.iter().enumerate() {
        let off = goodputs[&format!("f{at}")] / sum / (theta / total) - 1.0;
        assert!(off.abs() < THEOREM, "the share of theta {theta} is {off} off");
    }
    assert!(sum > 0.95 * 100_000.0, "and the link is full: {sum}");
}

#[test]
fn five_flows_share_by_theta_within_ten_per_cent() {
    theorem_1(&[1.0, 2.0, 3.0, 4.0, 5.0], "6 s", 1.5);
}

#[test]
fn ten_flows_share_by_theta_within_ten_per_cent() {
    theorem_1(&[1.0, 1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 2.5, 3.0, 4.0], "6 s", 1.5);
}
