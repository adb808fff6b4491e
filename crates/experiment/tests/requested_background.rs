//! Requests in the background: they ask for as much as they should, nobody waits for them, and what they did is counted apart.

use headwater_experiment::run::packet_setup;
use headwater_experiment::scenario::Scenario;
use headwater_sim::packet::{self, Records};

/// 54 hosts, 1 Gbit/s, 10 us a link; ports as SCDP has them.
const SCDP: &str = r#"
    scheme = "ndp"
    fabric = { kind = "fat-tree", k = 6, rate = "1 Gbit/s", delay = "10 us" }
    packet = { data = "1500 B", ack = "64 B" }
    routing = "spray"
    workload = { @workload }
    @more
    [port]
    queue = "20 packets"
    mark_threshold = "none"
    when_full = "trim"
    service = "first-against-rest"
    classes = [
        { of = [0], queue = "1000 packets", apart = true, weight = 10 },
        { of = [1], queue = "20 packets" },
        { of = [2], queue = "20 packets" },
    ]
    [nic]
    queue = "unlimited"
    mark_threshold = "none"
    classes = [{ of = [0], queue = "unlimited" }, { of = [1, 2], queue = "unlimited" }]
"#;
const SESSIONS: &str =
    "kind = 'sessions', count = 60, per_second = 1000, sizes = { kind = 'uniform', from = 1, to = 200 }";
/// Packets per second that a host's link carries.
const RATE: f64 = 1e9 / 12_000.0;

fn parse(workload: &str, more: &str) -> Scenario {
    let text = SCDP.replace("@workload", workload).replace("@more", more);
    toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(workload: &str, more: &str, seed: u64) -> Records {
    let scenario = parse(workload, more);
    scenario.check().unwrap();
    packet::run(packet_setup(&scenario, seed).unwrap(), &mut |_| {}).unwrap()
}

/// Bytes that background brought to somebody, per host and second.
fn delivered(records: &Records, tasks: u32) -> f64 {
    let flows = records.flows.iter().filter(|flow| flow.task >= tasks);
    flows.map(|flow| flow.useful).sum::<u64>() as f64 / 54.0 / records.counts.ended.as_secs_f64()
}

#[test]
fn hosts_get_the_stated_part_of_what_their_links_carry() {
    for (load, access, replicas) in [(0.3, "'write'", 1), (0.3, "'write', 'read'", 3), (0.5, "'read'", 3)] {
        let more = format!(
            "until = '200 ms'\narriving_background = {{ load = {load}, packets = 100, access = [{access}], replicas = {replicas} }}"
        );
        let endless = "kind = 'long-flows', flows = []";
        let records = run(endless, &more, 1);
        // About 2000 requests: 2 % of deviation by their number, 1.5 times that by their kind.
        let part = delivered(&records, 0) / RATE;
        assert!((part / load - 1.0).abs() < 0.12, "{access} {replicas}: {part} of {load}");
        assert!(records.tasks.iter().all(|task| task.packets == 100));
    }
}

#[test]
fn a_run_waits_for_its_sessions_alone() {
    let background = "arriving_background = { load = 0.4, packets = 1000, access = ['write'] }";
    let beside = run(SESSIONS, background, 2);
    let (sessions, others) = beside.tasks.split_at(60);
    assert!(sessions.iter().all(|task| task.finish.is_some()));
    let last = sessions.iter().filter_map(|task| task.finish).max().unwrap();
    // NDP's sender is closed when the last receipt is back.
    assert!(beside.counts.ended.since(last).as_secs_f64() < 0.002, "{:?} {last:?}", beside.counts.ended);
    assert!(others.len() > 60 && others.iter().any(|task| task.finish.is_none()), "{}", others.len());
    assert!(delivered(&beside, 60) > 0.1 * RATE);
    let again = run(SESSIONS, background, 2);
    assert_eq!(again.counts, beside.counts, "a run is a function of its seed");
    assert_ne!(run(SESSIONS, background, 3).counts, beside.counts);
}

#[test]
fn sessions_that_are_too_large_to_be_waited_for_are_not() {
    let few = "kind = 'sessions', count = 40, per_second = 4000, awaited = 10, \
               sizes = { kind = 'uniform', from = 1, to = 20000 }";
    // Seed 4 has a few of up to ten packets.
    let workload = few
        .replace("'uniform', from = 1, to = 20000", "'table', table = 'datamining', from = 1, to = 500000");
    let records = run(&workload, "", 4);
    let (small, large): (Vec<_>, Vec<_>) = records.tasks.iter().partition(|task| task.packets <= 10);
    assert!(!small.is_empty() && small.iter().all(|task| task.finish.is_some()));
    assert!(large.iter().any(|task| task.finish.is_none()), "half a million packets take six seconds");
    assert!(records.counts.ended.as_secs_f64() < 0.1, "{:?}", records.counts.ended);
}

#[test]
fn the_workload_begins_when_the_background_has_been_there_for_a_while() {
    let background = "lead = '30 ms'\narriving_background = { load = 0.4, packets = 1000, access = ['write'], class = 'bulk' }";
    let records = run(SESSIONS, background, 2);
    let (sessions, others) = records.tasks.split_at(60);
    assert!(sessions.iter().all(|task| task.arrival.as_secs_f64() >= 0.03));
    assert!(others.iter().filter(|task| task.arrival.as_secs_f64() < 0.03).count() > 20);
    // In one queue with the others sessions wait; behind them they need not.
    let mean = |records: &Records| {
        let took = |task: &packet::TaskRow| task.finish.unwrap().since(task.arrival).as_secs_f64();
        records.tasks.iter().take(60).map(took).sum::<f64>() / 60.0
    };
    let gentle = run(SESSIONS, &background.replace(", class = 'bulk'", ""), 2);
    assert!(mean(&gentle) < mean(&records), "{} {}", mean(&gentle), mean(&records));
}

#[test]
fn what_cannot_be_is_refused_with_the_value_that_is_wrong() {
    let good = "arriving_background = { load = 0.4, packets = 10, access = ['write'] }";
    let error =
        |from: &str, to: &str| parse(SESSIONS, &good.replace(from, to)).check().unwrap_err().to_string();
    for (from, to, named) in [
        ("load = 0.4", "load = 0.0", "arriving_background.load is 0"),
        ("load = 0.4", "load = nan", "arriving_background.load is NaN"),
        ("packets = 10", "packets = 0", "arriving_background.packets is 0"),
        ("['write']", "[]", "arriving_background.access"),
        ("['write']", "['write'], replicas = 0", "replicas is 0"),
        ("['write']", "['write'], replicas = 9", "10 hosts"),
    ] {
        let error = error(from, to);
        assert!(error.contains(named), "{to}: {error}");
    }
    let push = Scenario { scheme: "ppush(1,1)".parse().unwrap(), ..parse(SESSIONS, good) };
    assert!(push.check().unwrap_err().to_string().contains("arriving_background"));
    let joining = "kind = 'joining-flows', flows = 2, source = 0, settle = '1 ms', measure = '1 ms'";
    assert!(parse(joining, "lead = '1 ms'").check().unwrap_err().to_string().contains("lead"));
}
