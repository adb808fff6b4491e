//! Coded symbols that receivers pull: SCDP in the packet engine, by the machines of the product (SCDP §III, §IV).

mod common;

use common::experiment;
use headwater_experiment::claim::Outcome;
use headwater_experiment::experiment::{Engine, Scale};
use headwater_experiment::run::{packet_setup, run_job};
use headwater_experiment::scenario::{Scenario, WhenFull};
use headwater_experiment::table::Tables;
use headwater_sim::packet::{self, Records, SetupError};

/// 54 servers, 9 cores, 1 Gbit/s, 10 us per link; ports as in SCDP §IV.
const SCDP: &str = r#"
    scheme = "scdp"
    fabric = { kind = "fat-tree", k = 6, rate = "1 Gbit/s", delay = "10 us" }
    packet = { data = "1500 B", ack = "64 B" }
    routing = "spray"
    workload = { @workload }
    transport = { block_symbols = 100, @transport }
    @more
    [port]
    queue = "20 packets"
    mark_threshold = "none"
    when_full = "trim"
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

fn parse(workload: &str, transport: &str, more: &str) -> Result<Scenario, String> {
    let text = SCDP.replace("@workload", workload).replace("@transport", transport).replace("@more", more);
    let scenario: Scenario = toml::from_str(&text).map_err(|error| error.to_string())?;
    scenario.check().map_err(|error| error.to_string())?;
    Ok(scenario)
}

fn scenario(workload: &str, transport: &str, more: &str) -> Scenario {
    parse(workload, transport, more).unwrap_or_else(|error| panic!("{error}"))
}

fn run(scenario: &Scenario, seed: u64) -> Records {
    packet::run(packet_setup(scenario, seed).unwrap(), &mut |_| {}).unwrap()
}

fn one(sources: &str, receiver: u32, packets: u32) -> String {
    format!(
        "kind = 'task-list', tasks = [{{ name = 't', sources = {sources}, receiver = {receiver}, packets = {packets} }}]"
    )
}

fn took(records: &Records, task: usize) -> f64 {
    let task = &records.tasks[task];
    task.finish.expect("it finishes").since(task.arrival).as_secs_f64()
}

fn sum(records: &Records, what: fn(&packet::FlowRow) -> u64) -> u64 {
    records.flows.iter().map(what).sum()
}

#[test]
fn one_sender_has_the_link_alone_and_short_flows_need_no_pull() {
    let time = |packets: u32| {
        let records = run(&scenario(&one("[0]", 53, packets), "", "jitter = '0 s'"), 1);
        assert_eq!((records.counts.trims, sum(&records, |flow| flow.timeouts)), (0, 0));
        assert_eq!(sum(&records, |flow| flow.useful), u64::from(packets));
        assert_eq!(
            (sum(&records, |flow| flow.sent), sum(&records, |flow| flow.unneeded)),
            (packets.into(), 0)
        );
        took(&records, 0)
    };
    // Six links, each with 10 us and the first packet's time.
    let first = 6.0 * (10e-6 + PACKET);
    assert!((time(12) - (first + 11.0 * PACKET)).abs() < 1e-9, "{}", time(12));
    // IW 12 fills 144 of the 132 + 6 * 10.5 us that a pull and its symbol take.
    let round = first + 6.0 * (10e-6 + 64.0 * 8e-9);
    let share = time(1200) / (1200.0 / 12.0 * round);
    assert!((share - 1.0).abs() < 0.02, "a window per round trip: {share}");
}

#[test]
fn reads_from_three_take_from_whom_is_quick_and_fill_the_link() {
    let alone = took(&run(&scenario(&one("[0]", 53, 697), "", ""), 1), 0);
    let records = run(&scenario(&one("[0, 20, 40]", 53, 697), "", ""), 1);
    assert_eq!(records.flows.len(), 3);
    assert_eq!(sum(&records, |flow| flow.useful), 697);
    for flow in &records.flows {
        assert!((0.2..0.5).contains(&flow.share), "{flow:?}");
    }
    let three = took(&records, 0);
    assert!(three < 0.8 * alone, "three windows of 6 fill what one of 12 does not: {three} s, {alone} s");
    assert!(three < 1.1 * 697.0 * PACKET, "{three} s");
}

/// SCDP Fig. 1b: the client's link carries one copy, and all receivers have it at about the same time.
#[test]
fn writes_to_three_cross_the_clients_link_once() {
    let workload =
        "kind = 'requests', count = 20, per_second = 20, packets = 697, replicas = 3, access = 'write'";
    let records = run(&scenario(workload, "", ""), 1);
    assert_eq!((records.counts.trims, sum(&records, |flow| flow.timeouts)), (0, 0));
    for task in &records.tasks {
        assert_eq!((task.useful, task.blocks_done, task.blocks), (3 * 697, 21, Some(21)));
        let flows = records.flows.iter().filter(|flow| flow.task == task.task);
        let sent: Vec<u64> = flows.map(|flow| flow.sent).collect();
        assert_eq!(sent, [0, 0, 0, 697], "a flow for the pulls of each, and one for all symbols");
    }
    // Packets that cross the first link: as many as the object has.
    let single = run(&scenario(&workload.replace("replicas = 3", "replicas = 1"), "", ""), 1);
    let mean = |records: &Records| (0..20).map(|task| took(records, task)).sum::<f64>() / 20.0;
    let (three, one) = (mean(&records), mean(&single));
    assert!(three < 1.15 * one, "{three} s for three, {one} s for one");
}

