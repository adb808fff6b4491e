//! Receivers that pull, switches that trim: NDP in the packet engine (SCDP §IV as it describes what it compares itself with).

mod common;

use common::experiment;
use headwater_experiment::claim::Outcome;
use headwater_experiment::experiment::{Engine, Scale};
use headwater_experiment::run::{packet_setup, run_job};
use headwater_experiment::scenario::{Scenario, ScenarioError};
use headwater_experiment::table::Tables;
use headwater_sim::packet::{self, Records, SetupError};
use headwater_units::Duration;

/// SCDP §IV: 250 servers, 25 cores, 1 Gbit/s, 10 us per link, ports of 20 packets that five levels share, headers apart.
const SCDP: &str = r#"
    scheme = "@scheme"
    fabric = { kind = "fat-tree", k = 10, rate = "1 Gbit/s", delay = "10 us" }
    packet = { data = "1500 B", ack = "64 B" }
    routing = "spray"
    workload = { @workload }
    transport = { @transport }
    @more
    [port]
    queue = "20 packets"
    mark_threshold = "none"
    when_full = "@full"
    service = "first-against-rest"
    classes = [
        { of = [0], queue = "1000 packets", apart = true, weight = 10 },
        { of = [3], queue = "20 packets" },
        { of = [4], queue = "20 packets" },
        { of = [5], queue = "20 packets" },
        { of = [1], queue = "20 packets" },
        { of = [2], queue = "20 packets" },
    ]
    [nic]
    queue = "unlimited"
    mark_threshold = "none"
    classes = [{ of = [0], queue = "unlimited" }, { of = [1, 2, 3, 4, 5], queue = "unlimited" }]
"#;
/// A packet's time at 1 Gbit/s.
const PACKET: f64 = 12e-6;

fn scenario(scheme: &str, workload: &str, transport: &str, more: &str) -> Scenario {
    let full = if scheme == "ndp" { "trim" } else { "drop" };
    let text = SCDP.replace("@scheme", scheme).replace("@workload", workload).replace("@full", full);
    let text = text.replace("@transport", transport).replace("@more", more);
    let scenario: Scenario = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    scenario.check().unwrap();
    scenario
}

fn run(scenario: &Scenario, seed: u64) -> Records {
    packet::run(packet_setup(scenario, seed).unwrap(), &mut |_| {}).unwrap()
}

fn last_finish(records: &Records) -> f64 {
    let finishes = records.tasks.iter().map(|task| task.finish.expect("it finishes").as_secs_f64());
    finishes.fold(0.0, f64::max)
}

fn timeouts(records: &Records) -> u64 {
    records.flows.iter().map(|flow| flow.timeouts).sum()
}

