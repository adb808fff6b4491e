//! Datacast in the packet engine: trees, interests, stores and the source's rate, by the machines of the product.

mod common;

use std::collections::BTreeMap;

use common::experiment;
use headwater_experiment::claim::{Outcome, Verdict};
use headwater_experiment::experiment::{Engine, Job, Scale};
use headwater_experiment::run::{RunError, packet_setup, run_job};
use headwater_experiment::scenario::Scenario;
use headwater_experiment::table::Tables;
use headwater_experiment::workload::Workload;
use headwater_sim::packet::{self, Records, SetupError, TreeRow};
use headwater_units::Bytes;

/// Datacast §VI-B: BCube(4,1), 1 Gbit/s, 5 us, queues of 100 packets, headers of 16 B.
const BCUBE: &str = r#"
    scheme = "datacast"
    fabric = { kind = "bcube", n = 4, k = 1, rate = "1 Gbit/s", delay = "5 us" }
    packet = { data = "1500 B", ack = "16 B" }
    port = { queue = "100 packets", mark_threshold = "none" }
    jitter = "0 s"
    transport = { block_symbols = 674, datacast = { @datacast } }
    @more
    [workload]
    kind = "task-list"
    tasks = [@tasks]
"#;
/// The group of Fig. 6a.
const FIGURE_6A: &str =
    "{ name = 'group', packets = @packets, sources = [0], receiver = 2, further = [4, 9, 11, 13, 15] }";
/// The link to host 02.
const SLOW: &str = "faults = [{ on = 'link sw0.0-h2', what = { kind = 'set-rate', rate = '100 Mbit/s' } }]";
const FAST: &str = "increase = '125 Mbit/s', cache = '512 KB'";

fn scenario(datacast: &str, tasks: &str, more: &str) -> Scenario {
    let text = BCUBE.replace("@datacast", datacast).replace("@tasks", tasks).replace("@more", more);
    let scenario: Scenario = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    scenario.check().unwrap();
    scenario
}

fn figure_6a(packets: u64) -> String {
    FIGURE_6A.replace("@packets", &packets.to_string())
}

fn run(scenario: &Scenario) -> Records {
    packet::run(packet_setup(scenario, 1).unwrap(), &mut |_| {}).unwrap()
}

fn took(records: &Records) -> f64 {
    records.tasks[0].finish.expect("it finishes").since(records.tasks[0].arrival).as_secs_f64()
}

fn sum(records: &Records, count: fn(&TreeRow) -> u64) -> f64 {
    records.trees.iter().map(count).sum::<u64>() as f64
}

fn link_stress(records: &Records) -> f64 {
    sum(records, |tree| tree.carried) / sum(records, |tree| tree.new * tree.links)
}

/// The verdicts at small scale, each job changed first.
fn verdicts(id: &str, change: impl Fn(&mut Job)) -> BTreeMap<String, Verdict> {
    let experiment = experiment(id);
    let mut all = Tables::gathering();
    for mut job in experiment.jobs(Engine::Packet, Scale::Small, None).unwrap() {
        change(&mut job);
        let tables = run_job(&job, &mut |_| ()).unwrap_or_else(|error| panic!("{id}: {error}"));
        job.gather(tables, &mut all).unwrap();
    }
    let verdicts = experiment.judge(Engine::Packet, Scale::Small, &all);
    verdicts.into_iter().map(|it| (it.claim.clone(), it)).collect()
}

// ---- the machines together

#[test]
fn two_trees_bring_each_symbol_once_over_each_link_at_twice_the_rate_of_one() {
    let at = |trees: u32| {
        let records = run(&scenario(&format!("{FAST}, trees = {trees}"), &figure_6a(20_000), ""));
        assert_eq!(records.trees.len() as u32, trees);
        (took(&records), link_stress(&records))
    };
    let (one, two) = (at(1), at(2));
    let ideal = 20_000.0 * 12e-6;
    assert!(one.0 < 1.02 * ideal && two.0 < 1.04 * ideal / 2.0, "{one:?} {two:?}, ideal {ideal}");
    assert!(one.0 > ideal && two.0 > ideal / 2.0, "{one:?} {two:?}, ideal {ideal}");
    assert_eq!((one.1, two.1), (1.0, 1.0));
}

#[test]
fn true_bytes_come_through_trees_nodes_and_losses() {
    let lossy =
        "faults = [{ on = 'link sw0.0-h3', what = { kind = 'random-loss', p = 0.02 } }]\ncarry_bytes = true";
    let records = run(&scenario(FAST, &figure_6a(5_000), lossy));
    let task = &records.tasks[0];
    assert!(task.finish.is_some() && records.counts.faults.lost > 20, "{task:?}");
    assert_eq!((Some(task.blocks_done), records.counts.corrupt), (task.blocks, 0));
    assert_eq!(task.blocks, Some(8 * 6), "of six receivers");
}

#[test]
fn a_loss_above_a_store_is_one_duplicate_at_the_source_and_below_it_none() {
    let lossy = |link: &str| {
        let fault =
            format!("faults = [{{ on = 'link {link}', what = {{ kind = 'random-loss', p = 0.005 }} }}]");
        let records = run(&scenario("cache = '512 KB', trees = 1", &figure_6a(10_000), &fault));
        (records.counts.faults.lost as f64, sum(&records, |tree| tree.duplicates))
    };
    // Three branches lead on from the first switch, and one to host 02.
    let (above, below) = (lossy("h0-sw0.0"), lossy("sw0.0-h2"));
    assert!(above.0 > 30.0 && (0.9..1.5).contains(&(above.1 / above.0)), "{above:?}");
    assert!(below.0 > 30.0 && below.1 < 0.1 * below.0, "{below:?}");
}