/// Catalogue row S-11a: the link of the one receiver stays full, and nobody waits for a timeout.
#[test]
fn incast_of_forty_senders_keeps_the_link_full_without_a_timeout() {
    let workload = "kind = 'incast', senders = 40, receiver = 53, packets = 179";
    let records = run(&scenario(workload, "", ""), 1);
    let last = (0..40).map(|task| took(&records, task)).fold(0.0, f64::max);
    let used = 40.0 * 179.0 * PACKET / last;
    assert!(used > 0.9, "{used} of the link");
    assert_eq!((sum(&records, |flow| flow.timeouts), records.counts.drops), (0, 0));
    assert!(sum(&records, |flow| flow.trimmed) > 40 * 5, "first windows of 12 are too much");
    assert_eq!(sum(&records, |flow| flow.trimmed), records.counts.trims);
    for flow in &records.flows {
        // Of two blocks, each with two more once it has lost one.
        assert!((179..=183).contains(&flow.useful), "{flow:?}");
    }
}

/// Purpose of the trimming in S-11a: without it, losses at the end of a window show by timeouts alone. The link stays
/// as full as is claimed all the same, since others fill it meanwhile.
#[test]
fn without_trimming_s_11a_has_timeouts_and_the_goodput_that_it_claims() {
    let experiment = experiment("scdp/fig11");
    let judged = |when_full: WhenFull| {
        let mut tables = Tables::gathering();
        let jobs = experiment.jobs(Engine::Packet, Scale::Small, None).unwrap();
        for mut job in jobs.into_iter().filter(|job| job.scheme == "scdp") {
            job.scenario.port.when_full = when_full;
            job.gather(run_job(&job, &mut |_| {}).unwrap(), &mut tables).unwrap();
        }
        let verdicts = experiment.judge(Engine::Packet, Scale::Small, &tables);
        ["S-11a/small", "S-11a/timeouts-small"].map(|claim| {
            let verdict = verdicts.iter().find(|verdict| verdict.claim == claim).unwrap();
            println!("{claim} {when_full:?}: {:?}", verdict.measured);
            verdict.verdict
        })
    };
    assert_eq!(judged(WhenFull::Trim), [Outcome::Pass; 2]);
    assert_eq!(judged(WhenFull::Drop), [Outcome::Pass, Outcome::Miss]);
}

#[test]
fn background_runs_beside_in_the_lowest_class() {
    let workload =
        "kind = 'requests', count = 20, per_second = 1000, packets = 350, replicas = 3, access = 'write'";
    let beside = run(&scenario(workload, "", "permuted_background = { share = 0.3 }"), 2);
    let alone = run(&scenario(workload, "", ""), 2);
    let background: Vec<_> = beside.flows.iter().filter(|flow| flow.task >= 20).collect();
    assert_eq!(background.len(), 16);
    assert!(background.iter().all(|flow| flow.useful > 300), "{background:?}");
    let median = |records: &Records| {
        let mut times: Vec<f64> = (0..20).map(|task| took(records, task)).collect();
        times.sort_by(f64::total_cmp);
        times[10]
    };
    let (slower, quick) = (median(&beside), median(&alone));
    assert!(slower < 1.3 * quick, "strict levels: {slower} s, alone {quick} s");
}

#[test]
fn same_seed_gives_the_same_run_and_another_one_another() {
    for access in ["write", "read-all"] {
        let workload = format!(
            "kind = 'requests', count = 30, per_second = 4000, packets = 200, replicas = 3, access = '{access}'"
        );
        let scenario = scenario(&workload, "", "permuted_background = { share = 0.3 }");
        let finishes = |seed| {
            let records = run(&scenario, seed);
            let flows: Vec<_> =
                records.flows.iter().map(|flow| (flow.sent, flow.unneeded, flow.trimmed)).collect();
            (records.tasks.iter().map(|task| task.finish).collect::<Vec<_>>(), flows, records.counts)
        };
        assert_eq!(finishes(1), finishes(1), "{access}");
        assert_ne!(finishes(1).0, finishes(2).0, "{access}");
    }
}

#[test]
fn true_bytes_come_through_by_all_ways() {
    let tasks =
        "kind = 'requests', count = 4, per_second = 2000, packets = 90, replicas = 3, access = '@how'";
    for how in ["write", "read", "read-all"] {
        let mut scenario = scenario(&tasks.replace("@how", how), "", "carry_bytes = true");
        scenario.port.queue = "4 packets".parse().unwrap();
        let records = run(&scenario, 1);
        assert_eq!(records.counts.corrupt, 0, "{how}");
        assert!(records.tasks.iter().all(|task| task.finish.is_some()), "{how}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |workload: &str| {
        packet::run(packet_setup(&scenario(workload, "", ""), 1).unwrap(), &mut |_| {}).unwrap_err()
    };
    let chain =
        "kind = 'requests', count = 1, per_second = 1.0, packets = 1, replicas = 3, access = 'write-chain'";
    assert!(matches!(refused(chain), SetupError::RelayedSymbols { .. }));
    let workload = one("[0]", 1, 10);
    let mut setup = packet_setup(&scenario(&workload, "", ""), 1).unwrap();
    setup.tasks[0].further = vec![2, 1];
    let error = packet::run(setup, &mut |_| {}).unwrap_err();
    assert!(matches!(error, SetupError::Group { receivers: 3, .. }), "{error}");
    for (pull, named) in [
        ("levels = ['10 KB', '9 KB', '1 MB', '10 MB']", "transport.pull.levels.1"),
        ("levels = ['0 packets', '9 packets', '10 packets', '11 packets']", "transport.pull.levels.0"),
        ("many_window = 0", "transport.pull.many_window is 0"),
        ("detach_after = '0 s'", "transport.pull.detach_after is 0"),
    ] {
        let error = parse(&workload, &format!("pull = {{ {pull} }}"), "").unwrap_err();
        assert!(error.contains(named), "{pull}: {error}");
    }
}