/// How long a request took.
fn times(records: &Records) -> Vec<f64> {
    let tasks = records.tasks.iter();
    tasks.map(|task| task.finish.expect("it finishes").since(task.arrival).as_secs_f64()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn measured(tables: &Tables, name: &str) -> f64 {
    let (names, values) = (tables.measures.column("name").unwrap(), tables.measures.column("value").unwrap());
    let row = (0..tables.measures.rows()).find(|row| names.is(*row, name)).unwrap();
    values.number(row).unwrap()
}

/// Job A2 of the speed bench: csg-htsim has a mean of 192.5 us and a maximum of 194.4 us.
#[test]
fn permutation_of_128_hosts_takes_as_long_as_in_csg_htsim() {
    let experiment = experiment("bench/ft128-perm-ndp");
    let job = experiment.jobs(Engine::Packet, Scale::Paper, Some(1)).unwrap().remove(0);
    let tables = run_job(&job, &mut |_| {}).unwrap();
    assert!((measured(&tables, "fct_mean_s") / 192.5e-6 - 1.0).abs() < 0.01);
    assert!((measured(&tables, "fct_max_s") / 194.4e-6 - 1.0).abs() < 0.01);
    assert_eq!((measured(&tables, "timeouts"), measured(&tables, "drops")), (0.0, 0.0));
    let mut all = Tables::gathering();
    job.gather(tables, &mut all).unwrap();
    for verdict in experiment.judge(Engine::Packet, Scale::Paper, &all) {
        assert_eq!(verdict.verdict, Outcome::Pass, "{}: {}", verdict.claim, verdict.note);
    }
}

/// Catalogue row S-11a for NDP: the link of the one receiver stays full, TCP's collapses.
#[test]
fn incast_of_seventy_senders_keeps_the_link_full_and_tcp_collapses() {
    let workload = "kind = 'incast', senders = 70, receiver = 249, packets = 179";
    let ndp = run(&scenario("ndp", workload, "", ""), 1);
    let used = 70.0 * 179.0 * PACKET / last_finish(&ndp);
    assert!(used > 0.9, "{used} of the link");
    assert_eq!(timeouts(&ndp), 0);
    assert!(ndp.counts.trims > 70 * 5, "first windows of 12 are too much: {}", ndp.counts.trims);
    assert_eq!(ndp.counts.drops, 0);
    let tcp = "initial_window = 10.0, min_rto = '200 ms'";
    let tcp = run(&scenario("reno", workload, tcp, ""), 1);
    let used = 70.0 * 179.0 * PACKET / last_finish(&tcp);
    assert!(used < 0.5, "{used} of the link");
}

#[test]
fn one_sender_has_the_link_alone_and_short_flows_need_no_pull() {
    let took = |packets: u32| {
        let flow = format!(
            "kind = 'task-list', tasks = [{{ name = 't', sources = [0], receiver = 249, packets = {packets} }}]"
        );
        let records = run(&scenario("ndp", &flow, "", "jitter = '0 s'"), 1);
        assert_eq!((records.counts.trims, timeouts(&records)), (0, 0));
        times(&records)[0]
    };
    // Six links, each with 10 us and the first packet's time.
    let first = 6.0 * (10e-6 + PACKET);
    assert!((took(12) - (first + 11.0 * PACKET)).abs() < 1e-9, "{}", took(12));
    // IW 12 fills 144 of the 132 + 6 * 10.5 us that a pull and its packet take.
    let round = first + 6.0 * (10e-6 + 64.0 * 8e-9);
    let share = took(1200) / (1200.0 / 12.0 * round);
    assert!((share - 1.0).abs() < 0.02, "a window per round trip: {share}");
}

/// SCDP Fig. 1a and 4: three copies over the client's one link take three times as long; a chain hardly longer than one.
#[test]
fn chain_of_replicas_is_faster_than_three_flows_from_one_client() {
    let took = |access: &str, replicas: u32| {
        let workload = format!(
            "kind = 'requests', count = 20, per_second = 20, packets = 1393, replicas = {replicas}, access = '{access}'"
        );
        let records = run(&scenario("ndp", &workload, "", ""), 1);
        assert_eq!(timeouts(&records), 0, "{access}");
        let delivered = if access.starts_with("write") { u64::from(replicas) } else { 1 };
        for task in &records.tasks {
            assert!(task.useful >= delivered * 1393 && task.useful < delivered * 1393 + 3, "{}", task.useful);
        }
        mean(&times(&records))
    };
    let (one, three) = (took("write", 1), took("write", 3));
    assert!((three / (3.0 * 1393.0 * PACKET) - 1.0).abs() < 0.1, "the client's link: {three} s");
    let chain = took("write-chain", 3);
    assert!(chain < 1.2 * one && chain > one, "{chain} s against {one} s");
    let (read, ahead) = (took("read", 3), took("read-ahead", 3));
    assert!((read / one - 1.0).abs() < 0.1, "{read} s, {one} s");
    assert!(ahead < 0.85 * read, "three windows of 12 fill the link that one does not: {ahead} s, {read} s");
}

/// Long flows of a third of the hosts; they are in the lowest class, and the first level goes before them everywhere.
#[test]
fn permuted_background_runs_to_the_end_and_is_counted_apart() {
    let workload =
        "kind = 'requests', count = 40, per_second = 2000, packets = 697, replicas = 3, access = 'read'";
    let more = "permuted_background = { share = 0.3 }";
    let alone = run(&scenario("ndp", workload, "", ""), 2);
    let beside = run(&scenario("ndp", workload, "", more), 2);
    let background: Vec<_> = beside.flows.iter().filter(|flow| flow.task >= 40).collect();
    assert_eq!(background.len(), 75);
    let (mut from, mut to): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for flow in &background {
        from.push(flow.source);
        to.push(beside.tasks[flow.task as usize].receiver);
        assert!(flow.useful > 100, "{flow:?}");
    }
    from.sort_unstable();
    to.sort_unstable();
    assert!(
        from.windows(2).all(|pair| pair[0] < pair[1]) && from == to,
        "each sends to one and hears from one"
    );
    assert_eq!(
        (beside.tasks.iter().filter(|task| task.finish.is_some()).count(), alone.tasks.len()),
        (40, 40)
    );
    let (mut slower, mut quick) = (times_of(&beside, 40), times_of(&alone, 40));
    slower.sort_by(f64::total_cmp);
    quick.sort_by(f64::total_cmp);
    assert!(slower[20] < 1.25 * quick[20], "strict levels: {} s, alone {} s", slower[20], quick[20]);
}

/// Hosts of background that is apart neither ask nor serve, and the long flows are the same.
#[test]
fn background_that_is_apart_shares_no_host_with_the_workload() {
    let workload =
        "kind = 'requests', count = 40, per_second = 2000, packets = 100, replicas = 3, access = 'write'";
    let beside = |more: &str| run(&scenario("ndp", workload, "", more), 2);
    let apart = beside("permuted_background = { share = 0.3, apart = true }");
    let ends = |records: &Records, of_tasks: bool| {
        let flows = records.flows.iter().filter(|flow| (flow.task < 40) == of_tasks);
        let receiver = |task: u32| records.tasks[task as usize].receiver;
        let mut ends: Vec<u32> = flows.flat_map(|flow| [flow.source, receiver(flow.task)]).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    };
    let (busy, used) = (ends(&apart, false), ends(&apart, true));
    assert!(busy.len() == 75 && used.len() > 40, "{} and {}", busy.len(), used.len());
    assert!(used.iter().all(|host| !busy.contains(host)), "{used:?} among {busy:?}");
    assert_eq!(ends(&beside("permuted_background = { share = 0.3 }"), false), busy);
}

fn times_of(records: &Records, tasks: u32) -> Vec<f64> {
    let tasks = records.tasks.iter().filter(|task| task.task < tasks);
    tasks.map(|task| task.finish.expect("it finishes").since(task.arrival).as_secs_f64()).collect()
}

#[test]
fn same_seed_gives_the_same_run_and_another_one_another() {
    for routing in ["spray", "source-spray"] {
        let workload = "kind = 'incast', senders = 20, receiver = 0, packets = 100";
        let mut scenario = scenario("ndp", workload, "", "");
        scenario.routing = toml::from_str::<toml::Table>(&format!("r = '{routing}'")).unwrap()["r"]
            .clone()
            .try_into()
            .unwrap();
        let finishes = |seed| {
            let records = run(&scenario, seed);
            records.tasks.iter().map(|task| task.finish.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(finishes(1), finishes(1));
        assert_ne!(finishes(1), finishes(2));
    }
}

/// Ports are asked late where nothing depends on it. A run that counts at both ends of every link asks at every departure:
/// it must come to the same but for the order of what happens in one nanosecond.
#[test]
fn ports_that_are_asked_late_send_what_ports_do_that_are_asked_always() {
    let workload = "kind = 'incast', senders = 40, receiver = 7, packets = 200";
    let scenario = scenario("ndp", workload, "", "");
    let late = run(&scenario, 3);
    let mut setup = packet_setup(&scenario, 3).unwrap();
    setup.drain = Some(Duration::from_secs(1));
    let always = packet::run(setup, &mut |_| {}).unwrap();
    assert!(late.counts.events < always.counts.events, "that is what it is for");
    let (a, b) = (last_finish(&late), last_finish(&always));
    assert!((a / b - 1.0).abs() < 0.005, "{a} s, {b} s");
    for counts in [late.counts, always.counts] {
        assert_eq!(counts.offered, counts.hops + counts.drops + counts.queued);
        assert!(counts.trims > 100 && counts.drops == 0);
    }
    let trims = (late.counts.trims as f64 / always.counts.trims as f64 - 1.0).abs();
    assert!(trims < 0.05, "{:?} {:?}", late.counts, always.counts);
}

#[test]
fn what_cannot_be_is_refused_with_the_value_that_is_wrong() {
    let good = SCDP
        .replace("@scheme", "ndp")
        .replace("@full", "trim")
        .replace("@transport", "")
        .replace("@more", "");
    let good = good.replace("@workload", "kind = 'incast', senders = 2, receiver = 3, packets = 5");
    let check = |from: &str, to: &str| {
        assert!(good.contains(from), "nothing to replace: {from}");
        toml::from_str::<Scenario>(&good.replace(from, to))
            .unwrap()
            .check()
            .map_err(|error| error.to_string())
    };
    assert_eq!(check("ndp", "ndp"), Ok(()));
    for (from, to, named) in [
        ("of = [3]", "of = [6]", "port.classes.1.of is 6; it must be a class, 0 to 5"),
        ("of = [3]", "of = [4]", "port.classes names class 4 twice"),
        ("weight = 10", "weight = 0", "port.classes.0.weight is 0"),
        ("transport = {", "transport = { pull = { window = 0 }", "transport.pull.window is 0"),
        ("transport = {", "transport = { pull = { min_rto = '0 s' }", "transport.pull.min_rto is 0"),
        (
            "transport = {",
            "permuted_background = { share = 1.5 }\ntransport = {",
            "permuted_background.share is 1.5",
        ),
        (
            "kind = 'incast', senders = 2, receiver = 3, packets = 5 }",
            "kind = 'permutation', multiplier = 1, offset = 1, packets = 5 }\npermuted_background = { share = 0.3, apart = true }",
            "permuted_background.apart is 1",
        ),
        (
            "scheme = \"ndp\"",
            "permuted_background = { share = 0.5 }\nscheme = \"ppush(1,1)\"",
            "cannot be ppush(1,1)",
        ),
        (
            "kind = 'incast', senders = 2, receiver = 3, packets = 5",
            "kind = 'requests', count = 1, per_second = 0.0, packets = 1, replicas = 3, access = 'write'",
            "per_second is 0",
        ),
        (
            "kind = 'incast', senders = 2, receiver = 3, packets = 5",
            "kind = 'requests', count = 1, per_second = 1.0, packets = 1, replicas = 7, access = 'write'",
            "needs 8 hosts, but there are 6",
        ),
    ] {
        let error = check(from, to).unwrap_err();
        assert!(error.contains(named), "{to}: {error}");
    }
    let one_queue =
        toml::from_str::<Scenario>(&good.replace("service = \"first-against-rest\"", "")).unwrap();
    let mut one_queue = Scenario { nic: None, ..one_queue };
    one_queue.port.classes.truncate(1);
    one_queue.port.service = toml::from_str::<Scenario>(&good).unwrap().port.service;
    assert!(matches!(one_queue.check(), Err(ScenarioError::OutOfRange { .. })));
}

#[test]
fn only_ndp_relays_and_only_baselines_replicate() {
    let chain =
        "kind = 'requests', count = 1, per_second = 1.0, packets = 1, replicas = 3, access = 'write-chain'";
    let refused = |scheme: &str| {
        packet::run(packet_setup(&scenario(scheme, chain, "", ""), 1).unwrap(), &mut |_| {}).unwrap_err()
    };
    assert!(matches!(refused("reno"), SetupError::Relay { sources: 1, .. }));
    assert!(matches!(refused("ppush(1,1)"), SetupError::ManyReceivers { receivers: 3, .. }));
}