#[test]
fn a_group_that_is_broken_off_leaves_the_links_to_the_other_one() {
    let second = "{ name = 'second', at = '10 ms', stop = '20 ms', packets = 100000, sources = [0], receiver = 1, further = [5] }";
    let tasks = format!("{}, {second}", figure_6a(8_000));
    let one = format!("{FAST}, trees = 1");
    let (alone, shared) = (run(&scenario(&one, &figure_6a(8_000), "")), run(&scenario(&one, &tasks, "")));
    assert!(shared.tasks[1].finish.is_none() && shared.tasks[1].useful > 100, "{:?}", shared.tasks[1]);
    let longer = took(&shared) - took(&alone);
    assert!((0.001..0.03).contains(&longer), "{longer} s longer");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let lossy = format!("{SLOW}\nuntil = '200 ms'");
    let ran = || {
        let records = run(&scenario("trees = 1", &figure_6a(100_000), &lossy));
        (
            records.counts,
            records.trees.iter().map(|tree| (tree.new, tree.repeated, tree.nodes)).collect::<Vec<_>>(),
        )
    };
    assert_eq!(ran(), ran());
}

// ---- the rows

#[test]
fn the_figures_come_out_as_published() {
    for id in
        ["fig7a-packets", "fig7b", "fig7c", "loss", "efficiency", "replacement", "testbed", "fig9-packets"]
    {
        let verdicts = verdicts(&format!("datacast/{id}"), |_| ());
        for verdict in verdicts.values() {
            let ok = [Outcome::Pass, Outcome::Report].contains(&verdict.verdict);
            assert!(ok, "{id}: {verdict:?}");
        }
        assert!(verdicts.values().any(|it| it.verdict == Outcome::Pass), "{id}");
    }
}

/// With TCP beside it a group has less than its share: each of several losses at once halves its rate.
#[test]
fn groups_share_a_link_evenly_and_with_tcp_nearly_so() {
    let verdicts = verdicts("datacast/fig8", |_| ());
    for claim in ["D-8/groups-4-small", "D-8/groups-10-small", "D-8/tcp-10-small"] {
        assert_eq!(verdicts[claim].verdict, Outcome::Pass, "{:?}", verdicts[claim]);
    }
    assert!(verdicts["D-8/tcp-4-small"].measured > Some(0.8), "{:?}", verdicts["D-8/tcp-4-small"]);
}

#[test]
fn without_content_stores_links_carry_a_symbol_for_each_receiver_and_d_9i_is_missed() {
    let verdicts = verdicts("datacast/fig9-packets", |job| {
        let datacast = &mut job.scenario.transport.datacast;
        (datacast.cache, datacast.gathers) = (Bytes::ZERO, false);
        if let Workload::Group { packets, .. } = &mut job.scenario.workload {
            *packets = 6_740;
        }
    });
    for network in ["fattree", "bcube", "torus"] {
        let finish = &verdicts[&format!("D-9i/packets-{network}-small")];
        let stress = &verdicts[&format!("D-9i/packets-{network}-small-stress")];
        assert_eq!((finish.verdict, stress.verdict), (Outcome::Miss, Outcome::Miss), "{finish:?} {stress:?}");
        // So short an object would be over the line by a tenth.
        assert!(finish.measured > Some(3.0) && stress.measured > Some(1.5), "{finish:?} {stress:?}");
    }
}

#[test]
fn caches_below_theorem_1_or_that_keep_the_wrong_packets_cost_goodput() {
    let small = verdicts("datacast/fig7a-packets", |job| {
        job.scenario.transport.datacast.cache = Bytes::new(8_000);
    });
    assert_eq!(small["D-6/7a/packets-16"].verdict, Outcome::Miss);
    let rule = headwater_experiment::scenario::Replacement::Lfu;
    let wrong = verdicts("datacast/fig7a-packets", |job| job.scenario.transport.datacast.replacement = rule);
    assert_eq!(wrong["D-6/7a/packets-16"].verdict, Outcome::Miss);
}

// ---- what is refused

#[test]
fn what_no_tree_can_serve_is_refused_by_name() {
    let error = |tasks: &str, more: &str| {
        packet_setup(&scenario("", tasks, more), 1)
            .and_then(|setup| packet::run(setup, &mut |_| {}).map_err(RunError::from))
    };
    let two = "{ name = 'group', packets = 9, sources = [0, 1], receiver = 2, further = [4] }";
    let refused = error(two, "").unwrap_err();
    assert!(matches!(&refused, RunError::Packet(SetupError::SeveralSources { sources: 2, .. })), "{refused}");
    let refused =
        error(&figure_6a(9), "faults = [{ on = 'host 3', what = { kind = 'host-restart' } }]").unwrap_err();
    assert!(refused.to_string().contains("not repaired"), "{refused}");
    let one_receiver = "{ name = 'pair', packets = 9, sources = [0], receiver = 2 }";
    assert!(error(one_receiver, "").unwrap().tasks[0].finish.is_some());
}
